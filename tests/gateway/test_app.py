"""The gateway as a whole: our own paths, and pictures on their way to the backend."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import openai
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Message, Receive, Scope, Send

import vlm_edge
from tests.samples import CHAT_PATH, PHONE, chat, data_url, image_part, jpeg, opened, png, sent_picture, text_part
from tests.servers import (
    PATIENCE_S,
    Recorder,
    connected,
    gateway_before,
    post_head,
    raw_backend,
    read_all,
    read_request,
    served,
)
from vlm_edge import Settings
from vlm_edge.budget import BudgetSettings
from vlm_edge.fetch import FetchSettings
from vlm_edge.gateway.app import create_app
from vlm_edge.gateway.config import GatewaySettings
from vlm_edge.pictures import Limits

PHOTO = chat(text_part(), image_part(PHONE.read_bytes()))
# 3264x2448 is 117 x 87 cells of 28 pixels; inside 1024 pixels it is 36 x 27 of them.
TOKENS_BEFORE, TOKENS = 117 * 87, 36 * 27
MODELS = b'{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"vllm"}]}'


@pytest.fixture(scope="module")
def backend() -> Recorder:
    return Recorder(body=MODELS)


@pytest.fixture(scope="module")
def url(backend: Recorder) -> Iterator[str]:
    with served(backend) as behind, gateway_before(behind) as port:
        yield f"http://127.0.0.1:{port}"


def post(url: str, body: bytes, **headers: str) -> httpx.Response:
    return httpx.post(url, content=body, headers=headers, timeout=PATIENCE_S)


def test_a_picture_reaches_the_backend_resized(url: str, backend: Recorder) -> None:
    response = post(url + CHAT_PATH, PHOTO)
    assert opened(sent_picture(backend.last.body, part=1)).size == (1008, 756)
    assert backend.last.header(b"content-length") == [b"%d" % len(backend.last.body)]
    assert backend.last.header(b"x-modality-type") == [b"multi_modal"]
    assert response.headers["x-vlm-edge-vision-tokens"] == f"{TOKENS}"


def test_a_chunked_picture_reaches_the_backend_with_a_length(url: str, backend: Recorder) -> None:
    def pieces() -> Iterator[bytes]:
        yield PHOTO[:1_000]
        yield PHOTO[1_000:]

    httpx.post(url + CHAT_PATH, content=pieces(), timeout=PATIENCE_S)
    assert opened(sent_picture(backend.last.body, part=1)).size == (1008, 756)
    assert backend.last.header(b"content-length") == [b"%d" % len(backend.last.body)]
    assert backend.last.header(b"transfer-encoding") == []


def test_a_text_request_reaches_the_backend_byte_for_byte(url: str, backend: Recorder) -> None:
    body = '{ "messages":[ {"role":"user","content":"Grüße\\r\\n"}],\r\n"seed":1.0}'.encode()
    response = post(url + CHAT_PATH, body)
    assert backend.last.body == body
    assert backend.last.header(b"x-modality-type") == [b"text_only"]
    assert not [name for name in response.headers if name.startswith("x-vlm-edge")]


def test_a_refusal_does_not_reach_the_backend(url: str, backend: Recorder) -> None:
    before = len(backend.received)
    response = post(url + CHAT_PATH, chat(image_part(b"<html>")))
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_media")
    assert response.json()["error"]["param"] == "messages[0].content[0]"
    assert len(backend.received) == before


def test_other_paths_are_the_backends(url: str, backend: Recorder) -> None:
    assert httpx.get(f"{url}/v1/models").content == MODELS
    assert post(f"{url}/v1/audio/speech", PHOTO, **{"Content-Type": "text/plain"}).status_code == 200
    assert backend.last.body == PHOTO


def test_openais_own_client_reads_answers_and_refusals(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-1", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["m"]
        part: Any = image_part(b"<svg/>")
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": [part]}])
    assert refused.value.code == "unsupported_media"
    assert refused.value.param == "messages[0].content[0]"
    assert refused.value.type == "invalid_request_error"


def test_health_tells_the_version_and_asks_no_backend(url: str, backend: Recorder) -> None:
    before = len(backend.received)
    assert httpx.get(f"{url}/health").json() == {"status": "ok", "version": vlm_edge.__version__}
    assert httpx.head(f"{url}/health").status_code == 200
    assert len(backend.received) == before


def test_metrics_count_what_passed() -> None:
    backend = Recorder()
    with served(backend) as behind, gateway_before(behind) as port:
        url = f"http://127.0.0.1:{port}"
        empty = metrics_of(url)
        post(url + CHAT_PATH, PHOTO)
        post(url + CHAT_PATH, b"{")
        found = metrics_of(url)
    assert {name: value for name, value in empty.items() if value} == {}
    assert found["vlm_edge_requests_total", "standard"] == 1
    assert found["vlm_edge_refusals_total", "invalid_json"] == 1
    assert found["vlm_edge_vision_tokens_total", "before"] == TOKENS_BEFORE
    assert found["vlm_edge_vision_tokens_total", "after"] == TOKENS
    assert found["vlm_edge_picture_bytes_total", "before"] == PHONE.stat().st_size
    assert found["vlm_edge_picture_bytes_total", "after"] == len(sent_picture(backend.last.body, part=1))


def metrics_of(url: str) -> dict[tuple[str, ...], float]:
    """The counters, by name and the value of their label."""
    response = httpx.get(f"{url}/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
        if sample.name.endswith("_total")
    }


# What a request would cost


def test_an_estimate_tells_the_cost_before_and_after(url: str, backend: Recorder) -> None:
    before = len(backend.received)
    answer = post(f"{url}/edge/estimate", PHOTO).json()
    bound = answer["text_tokens"]  # which has a test of its own
    assert len(b"What is this?") <= bound <= 600
    assert answer == {
        "model": "Qwen/Qwen2.5-VL-7B-Instruct",
        "family": "qwen2_5_vl",
        "exact": True,
        "certainty": "exact",
        "profile": "standard",
        "tokens": TOKENS,
        "text_tokens": bound,
        "text_exact": False,
        "reserved_tokens": 0,
        "max_model_len": None,
        "allowed": Limits().max_request_tokens,
        "parts": [
            {
                "param": "messages[0].content[1]",
                "page": 1,
                "pages": 1,
                "media_type": "image/jpeg",
                "action": "resized",
                "size_before": [3264, 2448],
                "size": [1008, 756],
                "tokens_before": TOKENS_BEFORE,
                "tokens": TOKENS,
                "fitted": False,
            }
        ],
        "videos": [],
        "left_out": 0,
        "verdict": "accept",
        "error": None,
    }
    assert len(backend.received) == before


def test_an_estimate_is_what_the_request_then_costs(url: str) -> None:
    body = chat(image_part(jpeg(1999, 333)), image_part(png(333, 1999), "image/png"), image_part(jpeg(500, 500)))
    estimated = post(f"{url}/edge/estimate", body, **{"X-VLM-Edge-Profile": "document"}).json()
    sent = post(url + CHAT_PATH, body, **{"X-VLM-Edge-Profile": "document"})
    assert sent.headers["x-vlm-edge-vision-tokens"] == f"{estimated['tokens']}"
    assert estimated["profile"] == "document"


def test_an_estimate_of_what_costs_too_much_is_a_verdict_and_no_refusal() -> None:
    photo = image_part(PHONE.read_bytes())
    with estimating(Limits(max_request_tokens=TOKENS)) as url:
        assert post(url, chat(photo)).json()["verdict"] == "accept"
        response = post(url, chat(photo, photo))
    answer = response.json()
    assert (response.status_code, answer["verdict"]) == (200, "refuse")
    assert (answer["tokens"], answer["allowed"]) == (2 * TOKENS, TOKENS)
    assert answer["error"]["code"] == "vision_budget_exceeded"
    assert [part["param"] for part in answer["parts"]] == ["messages[0].content[0]", "messages[0].content[1]"]


def test_an_estimate_of_a_text_is_nothing(url: str) -> None:
    assert post(f"{url}/edge/estimate", chat(text_part())).json() == {"tokens": 0, "parts": [], "verdict": "accept"}


def test_an_estimate_calls_itself_inexact_for_a_model_it_does_not_know(url: str) -> None:
    answer = post(f"{url}/edge/estimate", chat(image_part(jpeg(280, 280)), model="who-knows")).json()
    assert answer["exact"] is False


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b"", 400, "invalid_json"),
        (chat(image_part(b"BM")), 400, "unsupported_media"),
        (chat(*[image_part(jpeg(8, 8))] * 21), 400, "too_many_images"),
        (chat({"type": "image_url", "image_url": {"url": "https://127.0.0.1:1/a.png"}}), 400, "remote_media_refused"),
    ],
)
def test_an_estimate_of_what_cannot_be_read_is_refused(url: str, body: bytes, status: int, code: str) -> None:
    response = post(f"{url}/edge/estimate", body)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_an_estimate_of_an_unknown_profile_or_path_is_refused(url: str) -> None:
    response = post(f"{url}/edge/estimate", PHOTO, **{"X-VLM-Edge-Profile": "huge"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unknown_profile")
    response = post(f"{url}/edge/estimate?path=/v1/nothing", PHOTO)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_path")


def test_an_estimate_fetches_what_would_be_fetched() -> None:
    with served(Recorder(body=PHONE.read_bytes())) as port:
        fetch = FetchSettings(hosts=(f"127.0.0.1:{port}",), private_addresses=True)
        with served(create_app(Settings(remote="fetch", fetch=fetch))) as edge:
            part = {"type": "image_url", "image_url": {"url": f"http://127.0.0.1:{port}/a.jpg"}}
            estimate = post(f"http://127.0.0.1:{edge}/edge/estimate", chat(part)).json()
    assert (estimate["verdict"], estimate["tokens"]) == ("accept", 36 * 27)


def test_an_estimate_reads_no_more_than_the_limit() -> None:
    with estimating(Limits(max_body_bytes=1_000)) as url:
        response = post(url, PHOTO)
        packed = post(url, b"x", **{"Content-Encoding": "br"})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")
    assert (packed.status_code, packed.json()["error"]["code"]) == (415, "unsupported_encoding")


@contextmanager
def estimating(limits: Limits) -> Iterator[str]:
    with served(create_app(Settings(limits=limits))) as port:
        yield f"http://127.0.0.1:{port}/edge/estimate"


# What the backend tells


@contextmanager
def knowing(max_model_len: int, **settings: Any) -> Iterator[tuple[str, Recorder]]:
    """A gateway, and its backend, which tells how long the context of its model is."""
    card = {"id": "Qwen/Qwen2.5-VL-7B-Instruct", "max_model_len": max_model_len}
    app = Recorder()
    answers = {
        "/v1/models": Recorder(body=orjson.dumps({"object": "list", "data": [card]})),
        "/tokenize": Recorder(body=b'{"count":204,"max_model_len":9,"tokens":[]}'),
    }

    async def backend(scope: Scope, receive: Receive, send: Send) -> None:
        await answers.get(scope.get("path", ""), app)(scope, receive, send)

    with served(backend) as behind:
        gateway = GatewaySettings(backend=f"http://127.0.0.1:{behind}")
        with served(create_app(Settings(gateway=gateway, **settings))) as port:
            yield f"http://127.0.0.1:{port}", app


def test_what_is_too_long_for_the_model_is_refused_before_the_backend_sees_it() -> None:
    with knowing(TOKENS) as (url, backend):
        response = post(url + CHAT_PATH, PHOTO)
        estimate = post(f"{url}/edge/estimate", PHOTO).json()
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "vision_budget_exceeded")
    assert f"allows {TOKENS}" in error["message"]
    assert (estimate["verdict"], estimate["max_model_len"], estimate["reserved_tokens"]) == ("refuse", TOKENS, 256)
    assert backend.received == []


def test_or_it_is_made_smaller_until_it_fits() -> None:
    with knowing(1_000, budget=BudgetSettings(on_exceed="fit")) as (url, backend):
        response = post(url + CHAT_PATH, PHOTO)
    tokens = int(response.headers["x-vlm-edge-vision-tokens"])
    assert tokens < 1_000 - 256
    width, height = opened(sent_picture(backend.last.body, part=1)).size
    assert width * height == tokens * 28 * 28


def test_the_context_of_all_models_is_that_of_those_that_nobody_tells() -> None:
    budget = BudgetSettings(max_model_len=1_000)
    with knowing(100_000, budget=budget) as (url, _):
        known = post(f"{url}/edge/estimate", PHOTO).json()
        other = post(f"{url}/edge/estimate", chat(image_part(jpeg(280, 280)), model="qwen2-vl-other")).json()
    assert (known["max_model_len"], other["max_model_len"]) == (100_000, 1_000)


LONG_TEXT = chat(text_part("word " * 200), image_part(PHONE.read_bytes()))  # at most a thousand tokens and some


@pytest.mark.parametrize(("count_text", "least", "most"), [("bound", 0, 700), ("server", 700, TOKENS)])
def test_the_backend_is_asked_for_the_tokens_of_text_where_its_bound_is_too_coarse(
    count_text: Literal["bound", "server"], least: int, most: int
) -> None:
    """It counts 204 tokens, of which four are those of a small picture in the place of the large one."""
    budget = BudgetSettings(on_exceed="fit", count_text=count_text, reserve_tokens=100)
    with knowing(1_900, budget=budget) as (url, _):
        estimate = post(f"{url}/edge/estimate", LONG_TEXT).json()
    assert estimate["text_exact"] is (count_text == "server")
    assert estimate["text_tokens"] == 200 or count_text == "bound"
    assert least < estimate["tokens"] <= most


# The whole


def test_a_413_is_read_by_a_client_that_uploads_slowly() -> None:
    settings = Settings(limits=Limits(max_body_bytes=1_000_000))
    with served(create_app(settings)) as port, connected(port) as connection:
        connection.sendall(post_head(CHAT_PATH, "Content-Length: 10000000"))
        for _ in range(20):
            connection.sendall(b"x" * 500_000)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert orjson.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "body_too_large"


def test_a_picture_that_goes_along_with_a_remote_one_is_still_prepared() -> None:
    backend, remote = Recorder(), {"type": "image_url", "image_url": {"url": "https://127.0.0.1:1/a.png"}}
    with served(backend) as behind:
        gateway = GatewaySettings(backend=f"http://127.0.0.1:{behind}", ask_backend=False)
        with served(create_app(Settings(gateway=gateway, remote="pass"))) as port:
            post(f"http://127.0.0.1:{port}{CHAT_PATH}", chat(remote, image_part(PHONE.read_bytes())))
    assert opened(sent_picture(backend.last.body, part=1)).size == (1008, 756)
    assert backend.last.header(b"x-modality-type") == [b"multi_modal"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://127.0.0.1:1/a.png"}},
        {"type": "video_url", "video_url": {"url": "https://127.0.0.1:1/a.mp4"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ],
    ids=["remote picture", "video", "audio"],
)
def test_media_that_pass_unprepared_are_media_all_the_same(part: dict[str, Any]) -> None:
    """A router that goes by the header would send them to a model that cannot see."""
    backend = Recorder()
    with served(backend) as behind:
        gateway = GatewaySettings(backend=f"http://127.0.0.1:{behind}", ask_backend=False)
        with served(create_app(Settings(gateway=gateway, remote="pass"))) as port:
            post(f"http://127.0.0.1:{port}{CHAT_PATH}", chat(part))
    assert backend.last.body == chat(part)
    assert backend.last.header(b"x-modality-type") == [b"multi_modal"]


def test_a_failing_backend_still_says_what_was_done_to_the_picture() -> None:
    def fail(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 500 Oops\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")

    with raw_backend(fail) as behind, gateway_before(behind) as port:
        response = post(f"http://127.0.0.1:{port}{CHAT_PATH}", PHOTO)
    assert response.status_code == 500
    assert response.headers["x-vlm-edge-media"] == "images=1; resized=1"


def test_settings_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Recorder()
    with served(backend) as behind:
        file = tmp_path / "edge.toml"
        file.write_text(f'default_profile = "thumbnail"\n[gateway]\nbackend = "http://127.0.0.1:{behind}"\n')
        monkeypatch.setenv("VLM_EDGE_CONFIG", str(file))
        with served(create_app()) as port:
            post(f"http://127.0.0.1:{port}{CHAT_PATH}", PHOTO)
    assert opened(sent_picture(backend.last.body, part=1)).size == (448, 336)


@pytest.mark.anyio
async def test_a_websocket_is_turned_away() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1/realtime", "headers": [], "query_string": b""}
    await create_app(Settings())(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_the_same_picture_reaches_the_backend_as_the_same_bytes(url: str, backend: Recorder) -> None:
    """vLLM's caches are keyed on them."""
    for _ in range(2):
        post(url + CHAT_PATH, PHOTO)
    assert backend.received[-1].body == backend.received[-2].body


def test_what_came_as_a_data_url_leaves_as_one(url: str, backend: Recorder) -> None:
    file = png(300, 200)
    odd = {"type": "image_url", "image_url": {"url": data_url(file, "IMAGE/jpg;name=a;charset=utf-8")}}
    post(url + CHAT_PATH, chat(odd))
    [part] = orjson.loads(backend.last.body)["messages"][0]["content"]
    assert part["image_url"]["url"] == data_url(file, "image/png")


def test_a_model_name_that_is_no_text_is_estimated_as_well(url: str) -> None:
    body = PHOTO.replace(b'"model":"', b'"model":"\\ud83d', 1)
    response = post(f"{url}/edge/estimate", body)
    assert response.status_code == 200
    assert response.json()["model"].startswith("?")
