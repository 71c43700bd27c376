"""
Probe: what the headers of a file say, read from as few bytes as they take. No image library, no pixels.

The true type comes from the magic bytes, never from a label or a name. Layouts: JPEG (ITU T.81, Exif 2.3), PNG 3rd ed.,
RFC 9649 (WebP), GIF89a, TIFF 6.0, ISO 23008-12 (AVIF).
"""

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from vlm_edge.errors import CorruptMedia, UnsupportedMedia
from vlm_edge.geometry import Size

HEAD_BYTES = 65_536
# More segments or chunks than any honest file has; a probe must end.
MAX_STEPS = 4_096
# Pages are counted this far.
MAX_PAGES = 1_000


class Source(Protocol):
    """A file of known size that is read at random."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, stop: int) -> bytes: ...


class Bytes(msgspec.Struct, frozen=True):
    """A file in memory as a Source."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> bytes:
        return self.data[start:stop]


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

    @property
    def upright(self) -> bool:
        return self.orientation == 1


def probe(source: Source) -> Probe:
    """Read the headers. Raises UnsupportedMedia for what is no known picture, CorruptMedia for what breaks off."""
    file = _File(source)
    if not file.size:
        raise CorruptMedia("it is empty")
    for magic, read in READERS:
        if magic.match(file.head):
            return _read(read, file)
    raise UnsupportedMedia(_name_of(file.head))


