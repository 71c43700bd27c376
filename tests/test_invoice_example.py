"""The invoice service, over HTTP, before a stand-in backend that answers as it is told."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import httpx
import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.samples import PHONE, QWEN, ROOT, encoded, jpeg, opened, picture, picture_of, png
from tests.servers import PATIENCE_S, connected, free_port, post_head, read_until, served, wait_until
from vlm_edge import Settings
from vlm_edge.tokens import lookup
from vlm_edge.upload import UploadSettings

EXAMPLE = ROOT / "examples" / "invoice_extraction"
README = EXAMPLE / "README.md"
PROFILE = Settings().profiles["invoice"]

INVOICE = {"amount": "1234.50", "currency": "EUR", "issuer": "Müller & Söhne", "date": "2026-01-31"}
NO_JSON = "The total is 1,234.50 EUR."


def answer_with(**fields: object) -> str:
    """What a model answers, with some fields of its own making."""
    return orjson.dumps(INVOICE | fields).decode()


GOOD = answer_with()


@dataclass
class Backend:
    """Gives its answers in turn, over and over. `hold`: before each, and how many came together is seen."""

    answers: list[str]
    status: int = 200
    hold: Callable[[], bool] = lambda: False
    bodies: list[bytes] = field(default_factory=list)
    together: list[int] = field(default_factory=list)
    _inside: int = 0

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self._chat, methods=["POST"])])

    async def _chat(self, request: Request) -> JSONResponse:
        self._inside += 1
        self.together.append(self._inside)
        answer = self.answers[len(self.bodies) % len(self.answers)]
        self.bodies.append(await request.body())
        while self.hold():  # noqa: ASYNC110 - a flag that another thread sets
            await asyncio.sleep(0.005)
        self._inside -= 1
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return JSONResponse(body, self.status)

    def pictures(self, body: int = 0) -> list[bytes]:
        content = orjson.loads(self.bodies[body])["messages"][1]["content"]
        return [picture_of(part["image_url"]["url"]) for part in content if part["type"] == "image_url"]


def common_head(first: bytes, second: bytes) -> bytes:
    return first[: next(index for index, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, imported as from its own folder, and forgotten behind the test."""
    monkeypatch.syspath_prepend(EXAMPLE)
    for name in [name for name in os.environ if name.startswith(("VLM_EDGE_", "INVOICE_"))]:
        monkeypatch.delenv(name)
    import service  # type: ignore[import-not-found, unused-ignore]

    yield service
    for name in ("service", "invoice"):
        sys.modules.pop(name, None)


@contextmanager
def extracting(
    service: ModuleType, backend: Backend, edge: Settings | None = None, **settings: Any
) -> Iterator[httpx.Client]:
    """A client of the service before the backend."""
    with served(backend.app) as port:
        app = service.create_app(service.ServiceSettings(base_url=f"http://127.0.0.1:{port}/v1", **settings), edge)
        with served(app) as ours, httpx.Client(base_url=f"http://127.0.0.1:{ours}", timeout=PATIENCE_S) as client:
            yield client


def extract(service: ModuleType, backend: Backend, file: bytes, **headers: str) -> httpx.Response:
    with extracting(service, backend) as client:
        return client.post("/extract", content=file, headers=headers)


# What goes in


def test_a_photo_of_a_phone_is_read(service: ModuleType) -> None:
    backend = Backend([GOOD])
    answer = extract(service, backend, PHONE.read_bytes())
    assert (answer.status_code, answer.json()) == (200, INVOICE)
    (sent,) = backend.pictures()
    assert opened(sent).format == "JPEG"
    assert max(opened(sent).size) <= PROFILE.max_side + 28  # the grid of the model


def test_a_scan_is_read(service: ModuleType) -> None:
    scan, backend = png(2_480, 3_508, "1"), Backend([GOOD])
    assert extract(service, backend, scan).status_code == 200
    (sent,) = backend.pictures()
    width, height = opened(sent).size
    assert opened(sent).format == "PNG"
    assert width / height == pytest.approx(2_480 / 3_508, rel=0.03)


def test_a_picture_inside_the_profile_is_sent_byte_for_byte(service: ModuleType) -> None:
    small, backend = jpeg(560, 840), Backend([GOOD])
    extract(service, backend, small)
    assert backend.pictures() == [small]


@pytest.mark.parametrize("kind", ["PDF", "TIFF"])
def test_the_pages_of_a_document_are_sent_in_order(kind: str, service: ModuleType) -> None:
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    first, *others = [picture(620, 877) for _ in colours]
    for page, colour in zip((first, *others), colours, strict=True):
        page.paste(colour, (0, 0, *page.size))
    backend = Backend([GOOD])
    answer = extract(service, backend, encoded(first, kind, save_all=True, append_images=others))
    assert answer.status_code == 200
    middles = [opened(sent).convert("RGB").resize((1, 1)).getpixel((0, 0)) for sent in backend.pictures()]
    assert middles == [pytest.approx(colour, abs=12) for colour in colours]


