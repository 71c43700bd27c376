"""Access: who may make the edge work. Inside vLLM the edge runs before vLLM's own key check."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from hmac import compare_digest

from starlette.types import Scope

from vlm_edge.errors import Unauthorized

# Whether a request may come in.
Check = Callable[[Scope], Awaitable[bool]]

# What probes and scrapers ask for bears no key.
OPEN_PATHS = frozenset({"/health", "/ping", "/metrics"})


def check_of(keys: Sequence[str]) -> Check | None:
    """The check for these keys; none where there are none."""
    return bears_key(keys) if keys else None


async def let_in(check: Check | None, scope: Scope) -> None:
    """Raises Unauthorized for a request that may not come in. CORS preflights, probes and scrapes always may."""
    if check and scope["type"] in ("http", "websocket") and not _open(scope) and not await check(scope):
        raise Unauthorized


def _open(scope: Scope) -> bool:
    method: str = scope.get("method", "")  # a websocket has none
    return method == "OPTIONS" or (method in ("GET", "HEAD") and scope["path"] in OPEN_PATHS)


def bears_key(keys: Sequence[str]) -> Check:
    """A check for one of these keys, as a bearer token or, as Anthropic's clients send it, in X-API-Key."""
    known = [key.encode() for key in keys]

    async def check(scope: Scope) -> bool:
        return any(compare_digest(one, key) for one in _keys(scope) for key in known)

    return check


def _keys(scope: Scope) -> Iterator[bytes]:
    for name, value in scope["headers"]:
        scheme, _, token = value.strip().partition(b" ")
        if name.lower() == b"authorization" and scheme.lower() == b"bearer":
            yield token.strip()
        elif name.lower() == b"x-api-key":
            yield value.strip()
