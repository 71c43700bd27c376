"""Headers: Pillow says what is right, where it reads them."""

import base64
import json
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from tests.media.files import (
    ORIENTATIONS,
    STILL,
    TURNABLE,
    animated,
    box,
    chunk,
    deep_png,
    exif,
    jpeg_with,
    noise,
    pages,
    png_header,
    png_with,
    probed,
    quadrants,
    tiff,
    turned,
    upright,
    wide_profile,
)
from tests.samples import PHONE, TRANSPARENT, TURNED, encoded, jpeg, opened, picture, png
from vlm_edge.errors import CorruptMedia, EdgeError, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.media import data_url
from vlm_edge.media.jpeg import scans
from vlm_edge.media.probe import Probe, probe
from vlm_edge.media.source import HEAD_BYTES, MAX_READ_BYTES, MAX_STEPS, Bytes

properties = settings(deadline=None, max_examples=150)
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


# Type and size


@pytest.mark.parametrize("kind", STILL)
@pytest.mark.parametrize("size", [(1, 1), (97, 61), (300, 2), (2, 300)])
def test_type_and_size_are_those_that_pillow_sees(kind: str, size: tuple[int, int]) -> None:
    data = encoded(quadrants(*size), kind)
    found = probed(data)
    assert found.media_type == f"image/{kind.lower()}"
    assert found.size == opened(data).size == size
    assert found.file_bytes == len(data)


@pytest.mark.parametrize("kind", TURNABLE)
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_the_size_is_upright_for_all_eight_orientations(kind: str, orientation: int) -> None:  # B46, B47, B49
    data = turned(kind, orientation)
    assert probed(data).size == upright(data).size


@pytest.mark.parametrize("kind", [kind for kind in TURNABLE if kind != "AVIF"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_the_orientation_is_told(kind: str, orientation: int) -> None:
    found = probed(turned(kind, orientation))
    assert found.orientation == orientation
    assert found.upright == (orientation == 1)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders_are_read(orientation: int, order: str) -> None:
    tags = [(256, 4, 300), (257, 3, 200), (274, 3, orientation)]
    assert probed(tiff(tags, order=order)).size == ((300, 200) if orientation < 5 else (200, 300))
    block = b"Exif\0\0" + tiff([(274, 3, orientation)], order=order)
    data = jpeg_with(jpeg(96, 64), (0xE1, block))
    assert probed(data).orientation == orientation
    assert probed(data).size == upright(data).size


@pytest.mark.parametrize("value", [0, 9, 65_535])
def test_an_orientation_that_does_not_exist_means_upright(value: int) -> None:
    data = jpeg_with(jpeg(96, 64), (0xE1, b"Exif\0\0" + tiff([(274, 3, value)])))
    assert (probed(data).orientation, probed(data).size) == (1, Size(96, 64))


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({"progressive": True}, "RGB"),
        ({"subsampling": 0}, "RGB"),
        ({"restart_marker_blocks": 1}, "RGB"),
        ({"optimize": True}, "L"),
        ({"comment": b"\xff\xd8\xff\xc0 not a frame"}, "RGB"),
        ({}, "CMYK"),
    ],
    ids=str,
)
def test_each_kind_of_jpeg_gives_its_size(options: dict[str, Any], mode: str) -> None:
    assert probed(encoded(picture(97, 61, mode), "JPEG", **options)).size == (97, 61)


def test_stray_bytes_and_fill_bytes_between_segments_are_skipped() -> None:
    data = jpeg(97, 61)
    strewn = data[:2] + b"\xff\xff\xff" + data[3:20] + b"\0\0stray\0" + data[20:]
    assert opened(strewn).size == (97, 61)
    assert probed(strewn).size == (97, 61)


def test_a_frame_header_behind_long_metadata_is_found() -> None:
    data = jpeg_with(
        jpeg(97, 61), *[(0xED, bytes(65_000))] * 4, (0xE1, b"Exif\0\0" + exif(6).removeprefix(b"Exif\0\0"))
    )
    assert probed(data).size == upright(data).size == (61, 97)
    payload = data_url.parse(data_url.build("image/jpeg", data).decode())
    assert probe(payload).size == (61, 97)


