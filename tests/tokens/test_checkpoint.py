"""The files are short forms of those of published checkpoints."""

from typing import Any

import pytest

from vlm_edge.errors import UnknownModel
from vlm_edge.geometry import Size
from vlm_edge.tokens import FAMILIES, lookup
from vlm_edge.tokens.checkpoint import checkpoint_rule

QWEN2_VL = {
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2VLProcessor",
}
QWEN3_VL = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
}
QWEN3_VL_VIDEO = {**QWEN3_VL, "size": {"longest_edge": 25165824, "shortest_edge": 4096}, "fps": 2, "min_frames": 4}
GEMMA_3 = {
    "do_convert_rgb": None,
    "do_pan_and_scan": None,
    "do_resize": True,
    "image_processor_type": "Gemma3ImageProcessor",
    "image_seq_length": 256,
    "pan_and_scan_max_num_crops": None,
    "processor_class": "Gemma3Processor",
    "size": {"height": 896, "width": 896},
}
PIXTRAL = {
    "do_resize": True,
    "image_processor_type": "PixtralImageProcessor",
    "patch_size": {"height": 16, "width": 16},
    "processor_class": "PixtralProcessor",
    "size": {"longest_edge": 1024},
}
MISTRAL_3 = {**PIXTRAL, "patch_size": 14, "size": {"longest_edge": 1540}}
INTERNVL_CHAT = {
    "architectures": ["InternVLChatModel"],
    "model_type": "internvl_chat",
    "downsample_ratio": 0.5,
    "dynamic_image_size": True,
    "force_image_size": 448,
    "max_dynamic_patch": 12,
    "min_dynamic_patch": 1,
    "use_thumbnail": True,
    "llm_config": {"model_type": "qwen2"},
    "vision_config": {"model_type": "intern_vit_6b", "image_size": 448, "patch_size": 14},
}
CLIP = {"crop_size": 448, "size": 448, "image_processor_type": "CLIPFeatureExtractor", "do_center_crop": True}
KIMI_VL = {
    "auto_map": {"AutoImageProcessor": "image_processing_kimi_vl.KimiVLImageProcessor"},
    "in_token_limit": 4096,
    "patch_size": 14,
    "num_pooled_tokens": 1024,
    "image_processor_type": "KimiVLImageProcessor",
    "merge_kernel_size": [2, 2],
}
KIMI_K2_5 = {
    "media_proc_cfg": {
        "in_patch_limit": 16384,
        "patch_size": 14,
        "merge_kernel_size": 2,
        "patch_limit_on_one_side": 512,
        "image_mean": [0.5, 0.5, 0.5],
    }
}
LLAVA = {
    "crop_size": {"height": 336, "width": 336},
    "size": {"shortest_edge": 336},
    "image_processor_type": "CLIPImageProcessor",
}
SMOLVLM_256M = {
    "do_image_splitting": True,
    "image_processor_type": "SmolVLMImageProcessor",
    "max_image_size": {"longest_edge": 512},
    "size": {"longest_edge": 2048},
    "image_seq_len": 64,
    "video_sampling": {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 512}},
}


@pytest.mark.parametrize(
    ("config", "preprocessor", "family"),
    [
        ({"model_type": "qwen2_vl"}, QWEN2_VL, "qwen2_vl"),
        ({"model_type": "qwen2_5_vl"}, QWEN2_VL, "qwen2_5_vl"),
        ({"model_type": "qwen3_vl_moe"}, QWEN3_VL, "qwen3_vl"),
        ({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]}, GEMMA_3, "gemma3"),
        ({"model_type": "llava", "vision_config": {"model_type": "pixtral"}}, PIXTRAL, "pixtral"),
        ({"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"]}, MISTRAL_3, "mistral3"),
        (INTERNVL_CHAT, CLIP, "internvl_chat"),
        ({"model_type": "internvl"}, {"size": {"height": 448, "width": 448}, "crop_to_patches": False}, "internvl"),
        ({"model_type": "kimi_vl"}, KIMI_VL, "kimi_vl"),
        ({"model_type": "kimi_k25"}, KIMI_K2_5, "kimi_k2_5"),
        ({"model_type": "llava"}, LLAVA, "llava_1_5"),
        ({"model_type": "qwen3_5"}, {"image_processor": QWEN3_VL, "video_processor": QWEN3_VL_VIDEO}, "qwen3_5"),
    ],
)
def test_a_published_checkpoint_has_the_numbers_of_its_family(
    config: dict[str, Any], preprocessor: dict[str, Any], family: str
) -> None:
    found, rule = checkpoint_rule(config, preprocessor)
    assert found == family
    for size in (Size(10, 15), Size(1_280, 720), Size(3_000, 4_000)):
        assert rule.image(size) == FAMILIES[family].rule.image(size)
        assert rule.aligned(size) == FAMILIES[family].rule.aligned(size)


