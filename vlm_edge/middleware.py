"""
EdgeMiddleware: prepare the pictures of a request before the app sees them. Pure ASGI.

The response is never wrapped, but for adding headers to it; so streams pass as the app sends them.
"""

import logging
from collections.abc import Iterable

import anyio
import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vlm_edge.edge import Edge
from vlm_edge.errors import BodyTooLarge, EdgeError, Overloaded, UnsupportedEncoding
from vlm_edge.report import Observer, Report
from vlm_edge.requests.body import Raw
from vlm_edge.requests.endpoints import ENDPOINTS, Dialect
from vlm_edge.settings import Settings

log = logging.getLogger("vlm_edge")

REPORT_KEY = "vlm_edge.report"  # where the app finds the Report in the scope

# A body is handed on in pieces, for copying tens of megabytes at once would hold up the event loop.
PIECE_BYTES = 1024 * 1024

# A refused client that is still uploading is listened to for so long, that it may come to read the answer.
DRAIN_BYTES = 256 * 1024 * 1024
DRAIN_S = 10.0

_RawHeaders = list[tuple[bytes, bytes]]


class ClientLeft(Exception):
    """The client disconnected before its body was complete; there is nobody to answer."""


class EdgeMiddleware:
    """Complete without arguments: settings come from VLM_EDGE_CONFIG, else they are the defaults.

    `edge` shares one Edge between several middlewares; `observer` is told of every Report and every refusal.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings | None = None,
        edge: Edge | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.app = app
        self.edge = edge or Edge(settings or Settings.from_env())
        self.observer = observer
        self.max_body_bytes = self.edge.settings.limits.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = _dialect(scope)
        if dialect is None:
            await self.app(scope, receive, send)
            return
        try:
            headers = Headers(raw=scope["headers"])
            body = await read_body(headers, receive, self.max_body_bytes)
            prepared = await self.edge.prepare_async(_path(scope), body, headers)
        except ClientLeft:
            return
        except EdgeError as error:
            self._refused(error)
            await refuse(error, dialect, receive, send)
            return
        if prepared.report:
            scope, send = self._reported(prepared.report, len(prepared.body), scope, send)
        await self.app(scope, replay(prepared.body, receive), send)

    def _refused(self, error: EdgeError) -> None:
        log.info("refused: %s at %s", error.code, error.param)
        if self.observer:
            self.observer.refused(error)

    def _reported(self, report: Report, length: int, scope: Scope, send: Send) -> tuple[Scope, Send]:
        if self.observer:
            self.observer.prepared(report)
        return {**with_length(scope, length), REPORT_KEY: report}, with_headers(report.headers(), send)


def _dialect(scope: Scope) -> Dialect | None:
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    return ENDPOINTS.get(_path(scope))


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


async def read_body(headers: Headers, receive: Receive, allowed: int) -> bytearray:
    """The whole body, as soon as it is known to be ours to read.

    Raises UnsupportedEncoding, BodyTooLarge as soon as the bound is crossed or declared to be, and ClientLeft.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedEncoding(encoding)
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > allowed:
        raise BodyTooLarge(int(declared), allowed)
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > allowed:
            raise BodyTooLarge(len(body), allowed)
    return body


def replay(body: Raw, receive: Receive) -> Receive:
    """A receive that gives the body once, in pieces, and then what the client really sends: its disconnect."""
    view, at, done = memoryview(body), 0, False

    async def replayed() -> Message:
        nonlocal at, done
        if done:
            return await receive()
        piece = bytes(view[at : at + PIECE_BYTES])
        at += len(piece)
        done = at >= len(view)
        return {"type": "http.request", "body": piece, "more_body": not done}

    return replayed


def with_length(scope: Scope, length: int) -> Scope:
    """The scope of a request whose body has `length` bytes now."""
    stale = (b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in stale]
    return {**scope, "headers": [*headers, (b"content-length", b"%d" % length)]}


def with_headers(headers: Iterable[tuple[bytes, bytes]], send: Send) -> Send:
    """A send that adds headers to the start of the response and lets all else pass."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return sent


async def refuse(error: EdgeError, dialect: Dialect, receive: Receive, send: Send) -> None:
    """Answer in the words of the dialect. After a 413 the client may still upload: it gets the time to read."""
    unread = isinstance(error, BodyTooLarge | UnsupportedEncoding)
    body = orjson.dumps(dialect.error_body(error))
    headers = _error_headers(error, len(body), close=unread)
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": unread})
    if unread:
        await _drain(receive)
        await send({"type": "http.response.body", "body": b""})


def _error_headers(error: EdgeError, length: int, *, close: bool) -> _RawHeaders:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
    if isinstance(error, Overloaded):
        headers.append((b"retry-after", b"%d" % error.retry_after_s))
    if close:
        headers.append((b"connection", b"close"))
    return headers


async def _drain(receive: Receive) -> None:
    """Read and forget, within bounds: a server that closes on unread bytes resets the answer away."""
    seen = 0
    with anyio.move_on_after(DRAIN_S):
        while seen <= DRAIN_BYTES:
            message = await receive()
            seen += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return
