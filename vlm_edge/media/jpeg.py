"""JPEG (ITU T.81): the frame header, and the metadata before the first scan."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media.source import HEAD_BYTES, Bytes, Reader

_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = (0xC2, 0xC6, 0xCA, 0xCE)
_EOI, _SOS = 0xD9, 0xDA
_MARKER = re.compile(rb"\xff[^\xff\0]")
_IN_SCAN = re.compile(rb"\xff[^\0\xff\xd0-\xd7]")  # what ends the data of a scan
MAX_SCANS_COUNTED = 10_000
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a segment

_EXIF, _XMP, _ICC = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0", b"ICC_PROFILE\0"
_METADATA = {0xE1: (_EXIF, _XMP), 0xE2: (_ICC,)}


class Segment(NamedTuple):
    marker: int
    at: int  # of its content
    length: int


class Sampling(NamedTuple):
    """Of one component, in blocks of 8x8 in each unit of the frame."""

    across: int
    down: int


class Frame(NamedTuple):
    size: Size  # as stored
    precision: int
    components: Sequence[Sampling]
    progressive: bool


class Jpeg(NamedTuple):
    frame: Frame
    in_scan: int  # components in the first scan
    exif: bytes
    xmp: bytes
    profile: bytes  # the first piece, which says what it is

    @property
    def whole(self) -> bool:
        """Whether a row is known only when all scans are read, so that all coefficients are held till then."""
        return self.frame.progressive or 0 < self.in_scan < len(self.frame.components)


def read(file: Reader) -> Jpeg:
    """Raises CorruptMedia."""
    frame, in_scan = None, 0
    metadata: dict[bytes, list[Segment]] = defaultdict(list)
    for segment in _segments(file):
        if segment.marker in _SOF:
            frame = frame or _frame(file, segment)
        elif segment.marker == _SOS:
            in_scan = sum(file.up_to(segment.at, 1))
        elif segment.marker in _METADATA:
            metadata[_name(file, segment)].append(segment)
    if frame is None:
        raise CorruptMedia("it has no frame header")
    return Jpeg(
        frame,
        in_scan,
        _joined(file, metadata[_EXIF], len(_EXIF)),
        _joined(file, metadata[_XMP][-1:], len(_XMP)),
        _joined(file, metadata[_ICC][:1], len(_ICC) + 2),  # which piece it is, of how many
    )


def scans(data: bytes) -> int:
    """Of a JPEG whose rows are known only at its end, how many scans refine them; 1 of any other."""
    file = Reader(Bytes(data))
    first = next((segment for segment in _segments(file) if segment.marker == _SOS), None)
    if first is None or not read(file).whole:
        return 1
    count, at = 1, first.at + first.length
    while (found := _IN_SCAN.search(data, at)) and found[0][1] != _EOI and count < MAX_SCANS_COUNTED:
        count += found[0][1] == _SOS
        at = found.end() + int.from_bytes(data[found.end() : found.end() + 2])
    return count


def _frame(file: Reader, segment: Segment) -> Frame:
    precision, height, width, count = file.unpack(">BHHB", segment.at)
    table = file.get(segment.at + 6, 3 * count)
    components = [Sampling(max(1, both >> 4), max(1, both & 15)) for both in table[1::3]]
    return Frame(Size(width, height), precision, components, segment.marker in _PROGRESSIVE)


def _name(file: Reader, segment: Segment) -> bytes:
    """Which metadata a segment holds; nothing for those we do not know."""
    names = _METADATA[segment.marker]
    start = file.up_to(segment.at, min(segment.length, len(_XMP)))
    return next((name for name in names if start.startswith(name)), b"")


def _joined(file: Reader, segments: Sequence[Segment], skipped: int) -> bytes:
    """What stands in segments of one kind behind its name, as far as anyone needs it."""
    found = b""
    for segment in segments:
        if len(found) < HEAD_BYTES:
            found += file.up_to(segment.at + skipped, segment.length - skipped)
    return found


def _segments(file: Reader) -> Iterator[Segment]:
    """Up to the first scan."""
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
        if marker == _EOI:
            return
        if marker not in _ALONE:
            (length,) = file.unpack(">H", at)
            yield Segment(marker, at + 2, length - 2)
            at += max(2, length)
        if marker == _SOS:
            return
