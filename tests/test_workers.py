import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from functools import partial

import msgspec
import pytest

from vlm_edge.errors import CorruptMedia, Overloaded, ServerError
from vlm_edge.isolation import Isolation, IsolationSettings
from vlm_edge.workers import Job, Workers, WorkerSettings

PATIENCE_S = 30.0


class Gate:
    """Jobs that wait until the gate is opened, as slow pictures would."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)

    def job(self) -> str:
        self.entered.release()
        assert self.opened.wait(PATIENCE_S)
        return "done"


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = make(WorkerSettings(threads=2, max_waiting=3))
    yield workers
    workers.close()


def make(settings: WorkerSettings) -> Workers:
    return Workers(settings, Isolation(IsolationSettings()))


def until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    return true()


def fail() -> None:
    raise CorruptMedia("it is empty")


def test_jobs_give_their_results_in_order(workers: Workers) -> None:
    futures = workers.submit([Job(partial(divmod, number, 3)) for number in range(5)])
    assert [future.result(PATIENCE_S) for future in futures] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert until(lambda: workers.pending == 0)


def test_no_jobs_are_no_work(workers: Workers) -> None:
    assert workers.submit([]) == []
    assert workers.pending == 0


def test_jobs_run_on_so_many_threads_at_once(workers: Workers, gate: Gate) -> None:
    futures = workers.submit([Job(partial(gate.job))] * 5)
    assert gate.entered.acquire(timeout=PATIENCE_S)
    assert gate.entered.acquire(timeout=PATIENCE_S)
    assert not gate.entered.acquire(timeout=0.05)
    assert workers.pending == 5
    gate.opened.set()
    assert [future.result(PATIENCE_S) for future in futures] == ["done"] * 5


def test_what_finds_no_room_is_refused_and_nothing_of_it_begins(workers: Workers, gate: Gate) -> None:
    workers.submit([Job(partial(gate.job))] * 3)
    begun: list[int] = []
    with pytest.raises(Overloaded) as caught:
        workers.submit([Job(partial(begun.append, 1))] * 3)
    assert caught.value.status == 503
    assert "with this request 6 pictures would be under way; at most 5 may" in caught.value.message
    assert workers.pending == 3
    gate.opened.set()
    assert until(lambda: workers.pending == 0)
    assert begun == []


def test_the_last_place_is_given_away(workers: Workers, gate: Gate) -> None:
    workers.submit([Job(partial(gate.job))] * 3)
    assert len(workers.submit([Job(partial(gate.job))] * 2)) == 2
    with pytest.raises(Overloaded):
        workers.submit([Job(partial(gate.job))])


def test_a_request_larger_than_the_queue_is_taken_when_nothing_waits(workers: Workers) -> None:
    futures = workers.submit([Job(partial(int, "7"))] * 50)
    assert [future.result(PATIENCE_S) for future in futures] == [7] * 50


def test_after_an_overload_all_room_is_there_again(workers: Workers, gate: Gate) -> None:
    futures = workers.submit([Job(partial(gate.job))] * 5)
    for _ in range(3):
        with pytest.raises(Overloaded):
            workers.submit([Job(partial(gate.job))])
    gate.opened.set()
    wait(futures, PATIENCE_S)
    assert until(lambda: workers.pending == 0)
    assert workers.submit([Job(partial(int, "7"))])[0].result(PATIENCE_S) == 7


def test_a_job_that_fails_gives_its_place_back(workers: Workers) -> None:
    (future,) = workers.submit([Job(partial(fail))])
    with pytest.raises(CorruptMedia):
        future.result(PATIENCE_S)
    assert until(lambda: workers.pending == 0)


def test_a_job_that_is_cancelled_before_it_begins_gives_its_place_back(workers: Workers, gate: Gate) -> None:
    workers.submit([Job(partial(gate.job))] * 2)
    begun: list[int] = []
    futures = workers.submit([Job(partial(begun.append, 1))] * 3)
    assert all(future.cancel() for future in futures)
    assert workers.pending == 2
    with pytest.raises(CancelledError):
        futures[0].result(PATIENCE_S)
    gate.opened.set()
    assert until(lambda: workers.pending == 0)
    assert begun == []


@pytest.mark.anyio
async def test_a_task_that_is_cancelled_takes_its_waiting_jobs_with_it(workers: Workers, gate: Gate) -> None:
    workers.submit([Job(partial(gate.job))] * 2)
    futures: list[Future[str]] = workers.submit([Job(partial(gate.job))] * 2)
    task = asyncio.ensure_future(asyncio.gather(*map(asyncio.wrap_future, futures)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(future.cancelled() for future in futures)
    assert workers.pending == 2


def test_many_submitters_never_lose_a_place() -> None:
    workers = make(WorkerSettings(threads=4, max_waiting=4))

    def submit() -> None:
        for _ in range(200):
            with suppress(Overloaded):
                workers.submit([Job(partial(int, "7"))] * 2)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert until(lambda: workers.pending == 0)
    workers.close()


def test_closing_drops_what_has_not_begun(gate: Gate) -> None:
    workers = make(WorkerSettings(threads=1, max_waiting=9))
    futures = workers.submit([Job(partial(gate.job))] * 3)
    assert gate.entered.acquire(timeout=PATIENCE_S)
    workers.close()
    gate.opened.set()
    assert futures[0].result(PATIENCE_S) == "done"
    assert all(future.cancelled() for future in futures[1:])
    assert until(lambda: workers.pending == 0)


def test_no_threads_mean_one_a_processor() -> None:
    workers = make(WorkerSettings(threads=0, max_waiting=0))
    assert workers.allowed >= 1
    workers.close()


@pytest.mark.parametrize("fields", [{"threads": -1}, {"max_waiting": -1}, {"queue": 1}, {"threads": "two"}])
def test_settings_without_sense_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match=next(iter(fields))):
        msgspec.convert(fields, WorkerSettings)


def test_closed_workers_take_nothing_and_count_nothing() -> None:
    workers = make(WorkerSettings(threads=1))
    workers.close()
    with pytest.raises(ServerError, match="closed"):
        workers.submit([Job(partial(int))])
    assert workers.pending == 0
