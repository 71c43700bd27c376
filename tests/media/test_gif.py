"""Tests of whether a GIF is animated, which its header does not say."""

import struct

import pytest
from PIL import Image

from tests.media.files import animated, noise, probed, quadrants
from tests.media.test_probe import Counted
from tests.samples import encoded, opened
from vlm_edge.media.gif import SEEN_BYTES, first_frame
from vlm_edge.media.probe import probe
from vlm_edge.media.source import HEAD_BYTES


def long(frames: int, side: int, **options: int) -> bytes:
    """Of frames that hardly compress."""
    first, *rest = [noise(side, side, "L").rotate(90 * turn) for turn in range(frames)]
    return encoded(first, "GIF", save_all=True, append_images=rest, duration=100, **options)


def test_an_animation_is_told_from_a_still_picture() -> None:
    assert probed(animated("GIF")).animated
    assert not probed(encoded(quadrants(96, 64), "GIF")).animated


def test_a_loop_of_one_picture_is_no_animation() -> None:
    data = encoded(quadrants(96, 64), "GIF", loop=0)
    assert b"NETSCAPE2.0" in data
    assert not probed(data).animated


def test_a_comment_with_a_picture_sign_is_no_picture() -> None:
    assert not probed(encoded(quadrants(96, 64), "GIF", comment=b",;!" * 200)).animated


def test_a_picture_with_a_palette_of_its_own_is_passed_over() -> None:
    first, second = noise(30, 30).quantize(200), quadrants(30, 30).quantize(4)
    data = encoded(first, "GIF", save_all=True, append_images=[second])
    assert opened(data).n_frames == 2  # type: ignore[attr-defined]
    assert probed(data).animated


@pytest.mark.parametrize("side", [300, 700])
@pytest.mark.parametrize(("frames", "options"), [(1, {}), (3, {"loop": 0})])
def test_a_second_picture_behind_a_long_one_is_found(side: int, frames: int, options: dict[str, int]) -> None:
    data = long(frames, side, **options)
    assert len(data) > (HEAD_BYTES if side == 300 else SEEN_BYTES)
    assert probed(data).animated == (frames > 1)


def test_a_long_file_is_not_read_to_its_end() -> None:
    file = Counted(long(1, 1_500))
    assert not probe(file).animated
    assert file.bytes <= HEAD_BYTES + SEEN_BYTES


def test_blocks_without_end_are_not_followed() -> None:
    small = encoded(Image.new("P", (9, 9)), "GIF")
    file = Counted(small[:-1] + b"!\xfe\1a\0" * 100_000)
    assert not probe(file).animated
    assert file.bytes <= HEAD_BYTES + SEEN_BYTES


def test_a_first_frame_that_does_not_fill_the_picture_is_told() -> None:
    frame = Image.new("P", (20, 10))
    whole = encoded(frame, "GIF")
    at = whole.index(b"\x2c")
    assert not probed(whole).misread
    screen = whole[:6] + struct.pack("<HH", 40, 30) + whole[10:]
    assert (probed(screen).size, probed(screen).misread) == ((40, 30), True)
    moved = whole[: at + 1] + struct.pack("<HH", 1, 0) + whole[at + 5 :]
    assert probed(moved).misread


def test_what_stands_behind_the_first_frame_is_cut_off() -> None:
    frames = [quadrants(40, 30).rotate(90 * turn, expand=False) for turn in range(4)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    cut = first_frame(data)
    assert len(cut) < len(data)
    assert opened(cut).convert("RGB").tobytes() == opened(data).convert("RGB").tobytes()
    assert getattr(opened(cut), "n_frames", 1) == 1


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_gif_cut_within_its_first_frame_stays_as_it_is(share: float) -> None:
    data = encoded(noise(60, 40), "GIF")
    short = data[: int(len(data) * share)]
    assert first_frame(short) == short
