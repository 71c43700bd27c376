import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real pictures that VLM_EDGE_CORPUS names; CI sets it."""
    folder = os.environ.get("VLM_EDGE_CORPUS")
    if not folder:
        pytest.skip("VLM_EDGE_CORPUS names no corpus")
    return Path(folder)
