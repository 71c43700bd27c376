"""Bodies as an ASGI server hands them on: whole, in pieces, packed, too large, too slow, damaged, broken off."""

import asyncio
import gzip
import math
import selectors
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import Context
from itertools import pairwise
from mmap import mmap
from typing import Any, TypeVar, TypeVarTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from vlm_edge.errors import BodyTooLarge, EdgeError, InvalidEncoding, UnsupportedEncoding, UploadTimeout
from vlm_edge.requests.body import Raw
from vlm_edge.upload import ClientLeft, Later, UploadSettings, at_once, check_head, in_time, read_body

pytestmark = pytest.mark.anyio

KIB, MIB = 1024, 1024 * 1024
TIMEOUTS = UploadSettings()
SHORT = UploadSettings(timeout_s=30, idle_timeout_s=0.05)
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "a b c d e f g h"}]}' * 20
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

properties = settings(deadline=None, max_examples=200)


def raw_deflate(body: bytes, level: int = -1) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(body) + packer.flush()


def two_members(body: bytes) -> bytes:
    half = len(body) // 2
    return gzip.compress(body[:half]) + gzip.compress(body[half:])


def packed_zeros(size: int) -> bytes:
    """As gzip would, a piece at a time: the test itself shall not hold them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(size // MIB)), packer.flush()])


# How a body may be sent: the header's value and what makes the bytes.
PACKED: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "gzip": (b"gzip", gzip.compress),
    "gzip, stored": (b"gzip", lambda body: gzip.compress(body, compresslevel=0)),
    "gzip of two members": (b"x-gzip", two_members),
    "gzip with padding": (b"gzip", lambda body: gzip.compress(body) + bytes(700)),
    "gzip with padding between": (b"gzip", lambda body: gzip.compress(b"") + bytes(7) + gzip.compress(body)),
    "deflate": (b"deflate", zlib.compress),
    "deflate, stored": (b"deflate", lambda body: zlib.compress(body, 0)),
    "deflate, a small window": (b"deflate", lambda body: small_window(body)),
    "bare deflate": (b"deflate", raw_deflate),
    "bare deflate, stored": (b"deflate", lambda body: raw_deflate(body, 0)),
}
SENT = {"as it is": (b"identity", bytes), **PACKED}


def small_window(body: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 9)
    return packer.compress(body) + packer.flush()


class Sender:
    """A client's messages, as the server's `receive` gives them: all that it has sent are there at once."""

    def __init__(self, *pieces: bytes, complete: bool = True) -> None:
        self.taken = 0
        self._messages: list[Message] = [
            {"type": "http.request", "body": piece, "more_body": not complete or number < len(pieces)}
            for number, piece in enumerate(pieces, 1)
        ]

    async def __call__(self) -> Message:
        if self.taken == len(self._messages):
            await asyncio.Event().wait()
        self.taken += 1
        return self._messages[self.taken - 1]


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:stop] for start, stop in pairwise(edges)]


async def read(
    receive: Callable[[], Awaitable[Message]],
    *,
    encoding: bytes = b"",
    declared: int | None = None,
    allowed: int = 64 * MIB,
    timeouts: UploadSettings = TIMEOUTS,
) -> Raw:
    headers = [(b"content-encoding", encoding)] if encoding else []
    if declared is not None:
        headers.append((b"content-length", b"%d" % declared))
    return await read_body({"type": "http", "headers": headers}, receive, allowed, timeouts)


# What the headers say


@pytest.mark.parametrize(
    ("headers", "declared", "encoding"),
    [
        ([], 0, ""),
        ([(b"content-length", b"12"), (b"host", b"edge")], 12, ""),
        ([(b"content-length", b" 12 ")], 12, ""),
        ([(b"content-length", b"nonsense")], 0, ""),
        ([(b"content-length", b"-1")], 0, ""),
        ([(b"content-length", b"")], 0, ""),
        ([(b"content-encoding", b"")], 0, ""),
        ([(b"content-encoding", b" Identity ")], 0, ""),
        ([(b"content-encoding", b"gzip")], 0, "gzip"),
        ([(b"content-encoding", b"\tGZip ")], 0, "gzip"),
        ([(b"content-encoding", b"x-gzip"), (b"content-length", b"7")], 7, "gzip"),
        ([(b"content-encoding", b"deflate")], 0, "deflate"),
        ([(b"content-encoding", b"identity, gzip,")], 0, "gzip"),
        ([(b"content-encoding", b"identity"), (b"content-encoding", b"deflate")], 0, "deflate"),
    ],
)
def test_the_head_says_how_long_a_body_is_and_how_packed(
    headers: list[tuple[bytes, bytes]], declared: int, encoding: str
) -> None:
    assert check_head(headers, 100) == (declared, encoding)


@pytest.mark.parametrize(
    "values",
    [[b"br"], [b"zstd"], [b"compress"], [b"gzip, gzip"], [b"gzip", b"deflate"], [b"gzip;q=1"], [b"\xff"], [b"gzip br"]],
)
def test_any_other_encoding_is_refused(values: list[bytes]) -> None:
    with pytest.raises(UnsupportedEncoding) as caught:
        check_head([(b"content-encoding", value) for value in values], 100)
    assert caught.value.status == 415


@pytest.mark.parametrize("length", [b"101", b"9" * 5_000])
def test_a_declared_length_above_the_limit_is_refused(length: bytes) -> None:
    assert check_head([(b"content-length", b"100")], 100) == (100, "")
    with pytest.raises(BodyTooLarge):
        check_head([(b"content-length", length)], 100)


async def test_a_body_declared_too_large_is_refused_unread() -> None:
    sender = Sender(b"x")
    with pytest.raises(BodyTooLarge):
        await read(sender, declared=101, allowed=100)
    assert sender.taken == 0


# Whole bodies


@properties
@given(
    body=st.one_of(
        st.binary(max_size=300), st.builds(lambda run, times: run * times, st.binary(), st.integers(0, 900))
    ),
    places=st.lists(st.integers(0, 100_000), max_size=12),
    sent=st.sampled_from(sorted(SENT)),
    declared=st.one_of(st.none(), st.integers(0, 5_000), st.just(-1)),
)
def test_a_body_is_the_same_however_it_was_packed_and_cut(
    body: bytes, places: list[int], sent: str, declared: int | None
) -> None:
    encoding, pack = SENT[sent]
    packed = pack(body)
    if declared == -1:
        declared = len(packed)
    received = asyncio.run(read(Sender(*cut(packed, places)), encoding=encoding, declared=declared))
    assert bytes(received) == body


@pytest.mark.parametrize("sent", PACKED)
async def test_a_body_may_come_byte_by_byte(sent: str) -> None:
    encoding, pack = PACKED[sent]
    packed = pack(BODY)
    assert await read(Sender(*(packed[at : at + 1] for at in range(len(packed)))), encoding=encoding) == BODY


@pytest.mark.parametrize("sent", PACKED)
async def test_a_large_packed_body_comes_whole_in_one_piece(sent: str) -> None:
    encoding, pack = PACKED[sent]
    numbers = b",".join(b"%d" % (number * 7_919) for number in range(300_000))
    assert await read(Sender(pack(numbers)), encoding=encoding) == numbers


async def test_a_body_may_end_anywhere_in_a_step() -> None:
    """Bare deflate has nothing behind its last byte, with which zlib would be called for what it holds back."""
    for rest in range(260):  # one match of deflate is of up to 258 bytes
        body = bytes(MIB + rest)
        assert await read(Sender(raw_deflate(body, 1)), encoding=b"deflate") == body


@pytest.mark.parametrize(
    "messages",
    [
        [{"type": "http.request"}],
        [{"type": "http.request", "more_body": True}, {"type": "http.request"}],
        [{"type": "http.request", "body": b""}],
    ],
)
async def test_a_message_may_lack_what_is_empty(messages: list[Message]) -> None:
    arriving = iter(messages)

    async def receive() -> Message:
        return next(arriving)

    assert await read(receive) == b""


@pytest.mark.parametrize("declared", [5, len(BODY), 2 * len(BODY)])
async def test_a_body_is_what_came_and_not_what_was_declared(declared: int) -> None:
    """A server holds a client to its word; a middleware before us need not have kept the header true."""
    assert bytes(await read(Sender(BODY[:7], BODY[7:]), declared=declared)) == BODY


async def test_a_body_of_declared_length_comes_into_a_map_and_not_into_the_heap() -> None:
    assert isinstance(await read(Sender(BODY[:7], BODY[7:]), declared=len(BODY)), mmap)


async def test_a_receive_need_not_be_a_coroutine() -> None:
    def receive() -> asyncio.Future[Message]:
        message: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(message.set_result, {"type": "http.request", "body": BODY})
        return message

    assert await read(receive) == BODY


# Sizes


@pytest.mark.parametrize("declared", [None, 100])
@pytest.mark.parametrize("pieces", [[bytes(100)], [bytes(50), bytes(50)], [bytes(100), b""]])
async def test_a_body_of_exactly_the_limit_is_taken(pieces: list[bytes], declared: int | None) -> None:
    assert bytes(await read(Sender(*pieces), declared=declared, allowed=100)) == bytes(100)


@pytest.mark.parametrize("declared", [None, 50])
@pytest.mark.parametrize("pieces", [[bytes(101)], [bytes(50), bytes(51)], [bytes(100), b"", b"1"]])
async def test_one_byte_more_is_not(pieces: list[bytes], declared: int | None) -> None:
    with pytest.raises(BodyTooLarge):
        await read(Sender(*pieces), declared=declared, allowed=100)


async def test_what_goes_beyond_the_limit_is_not_read_to_its_end() -> None:
    sender = Sender(*[bytes(1_000)] * 50)
    with pytest.raises(BodyTooLarge):
        await read(sender, allowed=10_000)
    assert sender.taken == 11


@pytest.mark.parametrize("sent", ["gzip", "deflate", "bare deflate"])
async def test_a_packed_body_is_bounded_by_what_it_unpacks_to(sent: str) -> None:
    encoding, pack = PACKED[sent]
    assert await read(Sender(pack(BODY)), encoding=encoding, allowed=len(BODY)) == BODY
    with pytest.raises(BodyTooLarge):
        await read(Sender(pack(BODY)), encoding=encoding, allowed=len(BODY) - 1)


async def test_no_more_is_unpacked_than_shows_that_it_is_too_much() -> None:
    with pytest.raises(BodyTooLarge, match="has 201 bytes or more; at most 200 are allowed"):
        await read(Sender(gzip.compress(BODY)), encoding=b"gzip", allowed=200)


async def test_a_packed_body_is_bounded_by_what_is_sent_as_well() -> None:
    padded = gzip.compress(b"{}") + bytes(200)
    assert await read(Sender(padded), encoding=b"gzip", allowed=len(padded)) == b"{}"
    with pytest.raises(BodyTooLarge):
        await read(Sender(*cut(padded, [30, 60])), encoding=b"gzip", allowed=len(padded) - 1)


@pytest.mark.parametrize("pieces", [1, 10])
async def test_a_bomb_is_not_unpacked(pieces: int) -> None:
    bomb, allowed = packed_zeros(256 * MIB), 4 * MIB
    sender = Sender(*cut(bomb, range(0, len(bomb), len(bomb) // pieces)))
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            await read(sender, encoding=b"gzip", allowed=allowed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * allowed


async def test_what_is_packed_a_thousandfold_is_too_large_within_the_limit() -> None:
    with pytest.raises(BodyTooLarge):
        await read(Sender(packed_zeros(16 * MIB)), encoding=b"gzip")


async def test_the_same_message_over_and_over_is_not() -> None:
    """Packed 340-fold: as tight as anything gets that somebody may mean."""
    history = b'{"role": "user", "content": "hello"},' * 500_000
    packed = gzip.compress(history)
    assert len(history) > 300 * len(packed)
    assert await read(Sender(*cut(packed, range(0, len(packed), 16 * KIB))), encoding=b"gzip") == history


async def test_unpacking_lets_others_have_their_turn() -> None:
    turns, body = 0, b"0123456789abcdef" * (MIB // 2)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await read(Sender(gzip.compress(body)), encoding=b"gzip") == body
    task.cancel()
    assert turns >= len(body) // MIB


# Damage


@properties
@given(body=st.binary(max_size=400), sent=st.sampled_from(["gzip", "deflate", "bare deflate"]), data=st.data())
def test_a_body_that_is_cut_short_is_refused(body: bytes, sent: str, data: st.DataObject) -> None:
    encoding, pack = PACKED[sent]
    packed = pack(body)
    short = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with pytest.raises(InvalidEncoding, match=encoding.decode()):
        asyncio.run(read(Sender(*cut(short, data.draw(st.lists(st.integers(0, 500))))), encoding=encoding))


@st.composite
def damage(draw: st.DrawFn, packed: bytes) -> bytes:
    start = draw(st.integers(0, len(packed)))
    stop = draw(st.integers(start, min(len(packed), start + 4)))
    return packed[:start] + draw(st.binary(max_size=4)) + packed[stop:]


@properties
@given(body=st.binary(max_size=400), sent=st.sampled_from(sorted(PACKED)), data=st.data())
def test_damage_is_an_error_of_ours_or_does_no_harm(body: bytes, sent: str, data: st.DataObject) -> None:
    """Bare deflate has no checksum to show what has changed in it."""
    encoding, pack = PACKED[sent]
    damaged = data.draw(damage(pack(body)))
    pieces = cut(damaged, data.draw(st.lists(st.integers(0, 500), max_size=5)))
    try:
        received = asyncio.run(read(Sender(*pieces), encoding=encoding))
    except EdgeError:
        return
    assert sent.startswith("bare") or bytes(received) == body


@properties
@given(noise=st.binary(max_size=300), encoding=st.sampled_from([b"gzip", b"deflate"]))
def test_noise_is_no_other_error_than_ours(noise: bytes, encoding: bytes) -> None:
    try:
        received = asyncio.run(read(Sender(noise), encoding=encoding))
    except EdgeError:
        return
    # What zlib takes for itself is no noise.
    assert bytes(received) == zlib.decompress(noise, -15 if encoding == b"deflate" and noise[0] & 15 != 8 else 47)


@pytest.mark.parametrize(
    ("encoding", "sent"),
    [
        (b"gzip", b""),
        (b"deflate", b""),
        (b"gzip", BODY),
        (b"deflate", BODY),
        (b"gzip", zlib.compress(BODY)),
        (b"deflate", gzip.compress(BODY)),
        (b"gzip", bytes(100)),
        (b"gzip", gzip.compress(BODY) + b"garbage"),
        (b"gzip", gzip.compress(BODY) + bytes(10) + b"\x1f"),
        (b"gzip", gzip.compress(BODY) + gzip.compress(BODY)[:-1]),
        (b"gzip", gzip.compress(BODY)[:-8] + bytes(8)),
        (b"deflate", zlib.compress(BODY) + b"\n"),
        (b"deflate", zlib.compress(BODY) + bytes(10)),
        (b"deflate", zlib.compress(BODY) * 2),
        (b"deflate", raw_deflate(BODY) + b"garbage"),
        (b"deflate", b"\x78\xbb" + bytes(20)),  # it wants a dictionary
    ],
)
async def test_what_is_not_of_its_encoding_is_refused(encoding: bytes, sent: bytes) -> None:
    for pieces in ([sent], cut(sent, range(len(sent)))):
        with pytest.raises(InvalidEncoding) as caught:
            await read(Sender(*pieces), encoding=encoding)
        assert f"not valid {encoding.decode()}" in caught.value.message
        assert caught.value.status == 400
        assert "zlib" not in caught.value.message.replace("deflate", "")
        assert "Error -" not in caught.value.message


async def test_block_gzip_is_gzip() -> None:
    """bgzip ends a member every 64 KB and the file with an empty one."""
    blocks = [b"%06d" % number * 10_000 for number in range(100)]
    packed = b"".join(map(gzip.compress, [*blocks, b""]))
    assert await read(Sender(packed), encoding=b"gzip") == b"".join(blocks)


async def test_a_member_that_takes_many_steps_may_be_followed_by_another() -> None:
    first, second = bytes(3 * MIB), b"1" * 3 * MIB
    assert await read(Sender(gzip.compress(first) + gzip.compress(second)), encoding=b"gzip") == first + second


async def test_gzip_of_ever_more_empty_members_is_refused() -> None:
    with pytest.raises(InvalidEncoding, match="gzip"):
        await read(Sender(gzip.compress(b"") * 100_000), encoding=b"gzip")


# A client that leaves


async def first_message(receive: Callable[[], Awaitable[Message]], timeouts: UploadSettings) -> Message:
    message = at_once(receive)
    return await in_time(message, timeouts) if isinstance(message, Later) else message


@pytest.mark.parametrize("encoding", [b"", b"gzip"])
@pytest.mark.parametrize("pieces", [0, 1, 3])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_client_that_leaves_is_not_waited_for(encoding: bytes, pieces: int, waits: bool) -> None:
    sender = Sender(*cut(gzip.compress(BODY)[:-1], [10, 20]), complete=False)

    async def receive() -> Message:
        if sender.taken < pieces:
            return await sender()
        if waits:
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    with pytest.raises(ClientLeft):
        await read(receive, encoding=encoding)
    with pytest.raises(ClientLeft):
        await first_message(receive, TIMEOUTS)


# Time


class Skipping(selectors.DefaultSelector):
    """Waits no time at all, but counts it."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        self.now_s += max(timeout, 0)
        return super().select(0)


