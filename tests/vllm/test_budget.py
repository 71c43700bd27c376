"""The whole prompt is counted as vLLM counts it, text and template included, and what is fitted is never too long."""

import random
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.samples import CHAT_PATH, data_url, png
from tests.vllm.client import JSON, Client
from tests.vllm.environment import Environment
from tests.vllm.service import MODEL, alone
from tests.vllm.texts import messages, odd
from vlm_edge import Edge, Settings
from vlm_edge.errors import VisionBudgetExceeded
from vlm_edge.report import Report

REQUESTS = 200
SHORT_TOKENS = 1_024  # of a server whose prompts are soon too long
URL = data_url(png(300, 200), "image/png")

FITTING = f"""\
[models.{MODEL}]
checkpoint = "CHECKPOINT"
max_model_len = {SHORT_TOKENS}

[budget]
on_exceed = "fit"
reserve_tokens = 16

[profiles.large]
max_side = 2_048
max_pixels = 4_194_304
floor_pixels = 50_176
"""


@pytest.fixture(scope="module")
def bare(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A vLLM with no edge before it or in it, and a short context."""
    log = tmp_path_factory.mktemp("bare") / "servers.log"
    with (
        alone(environment, log, "--max-model-len", f"{SHORT_TOKENS}") as service,
        httpx.Client(base_url=service.url, timeout=60) as http,
    ):
        yield Client(http)


@pytest.fixture(scope="module")
def fitting(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    path = tmp_path_factory.mktemp("fitting") / "edge.toml"
    path.write_text(FITTING.replace("CHECKPOINT", f"{environment.checkpoint}"))
    edge = Edge(Settings.load(path))
    yield edge
    edge.close()


def body_of(conversation: list[dict[str, Any]], **fields: Any) -> bytes:
    return orjson.dumps({"model": MODEL, "messages": conversation, "max_tokens": 1, "temperature": 0, **fields})


def report_of(edge: Edge, path: str, body: bytes) -> Report:
    report = edge.prepare(path, body).report
    assert report
    return report


def predicted(report: Report) -> int:
    """Tokens of the whole prompt. Text that is only bounded is no prediction."""
    assert report.text_exact
    assert report.text_tokens is not None
    return report.tokens + report.text_tokens


def test_random_prompts_cost_what_was_predicted(client: Client, edge: Edge) -> None:
    chance, wrong = random.Random(5), []
    for number in range(REQUESTS):
        body = body_of(messages(chance, chance.randint(1, 2), 120, 600))
        answer = client.post(body)
        assert answer.response.status_code == 200, answer.response.text
        expected, found = predicted(report_of(edge, CHAT_PATH, body)), answer.usage["prompt_tokens"]
        if found != expected:
            wrong.append((number, found, expected))
    assert wrong == []


@pytest.mark.parametrize("name", odd(URL))
def test_odd_prompts_cost_what_was_predicted_too(name: str, client: Client, edge: Edge) -> None:
    body = body_of(odd(URL)[name])
    answer = client.post(body)
    assert answer.response.status_code == 200, answer.response.text
    assert answer.usage["prompt_tokens"] == predicted(report_of(edge, CHAT_PATH, body))


def test_what_is_fitted_is_never_too_long_for_the_model(bare: Client, fitting: Edge) -> None:
    chance, fitted, refused = random.Random(6), 0, 0
    for _ in range(REQUESTS):
        body = body_of(messages(chance, chance.randint(1, 2), 120, 900), max_tokens=chance.randint(1, 64))
        try:
            prepared = fitting.prepare(CHAT_PATH, body, {"X-VLM-Edge-Profile": "large"})
        except VisionBudgetExceeded:
            refused += 1
            continue
        assert prepared.report
        answer = bare.post(bytes(prepared.body))
        assert answer.response.status_code == 200, answer.response.text
        assert answer.usage["prompt_tokens"] == predicted(prepared.report)
        fitted += any(picture.fitted for picture in prepared.report.pictures)
    assert fitted >= REQUESTS // 4
    assert refused <= REQUESTS // 4


def test_a_prompt_that_just_fits_is_answered_and_two_tokens_more_are_not(bare: Client, fitting: Edge) -> None:
    """vLLM takes a prompt that leaves room for one token; fitting leaves as many as were asked for."""
    conversation = messages(random.Random(7), 1, 50, 300)
    filler = SHORT_TOKENS - 1 - predicted(report_of(fitting, CHAT_PATH, body_of(conversation)))
    full = _longer(conversation, filler)
    assert predicted(report_of(fitting, CHAT_PATH, body_of(full))) == SHORT_TOKENS - 1
    assert bare.post(body_of(full)).usage["prompt_tokens"] == SHORT_TOKENS - 1
    assert predicted(report_of(fitting, CHAT_PATH, body_of(full, max_tokens=2))) <= SHORT_TOKENS - 2
    assert bare.post(body_of(_longer(full, 1))).response.status_code == 400


def _longer(conversation: list[dict[str, Any]], tokens: int) -> list[dict[str, Any]]:
    """With a part of that many bytes behind it."""
    last = conversation[-1]
    return [*conversation[:-1], {**last, "content": [*last["content"], _text("x" * tokens)]}]


def _sent_and_cached(usage: dict[str, int]) -> int:
    return sum(usage.get(f"{kind}input_tokens") or 0 for kind in ("", "cache_read_", "cache_creation_"))


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


IMAGE = {"type": "base64", "media_type": "image/png"}


@pytest.mark.parametrize("kind", ["messages", "responses", "tokenize"])
def test_other_dialects_cost_what_was_predicted(kind: str, vllm: Client, edge: Edge) -> None:
    path, body, found = DIALECTS[kind]
    raw = orjson.dumps(body)
    prepared = edge.prepare(path, raw)
    assert prepared.report
    answer = vllm.http.post(path, content=bytes(prepared.body), headers=JSON)
    assert answer.status_code == 200, answer.text
    assert found(answer) == predicted(prepared.report)


DIALECTS: dict[str, Any] = {
    "messages": (
        "/v1/messages",
        {
            "model": MODEL,
            "max_tokens": 2,
            "system": [_text("Be brief."), _text(" Größe.")],
            "messages": [
                {"role": "user", "content": "你好"},
                {"role": "assistant", "content": [_text("Yes?")]},
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {**IMAGE, "data": URL.partition(",")[2]}},
                        _text("What?"),
                    ],
                },
            ],
        },
        lambda answer: _sent_and_cached(answer.json()["usage"]),
    ),
    "responses": (
        "/v1/responses",
        {
            "model": MODEL,
            "max_output_tokens": 2,
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Yes?"},
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is this? 👍🏽"},
                        {"type": "input_image", "image_url": URL},
                    ],
                },
            ],
        },
        lambda answer: _sent_and_cached(answer.json()["usage"]),
    ),
    "tokenize": (
        "/tokenize",
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}],
        },
        lambda answer: answer.json()["count"],
    ),
}
