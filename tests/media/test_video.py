"""Video: the frames that are read are those that were asked for, by the numbers drawn in them."""

import gc
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests.media.films import SMALL, film, number_of, numbered, picture, sound
from vlm_edge.errors import CorruptMedia, EdgeError, MediaTooLarge
from vlm_edge.footage import kind_of
from vlm_edge.geometry import Size
from vlm_edge.media.data_url import File
from vlm_edge.media.profile import Sampling
from vlm_edge.media.sampling import Loader
from vlm_edge.media.source import Bytes
from vlm_edge.media.video import Clip, EndsEarly, frames, frames_to_read, media_type_of, open_clip

EVERY = Loader(max_frames=1_000_000)
MUCH = 1 << 30


def opened(data: bytes, loader: Loader = EVERY, **fields: Any) -> Clip:
    return open_clip(data, media_type_of(Bytes(data)), msgspec.convert(fields, Sampling), loader, MUCH)


def numbers(data: bytes, clip: Clip) -> Sequence[int]:
    return [number_of(frame) for frame in frames(data, clip, clip.sample.instants, clip.size)]


CONTAINERS = [
    ("mp4", "libx264", "video/mp4"),
    ("mov", "libx264", "video/quicktime"),
    ("matroska", "libx264", "video/x-matroska"),
    ("webm", "libvpx-vp9", "video/webm"),
    ("webm", "libvpx", "video/webm"),
    ("mp4", "libx265", "video/mp4"),
    ("avi", "mpeg4", "video/x-msvideo"),
    ("mpegts", "libx264", "video/mp2t"),
]


@pytest.mark.parametrize(("container", "codec", "media_type"), CONTAINERS, ids=lambda one: str(one))
def test_the_frames_are_the_ones_that_were_asked_for(container: str, codec: str, media_type: str) -> None:
    data = film(120, container=container, codec=codec)
    clip = opened(data, fps=3, max_frames=200)
    assert (clip.media_type, clip.frames, clip.size) == (media_type, 120, SMALL)
    assert clip.seconds == pytest.approx(4.0, abs=0.01)
    assert numbers(data, clip) == list(range(0, 120, 10))


def test_variable_frame_rates_go_by_time() -> None:
    times = [*range(0, 1_000, 40), 1_000, 5_000, 9_000]
    data = film(len(times), times=times, container="matroska")
    clip = opened(data, fps=1, min_frames=1)
    assert clip.seconds == pytest.approx(9.04, abs=0.01)
    assert numbers(data, clip) == [0, 25, 25, 25, 25, 26, 26, 26, 26]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_few_frames_are_all_there_is(number: int) -> None:
    data = film(number)
    assert numbers(data, opened(data, max_frames=50)) == list(range(number))


def test_seeking_finds_the_same_frames_as_reading_on() -> None:
    data = film(2_400, gop=48)
    clip = opened(data, fps=0.125, min_frames=1)
    assert clip.sought
    expected = list(range(0, 2_400, 240))
    assert numbers(data, clip) == expected
    assert numbers(data, msgspec.structs.replace(clip, sought=False)) == expected
    assert frames_to_read(clip) <= frames_to_read(msgspec.structs.replace(clip, sought=False))


@pytest.mark.parametrize("codec", ["mpeg4", "libx264"])
def test_a_stream_without_an_index_is_read_on(codec: str) -> None:
    """Sent into the middle of it, reading would begin amid frames that do not stand for themselves."""
    data = film(900, container="mpegts", codec=codec, gop=60)
    clip = opened(data, fps=0.5, min_frames=1)
    assert not clip.sought
    assert numbers(data, clip) == list(range(0, 900, 60))


def test_avi_tells_no_times_so_its_frames_are_counted() -> None:
    data = film(240, container="avi", codec="libx264", gop=48)
    assert numbers(data, opened(data, fps=1, min_frames=1)) == list(range(0, 240, 30))


def test_only_what_is_in_the_window_is_looked_at() -> None:
    data = film(300)
    clip = opened(data, fps=2, min_frames=1, start_s=4.0, end_s=6.0)
    assert (clip.frames, numbers(data, clip)) == (60, [120, 135, 150, 165])


def test_still_passages_are_one_frame() -> None:
    still = film(300, still=True)
    assert numbers(still, opened(still, strategy="motion")) == [0]
    moving = film(90, fps=30)
    assert len(opened(moving, strategy="motion", moving_fps=2).sample.instants) == 6


