"""vLLM's own dialects: POST /v1/systemone and /inference/v1/generate."""

from collections.abc import Iterator
from typing import Any

from vlm_edge.requests.body import Path
from vlm_edge.requests.part import Edit, MediaPart, Modality, find_url

DECISION_KEYS: dict[str, Modality] = {"images": "image", "audio": "audio", "videos": "video"}

GENERATE_TYPES: dict[str, Modality] = {"image_url": "image", "audio_url": "audio", "video_url": "video"}


def find_decisions(body: dict[str, Any]) -> Iterator[MediaPart]:
    """Structured decisions: lists of URLs."""
    for key, modality in DECISION_KEYS.items():
        urls = body.get(key)
        for index, url in enumerate(urls) if isinstance(urls, list) else ():
            yield from find_url(url, (key, index), modality)


def find_generate(body: dict[str, Any]) -> Iterator[MediaPart]:
    """Tokens in, tokens out: flat parts, or media that a processor has already worked on."""
    parts, features = body.get("content_parts"), body.get("features")
    for index, part in enumerate(parts) if isinstance(parts, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in GENERATE_TYPES:
            yield _flat_part(part, ("content_parts", index))
    hashes = features.get("mm_hashes") if isinstance(features, dict) else None
    for modality, items in hashes.items() if isinstance(hashes, dict) else ():
        yield from _find_features(modality, items)


def _flat_part(part: dict[str, Any], path: Path) -> MediaPart:
    url, uuid = part.get("url"), part.get("uuid")
    return MediaPart(
        part=path,
        modality=GENERATE_TYPES[part["type"]],
        source=(*path, "url"),
        url=url if url and isinstance(url, str) else None,
        uuid=None if uuid is None else str(uuid),
        plain=() if uuid is None else (Edit((*path, "uuid"), b"null"),),
    )


def _find_features(modality: str, items: Any) -> Iterator[MediaPart]:
    kinds: dict[str, Modality] = {"image": "image", "audio": "audio", "video": "video"}
    for index, _ in enumerate(items) if isinstance(items, list) else ():
        path = ("features", "mm_hashes", modality, index)
        yield MediaPart(path, kinds.get(modality, "image"), path, None, embeds=True)
