import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_edge.errors import ConfigError, UnknownModel
from vlm_edge.geometry import Size
from vlm_edge.tokens import FAMILIES, lookup, model_type


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("Qwen/Qwen2-VL-7B-Instruct", "qwen2_vl"),
        ("Qwen/Qwen2-VL-2B-Instruct-GPTQ-Int4", "qwen2_vl"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_5_vl"),
        ("Qwen/Qwen2.5-VL-72B-Instruct-AWQ", "qwen2_5_vl"),
        ("unsloth/Qwen2.5-VL-3B-Instruct-bnb-4bit", "qwen2_5_vl"),
        ("qwen2.5vl:7b", "qwen2_5_vl"),
        ("qwen2_5_vl", "qwen2_5_vl"),
        ("/models/qwen2-5-vl-finetuned", "qwen2_5_vl"),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3_vl"),
        ("Qwen/Qwen3-VL-235B-A22B-Thinking-FP8", "qwen3_vl"),
        ("qwen3_vl_moe", "qwen3_vl"),
        ("QWEN3VL", "qwen3_vl"),
    ],
)
def test_a_served_name_tells_its_family(model: str, family: str) -> None:
    assert model_type(model) == family
    assert lookup(model) == FAMILIES[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_its_own_name(family: str) -> None:
    assert model_type(family) == family
    assert lookup(family) == FAMILIES[family]


@pytest.mark.parametrize("model", ["", "gpt-4o", "Qwen/Qwen2.5-7B-Instruct", "Qwen/QwQ-32B", "qwen3", "llava", "vl"])
def test_a_name_that_tells_nothing_is_an_unknown_model(model: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        lookup(model)
    assert "qwen2_5_vl" in caught.value.message


def test_a_checkpoints_own_numbers_are_laid_over() -> None:
    rule = lookup("Qwen/Qwen2.5-VL-7B-Instruct", max_pixels=1_003_520)
    assert rule.image(Size(4_000, 3_000)) <= 1_280 < lookup("Qwen/Qwen2.5-VL-7B-Instruct").image(Size(4_000, 3_000))


@pytest.mark.parametrize(("theirs", "ours"), [("patch_size", "patch"), ("merge_size", "merge")])
def test_the_names_of_a_preprocessor_config_are_taken(theirs: str, ours: str) -> None:
    assert lookup("qwen2_vl", **{theirs: 4}) == lookup("qwen2_vl", **{ours: 4})
    assert lookup("qwen2_vl", **{theirs: 4}) != lookup("qwen2_vl")


@pytest.mark.parametrize("params", [{"num_crops": 4}, {"max_pixels": 1.5}, {"max_pixels": float("nan")}])
def test_a_number_that_the_rule_does_not_take_is_a_config_error(params: dict[str, float]) -> None:
    with pytest.raises(ConfigError) as caught:
        lookup("qwen2_vl", **params)
    assert next(iter(params)) in caught.value.message


@pytest.mark.parametrize("params", [{"patch": 0}, {"merge": -1}, {"max_pixels": 0}, {"max_pixels": -5}])
def test_a_number_without_sense_is_a_config_error(params: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        lookup("qwen2_vl", **params)


@given(st.text(max_size=40).filter(lambda name: "vl" not in name.lower()))
def test_any_name_without_a_hint_of_vision_is_unknown(name: str) -> None:
    with pytest.raises(UnknownModel):
        model_type(name)
