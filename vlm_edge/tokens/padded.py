"""Padded canvases: geometries that choose a canvas by how far it enlarges or shrinks a picture, and pad it."""

from collections.abc import Iterator, Mapping
from math import ceil, isqrt
from typing import Annotated, ClassVar

from msgspec import Meta

from vlm_edge.errors import ExtremeAspect
from vlm_edge.geometry import Size
from vlm_edge.tokens.canvases import TileSteps, inside
from vlm_edge.tokens.ratios import nearest_grid
from vlm_edge.tokens.tiles import Grid, Positive, Turning, Whole, grids, ratios, side_tokens, tightest


class MarkedCanvas(TileSteps, frozen=True, kw_only=True):
    """Llama 4: every tile of the canvas, marks between columns and after rows, and a view of the whole picture.

    A picture is not enlarged beyond one tile. fill: whether it is enlarged to the largest canvas instead.
    Source: transformers, models/llama4/image_processing_llama4.py and processing_llama4.py.
    """

    patch: Positive
    downsample: Annotated[float, Meta(gt=0)]
    max_tiles: Positive
    fill: bool = False

    names: ClassVar[Mapping[str, str]] = {
        "size": "tile",
        "patch_size": "patch",
        "pixel_shuffle_ratio": "downsample",
        "max_patches": "max_tiles",
        "resize_to_max_canvas": "fill",
    }

    def image(self, size: Size) -> int:
        columns, rows = self._grid(size)
        each = side_tokens(self.tile, self.patch, self.downsample) ** 2
        marks = rows * (columns - 1) + rows
        return 3 + each + (rows * columns * each + marks if rows * columns > 1 else 0)

    def _grid(self, size: Size) -> Grid:
        tile, width, height = self.tile, size.width, size.height
        candidates = grids(1, self.max_tiles)
        scales = [min(columns * tile / width, rows * tile / height) for columns, rows in candidates]
        largest = self.fill and max(scales)
        return candidates[scales.index(largest) if largest else tightest(scales)]

    def _resized(self, size: Size) -> Size:
        canvas = self._grid(size).canvas(self.tile)
        if self.fill:
            return inside(size, canvas)
        most = (min(max(side, self.tile), bound) for side, bound in zip(size, canvas, strict=True))
        return inside(size, Size(*most))


