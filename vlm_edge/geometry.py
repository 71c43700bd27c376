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
    """The size with this long side and the same ratio, each side rounded to the nearest pixel, at least one."""

    def side(length: int) -> int:
        return max(1, (2 * length * long + size.long) // (2 * size.long))

    return Size(side(size.width), side(size.height))


def fit(size: Size, max_side: int, max_pixels: int) -> Size:
    """The largest size of the same ratio inside both bounds; never larger than `size`."""
    long = min(size.long, max_side, isqrt(max_pixels * size.long // size.short))
    fitted = scale(size, max(1, long))
    while fitted.pixels > max_pixels and fitted.long > 1:
        fitted = scale(size, fitted.long - 1)
    return fitted


def align(size: Size, cell: int, max_side: int, max_pixels: int) -> Size:
    """The nearest size whose sides are multiples of `cell`, inside both bounds, each side at least one cell.

    Where not even one cell fits the bounds, the cell wins: no model sees less than one.
    """

    def multiples(length: int) -> tuple[int, int]:
        below = max(cell, length // cell * cell)
        return below, below + cell

    choices = [Size(*sides) for sides in product(multiples(size.width), multiples(size.height))]
    inside = [choice for choice in choices if choice.fits(max_side, max_pixels)]
    return min(inside or choices[:1], key=lambda choice: _distance(choice, size))


def _distance(one: Size, other: Size) -> int:
    return abs(one.width - other.width) + abs(one.height - other.height)
