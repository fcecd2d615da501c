"""Servers that take over from each other, and clients that leave: nothing is lost, and nothing is
done for nobody."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import threading
import time
from pathlib import Path

import graphs
import numpy as np
import pytest
import web
import wire
from calls import double, expect
from conftest import Serve
from harness import Server, eventually, stand_still
from web import Http, get

CLIENTS = 6
UNREADY_S = 1.0
RESTARTS = int(os.environ.get("LUMEN_RESTARTS", "2"))
X = np.arange(16, dtype="<f4").reshape(1, 16)
LARGE = 20_000_000


def settings(folder: Path, **server: object) -> dict[str, object]:
    models = [
        {"name": "double", "path": str(graphs.double(folder / "double.onnx")), "max_rows": 64},
        {"name": "slow", "path": str(graphs.slow(folder / "slow.onnx"))},
    ]
    return {"server": server, "engine": {"thread_count": 1}, "models": models}


# ---- one server after another ----


class Clients:
    """Clients that keep their connections and never try a request twice, as pools do with POST."""

    def __init__(self, port: int) -> None:
        self.port = port  # where new connections go, as a service's address does
        self.lost: list[str] = []
        self.answers = 0
        self.sent_on = 0  # how often an answer said that its connection ends
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        x = np.full((1, 16), number, "<f4")
        headers = {"Inference-Header-Content-Length": "0"}
        connection: http.client.HTTPConnection | None = None
        while not self._ends.is_set():
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            try:
                connection.request("POST", web.path("double"), x.tobytes(), headers)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200 or not body.endswith((x + x).tobytes()):
                    raise OSError(f"{answer.status} {body[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                with self._lock:
                    self.lost.append(repr(error))
                connection.close()
                connection = None
                continue
            with self._lock:
                self.answers += 1
                self.sent_on += answer.will_close
            if answer.will_close:
                connection = None
            time.sleep(0.001 * number)  # some are between two requests at any moment

    def stop(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()


def test_a_rolling_update_loses_nothing(serve: Serve, tmp_path: Path) -> None:
    chosen = settings(tmp_path, unready_seconds=UNREADY_S)
    server = serve(chosen)
    clients = Clients(server.port)
    try:
        for _ in range(RESTARTS):
            eventually(lambda was=clients.answers: clients.answers > was + 50, "the clients' work")
            following = serve(chosen)
            clients.port = following.port
            server.terminate()
            server.expect_clean_end()
            server = following
    finally:
        clients.stop()
    assert clients.lost == []
    assert clients.sent_on >= RESTARTS * CLIENTS
    print(f"{RESTARTS} restarts, {CLIENTS} clients: {clients.answers} answers, 0 lost")


def test_who_is_idle_hears_of_the_end_when_it_comes(serve: Serve, tmp_path: Path) -> None:
    """Until then the server serves as before, and each answer ends its connection."""
    server = serve(settings(tmp_path, unready_seconds=3600))
    with (
        Http(server.port) as idle,
        Http(server.port) as asks,
        Http(server.port) as held,
        Http(server.port) as late,
        server.connect() as native,
    ):
        for one in (idle, asks, held, late):
            assert not one.query(get("/v2/health/ready")).closes
        request, y = double(2)
        held.send(request[:-1])  # its last byte comes after the signal, however late that is heard
        eventually(lambda: server.figures().slots_in_use == 1, "the request's head")
        server.terminate()
        with Http(server.port) as probe:
            eventually(lambda: Http(server.port).query(get("/v2/health/ready")).code == 503, "503")
            assert probe.query(get("/v2/health/live")).closes
        for request in (
            double(1)[0],
            get("/v2"),
            get("/nothing"),
            double(1, version="HTTP/1.0")[0],
        ):
            with Http(server.port) as fresh:
                assert fresh.query(request).closes
                fresh.expect_end()
        held.send(request[-1:])
        answer = held.answer()
        expect(answer, 2, y)
        assert answer.closes
        held.expect_end()
        request, y = double(7)
        answer = asks.query(request)
        expect(answer, 7, y)
        assert answer.closes
        asks.expect_end()
        idle.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            idle.socket.recv(1)
        idle.socket.settimeout(20)
        assert native.ask(wire.ping(1)).id == 1
        server.terminate()  # a second signal: the wait is over
        idle.expect_end()
    server.expect_clean_end()


def test_a_request_that_is_here_when_the_end_comes_is_answered(
    serve: Serve, tmp_path: Path
) -> None:
    """In the socket of a server that is not looking, before the drain begins."""
    server = serve(settings(tmp_path, unready_seconds=0))
    request, y = double(3)
    clients = [Http(server.port) for _ in range(8)]
    for client in clients:
        assert client.query(get("/v2/health/live")).code == 200
    stand_still(server.pid)
    for client in clients:
        client.send(request)
    server.terminate()
    server.process.send_signal(signal.SIGCONT)
    for client in clients:
        answer = client.answer()
        expect(answer, 3, y)
        client.expect_end()
        client.close()
    server.expect_clean_end()


# ---- how long a connection may be idle ----


@pytest.mark.parametrize(
    ("seconds", "said"), [(650, "timeout=650"), (86400, "timeout=86400"), (0, None)]
)
def test_clients_are_told_how_long_they_may_be_idle(
    serve: Serve, tmp_path: Path, seconds: int, said: str | None
) -> None:
    server = serve(settings(tmp_path, idle_timeout_seconds=seconds))
    with Http(server.port) as kept:
        for request in (double(1)[0], get("/v2"), get("/nothing"), b"GET /v2 HTTP/1.1\r\n\r\n"):
            answer = kept.query(request)
            if answer.closes:
                assert "keep-alive" not in answer.headers
            else:
                assert answer.headers["connection"] == "keep-alive"
                assert answer.headers.get("keep-alive") == said


def test_who_says_nothing_is_asked_by_the_kernel(serve: Serve, tmp_path: Path) -> None:
    """When an idle connection would be let go: who watches is never idle, and may have vanished."""
    server = serve(settings(tmp_path, idle_timeout_seconds=100))
    with Http(server.port) as http:
        assert http.query(get("/v2/health/live")).code == 200
        ends = f":{server.port:04X}", f":{http.socket.getsockname()[1]:04X}"

        def is_asked() -> bool:
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
                _, local, remote, _, _, timer, *_ = line.split()
                if (local[8:], remote[8:]) == ends:
                    kind, _, ticks = timer.partition(":")
                    return kind == "02" and 0 < int(ticks, 16) <= 100 * os.sysconf("SC_CLK_TCK")
            return False

        eventually(is_asked, "a timer of the socket's")


# ---- clients that leave ----


def leave_with_queued(server: Server, count: int) -> None:
    """So many clients whose requests wait behind one that runs close in the ordinary way."""
    before = server.figures().requests
    clients = [Http(server.port) for _ in range(count)]
    first = Http(server.port)
    first.send(web.infer("slow", {"x": np.array([1500], "<i8")}))
    eventually(lambda: server.figures().requests == before + 1, "the first")
    for number, client in enumerate(clients, before + 2):
        client.send(web.infer("slow", {"x": np.array([1500], "<i8")}))
        eventually(lambda n=number: server.figures().requests == n, "the next")
    for client in clients:
        client.socket.shutdown(socket.SHUT_WR)  # what close does, where nothing is unread
    assert first.answer().code == 200
    first.close()
    for client in clients:
        client.close()


def test_nothing_is_done_for_clients_that_have_left(serve: Serve, tmp_path: Path) -> None:
    """Row 17."""
    server = serve(settings(tmp_path))
    before = server.figures()
    leave_with_queued(server, 4)
    eventually(lambda: server.figures().settled == before.settled + 5, "five ends")
    change = server.figures().since(before)
    assert (change["worker.requests_ok"], change["worker.requests_gone"]) == (1, 4)


def test_who_half_closes_may_still_read(serve: Serve, tmp_path: Path) -> None:
    """Row 17."""
    server = serve(settings(tmp_path, half_close=True))
    for count in (1, 2, 50):
        made = [double(number) for number in range(count)]
        with Http(server.port) as http:
            http.send(b"".join(request for request, _y in made))
            http.finish()
            for number, (_request, y) in enumerate(made):
                expect(http.answer(), number, y)
            http.expect_end()
    with Http(server.port) as http:
        http.send(web.infer("slow", {"x": np.array([300], "<i8")}))
        http.finish()
        assert http.answer().code == 200


def test_a_client_that_left_with_more_behind_is_noticed(serve: Serve, tmp_path: Path) -> None:
    """Bytes of a next request that wait hide the end of the stream from the receive."""
    server = serve(settings(tmp_path))
    before = server.figures()
    first, gone = Http(server.port), Http(server.port)
    slow = web.infer("slow", {"x": np.array([20_000], "<i8")})  # longer than the server's sweeps
    first.send(slow)
    eventually(lambda: server.figures().requests == before.requests + 1, "the first")
    gone.send(slow + get("/v2"))
    eventually(lambda: server.figures().requests == before.requests + 2, "the second")
    gone.finish()
    gone.expect_end()  # nobody has answered it
    assert first.answer().code == 200
    eventually(
        lambda: server.figures().since(before).get("worker.requests_gone") == 1, "one dropped"
    )
    first.close()
    gone.close()


# ---- answers before the body is read ----


def post_head(header: str) -> bytes:
    line = f"POST {web.path('double')} HTTP/1.1"
    return f"{line}\r\nHost: localhost\r\n{header}\r\n\r\n".encode()


def test_a_client_that_looks_for_an_answer_last_sees_it(serve: Serve, tmp_path: Path) -> None:
    """urllib, node and Java send all of a body before they read: the server must not hang up."""
    server = serve(settings(tmp_path, max_request_bytes="4MiB"))
    body = bytes(LARGE)
    for path, size, code in [
        (web.path("double"), LARGE, 413),
        ("/nothing", 4 << 20, 404),
        (web.path("other"), 4 << 20, 404),
    ]:
        for _ in range(5):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            connection.request("POST", path, body[:size], {"Connection": "close"})
            answer = connection.getresponse()
            assert (answer.status, b"error" in answer.read()) == (code, True)
            connection.close()
    with Http(server.port) as chunked:  # nobody knows how much of it there is
        head = post_head("Transfer-Encoding: chunked")
        chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
        chunked.send(head + chunk * 16)
        assert chunked.answer().code == 413


def test_a_refused_body_without_an_end_has_one(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, max_request_bytes="1MiB"))
    sent = 0
    with Http(server.port) as http:
        http.send(post_head(f"Content-Length: {1 << 40}"))
        assert http.answer().code == 413
        with contextlib.suppress(OSError):  # a reset or a broken pipe
            while sent < 1 << 30:
                sent += http.socket.send(bytes(1 << 20))
    assert sent < 1 << 30
