"""Few slots and many slow clients: whoever sends and reads is answered while the others hold on.

Row 4, 34 and 37 of the list of hostile inputs, in numbers that fill the slots. No time is asserted:
an active client must have so and so many answers before any of the slow ones has done anything.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from pathlib import Path

import graphs
import harness
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from harness import Server, eventually
from web import Http

COLUMNS = 8192  # 32 KiB in and out
SLOW = 40
ANSWERS = 30  # of an active client, while the others hold what they hold


def settings(folder: Path, **server: object) -> dict[str, object]:
    """Eight slots for the model "wide", and no end to the patience with slow bodies."""
    return {
        "server": {
            "max_request_bytes": "48KiB",
            "arena_bytes": "960KiB",
            "body_bytes_per_second": 1,
            "drain_seconds": 0,
            **server,
        },
        "engine": {"thread_count": 1, "queue_capacity": 8},
        "models": [
            {"name": "wide", "path": str(graphs.double(folder / "wide.onnx", COLUMNS, rows=1))},
        ],
    }


def body(number: int) -> np.ndarray:
    return np.arange(COLUMNS, dtype="<f4").reshape(1, -1) + np.float32(number)


def request(number: int, dialect: str) -> bytes:
    if dialect == "native":
        return wire.frame(body(number).tobytes(), id=number)
    if dialect == "raw":
        return web.raw("wide", body(number).tobytes())
    return web.infer("wide", {"x": body(number)})


def connect(server: Server, dialect: str) -> wire.Wire:
    return server.connect() if dialect == "native" else Http(server.port)


def expect_answer(connection: wire.Wire, number: int) -> None:
    if isinstance(connection, Http):
        np.testing.assert_array_equal(connection.answer().array("y"), 2 * body(number))
        return
    reply = connection.reply()
    assert (reply.status, reply.id) == (wire.OK, number), reply
    assert reply.payload == (2 * body(number)).tobytes()


def crowd(server: Server, dialect: str, count: int, extra: int) -> list[wire.Wire]:
    """Clients that send a head, `extra` bytes of a body, and nothing more; all of them read."""
    before = server.figures().requests
    slow = []
    for number in range(count):
        connection = connect(server, dialect)
        whole = request(number, dialect)
        connection.send(whole[: len(whole) - body(0).nbytes + extra])
        slow.append(connection)
    eventually(lambda: server.figures().requests >= before + count, "the heads")
    return slow


def stay_decent(server: Server) -> None:
    """Active clients of all kinds get their answers."""
    active = [(dialect, connect(server, dialect)) for dialect in ("native", "raw", "binary")]
    for number in range(ANSWERS):
        for dialect, connection in active:
            connection.send(request(number, dialect))
        for _dialect, connection in active:
            expect_answer(connection, number)
    for _dialect, connection in active:
        connection.close()


@pytest.mark.parametrize("extra", [0, 1, 3000])
@pytest.mark.parametrize("dialect", ["native", "raw", "binary"])
def test_slow_bodies_do_not_keep_others_out(
    serve: Serve, tmp_path: Path, dialect: str, extra: int
) -> None:
    """Rows 4 and 34: however many there are, who sends a whole request is served."""
    server = serve(settings(tmp_path))
    slow = crowd(server, dialect, SLOW, extra)
    before = server.figures()
    stay_decent(server)
    since = server.figures().since(before)
    assert since["worker.requests_ok"] == 3 * ANSWERS
    # Nobody of the slow ones has been answered; most of them wait and hold nothing.
    assert server.figures().connections_open >= SLOW - 8
    assert server.figures().io["body_waits"] >= SLOW - 8
    answered = cut_off = 0
    for number, connection in enumerate(slow):
        with suppress(ConnectionError):
            connection.send(request(number, dialect)[-(body(0).nbytes - extra) :])
        if isinstance(connection, Http):
            answer = connection.answer()
            answered += answer.code == 200
            cut_off += answer.code == 503
        else:
            reply = connection.reply()
            assert reply.id == number
            answered += reply.status == wire.OK
            cut_off += reply.status == wire.OVERLOADED
        connection.close()
    assert answered + cut_off == SLOW
    assert answered >= SLOW - 8  # only who held a slot may have been asked to give it back
    assert cut_off == server.figures().io["connections_evicted"]
    server.wait_until_idle()
    since = server.figures().since(before)
    assert since.get("io.requests_refused", 0) == cut_off
    assert "io.requests_gone" not in since  # nobody left: they were told to


def test_a_body_that_stops_short_of_its_end(serve: Serve, tmp_path: Path) -> None:
    """Rows 4 and 34. Worth a slot or not, what is nearly here must not stop the others."""
    server = serve(settings(tmp_path))
    slow = crowd(server, "native", SLOW, body(0).nbytes - 1)
    stay_decent(server)
    for number, connection in enumerate(slow):
        with suppress(ConnectionError):
            connection.send(request(number, "native")[-1:])
        assert connection.reply().status in (wire.OK, wire.OVERLOADED)
        connection.close()


def says_deadline(connection: wire.Wire, number: int) -> bool:
    """How a request ended whose client sent a part of it: at its deadline, or without its slot."""
    if isinstance(connection, Http):
        answer = connection.answer()
        assert answer.code == 503
        return not answer.closes
    reply = connection.reply()
    assert reply.id == number
    assert reply.status in (wire.DEADLINE, wire.OVERLOADED)
    return reply.status == wire.DEADLINE


@pytest.mark.parametrize("dialect", ["native", "binary"])
def test_a_deadline_while_the_bytes_do_not_come(serve: Serve, tmp_path: Path, dialect: str) -> None:
    """It is answered, the rest of the body is skipped, and the connection goes on."""
    server = serve(settings(tmp_path))
    slow = crowd(server, "native", SLOW, 5)
    whole = {
        "native": wire.frame(body(3).tobytes(), id=3, timeout_us=50_000),
        "binary": web.infer("wide", {"x": body(3)}, parameters={"timeout": 50_000}),
    }[dialect]
    slow.append(connect(server, dialect))
    slow[-1].send(whole[:-20_000])
    while not says_deadline(slow[-1], 3):
        # One of the crowd had lost its slot to this one, which lost it in turn.
        slow += [*crowd(server, "native", 1, 5), connect(server, dialect)]
        slow[-1].send(whole[:-20_000])
    slow[-1].send(whole[-20_000:] + request(6, dialect))
    expect_answer(slow[-1], 6)
    for connection in slow:
        connection.close()


def test_slow_bodies_have_an_end(serve: Serve, tmp_path: Path) -> None:
    """Rows 4 and 34. Also those that wait without a slot: body_bytes_per_second counts for them."""
    server = serve(settings(tmp_path, header_timeout_ms=100, body_bytes_per_second="1MiB"))
    slow = [*crowd(server, "native", 20, 5), *crowd(server, "raw", 20, 5)]
    for connection in slow:
        said = connection.expect_closed()
        assert b"408" in said or b"503" in said or said[:4] in (b"LMR1", b"")
        connection.close()
    server.wait_until_idle()
    assert server.figures().io["requests_gone"] == 0


@pytest.mark.parametrize("how", ["close", "reset", "finish"])
def test_who_waits_for_bytes_may_leave(serve: Serve, tmp_path: Path, how: str) -> None:
    server = serve(settings(tmp_path))
    slow = crowd(server, "native", SLOW, 5) + crowd(server, "binary", SLOW, 5)
    for connection in slow:
        getattr(connection, how)()
    if how == "finish":
        for connection in slow:
            connection.expect_closed()
    server.wait_until_idle()
    stay_decent(server)


def test_pipelined_behind_a_body_that_waits(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path))
    slow = crowd(server, "native", SLOW, 5)
    with server.connect() as connection, Http(server.port) as http:
        for sender, dialect in ((connection, "native"), (http, "binary")):
            data = request(1, dialect) + request(2, dialect)
            for at in range(0, len(data), 7001):
                sender.send(data[at : at + 7001])
                time.sleep(0.002)
            expect_answer(sender, 1)
            expect_answer(sender, 2)
    for sender in slow:
        sender.close()


def test_continue_is_said_beside_slow_bodies(serve: Serve, tmp_path: Path) -> None:
    """Row 35. Who asks first cannot show its bytes before it is told to send them."""
    server = serve(settings(tmp_path))
    slow = crowd(server, "raw", SLOW, 5)
    head, rest = web.cut(web.raw("wide", body(4).tobytes(), "Expect: 100-continue"))
    with Http(server.port) as http:
        http.send(head)
        http.expect_continue()
        http.send(rest)
        expect_answer(http, 4)
    for connection in slow:
        connection.close()


def test_header_buffers_are_not_kept_by_those_who_wait(serve: Serve, tmp_path: Path) -> None:
    """More than may hold one (512): the longest-waiting are refused, and the newest are served."""
    server = serve(settings(tmp_path))
    slow = crowd(server, "native", 700, 5)
    stay_decent(server)
    refused = 0
    for number, connection in enumerate(slow):
        with suppress(ConnectionError):
            connection.send(request(number, "native")[-(body(0).nbytes - 5) :])
        reply = connection.reply()
        assert reply.status in (wire.OK, wire.OVERLOADED)
        refused += reply.status == wire.OVERLOADED
        connection.close()
    assert 100 <= refused <= 250
    assert server.figures().io["header_buffers_starved"] == 0


def test_max_in_flight_is_not_filled_by_slow_bodies(serve: Serve, tmp_path: Path) -> None:
    roomy = settings(tmp_path, arena_bytes="8MiB", max_in_flight=16)
    roomy["engine"] = {"thread_count": 1, "queue_capacity": 64}  # more slots than may be in flight
    server = serve(roomy)
    slow = crowd(server, "native", SLOW, 5)
    assert server.figures().slots_in_use == 12
    with server.connect() as connection:
        for number in range(ANSWERS):
            connection.send(request(number, "native"))
            expect_answer(connection, number)
    for connection in slow:
        connection.close()


def test_slow_bodies_are_no_work_for_the_workers(serve: Serve, tmp_path: Path) -> None:
    """Whether a deadline can be met is judged by what workers have, not by what may yet come."""
    path = graphs.slow(tmp_path / "slow.onnx")
    server = serve(
        {
            "server": {"body_bytes_per_second": 1, "drain_seconds": 0},
            "engine": {"thread_count": 1},
            "models": [{"name": "slow", "path": str(path)}],
        }
    )
    work = np.array([2000], "<i8").tobytes()
    with server.connect() as connection:
        began = time.monotonic()
        for number in range(20):
            assert connection.ask(wire.frame(work, id=number)).status == wire.OK
        each_us = round((time.monotonic() - began) / 20 * 1e6)
        slow = [server.connect() for _ in range(200)]
        for guest in slow:
            guest.send(wire.frame(work)[:-1])
        eventually(lambda: server.figures().slots_in_use >= 200, "bodies", found=server.figures)

        def is_taken() -> bool:
            reply = connection.ask(wire.frame(work, timeout_us=40 * each_us))
            assert reply.status in (wire.OK, wire.DEADLINE)
            return reply.status == wire.OK

        eventually(is_taken, "a deadline 40 times as long as the work that is met")
    for guest in slow:
        guest.close()


@pytest.mark.parametrize("most", [{}, {"max_in_flight": 4}])
def test_replies_that_nobody_reads_do_not_keep_others_out(
    serve: Serve, tmp_path: Path, most: dict[str, object]
) -> None:
    """Rows 16 and 37. Also the server's own (descriptions), which have slots of their own."""
    columns = 1 << 20  # a reply of 4 MiB, more than a socket takes
    models = [{"name": "large", "path": str(graphs.large(tmp_path / "large.onnx", columns))}]
    server = serve(
        {
            "server": {
                **{"arena_bytes": "80MiB", "drain_seconds": 0, "max_request_bytes": "64KiB"},
                **most,
            },
            "engine": {"thread_count": 1, "queue_capacity": 8},
            "models": models,
        }
    )
    ask = wire.frame(np.float32(1).tobytes(), id=1)
    greedy = []
    for number in range(SLOW):
        connection = server.connect(receive_buffer_bytes=4096)
        connection.send(ask if number % 2 else wire.frame(kind=wire.DESCRIBE, id=1) * 300)
        if number % 4 == 3:
            connection.finish()  # half-closed: it could still read
        greedy.append(connection)
    with server.connect() as connection:

        def is_served() -> bool:
            reply = connection.ask(wire.frame(np.float32(2).tobytes(), id=1))
            assert reply.status in (wire.OK, wire.OVERLOADED)
            return reply.status == wire.OK and len(reply.payload) == 4 * columns

        for number in range(10):
            eventually(is_served, "an answer")
            assert connection.ask(wire.ping(number)).status == wire.OK
    for guest in greedy:
        guest.close()


