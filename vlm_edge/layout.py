"""
Layout: the size of a picture as sent, inside its profile and on the model's grid. A pure function on sizes.

One factor scales both sides. The grid may change the shape by as little as its own rounding; a picture that it would
stretch, thin or small, lies on a canvas of whole cells instead. Of a model without a grid, the size that it makes is
taken where that is a smaller one of the same shape; else a few pixels are left out where they would cost a tile.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from typing import NamedTuple

from vlm_edge.errors import MediaTooLarge, UnsupportedMedia, VisionBudgetExceeded
from vlm_edge.geometry import Size, align, fit
from vlm_edge.media.profile import Profile
from vlm_edge.tokens.rule import SNAP, Rule

# One side may be so much longer or shorter than the other asks for.
MAX_DISTORTION = 0.08

# `cheaper` tries this part of the pixels less, again and again: finer than a column of cells is of most pictures.
STEP = 64


class Layout(NamedTuple):
    """The size of a picture, and of the canvas that it lies on, in the upper left corner."""

    size: Size
    canvas: Size


@lru_cache(maxsize=4_096)
def layout(size: Size, profile: Profile, rule: Rule) -> Layout:
    """Never enlarged beyond alignment. Raises VisionBudgetExceeded where the profile allows too few tokens for any."""
    found = _layout(size, profile, rule, profile.max_pixels)
    if rule.cell == 1 and _tokens(found.canvas, rule) > _tokens(size, rule):
        found = _no_dearer(size, found, profile, rule)
    allowed = profile.max_tokens
    if allowed is None or rule.image(found.canvas) <= allowed:
        return found
    low, high = 0, min(profile.max_pixels, size.pixels)
    while high - low > 1:
        pixels = (low + high) // 2
        closer = _layout(size, profile, rule, pixels)
        if rule.image(closer.canvas) <= allowed:
            low, found = pixels, closer
        else:
            high = pixels
    if not low:
        raise VisionBudgetExceeded("picture", rule.image(found.canvas), allowed)
    return found


def _no_dearer(size: Size, found: Layout, profile: Profile, rule: Rule) -> Layout:
    """The largest that costs no more than the picture as it came: to models that cut pictures into tiles a smaller one
    may be of a less lucky size. `found` where there is none."""
    allowed, pixels = _tokens(size, rule), found.canvas.pixels
    while pixels > profile.floor_pixels:
        pixels -= max(1, pixels // STEP)
        closer = _layout(size, profile, rule, pixels)
        if _tokens(closer.canvas, rule) <= allowed:
            return closer
    return found


@lru_cache(maxsize=4_096)
def cheaper(size: Size, found: Layout, profile: Profile, rule: Rule) -> Layout | None:
    """The next smaller layout that costs fewer tokens, down to the smallest; None where that is reached."""
    tokens, pixels = rule.image(found.canvas), found.canvas.pixels
    floor, least = _floor(size, profile, rule)
    if smallest(size, found, profile, rule) is found:
        return None
    while pixels > profile.floor_pixels:
        pixels = max(profile.floor_pixels, pixels - max(1, pixels // STEP))
        closer = _layout(size, profile, rule, pixels)
        between = floor.canvas.pixels <= closer.canvas.pixels < found.canvas.pixels
        if between and least <= _tokens(closer.canvas, rule) < tokens:
            return closer
    return floor


def smallest(size: Size, found: Layout, profile: Profile, rule: Rule) -> Layout:
    """As small as the profile lets it be, where that costs less: many models count by the shape alone."""
    if found.canvas.pixels <= profile.floor_pixels:
        return found
    floor, least = _floor(size, profile, rule)
    helps = floor.canvas.pixels < found.canvas.pixels and least < rule.image(found.canvas)
    return floor if helps else found


@lru_cache(maxsize=4_096)
def _floor(size: Size, profile: Profile, rule: Rule) -> tuple[Layout, float]:
    """The smallest of no fewer pixels than the profile wants, and what it costs; of a grid, the next whole cells."""
    pixels = least = min(profile.floor_pixels, size.pixels)
    floor = _layout(size, profile, rule, pixels)
    while floor.canvas.pixels < least and pixels < min(2 * least, profile.max_pixels):
        pixels += pixels // STEP + 1
        floor = _layout(size, profile, rule, pixels)
    if rule.cell == 1 and floor.canvas.pixels < (1 - SNAP) ** 2 * least:  # the model makes less of it
        fitted = fit(size, profile.max_side, profile.floor_pixels)
        floor = Layout(fitted, fitted) if _tokens(fitted, rule) < inf else floor
    return floor, _tokens(floor.canvas, rule)


def _tokens(size: Size, rule: Rule) -> float:
    """What a size costs; without end where it is too thin for the model, or too large."""
    try:
        return rule.image(size)
    except (UnsupportedMedia, MediaTooLarge):
        return inf


def is_stretched(size: Size, sent: Size, profile: Profile, rule: Rule) -> bool:
    """Whether the model, sent a thin picture or one brought to its grid, would see another shape than that of `size`.

    Any other the model resizes as it always does.
    """
    cell = rule.cell
    if cell == 1 or profile.engine == "pillow" or not profile.align:
        return False
    thin, on_grid = sent.short < cell < sent.long / 2, not (sent.width % cell or sent.height % cell)
    if not (thin or on_grid):
        return False
    made = _kept(sent, rule)
    return made is None or _distortion(size, made) > MAX_DISTORTION


@lru_cache(maxsize=4_096)
def _kept(sent: Size, rule: Rule) -> Size | None:
    """What the model makes of a size on its grid; None where that is too thin for it."""
    try:
        return rule.aligned(sent)
    except UnsupportedMedia:
        return None


def _distortion(size: Size, made: Size) -> float:
    change = made.width * size.height / (made.height * size.width)
    return max(change, 1 / change) - 1


def _layout(size: Size, profile: Profile, rule: Rule, pixels: int) -> Layout:
    """Of about so many pixels, or fewer."""
    if profile.engine == "pillow":
        exact = _exact(size, profile.max_side, pixels, rule)
        return Layout(exact, exact)
    cell = rule.cell if profile.align else 1
    # The box is cut to whole cells first: fitting to 1008 and not to 1024 keeps the ratio when sides are rounded.
    side = profile.max_side // cell * cell or profile.max_side
    fitted = fit(size, side, pixels)
    sent = _on_grid(fitted, side, profile, rule) if cell > 1 else _free(size, fitted, profile, rule)
    taken = cell > 1 or _tokens(sent, rule) < inf
    if taken and sent.short >= profile.min_side and not is_stretched(size, sent, profile, rule):
        return Layout(sent, sent)
    inside = (canvas for canvas in _canvases(fitted, cell, profile) if canvas.fits(side, profile.max_pixels))
    canvas = next((canvas for canvas in inside if cell > 1 or _tokens(canvas, rule) < inf), None)
    if canvas is None:  # no room for whole cells: fewer pixels leave some
        fewer = min(pixels, fitted.pixels) * 15 // 16
        return _layout(size, profile, rule, fewer) if fewer > cell**2 > 1 else Layout(fitted, fitted)
    kept = rule.aligned(canvas).pixels if cell > 1 else canvas.pixels
    if kept >= canvas.pixels:
        return Layout(fitted, canvas)
    return _layout(size, profile, rule, min(pixels, kept) * 15 // 16)  # the model's own bound is tighter


def _canvases(fitted: Size, cell: int, profile: Profile) -> Iterator[Size]:
    """Of whole cells; with the shorter side of the profile, or without where there is no room for that. Of a model
    without a grid, also wider ones: it may find the picture too thin."""
    wider = (fitted.short * factor for factor in (2, 4, 8)) if cell == 1 else ()
    for least in (max(cell, profile.min_side), cell, *wider):
        yield Size(*(-(-max(length, least) // cell) * cell for length in fitted))


def _on_grid(fitted: Size, side: int, profile: Profile, rule: Rule) -> Size:
    """Where the model's own bound is tighter than the profile it counts; where the model is going to enlarge a picture,
    or finds it too thin only when it is rounded, that is left to the model."""
    aligned = align(fitted, rule.cell, side, profile.max_pixels)
    kept = _kept(aligned, rule)
    return kept if kept and kept.width <= aligned.width and kept.height <= aligned.height else fitted


def _free(size: Size, fitted: Size, profile: Profile, rule: Rule) -> Size:
    """Of a model without a grid: what it makes of the picture, where that is smaller and of the same shape."""
    if not profile.align or _tokens(fitted, rule) == inf:
        return fitted
    made = rule.aligned(fitted)
    smaller = made != fitted and made.width <= fitted.width and made.height <= fitted.height
    return made if smaller and _distortion(size, made) <= SNAP else rule.snap(fitted)


def _exact(size: Size, max_side: int, max_pixels: int, rule: Rule) -> Size:
    """The size that the model's own processor would make, were its bound this one; if it has one."""
    if size.fits(max_side, max_pixels):
        return size  # for the model's processor, which resizes once
    if rule.pads:
        return fit(size, max_side, max_pixels)
    pixels = min(max_pixels, max(1, max_side**2 * size.short // size.long))
    found = _kept(size, rule.within(pixels))
    while found and found.long > max_side and pixels > rule.cell**2 > 1:  # rounded up
        pixels = pixels * 15 // 16
        found = _kept(size, rule.within(pixels))
    if found is None:  # too thin for that
        return fit(size, max_side, max_pixels)
    return found if rule.cell > 1 or found.fits(max_side, max_pixels) else fit(size, max_side, max_pixels)
