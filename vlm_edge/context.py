"""
Context: what the prompts of a request take of their model's context beside its pictures. A pure function.

Text is counted by the model's tokenizer, where we have one, or by its server; else only an upper bound is known, and
what the chat template writes around the pictures is all that is sure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vlm_edge.budget import BudgetSettings, Room
from vlm_edge.clips import ClipPlan
from vlm_edge.models import Served
from vlm_edge.plan import Item, Plan, Rooms
from vlm_edge.requests.prompt import Prompt, question
from vlm_edge.tokens.text import bound

# Longer texts are bounded: counting takes up to a second a megabyte. And what has so many bytes a token of its context
# need not be counted, for vLLM refuses it unread (16 characters, of up to four bytes each).
MAX_COUNTED_BYTES = 768 * 1024
BYTES_A_TOKEN = 64

_NO_TOKENS: Mapping[int, int] = {}


class Told(NamedTuple):
    """What it told. tokens: of the text of prompts, by their numbers."""

    max_model_len: int | None = None
    tokens: Mapping[int, int] = {}

    def of(self, served: Served, default: int | None) -> Served:
        """The model with a context: its own by the settings, else what was told, else that of all models."""
        length = served.model.max_model_len or self.max_model_len or default
        if length == served.model.max_model_len:
            return served
        return served._replace(model=msgspec.structs.replace(served.model, max_model_len=length))


def rooms(
    prompts: Sequence[Prompt],
    planned: Plan,
    served: Served,
    budget: BudgetSettings,
    tokens: Mapping[int, int] = _NO_TOKENS,
    hidden_bytes: int = 0,
) -> Rooms:
    """The context of each prompt. tokens: what the server has counted. hidden_bytes: of text that was cut out as if it
    were media."""
    found = dict[int | None, Room]()
    for number, prompt in enumerate(prompts):
        media = sum(_places(item) for item in planned.items if item.prompt in (number, None))
        told = tokens[number] if number in tokens else _counted(prompt, media, served)
        exact = None if hidden_bytes else told
        found[number] = _room(prompt, media, served, budget, exact, hidden_bytes)
    return found


def _places(item: Item) -> int:
    """Media that it is to the server."""
    return item.frames if isinstance(item, ClipPlan) and item.form == "frames" else 1


class Question(NamedTuple):
    """What to ask a server's /tokenize of a prompt that has so many media."""

    number: int
    messages: Sequence[Any]
    fields: Mapping[str, Any]
    media: int


def questions(prompts: Sequence[Prompt], planned: Plan, rooms: Rooms, medium: Mapping[str, Any]) -> Sequence[Question]:
    """Of the prompts in which the bound of their text leaves open whether the pictures fit as they are planned. medium:
    what to put in the place of each."""
    found = []
    for number, prompt in enumerate(prompts):
        room = rooms.get(number, Room())
        tokens = sum(item.tokens for item in planned.items if item.prompt in (number, None))
        is_open = not room.exact and prompt.shows_pictures_alone and tokens > room.for_pictures(tokens, surely=True)
        if is_open and prompt.exact and room.text_at_most <= _most_bytes(room.max_model_len):
            found.append(Question(number, *question(prompt, dict(medium)), prompt.media))
    return found


def _most_bytes(max_model_len: int | None) -> int:
    """Of a text that is worth counting."""
    return min(MAX_COUNTED_BYTES, BYTES_A_TOKEN * max_model_len) if max_model_len else MAX_COUNTED_BYTES


def _room(
    prompt: Prompt, media: int, served: Served, budget: BudgetSettings, exact: int | None, hidden_bytes: int
) -> Room:
    length = served.model.max_model_len
    reserved = budget.reserved(prompt.output_tokens, length) if prompt.generates and length else 0
    if exact is not None:
        return Room(length, exact, exact, reserved)
    around = media * served.model.rule.template_tokens
    return Room(length, around, bound(prompt.messages, prompt.extra) + around + hidden_bytes, reserved)


def _counted(prompt: Prompt, media: int, served: Served) -> int | None:
    """None for what cannot be: of a prompt that we cannot make, that holds other media as well, or is too long."""
    if served.tokenizer is None or not prompt.exact or prompt.media != media:
        return None
    if bound(prompt.messages, prompt.extra) > _most_bytes(served.model.max_model_len):
        return None
    return served.tokenizer.count(prompt.messages, prompt.extra, media)
