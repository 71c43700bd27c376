"""Edge: the steps in order, once, in one direction. What every face calls."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from vlm_edge import choice
from vlm_edge.errors import InvalidDataUrl, InvalidJson, RemoteMediaRefused, UnknownPath, UnknownProfile, naming
from vlm_edge.geometry import Size
from vlm_edge.media import data_url, picture
from vlm_edge.media.data_url import Payload
from vlm_edge.media.probe import probe
from vlm_edge.media.source import Bytes
from vlm_edge.plan import Model, PicturePlan, Plan, check_budget, check_bytes, check_count, plan, plan_picture
from vlm_edge.report import PictureReport, Report
from vlm_edge.requests.body import MAX_TEXT_BYTES, Body, Place, Raw
from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.part import MediaPart
from vlm_edge.settings import Settings
from vlm_edge.workers import Workers

MAX_NAME = 256

_NO_HEADERS: Mapping[str, str] = {}


class Prepared(msgspec.Struct, frozen=True):
    """A body to send on. `report` is None, and `body` the one that came, where the request holds no media."""

    body: Raw
    report: Report | None


class Picture(msgspec.Struct, frozen=True):
    """One prepared picture, and what it costs the model."""

    data: bytes
    media_type: str
    size: Size
    tokens: int
    report: PictureReport


class Encoded(msgspec.Struct, frozen=True):
    """What a worker returns: the JSON string to write, or None to leave what is there; and the bytes of the file."""

    string: bytes | None
    size_bytes: int


class Found(msgspec.Struct, frozen=True):
    """A request with media in it, and where they are."""

    path: str
    body: Body
    parts: Sequence[MediaPart]
    seconds: float


class Decision(msgspec.Struct, frozen=True):
    """A request found, probed and planned: all that is known without pixels."""

    body: Body
    profile: str
    model: Model
    plan: Plan
    places: Sequence[Place]
    payloads: Sequence[Payload]
    passed: int  # media that are not ours to prepare
    seconds: float


def find(path: str, raw: Raw, max_text_bytes: int = MAX_TEXT_BYTES) -> Found | None:
    """The media of a request; None where it holds none. Raises InvalidJson, TextTooLarge and UnknownPath."""
    begin = time.perf_counter()
    if path not in ENDPOINTS:
        raise UnknownPath(path, ENDPOINTS)
    body = Body.read(raw, max_text_bytes)
    if not isinstance(body.value, dict):
        raise InvalidJson("the body is not a JSON object")
    parts = list(ENDPOINTS[path].find(body.value))
    return Found(path, body, parts, time.perf_counter() - begin) if parts else None


class Edge:
    """Prepares the pictures of requests. One instance serves any number of threads and tasks; `close` ends its workers.

    Every method raises EdgeError (`.code`, `.status`) for what it refuses.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.workers = Workers(self.settings.workers)

    def prepare(self, path: str, body: Raw, headers: Mapping[str, str] = _NO_HEADERS) -> Prepared:
        """The body with its pictures prepared. `path` tells the kind of request."""
        found = self.find(path, body)
        if found is None:
            return Prepared(body, None)
        decision, begin = self.decide(found, headers), time.perf_counter()
        encoded = _results(self.workers.submit(_jobs(decision)))
        return _write(decision, encoded, time.perf_counter() - begin)

    async def prepare_async(self, path: str, body: Raw, headers: Mapping[str, str] = _NO_HEADERS) -> Prepared:
        """`prepare`, with the pixels off the event loop."""
        found = self.find(path, body)
        return await self.carry_out(self.decide(found, headers)) if found else Prepared(body, None)

    def find(self, path: str, body: Raw) -> Found | None:
        """`find`, within the limits."""
        return find(path, body, self.settings.limits.max_text_bytes)

    def decide(self, found: Found, headers: Mapping[str, str] = _NO_HEADERS) -> Decision:
        """Probe and plan, and refuse what costs too many tokens. Touches no pixel."""
        decision = self.plan(found, headers)
        check_budget(decision.plan, self.settings.limits)
        return decision

    def plan(self, found: Found, headers: Mapping[str, str] = _NO_HEADERS) -> Decision:
        """`decide`, but what costs too many tokens is let through."""
        begin = time.perf_counter()
        body, images = found.body, [part for part in found.parts if part.modality == "image"]
        model = self.settings.model(_name(body.value.get("model")))
        profile = self._choose(found.path, model.name, headers)
        check_count([part.place for part in images], self.settings.profiles[profile], self.settings.limits)
        parts = self._ours(images)
        places = body.places(part.path for part in parts)
        payloads = [self._open(body, part, places[part.path]) for part in parts]
        return Decision(
            body=body,
            profile=profile,
            model=model,
            plan=self._plan(parts, payloads, profile, model),
            places=[places[part.path] for part in parts],
            payloads=payloads,
            passed=len(found.parts) - len(parts),
            seconds=found.seconds + time.perf_counter() - begin,
        )

    async def carry_out(self, decision: Decision) -> Prepared:
        """The pixels, off the event loop, and the new body."""
        begin = time.perf_counter()
        encoded = await _results_async(self.workers.submit(_jobs(decision)))
        return _write(decision, encoded, time.perf_counter() - begin)

    def picture(self, data: bytes, profile: str = "", model: str = "") -> Picture:
        """One picture file prepared as in a request. The work is done in the calling thread."""
        return self.make(data, self.plan_picture(data, profile, model))

    def make(self, data: bytes, planned: PicturePlan) -> Picture:
        """The second half of `picture`."""
        sent, media_type = _pixels(bytes(data), planned)
        return Picture(sent, media_type, planned.size, planned.tokens, PictureReport.of(planned, len(sent)))

    def plan_picture(self, data: bytes, profile: str = "", model: str = "") -> PicturePlan:
        """What `picture` would do, without doing it."""
        name = profile or self.settings.default_profile
        if name not in self.settings.profiles:
            raise UnknownProfile(name, self.settings.profiles)
        rule = self.settings.model(model).rule
        check_bytes(len(data), self.settings.limits)
        planned = plan_picture("", probe(Bytes(bytes(data))), self.settings.profiles[name], rule, self.settings.limits)
        check_budget(Plan([planned]), self.settings.limits)
        return planned

    def close(self) -> None:
        self.workers.close()

    def _ours(self, images: Sequence[MediaPart]) -> list[MediaPart]:
        """The pictures to prepare. Those without data pass; by policy, remote ones are refused or pass."""
        ours = []
        for part in images:
            if part.url is None:
                continue
            scheme, colon, _ = part.url.partition(":")
            scheme = scheme.strip().lower()
            if scheme == "data":
                ours.append(part)
            elif self.settings.remote == "refuse" or scheme not in ("http", "https"):
                with naming(part.place):
                    raise RemoteMediaRefused(f"a URL of scheme {scheme[:16]!r}" if colon else "no URL")
        return ours

    def _choose(self, path: str, model: str, headers: Mapping[str, str]) -> str:
        settings = self.settings
        named = {name.lower(): value for name, value in headers.items()}
        return choice.choose(path, model, named, settings.rules, settings.default_profile, settings.profiles)

    def _open(self, body: Body, part: MediaPart, place: Place) -> Payload:
        with naming(part.place):
            payload = data_url.parse(part.url or "", body.payload(place.cut) if place.cut else None)
            check_bytes(payload.size, self.settings.limits)
            return payload

    def _plan(self, parts: Sequence[MediaPart], payloads: Sequence[Payload], profile: str, model: Model) -> Plan:
        probes = []
        for part, payload in zip(parts, payloads, strict=True):
            with naming(part.place):
                probes.append((part.place, probe(payload)))
        return plan(probes, self.settings.profiles[profile], model, self.settings.limits)


