"""
EdgeMiddleware: prepare the pictures of a request before the app sees them. Pure ASGI.

The response is never wrapped, but for adding headers to it; so streams pass as the app sends them.
"""

import logging
import mmap
from collections.abc import Iterable, Iterator

import anyio
import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vlm_edge.edge import Edge, Prepared
from vlm_edge.errors import BodyTooLarge, EdgeError, Overloaded, UnsupportedEncoding
from vlm_edge.report import Observer
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
        path = posted_path(scope)
        dialect = ENDPOINTS.get(path)
        if dialect is None:
            await self.app(scope, receive, send)
            return
        try:
            check_head(scope["headers"], self.max_body_bytes)
            message = await receive()
            receive = again(message, receive)
            if message.get("more_body") or not dialect.holds_none(message.get("body", b"")):
                scope, receive, send = await self._prepare(path, scope, receive, send)
        except ClientLeft:
            return
        except EdgeError as error:
            self._refused(error)
            await refuse(error, dialect, receive, send)
            return
        await self.app(scope, receive, send)

    async def _prepare(self, path: str, scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
        """What to call the app with: the request with its pictures prepared, if it has any."""
        body = await read_body(scope, receive, self.max_body_bytes)
        found = self.edge.find(path, body)
        if found:
            decision = self.edge.decide(found, Headers(raw=scope["headers"]))
            prepared = await self.edge.carry_out(decision)
            body = prepared.body
            scope, send = self._reported(prepared, scope, send)
        return scope, replay(body, receive), send

    def _refused(self, error: EdgeError) -> None:
        log.info("refused: %s at %s", error.code, error.param)
        if self.observer:
            self.observer.refused(error)

    def _reported(self, prepared: Prepared, scope: Scope, send: Send) -> tuple[Scope, Send]:
        report = prepared.report
        if not report:
            return scope, send
        if self.observer:
            self.observer.prepared(report)
        return {**with_length(scope, len(prepared.body)), REPORT_KEY: report}, with_headers(report.headers(), send)


def posted_path(scope: Scope) -> str:
    """The path of a POST below the app's mount point; of anything else, none."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return ""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


async def read_body(scope: Scope, receive: Receive, allowed: int) -> Raw:
    """The whole body of a request.

    Raises UnsupportedEncoding, BodyTooLarge as soon as the bound is crossed or declared to be, and ClientLeft.
    """
    declared = check_head(scope["headers"], allowed)
    upload, more = None, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        piece, more = message.get("body", b""), message.get("more_body", False)
        if not more and upload is None and len(piece) <= allowed:
            return bytes(piece)  # it came whole, as small ones do
        upload = upload or Upload(declared)
        upload.add(piece)
        if upload.length > allowed:
            raise BodyTooLarge(upload.length, allowed)
    return upload.body() if upload else b""


def check_head(headers: Iterable[tuple[bytes, bytes]], allowed: int) -> int:
    """The declared length of the body, 0 if there is none. Raises UnsupportedEncoding and BodyTooLarge."""
    declared = 0
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            declared = int(value[:20])  # a longer one is too large whatever it says
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise UnsupportedEncoding(value.decode("latin-1"))
    if declared > allowed:
        raise BodyTooLarge(declared, allowed)
    return declared


class Upload:
    """Pieces put together without a long pause: joining or moving tens of megabytes would hold up the event loop.

    A body of declared length goes into an anonymous map, of which a page becomes memory when it is written.
    """

    def __init__(self, declared: int) -> None:
        self.length = 0
        self._whole: mmap.mmap | bytearray = mmap.mmap(-1, declared) if declared else bytearray()

    def add(self, piece: bytes) -> None:
        start, self.length = self.length, self.length + len(piece)
        if isinstance(self._whole, bytearray):
            self._whole += piece
        elif self.length <= len(self._whole):
            self._whole[start : self.length] = piece
        else:  # the client's word on the length was wrong
            self._whole = bytearray(self._whole[:start]) + piece

    def body(self) -> Raw:
        return self._whole if self.length == len(self._whole) else bytearray(self._whole[: self.length])


def again(message: Message, receive: Receive) -> Receive:
    """A receive that gives a message back first, and then what the client really sends."""
    messages = [message]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received


def replay(body: Raw, receive: Receive) -> Receive:
    """A receive that gives the body once, in pieces, and then what the client really sends: its disconnect."""
    messages = _pieces(body)

    async def replayed() -> Message:
        return next(messages, None) or await receive()

    return replayed


def _pieces(body: Raw) -> Iterator[Message]:
    view = memoryview(body)
    for start in range(0, len(view) or 1, PIECE_BYTES):
        stop = start + PIECE_BYTES
        yield {"type": "http.request", "body": bytes(view[start:stop]), "more_body": stop < len(view)}


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
