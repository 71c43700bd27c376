"""
MediaPart: one picture, video or sound in a request, as a dialect found it; and vLLM's way to tell which part is one.
A document is a file in a part of its own, to be read as pictures.

A part of known type without `uuid` is read by its type; any other by the first media key it has, in vLLM's order
(renderers/chat_utils). So nothing that vLLM would load slips past in an unusual dress. Files it refuses.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import orjson

from vlm_edge.requests.body import LEFT_IN, Path

Modality = Literal["image", "video", "audio", "prompt_embeds"]
Picture = Literal["", "image_url", "input_image", "image"]

# Media key of a part → what it is, and the key of the data inside it (the value may also be the data itself). In vLLM's
# order, in which the first key that is there wins.
MEDIA_KEYS: dict[str, tuple[Modality, str]] = {
    "image_url": ("image", "url"),
    "image_pil": ("image", ""),
    "image_embeds": ("image", ""),
    "audio_embeds": ("audio", ""),
    "video_embeds": ("video", ""),
    "prompt_embeds": ("prompt_embeds", ""),
    "audio_url": ("audio", "url"),
    "input_audio": ("audio", "data"),
    "video_url": ("video", "url"),
}

EMBEDS_KEYS = frozenset(key for key in MEDIA_KEYS if key.endswith("_embeds"))

KEY_OF_TYPE = {"input_image": "image_url", **{key: key for key in MEDIA_KEYS}}

TEXT_TYPES = frozenset("text thinking input_text output_text refusal tool_reference".split())

# Parts that carry files, and the keys of a file's data; the first that holds any counts.
FILE_TYPES = ("file", "input_file")
FILE_KEYS = ("file_data", "file_url")

_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]{0,31}:")  # of a URL; base64 has no colon


class Edit(NamedTuple):
    """A change to the body: JSON text in place of the value at a path, or right before or after it."""

    path: Path
    text: bytes
    side: Literal["", "before", "after"] = ""


def without_uuid(part: dict[str, Any], path: Path, key: str) -> Sequence[Edit]:
    """Without a uuid vLLM goes by the type, and wants a URL inside an object."""
    kind = orjson.dumps(key)
    edits = [Edit((*path, "uuid"), b"null" if "type" in part else b'null,"type":' + kind)]
    if "type" in part and part["type"] != key:
        edits.append(Edit((*path, "type"), kind))
    if MEDIA_KEYS[key][1] == "url" and isinstance(part[key], str):
        edits += (Edit((*path, key), b'{"url":', "before"), Edit((*path, key), b"}", "after"))
    return edits


class Context(msgspec.Struct, frozen=True):
    """Where parts stand. prompt: which of the request's prompts they belong to, None for all of them.

    note: the type of a text part that may stand in their place, "" where none may. plain: the edits that take the uuid
    of a part away and leave the same part; none where there is no such part. picture: the type of a picture part that
    may stand in the place of a part or after it, "" where the list has no room for one more.
    """

    prompt: int | None = 0
    role: str = ""
    note: str = ""
    plain: Callable[[dict[str, Any], Path, str], Sequence[Edit]] = without_uuid
    picture: Picture = ""


NOWHERE = Context()


class MediaPart(msgspec.Struct, frozen=True):
    """Paths lead through the parsed body.

    source: path of the string that holds the data. url: that string, its payload cut out; None where there is none.
    bare: the string is base64 alone, and `media_type` leads to what says its type. plain: as in Context. document: the
    part carries a file, and picture parts must take its whole place.
    """

    part: Path
    modality: Modality
    source: Path
    url: str | None
    context: Context = NOWHERE
    bare: bool = False
    media_type: Path | None = None
    embeds: bool = False
    uuid: str | None = None
    plain: Sequence[Edit] = ()
    document: bool = False

    @property
    def place(self) -> str:
        """As errors name it: messages[3].content[1]."""
        return place(self.part)


def place(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def find_content(content: Any, path: Path, context: Context) -> Iterator[MediaPart]:
    """The media of a content list, which may hold bare strings."""
    for index, part in enumerate(content) if isinstance(content, list) else ():
        if isinstance(part, dict):
            yield from find_part(part, (*path, index), context)


def find_part(part: dict[str, Any], path: Path, context: Context = NOWHERE) -> Iterator[MediaPart]:
    """The medium of a part, if it is one. Cached or embedded media have no URL."""
    uuid = part.get("uuid")
    key = media_key(part, uuid)
    if key is None:
        yield from _find_file(part, path, context)
        return
    modality, inner = MEDIA_KEYS[key]
    value, source = part.get(key), (*path, key)
    if isinstance(value, dict):
        value, source = value.get(inner), (*source, inner)
    yield MediaPart(
        part=path,
        modality=modality,
        source=source,
        url=value if inner and isinstance(value, str) else None,
        context=context,
        bare=inner == "data",
        embeds=key in EMBEDS_KEYS,
        uuid=name_of(uuid),
        plain=() if uuid is None else context.plain(part, path, key),
    )


def _find_file(part: dict[str, Any], path: Path, context: Context) -> Iterator[MediaPart]:
    """The file that a part carries. Its uuid names nothing: it goes with the part, and vLLM finds no media under it."""
    if part.get("type") not in FILE_TYPES:
        return
    inner = part.get("file")
    holder, here = (inner, (*path, "file")) if inner and isinstance(inner, dict) else (part, path)
    for key in FILE_KEYS:
        value = holder.get(key)
        if value and isinstance(value, str):
            bare = key == "file_data" and _SCHEME.match(value) is None
            yield MediaPart(path, "image", (*here, key), value, context, bare=bare, document=True)
            return


def picture_part(kind: Picture, string: bytes, media_type: str) -> bytes:
    """The JSON text of a picture part. `string` is a JSON string: a data URL; for an "image", base64 alone."""
    if kind == "image":
        kind_of_file = orjson.dumps(media_type)
        return b'{"type":"image","source":{"type":"base64","media_type":%s,"data":%s}}' % (kind_of_file, string)
    if kind == "input_image":
        return b'{"type":"input_image","detail":"auto","image_url":%s}' % string
    return b'{"type":"image_url","image_url":{"url":%s}}' % string


def name_of(uuid: Any) -> str | None:
    """A uuid as vLLM takes it. One that can be no name is as one that is too long."""
    try:
        return None if uuid is None else str(uuid)
    except RecursionError:
        return "?" * LEFT_IN


def find_url(value: Any, path: Path, modality: Modality, context: Context = NOWHERE) -> Iterator[MediaPart]:
    """A medium that is a URL and nothing else."""
    if value and isinstance(value, str):
        yield MediaPart(path, modality, path, value, context)


def media_key(part: dict[str, Any], uuid: Any) -> str | None:
    kind = part.get("type")
    if uuid is None and isinstance(kind, str):
        if kind in KEY_OF_TYPE:
            return KEY_OF_TYPE[kind]
        if kind in TEXT_TYPES:
            return None
        if kind in FILE_TYPES:
            return next((key for key in MEDIA_KEYS if part.get(key) is not None), None)
    return next((key for key in MEDIA_KEYS if key in part), None)
