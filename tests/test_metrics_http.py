"""The metrics port's loop by itself: its table of connections, its deadlines, and its end."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_stats import build

from lumen_uring.errors import MetricsError
from lumen_uring.guard import Guard
from lumen_uring.metrics import http as metrics_http
from lumen_uring.metrics import server as metrics_server
from lumen_uring.metrics.facts import Facts
from lumen_uring.metrics.http import (
    CONNECTIONS_MAX,
    Answer,
    HttpLoop,
    Request,
    Shared,
    Slow,
    encode,
    parse_head,
)
from lumen_uring.metrics.server import MetricsServer, _comes_from_a_page
from lumen_uring.ring import structs
from lumen_uring.ring.site import refusal

GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = 16 << 20
NEVER_S = 3600.0


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """No deadline of the loop passes but those that a test asks for."""

    def have(**seconds: float) -> None:
        for name in ("HEAD", "SEND", "LINGER"):
            monkeypatch.setattr(metrics_http, f"_{name}_S", seconds.get(name, NEVER_S))

    have()
    return have


class Site:
    """A loop whose pages are: fast, large, slow (until `go_on`), broken."""

    def __init__(self, listener: socket.socket | None = None) -> None:
        if listener is None:
            listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = listener.getsockname()
        self.go_on = threading.Event()
        self.begun = threading.Event()
        self.cancelled = threading.Event()
        self.guard = Guard(lambda _level, _text: None)
        self.loop = HttpLoop(listener, self.answer, self.guard)
        self.loop.start()
        self._open = contextlib.ExitStack()

    def answer(self, request: Request, _shared: Shared) -> Answer | Slow:
        if request.path == "/large":
            self.begun.set()
            return Answer(200, bytes(LARGE))
        if request.path == "/slow":
            return Slow(self.slow, self.cancelled.set)
        if request.path == "/breaks":
            return Slow(self.breaks, self.cancelled.set)
        if request.path == "/wrong":
            return Answer(299, b"no such status")
        return Answer(200, b"fast")

    def slow(self) -> Answer:
        self.begun.set()
        assert self.go_on.wait(60)
        return Answer(200, b"slow")

    def breaks(self) -> Answer:
        raise RuntimeError("broken")

    def connect(self, said: bytes = b"") -> socket.socket:
        peer = self._open.enter_context(socket.create_connection(self.address, 60))
        peer.sendall(said)
        return peer

    def ask(self, path: bytes = b"fast") -> bytes:
        return everything(self.connect(GET % path))

    def until(self, holds: Callable[[], bool]) -> None:
        limit_s = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < limit_s
            time.sleep(0.002)

    def until_open(self, count: int) -> None:
        self.until(lambda: len(self.loop._clients) == count)

    def close(self) -> None:
        self.go_on.set()
        self.loop.close()
        self._open.close()


@pytest.fixture
def site(patience: Callable[..., None]) -> Iterator[Site]:
    with contextlib.closing(Site()) as made:
        yield made


def everything(peer: socket.socket) -> bytes:
    """All bytes until the server ends its side, or cuts the connection."""
    found = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := peer.recv(1 << 20):
            found += piece
    return bytes(found)


def body(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def test_the_table_holds_so_many_and_the_oldest_makes_room(site: Site) -> None:
    crowd = []
    for count in range(1, CONNECTIONS_MAX + 1):
        crowd.append(site.connect())
        site.until_open(count)
    another = site.connect()
    assert everything(crowd[0]) == b""
    site.until_open(CONNECTIONS_MAX)
    another.sendall(GET % b"fast")
    assert body(everything(another)) == b"fast"
    # All others are still there, and are answered.
    crowd[1].sendall(GET % b"fast")
    assert body(everything(crowd[1])) == b"fast"


def test_a_connection_that_is_being_answered_is_not_the_first_to_go(site: Site) -> None:
    reader = site.connect(GET % b"large")
    assert site.begun.wait(60)
    site.begun.clear()
    slow = site.connect(GET % b"slow")
    assert site.begun.wait(60)
    crowd = []
    for count in range(3, CONNECTIONS_MAX + 1):
        crowd.append(site.connect())
        site.until_open(count)
    for gone in crowd[:3]:
        site.connect()
        assert everything(gone) == b""
    assert len(body(everything(reader))) == LARGE
    site.go_on.set()
    assert body(everything(slow)) == b"slow"


def test_a_crowd_of_readers_makes_room_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all are being answered, the one that has been there the longest goes."""
    monkeypatch.setattr(metrics_http, "CONNECTIONS_MAX", 4)
    crowd = []
    for count in range(1, 5):
        crowd.append(site.connect(GET % b"large"))
        site.until_open(count)
        site.until(lambda: not any(one.is_reading for one in site.loop._clients))
    assert body(site.ask()) == b"fast"
    assert len(everything(crowd[0])) < LARGE
    assert len(body(everything(crowd[1]))) == LARGE


