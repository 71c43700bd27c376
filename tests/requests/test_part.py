"""Which parts are media. What counts is what vLLM would load (renderers/chat_utils)."""

import json
from typing import Any

import pytest
from hypothesis import given

from tests.requests import bodies
from tests.requests.chat_utils import Refused, load
from tests.requests.texts import properties
from vlm_edge.requests.body import Path
from vlm_edge.requests.part import (
    MEDIA_KEYS,
    Context,
    MediaPart,
    Picture,
    find_content,
    find_part,
    find_url,
    picture_part,
    place,
)

URL = "data:image/png;base64,AAAA"
PDF = "data:application/pdf;base64,JVBERi0="
HERE: Path = ("messages", 0, "content", 0)


def found(part: dict[str, Any], **context: Any) -> list[MediaPart]:
    return list(find_part(part, HERE, Context(**context)))


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
    ({"type": "video_url", "uuid": "1", "image_url": URL}, ("image_url",)),
    ({"image_url": URL, "video_url": URL}, ("image_url",)),
    ({"video_url": URL, "image_url": URL}, ("image_url",)),  # in vLLM's order, not that of the part
    ({"type": "image_url", "image_url": URL, "video_url": URL}, ("image_url",)),
    ({"type": "image_url", "image_url": URL, "text": "and a caption"}, ("image_url",)),
]


@pytest.mark.parametrize(("part", "keys"), IMAGES)
def test_a_picture_is_found_in_each_of_its_spellings(part: dict[str, Any], keys: tuple[str, ...]) -> None:
    [one] = found(part, role="user")
    assert (one.part, one.modality, one.source, one.url) == (HERE, "image", (*HERE, *keys), URL)
    assert (one.bare, one.embeds, one.media_type, one.uuid) == (False, False, None, part.get("uuid"))
    assert one.context.role == "user"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": URL},
        {"type": "text", "text": "a", "image_url": URL},  # of type text, so vLLM reads the text alone
        {"type": "text", "text": "a", "image_url": {"url": URL}},
        {"type": "text", "text": "a", "image_url": URL, "uuid": None},
        {"type": "refusal", "refusal": "no", "image_url": URL},
        {"type": "tool_reference", "name": "a", "image_url": URL},
        {"tool_reference": {}, "name": "a"},
        {"text": URL},
        {"uuid": "1", "text": URL},
        {},
    ],
    ids=repr,
)
def test_what_is_no_media_is_passed_over(part: Any) -> None:
    assert found(part) == []


@pytest.mark.parametrize("part", [URL, None, [], [{"image_url": URL}], 7], ids=repr)
def test_what_is_no_object_is_no_media(part: Any) -> None:
    assert list(find_content([part], HERE, Context())) == []


@pytest.mark.parametrize("content", [None, URL, {"type": "image_url", "image_url": URL}, 7])
def test_what_is_no_list_holds_no_parts(content: Any) -> None:
    assert list(find_content(content, HERE, Context())) == []


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": None},
        {"type": "image_url", "image_url": {}},
        {"type": "image_url", "image_url": {"url": None}},
        {"type": "image_url", "image_url": {"url": ""}},
        {"type": "image_url", "image_url": {"url": 7}},
        {"type": "image_url", "image_url": [URL]},
        {"type": "image_url", "image_url": None, "uuid": "u"},  # from vLLM's cache
        {"type": "image_url"},
        {"type": "image_pil", "image_pil": URL},
        {"type": "image_embeds", "image_embeds": URL},
        {"image_embeds": URL, "audio_url": URL},  # the first of vLLM's keys wins, and it holds no URL
    ],
    ids=repr,
)
def test_a_picture_without_a_url_is_one_all_the_same(part: dict[str, Any]) -> None:
    [one] = found(part)
    assert (one.modality, one.url or None) == ("image", None)


@pytest.mark.parametrize(
    ("part", "modality", "keys"),
    [
        ({"type": "video_url", "video_url": {"url": URL}}, "video", ("video_url", "url")),
        ({"type": "audio_url", "audio_url": {"url": URL}}, "audio", ("audio_url", "url")),
        ({"type": "input_audio", "input_audio": {"data": URL, "format": "wav"}}, "audio", ("input_audio", "data")),
        ({"audio_url": URL, "video_url": URL}, "audio", ("audio_url",)),
        ({"type": "video_url", "video_url": URL, "image_url": URL}, "video", ("video_url",)),
    ],
)
def test_videos_and_sounds_are_told_from_pictures(part: dict[str, Any], modality: str, keys: tuple[str, ...]) -> None:
    [one] = found(part)
    assert (one.modality, one.source, one.url) == (modality, (*HERE, *keys), URL)
    assert one.bare == ("input_audio" in part)  # base64 alone, with its format beside it


