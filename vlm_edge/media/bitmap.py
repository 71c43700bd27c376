"""Plain pixels: BMP, the icons made of it (ICO), and PNM (PBM, PGM, PPM)."""

import re
from typing import NamedTuple

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media import png
from vlm_edge.media.source import Reader

# A PNM's header is text, with any comments; so much of it is looked at.
PNM_HEADER_BYTES = 8_192


class Bitmap(NamedTuple):
    size: Size
    alpha: bool = False
    grey: bool = False
    deep: bool = False  # more than eight bits a sample


# BMP

_CORE = 12  # length of OS/2's header, whose sizes are short
_HEADERS = (40, 52, 56, 64, 108, 124)
_BITFIELDS = 3


def bmp(file: Reader) -> Bitmap:
    """Raises CorruptMedia."""
    return _dib(file, 14)


def _dib(file: Reader, at: int) -> Bitmap:
    """What a device-independent bitmap's header says."""
    (length,) = file.unpack("<I", at)
    if length == _CORE:
        return Bitmap(Size(*file.unpack("<HH", at + 4)))
    if length not in _HEADERS:
        raise CorruptMedia("its header is of no known length")
    width, height, _, bits, compression = file.unpack("<iiHHI", at + 4)
    masked = bits == 32 and compression == _BITFIELDS and length > 52
    alpha = masked and file.unpack("<I", at + 52) != (0,)
    return Bitmap(Size(width, abs(height)), alpha, grey=bits == 1)  # a negative height: the first row is the uppermost


# ICO

MAX_ICONS = 256


class _Icon(NamedTuple):
    """An entry of the list."""

    size: Size
    bits: int  # of a pixel
    at: int


def ico(file: Reader) -> Bitmap:
    """The largest picture, of whose size the list of pictures may tell anything. Raises CorruptMedia."""
    at = _largest(file).at
    if file.up_to(at, len(png.MAGIC)) == png.MAGIC:
        return Bitmap(png.size(file, at), alpha=True)
    both = _dib(file, at).size  # the picture, and below it the mask
    return Bitmap(Size(both.width, both.height // 2), alpha=True)


def _largest(file: Reader) -> _Icon:
    """Of equals the one of fewest colours, as Pillow has it."""
    (count,) = file.unpack("<H", 4)
    icons = [_icon(file, 6 + 16 * index) for index in range(min(count, MAX_ICONS))]
    if not icons:
        raise CorruptMedia("it has no picture")
    return min(icons, key=lambda one: (-one.size.pixels, one.bits))


def _icon(file: Reader, entry: int) -> _Icon:
    width, height, colours, _, _, bits, _, at = file.unpack("<4B2H2I", entry)
    return _Icon(Size(width or 256, height or 256), bits or (colours and (colours - 1).bit_length()) or 256, at)


# PNM

_COMMENT = re.compile(rb"#[^\r\n]*(?:[\r\n]|\Z)")
_HEADER = re.compile(rb"P([1-6])\s+(\d{1,10})\s+(\d{1,10})(?:\s+(\d{1,5}))?\s")
_BITMAPS, _GREY = (b"1", b"4"), (b"1", b"2", b"4", b"5")


def pnm(file: Reader) -> Bitmap:
    """Raises CorruptMedia."""
    found = _HEADER.match(_COMMENT.sub(b"", file.head[:PNM_HEADER_BYTES]))
    if not found:
        raise CorruptMedia("its header is damaged")
    kind, width, height, greatest = found.groups()
    deep = kind not in _BITMAPS and int(greatest or 0) > 255
    return Bitmap(Size(int(width), int(height)), grey=kind in _GREY, deep=deep)
