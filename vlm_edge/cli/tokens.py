"""vlm-edge tokens: what pictures cost a model."""

import re
from collections.abc import Iterator, Mapping, Sequence
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
from vlm_edge.errors import ConfigError, EdgeError
from vlm_edge.estimate import Cost
from vlm_edge.geometry import Size
from vlm_edge.media.probe import Probe
from vlm_edge.models import ModelSettings
from vlm_edge.pictures import PicturePlan, Subject, native_size
from vlm_edge.plan import Certainty, Plan, check_budget, fitted, plan
from vlm_edge.settings import Settings

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="Model name, family, or folder of a checkpoint.")]
Pictures = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE|WxH]...", help="Pictures, documents, or sizes. Default: common sizes."),
]

COMMON_SIZES = ["640x480", "1280x720", "1920x1080", "2480x3508", "4032x3024"]  # VGA, HD, A4 at 300 dpi, a phone

MARKS: dict[Certainty, str] = {"exact": "", "estimate": "≈", "at most": "≤"}

_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})")

# By profile: a picture, or the pages of a document, as they would be sent; or why they are refused.
Planned = Mapping[str, Sequence[PicturePlan] | EdgeError]


def command(
    model: ModelName, pictures: Pictures = None, config: options.Config = None, as_json: options.Json = False
) -> None:
    """Count the vision tokens of pictures, as they are and as each profile would send them, and of all in a prompt."""
    edge = Edge(_knowing(options.load(config), model))
    certainty = edge.models.get(model).model.certainty
    planned = [_planned(name, model, edge) for name in pictures or COMMON_SIZES]
    rows = list(_rows(pictures or COMMON_SIZES, planned, certainty))
    if as_json:
        typer.echo(orjson.dumps(rows))
    else:
        several = pictures and len(rows) > 1 and not any("error" in row for row in rows)
        together = [_together(planned, model, edge)] if several else []
        _print([*rows, *together], list(edge.settings.profiles), MARKS[certainty])
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _knowing(settings: Settings, model: str) -> Settings:
    """The settings, with an entry for a checkpoint that is named by its folder; a model of no family is an error."""
    entry = {model: ModelSettings(checkpoint=model)} if model not in settings.models and _is_checkpoint(model) else {}
    unknown = "refuse" if settings.unknown_models == "estimate" else settings.unknown_models
    try:
        return msgspec.structs.replace(settings, models=settings.models | entry, unknown_models=unknown)
    except ValueError as error:  # the checkpoint is damaged, or of no family
        raise ConfigError(f"{error}") from None


def _is_checkpoint(model: str) -> bool:
    """Any other folder may be called like a family, or stand in the path of a served name."""
    folder = folder_of(model)
    return folder is not None and (folder / "config.json").is_file()


# Planning


def _planned(name: str, model: str, edge: Edge) -> Planned:
    planned = dict[str, Sequence[PicturePlan] | EdgeError]()
    for profile in edge.settings.profiles:
        try:
            planned[profile] = _pages(name, profile, model, edge)
        except EdgeError as error:
            planned[profile] = error
    return planned


def _pages(name: str, profile: str, model: str, edge: Edge) -> Sequence[PicturePlan]:
    """Of a file; or of a plain JPEG of that size."""
    if match := _SIZE.fullmatch(name):
        probe = _jpeg(Size(int(match[1]), int(match[2])))
        return _request([Subject(name, [probe])], profile, model, edge).pictures
    try:
        return edge.plan_pages(Path(name).read_bytes(), profile, model)
    except OSError as error:
        raise EdgeError(f"{error.strerror}") from None


def _jpeg(size: Size) -> Probe:
    if not size.short:
        raise EdgeError("a side must have at least one pixel")
    return Probe(media_type="image/jpeg", size=size, file_bytes=0, srgb=True)


