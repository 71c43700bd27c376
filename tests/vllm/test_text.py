"""The text of prompts is what vLLM's own code makes of the same requests, and no prompt is above its bound."""

from random import Random
from typing import Any

import pytest
from tokenizers import Tokenizer as Encoder

from tests.samples import image_part, png
from tests.vllm.client import Client
from tests.vllm.conftest import Ask, Job
from tests.vllm.dialogues import Dialogues
from tests.vllm.environment import Environment
from tests.vllm.service import MAX_IMAGES, MODEL
from tests.vllm.templates import PLACEHOLDER, TEMPLATES, pieced
from vlm_edge.requests.prompt import Prompt, prompts, question
from vlm_edge.tokens.placeholders import PLACEHOLDERS
from vlm_edge.tokens.template import Template
from vlm_edge.tokens.text import Tokenizer, bound

REQUESTS = 2_000
MODALITIES = ("image", "video", "audio", "prompt_embeds")
ASKED = 50

# Those of the tiny checkpoint's tokenizer_config.json.
MARKS = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


@pytest.fixture(scope="module")
def answered(ask: Ask, environment: Environment) -> list[tuple[Job, dict[str, Any]]]:
    """Random requests, and what vLLM makes of them."""
    dialogues, chance, jobs = Dialogues(1), Random(2), []
    for _ in range(REQUESTS):
        path, body = dialogues.request()
        template = chance.choice(TEMPLATES)
        placeholder = chance.choice((PLACEHOLDER, "<|image_{number}|>"))
        job = {"path": path, "body": body, "template": template, "placeholder": placeholder}
        jobs.append({"job": "rendered", "checkpoint": f"{environment.checkpoint}", **job})
    return [(job, answer) for job, answer in zip(jobs, ask(jobs), strict=True) if "refused" not in answer]


def prompt_of(job: Job) -> Prompt:
    (prompt,) = prompts(job["path"], job["body"])
    return prompt


def test_what_is_called_exact_is_rendered_as_vllm_renders_it(answered: list[tuple[Job, dict[str, Any]]]) -> None:
    exact = dict.fromkeys(["/v1/chat/completions", "/tokenize", "/v1/embeddings", "/v1/messages", "/v1/responses"], 0)
    for job, answer in answered:
        prompt = prompt_of(job)
        if prompt.exact:
            exact[job["path"]] += 1
            written = {one: str(job["placeholder"]) for one in MODALITIES}
            made = Template(job["template"], written).render(prompt.messages, {**MARKS, **prompt.extra})
            assert (made, prompt.media) == (answer["text"], answer["media"]), job["body"]
    assert sum(exact.values()) > 0.8 * len(answered)
    assert min(exact.values()) > 100


def test_no_prompt_is_above_its_bound(answered: list[tuple[Job, dict[str, Any]]], environment: Environment) -> None:
    encoder = Encoder.from_file(f"{environment.checkpoint / 'tokenizer.json'}")
    for job, answer in answered:
        prompt = prompt_of(job)
        tokens = len(encoder.encode(answer["text"], add_special_tokens=False))
        assert tokens <= bound(prompt.messages, prompt.extra), job["body"]


def test_templates_are_told_apart_as_vllm_tells_them_apart(ask: Ask) -> None:
    templates = list(pieced())
    kinds = [answer["kind"] for answer in ask([{"job": "kind", "template": one} for one in templates])]
    assert 100 < kinds.count("openai") < len(kinds) - 100
    for template, kind in zip(templates, kinds, strict=True):
        assert Template(template, {}).takes_parts == (kind == "openai"), template


def test_a_server_that_is_asked_counts_the_same_text(vllm: Client, environment: Environment) -> None:
    """With a picture of 28x28, which is 4 tokens, for each."""
    words, template = (environment.checkpoint / name for name in ("tokenizer.json", "chat_template.jinja"))
    tokenizer = Tokenizer(words.read_bytes(), {}, template.read_text(), PLACEHOLDERS["qwen2_5_vl"])
    dialogues, small, asked = Dialogues(3), image_part(png(28, 28), "image/png"), 0
    while asked < ASKED:
        (prompt,) = prompts("/v1/chat/completions", dialogues.chat())
        if prompt.exact and prompt.media <= MAX_IMAGES:
            messages, fields = question(prompt, small)
            answer = vllm.http.post("/tokenize", json={"model": MODEL, "messages": messages, **fields})
            assert answer.status_code == 200, answer.text
            count = tokenizer.count(prompt.messages, prompt.extra, prompt.media)
            assert answer.json()["count"] - 4 * prompt.media == count
            asked += 1
