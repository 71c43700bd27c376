"""GIF89a: the logical screen, and whether more than one picture follows."""

import struct
from typing import NamedTuple

from vlm_edge.geometry import Size
from vlm_edge.media.source import Reader

# So much of a file, and so many blocks of it, are looked at for a second picture.
SEEN_BYTES = 196_608
MAX_BLOCKS = 4_096

_EXTENSION, _PICTURE, _TRAILER = b"\x21", b"\x2c", b"\x3b"
_LOOPS = (b"NETSCAPE2.0", b"ANIMEXTS1.0")


class Gif(NamedTuple):
    size: Size
    animated: bool
    inset: bool  # its first picture does not fill it


def read(file: Reader) -> Gif:
    """Raises CorruptMedia."""
    width, height, flags = file.unpack("<HHB", 6)
    at = 13 + _palette_bytes(flags)
    animated = _animated(file.head, at)
    if animated is None:
        animated = _animated(file.up_to(0, SEEN_BYTES), at)
    if animated is None:  # behind a long first picture: all there is to go by is whether the file is to be repeated
        animated = any(name in file.head for name in _LOOPS)
    return Gif(Size(width, height), animated, _first(file.head, at) not in (None, (0, 0, width, height)))


def _first(data: bytes, at: int) -> tuple[int, ...] | None:
    """Left, top, width and height of the first picture."""
    for _ in range(MAX_BLOCKS):
        if data[at : at + 1] != _EXTENSION:
            break
        at = _behind(data, at + 2)
    found = data[at : at + 9]
    return struct.unpack_from("<4H", found, 1) if found[:1] == _PICTURE and len(found) == 9 else None


def first_frame(data: bytes) -> bytes:
    """A GIF that ends behind its first picture; as it came where that does not show."""
    at = 13 + _palette_bytes(data[10])
    for _ in range(MAX_BLOCKS):
        if data[at : at + 1] != _EXTENSION:
            break
        at = _behind(data, at + 2)
    if data[at : at + 1] != _PICTURE or len(data) < at + 11:
        return data
    at = _behind(data, at + 11 + _palette_bytes(data[at + 9]), len(data))
    return data[:at] + _TRAILER if at <= len(data) else data


def _palette_bytes(flags: int) -> int:
    return 3 * 2 << (flags & 7) if flags & 0x80 else 0


def _animated(data: bytes, at: int) -> bool | None:
    """Whether there are two pictures; None where that does not show in this much of the file."""
    pictures = 0
    for _ in range(MAX_BLOCKS):
        kind, flags = data[at : at + 1], sum(data[at + 9 : at + 10])
        pictures += kind == _PICTURE
        if pictures > 1:
            return True
        if kind == _PICTURE:
            at = _behind(data, at + 11 + _palette_bytes(flags))
        elif kind == _EXTENSION:
            at = _behind(data, at + 2)
        else:
            return False if kind else None
    return None


def _behind(data: bytes, at: int, most: int = MAX_BLOCKS) -> int:
    """The place behind a chain of blocks, each of which begins with its length."""
    for _ in range(most):
        if at >= len(data) or not data[at]:
            break
        at += 1 + data[at]
    return at + 1
