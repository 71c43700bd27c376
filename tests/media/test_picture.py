"""Pixels: Pillow says what a person would have seen, where it can be asked."""

import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import msgspec
import pytest
from PIL import Image, ImageChops, ImageCms, ImageDraw, ImageStat
from PIL.JpegImagePlugin import get_sampling

from tests.media.files import (
    ORIENTATIONS,
    TURNABLE,
    animated,
    chunk,
    deep_png,
    exif,
    jpeg_with,
    noise,
    pixel,
    png_with,
    probed,
    quadrants,
    turned,
    upright,
    wide_profile,
)
from tests.samples import PHONE, TRANSPARENT, encoded, jpeg, opened, picture, png
from vlm_edge.errors import CorruptMedia, MediaTooLarge
from vlm_edge.geometry import Size
from vlm_edge.media import picture as pictures
from vlm_edge.media.picture import Encoding, Target, verify, vips
from vlm_edge.media.profile import Chroma, Kernel

WHITE, RED, PINK = (255, 255, 255), (255, 0, 0), (255, 127, 127)
SRGB = ImageCms.createProfile("sRGB")


def resized(
    data: bytes,
    size: tuple[int, int],
    media_type: str = "image/png",
    *,
    quality: int = 90,
    chroma: Chroma = "4:2:0",
) -> bytes:
    return pictures.resize(data, probed(data), a_target(size, media_type, quality=quality, chroma=chroma)).data


def a_target(
    size: tuple[int, int],
    *media_types: str,
    quality: int = 90,
    chroma: Chroma = "4:2:0",
    canvas: tuple[int, int] | None = None,
    max_bytes: int | None = None,
    **fields: Any,
) -> Target:
    encoding = Encoding(media_types=media_types or ("image/png",), quality=quality, chroma=chroma, max_bytes=max_bytes)
    return Target(size=Size(*size), canvas=Size(*(canvas or size)), encoding=encoding, **fields)


def seen(data: bytes, size: tuple[int, int] | None = None) -> Image.Image:
    """What the model sees of a picture, without loss; in its own size unless told."""
    return opened(resized(data, size or probed(data).size)).convert("RGB")


def alike(one: Any, other: Any, tolerance: int = 3) -> bool:
    return all(abs(a - b) <= tolerance for a, b in zip(one, other, strict=True))


# Size and shape


@pytest.mark.parametrize("media_type", ["image/jpeg", "image/png", "image/webp"])
@pytest.mark.parametrize("size", [(28, 28), (84, 56), (140, 28), (28, 140)])
def test_the_size_and_type_are_exactly_those_asked_for(media_type: str, size: tuple[int, int]) -> None:
    data = resized(jpeg(301, 199), size, media_type)
    assert opened(data).size == size
    assert Image.MIME[opened(data).format or ""] == media_type
    assert (probed(data).size, probed(data).media_type) == (size, media_type)


@pytest.mark.parametrize("kind", TURNABLE)
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_each_orientation_comes_out_upright(kind: str, orientation: int) -> None:  # B46, B47
    data = turned(kind, orientation)
    expected, found = upright(data), seen(data)
    assert found.size == expected.size
    for corner in ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)):
        assert alike(pixel(found, *corner), pixel(expected, *corner), 30)


def test_a_large_turned_picture_comes_out_too() -> None:  # B51: out of order read
    data = encoded(noise(1_000, 1_500), "JPEG", exif=exif(8))
    assert opened(resized(data, (756, 504), "image/jpeg")).size == (756, 504)


def test_of_an_animation_the_first_frame_comes_out() -> None:  # B74
    for kind in ("PNG", "WEBP", "GIF"):
        assert alike(pixel(seen(animated(kind)), 0.5, 0.5), RED, 10)


# Colour


def test_a_transparent_picture_comes_out_on_white() -> None:  # B55
    image = Image.new("RGBA", (90, 30), (255, 0, 0, 255))
    image.paste((0, 0, 0, 0), (30, 0, 60, 30))
    image.paste((255, 0, 0, 128), (60, 0, 90, 30))
    for kind in ("PNG", "WEBP", "TIFF", "AVIF"):
        found = seen(encoded(image, kind, **{"lossless": True} if kind == "WEBP" else {}))
        assert alike(pixel(found, 1 / 6, 0.5), RED, 6)
        assert alike(pixel(found, 3 / 6, 0.5), WHITE, 6)
        assert alike(pixel(found, 5 / 6, 0.5), PINK, 6)


