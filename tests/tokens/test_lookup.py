from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_edge.errors import ConfigError, UnknownModel
from vlm_edge.geometry import Size
from vlm_edge.tokens import FAMILIES, lookup, model_type
from vlm_edge.tokens.served import SERVED, served

NAMES = {
    "qwen2_vl": """
        Qwen/Qwen2-VL-7B-Instruct Qwen/Qwen2-VL-2B-Instruct-GPTQ-Int4 Qwen/Qwen2-VL-72B-Instruct-AWQ
        Qwen/QVQ-72B-Preview omni-research/Tarsier2-Recap-7b allenai/olmOCR-7B-0225-preview
        ByteDance-Seed/UI-TARS-7B-DPO qwen2_vl Alibaba-NLP/gme-Qwen2-VL-2B-Instruct
        bartowski/Qwen2-VL-7B-Instruct-GGUF""",
    "qwen2_5_vl": """
        Qwen/Qwen2.5-VL-7B-Instruct Qwen/Qwen2.5-VL-72B-Instruct-AWQ unsloth/Qwen2.5-VL-3B-Instruct-bnb-4bit
        qwen2.5vl:7b qwen2_5_vl /models/qwen2-5-vl-finetuned RedHatAI/Qwen2.5-VL-7B-Instruct-quantized.w8a8
        XiaomiMiMo/MiMo-VL-7B-RL neuralmagic/Qwen2.5-VL-72B-Instruct-FP8-dynamic allenai/olmOCR-2-7B-1025-FP8
        nanonets/Nanonets-OCR2-3B ByteDance-Seed/UI-TARS-1.5-7B reducto/RolmOCR
        /data/internvl-team/Qwen2.5-VL-7B/
        /root/.cache/huggingface/hub/models--Qwen--Qwen2.5-VL-7B-Instruct/snapshots/cc594898""",
    "qwen3_vl": """
        Qwen/Qwen3-VL-8B-Instruct Qwen/Qwen3-VL-235B-A22B-Thinking-FP8 qwen3_vl_moe QWEN3VL qwen3-vl:8b
        Qwen/Qwen3-VL-Embedding-2B unsloth/Qwen3-VL-4B-Instruct-GGUF
        cyankiwi/Qwen3-VL-30B-A3B-Instruct-AWQ-4bit""",
    "qwen3_5": """
        Qwen/Qwen3.5-4B Qwen/Qwen3.5-397B-A17B-FP8 qwen3_5 qwen3_5_moe Qwen/Qwen3.6-35B-A3B qwen3.5:9b
        Qwen/Qwen3.8-27B /models/qwen3-5-35b-a3b""",
    "dots_ocr": "rednote-hilab/dots.ocr dots_ocr rednote-hilab/dots.ocr-base",
    "glm4_1v": """
        zai-org/GLM-4.1V-9B-Thinking THUDM/GLM-4.1V-9B-Base zai-org/GLM-4.5V-FP8 glm4v glm4v_moe glm4_1v
        zai-org/AutoGLM-Phone-9B""",
    "glm4_6v": "zai-org/GLM-4.6V-Flash zai-org/GLM-4.6V-FP8 glm4_6v glm-4.6v:9b glm46v",
    "glm_4v": "THUDM/glm-4v-9b zai-org/glm-4v-9b glm_4v glm-4v",
    "glm_ocr": "zai-org/GLM-OCR glm_ocr",
    "ernie4_5_vl": """
        baidu/ERNIE-4.5-VL-28B-A3B-PT baidu/ERNIE-4.5-VL-424B-A47B-Base-PT ernie4_5_moe_vl ernie4_5_vl_moe
        ernie4_5_vl baidu/ERNIE-4.5-VL-28B-A3B-Thinking""",
    "paddleocr_vl": "PaddlePaddle/PaddleOCR-VL PaddlePaddle/PaddleOCR-VL-1.5 paddleocr_vl",
    "keye_vl": "Kwai-Keye/Keye-VL-8B-Preview keye_vl KeyeVL Keye",
    "hunyuan_ocr": "tencent/HunyuanOCR hunyuan_ocr hunyuan_vl",
    "ovis2_5": "AIDC-AI/Ovis2.5-9B AIDC-AI/Ovis2.5-2B ovis2_5 /models/ovis2-5-9b",
    "ovis2": "AIDC-AI/Ovis2-4B thisisiron/Ovis2-1B-hf ovis2 AIDC-AI/Ovis2-34B-GPTQ-Int4",
    "kimi_vl": "moonshotai/Kimi-VL-A3B-Instruct moonshotai/Kimi-VL-A3B-Thinking moonshotai/Kimi-VL-A3B-Thinking-2506",
    "kimi_k2_5": "moonshotai/Kimi-K2.5 kimi_k25 kimi_k2_5 nvidia/Kimi-K2.5-NVFP4 moonshotai/Kimi-K2.6",
    "lfm2_vl": "LiquidAI/LFM2-VL-1.6B LiquidAI/LFM2-VL-450M-GGUF LiquidAI/LFM2.5-VL-1.6B lfm2_vl",
    "gemma3": """
        google/gemma-3-4b-it google/gemma-3-27b-it-qat-q4_0-gguf gemma3 gemma3:4b gemma3:27b-it-qat
        unsloth/gemma-3-12b-it google/medgemma-4b-it google/medgemma-27b-it
        RedHatAI/gemma-3-12b-it-quantized.w4a16 google/shieldgemma-2-4b-it google/translategemma-12b-it""",
    "gemma3n": "google/gemma-3n-E4B-it gemma3n gemma3n:e2b",
    "gemma4": "google/gemma-4-E4B-it google/gemma-4-31B-it gemma4 gemma4_unified gemma4:26b",
    "gemma3_pan_and_scan": "gemma3_pan_and_scan",
    "paligemma": "google/paligemma2-3b-pt-448 google/paligemma-3b-mix-224 google/paligemma2-10b-ft-docci-448 paligemma",
    "pixtral": "mistral-community/pixtral-12b RedHatAI/pixtral-12b-quantized.w4a16 pixtral mgoin/pixtral-12b-fp8",
    "pixtral_mistral_format": """
        mistralai/Pixtral-12B-2409 mistralai/Pixtral-Large-Instruct-2411 pixtral_mistral_format""",
    "mistral3": """
        mistralai/Mistral-Small-3.1-24B-Instruct-2503 mistralai/Mistral-Small-3.2-24B-Instruct-2506 mistral3
        mistral-small3.1 mistral-small3.2:24b mistralai/Mistral-Large-3-675B-Instruct-2512
        mistralai/Magistral-Small-2509 mistralai/Ministral-3-8B-Instruct-2512
        RedHatAI/Mistral-Small-3.1-24B-Instruct-2503-FP8-dynamic mistralai/Devstral-Small-2-24B-Instruct-2512
        mistralai/Mistral-Medium-3.1""",
    "mistral3_mistral_format": "mistral3_mistral_format",
    "lighton_ocr": "lightonai/LightOnOCR-2-1B lightonai/LightOnOCR-1B-1025 lighton_ocr",
    "llava_1_5": "llava-hf/llava-1.5-7b-hf liuhaotian/llava-v1.5-13b llava llava_1_5",
    "llava_next": """
        llava-hf/llava-v1.6-mistral-7b-hf llava-hf/llava-v1.6-34b-hf llava-hf/llava-next-72b-hf llava_next
        llava-hf/llama3-llava-next-8b-hf""",
    "llava_onevision": """
        llava-hf/llava-onevision-qwen2-7b-ov-hf lmms-lab/llava-onevision-qwen2-0.5b-si llava_onevision""",
    "llava_onevision1_5": "lmms-lab/LLaVA-OneVision-1.5-8B-Instruct llavaonevision1_5 llava_onevision1_5",
    "mllama": """
        meta-llama/Llama-3.2-11B-Vision-Instruct mllama llama3.2-vision:11b
        unsloth/Llama-3.2-90B-Vision-bnb-4bit""",
    "llama4": """
        meta-llama/Llama-4-Scout-17B-16E-Instruct llama4 llama4:scout meta-llama/Llama-Guard-4-12B
        RedHatAI/Llama-4-Maverick-17B-128E-Instruct-FP8""",
    "internvl": "OpenGVLab/InternVL3-8B-hf OpenGVLab/InternVL3_5-8B-HF internvl OpenGVLab/InternVL3-78B-hf-FP8",
    "internvl_chat": """
        OpenGVLab/InternVL3-8B OpenGVLab/InternVL2-2B OpenGVLab/InternVL2_5-8B-MPO OpenGVLab/InternVL3_5-38B
        internvl_chat OpenGVLab/InternVL-Chat-V1-5 OpenGVLab/InternVL3-8B-AWQ
        OpenGVLab/InternVL3_5-GPT-OSS-20B-A4B-Preview""",
    "aya_vision": "CohereLabs/aya-vision-8b aya_vision",
    "cohere2_vision": "CohereLabs/command-a-vision-07-2025 cohere2_vision",
    "nemotron_nano_vl": "nvidia/Llama-3.1-Nemotron-Nano-VL-8B-V1 nemotron_nano_vl Llama_Nemotron_Nano_VL",
    "nemotron_nano_v2_vl": """
        nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16 nemotron_nano_v2_vl NemotronH_Nano_VL_V2""",
    "idefics3": "HuggingFaceM4/Idefics3-8B-Llama3 idefics3",
    "smolvlm": """
        HuggingFaceTB/SmolVLM-Instruct HuggingFaceTB/SmolVLM2-2.2B-Instruct
        HuggingFaceTB/SmolVLM-256M-Instruct smolvlm HuggingFaceTB/SmolVLM2-500M-Video-Instruct
        ds4sd/SmolDocling-256M-preview ibm-granite/granite-docling-258M""",
    "phi4_multimodal": "microsoft/Phi-4-multimodal-instruct phi4_multimodal phi4mm",
    "phi3_5_vision": "microsoft/Phi-3.5-vision-instruct microsoft/Phi-3-vision-128k-instruct phi3_5_vision phi3_v",
    "minicpmv2_6": """
        openbmb/MiniCPM-V-2_6 openbmb/MiniCPM-V-4_5 openbmb/MiniCPM-V-4 openbmb/MiniCPM-o-2_6 minicpm-v:8b
        minicpmv minicpmo openbmb/MiniCPM-V-2_6-int4 openbmb/MiniCPM-o-4_5 openbmb/minicpm-v4.5 minicpmv2_6""",
    "minicpmv4_6": "openbmb/MiniCPM-V-4.6 openbmb/MiniCPM-V-4_6 minicpmv4_6",
    "deepseek_vl2": "deepseek-ai/deepseek-vl2-small deepseek-ai/deepseek-vl2 deepseek_vl_v2 deepseek_vl2",
    "deepseek_ocr": "deepseek-ai/DeepSeek-OCR deepseek_ocr deepseek-ocr:3b mlx-community/DeepSeek-OCR-2bit",
    "deepseek_ocr2": "deepseek-ai/DeepSeek-OCR-2 deepseek_ocr2",
    "molmo": "allenai/Molmo-7B-D-0924 allenai/MolmoE-1B-0924 allenai/Molmo-72B-0924 molmo",
    "molmo2": "allenai/Molmo2-8B allenai/Molmo2-O-7B molmo2",
    "step3_vl": "stepfun-ai/step3 stepfun-ai/step3-fp8 stepfun-ai/Step-3.7-Flash step3_vl",
    "openai_tile": """
        gpt-4o openai/gpt-4o-2024-08-06 gpt-4o-mini gpt-4o-mini-2024-07-18 gpt-4.1 o1 o1-pro o3 o3-2025-04-16
        gpt-5 gpt-5-chat-latest chatgpt-4o-latest gpt-4.5-preview computer-use-preview gpt-4-turbo
        openai/gpt-4o:extended openai_tile""",
    "openai_patch": """
        gpt-4.1-mini gpt-4.1-nano-2025-04-14 gpt-5-mini gpt-5-nano o4-mini gpt-5.4 gpt-5.4-mini gpt-5.5
        gpt-5.6 openai/gpt-5-mini-2025-08-07 openai_patch""",
    "claude": """
        claude-3-5-sonnet-20241022 claude-sonnet-4-20250514 claude-opus-4-1-20250805 claude-sonnet-4-5
        claude-opus-4-7 anthropic/claude-haiku-4.5 anthropic.claude-3-haiku-20240307-v1:0 claude-opus-4.8
        claude""",
    "claude_legacy_estimate": "claude_legacy_estimate",
    "gemini_2": "gemini-2.0-flash google/gemini-2.5-pro gemini-2.5-flash-lite-preview-09-2025 gemini_2",
    "gemini_3": "gemini-3-pro-preview google/gemini-3.1-flash gemini_3",
}

