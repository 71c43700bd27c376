"""What a vLLM tells of itself, to a middleware inside it and over HTTP, is what it was started with; and what it counts
when it was started with other numbers than are believed shows which."""

from collections.abc import Iterator

import httpx
import msgspec
import orjson
import pytest

from tests.samples import image_part, png, text_part
from tests.vllm.client import Client, asking
from tests.vllm.environment import Environment
from tests.vllm.service import CONTEXT_TOKENS, MISTAKEN, MODEL, Service, alone
from tests.vllm.telling import MIDDLEWARE, PATH
from vlm_edge import Size
from vlm_edge.checkpoint import Loaded, read
from vlm_edge.drift import Drift, Expected, Usage, drift, explained
from vlm_edge.gateway.backend import Backend
from vlm_edge.models import Models
from vlm_edge.tokens import lookup

MAX_PIXELS = 200_704
KWARGS = {"max_pixels": MAX_PIXELS, "min_pixels": 3_136}
SIZE = Size(640, 480)
PARTS = [text_part("hi"), image_part(png(*SIZE), "image/png")]
MESSAGES = [{"role": "user", "content": PARTS}]


@pytest.fixture(scope="module")
def otherwise(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """vLLM with other numbers than its checkpoint's, which tells them; with an edge in it that has no settings."""
    log = tmp_path_factory.mktemp("otherwise") / "servers.log"
    kwargs = ("--mm-processor-kwargs", orjson.dumps(KWARGS).decode())
    options = ("--middleware", MIDDLEWARE, "--middleware", "vlm_edge.EdgeMiddleware", *kwargs)
    with alone(environment, log, *options) as service:
        yield service


@pytest.fixture(scope="module")
def told(otherwise: Service) -> Loaded:
    return msgspec.json.decode(httpx.get(f"{otherwise.url}{PATH}").content, type=Loaded)


@pytest.fixture
def direct(otherwise: Service) -> Iterator[Client]:
    with httpx.Client(base_url=otherwise.url, timeout=60) as http:
        yield Client(http)


def test_a_middleware_sees_what_vllm_was_started_with(told: Loaded, environment: Environment) -> None:
    assert told.model == told.tokenizer == f"{environment.checkpoint}"
    assert told.max_model_len == CONTEXT_TOKENS
    assert told.mm_processor_kwargs == KWARGS
    assert told.chat_template is None


def test_the_checkpoint_that_is_loaded_can_be_read(told: Loaded, environment: Environment) -> None:
    assert told.folder == told.tokenizer_folder == environment.checkpoint
    checkpoint = read(environment.checkpoint)
    assert checkpoint.config
    assert told.config
    assert told.config["model_type"] == checkpoint.config["model_type"] == "qwen2_5_vl"
    assert checkpoint.preprocessor
    assert checkpoint.preprocessor["max_pixels"] == 12_845_056
    assert checkpoint.tokenizer
    assert checkpoint.chat_template


def test_the_model_that_is_loaded_counts_whatever_it_is_called(told: Loaded) -> None:
    models = Models({}, {}, "refuse")
    models.load(told)
    for name in (MODEL, "", "an-adapter-of-it"):
        served = models.get(name)
        assert (served.model.family, served.model.certainty) == ("qwen2_5_vl", "exact")
        assert served.model.rule == lookup("qwen2_5_vl", **KWARGS)
        assert served.model.max_model_len == CONTEXT_TOKENS
        assert served.tokenizer


def test_an_edge_without_settings_counts_as_the_server_that_it_is_in(direct: Client) -> None:
    answer = direct.ask(PARTS[1])
    assert answer.announced_tokens == answer.multimodal_tokens["image"] == lookup("qwen2_5_vl", **KWARGS).image(SIZE)


def test_and_refuses_what_is_too_long_for_it(direct: Client) -> None:
    answer = direct.post(asking(PARTS[1], text="x" * CONTEXT_TOKENS))
    assert answer.response.status_code == 400
    assert answer.error["code"] == "vision_budget_exceeded"
    assert f"allows {CONTEXT_TOKENS}" in answer.error["message"]


@pytest.mark.anyio
async def test_a_backend_tells_its_models_over_http(otherwise: Service) -> None:
    backend = Backend(otherwise.url, timeout_s=60)
    await backend.open()
    try:
        assert await backend.models() == dict.fromkeys((MODEL, MISTAKEN), CONTEXT_TOKENS)
    finally:
        await backend.close()


@pytest.mark.anyio
async def test_a_backend_counts_a_prompt_as_its_usage_does(otherwise: Service, direct: Client) -> None:
    answer = direct.post(asking(PARTS[1], text="hi"))
    backend = Backend(otherwise.url, timeout_s=60)
    await backend.open()
    try:
        assert await backend.count(MODEL, MESSAGES) == answer.usage["prompt_tokens"]
        assert await backend.count("no-such-model", MESSAGES) is None
    finally:
        await backend.close()


def test_a_server_that_is_set_otherwise_shows_it(direct: Client) -> None:
    believed = lookup("qwen2_5_vl")
    answer = direct.ask(PARTS[1])
    usage = Usage(answer.usage["prompt_tokens"], answer.multimodal_tokens)
    found = drift(Expected(vision_tokens=believed.image(SIZE)), usage)
    assert found == Drift("vision", lookup("qwen2_5_vl", max_pixels=MAX_PIXELS).image(SIZE), believed.image(SIZE))
    first, last = map(int, explained(believed, [SIZE], found.found).split()[2:5:2])
    assert first <= MAX_PIXELS <= last
