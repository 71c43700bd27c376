"""
Served: patterns from the names under which models are served to their families.

Names carry an owner, a size, a quantisation, a date …; the family is a word inside. No name is meant by two rows, so
their order is only that of reading. Names are compared in lower case, with `-` for `_` and spaces.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Served(NamedTuple):
    """numbers: those of these models, where they are not the family's."""

    pattern: re.Pattern[str]
    family: str
    numbers: Mapping[str, Any]


def _row(family: str, pattern: str, **numbers: Any) -> Served:
    return Served(re.compile(pattern), family, numbers)


def served(model: str) -> Iterator[Served]:
    """The rows that a name means: those of its last part, or else of all of it (a folder, a cache of downloads)."""
    name = re.sub(r"[_\s\\]", lambda found: "/" if found[0] == "\\" else "-", model.lower()).rstrip("/")
    last = [row for row in SERVED if row.pattern.search(name.rpartition("/")[2])]
    yield from last or [row for row in SERVED if row.pattern.search(name)]


# After a name of a hosted model: nothing, a date, `latest`, a region or a tariff.
END = r"(?:-\d{4}-?\d{2}-?\d{2}|-latest|-preview)*(?:$|[:@])"
HOSTED = r"(?:^|/)"

SMALL_SMOLVLM = {"longest_edge": 2_048, "max_image_size": 512, "image_seq_len": 64}

