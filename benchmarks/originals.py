"""
Originals: what a person sees of a file, by decoders that the product does not use for it where there are others.

Upright, in sRGB by littleCMS, on white. The yardstick of `fidelity.py`, and the left side of `contact_sheet.py`.
"""

import io
from contextlib import suppress
from typing import Any

import numpy as np
from PIL import Image, ImageCms, ImageOps

with suppress(ImportError):
    import pillow_heif

    pillow_heif.register_heif_opener()
with suppress(ImportError):
    import pillow_jxl  # noqa: F401 (registers itself)

Image.MAX_IMAGE_PIXELS = None

SRGB = ImageCms.createProfile("sRGB")
WIDE_MODES = ("I;16", "I;16B", "I;16L", "I", "F")
PDF_DPI = 144


def original(data: bytes) -> Image.Image:
    """The first page or frame. Raises what the decoders raise."""
    if data[:5] == b"%PDF-":
        return _pdf_page(data)
    image = Image.open(io.BytesIO(data))
    image.load()
    profile = image.info.get("icc_profile")
    return _in_srgb(_on_white(_eight_bits(ImageOps.exif_transpose(image))), profile)


def tells_its_colours(data: bytes) -> bool:
    """Not so inks without a profile: each decoder has an idea of its own of what they look like."""
    image = Image.open(io.BytesIO(data))
    return image.mode != "CMYK" or "icc_profile" in image.info


def ideal(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The best that a resize can do: Lanczos in floating point, rounded once, without loss."""
    bands = [np.asarray(band.convert("F").resize(size, Image.Resampling.LANCZOS)) for band in image.split()]
    return Image.fromarray(np.clip(np.rint(np.dstack(bands)), 0, 255).astype(np.uint8))


def png_of(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def _pdf_page(data: bytes) -> Image.Image:
    import pypdfium2

    page: Any = pypdfium2.PdfDocument(data)[0]
    image: Image.Image = page.render(scale=PDF_DPI / 72).to_pil()
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode not in WIDE_MODES:
        return image
    numbers = np.asarray(image, dtype=np.float64)
    high = 65_535 if image.mode.startswith("I") else max(1.0, float(numbers.max()))
    return Image.fromarray(np.clip(np.rint(numbers / high * 255), 0, 255).astype(np.uint8))


def _on_white(image: Image.Image) -> Image.Image:
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB") if image.mode == "P" else image
    shown = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown).convert("RGB")


def _in_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    if not profile:
        return image.convert("RGB")
    try:
        return _converted(image, ImageCms.ImageCmsProfile(io.BytesIO(profile)))
    except (ImageCms.PyCMSError, OSError, ValueError):  # a profile that is none, or of another number of bands
        return image.convert("RGB")


def _converted(image: Image.Image, profile: ImageCms.ImageCmsProfile) -> Image.Image:
    intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
    found = ImageCms.profileToProfile(image, profile, SRGB, renderingIntent=intent, outputMode="RGB")
    assert found is not None  # only a conversion in place gives nothing
    return found
