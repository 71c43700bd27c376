"""
Grids: geometries in which sides are rounded to cells of patch * merge pixels, and each cell is a token.

The order of the float operations is that of the processors: it decides where a side lies between two cells.
"""

from collections.abc import Mapping
from math import ceil, floor, sqrt
from typing import ClassVar, Literal, Self

import msgspec

from vlm_edge.errors import ExtremeAspect, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.tokens.rule import Rule


class MergedGrid(Rule, frozen=True, kw_only=True):
    """Qwen2-VL's `smart_resize`: sides rounded to cells of patch * merge, area kept inside [min_pixels, max_pixels].

    row_tokens: written after each row of cells. tag_tokens: written around the picture, inside its count.
    rounded_cells, shrunk_cells: the fewest cells of a side that is rounded, and of one that is shrunk to max_pixels.
    video_min_pixels, video_max_pixels: of each frame of a clip, where they are not those of a picture.
    Source: transformers, models/qwen2_vl/image_processing_qwen2_vl.py.
    """

    patch: int
    merge: int
    temporal_patch: int = 2
    min_pixels: int
    max_pixels: int
    max_ratio: int = 200
    rounded_cells: int = 0
    shrunk_cells: int = 1
    row_tokens: int = 0
    tag_tokens: int = 0
    videos: bool = True
    video_min_pixels: int | None = None
    video_max_pixels: int | None = None

    template_tokens: int = 2

    names: ClassVar[Mapping[str, str]] = {
        "patch_size": "patch",
        "merge_size": "merge",
        "spatial_merge_size": "merge",
        "hidden_stride": "merge",
        "temporal_patch_size": "temporal_patch",
        "shortest_edge": "min_pixels",
        "longest_edge": "max_pixels",
        "video_shortest_edge": "video_min_pixels",
        "video_longest_edge": "video_max_pixels",
    }

    def __post_init__(self) -> None:
        if min(self.patch, self.merge, self.temporal_patch, self.max_ratio) < 1:
            raise ValueError("patch, merge, temporal_patch and max_ratio must be at least 1")
        if not 0 < self.min_pixels <= self.max_pixels:
            raise ValueError("min_pixels and max_pixels must be above 0 and in this order")
        if min(self.rounded_cells, self.shrunk_cells, self.row_tokens, self.tag_tokens) < 0:
            raise ValueError("cells and tokens must not be below 0")

    @property
    def cell(self) -> int:
        return self.patch * self.merge

    def aligned(self, size: Size) -> Size:
        return self._resized(self._taken(size), (self.min_pixels, self.max_pixels))

    def within(self, max_pixels: int) -> Self:
        most = min(self.max_pixels, max_pixels)
        return msgspec.structs.replace(self, max_pixels=most, min_pixels=min(self.min_pixels, most))

    def image(self, size: Size) -> int:
        return self._cells(self.aligned(size)) + self.tag_tokens

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        if not self.videos:
            return Rule.video(self, frames=frames, size=size, fps=fps)
        frame = self._cells(MergedGrid.frame(self, size, frames)) + self.tag_tokens
        return ceil(frames / self.temporal_patch) * frame

    def frame(self, size: Size, frames: int) -> Size:
        bounds = self.video_min_pixels or self.min_pixels, self.video_max_pixels or self.max_pixels
        return self._resized(self._taken(size), bounds)

    def _cells(self, made: Size) -> int:
        cell = self.patch * self.merge
        return made.height // cell * (made.width // cell + self.row_tokens)

    def _taken(self, size: Size) -> Size:
        """The size that is rounded: refused, or brought into the shape that the geometry takes."""
        return self._checked(size, size)

    def _checked(self, taken: Size, size: Size) -> Size:
        if taken.long / taken.short > self.max_ratio:
            raise ExtremeAspect(size.width, size.height, self.max_ratio)
        return taken

    def _resized(self, size: Size, bounds: tuple[int, int], depth: int = 1, frames: int = 1) -> Size:
        least = self.rounded_cells, self.shrunk_cells
        return resized(size, self.patch * self.merge, bounds, least, depth, frames)


def resized(
    size: Size, cell: int, bounds: tuple[int, int], least: tuple[int, int] = (0, 1), depth: int = 1, frames: int = 1
) -> Size:
    """`smart_resize` of a picture (depth 1), or of a clip of `frames` that counts as `depth` of them.

    bounds: of the pixels. least: the fewest cells of a side that is rounded, and of one that is shrunk.
    """
    (width, height), (min_pixels, max_pixels) = size, bounds
    columns, rows = max(least[0], round(width / cell)), max(least[0], round(height / cell))
    pixels = depth * columns * rows * cell * cell
    if pixels > max_pixels:
        shrink = sqrt(frames * height * width / max_pixels)
        columns, rows = (max(least[1], floor(side / shrink / cell)) for side in size)
    elif pixels < min_pixels:
        grow = sqrt(min_pixels / (frames * height * width))
        columns, rows = (ceil(side * grow / cell) for side in size)
    if not (columns and rows):
        raise UnsupportedMedia(f"a picture of {size}, of which the model's size leaves nothing on a side")
    return Size(columns * cell, rows * cell)


