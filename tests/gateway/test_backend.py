"""What a backend says of its models: over loopback, of servers that answer, and of servers that do not."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from starlette.types import Receive, Scope, Send

from tests.servers import PATIENCE_S, Recorder, free_port, raw_backend, read_request, served
from vlm_edge.gateway.backend import ANSWER_BYTES, MAX_SLOW, Backend

pytestmark = pytest.mark.anyio

# As vLLM 0.32 writes them.
MODELS = orjson.dumps(
    {
        "object": "list",
        "data": [
            {"id": "tiny-vlm", "object": "model", "root": "tiny", "parent": None, "max_model_len": 4_096},
            {"id": "tiny-lora", "object": "model", "root": "tiny", "parent": "tiny-vlm", "max_model_len": None},
        ],
    }
)
SERVED = {"tiny-vlm": 4_096, "tiny-lora": 4_096}  # as the model that it adapts
COUNT = b'{"count":59,"max_model_len":4096,"tokens":[257,82,88],"token_strs":null}'
MESSAGES = [{"role": "user", "content": "hi"}]

NEVER_S, AT_ONCE_S = 3_600.0, 1e-9


class Server(Recorder):
    """Answers both questions, or what it is told to."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.status == 200:
            self.body = MODELS if scope.get("path", "").endswith("/v1/models") else COUNT
        await super().__call__(scope, receive, send)

    @property
    def asked(self) -> list[tuple[str, bytes]]:
        return [(one.method, one.target) for one in self.received]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with served(server) as port:
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def backend_at(url: str, **options: Any) -> AsyncIterator[Backend]:
    backend = Backend(url, **{"timeout_s": PATIENCE_S, "retry_s": NEVER_S} | options)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


# Models


async def test_a_backend_says_how_long_its_prompts_may_be(server: Server, url: str) -> None:
    async with backend_at(f"{url}/below/") as backend:
        assert await backend.models() == SERVED
    assert server.asked == [("GET", b"/below/v1/models")]
    assert server.last.header(b"authorization") == []


async def test_a_backend_is_shown_its_key(server: Server, url: str) -> None:
    async with backend_at(url, api_key="sk-1") as backend:
        await backend.models()
        await backend.count("tiny-vlm", MESSAGES)
    assert [one.header(b"authorization") for one in server.received] == [[b"Bearer sk-1"]] * 2


async def test_its_models_are_believed_for_a_while(server: Server, url: str) -> None:
    async with backend_at(url, models_ttl_s=NEVER_S) as backend:
        assert [await backend.models() for _ in range(3)] == [SERVED] * 3
    assert len(server.received) == 1


async def test_requests_that_come_together_ask_once(server: Server, url: str) -> None:
    async with backend_at(url, models_ttl_s=NEVER_S) as backend:
        assert await asyncio.gather(*(backend.models() for _ in range(8))) == [SERVED] * 8
    assert len(server.received) == 1


async def test_the_old_list_is_given_while_a_new_one_is_asked_for(server: Server, url: str) -> None:
    async with backend_at(url, models_ttl_s=AT_ONCE_S) as backend:
        await backend.models()
        server.status, server.body = 500, b"{}"
        assert await backend.models() == SERVED
        await until(lambda: len(server.received) == 2)
        assert await backend.models() == SERVED


async def test_a_new_list_takes_the_place_of_the_old_one(server: Server, url: str) -> None:
    async with backend_at(url, models_ttl_s=AT_ONCE_S) as backend:
        await backend.models()
        other = Recorder(body=b'{"data":[{"id":"other","max_model_len":8192}]}')
        with served(other) as port:
            backend.url = f"http://127.0.0.1:{port}"
            await backend.models()
            await until(lambda: len(other.received) == 1)
            while await backend.models() == SERVED:  # noqa: ASYNC110 - nobody tells when an answer has been read
                await asyncio.sleep(0.005)
            assert await backend.models() == {"other": 8_192}


