"""
Picture: the pixels of one picture, by libvips (pyvips, imported at first use).

What comes out is what a person would have seen: upright, in sRGB, eight bits, on the background where it was
transparent, without metadata. The same input gives the same bytes.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vlm_edge.errors import CorruptMedia, MediaTooLarge
from vlm_edge.geometry import Size
from vlm_edge.media.probe import Probe
from vlm_edge.media.profile import Chroma, Kernel
from vlm_edge.media.raster import Raster

if TYPE_CHECKING:
    import pyvips

LOADERS = ("Jpeg", "Png", "Webp", "Nsgif", "Tiff", "Heif")
# What they read; of a HEIF file only AVIF.
MEDIA_TYPES = frozenset(f"image/{kind}" for kind in ("jpeg", "png", "webp", "gif", "tiff", "avif"))

# Quality is lowered by so much at a time, and no further, for a file that has to be smaller.
QUALITY_STEP, LEAST_QUALITY = 5, 10

_loading = Lock()

# thumbnail_buffer takes `fail_on` and ignores it (libvips 8.18); the loader's own options are honoured.
STRICT = "fail_on=error"


class Encoding(msgspec.Struct, frozen=True, kw_only=True):
    """How a picture becomes a file.

    media_types: the one to write; or JPEG and PNG, of which PNG is taken where it has at most `lossless_worth` times
    the bytes. max_bytes: of the file.
    """

    media_types: tuple[str, ...]
    quality: int
    chroma: Chroma
    lossless_worth: float = 1.0
    max_bytes: int | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of a picture. canvas: the size of what is sent, with the picture in its upper left corner."""

    size: Size
    canvas: Size
    encoding: Encoding
    background: tuple[int, int, int] = (255, 255, 255)
    kernel: Kernel = "lanczos3"
    exact: bool = False  # as the model's own processor would resize it


class SentFile(NamedTuple):
    """A picture as it is sent."""

    data: bytes
    media_type: str


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


@contextmanager
def _damage_named() -> Iterator[None]:
    """What libvips says of bad files is for its developers, and may be about another file."""
    try:
        yield
    except vips().Error:
        raise CorruptMedia("it is cut short or damaged") from None


def resize(data: bytes, probe: Probe, target: Target) -> SentFile:
    """Decode, turn upright, convert, resize and encode. Raises CorruptMedia, and MediaTooLarge for its file."""
    with _damage_named():
        header = _checked_header(data, probe)
        stored = _stored(target.size, probe)
        shrinks = stored.width <= header.width and stored.height <= header.height
        if shrinks and target.kernel == "lanczos3" and probe.numbers == "unsigned":
            image = _in_colours(data, probe, stored, tagged=_is_tagged(header, probe))
        else:
            streamed = shrinks and probe.numbers == "unsigned"
            image = _resized(_loaded(data, probe, "sequential" if streamed else "random"), stored, target.kernel)
        return _finished(_turned(image, probe.orientation), target)


def resize_raster(raster: Raster, target: Target) -> SentFile:
    """Convert, resize and encode what another library has decoded. Raises MediaTooLarge for its file."""
    with _damage_named():
        image = _image_of(raster)
        if raster.size != target.size or raster.profile:
            image = _resized(image, target.size, target.kernel)
        return _finished(image, target)


def verify(data: bytes, probe: Probe) -> None:
    """Decode a picture that will be passed as it is. Raises CorruptMedia."""
    with _damage_named():
        _checked_header(data, probe)
        vips().Image.new_from_buffer(data, f"[{STRICT}]", access="sequential").avg()


def _checked_header(data: bytes, probe: Probe) -> "pyvips.Image":
    """What the decoder reads in the headers.

    The plan rests on the probe's size; a file that tells the decoder another one is not to be trusted.
    """
    image = vips().Image.new_from_buffer(data, f"[{_page(probe)}]")
    if _stored(probe.size, probe) != (image.width, image.height):
        raise CorruptMedia("its headers disagree about its size")
    return image


def _page(probe: Probe) -> str:
    return f"page={probe.page}" if probe.page else ""


def _options(probe: Probe) -> str:
    return f"[{','.join(filter(None, (_page(probe), STRICT)))}]"


def _is_tagged(header: "pyvips.Image", probe: Probe) -> bool:
    """Whether an ICC profile says what its colours are, and says something else than sRGB."""
    return not probe.srgb and header.get_typeof("icc-profile-data") != 0


