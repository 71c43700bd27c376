"""PDFs written here by hand, a few objects each: what is drawn is known from the operators in them."""

import hashlib
import io
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from PIL import Image

from tests.samples import ROOT, picture
from vlm_edge.errors import CorruptMedia, DecoderStopped, MissingDecoder, RequestError, UnsupportedMedia
from vlm_edge.geometry import Size
from vlm_edge.isolation import Isolation, IsolationSettings
from vlm_edge.media import pages

T = TypeVar("T")

WHITE, RED, BLUE, GREEN = (255, 255, 255), (255, 0, 0), (0, 0, 255), (0, 255, 0)
RED_SQUARE = b"1 0 0 rg 20 10 40 30 re f"  # left, bottom, width, height: points from the lower left corner
TEXT = b"BT /F1 24 Tf 10 40 Td (Invoice 42) Tj ET"
HELVETICA = b"/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
IN_200_BY_100 = b"/MediaBox [0 0 200 100]"
LOCKED = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%b> /U <%b> >> /ID [<%b> <%b>]"


# Files


def pdf(*objects: bytes, trailer: bytes = b"") -> bytes:
    """A file of these objects, numbered from 1, the catalog first."""
    file, places = bytearray(b"%PDF-1.7\n"), []
    for number, content in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%btrailer << /Size %d /Root 1 0 R %b >>\nstartxref\n%d\n%%%%EOF\n"
    return bytes(file) + end % (size, table, size, trailer, len(file))


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(content), entries, content)


def one_page(
    content: bytes = RED_SQUARE, page: bytes = IN_200_BY_100, *more: bytes, catalog: bytes = b"", trailer: bytes = b""
) -> bytes:
    """A file of one page; `more` are objects from number 5 on."""
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R %b >>" % catalog,
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R %b >>" % page,
        stream(content),
        *more,
        trailer=trailer,
    )


def pictures(*shown: Image.Image) -> bytes:
    """A file that Pillow writes, at 72 dots an inch: a point is a pixel."""
    file = io.BytesIO()
    shown[0].save(file, "PDF", save_all=True, append_images=shown[1:], quality=95)
    return file.getvalue()


def drawn(data: bytes, size: Size, page: int = 0, background: tuple[int, int, int] = WHITE) -> Image.Image:
    raster = pages.render(data, page, size, background)
    assert (raster.size, raster.bands, raster.bits) == (size, 3, 8)
    return Image.frombytes("RGB", raster.size, raster.data)


def pixels(image: Image.Image) -> list[tuple[int, int, int]]:
    data = image.tobytes()
    return list(zip(data[0::3], data[1::3], data[2::3], strict=True))


def box_of(colour: tuple[int, int, int], image: Image.Image) -> tuple[int, int, int, int] | None:
    """Left, top, right and bottom of all that has this colour."""
    mask = bytes(255 * (pixel == colour) for pixel in pixels(image))
    return Image.frombytes("L", image.size, mask).getbbox()


# Sizes


def test_pages_are_counted_and_measured_in_points() -> None:
    assert pages.sizes(one_page(), 8) == (1, ((200.0, 100.0),))


def test_only_so_many_pages_are_measured() -> None:
    found = pages.sizes(pictures(picture(30, 20), picture(40, 50), picture(60, 60)), 2)
    assert found == (3, ((30.0, 20.0), (40.0, 50.0)))


@pytest.mark.parametrize(
    ("page", "size"),
    [
        (b"/MediaBox [0 0 200 100] /Rotate 90", (100.0, 200.0)),
        (b"/MediaBox [0 0 200 100] /Rotate 180", (200.0, 100.0)),
        (b"/MediaBox [0 0 200 100] /CropBox [10 10 60 50]", (50.0, 40.0)),
        (b"/MediaBox [0 0 200 100] /CropBox [10 10 60 50] /Rotate 270", (40.0, 50.0)),
        (b"/MediaBox [-50 -50 50.5 50]", (100.5, 100.0)),
        (b"", (612.0, 792.0)),  # a page without a size is of the American one to every reader
    ],
)
def test_a_page_has_the_size_it_is_shown_with(page: bytes, size: tuple[float, float]) -> None:
    assert pages.sizes(one_page(page=page), 1) == (1, (size,))


