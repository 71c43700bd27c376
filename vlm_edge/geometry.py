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
        return max(self)

    @property
    def short(self) -> int:
        return min(self)

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"

    def turned(self) -> "Size":
        """The size after a quarter turn."""
        return Size(self.height, self.width)

    def fits(self, max_side: int, max_pixels: int) -> bool:
        return self.long <= max_side and self.pixels <= max_pixels


def scale(size: Size, long: int) -> Size:
    """The size with this long side and the same ratio; the short side is rounded up, so that it never gets thinner."""

    def side(length: int) -> int:
        return -(-length * long // size.long)

    return Size(side(size.width), side(size.height))


def fit(size: Size, max_side: int, max_pixels: int) -> Size:
    """The largest size of the same ratio inside both bounds; never larger than `size`."""
    long = min(size.long, max_side, isqrt(max_pixels * size.long // size.short))
    fitted = scale(size, max(1, long))
    while fitted.pixels > max_pixels and fitted.long > 1:
        fitted = scale(size, fitted.long - 1)
    return fitted


def align(size: Size, cell: int, max_side: int, max_pixels: int) -> Size:
    """The nearest size whose sides are multiples of `cell`, inside both bounds.

    Where there is none, or a side is nearer to nothing than to one cell, the size as it is.
    """

    def multiples(length: int) -> list[int]:
        below = length // cell * cell
        return [below, below + cell] if below else [cell]

    choices = [Size(*sides) for sides in product(multiples(size.width), multiples(size.height))]
    inside = [choice for choice in choices if choice.fits(max_side, max_pixels)]
    if 2 * size.short <= cell or not inside:
        return size
    return min(inside, key=lambda choice: _distance(choice, size))


def _distance(one: Size, other: Size) -> int:
    return abs(one.width - other.width) + abs(one.height - other.height)
