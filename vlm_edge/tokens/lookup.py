"""Lookup: served model name or `model_type` → the rule of its family, with a checkpoint's own numbers laid over."""

import re

import msgspec

from vlm_edge.errors import ConfigError, UnknownModel
from vlm_edge.tokens.families import FAMILIES
from vlm_edge.tokens.rules import Rule

# Served names carry an owner, a size, a quantisation, a date …; the family is a word inside. First match wins.
PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"qwen3[-_.]?vl"), "qwen3_vl"),
    (re.compile(r"qwen2[._-]5[-_.]?vl"), "qwen2_5_vl"),
    (re.compile(r"qwen2[-_.]?vl"), "qwen2_vl"),
)

# The names that checkpoints' preprocessor_config.json files use → ours.
PARAMETERS = {"patch_size": "patch", "merge_size": "merge", "temporal_patch_size": "temporal_patch"}


def model_type(model: str) -> str:
    """The family of a served name (`Qwen/Qwen2.5-VL-7B-Instruct` → `qwen2_5_vl`), else UnknownModel."""
    if model in FAMILIES:
        return model
    for pattern, family in PATTERNS:
        if pattern.search(model.lower()):
            return family
    raise UnknownModel(model, FAMILIES)


def lookup(model: str, **params: float) -> Rule:
    """The rule that counts for a model.

    `params` are the processor's numbers (`max_pixels=1_003_520`), under our names or those of
    preprocessor_config.json. Raises UnknownModel, and ConfigError for a parameter that the rule does not have.
    """
    rule = FAMILIES[model_type(model)]
    values = msgspec.structs.asdict(rule) | {PARAMETERS.get(name, name): value for name, value in params.items()}
    try:
        return msgspec.convert(values, type(rule))
    except msgspec.ValidationError as error:
        raise ConfigError(f"the family of {model!r}: {error}") from error
