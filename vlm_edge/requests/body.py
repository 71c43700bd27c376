"""
Body: the raw bytes of a request, its skeleton, and the places of its strings.

A request is a small JSON skeleton around megabytes of base64. Each payload (the run from behind `;base64,`, or behind
the first characters of base64 alone, to the closing quote) is cut out before parsing, and new media are spliced into
the raw bytes, so every other byte stays as it was.

A cut is safe wherever it lands. It begins inside a string: `;base64,` can stand nowhere else, and between the strings
of a JSON text no letter or digit follows a quote. It ends before the next quote, which no backslash precedes and which
so ends that string. It takes away characters of one string and nothing else. What cannot be cut is parsed whole and
found all the same.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from mmap import mmap
from typing import Any, NamedTuple

import msgspec
import orjson

from vlm_edge.errors import InvalidJson, TextTooLarge, TooManyValues

Text = bytes | bytearray
Raw = Text | mmap
Path = tuple[str | int, ...]

MARKER = b";base64,"
BACKSLASH = ord("\\")
# A smaller body is parsed whole: that costs less than looking for what to cut.
MIN_BODY_BYTES = 16 * 1024
# A shorter run without quotes may be left in.
MIN_RUN_BYTES = 4 * 1024
_STEP_BYTES = MIN_RUN_BYTES // 2
# What a payload without a marker begins with: base64 of either alphabet, its signs escaped or not, in one run or in the
# lines of e-mail. So much of it is left in, that a string is not taken for an empty one.
LEFT_IN = 256
_CHARACTER = rb"(?:[A-Za-z0-9+/_-]|\\(?:/|u002[BbFf]))"
_LINE = rb"%s{64,76}(?:\\r)?\\n" % _CHARACTER
_BASE64 = re.compile(rb"%s{%d}|(?:%s){%d}" % (_CHARACTER, LEFT_IN, _LINE, -(-LEFT_IN // 65)))
# More objects, lists and keys than any request has: parsing them would hold up the event loop, in a thread or not.
MAX_VALUES = 400_000
_SIGNS = (b"{", b"[", b'":')
# More text than any prompt has: parsing it would hold up the event loop.
MAX_TEXT_BYTES = 8 * 1024 * 1024


class Cut(NamedTuple):
    """A payload taken out of the skeleton: raw[start:stop]."""

    start: int
    stop: int


class Place(NamedTuple):
    """Where a JSON string stands: raw[start:stop], quotes included, and the payload that was cut out of it."""

    start: int
    stop: int
    cut: Cut | None


class Body(msgspec.Struct, frozen=True):
    raw: Raw
    skeleton: Text
    value: Any  # the parsed skeleton
    cuts: Sequence[Cut]

    @classmethod
    def read(cls, raw: Raw, max_text_bytes: int = MAX_TEXT_BYTES) -> "Body":
        """Cut and parse. Raises InvalidJson, TextTooLarge for more than that beside the payloads, TooManyValues."""
        cuts = find_cuts(raw) if len(raw) >= MIN_BODY_BYTES else ()
        skeleton = _without(raw, cuts) if cuts or isinstance(raw, mmap) else raw
        if len(skeleton) > max_text_bytes:
            raise TextTooLarge(len(skeleton), max_text_bytes)
        values = sum(map(skeleton.count, _SIGNS)) if len(skeleton) > MAX_VALUES else 0
        if values > MAX_VALUES:
            raise TooManyValues(values, MAX_VALUES)
        return cls(raw, skeleton, parse(skeleton), cuts)

    def payload(self, cut: Cut) -> memoryview:
        """The base64 text of a cut as it stands in the JSON, which may have escaped some of it."""
        return memoryview(self.raw)[cut.start : cut.stop]

    def places(self, paths: Iterable[Path]) -> dict[Path, Place]:
        """Where in the raw bytes the strings at these paths of `value` stand."""
        lengths = [cut.stop - cut.start for cut in self.cuts]
        removed = [0, *accumulate(lengths)]  # bytes missing in the skeleton after so many cuts
        seams = [cut.start - gone for cut, gone in zip(self.cuts, removed, strict=False)]

        def place(start: int, stop: int) -> Place:
            first, last = bisect_left(seams, start), bisect_right(seams, stop - 1)
            cut = self.cuts[first] if last > first else None
            return Place(start + removed[first], stop + removed[last], cut)

        return {path: place(*span) for path, span in locate(self.skeleton, paths).items()}

    def splice(self, strings: Mapping[Place, bytes]) -> bytes:
        """The raw bytes with new JSON strings (quotes included) in these places."""
        view, done = memoryview(self.raw), 0
        pieces: list[bytes | memoryview] = []
        for place in sorted(strings):
            pieces += [view[done : place.start], strings[place]]
            done = place.stop
        pieces.append(view[done:])
        return b"".join(pieces)


def find_cuts(raw: Raw) -> Sequence[Cut]:
    """The payloads, found by leaps from quote to quote: every run of MIN_RUN_BYTES without one covers a whole step."""
    cuts: list[Cut] = []
    at = behind = 0
    while at < len(raw):
        if raw.find(b'"', at, at + _STEP_BYTES) >= 0:
            at += _STEP_BYTES
            continue
        start, stop = max(behind, raw.rfind(b'"', behind, at) + 1), raw.find(b'"', at + _STEP_BYTES)
        if stop < 0:
            break
        payload = _payload_start(raw, start, stop)
        if payload and raw[stop - 1] != BACKSLASH:
            cuts.append(Cut(payload, stop))
        at = behind = stop + 1
    return cuts


def _payload_start(raw: Raw, start: int, stop: int) -> int:
    """Where in a run without quotes its payload begins; 0 if it has none."""
    base64 = _BASE64.match(raw, start)
    if base64 and start:
        return base64.end()
    marker = raw.find(MARKER, start, stop)
    return marker + len(MARKER) if marker >= 0 else 0


def _without(raw: Raw, cuts: Sequence[Cut]) -> bytes:
    edges = [0, *(edge for cut in cuts for edge in (cut.start, cut.stop)), len(raw)]
    view = memoryview(raw)
    return b"".join(view[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))


def parse(skeleton: Text) -> Any:
    """The value of a JSON text, as vLLM's own parser (Python's `json`) reads it.

    orjson is tried first; it refuses lone surrogates, NaN, a byte order mark and deep nesting, which `json` takes.
    """
    try:
        return orjson.loads(skeleton)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(skeleton.decode("utf-8-sig", "surrogatepass"))
    except json.JSONDecodeError as error:
        raise InvalidJson(f"the body is not JSON: at line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError:
        raise InvalidJson("the body is not UTF-8; send JSON in UTF-8") from None
    except (RecursionError, ValueError):
        raise InvalidJson("the body is nested too deeply or holds a number that is too long") from None


# A scanner that follows a few paths through valid JSON text and skips all else.

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb"[^\s,\]}]++")
_STEP = re.compile(rb'[\[{]|([\]}])|"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

_Tree = dict[str | int, Any]


def locate(text: Text, paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """The spans (start, stop) of the values at these paths; without any, of the whole.

    Of equal keys the last counts, as for JSON parsers.
    """
    wanted: _Tree = {}
    found: dict[Path, tuple[int, int]] = {}
    for path in paths:
        node = wanted
        for step in path:
            node = node.setdefault(step, {})
    begin = 3 if text.startswith(b"\xef\xbb\xbf") else 0
    _visit(text, _skip_space(text, begin), wanted, (), found)
    return found


def _visit(text: Text, at: int, wanted: _Tree, path: Path, found: dict[Path, tuple[int, int]]) -> int:
    """Record what is wanted of the value at `at`; the position behind the value."""
    opener = text[at : at + 1]
    if wanted and opener in (b"{", b"["):
        return _visit_members(text, at, wanted, path, found)
    end = _end(text, at)
    if not wanted:
        found[path] = (at, end)
    return end


def _visit_members(text: Text, at: int, wanted: _Tree, path: Path, found: dict[Path, tuple[int, int]]) -> int:
    keyed, closer = text[at] == ord("{"), b"}" if text[at] == ord("{") else b"]"
    at, index = _skip_space(text, at + 1), 0
    while text[at : at + 1] != closer:
        step: str | int = index
        if keyed:
            key_end = _end(text, at)
            step = json.loads(text[at:key_end].decode("utf-8", "surrogatepass"))
            at = _skip_space(text, _skip_space(text, key_end) + 1)
        if step in wanted:
            at = _visit(text, at, wanted[step], (*path, step), found)
        else:
            at = _end(text, at)
        at, index = _skip_space(text, at), index + 1
        if text[at : at + 1] == b",":
            at = _skip_space(text, at + 1)
    return at + 1


def _skip_space(text: Text, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _end(text: Text, at: int) -> int:
    """The position behind the value at `at`."""
    opener = text[at : at + 1]
    if opener in (b"{", b"["):
        return _end_of_members(text, at)
    match = (_STRING if opener == b'"' else _SCALAR).match(text, at)
    return match.end() if match else len(text)


def _end_of_members(text: Text, at: int) -> int:
    depth = 0
    for step in _STEP.finditer(text, at):
        if step.lastindex:
            depth -= 1
            if depth == 0:
                return step.end()
        elif text[step.start()] != ord('"'):
            depth += 1
    return len(text)
