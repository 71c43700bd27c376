"""
Probe: what the headers of a file say, read from as few bytes as they take. No image library, no pixels.

The true type comes from the magic bytes, never from a label or a name. Layouts: JPEG (ITU T.81), PNG 3rd ed., RFC 9649
(WebP), GIF89a.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator

import msgspec

from vlm_edge.errors import CorruptMedia, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.media import isobmff, tiff
from vlm_edge.media.source import HEAD_BYTES, Reader, Source

# Of a PNG or WebP so many chunks are looked at; what stands behind them is not needed.
MAX_CHUNKS = 3_000


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    media_type: str
    size: Size  # upright: as a person sees it
    file_bytes: int
    orientation: int = 1  # of the Exif tag, 1 to 8; already applied in `size`
    pages: int = 1
    animated: bool = False
    alpha: bool = False
    lossless: bool = False
    # Eight bits, grey or RGB, in sRGB as far as the headers tell: no colour has to be converted.
    srgb: bool = False
    # Text compressed within a PNG: small here, it may be large for who opens the file.
    packed_text: bool = False

    @property
    def upright(self) -> bool:
        return self.orientation == 1


def probe(source: Source) -> Probe:
    """Read the headers. Raises UnsupportedMedia for what is no known picture, CorruptMedia for what breaks off."""
    file = Reader(source)
    if not file.size:
        raise CorruptMedia("it is empty")
    for magic, read in READERS:
        if magic.match(file.head):
            return _read(read, file)
    raise UnsupportedMedia(_name_of(file.head))


_Read = Callable[[Reader], Probe]


def _read(read: _Read, file: Reader) -> Probe:
    try:
        found = read(file)
    except (struct.error, IndexError):
        raise CorruptMedia("its headers are damaged") from None
    if min(found.size) < 1:
        raise CorruptMedia("its headers give it no width or no height")
    return found


# JPEG

_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MARKER = re.compile(rb"\xff[^\xff\0]")
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a segment


def _jpeg(file: Reader) -> Probe:
    orientation = srgb_profile = frame = None
    for marker, at, length in _jpeg_segments(file):
        if marker in _SOF and frame is None:
            frame = file.unpack(">BHHB", at)
        elif marker == 0xE1 and orientation is None and file.up_to(at, 6) == b"Exif\0\0":
            orientation = tiff.exif_orientation(file.get(at + 6, length - 6))
        elif marker == 0xE2 and srgb_profile is None and file.up_to(at, 12) == b"ICC_PROFILE\0":
            srgb_profile = _is_srgb(file.get(at, length))  # its first piece says what it is
    orientation = orientation or 1
    if frame is None:
        raise CorruptMedia("it has no frame header")
    precision, height, width, components = frame
    return Probe(
        media_type="image/jpeg",
        size=_upright(Size(width, height), orientation),
        file_bytes=file.size,
        orientation=orientation,
        srgb=srgb_profile is not False and precision == 8 and components in (1, 3),
    )


def _jpeg_segments(file: Reader) -> Iterator[tuple[int, int, int]]:
    """(marker, start of its content, length of it), up to the first scan."""
    at = 2
    while at < file.size:
        window = file.up_to(at, 2)
        found = _MARKER.search(window)
        if not found:  # decoders skip stray bytes between segments
            window = file.up_to(at, 4_096)
            found = _MARKER.search(window)
        if not found:
            at += max(1, len(window) - 1)
            continue
        marker, at = found[0][1], at + found.end()
        if marker in (0xDA, 0xD9):
            return
        if marker not in _ALONE:
            (length,) = file.unpack(">H", at)
            yield marker, at + 2, length - 2
            at += max(2, length)


def _is_srgb(profile: bytes) -> bool:
    """Whether an ICC profile calls itself sRGB."""
    return b"sRGB" in profile or b"s\0R\0G\0B" in profile


# PNG

_PNG_ALPHA_TYPES = (4, 6)


def _png(file: Reader) -> Probe:
    if file.get(12, 4) != b"IHDR":
        raise CorruptMedia("it does not begin with its header")
    width, height, depth, colour = file.unpack(">IIBB", 16)
    alpha, animated, packed_text = colour in _PNG_ALPHA_TYPES, False, False
    orientation = srgb_profile = None
    for kind, at, length in _png_chunks(file):
        if kind == b"tRNS":
            alpha = True
        elif kind == b"acTL":
            animated = True
        elif kind == b"eXIf" and orientation is None:
            orientation = tiff.exif_orientation(file.up_to(at, min(length, HEAD_BYTES)))
        elif kind == b"iCCP" and srgb_profile is None:
            srgb_profile = _is_srgb(_inflated(file.up_to(at, min(length, HEAD_BYTES))))
        elif kind == b"zTXt" or (kind == b"iTXt" and _is_packed(file.up_to(at, min(length, 128)))):
            packed_text = True
    orientation = orientation or 1
    return Probe(
        media_type="image/png",
        size=_upright(Size(width, height), orientation),
        file_bytes=file.size,
        orientation=orientation,
        animated=animated,
        alpha=alpha,
        lossless=True,
        srgb=srgb_profile is not False and depth <= 8,
        packed_text=packed_text,
    )


def _png_chunks(file: Reader) -> Iterator[tuple[bytes, int, int]]:
    at = 8
    for _ in range(MAX_CHUNKS):
        if at + 8 > file.size:
            return  # cut short: the decoder says so
        length, kind = struct.unpack(">I4s", file.get(at, 8))
        if kind == b"IEND":
            return
        if kind != b"IDAT" and at + 8 + length <= file.size:
            yield kind, at + 8, length
        at += 12 + length


def _inflated(chunk: bytes) -> bytes:
    """The profile in an iCCP chunk (a name, a zero, a method, a zlib stream); nothing if it is damaged or huge."""
    _, _, stream = chunk.partition(b"\0")
    inflater = zlib.decompressobj()
    try:
        profile = inflater.decompress(stream[1:], HEAD_BYTES)
    except zlib.error:
        return b""
    return profile if inflater.eof else b""


def _is_packed(chunk: bytes) -> bool:
    """Whether an iTXt chunk (a keyword, a zero, a flag, …) is compressed."""
    _, _, rest = chunk.partition(b"\0")
    return rest[:1] != b"\0"


# WebP

_WEBP_ICC, _WEBP_ALPHA, _WEBP_EXIF, _WEBP_ANIMATED = 0x20, 0x10, 0x08, 0x02


def _webp(file: Reader) -> Probe:
    kind = file.get(12, 4)
    if kind == b"VP8 ":
        width, height = file.unpack("<HH", 26)
        return _webp_probe(file, Size(width & 0x3FFF, height & 0x3FFF))
    if kind == b"VP8L":
        (bits,) = file.unpack("<I", 21)
        size = Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        return _webp_probe(file, size, flags=_WEBP_ALPHA if bits >> 28 & 1 else 0, lossless=True)
    if kind == b"VP8X":
        flags, _, low_w, high_w, low_h, high_h = file.unpack("<B3sHBHB", 20)
        size = Size((high_w << 16 | low_w) + 1, (high_h << 16 | low_h) + 1)
        return _webp_extended(file, size, flags)
    raise CorruptMedia("it is no WebP stream")


def _webp_extended(file: Reader, size: Size, flags: int) -> Probe:
    lossless = False
    orientation = srgb_profile = None
    for kind, at, length in _riff_chunks(file):
        if kind == b"EXIF" and flags & _WEBP_EXIF and orientation is None:
            exif = file.up_to(at, min(length, HEAD_BYTES))
            orientation = tiff.exif_orientation(exif)
        elif kind == b"ICCP" and flags & _WEBP_ICC and srgb_profile is None:
            srgb_profile = _is_srgb(file.up_to(at, min(length, 4_096)))
        elif kind == b"VP8L":
            lossless = True
    srgb = srgb_profile is not False
    return _webp_probe(file, size, orientation=orientation or 1, flags=flags, lossless=lossless, srgb=srgb)


def _webp_probe(
    file: Reader, size: Size, *, orientation: int = 1, flags: int = 0, lossless: bool = False, srgb: bool = True
) -> Probe:
    return Probe(
        media_type="image/webp",
        size=_upright(size, orientation),
        file_bytes=file.size,
        orientation=orientation,
        animated=bool(flags & _WEBP_ANIMATED),
        alpha=bool(flags & _WEBP_ALPHA),
        lossless=lossless,
        srgb=srgb,
    )


def _riff_chunks(file: Reader) -> Iterator[tuple[bytes, int, int]]:
    at = 12
    for _ in range(MAX_CHUNKS):
        if at + 8 > file.size:
            return
        kind, length = struct.unpack("<4sI", file.get(at, 8))
        yield kind, at + 8, length
        at += 8 + length + (length & 1)


# GIF


def _gif(file: Reader) -> Probe:
    width, height = file.unpack("<HH", 6)
    # How many frames follow is not said in the header, and only the first is taken.
    return Probe(media_type="image/gif", size=Size(width, height), file_bytes=file.size, alpha=True, lossless=True)


# TIFF


def _tiff(file: Reader) -> Probe:
    pages = tiff.pages(file)
    tags = tiff.tags(file, pages[0])
    if tags.get(tiff.SAMPLE_FORMAT, tiff.UNSIGNED) != tiff.UNSIGNED:
        raise UnsupportedMedia("a TIFF of signed or floating-point numbers, which no one colour answers to")
    orientation = tiff.orientation_of(tags)
    return Probe(
        media_type="image/tiff",
        size=_upright(Size(tags.get(tiff.WIDTH, 0), tags.get(tiff.HEIGHT, 0)), orientation),
        file_bytes=file.size,
        orientation=orientation,
        pages=len(pages),
        alpha=tiff.EXTRA_SAMPLES in tags,
        lossless=tags.get(tiff.COMPRESSION) not in tiff.JPEG_COMPRESSIONS,
    )


# AVIF

_AVIF_BRANDS = re.compile(rb".{4}ftyp(?:avif|mif1.{4}(?:.{4}){0,15}avif)", re.DOTALL)


def _avif(file: Reader) -> Probe:
    size, alpha = isobmff.primary(file)
    return Probe(media_type="image/avif", size=size, file_bytes=file.size, alpha=alpha)


def _upright(size: Size, orientation: int) -> Size:
    return size.turned() if orientation >= 5 else size


READERS: tuple[tuple[re.Pattern[bytes], _Read], ...] = (
    (re.compile(rb"\xff\xd8\xff"), _jpeg),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), _png),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), _webp),
    (re.compile(rb"GIF8[79]a"), _gif),
    (re.compile(rb"II\*\0|MM\0\*"), _tiff),
    (_AVIF_BRANDS, _avif),
)

# What else people send; a refusal says what it found.
KNOWN: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb".{4}ftyp(?:hei|hev|mif1|msf1)", re.DOTALL), "a HEIC picture"),
    (re.compile(rb".{4}ftypavis", re.DOTALL), "an animated AVIF"),
    (re.compile(rb".{4}ftyp|\x1aE\xdf\xa3|RIFF.{4}AVI ", re.DOTALL), "a video"),
    (re.compile(rb"%PDF-"), "a PDF"),
    (re.compile(rb"BM.{12}[\x0c-\x80]\0\0\0", re.DOTALL), "a BMP picture"),
    (re.compile(rb"\xff\x0a|\0\0\0\x0cJXL "), "a JPEG XL picture"),
    (re.compile(rb"\0\0\0\x0cjP  |\xffO\xffQ"), "a JPEG 2000 picture"),
    (re.compile(rb"\0\0\x01\0"), "an icon"),
    (re.compile(rb"8BPS"), "a Photoshop file"),
    (re.compile(rb"(?:II\+|MM\0\+)"), "a BigTIFF"),
    (re.compile(rb"\s*(?:<\?xml.*?)?<svg", re.DOTALL | re.IGNORECASE), "an SVG drawing"),
    (re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype )?html", re.IGNORECASE), "an HTML page"),
)


def _name_of(head: bytes) -> str:
    start = head[:1_024]
    return next((name for pattern, name in KNOWN if pattern.match(start)), "a file of unknown type")
