"""Where Cohere's requests hold pictures. What counts is vLLM's cohere and embed protocols."""

from typing import Any

import pytest

from vlm_edge.errors import CorruptMedia, EdgeError, TooManyImages
from vlm_edge.requests.cohere import chat_error_body, find_chat, find_embed

URL = "data:image/png;base64,AAAA"
PICTURE = {"type": "image_url", "image_url": {"url": URL}}
TEXT = {"type": "text", "text": URL}


def test_each_of_the_images_is_embedded_for_itself() -> None:
    found = list(find_embed({"model": "m", "images": [URL, "http://a.test"]}))
    assert [(part.place, part.url, part.context.prompt) for part in found] == [
        ("images[0]", URL, 0),
        ("images[1]", "http://a.test", 1),
    ]
    assert found[0].source == ("images", 0)
    assert {part.context.picture for part in found} == {""}  # one more would be one more embedding


def test_each_of_the_inputs_is_embedded_for_itself() -> None:
    found = list(find_embed({"inputs": [{"content": [TEXT, PICTURE]}, {"content": [PICTURE, PICTURE]}]}))
    assert [(part.place, part.context.prompt) for part in found] == [
        ("inputs[0].content[1]", 0),
        ("inputs[1].content[0]", 1),
        ("inputs[1].content[1]", 1),
    ]
    assert found[0].source == ("inputs", 0, "content", 1, "image_url", "url")
    assert [part.context.note for part in found] == ["", "", ""]  # a picture to embed cannot be left out
    assert {part.context.picture for part in found} == {"image_url"}


def test_pictures_of_users_are_found() -> None:
    [one] = find_chat({"messages": [{"role": "user", "content": [TEXT, PICTURE]}]})
    assert (one.place, one.url, one.uuid) == ("messages[0].content[1]", URL, None)
    assert (one.context.role, one.context.note) == ("user", "text")


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool", None, ["user"]])
def test_of_the_other_roles_text_alone_is_read(role: Any) -> None:
    assert list(find_chat({"messages": [{"role": role, "content": [PICTURE]}]})) == []


@pytest.mark.parametrize(
    "block",
    [
        TEXT,
        {"type": "text", "text": "a", "image_url": {"url": URL}},
        {"image_url": {"url": URL}},
        {"type": "document", "document": {"id": "1", "data": {"text": URL}}},
        URL,
        None,
        [PICTURE],
    ],
    ids=repr,
)
def test_a_block_of_another_type_is_no_picture(block: Any) -> None:
    assert list(find_chat({"messages": [{"role": "user", "content": [block]}]})) == []
    assert list(find_embed({"inputs": [{"content": [block]}]})) == []


@pytest.mark.parametrize("url", [None, 7, [], {}])
def test_a_picture_without_a_url_is_one_all_the_same(url: Any) -> None:
    [one] = find_chat({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]})
    assert (one.modality, one.url) == ("image", None)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"texts": [URL]},
        {"images": URL, "inputs": PICTURE},
        {"images": [None, 7, [URL], {"url": URL}], "inputs": [None, URL, [PICTURE], {"content": PICTURE}]},
        {"image": URL, "documents": [URL]},
        {"messages": None},
        {"messages": [None, URL, {"role": "user", "content": URL}, {"role": "user", "content": PICTURE}]},
    ],
    ids=repr,
)
def test_a_body_of_another_shape_holds_no_picture(body: dict[str, Any]) -> None:
    assert [*find_embed(body), *find_chat(body)] == []


@pytest.mark.parametrize("error", [CorruptMedia("it is empty"), TooManyImages(5, 4)])
def test_an_error_is_told_as_cohere_tells_it(error: EdgeError) -> None:
    error.param = "messages[0].content[1]"
    assert chat_error_body(error) == {"message": f"messages[0].content[1]: {error.message}", "id": None}
