"""Models: what served names mean, by the settings, by what a server has loaded, and by themselves."""

from pathlib import Path

import msgspec
import pytest

from tests.vocabularies import bytewise
from vlm_edge.checkpoint import Loaded
from vlm_edge.errors import ConfigError, UnknownModel
from vlm_edge.geometry import Size
from vlm_edge.models import ASSUMED_FAMILY, Models, ModelSettings
from vlm_edge.settings import Settings
from vlm_edge.tokens import FAMILIES, lookup

QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"


def load(folder: Path, text: str) -> Models:
    file = folder / "edge.toml"
    file.write_text(text)
    return Settings.load(file).catalogue()


@pytest.mark.parametrize(
    ("name", "family", "certainty"),
    [
        (QWEN, "qwen2_5_vl", "exact"),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3_vl", "exact"),
        ("gpt-4o", "openai_tile", "estimate"),
        ("my-own-model", ASSUMED_FAMILY, "estimate"),
        ("", ASSUMED_FAMILY, "estimate"),
    ],
)
def test_a_model_counts_by_its_name_or_as_an_estimate(name: str, family: str, certainty: str) -> None:
    model = Settings().catalogue().get(name).model
    assert (model.name, model.family, model.certainty, model.rule) == (name, family, certainty, FAMILIES[family].rule)
    assert model.exact == (certainty == "exact")


def test_a_model_counts_as_the_settings_say(tmp_path: Path) -> None:
    models = load(
        tmp_path,
        """
        [models."eyes-*"]
        family = "Qwen/Qwen3-VL-8B-Instruct"
        [models.small]
        family = "qwen2_5_vl"
        params = { max_pixels = 1003520 }
        max_model_len = 8192
        """,
    )
    eyes, small = models.get("eyes-v2").model, models.get("small").model
    assert (eyes.family, eyes.certainty, eyes.max_model_len) == ("qwen3_vl", "exact", None)
    assert small.rule == lookup("qwen2_5_vl", max_pixels=1_003_520)
    assert small.max_model_len == 8_192
    assert small.rule.image(Size(4_000, 3_000)) <= 1_280


def test_an_entry_may_tell_the_context_of_a_model_whose_name_tells_its_family(tmp_path: Path) -> None:
    model = load(tmp_path, f'[models."{QWEN}"]\nmax_model_len = 4096').get(QWEN).model
    assert (model.family, model.max_model_len) == ("qwen2_5_vl", 4_096)


def test_numbers_without_a_family_are_those_of_the_family_that_the_entry_names(tmp_path: Path) -> None:
    models = load(tmp_path, '[models."Qwen/Qwen2.5-VL*"]\nparams = { max_pixels = 1003520 }')
    assert models.get(QWEN).model.rule == lookup(QWEN, max_pixels=1_003_520)


def test_a_server_of_a_family_that_its_files_do_not_tell_is_known_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "Ovis2-8B"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "never-heard"}')
    models = Models({}, {})
    models.load(Loaded(model=str(folder), max_model_len=4_096))
    model = models.get("my-model").model
    assert (model.family, model.max_model_len) == ("ovis2", 4_096)
    models = Models({}, {})
    models.load(Loaded(model="/nowhere/at-all", max_model_len=512))
    model = models.get("my-model").model
    assert (model.certainty, model.max_model_len) == ("estimate", 512)


def test_a_server_that_was_told_what_we_do_not_know_is_an_estimate_with_its_context(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"}')
    models = Models({}, {})
    models.load(Loaded(model=str(tmp_path), max_model_len=4_096, mm_processor_kwargs={"foo": 1}))
    model = models.get("any").model
    assert (model.family, model.certainty, model.max_model_len) == ("qwen3_vl", "estimate", 4_096)


def test_what_was_known_before_a_server_told_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"}')
    models = Models({}, {})
    assert models.get("any").model.certainty == "estimate"
    assert not models.knows_server
    models.load(Loaded(model=str(tmp_path)))
    assert models.knows_server
    assert models.get("any").model.family == "qwen3_vl"


def test_a_checkpoint_that_tells_no_family_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path.name}.*no config.json"):
        Settings(models={"a": ModelSettings(checkpoint=str(tmp_path))})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """With a tokenizer and no template."""
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"}')
    (tmp_path / "tokenizer.json").write_text(bytewise(["<|image_pad|>"]), "utf-8")
    return tmp_path


@pytest.mark.parametrize("inline", [True, False])
def test_text_is_counted_by_the_template_that_the_server_was_given(checkpoint: Path, *, inline: bool) -> None:
    template, file = "{% for m in messages %}{{ m.role }}{% endfor %}", checkpoint / "own.jinja"
    file.write_text(template)
    given = template if inline else f"{file}"
    without = Models({"a": ModelSettings(checkpoint=f"{checkpoint}")}, {}).get("a")
    assert without.tokenizer is None
    models = Models({"a": ModelSettings(checkpoint=f"{checkpoint}", chat_template=given)}, {})
    tokenizer = models.get("a").tokenizer
    assert tokenizer
    assert tokenizer.chat_template == template


