"""Bodies: the json module says what a text means; every other byte must stay as it was."""

import base64
import json
import mmap
from collections.abc import Iterator, Mapping
from typing import Any, SupportsIndex

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from vlm_edge.errors import InvalidJson
from vlm_edge.requests.body import MIN_BODY_BYTES, MIN_CUT_BYTES, Body, Path, Raw, find_cuts, locate, parse

PAYLOAD = base64.b64encode(bytes(range(256)) * 2).decode()  # long enough to be cut; holds slashes
DATA_URL = f"data:image/png;base64,{PAYLOAD}"

properties = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])


# Random JSON texts, written by hand so that spaces, escapes and duplicate keys are anywhere.

letters = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(
    ["", ";base64,", '"', "\\", "\\\\", "/", "é", "\U0001f600", "\ud83d", "\udfff", "data:", "\x7f", "\u2028", "\n"]
)
payloads = st.integers(0, 500).map(lambda length: base64.b64encode(bytes(range(256)) * 2)[:length].decode())
data_urls = st.builds("{}data:image/png;base64,{}{}".format, letters, payloads, letters)
strings = letters | data_urls | st.just(DATA_URL)
numbers = st.integers() | st.just(16_559_892_803_651_312_311_122) | st.floats()
scalars = st.none() | st.booleans() | numbers | strings
keys = st.sampled_from(["messages", "url", "a", "0", "", "é", "\ud83d", 'q"', "b\\"]) | letters
space = st.sampled_from(["", "", "", " ", "\r\n", "\t", "\n  "])


def escaped(text: str) -> str:
    """Each UTF-16 unit as `\\uXXXX`."""
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


@st.composite
def written_string(draw: st.DrawFn, text: str) -> str:
    """A JSON string of this text, in one of the many ways to write it."""
    style = draw(st.sampled_from(["plain", "ascii", "slashes", "some", "all"]))
    if style in ("plain", "ascii"):
        return json.dumps(text, ensure_ascii=style == "ascii")
    if style == "slashes":
        return json.dumps(text).replace("/", "\\/")
    every = draw(st.integers(2, 300)) if style == "some" else 1
    characters = [json.dumps(one)[1:-1] for one in text]
    characters[::every] = [escaped(one) for one in text[::every]]
    return f'"{"".join(characters)}"'


@st.composite
def written(draw: st.DrawFn, depth: int = 3) -> str:
    """A JSON text."""
    kind = draw(st.sampled_from(["scalar", "object", "array"] if depth else ["scalar"]))
    if kind == "scalar":
        value = draw(scalars)
        text = draw(written_string(value)) if isinstance(value, str) else json.dumps(value)
    elif kind == "array":
        text = f"[{','.join(draw(st.lists(written(depth - 1), max_size=4)))}{draw(space)}]"
    else:
        pairs = draw(st.lists(st.tuples(keys.flatmap(written_string), space, written(depth - 1)), max_size=4))
        text = f"{{{','.join(f'{key}{gap}:{value}' for key, gap, value in pairs)}{draw(space)}}}"
    return f"{draw(space)}{text}{draw(space)}"


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def meant(raw: bytes | bytearray) -> Any:
    return json.loads(raw.decode("utf-8", "surrogatepass"))


def mapped(raw: bytes) -> mmap.mmap:
    view = mmap.mmap(-1, len(raw))
    view[:] = raw
    return view


def long(raw: bytes) -> bytes:
    """The same JSON text, long enough for its payloads to be cut."""
    return raw + b" " * MIN_BODY_BYTES


