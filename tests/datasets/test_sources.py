from pathlib import Path

import pytest

from vlm_edge.datasets.sources import pictures


def filled(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def found(root: Path, without: str = "/nowhere") -> list[str]:
    return [str(path) for path in pictures(root, without=Path(without))]


def test_paths_are_relative_and_sorted_folder_by_folder(tmp_path: Path) -> None:
    filled(tmp_path, "b.jpg", "a.jpg", "z/1.jpg", "c/2.jpg", "c/10.jpg", "c/d/1.jpg")
    assert found(tmp_path) == ["a.jpg", "b.jpg", "c/10.jpg", "c/2.jpg", "c/d/1.jpg", "z/1.jpg"]


@pytest.mark.parametrize("name", "a.jpg a.JPEG a.Png a.webp a.gif a.tif a.TIFF a.avif a.heic a.pdf a.b.jpg".split())
def test_a_picture_is_one_by_its_name(name: str, tmp_path: Path) -> None:
    assert found(filled(tmp_path, name)) == [name]


@pytest.mark.parametrize("name", "a.txt a jpg a.jpg.txt a.json manifest.jsonl a.mp4 a.docx".split())
def test_what_lies_beside_pictures_is_left_out(name: str, tmp_path: Path) -> None:
    assert found(filled(tmp_path, name, "b.jpg")) == ["b.jpg"]


def test_the_target_is_passed_over_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, "a.jpg", "out/a.jpg", "in/out/a.jpg")
    monkeypatch.chdir(tmp_path)
    for target in ("out", "./in/../out", str(tmp_path / "out")):
        assert found(Path(), without=target) == ["a.jpg", "in/out/a.jpg"]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    """One that leads up would never end."""
    filled(tmp_path, "a.jpg", "in/b.jpg")
    (tmp_path / "in" / "up").symlink_to(tmp_path)
    assert found(tmp_path) == ["a.jpg", "in/b.jpg"]


def test_links_to_files_are_files(tmp_path: Path) -> None:
    filled(tmp_path, "a.jpg")
    (tmp_path / "b.jpg").symlink_to(tmp_path / "a.jpg")
    assert found(tmp_path) == ["a.jpg", "b.jpg"]


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert found(tmp_path) == []
