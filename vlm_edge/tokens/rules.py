"""
Rules: from the size of a picture to its number of vision tokens.

One class is one preprocessing geometry; its fields are the numbers in which the families that share the geometry
differ. A count is the number of prompt positions that replace one placeholder; what a chat template writes around it
(`<|vision_start|>`, `<|vision_end|>`) comes on top and is given by `template_tokens`.
"""

from collections.abc import Sequence
from math import ceil, floor, sqrt
from typing import ClassVar

import msgspec

from vlm_edge.errors import ExtremeAspect, UnsupportedMedia
from vlm_edge.geometry import Size


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """What every geometry can answer. Sizes are upright, in pixels; a refused size raises UnsupportedMedia."""

    template_tokens: ClassVar[int] = 0

    @property
    def cell(self) -> int:
        """Pixels a side of one token: an output whose sides are multiples of it need not be resampled again."""
        raise NotImplementedError

    def aligned(self, size: Size) -> Size:
        """The size that the model's own processor makes of `size`; it keeps an aligned one as it is."""
        raise NotImplementedError

    def image(self, size: Size) -> int:
        """Vision tokens of one picture."""
        raise NotImplementedError

    def images(self, sizes: Sequence[Size]) -> list[int]:
        """Vision tokens of each picture of one prompt."""
        return [self.image(size) for size in sizes]

    def within(self, max_pixels: int) -> "Rule":
        """The rule with a bound on a picture's pixels, where the geometry has one: no more than its own."""
        return self

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        """Vision tokens of one clip whose `frames` all reach the model; `fps` is their rate."""
        raise NotImplementedError


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

    template_tokens = 2

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

    def within(self, max_pixels: int) -> "MergedGrid":
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
