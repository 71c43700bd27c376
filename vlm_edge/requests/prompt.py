"""
Prompt: a conversation as the chat template of its model gets it, each medium a bare `{"type": "image"}`.

After vLLM's own conversion (renderers/chat_utils, openai/chat_completion/protocol). What that does beyond this is left
out, and the prompt says so: its text can then be bounded, and not counted.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from vlm_edge.requests.as_chat import BILLING, Chat, of_anthropic, of_response
from vlm_edge.requests.part import MEDIA_KEYS, TEXT_TYPES, media_key

Message = dict[str, Any]

# Settings of a request under which its server builds the prompt in a way of its own.
OWN_WAYS = ("chat_template", "continue_final_message", "add_special_tokens", "truncate_prompt_tokens", "functions")

# What a function of a tool is told of it, in this order.
FUNCTION_KEYS = ("name", "description", "parameters", "strict", "defer_loading")
REQUIRED_KEYS = FUNCTION_KEYS[:3]

# Variables of the template that are fields of a request to /tokenize.
ASKED = ("add_generation_prompt", "tools")

TEXT_KEYS = {"refusal": "refusal", "thinking": "thinking"}

# What a part may hold by its type; the template sees what it holds besides.
PART_KEYS = frozenset(("type", "text", "uuid", "data", "file", "refusal", "thinking", "closed", "name", *MEDIA_KEYS))


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

    @property
    def shows_pictures_alone(self) -> bool:
        """And neither videos nor sounds."""
        return all(part.get("type") in ("text", "image") for message in self.messages for part in _parts(message))


def prompts(path: str, body: Mapping[str, Any]) -> Sequence[Prompt]:
    """The prompts of a request, in the order of `Context.prompt`; none where it is not known how they are made."""
    read = PROMPTS.get(path)
    try:
        return read(body) if read else ()
    except (AttributeError, KeyError, RecursionError, TypeError):  # not such a request at all: its server will say so
        return ()


def question(prompt: Prompt, medium: Message) -> tuple[Sequence[Message], Mapping[str, Any]]:
    """What to ask a server's /tokenize for its tokens: messages, with this part for each medium, and other fields."""
    fields = {name: value for name, value in prompt.extra.items() if name in ASKED}
    variables = {name: value for name, value in prompt.extra.items() if name not in ASKED}
    return [_asked(message, medium) for message in prompt.messages], {**fields, "chat_template_kwargs": variables}


def _asked(message: Message, medium: Message) -> Message:
    parts = [part if part["type"] == "text" else {**part, **medium} for part in _parts(message)]
    calls = {"tool_calls": list(map(_written, message["tool_calls"]))} if "tool_calls" in message else {}
    return {**message, "content": parts, **calls}


def _written(call: Message) -> Message:
    """A call as clients write it."""
    return {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}


def _parts(message: Message) -> Sequence[Message]:
    content = message.get("content")
    return content if isinstance(content, list) else ()


# Requests


def _chat(body: Mapping[str, Any]) -> Sequence[Prompt]:
    return [_generating(_read(body["messages"]), body)] if "messages" in body else ()


def _batch(body: Mapping[str, Any]) -> Sequence[Prompt]:
    return [_generating(_read(messages), body) for messages in body["messages"]]


def _tokenize(body: Mapping[str, Any]) -> Sequence[Prompt]:
    if "messages" not in body:
        return ()
    extra = {**_opening(body, opens=True), **_tools(body)}
    return [_conversation(_read(body["messages"]), body, extra, generates=False)]


def _embed(body: Mapping[str, Any]) -> Sequence[Prompt]:
    if "messages" not in body:
        return ()
    messages, extra = body["messages"], _opening(body, opens=False)
    several = bool(messages) and isinstance(messages[0], list)
    return [_conversation(_read(one), body, extra, generates=False) for one in (messages if several else [messages])]


def _anthropic(body: Mapping[str, Any]) -> Sequence[Prompt]:
    made = of_anthropic(body)
    return [_of(made, _read(made.body["messages"]))]