def test_a_transparent_picture_comes_out_as_pillow_lays_it_on_white() -> None:
    image = opened(TRANSPARENT.read_bytes())
    expected = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    found = seen(TRANSPARENT.read_bytes())
    assert max(high for _, high in ImageStat.Stat(ImageChops.difference(found, expected)).extrema) <= 3


def test_colour_under_transparent_pixels_does_not_bleed_at_edges() -> None:
    image = Image.new("RGBA", (300, 300), (0, 0, 0, 0))
    image.paste((255, 255, 255, 255), (0, 0, 151, 300))
    assert min(low for low, _ in ImageStat.Stat(seen(encoded(image, "PNG"), (84, 84))).extrema) >= 250


def test_grey_with_alpha_comes_out_on_white() -> None:
    image = Image.new("LA", (60, 30), (0, 255))
    image.paste((0, 0), (30, 0, 60, 30))
    found = seen(encoded(image, "PNG"))
    assert alike(pixel(found, 0.25, 0.5), (0, 0, 0))
    assert alike(pixel(found, 0.75, 0.5), WHITE)


def test_transparent_colours_of_a_palette_come_out_white() -> None:  # B60, B62
    image = Image.new("P", (60, 30), 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.paste(0, (30, 0, 60, 30))
    found = seen(encoded(image, "PNG", transparency=0))
    assert alike(pixel(found, 0.25, 0.5), RED)
    assert alike(pixel(found, 0.75, 0.5), WHITE)


def test_a_transparent_colour_without_a_palette_comes_out_white() -> None:
    image = Image.new("RGB", (60, 30), (255, 0, 0))
    image.paste((0, 0, 0), (30, 0, 60, 30))
    found = seen(encoded(image, "PNG", transparency=(0, 0, 0)))
    assert alike(pixel(found, 0.25, 0.5), RED)
    assert alike(pixel(found, 0.75, 0.5), WHITE)


def test_sixteen_bits_of_grey_are_scaled_and_not_clipped() -> None:  # B58
    ramp = Image.new("I;16", (512, 1))
    ramp.putdata([round(x * 65_535 / 511) for x in range(512)])
    for kind in ("PNG", "TIFF"):
        found = seen(encoded(ramp, kind)).convert("L")
        levels = [found.getpixel((x, 0)) for x in range(512)]
        assert len(set(levels)) > 250
        assert all(abs(level - x / 2) <= 1.5 for x, level in enumerate(levels))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("deep", "expected"),
    [
        ((65_535, 0, 0), RED),
        ((32_768, 32_768, 32_768), (128, 128, 128)),
        ((65_535, 0, 0, 65_535), RED),
        ((65_535, 0, 0, 0), WHITE),
        ((65_535, 0, 0, 32_768), PINK),
        ((0, 65_535), (0, 0, 0)),
        ((0, 0), WHITE),
        ((65_535, 65_535), WHITE),
        ((32_768,), (128, 128, 128)),
    ],
)
def test_sixteen_bits_of_colour_and_alpha_are_scaled(deep: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert alike(pixel(seen(deep_png([[deep] * 32] * 32)), 0.5, 0.5), expected, 2)


@pytest.mark.parametrize(
    ("ink", "expected"),
    [("red", (237, 28, 36)), ("white", WHITE), ("black", (35, 31, 32)), ("blue", (46, 49, 146))],
)
def test_cmyk_comes_out_as_colours_near_those_of_print(ink: str, expected: tuple[int, ...]) -> None:  # B63, B65
    data = encoded(Image.new("RGB", (64, 64), ink).convert("CMYK"), "JPEG", quality=95)
    assert opened(data).mode == "CMYK"
    assert alike(pixel(seen(data), 0.5, 0.5), expected, 60)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("colour", [(200, 60, 40), (30, 180, 60), (40, 60, 200), (128, 128, 128)])
def test_a_wide_gamut_comes_out_in_srgb(kind: str, colour: tuple[int, int, int]) -> None:  # B67
    image = Image.new("RGB", (64, 64), colour)
    wide = ImageCms.ImageCmsProfile(io.BytesIO(wide_profile()))
    expected = ImageCms.profileToProfile(image, wide, SRGB)
    options: dict[str, dict[str, Any]] = {"JPEG": {"quality": 100}, "WEBP": {"lossless": True}}
    found = seen(encoded(image, kind, icc_profile=wide_profile(), **options.get(kind, {})))
    assert expected is not None
    assert colour == (128, 128, 128) or not alike(colour, pixel(expected, 0.5, 0.5), 6)
    assert alike(pixel(found, 0.5, 0.5), pixel(expected, 0.5, 0.5), 5)


def test_a_grey_picture_stays_grey() -> None:
    for kind in ("JPEG", "PNG"):
        found = seen(encoded(Image.linear_gradient("L"), kind))
        assert alike(pixel(found, 0.5, 0.5), (128, 128, 128), 2)


@pytest.mark.parametrize("mode", ["1", "P", "L"])
def test_few_colours_come_out_as_they_are(mode: str) -> None:
    image = quadrants(64, 64).convert(mode)
    for at in ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)):
        assert alike(pixel(seen(encoded(image, "PNG")), *at), pixel(image.convert("RGB"), *at))


