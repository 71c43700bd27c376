"""vlm-edge tokens: what pictures cost a model."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import orjson
import typer
from rich.markup import escape
from rich.table import Table

from vlm_edge.checkpoint import folder_of
from vlm_edge.cli import options
from vlm_edge.edge import Edge
from vlm_edge.errors import EdgeError
from vlm_edge.estimate import Cost
from vlm_edge.geometry import Size
from vlm_edge.media.probe import Probe
from vlm_edge.models import ModelSettings
from vlm_edge.plan import Certainty, Subject, plan
from vlm_edge.settings import Settings

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Model name, family, or folder of a checkpoint.")]
Pictures = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE|WxH]...", help="Pictures, documents, or sizes. Default: common sizes."),
]

COMMON_SIZES = ["640x480", "1280x720", "1920x1080", "2480x3508", "4032x3024"]  # VGA, HD, A4 at 300 dpi, a phone

MARKS: dict[Certainty, str] = {"exact": "", "estimate": "≈", "at most": "≤"}

_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})")


def command(
    model: ModelName, pictures: Pictures = None, config: options.Config = None, as_json: options.Json = False
) -> None:
    """Count the vision tokens of pictures, as they are and as each profile would send them."""
    edge = Edge(_knowing(options.load(config), model))
    certainty = edge.models.get(model).model.certainty
    costs = {name: _costs(name, model, edge) for name in pictures or COMMON_SIZES}
    rows = [_row(name, found, certainty) for name, found in costs.items()]
    if as_json:
        typer.echo(orjson.dumps(rows))
    else:
        _print(rows, _together(costs, model, edge), list(edge.settings.profiles), MARKS[certainty])
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _knowing(settings: Settings, model: str) -> Settings:
    """The settings, with an entry for a checkpoint that is named by its folder; a model of no family is an error."""
    entry = {model: ModelSettings(checkpoint=model)} if model not in settings.models and folder_of(model) else {}
    unknown = "refuse" if settings.unknown_models == "estimate" else settings.unknown_models
    return msgspec.structs.replace(settings, models=settings.models | entry, unknown_models=unknown)


def _costs(name: str, model: str, edge: Edge) -> Mapping[str, Sequence[Cost] | EdgeError]:
    """What becomes of a picture, or of the pages of a document, under each profile; or why it is refused."""
    costs = dict[str, Sequence[Cost] | EdgeError]()
    for profile in edge.settings.profiles:
        try:
            costs[profile] = _cost(name, profile, model, edge)
        except EdgeError as error:
            costs[profile] = error
    return costs


def _cost(name: str, profile: str, model: str, edge: Edge) -> Sequence[Cost]:
    """Of the pages of a file; or of a plain JPEG of that size."""
    if match := _SIZE.fullmatch(name):
        return _of_sizes([Size(int(match[1]), int(match[2]))], profile, model, edge)
    try:
        return [Cost.of(one) for one in edge.plan_pages(Path(name).read_bytes(), profile, model)]
    except OSError as error:
        raise EdgeError(f"{error.strerror}") from None


def _of_sizes(sizes: Sequence[Size], profile: str, model: str, edge: Edge) -> Sequence[Cost]:
    """Of plain JPEGs in one prompt."""
    if any(not size.short for size in sizes):
        raise EdgeError("a side must have at least one pixel")
    probes = [Probe(media_type="image/jpeg", size=size, file_bytes=0, srgb=True) for size in sizes]
    subjects = [Subject(f"{probe.size}", [probe]) for probe in probes]
    settings = edge.settings
    made = plan(subjects, settings.profiles[profile], edge.models.get(model).model, settings.limits)
    return [Cost.of(one) for one in made.pictures]


def _row(name: str, costs: Mapping[str, Sequence[Cost] | EdgeError], certainty: Certainty) -> dict[str, Any]:
    """A profile that refuses has no number; a picture that all of them refuse is an error."""
    taken = {profile: found for profile, found in costs.items() if not isinstance(found, EdgeError)}
    if not taken:
        return {"picture": name, "error": next(str(error) for error in costs.values())}
    as_it_is = max(taken.values(), key=len)
    return {
        "picture": name,
        "size": list(as_it_is[0].size_before),
        **({"pages": as_it_is[0].pages} if as_it_is[0].pages > 1 else {}),
        "tokens": sum(one.tokens_before for one in as_it_is),
        "profiles": {profile: _sum(taken.get(profile)) for profile in costs},
        **({} if certainty == "exact" else {"certainty": certainty}),
    }


def _sum(costs: Sequence[Cost] | None) -> int | None:
    return sum(one.tokens for one in costs) if costs else None


def _together(
    costs: Mapping[str, Mapping[str, Sequence[Cost] | EdgeError]], model: str, edge: Edge
) -> dict[str, int | None]:
    """All of them in one prompt: some models count a picture by the others beside it."""
    rule, sums = edge.models.get(model).model.rule, dict[str, int | None]()
    for profile in edge.settings.profiles:
        found = [pages for one in costs.values() if not isinstance(pages := one[profile], EdgeError)]
        sizes = [one.size for pages in found for one in pages]
        try:
            sums[profile] = sum(rule.images(sizes)) if len(found) == len(costs) else None
        except EdgeError:
            sums[profile] = None
    return sums


def _print(rows: Sequence[dict[str, Any]], together: dict[str, int | None], profiles: list[str], mark: str) -> None:
    table = Table("picture", "size", "as it is", *profiles)
    for row in rows:
        if "error" in row:
            table.add_row(escape(row["picture"]), f"[red]{escape(row['error'])}")
        else:
            name = row["picture"] + (f", {row['pages']} pages" if "pages" in row else "")
            as_it_is = f"{mark}{row['tokens']:,}"
            table.add_row(escape(name), f"{Size(*row['size'])}", as_it_is, *_cells(row["profiles"], mark))
    if len(rows) > 1:
        table.add_row("together", "", "", *_cells(together, mark), style="bold")
    options.console().print(table)


def _cells(costs: Mapping[str, int | None], mark: str) -> list[str]:
    return ["refused" if cost is None else f"{mark}{cost:,}" for cost in costs.values()]
