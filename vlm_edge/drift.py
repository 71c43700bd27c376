"""
Drift: what an answer's usage says of its prompt, beside what was expected. So a server that is configured otherwise
than the settings say is noticed by its own answers.

A reader is fed with an answer as it passes and keeps a bounded piece of it, never the whole. Usage that lies beyond
that piece, or that a client did not ask for, is not read: then nothing is compared.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Literal, NamedTuple, Protocol

import msgspec

from vlm_edge.errors import EdgeError
from vlm_edge.geometry import Size
from vlm_edge.tokens.rule import Rule

# The usage of a JSON answer stands near its end. Of an answer that is longer, this much of the end is kept.
TAIL_BYTES = 16 * 1024

# An event that is longer is not read. The last one of a stream of responses repeats the whole answer.
LINE_BYTES = 1024 * 1024

# After so many answers in a row that cost what was expected, the next drift of a model is news again.
AGREED_AGAIN = 100

# Models tallied by name; the rest are one.
NAMED_MODELS = 256
OTHER_MODELS = "other"

_MARK = b'"usage"'
# In JSON a quote inside a string follows a backslash, so this is a key, never a piece of text.
_USAGE_KEY = re.compile(rb'(?<!\\)"usage"\s*:\s*\{')
_TRIES = 8

# The most pixels that any processor is set to, when one is sought that explains a drift.
_PIXELS = range(1, 1 << 28)


class Usage(msgspec.Struct, frozen=True):
    """multimodal_tokens: by modality, where the server tells them (`--enable-prompt-tokens-details`)."""

    prompt_tokens: int
    multimodal_tokens: dict[str, int] | None = None

    @property
    def vision_tokens(self) -> int | None:
        """Tokens of pictures and videos, under whatever names."""
        if self.multimodal_tokens is None:
            return None
        return sum(tokens for modality, tokens in self.multimodal_tokens.items() if modality != "audio")

    def after(self, earlier: "Usage | None") -> "Usage":
        """The later of two in one stream, with what only the earlier one told."""
        if earlier is None or self.multimodal_tokens is not None:
            return self
        return Usage(self.prompt_tokens, earlier.multimodal_tokens)


# How the dialects write it. Fields that are not named are skipped without being made.


class _Details(msgspec.Struct, frozen=True):
    multimodal_tokens: dict[str, int] | None = None
    input_tokens_per_turn: tuple[int, ...] | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: int | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    @property
    def prompt(self) -> int:
        if self.prompt_tokens is not None:
            return self.prompt_tokens
        if self.input_tokens_details and self.input_tokens_details.input_tokens_per_turn:
            return self.input_tokens_details.input_tokens_per_turn[0]  # the server itself wrote the later prompts
        cached = (self.cache_read_input_tokens or 0) + (self.cache_creation_input_tokens or 0)
        return (self.input_tokens or 0) + cached

    def read(self) -> Usage | None:
        details = self.prompt_tokens_details
        return Usage(self.prompt, details.multimodal_tokens if details else None) if self.prompt > 0 else None


class _Holder(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


class _Answer(msgspec.Struct, frozen=True):
    """usage: of chat, embeddings, messages; response, message: of the streams of responses and messages; input_tokens:
    of count_tokens."""

    usage: _Usage | None = None
    response: _Holder | None = None
    message: _Holder | None = None
    input_tokens: int | None = None


_decoder = msgspec.json.Decoder(_Answer)


def _read(text: bytes | bytearray | memoryview) -> Usage | None:
    """The usage of an answer or event; none of what is not JSON, or has other things in these places."""
    try:
        answer = _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    held = [holder.usage for holder in (answer.response, answer.message) if holder]
    found = [answer.usage, *held, _Usage(input_tokens=answer.input_tokens)]
    return next((usage.read() for usage in found if usage), None)


class UsageReader(Protocol):
    def feed(self, piece: bytes) -> None:
        """The next bytes of the answer, in pieces of any size."""

    def usage(self) -> Usage | None:
        """What has been read so far."""


class JsonReader:
    """Keeps the end of an answer."""

    def __init__(self) -> None:
        self._seen_bytes = 0
        self._tail = bytearray()

    def feed(self, piece: bytes) -> None:
        self._seen_bytes += len(piece)
        self._tail += piece[-TAIL_BYTES:]
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def usage(self) -> Usage | None:
        tail = bytes(self._tail[-TAIL_BYTES:])
        if self._seen_bytes <= TAIL_BYTES:
            return _read(tail)
        return next(filter(None, islice(map(_read, _objects(tail)), _TRIES)), None)


def _objects(tail: bytes) -> Iterator[bytes]:
    """The end of an object from each of its usages, the last first, as objects of their own.

    Only of a usage on the outermost level does that make one: below it, more is closed at the end than was opened.
    """
    for key in reversed(list(_USAGE_KEY.finditer(tail, 1))):
        yield b"{" + tail[key.start() :]


class EventReader:
    """Reads the events that have a usage, and keeps no more than the line that has not ended yet."""

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._line = bytearray()
        self._too_long = False

    def feed(self, piece: bytes) -> None:
        start = self._finish_line(piece) if self._line or self._too_long else 0
        stop = piece.rfind(b"\n", start) + 1 or start
        at = piece.find(_MARK, start, stop)
        while at >= 0:
            begin, end = piece.rfind(b"\n", start, at) + 1 or start, piece.find(b"\n", at)
            self._usage = self._with(piece[begin:end])
            at = piece.find(_MARK, end, stop)
        if stop < len(piece):
            self._keep(piece[stop:])

    def usage(self) -> Usage | None:
        return self._usage if self._too_long else self._with(self._line)

    def _finish_line(self, piece: bytes) -> int:
        """Where the next line begins."""
        end = piece.find(b"\n")
        if end < 0:
            return 0
        self._keep(piece[:end])
        self._usage = self.usage()
        self._line.clear()
        self._too_long = False
        return end + 1

    def _keep(self, piece: bytes) -> None:
        self._too_long = self._too_long or len(self._line) + len(piece) > LINE_BYTES
        if self._too_long:
            self._line.clear()
        else:
            self._line += piece

    def _with(self, line: bytes | bytearray) -> Usage | None:
        if len(line) > LINE_BYTES or _MARK not in line or not line.startswith(b"data:"):
            return self._usage
        usage = _read(memoryview(line)[5:])
        return usage.after(self._usage) if usage else self._usage


READERS: dict[str, Callable[[], UsageReader]] = {"application/json": JsonReader, "text/event-stream": EventReader}


def reader_of(status: int, headers: Iterable[tuple[bytes, bytes]]) -> UsageReader | None:
    """For an answer that may have a usage; none for an error, what is compressed, and other types."""
    named = {name.lower(): value.decode("latin-1").strip().lower() for name, value in headers}
    if status != 200 or named.get(b"content-encoding", "identity") != "identity":
        return None
    make = READERS.get(named.get(b"content-type", "").partition(";")[0].rstrip())
    return make() if make else None


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt should cost: its vision tokens, which are exact; and all the rest, chat template included.

    text_tokens: of the rest, what is sure; text_at_most: its upper bound, none where nothing is known of it.
    """

    vision_tokens: int
    text_tokens: int = 0
    text_at_most: int | None = None

    @property
    def exact(self) -> bool:
        return self.text_tokens == self.text_at_most

    @property
    def bounds(self) -> tuple[int, int | None]:
        at_most = None if self.text_at_most is None else self.vision_tokens + self.text_at_most
        return self.vision_tokens + self.text_tokens, at_most