# Files


@pytest.mark.parametrize("media_type", ["image/jpeg", "image/png", "image/webp"])
def test_no_metadata_is_left(media_type: str) -> None:
    block = Image.Exif()
    block[0x010E], block[0x0112] = "a secret place", 6
    block.get_ifd(0x8825)[2] = (48.0, 51.0, 29.0)
    data = encoded(picture(96, 64), "JPEG", exif=block, icc_profile=wide_profile("named"), comment=b"a secret word")
    made = resized(data, (56, 84), media_type)
    image = opened(made)
    assert not image.getexif()
    assert not {"exif", "icc_profile", "xmp", "comment"} & set(image.info)
    assert not any(word in made for word in (b"secret", b"Exif", b"eXIf", b"named", b"iCCP", b"ICC_PROFILE"))


@pytest.mark.parametrize(("chroma", "sampling"), [("4:4:4", 0), ("4:2:0", 2)])
@pytest.mark.parametrize("quality", [50, 85, 95])
def test_the_chroma_of_a_jpeg_is_that_asked_for(chroma: Chroma, sampling: int, quality: int) -> None:
    data = resized(jpeg(200, 100), (112, 56), "image/jpeg", chroma=chroma, quality=quality)
    assert get_sampling(opened(data)) == sampling


@pytest.mark.parametrize("media_type", ["image/jpeg", "image/webp"])
def test_more_quality_is_more_bytes_and_nearer_to_the_picture(media_type: str) -> None:
    data = encoded(noise(200, 100), "PNG")
    low, high = (resized(data, (200, 100), media_type, quality=quality) for quality in (30, 95))
    assert len(low) < len(high)


@pytest.mark.parametrize("media_type", ["image/jpeg", "image/png", "image/webp"])
def test_the_same_input_gives_the_same_bytes(media_type: str) -> None:  # B154
    data = PHONE.read_bytes()
    with ThreadPoolExecutor(4) as pool:
        made = set(pool.map(lambda _: resized(data, (112, 84), media_type), range(8)))
    assert len(made) == 1


def test_one_picture_may_be_made_in_several_sizes() -> None:  # B53
    data = jpeg(300, 200)
    assert [opened(resized(data, size)).size for size in ((84, 56), (28, 28), (84, 56))] == [
        (84, 56),
        (28, 28),
        (84, 56),
    ]


# Damage

CUTTABLE = {
    "JPEG": encoded(noise(400, 300), "JPEG"),
    "progressive JPEG": encoded(noise(400, 300), "JPEG", progressive=True),
    "PNG": encoded(noise(400, 300), "PNG"),
    "WebP": encoded(noise(400, 300), "WEBP"),
    "lossless WebP": encoded(noise(400, 300), "WEBP", lossless=True),
    "GIF": encoded(noise(400, 300), "GIF"),
    "TIFF": encoded(noise(400, 300), "TIFF"),
    "AVIF": encoded(noise(400, 300), "AVIF"),
}