def test_each_deadline_ends_what_it_is_for(site: Site, patience: Callable[..., None]) -> None:
    patience(HEAD=0.1)
    assert everything(site.connect(b"GET /fa")) == b""
    patience(SEND=0.1)
    lazy = site.connect(GET % b"large")
    assert site.begun.wait(60)
    site.until_open(0)
    site.begun.clear()
    assert 0 < len(everything(lazy)) < LARGE
    # The time to send begins with the answer, however long it took to make it.
    patience()
    slow = site.connect(GET % b"slow")
    assert site.begun.wait(60)
    patience(HEAD=0.1)
    assert everything(site.connect(b"G")) == b""  # the time of a head passes
    site.go_on.set()
    assert body(everything(slow)) == b"slow"
    slow.close()
    patience(LINGER=0.1)  # the connection of the next line has all the time for its head
    polite = site.connect(GET % b"fast")
    assert body(everything(polite)) == b"fast"
    site.until_open(0)  # although it has not closed its side
    assert body(site.ask()) == b"fast"


def test_what_comes_after_an_answer_is_dropped_up_to_a_bound(site: Site) -> None:
    chatty = site.connect(GET % b"fast" + bytes(8192))
    assert body(everything(chatty)) == b"fast"
    site.until_open(1)
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < LARGE:
            sent += chatty.send(bytes(1 << 16))
    assert sent < LARGE
    site.until_open(0)


def test_a_head_of_exactly_the_most_bytes(site: Site) -> None:
    """The blank line counts for nothing, and what follows it neither."""
    plain = b"GET /fast HTTP/1.1\r\nHost: localhost\r\nX: "
    for size, status in ((8192, b"200"), (8193, b"400")):
        head = plain.ljust(size, b"x") + b"\r\n\r\n"
        for after in (b"", bytes(9000)):
            assert everything(site.connect(head + after)).startswith(b"HTTP/1.1 " + status)
    endless = site.connect(plain.ljust(8192, b"x"))
    site.until_open(5)
    endless.sendall(b"x")
    assert everything(endless).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    in_pieces = site.connect()
    for byte in GET % b"fast":
        in_pieces.sendall(bytes([byte]))
    assert body(everything(in_pieces)) == b"fast"


def test_a_slow_answer_that_breaks_is_an_answer(site: Site) -> None:
    answer = site.ask(b"breaks")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"This page could not be made: RuntimeError('broken')" in answer


def test_no_slow_answer_is_made_for_a_client_that_has_left(site: Site) -> None:
    patient = site.connect(GET % b"fast")
    leaves = site.connect(GET % b"slow" + b"more")
    assert site.begun.wait(60)
    assert body(everything(patient)) == b"fast"
    assert not site.cancelled.is_set()
    leaves.close()
    assert site.cancelled.wait(60)
    assert body(site.ask()) == b"fast"


def test_no_room_for_a_thread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_room)
    assert site.ask(b"slow").startswith(b"HTTP/1.1 503 ")
    assert site.cancelled.is_set()
    assert body(site.ask()) == b"fast"


