"""Pillow: other decoders say what is in a file, or it is of known colours; torchvision says how models resize.

Passes with Pillow and with Pillow-SIMD; what the latter is built without is skipped there.
"""

import hashlib
import logging
import struct
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import cv2
import numpy as np
import pytest
import pyvips
from PIL import Image, ImageOps, features

from tests.media.files import ORIENTATIONS, chunk, deep_png, exif, noise, png_with, quadrants, wide_profile
from tests.samples import PHONE, ROOT, encoded, opened, picture
from vlm_edge.errors import CorruptMedia, MissingDecoder
from vlm_edge.geometry import Size
from vlm_edge.media import bicubic
from vlm_edge.media.pillow import LOADERS, MAX_FRAMES, decode, frames, need, resize
from vlm_edge.media.probe import Probe
from vlm_edge.media.raster import Raster

WHITE = (255, 255, 255)
COLOURS = ("red", "blue", "yellow")
MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}

KINDS = {
    "image/avif": "AVIF",
    "image/bmp": "BMP",
    "image/gif": "GIF",
    "image/heic": "HEIF",
    "image/jp2": "JPEG2000",
    "image/jpeg": "JPEG",
    "image/jxl": "JXL",
    "image/png": "PNG",
    "image/tiff": "TIFF",
    "image/webp": "WEBP",
    "image/x-icon": "ICO",
    "image/x-portable-anymap": "PPM",
}


def readable(media_type: str) -> bool:
    loader = LOADERS.get(media_type)
    return not loader or not loader.feature or bool(features.check(loader.feature))


def needs(*media_types: str) -> pytest.MarkDecorator:
    missing = [one for one in media_types if not readable(one)]
    return pytest.mark.skipif(bool(missing), reason=f"this Pillow was built without {missing}")


def each(media_types: tuple[str, ...]) -> list[Any]:
    return [pytest.param(one, marks=needs(one)) for one in media_types]


def probe_of(data: bytes, media_type: str, size: tuple[int, int], **fields: Any) -> Probe:
    return Probe(media_type=media_type, size=Size(*size), file_bytes=len(data), **fields)


def decoded(data: bytes, media_type: str, size: tuple[int, int], **fields: Any) -> Image.Image:
    raster = decode(data, probe_of(data, media_type, size, **fields))
    assert raster.bits == 8
    return Image.frombytes(MODES[raster.bands], raster.size, raster.data)


def exact(
    data: bytes, media_type: str, before: tuple[int, int], size: tuple[int, int] | None = None, **fields: Any
) -> Image.Image:
    """What the engine makes of a file; in its own size unless told."""
    made = resize(data, probe_of(data, media_type, before, **fields), Size(*(size or before)), WHITE, "image/png")
    return opened(made)


def written(image: Image.Image, media_type: str, **options: Any) -> bytes:
    if media_type == "image/heic":
        return heic(image, **options)
    if media_type == "image/jxl":
        import pillow_jxl  # noqa: F401 - it makes itself known to Pillow
    return encoded(image, KINDS[media_type], **options)


def heic(image: Image.Image, **options: Any) -> bytes:
    import io

    import pillow_heif

    file = io.BytesIO()
    pillow_heif.from_pillow(image).save(file, **{"quality": -1, "chroma": 444, **options})
    return file.getvalue()


def by_opencv(data: bytes) -> Image.Image:
    values = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert values is not None
    return Image.fromarray(cv2.cvtColor(values, cv2.COLOR_BGR2RGB))


def farthest(one: Image.Image, other: Image.Image) -> int:
    assert (one.mode, one.size) == (other.mode, other.size)
    return int(np.abs(np.asarray(one, np.int16) - np.asarray(other, np.int16)).max())


def off(colour: Any, other: Any) -> float:
    return float(np.abs(np.subtract(colour, other)).max())


def mean(image: Image.Image) -> list[float]:
    return [float(value) for value in np.asarray(image.convert("RGB")).reshape(-1, 3).mean(axis=0)]


# Formats

LOSSLESS = ("image/bmp", "image/png", "image/jp2", "image/jxl", "image/x-portable-anymap", "image/tiff")