@pytest.mark.parametrize(
    ("config", "preprocessor", "family"),
    [
        ({"model_type": "glm4v_moe"}, {"processor_class": "Glm4vProcessor"}, "glm4_1v"),
        ({"model_type": "glm4v_moe"}, {"processor_class": "Glm46VProcessor"}, "glm4_6v"),
        ({"model_type": "glm4v"}, {"image_processor": {"image_processor_type": "Glm46VImageProcessor"}}, "glm4_6v"),
        (
            {"model_type": "glm_ocr", "architectures": ["GlmOcrForConditionalGeneration"]},
            {"processor_class": "Glm46VProcessor"},
            "glm_ocr",
        ),
        ({"model_type": "chatglm", "architectures": ["ChatGLMModel"], "vision_config": {}}, {}, "glm_4v"),
        ({"model_type": "deepseek_vl_v2", "architectures": ["DeepseekOCRForCausalLM"]}, {}, "deepseek_ocr"),
        ({"model_type": "deepseek_vl_v2", "architectures": ["DeepseekVLV2ForCausalLM"]}, {}, "deepseek_vl2"),
        ({"model_type": "minicpmv", "version": 2.6}, {}, "minicpmv2_6"),
        ({"model_type": "minicpmv", "version": 4.5}, {}, "minicpmv2_6"),
        ({"model_type": "phi3_v"}, {"num_crops": 4}, "phi3_5_vision"),
        ({}, {"image_processor_type": "Gemma4ImageProcessor"}, "gemma4"),
    ],
)
def test_classes_tell_families_of_one_model_type_apart(
    config: dict[str, Any], preprocessor: dict[str, Any], family: str
) -> None:
    assert checkpoint_rule(config, preprocessor)[0] == family


@pytest.mark.parametrize(
    ("config", "preprocessor", "expected"),
    [
        ({"model_type": "qwen2_vl"}, {**QWEN2_VL, "max_pixels": 1003520}, lookup("qwen2_vl", max_pixels=1003520)),
        (
            {"model_type": "qwen3_vl"},
            {**QWEN3_VL, "size": {"longest_edge": 2**20, "shortest_edge": 2**16}},
            lookup("qwen3_vl", max_pixels=2**20),
        ),
        (
            {"model_type": "mistral3"},
            {**MISTRAL_3, "size": {"longest_edge": 1024}},
            lookup("mistral3", longest_edge=1024),
        ),
        (
            {**INTERNVL_CHAT, "max_dynamic_patch": 6, "use_thumbnail": False},
            CLIP,
            lookup("internvl_chat", max_dynamic_patch=6, use_thumbnail=False),
        ),
        ({**INTERNVL_CHAT, "force_image_size": None}, CLIP, lookup("internvl_chat")),
        ({"model_type": "kimi_vl"}, {**KIMI_VL, "in_token_limit": 16384}, lookup("kimi_vl", in_token_limit=16384)),
        (
            {"model_type": "llava", "vision_feature_select_strategy": "full"},
            LLAVA,
            lookup("llava_1_5", vision_feature_select_strategy="full"),
        ),
        ({"model_type": "smolvlm"}, SMOLVLM_256M, lookup("HuggingFaceTB/SmolVLM2-256M-Video-Instruct")),
    ],
)
def test_a_checkpoint_brings_its_own_numbers(
    config: dict[str, Any], preprocessor: dict[str, Any], expected: Any
) -> None:
    rule = checkpoint_rule(config, preprocessor)[1]
    for size in (Size(10, 15), Size(1_280, 720), Size(3_000, 4_000)):
        assert rule.image(size) == expected.image(size)


def test_clips_have_the_bounds_of_the_file_beside() -> None:
    video = {**QWEN3_VL_VIDEO, "size": {"longest_edge": 2**20, "shortest_edge": 4096}}
    _, rule = checkpoint_rule({"model_type": "qwen3_vl"}, QWEN3_VL, video)
    assert rule == lookup("qwen3_vl", video_max_pixels=2**20)


def test_pan_and_scan_of_the_file_is_overruled_by_the_processor() -> None:
    _, rule = checkpoint_rule({"model_type": "gemma3"}, {**GEMMA_3, "do_pan_and_scan": True})
    assert rule.image(Size(2_000, 500)) == 260


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "qwen2"},
        {"model_type": "gemma3_text"},
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        {"model_type": "chatglm", "architectures": ["ChatGLMModel"]},
        {"model_type": "minicpmv", "version": 2.5},
        {"model_type": 7, "architectures": None, "version": "x"},
    ],
)
def test_a_checkpoint_of_no_known_family_is_an_unknown_model(config: dict[str, Any]) -> None:
    with pytest.raises(UnknownModel):
        checkpoint_rule(config, {})


def test_a_smolvlm_that_calls_itself_idefics3_is_told_by_its_tiles() -> None:
    preprocessor = {"size": {"longest_edge": 2_048}, "max_image_size": {"longest_edge": 512}, "image_seq_len": 64}
    family, rule = checkpoint_rule({"model_type": "idefics3"}, preprocessor)
    assert (family, rule) == ("smolvlm", lookup("ibm-granite/granite-docling-258M"))
    old = {"size": {"longest_edge": 1_456}, "max_image_size": {"longest_edge": 364}}
    assert checkpoint_rule({"model_type": "idefics3"}, old)[0] == "idefics3"


def test_an_encoder_without_a_class_token_adds_none() -> None:
    """384 / 14 is 27 patches a side."""
    config = {
        "model_type": "llava",
        "vision_feature_select_strategy": "full",
        "vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14},
    }
    assert checkpoint_rule(config, {})[1].image(Size(640, 480)) == 729


def test_a_processor_tells_more_than_the_class_of_its_pictures() -> None:
    qwen3 = {"image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor"}
    assert checkpoint_rule({}, {**qwen3, "patch_size": 16.0})[0] == "qwen3_vl"


@pytest.mark.parametrize("odd", [[], {}, 7, None])
def test_odd_values_are_no_crash(odd: object) -> None:
    config = {"model_type": "qwen2_vl", "vision_config": {"model_type": odd}, "architectures": odd, "version": odd}
    assert checkpoint_rule(config, {})[0] == "qwen2_vl"
