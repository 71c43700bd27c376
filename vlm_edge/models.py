"""
Models: what a served name means to us: the rule of its family, its context and its tokenizer.

By the settings; else by what its server has loaded, where we stand before just that one; else by the name itself.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

import msgspec

from vlm_edge.checkpoint import Checkpoint, Loaded, folder_of, read, template_of
from vlm_edge.errors import ConfigError, EdgeError, UnknownModel
from vlm_edge.plan import Certainty, Model
from vlm_edge.tokens import FAMILIES, Rule, dearest, lookup, model_type, own_rule
from vlm_edge.tokens.checkpoint import checkpoint_rule
from vlm_edge.tokens.lookup import laid_over
from vlm_edge.tokens.placeholders import PLACEHOLDERS
from vlm_edge.tokens.rows import RowGrid
from vlm_edge.tokens.text import Tokenizer, is_installed

# Counts for a model of unknown family are estimates by this one, whose grid is the finest among the common ones.
ASSUMED_FAMILY = "qwen2_vl"

# What is added to the name of a family in Mistral's own format.
MISTRAL_FORMAT = "_mistral_format"

# Served names are the client's to choose, so no more of them are kept.
MAX_KNOWN = 1_024

Unknown = Literal["estimate", "at_most", "refuse"]


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a served model counts, and how much it takes.

    family: a model_type, a Hugging Face name, or one of [families]; without one, the name tells it. params: the
    numbers its processor was given (`--mm-processor-kwargs`), as `{ max_pixels = 1003520 }`. checkpoint: its folder, or
    its Hugging Face name if that is in the local cache: the family and its numbers are read there, and with the extra
    `text` its tokenizer counts the text of prompts. chat_template, chat_template_kwargs: as its server was given them
    (`--chat-template`, a file; `--default-chat-template-kwargs`). max_model_len: as its server was given it; the
    gateway asks its backend.
    """

    family: str = ""
    params: dict[str, Any] = {}
    checkpoint: str = ""
    chat_template: str = ""
    chat_template_kwargs: dict[str, Any] = {}
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        if self.max_model_len is not None and self.max_model_len < 1:
            raise ValueError(f"max_model_len = {self.max_model_len}: must be 1 or more")
        if (self.chat_template or self.chat_template_kwargs) and not self.checkpoint:
            raise ValueError("a chat template without a checkpoint: there is no tokenizer to go with it")


class Served(NamedTuple):
    """A model, and the tokenizer of its text, where there is one."""

    model: Model
    tokenizer: Tokenizer | None = None


class Models:
    """`get` for what a served name means; `load` tells of the one model that the server before us has loaded."""

    def __init__(
        self,
        entries: Mapping[str, ModelSettings],
        families: Mapping[str, Mapping[str, Any]],
        unknown: Unknown = "estimate",
    ) -> None:
        self.entries = entries
        self.families = {name: own_rule(name, values) for name, values in families.items()}
        self.unknown = unknown
        self._known: dict[str, Served] = {}
        self._read: dict[str, Served] = {}  # of checkpoints, by the pattern of their entry
        self._loaded: Served | None = None
        self._asked = False

    def get(self, name: str) -> Served:
        """Raises UnknownModel where the settings have it so."""
        known = self._known  # `load` begins another
        served = known.get(name)
        if served is None:
            served = self._find(name)
            if len(known) < MAX_KNOWN:
                known[name] = served
        return served

    @property
    def knows_server(self) -> bool:
        """Whether `load` has done its work."""
        return self._asked

    def load(self, loaded: Loaded) -> None:
        """Count by the numbers of this model whatever name the settings have no entry for: it is served under any.

        Once; for one thread at a time.
        """
        if self._asked:
            return
        served = self._of_loaded(loaded)
        model = msgspec.structs.replace(served.model, max_model_len=loaded.max_model_len)
        self._loaded, self._known = served._replace(model=model), {}
        self._asked = True

    def _of_loaded(self, loaded: Loaded) -> Served:
        """By its files, else by its name."""
        try:
            return _of_files(loaded) or Served(self._named(loaded.model, loaded.mm_processor_kwargs))
        except EdgeError:  # of a family that we do not know, or damaged
            pass
        try:
            return Served(self._named(loaded.model, loaded.mm_processor_kwargs))
        except EdgeError:
            return Served(_assumed(loaded.model, self.unknown))

    def read(self) -> None:
        """Read the checkpoints, before anybody waits for them. Raises ConfigError for an entry that cannot be."""
        for pattern, entry in self.entries.items():
            if entry.family or entry.checkpoint or entry.params:
                try:
                    self._of_entry(pattern, pattern, entry)
                except EdgeError as error:
                    raise ConfigError(f"models.{pattern}: {error.message}") from None

    def _find(self, name: str) -> Served:
        for pattern, entry in self.entries.items():
            if name == pattern or fnmatchcase(name, pattern):  # a path may have brackets
                return self._of_entry(name, pattern, entry)
        return self._without_entry(name)

    def _of_entry(self, name: str, pattern: str, entry: ModelSettings) -> Served:
        if entry.checkpoint:
            served = self._read.get(pattern) or self._of_checkpoint(pattern, entry)
            self._read[pattern] = served
        elif entry.family or entry.params:  # numbers are those of one family
            served = Served(self._named(entry.family or pattern, entry.params))
        else:
            served = self._without_entry(name)
        server = self._loaded or served  # knows what the settings leave out
        length = entry.max_model_len or served.model.max_model_len or server.model.max_model_len
        model = msgspec.structs.replace(served.model, name=name, max_model_len=length)
        return Served(model, served.tokenizer or server.tokenizer)

    def _of_checkpoint(self, name: str, entry: ModelSettings) -> Served:
        folder = folder_of(entry.checkpoint)
        if folder is None:
            raise ConfigError(f"no checkpoint lies at {entry.checkpoint!r}, or in the local cache")
        found, template = read(folder), _template(entry)
        if not (entry.family or found.config or found.preprocessor or found.processor):
            raise ConfigError(f"{folder}: no config.json or preprocessor_config.json, by which to tell the family")
        if entry.family:
            model = self._named(entry.family, entry.params)
            return Served(model, _tokenizer(found, model.family, template, entry.chat_template_kwargs))
        family, rule = _rule(found, found.config)
        tokenizer = _tokenizer(found, family, template, entry.chat_template_kwargs)
        return Served(Model(name, family, laid_over(rule, entry.params, name)), tokenizer)

    def _without_entry(self, name: str) -> Served:
        if self._loaded:
            return self._loaded._replace(model=msgspec.structs.replace(self._loaded.model, name=name))
        try:
            return Served(self._named(name))
        except UnknownModel:
            if self.unknown == "refuse":
                raise
            return Served(_assumed(name, self.unknown))

    def _named(self, name: str, params: Mapping[str, Any] | None = None) -> Model:
        """By the name of a family, ours or the settings', or one that tells it."""
        if name in self.families:
            return Model(name, name, laid_over(self.families[name], params or {}, name))
        family = model_type(name)
        certainty: Certainty = "exact" if FAMILIES[family].exact else "estimate"
        return Model(name, family, laid_over(lookup(name), params or {}, name), certainty)


