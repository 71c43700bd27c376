import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.samples import ROOT
from vlm_edge.choice import ProfileRule
from vlm_edge.errors import ConfigError
from vlm_edge.media.profile import Profile
from vlm_edge.models import ModelSettings
from vlm_edge.settings import Settings, shipped_profiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def written(folder: Path, text: str, name: str = "edge.toml") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return file


def loaded(folder: Path, text: str) -> Settings:
    return Settings.load(written(folder, text))


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text)
    return caught.value.message


# Defaults and files


def test_settings_are_complete_without_a_word(folder: Path) -> None:
    assert Settings() == Settings.from_env({}) == loaded(folder, "")
    assert set(Settings().profiles) == {"thumbnail", "standard", "document", "invoice", "video"}
    assert Settings().default_profile == "standard"
    assert Settings().remote == "refuse"


def test_the_shipped_profiles_are_the_files_in_the_folder() -> None:
    files = {file.stem: tomllib.loads(file.read_text("utf-8")) for file in (ROOT / "profiles").glob("*.toml")}
    assert shipped_profiles() == {name: msgspec.convert(fields, Profile) for name, fields in files.items()}


def test_each_part_is_set_in_its_own_table(folder: Path) -> None:
    settings = loaded(
        folder,
        """
        default_profile = "invoice"
        remote = "pass"
        [limits]
        max_images = 3
        [workers]
        threads = 2
        [gateway]
        backend = "http://vllm:8000"
        [models."my-model"]
        family = "qwen3_vl"
        [[rules]]
        profile = "document"
        model = "ocr-*"
        """,
    )
    assert (settings.default_profile, settings.remote) == ("invoice", "pass")
    assert settings.limits.max_images == 3
    assert settings.workers.threads == 2
    assert settings.gateway.backend == "http://vllm:8000"
    assert settings.models == {"my-model": ModelSettings(family="qwen3_vl")}
    assert settings.rules == (ProfileRule(profile="document", model="ocr-*"),)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("max_images = 3", "max_images"),
        ("[limit]\nmax_images = 3", "limit"),
        ("[limits]\nmax_imags = 3", "max_imags"),
        ("[workers]\nthread = 3", "thread"),
        ("[gateway]\nbackends = []", "backends"),
        ("[profiles.standard]\nqualty = 3", "qualty"),
        ("[models.a]\nfamly = 'qwen2_vl'", "famly"),
        ("[[rules]]\nprofile = 'standard'\nmodle = 'a'", "modle"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_it(folder: Path, text: str, named: str) -> None:
    assert f"`{named}`" in refusal(folder, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[profiles.standard]\nquality = 900", ["standard", "quality = 900", "1 to 100"]),
        ("[profiles.mine]\nmax_side = 0", ["mine", "max_side = 0"]),
        ("[profiles.mine]\nformat = 'gif'", ["mine", "gif", "format"]),
        ("[limits]\nmax_images = -1", ["edge.toml", "max_images = -1", "limits"]),
        ("[limits]\nmax_images = 'three'", ["edge.toml", "limits.max_images"]),
        ("remote = 'ask'", ["edge.toml", "ask", "remote"]),
        ("remote = 'fetch'", ["edge.toml", "fetch.hosts"]),
        ("remote = 'fetch'\n[fetch]\nhosts = ['*example.com']", ["edge.toml", "hosts", "*example.com"]),
        ("api_keys = ['sk-1', '']", ["edge.toml", "api_keys"]),
        ("api_keys = 'sk-1'", ["edge.toml", "api_keys"]),
        ("uuid = 'keep'", ["edge.toml", "uuid", "keep"]),
        ("[upload]\ntimeout_s = 0", ["edge.toml", "upload"]),
        ("default_profile = 'tiny'", ["edge.toml", "'tiny'", "standard"]),
        ("[[rules]]\nprofile = 'tiny'\nmodel = 'a'", ["edge.toml", "'tiny'"]),
        ("[[rules]]\nprofile = 'standard'", ["edge.toml", "rules", "path, model, header or api_key"]),
        ("[models.a]\nfamily = 'gpt-4'", ["edge.toml", "gpt-4", "models"]),
        ("[models.a]\nfamily = 'qwen2_vl'\nparams = {crops = 4}", ["edge.toml", "crops", "models"]),
        ("[gateway]\nbackend = 'vllm:8000'", ["edge.toml", "vllm:8000", "gateway"]),
        ("profiles = 3", ["edge.toml", "profiles"]),
        ("profiles.standard = 3", ["edge.toml", "profiles"]),
        ("profile_folders = 3", ["edge.toml", "profile_folders"]),
        ("profile_folders = ['none']", ["none"]),
        ("a = = 3", ["edge.toml", "line 1"]),
    ],
)
def test_what_is_wrong_is_said_in_one_line_that_names_it(folder: Path, text: str, words: list[str]) -> None:
    message = refusal(folder, text)
    assert [word for word in words if word not in message] == []
    assert "\n" not in message


