"""Tests of orientation: in every kind of metadata, as Pillow finds it, for the backends read with Pillow."""

import io
import struct
import warnings
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests.media.files import ORIENTATIONS, chunk, exif, jpeg_with, png_with, probed, quadrants, tiff
from tests.samples import encoded, jpeg, opened, png
from vlm_edge.media.probe import Probe
from vlm_edge.media.source import META_BYTES

properties = settings(deadline=None, max_examples=200)

XMP_NAME = b"http://ns.adobe.com/xap/1.0/\0"
PLAIN = exif(1).removeprefix(b"Exif\0\0")
SILENT = tiff([(271, 3, 7)])  # a block without an orientation


def exif_as_pillow(data: bytes) -> int:
    """The orientation that Pillow finds, 1 where it does nothing."""
    with warnings.catch_warnings(action="ignore"):
        found = opened(data).getexif().get(0x0112, 1)
    return int(found) if found in range(1, 9) else 1


def as_pillow(data: bytes) -> tuple[int, tuple[int, ...]]:
    """The same, and the size of what it turns."""
    return exif_as_pillow(data), ImageOps.exif_transpose(opened(data)).size


def seen(found: Probe) -> tuple[int, tuple[int, ...]]:
    return found.orientation, tuple(found.size)


def packet(orientation: object, *, element: bool = False) -> bytes:
    told = f"<tiff:Orientation>{orientation}</tiff:Orientation>" if element else f'tiff:Orientation="{orientation}"'
    return f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description {told}/></x:xmpmeta>'.encode()


def itxt(text: bytes, *, packed: bool = False, language: bytes = b"") -> bytes:
    content = zlib.compress(text) if packed else text
    return b"XML:com.adobe.xmp\0" + bytes([packed, 0]) + language + b"\0\0" + content


def raw_profile(block: bytes) -> bytes:
    """As ImageMagick writes it."""
    digits = block.hex()
    lines = "\n".join(digits[at : at + 72] for at in range(0, len(digits), 72))
    return f"\nexif\n{len(block):8}\n{lines}\n".encode()


def webp_with(**chunks: bytes) -> bytes:
    data = encoded(quadrants(96, 64), "WEBP", lossless=True, **chunks)
    assert data[12:16] == b"VP8X"
    return data


def tiff_with(xmp: bytes, *tags: tuple[int, int]) -> bytes:
    image = Image.new("L", (96, 64))
    return encoded(image, "TIFF", tiffinfo={700: xmp, **dict(tags)})


CARRIERS: dict[str, Callable[[bytes], bytes]] = {
    "JPEG": lambda xmp: jpeg_with(jpeg(96, 64), (0xE1, XMP_NAME + xmp)),
    "JPEG with a silent Exif": lambda xmp: jpeg_with(
        jpeg(96, 64), (0xE1, b"Exif\0\0" + SILENT), (0xE1, XMP_NAME + xmp)
    ),
    "JPEG with two packets": lambda xmp: jpeg_with(jpeg(96, 64), (0xE1, XMP_NAME + packet(3)), (0xE1, XMP_NAME + xmp)),
    "PNG": lambda xmp: png_with(png(96, 64), b"iTXt", itxt(xmp)),
    "PNG, compressed": lambda xmp: png_with(png(96, 64), b"iTXt", itxt(xmp, packed=True)),
    "PNG, with a language": lambda xmp: png_with(png(96, 64), b"iTXt", itxt(xmp, language=b"en")),
    "PNG, behind the pixels": lambda xmp: png_with(png(96, 64), b"iTXt", itxt(xmp), at_end=True),
    "PNG, as plain text": lambda xmp: png_with(png(96, 64), b"tEXt", b"XML:com.adobe.xmp\0" + xmp),
    "PNG, as packed text": lambda xmp: png_with(png(96, 64), b"zTXt", b"XML:com.adobe.xmp\0\0" + zlib.compress(xmp)),
    "PNG with a silent Exif": lambda xmp: png_with(png_with(png(96, 64), b"iTXt", itxt(xmp)), b"eXIf", SILENT),
    "WebP": lambda xmp: webp_with(xmp=xmp),
    "WebP with a silent Exif": lambda xmp: webp_with(xmp=xmp, exif=b"Exif\0\0" + SILENT),
    "TIFF": tiff_with,
}


