"""
What does it take to sample a video at one frame a second, beside ffmpeg and loops over PyAV, decord and torchcodec?

The video is a minute of 1080p H.264, made here, or `--video FILE`; every side makes JPEGs of the same frames and size.
ffmpeg is the one on the PATH, else that of the package imageio-ffmpeg. A side that is not installed is left out. Before
that, three hours of which 16 frames are taken, made here or `--long FILE`: time, and the most memory a process held.
Bars: 1.3 times ffmpeg; 5 s and 400 MB.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from common import MODEL

from vlm_edge import Edge, Settings
from vlm_edge.films import Video

MUCH = 1 << 32
QUALITY = 90


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs; medians are shown")
    parser.add_argument("--video", type=Path, help="instead of the minute that is made")
    parser.add_argument("--long", type=Path, help="instead of the three hours that are made")
    arguments = parser.parse_args()
    long = sixteen(arguments.long.read_bytes() if arguments.long else made(3 * 3_600, 96, 54, 1))
    data = arguments.video.read_bytes() if arguments.video else made(60, 1_920, 1_080, 30)
    found = {"a frame a second, s": sampling(data, arguments.rounds), "16 frames of three hours": long}
    print(json.dumps(found, indent=1)) if arguments.json else show(found)


def edge(**video: Any) -> Edge:
    """Of limits that no file here meets."""
    settings = Settings()
    limits = msgspec.structs.replace(
        settings.limits, max_video_bytes=MUCH, max_image_tokens=MUCH, max_request_tokens=MUCH
    )
    standard = settings.profiles["standard"]
    changed = msgspec.structs.replace(standard, video=msgspec.structs.replace(standard.video, quality=QUALITY, **video))
    return Edge(msgspec.structs.replace(settings, limits=limits, profiles={"standard": changed}))


def sampling(data: bytes, rounds: int) -> dict[str, float]:
    ours = edge(max_frames=4_096)
    first = ours.video(data, "standard", MODEL)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "video.mp4"
        file.write_bytes(data)
        sides: dict[str, Callable[[], object]] = {"vlm_edge": lambda: ours.video(data, "standard", MODEL)}
        sides |= dict(others(file, first))
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, side in sides.items():
                taken[name].append(seconds(side))
    ours.close()
    return {name: statistics.median(times) for name, times in taken.items()}


def others(file: Path, like: Video) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each reads as many frames, a second apart, and makes JPEGs of the same size."""
    width, height = like.size
    if program := ffmpeg():
        scale = f"fps=1,scale={width}:{height}"
        command = [program, "-v", "error", "-y", "-i", f"{file}", "-vf", scale, "-q:v", "3", f"{file.parent}/%05d.jpg"]
        yield "ffmpeg -vf fps=1", partial(subprocess.run, command, check=True)
    for name, loop in (("PyAV", pyav), ("decord", decord), ("torchcodec", torchcodec)):
        try:
            import_module({"PyAV": "av"}.get(name, name))
        except (ImportError, OSError, RuntimeError):
            continue
        yield f"a loop over {name}", partial(written, loop, file, like)


def ffmpeg() -> str | None:
    if program := shutil.which("ffmpeg"):
        return program
    try:
        return str(import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        return None


def written(loop: Callable[[Path, Any], Iterator[Any]], file: Path, like: Video) -> list[Any]:
    small = (cv2.resize(frame, like.size, interpolation=cv2.INTER_AREA) for frame in loop(file, like.times_s))
    return [cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, QUALITY]) for frame in small]


def pyav(file: Path, times_s: Any) -> Iterator[Any]:
    av = import_module("av")
    wanted = iter([*times_s, float("inf")])
    at = next(wanted)
    with av.open(f"{file}") as container:
        container.streams.video[0].thread_type = "AUTO"
        for frame in container.decode(video=0):
            if frame.time >= at - 1e-4:
                at = next(wanted)
                yield frame.to_ndarray(format="bgr24")


def decord(file: Path, times_s: Any) -> Iterator[Any]:
    reader = import_module("decord").VideoReader(f"{file}")
    numbers = [min(len(reader) - 1, round(at * reader.get_avg_fps())) for at in times_s]
    for number in numbers:
        yield reader[number].asnumpy()[:, :, ::-1]


def torchcodec(file: Path, times_s: Any) -> Iterator[Any]:
    decoder = import_module("torchcodec.decoders").VideoDecoder(f"{file}")
    for at in times_s:
        yield decoder.get_frame_played_at(at).data.permute(1, 2, 0).numpy()[:, :, ::-1]


def sixteen(data: bytes) -> dict[str, float]:
    ours = edge(max_frames=16)
    ours.video(made(1, 96, 54, 4), "standard", MODEL)  # the child process is there
    begin = time.perf_counter()
    video = ours.video(data, "standard", MODEL)
    took = time.perf_counter() - begin
    assert len(video.frames) == 16
    ours.close()
    return {"s": took, "MB": most_memory() / 1e6}


def most_memory() -> int:
    """Of this process or a child of it, in bytes."""
    import resource

    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 1_024 * max(use.ru_maxrss for use in uses)


def made(length_s: float, width: int, height: int, fps: int) -> bytes:
    """Something moving, with its second drawn in."""
    av: Any = import_module("av")
    noise = np.random.default_rng(1).integers(0, 255, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    base = cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    file = BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = width, height, "yuv420p", 250
        stream.options = {"preset": "ultrafast", "crf": "30"}
        for number in range(round(length_s * fps)):
            frame = np.ascontiguousarray(np.roll(base, 3 * number % width, 1))
            cv2.putText(
                frame, f"{number}", (4, height // 2), cv2.FONT_HERSHEY_SIMPLEX, height / 200, (255, 255, 255), 2
            )
            output.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="bgr24")))
        output.mux(stream.encode())
    return file.getvalue()


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def show(found: dict[str, dict[str, float]]) -> None:
    sides = found["a frame a second, s"]
    base = sides.get("ffmpeg -vf fps=1", sides["vlm_edge"])
    for name, took in sides.items():
        print(f"{name:22} {took:7.2f} s {took / base:6.2f} x ffmpeg")
    long = found["16 frames of three hours"]
    print(f"16 frames of three hours: {long['s']:.2f} s, {long['MB']:.0f} MB at most in one process")


if __name__ == "__main__":
    main()
