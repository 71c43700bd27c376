"""
Fetch: remote pictures, by http and https, from hosts that the settings name, at addresses that were checked.

What is checked is what is used. A URL is read once, strictly; a name is resolved once a request, and the connection
goes to the addresses of that answer, so a name that answers differently a moment later gains nothing. A redirect is a
new URL and is checked as one; it may lead from https to http where the host there is allowed, as http is accepted to
begin with.

Nothing of the client's goes along, and no cookie, credential or proxy of ours. The certificates that are trusted are
OpenSSL's own; the variable SSL_CERT_FILE names others.
"""

import asyncio
import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urljoin

import msgspec

from vlm_edge.errors import MediaTooLarge, MissingExtra, RemoteMediaFailed, RemoteMediaRefused, naming

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from aiohttp.abc import AbstractResolver, ResolveResult
    from yarl import URL

MAX_TOTAL_BYTES = 64 * 1024 * 1024
AT_ONCE = 8
USUAL_PORTS = {"http": 80, "https": 443}
MAX_PORT = 65_535
MAX_URL = 8_192  # characters; about what web servers take
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close", "User-Agent": "vlm-edge"}

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,15}")
_URL = re.compile(r"[^:/?#]+://(?P<authority>[^/?#]*)(?P<target>[^#]*)(?:#.*)?")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^][:@%\s]{1,253})(?::(?P<port>[0-9]{1,5}))?")

# What ends in a number is an address to resolvers, however it is written: 127.1, 0x7f000001, 2130706433.
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)*(?!(?:[0-9]+|0x[0-9a-f]*)\Z){_LABEL}")

# What stays in a URL as it is written; its signature may cover it.
_KEPT = "%/?:@!$&'()*+,;=-._~[]|"

# IANA's special-purpose registries, multicast, and the address at which Azure answers its own machines.
_NOT_PUBLIC_V4 = [
    *map(IPv4Network, "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12".split()),
    *map(IPv4Network, "192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15".split()),
    *map(IPv4Network, "198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 168.63.129.16/32".split()),
]
_PUBLIC_V6 = IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = [*map(IPv6Network, "2001::/23 2001:db8::/32 3fff::/20".split())]
_SIX_TO_FOUR = IPv6Network("2002::/16")
_NAT64 = IPv6Network("64:ff9b::/96")


class FetchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which remote pictures are fetched.

    hosts: names and addresses that may be asked, in ASCII; none: nothing is fetched. `*.example.com` is every name
    below example.com, `*` every host. The port is the scheme's own, 80 or 443, or that of an entry that names it:
    `example.com:8080`, `[2001:db8::1]:8080`. private_addresses: whether a host may have addresses that are not public
    (loopback, private, link-local and the like). timeout_s: for the whole of one picture, redirects included.
    max_redirects: followed for one picture.
    """

    hosts: tuple[str, ...] = ()
    private_addresses: bool = False
    timeout_s: float = 10.0
    max_redirects: int = 3

    def __post_init__(self) -> None:
        for text in self.hosts:
            try:
                _Allowed.read(text)
            except ValueError:
                raise ValueError(
                    f"hosts: {text!r}: must be *, a host or *.host in ASCII, with or without :port"
                ) from None
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s = {self.timeout_s}: must be above 0")
        if self.max_redirects < 0:
            raise ValueError(f"max_redirects = {self.max_redirects}: must not be negative")


class Fetcher:
    """For any event loop: each call of `fetch` opens its own connections and closes them."""

    def __init__(self, settings: FetchSettings) -> None:
        self.settings = settings
        self._allowed = [_Allowed.read(text) for text in settings.hosts]

    async def fetch(
        self, urls: Sequence[str], max_bytes: int, places: Sequence[str], max_total_bytes: int = MAX_TOTAL_BYTES
    ) -> list[bytes]:
        """The files at these URLs, in order, of at most `max_bytes` each. All or none: the first error ends it.

        Together they may have `max_total_bytes`.

        Raises RemoteMediaRefused, RemoteMediaFailed and MediaTooLarge, which name the place, and MissingExtra.
        """
        need_extra()
        targets = [self._checked(url, place) for url, place in zip(urls, places, strict=True)]
        turns, purse = asyncio.Semaphore(AT_ONCE), _Purse(max_total_bytes)
        async with _session(self.settings) as session:

            async def one(url: "URL", place: str) -> bytes:
                with naming(place):
                    async with turns:
                        return await self._picture(session, url, max_bytes, purse)

            tasks = [asyncio.create_task(one(url, place)) for url, place in zip(targets, places, strict=True)]
            try:
                return await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _checked(self, url: str, place: str) -> "URL":
        with naming(place):
            return self._target(url, "a URL")

    async def _picture(self, session: "ClientSession", url: "URL", max_bytes: int, purse: "_Purse") -> bytes:
        from aiohttp import ClientError

        try:
            async with asyncio.timeout(self.settings.timeout_s):
                return await self._follow(session, url, max_bytes, purse)
        except TimeoutError:
            raise RemoteMediaFailed(f"it did not arrive within {self.settings.timeout_s:g} s") from None
        except (ClientError, OSError) as error:
            raise RemoteMediaFailed(_why(error)) from None

    async def _follow(self, session: "ClientSession", url: "URL", max_bytes: int, purse: "_Purse") -> bytes:
        for _ in range(self.settings.max_redirects + 1):
            async with session.get(url, allow_redirects=False) as response:
                if response.status not in REDIRECTS or "Location" not in response.headers:
                    return await _file(response, max_bytes, purse)
                url = self._target(_joined(url, response.headers["Location"]), "a redirect to a URL")
        raise RemoteMediaFailed(f"it was redirected more than {self.settings.max_redirects} times")

    def _target(self, text: str, what: str) -> "URL":
        """The URL that a text is, if it may be asked. Raises RemoteMediaRefused."""
        scheme, colon, _ = text.lower().partition(":")
        if scheme not in USUAL_PORTS or not colon:
            raise RemoteMediaRefused(
                f"{what} of scheme {scheme!r}" if colon and _SCHEME.fullmatch(scheme) else "no URL"
            )
        try:
            host, port, target = _read(text)
        except ValueError:
            raise RemoteMediaRefused(f"{what} with a user name, or that cannot be read") from None
        self._check_host(host, port or USUAL_PORTS[scheme], USUAL_PORTS[scheme], what)
        return _url(scheme, host, port, target)

    def _check_host(self, host: str, port: int, usual_port: int, what: str) -> None:
        if not any(allowed.meets(host, port, usual_port) for allowed in self._allowed):
            raise RemoteMediaRefused(f"{what} whose host or port is not allowed")
        if not _NAME.fullmatch(host):  # for an address, aiohttp asks no resolver
            _check_address(host.strip("[]"), self.settings)


class _Purse:
    """The bytes that the pictures of one request may have together."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.found = 0

    def take(self, found: int) -> None:
        self.found += found
        _check_bytes(self.found, self.allowed, "bytes with those fetched before it")


class _Allowed(NamedTuple):
    """An entry of `hosts`; host "" is every host."""

    host: str = ""
    port: int | None = None
    below: bool = False

    @classmethod
    def read(cls, text: str) -> "_Allowed":
        """Raises ValueError."""
        if not text.isascii():
            raise ValueError("not in ASCII")
        return cls() if text == "*" else cls(*_authority(text.removeprefix("*.")), below=text.startswith("*."))

    def meets(self, host: str, port: int, usual_port: int) -> bool:
        if port != (self.port or usual_port):
            return False
        return not self.host or (host.endswith(f".{self.host}") if self.below else host == self.host)


def _joined(url: "URL", location: str) -> str:
    """Where a redirect leads. What cannot be joined is given back, and cannot be read either."""
    try:
        return urljoin(str(url), location) if _is_plain(location) else f"{url.scheme}:"
    except ValueError:
        return f"{url.scheme}:"


def _read(text: str) -> tuple[str, int | None, str]:
    """Host, port and target of a URL. Raises ValueError for what another reader might read otherwise."""
    parts = _URL.fullmatch(text) if _is_plain(text) else None
    if not parts:
        raise ValueError("no URL")
    return *_authority(parts["authority"]), parts["target"]