class LiftedGrid(MergedGrid, frozen=True, kw_only=True):
    """PaddleOCR-VL, Keye-VL: a side of less than a cell is lifted to one first, and the other scaled along.

    Sources: transformers, models/paddleocr_vl/image_processing_paddleocr_vl.py; vLLM, model_executor/models/keye.py.
    """

    videos: bool = False

    def _taken(self, size: Size) -> Size:
        (width, height), cell = size, self.cell
        if height < cell:
            width, height = round(width * cell / height), cell
        if width < cell:
            width, height = cell, round(height * cell / width)
        return self._checked(Size(width, height), size)


class LenientGrid(MergedGrid, frozen=True, kw_only=True):
    """Ovis2.5: a short side of less than a cell is lifted to one; else a picture thinner than max_ratio counts as one
    of that ratio. None is refused.

    Source: vLLM, transformers_utils/processors/ovis2_5.py.
    """

    videos: bool = False

    def _taken(self, size: Size) -> Size:
        long, short, cell = size.long, size.short, self.cell
        if short < cell:
            return _sides(size, round(cell / short * long), cell)
        return _sides(size, self.max_ratio * short, short) if long / short > self.max_ratio else size


class BoundedGrid(MergedGrid, frozen=True, kw_only=True):
    """ERNIE-4.5-VL: a picture thinner than max_ratio is cut to it in whole cells; one that does not come out between
    min_pixels and max_pixels is refused.

    Source: vLLM, model_executor/models/ernie45_vl.py.
    """

    videos: bool = False

    def aligned(self, size: Size) -> Size:
        made = MergedGrid.aligned(self, size)
        if not self.min_pixels <= made.pixels <= self.max_pixels:
            raise UnsupportedMedia(f"a picture of {size}, whose shape leaves no size that the model takes")
        return made

    def _taken(self, size: Size) -> Size:
        if size.long / size.short <= self.max_ratio:
            return size
        cell = self.cell
        short = max(cell, round(size.short / cell) * cell)
        return _sides(size, floor(short * self.max_ratio / cell) * cell, short)


def _sides(like: Size, long: int, short: int) -> Size:
    return Size(long, short) if like.width > like.height else Size(short, long)


class TimedGrid(MergedGrid, frozen=True, kw_only=True):
    """Qwen3-VL, GLM-4V: a clip is bounded as a whole, and its pairs of frames carry their time as text.

    picture_frames: more than 1 where a picture goes the way of a clip of so many frames; 1: as in MergedGrid.
    clip_tokens: written around a clip. pair_tokens: written around each pair, beside the digits of its whole seconds.
    time: of a pair, as it is written: the middle of its frames, or the start of the first.
    Sources: transformers, models/qwen3_vl/processing_qwen3_vl.py, models/glm4v/image_processing_glm4v.py; vLLM,
    model_executor/models/glm4_1v.py.
    """

    video_min_pixels: int
    video_max_pixels: int
    video_fps: float = 2
    picture_frames: int = 1
    clip_tokens: int = 0
    pair_tokens: int = 7  # `<.5 seconds>` without its digits is 5, `<|vision_start|>` and `<|vision_end|>` are 2
    time: Literal["middle", "start"] = "middle"

    names: ClassVar[Mapping[str, str]] = {
        **MergedGrid.names,
        "video_min_frames": "",  # how frames are chosen
        "video_max_frames": "",
    }

    def __post_init__(self) -> None:
        MergedGrid.__post_init__(self)
        if not 0 < self.video_min_pixels <= self.video_max_pixels or self.video_fps <= 0:
            raise ValueError("video_min_pixels, video_max_pixels and video_fps must be above 0 and in order")

    def aligned(self, size: Size) -> Size:
        if self.picture_frames > 1:
            return self._frame(size, self.picture_frames, (self.min_pixels, self.max_pixels))
        return MergedGrid.aligned(self, size)

    def within(self, max_pixels: int) -> Self:
        return MergedGrid.within(self, max_pixels * self.picture_frames)

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        if frames < self.temporal_patch:
            raise UnsupportedMedia(f"a video of {frames} frame(s) where the model takes at least {self.temporal_patch}")
        cells = self._cells(self.frame(size, frames))
        rate, starts = fps or self.video_fps, range(0, frames, self.temporal_patch)
        pairs = sum(self._digits(start, frames, rate) + self.pair_tokens + cells for start in starts)
        return pairs + self.clip_tokens

    def frame(self, size: Size, frames: int) -> Size:
        return self._frame(size, frames, (self.video_min_pixels, self.video_max_pixels))

    def _frame(self, size: Size, frames: int, bounds: tuple[int, int]) -> Size:
        taken = size
        if size.short < self.cell:
            grow = max(self.cell / size.height, self.cell / size.width)
            taken = Size(int(size.width * grow), int(size.height * grow))
        depth = round(frames / self.temporal_patch) * self.temporal_patch
        return self._resized(self._checked(taken, size), bounds, depth, frames)

    def _digits(self, start: int, frames: int, fps: float) -> int:
        """Of the whole seconds of a pair: each is a token. The last frame of an odd clip is its own partner."""
        if self.time == "start":
            return len(str(int(start / fps)))
        middle = (start / fps + min(start + 1, frames - 1) / fps) / 2
        return len(f"{middle:.1f}".partition(".")[0])


