"""Every shape is read twice: what the edge finds in it is what a real vLLM, asked without the edge, sees in it."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.samples import CHAT_PATH
from tests.vllm.client import JSON
from tests.vllm.environment import Environment
from tests.vllm.service import alone
from tests.vllm.shapes import (
    ENCODINGS,
    MEDIA,
    SHAPES,
    Scale,
    Server,
    Shape,
    asked,
    image,
    media_of,
    message,
    payload_of,
)
from vlm_edge import Edge, Settings
from vlm_edge.decision import Found, find
from vlm_edge.errors import EdgeError
from vlm_edge.requests.endpoints import ENDPOINTS
from vlm_edge.requests.part import MediaPart

LIMITS = ("--limit-mm-per-prompt.image", "8", "--limit-mm-per-prompt.video", "2")
OPTIONS: dict[Server, tuple[str, ...]] = {
    "chat": ("--enable-scale-out", *LIMITS),
    "pooling": ("--runner", "pooling", "--convert", "embed", *LIMITS),
}

# A body of this size has its payloads cut out before it is parsed.
PADDING = b" " * 20_000

# What vLLM says when it has seen a medium that it does not take.
COMPLAINTS = {
    r"At most 0 audio": "audio",
    r"to input `image_embeds`": "image",
    r"to input `audio_embeds`": "audio",
    r"to input `video_embeds`": "video",
    r"to input `prompt_embeds`": "prompt_embeds",
    r"prompt_embeds content part requires": "prompt_embeds",
    r"multi_modal_data\['image'\]\[0\] is empty": "image",
    r"Cache miss for image": "image",
}

UTF_8 = "JSON is UTF-8 (RFC 8259): the edge refuses the encodings that Python's parser knows besides"
PROMPT = "vLLM reads it where prompts may come embedded, and here they may not"
PAIRS = "vLLM takes the first pair of keys that fits; the edge prepares what stands under any of them"
DOCUMENT = "vLLM drops a document in the answer of a tool without a word; the edge makes pictures of it"
EMBEDDED = '{"type": "prompt_embeds", "data": "AAAA"}'

# Shapes that the edge reads otherwise than vLLM: it finds more, or refuses.
DIFFERENCES: dict[str, str] = {
    "chat /v1/chat/completions billing header": "vLLM drops such a text of the system, and all that is in its part",
    **{f"chat /v1/chat/completions {encoding}": UTF_8 for encoding in ENCODINGS},
    f"chat /v1/chat/completions reasoning {EMBEDDED}": PROMPT,
    f"chat /v1/chat/completions reasoning_content {EMBEDDED}": PROMPT,
    f"chat /invocations reasoning {EMBEDDED}": PROMPT,
    "chat /v1/messages a document in a result": DOCUMENT,
    "pooling /score queries documents items": PAIRS,
    "pooling /score queries items documents": PAIRS,
    "pooling /score data_1 data_2 documents": PAIRS,
    "pooling /score all": PAIRS,
    "pooling /v1/score queries items documents": PAIRS,
    "pooling /invocations queries documents items": PAIRS,
    "pooling /invocations all": PAIRS,
}


@dataclass(frozen=True)
class Verdict:
    """What vLLM sees in a shape: names of MEDIA, or None where it refuses, and then its words."""

    seen: list[str] | None
    error: str = ""

    @property
    def complaints(self) -> set[str]:
        return {modality for pattern, modality in COMPLAINTS.items() if re.search(pattern, self.error)}


@dataclass
class Witness:
    """vLLM's own server. It is asked once about a body at both scales."""

    http: httpx.Client
    verdicts: dict[tuple[str, bytes], Verdict] = field(default_factory=dict)

    def sees(self, path: str, small: bytes, large: bytes) -> Verdict:
        if (path, small) not in self.verdicts:
            self.verdicts[path, small] = self._ask(path, small, large)
        return self.verdicts[path, small]

    def _ask(self, path: str, *bodies: bytes) -> Verdict:
        tokens = []
        for body in bodies:
            answer = self.http.post(path, content=body, headers=JSON)
            if not answer.is_success:
                return Verdict(None, answer.text)
            tokens.append(prompt_tokens(answer.json()))
        return Verdict(media_of(tokens[1] - tokens[0]))


def prompt_tokens(answer: Any) -> int:
    """As the endpoints tell it, each in its way."""
    if isinstance(answer, list):
        return sum(map(prompt_tokens, answer))
    answer |= answer.get("usage") or {}
    answer |= answer.get("meta", {}).get("billed_units", {})
    for key in ("prompt_tokens", "input_tokens", "count"):
        if key in answer:
            return int(answer[key]) + int(answer.get("image_tokens") or 0)
    return len(answer["token_ids"])


