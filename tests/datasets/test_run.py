import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from tests.samples import PHONE, encoded, jpeg, opened, picture, png
from vlm_edge import Edge
from vlm_edge.datasets.run import Job, named, resize_all, resize_file, write_whole


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    edge = Edge()
    yield edge
    edge.close()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "src").mkdir()
    return Job(source=tmp_path / "src", target=tmp_path / "dst", profile="standard")


def put(job: Job, name: str, data: bytes) -> Path:
    (job.source / name).parent.mkdir(parents=True, exist_ok=True)
    (job.source / name).write_bytes(data)
    return Path(name)


def with_options(job: Job, *, resume: bool = False, dry_run: bool = False) -> Job:
    return Job(source=job.source, target=job.target, profile=job.profile, resume=resume, dry_run=dry_run)


# One file


def test_a_picture_is_resized_into_its_place(edge: Edge, job: Job) -> None:
    (item,) = resize_file(edge, job, put(job, "in/phone.jpg", PHONE.read_bytes()))
    written = (job.target / "in" / "phone.jpg").read_bytes()
    assert (item.status, item.source, item.target) == ("done", "in/phone.jpg", "in/phone.jpg")
    assert opened(written).size == (1008, 756)
    assert item.report
    assert (item.report.bytes_before, item.report.bytes_after) == (PHONE.stat().st_size, len(written))
    assert (item.report.tokens_before, item.report.tokens_after) == (117 * 87, 36 * 27)


def test_a_picture_inside_its_profile_is_copied(edge: Edge, job: Job) -> None:
    data = jpeg(300, 200)
    resize_file(edge, job, put(job, "a.jpg", data))
    assert (job.target / "a.jpg").read_bytes() == data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "corrupt_media"),
        (b"<html>", "unsupported_media"),
        (jpeg(2_000, 1_000)[:-3_000], "corrupt_media"),
        (jpeg(300, 200)[:-300], "corrupt_media"),
    ],
    ids=["empty", "page", "cut", "small and cut"],
)
def test_a_file_that_fails_is_an_item_and_leaves_nothing(data: bytes, code: str, edge: Edge, job: Job) -> None:
    (item,) = resize_file(edge, job, put(job, "a.jpg", data))
    assert (item.status, item.code, item.target) == ("failed", code, None)
    assert item.message
    assert not job.target.exists()


def test_a_file_that_is_gone_is_an_item(edge: Edge, job: Job) -> None:
    (item,) = resize_file(edge, job, Path("gone.jpg"))
    assert (item.status, item.code) == ("failed", "os_error")
    assert item.message == "No such file or directory"


def test_a_target_in_the_way_is_an_item(edge: Edge, job: Job) -> None:
    (job.target / "a.jpg").mkdir(parents=True)
    (item,) = resize_file(edge, job, put(job, "a.jpg", jpeg(300, 200)))
    assert (item.status, item.code) == ("failed", "os_error")
    assert list(job.target.iterdir()) == [job.target / "a.jpg"]


def test_a_dry_run_plans_and_writes_nothing(edge: Edge, job: Job) -> None:
    (item,) = resize_file(
        edge, with_options(job, dry_run=True), put(job, "a.tif", encoded(picture(2_000, 1_000), "TIFF"))
    )
    assert (item.status, item.target) == ("planned", "a.tif.jpg")
    assert item.report
    assert (item.report.size_after, item.report.tokens_after) == ((1008, 504), 36 * 18)
    assert not job.target.exists()


def test_resume_leaves_a_target_that_is_there(edge: Edge, job: Job) -> None:
    file = put(job, "a.jpg", jpeg(300, 200))
    write_whole(job.target / "a.jpg", b"mine")
    assert [item.status for item in resize_file(edge, with_options(job, resume=True), file)] == ["present"]
    assert (job.target / "a.jpg").read_bytes() == b"mine"
    assert [item.status for item in resize_file(edge, job, file)] == ["done"]
    assert (job.target / "a.jpg").read_bytes() == jpeg(300, 200)


