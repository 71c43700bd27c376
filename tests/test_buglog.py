"""
The bug log: faults that were reported of other projects which do this job, and what we do in their place.

A test is named by the id of its report and says in its first line what went wrong there. Reports about data URLs,
payloads and gateways are here, all of them: one that is no test is in NOT_HERE, with the reason.
"""

import base64
import gzip
import http.client
import io
import logging
import random
import re
import socket
import threading
import time
import tomllib
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

import httpx
import orjson
import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.cli.command import vlm_edge
from tests.samples import (
    CHAT_PATH,
    PHONE,
    QWEN,
    ROOT,
    TRANSPARENT,
    TURNED,
    chat,
    data_url,
    encoded,
    image_part,
    jpeg,
    opened,
    picture,
    picture_of,
    png,
    sent_picture,
    text_part,
)
from tests.servers import (
    PATIENCE_S,
    Received,
    Recorder,
    connected,
    post_head,
    raw_backend,
    read_all,
    read_request,
    read_until,
    served,
    wait_until,
)
from vlm_edge import Edge, EdgeMiddleware, Settings
from vlm_edge.errors import InvalidDataUrl, MediaTooLarge, TooManyImages
from vlm_edge.gateway.app import create_app
from vlm_edge.gateway.config import GatewaySettings
from vlm_edge.media.profile import Profile
from vlm_edge.pictures import Limits
from vlm_edge.workers import Job, WorkerSettings

pytestmark = pytest.mark.anyio

IDS = """
B01 B03 B05 B06 B08 B09 B11
B13 B14 B16 B17 B19 B20 B22 B23
B120 B121 B123 B125 B126 B127 B129 B131 B132 B134 B136 B137 B139 B140 B142 B144 B145 B146 B148 B149 B151 B153 B154
""".split()

NOT_HERE = {
    "B149": "a picture for a model that cannot see: the gateway has one backend and does not know what it can do",
    "B151": "one model name for a text and a vision backend: the gateway has one backend",
    "B153": "keys of a cache that keep pictures apart: nothing is cached yet",
}

SERVERS = ["h11", "httptools"]
PHOTO = chat(text_part(), image_part(PHONE.read_bytes()))
# 3264x2448 inside 1024 pixels, in cells of 28: 36 x 27 of them.
PHOTO_SIZE, PHOTO_TOKENS = (1008, 756), 972
TEXT = chat(text_part("No picture here."))
BODIES = pytest.mark.parametrize("body", [PHOTO, TEXT], ids=["picture", "text"])
BASE64_RUN = re.compile(r"[A-Za-z0-9+/=_-]{101,}")


def test_every_report_is_a_test_or_has_a_reason_to_be_none() -> None:
    tested = {match[1].upper() for name in globals() if (match := re.match(r"test_(b\d+)_", name))}
    assert len(set(IDS)) == len(IDS)
    assert sorted(tested | NOT_HERE.keys()) == sorted(IDS)
    assert not tested & NOT_HERE.keys()


# The doors


def edged(app: ASGIApp, **settings: Any) -> EdgeMiddleware:
    return EdgeMiddleware(app, settings=Settings(**settings))


def app_before(backend: int, **settings: Any) -> Starlette:
    """The gateway in front of a backend on this port."""
    return create_app(
        Settings(gateway=GatewaySettings(backend=f"http://127.0.0.1:{backend}", ask_backend=False), **settings)
    )


def gated(_: ASGIApp, **settings: Any) -> Starlette:
    """The gateway where no backend is needed."""
    return create_app(Settings(**settings))


@contextmanager
def gateway(backend: ASGIApp, *, http: str = "httptools", **settings: Any) -> Iterator[int]:
    """The gateway in front of this app; the gateway's port."""
    with served(backend) as behind, served(app_before(behind, **settings), http=http) as port:
        yield port


@pytest.fixture(scope="module")
def backend() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def port(backend: Recorder) -> Iterator[int]:
    """The gateway in front of `backend`, with the settings that nobody touched."""
    with gateway(backend) as port:
        yield port


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    edge = Edge()
    yield edge
    edge.close()


