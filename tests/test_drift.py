"""Drift: the usage of answers as vLLM 0.32 writes them, in pieces of any size; what is compared; what is said of it."""

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vlm_edge import Size
from vlm_edge.drift import (
    AGREED_AGAIN,
    LINE_BYTES,
    NAMED_MODELS,
    OTHER_MODELS,
    READERS,
    TAIL_BYTES,
    Drift,
    Drifts,
    DriftTotal,
    Expected,
    JsonReader,
    Usage,
    UsageReader,
    drift,
    explained,
    reader_of,
    warning,
)
from vlm_edge.tokens import lookup

JSON, EVENTS = "application/json", "text/event-stream"

CHAT = (
    b'{"id":"chatcmpl-85","object":"chat.completion","created":1796043052,"model":"tiny-vlm","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"`XSQ\\\\mCF","refusal":null},"logprobs":null,"finish_reason":"length"}],'
    b'"system_fingerprint":"vllm-0.32.0","usage":{"prompt_tokens":452,"total_tokens":460,"completion_tokens":8,'
    b'"prompt_tokens_details":%s,"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,'
    b'"metrics":null}'
)
DETAILS = b'{"cached_tokens":448,"multimodal_tokens":{"image":391,"video":20,"audio":7}}'
RESPONSE = (
    b'{"id":"resp_b0","output":[{"content":[{"text":"{eh","type":"output_text"}],"type":"message"}],"usage":'
    b'{"input_tokens":452,"input_tokens_details":{"cached_tokens":0,"input_tokens_per_turn":[%s]},"output_tokens":8,'
    b'"total_tokens":67},"user":null,"input_messages":null}'
)
MESSAGE = (
    b'{"id":"chatcmpl-91","type":"message","role":"assistant","content":[{"type":"text","text":"`XSQ"}],'
    b'"model":"tiny-vlm","stop_reason":"max_tokens","usage":{"input_tokens":%s,"output_tokens":8}}'
)

CHAT_STREAM = (
    b'data: {"id":"chatcmpl-8c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"X"}}]}\n\n'
    b'data: {"id":"chatcmpl-8c","choices":[{"index":0,"delta":{"content":"S"},"finish_reason":"length"}],"usage":null}'
    b'\n\ndata: {"id":"chatcmpl-8c","choices":[],"usage":{"prompt_tokens":452,"total_tokens":456,"completion_tokens":4,'
    b'"prompt_tokens_details":{"multimodal_tokens":{"image":391}}}}\n\ndata: [DONE]\n\n'
)
RESPONSE_STREAM = (
    b'event: response.created\ndata: {"response":{"id":"resp_ab","output":[],"usage":null},"sequence_number":0}\n\n'
    b'event: response.output_text.delta\ndata: {"delta":"`","item_id":"msg_a3","type":"response.output_text.delta"}\n\n'
    b'event: response.completed\ndata: {"response":{"id":"resp_ab","output":[{"content":[{"text":"`"}]}],"usage":'
    b'{"input_tokens":452,"input_tokens_details":{"cached_tokens":0},"output_tokens":3}},"type":"response.completed"}'
    b"\n\n"
)
MESSAGE_STREAM = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"chatcmpl-91","content":[],"usage":'
    b'{"input_tokens":452,"output_tokens":0}}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta",'
    b'"delta":{"type":"text_delta","text":"X"}}\n\nevent: message_delta\ndata: {"type":"message_delta","delta":{},'
    b'"usage":{%s"output_tokens":8}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
)

PICTURE = Usage(452, {"image": 391})

