"""SIGHUP: a server reads its settings again while it answers requests."""

from __future__ import annotations

import http.client
import re
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import wire
from conftest import Serve
from harness import Server, eventually, run
from operating import Manager, Reloaded, free_port, key, records
from test_e2e_life import DIGITS, settings

pytestmark = pytest.mark.once  # tables are exchanged in the same way on both backends


def asked(server: Server, token: str | None, host: str = "localhost") -> int:
    """The status of an inference over HTTP."""
    body = bytes(64)
    lines = [
        "POST /v2/models/double/infer HTTP/1.1",
        f"Host: {host}",
        "Inference-Header-Content-Length: 0",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([f"Authorization: Bearer {token}"] if token else []),
    ]
    with server.connect() as connection:
        connection.send("\r\n".join([*lines, "", ""]).encode() + body)
        return int(connection.expect_closed().split()[1])


def asked_natively(server: Server, token: str) -> int:
    with server.connect() as connection:
        padded = token.encode().ljust(32, b"\0")
        return connection.ask(wire.frame(padded + bytes(64), id=1, flags=1)).status


def page_for(port: int, host: str) -> int:
    """The status of the metrics page under a name."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as to:
        to.request("GET", "/metrics", headers={"Host": host})
        return to.getresponse().status


def test_keys_hosts_and_rates_are_reloaded(serve: Serve, tmp_path: Path) -> None:
    pages = free_port()

    def document(**server: object) -> dict[str, object]:
        return settings(tmp_path, io_threads=2, metrics_port=pages, **server)

    one = Reloaded(serve, tmp_path, document(keys=[key("ada")]))
    server = one.server
    assert [asked(server, token) for token in ("ada", "bob", None)] == [200, 401, 401]
    assert asked(server, "ada", "lumen.example") == 421
    assert page_for(pages, "lumen.example") == 421

    said = one.reload(document(keys=[key("bob")], hosts=["lumen.example"]))
    assert "Reloaded: server.hosts, server.keys." in said
    assert [asked(server, token) for token in ("ada", "bob", None)] == [401, 200, 401]
    assert asked(server, "bob", "lumen.example") == 200
    assert page_for(pages, "lumen.example") == 200
    assert asked_natively(server, "bob") == wire.OK
    assert asked_natively(server, "ada") == wire.UNAUTHORISED

    one.reload(document(keys=[key("bob", models=["slow"])]))
    assert asked(server, "bob") == 403
    assert asked_natively(server, "bob") == wire.UNAUTHORISED

    said = one.reload(document(rate=0.001, burst=1))
    assert "server.rate" in said
    assert [asked(server, None) for _ in range(2)] == [200, 429]
    # The same rate again fills no bucket.
    one.reload(document(rate=0.001, burst=1, hosts=["other.example"]))
    assert asked(server, None) == 429
    assert [page_for(pages, name) for name in ("lumen.example", "other.example")] == [421, 200]
    one.reload(document())
    assert [asked(server, None) for _ in range(3)] == [200, 200, 200]

    limited = document()
    limited["models"][0].update(rate=0.001, burst=2)  # type: ignore[index]
    assert "models.0.rate" in one.reload(limited)
    assert [asked(server, None) for _ in range(3)] == [200, 200, 429]


def test_a_request_in_flight_keeps_what_it_had(serve: Serve, tmp_path: Path) -> None:
    one = Reloaded(serve, tmp_path, settings(tmp_path, keys=[key("ada")]))
    with one.server.connect() as connection:
        trips = np.array([3000], "<i8").tobytes()
        frame = wire.frame(b"ada".ljust(32, b"\0") + trips, id=1, model=1, flags=1)
        connection.send(frame[:-1])
        eventually(lambda: one.server.figures().slots_in_use == 1, "half a request")
        one.reload(settings(tmp_path, keys=[key("bob")]))
        connection.send(frame[-1:])
        reply = connection.reply()
        assert (reply.status, reply.payload) == (wire.OK, np.array([6000], "<i8").tobytes())
        assert connection.ask(frame).status == wire.UNAUTHORISED


def test_what_needs_a_restart_stays(serve: Serve, tmp_path: Path) -> None:
    one = Reloaded(serve, tmp_path, settings(tmp_path))
    other = settings(tmp_path, port=1, arena_bytes="17MiB", drain_seconds=7, hosts=["a.example"])
    other["engine"] = {"thread_count": 3, "idle": "park"}
    said = one.reload(other)
    assert "server.arena_bytes cannot change without a restart: 16777216 stays." in said
    assert "engine.idle cannot change without a restart: adaptive stays." in said
    assert "engine.thread_count cannot become 3 without a restart" in said
    assert "server.port" not in said  # --port says so, and still does
    assert "Reloaded: server.drain_seconds, server.hosts." in said
    assert asked(one.server, None, "a.example") == 200
    # A change that was refused is reported again at the next reload.
    assert "server.arena_bytes cannot change" in one.reload(other)
    one.server.terminate()
    one.server.expect_clean_end()
    assert "Draining for at most 7 s" in one.server.output


def test_workers_queue_and_allocator_change(serve: Serve, tmp_path: Path) -> None:
    """The seed's eight modes, one after the other, while clients ask; telemetry names each."""
    trace = tmp_path / "telemetry.csv"
    modes = [
        (queue, allocator)
        for allocator in ("lumen_arena", "standard")
        for queue in ("mpmc", "spsc", "naive", "batched")
    ]

    def document(queue: str, allocator: str, threads: object) -> dict[str, object]:
        found = settings(tmp_path, io_threads=1)
        engine: dict[str, object] = {"queue_type": queue, "allocator_type": allocator}
        engine.update(thread_count=threads, batch_size=2, telemetry_csv_path=str(trace))
        return {**found, "engine": engine, "models": found["models"][:1]}  # type: ignore[index]

    one = Reloaded(serve, tmp_path, document("scq", "lumen_arena", 2))
    done = threading.Event()
    wrong: list[int] = []

    def keep_asking() -> None:
        while not done.is_set():
            wrong.extend(code for code in [asked(one.server, None)] if code != 200)

    clients = [threading.Thread(target=keep_asking) for _ in range(3)]
    for client in clients:
        client.start()
    for number, (queue, allocator) in enumerate(modes):
        threads = 1 if queue == "spsc" else 2 - number // 4
        said = one.reload(document(queue, allocator, threads))
        assert "engine.queue_type" in said
        assert asked(one.server, None) == 200
    done.set()
    for client in clients:
        client.join()
    assert not wrong
    one.server.terminate()
    one.server.expect_clean_end()
    rows = [line.split(",")[3:5] for line in trace.read_text().splitlines()[1:]]
    assert {("scq", "lumen_arena"), *modes} >= {(queue, allocator) for queue, allocator in rows}
    assert {(queue, allocator) for queue, allocator in rows} >= set(modes)