@pytest.mark.parametrize("kind", ["group3", "tiff_lzw", "jpeg", "tiff_adobe_deflate"])
def test_a_tiff_with_its_directory_at_the_end_is_read(kind: str) -> None:
    mode = "1" if kind == "group3" else "RGB"
    data = encoded(noise(400, 300).convert(mode), "TIFF", compression=kind)
    assert probed(data).size == (400, 300)
    assert probed(data).lossless == (kind != "jpeg")


def test_a_big_endian_tiff_is_read() -> None:
    data = encoded(Image.new("I;16B", (97, 61)), "TIFF")
    assert data.startswith(b"MM")
    assert probed(data).size == (97, 61)


def test_an_orientation_behind_the_pixels_of_a_png_is_read() -> None:
    data = png_with(encoded(noise(300, 200), "PNG"), b"eXIf", exif(6).removeprefix(b"Exif\0\0"), at_end=True)
    assert len(data) > 100_000
    assert probed(data).size == upright(data).size == (200, 300)


def test_a_motion_photo_is_its_jpeg() -> None:  # B80
    data = jpeg(97, 61) + box(b"ftyp", b"isom", bytes(4)) + box(b"mdat", bytes(1_000))
    assert (probed(data).media_type, probed(data).size) == ("image/jpeg", (97, 61))


def test_of_a_multi_picture_jpeg_the_first_picture_counts() -> None:  # B82
    data = encoded(picture(97, 61), "MPO", save_all=True, append_images=[picture(50, 40)])
    assert (probed(data).media_type, probed(data).size) == ("image/jpeg", (97, 61))


# Frames, pages, alpha, colour


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_an_animation_is_told(kind: str) -> None:
    assert probed(animated(kind)).animated
    assert not probed(encoded(picture(40, 30), kind)).animated


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_pages_of_a_tiff_are_counted(count: int) -> None:  # B76, B78
    assert probed(pages(count)).pages == count


@pytest.mark.parametrize("page", [0, 1, 2])
def test_each_page_of_a_tiff_is_probed_by_itself(page: int) -> None:
    image = opened(pages(3))
    image.seek(page)
    found = probe(Bytes(pages(3)), page)
    assert (found.page, found.pages, found.size) == (page, 3, image.size)


def test_each_page_of_a_tiff_is_turned_by_its_own_tag() -> None:
    upright, turned_page = Image.new("L", (40, 30)), Image.new("L", (40, 30))
    turned_page.encoderinfo = {"tiffinfo": {274: 6}}
    data = encoded(upright, "TIFF", save_all=True, append_images=[turned_page])
    found = [probe(Bytes(data), page) for page in (0, 1)]
    assert [(one.orientation, one.size) for one in found] == [(1, (40, 30)), (6, (30, 40))]


@pytest.mark.parametrize("page", [3, 1_000_000, -1])
def test_a_page_that_a_tiff_does_not_have_is_corrupt(page: int) -> None:
    with pytest.raises(CorruptMedia, match="pages"):
        probe(Bytes(pages(3)), page)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_which_frame_of_an_animation_is_asked_for_is_only_told(kind: str) -> None:
    found = probe(Bytes(animated(kind)), 2)
    assert (found.page, msgspec.structs.replace(found, page=0)) == (2, probed(animated(kind)))


@pytest.mark.parametrize(
    ("mode", "numbers"), [("L", "unsigned"), ("RGB", "unsigned"), ("I;16", "unsigned"), ("I", "signed"), ("F", "float")]
)
def test_the_kind_of_numbers_in_a_tiff_is_told(mode: str, numbers: str) -> None:
    data = encoded(Image.new(mode, (40, 30)), "TIFF")
    assert (probed(data).numbers, probed(data).size) == (numbers, (40, 30))


@pytest.mark.parametrize(("value", "numbers"), [(1, "unsigned"), (2, "signed"), (3, "float"), (4, "unsigned")])
def test_numbers_of_unknown_kind_are_taken_for_unsigned(value: int, numbers: str) -> None:
    assert probed(tiff([(256, 4, 40), (257, 4, 30), (339, 3, value)])).numbers == numbers


@pytest.mark.parametrize("value", [5, 6])
def test_complex_numbers_are_no_picture(value: int) -> None:
    with pytest.raises(UnsupportedMedia, match="complex"):
        probed(tiff([(256, 4, 40), (257, 4, 30), (339, 3, value)]))


