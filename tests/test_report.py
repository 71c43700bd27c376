import re

import msgspec
import pytest

from tests.samples import CHAT_PATH, QWEN, chat, image_part, jpeg, png, text_part
from vlm_edge.budget import Room
from vlm_edge.drift import Expected
from vlm_edge.edge import Edge
from vlm_edge.geometry import Size
from vlm_edge.media.probe import Probe
from vlm_edge.media.profile import Pages, Profile
from vlm_edge.medium import Encoded
from vlm_edge.pictures import Limits, Subject
from vlm_edge.plan import Certainty, Model, Plan, plan
from vlm_edge.report import PictureReport, Report
from vlm_edge.tokens import FAMILIES

RULE = FAMILIES["qwen2_5_vl"].rule
PROFILE = Profile(max_side=1_024, format="jpeg")


def a_plan(*sizes: tuple[int, int]) -> Plan:
    probes = [Probe(media_type="image/png", size=Size(*size), file_bytes=5_000, srgb=True) for size in sizes]
    places = [f"messages[0].content[{number}]" for number in range(len(probes))]
    subjects = [Subject(place, [probe]) for place, probe in zip(places, probes, strict=True)]
    return plan(subjects, PROFILE, Model(QWEN, "qwen2_5_vl", RULE), Limits())


def a_report(
    *sizes: tuple[int, int], certainty: Certainty = "exact", passed: int = 0, room: Room | None = None
) -> Report:
    made = a_plan(*sizes)
    model = Model(QWEN, "qwen2_5_vl", RULE, certainty)
    sent = [Encoded(None, one.media_types[0], 1_000) for one in made.pictures]
    return Report.of("standard", model, made, room, sent, bytes_before=9, bytes_after=5, passed=passed)


def headers(report: Report) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in report.headers()}


def test_a_picture_is_reported_before_and_after() -> None:
    assert a_report((4_032, 3_024)).pictures == [
        PictureReport(
            place="messages[0].content[0]",
            action="resized",
            media_type_before="image/png",
            media_type_after="image/jpeg",
            size_before=Size(4_032, 3_024),
            size_after=Size(1_008, 756),
            content_after=Size(1_008, 756),
            bytes_before=5_000,
            bytes_after=1_000,
            tokens_before=15_552,
            tokens_after=972,
        )
    ]


def test_a_kept_picture_keeps_its_type() -> None:
    (one,) = a_report((640, 480)).pictures
    assert (one.action, one.media_type_before, one.media_type_after) == ("kept", "image/png", "image/png")


def test_a_report_sums_its_pictures_up() -> None:
    report = a_report((280, 280), (560, 560))
    assert report.tokens == 100 + 400
    assert (report.profile, report.model, report.family, report.exact) == ("standard", QWEN, "qwen2_5_vl", True)
    assert (report.bytes_before, report.bytes_after) == (9, 5)


@pytest.mark.parametrize(
    ("before", "scale"),
    [
        ((4_032, 3_024), "0.2500"),
        ((3_024, 4_032), "0.2500"),
        ((640, 480), "1.0000"),
        ((1_440, 900), "0.7000x0.6844"),  # 1008x616
    ],
)
def test_the_scale_turns_coordinates_back(before: tuple[int, int], scale: str) -> None:  # B43
    assert a_report(before).pictures[0].scale == scale


def test_the_headers_say_what_was_done() -> None:
    found = headers(a_report((4_032, 3_024), (640, 480), (280, 280)))
    assert found["x-vlm-edge-profile"] == "standard"
    assert found["x-vlm-edge-media"] == "images=3; resized=1, kept=2"
    assert found["x-vlm-edge-vision-tokens"] == str(972 + 391 + 100)
    assert found["x-vlm-edge-scale"] == "0.2500, 1.0000, 1.0000"
    assert re.fullmatch(r"decide;dur=\d+\.\d, prepare;dur=\d+\.\d", found["server-timing"])


def test_the_scale_is_that_of_the_picture_and_not_of_its_margin() -> None:
    (one,) = a_report((2_000, 20)).pictures
    assert (one.size_after, one.content_after) == ((1_008, 28), (1_008, 11))
    assert one.scale == "0.5040x0.5500"


def a_report_of_pages(pages: int, most: int) -> Report:
    profile = Profile(pages=Pages(max=most, over="first"))
    probes = [
        Probe(media_type="image/tiff", size=Size(280, 280), file_bytes=5_000, pages=pages, page=page)
        for page in range(min(pages, most))
    ]
    model = Model(QWEN, "qwen2_5_vl", RULE)
    made = plan([Subject("messages[0].content[0]", probes)], profile, model, Limits())
    sent = [Encoded(None, "image/jpeg", 1_000)] * len(probes)
    return Report.of("document", model, made, None, sent, bytes_before=9, bytes_after=5)


