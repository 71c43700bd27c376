"""What becomes of the media that are not simply prepared: by the policies alone, and in whole bodies."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.requests import bodies
from tests.requests.chat_utils import Loaded, Refused, load
from tests.requests.texts import properties, to_bytes, written_value
from tests.samples import CHAT_PATH, data_url, jpeg
from vlm_edge.edge import Edge
from vlm_edge.errors import (
    CachedMediaRefused,
    EdgeError,
    EmbeddedMediaRefused,
    RemoteMediaRefused,
    ToolMediaRefused,
    TooManyImages,
)
from vlm_edge.pictures import Limits
from vlm_edge.policies import LEFT_OUT, Admitted, Policies, admit, check_images, check_total
from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.part import MediaPart
from vlm_edge.settings import Settings

INLINE = data_url(jpeg(28, 28))  # so small that it goes as it came
REMOTE = "https://a.test/b.png"
REMOTES: dict[str, dict[str, Any]] = {
    "image": {"type": "image_url", "image_url": {"url": REMOTE}},
    "audio": {"type": "audio_url", "audio_url": {"url": REMOTE}},
    "video": {"type": "video_url", "video_url": {"url": REMOTE}},
}


def picture(url: str = INLINE, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **fields}


def user(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


def chat(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"model": "m", "messages": [user(*parts, role=role)]}


def parts_of(body: dict[str, Any], path: str = CHAT_PATH) -> list[MediaPart]:
    return list(ENDPOINTS[path].find(body))


def admitted(
    body: dict[str, Any], path: str = CHAT_PATH, images: int = 20, tenant: str = "", **set_to: Any
) -> Admitted:
    return admit(parts_of(body, path), Policies(**set_to), images, 200, tenant)


@pytest.fixture(scope="module")
def edges() -> Iterator[list[Edge]]:
    made: list[Edge] = []
    yield made
    for edge in made:
        edge.close()


def sent(
    edges: list[Edge],
    body: dict[str, Any],
    path: str = CHAT_PATH,
    *,
    key: str = "",
    profile: str = "standard",
    **settings: Any,
) -> Any:
    """The body that goes on, parsed."""
    edge = next((edge for edge in edges if edge.settings == Settings(**settings)), None)
    if edge is None:
        edge = Edge(Settings(**settings))
        edges.append(edge)
    headers = {"Authorization": key, "X-VLM-Edge-Profile": profile}
    return json.loads(bytes(edge.prepare(path, json.dumps(body).encode(), headers).body))


# Remote media


@pytest.mark.parametrize("modality", REMOTES)
@pytest.mark.parametrize("url", [REMOTE, "http://a.test", "HTTPS://a.test", " http://a.test", "http:"])
def test_remote_media_are_refused_unless_they_are_asked_for(modality: str, url: str) -> None:
    part = json.loads(json.dumps(REMOTES[modality]).replace(REMOTE, url))
    with pytest.raises(RemoteMediaRefused) as caught:
        admitted(chat("a", part))
    assert caught.value.param == "messages[0].content[1]"
    assert "a.test" not in str(caught.value)


@pytest.mark.parametrize("modality", REMOTES)
def test_remote_media_may_pass_unseen(modality: str) -> None:
    body = chat(REMOTES[modality], picture())
    found = admitted(body, remote="pass")
    assert (len(found.ours), found.remote, found.passed, found.edits) == (1, [], 1, [])


def test_remote_pictures_may_be_fetched() -> None:
    found = admitted(chat(REMOTES["image"], picture()), remote="fetch")
    assert [part.place for part in found.remote] == ["messages[0].content[0]"]
    assert [part.place for part in found.ours] == ["messages[0].content[0]", "messages[0].content[1]"]
    assert found.passed == 0


@pytest.mark.parametrize("modality", ["audio", "video"])
def test_remote_videos_and_sounds_are_not_fetched(modality: str) -> None:
    with pytest.raises(RemoteMediaRefused, match=f"remote {modality}"):
        admitted(chat(REMOTES[modality]), remote="fetch")


LOCAL = [
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "/etc/passwd",
    "etc/passwd",
    "C:\\x.png",
    "ftp://a.test/b",
    "a",
    "//a",
]


@pytest.mark.parametrize("remote", ["refuse", "pass", "fetch"])
@pytest.mark.parametrize("url", LOCAL)
@pytest.mark.parametrize("key", ["image_url", "audio_url", "video_url"])
def test_files_and_bare_paths_are_refused_whatever_is_set(
    remote: Literal["refuse", "pass", "fetch"], url: str, key: str
) -> None:
    for part in ({"type": key, key: {"url": url}}, {key: url}, {key: url, "uuid": "u"}):
        with pytest.raises(RemoteMediaRefused) as caught:
            admitted(chat(part), remote=remote, uuid="pass")
        assert "passwd" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": [user({"type": "input_image", "image_url": "file:///a"})]}),
        ("/v1/messages", {"messages": [user({"type": "image", "source": {"type": "url", "url": "file:///a"}})]}),
        ("/v2/embed", {"images": ["file:///a"]}),
        ("/cohere/v2/chat", {"messages": [user({"type": "image_url", "image_url": {"url": "file:///a"}})]}),
        ("/score", {"query": {"content": [picture("file:///a")]}, "documents": ["a"]}),
        ("/v1/systemone", {"videos": ["file:///a"]}),
        ("/inference/v1/generate", {"content_parts": [{"type": "image_url", "url": "file:///a"}]}),
        ("/v1/embeddings", {"input": [user(picture("file:///a"))]}),
        ("run-batch", {"url": CHAT_PATH, "body": chat(picture("file:///a"))}),
    ],
)
def test_a_file_is_refused_in_every_dialect(edges: list[Edge], path: str, body: dict[str, Any]) -> None:
    with pytest.raises(RemoteMediaRefused):
        sent(edges, body, path, remote="pass")


def test_sounds_in_data_urls_pass() -> None:
    part = json.loads(json.dumps(REMOTES["audio"]).replace(REMOTE, "data:audio/wav;base64,AAAA"))
    found = admitted(chat(part, {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}))
    assert (found.ours, found.passed) == ([], 2)


@pytest.mark.parametrize(
    ("url", "policies", "videos"),
    [
        ("data:video/mp4;base64,AAAA", {}, 1),
        ("data:video/mp4;base64,AAAA", {"videos": "pass"}, 0),
        ("data:video/jpeg;base64,AAAA,AAAA", {}, 1),
    ],
)
def test_videos_in_data_urls_are_prepared_unless_they_are_to_pass(
    url: str, policies: dict[str, Any], videos: int
) -> None:
    found = admitted(chat({"type": "video_url", "video_url": {"url": url}}), **policies)
    assert (found.ours, len(found.videos), found.passed) == ([], videos, 1 - videos)


def test_what_is_missing_is_left_for_vllm_to_tell() -> None:
    assert admitted(chat({"type": "image_url"}, {"type": "image_url", "image_url": {"url": None}})).passed == 2


# Embedded media

EMBEDDED: list[dict[str, Any]] = [
    {"type": "image_embeds", "image_embeds": "AAAA"},
    {"type": "audio_embeds", "audio_embeds": {"a": "AAAA"}},
    {"video_embeds": "AAAA", "uuid": "u"},
    {"type": "prompt_embeds", "data": "AAAA"},
]


@pytest.mark.parametrize("part", EMBEDDED, ids=repr)
def test_embedded_media_are_refused_or_passed(part: dict[str, Any]) -> None:
    with pytest.raises(EmbeddedMediaRefused) as caught:
        admitted(chat(part))
    assert caught.value.param == "messages[0].content[0]"
    assert admitted(chat(part), embeds="pass").passed == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt_embeds": ["AAAA"]}),
        ("/inference/v1/generate", {"features": {"mm_hashes": {"image": ["a"]}}}),
        (CHAT_PATH, {"messages": [{"content": "a", "reasoning": {"type": "prompt_embeds", "data": "AAAA"}}]}),
    ],
)
def test_what_is_embedded_outside_of_parts_is_refused_or_passed_too(
    edges: list[Edge], path: str, body: dict[str, Any]
) -> None:
    with pytest.raises(EmbeddedMediaRefused):
        sent(edges, body, path)
    assert sent(edges, body, path, embeds="pass") == body


# The answers of tools

TOOLS: list[tuple[str, dict[str, Any]]] = [
    (CHAT_PATH, chat(picture(), role="tool")),
    (
        "/v1/responses",
        {"input": [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": INLINE}]}]},
    ),
    (
        "/v1/messages",
        {
            "messages": [
                user(
                    {
                        "type": "tool_result",
                        "content": [
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/jpeg",
                                    "data": INLINE.partition(",")[2],
                                },
                            }
                        ],
                    }
                )
            ]
        },
    ),
]


@pytest.mark.parametrize(("path", "body"), TOOLS, ids=[path for path, _ in TOOLS])
def test_media_in_the_answers_of_tools_are_passed_or_refused(
    edges: list[Edge], path: str, body: dict[str, Any]
) -> None:
    assert sent(edges, body, path) == body
    with pytest.raises(ToolMediaRefused):
        sent(edges, body, path, tool_media="refuse")


@pytest.mark.parametrize("role", ["user", "assistant", "system", "function", "Tool", ""])
def test_media_of_other_roles_are_no_answers_of_tools(role: str) -> None:
    assert len(admitted(chat(picture(), role=role), tool_media="refuse").ours) == 1


# Names of media


def stripped(edges: list[Edge], part: dict[str, Any]) -> Any:
    return sent(edges, chat(part), remote="pass", embeds="pass")["messages"][0]["content"][0]


def test_a_uuid_is_taken_away(edges: list[Edge]) -> None:
    assert stripped(edges, picture(uuid="sku")) == picture(uuid=None)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"image_url": REMOTE, "uuid": "u"}, {"image_url": {"url": REMOTE}, "uuid": None, "type": "image_url"}),
        (
            {"type": "text", "text": "a", "image_url": REMOTE, "uuid": 0},
            {"type": "image_url", "text": "a", "image_url": {"url": REMOTE}, "uuid": None},
        ),
        (
            {"type": "video_url", "uuid": {"a": [1]}, "video_url": {"url": REMOTE}},
            {"type": "video_url", "uuid": None, "video_url": {"url": REMOTE}},
        ),
        ({"uuid": "u", "image_embeds": {"a": "b"}}, {"uuid": None, "type": "image_embeds", "image_embeds": {"a": "b"}}),
    ],
    ids=repr,
)
def test_without_its_uuid_a_part_is_written_as_one_of_its_type(
    edges: list[Edge], part: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert stripped(edges, part) == expected


STRIPPING = Edge(Settings(remote="pass", embeds="pass"))
REMOTELY = bodies.part().map(lambda part: replaced_urls(part))


def replaced_urls(value: Any) -> Any:
    """The value with remote URLs for all others, which pass as they are."""
    if isinstance(value, dict):
        return {key: replaced_urls(inner) for key, inner in value.items()}
    known = isinstance(value, str) and value.lstrip().lower().startswith(("data:", "file:", "/"))
    return REMOTE if known else value


def read(part: Any) -> Loaded | str | None:
    try:
        return load(part)
    except Refused:
        return "refused"


@properties(600)
@given(REMOTELY, bodies.uuids)
@example({"input_audio": {"data": "AAAA"}, "type": "text"}, "u")
def test_without_its_uuid_vllm_loads_the_same(part: dict[str, Any], uuid: Any) -> None:
    body = chat({**part, "uuid": uuid})
    before = read(body["messages"][0]["content"][0])
    try:
        raw = bytes(STRIPPING.prepare(CHAT_PATH, to_bytes(json.dumps(body))).body)
    except CachedMediaRefused:
        assert before == "refused" or (isinstance(before, Loaded) and before.url is None)
        return
    except EdgeError:
        return
    after = read(json.loads(raw)["messages"][0]["content"][0])
    if isinstance(before, Loaded):
        assert after == before._replace(uuid=None)
    elif before is None:
        assert after is None


@properties(200)
@given(REMOTELY.flatmap(lambda part: written_value(chat({"uuid": "u", **part, "type": "text", "image_url": REMOTE}))))
def test_a_uuid_is_taken_away_however_it_is_written(text: str) -> None:
    raw = to_bytes(text)
    before = json.loads(raw)["messages"][0]["content"][0]
    after = json.loads(bytes(STRIPPING.prepare(CHAT_PATH, raw).body))["messages"][0]["content"][0]
    if before["uuid"] is None:
        assert after == before
    else:
        assert after == {**before, "uuid": None, "type": "image_url", "image_url": {"url": REMOTE}}


CACHED: list[dict[str, Any]] = [
    picture("", uuid="u"),
    {"image_url": None, "uuid": "u"},
    {"type": "image_url", "image_url": {}, "uuid": "u"},
    {"video_url": {"url": None}, "uuid": "u"},
    {"type": "input_audio", "input_audio": {"format": "wav"}, "uuid": "u"},
]


@pytest.mark.parametrize("part", CACHED, ids=repr)
def test_what_the_server_is_to_have_cached_is_refused_where_names_are_taken_away(part: dict[str, Any]) -> None:
    with pytest.raises(CachedMediaRefused):
        admitted(chat(part))
    assert admitted(chat(part), uuid="namespace").passed == 1
    assert admitted(chat(part), uuid="pass").passed == 1


@pytest.mark.parametrize("length", [4, 20_000])
def test_a_sound_with_a_uuid_and_its_data_passes_however_long(edges: list[Edge], length: int) -> None:
    part = {"type": "input_audio", "input_audio": {"data": "A" * length, "format": "wav"}}
    assert sent(edges, chat({**part, "uuid": "u"})) == chat({**part, "uuid": None})


def name(edges: list[Edge], uuid: Any, **asked: Any) -> str:
    given: str = sent(edges, chat(picture(uuid=uuid)), uuid="namespace", **asked)["messages"][0]["content"][0]["uuid"]
    return given


def test_a_client_finds_its_names_again(edges: list[Edge]) -> None:
    asked = {"key": "Bearer a", "profile": "document"}
    assert name(edges, "sku", **asked) == name(edges, "sku", **asked)


def test_names_of_another_client_profile_or_picture_are_others(edges: list[Edge]) -> None:
    names = [
        name(edges, "sku", key="Bearer a"),
        name(edges, "sku", key="Bearer b"),
        name(edges, "sku", key=""),
        name(edges, "sku", key="Bearer a", profile="document"),
        name(edges, "sku2", key="Bearer a"),
        name(edges, "", key="Bearer a"),
        name(edges, "asku", key="Bearer "),
        name(edges, "standardsku", key="Bearer a"),
        name(edges, "\ud83d", key="Bearer a"),
    ]
    assert len(set(names)) == len(names)
    assert all(len(one) == 64 and one.isalnum() for one in names)  # no client makes it long, or writes into it


@pytest.mark.parametrize("length", [256, 9_000, 90_000])
def test_a_name_too_long_to_be_kept_apart_from_others_is_refused(edges: list[Edge], length: int) -> None:
    assert len({name(edges, letter * 255) for letter in "AB"}) == 2
    with pytest.raises(CachedMediaRefused, match="255"):
        sent(edges, chat(picture(uuid="A" * length)), uuid="namespace")
    assert sent(edges, chat(picture(uuid="A" * length))) == chat(picture(uuid=None))


def test_a_name_changes_nothing_else_of_its_part(edges: list[Edge]) -> None:
    part = {"type": "text", "text": "a", "image_url": INLINE, "uuid": "sku", "max_pixels": 7}
    [changed] = sent(edges, chat(part), uuid="namespace")["messages"][0]["content"]
    assert {**changed, "uuid": "sku"} == part


@pytest.mark.parametrize("uuid", ["sku", 7, "", {"a": 1}])
def test_names_may_pass(edges: list[Edge], uuid: Any) -> None:
    body = chat(picture(uuid=uuid))
    assert sent(edges, body, uuid="pass") == body


@pytest.mark.parametrize("detail", [{}, {"detail": "auto"}], ids=repr)
def test_a_uuid_is_taken_away_in_responses_too(edges: list[Edge], detail: dict[str, str]) -> None:
    image = {"type": "input_image", "image_url": INLINE, **detail}
    body = {"input": [user({**image, "uuid": "u"})]}
    [part] = sent(edges, body, "/v1/responses")["input"][0]["content"]
    assert part == {**image, "detail": "auto", "uuid": None}


@pytest.mark.parametrize("key", ["image_url", "video_url", "audio_url"])
def test_a_remote_medium_is_refused_in_a_text_that_has_a_uuid(edges: list[Edge], key: str) -> None:
    text = {"type": "input_text", "text": "a", "uuid": "u", key: REMOTE}
    with pytest.raises(RemoteMediaRefused):
        sent(edges, {"input": [user(text)]}, "/v1/responses")


@pytest.mark.parametrize("url", [INLINE, ""])
def test_a_uuid_that_cannot_be_taken_away_is_refused(edges: list[Edge], url: str) -> None:
    text = {"type": "input_text", "text": "a", "uuid": "u", "image_url": url}
    with pytest.raises(CachedMediaRefused):
        sent(edges, {"input": [user(text)]}, "/v1/responses")
    assert sent(edges, {"input": [user(text)]}, "/v1/responses", uuid="pass") == {"input": [user(text)]}


def test_the_flat_parts_of_a_generation_have_names_too(edges: list[Edge]) -> None:
    body = {"token_ids": [1], "content_parts": [{"type": "image_url", "url": INLINE, "uuid": "u"}]}
    assert sent(edges, body, "/inference/v1/generate")["content_parts"] == [
        {"type": "image_url", "url": INLINE, "uuid": None}
    ]
    named = sent(edges, body, "/inference/v1/generate", uuid="namespace")["content_parts"][0]["uuid"]
    assert named not in ("u", None)


# Histories


def numbered(*numbers: int) -> list[dict[str, Any]]:
    """Pictures of the one-by-one size told from one another by a field beside them."""
    return [picture(number=number) for number in numbers]


def note(kind: str = "text") -> dict[str, str]:
    return {"type": kind, "text": LEFT_OUT}


LAST_TWO: dict[str, Any] = {"history": "keep_last", "limits": Limits(max_images=2)}


def test_the_last_pictures_are_kept_and_a_note_left_for_each_older_one(edges: list[Edge]) -> None:
    body = {
        "messages": [
            user("a", *numbered(1, 2)),
            {"role": "assistant", "content": "b"},
            user(numbered(3)[0], {"type": "text", "text": "c"}),
            user(*numbered(4), role="tool"),
        ]
    }
    assert sent(edges, body, **LAST_TWO) == {
        "messages": [
            user("a", note(), note()),
            {"role": "assistant", "content": "b"},
            user(numbered(3)[0], {"type": "text", "text": "c"}),
            user(*numbered(4), role="tool"),
        ]
    }


KEEPING = Edge(Settings(remote="pass", history="keep_last", limits=Limits(max_images=3)))


@properties(150)
@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=5))
def test_nothing_is_moved_and_the_newest_pictures_stay(shape: list[list[bool]]) -> None:
    numbers = count()
    messages = [
        user(*[picture(REMOTE, number=next(numbers)) if one else {"type": "text", "text": "a"} for one in parts])
        for parts in shape
    ]
    kept = json.loads(bytes(KEEPING.prepare(CHAT_PATH, json.dumps({"messages": messages}).encode()).body))["messages"]
    newest = range(next(numbers))[-3:]
    for before, after in zip(messages, kept, strict=True):
        for part, there in zip(before["content"], after["content"], strict=True):
            stays = "text" in part or part["number"] in newest
            assert there == (part if stays else note())


@pytest.mark.parametrize("number", range(5))
def test_as_many_are_kept_as_are_allowed(edges: list[Edge], number: int) -> None:
    body = chat(*numbered(*range(number)))
    kept = numbered(*range(number))[-2:]
    assert sent(edges, body, **LAST_TWO) == chat(*[note()] * max(0, number - 2), *kept)


def test_a_history_too_long_is_refused_where_none_is_dropped(edges: list[Edge]) -> None:
    with pytest.raises(TooManyImages) as caught:
        sent(edges, chat(*numbered(1, 2, 3)), limits=Limits(max_images=2))
    assert caught.value.param == "messages[0].content[2]"
    assert (caught.value.found, caught.value.allowed) == (3, 2)


def test_what_is_dropped_is_not_judged(edges: list[Edge]) -> None:
    body = chat(picture("file:///a", uuid="u"), {"type": "image_embeds", "image_embeds": "AAAA"}, *numbered(1, 2))
    assert sent(edges, body, **LAST_TWO) == chat(note(), note(), *numbered(1, 2))


def test_videos_and_sounds_do_not_count_as_pictures(edges: list[Edge]) -> None:
    video = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    body = chat(video, video, *numbered(1, 2), video)
    assert sent(edges, body, **LAST_TWO, videos="pass") == body


def test_no_picture_at_all_may_be_allowed(edges: list[Edge]) -> None:
    body = chat("a", *numbered(1, 2))
    assert sent(edges, body, history="keep_last", limits=Limits(max_images=0)) == chat("a", note(), note())


def test_each_conversation_of_a_batch_keeps_its_own(edges: list[Edge]) -> None:
    body = {"messages": [[user(*numbered(1, 2, 3))], [user(*numbered(4))], [user(*numbered(5, 6)), user(*numbered(7))]]}
    assert sent(edges, body, "/v1/chat/completions/batch", **LAST_TWO) == {
        "messages": [
            [user(note(), *numbered(2, 3))],
            [user(*numbered(4))],
            [user(note(), *numbered(6)), user(*numbered(7))],
        ]
    }


def test_a_note_is_of_the_type_that_the_dialect_has_for_text(edges: list[Edge]) -> None:
    image = {"type": "input_image", "image_url": INLINE}
    body = {"input": [user(image, image), {"type": "function_call_output", "output": [image]}, user(image)]}
    assert sent(edges, body, "/v1/responses", **LAST_TWO) == {
        "input": [
            user(note("input_text"), note("input_text")),
            {"type": "function_call_output", "output": [image]},
            user(image),
        ]
    }


def test_a_note_hides_no_picture_that_is_kept(edges: list[Edge]) -> None:
    """Of an answer that begins with text, vLLM reads that text and nothing else."""
    image = {"type": "input_image", "image_url": INLINE}
    body = {"input": [user(image, image, role="assistant")]}
    with pytest.raises(TooManyImages):
        sent(edges, body, "/v1/responses", history="keep_last", limits=Limits(max_images=1))


def test_a_note_stands_in_the_answer_of_a_tool_of_anthropic(edges: list[Edge]) -> None:
    source = {"type": "base64", "media_type": "image/jpeg", "data": INLINE.partition(",")[2]}
    image = {"type": "image", "source": source}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image]}
    body = {"messages": [user(result), user(image, image)]}
    assert sent(edges, body, "/v1/messages", **LAST_TWO) == {
        "messages": [user({**result, "content": [note()]}), user(image, image)]
    }


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/score", {"query": {"content": numbered(1, 2, 3)}, "documents": ["a"]}),
        ("/v2/embed", {"inputs": [{"content": [picture(), picture(), picture()]}]}),
        ("/v1/systemone", {"images": [INLINE, INLINE, INLINE]}),
        ("/inference/v1/generate", {"content_parts": [{"type": "image_url", "url": INLINE}] * 3}),
    ],
)
def test_where_no_note_can_stand_too_many_are_refused(edges: list[Edge], path: str, body: dict[str, Any]) -> None:
    with pytest.raises(TooManyImages):
        sent(edges, body, path, **LAST_TWO)


# Counts

SIDE_OF_ONE, SIDE_OF_TWO = {"content": numbered(1)}, {"content": numbered(1, 2)}


@pytest.mark.parametrize(
    ("path", "body", "most"),
    [
        (CHAT_PATH, {"messages": [user(*numbered(1, 2)), user(*numbered(3), role="tool")]}, 3),
        ("/v1/chat/completions/batch", {"messages": [[user(*numbered(1, 2))], [user(*numbered(3))]]}, 2),
        ("/v1/embeddings", {"input": [[user(*numbered(1))], [user(*numbered(2))]]}, 1),
        ("/v2/embed", {"images": [INLINE, INLINE, INLINE]}, 1),
        ("/v2/embed", {"inputs": [{"content": [picture(), picture()]}, {"content": [picture()]}]}, 2),
        ("/score", {"queries": SIDE_OF_ONE, "documents": [SIDE_OF_TWO, SIDE_OF_ONE]}, 3),
        ("/score", {"queries": [SIDE_OF_ONE], "documents": [SIDE_OF_TWO, "a"]}, 3),
        ("/score", {"queries": [SIDE_OF_ONE, SIDE_OF_ONE], "documents": [SIDE_OF_ONE, SIDE_OF_TWO]}, 3),
        ("/score", {"queries": [SIDE_OF_TWO, "a"], "documents": ["a", SIDE_OF_TWO]}, 2),
        ("/rerank", {"query": SIDE_OF_TWO, "documents": ["a", "b"]}, 2),
        ("/rerank", {"query": SIDE_OF_TWO, "documents": SIDE_OF_TWO}, 4),
        ("/v1/systemone", {"images": [INLINE, INLINE], "videos": ["data:video/mp4;base64,AAAA"]}, 2),
        (CHAT_PATH, chat({"image_url": None, "uuid": "u"}, picture()), 2),
    ],
    ids=lambda value: value if isinstance(value, str | int) else "",
)
def test_pictures_are_counted_by_prompt(path: str, body: dict[str, Any], most: int) -> None:
    check_images(parts_of(body, path), most)
    with pytest.raises(TooManyImages) as caught:
        check_images(parts_of(body, path), most - 1)
    assert caught.value.found >= most
    assert caught.value.param in [part.place for part in parts_of(body, path)]


def test_all_pictures_of_a_request_together_have_a_limit_too(edges: list[Edge]) -> None:
    body = {"images": [INLINE] * 4}
    assert sent(edges, body, "/v2/embed", limits=Limits(max_images=1, max_total_images=4)) == body
    with pytest.raises(TooManyImages, match="in one request; found 4") as caught:
        sent(edges, body, "/v2/embed", limits=Limits(max_images=1, max_total_images=3))
    assert caught.value.param == "images[3]"
    check_total(parts_of(body, "/v2/embed"), 4)


def test_a_request_without_media_is_within_every_limit() -> None:
    check_images([], 0)
    check_total([], 0)
    assert admitted({"messages": []}, images=0) == Admitted([], [], [], 0, [], 0, [])


# Values


@pytest.mark.parametrize("key", Policies.__struct_fields__)
def test_a_policy_that_there_is_not_is_an_error_that_names_it(key: str) -> None:
    with pytest.raises(EdgeError, match=key):
        Settings.from_env({f"VLM_EDGE_{key.upper()}": "allow"})


def test_the_policies_that_nobody_set_are_the_strict_ones() -> None:
    expected = ("refuse", "strip", "refuse", "refuse", "prepare", "pass", "refuse")
    policies = Policies()
    assert tuple(getattr(policies, key) for key in policies.__struct_fields__) == expected