def test_a_type_that_is_chosen_by_the_result_is_told_when_it_is_known(edge: Edge, job: Job) -> None:
    document = msgspec.structs.replace(job, profile="document")
    file = put(job, "a.gif", encoded(Image.new("RGB", (300, 200), "red"), "GIF"))
    (planned,) = resize_file(edge, with_options(document, dry_run=True), file)
    assert planned.target == "a.gif.jpg or a.gif.png"
    (done,) = resize_file(edge, document, file)
    assert done.target == "a.gif.png"
    (present,) = resize_file(edge, with_options(document, resume=True), file)
    assert (present.status, present.target) == ("present", "a.gif.png")


def test_each_page_of_a_document_is_a_file(edge: Edge, job: Job) -> None:
    pages = [Image.new("L", (100 * number, 80), 60 * number) for number in (1, 2, 3)]
    for name, kind in (("a.tif", "TIFF"), ("a.pdf", "PDF")):
        file = put(job, name, encoded(pages[0], kind, save_all=True, append_images=pages[1:]))
        items = resize_file(edge, job, file)
        assert [item.target for item in items] == [f"{name}.{number}.jpg" for number in (1, 2, 3)]
        written = [opened((job.target / item.target).read_bytes()) for item in items if item.target]
        greys = [one.convert("L").resize((1, 1)).tobytes()[0] for one in written]
        assert greys == pytest.approx([60, 120, 180], abs=3)


# Names


@pytest.mark.parametrize(
    ("name", "media_type", "target"),
    [
        ("a.jpg", "image/jpeg", "a.jpg"),
        ("a.JPEG", "image/jpeg", "a.JPEG"),
        ("in/a.png", "image/png", "in/a.png"),
        ("in/a.png", "image/jpeg", "in/a.png.jpg"),
        ("a.tif", "image/png", "a.tif.png"),
        ("a.b.gif", "image/webp", "a.b.gif.webp"),
        ("a.jpg", "image/png", "a.jpg.png"),
    ],
)
def test_a_target_keeps_its_name_unless_that_would_lie(tmp_path: Path, name: str, media_type: str, target: str) -> None:
    assert named(tmp_path, Path(name), media_type) == Path(target)


# Writing


def test_what_is_written_is_whole_and_readable_by_all(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "a.jpg", b"data")
    assert (tmp_path / "new" / "a.jpg").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "new" / "a.jpg").stat().st_mode) == 0o644
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "a.jpg"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """The old file is not written to: who has opened it keeps it as it was."""
    write_whole(tmp_path / "a.jpg", b"old")
    with (tmp_path / "a.jpg").open("rb") as old:
        write_whole(tmp_path / "a.jpg", b"new and longer")
        assert old.read() == b"old"
    assert (tmp_path / "a.jpg").read_bytes() == b"new and longer"


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "a.jpg", b"data")
    assert list(tmp_path.iterdir()) == [tmp_path / "a.jpg"]


# Many files


def test_items_come_in_the_order_of_the_files(edge: Edge, job: Job) -> None:
    """The first is the slowest, and one is broken."""
    files = [
        put(job, "large.jpg", PHONE.read_bytes()),
        put(job, "broken.jpg", b"<html>"),
        put(job, "small.png", png(10, 10)),
    ]
    items = [item for items in resize_all(edge, job, files, threads=3) for item in items]
    assert [item.source for item in items] == ["large.jpg", "broken.jpg", "small.png"]
    assert [item.status for item in items] == ["done", "failed", "done"]


def test_files_are_taken_as_they_are_needed(edge: Edge, job: Job) -> None:
    """A source without end is worked on; a million files need no million futures."""
    taken = 0

    def endless() -> Iterator[Path]:
        nonlocal taken
        while True:
            taken += 1
            yield put(job, f"{taken}.png", png(8, 8))

    items = resize_all(edge, job, endless(), threads=2)
    assert [item.source for [item] in islice(items, 5)] == ["1.png", "2.png", "3.png", "4.png", "5.png"]
    assert taken < 50
