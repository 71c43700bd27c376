"""Cohere's dialects: POST /v2/embed and /cohere/v2/chat."""

from collections.abc import Iterator
from typing import Any

from vlm_edge.errors import EdgeError
from vlm_edge.requests.body import Path
from vlm_edge.requests.part import Context, MediaPart, find_url


def find_embed(body: dict[str, Any]) -> Iterator[MediaPart]:
    """Pictures alone, or inputs of text and pictures; each is embedded for itself.

    The pages of one of the pictures alone would be embedded apart: there is no room for them.
    """
    images, inputs = body.get("images"), body.get("inputs")
    for prompt, url in enumerate(images) if isinstance(images, list) else ():
        yield from find_url(url, ("images", prompt), "image", Context(prompt))
    for prompt, one in enumerate(inputs) if isinstance(inputs, list) else ():
        if isinstance(one, dict):
            context = Context(prompt, picture="image_url")
            yield from _find_blocks(one.get("content"), ("inputs", prompt, "content"), context)


def find_chat(body: dict[str, Any]) -> Iterator[MediaPart]:
    """Pictures of users; of the other roles vLLM reads text alone (entrypoints/cohere/serving.py)."""
    messages = body.get("messages")
    for index, message in enumerate(messages) if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") == "user":
            context = Context(role="user", note="text", picture="image_url")
            yield from _find_blocks(message.get("content"), ("messages", index, "content"), context)


def _find_blocks(blocks: Any, path: Path, context: Context) -> Iterator[MediaPart]:
    for index, block in enumerate(blocks) if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("type") == "image_url" and isinstance(block.get("image_url"), dict):
            url = block["image_url"].get("url")
            source = (*path, index, "image_url", "url")
            yield MediaPart((*path, index), "image", source, url if isinstance(url, str) else None, context)


def chat_error_body(error: EdgeError) -> dict[str, Any]:
    """The error as Cohere's clients expect it."""
    return {"message": str(error), "id": None}
