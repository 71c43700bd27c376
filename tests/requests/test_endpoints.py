"""The table of paths, and what is true of all its dialects."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.requests import bodies
from tests.requests.texts import (
    PAYLOAD,
    long,
    mapped,
    marks,
    meant,
    properties,
    replaced,
    scalars,
    to_bytes,
    written_value,
)
from vlm_edge.requests import anthropic, cohere, openai, pooling, responses, vllm
from vlm_edge.requests.body import Body
from vlm_edge.requests.endpoints import BATCH_LINE, CHAT_PATH, ENDPOINTS, find_any, find_line
from vlm_edge.requests.part import MediaPart, picture_part

URL = "data:image/png;base64,AAAA"
PICTURE = {"type": "image_url", "image_url": {"url": URL}}
MESSAGES = [{"role": "user", "content": [PICTURE]}]

# The POST routes of vLLM (entrypoints/*/api_router.py) whose JSON bodies may hold media.
ROUTES = """
/v1/chat/completions /v1/chat/completions/render /v1/chat/completions/batch /v1/completions /v1/completions/render
/v1/responses /v1/responses/render /v1/messages /v1/messages/count_tokens /v1/messages/render /v1/embeddings /v2/embed
/pooling /classify /score /v1/score /rerank /v1/rerank /v2/rerank /tokenize /cohere/v2/chat /v1/systemone
/inference/v1/generate /invocations
""".split()


def test_every_path_that_carries_media_has_its_dialect() -> None:
    assert {path for path in ENDPOINTS if path.startswith("/")} >= set(ROUTES)


def test_a_cohere_chat_may_be_rendered_too() -> None:
    assert ENDPOINTS["/cohere/v2/chat/render"].find is cohere.find_chat


@pytest.mark.parametrize(
    ("find", "paths"),
    [
        (openai.find_chat, [CHAT_PATH, "/v1/chat/completions/render", "/tokenize"]),
        (openai.find_batch, ["/v1/chat/completions/batch"]),
        (openai.find_completion, ["/v1/completions", "/v1/completions/render"]),
        (responses.find, ["/v1/responses", "/v1/responses/render"]),
        (anthropic.find, ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/render"]),
        (pooling.find_embeddings, ["/v1/embeddings", "/pooling", "/classify"]),
        (pooling.find_scores, ["/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"]),
        (cohere.find_embed, ["/v2/embed"]),
        (cohere.find_chat, ["/cohere/v2/chat"]),
        (vllm.find_decisions, ["/v1/systemone"]),
        (vllm.find_generate, ["/inference/v1/generate"]),
        (find_any, ["/invocations"]),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_each_path_speaks_its_dialect(find: Any, paths: list[str]) -> None:
    assert {ENDPOINTS[path].find for path in paths} == {find}


def test_errors_are_told_in_the_words_of_the_path() -> None:
    theirs = {
        path: dialect.error_body for path, dialect in ENDPOINTS.items() if dialect.error_body != openai.error_body
    }
    assert theirs == {
        "/v1/messages": anthropic.error_body,
        "/v1/messages/count_tokens": anthropic.error_body,
        "/v1/messages/render": anthropic.error_body,
        "/cohere/v2/chat": cohere.chat_error_body,
        "/cohere/v2/chat/render": cohere.chat_error_body,
    }
    assert [path for path, dialect in ENDPOINTS.items() if dialect.error_event] == [
        path for path in theirs if path.startswith("/v1/messages")
    ]


# POST /invocations


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ({"messages": MESSAGES}, ["messages[0].content[0]"]),
        ({"messages": [MESSAGES, MESSAGES]}, ["messages[0][0].content[0]", "messages[1][0].content[0]"]),
        ({"input": MESSAGES}, ["input[0].content[0]"]),
        ({"messages": MESSAGES, "input": MESSAGES}, ["messages[0].content[0]"]),
        ({"prompt_embeds": "AAAA"}, ["prompt_embeds"]),
        ({"query": {"content": [PICTURE]}, "documents": ["a"]}, ["query.content[0]"]),
        ({"text_1": "a", "text_2": [{"content": [PICTURE]}]}, ["text_2[0].content[0]"]),
        ({"prompt": URL, "input": URL, "images": [URL]}, []),
    ],
    ids=repr,
)
def test_an_invocation_may_be_of_any_kind(body: dict[str, Any], places: list[str]) -> None:
    assert [part.place for part in find_any(body)] == places


@properties(200)
@given(st.sampled_from(["/v1/chat/completions", "/v1/embeddings", "/v1/completions", "/score"]), st.data())
def test_what_any_kind_of_request_holds_is_found_in_an_invocation(path: str, data: st.DataObject) -> None:
    body = data.draw(bodies.shape(path))
    found = {part.source for part in find_any(body)}
    assert found >= {part.source for part in ENDPOINTS[path].find(body)}


# The lines of a batch file


@pytest.mark.parametrize(
    ("url", "body", "places"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES}, ["body.messages[0].content[0]"]),
        ("/v1/embeddings", {"input": MESSAGES}, ["body.input[0].content[0]"]),
        ("/score", {"text_1": {"content": [PICTURE]}}, ["body.text_1.content[0]"]),
        ("/any/where/rerank", {"documents": [{"content": [PICTURE]}]}, ["body.documents[0].content[0]"]),
        ("/v1/chat", {"messages": MESSAGES}, []),
        ("/v1/chat/completions", MESSAGES, []),
        (7, {"messages": MESSAGES}, []),
        (None, {"messages": MESSAGES}, []),
    ],
)
def test_the_url_of_a_line_tells_the_kind_of_its_body(url: Any, body: Any, places: list[str]) -> None:
    line = {"custom_id": "1", "method": "POST", "url": url, "body": body}
    assert [part.place for part in find_line(line)] == places


def test_everything_about_a_part_leads_into_the_body_of_its_line() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    line = {"url": "/v1/messages", "body": {"model": "m", "messages": [{"role": "user", "content": [picture]}]}}
    [one] = find_line(line)
    here = ("body", "messages", 0, "content", 0)
    assert (one.part, one.source, one.media_type) == (here, (*here, "source", "data"), (*here, "source", "media_type"))
    assert ENDPOINTS[BATCH_LINE].model(line) == "m"


def test_the_uuid_of_a_part_in_a_line_is_taken_away_there() -> None:
    line = {"url": "/v1/chat/completions", "body": {"messages": [{"content": [{**PICTURE, "uuid": "u"}]}]}}
    [one] = find_line(line)
    assert {edit.path[0] for edit in one.plain} == {"body"}


@pytest.mark.parametrize("body", [None, [], "m", 7])
def test_a_line_without_a_body_names_no_model(body: Any) -> None:
    assert ENDPOINTS[BATCH_LINE].model({"url": "/v1/embeddings", "body": body}) is None


@pytest.mark.parametrize("depth", [1, 1_010])
def test_a_line_in_a_line_holds_nothing_however_deep(depth: int) -> None:
    line: dict[str, Any] = {"url": "/v1/chat/completions", "body": {"messages": MESSAGES}}
    for _ in range(depth):
        line = {"url": BATCH_LINE, "body": line}
    assert list(find_line(line)) == []


# A glance at the lists

COUNTED = {path: dialect for path, dialect in ENDPOINTS.items() if dialect.nested}


def test_most_requests_are_told_at_a_glance() -> None:
    assert COUNTED.keys() >= {CHAT_PATH, "/v1/responses", "/v1/messages", "/cohere/v2/chat"}
    assert ENDPOINTS[CHAT_PATH].holds_none(b'{"model":"m","messages":[{"role":"user","content":"hello"}]}')
    assert ENDPOINTS["/v1/messages"].holds_none(b'{"messages":[{"role":"user","content":"hello\\n"}]}')


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps({"messages": MESSAGES}).encode(),
        b'{"messages":[{"role":"user","content":"a [list] of words"}]}',
        b'{"messages":[{"role":"user","content":"h\\u00e9llo"}]}',
        b'{"messages":[{"reasoning":{"type":"prompt_embeds","data":"AAAA"}}]}',
        b'{"messages":[{"reasoning":{"type":"prompt\\u005fembeds","data":"AAAA"}}]}',
        b'{"messages":"no list"}',
        b' {"messages":[]}',
        b'{"messages":[]} ',
        b'[{"messages":1}]',
        b"",
        bytearray(b'{"messages":[]}'),
        '{"messages":[]}'.encode("utf-16-le"),
    ],
    ids=repr,
)
def test_what_a_glance_cannot_tell_is_parsed(raw: Any) -> None:
    assert not ENDPOINTS[CHAT_PATH].holds_none(raw)


def flattened(value: Any, random: Any) -> Any:
    """The value with some of its lists gone: where only one thing was in them, that stands in its place."""
    if isinstance(value, dict):
        return {key: flattened(inner, random) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    inner = [flattened(one, random) for one in value]
    return inner[0] if len(inner) == 1 and random.random() < 0.3 else inner[:1]


@st.composite
def glanced(draw: st.DrawFn) -> tuple[str, bytes]:
    """Bodies of which some have fewer lists than they should."""
    path = draw(st.sampled_from(sorted(COUNTED)))
    value = flattened(draw(bodies.mangled(bodies.shape(path))), draw(st.randoms(use_true_random=False)))
    return path, to_bytes(draw(written_value(value)))


NO_STRING = b'{"input":[{"type":[]}]}'


@properties(800)
@given(glanced())
@example(("/v1/responses", NO_STRING + b" "))
def test_what_a_glance_lets_pass_holds_no_media(glanced: tuple[str, bytes]) -> None:
    path, raw = glanced
    found = list(COUNTED[path].find(meant(raw)))
    assert not (found and COUNTED[path].holds_none(raw))


@pytest.mark.parametrize("reasoning", [{}, {"text": "a"}], ids=repr)
def test_an_object_in_the_reasoning_is_the_same_at_a_glance_and_when_parsed(reasoning: dict[str, str]) -> None:
    body = {"messages": [{"role": "assistant", "content": "a", "reasoning": reasoning}]}
    found = list(ENDPOINTS[CHAT_PATH].find(body))
    assert ENDPOINTS[CHAT_PATH].holds_none(json.dumps(body, separators=(",", ":")).encode()) == (not found)


# Every dialect, any body

KINDS: dict[str, Callable[[bytes], Any]] = {
    "short": bytes,
    "long": long,
    "bytearray": lambda raw: bytearray(long(raw)),
    "mmap": lambda raw: mapped(long(raw)),
}


@st.composite
def written_bodies(draw: st.DrawFn, values: st.SearchStrategy[Any] | None = None) -> tuple[str, bytes, str]:
    """A path, a JSON text for it, and the kind in which it comes."""
    path, value = draw(bodies.bodies() if values is None else values)
    return path, draw(marks) + to_bytes(draw(written_value(value))), draw(st.sampled_from(sorted(KINDS)))


def uncut(part: MediaPart) -> MediaPart:
    """A part but for its URL, and what else of it may be cut, but for what is told by it."""
    role = "tool" if part.context.role == "tool" else ""
    context = msgspec.structs.replace(part.context, role=role)
    return msgspec.structs.replace(part, url=None, context=context)


@properties(300)
@given(written_bodies())
@example(("/v1/responses", NO_STRING, "short"))
def test_media_are_found_in_a_cut_body_as_in_the_whole(written: tuple[str, bytes, str]) -> None:
    path, whole, kind = written
    raw = KINDS[kind](whole)
    body = Body.read(raw)
    found, expected = list(ENDPOINTS[path].find(body.value)), list(ENDPOINTS[path].find(meant(whole)))
    assert [uncut(part) for part in found] == [uncut(part) for part in expected]
    places = body.places(part.source for part in found if part.url is not None)
    for part, full in zip(found, expected, strict=True):
        assert (part.url is None) == (full.url is None)
        if part.url is not None and full.url is not None:
            place = places[part.source]
            assert meant(bytes(raw[place.start : place.stop])) == full.url
            assert full.url.startswith(part.url)
            assert part.url == full.url or place.cut is not None


@properties(300)
@given(written_bodies(), st.lists(st.sampled_from(["NEW", URL, PAYLOAD]), min_size=1))
@example(("/v1/responses", NO_STRING, "short"), ["NEW"])
def test_new_media_change_their_places_and_nothing_else(written: tuple[str, bytes, str], urls: list[str]) -> None:
    path, whole, kind = written
    raw = KINDS[kind](whole)
    body = Body.read(raw)
    sources = {part.source for part in ENDPOINTS[path].find(body.value) if part.url is not None}
    places = body.places(sources)
    assert body.splice({place: bytes(raw[place.start : place.stop]) for place in places.values()}) == raw[:]
    new = dict(zip(sources, cycle(urls), strict=False))
    spliced = body.splice({places[source]: json.dumps(text).encode() for source, text in new.items()})
    assert repr(meant(spliced)) == repr(replaced(meant(whole), new))


@properties(200)
@given(written_bodies())
@example(("/v1/responses", NO_STRING, "short"))
def test_paths_of_parts_lead_to_what_they_name(written: tuple[str, bytes, str]) -> None:
    path, whole, _ = written
    value = meant(whole)
    for part in ENDPOINTS[path].find(value):
        if part.url is not None:
            assert at(value, part.source) == part.url
        if part.media_type is not None:
            at(value, part.media_type)
        for edit in part.plain:
            assert at(value, edit.path) is not None
        assert at(value, part.part) is not None
        assert part.source[: len(part.part)] == part.part


# Pictures in the place of a document, and after a picture

FILE = {"type": "file", "file": {"filename": "x.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}
INPUT_FILE = {"type": "input_file", "filename": "x.pdf", "file_data": "JVBERi0="}
DOCUMENT = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
TEXT = {"type": "text", "text": "a"}
FILES = [TEXT, FILE, INPUT_FILE, TEXT]
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": FILES}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [TEXT, DOCUMENT]}

BEARERS: list[tuple[str, dict[str, Any], list[str]]] = [
    (CHAT_PATH, {"messages": [{"content": FILES}]}, ["messages[0].content[1]", "messages[0].content[2]"]),
    ("/tokenize", {"messages": [{"content": FILES}]}, ["messages[0].content[1]", "messages[0].content[2]"]),
    ("/v1/chat/completions/batch", {"messages": [[{"content": [FILE]}]]}, ["messages[0][0].content[0]"]),
    (
        "/v1/responses",
        {"input": [{"role": "user", "content": [FILE]}, OUTPUT]},
        ["input[0].content[0]", "input[1].output[1]", "input[1].output[2]"],
    ),
    (
        "/v1/messages",
        {"messages": [{"role": "user", "content": [DOCUMENT, RESULT]}]},
        ["messages[0].content[0]", "messages[0].content[1].content[1]"],
    ),
    ("/v1/embeddings", {"input": [{"content": [FILE]}]}, ["input[0].content[0]"]),
    ("/pooling", {"messages": [{"content": [FILE]}]}, ["messages[0].content[0]"]),
    ("/score", {"data_1": {"content": [FILE]}, "data_2": ["a"]}, ["data_1.content[0]"]),
    ("/rerank", {"documents": [{"content": [FILE]}]}, ["documents[0].content[0]"]),
    ("/invocations", {"messages": [{"content": [FILE]}]}, ["messages[0].content[0]"]),
]


PICTURES = {"/v1/responses": "input_image", "/v1/messages": "image"}


@pytest.mark.parametrize(("path", "body", "places"), BEARERS, ids=[path for path, _, _ in BEARERS])
def test_documents_are_found_and_pictures_take_their_place(path: str, body: dict[str, Any], places: list[str]) -> None:
    line = {"url": path, "body": body}
    for find, value, begin in ((ENDPOINTS[path].find, body, ""), (find_line, line, "body.")):
        found = list(find(value))
        assert [(part.place, part.document) for part in found] == [(begin + place, True) for place in places]
        assert {part.context.picture for part in found} == {PICTURES.get(path, "image_url")}
        written = with_pictures(value, found)
        assert [part.place for part in find(meant(written))] == [begin + place for place in places]
        assert not any(part.document for part in find(meant(written)))


def with_pictures(value: Any, parts: Sequence[MediaPart]) -> bytes:
    """The value as JSON, with a picture in the place of each document."""
    body = Body.read(to_bytes(json.dumps(value)))
    places = body.places(part.part for part in parts)
    return body.splice({places[part.part]: pictures(part, 1)[0] for part in parts})


def pictures(part: MediaPart, count: int) -> list[bytes]:
    """Picture parts that may stand where this part does."""
    kind = part.context.picture
    string = b'"PAGE"' if kind == "image" else b'"data:image/webp;base64,PAGE"'
    return [picture_part(kind, string, "image/webp")] * count


def listed(value: Any, new: Mapping[Any, list[Any]], path: Any = ()) -> Any:
    """The value with any number of others in the place of these items of its lists."""
    if isinstance(value, dict):
        return {key: listed(inner, new, (*path, key)) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    items: list[Any] = []
    for index, inner in enumerate(value):
        here = (*path, index)
        items += new[here] if here in new else [listed(inner, new, here)]
    return items


@properties(400)
@given(written_bodies(bodies.bearing()), st.integers(1, 3))
def test_pictures_stand_for_documents_and_behind_pictures_and_all_else_stays(
    written: tuple[str, bytes, str], count: int
) -> None:
    path, whole, kind = written
    body, find = Body.read(KINDS[kind](whole)), ENDPOINTS[path].find
    found = [part for part in find(body.value) if part.context.picture and part.modality == "image"]
    places = body.places(part.part for part in found)
    new = {part.part: pictures(part, count) for part in found}
    old = {part.part: bytes(body.raw[places[part.part].start : places[part.part].stop]) for part in found}
    texts = {part.part: new[part.part] if part.document else [old[part.part], *new[part.part]] for part in found}
    spliced = body.splice({places[here]: b",".join(parts) for here, parts in texts.items()})
    expected = listed(meant(whole), {here: list(map(meant, parts)) for here, parts in texts.items()})
    assert repr(meant(spliced)) == repr(expected)
    assert body.splice({places[here]: text for here, text in old.items()}) == body.raw[:]
    again = [part for part in find(meant(spliced)) if part.context.picture and part.modality == "image"]
    assert not any(part.document for part in again)
    assert sum((part.url or "").endswith("PAGE") for part in again) == count * len(found)
    contexts = [part.context for part in found for _ in range(count + (not part.document))]
    assert sorted(map(repr, (part.context for part in again))) == sorted(map(repr, contexts))


def at(value: Any, path: Any) -> Any:
    for step in path:
        value = value[step]
    return value


@properties(300)
@given(
    st.sampled_from(sorted(ENDPOINTS)), st.dictionaries(st.sampled_from("messages input images body".split()), scalars)
)
def test_nothing_is_found_where_there_is_nothing(path: str, body: dict[str, Any]) -> None:
    assert [part for part in ENDPOINTS[path].find(body) if part.modality != "prompt_embeds"] == []


# A payload without a marker is cut to nothing: it must not look like nothing.

BARE: list[tuple[str, dict[str, Any]]] = [
    (CHAT_PATH, {"messages": [{"content": [{"type": "image_url", "image_url": {"url": PAYLOAD}}]}]}),
    (CHAT_PATH, {"messages": [{"content": [{"image_url": PAYLOAD}]}]}),
    (CHAT_PATH, {"messages": [{"content": [{"type": "input_audio", "input_audio": {"data": PAYLOAD}, "uuid": "u"}]}]}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PAYLOAD}]}]}),
    ("/v1/messages", {"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": PAYLOAD}}]}]}),
    ("/v2/embed", {"images": [PAYLOAD]}),
    ("/v2/embed", {"inputs": [{"content": [{"type": "image_url", "image_url": {"url": PAYLOAD}}]}]}),
    ("/v1/systemone", {"images": [PAYLOAD]}),
    ("/inference/v1/generate", {"content_parts": [{"type": "image_url", "url": PAYLOAD}]}),
    ("/inference/v1/generate", {"content_parts": [{"type": "image_url", "url": PAYLOAD, "uuid": "u"}]}),
]


@pytest.mark.parametrize(("path", "value"), BARE)
def test_a_long_string_of_base64_alone_is_as_much_of_a_url_as_a_short_one(path: str, value: dict[str, Any]) -> None:
    body = Body.read(long(json.dumps(value).encode()))
    assert len(body.cuts) == 1
    [found], [expected] = ENDPOINTS[path].find(body.value), ENDPOINTS[path].find(value)
    assert (found.url is None, found.source) == (expected.url is None, expected.source)


def test_two_long_uuids_are_two() -> None:
    parts = [{**PICTURE, "uuid": letter * 8_192} for letter in "AB"]
    body = Body.read(json.dumps({"messages": [{"content": parts}]}).encode())
    assert len({part.uuid for part in ENDPOINTS[CHAT_PATH].find(body.value)}) == 2
