"""Samples: pictures and requests that tests are made of. Pictures are written by Pillow, which the product does not use
for them, or are real files."""

import base64
import io
from pathlib import Path
from typing import Any

import orjson
from PIL import Image, ImageDraw

CHAT_PATH = "/v1/chat/completions"
QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "vlm_edge" / "cli" / "pictures"  # sources and licences in SOURCES.md there
PHONE = PICTURES / "leaf_8mp_phone.jpg"  # 3264x2448
TURNED = PICTURES / "landscape_turned.jpg"  # 1200x1800 stored on its side, Exif orientation 6: 1800x1200 upright
TRANSPARENT = PICTURES / "screenshot_transparent.png"  # 1440x900 RGBA


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A picture with something in it: a red left half on blue, and a diagonal."""
    image = Image.new("RGB", (width, height), (0, 0, 255))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width // 2 - 1, height), fill=(255, 0, 0))
    draw.line((0, 0, width, height), fill=(255, 255, 255), width=max(1, width // 50))
    return image.convert(mode)


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def jpeg(width: int, height: int, **options: Any) -> bytes:
    return encoded(picture(width, height), "JPEG", **options)


def png(width: int, height: int, mode: str = "RGB", **options: Any) -> bytes:
    return encoded(picture(width, height, mode), "PNG", **options)


def opened(data: bytes) -> Image.Image:
    """A picture as another decoder sees it."""
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def data_url(data: bytes, media_type: str = "image/jpeg") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def image_part(data: bytes, media_type: str = "image/jpeg") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data, media_type)}}


def text_part(text: str = "What is this?") -> dict[str, Any]:
    return {"type": "text", "text": text}


def chat(*parts: dict[str, Any], model: str = QWEN, **fields: Any) -> bytes:
    """The body of a chat request with one user message of these parts."""
    return orjson.dumps({"model": model, "messages": [{"role": "user", "content": list(parts)}], **fields})


def sent_picture(body: bytes | bytearray, message: int = 0, part: int = 0) -> bytes:
    """The file in an image part of a body, decoded by the strictest rules: those of vLLM."""
    url: str = orjson.loads(body)["messages"][message]["content"][part]["image_url"]["url"]
    return picture_of(url)


def picture_of(url: str) -> bytes:
    """The file in a data URL, likewise."""
    return base64.b64decode(url.partition(";base64,")[2], validate=True)
