"""
The bug log of videos: faults that were reported of other projects which do this job, and what we do in their place.

A test is named by the id of its report and says in its first line what went wrong there.
"""

import json
import socket
import time
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import pytest

from tests.media.films import SMALL, film, frames_of, number_of, picture, sound
from tests.samples import CHAT_PATH, chat, data_url, image_part, png
from vlm_edge import Edge, EdgeError, Settings, Size
from vlm_edge.media.profile import Sampling
from vlm_edge.media.sampling import Loader
from vlm_edge.media.video import frames, open_clip

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
EVERY = Loader(max_frames=10_000)


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    edge = Edge(Settings())
    yield edge
    edge.close()


def part(data: bytes, label: str = "video/mp4") -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": data_url(data, label)}}


def report_of(edge: Edge, data: bytes) -> Any:
    prepared = edge.prepare(CHAT_PATH, chat(part(data), model=MODEL))
    assert prepared.report
    return prepared.report.videos[0]


def refusal(edge: Edge, data: bytes) -> EdgeError:
    with pytest.raises(EdgeError) as caught:
        edge.prepare(CHAT_PATH, chat(part(data), model=MODEL))
    assert caught.value.status == 400
    assert caught.value.param == "messages[0].content[0]"
    return caught.value


def test_b88_no_field_takes_a_file_of_another_kind(edge: Edge) -> None:
    """A picture that was refused was tried again as a video, past the limit of pixels."""
    assert "picture where a video stands" in refusal(edge, picture(1, SMALL)).message
    with pytest.raises(EdgeError, match="found a video"):
        edge.prepare(CHAT_PATH, chat(image_part(film(3)), model=MODEL))


