"""Tests of the headers of JPEG 2000."""

import io
import struct
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.media.files import box, probed, quadrants
from tests.samples import encoded, opened, picture
from vlm_edge.errors import CorruptMedia

SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"


def codestream(*, right: int, lower: int, left: int = 0, upper: int = 0) -> bytes:
    sizes = struct.pack(">8I", right, lower, left, upper, right, lower, 0, 0)
    return b"\xff\x4f\xff\x51" + struct.pack(">HH", 41, 0) + sizes + struct.pack(">H", 1) + b"\7\1\1"


@pytest.mark.parametrize("boxed", [True, False])
@pytest.mark.parametrize("size", [(1, 1), (97, 61), (300, 2), (2, 300)])
def test_the_size_is_the_one_that_pillow_sees(size: tuple[int, int], *, boxed: bool) -> None:
    data = encoded(quadrants(*size), "JPEG2000", no_jp2=not boxed)
    assert data.startswith(SIGNATURE) == boxed
    found = probed(data)
    assert (found.media_type, found.size) == ("image/jp2", opened(data).size) == ("image/jp2", size)
    assert (found.orientation, found.lossless) == (1, False)


def test_a_picture_at_an_offset_on_its_canvas_has_its_own_size() -> None:
    data = codestream(right=116, lower=74, left=20, upper=10)
    assert probed(data).size == Image.open(io.BytesIO(data)).size == (96, 64)


@pytest.mark.parametrize(("mode", "alpha"), [("L", False), ("LA", True), ("RGB", False), ("RGBA", True)])
@pytest.mark.parametrize("boxed", [True, False])
def test_its_alpha_is_told(mode: str, *, alpha: bool, boxed: bool) -> None:
    image = picture(40, 30, mode)
    assert probed(encoded(image, "JPEG2000", no_jp2=not boxed)).alpha == alpha


def test_a_jp2_cut_short_behind_its_header_is_read() -> None:
    data = encoded(quadrants(96, 64), "JPEG2000")
    assert probed(data[: data.index(b"jp2c") + 20]).size == (96, 64)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(codestream(right=20, lower=20, left=20), id="no width"),
        pytest.param(codestream(right=20, lower=20, left=30), id="a width below nothing"),
        pytest.param(SIGNATURE + box(b"jp2c", codestream(right=20, lower=20)), id="no header"),
        pytest.param(SIGNATURE + box(b"jp2h", box(b"colr", bytes(7))), id="a header without a size"),
        pytest.param(codestream(right=20, lower=20)[:20], id="cut short"),
    ],
)
def test_a_file_without_a_size_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptMedia):
        probed(data)


@pytest.mark.parametrize("name", ["cevennes.jp2", "relax.jp2", "test_card_lossless.jp2"])
def test_real_files_are_read(corpus: Path, name: str) -> None:
    data = (corpus / "formats" / name).read_bytes()
    assert probed(data).size == opened(data).size


@pytest.mark.parametrize("options", [{}, {"tile_size": (32, 32)}])
def test_a_tiled_picture_is_decoded_in_less_memory(options: dict[str, Any]) -> None:
    found = probed(encoded(quadrants(960, 640), "JPEG2000", **options))
    assert (found.memory_bytes < 20 * found.size.pixels) == bool(options)
