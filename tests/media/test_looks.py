"""
Looks: colours as littleCMS makes them, edges without halos, thin lines that stay.

The yardstick is Pillow: its colour management (littleCMS, relative colorimetric without black point compensation, which
is what libvips asks of littleCMS too), its decoders, and its Lanczos in floating point.
"""

import io
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageCms, ImageDraw, ImageOps

from tests.media.files import deep_png, jpeg_with, png_with
from tests.samples import QWEN, encoded, opened
from vlm_edge import Edge, Profile, Settings

Pixels = npt.NDArray[np.float64]

SRGB = ImageCms.createProfile("sRGB")
D50 = (0.9642, 1.0, 0.8249)
# Of ICC.1 profiles in D50, each colour with its luminance in the middle.
DISPLAY_P3 = ((0.5151, 0.2412, -0.0011), (0.2920, 0.6922, 0.0419), (0.1571, 0.0666, 0.7841))
ADOBE_RGB = ((0.6097, 0.3111, 0.0195), (0.2053, 0.6257, 0.0609), (0.1492, 0.0632, 0.7446))
PRO_PHOTO = ((0.7977, 0.2880, 0.0000), (0.1352, 0.7119, 0.0000), (0.0313, 0.0001, 0.8249))

COLOURS = [(200, 60, 40), (30, 180, 60), (40, 60, 200), (128, 128, 128), (250, 230, 90), (12, 12, 12), (255, 255, 255)]
INKS = [(0, 0, 0, 0), (255, 0, 0, 0), (0, 255, 0, 0), (0, 0, 255, 0), (0, 0, 0, 255), (90, 40, 200, 30)]
SIDE = 84  # of a patch


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    """With profiles that change nothing but what they have to, and lose nothing."""
    plain = Profile(max_side=2_048, max_pixels=4_194_304, format="png", reencode="always")
    half = Profile(max_side=SIDE * 4, format="png")
    blue = Profile(max_side=SIDE * 4, format="png", background="#203040")
    profiles = {**Settings().profiles, "plain": plain, "half": half, "blue": blue}
    edge = Edge(Settings(profiles=profiles))
    yield edge
    edge.close()


def seen(edge: Edge, data: bytes, profile: str = "plain") -> Image.Image:
    """What the model is sent, as another decoder sees it."""
    return opened(edge.picture(data, profile=profile, model=QWEN).data).convert("RGB")


def numbers(image: Image.Image) -> Pixels:
    return np.asarray(image, dtype=np.float64)


def difference(one: Image.Image, other: Image.Image) -> float:
    """The largest of any pixel and channel."""
    return float(np.abs(numbers(one) - numbers(other)).max())


def decibels(one: Image.Image, other: Image.Image) -> float:
    """PSNR; 45 is what the rounding and clipping between two passes leave of hard edges."""
    error = float(np.mean((numbers(one) - numbers(other)) ** 2))
    return 10 * math.log10(255**2 / max(error, 1e-9))