def test_a_page_that_raises_costs_its_client_alone(site: Site) -> None:
    slow = site.connect(GET % b"slow")
    assert site.begun.wait(60)
    assert site.ask(b"wrong") == b""
    site.go_on.set()
    assert body(everything(slow)) == b"slow"


def test_an_end_waits_for_a_slow_answer_and_not_for_ever(
    patience: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_http, "_CLOSE_S", NEVER_S)
    site = Site()
    slow = site.connect(GET % b"slow")
    silent = site.connect()
    assert site.begun.wait(60)
    ending = threading.Thread(target=site.loop.close)
    ending.start()
    site.until(lambda: site.loop._closing)
    site.go_on.set()
    ending.join(60)
    assert (body(everything(slow)), everything(silent)) == (b"slow", b"")
    with pytest.raises(OSError, match="refused"):
        site.connect()
    monkeypatch.setattr(metrics_http, "_CLOSE_S", 0.1)
    site = Site()
    slow = site.connect(GET % b"slow")
    assert site.begun.wait(60)
    ending = threading.Thread(target=site.loop.close)
    ending.start()
    ending.join(60)
    assert not ending.is_alive()
    assert everything(slow) == b""
    site.go_on.set()


def test_out_of_descriptors_it_makes_room_and_tries_again(
    patience: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poor(socket.socket):
        failures = 0

        def accept(self) -> tuple[socket.socket, object]:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    monkeypatch.setattr(metrics_http, "_ACCEPT_PAUSE_S", 0.01)
    listener = Poor()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    with contextlib.closing(Site(listener)) as site:
        oldest, newer = site.connect(), site.connect()
        site.until_open(2)
        listener.failures = 2
        assert body(site.ask()) == b"fast"
        assert listener.failures == 0
        assert (everything(oldest), everything(newer)) == (b"", b"")
        assert body(site.ask()) == b"fast"
        assert [failures for _part, failures, _is_alive in site.guard.rows()] == [0]


def test_what_an_answer_looks_like() -> None:
    assert encode(Answer(200, b"ok")) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n"
        b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\nok"
    )
    reasons = {
        200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
        405: "Method Not Allowed", 409: "Conflict", 421: "Misdirected Request",
        500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
    }  # fmt: skip
    for status, reason in reasons.items():
        answer = encode(Answer(status, b"", "image/svg+xml"))
        assert answer.startswith(f"HTTP/1.1 {status} {reason}\r\nContent-Type: image/svg".encode())
        assert (b"\r\nAllow: GET, HEAD\r\n" in answer) == (status == 405)


def test_what_a_head_says() -> None:
    head = b"GET /a/b?c=d&e#f HTTP/1.1\r\nHOST:  x \r\nAccept: 1\r\naccept: 2\r\n\r\nbody: no"
    assert parse_head(head, "::1") == Request(
        "GET", "/a/b", "c=d&e", {"host": "x", "accept": "2"}, "::1"
    )
    assert parse_head(b"BREW / HTTP/1.0\r\n\r\n", "p") == Request("BREW", "/", "", {}, "p")


# ---- the pages ----


FACTS = Facts("1.2.3", "1.31.1", workers=2, io_threads=1, slots=64)


