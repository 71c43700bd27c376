"""
Plan: from what the headers say to what will be done, and what it will cost; or a refusal.

A pure function on sizes: no I/O, no pixels, no clock. The size of every output is fixed here, so the token count is
exact before the work is done.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from vlm_edge.errors import (
    MediaTooLarge,
    UnsupportedMedia,
    VisionBudgetExceeded,
    naming,
)
from vlm_edge.geometry import Size, align, fit
from vlm_edge.media.picture import Target
from vlm_edge.media.probe import Probe
from vlm_edge.media.profile import Profile
from vlm_edge.requests.body import MAX_TEXT_BYTES
from vlm_edge.tokens.rules import Rule

# Kept as they are when they are inside their profile; the others are not read by every server.
KEPT = frozenset({"image/jpeg", "image/png", "image/webp"})

MAX_WEBP_SIDE = 16_383  # of the format


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one request may bring, the whole history included. More is refused.

    max_body_bytes: of the HTTP body, unpacked. max_text_bytes: of the body beside its payloads. max_images: pictures a
    prompt; most requests are one, and max_total_images is for those that hold many. max_image_bytes: of one file,
    before base64. max_image_pixels: width x height of one source (the default is vLLM's own limit). max_image_tokens
    and max_request_tokens: vision tokens of one prepared picture, and of all of a prompt.
    """

    max_body_bytes: int = 64 * 1024 * 1024
    max_text_bytes: int = MAX_TEXT_BYTES
    max_images: int = 20
    max_total_images: int = 200
    max_image_bytes: int = 32 * 1024 * 1024
    max_image_pixels: int = 178_956_970
    max_image_tokens: int = 16_384
    max_request_tokens: int = 32_768

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)}: must not be negative")


class Model(msgspec.Struct, frozen=True):
    """The model that a request asks for, as far as counting goes."""

    name: str
    family: str
    rule: Rule
    exact: bool = True  # False: the family is assumed, so counts are estimates


class PicturePlan(msgspec.Struct, frozen=True):
    """What to do with one picture. `target` is None for one that is kept as it is."""

    place: str
    probe: Probe
    target: Target | None
    size: Size  # as sent
    tokens: int
    tokens_before: int  # of the original
    prompt: int | None = 0  # which of the request's prompts it stands in; None: in all of them

    @property
    def action(self) -> Literal["kept", "resized", "converted"]:
        if self.target is None:
            return "kept"
        return "converted" if self.size == self.probe.size else "resized"


class Plan(msgspec.Struct, frozen=True):
    pictures: Sequence[PicturePlan]

    @property
    def tokens(self) -> int:
        return sum(picture.tokens for picture in self.pictures)


class Subject(NamedTuple):
    """A picture to plan: where it stands, and what its headers say."""

    place: str
    probe: Probe
    prompt: int | None = 0


def plan(subjects: Sequence[Subject], profile: Profile, model: Model, limits: Limits) -> Plan:
    """The plan for the pictures of one request. Raises the RequestErrors of its parts."""
    pictures = []
    for subject in subjects:
        with naming(subject.place):
            planned = plan_picture(subject.place, subject.probe, profile, model.rule, limits)
            pictures.append(msgspec.structs.replace(planned, prompt=subject.prompt))
    return Plan(_counted(pictures, model.rule))


def _counted(pictures: Sequence[PicturePlan], rule: Rule) -> list[PicturePlan]:
    """With the tokens that each has among the others of its prompt."""
    counts = {prompt: iter(rule.images([one.size for one in together])) for prompt, together in _prompts(pictures)}
    return [msgspec.structs.replace(one, tokens=next(counts[one.prompt])) for one in pictures]


def _prompts(pictures: Sequence[PicturePlan]) -> Iterator[tuple[int | None, list[PicturePlan]]]:
    prompts = dict.fromkeys(one.prompt for one in pictures)
    yield from ((prompt, [one for one in pictures if one.prompt == prompt]) for prompt in prompts)


def plan_picture(place: str, probe: Probe, profile: Profile, rule: Rule, limits: Limits) -> PicturePlan:
    if probe.size.pixels > limits.max_image_pixels:
        raise MediaTooLarge("pixels", probe.size.pixels, limits.max_image_pixels)
    if probe.pages > 1:
        raise UnsupportedMedia(f"a picture of {probe.pages} pages, of which none may be dropped unseen")
    tokens_before = rule.image(probe.size)  # refuses what the model would
    kept = fits(probe, profile)
    size = probe.size if kept else planned_size(probe.size, profile, rule)
    target = None if kept else Target(size, media_type(probe, profile, size), profile.quality, profile.chroma)
    return PicturePlan(place, probe, target, size, rule.image(size), tokens_before)


def max_images(profile: Profile, limits: Limits) -> int:
    """Pictures that one prompt may hold."""
    return limits.max_images if profile.max_images is None else min(profile.max_images, limits.max_images)


def check_bytes(found: int, limits: Limits) -> None:
    """Raises MediaTooLarge for a file of so many bytes."""
    if found > limits.max_image_bytes:
        raise MediaTooLarge("bytes", found, limits.max_image_bytes)


def check_budget(plan: Plan, limits: Limits) -> None:
    """Raises VisionBudgetExceeded for a picture, or the whole, that costs too much as planned."""
    for picture in plan.pictures:
        if picture.tokens > limits.max_image_tokens:
            with naming(picture.place):
                raise VisionBudgetExceeded("picture", picture.tokens, limits.max_image_tokens)
    shared = [picture for picture in plan.pictures if picture.prompt is None]
    for prompt, own in _prompts(plan.pictures):
        pictures = own if prompt is None else [*shared, *own]
        tokens = sum(picture.tokens for picture in pictures)
        if tokens > limits.max_request_tokens:
            with naming(max(pictures, key=lambda picture: picture.tokens).place):
                raise VisionBudgetExceeded("request", tokens, limits.max_request_tokens)


def fits(probe: Probe, profile: Profile) -> bool:
    """Whether a picture is inside its profile: small enough, and nothing to turn, flatten or convert."""
    plain = probe.upright and probe.srgb and not (probe.alpha or probe.animated or probe.packed_text)
    return plain and probe.media_type in KEPT and probe.size.fits(profile.max_side, profile.max_pixels)


def planned_size(size: Size, profile: Profile, rule: Rule) -> Size:
    """The size to send: inside the profile, never enlarged beyond alignment, and on the model's grid.

    Where the model's own bound is tighter than the profile it counts; where the model is going to enlarge a picture, or
    to stretch a thin one, that is left to the model.
    """
    cell, max_pixels = rule.cell, profile.max_pixels
    # The box is cut to whole cells first: fitting to 1008 and not to 1024 keeps the ratio when sides are rounded.
    side = profile.max_side // cell * cell or profile.max_side
    fitted = fit(size, side, max_pixels)
    aligned = align(fitted, cell, side, max_pixels)
    try:
        kept = rule.aligned(aligned)
    except UnsupportedMedia:  # too thin, but only when rounded
        return fitted
    if kept.width <= aligned.width and kept.height <= aligned.height:
        return kept
    return fitted


def media_type(probe: Probe, profile: Profile, size: Size) -> str:
    lossless = "image/png" if probe.lossless else "image/jpeg"
    if profile.format == "auto" or (profile.format == "webp" and size.long > MAX_WEBP_SIDE):
        return lossless
    return f"image/{profile.format}"
