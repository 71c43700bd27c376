"""
Workers: bounded threads and a bounded queue before them; the only way into slow work.

A job whose decoder may run away is done in a child process of its own, which its thread waits for.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

import msgspec

from vlm_edge.errors import DecoderStopped, Overloaded, ServerError, VideoStopped, naming
from vlm_edge.isolation import Isolation

T = TypeVar("T")
Given = TypeVar("Given")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """threads: pictures worked on at once (0: one a processor). max_waiting: pictures in the queue before them."""

    threads: int = 0
    max_waiting: int = 256

    def __post_init__(self) -> None:
        if self.threads < 0 or self.max_waiting < 0:
            raise ValueError("threads and max_waiting must not be negative")


class Job(NamedTuple, Generic[T]):
    """Work as a module-level function over values that pickle, so that it can be done in a child process as well.

    pixels: that it may take time for there. place: of what it is about, for its errors; a picture, or a video.
    """

    work: partial[T]
    isolated: bool = False
    pixels: int = 0
    place: str = ""
    video: bool = False


class Workers:
    def __init__(self, settings: WorkerSettings, isolation: Isolation, for_videos: Isolation | None = None) -> None:
        self.threads = settings.threads or os.cpu_count() or 1
        self.allowed = self.threads + settings.max_waiting
        self._isolation, self._for_videos = isolation, for_videos or isolation
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="vlm-edge")
        self._lock = Lock()
        self._pending = 0
        self._closed = False

    @property
    def pending(self) -> int:
        """Jobs under way or waiting."""
        return self._pending

    def run(self, job: Job[T]) -> T:
        """Do it now; the calling thread waits."""
        if not job.isolated:
            return job.work()
        with naming(job.place):
            try:
                isolation = self._for_videos if job.video else self._isolation
                return isolation.run(job.work, job.pixels)
            except DecoderStopped as stopped:
                raise (VideoStopped(stopped.why) if job.video else stopped) from None

    def submit(self, jobs: Sequence[Job[T]]) -> list[Future[T]]:
        """Start all jobs of a request, or raise Overloaded and start none."""
        with self._lock:
            if self._closed:
                raise ServerError("the edge is closed")
            if self._pending and self._pending + len(jobs) > self.allowed:
                raise Overloaded(self._pending + len(jobs), self.allowed)
            futures = [self._pool.submit(self.run, job) for job in jobs]
            self._pending += len(jobs)
        for future in futures:
            future.add_done_callback(self._done)
        return futures

    def _done(self, _: Future[T]) -> None:
        with self._lock:
            self._pending -= 1

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._isolation.close()
        self._for_videos.close()


def in_order(pool: ThreadPoolExecutor, work: Callable[[Given], T], items: Iterable[Given], ahead: int) -> Iterator[T]:
    """Results in order, with at most `ahead` items under way, so that a million of them need no million futures."""
    under_way: deque[Future[T]] = deque()
    try:
        for item in items:
            under_way.append(pool.submit(work, item))
            if len(under_way) >= ahead:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()
