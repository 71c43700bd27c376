import tomllib
from pathlib import Path

import orjson
import pytest

from tests.cli.command import good, told, vlm_edge
from tests.samples import ROOT

SHIPPED = {file.stem: tomllib.loads(file.read_text()) for file in (ROOT / "profiles").glob("*.toml")}


def test_the_shipped_profiles_are_listed_by_their_whole_names() -> None:
    text = good(vlm_edge("profiles"))
    for name, fields in SHIPPED.items():
        assert name in text
        assert f"{fields['max_side']}" in text


def test_profiles_are_json_for_programs() -> None:
    profiles = orjson.loads(good(vlm_edge("profiles", "--json")))
    assert set(profiles) == set(SHIPPED)
    for name, fields in SHIPPED.items():
        for key, value in fields.items():
            shown = profiles[name][key]
            assert ({one: shown[one] for one in value} if isinstance(value, dict) else shown) == value


@pytest.mark.parametrize("name", SHIPPED)
def test_one_profile_is_shown_alone(name: str) -> None:
    text = good(vlm_edge("profiles", name))
    assert f"{SHIPPED[name]['max_pixels']}" in text
    assert list(orjson.loads(good(vlm_edge("profiles", name, "--json")))) == [name]
    assert not any(other in text for other in SHIPPED if other != name)


def test_profiles_of_the_settings_file_are_listed_too(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text("[profiles.tiny]\nmax_side = 64\n[profiles.invoice]\nquality = 70\n")
    profiles = orjson.loads(good(vlm_edge("profiles", "--json", "--config", file)))
    assert profiles["tiny"]["max_side"] == 64
    assert profiles["invoice"]["quality"] == 70
    assert profiles["invoice"]["max_side"] == SHIPPED["invoice"]["max_side"]  # laid over, not replaced


def test_an_unknown_profile_is_told_with_those_that_are_known() -> None:
    told(vlm_edge("profiles", "huge"), 2, "'huge'", *SHIPPED)
