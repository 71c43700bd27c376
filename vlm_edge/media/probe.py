"""
Probe: what the headers of a file say, read from as few bytes as they take. No image library, no pixels.

The true type comes from the magic bytes, never from a label or a name. Each format has a module of its own.
"""

import re
import struct
from collections.abc import Callable
from typing import Literal

import msgspec

from vlm_edge.errors import CorruptMedia, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.media import bitmap, gif, icc, isobmff, jpeg, jpeg2000, jxl, memory, png, tiff, webp
from vlm_edge.media.orientation import turn, turn_by
from vlm_edge.media.source import Reader, Source

Numbers = Literal["unsigned", "wide", "signed", "float"]


SNIFFED_BYTES = 128


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What the headers say of one page of a file."""

    media_type: str
    size: Size  # upright: as a person sees it
    file_bytes: int
    orientation: int = 1  # of the Exif tag, 1 to 8; already applied in `size`
    page: int = 0  # which of `pages`, from 0
    pages: int = 1  # 0: the headers do not tell, the document has to be opened
    animated: bool = False
    misread: bool = False  # by libvips: a GIF whose first frame does not fill it, a TIFF in YCbCr or Lab
    memory_bytes: int = 0  # what its decoder holds at once beside the file, estimated from above
    numbers: Numbers = "unsigned"
    alpha: bool = False
    lossless: bool = False
    deep: bool = False  # more than eight bits
    # Eight bits, grey or RGB, in sRGB as far as the headers tell: no colour has to be converted.
    srgb: bool = False
    # Text compressed within a PNG, or where it cannot be seen: small here, it may be large for who opens the file.
    packed_text: bool = False
    # Metadata that make other readers give up a good picture.
    bad_metadata: bool = False

    @property
    def upright(self) -> bool:
        return self.orientation == 1


def media_type_of(source: Source) -> str:
    """By its first bytes; "" for what is no known picture."""
    head = source.read(0, SNIFFED_BYTES)
    return next((media_type for magic, media_type, _ in READERS if magic.match(head)), "")


def probe(source: Source, page: int = 0) -> Probe:
    """Read the headers of a file, and of the one page of it.

    Raises UnsupportedMedia for what is no known picture, CorruptMedia for what breaks off or has no such page.
    """
    file = Reader(source)
    if not file.size:
        raise CorruptMedia("it is empty")
    for magic, _, read in READERS:
        if magic.match(file.head):
            return _read(read, file, page)
    raise UnsupportedMedia(_name_of(file.head))


_Read = Callable[[Reader, int], Probe]


def _read(read: _Read, file: Reader, page: int) -> Probe:
    try:
        found = msgspec.structs.replace(read(file, page), page=page)
    except (struct.error, IndexError):
        raise CorruptMedia("its headers are damaged") from None
    if min(found.size) < 1:
        raise CorruptMedia("its headers give it no width or no height")
    return found


def _jpeg(file: Reader, _: int) -> Probe:
    found = jpeg.read(file)
    turned = turn(found.exif, found.xmp)
    plain = found.frame.precision == 8 and len(found.frame.components) in (1, 3)
    return Probe(
        media_type="image/jpeg",
        size=turned.upright(found.frame.size),
        file_bytes=file.size,
        orientation=turned.orientation,
        memory_bytes=memory.jpeg(found),
        deep=found.frame.precision > 8,
        srgb=plain and (not found.profile or icc.is_srgb(found.profile)),
        bad_metadata=turned.damaged,
    )


def _png(file: Reader, _: int) -> Probe:
    found = png.read(file)
    turned = turn(found.exif, found.xmp)
    return Probe(
        media_type="image/png",
        size=turned.upright(found.size),
        file_bytes=file.size,
        orientation=turned.orientation,
        animated=found.animated,
        memory_bytes=memory.png(found),
        alpha=found.alpha,
        lossless=True,
        deep=found.depth > 8,
        srgb=found.depth <= 8 and (found.profile is None or icc.is_srgb(found.profile)),
        packed_text=found.packed_text,
        bad_metadata=turned.damaged,
    )


def _webp(file: Reader, _: int) -> Probe:
    found = webp.read(file)
    turned = turn(found.exif, found.xmp)
    return Probe(
        media_type="image/webp",
        size=turned.upright(found.size),
        file_bytes=file.size,
        orientation=turned.orientation,
        animated=found.animated,
        memory_bytes=memory.webp(found),
        alpha=found.alpha,
        lossless=found.lossless,
        srgb=found.profile is None or icc.is_srgb(found.profile),
        bad_metadata=turned.damaged,
    )


def _gif(file: Reader, _: int) -> Probe:
    found = gif.read(file)
    return Probe(
        media_type="image/gif",
        size=found.size,
        file_bytes=file.size,
        animated=found.animated,
        misread=found.inset,
        memory_bytes=memory.gif(found),
        alpha=True,
        lossless=True,
    )


_NUMBERS: dict[int, Numbers] = {
    tiff.UNSIGNED: "unsigned",
    tiff.SIGNED: "signed",
    tiff.FLOAT: "float",
    tiff.UNKNOWN: "unsigned",
}


def _tiff(file: Reader, page: int) -> Probe:
    pages = tiff.pages(file)
    if not 0 <= page < len(pages):
        raise CorruptMedia("it does not have so many pages")
    found = tiff.page(file, pages[page])
    if found.number not in _NUMBERS:
        raise UnsupportedMedia("a TIFF of complex numbers, which no one colour answers to")
    if found.colours in tiff.OTHER_LABS:
        raise UnsupportedMedia("a TIFF in a kind of Lab that no decoder here reads")
    if found.preview:
        raise UnsupportedMedia("a raw camera file, which begins with a preview")
    turned = turn_by(found.orientation, found.xmp)
    return Probe(
        media_type="image/tiff",
        size=turned.upright(found.size),
        file_bytes=file.size,
        orientation=turned.orientation,
        pages=len(pages),
        memory_bytes=memory.tiff(found),
        numbers="wide" if found.bits > 16 and _NUMBERS[found.number] == "unsigned" else _NUMBERS[found.number],
        deep=found.bits > 8,
        misread=found.misread,
        alpha=found.alpha,
        lossless=found.compression not in tiff.JPEG_COMPRESSIONS,
    )


def _avif(file: Reader, _: int) -> Probe:
    return _heif(file, "image/avif", isobmff.primary(file), memory.avif)


def _avif_sequence(file: Reader, _: int) -> Probe:
    return _heif(file, "image/avif", isobmff.sequence(file), memory.avif_sequence, animated=True)


def _heic(file: Reader, _: int) -> Probe:
    return _heif(file, "image/heic", isobmff.primary(file), memory.heic)


def _heif(
    file: Reader,
    media_type: str,
    found: isobmff.Primary,
    memory_of: Callable[[isobmff.Primary], int],
    *,
    animated: bool = False,
) -> Probe:
    """Its decoders turn and crop it themselves."""
    return Probe(
        media_type=media_type,
        size=found.size,
        file_bytes=file.size,
        animated=animated,
        memory_bytes=memory_of(found),
        alpha=found.alpha,
    )


def _bmp(file: Reader, _: int) -> Probe:
    return _bitmap(file, "image/bmp", bitmap.bmp(file))


def _ico(file: Reader, _: int) -> Probe:
    return _bitmap(file, "image/x-icon", bitmap.ico(file))


def _pnm(file: Reader, _: int) -> Probe:
    return _bitmap(file, "image/x-portable-anymap", bitmap.pnm(file))


def _bitmap(file: Reader, media_type: str, found: bitmap.Bitmap) -> Probe:
    return Probe(
        media_type=media_type,
        size=found.size,
        file_bytes=file.size,
        memory_bytes=memory.bitmap(found),
        alpha=found.alpha,
        lossless=True,
        srgb=not found.deep,
    )


def _jpeg2000(file: Reader, _: int) -> Probe:
    found = jpeg2000.read(file)
    return Probe(
        media_type="image/jp2",
        size=found.size,
        file_bytes=file.size,
        memory_bytes=memory.jpeg2000(found),
        alpha=found.alpha,
    )


def _jxl(file: Reader, _: int) -> Probe:
    found = jxl.read(file)
    return Probe(
        media_type="image/jxl",
        size=found.size,
        file_bytes=file.size,
        animated=found.animated,
        memory_bytes=memory.jxl(found),
        alpha=found.alpha,
        lossless=found.lossless,
    )


def _pdf(file: Reader, _: int) -> Probe:
    return Probe(media_type="application/pdf", size=Size(1, 1), file_bytes=file.size, pages=0, lossless=True)


READERS: tuple[tuple[re.Pattern[bytes], str, _Read], ...] = (
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg", _jpeg),
    (re.compile(re.escape(png.MAGIC)), "image/png", _png),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp", _webp),
    (re.compile(rb"GIF8[79]a"), "image/gif", _gif),
    (re.compile(rb"II\*\0|MM\0\*"), "image/tiff", _tiff),
    (re.compile(rb".{4}ftyp(?:avif|(?:mif1|miaf).{4}(?:.{4}){0,15}avif)", re.DOTALL), "image/avif", _avif),
    (re.compile(rb".{4}ftypavis", re.DOTALL), "image/avif", _avif_sequence),
    (re.compile(rb".{4}ftyp(?:hei[cxms]|hev[cxms]|mif1|msf1)", re.DOTALL), "image/heic", _heic),
    (re.compile(rb"BM.{12}[\x0c-\x7c]\0\0\0", re.DOTALL), "image/bmp", _bmp),
    (re.compile(rb"\0\0\x01\0"), "image/x-icon", _ico),
    (re.compile(rb"P[1-6]\s"), "image/x-portable-anymap", _pnm),
    (re.compile(rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51"), "image/jp2", _jpeg2000),
    (re.compile(rb"\0\0\0\x0cJXL \r\n\x87\n|\xff\x0a"), "image/jxl", _jxl),
    (re.compile(rb"(?:\xef\xbb\xbf)?\s*%PDF-"), "application/pdf", _pdf),
)

# Behind a byte order mark, a declaration, comments and a document type.
_SVG = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml.*?\?>\s*)?(?:<!--.*?-->\s*|<!DOCTYPE svg.*?>\s*)*<(?:\w+:)?svg",
    re.DOTALL | re.IGNORECASE,
)

# What else people send; a refusal says what it found.
KNOWN: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb".{4}ftyp|\x1aE\xdf\xa3|RIFF.{4}AVI ", re.DOTALL), "a video"),
    (re.compile(rb"8BPS"), "a Photoshop file"),
    (re.compile(rb"(?:II\+|MM\0\+)"), "a BigTIFF"),
    (re.compile(rb"II\xbc"), "a JPEG XR picture"),
    (re.compile(rb"\0\0\x02\0[^\0]\0"), "a mouse pointer"),
    (re.compile(rb"icns"), "an Apple icon"),
    (re.compile(rb"qoif"), "a QOI picture"),
    (re.compile(rb"DDS "), "a DDS texture"),
    (re.compile(rb"#\?R"), "an HDR picture"),
    (re.compile(rb"P[7fF]\s"), "a PAM or PFM picture"),
    (re.compile(rb"%!PS|\xc5\xd0\xd3\xc6"), "a PostScript file"),
    (re.compile(rb"PK\x03\x04|\xd0\xcf\x11\xe0"), "an Office file or archive"),
    (_SVG, "an SVG drawing"),
    (re.compile(rb"\x1f\x8b"), "a gzip file"),
    (re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype )?html", re.IGNORECASE), "an HTML page"),
)


def _name_of(head: bytes) -> str:
    start = head[:1_024]
    return next((name for pattern, name in KNOWN if pattern.match(start)), "a file of unknown type")
