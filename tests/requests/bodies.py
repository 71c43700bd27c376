"""Bodies of every dialect for the properties of this room: media in their places, and what looks like them besides."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.requests.texts import BASE64, DATA_URL, letters, numbers, payloads, replaced, walk
from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.part import FILE_TYPES, MEDIA_KEYS, TEXT_TYPES

Strategy = st.SearchStrategy[Any]

short_urls = st.sampled_from(
    [
        "data:image/png;base64,AAAA",
        "DATA:image/png;base64,AAAA",
        "http://a.test/b.png",
        "file:///etc/passwd",
        "/a/b.png",
        "",
    ]
)
data_urls = st.builds("data:image/{};base64,{}".format, st.sampled_from(["png", "jpeg", "\ud83d", ""]), payloads)
urls = short_urls | data_urls | st.just(DATA_URL)
bare = st.just("AAAA") | st.integers(0, 60).map(lambda length: BASE64[:length])  # too short to be cut without a marker
uuids = st.sampled_from([None, None, None, "u", "", 0, False, "\ud83d", ["u"], {"u": "u"}, "sku-1234"])
texts = letters | urls

# What stands where something else should.
plain = st.none() | st.booleans() | numbers | texts
odd: Strategy = plain | st.lists(letters, max_size=2) | st.dictionaries(letters, letters, max_size=2)


def fields(required: dict[str, Strategy], **optional: Strategy) -> Strategy:
    return st.fixed_dictionaries(required, optional=optional)


inner: Strategy = (
    urls
    | st.sampled_from([None, {}, {"url": None}, {"url": 7}, [], 7])
    | fields({"url": urls}, detail=st.just("low"))
    | fields({"data": bare}, format=st.just("wav"))
)
type_names = [*MEDIA_KEYS, "input_image", *TEXT_TYPES, *FILE_TYPES, "image", "weird"]
types: Strategy = st.sampled_from([*type_names, "image_url", "image_url", "text", None, 7])
media_keys = st.dictionaries(st.sampled_from([*MEDIA_KEYS, "image_url", "tool_reference"]), inner, max_size=2)


def part(kinds: Strategy = types) -> Strategy:
    extra = fields({}, type=kinds, uuid=uuids, text=texts, data=bare, url=urls, name=letters, image=urls)
    return st.builds(lambda media, rest: {**media, **rest}, media_keys, extra)


picture = fields({"type": st.just("image_url"), "image_url": fields({"url": urls})})
file_keys = {"file_data": urls | payloads, "file_url": urls, "filename": letters, "file_id": letters}
files = fields({"type": st.sampled_from(FILE_TYPES)}, file=fields({}, **file_keys) | odd, uuid=uuids, **file_keys)
parts = st.lists(picture | part() | files | letters | st.none(), max_size=4)
content = parts | parts | letters | odd
roles = st.sampled_from(["user", "user", "system", "assistant", "tool", "developer", None, 7])
embedded = fields({"type": st.just("prompt_embeds"), "data": bare})
message = fields(
    {"role": roles, "content": content}, reasoning=letters | embedded, reasoning_content=letters | embedded
)
messages = st.lists(message, max_size=3)

source = fields(
    {"type": st.just("base64"), "data": bare | payloads}, media_type=letters | st.just("image/png")
) | fields({"type": st.just("url"), "url": urls})
image_block = fields({"type": st.just("image"), "source": source | odd})
text_source = fields({"type": st.sampled_from(["text", "content", "file"]), "data": texts}, content=parts)
document = fields({"type": st.just("document"), "source": source | text_source | odd}, title=letters)
text_block = fields({"type": st.sampled_from(["text", "tool_use"]), "text": texts}, source=source)
blocks = st.lists(image_block | document | text_block | letters, max_size=3)
tool_result = fields({"type": st.just("tool_result"), "content": blocks | letters})
anthropic_content = st.lists(image_block | document | text_block | tool_result, max_size=4) | letters
anthropic = fields(
    {"messages": st.lists(fields({"role": roles, "content": anthropic_content}), max_size=3)}, system=blocks | letters
)

item_types = st.sampled_from(["message", "function_call_output", "custom_tool_call_output", "function_call", None])
input_image = fields({"type": st.just("input_image"), "image_url": urls}, detail=st.just("auto"), uuid=uuids)
items = st.lists(
    fields(
        {"role": roles, "content": st.lists(input_image | files | part() | letters, max_size=3) | letters},
        type=item_types,
        output=st.lists(input_image | files | part(), max_size=3) | letters,
    ),
    max_size=3,
)

side = letters | fields({"content": content})
sides = side | st.lists(side, max_size=3)
conversations = st.lists(messages | odd, max_size=3)

hashes = st.dictionaries(st.sampled_from(["image", "video", "audio", "vision_chunk"]), st.lists(letters, max_size=3))
flat_part = fields(
    {"type": st.sampled_from(["image_url", "audio_url", "video_url", "text", "weird"]), "url": urls | odd}, uuid=uuids
)

# What is no medium wherever it stands outside the place of this dialect's media.
decoys = st.dictionaries(
    st.sampled_from(["metadata", "image_url", "tools", "source", "content", "uuid", "documents_", "prompt"]),
    urls | picture | parts | messages | odd,
    max_size=2,
)

chat = fields({"messages": messages}, model=letters)
scores = fields({}, **dict.fromkeys("queries query data_1 text_1 documents items data_2 text_2".split(), sides))
embeddings = fields({}, messages=messages | conversations, input=messages | conversations | letters)
completions = fields({}, prompt_embeds=bare | st.lists(bare | st.none(), max_size=3) | odd, prompt=texts)
cohere_block = fields({"type": st.sampled_from(["image_url", "text"])}, image_url=inner, text=texts)
cohere_inputs = st.lists(fields({"content": st.lists(cohere_block, max_size=3) | odd}), max_size=3)
cohere_embed = fields({}, images=st.lists(urls | odd, max_size=3) | odd, inputs=cohere_inputs | odd)
cohere_chat = fields({"messages": st.lists(fields({"role": roles, "content": content}), max_size=3)})
decisions = fields({}, **{key: st.lists(urls | odd, max_size=3) | odd for key in ("images", "audio", "videos")})
generate = fields({}, content_parts=st.lists(flat_part | odd, max_size=3), features=fields({"mm_hashes": hashes | odd}))

SHAPES: dict[str, Strategy] = {
    "/v1/chat/completions/batch": fields({"messages": conversations}),
    "/v1/responses": fields({"input": items | letters}),
    "/v1/messages": anthropic,
    "/v1/completions": completions,
    "/v1/embeddings": embeddings,
    "/score": scores,
    "/v2/embed": cohere_embed,
    "/cohere/v2/chat": cohere_chat,
    "/v1/systemone": decisions,
    "/inference/v1/generate": generate,
    "/invocations": chat | completions | embeddings | scores,
}
ALIKE = {
    "/v1/responses/render": "/v1/responses",
    "/v1/messages/count_tokens": "/v1/messages",
    "/v1/messages/render": "/v1/messages",
    "/v1/completions/render": "/v1/completions",
    "/pooling": "/v1/embeddings",
    "/classify": "/v1/embeddings",
    "/v1/score": "/score",
    "/rerank": "/score",
    "/v1/rerank": "/score",
    "/v2/rerank": "/score",
}


def shape(path: str) -> Strategy:
    """Values of bodies that may be posted to this path."""
    if path == "run-batch":
        urls_of_lines = st.sampled_from([*ENDPOINTS, "/x/score", "/x/rerank", "/x"])
        return urls_of_lines.flatmap(_line)
    return st.builds(lambda decoy, body: {**decoy, **body}, decoys, SHAPES.get(ALIKE.get(path, path), chat))


def messages_of(parts: Strategy) -> Strategy:
    return st.lists(fields({"role": st.sampled_from(["user", "tool"]), "content": parts}), min_size=1, max_size=2)


some_parts = st.lists(files | picture | part() | letters, min_size=1, max_size=4)
some_blocks = st.lists(document | image_block | text_block | tool_result, min_size=1, max_size=4)
some_inputs = st.lists(files | input_image | part(), min_size=1, max_size=4)
some_outputs = st.lists(
    fields({"type": st.just("function_call_output"), "output": some_inputs}), min_size=1, max_size=2
)
cohere_blocks = st.lists(cohere_block, min_size=1, max_size=4)

# Bodies with parts in every place, and in most of them files.
BEARING: dict[str, Strategy] = {
    "/v1/chat/completions": fields({"messages": messages_of(some_parts)}),
    "/v1/chat/completions/batch": fields({"messages": st.lists(messages_of(some_parts), min_size=1, max_size=2)}),
    "/v1/responses": fields({"input": messages_of(some_inputs) | some_outputs}),
    "/v1/messages": fields({"messages": messages_of(some_blocks)}),
    "/v1/embeddings": fields({"input": messages_of(some_parts)}),
    "/score": fields({"data_1": fields({"content": some_parts}), "data_2": messages_of(some_parts)}),
    "/v2/embed": fields({"inputs": messages_of(cohere_blocks)}),
    "/cohere/v2/chat": fields({"messages": messages_of(cohere_blocks)}),
    "/invocations": fields({"messages": messages_of(some_parts)}),
}


def bearing() -> Strategy:
    """Pairs of a path and the value of a body that bears parts."""
    return st.sampled_from(sorted(BEARING)).flatmap(lambda path: st.tuples(st.just(path), BEARING[path]))


def _line(url: str) -> Strategy:
    known = url if url in ENDPOINTS and url != "run-batch" else "/score"
    return fields({"custom_id": letters, "url": st.just(url) | odd, "body": shape(known) | odd})


@st.composite
def mangled(draw: st.DrawFn, values: Strategy) -> Any:
    """A value in which something may be something else."""
    value = draw(values)
    paths = [path for path, _ in walk(value) if path]
    if not paths or draw(st.booleans()):
        return value
    return replaced(value, {draw(st.sampled_from(paths)): draw(odd)})


def bodies(change: Callable[[Strategy], Strategy] = mangled) -> Strategy:
    """Pairs of a path and the value of a body."""
    return st.sampled_from(sorted(ENDPOINTS)).flatmap(lambda path: st.tuples(st.just(path), change(shape(path))))
