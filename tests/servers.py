"""Servers for the tests: real ones on free ports of this machine, and backends that misbehave on purpose."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from vlm_edge import Settings
from vlm_edge.gateway.app import create_app
from vlm_edge.gateway.config import GatewaySettings

# However wrong things go, no test waits longer than this for a byte or an event.
PATIENCE_S = 15.0

Headers = Iterable[tuple[bytes, bytes]]


class _Server(uvicorn.Server):
    async def main_loop(self) -> None:
        """uvicorn looks ten times a second whether to end; with hundreds of servers that adds up."""
        while not self.should_exit:  # noqa: ASYNC110 - a flag that another thread sets
            await asyncio.sleep(0.005)


@contextmanager
def served(app: ASGIApp, **options: Any) -> Iterator[int]:
    """An ASGI app under uvicorn, in a thread; its port. uvicorn logs where pytest can see it."""
    settings: dict[str, Any] = {"log_config": None, "server_header": False, "date_header": False, "ws": "none"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = _Server(uvicorn.Config(app, timeout_graceful_shutdown=1, **settings | options))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)


@contextmanager
def gateway_before(
    backend: int, *, backend_url: str = "http://127.0.0.1:{}", http: str = "httptools", **settings: Any
) -> Iterator[int]:
    """The gateway in front of a backend on this port; the gateway's own port."""
    gateway = GatewaySettings(backend=backend_url.format(backend), ask_backend=False, **settings)
    with served(create_app(Settings(gateway=gateway)), http=http) as port:
        yield port


@contextmanager
def raw_backend(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server without any HTTP of its own: `answer` is given each connection, which is closed behind it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads: list[threading.Thread] = []

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(PATIENCE_S)
                answer(connection)

        def accept() -> None:
            with suppress(OSError):  # the listener was shut down
                while True:
                    threads.append(threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True))
                    threads[-1].start()

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        for thread in (acceptor, *threads):
            thread.join(PATIENCE_S)


@dataclass(frozen=True)
class Received:
    """A request as the app saw it."""

    method: str
    target: bytes  # path as it was written, and query
    headers: list[tuple[bytes, bytes]]
    body: bytes
    scope: Scope

    def header(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]


@dataclass
class Recorder:
    """An ASGI app that keeps what it receives and gives one answer to all."""

    status: int = 200
    headers: Headers = ((b"content-type", b"application/json"),)
    body: bytes = b'{"ok":true}'
    received: list[Received] = field(default_factory=list)

    @property
    def last(self) -> Received:
        return self.received[-1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            assert message["type"] == "http.request"
            body += message.get("body", b"")
            more = message.get("more_body", False)
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        self.received.append(Received(scope["method"], target, list(scope["headers"]), body, scope))
        await send({"type": "http.response.start", "status": self.status, "headers": list(self.headers)})
        await send({"type": "http.response.body", "body": self.body})


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)) as connection:
        yield connection


def post_head(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: edge", *headers, "", ""]).encode()


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What arrives until `mark` has, or the other side closes."""
    seen = b""
    while mark not in seen and (piece := connection.recv(65_536)):
        seen += piece
    return seen


def read_all(connection: socket.socket) -> bytes:
    """What arrives until the other side closes."""
    seen = b""
    while piece := connection.recv(65_536):
        seen += piece
    return seen


def read_request(connection: socket.socket) -> bytes:
    """One request with the body that its content-length declares."""
    seen = read_until(connection, b"\r\n\r\n")
    head, _, body = seen.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = sum(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
    while len(body) < length and (piece := connection.recv(65_536)):
        body += piece
    return head + b"\r\n\r\n" + body


def wait_until(met: Callable[[], bool]) -> None:
    """Wait for what another thread will do; a condition that is never met is a failure."""
    deadline = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
