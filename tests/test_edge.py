"""The road from end to end, without HTTP."""

import asyncio
import base64
import json
import pickle
import threading
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.media.files import animated, chunk, noise, png_header, png_with, quadrants, turned, upright
from tests.samples import (
    CHAT_PATH,
    PHONE,
    QWEN,
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
from tests.servers import Recorder, served
from vlm_edge.budget import BudgetSettings
from vlm_edge.choice import ProfileRule
from vlm_edge.decision import Prepared, find
from vlm_edge.edge import Edge
from vlm_edge.errors import (
    CachedMediaRefused,
    ContextExceeded,
    CorruptMedia,
    EdgeError,
    InvalidDataUrl,
    InvalidJson,
    MediaTooLarge,
    Overloaded,
    RemoteMediaFailed,
    RemoteMediaRefused,
    ServerError,
    TextTooLarge,
    TooManyImages,
    TooManyValues,
    UnknownModel,
    UnknownPath,
    UnknownProfile,
    VisionBudgetExceeded,
)
from vlm_edge.fetch import FetchSettings
from vlm_edge.media.profile import Profile
from vlm_edge.pictures import Limits
from vlm_edge.requests.body import MAX_VALUES, MIN_BODY_BYTES
from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.settings import Settings, shipped_profiles
from vlm_edge.tokens import lookup
from vlm_edge.workers import Job, WorkerSettings

SMALL, LARGE = jpeg(84, 56), jpeg(2_000, 1_000)
PROFILE_HEADER = "x-vlm-edge-profile"


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    edge = Edge()
    yield edge
    edge.close()


def made(**fields: Any) -> Edge:
    return Edge(Settings(**fields))


def padded(body: bytes) -> bytes:
    """The same request, long enough for its payloads to be cut out."""
    return body + b" " * MIN_BODY_BYTES


def body_of(url: str) -> bytes:
    return chat({"type": "image_url", "image_url": {"url": url}})


# Untouched


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[{"role":"user","content":"hello"}]}',
        b' \r\n{ "messages" : [ ] , "seed" : 16559892803651312311122 , "x": NaN }\n',
        b'{"messages": null}',
        b"{}",
        '{"messages":[{"role":"user","content":"é \\ud83d ;base64,"}]}'.encode(),
        b'{"messages":[{"role":"user","content":[{"type":"text","text":"data:image/png;base64,AAAA"}]}]}',
    ],
)
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_body_without_media_is_handed_on_as_it_came(edge: Edge, body: bytes, kind: type[bytes]) -> None:
    raw = kind(body)
    prepared = edge.prepare(CHAT_PATH, raw)
    assert prepared.body is raw
    assert prepared.report is None


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (SMALL, "image/jpeg"),
        (jpeg(1_024, 1_024), "image/jpeg"),
        (png(300, 200), "image/png"),
        (png(300, 200, "P"), "image/png"),
        (encoded(quadrants(300, 200), "WEBP"), "image/webp"),
        (encoded(quadrants(1, 1), "PNG"), "image/png"),  # B11
    ],
)
@pytest.mark.parametrize("pad", [bytes, padded])
def test_a_picture_inside_its_profile_goes_byte_for_byte(edge: Edge, data: bytes, media_type: str, pad: Any) -> None:
    body = pad(chat(image_part(data, media_type)))
    prepared = edge.prepare(CHAT_PATH, body)
    assert prepared.body is body
    assert prepared.report
    assert [one.action for one in prepared.report.pictures] == ["kept"]


def test_a_video_and_a_sound_go_on_unseen() -> None:
    edge = Edge(Settings(videos="pass"))
    body = chat(
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    )
    prepared = edge.prepare(CHAT_PATH, body)
    assert prepared.body == body
    assert prepared.report
    assert (prepared.report.passed, prepared.report.tokens) == (2, 0)


# Prepared


@pytest.mark.parametrize("pad", [bytes, padded])
def test_a_large_picture_is_sent_small_and_costs_what_is_reported(edge: Edge, pad: Any) -> None:
    prepared = edge.prepare(CHAT_PATH, pad(chat(text_part(), image_part(LARGE))))
    image = opened(sent_picture(prepared.body[:], part=1))
    assert (image.size, image.format) == ((1_008, 504), "JPEG")
    assert prepared.report
    (one,) = prepared.report.pictures
    assert (one.size_before, one.size_after, one.action) == ((2_000, 1_000), (1_008, 504), "resized")
    assert one.tokens_after == prepared.report.tokens == 36 * 18
    assert one.bytes_after == len(sent_picture(prepared.body[:], part=1))


AROUND = (
    '{\r\n "model" : "Qwen/Qwen2.5-VL-7B-Instruct", "seed":16559892803651312311122,"x":1e400, "n": NaN, "z": -0.0,\n'
    '"note":"\\ud83d \\u00e9 é \\/ ;base64, ",'
    '"messages":[{"content":"old"}], "messages": [ {"role":"user", "content" : [\n'
    '{"type":"image_url","image_url":{"url":"x","url" : "URL" , "detail":"low"},"max_pixels":200704,"uuid":null},'
    '{"type":"text","text":"1.0"}]}],"a":1,"a":2}\n'
)


@pytest.mark.parametrize("pad", [bytes, padded])
def test_every_other_byte_stays_as_it_was(edge: Edge, pad: Any) -> None:  # B09, B129, B132, B134
    raw = pad(AROUND.replace("URL", data_url(LARGE)).encode())
    sent = edge.prepare(CHAT_PATH, raw).body[:]
    url = json.loads(sent)["messages"][0]["content"][0]["image_url"]["url"]
    assert sent == pad(AROUND.replace("URL", url).encode())
    assert opened(base64.b64decode(url.partition(",")[2], validate=True)).size == (1_008, 504)


def test_each_picture_is_written_into_its_own_place(edge: Edge) -> None:
    pictures = [encoded(quadrants(*size), "PNG") for size in ((1_500, 300), (300, 1_500), (1_400, 1_400))]
    parts = [image_part(data, "image/png") for data in pictures]
    body = chat(parts[0], text_part("one"), parts[1], image_part(SMALL), text_part("two"), parts[2])
    prepared = edge.prepare(CHAT_PATH, body)
    sizes = {part: opened(sent_picture(prepared.body[:], part=part)).size for part in (0, 2, 5)}
    assert sizes == {0: (1_008, 196), 2: (196, 1_008), 5: (1_008, 1_008)}
    assert sent_picture(prepared.body[:], part=3) == SMALL
    assert prepared.report
    assert [one.place for one in prepared.report.pictures] == [f"messages[0].content[{part}]" for part in (0, 2, 3, 5)]


