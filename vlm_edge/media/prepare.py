"""Prepare: one file, or one page of it, to the file that is sent. Which library decodes what is known here alone."""

from collections.abc import Sequence

import msgspec

from vlm_edge.errors import CorruptMedia, DecoderStopped, MediaTooLarge, MissingDecoder
from vlm_edge.geometry import Size
from vlm_edge.media import gif, jpeg, pages, picture, pillow, png
from vlm_edge.media.picture import SentFile, Target
from vlm_edge.media.probe import Probe, media_type_of, probe
from vlm_edge.media.source import Bytes, Source

PDF = "application/pdf"
# Formats of which a file may hold anything: tiles and strips without number, pictures beside the one that is shown.
RISKY = frozenset({PDF, "image/tiff", "image/avif"})
SLOW = frozenset({"image/avif", "image/heic", "image/jxl", "image/jp2"})

# Of a progressive JPEG, and these times its pixels: a photo of 100 megapixels in ten scans.
MAX_SCANS, MAX_SCANNED_PIXELS = 100, 1_200_000_000


def prepare(data: bytes, probe: Probe, target: Target | None) -> SentFile:
    """The file to send; without a target, `data` themselves, when they are whole. Raises CorruptMedia and the like."""
    if probe.media_type == "image/jpeg":
        _check_scans(jpeg.scans(data), probe)
    if target is None:
        picture.verify(data, probe)
        return SentFile(png.sound(data) if probe.media_type == "image/png" else data, probe.media_type)
    data = _relieved(data, probe)
    if probe.media_type == PDF:
        raster = pages.render(data, probe.page, target.size, target.background)
        return picture.resize_raster(raster, target)
    if target.exact:
        return _exact(data, probe, target)
    return _resized(data, probe, target)


def _check_scans(scans: int, probe: Probe) -> None:
    """Each goes over the whole picture; encoders make some ten."""
    if scans > MAX_SCANS or (scans > 1 and scans * probe.size.pixels > MAX_SCANNED_PIXELS):
        raise DecoderStopped(f"would take {scans} scans over {probe.size.pixels} pixels")


def _relieved(data: bytes, probe: Probe) -> bytes:
    """Without what libraries would read for nothing: texts of a PNG, and the frames of a GIF behind the first."""
    if probe.packed_text:
        return png.without_texts(data)
    if probe.media_type == "image/gif" and probe.animated and not probe.page:
        return gif.first_frame(data)
    return data


def _resized(data: bytes, probe: Probe, target: Target) -> SentFile:
    if is_for_pillow(probe):
        return picture.resize_raster(pillow.decode(data, probe), target)
    try:
        return picture.resize(data, probe, target)
    except CorruptMedia:
        if probe.media_type != "image/tiff" or probe.deep:
            raise
        return picture.resize_raster(pillow.decode(data, probe), target)  # some compressions Pillow alone knows


def _exact(data: bytes, probe: Probe, target: Target) -> SentFile:
    """What Pillow cannot read, or not as colours, no model's processor can: there is nothing to be equal to."""
    media_type, allowed = target.encoding.media_types[0], target.encoding.max_bytes
    if probe.numbers != "unsigned" or (probe.deep and probe.media_type == "image/tiff"):
        return _resized(data, probe, target)
    try:
        sent = pillow.resize(data, probe, target.size, target.background, media_type)
    except (CorruptMedia, MissingDecoder):
        return _resized(data, probe, target)
    if allowed is not None and len(sent) > allowed:
        raise MediaTooLarge("bytes as it would be sent", len(sent), allowed)
    return SentFile(sent, media_type)


def is_for_pillow(probe: Probe) -> bool:
    """What libvips does not read: other formats, and the frames of an animation."""
    if probe.media_type not in picture.MEDIA_TYPES:
        return True
    return probe.misread or (probe.animated and (probe.page > 0 or probe.media_type == "image/avif"))


def is_risky(probe: Probe, target: Target | None) -> bool:
    """Whether a decoder is needed whose time and memory cannot be told from the headers."""
    exact = target is not None and target.exact
    return exact or probe.media_type in RISKY or is_for_pillow(probe)


def pixels_to_decode(probe: Probe) -> int:
    """That it may take time for, in such as slow formats have; a page is drawn in next to none."""
    if probe.media_type == PDF:
        return 0
    return probe.size.pixels if probe.media_type in SLOW else probe.size.pixels // 10


def probe_readable(source: Source) -> Probe:
    """The headers of a file, or of its first page. Raises MissingDecoder for a format whose library is not there."""
    _check_readable(media_type_of(source))
    first = probe(source)
    if first.media_type != PDF and is_for_pillow(first):
        pillow.need(first.media_type)
    return first


def _check_readable(media_type: str) -> None:
    if media_type == PDF:
        pages.need()
    elif media_type and media_type not in picture.MEDIA_TYPES:
        pillow.need(media_type)


def must_be_opened(first: Probe, *, frames: bool) -> bool:
    """Whether its first bytes do not tell all pages; or, where they matter, all `frames`."""
    return first.media_type == PDF or first.pages > 1 or (frames and may_move(first))


def is_risky_to_open(first: Probe) -> bool:
    """Whether it takes a decoder to find its pages."""
    return first.media_type != "image/tiff"


def may_move(first: Probe) -> bool:
    """Of a GIF the header does not say whether it is animated."""
    return first.animated or first.media_type == "image/gif"


def unfold(data: bytes, first: Probe, at_most: int) -> Sequence[Probe]:
    """The first pages of a document, those of a PDF in points; or frames of an animation, evenly spread."""
    if first.media_type == "image/tiff":
        return [probe(Bytes(data), page) for page in range(min(first.pages, at_most))]
    if first.media_type == PDF:
        count, sizes = pages.sizes(data, at_most)
        points = [Size(*(max(1, round(side)) for side in size)) for size in sizes]
        return [msgspec.structs.replace(first, page=page, pages=count, size=size) for page, size in enumerate(points)]
    count = pillow.frames(data, first.media_type)
    taken = min(count, at_most)
    return [msgspec.structs.replace(first, page=index * count // taken, pages=count) for index in range(taken)]
