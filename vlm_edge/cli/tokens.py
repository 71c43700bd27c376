"""vlm-edge tokens: what pictures cost a model."""

import re
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape
from rich.table import Table

from vlm_edge.cli import options
from vlm_edge.errors import EdgeError
from vlm_edge.geometry import Size
from vlm_edge.media.probe import Probe, probe
from vlm_edge.media.source import Bytes
from vlm_edge.plan import plan_picture
from vlm_edge.settings import Settings
from vlm_edge.tokens import Rule, lookup

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Model name or family.")]
Pictures = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE|WxH]...", help="Picture files, or sizes. Default: common sizes.")
]

COMMON_SIZES = ["640x480", "1280x720", "1920x1080", "2480x3508", "4032x3024"]  # VGA, HD, A4 at 300 dpi, a phone

_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})")


def command(
    model: ModelName, pictures: Pictures = None, config: options.Config = None, as_json: options.Json = False
) -> None:
    """Count the vision tokens of pictures, as they are and as each profile would send them."""
    settings = options.load(config)
    known = settings.model(model)
    rule = known.rule if known.exact else lookup(model)  # lookup says what is known
    rows = [_row(name, rule, settings) for name in pictures or COMMON_SIZES]
    if as_json:
        typer.echo(orjson.dumps(rows))
    else:
        _print(rows, list(settings.profiles))
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _row(name: str, rule: Rule, settings: Settings) -> dict[str, Any]:
    try:
        found = _probe(name)
        plans = {
            profile: plan_picture(name, found, one, rule, settings.limits) for profile, one in settings.profiles.items()
        }
    except EdgeError as error:
        return {"picture": name, "error": error.message}
    costs = {profile: planned.tokens for profile, planned in plans.items()}
    return {"picture": name, "size": list(found.size), "tokens": rule.image(found.size), "profiles": costs}


def _probe(name: str) -> Probe:
    """Of a file; or of a plain JPEG of that size."""
    if match := _SIZE.fullmatch(name):
        size = Size(int(match[1]), int(match[2]))
        if not size.short:
            raise EdgeError("a side must have at least one pixel")
        return Probe(media_type="image/jpeg", size=size, file_bytes=0, srgb=True)
    try:
        return probe(Bytes(Path(name).read_bytes()))
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
