"""
Decision: a request on its way through the edge, step by step: found, opened, decided on, written.

Values, and plain functions between them; the edge puts them in order and runs the slow ones.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from vlm_edge.budget import Room
from vlm_edge.errors import InvalidJson, TooManyImages, UnknownPath
from vlm_edge.footage import Cut, Footage
from vlm_edge.footage import pixels_to_decode as pixels_of_clip
from vlm_edge.media.prepare import is_risky, pixels_to_decode
from vlm_edge.media.profile import Profile
from vlm_edge.medium import Encoded, Medium
from vlm_edge.models import Served
from vlm_edge.pictures import PicturePlan
from vlm_edge.plan import Model, Plan, Rooms
from vlm_edge.policies import Admitted
from vlm_edge.report import Report
from vlm_edge.requests.body import MAX_TEXT_BYTES, Body, Place, Raw
from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.part import MediaPart
from vlm_edge.requests.prompt import Prompt, prompts
from vlm_edge.workers import Job

MAX_NAME = 256
# Media of any kind in one request, whatever the limits: more would hold up the event loop.
MAX_PARTS = 2_000

# Earlier turns that only the server has, and numbers of its processor for this request alone.
ELSEWHERE = ("previous_response_id", "conversation", "mm_processor_kwargs", "media_io_kwargs")

T = TypeVar("T")

# A body of our own making is read whatever its size.
_MUCH = 1 << 40

# Where a prepared picture is going to stand.
_STUB = Encoded(b'"data:image/png;base64,AAAA"', "image/png", 0)


class Prepared(msgspec.Struct, frozen=True):
    """A body to send on. `report` is None, and `body` the one that came, where the request holds no media."""

    body: Raw
    report: Report | None


class Found(msgspec.Struct, frozen=True):
    """A request with media in it, and where they are."""

    path: str
    body: Body
    parts: Sequence[MediaPart]
    model: str
    seconds: float


class Opened(msgspec.Struct, frozen=True):
    """A request whose media have been opened, as far as their headers tell of them."""

    found: Found
    profile: str
    admitted: Admitted
    media: Sequence[Medium]
    films: Sequence[Footage]
    seconds: float


class Decision(msgspec.Struct, frozen=True):
    """A request found, probed and planned: all that is known without pixels."""

    path: str
    body: Body
    profile: str
    served: Served
    plan: Plan
    media: Sequence[Medium]
    films: Sequence[Footage]
    edits: Mapping[Place, bytes]  # what the policies change besides
    passed: int  # media that are not ours to prepare
    dropped: int  # old pictures, for which a note is left
    seconds: float
    labels: bool = True  # the times of frames that are sent as pictures
    hidden_bytes: int = 0  # of text that was cut out of the body as if it were media: counts of text do not see it
    rooms: Rooms = {}  # the context of its prompts, as far as it is known

    @property
    def model(self) -> Model:
        return self.served.model

    @property
    def room(self) -> Room | None:
        """Of the one prompt that most requests are."""
        return self.rooms.get(0) if len(self.rooms) == 1 else None

    @property
    def prompts(self) -> Sequence[Prompt]:
        """Its prompts as they will be sent, but for the payloads."""
        parts = any(one.takes_whole_part(len(pages)) for one, pages in self._media)
        films = any(film.anew for film in self.films) or any(clip.form == "frames" for clip in self.plan.clips)
        if not (self.edits or parts or films):
            return prompts(self.path, self.body.value)
        cuts = [Cut([_STUB.string or b""] * clip.frames, "", 0) for clip in self.plan.clips]
        stubs = _strings(self, [_STUB] * len(self.plan.pictures), cuts)
        return prompts(self.path, Body.read(self.body.splice({**_edits(self), **stubs}), _MUCH).value)

    @property
    def stands_alone(self) -> bool:
        """Whether all that a server counts for it stands in it, and is counted as the server is set."""
        return not any(self.body.value.get(key) for key in ELSEWHERE)

    @property
    def jobs(self) -> list[Job[Encoded]]:
        """The work on its pictures."""
        return [job(medium.job(one), one) for medium, pictures in self._media for one in pictures]

    def film_jobs(self, profile: Profile) -> "list[Job[Cut | float]]":
        """The work on its videos."""
        films = zip(self.films, self.plan.clips, strict=True)
        return [
            Job(film.job(one, profile), True, pixels_of_clip(one.clip), one.place, video=True) for film, one in films
        ]

    @property
    def _media(self) -> Sequence[tuple[Medium, Sequence[PicturePlan]]]:
        return list(zip(self.media, self.plan.media, strict=True))


def hidden_bytes(found: Found, media: Sequence[Medium]) -> int:
    """Of what was cut out and is no medium's."""
    others = set(found.body.cuts) - {medium.place.cut for medium in media}
    if others:
        places = found.body.places({part.source for part in found.parts})
        others -= {place.cut for place in places.values()}
    return sum(cut.stop - cut.start for cut in others)


