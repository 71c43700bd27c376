"""
What becomes of each picture of the corpus, side by side with the original: an HTML page to look at.

    contact_sheet.py [--corpus DIR] [--profile NAME ...] OUT.html

The original is decoded by other libraries, turned upright and shown in sRGB. Thumbnails stand in the page itself.
"""

import argparse
import base64
import html
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import MODEL
from originals import original
from PIL import Image

from vlm_edge import Edge, EdgeError, Settings
from vlm_edge.edge import Picture

FOLDERS = ("photos", "screenshots", "documents", "formats")
PROFILES = ("standard", "document")
SIDE = 360

PAGE = """<!doctype html><meta charset="utf-8"><title>Contact sheet</title><style>
body {{ font: 13px system-ui, sans-serif; background: #ddd }}
td {{ padding: 6px; vertical-align: top; background: #eee }}
img {{ display: block; max-width: {side}px; max-height: {side}px }}
.refused {{ color: #b00 }}
</style><h1>{count} files, {profiles}</h1><table>{rows}</table>"""


class Cell(NamedTuple):
    """One picture of a row: what to show of it, and what to say."""

    image: Image.Image | None
    words: str
    refused: bool = False


def files(corpus: Path, folders: Sequence[str] = FOLDERS) -> list[Path]:
    return [file for folder in folders for file in sorted((corpus / folder).iterdir())]


def before(data: bytes, declared: str) -> Cell:
    words = f"{declared}, {len(data):,} bytes"
    try:
        image = original(data)
    except Exception as error:  # noqa: BLE001 (what a decoder raises for a file is its own affair)
        return Cell(None, f"{words}, not decoded ({type(error).__name__})")
    return Cell(image, f"{words}, {image.width}x{image.height}")


def after(edge: Edge, data: bytes, profile: str) -> Cell:
    try:
        made = edge.picture(data, profile=profile, model=MODEL)
    except EdgeError as error:
        return Cell(None, f"{profile}: {error.code}: {error}", refused=True)
    return Cell(_opened(made), f"{profile}: {_words(made)}")


def _opened(made: Picture) -> Image.Image:
    return original(made.data)


def _words(made: Picture) -> str:
    kind = made.media_type.removeprefix("image/")
    return f"{made.report.action}, {kind}, {made.size}, {len(made.data):,} bytes, {made.tokens} tokens"


def rows(edge: Edge, corpus: Path, profiles: Sequence[str]) -> Iterator[tuple[str, list[Cell]]]:
    """Each file with its original and its results."""
    declared = formats(corpus)
    for file in files(corpus):
        name, data = str(file.relative_to(corpus)), file.read_bytes()
        results = [after(edge, data, profile) for profile in profiles]
        yield name, [before(data, declared.get(name, "")), *results]


def formats(corpus: Path) -> dict[str, str]:
    manifest = corpus / "manifest.jsonl"
    lines = manifest.read_text("utf-8").splitlines() if manifest.is_file() else []
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return {entry["file"]: str(entry["format"]) for entry in entries}


def thumbnail(image: Image.Image) -> bytes:
    """A small JPEG; a long picture shows its beginning."""
    shown = image.crop((0, 0, min(image.width, image.height * 4), min(image.height, image.width * 4)))
    shown.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    shown.save(file, "JPEG", quality=85)
    return file.getvalue()


def cell_html(cell: Cell) -> str:
    words = f'<div class="{"refused" if cell.refused else ""}">{html.escape(cell.words)}</div>'
    if cell.image is None:
        return f"<td>{words}</td>"
    encoded = base64.b64encode(thumbnail(cell.image)).decode()
    return f'<td>{words}<img src="data:image/jpeg;base64,{encoded}"></td>'


def row_html(name: str, cells: Sequence[Cell]) -> str:
    return f"<tr><td>{html.escape(name)}</td>{''.join(cell_html(cell) for cell in cells)}</tr>\n"


def sheet(edge: Edge, corpus: Path, profiles: Sequence[str]) -> str:
    written = [row_html(name, cells) for name, cells in rows(edge, corpus, profiles)]
    return PAGE.format(side=SIDE, count=len(written), profiles=", ".join(profiles), rows="".join(written))


def arguments() -> argparse.Namespace:
    corpus = os.environ.get("VLM_EDGE_CORPUS")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT.html")
    parser.add_argument("--corpus", type=Path, default=corpus, required=not corpus, help="default: $VLM_EDGE_CORPUS")
    parser.add_argument("--profile", action="append", help=f"may be repeated; default: {' '.join(PROFILES)}")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    page = sheet(Edge(Settings.from_env()), asked.corpus, asked.profile or PROFILES)
    asked.out.write_text(page, "utf-8")
    print(f"{asked.out}: {len(page) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
