"""Sources: the picture files and documents of a folder tree."""

import os
from collections.abc import Iterator
from pathlib import Path

# By name alone, to leave out what lies beside the pictures. What a file is, its first bytes tell.
SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jfif .mpo .png .apng .webp .gif .tif .tiff .avif .heic .heif .bmp .jp2 .j2k .jxl .ico .svg"
    " .pnm .ppm .pgm .pbm .pdf".split()
)


def pictures(root: Path, *, without: Path) -> Iterator[Path]:
    """Paths relative to `root`, in sorted order; links to folders are not followed, `without` is passed over."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if (here / name).resolve() != without.resolve())
        for name in sorted(files):
            if Path(name).suffix.lower() in SUFFIXES:
                yield (here / name).relative_to(root)
