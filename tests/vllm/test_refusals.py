"""Refusals: ours come before vLLM has done anything; vLLM's own reach the client as it wrote them."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.samples import CHAT_PATH, PHONE, PICTURES, chat, data_url, image_part, jpeg, text_part
from tests.vllm.client import JSON, Client, asking
from tests.vllm.service import CONTEXT_TOKENS, MISTAKEN, MODEL

SMALL_PART = image_part(jpeg(60, 60))
PHONE_PART = image_part(PHONE.read_bytes())
RETINA_PART = image_part((PICTURES / "retina.jpg").read_bytes())

past_the_gateway = pytest.mark.parametrize("service", ["gateway"], indirect=True)

INVALID = {
    "invalid_json": b'{"model": "tiny-vlm", "messages": [',
    "invalid_data_url": asking({"type": "image_url", "image_url": {"url": "data:image/png;base64,not+base64!"}}),
    "unsupported_media": asking(image_part(b"<svg/>")),
    "corrupt_media": asking(image_part(jpeg(600, 400)[:-400])),
    "remote_media_refused": asking({"type": "image_url", "image_url": {"url": "http://192.0.2.1/photo.jpg"}}),
}

# Each is an error of vLLM, whatever stands before it.
NOT_OURS = {
    "no such model": ("POST", CHAT_PATH, asking(model="nope")),
    "no messages": ("POST", CHAT_PATH, b'{"model": "tiny-vlm"}'),
    "no such kind of part": ("POST", CHAT_PATH, chat({"type": "hologram"}, model=MODEL)),
    "a text too long": ("POST", CHAT_PATH, asking(text="!" * CONTEXT_TOKENS)),
    "no such method": ("PUT", CHAT_PATH, b"{}"),
    "no such path": ("POST", "/v1/nothing", b"{}"),
}

# A picture to vLLM as to us, but then it does not expect a type that is null. It is no other's picture, for vLLM has it
# in its cache now, and its engine has not.
FAILING = chat(text_part(), {"type": None, "image_url": data_url(jpeg(90, 60))}, model=MODEL)


def test_too_many_pictures_are_refused_before_vllm(client: Client, vllm: Client) -> None:
    with nothing_done(vllm):
        answer = client.post(asking(*[SMALL_PART] * 3))
    assert answer.response.status_code == 400
    assert answer.error["code"] == "too_many_images"
    assert answer.error["param"] == "messages[0].content[3]"


@past_the_gateway
def test_too_many_pictures_are_refused_in_vllms_words(client: Client, vllm: Client) -> None:
    ours, theirs = (where.post(asking(*[SMALL_PART] * 3)) for where in (client, vllm))
    assert ours.response.status_code == theirs.response.status_code == 400
    sentence, _, _ = theirs.error["message"].partition(".")
    assert sentence == "At most 2 image(s) may be provided in one prompt"
    assert sentence in ours.error["message"]


def test_what_costs_too_much_is_refused_before_vllm(client: Client, vllm: Client) -> None:
    with nothing_done(vllm):
        answer = client.post(asking(RETINA_PART, RETINA_PART))
    assert answer.response.status_code == 400
    assert answer.error["code"] == "vision_budget_exceeded"
    assert answer.error["param"] == "messages[0].content[1]"
    assert "2592 vision tokens; at most 2500" in answer.error["message"]


@past_the_gateway
def test_a_photo_that_vllm_refuses_is_answered(client: Client, vllm: Client) -> None:
    alone = vllm.post(asking(PHONE_PART))
    assert alone.response.status_code == 400
    assert "exceeds model's maximum context length" in alone.error["message"]
    client.ask(PHONE_PART)


@pytest.mark.parametrize("code", INVALID)
def test_what_cannot_be_read_is_refused_before_vllm(code: str, client: Client, vllm: Client) -> None:
    with nothing_done(vllm):
        answer = client.post(INVALID[code])
    assert answer.response.status_code == 400
    assert answer.error["code"] == code


def test_vllms_error_reaches_the_client(client: Client) -> None:
    answer = client.post(asking(SMALL_PART, model="nope"))
    assert answer.response.status_code == 404
    assert answer.error == {
        "message": f"The model `nope` does not exist. Valid aliases: {MODEL}, {MISTAKEN}.",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    }


@past_the_gateway
@pytest.mark.parametrize("name", NOT_OURS)
def test_vllms_error_is_passed_on_as_it_is(name: str, client: Client, vllm: Client) -> None:
    method, path, body = NOT_OURS[name]
    ours, theirs = (where.http.request(method, path, content=body, headers=JSON) for where in (client, vllm))
    assert theirs.is_client_error
    assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content)
    assert without_date(ours.headers) == without_date(theirs.headers)


@past_the_gateway
def test_the_request_after_vllms_500_is_answered(client: Client) -> None:
    """vLLM closes the connection behind a 500 without saying so."""
    for _ in range(5):
        assert client.post(FAILING).response.status_code == 500
        client.ask(SMALL_PART)


@contextmanager
def nothing_done(vllm: Client) -> Iterator[None]:
    before = vllm.counters()
    yield
    assert vllm.counters() == before


def without_date(headers: httpx.Headers) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name != "date"]