def test_pictures_of_the_history_stay_in_their_turns(edge: Edge) -> None:  # B145, B148
    turns = [{"role": role, "content": [image_part(LARGE), text_part(role)]} for role in ("user", "assistant", "tool")]
    prepared = edge.prepare(CHAT_PATH, orjson.dumps({"model": QWEN, "messages": turns}))
    value = orjson.loads(prepared.body[:])
    assert [message["role"] for message in value["messages"]] == ["user", "assistant", "tool"]
    assert all(opened(sent_picture(prepared.body[:], message)).size == (1_008, 504) for message in range(3))


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "AVIF"])
def test_formats_that_not_every_server_reads_are_sent_as_one_that_it_does(edge: Edge, kind: str) -> None:  # B73, B74
    data = encoded(quadrants(84, 56), kind)
    prepared = edge.prepare(CHAT_PATH, chat(image_part(data, f"image/{kind.lower()}")))
    assert opened(sent_picture(prepared.body[:])).format == "JPEG"
    assert orjson.loads(prepared.body[:])["messages"][0]["content"][0]["image_url"]["url"].startswith(
        "data:image/jpeg;"
    )


@pytest.mark.parametrize(
    ("data", "label", "real"),
    [(SMALL, "image/png", "image/jpeg"), (png(84, 56), "image/jpeg", "image/png"), (SMALL, "text/html", "image/jpeg")],
)
def test_a_mislabelled_picture_is_sent_under_its_true_type(
    edge: Edge, data: bytes, label: str, real: str
) -> None:  # B03
    prepared = edge.prepare(CHAT_PATH, chat(image_part(data, label)))
    assert prepared.body == chat(image_part(data, real))


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(f"data:image/jpeg;base64,{base64.encodebytes(SMALL).decode()}", id="wrapped"),
        pytest.param(f"data:image/jpeg;base64,{base64.b64encode(SMALL).decode().rstrip('=')}\n", id="unpadded"),
        pytest.param(f"data:image/jpeg;base64,{base64.urlsafe_b64encode(SMALL).decode()}", id="url-safe"),
        pytest.param(data_url(SMALL).replace("+", "%2B"), id="percent-encoded"),
        pytest.param(data_url(SMALL).replace("data:", "DATA:"), id="upper case"),
        pytest.param(data_url(SMALL).replace(";base64", ";charset=utf-8;base64"), id="parameter"),
        pytest.param(data_url(SMALL).replace("image/jpeg", ""), id="no type"),
        pytest.param(data_url(SMALL).replace("image/jpeg", "image"), id="no subtype"),
    ],
)
def test_what_is_sent_is_clean_however_it_came(edge: Edge, url: str) -> None:  # B01, B05, B06, B08, B09
    assert edge.prepare(CHAT_PATH, body_of(url)).body == body_of(data_url(SMALL))


def test_space_around_a_url_is_not_sent_on(edge: Edge) -> None:
    assert edge.prepare(CHAT_PATH, body_of(f" {data_url(SMALL)}")).body == body_of(data_url(SMALL))


def test_what_is_sent_is_clean_to_its_end(edge: Edge) -> None:
    data = encoded(noise(80, 80), "PNG")
    text = base64.b64encode(data).decode()
    url = f"data:image/png;base64,{text[:8_000]}\n\n\n\n{text[8_000:]}"
    assert edge.prepare(CHAT_PATH, body_of(url)).body == body_of(data_url(data, "image/png"))


def test_the_same_request_gives_the_same_bytes(edge: Edge) -> None:  # B154
    body = chat(image_part(PHONE.read_bytes()), image_part(TRANSPARENT.read_bytes(), "image/png"))
    assert bytes(edge.prepare(CHAT_PATH, body).body) == bytes(Edge().prepare(CHAT_PATH, bytearray(body)).body)


def test_what_was_prepared_once_is_kept_the_second_time(edge: Edge) -> None:
    first = edge.prepare(CHAT_PATH, chat(image_part(LARGE), image_part(TURNED.read_bytes())))
    second = edge.prepare(CHAT_PATH, first.body)
    assert second.body is first.body


def test_a_turned_picture_is_counted_and_sent_upright(edge: Edge) -> None:  # B49
    data = turned("JPEG", 6, 1_800, 1_200)
    picture = edge.picture(data, model=QWEN)
    assert upright(data).size == (1_200, 1_800)
    assert opened(picture.data).size == picture.size == (672, 1_008)
    assert picture.tokens == 24 * 36


@pytest.mark.anyio
async def test_the_async_road_gives_the_same(edge: Edge) -> None:
    body = chat(image_part(LARGE), image_part(SMALL))
    prepared = await edge.prepare_async(CHAT_PATH, body)
    assert prepared.body == edge.prepare(CHAT_PATH, body).body
    plain = b'{"messages": []}'
    assert (await edge.prepare_async(CHAT_PATH, plain)).body is plain


@pytest.mark.anyio
async def test_many_requests_at_once_do_not_mix(edge: Edge) -> None:
    sizes = [(1_100 + 28 * number, 300) for number in range(12)]
    bodies = [chat(image_part(png(*size), "image/png"), text_part(f"{size}")) for size in sizes]
    many = await asyncio.gather(*(edge.prepare_async(CHAT_PATH, body) for body in bodies))
    assert [prepared.report.pictures[0].size_before for prepared in many if prepared.report] == sizes
    assert [orjson.loads(prepared.body[:])["messages"][0]["content"][1]["text"] for prepared in many] == [
        f"{size}" for size in sizes
    ]


# Profiles


def profile_of(edge: Edge, **choice: Any) -> str:
    prepared = edge.prepare(CHAT_PATH, chat(image_part(SMALL), model=choice.pop("model", QWEN)), **choice)
    assert prepared.report
    return prepared.report.profile


