"""Fixed: geometries in which every picture costs the same."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from vlm_edge.errors import TooManyImages
from vlm_edge.geometry import Size
from vlm_edge.tokens.rule import Rule
from vlm_edge.tokens.slices import PanAndScan
from vlm_edge.tokens.tiles import Positive


class Fixed(Rule, frozen=True, kw_only=True):
    """Llama 3.2 Vision: one place in the prompt; what the model sees of a picture stands outside."""

    tokens: int

    names: ClassVar[Mapping[str, str]] = {
        "tile": "",
        "tile_size": "",
        "size": "",
        "patch_size": "",
        "max_image_tiles": "",
        "cross_attention_tokens_per_tile": "",
    }

    def image(self, size: Size) -> int:
        return self.tokens


class Square(Rule, frozen=True, kw_only=True):
    """LLaVA-1.5, Gemma 3n, PaliGemma, GLM-4V: every picture becomes a square of `side` pixels, whatever its shape.

    tokens: of the square, where the model does not make one of each cell. tag_tokens: around it, inside the count.
    extra_tokens: of the encoder, beside its patches; `default` leaves one out. max_images: in one prompt.
    """

    side: int
    patch: int = 14
    merge: int = 1
    tokens: int | None = None
    extra_tokens: int = 0
    strategy: Literal["default", "full"] = "full"
    tag_tokens: int = 0
    max_images: int | None = None

    names: ClassVar[Mapping[str, str]] = {
        "image_size": "side",
        "size": "side",
        "crop_size": "side",
        "shortest_edge": "",  # the crop decides
        "patch_size": "patch",
        "merge_size": "merge",
        "image_seq_length": "tokens",
        "image_seq_len": "tokens",
        "mm_tokens_per_image": "tokens",
        "num_additional_image_tokens": "extra_tokens",
        "vision_feature_select_strategy": "strategy",
    }

    def __post_init__(self) -> None:
        if min(self.side, self.patch, self.merge) < 1 or min(self.extra_tokens, self.tag_tokens, self.tokens or 0) < 0:
            raise ValueError("side, patch and merge must be at least 1, and tokens not below 0")

    def aligned(self, size: Size) -> Size:
        return Size(self.side, self.side)

    def image(self, size: Size) -> int:
        left_out = 1 if self.strategy == "default" else 0
        cells = (self.side // self.patch // self.merge) ** 2 + self.extra_tokens - left_out
        return (cells if self.tokens is None else self.tokens) + self.tag_tokens

    def images(self, sizes: Sequence[Size]) -> list[int]:
        if self.max_images is not None and len(sizes) > self.max_images:
            raise TooManyImages(len(sizes), self.max_images)
        return [self.image(size) for size in sizes]


class PannedSquare(PanAndScan, frozen=True, kw_only=True):
    """Gemma 3: a square of `side` pixels, whatever the picture's shape, unless it is asked to crop."""

    side: Positive = 896
    crops: bool = False

    names: ClassVar[Mapping[str, str]] = {**PanAndScan.names, "image_size": "side", "size": "side"}

    def aligned(self, size: Size) -> Size:
        return PanAndScan.aligned(self, size) if self.crops else Size(self.side, self.side)
