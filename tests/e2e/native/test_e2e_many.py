"""More connections than the process may have descriptors: the idle ones are kept without.

Every connection must be served as if it had a descriptor all
the time, and nothing may be left when it goes.
"""

from __future__ import annotations

import os
import platform
import random
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import graphs
import needs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from harness import Canary, Server, backend, eventually

from lumen_uring.ring import stats

DESCRIPTORS = 128
CONNECTIONS = 700
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
HIDDEN = {"LUMEN_URING_MASK": "fd_install"}


@pytest.fixture(scope="module")
def _parks() -> None:
    """Only io_uring keeps a connection without a descriptor, from Linux 6.8."""
    if backend() == "epoll":
        needs.absent("io_uring", "LUMEN_E2E_BACKEND=epoll")
    needs.io_uring()
    if tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2]) < (6, 8):
        needs.absent("parking", f"Linux {platform.release()}")


def parks(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test of io_uring alone: it is left out where the others run on epoll."""
    return pytest.mark.once(pytest.mark.usefixtures("_parks")(test))


def short_of_descriptors(**variables: str) -> list[str]:
    """What a server is started with, so that it may have few."""
    set_limit = (
        "import os, resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS})); "
        f"os.environ.update({variables!r}); os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", set_limit]


def settings(folder: Path, **server: object) -> dict[str, object]:
    return {
        "server": {"max_connections": 2 * CONNECTIONS, **server},
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx"))},
            {"name": "slow", "path": str(graphs.slow(folder / "slow.onnx"))},
        ],
    }


def parked(server: Server) -> int:
    gauges = stats.read(server.stats_path).gauges["io"]
    return gauges["connections_parked"]


def connect(server: Server) -> web.Http:
    return web.Http(server.port)


def ask(connection: web.Http, number: int) -> None:
    """One request in either dialect, and its answer."""
    x = np.full(16, number, "<f4")
    if number % 2:
        reply = connection.ask(wire.frame(x.tobytes(), id=number))
        assert (reply.status, reply.id) == (wire.OK, number)
        assert np.frombuffer(reply.payload, "<f4").tolist() == (2 * x).tolist()
    else:
        connection.send(LIVE)
        assert connection.answer().code == 200


def crowd(server: Server, stack: ExitStack, count: int = CONNECTIONS) -> list[web.Http]:
    """So many connections, all of them accepted; those without a descriptor are counted."""
    connections = [stack.enter_context(connect(server)) for _ in range(count)]
    eventually(
        lambda: server.figures().connections_open >= count,
        f"{count} connections",
        found=lambda: server.figures().connections_open,
    )
    assert server.fds <= DESCRIPTORS
    assert parked(server) >= count - DESCRIPTORS
    return connections


@pytest.mark.parametrize(
    "engine",
    [{}, {"queue_type": "inline", "thread_count": 1}],
    ids=["workers", "inline"],
)
@pytest.mark.parametrize("io_threads", [1, 2])
@parks
def test_everybody_is_served(
    serve: Serve, tmp_path: Path, engine: dict[str, object], io_threads: int
) -> None:
    """Rows 19 and F10: in either dialect, one after the other and all at once."""
    if engine:
        engine = {**engine, "thread_count": io_threads}
    wanted = {**settings(tmp_path, io_threads=io_threads), "engine": engine}
    server = serve(wanted, prefix=short_of_descriptors())
    assert f"with {DESCRIPTORS} descriptors" in server.output
    with ExitStack() as stack, Canary(server):
        connections = crowd(server, stack)
        order = list(range(CONNECTIONS))
        for turn in range(3):
            random.Random(turn).shuffle(order)
            for index in order:
                ask(connections[index], index)
        # All of them at once: more than there are descriptors have something to say.
        for index, connection in enumerate(connections):
            connection.send(wire.ping(index) if index % 2 else LIVE)
        for index, connection in enumerate(connections):
            if index % 2:
                assert connection.reply().id == index
            else:
                assert connection.answer().code == 200
        assert server.figures().io["connections_unparked"] > CONNECTIONS
    server.wait_until_idle()
    assert parked(server) == 0


@parks
def test_what_is_half_said_keeps_its_descriptor(serve: Serve, tmp_path: Path) -> None:
    """And is not forgotten while others take theirs back."""
    server = serve(settings(tmp_path), prefix=short_of_descriptors())
    frame = wire.frame(np.ones(16, "<f4").tobytes(), id=7)
    with ExitStack() as stack:
        halves = [stack.enter_context(connect(server)) for _ in range(20)]
        for cut, connection in enumerate(halves):
            connection.send(frame[: 1 + cut * len(frame) // 21])
        connections = crowd(server, stack)
        for index, connection in enumerate(connections):
            ask(connection, index)
        for cut, connection in enumerate(halves):
            connection.send(frame[1 + cut * len(frame) // 21 :])
            assert connection.reply().status == wire.OK
    server.wait_until_idle()


@pytest.mark.parametrize("end", ["finish", "reset", "close"])
@parks
def test_those_who_leave_leave_nothing(serve: Serve, tmp_path: Path, end: str) -> None:
    """Row 19: whatever way they leave."""
    server = serve(settings(tmp_path), prefix=short_of_descriptors())
    for _ in range(2):
        with ExitStack() as stack:
            for connection in crowd(server, stack):
                getattr(connection, end)()
                if end == "finish":
                    assert connection.expect_closed() == b""
            server.wait_until_idle()
    assert parked(server) == 0


@parks
def test_idle_for_too_long(serve: Serve, tmp_path: Path) -> None:
    """Row 19. The time limit holds for those without a descriptor too."""
    wanted = settings(tmp_path, idle_timeout_seconds=1)
    server = serve(wanted, prefix=short_of_descriptors())
    with ExitStack() as stack:
        # The first may be closed before the last one is there.
        for connection in [stack.enter_context(connect(server)) for _ in range(CONNECTIONS)]:
            connection.socket.settimeout(60)
            assert connection.expect_closed() == b""
        assert server.figures().io["connections_timed_out"] == CONNECTIONS
    server.wait_until_idle()


@parks
def test_the_end_reaches_everybody(serve: Serve, tmp_path: Path) -> None:
    """Rows 19 and F13. Draining answers who asked and closes all others."""
    server = serve(settings(tmp_path), prefix=short_of_descriptors())
    with ExitStack() as stack:
        connections = crowd(server, stack)
        asks = connections[::100]
        for number, connection in enumerate(asks):
            connection.send(wire.frame(np.array([200], "<i8").tobytes(), id=number, model=1))
        eventually(lambda: server.figures().requests >= len(asks), "all", found=server.figures)
        server.terminate()
        for number, connection in enumerate(asks):
            assert connection.reply().id == number
        for connection in connections:
            assert connection.expect_closed() == b""
        server.expect_clean_end()


@pytest.mark.once
@pytest.mark.parametrize("why", ["epoll", "hidden"])
def test_without_the_means(serve: Serve, tmp_path: Path, why: str) -> None:
    """Row F10. The server says what is missing, and serves as many as there are descriptors for."""
    if why == "hidden":
        needs.io_uring()
    wanted = settings(tmp_path, io_backend="epoll" if why == "epoll" else "io_uring")
    server = serve(wanted, prefix=short_of_descriptors(**(HIDDEN if why == "hidden" else {})))
    cause = "that takes io_uring" if why == "epoll" else "expected Linux 6.8"
    assert cause in server.output
    assert "raise the hard limit" in server.output
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(server)) for _ in range(2 * DESCRIPTORS)]
        for number in range(20):
            ask(connections[0], 2 * number)
        assert parked(server) == 0
        for connection in connections[1:]:
            connection.close()
        with connect(server) as late:
            ask(late, 1)
    server.wait_until_idle()


def test_with_enough_nobody_is_parked(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path))
    if os.environ.get("LUMEN_E2E_BACKEND") != "epoll":
        assert "descriptors" not in server.output
    with ExitStack() as stack:
        for number in range(200):
            ask(stack.enter_context(connect(server)), number)
        assert parked(server) == 0
    server.wait_until_idle()


@parks
def test_descriptors_and_buffers_do_not_wait_for_each_other(serve: Serve, tmp_path: Path) -> None:
    """Rows 19 and F10: half a header on each descriptor, and all others have something to say."""
    server = serve(
        settings(tmp_path, max_connections=3000, header_timeout_ms=1500),
        prefix=short_of_descriptors(),
    )
    with ExitStack() as stack:
        connections = crowd(server, stack, 1150)
        slow = [stack.enter_context(connect(server)) for _ in range(110)]
        for attacker in slow:
            attacker.send(b"L")
        for number, connection in enumerate(connections):
            connection.send(wire.ping(number))
        for attacker in slow:
            with suppress(OSError):
                attacker.send(b"M")
        answered = 0
        for number, connection in enumerate(connections):
            with suppress(wire.Closed, OSError):  # who found neither is reset
                assert connection.reply().id == number
                answered += 1
        assert answered > DESCRIPTORS
        with connect(server) as late:
            ask(late, 1)
    server.wait_until_idle()