@dataclass
class Servers:
    """A server of each kind, started when the first asks for it."""

    environment: Environment
    folder: Path
    running: ExitStack
    witnesses: dict[Server, Witness] = field(default_factory=dict)

    def witness(self, server: Server) -> Witness:
        if server not in self.witnesses:
            self.witnesses[server] = Witness(self._start(server))
        return self.witnesses[server]

    def _start(self, server: Server) -> httpx.Client:
        service = self.running.enter_context(alone(self.environment, self.folder / f"{server}.log", *OPTIONS[server]))
        # vLLM closes the connection behind a 500 without saying so.
        limits = httpx.Limits(max_keepalive_connections=0)
        return self.running.enter_context(httpx.Client(base_url=service.url, timeout=60, limits=limits))


@pytest.fixture(scope="module")
def servers(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as running:
        yield Servers(environment, tmp_path_factory.mktemp("vllm"), running)


@pytest.fixture(scope="module")
def open_edge() -> Iterator[Edge]:
    """An edge that lets pass what is a matter of policy."""
    edge = Edge(Settings(remote="pass", uuid="pass", embeds="pass"))
    yield edge
    edge.close()


@pytest.fixture(scope="module")
def plain_edge() -> Iterator[Edge]:
    edge = Edge()
    yield edge
    edge.close()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.id)
def test_the_edge_finds_what_vllm_sees(shape: Shape, servers: Servers, open_edge: Edge) -> None:
    verdict = servers.witness(shape.server).sees(shape.path, shape.body(1), shape.body(2))
    disagreement = disagreement_on(shape, verdict, open_edge)
    if shape.id in DIFFERENCES:
        assert disagreement, "the edge and vLLM agree by now"
    else:
        assert disagreement is None


@pytest.mark.parametrize("server", OPTIONS)
def test_vllm_sees_in_what_is_sent_on_what_it_saw_in_what_came(
    server: Server, servers: Servers, plain_edge: Edge
) -> None:
    """Of the bodies that a policy or a repair changes."""
    witness, came, sent = servers.witness(server), {}, {}
    for shape in [shape for shape in SHAPES if shape.server == server and shape.id not in DIFFERENCES]:
        bodies = shape.body(1), shape.body(2)
        changed = [prepared(plain_edge, shape.path, body) for body in bodies]
        if changed[0] is None or changed[1] is None or changed[0] == bodies[0]:
            continue
        verdict = witness.sees(shape.path, *bodies)
        if verdict.seen is not None:
            came[shape.id], sent[shape.id] = verdict, witness.sees(shape.path, changed[0], changed[1])
    assert came
    assert sent == came


def test_a_picture_that_vllm_has_kept_is_found(servers: Servers) -> None:
    first = Shape("chat", CHAT_PATH, "kept", json.dumps(asked(message(image(0, uuid="<uuid>")))))
    again = first._replace(template=json.dumps(asked(message({"image_url": None, "uuid": "<uuid>"}))))
    for shape in (first, again):
        assert servers.witness("chat").sees(shape.path, shape.body(1), shape.body(2)).seen == ["image 0"]
    found = find(again.path, again.body(1))
    assert found
    assert [(part.modality, part.url) for part in found.parts] == [("image", None)]


def disagreement_on(shape: Shape, verdict: Verdict, edge: Edge) -> str | None:
    """Where vLLM refuses, the edge need not, but must have seen the media that vLLM complains of."""
    body = shape.body(1)
    if verdict.seen is None:
        missed = verdict.complaints - modalities_in(shape.path, body)
        return f"vLLM has seen {missed}: {verdict.error}" if missed else None
    try:
        found, cut = media_in(shape.path, body), media_in(shape.path, body + PADDING)
        edge.prepare(shape.path, body)
    except EdgeError as error:
        return f"the edge refuses ({error.code}), and vLLM sees {verdict.seen}"
    if found != cut:
        return f"the edge finds {found}, and {cut} once the payloads are cut out"
    if found and ENDPOINTS[shape.path].holds_none(body):
        return f"the edge finds {found}, but at a glance nothing"
    return None if found == verdict.seen else f"the edge finds {found}, and vLLM sees {verdict.seen}"


def media_in(path: str, body: bytes, scale: Scale = 1) -> list[str]:
    """The names of the media that the edge finds."""
    found = find(path, body)
    return sorted(name_of(found, part, scale) for part in found.parts) if found else []


def name_of(found: Found, part: MediaPart, scale: Scale) -> str:
    """Which medium of MEDIA it is by what stands in its place, where the edge would write another."""
    if part.url is None:
        return f"{part.modality} without data"
    place = found.body.places([part.source])[part.source]
    text = json.loads(bytes(found.body.raw[place.start : place.stop]).decode("utf-8", "surrogatepass"))
    named = [medium for medium in MEDIA if payload_of(medium, scale) in text]
    return named[0] if named else f"{part.modality} of other data"


def modalities_in(path: str, body: bytes) -> set[str]:
    try:
        found = find(path, body)
    except EdgeError:
        return set(COMPLAINTS.values())  # refused, so nothing has passed unseen
    return set(Counter(part.modality for part in found.parts)) if found else set()


def prepared(edge: Edge, path: str, body: bytes) -> bytes | None:
    try:
        return bytes(edge.prepare(path, body).body)
    except EdgeError:
        return None
