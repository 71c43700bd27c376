"""Bodies: the json module says what a text means; every other byte must stay as it was."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from random import Random
from typing import Any, SupportsIndex

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.requests.texts import (
    BASE64,
    DATA_URL,
    PAYLOAD,
    keys,
    long,
    mapped,
    marks,
    meant,
    properties,
    replaced,
    string_paths,
    to_bytes,
    walk,
    written,
    written_value,
)
from vlm_edge.errors import InvalidJson, TextTooLarge
from vlm_edge.requests import body as module
from vlm_edge.requests.body import LEFT_IN, MIN_BODY_BYTES, MIN_RUN_BYTES, Body, Path, Raw, find_cuts, locate, parse

kinds = st.sampled_from([lambda raw: raw, long, lambda raw: bytearray(long(raw)), lambda raw: mapped(long(raw))])
bodies = st.builds(lambda text, kind: kind(to_bytes(text)), written(), kinds)


@properties(200)
@given(bodies)
def test_every_string_is_found_where_the_json_module_sees_it(raw: Raw) -> None:
    body = Body.read(raw)
    expected = {path: inner for path, inner in walk(meant(raw[:])) if isinstance(inner, str)}
    assume(expected)
    paths = string_paths(body.value)
    places = body.places(paths)
    found = [meant(raw[places[path].start : places[path].stop]) for path in paths]
    assert found == list(expected.values())


@properties(200)
@given(bodies)
def test_a_splice_of_what_is_there_changes_no_byte(raw: Raw) -> None:
    body = Body.read(raw)
    places = body.places(string_paths(body.value)).values()
    assert body.splice({place: bytes(raw[place.start : place.stop]) for place in places}) == raw[:]
    assert body.splice({}) == raw[:]


@properties(200)
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


@properties(200)
@given(bodies)
def test_a_skeleton_and_its_payloads_make_the_whole(raw: Raw) -> None:
    body = Body.read(raw)
    paths = string_paths(body.value)
    real = [inner for _, inner in walk(meant(raw[:])) if isinstance(inner, str)]
    values = [inner for _, inner in walk(body.value) if isinstance(inner, str)]
    for path, short, whole in zip(paths, values, real, strict=True):
        cut = body.places([path])[path].cut
        if cut is None:
            assert short == whole
        else:
            text = raw[cut.start : cut.stop]
            assert short + meant(b'"%s"' % text) == whole
            assert b"\\" in text or not text.isascii() or bytes(body.payload(cut)) == text


@properties(200)
@given(bodies, marks)
def test_locate_agrees_with_the_json_module_for_every_path(raw: Raw, mark: bytes) -> None:
    text = mark + raw[:]
    for path, inner in walk(meant(raw[:])):
        start, stop = locate(text, [path])[path]
        assert repr(meant(text[start:stop])) == repr(inner)


@properties(200)
@given(bodies)
def test_locate_finds_all_leaves_in_one_pass(raw: Raw) -> None:
    leaves = {path: inner for path, inner in walk(meant(raw[:])) if not isinstance(inner, dict | list)}
    assume(leaves)
    found = locate(raw[:], leaves)
    assert {path: repr(meant(raw[start:stop])) for path, (start, stop) in found.items()} == {
        path: repr(inner) for path, inner in leaves.items()
    }


@properties(200)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_what_the_json_module_refuses_is_refused(raw: bytes) -> None:
    try:
        expected = meant(raw)
    except ValueError:
        with pytest.raises(InvalidJson):
            Body.read(raw)
    else:
        assert string_paths(Body.read(raw).value) == string_paths(expected)


A, B = b"A" * MIN_RUN_BYTES, b"B" * MIN_RUN_BYTES

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
@pytest.mark.parametrize("url", [DATA_URL, PAYLOAD], ids=["data url", "bare"])
def test_a_string_is_replaced_and_all_other_bytes_stay(text: str, url: str, length: int) -> None:
    text = text.ljust(length)
    raw = text.replace("%s", url).encode()
    body = Body.read(raw)
    place = body.places([("url",)])[("url",)]
    assert (place.cut is not None) == (len(raw) >= MIN_BODY_BYTES)
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
    raw = long(b'{"k;base64,%s": "x", "k;base64,%s": "y", "url": "z"}' % (A, B))
    body = Body.read(raw)
    assert len(body.cuts) == 2
    place = body.places([("url",)])[("url",)]
    assert raw[place.start : place.stop] == b'"z"'


@pytest.mark.parametrize("end", ['\\"', "\\\\"], ids=["quote", "backslash"])
@pytest.mark.parametrize("begin", [";base64,", ""], ids=["marked", "bare"])
def test_a_payload_that_ends_in_a_backslash_is_not_cut_but_parsed(begin: str, end: str) -> None:
    raw = long(b'{"url": "%s%s%s", "more": ""}' % (begin.encode(), PAYLOAD.encode(), end.encode()))
    body = Body.read(raw)
    assert len(body.cuts) == 0
    assert body.value == json.loads(raw)


@pytest.mark.parametrize(("length", "cuts"), [(MIN_BODY_BYTES - 1, 0), (MIN_BODY_BYTES, 1)])
def test_only_long_bodies_are_cut(length: int, cuts: int) -> None:
    raw = json.dumps({"url": DATA_URL}).encode().ljust(length)
    assert len(Body.read(raw).cuts) == cuts


@pytest.mark.parametrize("begin", [b";base64,", b""], ids=["marked", "bare"])
@pytest.mark.parametrize("before", range(0, MIN_RUN_BYTES, 97))
def test_a_run_long_enough_is_cut_wherever_it_stands(begin: bytes, before: int) -> None:
    run = begin + b"A" * (MIN_RUN_BYTES - len(begin))
    raw = b'{%s"url": "%s"}' % (b" " * before, run)
    payload = run.removeprefix(begin) if begin else run[LEFT_IN:]
    assert [raw[start:stop] for start, stop in find_cuts(raw)] == [payload]


@pytest.mark.parametrize("begin", [b";base64,", b""], ids=["marked", "bare"])
@pytest.mark.parametrize("before", range(0, MIN_RUN_BYTES, 97))
def test_a_run_shorter_than_half_of_that_stays(begin: bytes, before: int) -> None:
    raw = b'{%s"url": "%s%s"}' % (b" " * before, begin, b"A" * (MIN_RUN_BYTES // 2 - len(begin) - 1))
    assert len(find_cuts(raw)) == 0


@pytest.mark.parametrize(
    "text",
    ["word " * 4_000, "=" * 20_000, "é" * 20_000, ("A" * 63 + ".") * 300, ("A" * 63 + "\\n") * 300],
    ids=["words", "padding", "letters", "short lines", "escapes"],
)
def test_a_long_text_that_is_no_base64_stays(text: str) -> None:
    raw = f'{{"content": "{text}"}}'.encode()
    assert len(Body.read(raw).cuts) == 0


def test_base64_alone_is_cut_with_either_alphabet_and_with_escaped_slashes() -> None:
    urlsafe = BASE64.replace("/", "_").replace("+", "-")
    raw = json.dumps([BASE64, urlsafe]).encode() + json.dumps([BASE64]).replace("/", "\\/").encode()
    written = [BASE64.encode(), urlsafe.encode(), BASE64.replace("/", "\\/").encode()]
    left = [re.match(rb"(?:[^\\]|\\/){%d}" % LEFT_IN, text) for text in written]
    assert [raw[start:stop] for start, stop in find_cuts(raw)] == [
        text[first.end() :] for text, first in zip(written, left, strict=True) if first
    ]


def lines(length: int, end: str) -> str:
    return end.join(BASE64[at : at + length] for at in range(0, len(BASE64), length))


@pytest.mark.parametrize("marker", ["", "data:application/pdf;base64,", "data:application/pdf;name=x.pdf;base64,"])
@pytest.mark.parametrize(
    "text",
    [BASE64, lines(76, "\r\n"), lines(76, "\n"), lines(64, "\n")],
    ids=["one run", "e-mail", "Python's encodebytes", "PEM"],
)
@pytest.mark.parametrize("plus", ["+", "\\u002b", "\\u002B"])
def test_a_file_is_cut_however_its_base64_is_written(text: str, marker: str, plus: str) -> None:
    raw = long(json.dumps(marker + text).replace("+", plus).encode())
    [cut] = Body.read(raw).cuts
    left = json.loads(raw[: cut.start] + b'"')
    assert cut.stop == raw.rindex(b'"')
    assert (marker + text).startswith(left)
    assert left == marker if marker else len(left) >= LEFT_IN


def test_a_payload_is_a_view_of_the_body_and_not_a_copy() -> None:
    raw = bytearray(long(json.dumps({"url": DATA_URL}).encode()))
    body = Body.read(raw)
    payload = body.payload(body.cuts[0])
    assert isinstance(payload, memoryview)
    assert payload.obj is raw


def test_a_cut_never_reaches_beyond_its_own_string() -> None:
    raw = long(b'["a;base64,%s", "b", "c;base64,%s", "d", "%s", "e"]' % (A, B, A))
    body = Body.read(raw)
    assert body.value == ["a;base64,", "b", "c;base64,", "d", A[:LEFT_IN].decode(), "e"]
    assert [bytes(body.payload(cut)) for cut in body.cuts] == [A, B, A[LEFT_IN:]]


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
        long(b'{"url": ";base64,' + A),  # no closing quote
        long(b'{"url": "' + A),
        long(b'{"url": ";base64,' + A + b'"'),
        long(b'{"url": "' + A + b'"'),
        long(b'{"url": "b"' + A + b'"c"}'),  # a run between strings
        long(b'{"url": "b" ;base64,' + A + b'"}'),
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


# Runs of a few bytes are cut here, and what looks like base64 for a few characters is taken for it: what is true of
# every cut is seen in small texts.


@contextmanager
def cutting(step_bytes: int, characters: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIN_BODY_BYTES", 0)
        patch.setattr(module, "_STEP_BYTES", step_bytes)
        patch.setattr(module, "_BASE64", re.compile(rb"(?:[A-Za-z0-9+/_-]|\\/){%d}" % characters))
        yield


class Pairs(list[tuple[Any, Any]]):
    """An object with all of its keys, equal ones too."""


def paired(raw: bytes | bytearray) -> Any:
    return json.loads(raw.decode("utf-8", "surrogatepass"), object_pairs_hook=Pairs)


def unfold(value: Any, texts: Sequence[str]) -> Any:
    """The value with the texts put back where their numbers stand."""
    if isinstance(value, str):
        return re.sub("\uf8ff(\\d+)\uf8ff", lambda match: texts[int(match[1])], value)
    if isinstance(value, Pairs):
        return Pairs((unfold(key, texts), unfold(inner, texts)) for key, inner in value)
    return [unfold(one, texts) for one in value] if isinstance(value, list) else value


def same(short: Any, whole: Any, here: Path = (), there: Path = ()) -> Iterator[tuple[Path, Path]]:
    """The paths of the strings of both, that keys cut alike do not hide."""
    if isinstance(short, str):
        yield here, there
    elif isinstance(short, Pairs):
        for (key, inner), (real, counterpart) in zip(short, whole, strict=True):
            if sum(key == other for other, _ in short) == 1 == sum(real == other for other, _ in whole):
                yield from same(inner, counterpart, (*here, key), (*there, real))
    elif isinstance(short, list):
        for index, (inner, counterpart) in enumerate(zip(short, whole, strict=True)):
            yield from same(inner, counterpart, (*here, index), (*there, index))


runs = st.text("ABab01+/_-", min_size=1, max_size=40)
tricky = st.lists(
    runs
    | st.sampled_from(['"', "\\", ";base64,", "\ud83d", "\ude00", "é", "\n", ".", ":", ",", "[", "}", " ", "u0041"]),
    max_size=5,
).map("".join)
small = st.recursive(
    tricky | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(tricky | keys, inner, max_size=4),
    max_leaves=12,
)
small_texts = small.flatmap(lambda value: written_value(value, ["", "AAAAAAA", "a\\", None])).map(to_bytes)
cutters = st.builds(cutting, st.integers(1, 24), st.integers(1, 6))


# After a run that was seen to its end, the next is looked at from the beginning of the body.
BEHIND = b'[";base64,","b","......\\"......"]'


@properties(400)
@given(small_texts, cutters)
@example(BEHIND, cutting(3, 2))
def test_a_cut_takes_away_characters_of_one_string_and_nothing_else(
    raw: bytes, cutter: AbstractContextManager[None]
) -> None:
    with cutter:
        cuts = find_cuts(raw)
    texts = [meant(b'"%s"' % raw[start:stop]) for start, stop in cuts]
    numbered, done = b"", 0
    for number, (start, stop) in enumerate(cuts):
        assert done <= start <= stop
        numbered += raw[done:start] + f"\uf8ff{number}\uf8ff".encode()
        done = stop
    assert unfold(paired(numbered + raw[done:]), texts) == paired(raw)


@properties(400)
@given(small_texts, cutters)
@example(BEHIND, cutting(3, 2))
def test_strings_stand_in_a_cut_body_where_they_stand_in_the_whole(
    raw: bytes, cutter: AbstractContextManager[None]
) -> None:
    with cutter:
        body = Body.read(raw)
    paths = dict(same(paired(body.skeleton), paired(raw)))
    assume(paths)
    places, spans = body.places(paths), locate(raw, paths.values())
    assert {path: (place.start, place.stop) for path, place in places.items()} == {
        here: spans[there] for here, there in paths.items()
    }


@properties(250)
@given(small_texts, cutters, st.randoms(use_true_random=False))
@example(BEHIND, cutting(3, 2), Random(0))
def test_new_strings_go_into_a_cut_body_as_into_the_whole(
    raw: bytes, cutter: AbstractContextManager[None], random: Any
) -> None:
    with cutter:
        body = Body.read(raw)
    paths = {here: there for here, there in same(paired(body.skeleton), paired(raw)) if random.random() < 0.5}
    new = {here: f"new {number}" for number, here in enumerate(paths)}
    places = body.places(paths)
    spliced = body.splice({places[here]: json.dumps(text).encode() for here, text in new.items()})
    assert repr(meant(spliced)) == repr(replaced(meant(raw), {paths[here]: text for here, text in new.items()}))


def test_nothing_hides_between_a_marker_and_a_run_without_quotes() -> None:
    picture = {"type": "image_url", "image_url": {"url": "http://a.test/b.png"}}
    words = "word " * MIN_RUN_BYTES
    raw = json.dumps({"content": [";base64,", picture, f'{words}"{words}']}).encode()
    assert Body.read(raw).value == json.loads(raw)


def test_small_texts_are_cut() -> None:
    """That the properties above speak of something."""
    with cutting(3, 2):
        assert len(find_cuts(b'{"url":"AAAAAAAAAAAA","b":"x;base64,AAAAAAAAAAA"}')) == 2


@pytest.mark.parametrize("beside", [0, 1])
def test_text_beside_the_payloads_has_its_limit(beside: int) -> None:
    raw = long(json.dumps({"url": DATA_URL, "bare": PAYLOAD}).encode())
    allowed = len(raw) - 2 * len(PAYLOAD) + LEFT_IN - beside
    with pytest.raises(TextTooLarge) if beside else nullcontext():
        assert Body.read(raw, allowed).raw is raw


# The work is counted, for no client may choose how long a cut takes.


class Counted(bytes):
    """A body that counts the bytes that are searched."""

    searched = 0

    def find(self, sub: Any, start: SupportsIndex | None = None, end: SupportsIndex | None = None, /) -> int:
        begin = int(start or 0)
        found = super().find(sub, start, end)
        self.searched += (found if found >= 0 else int(end) if end is not None else len(self)) - begin
        return found

    def rfind(self, sub: Any, start: SupportsIndex | None = None, end: SupportsIndex | None = None, /) -> int:
        found = super().rfind(sub, start, end)
        self.searched += int(end if end is not None else len(self)) - max(found, int(start or 0))
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
    "short base64": b'","' + b"A" * 100,
    "base64 that perhaps is cut": b'","' + b"A" * (MIN_RUN_BYTES * 3 // 4),
    "base64 that perhaps is cut, and is none": b'","' + b"." * (MIN_RUN_BYTES * 3 // 4),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_each_byte_is_searched_a_few_times_at_most(flood: bytes, *, closed: bool) -> None:
    raw = Counted(b'["' + flood * (100_000 // len(flood)) + (b'"]' if closed else b""))
    find_cuts(raw)
    assert raw.searched < 5 * len(raw)


def test_runs_one_behind_another_are_searched_a_few_times_at_most() -> None:
    raw = Counted(b'["' + (b"A" * MIN_RUN_BYTES + b'\\"') * 100 + b'"]')
    find_cuts(raw)
    assert raw.searched < 5 * len(raw)


def test_places_sort_in_the_order_of_the_body() -> None:
    raw = long(json.dumps([DATA_URL, "text", DATA_URL, "text"]).encode())
    body = Body.read(raw)
    places = body.places([(3,), (2,), (0,)])
    spliced = body.splice({places[(3,)]: b'"c"', places[(0,)]: b'"a"', places[(2,)]: b'"b"'})
    assert spliced == long(b'["a", "text", "b", "c"]')
