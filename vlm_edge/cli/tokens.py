"""vlm-edge tokens: what pictures cost a model."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape
from rich.table import Table

from vlm_edge.cli import options
from vlm_edge.edge import Edge
from vlm_edge.errors import EdgeError
from vlm_edge.geometry import Size
from vlm_edge.media.probe import Probe
from vlm_edge.plan import PicturePlan, plan_picture
from vlm_edge.tokens import lookup

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Model name or family.")]
Pictures = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE|WxH]...", help="Pictures, documents, or sizes. Default: common sizes."),
]

COMMON_SIZES = ["640x480", "1280x720", "1920x1080", "2480x3508", "4032x3024"]  # VGA, HD, A4 at 300 dpi, a phone

_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})")


def command(
    model: ModelName, pictures: Pictures = None, config: options.Config = None, as_json: options.Json = False
) -> None:
    """Count the vision tokens of pictures, as they are and as each profile would send them."""
    edge = Edge(options.load(config))
    if not edge.settings.model(model).exact:
        lookup(model)  # which says what is known
    rows = [_row(name, model, edge) for name in pictures or COMMON_SIZES]
    if as_json:
        typer.echo(orjson.dumps(rows))
    else:
        _print(rows, list(edge.settings.profiles))
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _row(name: str, model: str, edge: Edge) -> dict[str, Any]:
    """A profile that refuses has no number; a picture that all of them refuse is an error."""
    plans, refusals = dict[str, Sequence[PicturePlan]](), dict[str, EdgeError]()
    for profile in edge.settings.profiles:
        try:
            plans[profile] = _plans(name, profile, model, edge)
        except EdgeError as error:
            refusals[profile] = error
    if not plans:
        return {"picture": name, "error": next(iter(refusals.values())).message}
    as_it_is = max(plans.values(), key=len)
    return {
        "picture": name,
        "size": list(as_it_is[0].probe.size),
        **({"pages": as_it_is[0].probe.pages} if as_it_is[0].probe.pages > 1 else {}),
        "tokens": sum(one.tokens_before for one in as_it_is),
        "profiles": {profile: _sum(plans.get(profile)) for profile in edge.settings.profiles},
    }


def _sum(plans: Sequence[PicturePlan] | None) -> int | None:
    return sum(one.tokens for one in plans) if plans else None


def _plans(name: str, profile: str, model: str, edge: Edge) -> Sequence[PicturePlan]:
    """Of the pages of a file; or of a plain JPEG of that size."""
    settings = edge.settings
    if match := _SIZE.fullmatch(name):
        probe = _plain(Size(int(match[1]), int(match[2])))
        return [plan_picture(name, probe, settings.profiles[profile], settings.model(model).rule, settings.limits)]
    try:
        return edge.plan_pages(Path(name).read_bytes(), profile, model)
    except OSError as error:
        raise EdgeError(f"{error.strerror}") from None


def _plain(size: Size) -> Probe:
    if not size.short:
        raise EdgeError("a side must have at least one pixel")
    return Probe(media_type="image/jpeg", size=size, file_bytes=0, srgb=True)


def _print(rows: list[dict[str, Any]], profiles: list[str]) -> None:
    table = Table("picture", "size", "as it is", *profiles)
    for row in rows:
        if "error" in row:
            table.add_row(escape(row["picture"]), f"[red]{escape(row['error'])}")
        else:
            costs = ["refused" if cost is None else f"{cost:,}" for cost in row["profiles"].values()]
            table.add_row(escape(row["picture"]), f"{Size(*row['size'])}", f"{row['tokens']:,}", *costs)
    options.console().print(table)
