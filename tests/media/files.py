"""Files that no encoder writes, put together by hand; and pictures that tell which way is up."""

import struct
import zlib
from random import Random
from typing import Any

from PIL import Image, ImageOps

from tests.samples import encoded, opened
from vlm_edge.media.probe import Probe, probe
from vlm_edge.media.source import Bytes

STILL = ("JPEG", "PNG", "WEBP", "TIFF", "AVIF", "GIF")
TURNABLE = ("JPEG", "PNG", "WEBP", "TIFF", "AVIF")
ORIENTATIONS = range(1, 9)


def probed(data: bytes) -> Probe:
    return probe(Bytes(data))


def quadrants(width: int, height: int) -> Image.Image:
    """Red and green above, blue and yellow below: each way of turning it looks different."""
    image = Image.new("RGB", (2, 2))
    for at, colour in zip(((0, 0), (1, 0), (0, 1), (1, 1)), ("red", "lime", "blue", "yellow"), strict=True):
        image.paste(colour, (*at, at[0] + 1, at[1] + 1))
    return image.resize((width, height), Image.Resampling.NEAREST)


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A picture that does not compress, so that a cut anywhere takes pixels away."""
    size = width * height * len(Image.new(mode, (1, 1)).getbands())
    return Image.frombytes(mode, (width, height), Random(7).randbytes(size))


def exif(orientation: int) -> bytes:
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes()


def turned(kind: str, orientation: int, width: int = 96, height: int = 64) -> bytes:
    """A picture with this Exif orientation."""
    return encoded(quadrants(width, height), kind, exif=exif(orientation), **{"quality": 95} if kind != "TIFF" else {})


def upright(data: bytes) -> Image.Image:
    """The picture as Pillow turns it, in RGB."""
    return ImageOps.exif_transpose(opened(data)).convert("RGB")


def jpeg_with(data: bytes, *segments: tuple[int, bytes]) -> bytes:
    """A JPEG with more segments (marker, content) at its beginning."""
    written = [struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content for marker, content in segments]
    return data[:2] + b"".join(written) + data[2:]


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_with(data: bytes, kind: bytes, content: bytes, *, at_end: bool = False) -> bytes:
    """A PNG with one more chunk, behind its header or before its end."""
    at = len(data) - 12 if at_end else 33
    return data[:at] + chunk(kind, content) + data[at:]


def png_header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def deep_png(pixels: list[list[tuple[int, ...]]]) -> bytes:
    """A PNG of sixteen bits a channel, which Pillow writes for grey alone."""
    channels = len(pixels[0][0])
    rows = b"".join(b"\0" + b"".join(struct.pack(f">{channels}H", *pixel) for pixel in row) for row in pixels)
    header = png_header(len(pixels[0]), len(pixels), 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels])
    return header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def animated(kind: str) -> bytes:
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue", "yellow")]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=100)


def pages(count: int) -> bytes:
    images = [Image.new("L", (40 + page, 30), page * 20) for page in range(count)]
    return encoded(images[0], "TIFF", save_all=True, append_images=images[1:])


def tiff(tags: list[tuple[int, int, int]], *, order: str = "<") -> bytes:
    """A TIFF that is nothing but its directory: (tag, type, value)."""
    magic = b"II*\0" if order == "<" else b"MM\0*"
    fields = [struct.pack(f"{order}HHI", tag, kind, 1) + _field(order, kind, value) for tag, kind, value in tags]
    directory = struct.pack(f"{order}H", len(tags)) + b"".join(fields) + bytes(4)
    return magic + struct.pack(f"{order}I", 8) + directory


def _field(order: str, kind: int, value: int) -> bytes:
    return struct.pack(f"{order}HH", value, 0) if kind == 3 else struct.pack(f"{order}I", value)


def box(kind: bytes, *contents: bytes) -> bytes:
    content = b"".join(contents)
    return struct.pack(">I4s", len(content) + 8, kind) + content


# A colour profile with the primaries of Display P3 and a plain gamma: what wide-gamut phones attach to their photos.


def wide_profile(name: str = "A wide one") -> bytes:
    primaries = {
        b"rXYZ": (0.5151, 0.2412, -0.0011),
        b"gXYZ": (0.2920, 0.6922, 0.0419),
        b"bXYZ": (0.1571, 0.0666, 0.7841),
    }
    tags: dict[bytes, bytes] = {
        b"desc": b"desc" + bytes(4) + struct.pack(">I", len(name) + 1) + name.encode() + bytes(1 + 4 + 4 + 2 + 1 + 67),
        b"cprt": b"text" + bytes(4) + b"none\0",
        b"wtpt": _xyz(0.9642, 1.0, 0.8249),
        **{tag: _xyz(*values) for tag, values in primaries.items()},
        **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), b"curv" + bytes(4) + struct.pack(">IH", 1, round(2.2 * 256))),
    }
    offset, table, body = 128 + 4 + 12 * len(tags), b"", b""
    for tag, content in tags.items():
        table += struct.pack(">4sII", tag, offset + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    header = struct.pack(
        ">I4sI4s4s4s12s4s", offset + len(body), bytes(4), 0x02400000, b"mntr", b"RGB ", b"XYZ ", bytes(12), b"acsp"
    )
    header += bytes(28) + struct.pack(">III", *(round(value * 65_536) for value in (0.9642, 1.0, 0.8249))) + bytes(48)
    return header + struct.pack(">I", len(tags)) + table + body


def _xyz(*values: float) -> bytes:
    return b"XYZ " + bytes(4) + struct.pack(">iii", *(round(value * 65_536) for value in values))


def pixel(image: Image.Image, x: float, y: float) -> Any:
    """The colour at this part of the width and height."""
    return image.getpixel((int(image.width * x), int(image.height * y)))