@pytest.mark.parametrize("data", CUTTABLE.values(), ids=CUTTABLE)
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_picture_that_is_cut_short_is_refused(data: bytes, share: float) -> None:  # B84, B164, B168
    cut, whole = data[: int(len(data) * share)], probed(data)
    with pytest.raises(CorruptMedia):
        verify(cut, whole)
    with pytest.raises(CorruptMedia):
        pictures.resize(cut, whole, a_target((84, 56), "image/jpeg"))


@pytest.mark.parametrize("data", CUTTABLE.values(), ids=CUTTABLE)
def test_a_whole_picture_is_good(data: bytes) -> None:
    verify(data, probed(data))


def test_damaged_pixels_are_refused() -> None:
    data = bytearray(encoded(noise(100, 100), "PNG"))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(CorruptMedia):
        verify(bytes(data), probed(bytes(data)))


def test_a_file_that_tells_the_decoder_another_size_is_refused() -> None:
    small, large = jpeg(84, 56), jpeg(300, 200)
    with pytest.raises(CorruptMedia):
        verify(large, probed(small))
    with pytest.raises(CorruptMedia):
        pictures.resize(large, probed(small), a_target((28, 28), "image/jpeg"))


def test_a_refusal_says_nothing_in_the_words_of_a_library() -> None:
    data = encoded(noise(100, 100), "JPEG")[:5_000]
    with pytest.raises(CorruptMedia) as caught:
        verify(data, probed(data))
    assert "vips" not in str(caught.value).lower()
    assert "jpeg" not in str(caught.value).lower()
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>', id="SVG"),
        pytest.param(b"P6 1 1 255\n\0\0\0", id="PPM"),
        pytest.param(b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>", id="PDF"),
        pytest.param(b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 1 +X 1\n\1\1\1\1", id="Radiance"),
        pytest.param(b"1,2\n3,4\n", id="CSV"),
    ],
)
def test_the_decoder_has_no_other_formats(data: bytes) -> None:  # B94
    with pytest.raises(vips().Error):
        vips().Image.new_from_buffer(data, "").avg()


def test_a_text_bomb_in_a_png_costs_nothing() -> None:
    bomb = b"Comment\0\0" + zlib.compress(bytes(20_000_000))
    assert opened(resized(png_with(png(96, 64), b"zTXt", bomb), (28, 28))).size == (28, 28)


def test_an_animation_of_many_frames_comes_out_as_its_first() -> None:
    data = png_with(png(96, 64), b"acTL", struct.pack(">II", 2**31 - 1, 0))
    assert chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)) in data
    assert opened(resized(data, (28, 28))).size == (28, 28)


# Odd orientations: the plan rests on what the probe reads, whatever libvips would make of the file

ODD_ORIENTATIONS = {
    "two Exif segments": lambda: jpeg_with(turned("JPEG", 6), (0xE1, b"Exif\0\0" + exif(1))),
    "two other Exif segments": lambda: jpeg_with(turned("JPEG", 1), (0xE1, b"Exif\0\0" + exif(6))),
    "eXIf behind the pixels": lambda: png_with(encoded(quadrants(96, 64), "PNG"), b"eXIf", exif(6), at_end=True),
    "two eXIf": lambda: png_with(turned("PNG", 1), b"eXIf", exif(8)),
    "a headed eXIf": lambda: png_with(encoded(quadrants(96, 64), "PNG"), b"eXIf", b"Exif\0\0" + exif(6)),
}


@pytest.mark.parametrize("make", ODD_ORIENTATIONS.values(), ids=ODD_ORIENTATIONS)
def test_a_picture_of_odd_orientation_is_never_distorted(make: Callable[[], bytes]) -> None:
    data = make()
    image = opened(resized(data, probed(data).size))
    stored = opened(data).convert("RGB")
    turned_in_any_way = [stored, *(stored.transpose(turn) for turn in Image.Transpose)]
    same_size = [one for one in turned_in_any_way if one.size == image.size]
    assert any(ImageChops.difference(image.convert("RGB"), one).getbbox() is None for one in same_size)


def test_grey_stays_grey() -> None:
    assert opened(resized(png(300, 200, "L"), (280, 196))).mode == "L"


