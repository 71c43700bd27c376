"""vlm-edge families: which models are counted, by which rule and numbers."""

from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from vlm_edge.cli import options
from vlm_edge.tokens import FAMILIES
from vlm_edge.tokens.families import Family
from vlm_edge.tokens.table import TITLES, markdown, rows

Markdown = Annotated[bool, typer.Option("--markdown", help="The table of the README.")]


def command(as_json: options.Json = False, as_markdown: Markdown = False) -> None:
    """List the model families and their numbers."""
    if as_json:
        typer.echo(msgspec.json.encode({name: _numbers(family) for name, family in FAMILIES.items()}))
    elif as_markdown:
        typer.echo(markdown(FAMILIES))
    else:
        table = Table(*TITLES)
        for row in rows(FAMILIES):
            table.add_row(*row)
        options.console().print(table)


def _numbers(family: Family) -> dict[str, Any]:
    """Of a family, and where they are from."""
    return {**msgspec.to_builtins(family.rule), "model": family.model, "source": family.source, "exact": family.exact}
