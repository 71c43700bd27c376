"""
Plan: from what the headers say to what will be done, and what it will cost; or a refusal.

A pure function on sizes: no I/O, no pixels, no clock. The size of every output is fixed here, so the token count is
exact before the work is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, islice
from typing import Literal, NamedTuple

import msgspec

from vlm_edge.budget import Room, Sized, fit
from vlm_edge.clips import ClipPlan, Form, can_be_thinned, loader_of, of_frames, plan_clip, thinned
from vlm_edge.errors import (
    AnimationRefused,
    ContextExceeded,
    MediaTooLarge,
    TooManyImages,
    TooManyPages,
    TooManyVideos,
    VisionBudgetExceeded,
    naming,
)
from vlm_edge.geometry import Size
from vlm_edge.layout import Layout, is_stretched, layout
from vlm_edge.media.picture import Encoding, Target
from vlm_edge.media.prepare import PDF, may_move
from vlm_edge.media.probe import Probe
from vlm_edge.media.profile import Profile
from vlm_edge.media.video import Clip
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


# The context of each prompt, by its number; of one that is not there, only the limits count.
Rooms = Mapping[int | None, Room]
_NO_ROOMS: Rooms = {}

# A refusal names so many of the pictures that cost most.
BIGGEST = 3


Certainty = Literal["exact", "estimate", "at most"]

# What a refusal says of counts that are not exact.
CALLED: dict[Certainty, str] = {
    "exact": "",
    "estimate": "; the vision tokens of this model are an estimate",
    "at most": "; the vision tokens of this model are an upper bound",
}


class Model(msgspec.Struct, frozen=True):
    """The model that a request asks for, as far as counting goes.

    certainty: of its counts; not exact where the family is assumed, or only its maker could check the rule.
    max_model_len: of its context, prompt and answer, in tokens; None where nobody has told.
    """

    name: str
    family: str
    rule: Rule
    certainty: Certainty = "exact"
    max_model_len: int | None = None

    @property
    def exact(self) -> bool:
        return self.certainty == "exact"


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


Item = PicturePlan | ClipPlan


class Plan(msgspec.Struct, frozen=True):
    """For each picture or document of a request the pictures that it becomes: one, or one a page; and its videos."""

    media: Sequence[Sequence[PicturePlan]]
    clips: Sequence[ClipPlan] = ()

    def holding(self, pictures: Sequence[PicturePlan]) -> "Plan":
        """The plan with others in the place of its pictures."""
        rest = iter(pictures)
        return Plan([list(islice(rest, len(pages))) for pages in self.media], self.clips)

    def with_items(self, items: Sequence[Item]) -> "Plan":
        """The plan with others in the place of all of its items."""
        pictures = [item for item in items if isinstance(item, PicturePlan)]
        clips = [item for item in items if isinstance(item, ClipPlan)]
        return msgspec.structs.replace(self.holding(pictures), clips=clips)

    @property
    def pictures(self) -> Sequence[PicturePlan]:
        return list(chain.from_iterable(self.media))

    @property
    def items(self) -> Sequence[Item]:
        """All that costs tokens."""
        return [*self.pictures, *self.clips]

    @property
    def tokens(self) -> int:
        return sum(item.tokens for item in self.items)

    @property
    def left_out(self) -> int:
        """Pages that the profile does not take."""
        documents = [pages for pages in self.media if not may_move(pages[0].probe)]
        return sum(pages[0].probe.pages - len(pages) for pages in documents)


class Subject(NamedTuple):
    """A medium to plan: where it stands, and what is known of its pages."""

    place: str
    probes: Sequence[Probe]
    prompt: int | None = 0


class Film(NamedTuple):
    """A video to plan: where it stands, and what is known of it."""

    place: str
    clip: Clip
    form: Form
    prompt: int | None = 0


def plan(
    subjects: Sequence[Subject],
    profile: Profile,
    model: Model,
    limits: Limits,
    passed: Sequence[int | None] = (),
    films: Sequence[Film] = (),
) -> Plan:
    """The plan for the media of one request. Raises the RequestErrors of its parts.

    passed: the prompts of pictures that are not ours to prepare, but count as well.
    """
    media, clips = [], []
    with _calling(model.certainty):
        for subject in subjects:
            with naming(subject.place):
                check_pages(subject.probes[0], profile)
                check_document(subject.probes, limits)
                pages = (plan_picture(subject, probe, profile, model.rule, limits) for probe in subject.probes)
                media.append(list(pages))
        for film in films:
            with naming(film.place):
                clips.append(
                    plan_clip(
                        film.place,
                        film.clip,
                        film.form,
                        profile,
                        model.rule,
                        loader_of(film.form, model.family),
                        film.prompt,
                    )
                )
    planned = Plan(media, clips)
    check_number(planned, limits, passed)
    return _counted(planned, model.rule)


def again(planned: Plan, clips: Mapping[int, Clip], profile: Profile, model: Model) -> Plan:
    """The plan with other frames of some of its videos."""
    rule = model.rule
    made = list(planned.clips)
    for number, clip in clips.items():
        before = made[number]
        with naming(before.place):
            loader = loader_of(before.form, model.family)
            made[number] = plan_clip(before.place, clip, before.form, profile, rule, loader, before.prompt)
    return _counted(msgspec.structs.replace(planned, clips=made), rule)


def _counted(planned: Plan, rule: Rule) -> Plan:
    """With the tokens that each has among the others of its prompt."""
    if rule.counts_alone:
        return planned
    items, changed = list(planned.items), False
    for numbers in _prompts(items).values():
        among = [number for number in numbers if isinstance(items[number], PicturePlan) or _is_apart(items[number])]
        counts = iter(rule.images([size for number in among for size in _sizes(items[number])]))
        for number in among:
            tokens = sum(islice(counts, len(_sizes(items[number]))))
            if tokens != items[number].tokens:
                items[number], changed = msgspec.structs.replace(items[number], tokens=tokens), True
    return planned.with_items(items) if changed else planned


def _is_apart(item: Item) -> bool:
    """Whether a video's frames are pictures among the others."""
    return isinstance(item, ClipPlan) and item.form == "frames"


