"""Slices: geometries that cut a picture, resized to about its own size, into views."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log, sqrt
from typing import ClassVar, Literal

from vlm_edge.geometry import Size
from vlm_edge.tokens.rule import Rule
from vlm_edge.tokens.tiles import Above0, Grid, Positive, Turning

# Side that Idefics3 never exceeds, whatever it is asked for.
MAX_SIDE = 4_096


class Slices(Rule, frozen=True, kw_only=True):
    """MiniCPM-V 2.6: a view of the whole, and as many slices as its area needs, in the grid nearest in shape.

    numbered: whether the picture's number in the prompt is written before it, in digits.
    Source: the checkpoint's image_processing_minicpmv.py, which vLLM runs.
    """

    side: Positive
    max_slices: Positive
    view_tokens: Positive = 64
    numbered: bool = True
    split: bool = True

    names: ClassVar[Mapping[str, str]] = {
        "scale_resolution": "side",
        "max_slice_nums": "max_slices",
        "query_num": "view_tokens",
        "image_feature_size": "view_tokens",
        "use_image_id": "numbered",
        "slice_mode": "split",
        "patch_size": "",
    }

    def image(self, size: Size) -> int:
        return self._numbered(size, 0)

    def images(self, sizes: Sequence[Size]) -> list[int]:
        return [self._numbered(size, number) for number, size in enumerate(sizes)]

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        return frames * self._view(size, None)

    def _numbered(self, size: Size, number: int) -> int:
        grid = self._grid(size)
        slices = grid.tiles * self._slice(size, grid) + grid.rows - 1 if grid else 0
        return (2 + len(str(number))) * self.numbered + self._view(size, grid) + slices

    def _view(self, size: Size, grid: Grid | None) -> int:
        """Tokens of the view of the whole, with its tags."""
        return 2 + self.view_tokens

    def _slice(self, size: Size, grid: Grid) -> int:
        return 2 + self.view_tokens

    def _grid(self, size: Size) -> Grid | None:
        needed = min(ceil(size.pixels / (self.side * self.side)), self.max_slices)
        if needed <= 1 or not self.split:
            return None
        shape, best, least = log(size.width / size.height), Grid(1, 1), float("inf")
        for grid in self._candidates(needed):
            off = abs(shape - log(grid.columns / grid.rows))
            if off < least or (off == least and self._prefers(grid, best)):
                best, least = grid, off
        return best

    def _candidates(self, needed: int) -> Iterator[Grid]:
        for slices in (needed - 1, needed, needed + 1):
            if 1 < slices <= self.max_slices:
                yield from (Grid(side, slices // side) for side in range(1, slices + 1) if slices % side == 0)

    def _prefers(self, grid: Grid, best: Grid) -> bool:
        """Which of two grids that are equally near in shape: here the first."""
        return False


class FittedSlices(Slices, frozen=True, kw_only=True):
    """MiniCPM-V 4.6: as Slices, but a view costs what its own size does.

    downsample: how many patches make a token.
    Source: transformers, models/minicpmv4_6/image_processing_minicpmv4_6.py and processing_minicpmv4_6.py.
    """

    patch: Positive
    downsample: Literal["16x", "4x"] = "16x"

    names: ClassVar[Mapping[str, str]] = {**Slices.names, "patch_size": "patch", "downsample_mode": "downsample"}

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        return 3 * self.numbered + frames * self._view(size, None)

    def _view(self, size: Size, grid: Grid | None) -> int:
        return 2 + self._fitted(size.width, size.height, enlarge=grid is None)

    def _slice(self, size: Size, grid: Grid) -> int:
        width, height = (_whole(side, parts) / parts for side, parts in zip(size, grid, strict=True))
        return 2 + self._fitted(width, height, enlarge=True)

    def _fitted(self, width: float, height: float, *, enlarge: bool) -> int:
        if enlarge or height * width > self.side * self.side:
            ratio = width / height
            height = int(self.side / sqrt(ratio))
            width = int(height * ratio)
        patches = (_whole(side, 4 * self.patch) // self.patch for side in (width, height))
        return next(patches) * next(patches) // int(self.downsample.removesuffix("x"))

    def _candidates(self, needed: int) -> Iterator[Grid]:
        return (Grid(grid.rows, grid.columns) for grid in Slices._candidates(self, needed))

    def _prefers(self, grid: Grid, best: Grid) -> bool:
        return grid.rows > best.rows


def _whole(length: float, parts: int) -> int:
    """The nearest multiple, at least one."""
    return max(round(length / parts) * parts, parts)


class RowTiles(Turning, frozen=True, kw_only=True):
    """Idefics3 and SmolVLM: the long side becomes max_side, up or down; tiles stand in rows, each with its place.

    tags: places are special tokens, one each, or plain text.
    Source: transformers, models/idefics3/image_processing_idefics3.py and processing_idefics3.py.
    """

    max_side: Positive
    tile: Positive
    tile_tokens: Positive
    tags: Literal["special tokens", "plain text"] = "special tokens"
    split: bool = True

    names: ClassVar[Mapping[str, str]] = {
        "longest_edge": "max_side",
        "max_image_size": "tile",
        "image_seq_len": "tile_tokens",
        "row_col_tags": "tags",
        "do_image_splitting": "split",
    }

    def image(self, size: Size) -> int:
        grid = self._grid(size)
        place, whole = (1, 1) if self.tags == "special tokens" else (8, 4)
        view = 2 + whole + self.tile_tokens
        tiles = grid.rows * (grid.columns * (self.tile_tokens + 1 + place) + 1)
        return tiles + view if grid.tiles > 1 else view

    @property
    def turns(self) -> tuple[float, ...]:
        tiles = self.max_side / self.tile
        shapes = tuple(tiles / count for count in range(1, ceil(tiles)))
        return shapes + tuple(1 / shape for shape in shapes)

    def _grid(self, size: Size) -> Grid:
        long = self._long(size)
        if not self.split or long.long <= self.tile:
            return Grid(1, 1)
        return Grid(*(ceil(side / self.tile) for side in self._rounded(long)))

    def _long(self, size: Size) -> Size:
        """The picture with max_side for its long side, and an even short one."""
        ratio = size.width / size.height
        if size.width >= size.height:
            return _bounded(Size(self.max_side, max(1, _even(int(self.max_side / ratio)))))
        return _bounded(Size(max(1, _even(int(self.max_side * ratio))), self.max_side))

    def _rounded(self, size: Size) -> Size:
        """Both sides whole tiles; the short one as the long one has it after rounding."""
        ratio, tile = size.width / size.height, self.tile
        if size.width >= size.height:
            width = ceil(size.width / tile) * tile
            return Size(width, ceil(int(width / ratio) / tile) * tile)
        height = ceil(size.height / tile) * tile
        return Size(ceil(int(height * ratio) / tile) * tile, height)

    def _resized(self, size: Size) -> Size:
        grid = self._grid(size)
        return grid.canvas(self.tile) if grid.tiles > 1 else size


def _even(side: int) -> int:
    return side + side % 2


def _bounded(size: Size) -> Size:
    if size.long <= MAX_SIDE:
        return size
    ratio = size.width / size.height
    if size.width >= size.height:
        return Size(MAX_SIDE, max(1, int(MAX_SIDE / ratio)))
    return Size(max(1, int(MAX_SIDE * ratio)), MAX_SIDE)


class PanAndScan(Turning, frozen=True, kw_only=True):
    """Gemma 3 with pan and scan: a long picture is shown whole, and in two to four crops along its long side.

    view_tokens: with tags; tag_tokens: what a picture without crops has beside its view.
    Source: transformers, models/gemma3/image_processing_gemma3.py and processing_gemma3.py.
    """

    view_tokens: Positive = 256
    min_side: Positive = 256
    max_crops: Positive = 4
    min_ratio: Above0 = 1.2
    crops: bool = True

    names: ClassVar[Mapping[str, str]] = {
        "mm_tokens_per_image": "view_tokens",
        "do_pan_and_scan": "crops",
        "pan_and_scan_min_crop_size": "min_side",
        "pan_and_scan_max_num_crops": "max_crops",
        "pan_and_scan_min_ratio_to_activate": "min_ratio",
        "image_size": "",
        "size": "",
    }

    def image(self, size: Size) -> int:
        """Around the views stand two tags each and line breaks, and 15 words in plain text if there are crops."""
        crops = self._crops(size)
        if not crops:
            return self.view_tokens + 4
        return (1 + crops) * (self.view_tokens + 3) + 2 + 15

    @property
    def turns(self) -> tuple[float, ...]:
        shapes = (self.min_ratio, *(crops + 0.5 for crops in range(2, self.max_crops)))
        return shapes + tuple(1 / shape for shape in shapes)

    def _crops(self, size: Size) -> int:
        ratio = size.long / size.short
        if not self.crops or ratio < self.min_ratio:
            return 0
        crops = min(self.max_crops, max(2, min(size.long // self.min_side, floor(ratio + 0.5))))
        return 0 if min(ceil(size.long / crops), size.short) < self.min_side else crops
