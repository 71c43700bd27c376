"""Each example is run as its reader would run it, before a stand-in for vLLM."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.samples import CHAT_PATH, PHONE, QWEN, ROOT, chat, image_part
from tests.servers import free_port, served, wait_until
from vlm_edge.cli import standin

EXAMPLES = ROOT / "examples"


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fastapi_gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("VLM_EDGE_CONFIG", raising=False)
    monkeypatch.setenv("API_KEY", "secret")
    with served(standin.app) as backend:
        monkeypatch.setenv("VLLM_URL", f"http://127.0.0.1:{backend}")
        with served(loaded("fastapi_gateway").app) as port:
            yield f"http://127.0.0.1:{port}"


def test_the_fastapi_gateway_prepares_pictures_for_an_openai_client(fastapi_gateway: str) -> None:
    with openai.OpenAI(base_url=f"{fastapi_gateway}/v1", api_key="secret", max_retries=0) as client:
        part: Any = image_part(PHONE.read_bytes())
        answer = client.chat.completions.create(model=QWEN, messages=[{"role": "user", "content": [part]}])
    (received,) = answer.choices[0].message.model_dump()["received"]
    assert received["size"] == [1008, 756]
    assert received["bytes"] < PHONE.stat().st_size


def test_the_fastapi_gateway_keeps_its_own_routes_and_its_key(fastapi_gateway: str) -> None:
    key = {"Authorization": "Bearer secret"}
    assert httpx.get(f"{fastapi_gateway}/hello", headers=key).json() == {"hello": "from the service"}
    assert httpx.post(f"{fastapi_gateway}{CHAT_PATH}", content=b"no JSON").status_code == 401


# What `vllm serve --middleware` does with the class, as far as an example can tell: loads it by its name, adds it
# without arguments, serves. tests/vllm does it with the real one.
VLLM = """#!{python}
import importlib, sys
import uvicorn
from vlm_edge.cli.standin import app
command, model, *options = sys.argv[1:]
given = dict(zip(options[::2], options[1::2]))
module, _, name = given["--middleware"].rpartition(".")
app.add_middleware(getattr(importlib.import_module(module), name))
uvicorn.run(app, port=int(given["--port"]), log_level="warning")
"""


@contextmanager
def vllm_middleware(folder: Path) -> Iterator[str]:
    port = free_port()
    stub = folder / "vllm"
    stub.write_text(VLLM.format(python=sys.executable))
    stub.chmod(0o755)
    command = [f"{EXAMPLES}/vllm_middleware.sh", QWEN, "--port", f"{port}"]
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(command, env={**os.environ, "PATH": path}) as process:
        try:
            wait_until(lambda: _answers(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/")
    except httpx.HTTPError:
        return False
    return True


def test_the_vllm_script_mounts_the_edge_with_its_settings(tmp_path: Path) -> None:
    with vllm_middleware(tmp_path) as url:
        body = chat(image_part(PHONE.read_bytes()), model="shop-tagging")
        answer = httpx.post(url + CHAT_PATH, content=body, timeout=30)
    assert answer.headers["x-vlm-edge-profile"] == "thumbnail"  # by the rule of examples/edge.toml for *-tagging
    assert answer.json()["choices"][0]["message"]["received"][0]["size"] == [448, 336]
