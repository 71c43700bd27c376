"""Children are real processes, and /proc tells of them."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, Thread

import msgspec
import pytest

from vlm_edge.errors import CorruptMedia, DecoderStopped, EdgeError, ServerError, TooManyImages
from vlm_edge.isolation import MAX_JOBS, Isolation, IsolationSettings

ROOT = Path(__file__).parent.parent
LONG_S = 60.0  # for what must end by itself, on any machine
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


# Work, done in a child


def mark(file: Path, then_sleep_s: float = 0.0) -> int:
    """Leave the number of this process where the test finds it."""
    half = file.with_suffix(".half")
    half.write_text(str(os.getpid()))
    half.rename(file)
    time.sleep(then_sleep_s)
    return os.getpid()


def refuse() -> None:
    raise TooManyImages(3, 2)


def fail() -> None:
    raise ValueError("text of a library, /some/path")


def fail_with_what_cannot_be_sent() -> None:
    error = ValueError("text of a library")
    error.add_note("x")
    error.args = (lambda: None,)
    raise error


def give_what_cannot_be_sent() -> object:
    return lambda: None


def fault() -> None:
    ctypes.string_at(0)


def print_much() -> str:
    print("stray", flush=True)
    os.write(1, b"x" * 1_000_000)
    ctypes.CDLL(None).puts(b"of C")
    ctypes.CDLL(None).fflush(None)
    return f"read {os.read(0, 10)!r}"


def take(n_bytes: int) -> int:
    return len(bytearray(n_bytes))


def start_threads(count: int) -> int:
    barrier = Barrier(count + 1)
    threads = [Thread(target=barrier.wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    barrier.wait()
    return len(threads)


def doomed() -> int:
    """Die, in the way that a child does which an earlier file left unsound: at the second job."""
    if sys.modules.get("unsound"):
        os._exit(1)
    sys.modules["unsound"] = sys
    return os.getpid()


def spin(cpu_s: float) -> float:
    while time.process_time() < cpu_s:
        pass
    return time.process_time()


def interrupt() -> str:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
    return "alive"


# What the test sees


@pytest.fixture
def isolation() -> Iterator[Isolation]:
    isolation = Isolation(IsolationSettings(timeout_s=LONG_S))
    yield isolation
    isolation.close()


def gone(pid: int) -> bool:
    """Whether a process ends; a zombie has not ended for its parent."""
    return eventually(lambda: not Path(f"/proc/{pid}").exists())


def eventually(holds: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + LONG_S
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.01)
    return holds()


def said_of(isolation: Isolation, work: Callable[[], object]) -> str:
    with pytest.raises(CorruptMedia) as caught:
        isolation.run(work)
    return caught.value.message


UNSOUND = DecoderStopped("failed, or took too much memory").message
TOO_SLOW = DecoderStopped("took too long").message


# Results


def test_work_is_done_in_another_process(isolation: Isolation) -> None:
    assert isolation.run(os.getpid) != os.getpid()
    assert isolation.run(partial(divmod, 7, 2)) == (3, 1)


def test_nothing_is_a_result_too(isolation: Isolation) -> None:
    assert isolation.run(partial(print, "x")) is None


def test_an_error_of_ours_arrives_whole(isolation: Isolation) -> None:
    with pytest.raises(TooManyImages) as caught:
        isolation.run(refuse)
    assert caught.value.message == TooManyImages(3, 2).message
    assert (caught.value.found, caught.value.allowed) == (3, 2)


def test_work_goes_on_in_the_same_child_after_an_error_of_ours(isolation: Isolation) -> None:
    first = isolation.run(os.getpid)
    with pytest.raises(TooManyImages):
        isolation.run(refuse)
    assert isolation.run(os.getpid) == first


def test_much_goes_in_and_comes_out(isolation: Isolation) -> None:
    data = os.urandom(1 << 20) * 100
    assert isolation.run(partial(bytes.__add__, data, b"!")) == data + b"!"


def test_what_is_printed_does_not_come_between(isolation: Isolation) -> None:
    assert isolation.run(print_much) == "read b''"
    assert isolation.run(partial(divmod, 7, 2)) == (3, 1)


def test_without_isolation_work_is_done_here() -> None:
    isolation = Isolation(IsolationSettings(enabled=False))
    assert isolation.run(os.getpid) == os.getpid()
    with pytest.raises(TooManyImages):
        isolation.run(refuse)


def test_a_child_loads_nothing_heavy_before_it_has_to(isolation: Isolation) -> None:
    loaded = isolation.run(partial(eval, "sorted(__import__('sys').modules)"))  # of a module that loads nothing itself
    assert "vlm_edge.isolation" in loaded
    assert set(loaded).isdisjoint({"PIL", "pyvips", "pypdfium2", "numpy", "cv2", "orjson", "starlette"})


def test_a_child_finds_what_the_parent_finds(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "found_only_here.py").write_text("def answer(): return 42")
    monkeypatch.syspath_prepend(tmp_path)
    import found_only_here  # type: ignore[import-not-found]

    assert isolation.run(found_only_here.answer) == 42


def test_the_main_script_is_not_run_again(tmp_path: Path) -> None:
    assert run_script(tmp_path, "print('once')\nprint(isolation.run(os.getpid) != os.getpid())") == "once\nTrue\n"


# Failures


@pytest.mark.parametrize(
    "work",
    [
        fail_with_what_cannot_be_sent,
        give_what_cannot_be_sent,
        fault,
        os.abort,
        sys.exit,
        partial(os._exit, 0),
        partial(take, 4 << 30),
    ],
)
def test_a_child_that_dies_is_one_bad_file_and_the_next_is_read(
    work: Callable[[], object], isolation: Isolation
) -> None:
    for _ in range(2):
        assert said_of(isolation, work) == UNSOUND
        assert isolation.run(partial(divmod, 7, 2)) == (3, 1)


def test_an_error_of_our_own_is_not_called_a_bad_file(isolation: Isolation) -> None:
    with pytest.raises(ValueError, match="text of a library"):
        isolation.run(fail)


@ONLY_LINUX
@pytest.mark.parametrize(
    ("limits", "work"),
    [({"timeout_s": 0.5}, partial(time.sleep, 10 * LONG_S)), ({"cpu_s": 0.2}, partial(spin, 10 * LONG_S))],
)
def test_a_child_that_takes_too_long_is_killed(limits: dict[str, float], work: Callable[[], object]) -> None:
    isolation = Isolation(msgspec.convert({"timeout_s": LONG_S} | limits, IsolationSettings))
    before = isolation.run(os.getpid)
    assert said_of(isolation, work) == TOO_SLOW
    assert gone(before)
    isolation.close()


@ONLY_LINUX
def test_many_pixels_may_take_longer() -> None:
    isolation = Isolation(IsolationSettings(cpu_s=0.1, cpu_s_a_megapixel=LONG_S))
    assert isolation.run(partial(spin, 0.3), pixels=1_000_000) >= 0.3
    assert said_of(isolation, partial(spin, 10 * LONG_S)) == TOO_SLOW
    isolation.close()


def test_a_child_that_an_earlier_file_left_unsound_is_no_fault_of_the_next(isolation: Isolation) -> None:
    first = isolation.run(doomed)
    assert isolation.run(doomed) != first


def test_a_child_that_was_killed_while_it_waited_is_replaced(isolation: Isolation) -> None:
    first = isolation.run(os.getpid)
    os.kill(first, signal.SIGKILL)
    assert isolation.run(os.getpid) != first


def test_memory_is_limited_and_stacks_of_threads_are_not_counted() -> None:
    isolation = Isolation(IsolationSettings(memory_bytes=256 << 20, timeout_s=LONG_S))
    assert isolation.run(partial(take, 128 << 20)) == 128 << 20
    assert isolation.run(partial(start_threads, os.cpu_count() or 1)) == os.cpu_count()
    assert said_of(isolation, partial(take, (256 << 20) + 1)) == UNSOUND
    isolation.close()


def test_a_process_that_cannot_be_started_is_no_fault_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    for nothing in ("", "/nowhere/python", "/bin/false"):
        monkeypatch.setattr(sys, "executable", nothing)
        with pytest.raises(ServerError, match="no process could be started to decode it in"):
            Isolation(IsolationSettings()).run(os.getpid)


def test_signals_to_the_whole_group_do_not_end_work(isolation: Isolation) -> None:
    assert isolation.run(interrupt) == "alive"


# Children


def test_a_child_is_used_again_but_not_for_ever(isolation: Isolation) -> None:
    seen = [isolation.run(os.getpid) for _ in range(MAX_JOBS + 1)]
    assert set(seen[:-1]) == {seen[0]}
    assert seen[-1] != seen[0]


@ONLY_LINUX
def test_calls_at_once_have_a_child_each_and_few_are_kept(tmp_path: Path) -> None:
    """None of them ends before all have begun."""
    count = 2 * (os.cpu_count() or 1) + 1
    isolation = Isolation(IsolationSettings(cpu_s=LONG_S, timeout_s=LONG_S), at_once=count)
    with ThreadPoolExecutor(count) as pool:
        works = [partial(wait_for_others, tmp_path, count) for _ in range(count)]
        seen = set(pool.map(isolation.run, works))
    assert len(seen) == count
    assert len([pid for pid in seen if Path(f"/proc/{pid}").exists()]) == os.cpu_count()
    isolation.close()


def test_no_more_children_are_at_work_than_may_be(tmp_path: Path) -> None:
    isolation = Isolation(IsolationSettings(timeout_s=LONG_S), at_once=2)
    with ThreadPoolExecutor(6) as pool:
        most = max(pool.map(isolation.run, [partial(count_at_work, tmp_path) for _ in range(12)]))
    assert 1 <= most <= 2
    isolation.close()


def count_at_work(folder: Path) -> int:
    """How many others have begun and not ended."""
    mine = folder / str(os.getpid())
    mine.touch()
    time.sleep(0.05)
    found = len(list(folder.iterdir()))
    mine.unlink()
    return found


def wait_for_others(folder: Path, count: int) -> int:
    (folder / str(os.getpid())).touch()
    assert eventually(lambda: len(list(folder.iterdir())) >= count)
    return os.getpid()


def test_many_threads_with_good_and_bad_files_each_get_their_own_answer(isolation: Isolation) -> None:
    def one(number: int) -> object:
        work = (partial(divmod, number, 7), fault, refuse)[number % 3]
        try:
            return isolation.run(work)
        except EdgeError as error:
            return type(error)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(24)))
    assert found == [(divmod(number, 7), DecoderStopped, TooManyImages)[number % 3] for number in range(24)]


# The end


@ONLY_LINUX
def test_close_ends_children_that_wait(isolation: Isolation) -> None:
    pid = isolation.run(os.getpid)
    isolation.close()
    assert not Path(f"/proc/{pid}").exists()  # nor is it a zombie
    isolation.close()


def test_after_close_there_is_no_work(isolation: Isolation) -> None:
    isolation.close()
    with pytest.raises(ServerError, match="the edge is closed"):
        isolation.run(os.getpid)


@ONLY_LINUX
def test_close_ends_work_under_way_with_an_error(isolation: Isolation, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(isolation.run, partial(mark, tmp_path / "pid", 10 * LONG_S))
        assert eventually((tmp_path / "pid").exists)
        isolation.close()
        with pytest.raises(ServerError, match="the edge is closed"):
            running.result(LONG_S)
    assert gone(int((tmp_path / "pid").read_text()))


@ONLY_LINUX
def test_children_end_with_an_isolation_that_nobody_holds() -> None:
    isolation = Isolation(IsolationSettings())
    pid = isolation.run(os.getpid)
    del isolation
    gc.collect()
    assert not Path(f"/proc/{pid}").exists()


SCRIPT = """
import os, sys, time
from functools import partial
from pathlib import Path
from threading import Thread
from tests.test_isolation import mark
from vlm_edge.isolation import Isolation, IsolationSettings
isolation = Isolation(IsolationSettings(timeout_s=60.0))
"""


def started_script(folder: Path, script: str) -> "subprocess.Popen[str]":
    file = folder / "script.py"
    file.write_text(SCRIPT + script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-W", "error", file], env=environment, stdout=pipe, stderr=pipe, text=True, cwd=folder
    )


def run_script(folder: Path, script: str) -> str:
    """What it prints; it must end by itself, and without a word on stderr."""
    with started_script(folder, script) as process:
        out, err = process.communicate(timeout=2 * LONG_S)
    assert (process.returncode, err) == (0, "")
    return out


@ONLY_LINUX
def test_a_program_that_ends_leaves_no_child(tmp_path: Path) -> None:
    assert gone(int(run_script(tmp_path, "print(isolation.run(os.getpid))")))


@ONLY_LINUX
def test_a_program_that_ends_while_a_thread_works_leaves_no_child(tmp_path: Path) -> None:
    script = """