class Clockwork(asyncio.SelectorEventLoop):
    """A loop in which an hour passes at once, so that no test waits or depends on the machine."""

    def __init__(self) -> None:
        self.skipping = Skipping()
        self.timers = 0
        super().__init__(self.skipping)

    def time(self) -> float:
        return self.skipping.now_s

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)


def clockwork(main: Coroutine[Any, Any, T]) -> tuple[T, Clockwork]:
    loop = Clockwork()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main), loop


def pausing(pieces: Sequence[bytes], pauses_s: Sequence[float]) -> Callable[[], Awaitable[Message]]:
    sender, pauses = Sender(*pieces), iter(pauses_s)

    async def receive() -> Message:
        await asyncio.sleep(next(pauses))
        return await sender()

    return receive


@pytest.mark.parametrize("encoding", [b"", b"gzip"])
@pytest.mark.parametrize("pieces", [[], [b"\x1f\x8b"], [b"\x1f", b"\x8b", b""]])
async def test_a_client_that_falls_silent_is_given_up(encoding: bytes, pieces: list[bytes]) -> None:
    with pytest.raises(UploadTimeout) as caught:
        await read(Sender(*pieces, complete=False), encoding=encoding, timeouts=SHORT)
    assert caught.value.status == 408
    assert caught.value.message.startswith(f"{sum(map(len, pieces))} bytes of the body came")


