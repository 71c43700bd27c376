"""
A FastAPI service that reads invoices: a PDF, a scan or a photo goes in, amount, currency, issuer and date come out.

    INVOICE_BASE_URL=http://127.0.0.1:8000/v1 uvicorn --factory service:create_app --port 8080
    curl --data-binary @invoice.pdf http://127.0.0.1:8080/extract

The edge makes pictures of the profile `invoice` of whatever is sent, or refuses it, before the model hears of it.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

import openai
import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from invoice import RESPONSE_FORMAT, InvalidAnswer, Invoice, correction, question, read
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt, SecretStr
from starlette.types import Receive, Scope, Send

from vlm_edge import Edge, EdgeError, Settings
from vlm_edge.choice import PROFILE_HEADER
from vlm_edge.decision import Prepared
from vlm_edge.errors import BackendTimeout, BackendUnavailable, CorruptMedia, Overloaded, UnsupportedMedia
from vlm_edge.media import data_url
from vlm_edge.middleware import refuse
from vlm_edge.report import Report
from vlm_edge.requests.body import Raw
from vlm_edge.requests.endpoints import CHAT, CHAT_PATH
from vlm_edge.upload import ClientLeft, read_body

PREFIX = "INVOICE_"
RETRY_AFTER_S = 2


class ServiceSettings(BaseModel):
    """Of this service, from INVOICE_BASE_URL and so on; README.md explains each. The edge has its own."""

    model_config = ConfigDict(frozen=True)

    base_url: str = "http://127.0.0.1:8000/v1"
    api_key: SecretStr = SecretStr("none")
    model: str = "Qwen/Qwen2.5-VL-7B-Instruct"
    profile: str = "invoice"
    at_once: PositiveInt = 8
    max_waiting: NonNegativeInt = 64
    max_upload_bytes: PositiveInt = 16 * 1024 * 1024
    max_tokens: PositiveInt = 256
    timeout_s: PositiveFloat = 60.0

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        names = {name: f"{PREFIX}{name.upper()}" for name in cls.model_fields}
        return cls.model_validate({name: environ[key] for name, key in names.items() if key in environ})


def create_app(settings: ServiceSettings | None = None, edge_settings: Settings | None = None) -> FastAPI:
    """The service. Without arguments, settings come from the environment."""
    settings = settings or ServiceSettings.from_env()
    edge = Edge(edge_settings or Settings.from_env())
    reader, desk = Reader(settings, edge), Desk(settings.at_once, settings.max_waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await reader.client.close()
        edge.close()

    handlers: Any = {EdgeError: _refused, InvalidAnswer: _unread, ClientLeft: _left}
    app = FastAPI(title="Invoice extraction", lifespan=lifespan, exception_handlers=handlers)

    @app.post("/extract", openapi_extra=_UPLOAD)
    async def extract(request: Request, response: Response) -> Invoice:
        """The body is the file itself: a PDF, a scan or a photo."""
        with desk.seat():
            watch = Stopwatch()
            file = await read_body(request.scope, request.receive, settings.max_upload_bytes, edge.settings.upload)
            check_upload(request, file)
            watch.lap("upload")
            messages, report = await reader.prepare(file)
            watch.lap("edge")
            async with desk.turn(request):
                watch.lap("queue")
                invoice = await reader.ask(messages)
                watch.lap("model")
        response.headers.update(_headers(report) | {"server-timing": f"{watch}"})
        return invoice

    return app


class Desk:
    """So many are with the model at once, and so many more may be inside; all others are sent away at the door.

    What is inside is in memory: an upload, or the pictures made of it.
    """

    def __init__(self, at_once: int, max_waiting: int) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._seats = at_once + max_waiting
        self._inside = 0

    @contextmanager
    def seat(self) -> Iterator[None]:
        if self._inside == self._seats:
            raise Overloaded(self._inside + 1, self._seats, RETRY_AFTER_S)
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    @asynccontextmanager
    async def turn(self, request: Request) -> AsyncIterator[None]:
        async with self._turns:
            if await request.is_disconnected():  # who gave up in the queue costs the model nothing
                raise ClientLeft
            yield


class Reader:
    """The edge, and the model behind it."""

    def __init__(self, settings: ServiceSettings, edge: Edge) -> None:
        self.settings = settings
        self.edge = edge
        self._room = asyncio.Semaphore(2 * edge.workers.threads)  # more would wait inside, as base64
        # No retries of its own: they would multiply the load of a model server that is in trouble.
        self.client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            api_key=settings.api_key.get_secret_value(),
            timeout=settings.timeout_s,
            max_retries=0,
        )

    async def prepare(self, file: Raw) -> tuple[list[Any], Report]:
        """The messages to the model, with every page as a picture of the profile. Raises EdgeError."""
        try:
            async with self._room:
                prepared = await self._prepare(file)
        except EdgeError as error:
            error.param = "file"  # the client knows nothing of our messages
            raise
        assert prepared.report  # there was something to prepare
        return orjson.loads(bytes(prepared.body))["messages"], prepared.report

    async def _prepare(self, file: Raw) -> Prepared:
        url = data_url.build("application/octet-stream", bytes(file)).decode()  # the edge looks at the bytes alone
        body = orjson.dumps({"model": self.settings.model, "messages": question(url)})
        return await self.edge.prepare_async(CHAT_PATH, body, {PROFILE_HEADER: self.settings.profile})

    async def ask(self, messages: list[Any]) -> Invoice:
        """The invoice, on the second try if need be: it begins like the first, so vLLM has most of it in its cache."""
        answer = await self._answer(messages)
        try:
            return read(answer)
        except InvalidAnswer as error:
            answer = await self._answer([*messages, *correction(answer, error)])
        return read(answer)

    async def _answer(self, messages: list[Any]) -> str:
        ask: Any = self.client.chat.completions.create
        settings = self.settings
        asked = {"model": settings.model, "max_tokens": settings.max_tokens, "response_format": RESPONSE_FORMAT}
        try:
            completion = await ask(messages=messages, temperature=0, **asked)
        except openai.APITimeoutError:
            raise BackendTimeout(settings.timeout_s) from None
        except openai.APIStatusError as error:
            raise BackendUnavailable(f"answered {error.status_code}") from None
        except openai.APIError:
            raise BackendUnavailable("cannot be reached") from None
        return completion.choices[0].message.content or ""


class Stopwatch:
    """How long each step took, as the header Server-Timing has it."""

    def __init__(self) -> None:
        self._steps: dict[str, float] = {}
        self._since_s = time.perf_counter()

    def lap(self, name: str) -> None:
        now_s = time.perf_counter()
        self._steps[name], self._since_s = now_s - self._since_s, now_s

    def __str__(self) -> str:
        return ", ".join(f"{name};dur={seconds * 1e3:.1f}" for name, seconds in self._steps.items())


def check_upload(request: Request, file: Raw) -> None:
    if not file:
        raise CorruptMedia("it is empty")
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise UnsupportedMedia("a form, where the file itself should be the body")


def _headers(report: Report) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in report.headers()}


class _Refusal(Response):
    """As the middleware answers: a client that still uploads gets the time to read why it should not."""

    def __init__(self, error: EdgeError) -> None:
        self.error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(self.error, CHAT, receive, send)


async def _refused(_: Request, error: EdgeError) -> Response:
    return _Refusal(error)


async def _unread(_: Request, error: InvalidAnswer) -> Response:
    message = f"the model was asked twice, and its answer is not valid: {error}"
    return JSONResponse({"error": {"message": message, "type": "server_error", "code": "invalid_answer"}}, 502)


async def _left(_: Request, __: ClientLeft) -> Response:
    return Response(status_code=499)  # nobody reads it


# What /docs offers as a body.
_FILE = {"schema": {"type": "string", "format": "binary"}}
_UPLOAD = {"requestBody": {"required": True, "content": {"application/pdf": _FILE, "image/*": _FILE}}}
