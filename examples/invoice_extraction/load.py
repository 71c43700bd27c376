"""
Load: many invoices at once through the service, before a stand-in for vLLM. Prints what the edge adds.

    python load.py                                     50 of the product's own demo pictures, at once
    python load.py ~/scans --count 200 --clients 20    a folder of invoices, 20 at a time

The service runs in a process of its own, as in production, and its own clock is read: the header Server-Timing.
"""

import argparse
import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import cycle, islice
from math import ceil
from pathlib import Path
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from vlm_edge.cli import demo

HERE = Path(__file__).parent
ALONE = 20  # invoices at most that are sent one at a time, for what each costs without the others
STEPS = ("upload", "edge", "queue", "model")
SUFFIXES = frozenset(".pdf .jpg .jpeg .png .webp .gif .tif .tiff .heic .avif .bmp".split())
INVOICE = '{"amount": "1234.50", "currency": "EUR", "issuer": "A stand-in", "date": "2026-01-31"}'


class Result(NamedTuple):
    """One invoice: the status, what each step took in the service, the whole as the client saw it, and tokens."""

    file: Path
    status: int
    steps_ms: dict[str, float]
    total_ms: float
    tokens: int


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    files = sorted(file for file in options.folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if not files:
        print(f"no invoices in {options.folder}", file=sys.stderr)
        return 2
    with demo.serving(stand_in(options.model_s)) as backend, service(backend, options.count) as port:
        for file in {file.suffix: file for file in files}.values():
            send(port, file)  # the first of its kind loads its decoder
        alone = [send(port, file) for file in files[:ALONE]]
        begin = time.perf_counter()
        with ThreadPoolExecutor(options.clients) as clients:
            together = list(clients.map(lambda file: send(port, file), islice(cycle(files), options.count)))
        seconds = time.perf_counter() - begin
    return report(alone, together, seconds, options.clients)


def stand_in(model_s: float) -> Starlette:
    """A backend that takes its time and always reads the same."""

    async def chat(request: Request) -> JSONResponse:
        await request.body()
        await asyncio.sleep(model_s)
        message = {"role": "assistant", "content": INVOICE}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


@contextmanager
def service(backend: int, max_waiting: int) -> Iterator[int]:
    """The service of this folder before the backend; its port. It listens before it is up, and clients wait."""
    ours = {"INVOICE_BASE_URL": f"http://127.0.0.1:{backend}/v1", "INVOICE_MAX_WAITING": f"{max_waiting}"}
    with socket.create_server(("127.0.0.1", 0), backlog=1_024) as listener:
        command = [sys.executable, "-m", "uvicorn", "--factory", "service:create_app", "--log-level", "warning"]
        process = subprocess.Popen(
            [*command, "--fd", f"{listener.fileno()}"],
            cwd=HERE,
            env=os.environ | ours,
            pass_fds=[listener.fileno()],
        )
        try:
            yield listener.getsockname()[1]
        finally:
            process.terminate()
            process.wait()


def send(port: int, file: Path) -> Result:
    begin = time.perf_counter()
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("POST", "/extract", file.read_bytes())
        response = connection.getresponse()
        response.read()
    finally:
        connection.close()
    total_ms = (time.perf_counter() - begin) * 1e3
    steps = re.findall(r"(\w+);dur=([\d.]+)", response.getheader("server-timing", ""))
    tokens = response.getheader("x-vlm-edge-vision-tokens", "0").partition(";")[0]
    return Result(file, response.status, {name: float(ms) for name, ms in steps}, total_ms, int(tokens))


def report(alone: Sequence[Result], together: Sequence[Result], seconds: float, clients: int) -> int:
    """Print the table; the exit code: 1 if an invoice was not read."""
    read = [result for result in together if result.status == 200]
    print(f"{len(read)} of {len(together)} invoices read, {clients} at once, {os.cpu_count()} processors\n")
    if read:
        _table([one for one in alone if one.status == 200], read)
        print(f"\nthroughput    {len(read) / seconds:.1f} invoices/s")
        print(f"vision tokens {sum(one.tokens for one in read) / len(read):,.0f} an invoice")
    for file, status in sorted({(one.file.name, one.status) for one in (*alone, *together) if one.status != 200}):
        print(f"{file}: status {status}", file=sys.stderr)
    return 0 if len(read) == len(together) else 1


def _table(*runs: Sequence[Result]) -> None:
    print(f"{'':10}{'one at a time':>20}{'at once':>20}")
    print(f"{'ms':10}" + f"{'P50':>10}{'P99':>10}" * len(runs))
    for step in STEPS:
        _row(step, [[one.steps_ms[step] for one in run] for run in runs])
    _row("in all", [[one.total_ms for one in run] for run in runs])


def _row(name: str, runs_ms: Sequence[Sequence[float]]) -> None:
    cells = [f"{percentile(run_ms, percent):10.1f}" for run_ms in runs_ms for percent in (50, 99)]
    print(f"{name:10}" + "".join(cells))


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of all do not exceed."""
    if not values:
        return float("nan")
    return sorted(values)[ceil(len(values) * percent / 100) - 1]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Many invoices at once through the service.")
    parser.add_argument("folder", type=Path, nargs="?", default=demo.PICTURES, help="of invoices")
    parser.add_argument("--count", type=int, default=50, help="invoices to send; the folder's over and over")
    parser.add_argument("--clients", type=int, default=50, help="that send at once")
    parser.add_argument("--model-s", type=float, default=0.5, help="seconds that the stand-in takes for an answer")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
