"""What the benchmarks share: their pictures, their requests, and how figures are printed."""

import argparse
import asyncio
import base64
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vlm_edge.media.probe import probe
from vlm_edge.media.source import Bytes

CHAT_PATH = "/v1/chat/completions"
MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
TEXT = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hello " * 670}], "stream": True})

SHIPPED = Path(__file__).parent.parent / "vlm_edge" / "cli" / "pictures"


def arguments(doc: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side runs; medians are shown")
    parser.add_argument("--photos", type=Path, default=_photos(), help="folder of JPEG photos")
    return parser.parse_args()


def _photos() -> Path:
    corpus = os.environ.get("VLM_EDGE_CORPUS")
    return Path(corpus) / "photos" if corpus else SHIPPED


def photos(folder: Path, megapixels: tuple[float, float]) -> list[bytes]:
    """The JPEG files of a folder whose pictures are that large."""
    low, high = megapixels
    files = [file.read_bytes() for file in sorted(folder.glob("*.jpg"))]
    chosen = [data for data in files if low <= probe(Bytes(data)).size.pixels / 1e6 <= high]
    if not chosen:
        raise SystemExit(f"{folder} has no photo of {low:g} to {high:g} MP")
    return chosen


def chat(*pictures: bytes, text: str = "What is in the picture?") -> bytes:
    urls = [f"data:image/jpeg;base64,{base64.b64encode(data).decode()}" for data in pictures]
    parts = [{"type": "text", "text": text}, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]
    return orjson.dumps({"model": MODEL, "messages": [{"role": "user", "content": parts}]})


async def answer(_: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def post(body: bytes, piece: int = 65_536) -> tuple[Scope, Receive]:
    """The scope and receive of a POST whose body arrives in pieces, as from a socket."""
    headers = [(b"host", b"x"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    starts = iter(range(0, len(body), piece))

    async def receive() -> Message:
        start = next(starts, None)
        if start is None:
            return {"type": "http.disconnect"}
        if start:
            await asyncio.sleep(0)  # each piece is a turn of the loop, as from a socket
        more = start + piece < len(body)
        return {"type": "http.request", "body": body[start : start + piece], "more_body": more}

    scope = {"type": "http", "method": "POST", "path": CHAT_PATH, "root_path": "", "query_string": b""}
    return {**scope, "headers": headers}, receive


async def discard(_: Message) -> None:
    pass


async def microseconds(app: ASGIApp, requests: int = 2_000) -> float:
    begin = time.perf_counter()
    for _ in range(requests):
        await app(*post(TEXT), discard)
    return (time.perf_counter() - begin) / requests * 1e6


def alternating(sides: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """The median of each side's own figure; the sides take turns, so that a slow minute hits all alike."""
    return [statistics.median(kept) for kept in turns(sides, rounds)]


def turns(sides: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Each side's figures, turn by turn."""
    figures: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds + 1):
        for side, kept in zip(sides, figures, strict=True):
            figure = side()
            if turn:  # the first turn warms up
                kept.append(figure)
    return figures


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def show(rows: list[dict[str, Any]], as_json: bool) -> None:
    """One row a question: what was asked, the figures, the ratio and the bound it should keep."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        verdict = "" if row.get("holds") is None else "   holds" if row["holds"] else "   DOES NOT HOLD"
        print(f"{row['question']}\n    {row['figures']}\n    {row['result']}{verdict}")


def row(question: str, figures: str, value: float, bound: str, holds: bool, unit: str = "x") -> dict[str, Any]:
    result = f"{value:.3g} {unit} (wanted {bound})"
    return {"question": question, "figures": figures, "value": value, "result": result, "holds": holds}
