"""
The middleware behind real servers of four makes: nobody notices it, but for smaller pictures.

Wherever possible an app behind the middleware is compared with the same app without it, asked with the same bytes.
"""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

import httpx
import orjson
import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, Request, TextMessage

from tests.asgi_app import GOODBYE, TIGHT_BYTES
from tests.asgi_servers import (
    COMMANDS,
    HTTP_2,
    ROOT_PATH_OPTIONS,
    Answer,
    Server,
    chunks,
    read_answer,
    request,
    running,
)
from tests.samples import CHAT_PATH, PHONE, QWEN, chat, encoded, image_part, opened, sent_picture, text_part
from tests.servers import PATIENCE_S, connected

# A photo of some hundred kilobytes, so that its request comes in several pieces.
PHOTO = encoded(opened(PHONE.read_bytes()).resize((1600, 1200)), quality=85)
PICTURE = chat(text_part(), image_part(PHOTO))
# 1600x1200 inside 1024 pixels, or 448, in cells of 28.
STANDARD, THUMBNAIL = (1008, 756), (448, 336)
TEXT = chat(text_part("Grüße, 你好\r\n"))
REFUSED = chat(text_part(), image_part(b"GIF89a"))
LARGE_BYTES = 20_000_000  # more than the buffers of the loopback hold
BODIES = pytest.mark.parametrize("body", [PICTURE, TEXT], ids=["picture", "text"])


