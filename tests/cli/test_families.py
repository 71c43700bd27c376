import orjson

from tests.cli.command import good, vlm_edge


def test_families_are_listed_with_their_numbers() -> None:
    text = good(vlm_edge("families"))
    for word in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "patch 14", "patch 16", "max_pixels", "12,845,056"):
        assert word in text


def test_families_are_json_for_programs() -> None:
    """The numbers are those of the published preprocessor_config.json files."""
    families = orjson.loads(good(vlm_edge("families", "--json")))
    qwen2_5 = families["qwen2_5_vl"]
    assert (qwen2_5["patch"], qwen2_5["merge"]) == (14, 2)
    assert (qwen2_5["min_pixels"], qwen2_5["max_pixels"]) == (3_136, 12_845_056)
    assert (families["qwen3_vl"]["patch"], families["qwen3_vl"]["min_pixels"]) == (16, 65_536)


def test_families_say_where_their_numbers_are_from() -> None:
    families = orjson.loads(good(vlm_edge("families", "--json")))
    assert families["qwen2_5_vl"]["model"] == "Qwen/Qwen2.5-VL-7B-Instruct"
    assert (families["qwen2_5_vl"]["exact"], families["openai_tile"]["exact"]) == (True, False)
    assert all(family["source"] for family in families.values())


def test_families_are_markdown_for_the_readme() -> None:
    title, rule, *rows = good(vlm_edge("families", "--markdown")).splitlines()
    cells = [line.count("|") - line.count("\\|") for line in (title, rule, *rows)]
    assert set(cells) == {8}
    [qwen3] = [row for row in rows if row.startswith("| qwen3_vl |")]
    for cell in (" 32 ", " 2 ", " Qwen/Qwen3-VL-8B-Instruct "):  # cells of 16 x 2 pixels, two tags around a picture
        assert f"|{cell}|" in qwen3
