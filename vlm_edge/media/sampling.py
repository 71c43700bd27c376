"""
Sampling: which frames of a video are taken. Pure functions on presentation times.

A sample of n frames over D seconds shows what is on the screen at the instants 0, D/n, 2D/n …: at its own rate, n/D,
each frame stands at its own time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from vlm_edge.media.profile import Sampling

EPSILON_S = 1e-3

# OpenCV looks for a frame to begin with so many before the one that it is sent to.
SEEK_BACK = 16

# Two pictures differ by so many grey levels on average where something moves; noise and compression stay below.
MOVES = 2.5


class Loader(NamedTuple):
    """How a server chooses among the frames that it is sent: it keeps all where they are no more than `max_frames`, a
    multiple of `step`, and either no more than `fps` a second or no more than `min_frames`."""

    max_frames: int = 32
    fps: float | None = None
    min_frames: int = 0
    step: int = 1


class Instant(NamedTuple):
    """at_s: a time of the sample. frame, shown_s: of the frame that is on the screen then. key: of the frame that
    reading begins with when it is sent there."""

    at_s: float
    frame: int
    shown_s: float
    key: int


class Sample(NamedTuple):
    """fps: at which the frames stand at their own times; what is evenly spread does so exactly."""

    instants: Sequence[Instant]
    fps: float


def choose(times_s: Sequence[float], keys_s: Sequence[float], sampling: Sampling, loader: Loader) -> Sample:
    """Evenly spread over the time that the frames take, and no more than they are, but for what completes a step."""
    first, stop = window(times_s, sampling)
    begin, length = times_s[first], length_s(times_s[first:stop])
    count = count_of(stop - first, length, sampling, loader)
    return sample(times_s, keys_s, [begin + number * length / count for number in range(count)], length)


def sample(times_s: Sequence[float], keys_s: Sequence[float], at_s: Sequence[float], length: float) -> Sample:
    """Of these instants of so many seconds."""
    found = [_instant(times_s, keys_s, at) for at in at_s]
    return Sample(found, len(found) / length if length > 0 else 1.0)


def _instant(times_s: Sequence[float], keys_s: Sequence[float], at: float) -> Instant:
    index = max(0, bisect_right(times_s, at + EPSILON_S) - 1)
    before = bisect_right(keys_s, times_s[max(0, index - SEEK_BACK)] + EPSILON_S) - 1
    key = bisect_left(times_s, keys_s[before] - EPSILON_S) if before >= 0 else 0
    return Instant(at, index, times_s[index], key)


def window(times_s: Sequence[float], sampling: Sampling) -> tuple[int, int]:
    """The frames that are on the screen between start_s and end_s: the first, and the one behind the last; one at
    least."""
    first = max(0, bisect_right(times_s, sampling.start_s + EPSILON_S) - 1)
    stop = len(times_s) if sampling.end_s is None else bisect_left(times_s, sampling.end_s - EPSILON_S)
    return first, max(first + 1, stop)


def length_s(times_s: Sequence[float]) -> float:
    """How long these frames are on the screen; the last as long as most are."""
    if len(times_s) < 2:
        return 0.0
    gaps = sorted(after - before for before, after in pairwise(times_s))
    return times_s[-1] - times_s[0] + gaps[len(gaps) // 2]


def count_of(available: int, length: float, sampling: Sampling, loader: Loader) -> int:
    """How many frames to take of so many, which take so many seconds."""
    most = min(sampling.max_frames, loader.max_frames, available, _at_rate(length, loader))
    wanted = min(max(round(length * sampling.fps), sampling.min_frames), most)
    up = -(-wanted // loader.step) * loader.step
    return max(loader.step, up if up <= most else most // loader.step * loader.step)


def _at_rate(length: float, loader: Loader) -> int:
    """The most frames that the server keeps of so many seconds."""
    return loader.max_frames if loader.fps is None else max(loader.min_frames, int(length * loader.fps + EPSILON_S))


# By motion


def looked_at(times_s: Sequence[float], sampling: Sampling) -> Sequence[float]:
    """The instants at which to look for motion: `moving_fps`, and in long videos so many as bound the work."""
    first, stop = window(times_s, sampling)
    length = length_s(times_s[first:stop])
    count = min(max(1, round(length * sampling.moving_fps)), 4 * sampling.max_frames)
    return [times_s[first] + number * length / count for number in range(count)]


def by_motion(
    at_s: Sequence[float], differences: Sequence[float], length: float, sampling: Sampling, loader: Loader
) -> Sequence[float]:
    """Of these instants those to take: each where something has moved since the one before, `differences` being how
    much, and one of each still passage; as many as are allowed, evenly spread among them."""
    lively = [at for at, difference in zip(at_s, differences, strict=True) if difference > MOVES]
    allowed = min(sampling.max_frames, loader.max_frames, _at_rate(length, loader))
    most = max(loader.step, allowed // loader.step * loader.step)
    taken = lively or list(at_s[:1])
    if len(taken) > most:
        taken = [taken[number * len(taken) // most] for number in range(most)]
    missing = -len(taken) % loader.step
    rest = [at for at in at_s if at not in taken][-missing:] if missing else []
    return sorted([*taken, *rest, *taken[-1:] * (missing - len(rest))])
