from pathlib import Path

import orjson
import pytest

from tests.cli.command import good, told, vlm_edge
from tests.samples import PHONE, chat, data_url, image_part, jpeg, opened, picture_of, sent_picture, text_part


def test_the_picture_is_prepared() -> None:
    run = vlm_edge("prepare", stdin=chat(text_part(), image_part(PHONE.read_bytes())))
    good(run)
    assert opened(sent_picture(run.stdout, part=1)).size == (1008, 756)


def test_every_other_byte_stays_as_it_was() -> None:
    before = b'\r\n{"seed": 16559892803651312311122, "x":1.0, "x":1e400 , "messages":[{"role":"user", "content":[{'
    before += b'"type":"text","text":"\\ud83d Gr\xc3\xbc\xc3\x9fe"}, {"type":"image_url","image_url": {"url":"'
    after = b'", "detail":"high"}, "max_pixels": 7 }]}]\n\n, "y":-0.0}  \n'
    run = vlm_edge("prepare", stdin=before + data_url(jpeg(3000, 2000)).encode() + after)
    good(run)
    assert run.stdout.startswith(before)
    assert run.stdout.endswith(after)
    picture = run.stdout[len(before) : -len(after)]
    assert picture.startswith(b"data:image/jpeg;base64,")
    assert len(picture) < len(data_url(jpeg(3000, 2000)))


def test_a_body_without_pictures_stays_as_it_was() -> None:
    body = '{ "messages":[{"role":"user","content":"Grüße\\r\\n"}],\r\n"seed":1.0}\n'.encode()
    run = vlm_edge("prepare", stdin=body)
    good(run)
    assert run.stdout == body


def test_the_profile_is_an_option() -> None:
    run = vlm_edge("prepare", "--profile", "thumbnail", stdin=chat(image_part(PHONE.read_bytes())))
    assert opened(sent_picture(run.stdout)).size == (448, 336)


def test_the_profile_comes_from_the_settings_file_too(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text('default_profile = "thumbnail"\n')
    run = vlm_edge("prepare", "--config", file, stdin=chat(image_part(PHONE.read_bytes())))
    assert opened(sent_picture(run.stdout)).size == (448, 336)


def test_the_report_says_what_was_done(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    run = vlm_edge("prepare", "--report", file, stdin=chat(image_part(PHONE.read_bytes())))
    report = orjson.loads(file.read_bytes())
    assert (report["profile"], report["tokens"]) == ("standard", 36 * 27)
    [picture] = report["pictures"]
    assert (picture["size_before"], picture["size_after"]) == ([3264, 2448], [1008, 756])
    assert picture["bytes_after"] == len(sent_picture(run.stdout))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ["not JSON"]),
        (b"{", ["not JSON"]),
        (b"[]", ["not a JSON object"]),
        (chat(image_part(b"<html>")), ["messages[0].content[0]", "an HTML page"]),
        (chat(text_part(), image_part(jpeg(90, 90)[:-99])), ["messages[0].content[1]", "cannot be read"]),
        (chat(*[image_part(jpeg(8, 8))] * 21), ["At most 20 image(s)", "21"]),
    ],
)
def test_a_refused_body_is_one_line_and_exit_1(body: bytes, words: list[str]) -> None:
    told(vlm_edge("prepare", stdin=body), 1, *words)


def test_an_unknown_profile_is_a_usage_error() -> None:
    told(vlm_edge("prepare", "--profile", "huge", stdin=chat(image_part(jpeg(8, 8)))), 2, "'huge'", "standard")


def test_an_unknown_path_is_told_with_those_that_are_known() -> None:
    run = vlm_edge("prepare", "--path", "/v1/nothing", stdin=chat())
    assert run.returncode in (1, 2)
    told(run, run.returncode, "/v1/nothing", "/v1/chat/completions")


def test_a_report_that_cannot_be_written_is_one_line() -> None:
    run = vlm_edge("prepare", "--report", "/nowhere/report.json", stdin=chat(image_part(jpeg(8, 8))))
    assert "Traceback" not in run.stderr.decode()
    assert run.returncode in (1, 2)
    assert "/nowhere/report.json" in run.stderr.decode()


# Batch files


def line(custom_id: str, body: bytes, url: str = "/v1/chat/completions") -> bytes:
    return b'{"custom_id": "%s", "method": "POST", "url": "%s", "body": %s}' % (custom_id.encode(), url.encode(), body)


def test_each_line_of_a_batch_file_is_prepared_and_the_rest_of_it_stays() -> None:
    photo = chat(image_part(PHONE.read_bytes()))
    text = line("text", b'{"messages": [{"role": "user", "content": "a"}], "seed": 1.0}')
    scores = b'{"query": "a", "documents": [{"content": [%s]}]}' % orjson.dumps(image_part(jpeg(3000, 2000)))
    run = vlm_edge(
        "prepare", "--batch", stdin=b"\n".join([line("photo", photo), text, b"", line("s", scores, "/rerank")])
    )
    good(run)
    first, second, third, fourth = run.stdout.splitlines()
    assert opened(sent_picture(orjson.dumps(orjson.loads(first)["body"]))).size == (1008, 756)
    assert first.startswith(b'{"custom_id": "photo", "method": "POST", "url": "/v1/chat/completions", "body": {')
    assert (second, third) == (text, b"")
    [document] = orjson.loads(fourth)["body"]["documents"]
    assert opened(picture_of(document["content"][0]["image_url"]["url"])).size == (1008, 672)


def test_lines_that_are_refused_are_listed_and_the_others_done(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    lines = [line("a", chat(image_part(b"<html>"))), line("b", chat(image_part(jpeg(60, 60)))), b"{"]
    run = vlm_edge("prepare", "--batch", "--report", report, stdin=b"\n".join(lines))
    assert run.returncode == 1
    assert run.stdout == lines[1] + b"\n"
    refused = run.stderr.decode().splitlines()
    assert [words.partition(": ")[0] for words in refused] == ["line 1", "line 3"]
    assert "body.messages[0].content[0]" in refused[0]
    reports = [orjson.loads(text) for text in report.read_bytes().splitlines()]
    assert [one.get("code", "done") for one in reports] == ["unsupported_media", "done", "invalid_json"]


def test_a_batch_waits_for_its_workers_however_many_its_pictures_are(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text("[workers]\nthreads = 2\nmax_waiting = 3\n")
    lines = [line(f"{number}", chat(*[image_part(jpeg(60, 60))] * 20)) for number in range(6)]
    run = vlm_edge("prepare", "--batch", "--config", file, stdin=b"\n".join(lines))
    good(run)
    assert run.stdout.splitlines() == lines
