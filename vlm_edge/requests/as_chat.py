"""
As chat: requests of Anthropic's dialect and of OpenAI's second one, as the chat requests that vLLM makes of them.

After entrypoints/anthropic/serving.py and entrypoints/openai/responses/utils.py. What becomes of the rest depends on
the server: it is put in as text, so that a bound holds it, and what was made is not called exact.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vlm_edge.requests.part import media_key

Message = dict[str, Any]
Block = Mapping[str, Any]

PICTURE: Message = {"type": "image_url", "image_url": {"url": ""}}
THOUGHTS = ("redacted_thinking",)  # blocks that are passed over
DONE = (None, "completed")
BILLING = "x-anthropic-billing-header"  # begins a line that clients of Anthropic's write and vLLM takes out


class Chat(NamedTuple):
    """body: what the request is as one of chat/completions. exact: whether nothing but that is in it."""

    body: Mapping[str, Any]
    exact: bool


# Anthropic


def of_anthropic(body: Mapping[str, Any]) -> Chat:
    said = [_said(message) for message in body["messages"]]
    effort = (body.get("output_config") or {}).get("effort")
    made = {
        "messages": [*_system(body.get("system")), *(one for turn in said for one in turn.messages)],
        "tools": None if body.get("tools") is None else list(map(_anthropic_tool, body["tools"])),
        "chat_template_kwargs": body.get("chat_template_kwargs"),
        "reasoning_effort": effort,
        "max_tokens": body.get("max_tokens"),
    }
    return Chat(made, all(turn.exact for turn in said) and _is_plain(body))


def _is_plain(body: Mapping[str, Any]) -> bool:
    """Whether neither thinking nor tools are switched off, and nothing is taken out: how, is for the server to say."""
    thinking, choice, system = body.get("thinking") or {}, body.get("tool_choice") or {}, body.get("system")
    texts = [system] if isinstance(system, str) else [block.get("text", "") for block in system or ()]
    on = thinking.get("type") != "disabled" and choice.get("type") != "none"
    return on and not any(text.startswith(BILLING) for text in texts)


def _system(system: Any) -> Iterator[Message]:
    text = system if isinstance(system, str) else "".join(block.get("text", "") for block in system or ())
    if text:
        yield {"role": "system", "content": text}


def _anthropic_tool(tool: Block) -> Message:
    schema = tool.get("input_schema") or {}
    kept = {name: tool[name] for name in ("strict", "defer_loading") if tool.get(name) is not None}
    parameters = schema if "type" in schema else {**schema, "type": "object"}
    return _tool({"name": tool["name"], "description": tool.get("description"), "parameters": parameters, **kept})


def _tool(function: Message) -> Message:
    return {"type": "function", "function": function}


class _Turn(NamedTuple):
    messages: Sequence[Message]
    exact: bool


def _said(message: Message) -> _Turn:
    """The answers of tools come before what else a message says; a user's message without anything is left out."""
    role, content = message["role"], message["content"]
    if isinstance(content, str):
        return _Turn([{"role": role, "content": content}], role != "system")
    blocks = [block for block in content if block.get("text") != "" or block["type"] != "text"]
    answers = [one for block in blocks if _is_answer(block, role) for one in _answer(block)]
    parts = [part for block in blocks if not _is_answer(block, role) for part in _parts(block)]
    calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
    thoughts = [block["thinking"] for block in blocks if block["type"] == "thinking"]
    said = {
        "role": role,
        **({"content": parts} if parts else {}),
        **({"tool_calls": calls} if calls else {}),
        **({"reasoning": "".join(thoughts)} if thoughts else {}),
    }
    exact = role != "system" and all(_is_known(block, role) for block in blocks)
    return _Turn([*answers, said] if parts or role != "user" else answers, exact)


def _is_answer(block: Block, role: str) -> bool:
    return block["type"] == "tool_result" and role == "user"


def _is_known(block: Block, role: str) -> bool:
    if _is_answer(block, role):
        return all(inner.get("type") in ("text", "image") for inner in _inner(block))
    named = block["type"] != "tool_use" or bool(block.get("id"))  # else its server makes one up
    return named and block["type"] in ("text", "image", "tool_use", "thinking", *THOUGHTS)


