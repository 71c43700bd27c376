"""
Determinism: the same input and settings give the same bytes in every process, thread and order.

vLLM's caches of pictures and prefixes are keyed on bytes.
"""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pillow_heif
import pytest
from PIL import Image

from tests.media.files import animated, noise, pages, turned, wide_profile
from tests.samples import PHONE, TRANSPARENT, TURNED, chat, encoded, image_part, picture

# Prints a hash of everything that can be made of the files in a folder, in so many threads, from either end.
CHILD = """
import hashlib, json, sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from vlm_edge import Edge, EdgeError, Profile, Settings

folder, threads, step = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
made = {
    **{kind: Profile(max_side=600, format=kind, reencode="always") for kind in ("auto", "keep", "jpeg", "png", "webp")},
    "pillow": Profile(max_side=600, engine="pillow"),
    "cubic": Profile(max_side=600, kernel="cubic", format="jpeg"),
    "small": Profile(max_side=600, format="jpeg", max_encoded_bytes=40_000),
    "frames": Profile(max_side=600, animation="frames"),
}
edge = Edge(Settings(profiles={**Settings().profiles, **made}))

def digest(data):
    return hashlib.sha256(data).hexdigest()

def outcome(task):
    profile, file = task
    try:
        return [digest(one.data) for one in edge.pages(file.read_bytes(), profile=profile)]
    except EdgeError as error:
        return str(error)

def prepared():
    return digest(edge.prepare("/v1/chat/completions", (folder / "body.json").read_bytes()).body)

if __name__ == "__main__":
    files = sorted(file for file in folder.iterdir() if file.suffix != ".json")
    tasks = list(product(edge.settings.profiles, files))[::step]
    with ThreadPoolExecutor(threads) as pool:
        results = dict(zip((f"{profile} {file.name}" for profile, file in tasks), pool.map(outcome, tasks)))
    print(json.dumps({**results, "body": prepared()}, sort_keys=True))
    edge.close()
"""


def sources() -> dict[str, bytes]:
    still, clear = picture(900, 700), Image.open(TRANSPARENT).resize((720, 450))
    return {
        "photo.jpg": PHONE.read_bytes(),
        "turned.jpg": TURNED.read_bytes(),
        "turned.png": turned("PNG", 6, 900, 640),
        "wide.jpg": encoded(still, "JPEG", icc_profile=wide_profile()),
        "ink.jpg": encoded(still.convert("CMYK"), "JPEG"),
        "noise.png": encoded(noise(700, 500), "PNG"),
        "clear.png": encoded(clear, "PNG"),
        "palette.png": encoded(still.quantize(16), "PNG"),
        "scan.png": encoded(still.convert("1"), "PNG"),
        "still.gif": encoded(still.quantize(64), "GIF"),
        "moving.gif": animated("GIF"),
        "lossy.webp": encoded(still, "WEBP"),
        "lossless.webp": encoded(clear, "WEBP", lossless=True),
        "fax.tif": encoded(still.convert("1"), "TIFF", compression="group4"),
        "pages.tif": pages(3),
        "still.avif": encoded(still, "AVIF"),
        "still.bmp": encoded(still, "BMP"),
        "still.jp2": encoded(still, "JPEG2000"),
        "still.heic": heic(still),
        "pages.pdf": encoded(still, "PDF", save_all=True, append_images=[still.rotate(180)]),
    }


def heic(image: Image.Image) -> bytes:
    file = io.BytesIO()
    pillow_heif.from_pillow(image).save(file, quality=80)
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for name, data in sources().items():
        (folder / name).write_bytes(data)
    pictures = [image_part(sources()[name]) for name in ("photo.jpg", "clear.png", "lossy.webp")]
    (folder / "body.json").write_bytes(chat(*pictures))
    return folder


def hashes(folder: Path, *, seed: int, threads: int, step: int) -> dict[str, list[str] | str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", CHILD, str(folder), str(threads), str(step)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    found: dict[str, list[str] | str] = json.loads(run.stdout)
    return found


def test_two_processes_make_the_same_bytes_of_everything(folder: Path) -> None:  # B154
    first = hashes(folder, seed=1, threads=1, step=1)
    second = hashes(folder, seed=2, threads=4, step=-1)
    assert first == second
    assert not [name for name, found in first.items() if isinstance(found, str) and name != "body"]
    assert {name.split()[-1] for name in first} == {*sources(), "body"}
    assert first["png photo.jpg"] != first["jpeg photo.jpg"] != first["small photo.jpg"]
