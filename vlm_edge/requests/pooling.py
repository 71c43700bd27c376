"""Dialects of models that embed, classify and score: embeddings, pooling, classify, score and rerank."""

from collections.abc import Iterator
from typing import Any

from vlm_edge.requests.body import Path
from vlm_edge.requests.openai import find_conversations, find_messages
from vlm_edge.requests.part import Context, MediaPart, find_content

# What is scored against what. Whichever pair of them vLLM takes, it is among these.
QUERY_KEYS = ("queries", "query", "data_1", "text_1")
DOCUMENT_KEYS = ("documents", "items", "data_2", "text_2")


def find_embeddings(body: dict[str, Any]) -> Iterator[MediaPart]:
    """POST /v1/embeddings: one conversation or several, in `messages`; without those, in `input`."""
    key = "messages" if "messages" in body else "input"
    value = body.get(key)
    one = isinstance(value, list) and not any(isinstance(item, list) for item in value)
    return find_messages(value, (key,)) if one else find_conversations(value, (key,))


def find_scores(body: dict[str, Any]) -> Iterator[MediaPart]:
    """Score and rerank: each side a text, `{"content": [parts]}`, or a list of them."""
    for key in QUERY_KEYS:
        yield from _find_side(body.get(key), (key,))
    for key in DOCUMENT_KEYS:
        yield from _find_side(body.get(key), (key,))


def _find_side(side: Any, path: Path) -> Iterator[MediaPart]:
    """A list is paired off one by one; a single one goes with each of the other side."""
    if isinstance(side, dict):
        yield from find_content(side.get("content"), (*path, "content"), Context(None, picture="image_url"))
    for index, one in enumerate(side) if isinstance(side, list) else ():
        if isinstance(one, dict):
            prompt = index if len(side) > 1 else None
            context = Context(prompt, picture="image_url")
            yield from find_content(one.get("content"), (*path, index, "content"), context)
