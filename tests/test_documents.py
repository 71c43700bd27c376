"""Documents and animations in requests: each page a picture, in its order, in place of the one part that came."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import orjson
import pytest
from PIL import Image

from tests.samples import CHAT_PATH, QWEN, chat, data_url, encoded, image_part, opened, picture_of, text_part
from vlm_edge import Edge, Settings
from vlm_edge.errors import (
    CachedMediaRefused,
    CorruptMedia,
    EdgeError,
    MediaTooLarge,
    TooManyImages,
    TooManyPages,
    UnsupportedMedia,
)
from vlm_edge.isolation import IsolationSettings
from vlm_edge.media.profile import Pages, Profile
from vlm_edge.pictures import Limits
from vlm_edge.settings import shipped_profiles
from vlm_edge.workers import Job, WorkerSettings

GREYS = (40, 120, 200)


def document(kind: str, greys: tuple[int, ...] = GREYS, size: tuple[int, int] = (560, 280)) -> bytes:
    """A document, or an animation, of pages of one grey each."""
    first, *others = [Image.new("L", size, grey) for grey in greys]
    return encoded(first, kind, save_all=True, append_images=others)


PDF, TIFF = document("PDF"), document("TIFF")


def made(**fields: Any) -> Edge:
    profiles = shipped_profiles() | fields.pop("profiles", {})
    return Edge(Settings(profiles=profiles, default_profile="document", **fields))


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    edge = made()
    yield edge
    edge.close()


def profile(**fields: Any) -> dict[str, Profile]:
    return {"document": msgspec.structs.replace(shipped_profiles()["document"], **fields)}


def greys_of(*files: bytes) -> list[int]:
    """The grey of each picture, to the next of ten."""
    means = [opened(file).convert("L").resize((1, 1)).getpixel((0, 0)) for file in files]
    return [round(float(mean) / 10) * 10 for mean in means if isinstance(mean, (int, float))]


def content_of(body: Any) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = orjson.loads(body)["messages"][0]["content"]
    return content


def pictures_of(body: Any) -> list[bytes]:
    return [picture_of(part["image_url"]["url"]) for part in content_of(body) if part["type"] == "image_url"]


# In place


@pytest.mark.parametrize(("kind", "media_type"), [("PDF", "application/pdf"), ("TIFF", "image/tiff")])
def test_pages_stand_in_order_where_the_document_stood(edge: Edge, kind: str, media_type: str) -> None:  # B76, B78
    body = chat(text_part("before"), image_part(document(kind), media_type), text_part("after"))
    prepared = edge.prepare(CHAT_PATH, body)
    kinds = [part["type"] for part in content_of(prepared.body)]
    assert kinds == ["text", "image_url", "image_url", "image_url", "text"]
    assert greys_of(*pictures_of(prepared.body)) == list(GREYS)
    assert prepared.report
    assert [(one.page, one.pages, one.media_type_before) for one in prepared.report.pictures] == [
        (number, 3, media_type) for number in (1, 2, 3)
    ]


def test_all_bytes_around_a_document_stay(edge: Edge) -> None:
    before = b'{"model": "Qwen/Qwen2.5-VL-7B-Instruct",  "messages": [{"role":"user","content": [ '
    after = b' , {"type": "text", "text": "\\u00e9"} ]}], "seed": 1.0}\n'
    part = b'{"image_url": {"url": "%s", "detail": "high"}, "type": "image_url"}' % data_url(PDF, "x/y").encode()
    prepared = bytes(edge.prepare(CHAT_PATH, before + part + after).body)
    assert prepared.startswith(before + b'{"image_url": {"url": "data:image/')
    assert prepared.endswith(after)
    assert prepared.count(b'"detail": "high"') == 1


def test_each_page_costs_its_tokens(edge: Edge) -> None:
    prepared = edge.prepare(CHAT_PATH, chat(image_part(TIFF, "image/tiff")))
    assert prepared.report
    assert [one.tokens_after for one in prepared.report.pictures] == [20 * 10] * 3
    assert prepared.report.tokens == 600


@pytest.mark.parametrize("bare", [False, True])
def test_a_file_part_of_a_chat_becomes_its_pages(edge: Edge, bare: bool) -> None:
    url = data_url(PDF, "application/pdf")
    file = {"filename": "a.pdf", "file_data": url.partition(",")[2] if bare else url}
    prepared = edge.prepare(CHAT_PATH, chat(text_part(), {"type": "file", "file": file}))
    assert greys_of(*pictures_of(prepared.body)) == list(GREYS)
    assert b"filename" not in prepared.body


def test_a_picture_in_the_dress_of_a_file_becomes_a_picture_part(edge: Edge) -> None:
    """Also one that is inside its profile, and is not made anew."""
    jpeg = encoded(Image.new("RGB", (56, 56), "red"), "JPEG")
    part = {"type": "file", "file": {"file_data": data_url(jpeg)}}
    prepared = edge.prepare(CHAT_PATH, chat(part))
    assert pictures_of(prepared.body) == [jpeg]


def test_an_input_file_of_a_response_becomes_its_pages(edge: Edge) -> None:
    file = {"type": "input_file", "filename": "a.pdf", "file_data": data_url(PDF, "application/pdf")}
    body = orjson.dumps(
        {"model": QWEN, "input": [{"role": "user", "content": [file, {"type": "input_text", "text": "?"}]}]}
    )
    content = orjson.loads(bytes(edge.prepare("/v1/responses", body).body))["input"][0]["content"]
    assert [part["type"] for part in content] == ["input_image"] * 3 + ["input_text"]
    assert greys_of(*[picture_of(part["image_url"]) for part in content[:3]]) == list(GREYS)


@pytest.mark.parametrize("kind", ["document", "image"])
def test_a_document_of_anthropics_messages_becomes_its_pages(edge: Edge, kind: str) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(PDF).decode()}
    body = orjson.dumps({"model": QWEN, "messages": [{"role": "user", "content": [{"type": kind, "source": source}]}]})
    content = content_of(edge.prepare("/v1/messages", body).body)
    assert [(part["type"], part["source"]["type"]) for part in content] == [("image", "base64")] * 3
    files = [base64.b64decode(part["source"]["data"], validate=True) for part in content]
    assert greys_of(*files) == list(GREYS)
    assert {part["source"]["media_type"] for part in content} == {Image.MIME[str(opened(files[0]).format)]}


def test_where_one_picture_is_expected_a_document_of_one_page_may_stand(edge: Edge) -> None:
    one = orjson.dumps({"model": QWEN, "images": [data_url(document("PDF", (120,)), "application/pdf")]})
    (url,) = orjson.loads(bytes(edge.prepare("/v2/embed", one).body))["images"]
    assert greys_of(picture_of(url)) == [120]
    many = orjson.dumps({"model": QWEN, "images": [data_url(PDF, "application/pdf")]})
    with pytest.raises(UnsupportedMedia, match="3 pages where one picture may stand") as caught:
        edge.prepare("/v2/embed", many)
    assert caught.value.param == "images[0]"


# How many


def test_a_longer_document_is_refused_or_its_first_pages_are_taken() -> None:
    for data, kind in ((PDF, "application/pdf"), (TIFF, "image/tiff")):
        body = chat(text_part(), image_part(data, kind))
        with pytest.raises(TooManyPages, match="3 pages; at most 2") as caught:
            made(profiles=profile(pages=Pages(max=2))).prepare(CHAT_PATH, body)
        assert (caught.value.param, caught.value.code) == ("messages[0].content[1]", "unsupported_media")
        prepared = made(profiles=profile(pages=Pages(max=2, over="first"))).prepare(CHAT_PATH, body)
        assert greys_of(*pictures_of(prepared.body)) == [40, 120]
        assert prepared.report
        assert prepared.report.left_out == 1
        assert dict(prepared.report.headers())[b"x-vlm-edge-media"].endswith(b"left_out=1")


def test_pages_count_as_pictures() -> None:
    with pytest.raises(TooManyImages, match="At most 5"):
        made(limits=Limits(max_images=5)).prepare(CHAT_PATH, chat(*[image_part(PDF, "application/pdf")] * 2))
    assert made(limits=Limits(max_images=6)).prepare(CHAT_PATH, chat(*[image_part(PDF, "application/pdf")] * 2)).report


def test_a_name_for_several_pages_is_taken_away_or_refused() -> None:
    named = {**image_part(PDF, "application/pdf"), "uuid": "mine"}
    assert b"mine" not in made(uuid="strip").prepare(CHAT_PATH, chat(named)).body
    with pytest.raises(CachedMediaRefused):
        made(uuid="pass").prepare(CHAT_PATH, chat(named))


# Animations


@pytest.mark.parametrize(("kind", "media_type"), [("GIF", "image/gif"), ("WEBP", "image/webp"), ("PNG", "image/png")])
def test_of_an_animation_the_first_frame_is_taken_or_some_or_none(kind: str, media_type: str) -> None:  # B74
    greys = (30, 60, 90, 120, 150, 180)
    frames = [Image.new("RGB", (280, 280), (grey,) * 3) for grey in greys]
    data = encoded(
        frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
    )
    body = chat(image_part(data, media_type))
    assert greys_of(*pictures_of(made().prepare(CHAT_PATH, body).body)) == [30]
    some = made(profiles=profile(animation="frames", pages=Pages(max=3)))
    assert greys_of(*pictures_of(some.prepare(CHAT_PATH, body).body)) == [30, 90, 150]
    with pytest.raises(UnsupportedMedia, match="animation of 6 frames"):
        made(profiles=profile(animation="refuse")).prepare(CHAT_PATH, body)


def test_a_gif_that_does_not_move_is_no_animation() -> None:
    still = encoded(Image.new("L", (280, 280), 90), "GIF")
    edge = made(profiles=profile(animation="refuse"))
    assert greys_of(*pictures_of(edge.prepare(CHAT_PATH, chat(image_part(still, "image/gif"))).body)) == [90]


# The library


def test_a_page_can_be_had_alone(edge: Edge) -> None:
    for data in (PDF, TIFF):
        picture = edge.picture(data, page=2)
        assert greys_of(picture.data) == [200]
        assert (picture.report.page, picture.report.pages) == (3, 3)
        assert greys_of(*[page.data for page in edge.pages(data)]) == list(GREYS)
        with pytest.raises(EdgeError, match="3 pages"):
            edge.picture(data, page=3)


def test_a_page_of_a_pdf_is_drawn_at_the_planned_size(edge: Edge) -> None:
    a4 = document("PDF", (120,), (595, 842))
    picture = edge.picture(a4, "document", QWEN)
    assert opened(picture.data).size == picture.size
    assert 1_900 <= picture.size.long <= 2_048
    assert picture.tokens == (picture.size.width // 28) * (picture.size.height // 28)


# Hostile


def test_a_document_that_cannot_be_opened_is_refused_by_its_place(edge: Edge) -> None:
    with pytest.raises(CorruptMedia) as caught:
        edge.prepare(CHAT_PATH, chat(text_part(), image_part(PDF[:300], "application/pdf")))
    assert caught.value.param == "messages[0].content[1]"


@pytest.mark.anyio
async def test_documents_are_opened_beside_the_event_loop() -> None:
    """While the only worker is busy the document waits, and the loop does not."""
    edge, gate = made(workers=WorkerSettings(threads=1)), threading.Event()
    edge.workers.submit([Job(partial(gate.wait))])
    task = asyncio.create_task(edge.prepare_async(CHAT_PATH, chat(image_part(PDF, "application/pdf"))))
    await asyncio.sleep(0.01)
    assert (edge.workers.pending, task.done()) == (2, False)
    gate.set()
    assert greys_of(*pictures_of((await task).body)) == list(GREYS)
    edge.close()


def test_without_isolation_the_same_pages_come_out(edge: Edge) -> None:
    body = chat(
        image_part(PDF, "application/pdf"), image_part(encoded(Image.new("L", (60, 60), 90), "BMP"), "image/bmp")
    )
    inside = made(isolation=IsolationSettings(enabled=False))
    assert inside.prepare(CHAT_PATH, body).body == edge.prepare(CHAT_PATH, body).body


def test_a_document_that_its_headers_call_too_long_is_not_opened() -> None:
    """Nor are the others of its request."""
    long = document("TIFF", tuple(range(20)), (8, 8))
    closed = made()
    closed.close()  # nothing can be opened with it
    with pytest.raises(TooManyPages) as caught:
        closed.prepare(CHAT_PATH, chat(image_part(PDF, "application/pdf"), image_part(long, "image/tiff")))
    assert caught.value.param == "messages[0].content[1]"


def test_many_pages_may_not_each_be_as_large_as_a_picture() -> None:
    tight = made(limits=Limits(max_image_pixels=560 * 280))
    assert tight.prepare(CHAT_PATH, chat(image_part(document("TIFF", GREYS), "image/tiff"))).report
    with pytest.raises(MediaTooLarge, match="on its pages"):
        tight.prepare(CHAT_PATH, chat(image_part(document("TIFF", (1, 2, 3, 4, 5)), "image/tiff")))