def test_the_profile_comes_from_the_header_or_a_rule_or_the_default() -> None:
    edge = made(rules=(ProfileRule(profile="document", model="ocr-*"),), default_profile="thumbnail")
    assert profile_of(edge) == "thumbnail"
    assert profile_of(edge, model="ocr-1") == "document"
    assert profile_of(edge, model="ocr-1", headers={PROFILE_HEADER: "standard"}) == "standard"
    with pytest.raises(UnknownProfile):
        profile_of(edge, headers={PROFILE_HEADER: "tiny"})


@pytest.mark.parametrize(
    ("profile", "size"), [("thumbnail", (448, 224)), ("standard", (1_008, 504)), ("document", (2_000, 1_000))]
)
def test_a_profile_decides_the_size(edge: Edge, profile: str, size: tuple[int, int]) -> None:
    prepared = edge.prepare(CHAT_PATH, chat(image_part(LARGE)), {PROFILE_HEADER: profile})
    assert opened(sent_picture(prepared.body[:])).size == size


def test_an_invoice_comes_alone(edge: Edge) -> None:
    with pytest.raises(TooManyImages) as caught:
        edge.prepare(CHAT_PATH, chat(image_part(SMALL), image_part(SMALL)), {PROFILE_HEADER: "invoice"})
    assert (caught.value.found, caught.value.allowed) == (2, 1)
    assert caught.value.param == "messages[0].content[1]"


@pytest.mark.parametrize(
    ("model", "cell"),
    [(QWEN, 28), ("Qwen/Qwen2-VL-7B-Instruct", 28), ("Qwen/Qwen3-VL-8B-Instruct", 32), ("who-knows", 28)],
)
def test_the_grid_and_the_count_are_those_of_the_model(edge: Edge, model: str, cell: int) -> None:  # B31
    prepared = edge.prepare(CHAT_PATH, chat(image_part(LARGE), model=model))
    width, height = opened(sent_picture(prepared.body[:])).size
    assert width % cell == height % cell == 0
    assert prepared.report
    assert prepared.report.tokens == width * height // cell**2
    assert prepared.report.exact == (model != "who-knows")


def test_each_shipped_profile_sends_what_it_says(edge: Edge) -> None:
    for name, profile in shipped_profiles().items():
        for data in (PHONE.read_bytes(), TURNED.read_bytes(), TRANSPARENT.read_bytes()):
            picture = edge.picture(data, name, QWEN)
            assert opened(picture.data).size == picture.size
            assert picture.size.fits(profile.max_side, profile.max_pixels)
            assert lookup(QWEN).image(picture.size) == picture.tokens


# Refusals

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0heicmif1" + bytes(100)
REFUSED: dict[str, tuple[bytes, str]] = {
    "SVG": (b'<svg xmlns="http://www.w3.org/2000/svg" width="100000" height="100000"/>', "unsupported_media"),
    "cut PDF": (b"%PDF-1.7\n1 0 obj\n", "corrupt_media"),
    "cut BMP": (encoded(quadrants(30, 20), "BMP")[:-20], "corrupt_media"),
    "cut HEIC": (HEIC, "corrupt_media"),
    "HTML": (b"<!doctype html><html>404 Not Found</html>", "unsupported_media"),
    "mp4": (b"\0\0\0\x18ftypmp42\0\0\0\0isommp42" + bytes(100), "unsupported_media"),
    "cut JPEG 2000": (encoded(quadrants(30, 20), "JPEG2000")[:-40], "corrupt_media"),
    "text": (b"hello", "unsupported_media"),
    "cut JPEG": (encoded(noise(300, 200), "JPEG")[:20_000], "corrupt_media"),
    "cut PNG": (encoded(noise(300, 200), "PNG")[:20_000], "corrupt_media"),
    "headers alone": (png_header(300, 200), "corrupt_media"),
    "400 megapixels": (png_header(20_000, 20_000), "media_too_large"),  # no pixels follow, so none were asked for
}


@pytest.mark.parametrize(("data", "code"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_refused_with_its_code_and_place(edge: Edge, data: bytes, code: str) -> None:  # B72, B86
    with pytest.raises(EdgeError) as caught:
        edge.prepare(CHAT_PATH, chat(text_part(), image_part(SMALL), image_part(data)))
    assert (caught.value.code, caught.value.status) == (code, 400)
    assert caught.value.param == "messages[0].content[2]"
    with pytest.raises(EdgeError) as alone:
        edge.pages(data)
    assert alone.value.code == code


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("data:image/png,hello", InvalidDataUrl),
        ("data:image/png;base64,", InvalidDataUrl),
        ("data:image/png;base64,!!!!", InvalidDataUrl),
        (data_url(jpeg(300, 200)) + "!", InvalidDataUrl),
        ("https://example.com/a.png", RemoteMediaRefused),
        ("http://169.254.169.254/latest/meta-data", RemoteMediaRefused),
        ("file:///etc/passwd", RemoteMediaRefused),
        ("FILE:///etc/passwd", RemoteMediaRefused),
        (" https://example.com/a.png", RemoteMediaRefused),
        ("/etc/passwd", RemoteMediaRefused),
        ("", RemoteMediaRefused),
    ],
)
def test_a_url_that_is_no_data_is_refused(edge: Edge, url: str, error: type[EdgeError]) -> None:  # B89
    with pytest.raises(error) as caught:
        edge.prepare(CHAT_PATH, body_of(url))
    assert caught.value.param == "messages[0].content[0]"


def test_remote_pictures_are_passed_on_unseen_where_the_settings_say_so() -> None:
    edge = made(remote="pass")
    remote = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    body = chat(remote, image_part(LARGE))
    prepared = edge.prepare(CHAT_PATH, body)
    assert orjson.loads(prepared.body[:])["messages"][0]["content"][0] == remote
    assert prepared.report
    assert (len(prepared.report.pictures), prepared.report.passed) == (1, 1)
    for url in ("file:///etc/passwd", "ftp://a/b", "/etc/passwd"):
        with pytest.raises(RemoteMediaRefused):
            edge.prepare(CHAT_PATH, body_of(url))


SECOND_PAYLOADS = {
    "an escaped marker": "data:image/jpeg\\u003bbase64,{0};base64,{1}",
    "an escaped quote": 'data:image/jpeg;base64,{0}\\";base64,{1}',
    "upper case": "data:image/jpeg;BASE64,{0};base64,{1}",
    "two markers": "data:image/jpeg;base64,{0};base64,{1}",
}