class _File:
    """A Source whose head is at hand; a read past the end is an error of the file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.size = source.size
        self.head = source.read(0, HEAD_BYTES)

    def get(self, start: int, length: int) -> bytes:
        stop = start + length
        found = self.head[start:stop] if stop <= len(self.head) else self.source.read(start, stop)
        if len(found) < length:
            raise CorruptMedia("it ends within its headers")
        return found

    def up_to(self, start: int, length: int) -> bytes:
        return self.get(start, max(0, min(length, self.size - start)))

    def unpack(self, layout: str, start: int) -> tuple[int, ...]:
        return struct.unpack(layout, self.get(start, struct.calcsize(layout)))


class _Reader(Protocol):
    def __call__(self, file: _File, /) -> Probe: ...


def _read(read: _Reader, file: _File) -> Probe:
    try:
        found = read(file)
    except (struct.error, IndexError, zlib.error):
        raise CorruptMedia("its headers are damaged") from None
    if min(found.size) < 1:
        raise CorruptMedia("its headers give it no width or no height")
    return found


# JPEG

_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a segment


def _jpeg(file: _File) -> Probe:
    orientation, srgb_profile, frame = 1, True, None
    for marker, at, length in _jpeg_segments(file):
        if marker in _SOF and frame is None:
            frame = file.unpack(">BHHB", at)
        elif marker == 0xE1 and file.up_to(at, 6) == b"Exif\0\0":
            orientation = _exif_orientation(file.get(at + 6, length - 6))
        elif marker == 0xE2 and file.up_to(at, 12) == b"ICC_PROFILE\0":
            srgb_profile = srgb_profile and _is_srgb(file.get(at, length), first=file.get(at + 12, 1) == b"\x01")
    if frame is None:
        raise CorruptMedia("it has no frame header")
    precision, height, width, components = frame
    return Probe(
        media_type="image/jpeg",
        size=_upright(Size(width, height), orientation),
        file_bytes=file.size,
        orientation=orientation,
        srgb=srgb_profile and precision == 8 and components in (1, 3),
    )


def _jpeg_segments(file: _File) -> Iterator[tuple[int, int, int]]:
    """(marker, start of its content, length of it), up to the first scan."""
    at = 2
    for _ in range(MAX_STEPS):
        window = file.up_to(at, 4_096)
        found = re.search(rb"\xff+([^\xff\0])", window)  # decoders skip stray bytes between segments
        if not found:
            if len(window) < 4_096:
                return
            at += len(window) - 1
            continue
        marker, at = found[1][0], at + found.end()
        if marker in (0xDA, 0xD9):
            return
        if marker not in _ALONE:
            (length,) = file.unpack(">H", at)
            yield marker, at + 2, length - 2
            at += length
    raise CorruptMedia("it has too many segments")


def _is_srgb(profile: bytes, *, first: bool) -> bool:
    """Whether an ICC profile calls itself sRGB; later pieces of a profile say nothing about it."""
    return not first or b"sRGB" in profile or b"s\0R\0G\0B" in profile


# PNG

_PNG_ALPHA_TYPES = (4, 6)


def _png(file: _File) -> Probe:
    if file.get(12, 4) != b"IHDR":
        raise CorruptMedia("it does not begin with its header")
    width, height, depth, colour = file.unpack(">IIBB", 16)
    orientation, alpha, animated, srgb = 1, colour in _PNG_ALPHA_TYPES, False, depth <= 8
    for kind, at, length in _png_chunks(file):
        if kind == b"tRNS":
            alpha = True
        elif kind == b"acTL":
            animated = True
        elif kind == b"eXIf":
            orientation = _exif_orientation(file.get(at, length))
        elif kind == b"iCCP":
            srgb = srgb and _is_srgb(_inflate(file.up_to(at, min(length, 8_192))), first=True)
    return Probe(
        media_type="image/png",
        size=_upright(Size(width, height), orientation),
        file_bytes=file.size,
        orientation=orientation,
        animated=animated,
        alpha=alpha,
        lossless=True,
        srgb=srgb,
    )


def _png_chunks(file: _File) -> Iterator[tuple[bytes, int, int]]:
    at = 8
    for _ in range(MAX_STEPS):
        if at + 8 > file.size:
            return  # cut short: the decoder says so
        length, kind = struct.unpack(">I4s", file.get(at, 8))
        if kind == b"IEND":
            return
        if kind != b"IDAT" and at + 8 + length <= file.size:
            yield kind, at + 8, length
        at += 12 + length


def _inflate(profile: bytes) -> bytes:
    """The first bytes of an iCCP chunk: a name, a zero, a method, a zlib stream."""
    name, _, stream = profile.partition(b"\0")
    return name + zlib.decompressobj().decompress(stream[1:], 4_096)


# WebP

_WEBP_ICC, _WEBP_ALPHA, _WEBP_EXIF, _WEBP_ANIMATED = 0x20, 0x10, 0x08, 0x02


def _webp(file: _File) -> Probe:
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


def _webp_extended(file: _File, size: Size, flags: int) -> Probe:
    orientation, lossless, srgb = 1, False, True
    for kind, at, length in _riff_chunks(file):
        if kind == b"EXIF" and flags & _WEBP_EXIF:
            exif = file.up_to(at, length)
            orientation = _exif_orientation(exif.removeprefix(b"Exif\0\0"))
        elif kind == b"ICCP" and flags & _WEBP_ICC:
            srgb = _is_srgb(file.up_to(at, min(length, 4_096)), first=True)
        elif kind == b"VP8L":
            lossless = True
    return _webp_probe(file, size, orientation=orientation, flags=flags, lossless=lossless, srgb=srgb)


def _webp_probe(
    file: _File, size: Size, *, orientation: int = 1, flags: int = 0, lossless: bool = False, srgb: bool = True
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


def _riff_chunks(file: _File) -> Iterator[tuple[bytes, int, int]]:
    at = 12
    for _ in range(MAX_STEPS):
        if at + 8 > file.size:
            return
        kind, length = struct.unpack("<4sI", file.get(at, 8))
        yield kind, at + 8, length
        at += 8 + length + (length & 1)


# GIF


def _gif(file: _File) -> Probe:
    width, height = file.unpack("<HH", 6)
    # How many frames follow is not said in the header, and only the first is taken.
    return Probe(media_type="image/gif", size=Size(width, height), file_bytes=file.size, alpha=True, lossless=True)


# TIFF, and the Exif block, which is a small TIFF

_WIDTH, _HEIGHT, _COMPRESSION, _ORIENTATION, _SAMPLES, _EXTRA_SAMPLES = 256, 257, 259, 274, 277, 338
_SHORT, _LONG = 3, 4
_TIFF_LOSSY = (6, 7)  # JPEG, old and new


def _tiff(file: _File) -> Probe:
    order = "<" if file.get(0, 2) == b"II" else ">"
    pages = _tiff_pages(file, order)
    tags = _tags(file, order, pages[0])
    orientation = _valid_orientation(tags.get(_ORIENTATION, 1))
    return Probe(
        media_type="image/tiff",
        size=_upright(Size(tags.get(_WIDTH, 0), tags.get(_HEIGHT, 0)), orientation),
        file_bytes=file.size,
        orientation=orientation,
        pages=len(pages),
        alpha=_EXTRA_SAMPLES in tags,
        lossless=tags.get(_COMPRESSION, 1) not in _TIFF_LOSSY,
    )


def _tiff_pages(file: _File, order: str) -> list[int]:
    """The offset of each page's directory."""
    pages: dict[int, None] = {}
    (at,) = file.unpack(order + "I", 4)
    while at and at not in pages and len(pages) < MAX_PAGES:
        pages[at] = None
        (entries,) = file.unpack(order + "H", at)
        (at,) = file.unpack(order + "I", at + 2 + 12 * entries)
    if not pages:
        raise CorruptMedia("it has no page")
    return list(pages)


