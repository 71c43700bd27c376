"""TIFF 6.0 directories, and the Exif block of other formats, which is a small TIFF (Exif 2.3)."""

from vlm_edge.errors import CorruptMedia
from vlm_edge.media.source import HEAD_BYTES, Bytes, Reader

WIDTH, HEIGHT, COMPRESSION, ORIENTATION, EXTRA_SAMPLES, SAMPLE_FORMAT = 256, 257, 259, 274, 338, 339
JPEG_COMPRESSIONS = (6, 7)  # old and new
UNSIGNED = 1

_SHORT, _LONG = 3, 4
# Pages are counted this far, and so many tags are looked at; no honest file has more.
MAX_PAGES = 1_000
MAX_TAGS = 512


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


def tags(file: Reader, at: int) -> dict[int, int]:
    """The first number of each tag of one directory that holds whole numbers. Of equal tags the first counts."""
    order = order_of(file)
    (entries,) = file.unpack(order + "H", at)
    found: dict[int, int] = {}
    for entry in range(at + 2, at + 2 + 12 * min(entries, MAX_TAGS), 12):
        tag, kind, count, offset = file.unpack(order + "HHII", entry)
        if kind not in (_SHORT, _LONG) or not count or tag in found:
            continue
        layout, bytes_each = (order + "H", 2) if kind == _SHORT else (order + "I", 4)
        inside = count * bytes_each <= 4
        (found[tag],) = file.unpack(layout, entry + 8 if inside else offset)
    return found


def orientation_of(found: dict[int, int]) -> int:
    """1 to 8; 1 where the tag is missing or makes no sense."""
    value = found.get(ORIENTATION, 1)
    return value if 1 <= value <= 8 else 1


def exif_orientation(exif: bytes) -> int:
    """The orientation of an Exif block; 1 where the block is damaged, for bad metadata never fails a picture."""
    file = Reader(Bytes(exif[:HEAD_BYTES].removeprefix(b"Exif\0\0")))  # WebP and PNG writers put it there as well
    try:
        (at,) = file.unpack(order_of(file) + "I", 4)
        return orientation_of(tags(file, at))
    except CorruptMedia:
        return 1
