"""Service: the edge before a real vLLM, in its two faces, each a context manager; vLLM alone; and their processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.samples import ROOT
from tests.servers import free_port
from tests.vllm.environment import Environment, tail

MODEL = "tiny-vlm"
MISTAKEN = "tiny-vlm-believed-otherwise"  # the same, of which the settings are wrong
CONTEXT_TOKENS = 4_096
MAX_IMAGES = 2

START_S = 300.0
STOP_S = 30.0

VLLM_OPTIONS = (
    f"--served-model-name {MODEL} {MISTAKEN} --max-model-len {CONTEXT_TOKENS} --limit-mm-per-prompt.image {MAX_IMAGES} "
    "--max-num-seqs 8 --dtype float32 --enforce-eager --enable-prompt-tokens-details"
).split()

VLLM_VARIABLES = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # two processors must also do for the tests and the gateway
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True)
class Service:
    """url: of the edge, as clients use it. vllm_url: of vLLM's own server, which is the same for its middleware."""

    url: str
    vllm_url: str
    log: Path


@contextmanager
def gateway(environment: Environment, config: Path, log: Path) -> Iterator[Service]:
    port = free_port()
    with _vllm(environment, log) as backend:
        command = [sys.executable, "-m", "vlm_edge", "serve", "--config", f"{config}"]
        with _running([*command, "--backend", backend, "--port", f"{port}"], {}, port, log) as url:
            yield Service(url, backend, log)


@contextmanager
def middleware(environment: Environment, config: Path, log: Path) -> Iterator[Service]:
    with _vllm(environment, log, "--middleware", "vlm_edge.EdgeMiddleware", VLM_EDGE_CONFIG=str(config)) as url:
        yield Service(url, url, log)


@contextmanager
def alone(environment: Environment, log: Path, *options: str) -> Iterator[Service]:
    """vLLM without the edge."""
    with _vllm(environment, log, *options) as url:
        yield Service(url, url, log)


FACES: dict[str, Callable[[Environment, Path, Path], AbstractContextManager[Service]]] = {
    "gateway": gateway,
    "middleware": middleware,
}


def _vllm(environment: Environment, log: Path, *options: str, **variables: str) -> AbstractContextManager[str]:
    port = free_port()
    command = [f"{environment.vllm}", "serve", f"{environment.checkpoint}", "--host", "127.0.0.1", "--port", f"{port}"]
    variables |= VLLM_VARIABLES | {"VLLM_CACHE_ROOT": f"{environment.folder / 'cache'}"}
    return _running([*command, *VLLM_OPTIONS, *options], variables, port, log)


@contextmanager
def _running(command: Sequence[str], variables: Mapping[str, str], port: int, log: Path) -> Iterator[str]:
    """A server of this checkout's code in a process group of its own; its URL, once it says that it is well."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("VLM_EDGE_", "VLLM_"))}
    url = f"http://127.0.0.1:{port}"
    with log.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**ours, "PYTHONPATH": str(ROOT), **variables},
            start_new_session=True,
        )
    try:
        _wait_for_health(url, process, log)
        yield url
    finally:
        _stop(process)


def _wait_for_health(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/health").is_success:
                return
        time.sleep(0.25)
    raise RuntimeError(f"{url} did not come up; the end of {log}:\n{tail(log)}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Gently, and then whatever is left of the group: vLLM's engine and workers outlive a server that was killed."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
