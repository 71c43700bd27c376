"""OpenAI's dialect: chat/completions, also many at once, and completions; and what else is made of chat messages."""

from collections.abc import Iterator
from typing import Any

from vlm_edge.errors import EdgeError
from vlm_edge.requests.body import Path
from vlm_edge.requests.part import Context, MediaPart, find_content

# Where a message may hold a prompt already embedded.
REASONING_KEYS = ("reasoning", "reasoning_content")


def find_chat(body: dict[str, Any]) -> Iterator[MediaPart]:
    """The media of a chat request, in order, of all roles and the whole history."""
    return find_messages(body.get("messages"), ("messages",))


def find_batch(body: dict[str, Any]) -> Iterator[MediaPart]:
    """POST /v1/chat/completions/batch: a list of conversations, each a prompt of its own."""
    return find_conversations(body.get("messages"), ("messages",))


def find_completion(body: dict[str, Any]) -> Iterator[MediaPart]:
    """POST /v1/completions: prompts already embedded, one or a list."""
    value = body.get("prompt_embeds")
    for index, one in enumerate(value if isinstance(value, list) else [value]):
        if one is not None:
            path: Path = ("prompt_embeds", index) if isinstance(value, list) else ("prompt_embeds",)
            yield MediaPart(path, "prompt_embeds", path, None, Context(prompt=index), embeds=True)


def find_conversations(conversations: Any, path: Path) -> Iterator[MediaPart]:
    for prompt, messages in enumerate(conversations) if isinstance(conversations, list) else ():
        yield from find_messages(messages, (*path, prompt), prompt)


def find_messages(messages: Any, path: Path, prompt: int = 0) -> Iterator[MediaPart]:
    for index, message in enumerate(messages) if isinstance(messages, list) else ():
        if isinstance(message, dict):
            yield from find_message(message, (*path, index), prompt)


def find_message(message: dict[str, Any], path: Path, prompt: int = 0) -> Iterator[MediaPart]:
    role = message.get("role")
    context = Context(prompt, role if isinstance(role, str) else "", note="text", picture="image_url")
    yield from find_content(message.get("content"), (*path, "content"), context)
    for key in REASONING_KEYS:
        value = message.get(key)
        if isinstance(value, dict) and value.get("type") == "prompt_embeds":
            yield MediaPart((*path, key), "prompt_embeds", (*path, key), None, context, embeds=True)


def error_body(error: EdgeError) -> dict[str, Any]:
    """The error as OpenAI's clients expect it."""
    return {"error": {"message": str(error), "type": error.type, "param": error.param, "code": error.code}}
