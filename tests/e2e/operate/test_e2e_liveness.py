"""The whole still answers: whatever clients and models do, somebody else is served.

Every part of the server keeps a rule of its own; these tests ask about all of them together. Waits
are for events, with bounds far from what a busy machine needs; no time is asserted.
"""

from __future__ import annotations

import os
import random
import resource
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import graphs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from harness import Server, eventually, processes_of_models, stand_still
from web import Http

LIGHT_TRIPS = 1
LARGE_COLUMNS = 1 << 16  # an answer of 256 KiB, more than a small socket takes
SEED = int(os.environ.get("LUMEN_E2E_SEED", time.time_ns() % 2**32))
# Longer by hand: `LUMEN_E2E_SECONDS=600` mixes for ten minutes, with ten times as many clients.
SECONDS = float(os.environ.get("LUMEN_E2E_SECONDS", "0"))
CROWD = 4000 if SECONDS else 400
ANSWER_S = 10.0  # a canary's patience: what this file is about lasts for as long as the attack does
REFUSED = wire.frame(b"x" * 7, model=60_000, id=6)

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def settings(folder: Path, **server: object) -> dict[str, object]:
    """Two models whose time is what the request asks for, and a quick one."""
    return {
        "server": {"arena_bytes": "64MiB", "max_request_bytes": "64KiB", **server},
        "engine": {"thread_count": 1},
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx"))},
            {"name": "slow", "path": str(graphs.slow(folder / "slow.onnx"))},
            {"name": "slow2", "path": str(graphs.slow(folder / "slow2.onnx"))},
            {"name": "gather", "path": str(graphs.gather(folder / "gather.onnx"))},
            {"name": "large", "path": str(graphs.large(folder / "large.onnx", LARGE_COLUMNS))},
        ],
    }


@contextmanager
def halted(serve: Serve, folder: Path, **server: object) -> Iterator[Server]:
    """A server with a model whose Runs end after the block, and take nobody's time until then."""
    given = settings(folder, hang_seconds=600, **server)
    given["models"] += [  # type: ignore[operator]
        {"name": "halted", "path": str(folder / "double.onnx"), "isolation": "process"}
    ]
    running = serve(given)
    [process] = processes_of_models(running.pid)
    stand_still(process)
    try:
        yield running
    finally:
        os.kill(process, signal.SIGCONT)


ROW = np.ones((1, 16), "<f4")


def trips(count: int) -> np.ndarray:
    return np.array([count], "<i8")


def trips_of(server: Server, seconds: float) -> int:
    """How much work takes the model "slow2" about so long, on this machine at this moment."""
    with server.connect() as connection:
        count = 200
        while True:
            began = time.monotonic()
            frame = wire.frame(
                trips(count).tobytes(), model=server.models["slow2"], timeout_us=600_000_000
            )
            assert connection.ask(frame).status == wire.OK
            took = time.monotonic() - began
            if took > 0.05:
                return max(1, round(count * seconds / took))
            count *= 4


