"""
Isolation: child processes with a limit of time and memory, for decoders that a thread cannot be rid of.

A child is a new interpreter: neither a fork of a process that has threads, nor one that imports the program's main
script again. Work and results go through its pipes as pickles. It ends when its stdin does, so it outlives nobody. It
is a bulkhead, not a sandbox: what runs in it has the rights of this process.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore, Lock, Timer
from time import monotonic
from typing import IO, Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet, finalize

import msgspec

from vlm_edge.errors import DecoderStopped, ServerError

T = TypeVar("T")

MAX_JOBS = 500  # of one child: what decoders leak goes with it
AT_ONCE_S = 0.5
START_S = 60.0  # for a new interpreter, on a machine that is very busy
GRACE_S = 2.0  # a child at work ends so long after its time by itself, should nobody watch it any more
STACK_BYTES = 8 << 20  # counted as memory for each thread of a decoder, used or not; they start one a processor
MIN_MEMORY_BYTES = 1 << 27  # an interpreter with its libraries takes most of it

# What a child that is out of time has died of.
_EXPIRED = tuple(-getattr(signal, name) for name in ("SIGPROF", "SIGALRM") if hasattr(signal, name))

_BOOT = (
    "import sys; arguments = sys.argv[1:]; sys.path[:] = arguments[2:]; "
    "from vlm_edge.isolation import serve; serve(float(arguments[0]), int(arguments[1]))"
)


class IsolationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """enabled: decoders that a thread cannot be rid of run in child processes.

    cpu_s: processor time for one picture or page, and cpu_s_a_megapixel more for each million of its pixels. timeout_s:
    the same on the clock, however busy the machine is. memory_bytes: of one child; video_memory_bytes: of one that
    reads videos, whose decoders hold many frames. Where the system has no such limits (Windows) the clock's alone
    holds.
    """

    enabled: bool = True
    cpu_s: float = 2.0
    cpu_s_a_megapixel: float = 0.1
    timeout_s: float = 60.0
    memory_bytes: int = 448 << 20
    video_memory_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        for name in ("cpu_s", "timeout_s"):
            if not 0 < getattr(self, name) <= 3_600:
                raise ValueError(f"{name} must be more than 0 and at most 3600")
        if not 0 <= self.cpu_s_a_megapixel <= 60:
            raise ValueError("cpu_s_a_megapixel must be 0 to 60")
        if min(self.memory_bytes, self.video_memory_bytes) < MIN_MEMORY_BYTES:
            raise ValueError(f"memory_bytes and video_memory_bytes must be at least {MIN_MEMORY_BYTES}")


class Isolation:
    """Work is a partial of a module-level function over values that pickle, and so does its result."""

    def __init__(self, settings: IsolationSettings, at_once: int = 0) -> None:
        """at_once: how many children may be at work (0: one a processor)."""
        self.settings = settings
        self._free = BoundedSemaphore(at_once or os.cpu_count() or 1)
        self._children = _Children(settings)
        self._end = finalize(self, self._children.close)

    def run(self, work: Callable[[], T], pixels: int = 0) -> T:
        """The result of the work on so many pixels in a child process, or the error it raised.

        A child may die of what an earlier file did to it, and then does so at once: a new one tells of this file.
        """
        if not self.settings.enabled:
            return work()
        with self._free:
            return self._run(work, pixels)

    def _run(self, work: Callable[[], T], pixels: int) -> T:
        task = _Task(work, self.settings.cpu_s + self.settings.cpu_s_a_megapixel * pixels / 1e6)
        child, left_s = self._children.taken(), self.settings.timeout_s
        if child.jobs:
            start_s = monotonic()
            try:
                return self._done(child, task, left_s)
            except _Died:
                took_s = monotonic() - start_s
            if took_s > AT_ONCE_S:
                raise _fallen()
            left_s -= took_s
            child = self._children.started()
        try:
            return self._done(child, task, left_s)
        except _Died:
            raise _fallen() from None

    def _done(self, child: "_Child", task: "_Task[T]", left_s: float) -> T:
        with self._children.returned(child):
            outcome = child.do(task, left_s)
        if isinstance(outcome, Exception):
            raise outcome
        result: T = outcome[0]
        return result

    def close(self) -> None:
        """End all children; work under way ends with an error."""
        self._end()


class _Children:
    """All children of this process, and those of them that wait for work."""

    def __init__(self, settings: IsolationSettings) -> None:
        self.settings = settings
        self.max_idle = os.cpu_count() or 1
        self.closed = False
        self._lock = Lock()
        self._all: set[_Child] = set()
        self._idle: list[_Child] = []
        _OURS.add(self)

    def taken(self) -> "_Child":
        """One that waited for work and is alive, or a new one."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                child = self._idle.pop()
            if child.alive:
                return child
            self._drop(child)
        return self.started()

    def started(self) -> "_Child":
        child = _Child(self.settings)
        with self._lock:
            self._all.add(child)
        try:
            self._check_open()
            child.greet()
        except BaseException:
            self._drop(child)
            raise
        return child

    @contextmanager
    def returned(self, child: "_Child") -> Iterator[None]:
        """Keep a child that did its work for the next one; end any other."""
        try:
            yield
        except _Died:
            self._check_open()  # then it did not die of the file
            raise
        finally:
            with self._lock:
                kept = child.sound and child.jobs < MAX_JOBS and len(self._idle) < self.max_idle and not self.closed
                if kept:
                    self._idle.append(child)
            if not kept:
                self._drop(child)

    def _check_open(self) -> None:
        if self.closed:
            raise ServerError("the edge is closed")

    def _drop(self, child: "_Child") -> None:
        child.kill()
        child.hang_up()
        with self._lock:
            self._all.discard(child)

    def close(self) -> None:
        with self._lock:
            self.closed = True
            idle, at_work = self._idle.copy(), self._all.difference(self._idle)
            self._idle.clear()
        for child in idle:
            self._drop(child)
        for child in at_work:
            child.kill()  # whoever waits for it drops it

    def forget(self) -> None:
        """Begin without children, as a fork of this process must: they are not its own."""
        for child in self._all:
            child.disown()
        self._lock = Lock()
        self._all, self._idle = set(), []


