"""
Backend: what the server behind the gateway says of its models, asked beside the requests and never held against them.

Whatever goes wrong on the way is no answer, and for a while not asked again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Any, TypeVar

import aiohttp
import msgspec
import orjson

from vlm_edge.gateway.upstream import KEEP_ALIVE_S

# The tokens themselves stand in the answer of /tokenize, eight bytes or so each.
ANSWER_BYTES = 16 * 1024 * 1024


# Answers by which a server says that it counts for nobody, or not for us.
_REFUSED = frozenset({401, 403, 404, 405})

# Prompts that are counted at once; and how many in a row may take too long before it is left alone for a while.
COUNTED_AT_ONCE = 4
MAX_SLOW = 3
_SLOW = 408  # as if it had said so itself


class _Model(msgspec.Struct, frozen=True):
    """An adapter has the context of its parent."""

    id: str
    max_model_len: int | None = None
    parent: str | None = None


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...]

    def lengths(self) -> dict[str, int | None]:
        own = {model.id: model.max_model_len for model in self.data}
        return {model.id: model.max_model_len or own.get(model.parent or "") for model in self.data}


class _Count(msgspec.Struct, frozen=True):
    count: int


_Answer = TypeVar("_Answer", _Models, _Count)
_JSON = {"Content-Type": "application/json"}


class Backend:
    """One server. `open` before the first question, in the running loop; `close` at the end. Not for other loops.

    api_key: of the server (`vllm serve --api-key`), for these questions. models_ttl_s: how long its list of models is
    believed. retry_s: how long it is not asked again after it failed. timeout_s: the most that a request waits for an
    answer. max_counts: prompts whose counts are kept.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str = "",
        models_ttl_s: float = 60.0,
        retry_s: float = 10.0,
        timeout_s: float = 1.0,
        max_counts: int = 4_096,
    ) -> None:
        self.url = url.rstrip("/")
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.models_ttl_s, self.retry_s, self.timeout_s = models_ttl_s, retry_s, timeout_s
        self.max_counts = max_counts
        self._session: aiohttp.ClientSession | None = None
        self._models: dict[str, int | None] = {}
        self._models_until = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._no_counts_until = 0.0
        self._slow = 0
        self._counting = asyncio.Semaphore(COUNTED_AT_ONCE)

    async def open(self) -> None:
        timeout, cookies = aiohttp.ClientTimeout(total=self.timeout_s), aiohttp.DummyCookieJar()
        connector = aiohttp.TCPConnector(keepalive_timeout=KEEP_ALIVE_S)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self.headers, cookie_jar=cookies
        )

    async def close(self) -> None:
        if self._asking:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        if self._session:
            await self._session.close()

    async def models(self) -> Mapping[str, int | None]:
        """Served names and the longest prompt and answer of each; those last known where the server does not say.

        Only a first caller waits: later ones get the old list while a new one is asked for.
        """
        if _now() >= self._models_until and not self._asking:
            self._asking = asyncio.create_task(self._ask_models())
            self._asking.add_done_callback(self._asked)
        if self._asking and not self._models:
            await asyncio.wait([self._asking])
        return self._models

    async def count(self, model: str, messages: Sequence[Any], extra: Mapping[str, Any] | None = None) -> int | None:
        """Tokens of a chat's whole prompt as the server itself counts them, pictures included; None where it does not.

        extra: more fields of the request: tools, chat_template_kwargs, add_generation_prompt.
        """
        try:
            body = orjson.dumps({**(extra or {}), "model": model, "messages": messages})
        except TypeError:  # text that is no Unicode, or numbers beyond 64 bits
            return None
        key = sha256(body).digest()
        if key in self._counts:
            self._counts.move_to_end(key)
            return self._counts[key]
        return await self._ask_count(model, key, body) if _now() >= self._no_counts_until else None

    def _asked(self, _: object) -> None:
        self._asking = None

    async def _ask_models(self) -> None:
        answer = await self._ask("GET", "/v1/models", _Models)
        if isinstance(answer, _Models):
            self._models = answer.lengths()
        wait_s = self.models_ttl_s if isinstance(answer, _Models) else self.retry_s
        self._models_until = _now() + wait_s

    async def _ask_count(self, model: str, key: bytes, body: bytes) -> int | None:
        try:
            await asyncio.wait_for(self._counting.acquire(), self.timeout_s)
        except TimeoutError:
            return None
        try:
            answer = await self._ask("POST", "/tokenize", _Count, body)
        finally:
            self._counting.release()
        self._slow = self._slow + 1 if answer == _SLOW else 0
        if isinstance(answer, _Count):
            self._counts[key] = answer.count
            if len(self._counts) > self.max_counts:
                self._counts.popitem(last=False)
            return answer.count
        # Any other refusal is about one prompt, or about the name of a model that clients make up.
        if answer is None or self._slow >= MAX_SLOW or (answer in _REFUSED and model in await self.models()):
            self._no_counts_until = _now() + self.retry_s
        return None

    async def _ask(
        self, method: str, path: str, kind: type[_Answer], body: bytes | None = None
    ) -> _Answer | int | None:
        """The answer, or the status of one that is none, or nothing at all."""
        assert self._session, "open() comes first"
        headers = {} if body is None else _JSON
        try:
            asked = self._session.request(method, self.url + path, data=body, headers=headers, allow_redirects=False)
            async with asked as response:
                if response.status != HTTPStatus.OK:
                    return response.status
                return msgspec.json.decode(await _read(response), type=kind)
        except TimeoutError:
            return _SLOW
        except (aiohttp.ClientError, OSError, msgspec.DecodeError, ValueError):
            return None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The whole of it. Raises ValueError for more than any server has to say."""
    read = bytearray()
    async for piece in response.content.iter_any():
        read += piece
        if len(read) > ANSWER_BYTES:
            raise ValueError("too long an answer")
    return bytes(read)


def _now() -> float:
    return asyncio.get_running_loop().time()
