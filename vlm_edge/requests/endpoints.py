"""Endpoints: the table path → dialect."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from vlm_edge.errors import EdgeError
from vlm_edge.requests import openai
from vlm_edge.requests.body import Raw
from vlm_edge.requests.part import MediaPart


class Dialect(msgspec.Struct, frozen=True):
    """How one kind of request carries media and wants its errors."""

    find: Callable[[dict[str, Any]], Iterator[MediaPart]]
    error_body: Callable[[EdgeError], dict[str, Any]]
    lists: int  # JSON lists around any of its media

    def holds_none(self, raw: Raw) -> bool:
        """Whether a body has too few lists to hold media, which is seen at a glance; most requests are text.

        False where it takes parsing to know, and for what does not look like an object with lists in it.
        """
        if not isinstance(raw, bytes) or raw[:1] != b"{" or raw[-1:] != b"}":
            return False
        at = first = raw.find(b"[")
        for _ in range(self.lists - 1):  # finding takes a tenth of counting
            at = raw.find(b"[", at + 1) if at >= 0 else at
        return at < 0 <= first


CHAT_PATH = "/v1/chat/completions"

CHAT = Dialect(openai.find_chat, openai.error_body, lists=2)  # messages, content

ENDPOINTS: dict[str, Dialect] = {
    CHAT_PATH: CHAT,
}
