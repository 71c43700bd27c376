"""
Checkpoint: what the files of a model say of it; and what a vLLM says that has loaded it, to a middleware inside it.

Only files of this machine are read: a folder, or a name in Hugging Face's local cache. Nothing is ever downloaded.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vlm_edge.errors import ConfigError

JSON_BYTES = 16 * 1024 * 1024
TOKENIZER_BYTES = 256 * 1024 * 1024  # those of 262,144 words take 33 MB

# How an added token is found in a text.
FLAGS = frozenset(("lstrip", "rstrip", "single_word", "normalized", "special"))

_HUB_NAME = re.compile(r"[\w-][\w.-]{0,95}(/[\w-][\w.-]{0,95})?", re.ASCII)
_REVISION = re.compile(r"[\w-][\w.-]{0,95}", re.ASCII)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is missing is None. tokenizer: the bytes of tokenizer.json. tokenizer_config: over what
    special_tokens_map.json says. added_tokens: words that other files than tokenizer.json tell, and how each is found
    in a text. tool_template: whether there is a chat template of its own for tools. mistral: whether it comes in
    Mistral's own format as well, which vLLM prefers.
    """

    folder: str
    config: dict[str, Any] | None = None
    preprocessor: dict[str, Any] | None = None
    processor: dict[str, Any] | None = None
    video_preprocessor: dict[str, Any] | None = None
    tokenizer: bytes | None = None
    tokenizer_config: dict[str, Any] | None = None
    added_tokens: dict[str, dict[str, Any]] = {}
    chat_template: str | None = None
    tool_template: bool = False
    mistral: bool = False


def read(folder: Path) -> Checkpoint:
    """The checkpoint in a folder. Raises ConfigError for a file that is too large, cannot be read or is not JSON."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder of a checkpoint")
    processor, tokenizer_config = _json(folder / "processor_config.json"), _tokenizer_config(folder)
    return Checkpoint(
        folder=str(folder),
        config=_json(folder / "config.json"),
        preprocessor=_json(folder / "preprocessor_config.json"),
        processor=processor,
        video_preprocessor=_json(folder / "video_preprocessor_config.json"),
        tokenizer=_words(folder / "tokenizer.json"),
        tokenizer_config=tokenizer_config,
        added_tokens=_added_tokens(tokenizer_config or {}, _json(folder / "added_tokens.json") or {}),
        chat_template=_chat_template(folder, processor or {}, tokenizer_config or {}),
        tool_template=(folder / "additional_chat_templates" / "tool_use.jinja").exists(),
        mistral=_holds(folder, "consolidated*.safetensors") and _holds(folder, "tekken.json", "tokenizer.model.v*"),
    )


def _holds(folder: Path, *patterns: str) -> bool:
    return any(True for pattern in patterns for _ in folder.glob(pattern))


def _tokenizer_config(folder: Path) -> dict[str, Any] | None:
    config, marks = _json(folder / "tokenizer_config.json"), _json(folder / "special_tokens_map.json")
    return None if config is None and marks is None else {**(marks or {}), **(config or {})}


def _added_tokens(config: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By their text: `lstrip`, `rstrip`, `single_word`, `normalized`, `special`."""
    by_number, extra = config.get("added_tokens_decoder"), config.get("extra_special_tokens")
    listed = [*_all(by_number), *_all(extra), *_all(config.get("additional_special_tokens")), *added]
    return {text: flags for text, flags in map(_added, listed) if text}


