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

# Key of a part → where its URL stands (the key's value may also be the URL itself), and what it is.
MEDIA_KEYS: dict[str, tuple[str, Modality]] = {
    "image_url": ("url", "image"),
    "audio_url": ("url", "audio"),
    "input_audio": ("data", "audio"),
    "video_url": ("url", "video"),
}

KEY_OF_TYPE = {"input_image": "image_url", **{key: key for key in MEDIA_KEYS}}

TYPES_WITHOUT_URL = frozenset(
    "text thinking input_text output_text refusal tool_reference image_embeds image_pil audio_embeds video_embeds "
    "prompt_embeds".split()
)

# vLLM's order, the keys that hold no URL included: the first present wins.
FIRST_KEY = (
    "image_url image_pil image_embeds audio_embeds video_embeds prompt_embeds audio_url input_audio video_url"
).split()


def find_chat(body: dict[str, Any]) -> Iterator[MediaPart]:
    """The media of a chat request, in order, of all roles and the whole history."""
    messages = body.get("messages")
    for i, message in enumerate(messages) if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for j, part in enumerate(content) if isinstance(content, list) else ():
            if isinstance(part, dict):
                yield from find_part(part, ("messages", i, "content", j), f"messages[{i}].content[{j}]")


def find_part(part: dict[str, Any], path: Path, place: str) -> Iterator[MediaPart]:
    key = _media_key(part)
    if key not in MEDIA_KEYS:
        return
    inner, modality = MEDIA_KEYS[key]
    value, where = part.get(key), (*path, key)
    if isinstance(value, dict):
        value, where = value.get(inner), (*where, inner)
    if isinstance(value, str):
        yield MediaPart(place, where, modality, value)


def _media_key(part: dict[str, Any]) -> str | None:
    kind = part.get("type")
    if part.get("uuid") is None and isinstance(kind, str):
        if kind in KEY_OF_TYPE:
            return KEY_OF_TYPE[kind]
        if kind in TYPES_WITHOUT_URL:
            return None
    return next((key for key in FIRST_KEY if part.get(key) is not None), None)


def error_body(error: EdgeError) -> dict[str, Any]:
    """The error as OpenAI's clients expect it."""
    return {"error": {"message": str(error), "type": error.type, "param": error.param, "code": error.code}}
