"""Text: rendered and counted as transformers and vLLM do it. The whole road is held against a real vLLM elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Encoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from vlm_edge.tokens.placeholders import PLACEHOLDERS
from vlm_edge.tokens.template import Template
from vlm_edge.tokens.text import Tokenizer, bound

QWEN = PLACEHOLDERS["qwen2_5_vl"]
MARKS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")

IN_PARTS = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message['content'] -%}
{%- if part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}
{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
SAYING = "{% for m in messages %}{{ say(m.content) }}{% endfor %}"
IN_ONE_PIECE = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"

TEXT, IMAGE = {"type": "text", "text": "hi"}, {"type": "image"}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def bytewise() -> bytes:
    """A tokenizer that makes a token of every byte, and one of each mark."""
    vocabulary = {sign: number for number, sign in enumerate(sorted(ByteLevel.alphabet()))}
    encoder = Encoder(BPE(vocab=vocabulary, merges=[]))
    encoder.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    encoder.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    return encoder.to_str().encode()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(bytewise(), {"eos_token": "<|im_end|>"}, IN_PARTS, QWEN)


def test_a_prompt_is_its_text_and_what_the_template_writes(tokenizer: Tokenizer) -> None:
    """<|im_start|>user\\nhi<|im_end|>\\n and <|im_start|>assistant\\n: four marks or ends, and 17 bytes."""
    assert tokenizer.count([user(TEXT)], {"add_generation_prompt": True}) == 2 + len("user\nhi\n") + 1 + len(
        "assistant\n"
    )


def test_the_token_of_a_picture_itself_is_left_out(tokenizer: Tokenizer) -> None:
    without, with_one = tokenizer.count([user(TEXT)]), tokenizer.count([user(TEXT, IMAGE)], media=1)
    assert without is not None
    assert with_one == without + 2  # <|vision_start|> and <|vision_end|>


def test_text_that_looks_like_a_mark_is_one_token_as_it_is_for_the_server(tokenizer: Tokenizer) -> None:
    plain = tokenizer.count([user({"type": "text", "text": ""})])
    assert plain is not None
    assert tokenizer.count([user({"type": "text", "text": "<|image_pad|>"})]) == plain + 1


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('no') }}", "{{ messages[99].role.x }}", "{% if %}", "{{ 1/0 }}"]
)
def test_a_template_that_refuses_is_no_count_and_no_error(template: str) -> None:
    assert Tokenizer(bytewise(), {}, template, QWEN).count([user(TEXT)]) is None


def test_text_that_is_no_unicode_is_no_count(tokenizer: Tokenizer) -> None:
    assert tokenizer.count([user({"type": "text", "text": "\ud800"})]) is None


def test_a_tokenizer_of_a_kind_that_the_library_does_not_know_is_no_count_and_no_error() -> None:
    later = b'{"version":"1.0","model":{"type":"NotYetInvented"}}'
    assert Tokenizer(later, {}, IN_PARTS, QWEN).count([user(TEXT)]) is None


def test_a_text_that_a_vocabulary_cannot_write_is_no_count_and_no_error() -> None:
    encoder = Encoder(BPE(vocab={"a": 0}, merges=[], unk_token="<unk>"))  # which is not in it
    assert Tokenizer(encoder.to_str().encode(), {}, IN_ONE_PIECE, QWEN).count([user(TEXT)]) is None


def test_special_tokens_are_known_by_name() -> None:
    config = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>", "pad_token": None}
    tokenizer = Tokenizer(bytewise(), config, "{{ bos_token }}{{ eos_token }}{{ pad_token }}", QWEN)
    assert tokenizer.count([user(TEXT)]) == 2


def test_more_special_tokens_are_known_by_name_too() -> None:
    config = {"extra_special_tokens": {"image_token": "<|image_pad|>"}}
    assert Tokenizer(bytewise(), config, "{{ image_token }}", QWEN).count([user(TEXT)]) == 1


def test_a_text_is_counted_whole_whatever_its_file_says_of_cutting_and_filling() -> None:
    encoder = Encoder.from_str(bytewise().decode())
    encoder.enable_truncation(4)
    encoder.enable_padding(length=64)
    tokenizer = Tokenizer(encoder.to_str().encode(), {}, "{{ messages[0].content }}", QWEN)
    assert tokenizer.count([user({"type": "text", "text": "x" * 10})]) == 10


def test_tools_are_not_counted_where_the_tokenizer_has_another_template() -> None:
    tokenizer = Tokenizer(bytewise(), {"chat_template": "{{ tools }}"}, IN_PARTS, QWEN)
    assert tokenizer.count([user(TEXT)], {"tools": [{}]}) is None
    assert tokenizer.count([user(TEXT)]) is not None


# Templates


def test_a_template_without_a_loop_over_parts_gets_one_text_with_placeholders_before_it() -> None:
    template = Template(IN_ONE_PIECE, {"image": "<image>"})
    assert not template.takes_parts
    assert template.render([user(TEXT, IMAGE, {"type": "text", "text": "you"}, IMAGE)], {}) == (
        "[user]<image>\n<image>\nhi\nyou"
    )


def test_what_is_empty_takes_no_line_in_one_piece() -> None:
    empty = {"type": "text", "text": ""}
    assert Template(IN_ONE_PIECE, {"image": "<image>"}).render([user(empty, TEXT, empty)], {}) == "[user]hi"


def test_a_developer_that_the_template_does_not_know_speaks_for_the_system() -> None:
    said = [{"role": role, "content": [{"type": "text", "text": role}]} for role in ("system", "user", "developer")]
    assert Template(IN_ONE_PIECE, {}).render(said, {}) == "[system]system\n\ndeveloper[user]user"
    knowing = IN_ONE_PIECE + "{{ 'developer' }}"
    assert Template(knowing, {}).render(said[2:], {}) == "[developer]developerdeveloper"


def test_a_placeholder_that_the_text_has_is_not_written_again() -> None:
    text = {"type": "text", "text": "<image> and"}
    assert Template(IN_ONE_PIECE, {"image": "<image>"}).render([user(text, IMAGE)], {}) == "[user]<image> and"


@pytest.mark.parametrize(
    ("source", "takes_parts"),
    [
        (IN_PARTS, True),
        (IN_ONE_PIECE, False),
        ("{% for m in messages %}{% for c in m.content %}{{ c }}{% endfor %}{% endfor %}", True),
        ("{% for m in messages[1:] %}{% for c in m['content'] | list %}{{ c }}{% endfor %}{% endfor %}", True),
        ("{% set l = messages %}{% for m in l %}{% for c in m.content %}{{ c }}{% endfor %}{% endfor %}", True),
        (
            "{% for m in messages %}{% set content = m.content %}{% for c in content %}{{ c }}{% endfor %}{% endfor %}",
            True,
        ),
        (
            "{% macro say(x) %}{% for c in x %}{{ c }}{% endfor %}{% endmacro %}" + SAYING,
            True,
        ),
        ("{% macro say(x) %}{{ x }}{% endmacro %}" + SAYING, False),
        ("{% for m in messages %}{% for a, b in m.content %}{% endfor %}{% endfor %}", False),
        ("{% set ns.l = messages %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", False),
        ("{% for t in tools %}{% for c in t.content %}{{ c }}{% endfor %}{% endfor %}", False),
    ],
)
def test_templates_are_told_apart_by_their_loops(source: str, *, takes_parts: bool) -> None:
    assert Template(source, {}).takes_parts is takes_parts


def test_json_is_written_as_it_is() -> None:
    variables = {"x": {"a": "<é>"}}
    assert Template("{{ x | tojson }}", {}).render([], variables) == '{"a": "<é>"}'


def test_what_marks_training_is_passed_over() -> None:
    assert Template("a{% generation %}b{% endgeneration %}c", {}).render([], {}) == "abc"


def test_a_template_cannot_reach_outside() -> None:
    assert Template("{{ messages.__class__.__mro__ }}", {}).render([], {}) in (None, "")


# Upper bound

texts = st.text(max_size=80) | st.sampled_from(["\ufb01ﷺ", "\u1e9b\u0323", "é" * 9, "\U0001d160", "한글", "👩‍👩‍👧‍👦"])


@settings(deadline=None, max_examples=200)
@given(st.lists(texts, min_size=1, max_size=5), st.booleans())
def test_no_prompt_has_more_tokens_than_its_bound(written: Sequence[str], opens: bool) -> None:
    extra: Mapping[str, Any] = {"add_generation_prompt": opens}
    messages = [user({"type": "text", "text": text}) for text in written]
    count = BYTEWISE.count(messages, extra)
    assert count is None or count <= bound(messages, extra)


@given(st.text(st.characters(categories=["Mn", "Lo", "Lu", "Ll", "So"]), max_size=12))
def test_composed_text_is_below_the_bound_too(text: str) -> None:
    """Tokenizers that compose text first, as Qwen's, see these bytes."""
    plain = bound([user({"type": "text", "text": ""})])
    assert len(normalize("NFC", text).encode()) <= bound([user({"type": "text", "text": text})]) - plain


BYTEWISE = Tokenizer(bytewise(), {}, IN_PARTS, QWEN)


def test_the_bound_grows_with_every_text_that_a_template_may_write() -> None:
    plain = bound([user(TEXT)])
    for more in ({"name": "x" * 100}, {"tool_calls": [{"function": {"arguments": {"a": "x" * 100}}}]}):
        assert bound([{**user(TEXT), **more}]) >= plain + 100
    for name in ("documents", "tools"):
        assert bound([user(TEXT)], {name: [{"text": "x" * 100}]}) >= plain + 100


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(texts, texts, max_size=4), st.sampled_from([None, 2, 4]))
def test_what_a_template_writes_as_json_is_below_the_bound(arguments: Mapping[str, str], indent: int | None) -> None:
    template = (
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c | tojson(indent=indent) }}{% endfor %}{% endfor %}"
    )
    messages = [{"role": "assistant", "content": [], "tool_calls": [{"function": {"arguments": arguments}}]}]
    count = Tokenizer(bytewise(), {}, template, QWEN).count(messages, {"indent": indent})
    assert count is None or count <= bound(messages, {})
