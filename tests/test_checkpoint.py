"""Checkpoints: folders as Hugging Face's tools write them, and what a vLLM holds of one, in whatever version."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vlm_edge.checkpoint import JSON_BYTES, Checkpoint, Loaded, folder_of, loaded, read
from vlm_edge.errors import ConfigError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"model_type": "qwen2_5_vl", "text_config": {"max_position_embeddings": 32_768}}


def write(folder: Path, files: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name).write_bytes(data)
    return folder


# Files


def test_a_checkpoint_is_read_whole(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "config.json": CONFIG,
            "preprocessor_config.json": {"max_pixels": 12_845_056},
            "processor_config.json": {"processor_class": "P"},
            "video_preprocessor_config.json": {"fps": 2},
            "tokenizer.json": b'{"model": {}}',
            "tokenizer_config.json": {"eos_token": "<|im_end|>"},
            "chat_template.jinja": b"{{ messages }}",
        },
    )
    assert read(tmp_path) == Checkpoint(
        folder=str(tmp_path),
        config=CONFIG,
        preprocessor={"max_pixels": 12_845_056},
        processor={"processor_class": "P"},
        video_preprocessor={"fps": 2},
        tokenizer=b'{"model": {}}',
        tokenizer_config={"eos_token": "<|im_end|>"},
        chat_template="{{ messages }}",
    )


def test_files_that_are_missing_are_none(tmp_path: Path) -> None:
    assert read(tmp_path) == Checkpoint(folder=str(tmp_path))


TEMPLATES: list[tuple[str, Any]] = [
    ("chat_template.jinja", b"{{ x }}"),
    ("chat_template.json", {"chat_template": "{{ x }}"}),
    ("processor_config.json", {"chat_template": "{{ x }}"}),
    ("tokenizer_config.json", {"chat_template": "{{ x }}"}),
]
SEVERAL = [{"name": "tool_use", "template": "{{ y }}"}, {"name": "default", "template": "{{ x }}"}]


@pytest.mark.parametrize("place", range(len(TEMPLATES)))
def test_a_chat_template_is_found_in_its_first_place(place: int, tmp_path: Path) -> None:
    others = [(name, b"{{ y }}" if isinstance(one, bytes) else {"chat_template": "{{ y }}"}) for name, one in TEMPLATES]
    write(tmp_path, dict([TEMPLATES[place], *others[place + 1 :]]))
    assert read(tmp_path).chat_template == "{{ x }}"


@pytest.mark.parametrize("several", [SEVERAL, {"tool_use": "{{ y }}", "default": "{{ x }}"}])
def test_of_several_chat_templates_the_one_for_all_uses_is_taken(several: Any, tmp_path: Path) -> None:
    assert read(write(tmp_path, {"tokenizer_config.json": {"chat_template": several}})).chat_template == "{{ x }}"


@pytest.mark.parametrize("other", [SEVERAL[:1], ["x"], {"tool_use": "y"}, 7, None])
def test_without_one_for_all_uses_there_is_no_chat_template(other: Any, tmp_path: Path) -> None:
    assert read(write(tmp_path, {"tokenizer_config.json": {"chat_template": other}})).chat_template is None


def test_numbers_that_only_python_writes_are_read(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf{"time_step_limit": [0.0, Infinity], "model_max_length": 1000000000000000019884624838656}'
    config = read(write(tmp_path, {"config.json": text})).config
    assert config == {
        "time_step_limit": [0.0, float("inf")],
        "model_max_length": 1_000_000_000_000_000_019_884_624_838_656,
    }


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "not valid JSON"),
        (b"", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"x": "\xff"}', "not UTF-8"),
        (b" " * (JSON_BYTES + 1), f"more than {JSON_BYTES} bytes"),
    ],
)
def test_a_wrong_file_is_named_in_one_line(content: bytes, why: str, tmp_path: Path) -> None:
    write(tmp_path, {"preprocessor_config.json": content})
    with pytest.raises(ConfigError) as caught:
        read(tmp_path)
    assert caught.value.message == f"{tmp_path / 'preprocessor_config.json'}: {why}"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ConfigError, match=r"config\.json: not a file"):
        read(tmp_path)


def test_what_is_no_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        read(tmp_path / "nothing")


# Names


def hub(folder: Path, model: str = "models--Qwen--Tiny-VL.2", ref: str | None = COMMIT) -> Path:
    """A cache of Hugging Face's hub with one model; its snapshot."""
    snapshot = write(folder / model / "snapshots" / COMMIT, {"config.json": CONFIG})
    if ref is not None:
        write(folder / model / "refs", {"main": ref.encode()})
    return snapshot


