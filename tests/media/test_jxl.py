"""Tests of the headers of JPEG XL."""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests.media.files import box, exif, probed, quadrants
from tests.samples import encoded, opened
from vlm_edge.errors import CorruptMedia

SIGNATURE = b"\0\0\0\x0cJXL \r\n\x87\n"


class Fields:
    """Bits as the format has them: the lowest first."""

    def __init__(self) -> None:
        self.bits = ""

    def put(self, value: int, bits: int) -> "Fields":
        self.bits += format(value, f"0{bits}b")[::-1] if bits else ""
        return self

    def choice(self, way: int, value: int, bits: int) -> "Fields":
        return self.put(way, 2).put(value, bits)

    @property
    def data(self) -> bytes:
        padded = self.bits + "0" * (-len(self.bits) % 8)
        return b"\xff\x0a" + bytes(int(padded[at : at + 8][::-1], 2) for at in range(0, len(padded), 8)) + bytes(40)


def small(height: int, width: int = 0, *, ratio: int = 0) -> Fields:
    """Of sides that are multiples of eight up to 256."""
    fields = Fields().put(1, 1).put(height // 8 - 1, 5).put(ratio, 3)
    return fields if ratio else fields.put(width // 8 - 1, 5)


def saved(image: Image.Image, **options: Any) -> bytes:
    pytest.importorskip("pillow_jxl")
    return encoded(image, "JXL", **options)


def decoded(data: bytes) -> Image.Image:
    """Upright. A JPEG that was packed comes out as the JPEG it was, of which Exif says how it is turned."""
    image = opened(data)
    return ImageOps.exif_transpose(image) if image.jpeg else image  # type: ignore[attr-defined]


RATIOS = {1: (240, 240), 2: (288, 240), 3: (320, 240), 4: (360, 240), 5: (426, 240), 6: (300, 240), 7: (480, 240)}


@pytest.mark.parametrize(("ratio", "size"), RATIOS.items())
def test_a_width_may_be_a_ratio_of_the_height(ratio: int, size: tuple[int, int]) -> None:
    assert probed(small(240, ratio=ratio).put(1, 1).data).size == size


@pytest.mark.parametrize(("way", "bits"), [(0, 9), (1, 13), (2, 18), (3, 30)])
def test_every_length_of_a_side_is_read(way: int, bits: int) -> None:
    fields = Fields().put(0, 1).choice(way, (1 << bits) - 1, bits).put(0, 3).choice(way, 4, bits).put(1, 1)
    assert probed(fields.data).size == (5, 1 << bits)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_is_upright(orientation: int) -> None:
    described = small(64, 96).put(0, 1).put(1, 1).put(orientation - 1, 3)
    found = probed(described.data)
    assert (found.size, found.orientation) == ((96, 64) if orientation < 5 else (64, 96), 1)


def test_an_animation_is_told_behind_all_that_may_come_before() -> None:
    fields = small(64, 96).put(0, 1).put(1, 1).put(0, 3)
    fields.put(1, 1).put(1, 1).put(9, 5).put(1, 3)  # a size to be shown at
    fields.put(1, 1).put(0, 1).choice(1, 7, 8).put(0, 3).choice(2, 7, 10)  # a preview
    fields.put(1, 1).choice(2, 24, 10).choice(0, 0, 0).choice(1, 3, 3).put(0, 1)
    found = probed(fields.put(0, 1).choice(0, 0, 0).put(1, 1).choice(1, 0, 0).put(1, 1).data)
    assert (found.size, found.animated, found.alpha) == ((96, 64), True, True)


@pytest.mark.parametrize("size", [(1, 1), (97, 61), (300, 2), (2, 300), (256, 128), (1600, 900), (640, 480)])
@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
@pytest.mark.parametrize("boxed", [True, False])
def test_the_size_is_the_one_that_its_decoder_sees(size: tuple[int, int], mode: str, *, boxed: bool) -> None:
    data = saved(quadrants(*size).convert(mode), use_container=boxed)
    assert data.startswith(SIGNATURE) == boxed
    found = probed(data)
    assert (found.media_type, found.size) == ("image/jxl", opened(data).size)
    assert (found.alpha, found.animated, found.orientation) == (mode.endswith("A"), False, 1)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
@pytest.mark.parametrize("lossless", [True, False])
def test_what_is_lossless_is_told(mode: str, *, lossless: bool) -> None:
    assert probed(saved(quadrants(96, 64).convert(mode), lossless=lossless)).lossless == lossless


def test_the_exif_block_of_a_container_turns_nothing() -> None:
    data = saved(quadrants(96, 64), exif=exif(6))
    assert (probed(data).orientation, probed(data).size) == (1, opened(data).size)


@given(st.lists(st.integers(0, 12), max_size=6))
@settings(deadline=None)
def test_a_codestream_cut_into_boxes_is_read_as_one(lengths: list[int]) -> None:
    stream, boxes = small(64, 96).put(1, 1).data, b""
    for index, length in enumerate(lengths):
        boxes += box(b"jxlp", struct.pack(">I", index), stream[:length])
        stream = stream[length:]
    data = SIGNATURE + box(b"ftyp", b"jxl ", bytes(4), b"jxl ") + boxes + box(b"jxlp", b"\x80\0\0\x09", stream)
    assert probed(data).size == (96, 64)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(SIGNATURE, id="no boxes"),
        pytest.param(SIGNATURE + box(b"jxlc", b"GIF89a"), id="another stream"),
        pytest.param(SIGNATURE + box(b"jxlp", b"\0"), id="an empty part"),
        pytest.param(b"\xff\x0a\0", id="cut short"),
    ],
)
def test_a_file_without_a_size_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptMedia):
        probed(data)


def test_real_files_have_the_size_of_what_their_decoder_makes_of_them(corpus: Path) -> None:
    pytest.importorskip("pillow_jxl")
    files = sorted((corpus / "formats").glob("*.jxl"))
    assert len(files) >= 4
    for file in files:
        data = file.read_bytes()
        assert (file.name, probed(data).size) == (file.name, decoded(data).size)


def test_a_real_animation_is_told(corpus: Path) -> None:
    assert probed((corpus / "formats" / "animation_newtons_cradle.jxl").read_bytes()).animated
