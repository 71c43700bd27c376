"""
Requests: what does it cost to find media in a body and to write new ones, and what does a request without any pay?

(a) a chat body of 11 MB with two photos: find and write against one orjson.loads of it
(b) the same for Anthropic's messages, whose payloads have no marker before them
(c) text requests of 4 KB through the middleware, against an earlier version (`--before`, a folder with its package)
"""

import argparse
import asyncio
import base64
import os
import random
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from bench_road import compared, start_server
from common import CHAT_PATH, MODEL, alternating, answer, microseconds, row, seconds, show

from vlm_edge import Edge, EdgeMiddleware

HERE = Path(__file__).parent.parent
MESSAGES_PATH = "/v1/messages"
PHOTO_BYTES = 4_100_000
REPEATS = 20
EDGE = Edge()
# A part of the text that an ordinary request holds beside its pictures.
HISTORY: list[dict[str, Any]] = [{"role": "user", "content": "What do you see in the picture? " * 10}] * 20


def payloads() -> list[str]:
    chance = random.Random(0)
    return [base64.b64encode(chance.randbytes(PHOTO_BYTES)).decode() for _ in range(2)]


def body_of(parts: list[dict[str, Any]]) -> bytes:
    return orjson.dumps({"model": MODEL, "messages": [*HISTORY, {"role": "user", "content": parts}]})


def chat_body() -> bytes:
    urls = [f"data:image/jpeg;base64,{payload}" for payload in payloads()]
    return body_of([{"type": "image_url", "image_url": {"url": url}} for url in urls])


def messages_body() -> bytes:
    sources = [{"type": "base64", "media_type": "image/jpeg", "data": payload} for payload in payloads()]
    return body_of([{"type": "image", "source": source} for source in sources])


def find_and_write(path: str, body: bytes) -> bytes:
    """As the edge does it, with pictures of 300 KB for those that came."""
    found = EDGE.find(path, body)
    assert found
    places = found.body.places(part.source for part in found.parts)
    return found.body.splice(dict.fromkeys(places.values(), b'"%s"' % (b"A" * 400000)))


def against_parsing(name: str, path: str, body: bytes, bound: float, rounds: int) -> dict[str, Any]:
    def repeated(work: partial[Any]) -> float:
        return seconds(lambda: [work() for _ in range(REPEATS)]) / REPEATS * 1e3

    sides = [partial(repeated, partial(find_and_write, path, body)), partial(repeated, partial(orjson.loads, body))]
    ours, parsing = alternating(sides, rounds)
    figures = f"find and write {ours:.2f} ms; orjson.loads {parsing:.2f} ms; {len(body) / 1e6:.1f} MB"
    return row(name, figures, ours / parsing, f"<= {bound}", ours <= bound * parsing)


def text_request() -> float:
    return asyncio.run(microseconds(EdgeMiddleware(answer), 5_000))


def text_request_of(package: Path) -> float:
    """The same of the package in another folder, in a process of its own."""
    folder = Path(__file__).parent
    ours = {**os.environ, "PYTHONPATH": f"{package.absolute()}{os.pathsep}{folder}"}
    command = [sys.executable, str(Path(__file__).absolute()), "--one"]
    return float(subprocess.run(command, env=ours, capture_output=True, text=True, check=True).stdout)


def pair(before: Path) -> float:
    """FastAPI under uvicorn with the middleware of now, and of before."""
    served = partial(start_server, "typed", "edge")
    return compared(partial(served, package=HERE), partial(served, package=before))


def against_before(before: Path, rounds: int) -> dict[str, Any]:
    """What users see, the median over pairs of servers; and what of it is ours, in process."""
    ours, theirs = alternating([partial(text_request_of, HERE), partial(text_request_of, before)], rounds)
    ratios = sorted(pair(before) for _ in range(rounds))
    figures = f"{rounds} pairs, {ratios[0]:.3f} to {ratios[-1]:.3f}; in process {ours:.2f} us, before {theirs:.2f} us"
    ratio = statistics.median(ratios)
    return row("(c) text of 4 KB over uvicorn, requests/s now : before", figures, ratio, ">= 0.97", ratio >= 0.97)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side runs; medians are shown")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(text_request())
        return
    rows = [
        against_parsing("(a) chat, find + write : orjson.loads", CHAT_PATH, chat_body(), 0.1, options.rounds),
        against_parsing(
            "(b) messages, find + write : orjson.loads", MESSAGES_PATH, messages_body(), 0.5, options.rounds
        ),
    ]
    if options.before:
        rows.append(against_before(options.before, options.rounds))
    show(rows, options.json)


if __name__ == "__main__":
    main()
