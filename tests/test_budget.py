"""
Budget: pictures made smaller until they fit. On sizes alone; the counts are those of the families, which have tests of
their own against the models' processors.
"""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vlm_edge.budget import BudgetSettings, Room, Sized, fit
from vlm_edge.errors import UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.layout import Layout, layout
from vlm_edge.media.profile import Profile
from vlm_edge.settings import shipped_profiles
from vlm_edge.tokens import FAMILIES, Rule

MUCH = 1 << 40
QWEN = FAMILIES["qwen2_5_vl"].rule
PROFILES = shipped_profiles()

properties = settings(deadline=None, max_examples=60)
sides = st.integers(40, 5_000)
sizes = st.builds(Size, sides, sides)
many = st.lists(sizes, min_size=1, max_size=6)
rules = st.sampled_from(
    [family.rule for name, family in sorted(FAMILIES.items()) if name != "glm_4v"]
)  # of one picture
profiles = st.sampled_from(list(PROFILES.values()))
budgets = st.integers(0, 20_000)


def sized(size: Size, profile: Profile, rule: Rule) -> Sized:
    """A picture as its profile has it."""
    return Sized(size, layout(size, profile, rule))


def pictures(found: list[Size], profile: Profile, rule: Rule) -> list[Sized]:
    """Those that the model takes as the profile has them: some find a thin one too thin when it is shrunk."""
    made = [sized(size, profile, rule) for size in found]
    return [one for one in made if is_taken(one.layout.canvas, rule)]


def is_taken(size: Size, rule: Rule) -> bool:
    try:
        return rule.image(size) >= 0
    except UnsupportedMedia:
        return False


def costs(layouts: Any, rule: Rule) -> list[int]:
    return rule.images([one.canvas for one in layouts])


def is_at_its_floor(before: Sized, after: Layout, profile: Profile, rule: Rule) -> bool:
    """Whether no smaller size that costs less is left above the floor."""
    at_floor = fit([before], profile, rule, 0, 0)[0]
    return rule.image(after.canvas) <= rule.image(at_floor.canvas)


@properties
@given(many, profiles, rules, budgets, budgets)
def test_pictures_cost_no_more_than_they_may_or_are_at_their_floor(
    found: list[Size], profile: Profile, rule: Rule, each: int, together: int
) -> None:
    before = pictures(found, profile, rule)
    after = fit(before, profile, rule, each, together)
    counts = costs(after, rule)
    if sum(counts) > together:
        assert all(is_at_its_floor(*one, profile, rule) for one in zip(before, after, strict=True))
    for one, made, count in zip(before, after, counts, strict=True):
        assert count <= each or is_at_its_floor(one, made, profile, rule)


@properties
@given(many, profiles, rules, budgets, budgets)
def test_a_smaller_budget_makes_no_picture_larger(
    found: list[Size], profile: Profile, rule: Rule, one: int, other: int
) -> None:
    before = pictures(found, profile, rule)
    less = fit(before, profile, rule, MUCH, min(one, other))
    more = fit(before, profile, rule, MUCH, max(one, other))
    assert all(small.canvas.pixels <= large.canvas.pixels for small, large in zip(less, more, strict=True))


@properties
@given(many, profiles, rules, budgets)
def test_nothing_is_made_smaller_that_need_not_be(
    found: list[Size], profile: Profile, rule: Rule, together: int
) -> None:
    before = pictures(found, profile, rule)
    whole = [one.layout for one in before]
    after = fit(before, profile, rule, MUCH, together)
    if sum(costs(whole, rule)) <= together:
        assert after == whole
    # One that could have been made smaller, and was not, costs no more than any that was.
    cost = costs(whole, rule)
    left = [
        tokens
        for tokens, one, made in zip(cost, before, after, strict=True)
        if one.layout == made and not is_at_its_floor(one, made, profile, rule)
    ]
    changed = [tokens for tokens, one, made in zip(cost, whole, after, strict=True) if one != made]
    assert max(left, default=0) <= min(changed, default=MUCH)


@properties
@given(many, rules, budgets)
def test_what_fits_is_not_fitted_again(found: list[Size], rule: Rule, together: int) -> None:
    profile = PROFILES["standard"]
    once = fit(pictures(found, profile, rule), profile, rule, MUCH, together)
    sent = [one.canvas for one in once]
    assume(sum(rule.images(sent)) <= together)
    again = fit([Sized(size, Layout(size, size)) for size in sent], profile, rule, MUCH, together)
    assert [one.canvas for one in again] == sent


