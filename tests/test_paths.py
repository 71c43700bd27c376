"""Paths, spelled to be one thing to the edge and another to what stands behind it."""

import json
from typing import Any

import httpx
import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from tests.samples import CHAT_PATH, chat, data_url, image_part, jpeg, opened, sent_picture
from tests.servers import Recorder, connected, gateway_before, read_all, served
from vlm_edge import EdgeMiddleware, Settings
from vlm_edge.access import bears_key
from vlm_edge.pictures import Limits
from vlm_edge.requests.endpoints import BATCH_LINE, ENDPOINTS

PHOTO = chat(image_part(jpeg(2_000, 1_000)))
LOCAL_FILE = chat({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}})
# A local file wherever an endpoint may have a picture.
PART = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}, "url": "file:///etc/passwd"}
MESSAGE = {"role": "user", "content": [PART]}
FILES = orjson.dumps({"messages": [MESSAGE], "documents": [MESSAGE], "content_parts": [PART]})
JSON = {"content-type": "application/json"}


def request(target: str, body: bytes = LOCAL_FILE) -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def status(port: int, target: str, body: bytes = LOCAL_FILE) -> int:
    with connected(port) as connection:
        connection.sendall(request(target, body))
        return int(read_all(connection).split()[1])


def routed() -> Starlette:
    """An app that routes as vLLM does, and answers 200 wherever a request arrives."""

    async def answer(_: Request) -> JSONResponse:
        return JSONResponse({})

    paths = [path for path in ENDPOINTS if path != BATCH_LINE]
    return Starlette(routes=[Route(path, answer, methods=["POST"]) for path in paths])


@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("end", ["%0a", "%0A", "%0d%0a", "%0d", "%00", "%09", "%7f"])
def test_no_spelling_of_a_path_reaches_an_endpoint_unseen(end: str, http: str) -> None:
    with served(EdgeMiddleware(routed(), settings=Settings()), http=http) as port:
        for path in (CHAT_PATH, "/v1/messages", "/pooling"):
            assert status(port, path + end) == 400


@pytest.mark.parametrize("target", ["/v1/chat%2Fcompletions", "/%761/chat/completions", f"http://x{CHAT_PATH}"])
def test_an_endpoint_is_known_in_every_spelling_that_routers_know(target: str) -> None:
    with served(EdgeMiddleware(routed(), settings=Settings())) as port:
        assert status(port, target) == 400


@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize(
    "line",
    [
        f"POST {CHAT_PATH}#a",
        f"post {CHAT_PATH}",
        f"Post {CHAT_PATH}",
        "POST /v1/chat//completions",
        "POST //v1/chat/completions",
        "POST /v1/./chat/completions/",
        "POST /v1/x/../chat/completions;a=b",
        "POST /x/../pooling/",
    ],
)
def test_what_backends_put_right_is_read_as_they_do(line: str, http: str) -> None:
    backend = Recorder()
    with served(backend) as behind, gateway_before(behind, http=http) as port, connected(port) as connection:
        connection.sendall(request("X").replace(b"POST X", line.encode()))
        assert read_all(connection).startswith(b"HTTP/1.1 400")
    assert backend.received == []


# Mounted


@pytest.mark.parametrize("prefix", ["/llm", "/a/b", "/v1/proxy", "/"])
@pytest.mark.parametrize("path", [CHAT_PATH, "/v1/score", "/v2/rerank", "/inference/v1/generate", "/cohere/v2/chat"])
def test_an_endpoint_below_another_path_is_known(path: str, prefix: str) -> None:
    with served(EdgeMiddleware(Recorder(), settings=Settings())) as port:
        assert status(port, prefix + path, FILES) == 400


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-8-sig"])
def test_what_another_parser_reads_there_is_not(encoding: str) -> None:
    app = Recorder()
    with served(EdgeMiddleware(app, settings=Settings())) as port:
        assert status(port, f"/llm{CHAT_PATH}", b" " * 4 + FILES.decode().encode(encoding)) == 400
        assert status(port, f"/llm{CHAT_PATH}", FILES.decode().encode(encoding)) == 400
    assert app.received == []


