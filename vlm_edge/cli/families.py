"""vlm-edge families: which models are counted exactly, and by which rule."""

import msgspec
import typer
from rich.table import Table

from vlm_edge.cli import options
from vlm_edge.tokens import FAMILIES


def command(as_json: options.Json = False) -> None:
    """List the model families and their numbers."""
    if as_json:
        typer.echo(msgspec.json.encode(FAMILIES).decode())
        return
    table = Table("family", "rule", "cell", "numbers")
    for name, rule in FAMILIES.items():
        numbers = ", ".join(f"{field}={value:,}" for field, value in msgspec.structs.asdict(rule).items())
        table.add_row(name, type(rule).__name__, f"{rule.cell}", numbers)
    options.console().print(table)
