"""Where a request to /v1/messages holds pictures. What counts is what vLLM makes of it (anthropic/serving.py)."""

from typing import Any

import pytest

from vlm_edge.errors import (
    BackendTimeout,
    BackendUnavailable,
    BodyTooLarge,
    CorruptMedia,
    EdgeError,
    Overloaded,
    TooManyImages,
    Unauthorized,
    UnknownPath,
)
from vlm_edge.requests.anthropic import error_body, find
from vlm_edge.requests.part import MediaPart

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}

DOCUMENT = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}


def found(*blocks: Any, role: str = "user") -> list[MediaPart]:
    return list(find({"messages": [{"role": role, "content": list(blocks)}]}))


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_picture_in_base64_has_its_type_beside_it(role: str) -> None:
    [one] = found({"type": "text", "text": "a"}, PICTURE, role=role)
    here = ("messages", 0, "content", 1)
    assert (one.part, one.modality, one.url, one.bare) == (here, "image", "AAAA", True)
    assert (one.source, one.media_type) == ((*here, "source", "data"), (*here, "source", "media_type"))
    assert (one.context.role, one.context.note, one.uuid) == (role, "text", None)


@pytest.mark.parametrize("kind", [{}, {"type": "base64"}, {"type": None}, {"type": "weird"}, {"type": []}], ids=repr)
def test_every_source_but_a_url_is_base64(kind: dict[str, Any]) -> None:
    [one] = found({"type": "image", "source": {**kind, "data": "AAAA", "url": "http://a.test"}})
    assert (one.url, one.bare, one.media_type) == ("AAAA", True, None)


def test_a_picture_may_be_a_url() -> None:
    [one] = found({"type": "image", "source": {"type": "url", "url": "http://a.test", "data": "AAAA"}})
    assert (one.url, one.bare, one.source) == ("http://a.test", False, ("messages", 0, "content", 0, "source", "url"))


@pytest.mark.parametrize("value", [None, 7, [], {}])
@pytest.mark.parametrize("source", [{"type": "base64", "data": None}, {"type": "url", "url": None}], ids=repr)
def test_a_picture_without_data_is_one_all_the_same(source: dict[str, Any], value: Any) -> None:
    key = "url" if "url" in source else "data"
    [one] = found({"type": "image", "source": {**source, key: value}})
    assert (one.modality, one.url) == ("image", None)


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_document_in_base64_has_its_type_beside_it(role: str) -> None:
    [one] = found({"type": "text", "text": "a"}, DOCUMENT, role=role)
    here = ("messages", 0, "content", 1)
    assert (one.part, one.modality, one.url, one.bare, one.document) == (here, "image", "JVBERi0=", True, True)
    assert (one.source, one.media_type) == ((*here, "source", "data"), (*here, "source", "media_type"))
    assert (one.context.role, one.context.note, one.context.picture) == (role, "text", "image")


def test_a_document_may_say_nothing_of_its_type() -> None:
    [one] = found({"type": "document", "source": {"type": "base64", "data": "JVBERi0="}})
    assert (one.url, one.bare, one.media_type, one.document) == ("JVBERi0=", True, None, True)


def test_a_document_may_be_a_url() -> None:
    source = {"type": "url", "url": "http://a.test/x.pdf", "data": "AAAA", "media_type": "application/pdf"}
    [one] = found({"type": "document", "source": source, "title": "x"})
    assert (one.url, one.bare, one.media_type, one.document) == ("http://a.test/x.pdf", False, None, True)
    assert one.source == ("messages", 0, "content", 0, "source", "url")


def test_the_answers_of_tools_bring_documents() -> None:
    [one] = found({"type": "tool_result", "tool_use_id": "t", "content": [DOCUMENT]})
    assert (one.place, one.context.role, one.document) == ("messages[0].content[0].content[0]", "tool", True)


def test_the_answers_of_tools_bring_pictures() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a"}, PICTURE]}
    [one] = found(result)
    assert (one.place, one.context.role) == ("messages[0].content[0].content[1]", "tool")


@pytest.mark.parametrize(
    ("blocks", "role"),
    [
        ([PICTURE], "system"),  # of a system message the text alone is read
        ([{"type": "tool_result", "content": [PICTURE]}], "assistant"),  # goes on as text
        ([{"type": "tool_result", "content": [{"type": "tool_result", "content": [PICTURE]}]}], "user"),
        ([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "AAAA"}}], "user"),
        ([{"type": "document", "source": {"type": "content", "content": [PICTURE]}}], "user"),
        ([{"type": "document", "source": {"type": "file", "file_id": "file_1", "data": "AAAA"}}], "user"),
        ([{"type": "document", "source": {"data": "AAAA", "url": "http://a.test"}}], "user"),
        ([{"type": "document", "source": {"type": ["base64"], "data": "AAAA"}}], "user"),
        ([{"type": "document", "source": {"type": "base64", "data": ""}}, {"type": "document"}], "user"),
        ([{"type": "document", "source": {"type": "url", "url": None}}], "user"),
        ([DOCUMENT], "system"),
        ([{"type": "tool_result", "content": [DOCUMENT]}], "assistant"),
        ([{"type": "text", "text": "a", "source": PICTURE["source"]}], "user"),
        ([{"type": "tool_use", "input": PICTURE}], "user"),
        ([{"type": "image", "source": "AAAA"}, {"type": "image"}, "AAAA", None, 7, [PICTURE]], "user"),
        ([{"type": "image_url", "image_url": {"url": "http://a.test"}}], "user"),
    ],
    ids=repr,
)
def test_what_vllm_does_not_read_is_no_picture(blocks: list[Any], role: str) -> None:
    assert found(*blocks, role=role) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None},
        {"messages": {"role": "user", "content": [PICTURE]}},
        {"messages": [None, 7, "text", [PICTURE]]},
        {"messages": [{"role": "user", "content": "text"}, {"role": "user", "content": PICTURE}]},
        {"messages": [], "system": [PICTURE], "tools": [PICTURE]},
    ],
    ids=repr,
)
def test_a_body_of_another_shape_holds_no_picture(body: dict[str, Any]) -> None:
    assert list(find(body)) == []


@pytest.mark.parametrize(
    ("error", "kind"),  # https://docs.anthropic.com/en/api/errors
    [
        (CorruptMedia("it is empty"), "invalid_request_error"),
        (TooManyImages(5, 4), "invalid_request_error"),
        (Unauthorized(), "authentication_error"),
        (UnknownPath("/a", ["/b"]), "not_found_error"),
        (BodyTooLarge(2, 1), "request_too_large"),
        (Overloaded(2, 1), "overloaded_error"),
        (BackendTimeout(1.0), "timeout_error"),
        (BackendUnavailable("is gone"), "api_error"),
    ],
)
def test_an_error_is_told_as_anthropic_tells_it(error: EdgeError, kind: str) -> None:
    error.param = "messages[0].content[1]"
    message = f"messages[0].content[1]: {error.message}"
    assert error_body(error) == {"type": "error", "error": {"type": kind, "message": message}}