def test_b96_a_playlist_opens_no_file_and_no_socket(edge: Edge) -> None:
    """A text that names other files was opened as a video, and these with it, or a socket for half a minute."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a.ts"
        texts = (f"#EXTM3U\n#EXTINF:9,\n{url}\n", f"ffconcat version 1.0\nfile {url}\n", f"RTSPtext\n{url}\n")
        for text in texts:
            begin = time.perf_counter()
            assert refusal(edge, text.encode() * 5).code == "unsupported_media"
            assert time.perf_counter() - begin < 5
        with pytest.raises(TimeoutError):
            server.accept()


def test_b98_counts_that_headers_do_not_have_are_counted(edge: Edge) -> None:
    """A WebM that was written to a pipe has no duration: its number of frames came out as -9.2e18."""
    data = film(45, container="matroska", codec="libvpx-vp9")
    at = data.index(b"\x44\x89")  # Duration
    data = data[:at] + b"\xec\x81" + data[at + 2 :]  # a void in its place
    report = report_of(edge, data)
    assert report.frames_before == 45
    assert report.seconds == pytest.approx(1.5, abs=0.05)


def test_b99_a_file_that_is_cut_is_sampled_over_what_is_there(edge: Edge) -> None:
    """Frames were taken by the header's count, and reading stopped before."""
    data = film(300, container="webm", codec="libvpx-vp9")
    report = report_of(edge, data[: len(data) * 6 // 10])
    assert 30 < report.frames_before < 300
    assert report.frames_after >= 2


def test_b101_frames_of_a_variable_rate_are_taken_by_their_times() -> None:
    """Times were told by a constant rate."""
    data = film(12, times=[0, 40, 80, 120, 160, 200, 240, 280, 320, 360, 400, 5_000], container="matroska")
    clip = open_clip(data, "", Sampling(fps=1, min_frames=1), EVERY, 1 << 30)
    assert [number_of(one) for one in frames(data, clip, clip.sample.instants, SMALL)] == [0, 10, 10, 10, 10]


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_b102_a_turned_video_is_upright(degrees: int, edge: Edge, tmp_path: Path) -> None:
    """The rotation of phones was left out: frames lay on their side."""
    data = turned(film(6, size=SMALL), degrees)
    clip = open_clip(data, "", Sampling(), EVERY, 1 << 30)
    assert clip.size == (Size(64, 96) if degrees % 180 else SMALL)
    (first, *_) = frames(data, clip, clip.sample.instants, clip.size)
    red, blue = first[:, :, 2] > 200, first[:, :, 0] > 200
    rows, columns = red.nonzero()
    across = columns.mean() / first.shape[1], rows.mean() / first.shape[0]
    # Red lies below on the left, before it is turned by so much counter-clockwise.
    assert red.any()
    assert blue.any()
    assert (across[0] < 0.5, across[1] < 0.5) == {90: (False, False), 180: (False, True), 270: (True, True)}[degrees]


def turned(data: bytes, degrees: int) -> bytes:
    """With another matrix in the header of its track."""
    one, matrices = 0x10000, {}
    matrices[90] = (0, -one, one, 0)
    matrices[180] = (-one, 0, 0, -one)
    matrices[270] = (0, one, -one, 0)
    a, b, c, d = matrices[degrees]
    place = data.index(b"tkhd") + 4 + 4 + 20 + 16
    numbers = (a, b, 0, c, d, 0)
    changed = b"".join(number.to_bytes(4, "big", signed=True) for number in numbers)
    return data[:place] + changed + data[place + len(changed) :]


def test_b104_what_an_edit_list_hides_is_not_sampled(edge: Edge) -> None:
    """A trimmed clip had 93 frames by its header and showed 12: one was sampled."""
    data = trimmed(film(93, gop=93), 81)
    shown = len(list(frames_of(data)))
    report = report_of(edge, data)
    assert report.frames_before <= 93
    assert abs(report.frames_before - shown) <= 1


def trimmed(data: bytes, first: int) -> bytes:
    """Without re-encoding, from that frame on: its packets stay."""
    file = BytesIO()
    with av.open(BytesIO(data), "r") as source, av.open(file, "w", format="mp4") as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is None or packet.pts is None:
                continue
            shift = round(first / 30 / packet.time_base)
            packet.pts, packet.dts, packet.stream = packet.pts - shift, packet.dts - shift, stream
            output.mux(packet)
    return file.getvalue()


def test_b105_the_rate_that_is_sent_is_that_of_the_sample(edge: Edge) -> None:
    """Times were told on the line of the sampled frames, not of the source."""
    prepared = edge.prepare(CHAT_PATH, chat(part(film(300)), model=MODEL))
    url = json.loads(bytes(prepared.body))["messages"][0]["content"][0]["video_url"]["url"]
    with av.open(BytesIO(b64decode(url.partition(",")[2])), "r") as container:
        stream = container.streams.video[0]
        times = [float(packet.pts * packet.time_base) for packet in container.demux(stream) if packet.pts is not None]
    assert times == [float(second) for second in range(10)]


def test_b107_more_frames_than_there_are_are_asked_for(edge: Edge) -> None:
    """32 frames of a clip of three were an error."""
    video = edge.video(film(3), "standard", "llava-hf/llava-onevision-qwen2-7b-ov-hf")
    assert len(video.frames) == 3


@pytest.mark.parametrize("number", [1, 6])
def test_b109_no_clip_is_too_short(number: int, edge: Edge) -> None:
    """The number of frames came out as 0."""
    assert report_of(edge, film(number)).frames_after >= 2


def test_b110_what_has_no_picture_is_the_clients_to_mend(edge: Edge) -> None:
    """No frame at all was a 500."""
    assert "a sound without pictures" in refusal(edge, sound("mp4", "aac")).message
    assert refusal(edge, film(60)[:700]).code == "corrupt_media"


def test_b111_a_codec_without_a_decoder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """AV1 was opened, and then no frame came."""
    data = film(10, codec="libsvtav1")
    edge = Edge(Settings())
    assert len(edge.video(data, "standard", MODEL).frames) == 4  # with the extra
    monkeypatch.setattr("vlm_edge.media.pyav.is_installed", lambda: False)
    alone = Edge(Settings(isolation=edge.settings.isolation.__class__(enabled=False)))
    error = refusal(alone, data)
    assert (error.code, "AV01" in error.message) == ("unsupported_media", True)
    edge.close()
    alone.close()


def test_b114_an_hour_is_read_in_seconds(edge: Edge) -> None:
    """Twelve minutes took one."""
    data = film(3_600, size=SMALL, fps=1, gop=60)
    begin = time.perf_counter()
    assert report_of(edge, data).frames_before == 3_600
    assert time.perf_counter() - begin < 20


def test_b115_a_damaged_tail_ends_a_video_and_no_process(edge: Edge) -> None:
    """Reading was tried again and again at the end."""
    data = bytearray(film(300))
    tail = len(data) * 8 // 10
    start, stop = data.index(b"mdat"), data.index(b"moov")
    data[min(tail, stop) - (stop - start) // 5 : stop - 8] = bytes(stop - 8 - min(tail, stop) + (stop - start) // 5)
    begin = time.perf_counter()
    report = report_of(edge, bytes(data))
    assert report.frames_after >= 2
    assert time.perf_counter() - begin < 20


def test_b117_a_still_picture_is_no_video(edge: Edge) -> None:
    """Its count of frames was nonsense."""
    assert refusal(edge, picture(3, SMALL)).code == "unsupported_media"
    assert refusal(edge, png(30, 30)).code == "unsupported_media"


def test_b118_bytes_are_held_as_long_as_they_are_read() -> None:
    """They were freed under the decoder, which fell over. See test_fifty_readings_leak_nothing."""
    data = film(60)
    clip = open_clip(data, "", Sampling(fps=10), EVERY, 1 << 30)
    reading = frames(data[:], clip, clip.sample.instants, SMALL)
    del data
    assert len(list(reading)) == 20