@pytest.mark.parametrize("name", CARRIERS)
@pytest.mark.parametrize("orientation", [*ORIENTATIONS, 0, 9])
@pytest.mark.parametrize("element", [False, True], ids=["attribute", "element"])
def test_xmp_counts_where_exif_is_silent(name: str, orientation: int, *, element: bool) -> None:
    data = CARRIERS[name](packet(orientation, element=element))
    found, size = seen(probed(data))
    assert found == (orientation if 1 <= orientation <= 8 else 1)
    assert size == as_pillow(data)[1]


@pytest.mark.parametrize("name", CARRIERS)
def test_xmp_without_an_orientation_turns_nothing(name: str) -> None:
    data = CARRIERS[name](b"<x:xmpmeta/>")
    assert seen(probed(data))[1] == as_pillow(data)[1] == (96, 64)


@pytest.mark.parametrize("value", [1, 3, 0, 9])
def test_an_orientation_in_exif_counts_before_xmp_even_if_it_makes_no_sense(value: int) -> None:
    block = tiff([(274, 3, value)])
    files = [
        jpeg_with(jpeg(96, 64), (0xE1, b"Exif\0\0" + block), (0xE1, XMP_NAME + packet(6))),
        png_with(png_with(png(96, 64), b"iTXt", itxt(packet(6))), b"eXIf", block),
        webp_with(xmp=packet(6), exif=b"Exif\0\0" + block),
        tiff_with(packet(6), (274, value)),
    ]
    assert [probed(data).size for data in files] == [as_pillow(data)[1] for data in files] == [(96, 64)] * 4


def test_the_rest_of_a_long_packet_is_not_read() -> None:
    """Pillow does read it; the picture is then turned by no one, for its text makes it be written anew."""
    long = b"<!--" + bytes(2 * META_BYTES) + b"-->" + packet(6)
    data = png_with(png(96, 64), b"iTXt", itxt(long, packed=True))
    assert (probed(data).orientation, probed(data).packed_text) == (1, True)


def test_the_extended_packet_of_a_phone_is_not_taken_for_the_packet() -> None:
    data = jpeg_with(jpeg(96, 64), (0xE1, b"http://ns.adobe.com/xmp/extension/\0" + bytes(40) + packet(6)))
    assert seen(probed(data)) == as_pillow(data) == (1, (96, 64))


def test_an_exif_block_cut_into_segments_is_read_as_one() -> None:
    block = tiff([(271, 3, 7), (274, 3, 6)])
    data = jpeg_with(jpeg(96, 64), (0xE1, b"Exif\0\0" + block[:20]), (0xE1, b"Exif\0\0" + block[20:]))
    assert seen(probed(data)) == as_pillow(data) == (6, (64, 96))