def _is_plain(text: str) -> bool:
    """Whether it holds nothing that some readers strip, skip or fold."""
    return len(text) <= MAX_URL and text.isprintable() and "\\" not in text


def _authority(text: str) -> tuple[str, int | None]:
    """The host, in its one form, and the port if there is one. Raises ValueError."""
    parts = _AUTHORITY.fullmatch(text)
    if not parts:
        raise ValueError("no host and port")
    port = int(parts["port"]) if parts["port"] else None
    if port is not None and not 1 <= port <= MAX_PORT:
        raise ValueError("no port")
    return _host(parts["host"]), port


def _host(text: str) -> str:
    """A name in lower case and ASCII, or an address as it is commonly written. Raises ValueError."""
    if text.startswith("["):
        return f"[{IPv6Address(text[1:-1])}]"
    name = text.lower() if text.isascii() else _in_ascii(text)
    return name if _NAME.fullmatch(name) else str(IPv4Address(name))


def _in_ascii(name: str) -> str:
    """By IDNA. Raises ValueError."""
    from yarl import URL

    return URL.build(scheme="http", host=name).raw_host or ""


def _url(scheme: str, host: str, port: int | None, target: str) -> "URL":
    from yarl import URL

    path = quote(target if target.startswith("/") else f"/{target}", safe=_KEPT)
    return URL(f"{scheme}://{host}{f':{port}' if port else ''}{path}", encoded=True)


def is_public(text: str) -> bool:
    """Whether an address can be anybody's on the internet, and carries none that cannot."""
    address = ip_address(text)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    if address in _NAT64:
        return is_public(str(IPv4Address(int(address) & 0xFFFF_FFFF)))
    if address in _SIX_TO_FOUR:
        return is_public(str(IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)))
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def _check_address(address: str, settings: FetchSettings) -> None:
    if not (settings.private_addresses or is_public(address)):
        raise RemoteMediaRefused("a URL whose host has an address that is not public")


def need_extra() -> None:
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise MissingExtra("fetching remote pictures", "gateway") from error


def _session(settings: FetchSettings) -> "ClientSession":
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=_resolver(settings), use_dns_cache=False, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None),  # `_picture` has the clock
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers=HEADERS,
    )


def _resolver(settings: FetchSettings) -> "AbstractResolver":
    """The system's own. aiohttp asks it once a connection and connects to what it says."""
    from aiohttp import ThreadedResolver

    class Checked(ThreadedResolver):
        async def resolve(self, host: str, port: int = 0, family: Any = 0) -> "list[ResolveResult]":
            found = await super().resolve(host, port, family)
            for one in found:
                _check_address(one["host"], settings)
            if not found:
                raise OSError("no address")
            return found

    return Checked()


async def _file(response: "ClientResponse", max_bytes: int, purse: _Purse) -> bytes:
    if response.status != 200:
        raise RemoteMediaFailed(f"its host answered {response.status}")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise RemoteMediaFailed("its host sent it compressed")
    _check_bytes(response.content_length or 0, max_bytes)
    pieces, found = [], 0
    async for piece in response.content.iter_any():
        found += len(piece)
        _check_bytes(found, max_bytes)
        purse.take(len(piece))
        pieces.append(piece)
    return b"".join(pieces)


def _check_bytes(found: int, allowed: int, unit: str = "bytes") -> None:
    if found > allowed:
        raise MediaTooLarge(unit, found, allowed)


def _why(error: Exception) -> str:
    import aiohttp

    whys: dict[type[Exception], str] = {
        aiohttp.ClientConnectorDNSError: "its host is not known",
        aiohttp.ClientConnectorCertificateError: "the certificate of its host is not trusted",
        aiohttp.ClientSSLError: "its host speaks no TLS that we do",
        aiohttp.ClientConnectorError: "its host cannot be reached",
        aiohttp.ClientPayloadError: "its host broke off its answer",
        aiohttp.ClientConnectionError: "its host closed the connection",
    }
    return next((why for kind, why in whys.items() if isinstance(error, kind)), "its host did not answer in HTTP")