class MaskedCanvas(TileSteps, frozen=True, kw_only=True):
    """Phi-4-multimodal: patches that are wholly padding are left out; a view of the whole picture comes first.

    least: a picture whose short side would get fewer pixels is refused.
    Source: transformers, models/phi4_multimodal/image_processing_phi4_multimodal.py.
    """

    patch: Positive
    merge: Positive
    max_tiles: Positive
    least: Whole = 10

    names: ClassVar[Mapping[str, str]] = {
        "size": "tile",
        "crop_size": "tile",
        "patch_size": "patch",
        "dynamic_hd": "max_tiles",
        "token_compression": "merge",
    }

    def image(self, size: Size) -> int:
        canvas, made = self._fitted(size)
        if made.short < self.least:
            raise ExtremeAspect(size.width, size.height, self.tile // self.least)
        columns, rows = (self._shown(*sides) for sides in zip(canvas, made, strict=True))
        whole = self.tile // self.patch // self.merge
        return whole * whole + 1 + columns * rows + rows + whole

    def _shown(self, canvas: int, made: int) -> int:
        """Tokens along a side that show the picture."""
        return -(-(canvas // self.patch - (canvas - made) // self.patch) // self.merge)

    def _fitted(self, size: Size) -> tuple[Size, Size]:
        """The canvas, and the picture inside it."""
        canvas = self._grid(size).canvas(self.tile)
        across, down = canvas.width / size.width, canvas.height / size.height
        if across < down:
            return canvas, Size(canvas.width, int(size.height * across))
        return canvas, Size(int(size.width * down), canvas.height)

    def _grid(self, size: Size) -> Grid:
        grid = Grid(*(ceil(side / self.tile) for side in size))
        return grid if grid.tiles <= self.max_tiles else Grid(*nearest_grid(size, self.tile, 1, self.max_tiles))

    def _resized(self, size: Size) -> Size:
        return self._fitted(size)[1]


class FilledCanvas(Turning, frozen=True, kw_only=True):
    """Phi-3.5-vision: the picture, laid on its long side, becomes as many tiles wide as `max_tiles` allow.

    Source: the checkpoint's processing_phi3_v.py, which vLLM runs.
    """

    tile: Positive
    tile_tokens: Positive
    max_tiles: Positive

    names: ClassVar[Mapping[str, str]] = {
        "tokens_per_tile": "tile_tokens",
        "num_img_tokens": "tile_tokens",
        "num_crops": "max_tiles",
    }

    def image(self, size: Size) -> int:
        lying = self._lying(size)
        grid = Grid(*(ceil(side / self.tile) for side in lying))
        rows = grid.rows if size.width >= size.height else grid.columns
        return (grid.tiles + 1) * self.tile_tokens + 1 + (rows + 1) * isqrt(self.tile_tokens)

    @property
    def turns(self) -> tuple[float, ...]:
        return ratios(1, self.max_tiles)

    def _lying(self, size: Size) -> Size:
        """The picture's size, landscape, before it is padded to whole tiles."""
        ratio, columns = size.long / size.short, 1
        while (columns + 1) * ceil((columns + 1) / ratio) <= self.max_tiles:
            columns += 1
        lying = Size(columns * self.tile, int(columns * self.tile / ratio))
        if not lying.height:
            raise ExtremeAspect(size.width, size.height, columns * self.tile)
        return lying

    def _resized(self, size: Size) -> Size:
        lying = self._lying(size)
        return lying if size.width >= size.height else lying.turned()


class OverlappedCanvas(TileSteps, frozen=True, kw_only=True):
    """Molmo: tiles that overlap, pooled together; a view of the whole picture comes first.

    tile: with its margins. margins: patches left and right that a tile shares with its neighbours. base_tokens: along
    the sides of the view of the whole; None where the tile gives it. split_pool: each tile is pooled for itself.
    Source: vLLM, model_executor/models/molmo.py and molmo2.py.
    """

    patch: Positive
    max_tiles: Positive
    margins: tuple[Whole, Whole] = (4, 4)
    pool: tuple[Positive, Positive] = (2, 2)
    base_tokens: tuple[Positive, Positive] | None = None
    split_pool: bool = False

    names: ClassVar[Mapping[str, str]] = {
        "base_image_input_size": "tile",
        "crop": "tile",
        "size": "tile",
        "image_patch_size": "patch",
        "patch_size": "patch",
        "max_crops": "max_tiles",
        "overlap_margins": "margins",
        "image_token_length": "base_tokens",
        "pooling": "pool",
        "pooling_size": "pool",
    }

    def image(self, size: Size) -> int:
        grid, (down, across) = self._grid(size), self.pool
        columns, rows = self._pooled(grid.columns, across), self._pooled(grid.rows, down)
        base_rows, base_columns = self.base_tokens or (self._pooled_side(down), self._pooled_side(across))
        return 2 + base_rows * (base_columns + 1) + 2 + rows * (columns + 1)

    def steps(self, side: int) -> Iterator[int]:
        yield (side - self._margin) // self._window * self._window + self._margin

    @property
    def _margin(self) -> int:
        return sum(self.margins) * self.patch

    @property
    def _window(self) -> int:
        """Pixels a side that a tile has for itself."""
        return (self.tile // self.patch - sum(self.margins)) * self.patch

    def _pooled_side(self, pool: int) -> int:
        return -(-(self.tile // self.patch) // pool)

    def _pooled(self, tiles: int, pool: int) -> int:
        """Tokens along a side of so many tiles."""
        if self.split_pool:
            return (self._patches(tiles, pool) + 1) // pool
        return -(-((tiles * self._window + self._margin) // self.patch) // pool)

    def _patches(self, tiles: int, pool: int) -> int:
        """Where each tile is pooled for itself: what it holds alone is rounded up to whole pools."""
        own = self._window // self.patch
        if tiles == 1:
            return _pools(self.tile // self.patch, pool)
        left, right = self.margins
        return _pools(own + left, pool) + (tiles - 2) * _pools(own, pool) + _pools(own + right, pool)

    def _grid(self, size: Size) -> Grid:
        """As float32 arithmetic has it: a side that is all margin divides to infinity."""
        window, free = self._window, Size(*(side - self._margin for side in size))
        width, height = (side or 1e-30 for side in free)
        candidates = grids(1, self.max_tiles)
        return candidates[
            tightest([min(columns * window / width, rows * window / height) for columns, rows in candidates])
        ]

    def _resized(self, size: Size) -> Size:
        return inside(size, Size(*(tiles * self._window + self._margin for tiles in self._grid(size))))


def _pools(patches: int, pool: int) -> int:
    return (patches + pool - 1) // pool * pool
