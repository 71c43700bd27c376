"""
The bug log, its second part: reports about sizes, orientation, colours, formats and hostile files.

A test is named by the id of its report and says in its first line what went wrong there. A report is here; or in
TESTED_IN, which names the tests that it is elsewhere; or in NOT_HERE, with the reason.
"""

import io
import random
import re
import socket
import struct
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import msgspec
import orjson
import pytest
from PIL import Image, ImageCms, ImageDraw, ImageOps

from tests.media.files import (
    ORIENTATIONS,
    box,
    chunk,
    deep_png,
    exif,
    pixel,
    png_header,
    png_with,
    quadrants,
    tiff,
    wide_profile,
)
from tests.samples import (
    CHAT_PATH,
    QWEN,
    ROOT,
    chat,
    data_url,
    encoded,
    image_part,
    jpeg,
    opened,
    picture,
    png,
    sent_picture,
    text_part,
)
from tests.servers import PATIENCE_S, Recorder, served
from vlm_edge import Edge, Settings
from vlm_edge.edge import Picture
from vlm_edge.errors import (
    CorruptMedia,
    EdgeError,
    MediaTooLarge,
    MissingDecoder,
    RemoteMediaRefused,
    UnsupportedMedia,
)
from vlm_edge.fetch import FetchSettings
from vlm_edge.gateway.app import create_app
from vlm_edge.gateway.config import GatewaySettings
from vlm_edge.media.profile import Profile
from vlm_edge.settings import shipped_profiles

IDS = """
B37 B38 B40 B41 B43 B45
B46 B47 B49 B50 B51 B53
B55 B56 B58 B60 B62 B63 B65 B67 B69
B70 B72 B73 B74 B76 B78 B80 B82
B84 B86 B88 B89 B91 B93 B94 B96
""".split()

TESTED_IN = {
    "B91": (
        "tests.test_fetch",
        "test_a_name_is_resolved_once_and_reached_where_it_was_checked",
        "test_a_name_that_has_moved_inside_is_refused_the_next_time",
        "test_all_addresses_of_a_name_must_be_public",
        "test_a_name_is_checked_again_after_a_redirect",
    ),
}

NOT_HERE: dict[str, str] = {}

# Of what is tested here, the part that is not built: videos are not decoded, and pass unseen.
LATER = {
    "B88": "a picture in the part of a video",
    "B96": "a list of other files in the part of a video",
}

WHITE, RED, LIME, BLUE, YELLOW = (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)
CORNERS = {(0.25, 0.25): RED, (0.75, 0.25): LIME, (0.25, 0.75): BLUE, (0.75, 0.75): YELLOW}  # of `quadrants`
SMALL, LARGE = (96, 64), (600, 400)  # of which `thumbnail` passes one, if it is plain, and makes the other smaller
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
SRGB = ImageCms.createProfile("sRGB")
PLACE = "messages[0].content[1]"


def test_every_report_is_a_test_or_has_a_reason_to_be_none() -> None:
    tested = {match[1].upper() for name in globals() if (match := re.match(r"test_(b\d+)_", name))}
    assert len(set(IDS)) == len(IDS)
    assert sorted([*tested, *TESTED_IN, *NOT_HERE]) == sorted(IDS)
    assert LATER.keys() <= tested


@pytest.mark.parametrize("report", TESTED_IN)
def test_what_is_tested_elsewhere_is_there(report: str) -> None:
    module, *tests = TESTED_IN[report]
    assert all(callable(getattr(import_module(module), test)) for test in tests)


# The doors

THUMBNAIL = shipped_profiles()["thumbnail"]
TO_THUMBNAIL = {"x-vlm-edge-profile": "thumbnail"}
PROFILES = {
    "exact": msgspec.structs.replace(THUMBNAIL, format="png"),
    "other road": msgspec.structs.replace(THUMBNAIL, format="png", kernel="linear"),
    "processor": msgspec.structs.replace(THUMBNAIL, engine="pillow"),
    "large processor": Profile(engine="pillow"),
    "blue": msgspec.structs.replace(THUMBNAIL, format="png", background="#0000ff"),
    "native": Profile(max_side=65_500, max_pixels=1 << 28, align=False),
}
ROADS = pytest.mark.parametrize("road", ["exact", "other road"])
WAYS = pytest.mark.parametrize(("road", "size"), [("exact", SMALL), ("exact", LARGE), ("other road", SMALL)], ids=str)


def made(**settings: Any) -> Edge:
    profiles = shipped_profiles() | PROFILES | settings.pop("profiles", {})
    return Edge(Settings(profiles=profiles, **settings))


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    edge = made()
    yield edge
    edge.close()


@pytest.fixture(scope="module")
def backend() -> Recorder:
    return Recorder()


@contextmanager
def gateway(backend: Recorder, **settings: Any) -> Iterator[int]:
    """The gateway in front of this app; the gateway's port."""
    with served(backend) as behind:
        to = GatewaySettings(backend=f"http://127.0.0.1:{behind}", ask_backend=False)
        with served(create_app(Settings(gateway=to, **settings))) as port:
            yield port


@pytest.fixture(scope="module")
def port(backend: Recorder) -> Iterator[int]:
    """The gateway in front of `backend`, with the settings that nobody touched."""
    with gateway(backend) as port:
        yield port


def post(port: int, body: bytes, path: str = CHAT_PATH, **headers: str) -> httpx.Response:
    named = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"http://127.0.0.1:{port}{path}", content=body, headers=named, timeout=PATIENCE_S)


def refused_with(response: httpx.Response, code: str, param: str = PLACE) -> str:
    """The message of a refusal that is a 400, in the shape of OpenAI's."""
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)
    return str(error["message"])


def url_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def seen(made: Picture | bytes) -> Image.Image:
    return opened(made.data if isinstance(made, Picture) else made).convert("RGB")


def alike(one: Any, other: Any, tolerance: int = 4) -> bool:
    return all(abs(a - b) <= tolerance for a, b in zip(one, other, strict=True))


def sent(edge: Edge, data: bytes) -> bytes:
    """The file that goes on for this one, as a thumbnail."""
    return sent_picture(bytes(edge.prepare(CHAT_PATH, chat(image_part(data)), TO_THUMBNAIL).body))


def middle(edge: Edge, data: bytes, profile: str = "exact") -> Any:
    return pixel(seen(edge.picture(data, profile)), 0.5, 0.5)


def noise(width: int, height: int) -> Image.Image:
    """A picture that no format makes small, always the same."""
    return Image.frombytes("RGB", (width, height), random.Random(0).randbytes(width * height * 3))


LOSSLESS: dict[str, dict[str, Any]] = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}


