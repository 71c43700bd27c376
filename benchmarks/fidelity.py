"""
Can what comes out still be read, and does it look the same? Measured against an ideal resize to the same size.

    fidelity.py [--corpus DIR] [--config edge.toml] [--profile NAME ...] [--only WORD] [--no-ocr] [--json]

Text: tesseract reads the original, our result, and the ideal (Lanczos in floating point, lossless); the similarity of
two texts is 1 - Levenshtein distance / length of the longer. OCR is chaotic: a text may change when a picture grows by
one pixel. Where ours falls short, the ideal is read in the sizes around as well, which tells how much is chance.
Photos: PSNR of RGB and SSIM of luma (Wang et al. 2004) against the ideal, at `standard`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from math import log10
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from common import MODEL, row, show
from originals import ideal, original, png_of, tells_its_colours
from PIL import Image

from vlm_edge import Edge, EdgeError, Settings, Size

READ_FOLDERS = ("documents", "screenshots")
PROFILES = ("document", "invoice", "standard")
# Tesseract reads English alone here; of fewer characters no ratio says anything.
OTHER_SCRIPTS = ("chinese", "hebrew", "korean")
MIN_CHARACTERS = 100
# Sparse text: no search for columns, which makes other ones of each size; of all modes the text changes least here.
PAGE_MODE = "11"
AROUND = ((1, 1), (-1, -1), (2, 2), (-2, -2))
Pixels = npt.NDArray[np.float64]

LUMA = np.array([0.299, 0.587, 0.114])

AVERAGE_BAR, FILE_BAR = -0.01, -0.03
PSNR_BAR, SSIM_BAR = 38.0, 0.98


class Source(NamedTuple):
    name: str
    data: bytes
    image: Image.Image  # the original, as other decoders see it


class Reading(NamedTuple):
    """How much of an original's text is still read."""

    file: str
    profile: str
    size: Size
    action: str
    identical: bool  # the bytes are those of the source
    ours: float
    ideal: float
    around: tuple[float, ...] = ()  # the ideal in sizes around; measured where ours falls short

    @property
    def loss(self) -> float:
        return self.ours - self.ideal

    @property
    def by_chance(self) -> bool:
        """Whether the ideal itself, a pixel larger or smaller, reads no better than this."""
        return bool(self.around) and self.ours - min(self.ideal, *self.around) >= FILE_BAR


class Likeness(NamedTuple):
    file: str
    size: Size
    bytes: int
    psnr: float
    ssim: float


# Files


def read_sources(corpus: Path, only: str) -> Iterator[Source]:
    """What is read: of several pages the first. A PDF has no original in pixels."""
    for file in (file for folder in READ_FOLDERS for file in sorted((corpus / folder).iterdir())):
        name = str(file.relative_to(corpus))
        if only in name and not any(script in name for script in OTHER_SCRIPTS) and file.suffix != ".pdf":
            data = file.read_bytes()
            yield Source(name, data, original(data))


def photo_sources(corpus: Path, only: str) -> Iterator[Source]:
    for file in sorted((corpus / "photos").iterdir()):
        data = file.read_bytes()
        if only in str(file.relative_to(corpus)) and tells_its_colours(data):
            yield Source(file.name, data, original(data))


# Text


@cache
def text_of(picture: bytes) -> str:
    """What tesseract reads in a PNG, its white space made even."""
    command = ["tesseract", "stdin", "stdout", "--psm", PAGE_MODE, "-l", "eng"]
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    run = subprocess.run(command, input=picture, capture_output=True, check=True, env=environment)
    return " ".join(run.stdout.decode().split())


def read(image: Image.Image) -> str:
    return text_of(png_of(image))


def similarity(one: str, other: str) -> float:
    """1 - Levenshtein distance / length of the longer."""
    if not one or not other:
        return float(one == other)
    return 1 - distance(characters(one), characters(other)) / max(len(one), len(other))


