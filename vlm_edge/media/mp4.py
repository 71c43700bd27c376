"""
MP4: frames, each a JPEG, as one short video. Byte for byte the same for the same frames.

Every frame stands for itself and all last equally long, so whoever samples at the clip's own rate keeps each of them,
at its time. FFmpeg, and so OpenCV, PyAV, torchcodec and decord, read JPEG in MP4. Source: ISO/IEC 14496-12 and -14.
"""

import struct
from collections.abc import Sequence
from math import ceil

from vlm_edge.geometry import Size

# Ticks a second; a frame lasts a whole number of them, and all together less than 2**32. Long frames have fewer.
TIMESCALES = 90_000, 100
LONG_S = 10.0

MEDIA_TYPE = "video/mp4"

_MATRIX = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)  # as it stands: not turned
_UNDETERMINED = 0x55C4  # the language
_DOTS_AN_INCH = 72 << 16
_JPEG_STREAM = bytes((0x6C, 0x11))  # objectTypeIndication of ISO/IEC 10918-1; a visual stream


def timing(fps: float) -> tuple[int, int]:
    """Ticks a second, and how many of them a frame of so many a second lasts: rounded up, for readers have bounds."""
    timescale = TIMESCALES[1 / fps > LONG_S]
    return timescale, max(1, ceil(timescale / fps - 1e-6))


def rate(fps: float) -> float:
    """Frames a second as readers will find it."""
    timescale, ticks = timing(fps)
    return timescale / ticks


def pack(frames: Sequence[bytes], size: Size, fps: float) -> bytes:
    """A video of these JPEG files, all of one size."""
    file_type = _box(b"ftyp", b"isom", struct.pack(">I", 512), b"isom", b"iso2", b"mp41")
    head = len(file_type) + len(_movie(frames, size, fps, 0)) + 8
    return b"".join((file_type, _movie(frames, size, fps, head), _box(b"mdat", *frames)))


def _movie(frames: Sequence[bytes], size: Size, fps: float, start: int) -> bytes:
    """start: where the first frame lies in the file."""
    timescale, ticks = timing(fps)
    length = len(frames) * ticks
    header = _full(
        b"mvhd", struct.pack(">IIIIIH10x", 0, 0, timescale, length, 0x10000, 0x100), _MATRIX, bytes(24), _one(2)
    )
    track = _full(
        b"tkhd",
        struct.pack(">IIIII8xhhhh", 0, 0, 1, 0, length, 0, 0, 0, 0),
        _MATRIX,
        struct.pack(">II", size.width << 16, size.height << 16),
        flags=3,  # enabled, in the movie
    )
    media = _full(b"mdhd", struct.pack(">IIIIHH", 0, 0, timescale, length, _UNDETERMINED, 0))
    handler = _full(b"hdlr", bytes(4), b"vide", bytes(12), b"\0")
    data = _box(b"dinf", _full(b"dref", _one(1), _full(b"url ", flags=1)))  # in this file
    video = _full(b"vmhd", bytes(8), flags=1)
    stored = _box(b"minf", video, data, _samples(frames, size, ticks, start))
    return _box(b"moov", header, _box(b"trak", track, _box(b"mdia", media, handler, stored)))


def _samples(frames: Sequence[bytes], size: Size, ticks: int, start: int) -> bytes:
    """Of what kind they are, how long each lasts, how many bytes it has; all lie in one chunk."""
    count, sizes = len(frames), struct.pack(f">{len(frames)}I", *map(len, frames))
    return _box(
        b"stbl",
        _full(b"stsd", _one(1), _entry(size)),
        _full(b"stts", _one(1), struct.pack(">II", count, ticks)),
        _full(b"stsc", _one(1), struct.pack(">III", 1, count, 1)),
        _full(b"stsz", struct.pack(">II", 0, count), sizes),
        _full(b"stco", _one(1), _one(start)),
    )


def _entry(size: Size) -> bytes:
    fields = struct.pack(">6xH16xHHIIIH32xHh", 1, *size, _DOTS_AN_INCH, _DOTS_AN_INCH, 0, 1, 24, -1)
    config = _described(4, _JPEG_STREAM, bytes(11))
    stream = _full(b"esds", _described(3, struct.pack(">HB", 1, 0), config, _described(6, b"\2")))
    return _box(b"mp4v", fields, stream)


def _described(tag: int, *content: bytes) -> bytes:
    joined = b"".join(content)
    return bytes((tag, len(joined))) + joined


def _box(kind: bytes, *content: bytes) -> bytes:
    joined = b"".join(content)
    return struct.pack(">I4s", len(joined) + 8, kind) + joined


def _full(kind: bytes, *content: bytes, flags: int = 0) -> bytes:
    return _box(kind, struct.pack(">I", flags), *content)


def _one(number: int) -> bytes:
    return struct.pack(">I", number)