def _request(subjects: Sequence[Subject], profile: str, model: str, edge: Edge) -> Plan:
    """One prompt, as it would pass without text."""
    settings, served, chosen = edge.settings, edge.models.get(model).model, edge.settings.profiles[profile]
    made = plan(subjects, chosen, served, settings.limits)
    if settings.budget.on_exceed == "fit":
        made = fitted(made, chosen, served.rule, settings.limits)
    check_budget(made, settings.limits, certainty=edge.models.get(model).model.certainty)
    return made


# Rows


def _rows(names: Sequence[str], planned: Sequence[Planned], certainty: Certainty) -> Iterator[dict[str, Any]]:
    """One a picture."""
    mark = {} if certainty == "exact" else {"certainty": certainty}
    rows = [_row(name, one) for name, one in zip(names, planned, strict=True)]
    yield from (row if "error" in row else row | mark for row in rows)


def _row(name: str, planned: Planned) -> dict[str, Any]:
    """A profile that refuses has no number; a picture that all of them refuse is an error."""
    costs = {profile: [Cost.of(page) for page in pages] for profile, pages in _taken(planned).items()}
    if not costs:
        return {"picture": name, "error": next(str(error) for error in planned.values())}
    as_it_is = max(costs.values(), key=len)
    return {
        "picture": name,
        "size": list(as_it_is[0].size_before),
        **({"pages": as_it_is[0].pages} if as_it_is[0].pages > 1 else {}),
        "tokens": sum(cost.tokens_before for cost in as_it_is),
        "profiles": {
            profile: sum(cost.tokens for cost in costs[profile]) if profile in costs else None for profile in planned
        },
    }


def _taken(planned: Planned) -> Mapping[str, Sequence[PicturePlan]]:
    return {profile: pages for profile, pages in planned.items() if not isinstance(pages, EdgeError)}


def _together(planned: Sequence[Planned], model: str, edge: Edge) -> dict[str, Any]:
    """All of them in one prompt: some models count a picture by the others beside it, and a request has its limits."""
    return {
        "picture": "together",
        "size": None,
        "tokens": _sum_as_it_is([_taken(one) for one in planned], model, edge),
        "profiles": {profile: _sum(planned, profile, model, edge) for profile in edge.settings.profiles},
    }


def _sum_as_it_is(taken: Sequence[Mapping[str, Sequence[PicturePlan]]], model: str, edge: Edge) -> int | None:
    """None where the model takes no more than one."""
    sizes = [size for one in taken for size in _native_sizes(one, edge)]
    try:
        return sum(edge.models.get(model).model.rule.images(sizes))
    except EdgeError:
        return None


def _native_sizes(taken: Mapping[str, Sequence[PicturePlan]], edge: Edge) -> Sequence[Size]:
    """Of the pages as they are, under the profile that takes most of them."""
    profile, pages = max(taken.items(), key=lambda one: len(one[1]))
    return [native_size(page.probe, edge.settings.profiles[profile]) for page in pages]


def _sum(planned: Sequence[Planned], profile: str, model: str, edge: Edge) -> int | None:
    """None where the profile refuses one of them, or a limit all of them."""
    media = [_taken(one).get(profile) for one in planned]
    subjects = [Subject("", [page.probe for page in pages]) for pages in media if pages]
    try:
        return _request(subjects, profile, model, edge).tokens if len(subjects) == len(media) else None
    except EdgeError:
        return None


# The table


def _print(rows: Sequence[dict[str, Any]], profiles: Sequence[str], mark: str) -> None:
    table = Table("picture", "size", "as it is", *profiles)
    for row in rows:
        if "error" in row:
            table.add_row(escape(row["picture"]), f"[red]{escape(row['error'])}")
        else:
            costs = [_cell(cost, mark) for cost in (row["tokens"], *row["profiles"].values())]
            table.add_row(*_named(row), *costs, style="" if row["size"] else "bold")
    options.console().print(table)


def _named(row: Mapping[str, Any]) -> tuple[str, str]:
    pages = f", {row['pages']} pages" if "pages" in row else ""
    return escape(row["picture"] + pages), f"{Size(*row['size'])}" if row["size"] else ""


def _cell(cost: int | None, mark: str) -> str:
    return "refused" if cost is None else f"{mark}{cost:,}"
