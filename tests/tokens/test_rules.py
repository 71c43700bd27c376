"""
Counts equal those of the models' own processors.

counts/*.json are their results, run end to end on blank pictures (transformers 5.24, vLLM 0.33): for each configuration
`image` [[width, height], tokens, size that reaches the encoder], `images` [sizes, tokens of each] and `video`
[[width, height], frames, fps, tokens]. Tokens are null where the processor raises.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vlm_edge.errors import ExtremeAspect, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.tokens import FAMILIES, Rule, lookup

COUNTS = Path(__file__).parent / "counts"
properties = settings(deadline=None, max_examples=300)
sides = st.integers(1, 20_000)
sizes = st.builds(Size, sides, sides)
families = st.sampled_from(sorted(FAMILIES))


def configurations(family: str) -> list[dict[str, Any]]:
    """A family without its file is an error here, and so fails the tests."""
    found: list[dict[str, Any]] = json.loads((COUNTS / f"{family}.json").read_text("utf-8"))
    return found


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(lookup(family, **one["params"]), *case, id=f"{family}-{one['params']['max_pixels']}-{number}")
        for family in FAMILIES
        for one in configurations(family)
        for number, case in enumerate(one[kind])
    ]


@pytest.mark.parametrize(("rule", "size", "tokens", "aligned"), cases("image"))
def test_a_picture_costs_what_the_processor_counts(
    rule: Rule, size: list[int], tokens: int | None, aligned: list[int] | None
) -> None:
    if tokens is None:
        with pytest.raises(UnsupportedMedia):
            rule.image(Size(*size))
    else:
        assert rule.image(Size(*size)) == tokens
        assert rule.aligned(Size(*size)) == tuple(aligned or ())


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


def test_every_family_has_its_counts_and_every_file_its_family() -> None:
    assert {file.stem for file in COUNTS.iterdir()} == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_numbers_of_a_family_are_those_of_its_checkpoint(family: str) -> None:
    first = configurations(family)[0]
    assert FAMILIES[family] == lookup(family, **first["params"])
    assert FAMILIES[family].template_tokens == first["template_tokens"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_counts_are_many_and_hold_refusals(family: str) -> None:
    found = [case for configuration in configurations(family) for case in configuration["image"]]
    assert len(found) >= 60
    assert any(tokens is None for _, tokens, _ in found)


@properties
@given(families, sizes)
def test_what_the_processor_made_it_keeps_as_it_is(family: str, size: Size) -> None:
    assume(size.long <= 200 * size.short)
    rule = FAMILIES[family]
    aligned = rule.aligned(size)
    assert aligned.width % rule.cell == aligned.height % rule.cell == 0
    assert rule.image(size) * rule.cell**2 == aligned.pixels
    assume(aligned.long <= 200 * aligned.short)  # rounding may make it thinner than the processor takes
    assert rule.image(aligned) == rule.image(size)
    assert rule.image(size) >= 1


@properties
@given(families, sizes)
def test_a_quarter_turn_costs_the_same(family: str, size: Size) -> None:
    assume(size.long <= 200 * size.short)
    rule = FAMILIES[family]
    assert rule.image(size.turned()) == rule.image(size)


@properties
@given(families, st.integers(1, 100), st.integers(1, 10_000))
def test_a_picture_of_more_than_two_hundred_to_one_is_refused(family: str, short: int, more: int) -> None:
    size = Size(200 * short + more, short)
    for thin in (size, size.turned()):
        with pytest.raises(ExtremeAspect, match=f"{thin}"):
            FAMILIES[family].image(thin)


@pytest.mark.parametrize("family", FAMILIES)
def test_exactly_two_hundred_to_one_is_let_through(family: str) -> None:
    assert FAMILIES[family].image(Size(5_600, 28)) > 0
    with pytest.raises(ExtremeAspect):
        FAMILIES[family].image(Size(5_601, 28))


def test_the_grid_of_qwen3_is_coarser_than_that_of_qwen2() -> None:  # B31
    assert FAMILIES["qwen2_5_vl"].cell == 28
    assert FAMILIES["qwen3_vl"].cell == 32


def test_a_video_of_qwen3_needs_two_frames() -> None:
    with pytest.raises(UnsupportedMedia, match="1 frame"):
        FAMILIES["qwen3_vl"].video(frames=1, size=Size(640, 480), fps=2)
