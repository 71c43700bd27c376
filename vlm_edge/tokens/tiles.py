"""Tiles: geometries that stretch a picture over a grid of square tiles; each tile costs the same."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from math import ceil, sqrt
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from vlm_edge.errors import UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.tokens.ratios import nearest_grid
from vlm_edge.tokens.rule import SNAP, Rule

Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Above0 = Annotated[float, Meta(gt=0)]


class Grid(NamedTuple):
    """Tiles beside one another, and above one another."""

    columns: int
    rows: int

    @property
    def tiles(self) -> int:
        return self.columns * self.rows

    def canvas(self, tile: int) -> Size:
        return Size(self.columns * tile, self.rows * tile)


@lru_cache(maxsize=64)
def grids(least: int, most: int) -> tuple[Grid, ...]:
    """Every grid of `least` to `most` tiles; fewer tiles first, then fewer columns."""
    found = [Grid(columns, rows) for columns in range(1, most + 1) for rows in range(1, most // columns + 1)]
    return tuple(sorted((grid for grid in found if grid.tiles >= least), key=lambda grid: grid.tiles))


@lru_cache(maxsize=64)
def ratios(least: int, most: int) -> tuple[float, ...]:
    return tuple(sorted({grid.columns / grid.rows for grid in grids(least, most)}))


def tightest(scales: list[float]) -> int:
    """Which of the scales that would fit a picture into canvases: the least that enlarges, else the one nearest to 1.

    Of equal ones the first, which is the smallest canvas where they are ordered by area.
    """
    enlarging = [scale for scale in scales if scale >= 1]
    return scales.index(min(enlarging) if enlarging else max(scales))


def side_tokens(tile: int, patch: int, downsample: float) -> int:
    """Tokens along a side of a tile. `downsample`: checkpoints give the factor (2), or what it leaves (0.5)."""
    return ceil(tile // patch / downsample) if downsample >= 1 else int(tile // patch * downsample)


class Resizing(Rule, frozen=True, kw_only=True):
    """Rules that know which size a picture itself gets inside the canvas."""

    def aligned(self, size: Size) -> Size:
        """`size` itself where the processor would not keep what it made, or count it otherwise."""
        resized = self._resized(size)
        kept = self._resized(resized) == resized and self.image(resized) == self.image(size)
        return resized if kept else size

    def _resized(self, size: Size) -> Size:
        return size


class Turning(Resizing, frozen=True, kw_only=True):
    """Rules in which the ratio of the sides decides: at each of the `turns` another grid is chosen."""

    @property
    def turns(self) -> tuple[float, ...]:
        return ()

    def snap(self, size: Size) -> Size:
        choices = [Rule.snap(self, size), *self._turned(size)]
        return min(choices, key=lambda choice: (self.image(choice), -choice.pixels))

    def _turned(self, size: Size) -> Iterator[Size]:
        """The sizes just on either side of the turns that are near."""
        ratio = size.width / size.height
        for turn in self.turns:
            if (1 - SNAP) * ratio <= turn <= ratio:
                yield from (Size(width, size.height) for width in _just_below(turn * size.height, size.width))
            elif ratio < turn <= ratio / (1 - SNAP):
                yield from (Size(size.width, height) for height in _just_below(size.width / turn, size.height))


def _just_below(length: float, side: int) -> list[int]:
    return [near for near in (int(length), int(length) - 1) if (1 - SNAP) * side <= near <= side]


class RatioTiles(Turning, frozen=True, kw_only=True):
    """InternVL: the grid whose shape is nearest to the picture's, however small the picture; and a thumbnail.

    tile_tokens, side: tokens of a tile, or along its side; None where patch and downsample give it.
    tile_tags, image_tags: tokens around each tile, and around all.
    dynamic: False where every picture is one tile. frame_break_tokens: tokens between the frames of a clip, each
    of which is one tile behind its number; None where the model takes no video.
    Source: vLLM, transformers_utils/processors/internvl.py; transformers, models/got_ocr2/image_processing_got_ocr2.py.
    """

    tile: Positive
    patch: Positive
    downsample: Above0
    tile_tokens: Positive | None = None
    side: Positive | None = None
    min_tiles: Positive = 1
    max_tiles: Positive = 12
    thumbnail: bool = True
    dynamic: bool = True
    tile_tags: Whole = 0
    image_tags: Whole = 2
    frame_break_tokens: Whole | None = None

    names: ClassVar[Mapping[str, str]] = {
        "image_size": "tile",
        "size": "tile",
        "force_image_size": "tile",
        "patch_size": "patch",
        "downsample_ratio": "downsample",
        "downsample_factor": "downsample",
        "image_seq_length": "tile_tokens",
        "tokens_per_side": "side",
        "min_patches": "min_tiles",
        "max_patches": "max_tiles",
        "min_dynamic_patch": "min_tiles",
        "max_dynamic_patch": "max_tiles",
        "max_num_tiles": "max_tiles",
        "use_thumbnail": "thumbnail",
        "dynamic_image_size": "dynamic",
        "crop_to_patches": "dynamic",
    }

    def __post_init__(self) -> None:
        if self.min_tiles > self.max_tiles:
            raise ValueError("min_tiles and max_tiles must be in order")

    def image(self, size: Size) -> int:
        tiles = self._grid(size).tiles
        views = tiles + 1 if self.thumbnail and tiles > 1 else tiles
        return views * (self._tile_tokens + self.tile_tags) + self.image_tags

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        if self.frame_break_tokens is None:
            raise UnsupportedMedia("a video, which this model does not take")
        numbers = sum(3 + len(str(number)) for number in range(1, frames + 1))  # `Frame12: `, each digit by itself
        return numbers + frames * (self._tile_tokens + self.image_tags) + (frames - 1) * self.frame_break_tokens

    @property
    def turns(self) -> tuple[float, ...]:
        shapes = ratios(self.min_tiles, self.max_tiles)
        return tuple((one + other) / 2 for one, other in pairwise(shapes))

    @property
    def _tile_tokens(self) -> int:
        return self.tile_tokens or (self.side or side_tokens(self.tile, self.patch, self.downsample)) ** 2

    def _grid(self, size: Size) -> Grid:
        return self._chosen(size) if self.dynamic else Grid(1, 1)

    def _chosen(self, size: Size) -> Grid:
        return Grid(*nearest_grid(size, self.tile, self.min_tiles, self.max_tiles))

    def _resized(self, size: Size) -> Size:
        return self._grid(size).canvas(self.tile)


class CoverTiles(RatioTiles, frozen=True, kw_only=True):
    """Llama-Nemotron-Nano-VL: near in shape, and large enough to cover most of the picture.

    cover: from this share of the picture's area on, a larger grid is no better.
    Source: vLLM, transformers_utils/processors/nemotron_vl.py.
    """

    cover: Above0 = 0.6

    @property
    def turns(self) -> tuple[float, ...]:
        shapes = ratios(self.min_tiles, self.max_tiles)
        return tuple(sqrt(one * other) for one, other in pairwise(shapes))

    def _chosen(self, size: Size) -> Grid:
        ratio, area, tile = size.width / size.height, size.pixels, self.tile
        best, most = Grid(1, 1), 0.0
        for grid in grids(self.min_tiles, self.max_tiles):
            columns, rows = grid
            shape = columns / rows
            score = min(columns * rows * tile * tile / area, self.cover) * min(shape / ratio, ratio / shape)
            if score > most:
                best, most = grid, score
        return best


class FitTiles(RatioTiles, frozen=True, kw_only=True):
    """Command A Vision: the canvas into which the picture fits with the least enlargement.

    Source: transformers, models/cohere2_vision/image_processing_cohere2_vision.py.
    """

    @property
    def turns(self) -> tuple[float, ...]:
        return ()

    def steps(self, side: int) -> Iterator[int]:
        yield side // self.tile * self.tile

    def _chosen(self, size: Size) -> Grid:
        width, height, tile = size.width, size.height, self.tile
        candidates = grids(1, self.max_tiles)
        return candidates[tightest([min(columns * tile / width, rows * tile / height) for columns, rows in candidates])]


class LocalTiles(RatioTiles, frozen=True, kw_only=True):
    """DeepSeek-OCR: one view of the whole picture, and tiles of a picture that is larger than one.

    base: side of the view of the whole. row_breaks: whether a token ends each row of patches.
    Source: vLLM, transformers_utils/processors/deepseek_ocr.py and model_executor/models/deepseek_ocr2.py.
    """

    base: Positive
    row_breaks: bool = False

    names: ClassVar[Mapping[str, str]] = {
        **RatioTiles.names,
        "base_size": "base",
        "size": "base",
        "tile_size": "tile",
        "min_crops": "min_tiles",
        "max_crops": "max_tiles",
        "crop_mode": "dynamic",
    }

    def image(self, size: Size) -> int:
        grid = self._grid(size)
        whole, side = (side_tokens(length, self.patch, self.downsample) for length in (self.base, self.tile))
        tiles = grid.rows * side * (grid.columns * side + self.row_breaks) if grid.tiles > 1 else 0
        return whole * (whole + self.row_breaks) + 1 + tiles

    def steps(self, side: int) -> Iterator[int]:
        yield self.tile

    def _grid(self, size: Size) -> Grid:
        return Grid(1, 1) if size.long <= self.tile else RatioTiles._grid(self, size)

    def _resized(self, size: Size) -> Size:
        grid = self._grid(size)
        return grid.canvas(self.tile) if grid.tiles > 1 else size