def test_a_tag_that_points_nowhere_leaves_a_tiff_readable() -> None:
    fields = struct.pack("<HHII", 256, 4, 1, 40) + struct.pack("<HHII", 257, 4, 1, 30)
    astray = struct.pack("<HHII", 270, 2, 60, 9_999) + struct.pack("<HHII", 33_432, 3, 9, 9_999)
    data = b"II*\0" + struct.pack("<IH", 8, 4) + fields + astray + bytes(4)
    assert probed(data).size == (40, 30)


@pytest.mark.parametrize("head", [b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", b"%PDF-2.0\n"])
def test_of_a_pdf_the_headers_tell_neither_size_nor_pages(head: bytes) -> None:
    found = probed(head + bytes(100))
    assert (found.media_type, found.size, found.pages, found.lossless) == ("application/pdf", (1, 1), 0, True)


def test_a_pdf_within_the_comment_of_a_jpeg_is_a_jpeg() -> None:
    data = jpeg_with(jpeg(97, 61), (0xFE, b"%PDF-1.4\n1 0 obj\n"))
    assert (probed(data).media_type, probed(data).size) == ("image/jpeg", (97, 61))


def test_a_loop_of_directories_ends() -> None:
    data = bytearray(tiff([(256, 4, 30), (257, 4, 20)]))
    data[-4:] = struct.pack("<I", 8)
    assert probed(bytes(data)).pages == 1


MODES = {"PNG": "L LA P RGB RGBA", "WEBP": "RGB RGBA", "AVIF": "RGB RGBA", "TIFF": "L RGB RGBA", "JPEG": "L RGB"}


@pytest.mark.parametrize(("kind", "mode"), [(kind, mode) for kind, modes in MODES.items() for mode in modes.split()])
def test_transparency_is_told(kind: str, mode: str) -> None:
    image = picture(40, 30, "L" if mode == "LA" else mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.linear_gradient("L").resize((40, 30)))
    data = encoded(image, kind)
    assert opened(data).has_transparency_data == (mode in ("LA", "RGBA"))
    assert probed(data).alpha == opened(data).has_transparency_data


def test_a_palette_with_transparent_colours_is_transparent() -> None:  # B60, B62
    image = picture(40, 30).quantize(8)
    assert not probed(encoded(image, "PNG")).alpha
    assert probed(encoded(image, "PNG", transparency=0)).alpha
    assert probed(encoded(image, "PNG", transparency=bytes([0, 128, 255]))).alpha


@pytest.mark.parametrize(
    ("kind", "options", "lossless"),
    [
        ("JPEG", {}, False),
        ("PNG", {}, True),
        ("WEBP", {}, False),
        ("WEBP", {"lossless": True}, True),
        ("WEBP", {"lossless": True, "exif": exif(1)}, True),
        ("GIF", {}, True),
        ("TIFF", {}, True),
        ("AVIF", {}, False),
    ],
)
def test_what_is_lossless_is_told(kind: str, options: dict[str, Any], *, lossless: bool) -> None:
    assert probed(encoded(picture(40, 30), kind, **options)).lossless is lossless


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_wide_gamut_is_told_from_srgb(kind: str) -> None:
    assert probed(encoded(picture(40, 30), kind)).srgb
    assert probed(encoded(picture(40, 30), kind, icc_profile=SRGB)).srgb
    assert not probed(encoded(picture(40, 30), kind, icc_profile=wide_profile())).srgb


def test_a_profile_in_several_segments_is_read_by_its_first() -> None:
    wide = wide_profile() + bytes(70_000)
    assert not probed(encoded(picture(40, 30), "JPEG", icc_profile=wide)).srgb
    assert probed(encoded(picture(40, 30), "JPEG", icc_profile=SRGB + bytes(70_000))).srgb


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encoded(picture(40, 30, "CMYK"), "JPEG"), id="CMYK"),
        pytest.param(deep_png([[(0, 0, 0)] * 4] * 4), id="16-bit"),
        pytest.param(encoded(picture(40, 30), "AVIF"), id="AVIF"),
        pytest.param(encoded(picture(40, 30), "TIFF"), id="TIFF"),
    ],
)
def test_what_needs_a_conversion_of_colours_is_told(data: bytes) -> None:
    assert not probed(data).srgb


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
def test_plain_pngs_need_none(mode: str) -> None:
    assert probed(png(40, 30, mode)).srgb


