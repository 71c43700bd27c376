"""
Pillow: what libvips' wheel does not read, and the engine that resizes as the models' own processors do.

Works with Pillow and with Pillow-SIMD, HEIC by pillow-heif and JPEG XL by pillow-jxl; all are imported at first use.
Bad files are known to take their decoders long, or down: `decode` and `resize` belong into a process of their own.
"""

import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple, cast

from vlm_edge.errors import CorruptMedia, EdgeError, MissingDecoder
from vlm_edge.geometry import Size
from vlm_edge.media import bicubic
from vlm_edge.media.probe import Probe
from vlm_edge.media.raster import Raster

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

MAX_FRAMES = 100_000

# Level 6 takes five times as long for a file that is a tenth smaller.
PNG_LEVEL = 2
BICUBIC = 3  # as Pillow numbers its kernels
STRIPE = 256  # rows that go through numpy at once

DAMAGED = "it is cut short or damaged"
DISAGREES = "its headers disagree about its size"

_TEXT, _PROFILE = re.compile(b"(?:tE|zT|iT)Xt"), re.compile(b"iCCP")

Colour = tuple[int, int, int]


class Loader(NamedTuple):
    """The one class of Pillow that reads a format; `feature`: what a Pillow may be built without."""

    what: str
    name: str
    feature: str = ""


LOADERS = {
    "image/avif": Loader("an AVIF picture", "Avif", "avif"),
    "image/bmp": Loader("a BMP picture", "Bmp"),
    "image/gif": Loader("a GIF picture", "Gif"),
    "image/jp2": Loader("a JPEG 2000 picture", "Jpeg2K", "jpg_2000"),
    "image/jpeg": Loader("a JPEG picture", "Jpeg"),
    "image/png": Loader("a PNG picture", "Png"),
    "image/tiff": Loader("a TIFF picture", "Tiff", "libtiff"),
    "image/webp": Loader("a WebP picture", "WebP", "webp"),
    "image/x-icon": Loader("an icon", "Ico"),
    "image/x-portable-anymap": Loader("a PNM picture", "Ppm"),
}


class Plugin(NamedTuple):
    """A library of its own, and the extra that brings it."""

    what: str
    module: str
    extra: str


PLUGINS = {
    "image/heic": Plugin("a HEIC picture", "pillow_heif", "heic"),
    "image/jxl": Plugin("a JPEG XL picture", "pillow_jxl", "jxl"),
}


def need(media_type: str) -> None:
    """Raises MissingDecoder where the library for a format is not installed."""
    if plugin := PLUGINS.get(media_type):
        if find_spec(plugin.module) is None:
            raise MissingDecoder(plugin.what, f"have its operator install 'vlm-edge[{plugin.extra}]'")
        return
    from PIL import features

    loader = LOADERS[media_type]
    if loader.feature and not features.check(loader.feature):
        raise MissingDecoder(loader.what, "have its operator install a Pillow that was built with its library")


def decode(data: bytes, probe: Probe) -> Raster:
    """The pixels of a picture, or of frame `probe.page` of an animation, upright. Raises CorruptMedia."""
    with _reading(probe.media_type):
        if read := READERS.get(probe.media_type):
            return _checked(read(data, probe.size), probe)
        return _checked(_raster(_loaded(data, probe)), probe)


def frames(data: bytes, media_type: str) -> int:
    """The number of frames of an animation, none of which is decoded; from MAX_FRAMES on they are not counted."""
    with _reading(media_type):
        if media_type == "image/gif":
            return _gif_frames(data)
        if media_type in READERS:  # neither tells of frames
            return 1
        image = _opened(data, media_type)
        found: int = getattr(image, "n_frames", 1)
        if media_type == "image/png":  # its header may promise any number
            found = max(1, min(found - _hidden(image), data.count(b"fcTL")))
        return min(found, MAX_FRAMES)


def resize(data: bytes, probe: Probe, size: Size, background: Colour, media_type: str) -> bytes:
    """A lossless file of what a model's own processor would make of this picture.

    Such processors run on torchvision (see bicubic.py), which Pillow-SIMD equals. No colour management, as in vLLM.
    Sixteen bits of grey become the upper eight, where vLLM makes most of it white.
    """
    with _reading(probe.media_type):
        image = _rgb(_any(data, probe), background)
        if image.size != size:
            image = resampled(image, size)
        return _encoded(image, media_type)


# What goes wrong


@contextmanager
def _reading(media_type: str) -> Iterator[None]:
    """Whatever a library raises, warns or logs about a bad file is for its developers."""
    need(media_type)
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    # Not `catch_warnings`, which sets back what other threads have set.
    warnings.filterwarnings("ignore", module=r"(PIL|pillow_heif|pillow_jxl|vlm_edge\.media\.pillow)(\.|$)")
    try:
        yield
    except EdgeError:
        raise
    except Exception:  # noqa: BLE001 - there is hardly a kind that none of them raises
        raise CorruptMedia(DAMAGED) from None


