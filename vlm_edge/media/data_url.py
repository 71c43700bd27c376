"""
Data URLs (RFC 2397): parsed leniently, built strictly.

The payload is kept as base64 text and read at random, so a header costs only its own bytes; the whole is decoded once,
by a worker.
"""

import binascii
from urllib.parse import unquote_to_bytes

import msgspec
import pybase64

from vlm_edge.errors import InvalidDataUrl

_WHITESPACE = b" \t\r\n\f\v"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
# The first characters tell whether a payload was wrapped, percent-encoded or made with the URL-safe alphabet.
_SAMPLE = 4_096


class Payload(msgspec.Struct, frozen=True):
    """The base64 text of a data URL and the part before it; a Source for the probe."""

    head: str  # `data:image/png;base64`, as it came
    text: bytes | memoryview
    clean: bool = True  # False: the text had to be mended

    @property
    def size(self) -> int:
        """Decoded bytes."""
        padding = bytes(self.text[-2:]).count(b"=")
        return len(self.text) * 3 // 4 - padding

    def read(self, start: int, stop: int) -> bytes:
        """Bytes start:stop of the decoded payload; fewer at its end. Raises InvalidDataUrl."""
        first = start // 3
        chunk = _decode(self.text[first * 4 : -(-stop // 3) * 4])
        return chunk[start - first * 3 : stop - first * 3]

    def decode(self) -> bytes:
        """The whole payload. Raises InvalidDataUrl."""
        return _decode(self.text)

    def canonical(self, media_type: str) -> bool:
        """Whether the URL came as `build` would write it, so that every server reads it alike."""
        return self.clean and self.head == f"data:{media_type};base64"


def parse(url: str, payload: bytes | memoryview | None = None) -> Payload:
    """The payload of a data URL; `payload` is its base64 text where that was cut out of `url`.

    Any parameters, any (or no) media type, any case, wrapped, unpadded, percent-encoded and URL-safe base64 are read;
    all else raises InvalidDataUrl.
    """
    head, comma, rest = url.partition(",")
    if not comma or not head.lower().rstrip().endswith(";base64"):
        raise InvalidDataUrl("found a data URL without ';base64,'; send data:image/jpeg;base64,<base64 of the file>")
    text = payload if payload is not None else rest.encode("ascii", "replace")
    if not len(text):
        raise InvalidDataUrl("found an empty data URL; send data:image/jpeg;base64,<base64 of the file>")
    clean = _clean(text)
    return Payload(head, text if clean else _mended(bytes(text)), clean)


def build(media_type: str, data: bytes) -> bytes:
    """A data URL in the only spelling that every server reads."""
    return b"data:%s;base64,%s" % (media_type.encode(), pybase64.b64encode(data))


def _clean(text: bytes | memoryview) -> bool:
    if len(text) % 4:
        return False
    try:
        pybase64.b64decode(text if len(text) <= _SAMPLE else text[:_SAMPLE], validate=True)
    except binascii.Error:
        return False
    return True


def _mended(text: bytes) -> bytes:
    if b"%" in text:
        text = unquote_to_bytes(text)
    text = text.translate(_URL_SAFE, _WHITESPACE).rstrip(b"=")
    return text + b"=" * (-len(text) % 4)


def _decode(text: bytes | memoryview) -> bytes:
    try:
        return pybase64.b64decode(text, validate=True)
    except binascii.Error:
        pass
    try:
        return pybase64.b64decode(_mended(bytes(text)), validate=True)
    except binascii.Error:
        raise InvalidDataUrl("the base64 of the data URL is not valid; encode the file again") from None
