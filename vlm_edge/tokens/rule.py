"""
Rule: from the size of a picture to its number of vision tokens. What every geometry answers.

One class is one preprocessing geometry; its fields are the numbers in which the families that share the geometry
differ. A count is the number of prompt positions that replace one placeholder; what a chat template writes around it
(`<|vision_start|>`, `<|vision_end|>`) comes on top and is given by `template_tokens`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

import msgspec

from vlm_edge.errors import UnsupportedMedia
from vlm_edge.geometry import Size

# `snap` takes no more than this off a side.
SNAP = 0.03


class Rule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True, tag=True, tag_field="rule"
):
    """Sizes are upright, in pixels; a refused size raises UnsupportedMedia.

    template_tokens: what the stock chat template writes around each picture, in tokens.
    """

    template_tokens: int = 0

    # How checkpoints' files and `--mm-processor-kwargs` call the fields; "" is a number that changes no count.
    names: ClassVar[Mapping[str, str]] = {}
    # Whether what an aligned size has more than the picture is a margin.
    pads: ClassVar[bool] = False

    @property
    def cell(self) -> int:
        """Pixels a side of what the processor rounds sides to, however large the picture; 1 where it does not."""
        return 1

    def aligned(self, size: Size) -> Size:
        """The size that the model's own processor makes of `size`; it keeps an aligned one as it is.

        `size` itself where the processor keeps no size, or the geometry knows none.
        """
        return size

    def image(self, size: Size) -> int:
        """Vision tokens of one picture."""
        raise NotImplementedError

    def images(self, sizes: Sequence[Size]) -> list[int]:
        """Vision tokens of each picture of one prompt."""
        return [self.image(size) for size in sizes]

    @property
    def counts_alone(self) -> bool:
        """Whether a picture costs the same whatever stands beside it."""
        return type(self).images is Rule.images

    def video(self, *, frames: int, size: Size, fps: float | None = None) -> int:
        """Vision tokens of one clip whose `frames` all reach the model; `fps` is their rate."""
        raise UnsupportedMedia("a video, which this model does not take")

    def frame(self, size: Size, frames: int) -> Size:
        """The size that the model's own processor makes of each of so many frames of a clip; else as `aligned`."""
        return self.aligned(size)

    def within(self, max_pixels: int) -> Self:
        """The rule with a bound on a picture's pixels, where the geometry has one: no more than its own."""
        return self

    def steps(self, side: int) -> Iterator[int]:
        """Lengths a little below `side` at which a picture may begin to cost less; the sides are taken one by one."""
        if self.cell > 1:
            yield side // self.cell * self.cell

    def snap(self, size: Size) -> Size:
        """The cheapest size that is at most 3 % smaller on each side; `size` where a few pixels save nothing."""
        choices = [Size(width, height) for width in self._near(size.width) for height in self._near(size.height)]
        return min(choices, key=lambda choice: (self.image(choice), -choice.pixels))

    def _near(self, side: int) -> list[int]:
        return [side, *(step for step in self.steps(side) if (1 - SNAP) * side <= step < side)]
