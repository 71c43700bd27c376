"""Two servers, one after the other: every test runs over the gateway and then over the middleware inside vLLM."""

from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.vllm.client import Client
from tests.vllm.environment import Environment, ready, tail
from tests.vllm.service import FACES, MAX_IMAGES, MISTAKEN, MODEL, Service
from vlm_edge import Edge, Settings

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    service = getattr(item, "funcargs", {}).get("service")
    if report.failed and isinstance(service, Service):
        report.sections.append(("servers", tail(service.log)))
    return report
