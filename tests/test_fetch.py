"""
Remote pictures, from real servers on this machine.

Only the system's two doors to the internet are made up: names resolve to what a test says, and a connection to a public
address ends at a server here.
"""

import asyncio
import gzip
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tests.samples import PHONE, ROOT
from tests.servers import PATIENCE_S, Recorder, free_port, raw_backend, read_request, read_until, served
from vlm_edge.errors import EdgeError, MediaTooLarge, MissingExtra, RemoteMediaFailed, RemoteMediaRefused
from vlm_edge.fetch import Fetcher, FetchSettings, is_public

MAX_BYTES = 4_000_000
PUBLIC, PUBLIC_V6 = "93.184.215.14", "2606:4700:4700::1111"
OK = b"HTTP/1.1 200 OK\r\n"
PLACE = "messages[0].content[1]"


def fetched(*urls: str, max_bytes: int = MAX_BYTES, **settings: Any) -> list[bytes]:
    """What a fetcher brings, by default from any host that has a public address."""
    defaults: dict[str, Any] = {"hosts": ("*",), "timeout_s": PATIENCE_S}
    fetcher = Fetcher(FetchSettings(**defaults | settings))
    return asyncio.run(fetcher.fetch(urls, max_bytes, [f"place {at}" for at, _ in enumerate(urls)]))


def fetched_here(port: int, path: str = "/", max_bytes: int = MAX_BYTES, **settings: Any) -> bytes:
    """What it brings from a port of this machine, which is allowed."""
    allowed: dict[str, Any] = {"hosts": (f"127.0.0.1:{port}",), "private_addresses": True}
    return fetched(f"http://127.0.0.1:{port}{path}", max_bytes=max_bytes, **allowed | settings)[0]


def failed_here(port: int, path: str = "/", **settings: Any) -> str:
    with pytest.raises(RemoteMediaFailed) as caught:
        fetched_here(port, path, **settings)
    return caught.value.message