@pytest.fixture(scope="module", params=COMMANDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture
def bell(request: pytest.FixtureRequest) -> str:
    """A name for the bells of one test."""
    return f"{abs(hash(request.node.nodeid)):x}"


def noticed(answer: Answer) -> list[tuple[str, str]]:
    """Headers by which a client could tell that we are there, or the time."""
    return [pair for pair in answer.headers if pair[0] != "date"]


def sent_size(answer: Answer) -> tuple[int, int]:
    """The size of the picture in a body that the app gave back."""
    assert answer.status == 200, answer
    return opened(sent_picture(answer.body, part=1)).size


def code_of(answer: Answer) -> str:
    code: str = orjson.loads(answer.body)["error"]["code"]
    return code


# Nobody notices


def test_an_app_sees_of_a_text_request_what_it_would_see_without_us(server: Server) -> None:
    bare, edge = (server.ask(request(TEXT, app=app, do="scope")) for app in ("bare", "edge"))
    assert edge.body == bare.body.replace(b"bare", b"edge")
    assert noticed(edge) == noticed(bare)


def test_an_app_sees_of_a_picture_request_a_new_length_and_no_more(server: Server) -> None:
    bare, edge = (server.ask(request(PICTURE, app=app, do="scope")).body for app in ("bare", "edge"))
    length = b"%d" % len(server.ask(request(PICTURE)).body)
    assert edge == bare.replace(b"bare", b"edge").replace(b"%d" % len(PICTURE), length)


def test_a_client_sees_of_a_picture_request_our_headers_and_no_more(server: Server) -> None:
    bare, edge = (server.ask(request(PICTURE, app=app, do="context")) for app in ("bare", "edge"))
    ours = ("x-vlm-edge-", "server-timing")
    assert [pair for pair in noticed(edge) if not pair[0].startswith(ours)] == noticed(bare)
    assert edge.body == bare.body


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_other_methods_are_answered_as_without_us(server: Server, method: str) -> None:
    """Two on one connection: had the first left a byte behind, the second would not be read."""

    def answers(app: str) -> list[tuple[int, list[tuple[str, str]], bytes]]:
        written = request(app=app, do="scope", method=method) + request(app=app, do="scope", method="GET")
        with connected(server.port) as connection, connection.makefile("rb") as wire:
            connection.sendall(written)
            first, second = read_answer(wire, to_head=method == "HEAD"), read_answer(wire)
        return [(one.status, noticed(one), one.body.replace(b"bare", b"edge")) for one in (first, second)]

    assert answers("edge") == answers("bare")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@BODIES
def test_either_version_of_http_1_is_answered(server: Server, body: bytes, version: str) -> None:
    answer = server.ask(request(body, version=version))
    assert answer.status == 200
    assert len(answer.body) == len(body) if body is TEXT else sent_size(answer) == STANDARD


def test_a_chunked_upload_of_a_picture_is_prepared(server: Server) -> None:
    head = request(b"", "Transfer-Encoding: chunked")
    assert sent_size(server.ask(head + b"".join(chunks(PICTURE)))) == STANDARD
    text = server.ask(head + b"".join(chunks(TEXT, 7)))
    assert text.body == TEXT


def test_a_file_as_the_answer_passes_whole(server: Server) -> None:
    """granian sends it itself, by an extension of ASGI: there is no body message."""
    for body in (PICTURE, TEXT):
        assert server.ask(request(body, do="file")).body == PHONE.read_bytes()


# Leaving


def leave(server: Server, written: bytes, hearing: str) -> None:
    """Send a request and go when the app says so."""
    with connected(server.port) as connection:
        connection.sendall(written)
        server.heard(hearing)


@BODIES
def test_an_app_that_streams_ends_when_the_client_leaves(server: Server, body: bytes, bell: str) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        connection.sendall(request(body, do="streams", bell=bell))
        assert b"200" in wire.readline()
        while b"data: more" not in wire.readline():
            pass
    server.heard(f"{bell}-ended")


@BODIES
@pytest.mark.parametrize("do", ["polls", "waits", "past"])
def test_an_app_that_waits_learns_that_the_client_has_left(server: Server, body: bytes, do: str, bell: str) -> None:
    """`past` reads the body a second time, past its end: it waits for no longer than its client."""
    leave(server, request(body, do=do, bell=bell), f"{bell}-asked")
    server.heard(f"{bell}-left")
    server.heard(f"{bell}-ended")


@BODIES
def test_nobody_has_left_while_the_client_waits(server: Server, body: bytes, bell: str) -> None:
    with connected(server.port) as connection:
        connection.sendall(request(body, do="polls", bell=bell))
        assert server.heard(f"{bell}-asked") == "[True, True, True]"


@pytest.mark.parametrize("upload", ["declared", "chunked"])
def test_a_client_that_leaves_during_its_upload_ends_the_request(server: Server, upload: str, bell: str) -> None:
    if upload == "declared":
        part = request(b"", f"Content-Length: {len(PICTURE)}", bell=bell) + PICTURE[:100_000]
    else:
        part = request(b"", "Transfer-Encoding: chunked", bell=bell) + next(chunks(PICTURE))
    with connected(server.port) as connection:
        connection.sendall(part)
    server.heard(f"{bell}-ended")


# Streams, context and reading


@BODIES
def test_a_client_reads_an_event_before_the_next_is_made(server: Server, body: bytes, bell: str) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        connection.sendall(request(body, "Connection: close", do="by_bell", bell=bell))
        while b"data: 1" not in wire.readline():
            pass
        server.ring(f"{bell}-go")
        assert b"data: [DONE]" in wire.read()


@BODIES
@pytest.mark.parametrize("app", ["bare", "edge"])
def test_context_goes_in_and_comes_out(server: Server, body: bytes, app: str, bell: str) -> None:
    answer = server.ask(request(body, app=app, do="context", bell=bell))
    assert orjson.loads(answer.body) == "acme"  # set by a middleware around us, read in the endpoint
    assert server.heard(f"{bell}-ended") == "of the endpoint"  # and the other way


@BODIES
def test_work_after_the_answer_is_done(server: Server, body: bytes, bell: str) -> None:
    assert server.ask(request(body, do="works", bell=bell)).status == 200
    assert server.heard(f"{bell}-worked") == "done"


@BODIES
@pytest.mark.parametrize("app", ["edge", "peeked before", "peeked behind"])
def test_a_body_can_be_read_many_times(server: Server, body: bytes, app: str) -> None:
    length = len(server.ask(request(body)).body)
    answer = server.ask(request(body, app=app, do="reads"))
    assert orjson.loads(answer.body) == [length, length, length, QWEN]


@BODIES
@pytest.mark.parametrize("app", ["peeked before", "peeked behind"])
def test_beside_a_middleware_that_has_read_the_body_leaving_is_still_seen(
    server: Server, body: bytes, app: str, bell: str
) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        connection.sendall(request(body, app=app, do="streams", bell=bell))
        while b"data: more" not in wire.readline():
            pass
    server.heard(f"{bell}-ended")


def test_an_app_that_does_not_read_answers_all_the_same(server: Server) -> None:
    for body in (PICTURE, TEXT):
        answer = server.ask(request(body, do="nothing"))
        assert (answer.status, answer.body) == (400, b'"no thanks"')


# Where it is mounted


@pytest.mark.parametrize(
    ("app", "target", "size"),
    [
        ("edge", CHAT_PATH, STANDARD),
        ("fastapi", CHAT_PATH, STANDARD),
        ("fastapi with settings", CHAT_PATH, THUMBNAIL),
        ("inside", f"/sub{CHAT_PATH}", STANDARD),
        ("inside", f"/deep/er{CHAT_PATH}", STANDARD),
        ("inside", CHAT_PATH, (1600, 1200)),
        ("two", f"/small{CHAT_PATH}", THUMBNAIL),
        ("two", f"/large{CHAT_PATH}", STANDARD),
        ("outside", CHAT_PATH, STANDARD),
        ("outside", f"/sub{CHAT_PATH}", STANDARD),
        ("twice", CHAT_PATH, STANDARD),
    ],
)
def test_wherever_it_is_mounted_it_knows_its_path(server: Server, app: str, target: str, size: tuple[int, int]) -> None:
    assert sent_size(server.ask(request(PICTURE, app=app, target=target))) == size
    assert server.ask(request(TEXT, app=app, target=target)).body == TEXT


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_root_path_of_the_server_hides_nothing(kind: str, tmp_path: Path) -> None:
    """uvicorn puts it before the path, the others do not: what the bare app answers, is prepared."""
    with running(kind, tmp_path, f"{ROOT_PATH_OPTIONS[kind]}=/api") as server:
        answered = [target for target in (CHAT_PATH, f"/api{CHAT_PATH}") if status(server, "bare", target) == 200]
        assert answered
        for target in answered:
            assert sent_size(server.ask(request(PICTURE, target=target))) == STANDARD
            assert b"'root_path': '/api'" in server.ask(request(TEXT, do="scope", target=target)).body


def status(server: Server, app: str, target: str) -> int:
    return server.ask(request(TEXT, app=app, target=target)).status


def test_of_two_one_behind_the_other_the_second_changes_nothing(server: Server) -> None:
    once, twice = (server.ask(request(PICTURE, app=app)) for app in ("edge", "twice"))
    assert twice.body == once.body


def test_of_two_one_behind_the_other_only_the_first_reports(server: Server) -> None:
    once, twice = (server.ask(request(PICTURE, app=app)) for app in ("edge", "twice"))
    names = [name for name, _ in once.headers if name.startswith("x-vlm-edge")]
    assert [twice.header(name) for name in names] == [once.header(name) for name in names]


# One connection, many requests


def assert_in_order(answers: list[Answer]) -> None:
    """Answers to TEXT, PICTURE, REFUSED, and again PICTURE, TEXT."""
    first, second, third, fourth, fifth = answers
    assert (first.body, fifth.body) == (TEXT, TEXT)
    assert sent_size(second) == sent_size(fourth) == STANDARD
    assert (third.status, code_of(third)) == (400, "corrupt_media")


SEQUENCE = [request(TEXT), request(PICTURE), request(REFUSED), request(PICTURE), request(TEXT, "Connection: close")]


def test_requests_one_after_another_share_a_connection(server: Server) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        answers = []
        for written in SEQUENCE:
            connection.sendall(written)
            answers.append(read_answer(wire))
        assert wire.read() == b""
    assert_in_order(answers)


def test_requests_written_at_once_are_answered_in_order(server: Server) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        connection.sendall(b"".join(SEQUENCE))
        answers = [read_answer(wire) for _ in SEQUENCE]
        assert wire.read() == b""
    assert_in_order(answers)


def test_after_a_413_the_connection_is_closed(server: Server) -> None:
    """What was written behind the large body is never taken for a request of its own, nor answered."""
    large = request(b" " * (TIGHT_BYTES + 1), app="tight")
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        connection.sendall(request(TEXT, app="tight"))
        assert read_answer(wire).body == TEXT
        upload(connection, [large + request(TEXT, app="tight")], server)
        answer = read_answer(wire)
        assert remainder(wire, server) == b""
    assert (answer.status, answer.header("connection")) == (413, ["close"])


# Uploads


def upload(connection: socket.socket, pieces: Iterable[bytes], server: Server) -> None:
    """Send all of the pieces, but to granian those that it takes.

    Once an answer of declared length is written, hyper, which granian is made of, now and then closes although the app
    still reads the body: 20 to 60 times in 100 with an app of five lines, so it is no matter of ours. The answer is
    there to be read even then: the write fails, and the clients people use go on to read.
    """
    with suppress(BrokenPipeError, ConnectionResetError) if server.kind == "granian" else nullcontext():
        for piece in pieces:
            connection.sendall(piece)


def test_who_uploads_all_before_reading_reads_the_413_of_a_declared_length(server: Server) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        upload(connection, [request(b" " * LARGE_BYTES, app="tight")], server)
        answer = read_answer(wire)
    assert (answer.status, code_of(answer)) == (413, "body_too_large")


def test_who_uploads_all_before_reading_reads_the_413_of_a_body_without_length(server: Server) -> None:
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        connection.sendall(request(b"", "Transfer-Encoding: chunked", app="tight"))
        upload(connection, chunks(b" " * LARGE_BYTES), server)
        answer = read_answer(wire)
    assert (answer.status, code_of(answer)) == (413, "body_too_large")


def test_a_413_comes_while_the_client_uploads(server: Server) -> None:
    """The client goes on with its upload only after it has read the answer."""
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        connection.sendall(request(b" " * 1_000, f"Content-Length: {2 * TIGHT_BYTES}", app="tight"))
        assert read_answer(wire).status == 413
        upload(connection, [b" " * (2 * TIGHT_BYTES - 1_000)], server)
        assert remainder(wire, server) == b""


def remainder(wire: BinaryIO, server: Server) -> bytes:
    """What still comes before the server closes; granian may do so by a reset, as above."""
    with suppress(ConnectionResetError) if server.kind == "granian" else nullcontext():
        return wire.read()
    return b""


def test_who_asks_before_uploading_is_told_to_continue(server: Server) -> None:
    for body in (PICTURE, TEXT):
        with connected(server.port) as connection, connection.makefile("rb") as wire:
            connection.sendall(request(b"", f"Content-Length: {len(body)}", "Expect: 100-continue"))
            assert read_answer(wire).status == 100
            connection.sendall(body)
            answer = read_answer(wire)
        assert answer.body == TEXT if body is TEXT else sent_size(answer) == STANDARD


def test_who_asks_before_uploading_too_much_is_told_413(server: Server) -> None:
    """hypercorn says 100 to every request before an app hears of it, and granian may be asked to while we answer."""
    with connected(server.port) as connection, connection.makefile("rb") as wire:
        head = request(b"", f"Content-Length: {2 * TIGHT_BYTES}", "Expect: 100-continue", app="tight")
        connection.sendall(head)
        answer = read_answer(wire)
        if server.kind in ("hypercorn", "granian") and answer.status == 100:
            answer = read_answer(wire)
    assert (answer.status, code_of(answer)) == (413, "body_too_large")


# Other scopes


def test_websockets_pass(server: Server) -> None:
    client = WSConnection(ConnectionType.CLIENT)
    with connected(server.port) as connection:
        events = events_of(client, connection)
        connection.sendall(client.send(Request(host="edge", target=CHAT_PATH)))
        assert isinstance(next(events), AcceptConnection)
        connection.sendall(client.send(TextMessage(data="Grüße")))
        message = next(events)
        assert isinstance(message, TextMessage)
        assert message.data == "Grüße"
        assert isinstance(next(events), CloseConnection)


def events_of(client: WSConnection, connection: socket.socket) -> Iterator[Event]:
    while piece := connection.recv(65_536):
        client.receive_data(piece)
        yield from client.events()


@pytest.mark.parametrize("kind", COMMANDS)
def test_the_lifespan_of_the_app_begins_and_ends(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as server:
        for body in (PICTURE, TEXT):
            assert b"'state': {'begun': 'yes'}" in server.ask(request(body, do="scope")).body
        assert GOODBYE not in server.log.read_text()
    assert GOODBYE in server.log.read_text()


def test_nothing_of_all_this_was_a_failure_to_the_server(server: Server) -> None:
    """Clients that left, were refused or sent too much: the log of the server so far."""
    assert "Traceback" not in server.log.read_text()


# HTTP/2


@pytest.fixture(scope="module", params=HTTP_2)
def http_2(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp("http_2")) as server:
        yield server


@contextmanager
def client_of(server: Server, app: str = "edge") -> Iterator[httpx.Client]:
    """It speaks HTTP/2 from its first byte."""
    url, headers = f"http://127.0.0.1:{server.port}", {"X-App": app}
    with httpx.Client(base_url=url, headers=headers, http1=False, http2=True, timeout=PATIENCE_S) as client:
        yield client


def test_over_http_2_pictures_texts_and_refusals_share_a_connection(http_2: Server) -> None:
    with client_of(http_2) as client:
        text, picture, refused = (
            client.post(f"{CHAT_PATH}?do=body", content=body) for body in (TEXT, PICTURE, REFUSED)
        )
    assert (text.content, text.http_version) == (TEXT, "HTTP/2")
    assert opened(sent_picture(picture.content, part=1)).size == STANDARD
    assert refused.json()["error"]["code"] == "corrupt_media"


def test_over_http_2_a_413_spares_the_connection(http_2: Server) -> None:
    """HTTP/2 forbids the header that closes one: the servers drop it."""
    with client_of(http_2, "tight") as client:
        large, text = (client.post(f"{CHAT_PATH}?do=body", content=body) for body in (b" " * (2 * TIGHT_BYTES), TEXT))
    assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")
    assert "connection" not in large.headers
    assert text.content == TEXT


@BODIES
def test_over_http_2_an_app_that_streams_ends_when_the_client_leaves(http_2: Server, body: bytes, bell: str) -> None:
    with (
        client_of(http_2) as client,
        client.stream("POST", f"{CHAT_PATH}?do=streams&bell={bell}", content=body) as answer,
    ):
        assert b"data: more" in next(answer.iter_raw())
    http_2.heard(f"{bell}-ended")
