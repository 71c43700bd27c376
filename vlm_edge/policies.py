"""
Policies: what becomes of the media that are not simply prepared, decided on where and how they stand.

A pure function on the parts of a request: no bytes of theirs are looked at.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Literal

import msgspec
import orjson

from vlm_edge.errors import (
    CachedMediaRefused,
    EmbeddedMediaRefused,
    RemoteMediaRefused,
    ToolMediaRefused,
    TooManyImages,
    naming,
)
from vlm_edge.requests.body import LEFT_IN
from vlm_edge.requests.part import Edit, MediaPart

LEFT_OUT = "[an earlier picture was left out]"

# A longer one may have been cut, and then others look like it.
MAX_UUID = LEFT_IN - 1

# RFC 3986, 3.1; no longer than any that is in use, for it is told to the client.
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,31}")

Road = Literal["prepare", "fetch", "pass"]


class Policies(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """remote: media behind http(s) URLs are refused, passed on unseen and uncounted, or (pictures alone) fetched.
    uuid: names that clients give to media, by which vLLM caches them for everybody: stripped, made the client's own
    (by its API key and profile), or passed. embeds: media and prompts already embedded, whose cost cannot be known.
    history: more pictures than are allowed are refused, or the last ones are kept and a note left for each older one.
    videos: sampled and counted, or passed on unseen and uncounted. tool_media: media in the answers of tools.
    unknown_paths: data URLs in JSON posted to paths that are not known to carry media. `file:` URLs and bare paths are
    refused whatever is set here.
    """

    remote: Literal["refuse", "pass", "fetch"] = "refuse"
    uuid: Literal["strip", "namespace", "pass"] = "strip"
    embeds: Literal["refuse", "pass"] = "refuse"
    history: Literal["refuse", "keep_last"] = "refuse"
    videos: Literal["prepare", "pass"] = "prepare"
    tool_media: Literal["pass", "refuse"] = "pass"
    unknown_paths: Literal["refuse", "pass"] = "refuse"


class Admitted(msgspec.Struct, frozen=True):
    """The media of a request, sorted. edits: what the policies change in the body around them."""

    ours: Sequence[MediaPart]  # pictures to prepare
    videos: Sequence[MediaPart]  # and videos
    remote: Sequence[MediaPart]  # those of them to fetch first
    passed: int
    passed_images: Sequence[int | None]  # the prompts that the pictures among them stand in
    dropped: int  # old ones, for which a note is left
    edits: Sequence[Edit]


def admit(
    parts: Sequence[MediaPart], policies: Policies, max_images: int, max_total_images: int, tenant: str
) -> Admitted:
    """Sort the media of a request; `max_images` may stand in one prompt. Raises the refusals of the policies.

    tenant: who asks, in any form; it becomes part of the names under `uuid = "namespace"`.
    """
    dropped = _too_old(parts, min(max_images, max_total_images)) if policies.history == "keep_last" else ()
    gone = {part.part for part in dropped}
    kept = [part for part in parts if part.part not in gone]
    check_total(kept, max_total_images)
    check_images(kept, max_images)
    roads = [(part, _road_of(part, policies)) for part in kept]
    edits = [_note(part) for part in dropped]
    for part in kept:
        edits += _renamed(part, policies, tenant)
    return Admitted(
        ours=[part for part, road in roads if road != "pass" and part.modality == "image"],
        videos=[part for part, road in roads if road != "pass" and part.modality == "video"],
        remote=[part for part, road in roads if road == "fetch"],
        passed=sum(road == "pass" for _, road in roads),
        passed_images=[part.context.prompt for part, road in roads if road == "pass" and part.modality == "image"],
        dropped=len(dropped),
        edits=edits,
    )


def check_total(parts: Iterable[MediaPart], allowed: int) -> None:
    """Raises TooManyImages about the first picture too many of a request, whatever prompts they stand in."""
    images = [part for part in parts if part.modality == "image"]
    if len(images) > allowed:
        with naming(images[allowed].place):
            raise TooManyImages(len(images), allowed, "request")


def check_images(parts: Iterable[MediaPart], allowed: int) -> None:
    """Raises TooManyImages about the first picture too many of a prompt."""
    for images in _prompts(parts):
        if len(images) > allowed:
            with naming(images[allowed].place):
                raise TooManyImages(len(images), allowed)


def _prompts(parts: Iterable[MediaPart]) -> Iterator[list[MediaPart]]:
    """The pictures of each prompt; some belong to every one."""
    images = [part for part in parts if part.modality == "image"]
    shared = [part for part in images if part.context.prompt is None]
    prompts: dict[int, list[MediaPart]] = {}
    for part in images:
        if part.context.prompt is not None:
            prompts.setdefault(part.context.prompt, []).append(part)
    yield from ([*shared, *own] for own in prompts.values())
    if not prompts:
        yield shared


def _too_old(parts: Iterable[MediaPart], allowed: int) -> list[MediaPart]:
    dropped = []
    for images in _prompts(parts):
        old = images[: max(0, len(images) - allowed)]
        dropped += [part for part in old if part.context.note]
    return dropped


def _note(part: MediaPart) -> Edit:
    return Edit(part.part, orjson.dumps({"type": part.context.note, "text": LEFT_OUT}))


def _road_of(part: MediaPart, policies: Policies) -> Road:
    with naming(part.place):
        if part.context.role == "tool" and policies.tool_media == "refuse":
            raise ToolMediaRefused
        if part.embeds:
            if policies.embeds == "refuse":
                raise EmbeddedMediaRefused
            return "pass"
        if not part.url and part.uuid is not None:
            if policies.uuid == "strip":
                raise CachedMediaRefused(
                    "a uuid without data; media that the server has cached are not shared; send the data"
                )
            return "pass"
        return _road_of_data(part, policies)


def _road_of_data(part: MediaPart, policies: Policies) -> Road:
    video = part.modality == "video" and policies.videos == "prepare"
    ours: Road = "prepare" if video or part.modality == "image" else "pass"
    if part.url is None:
        return "pass"  # vLLM knows what is missing
    if part.bare:
        return ours
    scheme, colon, _ = part.url.strip().lower().partition(":")
    if scheme == "data":
        return ours
    if scheme not in ("http", "https") or policies.remote == "refuse":
        raise RemoteMediaRefused(f"a URL of scheme {scheme!r}" if colon and _SCHEME.fullmatch(scheme) else "no URL")
    if policies.remote == "fetch" and part.modality != "image":
        raise RemoteMediaRefused(f"a remote {part.modality}, and only pictures are fetched")
    if policies.remote == "pass" and part.document:
        raise RemoteMediaRefused("a remote document, which the server behind cannot read")
    return "fetch" if policies.remote == "fetch" else "pass"


def _renamed(part: MediaPart, policies: Policies, tenant: str) -> Sequence[Edit]:
    if part.uuid is None or policies.uuid == "pass":
        return ()
    if policies.uuid == "strip":
        if not part.plain:
            with naming(part.place):
                raise CachedMediaRefused("a uuid where it cannot be taken away; leave it out")
        return part.plain
    if len(part.uuid) > MAX_UUID:
        with naming(part.place):
            raise CachedMediaRefused(f"a uuid of more than {MAX_UUID} characters; send a shorter one")
    name = sha256(f"{len(tenant)} {tenant}{part.uuid}".encode("utf-8", "surrogatepass")).hexdigest()
    return (Edit((*part.part, "uuid"), orjson.dumps(name)),)
