"""Medium: one picture on its way: what came, where in the body it stands, the work on it, and what is written there."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import orjson

from vlm_edge.errors import InvalidDataUrl, RemoteMediaFailed, naming
from vlm_edge.media import data_url, picture
from vlm_edge.media.data_url import File, Payload
from vlm_edge.media.probe import probe
from vlm_edge.media.source import Bytes
from vlm_edge.plan import Limits, PicturePlan, check_bytes
from vlm_edge.requests.body import Body, Cut, Path, Place
from vlm_edge.requests.part import Edit, MediaPart


class Encoded(msgspec.Struct, frozen=True):
    """What a worker returns: the JSON string to write, or None to leave what is there; and the file's type and size."""

    string: bytes | None
    media_type: str
    size_bytes: int


class Medium(msgspec.Struct, frozen=True):
    """type_place: of the media type, if that stands apart from the data."""

    part: MediaPart
    payload: Payload | File
    place: Place
    type_place: Place | None

    def job(self, planned: PicturePlan) -> "partial[Encoded]":
        """The work on it, for a worker."""
        return partial(prepare_picture, self.payload, planned, self.part.bare)

    def strings(self, encoded: Encoded) -> dict[Place, bytes]:
        """What to write; its media type too, where that stands, or should stand, beside it."""
        if encoded.string is None:
            return {}
        if not self.part.bare:
            return {self.place: encoded.string}
        media_type = orjson.dumps(encoded.media_type)
        if self.type_place is None:
            return {self.place: b'%s,"media_type":%s' % (encoded.string, media_type)}
        return {self.place: encoded.string, self.type_place: media_type}


def open_media(body: Body, parts: Sequence[MediaPart], files: Mapping[Path, bytes], limits: Limits) -> Sequence[Medium]:
    """The pictures that these parts hold, or whose `files` were fetched. Raises the RequestErrors of what is none."""
    places = body.places({part.source for part in parts} | {part.media_type for part in parts if part.media_type})
    media = []
    for part in parts:
        with naming(part.place):
            if (part.url or "").strip().lower().startswith(("http:", "https:")) and part.source not in files:
                raise RemoteMediaFailed("it was to be fetched before")
            payload = File(files[part.source]) if part.source in files else _payload(body, part, places[part.source])
            check_bytes(payload.size, limits)
        type_place = places[part.media_type] if part.media_type else None
        media.append(Medium(part, payload, places[part.source], type_place))
    return media


def _payload(body: Body, part: MediaPart, place: Place) -> Payload:
    cut, url = place.cut, part.url or ""
    if not part.bare:
        return data_url.parse(url, body.payload(cut) if cut else None)
    payload = body.payload(Cut(place.start + 1, place.stop - 1)) if cut else None  # all between the quotes
    return data_url.parse_base64(_media_type(body.value, part.media_type), url, payload)


def _media_type(value: Any, path: Path | None) -> str:
    """The media type at a path, "" where there is none that could be one."""
    for step in path or ():
        value = value[step]
    return value if path and isinstance(value, str) and "," not in value else ""


def strings_of(body: Body, edits: Iterable[Edit]) -> dict[Place, bytes]:
    """Edits as what to write where."""
    places = body.places({edit.path for edit in edits})
    return {_beside(places[edit.path], edit): edit.text for edit in edits}


def _beside(place: Place, edit: Edit) -> Place:
    if edit.side == "before":
        return Place(place.start, place.start, None)
    return Place(place.stop, place.stop, None) if edit.side == "after" else place


def prepare_picture(payload: Payload | File, planned: PicturePlan, bare: bool = False) -> Encoded:
    """A worker's job: base64 → pixels → base64, `bare` or in a data URL."""
    with naming(planned.place):
        data = payload.decode()
        if probe(Bytes(data)) != msgspec.structs.replace(planned.probe, file_bytes=len(data)):
            raise InvalidDataUrl("the base64 of the data URL changes its form midway; encode the file again")
        sent, media_type = pixels(data, planned)
        if sent is data and payload.canonical(media_type, data):
            return Encoded(None, media_type, len(sent))
        text = data_url.encode(sent) if bare else data_url.build(media_type, sent)
        return Encoded(b'"%s"' % text, media_type, len(sent))


def pixels(data: bytes, planned: PicturePlan) -> tuple[bytes, str]:
    """The planned file and its media type. Data that are kept are the very object that came."""
    if planned.target is None:
        picture.verify(data, planned.probe)
        return data, planned.probe.media_type
    return picture.resize(data, planned.probe, planned.target), planned.target.media_type