def _jobs(decision: Decision) -> list[partial[Encoded]]:
    pictures = zip(decision.payloads, decision.plan.pictures, strict=True)
    return [partial(prepare_picture, payload, planned) for payload, planned in pictures]


def prepare_picture(payload: Payload, planned: PicturePlan) -> Encoded:
    """A worker's job: base64 → pixels → base64."""
    with naming(planned.place):
        data = payload.decode()
        if probe(Bytes(data)) != msgspec.structs.replace(planned.probe, file_bytes=len(data)):
            raise InvalidDataUrl("the base64 of the data URL changes its form midway; encode the file again")
        sent, media_type = _pixels(data, planned)
        if sent is data and payload.canonical(media_type, data):
            return Encoded(None, len(sent))
        return Encoded(b'"%s"' % data_url.build(media_type, sent), len(sent))


def _pixels(data: bytes, planned: PicturePlan) -> tuple[bytes, str]:
    if planned.target is None:
        picture.verify(data, planned.probe)
        return data, planned.probe.media_type
    return picture.resize(data, planned.probe, planned.target), planned.target.media_type


def _results(futures: Sequence[Future[Encoded]]) -> list[Encoded]:
    try:
        return [future.result() for future in futures]
    finally:
        _cancel(futures)


async def _results_async(futures: Sequence[Future[Encoded]]) -> list[Encoded]:
    try:
        return [await asyncio.wrap_future(future) for future in futures]
    finally:
        _cancel(futures)  # a part was refused, or the task was cancelled: the others need not begin


def _cancel(futures: Sequence[Future[Encoded]]) -> None:
    for future in futures:
        future.cancel()


def _write(decision: Decision, encoded: Sequence[Encoded], prepare_s: float) -> Prepared:
    pairs = zip(decision.places, encoded, strict=True)
    strings = {place: one.string for place, one in pairs if one.string is not None}
    raw = decision.body.raw
    body = decision.body.splice(strings) if strings else raw
    report = Report.of(
        decision.profile,
        decision.model,
        decision.plan,
        [one.size_bytes for one in encoded],
        bytes_before=len(raw),
        bytes_after=len(body),
        passed=decision.passed,
        decide_s=decision.seconds,
        prepare_s=prepare_s,
    )
    return Prepared(body, report)


def _name(value: Any) -> str:
    """A model name that can be matched, logged and sent: no longer than one is, and without lone surrogates."""
    return value[:MAX_NAME].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