class Watch:
    """Asks, on a thread of its own, for everything that needs no worker; each must be answered.

    One round asks for each kind on a connection that stays and on a new one.
    """

    def __init__(self, server: Server) -> None:
        self.rounds = 0
        self.seconds: list[float] = []
        self._server = server
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        self._stop.set()
        self._thread.join(3 * ANSWER_S)
        if kind is None:
            self.check()

    def check(self) -> None:
        if self._error is not None:
            raise AssertionError(
                f"not answered within {ANSWER_S:g} s, after {self.rounds} rounds: {self._error!r}"
            ) from self._error

    def more(self, rounds: int) -> None:
        """Waits for so many more rounds."""
        until = self.rounds + rounds + 1  # one may be under way

        def is_done() -> bool:
            self.check()
            return self.rounds >= until

        eventually(is_done, f"{rounds} rounds of answers", 60 + ANSWER_S)

    def report(self, name: str) -> None:
        """Prints how long answers took; `pytest -s` shows it."""
        ordered = sorted(self.seconds)
        at = [1000 * ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in (0.5, 0.99, 1)]
        print(
            f"{name}: {len(ordered)} answers without a worker; p50 {at[0]:.2f} ms, "
            f"p99 {at[1]:.2f} ms, max {at[2]:.2f} ms"
        )

    def _main(self) -> None:
        try:
            with Http(self._server.port) as http, self._server.connect() as native:
                while not self._stop.is_set():
                    self._round(http, native)
                    with Http(self._server.port) as new_http, self._server.connect() as new:
                        self._round(new_http, new)
                    self.rounds += 1
        except BaseException as error:
            self._error = error

    def _round(self, http: Http, native: wire.Wire) -> None:
        for connection in (http, native):
            connection.socket.settimeout(ANSWER_S)
        for target, code in (
            ("/v2/health/live", 200), ("/v2/health/ready", 200), ("/v2", 200),
            ("/v2/models/double", 200), ("/v2/models/stats", 200), ("/v2/models/nobody", 404),
        ):  # fmt: skip
            began = time.monotonic()
            assert http.query(web.get(target)).code == code
            self.seconds.append(time.monotonic() - began)
        for request, status in (
            (wire.ping(5), wire.OK),
            (wire.frame(kind=wire.DESCRIBE, id=5), wire.OK),
            (REFUSED, wire.UNKNOWN_MODEL),
        ):
            began = time.monotonic()
            assert native.ask(request).status == status
            self.seconds.append(time.monotonic() - began)
        self._stop.wait(0.002)


@contextmanager
def crowd(server: Server, count: int, act: Callable[[int], wire.Wire]) -> Iterator[list[wire.Wire]]:
    """So many clients, which leave without a good-bye."""
    clients: list[wire.Wire] = []
    try:
        for number in range(count):
            clients.append(act(number))
        yield clients
    finally:
        for client in clients:
            with suppress(OSError):
                client.reset()


# ---- header buffers ----


@pytest.mark.parametrize("glued", [True, False])
def test_pipelined_bytes_make_nobody_deaf(serve: Serve, tmp_path: Path, glued: bool) -> None:
    """Row F8: more connections than header buffers, each with a request and a byte more."""
    request = web.infer("halted", {"x": ROW})

    def act(_number: int) -> Http:
        http = Http(server.port)
        http.send(request + b"G" * glued)
        if not glued:
            http.send(b"G")
        return http

    with halted(serve, tmp_path, drain_seconds=0, io_threads=1) as server:
        with Watch(server) as watch:
            before = server.figures().requests
            with crowd(server, 1300, act):
                eventually(lambda: server.figures().requests >= before + 1300, "its requests")
                watch.more(2)
            watch.more(2)  # they have left, and are not remembered
        watch.report("pipelined bytes")
    eventually(lambda: server.figures().slots_in_use == 0, "those who left to be forgotten", 60)


# ---- estimates recover ----


def warm_up(server: Server, requests: int = 40) -> None:
    """Teaches the server how long the model takes."""
    with server.connect() as connection:
        for _ in range(requests):
            frame = wire.frame(trips(LIGHT_TRIPS).tobytes(), model=server.models["slow"])
            assert connection.ask(frame).status == wire.OK


@pytest.mark.once
@pytest.mark.parametrize("heavy_runs", [1, 4])
def test_an_estimate_recovers_from_slow_runs(serve: Serve, tmp_path: Path, heavy_runs: int) -> None:
    """Runs that took six deadlines do not keep the model's other requests out for good."""
    server = serve(settings(tmp_path))
    heavy = trips(trips_of(server, 0.6))
    warm_up(server)
    slow = server.models["slow"]
    with server.connect() as connection:
        for _ in range(heavy_runs):
            assert connection.ask(wire.frame(heavy.tobytes(), model=slow)).status == wire.OK
        light = wire.frame(trips(LIGHT_TRIPS).tobytes(), model=slow, timeout_us=100_000)
        in_a_row = 0

        def is_served() -> bool:
            nonlocal in_a_row
            in_a_row = in_a_row + 1 if connection.ask(light).status == wire.OK else 0
            return in_a_row == 5

        eventually(is_served, "5 answers in a row before their deadlines", 60)