def _all(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else list(value) if isinstance(value, list) else []


def _added(token: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(token, Mapping):
        return (token if isinstance(token, str) else ""), {}
    text = token.get("content")
    flags = {name: value for name, value in token.items() if name in FLAGS and isinstance(value, bool)}
    return (text if isinstance(text, str) else ""), flags


def _chat_template(folder: Path, processor: dict[str, Any], tokenizer_config: dict[str, Any]) -> str | None:
    """As transformers chooses: the file of its own, the processor's, the tokenizer's."""
    file = folder / "chat_template.jinja"
    if (template := _text(file)) is not None:
        return template
    beside = _json(folder / "chat_template.json") or {}
    templates = (_default(one.get("chat_template")) for one in (beside, processor, tokenizer_config))
    return next((template for template in templates if template is not None), None)


def template_of(text: str) -> str | None:
    """A chat template from its file, or as it stands: what `--chat-template` takes."""
    return _text(Path(text)) if _is_file(Path(text)) else text


def _default(template: Any) -> str | None:
    """One template; or the one for all uses of several: `[{"name": "default", "template": …}]`, `{"default": …}`."""
    if isinstance(template, list):
        template = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None


def _json(file: Path) -> dict[str, Any] | None:
    text = _text(file)
    if text is None:
        return None
    try:
        value = json.loads(text)  # the one reader that takes the Infinity and the long numbers of such files
    except (ValueError, RecursionError):
        raise ConfigError(f"{file}: not valid JSON") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: not a JSON object")
    return value


class _Words(msgspec.Struct, frozen=True):
    """What every tokenizer.json has. It is not made into values: those of 33 MB are many."""

    model: msgspec.Raw


def _words(file: Path) -> bytes | None:
    data = _bytes(file, TOKENIZER_BYTES)
    try:
        if data is not None:
            msgspec.json.decode(data, type=_Words)
    except msgspec.DecodeError:
        raise ConfigError(f"{file}: not a tokenizer; a pointer of git-lfs, or cut short?") from None
    return data


def _text(file: Path) -> str | None:
    data = _bytes(file, JSON_BYTES)
    try:
        return None if data is None else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8") from None


def _bytes(file: Path, allowed: int) -> bytes | None:
    if not file.exists():
        return None
    if not file.is_file():
        raise ConfigError(f"{file}: not a file")
    try:
        with file.open("rb") as opened:
            data = opened.read(allowed + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    if len(data) > allowed:
        raise ConfigError(f"{file}: more than {allowed} bytes")
    return data


# Where a name lies


def folder_of(model: str, revision: str = "main", *, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of a checkpoint on this machine: a path, of itself or one of its files, or a Hugging Face name that
    has been downloaded before.

    For names that an operator wrote, never for those in a request: a path leads anywhere.
    """
    if folder := _folder(model):
        return folder
    if not _HUB_NAME.fullmatch(model) or not _REVISION.fullmatch(revision):
        return None
    return _snapshot(_hub(environ) / f"models--{model.replace('/', '--')}", revision)


def _folder(path: str) -> Path | None:
    try:
        found = Path(path).expanduser()
        folder = found.parent if found.is_file() else found
        return folder if path and folder.is_dir() else None
    except (OSError, RuntimeError):  # too long a name, or the home of nobody
        return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a template, too long for a name
        return False


def _hub(environ: Mapping[str, str]) -> Path:
    """As huggingface_hub looks for it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return Path(environ[name]).expanduser()
    user = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(environ.get("HF_HOME") or f"{user}/huggingface").expanduser() / "hub"


def _snapshot(stored: Path, revision: str) -> Path | None:
    """revision: a branch or tag, which a file in refs leads to a commit; or a commit."""
    ref = stored / "refs" / revision
    name = (_text(ref) or "").strip() if ref.is_file() else revision
    folder = stored / "snapshots" / name
    return folder if _REVISION.fullmatch(name) and folder.is_dir() else None


# What vLLM has loaded


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What is not told by a version of vLLM is None, or empty.

    model, tokenizer: paths or Hugging Face names. config: its config.json, with `--hf-overrides` laid over.
    chat_template: that of `--chat-template`, a path or the template itself. chat_template_kwargs: of
    `--default-chat-template-kwargs`. own_prompts: whether it was told to make prompts in a way of its own.
    """

    model: str
    revision: str | None = None
    max_model_len: int | None = None
    config: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] = {}
    tokenizer: str | None = None
    tokenizer_revision: str | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] = {}
    own_prompts: bool = False

    @property
    def folder(self) -> Path | None:
        """Of the checkpoint, if it lies on this machine: what vLLM has loaded does."""
        return folder_of(self.model, self.revision or "main")

    @property
    def template(self) -> str | None:
        """The chat template that the server was given, if it was given one."""
        return template_of(self.chat_template) if self.chat_template else None

    @property
    def tokenizer_folder(self) -> Path | None:
        return folder_of(self.tokenizer, self.tokenizer_revision or "main") if self.tokenizer else self.folder


def loaded(state: Any) -> Loaded | None:
    """What the vLLM around a middleware says of itself; none before it has loaded its model, and of other apps.

    state: of the app, `scope["app"].state`. These are no public names of vLLM's: any of them may be missing.
    """
    model = _at(state, "vllm_config.model_config")
    media, name = _at(model, "multimodal_config"), _word(_at(model, "model"))
    if not name:
        return None
    return Loaded(
        model=name,
        revision=_word(_at(model, "revision")),
        max_model_len=_count(_at(model, "max_model_len")),
        config=_table(_call(_at(model, "hf_config.to_dict"))) or None,
        mm_processor_kwargs=_table(_at(media, "mm_processor_kwargs")),
        tokenizer=_word(_at(model, "tokenizer")),
        tokenizer_revision=_word(_at(model, "tokenizer_revision")),
        chat_template=_word(_at(state, "args.chat_template")),
        chat_template_kwargs=_table(_at(state, "args.default_chat_template_kwargs")),
        own_prompts=_own_prompts(state, model, media),
    )


def _own_prompts(state: Any, model: Any, media: Any) -> bool:
    """`--tokenizer-mode`, `--chat-template-content-format`, `--interleave-mm-strings`."""
    mode, form = _at(model, "tokenizer_mode", "auto"), _at(state, "args.chat_template_content_format", "auto")
    return mode not in ("auto", "hf") or form != "auto" or bool(_at(media, "interleave_mm_strings"))


def _at(value: Any, path: str, missing: Any = None) -> Any:
    """An attribute of an attribute; what is missing, or fails to tell, is nothing."""
    for name in path.split("."):
        try:
            value = getattr(value, name, missing)
        except Exception:  # noqa: BLE001 - whatever a property of another library does
            return missing
    return value


def _call(method: Any) -> Any:
    try:
        return method() if callable(method) else None
    except Exception:  # noqa: BLE001 - likewise
        return None


def _items(value: Any) -> list[tuple[str, Any]]:
    return [(str(name), one) for name, one in value.items()] if isinstance(value, Mapping) else []


def _table(value: Any) -> dict[str, Any]:
    """A plain copy: what JSON does not know stands in it as text."""
    try:
        copy: dict[str, Any] = json.loads(json.dumps(dict(_items(value)), default=str, skipkeys=True))
    except (ValueError, RecursionError):
        return {}
    return copy


def _word(value: Any) -> str | None:
    return str(value) if isinstance(value, str | Path) and str(value) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
