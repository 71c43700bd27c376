import signal
import subprocess
from pathlib import Path

import pytest

import vlm_edge as package
from tests.cli.command import COMMAND, PATIENCE_S, environment, good, told, told_usage, vlm_edge
from tests.samples import QWEN, chat, image_part, jpeg

COMMANDS = "demo serve prepare resize tokens families profiles check".split()


def test_the_version_is_the_packages() -> None:
    assert good(vlm_edge("--version")).strip() == package.__version__


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command(flag: str) -> None:
    text = good(vlm_edge(flag))
    for command in COMMANDS:
        assert f" {command} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    assert f"{command} [OPTIONS]" in good(vlm_edge(command, "--help"))


def test_without_a_command_it_explains_itself() -> None:
    run = vlm_edge()
    assert run.returncode in (0, 2)
    assert "Usage:" in (run.stdout + run.stderr).decode()


def test_an_unknown_command_or_option_is_a_usage_error() -> None:
    told_usage(vlm_edge("shrink"), "shrink")
    told_usage(vlm_edge("profiles", "--colour"), "--colour")


@pytest.mark.parametrize(
    "arguments", [["prepare"], ["profiles"], ["tokens", QWEN, "1x1"], ["serve"], ["resize", "/", "/nowhere"]]
)
def test_a_settings_file_that_is_missing_ends_every_command(arguments: list[str]) -> None:
    told(vlm_edge(*arguments, "--config", "/nowhere/edge.toml"), 2, "/nowhere/edge.toml", "No such file")


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text("[profiles.tiny]\nmax_side = 64\n")
    assert "tiny" in good(vlm_edge("profiles", VLM_EDGE_CONFIG=str(file)))


def test_one_value_of_the_environment_lies_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text("[limits]\nmax_images = 5\n")
    body = chat(image_part(jpeg(8, 8)))
    good(vlm_edge("prepare", stdin=body, VLM_EDGE_CONFIG=str(file)))
    run = vlm_edge("prepare", stdin=body, VLM_EDGE_CONFIG=str(file), VLM_EDGE_LIMITS__MAX_IMAGES="0")
    told(run, 1, "At most 0 image")


def test_a_wrong_value_of_the_environment_is_named() -> None:
    told(vlm_edge("profiles", VLM_EDGE_LIMITS__MAX_IMAGES="many"), 2, "limits.max_images")
    told(vlm_edge("profiles", VLM_EDGE_LIMITS__MAX_IMAGEZ="1"), 2, "max_imagez")


def test_a_reader_that_leaves_early_is_no_fault(tmp_path: Path) -> None:
    """As in `vlm-edge prepare < request.json | head -c 1`."""
    body = tmp_path / "request.json"
    body.write_bytes(chat(image_part(jpeg(900, 900, quality=100))))
    with body.open("rb") as stdin:
        run = subprocess.Popen(
            [*COMMAND, "prepare"],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        with run:
            assert run.stdout is not None
            assert run.stderr is not None
            run.stdout.close()
            stderr = run.stderr.read()
            assert run.wait(PATIENCE_S) in (0, 1, -signal.SIGPIPE)
    assert stderr == b""