def test_a_file_that_is_cut_ends_where_it_is_cut() -> None:
    """Its index stands in front and promises all frames."""
    data = film(300, container="matroska")
    cut = data[: len(data) * 6 // 10]
    clip = opened(cut, fps=10)
    assert 0 < clip.frames < 300
    found = numbers(cut, clip)
    assert found == [instant.frame for instant in clip.sample.instants]


@pytest.mark.parametrize("kept", [0.3, 0.7, 0.95])
def test_good_frames_before_a_damaged_tail_are_read(kept: float) -> None:
    """The packets may be told of as if they were whole."""
    data = bytearray(film(300))
    start = data.index(b"mdat") + 4
    stop = start - 8 + int.from_bytes(data[start - 8 : start - 4], "big")
    middle = start + int((stop - start) * kept)
    data[middle:stop] = bytes(stop - middle)
    clip = opened(bytes(data), fps=10, max_frames=200)
    found = good(bytes(data), clip)
    assert len(found) >= 0.8 * kept * 100
    assert found == [instant.frame for instant in clip.sample.instants[: len(found)]]


def good(data: bytes, clip: Clip) -> list[int]:
    """The numbers of the frames that can be read."""
    found = []
    with suppress(EndsEarly):
        for frame in frames(data, clip, clip.sample.instants, clip.size):
            found.append(number_of(frame))  # noqa: PERF401 - as far as it goes
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:1/a.ts\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\n",
        b"<?xml version='1.0'?><MPD/>",
        b"FLV\x01" + bytes(100),
        b"OggS" + bytes(100),
        b"hello",
        picture(1, SMALL),
    ],
)
def test_what_is_no_container_that_is_known_is_never_opened(data: bytes) -> None:
    assert not media_type_of(Bytes(data))
    with pytest.raises(EdgeError, match="found"):
        kind_of(File(data))


def test_a_sound_is_named() -> None:
    for container, codec in (("mp4", "aac"), ("matroska", "aac"), ("webm", "libopus")):
        data = sound(container, codec)
        with pytest.raises(EdgeError, match="found a sound without pictures"):
            opened(data)


def test_an_animated_gif_in_the_place_of_a_video_is_one() -> None:
    data = film(20, fps=10, container="gif", codec="gif")
    clip = opened(data, fps=5, min_frames=1)
    assert (clip.media_type, numbers(data, clip)) == ("image/gif", list(range(0, 20, 2)))


def test_an_empty_file_is_said_to_be_empty() -> None:
    with pytest.raises(CorruptMedia, match="the video cannot be read: it is empty"):
        kind_of(File(b""))


def test_a_still_picture_is_named() -> None:
    with pytest.raises(EdgeError, match="an image/jpeg picture where a video stands"):
        kind_of(File(picture(1, SMALL)))


@pytest.mark.parametrize("length", [0.01, 0.3])
def test_the_head_of_a_file_is_no_video(length: float) -> None:
    data = film(60)
    with pytest.raises(CorruptMedia):
        opened(data[: int(len(data) * length)])


def test_a_playlist_in_a_containers_dress_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socket(*_: object, **__: object) -> None:
        raise AssertionError("a socket")

    monkeypatch.setattr(socket, "socket", no_socket)
    with pytest.raises(CorruptMedia):
        opened(b"\0\0\0\x20ftypisom#EXTM3U\nfile:///etc/passwd\n" + bytes(64))
    assert "OPENCV_FFMPEG_CAPTURE_OPTIONS" not in os.environ


def test_frames_of_too_many_pixels_are_refused_before_one_is_read() -> None:
    data = film(3)
    with pytest.raises(MediaTooLarge, match="the video has 6144 pixels a frame; at most 6143 are allowed"):
        open_clip(data, "video/mp4", Sampling(), EVERY, 96 * 64 - 1)


def test_a_frame_is_scaled_as_a_whole() -> None:
    data = film(4)
    clip = opened(data)
    (first, *_) = frames(data, clip, clip.sample.instants, Size(48, 32))
    expected = numbered(0, SMALL)[1::2, 1::2]
    assert first.shape == (32, 48, 3)
    assert abs(first.astype(int) - expected).mean() < 12


def test_fifty_readings_leak_nothing() -> None:
    data = film(30, codec="libx264")
    clip = opened(data)
    list(frames(data, clip, clip.sample.instants, clip.size))
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    for _ in range(50):
        clip = opened(data)
        reading = frames(data, clip, clip.sample.instants, clip.size)
        next(reading)
        del reading
        gc.collect()
    after = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    assert len(after) <= len(before)