async def until(met: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not met():  # noqa: ASYNC110 - a server in another thread
            await asyncio.sleep(0.005)


# Counts


async def test_a_backend_counts_a_prompt(server: Server, url: str) -> None:
    async with backend_at(url) as backend:
        assert await backend.count("tiny-vlm", MESSAGES, {"add_generation_prompt": False}) == 59
    assert server.asked == [("POST", b"/tokenize")]
    assert server.last.header(b"content-type") == [b"application/json"]
    assert orjson.loads(server.last.body) == {
        "model": "tiny-vlm",
        "messages": MESSAGES,
        "add_generation_prompt": False,
    }


async def test_a_prompt_is_counted_once(server: Server, url: str) -> None:
    other = [{"role": "user", "content": "ho"}]
    async with backend_at(url) as backend:
        for _ in range(3):
            await backend.count("tiny-vlm", MESSAGES)
        assert len(server.received) == 1
        await backend.count("tiny-vlm", other)
        await backend.count("tiny-lora", MESSAGES)
        await backend.count("tiny-vlm", MESSAGES, {"tools": []})
        assert len(server.received) == 4


async def test_the_counts_that_are_kept_are_the_last_used(server: Server, url: str) -> None:
    first, second, third = ([{"role": "user", "content": word}] for word in "abc")
    async with backend_at(url, max_counts=2) as backend:
        for messages in (first, second, first, third, first):
            await backend.count("tiny-vlm", messages)
        assert len(server.received) == 3
        await backend.count("tiny-vlm", second)
        assert len(server.received) == 4


@pytest.mark.parametrize("content", ["\ud800", 1 << 70])
async def test_what_cannot_be_asked_is_not_counted(content: Any, server: Server, url: str) -> None:
    async with backend_at(url) as backend:
        assert await backend.count("tiny-vlm", [{"role": "user", "content": content}]) is None
    assert server.received == []


@pytest.mark.parametrize("status", [400, 404])
async def test_a_refused_prompt_is_about_that_prompt_alone(status: int, server: Server, url: str) -> None:
    """No client can switch the counting off, by a name that it makes up or by what it asks."""
    async with backend_at(url) as backend:
        server.status, server.body = status, b"{}"
        assert await backend.count("nope", MESSAGES) is None
        server.status = 200
        assert await backend.count("nope", MESSAGES) == 59


@pytest.mark.parametrize("status", [401, 403, 404, 405])
async def test_a_backend_that_counts_for_nobody_is_left_alone(status: int, server: Server, url: str) -> None:
    async with backend_at(url) as backend:
        await backend.models()
        server.status, server.body = status, b"{}"
        assert [await backend.count("tiny-vlm", MESSAGES) for _ in range(3)] == [None] * 3
    assert len(server.received) == 2


async def test_a_backend_without_tokenize_is_left_alone_by_who_never_asked_for_its_models() -> None:
    class Untold(Server):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            self.status = 404 if scope["path"] == "/tokenize" else 200
            await super().__call__(scope, receive, send)

    server = Untold(body=b"{}")
    with served(server) as port:
        async with backend_at(f"http://127.0.0.1:{port}") as backend:
            assert [await backend.count("tiny-vlm", MESSAGES) for _ in range(3)] == [None] * 3
    assert server.asked == [("POST", b"/tokenize"), ("GET", b"/v1/models")]


# Servers that do not answer


@pytest.mark.parametrize("status", [301, 401, 404, 500, 503])
async def test_a_refusal_is_no_answer(status: int, server: Server, url: str) -> None:
    server.status, server.body, server.headers = status, b"{}", [(b"location", b"/v1/models")]
    async with backend_at(url) as backend:
        assert await backend.models() == {}
        assert await backend.models() == {}
        assert await backend.count("tiny-vlm", MESSAGES) is None
    assert len(server.received) == 2


OTHER_ANSWERS = {
    "no JSON": b"<html>",
    "half of it": MODELS[:40],
    "another kind": b'{"data":"tiny-vlm","count":"many"}',
    "nothing": b"",
    "no end": b" " * (ANSWER_BYTES + 1) + b'{"data":[],"count":1}',
}


@pytest.mark.parametrize("name", OTHER_ANSWERS)
async def test_what_is_no_answer_is_none(name: str) -> None:
    recorder = Recorder(body=OTHER_ANSWERS[name])
    with served(recorder) as port:
        async with backend_at(f"http://127.0.0.1:{port}") as backend:
            assert await backend.models() == {}
            assert await backend.count("tiny-vlm", MESSAGES) is None
            assert await backend.count("tiny-vlm", MESSAGES) is None
    assert len(recorder.received) == 2


async def test_a_backend_that_is_not_there_is_no_error() -> None:
    async with backend_at(f"http://127.0.0.1:{free_port()}") as backend:
        assert await backend.models() == {}
        assert await backend.count("tiny-vlm", MESSAGES) is None


async def test_a_backend_that_hangs_up_is_no_error() -> None:
    def hang_up(connection: socket.socket) -> None:
        read_request(connection)

    with raw_backend(hang_up) as port:
        async with backend_at(f"http://127.0.0.1:{port}") as backend:
            assert await backend.models() == {}
            assert await backend.count("tiny-vlm", MESSAGES) is None


async def test_a_backend_that_is_silent_is_given_up_and_then_left_alone() -> None:
    ended, connections = threading.Event(), []

    def say_nothing(connection: socket.socket) -> None:
        connections.append(read_request(connection))
        ended.wait(PATIENCE_S)

    with raw_backend(say_nothing) as port:
        try:
            async with asyncio.timeout(PATIENCE_S), backend_at(f"http://127.0.0.1:{port}", timeout_s=0.2) as backend:
                assert [await backend.models() for _ in range(3)] == [{}] * 3
                assert [await backend.count("tiny-vlm", MESSAGES) for _ in range(9)] == [None] * 9
        finally:
            ended.set()
    assert len(connections) <= 1 + MAX_SLOW


async def test_a_prompt_that_takes_too_long_is_no_reason_to_count_no_other() -> None:
    class Slow(Server):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if b"slow" in (await receive())["body"]:
                await asyncio.sleep(PATIENCE_S)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": COUNT})

    with served(Slow()) as port:
        async with backend_at(f"http://127.0.0.1:{port}", timeout_s=0.3) as backend:
            slow, other = await asyncio.gather(backend.count("a", [{"slow": 1}]), backend.count("a", [{"quick": 1}]))
            assert (slow, other, await backend.count("a", [{"quick": 2}])) == (None, 59, 59)


async def test_a_backend_that_failed_is_asked_again_later(server: Server, url: str) -> None:
    server.status, server.body = 503, b"{}"
    async with backend_at(url, retry_s=AT_ONCE_S) as backend:
        assert await backend.models() == {}
        server.status = 200
        assert await backend.models() == SERVED


async def test_a_question_under_way_ends_with_the_gateway() -> None:
    asked, ended = threading.Event(), threading.Event()

    def say_nothing(connection: socket.socket) -> None:
        read_request(connection)
        asked.set()
        ended.wait(PATIENCE_S)

    with raw_backend(say_nothing) as port:
        try:
            async with backend_at(f"http://127.0.0.1:{port}") as backend:
                question = asyncio.create_task(backend.models())
                await until(asked.is_set)
            assert await question == {}
        finally:
            ended.set()