def _sizes(item: Item) -> Sequence[Size]:
    return [item.size] * (item.frames if isinstance(item, ClipPlan) else 1)


def _prompts(items: Sequence[Item]) -> Mapping[int | None, Sequence[int]]:
    """Which items, by their numbers, stand in each prompt; None: in all of them."""
    prompts = dict[int | None, list[int]]()
    for number, item in enumerate(items):
        prompts.setdefault(item.prompt, []).append(number)
    return prompts


def _seen(items: Sequence[Item]) -> Iterator[tuple[int | None, Sequence[int]]]:
    """The same, with those that stand in all prompts in each."""
    prompts = _prompts(items)
    shared = prompts.get(None, ())
    yield from ((one, own if one is None else [*shared, *own]) for one, own in prompts.items())


def fitted(planned: Plan, profile: Profile, rule: Rule, limits: Limits, rooms: Rooms = _NO_ROOMS) -> Plan:
    """The plan with pictures made smaller, so that they cost what they may; where their profile lets them. Of videos
    for which that does not suffice fewer frames are taken."""
    items, changed = list(planned.items), False
    for prompt, numbers in _seen(items):
        allowed = rooms.get(prompt, Room()).for_pictures(limits.max_request_tokens, surely=True)
        before = [items[number] for number in numbers]
        after = _fitted(before, profile, rule, limits.max_image_tokens, allowed)
        if after != before:
            changed = True
            for number, item in zip(numbers, after, strict=True):
                items[number] = item
    return _counted(planned.with_items(items), rule) if changed else planned


def _fitted(items: Sequence[Item], profile: Profile, rule: Rule, each: int, together: int) -> Sequence[Item]:
    """Those of one prompt."""
    while True:
        sized = [_sized(item, profile, rule) for item in items]
        found = fit(sized, profile, rule, each, together)
        pairs = zip(items, sized, found, strict=True)
        made = [item if one.layout == after else _smaller(item, after, profile, rule) for item, one, after in pairs]
        costly = max(made, key=_clip_tokens, default=None)
        if (
            not isinstance(costly, ClipPlan)
            or not can_be_thinned(costly)
            or sum(item.tokens for item in made) <= together
        ):
            return made
        thinner, number = thinned(costly, profile, rule), made.index(costly)
        items = [*items[:number], thinner, *items[number + 1 :]]


def _clip_tokens(item: Item) -> int:
    """Of a video that may be thinned out; all else comes last."""
    return item.tokens if isinstance(item, ClipPlan) and can_be_thinned(item) else -1


def _sized(item: Item, profile: Profile, rule: Rule) -> Sized:
    if isinstance(item, ClipPlan):
        return Sized(item.clip.size, item.layout, of_frames(profile), item.counting(rule))
    return Sized(native_size(item.probe, profile), Layout(item.content, item.size))