def _parts(block: Block) -> Iterator[Message]:
    kind = block["type"]
    if kind == "text":
        yield {"type": "text", "text": block["text"]}
    elif kind == "image":
        yield from [PICTURE] if block.get("source") else []
    elif kind not in ("tool_use", "thinking", *THOUGHTS):
        yield {"type": "text", "text": json.dumps(block, ensure_ascii=False)}


def _call(block: Block) -> Message:
    function = {"name": block.get("name") or "", "arguments": block.get("input") or {}}
    return {"id": block.get("id") or "", **_tool(function)}


def _answer(block: Block) -> Iterator[Message]:
    """Its text, and its pictures in a message of the user's."""
    inner = _inner(block)
    text = "\n".join(one.get("text", "") for one in inner if one.get("type") == "text")
    rest = [one for one in inner if one.get("type") not in ("text", "image")]
    texts = [text, *(json.dumps(one, ensure_ascii=False) for one in rest)]
    yield {"role": "tool", "tool_call_id": block.get("tool_use_id") or "", "content": "\n".join(texts)}
    pictures = [PICTURE for one in inner if one.get("type") == "image"]
    if pictures:
        yield {"role": "user", "content": pictures}


def _inner(block: Block) -> Sequence[Block]:
    content = block.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [one for one in content or () if isinstance(one, dict)]


# Responses


def of_response(body: Mapping[str, Any]) -> Chat:
    items = body["input"]
    inputs = [{"role": "user", "content": items}] if isinstance(items, str) else items
    tools, messages = body.get("tools") or [], list(_system(body.get("instructions")))
    for item in inputs:
        _add(item, messages)
    made = {
        "messages": messages,
        "tools": list(map(_flat_tool, tools)) or None,
        "chat_template_kwargs": body.get("chat_template_kwargs"),
        "reasoning_effort": (body.get("reasoning") or {}).get("effort"),
        "max_tokens": body.get("max_output_tokens"),
    }
    plain = body.get("tool_choice") != "none" and body.get("truncation") in (None, "disabled")
    known = all(map(_is_known_item, inputs)) and all(tool.get("type") == "function" for tool in tools)
    done = not inputs or inputs[-1].get("status") in DONE
    return Chat(made, plain and known and done)


def _flat_tool(tool: Block) -> Message:
    if tool.get("type") != "function":
        return {"tool": tool}
    return _tool({name: value for name, value in tool.items() if name != "type"})


def _is_known_item(item: Block) -> bool:
    kind = item.get("type", "message")
    if kind == "function_call":
        return not item.get("namespace") and isinstance(item.get("arguments"), str)
    return kind == "function_call_output" or (kind == "message" and "role" in item)


def _add(item: Message, messages: list[Message]) -> None:
    """An item is a message, or a part of the assistant's last one."""
    kind, last = item.get("type"), messages[-1] if messages and messages[-1]["role"] == "assistant" else None
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "function": function, "type": "function"}
        message = last or _added(messages, {"role": "assistant"})
        message["tool_calls"] = [*message.get("tool_calls", ()), call]
    elif kind == "function_call_output":
        messages.append({"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")})
    elif item.get("role") == "assistant" and (text := _first_text(item.get("content"))) is not None:
        message = last if last and "content" not in last else _added(messages, {"role": "assistant"})
        message["content"] = text
    else:
        messages.append(dict(item) if "role" in item else _unknown(item))


def _added(messages: list[Message], message: Message) -> Message:
    messages.append(message)
    return message


def _first_text(content: Any) -> str | None:
    """Of an earlier answer vLLM takes no more."""
    if isinstance(content, str):
        return content
    text = content[0].get("text") if content else None
    return text if isinstance(text, str) else None


def _unknown(item: Message) -> Message:
    parts = item.get("output") if isinstance(item.get("output"), list) else [item]
    return {"role": "user", "content": [_known_part(part) for part in parts or ()]}


def _known_part(part: Any) -> Any:
    known = isinstance(part, dict) and (media_key(part, part.get("uuid")) or isinstance(part.get("text"), str))
    return part if known else json.dumps(part, ensure_ascii=False)