def _stored(size: Size, probe: Probe) -> Size:
    """The size, in the file, of what has this size upright."""
    return size.turned() if probe.orientation >= 5 else size


def _in_colours(data: bytes, probe: Probe, size: Size, *, tagged: bool) -> "pyvips.Image":
    """A profile that cannot be followed counts as none: bad metadata never fails a good picture."""
    try:
        return _thumbnail(data, probe, size, tagged=tagged)
    except vips().Error:
        if not tagged:
            raise
        return _thumbnail(data, probe, size, tagged=False)


def _thumbnail(data: bytes, probe: Probe, size: Size, *, tagged: bool) -> "pyvips.Image":
    """libvips' fastest road: a JPEG is shrunk while it is decoded.

    Of others libvips would take what has nearly the size: the next page of a TIFF, the preview in an AVIF, and of a
    WebP what libwebp blurs to it.
    """
    options = {
        "height": size.height,
        "size": "force",  # the planned size is exact; its ratio is the picture's up to alignment
        "no_rotate": True,  # libvips may read another orientation than the plan rests on
        # Asked for without need, the conversion from sRGB to sRGB takes longer than all the rest.
        **({"export_profile": "srgb"} if tagged else {}),
    }
    if probe.media_type == "image/jpeg":
        return vips().Image.thumbnail_buffer(data, size.width, option_string=_options(probe), **options)
    return _loaded(data, probe, "sequential").thumbnail_image(size.width, **options)


def _loaded(data: bytes, probe: Probe, access: str) -> "pyvips.Image":
    image = vips().Image.new_from_buffer(data, _options(probe), access=access)
    return image if probe.numbers == "unsigned" else _as_colours(image)


def _as_colours(image: "pyvips.Image") -> "pyvips.Image":
    """Signed, wide or floating-point numbers, which are no colours yet.

    Inks that are called signed are not. Three numbers from 0 to 1 are linear light, as libvips takes them. Grey is
    taken as it is from 0 to 1 or 0 to 255. Any other range is stretched to what can be seen.
    """
    if image.interpretation == "cmyk":
        return (image < 0).ifthenelse(image + 256, image).cast("uchar").copy(interpretation="cmyk")
    image = ((image - image) == 0).ifthenelse(image, 0)  # but for infinity and what is no number
    low, high = image.min(), image.max()
    if image.interpretation == "xyz" or (image.interpretation == "scrgb" and low >= 0 and high <= 1):
        return image.colourspace("srgb")
    if low >= 0 and high <= 1:
        image = image * 255
    elif low < 0 or high > 255:
        image = (image - low) * (255 / ((high - low) or 1))
    return image.rint().cast("uchar").copy(interpretation="srgb" if image.bands > 2 else "b-w")


def _image_of(raster: Raster) -> "pyvips.Image":
    pixels = vips().Image.new_from_memory(
        raster.data, *raster.size, raster.bands, "uchar" if raster.bits == 8 else "ushort"
    )
    kinds = ("b-w", "srgb") if raster.bits == 8 else ("grey16", "rgb16")
    image = pixels.copy(interpretation=kinds[raster.bands > 2])
    if raster.profile:
        image.set_type(vips().GValue.blob_type, "icc-profile-data", raster.profile)
    return image


def _resized(image: "pyvips.Image", size: Size, kernel: Kernel) -> "pyvips.Image":
    """By any kernel, transparent pixels weighing nothing."""
    image = _in_srgb(image)
    if (image.width, image.height) == size:
        return image
    clear = image.hasalpha()
    image = image.premultiply() if clear else image
    scales = size.width / image.width, size.height / image.height
    image = (
        _scaled(image, size, scales) if max(scales) > 1 else image.resize(scales[0], vscale=scales[1], kernel=kernel)
    )
    image = image.unpremultiply() if clear else image
    return image.rint().cast("uchar") if clear else image


def _scaled(image: "pyvips.Image", size: Size, scales: tuple[float, float]) -> "pyvips.Image":
    """By nearly nothing, upwards as alignment does. libvips' resize would shift what it enlarges by half a pixel."""
    return image.affine(
        [scales[0], 0, 0, scales[1]],
        oarea=[0, 0, *size],
        idx=0.5,
        idy=0.5,
        odx=-0.5,
        ody=-0.5,
        extend="copy",
        premultiplied=True,
        interpolate=vips().Interpolate.new("bicubic"),
    )


