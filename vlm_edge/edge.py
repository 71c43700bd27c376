"""Edge: the steps in order, once, in one direction. What every face calls."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from vlm_edge import choice
from vlm_edge.errors import InvalidJson, RemoteMediaRefused, TooManyImages, UnknownPath, UnknownProfile, naming
from vlm_edge.fetch import Fetcher, need_extra
from vlm_edge.geometry import Size
from vlm_edge.media.probe import probe
from vlm_edge.media.source import Bytes
from vlm_edge.medium import Encoded, Medium, open_media, pixels, strings_of
from vlm_edge.plan import (
    Model,
    PicturePlan,
    Plan,
    Subject,
    check_budget,
    check_bytes,
    max_images,
    plan,
    plan_picture,
)
from vlm_edge.policies import Admitted, admit
from vlm_edge.report import PictureReport, Report
from vlm_edge.requests.body import MAX_TEXT_BYTES, Body, Path, Place, Raw, find_cuts
from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.part import MediaPart
from vlm_edge.requests.stray import holds_data_url
from vlm_edge.settings import Settings
from vlm_edge.workers import Workers

MAX_NAME = 256
# Media of any kind in one request, whatever the limits: more would hold up the event loop.
MAX_PARTS = 2_000
# Text of a body that takes some milliseconds at worst.
ASIDE_BYTES = 32 * 1024

T = TypeVar("T")

_NO_HEADERS: Mapping[str, str] = {}
_NO_FILES: Mapping[Path, bytes] = {}


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


class Found(msgspec.Struct, frozen=True):
    """A request with media in it, and where they are."""

    path: str
    body: Body
    parts: Sequence[MediaPart]
    model: str
    seconds: float


class Decision(msgspec.Struct, frozen=True):
    """A request found, probed and planned: all that is known without pixels."""

    body: Body
    profile: str
    model: Model
    plan: Plan
    media: Sequence[Medium]
    edits: Mapping[Place, bytes]  # what the policies change besides
    passed: int  # media that are not ours to prepare
    dropped: int  # old pictures, for which a note is left
    seconds: float


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


class Edge:
    """Prepares the pictures of requests. One instance serves any number of threads and tasks; `close` ends its workers.

    Every method raises EdgeError (`.code`, `.status`) for what it refuses.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.workers = Workers(self.settings.workers)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="vlm-edge-reader")
        if self._fetches:
            need_extra()

    def prepare(self, path: str, body: Raw, headers: Mapping[str, str] = _NO_HEADERS) -> Prepared:
        """The body with its pictures prepared. `path` tells the kind of request."""
        found = self.find(path, body)
        if found is None:
            return Prepared(body, None)
        files = _run(partial(self.fetch, found, headers)) if self._fetches else _NO_FILES
        decision, begin = self.decide(found, headers, files), time.perf_counter()
        encoded = _results(self.workers.submit(_jobs(decision)))
        return _write(decision, encoded, time.perf_counter() - begin)

    async def prepare_async(self, path: str, body: Raw, headers: Mapping[str, str] = _NO_HEADERS) -> Prepared:
        """`prepare`, with the pixels off the event loop."""
        decision = await self.decide_async(path, body, headers)
        return await self.carry_out(decision) if decision else Prepared(body, None)

    async def decide_async(
        self, path: str, body: Raw, headers: Mapping[str, str] = _NO_HEADERS, *, budget: bool = True
    ) -> Decision | None:
        """Find, fetch and decide; None where there are no media. Without `budget`, as `plan`."""
        found = await self._aside(_text_bytes(body), partial(self.find, path, body))
        if found is None:
            return None
        files = await self.fetch(found, headers)
        decide = partial(self.decide if budget else self.plan, found, headers, files)
        return await self._aside(len(found.body.skeleton), decide)

    async def holds_data_url(self, body: Raw) -> bool:
        """Of a body of unknown kind. Raises TextTooLarge for one that is too large to be looked at."""
        search = partial(holds_data_url, body, self.settings.limits.max_text_bytes)
        return await self._aside(_text_bytes(body), search)

    def find(self, path: str, body: Raw) -> Found | None:
        """`find`, within the limits."""
        return find(path, body, self.settings.limits.max_text_bytes)

    async def fetch(self, found: Found, headers: Mapping[str, str] = _NO_HEADERS) -> Mapping[Path, bytes]:
        """The files of remote pictures by their place, where the policy is to fetch them."""
        if not self._fetches:
            return _NO_FILES
        remote = await self._aside(len(found.body.skeleton), partial(self._remote, found, headers))
        if not remote:
            return _NO_FILES
        urls, places = [part.url or "" for part in remote], [part.place for part in remote]
        limits, fetcher = self.settings.limits, Fetcher(self.settings.fetch)
        files = await fetcher.fetch(urls, limits.max_image_bytes, places, limits.max_body_bytes)
        return {part.source: file for part, file in zip(remote, files, strict=True)}

    def decide(
        self, found: Found, headers: Mapping[str, str] = _NO_HEADERS, files: Mapping[Path, bytes] = _NO_FILES
    ) -> Decision:
        """Probe and plan, and refuse what costs too many tokens. Touches no pixel."""
        decision = self.plan(found, headers, files)
        check_budget(decision.plan, self.settings.limits)
        return decision

    def plan(
        self, found: Found, headers: Mapping[str, str] = _NO_HEADERS, files: Mapping[Path, bytes] = _NO_FILES
    ) -> Decision:
        """`decide`, but what costs too many tokens is let through."""
        begin, limits = time.perf_counter(), self.settings.limits
        profile, model = self._choose(found, headers), self.settings.model(found.model)
        admitted = self._admit(found, profile, headers)
        media = open_media(found.body, admitted.ours, files, limits)
        return Decision(
            body=found.body,
            profile=profile,
            model=model,
            plan=self._plan(media, profile, model),
            media=media,
            edits=strings_of(found.body, admitted.edits),
            passed=admitted.passed,
            dropped=admitted.dropped,
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
        sent, media_type = pixels(bytes(data), planned)
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
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def _aside(self, text_bytes: int, work: Callable[[], T]) -> T:
        """Work on so much text, in a thread if it is so much that others would wait for it; one at a time."""
        if text_bytes <= ASIDE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    @property
    def _fetches(self) -> bool:
        return self.settings.remote == "fetch"

    def _choose(self, found: Found, headers: Mapping[str, str]) -> str:
        settings = self.settings
        rules, default = settings.rules, settings.default_profile
        return choice.choose(found.path, found.model, _lower(headers), rules, default, settings.profiles)

    def _admit(self, found: Found, profile: str, headers: Mapping[str, str]) -> Admitted:
        limits = self.settings.limits
        allowed = max_images(self.settings.profiles[profile], limits)
        return admit(found.parts, self.settings, allowed, limits.max_total_images, _tenant(headers, profile))

    def _remote(self, found: Found, headers: Mapping[str, str]) -> Sequence[MediaPart]:
        """The pictures to fetch. Raises RemoteMediaRefused for a URL of which a part was cut out."""
        remote = self._admit(found, self._choose(found, headers), headers).remote
        places = found.body.places(part.source for part in remote) if remote else {}
        for part in remote:
            if places[part.source].cut:
                with naming(part.place):
                    raise RemoteMediaRefused("a URL with a data URL in it")
        return remote

    def _plan(self, media: Sequence[Medium], profile: str, model: Model) -> Plan:
        subjects = []
        for medium in media:
            with naming(medium.part.place):
                subjects.append(Subject(medium.part.place, probe(medium.payload), medium.part.context.prompt))
        return plan(subjects, self.settings.profiles[profile], model, self.settings.limits)


def _run(start: Callable[[], Coroutine[Any, Any, Mapping[Path, bytes]]]) -> Mapping[Path, bytes]:
    """Run a coroutine to its end in a thread, for the calling one may have an event loop running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(start())).result()


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _tenant(headers: Mapping[str, str], profile: str) -> str:
    """Who shares names for media: clients of one key, whose pictures have been made alike."""
    named = _lower(headers)
    return "\0".join((*(named.get(name, "") for name in ("authorization", "x-api-key")), profile))


def _text_bytes(raw: Raw) -> int:
    """Of a body, beside its payloads."""
    return len(raw) - sum(cut.stop - cut.start for cut in find_cuts(raw))


def _jobs(decision: Decision) -> list[partial[Encoded]]:
    return [medium.job(planned) for medium, planned in zip(decision.media, decision.plan.pictures, strict=True)]


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
    strings = dict(decision.edits)
    for medium, one in zip(decision.media, encoded, strict=True):
        strings |= medium.strings(one)
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
        dropped=decision.dropped,
        decide_s=decision.seconds,
        prepare_s=prepare_s,
    )
    return Prepared(body, report)


def _name(value: Any) -> str:
    """A model name that can be matched, logged and sent: no longer than one is, and without lone surrogates."""
    return value[:MAX_NAME].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
