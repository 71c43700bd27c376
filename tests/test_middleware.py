"""The middleware in front of real apps: in process where only ASGI matters, under uvicorn where the wire does."""

import asyncio
import base64
import gzip
import logging
import re
import struct
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.samples import (
    CHAT_PATH,
    PHONE,
    chat,
    data_url,
    encoded,
    image_part,
    jpeg,
    opened,
    picture,
    png,
    sent_picture,
    text_part,
)
from tests.servers import (
    PATIENCE_S,
    Recorder,
    connected,
    post_head,
    read_all,
    read_until,
    served,
    wait_until,
)
from vlm_edge import Edge, EdgeError, EdgeMiddleware, Settings
from vlm_edge.pictures import Limits
from vlm_edge.report import Report
from vlm_edge.upload import UploadSettings
from vlm_edge.workers import Job, WorkerSettings

pytestmark = pytest.mark.anyio

PHOTO = chat(text_part(), image_part(PHONE.read_bytes()))
# 3264x2448 inside 1024 pixels, in cells of 28: 36 x 27 of them.
PHOTO_SIZE, PHOTO_TOKENS = (1008, 756), 972
TEXT = (
    '{"model": "m",\r\n  "messages": [{"role": "user", "content": "Grüße, 你好\\r\\n"}],\r\n "seed": 1.0}\r\n'.encode()
)
JSON = {"content-type": "application/json"}
SERVERS = ["h11", "httptools"]

BASE64_RUN = re.compile(r"[A-Za-z0-9+/=_-]{101,}")


def edged(app: ASGIApp, **settings: Any) -> EdgeMiddleware:
    return EdgeMiddleware(app, settings=Settings(**settings))


