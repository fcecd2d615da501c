"""Models of upstreams: what goes there and comes back, what fails and who is told.

Rows 51 and 52 of the list of hostile inputs. The upstreams are the test's own (upstreams.py), on
whose every byte it decides.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import http2
import numpy as np
import pytest
import tls
import web
import wire
from conftest import Serve
from harness import Server, eventually
from operating import Reloaded, free_port
from upstreams import (
    END,
    STREAM,
    Peer,
    Request,
    Upstream,
    chunk,
    echo,
    event,
    plain,
    settings,
    upstream,
)  # fmt: skip
from upstreams2 import upstream2
from web import Http

CHAT = "/v1/chat/completions"
KEY = "sk-of-the-upstream"


def ask(
    port: int, document: Any, path: str = CHAT, **fields: str
) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own, its answer whole; chunks are taken apart."""
    peer = http.client.HTTPConnection("127.0.0.1", port, timeout=wire.TIMEOUT_S)
    try:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        peer.request("POST", path, body, {"Content-Type": "application/json", **fields})
        answer = peer.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, names, answer.read()
    finally:
        peer.close()


def said(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str]:
    """The code, and the sentence of an error in OpenAI's form."""
    error = json.loads(answer[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer[0], error["message"]


@pytest.fixture
def up() -> Iterator[Upstream]:
    with upstream() as one:
        yield one


# ---- what goes there, and what comes back ----


PATHS = (CHAT, "/v1/completions", "/v1/responses", "/v1/embeddings", "/rerank", "/v1/rerank")


def test_the_body_goes_on_in_the_name_there(serve: Serve, up: Upstream) -> None:
    """On each path; a name that is shorter, as long, longer."""
    names = {"chat": "c", "chat2": "chat2", "chat3": "org/there-20b:free"}
    server = serve(settings(up.url, models=names))
    for path in PATHS:
        for here, there in names.items():
            body = {"messages": [{"content": 'a "model": "chat" \u00fc'}], "model": here}
            code, fields, text = ask(server.port, body, path)
            assert (code, fields["content-type"]) == (200, "application/json")
            found = json.loads(text)
            assert (found["path"], found["asked"]) == (path, {**body, "model": there})


@pytest.mark.parametrize("protocol", ["http1", "http2", "tls"])
def test_one_answer_over_each_protocol(
    serve: Serve, up: Upstream, files: tls.Files, protocol: str
) -> None:
    document = settings(up.url)
    if protocol == "tls":
        document["server"] = {"tls": files.settings(), "drain_seconds": 5}
    server = serve(document)
    request = web.post(CHAT, json.dumps({"model": "chat", "n": 1}).encode())
    if protocol == "http1":
        with Http(server.port) as peer:
            answers = [peer.query(request) for _ in range(3)]
    else:
        to: int | socket.socket = server.port
        if protocol == "tls":
            to = tls.connect(tls.port_of(server), tls.context(files, ["h2"]))
        with http2.Http2(to) as peer2:
            answers = [peer2.query(request) for _ in range(3)]
    for answer in answers:
        assert answer.code == 200
        assert json.loads(answer.body)["asked"] == {"model": "org/there", "n": 1}
    assert up.connections <= 3  # those that were opened at the start, and none for a request


def test_keys_go_where_they_belong(
    serve: Serve, up: Upstream, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The client's is this server's; the upstream's goes there alone, and is in no log."""
    log = tmp_path / "access.log"
    document = settings(up.url, key_env="UP_KEY")
    token = "the-clients-own-token"
    server = serve(
        {
            **document,
            "server": {"keys": [{"name": "one", "token_env": "ONE", "models": ["chat"]}]},
            "log": {"access_path": str(log)},
        },
        extra_environment={"UP_KEY": KEY, "ONE": token},
    )
    assert ask(server.port, {"model": "chat"})[0] == 401
    code, _, text = ask(server.port, {"model": "chat"}, Authorization=f"Bearer {token}")
    assert code == 200
    (request,) = up.requests
    assert request.header("authorization") == f"Bearer {KEY}"
    assert token not in request.head
    assert json.loads(text)["asked"]["model"] == "org/there"
    up.close()
    again = ask(server.port, {"model": "chat"}, Authorization=f"Bearer {token}")
    assert again[0] == 502
    server.stop()
    assert KEY not in server.output + server.errors + log.read_text()
    assert token not in log.read_text()


def test_rights_and_rates_are_a_models(serve: Serve, up: Upstream) -> None:
    keys = [{"name": "none", "token_env": "NONE", "models": ["other"]}]
    document = settings(up.url, models={"chat": "a", "other": "b"})
    server = serve({**document, "server": {"keys": keys}}, extra_environment={"NONE": "n" * 20})
    found = said(ask(server.port, {"model": "chat"}, Authorization="Bearer " + "n" * 20))
    assert found == (403, "this key may not use model 'chat'")
    assert ask(server.port, {"model": "other"}, Authorization="Bearer " + "n" * 20)[0] == 200


def test_a_head_passes_but_for_what_is_the_connections(serve: Serve) -> None:
    fields = ("x-request-id: 7", "retry-after: 3", "keep-alive: timeout=5", "set-cookie: a=b",
              "x-ratelimit-remaining: 12", "proxy-authenticate: Basic", "alt-svc: h3")  # fmt: skip
    script = lambda _request, peer: peer.send(plain(b'{"error":1}', "429 Too Many", *fields))  # noqa: E731
    with upstream(script) as up:
        server = serve(settings(up.url))
        code, found, text = ask(server.port, {"model": "chat"})
    assert (code, text) == (429, b'{"error":1}')
    assert (found["x-request-id"], found["retry-after"]) == ("7", "3")
    assert found["x-ratelimit-remaining"] == "12"
    assert not {"set-cookie", "proxy-authenticate", "alt-svc"} & found.keys()
    assert found["keep-alive"] != "timeout=5"


def test_a_model_of_an_upstream_is_a_model(serve: Serve, up: Upstream) -> None:
    server = serve(settings(up.url))
    with Http(server.port) as peer:
        names = peer.query(web.get("/v1/models")).json()
        assert [one["id"] for one in names["data"]] == ["chat"]
        assert peer.query(web.get("/v2/models/chat")).json()["inputs"] == []
        assert peer.query(web.get("/v2/models/chat/ready")).code == 200
        assert peer.query(web.get("/v2/health/ready")).code == 200
        assert peer.query(web.get("/v2/models/chat/stats")).code == 200


def test_only_http_can_ask_for_it(serve: Serve, up: Upstream) -> None:
    server = serve(settings(up.url))
    with server.connect() as peer:
        reply = peer.ask(wire.frame(b"", rows=1))
    assert reply.status == wire.BAD_REQUEST
    assert "is served by an upstream: ask for it over HTTP" in reply.text
    with Http(server.port) as http:
        for path in ("/v1/models/chat:predict", "/invocations"):
            answer = http.query(web.post(path, b'{"instances": [1]}'))
            assert (answer.code, "served by an upstream" in answer.error) == (400, True)
        gzip = http.query(web.post(CHAT, b"x", "Content-Encoding: gzip"))
        assert gzip.code == 415
    assert up.requests == []


def test_tensors_go_to_another_lumen(serve: Serve, tmp_path: Path) -> None:
    """As values in JSON and as bytes behind it, in both directions."""
    entry = {"name": "double", "path": str(graphs.double(tmp_path / "double.onnx"))}
    behind = serve({"models": [entry]})
    url = f"http://127.0.0.1:{behind.port}"
    front = serve({"upstreams": {"up": {"urls": [url], "models": {"twice": "double"}}}})
    x = np.arange(32, dtype="<f4").reshape(2, 16)
    with Http(front.port) as peer:
        for binary in (False, True):
            answer = peer.query(web.infer("twice", {"x": x}, binary=binary))
            np.testing.assert_array_equal(answer.array("y"), x + x)
    front.stop()


# ---- streams ----


def read_until(peer: socket.socket, held: bytes, text: bytes) -> bytes:
    while text not in held:
        more = peer.recv(65536)
        assert more, held
        held += more
    return held


@pytest.mark.parametrize("there", ["http1", "http2"])
@pytest.mark.parametrize("protocol", ["http1", "http2"])
def test_each_event_passes_before_the_next_one_is_there(
    serve: Serve, protocol: str, there: str
) -> None:
    """The upstream says each event only when the client has had the one before."""
    had = threading.Semaphore(0)

    def script(_request: Request, peer: Peer) -> None:
        peer.send(STREAM)
        for number in range(5):
            assert had.acquire(timeout=wire.TIMEOUT_S)
            peer.send(chunk(event(f"n{number}")))
        assert had.acquire(timeout=wire.TIMEOUT_S)
        peer.send(END)

    is_http2 = there == "http2"
    with upstream2(script) if is_http2 else upstream(script) as up:
        server = serve(settings(up.url, http2="always" if is_http2 else "never"))
        request = web.post(CHAT, b'{"model": "chat", "stream": true}')
        if protocol == "http1":
            with socket.create_connection(("127.0.0.1", server.port), wire.TIMEOUT_S) as peer:
                peer.sendall(request)
                held = read_until(peer, b"", b"\r\n\r\n")
                assert b"transfer-encoding: chunked" in held.lower()
                for number in range(5):
                    had.release()
                    held = read_until(peer, held, event(f"n{number}"))
                had.release()
                assert read_until(peer, held, b"0\r\n\r\n").endswith(b"\r\n0\r\n\r\n")
        else:
            with http2.Http2(server.port) as peer2:
                stream = peer2.send(request)
                for number in range(5):
                    had.release()
                    while event(f"n{number}") not in peer2.body_of(stream):
                        peer2.read()
                had.release()
                (answer,) = peer2.wait([stream])
                assert answer.body == b"".join(event(f"n{n}") for n in range(5))


def test_a_client_without_chunks_reads_to_the_end(serve: Serve) -> None:
    def script(_request: Request, peer: Peer) -> None:
        peer.send(STREAM + chunk(event("a")) + chunk(event("b")) + END)

    with upstream(script) as up:
        server = serve(settings(up.url))
        with socket.create_connection(("127.0.0.1", server.port), wire.TIMEOUT_S) as peer:
            body = b'{"model": "chat"}'
            head = f"POST {CHAT} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
            peer.sendall(head.encode() + body)
            text = b"".join(iter(lambda: peer.recv(65536), b""))
    head, _, body = text.partition(b"\r\n\r\n")
    assert body == event("a") + event("b")
    assert b"chunked" not in head


@pytest.mark.parametrize("last", ["chunks", "close"])
def test_a_slow_reader_is_waited_for(serve: Serve, last: str) -> None:
    """Row 51. What it does not take is not read either: the upstream has to wait."""
    total, sent = 64 << 20, 0
    piece = bytes(range(256)) * 64

    def script(_request: Request, peer: Peer) -> None:
        nonlocal sent
        chunked = last == "chunks"
        peer.send(STREAM if chunked else b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\n\r\n")
        for _ in range(total // len(piece)):
            peer.send(chunk(piece) if chunked else piece)
            sent += len(piece)
        peer.send(END if chunked else b"")
        if not chunked:
            peer.cut()

    with upstream(script) as up:
        server = serve(settings(up.url))
        before = server.rss_bytes
        peer = http.client.HTTPConnection("127.0.0.1", server.port, timeout=wire.TIMEOUT_S)
        peer.request("POST", CHAT, b'{"model": "chat"}')
        seen = [-1]

        def stands_still() -> bool:
            seen.append(sent)
            time.sleep(0.2)
            return sent > 0 and seen[-1] == sent

        eventually(stands_still, "an upstream that waits")
        assert sent < total
        assert server.rss_bytes - before < 8 << 20
        answer = peer.getresponse()
        assert answer.read() == piece * (total // len(piece))
        peer.close()


def test_a_client_that_leaves_takes_its_request_along(serve: Serve) -> None:
    gone: list[str] = []

    def script(request: Request, peer: Peer) -> None:
        when = request.document["when"]
        if when == "events":
            peer.send(STREAM + chunk(event("a")))
        if when == "body":
            peer.send(plain(bytes(100))[:-50])
        assert peer.ends()
        gone.append(when)

    with upstream(script) as up:
        server = serve(settings(up.url))
        for count, when in enumerate(("head", "body", "events"), 1):
            peer = socket.create_connection(("127.0.0.1", server.port), wire.TIMEOUT_S)
            peer.sendall(web.post(CHAT, json.dumps({"model": "chat", "when": when}).encode()))
            eventually(lambda n=count: len(up.requests) == n, "a request")
            if when == "events":
                read_until(peer, b"", event("a"))
            peer.close()
            eventually(lambda n=count: len(gone) == n, "the end of the request there")
        eventually(lambda: server.figures().io["upstream_gone"] == 3, "three that left")


# ---- TLS ----


def test_requests_over_tls(serve: Serve, files: tls.Files) -> None:
    """Answers and streams; the connections after the first ones come back with a ticket."""

    def script(request: Request, peer: Peer) -> None:
        if request.document.get("stream"):
            peer.send(STREAM + chunk(event("a")))
            peer.send(chunk(event("b")) + END)
        else:
            echo(request, peer)

    with upstream(script, tls=tls.server_context(files)) as up:
        server = serve(settings(up.url, up.url.replace("127.0.0.1", "localhost"), ca=files.ca))
        for _ in range(20):
            assert ask(server.port, {"model": "chat"})[0] == 200
        assert ask(server.port, {"model": "chat", "stream": True})[2] == event("a") + event("b")
        up.drop()
        for _ in range(10):
            assert ask(server.port, {"model": "chat"})[0] == 200
        large = {"model": "chat", "text": "x" * (4 << 20)}
        assert json.loads(ask(server.port, large)[2])["asked"]["text"] == large["text"]
        assert up.resumed > 0
    assert server.figures().io["upstream_failed"] == 0


def test_an_upstream_asks_for_a_certificate(serve: Serve, files: tls.Files) -> None:
    context = tls.server_context(files, client_ca=files.ca)
    with upstream(tls=context) as up:
        known = serve(settings(up.url, ca=files.ca, cert=files.cert, cert_key=files.key))
        assert ask(known.port, {"model": "chat"})[0] == 200
        unknown = serve(settings(up.url, ca=files.ca))
        assert ask(unknown.port, {"model": "chat"})[0] == 502


@pytest.mark.once
def test_certificates_that_are_not_trusted(serve: Serve, files: tls.Files, tmp_path: Path) -> None:
    """Row 51. Of an authority nobody knows, for another name, expired, none at all: no byte of a
    request goes there."""
    past = datetime.datetime.now() - datetime.timedelta(days=1)
    others = {
        "another authority": (tls.make(tmp_path / "other"), "certificate verify failed"),
        "another name": (
            tls.Files(files.authority, files.ca, *tls.write(tmp_path, files.authority, "n", "a.b")),
            "expected a certificate for 127.0.0.1",
        ),
        "expired": (
            tls.Files(
                files.authority, files.ca, *tls.write(tmp_path, files.authority, "o", until=past)
            ),
            "certificate verify failed",
        ),
    }
    for what, (shown, expected) in others.items():
        with upstream(tls=tls.server_context(shown)) as up:
            server = serve(settings(up.url, ca=files.ca, key_env="UP_KEY"),
                           extra_environment={"UP_KEY": KEY})  # fmt: skip
            code, message = said(ask(server.port, {"model": "chat"}))
            assert (code, expected in message) == (502, True), (what, message)
            assert up.requests == []
            server.stop()
    with upstream(greeting=plain(b"{}", "400 Bad Request")) as up:
        server = serve(settings(up.url.replace("http:", "https:"), ca=files.ca))
        code, message = said(ask(server.port, {"model": "chat"}))
        assert (code, "no connection with TLS" in message) == (502, True), message
        assert up.requests == []


# ---- what fails ----


def test_nobody_there_and_then_somebody(serve: Serve) -> None:
    """Row 51."""
    port = free_port()
    server = serve(settings(f"http://127.0.0.1:{port}"))
    found = said(ask(server.port, {"model": "chat"}))
    assert found == (502, "upstream 'up' cannot be reached: Connection refused")
    with Http(server.port) as peer:
        assert peer.query(web.get("/v2/health/ready")).code == 200
        assert peer.query(web.get("/v2/models/chat/ready")).code == 503
    with upstream(port=port):
        assert ask(server.port, {"model": "chat"})[0] == 200


REPLIES = {
    "length": plain(b'{"a": 1}'),
    "chunks": STREAM + chunk(event("a")) + chunk(event("b")) + END,
}


@pytest.mark.parametrize("form", REPLIES)
def test_an_answer_that_is_cut_at_every_byte(serve: Serve, form: str) -> None:
    """Row 51. The client has an error in the place of the answer, a stream that says why it ends,
    or less than the head promised; and the next request is served."""
    reply = REPLIES[form]

    def script(request: Request, peer: Peer) -> None:
        peer.send(reply[: request.document["bytes"]])
        peer.cut()

    with upstream(script) as up:
        server = serve(settings(up.url))
        head = reply.index(b"\r\n\r\n") + 4
        for count in range(len(reply)):
            try:
                code, _, body = ask(server.port, {"model": "chat", "bytes": count})
            except http.client.IncompleteRead:
                assert form == "length"
                continue
            if count < head or form == "length":
                assert (code, b"closed the connection" in body) == (502, True), count
                continue
            assert code == 200
            events = body.decode().split("\n\n")
            error = json.loads(events[-2].strip().removeprefix("data: "))["error"]
            assert error["type"] == "server_error"
        assert ask(server.port, {"model": "chat", "bytes": len(reply)})[0] == 200


GARBAGE = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "another HTTP": b"HTTP/2 200\r\n\r\n",
    "no status": b"HTTP/1.1 2xx OK\r\n\r\n",
    "a field without a name": b"HTTP/1.1 200 OK\r\n: a\r\n\r\n",
    "a field without a colon": b"HTTP/1.1 200 OK\r\nabc\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "a length that is none": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    "another coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5000,
    "a chunk that is none": STREAM + b"xyz\r\n",
    "a NUL": b"HTTP/1.1 200 OK\r\na: \0\r\n\r\n",
}


def test_answers_that_are_none(serve: Serve) -> None:
    """Row 51: an upstream that says anything at all hurts nobody."""

    def script(request: Request, peer: Peer) -> None:
        peer.send(GARBAGE[request.document["what"]])
        peer.ends()

    with upstream(script) as up:
        server = serve(settings(up.url))
        for what in GARBAGE:
            for _ in range(2):
                code, _, text = ask(server.port, {"model": "chat", "what": what})
                error = json.loads(text.decode().strip().removeprefix("data: "))["error"]
                assert code == 502 or (code, what) == (200, "a chunk that is none")
                assert error["message"].startswith("upstream 'up': "), what
                assert "expected" in error["message"], what


@pytest.mark.parametrize("which", ["first_byte", "silence", "events", "total", "deadline"])
def test_patience_ends(serve: Serve, which: str) -> None:
    """Row 51."""

    def script(_request: Request, peer: Peer) -> None:
        if which == "silence":
            peer.send(plain(bytes(20000))[:-1])
        if which == "events":
            peer.send(STREAM + chunk(event("a")))
        peer.ends()

    name = "silence" if which == "events" else which
    timeouts = {} if which == "deadline" else {name: 0.3}
    with upstream(script) as up:
        server = serve(settings(up.url, timeouts=timeouts))
        fields = {"Grpc-Timeout": "300m"} if which == "deadline" else {}
        if which == "silence":
            with pytest.raises(http.client.IncompleteRead):
                ask(server.port, {"model": "chat"})
            return
        code, _, text = ask(server.port, {"model": "chat"}, CHAT, **fields)
        if which == "events":
            assert code == 200
            first, second, _ = text.decode().split("\n\n")
            assert json.loads(first.removeprefix("data: ")) == {"text": "a"}
            assert "timeouts.silence" in second
            return
        expected = {
            "first_byte": "gave no answer in time (timeouts.first_byte)",
            "total": "timeouts.total",
            "deadline": "the request's own deadline",
        }
        assert code == 504
        assert expected[which] in json.loads(text)["error"]["message"]
        if which == "deadline":
            timeout = up.requests[0].header("grpc-timeout")
            assert timeout is not None
            assert 0 < int(timeout.removesuffix("u")) <= 300_000


def test_what_is_left_of_a_deadline_goes_along(serve: Serve, up: Upstream) -> None:
    """In microseconds, whatever the client counts in, while eight digits are enough for that."""
    server = serve(settings(up.url))
    for given, most, unit in (
        ("90S", 90_000_000, "u"), ("50000m", 50_000_000, "u"), ("1M", 60_000_000, "u"),
        ("1000S", 1_000_000, "m"), ("1H", 3_600_000, "m"),
    ):  # fmt: skip
        assert ask(server.port, {"model": "chat"}, CHAT, **{"Grpc-Timeout": given})[0] == 200
        left = up.requests[-1].header("grpc-timeout")
        assert left is not None
        assert len(left) <= 9
        assert most // 1000 < int(left.removesuffix(unit)) <= most, (given, left)


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("protocol", ["http1", "http2"])
def test_the_trace_of_a_request_goes_on(serve: Serve, up: Upstream, protocol: str) -> None:
    """Each request's own, over one connection; what is malformed or too long does not."""
    cases: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"traceparent": TRACE}, {"traceparent": TRACE}),
        ({}, {}),
        (
            {"traceparent": TRACE, "tracestate": "a=1,b=2", "x-request-id": "7f"},
            {"traceparent": TRACE, "tracestate": "a=1,b=2", "x-request-id": "7f"},
        ),
        ({"x-request-id": "only an id"}, {"x-request-id": "only an id"}),
        ({"tracestate": "a=1"}, {}),
        ({"x-request-id": "i" * 129, "traceparent": TRACE}, {"traceparent": TRACE}),
        ({"tracestate": "s" * 513, "traceparent": TRACE}, {"traceparent": TRACE}),
        ({"traceparent": "cc" + TRACE[2:] + "-more"}, {"traceparent": "cc" + TRACE[2:] + "-more"}),
    ]
    wrong = [TRACE[:-1], "ff" + TRACE[2:], TRACE.upper(), TRACE.replace("4", "0-"), TRACE + "-more"]
    wrong += [f"00-{'0' * 32}-00f067aa0ba902b7-01", TRACE.replace("00f067aa0ba902b7", "0" * 16)]
    cases += [({"traceparent": one, "tracestate": "a=1"}, {}) for one in wrong]
    server = serve(settings(up.url))
    sender: Any = Http(server.port) if protocol == "http1" else http2.Http2(server.port)
    with sender as peer:
        for given, passed in cases:
            lines = [f"{name}: {value}" for name, value in given.items()]
            assert peer.query(web.post(CHAT, b'{"model": "chat"}', *lines)).code == 200
            asked = up.requests[-1]
            names = ("traceparent", "tracestate", "x-request-id")
            found = {name: asked.header(name) for name in names}
            assert {name: value for name, value in found.items() if value} == passed, given


def test_more_than_may_be_in_flight(serve: Serve) -> None:
    go = threading.Event()

    def script(_request: Request, peer: Peer) -> None:
        assert go.wait(wire.TIMEOUT_S)
        peer.send(plain(b"{}"))

    with upstream(script) as up:
        server = serve(settings(up.url, in_flight=2))
        with Http(server.port) as one, Http(server.port) as two:
            for peer in (one, two):
                peer.send(web.post(CHAT, b'{"model": "chat"}'))
            eventually(lambda: len(up.requests) == 2, "two requests")
            code, fields, _ = answer = ask(server.port, {"model": "chat"})
            assert said(answer) == (
                503,
                "upstream 'up' has 2 requests in flight already (in_flight)",
            )
            assert (code, fields["retry-after"]) == (503, "1")
            go.set()
            assert [peer.answer().code for peer in (one, two)] == [200, 200]


def test_a_request_that_failed_goes_to_another_address(serve: Serve, up: Upstream) -> None:
    """One refuses connections, then one says that it is down, then one is busy: in each case all
    requests are answered by the other."""
    answers = {
        "down": plain(b"{}", "503 Down"),
        "bad": plain(b"{}", "502 Bad"),
        "busy": plain(b"{}", "429 Busy", "retry-after: 1"),
    }
    mode = "down"
    script = lambda _request, peer: peer.send(answers[mode])  # noqa: E731
    with upstream(script) as other:
        retry = {"budget": 1.0}
        server = serve(settings(up.url, other.url, retry=retry))
        for mode in answers:  # noqa: B007 -- the script reads it
            assert {ask(server.port, {"model": "chat"})[0] for _ in range(10)} == {200}
        other.close()
        assert {ask(server.port, {"model": "chat"})[0] for _ in range(10)} == {200}
    assert server.figures().io["upstream_retries"] > 0
    assert server.figures().io["upstream_failed"] == 0


def test_retries_are_a_share_of_all(serve: Serve) -> None:
    script = lambda _request, peer: peer.send(plain(b"{}", "503 Down"))  # noqa: E731
    with upstream(script) as one, upstream(script) as two:
        server = serve(settings(one.url, two.url, retry={"budget": 0.2}))
        for _ in range(100):
            assert ask(server.port, {"model": "chat"})[0] == 503
        asked = len(one.requests) + len(two.requests)
    # Each I/O thread has three for nothing.
    threads = 2 * 3 + 2
    assert 100 < asked <= 120 + threads


def test_a_connection_that_died_meanwhile_is_renewed(serve: Serve, up: Upstream) -> None:
    """The upstream closes idle connections as requests come: none of them is lost."""
    server = serve(settings(up.url))
    for _ in range(20):
        assert ask(server.port, {"model": "chat"})[0] == 200
        up.drop()
    assert server.figures().io["upstream_failed"] == 0


def test_what_is_answered_unasked(serve: Serve) -> None:
    """Row 51. Bytes behind an answer are nobody's: the connection is closed, the next request has
    its own answer."""

    def script(request: Request, peer: Peer) -> None:
        number = str(request.document["n"]).encode()
        peer.send(plain(number) + plain(b"wrong"))

    with upstream(script) as up:
        server = serve(settings(up.url))
        for number in range(10):
            assert ask(server.port, {"model": "chat", "n": number})[2] == str(number).encode()


WRONG = {
    "no JSON": (b"model", "no JSON object"),
    "nothing": (b"", "it is empty"),
    "an array": (b"[]", "no JSON object"),
    "no model": (b'{"messages": []}', "model: expected the name of a model"),
    "two models": (b'{"model": "chat", "model": "chat"}', "found the field twice"),
    "no name": (b'{"model": 1}', "model: expected a string"),
    "null": (b'{"model": null}', "model: expected a string"),
    "an escaped field": (b'{"model": "chat", "mod\\u0065l": "other"}', "without escapes"),
    "a broken escape": (b'{"model": "ch\\x"}', "escape"),
    "no end": (b'{"model": "chat"', "not JSON"),
    "no UTF-8": (b'{"model": "chat\xff"}', "UTF-8"),
    "something behind": (b'{"model": "chat"} x', "expected the end"),
    "a control": (b'{"model": "chat\n"}', "control"),
}


def test_bodies_that_name_no_model(serve: Serve, up: Upstream) -> None:
    """Row 52: what two readers could understand differently reaches no upstream."""
    server = serve(settings(up.url))
    for what, (body, expected) in WRONG.items():
        code, message = said(ask(server.port, body))
        assert (code, expected in message) == (400, True), (what, message)
    for name in ("other", "x" * (1 << 20)):
        code, message = said(ask(server.port, {"model": name}))
        assert code == 404
        assert message.startswith("model '")
        assert len(message) < 200
    assert up.requests == []


def test_names_may_have_escapes(serve: Serve, up: Upstream) -> None:
    server = serve(settings(up.url, models={"a.b": "there"}))
    assert ask(server.port, b'{"model": "\\u0061.b", "x": "\\u00fc"}')[0] == 200
    assert up.requests[0].document == {"model": "there", "x": "\u00fc"}


def test_answers_in_flight_are_passed_before_the_end(serve: Serve) -> None:
    go = threading.Event()

    def script(_request: Request, peer: Peer) -> None:
        peer.send(STREAM + chunk(event("a")))
        assert go.wait(wire.TIMEOUT_S)
        peer.send(chunk(event("b")) + END)

    with upstream(script) as up:
        server = serve(settings(up.url))
        with socket.create_connection(("127.0.0.1", server.port), wire.TIMEOUT_S) as peer:
            peer.sendall(web.post(CHAT, b'{"model": "chat"}'))
            held = read_until(peer, b"", event("a"))
            server.terminate()
            time.sleep(0.3)
            go.set()
            assert event("b") in read_until(peer, held, b"0\r\n\r\n")
        server.expect_clean_end()


@pytest.mark.once
def test_openais_own_client(serve: Serve) -> None:
    openai = pytest.importorskip("openai")

    def script(request: Request, peer: Peer) -> None:
        if request.document.get("stream"):
            peer.send(STREAM)
            for text in ("Hel", "lo"):
                delta = {"choices": [{"index": 0, "delta": {"content": text}}], "id": "1",
                         "object": "chat.completion.chunk", "created": 1, "model": "m"}  # fmt: skip
                peer.send(chunk(b"data: " + json.dumps(delta).encode() + b"\n\n"))
            peer.send(chunk(b"data: [DONE]\n\n") + END)
            return
        message = {"role": "assistant", "content": "Hello"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        peer.send(plain(json.dumps({"id": "1", "object": "chat.completion", "created": 1,
                                    "model": "m", "choices": [choice]}).encode()))  # fmt: skip

    with upstream(script) as up:
        server = serve(settings(up.url))
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{server.port}/v1", api_key="unused", max_retries=0
        )
        messages = [{"role": "user", "content": "hi"}]
        whole = client.chat.completions.create(model="chat", messages=messages)
        assert whole.choices[0].message.content == "Hello"
        pieces = client.chat.completions.create(model="chat", messages=messages, stream=True)
        assert "".join(one.choices[0].delta.content or "" for one in pieces) == "Hello"
        up.close()
        with pytest.raises(openai.InternalServerError, match="cannot be reached"):
            client.chat.completions.create(model="chat", messages=messages)
        client.close()


def test_settings_that_cannot_be(serve: Serve, tmp_path: Path) -> None:
    from lumen_uring.errors import ConfigError
    from lumen_uring.serving.upstreams import addresses, key
    from lumen_uring.settings.upstreams import UpstreamConfig

    entry: dict[str, Any] = {"urls": ["http://no.such.host.invalid"], "models": {"a": "b"}}
    with pytest.raises(ConfigError, match="expected a host that has an address"):
        addresses("up", UpstreamConfig.model_validate(entry))
    file = tmp_path / "key"
    config = UpstreamConfig.model_validate({**entry, "key_file": str(file)})
    with pytest.raises(ConfigError, match="No such file"):
        key("up", config)
    file.write_bytes(b"two\nlines\n")
    with pytest.raises(ConfigError, match="expected one line") as caught:
        key("up", config)
    assert "two" not in str(caught.value)
    file.write_bytes(b"good\n")
    assert key("up", config) == "good"


# ---- addresses that come and go ----


@pytest.mark.once
def test_a_reload_moves_an_upstream(serve: Serve, tmp_path: Path) -> None:
    """Requests go to the addresses of now, those in flight end where they are, and no connection
    stays open to an address that went; as often as one likes."""
    go = threading.Event()

    def slow(_request: Request, peer: Peer) -> None:
        peer.send(STREAM + chunk(event("first")))
        assert go.wait(wire.TIMEOUT_S)
        peer.send(chunk(event("last")) + END)

    with upstream(slow) as first, contextlib.ExitStack() as stack:
        document = settings(first.url)
        one = Reloaded(serve, tmp_path, document)
        port = one.server.port
        answers: list[Any] = []
        asks = threading.Thread(target=lambda: answers.append(ask(port, {"model": "chat"})))
        asks.start()
        eventually(lambda: first.requests, "a request")
        others = [stack.enter_context(upstream()) for _ in range(5)]
        for turn in range(40):
            other = others[turn % len(others)]
            said = one.reload({**document, "upstreams": up_at(document, other.url)})
            assert "upstreams.up.urls" in said, said
            place = f"Upstream up is at 127.0.0.1:{other.port} now"
            eventually(lambda s=place: one.server.errors.rstrip().endswith(s + "."), place)
            before = len(other.requests)
            assert ask(port, {"model": "chat"})[0] == 200
            assert len(other.requests) > before
        assert len(first.requests) == 1
        go.set()
        asks.join()
        assert answers[0][0] == 200
        assert b"last" in answers[0][2]
        for at in (first, others[-1]):  # also back to where it was at the start
            one.reload({**document, "upstreams": up_at(document, at.url)})
            place = f"Upstream up is at 127.0.0.1:{at.port} now"
            eventually(lambda s=place: one.server.errors.rstrip().endswith(s + "."), place)
        eventually(lambda: is_left(one.server, others[-1].port), "connections to one address")
        for wrong, why in (
            (up_at(document, "https://127.0.0.1:1"), "expected addresses without TLS"),
            (up_at(document, "http://no-such-host.invalid:1"), "no-such-host.invalid"),
        ):
            one.reload({**document, "upstreams": wrong})
            eventually(lambda w=why: w in one.server.errors, why)
        assert ask(port, {"model": "chat"})[0] == 200
        assert "upstreams cannot change" in one.reload(settings(first.url, in_flight=2))


def up_at(document: dict[str, Any], *urls: str) -> dict[str, Any]:
    return {"up": {**document["upstreams"]["up"], "urls": list(urls)}}


def is_left(server: Server, port: int) -> bool:
    """Whether all connections to upstreams are to that port."""
    ports = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_, inode = line.split()[:10]
        is_ours = inode in inodes_of(server.pid) and int(local[-4:], 16) != server.port
        if is_ours and state == "01":  # established
            ports.add(int(remote[-4:], 16))
    return ports == {port}


def inodes_of(pid: int) -> set[str]:
    """Of the sockets that a process has open."""
    found = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(one.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found
