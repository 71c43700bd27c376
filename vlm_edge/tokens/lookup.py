"""Lookup: served model name or `model_type` → the rule of its family, with a checkpoint's own numbers laid over."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from vlm_edge.errors import ConfigError, UnknownModel
from vlm_edge.tokens.families import FAMILIES
from vlm_edge.tokens.rule import Rule

# Served names carry an owner, a size, a quantisation, a date …; the family is a word inside. First match wins.
PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"qwen3[-_.]?vl"), "qwen3_vl"),
    (re.compile(r"qwen2[._-]5[-_.]?vl"), "qwen2_5_vl"),
    (re.compile(r"qwen2[-_.]?vl"), "qwen2_vl"),
)

def model_type(model: str) -> str:
    """The family of a served name (`Qwen/Qwen2.5-VL-7B-Instruct` → `qwen2_5_vl`), else UnknownModel."""
    if model in FAMILIES:
        return model
    for pattern, family in PATTERNS:
        if pattern.search(model.lower()):
            return family
    raise UnknownModel(model, FAMILIES)


def lookup(model: str, **params: Any) -> Rule:
    """The rule that counts for a model.

    `params` are the processor's numbers (`max_pixels=1_003_520`), under our names or those of
    preprocessor_config.json. Raises UnknownModel, and ConfigError for a parameter that the rule does not have.
    """
    return laid_over(FAMILIES[model_type(model)].rule, params, model)


def laid_over(rule: Rule, params: Mapping[str, Any], model: str) -> Rule:
    """The rule with other numbers. Raises ConfigError for those that it does not have."""
    fields = msgspec.structs.asdict(rule)
    for name, value in params.items():
        field = rule.names.get(name, name)
        if field:
            fields[field] = _plain(value, fields.get(field))
    try:
        return msgspec.convert({"rule": type(rule).__name__, **fields}, type(rule))
    except msgspec.ValidationError as error:
        raise ConfigError(f"the family of {model!r}: {error}") from error


def _plain(value: Any, known: Any) -> Any:
    """One number where a file gives the same for both sides."""
    pair = isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]
    return value[0] if pair and isinstance(known, int) else value
