"""Canvases: geometries that fit a picture into the canvas, of a given list, that keeps most of its pixels."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import ceil, isqrt, sqrt
from typing import Annotated, ClassVar

from msgspec import Meta

from vlm_edge.geometry import Size
from vlm_edge.tokens.tiles import Grid, Positive, Resizing, Whole, side_tokens

Canvases = Annotated[tuple[tuple[int, int], ...], Meta(min_length=1)]


def fullest(size: Size, canvases: tuple[Size, ...]) -> Size:
    """The canvas that keeps most of the picture's pixels; of those that keep the same, the first of the smallest."""
    width, height = size
    pixels = size.pixels
    best, most, least_waste = canvases[0], 0, float("inf")
    for canvas in canvases:
        wide, high = canvas
        across, down = wide / width, high / height
        scale = across if across < down else down  # twice as fast as min(), for 36 canvases
        kept = int(width * scale) * int(height * scale)
        kept = kept if kept < pixels else pixels
        waste = wide * high - kept
        if kept > most or (kept == most and waste < least_waste):
            best, most, least_waste = canvas, kept, waste
    return best


@lru_cache(maxsize=64)
def high_canvases(pinpoints: tuple[tuple[int, int], ...]) -> tuple[Size, ...]:
    """Pinpoints name their height first."""
    return tuple(Size(width, height) for height, width in pinpoints)


@lru_cache(maxsize=64)
def wide_canvases(resolutions: tuple[tuple[int, int], ...]) -> tuple[Size, ...]:
    return tuple(Size(width, height) for width, height in resolutions)


def inside(size: Size, canvas: Size) -> Size:
    """The picture's size in a canvas: its ratio is kept, and the side that is bound is the canvas's."""
    width, height = size
    if canvas.width * height < canvas.height * width:
        return Size(canvas.width, max(1, height * canvas.width // width))
    return Size(max(1, width * canvas.height // height), canvas.height)


class TileSteps(Resizing, frozen=True, kw_only=True):
    """Rules in which a tile less is needed below each multiple of its side."""

    tile: Positive

    def steps(self, side: int) -> Iterator[int]:
        yield side // self.tile * self.tile


class UnpaddedCanvas(TileSteps, frozen=True, kw_only=True):
    """LLaVA-NeXT and -OneVision: the canvas's features without its padding, a break a row, and the whole picture.

    pinpoints: heights and widths of the canvases. tile_tokens: None where patch gives it. anyres: what bounds the
    tiles (`anyres_max_9`). frame_tokens: of a frame of a clip; None where the model takes no video.
    Source: transformers, models/llava_next/processing_llava_next.py and llava_onevision/processing_llava_onevision.py.
    """

    patch: Positive
    pinpoints: Canvases
    tile_tokens: Positive | None = None
    extra_tokens: Whole = 0
    strategy: str = "full"
    anyres: Annotated[str, Meta(pattern=r"^anyres_max_[1-9]\d*$")] | None = None
    frame_pool: Positive | None = None

    names: ClassVar[Mapping[str, str]] = {
        "image_size": "tile",
        "size": "tile",
        "shortest_edge": "tile",
        "crop_size": "tile",
        "patch_size": "patch",
        "image_grid_pinpoints": "pinpoints",
        "num_image_tokens": "tile_tokens",
        "num_additional_image_tokens": "extra_tokens",
        "vision_feature_select_strategy": "strategy",
        "vision_aspect_ratio": "anyres",
    }

    def image(self, size: Size) -> int:
        columns, rows = self._unpadded(size)
        return columns * rows + rows + self._base_tokens

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        if self.frame_pool is None:
            return Resizing.video(self, frames=frames, size=size, fps=fps)
        return frames * ceil(self._side / self.frame_pool) ** 2 + 1

    @property
    def _side(self) -> int:
        return isqrt(self.tile_tokens) if self.tile_tokens else self.tile // self.patch

    @property
    def _base_tokens(self) -> int:
        """Of the whole picture. The default strategy leaves out the first one, which is of the class."""
        return (self.tile_tokens or self._side**2) + self.extra_tokens - (self.strategy == "default")

    def _unpadded(self, size: Size) -> tuple[int, int]:
        """Columns and rows of features that show the picture."""
        canvas, side = fullest(size, high_canvases(self.pinpoints)), self._side
        columns, rows = side * (canvas.width // self.tile), side * (canvas.height // self.tile)
        if size.width / size.height > columns / rows:
            rows -= (rows - int(round(size.height * (columns / size.width), 7))) // 2 * 2
        else:
            columns -= (columns - int(round(size.width * (rows / size.height), 7))) // 2 * 2
        return self._bounded(columns, rows)

    def _bounded(self, columns: int, rows: int) -> tuple[int, int]:
        if self.anyres is None:
            return columns, rows
        over = sqrt(rows * columns / (int(self.anyres.removeprefix("anyres_max_")) * self._side**2))
        return (int(columns // over), int(rows // over)) if over > 1.1 else (columns, rows)

    def _resized(self, size: Size) -> Size:
        """Rounded up, unlike elsewhere."""
        canvas = fullest(size, high_canvases(self.pinpoints))
        width, height = size
        if canvas.width * height < canvas.height * width:
            return Size(canvas.width, -(-height * canvas.width // width))
        return Size(-(-width * canvas.height // height), canvas.height)


class BrokenCanvas(TileSteps, frozen=True, kw_only=True):
    """DeepSeek-VL2: the whole canvas and a view of the whole picture, with a break a row.

    canvases: widths and heights. max_tiled: from one picture more in a prompt on, each is a single tile.
    Source: vLLM, transformers_utils/processors/deepseek_vl2.py.
    """

    patch: Positive
    downsample: Annotated[float, Meta(gt=0)]
    canvases: Canvases
    max_tiled: Whole = 2

    names: ClassVar[Mapping[str, str]] = {
        "image_size": "tile",
        "patch_size": "patch",
        "downsample_ratio": "downsample",
        "candidate_resolutions": "canvases",
        "tiling_for_images_up_to": "max_tiled",
    }

    def image(self, size: Size) -> int:
        canvas = fullest(size, wide_canvases(self.canvases))
        return self._tokens(Grid(canvas.width // self.tile, canvas.height // self.tile))

    def images(self, sizes: Sequence[Size]) -> list[int]:
        if len(sizes) > self.max_tiled:
            return [self._tokens(Grid(1, 1))] * len(sizes)
        return [self.image(size) for size in sizes]

    def _tokens(self, grid: Grid) -> int:
        side = side_tokens(self.tile, self.patch, self.downsample)
        return side * (side + 1) + 1 + grid.rows * side * (grid.columns * side + 1)

    def _resized(self, size: Size) -> Size:
        return inside(size, fullest(size, wide_canvases(self.canvases)))
