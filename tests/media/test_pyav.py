"""PyAV: AV1, which OpenCV's wheels do not read."""

from collections.abc import Iterator

import pytest

from tests.media.films import SMALL, film, number_of
from tests.test_buglog_videos import turned
from vlm_edge.geometry import Size
from vlm_edge.media import pyav
from vlm_edge.media.profile import Sampling
from vlm_edge.media.sampling import Loader
from vlm_edge.media.video import Clip, EndsEarly, open_clip

EVERY = Loader(max_frames=10_000)


@pytest.fixture(scope="module")
def data() -> bytes:
    return film(90, codec="libsvtav1", size=Size(192, 128))


def opened(data: bytes, fps: float = 1) -> Clip:
    return open_clip(data, "video/mp4", Sampling(min_frames=1, fps=fps), EVERY, 1 << 30)


def test_the_frames_are_the_ones_that_were_asked_for(data: bytes) -> None:
    clip = opened(data, fps=3)
    assert (clip.codec, clip.frames) == ("AV01", 90)
    found = [number_of(frame) for frame in pyav.frames(data, clip.sample.instants, clip.size)]
    assert found == list(range(0, 90, 10))


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_video_is_upright(data: bytes, degrees: int) -> None:
    clip = opened(turned(data, degrees))
    assert clip.size == (Size(128, 192) if degrees % 180 else Size(192, 128))
    (first, *_) = pyav.frames(turned(data, degrees), clip.sample.instants, clip.size)
    assert first.shape == (clip.size.height, clip.size.width, 3)
    rows, columns = (first[:, :, 2] > 200).nonzero()
    red = columns.mean() / clip.size.width < 0.5, rows.mean() / clip.size.height < 0.5
    # Red lies below on the left, before it is turned by so much counter-clockwise.
    assert red == {90: (False, False), 180: (False, True), 270: (True, True)}[degrees]


def test_damage_ends_it_early(data: bytes) -> None:
    broken = bytearray(data)
    start = broken.index(b"mdat") + 4
    length = int.from_bytes(broken[start - 8 : start - 4], "big")
    for at in range(start + length // 2, start + length - 16, 7):
        broken[at] ^= 0x55
    clip = opened(bytes(broken), fps=10)
    with pytest.raises(EndsEarly) as caught:
        list(reading(bytes(broken), clip))
    assert 0 <= caught.value.end_s < 3


def reading(data: bytes, clip: Clip) -> Iterator[int]:
    for frame in pyav.frames(data, clip.sample.instants, SMALL):
        yield number_of(frame)
