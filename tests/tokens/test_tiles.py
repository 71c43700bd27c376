"""Tiles, canvases and slices: what a grid decides, and the sizes that the processor keeps.

Expected numbers were counted by the processors themselves, as named in the table of families.
"""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vlm_edge.errors import ConfigError, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.tokens import FAMILIES, Rule, lookup
from vlm_edge.tokens.crops import CoveringTiles
from vlm_edge.tokens.rule import SNAP
from vlm_edge.tokens.slices import Slices
from vlm_edge.tokens.tiles import RatioTiles, Resizing, grids

OURS = (Resizing, CoveringTiles, Slices)
RULES = {name: family.rule for name, family in FAMILIES.items() if isinstance(family.rule, OURS)}
STRETCHED = {name: rule for name, rule in RULES.items() if isinstance(rule, RatioTiles)}
properties = settings(deadline=None, max_examples=300)
sides = st.integers(1, 6_000)
sizes = st.builds(Size, sides, sides)
rules = st.sampled_from(sorted(RULES)).map(RULES.__getitem__)
stretched = st.sampled_from(sorted(STRETCHED)).map(STRETCHED.__getitem__)


def taken(rule: Rule, size: Size) -> int:
    """What the picture costs; the case is left out where the processor refuses it."""
    try:
        return rule.image(size)
    except UnsupportedMedia:
        assume(False)
        raise


@given(rules, sizes)
@properties
def test_an_aligned_picture_costs_the_same_and_is_kept(rule: Rule, size: Size) -> None:
    tokens = taken(rule, size)
    aligned = rule.aligned(size)
    assert (rule.image(aligned), rule.aligned(aligned)) == (tokens, aligned)


@given(rules, sizes)
@properties
def test_a_snapped_picture_is_never_dearer_and_loses_little_of_a_side(rule: Rule, size: Size) -> None:
    tokens = taken(rule, size)
    snapped = rule.snap(size)
    assert rule.image(snapped) <= tokens
    assert all((1 - SNAP) * side <= less <= side for side, less in zip(size, snapped, strict=True))


@given(stretched, sizes)
@properties
def test_a_stretched_picture_is_aligned_to_whole_tiles(rule: RatioTiles, size: Size) -> None:
    aligned = rule.aligned(size)
    assert aligned == size or (aligned.width % rule.tile, aligned.height % rule.tile) == (0, 0)


@given(sizes)
@properties
def test_a_picture_turned_by_a_quarter_has_as_many_crops(size: Size) -> None:
    rule = RULES["gemma3_pan_and_scan"]
    assert rule.image(size) == rule.image(size.turned())


@pytest.mark.parametrize(
    ("family", "size", "tokens"),
    [
        ("internvl", Size(10, 10), 258),  # no tile is saved on a tiny picture …
        ("internvl", Size(1_990, 10), 3_330),  # … since only its ratio counts
        ("internvl", Size(1_280, 720), 2_306),
        ("idefics3", Size(1, 1), 3_027),  # the long side is enlarged
        ("smolvlm", Size(224, 224), 1_416),
        ("molmo", Size(1, 1), 316),  # all margin: the arithmetic runs below zero
        ("molmo2", Size(224, 224), 424),
        ("llava_next", Size(1_990, 10), 576),  # no row of the canvas is left
        ("phi4_multimodal", Size(224, 224), 545),
        ("deepseek_ocr", Size(640, 640), 273),
        ("deepseek_ocr2", Size(224, 224), 257),
        ("step3_vl", Size(10, 10), 171),
        ("ovis2", Size(224, 224), 259),
        ("gemma3_pan_and_scan", Size(1, 1), 260),
    ],
)
def test_a_picture_at_the_edge_costs_what_the_processor_counts(family: str, size: Size, tokens: int) -> None:
    assert RULES[family].image(size) == tokens


def test_of_grids_equally_near_the_larger_needs_a_picture_that_covers_half_of_it() -> None:
    """2:1 is 2x1 and 4x2: 8 tiles from more than 4 tiles' area on."""
    rule = RULES["internvl"]
    assert [rule.image(Size(2 * height, height)) for height in (633, 634)] == [3 * 256 + 2, 9 * 256 + 2]


def test_three_pictures_in_a_prompt_are_a_tile_each_for_deepseek_vl2() -> None:
    rule, size = RULES["deepseek_vl2"], Size(1_280, 720)
    assert rule.images([size] * 2) == [rule.image(size)] * 2
    assert rule.images([size] * 3) == [421] * 3 != [rule.image(size)] * 3


