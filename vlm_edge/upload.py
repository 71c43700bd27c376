"""
Upload: the body of a request, received whole, within its time and its size, and decoded.

    read_body          all of it: unpacked if it is gzip or deflate, as raw bytes
    at_once, in_time   the first piece alone, for those who can tell from it whether they need the rest
    check_head         what the headers say of the body, before a byte of it is read

A client is nobody's friend until its body is complete: it may stall, leave, lie about the length, or send a few
kilobytes that unpack to gigabytes. asyncio only.
"""

import asyncio
import mmap
import types
import zlib
from collections.abc import Awaitable, Coroutine, Generator, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vlm_edge.errors import BodyTooLarge, InvalidEncoding, PackedTooTightly, UnsupportedEncoding, UploadTimeout
from vlm_edge.requests.body import Raw

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope

# Encoded bytes are unpacked in steps of so much at most: a few milliseconds, after which others have their turn.
STEP_INPUT_BYTES = 64 * 1024
STEP_OUTPUT_BYTES = 1024 * 1024

# What a body may unpack to per byte received. Base64 of compressed pictures gives 1.3, conversations give up to 30, the
# same line over and over 340, and a page of text in an uncompressed TIFF 330. What is packed tighter is nearly all one
# byte (deflate ends at 1032), and would let a client fill our memory for a thousandth of its size.
MAX_RATIO = 400
# So much is free: the blank top of a page is packed at 1000, and how much of the rest has come by then is chance.
RATIO_FREE_BYTES = 8 * 1024 * 1024


class UploadSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a client may take to send a body. timeout_s: for the whole. idle_timeout_s: between two pieces."""

    timeout_s: float = 300.0
    idle_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not (self.timeout_s > 0 and self.idle_timeout_s > 0):  # so that NaN is refused as well
            raise ValueError("time-outs must be above 0")


class ClientLeft(Exception):
    """The client disconnected before its body was complete; there is nobody to answer."""


class Coding(NamedTuple):
    """What may follow the end of an encoded stream: another one, up to so many, and padding."""

    max_streams: int
    padding: bytes


# gzip files may be strung together, and block gzip does it every 64 KB; gzip tools pass over zeros behind them. The
# bound is for a body of empty ones, each of which costs work and gives nothing.
CODINGS = {"gzip": Coding(4096, b"\0"), "deflate": Coding(1, b"")}
ALIASES = {"x-gzip": "gzip"}  # RFC 9110, 8.4.1.3


def check_head(headers: Iterable[tuple[bytes, bytes]], allowed: int) -> tuple[int, str]:
    """What the headers say of a body: its declared length, 0 if there is none, and its encoding, "" for none.

    Raises UnsupportedEncoding and BodyTooLarge.
    """
    declared, encoding = 0, b""
    for name, value in headers:  # ASGI has their names in lower case
        if name == b"content-length":
            declared = int(value[:20]) if value.isdigit() else _length(value.strip())
        elif name == b"content-encoding":
            encoding += b"," + value
    if declared > allowed:
        raise BodyTooLarge(declared, allowed)
    return declared, _encoding(encoding) if encoding else ""


def _length(value: bytes) -> int:
    return int(value[:20]) if value.isdigit() else 0  # a longer one is too large whatever it says


def _encoding(values: bytes) -> str:
    names = [name.strip() for name in values.decode("latin-1").lower().split(",")]
    names = [ALIASES.get(name, name) for name in names if name not in ("", "identity")]
    if len(names) > 1 or not CODINGS.keys() >= set(names):
        raise UnsupportedEncoding(", ".join(names))
    return names[0] if names else ""


class Later:
    """A message that is not there yet: a call of `receive` that has begun, and waits."""

    __slots__ = ("_receiving", "_waiting")

    def __init__(self, receiving: "Coroutine[Any, Any, Message]", waiting: Any) -> None:
        self._receiving, self._waiting = receiving, waiting

    def __await__(self) -> "Generator[Any, Any, Message]":
        """It goes on as if it had been awaited from the start."""
        waiting = self._waiting
        while True:
            try:
                yield waiting
            except BaseException as error:  # noqa: BLE001 - a cancellation is its own, which may wait on or return
                try:
                    waiting = self._receiving.throw(error)
                except StopIteration as done:
                    return _heard(done.value)
            else:
                return _heard((yield from self._receiving.__await__()))


def at_once(receive: "Receive") -> "Message | Later":
    """The next message, if it is there already, as it most often is: then it costs neither a timer nor a coroutine.

    Raises ClientLeft.
    """
    receiving = receive()
    begun = receiving if isinstance(receiving, types.CoroutineType) else _awaited(receiving)
    try:
        return Later(begun, begun.send(None))
    except StopIteration as done:
        return _heard(done.value)


async def _awaited(receiving: "Awaitable[Message]") -> "Message":
    return await receiving  # servers may return another kind of awaitable than coroutines


def _heard(message: "Message") -> "Message":
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message


async def in_time(first: Later, timeouts: UploadSettings) -> "Message":
    """The first message. Raises UploadTimeout and ClientLeft. What it took does not count in a `read_body` after it."""
    return await _Patience(timeouts).wait(first, received=0)


class _Patience:
    """With a client that sends its body."""

    def __init__(self, timeouts: UploadSettings) -> None:
        self._timeouts = timeouts
        self._begun_s: float | None = None  # when it was first waited for

    async def wait(self, message: Later, received: int) -> "Message":
        now_s = asyncio.get_running_loop().time
        self._begun_s = begun_s = now_s() if self._begun_s is None else self._begun_s
        left_s = begun_s + self._timeouts.timeout_s - now_s()
        try:
            async with asyncio.timeout(min(left_s, self._timeouts.idle_timeout_s)):
                return await message
        except TimeoutError:
            raise UploadTimeout(received, round(now_s() - begun_s, 1)) from None


async def read_body(scope: "Scope", receive: "Receive", allowed: int, timeouts: UploadSettings) -> Raw:
    """The whole body of a request, decoded.

    Raises UnsupportedEncoding, InvalidEncoding for a damaged one, UploadTimeout, ClientLeft, and BodyTooLarge as soon
    as the bound is crossed or declared to be, by the bytes that come or by what they unpack to.
    """
    (declared, encoding), client = check_head(scope["headers"], allowed), _Client(receive, timeouts)
    if encoding:
        return await _read_encoded(client, encoding, allowed)
    piece = await client.piece(allowed)
    if not client.more:
        return bytes(piece)  # it came whole, as small ones do
    upload = Upload(declared)
    upload.add(piece)
    while client.more:
        upload.add(await client.piece(allowed))
    return upload.body()


async def _read_encoded(client: "_Client", encoding: str, allowed: int) -> Raw:
    decoder, upload = Decoder(encoding), Upload(0)
    while client.more:
        piece = await client.piece(allowed)
        bound = min(allowed, max(RATIO_FREE_BYTES, MAX_RATIO * client.received))
        for start in range(0, len(piece), STEP_INPUT_BYTES):
            await _unpack(bytes(piece[start : start + STEP_INPUT_BYTES]), decoder, upload, bound)
            if upload.length > allowed:
                raise BodyTooLarge(upload.length, allowed)
            if upload.length > bound:
                raise PackedTooTightly(client.received, MAX_RATIO)
    decoder.end()
    return upload.body()


async def _unpack(data: bytes, decoder: "Decoder", upload: "Upload", bound: int) -> None:
    """Unpack all of the data, or a byte more than the bound."""
    full = False
    while (data or full) and upload.length <= bound:
        room = min(STEP_OUTPUT_BYTES, bound + 1 - upload.length)  # one byte more shows that the bound is crossed
        unpacked, data = decoder.step(data, room)
        upload.add(unpacked)
        full = len(unpacked) == room  # there may be more, of which zlib has read all and given a part
        await asyncio.sleep(0)


class Decoder:
    """Unpacks a body step by step; no step gives more than it is given room for."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self.streams = 0
        self._stream: zlib._Decompress | None = None  # none before the first and behind an end

    def step(self, data: bytes, room: int) -> tuple[bytes, bytes]:
        """What comes of some of the data, and the data that are left."""
        if not self._stream:
            data = self._begin(data)
        stream = self._stream
        if not stream:
            return b"", b""
        try:
            unpacked = stream.decompress(data, room)
        except zlib.error:
            raise self._invalid("it is damaged") from None
        if not stream.eof:
            return unpacked, stream.unconsumed_tail
        self._stream = None
        return unpacked, stream.unused_data

    def end(self) -> None:
        """Raises InvalidEncoding if more should have come."""
        if self._stream or not self.streams:
            raise self._invalid("it is cut short")

    def _begin(self, data: bytes) -> bytes:
        """A new stream, if the data are more than padding behind the last."""
        coding = CODINGS[self.encoding]
        if self.streams:
            data = data.lstrip(coding.padding)
        if data:
            if self.streams == coding.max_streams:
                raise self._invalid("more follows its end")
            self.streams += 1
            self._stream = zlib.decompressobj(_wbits(self.encoding, data[0]))
        return data

    def _invalid(self, why: str) -> InvalidEncoding:
        return InvalidEncoding(self.encoding, why)