@pytest.mark.parametrize("body", [b"", b"a text", b"[1]"])
def test_what_cannot_be_read_there_is_another_apps(body: bytes) -> None:
    app = Recorder()
    with served(EdgeMiddleware(app, settings=Settings())) as port:
        assert status(port, "/survey/v1/responses", body) == 200
        assert status(port, "/v1/responses", body) == 400
    assert [received.body for received in app.received] == [body]


def test_the_middleware_outside_of_a_mounted_app_prepares_for_it() -> None:
    app = Recorder()
    outer = EdgeMiddleware(Starlette(routes=[Mount("/llm", app)]), settings=Settings())
    with served(outer) as port:
        httpx.post(f"http://127.0.0.1:{port}/llm{CHAT_PATH}", content=PHOTO, headers=JSON)
    assert opened(sent_picture(app.last.body)).size == (1008, 504)


def test_a_body_is_no_form_because_it_is_declared_one() -> None:
    app, headers = Recorder(), {"content-type": "multipart/form-data; boundary=x"}
    with served(EdgeMiddleware(app, settings=Settings())) as port:
        assert httpx.post(f"http://127.0.0.1:{port}{CHAT_PATH}", content=FILES, headers=headers).status_code == 400


@pytest.mark.parametrize("path", ["/classify", "/score", "/tokenize", CHAT_PATH])
def test_a_form_for_a_path_of_the_same_name_passes(path: str) -> None:
    app, files = Recorder(), {"file": ("a.jpg", jpeg(60, 60), "image/jpeg")}
    with served(EdgeMiddleware(app, settings=Settings())) as port:
        assert httpx.post(f"http://127.0.0.1:{port}{path}", files=files).status_code == 200
    assert jpeg(60, 60) in app.last.body


# Nested


def nested(outer: Settings, inner: Settings, app: Recorder, **options: Any) -> EdgeMiddleware:
    return EdgeMiddleware(EdgeMiddleware(app, settings=inner, **options), settings=outer)


def test_an_inner_instance_asks_for_its_own_keys() -> None:
    app = Recorder()
    with served(nested(Settings(), Settings(api_keys=("sk-1",)), app)) as port:
        assert status(port, CHAT_PATH, PHOTO) == 401
    with served(nested(Settings(), Settings(), app, check=bears_key(["sk-1"]))) as port:
        assert status(port, CHAT_PATH, PHOTO) == 401
    assert app.received == []


def test_an_inner_instance_keeps_its_own_limits() -> None:
    app = Recorder()
    with served(nested(Settings(), Settings(limits=Limits(max_images=1)), app)) as port:
        assert status(port, CHAT_PATH, PHOTO) == 200
        assert status(port, CHAT_PATH, chat(*[image_part(jpeg(60, 60))] * 2)) == 400
    assert len(app.received) == 1


def test_of_two_instances_the_inner_one_reports_from_what_came_to_the_outer() -> None:
    app = Recorder()
    with served(nested(Settings(), Settings(default_profile="thumbnail"), app)) as port:
        headers = httpx.post(f"http://127.0.0.1:{port}{CHAT_PATH}", content=PHOTO, headers=JSON).headers
    width, height = opened(sent_picture(app.last.body)).size
    assert headers.get_list("x-vlm-edge-profile") == ["thumbnail"]
    assert headers.get_list("x-vlm-edge-scale") == [f"{width / 2_000:.4f}"]
    assert headers.get_list("x-vlm-edge-vision-tokens") == [f"{width * height // 28**2}"]
    report = app.last.scope["vlm_edge.report"]
    assert (report.bytes_before, report.pictures[0].size_before) == (len(PHOTO), (2_000, 1_000))


def test_a_gateway_reports_of_what_came_to_it_whatever_its_backend_tells() -> None:
    backend = EdgeMiddleware(Recorder(), settings=Settings())
    with served(backend) as behind, gateway_before(behind) as port:
        headers = httpx.post(f"http://127.0.0.1:{port}{CHAT_PATH}", content=PHOTO, headers=JSON).headers
    assert headers.get_list("x-vlm-edge-scale") == ["0.5040"]
    assert headers.get_list("x-vlm-edge-media") == ["images=1; resized=1"]


