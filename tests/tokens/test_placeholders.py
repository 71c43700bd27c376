"""Placeholders: the text around pictures, by the library's own reading of it. The whole against vLLM elsewhere."""

from collections.abc import Mapping

import pytest
from tokenizers import Tokenizer as Encoder

from tests.vocabularies import bytewise, piecewise
from vlm_edge.tokens import FAMILIES
from vlm_edge.tokens.placeholders import PLACEHOLDERS
from vlm_edge.tokens.text import Tokenizer

RAW = "{% for message in messages %}{{ message.content }}{% endfor %}"
IMAGE = {"type": "image"}

BYTEWISE = bytewise(["<img>", "</img>", "<image_id>", "<|endoftext10|>", "<|image|>", "<|image_pad|>"])
PIECEWISE = piecewise(["<start_of_image>", "<image_soft_token>", "<end_of_image>"])


def count(
    family: str, text: str, media: int, vocabulary: str = BYTEWISE, config: Mapping[str, str] | None = None
) -> int | None:
    tokenizer = Tokenizer(vocabulary.encode(), config or {}, RAW, PLACEHOLDERS[family])
    return tokenizer.count([{"role": "user", "content": [{"type": "text", "text": text}]}], {}, media)


def length(*texts: str, vocabulary: str = BYTEWISE) -> int:
    """Of texts that are read apart."""
    encoder = Encoder.from_str(vocabulary)
    return sum(len(encoder.encode(text, add_special_tokens=False).ids) for text in texts)


def test_a_placeholder_runs_into_the_line_break_behind_it() -> None:
    """Else there would be nothing to test here."""
    assert length("<image>\nhi") < length("<image>", "\nhi")


@pytest.mark.parametrize("family", ["internvl_chat", "nemotron_nano_vl", "ovis2", "minicpmv2_6", "phi4_multimodal"])
@pytest.mark.parametrize(("before", "behind"), [("", "\nhi"), ("look: ", " hi"), ("a\n\n", "\n\nb"), ("", "")])
def test_the_text_beside_a_picture_is_read_as_if_the_placeholder_were_none(
    family: str, before: str, behind: str
) -> None:
    mark = PLACEHOLDERS[family].target.replace("{number}", "1")
    assert count(family, before + mark + behind, 1) == length(before, behind)


def test_pictures_of_a_prompt_are_numbered() -> None:
    assert count("phi4_multimodal", "<|image_1|>\n<|image_2|>\nhi", 2) == length("\n", "\nhi")
    assert count("phi4_multimodal", "<|image_1|>\n<|image_1|>\nhi", 2) is None


def test_pictures_out_of_their_order_are_no_count() -> None:
    """vLLM takes whichever comes first."""
    assert count("phi4_multimodal", "<|image_2|> <|image_1|>", 2) is None
    assert count("phi4_multimodal", "<|image_1|> <|image_1|> <|image_2|>", 2) is None


def test_numbers_go_on_from_message_to_message() -> None:
    tokenizer = Tokenizer(BYTEWISE.encode(), {}, RAW, PLACEHOLDERS["phi4_multimodal"])
    user, both = {"role": "user", "content": [IMAGE]}, {"role": "user", "content": [IMAGE, IMAGE]}
    assert tokenizer.count([user, both, user], {}, 4) == length("\n")  # between the two of one message


@pytest.mark.parametrize("family", ["gemma3", "gemma3n"])
@pytest.mark.parametrize(
    ("before", "behind", "joined"), [("a", "b", 0), ("user\n", "b", 1), ("\n\n", "b", 1), ("\n\n\n", "b", 0)]
)
def test_line_breaks_around_a_picture_are_one_with_those_before_it(
    family: str, before: str, behind: str, joined: int
) -> None:
    """260 tokens a picture have two breaks on either side; a break before them makes three, which are one token too."""
    text = f"{before}{PLACEHOLDERS[family].target}{behind}"
    assert count(family, text, 1, PIECEWISE) == length(before, behind, vocabulary=PIECEWISE) - joined


def test_breaks_of_two_pictures_side_by_side_are_one_token() -> None:
    assert count("gemma3", "<start_of_image><start_of_image>", 2, PIECEWISE) == -1
    assert count("gemma3", "\n\n\n\n", 0, PIECEWISE) == 1  # which is nobody's business without pictures


def test_a_vocabulary_without_line_breaks_is_not_gemmas() -> None:
    assert count("gemma3", "<start_of_image>", 1, bytewise(["<start_of_image>"])) is None


@pytest.mark.parametrize(("begins", "missing"), [("", 1), ("<s>", 0)])
def test_the_mark_of_a_beginning_is_written_once(begins: str, missing: int) -> None:
    beginning = {"bos_token": "<s>"}
    assert count("molmo2", f"{begins}<|image|>hi", 1, config=beginning) == length(begins, "hi") + missing
    assert count("molmo2", "hi", 0, config=beginning) == length("hi")


def test_a_tokenizer_may_call_its_own_token() -> None:
    named = {"image_token": "<|image|>"}
    assert count("hunyuan_ocr", "a<|image|>b", 1, config=named) == length("a", "b")
    assert count("hunyuan_ocr", "a<|image|>b", 1) is None  # it has none of its own
    assert count("lighton_ocr", "a<|image_pad|>b", 1) == length("a", "b")


def test_a_picture_that_the_template_leaves_out_is_no_count() -> None:
    assert count("qwen2_5_vl", "hi", 1) is None
    assert count("qwen2_5_vl", "<|image_pad|>hi", 2) is None


def test_each_family_with_a_placeholder_is_a_family() -> None:
    assert PLACEHOLDERS.keys() <= FAMILIES.keys()
