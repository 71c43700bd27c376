"""
Upstream: the connection to the backend. An ASGI app that passes a request on and streams the answer back.

aiohttp was chosen on measured streaming throughput: benchmarks/bench_upstream.py.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus

import aiohttp
import orjson
from starlette.types import Receive, Scope, Send
from yarl import URL

from vlm_edge.errors import BackendTimeout, BackendUnavailable, EdgeError, InvalidPath
from vlm_edge.gateway.config import GatewaySettings
from vlm_edge.middleware import REPORT_KEY, posted_path, refuse
from vlm_edge.requests.endpoints import CHAT, ENDPOINTS, Dialect
from vlm_edge.upload import ClientLeft

log = logging.getLogger("vlm_edge.gateway")

MODALITY_HEADER = b"x-modality-type"

# RFC 9110, 7.6.1: these are about one connection and end with it.
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
NOT_FORWARDED = frozenset({b"host", b"expect", MODALITY_HEADER})

# Others no server lets us pass on.
STATUSES = frozenset(map(int, HTTPStatus))

# vLLM (uvicorn) closes idle connections after 5 s; ours must be given up first.
KEEP_ALIVE_S = 4.0

_RawHeaders = list[tuple[bytes, bytes]]


class Upstream:
    """One backend. `open` before the first request, in the running loop; `close` at the end."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.settings.max_connections, keepalive_timeout=KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.settings.connect_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            response_class=_Response,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003, "reason": "the gateway does not pass websockets"})
            return
        request = _Request(scope, receive)
        answer = asyncio.create_task(self._exchange(scope, request, send))
        leaving = asyncio.create_task(request.left())
        try:
            await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                await answer
        finally:
            answer.cancel()  # closes the connection, which is how vLLM learns that nobody waits
            leaving.cancel()
            await asyncio.gather(answer, leaving, return_exceptions=True)

    async def _exchange(self, scope: Scope, request: "_Request", send: Send) -> None:
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(await self._ask(scope, request))
                if response.status not in STATUSES:
                    raise BackendUnavailable(f"answered with the unknown status {response.status}")
            except ClientLeft:
                return
            except EdgeError as error:
                log.warning("%s %s: %s", scope["method"], scope["path"][:200], error.code)
                await refuse(error, _dialect(scope), request.receive, send)
                return
            await self._stream(response, _dialect(scope), send)

    async def _ask(self, scope: Scope, request: "_Request") -> aiohttp.ClientResponse:
        """The response, as soon as its headers are there. Raises BackendUnavailable, BackendTimeout, ClientLeft."""
        assert self._session, "open() comes first"
        try:
            async with _patience(request, self.settings.first_byte_timeout_s):
                return await self._session.request(
                    scope["method"],
                    self._url(scope),
                    headers=_request_headers(scope),
                    data=request.body() if request.has_body else None,
                    allow_redirects=False,
                )
        except aiohttp.ConnectionTimeoutError:
            raise BackendTimeout(self.settings.connect_timeout_s) from None
        except TimeoutError:
            raise BackendTimeout(self.settings.first_byte_timeout_s) from None
        except aiohttp.ClientConnectorError:
            raise BackendUnavailable("cannot be reached") from None
        except (aiohttp.ClientError, ConnectionError):
            if request.client_left:
                raise ClientLeft from None
            raise BackendUnavailable("closed the connection without an answer") from None

    async def _stream(self, response: aiohttp.ClientResponse, dialect: Dialect, send: Send) -> None:
        start = {"type": "http.response.start", "status": response.status, "headers": _response_headers(response)}
        await send(start)
        try:
            async for chunk in self._chunks(response):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (aiohttp.ClientError, ConnectionError):
            await _break_off(BackendUnavailable("broke off its answer"), response, dialect, send)
        except TimeoutError:
            await _break_off(BackendTimeout(self.settings.idle_timeout_s), response, dialect, send)
        else:
            await send({"type": "http.response.body", "body": b""})

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """What arrives, as it arrives."""
        clock, idle_s = asyncio.get_running_loop().time, self.settings.idle_timeout_s
        async with asyncio.timeout(idle_s) as idle:
            async for chunk in response.content.iter_any():
                idle.reschedule(None)  # the client's own pace does not count
                yield chunk
                idle.reschedule(clock() + idle_s)

    def _url(self, scope: Scope) -> URL:
        path = (scope.get("raw_path") or scope["path"].encode()).removeprefix(scope.get("root_path", "").encode())
        # Or it would be read as part of the backend's own name, or in part as something that is not sent.
        if not path.startswith(b"/") or b"#" in path or b"?" in path:
            raise InvalidPath
        query = b"?" + scope["query_string"] if scope.get("query_string") else b""
        return URL(self.settings.backend.rstrip("/") + (path + query).decode("ascii"), encoded=True)


