from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.cli.command import good, told, vlm_edge
from tests.samples import QWEN, TURNED, jpeg, png
from vlm_edge import Edge


def counted(*arguments: str | Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = orjson.loads(good(vlm_edge("tokens", *arguments, "--json")))
    return rows


def together(*arguments: str | Path) -> list[str]:
    """The last line of the table: as they are, and under each profile in the order of their names."""
    last = [line for line in good(vlm_edge("tokens", *arguments)).splitlines() if "together" in line][-1]
    return [cell.strip() for cell in last.split("│")[3:-1]]


def test_sizes_and_files_are_counted_as_they_are_and_by_profile() -> None:
    """Qwen2.5-VL: cells of 28 pixels, sides rounded to them."""
    size, file = counted(QWEN, "4032x3024", TURNED)
    profiles = {"document": 73 * 55, "invoice": 45 * 34, "standard": 36 * 27, "thumbnail": 16 * 12, "video": 36 * 27}
    assert size == {"picture": "4032x3024", "size": [4032, 3024], "tokens": 144 * 108, "profiles": profiles}
    assert file["size"] == [1800, 1200]  # upright
    assert file["tokens"] == 64 * 43


def test_another_family_counts_by_its_own_grid() -> None:
    [row] = counted("Qwen/Qwen3-VL-8B-Instruct", "1280x960")
    assert row["tokens"] == 40 * 30


def test_the_settings_file_may_say_how_a_model_counts(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text('[models.ours]\nfamily = "qwen3_vl"\n[profiles.tiny]\nmax_side = 512\n')
    [row] = counted("ours", "1280x960", "--config", file)
    assert row["tokens"] == 40 * 30
    assert row["profiles"]["tiny"] == 16 * 12


def test_the_table_shows_the_same_numbers() -> None:
    text = good(vlm_edge("tokens", QWEN, "4032x3024", "1280x720"))
    for word in ("4032x3024", "15,552", "972", "192", "1280x720", "1,196", "144", "document", "thumbnail"):
        assert word in text


def test_a_file_that_cannot_be_counted_leaves_the_others(tmp_path: Path) -> None:
    good_file, bad_file = tmp_path / "a.jpg", tmp_path / "b.jpg"
    good_file.write_bytes(jpeg(280, 280))
    bad_file.write_bytes(b"<html>")
    run = vlm_edge("tokens", QWEN, "--json", bad_file, good_file, tmp_path / "none.jpg", tmp_path, "9999x1")
    assert run.returncode == 1
    rows = orjson.loads(run.stdout)
    assert [row["picture"] for row in rows] == [
        *map(str, (bad_file, good_file, tmp_path / "none.jpg", tmp_path)),
        "9999x1",
    ]
    assert [row.get("tokens") for row in rows] == [None, 100, None, None, None]
    assert "an HTML page" in rows[0]["error"]
    assert "No such file" in rows[2]["error"]
    assert "200:1" in rows[4]["error"]


def test_the_table_names_what_cannot_be_counted() -> None:
    run = vlm_edge("tokens", QWEN, "none.jpg")
    text = (run.stdout + run.stderr).decode()
    assert run.returncode == 1
    assert "none.jpg" in text
    assert "No such" in text
    assert "Traceback" not in text


def test_an_unknown_model_is_told_where_the_families_are() -> None:
    told(vlm_edge("tokens", "gpt-9", "1x1"), 2, "'gpt-9'", "vlm-edge families")


def test_what_is_not_exact_is_marked(tmp_path: Path) -> None:
    [row] = counted("gpt-4o", "1024x1024")
    assert (row["tokens"], row["certainty"]) == (765, "estimate")  # OpenAI's own example
    assert "≈765" in good(vlm_edge("tokens", "gpt-4o", "1024x1024"))
    file = tmp_path / "edge.toml"
    file.write_text('unknown_models = "at_most"\n')
    [row] = counted("who-knows", "640x480", "--config", file)
    assert row["certainty"] == "at most"


def test_pictures_of_one_prompt_are_counted_together() -> None:
    """DeepSeek-VL2 sees every picture in one tile from the third on, for 421 tokens."""
    sizes = ["1024x1024", "1024x1024", "1000x1000", "800x800"]
    each = counted("deepseek-ai/deepseek-vl2", *sizes)
    assert [row["picture"] for row in each] == sizes
    assert min(row["tokens"] for row in each) > 421
    assert together("deepseek-ai/deepseek-vl2", *sizes) == ["1,684"] * 6


def test_a_model_of_one_picture_takes_no_two_together() -> None:
    """GLM-4V: 1,602 tokens whatever the size."""
    assert [row["tokens"] for row in counted("zai-org/glm-4v-9b", "640x480", "800x600")] == [1_602, 1_602]
    assert together("zai-org/glm-4v-9b", "640x480", "800x600") == ["refused"] * 6


def test_one_picture_needs_no_sum() -> None:
    assert "together" not in good(vlm_edge("tokens", QWEN, "640x480"))


def test_what_a_limit_refuses_together_has_no_number(tmp_path: Path) -> None:
    """Two phone photos are 2 x 36 x 27 tokens under standard, and 2 x 16 x 12 as thumbnails."""
    file = tmp_path / "edge.toml"
    file.write_text("[limits]\nmax_request_tokens = 1000\n")
    first, _ = counted(QWEN, "4032x3024", "4032x3024", "--config", file)
    assert (first["profiles"]["standard"], first["profiles"]["thumbnail"]) == (36 * 27, 16 * 12)
    assert together(QWEN, "4032x3024", "4032x3024", "--config", file)[-3:-1] == ["refused", f"{2 * 16 * 12}"]


def test_a_budget_that_fits_is_kept_by_all_together(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text('[limits]\nmax_request_tokens = 1000\n[budget]\non_exceed = "fit"\n')
    *_, standard, _, _ = together(QWEN, "4032x3024", "4032x3024", "--config", file)
    assert 900 < int(standard.replace(",", "")) <= 1000


@pytest.mark.parametrize("on_exceed", ["refuse", "fit"])
def test_a_size_costs_what_a_file_of_it_costs(tmp_path: Path, on_exceed: str) -> None:
    config, file = tmp_path / "edge.toml", tmp_path / "a.jpg"
    config.write_text(f'[limits]\nmax_image_tokens = 500\n[budget]\non_exceed = "{on_exceed}"\n')
    file.write_bytes(jpeg(1536, 1024))
    size, read = counted(QWEN, "1536x1024", file, "--config", config)
    assert size["profiles"] == read["profiles"]
    assert (read["profiles"]["standard"] is None) == (on_exceed == "refuse")


def test_a_folder_that_is_no_checkpoint_stands_for_nothing(tmp_path: Path) -> None:
    told(vlm_edge("tokens", tmp_path, "1x1"), 2, "no family is known")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    told(vlm_edge("tokens", tmp_path, "1x1"), 2, "no family is known")
    served = tmp_path / "Qwen2.5-VL-7B-Instruct"  # where the name tells the family
    served.mkdir()
    assert counted(served, "280x280")[0]["tokens"] == 100


def test_a_checkpoint_is_counted_by_its_own_numbers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    (tmp_path / "preprocessor_config.json").write_text('{"min_pixels": 3136, "max_pixels": 200704}')
    [row] = counted(tmp_path, "4032x3024")
    assert row["tokens"] == 18 * 13  # of the 256 cells that 200,704 pixels are


@pytest.mark.parametrize("size", ["0x10", "10x0"])
def test_a_size_of_nothing_is_not_counted_as_something(size: str) -> None:
    run = vlm_edge("tokens", QWEN, "--json", size)
    assert run.returncode == 1
    assert "error" in orjson.loads(run.stdout)[0]


def test_a_file_costs_what_its_picture_will(tmp_path: Path) -> None:
    """Inside the profile, but not opaque: it is converted, and so aligned."""
    file = tmp_path / "a.png"
    file.write_bytes(png(154, 341, "RGBA"))
    [row] = counted(QWEN, file)
    for name, cost in row["profiles"].items():
        assert cost == Edge().picture(file.read_bytes(), profile=name, model=QWEN).tokens


def test_without_pictures_common_sizes_are_counted() -> None:
    assert {"picture": "1920x1080", "size": [1920, 1080], "tokens": 69 * 39} in [
        {key: row[key] for key in ("picture", "size", "tokens")} for row in counted(QWEN)
    ]
