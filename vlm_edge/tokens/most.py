"""Most: an upper bound for models whose family nobody knows: what the dearest of all families would count."""

from functools import cache
from typing import Any

from vlm_edge.errors import UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.tokens.families import FAMILIES
from vlm_edge.tokens.lookup import laid_over
from vlm_edge.tokens.rule import Rule
from vlm_edge.tokens.served import SERVED


class AtMost(Rule, frozen=True, kw_only=True):
    """The most that any of some rules counts. A size that one refuses costs what it does with the others."""

    rules: tuple[Any, ...]

    def image(self, size: Size) -> int:
        counts = [count for rule in self.rules if (count := _count(rule, size)) is not None]
        if not counts:
            raise UnsupportedMedia(f"a picture of {size}, which no model takes")
        return max(counts)


def _count(rule: Rule, size: Size) -> int | None:
    try:
        return rule.image(size)
    except UnsupportedMedia:
        return None


@cache
def dearest() -> AtMost:
    """Over all families whose counts are exact, with all numbers that names tell."""
    named = ((row.family, row.numbers) for row in SERVED)
    numbers = [*((name, {}) for name in FAMILIES), *named]
    exact = (laid_over(FAMILIES[name].rule, values, name) for name, values in numbers if FAMILIES[name].exact)
    rules = tuple(dict.fromkeys(exact))
    return AtMost(rules=rules, template_tokens=max(rule.template_tokens for rule in rules))
