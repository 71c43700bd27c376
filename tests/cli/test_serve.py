"""`vlm-edge serve` as a process, before a backend on this machine."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.cli.command import COMMAND, PATIENCE_S, environment, told, told_usage, vlm_edge
from tests.samples import CHAT_PATH, PHONE, chat, image_part, opened, sent_picture
from tests.servers import Recorder, free_port, served, wait_until


@contextmanager
def serving(*arguments: str, end: signal.Signals = signal.SIGTERM) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The gateway's URL, and its process, which is asked to end."""
    port = free_port()
    command = [*COMMAND, "serve", "--port", f"{port}", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment()) as process:
        try:
            wait_until(lambda: process.poll() is not None or listens(port))
            yield f"http://127.0.0.1:{port}", process
            process.send_signal(end)
            process.wait(PATIENCE_S)
        finally:
            process.kill()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_asked_to_end(end: signal.Signals) -> None:
    backend = Recorder(headers=[(b"server", b"vllm")])
    with served(backend) as behind, serving("--backend", f"http://127.0.0.1:{behind}", end=end) as (url, process):
        assert httpx.get(f"{url}/health").json()["status"] == "ok"
        response = httpx.post(url + CHAT_PATH, content=chat(image_part(PHONE.read_bytes())), timeout=PATIENCE_S)
    assert response.content == backend.body
    assert response.headers.get_list("server") == ["vllm"]
    assert opened(sent_picture(backend.last.body)).size == (1008, 756)
    assert process.stderr is not None
    assert process.returncode in (0, -end, 128 + end)
    assert b"Traceback" not in process.stderr.read() if not process.stderr.closed else True


def test_it_says_where_it_listens_and_where_it_sends() -> None:
    port = free_port()
    command = [*COMMAND, "serve", "--port", f"{port}", "--backend", "http://127.0.0.1:9"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stderr is not None
        try:
            wait_until(lambda: process.poll() is not None or listens(port))
        finally:
            process.send_signal(signal.SIGINT)
        stderr = process.stderr.read().decode()
    assert stderr.splitlines() == [f"vlm-edge: http://127.0.0.1:{port} -> http://127.0.0.1:9"]


@pytest.mark.parametrize("backend", ["vllm:8000", "ftp://vllm", "http://", ""])
def test_a_backend_that_is_no_url_is_told(backend: str) -> None:
    told(vlm_edge("serve", "--backend", backend), 2, "backend", f"'{backend}'")


@pytest.mark.xfail(strict=True, reason="the port of a backend's URL is not looked at: it serves, and fails each request")
def test_a_backend_of_an_impossible_port_is_told() -> None:
    told(vlm_edge("serve", "--port", f"{free_port()}", "--backend", "http://vllm:99999", timeout=3), 2, "99999")


@pytest.mark.xfail(strict=True, reason="uvicorn's OverflowError leaves as a traceback")
def test_a_port_that_is_none_is_told() -> None:
    run = vlm_edge("serve", "--port", "99999", "--backend", "http://127.0.0.1:9")
    assert run.returncode == 2
    assert "Traceback" not in run.stderr.decode()
    assert "port" in run.stderr.decode()


def test_a_port_that_is_no_number_is_a_usage_error() -> None:
    told_usage(vlm_edge("serve", "--port", "http"), "--port")


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = vlm_edge("serve", "--port", f"{taken.getsockname()[1]}", "--backend", "http://127.0.0.1:9")
    assert run.returncode != 0
    assert "address already in use" in run.stderr.decode()
    assert "Traceback" not in run.stderr.decode()
