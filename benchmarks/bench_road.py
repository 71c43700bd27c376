"""
The road: what do pictures cost on it, and what do requests without pictures pay?

(a) photos of 8 to 24 MP: Edge.prepare on 2 workers against a bare pyvips loop on 2 threads, same sizes
(b) the same against a plain Pillow loop on 2 threads
(c) text requests of 4 KB: the middleware against an empty BaseHTTPMiddleware in process, and over uvicorn
(d) deciding against preparing, and the longest stall of the event loop meanwhile
"""

import asyncio
import io
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyvips
from common import (
    CHAT_PATH,
    TEXT,
    alternating,
    answer,
    arguments,
    chat,
    discard,
    microseconds,
    photos,
    post,
    row,
    seconds,
    show,
    turns,
)
from PIL import Image, ImageOps
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from vlm_edge import Edge, EdgeMiddleware, Settings, Size
from vlm_edge.pictures import Limits
from vlm_edge.requests.body import Raw
from vlm_edge.workers import WorkerSettings

THREADS = 2
QUALITY = 93  # of the profile `standard`
SETTINGS = Settings(workers=WorkerSettings(threads=THREADS), limits=Limits(max_body_bytes=1 << 30))

# (a) and (b)


def prepare_all(edge: Edge, bodies: Sequence[bytes]) -> None:
    # More callers than workers, as in a server, so that a worker never waits for the next plan.
    with ThreadPoolExecutor(2 * THREADS) as callers:
        list(callers.map(partial(edge.prepare, CHAT_PATH), bodies))


def bare_pyvips(data: bytes, size: Size) -> bytes:
    image = pyvips.Image.thumbnail_buffer(data, size.width, height=size.height, size="force")
    jpeg: bytes = image.jpegsave_buffer(Q=QUALITY, subsample_mode="off")
    return jpeg


def plain_pillow(data: bytes, size: Size) -> bytes:
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    file = io.BytesIO()
    image.resize(size, Image.Resampling.LANCZOS).save(file, "JPEG", quality=QUALITY, subsampling=0)
    return file.getvalue()


def loop(work: Callable[[bytes, Size], bytes], pictures: Sequence[bytes], sizes: Sequence[Size]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, pictures, sizes))


def pixels(edge: Edge, pictures: list[bytes], rounds: int) -> list[dict[str, Any]]:
    bodies = [chat(data) for data in pictures]
    reports = [edge.prepare(CHAT_PATH, body).report for body in bodies]
    sizes = [report.pictures[0].size_after for report in reports if report]
    sides = [
        partial(seconds, partial(prepare_all, edge, bodies)),
        partial(seconds, partial(loop, bare_pyvips, pictures, sizes)),
        partial(seconds, partial(loop, plain_pillow, pictures, sizes)),
    ]
    ours, bare, pillow = (len(pictures) / took for took in alternating(sides, rounds))
    figures = f"{ours:.1f} pictures/s; bare pyvips {bare:.1f}; plain Pillow {pillow:.1f}"
    return [
        row(
            f"(a) {len(pictures)} photos, Edge.prepare : bare pyvips",
            figures,
            ours / bare,
            ">= 0.90",
            ours >= 0.9 * bare,
        ),
        row(
            f"(b) {len(pictures)} photos, Edge.prepare : plain Pillow",
            figures,
            ours / pillow,
            ">= 3",
            ours >= 3 * pillow,
        ),
    ]


# (c) in process


class Empty(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


def text_in_process(rounds: int) -> dict[str, Any]:
    apps = (answer, EdgeMiddleware(answer, settings=SETTINGS), Empty(answer))
    sides = [lambda app=app: asyncio.run(microseconds(app)) for app in apps]
    bare, ours, base = alternating(sides, rounds)
    value = (ours - bare) / (base - bare)
    figures = f"EdgeMiddleware +{ours - bare:.1f} us; empty BaseHTTPMiddleware +{base - bare:.1f} us"
    return row("(c) text of 4 KB in process, ours : BaseHTTPMiddleware", figures, value, "<= 0.15", value <= 0.15)


# (c) over uvicorn

SERVER = """
import sys, uvicorn
from fastapi import FastAPI, Request
from pydantic import BaseModel
from vlm_edge import EdgeMiddleware
class Message(BaseModel):
    role: str
    content: str | list[dict]
class Chat(BaseModel):
    model: str
    messages: list[Message]
    stream: bool = False
app = FastAPI()
async def typed(chat: Chat) -> dict[str, int]:
    return {"messages": len(chat.messages)}
async def bare(request: Request) -> dict[str, int]:
    return {"messages": len((await request.json())["messages"])}
app.post("/v1/chat/completions")(typed if "typed" in sys.argv else bare)
if "edge" in sys.argv:
    app.add_middleware(EdgeMiddleware)
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
"""


def free_port() -> int:
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        port: int = probe_socket.getsockname()[1]
        return port


def start_server(*kinds: str, package: Path = Path(__file__).parent.parent) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    ours = {**os.environ, "PYTHONPATH": f"{package.absolute()}"}
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(port), *kinds], env=ours)
    wait_for(port)
    return process, port