def answering(*pieces: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        read_request(connection)
        for piece in pieces:
            connection.sendall(piece)

    return answer


def never_ending(piece: bytes, head: bytes = OK + b"\r\n") -> Callable[[socket.socket], None]:
    """Sends until the other side has had enough."""

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return answer


def silent(head: bytes = b"") -> Callable[[socket.socket], None]:
    """Says no more than this until the other side leaves."""

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(head)
        connection.recv(1)

    return answer


class Internet:
    """answers: of a name, one after the other, the last for good. port: of the server where public addresses end."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.port = 0
        self.asked: list[str] = []
        self.reached: list[tuple[str, int]] = []

    def resolve(self, name: str, port: int) -> list[Any]:
        self.asked.append(name)
        if name not in self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answers = self.answers[name]
        return [_info(address, port) for address in (answers.pop(0) if len(answers) > 1 else answers[0])]


def _info(address: str, port: int) -> tuple[Any, ...]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Internet:
    made_up = Internet()
    getaddrinfo, connect = socket.getaddrinfo, socket.socket.connect

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        is_test_name = name is not None and name.endswith((".test", ".example", "localhost"))
        return made_up.resolve(name, port) if is_test_name else getaddrinfo(host, port, *args, **options)

    def reach(self: socket.socket, address: Any) -> None:
        if self.family == socket.AF_INET and not address[0].startswith("127."):
            made_up.reached.append(address)
            address = ("127.0.0.1", made_up.port)
        connect(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket.socket, "connect", reach)
    return made_up


@pytest.fixture
def pictures(internet: Internet) -> Iterator[Recorder]:
    """A server on the internet."""
    recorder = Recorder(headers=((b"content-type", b"image/jpeg"),), body=PHONE.read_bytes())
    with served(recorder, http="h11") as internet.port:
        internet.answers["pictures.test"] = [[PUBLIC]]
        yield recorder


# What arrives, and what is said


def test_a_picture_arrives_byte_for_byte(pictures: Recorder, internet: Internet) -> None:
    assert fetched("http://pictures.test/leaf.jpg") == [PHONE.read_bytes()]
    assert internet.reached == [(PUBLIC, 80)]


def test_nothing_is_said_beyond_what_is_asked(pictures: Recorder) -> None:
    fetched("http://pictures.test/leaf.jpg")
    assert (pictures.last.method, pictures.last.target) == ("GET", b"/leaf.jpg")
    assert dict(pictures.last.headers) == {
        b"host": b"pictures.test",
        b"accept": b"*/*",
        b"accept-encoding": b"identity",
        b"user-agent": b"vlm-edge",
        b"connection": b"close",
    }


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://pictures.test", b"/"),
        ("http://pictures.test?page=2", b"/?page=2"),
        ("http://pictures.test/a#part", b"/a"),
        ("http://pictures.test/Grüße aus Köln.jpg?q=ö", b"/Gr%C3%BC%C3%9Fe%20aus%20K%C3%B6ln.jpg?q=%C3%B6"),
        ("http://pictures.test/%41%2f?sig=a%2Bb+c%20d==&x=%7E", b"/%41%2f?sig=a%2Bb+c%20d==&x=%7E"),
        ("http://pictures.test/a/../b//c", b"/a/../b//c"),
        ("HTTP://PICTURES.TEST/A", b"/A"),
    ],
)
def test_a_target_stays_as_it_was_written(pictures: Recorder, url: str, target: bytes) -> None:
    fetched(url)
    assert pictures.last.target == target


def test_a_host_that_is_not_ascii_is_asked_by_its_other_name(pictures: Recorder, internet: Internet) -> None:
    internet.answers["xn--bcher-kva.test"] = [[PUBLIC]]
    fetched("http://Bücher.test/", hosts=("xn--bcher-kva.test",))
    assert pictures.last.header(b"host") == [b"xn--bcher-kva.test"]


def test_neither_a_proxy_nor_a_password_is_taken_from_the_environment(
    pictures: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine pictures.test login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    fetched("http://pictures.test/")
    assert pictures.last.header(b"authorization") == []


def test_an_address_that_is_dead_is_passed_over(pictures: Recorder, internet: Internet) -> None:
    internet.answers["pictures.test"] = [["127.0.0.1", PUBLIC]]
    hosts = (f"pictures.test:{free_port()}",)
    fetched(f"http://{hosts[0]}/", hosts=hosts, private_addresses=True)
    assert [address for address, _ in internet.reached] == [PUBLIC]


def test_pictures_come_in_their_order_and_eight_at_once() -> None:
    under_way, most, eight = 0, 0, asyncio.Event()

    async def answer(request: Request) -> Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 8:
            eight.set()
        await eight.wait()
        await asyncio.sleep(0.01)  # a ninth would come in
        under_way -= 1
        return Response(request.url.path)

    with served(Starlette(routes=[Route("/{at}", answer)])) as port:
        urls = [f"http://127.0.0.1:{port}/{at}" for at in range(20)]
        found = fetched(*urls, hosts=(f"127.0.0.1:{port}",), private_addresses=True)
    assert found == [f"/{at}".encode() for at in range(20)]
    assert most == 8


def test_no_pictures_are_no_work() -> None:
    assert fetched(hosts=()) == []


def test_one_fetcher_serves_several_event_loops(pictures: Recorder) -> None:
    fetcher = Fetcher(FetchSettings(hosts=("pictures.test",)))
    for _ in range(2):
        assert asyncio.run(fetcher.fetch(["http://pictures.test/"], MAX_BYTES, [PLACE])) == [pictures.body]


# Which hosts


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        (("a.test",), "http://a.test/"),
        (("A.Test",), "http://a.test/"),
        (("a.test",), "http://A.TEST/"),
        (("b.test", "a.test"), "http://a.test/"),
        (("*.test",), "http://a.b.test/"),
        (("*",), "http://a.test/"),
        (("*",), "http://a.test:80/"),
        (("a.test:8080",), "http://a.test:8080/"),
        (("*.test:8080",), "http://a.test:8080/"),
        (("under_score.test",), "http://under_score.test/"),
    ],
)
def test_a_host_that_is_named_is_asked(internet: Internet, hosts: tuple[str, ...], url: str) -> None:
    with pytest.raises(RemoteMediaFailed, match="its host is not known"):
        fetched(url, hosts=hosts)
    assert len(internet.asked) == 1


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        ((), "http://a.test/"),
        (("a.test",), "http://b.test/"),
        (("a.test",), "http://b.a.test/"),
        (("a.test",), "http://a.test.b.test/"),
        (("a.test",), "http://axtest/"),
        (("*.a.test",), "http://a.test/"),
        (("*.a.test",), "http://ba.test/"),
        (("a.test",), "http://a.test:8080/"),
        (("*",), "http://a.test:8080/"),
        (("*",), "http://a.test:443/"),
        (("*",), "https://a.test:80/"),
        (("a.test:8080",), "http://a.test/"),
        (("a.test",), f"http://{PUBLIC}/"),
        ((PUBLIC,), "http://93.184.215.15/"),
        (("*",), "http://a.test:8443/"),
        (("tel.test",), "http://tel.tеst/"),  # noqa: RUF001 - a Cyrillic e
    ],
)
def test_a_host_that_is_not_named_is_refused(internet: Internet, hosts: tuple[str, ...], url: str) -> None:
    with pytest.raises(RemoteMediaRefused, match="found a URL whose host or port is not allowed"):
        fetched(url, hosts=hosts)
    assert internet.asked == []


@pytest.mark.parametrize(
    "host", ["[2606:4700:4700::1111]", "[2606:4700:4700:0:0:0:0:1111]", "[2606:4700:4700:0::1111]"]
)
def test_an_ipv6_address_is_one_however_it_is_written(host: str) -> None:
    settings = FetchSettings(hosts=(host,))
    with pytest.raises(RemoteMediaFailed):  # nobody listens there
        _fetch_with_no_way_out(settings, "http://[2606:4700:4700::1111]/")


def _fetch_with_no_way_out(settings: FetchSettings, url: str) -> None:
    def refuse(self: socket.socket, address: Any) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        asyncio.run(Fetcher(settings).fetch([url], MAX_BYTES, [PLACE]))


# Shapes that readers of URLs have disagreed about

TWO_WAYS = r"""
http://pictures.test\@127.0.0.1/ http://127.0.0.1\@pictures.test/ http:\\pictures.test/ http:/\pictures.test/
http://pictures.test/a\b http://user@pictures.test/ http://user:password@pictures.test/ http://@pictures.test/
http://127.0.0.1@pictures.test/ http://pictures.test@127.0.0.1@pictures.test/ http://pictures.test%40127.0.0.1/
http://pictures%2etest/ http://pictures.test%00.evil.test/ http://pictures.test./ http://localhost./
http://pictures..test/ http://.pictures.test/ http://-pictures.test/ http:pictures.test/ http:/pictures.test/
http:///pictures.test/ http:// http://:80/ http: http://pictures.test:/ http://pictures.test:0/
http://pictures.test:65536/ http://pictures.test:99999999999999999999/ http://pictures.test:+80/
http://pictures.test:-1/ http://pictures.test:80:80/ http://pictures.test:８０/ http://pictures.test:80a/
http://[pictures.test]/ http://[127.0.0.1]/ http://[::1/ http://::1/ http://[::1]evil.test/ http://[fe80::1%25eth0]/
http://[fe80::1%eth0]/ http://[v1.x]/ http://pictures.test／evil.test/ http://pictures.test＠evil.test/
""".split()  # noqa: RUF001

WITH_WHAT_IS_STRIPPED = [
    " http://pictures.test/",
    "http://pictures.test /",
    "http://pictures.test\x00/",
    "http://pictures.test\t/",
    "http://pictures\n.test/",
    "http://pictures.test/\r\nHost: evil.test",
    "ht\ntp://pictures.test/",
    "http://pictures.test\u200b/",
    "http://pic\u00adtures.test/",
    "http://pictures\ud800.test/",
]

TOO_LONG = [f"http://{'x' * 64}.test/", f"http://{'x.' * 127}test/", f"http://pictures.test/{'x' * 9_000}"]

# As inet_aton reads them; the last but one is a public address.
NUMBERS = """
http://127.1/ http://127.0.1/ http://0x7f000001/ http://0x7f.0.0.1/ http://0X7F.1/ http://0x/ http://2130706433/
http://017700000001/ http://0177.0.0.1/ http://127.0.0.01/ http://127.0.0.1./ http://127.0.0.256/ http://127.0.0.0.1/
http://0/ http://pictures.test.1/ http://93.184.55054/ http://①②⑦.1/
""".split()


@pytest.mark.parametrize("url", [*TWO_WAYS, *WITH_WHAT_IS_STRIPPED, *TOO_LONG, *NUMBERS])
@pytest.mark.parametrize("private_addresses", [False, True])
def test_a_url_that_may_be_read_in_two_ways_is_refused(internet: Internet, url: str, private_addresses: bool) -> None:
    with pytest.raises(RemoteMediaRefused, match=r"that cannot be read|no URL"):
        fetched(url, private_addresses=private_addresses)
    assert (internet.asked, internet.reached) == ([], [])


@given(st.sampled_from(["", "http://", "https://"]), st.text())
def test_whatever_is_no_allowed_url_is_refused(begin: str, rest: str) -> None:
    with pytest.raises(RemoteMediaRefused):
        fetched(begin + rest, hosts=("pictures.test",))


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("file:///etc/passwd", "a URL of scheme 'file'"),
        ("FTP://pictures.test/", "a URL of scheme 'ftp'"),
        ("gopher://pictures.test/", "a URL of scheme 'gopher'"),
        ("http\u017f://pictures.test/", "no URL"),  # an s to those who fold it
        ("unix:/run/docker.sock", "a URL of scheme 'unix'"),
        ("//pictures.test/", "no URL"),
        ("/etc/passwd", "no URL"),
        ("", "no URL"),
        ("http", "no URL"),
        ("a secret: http://pictures.test/", "no URL"),
    ],
)
def test_only_http_and_https_are_spoken(url: str, found: str) -> None:
    with pytest.raises(RemoteMediaRefused, match=f"found {found};"):
        fetched(url)


# Which addresses: the examples of the registries of RFC 6890, and the old tricks


@pytest.mark.parametrize(
    "address",
    """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254
    172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255
    198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16
    :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe
    64:ff9b:1::808:808 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:20::1 2001:db8::1
    3fff::1 2002:7f00:1:: 2002:a00:1::1 2002:c0a8:101::1 5f00::1 fc00::1 fd00:ec2::254 fd20:ce::254 fe80::1 fe80::1%1
    fec0::1 ff02::1 ff0e::1 4000::1 1000::1
    """.split(),
)
def test_an_address_that_cannot_be_anybodys_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255
    172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 198.17.255.255 198.20.0.0 223.255.255.255 93.184.215.14
    2606:4700:4700::1111 2001:4860:4860::8888 2a00:1450:4001:80e::200e 64:ff9b::808:808 2002:808:808::1
    """.split(),
)
def test_the_others_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host",
    """
    127.0.0.1 0.0.0.0 10.0.0.1 169.254.169.254 192.168.1.1 １２７.0.0.1 127。0。0。1 [::1] [::] [::ffff:127.0.0.1]
    [::ffff:7f00:1] [0:0:0:0:0:0:0:1] [64:ff9b::127.0.0.1] [2002:7f00:1::] [fd00::1] [fe80::1]
    """.split(),  # noqa: RUF001
)
def test_an_address_in_a_url_must_be_public(host: str) -> None:
    with pytest.raises(RemoteMediaRefused, match="found a URL whose host has an address that is not public"):
        fetched(f"http://{host}/")


