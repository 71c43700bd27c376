"""Which parts of a chat request are media. What counts is what vLLM 0.33 would load."""

from typing import Any

import pytest

from vlm_edge.errors import CorruptMedia, EdgeError, TooManyImages
from vlm_edge.requests.body import Path
from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.openai import error_body, find_chat
from vlm_edge.requests.part import MediaPart

URL = "data:image/png;base64,AAAA"


def message(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


def found(*parts: Any) -> list[MediaPart]:
    return list(find_chat({"messages": [message(*parts)]}))


IMAGES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"type": "image_url", "image_url": {"url": URL}}, ("image_url", "url")),
    ({"type": "image_url", "image_url": URL}, ("image_url",)),
    ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}, "max_pixels": 200_704}, ("image_url", "url")),
    ({"type": "input_image", "image_url": URL}, ("image_url",)),
    ({"type": "input_image", "image_url": {"url": URL}}, ("image_url", "url")),
    ({"image_url": URL}, ("image_url",)),  # no type: the first media key counts
    ({"image_url": {"url": URL}}, ("image_url", "url")),
    ({"type": "image", "image_url": URL}, ("image_url",)),  # a type that vLLM does not know
    ({"type": None, "image_url": URL}, ("image_url",)),
    ({"type": ["image_url"], "image_url": URL}, ("image_url",)),
    ({"type": "text", "text": "a", "uuid": "1", "image_url": URL}, ("image_url",)),  # with uuid the type is not read
    ({"image_url": URL, "video_url": URL}, ("image_url",)),
    ({"type": "image_url", "image_url": URL, "video_url": URL}, ("image_url",)),
    ({"type": "image_url", "image_url": URL, "text": "and a caption"}, ("image_url",)),
]


@pytest.mark.parametrize(("part", "keys"), IMAGES)
def test_a_picture_is_found_in_each_of_its_spellings(part: dict[str, Any], keys: tuple[str, ...]) -> None:
    path: Path = ("messages", 0, "content", 0, *keys)
    assert found(part) == [MediaPart("messages[0].content[0]", path, "image", URL)]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": URL},
        {"type": "text", "text": "a", "image_url": URL},  # of type text, so vLLM reads the text alone
        {"type": "text", "text": "a", "image_url": {"url": URL}},
        {"type": "refusal", "refusal": "no", "image_url": URL},
        {},
        URL,
        None,
        [],
        7,
    ],
    ids=repr,
)
def test_what_is_no_media_is_passed_over(part: Any) -> None:
    assert found(part) == []


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": None},
        {"type": "image_url", "image_url": {}},
        {"type": "image_url", "image_url": {"url": None}},
        {"type": "image_url", "image_url": {"url": 7}},
        {"type": "image_url", "image_url": [URL]},
        {"type": "image_url", "image_url": None, "uuid": "u"},  # from vLLM's cache
        {"type": "image_url"},
        {"type": "image_embeds", "image_embeds": URL},
        {"image_embeds": URL, "audio_url": URL},  # the first of vLLM's keys wins, and it holds no URL
    ],
    ids=repr,
)
def test_a_picture_without_a_url_is_one_all_the_same(part: dict[str, Any]) -> None:
    [one] = found(part)
    assert (one.modality, one.url) == ("image", None)


@pytest.mark.parametrize(
    ("part", "modality"),
    [
        ({"type": "video_url", "video_url": {"url": URL}}, "video"),
        ({"type": "audio_url", "audio_url": {"url": URL}}, "audio"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "audio"),
        ({"audio_url": URL, "video_url": URL}, "audio"),
        ({"type": "video_url", "video_url": URL, "image_url": URL}, "video"),
    ],
)
def test_videos_and_sounds_are_told_from_pictures(part: dict[str, Any], modality: str) -> None:
    assert [one.modality for one in found(part)] == [modality]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "anything"])
def test_every_role_may_bring_pictures(role: str) -> None:
    body = {"messages": [message({"type": "image_url", "image_url": {"url": URL}}, role=role)]}
    assert len(list(find_chat(body))) == 1  # B17


def test_the_whole_history_is_searched_in_order() -> None:
    body = {
        "messages": [
            {"role": "system", "content": "You see."},
            message({"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "one"}}),
            message("a bare string"),
            message({"type": "image_url", "image_url": "two"}, {"type": "input_image", "image_url": "three"}),
        ]
    }
    places = [(part.place, part.url) for part in find_chat(body)]
    assert places == [
        ("messages[1].content[1]", "one"),
        ("messages[3].content[0]", "two"),
        ("messages[3].content[1]", "three"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None},
        {"messages": "text"},
        {"messages": {"0": {}}},
        {"messages": [None, 1, "text", []]},
        {"messages": [{}, {"content": None}, {"content": {"type": "image_url", "image_url": URL}}]},
        {"prompt": URL},
    ],
    ids=repr,
)
def test_a_body_of_another_shape_holds_no_media(body: dict[str, Any]) -> None:
    assert list(find_chat(body)) == []


def test_chat_completions_speak_this_dialect() -> None:
    dialect = ENDPOINTS["/v1/chat/completions"]
    assert dialect.find is find_chat
    assert dialect.error_body is error_body


@pytest.mark.parametrize("error", [CorruptMedia("it is empty"), TooManyImages(5, 4)])
def test_an_error_is_told_as_openai_tells_it(error: EdgeError) -> None:
    error.param = "messages[0].content[1]"
    assert error_body(error) == {
        "error": {
            "message": f"messages[0].content[1]: {error.message}",
            "type": "invalid_request_error",
            "param": "messages[0].content[1]",
            "code": error.code,
        }
    }
