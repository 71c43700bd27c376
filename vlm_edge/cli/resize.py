"""vlm-edge resize: a folder tree of pictures."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import track

from vlm_edge.cli import options
from vlm_edge.datasets.run import Item, Job, resize_all
from vlm_edge.datasets.sources import pictures
from vlm_edge.edge import Edge
from vlm_edge.errors import ConfigError, UnknownProfile

DOCUMENTS = ("application/pdf", "image/tiff")

Source = Annotated[Path, typer.Argument(metavar="SRC", help="Folder of pictures.", exists=True, file_okay=False)]
Target = Annotated[Path, typer.Argument(metavar="DST", help="Folder to write to; the tree of SRC is kept.")]
Threads = Annotated[int, typer.Option("--workers", "-w", min=0, help="Threads (0: one a processor).")]
ManifestFile = Annotated[Path | None, typer.Option("--manifest", help="JSONL file. Default: DST/manifest.jsonl.")]
Resume = Annotated[bool, typer.Option("--resume", help="Leave pictures that are in DST already.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Make pictures that are in DST already anew.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")]


def command(
    source: Source,
    target: Target,
    profile: options.Profile = "",
    model: options.Model = "",
    workers: Threads = 0,
    manifest: ManifestFile = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    config: options.Config = None,
) -> None:
    """Resize a folder tree of pictures."""
    edge = Edge(options.load(config))
    if profile and profile not in edge.settings.profiles:
        raise UnknownProfile(profile, edge.settings.profiles)
    _check_target(source, target, resume=resume, overwrite=overwrite, dry_run=dry_run)
    files = list(pictures(source, without=target))
    job = Job(source=source, target=target, profile=profile, model=model, resume=resume, dry_run=dry_run)
    done = resize_all(edge, job, files, workers or os.cpu_count() or 1)
    items = chain.from_iterable(track(done, "resizing", total=len(files), console=Console(stderr=True)))
    counted = list(items) if dry_run else list(_written(items, manifest or target / "manifest.jsonl"))
    _summary(counted, exact=edge.models.get(model).model.exact)
    if any(item.status == "failed" for item in counted):
        raise typer.Exit(1)


def _check_target(source: Path, target: Path, *, resume: bool, overwrite: bool, dry_run: bool) -> None:
    if target.exists() and (not target.is_dir() or target.samefile(source)):
        raise ConfigError(f"{target}: must be a folder, and not that of the pictures")
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other")
    if target.is_dir() and any(target.iterdir()) and not (resume or overwrite or dry_run):
        raise ConfigError(f"{target} is not empty; say --resume to leave what is there, or --overwrite to make it anew")


def _written(items: Iterable[Item], manifest: Path) -> Iterator[Item]:
    """A line for each item as soon as it is done, so that a run that is ended leaves a true account."""
    manifest.parent.mkdir(parents=True, exist_ok=True)
    with manifest.open("wb") as lines:
        for item in items:
            lines.write(msgspec.json.encode(item) + b"\n")
            lines.flush()
            yield item


def _pages_left_out(items: list[Item]) -> Iterator[int]:
    """Of each document."""
    last = {item.source: item.report for item in items if item.report and item.report.media_type_before in DOCUMENTS}
    yield from (report.pages - report.page for report in last.values())


def _summary(items: list[Item], *, exact: bool) -> None:
    for item in items:
        if item.status == "failed":
            page = f", page {item.page}" if item.page else ""
            typer.echo(f"failed: {item.source}{page}: {item.message}", err=True)
    counts = Counter(item.status for item in items)
    reports = [item.report for item in items if item.report]
    typer.echo(", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no pictures found")
    if left_out := sum(_pages_left_out(items)):
        typer.echo(f"{left_out} pages left out, of documents longer than the profile takes")
    if reports:
        before, after = sum(one.tokens_before for one in reports), sum(one.tokens_after for one in reports)
        written = sum(one.bytes_after for one in reports)
        size = f"{sum(one.bytes_before for one in reports):,} -> {written:,} bytes, " if written else ""
        honest = "" if exact else " (an estimate: no --model of a known family)"
        typer.echo(f"{size}{before:,} -> {after:,} vision tokens{honest}")