class PaddedGrid(Rule, frozen=True, kw_only=True):
    """Kimi-VL, Kimi-K2.5: never enlarged, shrunk to max_patches, then padded to whole cells.

    max_side_patches: a longer side is shrunk to it, or, where `refuses_long`, a picture of so many is refused.
    Sources: vLLM, model_executor/models/kimi_vl.py; transformers, models/kimi_k25/image_processing_kimi_k25.py.
    """

    patch: int
    merge: int
    max_patches: int
    max_side_patches: int = 512
    refuses_long: bool = False

    template_tokens: int = 4

    pads: ClassVar[bool] = True
    names: ClassVar[Mapping[str, str]] = {
        "patch_size": "patch",
        "merge_size": "merge",
        "merge_kernel_size": "merge",
        "in_token_limit": "max_patches",
        "in_patch_limit": "max_patches",
        "max_patches_per_side": "max_side_patches",
        "patch_limit_on_one_side": "max_side_patches",
        "max_height": "max_side_patches",
        "max_width": "",  # only the other is read
        "temporal_patch_size": "",
    }

    def __post_init__(self) -> None:
        if min(self.patch, self.merge, self.max_patches, self.max_side_patches) < 1:
            raise ValueError("patch, merge, max_patches and max_side_patches must be at least 1")

    @property
    def cell(self) -> int:
        return self.patch * self.merge

    def aligned(self, size: Size) -> Size:
        cell, scale, longest = self.cell, self._scale(size), self.max_side_patches * self.patch
        made = Size(*(min(longest, max(1, int(side * scale))) if scale < 1 else side for side in size))
        padded = Size(*(-(-side // cell) * cell for side in made))
        if self.refuses_long and padded.long >= longest:
            raise UnsupportedMedia(f"a picture of {size}, of which a side has too many patches for the model")
        return padded

    def within(self, max_pixels: int) -> Self:
        return msgspec.structs.replace(self, max_patches=min(self.max_patches, max(1, max_pixels // self.patch**2)))

    def image(self, size: Size) -> int:
        return self.aligned(size).pixels // self.cell**2

    def _scale(self, size: Size) -> float:
        found = max(1.0, size.height // self.patch) * max(1.0, size.width // self.patch)
        scale = min(1.0, sqrt(self.max_patches / found))
        return scale if self.refuses_long else min(scale, self.max_side_patches * self.patch / size.long)


class FilledGrid(Rule, frozen=True, kw_only=True):
    """Gemma 4: every picture is scaled, up or down, until its cells fill max_tokens.

    tag_tokens: around a picture. frame_tokens: the tags and the time, as mm:ss, of each frame of a clip; one space
    stands between two.
    Source: transformers, models/gemma4/image_processing_gemma4.py and processing_gemma4.py.
    """

    patch: int
    pool: int
    max_tokens: int
    tag_tokens: int = 2
    video_max_tokens: int = 70
    frame_tokens: int = 8
    video_fps: float = 24

    names: ClassVar[Mapping[str, str]] = {
        "patch_size": "patch",
        "pooling_kernel_size": "pool",
        "max_soft_tokens": "max_tokens",
        "image_seq_length": "",  # max_soft_tokens decides
        "video_max_soft_tokens": "video_max_tokens",
        "video_patch_size": "",
        "video_pooling_kernel_size": "",
    }

    def __post_init__(self) -> None:
        if min(self.patch, self.pool, self.max_tokens, self.video_max_tokens) < 1:
            raise ValueError("patch, pool, max_tokens and video_max_tokens must be at least 1")

    def aligned(self, size: Size) -> Size:
        return self._filled(size, self.max_tokens)

    def frame(self, size: Size, frames: int) -> Size:
        return self._filled(size, self.video_max_tokens)

    def image(self, size: Size) -> int:
        return self._cells(size, self.max_tokens) + self.tag_tokens

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        each = self._cells(size, self.video_max_tokens) + self.frame_tokens
        minutes = (int(frame / (fps or self.video_fps) // 60) for frame in range(frames))
        return frames * each + frames - 1 + sum(len(f"{minute:02}") - 2 for minute in minutes)

    def _cells(self, size: Size, tokens: int) -> int:
        return self._filled(size, tokens).pixels // (self.patch * self.pool) ** 2

    def _filled(self, size: Size, tokens: int) -> Size:
        cell = self.patch * self.pool
        scale = sqrt(tokens * self.pool**2 * self.patch**2 / size.pixels)
        made = Size(*(floor(scale * side / cell) * cell for side in size))
        if made.short:
            return made
        return _sides(size, min(size.long // size.short, tokens) * cell, cell)
