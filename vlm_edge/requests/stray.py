"""Stray media: data URLs in requests that are not known to carry any."""

import json
from collections.abc import Iterator
from typing import Any

from vlm_edge.errors import InvalidJson, TextTooLarge
from vlm_edge.requests.body import MAX_TEXT_BYTES, Body, Raw

# A body without any of these holds no data URL, whatever else it is.
_SIGNS = (b"base64", b"\\u")
_HEAD = 512


def holds_data_url(raw: Raw, max_text_bytes: int = MAX_TEXT_BYTES) -> bool:
    """Whether a string of the body looks like a data URL. A body that is no JSON is not ours to judge.

    Raises TextTooLarge and TooManyValues.
    """
    try:
        text = _in_utf8(raw, max_text_bytes)
        if all(text.find(sign) < 0 for sign in _SIGNS):
            return False
        body = Body.read(text, max_text_bytes)
    except (InvalidJson, UnicodeDecodeError):
        return False
    return any(_looks_like_one(string) for string in _strings(body.value))


def _in_utf8(raw: Raw, max_text_bytes: int) -> Raw:
    """Python's `json`, and so vLLM, reads UTF-16 and UTF-32 as well."""
    encoding = json.detect_encoding(bytes(raw[:4]))
    if encoding.startswith("utf-8"):
        return raw
    if len(raw) > max_text_bytes:
        raise TextTooLarge(len(raw), max_text_bytes)
    return bytes(raw).decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")


def _looks_like_one(string: str) -> bool:
    head = string.lstrip()[:_HEAD].lower()
    return head.startswith("data:") and "base64" in head


def _strings(value: Any) -> Iterator[str]:
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
