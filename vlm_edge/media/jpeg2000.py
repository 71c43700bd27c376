"""JPEG 2000 (ITU T.800): a codestream, alone or in the boxes of a JP2 file."""

from typing import NamedTuple

from vlm_edge.geometry import Size
from vlm_edge.media import isobmff
from vlm_edge.media.source import Reader

CODESTREAM = b"\xff\x4f\xff\x51"
SIZ_BYTES = 42  # with all that we read of it
_ALPHA = (2, 4)  # numbers of components


class Jpeg2000(NamedTuple):
    size: Size
    components: int
    tile: Size  # of what is decoded at once

    @property
    def alpha(self) -> bool:
        return self.components in _ALPHA


def read(file: Reader) -> Jpeg2000:
    """Raises CorruptMedia."""
    return _codestream(file, 4) if file.head.startswith(CODESTREAM) else _boxed(file)


def _codestream(file: Reader, at: int) -> Jpeg2000:
    """By the marker segment SIZ: the picture lies on a canvas, at an offset."""
    right, lower, left, upper, tile_width, tile_height = file.unpack(">6I", at + 4)
    (components,) = file.unpack(">H", at + 36)
    return Jpeg2000(Size(right - left, lower - upper), components, Size(tile_width, tile_height))


def _boxed(file: Reader) -> Jpeg2000:
    header = isobmff.box(file, b"jp2h", 0, file.size)
    height, width, components = file.unpack(">IIH", isobmff.box(file, b"ihdr", header.start, header.stop).start)
    return Jpeg2000(Size(width, height), components, _tile(file) or Size(width, height))


def _tile(file: Reader) -> Size | None:
    """Of the codestream, which alone knows; a file cut short may not have one any more."""
    for box in isobmff.boxes(file, 0, file.size, cut=True):
        if box.kind == b"jp2c" and box.stop - box.start > SIZ_BYTES and file.get(box.start, 4) == CODESTREAM:
            return _codestream(file, box.start + 4).tile
    return None
