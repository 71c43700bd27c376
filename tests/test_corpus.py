"""
The corpus of real and hostile files, through middleware and library: each comes out as its manifest says.

Without VLM_EDGE_CORPUS there is nothing here to run.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.samples import CHAT_PATH, chat, image_part, jpeg, opened, picture_of
from vlm_edge import Edge, EdgeError, EdgeMiddleware, Settings

FOLDER = os.environ.get("VLM_EDGE_CORPUS", "")
SETTINGS = Settings(default_profile="document")

# What the manifest calls a refusal, and how ours say it.
CODES = {
    "corrupt": {"corrupt_media"},
    "truncated": {"corrupt_media"},
    "timeout": {"corrupt_media"},
    "empty": {"corrupt_media", "invalid_data_url"},
    "too_many_pixels": {"media_too_large"},
    "unsupported_format": {"unsupported_media"},
    "animated_too_long": {"unsupported_media", "media_too_large"},
}

# Refused for a reason of our own, beside those that the manifest knows.
OURS: dict[str, str] = {
    "broken/webp_anim_16383x8000_2frames.webp": "media_too_large",  # half a gigabyte for its canvas
    "broken/decompression_bomb.ico": "media_too_large",  # by the headers of the PNG in it
    "broken/ljt_cve_2012_2806.jpg": "media_too_large",  # by its headers, damaged as they are
    "broken/ljt_poc673.jpg": "media_too_large",  # of twelve bits, which may have fewer pixels
    "broken/ljt_poc198_3617x64508.jpg": "unsupported_media",  # it does not begin as a JPEG does
    "broken/ossfuzz_36829_3x62728.jpg": "unsupported_media",  # too thin for the model
    "broken/polyglot_gif_js.gif": "unsupported_media",  # too thin for the model
    "formats/bmp_rgb32bf.bmp": "corrupt_media",  # bit masks that Pillow does not know
}


def rows() -> list[dict[str, Any]]:
    if not FOLDER:
        return []
    lines = Path(FOLDER, "manifest.jsonl").read_text("utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["class"] != "videos"]


def accepted(row: dict[str, Any]) -> set[str]:
    outcomes = {row["expect"], *(row.get("also_ok") or ())}
    return outcomes | ({"reject:unsupported_format"} if row.get("optional") else set())


def codes(row: dict[str, Any]) -> set[str]:
    kinds = [outcome.removeprefix("reject:") for outcome in accepted(row) if outcome != "decode"]
    return {code for kind in kinds for code in CODES[kind]} | {OURS.get(row["file"], "")}


def is_upright(row: dict[str, Any], size: tuple[int, int]) -> bool:
    """Not turned, not enlarged and not distorted, but for what alignment does to a side."""
    before = row.get("upright_width") or 0, row.get("upright_height") or 0
    if row["format"] == "PDF" or row.get("agree") is False or not all(before):
        return True
    scale = min(1.0, max(size) / max(before))
    return all(abs(side * scale - found) <= 32 for side, found in zip(before, size, strict=True))


def pages(row: dict[str, Any]) -> int:
    """Of a document; of an animation the first frame is sent."""
    return (row.get("frames") or 1) if row["format"] in ("TIFF", "PDF") else 1


async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    edge = Edge(SETTINGS)
    yield edge
    edge.close()


@pytest.fixture(scope="module")
def app(edge: Edge) -> EdgeMiddleware:
    return EdgeMiddleware(Starlette(routes=[Route(CHAT_PATH, echo, methods=["POST"])]), edge=edge)


def read(row: dict[str, Any]) -> bytes:
    return Path(FOLDER, row["file"]).read_bytes()


async def answered(app: EdgeMiddleware, data: bytes) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://edge") as client:
        return await client.post(CHAT_PATH, content=chat(image_part(data)), timeout=60)


@pytest.mark.filterwarnings("ignore:Image appears to be a malformed MPO file")
@pytest.mark.anyio
@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"])
async def test_a_file_of_the_corpus_comes_out_as_expected_and_the_next_is_served(
    row: dict[str, Any], app: EdgeMiddleware
) -> None:
    answer = await answered(app, read(row))
    if answer.status_code == 200:
        assert "decode" in accepted(row)
        sent = [opened(picture_of(part["image_url"]["url"])) for part in answer.json()["messages"][0]["content"]]
        assert is_upright(row, sent[0].size)
        assert len(sent) == pages(row)
    else:
        error = answer.json()["error"]
        assert answer.status_code == 400
        assert error["code"] in codes(row), error
        assert error["param"] == "messages[0].content[0]"
    assert (await answered(app, jpeg(300, 200))).status_code == 200


@pytest.mark.filterwarnings("ignore:Image appears to be a malformed MPO file")
@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"])
def test_the_library_makes_the_same_of_it(row: dict[str, Any], edge: Edge) -> None:
    try:
        picture = edge.picture(read(row))
    except EdgeError as error:
        refused = error
    else:
        assert "decode" in accepted(row)
        assert opened(picture.data).size == picture.size
        assert is_upright(row, picture.size)
        return
    assert refused.code in codes(row), refused
