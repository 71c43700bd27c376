"""vlm-edge prepare: one request body, from stdin to stdout."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vlm_edge.choice import PROFILE_HEADER
from vlm_edge.cli import options
from vlm_edge.edge import Edge
from vlm_edge.requests.endpoints import CHAT_PATH

PathOption = Annotated[str, typer.Option("--path", help="Path that the request would be sent to.")]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write what was done, as JSON, to this file.")]


def command(
    path: PathOption = CHAT_PATH,
    config: options.Config = None,
    profile: options.Profile = "",
    report: ReportFile = None,
) -> None:
    """Prepare the pictures of a request body: JSON on stdin, JSON on stdout."""
    edge = Edge(options.load(config))
    prepared = edge.prepare(path, sys.stdin.buffer.read(), {PROFILE_HEADER: profile} if profile else {})
    if report:
        report.write_bytes(msgspec.json.format(msgspec.json.encode(prepared.report)) + b"\n")
    sys.stdout.buffer.write(prepared.body)
    sys.stdout.buffer.flush()
