"""Medium: one picture or document on its way: what came, where it stands, the work on it, and what is written there."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import orjson

from vlm_edge.errors import CachedMediaRefused, InvalidDataUrl, NoRoomForPages, RemoteMediaFailed, naming
from vlm_edge.media import data_url
from vlm_edge.media.data_url import File, Payload
from vlm_edge.media.prepare import prepare, probe_readable, unfold
from vlm_edge.media.probe import Probe, probe
from vlm_edge.media.source import Bytes
from vlm_edge.pictures import Limits, PicturePlan, check_bytes
from vlm_edge.requests.body import Body, Cut, Path, Place
from vlm_edge.requests.part import Edit, MediaPart, picture_part


class Encoded(msgspec.Struct, frozen=True):
    """What a worker returns: the JSON string to write, or None to leave what is there; and the file's type and size."""

    string: bytes | None
    media_type: str
    size_bytes: int


class Medium(msgspec.Struct, frozen=True):
    """first: what the headers say of the file, or of its first page. type_place: of the media type, where that stands
    apart from the data.
    """

    part: MediaPart
    payload: Payload | File
    first: Probe
    place: Place
    type_place: Place | None

    def opening(self, at_most: int) -> "partial[Sequence[Probe]]":
        """The work to find its pages, for a worker."""
        return partial(open_pages, self.payload, self.first, at_most, self.part.place)

    def check_room(self, pictures: int, *, named: bool) -> None:
        """Raises NoRoomForPages where so many pictures cannot stand; a name that is kept would be that of one."""
        if pictures > 1 and not self.part.context.picture:
            raise NoRoomForPages(pictures)
        if pictures > 1 and named and self.part.uuid is not None:
            raise CachedMediaRefused(f"a uuid for a document of {pictures} pages; leave it out")

    def job(self, planned: PicturePlan) -> "partial[Encoded]":
        """The work on one picture of it, for a worker."""
        anew = self._is_rewritten(planned)
        bare = self.part.context.picture == "image" if anew else self.part.bare
        return partial(prepare_picture, self.payload, self.first, planned, bare, anew=anew)

    def takes_whole_part(self, pictures: int) -> bool:
        """Whether so many pictures do not go where the data stood."""
        return self.part.document or pictures > 1

    def strings(self, pictures: Sequence[Encoded], whole: Place | None) -> dict[Place, bytes]:
        """What to write for its pictures; `whole` is the place of its part, where they take that."""
        if whole is None:
            return self._in_place(pictures[0])
        if self.part.document:
            return {whole: b",".join(self._part_of(one) for one in pictures)}
        rest = b"".join(b"," + self._part_of(one) for one in pictures[1:])
        return {**self._in_place(pictures[0]), Place(whole.stop, whole.stop, None): rest}

    def _in_place(self, encoded: Encoded) -> dict[Place, bytes]:
        """In the part that came; its media type too, where that stands, or should stand, beside it."""
        if encoded.string is None:
            return {}
        if not self.part.bare:
            return {self.place: encoded.string}
        media_type = orjson.dumps(encoded.media_type)
        if self.type_place is None:
            return {self.place: b'%s,"media_type":%s' % (encoded.string, media_type)}
        return {self.place: encoded.string, self.type_place: media_type}

    def _part_of(self, encoded: Encoded) -> bytes:
        assert self.part.context.picture
        assert encoded.string
        return picture_part(self.part.context.picture, encoded.string, encoded.media_type)

    def _is_rewritten(self, planned: PicturePlan) -> bool:
        """Whether a part of our own is written for the picture."""
        return self.part.document or planned.probe.page > 0


def open_media(body: Body, parts: Sequence[MediaPart], files: Mapping[Path, bytes], limits: Limits) -> Sequence[Medium]:
    """The pictures that these parts hold, or whose `files` were fetched. Raises the RequestErrors of what is none."""
    places = body.places({part.source for part in parts} | {part.media_type for part in parts if part.media_type})
    return [_open(body, part, places, files, limits) for part in parts]


def _open(
    body: Body, part: MediaPart, places: Mapping[Path, Place], files: Mapping[Path, bytes], limits: Limits
) -> Medium:
    with naming(part.place):
        if (part.url or "").strip().lower().startswith(("http:", "https:")) and part.source not in files:
            raise RemoteMediaFailed("it was to be fetched before")
        payload = File(files[part.source]) if part.source in files else _payload(body, part, places[part.source])
        check_bytes(payload.size, limits)
        first = probe_readable(payload)
    return Medium(
        part=part,
        payload=payload,
        first=first,
        place=places[part.source],
        type_place=places[part.media_type] if part.media_type else None,
    )


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


def open_pages(payload: Payload | File, first: Probe, at_most: int, place: str = "") -> Sequence[Probe]:
    """A worker's job: the pages of a document, or frames of an animation, that has to be opened for them."""
    with naming(place):
        return unfold(payload.decode(), first, at_most)


def prepare_picture(
    payload: Payload | File, first: Probe, planned: PicturePlan, bare: bool = False, *, anew: bool = False
) -> Encoded:
    """A worker's job: base64 → pixels → base64, `bare` or in a data URL; `anew`: to be written whatever came."""
    with naming(planned.place):
        data = payload.decode()
        if probe(Bytes(data)) != msgspec.structs.replace(first, file_bytes=len(data)):
            raise InvalidDataUrl("the base64 of the data URL changes its form midway; encode the file again")
        sent, media_type = prepare(data, planned.probe, planned.target)
        if sent is data and not anew and payload.canonical(media_type, data):
            return Encoded(None, media_type, len(sent))
        text = data_url.encode(sent) if bare else data_url.build(media_type, sent)
        return Encoded(b'"%s"' % text, media_type, len(sent))