@properties
@given(sizes, st.integers(2, 6), budgets)
def test_equal_pictures_stay_equal(size: Size, number: int, together: int) -> None:
    profile = PROFILES["document"]
    assert len(set(fit(pictures([size] * number, profile, QWEN), profile, QWEN, MUCH, together))) == 1


def test_the_largest_go_first_and_all_to_one_cap() -> None:
    profile = PROFILES["document"]
    small, middle, large = Size(280, 280), Size(1_120, 840), Size(2_016, 1_512)  # 100, 1,200 and 3,888 tokens
    before = pictures([large, small, middle, large], profile, QWEN)
    assert costs([one.layout for one in before], QWEN) == [3_888, 100, 1_200, 3_888]
    after = costs(fit(before, profile, QWEN, MUCH, 6_000), QWEN)
    assert after[1:3] == [100, 1_200]
    assert after[0] == after[3] > 2_200
    assert sum(after) <= 6_000


@properties
@given(sizes, profiles, rules, budgets)
def test_in_pixels_no_picture_goes_below_the_floor(size: Size, profile: Profile, rule: Rule, together: int) -> None:
    """But for what `snap` leaves out of those without a grid, 3 % a side and a pixel of rounding."""
    before = pictures([size], profile, rule)
    for one, made in zip(before, fit(before, profile, rule, MUCH, together), strict=True):
        least = min(profile.floor_pixels, one.layout.canvas.pixels)
        assert made.canvas.pixels >= (least if rule.cell > 1 else 0.93 * least)


def test_no_picture_goes_below_the_floor_of_its_profile() -> None:
    profile = Profile(max_side=2_048, max_pixels=4_194_304, floor_pixels=1_003_520)
    made = fit([sized(Size(4_000, 3_000), profile, QWEN)], profile, QWEN, MUCH, 0)[0]
    assert 1_003_520 <= made.canvas.pixels <= 1_003_520 * 1.05


@pytest.mark.parametrize(
    ("family", "size"),
    [
        ("internvl", Size(1_004, 2_935)),
        ("nemotron_nano_v2_vl", Size(1_083, 2_179)),
        ("nemotron_nano_vl", Size(2_748, 906)),
    ],
)
def test_the_floor_is_kept_where_the_model_would_make_less_of_it(family: str, size: Size) -> None:
    rule, profile = FAMILIES[family].rule, PROFILES["document"]
    (made,) = fit([sized(size, profile, rule)], profile, rule, 0, 0)
    assert made.canvas.pixels >= 0.94 * profile.floor_pixels or made == layout(size, profile, rule)


def test_a_picture_below_the_floor_stays_as_it_is() -> None:
    profile = PROFILES["document"]
    before = sized(Size(560, 560), profile, QWEN)
    assert fit([before], profile, QWEN, 0, 0) == [before.layout]


@pytest.mark.parametrize("family", ["internvl", "gemma3", "llava_1_5"])
def test_a_picture_is_not_made_smaller_where_that_saves_nothing(family: str) -> None:
    rule, profile = FAMILIES[family].rule, PROFILES["standard"]
    before = sized(Size(4_000, 3_000), profile, rule)
    assert fit([before], profile, rule, 0, 0) == [before.layout]


# Room


def test_room_is_what_text_and_answer_leave() -> None:
    assert Room(4_096, 500, 500, 1_000).for_pictures(32_768) == 2_596
    assert Room(4_096, 500, 500, 1_000).for_pictures(2_000) == 2_000
    assert Room(4_096, 4_000, 4_000, 1_000).for_pictures(32_768) == 0
    assert Room().for_pictures(32_768) == 32_768


def test_a_bound_of_text_counts_only_where_it_must_be_sure() -> None:
    room = Room(4_096, 4, 2_000, 96)
    assert room.for_pictures(32_768) == 3_996
    assert room.for_pictures(32_768, surely=True) == 2_000
    assert not room.exact


def test_an_answer_is_kept_room_for_as_the_client_asks_up_to_a_share() -> None:
    assert BudgetSettings().reserved(1_000, 4_096) == 1_000
    assert BudgetSettings().reserved(4_000, 4_096) == 2_048
    assert BudgetSettings().reserved(None, 4_096) == BudgetSettings().reserve_tokens
    assert BudgetSettings(reserve_tokens=0).reserved(None, 4_096) == 0


@pytest.mark.parametrize(
    "fields", [{"max_model_len": 0}, {"reserve_tokens": -1}, {"reserve_share": 1.0}, {"reserve_share": -0.1}]
)
def test_a_budget_without_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        BudgetSettings(**fields)