@pytest.mark.parametrize(
    "answer", [["127.0.0.1"], ["::1"], [PUBLIC, "10.0.0.1"], ["fe80::1", PUBLIC], [PUBLIC_V6, "::"]]
)
def test_all_addresses_of_a_name_must_be_public(internet: Internet, answer: list[str]) -> None:
    internet.answers["pictures.test"] = [answer]
    with pytest.raises(RemoteMediaRefused, match="found a URL whose host has an address that is not public"):
        fetched("http://pictures.test/")
    assert internet.reached == []


@pytest.mark.parametrize("url", ["http://localhost/", "http://LOCALHOST/", "http://ⓛocalhost/", "https://a.localhost/"])
def test_localhost_is_not_public(internet: Internet, url: str) -> None:
    internet.answers |= {"localhost": [["127.0.0.1"]], "a.localhost": [["127.0.0.1"]]}
    with pytest.raises(RemoteMediaRefused, match="not public"):
        fetched(url)


def test_a_private_address_is_asked_where_that_is_set() -> None:
    with raw_backend(answering(OK + b"Content-Length: 2\r\n\r\nhi")) as port:
        assert fetched_here(port) == b"hi"


def test_a_name_is_resolved_once_and_reached_where_it_was_checked(pictures: Recorder, internet: Internet) -> None:
    internet.answers["pictures.test"] = [[PUBLIC], ["127.0.0.1"]]
    fetched("http://pictures.test/")
    assert internet.asked == ["pictures.test"]
    assert internet.reached == [(PUBLIC, 80)]


