"""Videos: what is predicted of them is what vLLM counts, and every frame that is sent is one that it keeps."""

from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from tests.media.films import film, picture
from tests.samples import CHAT_PATH, chat, data_url, text_part
from tests.vllm.client import Client
from tests.vllm.conftest import Ask, Job
from tests.vllm.service import MAX_IMAGES, MODEL
from vlm_edge import Edge, Settings, Size
from vlm_edge.clips import DEFAULT, GLM_4_1V, GLM_4_6V, QWEN, Film, plan_clip
from vlm_edge.media.profile import Profile, Sampling
from vlm_edge.media.sampling import Loader, choose
from vlm_edge.media.video import Clip
from vlm_edge.tokens import lookup

CLIPS = 30
SIZES = (Size(96, 64), Size(160, 120), Size(64, 128), Size(320, 96))
RATES = (10, 24, 25, 30)

LOADERS = {"qwen2_vl": QWEN, "qwen3_vl": QWEN, "opencv_dynamic": GLM_4_1V, "glm46v": GLM_4_6V, "opencv": DEFAULT}


def clips() -> list[bytes]:
    chance, made = Random(6), []
    for _ in range(CLIPS):
        fps = chance.choice(RATES)
        frames = chance.choice((1, 2, 3, 5, chance.randint(6, 20 * fps)))
        container = chance.choice(("mp4", "matroska", "mov"))
        made.append(film(frames, size=chance.choice(SIZES), fps=fps, container=container))
    return made


def asked(data: bytes, **fields: Any) -> bytes:
    video = {"type": "video_url", "video_url": {"url": data_url(data, "video/mp4")}}
    return chat(text_part("What happens?"), video, model=MODEL, max_tokens=1, temperature=0, **fields)


def test_what_is_predicted_of_a_video_is_what_it_costs(client: Client, edge: Edge) -> None:
    for data in clips():
        answer = client.post(asked(data))
        assert answer.response.status_code == 200, answer.response.text
        assert answer.multimodal_tokens["video"] == answer.announced_tokens
        report = edge.prepare(CHAT_PATH, asked(data)).report
        assert report
        assert report.text_exact
        assert answer.usage["prompt_tokens"] == report.tokens + (report.text_tokens or 0)


@pytest.mark.parametrize("number", [1, 2, 7, 40])
def test_a_clients_own_list_of_frames_costs_what_is_predicted(number: int, client: Client, edge: Edge) -> None:
    """Servers keep 32 of a list; of the video that is made of it all."""
    frames = [b64encode(picture(index, Size(160, 120))).decode() for index in range(number)]
    part = {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + ",".join(frames)}}
    body = chat(text_part("hi"), part, model=MODEL, max_tokens=1)
    answer = client.post(body)
    assert answer.response.status_code == 200, answer.response.text
    report = edge.prepare(CHAT_PATH, body).report
    assert report
    assert report.videos[0].frames_after == max(2, number // 2 * 2)
    assert answer.multimodal_tokens == {"video": answer.announced_tokens} == {"video": report.tokens}
    assert answer.usage["prompt_tokens"] == report.tokens + (report.text_tokens or 0)


@pytest.fixture(scope="module")
def sending(config: Path) -> Iterator[Callable[..., Edge]]:
    """Edges of this process whose videos take another form."""
    edges = []

    def make(**video: Any) -> Edge:
        settings = Settings.load(config)
        standard = settings.profiles["standard"]
        changed = msgspec.structs.replace(standard, video=msgspec.structs.replace(standard.video, **video))
        edges.append(Edge(msgspec.structs.replace(settings, profiles={**settings.profiles, "standard": changed})))
        return edges[-1]

    yield make
    for edge in edges:
        edge.close()


@pytest.mark.parametrize(
    ("video", "modality"),
    [
        ({"form": "jpeg_frames", "max_frames": 32}, "video"),
        ({"form": "frames", "max_frames": MAX_IMAGES, "min_frames": 1}, "image"),
        ({"form": "frames", "max_frames": MAX_IMAGES, "min_frames": 1, "labels": False}, "image"),
        ({"form": "video", "fps": 0.5}, "video"),
    ],
)
def test_every_form_costs_what_is_predicted(
    video: dict[str, Any], modality: str, vllm: Client, sending: Callable[..., Edge]
) -> None:
    edge = sending(**video)
    for data in clips()[:10]:
        prepared = edge.prepare(CHAT_PATH, asked(data))
        assert prepared.report
        answer = vllm.post(bytes(prepared.body))
        assert answer.response.status_code == 200, answer.response.text
        assert answer.multimodal_tokens == {modality: prepared.report.tokens}
        assert answer.usage["prompt_tokens"] == prepared.report.tokens + (prepared.report.text_tokens or 0)


def test_a_video_is_shrunk_and_thinned_out_until_it_fits(vllm: Client, sending: Callable[..., Edge]) -> None:
    edge = sending(fps=2.0, max_frames=128, max_side=1_024, max_pixels=1_000_000)
    fitting = msgspec.structs.replace(edge.settings.budget, on_exceed="fit")
    edge = Edge(msgspec.structs.replace(edge.settings, budget=fitting))
    prepared = edge.prepare(CHAT_PATH, asked(film(900, size=Size(640, 360), fps=15), max_completion_tokens=4))
    assert prepared.report
    assert prepared.report.videos[0].fitted
    answer = vllm.post(bytes(prepared.body))
    assert answer.response.status_code == 200, answer.response.text
    assert answer.usage["prompt_tokens"] == prepared.report.tokens + (prepared.report.text_tokens or 0)
    edge.close()


def sample_of(seconds: float, frames: int, loader: Loader) -> Clip:
    """What is taken of a video of so many frames."""
    times = [number * seconds / frames for number in range(frames)]
    chosen = choose(times, times[:1], Sampling(fps=5, max_frames=4_000, min_frames=4), loader)
    return Clip(
        media_type="video/mp4",
        file_bytes=0,
        size=Size(56, 56),
        stored=Size(56, 56),
        codec="",
        frames=frames,
        seconds=seconds,
        sample=chosen,
        sought=True,
    )


@pytest.mark.parametrize("name", LOADERS)
def test_vllms_loaders_keep_every_frame(name: str, ask: Ask) -> None:
    chance, loader = Random(name), LOADERS[name]
    jobs: list[Job] = []
    for _ in range(400):
        seconds = chance.choice((0.1, 0.5, chance.uniform(0.2, 40), chance.uniform(40, 4_000)))
        clip = sample_of(seconds, chance.choice((1, 2, 3, 7, chance.randint(4, 5_000))), loader)
        planned = plan_clip(Film("", clip, "video"), Profile(), lookup("qwen2_5_vl"), loader)
        jobs.append({"job": "kept", "loader": name, "frames": planned.frames, "fps": planned.fps})
    for job, answer in zip(jobs, ask(jobs), strict=True):
        assert answer == {"kept": list(range(job["frames"]))}, job