@asynccontextmanager
async def client_of(app: ASGIApp, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls the app in this process."""
    transport = httpx.ASGITransport(app, **options)
    async with httpx.AsyncClient(transport=transport, base_url="http://edge") as client:
        yield client


def post(port: int, body: Any, path: str = CHAT_PATH, headers: dict[str, str] | None = None) -> httpx.Response:
    url = f"http://127.0.0.1:{port}{path}"
    return httpx.post(url, content=body, headers=JSON | (headers or {}), timeout=PATIENCE_S)


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of a response that has exactly the shape of OpenAI's."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


# What reaches the app


@pytest.mark.parametrize("http", SERVERS)
def test_a_picture_reaches_the_app_resized(http: str) -> None:
    app = Recorder()
    with served(edged(app), http=http) as port:
        response = post(port, PHOTO)
    assert response.content == app.body
    sent = opened(sent_picture(app.last.body, part=1))
    assert (sent.format, sent.size) == ("JPEG", PHOTO_SIZE)
    assert app.last.header(b"content-length") == [b"%d" % len(app.last.body)]


def test_the_app_finds_the_report_in_its_scope() -> None:
    app = Recorder()
    with served(edged(app)) as port:
        post(port, PHOTO)
    report = app.last.scope["vlm_edge.report"]
    assert (report.profile, report.tokens, report.exact) == ("standard", PHOTO_TOKENS, True)
    assert (report.bytes_before, report.bytes_after) == (len(PHOTO), len(app.last.body))
    [part] = report.pictures
    assert (part.place, part.action) == ("messages[0].content[1]", "resized")
    assert (part.size_before, part.size_after) == ((3264, 2448), PHOTO_SIZE)
    assert part.bytes_before == PHONE.stat().st_size
    assert part.bytes_after == len(sent_picture(app.last.body, part=1))


def test_the_response_says_what_was_done() -> None:
    small = image_part(jpeg(336, 336))
    with served(edged(Recorder(headers=[(b"x-own", b"1")]))) as port:
        headers = post(port, chat(image_part(PHONE.read_bytes()), small)).headers
    assert headers["x-own"] == "1"
    assert headers["x-vlm-edge-profile"] == "standard"
    assert headers["x-vlm-edge-media"] == "images=2; resized=1, kept=1"
    assert headers["x-vlm-edge-vision-tokens"] == f"{PHOTO_TOKENS + 12 * 12}"
    assert headers["x-vlm-edge-scale"] == f"{1008 / 3264:.4f}, 1.0000"
    assert re.fullmatch(r"decide;dur=\d+\.\d, prepare;dur=\d+\.\d", headers["server-timing"])


def test_tokens_of_an_unknown_model_are_called_an_estimate() -> None:
    with served(edged(Recorder())) as port:
        headers = post(port, chat(image_part(jpeg(336, 336)), model="who-knows")).headers
    assert headers["x-vlm-edge-vision-tokens"].endswith("; estimate")


@pytest.mark.parametrize("http", SERVERS)
def test_a_text_request_passes_byte_for_byte_with_its_headers(http: str) -> None:
    """It is compared with what the same app receives without the middleware."""
    bare, behind = Recorder(), Recorder()
    head = post_head(
        CHAT_PATH, f"Content-Length: {len(TEXT)}", "X-Twice: 1", "x-twice: 2", "X-Odd:   spaced  ", "Connection: close"
    )
    for app, asgi in ((bare, bare), (behind, edged(behind))):
        with served(asgi, http=http) as port, connected(port) as connection:
            connection.sendall(head + TEXT)
            answer = read_all(connection)
        assert b"x-vlm-edge" not in answer.lower()
        assert len(app.received) == 1
    assert behind.last.body == TEXT
    assert behind.last.headers == bare.last.headers
    assert "vlm_edge.report" not in behind.last.scope


async def test_around_a_picture_every_byte_stays_as_it_was() -> None:
    app = Recorder()
    before = '{"model" : "Grüße",\r\n\t"seed": 16559892803651312311122, "messages": [{"role":"user", "content":['
    part = '{"type":"image_url","image_url":{"url":"%s"}}'
    after = ', {"type":"text","text":"\\ud83d 你好\\r\\n"}]}]}\r\n'
    async with client_of(edged(app)) as client:
        await client.post(CHAT_PATH, content=(before + part % data_url(jpeg(2000, 1000)) + after).encode())
    body = app.last.body
    assert body.startswith(before.encode())
    assert body.endswith(after.encode())
    url = orjson.loads(body[len(before.encode()) : -len(after.encode())])["image_url"]["url"]
    sent = base64.b64decode(url.removeprefix("data:image/jpeg;base64,"), validate=True)
    assert opened(sent).size == (1008, 504)
    assert app.last.header(b"content-length") == [b"%d" % len(body)]


async def test_a_picture_inside_its_profile_passes_byte_for_byte() -> None:
    app, body = Recorder(), chat(image_part(jpeg(640, 480)))
    async with client_of(edged(app)) as client:
        response = await client.post(CHAT_PATH, content=body)
    assert app.last.body == body
    assert response.headers["x-vlm-edge-media"] == "images=1; kept=1"


async def test_a_mislabelled_picture_is_sent_on_under_its_true_type() -> None:
    app, file = Recorder(), png(400, 300)
    async with client_of(edged(app)) as client:
        await client.post(CHAT_PATH, content=chat(image_part(file, "image/jpeg")))
    [part] = orjson.loads(app.last.body)["messages"][0]["content"]
    assert part["image_url"]["url"] == data_url(file, "image/png")


async def test_the_profile_header_chooses_the_profile() -> None:
    app = Recorder()
    async with client_of(edged(app)) as client:
        response = await client.post(CHAT_PATH, content=PHOTO, headers={"X-VLM-Edge-Profile": "thumbnail"})
    assert opened(sent_picture(app.last.body, part=1)).size == (448, 336)
    assert response.headers["x-vlm-edge-profile"] == "thumbnail"


def test_a_chunked_upload_reaches_the_app_with_a_content_length() -> None:
    app = Recorder()

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(PHOTO), 100_000):
            yield PHOTO[at : at + 100_000]

    with served(edged(app)) as port:
        response = post(port, pieces())
    assert response.request.headers["transfer-encoding"] == "chunked"
    assert opened(sent_picture(app.last.body, part=1)).size == PHOTO_SIZE
    assert app.last.header(b"content-length") == [b"%d" % len(app.last.body)]
    assert app.last.header(b"transfer-encoding") == []


@pytest.mark.parametrize("declared", [b"5", b"%d" % (2 * len(PHOTO)), b"0", b"nonsense", None])
@pytest.mark.parametrize("pieces", [[PHOTO], [PHOTO[:7], b"", PHOTO[7:], b""], [b"", PHOTO]])
async def test_a_body_is_what_arrives_and_not_what_was_declared(declared: bytes | None, pieces: list[bytes]) -> None:
    """A server would hold a client to its word; a middleware before us need not have kept the header true."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages[-1]["more_body"] = False
    arriving = iter(messages)

    async def receive() -> Message:
        return next(arriving)

    async def send(_: Message) -> None:
        pass

    app = Recorder()
    headers = [] if declared is None else [(b"content-length", declared)]
    scope = {
        "type": "http",
        "method": "POST",
        "path": CHAT_PATH,
        "raw_path": b"",
        "query_string": b"",
        "headers": headers,
    }
    await edged(app)(scope, receive, send)
    assert opened(sent_picture(app.last.body, part=1)).size == PHOTO_SIZE
    assert app.last.header(b"content-length") == [b"%d" % len(app.last.body)]


async def test_a_declared_length_beyond_all_numbers_is_too_large() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": CHAT_PATH, "headers": [(b"content-length", b"9" * 5_000)]}
    await edged(Recorder())(scope, receive, send)
    assert sent[0]["status"] == 413


def test_an_app_mounted_at_the_first_step_of_an_endpoint_is_protected() -> None:
    app = Recorder()
    mounted = Starlette(routes=[Mount("/v1", EdgeMiddleware(app, settings=Settings()))])
    with served(mounted) as port:
        post(port, PHOTO)
    assert opened(sent_picture(app.last.body, part=1)).size == PHOTO_SIZE


# What is not its business


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", CHAT_PATH),
        ("POST", "/v1/audio/speech"),
        ("POST", f"{CHAT_PATH}/1/cancel"),
        ("POST", "/chat/completions"),
    ],
)
async def test_other_paths_and_methods_pass_untouched(method: str, path: str) -> None:
    app = Recorder()
    async with client_of(edged(app)) as client:
        response = await client.request(method, path, content=PHOTO, headers={"Content-Type": "text/plain"})
    assert app.last.body == PHOTO
    assert app.last.header(b"content-length") == [b"%d" % len(PHOTO)]
    assert not [name for name in response.headers if name.startswith("x-vlm-edge")]