async def test_a_client_whose_every_piece_is_in_time_is_given_up_in_the_end() -> None:
    async def receive() -> Message:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x", "more_body": True}

    with pytest.raises(UploadTimeout):
        await read(receive, timeouts=UploadSettings(timeout_s=0.05))


@pytest.mark.parametrize("encoding", [b"", b"gzip"])
def test_pauses_are_allowed_up_to_the_time_between_pieces(encoding: bytes) -> None:
    pieces = cut(gzip.compress(BODY) if encoding else BODY, [10, 20, 30, 40])
    body, loop = clockwork(read(pausing(pieces, [29.9] * 5), encoding=encoding))
    assert bytes(body) == BODY
    assert loop.time() == pytest.approx(5 * 29.9)
    with pytest.raises(UploadTimeout, match=r"^20 bytes of the body came within 60 s"):
        clockwork(read(pausing(pieces, [10, 20, 30.1, 0, 0]), encoding=encoding))


def test_all_pauses_together_are_allowed_up_to_the_time_for_the_whole() -> None:
    pieces = cut(BODY, range(0, 110, 10))  # twelve, of which the first is empty
    assert bytes(clockwork(read(pausing(pieces, [24.9] * 12)))[0]) == BODY
    with pytest.raises(UploadTimeout, match=r"^100 bytes of the body came within 300 s"):
        clockwork(read(pausing(pieces, [25.1] * 12)))


