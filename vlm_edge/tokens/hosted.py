"""
Hosted: how the makers of models that cannot be downloaded say they count.

Published rules, which nobody else can run: the counts are estimates. Pictures are shrunk, never enlarged.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, sqrt
from typing import ClassVar, Literal

from vlm_edge.errors import MediaTooLarge
from vlm_edge.geometry import Size
from vlm_edge.tokens.rule import Rule

# Of a whole number that float arithmetic made, no more is over than this.
NOISE = 1e-9


class PricedTiles(Rule, frozen=True, kw_only=True):
    """OpenAI: fitted into a square of fit_within, then its short side to short_side; each tile begun costs.

    detail: `low` costs low_detail_tokens, or else base_tokens, whatever the size.
    Source: platform.openai.com, guide "Images and vision".
    """

    base_tokens: int
    tile_tokens: int
    tile: int = 512
    fit_within: int = 2_048
    short_side: int = 768
    detail: Literal["low", "high", "original", "auto"] = "high"
    low_detail_tokens: int | None = None

    def __post_init__(self) -> None:
        if min(self.tile, self.fit_within, self.short_side) < 1:
            raise ValueError("tile, fit_within and short_side must be at least 1")

    def aligned(self, size: Size) -> Size:
        scale = self._scale(size)
        return Size(*(_begun(side * scale) for side in size))

    def image(self, size: Size) -> int:
        if self.detail == "low":
            return self.base_tokens if self.low_detail_tokens is None else self.low_detail_tokens
        scale = self._scale(size)
        columns, rows = (_begun(side * scale / self.tile) for side in size)
        return self.base_tokens + self.tile_tokens * columns * rows

    def steps(self, side: int) -> Iterator[int]:
        yield side // self.tile * self.tile

    def _scale(self, size: Size) -> float:
        scale = min(1.0, self.fit_within / size.long)
        return min(scale, self.short_side / size.short)


def _begun(length: float) -> int:
    return ceil(length - NOISE)


class PricedPatches(Rule, frozen=True, kw_only=True):
    """OpenAI: patches begun, shrunk where they are more than patch_budget, times a price.

    patch_budget: None where pictures are not shrunk. detail: `low` is a picture fitted into a square of low_side.
    Source: platform.openai.com, guide "Images and vision".
    """

    patch: int = 32
    patch_budget: int | None = 1_536
    multiplier: float = 1.0
    detail: Literal["low", "high", "original", "auto"] = "high"
    low_side: int = 512
    rounding: Literal["ceil"] = "ceil"

    def __post_init__(self) -> None:
        if min(self.patch, self.low_side) < 1 or (self.patch_budget or 1) < 1 or self.multiplier <= 0:
            raise ValueError("patch, patch_budget and low_side must be at least 1, and multiplier above 0")

    def aligned(self, size: Size) -> Size:
        return Size(*(_begun(side * self.patch) for side in self._shrunk(size)))

    def image(self, size: Size) -> int:
        columns, rows = (_begun(side) for side in self._shrunk(size))
        return _begun(columns * rows * self.multiplier)

    def steps(self, side: int) -> Iterator[int]:
        yield side // self.patch * self.patch

    def _shrunk(self, size: Size) -> tuple[float, float]:
        """Width and height, in patches."""
        low = min(1.0, self.low_side / size.long) if self.detail == "low" else 1.0
        width, height = size.width * low / self.patch, size.height * low / self.patch
        if self.patch_budget is None or _begun(width) * _begun(height) <= self.patch_budget:
            return width, height
        shrink = sqrt(self.patch_budget / (width * height))
        shrink *= min(max(1, floor(side * shrink)) / (side * shrink) for side in (width, height))
        return width * shrink, height * shrink


class PricedCells(Rule, frozen=True, kw_only=True):
    """Claude: the largest size of the same shape whose padded long side and cells are inside both bounds.

    max_side: a longer one is refused; in a request of more than `many` pictures, one over many_max_side.
    Source: docs.claude.com, guides "Vision" and on coordinates.
    """

    patch: int = 28
    max_long_edge: int = 1_568
    max_tokens: int = 1_568
    max_side: int = 8_000
    many: int = 20
    many_max_side: int = 2_000

    def __post_init__(self) -> None:
        if not 1 <= self.patch <= self.max_long_edge or self.max_tokens < 1:
            raise ValueError("patch and max_tokens must be at least 1, and max_long_edge not below patch")

    def aligned(self, size: Size) -> Size:
        self._check(size, self.max_side)
        if self._fits(size):
            return size
        longs = range(1, min(size.long, self.max_long_edge) + 1)
        return _scaled(size, max(1, bisect_right(longs, False, key=lambda long: not self._fits(_scaled(size, long)))))

    def image(self, size: Size) -> int:
        return self._cells(self.aligned(size))

    def images(self, sizes: Sequence[Size]) -> list[int]:
        if len(sizes) > self.many:
            for size in sizes:
                self._check(size, self.many_max_side)
        return [self.image(size) for size in sizes]

    def steps(self, side: int) -> Iterator[int]:
        yield side // self.patch * self.patch

    def _fits(self, size: Size) -> bool:
        return -(-size.long // self.patch) * self.patch <= self.max_long_edge and self._cells(size) <= self.max_tokens

    def _cells(self, size: Size) -> int:
        return -(-size.width // self.patch) * -(-size.height // self.patch)

    def _check(self, size: Size, allowed: int) -> None:
        if size.long > allowed:
            raise MediaTooLarge("pixels on its long side", size.long, allowed)


def _scaled(size: Size, long: int) -> Size:
    short = max(1, round(size.short * long / size.long))
    return Size(long, short) if size.width >= size.height else Size(short, long)


class PricedArea(Rule, frozen=True, kw_only=True):
    """Claude as it was documented before: the area, over a divisor, of a picture shrunk to a long edge."""

    divisor: int = 750
    max_long_edge: int = 1_568
    max_tokens: int = 1_600

    names: ClassVar[Mapping[str, str]] = {"max_tokens_about": "max_tokens"}

    def __post_init__(self) -> None:
        if min(self.divisor, self.max_long_edge, self.max_tokens) < 1:
            raise ValueError("divisor, max_long_edge and max_tokens must be at least 1")

    def image(self, size: Size) -> int:
        scale = min(1.0, self.max_long_edge / size.long)
        return min(self.max_tokens, _begun(size.width * scale * size.height * scale / self.divisor))


class PricedCrops(Rule, frozen=True, kw_only=True):
    """Gemini 2: a small picture is one tile; a larger one is cut into tiles of a part of its short side.

    crop_unit: that part; of the two published forms the one that keeps it between bounds is the default.
    video_frame: of each frame. Source: ai.google.dev, guides "Image understanding" and "Video understanding".
    """

    tokens_per_tile: int = 258
    small_image_limit: int = 384
    fit_within: int = 3_072
    crop_unit: Literal["clip(floor(min(w,h)/1.5), 256, 768)", "floor(min(w,h)/1.5)"] = (
        "clip(floor(min(w,h)/1.5), 256, 768)"
    )
    video_frame: int = 258

    def __post_init__(self) -> None:
        if min(self.tokens_per_tile, self.small_image_limit, self.fit_within) < 1:
            raise ValueError("tokens_per_tile, small_image_limit and fit_within must be at least 1")

    def image(self, size: Size) -> int:
        if size.long <= self.small_image_limit:
            return self.tokens_per_tile
        scale = min(1.0, self.fit_within / size.long)
        width, height = (side * scale for side in size)
        unit = self._unit(min(width, height))
        return self.tokens_per_tile * _begun(width / unit) * _begun(height / unit)

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        return frames * self.video_frame

    def _unit(self, short: float) -> int:
        unit = floor(short / 1.5)
        return min(max(unit, 256), 768) if self.crop_unit.startswith("clip") else max(unit, 1)


class PricedLevels(Rule, frozen=True, kw_only=True):
    """Gemini 3: a picture, and a frame, costs what its media resolution says, at most.

    Source: ai.google.dev, guide "Media resolution".
    """

    media_resolution: Literal["low", "medium", "high", "ultra_high"] = "high"
    low: int = 280
    medium: int = 560
    high: int = 1_120
    ultra_high: int = 2_240
    video_frame: int = 70
    video_frame_high: int = 280

    names: ClassVar[Mapping[str, str]] = {"max_tokens_per_image": "high"}

    def image(self, size: Size) -> int:
        levels = {"low": self.low, "medium": self.medium, "high": self.high, "ultra_high": self.ultra_high}
        return levels[self.media_resolution]

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        return frames * self.video_frame
