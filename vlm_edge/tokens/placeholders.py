"""
Placeholders: what stands for a picture in the text of a prompt, and how vLLM puts the vision tokens in its place.

It looks for the tokens of the placeholder among those of the prompt. Where one of them has run into the text beside it
(`>` and a line break are one token), it does so in the text and reads that again.

Source of all rows: vLLM, model_executor/models, `get_placeholder_str` and `_get_prompt_updates`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

Ids = list[int]


class Placeholder(msgspec.Struct, frozen=True, kw_only=True):
    """The placeholder of a family; `{number}` in it is that of the picture in its prompt, from 1.

    target: what vision tokens take the place of. named: where tokenizer_config.json tells of another one. written:
    by vLLM, where the template leaves it to it; else the target. video, video_written: the same of a video. edges: what
    vision tokens begin and end with, which is what the text beside them meets. apart: pieces of text between pictures
    are read each on its own. joins: line breaks at the edges are one with those beside them. begins: before a prompt
    with pictures stands the mark of a beginning.
    """

    target: str = ""
    named: str = ""
    written: str | None = None
    video: str = ""
    video_written: str | None = None
    edges: str = ""
    apart: bool = False
    joins: bool = False
    begins: bool = False

    @property
    def texts(self) -> Mapping[str, str]:
        """What stands in the prompt, by modality, where the template says nothing of media."""
        image = self.target if self.written is None else self.written
        return {"image": image, "video": self.video if self.video_written is None else self.video_written}


QWEN = Placeholder(
    target="<|image_pad|>",
    written="<|vision_start|><|image_pad|><|vision_end|>",
    video="<|video_pad|>",
    video_written="<|vision_start|><|video_pad|><|vision_end|>",
)
GLM = Placeholder(
    target="<|image|>",
    written="<|begin_of_image|><|image|><|end_of_image|>",
    video="<|begin_of_video|><|video|><|end_of_video|>",
)
IMAGE = Placeholder(target="<image>")
GEMMA = Placeholder(joins=True, edges="\n\n<start_of_image><end_of_image>\n\n")

PLACEHOLDERS: dict[str, Placeholder] = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "keye_vl"), QWEN),
    **dict.fromkeys(("glm4_1v", "glm4_6v", "glm_ocr"), GLM),
    **dict.fromkeys(("llava_1_5", "llava_next", "llava_onevision", "idefics3", "smolvlm", "lfm2_vl"), IMAGE),
    **dict.fromkeys(("deepseek_vl2", "deepseek_ocr", "deepseek_ocr2"), IMAGE),
    **dict.fromkeys(("ovis2", "ovis2_5"), msgspec.structs.replace(IMAGE, edges="<|image_pad|>")),
    **dict.fromkeys(("internvl_chat", "nemotron_nano_vl"), msgspec.structs.replace(IMAGE, edges="<img></img>")),
    "internvl": Placeholder(target="<IMG_CONTEXT>", named="context_image_token"),
    "dots_ocr": Placeholder(target="<|imgpad|>", written="<|img|><|imgpad|><|endofimg|>"),
    "ernie4_5_vl": Placeholder(
        target="<|image@placeholder|>", written="<|IMAGE_START|><|image@placeholder|><|IMAGE_END|>"
    ),
    "paddleocr_vl": Placeholder(
        target="<|IMAGE_PLACEHOLDER|>", written="<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"
    ),
    "kimi_vl": Placeholder(
        target="<|media_pad|>", written="<|media_start|>image<|media_content|><|media_pad|><|media_end|>"
    ),
    "kimi_k2_5": Placeholder(
        target="<|media_pad|>", written="<|media_begin|>image<|media_content|><|media_pad|><|media_end|>"
    ),
    "llama4": Placeholder(target="<|image|>", named="image_token"),
    "gemma3": msgspec.structs.replace(GEMMA, target="<start_of_image>", named="boi_token"),
    "gemma3n": msgspec.structs.replace(GEMMA, target="<image_soft_token>", named="image_token"),
    "gemma4": Placeholder(target="<|image|>", named="image_token", written="<image_soft_token>"),
    "pixtral": Placeholder(target="[IMG]", written="<image>"),
    "mistral3": Placeholder(target="[IMG]", written=""),
    "lighton_ocr": Placeholder(target="<|image_pad|>", named="image_token", written=""),
    "hunyuan_ocr": Placeholder(named="image_token", written=""),
    "cohere2_vision": Placeholder(target="<|IMG_PATCH|>", named="image_token", written=""),
    "phi4_multimodal": Placeholder(target="<|image_{number}|>", edges="<|endoftext10|>"),
    "minicpmv2_6": Placeholder(target="(<image>./</image>)", apart=True),
    "minicpmv4_6": Placeholder(target="<|image_pad|>", apart=True),
    "molmo2": Placeholder(target="<|image|>", begins=True),
    "step3_vl": Placeholder(target="<im_patch>"),
    "glm_4v": Placeholder(target="<|begin_of_image|><|endoftext|><|end_of_image|>"),
}


class Words(NamedTuple):
    """A vocabulary: a text as its tokens, and tokens as their text."""

    encode: Callable[[str], Ids]
    decode: Callable[[Ids], str]
    id_of: Callable[[str], int | None]


def around(ids: Ids, targets: Sequence[str], placeholder: Placeholder, words: Words) -> int | None:
    """Tokens of a prompt that are not those of its pictures, one for each of `targets`, the placeholders as they stand
    in it. None where a target is missing."""
    edges = words.encode(placeholder.edges)  # which are vision tokens, and counted as such
    made = _replaced(ids, [words.encode(target) for target in targets], edges)
    if made is None:
        made = _read_again(words.decode(ids), targets, placeholder, words)
    if made is not None and placeholder.joins and targets:
        made = _joined(made, words)
    return None if made is None else len(made) - len(targets) * len(edges)


def _replaced(ids: Ids, targets: Sequence[Ids], edges: Ids) -> Ids | None:
    """With the edges of its vision tokens in the place of each target, one behind the other."""
    made, start = [], 0
    for target in targets:
        found = next(_places(ids, target, start), None)
        if found is None:
            return None
        made += ids[start:found] + edges
        start = found + len(target)
    return made + ids[start:]


def _places(ids: Ids, target: Ids, start: int) -> Iterator[int]:
    """Of the target, from `start` on; none of an empty one."""
    while target:
        try:
            start = ids.index(target[0], start)
        except ValueError:
            return
        if ids[start : start + len(target)] == target:
            yield start
            start += len(target)
        else:
            start += 1


def _read_again(text: str, targets: Sequence[str], placeholder: Placeholder, words: Words) -> Ids | None:
    pieces, start = [], 0
    for target in targets:
        found = text.find(target, start) if target else -1
        if found < 0:
            return None
        pieces.append(text[start:found])
        start = found + len(target)
    pieces.append(text[start:])
    if placeholder.apart:
        return [one for piece in pieces for one in words.encode(piece)]
    return words.encode(placeholder.edges.join(pieces))


def _joined(ids: Ids, words: Words) -> Ids | None:
    """As vLLM joins the line breaks that its vision tokens bring beside others, pair by pair in this order."""
    one, two, three, four = (words.id_of("\n" * number) for number in range(1, 5))
    if one is None or two is None or three is None or four is None:
        return None
    for pair, together in (([one, two], three), ([two, one], three), ([two, two], four)):
        targets = [pair for _ in _places(ids, pair, 0)]
        ids = _replaced(ids, targets, [together]) or ids
    return ids
