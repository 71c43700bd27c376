"""Source: a file read at random, so that headers cost only their own bytes."""

import struct
from typing import Protocol

import msgspec

from vlm_edge.errors import CorruptMedia

HEAD_BYTES = 65_536
# More segments, chunks or boxes than any honest file has; reading headers must end.
MAX_STEPS = 4_096


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
    """A Source whose head is at hand; a read past the end is a fault of the file: CorruptMedia."""

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
        """So many bytes, or what is left of the file."""
        return self.get(start, max(0, min(length, self.size - start)))

    def unpack(self, layout: str, start: int) -> tuple[int, ...]:
        return struct.unpack(layout, self.get(start, struct.calcsize(layout)))