def _anthropic_count(body: Mapping[str, Any]) -> Sequence[Prompt]:
    return [msgspec.structs.replace(prompt, generates=False) for prompt in _anthropic(body)]


def _responses(body: Mapping[str, Any]) -> Sequence[Prompt]:
    made = of_response(body)
    return [_of(made, made.body["messages"])]


def _of(chat: Chat, messages: Sequence[Message]) -> Prompt:
    made = _generating(messages, chat.body)
    return msgspec.structs.replace(made, exact=made.exact and chat.exact)


def _line(line: Mapping[str, Any]) -> Sequence[Prompt]:
    """Of a file for `vllm run-batch`."""
    return prompts(line["url"], line["body"])


def _generating(messages: Sequence[Message], body: Mapping[str, Any]) -> Prompt:
    asked = _whole(body.get("max_completion_tokens")) or _whole(body.get("max_tokens"))
    extra = {**_opening(body, opens=True), **_efforts(body), **_tools(body)}
    made = _conversation(list(map(_renamed, messages)), body, extra)
    return msgspec.structs.replace(made, output_tokens=asked)


def _whole(asked: Any) -> int | None:
    """A number as lenient servers read it, also from a string."""
    try:
        return int(float(asked)) if isinstance(asked, str | int | float) else None
    except (ValueError, OverflowError):
        return None


def _read(messages: Sequence[Message]) -> Sequence[Message]:
    return list(map(_as_read, messages))