BLIND = """
        Qwen/Qwen2.5-7B-Instruct Qwen/QwQ-32B Qwen/Qwen3-8B Qwen/Qwen3-0.6B Qwen/Qwen3-32B-AWQ qwen3
        Qwen/Qwen3-Coder-30B-A3B meta-llama/Llama-3.1-8B-Instruct meta-llama/Llama-3.2-3B-Instruct
        meta-llama/Llama-3.3-70B-Instruct mlx-community/Llama-3.1-8B-4bit unsloth/llama-4bit
        mistralai/Mistral-7B-Instruct-v0.3 mistralai/Mistral-Nemo-2407
        mistralai/Mistral-Small-24B-Instruct-2501 mistralai/Ministral-8B-Instruct-2410
        mistralai/Mistral-Large-Instruct-2411 mistralai/Magistral-Small-2506
        mistralai/Devstral-2-123B-Instruct-2512 google/gemma-2-9b-it google/gemma-7b google/gemma-3-1b-it
        google/gemma-3-270m gemma3:1b gemma3_text google/embeddinggemma-300m google/medgemma-27b-text-it
        google/shieldgemma-2b deepseek-ai/DeepSeek-V3 deepseek-ai/DeepSeek-R1 deepseek-ai/deepseek-vl-7b-chat
        microsoft/phi-4 microsoft/Phi-4-mini-instruct microsoft/Phi-3.5-mini-instruct openbmb/MiniCPM4-8B
        openbmb/MiniCPM3-4B openbmb/MiniCPM-Llama3-V-2_5 openbmb/MiniCPM-V-2 zai-org/GLM-4.5-Air
        zai-org/GLM-4.6 THUDM/glm-4-9b-chat moonshotai/Kimi-K2-Instruct moonshotai/Kimi-K2-Thinking
        baidu/ERNIE-4.5-21B-A3B-PT LiquidAI/LFM2-1.2B stepfun-ai/Step-3.5-Flash
        nvidia/Llama-3.1-Nemotron-Nano-8B-v1 nvidia/NVIDIA-Nemotron-Nano-12B-v2
        CohereLabs/c4ai-command-a-03-2025 CohereLabs/aya-expanse-8b allenai/OLMo-2-1124-7B-Instruct
        openai/gpt-oss-120b gpt-3.5-turbo gpt-4 o1-mini o3-mini claude-2.1 gpt-4o-audio-preview
        gpt-4o-mini-tts text-embedding-3-small whisper-large-v3 llava-hf/LLaVA-NeXT-Video-7B-hf llama4_text
        lmms-lab/llava-next-interleave-qwen-7b
        qwen3_5_text tencent/Hunyuan-A13B-Instruct vl llava:7b AIDC-AI/Ovis1.6-Gemma2-9B
        ibm-granite/granite-vision-3.2-2b Kwai-Keye/Keye-VL-1_5-8B allenai/MolmoAct-7B-D-0812
        Qwen/Qwen-VL-Chat model default"""


