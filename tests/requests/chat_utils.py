"""
vLLM's reading of a content part, written down once more: what is loaded, from where, under which name.

After `_parse_chat_message_content_mm_part` and `_parse_chat_message_content_part` of vllm/renderers/chat_utils.py
(0.32), branch by branch and in their order, so that what our own code finds can be held against it.
"""

from typing import Any, NamedTuple


class Refused(Exception):
    """vLLM answers 400 (or fails)."""


class Loaded(NamedTuple):
    modality: str
    url: Any  # what the connector is asked for; embeddings as they are; None for a look-up in the cache
    uuid: str | None


MODALITIES = {
    "image_url": "image",
    "input_image": "image",
    "image_pil": "image",
    "image_embeds": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio_embeds": "audio",
    "video_url": "video",
    "video_embeds": "video",
    "prompt_embeds": "prompt_embeds",
}
TEXTS = ("text", "thinking", "input_text", "output_text", "refusal")


def load(part: Any) -> Loaded | None:
    """What vLLM loads for a part; None for text. Raises Refused."""
    if isinstance(part, str):
        return None
    if not isinstance(part, dict):
        raise Refused("no part")
    kind, content = _kind_and_content(part)
    if kind in TEXTS or kind == "tool_reference":
        return None
    if kind not in MODALITIES:
        raise Refused("unsupported type")
    uuid = part.get("uuid")
    return Loaded(MODALITIES[kind], _url(kind, content), None if uuid is None else str(uuid))


def _kind_and_content(part: dict[str, Any]) -> tuple[str, Any]:
    kind, uuid = part.get("type"), part.get("uuid")
    if isinstance(kind, str) and uuid is None and (kind in MODALITIES or kind in TEXTS or kind == "tool_reference"):
        return kind, _typed(kind, part)
    if kind is None or uuid is not None:
        return _untyped(part)
    if not isinstance(kind, str):
        raise Refused("invalid type")
    return kind, None


def _typed(kind: str, part: dict[str, Any]) -> Any:
    if kind in ("image_url", "audio_url", "video_url"):  # validated: an object with a URL
        value = part.get(kind)
        if not isinstance(value, dict) or not isinstance(value.get("url"), str):
            raise Refused("not valid")
        return value["url"]
    if kind == "input_image":
        if part.get("image_url") is not None and not isinstance(part.get("image_url"), str):
            raise Refused("not valid")
        return part.get("image_url")
    return part.get("data" if kind == "prompt_embeds" else kind)


def _untyped(part: dict[str, Any]) -> tuple[str, Any]:
    for key in ("image_url", "image_pil", "image_embeds", "audio_embeds", "video_embeds", "prompt_embeds", "audio_url"):
        if key in part:
            return key, _value(part, key)
    for key in ("input_audio", "video_url"):
        if key in part:
            return key, _value(part, key)
    if "tool_reference" in part:
        return "tool_reference", part.get("name")
    raise Refused("missing type")


def _value(part: dict[str, Any], key: str) -> Any:
    value: Any = part.get("data") if key == "prompt_embeds" else part.get(key)
    if key in ("image_url", "audio_url", "video_url") and isinstance(value, dict):
        return value.get("url")
    return value


def _url(kind: str, content: Any) -> Any:
    if kind == "image_pil" and content:
        raise Refused("no picture of Pillow's comes as JSON")
    if kind == "prompt_embeds" and not content:
        raise Refused("no data")
    if kind in ("image_url", "input_image", "audio_url", "video_url") and content and not isinstance(content, str):
        raise Refused("no URL")
    if kind != "input_audio":
        return content or None
    if not content:
        return None
    if not isinstance(content, dict):
        raise Refused("not valid")
    data = content.get("data", "")
    return f"data:audio/{content.get('format', '')};base64,{data}" if data else None