kinds = st.sampled_from([lambda raw: raw, long, lambda raw: bytearray(long(raw)), lambda raw: mapped(long(raw))])
bodies = st.builds(lambda text, kind: kind(to_bytes(text)), written(), kinds)
marks = st.sampled_from([b"", b"\xef\xbb\xbf"])


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything in a value, with the path to it."""
    yield path, value
    pairs = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for step, inner in pairs:
        yield from walk(inner, (*path, step))


def string_paths(value: Any) -> list[Path]:
    return [path for path, inner in walk(value) if isinstance(inner, str)]


def replaced(value: Any, new: Mapping[Path, str], path: Path = ()) -> Any:
    if path in new:
        return new[path]
    if isinstance(value, dict):
        return {key: replaced(inner, new, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, new, (*path, index)) for index, inner in enumerate(value)]
    return value


@properties
@given(bodies)
def test_every_string_is_found_where_the_json_module_sees_it(raw: Raw) -> None:
    body = Body.read(raw)
    expected = {path: inner for path, inner in walk(meant(raw[:])) if isinstance(inner, str)}
    assume(expected)
    paths = string_paths(body.value)
    places = body.places(paths)
    found = [meant(raw[places[path].start : places[path].stop]) for path in paths]
    assert found == list(expected.values())


@properties
@given(bodies)
def test_a_splice_of_what_is_there_changes_no_byte(raw: Raw) -> None:
    body = Body.read(raw)
    places = body.places(string_paths(body.value)).values()
    assert body.splice({place: bytes(raw[place.start : place.stop]) for place in places}) == raw[:]
    assert body.splice({}) == raw[:]


@properties
@given(bodies, st.randoms(use_true_random=False))
def test_new_strings_change_their_places_and_nothing_else(raw: Raw, random: Any) -> None:
    body = Body.read(raw)
    chosen = [path for path in string_paths(body.value) if random.random() < 0.5]
    places = body.places(chosen)
    new = {path: f"new {number}" for number, path in enumerate(chosen)}
    spliced = body.splice({places[path]: json.dumps(text).encode() for path, text in new.items()})
    # Keys that hold a payload are cut as well; positions stay equal, so paths are matched by order.
    real = [path for path, inner in walk(meant(raw[:])) if isinstance(inner, str)]
    ours = dict(zip(string_paths(body.value), real, strict=True))
    expected = replaced(meant(raw[:]), {ours[path]: text for path, text in new.items()})
    assert repr(meant(spliced)) == repr(expected)


@properties
@given(bodies)
def test_a_skeleton_and_its_payloads_make_the_whole(raw: Raw) -> None:
    body = Body.read(raw)
    paths = string_paths(body.value)
    real = [inner for _, inner in walk(meant(raw[:])) if isinstance(inner, str)]
    values = [inner for _, inner in walk(body.value) if isinstance(inner, str)]
    for path, short, long in zip(paths, values, real, strict=True):
        cut = body.places([path])[path].cut
        if cut is None:
            assert short == long
        else:
            text = raw[cut.start : cut.stop]
            assert short + meant(b'"%s"' % text) == long
            assert b"\\" in text or not text.isascii() or bytes(body.payload(cut)) == text


@properties
@given(bodies, marks)
def test_locate_agrees_with_the_json_module_for_every_path(raw: Raw, mark: bytes) -> None:
    text = mark + raw[:]
    for path, inner in walk(meant(raw[:])):
        start, stop = locate(text, [path])[path]
        assert repr(meant(text[start:stop])) == repr(inner)


@properties
@given(bodies)
def test_locate_finds_all_leaves_in_one_pass(raw: Raw) -> None:
    leaves = {path: inner for path, inner in walk(meant(raw[:])) if not isinstance(inner, dict | list)}
    assume(leaves)
    found = locate(raw[:], leaves)
    assert {path: repr(meant(raw[start:stop])) for path, (start, stop) in found.items()} == {
        path: repr(inner) for path, inner in leaves.items()
    }


@properties
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_what_the_json_module_refuses_is_refused(raw: bytes) -> None:
    try:
        expected = json.loads(raw.decode("utf-8-sig", "surrogatepass"))
    except ValueError:
        with pytest.raises(InvalidJson):
            Body.read(raw)
    else:
        assert string_paths(Body.read(raw).value) == string_paths(expected)


# What a body may hold that a strict parser would not take, or would change.


@pytest.mark.parametrize(
    "text",
    [
        '{"text": "\\ud83d", "url": "%s"}',  # B131, B132: a lone surrogate
        '{"temperature": NaN, "url": "%s"}',
        '{"top_p": 1e400, "min_p": -Infinity, "url": "%s"}',
        '{"seed": 16559892803651312311122, "x": 0.12345678901234567890, "y": -0.0, "z": 1.0, "url": "%s"}',  # B134
        '{"url": "first", "url": "%s", "a": 1, "a": 2}',
        '\ufeff{"url": "%s"}',
        '{\r\n\t"url"\r\n:\r\n"%s"\r\n}\r\n',  # B129
        '{"text": "h\u00e9llo \U0001f600 \\ud83d\\ude00 \\/ \\"", "url": "%s"}',
        '{"text": "see ;base64, and \\";base64,\\" ;base64,", "url": "%s"}',
        '{";base64,": ";base64,", "url": "%s"}',
        '{"deep": ' + "[" * 900 + "]" * 900 + ', "url": "%s"}',
    ],
)
@pytest.mark.parametrize("length", [0, MIN_BODY_BYTES])
def test_a_string_is_replaced_and_all_other_bytes_stay(text: str, length: int) -> None:
    text = text.ljust(length)
    raw = text.replace("%s", DATA_URL).encode()
    body = Body.read(raw)
    place = body.places([("url",)])[("url",)]
    assert (place.cut is not None) == bool(length)
    assert body.splice({place: b'"NEW"'}) == text.replace("%s", "NEW").encode()


def test_the_last_of_equal_keys_counts() -> None:
    raw = b'{"m": [{"url": "one"}], "m": [{"url": "two"}, {"url": "three", "url": "four"}]}'
    body = Body.read(raw)
    paths: list[Path] = [("m", 0, "url"), ("m", 1, "url")]
    places = body.places(paths)
    assert [raw[places[path].start : places[path].stop] for path in paths] == [b'"two"', b'"four"']


def test_a_key_that_is_a_number_in_quotes_is_not_an_index() -> None:
    text = b'{"0": ["a", "b"], "1": {"0": "c"}}'
    found = locate(text, [("0", 1), ("1", "0")])
    assert {path: text[slice(*span)] for path, span in found.items()} == {("0", 1): b'"b"', ("1", "0"): b'"c"'}


def test_escaped_keys_are_the_keys_they_spell() -> None:
    raw = long(b'{"\\u0075rl": "%s"}' % DATA_URL.encode())
    body = Body.read(raw)
    assert body.splice({body.places([("url",)])[("url",)]: b'"NEW"'}) == long(b'{"\\u0075rl": "NEW"}')


def test_two_keys_that_differ_only_in_a_payload_do_not_move_a_place() -> None:
    raw = long(b'{"k;base64,%s": "x", "k;base64,%s": "y", "url": "z"}' % (b"A" * 300, b"B" * 300))
    place = Body.read(raw).places([("url",)])[("url",)]
    assert raw[place.start : place.stop] == b'"z"'


@pytest.mark.parametrize("end", ['\\"', "\\\\"], ids=["quote", "backslash"])
def test_a_payload_that_ends_in_a_backslash_is_not_cut_but_parsed(end: str) -> None:
    raw = long(b'{"url": ";base64,%s%s", "more": ""}' % (PAYLOAD.encode(), end.encode()))
    body = Body.read(raw)
    assert len(body.cuts) == 0
    assert body.value == json.loads(raw)


@pytest.mark.parametrize(("length", "cuts"), [(MIN_BODY_BYTES - 1, 0), (MIN_BODY_BYTES, 1)])
def test_only_long_bodies_are_cut(length: int, cuts: int) -> None:
    raw = json.dumps({"url": DATA_URL}).encode().ljust(length)
    assert len(Body.read(raw).cuts) == cuts


@pytest.mark.parametrize(("length", "cuts"), [(MIN_CUT_BYTES - 1, 0), (MIN_CUT_BYTES, 1)])
def test_only_long_payloads_are_cut(length: int, cuts: int) -> None:
    raw = b'{"url": ";base64,%s"}' % (b"A" * length)
    assert len(find_cuts(raw)) == cuts


def test_a_payload_is_a_view_of_the_body_and_not_a_copy() -> None:
    raw = bytearray(long(json.dumps({"url": DATA_URL}).encode()))
    body = Body.read(raw)
    payload = body.payload(body.cuts[0])
    assert isinstance(payload, memoryview)
    assert payload.obj is raw


def test_a_cut_never_reaches_beyond_its_own_string() -> None:
    raw = long(b'["a;base64,%s", "b", "c;base64,%s"]' % (b"A" * 300, b"B" * 300))
    body = Body.read(raw)
    assert body.value == ["a;base64,", "b", "c;base64,"]
    assert [bytes(body.payload(cut)) for cut in body.cuts] == [b"A" * 300, b"B" * 300]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b'{"a": 1,}',
        b"nul",
        b'{"a": "\xff"}',
        b'{"a": "\n"}',
        long(b'{"url": ";base64,' + b"A" * 300),  # no closing quote
        long(b'{"url": ";base64,' + b"A" * 300 + b'"'),
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 100_000,
        b'{"seed": ' + b"9" * 5_000 + b"}",
        '{"a": 1}'.encode("utf-16"),
    ],
    ids=lambda raw: raw[:12],
)
def test_what_is_not_json_is_an_invalid_body(raw: bytes) -> None:
    with pytest.raises(InvalidJson) as caught:
        Body.read(raw)
    assert "AAA" not in caught.value.message


def test_an_invalid_body_is_told_where_it_breaks() -> None:
    with pytest.raises(InvalidJson, match="line 2, column 3"):
        parse(b'{\n  oops": 1}')


# The work is counted, for no client may choose how long a cut takes.


class Counted(bytes):
    """A body that counts the bytes that are searched."""

    searched = 0

    def find(self, sub: Any, start: SupportsIndex | None = None, end: SupportsIndex | None = None, /) -> int:
        begin = int(start or 0)
        found = super().find(sub, start, end)
        self.searched += (found if found >= 0 else int(end) if end is not None else len(self)) - begin
        return found


FLOODS = {
    "markers": b";base64,",
    "markers and slashes": b";base64,\\/",
    "markers and escapes": b";base64,\\n",
    "markers and half escapes": b";base64,\\\\",
    "strings": b';base64,","',
    "strings with escapes": b';base64,\\n","',
    "escaped quotes": b';base64,\\"',
    "half markers": b";base64;base64",
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_each_byte_is_searched_a_few_times_at_most(flood: bytes, *, closed: bool) -> None:
    raw = Counted(b'["' + flood * 5_000 + (b'"]' if closed else b""))
    find_cuts(raw)
    assert raw.searched < 5 * len(raw)


def test_places_sort_in_the_order_of_the_body() -> None:
    raw = long(json.dumps([DATA_URL, "text", DATA_URL, "text"]).encode())
    body = Body.read(raw)
    places = body.places([(3,), (2,), (0,)])
    spliced = body.splice({places[(3,)]: b'"c"', places[(0,)]: b'"a"', places[(2,)]: b'"b"'})
    assert spliced == long(b'["a", "text", "b", "c"]')
