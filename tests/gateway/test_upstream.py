"""The way to the backend and back, over loopback, with backends that behave and backends that do not."""

import asyncio
import gzip
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import pairwise

import httpx
import orjson
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.samples import CHAT_PATH, PHONE, chat, image_part, opened, sent_picture, text_part
from tests.servers import (
    PATIENCE_S,
    Recorder,
    connected,
    free_port,
    gateway_before,
    post_head,
    raw_backend,
    read_all,
    read_request,
    read_until,
    served,
    wait_until,
)
from vlm_edge import Settings
from vlm_edge.gateway.app import create_app
from vlm_edge.gateway.config import GatewaySettings

TEXT = chat(text_part("Grüße\r\n"), stream=True)
SERVERS = ["h11", "httptools"]
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def backend() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module", params=SERVERS)
def port(backend: Recorder, request: pytest.FixtureRequest) -> Iterator[int]:
    """A gateway in front of `backend`, under either of uvicorn's HTTP parsers."""
    with served(backend, http="h11") as behind, gateway_before(behind, http=request.param) as port:
        yield port


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def ask(port: int, request: bytes) -> bytes:
    """The whole answer to a raw request that ends its connection."""
    with connected(port) as connection:
        connection.sendall(request)
        return read_all(connection)


def post(port: int, body: bytes = TEXT, path: str = CHAT_PATH) -> httpx.Response:
    return httpx.post(f"http://127.0.0.1:{port}{path}", content=body, timeout=PATIENCE_S)


def code_of(response: httpx.Response) -> str:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "server_error"
    code: str = error["code"]
    return code


# A request on its way


def test_a_request_reaches_the_backend_as_it_was_sent(backend: Recorder, port: int) -> None:
    head = post_head(
        f"{CHAT_PATH}?a=1&b=%20",
        f"Content-Length: {len(TEXT)}",
        "Content-Type: application/json",
        "Authorization: Bearer sk-1",
        "X-Request-Id: 7",
        "X-Unknown: one",
        "X-Unknown: two",
        "Cookie: a=b",
        "Connection: close",
    )
    assert ask(port, head + TEXT).startswith(b"HTTP/1.1 200 OK\r\n")
    assert backend.last.method == "POST"
    assert backend.last.target == f"{CHAT_PATH}?a=1&b=%20".encode()
    assert backend.last.body == TEXT
    assert sorted(item for item in backend.last.headers if item[0] != b"host") == [
        (b"authorization", b"Bearer sk-1"),
        (b"content-length", b"%d" % len(TEXT)),
        (b"content-type", b"application/json"),
        (b"cookie", b"a=b"),
        (b"x-modality-type", b"text_only"),
        (b"x-request-id", b"7"),
        (b"x-unknown", b"one"),
        (b"x-unknown", b"two"),
    ]
    # The one header that is about the server it is sent to
    host, number = backend.last.scope["server"]
    assert backend.last.header(b"host") == [f"{host}:{number}".encode()]


def test_header_bytes_beyond_ascii_stay_as_they_are(backend: Recorder, port: int) -> None:
    head = post_head("/v1/completions", "Content-Length: 2", "Connection: close", "X-Title: Grüße")
    ask(port, head + b"{}")
    assert backend.last.header(b"x-title") == ["Grüße".encode()]


def test_headers_about_one_connection_end_with_it(backend: Recorder, port: int) -> None:
    head = post_head(
        "/v1/completions",
        "Content-Length: 2",
        "Connection: close, X-Named",
        "X-Named: 1",
        "Keep-Alive: timeout=5",
        "TE: trailers",
        "Trailer: X-Sum",
        "Proxy-Authorization: Basic eA==",
        "Proxy-Connection: close",
        "X-Stays: 1",
    )
    ask(port, head + b"{}")
    assert {name for name, _ in backend.last.headers} == {b"host", b"content-length", b"x-stays", b"x-modality-type"}


