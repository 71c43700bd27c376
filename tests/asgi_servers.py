"""Servers of other makes, each a process of its own with the app of asgi_app.py, and a client that sees every byte."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tests.samples import CHAT_PATH, ROOT
from tests.servers import PATIENCE_S, connected, free_port, wait_until

APP = "tests.asgi_app:app"

COMMANDS: dict[str, Callable[[int], list[str]]] = {
    "uvicorn-h11": lambda port: uvicorn(port, "h11"),
    "uvicorn-httptools": lambda port: uvicorn(port, "httptools"),
    "hypercorn": lambda port: ["hypercorn", "--workers=0", "--graceful-timeout=1", f"--bind=127.0.0.1:{port}", APP],
    "granian": lambda port: ["granian", "--interface=asgi", "--workers-kill-timeout=1", f"--port={port}", APP],
}
ROOT_PATH_OPTIONS = {
    "uvicorn-h11": "--root-path",
    "uvicorn-httptools": "--root-path",
    "hypercorn": "--root-path",
    "granian": "--url-path-prefix",
}
HTTP_2 = ["hypercorn", "granian"]


def uvicorn(port: int, http: str) -> list[str]:
    return ["uvicorn", f"--http={http}", "--timeout-graceful-shutdown=1", f"--port={port}", APP]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...]  # names in lower case, in the order of the wire
    body: bytes

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


@dataclass(frozen=True)
class Server:
    kind: str
    port: int
    log: Path

    def ask(self, written: bytes) -> Answer:
        """One answer on a connection of its own."""
        with connected(self.port) as connection, connection.makefile("rb") as wire:
            connection.sendall(written)
            return read_answer(wire)

    def heard(self, bell: str) -> str:
        """Wait until the app has rung; what it said."""
        answer = self.ask(request(app="bells", method="GET", target=f"/bells/{bell}"))
        assert answer.status == 200, f"{bell} was never rung"
        return answer.body.decode()

    def ring(self, bell: str) -> None:
        assert self.ask(request(app="bells", method="PUT", target=f"/bells/{bell}")).status == 200


@contextmanager
def running(kind: str, folder: Path, *options: str) -> Iterator[Server]:
    """A server of this kind that answers; it is asked to end, as by an operator, and has ended afterwards."""
    server = Server(kind, free_port(), folder / "log")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VLM_EDGE_")}
    with server.log.open("wb") as log:
        command = [sys.executable, "-m", *COMMANDS[kind](server.port), *options]
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)
    try:
        wait_until(lambda: answers(server, process))
        yield server
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(server: Server, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, server.log.read_text()
    try:
        server.ring("ready")
    except OSError:
        return False
    return True


def request(
    body: bytes = b"",
    *headers: str,
    app: str = "edge",
    do: str = "body",
    bell: str = "",
    method: str = "POST",
    target: str = CHAT_PATH,
    version: str = "1.1",
) -> bytes:
    """The bytes of a request; its length is declared unless the headers say how it comes."""
    query = f"?do={do}&bell={bell}" if do else ""
    lines = [f"{method} {target}{query} HTTP/{version}", "Host: edge", f"X-App: {app}", *headers]
    if method == "POST" and not any(line.startswith(("Transfer-Encoding", "Content-Length")) for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunks(body: bytes, size: int = 50_000) -> Iterator[bytes]:
    """The body as chunks of a chunked upload, with the last, empty one."""
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def read_answer(wire: BinaryIO, *, to_head: bool = False) -> Answer:
    """The next answer of a connection and not a byte more; that to a HEAD request has no body."""
    status_line = wire.readline()
    assert status_line.startswith(b"HTTP/1."), status_line
    status = int(status_line.split()[1])
    headers = tuple(read_headers(wire))
    bodiless = to_head or status < 200
    return Answer(status, headers, b"" if bodiless else read_body(wire, dict(headers)))


def read_headers(wire: BinaryIO) -> Iterator[tuple[str, str]]:
    while line := wire.readline().strip().decode("latin-1"):
        name, _, value = line.partition(":")
        yield name.lower(), value.strip()


def read_body(wire: BinaryIO, headers: dict[str, str]) -> bytes:
    if "content-length" in headers:
        body = wire.read(int(headers["content-length"]))
        assert len(body) == int(headers["content-length"])
        return body
    if headers.get("transfer-encoding") == "chunked":
        return b"".join(read_chunks(wire))
    return wire.read()


def read_chunks(wire: BinaryIO) -> Iterator[bytes]:
    """The chunks of a body as they come; it must end with the empty one."""
    while size := int(wire.readline(), 16):
        yield wire.read(size)
        assert wire.readline() == b"\r\n"
    assert wire.readline() == b"\r\n"