@pytest.mark.parametrize("media_type", each(LOSSLESS))
def test_a_lossless_picture_is_decoded_to_the_pixels_it_was_made_of(media_type: str) -> None:
    image = noise(61, 43)
    options = {"image/jp2": {"irreversible": False}, "image/jxl": {"lossless": True}}.get(media_type, {})
    data = written(image, media_type, **options)
    assert decoded(data, media_type, image.size).tobytes() == image.tobytes()


@pytest.mark.parametrize("media_type", each(("image/bmp", "image/x-portable-anymap", "image/jp2", "image/png")))
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_another_decoder_reads_the_same(media_type: str, mode: str) -> None:
    data = written(noise(61, 43, mode), media_type)
    assert decoded(data, media_type, (61, 43)).convert("RGB").tobytes() == by_opencv(data).tobytes()


def test_the_largest_picture_of_an_icon_is_taken() -> None:
    large, small = Image.new("RGB", (48, 48), "red"), Image.new("RGB", (16, 16), "blue")
    data = encoded(large, "ICO", sizes=[(48, 48), (16, 16)], append_images=[small])
    assert decoded(data, "image/x-icon", (48, 48)).convert("RGB").tobytes() == large.tobytes()


@pytest.mark.parametrize("media_type", ["image/heic", "image/jxl"])
def test_transparency_is_kept(media_type: str) -> None:
    image = Image.new("RGBA", (64, 64), (255, 0, 0, 128))
    found = decoded(
        written(image, media_type, **{"lossless": True} if "jxl" in media_type else {}), media_type, (64, 64)
    )
    assert farthest(found, image) <= 2


def test_a_transparent_colour_of_a_palette_becomes_alpha() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    found = decoded(encoded(image, "PNG", transparency=1), "image/png", (2, 1))
    assert list(found.tobytes()) == [255, 0, 0, 255, 0, 0, 255, 0]


def test_one_bit_becomes_black_and_white() -> None:
    data = b"P4\n4 1\n" + bytes([0b01010000])
    assert decoded(data, "image/x-portable-anymap", (4, 1)).tobytes() == bytes([255, 0, 255, 0])


def test_sixteen_bits_of_grey_are_kept() -> None:
    data = b"P5\n3 1\n65535\n" + struct.pack(">3H", 0, 0x1234, 0xFFFF)
    raster = decode(data, probe_of(data, "image/x-portable-anymap", (3, 1)))
    assert (raster.bands, raster.bits) == (1, 16)
    assert struct.unpack("=3H", raster.data) == (0, 0x1234, 0xFFFF)


def test_a_colour_profile_is_handed_on() -> None:
    profile = wide_profile()
    data = heic(Image.new("RGB", (64, 64), "red"), icc_profile=profile)
    assert decode(data, probe_of(data, "image/heic", (64, 64))).profile == profile


def test_a_profile_of_colours_that_are_gone_is_not_handed_on() -> None:
    data = encoded(Image.new("CMYK", (8, 8)), "JPEG", icc_profile=b"of inks")
    raster = decode(data, probe_of(data, "image/jpeg", (8, 8)))
    assert (raster.bands, raster.profile) == (3, b"")


def test_a_large_heic_of_a_phone_is_read(corpus: Path) -> None:
    data = (corpus / "formats" / "iphone11pro_12mp.heic").read_bytes()
    raster = decode(data, probe_of(data, "image/heic", (3024, 4032)))
    assert (len(raster.data), raster.bands) == (3024 * 4032 * 3, 3)
    assert b"Display P3" in raster.profile.replace(b"\0", b"")


# Which way is up


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_heic_is_turned_once(orientation: int) -> None:
    """Written with both: the turn of the container, and Exif that tells of the same turn."""
    image = quadrants(96, 64)
    data, tag = (
        heic(image, exif=exif(orientation)),
        b"\x01\x12\x00\x03\x00\x00\x00\x01" + struct.pack(">H", orientation),
    )
    assert tag in data
    expected = turned_by_exif(image, orientation)
    assert farthest(decoded(data, "image/heic", expected.size), expected) <= 4