@pytest.mark.parametrize("template", SECOND_PAYLOADS.values(), ids=SECOND_PAYLOADS)
def test_a_second_payload_cannot_stand_in_for_the_first(edge: Edge, template: str) -> None:
    """The server would read `LARGE;base64,SMALL`, which is no base64; a lenient one would show the large picture."""
    url = template.format(*(base64.b64encode(data).decode() for data in (LARGE, jpeg(84, 56))))
    body = padded(
        b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"%s"}}]}]}' % url.encode()
    )
    with pytest.raises(InvalidDataUrl):
        edge.prepare(CHAT_PATH, body)


@pytest.mark.parametrize("body", [b"", b"[]", b'"text"', b"3", b"null", b"{", b'{"a": "\xff"}', b"\x1f\x8b"])
def test_a_body_that_is_no_json_object_is_refused(edge: Edge, body: bytes) -> None:
    with pytest.raises(InvalidJson):
        edge.prepare(CHAT_PATH, body)


def test_a_path_that_carries_no_pictures_is_unknown(edge: Edge) -> None:
    with pytest.raises(UnknownPath):
        edge.prepare("/v1/models", b"{}")


def test_too_many_pictures_are_refused_before_any_is_read() -> None:
    edge = made(limits=Limits(max_images=2))
    with pytest.raises(TooManyImages) as caught:
        edge.prepare(CHAT_PATH, chat(*[image_part(b"no picture at all")] * 3))
    assert caught.value.param == "messages[0].content[2]"


def test_a_file_that_is_too_long_is_refused_by_the_length_of_its_base64() -> None:
    edge = made(limits=Limits(max_image_bytes=len(SMALL)))
    assert edge.prepare(CHAT_PATH, chat(image_part(SMALL))).report
    for call in (
        partial(edge.prepare, CHAT_PATH, chat(image_part(SMALL + b"\0"))),
        partial(edge.picture, SMALL + b"\0"),
    ):
        with pytest.raises(MediaTooLarge) as caught:
            call()
        assert (caught.value.found, caught.value.allowed) == (len(SMALL) + 1, len(SMALL))


def test_a_picture_that_costs_too_much_is_refused_by_its_place() -> None:
    edge = made(limits=Limits(max_image_tokens=36 * 18 - 1))
    with pytest.raises(VisionBudgetExceeded) as caught:
        edge.prepare(CHAT_PATH, chat(image_part(SMALL), image_part(LARGE)))
    assert caught.value.param == "messages[0].content[1]"
    assert caught.value.found == 36 * 18
    with pytest.raises(VisionBudgetExceeded):
        edge.picture(LARGE)


def test_a_request_that_costs_too_much_is_refused_and_can_be_estimated() -> None:  # B34
    edge = made(limits=Limits(max_request_tokens=2 * 36 * 18))
    body = chat(*[image_part(LARGE)] * 3)
    with pytest.raises(VisionBudgetExceeded):
        edge.prepare(CHAT_PATH, body)
    found = find(CHAT_PATH, body)
    assert found
    decision = edge.plan(edge.open(found), [])
    assert decision.plan.tokens == 3 * 36 * 18


def test_a_picture_too_long_for_webp_is_not_called_damaged() -> None:
    wide = Profile(max_side=20_000, max_pixels=20_000_000, format="webp")
    data = png(17_000, 100, "RGBA")
    edge = made(profiles={"standard": wide}, default_profile="standard")
    try:
        picture = edge.picture(data, model=QWEN)
    except CorruptMedia as error:
        pytest.fail(f"{error}")
    assert opened(picture.data).size == picture.size


def test_what_is_sent_is_safe_to_open_for_the_server(edge: Edge) -> None:
    bomb = png_with(png(96, 64), b"zTXt", b"Comment\0\0" + zlib.compress(bytes(3_000_000)))
    picture = edge.picture(bomb)
    assert opened(picture.data).size == picture.size


def test_header_names_may_be_in_any_case(edge: Edge) -> None:
    prepared = edge.prepare(CHAT_PATH, chat(image_part(LARGE)), {"X-VLM-Edge-Profile": "thumbnail"})
    assert prepared.report
    assert prepared.report.profile == "thumbnail"


def test_pictures_without_data_are_counted_and_passed_on() -> None:
    cached = {"type": "image_url", "image_url": None, "uuid": "u"}
    edge = made(limits=Limits(max_images=2), uuid="pass")
    body = chat(cached, image_part(LARGE))
    prepared = edge.prepare(CHAT_PATH, body)
    assert prepared.report
    assert (len(prepared.report.pictures), prepared.report.passed) == (1, 1)
    with pytest.raises(TooManyImages):
        edge.prepare(CHAT_PATH, chat(cached, cached, cached))


def test_more_text_than_the_limit_is_refused() -> None:
    edge = made(limits=Limits(max_text_bytes=50_000))
    assert edge.prepare(
        CHAT_PATH, chat(image_part(encoded(noise(400, 400), "JPEG", quality=95)), text_part("a " * 20_000))
    ).report
    with pytest.raises(TextTooLarge):
        edge.prepare(CHAT_PATH, chat(image_part(LARGE), text_part("a " * 30_000)))


def test_a_model_name_of_any_kind_is_reported_as_text_that_can_be_written(edge: Edge) -> None:
    prepared = edge.prepare(CHAT_PATH, chat(image_part(LARGE), model="MODEL").replace(b"MODEL", b"\\ud83d"))
    assert prepared.report
    assert msgspec.json.decode(msgspec.json.encode(prepared.report))["model"] == "?"


# One picture


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_one_picture_may_come_in_any_bytes(edge: Edge, kind: Any) -> None:
    assert edge.picture(kind(LARGE)).data == edge.picture(LARGE).data


def test_one_picture_is_prepared_as_in_a_request(edge: Edge) -> None:
    picture = edge.picture(LARGE, profile="thumbnail", model=QWEN)
    prepared = edge.prepare(CHAT_PATH, chat(image_part(LARGE)), {PROFILE_HEADER: "thumbnail"})
    assert picture.data == sent_picture(prepared.body[:])
    assert (picture.media_type, picture.size, picture.tokens) == ("image/jpeg", (448, 224), 128)
    assert picture.report.bytes_before == len(LARGE)


