"""vlm-edge frames: which frames of a video are taken, as files and on one sheet, and what each form of it costs."""

from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import orjson
import typer
from rich.table import Table

from vlm_edge.cli import options
from vlm_edge.clips import Form
from vlm_edge.edge import Edge
from vlm_edge.errors import EdgeError
from vlm_edge.films import Video
from vlm_edge.media.video import sheet

VideoFile = Annotated[Path, typer.Argument(metavar="VIDEO", help="An MP4, MOV, WebM, MKV, AVI or MPEG-TS file.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for the frames, a JPEG each; made where it is not there.")
]
Sheet = Annotated[Path | None, typer.Option("--sheet", help="One JPEG of all frames with their times.")]

DEFAULT_MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"


def command(
    video: VideoFile,
    profile: options.Profile = "",
    model: options.Model = DEFAULT_MODEL,
    out: Out = None,
    sheet_file: Sheet = None,
    config: options.Config = None,
    as_json: options.Json = False,
) -> None:
    """Take the frames of a video as a request would, and say what they cost in each form."""
    edge = Edge(options.load(config))
    try:
        data = video.read_bytes()
        made = edge.video(data, profile, model)
        costs = {form: _cost(edge, data, profile, model, form) for form in get_args(Form)}
    finally:
        edge.close()
    names = [f"frame_{number:04d}_{at:.3f}s.jpg" for number, at in enumerate(made.times_s)]
    if out:
        out.mkdir(parents=True, exist_ok=True)
        for name, frame in zip(names, made.frames, strict=True):
            (out / name).write_bytes(frame)
    if sheet_file:
        sheet_file.write_bytes(sheet(made.frames, [f"{at:.1f} s" for at in made.times_s]))
    _print(made, names, costs, as_json=as_json)


def _cost(edge: Edge, data: bytes, profile: str, model: str, form: Form) -> int | None:
    """None where the model does not take it, or it costs too much."""
    try:
        return edge.plan_video(data, profile, model, form).tokens
    except EdgeError:
        return None


def _print(made: Video, names: list[str], costs: dict[Form, int | None], *, as_json: bool) -> None:
    report = msgspec.to_builtins(made.report)
    if as_json:
        frames = [{"file": name, "time_s": round(at, 3)} for name, at in zip(names, made.times_s, strict=True)]
        typer.echo(orjson.dumps({"video": report, "frames": frames, "tokens": costs}))
        return
    console = options.console()
    console.print(_about(report))
    table = Table("form", "vision tokens", "")
    for form, tokens in costs.items():
        table.add_row(form, "refused" if tokens is None else f"{tokens:,}", "sent" if form == made.report.form else "")
    console.print(table)


def _about(report: dict[str, Any]) -> str:
    """What was taken of what, in a line."""
    early = ", which ends early" if report["ends_early"] else ""
    before, after = (f"{report[key][0]}x{report[key][1]}" for key in ("size_before", "size_after"))
    return (
        f"{report['frames_after']} of {report['frames_before']} frames over {report['seconds']:.1f} s{early}, "
        f"{report['fps_after']:.2f} a second, {before} to {after}, {report['codec']}"
    )