def test_a_heic_is_not_turned_by_exif_alone() -> None:
    image = quadrants(96, 64)
    data = heic(image, exif=exif(6))
    at = data.index(b"irot") + 4
    data = data[:at] + b"\0" + data[at + 1 :]
    assert farthest(decoded(data, "image/heic", (96, 64)), image) <= 4


@needs("image/avif")
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_an_avif_is_turned_once(orientation: int) -> None:
    image = quadrants(96, 64)
    expected = turned_by_exif(image, orientation)
    data = encoded(image, "AVIF", exif=exif(orientation), quality=100, subsampling="4:4:4")
    assert farthest(decoded(data, "image/avif", expected.size), expected) <= 4


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_jpeg_xl_that_was_a_jpeg_is_turned_once(orientation: int, tmp_path: Path) -> None:
    image, file = quadrants(96, 64), tmp_path / "turned.jpg"
    image.save(file, exif=exif(orientation), quality=100, subsampling=0)
    expected = turned_by_exif(image, orientation)
    with Image.open(file) as jpeg:
        data = written(jpeg, "image/jxl", lossless_jpeg=True)
    assert b"jbrd" in data
    assert farthest(decoded(data, "image/jxl", expected.size), expected) <= 4


def turned_by_exif(image: Image.Image, orientation: int) -> Image.Image:
    tagged = image.copy()
    tagged.getexif()[0x0112] = orientation
    return ImageOps.exif_transpose(tagged)


# Animations

ANIMATED = ("image/gif", "image/webp", "image/png", "image/avif")


def animation(media_type: str, size: tuple[int, int] = (40, 30)) -> bytes:
    images = [Image.new("RGB", size, colour) for colour in COLOURS]
    return encoded(images[0], KINDS[media_type], save_all=True, append_images=images[1:], duration=100)


@pytest.mark.parametrize("media_type", each(ANIMATED))
def test_each_frame_is_found_by_its_number(media_type: str) -> None:
    data = animation(media_type)
    assert frames(data, media_type) == 3
    for index, colour in enumerate(COLOURS):
        frame = decoded(data, media_type, (40, 30), page=index).convert("RGB")
        assert farthest(frame, Image.new("RGB", (40, 30), colour)) <= 4


@pytest.mark.parametrize("media_type", each(ANIMATED))
def test_a_frame_that_is_not_there_is_refused(media_type: str) -> None:
    data = animation(media_type)
    with pytest.raises(CorruptMedia, match="cut short or damaged"):
        decode(data, probe_of(data, media_type, (40, 30), page=3))


@pytest.mark.parametrize("media_type", each(("image/bmp", "image/png", "image/heic", "image/jxl")))
def test_a_still_picture_is_one_frame(media_type: str) -> None:
    assert frames(written(picture(64, 64), media_type), media_type) == 1


@pytest.mark.parametrize("media_type", each(("image/webp", "image/png")))
def test_frames_are_turned_too(media_type: str) -> None:
    images = [quadrants(96, 64), ImageOps.invert(quadrants(96, 64))]
    options = {"lossless": True} if media_type == "image/webp" else {}
    data = encoded(
        images[0], KINDS[media_type], save_all=True, append_images=images[1:], exif=exif(6), duration=100, **options
    )
    frame = decoded(data, media_type, (64, 96), page=1, orientation=6).convert("RGB")
    assert farthest(frame, images[1].transpose(Image.Transpose.ROTATE_270)) == 0


def test_frames_of_a_gif_are_put_together_as_another_decoder_does(corpus: Path) -> None:
    data = (corpus / "formats" / "anim_dispose_previous.gif").read_bytes()
    for index in range(frames(data, "image/gif")):
        other = pyvips.Image.gifload_buffer(data, page=index)
        found = decoded(data, "image/gif", (100, 100), page=index).convert("RGBA")
        assert on_white(found).tobytes() == on_white(Image.fromarray(other.colourspace("srgb").numpy())).tobytes()


def on_white(image: Image.Image) -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA")).convert("RGB")


