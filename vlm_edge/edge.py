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
from vlm_edge.errors import (
    InvalidJson,
    RemoteMediaRefused,
    TooManyImages,
    UnknownPath,
    UnknownProfile,
    UnsupportedMedia,
    naming,
)
from vlm_edge.fetch import Fetcher, need_extra
from vlm_edge.geometry import Size
from vlm_edge.isolation import Isolation
from vlm_edge.media.data_url import File
from vlm_edge.media.prepare import is_risky, is_risky_to_open, must_be_opened, pixels_to_decode, prepare, probe_readable
from vlm_edge.media.probe import Probe
from vlm_edge.media.profile import Profile
from vlm_edge.medium import Encoded, Medium, open_media, open_pages, strings_of
from vlm_edge.plan import (
    Model,
    PicturePlan,
    Plan,
    Subject,
    check_budget,
    check_bytes,
    check_pages,
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
from vlm_edge.workers import Job, Workers

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


class Opened(msgspec.Struct, frozen=True):
    """A request whose media have been opened, as far as their headers tell of them."""

    found: Found
    profile: str
    admitted: Admitted
    media: Sequence[Medium]
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
    """Prepares the pictures and documents of requests.

    One instance serves any number of threads and tasks; `close` ends its workers.
    Every method raises EdgeError (`.code`, `.status`) for what it refuses.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        at_once = self.settings.workers.threads
        self.workers = Workers(self.settings.workers, Isolation(self.settings.isolation, at_once))
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
        files, text_bytes = await self.fetch(found, headers), len(found.body.skeleton)
        opened = await self._aside(text_bytes, partial(self.open, found, headers, files))
        begin = time.perf_counter()
        pages = await _results_async(self.workers.submit(self._openings(opened)))
        opened = _later(opened, begin)
        decision = await self._aside(text_bytes, partial(self.plan, opened, pages))
        if budget:
            check_budget(decision.plan, self.settings.limits)
        return decision

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
        opened, begin = self.open(found, headers, files), time.perf_counter()
        pages = [self.workers.run(job) for job in self._openings(opened)]
        decision = self.plan(_later(opened, begin), pages)
        check_budget(decision.plan, self.settings.limits)
        return decision

    def open(
        self, found: Found, headers: Mapping[str, str] = _NO_HEADERS, files: Mapping[Path, bytes] = _NO_FILES
    ) -> Opened:
        """Sort the media by the policies, and read the headers of ours."""
        begin, profile = time.perf_counter(), self._choose(found, headers)
        admitted = self._admit(found, profile, headers)
        media = open_media(found.body, admitted.ours, files, self.settings.limits)
        for medium in media:
            with naming(medium.part.place):
                check_pages(medium.first, self.settings.profiles[profile])  # as far as they are known
        return Opened(found, profile, admitted, media, time.perf_counter() - begin)

    def plan(self, opened: Opened, pages: Sequence[Sequence[Probe]]) -> Decision:
        """`pages`: of the media that had to be opened for them, in their order."""
        begin, found, admitted = time.perf_counter(), opened.found, opened.admitted
        model = self.settings.model(found.model)
        return Decision(
            body=found.body,
            profile=opened.profile,
            model=model,
            plan=self._plan(opened, pages, model),
            media=opened.media,
            edits=strings_of(found.body, admitted.edits),
            passed=admitted.passed,
            dropped=admitted.dropped,
            seconds=found.seconds + opened.seconds + time.perf_counter() - begin,
        )

    async def carry_out(self, decision: Decision) -> Prepared:
        """The pixels, off the event loop, and the new body."""
        begin = time.perf_counter()
        encoded = await _results_async(self.workers.submit(_jobs(decision)))
        return _write(decision, encoded, time.perf_counter() - begin)

    def picture(self, data: bytes, profile: str = "", model: str = "", page: int = 0) -> Picture:
        """One picture file, or one page of a document, prepared as in a request. The calling thread waits."""
        return self.make(data, self.plan_picture(data, profile, model, page))

    def pages(self, data: bytes, profile: str = "", model: str = "") -> Sequence[Picture]:
        """All that a file becomes: a picture, or one a page. Raises TooManyPages where the profile says so."""
        return [self.make(data, planned) for planned in self.plan_pages(data, profile, model)]

    def make(self, data: bytes, planned: PicturePlan) -> Picture:
        """The second half of `picture` and `pages`."""
        work = partial(prepare, bytes(data), planned.probe, planned.target)
        sent, media_type = self.workers.run(_job(work, planned))
        report = PictureReport.of(planned, Encoded(None, media_type, len(sent)))
        return Picture(sent, media_type, planned.size, planned.tokens, report)

    def plan_picture(self, data: bytes, profile: str = "", model: str = "", page: int = 0) -> PicturePlan:
        """What `picture` would do, without doing it."""
        chosen = self._profile(profile)
        probes = self._probes(data, chosen, max(page + 1, chosen.pages.max) if page else 1)
        if not 0 <= page < len(probes):
            raise UnsupportedMedia(f"a document of {len(probes)} pages and not of {page + 1}")
        return self._planned(probes[page], chosen, model)

    def plan_pages(self, data: bytes, profile: str = "", model: str = "") -> Sequence[PicturePlan]:
        """What `pages` would do, without doing it."""
        chosen = self._profile(profile)
        probes = self._probes(data, chosen, chosen.pages.max)
        check_pages(probes[0], chosen)
        return [self._planned(probe, chosen, model) for probe in probes]

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

    def _openings(self, opened: Opened) -> list[Job[Sequence[Probe]]]:
        """The work to find the pages of those media whose headers do not tell."""
        profile = self.settings.profiles[opened.profile]
        media = [medium for medium in opened.media if _must_be_opened(medium.first, profile)]
        return [Job(medium.opening(profile.pages.max), is_risky_to_open(medium.first)) for medium in media]

    def _plan(self, opened: Opened, pages: Sequence[Sequence[Probe]], model: Model) -> Plan:
        profile, found, subjects = self.settings.profiles[opened.profile], iter(pages), []
        for medium in opened.media:
            with naming(medium.part.place):
                must = _must_be_opened(medium.first, profile)
                probes = next(found) if must else [medium.first]
                medium.check_room(len(probes), named=self.settings.uuid != "strip")
                subjects.append(Subject(medium.part.place, probes, medium.part.context.prompt))
        return plan(subjects, profile, model, self.settings.limits, opened.admitted.passed_images)

    def _profile(self, name: str) -> Profile:
        name = name or self.settings.default_profile
        if name not in self.settings.profiles:
            raise UnknownProfile(name, self.settings.profiles)
        return self.settings.profiles[name]

    def _probes(self, data: bytes, profile: Profile, at_most: int) -> Sequence[Probe]:
        """Of the first pages of a file."""
        check_bytes(len(data), self.settings.limits)
        file = File(bytes(data))
        first = probe_readable(file)
        if _must_be_opened(first, profile):
            return self.workers.run(Job(partial(open_pages, file, first, at_most), is_risky_to_open(first)))
        return [first]

    def _planned(self, probe: Probe, profile: Profile, model: str) -> PicturePlan:
        planned = plan_picture("", probe, profile, self.settings.model(model).rule, self.settings.limits)
        check_budget(Plan([[planned]]), self.settings.limits)
        return planned


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


def _later(opened: Opened, begin: float) -> Opened:
    """With the time that finding pages has taken since."""
    return msgspec.structs.replace(opened, seconds=opened.seconds + time.perf_counter() - begin)


def _must_be_opened(first: Probe, profile: Profile) -> bool:
    return must_be_opened(first, frames=profile.animation != "first")


def _jobs(decision: Decision) -> list[Job[Encoded]]:
    """One a picture."""
    media = zip(decision.media, decision.plan.media, strict=True)
    return [_job(medium.job(one), one) for medium, pictures in media for one in pictures]


def _job(work: partial[T], planned: PicturePlan) -> Job[T]:
    return Job(work, is_risky(planned.probe, planned.target), pixels_to_decode(planned.probe))


def _results(futures: Sequence[Future[T]]) -> list[T]:
    try:
        return [future.result() for future in futures]
    finally:
        _cancel(futures)


async def _results_async(futures: Sequence[Future[T]]) -> list[T]:
    try:
        return [await asyncio.wrap_future(future) for future in futures]
    finally:
        _cancel(futures)  # a part was refused, or the task was cancelled: the others need not begin


def _cancel(futures: Sequence[Future[T]]) -> None:
    for future in futures:
        future.cancel()


def _write(decision: Decision, encoded: Sequence[Encoded], prepare_s: float) -> Prepared:
    strings = {**decision.edits, **_strings(decision, encoded)}
    raw = decision.body.raw
    body = decision.body.splice(strings) if strings else raw
    report = Report.of(
        decision.profile,
        decision.model,
        decision.plan,
        encoded,
        bytes_before=len(raw),
        bytes_after=len(body),
        passed=decision.passed,
        dropped=decision.dropped,
        decide_s=decision.seconds,
        prepare_s=prepare_s,
    )
    return Prepared(body, report)


def _strings(decision: Decision, encoded: Sequence[Encoded]) -> dict[Place, bytes]:
    """What to write for all media."""
    files, strings = iter(encoded), dict[Place, bytes]()
    pages = [list(islice(files, len(pictures))) for pictures in decision.plan.media]
    media = list(zip(decision.media, pages, strict=True))
    paths = {medium.part.part for medium, pictures in media if medium.takes_whole_part(len(pictures))}
    wholes = decision.body.places(paths) if paths else {}
    for medium, pictures in media:
        strings |= medium.strings(pictures, wholes.get(medium.part.part))
    return strings


def _name(value: Any) -> str:
    """A model name that can be matched, logged and sent: no longer than one is, and without lone surrogates."""
    return value[:MAX_NAME].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
