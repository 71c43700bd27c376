from pathlib import Path

import orjson
import pytest

from tests.cli.command import good, told, vlm_edge
from tests.media.films import film, number_of, picture, read_jpeg
from tests.samples import opened
from vlm_edge import Size


@pytest.fixture
def video(tmp_path: Path) -> Path:
    file = tmp_path / "video.mp4"
    file.write_bytes(film(90, size=Size(640, 360)))
    return file


def test_the_frames_are_written_and_told_of(video: Path, tmp_path: Path) -> None:
    answer = orjson.loads(good(vlm_edge("frames", video, "--out", tmp_path / "out", "--json")))
    assert answer["video"]["frames_before"] == 90
    assert answer["tokens"] == {"video": 360, "jpeg_frames": 360, "frames": 4 * 180}
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [frame["file"] for frame in answer["frames"]]
    assert [number_of(read_jpeg(file.read_bytes())) for file in files] == [0, 22, 45, 67]
    assert [frame["time_s"] for frame in answer["frames"]] == pytest.approx([0, 22 / 30, 1.5, 67 / 30], abs=0.001)
    assert files[2].name == "frame_0002_1.500s.jpg"


def test_a_sheet_shows_all_of_them(video: Path, tmp_path: Path) -> None:
    said = good(vlm_edge("frames", video, "--sheet", tmp_path / "sheet.jpg"))
    assert "4 of 90 frames over 3.0 s, 1.33 a second, 640x360 to 504x280, h264" in said
    sheet = opened((tmp_path / "sheet.jpg").read_bytes())
    assert sheet.size == (2 * 240, 2 * (133 + 20))
    assert [path.name for path in tmp_path.iterdir()].count("video.mp4") == 1


def test_what_is_no_video_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.mp4"
    file.write_bytes(picture(1, Size(96, 64)))
    told(vlm_edge("frames", file), 1, "found an image/jpeg picture where a video stands")
    told(vlm_edge("frames", tmp_path / "nowhere.mp4"), 2, "nowhere.mp4: No such file")