Where = Literal["vision", "text", "prompt"]


class Drift(NamedTuple):
    """where: in the vision tokens; in the text, when those are right or there are none; or in either, which the usage
    does not tell apart. expected: the bound that was passed, where not `exact`."""

    where: Where
    found: int
    expected: int
    exact: bool = True

    @property
    def tokens(self) -> int:
        """More than expected, or fewer: below 0."""
        return self.found - self.expected

    @property
    def direction(self) -> str:
        return "more" if self.tokens > 0 else "fewer"


def drift(expected: Expected, usage: Usage) -> Drift | None:
    """How the usage differs for certain from what was expected."""
    vision = usage.vision_tokens
    if vision is not None and vision != expected.vision_tokens:
        return Drift("vision", vision, expected.vision_tokens)
    where: Where = "prompt" if vision is None and expected.vision_tokens else "text"
    at_least, at_most = expected.bounds
    if usage.prompt_tokens < at_least:
        return Drift(where, usage.prompt_tokens, at_least, expected.exact)
    if at_most is not None and usage.prompt_tokens > at_most:
        return Drift(where, usage.prompt_tokens, at_most, expected.exact)
    return None


# Words

_COUNTED = {"vision": "vision tokens", "text": "prompt tokens", "prompt": "prompt tokens"}
_CAUSE = {
    "vision": "the server's processor is",
    "text": "the server's tokenizer or chat template is",
    "prompt": "the server's processor, tokenizer or chat template is",
}


