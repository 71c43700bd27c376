"""JSON texts for the tests of this room: written by hand, so that spaces, escapes and duplicate keys are anywhere."""

import base64
import json
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from vlm_edge.requests.body import MIN_BODY_BYTES, MIN_RUN_BYTES, Path

# VLM_EDGE_EXAMPLES=20 makes every property try twenty times as many cases.
_TIMES = int(os.environ.get("VLM_EDGE_EXAMPLES", "1"))


def properties(examples: int) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(deadline=None, max_examples=examples * _TIMES, suppress_health_check=slow)


BASE64 = base64.b64encode(bytes(range(256)) * 36).decode()  # of no picture; holds slashes and pluses
PAYLOAD = BASE64[: 2 * MIN_RUN_BYTES]  # long enough to be cut for sure
DATA_URL = f"data:image/png;base64,{PAYLOAD}"

# How long a run is tells whether it is cut: never, perhaps, for sure.
lengths = st.integers(0, 200) | st.integers(MIN_RUN_BYTES // 2 - 2, MIN_RUN_BYTES + 2) | st.just(2 * MIN_RUN_BYTES)

HEAD = 300  # characters

letters = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(
    ["", ";base64,", '"', "\\", "\\\\", "/", "é", "\U0001f600", "\ud83d", "\udfff", "data:", "\x7f", "\u2028", "\n"]
)
payloads = lengths.map(lambda length: BASE64[:length])
data_urls = st.builds("{}data:image/png;base64,{}{}".format, letters, payloads, letters)
bare = st.builds("{}{}{}".format, letters | st.just(""), payloads, letters)
strings = letters | data_urls | bare | st.just(DATA_URL) | st.just(PAYLOAD)
numbers = st.integers() | st.just(16_559_892_803_651_312_311_122) | st.floats()
scalars = st.none() | st.booleans() | numbers | strings
keys = st.sampled_from(["messages", "url", "a", "0", "", "é", "\ud83d", 'q"', "b\\"]) | letters
marks = st.sampled_from([b"", b"", b"\xef\xbb\xbf"])


def escaped(text: str) -> str:
    """Each UTF-16 unit as `\\uXXXX`."""
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


STYLES = ["plain", "plain", "ascii", "slashes", "some", "first", "all"]
SPACE = ["", "", "", " ", "\r\n", "\t", "\n  "]
DECOYS: list[Any] = [None, "", "x", DATA_URL, "data:image/png;base64,AAAA", 7, [], {"url": "x"}, "\ud83d"]


class Writer:
    """Writes values as JSON in one of the many ways: any spaces, any escapes, and before some keys the same key with a
    decoy. Number 0 writes plainly, which is what failing cases are shrunk to.
    """

    def __init__(self, number: int, decoys: Sequence[Any] = DECOYS) -> None:
        self.plain = number == 0
        self.random = Random(number)
        self.decoys = decoys

    def value(self, value: Any) -> str:
        if self.plain:
            return json.dumps(value)
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, list):
            return f"[{self.space()}{','.join(self.value(one) for one in value)}{self.space()}]"
        if isinstance(value, dict):
            members = ",".join(self.member(key, inner) for key, inner in value.items())
            return f"{{{self.space()}{members}{self.space()}}}"
        return json.dumps(value)

    def member(self, key: str, value: Any) -> str:
        text = f"{self.string(key)}{self.space()}:{self.space()}{self.value(value)}"
        if self.random.random() < 0.05:
            return f"{self.string(key)}:{self.value(self.random.choice(self.decoys))},{text}"
        return text

    def space(self) -> str:
        return self.random.choice(SPACE)

    def string(self, text: str) -> str:
        style = self.random.choice(STYLES)
        if self.plain or style in ("plain", "ascii"):
            return json.dumps(text, ensure_ascii=self.plain or style == "ascii")
        if style == "slashes":
            return json.dumps(text).replace("/", "\\/")
        if style == "first":
            return f'"{escaped(text[:1])}{json.dumps(text[1:])[1:]}'
        every = self.random.randint(2, 300) if style == "some" else 1
        head = text[:HEAD]  # the rest of a payload is written plainly
        characters = [json.dumps(one)[1:-1] for one in head]
        characters[::every] = [escaped(one) for one in head[::every]]
        return f'"{"".join(characters)}{json.dumps(text[HEAD:])[1:]}'


numbers_of_writers = st.just(0) | st.integers(1, 2**32)


def written_value(value: Any, decoys: Sequence[Any] = DECOYS) -> st.SearchStrategy[str]:
    """JSON texts of this value."""
    return numbers_of_writers.map(lambda number: Writer(number, decoys).value(value))


def written_string(text: str) -> st.SearchStrategy[str]:
    return numbers_of_writers.map(lambda number: Writer(number).string(text))


@st.composite
def written(draw: st.DrawFn, depth: int = 3) -> str:
    """A JSON text of any kind, with equal keys in it."""
    writer = Writer(draw(numbers_of_writers))
    text = draw(_nested(depth).map(lambda nested: _joined(writer, nested)))
    return f"{writer.space()}{text}{writer.space()}"


def _nested(depth: int) -> st.SearchStrategy[Any]:
    if not depth:
        return scalars
    inner = st.deferred(lambda: _nested(depth - 1))
    return scalars | st.lists(inner, max_size=4) | st.lists(st.tuples(keys, inner), max_size=4).map(tuple)


def _joined(writer: Writer, nested: Any) -> str:
    """A tuple is an object with these members."""
    if isinstance(nested, list):
        return f"[{','.join(_joined(writer, one) for one in nested)}{writer.space()}]"
    if not isinstance(nested, tuple):
        return writer.value(nested)
    members = [f"{writer.string(key)}{writer.space()}:{_joined(writer, inner)}" for key, inner in nested]
    return f"{{{','.join(members)}{writer.space()}}}"


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def meant(raw: bytes | bytearray) -> Any:
    """What Python's own parser, which vLLM uses, reads."""
    return json.loads(raw.decode("utf-8-sig", "surrogatepass"))


def long(raw: bytes) -> bytes:
    """The same JSON text, long enough for its payloads to be cut."""
    return raw + b" " * MIN_BODY_BYTES


def mapped(raw: bytes) -> mmap.mmap:
    view = mmap.mmap(-1, len(raw))
    view[:] = raw
    return view


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything in a value, with the path to it."""
    yield path, value
    pairs = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for step, inner in pairs:
        yield from walk(inner, (*path, step))


def string_paths(value: Any) -> list[Path]:
    return [path for path, inner in walk(value) if isinstance(inner, str)]


def replaced(value: Any, new: Mapping[Path, Any], path: Path = ()) -> Any:
    """The value with others at these paths."""
    if path in new:
        return new[path]
    if isinstance(value, dict):
        return {key: replaced(inner, new, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, new, (*path, index)) for index, inner in enumerate(value)]
    return value
