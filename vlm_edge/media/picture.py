"""
Picture: the pixels of one still picture, by libvips (pyvips, imported at first use).

What comes out is what a person would have seen: upright, in sRGB, eight bits, on white where it was transparent,
without metadata. The same input gives the same bytes.
"""

import logging
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media.probe import Probe
from vlm_edge.media.profile import Chroma

if TYPE_CHECKING:
    import pyvips

LOADERS = ("Jpeg", "Png", "Webp", "Nsgif", "Tiff", "Heif")

_loading = Lock()

# thumbnail_buffer takes `fail_on` and ignores it (libvips 8.18); the loader's own options are honoured.
STRICT = "[fail_on=error]"


class Target(msgspec.Struct, frozen=True):
    """What to make of a picture."""

    size: Size
    media_type: str
    quality: int
    chroma: Chroma


@cache
def vips() -> Any:
    """libvips with the loaders of the formats we accept and no others, without cache, one thread a picture."""
    with _loading:  # `cache` alone lets two threads load at once, of which one blocks the loaders that the other uses
        return _load()


@cache
def _load() -> Any:
    import pyvips

    logging.getLogger("pyvips").setLevel(logging.CRITICAL)  # it would pass on what libvips says of each bad file
    pyvips.block_untrusted_set(True)
    pyvips.operation_block_set("VipsForeignLoad", True)
    for loader in LOADERS:
        pyvips.operation_block_set(f"VipsForeignLoad{loader}", False)
    pyvips.cache_set_max(0)
    pyvips.concurrency_set(1)  # the workers are the parallelism
    return pyvips


def resize(data: bytes, probe: Probe, target: Target) -> bytes:
    """Decode, turn upright, convert, resize and encode. Raises CorruptMedia."""
    try:
        header = _checked_header(data, probe)
        tagged = not probe.srgb and header.get_typeof("icc-profile-data") != 0
        stored = _stored(target.size, probe)
        image = vips().Image.thumbnail_buffer(
            data,
            stored.width,
            height=stored.height,
            size="force",  # the planned size is exact; its ratio is the picture's up to alignment
            no_rotate=True,  # libvips may read another orientation than the plan rests on
            option_string=STRICT,
            # Asked for without need, the conversion from sRGB to sRGB takes longer than all the rest.
            **({"export_profile": "srgb"} if tagged else {}),
        )
        return _encode(_turned(_on_white(image), probe.orientation), target)
    except vips().Error:
        raise CorruptMedia("it is cut short or damaged") from None


def verify(data: bytes, probe: Probe) -> None:
    """Decode a picture that will be passed as it is. Raises CorruptMedia."""
    try:
        _checked_header(data, probe)
        vips().Image.new_from_buffer(data, STRICT, access="sequential").avg()
    except vips().Error:
        raise CorruptMedia("it is cut short or damaged") from None


def _checked_header(data: bytes, probe: Probe) -> "pyvips.Image":
    """What the decoder reads in the headers.

    The plan rests on the probe's size; a file that tells the decoder another one is not to be trusted.
    """
    image = vips().Image.new_from_buffer(data, "")
    if _stored(probe.size, probe) != (image.width, image.height):
        raise CorruptMedia("its headers disagree about its size")
    return image


def _stored(size: Size, probe: Probe) -> Size:
    """The size, in the file, of what has this size upright."""
    return size.turned() if probe.orientation >= 5 else size


def _turned(image: "pyvips.Image", orientation: int) -> "pyvips.Image":
    """Upright, by the orientations of Exif 2.3, 4.6.4."""
    if orientation >= 3:
        image = image.copy_memory()  # a sequential image cannot be read out of order
    match orientation:
        case 2:
            return image.fliphor()
        case 3:
            return image.rot180()
        case 4:
            return image.flipver()
        case 5:
            return image.rot90().fliphor()
        case 6:
            return image.rot90()
        case 7:
            return image.rot270().fliphor()
        case 8:
            return image.rot270()
        case _:
            return image


def _on_white(image: "pyvips.Image") -> "pyvips.Image":
    if image.hasalpha():
        image = image.flatten(background=255)
    return image.colourspace("b-w" if image.bands == 1 else "srgb").cast("uchar")


def _encode(image: "pyvips.Image", target: Target) -> bytes:
    encoded: bytes
    match target.media_type:
        case "image/jpeg":
            subsample = "on" if target.chroma == "4:2:0" else "off"
            encoded = image.jpegsave_buffer(Q=target.quality, subsample_mode=subsample, keep="none")
        case "image/webp":
            encoded = image.webpsave_buffer(Q=target.quality, keep="none")
        case _:
            encoded = image.pngsave_buffer(keep="none")
    return encoded
