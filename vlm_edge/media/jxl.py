"""JPEG XL (ISO 18181): the size header at the beginning of the codestream, alone or in boxes (18181-2)."""

from typing import NamedTuple

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media import isobmff
from vlm_edge.media.source import Reader

CODESTREAM = b"\xff\x0a"
HEADER_BYTES = 128
MAX_BOXES = 256
MAX_CHANNELS = 64
GREY = 1

# A width may be told by the height: as a fraction of it.
_RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


class Jxl(NamedTuple):
    """size: upright, for decoders turn the picture themselves."""

    size: Size
    animated: bool = False
    alpha: bool = False
    grey: bool = False
    lossless: bool = False


class _Bits:
    """Numbers of any number of bits, the lowest first."""

    def __init__(self, data: bytes) -> None:
        self._value, self._left = int.from_bytes(data, "little"), 8 * len(data)

    def get(self, bits: int) -> int:
        if bits > self._left:
            raise CorruptMedia("it ends within its headers")
        found = self._value & (1 << bits) - 1
        self._value, self._left = self._value >> bits, self._left - bits
        return found

    def flag(self) -> bool:
        return self.get(1) == 1

    def choice(self, *ways: tuple[int, int]) -> int:
        """One of four ways to write a number: (added to it, its bits)."""
        added, bits = ways[self.get(2)]
        return added + self.get(bits)


def read(file: Reader) -> Jxl:
    """Raises CorruptMedia."""
    data = file.up_to(0, HEADER_BYTES) if file.head.startswith(CODESTREAM) else _boxed(file)
    if not data.startswith(CODESTREAM):
        raise CorruptMedia("its codestream is damaged")
    bits = _Bits(data[len(CODESTREAM) :])
    size = _size(bits)
    return Jxl(size) if bits.flag() else _described(bits, size)


def _boxed(file: Reader) -> bytes:
    """The beginning of the codestream, which may be cut into several boxes."""
    found = b""
    for box, _ in zip(isobmff.boxes(file, 0, file.size, cut=True), range(MAX_BOXES), strict=False):
        if box.kind in (b"jxlc", b"jxlp"):
            start = box.start + (4 if box.kind == b"jxlp" else 0)
            found += file.up_to(start, min(box.stop - start, HEADER_BYTES - len(found)))
        if box.kind == b"jxlc" or len(found) >= HEADER_BYTES:
            break
    return found


def _size(bits: _Bits) -> Size:
    small = bits.flag()
    height = _side(bits, small=small)
    ratio = bits.get(3)
    if not ratio:
        return Size(_side(bits, small=small), height)
    across, down = _RATIOS[ratio - 1]
    return Size(height * across // down, height)


def _side(bits: _Bits, *, small: bool) -> int:
    return 8 * (bits.get(5) + 1) if small else bits.choice((1, 9), (1, 13), (1, 18), (1, 30))


def _described(bits: _Bits, size: Size) -> Jxl:
    """By the fields of the image metadata, which follow where they are not all at their defaults."""
    orientation, animated = _extra(bits) if bits.flag() else (1, False)
    _skip_depth(bits)
    bits.flag()  # whether 16 bits are enough for its decoder
    channels = bits.choice((0, 0), (1, 0), (2, 4), (1, 12))
    plain = all(bits.flag() for _ in range(min(channels, MAX_CHANNELS)))
    grey, lossless = _colour(bits) if plain else (False, False)
    # A channel more is hardly ever another thing than alpha.
    return Jxl(size.turned() if orientation >= 5 else size, animated, channels > 0, grey, lossless)


def _colour(bits: _Bits) -> tuple[bool, bool]:
    """Whether there is but grey, and whether colours are kept as they came, as only lossless encoding does."""
    converted = bits.flag()
    if bits.flag():
        return False, not converted
    bits.flag()  # whether a profile follows
    return bits.choice((0, 0), (1, 0), (2, 4), (18, 6)) == GREY, not converted


def _extra(bits: _Bits) -> tuple[int, bool]:
    """The orientation, and whether there is an animation."""
    orientation = 1 + bits.get(3)
    if bits.flag():
        _size(bits)  # at which it would like to be shown
    if bits.flag():
        _skip_preview(bits)
    animated = bits.flag()
    if animated:
        _skip_animation(bits)
    return orientation, animated


def _skip_preview(bits: _Bits) -> None:
    ways = ((16, 0), (32, 0), (1, 5), (33, 9)) if bits.flag() else ((1, 6), (65, 8), (321, 10), (1_345, 12))
    bits.choice(*ways)
    if not bits.get(3):
        bits.choice(*ways)


def _skip_animation(bits: _Bits) -> None:
    bits.choice((100, 0), (1_000, 0), (1, 10), (1, 30))  # ticks a second
    bits.choice((1, 0), (1_001, 0), (1, 8), (1, 10))
    bits.choice((0, 0), (0, 3), (0, 16), (0, 32))  # repetitions
    bits.flag()


def _skip_depth(bits: _Bits) -> None:
    if bits.flag():  # floating point
        bits.choice((32, 0), (16, 0), (24, 0), (1, 6))
        bits.get(4)
    else:
        bits.choice((8, 0), (10, 0), (12, 0), (1, 6))
