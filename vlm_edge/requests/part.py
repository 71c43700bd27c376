"""MediaPart: one picture, video or sound in a request, as a dialect found it."""

from typing import Literal

import msgspec

from vlm_edge.requests.body import Path

Modality = Literal["image", "video", "audio"]


class MediaPart(msgspec.Struct, frozen=True):
    place: str  # as errors name it: messages[3].content[1]
    path: Path  # of the string that holds the URL, in the parsed body
    modality: Modality
    url: str | None  # that string, its payload cut out; None where there is none
