"""Lookup: served model name or `model_type` → the rule of its family, with a checkpoint's own numbers laid over."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vlm_edge.errors import ConfigError, EdgeError, UnknownModel
from vlm_edge.geometry import Size
from vlm_edge.tokens.families import FAMILIES
from vlm_edge.tokens.rule import Rule
from vlm_edge.tokens.served import served

# What processors' files and `--mm-processor-kwargs` say beside sizes; nothing of it changes a count.
COUNTLESS = frozenset(
    "auto_map chat_template data_format device disable_grouping do_center_crop do_convert_rgb "
    "do_normalize do_pad do_rescale do_sample_frames feature_extractor_type fps image_mean image_processor_type "
    "image_std image_token input_data_format max_frames min_frames num_frames pad_size processor_class resample "
    "rescale_factor return_metadata return_tensors use_fast video_processor_type video_token".split()
)

# Numbers that files put together under one of these names, and the prefix that they have here.
PICTURES = ("size", "images_kwargs", "image_processor", "media_proc_cfg")
CLIPS = ("videos_kwargs", "video_processor")
GROUPS = {**dict.fromkeys(PICTURES, ""), **dict.fromkeys(CLIPS, "video_")}

# Grids of tiles are listed one by one.
TILES = ("max_tiles", "min_tiles", "max_slices")
MAX_TILES = 1_024
TRIED = (Size(1, 1), Size(640, 480), Size(4_000, 3_000), Size(50, 2_000))

# The geometries there are, by name.
RULES: dict[str, type[Rule]] = {type(family.rule).__name__: type(family.rule) for family in FAMILIES.values()}


def model_type(model: str) -> str:
    """The family of a served name (`Qwen/Qwen2.5-VL-7B-Instruct` → `qwen2_5_vl`), else UnknownModel."""
    return _named(model)[0]


def lookup(model: str, **params: Any) -> Rule:
    """The rule that counts for a model.

    `params` are the processor's numbers (`max_pixels=1_003_520`), under our names or those of
    preprocessor_config.json. Raises UnknownModel, and ConfigError for a parameter that the rule does not have.
    """
    family, numbers = _named(model)
    return laid_over(laid_over(FAMILIES[family].rule, numbers, model), params, model)


def own_rule(name: str, values: Mapping[str, Any]) -> Rule:
    """The rule of a family of one's own: a table with `rule`, the name of a class, and all its numbers; or with `like`,
    a family, and those in which it differs. Raises ConfigError, and UnknownModel for what it should be like."""
    numbers = {key: value for key, value in values.items() if key not in ("rule", "like")}
    if "like" in values and "rule" not in values:
        return laid_over(lookup(str(values["like"])), numbers, name)
    rule = RULES.get(str(values.get("rule", "")))
    if rule is None or "like" in values:
        raise ConfigError(f"the family {name!r}: rule must be one of {', '.join(sorted(RULES))}, or like a family")
    return _made({**numbers, "rule": rule.__name__}, rule, name)


def laid_over(rule: Rule, params: Mapping[str, Any], model: str) -> Rule:
    """The rule with other numbers, as settings and processors' files give them. Raises ConfigError for those that it
    does not have."""
    fields = msgspec.structs.asdict(rule)
    for name, value in flat(params):
        field = rule.names.get(name, name)
        if field in fields or (field and name.removeprefix("video_") not in COUNTLESS):
            fields[field] = _plain(value, fields.get(field))
    return _made({**fields, "rule": type(rule).__name__}, type(rule), model)


def _made(fields: Mapping[str, Any], kind: type[Rule], name: str) -> Rule:
    """The rule, tried out on some sizes: what its numbers make impossible shall not show in a request."""
    try:
        rule = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the family of {name!r}: {error}") from error
    if any(getattr(rule, field, 0) > MAX_TILES for field in TILES):
        raise ConfigError(f"the family of {name!r}: at most {MAX_TILES} tiles are counted")
    if rule.template_tokens < 0 or not all(_counts(rule, size) for size in TRIED):
        raise ConfigError(f"the family of {name!r}: by these numbers nothing can be counted")
    return rule


def _counts(rule: Rule, size: Size) -> bool:
    """Whether it counts something for a size, or refuses it."""
    try:
        return rule.image(size) > 0
    except EdgeError:
        return True
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False


def flat(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of nested files; what stands outside of a group weighs more, so it comes last.

    `size: {shortest_edge, longest_edge}` are these two, `crop_size: {height, width}` of one length is crop_size.
    """
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _grouped(name, value)
    for name, value in params.items():
        if not isinstance(value, Mapping):
            yield name, value


def _grouped(name: str, group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    square = {"height", "width"} <= set(group) and group["height"] == group["width"]
    if square:
        yield name, group["height"]
    elif name in GROUPS:
        yield from ((GROUPS[name] + inner, value) for inner, value in flat(group))
    elif len(group) == 1:
        yield name, next(iter(group.values()))
    else:
        yield name, group


def _named(model: str) -> tuple[str, Mapping[str, Any]]:
    if model in FAMILIES:
        return model, {}
    for row in served(model):
        return row.family, row.numbers
    raise UnknownModel(model)


def _plain(value: Any, known: Any) -> Any:
    """One number where a file gives the same for both sides, and a whole one where it gives it a point."""
    if isinstance(value, float) and isinstance(known, int) and value.is_integer():
        return int(value)
    pair = isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]
    return value[0] if pair and isinstance(known, int) else value