# Drawing


def test_a_page_is_drawn_to_the_size_that_is_asked_for() -> None:
    # 20 to 60 points from the left, 10 to 40 from the bottom: at twice the size 40 to 120, and 120 to 180 from the top.
    image = drawn(one_page(), Size(400, 200))
    assert box_of(RED, image) == (40, 120, 120, 180)
    assert set(pixels(image)) == {RED, WHITE}


def test_each_side_has_its_own_scale() -> None:
    assert box_of(RED, drawn(one_page(), Size(200, 200))) == (20, 120, 60, 180)


@pytest.mark.parametrize("size", [Size(1, 1), Size(401, 199), Size(1_333, 667), Size(3, 2_000)])
def test_every_pixel_of_any_size_is_of_the_page(size: Size) -> None:
    filled = one_page(b"0 0 1 rg 0 0 200 100 re f")
    assert set(pixels(drawn(filled, size))) == {BLUE}


@pytest.mark.parametrize(
    ("page", "box"),
    [
        (b"/Rotate 90", (10, 20, 40, 60)),  # clockwise: what was at the lower left is at the upper left
        (b"/Rotate 180", (140, 10, 180, 40)),
        (b"/Rotate 270", (60, 140, 90, 180)),
    ],
)
def test_a_turned_page_is_drawn_as_it_is_shown(page: bytes, box: tuple[int, int, int, int]) -> None:
    data = one_page(page=b"/MediaBox [0 0 200 100] " + page)
    shown = Size(200, 100) if page.endswith(b"180") else Size(100, 200)
    assert box_of(RED, drawn(data, shown)) == box


def test_only_what_the_crop_box_shows_is_drawn() -> None:
    data = one_page(page=b"/MediaBox [0 0 200 100] /CropBox [40 20 100 80]")
    assert box_of(RED, drawn(data, Size(60, 60))) == (0, 40, 20, 60)


def test_what_a_page_leaves_free_is_of_the_background() -> None:
    image = drawn(one_page(), Size(200, 100), background=(10, 20, 30))
    assert set(pixels(image)) == {RED, (10, 20, 30)}


def test_text_is_smoothed_in_greys_alone() -> None:
    image = drawn(one_page(TEXT, IN_200_BY_100 + HELVETICA), Size(400, 200))
    colours = set(pixels(image))
    assert (0, 0, 0) in colours
    assert len(colours) > 20
    assert all(red == green == blue for red, green, blue in colours)


def test_a_field_is_drawn_as_it_was_filled_in_and_without_a_highlight() -> None:
    field = b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (sum) /V (42) /Rect [20 10 60 40] /F 4 /AP << /N 6 0 R >> >>"
    look = stream(b"0 1 0 rg 0 0 20 30 re f", b"/Type /XObject /Subtype /Form /BBox [0 0 40 30]")
    page = IN_200_BY_100 + b"/Annots [5 0 R]"
    image = drawn(one_page(b"", page, field, look, catalog=b"/AcroForm << /Fields [5 0 R] >>"), Size(200, 100))
    assert box_of(GREEN, image) == (20, 60, 40, 90)
    assert set(pixels(image)) == {GREEN, WHITE}


def test_an_annotation_is_drawn() -> None:
    stamp = b"<< /Type /Annot /Subtype /Stamp /Rect [20 10 60 40] /F 4 /AP << /N 6 0 R >> >>"
    look = stream(b"0 1 0 rg 0 0 40 30 re f", b"/Type /XObject /Subtype /Form /BBox [0 0 40 30]")
    image = drawn(one_page(b"", IN_200_BY_100 + b"/Annots [5 0 R]", stamp, look), Size(200, 100))
    assert box_of(GREEN, image) == (20, 60, 60, 90)


def test_each_page_is_drawn_by_its_number() -> None:
    data = pictures(*(Image.new("RGB", (40, 30), colour) for colour in (RED, GREEN, BLUE)))
    shown = [drawn(data, Size(20, 15), page).getpixel((10, 7)) for page in (2, 0, 1)]
    for found, expected in zip(shown, (BLUE, RED, GREEN), strict=True):
        assert isinstance(found, tuple)
        assert all(abs(one - other) <= 2 for one, other in zip(found, expected, strict=True))  # Pillow writes JPEG