def test_a_name_that_has_moved_inside_is_refused_the_next_time(pictures: Recorder, internet: Internet) -> None:
    internet.answers["pictures.test"] = [[PUBLIC], ["127.0.0.1"]]
    fetcher = Fetcher(FetchSettings(hosts=("pictures.test",)))
    asyncio.run(fetcher.fetch(["http://pictures.test/"], MAX_BYTES, [PLACE]))
    with pytest.raises(RemoteMediaRefused, match="not public"):
        asyncio.run(fetcher.fetch(["http://pictures.test/"], MAX_BYTES, [PLACE]))
    assert len(pictures.received) == 1


def test_a_refusal_is_found_before_anything_is_asked(pictures: Recorder, internet: Internet) -> None:
    with pytest.raises(RemoteMediaRefused) as caught:
        fetched("http://pictures.test/", "http://other.test/", hosts=("pictures.test",))
    assert caught.value.param == "place 1"
    assert internet.asked == []


# Redirects


@pytest.fixture
def redirecting(internet: Internet) -> Iterator[list[str]]:
    """A host that sends /?to=URL on to URL, and counts /?left=N down; the hosts and targets that it was asked for."""
    asked: list[str] = []

    async def answer(request: Request) -> Response:
        asked.append(f"{request.headers['host']}{request.url.path}")
        assert "cookie" not in request.headers
        assert "referer" not in request.headers
        status, left = int(request.query_params.get("status", 302)), int(request.query_params.get("left", 0))
        to = request.query_params.get("to") or (left and f"/?left={left - 1}")
        if not to:
            return Response("a picture")
        return Response(status_code=status, headers={"Location": to, "Set-Cookie": "a=b; Path=/"})

    with served(Starlette(routes=[Route("/{path:path}", answer)])) as internet.port:
        internet.answers |= {"pictures.test": [[PUBLIC]], "cdn.test": [[PUBLIC]], "inside.test": [["10.0.0.1"]]}
        yield asked


