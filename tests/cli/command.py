"""`vlm-edge` as a user runs it: a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 60.0
COMMAND = (sys.executable, "-m", "vlm_edge")

Run = subprocess.CompletedProcess[bytes]


def environment(**more: str) -> dict[str, str]:
    """The environment without settings of our own, and of the width that a pipe has."""
    unwanted = ("COLUMNS", "FORCE_COLOR")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("VLM_EDGE_") and key not in unwanted}
    return kept | more


def vlm_edge(*arguments: str | Path, stdin: bytes = b"", timeout: float = PATIENCE_S, **env: str) -> Run:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=timeout,
        env=environment(**env),
        check=False,
    )


def told(run: Run, code: int, *words: str) -> None:
    """The run ended with this code and one line on stderr that has these words."""
    stderr = run.stderr.decode()
    assert run.returncode == code, stderr
    [line] = stderr.splitlines()
    assert line.startswith("error: ")
    for word in words:
        assert word in line
    assert run.stdout == b""


def told_usage(run: Run, *words: str) -> None:
    """The run ended with code 2 and Typer's own word on how the command is used."""
    stderr = run.stderr.decode()
    assert run.returncode == 2, stderr
    assert "Traceback" not in stderr
    assert "Usage:" in stderr
    for word in words:
        assert word in stderr


def good(run: Run) -> str:
    """What a run without any fault printed."""
    assert (run.returncode, run.stderr.decode()) == (0, "")
    return run.stdout.decode()
