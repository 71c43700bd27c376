"""What stands for pictures in a prompt is found, and its neighbours are counted, as vLLM's own classes do it."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.vllm.conftest import Ask
from tests.vocabularies import bytewise, piecewise
from vlm_edge.tokens.placeholders import PLACEHOLDERS
from vlm_edge.tokens.text import Tokenizer

PROMPTS = 60
MAX_PICTURES = 12
MODELS = "vllm.model_executor.models"
RAW = "{% for message in messages %}{{ message.content }}{% endfor %}"

PIECES = (
    "\n",
    "\n\n",
    "\n\n\n",
    " ",
    "  ",
    ">",
    "<",
    "(",
    ")",
    "|",
    "hello",
    " world",
    "123",
    "é",
    "漢字",
    "🙂",
    "<|end|>",
)


class Family(NamedTuple):
    """How vLLM's class serves it. content: of a picture's vision tokens, with `{index}` from 0. whole: marks that are
    one token in its vocabulary."""

    model: str
    processor: str
    written: str | None
    target: str
    content: str
    whole: Sequence[str]
    vocabulary: Callable[[Sequence[str]], str] = bytewise


def single(module: str, model: str, processor: str, written: str | None, target: str, content: str = "") -> Family:
    """Of one token, which stands for each of its vision tokens."""
    whole = ("<|vision_start|>", "<|vision_end|>", "<img>", "</img>", target)
    return Family(f"{module}:{model}", f"{module}:{processor}", written, target, content or 3 * target, whole)


QWEN = "<|vision_start|><|image_pad|><|vision_end|>"
GLM = "<|begin_of_image|><|image|><|end_of_image|>"
ERNIE = "<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>"
PADDLE = "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"
KIMI_VL = "<|media_start|>image<|media_content|><|media_pad|><|media_end|>"
KIMI_2_5 = "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>"
GEMMA = "\n\n<start_of_image><image_soft_token><image_soft_token><end_of_image>\n\n"
GEMMAS = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")
SLICES = "<image_id>{index}</image_id><image><unk><unk></image>\n<slice><unk></slice>"
SLICED = ("<image>", "</image>", "<image_id>", "</image_id>", "<slice>", "</slice>", "<unk>")
PLAIN_IMAGE = ("<img>", "</img>", "<IMG_CONTEXT>", "<|image_pad|>")

FAMILIES = {
    "qwen2_vl": single(
        "qwen2_vl", "Qwen2VLForConditionalGeneration", "Qwen2VLMultiModalProcessor", QWEN, "<|image_pad|>"
    ),
    "qwen2_5_vl": single(
        "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLMultiModalProcessor", QWEN, "<|image_pad|>"
    ),
    "qwen3_vl": single(
        "qwen3_vl", "Qwen3VLForConditionalGeneration", "Qwen3VLMultiModalProcessor", QWEN, "<|image_pad|>"
    ),
    "qwen3_5": single(
        "qwen3_5", "Qwen3_5ForConditionalGeneration", "Qwen3VLMultiModalProcessor", QWEN, "<|image_pad|>"
    ),
    "keye_vl": single("keye", "KeyeForConditionalGeneration", "KeyeMultiModalProcessor", QWEN, "<|image_pad|>"),
    "glm4_1v": single("glm4_1v", "Glm4vForConditionalGeneration", "Glm4vMultiModalProcessor", GLM, "<|image|>"),
    "glm4_6v": single("glm4_1v", "Glm4vMoeForConditionalGeneration", "Glm4vMultiModalProcessor", GLM, "<|image|>"),
    "glm_ocr": single("glm_ocr", "GlmOcrForConditionalGeneration", "Glm4vMultiModalProcessor", GLM, "<|image|>"),
    "llava_1_5": single("llava", "LlavaForConditionalGeneration", "LlavaMultiModalProcessor", "<image>", "<image>"),
    "llava_next": single(
        "llava_next", "LlavaNextForConditionalGeneration", "LlavaNextMultiModalProcessor", "<image>", "<image>"
    ),
    "llava_onevision": single(
        "llava_onevision",
        "LlavaOnevisionForConditionalGeneration",
        "LlavaOnevisionMultiModalProcessor",
        "<image>",
        "<image>",
    ),
    "idefics3": single(
        "idefics3", "Idefics3ForConditionalGeneration", "Idefics3MultiModalProcessor", "<image>", "<image>"
    ),
    "smolvlm": single(
        "idefics3", "Idefics3ForConditionalGeneration", "Idefics3MultiModalProcessor", "<image>", "<image>"
    ),
    "lfm2_vl": single("lfm2_vl", "Lfm2VLForConditionalGeneration", "Lfm2VLMultiModalProcessor", "<image>", "<image>"),
    "deepseek_vl2": single(
        "deepseek_vl2", "DeepseekVLV2ForCausalLM", "DeepseekVL2MultiModalProcessor", "<image>", "<image>"
    ),
    "deepseek_ocr": single(
        "deepseek_ocr", "DeepseekOCRForCausalLM", "DeepseekOCRMultiModalProcessor", "<image>", "<image>"
    ),
    "deepseek_ocr2": single(
        "deepseek_ocr2", "DeepseekOCR2ForCausalLM", "DeepseekOCR2MultiModalProcessor", "<image>", "<image>"
    ),
    "ovis2": Family(
        "ovis:Ovis", "ovis:OvisMultiModalProcessor", "<image>", "<image>", 3 * "<|image_pad|>", PLAIN_IMAGE
    ),
    "ovis2_5": Family(
        "ovis2_5:Ovis2_5", "ovis2_5:Ovis2_5MultiModalProcessor", "<image>", "<image>", 3 * "<|image_pad|>", PLAIN_IMAGE
    ),
    "internvl_chat": Family(
        "internvl:InternVLChatModel",
        "internvl:InternVLMultiModalProcessor",
        "<image>",
        "<image>",
        "<img><IMG_CONTEXT><IMG_CONTEXT></img>",
        PLAIN_IMAGE,
    ),
    "nemotron_nano_vl": Family(
        "nemotron_vl:LlamaNemotronVLChatModel",
        "internvl:InternVLMultiModalProcessor",
        "<image>",
        "<image>",
        "<img><IMG_CONTEXT><IMG_CONTEXT></img>",
        PLAIN_IMAGE,
    ),
    "internvl": single(
        "interns1",
        "InternS1ForConditionalGeneration",
        "InternS1MultiModalProcessor",
        "<IMG_CONTEXT>",
        "<IMG_CONTEXT>",
        "<img><IMG_CONTEXT><IMG_CONTEXT></img>",
    ),
    "dots_ocr": single(
        "dots_ocr", "DotsOCRForCausalLM", "Qwen2VLMultiModalProcessor", "<|img|><|imgpad|><|endofimg|>", "<|imgpad|>"
    ),
    "ernie4_5_vl": single(
        "ernie45_vl",
        "Ernie4_5_VLMoeForConditionalGeneration",
        "Ernie4_5VLMultiModalProcessor",
        ERNIE,
        "<|image@placeholder|>",
    ),
    "paddleocr_vl": single(
        "paddleocr_vl",
        "PaddleOCRVLForConditionalGeneration",
        "PaddleOCRVLMultiModalProcessor",
        PADDLE,
        "<|IMAGE_PLACEHOLDER|>",
    ),
    "kimi_vl": single(
        "kimi_vl", "KimiVLForConditionalGeneration", "KimiVLMultiModalProcessor", KIMI_VL, "<|media_pad|>"
    ),
    "kimi_k2_5": single(
        "kimi_k25", "KimiK25ForConditionalGeneration", "KimiK25MultiModalProcessor", KIMI_2_5, "<|media_pad|>"
    ),
    "llama4": single(
        "mllama4", "Llama4ForConditionalGeneration", "Mllama4MultiModalProcessor", "<|image|>", "<|image|>"
    ),
    "gemma3": Family(
        "gemma3_mm:Gemma3ForConditionalGeneration",
        "gemma3_mm:Gemma3MultiModalProcessor",
        "<start_of_image>",
        "<start_of_image>",
        GEMMA,
        GEMMAS,
        piecewise,
    ),
    "gemma3n": Family(
        "gemma3n_mm:Gemma3nForConditionalGeneration",
        "gemma3n_mm:Gemma3nMultiModalProcessor",
        "<image_soft_token>",
        "<image_soft_token>",
        GEMMA,
        GEMMAS,
        piecewise,
    ),
    "gemma4": single(
        "gemma4_mm", "Gemma4ForConditionalGeneration", "Gemma4MultiModalProcessor", "<image_soft_token>", "<|image|>"
    ),
    "pixtral": single("llava", "LlavaForConditionalGeneration", "PixtralHFMultiModalProcessor", "<image>", "[IMG]"),
    "mistral3": single("mistral3", "Mistral3ForConditionalGeneration", "Mistral3MultiModalProcessor", None, "[IMG]"),
    "lighton_ocr": single(
        "lightonocr", "LightOnOCRForConditionalGeneration", "LightOnOCRMultiModalProcessor", None, "<|image_pad|>"
    ),
    "cohere2_vision": single(
        "cohere2_vision",
        "Cohere2VisionForConditionalGeneration",
        "Cohere2VisionMultiModalProcessor",
        None,
        "<|IMG_PATCH|>",
    ),
    "phi4_multimodal": Family(
        "phi4mm:Phi4MMForCausalLM",
        "phi4mm:Phi4MMMultiModalProcessor",
        "<|image_{number}|>",
        "<|image_{number}|>",
        3 * "<|endoftext10|>",
        ("<|endoftext10|>",),
    ),
    "minicpmv2_6": Family(
        "minicpmv:MiniCPMV",
        "minicpmv:MiniCPMVMultiModalProcessor",
        "(<image>./</image>)",
        "(<image>./</image>)",
        SLICES,
        SLICED,
    ),
    "minicpmv4_6": Family(
        "minicpmv4_6:MiniCPMV4_6ForConditionalGeneration",
        "minicpmv4_6:MiniCPMV4_6MultiModalProcessor",
        "<|image_pad|>",
        "<|image_pad|>",
        SLICES,
        (*SLICED, "<|image_pad|>"),
    ),
    "molmo2": single("molmo2", "Molmo2ForConditionalGeneration", "Molmo2MultiModalProcessor", "<|image|>", "<|image|>"),
    "step3_vl": single(
        "step3_vl", "Step3VLForConditionalGeneration", "Step3VLMultiModalProcessor", *2 * ("<im_patch>",)
    ),
    "glm_4v": Family(
        "glm4v:GLM4VForCausalLM",
        "glm4v:GLM4VMultiModalProcessor",
        "<|begin_of_image|><|endoftext|><|end_of_image|>",
        "<|begin_of_image|><|endoftext|><|end_of_image|>",
        "<|begin_of_image|><|endoftext|><|endoftext|><|end_of_image|>",
        ("<|begin_of_image|>", "<|endoftext|>", "<|end_of_image|>"),
    ),
}


def numbered(text: str, pictures: int) -> list[str]:
    return [text.replace("{number}", f"{index + 1}").replace("{index}", f"{index}") for index in range(pictures)]


def test_every_family_that_vllm_has_a_class_for_is_here() -> None:
    assert PLACEHOLDERS.keys() - FAMILIES.keys() == {"hunyuan_ocr"}  # served by transformers' code


@pytest.fixture(scope="module")
def written(ask: Ask) -> dict[str, str | None]:
    jobs = [{"job": "placeholder", "model": f"{MODELS}.{one.model}", "number": 7} for one in FAMILIES.values()]
    return dict(zip(FAMILIES, (answer["placeholder"] for answer in ask(jobs)), strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_what_vllm_writes_for_a_picture_is_known(name: str, written: dict[str, str | None]) -> None:
    assert PLACEHOLDERS[name].texts["image"].replace("{number}", "7") == (written[name] or "")
    assert (FAMILIES[name].written or "").replace("{number}", "7") == (written[name] or "")


class Prompt(NamedTuple):
    text: str
    pictures: int


def prompts_of(name: str) -> list[Prompt]:
    family, chance, prompts = FAMILIES[name], Random(name), []
    for _ in range(PROMPTS):
        marks = numbered(family.target, chance.randint(1, MAX_PICTURES))
        pieces = [mark + "".join(chance.choices(PIECES, k=chance.randint(0, 4))) for mark in marks]
        begin = chance.choice(("<s>", "")) + "".join(chance.choices(PIECES, k=3))
        prompts.append(Prompt(begin + "".join(pieces), len(marks)))
    return prompts


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tokenizer.json of each family."""
    folder = tmp_path_factory.mktemp("vocabularies")
    for name, family in FAMILIES.items():
        (folder / name).write_text(family.vocabulary(family.whole), "utf-8")
    return {name: folder / name for name in FAMILIES}


