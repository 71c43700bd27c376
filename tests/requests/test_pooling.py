"""Where requests that embed, classify and score hold media. What counts is vLLM's pooling protocols."""

from typing import Any

import pytest

from vlm_edge.requests.pooling import find_embeddings, find_scores

URL = "data:image/png;base64,AAAA"
PICTURE = {"type": "image_url", "image_url": {"url": URL}}
MESSAGE = {"role": "user", "content": [{"type": "text", "text": "a"}, PICTURE]}
SIDE = {"content": [PICTURE]}


def embedded(**body: Any) -> list[tuple[str, int | None]]:
    return [(part.place, part.context.prompt) for part in find_embeddings(body)]


def scored(**body: Any) -> list[tuple[str, int | None]]:
    return [(part.place, part.context.prompt) for part in find_scores(body)]


@pytest.mark.parametrize("key", ["messages", "input"])
def test_one_conversation_is_one_prompt(key: str) -> None:
    places = [(f"{key}[0].content[1]", 0), (f"{key}[2].content[1]", 0)]
    assert embedded(**{key: [MESSAGE, {"role": "assistant", "content": "a"}, MESSAGE]}) == places


@pytest.mark.parametrize("key", ["messages", "input"])
def test_of_several_conversations_each_is_a_prompt(key: str) -> None:
    places = [(f"{key}[0][0].content[1]", 0), (f"{key}[1][0].content[1]", 1), (f"{key}[1][1].content[1]", 1)]
    assert embedded(**{key: [[MESSAGE], [MESSAGE, MESSAGE]]}) == places


def test_the_input_is_read_where_there_are_no_messages() -> None:
    assert embedded(messages=[MESSAGE], input=[MESSAGE, MESSAGE]) == [("messages[0].content[1]", 0)]
    assert embedded(messages=[], input=[MESSAGE]) == []
    assert embedded(messages=None, input=[MESSAGE]) == []


@pytest.mark.parametrize("value", [None, URL, [URL, URL], [[1, 2], [3]], [1, 2], [], {}, {"role": "user"}], ids=repr)
def test_texts_and_tokens_are_no_media(value: Any) -> None:
    assert embedded(input=value) == []
    assert embedded(messages=value) == []


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("queries", "documents"),
        ("queries", "items"),
        ("query", "documents"),
        ("data_1", "data_2"),
        ("text_1", "text_2"),
    ],
)
def test_both_sides_of_a_score_bring_media_under_each_of_their_names(query: str, document: str) -> None:
    found = scored(**{document: [SIDE, "text", SIDE], query: SIDE})
    assert found == [
        (f"{query}.content[0]", None),  # goes with each of the others
        (f"{document}[0].content[0]", 0),
        (f"{document}[2].content[0]", 2),
    ]


def test_two_lists_are_paired_off_one_by_one() -> None:
    assert scored(queries=[SIDE, SIDE], documents=[SIDE, SIDE]) == [
        ("queries[0].content[0]", 0),
        ("queries[1].content[0]", 1),
        ("documents[0].content[0]", 0),
        ("documents[1].content[0]", 1),
    ]


@pytest.mark.parametrize(
    ("one", "place"), [(SIDE, "text_1.content[0]"), ([SIDE], "text_1[0].content[0]")], ids=["alone", "in a list"]
)
def test_a_single_one_goes_with_each_of_the_other_side(one: Any, place: str) -> None:
    assert scored(text_1=one, text_2=[SIDE, SIDE])[0] == (place, None)
    assert scored(text_1="a", text_2=one)[0] == (place.replace("text_1", "text_2"), None)


def test_videos_and_embeddings_are_found_in_scores_too() -> None:
    parts = [{"type": "video_url", "video_url": {"url": URL}}, {"type": "image_embeds", "image_embeds": "AAAA"}]
    found = list(find_scores({"query": {"content": parts}}))
    assert [(part.modality, part.embeds) for part in found] == [("video", False), ("image", True)]
    assert [part.context.note for part in found] == ["", ""]  # a picture of a score cannot be left out


@pytest.mark.parametrize(
    "side",
    [None, URL, [URL], {}, {"content": URL}, {"content": PICTURE}, [None, 7, [SIDE]], {"contents": [PICTURE]}],
    ids=repr,
)
def test_what_is_no_content_list_holds_no_media(side: Any) -> None:
    assert scored(query=side, documents=side, top_n=1) == []


def test_other_keys_hold_no_media() -> None:
    assert scored(messages=[MESSAGE], input=[MESSAGE], document=SIDE, content=[PICTURE]) == []
