"""Telling: a middleware for `vllm serve --middleware` that answers with what it sees of the model that is loaded."""

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from vlm_edge.checkpoint import loaded

PATH = "/told"
MIDDLEWARE = f"{__name__}.Telling"


class Telling:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self.app(scope, receive, send)
            return
        body = msgspec.json.encode(loaded(scope["app"].state))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
