"""Videos in requests: planned, sent and told of as the profile has it."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import av
import cv2
import httpx
import msgspec
import pytest
from PIL import Image
from prometheus_client import CollectorRegistry

from tests.media.films import SMALL, film, number_of, picture
from tests.samples import CHAT_PATH, chat, data_url, encoded, image_part, jpeg, opened, png, text_part
from tests.servers import served
from vlm_edge import Edge, EdgeError, Settings, Size
from vlm_edge.budget import BudgetSettings
from vlm_edge.errors import (
    CachedMediaRefused,
    DecoderStopped,
    NoRoomForFrames,
    TooManyVideos,
    UnsupportedMedia,
    VisionBudgetExceeded,
)
from vlm_edge.gateway.app import create_app
from vlm_edge.gateway.config import GatewaySettings
from vlm_edge.isolation import IsolationSettings
from vlm_edge.metrics import Metrics
from vlm_edge.pictures import Limits
from vlm_edge.tokens import lookup

QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"
HD = Size(640, 360)

Maker = Callable[..., Edge]


@pytest.fixture
def edges() -> Iterator[Maker]:
    """Edges with keys of [video], of the standard profile, and of the settings."""
    made: list[Edge] = []

    def make(video: dict[str, Any] | None = None, profile: dict[str, Any] | None = None, **fields: Any) -> Edge:
        settings = Settings(**fields)
        standard = settings.profiles["standard"]
        changed = msgspec.structs.replace(standard.video, **(video or {}))
        standard = msgspec.structs.replace(standard, video=changed, **(profile or {}))
        made.append(Edge(msgspec.structs.replace(settings, profiles={**settings.profiles, "standard": standard})))
        return made[-1]

    yield make
    for edge in made:
        edge.close()


def video_part(data: bytes) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": data_url(data, "video/mp4")}}


def asked(*parts: dict[str, Any], model: str = QWEN) -> bytes:
    return chat(text_part("look"), *parts, model=model)


def content(body: Any) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = json.loads(bytes(body))["messages"][0]["content"]
    return parts


def decoded(url: str) -> bytes:
    return b64decode(url.partition(",")[2])


def numbers_in(data: bytes) -> list[int]:
    with av.open(BytesIO(data), "r") as container:
        return [number_of(frame.to_ndarray(format="bgr24")) for frame in container.decode(video=0)]


def test_a_video_becomes_a_short_one_of_its_frames(edges: Maker) -> None:
    prepared = edges().prepare(CHAT_PATH, asked(video_part(film(300, size=HD))))
    assert prepared.report
    (report,) = prepared.report.videos
    before, sent = content(prepared.body)
    assert before == text_part("look")
    assert numbers_in(decoded(sent["video_url"]["url"])) == list(range(0, 300, 30))
    assert (report.form, report.frames_before, report.frames_after) == ("video", 300, 10)
    assert report.size_after == (504, 280)
    assert prepared.report.tokens == report.tokens_after == lookup(QWEN).video(frames=10, size=Size(504, 280)) == 900
    headers = dict(prepared.report.headers())
    assert headers[b"x-vlm-edge-media"] == b"images=0; videos=1"


def test_the_same_video_is_the_same_bytes(edges: Maker) -> None:
    body = asked(video_part(film(60, size=HD)))
    assert edges().prepare(CHAT_PATH, body).body == edges().prepare(CHAT_PATH, body).body


def test_what_is_sent_is_kept_by_the_next_one(edges: Maker) -> None:
    """Byte for byte: it is inside its profile, and its server keeps all of it."""
    first = edges().prepare(CHAT_PATH, asked(video_part(film(300, size=HD))))
    second = edges().prepare(CHAT_PATH, first.body)
    assert second.body == first.body
    assert first.report
    assert second.report
    assert [one.action for one in (*first.report.videos, *second.report.videos)] == ["sampled", "kept"]
    assert second.report.tokens == first.report.tokens
    anew = edges(profile={"reencode": "always"}).prepare(CHAT_PATH, first.body)
    assert anew.body != first.body


def test_frames_are_pictures_with_their_times_before_them(edges: Maker) -> None:
    body = asked(video_part(film(90, size=HD)), image_part(jpeg(100, 80)))
    prepared = edges({"form": "frames", "fps": 1, "min_frames": 1}).prepare(CHAT_PATH, body)
    parts = content(prepared.body)
    assert [part.get("text", "") for part in parts] == [
        "look",
        *("<0.0 seconds>", "", "<1.0 seconds>", "", "<2.0 seconds>", ""),
        "",
    ]
    pictures = [opened(decoded(part["image_url"]["url"])) for part in parts if part["type"] == "image_url"]
    assert [one.size for one in pictures[:3]] == [(504, 280)] * 3
    assert prepared.report
    assert prepared.report.tokens == 3 * 180 + prepared.report.pictures[0].tokens_after
    plain = edges({"form": "frames", "fps": 1, "min_frames": 1, "labels": False}).prepare(CHAT_PATH, body)
    assert [part["type"] for part in content(plain.body)] == ["text", *["image_url"] * 4]


def test_a_list_of_jpegs(edges: Maker) -> None:
    prepared = edges({"form": "jpeg_frames", "max_frames": 64}).prepare(
        CHAT_PATH, asked(video_part(film(3_000, fps=30)))
    )
    url = content(prepared.body)[1]["video_url"]["url"]
    head, *files = url.split(",")
    assert head == "data:video/jpeg;base64"
    assert len(files) == 32
    assert {opened(b64decode(file)).size for file in files} == {(84, 56)}


@pytest.mark.parametrize("number", [1, 2, 10, 40])
def test_a_clients_own_list_of_frames_is_a_video_of_one_a_second(number: int, edges: Maker) -> None:
    files = [picture(index, HD) for index in range(number)]
    url = "data:video/jpeg;base64," + ",".join(b64encode(file).decode() for file in files)
    prepared = edges().prepare(CHAT_PATH, asked({"type": "video_url", "video_url": {"url": url}}))
    assert prepared.report
    (report,) = prepared.report.videos
    assert (report.frames_before, report.size_before, report.fps_after) == (number, HD, 1.0)
    expected = list(range(number)) * (2 if number == 1 else 1)  # pairs
    assert numbers_in(decoded(content(prepared.body)[1]["video_url"]["url"])) == expected


@pytest.mark.parametrize("others", [[picture(1, SMALL)], [png(64, 36)], [b"hello"], [b""]])
def test_a_list_of_what_are_no_frames_is_refused(others: list[bytes], edges: Maker) -> None:
    files = [picture(0, HD), *others]
    url = "data:video/jpeg;base64," + ",".join(b64encode(file).decode() for file in files)
    with pytest.raises(EdgeError) as caught:
        edges().prepare(CHAT_PATH, asked({"type": "video_url", "video_url": {"url": url}}))
    assert (caught.value.status, caught.value.param) == (400, "messages[0].content[1]")


def test_frames_of_a_list_may_be_of_another_format(edges: Maker) -> None:
    files = [
        b64encode(file).decode()
        for file in (png(640, 360), picture(3, HD), encoded(Image.new("RGB", (640, 360)), "WEBP"))
    ]
    url = "data:video/jpeg;base64," + ",".join(files)
    report = edges().prepare(CHAT_PATH, asked({"type": "video_url", "video_url": {"url": url}})).report
    assert report
    assert (report.videos[0].frames_before, report.videos[0].size_before) == (3, HD)


def test_a_model_that_counts_no_videos_gets_pictures(edges: Maker) -> None:
    prepared = edges({"min_frames": 2, "max_frames": 2}).prepare(
        CHAT_PATH, asked(video_part(film(60)), model="google/gemma-3-4b-it")
    )
    assert prepared.report
    assert prepared.report.videos[0].form == "frames"
    with pytest.raises(UnsupportedMedia, match="a video, which this model does not take"):
        edges({"form": "video"}).prepare(CHAT_PATH, asked(video_part(film(3)), model="google/gemma-3-4b-it"))


def test_pictures_that_count_by_their_number_count_with_the_frames(edges: Maker) -> None:
    """DeepSeek-VL2 makes one tile of each from three on."""
    body = asked(image_part(jpeg(800, 600)), video_part(film(60)), model="deepseek-ai/deepseek-vl2-small")
    prepared = edges({"min_frames": 2, "max_frames": 2}).prepare(CHAT_PATH, body)
    assert prepared.report
    assert prepared.report.tokens == 3 * 421


def test_the_budget_shrinks_videos_and_then_thins_them_out(edges: Maker) -> None:
    body = asked(video_part(film(900, size=HD, fps=15)))
    full = edges({"fps": 2}).prepare(CHAT_PATH, body).report
    assert full
    assert (full.videos[0].frames_after, full.tokens) == (64, 32 * 180)
    tokens = []
    for allowed in (5_000, 3_000, 1_500, 600):
        limits, budget = Limits(max_request_tokens=allowed), BudgetSettings(on_exceed="fit")
        report = edges({"fps": 2}, limits=limits, budget=budget).prepare(CHAT_PATH, body).report
        assert report
        (video,) = report.videos
        assert video.fitted
        assert report.tokens == video.tokens_after <= allowed
        assert video.size_after.pixels >= 50_176
        assert video.frames_after % 2 == 0
        tokens.append(report.tokens)
    assert tokens == sorted(tokens, reverse=True)
    with pytest.raises(VisionBudgetExceeded):
        edges({"fps": 2}, limits=Limits(max_request_tokens=600)).prepare(CHAT_PATH, body)
    limits, budget = Limits(max_request_tokens=50), BudgetSettings(on_exceed="fit")
    least = edges({"fps": 2}, limits=limits, budget=budget)  # four frames at the floor
    with pytest.raises(VisionBudgetExceeded):
        least.prepare(CHAT_PATH, body)


def test_too_many_videos(edges: Maker) -> None:
    parts = [video_part(film(2))] * 3
    with pytest.raises(TooManyVideos, match="At most 2 video") as caught:
        edges(limits=Limits(max_videos=2)).prepare(CHAT_PATH, asked(*parts))
    assert caught.value.param == "messages[0].content[3]"


@pytest.mark.parametrize("size", [Size(320, 20), Size(20, 320), Size(2, 2)])
def test_thin_and_tiny_videos_get_a_margin_or_are_left_to_the_model(size: Size, edges: Maker) -> None:
    video = edges().video(film(4, size=Size(size.width * 2, size.height * 2)), "standard", QWEN)
    assert {opened(frame).size for frame in video.frames} == {tuple(video.size)}


def test_an_animation_goes_on_as_a_video_where_its_profile_says_so(edges: Maker) -> None:
    gif = film(30, fps=10, container="gif", codec="gif")
    part = image_part(gif, "image/gif")
    prepared = edges({"fps": 2}, {"animation": "video"}).prepare(CHAT_PATH, asked(part))
    sent = content(prepared.body)[1]
    assert numbers_in(decoded(sent["video_url"]["url"])) == [0, 5, 10, 15, 20, 25]
    assert prepared.report
    assert (len(prepared.report.videos), len(prepared.report.pictures)) == (1, 0)
    first = edges().prepare(CHAT_PATH, asked(part))
    assert first.report
    assert (len(first.report.videos), len(first.report.pictures)) == (0, 1)


def test_a_name_goes_with_the_part_that_bore_it(edges: Maker) -> None:
    """By which vLLM would cache one of the pictures."""
    named = {**video_part(film(60, size=HD)), "uuid": "mine"}
    two = {"form": "frames", "min_frames": 2, "max_frames": 2}
    parts = content(edges(two).prepare(CHAT_PATH, asked(named)).body)
    assert [part["type"] for part in parts] == ["text", *["text", "image_url"] * 2]
    assert not any("uuid" in part for part in parts)
    kept = content(edges(uuid="namespace").prepare(CHAT_PATH, asked(named)).body)
    assert kept[1]["uuid"] != "mine"
    with pytest.raises(CachedMediaRefused, match="a uuid for a video that is sent as pictures"):
        edges(two, uuid="pass").prepare(CHAT_PATH, asked(named))


def test_frames_that_are_pictures_are_as_many_as_pictures_may_be(edges: Maker) -> None:
    """So that whoever looks at them next finds no more."""
    frames = {"form": "frames", "fps": 10}
    limits = Limits(max_images=7)
    body = asked(image_part(jpeg(100, 80)), video_part(film(90, size=HD)), video_part(film(90, size=HD)))
    report = edges(frames, limits=limits).prepare(CHAT_PATH, body).report
    assert report
    assert [video.frames_after for video in report.videos] == [3, 3]
    again = edges(limits=limits).prepare(CHAT_PATH, edges(frames, limits=limits).prepare(CHAT_PATH, body).body)
    assert again.report
    assert len(again.report.pictures) == 7


def test_pictures_beside_a_video_that_ends_early_are_those_of_the_last_plan(edges: Maker) -> None:
    """The budget is shared among them anew."""
    limits, budget = Limits(max_request_tokens=1_500), BudgetSettings(on_exceed="fit")
    body = asked(image_part(jpeg(2_000, 1_500)), video_part(damaged(film(600, size=HD, gop=600))))
    prepared = edges({"fps": 2}, limits=limits, budget=budget).prepare(CHAT_PATH, body)
    assert prepared.report
    (made,) = prepared.report.pictures
    sent = opened(decoded(content(prepared.body)[1]["image_url"]["url"]))
    assert sent.size == made.size_after
    assert prepared.report.tokens <= 1_500


def damaged(data: bytes) -> bytes:
    """From the middle on."""
    broken = bytearray(data)
    start = broken.index(b"mdat") + 4
    length = int.from_bytes(broken[start - 8 : start - 4], "big")
    for at in range(start + length // 2, start + length - 16, 97):
        broken[at] ^= 0x55
    return bytes(broken)


@pytest.mark.parametrize("seconds", [80_000, 10_000_000])
def test_times_beyond_all_measure_are_refused(seconds: int, edges: Maker) -> None:
    data = film(4, times=[0, 1_000, 2_000, seconds * 1_000], container="matroska")
    with pytest.raises(EdgeError, match="the video has"):
        edges().prepare(CHAT_PATH, asked(video_part(data)))


@pytest.mark.parametrize("seconds", [30, 3_600, 35_990])
def test_a_frame_of_hours_has_the_rate_that_readers_find(seconds: int, edges: Maker) -> None:
    video = edges().video(film(2, times=[0, seconds * 1_000], container="matroska"), "standard", QWEN)
    with opened_by_opencv(video.data) as capture:
        assert capture.get(cv2.CAP_PROP_FPS) == pytest.approx(video.fps, rel=1e-3)


@contextmanager
def opened_by_opencv(data: bytes) -> Iterator[Any]:
    file = BytesIO(data)
    library: Any = cv2  # whose stubs know no BytesIO
    capture = library.VideoCapture(file, cv2.CAP_FFMPEG, [])
    yield capture
    capture.release()


def test_what_cannot_be_read_from_the_start_that_is_asked_for_is_said(edges: Maker) -> None:
    body = asked(video_part(damaged(film(600, size=HD, gop=600))))
    with pytest.raises(EdgeError, match="nothing of it can be from 19 s on"):
        edges({"start_s": 19.0}).prepare(CHAT_PATH, body)


@pytest.mark.parametrize("shape", [Size(1_920, 1_080), Size(1_080, 1_920), Size(1_000, 1_000)])
def test_a_shipped_profile_fits_the_shipped_limits(shape: Size, edges: Maker) -> None:
    data = film(2_000, size=Size(shape.width // 10, shape.height // 10), fps=10)
    edge = edges(limits=Limits(max_video_pixels=1 << 30))
    for name in edge.settings.profiles:
        planned = edge.plan_video(data, name, QWEN)
        assert planned.tokens <= Limits().max_image_tokens
        large = planned.counting(lookup(QWEN)).image(Size(560, 336) if name == "video" else Size(504, 504))
        assert large <= Limits().max_image_tokens


def test_av1_is_never_kept_for_servers_cannot_read_it(edges: Maker) -> None:
    data = film(4, size=Size(504, 280), fps=1, codec="libsvtav1")
    report = edges().prepare(CHAT_PATH, asked(video_part(data))).report
    assert report
    assert (report.videos[0].action, report.videos[0].codec) == ("sampled", "AV01")


def test_where_one_medium_may_stand_no_frames_can(edges: Maker) -> None:
    body = json.dumps({"model": QWEN, "videos": [data_url(film(3), "video/mp4")]}).encode()
    assert edges().prepare("/v1/systemone", body).report
    with pytest.raises(NoRoomForFrames):
        edges({"form": "frames"}).prepare("/v1/systemone", body)


def test_a_video_that_takes_too_long_is_the_clients_to_mend(edges: Maker) -> None:
    slow = IsolationSettings(cpu_s=0.05, cpu_s_a_megapixel=0)
    edge, body = edges(isolation=slow), asked(video_part(film(900, size=Size(1_280, 720))))
    with pytest.raises(DecoderStopped, match="the video cannot be read: decoding it took too long") as caught:
        edge.prepare(CHAT_PATH, body)
    assert caught.value.param == "messages[0].content[1]"


def test_a_video_that_takes_too_much_memory_is_the_clients_to_mend(edges: Maker) -> None:
    """In a child that has less than a frame of 4K and its decoder take; by default it has enough."""
    body = asked(video_part(film(6, size=Size(3_840, 2_160), gop=60)))
    small = edges(isolation=IsolationSettings(video_memory_bytes=200 << 20))
    with pytest.raises(DecoderStopped, match="the video cannot be read") as caught:
        small.prepare(CHAT_PATH, body)
    assert caught.value.param == "messages[0].content[1]"
    assert edges().prepare(CHAT_PATH, body).report


def test_videos_are_counted_in_metrics(edges: Maker) -> None:
    report = edges().prepare(CHAT_PATH, asked(video_part(film(300, size=HD)))).report
    assert report
    metrics = Metrics(CollectorRegistry())
    metrics.prepared(report)
    text = metrics.text().decode()
    assert 'vlm_edge_videos_total{form="video"} 1.0' in text
    assert 'vlm_edge_video_frames_total{side="after"} 10.0' in text


def test_an_estimate_tells_of_videos() -> None:
    with served(create_app(Settings(gateway=GatewaySettings(ask_backend=False)))) as port:
        url = f"http://127.0.0.1:{port}/edge/estimate"
        answer = httpx.post(url, content=asked(video_part(film(300, size=HD))), timeout=60).json()
    (video,) = answer["videos"]
    assert (video["form"], video["frames"], video["tokens"], answer["tokens"]) == ("video", 10, 900, 900)
    assert (video["param"], answer["verdict"]) == ("messages[0].content[1]", "accept")


def test_a_lone_file_is_prepared_too(edges: Maker) -> None:
    video = edges().video(film(300, size=HD), "standard", QWEN)
    assert numbers_in(video.data) == list(range(0, 300, 30))
    assert video.times_s == pytest.approx(range(10))
    assert (video.size, video.fps, video.tokens) == ((504, 280), 1.0, 900)
    with pytest.raises(EdgeError, match="picture where a video stands"):
        edges().video(picture(1, SMALL))
    with pytest.raises(EdgeError, match="the video has"):
        edges(limits=Limits(max_video_bytes=10)).video(film(2))
