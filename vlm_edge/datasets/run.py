"""Run: a folder tree of pictures resized on this machine. Every file is written whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from vlm_edge.edge import Edge
from vlm_edge.errors import EdgeError
from vlm_edge.report import PictureReport
from vlm_edge.workers import in_order

EXTENSIONS = {
    "image/jpeg": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "image/png": (".png",),
    "image/webp": (".webp",),
}


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the manifest. Paths are relative to the source and the target folder."""

    source: str
    status: Literal["done", "present", "planned", "failed"]
    target: str | None = None
    report: PictureReport | None = None
    code: str | None = None
    message: str | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """How to treat each file. resume: leave targets that are there; dry_run: plan, and write nothing."""

    source: Path
    target: Path
    profile: str
    model: str = ""
    resume: bool = False
    dry_run: bool = False


def resize_all(edge: Edge, job: Job, files: Iterable[Path], threads: int) -> Iterator[Item]:
    """One Item a file, in the order of the files. A file that fails is an Item too, and stops nothing."""
    with ThreadPoolExecutor(threads, thread_name_prefix="vlm-edge-resize") as pool:
        yield from in_order(pool, lambda file: resize_file(edge, job, file), files, ahead=4 * threads)


def resize_file(edge: Edge, job: Job, file: Path) -> Item:
    try:
        data = _read(job.source / file)
        planned = edge.plan_picture(data, job.profile, job.model)
        report = PictureReport.of(planned, 0)
        target = named(job.source, file, report.media_type_after)
        if job.dry_run:
            return Item(source=_text(file), status="planned", target=_text(target), report=report)
        if job.resume and (job.target / target).exists():
            return Item(source=_text(file), status="present", target=_text(target))
        picture = edge.make(data, planned)
        write_whole(job.target / target, picture.data)
        return Item(source=_text(file), status="done", target=_text(target), report=picture.report)
    except EdgeError as error:
        return Item(source=_text(file), status="failed", code=error.code, message=error.message)
    except OSError as error:
        return Item(source=_text(file), status="failed", code="os_error", message=error.strerror or "cannot be read")


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")  # reading a pipe would wait for who writes to it
    return path.read_bytes()


def _text(file: Path) -> str:
    """A name for people and manifests; bytes that are no UTF-8 are shown as escapes."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def named(source: Path, file: Path, media_type: str) -> Path:
    """The target of a source: its own name, with an extension added where it would lie about the type.

    Added and not replaced, so that a.png and a.tif never meet in one target; and added again where the folder has a
    source of that very name.
    """
    extensions = EXTENSIONS[media_type]
    if file.suffix.lower() in extensions:
        return file
    target = file.with_name(file.name + extensions[0])
    while (source / target).exists():
        target = target.with_name(target.name + extensions[0])
    return target


def write_whole(path: Path, data: bytes) -> None:
    """Write beside the target, then rename: whoever looks finds the old file, the new one or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".vlm-edge-", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