class _Response(aiohttp.ClientResponse):
    """vLLM closes behind a 5xx without saying so: the connection must not be used again.

    A short answer has given its connection back before `_stream` sees it, so it is closed here.
    """

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        await super().start(connection)
        if self.status >= 500 and protocol is not None:  # an idle protocol is false
            if self.content.is_eof():
                protocol.close()
            else:
                protocol.force_close()
        return self


class _Request:
    """The client's side: its body, read once and only here, and then its leaving."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.receive = receive
        self.client_left = False
        self.has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
        self._read = asyncio.Event()
        if not self.has_body:
            self._read.set()

    async def read(self) -> None:
        """Wait until the body has been read."""
        await self._read.wait()

    async def body(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                self.client_left = True
                self._read.set()
                raise ClientLeft
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]
        self._read.set()

    async def left(self) -> None:
        """Wait until the client has disconnected. Nothing else may read meanwhile, so the body comes first."""
        await self.read()
        while not self.client_left:
            self.client_left = (await self.receive())["type"] == "http.disconnect"


@asynccontextmanager
async def _patience(request: _Request, allowed_s: float) -> AsyncIterator[None]:
    """A time-out that begins when the request has been read: the client's own pace is not the backend's."""
    async with asyncio.timeout(None) as timeout:

        async def begin() -> None:
            await request.read()
            timeout.reschedule(asyncio.get_running_loop().time() + allowed_s)

        beginning = asyncio.create_task(begin())
        try:
            yield
        finally:
            beginning.cancel()


def _request_headers(scope: Scope) -> list[tuple[str, str]]:
    headers = [*_end_to_end(scope["headers"], NOT_FORWARDED), *_modality(scope)]
    return [(name.decode("latin-1"), _decoded(value)) for name, value in headers]


def _decoded(value: bytes) -> str:
    """aiohttp writes header values as UTF-8, so what is UTF-8 goes through unchanged."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _modality(scope: Scope) -> _RawHeaders:
    """What the edge has found in a request that it read; of others nothing is said."""
    if REPORT_KEY in scope:
        return [(MODALITY_HEADER, b"multi_modal")]
    return [(MODALITY_HEADER, b"text_only")] if posted_path(scope) in ENDPOINTS else []


def _response_headers(response: aiohttp.ClientResponse) -> _RawHeaders:
    # Without a body, a length would be a promise that uvicorn holds us to.
    dropped = frozenset({b"content-length"}) if response.status in (204, 304) else frozenset()
    return [(name.lower(), value) for name, value in _end_to_end(response.raw_headers, dropped)]


def _end_to_end(headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes] = frozenset()) -> _RawHeaders:
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    gone = HOP_BY_HOP | dropped | named
    return [(name, value) for name, value in headers if name.lower() not in gone]


def _dialect(scope: Scope) -> Dialect:
    return ENDPOINTS.get(posted_path(scope), CHAT)


async def _break_off(error: EdgeError, response: aiohttp.ClientResponse, dialect: Dialect, send: Send) -> None:
    """End an answer that has begun: in a stream by an event, as vLLM does; else by leaving it visibly incomplete."""
    log.warning("answer broken off: %s", error.code)
    if response.content_type == "text/event-stream":
        event = b"\n\n%sdata: %s\n\n" % (dialect.error_event, orjson.dumps(dialect.error_body(error)))
        await send({"type": "http.response.body", "body": event})