def test_the_picture_for_those_who_know_no_animations_is_no_frame() -> None:
    images = [Image.new("RGB", (40, 30), colour) for colour in COLOURS]
    data = encoded(images[0], "PNG", save_all=True, append_images=images[1:], default_image=True, duration=100)
    assert frames(data, "image/png") == 2
    assert decoded(data, "image/png", (40, 30), page=1).getpixel((0, 0)) == (255, 255, 0)


def test_a_png_that_promises_two_thousand_million_frames_is_not_believed() -> None:
    data = animation("image/png")
    at = data.index(b"acTL")
    data = data[: at - 4] + chunk(b"acTL", struct.pack(">II", (1 << 31) - 1, 0)) + data[at + 16 :]
    assert frames(data, "image/png") == 3


def test_frames_are_counted_up_to_a_bound() -> None:
    still = encoded(Image.new("L", (1, 1)), "GIF")
    at = still.index(b",")
    frame = still[at:-1]
    assert frames(still[:at] + frame * 7 + b";", "image/gif") == 7
    assert frames(still[:at] + frame * (MAX_FRAMES + 9) + b";", "image/gif") == MAX_FRAMES


# Bad files

READ = tuple(KINDS)
REFUSALS = {
    f"the picture cannot be read: {why}; send the whole, undamaged file"
    for why in ("it is cut short or damaged", "its headers disagree about its size")
}


def sample(media_type: str) -> bytes:
    image = noise(64, 64)
    return written(image.convert("P") if media_type == "image/gif" else image, media_type)


