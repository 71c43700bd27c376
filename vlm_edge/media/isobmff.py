"""Boxes of ISO base media (ISO 14496-12), and the primary picture of HEIF files (ISO 23008-12), which AVIF is."""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media.source import Reader


class Box(NamedTuple):
    kind: bytes
    start: int  # of its content
    stop: int


def boxes(file: Reader, start: int, stop: int) -> Iterator[Box]:
    """The boxes between two offsets. Raises CorruptMedia."""
    at = start
    while at + 8 <= stop:
        length, kind = struct.unpack(">I4s", file.get(at, 8))
        content = at + 8
        if length == 1:
            length, content = *file.unpack(">Q", at + 8), at + 16
        end = at + length if length else stop
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
    alpha = any(one.kind == b"auxC" and b"alpha" in file.up_to(one.start, 128) for one in all_properties)
    indices = _associated(file, item, box(file, b"ipma", properties.start, properties.stop))
    owned = [all_properties[index - 1] for index in indices if 0 < index <= len(all_properties)]
    return Primary(_size(file, owned), alpha)


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


def _size(file: Reader, properties: Sequence[Box]) -> Size:
    """The size that `ispe` gives, after the transformations, which apply in their order."""
    size = Size(0, 0)
    for kind, start, _ in sorted(properties, key=lambda one: one.kind != b"ispe"):
        if kind == b"ispe":
            size = Size(*file.unpack(">II", start + 4))
        elif kind == b"clap":
            width, width_unit, height, height_unit = file.unpack(">IIII", start)
            if not width_unit or not height_unit:
                raise CorruptMedia("its crop is damaged")
            size = Size(width // width_unit, height // height_unit)
        elif kind == b"irot" and file.get(start, 1)[0] & 1:
            size = size.turned()
    return size
