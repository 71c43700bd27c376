"""
Orientation: which way a picture is turned, as Pillow finds it in the metadata.

Pillow, because the servers behind us read with it what we pass on as it came. Exif counts; XMP where Exif is silent.
"""

import re
from typing import NamedTuple

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media import tiff

_TAG = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


class Turn(NamedTuple):
    orientation: int = 1  # of the Exif tag, 1 to 8
    damaged: bool = False  # the metadata are such that other readers give up the picture

    def upright(self, size: Size) -> Size:
        return size.turned() if self.orientation >= 5 else size


def turn(exif: bytes, xmp: bytes) -> Turn:
    """Bad metadata never fails a picture."""
    try:
        return turn_by(tiff.exif_orientation(exif), xmp)
    except CorruptMedia:
        return Turn(damaged=True)


def turn_by(orientation: int | None, xmp: bytes) -> Turn:
    """None: Exif says nothing."""
    if orientation is not None:
        return Turn(orientation)
    found = _TAG.search(xmp)
    told = int(found[1]) if found else 1
    return Turn(told if 1 <= told <= 8 else 1)