def characters(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def distance(one: npt.NDArray[np.uint32], other: npt.NDArray[np.uint32]) -> int:
    """Of Levenshtein, a row at a time: insertions, which run along the row, are a running minimum."""
    steps = np.arange(len(other) + 1)
    line = steps
    for count, character in enumerate(one, 1):
        following = np.empty_like(line)
        following[0] = count
        following[1:] = np.minimum(line[1:] + 1, line[:-1] + (other != character))
        line = np.minimum.accumulate(following - steps) + steps
    return int(line[-1])


def reading(edge: Edge, found: Source, profile: str) -> Reading | None:
    """None for what is refused, or has no text."""
    text = read(found.image)
    if len(text) < MIN_CHARACTERS:
        return None
    try:
        made = edge.picture(found.data, profile=profile, model=MODEL)
    except EdgeError:
        return None
    ours = similarity(read(original(made.data)), text)
    best = similarity(read(ideal(found.image, made.size)), text)
    measured = Reading(found.name, profile, made.size, made.report.action, made.data == found.data, ours, best)
    if measured.loss >= FILE_BAR:
        return measured
    return measured._replace(around=tuple(similarity(read(one), text) for one in around(found.image, made.size)))


def around(image: Image.Image, size: Size) -> Iterator[Image.Image]:
    return (ideal(image, (size.width + wider, size.height + higher)) for wider, higher in AROUND)


# Photos


def likeness(edge: Edge, found: Source) -> Likeness | None:
    """None for what is kept as it came, or refused."""
    try:
        made = edge.picture(found.data, profile="standard", model=MODEL)
    except EdgeError:
        return None
    if made.report.action == "kept":
        return None
    ours, best = (np.asarray(one, dtype=np.float64) for one in (original(made.data), ideal(found.image, made.size)))
    return Likeness(found.name, made.size, len(made.data), psnr(ours, best), ssim(ours @ LUMA, best @ LUMA))


def psnr(one: Pixels, other: Pixels) -> float:
    error = float(np.mean((one - other) ** 2))
    return 10 * log10(255**2 / error) if error else 99.0


def ssim(one: Pixels, other: Pixels) -> float:
    """Of Wang et al. 2004: a Gaussian window of 1.5 pixels, K1 = 0.01, K2 = 0.03."""
    low, high = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    mean_one, mean_other = blurred(one), blurred(other)
    covariance = blurred(one * other) - mean_one * mean_other
    variances = blurred(one**2) - mean_one**2 + blurred(other**2) - mean_other**2
    alike = (2 * mean_one * mean_other + low) * (2 * covariance + high)
    whole: Pixels = alike / ((mean_one**2 + mean_other**2 + low) * (variances + high))
    return float(whole[5:-5, 5:-5].mean())


def blurred(one: Pixels) -> Pixels:
    return np.asarray(cv2.GaussianBlur(one, (11, 11), 1.5), dtype=np.float64)


# Verdicts


def text_verdicts(readings: Sequence[Reading]) -> Iterator[dict[str, Any]]:
    for profile in dict.fromkeys(one.profile for one in readings):
        found = [one for one in readings if one.profile == profile]
        loss, figures = mean(one.loss for one in found), f"{mean(one.ours for one in found):.3f} of the text is read, "
        figures += f"{mean(one.ideal for one in found):.3f} at best; {len(found)} files"
        yield row(f"text, {profile}, on average", figures, loss, f">= {AVERAGE_BAR}", loss >= AVERAGE_BAR, "")
        worst = min(found, key=lambda one: one.loss)
        short = [one for one in found if one.loss < FILE_BAR]
        named = ", ".join(f"{one.file} {one.loss:+.3f}{' by chance' * one.by_chance}" for one in short)
        figures = f"fall short: {named or 'none'}"
        holds = all(one.by_chance for one in short)
        yield row(f"text, {profile}, on the worst file", figures, worst.loss, f">= {FILE_BAR}, or chance", holds, "")
    kept = [one for one in readings if one.action == "kept"]
    same = sum(one.identical for one in kept)
    yield row(
        "files inside their profile that are byte-identical", f"of {len(kept)}", same, "all", same == len(kept), ""
    )


def photo_verdicts(photos: Sequence[Likeness]) -> Iterator[dict[str, Any]]:
    worst, total = min(photos, key=lambda one: one.psnr), sum(one.bytes for one in photos)
    figures = f"{worst.file}; mean {mean(one.psnr for one in photos):.1f} dB; {len(photos)} photos, {total:,} bytes"
    yield row("photos, PSNR, the worst", figures, worst.psnr, f">= {PSNR_BAR:g}", worst.psnr >= PSNR_BAR, "dB")
    found, least = mean(one.ssim for one in photos), min(photos, key=lambda one: one.ssim)
    figures = f"least {least.ssim:.4f}, {least.file}; {sum(one.ssim < SSIM_BAR for one in photos)} are below"
    yield row("photos, SSIM, on average", figures, found, f">= {SSIM_BAR:g}", found >= SSIM_BAR, "")


def print_reading(one: Reading) -> None:
    chance = f"  around {min(one.around):.3f} to {max(one.around):.3f}" if one.around else ""
    words = f"{one.file[:52]:52} {one.profile:9} {one.size!s:>10} {one.action:9}"
    progress(f"{words} {one.ours:.3f} {one.ideal:.3f} {one.loss:+.3f}{chance}")


def print_likeness(one: Likeness) -> None:
    progress(f"{one.file[:52]:52} {one.size!s:>10} {one.bytes:>9,} {one.psnr:6.2f} dB  {one.ssim:.4f}")


def progress(line: str) -> None:
    print(line, file=sys.stderr if "--json" in sys.argv else sys.stdout, flush=True)


# The run


def readings(edge: Edge, asked: argparse.Namespace) -> list[Reading]:
    found: list[Reading] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for one in read_sources(asked.corpus, asked.only):
            read(one.image)  # once, before the profiles ask for it side by side
            measured = [result for result in pool.map(partial(reading, edge, one), asked.profile or PROFILES) if result]
            for result in measured:
                print_reading(result)
            found.extend(measured)
    return found


def likenesses(edge: Edge, asked: argparse.Namespace) -> list[Likeness]:
    found: list[Likeness] = []
    for one in photo_sources(asked.corpus, asked.only):
        measured = likeness(edge, one)
        if measured:
            print_likeness(measured)
            found.append(measured)
    return found


def arguments() -> argparse.Namespace:
    corpus = os.environ.get("VLM_EDGE_CORPUS")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=corpus, required=not corpus, help="default: $VLM_EDGE_CORPUS")
    parser.add_argument("--config", type=Path, help="settings, for other profiles than the shipped ones")
    parser.add_argument("--profile", action="append", help=f"may be repeated; default: {' '.join(PROFILES)}")
    parser.add_argument("--only", default="", metavar="WORD", help="files with this in their names")
    parser.add_argument("--no-ocr", action="store_true", help="photos alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    edge = Edge(Settings.load(asked.config) if asked.config else Settings())
    texts = [] if asked.no_ocr else readings(edge, asked)
    photos = likenesses(edge, asked)
    verdicts = [*(text_verdicts(texts) if texts else ()), *(photo_verdicts(photos) if photos else ())]
    if asked.json:
        found = {"texts": [one._asdict() for one in texts], "photos": [one._asdict() for one in photos]}
        print(json.dumps({**found, "verdicts": verdicts}, indent=2))
    else:
        show(verdicts, as_json=False)


if __name__ == "__main__":
    main()
