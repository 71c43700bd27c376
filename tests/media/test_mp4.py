"""MP4: what is packed is read back by another demultiplexer, frame for frame at its time."""

from io import BytesIO

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.media.films import picture, read_jpeg
from vlm_edge.geometry import Size
from vlm_edge.media.mp4 import pack, rate

SIZE = Size(64, 48)


@pytest.mark.parametrize("fps", [0.006, 0.1, 1.0, 1.5, 2.0, 29.97, 60.0])
@pytest.mark.parametrize("number", [1, 2, 7])
def test_every_frame_stands_at_its_time(number: int, fps: float) -> None:
    files = [picture(index, SIZE) for index in range(number)]
    with av.open(BytesIO(pack(files, SIZE, fps)), "r") as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        assert [bytes(packet) for packet in packets] == files
        times = [float(packet.pts * packet.time_base) for packet in packets if packet.pts is not None]
        assert times == pytest.approx([index / rate(fps) for index in range(number)])
        assert float(stream.average_rate or 0) == pytest.approx(rate(fps), rel=1e-6)
        assert (stream.width, stream.height) == SIZE


def test_the_pictures_are_those_that_were_packed() -> None:
    files = [picture(index, SIZE) for index in range(4)]
    with av.open(BytesIO(pack(files, SIZE, 1.0)), "r") as container:
        for frame, file in zip(container.decode(video=0), files, strict=True):
            assert abs(frame.to_ndarray(format="rgb24").astype(int) - read_jpeg(file)).mean() < 2


def test_the_same_frames_are_the_same_bytes() -> None:
    files = [picture(index, SIZE) for index in range(3)]
    assert pack(files, SIZE, 1.0) == pack(files, SIZE, 1.0)


@settings(max_examples=200, deadline=None)
@given(st.floats(0.001, 60))
def test_a_rate_is_the_one_that_readers_find(fps: float) -> None:
    assert rate(fps) == pytest.approx(fps, rel=1e-3)
    assert rate(rate(fps)) == rate(fps)


def test_frames_that_last_for_days_are_packed() -> None:
    files = [picture(0, SIZE)] * 4_000
    with av.open(BytesIO(pack(files, SIZE, 1 / 10_000)), "r") as container:
        assert float(container.streams.video[0].average_rate or 0) == pytest.approx(rate(1 / 10_000), rel=1e-4)
