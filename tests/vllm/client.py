"""Client: requests as a user would send them, and what vLLM says of itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.samples import CHAT_PATH, chat, text_part
from tests.vllm.service import MODEL

Part = dict[str, Any]  # of a message: `tests.samples.image_part`

JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """The answer to a chat request."""

    response: httpx.Response

    @property
    def usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = self.response.json()["usage"]
        return usage

    @property
    def text(self) -> str:
        text: str = self.response.json()["choices"][0]["message"]["content"]
        return text

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.response.json()["error"]
        return error

    @property
    def announced_tokens(self) -> int:
        """What the edge says the pictures cost. No integer where it is an estimate, which no test here expects."""
        return int(self.response.headers["x-vlm-edge-vision-tokens"])

    @property
    def multimodal_tokens(self) -> dict[str, int]:
        tokens: dict[str, int] = self.usage["prompt_tokens_details"]["multimodal_tokens"]
        return tokens


def asking(*pictures: Part, text: str = "What is this?", **fields: Any) -> bytes:
    """The body of a request about pictures, with more fields where they are wanted."""
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 4, "temperature": 0} | fields
    return chat(text_part(text), *pictures, **asked)


@dataclass(frozen=True)
class Client:
    http: httpx.Client

    def post(self, body: bytes, **headers: str) -> Answer:
        return Answer(self.http.post(CHAT_PATH, content=body, headers=JSON | headers))

    def ask(self, *pictures: Part, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
        answer = self.post(asking(*pictures, **fields), **headers or {})
        assert answer.response.status_code == 200, answer.response.text
        return answer

    @contextmanager
    def stream(self, *pictures: Part, timeout_s: float = 60, **fields: Any) -> Iterator[httpx.Response]:
        body = asking(*pictures, **fields)
        with self.http.stream("POST", CHAT_PATH, content=body, headers=JSON, timeout=timeout_s) as response:
            yield response

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric that there is once with these labels."""
        samples = [sample for sample in self._samples() if sample.name == name]
        (value,) = [sample.value for sample in samples if labels.items() <= sample.labels.items()]
        return value

    def counters(self) -> dict[str, float]:
        """All that vLLM counts of its work, and the chat requests that came as far as its API."""
        return {
            f"{sample.name}{sample.labels}": sample.value
            for sample in self._samples()
            if (sample.name.startswith("vllm:") and sample.name.endswith("_total"))
            or (sample.name == "http_requests_total" and sample.labels["handler"] == CHAT_PATH)
        }

    def _samples(self) -> Iterator[Sample]:
        for family in text_string_to_metric_families(self.http.get("/metrics").text):
            yield from family.samples
