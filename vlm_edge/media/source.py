"""Source: a file read at random, so that headers cost only their own bytes."""

import struct
from typing import Protocol

import msgspec

from vlm_edge.errors import CorruptMedia

HEAD_BYTES = 65_536
# What reading the headers of one file may take: more than any honest file needs; a hostile one must not hold up others.
MAX_STEPS = 4_096
MAX_READ_BYTES = 524_288
# As much is read of metadata that have no bound of their own.
META_BYTES = 131_072


class Source(Protocol):
    """A file of known size, in bytes."""

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


class Reader:
    """A Source whose head is at hand. A read past the end, or one too many, is a fault of the file: CorruptMedia."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.size = source.size
        self.head = source.read(0, HEAD_BYTES)
        self._steps, self._bytes = MAX_STEPS, MAX_READ_BYTES

    def get(self, start: int, length: int) -> bytes:
        stop = start + length
        self._steps, self._bytes = self._steps - 1, self._bytes - length
        if self._steps < 0 or self._bytes < 0:
            raise CorruptMedia("its headers have no end")
        found = self.head[start:stop] if stop <= len(self.head) else self.source.read(start, stop)
        if len(found) < length:
            raise CorruptMedia("it ends within its headers")
        return found

    def up_to(self, start: int, length: int) -> bytes:
        """So many bytes, or what is left of the file."""
        return self.get(start, max(0, min(length, self.size - start)))

    def unpack(self, layout: str, start: int) -> tuple[int, ...]:
        return struct.unpack(layout, self.get(start, struct.calcsize(layout)))