def test_a_bad_file_changes_nothing(serve: Serve, tmp_path: Path) -> None:
    one = Reloaded(serve, tmp_path, settings(tmp_path, keys=[key("ada")]))
    said = one.reload(settings(tmp_path, keys=[key("bob")], rate="much"))
    assert "error   The reload failed, the old settings stay in force:" in said
    problem = re.compile(f"{re.escape(str(one.path))}:\\d+ server.rate: expected requests a second")
    eventually(lambda: problem.search(one.server.errors), "the log's second line")
    assert [asked(one.server, token) for token in ("ada", "bob")] == [200, 401]
    one.path.unlink()
    one.server.process.send_signal(signal.SIGHUP)
    eventually(lambda: "No such file" in one.server.errors, "the sentence")
    assert asked(one.server, "ada") == 200


def test_the_log_is_reloaded(serve: Serve, tmp_path: Path) -> None:
    one = Reloaded(serve, tmp_path, settings(tmp_path))
    log = tmp_path / "a.log"
    one.write({**settings(tmp_path), "log": {"path": str(log), "format": "json"}})
    one.server.process.send_signal(signal.SIGHUP)
    eventually(lambda: log.exists() and "Reloaded" in log.read_text(), "the new log")
    (record,) = records(log)
    assert record["message"] == "Reloaded: log.format, log.path."
    one.write({**settings(tmp_path), "log": {"path": f"{tmp_path}/none/a.log", "level": "error"}})
    one.server.process.send_signal(signal.SIGHUP)
    eventually(lambda: "The old settings stay in force" in log.read_text(), "the refusal")
    one.server.idle_fds = 0  # the log is one more than at the start


