"""
OpenAI's dialect: POST /v1/chat/completions.

Which part is media is decided as vLLM decides it (renderers/chat_utils/chat_message.py): a part of known type without
`uuid` is read by its type; any other by the first media key it has, in vLLM's order. So nothing that vLLM would load
slips past in an unusual dress.
"""

from collections.abc import Iterator
from typing import Any

from vlm_edge.errors import EdgeError
from vlm_edge.requests.body import Path
from vlm_edge.requests.part import MediaPart, Modality

# Media key of a part → what it is, and the key of the URL inside it (the value may also be the URL itself). In vLLM's
# order, in which the first key that is there wins.
MEDIA_KEYS: dict[str, tuple[Modality, str]] = {
    "image_url": ("image", "url"),
    "image_pil": ("image", ""),
    "image_embeds": ("image", ""),
    "audio_embeds": ("audio", ""),
    "video_embeds": ("video", ""),
    "audio_url": ("audio", "url"),
    "input_audio": ("audio", "data"),
    "video_url": ("video", "url"),
}

KEY_OF_TYPE = {"input_image": "image_url", **{key: key for key in MEDIA_KEYS}}

TEXT_TYPES = frozenset("text thinking input_text output_text refusal tool_reference prompt_embeds".split())


def find_chat(body: dict[str, Any]) -> Iterator[MediaPart]:
    """The media of a chat request, in order, of all roles and the whole history."""
    messages = body.get("messages")
    for i, message in enumerate(messages) if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for j, part in enumerate(content) if isinstance(content, list) else ():
            if isinstance(part, dict):
                yield from find_part(part, ("messages", i, "content", j), f"messages[{i}].content[{j}]")


def find_part(part: dict[str, Any], path: Path, place: str) -> Iterator[MediaPart]:
    """The medium of a part, if it is one. Cached or embedded media have no URL."""
    key = _media_key(part)
    if key is None:
        return
    modality, inner = MEDIA_KEYS[key]
    value, where = part.get(key), (*path, key)
    if isinstance(value, dict):
        value, where = value.get(inner), (*where, inner)
    yield MediaPart(place, where, modality, value if inner and isinstance(value, str) else None)


def _media_key(part: dict[str, Any]) -> str | None:
    kind = part.get("type")
    if part.get("uuid") is None and isinstance(kind, str):
        if kind in KEY_OF_TYPE:
            return KEY_OF_TYPE[kind]
        if kind in TEXT_TYPES:
            return None
    return next((key for key in MEDIA_KEYS if key in part), None)


def error_body(error: EdgeError) -> dict[str, Any]:
    """The error as OpenAI's clients expect it."""
    return {"error": {"message": str(error), "type": error.type, "param": error.param, "code": error.code}}