def written(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The picture in this format, with as little loss as it has."""
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
        options |= {"quality": 95}
    if kind == "AVIF":
        options |= {"quality": 95}
    return encoded(image, kind, **LOSSLESS.get(kind, {}), **options)


# Sizes

STRIPS = [(8_000, 200), (200, 6_000)]
# The sides that are rounded to the model's grid.


@cache
def squares(size: tuple[int, int]) -> bytes:
    """A strip of squares, red and blue in turn."""
    side, image = min(size), Image.new("RGB", size, "blue")
    for at in range(0, max(size), 2 * side):
        corner = (at, 0) if size[0] == max(size) else (0, at)
        image.paste("red", (*corner, corner[0] + side, corner[1] + side))
    return encoded(image, "PNG")


@pytest.mark.parametrize("profile", shipped_profiles())
@pytest.mark.parametrize("size", STRIPS)
def test_b37_a_panorama_is_shrunk_by_one_factor(size: tuple[int, int], profile: str, edge: Edge) -> None:
    """Width and height were halved each for itself, down to a floor, and panoramas were distorted."""
    content = edge.picture(squares(size), profile).report.content_after
    long, short = max(content), min(content)
    assert (content.width > content.height) == (size[0] > size[1])
    assert abs(short - min(size) * long / max(size)) <= 1


@pytest.mark.parametrize("size", STRIPS)
def test_b37_and_all_of_it_is_there_in_its_order(size: tuple[int, int], edge: Edge) -> None:
    """What did not fit was lost."""
    made = edge.picture(squares(size), "exact")
    content = seen(made).crop((0, 0, *made.report.content_after))
    count = max(size) // min(size)
    for number in range(count):
        along = (number + 0.5) / count
        place = (along, 0.5) if size[0] == max(size) else (0.5, along)
        assert alike(pixel(content, *place), BLUE if number % 2 else RED, 60)


def page(width: int, height: int) -> bytes:
    """A page of lines of text."""
    image = Image.new("L", (width, height), 255)
    draw = ImageDraw.Draw(image)
    for line in range(60, height - 60, 60):
        draw.text((80, line), f"{line} the quick brown fox jumps over the lazy dog " * 3, fill=0, font_size=36)
    return encoded(image, "PNG")


@pytest.mark.parametrize(("max_side", "expected"), [(None, (1_540, 2_044)), (1_500, (1_120, 1_484))])
def test_b38_the_long_side_of_a_page_is_a_setting(
    max_side: int | None, expected: tuple[int, int], tmp_path: Path
) -> None:
    """A page in full size was read worse than a smaller one, and its size could not be set."""
    file = tmp_path / "edge.toml"
    file.write_text(f"[profiles.document]\nmax_side = {max_side}\nmax_pixels = 9_000_000\n" if max_side else "")
    edge = Edge(Settings.load(file))
    made = edge.picture(page(3_000, 4_000), "document")
    edge.close()
    assert opened(made.data).size == expected  # 3:4, in cells of 28
    assert made.media_type == "image/png"


def test_b38_the_setting_is_documented() -> None:
    """Nobody could find out which size was best."""
    document = tomllib.loads((ROOT / "profiles" / "document.toml").read_text("utf-8"))
    assert document["max_side"] == shipped_profiles()["document"].max_side
    assert "`max_side`" in (ROOT / "README.md").read_text("utf-8")


def test_b40_a_large_screenshot_is_made_smaller_before_it_is_sent() -> None:
    """It was made smaller only when the provider had refused it."""
    backend = Recorder(status=400, body=b"{}")
    with gateway(backend) as port:
        post(port, chat(image_part(png(3_000, 1_900), "image/png")))
    [received] = backend.received
    assert max(opened(sent_picture(received.body)).size) <= 1_024


THIN = [(500, 19), (19, 500), (500, 1), (1, 500), (199, 1), (60, 20)]


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "BMP", "PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("size", THIN, ids=str)
def test_b41_no_side_that_is_sent_is_thinner_than_a_cell_of_the_model(
    size: tuple[int, int], kind: str, edge: Edge
) -> None:
    """A side of less than a patch of the model's ended in a 500."""
    data = encoded(Image.new("RGB", size, "red"), kind)
    body = chat(image_part(data))
    if max(size) > 200 * min(size):  # the processor of Qwen refuses it
        with pytest.raises(UnsupportedMedia, match=f"{size[0]}x{size[1]}"):
            edge.prepare(CHAT_PATH, body)
    else:
        assert min(opened(sent_picture(bytes(edge.prepare(CHAT_PATH, body).body))).size) >= 28


@pytest.mark.parametrize("size", [(500, 19), (19, 500), (1_900, 20)], ids=str)
def test_b41_a_thin_picture_is_not_stretched_for_it(size: tuple[int, int], edge: Edge) -> None:
    """Or it was stretched to the patch."""
    made = edge.picture(encoded(Image.new("RGB", size, "red"), "TIFF"))
    content = made.report.content_after
    assert abs(content.width * size[1] - content.height * size[0]) <= max(size)  # within a pixel of its ratio
    for x, y in ((2, 2), (content.width - 3, content.height - 3)):
        assert alike(seen(made).getpixel((x, y)), RED, 30)
    assert alike(seen(made).getpixel((made.size.width - 2, made.size.height - 2)), WHITE)


BOX = (1_200, 600, 1_800, 1_000)  # in a picture of 3000x2000


def boxed(orientation: int = 1) -> bytes:
    image = Image.new("RGB", (3_000, 2_000), "white")
    image.paste("black", BOX)
    stored = image.transpose(Image.Transpose.ROTATE_90) if orientation == 6 else image
    return encoded(stored, "JPEG", exif=exif(orientation))


@pytest.mark.parametrize("orientation", [1, 6])
def test_b43_a_box_in_the_sent_picture_can_be_told_in_the_original(
    orientation: int, port: int, backend: Recorder
) -> None:
    """Models answered in pixels of the resized picture, whose size nobody was told."""
    response = post(port, chat(image_part(boxed(orientation))))
    scales = [float(text) for text in response.headers["x-vlm-edge-scale"].split("x")]
    found = ImageOps.invert(
        opened(sent_picture(backend.last.body)).convert("L").point(lambda v: 255 * (v > 127))
    ).getbbox()
    assert found
    told = [round(side / scales[axis % len(scales)]) for axis, side in zip((0, 1, 0, 1), found, strict=True)]
    assert alike(told, BOX, 4)


def test_b43_both_sizes_are_reported(edge: Edge) -> None:
    """Nor could it be asked for."""
    report = edge.prepare(CHAT_PATH, chat(image_part(boxed(6)), image_part(jpeg(300, 200)))).report
    assert report
    assert [one.size_before for one in report.pictures] == [(3_000, 2_000), (300, 200)]
    assert [one.size_after for one in report.pictures] == [(1_008, 672), (300, 200)]
    assert [one.content_after for one in report.pictures] == [(1_008, 672), (300, 200)]


def test_b43_who_needs_the_original_can_have_it(edge: Edge) -> None:
    """There was no way round it."""
    made = edge.picture(data := jpeg(3_000, 2_000), "native")
    assert (made.data, made.report.scale) == (data, "1.0000")


@pytest.mark.parametrize("size", [(17_000, 10), (66_000, 10), (10, 17_000), (10, 66_000)], ids=str)
@pytest.mark.parametrize("profile", ["standard", "native"])
def test_b45_a_strip_that_the_model_refuses_is_refused(size: tuple[int, int], profile: str, edge: Edge) -> None:
    """A strip wider than the format may be ended in a 500."""
    with pytest.raises(UnsupportedMedia, match=f"{size[0]}x{size[1]}"):
        edge.picture(encoded(Image.new("L", size), "PNG"), profile)


@pytest.mark.parametrize("size", [(17_000, 100), (200, 33_000), (66_000, 400)], ids=str)
@pytest.mark.parametrize("kind", ["webp", "jpeg"])
def test_b45_what_is_too_large_for_its_format_is_written_in_another(size: tuple[int, int], kind: Any) -> None:
    """So did one that the model would have taken."""
    profile = msgspec.structs.replace(PROFILES["native"], format=kind, reencode="always")
    edge = made(profiles={"strip": profile})
    picture = edge.picture(encoded(Image.new("L", size, 90), "PNG"), "strip")
    edge.close()
    found = opened(picture.data)
    assert found.size == picture.size
    assert alike(pixel(found.convert("RGB"), 0.5, 0.5), (90, 90, 90))
    assert max(found.size) == min(max(size), 65_500)


# Orientation

TURNABLE = ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"]


def stored(orientation: int, size: tuple[int, int]) -> Image.Image:
    """`quadrants`, as a camera stores them that notes this orientation: by the drawings of Exif 2.3, 4.6.4."""
    turn = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    image = quadrants(*size)
    return image.transpose(turn[orientation]) if orientation > 1 else image


def is_upright(data: bytes, size: tuple[int, int]) -> bool:
    """For who reads the tag, and for who does not."""
    image = opened(data)
    assert image.getexif().get(0x0112, 1) == 1
    assert abs(image.width / image.height - size[0] / size[1]) < 0.1
    return all(alike(pixel(image.convert("RGB"), *at), colour, 30) for at, colour in CORNERS.items())


@pytest.mark.parametrize("orientation", [6, 8])
@pytest.mark.parametrize("profile", shipped_profiles())
def test_b46_a_photo_of_a_phone_is_turned_once(profile: str, orientation: int, port: int, backend: Recorder) -> None:
    """The tag was not read, so the model saw the photo on its side; or it was left in, and the photo turned twice."""
    for size in (SMALL, (1_100, 800)):
        body = chat(image_part(encoded(stored(orientation, size), "JPEG", quality=95, exif=exif(orientation))))
        assert post(port, body, x_vlm_edge_profile=profile).status_code == 200
        assert is_upright(sent_picture(backend.last.body), size)


@SIZES
@pytest.mark.parametrize("kind", TURNABLE)
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_b47_all_eight_orientations_come_out_upright(
    orientation: int, kind: str, size: tuple[int, int], edge: Edge
) -> None:
    """The seven that are not upright came out wrong, the mirrored ones with them."""
    data = written(stored(orientation, size), kind, exif=exif(orientation))
    assert is_upright(sent(edge, data), size)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_b47_so_they_do_for_the_models_own_way_to_resize(orientation: int, kind: str, edge: Edge) -> None:
    """So they came out where another library read them."""
    for size in (SMALL, LARGE):
        data = encoded(stored(orientation, size), kind, exif=exif(orientation), **LOSSLESS.get(kind, {}))
        assert is_upright(edge.picture(data, "processor").data, size)


@pytest.mark.parametrize("size", [(100, 200), (1_000, 3_000), (4_000, 300)], ids=str)
def test_b49_tokens_are_counted_of_the_picture_as_it_is_seen(size: tuple[int, int], edge: Edge) -> None:
    """They were counted by the width and height in the file, before it was turned."""
    lying, standing = Image.new("RGB", size, "red"), Image.new("RGB", (size[1], size[0]), "red")
    found = edge.picture(encoded(lying, "JPEG", exif=exif(6)))
    expected = edge.picture(encoded(standing, "JPEG"))
    assert found.report.size_before == standing.size
    assert found.tokens == -(-found.size.width // 28) * -(-found.size.height // 28)
    assert found.report.tokens_before == expected.report.tokens_before
    assert (found.size.width < found.size.height) == (size[0] > size[1])
    assert opened(found.data).size == found.size


def divided_by_zero() -> bytes:
    """An Exif block whose resolution is 1/0, and which says 6 (on its side) behind it."""
    fields = [(0x011A, 5, 38), (0x0112, 3, 6 << 16 if sys.byteorder == "big" else 6)]
    written = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in sorted(fields, reverse=True))
    return b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 2) + written + bytes(4) + struct.pack("<II", 1, 0)


