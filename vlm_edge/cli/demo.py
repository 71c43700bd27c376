"""vlm-edge demo: the gateway before a stand-in backend, and real pictures through both, on this machine alone."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Annotated, Any

import msgspec
import orjson
import typer
from rich.markup import escape
from rich.table import Table
from starlette.types import ASGIApp

from vlm_edge.cli import options, standin
from vlm_edge.errors import MissingExtra, RequestError, UnknownProfile
from vlm_edge.geometry import Size
from vlm_edge.media import data_url
from vlm_edge.media.probe import probe
from vlm_edge.media.source import Bytes
from vlm_edge.requests.endpoints import CHAT_PATH
from vlm_edge.settings import Settings

PICTURES = Path(__file__).parent / "pictures"

Files = Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="Pictures of your own.", exists=True)]


@dataclass(frozen=True, slots=True)
class Row:
    """One picture on its way: as the client sent it, and as the backend received it."""

    name: str
    size_before: Size
    size: Size
    bytes_before: int
    bytes: int
    tokens_before: int
    tokens: int
    ms: float


def command(
    files: Files = None, profile: options.Profile = "standard", model: options.Model = "Qwen/Qwen2.5-VL-7B-Instruct"
) -> None:
    """Send real pictures through the gateway to a stand-in backend and show what was saved."""
    if profile not in Settings().profiles:
        raise UnknownProfile(profile, Settings().profiles)
    pictures = files or sorted(file for file in PICTURES.iterdir() if file.suffix in (".jpg", ".png"))
    with ExitStack() as stack:
        backend = stack.enter_context(serving(standin.app))
        gateway = stack.enter_context(serving(_gateway(backend)))
        _send(gateway, PICTURES / "rocket.jpg", profile, model)  # the first request loads libvips
        rows = [_send(gateway, file, profile, model) for file in pictures]
    _print(rows, profile, model)


def _gateway(backend: int) -> ASGIApp:
    try:
        from vlm_edge.gateway.app import create_app
    except ImportError as error:
        raise MissingExtra("the gateway", "gateway") from error
    settings = Settings()
    upstream = msgspec.structs.replace(settings.gateway, backend=f"http://127.0.0.1:{backend}")
    return create_app(msgspec.structs.replace(settings, gateway=upstream))


@contextmanager
def serving(app: ASGIApp) -> Iterator[int]:
    """Serve an app on a free port of this machine, in a thread; the port."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("the gateway", "gateway") from error
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


def _send(port: int, file: Path, profile: str, model: str) -> Row:
    data = file.read_bytes()
    found = probe(Bytes(data))
    part = {"type": "image_url", "image_url": {"url": data_url.build(found.media_type, data).decode()}}
    text = {"type": "text", "text": "What is in this picture?"}
    body = orjson.dumps({"model": model, "messages": [{"role": "user", "content": [text, part]}]})
    cost = _post(port, "/edge/estimate", body, profile)
    begin = time.perf_counter()
    answer = _post(port, CHAT_PATH, body, profile)
    ms = (time.perf_counter() - begin) * 1e3
    received = answer["choices"][0]["message"]["received"][0]
    return Row(
        name=file.name,
        size_before=found.size,
        size=Size(*received["size"]),
        bytes_before=len(data),
        bytes=received["bytes"],
        tokens_before=cost["parts"][0]["tokens_before"],
        tokens=cost["tokens"],
        ms=ms,
    )


def _post(port: int, path: str, body: bytes, profile: str) -> Any:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", "X-VLM-Edge-Profile": profile})
        response = connection.getresponse()
        answer = orjson.loads(response.read())
    finally:
        connection.close()
    if response.status != 200:
        raise RequestError(answer["error"]["message"])
    return answer


def _print(rows: list[Row], profile: str, model: str) -> None:
    table = Table(title=f"client -> vlm-edge -> backend, profile {profile}, tokens of {model}")
    for column in ("picture", "size", "bytes", "vision tokens", "ms"):
        table.add_column(column, justify="left" if column == "picture" else "right")
    for row in rows:
        table.add_row(
            escape(row.name),
            f"{row.size_before} -> {row.size}",
            f"{row.bytes_before:,} -> {row.bytes:,}",
            f"{row.tokens_before:,} -> {row.tokens:,}",
            f"{row.ms:.0f}",
        )
    before, after = sum(row.tokens_before for row in rows), sum(row.tokens for row in rows)
    console = options.console()
    console.print(table)
    console.print(f"{len(rows)} pictures: {before:,} -> {after:,} vision tokens, {before / max(1, after):.1f}x fewer")
