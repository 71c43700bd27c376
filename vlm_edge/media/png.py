"""PNG (3rd edition): the chunks beside its pixels."""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from vlm_edge.errors import CorruptMedia
from vlm_edge.geometry import Size
from vlm_edge.media.source import HEAD_BYTES, META_BYTES, Reader

MAGIC = b"\x89PNG\r\n\x1a\n"

# So many chunks are looked at. A file with more does not pass as it came.
MAX_CHUNKS = 3_000
_UNSEEN = b""
_ANCILLARY = 0x20  # a bit of the first letter
MAX_CHUNKS_TO_STRIP = 200_000

_TEXTS = (b"tEXt", b"zTXt", b"iTXt")

_SAMPLES = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by the kind of colour, of which 3 is a palette
_ALPHA = (4, 6)

_KEYWORD_BYTES = 64  # longer ones are not ours; whether such a text is compressed is then taken for granted
_XMP, _RAW_EXIF = b"XML:com.adobe.xmp", b"Raw profile type exif"  # by Adobe, and by ImageMagick before there was eXIf
_NO_EXIF = b"damaged"


class Chunk(NamedTuple):
    kind: bytes
    at: int  # of its content
    length: int


class Png(NamedTuple):
    size: Size  # as stored
    depth: int  # bits of a sample
    samples: int  # of a decoded pixel
    interlaced: bool
    alpha: bool
    animated: bool
    packed_text: bool
    exif: bytes
    xmp: bytes
    profile: bytes | None


def read(file: Reader) -> Png:
    """Raises CorruptMedia."""
    stored = size(file, 0)
    depth, colour, _, _, interlace = file.unpack(">5B", 24)
    packed_text = False
    last: dict[bytes, Chunk] = {}  # of each kind, and of each text that we know
    for chunk in _chunks(file):
        if chunk.kind in (b"tEXt", b"zTXt", b"iTXt"):
            keyword, packed = _keyword(file, chunk)
            packed_text = packed_text or packed
            last[keyword] = chunk
        else:
            last[chunk.kind] = chunk
    return Png(
        size=stored,
        depth=depth,
        samples=_SAMPLES.get(colour, 4) + (b"tRNS" in last),
        interlaced=interlace != 0,
        alpha=colour in _ALPHA or b"tRNS" in last,
        animated=b"acTL" in last,
        packed_text=packed_text or _UNSEEN in last,
        exif=_exif(file, last),
        xmp=_text(file, last[_XMP]) if _XMP in last else b"",
        profile=_profile(file, last[b"iCCP"]) if b"iCCP" in last else None,
    )


def size(file: Reader, at: int) -> Size:
    """Of a PNG that begins at this place. Raises CorruptMedia."""
    if file.get(at + 12, 4) != b"IHDR":
        raise CorruptMedia("it does not begin with its header")
    return Size(*file.unpack(">II", at + 16))


def without_texts(data: bytes) -> bytes:
    """A PNG without its texts, which decoders unpack for nothing."""
    pieces, at, done = [data[:8]], 8, 8
    for _ in range(MAX_CHUNKS_TO_STRIP):
        length, kind = struct.unpack_from(">I4s", data, at) if at + 8 <= len(data) else (0, b"IEND")
        if kind == b"IEND":
            break
        if kind in _TEXTS:
            pieces.append(data[done:at])
            done = at + 12 + length
        at += 12 + length
    else:
        raise CorruptMedia("it has too many chunks")
    return b"".join((*pieces, data[done:]))


def sound(data: bytes) -> bytes:
    """A PNG without the damaged ones of the chunks that it can do without; the very same where there is none.

    libvips passes over them, and Pillow, which reads the file next, does not.
    """
    pieces, at, done = [], 8, 0
    for _ in range(MAX_CHUNKS):
        length, kind = struct.unpack_from(">I4s", data, at) if at + 12 <= len(data) else (0, b"IEND")
        if kind == b"IEND":
            break
        end = at + 12 + length
        if kind[0] & _ANCILLARY and zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end]):
            pieces.append(data[done:at])
            done = end
        at = end
    return b"".join((*pieces, data[done:])) if pieces else data


def _chunks(file: Reader) -> Iterator[Chunk]:
    """Those that do not hold pixels; and an _UNSEEN one for all that stands behind too many."""
    at = 8
    for _ in range(MAX_CHUNKS):
        if at + 8 > file.size:
            return  # cut short: the decoder says so
        length, kind = struct.unpack(">I4s", file.get(at, 8))
        if kind == b"IEND":
            return
        if kind != b"IDAT" and at + 8 + length <= file.size:
            yield Chunk(kind, at + 8, length)
        at += 12 + length
    yield Chunk(_UNSEEN, at, 0)


def _keyword(file: Reader, chunk: Chunk) -> tuple[bytes, bool]:
    """Of a text, and whether the text is compressed."""
    keyword, _, rest = file.up_to(chunk.at, min(chunk.length, _KEYWORD_BYTES + 1)).partition(b"\0")
    return keyword, chunk.kind == b"zTXt" or (chunk.kind == b"iTXt" and rest[:1] != b"\0")


def _text(file: Reader, chunk: Chunk) -> bytes:
    """As much of a text as anyone needs; nothing where it is damaged."""
    _, _, content = file.up_to(chunk.at, min(chunk.length, META_BYTES)).partition(b"\0")
    if chunk.kind == b"tEXt":
        return content
    if chunk.kind == b"zTXt":
        return _inflated(content[1:], META_BYTES)[0]
    packed = content[:1] != b"\0"
    text = content[2:].split(b"\0", 2)[-1]  # a language and a translated keyword come first
    return _inflated(text, META_BYTES)[0] if packed else text


def _exif(file: Reader, last: dict[bytes, Chunk]) -> bytes:
    if b"eXIf" in last:
        return file.up_to(last[b"eXIf"].at, min(last[b"eXIf"].length, HEAD_BYTES))
    return _raw_exif(_text(file, last[_RAW_EXIF])) if _RAW_EXIF in last else b""


def _raw_exif(text: bytes) -> bytes:
    """Of ImageMagick's text: an empty line, a name, a length, and lines of hexadecimal digits."""
    digits = re.sub(rb"\s", b"", b"".join(text.split(b"\n")[3:]))[: 2 * HEAD_BYTES]
    try:
        return bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        return _NO_EXIF


def _profile(file: Reader, chunk: Chunk) -> bytes:
    """The profile in an iCCP chunk; nothing if it is damaged or huge."""
    _, _, stream = file.up_to(chunk.at, min(chunk.length, HEAD_BYTES)).partition(b"\0")
    profile, whole = _inflated(stream[1:], HEAD_BYTES)
    return profile if whole else b""


def _inflated(stream: bytes, most: int) -> tuple[bytes, bool]:
    """At most so many bytes, and whether these are all."""
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(stream, most)
    except zlib.error:
        return b"", False
    return found, inflater.eof
