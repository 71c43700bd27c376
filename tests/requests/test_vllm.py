"""Where vLLM's own requests hold media: structured decisions, and tokens in, tokens out."""

from typing import Any

import pytest

from vlm_edge.requests.vllm import find_decisions, find_generate

URL = "data:image/png;base64,AAAA"


def test_decisions_bring_lists_of_urls() -> None:
    body = {"state": URL, "questions": {}, "videos": ["v"], "images": [URL, "http://a.test"], "audio": ["a"]}
    assert [(part.place, part.modality, part.url) for part in find_decisions(body)] == [
        ("images[0]", "image", URL),
        ("images[1]", "image", "http://a.test"),
        ("audio[0]", "audio", "a"),
        ("videos[0]", "video", "v"),
    ]
    assert {part.context.prompt for part in find_decisions(body)} == {0}
    assert {part.context.picture for part in find_decisions(body)} == {""}


@pytest.mark.parametrize("value", [None, URL, [], [None, 7, [URL], {"url": URL}], {"0": URL}], ids=repr)
def test_what_is_no_list_of_urls_is_no_media(value: Any) -> None:
    assert list(find_decisions({"images": value, "audio": value, "videos": value})) == []


@pytest.mark.parametrize(("kind", "modality"), [("image_url", "image"), ("audio_url", "audio"), ("video_url", "video")])
def test_the_parts_of_a_generation_are_flat(kind: str, modality: str) -> None:
    parts = [{"type": "text", "url": URL}, {"type": kind, "url": URL, "uuid": "u"}]
    [one] = find_generate({"token_ids": [1], "content_parts": parts})
    assert (one.place, one.modality, one.url, one.uuid) == ("content_parts[1]", modality, URL, "u")
    assert one.source == ("content_parts", 1, "url")
    assert one.context.picture == ""  # the tokens have no place for another


@pytest.mark.parametrize("url", [None, 7, {"url": URL}])
def test_a_part_without_a_url_is_one_all_the_same(url: Any) -> None:
    [one] = find_generate({"content_parts": [{"type": "image_url", "url": url}]})
    assert (one.url, one.uuid) == (None, None)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": URL}, "uuid": "u"},
        {"type": "image_url"},
    ],
)
def test_a_part_of_a_chat_has_no_url_here(part: dict[str, Any]) -> None:
    [one] = find_generate({"content_parts": [part]})
    assert one.url is None


def test_what_a_processor_has_worked_on_is_embedded() -> None:
    features = {"mm_hashes": {"image": ["a", "b"], "video": ["c"], "vision_chunk": ["d"]}, "mm_placeholders": {}}
    found = list(find_generate({"token_ids": [1], "features": features}))
    assert [(part.modality, part.embeds, part.url) for part in found] == [
        ("image", True, None),
        ("image", True, None),
        ("video", True, None),
        ("prompt_embeds", True, None),
    ]
    # The names of what we do not know are the client's own words: they are not told.
    assert [one.place for one in found[2:]] == ["features.mm_hashes.video[0]", "features.mm_hashes"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content_parts": {"type": "image_url", "url": URL}},
        {"content_parts": [None, URL, 7, [], {}, {"url": URL}, {"type": "input_image", "url": URL}]},
        {"features": [URL]},
        {"features": {"mm_hashes": ["a"], "kwargs_data": {"image": ["AAAA"]}}},
        {"features": {"mm_hashes": {"image": "a", "video": None}}},
    ],
    ids=repr,
)
def test_a_body_of_another_shape_holds_no_media(body: dict[str, Any]) -> None:
    assert list(find_generate(body)) == []


@pytest.mark.parametrize("kind", [[], {}, ["image_url"]], ids=repr)
def test_a_part_of_a_type_that_is_no_string_is_no_media(kind: Any) -> None:
    assert list(find_generate({"content_parts": [{"type": kind, "url": URL}]})) == []
