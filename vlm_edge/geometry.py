"""Geometry: sizes in pixels, and the three ways to change one. Whole numbers only."""

from itertools import product
from math import isqrt
from typing import NamedTuple


class Size(NamedTuple):
    """Width and height in pixels, always in this order."""

    width: int
    height: int

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def long(self) -> int:
        return self[0] if self[0] > self[1] else self[1]

    @property
    def short(self) -> int:
        return self[0] if self[0] < self[1] else self[1]

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"

    def turned(self) -> "Size":
        """The size after a quarter turn."""
        return Size(self.height, self.width)

    def fits(self, max_side: int, max_pixels: int) -> bool:
        return self.long <= max_side and self.pixels <= max_pixels


def scale(size: Size, long: int) -> Size:
    """The size with this long side and the same ratio; the short side is rounded up, so that it never gets thinner."""

    whole = size.long
    return Size(-(-size.width * long // whole), -(-size.height * long // whole))


def fit(size: Size, max_side: int, max_pixels: int) -> Size:
    """The largest size of the same ratio inside both bounds; never larger than `size`."""
    whole = size.long
    long = min(whole, max_side, isqrt(max_pixels * whole // size.short))
    fitted = scale(size, max(1, long))
    while fitted.pixels > max_pixels and fitted.long > 1:
        fitted = scale(size, fitted.long - 1)
    return fitted


def align(size: Size, cell: int, max_side: int, max_pixels: int) -> Size:
    """The nearest size whose sides are multiples of `cell`, inside both bounds.

    Where there is none, or a side is nearer to nothing than to one cell, the size as it is.
    """

    if 2 * size.short <= cell:
        return size
    nearest = Size(_nearest(size.width, cell), _nearest(size.height, cell))
    if nearest.fits(max_side, max_pixels):
        return nearest
    choices = (Size(*sides) for sides in product(_multiples(size.width, cell), _multiples(size.height, cell)))
    inside = [choice for choice in choices if choice.fits(max_side, max_pixels)]
    return min(inside, key=lambda choice: _distance(choice, size), default=size)


def _nearest(length: int, cell: int) -> int:
    """The nearest multiple; the lower one of two, but one cell at least."""
    below = length // cell * cell
    return below + cell if not below or 2 * (length - below) > cell else below


def _multiples(length: int, cell: int) -> list[int]:
    below = length // cell * cell
    return [below, below + cell] if below else [cell]


def _distance(one: Size, other: Size) -> int:
    return abs(one.width - other.width) + abs(one.height - other.height)