def find(path: str, raw: Raw, max_text_bytes: int = MAX_TEXT_BYTES) -> Found | None:
    """The media of a request; None where it holds none.

    Raises InvalidJson, TextTooLarge, TooManyValues, UnknownPath and TooManyImages.
    """
    begin = time.perf_counter()
    if path not in ENDPOINTS:
        raise UnknownPath(path, ENDPOINTS)
    body, dialect = Body.read(raw, max_text_bytes), ENDPOINTS[path]
    if not isinstance(body.value, dict):
        raise InvalidJson("the body is not a JSON object")
    parts = list(islice(dialect.find(body.value), MAX_PARTS + 1))
    if not parts:
        return None
    if len(parts) > MAX_PARTS:
        raise TooManyImages(len(parts), MAX_PARTS, "request")
    return Found(path, body, parts, _name(dialect.model(body.value)), time.perf_counter() - begin)


def job(work: partial[T], planned: PicturePlan) -> Job[T]:
    return Job(work, is_risky(planned.probe, planned.target), pixels_to_decode(planned.probe), planned.place)


def write(decision: Decision, encoded: Sequence[Encoded], cuts: Sequence[Cut], prepare_s: float) -> Prepared:
    """The new body, and what was done."""
    strings = {**_edits(decision), **_strings(decision, encoded, cuts)}
    raw = decision.body.raw
    body = decision.body.splice(strings) if strings else raw
    report = Report.of(
        decision.profile,
        decision.model,
        decision.plan,
        decision.room,
        encoded,
        cuts,
        bytes_before=len(raw),
        bytes_after=len(body),
        passed=decision.passed,
        dropped=decision.dropped,
        decide_s=decision.seconds,
        prepare_s=prepare_s,
    )
    return Prepared(body, report)


def _edits(decision: Decision) -> Mapping[Place, bytes]:
    """Those of the policies, but for parts that are written anew."""
    films = zip(decision.films, decision.plan.clips, strict=True)
    wholes = [film.whole for film, clip in films if film.whole and film.takes_whole_part(clip)]
    if not wholes:
        return decision.edits
    return {
        place: text
        for place, text in decision.edits.items()
        if not any(whole.start <= place.start and place.stop <= whole.stop for whole in wholes)
    }


def _strings(decision: Decision, encoded: Sequence[Encoded], cuts: Sequence[Cut]) -> dict[Place, bytes]:
    """What to write for all media."""
    files, strings = iter(encoded), dict[Place, bytes]()
    pages = [list(islice(files, len(pictures))) for pictures in decision.plan.media]
    media = list(zip(decision.media, pages, strict=True))
    paths = {medium.part.part for medium, pictures in media if medium.takes_whole_part(len(pictures))}
    wholes = decision.body.places(paths) if paths else {}
    for medium, pictures in media:
        strings |= medium.strings(pictures, wholes.get(medium.part.part))
    for film, clip, cut in zip(decision.films, decision.plan.clips, cuts, strict=True):
        strings |= film.strings(clip, cut, labels=decision.labels)
    return strings


def later(opened: Opened, begin: float) -> Opened:
    """With the time that finding pages has taken since."""
    return msgspec.structs.replace(opened, seconds=opened.seconds + time.perf_counter() - begin)


def _name(value: Any) -> str:
    """A model name that can be matched, logged and sent: no longer than one is, and without lone surrogates."""
    return value[:MAX_NAME].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