def test_a_manager_is_told_of_a_reload(serve: Serve, tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    server = serve(DIGITS, extra_environment={"NOTIFY_SOCKET": str(tmp_path / "notify")})
    manager.until("READY=1")
    before_us = time.monotonic_ns() // 1000
    server.process.send_signal(signal.SIGHUP)
    reloading = manager.until("RELOADING=1")
    (stamp,) = [line for line in reloading if line.startswith("MONOTONIC_USEC=")]
    assert before_us <= int(stamp.partition("=")[2]) <= time.monotonic_ns() // 1000
    manager.until("READY=1")


def test_a_server_that_ends_instead(serve: Serve, cache: Path) -> None:
    server = serve(DIGITS)
    server.process.send_signal(signal.SIGSTOP)
    done: list[str] = []
    command = ["reload", "--port", str(server.port), "--timeout", "300"]
    asking = threading.Thread(target=lambda: done.append(run(command, cache).stderr))
    asking.start()
    pending = re.compile(r"^ShdPnd:\s*[0-9a-f]*[13579bdf]$", re.MULTILINE)  # SIGHUP is bit 0
    status = Path(f"/proc/{server.pid}/status")
    eventually(lambda: pending.search(status.read_text()), "the signal")
    server.kill()
    asking.join()
    assert "has ended meanwhile" in done[0]


def test_reloads_under_load(serve: Serve, tmp_path: Path) -> None:
    """Both keys are in every table: nobody is refused while tables change under their requests."""
    one = Reloaded(serve, tmp_path, settings(tmp_path, io_threads=2, keys=[key("ada")]))
    stop = threading.Event()
    failures: list[BaseException] = []
    counts = [0] * 4

    def act(index: int) -> None:
        frame = wire.frame(b"ada".ljust(32, b"\0") + bytes(64), id=1, flags=1)
        try:
            with one.server.connect() as connection:
                while not stop.is_set():
                    assert connection.ask(frame).status == wire.OK
                    counts[index] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=act, args=(index,)) for index in range(len(counts))]
    for thread in threads:
        thread.start()
    for number in range(20):
        keys = [key(f"k{n}") for n in range(number)] + [key("ada")]
        one.reload(settings(tmp_path, io_threads=2, keys=keys))
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not failures, failures
    assert min(counts) > 0


ADA, BOB = key("ada"), key("bob")


@pytest.mark.parametrize(
    ("before", "token", "after", "status"),
    [
        ([ADA], b"ada", [BOB, ADA], wire.OK),
        ([ADA], b"ada", [BOB], wire.UNAUTHORISED),
        ([ADA, BOB], b"bob", [], wire.OK),
        ([], b"", [ADA], wire.UNAUTHORISED),
    ],
)
def test_keys_that_change_within_a_header(
    serve: Serve,
    tmp_path: Path,
    before: list[object],
    token: bytes,
    after: list[object],
    status: int,
) -> None:
    """A shape block may come later than the credential: its key is found again by its name."""
    one = Reloaded(serve, tmp_path, settings(tmp_path, keys=before))
    payload = token.ljust(32, b"\0") + wire.shape_block([(1, 16)]) + bytes(64)
    frame, cut = wire.frame(payload, id=5, flags=3), 32 + 32 + 6
    with one.server.connect() as connection:
        connection.send(frame[:cut])
        eventually(lambda: one.server.figures().io["bytes_in"] >= cut, "the first bytes")
        one.reload(settings(tmp_path, keys=after))
        connection.send(frame[cut:])
        reply = connection.reply()
        assert (reply.id, reply.status) == (5, status)
        assert connection.ask(wire.ping(6)).id == 6
