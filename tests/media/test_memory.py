"""Tests of how much memory a decoder is said to need: by measuring what it takes, and by what must not change it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.media.files import animated, noise, pages, probed, quadrants, tiff
from tests.samples import encoded
from vlm_edge.geometry import Size

LARGE_SIZE, SMALL_SIZE = Size(4_000, 2_600), Size(32, 32)
MEBIBYTE = 1 << 20

# Prints the memory that a process takes at most while it decodes a file, beside what it took before.
PEAK = """
import sys
from pathlib import Path

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

small, large = (Path(name).read_bytes() for name in sys.argv[2:])
if sys.argv[1] == "vips":
    import pyvips
    pyvips.cache_set_max(0)
    pyvips.concurrency_set(1)
    def decode(data):
        header = pyvips.Image.new_from_buffer(data, "")
        image = pyvips.Image.thumbnail_buffer(data, max(1, header.width // 3), no_rotate=True)
        image.flatten(background=255) if image.hasalpha() else image
        image.colourspace("srgb").cast("uchar").jpegsave_buffer()
    beside = len(large)  # pyvips copies the file
else:
    from vlm_edge.media.pillow import decode as decoded
    from vlm_edge.media.probe import probe
    from vlm_edge.media.source import Bytes
    def decode(data):
        decoded(data, probe(Bytes(data)))
    beside = 0
decode(small)
before = peak()
decode(large)
print((peak() - before) * 1024 - beside)
"""


def soft(size: Size, mode: str = "RGB") -> Image.Image:
    """A picture that encodes soon and small."""
    image = noise(40, 30).resize(size, Image.Resampling.BICUBIC)
    return image.convert(mode)


def by_vips(size: Size, suffix: str, **options: Any) -> bytes:
    import pyvips

    image = pyvips.Image.new_from_memory(soft(size).tobytes(), *size, 3, "uchar")
    written: bytes = image.copy(interpretation="srgb").write_to_buffer(suffix, **options)
    return written


Writer = Callable[[Size], bytes]

LARGE: dict[str, tuple[str, Writer]] = {
    "progressive JPEG": ("vips", lambda size: encoded(soft(size), "JPEG", progressive=True, subsampling=0)),
    "progressive JPEG, 4:2:0": ("vips", lambda size: encoded(soft(size), "JPEG", progressive=True)),
    "interlaced PNG": ("vips", lambda size: by_vips(size, ".png", interlace=True, compression=1)),
    "lossless WebP": ("vips", lambda size: encoded(soft(size), "WEBP", lossless=True, quality=0, method=0)),
    "GIF": ("vips", lambda size: encoded(soft(size, "L"), "GIF")),
    "TIFF in one strip": ("vips", lambda size: one_strip(size)),
    "AVIF": ("vips", lambda size: encoded(soft(size), "AVIF", speed=10)),
    "BMP": ("pillow", lambda size: encoded(soft(size), "BMP")),
    "PPM": ("pillow", lambda size: encoded(soft(size), "PPM")),
    "PGM": ("pillow", lambda size: encoded(soft(size, "L"), "PPM")),
    "JPEG 2000 in tiles": ("pillow", lambda size: encoded(soft(size), "JPEG2000", tile_size=(512, 512))),
    "JPEG XL": ("pillow", lambda size: jxl(size)),
}


def one_strip(size: Size) -> bytes:
    tags = {317: 2}  # differences are packed, which makes it small
    options: dict[str, Any] = {"strip_size": 3 * size.pixels + 1, "tiffinfo": tags}
    return encoded(soft(size), "TIFF", compression="tiff_lzw", **options)


def jxl(size: Size) -> bytes:
    pytest.importorskip("pillow_jxl")
    return encoded(soft(size), "JXL", effort=1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what a process took")
@pytest.mark.parametrize("name", LARGE)
def test_a_decoder_takes_about_as_much_as_is_said(name: str, tmp_path: Path) -> None:
    road, write = LARGE[name]
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(write(SMALL_SIZE))
    large.write_bytes(write(LARGE_SIZE))
    printed = subprocess.run(
        [sys.executable, "-c", PEAK, road, small, large], capture_output=True, check=True, timeout=120
    )
    measured = int(printed.stdout)
    assert measured > 20 * MEBIBYTE
    assert 0.7 * measured < probed(large.read_bytes()).memory_bytes < 1.7 * measured


PLAIN: dict[str, Writer] = {
    "JPEG": lambda size: encoded(soft(size), "JPEG"),
    "PNG": lambda size: encoded(soft(size), "PNG", compress_level=1),
    "TIFF": lambda size: encoded(soft(size), "TIFF", compression="tiff_lzw"),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_a_plain_file_takes_no_more_when_it_is_longer(kind: str) -> None:
    shorter, longer = (probed(PLAIN[kind](Size(200, height))).memory_bytes for height in (3_000, 9_000))
    assert 0 < longer <= 1.5 * shorter < 200 * 3_000 * 3 * 1.5


def test_a_jpeg_in_several_scans_is_held_whole() -> None:
    data = encoded(quadrants(960, 640), "JPEG", subsampling=0)
    at = data.index(b"\xff\xda")
    alone = data[: at + 4] + b"\1" + data[at + 5 :]  # its first scan has one component of the three
    assert probed(alone).memory_bytes - probed(data).memory_bytes == 960 * 640 * 3 * 2


def test_what_an_animation_takes_is_counted_with_the_frame_before() -> None:
    assert probed(animated("WEBP")).memory_bytes == 2 * 4 * 40 * 30


def test_numbers_that_are_no_colours_are_held_whole() -> None:
    grey = Image.new("F", (900, 3_000))
    assert probed(encoded(grey, "TIFF")).memory_bytes >= 900 * 3_000 * 4
    assert probed(encoded(grey.convert("L"), "TIFF")).memory_bytes < 900 * 3_000


def test_a_hostile_size_is_told_as_it_is() -> None:
    assert probed(tiff([(256, 4, 2**31), (257, 4, 2**31), (339, 3, 3), (258, 3, 32)])).memory_bytes > 2**60


def test_a_document_is_opened_before_anything_is_known_of_its_memory() -> None:
    assert probed(b"%PDF-1.7\n").memory_bytes == 0
    assert probed(pages(2)).memory_bytes > 0
