"""Edge: the steps in order, once, in one direction. What every face calls."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from vlm_edge import choice, context
from vlm_edge.checkpoint import Loaded
from vlm_edge.clips import ClipPlan, Form
from vlm_edge.context import Question, Told
from vlm_edge.decision import Decision, Found, Opened, Prepared, find, hidden_bytes, job, later, write
from vlm_edge.drift import Drifts
from vlm_edge.errors import Overloaded, RemoteMediaRefused, UnknownProfile, UnsupportedMedia, naming
from vlm_edge.fetch import Fetcher, need_extra
from vlm_edge.films import READINGS, Films, Video, endless
from vlm_edge.footage import Cut, footage_of, may_be_video, open_footage
from vlm_edge.geometry import Size
from vlm_edge.isolation import Isolation
from vlm_edge.media.data_url import File
from vlm_edge.media.prepare import is_risky_to_open, must_be_opened, prepare, probe_readable
from vlm_edge.media.probe import Probe
from vlm_edge.media.profile import Profile
from vlm_edge.media.video import Clip
from vlm_edge.medium import Encoded, open_media, open_pages, strings_of
from vlm_edge.pictures import PicturePlan, Subject, check_bytes, check_pages, max_images, plan_picture
from vlm_edge.plan import Model, Plan, Rooms, again, check_budget, fitted, plan
from vlm_edge.policies import Admitted, admit
from vlm_edge.report import PictureReport
from vlm_edge.requests.body import Path, Raw, find_cuts
from vlm_edge.requests.part import MediaPart
from vlm_edge.requests.stray import holds_data_url
from vlm_edge.settings import Settings
from vlm_edge.workers import Job, Workers

# Text of a body that takes some milliseconds at worst.
ASIDE_BYTES = 32 * 1024
# Counting the tokens of text takes so many times as long as reading it.
COUNTING = 8
LONG = ASIDE_BYTES + 1
# Long texts that may wait for the one thread that reads them.
MAX_READING = 128
# And planning a picture, of the models that count most slowly, as long as reading so many bytes.
PLANNING = 1_600

# What stands for each picture when a server is asked for the tokens of a prompt.
SMALL_SIZE = Size(28, 28)
SMALL_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAABwAAAAcCAAAAABXZoBIAAAAFklEQVR42mP8z4AbMDGMSo5KjkpCAQCD/gE3G98i8wAAAABJRU5ErkJggg=="
)
SMALL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{SMALL_PNG}"}}

T = TypeVar("T")

_NO_HEADERS: Mapping[str, str] = {}
_NO_FILES: Mapping[Path, bytes] = {}
_NOTHING_TOLD = Told()


class Server(Protocol):
    """What a server can tell of the models that it serves. None: it cannot, or did not answer."""

    async def models(self) -> Mapping[str, int | None]:
        """Served names, and the context of each."""

    async def count(self, model: str, messages: Sequence[Any], extra: Mapping[str, Any]) -> int | None:
        """Tokens of a whole prompt."""


class Picture(msgspec.Struct, frozen=True):
    """One prepared picture, and what it costs the model."""

    data: bytes
    media_type: str
    size: Size
    tokens: int
    report: PictureReport


class Edge:
    """Prepares the pictures and documents of requests.

    One instance serves any number of threads and tasks; `close` ends its workers.
    Every method raises EdgeError (`.code`, `.status`) for what it refuses.
    """

    def __init__(self, settings: Settings | None = None, server: Server | None = None) -> None:
        self.settings = settings or Settings()
        self.models = self.settings.catalogue()
        self.models.read()
        self.server = server
        self.drifts = Drifts()
        at_once = self.settings.workers.threads
        bounds = self.settings.isolation
        of_videos = msgspec.structs.replace(bounds, memory_bytes=bounds.video_memory_bytes)
        self.workers = Workers(self.settings.workers, Isolation(bounds, at_once), Isolation(of_videos, at_once))
        self._films = Films(self.settings, self.workers)
        self._reading = 0  # long texts under way or waiting, of the event loop
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
        if decision.films:
            return _run(partial(self.carry_out, decision))
        encoded = _results(self.workers.submit(decision.jobs))
        return write(decision, encoded, (), time.perf_counter() - begin)

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
        text_bytes = len(found.body.skeleton) + PLANNING * len(found.parts)
        opened = await self._aside(text_bytes, partial(self.open, found, headers, files))
        text_bytes += PLANNING * len(opened.films) * self.settings.limits.max_images
        begin = time.perf_counter()
        pages = await _results_async(self.workers.submit(self._openings(opened)))
        clips = await _results_async(self.workers.submit(self._film_openings(opened)))
        opened = later(opened, begin)
        decision = await self._aside(text_bytes, partial(self.plan, opened, pages, clips))
        decision = await self._settle_async(decision, text_bytes)
        if budget:
            self.check(decision)
        return decision

    async def learn(self, loaded: Loaded) -> None:
        """Count as the server does that has loaded this model. Reads its checkpoint."""
        await asyncio.get_running_loop().run_in_executor(self._reader, self.models.load, loaded)

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
        clips = [self.workers.run(job) for job in self._film_openings(opened)]
        decision = self.settle(self.plan(later(opened, begin), pages, clips))
        self.check(decision)
        return decision

    def open(
        self, found: Found, headers: Mapping[str, str] = _NO_HEADERS, files: Mapping[Path, bytes] = _NO_FILES
    ) -> Opened:
        """Sort the media by the policies, and read the headers of ours."""
        begin, profile = time.perf_counter(), self._choose(found, headers)
        admitted = self._admit(found, profile, headers)
        media = open_media(found.body, admitted.ours, files, self.settings.limits)
        chosen = self.settings.profiles[profile]
        for medium in media:
            with naming(medium.part.place):
                check_pages(medium.first, chosen)  # as far as they are known
        films = open_footage(found.body, admitted.videos, self.settings.limits.max_video_bytes)
        moving = [medium for medium in media if may_be_video(medium, chosen)]
        if moving:
            films = [*films, *footage_of(found.body, moving)]
            media = [medium for medium in media if medium not in moving]
        return Opened(found, profile, admitted, media, films, time.perf_counter() - begin)

    def plan(self, opened: Opened, pages: Sequence[Sequence[Probe]], clips: Sequence[Clip] = ()) -> Decision:
        """`pages`: of the media that had to be opened for them, in their order. clips: of the videos."""
        begin, found, admitted = time.perf_counter(), opened.found, opened.admitted
        served = self.models.get(found.model)
        return Decision(
            path=found.path,
            body=found.body,
            profile=opened.profile,
            served=served,
            plan=self._plan(opened, pages, clips, served.model),
            media=opened.media,
            films=opened.films,
            labels=self.settings.profiles[opened.profile].video.labels,
            edits=strings_of(found.body, admitted.edits),
            passed=admitted.passed,
            dropped=admitted.dropped,
            hidden_bytes=hidden_bytes(found, opened.media),
            seconds=found.seconds + opened.seconds + time.perf_counter() - begin,
        )

    def settle(self, decision: Decision, told: Told = _NOTHING_TOLD) -> Decision:
        """Count the text of the prompts, and make pictures smaller where the budget says so. told: by the server."""
        begin, settings = time.perf_counter(), self.settings
        served, planned = told.of(decision.served, settings.budget.max_model_len), decision.plan
        rooms: Rooms = {}
        if decision.stands_alone:
            hidden = decision.hidden_bytes
            rooms = context.rooms(decision.prompts, planned, served, settings.budget, told.tokens, hidden)
        if settings.budget.on_exceed == "fit":
            profile = settings.profiles[decision.profile]
            planned = fitted(planned, profile, served.model.rule, settings.limits, rooms)
        seconds = decision.seconds + time.perf_counter() - begin
        return msgspec.structs.replace(decision, served=served, plan=planned, rooms=rooms, seconds=seconds)

    def check(self, decision: Decision) -> None:
        """Raises VisionBudgetExceeded for what costs too much."""
        check_budget(decision.plan, self.settings.limits, decision.rooms, decision.model.certainty)

    async def carry_out(self, decision: Decision) -> Prepared:
        """The pixels, off the event loop, and the new body."""
        begin = time.perf_counter()
        decision, cuts = await self._carry_out_films(decision) if decision.films else (decision, ())
        encoded = await _results_async(self.workers.submit(decision.jobs))
        return write(decision, encoded, cuts, time.perf_counter() - begin)

    async def _carry_out_films(self, decision: Decision) -> tuple[Decision, Sequence[Cut]]:
        """Videos that end earlier than their packets say are planned again, up to there."""
        profile = self.settings.profiles[decision.profile]
        for _ in range(READINGS):
            cuts = await _results_async(self.workers.submit(decision.film_jobs(profile)))
            ends = {number: cut for number, cut in enumerate(cuts) if isinstance(cut, float)}
            if not ends:
                return decision, [cut for cut in cuts if isinstance(cut, Cut)]
            jobs = [self._opened_again(decision, number, profile, end) for number, end in ends.items()]
            clips = dict(zip(ends, await _results_async(self.workers.submit(jobs)), strict=True))
            changed = msgspec.structs.replace(
                decision, plan=again(decision.plan, clips, profile, decision.model, self.settings.limits)
            )
            decision = await self._aside(LONG, partial(self.settle, changed))
            self.check(decision)
        with naming(decision.films[min(ends)].part.place):
            raise endless()

    def picture(self, data: bytes, profile: str = "", model: str = "", page: int = 0) -> Picture:
        """One picture file, or one page of a document, prepared as in a request. The calling thread waits."""
        return self.make(data, self.plan_picture(data, profile, model, page))

    def pages(self, data: bytes, profile: str = "", model: str = "") -> Sequence[Picture]:
        """All that a file becomes: a picture, or one a page. Raises TooManyPages where the profile says so."""
        return [self.make(data, planned) for planned in self.plan_pages(data, profile, model)]

    def video(self, data: bytes, profile: str = "", model: str = "") -> Video:
        """One video file, prepared as in a request. The calling thread waits."""
        return self._films.make(data, self._profile(profile), self.models.get(model).model)

    def plan_video(self, data: bytes, profile: str = "", model: str = "", form: Form | None = None) -> ClipPlan:
        """What `video` would do, in this form if one is given, without reading its frames."""
        chosen = self._profile(profile)
        if form:
            chosen = msgspec.structs.replace(chosen, video=msgspec.structs.replace(chosen.video, form=form))
        return self._films.plan(data, chosen, self.models.get(model).model)

    def make(self, data: bytes, planned: PicturePlan) -> Picture:
        """The second half of `picture` and `pages`."""
        work = partial(prepare, bytes(data), planned.probe, planned.target)
        sent, media_type = self.workers.run(job(work, planned))
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
        """Work on so much text, in a thread if it is so much that others would wait for it; one at a time. Raises
        Overloaded where too many wait for that."""
        if text_bytes <= ASIDE_BYTES:
            return work()
        if self._reading >= MAX_READING:
            raise Overloaded(self._reading + 1, MAX_READING)
        self._reading += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, work)
        finally:
            self._reading -= 1

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

    async def _settle_async(self, decision: Decision, text_bytes: int) -> Decision:
        """`settle`, with what the server tells, and long texts off the event loop."""
        tokenizer, server = decision.served.tokenizer, self.server
        if tokenizer:
            text_bytes = text_bytes * COUNTING if tokenizer.is_read else LONG
        told = Told()
        if server and decision.model.max_model_len is None:
            told = Told((await server.models()).get(decision.model.name))
        settled = await self._aside(text_bytes, partial(self.settle, decision, told))
        if server is None or self.settings.budget.count_text == "bound" or tokenizer or not decision.model.exact:
            return settled
        find = partial(context.questions, decision.prompts, decision.plan, settled.rooms, SMALL)
        questions = await self._aside(text_bytes, find)
        if not questions:
            return settled
        told = told._replace(tokens=await self._ask(decision.model, questions, server))
        return await self._aside(text_bytes, partial(self.settle, decision, told))

    async def _ask(self, model: Model, questions: Sequence[Question], server: Server) -> Mapping[int, int]:
        """Tokens of prompts without their pictures: they are asked for with small ones in their place."""
        asked = (server.count(model.name, question.messages, question.fields) for question in questions)
        found = {}
        for question, count in zip(questions, await asyncio.gather(*asked), strict=True):
            vision = sum(model.rule.images([SMALL_SIZE] * question.media))
            if count is not None and count >= vision:  # else it counts pictures in another way
                found[question.number] = count - vision
        return found

    def _openings(self, opened: Opened) -> list[Job[Sequence[Probe]]]:
        """The work to find the pages of those media whose headers do not tell."""
        profile = self.settings.profiles[opened.profile]
        media = [medium for medium in opened.media if _must_be_opened(medium.first, profile)]
        return [Job(medium.opening(profile.pages.max), is_risky_to_open(medium.first)) for medium in media]

    def _opened_again(self, decision: Decision, number: int, profile: Profile, end_s: float) -> Job[Clip]:
        most = decision.plan.clips[number].frames
        return self._films.opening(decision.films[number], profile, decision.model, most, end_s)

    def _film_openings(self, opened: Opened) -> list[Job[Clip]]:
        """The work to choose the frames of videos."""
        if not opened.films:
            return []
        profile, model = self.settings.profiles[opened.profile], self.models.get(opened.found.model).model
        return self._films.openings(opened.films, profile, model, len(opened.media))

    def _plan(self, opened: Opened, pages: Sequence[Sequence[Probe]], clips: Sequence[Clip], model: Model) -> Plan:
        profile, found, subjects = self.settings.profiles[opened.profile], iter(pages), []
        for medium in opened.media:
            with naming(medium.part.place):
                must = _must_be_opened(medium.first, profile)
                probes = next(found) if must else [medium.first]
                medium.check_room(len(probes), named=self.settings.uuid != "strip")
                subjects.append(Subject(medium.part.place, probes, medium.part.context.prompt))
        films = self._films.to_plan(opened.films, clips, profile, model)
        return plan(subjects, profile, model, self.settings.limits, opened.admitted.passed_images, films)

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
        limits, served = self.settings.limits, self.models.get(model).model
        rule = served.rule
        planned = Plan([[plan_picture(Subject("", [probe]), probe, profile, rule, limits)]])
        if self.settings.budget.on_exceed == "fit":
            planned = fitted(planned, profile, rule, limits)
        check_budget(planned, limits, certainty=served.certainty)
        return planned.pictures[0]


def _run(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
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


def _must_be_opened(first: Probe, profile: Profile) -> bool:
    return must_be_opened(first, frames=profile.animation != "first")


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