Thread(target=isolation.run, args=[partial(mark, Path("pid"), 600.0)], daemon=True).start()
while not Path("pid").exists():
    time.sleep(0.01)
"""
    run_script(tmp_path, script)
    assert gone(int((tmp_path / "pid").read_text()))


@ONLY_LINUX
@pytest.mark.parametrize("seconds", ["0.0", "600.0"])
def test_children_of_a_program_that_is_killed_end(seconds: str, tmp_path: Path) -> None:
    """At work or not: those at work by their own alarm, for nobody else looks at the clock."""
    script = f"""
isolation = Isolation(IsolationSettings(timeout_s=1.0))
Thread(target=isolation.run, args=[partial(mark, Path("pid"), {seconds})], daemon=True).start()
time.sleep(600)
"""
    with started_script(tmp_path, script) as process:
        assert eventually((tmp_path / "pid").exists)
        process.kill()
    assert gone(int((tmp_path / "pid").read_text()))


@ONLY_LINUX
def test_a_fork_has_children_of_its_own(tmp_path: Path) -> None:
    """As under gunicorn with preload; and the first one's still end with it, whoever holds copies of its pipes."""
    script = """
first = isolation.run(os.getpid)
fork = os.fork()
if not fork:
    own = isolation.run(os.getpid)
    Path("own").write_text(str(own))
    Path("first").write_text(str(first))
    while not Path("end").exists():
        time.sleep(0.01)
    sys.exit(isolation.run(os.getpid) != own)
while not Path("first").exists():
    time.sleep(0.01)
assert isolation.run(os.getpid) == first
os.kill(os.getpid(), 9)
"""
    with started_script(tmp_path, script) as process:
        assert process.wait(LONG_S) == -signal.SIGKILL
        first, own = (int((tmp_path / name).read_text()) for name in ("first", "own"))
        assert first != own
        assert gone(first)  # while the fork lives
        (tmp_path / "end").touch()
        assert gone(own)


# Settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_s": 0},
        {"timeout_s": -1},
        {"cpu_s": 0},
        {"cpu_s_a_megapixel": -1},
        {"timeout_s": 1e9},
        {"memory_bytes": 1 << 20},
        {"unknown": 1},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, IsolationSettings)