BAD_EXIF = {
    "a rational of 1/0": divided_by_zero(),
    "a loop": b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<HHHIII", 1, 0x8769, 4, 1, 8, 8),
    "nothing": b"Exif\0\0",
    "no directory": b"Exif\0\0II*\0\xff\xff\xff\x7f",
    "junk": b"Exif\0\0" + random.Random(1).randbytes(300),
    "cut short": b"Exif\0\0MM\0*\0\0\0\x08\0\x20\x01\x12",
    "half a magic": b"Exif\0\0I",
}


@SIZES
@pytest.mark.parametrize("block", BAD_EXIF)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "HEIF"])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_b50_bad_metadata_never_fail_a_picture(kind: str, block: str, size: tuple[int, int], edge: Edge) -> None:
    """A rational with the denominator zero raised, and whoever read the file gave up."""
    data = written(quadrants(*size), kind, exif=BAD_EXIF[block])
    turned = block == "a rational of 1/0"
    found = ImageOps.exif_transpose(opened(sent(edge, data))).convert("RGB")  # as the servers behind read it
    assert (found.height > found.width) == turned
    expected = quadrants(*size).transpose(Image.Transpose.ROTATE_270) if turned else quadrants(*size)
    assert all(alike(pixel(found, *at), pixel(expected, *at), 40) for at in CORNERS)


def test_b50_nor_do_those_of_a_tiff(edge: Edge) -> None:
    """In a TIFF the tags of the picture itself may be so."""
    data = encoded(quadrants(300, 200), "TIFF", dpi=(72, 72))
    for good in (struct.pack("<II", 72, 1), struct.pack("<II", 720_000, 10_000)):
        data = data.replace(good, struct.pack("<II", 72, 0))
    assert struct.pack("<II", 72, 0) in data
    assert is_upright(edge.picture(data).data, (300, 200))


@pytest.mark.parametrize(("orientation", "progressive"), [(5, False), (6, False), (7, False), (8, False), (8, True)])
def test_b51_large_pictures_are_turned_too(orientation: int, edge: Edge, *, progressive: bool) -> None:
    """A picture that is decoded row by row cannot be turned row by row: its reader failed on large ones."""
    image = stored(orientation, (3_000, 2_000))
    image = Image.blend(image, noise(*image.size), 0.2)
    found = edge.picture(encoded(image, "JPEG", quality=90, exif=exif(orientation), progressive=progressive))
    assert found.size == (1_008, 672)
    for at, colour in CORNERS.items():
        assert alike(pixel(seen(found).resize((63, 42)), *at), colour, 70)


def test_b53_one_picture_is_made_in_several_sizes(edge: Edge) -> None:
    """The second picture made of one that had been opened once failed."""
    data = encoded(noise(1_200, 900), "JPEG")
    first = [edge.picture(data, profile).data for profile in shipped_profiles()]
    with ThreadPoolExecutor(4) as pool:
        others = list(pool.map(lambda profile: edge.picture(data, profile).data, [*shipped_profiles()] * 3))
    assert others == first * 3
    assert len(set(first)) > 1


def test_b53_and_several_times_in_one_request(edge: Edge) -> None:
    """Nor could it come twice."""
    body = bytes(edge.prepare(CHAT_PATH, chat(*[image_part(encoded(noise(1_200, 900), "JPEG"))] * 3)).body)
    assert len({sent_picture(body, part=part) for part in range(3)}) == 1


# Colour

CLEAR = ["PNG", "WEBP", "TIFF", "AVIF", "HEIF", "JPEG2000"]