def ideal(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Lanczos in floating point, rounded once."""
    bands = [np.asarray(band.convert("F").resize(size, Image.Resampling.LANCZOS)) for band in image.split()]
    return Image.fromarray(np.clip(np.rint(np.dstack(bands)), 0, 255).astype(np.uint8))


# Patches


def patches(mode: str, colours: list[Any]) -> Image.Image:
    """Flat squares side by side."""
    chart = Image.new(mode, (SIDE * len(colours), SIDE))
    for index, colour in enumerate(colours):
        chart.paste(colour, (index * SIDE, 0, (index + 1) * SIDE, SIDE))
    return chart


def means(chart: Image.Image, count: int) -> Pixels:
    """The mean colour of each patch, away from its edges."""
    wide, high = chart.width / count, chart.height
    margin = int(high / 4)
    boxes = [(int(at * wide) + margin, margin, int((at + 1) * wide) - margin, high - margin) for at in range(count)]
    return np.array([numbers(chart.crop(box)).mean(axis=(0, 1)) for box in boxes])


def converted(image: Image.Image, profile: bytes) -> Image.Image:
    """In sRGB, by littleCMS."""
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
    found = ImageCms.profileToProfile(image, source, SRGB, renderingIntent=intent, outputMode="RGB")
    assert found is not None
    return found


# Colour profiles (ICC.1:2001-04), put together by hand


def icc(space: bytes, kind: bytes, pcs: bytes, tags: dict[bytes, bytes]) -> bytes:
    name = b"Made by hand\0"
    desc = b"desc" + bytes(4) + struct.pack(">I", len(name)) + name + bytes(78)
    tags = {b"desc": desc, b"cprt": b"text" + bytes(4) + b"none\0", b"wtpt": xyz(D50), **tags}
    offset, table, body = 132 + 12 * len(tags), b"", b""
    for tag, content in tags.items():
        table += struct.pack(">4sII", tag, offset + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    head = struct.pack(">I4sI4s4s4s", offset + len(body), bytes(4), 0x02400000, kind, space, pcs)
    head += bytes(12) + b"acsp" + bytes(28) + xyz(D50)[8:] + bytes(48)
    return head + struct.pack(">I", len(tags)) + table + body


def xyz(values: tuple[float, float, float]) -> bytes:
    return b"XYZ " + bytes(4) + struct.pack(">iii", *(round(value * 65_536) for value in values))


def gamma(exponent: float) -> bytes:
    return b"curv" + bytes(4) + struct.pack(">IH", 1, round(exponent * 256))


def rgb_profile(primaries: tuple[tuple[float, float, float], ...], exponent: float) -> bytes:
    names = zip((b"rXYZ", b"gXYZ", b"bXYZ"), primaries, strict=True)
    curves = dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), gamma(exponent))
    return icc(b"RGB ", b"mntr", b"XYZ ", {**{name: xyz(values) for name, values in names}, **curves})


def grey_profile(exponent: float) -> bytes:
    return icc(b"GRAY", b"mntr", b"XYZ ", {b"kTRC": gamma(exponent)})


def cmyk_profile() -> bytes:
    """Inks that darken and tint paper in proportion: a table (lut8) of the sixteen corners, in Lab."""
    straight = bytes(range(256))
    corners = [_lab(*(corner >> ink & 1 for ink in (3, 2, 1, 0))) for corner in range(16)]
    head = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + struct.pack(">9i", 65_536, 0, 0, 0, 65_536, 0, 0, 0, 65_536)
    table = head + straight * 4 + bytes(value for corner in corners for value in corner) + straight * 3
    return icc(b"CMYK", b"prtr", b"Lab ", {b"A2B0": table, b"A2B1": table})


def _lab(cyan: int, magenta: int, yellow: int, black: int) -> tuple[int, int, int]:
    light = 255 * 0.6**cyan * 0.5**magenta * 0.9**yellow * 0.1**black
    tint = 0.1**black
    return (
        round(light),
        round(128 + (60 * magenta - 35 * cyan - 5 * yellow) * tint),
        round(128 + (70 * yellow - 45 * cyan - 5 * magenta) * tint),
    )


LOSSLESS: dict[str, dict[str, Any]] = {"PNG": {}, "TIFF": {}, "WEBP": {"lossless": True}}
SOURCES = {**LOSSLESS, "JPEG": {"quality": 100, "subsampling": 0}}


@pytest.mark.parametrize("profile", ["plain", "half"])
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(
    ("primaries", "exponent"),
    [(DISPLAY_P3, 2.2), (ADOBE_RGB, 2.199), (PRO_PHOTO, 1.8)],
    ids=["P3", "Adobe", "ProPhoto"],
)
def test_colours_of_a_profile_are_those_of_littlecms(
    edge: Edge, primaries: tuple[tuple[float, float, float], ...], exponent: float, kind: str, profile: str
) -> None:  # B67
    tag = rgb_profile(primaries, exponent)
    data = encoded(patches("RGB", COLOURS), kind, icc_profile=tag, **SOURCES[kind])
    expected = converted(opened(data).convert("RGB"), tag)
    assert difference(expected, opened(data).convert("RGB")) > 20
    found = means(seen(edge, data, profile), len(COLOURS))
    assert np.abs(found - means(expected, len(COLOURS))).max() <= 2


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG"])
@pytest.mark.parametrize("exponent", [1.0, 1.8, 2.6])
def test_grey_of_a_profile_is_that_of_littlecms(edge: Edge, exponent: float, kind: str) -> None:
    tag, levels = grey_profile(exponent), [0, 40, 90, 128, 200, 255]
    data = encoded(patches("L", levels), kind, icc_profile=tag, **SOURCES[kind])
    expected = converted(opened(data), tag)
    assert difference(expected, opened(data).convert("RGB")) > 5
    found = means(seen(edge, data), len(levels))
    assert np.abs(found - means(expected, len(levels))).max() <= 2


# CMYK


ADOBE = b"\xff\xee\0\x0eAdobe"  # ends with 0: inks as they are, or 2: as luminance and chroma


def adobe_jpeg() -> bytes:
    """Inks as Photoshop and Pillow write them: inverted, with Adobe's segment."""
    return encoded(patches("CMYK", INKS), "JPEG", icc_profile=cmyk_profile(), quality=100, subsampling=0)


def unmarked_jpeg() -> bytes:
    """The same without Adobe's segment: decoders take inks as inverted all the same."""
    data = adobe_jpeg()
    at = data.index(ADOBE)
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]