@pytest.mark.parametrize("key", ["image_embeds", "audio_embeds", "video_embeds", "prompt_embeds"])
@pytest.mark.parametrize("typed", [True, False])
def test_what_is_embedded_already_is_marked_and_has_no_url(key: str, *, typed: bool) -> None:
    [one] = found({key: "AAAA", "data": "AAAA", **({"type": key} if typed else {})})
    assert (one.modality, one.url, one.embeds) == (key.removesuffix("_embeds").replace("prompt", key), None, True)


def test_the_keys_are_looked_for_in_the_order_of_vllm() -> None:
    holder, keys = {"url": URL, "data": "AAAA"}, [key for key in MEDIA_KEYS if key != "image_pil"]
    parts = [{later: holder, key: holder, **holder} for at, key in enumerate(keys) for later in keys[at + 1 :]]
    assert [found(part)[0].source[len(HERE)] for part in parts] == [list(part)[1] for part in parts]
    kinds = [load(part) for part in parts]
    assert [kind.modality for kind in kinds if kind] == [found(part)[0].modality for part in parts]


@pytest.mark.parametrize("uuid", ["u", "", 0, False, [], {"a": 1}], ids=repr)
def test_every_uuid_but_null_is_one(uuid: Any) -> None:
    [one] = found({"type": "text", "image_url": URL, "uuid": uuid})
    assert one.uuid == str(uuid)


def test_a_uuid_that_python_cannot_write_is_as_one_too_long() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    [one] = found({"type": "text", "image_url": URL, "uuid": deep})
    assert one.uuid is not None
    assert len(one.uuid) > 255


@properties(1_500)
@given(bodies.part() | bodies.picture)
def test_what_vllm_loads_is_found_as_what_it_is(part: dict[str, Any]) -> None:
    try:
        loaded = load(part)
    except Refused:
        return  # whatever is found there, vLLM refuses
    if loaded is None:
        assert found(part) == []
        return
    [one] = found(part)
    assert (one.modality, one.uuid) == (loaded.modality, loaded.uuid)
    if one.embeds:
        assert one.url is None
    elif one.bare:
        assert (not one.url) == (loaded.url is None)
        assert not one.url or loaded.url.endswith(f";base64,{one.url}")
    else:
        assert (one.url or None) == loaded.url


FILES: list[tuple[dict[str, Any], tuple[str, ...], bool]] = [
    ({"type": "file", "file": {"file_data": PDF, "filename": "x.pdf"}}, ("file", "file_data"), False),
    ({"type": "file", "file": {"file_data": "JVBERi0="}}, ("file", "file_data"), True),
    ({"type": "file", "file": {"file_data": "_-8="}}, ("file", "file_data"), True),
    ({"type": "file", "file": {"file_data": URL}}, ("file", "file_data"), False),
    ({"type": "file", "file": {"file_data": "https://a.test/x.pdf"}}, ("file", "file_data"), False),
    ({"type": "file", "file": {"file_data": " \nDATA:application/pdf;base64,AAAA"}}, ("file", "file_data"), False),
    ({"type": "file", "file": {"file_data": "file:///etc/passwd"}}, ("file", "file_data"), False),
    ({"type": "file", "file_data": PDF}, ("file_data",), False),
    ({"type": "file", "file": None, "file_data": PDF}, ("file_data",), False),
    ({"type": "input_file", "file_data": PDF, "filename": "x.pdf"}, ("file_data",), False),
    ({"type": "input_file", "file_data": "JVBERi0="}, ("file_data",), True),
    ({"type": "input_file", "file_url": "https://a.test/x.pdf"}, ("file_url",), False),
    ({"type": "input_file", "file_url": "x.pdf"}, ("file_url",), False),  # of no scheme: no URL that is fetched
    ({"type": "input_file", "file_data": "", "file_url": PDF}, ("file_url",), False),
    ({"type": "input_file", "file_data": None, "file_url": PDF}, ("file_url",), False),
    ({"type": "input_file", "file_data": PDF, "file_url": "https://a.test"}, ("file_data",), False),
    ({"type": "input_file", "file": {"file_data": PDF}}, ("file", "file_data"), False),
    ({"type": "file", "file": {"file_data": PDF}, "image_url": None, "text": None}, ("file", "file_data"), False),
]


