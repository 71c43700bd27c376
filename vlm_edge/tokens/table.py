"""Table: the families for people to read, as `vlm-edge families` and the README show them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from vlm_edge.tokens.families import Family
from vlm_edge.tokens.rule import Rule

TITLES = ("family", "rule", "numbers", "grid", "around", "checked on", "source")


class Row(NamedTuple):
    """numbers: those that are not the rule's own defaults. grid: what sides are rounded to, in pixels. around: tokens
    that the chat template writes around a picture."""

    family: str
    rule: str
    numbers: str
    grid: str
    around: str
    model: str
    source: str


def rows(families: Mapping[str, Family]) -> Iterator[Row]:
    for name, family in families.items():
        rule = family.rule
        yield Row(
            family=name,
            rule=type(rule).__name__,
            numbers=", ".join(f"{field} {_short(value)}" for field, value in _numbers(rule)),
            grid=f"{rule.cell}" if rule.cell > 1 else "",
            around=f"{rule.template_tokens or ''}",
            model=family.model,
            source=family.source if family.exact else f"{family.source}; an estimate",
        )


def markdown(families: Mapping[str, Family]) -> str:
    """The table as the README has it."""
    lines = [TITLES, ("---",) * len(TITLES), *rows(families)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _numbers(rule: Rule) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(type(rule)):
        value = getattr(rule, field.name)
        if value != field.default and field.name != "template_tokens":
            yield field.name, value


def _short(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > 6:
        return f"({len(value)})"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"
