"""The wheel in an environment of its own: what a user gets who has neither our checkout nor our tools."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import orjson
import pytest

import vlm_edge
from tests.samples import CHAT_PATH, PHONE, ROOT, chat, image_part

LIBRARY = """
import sys
from pathlib import Path

import vlm_edge

assert "site-packages" in vlm_edge.__file__, vlm_edge.__file__
data = Path(sys.argv[1]).read_bytes()
picture = vlm_edge.Edge().picture(data, profile="document", model="Qwen/Qwen2.5-VL-7B-Instruct")
print(*picture.size, picture.media_type, picture.tokens, ",".join(sorted(vlm_edge.Settings().profiles)))
"""

MIDDLEWARE = """
import asyncio, sys
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from vlm_edge import EdgeMiddleware


async def answer(request: Request) -> JSONResponse:
    report = request.scope["vlm_edge.report"]
    return JSONResponse({"length": len(await request.body()), "tokens": report.tokens})


async def main(path: str, body: bytes) -> None:
    app = Starlette(routes=[Route(path, answer, methods=["POST"])])
    app.add_middleware(EdgeMiddleware)
    sent = []

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    headers = [(b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    print(sent[1]["body"].decode())


asyncio.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes()))
"""


class Installed:
    """A new environment with the wheel in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        venv.create(folder / "venv", with_pip=True)
        self.wheel = built(folder / "wheel")
        self.install()

    def install(self, extra: str = "") -> None:
        wanted = f"vlm-edge{extra} @ {self.wheel.as_uri()}"
        done = self.run("python", "-m", "pip", "install", "--quiet", wanted)
        assert done.returncode == 0, done.stderr

    def run(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run far from the checkout, so that nothing of it is found by accident."""
        outside = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VLM_EDGE_CONFIG")}
        return subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.folder,
            env=outside,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def python(self, code: str, *arguments: str | Path) -> str:
        done = self.run("python", "-W", "error", "-c", code, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def built(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = folder.glob("vlm_edge-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_package_and_its_profiles_and_nothing_else(installed: Installed) -> None:
    with ZipFile(installed.wheel) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0] for name in names} == {"vlm_edge", f"vlm_edge-{vlm_edge.__version__}.dist-info"}
    assert "vlm_edge/py.typed" in names
    shipped = {file.name for file in (ROOT / "profiles").glob("*.toml")}
    assert {name.rpartition("/")[2] for name in names if name.startswith("vlm_edge/profiles/")} == shipped


def test_the_library_works_and_finds_its_profiles(installed: Installed) -> None:
    width, height, media_type, tokens, profiles = installed.python(LIBRARY, PHONE).split()
    assert (width, height, media_type, tokens) == ("2044", "1540", "image/jpeg", f"{73 * 55}")
    assert profiles.split(",") == sorted(file.stem for file in (ROOT / "profiles").glob("*.toml"))


def test_importing_it_imports_nothing_heavy(installed: Installed) -> None:
    loaded = installed.python("import sys, vlm_edge; print(*sys.modules)").split()
    assert not {"PIL", "cv2", "numpy", "pyvips", "starlette", "msgspec"} & set(loaded)


def test_the_middleware_mounts_in_a_bare_starlette_app(installed: Installed) -> None:
    body = installed.folder / "request.json"
    body.write_bytes(chat(image_part(PHONE.read_bytes())))
    answer = orjson.loads(installed.python(MIDDLEWARE, CHAT_PATH, body))
    assert answer["tokens"] == 36 * 27
    assert answer["length"] < body.stat().st_size


def test_every_public_name_is_there(installed: Installed) -> None:
    names = "Edge EdgeError EdgeMiddleware Profile Settings Size tokens".split()
    assert installed.python(f"from vlm_edge import {', '.join(names)}; print('good')") == "good"


def test_without_the_extra_the_command_names_it_in_one_line(installed: Installed) -> None:
    done = installed.run("vlm-edge", "profiles")
    assert done.returncode != 0
    [line] = done.stderr.splitlines()
    assert "pip install 'vlm-edge[cli]'" in line


def test_without_the_extra_the_command_ends_as_for_any_missing_extra(installed: Installed) -> None:
    assert installed.run("vlm-edge", "profiles").returncode == 2


def test_the_extras_bring_what_they_promise(installed: Installed) -> None:
    """With `cli` the command runs and names the next extra; so this comes last."""
    installed.install("[cli]")
    assert "thumb" in installed.run("vlm-edge", "profiles").stdout
    for command in ("serve", "demo"):
        done = installed.run("vlm-edge", command)
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert "pip install 'vlm-edge[gateway]'" in line