# Damaged metadata never fails a picture


@properties
@given(st.binary(max_size=200))
def test_any_exif_block_leaves_a_jpeg_readable(block: bytes) -> None:  # B50
    found = probed(jpeg_with(jpeg(96, 64), (0xE1, b"Exif\0\0" + block)))
    assert found.size in (Size(96, 64), Size(64, 96))


@properties
@given(st.binary(max_size=80))
def test_any_exif_block_leaves_a_png_readable(block: bytes) -> None:
    found = probed(png_with(png(96, 64), b"eXIf", block))
    assert found.size in (Size(96, 64), Size(64, 96))


def test_a_rational_with_a_zero_denominator_does_no_harm() -> None:
    fields = struct.pack("<HHII", 282, 5, 1, 38) + struct.pack("<HHIHH", 274, 3, 1, 6, 0)
    block = b"II*\0" + struct.pack("<IH", 8, 2) + fields + bytes(4) + struct.pack("<II", 1, 0)
    assert probed(jpeg_with(jpeg(96, 64), (0xE1, b"Exif\0\0" + block))).size == (64, 96)


@pytest.mark.parametrize("content", [b"Photo\0\0garbage", b"Photo\0\0" + zlib.compress(SRGB)[:20][::-1]])
def test_a_damaged_profile_leaves_a_png_readable(content: bytes) -> None:  # B69
    data = png_with(png(96, 64), b"iCCP", content)
    assert opened(data).size == (96, 64)
    assert probed(data).size == (96, 64)


def test_a_profile_that_is_cut_short_leaves_a_png_readable() -> None:  # B69
    stream = zlib.compress(SRGB)
    data = png_with(png(96, 64), b"iCCP", b"Photo\0\0" + stream[: len(stream) // 2])
    assert probed(data).size == opened(data).size


# Refusals

OTHERS = {
    "a video": b"\0\0\0\x18ftypisom\0\0\x02\0isomiso2",
    "a Photoshop file": b"8BPS\0\x01",
    "a BigTIFF": b"II+\0\x08\0\0\0",
    "a JPEG XR picture": b"II\xbc\x01\x08\0\0\0",
    "an Apple icon": b"icns\0\0\1\0",
    "a QOI picture": b"qoif\0\0\0\x05\0\0\0\x05",
    "a DDS texture": encoded(picture(40, 30), "DDS"),
    "an HDR picture": b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n",
    "a PostScript file": encoded(picture(40, 30), "EPS"),
    "an Office file or archive": b"PK\x03\x04\x14\0\6\0",
    "an SVG drawing": b'<svg xmlns="http://www.w3.org/2000/svg" width="100000" height="100000"/>',  # B94
    "an HTML page": b"<!DOCTYPE html><html><body>404</body></html>",
    "a file of unknown type": b"hello",
}


@pytest.mark.parametrize(("name", "data"), OTHERS.items(), ids=OTHERS)
def test_what_is_no_picture_of_ours_is_refused_by_name(name: str, data: bytes) -> None:
    with pytest.raises(UnsupportedMedia, match=f"found {name};"):
        probed(data + bytes(100))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'<?xml version="1.0"?>\n<!-- by hand -->\n<svg/>', "an SVG drawing"),
        (b"\n\n  <SVG/>", "an SVG drawing"),
        (b"\xef\xbb\xbf<html>", "an HTML page"),
        (b"\x1aE\xdf\xa3" + bytes(20), "a video"),
        (b"RIFF\0\0\0\0AVI LIST", "a video"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office file or archive"),
        (b"\xc5\xd0\xd3\xc6\x20\0\0\0", "a PostScript file"),
        (b"MM\0+\0\x08\0\0", "a BigTIFF"),
        (b"#?RGBE\n", "an HDR picture"),
    ],
)
def test_other_spellings_are_known_too(data: bytes, name: str) -> None:
    with pytest.raises(UnsupportedMedia, match=f"found {name};"):
        probed(data)


def test_an_empty_file_is_corrupt() -> None:
    with pytest.raises(CorruptMedia, match="empty"):
        probed(b"")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(png_header(0, 10), id="PNG"),
        pytest.param(b"GIF89a" + struct.pack("<HH", 10, 0) + bytes(10), id="GIF"),
        pytest.param(tiff([(257, 4, 10)]), id="TIFF"),
        pytest.param(b"\xff\xd8\xff\xc0\0\x11\x08\0\0\0\x0a\x03" + bytes(9), id="JPEG"),
    ],
)
def test_a_picture_without_width_or_height_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptMedia):
        probed(data)