def test_the_eleventh_picture_has_a_number_of_two_digits_for_minicpm() -> None:
    rule = RULES["minicpmv2_6"]
    assert rule.images([Size(224, 224)] * 12) == [69] * 10 + [70] * 2
    assert lookup("minicpmv2_6", use_image_id=False).images([Size(224, 224)] * 12) == [66] * 12


@pytest.mark.parametrize(
    ("family", "tokens"), [("internvl_chat", 262 * 9 + 263 * 3), ("internvl", 262 * 9 + 263 * 3 + 11)]
)
def test_a_frame_is_a_tile_behind_its_number(family: str, tokens: int) -> None:
    assert RULES[family].video(frames=12, size=Size(1_280, 720)) == tokens


@pytest.mark.parametrize("family", ["aya_vision", "llava_next", "llama4", "idefics3", "molmo"])
def test_a_family_without_video_refuses_it(family: str) -> None:
    with pytest.raises(UnsupportedMedia):
        RULES[family].video(frames=8, size=Size(640, 360))


def test_a_picture_that_would_be_a_line_is_refused_as_the_processor_does() -> None:
    """The processor itself raises at 1x150: two pixels would be left of its width."""
    rule = RULES["phi4_multimodal"]
    with pytest.raises(UnsupportedMedia, match="1x150"):
        rule.image(Size(1, 150))


@pytest.mark.parametrize(
    ("family", "params", "size", "tokens"),
    [
        ("internvl", {"max_patches": 6}, Size(1_990, 10), 7 * 256 + 2),
        ("internvl", {"max_patches": 6, "use_thumbnail": False}, Size(1_990, 10), 6 * 256 + 2),
        ("internvl_chat", {"dynamic_image_size": False}, Size(1_990, 10), 258),
        ("phi3_5_vision", {"num_crops": 16}, Size(10, 2_000), 2_653),
        ("smolvlm", {"longest_edge": 2_048, "max_image_size": 512, "image_seq_len": 64}, Size(224, 224), 1_127),
        ("deepseek_vl2", {"candidate_resolutions": [[384, 384]]}, Size(3_000, 1_000), 421),
        ("llava_next", {"image_grid_pinpoints": [[336, 336]]}, Size(500, 500), 24 * 25 + 576),
    ],
)
def test_a_checkpoint_s_own_numbers_are_counted_with(
    family: str, params: dict[str, object], size: Size, tokens: int
) -> None:
    assert lookup(family, **params).image(size) == tokens


@pytest.mark.parametrize(
    ("family", "params"),
    [
        ("internvl", {"max_patches": 0}),
        ("internvl", {"min_patches": 3, "max_patches": 2}),
        ("llava_next", {"image_grid_pinpoints": []}),
        ("llava_onevision", {"vision_aspect_ratio": "pad"}),
        ("idefics3", {"row_col_tags": "none"}),
    ],
)
def test_numbers_that_make_no_grid_are_refused(family: str, params: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        lookup(family, **params)


def test_a_few_rows_less_save_half_of_the_tiles() -> None:
    """1400x1000 is 4 to 3, twelve tiles; from 17 : 12 on it is 3 to 2, six."""
    rule, size = RULES["internvl"], Size(1_400, 1_000)
    assert rule.image(size) == 13 * 256 + 2
    assert rule.image(rule.snap(size)) == 7 * 256 + 2


def test_a_pixel_over_a_tile_is_snapped_off() -> None:
    assert RULES["llama4"].snap(Size(338, 672)) == Size(336, 672)
    assert RULES["deepseek_ocr"].snap(Size(650, 640)) == Size(640, 640)
    assert RULES["step3_vl"].snap(Size(730, 600)) == Size(727, 600)


def test_grids_stand_by_their_area() -> None:
    assert [(grid.columns, grid.rows) for grid in grids(1, 3)] == [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1)]
    assert [grid.tiles for grid in grids(2, 4)] == [2, 2, 3, 3, 4, 4, 4]


def test_a_larger_grid_is_taken_where_a_smaller_one_would_not_cover_the_picture() -> None:
    """Squares: one tile covers six tenths of itself and no more."""
    rule = RULES["nemotron_nano_vl"]
    assert rule.aligned(Size(512, 512)) == Size(512, 512)
    assert rule.aligned(Size(1_500, 1_500)) == Size(1_536, 1_536)


def test_a_canvas_enlarges_as_little_as_it_can() -> None:
    rule = RULES["cohere2_vision"]
    assert rule.aligned(Size(513, 512)) == Size(1_024, 512)
