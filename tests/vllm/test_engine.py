"""
The exact engine and aligned sizes, before transformers' own processors, on 20 pictures of the corpus or on our own.

vLLM 0.32 takes transformers' processors on torchvision, and those are what the engine equals. Those on Pillow, which
vLLM does not choose by itself, weigh with more bits and may, from Pillow 13 on, change the height before the width.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from PIL import Image

from tests.media.files import exif, noise, quadrants
from tests.media.test_pillow import TORCHVISION
from tests.samples import PICTURES, encoded, picture
from tests.vllm.environment import Environment
from vlm_edge import Edge, Profile, Settings, Size
from vlm_edge.edge import Picture
from vlm_edge.models import ModelSettings
from vlm_edge.tokens import lookup

MODELS = {"qwen2_5_vl": "Qwen/Qwen2.5-VL-7B-Instruct", "qwen3_vl": "Qwen/Qwen3-VL-8B-Instruct"}
# Two that shrink most of the pictures, and one that enlarges the small ones.
LIMITS = [(3_136, 200_704), (3_136, 1_003_520), (600_000, 1_003_520)]

# Grey of sixteen bits is not among them: vLLM makes it white.
CORPUS = """
photos/canon_hdr_3mp_orient6.jpg photos/coins_adobe_rgb_2mp.jpg photos/flower_3mp_grayscale.jpg
photos/iphone11pro_display_p3_orient8_4032x3024.jpg photos/landscape_orient2.jpg photos/landscape_orient5.jpg
photos/landscape_orient7.jpg photos/map_cmyk_adobe.jpg photos/rocket_0.3mp.jpg photos/samsung_s7edge_12mp.jpg
photos/sony_p12_3mp_progressive.jpg screenshots/phoenix_2938x1660.webp screenshots/grafana_3806x1838_rgba.png
screenshots/topology_3832x1976_palette.png screenshots/shot_transparent_bg_1440x900.png
documents/doc_1bit_2480x1395.png documents/fax_g3_multipage.tif documents/sroie_receipt_012.jpg
formats/fox_8bit_420.avif formats/gif_transparent.gif
""".split()


@dataclass(frozen=True)
class Made:
    original: Path
    ours: Path
    family: str
    limits: tuple[int, int]
    before: Size
    after: Size


Ask = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ask(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Questions to the processors in vLLM's environment."""

    def answers(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        file = tmp_path_factory.mktemp("jobs") / "jobs.json"
        file.write_text(json.dumps(jobs))
        script = Path(__file__).with_name("processors.py")
        run = subprocess.run([environment.python, script, file], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        found: list[dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
        return found

    return answers


@pytest.fixture(scope="module")
def pictures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    shipped = sorted([*PICTURES.glob("*.jpg"), *PICTURES.glob("*.png")])
    generated = tmp_path_factory.mktemp("generated")
    for name, data in made_here().items():
        (generated / name).write_bytes(data)
    return [*shipped, *sorted(generated.iterdir()), *of_the_corpus(request)]


def of_the_corpus(request: pytest.FixtureRequest) -> list[Path]:
    try:
        folder: Path = request.getfixturevalue("corpus")
    except pytest.skip.Exception:
        return []
    return [folder / name for name in CORPUS]


def made_here() -> dict[str, bytes]:
    palette = picture(333, 222).convert("P")
    return {
        "cmyk.jpg": encoded(picture(640, 480).convert("CMYK"), "JPEG"),
        "grey_alpha.png": encoded(noise(301, 217, "LA"), "PNG"),
        "noise.png": encoded(noise(801, 617), "PNG"),
        "palette_clear.png": encoded(palette, "PNG", transparency=3),
        "rgba.png": encoded(noise(500, 401, "RGBA"), "PNG"),
        "small.bmp": encoded(noise(33, 31), "BMP"),
        "turned.webp": encoded(quadrants(640, 480), "WEBP", exif=exif(7), quality=90),
        "wide.gif": encoded(picture(1_200, 60), "GIF"),
    }


@pytest.fixture(scope="module")
def made(pictures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    """What the engine makes of each picture, once for a family; limits and formats take turns."""
    folder, all_made = tmp_path_factory.mktemp("ours"), []
    for index, original in enumerate(pictures):
        limits = LIMITS[index % 3]
        edge = Edge(exact(limits, ("png", "webp")[index % 2]))
        for family in MODELS:
            one, ours = edge.picture(original.read_bytes(), model=family), folder / f"{index}_{family}"
            ours.write_bytes(one.data)
            all_made.append(Made(original, ours, family, limits, one.report.size_before, one.size))
        edge.close()
    return all_made


def exact(limits: tuple[int, int], kind: Literal["png", "webp"]) -> Settings:
    """The exact engine, for models of these limits."""
    profile = Profile(engine="pillow", max_side=65_500, max_pixels=limits[1], format=kind)
    params: dict[str, int | float] = {"min_pixels": limits[0], "max_pixels": limits[1]}
    models = {family: ModelSettings(family=family, params=params) for family in MODELS}
    return Settings(profiles={"exact": profile}, default_profile="exact", models=models)


@pytest.fixture(scope="module")
def differences(made: list[Made], ask: Ask) -> dict[str, list[tuple[Made, dict[str, Any]]]]:
    """By backend."""
    jobs = [
        {
            "job": "differ",
            "original": str(one.original),
            "ours": str(one.ours),
            "backend": backend,
            "family": one.family,
            "limits": one.limits,
        }
        for backend in ("torchvision", "pil")
        for one in made
    ]
    answers = ask(jobs)
    return {
        "torchvision": list(zip(made, answers[: len(made)], strict=True)),
        "pil": list(zip(made, answers[len(made) :], strict=True)),
    }


def test_vllm_takes_the_processor_on_torchvision(ask: Ask, environment: Environment) -> None:
    assert ask([{"job": "chosen", "checkpoint": str(environment.checkpoint)}]) == [{"class": "Qwen2VLImageProcessor"}]


def test_the_values_that_reach_the_model_are_those_of_the_original(
    differences: dict[str, list[tuple[Made, dict[str, Any]]]],
) -> None:
    unequal = [(one, found) for one, found in differences["torchvision"] if found.get("most") != 0]
    assert unequal == []
    assert sum(found["values"] for _, found in differences["torchvision"]) > 10_000_000


def test_the_processor_on_pillow_differs_by_two_levels_where_it_too_begins_with_the_width(
    differences: dict[str, list[tuple[Made, dict[str, Any]]]],
) -> None:
    """Pillow does unless the height shrinks more."""
    found = [answer for one, answer in differences["pil"] if not is_flattened(one)]
    assert len(found) > 10
    assert max(answer["most"] for answer in found) < 2.01
    assert max(answer["per_mille"] for answer in found) < 30


def is_flattened(one: Made) -> bool:
    return one.after.height * one.before.width < one.after.width * one.before.height


def test_the_digests_that_the_engine_is_tested_by_are_those_of_torchvision(ask: Ask) -> None:
    answers = ask([{"job": "resized", "size": list(size)} for size in TORCHVISION])
    assert [answer["digest"] for answer in answers] == list(TORCHVISION.values())


# Aligned sizes


@pytest.fixture(scope="module")
def plain_edge() -> Iterator[Edge]:
    edge = Edge()
    yield edge
    edge.close()


@pytest.mark.parametrize("family", MODELS)
def test_the_processor_keeps_the_size_of_what_is_sent(
    family: str, pictures: list[Path], plain_edge: Edge, ask: Ask, tmp_path: Path
) -> None:
    rule: Any = lookup(family)
    sent: list[Picture] = []
    jobs: list[dict[str, Any]] = []
    for profile in ("standard", "document"):
        for original in pictures:
            one = plain_edge.picture(original.read_bytes(), profile=profile, model=MODELS[family])
            file = tmp_path / f"{len(sent)}.picture"
            file.write_bytes(one.data)
            sent.append(one)
            limits = [rule.min_pixels, rule.max_pixels]
            jobs.append({"job": "grid", "file": str(file), "family": family, "limits": limits})
    answers = ask(jobs)
    assert [answer["tokens"] for answer in answers] == [one.tokens for one in sent]
    assert [Size(*answer["read"]) for answer in answers] == [one.size for one in sent]
    # What is smaller than the model takes is not enlarged here, but there.
    resized = [pair for pair in zip(sent, answers, strict=True) if is_resized(pair[0], rule.min_pixels)]
    assert [one.size for one, _ in resized] == [Size(*answer["size"]) for _, answer in resized]
    assert len(resized) >= 10


def is_resized(one: Picture, min_pixels: int) -> bool:
    return one.report.action == "resized" and one.size.pixels >= min_pixels


def test_a_picture_in_another_size_would_be_seen_to_change(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "odd.png"
    file.write_bytes(encoded(Image.new("RGB", (301, 200)), "PNG"))
    (answer,) = ask([{"job": "grid", "file": str(file), "family": "qwen2_5_vl", "limits": [3_136, 1_003_520]}])
    assert (answer["read"], answer["size"]) == ([301, 200], [308, 196])
