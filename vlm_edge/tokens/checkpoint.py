"""Checkpoint: from the files of a checkpoint, parsed, to its family and the rule with its own numbers."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vlm_edge.errors import UnknownModel
from vlm_edge.tokens.families import FAMILIES
from vlm_edge.tokens.lookup import flat, laid_over
from vlm_edge.tokens.rule import Rule
from vlm_edge.tokens.served import served

# Classes that tell more than the `model_type` beside them, which several preprocessings share.
CLASSES = {
    "ChatGLMForConditionalGeneration": "glm_4v",
    "ChatGLMModel": "glm_4v",
    "DeepseekOCR2ForCausalLM": "deepseek_ocr2",
    "DeepseekOCRForCausalLM": "deepseek_ocr",
    "Glm46VImageProcessor": "glm4_6v",
    "Glm46VImageProcessorFast": "glm4_6v",
    "Glm46VProcessor": "glm4_6v",
    "GlmOcrForConditionalGeneration": "glm_ocr",
    "MiniCPMV4_6ForConditionalGeneration": "minicpmv4_6",
}

# Classes of which only the models with a `vision_config` see.
TEXT_TOO = frozenset({"ChatGLMForConditionalGeneration", "ChatGLMModel"})

# Of one `model_type`, those whose encoder is of this one.
ENCODERS: dict[tuple[str, Any], str] = {("llava", "pixtral"): "pixtral"}

# Of one `model_type`, releases before these were preprocessed in another way.
OLDEST = {"minicpmv": 2.6, "minicpmo": 2.6}

# Numbers that stand in config.json; all others stand in the files of the processor.
INTERNVL = (
    "min_dynamic_patch",
    "max_dynamic_patch",
    "use_thumbnail",
    "dynamic_image_size",
    "downsample_ratio",
    "patch_size",
    "vision_config.patch_size",
    "vision_config.image_size",
    "force_image_size",
)
IN_CONFIG: dict[str, tuple[str, ...]] = {
    "internvl_chat": INTERNVL,
    "nemotron_nano_vl": INTERNVL,
    "nemotron_nano_v2_vl": INTERNVL,
    "llava_1_5": ("vision_feature_select_strategy", "vision_config.patch_size", "vision_config.image_size"),
}

# Of one `model_type`, those that cut pictures into tiles of these sizes write their places in tokens of their own.
BY_TILE = {("idefics3", 384): "smolvlm", ("idefics3", 512): "smolvlm"}

# Encoders that have no token for a picture as a whole.
WITHOUT_CLASS = frozenset({"siglip_vision_model", "siglip2_vision_model"})

# The processor's own default stands over what the file of its image processor says.
OVERRULED = frozenset({"crop_to_patches", "do_pan_and_scan"})


def checkpoint_rule(
    config: Mapping[str, Any], preprocessor: Mapping[str, Any], video: Mapping[str, Any] | None = None
) -> tuple[str, Rule]:
    """Family and rule of parsed config.json, preprocessor_config.json (or processor_config.json, or both in one), and
    video_preprocessor_config.json. Names that the rule does not know are left out. Raises UnknownModel."""
    family = _family(config, preprocessor)
    family = BY_TILE.get((family, _tile(preprocessor)), family)
    rule = FAMILIES[family].rule
    for numbers in (dict(_from_config(config, family)), preprocessor, {"video_processor": video or {}}):
        rule = laid_over(rule, dict(_known(numbers, rule)), family)
    return family, rule


def _family(config: Mapping[str, Any], preprocessor: Mapping[str, Any]) -> str:
    model_type, encoder = str(config.get("model_type", "")), config.get("vision_config")
    classes = [*_classes(config.get("architectures")), *_processors(preprocessor)]
    inner = _encoder(config)
    told = [CLASSES[name] for name in classes if name in CLASSES and (name not in TEXT_TOO or encoder is not None)]
    if (model_type, inner) in ENCODERS:
        return ENCODERS[model_type, inner]
    if told:
        return told[0]
    if not _is_too_old(model_type, config.get("version")):
        for row in (row for name in (model_type, *classes) for row in served(name)):
            return row.family
    raise UnknownModel(model_type)


def _tile(preprocessor: Mapping[str, Any]) -> int:
    tile = dict(flat(preprocessor)).get("max_image_size")
    return tile if isinstance(tile, int) else 0


def _is_too_old(model_type: str, release: Any) -> bool:
    return isinstance(release, int | float) and release < OLDEST.get(model_type, 0)


def _processors(preprocessor: Mapping[str, Any]) -> Iterator[str]:
    inner = preprocessor.get("image_processor")
    for file in (preprocessor, inner if isinstance(inner, Mapping) else {}):
        yield from (str(file[key]) for key in ("processor_class", "image_processor_type") if file.get(key))


def _classes(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def _encoder(config: Mapping[str, Any]) -> str:
    encoder = config.get("vision_config")
    return str(encoder.get("model_type", "")) if isinstance(encoder, Mapping) else ""


def _from_config(config: Mapping[str, Any], family: str) -> Iterator[tuple[str, Any]]:
    if _encoder(config) in WITHOUT_CLASS:
        yield "num_additional_image_tokens", 0
    for place in IN_CONFIG.get(family, ()):
        group, _, name = place.rpartition(".")
        numbers = config.get(group) if group else config
        if isinstance(numbers, Mapping):
            yield name, numbers.get(name)


def _known(numbers: Mapping[str, Any], rule: Rule) -> Iterator[tuple[str, Any]]:
    fields = set(msgspec.structs.asdict(rule)) - {"template_tokens"}
    for name, value in flat(numbers):
        if value is not None and name not in OVERRULED and rule.names.get(name, name) in fields:
            yield name, value