@pytest.mark.parametrize(
    ("path", "body", "modality"),
    [
        (CHAT_PATH, TEXT, [b"text_only"]),
        (CHAT_PATH, chat(text_part(), image_part(PHONE.read_bytes())), [b"multi_modal"]),
        ("/v1/unread", TEXT, []),
    ],
    ids=["text", "picture", "unread"],
)
def test_the_modality_is_told_of_what_was_read_and_cannot_be_spoofed(
    path: str, body: bytes, modality: list[bytes], backend: Recorder, port: int
) -> None:
    lies = [(b"X-Modality-Type", b"multi_modal"), (b"x-modality-type", b"text_only")]
    httpx.post(f"http://127.0.0.1:{port}{path}", content=body, headers=lies, timeout=PATIENCE_S)
    assert backend.last.header(b"x-modality-type") == modality


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models/Qwen%2FQwen2.5-VL?x=%2F&y=a+b&y=%C3%A9&z",
        "/a/../b/./c//d",
        "/v1/files/gr%C3%BC%C3%9Fe%20.txt",
        "/?",
        "/p;v=1:2@3!$'()*,~?q=;:@!$'()*,/?%",
        "/%2e%2e/%2E%2E/etc/passwd",
    ],
)
def test_paths_and_queries_stay_as_they_were_written(target: str, backend: Recorder, port: int) -> None:
    answer = ask(port, f"GET {target} HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert backend.last.target == target.removesuffix("?").encode()


def test_an_encoded_path_is_no_way_around_the_edge(backend: Recorder, port: int) -> None:
    post(port, chat(image_part(PHONE.read_bytes())), path="/v1/ch%61t/completions")
    assert backend.last.target == b"/v1/ch%61t/completions"
    assert opened(sent_picture(backend.last.body)).size == (1008, 756)


def test_a_query_beyond_ascii_is_no_fault_of_ours(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Not every client encodes; the backend may refuse it, we may, but nobody may trip over it."""
    answer = ask(port, "GET /v1/models?q=é HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n".encode())
    assert answer.split()[1] in (b"200", b"400")
    assert "Traceback" not in caplog.text


def test_the_backends_own_base_path_comes_first() -> None:
    backend = Recorder()
    with served(backend) as behind, gateway_before(behind, backend_url="http://127.0.0.1:{}/vllm/") as port:
        assert post(port, b"{}", path="/v1/completions").status_code == 200
    assert backend.last.target == b"/vllm/v1/completions"


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS", "PUT", "PATCH"])
def test_every_method_passes(method: str, backend: Recorder, port: int) -> None:
    response = httpx.request(method, f"http://127.0.0.1:{port}/v1/models", timeout=PATIENCE_S)
    assert backend.last.method == method
    assert response.status_code == 200
    assert response.content == (b"" if method == "HEAD" else backend.body)


@pytest.mark.parametrize("http", SERVERS)
def test_head_keeps_the_length_that_get_would_have(http: str) -> None:
    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n")

    with raw_backend(answer) as behind, gateway_before(behind, http=http) as port:
        response = httpx.head(f"http://127.0.0.1:{port}/v1/models", timeout=PATIENCE_S)
    assert (response.headers["content-length"], response.content) == ("1234", b"")


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize("declared", [True, False], ids=["with length", "chunked"])
def test_a_large_upload_to_another_path_streams(http: str, declared: bool) -> None:
    """The second half leaves the client only after the backend has read from the first."""
    size, half = 20_000_000, b"x" * 10_000_000
    arrived = threading.Event()
    lengths: list[int] = []

    async def backend(scope: Scope, receive: Receive, send: Send) -> None:
        length = 0
        async for piece in Request(scope, receive).stream():
            length += len(piece)
            arrived.set()
        lengths.append(length)
        await Recorder()(scope, _nothing_more, send)

    def halves() -> Iterator[bytes]:
        yield half
        assert arrived.wait(PATIENCE_S)
        yield half

    headers = {"content-type": "multipart/form-data; boundary=x"} | ({"content-length": f"{size}"} if declared else {})
    with served(backend) as behind, gateway_before(behind, http=http) as port:
        url = f"http://127.0.0.1:{port}/v1/audio/transcriptions"
        response = httpx.post(url, content=halves(), headers=headers, timeout=PATIENCE_S)
    assert response.status_code == 200
    assert lengths == [size]


async def _nothing_more() -> dict[str, object]:
    return {"type": "http.request"}


def test_the_clients_own_pace_is_not_the_backends() -> None:
    """The backend answers as soon as it has the request; only the client takes its time."""
    backend = Recorder()

    def slowly() -> Iterator[bytes]:
        for _ in range(6):
            yield b"x"
            threading.Event().wait(0.25)

    with served(backend) as behind, gateway_before(behind, first_byte_timeout_s=1.0) as port:
        url = f"http://127.0.0.1:{port}/v1/files"
        assert httpx.post(url, content=slowly(), timeout=PATIENCE_S).status_code == 200


# An answer on its way


@pytest.mark.parametrize("http", SERVERS)
def test_an_answer_reaches_the_client_as_it_was_given(http: str) -> None:
    """Status, body and headers, those given twice too; not those about one connection."""

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(
            b"HTTP/1.1 207 Odd\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\nX-Unknown: yes\r\nServer: vllm\r\n"
            b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nKeep-Alive: timeout=5\r\nConnection: close, X-Private\r\n"
            b"X-Private: 1\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"
            b'{"a":\r\n1.0}\n'
        )

    with raw_backend(answer) as behind, gateway_before(behind, http=http) as port:
        response = post(port)
    assert response.status_code == 207
    assert response.content == b'{"a":\r\n1.0}\n'
    headers = [item for item in response.headers.multi_items() if item[0] != "connection"]
    assert sorted(headers) == [
        ("content-length", "12"),
        ("content-type", "application/json"),
        ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("server", "vllm"),
        ("set-cookie", "a=1; Path=/"),
        ("set-cookie", "b=2"),
        ("x-unknown", "yes"),
    ]


def test_a_cookie_of_one_client_is_not_sent_for_another() -> None:
    backend = Recorder(headers=[(b"set-cookie", b"session=secret")])
    with served(backend) as behind, gateway_before(behind) as port:
        post(port)
        post(port)
    assert backend.last.header(b"cookie") == []


def test_a_compressed_answer_stays_compressed() -> None:
    packed = gzip.compress(b'{"ok":true}')
    backend = Recorder(headers=[(b"content-encoding", b"gzip")], body=packed)
    with served(backend) as behind, gateway_before(behind) as port:
        answer = ask(port, post_head(CHAT_PATH, f"Content-Length: {len(TEXT)}", "Connection: close") + TEXT)
    assert b"content-encoding: gzip\r\n" in answer
    assert packed in answer


def test_a_redirect_is_the_clients_to_follow() -> None:
    backend = Recorder(307, headers=[(b"location", b"/elsewhere")], body=b"")
    with served(backend) as behind, gateway_before(behind) as port:
        response = post(port)
    assert (response.status_code, response.headers["location"]) == (307, "/elsewhere")
    assert len(backend.received) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"error":{"message":"too long","type":"BadRequestError","param":"input_tokens","code":400}}'),
        (401, b'{"error":"Unauthorized"}'),
        (404, b'{"detail": "Not Found"}'),
        (413, b"<h1>Too large</h1>"),
        (429, b'{"error":{"code":429}}'),
        (500, b'{"error":{"message":"boom","type":"InternalServerError","param":null,"code":500}}'),
        (503, b"\xff\x00 not even text"),
    ],
)
def test_errors_of_the_backend_pass_verbatim(status: int, body: bytes) -> None:
    backend = Recorder(status, headers=[(b"content-type", b"application/json"), (b"retry-after", b"7")], body=body)
    with served(backend) as behind, gateway_before(behind) as port:
        response = post(port)
    assert (response.status_code, response.content) == (status, body)
    assert response.headers["retry-after"] == "7"
    assert len(backend.received) == 1  # it is not tried again


def test_a_413_given_while_the_upload_goes_on_reaches_the_client() -> None:
    """The backend answers after the head, and reads on so that its answer is not lost."""
    body = b'{"error":"too large"}'

    def answer(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        read_all(connection)

    with raw_backend(answer) as behind, gateway_before(behind) as port:
        response = post(port, b"x" * 5_000_000, path="/v1/files")
    assert (response.status_code, response.content) == (413, body)


def test_after_a_500_its_connection_is_not_used_again() -> None:
    """vLLM closes a connection after a 500 without saying so; a request that took it would be lost."""
    connections: list[int] = []

    def answer(connection: socket.socket) -> None:
        connections.append(1)
        read_request(connection)
        if len(connections) == 1:
            connection.sendall(b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\n{}")
            read_until(connection, b"\r\n\r\n")  # whoever comes back is hung up on
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")

    with raw_backend(answer) as behind, gateway_before(behind) as port:
        assert post(port).status_code == 500
        assert post(port).status_code == 200
    assert len(connections) == 2


def test_after_a_500_that_ends_its_connection_the_next_request_works() -> None:
    statuses = iter([b"500 Oops", b"200 OK"])

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 %s\r\ncontent-length: 2\r\n\r\n{}" % next(statuses))

    with raw_backend(answer) as behind, gateway_before(behind) as port:
        assert post(port).status_code == 500
        threading.Event().wait(0.3)  # the end of the connection is on its way
        assert post(port).status_code == 200


def test_connections_to_the_backend_are_kept() -> None:
    backend = Recorder()
    with served(backend) as behind, gateway_before(behind) as port:
        for _ in range(3):
            post(port)
    clients = [request.scope["client"] for request in backend.received]
    assert all(one == other for one, other in pairwise(clients))


@pytest.mark.parametrize("http", SERVERS)
def test_server_sent_events_pass_one_by_one(http: str) -> None:
    """The second event is made only after the client has seen the first."""
    first_seen = threading.Event()

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(SSE_HEAD + chunk(b"data: 1\n\n"))
        assert first_seen.wait(PATIENCE_S)
        connection.sendall(chunk(b": keep-alive\n\n") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    with (
        raw_backend(answer) as behind,
        gateway_before(behind, http=http) as port,
        httpx.stream("POST", f"http://127.0.0.1:{port}{CHAT_PATH}", content=TEXT, timeout=PATIENCE_S) as response,
    ):
        chunks = response.iter_raw()
        assert next(chunks) == b"data: 1\n\n"
        first_seen.set()
        assert b"".join(chunks) == b": keep-alive\n\ndata: [DONE]\n\n"


def test_a_client_that_does_not_read_holds_the_backend_up() -> None:
    """Or else the gateway would store the answer."""
    sent, most = 0, 100_000_000
    stuck = threading.Event()

    def pour(connection: socket.socket) -> None:
        nonlocal sent
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % most)
        connection.settimeout(0.5)
        try:
            while sent < most:
                sent += connection.send(b"x" * 65_536)
        finally:
            stuck.set()

    with raw_backend(pour) as behind, gateway_before(behind) as port, connected(port) as connection:
        connection.sendall(post_head("/v1/files", "Content-Length: 0"))
        assert stuck.wait(PATIENCE_S)
    assert 0 < sent < most // 2


def test_a_backend_that_does_not_read_holds_the_client_up() -> None:
    """Or else the gateway would store the upload."""
    sent, most = 0, 100_000_000
    over = threading.Event()

    def ignore(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        over.wait(PATIENCE_S)

    with raw_backend(ignore) as behind, gateway_before(behind) as port, connected(port) as connection:
        connection.sendall(post_head("/v1/files", f"Content-Length: {most}"))
        connection.settimeout(0.5)
        with suppress(TimeoutError):
            while sent < most:
                sent += connection.send(b"x" * 65_536)
        over.set()
    assert 0 < sent < most // 2


# Leaving


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize("body", [TEXT, chat(image_part(PHONE.read_bytes()))], ids=["text", "picture"])
def test_a_client_that_leaves_mid_stream_ends_the_work_of_the_backend(http: str, body: bytes) -> None:
    left = threading.Event()

    async def events() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"data: 1\n\n"
                await asyncio.sleep(0.01)
        finally:
            left.set()

    async def backend(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        await StreamingResponse(events(), media_type="text/event-stream")(scope, receive, send)

    with served(backend) as behind, gateway_before(behind, http=http) as port:
        with connected(port) as connection:
            connection.sendall(post_head(CHAT_PATH, f"Content-Length: {len(body)}") + body)
            read_until(connection, b"data: 1\n\n")
            assert not left.is_set()
        assert left.wait(PATIENCE_S)


@pytest.mark.parametrize(
    "request_",
    [
        post_head(CHAT_PATH, f"Content-Length: {len(TEXT)}") + TEXT,
        pytest.param(b"GET /v1/stream HTTP/1.1\r\nHost: edge\r\n\r\n"),
        pytest.param(b"POST /v1/wait HTTP/1.1\r\nHost: edge\r\n\r\n"),
    ],
    ids=["POST", "GET", "POST without body"],
)
@pytest.mark.parametrize("begun", [True, False], ids=["mid-stream", "before the first byte"])
def test_the_backends_connection_is_closed_when_the_client_leaves(request_: bytes, begun: bool) -> None:
    """The backend is silent; that its connection ends is all that it can learn."""
    asked, left = threading.Event(), threading.Event()

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        if begun:
            connection.sendall(SSE_HEAD + chunk(b"data: 1\n\n"))
        asked.set()
        connection.settimeout(2)
        if connection.recv(1) == b"":
            left.set()

    with raw_backend(answer) as behind, gateway_before(behind) as port:
        with connected(port) as connection:
            connection.sendall(request_)
            assert asked.wait(PATIENCE_S)
            if begun:
                read_until(connection, b"data: 1\n\n")
        assert left.wait(3)


def test_a_client_that_leaves_during_its_upload_ends_quietly(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        read_all(connection)
        ended.set()

    with raw_backend(answer) as behind, gateway_before(behind) as port:
        with connected(port) as connection:
            connection.sendall(post_head("/v1/files", "Content-Length: 1000000") + b"x" * 1_000)
            threading.Event().wait(0.1)  # the upload is under way
        assert ended.wait(PATIENCE_S)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# Backends that fail


def test_a_backend_that_is_down_is_a_502() -> None:
    with gateway_before(free_port()) as port:
        response = post(port)
    assert (response.status_code, code_of(response)) == (502, "backend_unavailable")


def test_a_backend_of_unknown_name_is_a_502() -> None:
    """`.invalid` never resolves (RFC 6761)."""
    with gateway_before(80, backend_url="http://nowhere.invalid:{}") as port:
        response = post(port)
    assert (response.status_code, code_of(response)) == (502, "backend_unavailable")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"220 smtp.example ESMTP\r\n"])
def test_a_backend_that_hangs_up_or_speaks_no_http_is_a_502(answer: bytes) -> None:
    def hang_up(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer)

    with raw_backend(hang_up) as behind, gateway_before(behind) as port:
        response = post(port)
    assert (response.status_code, code_of(response)) == (502, "backend_unavailable")


def test_a_backend_that_does_not_begin_to_answer_is_a_504() -> None:
    gone = threading.Event()

    def wait(connection: socket.socket) -> None:
        read_request(connection)
        read_all(connection)
        gone.set()

    with raw_backend(wait) as behind, gateway_before(behind, first_byte_timeout_s=0.3) as port:
        response = post(port)
        assert gone.wait(PATIENCE_S)  # and nobody waits for it any longer
    assert (response.status_code, code_of(response)) == (504, "backend_timeout")


def test_a_backend_that_takes_no_connection_is_a_504() -> None:
    """A listener whose queue is full drops what comes, as a host behind a silent firewall does."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        behind = full.getsockname()[1]
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", behind))
        with gateway_before(behind, connect_timeout_s=0.3) as port:
            response = post(port)
    assert (response.status_code, code_of(response)) == (504, "backend_timeout")


def test_a_stream_cut_by_the_backend_ends_with_an_error_event() -> None:
    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(SSE_HEAD + chunk(b"data: 1\n\n"))

    with raw_backend(cut) as behind, gateway_before(behind) as port:
        response = post(port)
    assert response.status_code == 200
    assert events_of(response)[0] == b"1"
    assert orjson.loads(events_of(response)[-1])["error"]["code"] == "backend_unavailable"
    assert len(events_of(response)) == 2


def test_a_stream_cut_within_an_event_still_ends_with_an_error_event() -> None:
    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(SSE_HEAD + chunk(b"data: 1\n\n") + chunk(b'data: {"choi'))

    with raw_backend(cut) as behind, gateway_before(behind) as port:
        events = events_of(post(port))
    assert orjson.loads(events[-1])["error"]["code"] == "backend_unavailable"


def test_a_stream_that_falls_silent_ends_with_an_error_event() -> None:
    def stop(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(SSE_HEAD + chunk(b"data: 1\n\n"))
        read_all(connection)

    with raw_backend(stop) as behind, gateway_before(behind, idle_timeout_s=0.3) as port:
        response = post(port)
    assert orjson.loads(events_of(response)[-1])["error"]["code"] == "backend_timeout"


def test_a_slow_stream_that_never_falls_silent_is_not_cut() -> None:
    def drip(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(SSE_HEAD)
        for number in range(6):
            threading.Event().wait(0.3)
            connection.sendall(chunk(b"data: %d\n\n" % number))
        connection.sendall(b"0\r\n\r\n")

    with raw_backend(drip) as behind, gateway_before(behind, idle_timeout_s=1.5, first_byte_timeout_s=1.5) as port:
        assert events_of(post(port)) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def events_of(response: httpx.Response) -> list[bytes]:
    """The data of each server-sent event."""
    events = [event for event in response.content.split(b"\n\n") if event]
    return [event.strip().removeprefix(b"data: ") for event in events]


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize(
    "half",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n" + b"x" * 50,
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"x" * 50),
    ],
    ids=["with length", "chunked"],
)
def test_an_answer_cut_by_the_backend_is_seen_to_be_incomplete(half: bytes, http: str) -> None:
    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(half)

    with (
        raw_backend(cut) as behind,
        gateway_before(behind, http=http) as port,
        pytest.raises(httpx.RemoteProtocolError, match=r"incomplete|without sending complete"),
    ):
        post(port)


def test_the_gateway_is_well_after_every_failure() -> None:
    """One gateway, one backend: whatever went before, the next request is answered."""
    failures = iter(
        [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", SSE_HEAD + chunk(b"data: 1\n\n"), SSE_HEAD + b"zz"]
    )

    def answer(connection: socket.socket) -> None:
        if b" /fail " in read_request(connection):
            connection.sendall(next(failures))
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")

    with raw_backend(answer) as behind, gateway_before(behind) as port:
        for _ in range(4):
            with connected(port) as connection:
                connection.sendall(post_head("/fail", "Content-Length: 0", "Connection: close"))
                read_all(connection)
            assert post(port).status_code == 200
    assert next(failures, None) is None


def test_a_broken_backend_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def cut(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(SSE_HEAD + chunk(b"data: 1\n\n"))

    with raw_backend(cut) as behind, gateway_before(behind) as port:
        post(port)
    wait_until(lambda: "backend_unavailable" in caplog.text)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "status"),
    [(b"304 Not Modified\r\ncontent-length: 2", 304), (b"204 No Content", 204), (b"999 Odd\r\ncontent-length: 0", 502)],
)
def test_an_odd_status_ends_in_an_answer(answer: bytes, status: int, caplog: pytest.LogCaptureFixture) -> None:
    def backend(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 %s\r\n\r\n" % answer)

    with raw_backend(backend) as behind, gateway_before(behind) as port:
        assert post(port).status_code == status
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.exc_info]


def test_a_root_path_is_ours_and_not_the_backends() -> None:
    backend = Recorder()
    with served(backend) as behind:
        app = create_app(Settings(gateway=GatewaySettings(backend=f"http://127.0.0.1:{behind}", ask_backend=False)))
        with served(app, root_path="/base") as port:
            post(port)
    assert backend.last.target == CHAT_PATH.encode()
    assert backend.last.header(b"x-modality-type") == [b"text_only"]