@pytest.mark.parametrize("highest", [1.0, 255.0, 4_000.0])
def test_grey_of_any_numbers_comes_out_from_black_to_white(highest: float) -> None:
    ramp = Image.linear_gradient("L").convert("F").point(lambda value: value * highest / 255 + 0.0)
    found = seen(encoded(ramp, "TIFF"))
    assert alike(found.getpixel((0, 0)), (0, 0, 0))
    assert alike(found.getpixel((0, 255)), (255, 255, 255))
    assert len(set(found.convert("L").tobytes())) >= 250


def test_signed_numbers_come_out_from_black_to_white() -> None:
    ramp = Image.linear_gradient("L").convert("I").point(lambda value: value * 100 + -9_000)
    found = seen(encoded(ramp, "TIFF"))
    assert (found.getpixel((9, 0)), found.getpixel((9, 255))) == ((0, 0, 0), (255, 255, 255))


def test_what_is_no_number_is_black() -> None:
    values = Image.new("F", (30, 20), 1.0)
    values.putpixel((3, 4), float("nan"))
    found = seen(encoded(values, "TIFF"))
    assert (found.getpixel((3, 4)), found.getpixel((5, 6))) == ((0, 0, 0), (255, 255, 255))


# What a target asks for


def made(image: Image.Image, target: Target, kind: str = "PNG") -> pictures.SentFile:
    data = encoded(image, kind)
    return pictures.resize(data, probed(data), target)


def test_a_margin_lies_to_the_right_and_below() -> None:
    sent = opened(made(Image.new("RGB", (100, 10), "red"), a_target((50, 5), canvas=(56, 28))).data)
    assert sent.size == (56, 28)
    assert {sent.getpixel(at) for at in ((0, 0), (49, 4))} == {RED}
    assert {sent.getpixel(at) for at in ((50, 4), (49, 5), (55, 27))} == {WHITE}


def test_a_margin_and_what_shows_through_have_the_colour_of_the_background() -> None:  # B56
    target = a_target((50, 5), canvas=(56, 28), background=(0, 0, 255))
    for mode in ("RGBA", "LA"):
        sent = opened(made(Image.new(mode, (100, 10), (255,) * (len(mode) - 1) + (0,)), target).data)
        assert {sent.getpixel(at) for at in ((0, 0), (55, 27))} == {(0, 0, 255)}
    grey = opened(made(Image.new("L", (100, 10)), target).data)
    assert (grey.getpixel((0, 0)), grey.getpixel((55, 27))) == ((0, 0, 0), (0, 0, 255))


def test_of_two_types_the_smaller_file_is_taken() -> None:
    both = a_target((280, 280), "image/jpeg", "image/png")
    assert made(Image.new("RGB", (560, 560), "red"), both).media_type == "image/png"
    assert made(noise(560, 560), both).media_type == "image/jpeg"


def test_lossless_may_be_worth_more_bytes() -> None:
    image = ImageDraw.Draw(page := Image.new("L", (560, 560), 255))
    for at in range(0, 560, 4):
        image.line((0, at, 560, 560 - at), fill=0)
    both = a_target((280, 280), "image/jpeg", "image/png")
    dear = msgspec.structs.replace(both, encoding=msgspec.structs.replace(both.encoding, lossless_worth=20.0))
    assert [made(page, target).media_type for target in (both, dear)] == ["image/jpeg", "image/png"]


