"""HTTP/2 by prior knowledge: every route answers as over HTTP/1.1, streams do not wait for each
other, and whoever breaks the protocol hurts itself alone."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import web
from conftest import ZOO_BLOCK_COLUMNS, Serve, zoo_settings
from harness import Canary, Server, eventually
from http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW,
    Http2,
    Raw,
    fields_of,
    frame,
    literal,
)
from web import Answer, Http, get, post

X = np.arange(16, dtype="<f4").reshape(1, 16)
BLOCK = np.arange(ZOO_BLOCK_COLUMNS, dtype="<f4").reshape(1, -1)
(
    NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED,
    FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM,
) = range(12)  # fmt: skip
HEAD: Final = (
    (":method", "GET"), (":scheme", "http"), (":path", "/v2/health/live"), (":authority", "x"),
)  # fmt: skip
LIVE: Final = literal(*HEAD[:3], (":authority", "127.0.0.1"))
WHOLE: Final = END_STREAM | END_HEADERS


def said(answer: Answer) -> tuple[int, str | None, bytes]:
    return answer.code, answer.headers.get("content-type"), answer.body


REQUESTS: dict[str, bytes] = {
    "page": get("/"),
    "live": get("/v2/health/live"),
    "metadata": get("/v2/models/double"),
    "head": web.request("HEAD", "/v2/models/double"),
    "index": post("/v2/repository/index"),
    "unknown": get("/v2/models/none"),
    "path": get("/none"),
    "method": web.request("DELETE", "/v2/models/double"),
    "json": web.infer("double", {"x": X}, binary=False),
    "binary": web.infer("double", {"x": X}),
    "raw": web.raw("double", X.tobytes()),
    "form": post("/v1/models/double:predict", b'{"instances": [[1, 2]]}'),
    "bad json": post(web.path("double"), b"{"),
    "large": web.infer("block", {"x": BLOCK}),
    "large json": web.infer("block", {"x": BLOCK}, binary=False),
    "too large": post(web.path("double"), bytes(3 << 20)),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_answers_are_those_of_http_1(zoo: Server, name: str) -> None:
    with Http(zoo.port) as http:
        expected = http.query(REQUESTS[name], "HEAD" if name == "head" else "")
    with Http2(zoo.port) as link:
        found = link.query(REQUESTS[name])
        assert said(found) == said(expected)
        assert not {"connection", "keep-alive", "transfer-encoding"} & set(found.headers)
        assert said(link.query(get("/v2/health/live"))) == (
            200,
            "application/json",
            b'{"live":true}',
        )


@pytest.mark.parametrize("most", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("has_length", [True, False])
def test_bodies_come_in_any_frames(zoo: Server, most: int, has_length: bool) -> None:
    """With a length that the head says, or without: then their end tells."""
    request = web.infer("double", {"x": X}, binary=most > 1)
    fields, body = fields_of(request)
    if not has_length:
        fields = [field for field in fields if field[0] != "content-length"]
        if web.JSON_LENGTH.lower() in dict(fields) and most == 7:
            request = web.infer("double", {"x": X}, binary=False)
            fields, body = fields_of(request)
            fields = [field for field in fields if field[0] != "content-length"]
    with Http2(zoo.port) as link:
        stream = link.begin(fields)
        link.body(stream, body, most=most)
        (answer,) = link.wait([stream])
        np.testing.assert_array_equal(answer.array("y"), 2 * X)


def test_padding_empty_frames_and_trailers(zoo: Server) -> None:
    body = fields_of(web.infer("double", {"x": X}, binary=False))[1]
    head = literal(
        (":method", "POST"), (":scheme", "http"), (":path", web.path("double")),
        (":authority", "127.0.0.1"), ("te", "trailers"),
    )  # fmt: skip
    padded = bytes([9]) + bytes(5) + head + bytes(9)
    with Raw(zoo.port) as link:
        link.send(frame(HEADERS, 1, padded, PADDED | HAS_PRIORITY | END_HEADERS))
        link.send(frame(DATA, 1) + frame(DATA, 1, bytes([20]) + body[:9] + bytes(20), PADDED))
        link.send(frame(PRIORITY, 1, bytes(5)) + frame(77, 1, b"unknown") + frame(DATA, 1))
        link.send(frame(DATA, 1, body[9:]) + frame(DATA, 1, b"\0", PADDED))
        link.send(frame(HEADERS, 1, literal(("digest", "none")), WHOLE))
        assert b"200" not in link.until(HEADERS, 1)[:1]
        assert np.array_equal(
            web.read_json(link.until(DATA, 1))["outputs"][0]["data"], (2 * X).ravel()
        )


def test_streams_do_not_wait_for_each_other(zoo: Server) -> None:
    """61 at a time; those of a slow model come behind the others, in any order."""
    with Http2(zoo.port) as link:
        slow = link.send(web.infer("slow", {"x": np.array([3_000], "<i8")}))
        rows = [np.full((1, 16), number, "<f4") for number in range(60)]
        streams = [link.send(web.infer("double", {"x": row})) for row in rows]
        for row, answer in zip(rows, link.wait(streams), strict=True):
            np.testing.assert_array_equal(answer.array("y"), 2 * row)
        assert link.wait([slow])[0].code == 200


def test_more_streams_than_there_may_be_are_refused(zoo: Server) -> None:
    with Raw(zoo.port) as link:
        head = literal(
            (":method", "POST"), (":scheme", "http"), (":path", web.path("double")),
            (":authority", "127.0.0.1"), ("content-length", "64"),
        )  # fmt: skip
        for number in range(101):
            link.send(frame(HEADERS, 2 * number + 1, head, END_HEADERS))
        assert struct.unpack(">I", link.until(RST_STREAM, 201)) == (REFUSED_STREAM,)
        link.send(frame(RST_STREAM, 1, struct.pack(">I", CANCEL)))
        link.send(frame(HEADERS, 203, LIVE, WHOLE))
        assert link.until(DATA, 203) == b'{"live":true}'


def test_a_client_reads_as_slowly_as_it_likes(zoo: Server) -> None:
    """Windows of a few bytes hold one stream; others of the connection go on."""
    with Http2(zoo.port, window=1000) as link:
        large = link.begin(fields_of(web.infer("block", {"x": BLOCK}))[0])
        link.body(large, fields_of(web.infer("block", {"x": BLOCK}))[1])
        small = link.send(web.infer("double", {"x": X}))
        np.testing.assert_array_equal(link.wait([small])[0].array("y"), 2 * X)
        np.testing.assert_array_equal(link.wait([large])[0].array("y"), 2 * BLOCK)


def test_windows_may_be_widened_often(zoo: Server) -> None:
    """A client that says of each few bytes that it has read them is no flood."""
    body = fields_of(web.infer("block", {"x": BLOCK}))[1]
    head = literal(
        *HEAD[1:2], (":method", "POST"), (":path", web.path("block")), (":authority", "127.0.0.1"),
        (web.JSON_LENGTH.lower(), str(len(body) - BLOCK.nbytes)),
        ("content-length", str(len(body))),
    )  # fmt: skip
    with Raw(zoo.port) as link:
        link.send(frame(HEADERS, 1, head, END_HEADERS))
        for at in range(0, len(body), 16384):
            last = at + 16384 >= len(body)
            link.send(frame(DATA, 1, body[at : at + 16384], END_STREAM if last else 0))
        step = struct.pack(">I", 512)
        for kind, flags, stream, payload in link.frames():
            assert kind not in (GOAWAY, RST_STREAM), payload
            if (kind, stream) == (DATA, 1):
                link.send((frame(WINDOW, 0, step) + frame(WINDOW, 1, step)) * (len(payload) // 512))
                if flags & END_STREAM:
                    break
        link.send(frame(HEADERS, 3, LIVE, WHOLE))
        assert link.until(DATA, 3) == b'{"live":true}'


def test_a_window_that_is_made_smaller(zoo: Server) -> None:
    """It may become negative, and then has to grow before anything is sent."""
    with Raw(zoo.port) as link:
        link.send(frame(HEADERS, 1, LIVE, WHOLE))
        link.until(DATA, 1)
        link.send(frame(SETTINGS, 0, struct.pack(">HI", 4, 0)))
        link.send(frame(HEADERS, 3, LIVE, WHOLE))
        link.until(HEADERS, 3)
        link.send(frame(PING, 0, b"12345678"))
        assert link.until(PING, 0) == b"12345678"  # and no DATA before it
        link.send(frame(WINDOW, 3, struct.pack(">I", 5)))
        assert link.until(DATA, 3) == b'{"liv'
        link.send(frame(SETTINGS, 0, struct.pack(">HI", 4, 100)))
        assert link.until(DATA, 3) == b'e":true}'


def test_a_client_that_cancels_leaves_nothing(zoo: Server) -> None:
    """Before its body is here, while it waits, while it runs."""
    with Canary(zoo), Http2(zoo.port) as link:
        for _ in range(20):
            fields, body = fields_of(web.infer("double", {"x": X}))
            half = link.begin(fields)
            link.body(half, body[:50], ends=False)
            link.state.reset_stream(half, CANCEL)
            slow = [link.send(web.infer("slow", {"x": np.array([2_000], "<i8")})) for _ in range(3)]
            for stream in slow:
                link.state.reset_stream(stream, CANCEL)
            link.flush()
            answer = link.query(web.infer("double", {"x": X}))
            np.testing.assert_array_equal(answer.array("y"), 2 * X)


def test_a_client_may_give_up_all_its_calls_twice(zoo: Server) -> None:
    """As it does when they are late: what a connection may have open, cancelled at once."""
    fields, body = fields_of(web.infer("double", {"x": X}))
    with Http2(zoo.port) as link:
        for _ in range(2):
            streams = [link.begin(fields) for _ in range(100)]
            for stream in streams:
                link.body(stream, body[:10], ends=False)
            for stream in streams:
                link.state.reset_stream(stream, CANCEL)
            link.flush()
        answer = link.query(web.infer("double", {"x": X}))
        np.testing.assert_array_equal(answer.array("y"), 2 * X)
    zoo.wait_until_idle()


def test_a_stream_that_has_ended_gives_its_place_at_once(zoo: Server) -> None:
    """Cancelled and begun again in one piece, more often than streams may be open."""
    head = literal(
        (":method", "POST"), (":scheme", "http"), (":path", web.path("double")),
        (":authority", "127.0.0.1"),
    )  # fmt: skip
    with Raw(zoo.port) as link:
        cancel = struct.pack(">I", CANCEL)
        begun = [frame(HEADERS, 2 * n + 1, head, END_HEADERS) for n in range(200)]
        ended = [frame(RST_STREAM, 2 * n + 1, cancel) for n in range(200)]
        first, then = begun[:100] + ended[:100], begun[100:] + ended[100:]
        link.send(b"".join(first + then) + frame(HEADERS, 401, LIVE, WHOLE))
        link.until(DATA, 401)
    zoo.wait_until_idle()


def test_a_connection_that_ends_takes_its_streams_along(zoo: Server) -> None:
    for _ in range(10):
        with Http2(zoo.port) as link:
            for _ in range(10):
                link.send(web.infer("slow", {"x": np.array([500], "<i8")}))
            fields, body = fields_of(web.infer("block", {"x": BLOCK}))
            link.body(link.begin(fields), body[:1000], ends=False)
    zoo.wait_until_idle()


def test_heads_use_the_table_until_it_is_gone(zoo: Server) -> None:
    """A client may fill a table before it has read that there is to be none."""
    with Http2(zoo.port) as link:
        request = get("/v2/models/double", *(f"x-{n}: {'v' * 300}" for n in range(20)))
        streams = [link.send(request) for _ in range(5)]  # of the same few bytes from the second on
        assert {answer.code for answer in link.wait(streams)} == {200}
        assert link.state.remote_settings.header_table_size == 0
        assert link.query(request).code == 200


def test_every_split_of_a_connections_first_bytes(zoo: Server) -> None:
    body = fields_of(web.infer("double", {"x": X}, binary=False))[1]
    head = literal(
        (":method", "POST"), (":scheme", "http"), (":path", web.path("double")),
        (":authority", "127.0.0.1"), ("content-length", str(len(body))),
    )  # fmt: skip
    cut = len(head) // 2
    sent = (
        PREFACE + frame(SETTINGS, 0, struct.pack(">HI", 3, 100))
        + frame(HEADERS, 1, head[:cut]) + frame(CONTINUATION, 1, head[cut:], END_HEADERS)
        + frame(DATA, 1, body, END_STREAM)
    )  # fmt: skip
    for at in range(1, len(sent), 3):
        with Raw(zoo.port, greets=False) as link:
            link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.send(sent[:at])
            link.send(sent[at:])
            answer = web.read_json(link.until(DATA, 1))
            assert answer["outputs"][0]["data"] == (2 * X).ravel().tolist(), at


# ---- row 48: who breaks the protocol ----

MALFORMED: dict[str, tuple[tuple[str, str], ...]] = {
    "no path": HEAD[:2],
    "empty path": (*HEAD[:2], (":path", "")),
    "a field twice": (*HEAD, (":path", "/")),
    "unknown": (*HEAD, (":what", "x")),
    "behind others": (("accept", "*/*"), *HEAD),
    "upper case": (*HEAD, ("Accept", "*/*")),
    "connection": (*HEAD, ("connection", "close")),
    "transfer-encoding": (*HEAD, ("transfer-encoding", "chunked")),
    "te": (*HEAD, ("te", "gzip")),
    "a line": (*HEAD, ("x", "a\r\nhost: b")),
    "a line in the path": (*HEAD[:2], (":path", "/ HTTP/1.1\r\nx: y")),
    "a nul": (*HEAD, ("x", "a\0b")),
    "no name": (*HEAD, ("", "x")),
    "a body that is none": (*HEAD, ("content-length", "5")),
    "no length": (*HEAD, ("content-length", "x")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_head_ends_its_stream_alone(zoo: Server, name: str) -> None:
    with Raw(zoo.port) as link:
        link.send(frame(HEADERS, 1, literal(*MALFORMED[name]), WHOLE))
        assert struct.unpack(">I", link.until(RST_STREAM, 1)) == (PROTOCOL_ERROR,)
        link.send(frame(HEADERS, 3, LIVE, WHOLE))
        assert link.until(DATA, 3) == b'{"live":true}'


def opened(length: int = 64) -> bytes:
    return frame(
        HEADERS, 1,
        literal(
            (":method", "POST"), (":scheme", "http"), (":path", web.path("double")),
            (":authority", "127.0.0.1"), ("content-length", str(length)),
        ),
        END_HEADERS,
    )  # fmt: skip


# Frames that end a stream, and the error of its RST_STREAM.
STREAM_ERRORS: dict[str, tuple[bytes, int]] = {
    "too few bytes": (opened() + frame(DATA, 1, bytes(63), END_STREAM), PROTOCOL_ERROR),
    "too many bytes": (opened() + frame(DATA, 1, bytes(65)), PROTOCOL_ERROR),
    "bytes behind the end": (
        opened(10**6) + frame(HEADERS, 3, LIVE, WHOLE) + frame(DATA, 1, bytes(9), END_STREAM),
        PROTOCOL_ERROR,
    ),
    "a window of 0": (opened() + frame(WINDOW, 1, bytes(4)), FLOW_CONTROL_ERROR),
    "a window beyond all": (
        opened() + frame(WINDOW, 1, struct.pack(">I", 2**31 - 1)), FLOW_CONTROL_ERROR,
    ),
    "trailers that do not end": (
        opened() + frame(HEADERS, 1, literal(("a", "b")), END_HEADERS), PROTOCOL_ERROR,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAM_ERRORS)
def test_what_ends_a_stream(zoo: Server, name: str) -> None:
    frames, error = STREAM_ERRORS[name]
    with Raw(zoo.port) as link:
        link.send(frames)
        assert struct.unpack(">I", link.until(RST_STREAM, 1)) == (error,)
        link.send(frame(HEADERS, 5, LIVE, WHOLE))
        assert link.until(DATA, 5) == b'{"live":true}'


# Frames that end a connection, and the error of its GOAWAY.
CONNECTION_ERRORS: dict[str, tuple[bytes, int]] = {
    "an even stream": (frame(HEADERS, 2, LIVE, WHOLE), PROTOCOL_ERROR),
    "stream 0": (frame(HEADERS, 0, LIVE, WHOLE), PROTOCOL_ERROR),
    "data of none": (frame(DATA, 1, b"x"), PROTOCOL_ERROR),
    "data of 0": (frame(DATA, 0, b"x"), PROTOCOL_ERROR),
    "a reset of none": (frame(RST_STREAM, 1, bytes(4)), PROTOCOL_ERROR),
    "a window of none": (frame(WINDOW, 1, bytes(4)), PROTOCOL_ERROR),
    "a push": (frame(PUSH_PROMISE, 1, bytes(9)), PROTOCOL_ERROR),
    "settings of a stream": (frame(SETTINGS, 1), PROTOCOL_ERROR),
    "a ping of a stream": (frame(PING, 1, bytes(8)), PROTOCOL_ERROR),
    "a continuation alone": (frame(CONTINUATION, 1, LIVE, END_HEADERS), PROTOCOL_ERROR),
    "something within a block": (
        frame(HEADERS, 1, LIVE) + frame(PING, 0, bytes(8)), PROTOCOL_ERROR,
    ),
    "a block of another stream": (
        frame(HEADERS, 1, LIVE) + frame(CONTINUATION, 3, b"", END_HEADERS), PROTOCOL_ERROR,
    ),
    "padding alone": (frame(DATA, 1, b"") + frame(HEADERS, 1, b"\x09abc", PADDED), PROTOCOL_ERROR),
    "more padding": (frame(HEADERS, 1, b"\x09abc", PADDED | WHOLE), PROTOCOL_ERROR),
    "data of padding": (opened() + frame(DATA, 1, b"\x09abc", PADDED), PROTOCOL_ERROR),
    "no padding": (opened() + frame(DATA, 1, b"", PADDED), FRAME_SIZE_ERROR),
    "a short ping": (frame(PING, 0, bytes(7)), FRAME_SIZE_ERROR),
    "a long window": (frame(WINDOW, 0, bytes(5)), FRAME_SIZE_ERROR),
    "part of a setting": (frame(SETTINGS, 0, bytes(7)), FRAME_SIZE_ERROR),
    "an ACK with settings": (frame(SETTINGS, 0, bytes(6), ACK), FRAME_SIZE_ERROR),
    "a short goaway": (frame(GOAWAY, 0, bytes(4)), FRAME_SIZE_ERROR),
    "a large frame": (struct.pack(">IBI", (2 << 20) << 8 | DATA, 0, 1), FRAME_SIZE_ERROR),
    "a push setting": (frame(SETTINGS, 0, struct.pack(">HI", 2, 2)), PROTOCOL_ERROR),
    "small frames": (frame(SETTINGS, 0, struct.pack(">HI", 5, 16383)), PROTOCOL_ERROR),
    "a large window": (frame(SETTINGS, 0, struct.pack(">HI", 4, 2**31)), FLOW_CONTROL_ERROR),
    "no window": (frame(WINDOW, 0, bytes(4)), FLOW_CONTROL_ERROR),
    "too much window": (frame(WINDOW, 0, struct.pack(">I", 2**31 - 1)), FLOW_CONTROL_ERROR),
    "no index": (frame(HEADERS, 1, b"\x80", WHOLE), COMPRESSION_ERROR),
    "an index of none": (frame(HEADERS, 1, b"\xff\x80\x01", WHOLE), COMPRESSION_ERROR),
    "a cut block": (frame(HEADERS, 1, LIVE[:-3], WHOLE), COMPRESSION_ERROR),
    "a long block": (
        frame(HEADERS, 1, bytes(9000)) + frame(CONTINUATION, 1, bytes(9000)), ENHANCE_YOUR_CALM,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONNECTION_ERRORS)
def test_what_ends_a_connection(zoo: Server, name: str) -> None:
    frames, error = CONNECTION_ERRORS[name]
    with Raw(zoo.port) as link:
        link.send(frames)
        payload = link.until(GOAWAY, 0)
        assert struct.unpack(">I", payload[4:8]) == (error,), payload[8:]
        assert payload[8:]
        list(link.frames())  # it ends


def floods() -> dict[str, Callable[[int], bytes]]:
    def resets(at: int) -> bytes:
        stream = 2 * at + 1
        return frame(HEADERS, stream, LIVE, WHOLE) + frame(RST_STREAM, stream, bytes(4))

    def provoked(at: int) -> bytes:
        return frame(HEADERS, 2 * at + 1, literal(*HEAD, (":path", "/")), WHOLE)

    return {
        "pings": lambda _at: frame(PING, 0, bytes(8)),
        "settings": lambda _at: frame(SETTINGS, 0, struct.pack(">HI", 4, 1000)),
        "priorities": lambda at: frame(PRIORITY, 2 * at + 1, bytes(5)),
        "unknown frames": lambda _at: frame(200, 0, b"x"),
        "windows": lambda _at: frame(WINDOW, 0, struct.pack(">I", 1)),
        "resets": resets,
        "provoked resets": provoked,  # MadeYouReset: the server has to do it
    }


@pytest.mark.parametrize("name", floods())
def test_floods_end_themselves(zoo: Server, name: str) -> None:
    make = floods()[name]
    with Canary(zoo), Raw(zoo.port) as link:
        assert any(
            link.is_refused(b"".join(make(at) for at in range(start, start + 500)))
            for start in range(0, 100_000, 500)
        )
    with Raw(zoo.port) as link:
        link.send(frame(HEADERS, 1, LIVE, WHOLE))
        assert link.until(DATA, 1) == b'{"live":true}'


def test_who_reads_nothing_is_not_read_either(zoo: Server) -> None:
    """Answers and pings of a client that takes none stay within a bound."""
    before = zoo.rss_bytes
    with Canary(zoo), socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", zoo.port))
        client.settimeout(2)
        client.sendall(PREFACE + frame(SETTINGS, 0))
        page = literal(*HEAD[:2], (":path", "/"), (":authority", "127.0.0.1"))
        try:
            for number in range(200_000):
                client.sendall(
                    frame(HEADERS, 2 * number + 1, page, WHOLE) + frame(PING, 0, bytes(8))
                )
        except OSError:
            pass
        assert zoo.rss_bytes < before + (64 << 20)


def test_a_head_in_pieces_gives_its_place_to_others(serve: Serve, tmp_path: Any) -> None:
    """Row 48: heads in pieces are put together in places of which there are so many, for both
    versions of HTTP. The one that has taken the longest goes; no timeout ends one here."""
    settings = zoo_settings(tmp_path)
    settings["server"] |= {"header_timeout_ms": 0}  # type: ignore[operator]
    port = serve(settings).port
    with Raw(port) as link, contextlib.ExitStack() as stack:
        link.send(frame(HEADERS, 1, LIVE, WHOLE))
        link.until(DATA, 1)
        link.send(frame(HEADERS, 3, LIVE, WHOLE)[:-5])
        others = [stack.enter_context(Http(port)) for _ in range(1030)]
        for other in others:
            other.send(b"GET /v2/health/live HT")
        payload = link.until(GOAWAY, 0)
        assert b"its place was needed" in payload[8:]
        others[-1].send(b"TP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert others[-1].answer().code == 200


# ---- others ----


def test_the_end_is_announced(serve: Serve, tmp_path: Any) -> None:
    """GOAWAY with the last stream that is answered; what is in flight is."""
    server = serve(zoo_settings(tmp_path))
    body = fields_of(web.infer("slow", {"x": np.array([5_000], "<i8")}, binary=False))[1]
    head = literal(
        (":method", "POST"), (":scheme", "http"), (":path", web.path("slow")),
        (":authority", "127.0.0.1"),
    )  # fmt: skip
    with Raw(server.port) as link:
        link.send(frame(HEADERS, 1, LIVE, WHOLE))
        link.until(DATA, 1)
        before = server.figures().requests
        link.send(frame(HEADERS, 3, head, END_HEADERS) + frame(DATA, 3, body, END_STREAM))
        eventually(lambda: server.figures().requests > before, "a request in flight")
        server.process.send_signal(signal.SIGTERM)
        assert struct.unpack(">II", link.until(GOAWAY, 0)[:8]) == (3, NO_ERROR)
        assert web.read_json(link.until(DATA, 3))["model_name"] == "slow"
        assert not list(link.frames())  # it ends
    server.expect_clean_end()


ANNOUNCED: Final = ((1 << 31) - 1, NO_ERROR)


def told_to_go(link: Raw) -> tuple[list[tuple[int, ...]], int, int]:
    """Asks for one answer after the other until the server ends the connection, and once more
    behind its first GOAWAY, before it learns that this was heard.

    Returns:
        The GOAWAYs that came, the last stream that was sent and the last that was answered.
    """
    sent, answered, said = 1, 0, []
    link.send(frame(WINDOW, 0, struct.pack(">I", 1 << 30)) + frame(HEADERS, sent, LIVE, WHOLE))
    for kind, flags, of, payload in link.frames():
        if kind == GOAWAY:
            said.append(struct.unpack(">II", payload[:8]))
        elif kind == PING:
            sent += 2
            link.send(frame(HEADERS, sent, LIVE, WHOLE) + frame(PING, 0, payload, ACK))
        elif kind == DATA and flags & END_STREAM:
            answered = max(answered, of)
            if not said:
                sent += 2
                link.send(frame(HEADERS, sent, LIVE, WHOLE))
    return said, sent, answered


def test_old_connections_end(serve: Serve, tmp_path: Any) -> None:
    """Told so twice, busy or idle: what its client sent before it heard of it is answered."""
    settings = zoo_settings(tmp_path)
    settings["server"] |= {"max_connection_age_seconds": 1}  # type: ignore[operator]
    server = serve(settings)
    with Raw(server.port) as busy, Raw(server.port) as idle:
        said, sent, answered = told_to_go(busy)
        assert (said, answered) == ([ANNOUNCED, (sent, NO_ERROR)], sent)
        for last in (ANNOUNCED[0], 0):  # it says nothing to the first
            assert struct.unpack(">II", idle.until(GOAWAY, 0)[:8]) == (last, NO_ERROR)
        assert not list(idle.frames())


def test_old_connections_of_http_1_end(serve: Serve, tmp_path: Any) -> None:
    """With an answer, as each of theirs says from then on."""
    settings = zoo_settings(tmp_path)
    settings["server"] |= {"max_connection_age_seconds": 1}  # type: ignore[operator]
    server = serve(settings)
    began = time.monotonic()
    with Http(server.port) as link:
        while not (answer := link.query(get("/v2/health/live"))).closes:
            assert answer.code == 200
        assert time.monotonic() > began + 0.9
        assert not link.rest()


def test_the_end_is_announced_before_it_comes(serve: Serve, tmp_path: Any) -> None:
    """Busy and idle connections hear of it while the server still serves."""
    settings = zoo_settings(tmp_path)
    settings["server"] |= {"unready_seconds": 600}  # type: ignore[operator]
    server = serve(settings)
    with Raw(server.port) as busy, Raw(server.port) as idle:
        idle.send(frame(HEADERS, 1, LIVE, WHOLE))
        idle.until(DATA, 1)
        server.process.send_signal(signal.SIGTERM)
        said, sent, answered = told_to_go(busy)
        assert (said, answered) == ([ANNOUNCED, (sent, NO_ERROR)], sent)
        assert struct.unpack(">II", idle.until(GOAWAY, 0)[:8]) == ANNOUNCED
    server.process.send_signal(signal.SIGTERM)  # the second one begins the end
    server.expect_clean_end()


def test_who_sends_half_of_a_frame_is_not_waited_for(serve: Serve, tmp_path: Any) -> None:
    """Row 48."""
    settings = zoo_settings(tmp_path)
    settings["server"] |= {"header_timeout_ms": 1000, "idle_timeout_seconds": 2}  # type: ignore[operator]
    server = serve(settings)
    for sent in (PREFACE[:10], PREFACE, PREFACE + frame(SETTINGS, 0)[:5], PREFACE + LIVE):
        with Raw(server.port, greets=False) as link:
            link.send(sent)
            began = time.monotonic()
            list(link.frames())
            assert time.monotonic() > began + 0.5
    assert server.figures().io["connections_timed_out"] >= 3


def test_streams_wait_for_a_place(serve: Serve, tmp_path: Any) -> None:
    """Of one connection, of which one request may be in flight: all are answered, in turn."""
    settings = zoo_settings(tmp_path)
    settings["server"] |= {"max_in_flight": 1, "overload": "wait"}  # type: ignore[operator]
    server = serve(settings)
    with Http2(server.port) as link:
        slow = link.send(web.infer("slow", {"x": np.array([2_000], "<i8")}))
        rows = [np.full((1, 16), number, "<f4") for number in range(20)]
        streams = [link.send(web.infer("double", {"x": row})) for row in rows]
        for row, answer in zip(rows, link.wait(streams), strict=True):
            np.testing.assert_array_equal(answer.array("y"), 2 * row)
        assert link.wait([slow])[0].code == 200