ANSWERS = {
    "a chat": (JSON, CHAT % b"null", Usage(452)),
    "a chat with details": (JSON, CHAT % DETAILS, Usage(452, {"image": 391, "video": 20, "audio": 7})),
    "a chat as a stream": (EVENTS, CHAT_STREAM, PICTURE),
    "a chat as a stream with the ends of lines of another server": (
        EVENTS,
        CHAT_STREAM.replace(b"\n", b"\r\n").replace(b"data: ", b"data:"),
        PICTURE,
    ),
    "a stream that ends without an end of line": (EVENTS, CHAT_STREAM.removesuffix(b"\n\ndata: [DONE]\n\n"), PICTURE),
    "a stream that tells usage with every piece": (
        EVENTS,
        b'data: {"choices":[],"usage":{"prompt_tokens":452,"total_tokens":452}}\n\n' * 3 + b"data: [DONE]\n\n",
        Usage(452),
    ),
    "embeddings": (
        JSON,
        b'{"object":"list","data":[{"embedding":[0.01,0.14]}],"usage":{"prompt_tokens":441,"total_tokens":441}}',
        Usage(441),
    ),
    "a response": (JSON, RESPONSE % b"", Usage(452)),
    "a response of several turns": (JSON, RESPONSE % b"300,152", Usage(300)),
    "a response as a stream": (EVENTS, RESPONSE_STREAM, Usage(452)),
    "a message": (JSON, MESSAGE % b"452", Usage(452)),
    "a message that was in the cache": (JSON, MESSAGE % b'4,"cache_read_input_tokens":448', Usage(452)),
    "a message as a stream": (EVENTS, MESSAGE_STREAM % b'"input_tokens":452,', Usage(452)),
    "a message as Anthropic streams it": (EVENTS, MESSAGE_STREAM % b"", Usage(452)),
    "a message whose cache is told at the end": (
        EVENTS,
        MESSAGE_STREAM % b'"input_tokens":4,"cache_read_input_tokens":448,',
        Usage(452),
    ),
    "a count": (JSON, b'{"input_tokens":452,"context_management":{"original_input_tokens":452}}', Usage(452)),
    "an error": (JSON, b'{"error":{"message":"no \\"usage\\"","type":"BadRequestError"},"message":"no"}', None),
    "an error in a stream": (EVENTS, b'data: {"error":{"message":"no","usage":{"prompt_tokens":1}}}\n\n', None),
    "half an answer": (JSON, (CHAT % b"null")[:-20], None),
    "half a stream": (EVENTS, CHAT_STREAM[:-60], None),
    "nothing": (JSON, b"", None),
    "no events": (EVENTS, b"", None),
    "a list": (JSON, b'[{"usage":{"prompt_tokens":1}}]', None),
    "usage of another kind": (JSON, b'{"usage":"low"}', None),
    "usage of no tokens": (JSON, b'{"usage":{"prompt_tokens":0}}', None),
    "a depth without end": (JSON, b'{"usage":' + b"[" * 9_000, None),
}


def read(content_type: str, *pieces: bytes) -> Usage | None:
    reader = READERS[content_type]()
    for piece in pieces:
        reader.feed(piece)
    return reader.usage()


def pieces_of(whole: bytes, cuts: list[int]) -> Iterator[bytes]:
    ends = sorted(cut % (len(whole) + 1) for cut in cuts)
    return (whole[start:end] for start, end in zip([0, *ends], [*ends, len(whole)], strict=True))


def long_chat(padding: bytes, after: bytes = b"") -> bytes:
    return (CHAT % b"null").replace(b"`XSQ", padding).replace(b'"metrics":null', b'"metrics":"%s"' % after)


# Reading


@pytest.mark.parametrize("name", ANSWERS)
def test_the_usage_of_an_answer_is_read(name: str) -> None:
    content_type, answer, usage = ANSWERS[name]
    assert read(content_type, answer) == usage


@pytest.mark.parametrize("name", ANSWERS)
def test_the_usage_of_an_answer_is_read_byte_for_byte(name: str) -> None:
    content_type, answer, usage = ANSWERS[name]
    assert read(content_type, *(answer[at : at + 1] for at in range(len(answer)))) == usage


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(0, 10_000), max_size=8))
def test_the_pieces_that_an_answer_comes_in_do_not_matter(name: str, cuts: list[int]) -> None:
    content_type, answer, usage = ANSWERS[name]
    assert read(content_type, *pieces_of(answer, cuts)) == usage


