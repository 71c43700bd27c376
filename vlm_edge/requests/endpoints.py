"""Endpoints: the table path → dialect."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from vlm_edge.errors import EdgeError
from vlm_edge.requests import openai
from vlm_edge.requests.part import MediaPart


class Dialect(msgspec.Struct, frozen=True):
    """How one kind of request carries media and wants its errors."""

    find: Callable[[dict[str, Any]], Iterator[MediaPart]]
    error_body: Callable[[EdgeError], dict[str, Any]]


CHAT = Dialect(openai.find_chat, openai.error_body)

ENDPOINTS: dict[str, Dialect] = {
    "/v1/chat/completions": CHAT,
}
