"""Prepare: one file, or one page of it, to the file that is sent. Which library decodes what is known here alone."""

from collections.abc import Sequence

import msgspec

from vlm_edge.errors import CorruptMedia, MissingDecoder
from vlm_edge.geometry import Size
from vlm_edge.media import pages, picture, pillow, png
from vlm_edge.media.picture import SentFile, Target
from vlm_edge.media.probe import Probe, probe
from vlm_edge.media.source import Source

PDF = "application/pdf"


def prepare(data: bytes, probe: Probe, target: Target | None) -> SentFile:
    """The file to send; without a target, `data` themselves, when they are whole. Raises CorruptMedia and the like."""
    if target is None:
        picture.verify(data, probe)
        return SentFile(data, probe.media_type)
    if probe.packed_text:
        data = png.without_texts(data)
    if probe.media_type == PDF:
        raster = pages.render(data, probe.page, target.size, target.background)
        return picture.resize_raster(raster, target)
    if target.exact:
        return _exact(data, probe, target)
    return _resized(data, probe, target)


def _resized(data: bytes, probe: Probe, target: Target) -> SentFile:
    if is_for_pillow(probe):
        return picture.resize_raster(pillow.decode(data, probe), target)
    return picture.resize(data, probe, target)


def _exact(data: bytes, probe: Probe, target: Target) -> SentFile:
    """What Pillow cannot read no model's processor can, so there is nothing to be equal to."""
    media_type = target.encoding.media_types[0]
    try:
        return SentFile(pillow.resize(data, probe, target.size, target.background, media_type), media_type)
    except (CorruptMedia, MissingDecoder):
        return _resized(data, probe, target)


def is_for_pillow(probe: Probe) -> bool:
    """What libvips does not read: other formats, and the frames of an animation."""
    if probe.media_type not in picture.MEDIA_TYPES:
        return True
    # libvips takes the first frame of a GIF for all of it.
    return probe.inset or (probe.animated and (probe.page > 0 or probe.media_type == "image/avif"))


def is_risky(probe: Probe, target: Target | None) -> bool:
    """Whether a decoder is needed whose time and memory cannot be told from the headers."""
    exact = target is not None and target.exact
    return exact or probe.media_type == PDF or is_for_pillow(probe)


def check_readable(probe: Probe) -> None:
    """Raises MissingDecoder for a format whose library is not installed."""
    if probe.media_type == PDF:
        pages.need()
    elif is_for_pillow(probe):
        pillow.need(probe.media_type)


def must_be_opened(first: Probe, *, frames: bool) -> bool:
    """Whether the headers do not tell all pages; or, where they matter, all `frames`."""
    return first.media_type == PDF or (frames and may_move(first))


def may_move(first: Probe) -> bool:
    """Of a GIF the header does not say whether it is animated."""
    return first.animated or first.media_type == "image/gif"


def unfold(source: Source, first: Probe, at_most: int) -> Sequence[Probe]:
    """The first pages of a document that headers tell of."""
    return [first, *(probe(source, page) for page in range(1, min(first.pages, at_most)))]


def unfold_opened(data: bytes, first: Probe, at_most: int) -> Sequence[Probe]:
    """The first pages of a PDF, in points; or frames of an animation, evenly spread."""
    if first.media_type == PDF:
        count, sizes = pages.sizes(data, at_most)
        points = [Size(*(max(1, round(side)) for side in size)) for size in sizes]
        return [msgspec.structs.replace(first, page=page, pages=count, size=size) for page, size in enumerate(points)]
    count = pillow.frames(data, first.media_type)
    taken = min(count, at_most)
    return [msgspec.structs.replace(first, page=index * count // taken, pages=count) for index in range(taken)]