def _assumed(name: str, unknown: Unknown) -> Model:
    """Of a model that nobody knows: counted as by one family, or as by the dearest of all."""
    if unknown == "at_most":
        return Model(name, "unknown", dearest(), "at most")
    return Model(name, ASSUMED_FAMILY, FAMILIES[ASSUMED_FAMILY].rule, "estimate")


def _of_files(loaded: Loaded) -> Served | None:
    """None where its files do not lie here."""
    if not loaded.folder:
        return None
    found = read(loaded.folder)
    family, rule = _rule(found, loaded.config or found.config)
    words = read(loaded.tokenizer_folder) if loaded.tokenizer_folder else found
    model = _with_kwargs(Model(loaded.model, family, rule), loaded.mm_processor_kwargs)
    if loaded.own_prompts:
        return Served(model)
    return Served(model, _tokenizer(words, family, loaded.template, loaded.chat_template_kwargs))


def _template(entry: ModelSettings) -> str | None:
    if not entry.chat_template:
        return None
    template = template_of(entry.chat_template)
    if template == entry.chat_template and "{" not in template:
        raise ConfigError(f"chat_template = {template!r}: no such file")
    return template


def _with_kwargs(model: Model, kwargs: Mapping[str, Any]) -> Model:
    """An estimate where the server's processor was told something that we do not know."""
    try:
        return msgspec.structs.replace(model, rule=laid_over(model.rule, kwargs, model.name))
    except EdgeError:
        return msgspec.structs.replace(model, certainty="estimate")


def _rule(found: Checkpoint, config: Mapping[str, Any] | None) -> tuple[str, Rule]:
    """Of both formats that Mistral's models come in vLLM takes the maker's own."""
    preprocessor = {**(found.processor or {}), **(found.preprocessor or {})}
    family, rule = checkpoint_rule(config or {}, preprocessor, found.video_preprocessor)
    if found.mistral and isinstance(rule, RowGrid) and f"{family}{MISTRAL_FORMAT}" in FAMILIES:
        return f"{family}{MISTRAL_FORMAT}", msgspec.structs.replace(rule, rounds=True)
    return family, rule


def _tokenizer(
    found: Checkpoint, family: str, chat_template: str | None, chat_template_kwargs: Mapping[str, Any]
) -> Tokenizer | None:
    """None where something is missing: a file, the extra `text`, or what the family writes for a picture."""
    template = chat_template or found.chat_template
    if found.mistral or not (found.tokenizer and template and family in PLACEHOLDERS and is_installed()):
        return None
    return Tokenizer(
        found.tokenizer,
        found.tokenizer_config or {},
        template,
        PLACEHOLDERS[family],
        added_tokens=found.added_tokens,
        variables=chat_template_kwargs,
        counts_tools=not (found.tool_template and chat_template is None),
    )