@pytest.mark.once
@pytest.mark.parametrize("binary", [True, False])
def test_an_estimate_recovers_from_the_first_run(
    serve: Serve, tmp_path: Path, binary: bool
) -> None:
    """Over HTTP, where the deadline is the server's own; the first request of all is the slow one.
    JSON's deadline is known only to the worker."""
    server = serve(settings(tmp_path, **({"default_timeout_ms": 100} if binary else {})))
    heavy = trips(trips_of(server, 0.5))
    ask = {"parameters": {"timeout": 600_000_000}}
    with Http(server.port) as http:
        for _ in range(3):
            request = web.infer("slow", {"x": heavy}, binary=binary, **ask)
            assert http.query(request).code == 200
        named = {} if binary else {"parameters": {"timeout": 100_000}}
        light = web.infer("slow", {"x": trips(LIGHT_TRIPS)}, binary=binary, **named)
        in_a_row = 0

        def is_served() -> bool:
            nonlocal in_a_row
            answer = http.query(light)
            assert answer.code in (200, 503), answer
            in_a_row = in_a_row + 1 if answer.code == 200 else 0
            return in_a_row == 5

        eventually(is_served, "5 answers in a row before their deadlines", 60)


# ---- limits are the whole server's, and those who wait are served in order ----


def threads(count: int, folder: Path, **server: object) -> dict[str, object]:
    """With several I/O threads, over which the kernel spreads connections as it likes."""
    return settings(folder, io_threads=count, **server)


@pytest.mark.parametrize("count", [1, 4, 16])
def test_as_many_connections_as_allowed(serve: Serve, tmp_path: Path, count: int) -> None:
    """Row 19: neither a connection more nor one less, however they are spread."""
    for limits in ({"max_connections": 10}, {"connections_per_address": 10}):
        server = serve(threads(count, tmp_path, **limits))
        kept: list[wire.Wire] = []
        for number in range(40):
            connection = server.connect()
            try:
                assert connection.ask(wire.ping(number)).id == number
                kept.append(connection)
            except (wire.Closed, ConnectionError):
                connection.close()
        assert len(kept) == 10, limits
        kept.pop().close()

        def fits(server: Server = server) -> bool:
            with server.connect() as connection, suppress(wire.Closed, ConnectionError):
                return connection.ask(wire.ping(7)).id == 7
            return False

        eventually(fits, "room for one more")
        for connection in kept:
            connection.close()
        server.stop()


@pytest.mark.parametrize("most", [1, 3, 4294967295])
@pytest.mark.parametrize("count", [1, 2, 16])
@pytest.mark.once
def test_as_many_in_flight_as_allowed(serve: Serve, tmp_path: Path, count: int, most: int) -> None:
    """Row F24: also where there are fewer places than threads, or more than 32 bits can add."""
    server = serve(threads(count, tmp_path, max_in_flight=most))
    work = trips(trips_of(server, 60.0)).tobytes()  # none of them ends in this test
    connections = [server.connect() for _ in range(24)]
    for number, connection in enumerate(connections):
        before = server.figures().requests
        connection.send(wire.frame(work, model=server.models["slow"], id=number))
        eventually(lambda was=before: server.figures().requests > was, "a request")
    for connection in connections[most:]:
        assert connection.reply().status == wire.OVERLOADED
    assert server.figures().io["requests_refused"] == max(0, len(connections) - most)
    server.kill()


