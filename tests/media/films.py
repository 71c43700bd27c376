"""Films: videos made on the spot, in which each frame tells its number."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from io import BytesIO
from typing import Any

import av
import cv2
import numpy as np

from vlm_edge.geometry import Size

BITS = 12
SMALL = Size(96, 64)


def numbered(number: int, size: Size) -> Any:
    """A picture whose upper half is a row of black and white fields: its number, in bits; below, a colour a side."""
    frame = np.zeros((size.height, size.width, 3), np.uint8)
    half, field = size.height // 2, size.width // BITS
    for bit in range(BITS):
        frame[:half, bit * field : (bit + 1) * field] = 255 if number >> bit & 1 else 0
    frame[half:, : size.width // 2] = (0, 0, 255)  # red, in BGR
    frame[half:, size.width // 2 :] = (255, 0, 0)
    return frame


def number_of(frame: Any) -> int:
    height, width = frame.shape[:2]
    field = width // BITS
    row = frame[height // 4, :, 1]
    return sum((row[bit * field + field // 2] > 127) << bit for bit in range(BITS))


def film(
    frames: int,
    *,
    size: Size = SMALL,
    fps: int = 30,
    codec: str = "libx264",
    container: str = "mp4",
    times: Sequence[int] | None = None,
    gop: int = 12,
    still: bool = False,
) -> bytes:
    """A video of numbered frames. times: of each, in thousandths of a second, where they are not evenly spread."""
    file = BytesIO()
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = *size, "rgb8" if codec == "gif" else "yuv420p"
        stream.gop_size = gop
        if codec == "libx264":
            stream.options = {"preset": "ultrafast", "crf": "10", "bf": "2"}
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1_000)
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(numbered(0 if still else index, size), format="bgr24")
            if times is not None:
                frame.pts, frame.time_base = times[index], Fraction(1, 1_000)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return file.getvalue()


def sound(container: str, codec: str) -> bytes:
    """A second of silence."""
    file = BytesIO()
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=48_000)
        for index in range(48):
            shape = (stream.layout.nb_channels, 1_000)
            frame = av.AudioFrame.from_ndarray(np.zeros(shape, np.float32), format="fltp", layout=stream.layout)
            frame.sample_rate, frame.pts = 48_000, index * 1_000
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return file.getvalue()


def picture(number: int, size: Size) -> bytes:
    _, encoded = cv2.imencode(".jpg", numbered(number, size))
    return bytes(encoded)


def read_jpeg(file: bytes) -> Any:
    """RGB."""
    read: Any = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    return read[:, :, ::-1].astype(int)


def frames_of(data: bytes) -> Iterator[Any]:
    """By another library than ours. BGR."""
    with av.open(BytesIO(data), "r") as container:
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="bgr24")