def test_a_document_of_too_many_pages_is_refused(service: ModuleType) -> None:
    first, *others = [picture(100, 140) for _ in range(PROFILE.pages.max + 1)]
    answer = extract(service, Backend([GOOD]), encoded(first, "PDF", save_all=True, append_images=others))
    assert answer.status_code == 400
    assert f"at most {PROFILE.pages.max}" in answer.json()["error"]["message"]


# What the model is asked, and what comes of its answer


def test_the_model_is_asked_for_json_of_the_schema_at_temperature_0(service: ModuleType) -> None:
    backend = Backend([GOOD])
    with extracting(service, backend, model="my-vlm", max_tokens=99) as client:
        client.post("/extract", content=jpeg(560, 840))
    asked = orjson.loads(backend.bodies[0])
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("my-vlm", 0, 99)
    schema = asked["response_format"]["json_schema"]["schema"]
    assert set(schema["required"]) == INVOICE.keys()


def test_every_request_begins_with_the_same_bytes_and_ends_with_the_pictures(service: ModuleType) -> None:
    backend = Backend([GOOD])
    with extracting(service, backend) as client:
        client.post("/extract", content=jpeg(560, 840))
        client.post("/extract", content=png(840, 560))
    first, second = backend.bodies
    head = common_head(first, second)
    assert all(name.encode() in head for name in INVOICE)
    assert head.endswith(b'"data:image/')
    roles = [[part["type"] for part in message["content"]] for message in orjson.loads(first)["messages"][1:]]
    assert roles == [["text", "image_url"]]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (NO_JSON, "not the JSON asked for"),
        ("", "not the JSON asked for"),
        (answer_with(date="31.01.2026"), "missing or wrong: date"),
        (answer_with(amount="1.234,50", currency="€"), "missing or wrong: amount, currency"),
        ('{"amount": "1"}', "missing or wrong: currency, date, issuer"),
    ],
)
def test_the_model_is_asked_again_and_told_what_was_wrong(wrong: str, told: str, service: ModuleType) -> None:
    backend = Backend([wrong, GOOD])
    answer = extract(service, backend, jpeg(560, 840))
    assert (answer.status_code, answer.json()) == (200, INVOICE)
    *_, theirs, note = orjson.loads(backend.bodies[1])["messages"]
    assert theirs == {"role": "assistant", "content": wrong}
    assert note["role"] == "user"
    assert told in note["content"]


def test_the_second_try_begins_like_the_first_its_pictures_included(service: ModuleType) -> None:
    backend = Backend([NO_JSON, GOOD])
    extract(service, backend, jpeg(560, 840))
    first, second = backend.bodies
    pictures_end = first.rindex(b"}]}]")  # of the part, the message and the list
    assert second[:pictures_end] == first[:pictures_end]
    assert backend.pictures(1) == backend.pictures(0)


def test_two_wrong_answers_are_a_502_and_the_model_is_not_asked_a_third_time(service: ModuleType) -> None:
    backend = Backend([NO_JSON, answer_with(amount="many")])
    answer = extract(service, backend, jpeg(560, 840))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "invalid_answer")
    assert error["message"].endswith("missing or wrong: amount")
    assert len(backend.bodies) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("amount", "NaN"),
        ("amount", "1e99"),
        ("amount", "0.12345"),
        ("currency", "eur"),
        ("issuer", " "),
        ("issuer", "x" * 81),
        ("date", "2026-02-30"),
        ("date", 1_767_139_200),
        ("more", 1),
    ],
)
def test_an_answer_of_another_form_is_not_taken(field: str, value: object, service: ModuleType) -> None:
    with pytest.raises(service.InvalidAnswer):
        service.read(answer_with(**{field: value}))


def test_the_answer_keeps_every_digit_of_the_amount(service: ModuleType) -> None:
    backend = Backend([answer_with(amount="-123456789012.10")])
    assert extract(service, backend, jpeg(560, 840)).json()["amount"] == "-123456789012.10"


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
def test_a_backend_that_refuses_is_a_502(status: int, service: ModuleType) -> None:
    backend = Backend([GOOD], status=status)
    answer = extract(service, backend, jpeg(560, 840))
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "backend_unavailable")
    assert f"answered {status}" in answer.json()["error"]["message"]
    assert len(backend.bodies) == 1


def test_a_backend_that_is_not_there_is_a_502(service: ModuleType) -> None:
    settings = service.ServiceSettings(base_url=f"http://127.0.0.1:{free_port()}/v1")
    with served(service.create_app(settings)) as port:
        answer = httpx.post(f"http://127.0.0.1:{port}/extract", content=jpeg(560, 840), timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "backend_unavailable")


