"""Run: a folder tree of pictures resized on this machine. Every file is written whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from vlm_edge.edge import Edge
from vlm_edge.errors import EdgeError
from vlm_edge.medium import Encoded
from vlm_edge.pictures import PicturePlan
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
    page: int | None = None  # from 1, of a document
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


def resize_all(edge: Edge, job: Job, files: Iterable[Path], threads: int) -> Iterator[list[Item]]:
    """For each file, in order, one Item a picture or page. A file that fails is an Item too, and stops nothing."""
    with ThreadPoolExecutor(threads, thread_name_prefix="vlm-edge-resize") as pool:
        yield from in_order(pool, lambda file: resize_file(edge, job, file), files, ahead=4 * threads)


def resize_file(edge: Edge, job: Job, file: Path) -> list[Item]:
    with _failing(file) as failed:
        data = _read(job.source / file)
        plans = edge.plan_pages(data, job.profile, job.model)
        return [_resize_page(edge, job, file, data, planned) for planned in plans]
    return failed


def _resize_page(edge: Edge, job: Job, file: Path, data: bytes, planned: PicturePlan) -> Item:
    page = planned.probe.page + 1 if planned.probe.pages > 1 else None
    item = partial(Item, source=_text(file), page=page)
    with _failing(file, page) as failed:
        targets = [named(job.source, file, media_type, page) for media_type in planned.media_types]
        present = next((target for target in targets if (job.target / target).exists()), None)
        if job.dry_run:
            report = PictureReport.of(planned, Encoded(None, " or ".join(planned.media_types), 0))
            return item(status="planned", target=" or ".join(map(_text, targets)), report=report)
        if job.resume and present:
            return item(status="present", target=_text(present))
        picture = edge.make(data, planned)
        target = targets[planned.media_types.index(picture.media_type)]
        write_whole(job.target / target, picture.data)
        return item(status="done", target=_text(target), report=picture.report)
    return failed[0]


@contextmanager
def _failing(file: Path, page: int | None = None) -> Iterator[list[Item]]:
    """Gives a list in which, should the work on the file fail, an Item says so."""
    items: list[Item] = []
    try:
        yield items
    except EdgeError as error:
        items.append(Item(source=_text(file), page=page, status="failed", code=error.code, message=error.message))
    except OSError as error:
        why = error.strerror or "cannot be read"
        items.append(Item(source=_text(file), page=page, status="failed", code="os_error", message=why))


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")  # reading a pipe would wait for who writes to it
    return path.read_bytes()


def _text(file: Path) -> str:
    """A name for people and manifests; bytes that are no UTF-8 are shown as escapes."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def named(source: Path, file: Path, media_type: str, page: int | None = None) -> Path:
    """The target of a source, or of one page of it: its own name, with the number of the page, and with an extension
    added where it would lie about the type.

    Added and not replaced, so that a.png and a.tif never meet in one target; and added again where the folder has a
    source of that very name.
    """
    extensions = EXTENSIONS[media_type]
    if page:
        file = file.with_name(f"{file.name}.{page}")
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