def test_the_same_page_gives_the_same_bytes_in_another_process() -> None:
    data, size = one_page(TEXT, IN_200_BY_100 + HELVETICA), Size(377, 191)
    there = in_child(partial(pages.render, data, 0, size, WHITE))
    assert there == pages.render(data, 0, size, WHITE) == pages.render(data, 0, size, WHITE)


def test_threads_may_draw_at_once() -> None:
    data, size = one_page(TEXT, IN_200_BY_100 + HELVETICA), Size(377, 191)
    alone = pages.render(data, 0, size, WHITE)
    with ThreadPoolExecutor(8) as pool:
        rasters = list(pool.map(lambda _: pages.render(data, 0, size, WHITE), range(64)))
    assert all(raster == alone for raster in rasters)


# Refusals


def refusal(data: bytes, kind: type[RequestError]) -> str:
    """What is said of it, the same by both."""
    said = []
    for work in (partial(pages.sizes, data, 8), partial(pages.render, data, 0, Size(20, 10), WHITE)):
        with pytest.raises(kind) as caught:
            work()
        assert type(caught.value) is kind
        said.append(caught.value.message)
    assert said[0] == said[1]
    return said[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"%PDF-1.7",
        b"%PDF-1.7\n" + b"\0" * 5_000,
        one_page()[:60],
        b"GIF89a",
    ],
)
def test_what_is_no_pdf_is_damaged(data: bytes) -> None:
    assert "it is cut short or damaged" in refusal(data, CorruptMedia)


@pytest.mark.parametrize(
    "empty",
    [
        pdf(b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>"),
        pdf(b"<< /Type /Catalog /Pages 9 0 R >>"),
        pdf(b"<< /Type /Catalog >>"),
    ],
)
def test_a_pdf_without_pages_says_so(empty: bytes) -> None:
    with pytest.raises(CorruptMedia, match="it has no pages"):
        pages.sizes(empty, 8)


def test_a_pdf_that_needs_a_password_says_so() -> None:
    key = b"5a" * 32
    locked = one_page(trailer=LOCKED % (key, key, key, key))
    assert "found a PDF that needs a password" in refusal(locked, UnsupportedMedia)


def test_a_pdf_of_a_foreign_encryption_says_so() -> None:
    foreign = one_page(trailer=b"/Encrypt << /Filter /Adobe.Foreign /V 1 >>")
    assert "found a PDF of an encryption that is not known" in refusal(foreign, UnsupportedMedia)


def test_a_pdf_that_only_its_owner_may_change_is_drawn() -> None:
    """It opens with an empty password: invoices are often locked against printing or changes."""
    assert box_of(RED, drawn(owned(RED_SQUARE), Size(200, 100))) == (20, 60, 60, 90)


PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def owned(content: bytes) -> bytes:
    """Encrypted by the standard handler, revision 2 (PDF 32000-1, 7.6.3), with an empty password of the user."""
    name = b"0123456789abcdef"
    owner = rc4(hashlib.md5(b"owner".ljust(5) + PADDING[:27]).digest()[:5], PADDING)
    key = hashlib.md5(PADDING + owner + (-4 & 0xFFFFFFFF).to_bytes(4, "little") + name).digest()[:5]
    of_object_4 = hashlib.md5(key + b"\4\0\0\0\0").digest()[:10]
    values = (value.hex().encode() for value in (owner, rc4(key, PADDING), name, name))
    return one_page(rc4(of_object_4, content), trailer=LOCKED % tuple(values))


def rc4(key: bytes, data: bytes) -> bytes:
    box = list(range(256))
    at = 0
    for one in range(256):
        at = (at + box[one] + key[one % len(key)]) % 256
        box[one], box[at] = box[at], box[one]
    out, one, at = bytearray(), 0, 0
    for value in data:
        one = (one + 1) % 256
        at = (at + box[one]) % 256
        box[one], box[at] = box[at], box[one]
        out.append(value ^ box[(box[one] + box[at]) % 256])
    return bytes(out)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)  # what Python itself does for a module that must not load
    monkeypatch.delitem(sys.modules, "pypdfium2.raw", raising=False)
    for work in (pages.need, partial(pages.sizes, one_page(), 1), partial(drawn, one_page(), Size(2, 1))):
        with pytest.raises(MissingDecoder, match=r"found a PDF, .* pip install 'vlm-edge\[pdf\]'"):
            work()