def test_a_backend_that_does_not_answer_is_a_504(service: ModuleType) -> None:
    release = Event()
    backend = Backend([GOOD], hold=lambda: not release.is_set())
    with extracting(service, backend, timeout_s=0.2) as client:
        answer = client.post("/extract", content=jpeg(560, 840))
        release.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "backend_timeout")


def test_the_answer_says_what_was_done_and_how_long_each_step_took(service: ModuleType) -> None:
    answer = extract(service, Backend([GOOD]), PHONE.read_bytes())
    (width, height), rule = opened(PHONE.read_bytes()).size, lookup(QWEN)
    assert answer.headers["x-vlm-edge-profile"] == "invoice"
    assert 0 < int(answer.headers["x-vlm-edge-vision-tokens"]) <= PROFILE.max_pixels // 28**2
    assert width * height > PROFILE.max_pixels
    assert rule.cell == 28
    steps = re.findall(r"(\w+);dur=\d+\.\d", answer.headers["server-timing"])
    assert steps == ["upload", "edge", "queue", "model"]


# Bad uploads


@pytest.mark.parametrize(
    ("file", "headers", "code"),
    [
        (b"", {}, "corrupt_media"),
        (b"amount: 3", {}, "unsupported_media"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", {"content-type": "image/png"}, "unsupported_media"),
        (jpeg(900, 900)[:-400], {}, "corrupt_media"),
        (b"--x\r\n\r\n--x--", {"content-type": "multipart/form-data; boundary=x"}, "unsupported_media"),
        (b"no gzip", {"content-encoding": "gzip"}, "invalid_encoding"),
    ],
)
def test_a_bad_upload_is_refused_before_the_model_hears_of_it(
    file: bytes, headers: dict[str, str], code: str, service: ModuleType
) -> None:
    backend = Backend([GOOD])
    answer = extract(service, backend, file, **headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, code)
    assert "messages[" not in error["message"]
    assert not backend.bodies


def test_an_upload_too_large_is_a_413_that_a_client_reads_while_it_uploads(service: ModuleType) -> None:
    backend = Backend([GOOD])
    with extracting(service, backend, max_upload_bytes=100_000) as client:
        answer = client.post("/extract", content=bytes(5_000_000))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert not backend.bodies


def test_an_upload_that_stalls_is_a_408(service: ModuleType) -> None:
    hasty = Settings(upload=UploadSettings(idle_timeout_s=0.2))
    with extracting(service, Backend([GOOD]), hasty) as client, connected(client.base_url.port or 0) as connection:
        connection.sendall(post_head("/extract", "Content-Length: 1000") + b"half")
        assert read_until(connection, b"\r\n").startswith(b"HTTP/1.1 408 ")


# Many at once


def at_once(client: httpx.Client, count: int, pool: ThreadPoolExecutor) -> Any:
    return [pool.submit(client.post, "/extract", content=jpeg(560, 840)) for _ in range(count)]


def test_no_more_than_allowed_are_with_the_model_at_once_and_who_is_too_many_may_come_back(service: ModuleType) -> None:
    release = Event()
    backend = Backend([GOOD], hold=lambda: not release.is_set())
    limits: dict[str, Any] = {"at_once": 2, "max_waiting": 4}
    with extracting(service, backend, **limits) as client, ThreadPoolExecutor(6) as pool:
        inside = at_once(client, 6, pool)
        wait_until(lambda: client.post("/extract", content=b"").status_code == 503)  # 400 while there is a seat
        refused = client.post("/extract", content=jpeg(560, 840))
        wait_until(lambda: len(backend.bodies) == 2)
        release.set()
        assert [one.result().status_code for one in inside] == [200] * 6
        assert client.post("/extract", content=jpeg(560, 840)).status_code == 200
    assert refused.json()["error"]["code"] == "overloaded"
    assert int(refused.headers["retry-after"]) > 0
    assert max(backend.together) == 2


def test_a_seat_is_free_again_after_a_refusal(service: ModuleType) -> None:
    with extracting(service, Backend([NO_JSON]), at_once=1, max_waiting=0) as client:
        answers = [client.post("/extract", content=file) for file in (b"", jpeg(56, 84), b"", jpeg(56, 84))]
    assert [answer.status_code for answer in answers] == [400, 502, 400, 502]


def test_who_left_while_waiting_costs_the_model_nothing(service: ModuleType) -> None:
    release = Event()
    backend = Backend([GOOD], hold=lambda: not release.is_set())
    with extracting(service, backend, at_once=1, max_waiting=1) as client, ThreadPoolExecutor(1) as pool:
        (first,) = at_once(client, 1, pool)
        wait_until(lambda: len(backend.bodies) == 1)
        with connected(client.base_url.port or 0) as leaving:
            file = jpeg(560, 840)
            leaving.sendall(post_head("/extract", f"Content-Length: {len(file)}") + file)
            wait_until(lambda: client.post("/extract", content=b"").status_code == 503)  # it has the last seat
        release.set()
        assert first.result().status_code == 200
        wait_until(lambda: client.post("/extract", content=b"").status_code == 400)  # it has gone
    assert len(backend.bodies) == 1


# The settings, the documents and the scripts


def test_settings_come_from_the_environment_and_a_wrong_one_is_an_error(service: ModuleType) -> None:
    environ = {"INVOICE_AT_ONCE": "3", "INVOICE_MODEL": "my-vlm", "INVOICE_API_KEY": "secret"}
    settings = service.ServiceSettings.from_env(environ)
    assert (settings.at_once, settings.model) == (3, "my-vlm")
    assert settings.api_key.get_secret_value() == "secret"
    assert "secret" not in repr(settings)
    with pytest.raises(ValueError, match="at_once"):
        service.ServiceSettings.from_env({"INVOICE_AT_ONCE": "none"})


def test_the_readme_tells_every_setting_with_its_default(service: ModuleType) -> None:
    text = README.read_text("utf-8")
    told = dict(re.findall(r"^\| `(INVOICE_\w+)` \| `([^`]*)`", text, re.MULTILINE))
    fields = service.ServiceSettings.model_fields.items()
    defaults = {f"INVOICE_{name.upper()}": field.default for name, field in fields}
    assert told.keys() == defaults.keys()
    assert service.ServiceSettings.from_env(told) == service.ServiceSettings()


STUB = f"#!{sys.executable}\nimport sys\nprint(chr(0).join(sys.argv[1:]))\n"


def vllm_options(folder: Path) -> dict[str, str]:
    """What the script hands to vLLM."""
    stub = folder / "vllm"
    stub.write_text(STUB)
    stub.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    command = [f"{EXAMPLE}/serve_vllm.sh", "my/model", "--port", "8001"]
    done = subprocess.run(command, env={**os.environ, "PATH": path}, check=True, capture_output=True, text=True)
    serve, model, *options = done.stdout.removesuffix("\n").split("\0")
    assert (serve, model) == ("serve", "my/model")
    options.remove("--enable-prefix-caching")
    return dict(zip(options[::2], options[1::2], strict=True))


def test_vllm_is_started_for_what_the_profile_lets_through(service: ModuleType, tmp_path: Path) -> None:
    options, settings = vllm_options(tmp_path), service.ServiceSettings()
    assert options["--port"] == "8001"
    assert int(options["--limit-mm-per-prompt.image"]) == PROFILE.pages.max
    assert int(options["--mm-processor-kwargs.max_pixels"]) == PROFILE.max_pixels
    assert int(options["--max-num-seqs"]) == settings.at_once
    rule = lookup(settings.model)
    page = PROFILE.max_pixels // rule.cell**2 + rule.template_tokens
    text = len(orjson.dumps(service.question("")))  # a byte is a token at most
    room = int(options["--max-model-len"]) - PROFILE.pages.max * page - 2 * settings.max_tokens
    assert text // 3 < room < 2_048  # English has four letters a token


def test_the_readme_shows_the_options_of_the_script(tmp_path: Path) -> None:
    shown, options = README.read_text("utf-8"), vllm_options(tmp_path)
    assert [option for option, value in options.items() if f"    {option} {value}" not in shown] == ["--port"]


def test_the_load_run_reads_every_invoice_and_prints_what_the_edge_adds(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(jpeg(900, 1_200))
    (tmp_path / "scan.png").write_bytes(png(900, 1_200, "1"))
    command = [sys.executable, f"{EXAMPLE}/load.py", f"{tmp_path}", "--count", "5", "--clients", "5", "--model-s", "0"]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("VLM_EDGE_", "INVOICE_"))}
    environ = {**ours, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 of 5 invoices read" in done.stdout
    assert len(re.findall(r"^edge +\d+\.\d +\d+\.\d +\d+\.\d +\d+\.\d$", done.stdout, re.MULTILINE)) == 1


def test_real_invoices_are_sent_at_sizes_of_the_profile(service: ModuleType, corpus: Path) -> None:
    backend = Backend([GOOD])
    names = ["sroie_receipt_010.jpg", "receipt_phone_photo_blurred_parts.jpg", "invoice_fictitious_palette.png"]
    with extracting(service, backend) as client:
        files = [(corpus / "documents" / name).read_bytes() for name in names]
        answers = [client.post("/extract", content=file) for file in files]
    assert [answer.status_code for answer in answers] == [200] * 3
    sizes = [opened(backend.pictures(body)[0]).size for body in range(3)]
    assert all(width * height <= PROFILE.max_pixels for width, height in sizes)
