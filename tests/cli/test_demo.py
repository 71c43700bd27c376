import re
from pathlib import Path

from PIL import Image, ImageOps

from tests.cli.command import good, told, told_usage, vlm_edge
from tests.samples import PICTURES, QWEN, jpeg

ROW = re.compile(r"(\S+\.(?:jpg|png)) +│ +(\d+)x(\d+) -> (\d+)x(\d+) │ +([\d,]+) -> +([\d,]+) │ +([\d,]+) -> ([\d,]+) ")


def rows_of(text: str) -> dict[str, list[int]]:
    return {name: [int(number.replace(",", "")) for number in numbers] for name, *numbers in ROW.findall(text)}


def test_it_shows_real_pictures_and_what_was_saved_and_ends() -> None:
    rows = rows_of(good(vlm_edge("demo")))
    assert len(rows) >= 3
    for name, (width, height, sent_width, sent_height, before, _, tokens_before, tokens) in rows.items():
        with Image.open(PICTURES / name) as image:
            assert ImageOps.exif_transpose(image).size == (width, height)
        assert (PICTURES / name).stat().st_size == before
        assert max(sent_width, sent_height) <= 1_024
        # Qwen2.5-VL: one token a cell of 28 pixels
        assert tokens == (sent_width // 28) * (sent_height // 28)
        # … of at most 16,384: of 4608x3456 the processor makes 4116x3080
        whole = round(width / 28) * round(height / 28)
        assert tokens_before == (whole if whole <= 16_384 else 147 * 110)
    assert max(width * height for width, height, *_ in rows.values()) >= 8_000_000


def test_the_sum_is_that_of_its_rows() -> None:
    text = good(vlm_edge("demo"))
    rows = rows_of(text)
    before, after = sum(row[6] for row in rows.values()), sum(row[7] for row in rows.values())
    assert f"{len(rows)} pictures: {before:,} -> {after:,} vision tokens, {before / after:.1f}x fewer" in text


def test_it_takes_pictures_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.jpg"
    file.write_bytes(jpeg(2_800, 1_400))
    [(name, row)] = rows_of(good(vlm_edge("demo", file, "--profile", "thumbnail", "--model", QWEN))).items()
    assert name == "mine.jpg"
    assert (row[:4], row[6:]) == ([2_800, 1_400, 448, 224], [100 * 50, 16 * 8])


def test_a_picture_that_is_none_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.jpg"
    file.write_bytes(b"<html>")
    told(vlm_edge("demo", file), 1, "an HTML page")


def test_a_picture_that_is_missing_is_a_usage_error(tmp_path: Path) -> None:
    told_usage(vlm_edge("demo", tmp_path / "none.jpg"))


def test_an_unknown_profile_is_a_usage_error() -> None:
    told(vlm_edge("demo", "--profile", "huge"), 2, "'huge'")
