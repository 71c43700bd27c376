import base64
import json
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import jpeg, png
from vlm_edge.errors import InvalidDataUrl
from vlm_edge.media.data_url import build, parse

PICTURE = png(60, 40)
BASE64 = base64.b64encode(PICTURE).decode()
properties = settings(deadline=None, max_examples=200)


def url_safe(text: str) -> str:
    return text.replace("+", "-").replace("/", "_")


def percent_encoded(text: str) -> str:
    return text.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")


def wrapped(text: str) -> str:
    return "\r\n".join(text[at : at + 76] for at in range(0, len(text), 76)) + "\r\n"


def unpadded(text: str) -> str:
    return text.rstrip("=")


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url-safe": url_safe,
    "percent-encoded": percent_encoded,
    "wrapped": wrapped,
    "unpadded": unpadded,
    "unpadded and wrapped": lambda text: wrapped(unpadded(text)),
    "unpadded and url-safe": lambda text: url_safe(unpadded(text)),
    "lines percent-encoded": lambda text: text[:76] + "%0A" + text[76:],
}


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("data:image/png;base64", id="canonical"),
        pytest.param("data:image/png;charset=utf-8;base64", id="B01-charset"),
        pytest.param("data:image/png;name=a.png;charset=utf-8;base64", id="B01-two-parameters"),
        pytest.param("data:image/png;base64;base64", id="B01-last-token-is-the-marker"),
        pytest.param("data:image/jpeg;base64", id="B03-wrong-type"),
        pytest.param("data:;charset=utf-8;base64", id="B05-no-type-but-a-parameter"),
        pytest.param("data:;base64", id="B05-no-type"),
        pytest.param("data:application/octet-stream;base64", id="B08-generic-type"),
        pytest.param("DATA:IMAGE/PNG;BASE64", id="B08-upper-case"),
        pytest.param("data:image/png;Base64", id="B08-mixed-case"),
        pytest.param("data:text/plain;base64", id="B08-another-type"),
        pytest.param("data:image;base64", id="B09-no-subtype"),
    ],
)
def test_a_head_is_read_in_each_of_its_spellings(head: str) -> None:
    payload = parse(f"{head},{BASE64}")
    assert payload.decode() == PICTURE
    assert parse(f"{head},", BASE64.encode()).decode() == PICTURE


def test_spaces_before_the_marker_are_read_b08() -> None:
    assert parse(f"data:image/png; base64,{BASE64}").decode() == PICTURE


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_b06_a_payload_is_read_in_each_of_its_spellings(spell: Callable[[str], str]) -> None:
    payload = parse(f"data:image/png;base64,{spell(BASE64)}")
    assert payload.decode() == PICTURE
    assert payload.size == len(PICTURE)


def test_b05_a_percent_encoded_payload_behind_an_omitted_type_is_read() -> None:
    assert "+" in BASE64
    assert parse(f"data:;charset=utf-8;base64,{BASE64.replace('+', '%2B')}").decode() == PICTURE


@pytest.mark.parametrize(
    "url",
    [
        "",
        "data:",
        "data:image/png",
        "data:image/png;base64",
        "data:image/png;base64,",
        "data:image/png,hello",
        "data:image/png;base64=1,AAAA",
        "data:image/png;charset=utf-8,AAAA",
        "data:base64,AAAA",
        "data:image/png;name=a,b;base64,AAAA",
    ],
)
def test_what_is_no_base64_data_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidDataUrl):
        parse(url)


@pytest.mark.parametrize(
    "text",
    ["AAA!", "AA?AAAAA", "A", "AAAAA", "AA=A", "AAAA#frag", "AAAA;base64,AAAA", "é" * 4, "QUJD\\nREVG", "AAAA====AAAA"],
)
@pytest.mark.parametrize("at", [0, 4_000, 8_000])
def test_b06_junk_in_a_payload_is_refused_wherever_it_lies(text: str, at: int) -> None:
    with pytest.raises(InvalidDataUrl):
        parse(f"data:image/png;base64,{'A' * at}{text}").decode()


def test_a_refusal_carries_no_base64() -> None:
    with pytest.raises(InvalidDataUrl) as caught:
        parse(f"data:image/png;base64,{BASE64}!").decode()
    assert BASE64[:16] not in str(caught.value)