def ycck_jpeg() -> bytes:
    """Adobe's segment says that the inks are stored as luminance and chroma."""
    data = bytearray(adobe_jpeg())
    data[data.index(ADOBE) + 15] = 2
    return bytes(data)


def cmyk_tiff() -> bytes:
    return encoded(patches("CMYK", INKS), "TIFF", icc_profile=cmyk_profile())


@pytest.mark.parametrize("profile", ["plain", "half"])
@pytest.mark.parametrize("make", [adobe_jpeg, unmarked_jpeg, ycck_jpeg, cmyk_tiff])
def test_inks_of_a_profile_are_those_of_littlecms(edge: Edge, make: Callable[[], bytes], profile: str) -> None:
    data = make()  # B63, B65
    expected = means(converted(opened(data), cmyk_profile()), len(INKS))
    assert np.abs(means(seen(edge, data, profile), len(INKS)) - expected).max() <= 2


@pytest.mark.parametrize("make", [adobe_jpeg, unmarked_jpeg, cmyk_tiff])
def test_paper_without_ink_is_white_and_black_ink_is_dark(edge: Edge, make: Callable[[], bytes]) -> None:
    found = means(seen(edge, make()), len(INKS))
    assert found[0].min() >= 250
    assert found[4].max() <= 60


def test_inks_stored_as_chroma_are_others() -> None:
    """What the test above rests on: read in the wrong way, they would come out in other colours."""
    assert difference(opened(adobe_jpeg()), opened(ycck_jpeg())) > 100


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_inks_without_a_profile_are_those_of_common_print(edge: Edge, kind: str) -> None:  # B64
    inks = [(0, 0, 0, 0), (255, 0, 0, 0), (0, 255, 0, 0), (0, 0, 255, 0), (0, 0, 0, 255)]
    found = means(seen(edge, encoded(patches("CMYK", inks), kind, quality=100)), len(inks))
    swop = [(255, 255, 255), (0, 174, 239), (236, 0, 140), (255, 242, 0), (35, 31, 32)]
    assert np.abs(found - np.array(swop)).max() <= 25


def test_inks_said_to_be_signed_are_the_inks_they_are(edge: Edge) -> None:
    plain = encoded(patches("CMYK", INKS), "TIFF")
    signed = encoded(patches("CMYK", INKS), "TIFF", tiffinfo={339: (2, 2, 2, 2)})
    assert plain != signed
    assert difference(seen(edge, signed), seen(edge, plain)) <= 2


# Profiles that are none