def test_each_page_is_reported_by_its_number() -> None:
    pages = a_report_of_pages(3, 8).pictures
    assert [(one.page, one.pages, one.place) for one in pages] == [(n, 3, "messages[0].content[0]") for n in (1, 2, 3)]


def test_pages_left_out_are_told() -> None:
    assert headers(a_report_of_pages(5, 2))["x-vlm-edge-media"] == "images=2; converted=2, left_out=3"


def test_a_page_that_was_prepared_before_is_told_from_its_first_size() -> None:
    """To the second instance the pages of the first one's document are parts of their own."""
    first = a_report_of_pages(2, 8)
    second = a_report((280, 280), (280, 280)).following(first)
    assert [(one.page, one.media_type_before) for one in second.pictures] == [(1, "image/tiff"), (2, "image/tiff")]


def test_a_margin_of_the_first_instance_is_none_of_the_picture_in_the_second() -> None:
    """The second shrinks a canvas, 1008x28, of which the picture takes 1008x11."""
    first = a_report((2_000, 20))
    small = msgspec.structs.replace(PROFILE, max_side=504)
    probe = Probe(media_type="image/jpeg", size=Size(1_008, 28), file_bytes=900, srgb=True)
    made = plan([Subject("messages[0].content[0]", [probe])], small, Model(QWEN, "qwen2_5_vl", RULE), Limits())
    sent = [Encoded(None, "image/jpeg", 500)]
    second = Report.of("small", Model(QWEN, "qwen2_5_vl", RULE), made, None, sent, bytes_before=9, bytes_after=5)
    (one,) = second.following(first).pictures
    assert one.size_before == (2_000, 20)
    assert one.content_after == (504, 6)


def test_pages_are_told_apart_when_old_pictures_were_dropped() -> None:
    first = a_report_of_pages(3, 8)
    second = msgspec.structs.replace(a_report((280, 280), (280, 280)), dropped=1).following(first)
    assert [one.page for one in second.pictures] == [2, 3]
    other = a_report((280, 280), (280, 280)).following(first)  # of which nobody can say which pages they are
    assert [one.page for one in other.pictures] == [1, 1]


def test_the_bytes_of_a_document_count_once() -> None:
    assert [one.bytes_before for one in a_report_of_pages(3, 8).pictures] == [5_000, 0, 0]


@pytest.mark.parametrize("certainty", ["estimate", "at most"])
def test_what_is_not_exact_is_called_so(certainty: Certainty) -> None:
    assert headers(a_report((280, 280), certainty=certainty))["x-vlm-edge-vision-tokens"] == f"100; {certainty}"


def test_an_exact_prompt_is_expected_of_its_server() -> None:
    expected = a_report((280, 280), room=Room(4_096, 50, 50, 256)).expected
    assert expected == Expected(vision_tokens=100, text_tokens=50, text_at_most=50)
    assert expected.exact


def test_of_an_upper_bound_of_text_nothing_is_sure() -> None:
    expected = a_report((280, 280), room=Room(4_096, 2, 50, 256)).expected
    assert expected == Expected(vision_tokens=100, text_tokens=0, text_at_most=50)


def test_nothing_is_expected_where_something_was_not_counted() -> None:
    room = Room(4_096, 50, 50, 256)
    assert a_report((280, 280)).expected is None
    assert a_report((280, 280), room=room, passed=1).expected is None
    assert a_report((280, 280), room=room, certainty="estimate").expected is None


def test_what_went_on_unseen_is_told() -> None:
    assert headers(a_report((280, 280), passed=2))["x-vlm-edge-media"] == "images=1; kept=1, passed=2"


def test_a_header_is_one_line_of_latin_1() -> None:
    report = msgspec.structs.replace(a_report((280, 280)), profile="façade 名")
    assert headers(report)["x-vlm-edge-profile"] == "façade ?"


def test_a_report_of_a_request_holds_its_bytes_and_no_base64() -> None:
    body = chat(text_part("a secret question"), image_part(jpeg(2_000, 1_000)), image_part(png(300, 200), "image/png"))
    prepared = Edge().prepare(CHAT_PATH, body)
    assert prepared.report is not None
    assert (prepared.report.bytes_before, prepared.report.bytes_after) == (len(body), len(prepared.body))
    text = msgspec.json.encode(prepared.report).decode()
    assert not re.search(r"[A-Za-z0-9+/]{65}", text)
    assert "secret" not in text