def test_with_the_extra_there_is_nothing_to_say_and_nothing_is_loaded() -> None:
    code = "import sys; from vlm_edge.media import pages; pages.need(); print('pypdfium2' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert (run.stdout, run.stderr) == ("False\n", "")


# Hostile files, in a child as they are read in service


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    isolation = Isolation(IsolationSettings(cpu_s=2.0, memory_bytes=512 << 20))
    yield isolation
    isolation.close()


def in_child(work: Callable[[], T]) -> T:
    isolation = Isolation(IsolationSettings(timeout_s=60.0))
    try:
        return isolation.run(work)
    finally:
        isolation.close()


def deflated(unit: bytes, times: int) -> bytes:
    """A zlib stream of so many units, made of one: the checksum at its end, which readers do not miss, is left out."""
    packer = zlib.compressobj(9)
    first = packer.compress(unit) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + (packer.compress(unit) + packer.flush(zlib.Z_FULL_FLUSH)) * (times - 1)


def packed(unit: bytes, times: int, entries: bytes = b"") -> bytes:
    return stream(deflated(unit, times), b"/Filter /FlateDecode " + entries)


def of_content(content: bytes, page: bytes = IN_200_BY_100, *more: bytes) -> bytes:
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R %b >>" % page,
        content,
        *more,
    )


FORM = b"/Type /XObject /Subtype /Form /BBox [0 0 200 100] /Resources << /XObject << /A %d 0 R >> >>"
WITH_FORM = IN_200_BY_100 + b"/Resources << /XObject << /A 5 0 R >> >>"
TINY_TILE = (
    b"/PatternType 1 /PaintType 1 /TilingType 1 /BBox [0 0 .0002 .0002] /XStep .0001 /YStep .0001 /Resources << >>"
)


def zeros() -> bytes:
    return of_content(packed(bytes(1_000_000), 200))


def zeros_packed_twice() -> bytes:
    twice = zlib.compress(deflated(bytes(1_000_000), 2_000))
    return of_content(stream(twice, b"/Filter [/FlateDecode /FlateDecode]"))


def many_squares() -> bytes:
    return of_content(packed(b"0 0 200 100 re f " * 50_000, 100))


def a_form_within_itself() -> bytes:
    return of_content(stream(b"/A Do"), WITH_FORM, stream(b"/A Do /A Do", FORM % 5))


def a_billion_laughs() -> bytes:
    forms = [stream(b"/A Do " * 10, FORM % (6 + number)) for number in range(20)]
    return of_content(stream(b"/A Do"), WITH_FORM, *forms, stream(b"0 0 9 9 re f", FORM % 5))


def tiles_without_number() -> bytes:
    page = IN_200_BY_100 + b"/Resources << /Pattern << /P 5 0 R >> >>"
    tile = stream(b"1 0 0 rg 0 0 .0001 .0001 re f", TINY_TILE)
    return of_content(stream(b"/Pattern cs /P scn 0 0 200 100 re f"), page, tile)


def a_picture_of_200_megapixels() -> bytes:
    header = b"/Type /XObject /Subtype /Image /Width 20000 /Height 10000 /BitsPerComponent 8 /ColorSpace /DeviceGray"
    return of_content(stream(b"200 0 0 100 0 0 cm /A Do"), WITH_FORM, packed(bytes(1_000_000), 200, header))


def a_tree_with_a_loop() -> bytes:
    tree = b"<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 2 >>"
    return pdf(b"<< /Type /Catalog /Pages 2 0 R >>", tree, b"<< /Type /Pages /Parent 2 0 R /Kids [2 0 R] /Count 1 >>")


