"""The usage of every kind of answer is read as vLLM writes it, and without drift where the edge counts as it does."""

from typing import Any

import orjson
import pytest

from tests.samples import CHAT_PATH, data_url, image_part, png
from tests.vllm.client import JSON, Client, asking
from tests.vllm.service import MISTAKEN, MODEL, Service
from vlm_edge import Size
from vlm_edge.drift import Expected, Usage, drift, reader_of
from vlm_edge.tokens import lookup

SIZE = Size(644, 476)  # which neither the edge nor the processor changes
PICTURE = png(*SIZE)
URL = data_url(PICTURE, "image/png")
TOKENS = lookup("qwen2_5_vl").image(SIZE)

RESPONSES, MESSAGES, COUNT = "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"

INPUT = [{"role": "user", "content": [{"type": "input_image", "image_url": URL}, {"type": "input_text", "text": "hi"}]}]
SOURCE = {"type": "base64", "media_type": "image/png", "data": URL.partition(",")[2]}
MESSAGE = [{"role": "user", "content": [{"type": "image", "source": SOURCE}, {"type": "text", "text": "hi"}]}]

STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
CONTINUOUS: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}


def chat(**fields: Any) -> bytes:
    return asking(image_part(PICTURE, "image/png"), text="hi", **fields)


def other(**fields: Any) -> bytes:
    return orjson.dumps({"model": MODEL, "temperature": 0, **fields})


ASKED = {
    "a chat": (CHAT_PATH, chat()),
    "a chat as a stream": (CHAT_PATH, chat(**STREAMED)),
    "a chat as a stream that tells usage with every piece": (CHAT_PATH, chat(**CONTINUOUS)),
    "a response": (RESPONSES, other(input=INPUT, max_output_tokens=4)),
    "a response as a stream": (RESPONSES, other(input=INPUT, max_output_tokens=4, stream=True)),
    "a message": (MESSAGES, other(messages=MESSAGE, max_tokens=4)),
    "a message as a stream": (MESSAGES, other(messages=MESSAGE, max_tokens=4, stream=True)),
    "a count": (COUNT, other(messages=MESSAGE)),
}


@pytest.mark.parametrize("name", ASKED)
def test_the_usage_of_any_answer_is_read(name: str, vllm: Client) -> None:
    path, body = ASKED[name]
    usage = usage_of(vllm, path, body)
    assert usage
    assert usage.prompt_tokens == prompt_tokens(vllm)


@pytest.mark.parametrize("name", [name for name in ASKED if name.startswith("a chat")])
def test_the_vision_tokens_of_a_chat_are_read(name: str, vllm: Client) -> None:
    usage = usage_of(vllm, *ASKED[name])
    assert usage
    assert usage.vision_tokens == TOKENS


def test_a_stream_that_was_not_asked_for_its_usage_has_none(vllm: Client) -> None:
    assert usage_of(vllm, CHAT_PATH, chat(stream=True)) is None


def test_there_is_no_drift_where_both_count_alike(vllm: Client) -> None:
    text_tokens = prompt_tokens(vllm) - TOKENS
    expected = Expected(vision_tokens=TOKENS, text_tokens=text_tokens, text_at_most=text_tokens)
    usages = [usage_of(vllm, path, body) for path, body in ASKED.values()]
    assert [usage and drift(expected, usage) for usage in usages] == [None] * len(ASKED)


def prompt_tokens(vllm: Client) -> int:
    """As the body of a plain answer says."""
    tokens: int = vllm.post(chat()).usage["prompt_tokens"]
    return tokens


def usage_of(vllm: Client, path: str, body: bytes) -> Usage | None:
    """As it is read from the pieces that the answer comes in."""
    with vllm.http.stream("POST", path, content=body, headers=JSON) as response:
        reader = reader_of(response.status_code, response.headers.raw)
        assert reader, response.read()
        for piece in response.iter_raw():
            reader.feed(piece)
    return reader.usage()


def test_who_believes_other_numbers_notices_it(client: Client, service: Service) -> None:
    """In the log and in the metrics, of the gateway or of the vLLM that the edge is in."""
    body = chat(model=MISTAKEN)
    for asked in (body, chat(model=MISTAKEN, **STREAMED)):
        assert client.http.post(CHAT_PATH, content=asked, headers=JSON).status_code == 200
    warnings = [line for line in service.log.read_text().splitlines() if "configured otherwise" in line]
    assert len(warnings) == 1  # of two drifts
    assert f"{MISTAKEN!r} counts {TOKENS} vision tokens" in warnings[0]
    assert "max_pixels between" in warnings[0]
    drifted = {"model": MISTAKEN, "where": "vision", "direction": "more"}
    assert client.metric("vlm_edge_drifted_total", **drifted) == 2.0
    assert client.metric("vlm_edge_usage_compared_total", model=MISTAKEN) == 2.0
