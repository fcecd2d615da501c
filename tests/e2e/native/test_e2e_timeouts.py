"""Clients that take their time: each gets what its state says, and nobody else is hurt.

Rows 4, 16, 19, 33, 34 and 37 of the list of hostile inputs. Times are not asserted, only what
happens in the end.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import graphs
import numpy as np
import pytest
import wire
from conftest import Serve
from harness import Canary, Server, eventually

COLUMNS = 40_000
HTTP = b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timeouts")


def settings(folder: Path, **server: object) -> dict[str, object]:
    return {
        "server": {
            "header_timeout_ms": 300,
            "body_bytes_per_second": "1MiB",
            "reply_timeout_ms": 500,
            "idle_timeout_seconds": 3,  # on a slow machine a client that asks pauses, too
            "arena_bytes": "64MiB",
            **server,
        },
        "engine": {"thread_count": 2},
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx"))},
            {"name": "wide", "path": str(graphs.double(folder / "wide.onnx", COLUMNS, rows=1))},
        ],
    }


@pytest.fixture(scope="module")
def _hurried(cache: Path, folder: Path) -> Iterator[Server]:
    with Server(settings(folder), cache) as server:
        yield server


@pytest.fixture
def alone(_hurried: Server) -> Iterator[Server]:
    """A server with short patience, which nobody else wakes."""
    yield _hurried
    _hurried.check_idle()


@pytest.fixture
def hurried(alone: Server) -> Iterator[Server]:
    """The same, and a client that must not notice."""
    with Canary(alone):
        yield alone


def rest(connection: wire.Wire) -> bytes:
    connection.socket.settimeout(20)
    return connection.expect_closed()


def timed_out(server: Server) -> int:
    return server.figures().io["connections_timed_out"]


@pytest.mark.parametrize("head", [b"LMN", b"LMN1", b"LMN1" + bytes(20)])
def test_a_native_header_that_stops(alone: Server, head: bytes) -> None:
    """Row 1."""
    before = timed_out(alone)
    with alone.connect() as connection:
        connection.send(head)
        assert rest(connection) == b""
    assert timed_out(alone) > before


@pytest.mark.parametrize("head", [b"G", b"GET /v2 HTTP/1.1\r\nHost: x", HTTP])
def test_an_http_head_that_stops(hurried: Server, head: bytes) -> None:
    """Rows 1 and 33."""
    with hurried.connect() as connection:
        connection.send(head)
        assert rest(connection).startswith(b"HTTP/1.1 408 ")


def test_an_http_head_that_dribbles_is_not_given_more_time(hurried: Server) -> None:
    """Row 33: the deadline counts from the first byte, not from the last one."""
    with hurried.connect() as connection:
        connection.send(b"GET / HTTP/1.1\r\n")
        connection.socket.setblocking(False)
        said: list[bytes] = []

        def answered() -> bool:
            with suppress(BlockingIOError, ConnectionError):
                connection.socket.send(b"X: y\r\n")
                said.append(connection.socket.recv(4096))
            return bool(said)

        eventually(answered, "an answer")
        assert said[0].startswith(b"HTTP/1.1 408 ")


def test_bodies_that_stop(alone: Server) -> None:
    """Rows 4 and 34."""
    x = np.ones(COLUMNS, "<f4").tobytes()
    native = alone.connect()
    native.send(wire.frame(x, model=alone.models["wide"])[:-1])
    raw = alone.connect()
    raw.send(HTTP + b"Inference-Header-Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(x))
    raw.send(x[:1000])
    chunked = alone.connect()
    chunked.send(HTTP + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"inp')
    json = alone.connect()
    json.send(HTTP + b"Inference-Header-Content-Length: 100\r\nContent-Length: 200\r\n\r\n{")
    refused = alone.connect()
    refused.send(HTTP.replace(b"wide", b"none") + b"Content-Length: 20\r\n\r\n{")
    reply = native.reply()
    assert reply.status == wire.BAD_REQUEST
    assert b"did not come in time" in reply.payload
    assert rest(native) == b""
    for connection in (raw, chunked, json):
        assert rest(connection).startswith(b"HTTP/1.1 408 ")
    said = rest(refused)
    assert said.startswith(b"HTTP/1.1 404 ")
    assert said.count(b"HTTP/1.1 ") == 1
    for connection in (native, raw, chunked, json, refused):
        connection.close()


def test_a_reply_that_nobody_reads(alone: Server) -> None:
    """Rows 16 and 37."""
    x = np.ones(COLUMNS, "<f4").tobytes()
    before = timed_out(alone)
    with alone.connect(receive_buffer_bytes=4096) as connection:
        frame = wire.frame(x, model=alone.models["wide"])
        # Whole requests, as many as no socket holds replies to: the server is stuck with one of
        # them, however slow the machine, and with nothing else that has a time limit.
        with suppress(ConnectionError):  # it gave up already
            for _ in range(100):
                connection.send(frame)
        eventually(lambda: timed_out(alone) > before, "the end of patience")


def test_idle_connections_are_closed_with_nobody_else_there(alone: Server) -> None:
    """Row 19."""
    idle, after_work = alone.connect(), alone.connect()
    assert after_work.ask(wire.ping(1)).id == 1
    assert rest(idle) == b""
    assert rest(after_work) == b""
    idle.close()
    after_work.close()


def test_idle_connections_are_closed_and_busy_ones_are_not(hurried: Server) -> None:
    """Row 19."""
    idle, busy = hurried.connect(), hurried.connect()
    number = 0
    while not select.select([idle.socket], [], [], 0.05)[0]:
        number += 1
        assert busy.ask(wire.ping(number)).id == number
    assert rest(idle) == b""
    assert busy.ask(wire.ping(99)).id == 99
    for connection in (idle, busy):
        connection.close()


# Of each timeout: what it is set to, and how many of the connections below it ends.
TIMEOUTS = {
    "header_timeout_ms": (300, 3),
    "body_bytes_per_second": ("1MiB", 4),
    "reply_timeout_ms": (300, 1),
    "idle_timeout_seconds": (1, 1),
}


@pytest.mark.parametrize("which", TIMEOUTS)
def test_each_timeout_ends_what_it_is_for_and_nothing_else(
    serve: Serve, folder: Path, which: str
) -> None:
    """All others are off; there is a connection in every state that one of them is about."""
    value, count = TIMEOUTS[which]
    # Slots enough for all that is sent: nobody is evicted, however slow the workers are.
    limits = dict.fromkeys(TIMEOUTS, 0) | {which: value, "arena_bytes": "256MiB"}
    server = serve(settings(folder, **limits))
    x = np.ones(COLUMNS, "<f4").tobytes()
    wide = server.models["wide"]
    half_said = [
        b"LMN1",  # three heads
        b"GET /v2 HTTP/1.1\r\n",
        HTTP + b"Inference-Header-Content-Length: 100\r\nContent-Length: 200\r\n\r\n{",
        wire.frame(x, model=wide)[:-1],  # four bodies
        HTTP + b"Inference-Header-Content-Length: 0\r\nContent-Length: 160000\r\n\r\n{",
        HTTP + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        HTTP.replace(b"wide", b"none") + b"Content-Length: 20\r\n\r\n{",
        b"",  # nothing
    ]
    connections = [server.connect() for _ in half_said]
    for connection, said in zip(connections, half_said, strict=True):
        connection.send(said)
    deaf = server.connect(receive_buffer_bytes=4096)
    deaf.send_until_blocked(wire.frame(x, model=wide), most_bytes=40 * (32 + len(x)))
    eventually(lambda: timed_out(server) == count, f"{count} that are ended")
    time.sleep(1.5)  # and no more: each of the others would have been long ago
    figures = server.figures()
    assert figures.io["connections_timed_out"] == count
    assert figures.connections_open == len(half_said) + 1 - count
    for connection in (*connections, deaf):
        connection.close()


def test_one_address_cannot_have_all_connections(serve: Serve, folder: Path) -> None:
    """Row 19."""
    server = serve(settings(folder, connections_per_address=3, idle_timeout_seconds=0))
    mine = [server.connect() for _ in range(3)]
    for number, connection in enumerate(mine):
        assert connection.ask(wire.ping(number)).id == number
    with server.connect() as fourth:
        assert rest(fourth) == b""
    other = socket.create_connection(("127.0.0.1", server.port), 5, ("127.0.0.9", 0))
    other.sendall(wire.ping(7))
    assert other.recv(48)[:4] == b"LMR1"
    other.close()
    mine.pop().close()

    def has_room() -> bool:
        with server.connect() as again:
            try:
                return again.ask(wire.ping(5)).id == 5
            except (ConnectionError, wire.Closed, AssertionError):
                return False

    eventually(has_room, "room for one more")
    assert server.figures().io["connections_crowded"] >= 1
    for connection in mine:
        connection.close()


def test_what_came_while_a_run_took_long_came_in_time(serve: Serve, folder: Path) -> None:
    """Inline, the I/O thread sees nothing meanwhile: afterwards it must look before it judges."""
    model = {"name": "slow", "path": str(graphs.slow(folder / "slow.onnx"))}
    inline = {"queue_type": "inline", "thread_count": 1}
    server = serve({**settings(folder), "engine": inline, "models": [model]})

    def run(connection: wire.Wire, products: int) -> None:
        connection.send(wire.frame(np.array([products], "<i8").tobytes(), id=1))

    with server.connect() as busy, server.connect() as patient:
        began = time.monotonic()
        run(busy, 1000)
        assert busy.reply().status == wire.OK
        each_s = (time.monotonic() - began) / 1000
        assert patient.ask(wire.ping(1)).id == 1
        run(busy, int(3 / each_s))  # three times the idle timeout
        time.sleep(0.3)
        patient.send(wire.ping(2))
        assert busy.reply().status == wire.OK
        assert patient.reply().id == 2
    server.wait_until_idle()
