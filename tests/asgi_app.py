"""
The app that test_asgi.py puts behind real servers: bare, behind the middleware, and in other arrangements.

The header X-App says which arrangement answers, the query of a chat request what its app does, so any two arrangements
can be sent the same bytes. Bells let the app and a test wait for one another: no clock decides who is first.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from tests.samples import CHAT_PATH, PHONE
from tests.servers import PATIENCE_S
from vlm_edge import EdgeMiddleware, Settings
from vlm_edge.pictures import Limits

TIGHT_BYTES = 1_000_000
SERVER_KEYS = (
    "type asgi http_version method scheme path raw_path query_string root_path headers server extensions state".split()
)
GOODBYE = "the lifespan of the app has ended"


class Bells:
    """Each is rung once, and says something; who asks waits until it is rung."""

    def __init__(self) -> None:
        self._rung: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._said: dict[str, str] = {}

    def ring(self, name: str, said: str = "") -> None:
        self._said.setdefault(name, said)
        self._rung[name].set()

    async def heard(self, name: str) -> str:
        await asyncio.wait_for(self._rung[name].wait(), PATIENCE_S)
        return self._said[name]


BELLS = Bells()
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
outcome: ContextVar[str] = ContextVar("outcome", default="none")


async def bell(request: Request) -> Response:
    name = request.path_params["name"]
    if request.method == "PUT":
        BELLS.ring(name)
        return Response()
    return PlainTextResponse(await BELLS.heard(name))


def bell_of(scope: Scope, moment: str) -> str:
    """The bell of this request for a moment: the test that asks chose the first half of its name."""
    query = scope["query_string"].decode().partition("bell=")[2]
    return f"{query}-{moment}"


# What the chat endpoint does


async def gives_its_body(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


async def gives_its_scope(request: Request) -> Response:
    """What the server put into the scope, but for the port of the client; the headers in their order."""
    await request.body()
    return PlainTextResponse(repr({key: request.scope.get(key) for key in SERVER_KEYS}))


async def reads_many_times(request: Request) -> Response:
    """The ways of Starlette to the body, one after another: all must give the same."""
    body = await request.body()
    streamed = b"".join([piece async for piece in request.stream()])
    return JSONResponse([len(body), len(await request.body()), len(streamed), (await request.json())["model"]])


async def reads_past_the_end(request: Request) -> Response:
    """A second request object does not know that the body was read: it is given what comes, a disconnect."""
    await request.body()
    BELLS.ring(bell_of(request.scope, "asked"))
    try:
        await Request(request.scope, request.receive).body()
    except ClientDisconnect:
        BELLS.ring(bell_of(request.scope, "left"))
    return Response()


async def streams(request: Request) -> Response:
    """Without an end: only a client that leaves can end it."""

    async def events() -> AsyncIterator[bytes]:
        while True:
            yield b"data: more\n\n"
            await asyncio.sleep(0.01)

    await request.body()
    return StreamingResponse(events(), media_type="text/event-stream")


async def streams_by_bell(request: Request) -> Response:
    """The second event is made only after the bell was rung."""

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await BELLS.heard(bell_of(request.scope, "go"))
        yield b"data: [DONE]\n\n"

    await request.body()
    return StreamingResponse(events(), media_type="text/event-stream")


async def polls(request: Request) -> Response:
    """As apps do while they generate."""
    await request.body()
    here = [not await request.is_disconnected() for _ in range(3)]
    BELLS.ring(bell_of(request.scope, "asked"), str(here))
    while not await request.is_disconnected():  # noqa: ASYNC110 - polling is what is tested
        await asyncio.sleep(0.01)
    BELLS.ring(bell_of(request.scope, "left"))
    return Response()


async def waits(request: Request) -> Response:
    await request.body()
    BELLS.ring(bell_of(request.scope, "asked"))
    message = await request.receive()
    BELLS.ring(bell_of(request.scope, "left"), message["type"])
    return Response()


async def works_afterwards(request: Request) -> Response:
    await request.body()
    return JSONResponse("answered", background=BackgroundTask(BELLS.ring, bell_of(request.scope, "worked"), "done"))


async def uses_context(request: Request) -> Response:
    await request.body()
    outcome.set("of the endpoint")
    return JSONResponse(tenant.get())


async def gives_a_file(request: Request) -> Response:
    await request.body()
    return FileResponse(PHONE)


async def reads_nothing(_: Request) -> Response:
    return JSONResponse("no thanks", 400)


BEHAVIOURS: dict[str, Callable[[Request], Awaitable[Response]]] = {
    "body": gives_its_body,
    "scope": gives_its_scope,
    "reads": reads_many_times,
    "past": reads_past_the_end,
    "streams": streams,
    "by_bell": streams_by_bell,
    "polls": polls,
    "waits": waits,
    "works": works_afterwards,
    "context": uses_context,
    "file": gives_a_file,
    "nothing": reads_nothing,
}


async def chat(request: Request) -> Response:
    return await BEHAVIOURS[request.query_params["do"]](request)


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(await socket.receive_text())
    await socket.close()


# Arrangements of the app and the middleware


class Outer:
    """A middleware as apps have them: it sets a context variable, and reads afterwards what the endpoint set."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        tenant.set("acme")
        try:
            await self.app(scope, receive, send)
        finally:
            BELLS.ring(bell_of(scope, "ended"), outcome.get())


