"""
Pages: PDF pages as pictures. The only module that knows PDFium.

PDFium keeps its state in the process: one call at a time, and what was opened last is closed first. Sizes are in points
of 1/72 inch, as PDFium tells them: turned and cropped as the page is shown.
"""

import ctypes
import importlib.util
import math
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from vlm_edge.errors import CorruptMedia, MissingDecoder, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.media.raster import Raster

_one_at_a_time = Lock()
_DAMAGED = "it is cut short or damaged"


def need() -> None:
    """Raise MissingDecoder where PDFium is not installed; it is not loaded for that."""
    if importlib.util.find_spec("pypdfium2") is None:
        raise _missing()


def sizes(data: bytes, at_most: int) -> tuple[int, tuple[tuple[float, float], ...]]:
    """How many pages a PDF has, and the width and height of the first ones of them, in points."""
    pdfium = _pdfium()
    with _one_at_a_time, _document(pdfium, data) as document:
        count = pdfium.FPDF_GetPageCount(document)
        if count < 1:
            raise CorruptMedia("it has no pages")
        return count, tuple(_page_size(pdfium, document, page) for page in range(min(count, at_most)))


def render(data: bytes, page: int, size: Size, background: tuple[int, int, int]) -> Raster:
    """A page with its annotations and its filled form fields, drawn to exactly this size."""
    pdfium = _pdfium()
    canvas = bytearray(bytes(background) * size.pixels)
    with (
        _one_at_a_time,
        _document(pdfium, data) as document,
        _forms(pdfium, document) as forms,
        _page(pdfium, document, forms, page) as opened,
        _bitmap(pdfium, size, canvas) as bitmap,
    ):
        place = (bitmap, opened, 0, 0, *size, 0, pdfium.FPDF_ANNOT | pdfium.FPDF_REVERSE_BYTE_ORDER)
        pdfium.FPDF_RenderPageBitmap(*place)
        if forms:
            pdfium.FPDF_FFLDraw(forms, *place)
    return Raster(size=size, bands=3, data=bytes(canvas))


def _missing() -> MissingDecoder:
    return MissingDecoder("a PDF", "install the extra pdf: pip install 'vlm-edge[pdf]'")


def _pdfium() -> Any:
    try:
        import pypdfium2.raw
    except ImportError:
        raise _missing() from None
    return pypdfium2.raw


@contextmanager
def _document(pdfium: Any, data: bytes) -> Iterator[Any]:
    document = pdfium.FPDF_LoadMemDocument64(data, len(data), None)
    if not document:
        raise _refusal(pdfium, pdfium.FPDF_GetLastError())
    try:
        yield document
    finally:
        pdfium.FPDF_CloseDocument(document)


def _refusal(pdfium: Any, error: int) -> CorruptMedia | UnsupportedMedia:
    if error == pdfium.FPDF_ERR_PASSWORD:
        return UnsupportedMedia("a PDF that needs a password")
    if error == pdfium.FPDF_ERR_SECURITY:
        return UnsupportedMedia("a PDF of an encryption that is not known")
    return CorruptMedia(_DAMAGED)


def _page_size(pdfium: Any, document: Any, page: int) -> tuple[float, float]:
    found = pdfium.FS_SIZEF()
    if not pdfium.FPDF_GetPageSizeByIndexF(document, page, ctypes.byref(found)):
        raise CorruptMedia(_DAMAGED)
    if not all(math.isfinite(side) and side > 0 for side in (found.width, found.height)):
        raise CorruptMedia(f"page {page + 1} has no width or no height")
    return found.width, found.height


@contextmanager
def _forms(pdfium: Any, document: Any) -> Iterator[Any]:
    """What draws the fields of a form; None where there is no form. No script of the file is run."""
    if pdfium.FPDF_GetFormType(document) == pdfium.FORMTYPE_NONE:
        yield None
        return
    settings = pdfium.FPDF_FORMFILLINFO(version=2, xfa_disabled=True)  # lives as long as the forms
    forms = pdfium.FPDFDOC_InitFormFillEnvironment(document, ctypes.byref(settings))
    try:
        yield forms
    finally:
        if forms:
            pdfium.FPDFDOC_ExitFormFillEnvironment(forms)


@contextmanager
def _page(pdfium: Any, document: Any, forms: Any, page: int) -> Iterator[Any]:
    opened = pdfium.FPDF_LoadPage(document, page)
    if not opened:
        raise CorruptMedia(_DAMAGED)
    try:
        if forms:
            pdfium.FORM_OnAfterLoadPage(opened, forms)
        yield opened
    finally:
        if forms:
            pdfium.FORM_OnBeforeClosePage(opened, forms)
        pdfium.FPDF_ClosePage(opened)


@contextmanager
def _bitmap(pdfium: Any, size: Size, canvas: bytearray) -> Iterator[Any]:
    """PDFium's view of our pixels: it draws over them."""
    pixels = (ctypes.c_char * len(canvas)).from_buffer(canvas)
    bitmap = pdfium.FPDFBitmap_CreateEx(*size, pdfium.FPDFBitmap_BGR, pixels, 3 * size.width)
    if not bitmap:
        raise CorruptMedia(_DAMAGED)
    try:
        yield bitmap
    finally:
        pdfium.FPDFBitmap_Destroy(bitmap)
