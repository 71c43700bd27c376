"""vLLM's own dialects: POST /v1/systemone and /inference/v1/generate."""

from collections.abc import Iterator
from typing import Any

from vlm_edge.requests.body import Path
from vlm_edge.requests.part import Edit, MediaPart, Modality, find_url, name_of

DECISION_KEYS: dict[str, Modality] = {"images": "image", "audio": "audio", "videos": "video"}

FEATURES: tuple[Modality, ...] = ("image", "audio", "video")

GENERATE_TYPES: dict[str, Modality] = {"image_url": "image", "audio_url": "audio", "video_url": "video"}


def find_decisions(body: dict[str, Any]) -> Iterator[MediaPart]:
    """Structured decisions: lists of URLs, in which no part can stand."""
    for key, modality in DECISION_KEYS.items():
        urls = body.get(key)
        for index, url in enumerate(urls) if isinstance(urls, list) else ():
            yield from find_url(url, (key, index), modality)


def find_generate(body: dict[str, Any]) -> Iterator[MediaPart]:
    """Tokens in, tokens out: flat parts, or media that a processor has already worked on.

    The tokens hold a place for each part and for no other.
    """
    parts, features = body.get("content_parts"), body.get("features")
    for index, part in enumerate(parts) if isinstance(parts, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in GENERATE_TYPES:
            yield _flat_part(part, ("content_parts", index))
    hashes = features.get("mm_hashes") if isinstance(features, dict) else None
    if isinstance(hashes, dict) and hashes:
        yield from _find_features(hashes)


def _flat_part(part: dict[str, Any], path: Path) -> MediaPart:
    url, uuid = part.get("url"), part.get("uuid")
    return MediaPart(
        part=path,
        modality=GENERATE_TYPES[part["type"]],
        source=(*path, "url"),
        url=url if url and isinstance(url, str) else None,
        uuid=name_of(uuid),
        plain=() if uuid is None else (Edit((*path, "uuid"), b"null"),),
    )


def _find_features(hashes: dict[str, Any]) -> Iterator[MediaPart]:
    """Of other modalities than these, one stands for all: their names are the client's own words."""
    path = ("features", "mm_hashes")
    for modality in FEATURES:
        items = hashes.get(modality)
        for index, _ in enumerate(items) if isinstance(items, list) else ():
            here = (*path, modality, index)
            yield MediaPart(here, modality, here, None, embeds=True)
    if hashes.keys() - set(FEATURES):
        yield MediaPart(path, "prompt_embeds", path, None, embeds=True)
