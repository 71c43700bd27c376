"""Endpoints: the table path → dialect."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from vlm_edge.errors import EdgeError
from vlm_edge.requests import anthropic, cohere, openai, pooling, responses, vllm
from vlm_edge.requests.body import Path, Raw
from vlm_edge.requests.part import Edit, MediaPart, find_url

Find = Callable[[dict[str, Any]], Iterator[MediaPart]]


_OPEN, _CLOSE = b"{}"


class Dialect(msgspec.Struct, frozen=True):
    """How one kind of request carries media and names its model, and wants its errors.

    nested: whether its media, but for embedded prompts, stand in lists within lists.
    """

    find: Find
    error_body: Callable[[EdgeError], dict[str, Any]] = openai.error_body
    nested: bool = False
    model: Callable[[dict[str, Any]], Any] = lambda body: body.get("model")
    error_event: bytes = b""  # the line before an error in a stream

    def holds_none(self, raw: Raw) -> bool:
        """Whether a body has too few lists to hold media, which is seen at a glance; most requests are text.

        False where it takes parsing to know, and for what does not look like an object with a list in it: embedded
        prompts need no second list, and a glance cannot tell what an escape spells. One character is found in a
        fortieth of the time of two.
        """
        if not self.nested or not isinstance(raw, bytes):
            return False
        at = raw.find(b"[")
        return (
            at >= 0
            and raw.find(b"[", at + 1) < 0
            and raw[0] == _OPEN
            and raw[-1] == _CLOSE
            and (raw.find(b"_") < 0 or raw.find(b"_embeds") < 0)
            and (raw.find(b"\\") < 0 or raw.find(b"\\u") < 0)
        )


def find_any(body: dict[str, Any]) -> Iterator[MediaPart]:
    """POST /invocations: any kind of request. vLLM takes the first whose schema fits; their keys do not meet."""
    seen: set[Path] = set()
    for find in (openai.find_chat, pooling.find_embeddings, openai.find_completion, pooling.find_scores):
        for part in find(body):
            if part.part not in seen:
                seen.add(part.part)
                yield part


def find_line(line: dict[str, Any]) -> Iterator[MediaPart]:
    """A line of a `vllm run-batch` file: `url` tells the kind of the request in `body`."""
    url, body = line.get("url"), line.get("body")
    if isinstance(url, str) and isinstance(body, dict) and (find := _find_of_line(url)):
        for part in find(body):
            yield _inside(part, "body")


def _find_of_line(url: str) -> Find | None:
    """As vLLM chooses (entrypoints/launchers/run_batch.py)."""
    if url.endswith(("/score", "/rerank")):
        return pooling.find_scores
    if url in SOUND_PATHS:
        return find_sound
    return ENDPOINTS[url].find if url in ENDPOINTS and url != BATCH_LINE else None


def find_sound(body: dict[str, Any]) -> Iterator[MediaPart]:
    """A line about a sound; over HTTP it comes as a form."""
    return find_url(body.get("file_url"), ("file_url",), "audio")


def _inside(part: MediaPart, key: str) -> MediaPart:
    return msgspec.structs.replace(
        part,
        part=(key, *part.part),
        source=(key, *part.source),
        media_type=part.media_type and (key, *part.media_type),
        plain=tuple(Edit((key, *edit.path), edit.text, edit.side) for edit in part.plain),
    )


def _model_of_line(line: dict[str, Any]) -> Any:
    body = line.get("body")
    return body.get("model") if isinstance(body, dict) else None


CHAT_PATH = "/v1/chat/completions"
BATCH_LINE = "run-batch"  # no path of HTTP: the lines of a file
SOUND_PATHS = frozenset({"/v1/audio/transcriptions", "/v1/audio/translations"})

# Where a path that is mounted below another begins.
ENDPOINT_STARTS = ("/v1/", "/v2/", "/cohere/", "/inference/")

CHAT = Dialect(openai.find_chat, nested=True)  # messages, content
RESPONSES = Dialect(responses.find, nested=True)  # input, content or output
MESSAGES = Dialect(anthropic.find, anthropic.error_body, nested=True, error_event=b"event: error\n")
COHERE = Dialect(cohere.find_chat, cohere.chat_error_body, nested=True)  # messages, content
COMPLETIONS = Dialect(openai.find_completion)
EMBEDDINGS = Dialect(pooling.find_embeddings)
SCORES = Dialect(pooling.find_scores)

ENDPOINTS: dict[str, Dialect] = {
    CHAT_PATH: CHAT,
    "/v1/chat/completions/render": CHAT,
    "/v1/chat/completions/batch": Dialect(openai.find_batch, nested=True),
    "/v1/responses": RESPONSES,
    "/v1/responses/render": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": MESSAGES,
    "/v1/messages/render": MESSAGES,
    "/v1/completions": COMPLETIONS,
    "/v1/completions/render": COMPLETIONS,
    "/v1/embeddings": EMBEDDINGS,
    "/pooling": EMBEDDINGS,
    "/classify": EMBEDDINGS,
    "/score": SCORES,
    "/v1/score": SCORES,
    "/rerank": SCORES,
    "/v1/rerank": SCORES,
    "/v2/rerank": SCORES,
    "/tokenize": CHAT,
    "/v2/embed": Dialect(cohere.find_embed),
    "/cohere/v2/chat": COHERE,
    "/cohere/v2/chat/render": COHERE,
    "/v1/systemone": Dialect(vllm.find_decisions),
    "/inference/v1/generate": Dialect(vllm.find_generate),
    "/invocations": Dialect(find_any),
    BATCH_LINE: Dialect(find_line, model=_model_of_line),
}
