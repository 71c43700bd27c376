"""WebP (RFC 9649)."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media.source import HEAD_BYTES, META_BYTES, Reader

MAX_CHUNKS = 3_000

_ICC, _ALPHA, _EXIF, _XMP, _ANIMATED = 0x20, 0x10, 0x08, 0x04, 0x02
# What is read of a chunk that its flag announces; of a profile, the part with its name.
_METADATA = {b"ICCP": (_ICC, 4_096), b"EXIF": (_EXIF, HEAD_BYTES), b"XMP ": (_XMP, META_BYTES)}


class Webp(NamedTuple):
    size: Size  # as stored
    alpha: bool = False
    animated: bool = False
    lossless: bool = False
    exif: bytes = b""
    xmp: bytes = b""
    profile: bytes | None = None


def read(file: Reader) -> Webp:
    """Raises CorruptMedia."""
    kind = file.get(12, 4)
    if kind == b"VP8 ":
        width, height = file.unpack("<HH", 26)
        return Webp(Size(width & 0x3FFF, height & 0x3FFF))
    if kind == b"VP8L":
        (bits,) = file.unpack("<I", 21)
        size = Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        return Webp(size, alpha=bool(bits >> 28 & 1), lossless=True)
    if kind == b"VP8X":
        return _extended(file)
    raise CorruptMedia("it is no WebP stream")


def _extended(file: Reader) -> Webp:
    flags, _, low_w, high_w, low_h, high_h = file.unpack("<B3sHBHB", 20)
    first: dict[bytes, bytes] = {}
    for kind, at, length in _chunks(file):
        flag, most = _METADATA.get(kind, (None, 0))
        if kind not in first and (flag is None or flags & flag):
            first[kind] = file.up_to(at, min(length, most))
    return Webp(
        Size((high_w << 16 | low_w) + 1, (high_h << 16 | low_h) + 1),
        alpha=bool(flags & _ALPHA),
        animated=bool(flags & _ANIMATED),
        lossless=b"VP8L" in first,
        exif=first.get(b"EXIF", b""),
        xmp=first.get(b"XMP ", b""),
        profile=first.get(b"ICCP"),
    )


def _chunks(file: Reader) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start of its content, length of it)"""
    at = 12
    for _ in range(MAX_CHUNKS):
        if at + 8 > file.size:
            return
        kind, length = struct.unpack("<4sI", file.get(at, 8))
        yield kind, at + 8, length
        at += 8 + length + (length & 1)
