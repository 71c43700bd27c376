"""Who may make the edge work: nobody without a key, where there are keys; and nothing is read of who is refused."""

from typing import Any

import httpx
import pytest
from starlette.types import Message, Scope

from tests.samples import CHAT_PATH, PHONE, chat, image_part, text_part
from tests.servers import Recorder, served
from vlm_edge import EdgeMiddleware, Settings
from vlm_edge.gateway.app import create_app

PHOTO = chat(text_part(), image_part(PHONE.read_bytes()))
JSON = {"content-type": "application/json"}
KEYED = Settings(api_keys=("sk-one", "sk-zwei-ä"))

BEARING = [
    {"authorization": "Bearer sk-one"},
    {"authorization": "bearer   sk-one"},
    {"authorization": "Bearer sk-zwei-ä".encode()},
    {"x-api-key": "sk-one"},
]
NOT_BEARING: list[dict[str, Any]] = [
    {},
    {"authorization": "Bearer sk-on"},
    {"authorization": "Bearer sk-one2"},
    {"authorization": "Bearer"},
    {"authorization": "Basic sk-one"},
    {"authorization": "sk-one"},
    {"x-api-key": ""},
    {"x-api-key": "sk-two"},
]


def post(port: int, path: str = CHAT_PATH, **headers: Any) -> httpx.Response:
    return httpx.post(f"http://127.0.0.1:{port}{path}", content=PHOTO, headers={**JSON, **headers})


@pytest.mark.parametrize("headers", BEARING, ids=repr)
def test_who_bears_a_key_comes_in(headers: dict[str, Any]) -> None:
    app = Recorder()
    with served(EdgeMiddleware(app, settings=KEYED)) as port:
        assert post(port, **headers).status_code == 200
    assert len(app.last.body) < len(PHOTO)


@pytest.mark.parametrize("path", [CHAT_PATH, "/pooling", "/v1/files"])
@pytest.mark.parametrize("headers", NOT_BEARING, ids=repr)
def test_who_bears_none_is_refused(headers: dict[str, Any], path: str) -> None:
    app = Recorder()
    with served(EdgeMiddleware(app, settings=KEYED)) as port:
        response = post(port, path, **headers)
    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
    assert app.received == []


def test_a_refusal_has_the_shape_of_its_dialect() -> None:
    with served(EdgeMiddleware(Recorder(), settings=KEYED)) as port:
        response = post(port, "/v1/messages")
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "authentication_error"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/health"), ("HEAD", "/health"), ("GET", "/metrics"), ("OPTIONS", CHAT_PATH)]
)
def test_probes_and_preflights_bear_no_key(method: str, path: str) -> None:
    with served(EdgeMiddleware(Recorder(), settings=KEYED)) as port:
        assert httpx.request(method, f"http://127.0.0.1:{port}{path}").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/models"), ("DELETE", "/v1/responses/1"), ("POST", "/health")]
)
def test_other_methods_need_a_key_as_well(method: str, path: str) -> None:
    with served(EdgeMiddleware(Recorder(), settings=KEYED)) as port:
        assert httpx.request(method, f"http://127.0.0.1:{port}{path}").status_code == 401


@pytest.mark.anyio
async def test_nothing_is_read_before_the_check() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        assert sent, "the body is asked for before the answer is there"
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": CHAT_PATH, "headers": [(b"content-length", b"9")]}
    await EdgeMiddleware(Recorder(), settings=KEYED)(scope, receive, send)
    assert sent[0]["status"] == 401


@pytest.mark.parametrize(("name", "status"), [("friend", 200), ("foe", 401)])
def test_a_callable_may_check(name: str, status: int) -> None:
    async def is_friend(scope: Scope) -> bool:
        return dict(scope["headers"]).get(b"x-name") == b"friend"

    with served(EdgeMiddleware(Recorder(), check=is_friend)) as port:
        assert post(port, **{"x-name": name}).status_code == status


def test_the_gateway_guards_its_estimates_too() -> None:
    with served(create_app(KEYED)) as port:
        assert post(port, "/edge/estimate").status_code == 401
        assert post(port, "/edge/estimate", **{"x-api-key": "sk-one"}).json()["verdict"] == "accept"
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
