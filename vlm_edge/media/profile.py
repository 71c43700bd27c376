"""Profile: the named intent of a resize. The shipped ones lie in profiles/*.toml, where every field is explained."""

from typing import Literal

import msgspec

Format = Literal["auto", "jpeg", "png", "webp"]
Chroma = Literal["4:2:0", "4:4:4"]


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large a picture may be and how it is encoded when it has to be.

    max_side: pixels of the longer side. max_pixels: width x height. max_images: pictures a request (None: the limit
    of the settings alone). format: `auto` keeps lossless sources lossless (PNG) and makes a JPEG of the rest.
    quality: 1..100, of JPEG and WebP. chroma: colour resolution of JPEG; 4:4:4 keeps coloured text sharp.
    """

    description: str = ""
    max_side: int = 1_024
    max_pixels: int = 1_048_576
    max_images: int | None = None
    format: Format = "auto"
    quality: int = 85
    chroma: Chroma = "4:2:0"

    def __post_init__(self) -> None:
        _between("max_side", self.max_side, 1, 65_500)  # the most a JPEG can have
        _between("max_pixels", self.max_pixels, 1, 1 << 32)
        _between("quality", self.quality, 1, 100)
        if self.max_images is not None:
            _between("max_images", self.max_images, 0, 1_000_000)


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} = {value}: must be {low} to {high}")