def test_one_picture_inside_its_profile_is_returned_as_it_is(edge: Edge) -> None:
    assert edge.picture(SMALL).data is SMALL


def test_a_plan_costs_no_pixels(edge: Edge) -> None:
    planned = edge.plan_picture(png_header(2_000, 1_000), model=QWEN)
    assert (planned.size, planned.tokens, planned.tokens_before) == ((1_008, 504), 648, 2_556)


def test_an_unknown_profile_is_refused(edge: Edge) -> None:
    with pytest.raises(UnknownProfile, match="tiny"):
        edge.picture(SMALL, profile="tiny")


def test_an_animation_is_sent_as_a_still(edge: Edge) -> None:
    for kind in ("PNG", "WEBP", "GIF"):
        assert getattr(opened(edge.picture(animated(kind)).data), "n_frames", 1) == 1


# Workers


def test_overload_is_refused_and_leaves_nothing_behind() -> None:
    edge = made(workers=WorkerSettings(threads=1, max_waiting=1))
    gate = threading.Event()
    edge.workers.submit([Job(partial(gate.wait))])
    with pytest.raises(Overloaded):
        edge.prepare(CHAT_PATH, chat(image_part(LARGE), image_part(LARGE)))
    assert edge.workers.pending == 1
    gate.set()
    assert edge.prepare(CHAT_PATH, chat(image_part(LARGE))).report
    edge.close()


@pytest.mark.anyio
async def test_a_client_that_leaves_takes_its_waiting_pictures_with_it() -> None:
    edge = made(workers=WorkerSettings(threads=1, max_waiting=9))
    gate = threading.Event()
    edge.workers.submit([Job(partial(gate.wait))])
    task = asyncio.create_task(edge.prepare_async(CHAT_PATH, chat(*[image_part(LARGE)] * 4)))
    await asyncio.sleep(0)  # the task begins, and hands its pictures over
    assert edge.workers.pending == 5
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert edge.workers.pending == 1
    gate.set()
    edge.close()


@pytest.mark.anyio
async def test_a_damaged_picture_stops_the_others_of_its_request() -> None:
    edge = made(workers=WorkerSettings(threads=1, max_waiting=99))
    damaged = encoded(noise(300, 200), "PNG")[:20_000]
    with pytest.raises(CorruptMedia) as caught:
        await edge.prepare_async(CHAT_PATH, chat(image_part(damaged), *[image_part(PHONE.read_bytes())] * 9))
    assert caught.value.param == "messages[0].content[0]"
    assert edge.workers.pending <= 1  # the one that had begun
    edge.close()


def test_a_job_runs_in_another_process_as_well(edge: Edge) -> None:
    found = find(CHAT_PATH, padded(chat(image_part(LARGE))))
    assert found
    decision = edge.decide(found)
    job = decision.media[0].job(decision.plan.pictures[0])
    assert pickle.loads(pickle.dumps(job))() == job()
    assert edge.workers.run(Job(job, isolated=True)) == job()


# Anything


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "TIFF", "AVIF"]), st.data())
def test_any_damaged_file_is_prepared_or_refused(edge: Edge, kind: str, drawn: st.DataObject) -> None:
    data = bytearray(encoded(quadrants(64, 48), kind))
    for at in drawn.draw(st.lists(st.integers(0, len(data) - 1), max_size=6)):
        data[at] = drawn.draw(st.integers(0, 255))
    body = chat(image_part(bytes(data[: drawn.draw(st.integers(1, len(data)))])))
    try:
        prepared = edge.prepare(CHAT_PATH, body)
    except EdgeError as error:
        assert error.status == 400  # noqa: PT017 - any refusal will do
        return
    assert prepared.report
    assert opened(sent_picture(prepared.body[:])).size == prepared.report.pictures[0].size_after


# Dialects and policies


def anthropic(source: dict[str, Any]) -> bytes:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}},
    ]
    return orjson.dumps({"model": QWEN, "max_tokens": 8, "messages": [{"role": "user", "content": blocks}]})


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("pad", [0, MIN_BODY_BYTES])
@pytest.mark.parametrize("declared", ["image/jpeg", "image/png", "", "x,y;base64,z", None])
def test_bare_base64_is_replaced_with_its_type_and_all_else_stays(edge: Edge, declared: str | None, pad: int) -> None:
    source = {"type": "base64", "data": b64(LARGE)} | ({} if declared is None else {"media_type": declared})
    body = anthropic(source) + b" " * pad
    prepared = orjson.loads(edge.prepare("/v1/messages", body).body[:])
    sent = prepared["messages"][0]["content"][1]["source"]
    assert opened(base64.b64decode(sent["data"], validate=True)).size == (1008, 504)
    expected = orjson.loads(body)
    expected["messages"][0]["content"][1]["source"] = source | {"media_type": "image/jpeg", "data": sent["data"]}
    assert prepared == expected


def test_bare_base64_of_a_picture_inside_its_profile_stays(edge: Edge) -> None:
    body = anthropic({"type": "base64", "media_type": "image/jpeg", "data": b64(SMALL)})
    assert edge.prepare("/v1/messages", body).body == body


@pytest.mark.parametrize(("data", "code"), [("", "invalid_data_url"), ("PGh0bWw+", "unsupported_media"), ("?", None)])
def test_bare_base64_that_is_no_picture_is_refused(edge: Edge, data: str, code: str | None) -> None:
    with pytest.raises(EdgeError) as caught:
        edge.prepare("/v1/messages", anthropic({"type": "base64", "media_type": "image/png", "data": data}))
    assert caught.value.code == (code or "invalid_data_url")
    assert caught.value.param == "messages[0].content[1]"


def test_a_path_that_is_known_and_a_body_of_no_media_pass(edge: Edge) -> None:
    for path in ENDPOINTS:
        body = b'{"model": "m", "input": "a", "prompt": "b", "query": "c", "documents": ["d"]}'
        assert edge.prepare(path, body) == Prepared(body, None)


def test_pictures_are_limited_a_prompt_and_a_request() -> None:
    edge = made(limits=Limits(max_images=2, max_total_images=3))
    conversation = [{"role": "user", "content": [image_part(SMALL)]}]

    def batch(count: int) -> bytes:
        return orjson.dumps({"model": QWEN, "messages": [conversation] * count})

    assert edge.prepare("/v1/chat/completions/batch", batch(3)).report
    with pytest.raises(TooManyImages) as caught:
        edge.prepare("/v1/chat/completions/batch", batch(4))
    assert caught.value.param == "messages[3][0].content[0]"
    with pytest.raises(TooManyImages):
        edge.prepare(CHAT_PATH, chat(*[image_part(SMALL)] * 3))


