"""
Settings: the parts' own structs put together; TOML and environment; an unknown key is an error that names it.

    VLM_EDGE_CONFIG=edge.toml                  the file that `Settings.from_env` reads
    VLM_EDGE_LIMITS__MAX_IMAGES=4              one value laid over it: SECTION__KEY, the value written as in TOML
    VLM_EDGE_DEFAULT_PROFILE=document          the same for a key outside the sections
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vlm_edge.budget import BudgetSettings
from vlm_edge.choice import ProfileRule
from vlm_edge.errors import ConfigError, EdgeError
from vlm_edge.fetch import FetchSettings
from vlm_edge.gateway.config import GatewaySettings
from vlm_edge.isolation import IsolationSettings
from vlm_edge.media.profile import Profile
from vlm_edge.models import Models, ModelSettings, Unknown
from vlm_edge.pictures import Limits
from vlm_edge.policies import Policies
from vlm_edge.upload import UploadSettings
from vlm_edge.workers import WorkerSettings

PREFIX = "VLM_EDGE_"


def shipped_profiles() -> dict[str, Profile]:
    return {name: _profile(name, values) for name, values in _folder(_shipped_folder()).items()}


def _shipped_folder() -> Path:
    package = Path(__file__).parent
    installed = package / "profiles"  # in the wheel; in a checkout they lie beside the package
    return installed if installed.is_dir() else package.parent / "profiles"


class Settings(Policies, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set, the policies' own keys among it. `Settings()` is complete.

    default_profile: for requests that neither name a profile nor meet a rule. profile_folders: *.toml files to add,
    relative to the settings file. api_keys: if there are any, requests must bear one of them before anything is done
    for them. models: served name (`*` allowed) → how it counts; names of known families need no entry. families: own
    ones by name, each a rule and its numbers. unknown_models: the pictures of a model of no known family are counted by
    an assumed one, which is an estimate; or as the dearest would count them, which is an upper bound; or refused.
    """

    default_profile: str = "standard"
    profiles: dict[str, Profile] = msgspec.field(default_factory=shipped_profiles)
    profile_folders: tuple[str, ...] = ()
    rules: tuple[ProfileRule, ...] = ()
    api_keys: tuple[str, ...] = ()
    models: dict[str, ModelSettings] = msgspec.field(default_factory=dict)
    families: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    unknown_models: Unknown = "estimate"
    budget: BudgetSettings = msgspec.field(default_factory=BudgetSettings)
    limits: Limits = msgspec.field(default_factory=Limits)
    upload: UploadSettings = msgspec.field(default_factory=UploadSettings)
    fetch: FetchSettings = msgspec.field(default_factory=FetchSettings)
    workers: WorkerSettings = msgspec.field(default_factory=WorkerSettings)
    isolation: IsolationSettings = msgspec.field(default_factory=IsolationSettings)
    gateway: GatewaySettings = msgspec.field(default_factory=GatewaySettings)

    def __post_init__(self) -> None:
        for name in (self.default_profile, *(rule.profile for rule in self.rules)):
            if name not in self.profiles:
                raise ValueError(f"no profile is called {name!r}; the profiles are {', '.join(sorted(self.profiles))}")
        if not all(self.api_keys):
            raise ValueError("api_keys has an empty one, which anybody bears")
        if self.remote == "fetch" and not self.fetch.hosts:
            raise ValueError("remote = 'fetch' needs fetch.hosts, the hosts that pictures may come from")
        try:
            self.catalogue().read()
        except EdgeError as error:
            raise ValueError(error.message) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Settings":
        """Settings from a TOML file. Raises ConfigError."""
        return _settings(_read_toml(Path(path)), Path(path))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Settings from VLM_EDGE_CONFIG, if set, and the variables laid over it. Raises ConfigError."""
        path = environ.get(f"{PREFIX}CONFIG")
        values = _read_toml(Path(path)) if path else {}
        for name, text in environ.items():
            keys = name.removeprefix(PREFIX).lower().split("__")
            if name.startswith(PREFIX) and (len(keys) > 1 or keys[0] in cls.__struct_fields__):
                _lay_over(values, keys, _value(text), name)
        return _settings(values, Path(path) if path else Path("environment"))

    def catalogue(self) -> Models:
        """What served names mean."""
        return Models(self.models, self.families, self.unknown_models)


def _settings(values: dict[str, Any], path: Path) -> Settings:
    try:
        profiles = _folder(_shipped_folder())
        folders = values.get("profile_folders", [])
        for folder in folders if isinstance(folders, list) else ():  # msgspec says below what else is wrong
            _merge(profiles, _folder(path.parent / folder))
        _merge(profiles, values.get("profiles", {}))
        structs = {name: _profile(name, fields) for name, fields in profiles.items()}
        return msgspec.convert({**values, "profiles": structs}, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (AttributeError, TypeError):
        raise ConfigError(f"{path}: profiles must be tables and profile_folders a list of folders") from None


def _profile(name: str, fields: dict[str, Any]) -> Profile:
    try:
        return msgspec.convert(fields, Profile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"profile {name!r}: {error}") from None


def _folder(folder: Path) -> dict[str, dict[str, Any]]:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder of profiles")
    return {file.stem: _read_toml(file) for file in sorted(folder.glob("*.toml"))}


def _merge(profiles: dict[str, dict[str, Any]], more: Mapping[str, dict[str, Any]]) -> None:
    for name, fields in more.items():
        known = profiles.get(name, {})
        profiles[name] = {**known, **{key: _within(known.get(key), value) for key, value in fields.items()}}


def _within(known: Any, value: Any) -> Any:
    """A table laid over one that is there changes just the keys that it has."""
    return {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _lay_over(values: dict[str, Any], keys: list[str], value: Any, name: str) -> None:
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{name}: {key} is a value, not a section")
    values[keys[-1]] = value


def _value(text: str) -> Any:
    """A value written as in TOML; what is none is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
