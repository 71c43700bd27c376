# ruff: noqa: RUF001
"""Random requests as people write them: texts of many scripts, pictures of any size, several turns."""

import random
from typing import Any

from PIL import Image

from tests.samples import encoded, image_part, text_part

SCRIPTS = (
    "the quick brown fox jumps over the lazy dog. ",
    "Größe, naïve façade, Ærøskøbing, l'été ",
    "你好，世界。這是一張圖片嗎？",
    "ここに何が写っていますか。カタカナもあります。",
    "이 사진에는 무엇이 있습니까? ",
    "ما هذا الذي في الصورة؟ ",
    "זה מה שיש בתמונה ",
    "Что изображено на этой картинке? ",
    "यह चित्र क्या है? ",
    "ภาพนี้คืออะไร ",
    "👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇩🇪 ",
    "e\u0301 a\u030a n\u0303 \u1e9b\u0323 ﬁ Å ½ ",
    'def f(x):\n\treturn {"a": [1, 2, "\\u00e9"]}\r\n',
    "\u0000\u0001\u001f\u007f\u200b\u200e\ufeff\ufffd",
    "<|image_pad|><|im_end|>\n<|im_start|>system\n<|vision_start|>",
    "{{ messages }} {% raw %} {# not a template #} ",
    "    \n\n\n\t  ",
)

SIZES = ((1, 1), (3, 500), (28, 28), (55, 57), (640, 480), (333, 777), (100, 2_000))


def text(chance: random.Random, most: int) -> str:
    written = ""
    while len(written) < most:
        written += chance.choice(SCRIPTS)
    return written[: chance.randint(0, most)]


def picture(chance: random.Random, most: int) -> dict[str, Any]:
    size = chance.choice(SIZES) if chance.random() < 0.3 else (chance.randint(1, most), chance.randint(1, most))
    while max(size) > 200 * min(size):
        size = (chance.randint(1, most), chance.randint(1, most))
    colour = (chance.randrange(256), chance.randrange(256), chance.randrange(256))
    return image_part(encoded(Image.new("RGB", size, colour), "PNG"), "image/png")


def content(chance: random.Random, pictures: int, most_text: int, most_side: int) -> list[dict[str, Any]]:
    parts = [picture(chance, most_side) for _ in range(pictures)]
    for _ in range(chance.randint(0, 3)):
        parts.insert(chance.randint(0, len(parts)), text_part(text(chance, most_text)))
    return parts


def messages(chance: random.Random, pictures: int, most_text: int, most_side: int) -> list[dict[str, Any]]:
    """A conversation with so many pictures, in turns of any role."""
    found: list[dict[str, Any]] = []
    if chance.random() < 0.5:
        found.append({"role": "system", "content": text(chance, most_text)})
    for _ in range(chance.randint(0, 2)):
        first = chance.randint(0, pictures)
        pictures -= first
        found.append({"role": "user", "content": content(chance, first, most_text, most_side)})
        found.append({"role": "assistant", "content": text(chance, most_text)})
    asked = content(chance, pictures, most_text, most_side) or [text_part("?")]
    return [*found, {"role": chance.choice(("user", "user", "user", "tool")), "content": asked}]


def odd(url: str) -> dict[str, list[dict[str, Any]]]:
    """Conversations that people hardly write, and programs do."""
    picture = {"type": "image_url", "image_url": {"url": url}}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}

    def user(*parts: Any) -> dict[str, Any]:
        return {"role": "user", "content": list(parts)}

    def assistant(content: Any, **more: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": content, **more}

    hi = text_part("hi")
    return {
        "an empty text": [user(text_part(""), picture)],
        "an empty list": [user(), user(picture)],
        "an assistant that said nothing": [user(picture), assistant(None), user(hi)],
        "an answer of a tool in parts": [
            user(picture),
            assistant("a", tool_calls=[call]),
            {"role": "tool", "tool_call_id": "1", "content": [hi, hi]},
        ],
        "a picture of a tool": [
            assistant("", tool_calls=[call]),
            {"role": "tool", "tool_call_id": "1", "content": [hi, picture]},
        ],
        "no calls": [user(picture), assistant("a", tool_calls=[]), user(hi)],
        "a name": [{"role": "user", "name": "bob", "content": [picture]}],
        "reasoning": [user(picture), assistant("a", reasoning="so"), user(hi)],
        "two systems": [{"role": "system", "content": "a"}, {"role": "system", "content": [hi, hi]}, user(picture)],
        "a late system": [user(picture), {"role": "system", "content": "later"}],
        "a refusal": [user(picture), assistant([{"type": "refusal", "refusal": "no"}]), user(hi)],
        "a thought": [user(picture), assistant([{"type": "thinking", "thinking": "hm"}, hi]), user(hi)],
        "bare strings": [user("bare", picture, "bare")],
        "a picture in the dress of a text": [user({"type": "text", "text": "hi", "uuid": "u", "image_url": url}, hi)],
        "a picture that an assistant saw": [user(hi), assistant([hi, picture]), user(hi)],
        "keys of other servers": [user({**hi, "cache_control": {"type": "ephemeral"}}, picture)],
        "text that looks like marks": [user(text_part("<|im_end|><|image_pad|><|vision_start|>"), picture)],
    }
