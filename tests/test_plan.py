"""The plan: policy on sizes alone, so no picture is needed here."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vlm_edge.budget import Room
from vlm_edge.errors import (
    ContextExceeded,
    ExtremeAspect,
    MediaTooLarge,
    TooManyImages,
    TooManyPages,
    UnsupportedMedia,
    VisionBudgetExceeded,
)
from vlm_edge.geometry import Size
from vlm_edge.layout import MAX_DISTORTION, layout, smallest
from vlm_edge.media.picture import Encoding, Target
from vlm_edge.media.probe import Probe
from vlm_edge.media.profile import Pages, Profile
from vlm_edge.pictures import Limits, Subject, check_bytes, max_images, media_types, plan_picture
from vlm_edge.plan import Model, Plan, Rooms, check_budget, fitted, plan
from vlm_edge.settings import shipped_profiles
from vlm_edge.tokens import FAMILIES, Rule, lookup
from vlm_edge.tokens.rule import SNAP

QWEN = Model("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_5_vl", FAMILIES["qwen2_5_vl"].rule)
QWEN3 = Model("m", "qwen3_vl", FAMILIES["qwen3_vl"].rule)
STANDARD = Profile(max_side=1_024, max_pixels=1_048_576, format="jpeg")
PLACE = "messages[0].content[1]"

properties = settings(deadline=None, max_examples=300)
sides = st.integers(1, 20_000)
# Thinner ones are refused before anybody plans their size.
sizes = st.builds(Size, sides, sides).filter(lambda size: size.long <= 200 * size.short)
large_sizes = st.builds(Size, st.integers(2_100, 20_000), st.integers(2_100, 20_000))
usual_sizes = st.builds(Size, st.integers(100, 10_000), st.integers(100, 10_000))
GRIDS = [FAMILIES[name].rule for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")]
rules = st.sampled_from(GRIDS)
all_rules = st.sampled_from([family.rule for family in FAMILIES.values()])
shipped = st.sampled_from(list(shipped_profiles().values()))
profiles = shipped | st.builds(
    Profile, max_side=st.integers(1, 5_000), max_pixels=st.integers(1, 20_000_000), format=st.just("jpeg")
)


def a_probe(width: int, height: int, media_type: str = "image/jpeg", **fields: Any) -> Probe:
    return Probe(media_type=media_type, size=Size(width, height), **{"srgb": True, "file_bytes": 1_000} | fields)


def planned_size(size: Size, profile: Profile, rule: Any) -> Size:
    """As sent, a margin included."""
    return layout(size, profile, rule).canvas


def planned(*probes: Probe, profile: Profile = STANDARD, model: Model = QWEN, limits: Limits | None = None) -> Plan:
    places = [f"messages[0].content[{number}]" for number in range(len(probes))]
    subjects = [Subject(place, [probe]) for place, probe in zip(places, probes, strict=True)]
    return plan(subjects, profile, model, limits or Limits())


# Sizes


@properties
@given(sizes, profiles, rules)
def test_a_planned_side_is_whole_cells(size: Size, profile: Profile, rule: Any) -> None:
    found = planned_size(size, profile, rule)
    assume(found.short >= rule.cell and found.long <= 100 * found.short and found.pixels >= 2 * rule.min_pixels)
    assert found.width % rule.cell == found.height % rule.cell == 0


@properties
@given(sizes, profiles, rules)
def test_a_planned_size_is_inside_its_profile(size: Size, profile: Profile, rule: Any) -> None:
    assert planned_size(size, profile, rule).fits(profile.max_side, profile.max_pixels)


@properties
@given(sizes, shipped, rules)
def test_the_shipped_profiles_are_never_left(size: Size, profile: Profile, rule: Any) -> None:
    assert planned_size(size, profile, rule).fits(profile.max_side, profile.max_pixels)


def test_a_thin_picture_stays_inside_a_profile_of_few_pixels() -> None:
    profile = Profile(max_side=5_600, max_pixels=100_000)
    assert planned_size(Size(5_600, 28), profile, QWEN.rule).pixels <= profile.max_pixels


@properties
@given(sizes, profiles, rules)
def test_a_planned_side_is_never_larger_than_the_source_beyond_alignment(
    size: Size, profile: Profile, rule: Any
) -> None:
    found = planned_size(size, profile, rule)
    assert found.width < size.width + rule.cell
    assert found.height < size.height + rule.cell


@properties
@given(sizes, profiles, rules)
def test_the_ratio_is_kept_within_a_cell(size: Size, profile: Profile, rule: Any) -> None:  # B37
    found = layout(size, profile, rule).size
    sides = list(zip(found, size, strict=True))
    # One factor that brings both sides within a cell (and the pixel of rounding) of what is planned.
    least = max(Fraction(side - rule.cell - 1, source) for side, source in sides)
    most = min(Fraction(side + rule.cell + 1, source) for side, source in sides)
    assert least <= most


@properties
@given(large_sizes, shipped, rules)
def test_a_large_picture_uses_the_room_of_its_profile(size: Size, profile: Profile, rule: Any) -> None:
    found = planned_size(size, profile, rule)
    room = (found.width + 2 * rule.cell, found.height + 2 * rule.cell)
    assert max(room) > profile.max_side or room[0] * room[1] > profile.max_pixels


@properties
@given(sizes, profiles, st.integers(100_000, 2_000_000))
def test_a_canvas_is_kept_by_a_model_of_a_tighter_bound(size: Size, profile: Profile, max_pixels: int) -> None:
    rule = lookup("qwen2_5_vl", max_pixels=max_pixels)
    found = layout(size, profile, rule)
    assume(found.size != found.canvas)
    assert rule.aligned(found.canvas).pixels >= found.canvas.pixels


@properties
@given(sizes, shipped, rules)
def test_the_models_processor_keeps_the_planned_size(size: Size, profile: Profile, rule: Any) -> None:
    found = planned_size(size, profile, rule)
    assume(found.short >= rule.cell and found.long <= 100 * found.short and found.pixels >= 2 * rule.min_pixels)
    assert rule.aligned(found) == found


@properties
@given(sizes, profiles, rules)
def test_what_the_model_takes_as_it_is_it_takes_as_planned(size: Size, profile: Profile, rule: Any) -> None:
    assert rule.image(size) > 0
    assert rule.image(planned_size(size, profile, rule)) > 0


@pytest.mark.parametrize("size", [Size(100, 40), Size(40, 40), Size(600, 33)])
def test_what_the_model_enlarges_is_sent_as_it_is(size: Size) -> None:
    assert planned_size(size, STANDARD, FAMILIES["qwen3_vl"].rule) == size


def test_a_processor_with_fewer_pixels_than_the_profile_does_not_resample_again() -> None:
    rule = lookup("qwen2_5_vl", max_pixels=1_003_520)
    found = planned_size(Size(4_000, 3_000), shipped_profiles()["document"], rule)
    assert rule.aligned(found) == found


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (Size(4_032, 3_024), Size(1_008, 756)),
        (Size(3_024, 4_032), Size(756, 1_008)),
        (Size(3_264, 2_448), Size(1_008, 756)),
        (Size(2_000, 2_000), Size(1_008, 1_008)),
        (Size(8_000, 200), Size(1_008, 28)),
        (Size(1_025, 20), Size(1_008, 28)),
        (Size(2_000, 10), Size(1_008, 28)),
    ],
)
def test_sizes_by_example(size: Size, expected: Size) -> None:
    assert planned_size(size, STANDARD, QWEN.rule) == expected


# Pictures


@properties
@given(st.lists(usual_sizes, max_size=5), shipped, rules, st.booleans())
def test_counts_are_those_of_the_rule_for_the_sizes_sent(
    many: list[Size], profile: Profile, rule: Any, alpha: bool
) -> None:
    made = planned(*[a_probe(*size, alpha=alpha) for size in many], profile=profile, model=Model("m", "f", rule))
    assert [one.tokens for one in made.pictures] == [rule.image(one.size) for one in made.pictures]
    assert made.tokens == sum(rule.image(one.size) for one in made.pictures)
    assert [one.tokens_before for one in made.pictures] == [rule.image(size) for size in many]


@pytest.mark.parametrize("media", ["image/jpeg", "image/png", "image/webp"])
@pytest.mark.parametrize("size", [(1, 1), (27, 27), (1_024, 1_024), (105, 67), (1_001, 999)])
def test_a_picture_inside_its_profile_is_kept(media: str, size: tuple[int, int]) -> None:  # B11
    (one,) = planned(a_probe(*size, media)).pictures
    assert (one.action, one.target, one.size) == ("kept", None, size)


@pytest.mark.parametrize("size", [(1_025, 1_000), (400, 1_025), (4_032, 3_024)])
def test_a_picture_beyond_its_profile_is_resized(size: tuple[int, int]) -> None:
    (one,) = planned(a_probe(*size)).pictures
    assert one.action == "resized"
    encoding = Encoding(media_types=("image/jpeg",), quality=STANDARD.quality, chroma=STANDARD.chroma)
    assert one.target == Target(size=one.size, canvas=one.size, encoding=encoding)
    assert one.size.fits(1_024, 1_048_576)


def test_a_thin_picture_gets_a_margin_and_is_not_stretched() -> None:  # B41
    (one,) = planned(a_probe(2_000, 10)).pictures
    assert (one.content, one.size, one.action) == ((1_008, 6), (1_008, 28), "resized")


@pytest.mark.parametrize("size", [(1_000, 10), (500, 19), (19, 500), (300, 20)])
def test_a_thin_picture_inside_its_profile_gets_one_as_well(size: tuple[int, int]) -> None:  # B41
    (one,) = planned(a_probe(*size)).pictures
    assert one.content == size
    assert one.size == tuple(-(-side // 28) * 28 for side in size)


@properties
@given(sizes, shipped, rules)
def test_no_shape_is_changed_by_more_than_the_grid_is_worth(size: Size, profile: Profile, rule: Any) -> None:  # B37
    """But for the pixel of rounding, and where the profile has no room for a margin."""
    (one,) = planned(
        a_probe(*size), profile=profile, model=Model("m", "f", rule), limits=Limits(max_image_pixels=1 << 40)
    ).pictures
    assume(one.target and one.size.pixels + one.size.long * rule.cell <= profile.max_pixels)
    low, high = ((one.content.width + off) * size.height / ((one.content.height - off) or 1) for off in (-1, 1))
    assert low / size.width <= 1.08
    assert high / size.width >= 1 / 1.08 or one.content.height <= 1


@properties
@given(sizes, profiles, rules)
def test_what_lies_on_a_canvas_is_inside_it_and_less_than_a_cell_smaller(
    size: Size, profile: Profile, rule: Any
) -> None:
    found, canvas = layout(size, profile, rule)
    assert all(0 <= outer - inner < rule.cell for inner, outer in zip(found, canvas, strict=True))


@properties
@given(st.builds(Size, st.integers(1, 5_000), st.integers(28, 5_000)), st.integers(28, 300))
def test_the_shorter_side_sent_is_at_least_that_of_the_profile(size: Size, min_side: int) -> None:
    assume(size.long <= 200 * size.short)
    profile = Profile(min_side=min_side)
    (one,) = planned(a_probe(*size), profile=profile).pictures
    assert one.size.short >= min_side
    assert one.size.fits(profile.max_side, profile.max_pixels)


@pytest.mark.parametrize(
    "probe",
    [
        a_probe(840, 560, orientation=6),
        a_probe(840, 560, "image/png", alpha=True),
        a_probe(840, 560, "image/png", animated=True),
        a_probe(840, 560, srgb=False),
        a_probe(840, 560, "image/gif"),
        a_probe(840, 560, "image/tiff"),
        a_probe(840, 560, "image/avif"),
    ],
)
def test_a_small_picture_that_not_every_server_reads_alike_is_converted(probe: Probe) -> None:
    (one,) = planned(probe).pictures
    assert one.action == "converted"
    assert one.size == (840, 560)


@pytest.mark.parametrize(
    ("format_", "lossless", "expected"),
    [
        ("auto", True, ("image/jpeg", "image/png")),
        ("auto", False, ("image/jpeg",)),
        ("keep", False, ("image/webp",)),
        ("jpeg", True, ("image/jpeg",)),
        ("png", False, ("image/png",)),
        ("webp", True, ("image/webp",)),
    ],
)
def test_the_type_sent_is_that_of_the_profile(format_: Any, lossless: bool, expected: tuple[str, ...]) -> None:
    probe = a_probe(9, 9, "image/webp", lossless=lossless)
    assert media_types(probe, Profile(format=format_), Size(9, 9)) == expected


@pytest.mark.parametrize("media", ["image/gif", "image/tiff", "image/heic", "application/pdf"])
def test_a_format_that_is_never_sent_cannot_be_kept(media: str) -> None:
    probe = a_probe(9, 9, media, lossless=True)
    assert media_types(probe, Profile(format="keep"), Size(9, 9)) == ("image/jpeg", "image/png")


@pytest.mark.parametrize(
    ("format_", "expected"), [("auto", "image/png"), ("jpeg", "image/png"), ("webp", "image/webp")]
)
def test_the_exact_engine_writes_without_loss(format_: Any, expected: str) -> None:
    profile = Profile(format=format_, engine="pillow")
    assert media_types(a_probe(9, 9), profile, Size(9, 9)) == (expected,)


def test_a_webp_can_be_only_so_large() -> None:  # B45
    profile = Profile(format="webp", max_side=30_000)
    assert media_types(a_probe(9, 9), profile, Size(16_384, 9)) == ("image/jpeg",)


def test_a_small_picture_that_the_model_refuses_is_refused_here() -> None:
    with pytest.raises(ExtremeAspect) as caught:
        planned(a_probe(9, 9), a_probe(1_000, 4))
    assert "1000x4" in str(caught.value)
    assert caught.value.param == "messages[0].content[1]"


@properties
@given(sizes, shipped, rules, st.integers(1, 2_000))
def test_a_picture_costs_no_more_tokens_than_its_profile_says(
    size: Size, profile: Profile, rule: Any, max_tokens: int
) -> None:
    bounded = msgspec.structs.replace(profile, max_tokens=max_tokens)
    try:
        found = layout(size, bounded, rule)
    except VisionBudgetExceeded:
        assert rule.image(layout(size, msgspec.structs.replace(profile, max_pixels=1), rule).canvas) > max_tokens
    else:
        assert rule.image(found.canvas) <= max_tokens


@properties
@given(sizes, shipped, st.integers(50, 2_000))
def test_a_bound_on_tokens_changes_no_shape(size: Size, profile: Profile, max_tokens: int) -> None:
    """But for the pixel of rounding."""
    found = layout(size, msgspec.structs.replace(profile, max_tokens=max_tokens), QWEN.rule).size
    low, high = ((found.width + off) / ((found.height - off) or 1) for off in (-1, 1))
    assume(found.short > 1)
    assert low * size.height / size.width <= 1.08
    assert high * size.height / size.width >= 1 / 1.08


def test_a_bound_on_tokens_is_used_up() -> None:
    found = layout(Size(4_000, 3_000), Profile(max_tokens=1_000), QWEN.rule)
    assert 950 <= QWEN.rule.image(found.canvas) <= 1_000


def test_a_picture_inside_its_profile_but_for_its_tokens_is_resized() -> None:
    (one,) = planned(a_probe(560, 560), profile=Profile(max_tokens=399)).pictures
    assert one.action == "resized"
    assert one.tokens <= 399


def test_a_picture_that_cannot_be_made_cheap_enough_is_refused() -> None:
    with pytest.raises(VisionBudgetExceeded) as caught:
        planned(
            a_probe(800, 800), profile=Profile(max_tokens=63), model=Model("m", "qwen3_vl", FAMILIES["qwen3_vl"].rule)
        )
    assert caught.value.param == "messages[0].content[0]"


def test_without_alignment_the_size_is_that_of_the_fit() -> None:
    assert planned_size(Size(4_000, 3_000), Profile(align=False), QWEN.rule) == (1_024, 768)


@pytest.mark.parametrize("size", [Size(4_032, 3_024), Size(3_000, 1_001), Size(1_100, 1_000), Size(1_030, 25)])
def test_the_exact_engine_plans_the_size_that_the_models_processor_would_make(size: Size) -> None:
    profile = Profile(engine="pillow", max_side=65_500, max_pixels=1_003_520)
    expected = lookup("qwen2_5_vl", max_pixels=1_003_520).aligned(size)
    (one,) = planned(a_probe(*size), profile=profile).pictures
    assert one.size == (size if size.pixels <= 1_003_520 else expected)


@properties
@given(sizes, rules, st.integers(100, 5_000))
def test_the_exact_engine_stays_inside_its_profile(size: Size, rule: Any, max_side: int) -> None:
    profile = Profile(engine="pillow", max_side=max_side, max_pixels=4_000_000)
    assume(size.short >= rule.cell and size.pixels >= 4 * rule.min_pixels)
    found = planned_size(size, profile, rule)
    assert found.long <= max_side or found.short <= rule.cell or found.pixels <= 2 * rule.min_pixels


@pytest.mark.parametrize(
    "profile",
    [Profile(reencode="always"), Profile(max_encoded_bytes=1_024 * 10), Profile(min_side=600)],
)
def test_a_profile_may_keep_fewer_pictures_as_they_are(profile: Profile) -> None:
    (one,) = planned(a_probe(560, 560, file_bytes=20_000), profile=profile).pictures
    assert one.target is not None


# Pages


def pages_of(count: int, media_type: str = "image/tiff", taken: int | None = None, **fields: Any) -> list[Probe]:
    """Of a document of so many pages, the first ones."""
    return [a_probe(300, 400, media_type, pages=count, page=page, **fields) for page in range(taken or count)]


def planned_document(*pages: Probe, profile: Profile = STANDARD, limits: Limits | None = None) -> Plan:
    return plan([Subject(PLACE, pages)], profile, QWEN, limits or Limits())


def test_each_page_is_a_picture() -> None:  # B76, B78
    made = planned_document(*pages_of(3))
    assert [one.probe.page for one in made.pictures] == [0, 1, 2]
    assert made.tokens == 3 * made.pictures[0].tokens
    assert made.left_out == 0


def test_more_pages_than_the_profile_takes_are_refused() -> None:
    with pytest.raises(TooManyPages, match=r"9 pages; at most 8") as caught:
        planned_document(*pages_of(9, taken=8))
    assert caught.value.param == PLACE


def test_or_the_first_are_taken_and_the_others_counted() -> None:
    profile = Profile(pages=Pages(max=2, over="first"))
    made = planned_document(*pages_of(9, taken=2), profile=profile)
    assert (len(made.pictures), made.left_out) == (2, 7)


def test_pages_count_as_pictures_of_their_prompt() -> None:
    subjects = [Subject("a", pages_of(4)), Subject("b", pages_of(4), prompt=1), Subject("c", pages_of(4))]
    with pytest.raises(TooManyImages, match="At most 7") as caught:
        plan(subjects, STANDARD, QWEN, Limits(max_images=7))
    assert caught.value.param == "c"
    assert len(plan(subjects, STANDARD, QWEN, Limits(max_images=8)).pictures) == 12


def test_pages_count_beside_the_pictures_that_pass_unseen() -> None:
    subjects = [Subject("a", pages_of(4))]
    assert plan(subjects, STANDARD, QWEN, Limits(max_images=5), [0, 1]).pictures
    for passed in ([0, 0], [0, None]):
        with pytest.raises(TooManyImages, match="At most 5"):
            plan(subjects, STANDARD, QWEN, Limits(max_images=5), passed)
    with pytest.raises(TooManyImages, match="request"):
        plan(subjects, STANDARD, QWEN, Limits(max_total_images=5), [1, 2])


def test_and_of_their_request() -> None:
    subjects = [Subject("a", pages_of(4)), Subject("b", pages_of(4), prompt=1)]
    with pytest.raises(TooManyImages, match="request") as caught:
        plan(subjects, STANDARD, QWEN, Limits(max_total_images=7))
    assert caught.value.param == "b"


def test_a_page_of_a_pdf_is_planned_in_pixels_from_its_points() -> None:
    page, roomy = a_probe(595, 842, "application/pdf"), Profile(max_side=4_000, max_pixels=16_000_000)
    (one,) = planned(page, profile=roomy).pictures
    expected = 595 * 200 / 72, 842 * 200 / 72
    assert all(abs(side - wanted) <= 14 for side, wanted in zip(one.size, expected, strict=True))
    (small,) = planned(page).pictures
    assert 1_000 <= small.size.long <= 1_024


def test_a_large_page_of_a_pdf_is_no_large_picture() -> None:
    assert planned(a_probe(14_400, 14_400, "application/pdf"), limits=Limits(max_image_pixels=1_000_000)).tokens > 0


def test_frames_are_no_pages() -> None:
    frames = pages_of(500, "image/webp", taken=8, animated=True)
    made = planned_document(*frames, profile=Profile(animation="frames"))
    assert (len(made.pictures), made.left_out) == (8, 0)


def test_an_animation_may_be_refused() -> None:
    profile = Profile(animation="refuse")
    with pytest.raises(UnsupportedMedia, match="animation of 5 frames"):
        planned_document(*pages_of(5, "image/gif", taken=1), profile=profile)
    assert planned_document(*pages_of(1, "image/gif"), profile=profile).tokens > 0


# Limits


def test_pixels_are_limited_to_the_last_one() -> None:  # B86
    limits = Limits(max_image_pixels=12_000_000)
    assert planned(a_probe(4_000, 3_000), limits=limits).tokens > 0
    with pytest.raises(MediaTooLarge) as caught:
        planned(a_probe(4_001, 3_000), limits=limits)
    assert (caught.value.found, caught.value.allowed) == (12_003_000, 12_000_000)
    assert caught.value.param == "messages[0].content[0]"


def test_what_a_decoder_would_hold_is_limited() -> None:  # B86
    limits = Limits(max_image_memory_bytes=1_000_000)
    assert planned(a_probe(400, 300, memory_bytes=1_000_000), limits=limits).tokens > 0
    with pytest.raises(MediaTooLarge, match="when it is decoded"):
        planned(a_probe(400, 300, memory_bytes=1_000_001), limits=limits)


def test_deep_pictures_may_have_fewer_pixels_for_they_take_longer() -> None:
    limits = Limits(max_image_pixels=12_000_000)
    for alpha, allowed in ((False, 6_000_000), (True, 3_000_000)):
        fields: dict[str, Any] = {"deep": True, "alpha": alpha, "srgb": False}
        assert planned(a_probe(1_000, allowed // 1_000, **fields), limits=limits).tokens > 0
        with pytest.raises(MediaTooLarge, match=f"at most {allowed} "):
            planned(a_probe(1_000, allowed // 1_000 + 1, **fields), limits=limits)


def test_the_default_limit_of_pixels_is_vllms() -> None:
    with pytest.raises(MediaTooLarge):
        planned(a_probe(20_000, 20_000))


def test_bytes_are_limited_to_the_last_one() -> None:
    check_bytes(100, Limits(max_image_bytes=100))
    with pytest.raises(MediaTooLarge) as caught:
        check_bytes(101, Limits(max_image_bytes=100))
    assert (caught.value.found, caught.value.allowed) == (101, 100)


@pytest.mark.parametrize(
    ("of_profile", "of_settings", "allowed"), [(None, 3, 3), (1, 3, 1), (5, 3, 3), (0, 3, 0), (None, 0, 0)]
)
def test_pictures_are_limited_by_the_profile_and_the_settings(
    of_profile: int | None, of_settings: int, allowed: int
) -> None:
    profile, limits = Profile(max_images=of_profile), Limits(max_images=of_settings)
    assert max_images(profile, limits) == allowed


def test_an_invoice_is_one_picture_or_document() -> None:
    invoice = shipped_profiles()["invoice"]
    assert max_images(invoice, Limits()) == 1
    assert invoice.pages.max > 1


def test_the_tokens_of_a_picture_are_limited_to_the_last_one() -> None:
    made = planned(a_probe(280, 280), a_probe(560, 560))
    assert [one.tokens for one in made.pictures] == [100, 400]
    check_budget(made, Limits(max_image_tokens=400))
    with pytest.raises(VisionBudgetExceeded) as caught:
        check_budget(made, Limits(max_image_tokens=399))
    assert (caught.value.found, caught.value.allowed) == (400, 399)
    assert caught.value.param == "messages[0].content[1]"


def test_the_tokens_of_a_request_are_limited_as_a_sum() -> None:  # B34
    made = planned(a_probe(280, 280), a_probe(560, 560), a_probe(280, 280))
    check_budget(made, Limits(max_request_tokens=600))
    with pytest.raises(VisionBudgetExceeded) as caught:
        check_budget(made, Limits(max_request_tokens=599))
    assert (caught.value.found, caught.value.allowed) == (600, 599)
    assert caught.value.param == "messages[0].content[1]"  # the dearest


def test_a_request_without_pictures_costs_nothing() -> None:
    made = planned()
    assert made.tokens == 0
    check_budget(made, Limits(max_image_tokens=0, max_request_tokens=0))


@pytest.mark.parametrize("field", Limits.__struct_fields__)
def test_a_negative_limit_is_refused_by_name(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: -1}, Limits)


def test_the_plan_of_one_picture_is_that_of_the_request() -> None:
    probe = a_probe(4_032, 3_024)
    alone = plan_picture(Subject(PLACE, [probe]), probe, STANDARD, QWEN.rule, Limits())
    assert plan([Subject(PLACE, [probe])], STANDARD, QWEN, Limits()).pictures == [alone]


# Any family


@properties
@given(sizes, shipped, all_rules)
def test_whatever_the_family_a_planned_size_is_inside_its_profile_and_not_enlarged(
    size: Size, profile: Profile, rule: Rule
) -> None:
    found = layout(size, profile, rule)
    assert found.canvas.fits(profile.max_side, profile.max_pixels)
    assert found.size.width < size.width + rule.cell
    assert found.size.height < size.height + rule.cell


@properties
@given(usual_sizes, shipped, all_rules)
def test_whatever_the_family_the_shape_is_kept(size: Size, profile: Profile, rule: Rule) -> None:
    found = layout(size, profile, rule).size
    assume(rule.cell == 1)  # those of grids have their own test
    change = found.width * size.height / (found.height * size.width)
    # 3 % on purpose, and the pixel of rounding.
    assert max(change, 1 / change) <= (1 + SNAP + 0.01) * (1 + 1 / found.short)


def test_a_model_that_pads_gets_what_it_would_make_of_a_picture() -> None:
    """LLaVA-NeXT lays a 4:3 photo on a canvas of 672x672: more pixels than it keeps would be sent in vain."""
    rule = FAMILIES["llava_next"].rule
    found = planned_size(Size(4_032, 3_024), STANDARD, rule)
    assert found == (672, 504)
    assert rule.image(found) == rule.image(Size(4_032, 3_024))


def test_a_few_pixels_are_left_out_where_they_would_cost_tiles() -> None:
    """DeepSeek-OCR sees a page up to 640 px at once, and cuts a larger one up."""
    profile = Profile(max_side=650, max_pixels=1_000_000)
    assert planned_size(Size(1_300, 1_300), profile, FAMILIES["deepseek_ocr"].rule) == (640, 640)


@properties
@given(sizes, shipped, all_rules)
def test_a_picture_that_the_model_takes_is_sent_as_one_that_it_takes(size: Size, profile: Profile, rule: Rule) -> None:
    tokens = counted(size, rule)
    assume(tokens is not None)
    assert counted(layout(size, profile, rule).canvas, rule) is not None


@properties
@given(usual_sizes, shipped, st.sampled_from(["phi4_multimodal", "ovis2", "llava_onevision", "molmo2", "internvl"]))
def test_a_smaller_picture_costs_no_more_where_any_size_above_the_floor_does(
    size: Size, profile: Profile, family: str
) -> None:
    rule = FAMILIES[family].rule
    before, found = counted(size, rule), layout(size, profile, rule)
    assume(before is not None)
    assert rule.image(found.canvas) <= (before or 0) or smallest(size, found, profile, rule) is found


def counted(size: Size, rule: Rule) -> int | None:
    try:
        return rule.image(size)
    except (UnsupportedMedia, MediaTooLarge):
        return None


@pytest.mark.parametrize(
    ("family", "size", "profile"),
    [
        ("ovis2_5", Size(8_528, 750), Profile(max_side=2_048, max_pixels=373_928)),
        ("kimi_vl", Size(4_498, 756), Profile(max_side=777, max_pixels=26_495)),
        ("dots_ocr", Size(4_106, 2_947), Profile(max_side=2_048, max_pixels=9_354)),
        ("kimi_vl", Size(3_389, 2_815), Profile(max_side=300, max_pixels=90_000, engine="pillow")),
    ],
)
def test_where_there_is_little_room_the_shape_is_kept_too(family: str, size: Size, profile: Profile) -> None:
    found = layout(size, profile, FAMILIES[family].rule)
    change = found.size.width * size.height / (found.size.height * size.width)
    assert max(change, 1 / change) <= 1 + MAX_DISTORTION
    assert found.canvas.fits(profile.max_side, profile.max_pixels)


@pytest.mark.parametrize(
    ("family", "size"), [("hunyuan_ocr", (1_824, 32)), ("ovis2_5", (1_920, 32)), ("glm4_6v", (28, 84))]
)
def test_a_picture_that_nothing_would_help_is_not_encoded_again(family: str, size: tuple[int, int]) -> None:
    """The model enlarges it out of shape, with a margin or without."""
    model = Model("m", family, FAMILIES[family].rule)
    (one,) = planned(a_probe(*size), profile=shipped_profiles()["document"], model=model).pictures
    assert (one.action, one.size) == ("kept", size)


def test_what_is_too_large_for_the_model_alone_is_sent_smaller() -> None:
    """Claude refuses a side of more than 8,000 pixels."""
    claude = Model("claude-sonnet-4", "claude", FAMILIES["claude"].rule)
    (one,) = planned(a_probe(9_000, 6_000), model=claude).pictures
    assert (one.action, one.tokens) == ("resized", claude.rule.image(one.size))
    assert one.size.long <= 1_024


@pytest.mark.parametrize(("family", "size"), [("keye_vl", Size(63, 2_450)), ("ovis2_5", Size(2_975, 5))])
def test_the_exact_engine_takes_what_the_model_does(family: str, size: Size) -> None:
    rule = FAMILIES[family].rule
    assert rule.image(layout(size, Profile(engine="pillow"), rule).canvas) > 0


# Budget


def fit_to(made: Plan, rooms: Rooms, limits: Limits | None = None, profile: Profile = STANDARD) -> Plan:
    return fitted(made, profile, QWEN.rule, limits or Limits(), rooms)


def test_pictures_are_made_smaller_until_the_prompt_and_its_answer_fit() -> None:
    made = planned(a_probe(1_008, 756), a_probe(280, 280), a_probe(4_032, 3_024))
    assert [one.tokens for one in made.pictures] == [972, 100, 972]
    rooms: Rooms = {0: Room(2_048, 300, 300, 256)}
    after = fit_to(made, rooms)
    assert after.tokens <= 2_048 - 300 - 256
    assert [one.fitted for one in after.pictures] == [True, False, True]
    assert after.pictures[1] == made.pictures[1]
    assert [one.action for one in after.pictures] == ["resized", "kept", "resized"]
    assert [one.place for one in after.pictures] == [one.place for one in made.pictures]
    check_budget(after, Limits(), rooms)
    with pytest.raises(VisionBudgetExceeded):
        check_budget(made, Limits(), rooms)


def test_a_fitted_plan_says_what_its_pictures_will_be() -> None:
    made = fit_to(planned(a_probe(1_008, 756)), {0: Room(1_000, 100, 100, 100)})
    (one,) = made.pictures
    assert one.target is not None
    assert one.target.canvas == one.size
    assert one.tokens == QWEN.rule.image(one.size) <= 800
    assert one.tokens_before == 972


def test_what_fits_is_left_alone() -> None:
    made = planned(a_probe(4_032, 3_024), a_probe(640, 480))
    assert fit_to(made, {0: Room(4_096, 100, 100, 100)}) is made


def test_a_picture_that_costs_too_much_alone_is_made_smaller_too() -> None:
    made = fit_to(planned(a_probe(4_032, 3_024), a_probe(280, 280)), {}, Limits(max_image_tokens=500))
    first, second = made.pictures
    assert (first.tokens <= 500, second.tokens, second.fitted) == (True, 100, False)


def test_pictures_are_fitted_to_what_is_surely_free() -> None:
    made = planned(a_probe(1_008, 756))
    assert fit_to(made, {0: Room(2_048, 2, 1_200, 256)}).tokens <= 592
    check_budget(made, Limits(), {0: Room(2_048, 2, 1_200, 256)})  # but not refused for what may be


def test_each_prompt_has_its_own_context() -> None:
    probe = a_probe(1_008, 756)
    subjects = [Subject("a", [probe], 0), Subject("b", [probe], 1), Subject("c", [a_probe(280, 280)], None)]
    made = plan(subjects, STANDARD, QWEN, Limits())
    after = fit_to(made, {0: Room(1_000, 100, 100, 100), 1: Room(4_096, 100, 100, 100)})
    assert [one.fitted for one in after.pictures] == [True, False, False]
    assert after.pictures[0].tokens + 100 <= 800


def test_a_refusal_tells_the_parts_of_the_sum_and_the_biggest_pictures() -> None:
    made = planned(a_probe(280, 280), a_probe(1_008, 756), a_probe(560, 560), a_probe(300, 300))
    with pytest.raises(ContextExceeded) as caught:
        check_budget(made, Limits(), {0: Room(2_000, 1_100, 1_100, 256)})
    error = caught.value
    assert (error.found, error.text, error.reserved, error.allowed) == (1_593, 1_100, 256, 2_000)
    assert error.code == "vision_budget_exceeded"
    assert error.param == "messages[0].content[1]"
    for words in (
        "2949 tokens",
        "1593 vision",
        "1100 of text",
        "256 reserved",
        "allows 2000",
        "972 at messages[0].content[1]",
    ):
        assert words in error.message


def test_a_prompt_of_exactly_the_context_passes() -> None:
    made = planned(a_probe(280, 280))
    check_budget(made, Limits(), {0: Room(456, 100, 100, 256)})
    with pytest.raises(ContextExceeded):
        check_budget(made, Limits(), {0: Room(455, 100, 100, 256)})