STRAY = orjson.dumps({"avatar": {"pictures": ["a", data_url(jpeg(8, 8))]}})
UNKNOWN_PATH = "/v1/files"


@pytest.mark.parametrize(
    "body",
    [
        STRAY,
        STRAY.replace(b"data:", b" DATA:"),
        STRAY.replace(b"data:", b"\\u0064ata:").replace(b";base64", b";b\\u0061se64"),
        orjson.dumps(data_url(PHONE.read_bytes())),
        orjson.dumps([{"url": "data:image/png;charset=utf-8;base64,AAAA"}]),
    ],
    ids=["plain", "odd case", "escaped", "large", "parameters"],
)
def test_a_data_url_on_an_unknown_path_is_refused(body: bytes) -> None:
    app = Recorder()
    with served(edged(app)) as port:
        response = post(port, body, UNKNOWN_PATH)
    assert (response.status_code, error_of(response)["code"]) == (400, "unexpected_media")
    assert app.received == []


@pytest.mark.parametrize(
    "body",
    [
        TEXT,
        b'{"text": "write data:image/png;base64, before it"}',
        b'{"x": "base64"',
        b"\x00 base64",
        b"",
        orjson.dumps({"text": "data: base64 " * 100_000}).replace(b'"data:', b'"the data:'),
    ],
)
def test_other_json_on_an_unknown_path_passes_byte_for_byte(body: bytes) -> None:
    app = Recorder()
    with served(edged(app)) as port:
        assert post(port, body, UNKNOWN_PATH).status_code == 200
    assert app.last.body == body


def test_what_is_not_declared_to_be_plain_json_passes_unread() -> None:
    app, packed = Recorder(), gzip.compress(STRAY)
    with served(edged(app)) as port:
        assert post(port, packed, UNKNOWN_PATH, {"Content-Encoding": "gzip"}).status_code == 200
        assert app.last.body == packed
        assert post(port, STRAY, UNKNOWN_PATH, {"content-type": "text/plain"}).status_code == 200


def test_a_data_url_on_an_unknown_path_passes_where_the_settings_say_so() -> None:
    app = Recorder()
    with served(edged(app, unknown_paths="pass")) as port:
        assert post(port, STRAY, UNKNOWN_PATH).status_code == 200
    assert app.last.body == STRAY


# Packed bodies, and slow ones


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_packed_body_reaches_the_app_unpacked(encoding: str) -> None:
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    app = Recorder()
    with served(edged(app)) as port:
        assert post(port, pack(PHOTO), headers={"Content-Encoding": encoding}).status_code == 200
        photo = app.last
        assert post(port, pack(TEXT), headers={"Content-Encoding": encoding}).status_code == 200
    assert opened(sent_picture(photo.body, part=1)).size == PHOTO_SIZE
    assert app.last.body == TEXT
    for received in (photo, app.last):
        assert received.header(b"content-length") == [b"%d" % len(received.body)]
        assert received.header(b"content-encoding") == []


def test_a_bomb_is_refused() -> None:
    with served(edged(Recorder(), limits=Limits(max_body_bytes=20_000_000))) as port:
        response = post(port, gzip.compress(b" " * 50_000_000), headers={"Content-Encoding": "gzip"})
    assert (response.status_code, error_of(response)["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("sent", [b"", b'{"messages": ['])
def test_a_body_that_does_not_come_is_given_up(sent: bytes) -> None:
    app = Recorder()
    with served(edged(app, upload=UploadSettings(idle_timeout_s=0.1))) as port, connected(port) as connection:
        connection.sendall(post_head(CHAT_PATH, "Content-Length: 100", "Content-Type: application/json") + sent)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"upload_timeout" in answer
    assert app.received == []


# Dialects


def test_a_picture_for_anthropics_messages_is_prepared() -> None:
    app = Recorder()
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PHONE.read_bytes()).decode()}
    body = orjson.dumps({"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]})
    with served(edged(app)) as port:
        assert post(port, body, "/v1/messages").headers["x-vlm-edge-media"] == "images=1; resized=1"
    sent = orjson.loads(app.last.body)["messages"][0]["content"][0]["source"]
    assert (sent["type"], sent["media_type"]) == ("base64", "image/jpeg")
    assert opened(base64.b64decode(sent["data"], validate=True)).size == PHOTO_SIZE


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "PGh0bWw+"}, 400, "invalid_request_error"),
        ({"type": "url", "url": "http://127.0.0.1/a.png"}, 400, "invalid_request_error"),
        ({"type": "base64", "data": "A" * 2_000_000}, 413, "request_too_large"),
    ],
)
def test_an_error_of_anthropics_messages_has_its_shape(content: dict[str, str], status: int, kind: str) -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": [{"type": "image", "source": content}]}]})
    with served(edged(Recorder(), limits=Limits(max_body_bytes=1_000_000))) as port:
        response = post(port, body, "/v1/messages")
    assert response.status_code == status
    assert response.json().keys() == {"type", "error"}
    assert response.json()["error"].keys() == {"type", "message"}
    assert (response.json()["type"], response.json()["error"]["type"]) == ("error", kind)


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_lifespan_and_websockets_are_handed_on_as_they_are(kind: str) -> None:
    seen: list[object] = []

    async def app(*handed: object) -> None:
        seen.extend(handed)

    async def receive() -> Message:
        raise AssertionError("the middleware must not read")

    async def send(_: Message) -> None:
        raise AssertionError("the middleware must not answer")

    scope = {"type": kind, "path": CHAT_PATH}
    await edged(app)(scope, receive, send)
    assert seen[0] is scope
    assert seen[1] is receive
    assert seen[2] is send