def test_a_steady_sender_is_served_beside_slow_ones(serve: Serve, tmp_path: Path) -> None:
    """Decent and distant: it sends steadily, if not fast, and is not taken for an attacker."""
    server = serve(settings(tmp_path))
    slow = crowd(server, "native", SLOW, 5)
    with server.connect() as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = request(1, "native")
        for at in range(0, len(data), 2048):
            connection.send(data[at : at + 2048])
            time.sleep(0.02)
        expect_answer(connection, 1)
    for guest in slow:
        guest.close()


def test_overload_wait_means_wait(serve: Serve, cache: Path, tmp_path: Path) -> None:
    """Row 16: more decent clients than there are slots, header buffers and places to wait in."""
    columns = 40_000  # a first body of 160 KB does not fit what the kernel takes unread
    limits = {"max_request_bytes": "192KiB", "arena_bytes": "8MiB", "overload": "wait"}
    wide = {"name": "wide", "path": str(graphs.double(tmp_path / "wider.onnx", columns, rows=1))}
    server = serve({**settings(tmp_path, **limits), "models": [wide]})
    url = f"lumen://127.0.0.1:{server.port}"
    counts = ["--connections", "1500", "--requests", "3000", "--warmup", "0"]
    done = harness.run(["bench", "--url", url, "--json", *counts], cache)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["requests"], figures["errors"]) == (3000, 0), figures
    assert server.figures().io["slot_waits"] > 0
    server.wait_until_idle()


def test_a_first_body_fits_its_socket(serve: Serve, tmp_path: Path) -> None:
    """Rows 4 and 34: new clients beside those whose large bodies stop just short of their end."""
    columns = 40_000  # 160 KB: more than a connection's first receive buffer of old
    limits = {"max_request_bytes": "192KiB", "arena_bytes": "8MiB"}
    wide = {"name": "wide", "path": str(graphs.double(tmp_path / "wider.onnx", columns, rows=1))}
    server = serve({**settings(tmp_path, **limits), "models": [wide]})
    x = np.ones((1, columns), "<f4")
    whole = wire.frame(x.tobytes(), id=1)
    slow = [server.connect() for _ in range(600)]  # more than the slots, and than may wait (512)
    for connection in slow:
        connection.send(whole[:-100])
    for number in range(20):
        with server.connect() as late:
            reply = late.ask(wire.frame(x.tobytes(), id=number))
            assert reply.status == wire.OK, reply.payload
            assert reply.payload == (2 * x).tobytes()
    for connection in slow:
        connection.reset()
    server.wait_until_idle()