def _checked(raster: Raster, probe: Probe) -> Raster:
    if raster.size != probe.size:
        raise CorruptMedia(DISAGREES)
    return raster


# Pillow


def _opened(data: bytes, media_type: str) -> "ImageFile":
    """By the one class that reads this format. `Image.open` would try others, and has a bound of its own on pixels."""
    data = _without(_TEXT, data) if media_type == "image/png" else data
    name = LOADERS[media_type].name
    kind = getattr(import_module(f"PIL.{name}ImagePlugin"), f"{name}ImageFile")
    image: ImageFile = kind(BytesIO(data))
    return image


def _without(kinds: re.Pattern[bytes], data: bytes) -> bytes:
    """A PNG without chunks of these kinds, for which Pillow refuses it if there is much in them."""
    if not kinds.search(data):
        return data
    kept, at = [data[:8]], 8
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4])
        if not kinds.fullmatch(data[at + 4 : at + 8]):
            kept.append(data[at:end])
        at = end
    return b"".join(kept)


def _loaded(data: bytes, probe: Probe) -> "Image":
    image = _opened(data, probe.media_type)
    if probe.page:
        image.seek(probe.page + _hidden(image))
    orientation = _orientation(image, probe)
    if image.size != _stored(probe.size, orientation):  # before memory is taken for it
        raise CorruptMedia(DISAGREES)
    image.load()
    return _upright(image, orientation)


def _hidden(image: "ImageFile") -> bool:
    """Whether the first picture of an animated PNG is for those who do not know animations."""
    return bool(getattr(image, "is_animated", False) and getattr(image, "default_image", False))


def _orientation(image: "ImageFile", probe: Probe) -> int:
    """By which its loader leaves it turned. That of TIFF turns it; that of AVIF tells its container's turns as Exif."""
    if probe.media_type == "image/tiff":
        return 1
    if probe.media_type != "image/avif":
        return probe.orientation
    from PIL.Image import Exif

    exif = Exif()
    exif.load(image.info.get("exif", b""))
    orientation: int = exif.get(0x0112, 1)
    return orientation


def _stored(size: Size, orientation: int) -> Size:
    """The size, in the file, of what has this size upright."""
    return size.turned() if orientation >= 5 else size


def _upright(image: "Image", orientation: int) -> "Image":
    """By the orientations of Exif 2.3, 4.6.4."""
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return image.transpose(turns[orientation]) if orientation in turns else image


def _gif_frames(data: bytes) -> int:
    """GIF89a, 18 to 27: blocks, each with its sub-blocks; those that begin with a comma are frames."""
    found, at = 0, 13 + _table_bytes(data[10])
    while found < MAX_FRAMES and at + 10 < len(data):
        kind = data[at]
        if kind == 0x3B:
            break
        if kind == 0x2C:
            found += 1
            at = _behind_blocks(data, at + 11 + _table_bytes(data[at + 9]))
        else:
            at = _behind_blocks(data, at + 2) if kind == 0x21 else at + 1
    return max(1, found)


def _table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _behind_blocks(data: bytes, at: int) -> int:
    while at < len(data) and data[at]:
        at += data[at] + 1
    return at + 1


# Libraries of their own


def _heic(data: bytes, size: Size) -> Raster:
    """Turned, mirrored and cut by libheif as the container says; what its Exif says of that is no more than a note."""
    import pillow_heif

    file = pillow_heif.open_heif(data)
    image = file[file.primary_index]
    if image.size != size:  # before memory is taken for it
        raise CorruptMedia(DISAGREES)
    profile = cast("bytes | None", image.info.get("icc_profile"))
    return _raster_of(image.mode, Size(*image.size), bytes(image.data), profile or b"")


def _jxl(data: bytes, _: Size) -> Raster:
    """Turned by libjxl."""
    import pillow_jxl

    # What was made of a JPEG would be given back as that JPEG, unturned.
    _, info, pixels, profile, _ = pillow_jxl.Decoder(num_threads=1)(_without_jpeg(data))
    return _raster_of(info.mode, Size(info.width, info.height), pixels, profile or b"")


def _without_jpeg(data: bytes) -> bytes:
    """A JPEG XL file without what it takes to make a JPEG of it: the box `jbrd` (ISO 18181-2)."""
    at = 0
    while data[4:8] == b"JXL " and 0 <= at <= len(data) - 16:
        length, kind = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        if kind == b"jbrd":
            return data[: at + 4] + b"free" + data[at + 8 :]
        at = at + (int.from_bytes(data[at + 8 : at + 16]) if length == 1 else length) if length else -1
    return data


READERS: dict[str, Callable[[bytes, Size], Raster]] = {"image/heic": _heic, "image/jxl": _jxl}


# Pixels

BANDS = {"L": 1, "I": 1, "LA": 2, "RGB": 3, "RGBA": 4}