@pytest.mark.parametrize("http", SERVERS)
def test_a_root_path_does_not_hide_the_endpoint(http: str) -> None:
    app = Recorder()
    with served(edged(app), http=http, root_path="/api") as port:
        post(port, PHOTO)
    assert app.last.scope["path"] == f"/api{CHAT_PATH}"
    assert opened(sent_picture(app.last.body, part=1)).size == PHOTO_SIZE


async def test_a_mounted_sub_app_prepares_its_own_path() -> None:
    app, other = Recorder(), Recorder()
    async with client_of(Starlette(routes=[Mount("/vision", edged(app)), Mount("/", other)])) as client:
        await client.post(f"/vision{CHAT_PATH}", content=PHOTO)
        await client.post(CHAT_PATH, content=PHOTO)
    assert opened(sent_picture(app.last.body, part=1)).size == PHOTO_SIZE
    assert other.last.body == PHOTO


async def test_instances_do_not_share_settings() -> None:
    small, large = Recorder(), Recorder()
    apps = [Mount("/small", edged(small, default_profile="thumbnail")), Mount("/large", edged(large))]
    async with client_of(Starlette(routes=apps)) as client:
        await client.post(f"/large{CHAT_PATH}", content=PHOTO)
        await client.post(f"/small{CHAT_PATH}", content=PHOTO)
    assert opened(sent_picture(small.last.body, part=1)).size == (448, 336)
    assert opened(sent_picture(large.last.body, part=1)).size == PHOTO_SIZE


async def test_a_second_instance_on_the_way_finds_nothing_left_to_do() -> None:
    once, twice = Recorder(), Recorder()
    async with client_of(edged(once)) as client:
        await client.post(CHAT_PATH, content=PHOTO)
    async with client_of(edged(edged(twice))) as client:
        await client.post(CHAT_PATH, content=PHOTO)
    assert twice.last.body == once.last.body
    assert twice.last.header(b"content-length") == [b"%d" % len(once.last.body)]


async def test_context_variables_set_outside_are_visible_inside() -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(tenant.get())
        await Response()(scope, receive, send)

    inner = edged(app)

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        tenant.set("acme")
        await inner(scope, receive, send)

    async with client_of(outer) as client:
        await client.post(CHAT_PATH, content=PHOTO)
        await client.post(CHAT_PATH, content=TEXT)
    assert seen == ["acme", "acme"]


async def test_starlette_mounts_it_with_settings() -> None:
    async def answer(request: Request) -> JSONResponse:
        return JSONResponse({"size": opened(sent_picture(await request.body(), part=1)).size})

    middleware = Middleware(EdgeMiddleware, settings=Settings(default_profile="thumbnail"))
    app = Starlette(routes=[Route(CHAT_PATH, answer, methods=["POST"])], middleware=[middleware])
    async with client_of(app) as client:
        response = await client.post(CHAT_PATH, content=PHOTO)
    assert response.json() == {"size": [448, 336]}


async def test_without_arguments_settings_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "edge.toml"
    file.write_text('default_profile = "thumbnail"\n')
    monkeypatch.setenv("VLM_EDGE_CONFIG", str(file))
    app = Recorder()
    async with client_of(EdgeMiddleware(app)) as client:
        await client.post(CHAT_PATH, content=PHOTO)
    assert opened(sent_picture(app.last.body, part=1)).size == (448, 336)


async def test_an_edge_may_be_shared() -> None:
    edge, app = Edge(Settings(default_profile="thumbnail")), Recorder()
    async with client_of(EdgeMiddleware(app, edge=edge)) as client:
        await client.post(CHAT_PATH, content=PHOTO)
    assert opened(sent_picture(app.last.body, part=1)).size == (448, 336)
    edge.close()


async def test_an_observer_hears_of_reports_and_of_refusals() -> None:
    class Observer:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def prepared(self, report: Report) -> None:
            self.heard.append(f"{report.tokens} tokens")

        def refused(self, error: EdgeError) -> None:
            self.heard.append(error.code)

    observer = Observer()
    async with client_of(EdgeMiddleware(Recorder(), settings=Settings(), observer=observer)) as client:
        for body in (PHOTO, TEXT, b"{"):
            await client.post(CHAT_PATH, content=body)
    assert observer.heard == [f"{PHOTO_TOKENS} tokens", "invalid_json"]