texts = st.text(st.sampled_from('"usage":{}[],\\ prompt_tokens1\n'), max_size=40) | st.sampled_from(
    ['"usage":{"prompt_tokens":1}', 'say "usage', '"usage', "usage", '\\"usage\\": {"prompt_tokens": 1}}']
)
fakes = st.fixed_dictionaries({"usage": st.fixed_dictionaries({"prompt_tokens": st.integers(1, 9)})})
values = st.recursive(
    texts | st.integers() | st.none() | fakes,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
# What stands in an answer beside its usage, under names that are none of ours.
fields = st.dictionaries(texts.map("x{}".format), values, max_size=4)


@given(fields, fields, st.integers(1, 10**6), st.booleans(), st.lists(st.integers(0, 10**6), max_size=4))
@example({'x"usage': {"prompt_tokens": 1}}, {}, 452, True, [])
@example({"x": {"usage": {"prompt_tokens": 1}}}, {"xtool": {"usage": {"prompt_tokens": 1}}}, 452, True, [])
def test_no_text_or_value_of_an_answer_is_taken_for_its_usage(
    before: dict[str, Any], after: dict[str, Any], tokens: int, longer: bool, cuts: list[int]
) -> None:
    padding = {"xpadding": "x" * TAIL_BYTES} if longer else {}
    whole = json.dumps({**padding, **before, "usage": {"prompt_tokens": tokens}, **after}).encode()
    without = json.dumps({**padding, **before, **after}).encode()
    assert read(JSON, *pieces_of(whole, cuts)) == Usage(tokens)
    assert read(JSON, *pieces_of(without, cuts)) is None


@given(st.lists(fields, max_size=4), st.integers(1, 10**6), st.lists(st.integers(0, 10**6), max_size=8))
def test_no_text_of_a_stream_is_taken_for_its_usage(events: list[dict[str, Any]], tokens: int, cuts: list[int]) -> None:
    lines = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    usage = b'data: {"usage": {"prompt_tokens": %d}}\n\n' % tokens
    assert read(EVENTS, *pieces_of(b"".join(lines), cuts)) is None
    assert read(EVENTS, *pieces_of(b"".join([*lines, usage, *lines]), cuts)) == Usage(tokens)


@pytest.mark.parametrize("piece_bytes", [1_000, TAIL_BYTES, 1_000_000])
def test_the_usage_of_a_long_answer_is_read_at_its_end(piece_bytes: int) -> None:
    answer = long_chat(b"x" * 5_000_000, after=b"y" * 10_000)
    assert read(JSON, *(answer[at : at + piece_bytes] for at in range(0, len(answer), piece_bytes))) == Usage(452)


def test_a_usage_far_from_the_end_of_a_long_answer_is_not_read() -> None:
    assert read(JSON, long_chat(b"x", after=b"y" * TAIL_BYTES)) is None


def test_the_last_event_of_a_long_response_is_read() -> None:
    stream = RESPONSE_STREAM.replace(b'"text":"`"', b'"text":"%s"' % (b"x" * (LINE_BYTES - 1_000)))
    assert read(EVENTS, *(stream[at : at + 50_000] for at in range(0, len(stream), 50_000))) == Usage(452)


@pytest.mark.parametrize("piece_bytes", [50_000, 10 * LINE_BYTES])
def test_a_line_that_is_too_long_is_passed_over(piece_bytes: int) -> None:
    line = b'data: {"usage":{"prompt_tokens":1},"text":"%s"}\n\n' % (b"x" * LINE_BYTES)
    for stream, usage in ((line, None), (line + CHAT_STREAM, PICTURE), (line.rstrip(), None)):
        assert read(EVENTS, *(stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes))) == usage


@pytest.mark.parametrize(("content_type", "bound"), [(JSON, 3 * TAIL_BYTES), (EVENTS, 2 * LINE_BYTES)])
@pytest.mark.parametrize("piece", [b"x" * 7_000, b"x" * 3_000_000, b'data: {"x": 1}\n\ndata: '])
def test_what_is_kept_of_an_endless_answer_is_bounded(content_type: str, bound: int, piece: bytes) -> None:
    reader = READERS[content_type]()
    for _ in range(500):
        reader.feed(piece)
        assert kept_bytes(reader) < bound


def kept_bytes(reader: UsageReader) -> int:
    return sum(map(sys.getsizeof, vars(reader).values()))


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (200, [(b"content-type", b"application/json")], "JsonReader"),
        (200, [(b"Content-Type", b"Application/JSON ; charset=utf-8")], "JsonReader"),
        (200, [(b"content-type", b"text/event-stream; charset=utf-8")], "EventReader"),
        (200, [(b"content-type", b"application/json"), (b"content-encoding", b"identity")], "JsonReader"),
        (200, [(b"content-type", b"application/json"), (b"Content-Encoding", b"gzip")], "NoneType"),
        (200, [(b"content-type", b"text/html")], "NoneType"),
        (200, [], "NoneType"),
        (400, [(b"content-type", b"application/json")], "NoneType"),
    ],
)
def test_a_reader_fits_the_answer(status: int, headers: list[tuple[bytes, bytes]], kind: str) -> None:
    assert type(reader_of(status, headers)).__name__ == kind