def test_a_first_message_is_waited_for_no_longer_than_another() -> None:
    message, _ = clockwork(first_message(pausing([BODY], [29.9]), TIMEOUTS))
    assert message == {"type": "http.request", "body": BODY, "more_body": False}
    with pytest.raises(UploadTimeout, match=r"^0 bytes of the body came within 30 s"):
        clockwork(first_message(pausing([BODY], [30.1]), TIMEOUTS))


def test_a_body_that_is_there_costs_no_timer() -> None:
    """That timers are seen at all is shown by the body that is waited for."""
    assert clockwork(read(Sender(BODY)))[1].timers == 0
    assert clockwork(first_message(Sender(BODY), TIMEOUTS))[1].timers == 0
    assert clockwork(read(pausing([BODY], [1])))[1].timers > 0


async def test_no_task_is_made_to_wait_in() -> None:
    before, seen = asyncio.all_tasks(), set()

    async def receive() -> Message:
        await asyncio.sleep(0)
        seen.update(asyncio.all_tasks())
        return {"type": "http.request", "body": BODY}

    await read(receive)
    assert seen == before


@pytest.mark.parametrize("timeouts", [{"timeout_s": 0}, {"idle_timeout_s": 0}, {"idle_timeout_s": -1.0}])
def test_a_time_out_is_above_0(timeouts: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError, match="must be above 0"):
        msgspec.convert(timeouts, UploadSettings)
    with pytest.raises(ValueError, match="must be above 0"):
        UploadSettings(idle_timeout_s=math.nan)