def post(port: int, body: Any, path: str = CHAT_PATH, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"http://127.0.0.1:{port}{path}"
    headers = {"content-type": "application/json"} | named
    return httpx.post(url, content=body, headers=headers, timeout=PATIENCE_S, verify=False)


def refused_with(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of a refusal that has exactly the shape of OpenAI's."""
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (response.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error")
    return error


def url_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def conversation(*messages: Any, **fields: Any) -> bytes:
    return orjson.dumps({"model": QWEN, "messages": messages, **fields})


def noise(width: int, height: int) -> Image.Image:
    """A picture that no format makes small, always the same."""
    return Image.frombytes("RGB", (width, height), random.Random(0).randbytes(width * height * 3))


def sent_url(body: bytes | bytearray) -> str:
    url: str = orjson.loads(body)["messages"][0]["content"][0]["image_url"]["url"]
    return url


# Data URLs

SMALL = jpeg(336, 224)  # inside its profile: passes as it is, when its URL is well written
LARGE = png(2000, 1000)  # its base64 is long enough to be cut out of the body
FILES = pytest.mark.parametrize("file", [SMALL, LARGE], ids=["small", "large"])


def reaches_the_backend(url: str, file: bytes, port: int, backend: Recorder) -> None:
    """A picture in this URL reaches the backend as the same file does in a well-written one."""
    true_type = {b"\xff\xd8": "image/jpeg", b"\x89P": "image/png"}[file[:2]]
    post(port, chat(url_part(data_url(file, true_type)))).raise_for_status()
    expected = backend.last.body
    post(port, chat(url_part(url))).raise_for_status()
    assert backend.last.body == expected
    assert sent_url(expected) == data_url(file if file is SMALL else picture_of(sent_url(expected)))


def base64_of(file: bytes) -> str:
    return base64.b64encode(file).decode()


@FILES
@pytest.mark.parametrize(
    "parameters",
    [
        ";charset=utf-8",
        ";name=a.jpg",
        ";charset=utf-8;name=a.jpg",
        ";base64=no",
        ";x=;base64;name=%2Ca",
        ';n="a b"',
        ";",
    ],
)
def test_b01_parameters_before_the_base64_marker(parameters: str, file: bytes, port: int, backend: Recorder) -> None:
    """Parameters between the type and the marker made the picture an unknown kind of URL, answered 501."""
    url = f"data:image/jpeg{parameters};base64,{base64_of(file)}"
    reaches_the_backend(url, file, port, backend)


@pytest.mark.parametrize("head", ["image/jpeg;base64;charset=utf-8", "image/jpeg;base64;name=a.jpg", ";base64;"])
def test_b01_a_marker_that_is_not_last_is_none(head: str, edge: Edge) -> None:
    """The marker was searched for anywhere in the head."""
    with pytest.raises(InvalidDataUrl) as refused:
        edge.prepare(CHAT_PATH, chat(url_part(f"data:{head},{base64_of(LARGE)}")))
    assert (refused.value.status, refused.value.param) == (400, "messages[0].content[0]")


@FILES
@pytest.mark.parametrize("declared", ["image/png", "image/jpeg", "image/webp", "image/heic", "text/html", "video/mp4"])
def test_b03_a_declared_type_that_is_wrong(declared: str, file: bytes, port: int, backend: Recorder) -> None:
    """A JPEG that was called PNG went on under the wrong name, and a strict backend refused it."""
    reaches_the_backend(data_url(file, declared), file, port, backend)


def test_b03_the_type_that_goes_on_is_the_true_one(port: int, backend: Recorder) -> None:
    """A PNG that was called JPEG or WebP went on under the wrong name as well."""
    file = png(300, 200)
    for declared in ("image/jpeg", "image/webp"):
        post(port, chat(image_part(file, declared))).raise_for_status()
        assert sent_url(backend.last.body) == data_url(file, "image/png")


@FILES
@pytest.mark.parametrize("head", ["data:;charset=utf-8;base64,", "data:;base64,", "data:;;base64,"])
@pytest.mark.parametrize("upper", [True, False])
def test_b05_an_omitted_type_and_a_percent_encoded_payload(
    head: str, *, upper: bool, file: bytes, port: int, backend: Recorder
) -> None:
    """Dropping the empty type moved every field by one; and base64 was read without its percent-encoding undone."""
    payload = base64_of(file)
    assert "+" in payload
    for character in "+/=":
        code = f"%{ord(character):02X}"
        payload = payload.replace(character, code if upper else code.lower())
    reaches_the_backend(head + payload, file, port, backend)


WRAPPED: dict[str, Callable[[bytes], str]] = {
    "76 columns": lambda file: base64.encodebytes(file).decode(),
    "76 columns, CRLF": lambda file: base64.encodebytes(file).decode().replace("\n", "\r\n"),
    "unpadded": lambda file: base64_of(file).rstrip("="),
    "wrapped and unpadded": lambda file: base64.encodebytes(file).decode().rstrip("=\n"),
    "spaces around it": lambda file: f" \t{base64_of(file)}\n",
    "all white space": lambda file: "\v\f".join([base64_of(file)[:100], base64_of(file)[100:]]),
}


@pytest.mark.parametrize("spelling", WRAPPED)
@pytest.mark.parametrize("rest", [0, 1, 2])
def test_b06_wrapped_and_unpadded_base64(spelling: str, rest: int, port: int, backend: Recorder) -> None:
    """Line breaks or missing padding in base64 were an error, though most encoders for mail write them so."""
    for file in (SMALL, LARGE):
        file += b"\0" * ((rest - len(file)) % 3)  # what is behind the end of a picture is not looked at
        url = "data:image/png;base64," + WRAPPED[spelling](file)
        post(port, chat(url_part(url))).raise_for_status()
        sent = base64.b64decode(sent_url(backend.last.body).partition(";base64,")[2], validate=True)
        assert opened(sent).size in ((336, 224), (1008, 504))


@FILES
@pytest.mark.parametrize("junk", ["!", "*", "é", "\0", '\\"', "=A", "%zz"])
def test_b06_other_junk_is_still_refused(junk: str, file: bytes, port: int, backend: Recorder) -> None:
    """A decoder that is made lenient drops whatever it does not know, and makes another file of it."""
    text, before = base64_of(file), len(backend.received)
    for at in (8, len(text) // 2, len(text) - 8):
        response = post(port, chat(url_part(f"data:image/jpeg;base64,{text[:at]}{junk}{text[at:]}")))
        assert refused_with(response, 400, "invalid_data_url")["param"] == "messages[0].content[0]"
    assert len(backend.received) == before


@FILES
@pytest.mark.parametrize(
    "head",
    [
        "data:image/jpeg;base64,",
        "data:application/octet-stream;base64,",
        "DATA:IMAGE/JPG;BASE64,",
        "data:;base64,",
        "data:text/plain;charset=US-ASCII;base64,",
        "data:image/svg+xml;profile=a/b;Base64,",
    ],
)
def test_b08_every_legal_head_is_read_and_one_is_written(head: str, file: bytes, port: int, backend: Recorder) -> None:
    """A strict reader of media types and encodings refused what other tools write."""
    reaches_the_backend(head + base64_of(file), file, port, backend)


def test_b08_a_body_that_is_not_base64_is_refused_in_words(port: int) -> None:
    """A data URL in percent-encoding, which is legal too, failed without a word on what is wanted."""
    escaped = "".join(f"%{byte:02X}" for byte in SMALL)
    error = refused_with(post(port, chat(url_part(f"data:image/jpeg,{escaped}"))), 400, "invalid_data_url")
    assert ";base64," in error["message"]


@pytest.mark.parametrize("head", ["data:image;base64,", "data:image/;base64,", "data:image/*;base64,"])
def test_b09_a_type_without_subtype_and_a_bound_beside_the_picture(head: str, port: int, backend: Recorder) -> None:
    """Such a type, and pixel bounds in the part, were silently ignored, so the prompt was longer than allowed."""
    url = head + base64_of(png(3000, 2000))
    part = {"max_pixels": 200704, **url_part(url), "min_pixels": 1.0, "resized": {"max_pixels": 1}}
    part["image_url"] |= {"max_pixels": 200704, "detail": "high"}
    response = post(port, chat(part, text_part()))
    [sent, _] = orjson.loads(backend.last.body)["messages"][0]["content"]
    file = picture_of(sent["image_url"].pop("url"))
    assert opened(file).size == (1008, 672)
    assert response.headers["x-vlm-edge-vision-tokens"] == f"{36 * 24}"
    del part["image_url"]["url"]
    assert sent == part


@pytest.mark.parametrize("model", [QWEN, "Qwen/Qwen3-VL-8B-Instruct", "unheard-of"])
@pytest.mark.parametrize("size", [(1, 1), (1, 27), (28, 1)])
def test_b11_a_message_of_one_tiny_picture_and_no_text(
    size: tuple[int, int], model: str, port: int, backend: Recorder
) -> None:
    """A picture of one pixel, alone in its message, ended in an index error and a 500."""
    for kind in ("PNG", "JPEG", "WEBP"):
        body = chat(image_part(encoded(noise(*size), kind), f"image/{kind.lower()}"), model=model)
        post(port, body).raise_for_status()
        assert backend.last.body == body


def test_b11_one_that_the_model_would_refuse_is_refused_with_its_sides(port: int) -> None:
    """A picture of a pixel's width and great height was another 500."""
    error = refused_with(
        post(port, chat(image_part(encoded(noise(1, 500), "PNG"), "image/png"))), 400, "unsupported_media"
    )
    assert "1x500" in error["message"]


# Payloads


def test_b13_a_photo_beyond_a_megabyte_is_made_to_fit() -> None:
    """A photo as phones take it was longer than a backend takes bodies, and nobody made it smaller."""
    photo = encoded(Image.open(PHONE), "JPEG", quality=97)
    assert len(photo) > 1_500_000
    backend = Recorder()
    with gateway(edged(backend, limits=Limits(max_body_bytes=1_000_000))) as port:
        assert post(port, chat(image_part(photo))).status_code == 200
    assert opened(sent_picture(backend.last.body)).size == PHOTO_SIZE


def test_b13_a_body_beyond_our_own_limit_is_a_413_in_json() -> None:
    """What was too long was refused with a text of the framework's."""
    with gateway(Recorder(), limits=Limits(max_body_bytes=1_000_000)) as port:
        error = refused_with(post(port, PHOTO), 413, "body_too_large")
    assert "1000000" in error["message"]


def in_pieces(body: bytes, length: int = 100_000) -> Iterator[bytes]:
    for at in range(0, len(body), length):
        yield body[at : at + length]


@pytest.mark.parametrize("path", [CHAT_PATH, "/v1/files", "/edge/estimate"])
def test_b14_one_byte_too_many_is_a_413_and_no_404(path: str) -> None:
    """A body that was too long was reported as a path that does not exist."""
    backend, limit = Recorder(), len(PHOTO)
    body = PHOTO if path != "/v1/files" else orjson.dumps({"file": "x" * (limit - 11)})
    assert len(body) == limit
    with gateway(backend, limits=Limits(max_body_bytes=limit)) as port:
        assert post(port, body, path).status_code == 200
        passed = len(backend.received)
        for sent in (body + b" ", in_pieces(body + b" "), in_pieces(b" " + body, 1_000_000)):
            refused_with(post(port, sent, path), 413, "body_too_large")
    assert len(backend.received) == passed


def test_b16_the_length_of_a_body_is_a_setting() -> None:
    """There was no way to let longer bodies in."""
    body = chat(image_part(encoded(noise(1700, 1500), "PNG"), "image/png"))
    assert len(body) > 10_000_000
    for allowed, status in ((len(body) - 1, 413), (len(body), 200)):
        settings = Settings.from_env({"VLM_EDGE_LIMITS__MAX_BODY_BYTES": f"{allowed}"})
        with served(EdgeMiddleware(Recorder(), settings=settings)) as port:
            assert post(port, body).status_code == status


def test_b16_the_setting_is_documented() -> None:
    """There was a limit, and nobody could find out where it came from."""
    assert "`max_body_bytes`" in (ROOT / "README.md").read_text("utf-8")
    example = (ROOT / "examples" / "edge.toml").read_text("utf-8")
    assert tomllib.loads(example)["limits"]["max_body_bytes"] == Settings().limits.max_body_bytes


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function"])
def test_b17_pictures_of_all_roles_are_prepared(role: str, port: int, backend: Recorder) -> None:
    """Pictures in the answers of tools were overlooked, and went on in full size."""
    calls = [{"id": "1", "type": "function", "function": {"name": "see", "arguments": "{}"}}]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = {"role": role, "tool_call_id": "1", "content": [text_part(), image_part(PHONE.read_bytes())]}
    response = post(port, conversation({"role": "user", "content": "look"}, asked, answer))
    assert response.headers["x-vlm-edge-vision-tokens"] == f"{PHOTO_TOKENS}"
    assert opened(sent_picture(backend.last.body, message=2, part=1)).size == PHOTO_SIZE


@pytest.mark.parametrize("stream", [True, False])
def test_b17_a_refusal_of_the_backend_passes_as_it_is_and_is_not_asked_again(*, stream: bool) -> None:
    """A 413 of the backend came out as a 500 inside a stream, after nine attempts."""
    refusing = Recorder(body=b'{"error":{"message":"too much"}}\n')
    tool = {"role": "tool", "tool_call_id": "1", "content": [image_part(SMALL)]}
    with gateway(refusing) as port:
        for count, refusing.status in enumerate((400, 413, 422, 429), 1):
            response = post(port, conversation(tool, stream=stream))
            assert (response.status_code, response.content) == (refusing.status, refusing.body)
            assert response.headers["content-type"] == "application/json"
            assert len(refusing.received) == count


@pytest.fixture(scope="module")
def history() -> list[Any]:
    """Twenty turns, each with a photo of almost a megabyte."""
    file = PHONE.read_bytes()
    assert 500_000 < len(file) < 900_000
    asked = {"role": "user", "content": [text_part(), image_part(file)]}
    return [message for _ in range(20) for message in (asked, {"role": "assistant", "content": "A leaf."})]


def test_b19_a_long_history_is_made_small_and_passes(history: list[Any], port: int, backend: Recorder) -> None:
    """Every turn sent all earlier pictures again in full, until no request was short enough any more."""
    response = post(port, conversation(*history))
    assert response.headers["x-vlm-edge-vision-tokens"] == f"{20 * PHOTO_TOKENS}"
    assert opened(sent_picture(backend.last.body, message=38, part=1)).size == PHOTO_SIZE
    assert len(backend.last.body) < len(conversation(*history))


def test_b19_a_history_is_limited_by_bytes_and_by_tokens_and_the_error_names_a_place(history: list[Any]) -> None:
    """The error that the session ended with did not say which pictures were at fault."""
    body = conversation(*history)
    with gateway(Recorder(), limits=Limits(max_body_bytes=len(body) - 1)) as port:
        refused_with(post(port, body), 413, "body_too_large")
    with gateway(Recorder(), limits=Limits(max_request_tokens=20 * PHOTO_TOKENS - 1)) as port:
        error = refused_with(post(port, body), 400, "vision_budget_exceeded")
        assert (error["param"], f"{20 * PHOTO_TOKENS}" in error["message"]) == ("messages[0].content[1]", True)
    with gateway(Recorder(), limits=Limits(max_image_bytes=500_000)) as port:
        error = refused_with(post(port, conversation(*history[1:])), 400, "media_too_large")
        assert error["param"] == "messages[1].content[1]"


def test_b19_old_pictures_can_be_left_out_so_that_the_session_goes_on(history: list[Any]) -> None:
    """A session that had grown too long could not be continued."""
    backend, limits = Recorder(), Limits(max_images=3, max_request_tokens=3 * PHOTO_TOKENS)
    with gateway(backend, history="keep_last", limits=limits) as port:
        post(port, conversation(*history)).raise_for_status()
    kinds = [message["content"][1]["type"] for message in orjson.loads(backend.last.body)["messages"][::2]]
    assert kinds == ["text"] * 17 + ["image_url"] * 3


def refused_on_the_wire(answer: bytes) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nconnection: close" in head.lower()
    assert orjson.loads(body)["error"]["code"] == "body_too_large"


def upload(send: Callable[[bytes], object], size: int, piece_bytes: int) -> None:
    """Send all, slowly: a client that reads only behind its last byte."""
    for _ in range(size // piece_bytes):
        send(b"x" * piece_bytes)
        time.sleep(0.005)


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize("through", [edged, gated])
def test_b20_a_client_that_still_uploads_can_read_the_413(http: str, through: Callable[..., ASGIApp]) -> None:
    """The answer came before the upload was over, and the client saw a broken pipe in its place."""
    app = through(Recorder(), limits=Limits(max_body_bytes=1_000_000))
    with served(app, http=http) as port, connected(port) as connection:
        connection.sendall(post_head(CHAT_PATH, "Content-Length: 20000000"))
        upload(connection.sendall, 20_000_000, 500_000)
        refused_on_the_wire(read_all(connection))


def test_b20_a_library_that_sends_all_before_it_reads_has_the_413_too() -> None:
    """Common libraries look for the answer only when the whole body is out."""
    with served(create_app(Settings(limits=Limits(max_body_bytes=1_000_000)))) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request(
            "POST", CHAT_PATH, body=io.BytesIO(b"x" * 20_000_000), headers={"Content-Length": "20000000"}
        )
        response = connection.getresponse()
        assert (response.status, orjson.loads(response.read())["error"]["code"]) == (413, "body_too_large")
        connection.close()


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize("through", [edged, gated])
def test_b22_a_limit_that_is_met_in_mid_upload_is_told_as_well(http: str, through: Callable[..., ASGIApp]) -> None:
    """Where the length was not declared, the refusal never arrived at the side that was still sending."""
    app = through(Recorder(), limits=Limits(max_body_bytes=4_096))
    with served(app, http=http) as port, connected(port) as connection:
        connection.sendall(post_head(CHAT_PATH, "Transfer-Encoding: chunked"))
        upload(lambda piece: connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece)), 4 * 2_048, 2_048)
        connection.sendall(b"0\r\n\r\n")
        refused_on_the_wire(read_all(connection))


# Gateways: the connection


@cache
def heavy() -> bytes:
    """A photo of more bytes than a backend takes of one picture."""
    return encoded(noise(2_400, 1_800), "JPEG", quality=97)


def bounded(max_bytes: int, **fields: Any) -> dict[str, Any]:
    """Settings of a profile that lets pictures pass in their size, with so many bytes."""
    large = Profile(max_side=4_096, max_pixels=1 << 24, align=False, max_encoded_bytes=max_bytes, **fields)
    return {"profiles": {"large": large}, "default_profile": "large"}


@pytest.mark.parametrize(("max_bytes", "kind"), [(5_000_000, "auto"), (1_000_000, "keep")])
def test_b23_a_picture_is_encoded_again_until_it_has_few_enough_bytes(max_bytes: int, kind: Any) -> None:
    """A picture of more bytes than the backend takes failed its turn and, being in the history, all that followed."""
    assert len(heavy()) > 5_000_000
    backend = Recorder()
    with gateway(backend, **bounded(max_bytes, format=kind)) as port:
        assert post(port, chat(image_part(heavy()))).status_code == 200
    sent = sent_picture(backend.last.body)
    assert max_bytes / 3 < len(sent) <= max_bytes  # and of no lower quality than it takes
    assert opened(sent).size == (2_400, 1_800)


def test_b23_one_that_is_within_the_bound_passes_byte_for_byte() -> None:
    """Others were encoded anew without need."""
    for max_bytes in (len(heavy()), 6 * len(heavy())):
        edge = Edge(Settings(**bounded(max_bytes)))
        assert edge.picture(heavy()).data == heavy()
        edge.close()


def test_b23_the_bound_holds_for_the_models_own_way_to_resize_as_well() -> None:
    """There are more ways than one to encode a picture."""
    edge, file = Edge(Settings(**bounded(100_000, engine="pillow"))), encoded(noise(600, 400), "JPEG")
    assert len(file) > 100_000
    with pytest.raises(MediaTooLarge):
        edge.picture(file)


def test_b23_what_cannot_be_so_small_is_refused_and_names_its_place() -> None:
    """The session ended with it."""
    with gateway(Recorder(), **bounded(20_000)) as port:
        error = refused_with(post(port, chat(text_part(), image_part(heavy()))), 400, "media_too_large")
    assert "at most 20000 are allowed" in error["message"]
    assert error["param"] == "messages[0].content[1]"


async def never_left(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that fails if its client is gone, and streams three events."""
    request = Request(scope, receive)
    await request.body()

    async def events() -> AsyncIterator[bytes]:
        for number in range(3):
            if await request.is_disconnected():
                return
            yield b"data: %d\n\n" % number
        yield b"data: [DONE]\n\n"

    await StreamingResponse(events(), media_type="text/event-stream")(scope, receive, send)


class Waiting:
    """An app that begins a stream and then waits until its client leaves."""

    def __init__(self) -> None:
        self.left = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await Request(scope, receive).body()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: 0\n\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


def leaves_in_mid_stream(port: int, body: bytes, app: Waiting) -> None:
    with connected(port) as connection:
        connection.sendall(post_head(CHAT_PATH, f"Content-Length: {len(body)}") + body)
        assert read_until(connection, b"data: 0\n\n").startswith(b"HTTP/1.1 200 ")
        assert not app.left.is_set()
    assert app.left.wait(PATIENCE_S)


@pytest.mark.parametrize("http", SERVERS)
@BODIES
def test_b120_the_app_behind_learns_that_its_client_has_left(http: str, body: bytes) -> None:
    """A middleware that wrapped request and response kept the client's leaving to itself; generation went on."""
    app = Waiting()
    with served(edged(app), http=http) as port:
        leaves_in_mid_stream(port, body, app)


@BODIES
def test_b120_the_backend_learns_it_through_the_gateway(body: bytes) -> None:
    """A model went on writing for nobody."""
    app = Waiting()
    with gateway(app) as port:
        leaves_in_mid_stream(port, body, app)


@pytest.mark.parametrize("http", SERVERS)
@BODIES
def test_b121_a_replayed_body_is_not_followed_by_a_disconnect(http: str, body: bytes) -> None:
    """An app that looked whether its client was still there was told no, and broke its stream off."""
    packed, encoding = gzip.compress(body, 1), {"content_encoding": "gzip"}
    with served(edged(never_left), http=http) as port:
        answers = [post(port, body), post(port, in_pieces(body))]
        answers += [post(port, packed, **encoding), post(port, in_pieces(packed), **encoding)]
    assert {answer.content for answer in answers} == {b"data: 0\n\ndata: 1\n\ndata: 2\n\ndata: [DONE]\n\n"}


class Peeking(BaseHTTPMiddleware):
    """Another middleware that reads the body for itself."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        await request.body()
        return await call_next(request)


async def echo_length(request: Request) -> Response:
    return PlainTextResponse(f"{len(await request.body())}")


def peeking_and_edge(app: ASGIApp, order: str) -> ASGIApp:
    for letter in order:
        app = Peeking(app) if letter == "p" else edged(app)
    return app


@pytest.mark.parametrize("order", ["e", "pe", "ep", "pep", "ee"])
@BODIES
def test_b123_others_may_read_the_body_before_and_behind_us(order: str, body: bytes) -> None:
    """Whoever read the body second waited for ever: the first had taken it away."""
    app = Starlette(routes=[Route(CHAT_PATH, echo_length, methods=["POST"])])
    with served(peeking_and_edge(app, order)) as port:
        response = post(port, body)
    assert response.status_code == 200
    assert (int(response.text) < len(body)) == (body is PHOTO)


@BODIES
def test_b123_a_second_reading_ends_when_the_client_leaves(body: bytes) -> None:
    """A second reading of a request did not even end with its client."""
    read, ended = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        read.set()
        with pytest.raises(ClientDisconnect):
            await Request(scope, receive).body()
        ended.set()

    with served(edged(app)) as port:
        with connected(port) as connection:
            connection.sendall(post_head(CHAT_PATH, f"Content-Length: {len(body)}") + body)
            assert read.wait(PATIENCE_S)
        assert ended.wait(PATIENCE_S)


@BODIES
def test_b125_context_variables_are_shared_with_the_app(body: bytes) -> None:
    """The app ran in a task of its own: what it was told by context variables was lost, or what it told."""
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(tenant.get())
        tenant.set("set inside")
        await JSONResponse({})(scope, receive, send)

    inner = edged(app)

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        tenant.set("set outside")
        await inner(scope, receive, send)
        seen.append(tenant.get())

    with served(outer, lifespan="off") as port:
        post(port, body)
        wait_until(lambda: len(seen) == 2)
    assert seen == ["set outside", "set inside"]


ODD_TEXT = '{"model": "m",\r\n "messages": [{"role":"user", "content":"Grüße, 你好\\r\\n😀"}]}\r\n'.encode()


@contextmanager
def on_the_wire(answer: bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}") -> Iterator[tuple[int, list[bytes]]]:
    """The gateway in front of a backend that gives one answer; the requests as they came over the wire."""
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        while (request := read_request(connection)) != b"\r\n\r\n":
            seen.append(request)
            connection.sendall(answer)

    with raw_backend(serve) as behind, served(app_before(behind), http="h11") as port:
        yield port, seen


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages/count_tokens", ODD_TEXT),
        ("/v1/unknown/path?beta=true", ODD_TEXT),
        ("/v1/unknown/path", b"\x00\xff\r\n\r\n"),
    ],
    ids=["known", "unknown", "no json"],
)
def test_b126_a_body_that_is_not_changed_keeps_its_bytes_and_its_length(path: str, body: bytes) -> None:
    """On a path that nobody had thought of, an empty body went on under the old length."""
    with on_the_wire() as (port, seen):
        assert post(port, body, path, x_own="1").status_code == 200
    [request] = seen
    head, _, sent = request.partition(b"\r\n\r\n")
    assert head.startswith(f"POST {path} HTTP/1.1".encode())
    assert sent == body
    assert b"\r\ncontent-length: %d" % len(body) in head.lower()
    assert b"\r\nx-own: 1" in head.lower()


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/unknown/path"])
def test_b126_the_app_behind_sees_the_headers_that_it_would_see_without_us(path: str) -> None:
    """The headers told of another body than the one that came with them."""
    bare, behind = Recorder(), Recorder()
    for app, asgi in ((bare, bare), (behind, edged(behind))):
        with served(asgi) as port, connected(port) as connection:
            head = post_head(path, f"Content-Length: {len(ODD_TEXT)}", "X-Two: 1", "X-Two: 2", "Connection: close")
            connection.sendall(head + ODD_TEXT)
            assert read_all(connection).startswith(b"HTTP/1.1 200 ")
        assert app.last.body == ODD_TEXT
    assert behind.last.headers == bare.last.headers


PACKED = gzip.compress(b'{"ok":true}' * 1_000)
ANSWERS: dict[str, tuple[bytes, bytes]] = {
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n"
        b"Keep-Alive: timeout=5\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"abcde",
    ),
    "compressed": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(PACKED), PACKED),
        PACKED,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
    "not ascii": ("HTTP/1.1 400 Bad Request\r\ncontent-length: 9\r\n\r\nGrüße\r\n".encode(), "Grüße\r\n".encode()),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_b127_an_answer_has_the_length_that_it_is_sent_with(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The length of another form of the answer was passed on with it, and the server found too much data."""
    answer, expected = ANSWERS[name]
    with on_the_wire(answer) as (port, seen), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(2):  # a second one on the same connection is read only if the first ended where it should
            with client.stream("POST", CHAT_PATH, content=PHOTO, timeout=PATIENCE_S) as response:
                assert b"".join(response.iter_raw()) == expected
            assert not {"x-hop", "keep-alive"} & response.headers.keys()
            assert int(response.headers.get("content-length", len(expected))) == len(expected)
    assert len(seen) == 2
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_b129_a_length_counts_bytes_and_not_characters() -> None:
    """Of a body with line breaks and letters beyond ASCII another length was declared than came; the backend waited."""
    before = '{"messages":[{"role":"user","content":[{"type":"text","text":"Grüße, 你好😀"},\r\n'.encode()
    after = ']}],\r\n"user":"é"}\r\n'.encode()
    body = before + orjson.dumps(image_part(LARGE, "image/png")) + after
    with on_the_wire() as (port, seen):
        for sent in (ODD_TEXT, body, in_pieces(body, 997)):
            assert post(port, sent).status_code == 200
    for request in seen:
        head, _, received = request.partition(b"\r\n\r\n")
        assert b"\r\ncontent-length: %d" % len(received) in head.lower()
    plain, prepared, chunked = (request.partition(b"\r\n\r\n")[2] for request in seen)
    assert plain == ODD_TEXT
    assert prepared == chunked
    assert prepared.startswith(before)
    assert prepared.endswith(after)


# Gateways: the JSON

SURROGATES = [
    "\\ud83d",
    "\\uD83D",
    "\\udc00\\ud83d",
    "\\ud83d\\ud83d\\ude00",
    b"\xed\xa0\xbd".decode("utf-8", "surrogatepass"),
]


def spliced(received: Received, before: str, after: str) -> dict[str, Any]:
    """The picture's part between bytes that are those that were sent."""
    start, end = (text.encode("utf-8", "surrogatepass") for text in (before, after))
    body = received.body
    assert body.startswith(start)
    assert body.endswith(end)
    assert received.header(b"content-length") == [b"%d" % len(body)]
    part: dict[str, Any] = orjson.loads(body[len(start) : -len(end)])
    return part


def sent_between(before: str, after: str, port: int, backend: Recorder) -> dict[str, Any]:
    part = orjson.dumps(image_part(LARGE, "image/png")).decode()
    response = post(port, (before + part + after).encode("utf-8", "surrogatepass"))
    assert response.status_code == 200
    assert response.headers["x-vlm-edge-media"] == "images=1; resized=1"
    return spliced(backend.last, before, after)


def text_around(text: str, model: str = "m", key: str = "user") -> tuple[str, str]:
    content = f'[{{"type":"text","text":"{text}"}},'
    before = f'{{"model":"{model}","{key}":"{text}","messages":[{{"role":"user","content":{content}'
    return before, f',{{"type":"text","text":"{text}"}}]}},{{"role":"assistant","content":"{text}"}}]}}'


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_b131_half_a_surrogate_pair_does_not_hide_the_picture(surrogate: str, port: int, backend: Recorder) -> None:
    """A strict parser refused the text, and the code went on as if the request held no picture at all."""
    for around in (text_around(surrogate), text_around("a", model=surrogate), text_around("a", key=surrogate)):
        part = sent_between(*around, port, backend)
        assert opened(picture_of(part["image_url"]["url"])).size == (1008, 504)


@pytest.mark.parametrize("broken", [b'"\\ud83', b'"\\u12"', b"\xff", b"\x80\\ud83d", b'{"a":}'])
def test_b131_what_cannot_be_read_is_refused_and_not_taken_for_text(
    broken: bytes, port: int, backend: Recorder
) -> None:
    """Whatever the parser could not read passed with its pictures unseen."""
    before = len(backend.received)
    response = post(port, PHOTO.replace(b'"What is this?"', b'"' + broken + b'"'))
    refused_with(response, 400, "invalid_json")
    assert len(backend.received) == before


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_b132_half_a_surrogate_pair_goes_on_as_it_was_written(surrogate: str, port: int, backend: Recorder) -> None:
    """Writing the JSON anew failed on half a surrogate pair, with a 500."""
    before, after = text_around(f"x{surrogate}y")
    sent_between(before, after, port, backend)
    assert backend.last.body.count(surrogate.encode("utf-8", "surrogatepass")) == 4


NUMBERS = [
    '"seed":16559892803651312311122, "temperature" : 1.0,"top_p":-0.0',
    '"temperature":0.12300000000000000000000001,"min_p":1E-07,"big":1e400,"small":-1e-400',
    '"seed":9007199254740993,"seed":1,"seed":9007199254740993',
    '"z":1,"a":2,"Z":3,"":4,"z":5',
    '"stop":["\\u0041\\/","\\u00e9é"],"nothing":[ ],"none":{\t},"nan":NaN,"inf":-Infinity',
]


@pytest.mark.parametrize("fields", NUMBERS)
def test_b134_around_the_picture_not_a_byte_changes(fields: str, port: int, backend: Recorder) -> None:
    """Long integers became floats, long floats were rounded, and keys that came twice were dropped."""
    before = f'{{{fields}, "messages":[{{"role":"user","content":['
    after = f'],"name":"n","name":"n"}}],\r\n {fields}\n}} \n'
    part = sent_between(before, after, port, backend)
    assert part == image_part(picture_of(part["image_url"]["url"]))


def test_b134_of_a_part_with_keys_that_come_twice_only_the_last_url_changes(port: int, backend: Recorder) -> None:
    """A key that came twice came once behind the gateway, with the other value."""
    head, tail = '{"messages":[{"role":"user","content":[{"type":"text","type":"image_url","image_url":', "}]}]}"
    before = head + '{"detail":"low","url":"data:,","detail":"high","url":"'
    post(port, (before + data_url(LARGE, "image/png") + '","n":1.0}' + tail).encode()).raise_for_status()
    sent = backend.last.body.decode()
    assert sent.startswith(before + "data:image/jpeg;base64,")
    assert sent.endswith('","n":1.0}' + tail)
    assert opened(sent_picture(backend.last.body)).size == (1008, 504)


# Gateways: packed bodies, and clients that leave


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)]
)
@BODIES
def test_b136_a_packed_body_is_unpacked(
    encoding: str, pack: Callable[[bytes], bytes], body: bytes, port: int, backend: Recorder
) -> None:
    """A packed body was called invalid JSON."""
    assert post(port, pack(body), content_encoding=encoding).status_code == 200
    assert (
        orjson.loads(backend.last.body)["messages"][0]["content"][0] == orjson.loads(body)["messages"][0]["content"][0]
    )
    assert (backend.last.body == body) == (body is TEXT)
    assert backend.last.header(b"content-length") == [b"%d" % len(backend.last.body)]
    assert backend.last.header(b"content-encoding") == []


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, gzip"])
def test_b136_what_cannot_be_unpacked_is_a_415(encoding: str, port: int, backend: Recorder) -> None:
    """Packed in another way it was called invalid JSON as well."""
    before = len(backend.received)
    refused_with(post(port, gzip.compress(PHOTO, 1), content_encoding=encoding), 415, "unsupported_encoding")
    assert len(backend.received) == before


def test_b137_ten_gigabytes_in_ten_megabytes_are_not_unpacked() -> None:
    """A few megabytes of packed zeros took all the memory there was."""
    megabytes = 1024 * 1024
    member = gzip.compress(bytes(64 * megabytes))
    bomb = member * (10 * 1024 // 64)
    with served(edged(Recorder(), limits=Limits(max_body_bytes=20 * megabytes))) as port:
        tracemalloc.start()
        response = post(port, bomb, content_encoding="gzip")
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    refused_with(response, 413, "body_too_large")
    assert peak_bytes < 200 * megabytes


@pytest.mark.parametrize("path", [CHAT_PATH, "/v1/unknown/path", "/edge/estimate"])
@pytest.mark.parametrize("encoding", [b"", b"gzip"])
@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_b139_a_client_that_leaves_in_mid_upload_ends_the_reading(
    path: str, encoding: bytes, pieces: int
) -> None:
    """The loop that read the body did not know of clients that leave, and never ended."""
    sent = gzip.compress(PHOTO, 1) if encoding else PHOTO
    left = [{"type": "http.request", "body": piece, "more_body": True} for piece in [*in_pieces(sent)][:pieces]]
    calls = 0

    async def receive() -> Message:
        nonlocal calls
        calls += 1
        assert calls < 100, "it asks on and on"
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def nobody(*_: object) -> None:
        raise AssertionError("nobody must be called")

    app = create_app(Settings()) if path == "/edge/estimate" else edged(nobody)
    headers = [(b"content-type", b"application/json"), (b"content-encoding", encoding)]
    if path == "/v1/unknown/path":
        headers.pop()  # what is packed is not read there
    await app(scope_of(path, headers), receive, nobody)
    assert calls == pieces + 1


def scope_of(path: str, headers: list[tuple[bytes, bytes]]) -> Scope:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
    }


@pytest.mark.parametrize("pieces_bytes", [1_000_000, 4_096, 7])
@BODIES
def test_b139_every_member_of_a_packed_body_is_read(pieces_bytes: int, body: bytes) -> None:
    """Of gzip in several members the first was read, and the rest was dropped without a word."""
    app, at = Recorder(), len(body) // 3
    whole = body if body is TEXT else chat(text_part(), image_part(SMALL))
    packed = b"".join(gzip.compress(piece) for piece in (whole[:at], b"", whole[at : at + 1], whole[at + 1 :]))
    with served(edged(app)) as port:
        assert post(port, in_pieces(packed, pieces_bytes), content_encoding="gzip").status_code == 200
    assert app.last.body == whole


# Gateways: the event loop and the logs


def test_b140_health_is_answered_while_photos_are_under_way() -> None:
    """Base64 and pixels were worked on in the event loop, and nobody else was answered meanwhile."""
    photo = chat(image_part(encoded(Image.open(PHONE).resize((4000, 3000)), "JPEG")))
    edge, busy = Edge(Settings(workers=WorkerSettings(threads=1))), threading.Event()
    edge.workers.submit([Job(partial(busy.wait, PATIENCE_S))])
    health = Route("/health", lambda _: PlainTextResponse("ok"))
    app = Starlette(routes=[health, Mount("/", EdgeMiddleware(Recorder(), edge=edge))])
    with (
        served(app) as port,
        ThreadPoolExecutor(20) as pool,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=4 * PATIENCE_S) as client,
    ):
        photos = [pool.submit(client.post, CHAT_PATH, content=photo) for _ in range(20)]
        wait_until(lambda: edge.workers.pending == 21)
        assert client.get("/health").text == "ok"
        assert not any(one.done() for one in photos)  # all are here, and none is through
        busy.set()
        between = set()
        while edge.workers.pending:
            pending = edge.workers.pending
            assert client.get("/health").text == "ok"
            between.add((pending, edge.workers.pending))
        assert {one.result().headers["x-vlm-edge-media"] for one in photos} == {"images=1; resized=1"}
    assert any(0 < after < 20 for _, after in between)  # answered when some were through, and others were not
    edge.close()