def test_a_reader_can_be_asked_before_the_end() -> None:
    reader = JsonReader()
    reader.feed((CHAT % b"null")[:100])
    assert reader.usage() is None
    reader.feed((CHAT % b"null")[100:])
    assert reader.usage() == reader.usage() == Usage(452)


# Comparing

PLAIN, TOLD = Usage(452), PICTURE

COMPARED = [
    # exact text
    (Expected(vision_tokens=391, text_tokens=61, text_at_most=61), PLAIN, None),
    (Expected(vision_tokens=335, text_tokens=61, text_at_most=61), PLAIN, Drift("prompt", 452, 396)),
    (Expected(vision_tokens=400, text_tokens=61, text_at_most=61), PLAIN, Drift("prompt", 452, 461)),
    (Expected(vision_tokens=391, text_tokens=61, text_at_most=61), TOLD, None),
    (Expected(vision_tokens=335, text_tokens=61, text_at_most=61), TOLD, Drift("vision", 391, 335)),
    (Expected(vision_tokens=391, text_tokens=59, text_at_most=59), TOLD, Drift("text", 452, 450)),
    (Expected(vision_tokens=0, text_tokens=450, text_at_most=450), PLAIN, Drift("text", 452, 450)),
    # a bound on the text
    (Expected(vision_tokens=391, text_at_most=100), PLAIN, None),
    (Expected(vision_tokens=391, text_at_most=100), TOLD, None),
    (Expected(vision_tokens=390, text_at_most=100), TOLD, Drift("vision", 391, 390)),
    (Expected(vision_tokens=335, text_at_most=100), PLAIN, Drift("prompt", 452, 435, exact=False)),
    (Expected(vision_tokens=500, text_at_most=100), PLAIN, Drift("prompt", 452, 500, exact=False)),
    (Expected(vision_tokens=440, text_tokens=20, text_at_most=100), PLAIN, Drift("prompt", 452, 460, exact=False)),
    # nothing known of the text
    (Expected(vision_tokens=10), PLAIN, None),
    (Expected(vision_tokens=452), PLAIN, None),
    (Expected(vision_tokens=453), PLAIN, Drift("prompt", 452, 453, exact=False)),
    (Expected(vision_tokens=10), TOLD, Drift("vision", 391, 10)),
    # sound is no picture, and a video is
    (Expected(vision_tokens=411), Usage(452, {"image": 391, "video": 20, "audio": 7}), None),
    (Expected(vision_tokens=0), Usage(452, {"audio": 391}), None),
    (Expected(vision_tokens=391), Usage(452, {"vision_chunk": 391}), None),
]


@pytest.mark.parametrize(("expected", "usage", "found"), COMPARED)
def test_a_usage_differs_only_where_that_is_certain(expected: Expected, usage: Usage, found: Drift | None) -> None:
    assert drift(expected, usage) == found


def test_a_drift_has_a_direction() -> None:
    more, fewer = Drift("prompt", 452, 396), Drift("prompt", 396, 452)
    assert (more.tokens, more.direction) == (56, "more")
    assert (fewer.tokens, fewer.direction) == (-56, "fewer")


# Telling


def test_a_warning_says_what_was_found_and_what_to_look_at() -> None:
    assert warning("tiny-vlm", Drift("vision", 391, 335)) == (
        "model 'tiny-vlm' counts 391 vision tokens where 335 were expected: the server's processor is configured "
        "otherwise than [models.'tiny-vlm'] says"
    )
    bound = warning("tiny-vlm", Drift("prompt", 452, 435, exact=False), "max_pixels may be it")
    assert "counts 452 prompt tokens where at most 435 were expected: the server's processor, tokenizer or" in bound
    assert bound.endswith("says; max_pixels may be it")
    assert "where at least 500 were" in warning("tiny-vlm", Drift("prompt", 452, 500, exact=False))
    assert "the server's tokenizer or chat template is" in warning("tiny-vlm", Drift("text", 452, 450))