@pytest.mark.parametrize(("media_type", "share"), [("image/jpeg", 2), ("image/jpeg", 4), ("image/webp", 2)])
def test_quality_is_lowered_until_the_file_is_small_enough(media_type: str, share: int) -> None:  # B23
    whole = made(noise(560, 560), a_target((560, 560), media_type, quality=95)).data
    sent = made(noise(560, 560), a_target((560, 560), media_type, quality=95, max_bytes=len(whole) // share))
    assert len(whole) // (share * 2) < len(sent.data) <= len(whole) // share
    assert opened(sent.data).size == (560, 560)


@pytest.mark.parametrize("size", [(112, 84), (112, 70), (96, 84)])
def test_what_alignment_enlarges_stays_where_it_was(size: tuple[int, int]) -> None:
    """The middle of a round spot, in shares of the picture."""
    spot = Image.radial_gradient("L").resize((100, 75))
    sent = opened(made(spot, a_target(size)).data).convert("L")
    levels = enumerate(sent.tobytes())
    weights = [(255 - level, at % size[0] + 0.5, at // size[0] + 0.5) for at, level in levels]
    whole = sum(weight for weight, _, _ in weights)
    middle = [sum(weight * at[axis] for weight, *at in weights) / whole / size[axis] for axis in (0, 1)]
    assert middle == pytest.approx([0.5, 0.5], abs=0.002)  # half a pixel is 0.005


def test_grey_stored_as_colours_is_sent_as_grey() -> None:
    data = made(picture(300, 200, "L").convert("RGB"), a_target((280, 196)))
    assert opened(data.data).mode == "L"
    assert opened(made(picture(300, 200), a_target((280, 196))).data).mode == "RGB"


def test_a_lossless_file_that_is_too_large_becomes_a_jpeg() -> None:
    sent = made(noise(280, 280), a_target((280, 280), "image/jpeg", "image/png", max_bytes=60_000))
    assert (sent.media_type, len(sent.data) <= 60_000) == ("image/jpeg", True)


@pytest.mark.parametrize("media_types", [("image/png",), ("image/jpeg",)])
def test_a_file_that_cannot_be_small_enough_is_refused(media_types: tuple[str, ...]) -> None:
    with pytest.raises(MediaTooLarge, match="at most 2000"):
        made(noise(280, 280), a_target((280, 280), *media_types, max_bytes=2_000))


@pytest.mark.parametrize("kernel", get_args(Kernel))
def test_every_kernel_makes_the_planned_size_and_keeps_flat_colours(kernel: Kernel) -> None:
    sent = opened(made(quadrants(400, 300), a_target((84, 56), kernel=kernel)).data)
    assert sent.size == (84, 56)
    assert [sent.getpixel(at) for at in ((9, 9), (75, 9), (9, 47))] == [(255, 0, 0), (0, 255, 0), (0, 0, 255)]


def test_kernels_differ() -> None:
    sent = {made(noise(400, 300), a_target((84, 56), kernel=kernel)).data for kernel in get_args(Kernel)}
    assert len(sent) == len(get_args(Kernel))


@pytest.mark.parametrize("kernel", ["lanczos3", "cubic"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_any_kernel_turns_upright(kernel: Kernel, orientation: int) -> None:
    data = turned("PNG", orientation)
    sent = pictures.resize(data, probed(data), a_target(probed(data).size, kernel=kernel)).data
    assert alike(opened(sent).convert("RGB").getpixel((4, 4)), upright(data).getpixel((4, 4)))


# Loading libvips

FIRST_PICTURES = """
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from vlm_edge import Edge

data, edge, together = Path(sys.argv[1]).read_bytes(), Edge(), Barrier(8)

def prepare(_):
    together.wait()
    return edge.picture(data, profile="thumbnail").size

with ThreadPoolExecutor(8) as pool:
    print(set(pool.map(prepare, range(8))))
"""


def test_threads_that_load_libvips_at_once_all_get_their_picture() -> None:
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", FIRST_PICTURES, PHONE], capture_output=True, text=True, check=False)
        assert (run.returncode, run.stdout) == (0, "{Size(width=448, height=336)}\n"), run.stderr


# TIFF of unusual numbers


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_one_number_that_is_none_does_not_spoil_the_others(value: float) -> None:
    ramp = Image.linear_gradient("L").convert("F")
    ramp.putpixel((3, 4), value)
    found = seen(encoded(ramp, "TIFF"))
    assert (found.getpixel((9, 0)), found.getpixel((9, 255))) == ((0, 0, 0), (255, 255, 255))


def test_numbers_too_wide_for_a_colour_come_out_from_black_to_white() -> None:
    """Of 32 bits; Pillow writes them as signed, which one field says."""
    ramp = Image.linear_gradient("L").convert("I").point(lambda value: value * 1_000_000 + 0)
    data = encoded(ramp, "TIFF")
    unsigned = data.replace(b"\x53\x01\x03\x00\x01\x00\x00\x00\x02", b"\x53\x01\x03\x00\x01\x00\x00\x00\x01")
    assert unsigned != data
    found = seen(unsigned)
    assert (found.getpixel((9, 0)), found.getpixel((9, 255))) == ((0, 0, 0), (255, 255, 255))
