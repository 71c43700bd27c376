"""Choice: which profile a request gets. By its header, else by the first rule that it meets, else the default."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from hmac import compare_digest

import msgspec

from vlm_edge.errors import UnknownProfile

PROFILE_HEADER = "x-vlm-edge-profile"


class ProfileRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One business: requests that meet every condition given here get `profile`.

    path and model: as in the request, `*` allowed. header: `name: value`, `*` allowed in the value. api_key: the
    bearer token, or X-API-Key.
    """

    profile: str
    path: str | None = None
    model: str | None = None
    header: str | None = None
    api_key: str | None = None

    def __post_init__(self) -> None:
        if self.path is self.model is self.header is self.api_key is None:
            raise ValueError("a rule needs path, model, header or api_key")
        if self.header is not None and ":" not in self.header:
            raise ValueError(f"header = {self.header!r}: write it as 'name: value'")

    def meets(self, path: str, model: str, headers: Mapping[str, str]) -> bool:
        return (
            (self.path is None or fnmatchcase(path, self.path))
            and (self.model is None or fnmatchcase(model, self.model))
            and (self.header is None or _has_header(headers, self.header))
            and (self.api_key is None or _has_key(headers, self.api_key))
        )


def _has_header(headers: Mapping[str, str], wanted: str) -> bool:
    name, _, value = wanted.partition(":")
    found = headers.get(name.strip().lower())
    return found is not None and fnmatchcase(found, value.strip())


def _has_key(headers: Mapping[str, str], key: str) -> bool:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    found = token if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    return compare_digest(found.strip().encode(), key.encode())


def choose(
    path: str,
    model: str,
    headers: Mapping[str, str],
    rules: tuple[ProfileRule, ...],
    default: str,
    known: Mapping[str, object],
) -> str:
    """The name of the profile. `headers` have lower-case names. Raises UnknownProfile for a header that names none."""
    asked = headers.get(PROFILE_HEADER, "").strip()
    if asked and asked not in known:
        raise UnknownProfile(asked, known)
    return asked or next((rule.profile for rule in rules if rule.meets(path, model, headers)), default)
