"""Streams: an answer arrives as it is made, and is no longer made once nobody waits for it."""

from collections.abc import Callable
from contextlib import suppress
from itertools import islice

import httpx
import orjson

from tests.samples import image_part, jpeg
from tests.servers import wait_until
from tests.vllm.client import Client, Part

PICTURE: Part = image_part(jpeg(300, 200))

LONG_TOKENS, SHORT_TOKENS = 3_000, 600  # some ten seconds, and two
RUNNING, GENERATED = "vllm:num_requests_running", "vllm:generation_tokens_total"


def test_events_arrive_as_they_are_made(client: Client, vllm: Client) -> None:
    assert in_some_try(lambda: 0 < tokens_made(vllm, lambda: leave_stream(client, events=100)) < SHORT_TOKENS)


def test_a_stream_is_whole_and_its_usage_right(client: Client) -> None:
    with client.stream(PICTURE, max_tokens=20, stream=True, stream_options={"include_usage": True}) as response:
        announced = int(response.headers["x-vlm-edge-vision-tokens"])
        *events, done = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert done == "[DONE]"
    *chunks, last = map(orjson.loads, events)
    plain = client.ask(PICTURE, max_tokens=20)
    assert last["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": announced}
    assert last["usage"]["prompt_tokens"] == plain.usage["prompt_tokens"]
    assert last["usage"]["completion_tokens"] == 20
    assert len("".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)) == 20


def test_a_client_that_leaves_a_stream_ends_its_request(client: Client, vllm: Client) -> None:
    assert in_some_try(lambda: 0 < tokens_made(vllm, lambda: leave_stream(client, events=1)) < SHORT_TOKENS)
    client.ask(PICTURE)


def test_a_client_that_does_not_wait_ends_its_request(client: Client, vllm: Client) -> None:
    assert in_some_try(lambda: 0 < tokens_made(vllm, lambda: leave_early(client)) < SHORT_TOKENS)
    client.ask(PICTURE)


def in_some_try(met: Callable[[], bool]) -> bool:
    """A busy machine holds up this process or another for a second now and then; only a fault does so every time."""
    return any(met() for _ in range(10))


def tokens_made(vllm: Client, leave: Callable[[], None]) -> float:
    """How many tokens vLLM makes for a client that leaves."""
    before = vllm.metric(GENERATED)
    leave()
    wait_until(lambda: vllm.metric(RUNNING) == 0)
    return vllm.metric(GENERATED) - before


def leave_stream(client: Client, *, events: int) -> None:
    with client.stream(PICTURE, max_tokens=LONG_TOKENS, stream=True) as response:
        lines = (line for line in response.iter_lines() if line)
        assert len(list(islice(lines, events))) == events


def leave_early(client: Client) -> None:
    with suppress(httpx.ReadTimeout), client.stream(PICTURE, timeout_s=1, max_tokens=LONG_TOKENS) as response:
        response.read()