# Out of the gateway


@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_gateway_asks_its_backend_and_nobody_else(method: str, http: str) -> None:
    backend, stranger = Recorder(), Recorder()
    with served(backend) as behind, served(stranger) as elsewhere, gateway_before(behind, http=http) as port:
        for target in (
            f"/@127.0.0.1:{elsewhere}/v1/models",
            f"/@127.0.0.1:{elsewhere}/v1/models%0a",
            f"/0@127.0.0.1:{elsewhere}/%0a",
            f"//127.0.0.1:{elsewhere}/v1/models",
            f"http://127.0.0.1:{elsewhere}/v1/models",
            f"/%0a@127.0.0.1:{elsewhere}/",
            "/%0a",
        ):
            with connected(port) as connection:
                connection.sendall(
                    f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-API-Key: sk\r\n"
                    "Content-Length: 0\r\nAuthorization: Bearer sk\r\n\r\n".encode()
                )
                assert read_all(connection).startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
    assert stranger.received == []
    asked = [f"/@127.0.0.1:{elsewhere}/v1/models", f"//127.0.0.1:{elsewhere}/v1/models"]
    whole = ["/v1/models"] if http == "httptools" else []  # h11 leaves a whole URL as it is, and it is refused
    assert [received.target.decode() for received in backend.received] == asked + whole


def test_own_paths_are_the_gateways_and_all_others_the_backends() -> None:
    backend = Recorder()
    with served(backend) as behind, gateway_before(behind) as port:
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/health").json()["status"] == "ok"
        for path in ("/", "/v1/models/", "/healthz", "/edge", "/metrics/x"):
            assert httpx.get(url + path).content == backend.body
    assert [received.target.decode() for received in backend.received] == [
        "/",
        "/v1/models/",
        "/healthz",
        "/edge",
        "/metrics/x",
    ]


# Websockets


@pytest.mark.anyio
@pytest.mark.parametrize(("headers", "let_in"), [([], False), ([(b"authorization", b"Bearer sk-1")], True)])
async def test_a_websocket_needs_a_key_as_well(headers: list[tuple[bytes, bytes]], let_in: bool) -> None:
    reached, sent = [], []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["type"])

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> Any:
        raise AssertionError("nothing is to be read")

    scope = {"type": "websocket", "path": "/v1/realtime", "headers": headers}
    await EdgeMiddleware(app, settings=Settings(api_keys=("sk-1",)))(scope, receive, send)
    assert (reached, sent) == ((["websocket"], []) if let_in else ([], ["websocket.close"]))


# Words of clients


@pytest.mark.parametrize("key", ["x\nFAKE LOG LINE", "A" * 5_000, "\ud800", "é"])
def test_no_word_of_a_client_is_told_as_a_place(key: str, caplog: pytest.LogCaptureFixture) -> None:
    body = json.dumps({"token_ids": [1], "features": {"mm_hashes": {key: ["a"]}}}).encode()
    with caplog.at_level("INFO"), served(EdgeMiddleware(Recorder(), settings=Settings())) as port:
        response = httpx.post(f"http://127.0.0.1:{port}/inference/v1/generate", content=body, headers=JSON)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "features.mm_hashes")
    assert "FAKE" not in caplog.text
    assert "AAAA" not in caplog.text + response.text


def test_a_data_url_behind_much_text_is_seen_or_the_body_refused() -> None:
    with served(EdgeMiddleware(Recorder(), settings=Settings(limits=Limits(max_text_bytes=100_000)))) as port:
        for words in ("word " * 1_000, "word " * 100_000):
            body = b'{"text": "%s", "url": "%s%s"}' % (words.encode(), b" " * 600, data_url(jpeg(8, 8)).encode())
            assert status(port, "/v1/files", body) == (400 if len(words) < 100_000 else 413)
