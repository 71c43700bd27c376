"""PyAV: the frames of videos whose codec OpenCV does not have (AV1). The only module that knows it; extra `av`."""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media.sampling import Instant
from vlm_edge.media.video import EndsEarly

_EPSILON_S = 5e-4


def is_installed() -> bool:
    return importlib.util.find_spec("av") is not None


def frames(data: bytes, instants: Sequence[Instant], size: Size) -> Iterator[Any]:
    """As `video.frames`. Read forward, from the start."""
    import av

    with av.open(BytesIO(data), "r") as container:
        shown = _shown(container)
        current = next(shown, None)
        if current is None:
            raise CorruptMedia("it has no frames that can be read", "video")
        for instant in instants:
            while current[1] < instant.shown_s - _EPSILON_S:
                following = next(shown, None)
                if following is None:
                    raise EndsEarly(current[1])
                current = following
            yield _upright(current[0], size)


def _shown(container: Any) -> Iterator[tuple[Any, float]]:
    """Frames, and when they are shown, up to the first that cannot be read."""
    import av

    stream = container.streams.video[0]
    start = stream.start_time or 0
    with suppress(av.error.FFmpegError):
        for packet in container.demux(stream):
            for frame in packet.decode():
                yield frame, float((frame.pts - start) * stream.time_base) if frame.pts is not None else 0.0


def _upright(frame: Any, size: Size) -> Any:
    """Scaled, and turned as its file says: by so many degrees against the clock."""
    import numpy as np

    turns = round(frame.rotation / 90) % 4
    width, height = (size.height, size.width) if turns % 2 else size
    return np.ascontiguousarray(np.rot90(frame.to_ndarray(format="bgr24", width=width, height=height), turns))
