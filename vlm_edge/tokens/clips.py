"""Clips: the frames of a video, all of one size, counted as one: so that what is known of pictures holds for them."""

from typing import Self

import msgspec

from vlm_edge.errors import UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.tokens.rule import Rule


class ClipRule(Rule, frozen=True, kw_only=True):
    """What so many frames cost whose size is that of a picture. base: the rule of the model. fps: at which they are
    sent. apart: they are sent as pictures."""

    base: Rule
    frames: int
    fps: float
    apart: bool

    @property
    def cell(self) -> int:
        return self.base.cell

    def aligned(self, size: Size) -> Size:
        return self.base.aligned(size) if self.apart else self.base.frame(size, self.frames)

    def image(self, size: Size) -> int:
        if self.apart:
            return sum(self.base.images([size] * self.frames))
        return self.base.video(frames=self.frames, size=size, fps=self.fps)

    def within(self, max_pixels: int) -> Self:
        return msgspec.structs.replace(self, base=self.base.within(max_pixels))


def takes_videos(rule: Rule) -> bool:
    """Whether the model counts videos as such."""
    try:
        rule.video(frames=2, size=Size(448, 448), fps=1.0)
    except UnsupportedMedia:
        return False
    return True
