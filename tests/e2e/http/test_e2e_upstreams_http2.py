"""Upstreams over HTTP/2: many requests on a connection, each of which comes to its own end.

Row 51 of the list of hostile inputs. The upstreams are the test's own (upstreams2.py).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import http2
import pytest
import tls
import web
import wire
from conftest import Serve
from h2.exceptions import StreamClosedError
from harness import eventually
from test_e2e_upstreams import CHAT, PATHS, REPLIES, ask, read_until, said
from upstreams import (
    END,
    STREAM,
    Peer,
    Request,
    Script,
    Upstream,
    chunk,
    event,
    plain,
    settings,
    upstream,
)
from upstreams2 import Stream, data, frames, head, upstream2
from web import Http

pytestmark = pytest.mark.once  # frames and streams: bytes come as in test_e2e_upstreams.py


def settings2(*urls: str, **rest: object) -> dict[str, Any]:
    """Without TLS nobody says which HTTP it is: that is a setting. One I/O thread, so that what
    shares a connection is known."""
    made: dict[str, Any] = settings(*urls, http2="always", **rest)
    made["server"]["io_threads"] = 1
    return made


def alpn(files: tls.Files, *protocols: str) -> ssl.SSLContext:
    made = tls.server_context(files)
    made.set_alpn_protocols(list(protocols))
    return made


def at_once(count: int, what: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(what, range(count)))


# ---- what goes there, and what comes back ----


def test_requests_share_a_connection(serve: Serve) -> None:
    """On each path, in the name there; a hundred at a time, whose upstream answers none of them
    before it has them all, and then the last one first."""
    all_here = threading.Barrier(100)

    def script(request: Request, peer: Peer) -> None:
        number = request.document["n"]
        all_here.wait(wire.TIMEOUT_S)
        time.sleep(0.001 * (100 - number))
        echo = {"path": request.path, "asked": request.document}
        peer.send(plain(json.dumps(echo).encode()))

    with upstream2(script) as up:
        server = serve(settings2(up.url))

        def one(number: int) -> tuple[int, Any]:
            document = {"model": "chat", "n": number, "pad": "p" * number}
            code, _, body = ask(server.port, document, PATHS[number % len(PATHS)])
            return code, json.loads(body)

        for number, (code, found) in enumerate(at_once(100, one)):
            asked = {"model": "org/there", "n": number, "pad": "p" * number}
            assert (code, found) == (200, {"path": PATHS[number % len(PATHS)], "asked": asked})
        assert up.connections == 1
        assert all(request.header("content-type") == "application/json" for request in up.requests)


def test_a_body_goes_as_far_as_windows_allow(serve: Serve) -> None:
    """In both directions: 700 KB to an upstream that takes 1,000 bytes ahead, and as many back."""

    def script(request: Request, peer: Peer) -> None:
        peer.send(plain(request.document["pad"].encode()))

    with upstream2(script, window=1000) as up:
        server = serve(settings2(up.url))
        pads = at_once(
            4, lambda n: ask(server.port, {"model": "chat", "pad": "xyz"[n % 3] * 700_000})
        )
        for number, (code, _, body) in enumerate(pads):
            assert code == 200, body[:300]
            assert (code, body) == (200, b"xyz"[number % 3 : number % 3 + 1] * 700_000)


def test_padding_is_part_of_windows(serve: Serve) -> None:
    """It may come again as a body may: of a byte and 255 beside it, many more than a window."""

    def script(request: Request, peer: Peer) -> None:
        peer.send(STREAM)
        for _ in range(100):
            peer.send(chunk(b"a"))
        peer.send(END)

    with upstream2(script, padding=255) as up:
        server = serve(settings2(up.url))
        code, _, body = ask(server.port, {"model": "chat"})
        assert (code, body) == (200, b"a" * 100)


def test_the_key_goes_to_its_upstream(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UP_KEY", "sk-there")
    with upstream2() as up:
        server = serve(settings2(up.url, key_env="UP_KEY"))
        assert ask(server.port, {"model": "chat"}, Authorization="Bearer mine")[0] == 200
        assert up.requests[0].header("authorization") == "Bearer sk-there"


def test_a_slow_reader_keeps_nobody_waiting(serve: Serve) -> None:
    """Row 51. What its client does not take the upstream may not send, on that stream alone."""
    total, sent = 16 << 20, 0
    piece = bytes(range(256)) * 64

    def script(request: Request, peer: Peer) -> None:
        nonlocal sent
        if "slow" not in request.document:
            peer.send(plain(piece * 10))
            return
        peer.send(STREAM)
        for _ in range(total // len(piece)):
            peer.send(chunk(piece))
            sent += len(piece)
        peer.send(END)

    with upstream2(script) as up:
        server = serve(settings2(up.url))
        before = server.rss_bytes
        peer = http.client.HTTPConnection("127.0.0.1", server.port, timeout=wire.TIMEOUT_S)
        peer.request("POST", CHAT, b'{"model": "chat", "slow": true}')
        seen = [-1]

        def stands_still() -> bool:
            seen.append(sent)
            time.sleep(0.2)
            return sent > 0 and seen[-1] == sent

        eventually(stands_still, "an upstream that waits")
        assert sent < total
        for _ in range(3):
            assert ask(server.port, {"model": "chat"})[2] == piece * 10
        assert up.connections == 1
        assert server.rss_bytes - before < 8 << 20
        assert peer.getresponse().read() == piece * (total // len(piece))
        peer.close()


def test_a_client_that_leaves_takes_its_request_along(serve: Serve) -> None:
    """Its stream is reset, and no other: the next request comes on the same connection."""
    gone: list[str] = []

    def script(request: Request, peer: Peer) -> None:
        when = request.document["when"]
        if when == "stays":
            peer.send(plain(b"{}"))
            return
        with contextlib.suppress(EOFError, StreamClosedError):  # it may have left already
            if when == "events":
                peer.send(STREAM + chunk(event("a")))
            if when == "body":
                peer.send(plain(bytes(100))[:-50])
        assert peer.ends()
        gone.append(when)

    with upstream2(script) as up:
        server = serve(settings2(up.url))
        for count, when in enumerate(("head", "body", "events"), 1):
            peer = socket.create_connection(("127.0.0.1", server.port), wire.TIMEOUT_S)
            peer.sendall(web.post(CHAT, json.dumps({"model": "chat", "when": when}).encode()))
            eventually(lambda n=count: len(up.requests) == 2 * n - 1, "a request")
            if when == "events":
                read_until(peer, b"", event("a"))
            peer.close()
            eventually(lambda n=count: len(gone) == n, "the end of the request there")
            assert ask(server.port, {"model": "chat", "when": "stays"})[0] == 200
        assert up.resets == [8, 8, 8]  # CANCEL
        assert up.connections == 1
        eventually(lambda: server.figures().io["upstream_gone"] == 3, "three that left")


def test_more_at_a_time_than_a_connection_takes(serve: Serve) -> None:
    """It says two: the others have connections of their own."""
    all_here = threading.Barrier(7)

    def script(request: Request, peer: Peer) -> None:
        all_here.wait(wire.TIMEOUT_S)
        peer.send(plain(json.dumps(request.document).encode()))

    with upstream2(script, streams=2) as up:
        server = serve(settings2(up.url))
        eventually(lambda: up.greeted >= 2, "its settings")
        codes = [found[0] for found in at_once(7, lambda n: ask(server.port, {"model": "chat"}))]
        assert codes == [200] * 7
        assert up.connections >= 4


# ---- TLS ----


@pytest.mark.parametrize("setting", ["auto", "always", "never"])
@pytest.mark.parametrize("there", ["both", "http2", "http1"])
def test_which_it_is_over_tls(serve: Serve, files: tls.Files, setting: str, there: str) -> None:
    """ALPN chooses, as far as the setting allows."""
    protocols = {"both": ["h2", "http/1.1"], "http2": ["h2"], "http1": ["http/1.1"]}[there]
    is_http2 = setting != "never" and there != "http1"
    fits = (setting, there) != ("always", "http1")
    made = alpn(files, *protocols)
    with upstream2(tls=made) if is_http2 else upstream(tls=made) as up:
        server = serve(settings(up.url, ca=files.ca, http2=setting))
        if not fits:
            code, why = said(ask(server.port, {"model": "chat"}))
            assert code == 502
            assert (
                why == "upstream 'up': expected HTTP/2 at 127.0.0.1 (ALPN: h2), found another HTTP"
            )
            return
        for _ in range(3):
            code, _, body = ask(server.port, {"model": "chat", "n": 1})
            assert (code, json.loads(body)["asked"]) == (200, {"model": "org/there", "n": 1})
        assert (" HTTP/2" in up.requests[0].head) == is_http2
        assert up.connections <= 3
        before = up.connections
        up.drop()
        eventually(lambda: up.connections > before, "connections that come back")
        assert ask(server.port, {"model": "chat"})[0] == 200
        eventually(lambda: up.resumed > 0, "a greeting with a ticket")


def test_an_address_that_speaks_another_http_than_before(serve: Serve, files: tls.Files) -> None:
    """What was learnt from its last greeting is no more than that."""
    with upstream2(tls=alpn(files, "h2", "http/1.1")) as up:
        server = serve(settings(up.url, ca=files.ca, connections=0))
        assert ask(server.port, {"model": "chat"})[0] == 200
        port = up.port
    with upstream(port=port, tls=alpn(files, "http/1.1")) as old:
        codes = [one[0] for one in at_once(8, lambda n: ask(server.port, {"model": "chat"}))]
        assert codes == [200] * 8
        assert len(old.requests) == 8
    with upstream2(port=port, tls=alpn(files, "h2", "http/1.1")):
        assert ask(server.port, {"model": "chat"})[0] == 200


# ---- what fails ----


@pytest.mark.parametrize("form", REPLIES)
def test_an_answer_that_is_cut_at_every_byte(serve: Serve, form: str) -> None:
    """Row 51. The stream is reset: as where a connection of HTTP/1.1 is closed."""
    reply = REPLIES[form]

    def script(request: Request, peer: Peer) -> None:
        peer.send(reply[: request.document["bytes"]])
        peer.cut()

    with upstream2(script) as up:
        server = serve(settings2(up.url))
        start = reply.index(b"\r\n\r\n") + 4
        for count in range(len(reply)):
            try:
                code, _, body = ask(server.port, {"model": "chat", "bytes": count})
            except http.client.IncompleteRead:
                assert form == "length"
                continue
            if count < start or form == "length":
                assert (code, b"reset the request" in body) == (502, True), count
                continue
            assert code == 200
            if b"[DONE]" in body or count >= len(reply) - 2:
                continue
            error = json.loads(body.decode().split("\n\n")[-2].strip().removeprefix("data: "))
            assert error["error"]["type"] == "server_error"
        assert ask(server.port, {"model": "chat", "bytes": len(reply)})[0] == 200
        assert up.connections == 1


FRAMES: dict[str, Callable[[int], bytes]] = {
    "no HTTP/2": lambda s: b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "a body without a head": lambda s: data(s, b"{}"),
    "an end without a head": lambda s: data(s, b""),
    "no status": lambda s: http2.frame(http2.HEADERS, s, http2.literal(("a", "b")), 5),
    "a status that is none": lambda s: http2.frame(
        http2.HEADERS, s, http2.literal((":status", "2x0")), 5
    ),
    "two statuses": lambda s: head(s, (":status", "200"), ends=True),
    "a name in upper case": lambda s: head(s, ("Content-Type", "a/b"), ends=True),
    "a field about connections": lambda s: head(s, ("connection", "close"), ends=True),
    "a line's end in a value": lambda s: head(s, ("a", "b\r\nc: d"), ends=True),
    "a change of protocols": lambda s: http2.frame(
        http2.HEADERS, s, http2.literal((":status", "101")), 5
    ),
    "less than it promised": lambda s: head(s, ("content-length", "9")) + data(s, b"{}"),
    "a block with an index beyond": lambda s: http2.frame(http2.HEADERS, s, b"\xff\x7f", 5),
    "a table that it was not given": lambda s: http2.frame(http2.HEADERS, s, b"\x3f\xe1\x1f", 5),
    "a push": lambda s: http2.frame(http2.PUSH_PROMISE, s, struct.pack(">I", 2) + b"\x82", 4),
    "an answer nobody has asked for": lambda s: head(s + 2, ends=True),
    "a stream of its own": lambda s: head(2, ends=True),
    "more padding than payload": lambda s: http2.frame(http2.HEADERS, s, b"\xff\x88", 13),
    "a ping of 7 bytes": lambda s: http2.frame(http2.PING, 0, b"1234567"),
    "a frame that is too large": lambda s: http2.frame(http2.DATA, s, bytes(16385)),
    "a window of nothing": lambda s: http2.frame(http2.WINDOW, 0, struct.pack(">I", 0)),
    "a window beyond all": lambda s: http2.frame(http2.WINDOW, 0, struct.pack(">I", 2**31 - 1)),
    "a setting that cannot be": lambda s: http2.frame(
        http2.SETTINGS, 0, struct.pack(">HI", 4, 2**31)
    ),
    "more than it promised, and than was asked for": lambda s: (
        head(s, ("content-length", "8000"))
        + data(s, bytes(7999), False)
        + data(s, bytes(8192), False)
    ),
    "more of a body than was asked for": lambda s: head(s) + data(s, bytes(8193), False),
    "a block that is cut by another frame": lambda s: (
        http2.frame(http2.HEADERS, s, http2.literal((":status", "200")), 0) + data(s, b"{}")
    ),
    "a head without an end": lambda s: (
        http2.frame(http2.HEADERS, s, http2.literal(("a", "b")), 0)
        + http2.frame(http2.CONTINUATION, s, http2.literal(*[("a", "b" * 100)] * 100), 0)
    ),
    "nothing but pings": lambda s: http2.frame(http2.PING, 0, bytes(8)) * 3000,
    "nothing but settings": lambda s: http2.frame(http2.SETTINGS, 0) * 3000,
}


def test_frames_that_are_no_answer(serve: Serve) -> None:
    """Row 51: the request ends with a reason, and the next one is served."""

    def answer(stream: int, body: bytes) -> bytes:
        what = json.loads(body)["what"]
        return head(stream) + data(stream, b"{}") if what == "good" else FRAMES[what](stream)

    def good() -> None:
        assert ask(server.port, {"model": "chat", "what": "good"})[::2] == (200, b"{}")

    with frames(answer) as up:
        server = serve(settings2(up.url, timeouts={"first_byte": 0.5}, retry={"attempts": 0}))
        for what in FRAMES:
            for _ in range(2):
                good()
                if what == "more of a body than was asked for":
                    with pytest.raises(http.client.IncompleteRead):
                        ask(server.port, {"model": "chat", "what": what})
                    continue
                code, why = said(ask(server.port, {"model": "chat", "what": what}))
                assert code in (502, 504), what
                assert why.startswith("upstream 'up'"), what
                if what == "a head without an end":  # nor is there one of the connection
                    before = up.connections
                    up.drop()
                    eventually(lambda n=before: up.connections > n, "a new connection")
        good()
        server.wait_until_idle()


def test_a_storm_of_resets(serve: Serve) -> None:
    """Row 51: each request hears of its own; one that was refused (7) is sent again, once."""

    def script(request: Request, peer: Peer) -> None:
        assert isinstance(peer, Stream)
        if "error" in request.document:
            peer.reset(request.document["error"])
        else:
            peer.send(plain(b"{}"))

    with upstream2(script) as up:
        server = serve(settings2(up.url))
        for error in (0, 1, 2, 7, 8, 11, 99):
            before = len(up.requests)
            document = {"model": "chat", "error": error}
            for code, why in at_once(80, lambda n, d=document: said(ask(server.port, d))):
                assert code == 502
                assert "the request" in why if error != 7 else "closed" in why
            assert ask(server.port, {"model": "chat"})[0] == 200
            assert (len(up.requests) - before > 81) == (error == 7)
        server.wait_until_idle()


def test_a_request_that_was_refused_alone(serve: Serve) -> None:
    """It is sent again on the connection that refused it, which takes others still."""

    def script(request: Request, peer: Peer) -> None:
        assert isinstance(peer, Stream)
        if len(up.requests) == 1:
            peer.reset(7)  # REFUSED_STREAM
        else:
            peer.send(plain(b"{}"))

    with upstream2(script) as up:
        server = serve(settings2(up.url))
        eventually(lambda: up.greeted >= 2, "its settings")
        for _ in range(3):
            assert ask(server.port, {"model": "chat"})[0] == 200
        assert (len(up.requests), up.connections) == (4, 1)


def test_it_goes_away_while_it_is_busy(serve: Serve) -> None:
    """Row 51. What it has looked at is answered; what it has not, and all that comes, goes to a new
    connection. No client sees anything of it."""
    all_here = threading.Barrier(20)
    is_first = threading.Event()

    def script(request: Request, peer: Peer) -> None:
        assert isinstance(peer, Stream)
        if "late" not in request.document and not is_first.is_set():
            number = all_here.wait(wire.TIMEOUT_S)
            if number == 0:
                peer.goaway(19)  # ten of the twenty
                is_first.set()
            assert is_first.wait(wire.TIMEOUT_S)
            if peer.number > 19:
                return  # nobody looks at it
        peer.send(plain(json.dumps(request.document).encode()))

    with upstream2(script) as up:
        server = serve(settings2(up.url))
        for number, (code, _, body) in enumerate(
            at_once(20, lambda n: ask(server.port, {"model": "chat", "n": n}))
        ):
            assert (code, json.loads(body).get("n")) == (200, number), body
        assert ask(server.port, {"model": "chat", "late": True})[0] == 200
        assert len(up.requests) == 31
        assert up.connections == 2


@pytest.mark.parametrize("which", ["first_byte", "silence", "events", "total", "deadline"])
def test_patience_ends(serve: Serve, which: str) -> None:
    """Row 51. The stream is reset, and the connection goes on where others are heard on it."""

    def script(request: Request, peer: Peer) -> None:
        if "quick" in request.document:
            peer.send(plain(b"{}"))
            return
        if which == "silence":
            peer.send(plain(bytes(7000))[:-1])
        if which == "events":
            peer.send(STREAM + chunk(event("a")))
        peer.ends()

    name = "silence" if which == "events" else which
    timeouts = {} if which == "deadline" else {name: 0.3}
    with upstream2(script) as up:
        server = serve(settings2(up.url, timeouts=timeouts))
        fields = {"Grpc-Timeout": "300m"} if which == "deadline" else {}
        code, _, text = ask(server.port, {"model": "chat"}, CHAT, **fields)
        assert code == (200 if which == "events" else 504)
        expected = {
            "first_byte": b"timeouts.first_byte",
            "silence": b"timeouts.first_byte",  # its client has no byte of it yet
            "events": b"timeouts.silence",
            "total": b"timeouts.total",
            "deadline": b"the request's own deadline",
        }
        assert expected[which] in text
        assert ask(server.port, {"model": "chat", "quick": True})[0] == 200
        server.wait_until_idle()


def test_a_connection_that_died_meanwhile_is_renewed(serve: Serve) -> None:
    with upstream2() as up:
        server = serve(settings2(up.url))
        for _ in range(5):
            codes = [one[0] for one in at_once(10, lambda n: ask(server.port, {"model": "chat"}))]
            assert codes == [200] * 10
            up.drop()


def test_an_upstream_that_is_a_lumen(serve: Serve, tmp_path: Path) -> None:
    """Two of them: what one sends the other takes."""
    with upstream2() as up:
        far = serve(settings2(up.url))
        near = serve(
            {
                "upstreams": {
                    "far": {
                        "urls": [f"http://127.0.0.1:{far.port}"],
                        "http2": "always",
                        "models": {"near": "chat"},
                    }
                }
            }
        )
        found = at_once(30, lambda n: ask(near.port, {"model": "near", "n": n}))
        for number, (code, _, body) in enumerate(found):
            asked = json.loads(body)["asked"]
            assert (code, asked) == (200, {"model": "org/there", "n": number})
        with Http(near.port) as peer:
            assert peer.query(web.get("/v2/models/near/ready")).code == 200
        near.stop()


# ---- asked twice ----


@pytest.mark.parametrize("http", ["http1", "http2"])
def test_who_waits_too_long_is_asked_for_elsewhere(serve: Serve, http: str) -> None:
    """Embeddings and rerank alone; the first answer counts, and the other request is given up. A
    bad answer of the second address leaves the first one its time."""
    given_up: list[str] = []
    calm = threading.Event()

    def script(name: str) -> Script:
        def answer(request: Request, peer: Peer) -> None:
            document = request.document
            if document.get("lost") == name:
                peer.ends()
            elif document.get("slow") == name:
                given_up.append(f"{name} {peer.ends()}")
            elif document.get("bad") == name:
                peer.send(plain(b"{}", "503 Busy"))
            elif document.get("late") == name:
                assert calm.wait(wire.TIMEOUT_S)
                peer.send(plain(name.encode()))
            else:
                peer.send(plain(name.encode()))

        return answer

    opened = upstream2 if http == "http2" else upstream
    with opened(script("a")) as a, opened(script("b")) as b:
        document = settings2(a.url, b.url, hedge=0.05, retry={"budget": 1.0})
        document["upstreams"]["up"]["http2"] = "always" if http == "http2" else "never"
        server = serve(document)
        # An address whose answer nobody waited for is as good as before.
        at_once(10, lambda n: ask(server.port, {"model": "chat", "lost": "a"}, "/rerank"))
        found = [ask(server.port, {"model": "chat"}, "/rerank") for _ in range(30)]
        assert {answer[2] for answer in found} == {b"a", b"b"}
        for number, path in enumerate(
            ("/v1/embeddings", "/rerank", "/v1/rerank", "/v1/embeddings")
        ):
            for slow, quick in ("ab", "ba"):
                found = at_once(
                    5, lambda n, s=slow, p=path: ask(server.port, {"model": "chat", "slow": s}, p)
                )
                assert {answer[2] for answer in found} == {quick.encode()}, number
        eventually(lambda: len(given_up) == slow_ones(a, b) - 40, "requests that are given up")
        assert all(one.endswith("True") for one in given_up)
        # Nobody else has an answer: the one that was asked first is waited for.
        threading.Timer(0.5, calm.set).start()
        for late, bad in ("ab", "ba"):
            asked = {"model": "chat", "late": late, "bad": bad}
            found = at_once(4, lambda n, d=asked: ask(server.port, d, "/v1/embeddings"))
            assert {(one[0], one[2]) for one in found} == {(200, late.encode())}
        # A chat is asked once.
        before = a_and_b(a, b)
        calm.clear()
        threading.Timer(0.5, calm.set).start()
        assert ask(server.port, {"model": "chat", "late": "a", "n": 1})[0] == 200
        assert a_and_b(a, b) == before + 1
        server.wait_until_idle()


def a_and_b(a: Upstream, b: Upstream) -> int:
    return len(a.requests) + len(b.requests)


def slow_ones(a: Upstream, b: Upstream) -> int:
    return sum("slow" in one.document for one in a.requests + b.requests)
