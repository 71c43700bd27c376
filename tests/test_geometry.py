from fractions import Fraction
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vlm_edge.geometry import Size, align, fit, scale

sides = st.integers(1, 20_000)
sizes = st.builds(Size, sides, sides)
small_sizes = st.builds(Size, st.integers(1, 80), st.integers(1, 80))
properties = settings(deadline=None, max_examples=300)


def test_a_size_is_width_then_height() -> None:
    size = Size(1_280, 720)
    assert (size.width, size.height) == (1_280, 720)
    assert str(size) == "1280x720"
    assert size.pixels == 921_600
    assert (size.long, size.short) == (1_280, 720)
    assert size.turned() == Size(720, 1_280)


@pytest.mark.parametrize(
    ("max_side", "max_pixels", "inside"),
    [(1_280, 921_600, True), (1_279, 921_600, False), (1_280, 921_599, False), (9_999, 9_999_999, True)],
)
def test_a_size_fits_when_neither_bound_is_crossed(max_side: int, max_pixels: int, *, inside: bool) -> None:
    assert Size(1_280, 720).fits(max_side, max_pixels) is inside
    assert Size(720, 1_280).fits(max_side, max_pixels) is inside


@properties
@given(sizes, sides)
def test_scaling_gives_the_long_side_asked_for_and_rounds_the_other_up(size: Size, long: int) -> None:
    scaled = scale(size, long)
    exact = Fraction(size.short * long, size.long)
    assert scaled.long == long
    assert 0 <= scaled.short - exact < 1


@pytest.mark.parametrize(
    ("size", "long", "expected"),
    [
        (Size(4_000, 3_000), 1_024, Size(1_024, 768)),
        (Size(3_000, 4_000), 1_024, Size(768, 1_024)),
        (Size(10_000, 1), 100, Size(100, 1)),
        (Size(8, 5), 4, Size(4, 3)),  # 2.5 is rounded up
    ],
)
def test_scaling_by_example(size: Size, long: int, expected: Size) -> None:
    assert scale(size, long) == expected


@properties
@given(sizes, sides, st.integers(1, 50_000_000))
def test_a_fitted_size_is_inside_both_bounds(size: Size, max_side: int, max_pixels: int) -> None:
    assert fit(size, max_side, max_pixels).fits(max_side, max_pixels)


@properties
@given(sizes, sides, st.integers(1, 50_000_000))
def test_fitting_never_enlarges_and_keeps_the_ratio_within_a_pixel(size: Size, max_side: int, max_pixels: int) -> None:
    fitted = fit(size, max_side, max_pixels)
    assert fitted.width <= size.width
    assert fitted.height <= size.height
    assert abs(fitted.short - Fraction(size.short * fitted.long, size.long)) < 1
    assert (fitted.width >= fitted.height) == (size.width >= size.height) or fitted.width == fitted.height


@properties
@given(sizes, st.integers(0, 1_000), st.integers(0, 1_000_000))
def test_what_is_inside_already_stays_as_it_is(size: Size, more_side: int, more_pixels: int) -> None:
    assert fit(size, size.long + more_side, size.pixels + more_pixels) == size


@properties
@given(small_sizes, st.integers(1, 100), st.integers(1, 7_000))
def test_no_scaled_size_above_the_fitted_one_is_inside(size: Size, max_side: int, max_pixels: int) -> None:
    fitted = fit(size, max_side, max_pixels)
    ratio = Fraction(size.short, size.long)
    larger = range(fitted.long + 1, min(size.long, max_side) + 1)
    # A larger one could be inside only because its short side was rounded down.
    assert all(long * ratio * long > max_pixels or scale(size, long).pixels > max_pixels for long in larger)


@properties
@given(sizes, st.sampled_from([14, 28, 32]), st.integers(0, 500), st.integers(0, 1_000_000))
def test_an_aligned_size_is_whole_cells_each_side_within_a_cell(size: Size, cell: int, side: int, pixels: int) -> None:
    assume(size.short >= cell)
    aligned = align(size, cell, size.long + side, size.pixels + pixels)
    assert aligned.width % cell == aligned.height % cell == 0
    assert min(aligned) >= cell
    assert abs(aligned.width - size.width) < cell
    assert abs(aligned.height - size.height) < cell


def nearest_by_search(size: Size, cell: int, max_side: int, max_pixels: int) -> int | None:
    """How near the best of all aligned sizes comes, found by trying each."""
    multiples = range(cell, max_side + 1, cell)
    choices = [Size(*one) for one in product(multiples, multiples) if one[0] * one[1] <= max_pixels]
    return min((abs(one.width - size.width) + abs(one.height - size.height) for one in choices), default=None)


@properties
@given(small_sizes, st.integers(1, 12), st.integers(0, 40), st.integers(0, 4_000))
def test_no_aligned_size_inside_the_bounds_is_nearer(size: Size, cell: int, side: int, pixels: int) -> None:
    assume(size.short >= cell)
    max_side, max_pixels = size.long + side, size.pixels + pixels
    aligned = align(size, cell, max_side, max_pixels)
    assert aligned.fits(max_side, max_pixels)
    away = abs(aligned.width - size.width) + abs(aligned.height - size.height)
    assert away == nearest_by_search(size, cell, max_side, max_pixels)


@pytest.mark.parametrize("size", [Size(15, 15), Size(27, 27), Size(500, 20), Size(20, 500)])
def test_a_side_that_is_nearer_to_one_cell_gets_one(size: Size) -> None:
    assert min(align(size, 28, 1_024, 1_048_576)) == 28


@pytest.mark.parametrize("size", [Size(1, 1), Size(14, 14), Size(500, 1), Size(1, 500)])
def test_a_side_that_is_nearer_to_nothing_is_not_stretched(size: Size) -> None:
    assert align(size, 28, 1_024, 1_048_576) == size


def test_no_cell_is_given_where_the_bounds_have_no_room_for_it() -> None:
    assert align(Size(20, 20), 28, 20, 400) == Size(20, 20)


def test_a_thin_picture_is_aligned_inside_the_bounds_too() -> None:
    size = fit(Size(5_600, 28), 5_600, 100_000)
    assert align(size, 28, 5_600, 100_000).fits(5_600, 100_000)
