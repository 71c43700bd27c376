"""Two servers, one after the other: every test runs over the gateway and then over the middleware inside vLLM."""

import json
import os
import subprocess
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.vllm.client import Client
from tests.vllm.environment import Environment, ready, tail
from tests.vllm.service import FACES, MAX_IMAGES, MISTAKEN, MODEL, VLLM_VARIABLES, Service
from vlm_edge import Edge, Settings

Job = dict[str, Any]
Ask = Callable[[Sequence[Job]], list[dict[str, Any]]]

SETTINGS = f"""\
[models.{MODEL}]
checkpoint = "CHECKPOINT"

[models.{MISTAKEN}]
family = "qwen2_5_vl"
params = {{ max_pixels = 100_352 }}

[limits]
max_images = {MAX_IMAGES}
max_request_tokens = 2_500
"""


@pytest.fixture(scope="session")
def environment() -> Environment:
    return ready()


@pytest.fixture(scope="session")
def config(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "edge.toml"
    path.write_text(SETTINGS.replace("CHECKPOINT", f"{environment.checkpoint}"))
    return path


@pytest.fixture(scope="session", params=FACES)
def service(
    request: pytest.FixtureRequest, environment: Environment, config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    face: str = request.param
    with FACES[face](environment, config, tmp_path_factory.mktemp(face) / "servers.log") as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with httpx.Client(base_url=service.url, timeout=60) as http:
        yield Client(http)


@pytest.fixture
def vllm(service: Service) -> Iterator[Client]:
    """vLLM's own server, past the gateway."""
    with httpx.Client(base_url=service.vllm_url, timeout=60) as http:
        yield Client(http)


@pytest.fixture(scope="session")
def edge(config: Path) -> Iterator[Edge]:
    """The edge of this process, with the servers' settings: what they send on can be seen here."""
    edge = Edge(Settings.load(config))
    yield edge
    edge.close()


@pytest.fixture(scope="session")
def ask(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Jobs for vLLM's code."""

    def ask(jobs: Sequence[Job]) -> list[dict[str, Any]]:
        file = tmp_path_factory.mktemp("jobs") / "jobs.json"
        file.write_text(json.dumps(jobs))
        command = [environment.python, Path(__file__).with_name("prompts.py"), file]
        run = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **VLLM_VARIABLES})
        assert run.returncode == 0, run.stderr[-2_000:]
        answers: list[dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
        return answers

    return ask


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    service = getattr(item, "funcargs", {}).get("service")
    if report.failed and isinstance(service, Service):
        report.sections.append(("servers", tail(service.log)))
    return report
