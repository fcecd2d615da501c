"""HTTP clients who mean no good, or are only odd: floods, dribbles, tricks with what comes back.

Each test runs in a `town`: afterwards nothing may be left behind, and its canary must live.
"""

from __future__ import annotations

import contextlib
import socket
import time

import numpy as np
import pytest
import web
import wire
from harness import eventually
from hostile import DECOY, GOOD, INFER, PROTOCOL, head
from hostile_json import BODIES
from town import GOOD_REQUEST, Town, X, send_in_pieces, usable
from web import Http, get, post

# ---- row 25, 31, 34: floods ----

CLOSE_WAIT = 8  # in the kernel's tcp_states.h; 7 would be after a reset
CHUNKED = head("Transfer-Encoding: chunked")
FLOODS: dict[str, bytes] = {
    "a method of 1 MiB": b"G" * (1 << 20),
    "a target of 1 MiB": b"GET /" + b"a" * (1 << 20),
    "a header of 1 MiB": get("/v2")[:-2] + b"A: " + b"b" * (1 << 20),
    "headers without an end": get("/v2")[:-2] + b"A: b\r\n" * 200_000,
    "a chunk extension of 1 MiB": CHUNKED + b"5;" + b"e" * (1 << 20),
    "zeros of a chunk size": CHUNKED + b"0" * (1 << 20),
    "trailers without an end": CHUNKED + b"0\r\n" + b"A: b\r\n" * 200_000,
    "a million chunks": CHUNKED + b"1\r\n \r\n" * 1_000_000,
    "a body beyond the limit": post(INFER, DECOY * 40_000),
    "chunks beyond the limit": CHUNKED + web.chunked(DECOY * 40_000, 999),
    "empty lines": b"\r\n" * 500_000,
}  # fmt: skip


@pytest.mark.parametrize("name", FLOODS)
def test_floods(town: Town, name: str) -> None:
    """Refused once, and then dropped: whoever goes on sending loses the connection."""
    before, rss = town.figures(), town.server.rss_bytes
    for _ in range(5):
        with Http(town.server.port) as http:
            send_in_pieces(http, FLOODS[name], 20)
            with contextlib.suppress(OSError):  # ENOTCONN after a reset
                http.finish()
            rest = http.expect_closed()
        # A reset may have overtaken the answer; a second one would be a bug.
        assert rest.count(b"HTTP/1.1 ") <= 1, rest[:2000]
        assert not rest or rest.startswith(b"HTTP/1.1 4") or rest.startswith(b"HTTP/1.1 501")
    town.settle(before, 5)
    assert town.server.rss_bytes <= rss + (2 << 20)


@pytest.mark.parametrize(
    ("code", "framing"), [(413, "Content-Length: 1073741824"), (404, "Transfer-Encoding: chunked")]
)
def test_a_refusal_reaches_a_client_that_is_still_sending(
    town: Town, code: int, framing: str
) -> None:
    """What comes behind it is read for a while: a close over unread bytes would be a reset."""
    refused = f"POST /v2/models/no/infer HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n"
    with Http(town.server.port) as http:
        http.send(refused.encode() + b"ffffff\r\n" + bytes(60_000))
        assert http.answer().code == code
        http.expect_end()
        eventually(lambda: town.figures().connections_open == 1, "only the canary is left")
        info = http.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        assert info[0] == CLOSE_WAIT
    # A client that never stops loses its connection; Linux keeps what came before the reset.
    with Http(town.server.port) as http:
        http.send(refused.encode())
        with pytest.raises(ConnectionError):
            http.send(bytes(400 << 20))
        assert http.answer().code == code


def test_bad_requests_cost_no_memory(town: Town) -> None:
    cases = [case for case in PROTOCOL if case.row in (25, 26, 27) and len(case.data) < 12_000]

    def once() -> None:
        for case in cases:
            with Http(town.server.port) as http:
                http.send(case.data)
                assert http.answer().code == 400, str(case)

    once()
    before = town.server.rss_bytes
    for _ in range(3):
        once()
    assert town.server.rss_bytes <= before + (1 << 20)


def test_a_body_without_its_last_chunk(town: Town) -> None:
    """Nothing is inferred from half a body, and nobody is answered."""
    for data in (
        CHUNKED + b"%x\r\n" % len(GOOD) + GOOD + b"\r\n",
        CHUNKED + b"%x\r\n" % len(GOOD) + GOOD + b"\r\n0\r\n",
        post(INFER, GOOD)[:-1],
        GOOD_REQUEST[:-1],
        GOOD_REQUEST[:-65],
    ):
        before = town.figures()
        with Http(town.server.port) as http:
            http.send(data)
            http.finish()
            assert http.expect_closed() == b""
        town.settle(before, 1)
        assert town.figures().since(before)["io.requests_gone"] == 1