def test_media_of_any_kind_are_limited_whatever_the_settings() -> None:
    video = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    edge = made(limits=Limits(max_images=1_000_000, max_total_images=1_000_000))
    assert edge.find(CHAT_PATH, chat(*[video] * 2_000))
    with pytest.raises(TooManyImages):
        edge.find(CHAT_PATH, chat(*[video] * 2_001))


def test_vision_tokens_are_limited_a_prompt() -> None:
    tokens = 36 * 18  # of LARGE, resized
    edge = made(limits=Limits(max_request_tokens=tokens))
    image = {"content": [image_part(LARGE)]}
    assert edge.prepare("/v2/embed", orjson.dumps({"model": QWEN, "images": [data_url(LARGE)] * 3})).report
    assert edge.prepare("/score", orjson.dumps({"model": QWEN, "queries": "a", "documents": [image, image]})).report
    with pytest.raises(VisionBudgetExceeded) as caught:
        edge.prepare("/score", orjson.dumps({"model": QWEN, "queries": image, "documents": ["a", image]}))
    assert caught.value.found == 2 * tokens


def test_a_uuid_is_taken_away_and_the_picture_stays(edge: Edge) -> None:
    part = {"type": "text", "text": "a", "uuid": "u", "image_url": data_url(LARGE), "x": 1}
    [sent] = orjson.loads(edge.prepare(CHAT_PATH, chat(part)).body[:])["messages"][0]["content"]
    assert opened(picture_of(sent["image_url"].pop("url"))).size == (1008, 504)
    assert sent == {"type": "image_url", "text": "a", "uuid": None, "image_url": {}, "x": 1}


@pytest.mark.parametrize("key", ["content", "output"])
def test_a_uuid_is_taken_away_from_a_part_of_a_response(edge: Edge, key: str) -> None:
    item = {"role": "user"} if key == "content" else {"type": "function_call_output", "call_id": "1"}
    part = {"type": "input_image", "uuid": "u", "image_url": data_url(SMALL)}

    def prepared(part: dict[str, Any]) -> Any:
        body = orjson.dumps({"model": QWEN, "input": [item | {key: [part]}]})
        return orjson.loads(edge.prepare("/v1/responses", body).body[:])["input"][0][key][0]

    assert prepared(part) == part | {"uuid": None, "detail": "auto"}
    assert prepared(part | {"detail": "low"}) == part | {"uuid": None, "detail": "low"}
    with pytest.raises(CachedMediaRefused) as caught:
        prepared(part | {"type": "input_text", "text": "a"})
    assert caught.value.param == f"input[0].{key}[0]"


def test_names_become_the_clients_own() -> None:
    edge = made(uuid="namespace")
    part = {"type": "image_url", "image_url": {"url": data_url(SMALL)}, "uuid": "u"}

    def name(**headers: str) -> str:
        [sent] = orjson.loads(edge.prepare(CHAT_PATH, chat(part), headers).body[:])["messages"][0]["content"]
        assert sent == part | {"uuid": sent["uuid"]}
        uuid: str = sent["uuid"]
        return uuid

    ours, theirs = name(authorization="Bearer a"), name(authorization="Bearer b")
    assert len({ours, theirs, name(), name(**{"Authorization": "Bearer a", PROFILE_HEADER: "document"})}) == 4
    assert name(Authorization="Bearer a") == ours
    cached = {"type": "image_url", "image_url": None, "uuid": "u"}
    [sent] = orjson.loads(edge.prepare(CHAT_PATH, chat(cached), {"authorization": "Bearer a"}).body[:])["messages"][0][
        "content"
    ]
    assert sent["uuid"] == ours


def test_old_pictures_become_notes_in_their_place() -> None:
    edge = made(history="keep_last", limits=Limits(max_images=2))
    turns = [{"role": "user", "content": [text_part("a"), image_part(SMALL)]} for _ in range(4)]
    broken = [{"role": "user", "content": [image_part(b"nothing that could be read")]}]
    body = orjson.dumps({"model": QWEN, "messages": broken + turns})
    sent = orjson.loads(edge.prepare(CHAT_PATH, body).body[:])["messages"]
    note = {"type": "text", "text": "[an earlier picture was left out]"}
    assert [message["content"][-1] for message in sent] == [note] * 3 + [image_part(SMALL)] * 2
    assert [message["content"][0] for message in sent[1:]] == [text_part("a")] * 4


# Remote pictures


@pytest.fixture(scope="module")
def pictures() -> Iterator[int]:
    """A server of pictures; its port."""
    with served(Recorder(body=LARGE, headers=[(b"content-type", b"text/plain")])) as port:
        yield port


def fetching(port: int) -> Edge:
    return made(remote="fetch", fetch=FetchSettings(hosts=(f"127.0.0.1:{port}",), private_addresses=True))


def test_a_remote_picture_is_fetched_and_sent_as_data(pictures: int) -> None:
    body = chat(image_part(SMALL), *json_urls(f"http://127.0.0.1:{pictures}/a.png"))
    prepared = fetching(pictures).prepare(CHAT_PATH, body)
    assert opened(sent_picture(bytes(prepared.body), part=1)).size == (1008, 504)
    assert prepared.report
    assert [one.action for one in prepared.report.pictures] == ["kept", "resized"]
    assert prepared.report.pictures[1].bytes_before == len(LARGE)


@pytest.mark.anyio
async def test_a_remote_picture_is_fetched_from_a_running_loop_as_well(pictures: int) -> None:
    edge, body = fetching(pictures), chat(*json_urls(f"http://127.0.0.1:{pictures}/a.png"))
    prepared = await edge.prepare_async(CHAT_PATH, body)
    assert prepared.body == edge.prepare(CHAT_PATH, body).body


@pytest.mark.parametrize("url", ["http://127.0.0.2/a.png", "file:///etc/passwd", "ftp://127.0.0.1/a", "http://["])
def test_what_may_not_be_fetched_is_refused(pictures: int, url: str) -> None:
    with pytest.raises(RemoteMediaRefused) as caught:
        fetching(pictures).prepare(CHAT_PATH, chat(image_part(SMALL), *json_urls(url)))
    assert caught.value.param == "messages[0].content[1]"


