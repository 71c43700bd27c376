"""Data URLs in requests that are not known to carry any."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requests import bodies
from tests.requests.texts import (
    BASE64,
    DATA_URL,
    escaped,
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
from vlm_edge.errors import TextTooLarge
from vlm_edge.requests.stray import holds_data_url


def is_one(text: Any) -> bool:
    """As the RFC and vLLM tell a data URL in base64, and the usual white space before it."""
    return isinstance(text, str) and text.lstrip().lower().startswith("data:") and "base64" in text[:100].lower()


@pytest.mark.parametrize(
    "value",
    [
        DATA_URL,
        {"a": [{"b": DATA_URL}]},
        ["data:;base64,AAAA"],
        {"type": "input_file", "file_data": f"data:application/pdf;name=x.pdf;base64,{BASE64}"},
        {"file_url": " \n DATA:audio/wav;charset=x;base64,AAAA"},
        {"url": f"data:video/jpeg;base64,{BASE64},{BASE64}"},
    ],
    ids=["alone", "deep", "without a type", "a document", "in capitals", "frames"],
)
@pytest.mark.parametrize("pad", [bytes, long, bytearray, mapped])
def test_a_data_url_is_seen_wherever_it_stands(value: Any, pad: Any) -> None:
    assert holds_data_url(pad(json.dumps(value).encode()))


def test_a_data_url_is_seen_through_its_escapes() -> None:
    assert holds_data_url(f'{{"a": "{escaped(DATA_URL[:30])}{DATA_URL[30:]}"}}'.encode())
    assert holds_data_url(json.dumps(DATA_URL).replace("/", "\\/").encode())


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b'{"text": "data: base64"',  # no JSON
        b'"data:text/plain,hello"',
        b'{"text": "send data:image/png;base64,AAAA"}',  # a text about one
        b'{"data:image/png;base64,AAAA": 1}',  # a key
        b'{"encoding_format": "base64", "input": "data: \\u00e9"}',
        b"base64" + b"\x00\xff" * 100,
        b"data:image/png;base64,AAAA",
    ],
    ids=lambda raw: repr(raw[:20]),
)
def test_what_is_none_is_let_be(raw: bytes) -> None:
    assert not holds_data_url(raw)


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_a_data_url_is_seen_in_every_encoding_that_json_has(encoding: str) -> None:
    raw = json.dumps({"url": DATA_URL, "text": "é"}, ensure_ascii=False).encode(encoding)
    assert json.loads(raw)["url"] == DATA_URL  # as vLLM reads it
    assert holds_data_url(raw)
    assert not holds_data_url(json.dumps({"text": "base64"}).encode(encoding))


def test_a_body_with_more_text_than_is_read_is_refused() -> None:
    raw = json.dumps({"text": "word " * 400, "url": "data:image/png;base64,AAAA"}).encode()
    assert holds_data_url(raw)
    with pytest.raises(TextTooLarge):
        holds_data_url(raw, max_text_bytes=1_000)


@properties(300)
@given(written(), marks)
def test_any_json_is_judged_by_its_strings(text: str, mark: bytes) -> None:
    raw = mark + to_bytes(text)
    expected = any(is_one(inner) for _, inner in walk(meant(raw)))
    assert holds_data_url(raw) == expected
    assert holds_data_url(long(raw)) == expected


@properties(200)
@given(st.data())
def test_one_data_url_anywhere_in_any_body_is_seen(data: st.DataObject) -> None:
    _, value = data.draw(bodies.bodies())
    paths = string_paths(value)
    if not paths:
        value, paths = {"a": ""}, [("a",)]
    url = data.draw(st.sampled_from([DATA_URL, "data:image/png;base64,AAAA"]))
    value = replaced(value, {data.draw(st.sampled_from(paths)): url})
    raw = to_bytes(data.draw(written_value(value)))
    assert holds_data_url(long(raw))
