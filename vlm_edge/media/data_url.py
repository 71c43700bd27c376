"""
Data URLs (RFC 2397): parsed leniently, built strictly.

The payload is kept as base64 text and read at random, so a header costs only its own bytes; the whole is decoded once,
by a worker.
"""

import binascii
from typing import Any

import msgspec
import orjson
import pybase64

from vlm_edge.errors import InvalidDataUrl
from vlm_edge.media.source import Bytes

_WHITESPACE = b" \t\r\n\f\v"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_TRANSLATED = (*_WHITESPACE, *b"-_")
# How clients write characters of base64, or white space in it, in URLs.
_SPELLINGS = (
    *((b"%2B", b"+"), (b"%2b", b"+"), (b"%2F", b"/"), (b"%2f", b"/"), (b"%3D", b"="), (b"%3d", b"=")),
    *((b"%0A", b""), (b"%0a", b""), (b"%0D", b""), (b"%0d", b""), (b"%20", b"")),
)
# The first characters tell, but for odd cases that `decode` sees, whether a payload has to be mended.
_SAMPLE = 4_096


class File(Bytes, frozen=True):
    """A file that came as it is, not in a data URL."""

    def decode(self) -> bytes:
        return self.data

    def canonical(self, media_type: str, data: bytes) -> bool:
        return False


class Payload(msgspec.Struct, frozen=True):
    """The base64 text of a data URL and the part before it; a Source for the probe."""

    head: str  # `data:image/png;base64`, as it came
    text: bytes | memoryview
    clean: bool = True  # False: the text had to be mended
    escaped: bool = False  # the text stands in JSON, which may have escaped some of it

    def __reduce__(self) -> tuple[Any, ...]:
        return Payload, (self.head, bytes(self.text), self.clean, self.escaped)  # a view does not pickle

    @property
    def size(self) -> int:
        """Decoded bytes."""
        padding = bytes(self.text[-2:]).count(b"=")
        return len(self.text) * 3 // 4 - padding

    def read(self, start: int, stop: int) -> bytes:
        """Bytes start:stop of the decoded payload; fewer at its end. Raises InvalidDataUrl."""
        first = start // 3
        chunk = self._decode(self.text[first * 4 : -(-stop // 3) * 4])
        return chunk[start - first * 3 : stop - first * 3]

    def decode(self) -> bytes:
        """The whole payload. Raises InvalidDataUrl."""
        return self._decode(self.text)

    def _decode(self, text: bytes | memoryview) -> bytes:
        try:
            return pybase64.b64decode(text, validate=True)
        except binascii.Error:
            pass
        try:
            return pybase64.b64decode(_mended(bytes(text), self.escaped), validate=True)
        except binascii.Error:
            raise InvalidDataUrl("the base64 of the data URL is not valid; encode the file again") from None

    def canonical(self, media_type: str, data: bytes) -> bool:
        """Whether the URL came as `build` would write it for this file, so that every server reads it alike."""
        head = f"data:{media_type};base64"
        return self.clean and self.head == head and self.text == encode(data)


def parse(url: str, payload: bytes | memoryview | None = None) -> Payload:
    """The payload of a data URL; `payload` is its base64 text, as it stands in JSON, where that was cut out of `url`.

    Any parameters, any (or no) media type, any case, wrapped, unpadded, percent-encoded and URL-safe base64 are read;
    all else raises InvalidDataUrl.
    """
    head, comma, rest = url.partition(",")
    if not comma or head.rpartition(";")[2].strip().lower() != "base64" or (payload is not None and rest):
        raise InvalidDataUrl("found a data URL without ';base64,'; send data:image/jpeg;base64,<base64 of the file>")
    text = payload if payload is not None else rest.encode("ascii", "replace")
    if not len(text):
        raise InvalidDataUrl("found an empty data URL; send data:image/jpeg;base64,<base64 of the file>")
    if _clean(text if payload is None else text[:_SAMPLE], len(text)):
        return Payload(head, text, escaped=payload is not None)
    return Payload(head, _mended(bytes(text), escaped=payload is not None), clean=False)


def parse_base64(media_type: str, text: str, payload: bytes | memoryview | None = None) -> Payload:
    """The payload of a file that is sent as base64 alone, with its media type beside it; else as `parse`."""
    return parse(f"data:{media_type};base64,{'' if payload is not None else text}", payload)


def build(media_type: str, data: bytes) -> bytes:
    """A data URL in the only spelling that every server reads."""
    return b"data:%s;base64,%s" % (media_type.encode(), encode(data))


def encode(data: bytes) -> bytes:
    """A file as base64 alone."""
    return pybase64.b64encode(data)


def _clean(sample: bytes | memoryview, length: int) -> bool:
    if length % 4:
        return False
    try:
        pybase64.b64decode(sample, validate=True)
    except binascii.Error:
        return False
    return True


def _mended(text: bytes, escaped: bool) -> bytes:
    if escaped and b"\\" in text:
        text = _unescaped(text)
    if b"%" in text:
        for spelling, character in _SPELLINGS:
            text = text.replace(spelling, character)
    if any(character in text for character in _TRANSLATED):  # looking takes a tenth of translating
        text = text.translate(_URL_SAFE, _WHITESPACE)
    if len(text) % 4:
        text = text.rstrip(b"=")
        text += b"=" * (-len(text) % 4)
    return text


def _unescaped(text: bytes) -> bytes:
    plain = text.replace(b"\\/", b"/")  # PHP escapes slashes and nothing else in base64
    if b"\\" not in plain:
        return plain
    try:
        string: str = orjson.loads(b'"%s"' % text)
    except orjson.JSONDecodeError:
        raise InvalidDataUrl("the data URL is no valid JSON string; encode the file again") from None
    return string.encode("ascii", "replace")
