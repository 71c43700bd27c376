"""
EdgeMiddleware: prepare the pictures of a request before the app sees them. Pure ASGI.

The response is never changed, but for adding headers to it; streams pass as the app sends them. What an answer says of
its usage is read as it passes, and compared with what was planned.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from posixpath import normpath

import anyio
import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vlm_edge.access import Check, check_of, let_in
from vlm_edge.checkpoint import loaded
from vlm_edge.decision import Prepared
from vlm_edge.drift import Drift, Drifts, Expected, Usage, UsageReader, drift, explained, reader_of, warning
from vlm_edge.edge import Edge
from vlm_edge.errors import (
    BodyTooLarge,
    EdgeError,
    InvalidJson,
    InvalidPath,
    Overloaded,
    Unauthorized,
    UnexpectedMedia,
    UnsupportedEncoding,
    UploadTimeout,
)
from vlm_edge.report import Observer, Report
from vlm_edge.requests.body import Raw
from vlm_edge.requests.endpoints import CHAT, ENDPOINT_STARTS, ENDPOINTS, Dialect
from vlm_edge.settings import Settings
from vlm_edge.upload import ClientLeft, Later, at_once, check_head, in_time, read_body

log = logging.getLogger("vlm_edge")
drift_log = logging.getLogger("vlm_edge.drift")

REPORT_KEY = "vlm_edge.report"  # where the app finds the Report in the scope
SETTINGS_KEY = "vlm_edge.settings"  # and another instance those by which it was made

# A body is handed on in pieces, for copying tens of megabytes at once would hold up the event loop.
PIECE_BYTES = 1024 * 1024

# A refused client that is still uploading is listened to for so long, that it may come to read the answer.
DRAIN_BYTES = 256 * 1024 * 1024
DRAIN_S = 10.0

# Refusals of requests whose body has not been read to its end.
_UNREAD = (BodyTooLarge, InvalidPath, Unauthorized, UnsupportedEncoding, UploadTimeout)

_PARAMETERS = re.compile(r";[^/]*")
_BEFORE_OBJECT = re.compile(rb"[\s\0\xef\xbb\xbf\xfe\xff]*+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_RawHeaders = list[tuple[bytes, bytes]]


class EdgeMiddleware:
    """Complete without arguments: settings come from VLM_EDGE_CONFIG, else they are the defaults.

    `edge` shares one Edge between several middlewares; `observer` is told of every Report and every refusal. `check`
    says of a scope, of HTTP or a websocket, whether it may come in, before anything is done for it; without it, the
    settings' `api_keys` do.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings | None = None,
        edge: Edge | None = None,
        observer: Observer | None = None,
        check: Check | None = None,
    ) -> None:
        self.app = app
        self.edge = edge or Edge(settings or Settings.from_env())
        self.observer = observer
        self.settings = self.edge.settings
        self.upload, self.max_body_bytes = self.settings.upload, self.settings.limits.max_body_bytes
        self.check = check or check_of(self.settings.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = posted_path(scope)
        dialect = ENDPOINTS.get(path)
        try:
            if self.check:
                await let_in(self.check, scope)
            if dialect:
                _, encoding = check_head(scope["headers"], self.max_body_bytes)
                message = at_once(receive)
                if isinstance(message, Later):
                    message = await in_time(message, self.upload)
                receive = again(message, receive)
                first = message.get("body", b"")
                unclear = encoding or message.get("more_body") or not dialect.holds_none(first)
                if unclear and not (is_form(scope, first) or self._has_been_prepared(scope)):
                    scope, receive, send = await self._prepare(path, scope, receive, send)
            elif scope["type"] == "http":
                receive = await self._search(path, scope, receive)
        except ClientLeft:
            return
        except EdgeError as error:
            self._refused(error)
            await refuse(error, dialect or CHAT, receive, send, websocket=scope["type"] == "websocket")
            return
        await self.app(scope, receive, send)

    async def _prepare(self, path: str, scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
        """What to call the app with: the request unpacked, and with its pictures prepared, if it has any."""
        body, headers = await self._read(scope, receive), Headers(raw=scope["headers"])
        await self._learn(scope)
        if "content-encoding" in headers:
            scope = with_length(scope, len(body))
        try:
            prepared = await self.edge.prepare_async(path, body, headers)
        except InvalidJson:
            if not is_below(path, scope) or begins_object(body):
                raise
            return scope, replay(body, receive), send  # another app's path ends as ours do
        scope, send = self._reported(prepared, scope, send)
        return scope, replay(prepared.body, receive), send

    async def _learn(self, scope: Scope) -> None:
        """Once: what the server that we are mounted in has loaded, if it is one that tells."""
        if not self.edge.models.knows_server:
            found = loaded(getattr(scope.get("app"), "state", None))
            if found:
                await self.edge.learn(found)
                _show_drift(self.edge.drifts)

    async def _search(self, path: str, scope: Scope, receive: Receive) -> Receive:
        """Of a path that is no endpoint: the body as it came, in which no medium was found."""
        check_path(scope)
        headers = Headers(raw=scope["headers"])
        if not path or self.settings.unknown_paths == "pass" or not is_json(headers):
            return receive
        body = await self._read(scope, receive)
        if await self.edge.holds_data_url(body):
            raise UnexpectedMedia
        return replay(body, receive)

    def _has_been_prepared(self, scope: Scope) -> bool:
        """Whether another instance has done all that this one would do."""
        return scope.get(SETTINGS_KEY) == self.settings

    async def _read(self, scope: Scope, receive: Receive) -> Raw:
        return await read_body(scope, receive, self.max_body_bytes, self.upload)

    def _refused(self, error: EdgeError) -> None:
        log.info("refused: %s at %s", error.code, error.param)
        if self.observer:
            self.observer.refused(error)

    def _reported(self, prepared: Prepared, scope: Scope, send: Send) -> tuple[Scope, Send]:
        report = prepared.report
        if not report:
            return scope, send
        earlier: Report | None = scope.get(REPORT_KEY)
        report = report.following(earlier)
        if self.observer:
            self.observer.prepared(report)
        told = {REPORT_KEY: report, SETTINGS_KEY: self.settings}
        send = self._compared(report, with_headers(report.headers(), send, whole=earlier is not None))
        return {**with_length(scope, len(prepared.body)), **told}, send

    def _compared(self, report: Report, send: Send) -> Send:
        """A send that reads the usage of the answer on its way, where the report tells what it should be."""
        expected = report.expected
        return watched(send, partial(self._saw, report, expected)) if expected else send

    def _saw(self, report: Report, expected: Expected, usage: Usage) -> None:
        found = drift(expected, usage)
        if self.edge.drifts.saw(report.model, found) and found:
            drift_log.warning("%s", warning(report.model, found, self._reason(report, found)))

    def _reason(self, report: Report, found: Drift) -> str:
        if found.where != "vision" or report.videos:
            return ""
        rule = self.edge.models.get(report.model).model.rule
        return explained(rule, [picture.size_after for picture in report.pictures], found.found)


def _show_drift(drifts: Drifts) -> None:
    """In a server that tells of itself: vLLM shows the metrics of its process, and its root logger drops warnings."""
    from vlm_edge.metrics import share_drift

    share_drift(drifts)
    if drift_log.level == logging.NOTSET:
        drift_log.setLevel(logging.WARNING)


def watched(send: Send, saw: Callable[[Usage], None]) -> Send:
    """A send that passes every message at once and reads the answer behind it."""
    reader: UsageReader | None = None

    async def sent(message: Message) -> None:
        nonlocal reader
        await send(message)
        if message["type"] == "http.response.start":
            reader = reader_of(message["status"], message.get("headers", ()))
        elif reader and message["type"] == "http.response.body":
            reader.feed(message.get("body", b""))
            if not message.get("more_body", False):
                usage, reader = reader.usage(), None
                if usage:
                    saw(usage)

    return sent


def posted_path(scope: Scope) -> str:
    """The path of a POST; of an endpoint, without what it is mounted below. Of anything else, none."""
    if scope["type"] != "http" or scope["method"].upper() != "POST":  # aiohttp sends it in capitals
        return ""
    path: str = scope["path"]
    if path in ENDPOINTS:  # an app may be mounted at /v1
        return path
    root: str = scope.get("root_path", "")
    below = path[len(root) :] if root and path.startswith(root + "/") else path
    return below if below in ENDPOINTS else _endpoint_in(below)


def _endpoint_in(path: str) -> str:
    """The endpoint that a path ends in, else the path. One of a single step, `/score`, is too common for that.

    A path is read as proxies put it right: without empty steps, dots and parameters.
    """
    plain = "/" + normpath(_PARAMETERS.sub("", path)).lstrip("/")
    ends = (plain[plain.rfind(start) :] for start in ENDPOINT_STARTS if start in plain)
    return next((end for end in (plain, *ends) if end in ENDPOINTS), path)


def is_below(path: str, scope: Scope) -> bool:
    """Whether an endpoint is known by the end of its path alone."""
    return scope["path"] not in (path, scope.get("root_path", "") + path)


def begins_object(body: Raw) -> bool:
    """Whether a body begins as requests do, in UTF-8 or another encoding that Python's `json` reads and we do not."""
    begin = _BEFORE_OBJECT.match(body)
    return begin is not None and body[begin.end() : begin.end() + 1] == b"{"


def check_path(scope: Scope) -> None:
    """Raises InvalidPath for what routers read in their own ways: to Starlette's, a line feed at the end is none."""
    if scope["type"] == "http" and _CONTROL.search(scope["path"]):
        raise InvalidPath


def is_json(headers: Headers) -> bool:
    """Whether a body is declared to be JSON, and plain."""
    plain = headers.get("content-encoding", "").strip().lower() in ("", "identity")
    return plain and "json" in headers.get("content-type", "").lower()


def is_form(scope: Scope, first: bytes) -> bool:
    """Whether a body is a form, as JSON cannot begin: no endpoint takes one, and apps have paths of the same names."""
    declared = Headers(raw=scope["headers"]).get("content-type", "")
    return declared.lower().startswith("multipart/") and first.lstrip(b"\r\n").startswith(b"--")


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
    """The scope of a request whose body has `length` bytes now, plain ones."""
    stale = (b"content-length", b"content-encoding", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in stale]
    return {**scope, "headers": [*headers, (b"content-length", b"%d" % length)]}


def with_headers(headers: Sequence[tuple[bytes, bytes]], send: Send, *, whole: bool) -> Send:
    """A send that adds the headers of a report to the start of the response; all else passes.

    A report that is `whole`, of all instances in this process, is marked for those outside, which then leave it. One
    that a backend tells is about what it got from us, so ours stands in its place.
    """

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and not message.get(REPORT_KEY):
            theirs = [one for one in message.get("headers", ()) if not one[0].lower().startswith(b"x-vlm-edge-")]
            message = {**message, "headers": [*theirs, *headers], REPORT_KEY: whole}
        await send(message)

    return sent


async def refuse(error: EdgeError, dialect: Dialect, receive: Receive, send: Send, *, websocket: bool = False) -> None:
    """Answer in the words of the dialect. The client of an unread body may still upload: it gets the time to read."""
    if websocket:
        await send({"type": "websocket.close", "code": 1008, "reason": error.message})
        return
    unread = isinstance(error, _UNREAD)
    uploading = unread and not isinstance(error, UploadTimeout)
    body = orjson.dumps(dialect.error_body(error))
    headers = _error_headers(error, len(body), close=unread)
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": uploading})
    if uploading:
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