REDIRECT = "http://pictures.test/?to="


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed(redirecting: list[str], status: int) -> None:
    assert fetched(f"http://pictures.test/?status={status}&to=http://cdn.test/b") == [b"a picture"]
    assert redirecting == ["pictures.test/", "cdn.test/b"]


@pytest.mark.parametrize("to", ["/b", "b", "./b", "//pictures.test/b", "?/../b", "http:b"])
def test_a_redirect_may_be_relative(redirecting: list[str], to: str) -> None:
    assert fetched(REDIRECT + to) == [b"a picture"]
    assert redirecting[1] in ("pictures.test/b", "pictures.test/")


@pytest.mark.parametrize(
    ("to", "found"),
    [
        ("file:///etc/passwd", "a redirect to a URL of scheme 'file'"),
        ("ftp://pictures.test/", "a redirect to a URL of scheme 'ftp'"),
        ("data:image/png;base64,AAAA", "a redirect to a URL of scheme 'data'"),
        ("http://elsewhere.example/", "a redirect to a URL whose host or port is not allowed"),
        ("//elsewhere.example/", "a redirect to a URL whose host or port is not allowed"),
        ("http://pictures.test:8080/", "a redirect to a URL whose host or port is not allowed"),
        ("http://127.0.0.1/", "a URL whose host has an address that is not public"),
        ("http://169.254.169.254/latest/meta-data/", "a URL whose host has an address that is not public"),
        ("http://[::ffff:127.0.0.1]/", "a URL whose host has an address that is not public"),
        ("http://inside.test/", "a URL whose host has an address that is not public"),
        ("https://inside.test/", "a URL whose host has an address that is not public"),
        ("http://user@cdn.test/", "a redirect to a URL with a user name, or that cannot be read"),
        ("//user@cdn.test/", "a redirect to a URL with a user name, or that cannot be read"),
        ("http://cdn.test%5C@pictures.test/", "a redirect to a URL with a user name, or that cannot be read"),
        ("%5C%5Ccdn.test/", "a redirect to a URL with a user name, or that cannot be read"),
        ("http://2130706433/", "a redirect to a URL with a user name, or that cannot be read"),
        ("http://[cdn.test/", "a redirect to a URL with a user name, or that cannot be read"),
        ("http://cdn.test%09/", "a redirect to a URL with a user name, or that cannot be read"),
    ],
)
def test_a_redirect_is_checked_like_any_url(redirecting: list[str], to: str, found: str) -> None:
    with pytest.raises(RemoteMediaRefused) as caught:
        fetched(REDIRECT + to, hosts=("*.test", "127.0.0.1", "169.254.169.254", "[::ffff:7f00:1]"))
    assert caught.value.message.startswith(f"found {found};")
    assert redirecting == ["pictures.test/"]


def test_a_redirect_in_no_known_characters_cannot_be_read() -> None:
    answer = answering(b"HTTP/1.1 302 Found\r\nLocation: /caf\xe9\r\n\r\n")
    with raw_backend(answer) as port, pytest.raises(RemoteMediaRefused, match="that cannot be read"):
        fetched_here(port)


def test_a_name_is_checked_again_after_a_redirect(redirecting: list[str], internet: Internet) -> None:
    internet.answers["pictures.test"] = [[PUBLIC], ["127.0.0.1"]]
    with pytest.raises(RemoteMediaRefused, match="not public"):
        fetched(REDIRECT + "/b")
    assert redirecting == ["pictures.test/"]


def test_as_many_redirects_are_followed_as_are_allowed(redirecting: list[str]) -> None:
    assert fetched("http://pictures.test/?left=3") == [b"a picture"]
    with pytest.raises(RemoteMediaFailed, match="it was redirected more than 3 times"):
        fetched("http://pictures.test/?left=4")
    assert len(redirecting) == 4 + 4