@pytest.mark.parametrize("kind", [b"tEXt", b"zTXt"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_the_exif_text_of_imagemagick_is_read(kind: bytes, orientation: int) -> None:
    text = raw_profile(exif(orientation))
    content = text if kind == b"tEXt" else b"\0" + zlib.compress(text)
    data = png_with(png(96, 64), kind, b"Raw profile type exif\0" + content)
    assert seen(probed(data)) == as_pillow(data)
    assert probed(data).orientation == orientation


def test_a_chunk_of_exif_counts_before_the_text_of_imagemagick() -> None:
    text = b"Raw profile type exif\0" + raw_profile(exif(6))
    data = png_with(png_with(png(96, 64), b"tEXt", text), b"eXIf", PLAIN)
    assert seen(probed(data)) == as_pillow(data) == (1, (96, 64))


def test_what_pillow_does_not_read_turns_nothing() -> None:
    text = b"Raw profile type APP1\0" + raw_profile(exif(6))
    data = png_with(png(96, 64), b"tEXt", text)
    assert seen(probed(data)) == as_pillow(data) == (1, (96, 64))


def test_of_two_blocks_the_last_counts_in_png_and_the_first_in_webp() -> None:
    twice = png_with(png_with(png(96, 64), b"eXIf", exif(6)[6:]), b"eXIf", exif(3)[6:], at_end=True)
    assert seen(probed(twice)) == as_pillow(twice) == (3, (96, 64))
    one = webp_with(exif=exif(6))
    again = exif(3) + b"\0" * (len(exif(3)) % 2)
    both = one + b"EXIF" + struct.pack("<I", len(again)) + again
    both = both[:4] + struct.pack("<I", len(both) - 8) + both[8:]
    assert seen(probed(both)) == as_pillow(both) == (6, (64, 96))


# Damaged metadata

DAMAGED = [b"XX", b"XXXXXXXXXXXX", b"II*", b"II*\0\x08", b"II\0\0\x08\0\0\0", b"II+\0\x08\0\0\0" + bytes(20)]


@pytest.mark.parametrize("block", DAMAGED)
def test_a_block_at_which_pillow_gives_up_is_told(block: bytes) -> None:
    data = png_with(png(96, 64), b"eXIf", block)
    with pytest.raises((SyntaxError, struct.error)):
        ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert (probed(data).bad_metadata, probed(data).size) == (True, (96, 64))
    assert probed(webp_with(exif=b"Exif\0\0" + block)).bad_metadata
    assert probed(jpeg_with(jpeg(96, 64), (0xE1, b"Exif\0\0" + block))).bad_metadata


def test_a_damaged_text_of_imagemagick_is_told() -> None:
    data = png_with(png(96, 64), b"tEXt", b"Raw profile type exif\0\nexif\n  4\nno digits")
    with pytest.raises(ValueError, match="fromhex"):
        ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert (probed(data).bad_metadata, probed(data).size) == (True, (96, 64))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_good_metadata_are_told_from_bad(kind: str) -> None:
    assert not probed(encoded(quadrants(96, 64), kind)).bad_metadata
    assert not probed(encoded(quadrants(96, 64), kind, exif=exif(6))).bad_metadata


@properties
@given(st.binary(max_size=200), st.booleans())
def test_any_packet_leaves_a_picture_readable(xmp: bytes, packed: bool) -> None:
    for data in (
        png_with(png(96, 64), b"iTXt", itxt(xmp, packed=packed)),
        png_with(png(96, 64), b"iTXt", b"XML:com.adobe.xmp\0" + xmp),
        png_with(png(96, 64), b"zTXt", b"Raw profile type exif\0" + xmp),
        png_with(png(96, 64), b"tEXt", b"Raw profile type exif\0" + xmp),
        jpeg_with(jpeg(96, 64), (0xE1, XMP_NAME + xmp)),
        png(96, 64)[:33] + chunk(b"iTXt", xmp) + png(96, 64)[33:],
    ):
        assert set(probed(data).size) == {96, 64}


ENTRIES = st.tuples(
    st.sampled_from([274, 274, 270, 271, 282, 700]),
    st.integers(0, 17) | st.just(3),
    st.integers(0, 3) | st.sampled_from([30, 70_000]),
    st.sampled_from([bytes([6, 0, 0, 0]), bytes([0, 6, 0, 0]), bytes([0, 0, 0, 6]), struct.pack("<f", 6.0)])
    | st.integers(0, 120).map(lambda at: struct.pack("<I", at))
    | st.binary(min_size=4, max_size=4),
)


def block_of(order: str, entries: list[tuple[int, int, int, bytes]], rest: bytes, missing: int) -> bytes:
    magic = b"II*\0" if order == "<" else b"MM\0*"
    fields = b"".join(struct.pack(order + "HHI", *entry[:3]) + entry[3] for entry in entries)
    return magic + struct.pack(order + "IH", 8, len(entries) + missing) + fields + rest


@settings(deadline=None, max_examples=600)
@given(st.sampled_from("<>"), st.lists(ENTRIES, max_size=5), st.binary(max_size=60), st.sampled_from([0, 0, 1, 400]))
def test_any_directory_is_read_as_pillow_reads_it(
    order: str, entries: list[tuple[int, int, int, bytes]], rest: bytes, missing: int
) -> None:
    block = block_of(order, entries, rest, missing)
    data = png_with(png_with(png(96, 64), b"iTXt", itxt(packet(8))), b"eXIf", block)
    assert probed(data).orientation == exif_as_pillow(data)
    assert not probed(data).bad_metadata