def _wbits(encoding: str, first: int) -> int:
    """What zlib shall expect. Of deflate both kinds are about: zlib's, as RFC 9110 wants it, and the bare one.

    The first byte tells: a zlib header has 8 in its low half, which in bare deflate would be a stored block with
    padding other than zeros; nobody writes that.
    """
    if encoding == "gzip":
        return 16 + zlib.MAX_WBITS
    return zlib.MAX_WBITS if first & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS


class Upload:
    """Pieces put together without a long pause: joining or moving tens of megabytes would hold up the event loop.

    A body of declared length goes into an anonymous map, of which a page becomes memory when it is written.
    """

    def __init__(self, declared: int) -> None:
        self.length = 0
        self._whole: mmap.mmap | bytearray = mmap.mmap(-1, declared) if declared else bytearray()

    def add(self, piece: bytes) -> None:
        start, self.length = self.length, self.length + len(piece)
        if isinstance(self._whole, bytearray):
            self._whole += piece
        elif self.length <= len(self._whole):
            self._whole[start : self.length] = piece
        else:  # the client's word on the length was wrong
            self._whole = bytearray(self._whole[:start]) + piece

    def body(self) -> Raw:
        return self._whole if self.length == len(self._whole) else bytearray(self._whole[: self.length])


class _Client:
    """The messages of a client that is still there and in time.

    Most often the message is there already. So `receive` is begun without a timer, and gets one only if it has to wait:
    a tenth of the cost of `asyncio.timeout` around each, and no task as `wait_for` may make.
    """

    def __init__(self, receive: "Receive", timeouts: UploadSettings) -> None:
        self.received = 0  # bytes of the body
        self.more = True
        self._receive = receive
        self._patience = _Patience(timeouts)

    async def piece(self, allowed: int) -> bytes:
        """The next of the body. Raises BodyTooLarge if it has more than the allowed bytes with it."""
        message = at_once(self._receive)
        if isinstance(message, Later):
            message = await self._patience.wait(message, self.received)
        piece: bytes = message.get("body", b"")
        self.received += len(piece)
        self.more = message.get("more_body", False)
        if self.received > allowed:
            raise BodyTooLarge(self.received, allowed)
        return piece