def test_redirects_can_be_forbidden(redirecting: list[str]) -> None:
    assert fetched("http://pictures.test/?left=0", max_redirects=0) == [b"a picture"]
    with pytest.raises(RemoteMediaFailed, match="it was redirected more than 0 times"):
        fetched("http://pictures.test/?left=1", max_redirects=0)


def test_a_loop_ends() -> None:
    app = Starlette(routes=[Route("/", lambda request: RedirectResponse("/"))])
    with served(app) as port:
        assert "it was redirected more than 3 times" in failed_here(port)


def test_redirects_are_within_the_time_of_the_picture() -> None:
    app = Starlette(routes=[Route("/", lambda request: RedirectResponse("/"))])
    with served(app) as port:
        assert "within 0.3 s" in failed_here(port, timeout_s=0.3, max_redirects=10**9)


def test_a_redirect_to_nowhere_is_an_answer_like_any_other() -> None:
    with raw_backend(answering(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n")) as port:
        assert "its host answered 302" in failed_here(port)


# How much


def test_a_length_that_is_too_large_is_refused_before_the_body_comes() -> None:
    with raw_backend(silent(OK + b"Content-Length: 101\r\n\r\n")) as port, pytest.raises(MediaTooLarge) as caught:
        fetched_here(port, max_bytes=100)
    assert (caught.value.found, caught.value.allowed) == (101, 100)


@pytest.mark.parametrize(
    "answer",
    [
        never_ending(bytes(1_000)),
        never_ending(b"3e8\r\n%b\r\n" % bytes(1_000), OK + b"Transfer-Encoding: chunked\r\n\r\n"),
        never_ending(b"1;%b\r\n.\r\n" % (b"x" * 50), OK + b"Transfer-Encoding: chunked\r\n\r\n"),
    ],
    ids=["until it closes", "chunked", "chunked, with more talk than body"],
)
def test_a_body_without_an_end_is_cut_at_the_bound(answer: Callable[[socket.socket], None]) -> None:
    with raw_backend(answer) as port, pytest.raises(MediaTooLarge) as caught:
        fetched_here(port, max_bytes=10_000)
    assert caught.value.found > caught.value.allowed == 10_000


def test_a_body_may_be_as_large_as_is_allowed() -> None:
    with raw_backend(answering(OK, b"\r\n", bytes(60_000), bytes(40_000))) as port:
        assert fetched_here(port, max_bytes=100_000) == bytes(100_000)
        with pytest.raises(MediaTooLarge):
            fetched_here(port, max_bytes=99_999)


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "zstd", "gzip, gzip", "x-unknown"])
def test_what_comes_compressed_is_refused_and_not_unpacked(encoding: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    head = OK + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding.encode(), len(bomb))
    with raw_backend(answering(head, bomb)) as port:
        assert "its host sent it compressed" in failed_here(port)


def test_identity_is_no_compression() -> None:
    with raw_backend(answering(OK + b"Content-Encoding: Identity\r\nContent-Length: 2\r\n\r\nhi")) as port:
        assert fetched_here(port) == b"hi"


def test_what_comes_behind_the_declared_length_is_not_read() -> None:
    answer = answering(OK + b"Content-Length: 2\r\n\r\nhi, and more")
    with raw_backend(answer) as port, suppress(RemoteMediaFailed):  # in one piece with the head, it is no HTTP
        assert fetched_here(port) == b"hi"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 100\r\n\r\nhi",
        OK + b"Transfer-Encoding: chunked\r\n\r\n64\r\nhi",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
    ],
)
def test_half_a_picture_is_none(answer: bytes) -> None:
    with raw_backend(answering(answer)) as port:
        assert "its host broke off its answer" in failed_here(port)