# ---- row 33: slow heads ----


def test_heads_that_come_a_byte_at_a_time(town: Town) -> None:
    """More of them than the server has room for: the others are served, in pieces or whole."""
    slow = [Http(town.server.port) for _ in range(300)]
    try:
        for lap in range(4):
            for http in slow:
                with contextlib.suppress(ConnectionError):
                    http.send(
                        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: "[lap * 10 : lap * 10 + 10]
                    )
            with Http(town.server.port) as other:
                usable(other)
                send_in_pieces(other, GOOD_REQUEST, 40)
                assert other.answer().code == 200
        codes = []
        for http in slow:
            with contextlib.suppress(ConnectionError):
                http.send(b"b\r\n\r\n")
            try:
                answer = http.answer()
            except (wire.Closed, ConnectionError):
                continue
            codes.append(answer.code)
            assert answer.code in (200, 408)
        assert codes.count(200) > 100, codes
    finally:
        for http in slow:
            http.close()


def test_connections_with_half_a_head(town: Town) -> None:
    guests = [Http(town.server.port) for _ in range(600)]
    try:
        for number, http in enumerate(guests):
            http.send(GOOD_REQUEST[: number % 200 + 1])
        with Http(town.server.port) as other:
            send_in_pieces(other, GOOD_REQUEST, 10)
            assert other.answer().code == 200
    finally:
        for http in guests:
            http.close()


# ---- row 36: one behind the other ----


def test_a_thousand_in_a_row_until_one_ends_the_connection(town: Town) -> None:
    before = town.figures()
    good = [case for case in BODIES if len(case.data) < 2000]
    data, codes = b"", []
    for number in range(1000):
        case = good[number % len(good)]
        data += GOOD_REQUEST if number % 2 else case.data
        codes.append((200,) if number % 2 else case.codes)
    with Http(town.server.port) as http:
        http.send(data + b"garbage\r\n\r\n" + DECOY * 100)
        for number, wanted in enumerate(codes):
            assert http.answer().code in wanted, number
        http.expect_refusal(400, 501)
    town.settle(before, 1001)


@pytest.mark.parametrize(
    "garbage",
    [b"\0\0\0\0", b"LMN1" + bytes(28), b"\x16\x03\x01", b"}\r\n", b"GET\r\n", bytes(5000)],
)
def test_garbage_behind_a_good_request(town: Town, garbage: bytes) -> None:
    with Http(town.server.port) as http:
        http.send(GOOD_REQUEST + garbage + b"\r\n\r\n" + DECOY)
        assert http.answer().document["id"] == "good"
        http.expect_refusal(400, 501)


@pytest.mark.parametrize(
    "lines",
    [
        ["Connection: close, keep-alive"], ["Connection: keep-alive, close"],
        ["Connection: keep-alive", "Connection: close"],
        ["Connection: close", "Connection: keep-alive"], ["connection: CLOSE"],
    ],
)  # fmt: skip
def test_close_counts_more_than_keep_alive(town: Town, lines: list[str]) -> None:
    """RFC 9112 9.6."""
    before = town.figures()
    with Http(town.server.port) as http:
        http.send(web.infer("double", {"x": X}, headers=lines) + DECOY * 2)
        assert http.answer().closes
        assert http.expect_closed() == b""
    town.settle(before, 1)


@pytest.mark.parametrize(
    "lines",
    [
        ["Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAoAAA"],
        ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
         "Sec-WebSocket-Version: 13"],
        ["Upgrade: TLS/1.0", "Connection: upgrade"],
    ],
)  # fmt: skip
def test_upgrades_are_ignored(town: Town, lines: list[str]) -> None:
    with Http(town.server.port) as http:
        assert http.query(get("/v2/health/live", *lines)).code == 200
        assert http.query(web.infer("double", {"x": X}, headers=lines)).code == 200
        usable(http)


# ---- row 37: who does not read ----


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("kind", ["large", "metadata", "errors", "health", "json"])
def test_a_client_that_never_reads(town: Town, kind: str, how: str) -> None:
    request = {
        "large": web.infer("large", {"x": np.array([1], "<f4")}),
        "metadata": get("/v2/models/stats"),
        "errors": get("/v2/nothing"),
        "health": DECOY,
        "json": web.infer("large", {"x": np.array([1 / 3], "<f4")}, binary=False),
    }[kind]
    before = town.server.rss_bytes
    http = Http(town.server.port, receive_buffer_bytes=4096)
    http.send_until_blocked(request * 300, 8 << 20, quiet_s=0.1)
    with Http(town.server.port) as other:
        usable(other)
    assert town.server.rss_bytes < before + (8 << 20)
    getattr(http, how)()