def test_a_remote_video_is_not_fetched(pictures: int) -> None:
    part = {"type": "video_url", "video_url": {"url": f"http://127.0.0.1:{pictures}/a.mp4"}}
    with pytest.raises(RemoteMediaRefused):
        fetching(pictures).prepare(CHAT_PATH, chat(part))


def json_urls(*urls: str) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": url}} for url in urls]


def test_remote_pictures_have_no_more_bytes_together_than_a_body(pictures: int) -> None:
    fetch = FetchSettings(hosts=(f"127.0.0.1:{pictures}",), private_addresses=True)
    edge = made(remote="fetch", fetch=fetch, limits=Limits(max_body_bytes=2 * len(LARGE)))
    url = f"http://127.0.0.1:{pictures}/a.png"
    assert edge.prepare(CHAT_PATH, chat(*json_urls(url, url))).report
    with pytest.raises(MediaTooLarge) as caught:
        edge.prepare(CHAT_PATH, chat(*json_urls(url, url, url)))
    assert (caught.value.found, caught.value.allowed) == (3 * len(LARGE), 2 * len(LARGE))


# Much text


@pytest.mark.anyio
@pytest.mark.parametrize("text", [10, 100_000])
async def test_much_text_is_read_beside_the_event_loop(edge: Edge, text: int) -> None:
    body = chat(text_part("a " * text), image_part(SMALL))
    task = asyncio.create_task(edge.decide_async(CHAT_PATH, body))
    await asyncio.sleep(0)  # the task has its first turn
    assert task.done() == (text == 10)
    decision = await task
    assert decision
    assert len(decision.media) == 1


@pytest.mark.parametrize(("value", "ends"), [("{}", "[]"), ("[]", "[]"), ('"a":1', "{}")])
def test_more_values_than_any_request_has_are_refused(edge: Edge, value: str, ends: str) -> None:
    for count, refused in ((MAX_VALUES - 3, False), (MAX_VALUES, True)):
        body = f'{{"x":{ends[0]}{",".join([value] * count)}{ends[1]}}}'.encode()
        with pytest.raises(TooManyValues) if refused else nullcontext():
            assert edge.prepare(CHAT_PATH, body) == Prepared(body, None)


def test_dropped_pictures_are_reported() -> None:
    edge = made(history="keep_last", limits=Limits(max_images=1, max_total_images=2))
    report = edge.prepare(CHAT_PATH, chat(*[image_part(SMALL)] * 30)).report
    assert report
    assert (len(report.pictures), report.dropped) == (1, 29)
    assert (b"x-vlm-edge-media", b"images=1; kept=1, dropped=29") in report.headers()


def test_a_report_of_media_that_passed_has_no_scale() -> None:
    video = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    report = Edge(Settings(videos="pass")).prepare(CHAT_PATH, chat(video)).report
    assert report
    assert b"x-vlm-edge-scale" not in dict(report.headers())


def test_a_remote_picture_that_was_not_fetched_has_an_error_of_its_own(pictures: int) -> None:
    edge = fetching(pictures)
    found = edge.find(CHAT_PATH, chat(*json_urls(f"http://127.0.0.1:{pictures}/a.png")))
    assert found
    with pytest.raises(RemoteMediaFailed):
        edge.decide(found)


@pytest.mark.parametrize("depth", [10, 900, 1_010, 5_000])
def test_a_uuid_may_be_anything(edge: Edge, depth: int) -> None:
    part = {"type": "image_url", "image_url": {"url": data_url(SMALL)}, "uuid": "UUID"}
    body = chat(part).replace(b'"UUID"', b"[" * depth + b"]" * depth)
    try:
        sent = edge.prepare(CHAT_PATH, body).body
    except InvalidJson:
        assert depth > 1_000  # Python's parser has a limit, too
    else:
        assert orjson.loads(sent[:])["messages"][0]["content"][0]["uuid"] is None


# What libvips would get wrong, or do for nothing


def test_a_first_frame_that_does_not_fill_its_gif_stands_in_its_place(edge: Edge) -> None:
    """As Pillow, and so vLLM, shows it."""
    gif = encoded(quadrants(56, 28), "GIF")
    on_screen = gif[:6] + (112).to_bytes(2, "little") + (84).to_bytes(2, "little") + gif[10:]
    picture = edge.picture(on_screen, "document", QWEN)
    assert picture.size == (112, 84)
    assert opened(picture.data).convert("RGB").tobytes() == opened(on_screen).convert("RGB").tobytes()


def test_the_texts_of_a_png_change_nothing(edge: Edge) -> None:
    plain = png(280, 196)
    texts = b"".join(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(99_999))) for _ in range(9))
    packed = plain[:33] + texts + plain[33:]
    assert opened(edge.picture(packed, "document", QWEN).data).tobytes() == opened(plain).tobytes()


def test_a_png_of_more_chunks_than_are_looked_at_does_not_pass_as_it_came(edge: Edge) -> None:
    """What stands behind them may be a turn, or a text that unpacks to any length."""
    plain = png(280, 196)
    many = (
        plain[:33] + chunk(b"prVt", b"") * 3_001 + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(99_999))) + plain[33:]
    )
    picture = edge.picture(many, "document", QWEN)
    assert picture.report.action == "converted"
    assert opened(picture.data).tobytes() == opened(plain).tobytes()


def test_a_closed_edge_says_so() -> None:
    closed = Edge()
    closed.close()
    with pytest.raises(ServerError, match="closed"):
        closed.prepare(CHAT_PATH, chat(image_part(LARGE)))


@pytest.mark.parametrize("compression", ["zstd", "lzma"])
def test_a_tiff_of_a_compression_that_libvips_lacks_is_read(compression: str, edge: Edge) -> None:
    data = encoded(quadrants(280, 196), "TIFF", compression=compression)
    assert opened(edge.picture(data, "document", QWEN).data).convert("RGB").tobytes() == opened(data).tobytes()