BROKEN = {
    "noise": bytes(range(256)) * 4,
    "cut short": rgb_profile(DISPLAY_P3, 2.2)[:200],
    "of another number of bands": cmyk_profile(),
    "of grey": grey_profile(1.0),
    "without its colours": icc(b"RGB ", b"mntr", b"XYZ ", {}),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("tag", BROKEN.values(), ids=BROKEN)
def test_a_broken_profile_counts_as_none(edge: Edge, tag: bytes, kind: str) -> None:  # B66
    plain = encoded(patches("RGB", COLOURS), kind, **SOURCES[kind])
    tagged = encoded(patches("RGB", COLOURS), kind, icc_profile=tag, **SOURCES[kind])
    assert np.abs(means(seen(edge, tagged), 7) - means(opened(plain).convert("RGB"), 7)).max() <= 2


def test_a_profile_that_does_not_inflate_counts_as_none(edge: Edge) -> None:
    data = encoded(patches("RGB", COLOURS), "PNG")
    tagged = png_with(data, b"iCCP", b"name\0\0" + b"this is no zlib stream")
    assert difference(seen(edge, tagged), opened(data)) <= 2


def test_segments_of_a_profile_that_are_missing_are_not_missed(edge: Edge) -> None:
    data = encoded(patches("RGB", COLOURS), "JPEG", **SOURCES["JPEG"])
    second_of_three = b"ICC_PROFILE\0\2\3" + rgb_profile(DISPLAY_P3, 2.2)
    assert difference(seen(edge, jpeg_with(data, (0xE2, second_of_three))), opened(data)) <= 2


# Transparency


def laid_on(image: Image.Image, colour: str) -> Image.Image:
    clear = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", clear.size, colour), clear).convert("RGB")


def soft_disc() -> Image.Image:
    """A white disc with a soft edge on nothing, under which everything is black."""
    y, x = np.mgrid[:504, :672]
    cover = np.clip(200.5 - np.hypot(x - 335.5, y - 251.5), 0, 20) / 20
    white = np.where(cover > 0, 255, 0)
    return Image.fromarray(np.dstack([white, white, white, cover * 255]).astype(np.uint8), "RGBA")


@pytest.mark.parametrize(("profile", "colour"), [("half", "#ffffff"), ("blue", "#203040")])
@pytest.mark.parametrize("kind", LOSSLESS)
def test_soft_edges_have_no_halo(edge: Edge, kind: str, profile: str, colour: str) -> None:  # B57
    disc = soft_disc()
    found = seen(edge, encoded(disc, kind, **LOSSLESS[kind]), profile)
    assert found.size == (SIDE * 4, SIDE * 3)
    assert difference(found, ideal(laid_on(disc, colour), found.size)) <= 6


def palette_disc() -> Image.Image:
    """Red on nothing, in a palette whose transparent entry is green."""
    image = Image.new("P", (672, 504), 0)
    image.putpalette([0, 255, 0, 200, 0, 0])
    ImageDraw.Draw(image).ellipse((60, 60, 600, 440), fill=1)
    return image


@pytest.mark.parametrize(("profile", "colour"), [("half", "#ffffff"), ("blue", "#203040")])
@pytest.mark.parametrize(("kind", "transparency"), [("GIF", 0), ("PNG", 0), ("PNG", b"\0\xff"), ("PNG", b"\x40\x80")])
def test_transparent_palettes_have_no_grain_and_no_fringe(
    edge: Edge, kind: str, transparency: int | bytes, profile: str, colour: str
) -> None:  # B60, B62
    data = encoded(palette_disc(), kind, transparency=transparency)
    found = seen(edge, data, profile)
    assert decibels(found, ideal(laid_on(opened(data), colour), found.size)) >= 45


# Depth


def test_a_deep_ramp_keeps_its_levels_when_it_shrinks(edge: Edge) -> None:  # B58
    row: list[tuple[int, ...]] = [(at * 64, 65_535 - at * 64, 32_768) for at in range(1_024)]
    found = numbers(seen(edge, deep_png([row] * 768), "half"))
    assert len(np.unique(found[100, :, 0])) >= 250
    assert len(np.unique(found[100, :, 1])) >= 250
    assert np.abs(found[..., 2] - 128).max() <= 1


def one_bit() -> Image.Image:
    image = Image.new("1", (SIDE * 8, SIDE * 6), 1)
    draw = ImageDraw.Draw(image)
    draw.ellipse((40, 40, 500, 400), outline=0, width=3)
    draw.line((0, 0, 671, 503), fill=0, width=2)
    return image


def _photometric(value: int) -> bytes:
    return struct.pack("<HHIHH", 262, 3, 1, value, 0)


ONE_BIT = {
    "PNG": lambda: encoded(one_bit(), "PNG"),
    "fax": lambda: encoded(one_bit(), "TIFF", compression="group4"),
    "white is nought": lambda: encoded(one_bit(), "TIFF").replace(_photometric(1), _photometric(0)),
    "palette": lambda: encoded(one_bit().convert("L").quantize(2), "PNG", bits=1),
    "WebP": lambda: encoded(one_bit().convert("RGB"), "WEBP", lossless=True),
}


@pytest.mark.parametrize("make", ONE_BIT.values(), ids=ONE_BIT)
def test_black_and_white_shrinks_to_grey(edge: Edge, make: Callable[[], bytes]) -> None:  # B59
    data = make()
    found = seen(edge, data, "half")
    expected = ideal(opened(data).convert("RGB"), found.size)
    assert len(np.unique(numbers(expected))) > 30
    assert decibels(found, expected) >= 45


# Fine detail


def ruled(step: int) -> Image.Image:
    """A page of hair lines, twice as large as the document profile allows."""
    page = Image.new("L", (4_088, 2_856), 255)
    draw = ImageDraw.Draw(page)
    for at in range(step, 2_856, step):
        draw.line((0, at, 4_088, at), fill=0)
    return page


@pytest.mark.parametrize("options", [{"kind": "PNG"}, {"kind": "JPEG", "quality": 95}], ids=["PNG", "JPEG"])
@pytest.mark.parametrize("step", [15, 40])
def test_hair_lines_survive(edge: Edge, step: int, options: dict[str, Any]) -> None:
    found = numbers(seen(edge, encoded(ruled(step), **options), "document"))[:, 1_000, 0]
    assert len(found) == 1_428
    for at in range(step, 2_840, step):
        place = at // 2
        assert found[place - 1 : place + 2].min() <= 160, at
        assert found[place + 4] >= 235, at


def mirrored() -> Image.Image:
    """A picture that is its own mirror image, in both directions."""
    quarter = np.random.default_rng(3).integers(0, 256, (64, 96), dtype=np.uint8)
    soft = np.kron(quarter[:8, :12], np.ones((8, 8), dtype=np.uint8))
    half = np.hstack([soft, soft[:, ::-1]])
    return Image.fromarray(np.vstack([half, half[::-1]])).convert("RGB")


@pytest.mark.parametrize("size", [(192, 128), (190, 116), (310, 200), (300, 155)])
@pytest.mark.parametrize("kind", LOSSLESS)
def test_nothing_moves_to_a_side(edge: Edge, kind: str, size: tuple[int, int]) -> None:
    """Where the grid of the model makes a side a little larger as well."""
    image = mirrored().resize(size, Image.Resampling.LANCZOS)
    found = seen(edge, encoded(image, kind, **LOSSLESS[kind]))
    assert found.size != size
    assert difference(found, ImageOps.mirror(found)) <= 3
    assert difference(found, ImageOps.flip(found)) <= 3


@pytest.mark.parametrize("size", [(672, 504), (1_344, 1_008)])
def test_the_first_page_is_shown_and_not_a_smaller_one_behind_it(edge: Edge, size: tuple[int, int]) -> None:
    pages = [
        Image.new("RGB", (size[0] >> half, size[1] >> half), colour) for half, colour in enumerate(("red", "blue"))
    ]
    data = encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert difference(seen(edge, data, "half"), Image.new("RGB", (SIDE * 4, SIDE * 3), "red")) <= 2


# The corpus


def flat_blocks(image: Image.Image, side: int = 8) -> tuple[Pixels, Pixels]:
    """The mean colour of each block of pixels, and how much it varies within."""
    pixels = numbers(image)[: image.height // side * side, : image.width // side * side]
    blocks = pixels.reshape(image.height // side, side, image.width // side, side, 3)
    return blocks.mean(axis=(1, 3)), np.ptp(blocks, axis=(1, 3)).max(axis=-1)


MANAGED = [
    "photos/flyer_cmyk_swop_ycck.jpg",
    "photos/cmyk_icc_in_many_segments.jpg",
    "photos/iphone11pro_display_p3_orient8_4032x3024.jpg",
    "photos/rendering_33mp_444.jpg",
    "photos/rocket_0.3mp.jpg",
    "formats/tiff_cmyk_fogra39_icc.tif",
    "documents/hebrew_2108x3038_dotgain_icc.png",
]


@pytest.mark.parametrize("name", MANAGED)
def test_flat_parts_of_real_pictures_have_the_colours_of_littlecms(edge: Edge, corpus: Path, name: str) -> None:
    data = (corpus / name).read_bytes()
    image = opened(data)
    tag: bytes = image.info["icc_profile"]
    found = seen(edge, data, "half")
    expected = ideal(converted(ImageOps.exif_transpose(image), tag), found.size)
    (colours, _), (wanted, spread) = flat_blocks(found), flat_blocks(expected)
    flat = spread <= 6
    assert flat.sum() >= 10
    assert np.abs(colours - wanted)[flat].max() <= 2