@pytest.mark.parametrize("media_type", each(READ))
def test_half_a_file_is_refused(media_type: str) -> None:
    data = sample(media_type)
    decode(data, probe_of(data, media_type, (64, 64)))
    half = data[: len(data) // 2]
    for work in (decode, lambda data, probe: resize(data, probe, Size(28, 28), WHITE, "image/png")):
        with pytest.raises(CorruptMedia) as caught:
            work(half, probe_of(half, media_type, (64, 64)))
        assert (
            caught.value.message
            == "the picture cannot be read: it is cut short or damaged; send the whole, undamaged file"
        )


@pytest.mark.parametrize("media_type", each(READ))
def test_headers_that_disagree_about_the_size_are_refused(media_type: str) -> None:
    data = sample(media_type)
    with pytest.raises(CorruptMedia, match="its headers disagree about its size"):
        decode(data, probe_of(data, media_type, (64, 32)))


@pytest.mark.parametrize("media_type", each(READ))
def test_no_other_decoder_is_tried(media_type: str) -> None:
    other = "image/png" if media_type != "image/png" else "image/bmp"
    data = sample(other)
    with pytest.raises(CorruptMedia, match="cut short or damaged"):
        decode(data, probe_of(data, media_type, (64, 64)))


@pytest.mark.parametrize("media_type", each(tuple(set(READ) - {"image/tiff"})))  # libtiff prints by itself
def test_whatever_is_wrong_with_a_file_nothing_is_said_but_that(
    media_type: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    random, data, outcomes = Random(media_type), sample(media_type), set()
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(random.choice((1, 4, 30))):
            damaged[random.randrange(random.choice((80, len(damaged))))] = random.randrange(256)
        outcomes.add(outcome(bytes(damaged), media_type))
    assert len(outcomes & REFUSALS) > 0
    assert outcomes <= {"decoded", *REFUSALS}
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def outcome(data: bytes, media_type: str) -> str:
    try:
        raster = decode(data, probe_of(data, media_type, (64, 64)))
    except CorruptMedia as error:
        return error.message
    assert len(raster.data) == 64 * 64 * raster.bands * raster.bits // 8
    return "decoded"


@pytest.mark.parametrize("kind", [b"zTXt", b"iTXt", b"iCCP"])
def test_metadata_too_large_do_not_fail_a_good_picture(kind: bytes) -> None:
    import zlib

    packed = zlib.compress(bytes(80 << 20), 9)
    head = {b"zTXt": b"a\0\0", b"iTXt": b"a\0\1\0\0\0", b"iCCP": b"a\0\0"}[kind]
    image = noise(64, 64)
    data = png_with(encoded(image, "PNG"), kind, head + packed)
    assert exact(data, "image/png", (64, 64)).tobytes() == image.tobytes()


# What is not installed


@pytest.mark.parametrize(
    ("media_type", "module", "extra"), [("heic", "pillow_heif", "heic"), ("jxl", "pillow_jxl", "jxl")]
)
def test_a_format_whose_library_is_missing_is_named_with_its_extra(
    media_type: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDecoder, match=rf"vlm-edge\[{extra}\]"):
        need(f"image/{media_type}")


@pytest.mark.parametrize("media_type", [one for one, loader in LOADERS.items() if loader.feature])
def test_a_format_that_this_pillow_was_built_without_is_named(media_type: str) -> None:
    if readable(media_type):
        need(media_type)
        return
    with pytest.raises(MissingDecoder, match=f"found {LOADERS[media_type].what}"):
        decode(b"", probe_of(b"", media_type, (1, 1)))


def test_each_library_is_found_where_it_is_installed() -> None:
    for media_type in ("image/heic", "image/jxl", "image/bmp", "image/png"):
        need(media_type)


# The engine

# Pixels of `noise(301, 217)` as torchvision 0.28 resizes them: SHA-256, 16 digits of
# resize(tensor, (height, width), InterpolationMode.BICUBIC, antialias=True). tests/vllm/test_engine.py asks it anew.
TORCHVISION = {
    Size(56, 28): "ff6fbc3576195326",
    Size(140, 112): "19dd843d452e0344",
    Size(301, 84): "af0ed59993cf4d7a",
    Size(84, 217): "22431cef26a9a849",
    Size(560, 420): "2e5cb2339291b650",
    Size(1, 1): "d732297babadbbda",
}


def digest(pixels: bytes) -> str:
    return hashlib.sha256(pixels).hexdigest()[:16]


@pytest.mark.parametrize("size", TORCHVISION, ids=str)
def test_pixels_are_those_of_the_models_own_processor(size: Size) -> None:
    data = encoded(noise(301, 217), "PNG")
    assert digest(exact(data, "image/png", (301, 217), size).tobytes()) == TORCHVISION[size]


@pytest.mark.parametrize("size", TORCHVISION, ids=str)
def test_so_are_those_made_without_a_kernel_of_pillows_own(size: Size) -> None:
    rows = np.asarray(noise(301, 217))
    assert digest(bicubic.resized([rows[:100], rows[100:]], size).tobytes()) == TORCHVISION[size]


def test_a_picture_that_keeps_its_size_keeps_its_pixels() -> None:
    image = noise(61, 43)
    assert exact(encoded(image, "PNG"), "image/png", (61, 43)).tobytes() == image.tobytes()


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("media_type", each(("image/jpeg", "image/png", "image/tiff", "image/webp", "image/avif")))
def test_a_picture_is_upright_before_it_is_resized(media_type: str, orientation: int) -> None:
    image = quadrants(96, 64)
    expected = turned_by_exif(image, orientation)
    data = encoded(
        image, KINDS[media_type], exif=exif(orientation), **{"quality": 95} if "tiff" not in media_type else {}
    )
    told = {} if media_type == "image/avif" else {"orientation": orientation}
    found = exact(data, media_type, expected.size, (expected.width // 2, expected.height // 2), **told)
    for x, y in ((8, 8), (-8, 8), (8, -8), (-8, -8)):
        at, place = (x % found.width, y % found.height), (x % expected.width, y % expected.height)
        assert off(found.getpixel(at), expected.getpixel(place)) <= 12


@pytest.mark.parametrize(
    ("colour", "background", "seen"),
    [
        ((255, 0, 0, 128), WHITE, (255, 127, 127)),
        ((255, 0, 0, 128), (0, 0, 0), (128, 0, 0)),
        ((255, 0, 0, 0), (10, 20, 30), (10, 20, 30)),
        ((1, 2, 3, 255), WHITE, (1, 2, 3)),
    ],
)
def test_what_is_transparent_shows_the_background(
    colour: tuple[int, ...], background: tuple[int, int, int], seen: tuple[int, ...]
) -> None:
    data = encoded(Image.new("RGBA", (4, 4), colour), "PNG")
    made = opened(resize(data, probe_of(data, "image/png", (4, 4)), Size(4, 4), background, "image/png"))
    assert (made.mode, made.getpixel((0, 0))) == ("RGB", seen)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P"])
def test_all_kinds_of_grey_and_palettes_become_rgb(mode: str) -> None:
    made = exact(encoded(Image.new("L", (8, 8), 255).convert(mode), "PNG"), "image/png", (8, 8))
    assert (made.mode, made.getpixel((0, 0))) == ("RGB", WHITE)


def test_the_upper_eight_of_sixteen_bits_are_taken() -> None:
    data = deep_png([[(0x1234,), (0x00FF,), (0xFFFF,)]])
    made = exact(data, "image/png", (3, 1))
    assert [made.getpixel((x, 0))[0] for x in range(3)] == [0x12, 0, 0xFF]  # type: ignore[index]


def test_inks_become_light_without_a_profile() -> None:
    data = encoded(Image.new("CMYK", (16, 16), (255, 0, 0, 128)), "JPEG", quality=100)
    assert off(exact(data, "image/jpeg", (16, 16)).getpixel((8, 8)), (0, 127, 127)) <= 2


@needs("image/tiff")
def test_the_page_asked_for_is_taken() -> None:
    images = [Image.new("RGB", (20 + page, 10), colour) for page, colour in enumerate(COLOURS)]
    data = encoded(images[0], "TIFF", save_all=True, append_images=images[1:])
    assert mean(exact(data, "image/tiff", (22, 10), page=2)) == [255, 255, 0]


def test_colours_are_not_managed() -> None:
    data = encoded(Image.new("RGB", (8, 8), (10, 200, 30)), "PNG", icc_profile=wide_profile())
    assert exact(data, "image/png", (8, 8)).getpixel((0, 0)) == (10, 200, 30)


@pytest.mark.parametrize("media_type", ["image/heic", "image/jxl"])
def test_formats_of_other_libraries_are_resized_too(media_type: str) -> None:
    data = written(quadrants(96, 64), media_type)
    made = exact(data, media_type, (96, 64), (48, 32))
    assert made.size == (48, 32)
    assert off(mean(made), (127.5, 127.5, 63.75)) <= 4


def test_a_file_that_is_sent_has_pixels_and_nothing_else() -> None:
    made = resize(PHONE.read_bytes(), probe_of(b"", "image/jpeg", (3264, 2448)), Size(280, 196), WHITE, "image/png")
    assert kinds_of_chunks(made) == {b"IHDR", b"IDAT", b"IEND"}


def kinds_of_chunks(png: bytes) -> set[bytes]:
    found, at = set(), 8
    while at < len(png):
        found.add(png[at + 4 : at + 8])
        at += 12 + int.from_bytes(png[at : at + 4])
    return found


@needs("image/webp")
def test_webp_is_lossless_too() -> None:
    data = encoded(noise(301, 217), "PNG")
    size = Size(140, 112)
    made = resize(data, probe_of(data, "image/png", (301, 217)), size, WHITE, "image/webp")
    assert made[8:16] == b"WEBPVP8L"
    assert digest(opened(made).convert("RGB").tobytes()) == TORCHVISION[size]


def test_two_processes_make_the_same_bytes() -> None:
    code = (
        "import hashlib, sys; from vlm_edge.media.pillow import resize; from vlm_edge.media.probe import Probe; "
        "from vlm_edge.geometry import Size; data = open(sys.argv[1], 'rb').read(); "
        "probe = Probe(media_type='image/jpeg', size=Size(3264, 2448), file_bytes=len(data)); "
        "made = resize(data, probe, Size(560, 420), (255, 255, 255), 'image/png'); "
        "print(hashlib.sha256(made).hexdigest())"
    )
    command = [sys.executable, "-c", code, str(PHONE)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout for _ in range(2)]
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == 64


def test_a_raster_is_what_libvips_takes() -> None:
    raster = Raster(Size(2, 1), 3, bytes([255, 0, 0, 0, 0, 255]))
    data = encoded(Image.frombytes("RGB", (2, 1), raster.data), "BMP")
    assert decode(data, probe_of(data, "image/bmp", (2, 1))) == raster