def progressive(scans: int, side: int) -> bytes:
    """A grey JPEG that repeats its last scan."""
    data = encoded(Image.new("L", (side, side), 90), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def test_a_jpeg_of_too_many_scans_is_neither_kept_nor_made(edge: Edge) -> None:
    assert edge.picture(encoded(Image.new("L", (560, 560)), "JPEG", progressive=True), "standard").report
    for side in (560, 2_800):
        with pytest.raises(CorruptMedia, match="scans over"):
            edge.picture(progressive(200, side), "standard")


def test_a_png_that_passes_is_one_that_pillow_reads(edge: Edge) -> None:
    """The checksum of a text is wrong, which libvips does not mind."""
    plain = png(280, 196)
    wrong = plain[:33] + chunk(b"tEXt", b"a\0b")[:-1] + b"?" + plain[33:]
    with pytest.raises((SyntaxError, OSError)):
        opened(wrong)
    picture = edge.picture(wrong, "document", QWEN)
    assert (picture.data, picture.report.action) == (plain, "kept")
    assert edge.picture(plain, "document", QWEN).data == plain


# Budget


def fitting(max_model_len: int, **settings: Any) -> Edge:
    budget = BudgetSettings(on_exceed="fit", max_model_len=max_model_len, reserve_tokens=100)
    return Edge(Settings(budget=budget, **settings))


def test_pictures_are_sent_as_small_as_the_budget_needs_them() -> None:
    photo = image_part(PHONE.read_bytes())
    body = chat(photo, image_part(jpeg(280, 280)), photo, model=QWEN)
    prepared = fitting(2_000).prepare(CHAT_PATH, body)
    report = prepared.report
    assert report is not None
    assert report.text_tokens is not None
    assert report.tokens + report.text_tokens + 100 <= 2_000
    first, small, second = report.pictures
    assert [one.fitted for one in report.pictures] == [True, False, True]
    assert first.size_after == second.size_after  # to one common cap
    assert (small.action, small.tokens_after) == ("kept", 100)
    for part, one in enumerate(report.pictures):
        assert opened(sent_picture(bytes(prepared.body), part=part)).size == one.size_after
    assert dict(report.headers())[b"x-vlm-edge-media"].endswith(b"fitted=2")


def test_what_not_even_the_floor_fits_is_refused_in_words() -> None:
    body = chat(text_part("x" * 50), *[image_part(PHONE.read_bytes())] * 3, model=QWEN, max_tokens=200)
    with pytest.raises(ContextExceeded) as caught:
        fitting(800).prepare(CHAT_PATH, body)
    error = caught.value
    assert (error.allowed, error.reserved, error.param) == (800, 200, "messages[0].content[1]")
    assert "biggest: 2" in error.message  # as small as the profile lets them be: 247 each


def large_pages(count: int) -> bytes:
    """A TIFF of pages of 1600x1200."""
    pages = [picture(1_600, 1_200) for _ in range(count)]
    return encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])


@pytest.mark.parametrize(("unknown", "words"), [("estimate", "an estimate"), ("at_most", "an upper bound")])
def test_a_refusal_says_of_counts_that_are_not_exact_what_they_are(unknown: Any, words: str) -> None:
    edge = Edge(Settings(unknown_models=unknown, limits=Limits(max_request_tokens=50)))
    with pytest.raises(VisionBudgetExceeded) as caught:
        edge.prepare(CHAT_PATH, chat(image_part(jpeg(280, 280)), model="who-knows"))
    assert caught.value.message.endswith(f"the vision tokens of this model are {words}")
    with pytest.raises(VisionBudgetExceeded) as caught:
        edge.prepare(CHAT_PATH, chat(image_part(jpeg(280, 280)), model=QWEN))
    assert "of this model are" not in caught.value.message
    small = Edge(Settings(unknown_models=unknown, profiles=shipped_profiles() | {"standard": Profile(max_tokens=1)}))
    with pytest.raises(VisionBudgetExceeded, match=words):
        small.prepare(CHAT_PATH, chat(image_part(jpeg(280, 280)), model="who-knows"))


def test_pages_of_a_document_are_fitted_as_pictures_are() -> None:
    profiles = shipped_profiles()
    body = chat(image_part(large_pages(3), "image/tiff"), model=QWEN)
    report = fitting(1_500, profiles=profiles).prepare(CHAT_PATH, body).report
    assert report is not None
    assert [one.page for one in report.pictures] == [1, 2, 3]
    assert len({one.size_after for one in report.pictures}) == 1
    assert report.tokens <= 1_400


def test_without_a_tokenizer_text_is_bounded_and_refuses_nothing() -> None:
    """A text of 3,000 bytes may be 3,000 tokens, and is 700 as a rule: the model's server will know."""
    body = chat(text_part("word " * 600), image_part(jpeg(280, 280)), model=QWEN)
    edge = Edge(Settings(budget=BudgetSettings(max_model_len=2_000)))
    report = edge.prepare(CHAT_PATH, body).report
    assert report is not None
    assert (report.text_exact, report.tokens) == (False, 100)
    assert report.text_tokens is not None
    assert report.text_tokens >= 3_000


def test_text_that_looks_like_a_payload_counts_in_the_bound() -> None:
    """A text in which a data URL stands is cut as if it were one."""
    text = "look: data:image/png;base64," + "A" * 20_000
    report = Edge().prepare(CHAT_PATH, chat(text_part(text), image_part(jpeg(280, 280)), model=QWEN)).report
    assert report is not None
    assert (report.text_exact, (report.text_tokens or 0) >= 20_000) == (False, True)


@pytest.mark.parametrize("side", [64, 1_200])
def test_a_text_that_was_cut_is_seen_however_small_the_picture_beside_it_is(side: int) -> None:
    """A small picture is not cut, so there are as many cuts as pictures."""
    text = "x" * 100_000
    report = (
        Edge().prepare(CHAT_PATH, chat(text_part(text), image_part(png(side, side), "image/png"), model=QWEN)).report
    )
    assert report is not None
    assert (report.text_exact, (report.text_tokens or 0) >= 99_000) == (False, True)


def test_a_model_that_nobody_knows_is_refused_where_the_settings_say_so() -> None:
    edge = Edge(Settings(unknown_models="refuse"))
    with pytest.raises(UnknownModel):
        edge.prepare(CHAT_PATH, chat(image_part(jpeg(280, 280)), model="who-knows"))
    assert edge.prepare(CHAT_PATH, chat(text_part(), model="who-knows")).report is None
