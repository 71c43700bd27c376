"""Profile: the named intent of a resize. The shipped ones lie in profiles/*.toml, where every field is explained."""

import re
from typing import Literal

import msgspec

Format = Literal["auto", "keep", "jpeg", "png", "webp"]
Chroma = Literal["4:2:0", "4:4:4"]
Kernel = Literal["nearest", "linear", "cubic", "mitchell", "lanczos2", "lanczos3"]
Engine = Literal["vips", "pillow"]
Form = Literal["auto", "video", "jpeg_frames", "frames"]

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} = {value}: must be {low} to {high}")


class Pages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pages of documents (PDF, TIFF), and the frames of animations where those are taken.

    max: pages of one document, each a picture. over: a longer one is refused, or its first pages are taken, and the
    report says how many were left out. dpi: a PDF page is drawn at its planned size, of at most so many dots an inch.
    """

    max: int = 8
    over: Literal["refuse", "first"] = "refuse"
    dpi: int = 200

    def __post_init__(self) -> None:
        _between("pages.max", self.max, 1, 199)  # of a TIFF 200 are counted
        _between("pages.dpi", self.dpi, 18, 1_200)


class Sampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which frames of a video are taken, and how they are sent.

    fps: frames a second; min_frames, max_frames: however short or long it is. start_s, end_s: what is looked at.
    strategy: "uniform" spreads them evenly in time; "motion" takes up to `moving_fps` where the picture moves, and one
    of each still passage.

    form: "video" is a short video of the frames; "jpeg_frames" a list of them (`data:video/jpeg`), of which a server
    keeps 32 and the times only if it is told so; "frames" are pictures, with their times as text before each (labels);
    "auto" is a video where the model counts such, else pictures. max_side, max_pixels, floor_pixels, quality, chroma:
    of a frame.
    """

    fps: float = 1.0
    min_frames: int = 4
    max_frames: int = 64
    start_s: float = 0.0
    end_s: float | None = None
    strategy: Literal["uniform", "motion"] = "uniform"
    moving_fps: float = 2.0
    form: Form = "auto"
    labels: bool = True
    max_side: int = 512
    max_pixels: int = 262_144
    floor_pixels: int = 50_176
    quality: int = 90
    chroma: Chroma = "4:2:0"

    def __post_init__(self) -> None:
        _between("video.quality", self.quality, 1, 100)
        _between("video.max_frames", self.max_frames, 1, 4_096)
        _between("video.min_frames", self.min_frames, 1, self.max_frames)
        _between("video.max_side", self.max_side, 1, 8_192)
        _between("video.max_pixels", self.max_pixels, 1, 1 << 26)
        _between("video.floor_pixels", self.floor_pixels, 1, 1 << 26)
        for name, value in (("fps", self.fps), ("moving_fps", self.moving_fps)):
            if not 0 < value <= 60:
                raise ValueError(f"video.{name} = {value}: must be above 0 and at most 60")
        if self.start_s < 0 or (self.end_s is not None and self.end_s <= self.start_s):
            raise ValueError("video.start_s and video.end_s must be 0 or more and in this order")


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """How large a picture may be and how it is encoded when it has to be.

    Size. max_side: pixels of the longer side. max_pixels: width x height. max_tokens: vision tokens of one picture, as
    the model counts them. min_side: pixels that the shorter side has at least; a thinner picture gets a margin of
    `background`, to the right or below, and is never stretched (0: the model's own cell). align: to the model's grid.
    floor_pixels: where the budget does not suffice, `fit` shrinks a picture to no fewer.

    Number. max_images: pictures and documents a prompt (None: the limit of the settings alone). pages: of one document.
    video: of one video.
    animation: of a GIF, WebP, APNG or AVIF the first frame is taken, or up to `pages.max` frames, evenly spread; or a
    GIF or APNG goes on as a video, as `video` has it; or it is refused.

    File. format: `keep` is that of the source where it is JPEG, PNG or WebP; `auto` makes a JPEG of lossy sources, and
    of lossless ones the smaller of JPEG and PNG, or with `lossless = "prefer"` PNG unless it is a photo. quality:
    1..100, of JPEG and WebP. chroma: colour resolution of JPEG; 4:4:4 keeps coloured text sharp. max_encoded_bytes: of
    the file; quality is lowered until it fits. reencode: `always` lets no file pass as it came. background: what shows
    through a transparent picture. kernel: of the resize. engine: `pillow` resizes as the model's own processor does,
    value for value, and sends lossless files.
    """

    description: str = ""
    max_side: int = 1_024
    max_pixels: int = 1_048_576
    max_tokens: int | None = None
    min_side: int = 0
    floor_pixels: int = 200_704
    align: bool = True
    max_images: int | None = None
    pages: Pages = Pages()
    video: Sampling = Sampling()
    animation: Literal["first", "frames", "video", "refuse"] = "first"
    format: Format = "auto"
    lossless: Literal["smaller", "prefer"] = "smaller"
    quality: int = 85
    chroma: Chroma = "4:2:0"
    max_encoded_bytes: int | None = None
    reencode: Literal["when_needed", "always"] = "when_needed"
    background: str = "#ffffff"
    kernel: Kernel = "lanczos3"
    engine: Engine = "vips"

    def __post_init__(self) -> None:
        _between("max_side", self.max_side, 1, 65_500)  # the most a JPEG can have
        _between("max_pixels", self.max_pixels, 1, 1 << 32)
        _between("min_side", self.min_side, 0, min(self.max_side, 4_096))
        _between("quality", self.quality, 1, 100)
        _between("floor_pixels", self.floor_pixels, 1, 1 << 32)
        for name, value, low in (
            ("max_tokens", self.max_tokens, 1),
            ("max_images", self.max_images, 0),
            ("max_encoded_bytes", self.max_encoded_bytes, 1_024),
        ):
            if value is not None:
                _between(name, value, low, 1 << 32)
        if not _COLOUR.fullmatch(self.background):
            raise ValueError(f"background = {self.background!r}: must be a colour such as '#ffffff'")

    @property
    def background_rgb(self) -> tuple[int, int, int]:
        red, green, blue = bytes.fromhex(self.background[1:])
        return red, green, blue
