"""Sampling: which instants are taken, by arithmetic on times; and what vLLM's loaders would do with so many frames."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_edge.media.profile import Sampling
from vlm_edge.media.sampling import MOVES, Loader, by_motion, choose, length_s, looked_at

EVERY = Loader(max_frames=1_000_000)
QWEN = Loader(max_frames=768, fps=2.0, min_frames=4, step=2)


def regular(frames: int, fps: float) -> list[float]:
    return [number / fps for number in range(frames)]


def taken(times: list[float], loader: Loader = EVERY, **fields: Any) -> list[int]:
    made = msgspec.convert(fields, Sampling)
    return [instant.frame for instant in choose(times, times[:1], made, loader).instants]


def test_one_frame_a_second_is_the_one_on_the_screen_at_each_second() -> None:
    assert taken(regular(300, 30), fps=1) == [0, 30, 60, 90, 120, 150, 180, 210, 240, 270]


def test_the_rate_of_the_sample_puts_each_frame_at_its_time() -> None:
    sample = choose(regular(100, 30), [0.0], Sampling(fps=1), EVERY)
    for number, instant in enumerate(sample.instants):
        assert number / sample.fps == pytest.approx(instant.at_s)
        assert instant.shown_s <= instant.at_s + 1e-3


def test_by_time_and_not_by_number() -> None:
    """Ten frames in the first second, and then one that stands for nine."""
    times = [*regular(10, 10), 1.0]
    assert length_s(times) == pytest.approx(1.1)
    times = [*regular(11, 10), 10.0]
    assert taken(times, fps=1, min_frames=1) == [0, *[10] * 9]


@pytest.mark.parametrize(
    ("frames", "fields", "expected"),
    [
        (1, {}, [0]),
        (2, {}, [0, 1]),
        (3, {}, [0, 1, 2]),
        (300, {"max_frames": 4}, [0, 75, 150, 225]),
        (300, {"fps": 0.1, "min_frames": 2}, [0, 150]),
        (300, {"start_s": 5.0, "end_s": 7.0, "min_frames": 1}, [150, 180]),
        (300, {"start_s": 9.99, "min_frames": 1}, [299]),
        (300, {"start_s": 50.0}, [299]),
    ],
)
def test_short_long_and_windows(frames: int, fields: dict[str, Any], expected: list[int]) -> None:
    assert taken(regular(frames, 30), **fields) == expected


@pytest.mark.parametrize(
    ("frames", "expected"), [(1, [0, 0]), (2, [0, 1]), (3, [0, 1]), (150, [0, 25, 50, 75, 100, 125])]
)
def test_pairs_where_the_family_wants_them(frames: int, expected: list[int]) -> None:
    assert taken(regular(frames, 30), QWEN) == expected


def test_no_more_than_the_server_keeps() -> None:
    assert len(taken(regular(3_000, 30), Loader(), fps=1)) == 32
    assert len(taken(regular(3_000, 30), QWEN, fps=30, max_frames=4_000)) == 200  # two a second
    assert len(taken(regular(30, 30), QWEN, fps=30, max_frames=4_000)) == 4  # or four, however short


@given(
    st.lists(st.floats(0.01, 5), min_size=1, max_size=200),
    st.floats(0.05, 30),
    st.integers(1, 64),
    st.sampled_from([EVERY, QWEN, Loader(), Loader(max_frames=600, fps=1.0, min_frames=2, step=2)]),
)
def test_whatever_the_times(gaps: list[float], fps: float, most: int, loader: Loader) -> None:
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    sample = choose(times, times[::7], Sampling(fps=fps, min_frames=1, max_frames=most), loader)
    frames = [instant.frame for instant in sample.instants]
    assert frames == sorted(frames)
    assert len(frames) % loader.step == 0
    assert 1 <= len(frames) <= max(most, loader.step)
    assert len(frames) <= max(loader.max_frames, loader.step)
    if loader.fps is not None and len(frames) > max(loader.min_frames, loader.step):
        assert sample.fps <= loader.fps + 1e-6
    for instant in sample.instants:
        assert times[instant.frame] == instant.shown_s
        assert instant.key <= instant.frame
        assert instant.key % 7 == 0


def test_a_still_passage_is_one_frame_and_motion_is_all_of_them() -> None:
    at = looked_at(regular(300, 30), Sampling(moving_fps=2))
    assert at == pytest.approx([number / 2 for number in range(20)])
    differences = [255.0, *[0.0] * 9, *[MOVES + 1] * 5, *[0.0] * 5]
    assert by_motion(at, differences, 10.0, Sampling(), EVERY) == [0.0, *at[10:15]]
    assert by_motion(at, differences, 10.0, Sampling(), QWEN) == [0.0, *at[10:15]]
    assert by_motion(at, [255.0, *[0.0] * 19], 10.0, Sampling(), EVERY) == [0.0]
    assert by_motion(at, [255.0, *[0.0] * 19], 10.0, Sampling(), QWEN) == [0.0, at[-1]]
    assert len(by_motion(at, [255.0] * 20, 10.0, Sampling(max_frames=7, min_frames=1), QWEN)) == 6


def test_motion_in_a_long_video_is_looked_for_in_bounded_time() -> None:
    assert len(looked_at(regular(100_000, 10), Sampling(max_frames=64))) == 256
