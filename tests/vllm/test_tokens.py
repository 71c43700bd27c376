"""Counts: what we say a request costs is what vLLM's usage says, to the token; and it sees what we prepared."""

from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import openai
import orjson
import pytest
from PIL import Image

from tests.samples import (
    CHAT_PATH,
    PHONE,
    PICTURES,
    TRANSPARENT,
    TURNED,
    encoded,
    image_part,
    opened,
    picture,
    sent_picture,
)
from tests.vllm.client import Answer, Client, Part, asking
from tests.vllm.service import MODEL, Service
from vlm_edge import Edge, Size
from vlm_edge.tokens import lookup

RULE = lookup("qwen2_5_vl")


def plain_part(width: int, height: int) -> Part:
    return image_part(encoded(Image.new("RGB", (width, height), "teal"), "PNG"), "image/png")


PHONE_PART = image_part(PHONE.read_bytes())
RETINA_PART = image_part((PICTURES / "retina.jpg").read_bytes())

REQUESTS = {
    "a photo of a phone": [PHONE_PART],
    "two photos": [PHONE_PART, RETINA_PART],
    "a photo stored on its side": [image_part(TURNED.read_bytes())],
    "a transparent screenshot": [image_part(TRANSPARENT.read_bytes(), "image/png")],
    "a photo in another colour space": [image_part((PICTURES / "rocket.jpg").read_bytes())],
    "one pixel": [plain_part(1, 1)],
    "a small one, kept": [plain_part(301, 200)],
    "one of each": [plain_part(55, 57), PHONE_PART],
    "a WebP": [image_part(encoded(picture(640, 480), "WEBP"), "image/webp")],
    "an AVIF": [image_part(encoded(picture(640, 480), "AVIF"), "image/avif")],
    "a GIF": [image_part(encoded(picture(640, 480), "GIF"), "image/gif")],
    "sides of 200:1": [plain_part(2_000, 10)],
}


def random_sizes(count: int) -> list[Size]:
    """Small and large ones alike, both ways round, at ratios up to 150:1."""
    random, sizes = Random("vlm_edge"), []
    for _ in range(count):
        long = round(3_000 ** random.uniform(0.3, 1))
        size = Size(long, max(1, round(long / 150 ** random.random() ** 2)))
        sizes.append(random.choice([size, size.turned()]))
    return sizes


@pytest.mark.parametrize("name", REQUESTS)
def test_usage_is_what_was_announced(name: str, client: Client, edge: Edge) -> None:
    assert_counted(REQUESTS[name], client, edge)


@pytest.mark.parametrize("size", random_sizes(16), ids=str)
def test_usage_is_what_was_announced_at_any_size(size: Size, client: Client, edge: Edge) -> None:
    assert_counted([plain_part(*size)], client, edge)


@pytest.mark.parametrize("profile", ["thumbnail", "standard", "document", "invoice"])
def test_usage_is_what_was_announced_in_any_profile(profile: str, client: Client, edge: Edge) -> None:
    assert_counted([RETINA_PART], client, edge, {"x-vlm-edge-profile": profile})


def test_usage_is_what_was_announced_when_requests_come_together(client: Client, edge: Edge) -> None:
    requests = [[plain_part(*size)] for size in random_sizes(8)]
    with ThreadPoolExecutor(len(requests)) as threads:
        answers = threads.map(lambda pictures: client.ask(*pictures), requests)
    for pictures, answer in zip(requests, answers, strict=True):
        assert answer.multimodal_tokens == {"image": sum(expected_tokens(pictures, edge))}


def test_a_request_without_pictures_passes_as_it_is(client: Client) -> None:
    short, long = client.ask(text="hi"), client.ask(text="hi" + "!" * 10)
    assert long.usage["prompt_tokens"] - short.usage["prompt_tokens"] == 10
    assert short.multimodal_tokens is None
    assert not [name for name in short.response.headers if name.startswith("x-vlm-edge")]


def test_the_model_sees_what_was_prepared(client: Client, vllm: Client, edge: Edge) -> None:
    body = asking(PHONE_PART, max_tokens=16)
    through = client.post(body)
    assert vllm.post(bytes(edge.prepare(CHAT_PATH, body).body)).text == through.text
    assert client.ask(RETINA_PART, max_tokens=16).text != through.text


@pytest.mark.parametrize("service", ["gateway"], indirect=True)
def test_an_estimate_is_what_vllm_will_count(client: Client) -> None:
    pictures = REQUESTS["two photos"]
    estimate = client.http.post("/edge/estimate", content=asking(*pictures)).json()
    assert estimate["exact"] is True
    assert {"image": estimate["tokens"]} == client.ask(*pictures).multimodal_tokens


def test_the_openai_client_is_told_the_same(service: Service) -> None:
    messages: Any = orjson.loads(asking(PHONE_PART))["messages"]
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as user:
        raw = user.chat.completions.with_raw_response.create(model=MODEL, messages=messages, max_tokens=4)
    usage = raw.parse().usage
    assert usage
    assert usage.prompt_tokens_details
    announced = int(raw.headers["x-vlm-edge-vision-tokens"])
    assert usage.prompt_tokens_details.to_dict()["multimodal_tokens"] == {"image": announced}


def assert_counted(pictures: list[Part], client: Client, edge: Edge, headers: dict[str, str] | None = None) -> None:
    answer, without = client.ask(*pictures, headers=headers), client.ask()
    expected = expected_tokens(pictures, edge, headers)
    assert answer.announced_tokens == sum(expected)
    assert answer.multimodal_tokens == {"image": sum(expected)}
    assert cost(answer, without) == sum(expected) + RULE.template_tokens * len(pictures)


def cost(answer: Answer, without: Answer) -> int:
    """The tokens of the prompt that the pictures are the reason of."""
    tokens: int = answer.usage["prompt_tokens"] - without.usage["prompt_tokens"]
    return tokens


def expected_tokens(pictures: list[Part], edge: Edge, headers: dict[str, str] | None = None) -> list[int]:
    """The rule's count for every picture that is sent on, at its size as Pillow reads it."""
    body = bytes(edge.prepare(CHAT_PATH, asking(*pictures), headers or {}).body)
    sent = [opened(sent_picture(body, part=part)) for part in range(1, len(pictures) + 1)]
    return [RULE.image(Size(*image.size)) for image in sent]