@pytest.mark.parametrize("count", [1, 3])
def test_who_waits_is_served_in_order(serve: Serve, tmp_path: Path, count: int) -> None:
    """Also beside clients that ask again at once, each time a place has become free."""
    stop = threading.Event()
    answers = [0] * 8

    def ask_again(number: int) -> None:
        with server.connect() as connection:
            while not stop.is_set():
                frame = wire.frame(ROW.tobytes(), model=server.models["double"])
                assert connection.ask(frame).status == wire.OK
                answers[number] += 1

    greedy = [threading.Thread(target=ask_again, args=(n,), daemon=True) for n in range(8)]
    with halted(serve, tmp_path, io_threads=count, max_in_flight=1, overload="wait") as server:
        work = trips(trips_of(server, 0.005)).tobytes()
        holder, waiting = server.connect(), []
        before = server.figures().requests
        holder.send(wire.frame(ROW.tobytes(), model=server.models["halted"]))
        eventually(lambda: server.figures().requests > before, "the one that runs")
        for number in range(40):
            before = server.figures().requests
            connection = server.connect()
            connection.send(wire.frame(work, model=server.models["slow"], id=number))
            eventually(lambda was=before: server.figures().requests > was, "its request")
            waiting.append(connection)
        for thread in greedy:
            thread.start()
    order = answered_in_order(waiting)
    assert holder.reply().status == wire.OK
    eventually(lambda: min(answers) > 0, "an answer to each that asks again", 60)
    stop.set()
    for thread in greedy:
        thread.join(60)
    if count == 1:
        assert order == list(range(40))
    else:  # threads take turns; within one of them there is an order
        assert sorted(order) == list(range(40))
    for connection in (holder, *waiting):
        connection.close()


def answered_in_order(connections: list[wire.Wire]) -> list[int]:
    """The ids of the answers, each read when its connection becomes readable."""
    order = []
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        while selector.get_map():
            ready = selector.select(60)
            assert ready, "no answer for a minute"
            for found, _events in ready:
                reply = found.data.reply()
                assert reply.status == wire.OK
                order.append(reply.id)
                selector.unregister(found.fileobj)
    return order


@pytest.mark.parametrize("count", [1, 4])
def test_health_does_not_wait_with_those_who_wait(serve: Serve, tmp_path: Path, count: int) -> None:
    """A thousand requests wait for one place; all of them are answered."""
    server = serve(threads(count, tmp_path, max_in_flight=2, overload="wait"))
    request = wire.frame(trips(20).tobytes(), model=server.models["slow"])

    def act(_number: int) -> wire.Wire:
        connection = server.connect()
        connection.send(request)
        return connection

    with Watch(server) as watch, crowd(server, 1000, act) as clients:
        watch.more(3)
        for connection in clients:
            assert connection.reply().status == wire.OK
            connection.send(request)
        watch.more(3)
        for connection in clients:
            assert connection.reply().status == wire.OK
    watch.report("overload: wait")


# ---- every kind of client and model that we know, one after the other and mixed ----


def _http(server: Server, data: bytes, **rest: int) -> wire.Wire:
    http = Http(server.port, **rest)
    http.send(data)
    return http


def _native(server: Server, data: bytes, **rest: int) -> wire.Wire:
    connection = server.connect(**rest)
    connection.send(data)
    return connection


def _work(server: Server, model: str, count: int) -> bytes:
    return wire.frame(trips(count).tobytes(), model=server.models[model], id=1)


def _then(connection: wire.Wire, act: Callable[[], object]) -> wire.Wire:
    act()
    return connection


def _storm(server: Server, number: int) -> wire.Wire:
    """Comes, asks and leaves, and comes again."""
    for _ in range(3):
        connection = _native(server, _work(server, "slow", 5))
        connection.reset() if number % 2 else connection.close()
    return server.connect()


