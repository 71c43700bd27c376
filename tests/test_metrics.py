"""Metrics as Prometheus reads them, through the middleware that feeds them."""

from functools import partial
from threading import Event

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tests.samples import CHAT_PATH, PHONE, chat, image_part, jpeg, sent_picture, text_part
from tests.servers import Recorder, wait_until
from vlm_edge import EdgeMiddleware, Settings
from vlm_edge.isolation import Isolation, IsolationSettings
from vlm_edge.metrics import CONTENT_TYPE, Metrics
from vlm_edge.workers import Job, Workers, WorkerSettings

pytestmark = pytest.mark.anyio


def samples(text: bytes) -> dict[str, float]:
    """Every sample of an exposition but the times of its making, as `name{label=value}`."""
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


async def counted(*bodies: bytes, app: Recorder | None = None) -> dict[str, float]:
    """The samples after these requests."""
    metrics = Metrics()
    transport = httpx.ASGITransport(EdgeMiddleware(app or Recorder(), settings=Settings(), observer=metrics))
    async with httpx.AsyncClient(transport=transport, base_url="http://edge") as client:
        for body in bodies:
            await client.post(CHAT_PATH, content=body)
    return samples(metrics.text())


async def test_a_prepared_request_is_counted_with_its_pictures() -> None:
    app, small = Recorder(), jpeg(280, 280)
    found = await counted(chat(image_part(PHONE.read_bytes()), image_part(small)), app=app)
    sent = len(sent_picture(app.last.body)) + len(small)
    assert found["vlm_edge_requests_total{profile=standard}"] == 1
    assert found["vlm_edge_pictures_total{action=resized}"] == 1
    assert found["vlm_edge_pictures_total{action=kept}"] == 1
    assert found["vlm_edge_picture_bytes_total{side=before}"] == PHONE.stat().st_size + len(small)
    assert found["vlm_edge_picture_bytes_total{side=after}"] == sent
    # 3264x2448 is 117 x 87 cells of 28 pixels, 1008x756 is 36 x 27, 280x280 is 10 x 10
    assert found["vlm_edge_vision_tokens_total{side=before}"] == 117 * 87 + 100
    assert found["vlm_edge_vision_tokens_total{side=after}"] == 36 * 27 + 100
    assert found["vlm_edge_request_vision_tokens_sum"] == 36 * 27 + 100
    assert found["vlm_edge_decide_seconds_count"] == 1
    assert found["vlm_edge_prepare_seconds_count"] == 1


async def test_refusals_are_counted_by_their_code() -> None:
    found = await counted(b"{", b"[]", chat(image_part(b"<html>")))
    assert found["vlm_edge_refusals_total{code=invalid_json}"] == 2
    assert found["vlm_edge_refusals_total{code=unsupported_media}"] == 1
    assert not [name for name in found if name.startswith("vlm_edge_requests_total")]


async def test_a_request_without_pictures_counts_for_nothing() -> None:
    assert await counted(chat(text_part())) == samples(Metrics().text())


async def test_counts_add_up() -> None:
    found = await counted(*[chat(image_part(jpeg(280, 280)))] * 3)
    assert found["vlm_edge_requests_total{profile=standard}"] == 3
    assert found["vlm_edge_vision_tokens_total{side=after}"] == 300
    assert found["vlm_edge_request_vision_tokens_bucket{le=64.0}"] == 0
    assert found["vlm_edge_request_vision_tokens_bucket{le=256.0}"] == 3


def test_two_metrics_do_not_share_a_registry_unless_told_so() -> None:
    shared = CollectorRegistry()
    assert Metrics().registry is not Metrics().registry
    assert Metrics(shared).registry is shared


def test_the_text_is_of_the_type_that_prometheus_asks_for() -> None:
    assert CONTENT_TYPE.startswith("text/plain")
    assert b"# TYPE vlm_edge_requests_total counter" in Metrics().text()


def test_pictures_under_way_are_shown_while_they_are() -> None:
    metrics, workers, go = Metrics(), Workers(WorkerSettings(threads=1), Isolation(IsolationSettings())), Event()
    metrics.watch(workers)
    jobs = workers.submit([Job(partial(go.wait))] * 2)
    assert b"vlm_edge_pictures_under_way 2.0" in metrics.text()
    go.set()
    for job in jobs:
        job.result()
    wait_until(lambda: b"vlm_edge_pictures_under_way 0.0" in metrics.text())
    workers.close()


async def test_answers_of_another_usage_are_counted_by_model_and_direction() -> None:
    metrics, answer = Metrics(), Recorder(body=b'{"usage":{"prompt_tokens":60}}')
    app = EdgeMiddleware(answer, settings=Settings(), observer=metrics)
    metrics.watch_drift(app.edge.drifts)
    body = chat(text_part(), image_part(jpeg(280, 280)), model="qwen2_5_vl")  # 100 vision tokens
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://edge") as client:
        await client.post(CHAT_PATH, content=body)
    found, labels = samples(metrics.text()), "{direction=fewer}{model=qwen2_5_vl}{where=prompt}"
    assert found["vlm_edge_usage_compared_total{model=qwen2_5_vl}"] == 1
    assert found[f"vlm_edge_drifted_total{labels}"] == 1
    assert found[f"vlm_edge_drift_tokens_total{labels}"] == 40
