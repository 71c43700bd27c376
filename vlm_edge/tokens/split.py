"""Split: geometries that resize a small picture to a grid of cells, and cut a large one into tiles."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from vlm_edge.geometry import Size
from vlm_edge.tokens.grids import resized
from vlm_edge.tokens.ratios import nearest_grid
from vlm_edge.tokens.rule import Rule


class SplitGrid(Rule, frozen=True, kw_only=True):
    """LFM2-VL: a picture of up to `tolerance` times max_tokens cells is resized to no more than max_tokens, as
    MergedGrid does; a larger one is stretched over the tiles whose shape is nearest, and resized beside them.

    tags: whether the picture, its tiles and its thumbnail are each named by special tokens.
    Source: transformers, models/lfm2_vl/image_processing_lfm2_vl.py and processing_lfm2_vl.py.
    """

    patch: int
    merge: int
    min_tokens: int
    max_tokens: int
    tile: int
    min_tiles: int
    max_tiles: int
    split: bool = True
    thumbnail: bool = True
    tags: bool = True
    tolerance: float = 2.0

    names: ClassVar[Mapping[str, str]] = {
        "encoder_patch_size": "patch",
        "downsample_factor": "merge",
        "min_image_tokens": "min_tokens",
        "max_image_tokens": "max_tokens",
        "tile_size": "tile",
        "do_image_splitting": "split",
        "use_thumbnail": "thumbnail",
        "use_image_special_tokens": "tags",
        "max_pixels_tolerance": "tolerance",
        "max_num_patches": "",
        "size": "",
    }

    def __post_init__(self) -> None:
        if min(self.patch, self.merge, self.min_tokens, self.tile, self.min_tiles) < 1 or self.tolerance <= 0:
            raise ValueError("patch, merge, min_tokens, tile and min_tiles must be at least 1, and tolerance above 0")
        if self.min_tokens > self.max_tokens or self.min_tiles > self.max_tiles:
            raise ValueError("min_tokens and max_tokens, and min_tiles and max_tiles, must be in order")

    def aligned(self, size: Size) -> Size:
        return size if self._grid(size) else self._resized(size)

    def image(self, size: Size) -> int:
        whole, around = self._resized(size).pixels // (self.patch * self.merge) ** 2, 2 * self.tags
        grid = self._grid(size)
        if grid is None or grid == (1, 1):
            return around + whole
        each = (-(-(self.tile // self.patch) // self.merge)) ** 2 + self.tags
        return around + each * grid[0] * grid[1] + (whole + self.tags) * self.thumbnail

    def steps(self, side: int) -> Iterator[int]:
        cell = self.patch * self.merge
        yield side // cell * cell

    def _grid(self, size: Size) -> tuple[int, int] | None:
        """Columns and rows of tiles; None where the picture is not cut."""
        cell = self.patch * self.merge
        rounded = Size(*(max(self.patch, round(side / cell) * cell) for side in size))
        large = rounded.pixels > self.max_tokens * cell**2 * self.tolerance
        if not large or not self.split or self.max_tiles == 1:
            return None
        return nearest_grid(size, self.tile, self.min_tiles, self.max_tiles)

    def _resized(self, size: Size) -> Size:
        cells = (self.patch * self.merge) ** 2
        return resized(size, self.patch * self.merge, (self.min_tokens * cells, self.max_tokens * cells), least=(1, 1))