@pytest.mark.parametrize("label", ["a.png", "image/png"])
def test_labels_are_never_looked_at(label: str) -> None:  # B03
    payload = data_url.parse(f"data:{label};base64,{base64.b64encode(jpeg(97, 61)).decode()}")
    assert probe(payload).media_type == "image/jpeg"


# Hostile files

REAL: dict[str, bytes] = {kind: turned(kind, 6) for kind in TURNABLE} | {
    "GIF": encoded(quadrants(96, 64), "GIF"),
    "animated PNG": animated("PNG"),
    "animated WebP": animated("WEBP"),
    "lossless WebP": encoded(quadrants(96, 64), "WEBP", lossless=True),
    "plain WebP": encoded(quadrants(96, 64), "WEBP"),
    "PNG with a profile": encoded(quadrants(96, 64), "PNG", icc_profile=SRGB),
    "JPEG with a profile": encoded(quadrants(96, 64), "JPEG", icc_profile=SRGB),
    "AVIF with alpha": encoded(quadrants(96, 64).convert("RGBA"), "AVIF"),
    "TIFF with its directory at the end": encoded(quadrants(96, 64), "TIFF", compression="tiff_lzw"),
    "multi-page TIFF": pages(3),
    "float TIFF": encoded(Image.new("F", (96, 64)), "TIFF"),
    "animated GIF": animated("GIF"),
    "animated AVIF": animated("AVIF"),
    "HEIC": turned("AVIF", 6).replace(b"ftypavif", b"ftypheic", 1),
    "JPEG 2000": encoded(quadrants(96, 64), "JPEG2000"),
    "JPEG 2000 codestream": encoded(quadrants(96, 64), "JPEG2000", no_jp2=True),
    "JPEG with XMP": jpeg_with(jpeg(96, 64), (0xE1, b"http://ns.adobe.com/xap/1.0/\0<tiff:Orientation>6")),
    "PNG with XMP": png_with(png(96, 64), b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0tiff:Orientation="6"'),
    "PNG with a text of Exif": png_with(
        png(96, 64), b"tEXt", b"Raw profile type exif\0\nexif\n  38\n" + exif(6).hex().encode()
    ),
}
real = st.sampled_from(list(REAL.values()))


def probed_or_refused(data: bytes) -> Probe | None:
    """Any other exception than an EdgeError fails the test."""
    try:
        return probed(data)
    except EdgeError:
        return None


@pytest.mark.parametrize("data", REAL.values(), ids=REAL)
def test_a_cut_at_every_position_of_the_headers_gives_the_size_or_a_refusal(data: bytes) -> None:
    whole = probed(data).size
    for length in range(min(len(data), 1_500)):
        found = probed_or_refused(data[:length])
        assert found is None or found.size in (whole, whole.turned())  # the orientation may be cut off


@properties
@given(real, st.data())
def test_any_flipped_byte_gives_a_probe_or_a_refusal(data: bytes, drawn: st.DataObject) -> None:
    damaged = bytearray(data)
    for at in drawn.draw(st.lists(st.integers(0, min(len(data), 1_500) - 1), min_size=1, max_size=4)):
        damaged[at] = drawn.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    found = probed_or_refused(bytes(damaged))
    assert found is None or min(found.size) >= 1


@properties
@given(real, st.integers(0, 1_500), st.integers(0, 400))
def test_any_hole_gives_a_probe_or_a_refusal(data: bytes, at: int, length: int) -> None:
    found = probed_or_refused(data[:at] + data[at + length :])
    assert found is None or min(found.size) >= 1


MAGICS = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR", b"GIF89a", b"II*\0", b"MM\0*", b"\0\0\0\x1cftypavif"]
MAGICS += [b"RIFF\0\0\0\0WEBP" + kind for kind in (b"VP8 ", b"VP8L", b"VP8X")]
MAGICS += [b"\0\0\0\x14ftypheic\0\0\0\0mif1", b"\0\0\0\x10ftypavis\0\0\0\0", b"\xff\x0a"]
MAGICS += [b"\0\0\0\x0cJXL \r\n\x87\n", b"\0\0\0\x0cJXL \r\n\x87\n\0\0\0\0jxlc\xff\x0a"]
MAGICS += [b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  \r\n\x87\n", b"\0\0\0\x0cjP  \r\n\x87\n\0\0\0\x1ejp2h\0\0\0\x16ihdr"]
MAGICS += [b"%PDF-"]


@properties
@given(st.sampled_from(MAGICS), st.binary(max_size=300))
def test_anything_behind_a_magic_number_gives_a_probe_or_a_refusal(magic: bytes, rest: bytes) -> None:
    found = probed_or_refused(magic + rest)
    assert found is None or min(found.size) >= 1


class Counted:
    """A file that counts how often it is read, and how much."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size, self.reads, self.bytes = data, len(data), 0, 0

    def read(self, start: int, stop: int) -> bytes:
        found = self.data[start:stop]
        self.reads, self.bytes = self.reads + 1, self.bytes + len(found)
        return found


@pytest.mark.parametrize("kind", STILL)
def test_a_probe_reads_only_the_head_of_a_plain_file(kind: str) -> None:
    file = Counted(encoded(quadrants(96, 64), kind) + bytes(1_000_000))
    probe(file)
    assert file.reads <= 2
    assert file.bytes <= 66_000


# Files that are nothing but headers.
FLOODS: dict[str, Callable[[], bytes]] = {
    "JPEG segments": lambda: b"\xff\xd8" + b"\xff\xe3\0\2" * 300_000,
    "JPEG fill bytes": lambda: b"\xff\xd8" + b"\xff" * 3_000_000,
    "JPEG Exif": lambda: jpeg_with(jpeg(9, 9), *[(0xE1, b"Exif\0\0" + bytes(60_000))] * 100),
    "JPEG profiles": lambda: jpeg_with(jpeg(9, 9), *[(0xE2, b"ICC_PROFILE\0\1\1sRGB" + bytes(60_000))] * 100),
    "PNG Exif": lambda: png_header(9, 9) + chunk(b"eXIf", bytes(60_000)) * 100,
    "PNG profiles": lambda: png_header(9, 9) + chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(60_000), 0)) * 100,
    "JPEG stray bytes": lambda: b"\xff\xd8\xff\xe3\0\2" + b"\0" * 1_000_000,
    "JPEG markers alone": lambda: b"\xff\xd8\xff" + b"\xff\x01" * 500_000,
    "PNG chunks": lambda: png_header(9, 9) + chunk(b"tEXt", b"") * 100_000,
    "WebP chunks": lambda: b"RIFF\0\0\0\0WEBPVP8X" + struct.pack("<I", 10) + bytes(10) + b"XXXX\0\0\0\0" * 125_000,
    "AVIF boxes": lambda: box(b"ftyp", b"avif", bytes(4)) + box(b"free") * 125_000,
    "TIFF directories": lambda: b"II*\0" + b"".join(struct.pack("<IH", 10 + 6 * at, 0) for at in range(170_000)),
    "HEIC boxes": lambda: box(b"ftyp", b"heic", bytes(4)) + box(b"free") * 125_000,
    "HEIC properties": lambda: (
        box(b"ftyp", b"heic", bytes(4))
        + box(b"meta", bytes(4), box(b"pitm", bytes(6)), box(b"iprp", box(b"ipco", box(b"auxC", bytes(120)) * 9_000)))
    ),
    "AVIF tracks": lambda: box(b"ftyp", b"avis", bytes(4)) + box(b"moov", box(b"trak", box(b"free")) * 60_000),
    "JPEG XL boxes": lambda: b"\0\0\0\x0cJXL \r\n\x87\n" + box(b"jxlp", bytes(4)) * 100_000,
    "JPEG 2000 boxes": lambda: b"\0\0\0\x0cjP  \r\n\x87\n" + box(b"uuid") * 125_000,
    "GIF extensions": lambda: b"GIF89a" + bytes(7) + b"!\xfe\0" * 300_000,
    "GIF blocks": lambda: b"GIF89a" + bytes(7) + b"," + bytes(10) + b"\1\0" * 300_000,
    "icons": lambda: b"\0\0\1\0\xff\xff" + bytes(16) * 65_535,
    "PNM comments": lambda: b"P6\n" + b"#\n" * 500_000,
    "PNG packets": lambda: png_header(9, 9) + chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + bytes(200_000)) * 20,
    "JPEG packets": lambda: jpeg_with(jpeg(9, 9), *[(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + bytes(60_000))] * 100),
    "TIFF tags": lambda: tiff([(256, 4, 9), (257, 4, 9), *[(999, 4, 0)] * 65_000]),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_probe_ends_soon_whatever_the_headers_say(name: str) -> None:
    file = Counted(FLOODS[name]())
    with suppress(EdgeError):
        probe(file)
    assert file.reads <= MAX_STEPS + 1
    assert file.bytes <= MAX_READ_BYTES + HEAD_BYTES


def test_a_bomb_of_a_profile_is_not_inflated() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    assert probed(png_with(png(96, 64), b"iCCP", b"Photo\0\0" + bomb)).size == (96, 64)


# Real files


@pytest.mark.parametrize("file", [PHONE, TURNED, TRANSPARENT], ids=lambda file: file.name)
def test_real_pictures_give_the_size_that_a_person_sees(file: Path) -> None:
    data = file.read_bytes()
    assert probed(data).size == upright(data).size


OURS = {"JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "AVIF", "HEIF", "JXL", "JPEG2000", "BMP", "ICO", "PPM"}


def _refusable(row: dict[str, Any]) -> bool:
    """Such that refusing it is right too, for another reason than its format."""
    others = row.get("also_ok") or ()
    return any(other.startswith("reject") and other != "reject:unsupported_format" for other in others)


def test_the_corpus_gives_the_sizes_of_its_manifest(corpus: Path) -> None:
    rows = [json.loads(line) for line in (corpus / "manifest.jsonl").read_text("utf-8").splitlines()]
    good = [row for row in rows if row["format"] in OURS and row["expect"] == "decode" and not _refusable(row)]
    found = {row["file"]: probed((corpus / row["file"]).read_bytes()) for row in good}
    assert len(found) > 130
    assert {file: tuple(one.size) for file, one in found.items()} == {
        row["file"]: (row["upright_width"], row["upright_height"]) for row in good
    }


def test_the_documents_of_the_corpus_are_told(corpus: Path) -> None:
    files = sorted((corpus / "documents").glob("*.pdf"))
    assert len(files) >= 3
    assert {probed(file.read_bytes()).media_type for file in files} == {"application/pdf"}


def test_no_file_of_the_corpus_does_harm(corpus: Path) -> None:
    files = [file for file in sorted(corpus.rglob("*")) if file.is_file()]
    assert len(files) >= 290
    for file in files:
        counted = Counted(file.read_bytes())
        with suppress(EdgeError):
            probe(counted)
        assert (file.name, counted.reads <= MAX_STEPS + 1) == (file.name, True)
        assert (file.name, counted.bytes <= MAX_READ_BYTES + HEAD_BYTES) == (file.name, True)


def test_the_preview_of_a_raw_camera_file_does_not_pass_for_the_picture() -> None:
    """As NEF, CR2 and DNG begin: a reduced picture whose directory points to the real one."""
    small = Image.new("RGB", (16, 12))
    assert probed(encoded(small, "TIFF", tiffinfo={254: 1})).size == (16, 12)
    raw = encoded(small, "TIFF", tiffinfo={254: 1, 330: 8})
    with pytest.raises(UnsupportedMedia, match="raw camera file"):
        probed(raw)


def grey_scans(*between: bytes) -> bytes:
    """A progressive JPEG with segments put in before its last scan."""
    data = encoded(Image.new("L", (64, 64), 90), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + b"".join(between) + data[last:]


def test_scans_are_counted_to_the_end_of_the_picture_and_no_further() -> None:
    plain = grey_scans()
    assert scans(plain) == plain.count(b"\xff\xda") > 1
    assert scans(plain + plain) == scans(plain)
    assert scans(grey_scans(b"\xff\xfe\x00\x04\xff\xd9", b"\xff\xfe\x00\x04\xff\xda")) == scans(plain)
    assert scans(encoded(Image.new("L", (64, 64)), "JPEG")) == 1


def test_a_progressive_jpeg_without_a_scan_has_none_to_count() -> None:
    plain = grey_scans()
    assert scans(plain[: plain.index(b"\xff\xda")]) == 1
