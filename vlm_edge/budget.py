"""
Budget: what the pictures of a prompt may cost together, and how they are made smaller until they do. Pure, on sizes.

prompt + reserved output <= max_model_len: vLLM refuses a prompt that is too long only after it has decoded and
processed every picture of it; and it cuts short an answer for which there is no room.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from vlm_edge.geometry import Size
from vlm_edge.layout import Layout, cheaper, smallest
from vlm_edge.media.profile import Profile
from vlm_edge.tokens.rule import Rule


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """on_exceed: pictures that cost too much are refused; or made smaller, the largest first, all to one common cap,
    and refused where not even the profile's floor_pixels fit. max_model_len: the context of models that have none of
    their own; without any, only the limits count.

    reserve_tokens: kept for the answer where the client asks for no length. reserve_share: of the context, the most
    that is kept however long an answer the client asks for; vLLM gives it what is left.

    count_text: of a model without a tokenizer here, "bound" takes an upper bound, and "server" asks the gateway's
    backend (/tokenize) where the bound leaves open whether the pictures fit.
    """

    on_exceed: Literal["refuse", "fit"] = "refuse"
    max_model_len: int | None = None
    reserve_tokens: int = 256
    reserve_share: float = 0.5
    count_text: Literal["bound", "server"] = "bound"

    def __post_init__(self) -> None:
        if self.max_model_len is not None and self.max_model_len < 1:
            raise ValueError(f"max_model_len = {self.max_model_len}: must be 1 or more")
        if self.reserve_tokens < 0 or not 0 <= self.reserve_share < 1:
            raise ValueError("reserve_tokens must not be negative, and reserve_share 0 or more and below 1")

    def reserved(self, asked_tokens: int | None, max_model_len: int) -> int:
        """Tokens to keep for an answer of which a client asks so many."""
        wanted = self.reserve_tokens if asked_tokens is None else max(1, asked_tokens)
        return min(wanted, int(max_model_len * self.reserve_share))


class Room(NamedTuple):
    """The context of one prompt, in tokens.

    text: the prompt without its pictures, what the chat template writes around them included. Where it could not be
    counted, `text` is what is sure, and `text_at_most` its upper bound.
    """

    max_model_len: int | None = None
    text: int = 0
    text_at_most: int = 0
    reserved: int = 0

    @property
    def exact(self) -> bool:
        return self.text == self.text_at_most

    def for_pictures(self, max_request_tokens: int, *, surely: bool = False) -> int:
        """What pictures may cost, or surely may."""
        if self.max_model_len is None:
            return max_request_tokens
        text = self.text_at_most if surely else self.text
        return max(0, min(max_request_tokens, self.max_model_len - text - self.reserved))


class Sized(NamedTuple):
    """A picture, or the frames of a video: what there is of it, and how it is going to be sent. profile, rule: a
    video's own."""

    native: Size
    layout: Layout
    profile: Profile | None = None
    rule: Rule | None = None


def fit(pictures: Sequence[Sized], profile: Profile, rule: Rule, each: int, together: int) -> Sequence[Layout]:
    """The pictures of one prompt, each at most so many tokens and together so many; or as small as their profile lets
    them be.

    The dearest ones go one step down, all at once, until it suffices. So the way down is the same for every budget, and
    a smaller one only goes further.
    """
    layouts = [picture.layout for picture in pictures]
    counts = _counts(pictures, layouts, rule)
    if sum(counts) <= together and max(counts, default=0) <= each:
        return layouts
    least = [smallest(one.native, one.layout, one.profile or profile, one.rule or rule) for one in pictures]
    if sum(_counts(pictures, least, rule)) > together:
        return least  # refused, unless the text costs less than its bound
    movable = set(range(len(pictures)))
    while movable and (sum(counts) > together or max(counts) > each):
        cap = max(counts[number] for number in movable)
        for number in [number for number in movable if counts[number] == cap]:
            one = pictures[number]
            closer = cheaper(one.native, layouts[number], one.profile or profile, one.rule or rule)
            if closer:
                layouts[number] = closer
            else:
                movable.remove(number)
        counts = _counts(pictures, layouts, rule)
    return layouts


def _counts(pictures: Sequence[Sized], layouts: Sequence[Layout], rule: Rule) -> Sequence[int]:
    """Of pictures among each other, and of videos alone."""
    sized = list(zip(pictures, layouts, strict=True))
    shared = iter(rule.images([layout.canvas for one, layout in sized if one.rule is None]))
    return [next(shared) if one.rule is None else one.rule.image(layout.canvas) for one, layout in sized]