def _raster_of(mode: str, size: Size, pixels: bytes, profile: bytes) -> Raster:
    """Of a decoder's own pixels; only those that a Raster cannot hold go through an image."""
    from PIL import Image

    bands = BANDS.get(mode.partition(";")[0])
    for bits in (8, 16):
        if bands and len(pixels) == size.pixels * bands * bits // 8:
            return Raster(size, bands, pixels, bits, profile)
    image = Image.frombytes(mode, size, pixels)
    image.info["icc_profile"] = profile
    return _raster(image)


def _raster(image: "Image") -> Raster:
    plain = _plain(image)
    kept = plain.mode[0] == image.mode[0] or (plain.mode[:3], image.mode[0]) == ("RGB", "P")
    profile = image.info.get("icc_profile") if kept else b""  # else it speaks of colours that are gone
    size, deep = Size(*plain.size), plain.mode == "I;16"
    pixels = plain.tobytes("raw", "I;16N") if deep else plain.tobytes()
    return Raster(size, BANDS[plain.mode.partition(";")[0]], pixels, 16 if deep else 8, profile or b"")


def _plain(image: "Image") -> "Image":
    """In one of the modes of BANDS, without loss where there is one that holds it."""
    if image.mode == "F":
        image = _eight_bits_of(image)
    elif image.mode.startswith("I"):
        return image if image.mode == "I;16" else image.convert("I").convert("I;16")
    if "transparency" in image.info or image.mode in ("PA", "La", "RGBa"):
        return image.convert("LA" if image.mode in ("1", "L", "La") else "RGBA")
    if image.mode == "1":
        return image.convert("L")
    return image if image.mode in BANDS else image.convert("RGB")


def _eight_bits_of(image: "Image") -> "Image":
    """Floating-point grey: as it is from 0 to 1 or from 0 to 255, and any other range stretched to what can be seen."""
    low, high = cast("tuple[float, float]", image.getextrema())
    if low >= 0 and high <= 255:
        low, high = 0, 1 if high <= 1 else 255
    scale = 255 / ((high - low) or 1)
    return image.point(lambda value: value * scale + (0.5 - low * scale)).convert("L")


# The engine


def _any(data: bytes, probe: Probe) -> "Image":
    from PIL import Image

    if probe.media_type not in READERS:
        return _loaded(_without(_PROFILE, data) if probe.media_type == "image/png" else data, probe)
    raster = _checked(READERS[probe.media_type](data, probe.size), probe)
    if raster.bits == 16:
        raster = _upper_bytes(raster)
    return Image.frombytes(
        next(mode for mode, bands in BANDS.items() if bands == raster.bands), raster.size, raster.data
    )


def _upper_bytes(raster: Raster) -> Raster:
    start = 1 if sys.byteorder == "little" else 0
    return Raster(raster.size, raster.bands, raster.data[start::2])


def _rgb(image: "Image", background: Colour) -> "Image":
    """As vLLM's `convert_image_mode` and `rgba_to_rgb`, but for numbers of more than eight bits."""
    from PIL import Image

    if image.mode == "RGB":
        return image
    if image.mode[0] in "IF":
        image = _grey(image)
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        image = Image.new("RGB", clear.size, background)
        image.paste(clear, mask=clear.getchannel("A"))
    return image.convert("RGB")


def _grey(image: "Image") -> "Image":
    from PIL import Image

    if image.mode == "F":
        return _eight_bits_of(image)
    return Image.frombytes("L", image.size, _plain(image).tobytes()[1::2])


def resampled(image: "Image", size: Size) -> "Image":
    """An RGB picture in another size, as torchvision resizes it."""
    if _has_models_kernel():
        return _natively(image, size)
    import numpy as np
    from PIL import Image

    tops = range(0, image.height, STRIPE)
    stripes = (image.crop((0, top, image.width, min(top + STRIPE, image.height))) for top in tops)
    return Image.fromarray(bicubic.resized(map(np.asarray, stripes), size))


def _natively(image: "Image", size: Size) -> "Image":
    """The width first, always: from release 13 on Pillow begins with the height where that saves work."""
    return image.resize((size.width, image.height), BICUBIC).resize(size, BICUBIC)


@cache
def _has_models_kernel() -> bool:
    """Whether this Pillow resizes as torchvision does: Pillow-SIMD does, at ten times the speed of numpy."""
    import numpy as np
    from PIL import Image

    values = np.random.default_rng(0).integers(0, 256, (97, 101, 3), np.uint8)
    native = _natively(Image.fromarray(values), Size(41, 43))
    return bool((np.asarray(native) == bicubic.resized([values], Size(41, 43))).all())


def _encoded(image: "Image", media_type: str) -> bytes:
    from PIL import Image

    Image.init()
    image.info = {}  # else a profile, or what else came with it, goes into the file
    file = BytesIO()
    if media_type == "image/webp":
        image.save(file, "WEBP", lossless=True, quality=0, method=0)
    else:
        image.save(file, "PNG", compress_level=PNG_LEVEL)
    return file.getvalue()