class Peeking(BaseHTTPMiddleware):
    """What the documentation of Starlette advises against, and what people write."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        await request.body()
        return await call_next(request)


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[dict[str, str]]:
    yield {"begun": "yes"}
    print(GOODBYE, flush=True)


ROUTES = [Route(CHAT_PATH, chat, methods=["GET", "POST"]), WebSocketRoute(CHAT_PATH, echo)]


def starlette(*middleware: Middleware) -> ASGIApp:
    return Starlette(routes=ROUTES, middleware=[Middleware(Outer), *middleware], lifespan=lifespan)


def edged(**settings: Any) -> Middleware:
    return Middleware(EdgeMiddleware, settings=Settings(**settings))


def fastapi(**settings: Any) -> FastAPI:
    app = FastAPI()
    app.add_api_route(CHAT_PATH, chat, methods=["POST"])
    if settings:
        app.add_middleware(EdgeMiddleware, settings=Settings(**settings))
    else:
        app.add_middleware(EdgeMiddleware)
    return app


def mounting(mounts: dict[str, ASGIApp]) -> FastAPI:
    app = FastAPI()
    for path, mounted in mounts.items():
        app.mount(path, mounted)
    return app


def outside(mounts: dict[str, ASGIApp]) -> FastAPI:
    app = mounting(mounts)
    app.add_middleware(EdgeMiddleware)
    return app


BARE = starlette()
V1 = Starlette(routes=[Route(CHAT_PATH.removeprefix("/v1"), chat, methods=["POST"])])

ARRANGEMENTS: dict[str, ASGIApp] = {
    "bells": Starlette(routes=[Route("/bells/{name}", bell, methods=["GET", "PUT"])]),
    "bare": BARE,
    "edge": starlette(edged()),
    "tight": starlette(edged(limits=Limits(max_body_bytes=TIGHT_BYTES))),
    "twice": starlette(edged(), edged()),
    "peeked before": starlette(Middleware(Peeking), edged()),
    "peeked behind": starlette(edged(), Middleware(Peeking)),
    "fastapi": fastapi(),
    "fastapi with settings": fastapi(default_profile="thumbnail"),
    "inside": mounting({"/sub": fastapi(), "/deep": mounting({"/er": fastapi()}), "/": BARE}),
    "two": mounting({"/small": fastapi(default_profile="thumbnail"), "/large": fastapi()}),
    "outside": outside({"/v1": V1, "/sub": BARE}),
    "mounted bare": mounting({"/v1": V1, "/sub": BARE}),
}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    headers = dict(scope.get("headers", ()))
    await ARRANGEMENTS[headers.get(b"x-app", b"edge").decode()](scope, receive, send)