# Streams and leaving


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize("body", [PHOTO, TEXT], ids=["picture", "text"])
def test_server_sent_events_pass_one_by_one(http: str, body: bytes) -> None:
    """The second event is made only after the client has seen the first."""
    first_seen = threading.Event()

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        while not first_seen.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.005)
        yield b"data: [DONE]\n\n"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        await StreamingResponse(events(), media_type="text/event-stream")(scope, receive, send)

    url = f"http://127.0.0.1:%d{CHAT_PATH}"
    with (
        served(edged(app), http=http) as port,
        httpx.stream("POST", url % port, content=body, timeout=PATIENCE_S) as response,
    ):
        chunks = response.iter_raw()
        assert next(chunks) == b"data: 1\n\n"
        first_seen.set()
        assert b"".join(chunks) == b"data: [DONE]\n\n"


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize("body", [PHOTO, TEXT], ids=["picture", "text"])
def test_the_app_learns_when_the_client_leaves_and_not_before(http: str, body: bytes) -> None:
    asked, left = threading.Event(), threading.Event()
    here: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await request.body()
        here.extend([not await request.is_disconnected() for _ in range(3)])
        asked.set()
        assert await receive() == {"type": "http.disconnect"}
        left.set()

    with served(edged(app), http=http) as port:
        with connected(port) as connection:
            connection.sendall(post_head(CHAT_PATH, f"Content-Length: {len(body)}") + body)
            assert asked.wait(PATIENCE_S)
            assert here == [True, True, True]
            assert not left.is_set()
        assert left.wait(PATIENCE_S)


@pytest.mark.parametrize("http", SERVERS)
def test_a_client_that_leaves_during_its_upload_ends_quietly(http: str, caplog: pytest.LogCaptureFixture) -> None:
    app = Recorder()
    with served(edged(app), http=http) as port:
        with connected(port) as connection:
            connection.sendall(post_head(CHAT_PATH, f"Content-Length: {len(PHOTO)}") + PHOTO[:200_000])
        assert post(port, TEXT).status_code == 200  # the server is well
    assert [request.body for request in app.received] == [TEXT]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_client_that_leaves_is_not_answered() -> None:
    messages: Iterator[Message] = iter(
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> Message:
        return next(messages)

    async def nobody(*_: object) -> None:
        raise AssertionError("nobody must be called")

    scope = {"type": "http", "method": "POST", "path": CHAT_PATH, "headers": []}
    await edged(nobody)(scope, receive, nobody)
    assert next(messages, None) is None


# Bodies that are too large


@pytest.mark.parametrize("http", SERVERS)
def test_a_slow_uploader_reads_the_413_of_a_declared_length(http: str) -> None:
    """The client reads only after it has sent all, as many do; the answer must still be there."""
    app, size = Recorder(), 20_000_000
    with served(edged(app, limits=Limits(max_body_bytes=1_000_000)), http=http) as port, connected(port) as connection:
        connection.sendall(post_head(CHAT_PATH, f"Content-Length: {size}"))
        upload_slowly(connection.sendall, size)
        refused_as_too_large(read_all(connection), allowed=1_000_000)
    assert app.received == []


@pytest.mark.parametrize("http", SERVERS)
def test_a_slow_uploader_reads_the_413_of_a_body_without_length(http: str) -> None:
    app, size = Recorder(), 20_000_000
    with served(edged(app, limits=Limits(max_body_bytes=1_000_000)), http=http) as port, connected(port) as connection:
        connection.sendall(post_head(CHAT_PATH, "Transfer-Encoding: chunked"))
        upload_slowly(lambda piece: connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece)), size)
        connection.sendall(b"0\r\n\r\n")
        refused_as_too_large(read_all(connection), allowed=1_000_000)
    assert app.received == []


@pytest.mark.parametrize("http", SERVERS)
def test_the_413_comes_before_the_body_has(http: str) -> None:
    with (
        served(edged(Recorder(), limits=Limits(max_body_bytes=4_096)), http=http) as port,
        connected(port) as connection,
    ):
        connection.sendall(post_head(CHAT_PATH, "Content-Length: 8192") + b" " * 2_048)
        answer = read_until(connection, b"}}")
    refused_as_too_large(answer, allowed=4_096)


@pytest.mark.parametrize("http", SERVERS)
def test_a_client_that_asks_first_is_told_413_and_not_to_continue(http: str) -> None:
    with (
        served(edged(Recorder(), limits=Limits(max_body_bytes=4_096)), http=http) as port,
        connected(port) as connection,
    ):
        connection.sendall(post_head(CHAT_PATH, "Content-Length: 8192", "Expect: 100-continue"))
        answer = read_until(connection, b"}}")
    refused_as_too_large(answer, allowed=4_096)


