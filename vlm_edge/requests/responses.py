"""OpenAI's second dialect: POST /v1/responses."""

from collections.abc import Iterator, Sequence
from typing import Any

from vlm_edge.requests.body import Path
from vlm_edge.requests.part import Context, Edit, MediaPart, find_content

TOOL_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})


def find(body: dict[str, Any]) -> Iterator[MediaPart]:
    """The media of messages and of tools' answers. Those of a `previous_response_id` lie in the server's own store."""
    items = body.get("input")
    for index, item in enumerate(items) if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield from _find_item(item, ("input", index))


def _find_item(item: dict[str, Any], path: Path) -> Iterator[MediaPart]:
    kind = item.get("type")
    if isinstance(kind, str) and kind in TOOL_OUTPUTS:
        yield from find_content(item.get("output"), (*path, "output"), _context("tool"))
    elif not _is_told_again(item):
        yield from find_content(item.get("content"), (*path, "content"), _context(item.get("role")))


def _is_told_again(item: dict[str, Any]) -> bool:
    """Whether vLLM takes the first text of an earlier answer and nothing else (openai/responses/utils.py)."""
    content = item.get("content")
    first = content[0] if isinstance(content, list) and content else None
    return item.get("role") == "assistant" and isinstance(first, dict) and isinstance(first.get("text"), str)


def _context(role: Any) -> Context:
    # A note before other parts of an earlier answer would be all that vLLM reads of it.
    note = "" if role == "assistant" else "input_text"
    return Context(role=role if isinstance(role, str) else "", note=note, plain=_without_uuid, picture="input_image")


def _without_uuid(part: dict[str, Any], path: Path, _: str) -> Sequence[Edit]:
    """Without a uuid vLLM knows but one spelling, and wants `detail` in the answers of tools."""
    if part.get("type") != "input_image" or not isinstance(part.get("image_url"), str):
        return ()
    return (Edit((*path, "uuid"), b"null" if "detail" in part else b'null,"detail":"auto"'),)
