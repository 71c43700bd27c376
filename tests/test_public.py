import re
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import vlm_edge
from tests.samples import QWEN, jpeg, opened
from vlm_edge.geometry import Size

NAMES = {
    "Edge": "vlm_edge.edge",
    "EdgeError": "vlm_edge.errors",
    "EdgeMiddleware": "vlm_edge.middleware",
    "Profile": "vlm_edge.media.profile",
    "Settings": "vlm_edge.settings",
    "Size": "vlm_edge.geometry",
}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=Path("/"))


@pytest.mark.parametrize(("name", "home"), NAMES.items())
def test_a_public_name_is_the_thing_where_it_lives(name: str, home: str) -> None:
    assert getattr(vlm_edge, name) is getattr(import_module(home), name)


def test_all_is_the_public_names_and_true() -> None:
    assert sorted(vlm_edge.__all__) == sorted(NAMES)
    assert all(hasattr(vlm_edge, name) for name in vlm_edge.__all__)


def test_all_can_be_imported_by_a_star() -> None:
    run = python("-W", "error", "-c", f"from vlm_edge import *; print(*map(type, ({', '.join(NAMES)})))")
    assert run.returncode == 0, run.stderr


def test_tokens_are_reached_from_the_package() -> None:
    run = python("-c", f"import vlm_edge; print(vlm_edge.tokens.lookup('{QWEN}').image(vlm_edge.Size(1280, 720)))")
    assert run.stdout.strip() == str(46 * 26)


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Edgy"):
        vlm_edge.Edgy  # noqa: B018 - the access is what fails


@pytest.mark.parametrize("module", ["vlm_edge", "vlm_edge.tokens", "vlm_edge.edge", "vlm_edge.middleware"])
def test_an_import_gives_no_warning_and_no_output(module: str) -> None:
    run = python("-W", "error", "-c", f"import {module}")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_the_version_is_that_of_the_distribution() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", vlm_edge.__version__)
    assert metadata.version("vlm-edge") == vlm_edge.__version__


def test_the_package_is_typed() -> None:
    assert (Path(vlm_edge.__file__).parent / "py.typed").is_file()


def test_the_contract_of_the_core_holds() -> None:
    edge = vlm_edge.Edge()
    picture = edge.picture(jpeg(2_000, 1_000), profile="document", model=QWEN)
    assert (picture.media_type, picture.size) == ("image/jpeg", Size(2_000, 1_000))
    assert picture.tokens == vlm_edge.tokens.lookup(QWEN).image(picture.size)
    assert opened(picture.data).size == picture.size
    with pytest.raises(vlm_edge.EdgeError) as caught:
        edge.picture(b"<html>")
    assert (caught.value.code, caught.value.status) == ("unsupported_media", 400)


def test_the_contract_of_counting_holds() -> None:
    family = vlm_edge.tokens.lookup(QWEN, max_pixels=1_003_520)
    assert family.image(Size(1_280, 720)) == 46 * 26
    assert family.images([Size(224, 224), Size(448, 448)]) == [64, 256]
    assert family.aligned(Size(1_281, 719)) == Size(1_288, 728)
    assert family.video(frames=16, size=Size(224, 224), fps=2.0) == 8 * 64
