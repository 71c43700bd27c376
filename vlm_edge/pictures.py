"""
Pictures: the plan of one picture, or page, as if it stood alone: whether it may come in at all, whether it goes on as
it is, how large it is sent and in which format. Pure, on what the headers say.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from vlm_edge.errors import AnimationRefused, MediaTooLarge, TooManyPages
from vlm_edge.geometry import Size
from vlm_edge.layout import Layout, is_stretched, layout
from vlm_edge.media.picture import Encoding, Target
from vlm_edge.media.prepare import PDF, may_move
from vlm_edge.media.probe import Probe
from vlm_edge.media.profile import Profile
from vlm_edge.requests.body import MAX_TEXT_BYTES
from vlm_edge.tokens.rule import Rule

# Kept as they are when they are inside their profile; the others are not read by every server.
KEPT = frozenset({"image/jpeg", "image/png", "image/webp"})

MAX_WEBP_SIDE = 16_383  # of the format

# A PNG that is so many times as large as the JPEG shows a photo: scans, pages and screenshots stay below (0.6 to 3.2).
PHOTO_RATIO = 3.5

# What Pillow holds of a picture at its peak, measured; it decodes all of it before it resizes.
EXACT_BYTES_A_PIXEL = 10

POINTS_AN_INCH = 72

# All pages of a document may have so many times the pixels of one picture: 20 of A4 at 600 dpi.
DOCUMENT_PIXELS = 4


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one request may bring, the whole history included. More is refused.

    max_body_bytes: of the HTTP body, unpacked. max_text_bytes: of the body beside its payloads. max_images: pictures a
    prompt; most requests are one, and max_total_images is for those that hold many. max_image_bytes: of one file,
    before base64. max_image_pixels: width x height of one source (the default is vLLM's own limit).
    max_image_memory_bytes: what its decoder must hold at once, told by the headers. max_videos: of the request;
    max_video_bytes, max_video_pixels: of one file, and of one of its frames. max_image_tokens and max_request_tokens:
    vision tokens of one prepared picture or video (vLLM's encoder cache must hold one), and of all of a prompt.
    """

    max_body_bytes: int = 64 * 1024 * 1024
    max_text_bytes: int = MAX_TEXT_BYTES
    max_images: int = 20
    max_total_images: int = 200
    max_image_bytes: int = 32 * 1024 * 1024
    max_image_pixels: int = 178_956_970
    max_image_memory_bytes: int = 448 * 1024 * 1024
    max_videos: int = 4
    max_video_bytes: int = 48 * 1024 * 1024
    max_video_pixels: int = 4_096 * 2_304
    max_image_tokens: int = 16_384
    max_request_tokens: int = 32_768

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must not be negative")


class PicturePlan(msgspec.Struct, frozen=True):
    """What to do with one picture, which may be a page. `target` is None for one that is kept as it is."""

    place: str
    probe: Probe
    target: Target | None
    size: Size  # as sent, a margin included
    tokens: int
    tokens_before: int  # of the original
    prompt: int | None = 0  # which of the request's prompts it stands in; None: in all of them
    fitted: bool = False  # smaller than its profile has it, because of the budget

    @property
    def content(self) -> Size:
        """The size of what was in the original."""
        return self.target.size if self.target else self.size

    @property
    def media_types(self) -> tuple[str, ...]:
        """Of the file that is sent: the one, or those that it will be one of."""
        return self.target.encoding.media_types if self.target else (self.probe.media_type,)

    @property
    def action(self) -> Literal["kept", "resized", "converted"]:
        if self.target is None:
            return "kept"
        return "converted" if self.size == self.probe.size else "resized"


class Subject(NamedTuple):
    """A medium to plan: where it stands, and what is known of its pages."""

    place: str
    probes: Sequence[Probe]
    prompt: int | None = 0


def plan_picture(subject: Subject, probe: Probe, profile: Profile, rule: Rule, limits: Limits) -> PicturePlan:
    """Of one page of a medium, as if it stood alone."""
    place, prompt = subject.place, subject.prompt
    check_source(probe, profile, limits)
    native = native_size(probe, profile)
    tokens_before = _as_it_is(native, rule)
    if tokens_before is not None and fits(probe, profile, rule, tokens_before):
        return PicturePlan(place, probe, None, probe.size, tokens_before, tokens_before, prompt)
    found = layout(native, profile, rule)
    target, tokens = target_of(probe, profile, found), _alone(found.canvas, rule)
    return PicturePlan(place, probe, target, found.canvas, tokens, tokens_before or tokens, prompt)


def _as_it_is(size: Size, rule: Rule) -> int | None:
    """Tokens of a picture that is not made smaller; None where the model finds it too large for that. Raises what the
    model refuses at any size."""
    try:
        return rule.image(size)
    except MediaTooLarge:
        return None


@lru_cache(maxsize=4_096)
def _alone(size: Size, rule: Rule) -> int:
    """Tokens of a picture without others; on the model's grid there are not many sizes."""
    return rule.image(size)


