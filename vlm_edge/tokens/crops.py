"""Crops: geometries that show a picture whole, and parts of it where it is large or long."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from vlm_edge.geometry import Size
from vlm_edge.tokens.ratios import nearest_grid
from vlm_edge.tokens.rule import Rule
from vlm_edge.tokens.tiles import Above0, Grid, Positive, Resizing, grids


class CoveringTiles(Rule, frozen=True, kw_only=True):
    """Ovis2: the fewest tiles that keep `cover` of the picture's area when each part is cut to a tile's side.

    by_cover: else the grid nearest in shape. The grid is stretched to, but may lie across the picture: no size is kept.
    Source: transformers, models/ovis2/image_processing_ovis2.py and processing_ovis2.py.
    """

    tile: Positive
    tile_tokens: Positive
    min_tiles: Positive = 1
    max_tiles: Positive = 9
    by_cover: bool = True
    cover: Above0 = 0.9
    split: bool = True

    names: ClassVar[Mapping[str, str]] = {
        "image_size": "tile",
        "size": "tile",
        "image_seq_length": "tile_tokens",
        "min_patches": "min_tiles",
        "max_patches": "max_tiles",
        "use_covering_area_grid": "by_cover",
        "crop_to_patches": "split",
    }

    def image(self, size: Size) -> int:
        tiles = self._tiles(size)
        return (self.tile_tokens * (1 + tiles) + 2 if tiles > 1 else self.tile_tokens + 2) + tiles

    def steps(self, side: int) -> Iterator[int]:
        yield side // self.tile * self.tile

    def _tiles(self, size: Size) -> int:
        if not self.split or self.max_tiles == 1:
            return 1
        if self.by_cover:
            return self._covering(size)
        return Grid(*nearest_grid(size, self.tile, self.min_tiles, self.max_tiles)).tiles

    def _covering(self, size: Size) -> int:
        fewest, most, tile, area = 1, 0.0, self.tile, size.pixels
        for rows, columns in grids(1, self.max_tiles):  # named so by the processor, which orders by columns
            share = _kept(size, columns, rows, tile) / area
            if share > self.cover:
                return columns * rows
            if share > most:
                fewest, most = columns * rows, share
        return fewest


def _kept(size: Size, columns: int, rows: int, tile: int) -> float:
    """Pixels that are left of the picture, part by part: the last ones take what division leaves over.

    The sum is Python's own, as the processor's is: from 3.12 on it rounds less, and so another of two grids that keep
    the same may win (pictures of 3:2).
    """
    width, height = size.width // columns, size.height // rows
    last_width, last_height = size.width - (columns - 1) * width, size.height - (rows - 1) * height
    row = [_cut(width, height, tile)] * (columns - 1) + [_cut(last_width, height, tile)]
    last = [_cut(width, last_height, tile)] * (columns - 1) + [_cut(last_width, last_height, tile)]
    return sum(row * (rows - 1) + last)


def _cut(width: int, height: int, tile: int) -> float:
    long, short = (width, height) if width > height else (height, width)
    return tile * (short / long * tile) if long > tile else long * short


class Windows(Resizing, frozen=True, kw_only=True):
    """Step-3: a view of the whole, and windows over a picture that is large, or long.

    Source: vLLM, transformers_utils/processors/step3_vl.py.
    """

    whole: Positive
    window: Positive
    whole_tokens: Positive
    window_tokens: Positive
    max_side: Positive = 3_024
    split: bool = True

    names: ClassVar[Mapping[str, str]] = {
        "image_size": "whole",
        "patch_size": "window",
        "image_tokens": "whole_tokens",
        "patch_tokens": "window_tokens",
        "num_image_feature_size": "whole_tokens",
        "num_patch_feature_size": "window_tokens",
        "enable_patch": "split",
    }

    def image(self, size: Size) -> int:
        view = 2 + self.whole_tokens
        shrunk = self._shrunk(size)
        window = self._window(shrunk)
        if not window or not self.split:
            return view
        columns, rows = (_windows(side, window) for side in shrunk)
        return view + columns * rows * (2 + self.window_tokens) + rows - 1

    def steps(self, side: int) -> Iterator[int]:
        yield self.whole - 1
        yield int((side // self.window + 0.2) * self.window)
        yield int((side // self.window - 0.8) * self.window)

    def _shrunk(self, size: Size) -> Size:
        if size.short < 32 and size.long / size.short > 4:
            size = Size(size.long, size.long)
        if size.long <= self.max_side:
            return size
        scale = self.max_side / size.long
        return Size(int(size.width * scale), int(size.height * scale))

    def _window(self, size: Size) -> int:
        """The side of the windows; 0 for none."""
        if size.long < self.whole:
            return size.short if size.long / size.short > 1.5 else 0
        return min(size.short, self.window) if size.long / size.short > 4 else self.window


def _windows(side: int, window: int) -> int:
    """A fifth of a window more makes another one."""
    whole = side // window
    return max(1, whole + 1 if whole and side / window - whole > 0.2 else whole)