@properties
@given(st.binary(min_size=1, max_size=9_000), st.sampled_from(list(SPELLINGS)), st.data())
def test_random_access_equals_slices_of_the_decoded_bytes(data: bytes, spelling: str, drawn: st.DataObject) -> None:
    payload = parse(f"data:;base64,{SPELLINGS[spelling](base64.b64encode(data).decode())}")
    start = drawn.draw(st.integers(0, len(data) + 10))
    stop = drawn.draw(st.integers(start, len(data) + 20))
    assert payload.size == len(data)
    assert payload.read(start, stop) == data[start:stop]
    assert payload.decode() == data


@properties
@given(st.binary(min_size=1, max_size=200), st.sampled_from([bytes, memoryview]))
def test_a_payload_that_was_cut_out_reads_like_one_that_was_not(
    data: bytes, kind: Callable[[bytes], bytes | memoryview]
) -> None:
    text = base64.b64encode(data)
    cut, whole = parse("data:;base64,", kind(text)), parse("data:;base64," + text.decode())
    assert (cut.size, cut.read(0, 64), cut.decode()) == (whole.size, whole.read(0, 64), whole.decode())


def test_what_is_read_at_random_is_what_is_decoded_even_behind_a_late_irregularity() -> None:
    data = bytes(4_000) + bytes(range(256)) * 20
    text = base64.b64encode(data).decode()
    payload = parse(f"data:;base64,{text[:5_000]}\n\n\n\n{text[5_000:]}")
    assert payload.decode() == data
    assert payload.size == len(data)
    assert payload.read(4_500, 4_600) == data[4_500:4_600]


def test_a_payload_of_nothing_but_escapes_takes_a_few_times_its_own_memory() -> None:
    url = "data:;base64," + "%41" * 200_000
    tracemalloc.start()
    parse(url)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * len(url)


@given(st.sampled_from(["image/jpeg", "image/png", "image/webp"]), st.binary(max_size=100))
def test_a_built_url_is_in_the_spelling_that_every_server_reads(media_type: str, data: bytes) -> None:
    head, _, text = build(media_type, data).decode().partition(",")
    assert head == f"data:{media_type};base64"
    assert base64.b64decode(text, validate=True) == data


@pytest.mark.parametrize(
    ("head", "canonical"),
    [
        ("data:image/jpeg;base64", True),
        ("data:image/png;base64", False),
        ("data:image/jpeg;name=a.jpg;base64", False),
        ("data:IMAGE/JPEG;base64", False),
        ("data:;base64", False),
    ],
)
def test_a_head_is_canonical_when_it_is_as_we_would_write_it(head: str, *, canonical: bool) -> None:
    data = jpeg(8, 8)
    payload = parse(f"{head},{base64.b64encode(data).decode()}")
    assert payload.canonical("image/jpeg", data) is canonical


ESCAPES: dict[str, Callable[[str], str]] = {
    "PHP": lambda text: text.replace("/", "\\/"),
    "Gson": lambda text: text.replace("=", "\\u003d"),
    ".NET": lambda text: text.replace("+", "\\u002B"),
    "MIME lines": lambda text: "\\r\\n".join(text[at : at + 76] for at in range(0, len(text), 76)),
    "all": lambda text: "".join(f"\\u{ord(one):04x}" for one in text),
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_a_payload_that_was_cut_out_is_read_without_the_escapes_of_json(escape: Callable[[str], str]) -> None:
    data = bytes(range(256)) * 8
    text = escape(base64.b64encode(data).decode())
    assert base64.b64decode(json.loads(f'"{text}"')) == data
    payload = parse("data:image/png;base64,", memoryview(text.encode()))
    assert (payload.decode(), payload.read(9, 99), payload.size) == (data, data[9:99], len(data))


@pytest.mark.parametrize("escape", ["\\/", "\\u002B"])
def test_an_escape_late_in_a_payload_is_read_as_well(escape: str) -> None:
    text = "A" * 8_000 + escape + "A" * 7_999
    payload = parse("data:image/png;base64,", text.encode())
    assert payload.decode() == base64.b64decode(json.loads(f'"{text}"'))


@pytest.mark.parametrize("text", ["AAAA\\x", "AAAA\\", "AA\nAA"])
def test_a_payload_that_is_no_json_string_is_refused(text: str) -> None:
    with pytest.raises(InvalidDataUrl):
        parse("data:image/png;base64,", ("\\/" + text).encode()).decode()