def target_of(probe: Probe, profile: Profile, found: Layout) -> Target:
    return Target(
        size=found.size,
        canvas=found.canvas,
        encoding=encoding(probe, profile, found.canvas),
        background=profile.background_rgb,
        kernel=profile.kernel,
        exact=profile.engine == "pillow",
    )


def check_source(probe: Probe, profile: Profile, limits: Limits) -> None:
    """Raises MediaTooLarge for what is too large to be decoded. A page of a PDF is drawn as large as it is sent."""
    if probe.media_type == PDF:
        return
    allowed = limits.max_image_pixels // _weight(probe)
    if probe.size.pixels > allowed:
        raise MediaTooLarge("pixels", probe.size.pixels, allowed)
    whole = EXACT_BYTES_A_PIXEL * probe.size.pixels if profile.engine == "pillow" else 0
    held = max(probe.memory_bytes, whole)
    if held > limits.max_image_memory_bytes:
        raise MediaTooLarge("bytes when it is decoded", held, limits.max_image_memory_bytes)


def _weight(probe: Probe) -> int:
    """How many times the time of an ordinary pixel one of these takes to decode."""
    return 4 if probe.deep and probe.alpha else 2 if probe.deep else 1


def check_pages(first: Probe, profile: Profile) -> None:
    """Raises what the profile says of a document of so many pages, or of an animation."""
    if may_move(first):
        if profile.animation == "refuse" and first.pages > 1:
            raise AnimationRefused(first.pages)
    elif first.pages > profile.pages.max and profile.pages.over == "refuse":
        raise TooManyPages(first.pages, profile.pages.max)


def check_document(pages: Sequence[Probe], limits: Limits) -> None:
    """Raises MediaTooLarge for many pages that are each as large as one picture may be."""
    pixels, allowed = sum(page.size.pixels for page in pages), DOCUMENT_PIXELS * limits.max_image_pixels
    if len(pages) > 1 and pixels > allowed:
        raise MediaTooLarge("pixels on its pages", pixels, allowed)


def max_images(profile: Profile, limits: Limits) -> int:
    """Pictures that one prompt may hold."""
    return limits.max_images if profile.max_images is None else min(profile.max_images, limits.max_images)


def check_bytes(found: int, limits: Limits) -> None:
    """Raises MediaTooLarge for a file of so many bytes."""
    if found > limits.max_image_bytes:
        raise MediaTooLarge("bytes", found, limits.max_image_bytes)


def fits(probe: Probe, profile: Profile, rule: Rule, tokens: int) -> bool:
    """Whether a picture is inside its profile: small enough, and nothing to turn, flatten, convert or pad."""
    return (
        profile.reencode == "when_needed"
        and probe.media_type in KEPT
        and _is_plain(probe, profile)
        and _is_within(probe, profile, tokens)
        and not (is_stretched(probe.size, probe.size, profile, rule) and _can_be_helped(probe.size, profile, rule))
    )


def _can_be_helped(size: Size, profile: Profile, rule: Rule) -> bool:
    """Whether the shape that the model would see can be mended by another size, or a margin."""
    return layout(size, profile, rule) != Layout(size, size)


def _is_plain(probe: Probe, profile: Profile) -> bool:
    """Models know no colour profiles, so neither does the engine that does what they would."""
    coloured = probe.srgb or (profile.engine == "pillow" and not probe.deep)
    moves = probe.animated or probe.pages > 1
    return probe.upright and coloured and not (probe.alpha or moves or probe.packed_text or probe.bad_metadata)


def _is_within(probe: Probe, profile: Profile, tokens: int) -> bool:
    within = probe.size.fits(profile.max_side, profile.max_pixels) and probe.size.short >= profile.min_side
    cheap = _at_most(tokens, profile.max_tokens) and _at_most(probe.file_bytes, profile.max_encoded_bytes)
    return within and cheap


def _at_most(found: int, allowed: int | None) -> bool:
    return allowed is None or found <= allowed


def native_size(probe: Probe, profile: Profile) -> Size:
    """Pixels of a picture; of a page of a PDF, which comes in points, at the most dots an inch."""
    if probe.media_type != PDF:
        return probe.size
    return Size(*(-(-side * profile.pages.dpi // POINTS_AN_INCH) for side in probe.size))


def encoding(probe: Probe, profile: Profile, size: Size) -> Encoding:
    return Encoding(
        media_types=media_types(probe, profile, size),
        quality=profile.quality,
        chroma=profile.chroma,
        lossless_worth=PHOTO_RATIO if profile.lossless == "prefer" else 1.0,
        max_bytes=profile.max_encoded_bytes,
    )


def media_types(probe: Probe, profile: Profile, size: Size) -> tuple[str, ...]:
    """The type to write; or those of which the better is taken."""
    kind = f"image/{profile.format}"
    if profile.format == "keep" and probe.media_type in KEPT:
        kind = probe.media_type
    if kind == "image/webp" and size.long > MAX_WEBP_SIDE:
        kind = "image/auto"
    if profile.engine == "pillow":  # without loss
        return (kind if kind == "image/webp" else "image/png",)
    if kind in KEPT:
        return (kind,)
    return ("image/jpeg", "image/png") if probe.lossless else ("image/jpeg",)