@pytest.fixture(scope="module")
def applied(ask: Ask, vocabularies: dict[str, Path]) -> dict[str, list[dict[str, Any]]]:
    """What vLLM makes of the prompts of each family."""
    jobs = [
        {
            "job": "applied",
            "processor": f"{MODELS}.{family.processor}",
            "vocabulary": f"{vocabularies[name]}",
            "text": prompt.text,
            "targets": numbered(family.target, prompt.pictures),
            "contents": numbered(family.content, prompt.pictures),
        }
        for name, family in FAMILIES.items()
        for prompt in prompts_of(name)
    ]
    answers = iter(ask(jobs))
    return {name: list(islice(answers, PROMPTS)) for name in FAMILIES}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_text_around_pictures_is_counted_as_vllm_counts_it(
    name: str, applied: dict[str, list[dict[str, Any]]], vocabularies: dict[str, Path]
) -> None:
    """Of Gemma, vLLM itself loses a picture that a line break follows, and refuses the prompt."""
    tokenizer = Tokenizer(vocabularies[name].read_bytes(), {"bos_token": "<s>"}, RAW, PLACEHOLDERS[name])
    taken = [pair for pair in zip(prompts_of(name), applied[name], strict=True) if "refused" not in pair[1]]
    assert len(taken) == PROMPTS or (PLACEHOLDERS[name].joins and len(taken) > PROMPTS // 4), applied[name]
    for prompt, answer in taken:
        message = {"role": "user", "content": [{"type": "text", "text": prompt.text}]}
        assert tokenizer.count([message], {}, prompt.pictures) == answer["tokens"] - answer["vision_tokens"], prompt