def test_a_folder_of_profiles_that_is_a_single_word_is_told_so(folder: Path) -> None:
    written(folder, "max_side = 512", "profiles/mine.toml")
    assert "profile" in refusal(folder, "profile_folders = 'profiles'")


def test_a_file_that_is_not_there_is_a_config_error(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        Settings.load(folder / "none.toml")
    with pytest.raises(ConfigError):
        Settings.load(folder)


def test_a_file_that_is_no_text_is_a_config_error(folder: Path) -> None:
    (folder / "edge.toml").write_bytes(b"\xff\xfe\0")
    with pytest.raises(ConfigError, match=r"edge\.toml"):
        Settings.load(folder / "edge.toml")


# Profiles


def test_a_profile_in_the_file_is_laid_over_the_shipped_one(folder: Path) -> None:
    settings = loaded(folder, "[profiles.standard]\nquality = 50\n[profiles.mine]\nmax_side = 512")
    shipped = shipped_profiles()["standard"]
    assert settings.profiles["standard"] == msgspec.structs.replace(shipped, quality=50)
    assert settings.profiles["mine"] == Profile(max_side=512)
    assert "invoice" in settings.profiles


def test_a_folder_of_profiles_lies_beside_the_settings_file(folder: Path) -> None:
    written(folder, "max_side = 512", "ours/receipts.toml")
    written(folder, "quality = 60", "ours/standard.toml")
    written(folder, "not a profile", "ours/README.md")
    settings = loaded(folder, "profile_folders = ['ours']\ndefault_profile = 'receipts'")
    assert settings.profiles["receipts"] == Profile(max_side=512)
    assert settings.profiles["standard"].quality == 60
    assert settings.profiles["standard"].max_side == shipped_profiles()["standard"].max_side


def test_later_folders_and_the_file_itself_win(folder: Path) -> None:
    written(folder, "quality = 10\nmax_side = 11", "one/mine.toml")
    written(folder, "quality = 20", "two/mine.toml")
    settings = loaded(folder, "profile_folders = ['one', 'two']\n[profiles.mine]\nmax_pixels = 33")
    assert settings.profiles["mine"] == Profile(quality=20, max_side=11, max_pixels=33)


def test_a_wrong_profile_in_a_folder_is_named(folder: Path) -> None:
    written(folder, "quality = 900", "ours/receipts.toml")
    message = refusal(folder, "profile_folders = ['ours']")
    assert "'receipts'" in message
    assert "quality = 900" in message


# Environment


def test_the_environment_names_the_file(folder: Path) -> None:
    file = written(folder, "[limits]\nmax_images = 3")
    assert Settings.from_env({"VLM_EDGE_CONFIG": str(file)}).limits.max_images == 3


def test_a_file_that_the_environment_names_in_vain_is_an_error(folder: Path) -> None:
    with pytest.raises(ConfigError):
        Settings.from_env({"VLM_EDGE_CONFIG": str(folder / "none.toml")})


def test_the_real_environment_is_read_when_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLM_EDGE_CONFIG", str(written(folder, "[limits]\nmax_images = 3")))
    monkeypatch.setenv("VLM_EDGE_WORKERS__THREADS", "5")
    settings = Settings.from_env()
    assert (settings.limits.max_images, settings.workers.threads) == (3, 5)


@pytest.mark.parametrize(
    ("name", "text", "path", "value"),
    [
        ("VLM_EDGE_LIMITS__MAX_IMAGES", "4", "limits.max_images", 4),
        ("VLM_EDGE_LIMITS__MAX_BODY_BYTES", "10_000", "limits.max_body_bytes", 10_000),
        ("VLM_EDGE_GATEWAY__BACKEND", "http://vllm:8000", "gateway.backend", "http://vllm:8000"),
        ("VLM_EDGE_GATEWAY__BACKEND", '"http://vllm:8000"', "gateway.backend", "http://vllm:8000"),
        ("VLM_EDGE_GATEWAY__HOST", "0.0.0.0", "gateway.host", "0.0.0.0"),
        ("VLM_EDGE_GATEWAY__IDLE_TIMEOUT_S", "2.5", "gateway.idle_timeout_s", 2.5),
    ],
)
def test_a_variable_is_laid_over(name: str, text: str, path: str, value: Any) -> None:
    settings: Any = Settings.from_env({name: text})
    for step in path.split("."):
        settings = getattr(settings, step)
    assert settings == value


def test_a_variable_wins_over_the_file(folder: Path) -> None:
    file = written(folder, "[limits]\nmax_images = 3\nmax_image_tokens = 9")
    settings = Settings.from_env({"VLM_EDGE_CONFIG": str(file), "VLM_EDGE_LIMITS__MAX_IMAGES": "4"})
    assert (settings.limits.max_images, settings.limits.max_image_tokens) == (4, 9)


def test_a_variable_may_change_one_field_of_a_profile() -> None:
    settings = Settings.from_env({"VLM_EDGE_PROFILES__STANDARD__QUALITY": "50"})
    assert settings.profiles["standard"] == msgspec.structs.replace(shipped_profiles()["standard"], quality=50)


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("VLM_EDGE_LIMITS__MAX_IMAGS", "4", "max_imags"),
        ("VLM_EDGE_LIMIT__MAX_IMAGES", "4", "limit"),
        ("VLM_EDGE_LIMITS__MAX_IMAGES", "four", "max_images"),
        ("VLM_EDGE_PROFILES__STANDARD__QUALITY", "900", "quality = 900"),
    ],
)
def test_a_wrong_variable_is_an_error_that_names_it(name: str, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Settings.from_env({name: text})


@pytest.mark.parametrize("text", ["limits = 3", "[limits]\nmax_images = 3"])
def test_a_variable_below_a_plain_value_is_a_config_error(folder: Path, text: str) -> None:
    name = "VLM_EDGE_LIMITS__MAX_IMAGES__X" if "[" in text else "VLM_EDGE_LIMITS__MAX_IMAGES"
    with pytest.raises(ConfigError):
        Settings.from_env({"VLM_EDGE_CONFIG": str(written(folder, text)), name: "4"})


def test_other_variables_are_not_ours() -> None:
    assert Settings.from_env({"PATH": "/bin", "VLM_EDGE_CORPUS": "/x", "LIMITS__MAX_IMAGES": "1"}) == Settings()


def test_settings_in_python_are_checked_as_well() -> None:
    with pytest.raises(ValueError, match="tiny"):
        Settings(default_profile="tiny")
    with pytest.raises(ValueError, match="who-knows"):
        Settings(models={"mine": ModelSettings(family="who-knows")})
