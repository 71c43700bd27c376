"""Where a request to /v1/responses holds media. What counts is what vLLM makes messages of (responses/utils.py)."""

from typing import Any

import pytest

from vlm_edge.requests.part import MediaPart
from vlm_edge.requests.responses import find

URL = "data:image/png;base64,AAAA"
PICTURE = {"type": "input_image", "image_url": URL}
FILE = {"type": "input_file", "filename": "x.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}


def found(*items: Any) -> list[MediaPart]:
    return list(find({"input": list(items)}))


@pytest.mark.parametrize("role", ["user", "system", "developer", "anything"])
@pytest.mark.parametrize("kind", [{}, {"type": "message"}, {"type": "weird"}])
def test_messages_bring_pictures(role: str, kind: dict[str, str]) -> None:
    [one] = found({**kind, "role": role, "content": [{"type": "input_text", "text": "a"}, PICTURE]})
    assert (one.place, one.modality, one.url) == ("input[0].content[1]", "image", URL)
    assert (one.source, one.context.role) == (("input", 0, "content", 1, "image_url"), role)
    assert (one.context.note, one.uuid) == ("input_text", None)


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_the_answers_of_tools_bring_pictures(kind: str) -> None:
    [one] = found({"type": kind, "call_id": "c", "output": [{"type": "input_text", "text": "a"}, PICTURE]})
    assert (one.place, one.context.role) == ("input[0].output[1]", "tool")


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [FILE]},
        {"role": "assistant", "content": [FILE, {"type": "output_text", "text": "a"}]},
        {"type": "function_call_output", "call_id": "c", "output": [FILE]},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [FILE]},
    ],
    ids=repr,
)
def test_messages_and_the_answers_of_tools_bring_files(item: dict[str, Any]) -> None:
    [one] = found(item)
    assert (one.document, one.url, one.context.picture) == (True, FILE["file_data"], "input_image")
    assert one.context.role == item.get("role", "tool")


@pytest.mark.parametrize(
    "content",
    [[PICTURE], [PICTURE, {"type": "output_text", "text": "a"}], [{"type": "refusal", "refusal": "no"}, PICTURE]],
    ids=repr,
)
def test_an_answer_that_begins_with_a_picture_is_read_as_a_message(content: list[Any]) -> None:
    assert [one.url for one in found({"role": "assistant", "content": content})] == [URL]


def test_of_an_answer_that_begins_with_text_that_text_alone_is_read() -> None:
    assert found({"role": "assistant", "content": [{"type": "output_text", "text": "a"}, PICTURE]}) == []


def test_pictures_are_found_in_order() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_image", "image_url": "one"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "two"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "three"}]},
    ]
    assert [one.url for one in found(*items)] == ["one", "two", "three"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": None},
        {"input": URL},
        {"input": {"role": "user", "content": [PICTURE]}},
        {"input": [None, 7, URL, []]},
        {"input": [{"role": "user", "content": URL}, {"role": "user", "content": PICTURE}]},
        {"input": [{"type": "function_call_output", "output": URL, "content": [PICTURE]}]},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": URL, "image_url": URL}]}]},
        {"messages": [{"role": "user", "content": [PICTURE]}]},
        {"input": "a", "instructions": URL, "tools": [PICTURE], "prompt": {"variables": {"a": PICTURE}}},
    ],
    ids=repr,
)
def test_what_vllm_does_not_read_is_no_media(body: dict[str, Any]) -> None:
    assert list(find(body)) == []


@pytest.mark.parametrize("kind", [[], {}, ["function_call_output"], {"type": "message"}], ids=repr)
def test_an_item_of_a_type_that_is_no_string_is_a_message(kind: Any) -> None:
    assert [one.url for one in found({"type": kind, "role": "user", "content": [PICTURE]})] == [URL]


@pytest.mark.parametrize("key", ["content", "output"])
@pytest.mark.parametrize("kind", ["input_image", "input_text", "input_file"])
def test_with_a_uuid_the_first_media_key_counts_and_not_the_type(key: str, kind: str) -> None:
    part = {"type": kind, "text": "a", "image_url": URL, "uuid": "u"}
    item = {"role": "user"} if key == "content" else {"type": "function_call_output", "call_id": "c"}
    [one] = found({**item, key: [part]})
    assert (one.modality, one.url, one.uuid) == ("image", URL, "u")


@pytest.mark.parametrize(
    ("key", "modality"),
    [("video_url", "video"), ("audio_url", "audio"), ("image_embeds", "image"), ("image_url", "image")],
)
def test_media_hide_in_no_text_that_has_a_uuid(key: str, modality: str) -> None:
    text = {"type": "input_text", "text": "a", key: {"url": URL}, "uuid": "u"}
    assert [one.modality for one in found({"role": "user", "content": [text]})] == [modality]


@pytest.mark.parametrize("detail", [{}, {"detail": "low"}], ids=repr)
def test_a_uuid_is_taken_away_from_a_picture_and_detail_given_that_vllm_wants(detail: dict[str, str]) -> None:
    [one] = found({"role": "user", "content": [{**PICTURE, **detail, "uuid": "u"}]})
    new = b"null" if detail else b'null,"detail":"auto"'
    assert [(edit.path, edit.text) for edit in one.plain] == [((*one.part, "uuid"), new)]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_text", "text": "a", "image_url": URL},
        {"type": "input_image", "image_url": {"url": URL}},
        {"type": "input_text", "text": "a", "video_url": URL},
        {"image_url": URL},
    ],
    ids=repr,
)
def test_what_vllm_would_not_read_without_its_uuid_has_no_plain_form(part: dict[str, Any]) -> None:
    [one] = found({"role": "user", "content": [{**part, "uuid": "u"}]})
    assert (one.uuid, one.plain) == ("u", ())
