"""
A FastAPI service with routes and keys of its own that passes chat requests on to vLLM, their pictures prepared.

    pip install 'vlm-edge[gateway]' fastapi
    VLLM_URL=http://127.0.0.1:8000 API_KEY=secret uvicorn fastapi_gateway:app --port 8080

Profiles, limits and model names come from VLM_EDGE_CONFIG, else they are the defaults.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import compare_digest

from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from vlm_edge import EdgeMiddleware
from vlm_edge.gateway.config import GatewaySettings
from vlm_edge.gateway.upstream import Upstream

vllm = Upstream(GatewaySettings(backend=os.environ.get("VLLM_URL", "http://127.0.0.1:8000")))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    await vllm.open()
    yield
    await vllm.close()


class RequireKey:
    """Keys are checked before any picture is looked at: middleware added later runs earlier."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "http" and not compare_digest(given, self.expected):
            await JSONResponse({"error": {"message": "wrong API key"}}, 401)(scope, receive, send)
            return
        await self.app(scope, receive, send)


app = FastAPI(lifespan=lifespan)
app.add_middleware(EdgeMiddleware)
if key := os.environ.get("API_KEY"):
    app.add_middleware(RequireKey, key=key)


@app.get("/hello")
async def hello() -> dict[str, str]:
    """A route of the service's own."""
    return {"hello": "from the service"}


app.mount("/", vllm)  # all other paths are vLLM's
