"""vlm-edge profiles: which there are, and what one says."""

from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from vlm_edge.cli import options
from vlm_edge.errors import UnknownProfile

Name = Annotated[str | None, typer.Argument(help="Show this one alone.")]


def command(name: Name = None, config: options.Config = None, as_json: options.Json = False) -> None:
    """List the profiles."""
    profiles = options.load(config).profiles
    if name and name not in profiles:
        raise UnknownProfile(name, profiles)
    shown = {name: profiles[name]} if name else profiles
    if as_json:
        typer.echo(msgspec.json.encode(shown).decode())
        return
    table = Table("profile", "max side", "max pixels", "format", "quality", "chroma", "pictures", "for")
    for key, one in shown.items():
        numbers = (f"{one.max_side}", f"{one.max_pixels}", one.format, f"{one.quality}", one.chroma)
        table.add_row(key, *numbers, "" if one.max_images is None else f"{one.max_images}", escape(one.description))
    options.console().print(table)