@pytest.mark.parametrize(("family", "model"), [(family, name) for family in NAMES for name in NAMES[family].split()])
def test_a_served_name_tells_its_family(family: str, model: str) -> None:
    assert model_type(model) == family
    assert isinstance(lookup(model), type(FAMILIES[family].rule))


@pytest.mark.parametrize("model", [name for names in NAMES.values() for name in names.split()])
def test_no_name_is_meant_by_two_rows(model: str) -> None:
    assert len(list(served(model))) == 1 or (model in FAMILIES and not list(served(model)))


def test_every_family_is_meant_by_a_name() -> None:
    assert set(NAMES) == set(FAMILIES)
    assert {row.family for row in SERVED} <= set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_its_own_name(family: str) -> None:
    assert model_type(family) == family
    assert lookup(family) == FAMILIES[family].rule


@pytest.mark.parametrize("model", ["", *BLIND.split()])
def test_a_name_that_tells_nothing_is_an_unknown_model(model: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        lookup(model)
    assert "vlm-edge families" in caught.value.message


# From the reference processors of these checkpoints, at 1280x720, and the makers' own guides.
@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("google/paligemma-3b-mix-224", Size(640, 480), 256),
        ("google/paligemma2-28b-pt-896", Size(640, 480), 4_096),
        ("gpt-4o", Size(1024, 1024), 765),
        ("gpt-4o-mini", Size(1, 1), 8_500),
        ("gpt-5", Size(1, 1), 210),
        ("o3", Size(1, 1), 225),
        ("claude-sonnet-4-5", Size(1000, 1000), 1_296),
        ("claude-sonnet-4-5", Size(1920, 1080), 1_560),
        ("claude-opus-4-7", Size(1920, 1080), 2_691),
        ("gpt-5.5", Size(4032, 3024), 11_868),
        ("gpt-5.4", Size(2560, 1440), 2_931),
        ("gpt-5.6", Size(4032, 3024), 14_364),
    ],
)
def test_a_name_brings_the_numbers_of_its_models(model: str, size: Size, tokens: int) -> None:
    assert lookup(model).image(size) == tokens


