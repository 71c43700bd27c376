"""A request as the chat template of its model gets it. What vLLM counts of such prompts is in tests/vllm."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.prompt import PROMPTS, Prompt, prompts, question
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
        {"image_url": "data:,"},
        {"type": "text", "text": "hi", "uuid": "u", "image_url": "data:,"},
        {"type": "weird", "uuid": "u", "image_url": "data:,"},
    ],
)
def test_a_picture_is_one_in_every_dress(part: dict[str, Any]) -> None:
    assert chat(user(part)).messages[0]["content"] == [IMAGE]


def test_the_template_sees_what_else_a_part_holds() -> None:
    picture = {"type": "input_image", "image_url": "data:,", "detail": "auto"}
    prompt = chat(user(picture, {**TEXT, "cache_control": {"type": "ephemeral"}}))
    assert prompt.messages[0]["content"] == [
        {"type": "image", "detail": "auto"},
        {**TEXT, "cache_control": {"type": "ephemeral"}},
    ]


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


@pytest.mark.parametrize(
    ("asked", "tokens"), [("4000", 4_000), (4_000.0, 4_000), ("many", None), (True, 1), ([], None), (1e999, None)]
)
def test_a_length_is_read_as_lenient_servers_read_it(asked: Any, tokens: int | None) -> None:
    assert chat(user(TEXT), max_tokens=asked).output_tokens == tokens


def test_variables_that_are_not_set_are_left_out() -> None:
    kwargs: dict[str, Any] = {"a": None, "b": "auto", "enable_thinking": None, "c": []}
    assert chat(user(TEXT), chat_template_kwargs=kwargs).extra == {"add_generation_prompt": True, "c": []}
    thinking = chat(user(TEXT), chat_template_kwargs=kwargs, reasoning_effort="low").extra["enable_thinking"]
    assert thinking is True


def test_all_that_a_call_holds_is_kept_behind_what_is_known() -> None:
    call = {"index": 0, "type": "function", "id": "1", "function": {"q": 1, "name": "f", "arguments": "{}"}}
    (message,) = chat({"role": "assistant", "tool_calls": [call]}).messages
    (made,) = message["tool_calls"]
    assert (list(made), list(made["function"])) == (["id", "function", "type", "index"], ["arguments", "name", "q"])


@pytest.mark.parametrize(
    "fields",
    [
        {"add_generation_prompt": "false"},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "chat_template_kwargs": {"tools": []}},
    ],
)
def test_what_a_server_reads_in_another_way_is_not_called_exact(fields: dict[str, Any]) -> None:
    assert not chat(user(TEXT), **fields).exact


def test_variables_of_the_template_are_kept() -> None:
    kwargs = {"enable_thinking": False, "add_generation_prompt": True}
    prompt = chat(user(TEXT), chat_template_kwargs=kwargs, add_generation_prompt=False)
    assert prompt.extra == {"add_generation_prompt": False, "enable_thinking": False}  # a field of its own wins


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [user(TEXT)], "tools": [{"type": "custom"}]},
        {"messages": [user(TEXT)], "tools": [{"function": {"name": "f"}}], "tool_choice": "none"},
        {"messages": [user(TEXT)], "truncate_prompt_tokens": 5},
        {"messages": [user(TEXT)], "chat_template": "{{ 1 }}"},
        {"messages": [user(TEXT)], "continue_final_message": True},
        {"messages": [user(TEXT)], "add_special_tokens": True},
        {"messages": [{"role": "developer", "content": "hi", "tools": [{}]}]},
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


def test_calls_and_answers_of_tools_in_messages_of_anthropic_are_those_of_a_chat() -> None:
    """As vLLM makes them: a call in the assistant's message, the answer in one of its own, its pictures in another."""
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    call = {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [TEXT, {"type": "image", "source": source}]}
    said = [{"type": "thinking", "thinking": "hm", "signature": "s"}, call]
    body = {"messages": [{"role": "assistant", "content": said}, user(result, TEXT)], "max_tokens": 5}
    (prompt,) = prompts("/v1/messages", {**body, "tools": [{"name": "f", "input_schema": {}}]})
    assert [message["role"] for message in prompt.messages] == ["assistant", "tool", "user", "user"]
    assert prompt.messages[0]["tool_calls"][0]["function"] == {"arguments": {"a": 1}, "name": "f"}
    assert prompt.messages[0]["reasoning"] == "hm"
    assert prompt.messages[1] == {"role": "tool", "tool_call_id": "1", "content": [TEXT]}
    assert prompt.messages[2:] == [user(IMAGE), user(TEXT)]
    function = {"name": "f", "description": None, "parameters": {"type": "object"}}
    assert (prompt.extra["tools"], prompt.exact) == ([{"type": "function", "function": function}], True)


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "disabled"}},
        {"tool_choice": {"type": "none"}},
        {"system": "x-anthropic-billing-header: 1"},
        {"messages": [{"role": "system", "content": "a long text"}]},
        {"messages": [user({"type": "document", "title": "a long text"})]},
    ],
)
def test_what_depends_on_the_server_of_a_message_of_anthropic_is_bounded(fields: dict[str, Any]) -> None:
    (prompt,) = prompts("/v1/messages", {"messages": [user({"type": "text", "text": "a long text"})], **fields})
    assert not prompt.exact
    assert "a long text" in prompt.messages[-1]["content"][0]["text"]