UNREAD = {"receive_buffer_bytes": 4096}
KINDS: dict[str, Callable[[Server, int], wire.Wire]] = {
    "silent": lambda server, _n: server.connect(),
    "slow head": lambda server, n: (
        _http(server, b"GET /v2/hea") if n % 2 else _native(server, wire.ping(1)[: 1 + n % 31])
    ),
    "slow body": lambda server, n: (
        _http(server, web.infer("double", {"x": np.ones((1, 16), "<f4")})[:-3])
        if n % 2
        else _native(server, _work(server, "slow", 1)[: -1 - n % 7])
    ),
    "chunked body": lambda server, _n: _http(
        server,
        b"POST /v2/models/double/infer HTTP/1.1\r\nHost: localhost\r\n"
        b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"inp',
    ),
    "waits for 100": lambda server, _n: _http(
        server,
        b"POST /v2/models/double/infer HTTP/1.1\r\nHost: localhost\r\n"
        b"Expect: 100-continue\r\nContent-Length: 900\r\n\r\n",
    ),
    "unread answers": lambda server, _n: _native(
        server,
        wire.frame(np.float32(1).tobytes(), model=server.models["large"]) * 3,
        **UNREAD,
    ),
    "unread documents": lambda server, n: (
        _http(server, web.get("/v2/models/stats") * 100, **UNREAD)
        if n % 2
        else _native(server, wire.frame(kind=wire.DESCRIBE) * 100, **UNREAD)
    ),
    "pipelined": lambda server, n: (
        _http(server, web.infer("slow", {"x": trips(20)}) + b"G")
        if n % 2
        else _native(server, _work(server, "slow", 5) * 70 + b"LMN1")
    ),
    "half-closed": lambda server, _n: _then(
        connection := _native(server, _work(server, "slow", 20)), connection.finish
    ),
    "storm": _storm,
    "slow model": lambda server, _n: _native(server, _work(server, "slow", 300)),
    "failing model": lambda server, n: (
        _http(server, web.infer("gather", {"x": np.array([77], "<i8")}))
        if n % 2
        else _native(
            server, wire.frame(np.array([77], "<i8").tobytes(), model=server.models["gather"]) * 9
        )
    ),
    "deadlines": lambda server, n: _native(
        server,
        wire.frame(trips(50).tobytes(), model=server.models["slow"], timeout_us=1 + 997 * n),
    ),
}


def pause(server: Server) -> None:
    """As a debugger, a container's freezer or Ctrl-Z does it."""
    stand_still(server.pid)
    try:
        time.sleep(0.2)  # nothing can be waited for in a stopped process
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def besieged(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that all of the following attacks one after another."""
    limits = {"drain_seconds": 0, "reply_timeout_ms": 0, "body_bytes_per_second": 1}
    server = Server(settings(tmp_path_factory.mktemp("besieged"), **limits), cache)
    try:
        yield server
        assert server.alive
        server.check_errors()
    finally:
        server.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_answers_beside(besieged: Server, kind: str) -> None:
    """Requests that need no worker are answered beside these clients, and after they left."""
    with Watch(besieged) as watch:
        with crowd(besieged, CROWD, lambda number: KINDS[kind](besieged, number)):
            watch.more(4)
        watch.more(2)
    watch.report(kind)
    eventually(lambda: besieged.figures().slots_in_use == 0, "nothing left of them", 60)


def test_the_whole_answers_after_pauses(besieged: Server) -> None:
    """Stopped and continued, idle and busy: it is the same server, and says that it is ready."""
    with Watch(besieged) as watch:
        with crowd(besieged, 40, lambda number: KINDS["slow model"](besieged, number)):
            for _ in range(5):
                pause(besieged)
                watch.more(1)
        watch.more(2)
    assert besieged.alive
    watch.report("pauses")


@pytest.mark.parametrize("overload", ["refuse", "wait"])
def test_the_whole_answers_beside_all_of_them(serve: Serve, tmp_path: Path, overload: str) -> None:
    """All kinds at once, in numbers that come from a seed; requests are served all the while."""
    print(f"LUMEN_E2E_SEED={SEED}")
    chance = random.Random(SEED)
    until = time.monotonic() + SECONDS
    limits = {"max_in_flight": 64, "overload": overload, "drain_seconds": 0}
    server = serve(settings(tmp_path, io_threads=chance.choice([1, 1, 3]), **limits))
    names = list(KINDS)
    with Watch(server) as watch:
        while True:
            drawn = chance.choices(names, [chance.random() for _ in names], k=CROWD)
            with crowd(server, CROWD, lambda n, drawn=drawn: KINDS[drawn[n]](server, n)):
                if chance.random() < 0.5:
                    pause(server)
                watch.more(4)
            watch.more(2)
            if time.monotonic() >= until:
                break
    watch.report(f"all kinds, overload: {overload}")
    eventually(lambda: server.figures().slots_in_use == 0, "nothing left of them", 120)
    with server.connect() as connection:
        assert connection.ask(_work(server, "slow", 1)).status == wire.OK
