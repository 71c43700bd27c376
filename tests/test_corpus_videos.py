"""
The videos of the corpus, through middleware and library: each comes out as its manifest says.

Without VLM_EDGE_CORPUS there is nothing here to run.
"""

import json
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import pytest

from tests.samples import CHAT_PATH, chat, data_url
from tests.test_corpus import FOLDER, codes
from vlm_edge import Edge, EdgeError, Settings, Size

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"

# What the manifest calls by another of our codes: FFmpeg finds no track in these at all.
DAMAGED = {"corrupt_media", "unsupported_media"}


def rows() -> list[dict[str, Any]]:
    if not FOLDER:
        return []
    lines = Path(FOLDER, "manifest.jsonl").read_text("utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["class"] == "videos"]


def read(name: str) -> bytes:
    return Path(FOLDER, name).read_bytes()


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    edge = Edge(Settings())
    yield edge
    edge.close()


def sent(edge: Edge, data: bytes) -> tuple[bytes, Any]:
    """The video that goes on, and what is reported of it."""
    part = {"type": "video_url", "video_url": {"url": data_url(data, "video/mp4")}}
    prepared = edge.prepare(CHAT_PATH, chat(part, model=MODEL))
    assert prepared.report
    (report,) = prepared.report.videos
    url = json.loads(bytes(prepared.body))["messages"][0]["content"][0]["video_url"]["url"]
    return b64decode(url.partition(",")[2]), report


def outcome(edge: Edge, data: bytes) -> tuple[bytes, Any] | EdgeError:
    try:
        return sent(edge, data)
    except EdgeError as error:
        return error


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"])
def test_a_video_comes_out_as_expected(row: dict[str, Any], edge: Edge) -> None:
    allowed = {row["expect"], *(row.get("also_ok") or ())}
    made = outcome(edge, read(row["file"]))
    if isinstance(made, EdgeError):
        assert allowed != {"decode"}, made
        assert made.code in codes(row) | DAMAGED
        assert (made.status, made.param) == (400, "messages[0].content[0]")
        return
    data, report = made
    assert "decode" in allowed
    if row["agree"]:
        assert report.frames_before == row["frames"]
    with av.open(BytesIO(data), "r") as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == report.frames_after
    assert {frame.shape[:2][::-1] for frame in frames} == {tuple(report.size_after)}
    upright = Size(row["upright_width"], row["upright_height"])
    if row.get("sample_aspect_ratio") is None and upright.short > 250:  # smaller ones may have margins
        shape = report.size_after.width / report.size_after.height * upright.height / upright.width
        assert abs(shape - 1) < 0.09


@pytest.mark.skipif(not FOLDER, reason="needs VLM_EDGE_CORPUS")
def test_good_frames_before_a_damaged_tail_are_sent_and_the_report_says_so(edge: Edge) -> None:
    for name, early in (("flower_bitflips_200.mp4", True), ("flower_truncated_50pct.webm", False)):
        _, report = sent(edge, read(f"videos/{name}"))
        assert (report.ends_early, report.frames_after >= 2) == (early, True)


@pytest.mark.skipif(not FOLDER, reason="needs VLM_EDGE_CORPUS")
@pytest.mark.parametrize(
    ("name", "size"), [("phone_rot180_3frames.mov", (568, 320)), ("phone_rot270_3frames.mov", (320, 568))]
)
def test_a_phone_that_was_turned_is_upright(name: str, size: tuple[int, int], edge: Edge) -> None:
    _, report = sent(edge, read(f"videos/{name}"))
    assert report.size_before == size


@pytest.mark.skipif(not FOLDER, reason="needs VLM_EDGE_CORPUS")
def test_three_hours_are_sampled_from_end_to_end(edge: Edge) -> None:
    video = edge.video(read("videos/long_3h_1fps_96x54.mp4"), "standard", MODEL)
    assert len(video.frames) == 64
    assert video.times_s[-1] > 10_600
    gaps = {round(after - before) for before, after in zip(video.times_s, video.times_s[1:], strict=False)}
    assert gaps <= {168, 169}
