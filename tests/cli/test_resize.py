"""`vlm-edge resize`: a tree of good and broken files, runs that are repeated, and one that is killed."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from PIL import Image

from tests.cli.command import COMMAND, PATIENCE_S, environment, told, told_usage, vlm_edge
from tests.samples import PHONE, TRANSPARENT, TURNED, encoded, jpeg, picture, png
from tests.servers import wait_until


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Good pictures and broken ones, and things beside them that are none."""
    files = {
        "phone.jpg": PHONE.read_bytes(),
        "turned.JPG": TURNED.read_bytes(),
        "small.png": png(100, 80),
        "sub/deep/transparent.png": TRANSPARENT.read_bytes(),
        "sub/scan.tif": encoded(picture(1_500, 900), "TIFF"),
        "sub/lies.jpg": png(300, 200),
        "broken/cut.jpg": PHONE.read_bytes()[:300_000],
        "broken/small_cut.jpg": jpeg(300, 200)[:-300],
        "broken/empty.png": b"",
        "broken/page.webp": b"<!doctype html><p>404",
        "broken/phone.heic": b"\0\0\0\x18ftypheic" + b"\0" * 100,
        "readme.txt": b"no picture",
        ".hidden": b"",
    }
    for name, data in files.items():
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_bytes(data)
    return tmp_path / "src"


GOOD = ["phone.jpg", "small.png", "sub/deep/transparent.png", "sub/lies.jpg", "sub/scan.tif", "turned.JPG"]
BROKEN = ["broken/cut.jpg", "broken/empty.png", "broken/page.webp", "broken/phone.heic", "broken/small_cut.jpg"]


