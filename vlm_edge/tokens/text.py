"""
Text: the tokens of a prompt beside its pictures. By the model's own tokenizer and chat template, with the extra `text`;
without these, an upper bound.

A prompt's messages hold lists of parts, `{"type": "text", "text": ...}`, and `{"type": "image"}` for each picture.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from vlm_edge.tokens.placeholders import Ids, Placeholder, Words, around
from vlm_edge.tokens.template import Template

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Encoder

Message = Mapping[str, Any]
_NONE: Mapping[str, Any] = {}

# A vocabulary of bytes, or one that falls back on them, makes at most one token of each byte. What templates write
# besides is short: roles and marks around a message; a system message of their own, dates, and how to call tools.
MESSAGE_TOKENS = 32
MEDIUM_TOKENS = 16  # `Picture 12: `, line breaks and marks around a picture
PROMPT_TOKENS = 256
TOOLS_TOKENS = 512
INDENTED = 3
TOO_DEEP = 1 << 30


def is_installed() -> bool:
    """Whether the extra is there."""
    return all(map(find_spec, ("tokenizers", "jinja2")))


def bound(messages: Sequence[Message], extra: Mapping[str, Any] | None = None) -> int:
    """No prompt of these messages has more tokens beside its pictures and what the template writes around them."""
    given = {name: value for name, value in (extra or {}).items() if value is not None}
    variables = _json_bytes(given) + (TOOLS_TOKENS if given.get("tools") else 0) if given else 0
    return sum(map(_message_bytes, messages)) + variables + PROMPT_TOKENS


def _message_bytes(message: Message) -> int:
    parts = message.get("content") or ()
    texts = sum(map(_part_bytes, parts))
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    return MESSAGE_TOKENS + len(message["role"]) + texts + (_json_bytes(rest) if rest else 0)


def _part_bytes(part: Message) -> int:
    rest = {name: value for name, value in part.items() if name not in ("type", "text")}
    own = _text_bytes(part["text"]) if part["type"] == "text" else MEDIUM_TOKENS
    return own + (_json_bytes(rest) if rest else 0)


def _json_bytes(value: Mapping[str, Any]) -> int:
    """Of what templates write as JSON, indented or not."""
    try:
        return INDENTED * _text_bytes(json.dumps(value, ensure_ascii=False, default=str))
    except RecursionError:  # deeper than a template can go either
        return TOO_DEEP


def _text_bytes(text: str) -> int:
    """Bytes of a text, or of its composed form, which may be longer.

    Told from each character alone: to compose a text takes time that grows with the square of the marks on a letter.
    """
    if text.isascii():
        return len(text)
    growth = {sign: more for sign in set(text) if (more := _growth(sign))}
    counts = Counter(text) if growth else {}
    return len(text.encode("utf-8", "replace")) + sum(more * counts[sign] for sign, more in growth.items())


@lru_cache(maxsize=4_096)
def _growth(sign: str) -> int:
    """Bytes by which a character taken apart is longer. The syllables of Hangul are always put together again."""
    if "\uac00" <= sign <= "\ud7a3":
        return 0
    return max(0, len(normalize("NFD", sign).encode("utf-8", "replace")) - len(sign.encode("utf-8", "replace")))


class Tokenizer:
    """A model's tokenizer and chat template. For several threads; read at the first count.

    encoder: the bytes of tokenizer.json. config: the parsed tokenizer_config.json. placeholder: what stands for a
    picture before its vision tokens do. added_tokens: words that stand in other files, and how they are found in a
    text. variables: of the template, where a request sets no other. counts_tools: whether prompts with tools have this
    template too.
    """

    def __init__(
        self,
        encoder: bytes,
        config: Mapping[str, Any],
        chat_template: str,
        placeholder: Placeholder,
        *,
        added_tokens: Mapping[str, Mapping[str, Any]] = _NONE,
        variables: Mapping[str, Any] = _NONE,
        counts_tools: bool = True,
    ) -> None:
        self._json, self._config, self._added_tokens = encoder, config, added_tokens
        self.chat_template, self.placeholder = chat_template, placeholder
        self._variables, self._counts_tools = variables, counts_tools

    def count(self, messages: Sequence[Message], extra: Mapping[str, Any] | None = None, media: int = 0) -> int | None:
        """Tokens of a prompt, less what stands for each of its `media` and vision tokens replace.

        None where it cannot be told: the template refuses it or leaves out a picture, its text is no Unicode, there are
        two templates, or the file is of a later kind than the library reads.
        """
        if (extra or {}).get("tools") and not self._writes_tools:
            return None
        text = self._template.render(messages, {**self._marks, **self._variables, **(extra or {})})
        words = self._words
        if text is None or words is None:
            return None
        try:
            return self._count(text, _modalities(messages) or ["image"] * media, words)
        except Exception:  # noqa: BLE001 - the library raises no kind of its own, for a text that it cannot write
            return None

    @property
    def _writes_tools(self) -> bool:
        """Servers write tools by the tokenizer's template, and all else by the processor's."""
        return self._counts_tools and self._config.get("chat_template") in (None, self.chat_template)

    def _count(self, text: str, modalities: Sequence[str], words: Words) -> int | None:
        """modalities: of its media, in their order."""
        ids = words.encode(text)
        placeholder, marks = self.placeholder, self._marks
        target = {"image": marks.get(placeholder.named, placeholder.target), "video": placeholder.video}
        numbers = enumerate(modalities, 1)
        targets = [target.get(modality, "").replace("{number}", f"{number}") for number, modality in numbers]
        if "{number}" in placeholder.target and any(text.count(one) != 1 for one in targets):
            return None  # they may stand in another order
        begun = marks.get("bos_token") or marks.get("eos_token") or ""
        missing = bool(targets) and placeholder.begins and ids[:1] != words.encode(begun)
        count = around(ids, targets, placeholder, words)
        return None if count is None else count + missing

    @property
    def is_read(self) -> bool:
        """Whether the files have been parsed, which takes up to a second."""
        return "_words" in self.__dict__

    @cached_property
    def _template(self) -> Template:
        return Template(self.chat_template, self.placeholder.texts)

    @cached_property
    def _words(self) -> Words | None:
        from tokenizers import Tokenizer as Encoder

        if self._config.get("split_special_tokens"):
            return None
        try:
            encoder = Encoder.from_buffer(self._json)
        except Exception:  # noqa: BLE001 - the library raises no kind of its own
            return None
        encoder.add_special_tokens(list(self._missing(encoder)))
        encoder.no_truncation()  # as the file may ask for, and servers do not
        encoder.no_padding()
        return Words(
            partial(_encoded, encoder), partial(encoder.decode, skip_special_tokens=False), encoder.token_to_id
        )

    def _missing(self, encoder: "Encoder") -> "Iterator[AddedToken]":
        """Words that tokenizer.json does not have."""
        from tokenizers import AddedToken

        for text, flags in self._added_tokens.items():
            if encoder.token_to_id(text) is None:
                yield AddedToken(text, **{"normalized": False, "special": True, **flags})

    @cached_property
    def _marks(self) -> dict[str, str]:
        """The special tokens that templates call by name."""
        more = self._config.get("extra_special_tokens")
        named = {name: value for name, value in self._config.items() if name.endswith("_token")}
        named |= more if isinstance(more, Mapping) else {}
        texts = {name: value.get("content") if isinstance(value, Mapping) else value for name, value in named.items()}
        return {name: text for name, text in texts.items() if isinstance(text, str)}


def _modalities(messages: Sequence[Message]) -> Sequence[str]:
    """Of the media, in the order of the prompt."""
    return [part["type"] for message in messages for part in message.get("content") or () if part["type"] != "text"]


def _encoded(encoder: "Encoder", text: str) -> Ids:
    """Of a batch, for that lets other threads run meanwhile."""
    (encoding,) = encoder.encode_batch_fast([text], add_special_tokens=False)
    ids: Ids = encoding.ids
    return ids
