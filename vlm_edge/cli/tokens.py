"""vlm-edge tokens: what pictures cost a model."""

import re
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape
from rich.table import Table

from vlm_edge.cli import options
from vlm_edge.errors import EdgeError, naming
from vlm_edge.geometry import Size
from vlm_edge.media.probe import probe
from vlm_edge.media.source import Bytes
from vlm_edge.plan import planned_size
from vlm_edge.settings import Settings
from vlm_edge.tokens import Rule, lookup

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Model name or family.")]
Pictures = Annotated[list[str], typer.Argument(metavar="FILE|WxH", help="Picture files, or sizes as 1280x720.")]

_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})")


def command(model: ModelName, pictures: Pictures, config: options.Config = None, as_json: options.Json = False) -> None:
    """Count the vision tokens of pictures, as they are and as each profile would send them."""
    settings = options.load(config)
    known = settings.model(model)
    rule = known.rule if known.exact else lookup(model)  # lookup says what is known
    rows = [_row(name, rule, settings) for name in pictures]
    if as_json:
        typer.echo(orjson.dumps(rows))
    else:
        _print(rows, list(settings.profiles))
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _row(name: str, rule: Rule, settings: Settings) -> dict[str, Any]:
    try:
        with naming(name):
            size = _size(name)
            costs = {
                profile: rule.image(size if size.fits(one.max_side, one.max_pixels) else planned_size(size, one, rule))
                for profile, one in settings.profiles.items()
            }
            return {"picture": name, "size": list(size), "tokens": rule.image(size), "profiles": costs}
    except EdgeError as error:
        return {"picture": name, "error": error.message}


def _size(name: str) -> Size:
    if match := _SIZE.fullmatch(name):
        size = Size(int(match[1]), int(match[2]))
        if not size.short:
            raise EdgeError("a side must have at least one pixel")
        return size
    try:
        return probe(Bytes(Path(name).read_bytes())).size
    except OSError as error:
        raise EdgeError(f"{error.strerror}") from None


def _print(rows: list[dict[str, Any]], profiles: list[str]) -> None:
    table = Table("picture", "size", "as it is", *profiles)
    for row in rows:
        if "error" in row:
            table.add_row(escape(row["picture"]), f"[red]{escape(row['error'])}")
        else:
            costs = [f"{row['profiles'][profile]:,}" for profile in profiles]
            table.add_row(escape(row["picture"]), f"{Size(*row['size'])}", f"{row['tokens']:,}", *costs)
    options.console().print(table)
