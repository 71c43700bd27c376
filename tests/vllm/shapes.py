"""
Shapes: bodies of requests with media in every dress, to be read alike by vLLM and by the edge.

A shape is a template. `<image 0>` in it stands for the data URL of a picture, `<png 0>` for its base64 alone,
`<video 0>` for the data URL of a clip, `<uuid>` for a name that vLLM has not seen. Each medium costs a power of two of
tokens, at scale 2 twice as many as at scale 1, and is as long at both. So the tokens that a prompt gains with the
scale tell which of the media vLLM sees in it, at every endpoint that counts tokens at all.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from itertools import product
from typing import Any, Literal, NamedTuple

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.samples import CHAT_PATH, encoded
from tests.vllm.service import MODEL

Scale = Literal[1, 2]
Server = Literal["chat", "pooling"]
Json = Any

MEDIA = ("image 0", "image 1", "image 2", "image 3", "image 4", "video 0", "video 1")
LEAST_TOKENS = 4  # that the model's processor makes of a picture
SIDE = 28  # pixels of a token
FILE_BYTES = 384

# `<either a|b>` is a at scale 1 and b at scale 2.
_PLACEHOLDER = re.compile(r"<(image|video|png|png/) (\d)>|<uuid>|<either (.*?)\|(.*?)>")
_STARTS = {"image": "data:image/png;base64,", "video": "data:video/jpeg;base64,"}


class Shape(NamedTuple):
    server: Server
    path: str
    name: str
    template: str
    encoding: str = "latin-1"  # of the template, which is ASCII unless the shape is about bytes

    @property
    def id(self) -> str:
        return f"{self.server} {self.path} {self.name}"

    def body(self, scale: Scale) -> bytes:
        return _PLACEHOLDER.sub(lambda match: self._filled(match, scale), self.template).encode(self.encoding)

    def _filled(self, placeholder: re.Match[str], scale: Scale) -> str:
        kind, number, *either = placeholder.groups()
        if either[0] is not None:
            return str(either[scale - 1])
        if kind is None:
            return sha256(f"{self.id} {scale}".encode()).hexdigest()
        payload = payload_of(f"{'video' if kind == 'video' else 'image'} {number}", scale)
        return _STARTS.get(kind, "") + (payload.replace("/", "\\/") if kind == "png/" else payload)


@cache
def payload_of(medium: str, scale: Scale) -> str:
    """Base64 of a picture, which may also be the one frame of a clip. Some of it is `/`."""
    doublings = (tokens_of(medium) * scale).bit_length() - 1
    image = Image.new("1", (SIDE << (doublings + 1) // 2, SIDE << doublings // 2))
    rest = FILE_BYTES - len(encoded(image, "PNG", pnginfo=_comment("")))
    return base64.b64encode(encoded(image, "PNG", pnginfo=_comment("?" * rest))).decode()


def _comment(text: str) -> PngInfo:
    info = PngInfo()
    info.add_text("Comment", text)
    return info


def tokens_of(medium: str) -> int:
    """What a medium costs at scale 1, and so what it gains with the scale."""
    return LEAST_TOKENS << MEDIA.index(medium)


def media_of(gained_tokens: int) -> list[str]:
    """The media that have gained so many tokens together."""
    seen = [medium for medium in MEDIA if gained_tokens & tokens_of(medium)]
    assert sum(map(tokens_of, seen)) == gained_tokens, "a medium is seen twice, or something else has grown"
    return seen


# Chat

IMAGE = {"type": "image_url", "image_url": {"url": "<image 0>"}}
VIDEO = {"type": "video_url", "video_url": {"url": "<video 0>"}}
TEXT = {"type": "text", "text": "a"}


def image(number: int = 0, **keys: Json) -> Json:
    return {"type": "image_url", "image_url": {"url": f"<image {number}>"}, **keys}


def message(*content: Json, role: str = "user") -> Json:
    return {"role": role, "content": list(content)}


def asked(*messages: Json, **fields: Json) -> Json:
    return {"model": MODEL, "max_tokens": 1, "messages": list(messages), **fields}


def parts() -> Iterator[tuple[str, list[Json]]]:
    """Contents of a message, each with its name."""
    yield from _spellings()
    yield from _two_keys()
    yield from _odd_parts()
    yield from _data_urls()


_NONE = object()  # for a key that is not there


def _spellings() -> Iterator[tuple[str, list[Json]]]:
    """Each type with each form of the value, with and without a uuid."""
    types = [_NONE, None, "text", "image_url", "input_image", "video_url", "tool_reference", "weird", 7]
    urls = [_NONE, None, "<image 0>", {"url": "<image 0>"}, {"url": None}, {}]
    for kind, uuid, value in product(types, [_NONE, "<uuid>"], urls):
        yield _named(type=kind, uuid=uuid, image_url=value)
    for kind, uuid, value in product(
        ["video_url", "text", _NONE], [_NONE, "<uuid>"], ["<video 0>", {"url": "<video 0>"}]
    ):
        yield _named(type=kind, uuid=uuid, video_url=value)


def _named(**keys: Json) -> tuple[str, list[Json]]:
    part = {key: value for key, value in keys.items() if value is not _NONE}
    return json.dumps(part), [part | ({"text": "a"} if part.get("type") == "text" else {}), TEXT]


def _two_keys() -> Iterator[tuple[str, list[Json]]]:
    """Where two keys could be meant, vLLM has its order or goes by the type."""
    values: dict[str, Json] = {
        "image_url": "<image 0>",
        "image_pil": None,
        "image_embeds": None,
        "audio_embeds": None,
        "video_embeds": None,
        "prompt_embeds": "AAAA",
        "audio_url": "data:audio/wav;base64,AAAA",
        "input_audio": {"data": "AAAA", "format": "wav"},
        "video_url": "<video 0>",
        "tool_reference": "a",
    }
    for key in values:
        for other in sorted({"image_url", "video_url"} - {key}):
            yield _named(**{key: values[key], other: values[other]})
            yield _named(type=key, **{key: values[key], other: {"url": values[other]}})
            yield _named(uuid="<uuid>", type="text", **{key: values[key], other: values[other]})


def _odd_parts() -> Iterator[tuple[str, list[Json]]]:
    yield "several", [image(0), VIDEO, image(1), TEXT, image(2)]
    yield "bare strings", ["a", image(0), "<image 1>", "b"]
    yield "a list in the list", [[image(0)], image(1)]
    yield "null in the list", [None, image(0)]
    yield "a number in the list", [7, image(0)]
    yield "a picture and nothing else", [image(0)]
    yield "nothing", []
    yield "detail inside", [{"type": "image_url", "image_url": {"url": "<image 0>", "detail": "low"}}]
    yield "detail of another kind", [{"type": "image_url", "image_url": {"url": "<image 0>", "detail": 7}}]
    yield "detail outside", [image(0, detail="high")]
    yield "pixels beside it", [image(0, min_pixels=3136, max_pixels=200_704)]
    yield "a text beside it", [image(0, text="a")]
    yield "cache_control beside it", [image(0, cache_control={"type": "ephemeral"})]
    yield (
        "more keys inside",
        [{"type": "image_url", "image_url": {"url": "<image 0>", "uuid": "<uuid>", "format": "x"}}],
    )
    yield "input_image with detail", [{"type": "input_image", "image_url": "<image 0>", "detail": "auto"}, TEXT]
    yield "input_image with an object", [{"type": "input_image", "image_url": {"url": "<image 0>"}, "detail": "auto"}]
    yield "input_image of a file", [{"type": "input_image", "file_id": "file-1", "detail": "auto"}]
    yield "image", [{"type": "image", "image": "<image 0>"}, TEXT]
    yield "image with a URL", [{"type": "image", "image_url": {"url": "<image 0>"}}]
    yield "image of Anthropic", [{"type": "image", "source": {"type": "base64", "data": "<png 0>"}}]
    yield "input_file", [{"type": "input_file", "file_data": "<image 0>"}, TEXT]
    yield "a document", [{"type": "document", "source": {"content": [image(0)]}}, TEXT]
    yield "a URL as text", [{"type": "text", "text": "<image 0>"}]
    yield "a part as text", [{"type": "text", "text": image(0)}]
    yield "a text of parts", [{"type": "text", "text": [image(0)]}]
    yield "a tool's result", [{"type": "tool_result", "content": [image(0)]}, TEXT]
    yield "thinking", [{"type": "thinking", "thinking": "a", "image_url": {"url": "<image 0>"}}, TEXT]
    yield "refusal", [{"type": "refusal", "refusal": "a", "image_url": {"url": "<image 0>"}}, TEXT]
    yield "output_text", [{"type": "output_text", "text": "a", "image_url": {"url": "<image 0>"}}]
    yield "image_url of a list", [{"type": "image_url", "image_url": [{"url": "<image 0>"}]}]
    yield "image_url of a list, with a uuid", [{"type": "image_url", "image_url": ["<image 0>"], "uuid": "<uuid>"}]
    yield "URL of a list", [{"type": "image_url", "image_url": {"url": ["<image 0>"]}}]
    yield "URL in a URL", [{"type": "image_url", "image_url": {"url": {"url": "<image 0>"}}}]
    yield "URL in a URL, with a uuid", [{"image_url": {"url": {"url": "<image 0>"}}, "uuid": "<uuid>"}]
    yield "capital type", [{"type": "IMAGE_URL", "image_url": {"url": "<image 0>"}}, TEXT]
    yield "capital key", [{"type": "image_url", "Image_URL": {"url": "<image 0>"}}, TEXT]
    yield "type with space", [{"type": "image_url ", "image_url": {"url": "<image 0>"}}, TEXT]
    yield "a video as a picture", [{"type": "image_url", "image_url": {"url": "<video 0>"}}]
    yield "a picture as a video", [{"type": "video_url", "video_url": {"url": "<image 0>"}}]
    yield "uuid null", [image(0, uuid=None), TEXT]
    yield "prompt_embeds", [{"type": "prompt_embeds", "data": "AAAA"}, TEXT]
    yield "image_embeds", [{"type": "image_embeds", "image_embeds": "AAAA"}, TEXT]
    yield "image_embeds of an object", [{"type": "image_embeds", "image_embeds": {"image_embeds": "AAAA"}}, TEXT]
    yield "audio_url", [{"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA"}}, TEXT]
    yield "input_audio", [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, TEXT]


def _data_urls() -> Iterator[tuple[str, list[Json]]]:
    """URLs, read leniently or strictly."""
    for url in [
        "DATA:image/png;base64,<png 0>",
        "Data:image/png;base64,<png 0>",
        "data:;base64,<png 0>",
        "data:image;base64,<png 0>",
        "data:application/octet-stream;base64,<png 0>",
        "data:video/jpeg;base64,<png 0>",
        "data:video/mp4;base64,<png 0>",
        "data:image/svg+xml;base64,<png 0>",
        "data:image/png;charset=utf-8;base64,<png 0>",
        'data:image/png;name="a;b";base64,<png 0>',
        'data:image/png;name="a,b";base64,<png 0>',
        "data:image/png;base64;base64,<png 0>",
        "data:image/png;name=;base64,x;base64,<png 0>",
        "data:image/png;BASE64,<png 0>",
        "data:image/png;base64 ,<png 0>",
        "data:image/png; base64,<png 0>",
        "data:image/png,<png 0>",
        "data:base64,<png 0>",
        "data:,<png 0>",
        "data:image/png;base64,",
        "data:image/png;base64",
        "data://image/png;base64,<png 0>",
        "data:image/png;base64,<png 0>#fragment",
        "data:image/png;base64,<png 0>====",
        "data:image/png;base64,<png 0>\n",
        "data:image/png;base64,\n<png 0>",
        " data:image/png;base64,<png 0>",
        "data :image/png;base64,<png 0>",
        "\x00data:image/png;base64,<png 0>",
        "\u2028data:image/png;base64,<png 0>",
        "url(data:image/png;base64,<png 0>)",
        "<png 0>",
        "file:///etc/hostname",
        "ftp://192.0.2.1/a.png",
        "/a.png",
        "",
        " ",
    ]:
        yield f"URL {url!r}", [{"type": "image_url", "image_url": {"url": url}}, TEXT]


def bodies() -> Iterator[tuple[str, Json]]:
    """Chat requests, by what stands around the parts."""
    for role in ["user", "system", "developer", "assistant", "tool", "function", "narrator", "", 7, None]:
        yield f"role {role!r}", asked({"role": role, "content": [image(0), TEXT], "tool_call_id": "1"}, message(TEXT))
    yield "no role", asked({"content": [image(0)]})
    for content in [image(0), "<image 0>", None, 7, {"0": image(0)}, {"image_url": "<image 0>"}]:
        yield f"content {json.dumps(content)}", asked({"role": "user", "content": content}, message(TEXT))
    yield "no content", asked({"role": "assistant"}, message(image(0)))
    yield "history", asked(*[message(image(k), TEXT, role=role) for k, role in enumerate(["user", "assistant"] * 2)])
    yield (
        "tool calls",
        asked(message(image(0)), TOOL_CALL, {**message(image(1), TEXT, role="tool"), "tool_call_id": "1"}),
    )
    yield (
        "a tool's image in an object",
        asked(message({"type": "tool_reference", "name": "a", "image_url": "<image 0>"})),
    )
    yield "billing header", asked(message({**BILLING, "uuid": "<uuid>", "image_url": "<image 0>"}, role="system"))
    yield "messages of an object", asked() | {"messages": {"0": message(image(0))}}
    yield "messages null", asked() | {"messages": None}
    yield "messages of lists", asked([message(image(0))])
    yield "messages of strings", asked("<image 0>", message(image(0)))
    yield "messages of null", asked(None, message(image(0)))
    yield "media beside the messages", asked(message(TEXT), image_url="<image 0>", images=["<image 0>"])
    yield "media beside the content", asked({**message(TEXT), "image_url": "<image 0>", "images": ["<image 0>"]})
    yield "input beside the messages", asked(message(image(0)), input=[message(image(1))])
    yield "prompt beside the messages", asked(message(image(0)), prompt="a")
    yield "prompt_embeds beside the messages", asked(message(image(0)), prompt_embeds="AAAA")
    yield "documents", asked(message(image(0)), documents=[{"text": "a", "image_url": "<image 1>"}])
    yield "tools", asked(message(image(0)), tools=[{**TOOL, "image_url": {"url": "<image 1>"}}])
    yield "metadata", asked(message(image(0)), metadata={"image": "<image 1>"})
    yield "mm_data", asked(message(image(0)), multi_modal_data={"image": ["<image 1>"]})
    yield "forwarded tokens", asked(message(image(0)), kv_transfer_params={"prompt_token_ids": [65]})
    yield "a message to continue", asked(message(image(0)), message(TEXT, role="assistant"), **CONTINUED)
    yield "an audio message", asked({"role": "assistant", "content": "a", "audio": {"id": "1"}}, message(image(0)))
    for key, value in product(["reasoning", "reasoning_content"], ["a", {"type": "prompt_embeds", "data": "AAAA"}]):
        yield f"{key} {json.dumps(value)}", asked({**message(TEXT, role="assistant"), key: value}, message(image(0)))
    yield "reasoning of another object", asked({**message(TEXT, role="assistant"), "reasoning": {"data": "AAAA"}})
    yield "reasoning of parts", asked({**message(TEXT, role="assistant"), "reasoning": [image(1)]}, message(image(0)))


CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}
BILLING = {"type": "text", "text": "x-anthropic-billing-header: a"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
TOOL_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}

# A uuid is any JSON to vLLM. Under one that it knows, it would see the picture of the other scale.
UUIDS = [
    "null",
    '<either ""|" ">',
    "<either 0|-0.0>",
    "<either 71|72>",
    "<either 1.5|2.5>",
    "<either false|true>",
    "<either []|[[]]>",
    '<either {}|{"a":[]}>',
    "<either 11805916207174113034240|11805916207174113034241>",
]

# JSON as text: what stands in the place of the messages' one content, and around it.
PART = '{"type":"image_url","image_url":{"url":"<image 0>"}}'
OTHER = PART.replace("<image 0>", "<image 1>")
HEAD = f'"model":"{MODEL}","max_tokens":1'
SAY = '{"role":"user","content":[{"type":"text","text":"a"}]}'


def _said(part: str) -> str:
    return f'{{"role":"user","content":[{part}]}}'


def _body(part: str) -> str:
    return f'{{{HEAD},"messages":[{_said(part)}]}}'


TEXTS = {
    "escaped key": _body(PART.replace("image_url", "image\\u005furl")),
    "escaped inner key": _body(PART.replace('"url"', '"\\u0075r\\u006C"')),
    "escaped type key": _body(PART.replace('"type"', '"\\u0074ype"')),
    "escaped content key": _body(PART).replace('"content"', '"\\u0063ontent"'),
    "escaped messages key": _body(PART).replace('"messages"', '"m\\u0065ssages"'),
    "escaped colon": _body(PART.replace("<image 0>", "data\\u003aimage/png;base64,<png 0>")),
    "escaped marker": _body(PART.replace("<image 0>", "data:image/png\\u003bbase64\\u002c<png 0>")),
    "escaped scheme": _body(PART.replace("<image 0>", "\\u0064ata:image/png;base64,<png 0>")),
    "escaped slashes": _body(PART.replace("<image 0>", "data:image\\/png;base64,<png/ 0>")),
    "escaped letters of base64": _body(PART.replace("<image 0>", "data:image/png;base64,\\u0069\\u0056\\u0042<png 0>")),
    "surrogate in a text": _body(f'{{"type":"text","text":"\\ud83d"}},{PART}'),
    "surrogate in a key": _body(PART.replace("}}", '},"\\udc00":1}')),
    "surrogate in a URL": _body(PART.replace("<png", "\\ud83d<png").replace("<image 0>", "<image 0>\\ud83d")),
    "pair of surrogates": _body(f'{{"type":"text","text":"\\ud83d\\ude00"}},{PART}'),
    "same key in an object": _body(PART.replace('{"url":', '{"url":"<image 1>","url":')),
    "same key in a part": _body(PART.replace('"image_url":{', '"image_url":{"url":"<image 1>"},"image_url":{')),
    "same key, at last null": _body(PART.replace("}}", '},"image_url":null}')),
    "type twice, at last text": _body(PART.replace("}}", '},"type":"text","text":"a"}')),
    "type twice, at last a picture": _body(PART.replace('{"type"', '{"type":"text","type"')),
    "uuid twice": _body(PART.replace("}}", '},"uuid":"a","uuid":null}')),
    "content twice": _body(PART).replace('"content"', f'"content":[{OTHER}],"content"'),
    "content twice, at last a text": _body(PART).replace("}]}", '}],"content":"a"}', 1),
    "content twice, once escaped": _body(PART).replace('"content"', f'"content":[{OTHER}],"\\u0063ontent"'),
    "messages twice": _body(PART).replace('"messages"', f'"messages":[{_said(OTHER)}],"messages"'),
    "messages twice, at last a text": _body(PART)[:-1] + f',"messages":[{SAY}]}}',
    "role twice": _body(PART).replace('"role"', '"role":"tool","role"'),
    "byte order mark": "\xef\xbb\xbf" + _body(PART),
    "space around": f" \r\n\t{_body(PART)} \r\n\t",
    "space inside": _body(PART).replace(":", " :\n\t").replace(" :\n\timage/", ":image/"),
    "NaN": _body(PART)[:-1] + ',"seed_":NaN}',
    "Infinity": _body(PART)[:-1] + ',"x":-Infinity}',
    "a large integer": _body(PART)[:-1] + ',"x":165598928036513123111220000}',
    "a number too large": _body(PART)[:-1] + ',"x":1e400}',
    "deep nesting": _body(PART)[:-1] + f',"x":{"[" * 500}{"]" * 500}}}',
    "nesting too deep": _body(PART)[:-1] + f',"x":{"[" * 100_000}{"]" * 100_000}}}',
    "a comma too many": _body(PART + ","),
    "a comment": _body(PART) + "// a",
    "two values": _body(PART) + _body(PART),
    "no end": _body(PART)[:-1],
    "control character": _body(f'{{"type":"text","text":"a\nb"}},{PART}'),
    "not UTF-8": _body(f'{{"type":"text","text":"\xff"}},{PART}'),
    "overlong slash": _body(f'{{"type":"text","text":"\xc0\xaf"}},{PART}'),
    "surrogate in UTF-8": _body(f'{{"type":"text","text":"\xed\xa0\xbd"}},{PART}'),
    "a list": f"[{_body(PART)}]",
    "a string": json.dumps(_body(PART)),
    "nothing": "",
    "null": "null",
}

ENCODINGS = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"]

# Responses


def _responses() -> Iterator[tuple[str, Json]]:
    for name, items in _inputs():
        yield name, {"model": MODEL, "max_output_tokens": 1, "store": False, "input": items}


RIMAGE = {"type": "input_image", "image_url": "<image 0>"}
RTEXT = {"type": "input_text", "text": "a"}
OTEXT = {"type": "output_text", "text": "a"}


def _inputs() -> Iterator[tuple[str, Json]]:
    yield "a string", "<image 0>"
    for name, part in {
        "plain": RIMAGE,
        "detail": {**RIMAGE, "detail": "low"},
        "detail null": {**RIMAGE, "detail": None},
        "an object": {"type": "input_image", "image_url": {"url": "<image 0>"}},
        "no URL": {"type": "input_image"},
        "URL null": {"type": "input_image", "image_url": None},
        "a file": {"type": "input_image", "file_id": "file-1"},
        "a file and a URL": {**RIMAGE, "file_id": "file-1"},
        "uuid": {**RIMAGE, "uuid": "<uuid>"},
        "no type": {"image_url": "<image 0>"},
        "type null": {"type": None, "image_url": "<image 0>"},
        "weird": {"type": "weird", "image_url": "<image 0>"},
        "image_url": IMAGE,
        "image_url of a string": {"type": "image_url", "image_url": "<image 0>"},
        "video_url": VIDEO,
        "text with a uuid": {**RTEXT, "uuid": "<uuid>", "image_url": "<image 0>"},
        "a text with a picture": {**RTEXT, "image_url": "<image 0>"},
        "input_file": {"type": "input_file", "file_data": "<image 0>"},
        "input_file with a picture": {"type": "input_file", "image_url": "<image 0>", "uuid": "<uuid>"},
    }.items():
        yield f"message, {name}", [message(RTEXT, part)]
        yield f"output, {name}", [FUNCTION, {**OUTPUT, "output": [part, RTEXT]}, message(RTEXT)]
    for role in ["system", "developer", "assistant", "tool", "narrator"]:
        yield f"role {role}", [message(RTEXT, RIMAGE, role=role), message(RTEXT)]
        yield f"role {role}, picture first", [message(RIMAGE, RTEXT, role=role), message(RTEXT)]
    assistants: list[list[Json]] = [
        [OTEXT, RIMAGE],
        [RIMAGE, OTEXT],
        [OTEXT],
        [{"text": None}, RIMAGE],
        [{**RIMAGE, "text": 7}],
        [RIMAGE],
    ]
    for content, kind in product(assistants, [{}, {"type": "message"}]):
        name = json.dumps([sorted(part) for part in content])
        yield f"assistant {kind} {name}", [{**message(*content, role="assistant"), **kind}, message(RTEXT)]
    yield "typed message", [{"type": "message", **message(RTEXT, RIMAGE)}]
    yield "message of another type", [{"type": "weird", **message(RTEXT, RIMAGE)}]
    yield "content and output", [FUNCTION, {**OUTPUT, "output": "a", "content": [RIMAGE]}, message(RTEXT)]
    yield "message with output", [{"type": "message", **message(RTEXT), "output": [RIMAGE]}]
    yield "message with a role and an output's type", [FUNCTION, {**OUTPUT, "output": [RIMAGE], **message(RTEXT)}]
    yield "output of an object", [FUNCTION, {**OUTPUT, "output": RIMAGE}, message(RTEXT)]
    yield "output of a URL", [FUNCTION, {**OUTPUT, "output": "<image 0>"}, message(RTEXT)]
    yield "custom output", [{**OUTPUT, "type": "custom_tool_call_output", "output": [RIMAGE, RTEXT]}, message(RTEXT)]
    yield "computer output", [{**OUTPUT, "type": "computer_call_output", "output": COMPUTER}, message(RTEXT)]
    yield "shell output", [{**OUTPUT, "type": "shell_call_output", "output": [RIMAGE]}, message(RTEXT)]
    yield "no role", [{"content": [RTEXT, RIMAGE]}]
    yield "an item of its own", [RIMAGE]
    yield "items as strings", ["<image 0>", message(RIMAGE)]
    yield "a list of lists", [[message(RIMAGE)]]
    yield "two messages", [message(RIMAGE, RTEXT), message(RTEXT, {**RIMAGE, "image_url": "<image 1>"})]
    yield "content of an object", [{"role": "user", "content": RIMAGE}]
    yield "reasoning", [{"type": "reasoning", "summary": [], "content": [RIMAGE]}, message(RTEXT)]
    yield "image generation", [{"type": "image_generation_call", "id": "1", "status": "completed", "result": "<png 0>"}]
    yield "an object", message(RIMAGE)
    yield "types of lists", [{"type": ["function_call_output"], "output": [RIMAGE], **message({**RIMAGE, "type": []})}]
    yield "a role of a list", [{"role": ["user"], "content": [RIMAGE]}]


FUNCTION = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "1"}
COMPUTER = {"type": "computer_screenshot", "image_url": "<image 0>"}

_INPUT = json.dumps({"model": MODEL, "max_output_tokens": 1, "store": False, "input": [message(RIMAGE)]})

RESPONSES_TEXTS = {
    "input twice": _INPUT[:-1] + ', "input": "a"}',
    "input twice, at last a picture": _INPUT.replace('"input"', '"input": "a", "input"'),
    "escaped keys": _INPUT.replace('"input"', '"\\u0069nput"').replace('"image_url"', '"image\\u005furl"'),
    "image_url twice": _INPUT.replace('"image_url":', '"image_url": "<image 1>", "image_url":'),
}

# Anthropic

SOURCE = {"type": "base64", "media_type": "image/png", "data": "<png 0>"}
BLOCK = {"type": "image", "source": SOURCE}


def _sources() -> Iterator[tuple[str, Json]]:
    for kind in ["base64", None, "file", "BASE64", 7, _NONE]:
        yield (
            f"type {kind if kind is not _NONE else 'missing'}",
            _without(type=kind, media_type="image/png", data="<png 0>"),
        )
    for media_type in [
        "image/jpeg",
        "",
        "video/jpeg",
        "a,b",
        "a;base64,",
        "image/png;a=b",
        "a;b=c,d",
        None,
        7,
        [],
        _NONE,
    ]:
        name = json.dumps(media_type) if media_type is not _NONE else "missing"
        yield f"media_type {name}", _without(type="base64", media_type=media_type, data="<png 0>")
    yield "data: a URL", {**SOURCE, "data": "<image 0>"}
    yield "data missing", {"type": "base64", "media_type": "image/png"}
    for data in ["", None, 7, ["<png 0>"], " <png 0>", "<png 0>\n"]:
        yield f"data {json.dumps(data)}", {**SOURCE, "data": data}
    yield "URL", {"type": "url", "url": "<image 0>"}
    yield "URL beside data", {**SOURCE, "url": "<image 1>"}
    yield "data beside a URL", {**SOURCE, "type": "url", "url": "<image 1>"}
    for url in [_NONE, None, "", "<png 0>", 7]:
        yield f"URL {json.dumps(url) if url is not _NONE else 'missing'}", _without(type="url", url=url)
    sources: list[Json] = [None, {}, "<image 0>", [SOURCE]]
    for source in sources:
        yield f"source {json.dumps(source)}", source


def _without(**keys: Json) -> Json:
    return {key: value for key, value in keys.items() if value is not _NONE}


def _anthropic() -> Iterator[tuple[str, Json]]:
    return ((name, asked(*messages)) for name, messages in _conversations())


def _conversations() -> Iterator[tuple[str, list[Json]]]:
    for name, source in _sources():
        yield name, [message({"type": "image", "source": source}, TEXT)]
        yield f"{name}, of a tool", [message(_result({"type": "image", "source": source}), TEXT)]
    other = {"type": "image", "source": {**SOURCE, "data": "<png 1>"}}
    for role in ["user", "assistant", "system", "tool"]:
        yield f"role {role}", [message(BLOCK, TEXT, role=role), message(TEXT)]
        yield f"role {role}, of a tool", [message(_result(BLOCK, TEXT), TEXT, role=role), message(TEXT)]
    yield "two results and a picture", [message(_result(BLOCK), _result(other), {**BLOCK, "source": _png(2)}, TEXT)]
    yield "a result in a result", [message(_result(_result(BLOCK)), TEXT)]
    yield "a result of a string", [message({**_result(), "content": "<image 0>"}, TEXT)]
    yield "a result of an object", [message({**_result(), "content": BLOCK}, TEXT)]
    yield "a result of strings", [message(_result("<image 0>", BLOCK), TEXT)]
    yield "a result of lists", [message(_result([BLOCK], BLOCK), TEXT)]
    yield "an image_url in a result", [message(_result(IMAGE), TEXT)]
    yield "an image_url", [message(IMAGE, TEXT)]
    yield "a document", [message({"type": "document", "source": SOURCE}, TEXT)]
    yield "a document in a result", [message(_result({"type": "document", "source": SOURCE}), TEXT)]
    yield "a text with a source", [message({**TEXT, "source": SOURCE})]
    yield "a picture with content", [message({**BLOCK, "content": [other]}, TEXT)]
    yield "a picture with a uuid", [message({**BLOCK, "uuid": "<uuid>"}, TEXT)]
    yield "a search result", [message({"type": "search_result", "content": [BLOCK]}, TEXT)]
    yield "no type", [message({"source": SOURCE}, TEXT)]
    yield "types of lists", [message({**BLOCK, "type": ["image"]}, TEXT)]
    yield "types of lists in a result", [message(_result({**BLOCK, "type": ["image"]}), TEXT)]
    yield "no role", [{"content": [BLOCK, TEXT]}]
    yield "bare strings", [message("a", BLOCK)]
    yield "content of an object", [{"role": "user", "content": BLOCK}]
    yield "content of a string", [{"role": "user", "content": "<image 0>"}]
    yield "a picture of cached control", [message({**BLOCK, "cache_control": {"type": "ephemeral"}}, TEXT)]
    yield "tool use with a picture", [message({**TOOL_USE, "input": {"image": BLOCK}}, role="assistant"), message(TEXT)]
    yield (
        "thinking",
        [message({"type": "thinking", "thinking": "a", "source": SOURCE}, role="assistant"), message(TEXT)],
    )


TOOL_USE = {"type": "tool_use", "id": "1", "name": "f"}


def _png(number: int) -> Json:
    return {**SOURCE, "data": f"<png {number}>"}


def _result(*content: Json) -> Json:
    return {"type": "tool_result", "tool_use_id": "1", "content": list(content)}


_SAID = json.dumps(asked(message(BLOCK)))

ANTHROPIC_TEXTS = {
    "escaped slashes": _SAID.replace("<png 0>", "<png/ 0>"),
    "escaped keys": _SAID.replace('"data"', '"\\u0064ata"').replace('"source"', '"s\\u006furce"'),
    "source twice": _SAID.replace('"source"', '"source":{"type":"url","url":"<image 1>"},"source"'),
    "data twice": _SAID.replace('"data"', '"data":"<png 1>","data"'),
    "type of the source twice": _SAID.replace('"base64",', '"url","url":"<image 1>","type":"base64",'),
    "content twice": _SAID.replace('"content"', '"content":"a","content"'),
    "byte order mark": "\xef\xbb\xbf" + _SAID,
}

# Tokens

# Of the checkpoint's tokenizer: <|vision_start|><|image_pad|><|vision_end|>, and the same with <|video_pad|>.
IMAGE_TOKENS = [259, 262, 260]
VIDEO_TOKENS = [259, 263, 260]


def _generate() -> Iterator[tuple[str, Json]]:
    part, clip = {"type": "image_url", "url": "<image 0>"}, {"type": "video_url", "url": "<video 0>"}
    for name, tokens, content in [
        ("plain", IMAGE_TOKENS, [part]),
        ("uuid", IMAGE_TOKENS, [{**part, "uuid": "<uuid>"}]),
        ("a clip", IMAGE_TOKENS + VIDEO_TOKENS, [part, clip]),
        ("two", IMAGE_TOKENS * 2, [part, {**part, "url": "<image 1>"}]),
        ("as in chat", IMAGE_TOKENS, [IMAGE]),
        ("no type", [], [{"url": "<image 0>"}]),
        ("weird", [], [{**part, "type": "weird"}]),
        ("input_image", [], [{**part, "type": "input_image"}]),
        ("text with a uuid", [], [{**part, "type": "text", "uuid": "<uuid>"}]),
        ("URL null", IMAGE_TOKENS, [{"type": "image_url", "url": None}]),
        ("URL of an object", IMAGE_TOKENS, [{"type": "image_url", "url": {"url": "<image 0>"}}]),
        ("type of a list", [], [{**part, "type": ["image_url"]}]),
        ("uuid of a number", IMAGE_TOKENS, [{**part, "uuid": 7}]),
        ("nested", IMAGE_TOKENS, [[part]]),
        ("audio", IMAGE_TOKENS, [{"type": "audio_url", "url": "data:audio/wav;base64,AAAA"}]),
        ("nothing", [], []),
        ("null", [], None),
        ("an object", [], part),
    ]:
        yield (
            name,
            {
                "model": MODEL,
                "token_ids": [65, *tokens],
                "content_parts": content,
                "sampling_params": {"max_tokens": 1},
            },
        )
    features = {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": [{"offset": 1, "length": 1}]}}
    yield (
        "features",
        {"model": MODEL, "token_ids": [65, 65], "features": features, "sampling_params": {"max_tokens": 1}},
    )


def _prompts() -> Iterator[tuple[str, Json]]:
    table: dict[str, Json] = {
        "text": {"prompt": "a"},
        "embedded": {"prompt_embeds": "AAAA"},
        "embedded and text": {"prompt": "a", "prompt_embeds": "AAAA"},
        "two embedded": {"prompt_embeds": ["AAAA", "AAAA"]},
        "embedded null": {"prompt": "a", "prompt_embeds": None},
        "embedded nothing": {"prompt": "a", "prompt_embeds": ""},
        "embedded list of nothing": {"prompt": "a", "prompt_embeds": []},
        "messages": {"prompt": "a", "messages": [message(IMAGE)]},
        "a picture": {"prompt": "a", "image_url": "<image 0>"},
        "a prompt of parts": {"prompt": [IMAGE]},
        "multi_modal_data": {"prompt": "a", "multi_modal_data": {"image": "<image 0>"}},
    }
    for name, fields in table.items():
        yield name, {"model": MODEL, "max_tokens": 1, **fields}


# Pooling


def _embeddings() -> Iterator[tuple[str, Json]]:
    one, two = message(image(0), TEXT), message(image(1), TEXT)
    for key in ["messages", "input"]:
        for name, value in {
            "one": [one],
            "two turns": [one, two],
            "two conversations": [[one], [two]],
            "two conversations of two": [[one, two], [message(image(2)), message(image(3))]],
            "nested once more": [[[one]]],
            "a message and a conversation": [one, [two]],
            "a text and a message": ["a", one],
            "no role": [{"content": [image(0)]}],
            "an object": one,
            "a part": [image(0)],
            "a URL": "<image 0>",
            "URLs": ["<image 0>", "<image 1>"],
            "nothing": [],
            "null": None,
            "a conversation of nothing": [[one], []],
            "uuid and text": [message({**TEXT, "uuid": "<uuid>", "image_url": "<image 0>"})],
            "a role of a number": [{"role": 7, "content": [image(0)]}],
            "no content": [[{"role": "user"}], [one]],
        }.items():
            yield f"{key}, {name}", {"model": MODEL, "max_tokens": 1, key: value}
    yield "both", {"model": MODEL, "max_tokens": 1, "messages": [one], "input": [two]}
    yield "both, messages null", {"model": MODEL, "max_tokens": 1, "messages": None, "input": [two]}
    yield "both, messages empty", {"model": MODEL, "max_tokens": 1, "messages": [], "input": [two]}
    yield "both, input a text", {"model": MODEL, "max_tokens": 1, "messages": [one], "input": "a"}
    yield "both, messages of a string", {"model": MODEL, "max_tokens": 1, "messages": "a", "input": [two]}
    yield "both, messages of lists", {"model": MODEL, "max_tokens": 1, "messages": [[one]], "input": [two]}
    yield "both, input of lists", {"model": MODEL, "max_tokens": 1, "messages": [one], "input": [[two]]}
    yield (
        "both, messages beside a wrong one",
        {"model": MODEL, "max_tokens": 1, "messages": [{"content": 7}], "input": [two]},
    )
    yield "data", {"model": MODEL, "data": {"image": "<image 0>"}}
    yield "documents beside messages", {"model": MODEL, "messages": [one], "documents": [{"content": [image(1)]}]}


def _scores(query: str, documents: str) -> Iterator[tuple[str, Json]]:
    one, two = {"content": [image(0), TEXT]}, {"content": [image(1), TEXT]}
    for name, (left, right) in {
        "a picture": ("a", one),
        "pictures": ("a", [one, two]),
        "a text and a picture": ("a", ["a", one]),
        "both": (one, two),
        "both, a list": (one, [two]),
        "both, two lists": ([one], [two]),
        "two pairs": ([one, two], [{"content": [image(2)]}, {"content": [image(3)]}]),
        "several": ("a", {"content": [image(0), VIDEO, image(1), TEXT]}),
        "texts": ("a", ["<image 0>", "b"]),
        "a string as content": ("a", {"content": "<image 0>"}),
        "content of an object": ("a", {"content": image(0)}),
        "content null": ("a", {"content": None}),
        "no content": ("a", {"image_url": "<image 0>"}),
        "a role": ("a", {"role": "user", **one}),
        "parts": ("a", [image(0)]),
        "parts in a list": ("a", [[image(0)]]),
        "text with a uuid": ("a", {"content": [{**TEXT, "uuid": "<uuid>", "image_url": "<image 0>"}]}),
        "bare": ("a", {"content": [{"image_url": "<image 0>"}, TEXT]}),
        "a string of a URL": ("a", {"content": [{"type": "image_url", "image_url": "<image 0>"}]}),
        "input_image": ("a", {"content": [{"type": "input_image", "image_url": "<image 0>", "detail": "auto"}]}),
        "weird": ("a", {"content": [{"type": "weird", "image_url": "<image 0>"}]}),
        "image_embeds": ("a", {"content": [{"type": "image_embeds", "image_embeds": "AAAA"}]}),
        "a bare text": ("a", {"content": ["a", image(0)]}),
        "nothing": ("a", []),
    }.items():
        yield f"{query}, {documents}: {name}", {"model": MODEL, query: left, documents: right}


def _mixed_scores() -> Iterator[tuple[str, Json]]:
    one, two, three = ({"content": [image(k), TEXT]} for k in range(3))
    keys = ["queries", "documents", "items", "data_1", "data_2", "text_1", "text_2"]
    for pair in [
        ("queries", "documents", "items"),
        ("queries", "items", "documents"),
        ("data_1", "data_2", "documents"),
    ]:
        yield " ".join(pair), {"model": MODEL, pair[0]: one, pair[1]: two, pair[2]: three}
    yield "all", {"model": MODEL, **{key: {"content": [image(k % 5), TEXT]} for k, key in enumerate(keys[:5])}}
    yield "one side", {"model": MODEL, "queries": one}
    yield "messages", {"model": MODEL, "queries": "a", "documents": one, "messages": [message(image(1))]}


def _embeds() -> Iterator[tuple[str, Json]]:
    block = {"type": "image_url", "image_url": {"url": "<image 0>"}}
    table: dict[str, Json] = {
        "images": {"images": ["<image 0>", "<image 1>"]},
        "images of objects": {"images": [{"url": "<image 0>"}]},
        "images of a string": {"images": "<image 0>"},
        "images of base64": {"images": ["<png 0>"]},
        "images of null": {"images": [None]},
        "images of nothing": {"images": [""]},
        "no images": {"images": []},
        "a text": {"texts": ["<image 0>"]},
        "texts and images": {"texts": ["a"], "images": ["<image 0>"]},
        "null texts and images": {"texts": None, "images": ["<image 0>"]},
        "inputs": {"inputs": [{"content": [TEXT, block]}]},
        "two inputs": {"inputs": [{"content": [block]}, {"content": [image(1), TEXT]}]},
        "inputs and images": {"inputs": [{"content": [block]}], "images": ["<image 1>"]},
        "inputs of a string": {"inputs": [{"content": [{"type": "image_url", "image_url": "<image 0>"}]}]},
        "inputs of another type": {"inputs": [{"content": [{"type": "image", "image_url": {"url": "<image 0>"}}]}]},
        "a text with a picture": {"inputs": [{"content": [{**TEXT, "image_url": {"url": "<image 0>"}}]}]},
        "a text with a uuid": {
            "inputs": [{"content": [{**TEXT, "uuid": "<uuid>", "image_url": {"url": "<image 0>"}}]}]
        },
        "a picture with a uuid": {"inputs": [{"content": [{**block, "uuid": "<uuid>"}]}]},
        "a picture with a text": {"inputs": [{"content": [{**block, "text": "a"}]}]},
        "URL null": {"inputs": [{"content": [{"type": "image_url", "image_url": {"url": None}}]}]},
        "video_url": {"inputs": [{"content": [VIDEO]}]},
        "content of an object": {"inputs": [{"content": block}]},
        "input of a list": {"inputs": [[block]]},
        "messages": {"messages": [message(IMAGE)]},
    }
    for name, fields in table.items():
        yield name, {"model": MODEL, "embedding_types": ["float"], **fields}


def shapes() -> Iterator[Shape]:
    yield from _chat_shapes()
    yield from _other_shapes()
    yield from _pooling_shapes()


def _chat_shapes() -> Iterator[Shape]:
    said = [(f"part {name}", asked(message(*content))) for name, content in parts()]
    yield from _table("chat", CHAT_PATH, [*said, *bodies()])
    yield from _texts(CHAT_PATH, TEXTS)
    yield from (Shape("chat", CHAT_PATH, encoding, _body(PART), encoding) for encoding in ENCODINGS)
    yield from _texts(CHAT_PATH, {f"uuid {uuid}": _body(PART.replace("}}", f'}},"uuid":{uuid}}}')) for uuid in UUIDS})
    yield from _table("chat", f"{CHAT_PATH}/render", _some([*said, *bodies()], 11))
    yield from _table("chat", f"{CHAT_PATH}/batch", _batches())
    yield from _table("chat", "/tokenize", _some([*said, *bodies()], 11))


def _other_shapes() -> Iterator[Shape]:
    yield from _table("chat", "/v1/responses", _responses())
    yield from _texts("/v1/responses", RESPONSES_TEXTS)
    yield from _table("chat", "/v1/responses/render", _some(_responses(), 9))
    yield from _table("chat", "/v1/messages", _anthropic())
    yield from _texts("/v1/messages", ANTHROPIC_TEXTS)
    yield from _table("chat", "/v1/messages/count_tokens", _some(_anthropic(), 9))
    yield from _table("chat", "/v1/messages/render", _some(_anthropic(), 8))
    yield from _table("chat", "/v1/completions", _prompts())
    yield from _table("chat", "/v1/completions/render", _some(_prompts(), 2))
    yield from _table("chat", "/inference/v1/generate", _generate())
    yield from _table("chat", "/invocations", [*_some(bodies(), 4), *_prompts(), *_some(_embeddings(), 5)])


def _pooling_shapes() -> Iterator[Shape]:
    scores, ranks = [*_scores("queries", "documents"), *_mixed_scores()], [*_scores("query", "documents")]
    yield from _table("pooling", "/v1/embeddings", _embeddings())
    yield from _table("pooling", "/pooling", _embeddings())
    yield from _table("pooling", "/tokenize", _some(_embeddings(), 5))
    yield from _table("pooling", "/v2/embed", _embeds())
    yield from _table("pooling", "/score", scores)
    for pair in [("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")]:
        yield from _table("pooling", "/score", _some(_scores(*pair), 4))
    yield from _table("pooling", "/v1/score", _some(scores, 5))
    yield from _table("pooling", "/rerank", ranks)
    yield from _table("pooling", "/v1/rerank", _some(ranks, 5))
    yield from _table("pooling", "/v2/rerank", _some(ranks, 5))
    yield from _table("pooling", "/invocations", [*_some(_embeddings(), 2), *_some(scores, 3), *_some(ranks, 4)])


def _batches() -> Iterator[tuple[str, Json]]:
    one, two, three = (message(image(k), TEXT) for k in range(3))
    yield "two", asked([one], [two])
    yield (
        "two of several",
        asked([one, message(TEXT, role="assistant"), two], [three, message(image(3), image(4), VIDEO)]),
    )
    yield "not a list", asked(one)
    yield "a conversation and a message", asked([one], two)
    yield "nested once more", asked([[one]])
    yield "an empty conversation", asked([one], [])
    yield "texts", asked([message(TEXT)], [message(TEXT)])
    yield "a uuid", asked([message({**TEXT, "uuid": "<uuid>", "image_url": "<image 0>"})], [two])


def _table(server: Server, path: str, requests: Iterable[tuple[str, Json]]) -> Iterator[Shape]:
    return (Shape(server, path, name, json.dumps(body)) for name, body in requests)


def _texts(path: str, texts: dict[str, str]) -> Iterator[Shape]:
    return (Shape("chat", path, name, text) for name, text in texts.items())


def _some(requests: Iterable[tuple[str, Json]], step: int) -> list[tuple[str, Json]]:
    """Every so many of them, where another endpoint takes the same and has shown all."""
    return list(requests)[::step]


SHAPES = list(shapes())
