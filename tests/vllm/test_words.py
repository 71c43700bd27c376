"""A checkpoint's words are read from all the files that vLLM reads them from."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.conftest import Ask
from tests.vocabularies import bytewise
from vlm_edge.models import Models, ModelSettings

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}: {% for c in m.content %}"
    "{{ '<|image_pad|>' if c.type == 'image' else c.text }}{% endfor %}{% endfor %}{{ '<think>' if thinks }}"
)
TEXT = "Hello . World\n\n<|hello|> it 's a 漢字 , é (x)"
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": TEXT}, {"type": "image"}]}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]

CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
UNMARKED = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
HELLO = {"content": "<|hello|>", "special": True, "normalized": False, "lstrip": True, "rstrip": False}

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "plain": {"tokenizer_config.json": CONFIG},
    "marks in a file of their own": {
        "tokenizer_config.json": UNMARKED,
        "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "</s>"},
    },
    "a list of extra tokens": {"tokenizer_config.json": {**CONFIG, "extra_special_tokens": ["<|hello|>"]}},
    "named extra tokens": {"tokenizer_config.json": {**CONFIG, "extra_special_tokens": {"hi_token": "<|hello|>"}}},
    "additional tokens": {"tokenizer_config.json": {**CONFIG, "additional_special_tokens": ["<|hello|>"]}},
    "a decoder of added tokens": {"tokenizer_config.json": {**CONFIG, "added_tokens_decoder": {"5000": HELLO}}},
    "a file of added tokens": {"tokenizer_config.json": CONFIG, "added_tokens.json": {"<|hello|>": 5000}},
    "tokens that are split": {"tokenizer_config.json": {**CONFIG, "split_special_tokens": True}},
    "a template for tools": {
        "tokenizer_config.json": CONFIG,
        "additional_chat_templates/tool_use.jinja": "TOOLS" + TEMPLATE,
    },
}
# What we do not count, and say so.
LEFT = {("tokens that are split", False), ("tokens that are split", True), ("a template for tools", True)}


def made(folder: Path, files: dict[str, Any]) -> str:
    vocabulary = bytewise(["<|im_start|>", "<|image_pad|>"])
    (folder / "additional_chat_templates").mkdir(parents=True)
    (folder / "additional_chat_templates").rmdir()
    texts = {"tokenizer.json": vocabulary, "chat_template.jinja": TEMPLATE, "config.json": {"model_type": "qwen2_5_vl"}}
    for name, content in (texts | files).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return f"{folder}"


def test_all_files_are_read(ask: Ask, tmp_path: Path) -> None:
    folders = {name: made(tmp_path / name.replace(" ", "-"), files) for name, files in CHECKPOINTS.items()}
    cases = [(name, tools) for name in CHECKPOINTS for tools in (False, True)]
    answers = ask(
        [
            {
                "job": "counted",
                "folder": folders[name],
                "messages": MESSAGES,
                "tools": TOOLS if tools else None,
                "variables": {},
            }
            for name, tools in cases
        ]
    )
    assert len({answer["tokens"] for answer in answers}) > 3
    for (name, tools), answer in zip(cases, answers, strict=True):
        tokenizer = Models({"m": ModelSettings(checkpoint=folders[name])}, {}).get("m").tokenizer
        assert tokenizer
        count = tokenizer.count(MESSAGES, {"tools": TOOLS} if tools else {}, 1)
        assert count == (None if (name, tools) in LEFT else answer["tokens"] - 1), name


@pytest.mark.parametrize("asked", [{}, {"thinks": False}])
def test_a_servers_own_variables_stand_under_those_of_a_request(
    ask: Ask, tmp_path: Path, asked: dict[str, Any]
) -> None:
    folder = made(tmp_path / "own", CHECKPOINTS["plain"])
    variables = {"thinks": True} | asked
    (answer,) = ask([{"job": "counted", "folder": folder, "messages": MESSAGES, "tools": None, "variables": variables}])
    entry = ModelSettings(checkpoint=folder, chat_template_kwargs={"thinks": True})
    tokenizer = Models({"m": entry}, {}).get("m").tokenizer
    assert tokenizer
    assert tokenizer.count(MESSAGES, asked, 1) == answer["tokens"] - 1