def framed(size: tuple[int, int], mode: str = "RGBA") -> Image.Image:
    """A red square on what is transparent, and black below."""
    clear, full = ((0, 0, 0, 0), (255, 0, 0, 255)) if mode == "RGBA" else ((0, 0), (76, 255))
    image = Image.new(mode, size, clear)
    image.paste(full, tuple(side // 4 for side in size) + tuple(side * 3 // 4 for side in size))  # type: ignore[arg-type]
    return image


@WAYS
@pytest.mark.parametrize("kind", CLEAR)
def test_b55_what_is_transparent_is_white(kind: str, road: str, size: tuple[int, int], edge: Edge) -> None:
    """What lay under the transparency came out, mostly black."""
    found = seen(edge.picture(written(framed(size), kind), road))
    assert alike(pixel(found, 0.05, 0.05), WHITE)
    assert alike(pixel(found, 0.5, 0.5), RED, 6)


@SIZES
@pytest.mark.parametrize("kind", CLEAR)
def test_b55_what_is_half_transparent_is_half_white(kind: str, size: tuple[int, int], edge: Edge) -> None:
    """Or it had edges of a colour that was not in the picture."""
    half = Image.new("RGBA", size, (255, 0, 0, 128))
    assert alike(middle(edge, written(half, kind)), (255, 127, 127))
    found = seen(edge.picture(written(framed(size), kind), "exact"))
    if kind in ("PNG", "WEBP", "TIFF"):  # without loss
        assert all(alike((red, green), (255, blue)) for red, green, blue in row_of(found))


def row_of(image: Image.Image) -> list[Any]:
    return [image.getpixel((x, image.height // 2)) for x in range(image.width)]


@pytest.mark.parametrize(("background", "expected"), [("#0000ff", BLUE), ("#ffffff", WHITE), ("#102030", (16, 32, 48))])
def test_b56_the_background_is_a_setting(background: str, expected: Any) -> None:
    """On white a white logo cannot be seen, and another background could not be had."""
    profile = msgspec.structs.replace(PROFILES["exact"], background=background)
    edge = made(profiles={"thumbnail": profile})
    for mode in ("RGBA", "LA"):
        for kind in ("PNG", "TIFF"):
            found = seen(sent(edge, encoded(framed(SMALL, mode), kind)))
            assert alike(pixel(found, 0.05, 0.05), expected)
    edge.close()


def test_b56_a_white_logo_can_be_seen_on_another(edge: Edge) -> None:
    """It was sent as a white sheet."""
    logo = Image.new("RGBA", (300, 200), (255, 255, 255, 0))
    ImageDraw.Draw(logo).text((20, 40), "Logo", fill=(255, 255, 255, 255), font_size=90)
    data = encoded(logo, "PNG")
    assert seen(edge.picture(data)).getextrema() == ((255, 255),) * 3
    assert seen(edge.picture(data, "blue")).getextrema() == ((0, 255), (0, 255), (255, 255))


def test_b56_it_is_documented() -> None:
    """It could not be found out what shows through."""
    assert "background" in tomllib.loads((ROOT / "profiles" / "standard.toml").read_text("utf-8"))
    assert "`background`" in (ROOT / "README.md").read_text("utf-8")


RAMP = struct.pack(">1024H", *(value * 65_535 // 1_023 for value in range(1_024))) * 64
LITTLE_RAMP = struct.pack("<1024H", *(value * 65_535 // 1_023 for value in range(1_024))) * 64
DEEP: dict[str, Callable[[], bytes]] = {
    "PNG": lambda: encoded(Image.frombytes("I;16", (1_024, 64), LITTLE_RAMP), "PNG"),
    "TIFF": lambda: encoded(Image.frombytes("I;16", (1_024, 64), LITTLE_RAMP), "TIFF"),
    "big-endian TIFF": lambda: encoded(Image.frombytes("I;16B", (1_024, 64), RAMP), "TIFF"),
    "PNG of colours": lambda: deep_png([[(value * 65_535 // 1_023,) * 3 for value in range(1_024)]] * 64),
    "JPEG 2000": lambda: encoded(Image.frombytes("I;16", (1_024, 64), LITTLE_RAMP), "JPEG2000"),
    "PGM": lambda: b"P5 1024 64 65535\n" + RAMP,
}


@pytest.mark.parametrize("road", ["document", "other road", "large processor"])
@pytest.mark.parametrize("kind", DEEP)
def test_b58_sixteen_bits_become_eight_from_black_to_white(kind: str, road: str, edge: Edge) -> None:
    """All but the darkest of 65,536 greys were clipped to white."""
    picture = edge.picture(DEEP[kind](), road)
    found, width = opened(picture.data).convert("RGB"), picture.report.content_after.width  # as the servers do it
    greys = [found.getpixel((x, 10)) for x in range(width)]
    assert len(set(greys)) >= 250
    assert all(alike(grey, [x * 255 / (width - 1)] * 3, 3) for x, grey in enumerate(greys) if isinstance(grey, tuple))


def clear_palette(size: tuple[int, int]) -> Image.Image:
    """Quantised, as tools for small files do it: one colour of the palette is transparent."""
    image = framed(size).convert("RGB").quantize(8)
    image.info["transparency"] = image.getpixel((0, 0))
    return image


PALETTES: dict[str, Callable[[tuple[int, int]], bytes]] = {
    "PNG": lambda size: encoded(clear_palette(size), "PNG", transparency=clear_palette(size).info["transparency"]),
    "PNG, half": lambda size: encoded(framed(size).quantize(8), "PNG"),
    "GIF": lambda size: encoded(framed(size), "GIF"),
    "grey PNG": lambda size: encoded(framed(size).convert("L"), "PNG", transparency=0),
    "RGB PNG": lambda size: encoded(framed(size).convert("RGB"), "PNG", transparency=(0, 0, 0)),
    "1-bit PNG": lambda size: encoded(
        framed(size).convert("L").point(lambda v: 255 * (v > 0)).convert("1"), "PNG", transparency=0
    ),
}


@pytest.mark.parametrize("kind", ["PNG", "PNG, half", "GIF"])
@ROADS
def test_b60_a_palette_is_expanded_before_it_is_resized(kind: str, road: str, edge: Edge) -> None:
    """Numbers of colours, and not colours, were resized or dithered, and the picture became grainy."""
    found = seen(edge.picture(PALETTES[kind](LARGE), road))
    square = found.crop(tuple(int(side * part) for part in (0.3, 0.7) for side in found.size))  # type: ignore[arg-type]
    assert all(high - low <= 2 for low, high in square.getextrema())  # type: ignore[misc]
    assert alike(pixel(square, 0.5, 0.5), RED)


@SIZES
@pytest.mark.parametrize("kind", PALETTES)
@pytest.mark.parametrize("road", ["exact", "other road", "processor", "blue"])
def test_b62_a_transparent_colour_of_a_palette_shows_the_background(
    road: str, kind: str, size: tuple[int, int], edge: Edge
) -> None:
    """It came out black."""
    found = seen(edge.picture(PALETTES[kind](size), road))
    if (road, kind) == ("processor", "RGB PNG"):  # of which the model's own processor sees the colours as they are
        assert alike(pixel(found, 0.02, 0.02), (0, 0, 0))
        return
    assert alike(pixel(found, 0.02, 0.02), BLUE if road == "blue" else WHITE)
    assert not alike(pixel(found, 0.5, 0.5), pixel(found, 0.02, 0.02), 20) or kind == "1-bit PNG"


# What these inks look like on paper: the primaries of ISO coated paper in sRGB, as every guide to print has them.
INKS: dict[tuple[int, ...], tuple[int, int, int]] = {
    (0, 0, 0, 0): WHITE,
    (255, 0, 0, 0): (0, 158, 224),
    (0, 255, 0, 0): (229, 0, 125),
    (0, 0, 255, 0): (255, 236, 0),
    (0, 255, 255, 0): (226, 0, 26),
    (0, 0, 0, 255): (29, 29, 27),
}


def cmyk(ink: tuple[int, ...], kind: str, size: tuple[int, int]) -> bytes:
    data = encoded(Image.new("CMYK", size, ink), "TIFF" if kind == "TIFF" else "JPEG", **LOSSLESS.get(kind, {}))
    return _without_adobe(data) if kind == "no marker" else data


def _without_adobe(data: bytes) -> bytes:
    """Without the segment that tells of inverted inks. Pillow takes them for inverted all the same, as most do."""
    at = data.index(b"\xff\xee")
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4]) :]


@WAYS
@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
@pytest.mark.parametrize("ink", INKS, ids=str)
def test_b63_inks_without_a_profile_become_colours(
    ink: tuple[int, ...], kind: str, road: str, size: tuple[int, int], edge: Edge
) -> None:
    """There was no way from CMYK to colours where the file had no profile."""
    assert alike(middle(edge, cmyk(ink, kind, size), road), INKS[ink], 60)


@pytest.mark.parametrize("mode", ["YCbCr", "LAB"])
def test_b63_so_do_other_spaces_of_a_tiff(mode: str, edge: Edge) -> None:
    """Nor from other spaces that a file may have its colours in."""
    red = Image.new("RGB", SMALL, "red")
    lab = ImageCms.profileToProfile(red, SRGB, ImageCms.createProfile("LAB"), outputMode="LAB")
    data = encoded(lab if mode == "LAB" and lab else red.convert(mode), "TIFF")
    assert alike(middle(edge, data), RED, 6)


@pytest.mark.parametrize("kind", ["JPEG", "no marker"])
@pytest.mark.parametrize("ink", INKS, ids=str)
def test_b65_inverted_inks_are_told_from_others(ink: tuple[int, ...], kind: str, edge: Edge) -> None:
    """Colours came out too light, or as their opposites: Adobe stores inks inverted."""
    data = cmyk(ink, kind, SMALL)
    assert (b"Adobe" in data) == (kind == "JPEG")
    assert alike(opened(data).getpixel((5, 5)), ink, 2)
    assert alike(middle(edge, data), INKS[ink], 60)


@pytest.mark.parametrize("colour", [(200, 60, 40), (30, 180, 60)])
@WAYS
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"])
def test_b67_a_wide_gamut_becomes_srgb_and_says_so(
    kind: str, road: str, size: tuple[int, int], colour: tuple[int, int, int], edge: Edge
) -> None:
    """Pixels were converted and the old profile left in the file, or it was taken away and they were not."""
    image = Image.new("RGB", size, colour)
    expected = ImageCms.profileToProfile(image, ImageCms.ImageCmsProfile(io.BytesIO(wide_profile())), SRGB)
    assert expected
    assert not alike(colour, pixel(expected, 0.5, 0.5), 6)
    found = edge.picture(written(image, kind, icc_profile=wide_profile()), road)
    assert alike(pixel(seen(found), 0.5, 0.5), pixel(expected, 0.5, 0.5), 5)
    assert "icc_profile" not in opened(found.data).info


@pytest.mark.parametrize("profile", shipped_profiles())
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_b67_none_passes_as_it_came(kind: str, profile: str, port: int, backend: Recorder) -> None:
    """A small one went on with its profile, which no model reads."""
    data = written(Image.new("RGB", (56, 56), (200, 60, 40)), kind, icc_profile=wide_profile())
    post(port, chat(image_part(data)), x_vlm_edge_profile=profile).raise_for_status()
    sent = opened(sent_picture(backend.last.body))
    assert "icc_profile" not in sent.info
    assert alike(pixel(sent.convert("RGB"), 0.5, 0.5), (219, 37, 13), 8)  # by littleCMS


BROKEN_PROFILES = {
    "cut in its header": wide_profile()[:20],
    "cut in its table": wide_profile()[:150],
    "cut in its curves": wide_profile()[:-20],
    "junk": random.Random(2).randbytes(400),
    "one byte": b"x",
    "of inks": wide_profile()[:16] + b"CMYK" + wide_profile()[20:],
    "of greys": wide_profile()[:16] + b"GRAY" + wide_profile()[20:],
}


@WAYS
@pytest.mark.parametrize("broken", BROKEN_PROFILES)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_b69_a_broken_profile_counts_as_none(
    kind: str, broken: str, road: str, size: tuple[int, int], edge: Edge
) -> None:
    """A profile that was cut short, as a drawing tool wrote it, failed the picture."""
    data = written(Image.new("RGB", size, (200, 60, 40)), kind, icc_profile=BROKEN_PROFILES[broken])
    assert alike(middle(edge, data, road), (200, 60, 40), 5)


@pytest.mark.parametrize("kept", [0, 1, 20, 100])
def test_b69_so_does_a_chunk_whose_packed_profile_is_cut(kept: int, edge: Edge) -> None:
    """The chunk was whole, and what was packed in it was not."""
    packed = zlib.compress(wide_profile())[:kept]
    for size in (SMALL, LARGE):
        data = png_with(encoded(Image.new("RGB", size, (200, 60, 40)), "PNG"), b"iCCP", b"icc\0\0" + packed)
        assert alike(pixel(seen(sent(edge, data)), 0.5, 0.5), (200, 60, 40), 5)


# Formats

STUB = b"\0\0\0\x0cftypheic"


@pytest.mark.parametrize("declared", ["image/heic", "image/jpeg"])
@pytest.mark.parametrize("rest", [b"", bytes(100), box(b"meta", bytes(4))])
def test_b70_half_a_heic_is_refused_and_not_sent(rest: bytes, declared: str, port: int, backend: Recorder) -> None:
    """It was sent on, to a server that does not know the format."""
    before = len(backend.received)
    refused_with(post(port, chat(text_part(), image_part(STUB + rest, declared))), "corrupt_media")
    assert len(backend.received) == before


def test_b70_a_whole_one_is_decoded(port: int, backend: Recorder) -> None:
    """No HEIC at all could be read."""
    post(port, chat(image_part(written(quadrants(*LARGE), "HEIF"), "image/heic"))).raise_for_status()
    assert is_upright(sent_picture(backend.last.body), LARGE)
    assert opened(sent_picture(backend.last.body)).format == "JPEG"


def test_b70_where_there_is_no_decoder_the_format_is_named(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal said nothing of what was wrong."""
    data = written(quadrants(*SMALL), "HEIF")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(MissingDecoder, match=r"a HEIC picture.*vlm-edge\[heic\]"):
        edge.picture(data)


def test_b70_so_it_is_of_a_file_that_is_cut_behind_its_name(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was refused for its missing end, which is not what is wrong."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(UnsupportedMedia, match="HEIC"):
        edge.picture(STUB)


def test_b72_the_error_names_the_one_of_several_that_cannot_be_read(port: int, backend: Recorder) -> None:
    """One HEIC among good attachments failed the message, and nobody could tell which it was."""
    good = [image_part(encoded(quadrants(*LARGE), kind)) for kind in ("WEBP", "JPEG")]
    for at in range(3):
        parts = [*good[:at], image_part(STUB, "image/heic"), *good[at:]]
        refused_with(post(port, chat(*parts)), "corrupt_media", f"messages[0].content[{at}]")
    assert post(port, chat(*good)).headers["x-vlm-edge-media"] == "images=2; kept=2"


OTHERS = {
    "TIFF": "tiff",
    "AVIF": "avif",
    "BMP": "bmp",
    "HEIF": "heic",
    "GIF": "gif",
    "ICO": "x-icon",
    "JPEG2000": "jp2",
}


@pytest.mark.parametrize("size", [(16, 16), (256, 160)], ids=str)
@pytest.mark.parametrize("kind", OTHERS)
def test_b73_what_servers_do_not_know_becomes_what_they_know(
    kind: str, size: tuple[int, int], port: int, backend: Recorder
) -> None:
    """TIFF, BMP, AVIF and HEIC were refused, though they can be read."""
    options: dict[str, Any] = {"sizes": [size], "bitmap_format": "bmp"} if kind == "ICO" else {}
    data = written(quadrants(*size).convert("RGBA" if kind == "ICO" else "RGB"), kind, **options)
    response = post(port, chat(image_part(data, f"image/{OTHERS[kind]}")))
    assert response.status_code == 200
    sent = opened(sent_picture(backend.last.body))
    assert sent.format in ("JPEG", "PNG")
    content = sent.convert("RGB").crop((0, 0, *size)) if size == (16, 16) else sent.convert("RGB")
    assert all(alike(pixel(content, *at), colour, 60) for at, colour in CORNERS.items())


def test_b73_a_drawing_is_refused_by_its_name(port: int) -> None:
    """SVG was refused as well, without saying so."""
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16"/>'
    assert "an SVG drawing" in refused_with(
        post(port, chat(text_part(), image_part(svg, "image/svg+xml"))), "unsupported_media"
    )


def animated_gif(size: tuple[int, int]) -> bytes:
    first, *others = [Image.new("RGB", size, colour) for colour in ("red", "lime", "blue")]
    return encoded(first, "GIF", save_all=True, append_images=others, duration=100)


@SIZES
def test_b74_of_a_gif_the_first_frame_is_sent_as_a_still_picture(
    size: tuple[int, int], port: int, backend: Recorder
) -> None:
    """The backend refused GIF."""
    assert post(port, chat(image_part(animated_gif(size), "image/gif"))).status_code == 200
    sent = opened(sent_picture(backend.last.body))
    assert sent.format in ("JPEG", "PNG")
    assert alike(pixel(sent.convert("RGB"), 0.5, 0.5), RED)


def test_b74_what_becomes_of_the_others_is_a_setting() -> None:
    """Nor could anything else be done with them."""
    with_frames = msgspec.structs.replace(PROFILES["exact"], animation="frames")
    edge = made(profiles={"frames": with_frames, "none": msgspec.structs.replace(with_frames, animation="refuse")})
    frames = edge.pages(animated_gif(SMALL), "frames")
    assert [alike(pixel(seen(one), 0.5, 0.5), to) for one, to in zip(frames, (RED, LIME, BLUE), strict=True)] == [
        True
    ] * 3
    with pytest.raises(UnsupportedMedia, match="3 frames"):
        edge.pages(animated_gif(SMALL), "none")
    edge.close()
    assert "`animation`" in (ROOT / "README.md").read_text("utf-8")


GREYS = (40, 120, 200)


def document(kind: str, *greys: int) -> bytes:
    first, *others = [Image.new("L", (600, 800), grey) for grey in greys]
    return encoded(first, kind, save_all=True, append_images=others)


def greys_sent(body: bytes | bytearray) -> list[int]:
    """The grey of each picture in a body, to the next of ten."""
    parts = orjson.loads(body)["messages"][0]["content"]
    return [round(pixel(seen(sent_picture(body, part=part)), 0.5, 0.5)[0] / 10) * 10 for part in range(len(parts))]


@pytest.mark.parametrize("kind", ["TIFF", "PDF"])
def test_b76_all_pages_are_sent_in_their_order(kind: str, port: int, backend: Recorder) -> None:
    """Only the first page of an invoice was read, and nobody was told."""
    pytest.importorskip("pypdfium2")
    response = post(port, chat(image_part(document(kind, *GREYS))), x_vlm_edge_profile="document")
    assert greys_sent(backend.last.body) == list(GREYS)
    assert response.headers["x-vlm-edge-media"].startswith("images=3")


@pytest.mark.parametrize("kind", ["TIFF", "PDF"])
def test_b76_pages_too_many_are_refused_or_told_of(kind: str, port: int, backend: Recorder) -> None:
    """A bound that is met in silence is the same fault again."""
    pytest.importorskip("pypdfium2")
    body = chat(text_part(), image_part(document(kind, *GREYS, *GREYS)))
    assert "6 pages" in refused_with(post(port, body, x_vlm_edge_profile="invoice"), "unsupported_media")
    response = post(port, chat(image_part(document(kind, *GREYS, *GREYS))), x_vlm_edge_profile="thumbnail")
    assert greys_sent(backend.last.body) == [40, 120, 200, 40]
    assert "left_out=2" in response.headers["x-vlm-edge-media"]


@pytest.mark.parametrize("compression", ["group4", "group3", "tiff_lzw", "packbits", "tiff_adobe_deflate"])
def test_b78_faxed_pages_are_all_read(compression: str, edge: Edge) -> None:
    """Of a scan in black and white the pages behind the first were lost."""
    shares = (0.2, 0.5, 0.8)
    first, *others = [fax(share) for share in shares]
    data = encoded(first, "TIFF", save_all=True, append_images=others, compression=compression)
    made = edge.pages(data, "document")
    assert [round(black_of(one), 1) for one in made] == list(shares)
    assert [(one.report.page, one.report.pages) for one in made] == [(1, 3), (2, 3), (3, 3)]


def fax(share: float) -> Image.Image:
    """A page of one bit a pixel, black for so much of its height from above."""
    image = Image.new("1", (600, 1_000), 1)
    image.paste(0, (0, 0, 600, int(1_000 * share)))
    return image


def black_of(made: Picture) -> float:
    grey = seen(made).convert("L")
    return grey.histogram()[0] / (grey.width * grey.height)


@SIZES
@pytest.mark.parametrize("brand", [b"isom", b"qt  ", b"mp42", b"heic"])
def test_b80_a_motion_photo_is_the_photo_that_it_begins_with(brand: bytes, size: tuple[int, int], edge: Edge) -> None:
    """A photo with a film behind it was taken for the film."""
    film = box(b"ftyp", brand, bytes(4), brand) + box(b"mdat", bytes(50_000)) + box(b"moov", bytes(100))
    made = edge.picture(encoded(quadrants(*size), "JPEG", quality=95) + film, "thumbnail")
    assert (made.report.media_type_before, made.media_type) == ("image/jpeg", "image/jpeg")
    assert is_upright(made.data, size)


@SIZES
def test_b82_of_several_pictures_in_a_jpeg_the_first_is_sent(size: tuple[int, int], edge: Edge) -> None:
    """A camera's file of several pictures was no known format."""
    other = Image.new("RGB", (size[0] // 2, size[1] // 2), "black")
    data = encoded(quadrants(*size), "MPO", save_all=True, append_images=[other], quality=95)
    assert opened(data).format == "MPO"
    assert is_upright(sent(edge, data), size)


# Hostile files

CUT: dict[str, Callable[[], bytes]] = {
    "JPEG": lambda: encoded(noise(300, 200), "JPEG"),
    "large JPEG": lambda: encoded(noise(1_400, 1_000), "JPEG"),
    "progressive JPEG": lambda: encoded(noise(300, 200), "JPEG", progressive=True),
    "PNG": lambda: encoded(noise(300, 200), "PNG"),
    "large PNG": lambda: encoded(noise(1_200, 800), "PNG", compress_level=1),
    "WebP": lambda: encoded(noise(300, 200), "WEBP"),
    "lossless WebP": lambda: encoded(noise(300, 200), "WEBP", lossless=True),
    "GIF": lambda: encoded(noise(300, 200), "GIF"),
    "TIFF": lambda: encoded(noise(300, 200), "TIFF"),
    "packed TIFF": lambda: encoded(noise(300, 200), "TIFF", compression="tiff_lzw"),
    "AVIF": lambda: encoded(noise(300, 200), "AVIF"),
    "HEIC": lambda: written(noise(300, 200), "HEIF"),
    "BMP": lambda: encoded(noise(300, 200), "BMP"),
    "PPM": lambda: encoded(noise(300, 200), "PPM"),
    "JPEG 2000": lambda: encoded(noise(300, 200), "JPEG2000"),
    "icon": lambda: encoded(noise(200, 200), "ICO", sizes=[(200, 200)]),
    "PDF": lambda: encoded(noise(300, 200), "PDF"),
}


@cache
def whole(kind: str) -> bytes:
    if kind == "PDF":
        pytest.importorskip("pypdfium2")
    return CUT[kind]()


@pytest.mark.parametrize("kind", CUT)
def test_b84_a_whole_picture_is_good(kind: str, edge: Edge) -> None:
    """So that what is refused below is refused for what it lacks."""
    assert edge.picture(whole(kind)).data


@pytest.mark.parametrize("kind", CUT)
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9, 0.97])
def test_b84_half_a_picture_is_a_400_that_names_its_place(kind: str, share: float, edge: Edge) -> None:
    """Half a file was a 500, or came out grey in its lower part, and nobody knew."""
    data = whole(kind)
    for profile in ("thumbnail", "processor"):
        body = chat(text_part(), image_part(data[: int(len(data) * share)]))
        with pytest.raises(CorruptMedia) as refused:
            edge.prepare(CHAT_PATH, body, {"x-vlm-edge-profile": profile})
        assert (refused.value.status, refused.value.param) == (400, PLACE)


def test_b84_so_it_is_over_http(port: int, backend: Recorder) -> None:
    """The client was told that the server had failed."""
    before, data = len(backend.received), whole("JPEG")
    refused_with(post(port, chat(text_part(), image_part(data[: len(data) // 2]))), "corrupt_media")
    assert len(backend.received) == before


@cache
def bomb(side: int = 20_000, depth: int = 1, colour: int = 0) -> bytes:
    """A PNG of nothing but zeros."""
    samples = {0: 1, 2: 3, 6: 4}[colour]
    rows, packer = bytes(1 + side * samples * depth // 8), zlib.compressobj(9)
    pixels = b"".join([packer.compress(rows) for _ in range(side)]) + packer.flush()
    return png_header(side, side, depth, colour) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def gif_bomb() -> bytes:
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", 65_535, 65_535, 0, 0, 0)
        + b","
        + struct.pack("<HHHHB", 0, 0, 65_535, 65_535, 0)
    )


BOMBS: dict[str, Callable[[], bytes]] = {
    "PNG": bomb,
    "PNG header": lambda: png_header(60_000, 60_000) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b""),
    "GIF": gif_bomb,
    "TIFF": lambda: tiff([(0x100, 4, 100_000), (0x101, 4, 100_000), (0x103, 3, 1), (0x106, 3, 1)]),
    "JPEG": lambda: jpeg_with_size(65_000, 65_000),
    "BMP": lambda: bmp_with_size(50_000, 50_000),
    "PGM": lambda: b"P5 50000 50000 255\n" + bytes(100),
    "WebP": lambda: webp_with_size(16_383, 16_383),
}


def jpeg_with_size(width: int, height: int) -> bytes:
    data = bytearray(jpeg(64, 64))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def bmp_with_size(width: int, height: int) -> bytes:
    data = bytearray(encoded(picture(8, 8), "BMP"))
    data[18:26] = struct.pack("<ii", width, height)
    return bytes(data)


def webp_with_size(width: int, height: int) -> bytes:
    data = bytearray(encoded(picture(64, 64), "WEBP"))
    at = data.index(b"\x9d\x01\x2a")
    data[at + 3 : at + 7] = struct.pack("<HH", width, height)
    return bytes(data)


@pytest.mark.parametrize("kind", BOMBS)
def test_b86_a_bomb_is_refused_by_its_headers(kind: str, port: int, backend: Recorder) -> None:
    """A few hundred kilobytes were decoded to as many pixels as their header said, and took all memory."""
    before = len(backend.received)
    message = refused_with(post(port, chat(text_part(), image_part(BOMBS[kind]()))), "media_too_large")
    assert "178956970" in message  # a third of a GiB in RGB: the bound of Pillow, and of vLLM
    assert len(backend.received) == before


def test_b86_so_is_each_page_of_a_document(edge: Edge) -> None:
    """Only the first page was looked at."""
    small = encoded(Image.new("L", (40, 40)), "TIFF")
    large = tiff([(0x100, 4, 100_000), (0x101, 4, 100_000), (0x103, 3, 1), (0x106, 3, 1)])
    with pytest.raises(MediaTooLarge):
        edge.prepare(CHAT_PATH, chat(image_part(joined(small, large))))


def joined(first: bytes, second: bytes) -> bytes:
    """A TIFF of the page of the first and the directory of the second."""
    at = int.from_bytes(first[4:8], "little")
    end = at + 2 + 12 * int.from_bytes(first[at : at + 2], "little")
    moved = first + bytes(len(first) % 2)
    return moved[:end] + struct.pack("<I", len(moved)) + moved[end + 4 :] + second[8:]


def asked(content: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content}]}


def fields(url: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Where a picture may come: its path and its body."""
    part, bare = url_part(url), url.partition(",")[2]
    source = {"type": "base64", "media_type": "image/png", "data": bare}
    image = {"type": "image", "source": source}
    file, read = {"type": "input_image", "image_url": url}, {"type": "input_file", "file_data": url}
    answer = {"type": "function_call_output", "call_id": "1", "output": [file]}
    return {
        "image_url": (CHAT_PATH, asked([part])),
        "image_url, a string": (CHAT_PATH, asked([{"type": "image_url", "image_url": url}])),
        "no type": (CHAT_PATH, asked([{"image_url": url}])),
        "another type": (CHAT_PATH, asked([{**part, "type": "picture"}])),
        "input_image": (CHAT_PATH, asked([file])),
        "file": (CHAT_PATH, asked([{"type": "file", "file": {"file_data": url}}])),
        "bare file": (CHAT_PATH, asked([{"type": "file", "file": {"file_data": bare}}])),
        "tool": (CHAT_PATH, asked([part], "tool")),
        "system": (CHAT_PATH, asked([part], "system")),
        "assistant": (CHAT_PATH, asked([part], "assistant")),
        "many conversations": ("/v1/chat/completions/batch", {"messages": [asked([part])["messages"]]}),
        "rendered": ("/v1/chat/completions/render", asked([part])),
        "tokens": ("/tokenize", asked([part])),
        "response": ("/v1/responses", {"input": [{"role": "user", "content": [file]}]}),
        "response, file": ("/v1/responses", {"input": [{"role": "user", "content": [read]}]}),
        "response, tool": ("/v1/responses", {"input": [answer]}),
        "message": ("/v1/messages", asked([image])),
        "message, url": ("/v1/messages", asked([{"type": "image", "source": {"type": "url", "url": url}}])),
        "message, document": ("/v1/messages", asked([{"type": "document", "source": source}])),
        "message, tool": ("/v1/messages", asked([{"type": "tool_result", "tool_use_id": "1", "content": [image]}])),
        "embedding": ("/v1/embeddings", asked([part])),
        "pooling": ("/pooling", asked([part])),
        "score": ("/score", {"queries": "a", "documents": {"content": [part]}}),
        "rank": ("/rerank", {"query": "a", "documents": {"content": [part]}}),
        "cohere": ("/v2/embed", {"images": [url]}),
        "cohere, input": ("/v2/embed", {"inputs": [{"content": [part]}]}),
        "cohere, chat": ("/cohere/v2/chat", asked([part])),
        "invocation": ("/invocations", asked([part])),
    }


@pytest.mark.parametrize("field", fields(""))
@pytest.mark.parametrize("declared", ["image/png", "video/mp4"])
def test_b88_one_gate_stands_before_every_field(field: str, declared: str, edge: Edge) -> None:
    """The bound held for one route; others decoded the bomb, or tried it as a video once it had failed as a picture."""
    path, body = fields(data_url(bomb(), declared))[field]
    with pytest.raises(MediaTooLarge) as refused:
        edge.prepare(path, orjson.dumps({"model": QWEN, **body}))
    assert refused.value.found == 20_000 * 20_000
    assert refused.value.param


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that nobody must connect to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.mark.parametrize("scheme", ["http", "https", "ftp", "file"])
def test_b89_nothing_is_fetched_unless_that_is_set(scheme: str, listener: socket.socket, edge: Edge) -> None:
    """Whoever sent a URL made the server ask its own network for it."""
    port = listener.getsockname()[1]
    for path, body in fields(f"{scheme}://127.0.0.1:{port}/latest/meta-data").values():
        if b"://" in (raw := orjson.dumps({"model": QWEN, **body})):
            with pytest.raises(EdgeError) as refused:
                edge.prepare(path, raw)
            assert refused.value.status == 400
            assert "127.0.0.1" not in refused.value.message
    with pytest.raises(BlockingIOError):
        listener.accept()


INSIDE = ["169.254.169.254", "127.0.0.1", "[::1]", "0.0.0.0", "10.0.0.1", "[::ffff:169.254.169.254]"]


@pytest.mark.parametrize("host", INSIDE)
def test_b89_where_it_is_set_the_inside_stays_out_of_reach(host: str) -> None:
    """Whoever wanted remote pictures opened the network behind the server with them."""
    edge = made(remote="fetch", fetch=FetchSettings(hosts=("*",)))
    with pytest.raises(RemoteMediaRefused, match=r"not public|not allowed") as refused:
        edge.prepare(CHAT_PATH, chat(text_part(), url_part(f"http://{host}/latest/meta-data")))
    assert refused.value.param == PLACE
    edge.close()


@pytest.mark.parametrize("status", [None, 404, 500])
def test_b93_a_remote_picture_that_does_not_come_is_no_fault_of_ours(status: int | None, backend: Recorder) -> None:
    """A host that did not answer, or not with a picture, was a 500."""
    with served(Recorder(status=status or 500)) as port:
        dead = port
        fetch = FetchSettings(hosts=(f"127.0.0.1:{port}",), private_addresses=True)
        if status:
            failed_at(dead, fetch, backend)
    if not status:
        failed_at(dead, fetch, backend)  # where nobody listens any more


def failed_at(port: int, fetch: FetchSettings, backend: Recorder) -> None:
    before = len(backend.received)
    with gateway(backend, remote="fetch", fetch=fetch) as gate:
        response = post(gate, chat(text_part(), url_part(f"http://127.0.0.1:{port}/a.png")))
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (422, "remote_media_failed", PLACE)
    assert len(backend.received) == before


def test_b93_nor_is_one_that_is_passed_on(backend: Recorder) -> None:
    """It was fetched even where the backend was to do so."""
    body = chat(url_part("http://127.0.0.1:1/a.png"))
    with gateway(backend, remote="pass") as port:
        assert post(port, body).status_code == 200
    assert backend.last.body == body


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="100000" height="100000"><rect width="9" height="9"/></svg>'
DRAWINGS = {
    "huge": SVG,
    "with its declaration": b'<?xml version="1.0" encoding="UTF-8"?>\n' + SVG,
    "an entity bomb": b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(b'<!ENTITY %c "%s">' % (97 + i, b"&%c;" % (96 + i) * 10) for i in range(1, 9))
    + b"]><svg><text>&i;</text></svg>",
    "with a comment": b"<!-- a -->" + SVG,
    "with a mark": b"\xef\xbb\xbf" + SVG,
    "packed": zlib.compress(SVG, wbits=31),
    "of another file": b'<svg xmlns:xlink="http://www.w3.org/1999/xlink"><image xlink:href="file:///etc/passwd"/></svg>',
}


@pytest.mark.parametrize("declared", ["image/svg+xml", "image/png"])
@pytest.mark.parametrize("name", DRAWINGS)
def test_b94_drawings_are_refused_whatever_they_call_themselves(name: str, declared: str, port: int) -> None:
    """A few lines of text were drawn in as many pixels as they asked for, or unpacked without end."""
    refused_with(post(port, chat(text_part(), image_part(DRAWINGS[name], declared))), "unsupported_media")


PLAYLISTS = {
    "a playlist": b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:%d/a.ts\n",
    "a list of files": b"ffconcat version 1.0\nfile 'http://127.0.0.1:%d/a'\n",
    "a session": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=a\nc=IN IP4 127.0.0.1\nm=video %d RTP/AVP 96\n",
    "a manifest": b"<?xml version='1.0'?><MPD><BaseURL>http://127.0.0.1:%d/</BaseURL></MPD>",
}


@pytest.mark.parametrize("declared", ["image/png", "video/mp4", "application/pdf"])
@pytest.mark.parametrize("name", PLAYLISTS)
def test_b96_text_that_names_other_files_is_no_picture(
    name: str, declared: str, listener: socket.socket, edge: Edge
) -> None:
    """It was given to a decoder that opened the files, or waited for them."""
    text = PLAYLISTS[name] % listener.getsockname()[1]
    for path, body in fields(data_url(text, declared)).values():
        with pytest.raises(UnsupportedMedia) as refused:
            edge.prepare(path, orjson.dumps({"model": QWEN, **body}))
        assert refused.value.status == 400
    with pytest.raises(BlockingIOError):
        listener.accept()
