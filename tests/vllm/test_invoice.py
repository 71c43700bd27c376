"""
The invoice service before a real vLLM, started as its script starts it.

The model's weights are random, so what it reads is nonsense; but vLLM holds it to the schema, so the form is right.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.samples import PHONE, PICTURES, ROOT, TRANSPARENT, encoded, picture, png
from tests.servers import served
from tests.vllm.client import Client
from tests.vllm.environment import Environment
from tests.vllm.service import MODEL, Service, alone
from vlm_edge import Edge, Settings
from vlm_edge.models import ModelSettings
from vlm_edge.report import Report

EXAMPLE = ROOT / "examples" / "invoice_extraction"
SETTINGS = Settings(models={MODEL: ModelSettings(family="qwen2_5_vl")})
MAX_PAGES = SETTINGS.profiles["invoice"].pages.max

BLOCK = 128  # tokens of a block of the prefix cache, on a CPU

STUB = f"#!{sys.executable}\nimport sys\nprint(chr(0).join(sys.argv[3:]))\n"  # behind `serve` and the model


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the script hands to vLLM."""
    folder = tmp_path_factory.mktemp("stub")
    stub = folder / "vllm"
    stub.write_text(STUB)
    stub.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    script = EXAMPLE / "serve_vllm.sh"
    done = subprocess.run([script], env={**os.environ, "PATH": path}, check=True, capture_output=True, text=True)
    return done.stdout.removesuffix("\n").split("\0")


@pytest.fixture(scope="module")
def service(
    environment: Environment, options: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """vLLM alone, in place of the two faces: the pictures are prepared before it."""
    with alone(environment, tmp_path_factory.mktemp("invoice") / "servers.log", *options) as service:
        yield service


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        import service  # type: ignore[import-not-found, unused-ignore]

        yield service
    for name in ("service", "invoice"):
        sys.modules.pop(name, None)


@dataclass(frozen=True)
class Extraction:
    """An answer of the service, and what vLLM counted for it."""

    response: httpx.Response
    prompt_tokens: float
    cached_tokens: float


@contextmanager
def extracting(example: ModuleType, service: Service, **settings: Any) -> Iterator[httpx.Client]:
    ours = example.ServiceSettings(base_url=f"{service.vllm_url}/v1", model=MODEL, **settings)
    app = example.create_app(ours, SETTINGS)
    with served(app) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        yield client


def extract(client: httpx.Client, vllm: Client, file: bytes) -> Extraction:
    names = "vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total"
    before = [vllm.metric(name) for name in names]
    response = client.post("/extract", content=file)
    after = [vllm.metric(name) for name in names]
    return Extraction(response, *(now - then for now, then in zip(after, before, strict=True)))


async def ask(example: ModuleType, service: Service, file: bytes) -> tuple[Report, dict[str, Any]]:
    """What the edge says of the pictures that it makes of a file, and vLLM of the prompt that the service asks."""
    settings = example.ServiceSettings(base_url=f"{service.vllm_url}/v1", model=MODEL)
    with closing(Edge(SETTINGS)) as edge:
        reader = example.Reader(settings, edge)
        async with reader.client:
            messages, report = await reader.prepare(file)
            answer = await reader.client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
    return report, answer.usage.to_dict()


@pytest.mark.parametrize("name", ["leaf_8mp_phone.jpg", "retina.jpg", "screenshot_transparent.png", "rocket.jpg"])
def test_an_invoice_is_read_in_the_form_asked_for(
    name: str, example: ModuleType, service: Service, vllm: Client
) -> None:
    with extracting(example, service) as client:
        answer = extract(client, vllm, (PICTURES / name).read_bytes()).response
    assert answer.status_code == 200, answer.text
    invoice = answer.json()
    assert list(invoice) == ["amount", "currency", "issuer", "date"]
    assert Decimal(invoice["amount"]).is_finite()
    assert date.fromisoformat(invoice["date"])


@pytest.mark.parametrize("file", [PHONE, TRANSPARENT], ids=lambda file: file.stem)
def test_a_picture_costs_what_the_edge_says(file: Path, example: ModuleType, service: Service) -> None:
    report, usage = asyncio.run(ask(example, service, file.read_bytes()))
    assert report.exact
    assert usage["prompt_tokens_details"]["multimodal_tokens"] == {"image": report.tokens}


def test_the_pages_of_a_document_cost_what_the_edge_says(example: ModuleType, service: Service) -> None:
    first, *others = [picture(1_240, 1_754) for _ in range(MAX_PAGES)]
    file = encoded(first, "PDF", save_all=True, append_images=others)
    report, usage = asyncio.run(ask(example, service, file))
    assert len(report.pictures) == MAX_PAGES
    assert usage["prompt_tokens_details"]["multimodal_tokens"] == {"image": report.tokens}


def test_the_instructions_come_from_the_prefix_cache(example: ModuleType, service: Service, vllm: Client) -> None:
    with extracting(example, service) as client:
        extract(client, vllm, png(560, 840))
        second = extract(client, vllm, png(840, 560))
    instructions = len(example.question("")[0]["content"].encode())  # a byte is a token
    assert second.cached_tokens >= instructions // BLOCK * BLOCK > 0


def test_the_pages_come_from_the_prefix_cache_when_the_model_is_asked_again(
    example: ModuleType, service: Service, vllm: Client
) -> None:
    with extracting(example, service, max_tokens=20) as client:  # too few for any invoice
        answer = extract(client, vllm, png(1_120, 1_120))
    tokens = (1_120 // 28) ** 2
    assert (answer.response.status_code, answer.response.json()["error"]["code"]) == (502, "invalid_answer")
    assert answer.prompt_tokens > 2 * tokens
    assert answer.cached_tokens > tokens
    assert answer.prompt_tokens - answer.cached_tokens < 2 * tokens
