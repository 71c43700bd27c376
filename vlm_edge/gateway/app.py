"""The gateway's app: our own paths, and all others to the backend, with the edge in between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import vlm_edge
from vlm_edge.access import check_of, let_in
from vlm_edge.decision import Decision
from vlm_edge.edge import Edge
from vlm_edge.errors import EdgeError
from vlm_edge.estimate import Estimate
from vlm_edge.gateway.backend import Backend
from vlm_edge.gateway.upstream import Upstream
from vlm_edge.metrics import CONTENT_TYPE, Metrics
from vlm_edge.middleware import EdgeMiddleware, refuse
from vlm_edge.requests.endpoints import CHAT, CHAT_PATH
from vlm_edge.settings import Settings
from vlm_edge.upload import ClientLeft, read_body


def create_app(settings: Settings | None = None) -> Starlette:
    settings = settings or Settings.from_env()
    metrics, upstream = Metrics(), Upstream(settings.gateway)
    backend = Backend(settings.gateway.backend, api_key=settings.gateway.backend_api_key)
    edge = Edge(settings, backend if settings.gateway.ask_backend else None)
    metrics.watch(edge.workers)
    metrics.watch_drift(edge.drifts)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await upstream.open()
        await backend.open()
        yield
        await backend.close()
        await upstream.close()
        edge.close()

    async def health(_: Request) -> Response:
        return _json({"status": "ok", "version": vlm_edge.__version__})

    async def scrape(_: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/metrics", scrape),
            Route("/edge/estimate", Estimator(edge), methods=["POST"]),
        ],
        lifespan=lifespan,
    )
    # All else goes to the backend. No Mount: that takes a path apart, and one that ends in a line feed wrongly.
    app.router.default = EdgeMiddleware(upstream, edge=edge, observer=metrics)
    app.router.redirect_slashes = False
    return app


class Estimator:
    """POST a request body: what its pictures would cost, and whether it would pass; `?path=` tells its kind."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.check = check_of(edge.settings.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            await let_in(self.check, scope)
            settings = self.edge.settings
            body = await read_body(scope, receive, settings.limits.max_body_bytes, settings.upload)
            path = request.query_params.get("path", CHAT_PATH)
            decision = await self.edge.decide_async(path, body, request.headers, budget=False)
        except ClientLeft:
            return
        except EdgeError as error:
            await refuse(error, CHAT, receive, send)
            return
        await _json(_estimate(decision, self.edge))(scope, receive, send)


def _estimate(decision: Decision | None, edge: Edge) -> Estimate | dict[str, Any]:
    if decision is None:
        return {"tokens": 0, "parts": [], "verdict": "accept"}
    refusal = None
    try:
        edge.check(decision)
    except EdgeError as error:
        refusal = CHAT.error_body(error)["error"]
    allowed = edge.settings.limits.max_request_tokens
    return Estimate.of(decision.profile, decision.model, decision.plan, decision.room, allowed, refusal)


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
