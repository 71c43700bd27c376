"""Where a chat request, a batch of them and a completion hold media."""

from typing import Any

import pytest

from vlm_edge.errors import CorruptMedia, EdgeError, TooManyImages
from vlm_edge.requests.openai import error_body, find_batch, find_chat, find_completion

URL = "data:image/png;base64,AAAA"
PICTURE = {"type": "image_url", "image_url": {"url": URL}}


def message(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "anything"])
def test_every_role_may_bring_pictures(role: str) -> None:
    [one] = find_chat({"messages": [message(PICTURE, role=role)]})  # B17
    assert (one.context.role, one.context.prompt, one.context.note) == (role, 0, "text")


@pytest.mark.parametrize("role", [None, 7, ["user"], {}])
def test_a_message_of_no_role_may_bring_pictures_too(role: Any) -> None:
    [one] = find_chat({"messages": [{"role": role, "content": [PICTURE]}]})
    assert one.context.role == ""


def test_the_whole_history_is_searched_in_order() -> None:
    body = {
        "messages": [
            {"role": "system", "content": "You see."},
            message({"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "one"}}),
            message("a bare string"),
            message({"type": "image_url", "image_url": "two"}, {"type": "input_image", "image_url": "three"}),
        ]
    }
    places = [(part.place, part.url) for part in find_chat(body)]
    assert places == [
        ("messages[1].content[1]", "one"),
        ("messages[3].content[0]", "two"),
        ("messages[3].content[1]", "three"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None},
        {"messages": "text"},
        {"messages": {"0": {}}},
        {"messages": [None, 1, "text", []]},
        {"messages": [{}, {"content": None}, {"content": PICTURE}]},
        {"messages": [{"role": "user", "content": "text", "image_url": URL, "images": [URL]}]},
        {"messages": [{"role": "assistant", "content": None, "reasoning": URL, "tool_calls": [PICTURE]}]},
        {"messages": [], "tools": [PICTURE], "documents": [PICTURE], "metadata": {"content": [PICTURE]}},
        {"prompt": URL},
    ],
    ids=repr,
)
@pytest.mark.parametrize("find", [find_chat, find_batch, find_completion])
def test_a_body_of_another_shape_holds_no_media(body: dict[str, Any], find: Any) -> None:
    assert list(find(body)) == []


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_a_prompt_already_embedded_may_stand_where_a_message_reasons(key: str) -> None:
    body = {"messages": [{"role": "assistant", "content": "a", key: {"type": "prompt_embeds", "data": "AAAA"}}]}
    [one] = find_chat(body)
    assert (one.place, one.modality, one.url, one.embeds) == (f"messages[0].{key}", "prompt_embeds", None, True)


def test_each_conversation_of_a_batch_is_a_prompt_of_its_own() -> None:
    body = {"messages": [[message(PICTURE)], [message("a"), message("b", PICTURE)], "text", [message(PICTURE)]]}
    assert [(part.place, part.context.prompt) for part in find_batch(body)] == [
        ("messages[0][0].content[0]", 0),
        ("messages[1][1].content[1]", 1),
        ("messages[3][0].content[0]", 3),
    ]


def test_the_messages_of_a_chat_are_no_batch_and_the_other_way_round() -> None:
    assert list(find_batch({"messages": [message(PICTURE)]})) == []
    assert list(find_chat({"messages": [[message(PICTURE)]]})) == []


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ("AAAA", ["prompt_embeds"]),
        (["AAAA", "BBBB"], ["prompt_embeds[0]", "prompt_embeds[1]"]),
        (["AAAA", None], ["prompt_embeds[0]"]),
        ("", ["prompt_embeds"]),
        ([], []),
        (None, []),
    ],
)
def test_a_completion_may_bring_embedded_prompts(value: Any, places: list[str]) -> None:
    parts = list(find_completion({"prompt": "a", "prompt_embeds": value}))
    assert [part.place for part in parts] == places
    assert all(part.embeds and part.url is None and part.modality == "prompt_embeds" for part in parts)


@pytest.mark.parametrize("error", [CorruptMedia("it is empty"), TooManyImages(5, 4)])
def test_an_error_is_told_as_openai_tells_it(error: EdgeError) -> None:
    error.param = "messages[0].content[1]"
    assert error_body(error) == {
        "error": {
            "message": f"messages[0].content[1]: {error.message}",
            "type": "invalid_request_error",
            "param": "messages[0].content[1]",
            "code": error.code,
        }
    }