def test_an_effort_asks_for_thinking() -> None:
    assert chat(user(TEXT), reasoning_effort="low").extra["enable_thinking"] is True
    assert chat(user(TEXT), reasoning_effort="none").extra["enable_thinking"] is False
    (prompt,) = prompts("/v1/responses", {"input": "hi", "reasoning": {"effort": "low"}})
    assert prompt.extra["enable_thinking"] is True


def test_tools_are_shown_as_the_server_writes_them_out() -> None:
    prompt = chat(user(TEXT), tools=[{"function": {"parameters": {}, "name": "f", "more": 1}, "type": "function"}])
    (tool,) = prompt.extra["tools"]
    assert list(tool["function"].items()) == [("name", "f"), ("description", None), ("parameters", {})]
    assert prompt.exact


def test_a_response_is_a_chat() -> None:
    picture = {"type": "input_image", "image_url": "data:,"}
    body = {"instructions": "Be brief.", "input": [user({"type": "input_text", "text": "hi"}, picture)]}
    (prompt,) = prompts("/v1/responses", {**body, "max_output_tokens": 5})
    assert [message["role"] for message in prompt.messages] == ["system", "user"]
    assert prompt.messages[1]["content"] == [TEXT, IMAGE]
    assert (prompt.exact, prompt.output_tokens) == (True, 5)
    (plain,) = prompts("/v1/responses", {"input": "hi"})
    assert plain.messages == [user(TEXT)]


def test_calls_in_a_response_belong_to_the_assistants_message() -> None:
    picture = {"type": "input_image", "image_url": "data:,"}
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "1", "output": [picture]}
    said = {
        "role": "assistant",
        "content": [{"type": "output_text", "text": "hi"}, {"type": "output_text", "text": "-"}],
    }
    (prompt,) = prompts("/v1/responses", {"input": [said, call, call, output]})
    assert [message["role"] for message in prompt.messages] == ["assistant", "tool"]
    assert (prompt.messages[0]["content"], len(prompt.messages[0]["tool_calls"])) == ([TEXT], 2)
    assert (prompt.exact, prompt.media) == (True, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"truncation": "auto"},
        {"tools": [{"type": "web_search"}]},
        {"input": [{"type": "computer_call", "text": "a long text"}]},
        {"input": [{"role": "assistant", "status": "incomplete", "content": "a long text"}]},
    ],
)
def test_what_depends_on_the_server_of_a_response_is_bounded(fields: dict[str, Any]) -> None:
    (prompt,) = prompts("/v1/responses", {"input": "a long text", **fields})
    assert not prompt.exact
    assert "a long text" in prompt.messages[-1]["content"][0]["text"]


def test_several_conversations_to_embed_are_a_prompt_each() -> None:
    found = prompts("/v1/embeddings", {"messages": [[user(TEXT)], [user(PICTURE)]]})
    assert [prompt.media for prompt in found] == [0, 1]


@pytest.mark.parametrize("path", ["/score", "/v2/embed", "/inference/v1/generate", "/v1/completions"])
def test_nothing_is_said_of_prompts_that_are_made_otherwise(path: str) -> None:
    assert path in ENDPOINTS
    assert prompts(path, {"messages": [user(TEXT)], "input": "hi"}) == ()


def test_what_a_server_is_asked_for_is_a_request_that_makes_the_same_prompt() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    fields: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f"}}], "reasoning_effort": "low"}
    prompt = chat(user(TEXT, PICTURE), {"role": "assistant", "tool_calls": [call]}, **fields)
    messages, asked = question(prompt, PICTURE)
    assert asked["chat_template_kwargs"] == {"reasoning_effort": "low", "enable_thinking": True}
    (again,) = prompts("/tokenize", {"messages": messages, **asked})
    assert (again.messages, again.extra) == (prompt.messages, prompt.extra)


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