def test_of_mistrals_two_formats_the_makers_own_counts(checkpoint: Path) -> None:
    """vLLM takes that where both are there: its pictures are rounded in another way, its text is not in these files."""
    (checkpoint / "config.json").write_text('{"model_type": "mistral3", "vision_config": {"model_type": "pixtral"}}')
    (checkpoint / "chat_template.jinja").write_text("{{ messages }}")
    entry = {"a": ModelSettings(checkpoint=f"{checkpoint}")}
    other = Models(entry, {}).get("a")
    assert (other.model.family, bool(other.tokenizer)) == ("mistral3", True)
    for name in ("consolidated.safetensors", "params.json", "tekken.json"):
        (checkpoint / name).write_text("{}")
    own = Models(entry, {}).get("a")
    assert (own.model.family, own.tokenizer) == ("mistral3_mistral_format", None)
    assert own.model.rule.image(Size(1_256, 1_361)) == FAMILIES["mistral3_mistral_format"].rule.image(
        Size(1_256, 1_361)
    )


def test_a_server_that_makes_prompts_in_its_own_way_is_bounded(checkpoint: Path) -> None:
    (checkpoint / "chat_template.jinja").write_text("{{ messages }}")
    for own, counted in ((False, True), (True, False)):
        models = Models({}, {})
        models.load(Loaded(model=f"{checkpoint}", own_prompts=own))
        assert bool(models.get("any").tokenizer) is counted


def test_a_template_that_is_not_there_is_named(checkpoint: Path) -> None:
    models = Models({"a": ModelSettings(checkpoint=f"{checkpoint}", chat_template="nowhere.jinja")}, {})
    with pytest.raises(ConfigError, match=r"models\.a: chat_template = 'nowhere\.jinja': no such file"):
        models.read()


def test_an_own_family_counts_by_its_own_numbers(tmp_path: Path) -> None:
    models = load(
        tmp_path,
        """
        [families.my_vlm]
        rule = "MergedGrid"
        patch = 14
        merge = 1
        min_pixels = 196
        max_pixels = 1000000
        [models."mine/*"]
        family = "my_vlm"
        """,
    )
    for name in ("my_vlm", "mine/7b"):
        model = models.get(name).model
        assert (model.family, model.certainty) == ("my_vlm", "exact")
        assert model.rule.image(Size(280, 140)) == 200


def test_a_checkpoint_is_read_once_for_all_names(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    (tmp_path / "preprocessor_config.json").write_text('{"max_pixels": 1003520}')
    models = Models({"eyes-*": ModelSettings(checkpoint=str(tmp_path))}, {})
    models.read()
    (tmp_path / "preprocessor_config.json").unlink()
    for name in ("eyes-1", "eyes-2"):
        model = models.get(name).model
        assert (model.name, model.rule) == (name, lookup("qwen2_5_vl", max_pixels=1_003_520))


def test_an_own_family_may_be_like_another(tmp_path: Path) -> None:
    model = load(tmp_path, '[families.small]\nlike = "internvl"\nmax_patches = 6').get("small").model
    assert model.rule == lookup("internvl", max_patches=6)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_rule_can_be_written_in_a_settings_file(name: str) -> None:
    rule = FAMILIES[name].rule
    settings = Settings(families={"mine": msgspec.to_builtins(rule)}, models={"m": ModelSettings(family="mine")})
    assert settings.catalogue().get("m").model.rule == rule


def test_a_model_that_nobody_knows_can_be_refused(tmp_path: Path) -> None:
    models = load(tmp_path, 'unknown_models = "refuse"')
    assert models.get(QWEN).model.exact
    with pytest.raises(UnknownModel, match="who-knows"):
        models.get("who-knows")


@pytest.mark.parametrize("size", [Size(1, 1), Size(640, 480), Size(4_032, 3_024), Size(2_000, 30)])
def test_the_upper_bound_is_above_every_family_that_is_counted_exactly(tmp_path: Path, size: Size) -> None:
    model = load(tmp_path, 'unknown_models = "at_most"').get("who-knows").model
    assert model.certainty == "at most"
    counts = [family.rule.image(size) for family in FAMILIES.values() if family.exact]
    assert model.rule.image(size) >= max(*counts, lookup("google/paligemma2-3b-pt-896").image(size))


@pytest.mark.parametrize(
    "text",
    [
        '[models.a]\nfamily = "who-knows"',
        '[models.a]\nfamily = "qwen2_vl"\nparams = { num_crops = 4 }',
        '[models.a]\nfamily = "qwen2_vl"\nmax_model_len = 0',
        '[models."*"]\nparams = { max_pixels = 1003520 }',
        '[models.a]\ncheckpoint = "no-such-folder/at-all"',
        '[models.a]\nfamily = "qwen2_vl"\nchat_template = "{{ messages }}"',
        '[families.a]\nrule = "MergedGrid"\npatch = 0\nmerge = 2\nmin_pixels = 1\nmax_pixels = 2',
        '[families.a]\nrule = "Nothing"',
        '[families.a]\nrule = ["MergedGrid"]',
        '[families.a]\nrule = "Fixed"\ntokens = -3',
        '[families.a]\nrule = "Fixed"\nlike = "qwen2_vl"\ntokens = 3',
        '[families.a]\nlike = "llava_next"\nimage_grid_pinpoints = [[0, 0]]',
        '[families.a]\nlike = "llava_next"\nimage_grid_pinpoints = [[100, 100]]',
        '[families.a]\nlike = "internvl"\nmax_patches = 1000000',
        '[families.a]\nlike = "qwen2_vl"\ntemplate_tokens = -7',
    ],
)
def test_an_entry_that_cannot_be_is_a_config_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load(tmp_path, text)


def test_client_chosen_names_do_not_fill_the_memory() -> None:
    models = Settings().catalogue()
    for number in range(3_000):
        models.get(f"qwen2-vl-{number}")
    assert len(models._known) <= 1_024
