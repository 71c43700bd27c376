"""MediaPart: one picture, video or sound in a request, as a dialect found it."""

from dataclasses import dataclass
from typing import Literal

from vlm_edge.requests.body import Path

Modality = Literal["image", "video", "audio"]


@dataclass(frozen=True, slots=True)
class MediaPart:
    place: str  # as errors name it: messages[3].content[1]
    path: Path  # of the string that holds the URL, in the parsed body
    modality: Modality
    url: str  # that string, its payload cut out
