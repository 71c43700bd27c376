"""
Which HTTP client should the gateway use upstream? Each reads the same streams from the same server, in turns.

Streams of small SSE chunks, 32 at a time, and short answers over pooled connections.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

import aiohttp
import httpx
from bench_road import free_port, wait_for
from common import alternating, arguments, show

SERVER = """
import sys, uvicorn
CHUNK = b'data: {"choices":[{"delta":{"content":"x"}}]}\\n\\n'
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(int(scope["path"].strip("/"))):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", lifespan="off")
"""

STREAMS, CHUNKS = 32, 500
SHORT = 1_000

Read = Callable[[str], Awaitable[int]]


async def by_aiohttp(work: Callable[[Read], Awaitable[float]]) -> float:
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def read(url: str) -> int:
            async with session.get(url) as response:
                return sum([len(chunk) async for chunk in response.content.iter_any()])

        return await work(read)


async def by_httpx(work: Callable[[Read], Awaitable[float]]) -> float:
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=STREAMS)) as client:

        async def read(url: str) -> int:
            async with client.stream("GET", url) as response:
                return sum([len(chunk) async for chunk in response.aiter_raw()])

        return await work(read)


async def streams(base: str, read: Read) -> float:
    begin = time.perf_counter()
    await asyncio.gather(*(read(f"{base}/{CHUNKS}") for _ in range(STREAMS)))
    return STREAMS * CHUNKS / (time.perf_counter() - begin)


async def short_answers(base: str, read: Read) -> float:
    async def client() -> None:
        for _ in range(SHORT // 8):
            await read(f"{base}/1")

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(8)))
    return SHORT / (time.perf_counter() - begin)


def main() -> None:
    asked = arguments(__doc__)
    port = free_port()
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)])
    wait_for(port)
    rows = []
    try:
        for name, work in (("chunks/s", streams), ("answers/s", short_answers)):
            task = partial(work, f"http://127.0.0.1:{port}")
            sides = [lambda task=task, by=by: asyncio.run(by(task)) for by in (by_aiohttp, by_httpx)]
            ours, other = alternating(sides, asked.rounds)
            figures = f"aiohttp {ours:,.0f} {name}; httpx {other:,.0f} {name}"
            rows.append({"question": f"aiohttp : httpx, {name}", "figures": figures, "result": f"{ours / other:.2f} x"})
    finally:
        server.terminate()
    show(rows, asked.json)


if __name__ == "__main__":
    main()
