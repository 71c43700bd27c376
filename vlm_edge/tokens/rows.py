"""Rows: geometries in which a picture is shrunk to a longest side, and each of its rows of cells ends with a break."""

from collections.abc import Mapping
from math import ceil, floor, sqrt
from typing import ClassVar, Self

import msgspec

from vlm_edge.geometry import Size
from vlm_edge.tokens.rule import SNAP, Rule


class RowGrid(Rule, frozen=True, kw_only=True):
    """Pixtral, Mistral-3, LightOnOCR: shrunk until no side is over max_side, then each side rounded up to cells.

    row_tokens: the break after each row of cells; the last is the end of the picture.
    rounds: a shrunk side is rounded, to 1 at least, and not cut (mistral-common, and not the Hugging Face processor).
    plan_pixels: a bound that the model does not have, for planning smaller sizes.
    Sources: transformers, models/pixtral/image_processing_pixtral.py; mistral-common, tokens/tokenizers/image.py.
    """

    patch: int
    merge: int = 1
    max_side: int
    row_tokens: int = 1
    rounds: bool = False
    plan_pixels: int | None = None

    names: ClassVar[Mapping[str, str]] = {
        "patch_size": "patch",
        "spatial_merge_size": "merge",
        "merge_size": "merge",
        "longest_edge": "max_side",
        "image_size": "max_side",
        "max_image_size": "max_side",
    }

    def __post_init__(self) -> None:
        if min(self.patch, self.merge, self.max_side) < 1 or self.row_tokens < 0:
            raise ValueError("patch, merge and max_side must be at least 1, row_tokens at least 0")

    @property
    def cell(self) -> int:
        return self.patch * self.merge

    def aligned(self, size: Size) -> Size:
        columns, rows = self._grid(size)
        made = Size(columns * self.cell, rows * self.cell)
        return made if made.short else size  # cut to nothing on a side

    def within(self, max_pixels: int) -> Self:
        return msgspec.structs.replace(self, plan_pixels=max_pixels)

    def image(self, size: Size) -> int:
        columns, rows = self._grid(size)
        return rows * (columns + self.row_tokens)

    def snap(self, size: Size) -> Size:
        """Of a picture that is shrunk, the short side loses what stands over a row of the shrunk one."""
        if size.long <= self.max_side:
            return Rule.snap(self, size)
        snapped = self._without_rest(size)
        near = (1 - SNAP) * size.short <= snapped.short < size.short
        return snapped if near and self.image(snapped) < self.image(size) else size

    def _without_rest(self, size: Size) -> Size:
        shrink = size.long / self.max_side
        whole = self._cut(size.short / shrink) // self.cell * self.cell * shrink
        short = round(whole) if self.rounds else ceil(whole)  # what the processor cuts to whole cells
        return Size(size.width, short) if size.width > size.height else Size(short, size.height)

    def _grid(self, size: Size) -> tuple[int, int]:
        width, height = size
        shrink = max(width / self.max_side, height / self.max_side)
        if self.plan_pixels:
            shrink = max(shrink, sqrt(size.pixels / self.plan_pixels))
        if shrink > 1:
            width, height = self._cut(width / shrink), self._cut(height / shrink)
        return (width - 1) // self.cell + 1, (height - 1) // self.cell + 1

    def _cut(self, side: float) -> int:
        return max(round(side), 1) if self.rounds else floor(side)
