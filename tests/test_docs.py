"""The documents say what the code does: every setting, command, profile, header and error code is in them."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.samples import CHAT_PATH, PHONE, ROOT, chat, image_part
from vlm_edge import Edge, Settings, Size, errors
from vlm_edge.cli.main import app
from vlm_edge.media.profile import Pages, Profile, Sampling
from vlm_edge.models import ModelSettings
from vlm_edge.tokens import FAMILIES, lookup
from vlm_edge.tokens.placeholders import PLACEHOLDERS
from vlm_edge.tokens.table import markdown

README = (ROOT / "README.md").read_text("utf-8")
EXAMPLE = ROOT / "examples" / "edge.toml"


def settings_keys(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(`section.key`, default) of every plain value that can be set."""
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from settings_keys(field.type, f"{prefix}{field.name}.")
        elif isinstance(field.default, int | float | str):
            yield prefix + field.name, field.default


def value_at(values: dict[str, Any], key: str) -> Any:
    for step in key.split("."):
        values = values[step]
    return values


@pytest.mark.parametrize(("key", "default"), list(settings_keys(Settings)))
def test_the_example_settings_show_every_key_with_its_default(key: str, default: object) -> None:
    assert value_at(tomllib.loads(EXAMPLE.read_text("utf-8")), key) == default


def test_the_example_settings_load() -> None:
    settings = Settings.load(EXAMPLE)
    assert settings.profiles["id_card"].max_side == 1_600
    model = settings.catalogue().get("my-vlm-7b").model
    assert (model.family, model.max_model_len) == ("qwen2_5_vl", 32_768)


@pytest.mark.parametrize("file", sorted((ROOT / "profiles").glob("*.toml")), ids=lambda file: file.stem)
def test_every_shipped_profile_explains_every_field_and_is_in_the_readme(file: Path) -> None:
    text = file.read_text("utf-8")
    for field in (*Profile.__struct_fields__, *Pages.__struct_fields__, *Sampling.__struct_fields__):
        assert re.search(rf"^(?:# )?(?:{field} = .+|\[{field}\])", text, re.MULTILINE), field
    profile = Settings().profiles[file.stem]
    row = next(line for line in README.splitlines() if line.startswith(f"| `{file.stem}`"))
    assert str(profile.max_side) in row
    assert f"JPEG {profile.quality}" in row


def test_the_readme_lists_every_command() -> None:
    listed = re.findall(r"^\| `vlm-edge (\w+)", README, re.MULTILINE)
    assert sorted(listed) == sorted(str(command.name) for command in app.registered_commands)


def error_classes(parent: type[errors.EdgeError]) -> Iterator[type[errors.EdgeError]]:
    for child in parent.__subclasses__():
        yield child
        yield from error_classes(child)


@pytest.mark.parametrize(
    "error",
    [*error_classes(errors.RequestError), *error_classes(errors.ServerError), errors.UnknownModel],
    ids=lambda error: error.__name__,
)
def test_the_readme_lists_every_error_code_beside_its_status(error: type[errors.EdgeError]) -> None:
    rows = [line for line in README.splitlines() if line.startswith("| ") and f"`{error.code}`" in line]
    assert any(str(error.status) in row.split("|")[1] for row in rows)


def test_the_readme_lists_every_response_header() -> None:
    report = Edge().prepare(CHAT_PATH, chat(image_part(PHONE.read_bytes()))).report
    assert report
    for name, _ in report.headers():
        assert f"`{name.decode()}`" in README.lower()


def test_the_figures_of_the_readme_are_those_of_the_rule() -> None:
    photo, sent = (4_032, 3_024), (1_008, 756)
    family = lookup("Qwen/Qwen2.5-VL-7B-Instruct")
    assert f"{family.image(Size(*photo)):,} vision tokens" in README
    assert f"costs {family.image(Size(*sent)):,}" in README


def test_every_file_that_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^):]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_benchmark_is_described() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    for file in (ROOT / "benchmarks").glob("bench_*.py"):
        assert f"`{file.name}`" in text


def between(start: str, end: str) -> str:
    return README.partition(start)[2].partition(end)[0].strip()


def test_the_readme_holds_the_table_of_families() -> None:
    table = between("<!-- families -->", "<!-- /families -->")
    assert table == markdown(FAMILIES), "put the output of `vlm-edge families --markdown` between the two marks"


def test_the_readme_names_the_families_whose_text_is_counted() -> None:
    assert re.findall(r"`(\w+)`", between("placeholder of a picture is known:", ".\n")) == list(PLACEHOLDERS)


def test_the_readmes_own_family_counts(tmp_path: Path) -> None:
    (example,) = [block for block in re.findall(r"```toml\n(.*?)```", README, re.DOTALL) if "[families." in block]
    file = tmp_path / "edge.toml"
    file.write_text(example)
    model = Settings.load(file).catalogue().get("acme/my-vlm-7b").model
    assert (model.family, model.certainty) == ("my_vlm", "exact")
    assert model.rule.image(Size(1_400, 1_400)) == 50 * 50
    assert Settings.load(file).catalogue().get("few_tiles").model.rule == lookup("internvl", max_patches=6)
    assert model.rule.image(Size(5_600, 5_600)) == 50 * 50  # of its 2,000,000 pixels


def test_the_readmes_checkpoint_is_an_entry_of_models() -> None:
    (example,) = [block for block in re.findall(r"```toml\n(.*?)```", README, re.DOTALL) if "checkpoint" in block]
    (entry,) = tomllib.loads(example)["models"].values()
    assert msgspec.convert(entry, ModelSettings).max_model_len == 32_768
