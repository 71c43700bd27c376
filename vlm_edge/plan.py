"""
Plan: from what the headers say to what will be done, and what it will cost; or a refusal.

A pure function on sizes: no I/O, no pixels, no clock. The size of every output is fixed here, so the token count is
exact before the work is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Literal

import msgspec

from vlm_edge.budget import Room, Sized, fit
from vlm_edge.clips import ClipPlan, Film, can_be_thinned, loader_of, of_frames, plan_clip, thinned
from vlm_edge.errors import (
    ContextExceeded,
    TooManyImages,
    TooManyVideos,
    VisionBudgetExceeded,
    naming,
)
from vlm_edge.geometry import Size
from vlm_edge.layout import Layout
from vlm_edge.media.prepare import may_move
from vlm_edge.media.profile import Profile
from vlm_edge.media.video import Clip
from vlm_edge.pictures import (
    Limits,
    PicturePlan,
    Subject,
    check_document,
    check_pages,
    native_size,
    plan_picture,
    target_of,
)
from vlm_edge.tokens.rule import Rule

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
                loader = loader_of(film.form, model.family, limits.max_images)
                clips.append(plan_clip(film, profile, model.rule, loader))
    planned = Plan(media, clips)
    check_number(planned, limits, passed)
    return _counted(planned, model.rule)


def again(planned: Plan, clips: Mapping[int, Clip], profile: Profile, model: Model, limits: Limits) -> Plan:
    """The plan with other frames of some of its videos."""
    rule = model.rule
    made = list(planned.clips)
    for number, clip in clips.items():
        before = made[number]
        with naming(before.place):
            loader = loader_of(before.form, model.family, limits.max_images)
            film = Film(before.place, clip, before.form, before.prompt)
            made[number] = plan_clip(film, profile, rule, loader)
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
    target, tokens = target_of(picture.probe, profile, found), rule.image(found.canvas)
    return msgspec.structs.replace(picture, target=target, size=found.canvas, tokens=tokens, fitted=True)


def check_number(planned: Plan, limits: Limits, passed: Sequence[int | None] = ()) -> None:
    """Raises TooManyImages where, with all pages and frames that are pictures, a prompt or the request holds too many;
    and TooManyVideos."""
    pictures = [item for item in planned.items if isinstance(item, PicturePlan) or _is_apart(item)]
    for prompt, numbers in _seen(pictures):
        sent = sum(len(_sizes(pictures[number])) for number in numbers)
        found = sent + sum(one in (prompt, None) for one in passed)
        if found > limits.max_images:
            with naming(pictures[numbers[-1]].place):
                raise TooManyImages(found, limits.max_images)
    total = sum(len(_sizes(item)) for item in pictures) + len(passed)
    if pictures and total > limits.max_total_images:
        with naming(pictures[-1].place):
            raise TooManyImages(total, limits.max_total_images, "request")
    if len(planned.clips) > limits.max_videos:
        with naming(planned.clips[-1].place):
            raise TooManyVideos(len(planned.clips), limits.max_videos)


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