def test_a_path_is_a_folder(tmp_path: Path) -> None:
    assert folder_of(str(tmp_path)) == tmp_path
    file = tmp_path / "config.json"
    file.write_text("{}")
    assert folder_of(str(file)) == tmp_path
    assert folder_of(str(tmp_path / "nothing"), environ={"HF_HOME": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("below", "environ"),
    [
        ("", {"HF_HUB_CACHE": "{}", "HF_HOME": "/nowhere"}),
        ("", {"HUGGINGFACE_HUB_CACHE": "{}"}),
        ("hub", {"HF_HOME": "{}", "XDG_CACHE_HOME": "/nowhere"}),
        ("huggingface/hub", {"XDG_CACHE_HOME": "{}"}),
    ],
)
def test_a_name_is_found_in_the_cache_that_hugging_face_uses(
    below: str, environ: dict[str, str], tmp_path: Path
) -> None:
    snapshot = hub(tmp_path / below)
    variables = {name: value.format(tmp_path) for name, value in environ.items()}
    assert folder_of("Qwen/Tiny-VL.2", environ=variables) == snapshot
    assert folder_of("Qwen/Other", environ=variables) is None


def test_the_cache_of_the_user_is_the_last_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    snapshot = hub(tmp_path / ".cache" / "huggingface" / "hub")
    assert folder_of("Qwen/Tiny-VL.2", environ={}) == snapshot


def test_a_revision_is_a_name_or_a_commit(tmp_path: Path) -> None:
    snapshot, environ = hub(tmp_path), {"HF_HUB_CACHE": str(tmp_path)}
    assert folder_of("Qwen/Tiny-VL.2", COMMIT, environ=environ) == snapshot
    assert folder_of("Qwen/Tiny-VL.2", "v2", environ=environ) is None


def test_an_old_name_has_no_owner(tmp_path: Path) -> None:
    snapshot = hub(tmp_path, "models--gpt2")
    assert folder_of("gpt2", environ={"HF_HUB_CACHE": str(tmp_path)}) == snapshot


@pytest.mark.parametrize("ref", ["../../../..", "..", "", "f" * 40, None])
def test_a_reference_leads_to_no_other_place(ref: str | None, tmp_path: Path) -> None:
    hub(tmp_path / "hub", ref=ref)
    assert folder_of("Qwen/Tiny-VL.2", environ={"HF_HUB_CACHE": str(tmp_path / "hub")}) is None


@pytest.mark.parametrize(
    "name", ["", "a/b/c", "../hub", "a/..", "a b", "a/b\n", "a\0b", "https://host/a", "x" * 5_000, "~nobody/a"]
)
def test_what_is_no_name_is_nowhere(name: str, tmp_path: Path) -> None:
    hub(tmp_path)
    assert folder_of(name, environ={"HF_HUB_CACHE": str(tmp_path)}) is None


@pytest.mark.parametrize(
    "words", [b"version https://git-lfs.github.com/spec/v1\noid sha256:0", b"{}", b'{"model":{"type":', b"[]"]
)
def test_a_tokenizer_that_is_none_is_refused_by_its_name(tmp_path: Path, words: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(words)
    with pytest.raises(ConfigError, match=r"tokenizer\.json: not a tokenizer"):
        read(tmp_path)


# What is loaded


def vllm(**model: Any) -> SimpleNamespace:
    """The state of a vLLM's app, as far as it is read."""
    media = SimpleNamespace(mm_processor_kwargs={"max_pixels": 200_704, "size": {"a": 1}})
    hf_config = SimpleNamespace(to_dict=lambda: {**CONFIG, "dtype": object})
    given = {"model": "/models/tiny", "max_model_len": 4_096, "multimodal_config": media, "hf_config": hf_config}
    config = SimpleNamespace(model_config=SimpleNamespace(**(given | model)))
    return SimpleNamespace(vllm_config=config, args=SimpleNamespace(chat_template=None))


def test_what_a_vllm_has_loaded_is_read_from_its_state() -> None:
    assert loaded(vllm(tokenizer="/models/words", revision=None)) == Loaded(
        model="/models/tiny",
        max_model_len=4_096,
        config={**CONFIG, "dtype": str(object)},
        mm_processor_kwargs={"max_pixels": 200_704, "size": {"a": 1}},
        tokenizer="/models/words",
    )


class Failing:
    def __repr__(self) -> str:
        return "failing"

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize("other", [None, 7, "", SimpleNamespace(), Failing(), SimpleNamespace(model=7)], ids=repr)
def test_other_apps_have_loaded_nothing(other: Any) -> None:
    assert loaded(other) is None
    assert loaded(SimpleNamespace(vllm_config=SimpleNamespace(model_config=other))) is None


@pytest.mark.parametrize(
    "other", [None, 7, "", SimpleNamespace(), Failing(), [Failing()], -1, True, {1: {2}}], ids=repr
)
@pytest.mark.parametrize("name", ["max_model_len", "multimodal_config", "hf_config", "tokenizer"])
def test_another_version_says_less(name: str, other: Any) -> None:
    state = vllm(**{name: other})
    state.args = other
    told = loaded(state)
    assert told
    assert told.model == "/models/tiny"
    assert type(told.max_model_len) is int or told.max_model_len is None


def test_the_folders_of_a_loaded_model_are_those_on_this_machine(tmp_path: Path) -> None:
    words = write(tmp_path / "words", {})
    assert Loaded(model=str(tmp_path), tokenizer=str(words)).tokenizer_folder == words
    assert Loaded(model=str(tmp_path)).tokenizer_folder == Loaded(model=str(tmp_path)).folder == tmp_path


@pytest.mark.parametrize(
    ("arguments", "model", "own"),
    [
        ({}, {}, False),
        ({"chat_template_content_format": "auto"}, {"tokenizer_mode": "hf"}, False),
        ({"chat_template_content_format": "string"}, {}, True),
        ({}, {"tokenizer_mode": "mistral"}, True),
        ({}, {"multimodal_config": SimpleNamespace(interleave_mm_strings=True)}, True),
    ],
)
def test_a_server_tells_whether_it_makes_prompts_in_its_own_way(
    arguments: dict[str, Any], model: dict[str, Any], *, own: bool
) -> None:
    state = vllm(**model)
    state.args = SimpleNamespace(default_chat_template_kwargs={"thinks": True}, **arguments)
    told = loaded(state)
    assert told
    assert (told.own_prompts, told.chat_template_kwargs) == (own, {"thinks": True})
