"""
The exact engine on Pillow and on Pillow-SIMD: how much faster is the latter?

Each side is an interpreter with one of the two (`make test-simd` makes the second); they take turns. A photo of about
12 megapixels goes down to one. Ratios are facts, not bounds.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import PIL
from PIL import Image

from vlm_edge import Size
from vlm_edge.geometry import fit
from vlm_edge.media import pillow
from vlm_edge.media.probe import probe
from vlm_edge.media.source import Bytes

HERE = Path(__file__).parent
SIMD = HERE.parent / ".venv-simd" / "bin" / "python"
PIXELS, TARGET_PIXELS = 12_000_000, 1_000_000
WHITE = (255, 255, 255)

QUESTIONS = {
    "decode": "decode the JPEG",
    "native": "resize by the kernel of its own",
    "exact": "resize as the models' own processors do",
    "encode": "encode as PNG",
    "engine": "the engine, file to file",
}


# One side


def works(data: bytes) -> dict[str, Callable[[], Any]]:
    found, image = probe(Bytes(data)), opened(data)
    size = fit(Size(*image.size), max(image.size), TARGET_PIXELS)
    small = image.resize(size, pillow.BICUBIC)
    return {
        "decode": partial(opened, data),
        "native": partial(image.resize, size, pillow.BICUBIC),
        "exact": partial(pillow.resampled, image, size),
        "encode": lambda: small.save(io.BytesIO(), "PNG", compress_level=pillow.PNG_LEVEL),
        "engine": partial(pillow.resize, data, found, upright(size, found.orientation), WHITE, "image/png"),
    }


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def upright(size: Size, orientation: int) -> Size:
    return size.turned() if orientation >= 5 else size


def answer_questions(photo: Path) -> None:
    """A line in, a line out: the name of a question, and the seconds that it took."""
    asked = works(photo.read_bytes())
    print(PIL.__version__, flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        asked[line.strip()]()
        print(time.perf_counter() - begin, flush=True)


# Both


@contextmanager
def side(interpreter: Path | str, photo: Path) -> Iterator[tuple[str, Callable[[str], float]]]:
    """The version of Pillow there, and how to ask it."""
    command = [str(interpreter), str(Path(__file__).absolute()), "--answer", str(photo)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert process.stdin
    assert process.stdout
    try:
        yield process.stdout.readline().strip(), partial(ask, process.stdin, process.stdout)
    finally:
        process.stdin.close()
        process.wait()


def ask(questions: Any, answers: Any, question: str) -> float:
    print(question, file=questions, flush=True)
    return float(answers.readline())


def nearest(folder: Path) -> Path:
    """The photo of a folder that is nearest to 12 megapixels."""
    return min(folder.glob("*.jpg"), key=lambda file: abs(probe(Bytes(file.read_bytes())).size.pixels - PIXELS))


def compared(simd: Path, photo: Path, rounds: int) -> list[dict[str, Any]]:
    from common import alternating

    rows = []
    with side(sys.executable, photo) as (version, plain), side(simd, photo) as (simd_version, fast):
        for question, words in QUESTIONS.items():
            slow_s, fast_s = alternating([partial(plain, question), partial(fast, question)], rounds)
            figures = f"Pillow {version} {slow_s * 1e3:.0f} ms; Pillow-SIMD {simd_version} {fast_s * 1e3:.0f} ms"
            ratio = slow_s / fast_s
            rows.append({"question": words, "figures": figures, "value": ratio, "result": f"{ratio:.1f} times as fast"})
    return rows


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--answer"]:
        answer_questions(Path(arguments[1]))
        return
    from common import SHIPPED, show

    corpus = os.environ.get("VLM_EDGE_CORPUS")
    photos = Path(corpus) / "photos" if corpus else SHIPPED

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side runs; medians are shown")
    parser.add_argument("--photos", type=Path, default=photos, help="folder of JPEG photos")
    parser.add_argument("--simd", type=Path, default=SIMD, help="an interpreter with Pillow-SIMD")
    asked = parser.parse_args(arguments)
    photo = nearest(asked.photos)
    if not asked.json:
        print(f"{photo.name}: {json.dumps(probe(Bytes(photo.read_bytes())).size)}")
    show(compared(asked.simd, photo, asked.rounds), asked.json)


if __name__ == "__main__":
    main(sys.argv[1:])