def test_the_later_kimi_takes_larger_pictures() -> None:
    size = Size(2_000, 2_000)
    assert lookup("moonshotai/Kimi-VL-A3B-Thinking-2506").image(size) > lookup("kimi_vl").image(size)


def test_a_checkpoints_own_numbers_are_laid_over() -> None:
    rule = lookup("Qwen/Qwen2.5-VL-7B-Instruct", max_pixels=1_003_520)
    assert rule.image(Size(4_000, 3_000)) <= 1_280 < lookup("Qwen/Qwen2.5-VL-7B-Instruct").image(Size(4_000, 3_000))


@pytest.mark.parametrize(("theirs", "ours"), [("patch_size", "patch"), ("merge_size", "merge")])
def test_the_names_of_a_preprocessor_config_are_taken(theirs: str, ours: str) -> None:
    assert lookup("qwen2_vl", **{theirs: 4}) == lookup("qwen2_vl", **{ours: 4})
    assert lookup("qwen2_vl", **{theirs: 4}) != lookup("qwen2_vl")


@pytest.mark.parametrize(
    ("family", "nested", "plain"),
    [
        (
            "qwen3_vl",
            {"size": {"shortest_edge": 1_024, "longest_edge": 4_096}},
            {"min_pixels": 1_024, "max_pixels": 4_096},
        ),
        (
            "qwen2_vl",
            {"size": {"max_pixels": 9_999, "min_pixels": 4}, "max_pixels": 8_888},
            {"max_pixels": 8_888, "min_pixels": 4},
        ),
        ("qwen2_vl", {"images_kwargs": {"max_pixels": 9_999}}, {"max_pixels": 9_999}),
        ("qwen2_vl", {"images_kwargs": {"size": {"longest_edge": 9_999}}}, {"max_pixels": 9_999}),
        ("qwen3_vl", {"videos_kwargs": {"size": {"longest_edge": 99_999}}}, {"video_max_pixels": 99_999}),
        ("qwen2_vl", {"videos_kwargs": {"max_pixels": 9_999, "fps": 2}}, {"video_max_pixels": 9_999}),
        ("gemma3", {"size": {"height": 448, "width": 448}}, {"side": 448}),
        ("llava_1_5", {"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}}, {"side": 224}),
        (
            "pixtral",
            {"patch_size": {"height": 14, "width": 14}, "size": {"longest_edge": 512}},
            {"patch": 14, "max_side": 512},
        ),
        ("kimi_vl", {"merge_kernel_size": [4, 4]}, {"merge": 4}),
        ("kimi_k2_5", {"media_proc_cfg": {"in_patch_limit": 99, "merge_kernel_size": 2}}, {"max_patches": 99}),
        ("kimi_k2_5", {"size": {"max_height": 99, "max_width": 99}}, {"max_side_patches": 99}),
    ],
)
def test_nested_numbers_are_those_that_they_hold(family: str, nested: dict[str, Any], plain: dict[str, Any]) -> None:
    assert lookup(family, **nested) == lookup(family, **plain) != lookup(family)


def test_what_changes_no_count_is_taken() -> None:
    assert lookup("qwen2_vl", use_fast=True, image_mean=[0.5, 0.5, 0.5], fps=1) == lookup("qwen2_vl")


def test_the_bounds_of_pictures_are_those_of_clips_unless_they_have_their_own() -> None:
    size = Size(2_000, 2_000)
    rule, own = lookup("qwen2_vl", max_pixels=50_176), lookup("qwen2_vl", max_pixels=50_176, video_max_pixels=12_544)
    assert rule.video(frames=2, size=size) == rule.image(size) == own.image(size) == 64
    assert own.video(frames=2, size=size) == 16


@pytest.mark.parametrize(
    ("family", "params"),
    [
        ("qwen2_vl", {"num_crops": 4}),
        ("qwen2_vl", {"max_pixels": 1.5}),
        ("qwen2_vl", {"max_pixels": float("nan")}),
        ("gemma3", {"side": {"height": 4, "width": 5}}),
        ("openai_tile", {"detail": "best"}),
    ],
)
def test_a_number_that_the_rule_does_not_take_is_a_config_error(family: str, params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        lookup(family, **params)
    assert next(iter(params)) in caught.value.message


@pytest.mark.parametrize(
    ("family", "params"),
    [
        ("qwen2_vl", {"patch": 0}),
        ("qwen2_vl", {"merge": -1}),
        ("qwen2_vl", {"max_pixels": 0}),
        ("qwen2_vl", {"max_pixels": -5}),
        ("qwen2_vl", {"row_tokens": -1}),
        ("qwen3_vl", {"video_max_pixels": 0}),
        ("kimi_vl", {"in_token_limit": 0}),
        ("gemma4", {"max_soft_tokens": 0}),
        ("pixtral", {"longest_edge": 0}),
        ("gemma3", {"image_size": 0}),
        ("lfm2_vl", {"min_tiles": 11}),
        ("lfm2_vl", {"tile_size": 0}),
        ("openai_tile", {"tile": 0}),
        ("openai_patch", {"multiplier": 0}),
        ("claude", {"max_long_edge": 0}),
        ("claude_legacy_estimate", {"divisor": 0}),
        ("gemini_2", {"fit_within": 0}),
    ],
)
def test_a_number_without_sense_is_a_config_error(family: str, params: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        lookup(family, **params)


@given(st.text(alphabet="abdfhjkruwxyz0123456789-_./: ", max_size=40))
def test_any_name_without_a_hint_of_vision_is_unknown(name: str) -> None:
    with pytest.raises(UnknownModel):
        model_type(name)


@given(st.text(max_size=60))
def test_no_name_is_more_than_a_family_or_an_unknown_model(name: str) -> None:
    with suppress(UnknownModel):
        assert model_type(name) in FAMILIES
