"""The official clients, unmodified: pictures arrive prepared, streams whole, and refusals as errors of their own."""

import base64
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import orjson
import pytest

from tests.samples import PHONE, data_url, image_part, jpeg
from tests.vllm.client import Client, asking
from tests.vllm.service import MODEL, Service

MAX_TOKENS = 20
PHOTO, BROKEN = PHONE.read_bytes(), jpeg(600, 400)[:-400]
# 3264x2448 inside 1024 pixels, in cells of 28, and the two tokens around a picture.
PHOTO_COST = 36 * 27 + 2
TEXT = "What is this?"
# vLLM makes a user's message of a tool's pictures: two special tokens, the role and two line ends, a token a byte.
FRAME = 2 + len("user\n\n")


@pytest.fixture
def openai_client(service: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(service: Service) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=service.url, api_key="none", max_retries=0) as client:
        yield client


# OpenAI: chat


def chat_messages(data: bytes) -> Any:
    return orjson.loads(asking(image_part(data)))["messages"]


def test_openais_client_chats_about_a_picture(openai_client: openai.OpenAI, client: Client) -> None:
    answer = openai_client.chat.completions.create(
        model=MODEL, messages=chat_messages(PHOTO), max_tokens=MAX_TOKENS, temperature=0
    )
    assert answer.usage
    assert answer.usage.prompt_tokens == client.ask().usage["prompt_tokens"] + PHOTO_COST


def test_openais_client_reads_a_stream(openai_client: openai.OpenAI) -> None:
    chunks = openai_client.chat.completions.create(
        model=MODEL, messages=chat_messages(PHOTO), max_tokens=MAX_TOKENS, temperature=0, stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert len(text) == MAX_TOKENS


def test_openais_client_raises_our_refusals_as_its_own(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model=MODEL, messages=chat_messages(BROKEN))
    assert (refused.value.code, refused.value.param) == ("corrupt_media", "messages[0].content[1]")


# OpenAI: responses


def responses_input(data: bytes) -> Any:
    parts = [{"type": "input_text", "text": TEXT}, {"type": "input_image", "image_url": data_url(data)}]
    return [{"role": "user", "content": parts}]


def input_tokens(openai_client: openai.OpenAI, asked: Any) -> int:
    answer = openai_client.responses.create(model=MODEL, input=asked, max_output_tokens=MAX_TOKENS, temperature=0)
    assert answer.usage
    return answer.usage.input_tokens


def test_openais_client_gets_a_response_about_a_picture(openai_client: openai.OpenAI) -> None:
    without = input_tokens(openai_client, [{"role": "user", "content": TEXT}])
    assert input_tokens(openai_client, responses_input(PHOTO)) == without + PHOTO_COST


def test_a_tool_answers_openais_client_with_a_picture(openai_client: openai.OpenAI) -> None:
    def turns(output: Any) -> list[dict[str, Any]]:
        call = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
        return [
            {"role": "user", "content": TEXT},
            call,
            {"type": "function_call_output", "call_id": "1", "output": output},
        ]

    text = {"type": "input_text", "text": "here"}
    picture = {"type": "input_image", "image_url": data_url(PHOTO), "detail": "auto"}
    without = input_tokens(openai_client, turns([text]))
    assert input_tokens(openai_client, turns([text, picture])) == without + PHOTO_COST


def test_openais_client_reads_the_events_of_a_response(openai_client: openai.OpenAI) -> None:
    with openai_client.responses.stream(
        model=MODEL, input=responses_input(PHOTO), max_output_tokens=MAX_TOKENS, temperature=0
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert len(text) == MAX_TOKENS


def test_a_response_about_a_broken_picture_is_refused(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        input_tokens(openai_client, responses_input(BROKEN))
    assert (refused.value.code, refused.value.param) == ("corrupt_media", "input[0].content[1]")


# Anthropic


def blocks(data: bytes, media_type: str = "image/jpeg") -> list[Any]:
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    return [{"type": "text", "text": TEXT}, {"type": "image", "source": source}]


def messages(content: Any) -> Any:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("media_type", ["image/jpeg", "image/png"])
def test_anthropics_client_sends_a_picture(anthropic_client: anthropic.Anthropic, media_type: str) -> None:
    def cost(content: Any) -> int:
        usage = anthropic_client.messages.create(model=MODEL, max_tokens=1, messages=messages(content)).usage
        cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
        return usage.input_tokens + cached

    assert cost(blocks(PHOTO, media_type)) == cost(TEXT) + PHOTO_COST


def test_anthropics_client_counts_tokens(anthropic_client: anthropic.Anthropic) -> None:
    def count(content: Any) -> int:
        return anthropic_client.messages.count_tokens(model=MODEL, messages=messages(content)).input_tokens

    assert count(blocks(PHOTO)) == count(TEXT) + PHOTO_COST
    result = {"type": "tool_result", "tool_use_id": "1", "content": blocks(PHOTO)}
    text = {"type": "tool_result", "tool_use_id": "1", "content": blocks(PHOTO)[:1]}
    assert count([result]) == count([text]) + PHOTO_COST + FRAME


def test_anthropics_client_reads_a_stream(anthropic_client: anthropic.Anthropic) -> None:
    with anthropic_client.messages.stream(
        model=MODEL, max_tokens=MAX_TOKENS, messages=messages(blocks(PHOTO)), extra_body={"temperature": 0}
    ) as stream:
        text = "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens == MAX_TOKENS
    assert len(text) == MAX_TOKENS


def test_anthropics_client_raises_our_refusals_as_its_own(anthropic_client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        anthropic_client.messages.create(model=MODEL, max_tokens=1, messages=messages(blocks(BROKEN)))
    assert refused.value.body == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": refused.value.body["error"]["message"]},  # type: ignore[index]
    }
    assert "messages[0].content[1]: the picture cannot be read" in str(refused.value)
