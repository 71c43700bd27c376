"""`vlm-edge serve` as a process, before a backend on this machine."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from tests.cli.command import COMMAND, PATIENCE_S, environment, told, told_usage, vlm_edge
from tests.samples import CHAT_PATH, PHONE, chat, image_part, opened, sent_picture
from tests.servers import Recorder, connected, free_port, read_until, served, wait_until


@dataclass
class Gateway:
    """A gateway as a process; `end` asks it to end and gives the return code and what it said on stderr."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def end(self, how: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(how)
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, stderr.decode()


@contextmanager
def serving(backend: int) -> Iterator[Gateway]:
    port = free_port()
    command = [*COMMAND, "serve", "--port", f"{port}", "--backend", f"http://127.0.0.1:{backend}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment()) as process:
        try:
            wait_until(lambda: process.poll() is not None or listens(port))
            yield Gateway(port, process)
        finally:
            process.kill()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_asked_to_end(how: signal.Signals) -> None:
    backend = Recorder(headers=[(b"server", b"vllm")])
    with served(backend) as behind, serving(behind) as gateway:
        assert httpx.get(f"{gateway.url}/health").json()["status"] == "ok"
        body = chat(image_part(PHONE.read_bytes()))
        response = httpx.post(gateway.url + CHAT_PATH, content=body, timeout=PATIENCE_S)
        code, stderr = gateway.end(how)
    assert response.content == backend.body
    assert response.headers.get_list("server") == ["vllm"]
    assert opened(sent_picture(backend.last.body)).size == (1008, 756)
    assert code in (0, -how, 128 + how)
    assert stderr.splitlines()[0] == f"vlm-edge: {gateway.url} -> http://127.0.0.1:{behind}"
    assert "Traceback" not in stderr


def test_its_log_is_its_own() -> None:
    """What libvips has to say about each picture is neither news nor ours."""
    with served(Recorder()) as behind, serving(behind) as gateway:
        httpx.post(gateway.url + CHAT_PATH, content=chat(image_part(PHONE.read_bytes())), timeout=PATIENCE_S)
        _, stderr = gateway.end(signal.SIGTERM)
    assert "VIPS" not in stderr


def test_it_ends_while_a_client_is_still_connected() -> None:
    with serving(free_port()) as gateway, connected(gateway.port) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: edge\r\n\r\n")
        assert b"200 OK" in read_until(client, b"}")
        code, stderr = gateway.end(signal.SIGTERM)
    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in stderr


@pytest.mark.parametrize("backend", ["vllm:8000", "ftp://vllm", "http://", ""])
def test_a_backend_that_is_no_url_is_told(backend: str) -> None:
    told(vlm_edge("serve", "--backend", backend), 2, "backend", f"'{backend}'")


def test_a_backend_of_an_impossible_port_is_told() -> None:
    told(vlm_edge("serve", "--port", f"{free_port()}", "--backend", "http://vllm:99999", timeout=3), 2, "99999")


def test_a_port_that_is_none_is_told() -> None:
    run = vlm_edge("serve", "--port", "99999", "--backend", "http://127.0.0.1:9", timeout=3)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr.decode()
    assert "port" in run.stderr.decode()


def test_a_port_that_is_no_number_is_a_usage_error() -> None:
    told_usage(vlm_edge("serve", "--port", "http"), "--port")


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told(vlm_edge("serve", "--port", f"{port}", timeout=20), 2, "cannot listen", f"{port}")
