"""
Anthropic's dialect: POST /v1/messages and /v1/messages/count_tokens.

What is a picture, and which are read, is as in vLLM's entrypoints/anthropic/serving.py. Documents it does not read: in
a message it refuses them, in the answer of a tool it passes over them.
"""

from collections.abc import Iterator
from typing import Any

from vlm_edge.errors import EdgeError
from vlm_edge.requests.body import Path
from vlm_edge.requests.part import Context, MediaPart

# https://docs.anthropic.com/en/api/errors
_ERROR_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}


def find(body: dict[str, Any]) -> Iterator[MediaPart]:
    """Pictures of users and assistants, and those in the answers of tools to users. System messages are text alone."""
    messages = body.get("messages")
    for index, message in enumerate(messages) if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") != "system":
            yield from _find_blocks(message.get("content"), ("messages", index, "content"), message.get("role"))


def _find_blocks(blocks: Any, path: Path, role: Any) -> Iterator[MediaPart]:
    for index, block in enumerate(blocks) if isinstance(blocks, list) else ():
        if not isinstance(block, dict):
            continue
        here = (*path, index)
        if block.get("type") == "image":
            yield from _find_image(block, here, role)
        elif block.get("type") == "document":
            yield from _find_document(block, here, role)
        elif block.get("type") == "tool_result" and role == "user":
            yield from _find_blocks(block.get("content"), (*here, "content"), "tool")


def _find_image(block: dict[str, Any], path: Path, role: Any) -> Iterator[MediaPart]:
    source, here = block.get("source"), (*path, "source")
    if not isinstance(source, dict) or _is_dropped(source, role):
        return
    context = _context(role)
    if source.get("type") == "url":
        yield MediaPart(path, "image", (*here, "url"), _text(source.get("url")), context)
    else:
        kind = (*here, "media_type") if "media_type" in source else None
        yield MediaPart(path, "image", (*here, "data"), _text(source.get("data")), context, bare=True, media_type=kind)


def _find_document(block: dict[str, Any], path: Path, role: Any) -> Iterator[MediaPart]:
    """A file. Sources of other types hold text, or blocks, or name a file that lies elsewhere."""
    source, here = block.get("source"), (*path, "source")
    if not isinstance(source, dict) or source.get("type") not in ("base64", "url"):
        return
    bare = source["type"] == "base64"
    key = "data" if bare else "url"
    url, kind = source.get(key), (*here, "media_type") if bare and "media_type" in source else None
    if url and isinstance(url, str):
        yield MediaPart(path, "image", (*here, key), url, _context(role), bare=bare, media_type=kind, document=True)


def _context(role: Any) -> Context:
    return Context(role=role if isinstance(role, str) else "", note="text", picture="image")


def _is_dropped(source: dict[str, Any], role: Any) -> bool:
    """vLLM passes over an empty source; in the answer of a tool, over one without its URL."""
    if role == "tool":
        return source.get("type") == "url" and not source.get("url")
    return not source


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def error_body(error: EdgeError) -> dict[str, Any]:
    """The error as Anthropic's clients expect it."""
    other = "invalid_request_error" if error.status < 500 else "api_error"
    return {"type": "error", "error": {"type": _ERROR_TYPES.get(error.status, other), "message": str(error)}}