@pytest.mark.parametrize(("part", "keys", "bare"), FILES)
def test_a_file_is_a_document_in_each_of_its_spellings(part: dict[str, Any], keys: tuple[str, ...], bare: bool) -> None:
    [one] = found(part, role="user")
    value: Any = part
    for key in keys:
        value = value[key]
    assert (one.part, one.modality, one.source, one.url) == (HERE, "image", (*HERE, *keys), value)
    assert (one.document, one.bare, one.media_type, one.context.role) == (True, bare, None, "user")


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_file", "file_id": "file-1", "filename": "x.pdf"},
        {"type": "input_file"},
        {"type": "input_file", "file_data": "", "file_url": ""},
        {"type": "input_file", "file_data": {"url": PDF}, "file_url": [PDF]},
        {"type": "file", "file": PDF},
        {"type": "file", "file": {"file": {"file_data": PDF}}},
        {"type": "file", "file": {"file_id": "file-1"}, "image_url": None},
        {"type": "text", "text": "a", "file": {"file_data": PDF}, "file_data": PDF},
        {"file": {"file_data": PDF}, "file_data": PDF},  # of no type
        {"type": ["file"], "file": {"file_data": PDF}},
        {"type": "document", "source": {"type": "base64", "data": PDF}},  # Anthropic's
    ],
    ids=repr,
)
def test_a_file_that_holds_no_data_is_no_medium(part: dict[str, Any]) -> None:
    assert found(part) == []


@pytest.mark.parametrize("kind", ["file", "input_file"])
def test_a_file_with_another_medium_in_its_part_is_that_medium(kind: str) -> None:
    """With a uuid vLLM reads the other, without one it refuses the part: nothing is lost unseen."""
    part = {"type": kind, "file": {"file_data": PDF}, "file_data": PDF, "image_url": URL}
    for other in (part, {**part, "uuid": "u"}):
        [one] = found(other)
        assert (one.document, one.source, one.url) == (False, (*HERE, "image_url"), URL)
    cached = load({**part, "image_url": None, "uuid": "u"})
    assert cached
    [one] = found({**part, "image_url": None, "uuid": "u"})
    assert (one.document, one.url, one.uuid, cached.url, cached.uuid) == (False, None, "u", None, "u")


def test_the_uuid_of_a_file_names_nothing() -> None:
    part = {"type": "file", "file": {"file_data": PDF}, "uuid": "u"}
    with pytest.raises(Refused):
        load(part)
    [one] = found(part)
    assert (one.document, one.uuid, one.plain) == (True, None, ())


WRITTEN: list[tuple[Picture, dict[str, Any]]] = [
    ("image_url", {"type": "image_url", "image_url": {"url": "S"}}),
    ("input_image", {"type": "input_image", "detail": "auto", "image_url": "S"}),
    ("image", {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": "S"}}),
]


@pytest.mark.parametrize(("kind", "part"), WRITTEN)
def test_a_picture_part_is_written_as_each_api_wants_it(kind: Picture, part: dict[str, Any]) -> None:
    assert json.loads(picture_part(kind, b'"S"', "image/webp")) == part


@pytest.mark.parametrize("value", [None, 7, [URL], {"url": URL}], ids=repr)
def test_a_medium_that_is_a_url_is_nothing_without_one(value: Any) -> None:
    assert list(find_url(value, ("images", 0), "image")) == []


def test_a_medium_may_be_a_url_and_nothing_else() -> None:
    assert list(find_url(URL, ("images", 0), "image")) == [MediaPart(("images", 0), "image", ("images", 0), URL)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("messages", 3, "content", 1), "messages[3].content[1]"),
        (("input", 0, "output", 2), "input[0].output[2]"),
        (("messages", 0, 2, "content", 0), "messages[0][2].content[0]"),
        (("images", 0), "images[0]"),
        (("prompt_embeds",), "prompt_embeds"),
        ((), ""),
    ],
)
def test_a_place_is_written_as_errors_name_it(path: Path, text: str) -> None:
    assert place(path) == text
