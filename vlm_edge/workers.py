"""Workers: bounded threads and a bounded queue before them; the only way into slow work."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

import msgspec

from vlm_edge.errors import Overloaded

T = TypeVar("T")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """threads: pictures worked on at once (0: one a processor). max_waiting: pictures in the queue before them."""

    threads: int = 0
    max_waiting: int = 256

    def __post_init__(self) -> None:
        if self.threads < 0 or self.max_waiting < 0:
            raise ValueError("threads and max_waiting must not be negative")


class Workers:
    """Jobs are module-level functions over values that pickle, so that they could as well run in processes."""

    def __init__(self, settings: WorkerSettings) -> None:
        threads = settings.threads or os.cpu_count() or 1
        self.allowed = threads + settings.max_waiting
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="vlm-edge")
        self._lock = Lock()
        self._pending = 0

    @property
    def pending(self) -> int:
        """Jobs under way or waiting."""
        return self._pending

    def submit(self, jobs: Sequence[Callable[[], T]]) -> list[Future[T]]:
        """Start all jobs of a request, or raise Overloaded and start none."""
        with self._lock:
            if self._pending and self._pending + len(jobs) > self.allowed:
                raise Overloaded(self._pending + len(jobs), self.allowed)
            futures = [self._pool.submit(job) for job in jobs]
            self._pending += len(jobs)
        for future in futures:
            future.add_done_callback(self._done)
        return futures

    def _done(self, _: Future[T]) -> None:
        with self._lock:
            self._pending -= 1

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
