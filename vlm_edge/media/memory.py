"""
Memory: what the decoder of a file holds at once, beside the file itself, as far as the headers tell.

Estimates from above, of the decoder that we use: libvips shrinking a picture while it reads it, or Pillow and a Raster.
Measured on pictures of 50 million pixels, as the peak of a process; the numbers stand beside the formulas, in MiB.
"""

from vlm_edge.geometry import Size
from vlm_edge.media.bitmap import Bitmap
from vlm_edge.media.gif import Gif
from vlm_edge.media.isobmff import Primary
from vlm_edge.media.jpeg import Jpeg
from vlm_edge.media.jpeg2000 import Jpeg2000
from vlm_edge.media.jxl import Jxl
from vlm_edge.media.png import Png
from vlm_edge.media.tiff import UNCOMPRESSED, UNKNOWN, UNSIGNED, Page
from vlm_edge.media.webp import Webp

# libvips keeps about so many rows at once, of eight bits.
ROWS = 2_304
# A JPEG is shrunk before it is in memory.
JPEG_ROWS, JPEG_WIDTH = 1_024, 16_384


def _streamed(size: Size, samples: int) -> int:
    """RGB 50, of 16 bits 64; 38,880 pixels wide 152; here 57, 57, 142"""
    return size.width * samples * min(size.height, ROWS)


def _pillow(size: Size, *, grey: bool, alpha: bool = False) -> int:
    """Its picture, the same in another mode, and a Raster. Grey 142, RGB 475, a palette 523; here 166, 499, 499"""
    each = 3.5 if grey else 12.5 if alpha else 10.5
    return int(size.pixels * each)


def jpeg(found: Jpeg) -> int:
    """Plain 10 to 42; progressive 4:2:0 153 to 184, 4:4:4 295 to 327, grey 99 to 109; here 25, 168, 310, 103"""
    size, components = found.frame.size, found.frame.components
    rows = min(size.width, JPEG_WIDTH) * len(components) * min(size.height, JPEG_ROWS)
    return rows + (_coefficients(found) if found.whole else 0)


def _coefficients(found: Jpeg) -> int:
    """Of two bytes, as many as each component has samples."""
    components = found.frame.components
    full = max((one.across for one in components), default=1) * max((one.down for one in components), default=1)
    return sum(2 * found.frame.size.pixels * one.across * one.down // full for one in components)


def png(found: Png) -> int:
    """Interlaced grey 60, palette 179, RGB 178, RGBA 243, RGB of 16 bits 323; here 66, 199, 199, 266, 342"""
    whole = found.size.pixels * found.samples * (2 if found.depth > 8 else 1) if found.interlaced else 0
    return whole + _streamed(found.size, found.samples)


def webp(found: Webp) -> int:
    """Decoded whole. Of 110 million pixels 8.3 bytes each."""
    return found.size.pixels * 8


def gif(found: Gif) -> int:
    """The canvas in RGBA, and a frame of indices. 239, of 12 million pixels 73; here 294, 85. By Pillow twice that."""
    return found.size.pixels * (10 if found.inset else 5) + _streamed(found.size, 3)


def tiff(found: Page) -> int:
    """LZW 50, of 16 bits 65, in one strip 86; tiles of 2048x2048 153; float 621; here 57, 57, 91, 174, 627"""
    streamed = _streamed(found.size, found.samples)
    if found.number not in (UNSIGNED, UNKNOWN):
        return found.size.pixels * found.samples * max(4, found.bits // 8) + streamed
    if found.tile is None:
        # A strip is held as it is in the file, and decoded row by row.
        return streamed + (0 if found.compression == UNCOMPRESSED else found.strip_bytes)
    row = Size(found.size.width + found.tile.width, found.tile.height)
    return 2 * row.pixels * found.samples * -(-found.bits // 8) + streamed


def avif(found: Primary) -> int:
    """By libheif. AVIF 4:2:0 730, 4:4:4 875, grey 705, with alpha 786, of ten bits 878; here 855"""
    return found.size.pixels * 18


def heic(found: Primary) -> int:
    """300, here 332"""
    return found.size.pixels * (9 if found.alpha else 7)


def avif_sequence(found: Primary) -> int:
    """577, with alpha 737; here 665, 760"""
    return found.size.pixels * (16 if found.alpha else 14)


def bitmap(found: Bitmap) -> int:
    return _pillow(found.size, grey=found.grey, alpha=found.alpha)


def jpeg2000(found: Jpeg2000) -> int:
    """A tile in 32 bits as well. Grey 291, RGB 918, in tiles of 1024x1024 475; here 356, 1069, 511"""
    whole = _pillow(found.size, grey=found.components < 3, alpha=found.alpha)
    return whole + 4 * found.components * min(found.tile.pixels, found.size.pixels)


def jxl(found: Jxl) -> int:
    """Grey 182, of 16 bits 213, RGB 312, with alpha 401; here 214, 214, 332, 427"""
    return int(found.size.pixels * (4.5 if found.grey else 9 if found.alpha else 7))
