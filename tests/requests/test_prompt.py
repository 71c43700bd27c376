"""A request as the chat template of its model gets it. What vLLM counts of such prompts is in tests/vllm."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.prompt import PROMPTS, Prompt, prompts, without_media
from vlm_edge.tokens.text import bound

CHAT = "/v1/chat/completions"
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
IMAGE, TEXT = {"type": "image"}, {"type": "text", "text": "hi"}


def chat(*messages: dict[str, Any], path: str = CHAT, **fields: Any) -> Prompt:
    (one,) = prompts(path, {"messages": list(messages), **fields})
    return one


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def test_texts_are_parts_and_media_are_bare() -> None:
    prompt = chat({"role": "system", "content": "Be brief."}, user(TEXT, PICTURE, "loose", {"type": "video_url"}))
    assert prompt.messages == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [TEXT, IMAGE, {"type": "text", "text": "loose"}, {"type": "video"}]},
    ]
    assert prompt.exact
    assert prompt.media == 2


@pytest.mark.parametrize(
    "part",
    [
        PICTURE,
        {"type": "input_image", "image_url": "data:,", "detail": "auto"},
        {"image_url": "data:,"},
        {"type": "text", "text": "hi", "uuid": "u", "image_url": "data:,"},
        {"type": "weird", "uuid": "u", "image_url": "data:,"},
    ],
)
def test_a_picture_is_one_in_every_dress(part: dict[str, Any]) -> None:
    assert chat(user(part)).messages[0]["content"] == [IMAGE]


@pytest.mark.parametrize("kind", ["text", "input_text", "output_text", "refusal", "thinking"])
def test_a_text_is_one_under_every_type(kind: str) -> None:
    key = kind if kind in ("refusal", "thinking") else "text"
    prompt = chat(user({"type": kind, key: "hi"}))
    assert (prompt.messages[0]["content"], prompt.exact) == ([TEXT], True)


def test_what_an_assistant_said_and_called_is_kept() -> None:
    call: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    prompt = chat({"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "so"})
    (message,) = prompt.messages
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert message["reasoning"] == message["reasoning_content"] == "so"
    assert call["function"]["arguments"] == '{"a": 1}'  # the request itself is not changed


@pytest.mark.parametrize("arguments", ["{", "[]", "7", "", None])
def test_arguments_that_are_no_object_become_an_empty_one(arguments: Any) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    (message,) = chat({"role": "assistant", "tool_calls": [call]}).messages
    assert message["tool_calls"][0]["function"]["arguments"] == {}


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 9, "max_tokens": 7}, 9),
        ({"max_tokens": "many"}, None),
    ],
)
def test_the_length_of_the_answer_is_what_the_client_asks_for(fields: dict[str, Any], asked: int | None) -> None:
    assert chat(user(TEXT), **fields).output_tokens == asked


@pytest.mark.parametrize(
    ("path", "generates", "opens"), [(CHAT, True, True), ("/tokenize", False, True), ("/v1/embeddings", False, False)]
)
def test_only_a_chat_is_answered(path: str, *, generates: bool, opens: bool) -> None:
    prompt = chat(user(TEXT), path=path)
    assert (prompt.generates, prompt.extra["add_generation_prompt"]) == (generates, opens)


def test_variables_of_the_template_are_kept() -> None:
    kwargs = {"enable_thinking": False, "add_generation_prompt": True}
    prompt = chat(user(TEXT), chat_template_kwargs=kwargs, add_generation_prompt=False)
    assert prompt.extra == {"add_generation_prompt": False, "enable_thinking": False}  # a field of its own wins


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [user(TEXT)], "tools": [{"type": "function"}]},
        {"messages": [user(TEXT)], "chat_template": "{{ 1 }}"},
        {"messages": [user(TEXT)], "continue_final_message": True},
        {"messages": [user(TEXT)], "add_special_tokens": True},
        {"messages": [{"role": "developer", "content": "hi"}]},
        {"messages": [user({"type": "hologram"})]},
        {"messages": [user({"type": "input_audio", "input_audio": {}})]},
        {"messages": [{"role": "system", "content": "x-anthropic-billing-header: 1\nhi"}]},
    ],
)
def test_what_vllm_makes_in_a_way_of_its_own_is_not_called_exact(request_: dict[str, Any]) -> None:
    (prompt,) = prompts(CHAT, request_)
    assert not prompt.exact


def test_a_batch_is_a_prompt_a_conversation() -> None:
    found = prompts("/v1/chat/completions/batch", {"messages": [[user(TEXT)], [user(PICTURE), user(PICTURE)]]})
    assert [prompt.media for prompt in found] == [0, 2]


def test_a_line_of_a_batch_file_is_what_is_in_it() -> None:
    assert prompts("run-batch", {"url": CHAT, "body": {"messages": [user(PICTURE)]}}) == [chat(user(PICTURE))]


def test_a_message_of_anthropic_is_a_chat() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    body = {
        "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": " brief."}],
        "messages": [user({"type": "image", "source": source}, TEXT), {"role": "assistant", "content": "Yes?"}],
        "max_tokens": 5,
    }
    (prompt,) = prompts("/v1/messages", body)
    assert prompt.messages == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [IMAGE, TEXT]},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes?"}]},
    ]
    assert (prompt.exact, prompt.output_tokens) == (True, 5)


def test_empty_texts_of_anthropic_are_left_out_and_messages_of_nothing_else() -> None:
    empty = {"type": "text", "text": ""}
    (prompt,) = prompts("/v1/messages", {"messages": [user(empty), user(), user(empty, TEXT)]})
    assert prompt.messages == [user(TEXT)]


def test_a_tool_of_anthropic_is_bounded_and_not_counted() -> None:
    (prompt,) = prompts("/v1/messages", {"messages": [user({"type": "tool_result", "content": "a long result"})]})
    assert not prompt.exact
    assert "a long result" in prompt.messages[0]["content"][0]["text"]


def test_a_response_is_a_chat() -> None:
    picture = {"type": "input_image", "image_url": "data:,"}
    body = {"instructions": "Be brief.", "input": [user({"type": "input_text", "text": "hi"}, picture)]}
    (prompt,) = prompts("/v1/responses", {**body, "max_output_tokens": 5})
    assert [message["role"] for message in prompt.messages] == ["system", "user"]
    assert prompt.messages[1]["content"] == [TEXT, IMAGE]
    assert (prompt.exact, prompt.output_tokens) == (True, 5)
    (plain,) = prompts("/v1/responses", {"input": "hi"})
    assert plain.messages == [user(TEXT)]


def test_the_output_of_a_tool_in_a_response_is_bounded() -> None:
    output = {
        "type": "function_call_output",
        "call_id": "1",
        "output": [{"type": "input_image", "image_url": "data:,"}],
    }
    (prompt,) = prompts("/v1/responses", {"input": [output]})
    assert (prompt.exact, prompt.media) == (False, 1)


@pytest.mark.parametrize("path", ["/score", "/v2/embed", "/inference/v1/generate", "/v1/completions"])
def test_nothing_is_said_of_prompts_that_are_made_otherwise(path: str) -> None:
    assert path in ENDPOINTS
    assert prompts(path, {"messages": [user(TEXT)], "input": "hi"}) == ()


def test_a_placeholder_stands_for_each_medium() -> None:
    assert without_media(chat(user(TEXT, PICTURE)), "<image>") == [user(TEXT, {"type": "text", "text": "<image>"})]


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from("role content type text messages input system image_url uuid".split()), inner)
    ),
    max_leaves=20,
)


@given(
    st.sampled_from(sorted(PROMPTS)),
    st.dictionaries(st.sampled_from(["messages", "input", "url", "body", "system"]), json),
)
def test_nonsense_is_no_prompt_and_no_error(path: str, body: dict[str, Any]) -> None:
    for prompt in prompts(path, body):
        assert bound(prompt.messages, prompt.extra) > 0


def test_what_is_nested_without_end_is_bounded_without_an_error() -> None:
    deep: Any = "x"
    for _ in range(5_000):
        deep = [deep]
    call = {"function": {"name": "f", "arguments": {"a": deep}}}
    for prompt in prompts(CHAT, {"messages": [{"role": "assistant", "tool_calls": [call]}, user({"type": deep})]}):
        assert bound(prompt.messages, prompt.extra) > 5_000
