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