@pytest.fixture
def good_tree(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b/b.jpg"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_bytes(jpeg(2_000, 1_000))
    return tmp_path / "src"


def items_of(manifest: Path) -> dict[str, dict[str, Any]]:
    items = [orjson.loads(line) for line in manifest.read_bytes().splitlines()]
    assert len({item["source"] for item in items}) == len(items)
    return {item["source"]: item for item in items}


def files_in(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_good_files_are_resized_and_broken_ones_are_told(tree: Path, tmp_path: Path) -> None:
    run = vlm_edge("resize", tree, tmp_path / "dst")
    stderr = run.stderr.decode()
    assert run.returncode == 1
    assert "Traceback" not in stderr
    failures = [line for line in stderr.splitlines() if line.startswith("failed: ")]
    assert [line.split(": ")[1] for line in failures] == BROKEN
    items = items_of(tmp_path / "dst" / "manifest.jsonl")
    assert sorted(name for name, item in items.items() if item["status"] == "done") == GOOD
    assert {name: item["code"] for name, item in items.items() if item["status"] == "failed"} == {
        "broken/cut.jpg": "corrupt_media",
        "broken/empty.png": "corrupt_media",
        "broken/page.webp": "unsupported_media",
        "broken/phone.heic": "corrupt_media",
        "broken/small_cut.jpg": "corrupt_media",
    }
    assert "6 done" in run.stdout.decode()
    assert "5 failed" in run.stdout.decode()


def test_what_is_written_is_what_the_manifest_says(tree: Path, tmp_path: Path) -> None:
    vlm_edge("resize", tree, tmp_path / "dst")
    items = items_of(tmp_path / "dst" / "manifest.jsonl")
    done = {name: item for name, item in items.items() if item["status"] == "done"}
    assert files_in(tmp_path / "dst") == sorted(["manifest.jsonl", *(item["target"] for item in done.values())])
    for name, item in done.items():
        target = tmp_path / "dst" / item["target"]
        with Image.open(target) as image:
            image.load()
            assert list(image.size) == item["report"]["size_after"]
            assert image.get_format_mimetype() == item["report"]["media_type_after"]
            assert Image.registered_extensions()[target.suffix.lower()] == image.format
        assert target.stat().st_size == item["report"]["bytes_after"]
        assert Path(item["target"]).parent == Path(name).parent


def test_pictures_inside_their_profile_are_copied_byte_for_byte(tree: Path, tmp_path: Path) -> None:
    vlm_edge("resize", tree, tmp_path / "dst")
    assert (tmp_path / "dst" / "small.png").read_bytes() == (tree / "small.png").read_bytes()


def test_a_sideways_picture_stands_upright(tree: Path, tmp_path: Path) -> None:
    vlm_edge("resize", tree, tmp_path / "dst", "--profile", "thumbnail")
    with Image.open(tmp_path / "dst" / "turned.JPG") as image:
        assert image.size == (448, 308)  # 1800x1200, to whole cells of 28
        assert image.getexif().get(0x0112, 1) == 1


def test_a_tree_of_good_files_is_exit_0(good_tree: Path, tmp_path: Path) -> None:
    run = vlm_edge("resize", good_tree, tmp_path / "dst", "--workers", "1", "--profile", "thumbnail")
    assert run.returncode == 0
    assert run.stdout.decode().splitlines()[0] == "2 done"
    assert files_in(tmp_path / "dst") == ["a.jpg", "b/b.jpg", "manifest.jsonl"]


def test_a_tree_without_pictures_is_exit_0_and_told(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    run = vlm_edge("resize", tmp_path / "src", tmp_path / "dst")
    assert run.returncode == 0
    assert "no pictures found" in run.stdout.decode()


def test_the_number_of_workers_does_not_change_the_bytes(tree: Path, tmp_path: Path) -> None:
    for workers in ("1", "4"):
        vlm_edge("resize", tree, tmp_path / workers, "--workers", workers)
    assert files_in(tmp_path / "1") == files_in(tmp_path / "4")
    for name in files_in(tmp_path / "1"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "4" / name).read_bytes()


def test_the_model_chooses_the_grid(good_tree: Path, tmp_path: Path) -> None:
    vlm_edge("resize", good_tree, tmp_path / "dst", "--model", "Qwen/Qwen3-VL-8B-Instruct")
    with Image.open(tmp_path / "dst" / "a.jpg") as image:
        assert image.size == (1024, 512)  # cells of 32


# Names


def test_files_of_one_stem_do_not_meet(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    kinds = {"a.png": "PNG", "a.tif": "TIFF", "a.gif": "GIF", "a.jpg": "JPEG", "a.webp": "WEBP", "a.avif": "AVIF"}
    for name, kind in kinds.items():
        (source / name).write_bytes(encoded(picture(1_200, 600), kind))
    run = vlm_edge("resize", source, tmp_path / "dst")
    items = items_of(tmp_path / "dst" / "manifest.jsonl")
    assert run.returncode == 0
    assert sorted(items) == sorted(kinds)
    assert len({item["target"] for item in items.values()}) == len(kinds)
    assert len(files_in(tmp_path / "dst")) == len(kinds) + 1


def test_a_name_that_looks_like_a_target_is_not_lost(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "a.tif").write_bytes(encoded(picture(1_200, 600), "TIFF"))
    (source / "a.tif.jpg").write_bytes(jpeg(600, 600))
    vlm_edge("resize", source, tmp_path / "dst")
    targets = {
        item.get("target")
        for item in items_of(tmp_path / "dst" / "manifest.jsonl").values()
        if item["status"] == "done"
    }
    failed = [item for item in items_of(tmp_path / "dst" / "manifest.jsonl").values() if item["status"] == "failed"]
    assert len(targets) + len(failed) == 2


def test_a_name_that_is_no_utf_8_stops_nothing(good_tree: Path, tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(good_tree) + b"/a\xff.jpg"))).write_bytes(jpeg(2_000, 1_000))
    run = vlm_edge("resize", good_tree, tmp_path / "dst")
    assert b"Traceback" not in run.stderr
    assert {"a.jpg", "b/b.jpg", "manifest.jsonl"} <= set(files_in(tmp_path / "dst"))
    assert len((tmp_path / "dst" / "manifest.jsonl").read_bytes().splitlines()) == 3


def test_a_pipe_among_the_pictures_does_not_hang_the_run(good_tree: Path, tmp_path: Path) -> None:
    os.mkfifo(good_tree / "pipe.jpg")
    run = vlm_edge("resize", good_tree, tmp_path / "dst", timeout=5)
    assert run.returncode == 1
    assert "failed: pipe.jpg: it is no regular file" in run.stderr.decode()
    assert {"a.jpg", "b/b.jpg"} <= set(files_in(tmp_path / "dst"))


def test_a_broken_link_is_one_failure(good_tree: Path, tmp_path: Path) -> None:
    (good_tree / "gone.jpg").symlink_to("/nowhere/gone.jpg")
    run = vlm_edge("resize", good_tree, tmp_path / "dst")
    assert run.returncode == 1
    assert "failed: gone.jpg: No such file" in run.stderr.decode()
    assert "2 done" in run.stdout.decode()


def test_a_target_inside_the_source_is_not_a_source(good_tree: Path) -> None:
    for _ in range(2):
        run = vlm_edge("resize", good_tree, good_tree / "small", "--overwrite")
        assert run.stdout.decode().startswith("2 done")
    assert files_in(good_tree / "small") == ["a.jpg", "b/b.jpg", "manifest.jsonl"]


# What is there already


def test_a_target_that_is_not_empty_is_refused(good_tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "dst"
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    told(vlm_edge("resize", good_tree, target), 2, str(target), "not empty", "--resume", "--overwrite")
    assert files_in(target) == ["mine.txt"]


def test_the_source_is_not_a_target(good_tree: Path) -> None:
    before = (good_tree / "a.jpg").read_bytes()
    told(vlm_edge("resize", good_tree, good_tree, "--overwrite"), 2, "not that of the pictures")
    assert (good_tree / "a.jpg").read_bytes() == before


def test_resume_makes_what_is_missing_and_leaves_the_rest(good_tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "dst"
    vlm_edge("resize", good_tree, target)
    whole = (target / "b" / "b.jpg").read_bytes()
    (target / "a.jpg").write_bytes(b"mine")
    (target / "b" / "b.jpg").unlink()
    run = vlm_edge("resize", good_tree, target, "--resume")
    assert run.returncode == 0
    assert run.stdout.decode().startswith("1 done, 1 present")
    assert (target / "a.jpg").read_bytes() == b"mine"
    assert (target / "b" / "b.jpg").read_bytes() == whole
    assert {name: item["status"] for name, item in items_of(target / "manifest.jsonl").items()} == {
        "a.jpg": "present",
        "b/b.jpg": "done",
    }


def test_resume_tries_again_what_failed(tree: Path, tmp_path: Path) -> None:
    assert vlm_edge("resize", tree, tmp_path / "dst").returncode == 1
    for name in BROKEN:
        (tree / name).write_bytes(jpeg(50, 50))
    run = vlm_edge("resize", tree, tmp_path / "dst", "--resume")
    assert run.returncode == 0
    assert run.stdout.decode().startswith("5 done, 6 present")


def test_overwrite_makes_everything_anew_and_leaves_what_is_not_ours(good_tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "dst"
    vlm_edge("resize", good_tree, target)
    whole = (target / "a.jpg").read_bytes()
    (target / "a.jpg").write_bytes(b"old")
    (target / "mine.txt").write_text("mine")
    run = vlm_edge("resize", good_tree, target, "--overwrite")
    assert run.stdout.decode().startswith("2 done")
    assert (target / "a.jpg").read_bytes() == whole
    assert (target / "mine.txt").read_text() == "mine"


def test_resume_and_overwrite_exclude_each_other(good_tree: Path, tmp_path: Path) -> None:
    told(vlm_edge("resize", good_tree, tmp_path / "dst", "--resume", "--overwrite"), 2, "--resume", "--overwrite")


def test_a_dry_run_writes_nothing(tree: Path, tmp_path: Path) -> None:
    run = vlm_edge("resize", tree, tmp_path / "dst", "--dry-run", "--manifest", tmp_path / "manifest.jsonl")
    assert not (tmp_path / "dst").exists()
    assert not (tmp_path / "manifest.jsonl").exists()
    assert run.returncode == 1  # what is no picture is seen without a pixel
    assert "failed: broken/page.webp" in run.stderr.decode()
    assert "planned" in run.stdout.decode()


def test_a_dry_run_tells_the_tokens_that_the_run_will_save(good_tree: Path, tmp_path: Path) -> None:
    dry = vlm_edge("resize", good_tree, tmp_path / "dst", "--dry-run").stdout.decode()
    real = vlm_edge("resize", good_tree, tmp_path / "dst").stdout.decode()
    # twice 2000x1000, as Qwen2-VL counts it, and inside 1024 pixels
    tokens = f"{2 * 71 * 36:,} -> {2 * 36 * 18:,} vision tokens"
    assert tokens in dry
    assert tokens in real


def test_the_manifest_may_lie_elsewhere(good_tree: Path, tmp_path: Path) -> None:
    vlm_edge("resize", good_tree, tmp_path / "dst", "--manifest", tmp_path / "logs" / "run.jsonl")
    assert sorted(items_of(tmp_path / "logs" / "run.jsonl")) == ["a.jpg", "b/b.jpg"]
    assert files_in(tmp_path / "dst") == ["a.jpg", "b/b.jpg"]


# What is wrong with the command


def test_a_source_that_is_missing_is_a_usage_error(tmp_path: Path) -> None:
    told_usage(vlm_edge("resize", tmp_path / "none", tmp_path / "dst"), "SRC")


def test_an_unknown_profile_is_told_before_anything_is_done(good_tree: Path, tmp_path: Path) -> None:
    told(vlm_edge("resize", good_tree, tmp_path / "dst", "--profile", "huge"), 2, "'huge'", "standard")
    assert not (tmp_path / "dst").exists()


@pytest.mark.parametrize("option", [(), ("--overwrite",)])
def test_a_target_that_is_a_file_is_told(option: tuple[str, ...], good_tree: Path, tmp_path: Path) -> None:
    (tmp_path / "dst").write_text("mine")
    run = vlm_edge("resize", good_tree, tmp_path / "dst", *option)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr.decode()
    assert (tmp_path / "dst").read_text() == "mine"


def test_a_manifest_that_cannot_be_written_is_told(good_tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    run = vlm_edge("resize", good_tree, tmp_path / "dst", "--manifest", tmp_path / "file" / "manifest.jsonl")
    assert run.returncode in (1, 2)
    assert "Traceback" not in run.stderr.decode()


# A run that is killed


@pytest.fixture
def large_tree(tmp_path: Path) -> Path:
    """One photo under forty names."""
    source = tmp_path / "src"
    source.mkdir()
    for number in range(40):
        (source / f"{number:02}.jpg").symlink_to(PHONE)
    return source


@pytest.mark.parametrize("after", [1, 9])
def test_a_run_that_is_killed_leaves_whole_files_and_can_be_resumed(
    after: int, large_tree: Path, tmp_path: Path
) -> None:
    target = tmp_path / "dst"
    command = [*COMMAND, "resize", str(large_tree), str(target)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()) as process:
        wait_until(lambda: process.poll() is not None or len(list(target.glob("*.jpg"))) >= after)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    left = sorted(target.glob("*.jpg"))
    assert after <= len(left) < 40
    for file in left:
        with Image.open(file) as image:
            image.load()
            assert image.size == (1008, 756)
    times = {file: file.stat().st_mtime_ns for file in left}

    run = vlm_edge("resize", large_tree, target, "--resume", timeout=PATIENCE_S)
    assert run.returncode == 0
    assert run.stdout.decode().startswith(f"{40 - len(left)} done, {len(left)} present")
    assert {file: file.stat().st_mtime_ns for file in left} == times
    contents = {file.read_bytes() for file in target.glob("*.jpg")}
    assert len(list(target.glob("*.jpg"))) == 40
    assert len(contents) == 1  # all of one source