def test_chunks_without_a_length_are_no_picture() -> None:
    with raw_backend(answering(OK + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n")) as port:
        failed_here(port)


# How it goes wrong


@pytest.mark.parametrize("status", [201, 204, 206, 300, 304, 400, 401, 403, 404, 410, 429, 500, 503])
def test_only_200_is_a_picture(status: int) -> None:
    with served(Starlette(routes=[Route("/", lambda request: Response(status_code=status))])) as port:
        assert f"its host answered {status}" in failed_here(port)


def drip(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(OK + b"Content-Length: 1000000\r\n\r\n")
    connection.settimeout(0.02)
    while True:
        connection.sendall(b".")
        try:
            if not connection.recv(1):
                return
        except TimeoutError:
            continue


def preliminaries(connection: socket.socket) -> None:
    read_request(connection)
    while True:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")


@pytest.mark.parametrize(
    "answer",
    [drip, preliminaries, silent(), silent(b"HTTP/1.1 200"), silent(OK + b"\r\n")],
    ids=["drip", "only preliminaries", "no word", "half a head", "no body"],
)
def test_a_picture_has_its_time(answer: Callable[[socket.socket], None]) -> None:
    with raw_backend(answer) as port:
        assert "it did not arrive within 0.3 s" in failed_here(port, timeout_s=0.3)


def test_finding_the_host_is_within_the_time(internet: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
    found = threading.Event()

    def resolve(name: str, port: int) -> list[Any]:
        found.wait(PATIENCE_S)
        return [_info(PUBLIC, port)]

    async def fetch() -> None:
        try:
            await Fetcher(FetchSettings(hosts=("*",), timeout_s=0.1)).fetch(["http://slow.test/"], 1, [PLACE])
        finally:
            found.set()  # a thread cannot be cancelled

    monkeypatch.setattr(internet, "resolve", resolve)
    with pytest.raises(RemoteMediaFailed, match=r"within 0\.1 s"):
        asyncio.run(fetch())
    assert internet.reached == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "its host closed the connection"),
        (b"HTTP/1.1 200", "its host closed the connection"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "its host did not answer in HTTP"),
        (b"<html>hello</html>", "its host did not answer in HTTP"),
        (OK + b"Content-Length: -1\r\n\r\n", "its host did not answer in HTTP"),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nhi", "its host did not answer in HTTP"),
        (OK + b"X: " + b"x" * 100_000 + b"\r\n\r\n", "its host did not answer in HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "its host answered 101"),
    ],
)
def test_what_is_no_answer_is_told_so(answer: bytes, why: str) -> None:
    with raw_backend(answering(answer)) as port:
        assert failed_here(port) == f"the remote picture could not be fetched: {why}; send it as a data URL"


def test_a_connection_that_is_torn_is_told_so() -> None:
    def tear(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))  # a reset

    with raw_backend(tear) as port:
        assert "its host closed the connection" in failed_here(port)


def test_a_host_that_does_not_listen_cannot_be_reached() -> None:
    assert "its host cannot be reached" in failed_here(free_port())


@pytest.mark.parametrize("answers", [{}, {"pictures.test": [[]]}])
def test_a_name_without_an_address_is_not_known(internet: Internet, answers: dict[str, list[list[str]]]) -> None:
    internet.answers |= answers
    with pytest.raises(RemoteMediaFailed, match="its host is not known"):
        fetched("http://pictures.test/")


def test_an_error_names_its_place_and_never_the_url(internet: Internet) -> None:
    with raw_backend(answering(b"HTTP/1.1 404 Not for secret-eyes\r\n\r\nsecret-body")) as port:
        settings = FetchSettings(hosts=("*", f"127.0.0.1:{port}"), private_addresses=True)
        for url in (
            f"http://127.0.0.1:{port}/secret",
            "http://secret.test/",
            "http://secret:secret@a.test/",
            "x:secret",
        ):
            with pytest.raises(EdgeError) as caught:
                asyncio.run(Fetcher(settings).fetch([url], MAX_BYTES, [PLACE]))
            assert caught.value.param == PLACE
            assert "secret" not in str(caught.value)
            assert "127.0.0.1" not in str(caught.value)


def test_when_one_fails_the_others_are_given_up() -> None:
    given_up = threading.Event()

    def answer(connection: socket.socket) -> None:
        if b"/missing" in read_request(connection):
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        elif connection.recv(1) == b"":
            given_up.set()

    with raw_backend(answer) as port:
        url = f"http://127.0.0.1:{port}"
        patient: dict[str, Any] = {"hosts": (f"127.0.0.1:{port}",), "private_addresses": True, "timeout_s": 1_000.0}
        with pytest.raises(RemoteMediaFailed, match="404") as caught:
            fetched(f"{url}/hangs", f"{url}/missing", **patient)
        assert caught.value.param == "place 1"
        assert given_up.wait(PATIENCE_S)


def test_a_fetch_that_is_cancelled_gives_up_its_connections() -> None:
    begun, given_up = threading.Event(), threading.Event()

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        begun.set()
        if connection.recv(1) == b"":
            given_up.set()

    async def fetch_and_leave(port: int) -> None:
        fetcher = Fetcher(FetchSettings(hosts=(f"127.0.0.1:{port}",), private_addresses=True))
        task = asyncio.create_task(fetcher.fetch([f"http://127.0.0.1:{port}/"], MAX_BYTES, [PLACE]))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with raw_backend(answer) as port:
        asyncio.run(fetch_and_leave(port))
        assert given_up.wait(PATIENCE_S)


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusted(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that trusts the authority."""
    file = tmp_path_factory.mktemp("trust") / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    return os.environ | {"SSL_CERT_FILE": str(file)}


def tls_options(authority: trustme.CA, folder: Path, *names: str) -> dict[str, Any]:
    file = folder / "server.pem"
    authority.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(str(file))
    return {"ssl_certfile": str(file)}


def fetched_elsewhere(url: str, environment: dict[str, str], *hosts: str) -> str:
    """What a process of its own brings, as OpenSSL reads its environment but once: the text, or the error."""
    code = """
import asyncio, sys
from vlm_edge.errors import EdgeError
from vlm_edge.fetch import Fetcher, FetchSettings
fetcher = Fetcher(FetchSettings(hosts=tuple(sys.argv[2:]), private_addresses=True))
try:
    print(asyncio.run(fetcher.fetch([sys.argv[1]], 1000, [""]))[0].decode())
except EdgeError as error:
    print(error.message)
"""
    command = [sys.executable, "-W", "error", "-c", code, url, *hosts]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60)
    assert run.stderr == ""
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("names", "outcome"), [(["localhost"], "a picture"), (["other.test"], "the certificate of its host is not trusted")]
)
def test_a_certificate_must_be_that_of_the_name(
    authority: trustme.CA, trusted: dict[str, str], tmp_path: Path, names: list[str], outcome: str
) -> None:
    with served(Recorder(body=b"a picture"), **tls_options(authority, tmp_path, *names)) as port:
        assert outcome in fetched_elsewhere(f"https://localhost:{port}/", trusted, f"localhost:{port}")


def test_a_redirect_may_leave_tls_for_a_host_that_is_allowed(
    authority: trustme.CA, trusted: dict[str, str], tmp_path: Path
) -> None:
    with served(Recorder(body=b"a picture")) as plain:
        to = Recorder(status=302, headers=((b"location", b"http://127.0.0.1:%d/" % plain),))
        with served(to, **tls_options(authority, tmp_path, "localhost")) as port:
            url, hosts = f"https://localhost:{port}/", [f"localhost:{port}", f"127.0.0.1:{plain}"]
            assert fetched_elsewhere(url, trusted, *hosts) == "a picture"
            assert "a redirect to a URL whose host or port" in fetched_elsewhere(url, trusted, hosts[0])


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncio's server drops a failed handshake
def test_a_certificate_of_nobody_is_not_trusted(internet: Internet, authority: trustme.CA, tmp_path: Path) -> None:
    internet.answers["pictures.test"] = [[PUBLIC]]
    recorder = Recorder()
    with (
        served(recorder, **tls_options(authority, tmp_path, "pictures.test")) as internet.port,
        pytest.raises(RemoteMediaFailed, match="the certificate of its host is not trusted"),
    ):
        fetched("https://pictures.test/")
    assert internet.reached == [(PUBLIC, 443)]
    assert recorder.received == []


def test_what_speaks_no_tls_is_told_so(internet: Internet) -> None:
    internet.answers["pictures.test"] = [[PUBLIC]]
    with (
        raw_backend(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as internet.port,
        pytest.raises(RemoteMediaFailed, match="its host speaks no TLS that we do"),
    ):
        fetched("https://pictures.test/")


# Settings


@pytest.mark.parametrize(
    "host",
    [
        *"https://example.com example.com/ example.com. user@example.com bücher.example exa*ple.com".split(),
        *"*example.com example.* *.*.example.com *:8080 ** example.com: example.com:0 example.com:65536".split(),
        *"example.com:http 2001:db8::1 [2001:db8::1 [example.com] 127.1 0x7f000001 10.0.0.0/8 *.1".split(),
        *("", "exam ple.com", " example.com"),
    ],
)
def test_a_host_that_can_never_be_met_is_a_mistake(host: str) -> None:
    with pytest.raises(ValueError, match=r"^hosts: "):
        FetchSettings(hosts=("example.com", host))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": -1.0}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"max_redirects": -1}, "max_redirects"),
        ({"hosts": ["a b"]}, "hosts"),
        ({"host": ["a"]}, "host"),
        ({"hosts": "example.com"}, "hosts"),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, Any], name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=name):
        msgspec.convert(values, FetchSettings)


def test_by_default_nothing_is_fetched() -> None:
    with pytest.raises(RemoteMediaRefused, match="host or port is not allowed"):
        asyncio.run(Fetcher(FetchSettings()).fetch(["http://pictures.test/"], MAX_BYTES, [PLACE]))


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    fetcher = Fetcher(FetchSettings(hosts=("*",)))
    with pytest.raises(
        MissingExtra, match=r"^fetching remote pictures needs an extra: pip install 'vlm-edge\[gateway\]'$"
    ):
        asyncio.run(fetcher.fetch(["http://pictures.test/"], MAX_BYTES, [PLACE]))
