"""
Prompt: a conversation as the chat template of its model gets it, each medium a bare `{"type": "image"}`.

After vLLM's own conversion (renderers/chat_utils, entrypoints/anthropic, entrypoints/openai/responses). What that does
beyond this is left out, and the prompt says so: its text can then be bounded, and not counted.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from vlm_edge.requests.part import MEDIA_KEYS, TEXT_TYPES, media_key

Message = dict[str, Any]

# What a template may be given besides the messages.
VARIABLES = ("documents", "reasoning_effort", "tools", "functions")
# Settings of a request under which its server builds the prompt in a way of its own.
OWN_WAYS = (
    "chat_template",
    "continue_final_message",
    "add_special_tokens",
    "tools",
    "functions",
    "thinking",
    "reasoning",
)

TEXT_KEYS = {"refusal": "refusal", "thinking": "thinking"}
CHAT_ROLES = frozenset({"system", "user", "assistant", "tool"})


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """extra: more variables of the template. output_tokens: as many as the client asks for. generates: whether there is
    an answer at all. exact: whether its server makes of it what stands here."""

    messages: Sequence[Message]
    extra: Mapping[str, Any] = {}
    output_tokens: int | None = None
    generates: bool = True
    exact: bool = True

    @property
    def media(self) -> int:
        """Pictures, videos and sounds in it."""
        return sum(part.get("type") != "text" for message in self.messages for part in _parts(message))


def prompts(path: str, body: Mapping[str, Any]) -> Sequence[Prompt]:
    """The prompts of a request, in the order of `Context.prompt`; none where it is not known how they are made."""
    read = PROMPTS.get(path)
    try:
        return read(body) if read else ()
    except (AttributeError, KeyError, RecursionError, TypeError):  # not such a request at all: its server will say so
        return ()


def without_media(prompt: Prompt, placeholder: str) -> Sequence[Message]:
    """Its messages with a text in the place of each medium."""
    text = {"type": "text", "text": placeholder}
    return [
        {**message, "content": [part if part.get("type") == "text" else text for part in _parts(message)]}
        if isinstance(message.get("content"), list)
        else message
        for message in prompt.messages
    ]


def _parts(message: Message) -> Sequence[Message]:
    content = message.get("content")
    return content if isinstance(content, list) else ()


# Chat


def _chat(body: Mapping[str, Any], *, generates: bool = True, opens: bool = True) -> Sequence[Prompt]:
    return [_conversation(body["messages"], body, generates=generates, opens=opens)] if "messages" in body else ()


def _batch(body: Mapping[str, Any]) -> Sequence[Prompt]:
    return [_conversation(messages, body) for messages in body["messages"]]


def _tokenize(body: Mapping[str, Any]) -> Sequence[Prompt]:
    return _chat(body, generates=False)


def _embed(body: Mapping[str, Any]) -> Sequence[Prompt]:
    return _chat(body, generates=False, opens=False)


def _conversation(
    messages: Sequence[Message], body: Mapping[str, Any], *, generates: bool = True, opens: bool = True
) -> Prompt:
    """opens: whether a turn of the assistant is begun behind the messages."""
    plain = [_message(message) for message in messages]
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    return Prompt(
        messages=plain,
        extra=_extra(body, opens=opens),
        output_tokens=asked if isinstance(asked, int) else None,
        generates=generates,
        exact=_is_plain(body) and all(map(_is_exact, messages, plain)),
    )


def _extra(body: Mapping[str, Any], *, opens: bool) -> dict[str, Any]:
    kwargs = body.get("chat_template_kwargs")
    given = {name: body[name] for name in VARIABLES if body.get(name) is not None}
    asked = body.get("add_generation_prompt")
    return {  # in vLLM's order: what has a field of its own is not a variable
        **(kwargs if isinstance(kwargs, dict) else {}),
        "add_generation_prompt": opens if asked is None else bool(asked),
        **given,
    }


def _is_plain(body: Mapping[str, Any]) -> bool:
    return not any(body.get(key) for key in OWN_WAYS)


def _message(message: Message) -> Message:
    content = message.get("content")
    made: Message = {"role": _name(message["role"])}
    if isinstance(content, str):
        made["content"] = [{"type": "text", "text": content}]
    else:
        made["content"] = [_part(part) for part in content or ()]
    if message["role"] == "assistant":
        made |= _said(message)
    for name in ("name", "tool_call_id"):
        if isinstance(message.get(name), str):
            made[name] = message[name]
    return made


def _name(role: Any) -> str:
    if not isinstance(role, str):
        raise TypeError("a role is a string")
    return role


def _said(message: Message) -> Message:
    """What an assistant's message may hold besides."""
    made: Message = {}
    if message.get("tool_calls"):
        made["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    reasoning = message.get("reasoning", message.get("reasoning_content"))
    if reasoning is not None:
        made["reasoning"] = made["reasoning_content"] = reasoning
    return made


def _call(call: Message) -> Message:
    """Templates want the arguments as an object."""
    arguments = call["function"].get("arguments")
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        parsed = None
    return {**call, "function": {**call["function"], "arguments": parsed if isinstance(parsed, dict) else {}}}


def _part(part: Any) -> Message:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    key = media_key(part, part.get("uuid"))
    if key is not None:
        return {"type": MEDIA_KEYS[key][0]}
    kind = part.get("type", "text")
    text = part.get(TEXT_KEYS.get(kind, "text"))
    return {"type": "text", "text": text if isinstance(text, str) else json.dumps(part, ensure_ascii=False)}


def _is_exact(message: Message, made: Message) -> bool:
    """Whether a message holds only what is converted here, and in a role that every template knows."""
    if message["role"] not in CHAT_ROLES or "task" in message:
        return False
    parts = message.get("content")
    known = all(map(_is_known, parts)) if isinstance(parts, list) else parts is None or isinstance(parts, str)
    texts = [part["text"] for part in made["content"] if part["type"] == "text"]
    sounds = any(part["type"] in ("audio", "prompt_embeds") for part in made["content"])
    return known and not sounds and not any(text.startswith("x-anthropic-billing-header") for text in texts)


def _is_known(part: Any) -> bool:
    if isinstance(part, str) or media_key(part, part.get("uuid")) is not None:
        return True
    kind = part.get("type")
    return kind in TEXT_TYPES and isinstance(part.get(TEXT_KEYS.get(kind, "text")), str)


# Others, made into chat


def _anthropic(body: Mapping[str, Any], *, generates: bool = True) -> Sequence[Prompt]:
    said = (_block_message(message) for message in body["messages"])
    messages = [*_system(body.get("system")), *(one for one in said if one["content"] or one["role"] != "user")]
    exact = all(map(_is_simple, body["messages"]))
    made = _conversation(messages, body, generates=generates)
    return [msgspec.structs.replace(made, exact=made.exact and exact and not body.get("output_config"))]


def _anthropic_count(body: Mapping[str, Any]) -> Sequence[Prompt]:
    return _anthropic(body, generates=False)


def _system(system: Any) -> Iterator[Message]:
    text = system if isinstance(system, str) else "".join(block.get("text", "") for block in system or ())
    if text:
        yield {"role": "system", "content": text}


def _block_message(message: Message) -> Message:
    """Without empty texts; a user's message of nothing else is left out."""
    content = message["content"]
    if isinstance(content, str):
        return {"role": message["role"], "content": content or [{"type": "text", "text": ""}]}
    blocks = [_block(block) for block in content if block != {"type": "text", "text": ""}]
    return {"role": message["role"], "content": blocks}


def _block(block: Any) -> Message:
    if isinstance(block, dict) and block.get("type") == "image":
        return {"type": "image_url", "image_url": {"url": ""}}
    if isinstance(block, dict) and block.get("type") == "text":
        return {"type": "text", "text": block["text"]}
    return {"type": "text", "text": json.dumps(block, ensure_ascii=False)}


def _is_simple(message: Message) -> bool:
    """Of texts and pictures alone: calls of tools and their answers become messages of their own."""
    content = message["content"]
    return message["role"] in ("user", "assistant") and (
        isinstance(content, str) or all(block.get("type") in ("text", "image") for block in content)
    )


def _responses(body: Mapping[str, Any]) -> Sequence[Prompt]:
    asked, items = body.get("max_output_tokens"), body["input"]
    inputs = [{"role": "user", "content": items}] if isinstance(items, str) else items
    exact = all(map(_is_simple_item, inputs))
    messages = [*_system(body.get("instructions")), *map(_item_message, inputs)]
    made = _conversation(messages, body)
    output_tokens = asked if isinstance(asked, int) else None
    return [msgspec.structs.replace(made, output_tokens=output_tokens, exact=made.exact and exact)]


def _item_message(item: Message) -> Message:
    if "role" in item and "content" in item:
        return item
    parts = item.get("output") if isinstance(item.get("output"), list) else [item]
    return {"role": "user", "content": [_item_part(part) for part in parts or ()]}


def _item_part(part: Any) -> Any:
    known = isinstance(part, dict) and (media_key(part, part.get("uuid")) or isinstance(part.get("text"), str))
    return part if known else json.dumps(part, ensure_ascii=False)


def _is_simple_item(item: Message) -> bool:
    said = item.get("role") == "assistant" and not isinstance(item.get("content"), str)
    return item.get("type", "message") == "message" and "role" in item and not said


def _line(line: Mapping[str, Any]) -> Sequence[Prompt]:
    """Of a file for `vllm run-batch`."""
    return prompts(line["url"], line["body"])


PROMPTS: dict[str, Callable[[Mapping[str, Any]], Sequence[Prompt]]] = {
    "/v1/chat/completions": _chat,
    "/v1/chat/completions/render": _chat,
    "/v1/chat/completions/batch": _batch,
    "/v1/messages": _anthropic,
    "/v1/messages/render": _anthropic,
    "/v1/messages/count_tokens": _anthropic_count,
    "/v1/responses": _responses,
    "/v1/responses/render": _responses,
    "/v1/embeddings": _embed,
    "/pooling": _embed,
    "/classify": _embed,
    "/tokenize": _tokenize,
    "/invocations": _chat,
    "run-batch": _line,
}