SERVED: tuple[Served, ...] = (
    _row("qwen2_vl", r"qwen2-?vl|qvq-72b|tarsier2|olmocr-7b-0225|ui-tars-(?:2b|7b|72b)"),
    _row(
        "qwen2_5_vl",
        r"qwen2[-.]?5-?vl|olmocr-7b-0[78]25|olmocr-2-|ui-tars-1[-.]5|nanonets-ocr|rolmocr|mimo-vl-7b",
    ),
    _row("qwen3_vl", r"qwen3-?vl"),
    _row("qwen3_5", r"qwen3(?:\.[568]|[-]?[56](?!\d|\.?\d*b))(?!.*(?:omni|-text))"),
    _row("dots_ocr", r"dots[-.]?ocr"),
    _row("glm4_1v", r"glm-?4[-.]?[15]v|glm4v|autoglm-phone"),
    _row("glm4_6v", r"glm-?4[-.]?6v"),
    _row("glm_4v", r"glm-4v"),
    _row("glm_ocr", r"glm-?ocr"),
    _row("ernie4_5_vl", r"ernie-?4[-.]5-(?:moe-)?vl"),
    _row("paddleocr_vl", r"paddleocr-?vl"),
    _row("keye_vl", r"keye-?vl(?!-?1[-.]5)|^keye$"),
    _row("hunyuan_ocr", r"hunyuan-?(?:ocr|vl$)"),
    _row("ovis2_5", r"ovis-?2(?:\.5|-5(?:-|$))"),
    _row("ovis2", r"ovis-?2(?!\.|-5(?:-|$))"),
    _row("kimi_vl", r"kimi-?vl(?!.*2506)"),
    _row("kimi_vl", r"kimi-?vl.*2506", in_token_limit=16_384),
    _row("kimi_k2_5", r"kimi-?k2[-.]?[56](?!\d)"),
    _row("lfm2_vl", r"lfm2(?:[-.]?5)?-?vl"),
    _row("gemma3", r"(?<![a-z])gemma-?3(?![\dn]|[-:](?:1b|270m|text|pan-))|medgemma(?!.*text)|translategemma"),
    _row("gemma3", r"shieldgemma-2-4b"),
    _row("gemma3n", r"gemma-?3n"),
    _row("gemma4", r"gemma-?4(?!\d|-?bit|b)"),
    _row("gemma3_pan_and_scan", r"gemma3-pan-and-scan"),
    _row("paligemma", r"paligemma(?!.*-(?:224|896))"),
    _row("paligemma", r"paligemma.*-224", image_size=224, image_seq_length=256),
    _row("paligemma", r"paligemma.*-896", image_size=896, image_seq_length=4_096),
    _row("pixtral", r"pixtral(?!-(?:12b-2409|large-instruct-2411)$|.*mistral-format)"),
    _row("pixtral_mistral_format", r"pixtral-(?:12b-2409|large-instruct-2411)$|pixtral-mistral-format"),
    _row(
        "mistral3",
        r"mistral-?small-?3[-.][12]|mistral-(?:medium|large)-3(?!\d)|ministral-3(?!\d|b)|magistral-small-2509"
        r"|devstral-small-2-|mistral3(?!-mistral-format)",
    ),
    _row("mistral3_mistral_format", r"mistral3-mistral-format"),
    _row("lighton_ocr", r"lighton-?ocr"),
    _row("llava_1_5", r"llava-?v?1[-.]5|^llava$"),
    _row("llava_next", r"llava-?v?1[-.]6|llava-?next(?!-video|-interleave)"),
    _row("llava_onevision", r"llava-?onevision(?!-?(?:1[-.]5|2))"),
    _row("llava_onevision1_5", r"llava-?onevision-?1[-.]5"),
    _row("mllama", r"mllama|llama-?3[-.]2.*vision"),
    _row("llama4", r"llama-?4(?!\d|b|-?bit|-text)|llama-guard-4"),
    _row("internvl", r"internvl(?:$|.*-hf(?![a-z]))"),
    _row("internvl_chat", r"internvl(?!$)(?!.*-hf(?![a-z]))"),
    _row("aya_vision", r"aya-vision"),
    _row("cohere2_vision", r"command-a-vision|cohere2-vision"),
    _row("nemotron_nano_vl", r"nemotron-nano-vl"),
    _row("nemotron_nano_v2_vl", r"nemotron-nano-(?:12b-)?v2-vl|nemotronh-nano-vl-v2"),
    _row("idefics3", r"idefics3"),
    _row("smolvlm", r"smolvlm(?!2?-(?:256|500)m)"),
    _row("smolvlm", r"smolvlm2?-(?:256|500)m|smoldocling|granite-docling", **SMALL_SMOLVLM),
    _row("phi4_multimodal", r"phi-?4-?(?:multimodal|mm)"),
    _row("phi3_5_vision", r"phi-?3[-.]5-vision|phi3-?v$"),
    _row("phi3_5_vision", r"phi-?3-vision", num_crops=16),
    _row("minicpmv2_6", r"minicpm-?[vo](?:$|:|-?2[-.]6|-?4(?:[-.][05])?(?![-.]?\d))"),
    _row("minicpmv4_6", r"minicpm-?v-?4[-.]6"),
    _row("deepseek_vl2", r"deepseek-?vl-?v?2"),
    _row("deepseek_ocr", r"deepseek-?ocr(?!-?2(?!\d|-?bit))"),
    _row("deepseek_ocr2", r"deepseek-?ocr-?2(?!\d|-?bit)"),
    _row("molmo", r"molmo(?:e(?=-))?(?=[-:]|$)(?!-?2(?:-|$))"),
    _row("molmo2", r"molmo-?2(?:[-:]|$)"),
    _row("step3_vl", r"(?:^|/)step-?3(?:[-.]7(?!\d)|-vl|-fp8|$)"),
    # Hosted
    _row("openai_tile", HOSTED + r"(?:chat)?gpt-4(?:o|\.1|\.5|-turbo|-vision)" + END),
    _row("openai_tile", HOSTED + r"gpt-4o-mini" + END, base_tokens=2_833, tile_tokens=5_667),
    _row("openai_tile", HOSTED + r"(?:o1|o1-pro|o3|o3-pro)" + END, base_tokens=75, tile_tokens=150),
    _row("openai_tile", HOSTED + r"gpt-5(?:-chat)?" + END, base_tokens=70, tile_tokens=140),
    _row("openai_tile", HOSTED + r"computer-use" + END, base_tokens=65, tile_tokens=129),
    _row("openai_patch", HOSTED + r"gpt-(?:4\.1|5|5\.4)-mini" + END),
    _row("openai_patch", HOSTED + r"gpt-(?:4\.1|5|5\.4)-nano" + END, multiplier=2.46),
    _row("openai_patch", HOSTED + r"o4-mini" + END, multiplier=1.72),
    _row("openai_patch", HOSTED + r"gpt-5\.4" + END, multiplier=1.2, patch_budget=2_500),
    _row("openai_patch", HOSTED + r"gpt-5\.5" + END, multiplier=1.2, patch_budget=10_000, detail="original"),
    _row("openai_patch", HOSTED + r"gpt-5\.6" + END, multiplier=1.2, patch_budget=None, detail="original"),
    _row("claude", r"(?:^|[/.])claude-(?:opus|sonnet|haiku)-(?:4[-.][7-9]|[5-9])(?!\d)"),
    _row(
        "claude",
        r"(?:^|[/.])claude-(?:3|(?:opus|sonnet|haiku)-4(?![-.][7-9](?!\d)))",
        max_long_edge=1_568,
        max_tokens=1_568,
    ),
    _row("gemini_2", HOSTED + r"gemini-2[-.](?!.*(?:tts|embedding))"),
    _row("gemini_3", HOSTED + r"gemini-3(?!\d)(?!.*(?:tts|embedding))"),
)
