"""
Counts equal those of the models' own processors.

counts/*.json are their results, run end to end on blank pictures (transformers 5.24, vLLM 0.33, mistral-common 1.13),
or the published rules and examples of hosted models. For each configuration, the family's own first:
`image` [[width, height], tokens, size that reaches the encoder], `images` [sizes, tokens of each],
`video` [[width, height], frames, fps, tokens] and
`sampled` [[width, height], frames, fps, frames that the processor chose of them, tokens].
Tokens are null where the processor raises; the size is null where it is not known.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vlm_edge.errors import ExtremeAspect, MediaTooLarge, TooManyImages, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.tokens import FAMILIES, Rule, lookup
from vlm_edge.tokens.grids import MergedGrid
from vlm_edge.tokens.rule import SNAP

COUNTS = Path(__file__).parent / "counts"

# Nobody has run these; what is known of them is tested by hand.
UNRUN = {"glm_4v", "llava_onevision1_5", "nemotron_nano_v2_vl"}

# Their processors do not keep what they made: Gemma 4 fills its tokens anew, Kimi pads over its own limit.
RESTLESS = {"gemma4", "kimi_vl", "kimi_k2_5"}

GRIDS = sorted(family for family in FAMILIES if isinstance(FAMILIES[family].rule, MergedGrid))
REFUSING = sorted(family for family in GRIDS if family not in {"ernie4_5_vl", "ovis2_5"})

properties = settings(deadline=None, max_examples=300)
sides = st.integers(1, 20_000)
sizes = st.builds(Size, sides, sides)
families = st.sampled_from(sorted(FAMILIES))
grids = st.sampled_from(GRIDS)


def rule_of(family: str) -> Rule:
    return FAMILIES[family].rule


def configurations(family: str) -> list[dict[str, Any]]:
    """A family without its file is an error here, and so fails the tests."""
    found: list[dict[str, Any]] = json.loads((COUNTS / f"{family}.json").read_text("utf-8"))
    return found


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(lookup(family, **one["params"]), *case, id=f"{family}-{which}-{number}")
        for family in sorted(set(FAMILIES) - UNRUN)
        for which, one in enumerate(configurations(family))
        for number, case in enumerate(one.get(kind, []))
    ]


@pytest.mark.parametrize(("rule", "size", "tokens", "aligned"), cases("image"))
def test_a_picture_costs_what_the_processor_counts(
    rule: Rule, size: list[int], tokens: int | None, aligned: list[int] | None
) -> None:
    if tokens is None:
        with pytest.raises(UnsupportedMedia):
            rule.image(Size(*size))
        return
    assert rule.image(Size(*size)) == tokens
    if aligned is not None:
        assert rule.aligned(Size(*size)) == tuple(aligned)


@pytest.mark.parametrize(("rule", "sizes_of_images", "tokens"), cases("images"))
def test_several_pictures_cost_what_the_processor_counts(
    rule: Rule, sizes_of_images: list[list[int]], tokens: list[int]
) -> None:
    assert rule.images([Size(*size) for size in sizes_of_images]) == tokens


@pytest.mark.parametrize(("rule", "size", "frames", "fps", "tokens"), cases("video"))
def test_a_video_costs_what_the_processor_counts(
    rule: Rule, size: list[int], frames: int, fps: float, tokens: int | None
) -> None:
    if tokens is None:
        with pytest.raises(UnsupportedMedia):
            rule.video(frames=frames, size=Size(*size), fps=fps)
    else:
        assert rule.video(frames=frames, size=Size(*size), fps=fps) == tokens


@pytest.mark.parametrize(("rule", "size", "frames", "fps", "chosen", "tokens"), cases("sampled"))
def test_frames_that_the_processor_chose_cost_what_it_counts(
    rule: Rule, size: list[int], frames: int, fps: float, chosen: int, tokens: int
) -> None:
    assert rule.video(frames=chosen, size=Size(*size), fps=chosen * fps / frames) == tokens


def test_every_family_has_its_counts_and_every_file_its_family() -> None:
    assert {file.stem for file in COUNTS.iterdir()} == set(FAMILIES) - UNRUN


def test_no_count_of_the_reference_is_lost() -> None:
    kinds = ("image", "images", "video", "sampled")
    assert sum(len(cases(kind)) for kind in kinds) >= 4_385


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - UNRUN))
def test_the_numbers_of_a_family_are_those_of_its_checkpoint(family: str) -> None:
    first = configurations(family)[0]
    assert rule_of(family).template_tokens == first["template_tokens"]
    for size, tokens, _ in first["image"]:
        assert tokens is None or rule_of(family).image(Size(*size)) == tokens


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - UNRUN - {"gemini_3"}))  # whose pictures all cost the same
def test_the_counts_are_many(family: str) -> None:
    found = [case for configuration in configurations(family) for case in configuration["image"]]
    assert len(found) >= 48


@pytest.mark.parametrize("family", REFUSING)
def test_a_family_that_refuses_has_a_refusal_among_its_counts(family: str) -> None:
    if family not in UNRUN:
        assert any(tokens is None for one in configurations(family) for _, tokens, _ in one["image"])


def test_a_picture_of_the_first_glm_is_a_square_and_comes_alone() -> None:  # 40 x 40 tokens, begin and end
    rule = rule_of("glm_4v")
    assert rule.images([Size(10, 3_000)]) == [1_602]
    with pytest.raises(TooManyImages):
        rule.images([Size(10, 10), Size(10, 10)])


def test_what_nobody_could_run_is_called_an_estimate() -> None:
    hosted = {"openai_tile", "openai_patch", "claude", "claude_legacy_estimate", "gemini_2", "gemini_3"}
    assert hosted | {"llava_onevision1_5"} <= {name for name in FAMILIES if not FAMILIES[name].exact}
    assert {"qwen2_vl", "gemma3", "pixtral", "internvl"} <= {name for name in FAMILIES if FAMILIES[name].exact}


@properties
@given(families, sizes)
def test_what_the_processor_made_it_keeps_as_it_is(family: str, size: Size) -> None:
    assume(family not in RESTLESS and size.long <= 40 * size.short and size.short >= 32)
    rule = rule_of(family)
    assume(family != "claude" or size.long <= 8_000)
    aligned = rule.aligned(size)
    assert rule.aligned(aligned) == aligned
    assert rule.image(aligned) == rule.image(size) >= 1


@properties
@given(st.sampled_from(["kimi_vl", "kimi_k2_5"]), sizes)
def test_kimi_keeps_what_it_made_where_padding_did_not_bring_it_over_its_limit(family: str, size: Size) -> None:
    rule = rule_of(family)
    assume(family == "kimi_k2_5" or size.long < 7_000)
    aligned, limit = rule.aligned(size), {"kimi_vl": 4_096, "kimi_k2_5": 16_384}[family]
    assume(aligned.pixels <= limit * 14**2 and aligned.long <= 512 * 14)
    assert rule.aligned(aligned) == aligned
    assert rule.image(aligned) == rule.image(size)


@properties
@given(sizes)
def test_gemma_4_fills_what_a_picture_may_cost_and_no_more(size: Size) -> None:
    made = rule_of("gemma4").aligned(size)
    assert made.width % 48 == made.height % 48 == 0
    assert made.pixels <= 280 * 48**2


@properties
@given(grids, sizes)
def test_a_grid_is_made_of_whole_cells_that_are_its_tokens(family: str, size: Size) -> None:
    assume(size.long <= 200 * size.short)
    rule = rule_of(family)
    assert isinstance(rule, MergedGrid)
    aligned = rule.aligned(size)
    columns, rows = aligned.width // rule.cell, aligned.height // rule.cell
    assert (columns * rule.cell, rows * rule.cell) == aligned
    assert rule.image(size) == rows * (columns + rule.row_tokens) + rule.tag_tokens


@properties
@given(families, sizes)
def test_snapping_takes_little_and_never_costs_more(family: str, size: Size) -> None:
    rule = rule_of(family)
    assume(size.long <= 40 * size.short and (family not in {"claude", "kimi_vl"} or size.long < 7_000))
    snapped = rule.snap(size)
    assert (1 - SNAP) * size.width <= snapped.width <= size.width
    assert (1 - SNAP) * size.height <= snapped.height <= size.height
    assert rule.image(snapped) <= rule.image(size)


# A ratio of sides may be near to several turns, and a window's side follow the picture's: there, one more step may be
# worth it.
STEADY = sorted(
    set(GRIDS)
    | {"pixtral", "mistral3", "pixtral_mistral_format", "mistral3_mistral_format", "lighton_ocr"}
    | {"gemma3", "gemma4", "llava_1_5", "openai_tile", "openai_patch", "claude", "gemini_3", "kimi_k2_5"}
)


@properties
@given(st.sampled_from(STEADY), sizes)
def test_what_is_snapped_stays(family: str, size: Size) -> None:
    rule = rule_of(family)
    assume(size.long <= 100 * size.short and (family != "claude" or size.long < 7_000))
    snapped = rule.snap(size)
    assert rule.snap(snapped) == snapped


@pytest.mark.parametrize(
    ("family", "size", "snapped"),
    [
        ("qwen2_vl", Size(1_001, 560), Size(980, 560)),  # 35.75 columns are 36, and 35 are inside 3 %
        ("pixtral", Size(1_000, 321), Size(992, 320)),
        ("mistral3", Size(3_080, 1_130), Size(3_080, 1_120)),  # halved: a pixel over a row of 28 costs one
        ("openai_tile", Size(1_030, 700), Size(1_024, 700)),
        ("openai_patch", Size(1_030, 650), Size(1_024, 640)),
        ("claude", Size(570, 565), Size(560, 560)),
        ("lfm2_vl", Size(340, 330), Size(340, 330)),  # rounded to the nearest cell: nothing to save so near
    ],
)
def test_a_few_pixels_less_save_a_row_a_column_or_a_tile(family: str, size: Size, snapped: Size) -> None:
    assert rule_of(family).snap(size) == snapped


@properties
@given(st.sampled_from([*GRIDS, "kimi_vl", "kimi_k2_5"]), sizes, st.integers(100_000, 4_000_000))
def test_a_tighter_bound_is_kept_and_never_costs_more(family: str, size: Size, max_pixels: int) -> None:
    assume(size.long <= 50 * size.short and size.long < 7_000)
    rule = rule_of(family)
    tighter = rule.within(max_pixels)
    assert tighter.image(size) <= rule.image(size)
    made = tighter.aligned(size)
    around = 2 * (made.width + made.height) * rule.cell  # sides rounded up to whole cells
    assert made.pixels <= max_pixels + around


@properties
@given(st.sampled_from(["pixtral", "mistral3", "lighton_ocr"]), sizes, st.integers(100_000, 4_000_000))
def test_a_size_planned_for_rows_is_kept_by_the_model(family: str, size: Size, max_pixels: int) -> None:
    assume(size.long <= 50 * size.short)
    rule = rule_of(family)
    made = rule.within(max_pixels).aligned(size)
    assert rule.aligned(made) == made
    assert rule.image(made) <= rule.image(size)


@properties
@given(st.sampled_from([*GRIDS, "gemma4", "kimi_k2_5", "gemini_2", "openai_patch"]), sizes)
def test_a_quarter_turn_costs_the_same(family: str, size: Size) -> None:
    assume(size.long <= 200 * size.short and family != "hunyuan_ocr")  # which breaks rows, and so knows up from down
    assume(size.short >= 28 or family not in {"keye_vl", "paddleocr_vl"})  # which lift the height before the width
    assert rule_of(family).image(size.turned()) == rule_of(family).image(size)


@properties
@given(
    st.sampled_from(["qwen2_vl", "qwen3_vl", "dots_ocr", "hunyuan_ocr"]), st.integers(1, 100), st.integers(1, 10_000)
)
def test_a_picture_of_more_than_two_hundred_to_one_is_refused(family: str, short: int, more: int) -> None:
    size = Size(200 * short + more, short)
    for thin in (size, size.turned()):
        with pytest.raises(ExtremeAspect, match=f"{thin}"):
            rule_of(family).image(thin)


@pytest.mark.parametrize("family", REFUSING)
def test_exactly_two_hundred_to_one_is_let_through(family: str) -> None:
    assert rule_of(family).image(Size(6_400, 32)) > 0
    with pytest.raises(ExtremeAspect):
        rule_of(family).image(Size(6_401, 32))


def test_the_grid_of_qwen3_is_coarser_than_that_of_qwen2() -> None:  # B31
    assert rule_of("qwen2_5_vl").cell == 28
    assert rule_of("qwen3_vl").cell == 32


@pytest.mark.parametrize("family", ["qwen3_vl", "glm4_1v"])
def test_a_video_of_pairs_needs_two_frames(family: str) -> None:
    with pytest.raises(UnsupportedMedia, match="1 frame"):
        rule_of(family).video(frames=1, size=Size(640, 480), fps=2)


@pytest.mark.parametrize(
    "family", ["ernie4_5_vl", "hunyuan_ocr", "kimi_vl", "pixtral", "gemma3", "mllama", "openai_tile"]
)
def test_a_family_whose_videos_nobody_knows_takes_none(family: str) -> None:
    with pytest.raises(UnsupportedMedia, match="video"):
        rule_of(family).video(frames=4, size=Size(640, 480), fps=2)


def test_a_size_with_nothing_on_one_side_is_refused() -> None:
    narrow = lookup("keye_vl", max_pixels=20_000)
    with pytest.raises(UnsupportedMedia):
        narrow.image(Size(5_600, 28))


def test_the_minutes_of_a_long_clip_of_gemma_4_are_one_digit_more_from_the_hundredth_on() -> None:
    rule = rule_of("gemma4")
    short, long = (rule.video(frames=frames, size=Size(640, 480), fps=1 / 60) for frames in (100, 101))
    assert long - short == 63 + 8 + 1 + 1  # cells, tags and time, space, digit


def test_claude_refuses_what_is_too_long_and_of_many_pictures_less() -> None:
    rule = rule_of("claude")
    with pytest.raises(MediaTooLarge, match="8001"):
        rule.image(Size(8_001, 100))
    assert rule.images([Size(2_001, 100)] * 20)
    with pytest.raises(MediaTooLarge, match="2001"):
        rule.images([Size(2_001, 100)] * 21)


def test_a_side_of_too_many_patches_is_refused_by_kimi_vl_and_shrunk_by_kimi_k2_5() -> None:
    with pytest.raises(UnsupportedMedia):
        rule_of("kimi_vl").image(Size(7_168, 14))
    assert rule_of("kimi_k2_5").aligned(Size(14_336, 56)) == Size(7_168, 28)


@pytest.mark.parametrize(
    ("family", "params", "tokens"),
    [
        ("openai_tile", {"detail": "low"}, 85),
        ("openai_tile", {"detail": "low", "low_detail_tokens": 70}, 70),
        ("openai_patch", {"detail": "low", "multiplier": 1}, 16 * 9),
        ("gemini_3", {"media_resolution": "low"}, 280),
        ("gemini_3", {"media_resolution": "ultra_high"}, 2_240),
        ("gemini_2", {"crop_unit": "floor(min(w,h)/1.5)"}, 258 * 6),
        ("llava_1_5", {"vision_feature_select_strategy": "full"}, 577),
        ("llava_1_5", {"crop_size": 224}, 256),
        ("paligemma", {"image_size": 224}, 256),
        ("gemma3", {"mm_tokens_per_image": 64}, 68),
        ("lfm2_vl", {"do_image_splitting": False}, 21 * 12 + 2),
        ("lfm2_vl", {"use_thumbnail": False}, 257 * 2 + 2),
        ("lfm2_vl", {"use_image_special_tokens": False}, 256 * 2 + 21 * 12),
    ],
)
def test_what_is_asked_of_the_processor_counts(family: str, params: dict[str, Any], tokens: int) -> None:
    assert lookup(family, **params).image(Size(1_280, 720)) == tokens