def test_one_turn_makes_each_form_of_the_page_once(tmp_path: Path) -> None:
    path = tmp_path / "stats"
    path.write_bytes(build())
    with contextlib.closing(MetricsServer("127.0.0.1", 0)) as page:
        page.start(path, FACTS, 1)
        shared: Shared = {}
        asked = [
            page._answer(Request("GET", "/metrics", "", headers, "::1"), shared)
            for headers in ({}, {"accept": "application/openmetrics-text"}, {"accept": "*/*"})
        ]
        plain, open_, again = asked
        assert isinstance(plain, Answer)
        assert isinstance(open_, Answer)
        assert again is plain
        assert (plain.content_type, open_.content_type) == (
            "text/plain; version=0.0.4; charset=utf-8",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )
        assert open_.body.endswith(b"# EOF\n")
        assert page.address == f"http://127.0.0.1:{page.port}/metrics"
        descriptor = page._stats_fd
        assert not os.get_inheritable(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    page.close()


def test_names_change_with_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "stats"
    path.write_bytes(build())
    with contextlib.closing(MetricsServer("127.0.0.1", 0, ["Old.example"])) as page:
        page.start(path, FACTS, 1)

        def status(host: str) -> int:
            answer = page._answer(Request("GET", "/healthz", "", {"host": host}, "::1"), {})
            assert isinstance(answer, Answer)
            return answer.status

        assert (status("old.example"), status("new.example")) == (200, 421)
        page.set_hosts(["NEW.example"])
        assert (status("old.example"), status("new.example")) == (421, 200)


@pytest.mark.parametrize("free", [8002, 8009, 8017])
def test_each_port_of_the_range_is_tried_once(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    tried: list[int] = []

    def listen(host: str, port: int) -> socket.socket:
        tried.append(port)
        if port == free:
            return socket.create_server((host, 0))
        try:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        except OSError:
            raise MetricsError(f"{port} is taken") from None

    monkeypatch.setattr(metrics_server, "_listen", listen)
    MetricsServer.on_free_port("127.0.0.1", [], [8004, 8006]).close()
    assert tried == [port for port in range(8002, free + 1) if port not in (8004, 8006)]


def test_an_address_of_version_6_is_written_in_brackets() -> None:
    if not socket.has_ipv6:
        return
    with contextlib.closing(MetricsServer("::1", 0)) as page:
        assert page.address == f"http://[::1]:{page.port}/metrics"


@pytest.mark.parametrize(
    ("headers", "is_page"),
    [
        ({}, False),
        ({"sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, False),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"}, True),
        (
            {
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "document",
            },
            True,
        ),
        ({"sec-fetch-site": "", "sec-fetch-mode": "navigate"}, True),
        ({"origin": ""}, True),
    ],
)
def test_what_a_web_page_makes_a_browser_ask(headers: dict[str, str], is_page: bool) -> None:
    request = Request("GET", "/debug/pprof/profile", "", headers, "::1")
    assert _comes_from_a_page(request) is is_page


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        (None, None, 0),
        ("localhost:8002", None, 0),
        ("localhost.", None, 0),
        ("localhost.:80", None, 0),
        ("a.example.", None, 0),
        ("A.example:1", None, 0),
        ("[::1]:80", None, 0),
        ("[::1]", None, 0),
        ("127.0.0.1:1", None, 0),
        ("localhost..", None, 421),
        ("b.example", None, 421),
        ("a.example:1:2", None, 421),
        ("[a.example]x", None, 421),
        ("127.0.0.1.evil.example", None, 421),
        ("", None, 421),
        ("localhost:1", "http://localhost:1", 0),
        ("localhost:1", "HTTP://LOCALHOST:1", 0),
        ("localhost:1", "http://localhost:2", 403),
        ("localhost:1", "http://192.0.2.1:1", 403),
        ("localhost:1", "null", 403),
        ("localhost:1", "", 403),
        ("localhost", "http://localhost:80", 0),
        ("localhost:443", "https://localhost", 0),
        ("localhost:1", "https://a.example", 0),
        ("localhost:1", "https://a.example.:7", 0),
        (None, "http://localhost", 403),
        ("evil.example", "http://evil.example", 421),
    ],
)
def test_whose_requests_are_for_this_server(
    host: str | None, origin: str | None, code: int
) -> None:
    assert refusal(["a.example"], host, origin) == code
    assert refusal(["B.EXAMPLE", "*"], host, origin) == (
        403 if code == 403 and origin in ("null", "") else 0
    )


def test_too_many_hosts_are_refused() -> None:
    assert refusal(["a.example"] * 32, "a.example", None) == 0
    assert refusal(["a.example"] * 33, "a.example", None) == structs.E_INVALID