def warning(model: str, drift: Drift, reason: str = "") -> str:
    """For a log: what differs, and what to look at. reason: as `explained` gives it."""
    name = repr(model[:100])
    bound = "" if drift.exact else "at most " if drift.tokens > 0 else "at least "
    return (
        f"model {name} counts {drift.found} {_COUNTED[drift.where]} where {bound}{drift.expected} were expected: "
        f"{_CAUSE[drift.where]} configured otherwise than [models.{name}] says{reason and f'; {reason}'}"
    )


def explained(rule: Rule, sizes: Sequence[Size], vision_tokens: int) -> str:
    """Which other bound on a picture's pixels makes these pictures cost so much; nothing where none does."""
    for name in ("max_pixels", "min_pixels"):
        if hasattr(rule, name):
            first, last = _explaining(rule, name, sizes, vision_tokens)
            if first <= last:
                return f"{name} between {first} and {last} would explain it"
    return ""


def _explaining(rule: Rule, name: str, sizes: Sequence[Size], tokens: int) -> tuple[int, int]:
    """The first and the last such bound, for counts only grow with it; where there is none, the last comes first."""

    def count(pixels: int) -> int:
        return sum(_bounded(rule, name, pixels).images(sizes))

    try:
        fewer = bisect_left(_PIXELS, tokens, key=count)
        return _PIXELS.start + fewer, _PIXELS.start + bisect_right(_PIXELS, tokens, key=count) - 1
    except (EdgeError, ValueError):
        return 1, 0


def _bounded(rule: Rule, name: str, pixels: int) -> Rule:
    """The rule with one bound, and the other out of its way."""
    other, nearer = ("min_pixels", min) if name == "max_pixels" else ("max_pixels", max)
    beside = {other: nearer(getattr(rule, other), pixels)} if hasattr(rule, other) else {}
    return msgspec.structs.replace(rule, **{name: pixels, **beside})


# The tally


class DriftTotal(NamedTuple):
    """Of one model: answers that drifted there in that direction, and by how many tokens together."""

    model: str
    where: str
    direction: str
    answers: int
    tokens: int


_Kind = tuple[str, str, str]


class Drifts:
    """What has been seen of all models. For several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._compared: dict[str, int] = {}
        self._agreed: dict[str, int] = {}
        self._totals: dict[_Kind, tuple[int, int]] = {}
        self._told: set[_Kind] = set()

    def saw(self, model: str, drift: Drift | None) -> bool:
        """Tally an answer that was compared. Whether its drift is news: warned of once, until it changes or ends."""
        with self._lock:
            model = model if model in self._compared or len(self._compared) < NAMED_MODELS else OTHER_MODELS
            self._compared[model] = self._compared.get(model, 0) + 1
            return self._differs(model, drift) if drift else self._agrees(model)

    def compared(self) -> dict[str, int]:
        """Answers that were compared, by model."""
        with self._lock:
            return dict(self._compared)

    def totals(self) -> list[DriftTotal]:
        with self._lock:
            return [DriftTotal(*kind, *total) for kind, total in self._totals.items()]

    def _differs(self, model: str, drift: Drift) -> bool:
        kind = (model, drift.where, drift.direction)
        answers, tokens = self._totals.get(kind, (0, 0))
        self._totals[kind] = (answers + 1, tokens + abs(drift.tokens))
        self._agreed[model] = 0
        news = kind not in self._told
        self._told.add(kind)
        return news

    def _agrees(self, model: str) -> bool:
        self._agreed[model] = self._agreed.get(model, 0) + 1
        if self._agreed[model] == AGREED_AGAIN:
            self._told = {kind for kind in self._told if kind[0] != model}
        return False
