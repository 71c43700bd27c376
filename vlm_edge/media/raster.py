"""Raster: the pixels of one picture between its decoder and libvips."""

import msgspec

from vlm_edge.geometry import Size


class Raster(msgspec.Struct, frozen=True):
    """Upright pixels, row by row: `size` x `bands` numbers of `bits` (8, or 16 in the machine's order).

    bands: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha. profile: ICC, where colours are in another space than sRGB.
    """

    size: Size
    bands: int
    data: bytes
    bits: int = 8
    profile: bytes = b""
