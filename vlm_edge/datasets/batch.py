"""Batch: the lines of a `vllm run-batch` file, each a request of its own, prepared on this machine."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from vlm_edge.edge import Edge
from vlm_edge.errors import EdgeError
from vlm_edge.report import Report
from vlm_edge.requests.endpoints import BATCH_LINE
from vlm_edge.settings import Settings
from vlm_edge.workers import in_order


class Line(msgspec.Struct, frozen=True):
    """A line without its end: prepared, or as it came where it holds no media; or what is wrong with it."""

    number: int  # from 1
    text: bytes
    report: Report | None = None
    error: EdgeError | None = None


def unhurried(settings: Settings) -> Settings:
    """Settings with room for all pictures of the lines under way: nobody waits, so none is told to come back."""
    workers = msgspec.structs.replace(settings.workers, max_waiting=1_000_000)
    return msgspec.structs.replace(settings, workers=workers)


def prepare_lines(edge: Edge, lines: Iterable[bytes], headers: Mapping[str, str], threads: int) -> Iterator[Line]:
    """One Line a line, in order. One that is refused stops nothing; empty ones stay."""

    def prepare(numbered: tuple[int, bytes]) -> Line:
        number, text = numbered
        return _prepare_line(edge, number, text.rstrip(b"\r\n"), headers)

    with ThreadPoolExecutor(threads, thread_name_prefix="vlm-edge-batch") as pool:
        yield from in_order(pool, prepare, enumerate(lines, 1), ahead=4 * threads)


def _prepare_line(edge: Edge, number: int, text: bytes, headers: Mapping[str, str]) -> Line:
    if not text.strip():
        return Line(number, text)
    try:
        prepared = edge.prepare(BATCH_LINE, text, headers)
    except EdgeError as error:
        return Line(number, text, error=error)
    return Line(number, bytes(prepared.body), prepared.report)


def report_of(line: Line) -> dict[str, Any]:
    """What was done with a line, for people and programs."""
    if line.error:
        return {"line": line.number, "code": line.error.code, "message": str(line.error)}
    return {"line": line.number, "report": line.report}