def quiet(caplog: pytest.LogCaptureFixture, *files: bytes) -> None:
    """Nothing of these files is in the logs: no long run of base64, and neither end of theirs."""
    assert caplog.records  # something was listened to
    assert not BASE64_RUN.search(caplog.text)
    assert "base64," not in caplog.text
    for text in map(base64_of, files):
        assert text[:24] not in caplog.text
        assert text[-24:] not in caplog.text


def test_b142_no_base64_is_logged_at_any_level(port: int, backend: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    """At debug level each request was logged whole, megabytes of base64 included."""
    file = encoded(noise(1000, 700), "PNG")
    assert len(file) > 2_000_000
    caplog.set_level(logging.DEBUG)
    assert post(port, chat(image_part(file, "image/png"))).status_code == 200
    assert post(port, chat(image_part(file, "image/png")), "/edge/estimate").status_code == 200
    quiet(caplog, file, sent_picture(backend.last.body))


def test_b142_nor_where_the_backend_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The request that had failed was logged whole."""
    caplog.set_level(logging.DEBUG)
    with raw_backend(lambda connection: None) as behind, served(app_before(behind)) as port:
        assert post(port, PHOTO).status_code == 502
    quiet(caplog, PHONE.read_bytes())


BROKEN: dict[str, tuple[str, str]] = {
    "cut short": (data_url(PHONE.read_bytes()[:400_000]), "corrupt_media"),
    "junk": (data_url(PHONE.read_bytes())[:-8] + "*!=", "invalid_data_url"),
    "no picture": (data_url(bytes(1_000)), "unsupported_media"),
    "no base64": (data_url(PHONE.read_bytes()).replace(";base64", ""), "invalid_data_url"),
    "a remote one": ("https://127.0.0.1/" + base64_of(SMALL), "remote_media_refused"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_b144_nor_is_a_piece_of_it_logged_or_told(name: str, port: int, caplog: pytest.LogCaptureFixture) -> None:
    """A log kept the first part of each payload, which others took for a picture and failed to decode."""
    url, code = BROKEN[name]
    caplog.set_level(logging.DEBUG)
    response = post(port, chat(text_part(), url_part(url)))
    refused_with(response, 400, code)
    quiet(caplog, PHONE.read_bytes(), PHONE.read_bytes()[:400_000], SMALL)
    assert f"refused: {code} at messages[0].content[1]" in caplog.text  # which says all that is wanted
    assert base64_of(SMALL)[:24] not in response.text
    assert base64_of(PHONE.read_bytes())[:24] not in response.text


# Gateways: pictures of earlier turns

PAINTS = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
}


@cache
def painted(paint: str) -> dict[str, Any]:
    """A part with a picture all of one colour, too large for its profile."""
    return image_part(encoded(Image.new("RGB", (1500, 1000), PAINTS[paint]), "JPEG"))


def paint_of(url: str) -> str:
    pixel = opened(picture_of(url)).convert("RGB").getpixel((300, 300))
    assert isinstance(pixel, tuple)
    bright = tuple(255 if value > 127 else 0 for value in pixel)
    return next(paint for paint, colour in PAINTS.items() if colour == bright)


def outline(messages: Sequence[Any]) -> list[Any]:
    """Messages with the colour of each picture in place of its URL."""
    text = orjson.dumps(messages)
    return [_named(message) for message in orjson.loads(text)]


def _named(message: dict[str, Any]) -> dict[str, Any]:
    for part in message["content"] if isinstance(message["content"], list) else ():
        if part["type"] == "image_url":
            part["image_url"]["url"] = paint_of(part["image_url"]["url"])
    return message


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


TURNS = [
    user(text_part("one"), painted("red")),
    assistant("It is red."),
    user(text_part("And what was before?")),
    assistant("Nothing."),
    user(painted("green"), text_part("three")),
]


def test_b145_pictures_of_earlier_turns_stay(port: int, backend: Recorder) -> None:
    """Only the pictures of the last turn reached the model."""
    response = post(port, conversation(*TURNS))
    assert response.headers["x-vlm-edge-media"] == "images=2; resized=2"
    assert outline(orjson.loads(backend.last.body)["messages"]) == outline(TURNS)


def long_talk() -> list[dict[str, Any]]:
    """Six pictures in four turns, and one of them in the answer of a tool."""
    tool = {"role": "tool", "tool_call_id": "1", "content": [painted("cyan"), text_part("found")]}
    return [
        user(painted("red"), text_part("a"), painted("green")),
        assistant("A and B."),
        user(text_part("b"), painted("blue"), painted("yellow")),
        assistant("C and D."),
        tool,
        assistant("E."),
        user(text_part("c"), painted("magenta")),
    ]


def test_b146_a_history_of_too_many_pictures_is_refused_by_default() -> None:
    """Once the history held more pictures than allowed, every further turn failed; nobody said how to go on."""
    talk = long_talk()
    with pytest.raises(TooManyImages) as refused:
        Edge(Settings(limits=Limits(max_images=4))).prepare(CHAT_PATH, conversation(*talk))
    assert "At most 4 image(s)" in refused.value.message  # in vLLM's words
    assert "found 6" in refused.value.message
    assert refused.value.param == "messages[4].content[0]"


def test_b146_or_the_newest_are_kept_and_the_others_become_notes() -> None:
    """The session could only be thrown away."""
    backend = Recorder()
    with gateway(backend, history="keep_last", limits=Limits(max_images=4)) as port:
        response = post(port, conversation(*long_talk()))
    assert response.headers["x-vlm-edge-media"] == "images=4; resized=4, dropped=2"
    note = text_part("[an earlier picture was left out]")
    expected = outline(long_talk())
    expected[0]["content"] = [note, text_part("a"), note]
    assert outline(orjson.loads(backend.last.body)["messages"]) == expected


@pytest.mark.parametrize("allowed", range(7))
def test_b148_no_picture_moves_to_another_turn(allowed: int) -> None:
    """Old pictures were attached to a later message again, and the talk meant something else."""
    edge = Edge(Settings(history="keep_last", limits=Limits(max_images=allowed), default_profile="thumbnail"))
    body = bytes(edge.prepare(CHAT_PATH, conversation(*long_talk())).body)
    edge.close()
    paints = list(PAINTS)
    left_out = paints[: 6 - allowed]
    for before, after in zip(outline(long_talk()), outline(orjson.loads(body)["messages"]), strict=True):
        assert (before["role"], len(before["content"])) == (after["role"], len(after["content"]))
        if isinstance(before["content"], str):
            assert after == before
            continue
        for was, now in zip(before["content"], after["content"], strict=True):
            dropped = was["type"] == "image_url" and was["image_url"]["url"] in left_out
            assert now == (text_part("[an earlier picture was left out]") if dropped else was)


# Gateways: the same bytes again

REPEATED = {
    "photo": image_part(PHONE.read_bytes()),
    "turned": image_part(TURNED.read_bytes()),
    "transparent": image_part(TRANSPARENT.read_bytes(), "image/png"),
    "large png": image_part(LARGE, "image/png"),
    "webp": image_part(encoded(picture(1500, 900), "WEBP"), "image/webp"),
}


@pytest.mark.parametrize("profile", ["standard", "document"])
def test_b154_the_same_picture_is_sent_as_the_same_bytes(profile: str) -> None:
    """A picture that came again was encoded anew and differently, so that no cache behind found it."""
    body, sent = chat(*REPEATED.values()), set()
    for threads in (1, 4):
        edge = Edge(Settings(default_profile=profile, workers=WorkerSettings(threads=threads)))
        sent.add(bytes(edge.prepare(CHAT_PATH, body).body))
        edge.close()
    run = vlm_edge("prepare", "--profile", profile, stdin=body, PYTHONHASHSEED="1")
    assert run.returncode == 0
    assert sent == {run.stdout}
    assert run.stdout != body


def test_b154_and_so_it_is_when_the_talk_goes_on(port: int, backend: Recorder) -> None:
    """With every turn the earlier pictures had other bytes, and all of the prompt was computed again."""
    post(port, conversation(*TURNS)).raise_for_status()
    earlier = orjson.loads(backend.last.body)["messages"]
    post(port, conversation(*TURNS, assistant("Green."), user(painted("blue")))).raise_for_status()
    assert orjson.loads(backend.last.body)["messages"][: len(TURNS)] == earlier


def test_b154_a_name_for_the_cache_behind_is_kept_where_names_may_pass() -> None:
    """The name that a client had given its picture for the cache was lost on the way."""
    backend, part = Recorder(), {**image_part(LARGE, "image/png"), "uuid": "photo-1"}
    with gateway(backend, uuid="pass") as port:
        post(port, chat(part)).raise_for_status()
    [sent] = orjson.loads(backend.last.body)["messages"][0]["content"]
    assert sent["uuid"] == "photo-1"
    assert opened(sent_picture(backend.last.body)).size == (1008, 504)