def test_a_time_out_may_be_without_end() -> None:
    endless = UploadSettings(timeout_s=math.inf, idle_timeout_s=math.inf)
    assert bytes(clockwork(read(pausing([BODY], [100_000]), timeouts=endless))[0]) == BODY


# Cancellation


async def cancelled_while_it_waits(receive: Callable[[], Awaitable[Message]], times: int = 1) -> Raw:
    task = asyncio.create_task(read(receive))
    for _ in range(times):
        await asyncio.sleep(0)
        task.cancel()
    return await task


async def test_a_cancellation_reaches_the_server() -> None:
    ended: list[str] = []

    async def receive() -> Message:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # it may take its time
            ended.append("receive")
        raise AssertionError("it was waiting for nothing")

    with pytest.raises(asyncio.CancelledError):
        await cancelled_while_it_waits(receive)
    assert ended == ["receive"]


async def test_a_server_may_answer_a_cancellation_with_a_message() -> None:
    async def receive() -> Message:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"type": "http.request", "body": BODY}
        raise AssertionError("it was waiting for nothing")

    assert await cancelled_while_it_waits(receive) == BODY


async def test_a_time_out_around_the_upload_is_not_taken_for_its_own() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await read(Sender())


async def test_an_error_of_the_server_is_not_hidden() -> None:
    async def receive() -> Message:
        await asyncio.sleep(0)
        raise OSError("of the server")

    with pytest.raises(OSError, match="of the server"):
        await read(receive)