def _smaller(item: Item, found: Layout, profile: Profile, rule: Rule) -> Item:
    if isinstance(item, ClipPlan):
        tokens = item.counting(rule).image(found.canvas)
        return msgspec.structs.replace(item, layout=found, tokens=tokens, kept=False, fitted=True)
    return _smaller_picture(item, found, profile, rule)


def _smaller_picture(picture: PicturePlan, found: Layout, profile: Profile, rule: Rule) -> PicturePlan:
    target, tokens = _target(picture.probe, profile, found), rule.image(found.canvas)
    return msgspec.structs.replace(picture, target=target, size=found.canvas, tokens=tokens, fitted=True)


def plan_picture(subject: Subject, probe: Probe, profile: Profile, rule: Rule, limits: Limits) -> PicturePlan:
    """Of one page of a medium, as if it stood alone."""
    place, prompt = subject.place, subject.prompt
    check_source(probe, profile, limits)
    native = native_size(probe, profile)
    tokens_before = _as_it_is(native, rule)
    if tokens_before is not None and fits(probe, profile, rule, tokens_before):
        return PicturePlan(place, probe, None, probe.size, tokens_before, tokens_before, prompt)
    found = layout(native, profile, rule)
    target, tokens = _target(probe, profile, found), _alone(found.canvas, rule)
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


def _target(probe: Probe, profile: Profile, found: Layout) -> Target:
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


def check_number(planned: Plan, limits: Limits, passed: Sequence[int | None] = ()) -> None:
    """Raises TooManyImages where, with all pages, a prompt or the request holds too many pictures."""
    pictures = planned.pictures
    for prompt, numbers in _seen(pictures):
        found = len(numbers) + sum(one in (prompt, None) for one in passed)
        if found > limits.max_images:
            with naming(pictures[numbers[-1]].place):
                raise TooManyImages(found, limits.max_images)
    if pictures and len(pictures) + len(passed) > limits.max_total_images:
        with naming(pictures[-1].place):
            raise TooManyImages(len(pictures) + len(passed), limits.max_total_images, "request")
    if len(planned.clips) > limits.max_videos:
        with naming(planned.clips[-1].place):
            raise TooManyVideos(len(planned.clips), limits.max_videos)


def max_images(profile: Profile, limits: Limits) -> int:
    """Pictures that one prompt may hold."""
    return limits.max_images if profile.max_images is None else min(profile.max_images, limits.max_images)


def check_bytes(found: int, limits: Limits) -> None:
    """Raises MediaTooLarge for a file of so many bytes."""
    if found > limits.max_image_bytes:
        raise MediaTooLarge("bytes", found, limits.max_image_bytes)


def check_budget(planned: Plan, limits: Limits, rooms: Rooms = _NO_ROOMS, certainty: Certainty = "exact") -> None:
    """Raises VisionBudgetExceeded for a picture, or the whole, that surely costs too much as planned. certainty: of the
    counts, which the refusal says where they are not exact."""
    with _calling(certainty):
        _check_all(planned.items, limits, rooms)


@contextmanager
def _calling(certainty: Certainty) -> Iterator[None]:
    """Let a refusal say what the counts in it are."""
    try:
        yield
    except VisionBudgetExceeded as error:
        error.message += CALLED[certainty]
        raise


def _check_all(items: Sequence[Item], limits: Limits, rooms: Rooms) -> None:
    for item in items:
        if item.tokens > limits.max_image_tokens and not _is_apart(item):
            with naming(item.place):
                what = "video" if isinstance(item, ClipPlan) else "picture"
                raise VisionBudgetExceeded(what, item.tokens, limits.max_image_tokens)
    for prompt, numbers in _seen(items):
        _check_prompt([items[number] for number in numbers], limits, rooms.get(prompt, Room()))


def _check_prompt(items: Sequence[Item], limits: Limits, room: Room) -> None:
    tokens = sum(item.tokens for item in items)
    if tokens <= room.for_pictures(limits.max_request_tokens):
        return
    biggest = sorted(items, key=lambda item: -item.tokens)[:BIGGEST]
    with naming(biggest[0].place):
        if tokens > limits.max_request_tokens or room.max_model_len is None:
            raise VisionBudgetExceeded("request", tokens, limits.max_request_tokens, _named(biggest))
        raise ContextExceeded(tokens, room.text, room.reserved, room.max_model_len, _named(biggest))


def _named(items: Sequence[Item]) -> Sequence[tuple[str, int]]:
    return [(item.place, item.tokens) for item in items]


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