def test_a_client_that_reads_a_byte_at_a_time(town: Town) -> None:
    with Http(town.server.port, receive_buffer_bytes=4096) as http:
        http.send(web.infer("large", {"x": np.array([2], "<f4")}) + DECOY)
        for _ in range(50):
            http._have += http.socket.recv(1)
            time.sleep(0.001)
        assert set(http.answer().outputs["y"].data.tolist()) == {2}
        assert http.answer().code == 200


# ---- row 40: large but well-formed ----


def test_large_documents_that_are_only_odd(town: Town) -> None:
    fields = ",".join(f'"key {number}":{number}' for number in range(40_000)).encode()
    strings = b'"' + b"a" * 900_000 + b'"'
    deep = b"[" * 30 + b"]" * 30
    with Http(town.server.port) as http:
        for extra in (fields, b'"s":' + strings, b'"d":' + deep, b'"\\u0000":"\\u0000"'):
            answer = http.query(post(INFER, b"{" + extra + b"," + GOOD[1:]))
            assert answer.code == 200, answer.body[:300]
        for text in (b" " * 1_000_000 + GOOD, GOOD + b"\n" * 1_000_000):
            assert http.query(post(INFER, text)).code == 200
        same = ",".join(['"k":1'] * 40_000).encode()  # a field that nobody reads
        assert http.query(post(INFER, b"{" + same + b"," + GOOD[1:])).code in (200, 400)
        usable(http)


# ---- row 43: what comes back ----


@pytest.mark.parametrize(
    "name",
    [
        "a\r\nX-Injected: 1\r\n\r\n<html>", 'a","model_name":"evil', "\\", '"', "\0\1\x1f\x7f",
        "</script>", "\u2028\u2029", "\ufeff", "a\nb", "%0d%0a", "😀" * 40,
    ],
)  # fmt: skip
def test_ids_cannot_split_an_answer(town: Town, name: str) -> None:
    with Http(town.server.port) as http:
        for binary in (True, False):
            answer = http.query(web.infer("double", {"x": X}, binary=binary, id=name))
            assert set(answer.headers) <= {
                "content-type", "content-length", web.JSON_LENGTH.lower(), "date", "server",
                "connection", "keep-alive",
            }  # fmt: skip
            assert answer.document["id"] == name


@pytest.mark.parametrize(
    "name", ['"', "\\", "\r\n\r\nHTTP/1.1 200 OK", "\0", "\x1b[2J", "é", "日本", "%s%n", "x" * 3000]
)
def test_names_cannot_break_an_error(town: Town, name: str) -> None:
    """Row 8: whatever a client names comes back as part of a JSON string, whole or cut."""
    bad = {name: X}
    requested = [{"name": name}]
    with Http(town.server.port) as http:
        for binary in (True, False):
            assert http.query(web.infer("double", bad, binary=binary)).code == 400
            request = web.infer("double", {"x": X}, binary=binary, outputs=requested)
            assert http.query(request).code == 400
            one = web.Tensor(name, (1, 16), X.reshape(-1))
            assert http.query(web.infer("double", {"x": one}, binary=binary)).code == 400
        escaped = "".join(f"%{byte:02x}" for byte in name.encode())
        answer = http.query(get(f"/v2/models/{escaped}/ready"))
        assert answer.code in (400, 404, 414)
        if name.isalpha() and len(name) < 10:  # UTF-8 stays what it is
            assert f"'{name}'" in http.query(web.infer("double", bad)).error


# ---- row 44: browsers ----


@pytest.mark.parametrize(
    "request_bytes",
    [
        get("/v2", host="evil.example"),
        get("/v2/models/stats", host="evil.example:8000"),
        get("/v2/models/double", host="localhost.evil.example"),
        get("/v2/models/double", host="127.0.0.1.evil.example"),
        post(INFER, GOOD, host="evil.example"),
        post(INFER, GOOD, "Origin: http://evil.example", "Content-Type: text/plain"),
        post(INFER, GOOD, "Origin: null"),
        post(INFER, GOOD, "Origin: http://localhost.evil.example"),
        post(INFER, GOOD, "Origin: http://localhost@evil.example"),
        post(INFER, GOOD, "Origin: http://evil.example/localhost"),
        post("/v2/repository/models/double/unload", b"", "Origin: https://evil.example"),
        web.request("OPTIONS", INFER, b"", ["Origin: http://evil.example",
                                            "Access-Control-Request-Method: POST"]),
    ],
    ids=range(12),
)  # fmt: skip
def test_pages_of_other_sites(town: Town, request_bytes: bytes) -> None:
    """No header ever allows them to read (web.py looks at every answer), and they may not ask."""
    with Http(town.server.port) as http:
        answer = http.query(request_bytes)
        assert answer.code in (403, 405, 421), answer
