"""
The bug log, continued: reports about the counting of tokens, and about budgets. A test is named by the id of its
report and says in its first line what went wrong there.
"""

import base64
from typing import Any

import orjson
import pytest

from tests.samples import CHAT_PATH, PHONE, QWEN, chat, data_url, image_part, jpeg, opened, png, sent_picture, text_part
from vlm_edge import Edge, Settings, Size
from vlm_edge.budget import BudgetSettings
from vlm_edge.errors import EdgeError, VisionBudgetExceeded
from vlm_edge.pictures import Limits
from vlm_edge.report import Report
from vlm_edge.tokens import lookup

QWEN3 = "Qwen/Qwen3-VL-8B-Instruct"


def report(body: bytes, path: str = CHAT_PATH, edge: Edge | None = None, profile: str = "standard") -> Report:
    made = (edge or Edge()).prepare(path, body, {"X-VLM-Edge-Profile": profile}).report
    assert made is not None
    return made


@pytest.mark.parametrize(("model", "cell"), [(QWEN, 28), (QWEN3, 32)])
@pytest.mark.parametrize("detail", ["auto", "low", "high", None])
def test_b25_a_picture_is_counted_by_its_pixels_as_sent(model: str, cell: int, detail: str | None) -> None:
    """Every picture of `detail: auto` was 85 tokens, a thirty-second of what it cost."""
    part = image_part(jpeg(1_920, 1_080))
    part["image_url"] |= {"detail": detail} if detail else {}
    prepared = Edge().prepare(CHAT_PATH, chat(part, model=model))
    width, height = opened(sent_picture(bytes(prepared.body))).size
    assert prepared.report is not None
    assert prepared.report.tokens == width * height // cell**2 > 400


def test_b26_no_spelling_of_a_picture_goes_uncounted() -> None:
    """The counter raised on `{"type": "image"}`, and the check of the context was skipped without a word."""
    data = png(280, 280)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    messages = [{"role": "user", "content": [{"type": "image", "source": source}, text_part()]}]
    body = orjson.dumps({"model": QWEN, "max_tokens": 8, "messages": messages})
    assert report(body, "/v1/messages").tokens == 100
    with pytest.raises(VisionBudgetExceeded):
        Edge(Settings(budget=BudgetSettings(max_model_len=100))).prepare("/v1/messages", body)


def test_b28_a_picture_costs_the_same_in_every_spelling() -> None:
    """`input_image` was counted by its characters, `image_url` not at all."""
    url = data_url(jpeg(1_000, 700))
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"image_url": url},
    ]
    assert {report(chat(part, model=QWEN)).tokens for part in parts} == {36 * 25}


def test_b30_text_beside_a_picture_counts_too() -> None:
    """A text part cost nothing when a picture was there."""
    body = chat(text_part("word " * 400), image_part(jpeg(280, 280)), model=QWEN)
    short = chat(text_part("word"), image_part(jpeg(280, 280)), model=QWEN)
    longer, shorter = report(body).text_tokens, report(short).text_tokens
    assert longer is not None
    assert shorter is not None
    assert longer - shorter == 5 * 400 - 4  # of which a vocabulary of bytes makes as many tokens


def test_b31_each_family_has_its_own_grid_and_an_unknown_one_is_called_so() -> None:
    """Qwen3-VL's budget was computed with the cells of Qwen2-VL."""
    size = Size(1_120, 896)
    assert (lookup(QWEN).image(size), lookup(QWEN3).image(size)) == (40 * 32, 35 * 28)
    assert report(chat(image_part(jpeg(280, 280)), model="who-knows")).certainty == "estimate"


def test_b33_a_picture_is_inside_its_profile_whatever_the_server_makes_of_the_request() -> None:
    """`max_pixels` was an argument that the server ignored."""
    part = {**image_part(PHONE.read_bytes()), "max_pixels": 200_704}
    prepared = Edge().prepare(CHAT_PATH, chat(part, model=QWEN))
    width, height = opened(sent_picture(bytes(prepared.body))).size
    assert width * height <= 1_048_576
    assert orjson.loads(bytes(prepared.body))["messages"][0]["content"][0]["max_pixels"] == 200_704  # is kept


def test_b34_the_sum_is_refused_though_each_picture_is_allowed() -> None:
    """Twelve pictures were sent on, and the server failed in the midst of its work."""
    edge = Edge(Settings(limits=Limits(max_image_tokens=1_000, max_request_tokens=10_000)))
    with pytest.raises(VisionBudgetExceeded) as caught:
        edge.prepare(CHAT_PATH, chat(*[image_part(PHONE.read_bytes())] * 12, model=QWEN))
    assert (caught.value.found, caught.value.allowed) == (12 * 972, 10_000)
    assert "biggest: 972 at messages[0].content[" in caught.value.message


@pytest.mark.parametrize("number", [1, 6])
def test_b35_pictures_over_the_budget_are_made_smaller_and_refused_only_at_their_least(number: int) -> None:
    """A photo over the budget was refused where a smaller one would have done."""
    body = chat(*[image_part(png(5_000, 4_000), "image/png")] * number, model=QWEN)

    def fitted(allowed: int) -> Report:
        limits = Limits(max_request_tokens=allowed)
        return report(body, edge=Edge(Settings(budget=BudgetSettings(on_exceed="fit"), limits=limits)))

    made = fitted(number * 400)
    assert made.tokens <= number * 400
    assert len({one.size_after for one in made.pictures}) == 1  # divided over all of them
    with pytest.raises(EdgeError, match="vision tokens"):
        fitted(number * 200)
