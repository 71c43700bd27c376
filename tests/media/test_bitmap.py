"""Tests of the headers of plain pixels: BMP, ICO and PNM."""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.media.files import probed, quadrants
from tests.samples import encoded, opened, picture, png
from vlm_edge.errors import CorruptMedia, EdgeError, UnsupportedMedia
from vlm_edge.geometry import Size

properties = settings(deadline=None, max_examples=150)
SIZES = [(1, 1), (97, 61), (300, 2), (2, 300)]


# BMP


def info_header(width: int, height: int, *, length: int = 40, bits: int = 24, compression: int = 0) -> bytes:
    header = struct.pack("<IiiHHI", length, width, height, 1, bits, compression)
    return header + bytes(length - len(header))


def bmp(header: bytes, pixels: bytes = b"") -> bytes:
    at = 14 + len(header)
    return b"BM" + struct.pack("<IHHI", at + len(pixels), 0, 0, at) + header + pixels


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("size", SIZES)
def test_a_bmp_has_the_size_that_pillow_sees(mode: str, size: tuple[int, int]) -> None:
    data = encoded(quadrants(*size).convert(mode), "BMP")
    found = probed(data)
    assert (found.media_type, found.size, found.file_bytes) == ("image/bmp", opened(data).size, len(data))
    assert (found.lossless, found.srgb, found.orientation) == (True, True, 1)


@pytest.mark.parametrize("length", [40, 52, 56, 64, 108, 124])
@pytest.mark.parametrize("height", [3, -3])
def test_every_header_is_read_and_a_negative_height_means_top_down(length: int, height: int) -> None:
    data = bmp(info_header(5, height, length=length), bytes(16 * 3))
    assert probed(data).size == opened(data).size == (5, 3)


def test_the_short_header_of_os2_is_read() -> None:
    data = bmp(struct.pack("<IHHHH", 12, 5, 3, 1, 24), bytes(16 * 3))
    assert probed(data).size == opened(data).size == (5, 3)


@pytest.mark.parametrize(("mask", "alpha"), [(0, False), (0xFF000000, True)])
def test_the_alpha_of_a_bmp_is_told(mask: int, *, alpha: bool) -> None:
    header = bytearray(info_header(5, 3, length=108, bits=32, compression=3))
    header[40:56] = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, mask)
    data = bmp(bytes(header), bytes(20 * 3))
    assert probed(data).alpha == opened(data).has_transparency_data == alpha


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-5, 5)])
def test_a_bmp_without_pixels_is_corrupt(size: tuple[int, int]) -> None:
    with pytest.raises(CorruptMedia):
        probed(bmp(info_header(*size)))


# ICO


def ico(*icons: tuple[tuple[int, int], int, bytes], kind: int = 1) -> bytes:
    """Of pictures: the size and bits that the list gives, and the picture itself."""
    at = 6 + 16 * len(icons)
    entries, pictures = b"", b""
    for (width, height), bits, data in icons:
        entries += struct.pack("<4B2H2I", width & 255, height & 255, 0, 0, 1, bits, len(data), at + len(pictures))
        pictures += data
    return struct.pack("<HHH", 0, kind, len(icons)) + entries + pictures


def dib(width: int, height: int, bits: int = 32) -> bytes:
    """A picture within an icon: its height is that of the picture and its mask."""
    row, mask = (width * bits + 31) // 32 * 4, (width + 31) // 32 * 4
    return info_header(width, 2 * height, bits=bits) + bytes((row + mask) * height)


@pytest.mark.parametrize("bitmap_format", ["png", "bmp"])
def test_the_largest_picture_of_an_icon_counts(bitmap_format: str) -> None:
    data = encoded(
        picture(256, 256, "RGBA"), "ICO", sizes=[(16, 16), (256, 256), (48, 48)], bitmap_format=bitmap_format
    )
    found = probed(data)
    assert (found.media_type, found.size) == ("image/x-icon", opened(data).size) == ("image/x-icon", (256, 256))
    assert (found.alpha, found.lossless) == (True, True)


@pytest.mark.filterwarnings("ignore:Image was not the expected size")
def test_a_picture_within_an_icon_tells_its_own_size() -> None:  # the list has a byte for each
    large = ico(((32, 32), 32, png(900, 700, "RGBA")))
    assert probed(large).size == opened(large).size == (900, 700)
    other = ico(((32, 32), 32, dib(20, 10)))
    assert probed(other).size == opened(other).size == (20, 10)


@pytest.mark.filterwarnings("ignore:Image was not the expected size")
@given(
    st.lists(
        st.tuples(st.sampled_from([(16, 16), (32, 8), (8, 32), (256, 256)]), st.sampled_from([0, 8, 32])),
        min_size=1,
        max_size=5,
    )
)
@properties
def test_of_icons_of_equal_size_the_one_counts_that_pillow_takes(listed: list[tuple[tuple[int, int], int]]) -> None:
    data = ico(*[(size, bits, png(10 + index, 10)) for index, (size, bits) in enumerate(listed)])
    assert probed(data).size == opened(data).size