def _in_srgb(image: "pyvips.Image") -> "pyvips.Image":
    """In eight bits. A profile that does not fit the picture counts as none."""
    if image.get_typeof("icc-profile-data"):
        try:
            image = image.icc_transform("srgb", embedded=True, intent="relative")
        except vips().Error:
            pass
    return image.colourspace("b-w" if image.bands < 3 else "srgb").cast("uchar")


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


def _finished(image: "pyvips.Image", target: Target) -> SentFile:
    return _encoded(_on_canvas(_flat(image, target.background), target), target.encoding)


def _flat(image: "pyvips.Image", background: tuple[int, int, int]) -> "pyvips.Image":
    """Eight bits without transparency; grey stays grey on a grey background."""
    image = image.colourspace("b-w" if image.bands < 3 else "srgb").cast("uchar")
    if not image.hasalpha():
        return image
    if image.bands == 2 and len(set(background)) > 1:
        image = image.colourspace("srgb")
    return image.flatten(background=list(background[: image.bands - 1]))


def _on_canvas(image: "pyvips.Image", target: Target) -> "pyvips.Image":
    """With a margin to the right or below, where the planned size has one."""
    if target.canvas == target.size:
        return image
    if image.bands == 1 and len(set(target.background)) > 1:
        image = image.colourspace("srgb")
    colour = list(target.background[: image.bands])
    return image.embed(0, 0, *target.canvas, extend="background", background=colour)


def _encoded(image: "pyvips.Image", encoding: Encoding) -> SentFile:
    if encoding.media_types in (("image/jpeg",), ("image/webp",)) and not encoding.max_bytes:
        return _written(image, encoding.media_types[0], encoding, encoding.quality)
    image = image.copy_memory()  # a sequential image is read but once
    if "image/png" in encoding.media_types and _is_grey(image):
        image = image[0].copy(interpretation="b-w")
    file = min(_choices(image, encoding), key=lambda one: _weight(one, encoding))
    return _small(image, file, encoding)


def _is_grey(image: "pyvips.Image") -> bool:
    """Whether colours were to be had, and none is there: so scanners store pages, in twice the bytes."""
    if image.bands < 3:
        return False
    red, green, blue = image.bandsplit()
    return not ((red != green) | (green != blue)).max()


def _choices(image: "pyvips.Image", encoding: Encoding) -> list[SentFile]:
    return [_written(image, media_type, encoding, encoding.quality) for media_type in encoding.media_types]


def _weight(file: SentFile, encoding: Encoding) -> float:
    return len(file.data) / (encoding.lossless_worth if file.media_type == "image/png" else 1)


def _small(image: "pyvips.Image", file: SentFile, encoding: Encoding) -> SentFile:
    """The file, or of those of lower quality the first that is small enough."""
    allowed = encoding.max_bytes
    if allowed is None or len(file.data) <= allowed:
        return file
    for media_type in encoding.media_types:
        if media_type != "image/png":
            file = _lowered(image, media_type, encoding, allowed)
    if len(file.data) > allowed:
        raise MediaTooLarge("bytes as it would be sent", len(file.data), allowed)
    return file


def _lowered(image: "pyvips.Image", media_type: str, encoding: Encoding, allowed: int) -> SentFile:
    """Of the highest quality that is small enough, found by halves; of the least where none is."""
    qualities = range(min(encoding.quality, LEAST_QUALITY), encoding.quality + 1, QUALITY_STEP)
    best = _written(image, media_type, encoding, qualities[0])
    low, high = 0, len(qualities)
    while high - low > 1:
        middle = (low + high) // 2
        file = _written(image, media_type, encoding, qualities[middle])
        low, high = (middle, high) if len(file.data) <= allowed else (low, middle)
        best = file if low == middle else best
    return best


def _written(image: "pyvips.Image", media_type: str, encoding: Encoding, quality: int) -> SentFile:
    match media_type:
        case "image/jpeg":
            subsample = "on" if encoding.chroma == "4:2:0" else "off"
            data = image.jpegsave_buffer(Q=quality, subsample_mode=subsample, keep="none")
        case "image/webp":
            data = image.webpsave_buffer(Q=quality, keep="none")
        case _:
            data = image.pngsave_buffer(keep="none")
    return SentFile(data, media_type)
