from pathlib import Path

import pytest

from tests.cli.command import good, told, told_usage, vlm_edge

GOOD = """
default_profile = "pages"
profile_folders = ["more"]
remote = "pass"

[profiles.pages]
max_side = 1536

[[rules]]
profile = "extra"
model = "Qwen/*"

[models."our-model"]
family = "qwen2_5_vl"
params = { max_pixels = 1003520 }

[limits]
max_images = 4

[workers]
threads = 2

[gateway]
backend = "http://vllm:8000"
"""


def test_a_good_file_is_called_good(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text(GOOD)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "extra.toml").write_text("max_side = 700\n")
    text = good(vlm_edge("check", file))
    assert f"{file}: good" in text
    assert "default pages" in text
    assert "extra" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[limits]\nmax_imagez = 4\n", ["max_imagez", "limits"]),
        ("defaultprofile = 'standard'\n", ["defaultprofile"]),
        ("[gatewy]\nport = 1\n", ["gatewy"]),
        ("[profiles.mine]\nquality = 900\n", ["mine", "quality", "900", "1 to 100"]),
        ("[profiles.mine]\nqualty = 90\n", ["mine", "qualty"]),
        ("[profiles.mine]\nformat = 'bmp'\n", ["mine", "bmp"]),
        ("[profiles]\nmine = 3\n", ["profile"]),
        ("[limits]\nmax_images = 'four'\n", ["limits.max_images"]),
        ("[limits]\nmax_images = -4\n", ["max_images", "-4"]),
        ("default_profile = 'huge'\n", ["'huge'", "standard"]),
        ("[[rules]]\nprofile = 'huge'\nmodel = '*'\n", ["'huge'"]),
        ("[[rules]]\nprofile = 'standard'\n", ["rule", "model"]),
        ("[models.m]\nfamily = 'gpt9'\n", ["gpt9"]),
        ("[models.m]\nfamily = 'qwen2_vl'\nparams = { max_pixel = 1 }\n", ["max_pixel"]),
        ("[gateway]\nbackend = 'vllm:8000'\n", ["backend", "vllm:8000"]),
        ("profile_folders = ['nowhere']\n", ["nowhere"]),
        ("remote = 'maybe'\n", ["remote"]),
        ("[limits\n", ["line 1"]),
        ("x = '\x00'\n", ["line 1"]),
    ],
)
def test_a_wrong_file_is_told_what_is_wrong(text: str, words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text(text)
    told(vlm_edge("check", file), 2, *words)


def test_a_file_that_is_no_text_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_bytes(b"\xff\xfe\x00")
    told(vlm_edge("check", file), 2, str(file))


def test_a_file_that_is_missing_or_a_folder_is_told_so(tmp_path: Path) -> None:
    told(vlm_edge("check", tmp_path / "none.toml"), 2, "none.toml", "No such file")
    told(vlm_edge("check", tmp_path), 2, str(tmp_path), "directory")


def test_without_a_file_it_is_a_usage_error() -> None:
    told_usage(vlm_edge("check"))
