import msgspec
import pytest

from vlm_edge.choice import PROFILE_HEADER, ProfileRule, choose
from vlm_edge.errors import UnknownProfile

KNOWN = dict.fromkeys(["standard", "document", "invoice", "thumbnail"])
CHAT = "/v1/chat/completions"


def chosen(*rules: ProfileRule, path: str = CHAT, model: str = "qwen", headers: dict[str, str] | None = None) -> str:
    return choose(path, model, headers or {}, rules, "standard", KNOWN)


def test_without_a_word_the_default_is_chosen() -> None:
    assert chosen() == "standard"


def test_a_header_chooses_before_any_rule() -> None:
    rule = ProfileRule(profile="document", path="*")
    assert chosen(rule) == "document"
    assert chosen(rule, headers={PROFILE_HEADER: "invoice"}) == "invoice"
    assert chosen(rule, headers={PROFILE_HEADER: "  invoice "}) == "invoice"


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_header_chooses_nothing(empty: str) -> None:
    assert chosen(headers={PROFILE_HEADER: empty}) == "standard"


@pytest.mark.parametrize("name", ["Invoice", "tiny", "../invoice", "standard,invoice"])
def test_a_header_that_names_no_profile_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(UnknownProfile, match="document, invoice, standard, thumbnail"):
        chosen(headers={PROFILE_HEADER: name})


def test_the_first_rule_that_is_met_chooses() -> None:
    rules = [
        ProfileRule(profile="document", model="llava*"),
        ProfileRule(profile="invoice", model="qwen*"),
        ProfileRule(profile="thumbnail", path="*"),
    ]
    assert chosen(*rules, model="qwen2.5") == "invoice"
    assert chosen(*rules, model="gemma") == "thumbnail"


@pytest.mark.parametrize(
    ("rule", "met", "not_met"),
    [
        ({"path": CHAT}, {"path": CHAT}, {"path": CHAT + "/batch"}),
        ({"path": "/v1/*"}, {"path": CHAT}, {"path": "/v2/embed"}),
        ({"model": "Qwen/*"}, {"model": "Qwen/Qwen2.5-VL"}, {"model": "qwen/qwen2.5"}),
        ({"header": "x-tenant: acme"}, {"headers": {"x-tenant": "acme"}}, {"headers": {"x-tenant": "acme2"}}),
        ({"header": "X-Tenant:acme*"}, {"headers": {"x-tenant": "acme2"}}, {"headers": {"x-other": "acme"}}),
        ({"header": "x-url: http://a"}, {"headers": {"x-url": "http://a"}}, {"headers": {"x-url": "http"}}),
        ({"api_key": "k1"}, {"headers": {"authorization": "Bearer k1"}}, {"headers": {"authorization": "Bearer k12"}}),
        ({"api_key": "k1"}, {"headers": {"authorization": "bearer  k1 "}}, {"headers": {"authorization": "Basic k1"}}),
        ({"api_key": "k1"}, {"headers": {"authorization": "Bearer k1"}}, {"headers": {}}),
        ({"api_key": "*"}, {"headers": {"authorization": "Bearer *"}}, {"headers": {"authorization": "Bearer k1"}}),
    ],
)
def test_a_rule_is_met_by_what_it_names(rule: dict[str, str], met: dict[str, str], not_met: dict[str, str]) -> None:
    one = msgspec.convert({"profile": "invoice", **rule}, ProfileRule)
    asked = {"path": CHAT, "model": "qwen", "headers": {}}
    assert one.meets(**asked | met)  # type: ignore[arg-type]
    assert not one.meets(**asked | not_met)  # type: ignore[arg-type]


def test_every_condition_of_a_rule_has_to_be_met() -> None:
    rule = ProfileRule(profile="invoice", path=CHAT, model="qwen*", header="x-tenant: acme", api_key="k1")
    headers = {"x-tenant": "acme", "authorization": "Bearer k1"}
    assert rule.meets(CHAT, "qwen2", headers)
    assert not rule.meets("/other", "qwen2", headers)
    assert not rule.meets(CHAT, "llava", headers)
    assert not rule.meets(CHAT, "qwen2", {**headers, "x-tenant": "other"})
    assert not rule.meets(CHAT, "qwen2", {"x-tenant": "acme"})


def test_a_header_of_any_value_has_to_be_there() -> None:
    rule = ProfileRule(profile="invoice", header="x-tenant: *")
    assert rule.meets(CHAT, "qwen", {"x-tenant": "acme"})
    assert not rule.meets(CHAT, "qwen", {})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "path, model, header or api_key"),
        ({"header": "x-tenant"}, "name: value"),
        ({"path": CHAT, "modle": "qwen"}, "modle"),
    ],
)
def test_a_rule_that_cannot_be_met_is_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"profile": "invoice", **fields}, ProfileRule)