def wait_for(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("a server did not start")


async def load(port: int, requests: int = 3_000, connections: int = 8) -> float:
    """Requests per second over keep-alive connections."""
    head = (
        f"POST {CHAT_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(TEXT)}\r\n\r\n"
    )

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(requests // connections):
            writer.write(head.encode() + TEXT)
            answered = await reader.readuntil(b"\r\n\r\n")
            length = int(answered.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            assert b"200 OK" in answered
            await reader.readexactly(length)
        writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(connections)))
    return requests / (time.perf_counter() - begin)


def requests_per_second(port: int) -> float:
    return asyncio.run(load(port))


Server = tuple[subprocess.Popen[bytes], int]


def compared(ours: Callable[[], Server], theirs: Callable[[], Server]) -> float:
    """Requests per second of one server, by those of another; both started anew."""
    servers = [ours(), theirs()]
    try:
        first, second = turns([partial(requests_per_second, port) for _, port in servers], 5)
    finally:
        for process, _ in servers:
            process.terminate()
    return statistics.median(one / other for one, other in zip(first, second, strict=True))


def pair(endpoint: str, *kinds: str) -> float:
    """A server of these kinds and a plain one."""
    return compared(partial(start_server, endpoint, *kinds), partial(start_server, endpoint))


def text_over_uvicorn(rounds: int) -> dict[str, Any]:
    """The median over several pairs of servers, for two plain ones differ by as much as is asked for here."""
    ratios = sorted(pair("typed", "edge") for _ in range(rounds))
    barest = statistics.median(pair("bare", "edge") for _ in range(rounds))
    noise = sorted(pair("typed") for _ in range(rounds))
    figures = (
        f"{rounds} pairs of servers, {ratios[0]:.3f} to {ratios[-1]:.3f}; without the edge on either side "
        f"{noise[0]:.3f} to {noise[-1]:.3f}; where the endpoint only calls request.json() {barest:.3f}"
    )
    ratio = statistics.median(ratios)
    return row("(c) text of 4 KB over uvicorn and FastAPI, with : without", figures, ratio, ">= 0.95", ratio >= 0.95)


# (d)


async def longest_stall(app: ASGIApp, body: bytes) -> float:
    """Milliseconds by which the event loop was late, at most, while one request was received and decided."""
    late, done = 0.0, False

    async def tick() -> None:
        nonlocal late
        while not done:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            late = max(late, time.perf_counter() - due)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    await app(*post(body), discard)
    done = True
    await ticker
    return late * 1e3


def only_decide(edge: Edge, body: Raw) -> None:
    found = edge.find(CHAT_PATH, body)
    assert found
    edge.decide(found)


def deciding(edge: Edge, photo: bytes, count: int, bound: float, rounds: int) -> list[dict[str, Any]]:
    body = bytearray(chat(*[photo] * count))
    app = EdgeMiddleware(answer, edge=edge)
    sides: list[Callable[[], float]] = [
        partial(seconds, partial(only_decide, edge, body)),
        partial(seconds, partial(edge.prepare, CHAT_PATH, body)),
        lambda: asyncio.run(longest_stall(app, bytes(body))),
    ]
    decide, prepare, stall = alternating(sides, rounds)
    what = f"{count} photos, {len(body) / 1e6:.0f} MB"
    figures = f"find + probe + plan {decide * 1e3:.2f} ms; the whole {prepare * 1e3:.0f} ms"
    share = decide / (prepare - decide)
    return [
        row(f"(d) {what}: deciding : preparing", figures, share, f"<= {bound}", share <= bound),
        row(f"(d) {what}: longest stall of the event loop", figures, stall, "<= 10 ms", stall <= 10, "ms"),
    ]


def main() -> None:
    asked = arguments(__doc__)
    edge = Edge(SETTINGS)
    pictures = photos(asked.photos, (7.9, 24.5))
    largest = max(pictures, key=len)
    rows = [
        *pixels(edge, pictures, asked.rounds),
        text_in_process(asked.rounds),
        text_over_uvicorn(asked.rounds),
        *deciding(edge, largest, 2, 0.03, asked.rounds),
        *deciding(edge, largest, 10, 0.06, asked.rounds),
    ]
    show(rows, asked.json)
    edge.close()


if __name__ == "__main__":
    os.environ.pop("VLM_EDGE_CONFIG", None)
    main()