def lists_within_lists() -> bytes:
    kids = b"[" * 100_000 + b"]" * 100_000
    return pdf(b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids %b /Count 1 >>" % kids)


def a_page_of_350_kilometres() -> bytes:
    return one_page(page=b"/MediaBox [0 0 1000000000 1000000000]")


def sides_beyond_numbers() -> bytes:
    return one_page(page=b"/MediaBox [0 0 %b 1e999]" % (b"9" * 400))


HOSTILE: list[Callable[[], bytes]] = [
    zeros,
    zeros_packed_twice,
    many_squares,
    a_form_within_itself,
    a_billion_laughs,
    tiles_without_number,
    a_picture_of_200_megapixels,
    a_tree_with_a_loop,
    lists_within_lists,
    a_page_of_350_kilometres,
    sides_beyond_numbers,
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_file_is_drawn_or_refused_and_the_next_is_drawn(
    hostile: Callable[[], bytes], isolation: Isolation
) -> None:
    data, size = hostile(), Size(800, 400)
    for work in (partial(pages.sizes, data, 8), partial(pages.render, data, 0, size, WHITE)):
        outcome(isolation, work)
    after = isolation.run(partial(pages.render, one_page(), 0, Size(200, 100), WHITE))
    assert box_of(RED, Image.frombytes("RGB", after.size, after.data)) == (20, 60, 60, 90)


def outcome(isolation: Isolation, work: Callable[[], object]) -> str:
    try:
        isolation.run(work)
    except CorruptMedia as error:
        return error.message
    return ""


def test_what_takes_too_long_is_refused(isolation: Isolation) -> None:
    said = outcome(isolation, partial(pages.render, tiles_without_number(), 0, Size(800, 400), WHITE))
    assert said == DecoderStopped("took too long").message


def test_100_000_pages_are_counted_and_the_first_measured() -> None:
    many = b"<< /Type /Pages /Kids [%b] /Count 100000 >>" % (b"3 0 R " * 100_000)
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"
    data = pdf(b"<< /Type /Catalog /Pages 2 0 R >>", many, page)
    assert pages.sizes(data, 3) == (100_000, ((9.0, 9.0),) * 3)


def test_pages_that_are_only_declared_are_missed() -> None:
    tree = b"<< /Type /Pages /Kids [3 0 R] /Count 100000 >>"
    data = pdf(b"<< /Type /Catalog /Pages 2 0 R >>", tree, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>")
    with pytest.raises(CorruptMedia, match="it is cut short or damaged"):
        pages.sizes(data, 3)


@pytest.mark.parametrize("tenths", range(10))
def test_a_file_that_is_cut_short_is_refused(tenths: int, isolation: Isolation) -> None:
    whole = one_page(page=IN_200_BY_100 + HELVETICA)  # what tells where its pages are stands at its end
    cut = whole[: len(whole) * tenths // 10]
    assert "it is cut short or damaged" in outcome(isolation, partial(pages.sizes, cut, 8))
    assert "it is cut short or damaged" in outcome(isolation, partial(pages.render, cut, 0, Size(20, 10), WHITE))


# Real files

CORPUS = os.environ.get("VLM_EDGE_CORPUS", "")
REAL = sorted(Path(CORPUS, "documents").glob("*.pdf")) if CORPUS else []


@pytest.mark.parametrize("file", REAL, ids=lambda file: file.name)
def test_a_real_file_cut_short_anywhere_is_drawn_or_refused_as_such(file: Path, isolation: Isolation) -> None:
    whole = file.read_bytes()
    for tenths in range(10):
        cut = whole[: len(whole) * tenths // 10]
        for work in (partial(pages.sizes, cut, 8), partial(pages.render, cut, 0, Size(300, 400), WHITE)):
            said = outcome(isolation, work)
            assert not said or "it is cut short or damaged" in said or "it has no pages" in said


@pytest.mark.parametrize("file", REAL, ids=lambda file: file.name)
def test_a_real_page_has_ink_on_paper(file: Path) -> None:
    """Seen by eye when this was written: upright, whole, crisp; here, that something dark stands on something light."""
    _, ((width, height), *_) = pages.sizes(file.read_bytes(), 1)
    image = drawn(file.read_bytes(), Size(round(width / 2), round(height / 2))).convert("L")
    dark, light = image.getextrema()
    assert isinstance(dark, int)
    assert isinstance(light, int)
    assert dark < 100 < 200 < light


@pytest.mark.skipif(not CORPUS, reason="needs VLM_EDGE_CORPUS")
def test_a_real_file_with_a_password_says_so() -> None:
    locked = Path(CORPUS, "broken", "password.pdf").read_bytes()
    assert "found a PDF that needs a password" in refusal(locked, UnsupportedMedia)