def _as_read(message: Message) -> Message:
    """With what its server keeps of calls, in its order."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": list(map(_call_as_read, calls))} if calls else message


def _call_as_read(call: Message) -> Message:
    return {**_first(call, ("id", "function", "type")), "function": _first(call["function"], ("arguments", "name"))}


def _first(value: Message, keys: tuple[str, ...]) -> Message:
    """With these keys before the others."""
    return {**{key: value[key] for key in keys if key in value}, **value}


def _renamed(message: Message) -> Message:
    """With `reasoning` by its one name."""
    old = message.get("reasoning_content")
    return message if old is None or message.get("reasoning") is not None else {**message, "reasoning": old}


def _conversation(
    messages: Sequence[Message], body: Mapping[str, Any], extra: Mapping[str, Any], *, generates: bool = True
) -> Prompt:
    plain = [_message(message) for message in messages]
    exact = _is_plain(body) and all(map(_is_exact, messages, plain))
    return Prompt(messages=plain, extra=extra, generates=generates, exact=exact)


def _is_plain(body: Mapping[str, Any]) -> bool:
    """Whether no field makes the prompt another; whether tools are shown that must not be called, is for the server."""
    tools = body.get("tools") or ()
    hidden = bool(tools) and (body.get("tool_choice") == "none" or "tools" in _kwargs(body))
    opens = body.get("add_generation_prompt")
    odd = opens is not None and not isinstance(opens, bool)
    return not (hidden or odd) and all(map(_is_tool, tools)) and not any(body.get(key) for key in OWN_WAYS)


# Variables of the template


def _opening(body: Mapping[str, Any], *, opens: bool) -> dict[str, Any]:
    """opens: whether a turn of the assistant is begun behind the messages. A field of its own is no variable."""
    asked = body.get("add_generation_prompt")
    return {**_kwargs(body), "add_generation_prompt": opens if asked is None else bool(asked)}


def _kwargs(body: Mapping[str, Any]) -> dict[str, Any]:
    """Its server leaves out those that are not set."""
    kwargs = body.get("chat_template_kwargs")
    given = kwargs if isinstance(kwargs, dict) else {}
    return {name: value for name, value in given.items() if value is not None and value != "auto"}


def _efforts(body: Mapping[str, Any]) -> dict[str, Any]:
    """Who asks for some effort, asks for thinking."""
    named = {name: body[name] for name in ("documents", "reasoning_effort") if body.get(name) is not None}
    if "reasoning_effort" in named and "enable_thinking" not in _kwargs(body):
        named["enable_thinking"] = named["reasoning_effort"] != "none"
    return named


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    tools, functions = body.get("tools"), body.get("functions")
    shown = {} if tools is None else {"tools": [_shown(tool) if _is_tool(tool) else tool for tool in tools]}
    return {**shown, **({"functions": functions} if functions else {})}


def _is_tool(tool: Any) -> bool:
    return (
        isinstance(tool, dict) and tool.get("type", "function") == "function" and isinstance(tool.get("function"), dict)
    )


def _shown(tool: Message) -> Message:
    """As its server writes it out again."""
    function = {"defer_loading": tool.get("defer_loading"), **tool["function"]}
    shown = {key: function.get(key) for key in FUNCTION_KEYS if key in REQUIRED_KEYS or function.get(key) is not None}
    deferred = {} if tool.get("defer_loading") is None else {"defer_loading": tool["defer_loading"]}
    return {"type": "function", "function": shown, **deferred}


# Messages


def _message(message: Message) -> Message:
    content, role = message.get("content"), _name(message["role"])
    made: Message = {"role": role}
    if isinstance(content, str):
        made["content"] = [{"type": "text", "text": content}]
    else:
        made["content"] = [_part(part) for part in content or ()]
    if isinstance(message.get("name"), str):
        made["name"] = message["name"]
    return {**made, **_OF_ROLE[role](message)} if role in _OF_ROLE else made


def _name(role: Any) -> str:
    if not isinstance(role, str):
        raise TypeError("a role is a string")
    return role


def _of_assistant(message: Message) -> Message:
    """What an assistant's message may hold besides."""
    made: Message = {}
    if message.get("tool_calls"):
        made["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    if message.get("reasoning") is not None:
        made["reasoning"] = made["reasoning_content"] = message["reasoning"]
    return made


def _of_tool(message: Message) -> Message:
    return {"tool_call_id": message["tool_call_id"]} if "tool_call_id" in message else {}


def _of_developer(message: Message) -> Message:
    return {"tools": message.get("tools")}


_OF_ROLE: dict[str, Callable[[Message], Message]] = {
    "assistant": _of_assistant,
    "tool": _of_tool,
    "developer": _of_developer,
}


def _call(call: Message) -> Message:
    """Templates want the arguments as an object."""
    function = call["function"]
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(text: Any) -> Message:
    try:
        parsed = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _part(part: Any) -> Message:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    more = {name: value for name, value in part.items() if name not in PART_KEYS}
    key = media_key(part, part.get("uuid"))
    if key is not None:
        return {"type": MEDIA_KEYS[key][0], **more}
    kind = part.get("type", "text")
    text = part.get(TEXT_KEYS.get(kind, "text"))
    known = isinstance(text, str)
    return {"type": "text", "text": text, **more} if known else {"type": "text", "text": _json(part)}


def _json(part: Message) -> str:
    return json.dumps(part, ensure_ascii=False)


def _is_exact(message: Message, made: Message) -> bool:
    """Whether a message holds only what is converted here."""
    parts = message.get("content")
    known = all(map(_is_known, parts)) if isinstance(parts, list) else parts is None or isinstance(parts, str)
    own = message.get("tools") or "task" in message  # of developers, and of one model
    return (
        known
        and not own
        and not any(part["type"] in ("audio", "prompt_embeds") for part in made["content"])
        and (message["role"] != "system" or not any(map(_is_billing, made["content"])))
    )


def _is_billing(part: Message) -> bool:
    text: str = part.get("text", "")
    return text.startswith(BILLING)


def _is_known(part: Any) -> bool:
    if isinstance(part, str) or media_key(part, part.get("uuid")) is not None:
        return True
    kind = part.get("type")
    return kind in TEXT_TYPES and isinstance(part.get(TEXT_KEYS.get(kind, "text")), str)


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