def test_a_body_of_exactly_the_limit_passes() -> None:
    app = Recorder()
    with served(edged(app, limits=Limits(max_body_bytes=len(TEXT)))) as port:
        assert post(port, TEXT).status_code == 200
        assert post(port, TEXT + b" ").status_code == 413
    assert [request.body for request in app.received] == [TEXT]


def upload_slowly(send: Callable[[bytes], object], size: int) -> None:
    piece = b"x" * 500_000
    for _ in range(size // len(piece)):
        send(piece)
        time.sleep(0.01)


def refused_as_too_large(answer: bytes, allowed: int) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nconnection: close" in head.lower()
    error = orjson.loads(body)["error"]
    assert (error["code"], error["type"], error["param"]) == ("body_too_large", "invalid_request_error", None)
    assert f"{allowed}" in error["message"]


# What is refused


def png_of(width: int, height: int) -> bytes:
    """A small PNG whose header promises a size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    ends = chunk(b"IDAT", zlib.compress(b"\0" * 1_000)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + ends


def pages(*greys: int) -> bytes:
    first, *rest = [picture(40, 40).point([grey] * 768) for grey in greys]
    return encoded(first, "TIFF", save_all=True, append_images=rest)


def url_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


PLACE = "messages[0].content[1]"
REFUSED: dict[str, tuple[bytes, str, str | None]] = {
    "nothing at all": (b"", "invalid_json", None),
    "no JSON": (b'{"messages": [', "invalid_json", None),
    "a JSON array": (b"[1, 2]", "invalid_json", None),
    "JSON in Latin-1": ('{"messages": "é"}'.encode("latin-1"), "invalid_json", None),
    "JSON of great depth": (b"[" * 100_000 + b"]" * 100_000, "invalid_json", None),
    "base64 that is none": (
        chat(text_part(), url_part("data:image/png;base64," + "iVBOR!" * 100)),
        "invalid_data_url",
        PLACE,
    ),
    "base64 damaged late": (
        chat(text_part(), url_part(data_url(PHONE.read_bytes())[:-8] + "\x00*?!AAA=")),
        "invalid_data_url",
        PLACE,
    ),
    "an empty data URL": (chat(text_part(), url_part("data:image/png;base64,")), "invalid_data_url", PLACE),
    "a data URL without base64": (chat(text_part(), url_part("data:image/png,abc")), "invalid_data_url", PLACE),
    "a picture cut short": (
        chat(text_part(), image_part(PHONE.read_bytes()[:400_000])),
        "corrupt_media",
        PLACE,
    ),
    "a small picture cut short": (chat(text_part(), image_part(jpeg(300, 200)[:-500])), "corrupt_media", PLACE),
    "an HTML page": (
        chat(text_part(), image_part(b"<!doctype html><title>404</title>" * 20, "image/png")),
        "unsupported_media",
        PLACE,
    ),
    "a promise of 400 megapixels": (
        chat(text_part(), image_part(png_of(20_000, 20_000), "image/png")),
        "media_too_large",
        PLACE,
    ),
    "a document of nine pages": (
        chat(text_part(), image_part(pages(*range(9)), "image/tiff")),
        "unsupported_media",
        PLACE,
    ),
    "a remote picture": (chat(text_part(), url_part("https://127.0.0.1:1/a.png")), "remote_media_refused", PLACE),
    "a file of the server": (chat(text_part(), url_part("file:///etc/passwd")), "remote_media_refused", PLACE),
    "one good picture and one bad": (
        chat(image_part(jpeg(2000, 1000)), image_part(b"GIF89a")),
        "corrupt_media",
        PLACE,
    ),
}


@pytest.fixture(scope="module")
def app() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def edge_port(app: Recorder) -> Iterator[int]:
    with served(edged(app)) as port:
        yield port


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_openais_words_is(
    name: str, app: Recorder, edge_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    body, code, param = REFUSED[name]
    caplog.set_level(logging.DEBUG)
    before = len(app.received)
    response = post(edge_port, body)
    error = error_of(response)
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["code"], error["param"]) == (code, param)
    assert len(app.received) == before
    assert_quiet(caplog)
    assert not BASE64_RUN.search(response.text)


def test_refused_is_more_than_twenty_pictures(edge_port: int) -> None:
    part = image_part(jpeg(32, 32))
    assert post(edge_port, chat(*[part] * 20)).status_code == 200
    response = post(edge_port, chat(*[part] * 21))
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "too_many_images")
    assert error["param"] == "messages[0].content[20]"  # the first too many
    assert "21" in error["message"]
    assert "At most 20 image(s)" in error["message"]  # vLLM's words


def test_refused_is_more_than_the_profile_allows(edge_port: int) -> None:
    part = image_part(jpeg(32, 32))
    response = post(edge_port, chat(part, part), headers={"X-VLM-Edge-Profile": "invoice"})
    assert (response.status_code, error_of(response)["code"]) == (400, "too_many_images")


def test_refused_is_a_profile_that_nobody_knows(edge_port: int) -> None:
    response = post(edge_port, PHOTO, headers={"X-VLM-Edge-Profile": "huge"})
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "unknown_profile")
    assert "'huge'" in error["message"]
    assert "standard" in error["message"]


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_refused_is_a_body_in_an_encoding_of_another_kind(encoding: str, app: Recorder, edge_port: int) -> None:
    before = len(app.received)
    response = post(edge_port, gzip.compress(PHOTO), headers={"Content-Encoding": encoding})
    assert (response.status_code, error_of(response)["code"]) == (415, "unsupported_encoding")
    assert len(app.received) == before


async def test_refused_is_what_costs_too_many_tokens() -> None:
    limits = Limits(max_request_tokens=2 * PHOTO_TOKENS - 1)
    async with client_of(edged(Recorder(), limits=limits)) as client:
        assert (await client.post(CHAT_PATH, content=PHOTO)).status_code == 200
        photo = image_part(PHONE.read_bytes())
        response = await client.post(CHAT_PATH, content=chat(photo, photo))
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "vision_budget_exceeded")
    assert f"{2 * PHOTO_TOKENS}" in error["message"]


async def test_refused_is_a_file_of_too_many_bytes() -> None:
    async with client_of(edged(Recorder(), limits=Limits(max_image_bytes=100_000))) as client:
        response = await client.post(CHAT_PATH, content=PHOTO)
    assert (response.status_code, error_of(response)["code"]) == (400, "media_too_large")
    assert error_of(response)["param"] == PLACE


async def test_remote_pictures_pass_untouched_where_the_settings_say_so() -> None:
    app, body = Recorder(), chat(text_part(), url_part("https://127.0.0.1:1/a.png"))
    async with client_of(edged(app, remote="pass")) as client:
        response = await client.post(CHAT_PATH, content=body)
        assert (response.status_code, app.last.body) == (200, body)
        refused = await client.post(CHAT_PATH, content=chat(url_part("file:///etc/passwd")))
    assert error_of(refused)["code"] == "remote_media_refused"


async def test_a_remote_picture_that_passes_stays_beside_one_that_is_resized() -> None:
    app, remote = Recorder(), url_part("https://127.0.0.1:1/a.png")
    async with client_of(edged(app, remote="pass")) as client:
        await client.post(CHAT_PATH, content=chat(remote, image_part(PHONE.read_bytes())))
    assert orjson.loads(app.last.body)["messages"][0]["content"][0] == remote
    assert opened(sent_picture(app.last.body, part=1)).size == PHOTO_SIZE


async def test_an_overloaded_edge_asks_to_come_back_later() -> None:
    edge = Edge(Settings(workers=WorkerSettings(threads=1, max_waiting=0)))
    busy = threading.Event()
    [work] = edge.workers.submit([Job(partial(busy.wait, PATIENCE_S))])
    async with client_of(EdgeMiddleware(Recorder(), edge=edge)) as client:
        response = await client.post(CHAT_PATH, content=PHOTO)
        assert (response.status_code, error_of(response)["code"]) == (503, "overloaded")
        assert error_of(response)["type"] == "server_error"
        assert int(response.headers["retry-after"]) >= 1
        assert (await client.post(CHAT_PATH, content=TEXT)).status_code == 200  # text needs no worker
        busy.set()
        assert work.result()
        wait_until(lambda: edge.workers.pending == 0)
        assert (await client.post(CHAT_PATH, content=PHOTO)).status_code == 200
    edge.close()


async def test_work_on_pixels_does_not_hold_up_the_event_loop() -> None:
    """The only worker is busy until the loop has run another task; a middleware that blocked would never end."""
    edge = Edge(Settings(workers=WorkerSettings(threads=1)))
    busy = threading.Event()
    edge.workers.submit([Job(partial(busy.wait, PATIENCE_S))])
    async with client_of(EdgeMiddleware(Recorder(), edge=edge)) as client:
        request = asyncio.create_task(client.post(CHAT_PATH, content=PHOTO))
        while edge.workers.pending < 2:  # noqa: ASYNC110 - a number that threads change
            await asyncio.sleep(0.005)
        assert (await client.post(CHAT_PATH, content=TEXT)).status_code == 200
        assert not request.done()
        busy.set()
        assert (await request).status_code == 200
    edge.close()


@pytest.mark.parametrize("body", [PHOTO, TEXT], ids=["picture", "text"])
def test_no_base64_is_ever_logged(body: bytes, edge_port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert post(edge_port, body).status_code == 200
    assert caplog.records  # something was listened to
    assert_quiet(caplog)


async def test_an_app_that_fails_is_not_hidden() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("of the app")

    async with client_of(edged(app)) as client:
        for body in (PHOTO, TEXT):
            with pytest.raises(RuntimeError, match="of the app"):
                await client.post(CHAT_PATH, content=body)


def assert_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """No traceback, no warning but those of libvips about a damaged picture, and never a payload."""
    ours = [record for record in caplog.records if record.name != "pyvips"]
    assert not [record for record in ours if record.exc_info or record.levelno >= logging.WARNING]
    assert "Traceback" not in caplog.text
    assert not BASE64_RUN.search(caplog.text)


# What an answer says of its prompt


def usage(prompt_tokens: int, **more: Any) -> bytes:
    return orjson.dumps({"choices": [], "usage": {"prompt_tokens": prompt_tokens, **more}})


QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"
KNOWN = chat(text_part(), image_part(jpeg(280, 280)), model=QWEN)  # 100 vision tokens


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (usage(60), f"{QWEN}' counts 60 prompt tokens where at least 100 were expected"),
        (usage(90_000), "90000 prompt tokens where at most"),
        (usage(150, prompt_tokens_details={"multimodal_tokens": {"image": 64}}), "64 vision tokens where 100"),
    ],
)
async def test_a_server_that_counts_otherwise_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, answer: bytes, words: str
) -> None:
    app = edged(Recorder(body=answer))
    async with client_of(app) as client:
        for _ in range(3):
            assert (await client.post(CHAT_PATH, content=KNOWN)).content == answer
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert words in warnings[0]
    [total] = app.edge.drifts.totals()
    assert total.answers == 3


async def test_a_warning_is_seen_where_a_server_around_us_drops_those_of_others(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """vLLM's API server has its root logger at ERROR; and it shows the metrics of its process."""
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    loaded = SimpleNamespace(model=str(tmp_path), max_model_len=4_096)
    inner = Recorder(body=usage(60))
    inner.state = SimpleNamespace(vllm_config=SimpleNamespace(model_config=loaded))  # type: ignore[attr-defined]
    app = edged(inner)
    caplog.set_level(logging.ERROR)
    caplog.handler.setLevel(logging.NOTSET)
    await app({**_scope(), "app": inner}, _receive(KNOWN), discard)
    assert "60 prompt tokens where at least 100" in caplog.text
    assert b"vlm_edge_drifted_total" in generate_latest()


async def test_the_first_requests_of_a_server_all_wait_for_what_it_tells(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"}')
    loaded = SimpleNamespace(model=str(tmp_path), max_model_len=4_096)
    inner = Recorder()
    inner.state = SimpleNamespace(vllm_config=SimpleNamespace(model_config=loaded))  # type: ignore[attr-defined]
    app, body = edged(inner), chat(image_part(jpeg(320, 320)), model="my-own-name")
    await asyncio.gather(*(app({**_scope(), "app": inner}, _receive(body), discard) for _ in range(8)))
    assert {one.scope["vlm_edge.report"].family for one in inner.received} == {"qwen3_vl"}


async def test_another_bound_of_pixels_is_named_where_it_explains_the_drift(caplog: pytest.LogCaptureFixture) -> None:
    answer = usage(80, prompt_tokens_details={"multimodal_tokens": {"image": 64}})
    async with client_of(edged(Recorder(body=answer))) as client:
        await client.post(CHAT_PATH, content=KNOWN)
    assert "max_pixels between" in caplog.text  # of 8 x 8 cells


async def test_a_server_that_counts_as_we_do_is_not(caplog: pytest.LogCaptureFixture) -> None:
    app = edged(Recorder(body=usage(130, prompt_tokens_details={"multimodal_tokens": {"image": 100}})))
    async with client_of(app) as client:
        await client.post(CHAT_PATH, content=KNOWN)
    assert app.edge.drifts.compared() == {QWEN: 1}
    assert app.edge.drifts.totals() == []
    assert [record for record in caplog.records if record.levelno == logging.WARNING] == []


@pytest.mark.parametrize(
    "body",
    [
        chat(text_part(), image_part(jpeg(280, 280)), model="who-knows"),
        chat(text_part(), image_part(jpeg(280, 280)), model=QWEN, mm_processor_kwargs={"max_pixels": 50_176}),
        chat(text_part(), model=QWEN),
    ],
)
async def test_what_was_not_counted_exactly_is_not_compared(body: bytes) -> None:
    app = edged(Recorder(body=usage(7)))
    async with client_of(app) as client:
        await client.post(CHAT_PATH, content=body)
    assert app.edge.drifts.compared() == {}


async def test_the_usage_of_a_stream_is_read_while_it_passes() -> None:
    """Each piece has been sent on before it is read."""
    events = [
        b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n',
        b"data: " + usage(60) + b"\n\n",
        b"data: [DONE]\n\n",
    ]
    sent: list[bytes] = []

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, event in enumerate(events):
            await send({"type": "http.response.body", "body": event, "more_body": True})
            assert len(sent) == number + 1
        await send({"type": "http.response.body", "body": b""})

    async def keep(message: Message) -> None:
        if message.get("body"):
            sent.append(message["body"])

    app = edged(stream)
    await app(_scope(), _receive(KNOWN), keep)
    assert sent == events
    [total] = app.edge.drifts.totals()
    assert (total.where, total.direction, total.tokens) == ("prompt", "fewer", 40)


def _scope() -> Scope:
    path = {"path": CHAT_PATH, "raw_path": CHAT_PATH.encode()}
    return {"type": "http", "method": "POST", **path, "headers": [], "query_string": b""}


def _receive(body: bytes) -> Receive:
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        return next(messages, {"type": "http.disconnect"})

    return receive


async def discard(_: Message) -> None:
    pass