def test_a_warning_is_one_line_whatever_a_model_is_called() -> None:
    line = warning("a\nb" * 1_000, Drift("text", 452, 450))
    assert "\n" not in line
    assert len(line) < 600


SIZES = [Size(1920, 1080), Size(640, 480)]


@pytest.mark.parametrize(
    ("name", "pixels"),
    [("max_pixels", 200_704), ("max_pixels", 1_003_520), ("max_pixels", 3_136), ("min_pixels", 3_000_000)],
)
def test_another_bound_on_pixels_is_found_to_explain_a_drift(name: str, pixels: int) -> None:
    rule = lookup("qwen2_5_vl")
    reason = explained(rule, SIZES, sum(lookup("qwen2_5_vl", **{name: pixels}).images(SIZES)))
    found, first, last = re.fullmatch(r"(\w+) between (\d+) and (\d+) would explain it", reason).groups()  # type: ignore[union-attr]
    assert found == name
    assert int(first) <= pixels <= int(last)


def test_a_greater_bound_is_found_to_explain_that_more_is_counted() -> None:
    rule = lookup("qwen2_5_vl", max_pixels=200_704)
    # Of 640x480 pixels, as vLLM counts it with the model's own bounds.
    assert explained(rule, [Size(640, 480)], 391).startswith("max_pixels between ")


@pytest.mark.parametrize("tokens", [0, 3, 10**9])
def test_nothing_is_said_to_explain_what_no_bound_explains(tokens: int) -> None:
    sizes = [Size(640, 480), Size(640, 480)]  # alike, so they cost an even number
    assert explained(lookup("qwen2_5_vl"), sizes, tokens) == ""


def test_nothing_explains_a_refused_picture() -> None:
    assert explained(lookup("qwen2_5_vl"), [Size(10_000, 10)], 100) == ""


# The tally

MORE, FEWER, IN_TEXT = Drift("vision", 400, 391), Drift("vision", 380, 391), Drift("text", 452, 450)


def test_a_drift_is_news_once_a_model_and_kind() -> None:
    drifts = Drifts()
    seen = [("a", MORE), ("a", MORE), ("b", MORE), ("a", FEWER), ("a", IN_TEXT), ("a", MORE), ("b", FEWER)]
    assert [drifts.saw(*one) for one in seen] == [True, False, True, True, True, False, True]


def test_an_answer_without_drift_is_no_news() -> None:
    assert not Drifts().saw("a", None)


def test_a_drift_is_news_again_once_it_had_ended() -> None:
    drifts = Drifts()
    for model in ("a", "b"):
        drifts.saw(model, MORE)
    for _ in range(AGREED_AGAIN - 1):
        drifts.saw("a", None)
    assert not drifts.saw("a", MORE)
    for _ in range(AGREED_AGAIN):
        drifts.saw("a", None)
    assert drifts.saw("a", MORE)
    assert not drifts.saw("b", MORE)


def test_what_differed_is_added_up() -> None:
    drifts = Drifts()
    for seen in (MORE, FEWER, None, MORE, IN_TEXT):
        drifts.saw("a", seen)
    assert drifts.compared() == {"a": 5}
    assert set(drifts.totals()) == {
        DriftTotal("a", "vision", "more", answers=2, tokens=18),
        DriftTotal("a", "vision", "fewer", answers=1, tokens=11),
        DriftTotal("a", "text", "more", answers=1, tokens=2),
    }


def test_models_beyond_a_number_are_one() -> None:
    drifts = Drifts()
    for number in range(NAMED_MODELS + 50):
        drifts.saw(f"model-{number}", MORE)
    assert drifts.compared()[OTHER_MODELS] == 50
    assert len(drifts.compared()) == len(drifts.totals()) == NAMED_MODELS + 1


def test_threads_lose_no_answer() -> None:
    drifts = Drifts()

    def see(_: int) -> int:
        return sum(drifts.saw("a", MORE) for _ in range(1_000))

    with ThreadPoolExecutor(8) as threads:
        news = sum(threads.map(see, range(8)))
    assert news == 1
    assert drifts.totals() == [DriftTotal("a", "vision", "more", answers=8_000, tokens=72_000)]
