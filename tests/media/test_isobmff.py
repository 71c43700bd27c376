"""Tests of the sizes of HEIF files: AVIF, AVIF sequences and HEIC."""

import io
import struct
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.media.files import ORIENTATIONS, box, exif, probed, quadrants
from tests.samples import encoded, opened
from vlm_edge.errors import CorruptMedia, UnsupportedMedia

AVIF = encoded(quadrants(96, 64), "AVIF")


def film(width: int, height: int) -> bytes:
    frames = [quadrants(width, height).rotate(turn) for turn in (0, 180)]
    return encoded(frames[0], "AVIF", save_all=True, append_images=frames[1:])


def heic(image: Image.Image, **options: Any) -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif")
    file = io.BytesIO()
    pillow_heif.from_pillow(image).save(file, **options)
    return file.getvalue()


def seen_by_libheif(data: bytes) -> Image.Image:
    pillow_heif = pytest.importorskip("pillow_heif")
    found: Image.Image = pillow_heif.open_heif(data).to_pillow()
    return found


# AVIF sequences


@pytest.mark.parametrize("size", [(96, 64), (97, 61), (2, 300)])
def test_a_film_has_the_size_of_its_frames(size: tuple[int, int]) -> None:
    data = film(*size)
    assert data[8:12] == b"avis"
    found = probed(data)
    assert (found.media_type, found.animated, found.orientation) == ("image/avif", True, 1)
    assert found.size == opened(data).size == size


def test_a_still_avif_is_not_animated() -> None:
    assert (probed(AVIF).media_type, probed(AVIF).animated) == ("image/avif", False)


def test_the_alpha_of_a_film_is_told() -> None:
    clear = [quadrants(96, 64).convert("RGBA") for _ in range(2)]
    for index, frame in enumerate(clear):
        frame.putalpha(Image.linear_gradient("L").rotate(180 * index).resize((96, 64)))
    assert probed(encoded(clear[0], "AVIF", save_all=True, append_images=clear[1:])).alpha
    assert not probed(film(96, 64)).alpha


@pytest.mark.parametrize("version", [0, 1])
def test_both_layouts_of_a_track_header_are_read(version: int) -> None:
    times = bytes(32 if version else 20)
    header = bytes([version, 0, 0, 0]) + times + bytes(8 + 8 + 36) + struct.pack(">II", 40 << 16, 30 << 16)
    handler = box(b"hdlr", bytes(8), b"pict", bytes(13))
    entry = box(b"av01", bytes(78), box(b"irot", b"\1"))
    table = box(b"minf", box(b"stbl", box(b"stsd", bytes(7) + b"\1", entry)))
    track = box(b"trak", box(b"tkhd", header), box(b"mdia", handler, table))
    data = box(b"ftyp", b"avis", bytes(4)) + box(b"moov", track)
    assert probed(data).size == (30, 40)


def test_a_film_without_pictures_is_corrupt() -> None:
    sound = box(b"trak", box(b"mdia", box(b"hdlr", bytes(8), b"soun", bytes(13))))
    with pytest.raises(CorruptMedia, match="no pictures"):
        probed(box(b"ftyp", b"avis", bytes(4)) + box(b"moov", sound))


# HEIC

BRANDS = [b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"]


@pytest.mark.parametrize("brand", BRANDS)
def test_the_brands_of_heic_are_known(brand: bytes) -> None:
    start = struct.pack(">I", 20) + b"ftyp" + brand + bytes(4) + b"heic"
    data = start + AVIF[struct.unpack(">I", AVIF[:4])[0] :]
    assert (probed(data).media_type, probed(data).size) == ("image/heic", (96, 64))


def test_a_file_that_says_it_is_avif_among_others_is_avif() -> None:
    start = struct.pack(">I", 24) + b"ftypmif1" + bytes(4) + b"miafavif"
    data = start + AVIF[struct.unpack(">I", AVIF[:4])[0] :]
    assert probed(data).media_type == "image/avif"


def test_other_brands_are_videos() -> None:
    with pytest.raises(UnsupportedMedia, match="found a video"):
        probed(struct.pack(">I", 20) + b"ftypqt  " + bytes(100))


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_heic_has_the_size_of_what_libheif_makes_of_it(orientation: int) -> None:
    data = heic(quadrants(96, 64), exif=exif(orientation))
    found = probed(data)
    assert (found.media_type, found.orientation, found.lossless) == ("image/heic", 1, False)
    assert found.size == seen_by_libheif(data).size


def test_the_alpha_of_a_heic_is_told() -> None:
    clear = quadrants(96, 64).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize((96, 64)))
    assert probed(heic(clear)).alpha
    assert not probed(heic(quadrants(96, 64))).alpha


def test_real_files_have_the_size_of_what_libheif_makes_of_them(corpus: Path) -> None:
    files = sorted(file for file in (corpus / "formats").iterdir() if file.suffix in (".heic", ".heif"))
    assert len(files) >= 4
    for file in files:
        data = file.read_bytes()
        assert (file.name, probed(data).size) == (file.name, seen_by_libheif(data).size)