def test_an_icon_without_pictures_is_corrupt() -> None:
    with pytest.raises(CorruptMedia, match="no picture"):
        probed(ico() + bytes(100))


def test_a_mouse_pointer_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedMedia, match="found a mouse pointer"):
        probed(ico(((32, 32), 32, dib(32, 32)), kind=2))


# PNM


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "I;16"])
@pytest.mark.parametrize("size", SIZES)
def test_a_pnm_has_the_size_that_pillow_sees(mode: str, size: tuple[int, int]) -> None:
    data = encoded(Image.new(mode, size), "PPM")
    found = probed(data)
    assert (found.media_type, found.size) == ("image/x-portable-anymap", opened(data).size)
    assert (found.lossless, found.alpha, found.srgb) == (True, False, mode != "I;16")


@pytest.mark.parametrize(
    "data",
    [
        b"P1\n3 2\n1 0 1 0 1 0\n",
        b"P2 3 2 255 1 2 3 4 5 6 ",
        b"P3\n# by hand\n3\n# a comment\n2\r\n255\n" + b"1 2 3 " * 6,
        b"P4\t3\t2\n\xa0\x40",
        b"P5\n3#three\r 2\n255\n123456",
        b"P5\n#\n#two\n3 2 9\n\1\2\3\4\5\6",
        b"P6 \n 3 2\n255 " + bytes(18),
        b"P6\n3 #\n# 9 9\n2\n65535\n" + bytes(36),
    ],
)
def test_every_kind_and_spelling_of_a_pnm_is_read(data: bytes) -> None:
    assert probed(data).size == opened(data).size == (3, 2)


@pytest.mark.parametrize(
    "data", [b"P6\n3 x\n255\n", b"P6\n-3 2\n255\n", b"P6\n3", b"P5\n3 0\n255\n", b"P6\n" + b"#" * 100_000]
)
def test_a_pnm_without_a_size_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptMedia):
        probed(data)


@pytest.mark.parametrize("magic", [b"P7\n", b"Pf\n", b"PF\n"])
def test_other_netpbm_formats_are_refused_by_name(magic: bytes) -> None:
    with pytest.raises(UnsupportedMedia, match="found a PAM or PFM picture"):
        probed(magic + b"WIDTH 3\nHEIGHT 2\n")


def test_a_long_row_of_digits_is_no_size() -> None:
    with pytest.raises(CorruptMedia):
        probed(b"P6\n" + b"9" * 5_000 + b" 2\n255\n")


# Hostile files

REAL: list[bytes] = [
    encoded(quadrants(96, 64), "BMP"),
    bmp(info_header(5, -3, length=124, bits=32, compression=3), bytes(60)),
    encoded(picture(48, 48, "RGBA"), "ICO", bitmap_format="bmp"),
    encoded(picture(48, 48, "RGBA"), "ICO"),
    encoded(quadrants(96, 64), "PPM"),
]
MAGICS = [
    b"BM" + bytes(12) + b"\x28\0\0\0",
    b"BM" + bytes(12) + b"\x0c\0\0\0",
    b"\0\0\1\0",
    b"\0\0\1\0\1\0",
    b"P3\n",
    b"P6 ",
]


def probed_or_refused(data: bytes) -> Any:
    """Any other exception than an EdgeError fails the test."""
    try:
        return probed(data)
    except EdgeError:
        return None


@properties
@given(st.sampled_from(MAGICS), st.binary(max_size=300))
def test_anything_behind_a_magic_number_gives_a_probe_or_a_refusal(magic: bytes, rest: bytes) -> None:
    found = probed_or_refused(magic + rest)
    assert found is None or min(found.size) >= 1


@properties
@given(st.sampled_from(REAL), st.data())
def test_any_flipped_byte_or_cut_gives_a_probe_or_a_refusal(data: bytes, drawn: st.DataObject) -> None:
    damaged = bytearray(data)
    for at in drawn.draw(st.lists(st.integers(0, min(len(data), 200) - 1), max_size=4)):
        damaged[at] = drawn.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    found = probed_or_refused(bytes(damaged[: drawn.draw(st.integers(0, len(damaged)))]))
    assert found is None or min(found.size) >= 1


# Real files


@pytest.mark.parametrize(
    ("file", "size"),
    [
        ("formats/bmp_pal1wb.bmp", (127, 64)),
        ("formats/bmp_rgba32.bmp", (127, 64)),
        ("formats/bmp_rgb32bf.bmp", (127, 64)),
        ("formats/favicon_multi.ico", (48, 48)),
        ("formats/bilevel.pbm", (157, 151)),
        ("formats/portrait_grace_hopper.ppm", (128, 128)),
    ],
)
def test_real_files_are_read(corpus: Path, file: str, size: tuple[int, int]) -> None:
    assert probed((corpus / file).read_bytes()).size == Size(*size)


def test_a_comment_without_an_end_is_read_once() -> None:
    """Tried from each of its signs it would hold up the event loop."""
    with pytest.raises(CorruptMedia):
        probed(b"P3\n10 10\n255\n"[:2] + b"\n" + b"#" * 8_192)