def _tags(file: _File, order: str, at: int) -> dict[int, int]:
    """The tags of one directory that hold a single whole number (of others, whatever stands in their place)."""
    (entries,) = file.unpack(order + "H", at)
    tags = {}
    for entry in range(at + 2, at + 2 + 12 * entries, 12):
        tag, kind, _ = file.unpack(order + "HHI", entry)
        tags[tag] = file.unpack(order + ("H" if kind == _SHORT else "I"), entry + 8)[0]
    return tags


def _exif_orientation(exif: bytes) -> int:
    """The orientation of an Exif block; 1 where the block is damaged, for bad metadata never fails a picture."""
    file = _File(Bytes(exif))
    try:
        order = "<" if exif[:2] == b"II" else ">"
        (at,) = file.unpack(order + "I", 4)
        return _valid_orientation(_tags(file, order, at).get(_ORIENTATION, 1))
    except (CorruptMedia, struct.error):
        return 1


def _valid_orientation(value: int) -> int:
    return value if 1 <= value <= 8 else 1


def _upright(size: Size, orientation: int) -> Size:
    return size.turned() if orientation >= 5 else size


# AVIF: boxes of ISO base media; the primary item's properties

_Box = tuple[bytes, int, int]  # kind, start of its content, end of it

_AVIF_BRANDS = re.compile(rb".{4}ftyp(avif|mif1.{4}(?:.{4})*?avif)", re.DOTALL)


def _avif(file: _File) -> Probe:
    _, meta, meta_end = _box(file, b"meta", *_span(file, 0, file.size))
    inside = (meta + 4, meta_end)
    primary = _primary_item(file, inside)
    _, properties, properties_end = _box(file, b"iprp", *inside)
    _, container, container_end = _box(file, b"ipco", properties, properties_end)
    boxes = list(_boxes(file, container, container_end))
    alpha = any(kind == b"auxC" and b"alpha" in file.get(at, stop - at) for kind, at, stop in boxes)
    size = Size(0, 0)
    for box in _associated(file, primary, boxes, (properties, properties_end)):
        size = _transformed(file, size, box)
    return Probe(media_type="image/avif", size=size, file_bytes=file.size, alpha=alpha)


def _span(file: _File, start: int, stop: int) -> tuple[int, int]:
    return start, min(stop, file.size)


def _boxes(file: _File, at: int, end: int) -> Iterator[_Box]:
    """The boxes between two offsets."""
    for _ in range(MAX_STEPS):
        if at + 8 > end:
            return
        length, kind = struct.unpack(">I4s", file.get(at, 8))
        content = at + 8
        if length == 1:
            length, content = *file.unpack(">Q", at + 8), at + 16
        stop = at + length if length else end
        if stop < content or stop > end:
            raise CorruptMedia("its boxes are damaged")
        yield kind, content, stop
        at = stop


def _box(file: _File, wanted: bytes, at: int, end: int) -> _Box:
    for box in _boxes(file, at, end):
        if box[0] == wanted:
            return box
    raise CorruptMedia("a box is missing")


def _primary_item(file: _File, inside: tuple[int, int]) -> int:
    _, at, _ = _box(file, b"pitm", *inside)
    version = file.get(at, 1)[0]
    return file.unpack(">I" if version else ">H", at + 4)[0]


def _associated(file: _File, item: int, boxes: list[_Box], inside: tuple[int, int]) -> list[_Box]:
    """The properties of an item, in the order in which they apply: first its size, then the transformations."""
    owned = [boxes[index - 1] for index in _indices(file, item, inside) if 0 < index <= len(boxes)]
    return sorted(owned, key=lambda box: box[0] != b"ispe")


def _indices(file: _File, item: int, inside: tuple[int, int]) -> Sequence[int]:
    _, at, _ = _box(file, b"ipma", *inside)
    version, _, wide = file.unpack(">B2sB", at)
    (count,) = file.unpack(">I", at + 4)
    at += 8
    for _ in range(min(count, MAX_STEPS)):
        number, amount = file.unpack(">IB" if version else ">HB", at)
        at += 5 if version else 3
        layout, mask = (f">{amount}H", 0x7FFF) if wide & 1 else (f">{amount}B", 0x7F)
        if number == item:
            return [index & mask for index in file.unpack(layout, at)]
        at += struct.calcsize(layout)
    raise CorruptMedia("its primary picture has no properties")


def _transformed(file: _File, size: Size, box: _Box) -> Size:
    kind, at, _ = box
    if kind == b"ispe":
        return Size(*file.unpack(">II", at + 4))
    if kind == b"clap":
        width, width_unit, height, height_unit = file.unpack(">IIII", at)
        if not width_unit or not height_unit:
            raise CorruptMedia("its crop is damaged")
        return Size(width // width_unit, height // height_unit)
    if kind == b"irot" and file.get(at, 1)[0] & 1:
        return size.turned()
    return size


READERS: tuple[tuple[re.Pattern[bytes], _Reader], ...] = (
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
