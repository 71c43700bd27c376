"""TIFF 6.0 directories, and the Exif block of other formats, which is a small TIFF (Exif 2.3)."""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media.source import HEAD_BYTES, META_BYTES, Bytes, Reader

SUBFILE_TYPE, SUB_DIRECTORIES = 254, 330
WIDTH, HEIGHT, BITS, COMPRESSION, COLOURS, ORIENTATION, SAMPLES = 256, 257, 258, 259, 262, 274, 277
STRIP_BYTES, TILE_WIDTH, TILE_HEIGHT, EXTRA_SAMPLES, SAMPLE_FORMAT, XMP = 279, 322, 323, 338, 339, 700
# Values of them.
UNCOMPRESSED, JPEG_COMPRESSIONS = 1, (6, 7)  # old and new JPEG
UNSIGNED, SIGNED, FLOAT, UNKNOWN = 1, 2, 3, 4
YCBCR, LAB, OTHER_LABS = 6, 8, (9, 10)
REDUCED = 1  # a bit of the subfile's type

# The types of a field that are a number; of the others only the length is known.
_LAYOUTS = {3: "H", 4: "I", 5: "II", 6: "b", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d", 13: "I", 16: "Q"}
_BYTES = {1: 1, 2: 1, 7: 1, **{kind: struct.calcsize("<" + layout) for kind, layout in _LAYOUTS.items()}}
# Pages are counted this far, and so many tags are looked at; no honest file has more.
MAX_PAGES = 200
MAX_TAGS = 512


class Field(NamedTuple):
    kind: int
    at: int  # of its value
    length: int

    @property
    def apart(self) -> bool:
        """Whether the value stands elsewhere, and its place in the directory only says where."""
        return self.length > 4


class Page(NamedTuple):
    """What one directory says of its picture."""

    size: Size  # as stored
    orientation: int | None
    xmp: bytes
    compression: int
    bits: int  # of a sample
    samples: int
    number: int  # the kind of number a sample is
    alpha: bool
    strip_bytes: int  # of the first strip in the file
    tile: Size | None
    colours: int
    preview: bool  # of a picture that stands in a directory below

    @property
    def misread(self) -> bool:
        """libvips takes YCbCr that is not within JPEG for RGB, and Lab of eight bits for damage."""
        return (self.colours == LAB and self.bits <= 8) or (
            self.colours == YCBCR and self.compression not in JPEG_COMPRESSIONS
        )


def order_of(file: Reader) -> str:
    return "<" if file.get(0, 2) == b"II" else ">"


def pages(file: Reader) -> list[int]:
    """The offset of each page's directory, at most MAX_PAGES. Raises CorruptMedia."""
    order = order_of(file)
    found: dict[int, None] = {}
    (at,) = file.unpack(order + "I", 4)
    while at and at not in found and len(found) < MAX_PAGES:
        found[at] = None
        (entries,) = file.unpack(order + "H", at)
        (at,) = file.unpack(order + "I", at + 2 + 12 * entries)
    if not found:
        raise CorruptMedia("it has no page")
    return list(found)


def page(file: Reader, at: int) -> Page:
    """What the directory at an offset says. Raises CorruptMedia."""
    fields: dict[int, Field] = {}
    for tag, field in _fields(file, at):
        fields.setdefault(tag, field)  # of equal tags the first counts

    def number(tag: int, default: int = 0) -> int:
        value = _number(file, fields[tag]) if tag in fields else default
        return value if isinstance(value, int) else default

    return Page(
        size=Size(number(WIDTH), number(HEIGHT)),
        orientation=_orientation(_number(file, fields[ORIENTATION])) if ORIENTATION in fields else None,
        xmp=file.up_to(fields[XMP].at, min(fields[XMP].length, META_BYTES)) if XMP in fields else b"",
        compression=number(COMPRESSION),
        bits=number(BITS, 1),
        samples=number(SAMPLES, 1),
        number=number(SAMPLE_FORMAT, UNSIGNED),
        alpha=EXTRA_SAMPLES in fields,
        strip_bytes=min(number(STRIP_BYTES), file.size),
        tile=Size(number(TILE_WIDTH), number(TILE_HEIGHT)) if TILE_WIDTH in fields else None,
        colours=number(COLOURS),
        preview=bool(number(SUBFILE_TYPE) & REDUCED) and SUB_DIRECTORIES in fields,
    )


def _fields(file: Reader, at: int) -> Iterator[tuple[int, Field]]:
    """Those of one directory that have a known type, as far as it goes."""
    order = order_of(file)
    (entries,) = file.unpack(order + "H", at)
    table = file.up_to(at + 2, 12 * min(entries, MAX_TAGS))
    for index in range(len(table) // 12):
        tag, kind, count, offset = struct.unpack_from(order + "HHII", table, 12 * index)
        field = Field(kind, offset, count * _BYTES.get(kind, 0))
        if field.length:
            yield tag, field if field.apart else field._replace(at=at + 2 + 12 * index + 8)


def _number(file: Reader, field: Field) -> float | None:
    """The first number of a field; None where it holds none."""
    if field.kind not in _LAYOUTS:
        return None
    first, *second = file.unpack(order_of(file) + _LAYOUTS[field.kind], field.at)
    if not second:
        return first
    return first / second[0] if second[0] else None


def _orientation(value: float | None) -> int:
    """1 to 8; 1 for what makes no sense."""
    return int(value) if value is not None and value in range(1, 9) else 1


_EXIF = re.compile(rb"(?:Exif\0\0){0,2}")  # WebP and PNG writers put it there as well


def exif_orientation(exif: bytes) -> int | None:
    """The orientation that Pillow reads in an Exif block. Raises CorruptMedia where it would give up."""
    block = _EXIF.sub(b"", exif[:HEAD_BYTES], count=1)
    if not block:
        return None
    file = Reader(Bytes(block))
    if file.get(0, 4) not in (b"II*\0", b"MM\0*"):
        raise CorruptMedia("its Exif block is none")
    (at,) = file.unpack(order_of(file) + "I", 4)
    try:
        return _exif_orientation(file, at)
    except CorruptMedia:
        return None


def _exif_orientation(file: Reader, at: int) -> int | None:
    """Values longer than the block are passed over, as are tags that come again; one cut short ends the reading."""
    read, seen = 0, set()
    for tag, field in _fields(file, at):
        if field.apart and tag not in seen:
            read += field.length
            if read > file.size:
                continue
            if field.at + field.length > file.size:
                return None
        if tag == ORIENTATION:
            return _orientation(_number(file, field))
        seen.add(tag)
    return None
