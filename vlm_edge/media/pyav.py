"""PyAV: the frames of videos whose codec OpenCV does not have (AV1). The only module that knows it; extra `av`."""

import importlib.util
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media.sampling import Instant

_EPSILON_S = 5e-4


def is_installed() -> bool:
    return importlib.util.find_spec("av") is not None


def frames(data: bytes, instants: Sequence[Instant], size: Size) -> Iterator[Any]:
    """As `video.frames`; where frames end early the last one stands for the rest. Read forward, from the start."""
    import av

    with av.open(BytesIO(data), "r") as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        decoded = ((frame, _shown_s(frame, stream)) for frame in container.decode(stream))
        current = _next(decoded)
        if current is None:
            raise CorruptMedia("it has no frames that can be read", "video")
        for instant in instants:
            while current[1] < instant.shown_s - _EPSILON_S:
                following = _next(decoded)
                if following is None:
                    break
                current = following
            yield current[0].to_ndarray(format="bgr24", width=size.width, height=size.height)


def _next(decoded: Iterator[tuple[Any, float]]) -> tuple[Any, float] | None:
    import av

    try:
        return next(decoded, None)
    except av.error.FFmpegError:
        return None


def _shown_s(frame: Any, stream: Any) -> float:
    start = stream.start_time or 0
    return float((frame.pts - start) * stream.time_base) if frame.pts is not None else 0.0
