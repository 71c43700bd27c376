"""vlm-edge prepare: one request body, or the lines of a batch file, from stdin to stdout."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vlm_edge.choice import PROFILE_HEADER
from vlm_edge.cli import options
from vlm_edge.datasets.batch import prepare_lines, report_of, unhurried
from vlm_edge.edge import Edge
from vlm_edge.requests.endpoints import CHAT_PATH

PathOption = Annotated[str, typer.Option("--path", help="Path that the request would be sent to.")]
Batch = Annotated[bool, typer.Option("--batch", help="stdin is a `vllm run-batch` file: a request a line.")]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write what was done, as JSON, to this file.")]


def command(
    path: PathOption = CHAT_PATH,
    batch: Batch = False,
    config: options.Config = None,
    profile: options.Profile = "",
    report: ReportFile = None,
) -> None:
    """Prepare the pictures of a request body: JSON on stdin, JSON on stdout."""
    edge = Edge(unhurried(options.load(config)) if batch else options.load(config))
    headers = {PROFILE_HEADER: profile} if profile else {}
    if batch:
        _prepare_batch(edge, headers, report)
        return
    prepared = edge.prepare(path, sys.stdin.buffer.read(), headers)
    if report:
        report.write_bytes(msgspec.json.format(msgspec.json.encode(prepared.report)) + b"\n")
    sys.stdout.buffer.write(prepared.body)
    sys.stdout.buffer.flush()


def _prepare_batch(edge: Edge, headers: Mapping[str, str], report: Path | None) -> None:
    """Lines that are refused are left out, and listed."""
    refused, reports = False, []
    for line in prepare_lines(edge, sys.stdin.buffer, headers, edge.workers.threads):
        reports.append(msgspec.json.encode(report_of(line)))
        if line.error:
            print(f"line {line.number}: {line.error}", file=sys.stderr)
            refused = True
        else:
            sys.stdout.buffer.write(line.text + b"\n")
    sys.stdout.buffer.flush()
    if report:
        report.write_bytes(b"".join(one + b"\n" for one in reports))
    if refused:
        raise typer.Exit(1)