class _Died(Exception):
    pass


class _Task(NamedTuple, Generic[T]):
    work: Callable[[], T]
    cpu_s: float


class _Child:
    def __init__(self, settings: IsolationSettings) -> None:
        limits = str(settings.timeout_s + GRACE_S), str(settings.memory_bytes)
        command = [sys.executable, "-c", _BOOT, *limits, *map(str, sys.path)]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere)  # noqa: S603
        except OSError:
            raise _no_child() from None
        self.jobs = 0
        self.sound = False  # it has answered all it was asked
        self._expired = False

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def greet(self) -> None:
        """Wait until it is there, so that its start does not count as time of a picture."""
        try:
            with self._watched(START_S):
                self._receive()
        except _Died:
            raise _no_child() from None

    def do(self, task: _Task[Any], left_s: float) -> Any:
        """A tuple of the result, or the error that was raised."""
        self.jobs += 1
        self.sound = False
        try:
            with self._watched(left_s):
                self._send(task)
                outcome = self._receive()
        except _Died:
            if self._expired or self._process.wait() in _EXPIRED:
                raise DecoderStopped("took too long") from None
            raise
        self.sound = not self._expired
        return outcome

    @contextmanager
    def _watched(self, timeout_s: float) -> Iterator[None]:
        timer = Timer(timeout_s, self._expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # from here on it has struck or never will

    def _expire(self) -> None:
        self._expired = True
        self.kill()

    def _send(self, task: _Task[Any]) -> None:
        assert self._process.stdin
        try:
            _write(self._process.stdin, task)
        except OSError:
            raise _Died from None

    def _receive(self) -> Any:
        assert self._process.stdout
        try:
            return pickle.load(self._process.stdout)  # noqa: S301 - our own process wrote it
        except (OSError, EOFError, pickle.UnpicklingError):
            raise _Died from None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def hang_up(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            with suppress(OSError):  # what it was still to be told
                pipe.close()

    def disown(self) -> None:
        """In a fork: let go of copies of the pipes, or the child would not see its stdin end. They may be in use."""
        nowhere = os.pipe()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            if not pipe.closed:
                os.dup2(nowhere[0], pipe.fileno(), inheritable=False)
        for end in nowhere:
            os.close(end)
        self._process.returncode = 0


def _fallen() -> DecoderStopped:
    return DecoderStopped("failed, or took too much memory")


def _no_child() -> ServerError:
    return ServerError("no process could be started to decode it in; the request may be sent again")


def _write(pipe: IO[bytes], value: object) -> None:
    """As a stream: large pictures are not copied."""
    pickle.dump(value, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()


_OURS: WeakSet[_Children] = WeakSet()


def _forget_all() -> None:
    for children in list(_OURS):
        children.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


# In the child


def serve(timeout_s: float, memory_bytes: int) -> None:
    """Do what comes in, until nothing can any more or something goes wrong; no word of why."""
    try:
        jobs, results = _moved(0, "rb"), _moved(1, "wb")
        _ignore_signals()
        _limit(memory_bytes)
        _write(results, None)
        while True:
            task = pickle.load(jobs)  # noqa: S301 - the parent wrote it
            with _alarms(task.cpu_s, timeout_s):
                outcome = _outcome(task.work)
            _write(results, outcome)
            del task, outcome
    finally:
        os._exit(0)  # no library tidies up


def _moved(fd: int, mode: str) -> IO[bytes]:
    """A pipe of our own; in its old place, where libraries print, is now that of stderr: nowhere."""
    pipe: IO[bytes] = os.fdopen(os.dup(fd), mode)
    os.dup2(2, fd)
    return pipe


def _ignore_signals() -> None:
    """They are for the parent, which may go on for a while; its end is ours."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _limit(memory_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has none
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    allowed = memory_bytes + (os.cpu_count() or 1) * STACK_BYTES
    with suppress(ValueError, OSError):  # a stricter limit is in place
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))


@contextmanager
def _alarms(cpu_s: float, timeout_s: float) -> Iterator[None]:
    """Of their signals a process dies, even within C code."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _outcome(work: Callable[[], T]) -> tuple[T] | Exception:
    try:
        return (work(),)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - it is for whoever waits
        return error
