"""Boxes of ISO base media (ISO 14496-12), and the primary picture of HEIF files (ISO 23008-12), which AVIF is."""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media.source import Reader

# What a picture beside another one is for: names of MPEG and of HEVC.
_ALPHA = re.compile(rb"auxiliary:alpha|auxid:1\b")


class Box(NamedTuple):
    kind: bytes
    start: int  # of its content
    stop: int


def boxes(file: Reader, start: int, stop: int, *, cut: bool = False) -> Iterator[Box]:
    """The boxes between two offsets, of which the last may be cut short. Raises CorruptMedia."""
    at = start
    while at + 8 <= stop:
        length, kind = struct.unpack(">I4s", file.get(at, 8))
        content = at + 8
        if length == 1:
            length, content = *file.unpack(">Q", at + 8), at + 16
        end = at + length if length else stop
        end = min(end, stop) if cut else end
        if end < content or end > stop:
            raise CorruptMedia("its boxes are damaged")
        yield Box(kind, content, end)
        at = end


def box(file: Reader, kind: bytes, start: int, stop: int) -> Box:
    for found in boxes(file, start, stop):
        if found.kind == kind:
            return found
    raise CorruptMedia("a box is missing")


class Primary(NamedTuple):
    """The picture that a HEIF file shows: its upright size, and whether any picture beside it is its alpha."""

    size: Size
    alpha: bool


def primary(file: Reader) -> Primary:
    """Raises CorruptMedia."""
    meta = box(file, b"meta", 0, file.size)
    start, stop = meta.start + 4, meta.stop  # a full box: version and flags come first
    item = _primary_item(file, box(file, b"pitm", start, stop))
    properties = box(file, b"iprp", start, stop)
    container = box(file, b"ipco", properties.start, properties.stop)
    all_properties = list(boxes(file, container.start, container.stop))
    alpha = any(one.kind == b"auxC" and _ALPHA.search(file.up_to(one.start, 128)) for one in all_properties)
    indices = _associated(file, item, box(file, b"ipma", properties.start, properties.stop))
    owned = [all_properties[index - 1] for index in indices if 0 < index <= len(all_properties)]
    return Primary(_transformed(file, _stored(file, owned), owned), alpha)


def sequence(file: Reader) -> Primary:
    """Of a file that is a film: the size of its pictures. Raises CorruptMedia."""
    movie = box(file, b"moov", 0, file.size)
    tracks = [one for one in boxes(file, movie.start, movie.stop) if one.kind == b"trak"]
    handlers = [_handler(file, track) for track in tracks]
    if b"pict" not in handlers:
        raise CorruptMedia("it has no pictures")
    return Primary(_track_size(file, tracks[handlers.index(b"pict")]), b"auxv" in handlers)


def _handler(file: Reader, track: Box) -> bytes:
    media = box(file, b"mdia", track.start, track.stop)
    return file.get(box(file, b"hdlr", media.start, media.stop).start + 8, 4)


def _track_size(file: Reader, track: Box) -> Size:
    """Upright. A crop is not applied: what decodes such files knows none."""
    header = box(file, b"tkhd", track.start, track.stop)
    wide = file.get(header.start, 1)[0] == 1
    width, height = file.unpack(">II", header.start + (88 if wide else 76))
    turns = [one for one in _sample_properties(file, track) if one.kind == b"irot"]
    return _transformed(file, Size(width >> 16, height >> 16), turns)


def _sample_properties(file: Reader, track: Box) -> Iterator[Box]:
    """The boxes that describe its pictures, behind 78 bytes of what is the same for all video."""
    table = track
    for kind in (b"mdia", b"minf", b"stbl", b"stsd"):
        table = box(file, kind, table.start, table.stop)
    entry = next(boxes(file, table.start + 8, table.stop), table)
    return boxes(file, entry.start + 78, entry.stop)


def _primary_item(file: Reader, pitm: Box) -> int:
    version = file.get(pitm.start, 1)[0]
    return file.unpack(">I" if version else ">H", pitm.start + 4)[0]


def _associated(file: Reader, item: int, ipma: Box) -> Sequence[int]:
    """The indices, from 1, of the properties of an item."""
    version, _, wide = file.unpack(">B2sB", ipma.start)
    (count,) = file.unpack(">I", ipma.start + 4)
    at = ipma.start + 8
    for _ in range(count):
        number, amount = file.unpack(">IB" if version else ">HB", at)
        at += 5 if version else 3
        layout, mask = (f">{amount}H", 0x7FFF) if wide & 1 else (f">{amount}B", 0x7F)
        if number == item:
            return [index & mask for index in file.unpack(layout, at)]
        at += struct.calcsize(layout)
    raise CorruptMedia("its primary picture has no properties")


def _stored(file: Reader, properties: Sequence[Box]) -> Size:
    for kind, start, _ in properties:
        if kind == b"ispe":
            return Size(*file.unpack(">II", start + 4))
    return Size(0, 0)


def _transformed(file: Reader, size: Size, properties: Sequence[Box]) -> Size:
    """The size after the transformations, which apply in their order."""
    for kind, start, _ in properties:
        if kind == b"clap":
            width, width_unit, height, height_unit = file.unpack(">IIII", start)
            if not width_unit or not height_unit:
                raise CorruptMedia("its crop is damaged")
            size = Size(width // width_unit, height // height_unit)
        elif kind == b"irot" and file.get(start, 1)[0] & 1:
            size = size.turned()
    return size
