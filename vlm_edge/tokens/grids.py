"""Grids: geometries in which sides are rounded to cells of patch * merge pixels, and each cell is a token."""

from math import ceil, floor, sqrt
from typing import Self

import msgspec

from vlm_edge.errors import ExtremeAspect, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.tokens.rule import Rule


class MergedGrid(Rule, frozen=True, kw_only=True):
    """Qwen2-VL's `smart_resize`: sides rounded to cells of patch * merge, area kept inside [min_pixels, max_pixels].

    Source: transformers, models/qwen2_vl/image_processing_qwen2_vl.py; the order of the float operations matters.
    """

    patch: int
    merge: int
    temporal_patch: int = 2
    min_pixels: int
    max_pixels: int
    max_ratio: int = 200

    template_tokens: int = 2

    names = {
        "patch_size": "patch",
        "merge_size": "merge",
        "temporal_patch_size": "temporal_patch",
        "shortest_edge": "min_pixels",
        "longest_edge": "max_pixels",
    }

    def __post_init__(self) -> None:
        if min(self.patch, self.merge, self.temporal_patch, self.max_ratio) < 1:
            raise ValueError("patch, merge, temporal_patch and max_ratio must be at least 1")
        if not 0 < self.min_pixels <= self.max_pixels:
            raise ValueError("min_pixels and max_pixels must be above 0 and in this order")

    @property
    def cell(self) -> int:
        return self.patch * self.merge

    def aligned(self, size: Size) -> Size:
        return self._resized(size, self.min_pixels, self.max_pixels)

    def within(self, max_pixels: int) -> Self:
        most = min(self.max_pixels, max_pixels)
        return msgspec.structs.replace(self, max_pixels=most, min_pixels=min(self.min_pixels, most))

    def image(self, size: Size) -> int:
        return self.aligned(size).pixels // self.cell**2

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        return ceil(frames / self.temporal_patch) * self.image(size)

    def _resized(self, size: Size, min_pixels: int, max_pixels: int, depth: int = 1, frames: int = 1) -> Size:
        """`smart_resize` of a picture (depth 1), or of a clip of `frames` that counts as `depth` of them."""
        if size.long / size.short > self.max_ratio:
            raise ExtremeAspect(size.width, size.height, self.max_ratio)
        cell, area = self.cell, frames * size.height * size.width
        rounded = Size(round(size.width / cell) * cell, round(size.height / cell) * cell)
        if depth * rounded.pixels > max_pixels:
            shrink = sqrt(area / max_pixels)
            return Size(*(max(cell, floor(side / shrink / cell) * cell) for side in size))
        if depth * rounded.pixels < min_pixels:
            grow = sqrt(min_pixels / area)
            return Size(*(ceil(side * grow / cell) * cell for side in size))
        return rounded


class TimedGrid(MergedGrid, frozen=True, kw_only=True):
    """Qwen3-VL: pictures as MergedGrid; a clip is bounded as a whole and its frame pairs carry their time as text.

    Source: transformers, models/qwen3_vl/video_processing_qwen3_vl.py and processing_qwen3_vl.py.
    """

    video_min_pixels: int
    video_max_pixels: int
    video_fps: float = 2
    video_min_frames: int = 4
    video_max_frames: int = 768

    def __post_init__(self) -> None:
        super().__post_init__()  # msgspec makes the class anew, which a bare super() does not know
        if not 0 < self.video_min_pixels <= self.video_max_pixels or self.video_fps <= 0:
            raise ValueError("video_min_pixels, video_max_pixels and video_fps must be above 0 and in order")

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        if frames < self.temporal_patch:
            raise UnsupportedMedia(f"a video of {frames} frame(s) where the model takes at least {self.temporal_patch}")
        pads = self._frame(frames, size).pixels // self.cell**2
        rate = fps or self.video_fps
        starts = range(0, frames, self.temporal_patch)
        return sum(_time_tag(_mean_time(start, frames, rate)) + 2 + pads for start in starts)

    def _frame(self, frames: int, size: Size) -> Size:
        if size.short < self.cell:
            grow = max(self.cell / size.width, self.cell / size.height)
            size = Size(int(size.width * grow), int(size.height * grow))
        depth = round(frames / self.temporal_patch) * self.temporal_patch
        return self._resized(size, self.video_min_pixels, self.video_max_pixels, depth, frames)


def _mean_time(start: int, frames: int, fps: float) -> float:
    """Seconds at the middle of a pair of frames; the last frame of an odd clip is its own partner."""
    return (start / fps + min(start + 1, frames - 1) / fps) / 2


def _time_tag(seconds: float) -> int:
    """Tokens of `<12.5 seconds>`: every digit is one, and five more stand around them."""
    return 5 + len(f"{seconds:.1f}".partition(".")[0])
