"""From start to end: ports, signals, several servers, the figures."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import graphs
import harness
import needs
import numpy as np
import pytest
import wire
from conftest import Serve
from harness import ROOT, Server, eventually
from operating import free_port

from lumen_uring.cli import main as lumen
from lumen_uring.ring.stats import read

DIGITS: dict[str, object] = {"models": [{"name": "digits", "path": "builtin:digits"}]}


def settings(folder: Path, **server: object) -> dict[str, object]:
    return {
        "server": {"arena_bytes": "16MiB", "max_request_bytes": "64KiB", **server},
        "engine": {"thread_count": 2},
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx")), "max_rows": 16},
            {"name": "slow", "path": str(graphs.slow(folder / "slow.onnx"))},
        ],
    }


def slow(server: Server, number: int, trips: int) -> bytes:
    return wire.frame(np.array([trips], "<i8").tobytes(), id=number, model=server.models["slow"])


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line in which a command says why it did not start."""
    assert done.returncode > 0, f"exit status {done.returncode}"
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("lumen: ")
    assert "serves on" not in done.stdout
    return lines[0]


@pytest.mark.once
@pytest.mark.parametrize("queue_type", ["mpmc", "inline"])
def test_all_threads_keep_their_niceness(serve: Serve, queue_type: str) -> None:
    """Also as root: a server must not push neighbours aside, nor lose to them (docs/adr/0008)."""
    server = serve({**DIGITS, "engine": {"queue_type": queue_type, "thread_count": 2}})
    found = {
        task.joinpath("comm").read_text().strip(): os.getpriority(os.PRIO_PROCESS, int(task.name))
        for task in Path(f"/proc/{server.pid}/task").iterdir()
    }
    assert any(name.startswith("lumen-") for name in found), found
    assert set(found.values()) == {os.getpriority(os.PRIO_PROCESS, 0)}, found


def test_a_port_in_use(serve: Serve, cache: Path) -> None:
    server = serve(DIGITS)
    said = sentence(harness.run(["--port", str(server.port)], cache))
    assert f"port {server.port}" in said
    assert "in use" in said
    with server.connect() as connection:  # the first one is none the worse
        assert connection.ask(wire.ping(1)).id == 1


def test_a_port_in_use_by_somebody_else(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = sentence(harness.run(["--port", str(port)], cache))
    assert f"port {port}" in said


def test_a_port_in_use_with_several_io_threads(serve: Serve, cache: Path) -> None:
    """SO_REUSEPORT must not let a second server take half of the first one's clients."""
    options = ["--set", "server.io_threads=2"]
    server = serve(DIGITS, options=["--port", "0", *options])
    try:
        # One that starts would stay: it is told to end, and the answer is then no sentence.
        done = harness.run(
            ["--port", str(server.port), *options], cache, ["timeout", "--signal=TERM", "30"]
        )
        assert f"port {server.port}" in sentence(done)
    finally:
        if not server.stats_path.exists():
            server.kill()


def test_an_address_of_another_machine(cache: Path) -> None:
    said = sentence(harness.run(["--port", "0", "--host", "203.0.113.7"], cache))
    assert "203.0.113.7" in said


def test_the_banner_and_the_figures_file(serve: Serve) -> None:
    server = serve(DIGITS)
    assert f"127.0.0.1:{server.port}" in server.output
    backends = ("io_uring", "epoll") if harness.backend() == "auto" else (harness.backend(),)
    assert any(f"I/O      {name}, " in server.output for name in backends)
    assert "runs     digits: on the I/O thread" in server.output
    assert str(server.stats_path) in server.output
    assert stat.S_IMODE(server.stats_path.stat().st_mode) == 0o600


def test_a_killed_servers_file_is_replaced(serve: Serve, cache: Path) -> None:
    """Row F19."""
    first = serve(DIGITS, options=["--port", str(free_port())])
    with first.connect() as connection:
        connection.ask(wire.ping(1))
    first.process.kill()
    first.process.wait()
    assert first.stats_path.exists()
    second = serve(DIGITS, options=["--port", str(first.port)])
    assert second.port == first.port
    assert second.figures().requests == 1  # the description that the harness asked for


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server(serve: Serve, number: signal.Signals) -> None:
    """Row F25."""
    server = serve(DIGITS)
    idle = server.connect()
    assert idle.ask(wire.ping(1)).id == 1
    server.process.send_signal(number)
    idle.expect_end()
    server.expect_clean_end()
    with pytest.raises(ConnectionRefusedError):
        server.connect()


def test_what_is_in_flight_is_finished(serve: Serve, tmp_path: Path) -> None:
    """Row F25."""
    server = serve(settings(tmp_path, drain_seconds=60))
    before = server.figures().requests
    with server.connect() as connection, server.connect() as other:
        for number in range(6):  # two run, four wait
            connection.send(slow(server, number, 3000 + number))
        eventually(lambda: server.figures().requests == before + 6, "the load")
        server.terminate()
        eventually(lambda: "Draining" in server.output, "the drain")
        other.expect_end()
        replies = connection.replies(6)
        for number, reply in replies.items():
            assert reply.payload == np.array([2 * (3000 + number)], "<i8").tobytes()
        connection.expect_end()
    server.expect_clean_end()


def test_new_requests_while_draining(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, drain_seconds=60))
    with server.connect() as connection:
        before = server.figures().requests
        connection.send(slow(server, 1, 60_000))  # a second
        eventually(lambda: server.figures().requests == before + 1, "the load")
        server.terminate()
        # The listener closes with the drain, so from then on the answer is "shutting down".
        eventually(lambda: refuses(server), "no more connections")
        x = np.ones(16, "<f4").tobytes()
        connection.send(wire.frame(x, id=2) + wire.ping(3))
        replies = connection.replies(3)
        assert replies[1].status == wire.OK
        assert replies[2].status == wire.SHUTTING_DOWN
        connection.expect_end()
    server.expect_clean_end()


def refuses(server: Server) -> bool:
    try:
        server.connect().close()
    except (ConnectionRefusedError, ConnectionResetError):  # reset: in the moment it closes
        return True
    return False


def test_sigterm_under_load(serve: Serve, tmp_path: Path) -> None:
    """Row F25: every request gets its right answer, "shutting down", or sees its connection end."""
    server = serve(settings(tmp_path))
    started = threading.Barrier(9)
    failures: list[BaseException] = []
    counts = {"ok": 0, "shutting down": 0, "ended": 0}
    lock = threading.Lock()

    def act(client: int) -> None:
        rng = np.random.default_rng(client)
        answers: dict[int, bytes] = {}
        outcome = {"ok": 0, "shutting down": 0}
        number = 0
        started.wait(30)
        try:
            with server.connect() as connection:
                while True:
                    data = b""
                    for _ in range(8):
                        number += 1
                        if number % 8 == client % 8:
                            trips = int(rng.integers(1, 200))
                            data += slow(server, number, trips)
                            answers[number] = np.array([2 * trips], "<i8").tobytes()
                        else:
                            x = rng.standard_normal(16).astype("<f4")
                            data += wire.frame(x.tobytes(), id=number)
                            answers[number] = (x + x).tobytes()
                    connection.send(data)
                    for _ in range(8):
                        reply = connection.reply()
                        expected = answers.pop(reply.id)
                        if reply.status == wire.OK:
                            assert reply.payload == expected
                            outcome["ok"] += 1
                        else:
                            assert reply.status == wire.SHUTTING_DOWN
                            outcome["shutting down"] += 1
        except (wire.Closed, ConnectionError):
            pass
        except BaseException as error:
            failures.append(error)
        with lock:
            for name, value in outcome.items():
                counts[name] += value
            counts["ended"] += len(answers)

    threads = [threading.Thread(target=act, args=(n,), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    started.wait(30)
    eventually(lambda: server.figures().worker["requests_ok"] > 500, "the load")
    server.terminate()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive(), "a client still waits for a server that has ended"
    server.expect_clean_end()
    assert not failures, failures
    assert counts["ok"] > 500, counts


def test_a_second_signal_ends_at_once(serve: Serve, tmp_path: Path) -> None:
    """Row F25."""
    server = serve(settings(tmp_path, drain_seconds=600))
    with server.connect() as connection:
        connection.send(wire.frame(bytes(64), id=1)[:50])  # would hold the drain for 600 s
        eventually(lambda: server.figures().slots_in_use == 1, "half a request")
        server.terminate()
        eventually(lambda: "Draining" in server.output, "the drain")
        assert server.alive
        server.terminate()
        assert connection.expect_closed() == b""
    server.expect_clean_end()


def test_a_drain_has_an_end(serve: Serve, tmp_path: Path) -> None:
    """Row F25."""
    server = serve(settings(tmp_path, drain_seconds=0.2))
    with server.connect() as half, server.connect() as stuck, server.connect() as waiting:
        half.send(wire.frame(bytes(64), id=1)[:50])
        stuck.send(wire.ping(1)[:20])
        waiting.send(wire.frame(id=1, length=2**31))
        assert waiting.reply().status == wire.TOO_LARGE
        eventually(lambda: server.figures().slots_in_use == 1, "half a request")
        server.terminate()
        assert half.expect_closed() == b""
        assert stuck.expect_closed() == b""
    server.expect_clean_end()
    # It was the engine that ended them, not the end of the process.
    assert "does not return" not in server.output


def test_two_servers_side_by_side(serve: Serve, tmp_path: Path) -> None:
    one, two = serve(settings(tmp_path)), serve(settings(tmp_path))
    assert one.port != two.port
    x = np.ones(16, "<f4")
    with one.connect() as first, two.connect() as second:
        for number in range(20):
            assert first.ask(wire.frame(x.tobytes(), id=number)).payload == (x + x).tobytes()
        for number in range(10):
            assert second.ask(wire.frame(x.tobytes(), id=number)).payload == (x + x).tobytes()
    assert one.figures().worker["requests_ok"] == 20
    assert two.figures().worker["requests_ok"] == 10
    one.stop()
    with two.connect() as second:
        assert second.ask(wire.ping(1)).id == 1


def test_servers_of_one_port_on_two_addresses_keep_their_figures_apart(serve: Serve) -> None:
    one = serve(DIGITS)
    two = serve(DIGITS, options=["--port", str(one.port), "--host", "127.0.0.2"])
    assert read(one.stats_path).pid == one.pid
    two.kill()


@pytest.mark.once
def test_the_figures_can_be_read_by_anybody_while_they_change(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path))
    reader = subprocess.Popen(
        [
            sys.executable, "-c",
            "import sys; from pathlib import Path; from lumen_uring.ring.stats import read\n"
            "last = 0\n"
            "for _ in range(300):\n"
            "    s = read(Path(sys.argv[1])); n = s.counters['io']['requests']\n"
            "    assert n >= last and s.state == 'ready', (n, last, s.state); last = n\n"
            "print(last)\n",
            str(server.stats_path),
        ],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    x = np.ones(16, "<f4").tobytes()
    with server.connect() as connection:
        number = 0
        while reader.poll() is None and number < 200_000:
            number += 1
            assert connection.ask(wire.frame(x, id=number)).id == number
    out, err = reader.communicate(timeout=30)
    assert reader.returncode == 0, err
    assert int(out) > 1


def test_lumen_stats(serve: Serve, cache: Path, tmp_path: Path) -> None:
    server = serve(settings(tmp_path))
    with server.connect() as connection:
        for number in range(10):
            assert connection.ask(wire.frame(bytes(64), id=number)).status == wire.OK
    server.check_idle()
    done = harness.run(["stats", "--port", str(server.port), "--json"], cache)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["pid"], found["port"], found["state"]) == (server.pid, server.port, "ready")
    assert found["counters"]["worker"]["requests_ok"] == 10
    assert found["stages"]["infer"]["count"] == 10
    assert found["stages"]["total"]["count"] == 10
    assert harness.run(["stats", "--port", str(server.port)], cache).returncode == 0
    server.stop()
    done = harness.run(["stats", "--port", str(server.port)], cache)
    assert str(server.port) in sentence(done)


@pytest.mark.once
def test_lumen_top(serve: Serve, cache: Path, tmp_path: Path) -> None:
    """Requests arrive from before its first reading until after its last."""
    server = serve(settings(tmp_path))
    top = ["top", "--port", str(server.port), "--once"]
    running = subprocess.Popen(
        harness.command(*top), cwd=ROOT, env=harness.environment(cache),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    number = 0
    with server.connect() as connection:
        while running.poll() is None:
            number += 1
            assert connection.ask(wire.frame(bytes(64), id=number)).status == wire.OK
    out, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (0, "")
    assert f"pid {server.pid}, ready" in out
    rows = {cells[0]: cells for cells in map(str.split, out.splitlines()) if cells}
    assert rows["requests/s"][3:5] == ["0", "error"]
    for name in ("total", "infer", "double"):
        assert rows[name][1] not in ("0", "-"), out
    # Where an I/O thread runs the model, its worker has no thread.
    server.check_idle()
    threads = read(server.stats_path).threads
    inline = sum(
        t.model_counters["double"]["runs"] for t in threads if (t.role, t.tid) == ("worker", 0)
    )
    # A Run that was made to wait sends its model to the workers, before top looks or after it.
    assert inline or rows["double"][-1] == "0%"
    assert inline < number or rows["double"][-1] == "100%"
    server.stop()
    assert str(server.port) in sentence(harness.run(top, cache))


def test_lumen_doctor(cache: Path) -> None:
    done = harness.run(["doctor", "--json"], cache)
    found = json.loads(done.stdout)
    assert done.stderr == ""
    names = json.dumps(found)
    for part in ("io_uring", "memlock", "huge pages"):
        assert part in names
    assert done.returncode == 0


def test_predict_without_a_server(cache: Path) -> None:
    port = free_port()
    picture = ROOT / "tests" / "data" / "digits" / "digit_1.png"
    said = sentence(harness.run(["predict", "--port", str(port), str(picture)], cache))
    assert str(port) in said


def test_a_model_file_that_changes_is_not_served_from_the_cache(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    entry: dict[str, object] = {"models": [{"name": "m", "path": str(path)}]}
    for make, factor in (
        (graphs.double, 2),
        (lambda p: graphs.image(p, graphs.FLOAT, ["n", 16]), 1),
    ):
        make(path)
        server = serve(entry)
        x = np.ones(16, "<f4")
        with server.connect() as connection:
            assert connection.ask(wire.frame(x.tobytes())).payload == (factor * x).tobytes()
        server.stop()


def waits_out(port: int) -> bool:
    """Whether a connection to a port was ended by its server, and the kernel still remembers it."""
    time_wait = "06"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{port:04X}") and fields[3] == time_wait:
            return True
    return False


@pytest.mark.parametrize("io_threads", [1, 2])
def test_the_same_port_again_and_again(serve: Serve, tmp_path: Path, io_threads: int) -> None:
    """Row F19: also while connections that the server itself has ended hold the port."""
    port = free_port()
    for _ in range(3):
        chosen = settings(tmp_path, io_threads=io_threads)
        server = serve(chosen, options=["--port", str(port)])
        with server.connect() as connection:
            assert connection.ask(wire.frame(bytes(64), id=1)).payload == bytes(64)
        with server.connect() as ended:
            ended.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert ended.expect_closed().startswith(b"HTTP/1.1 200 ")
        eventually(partial(waits_out, port), "a connection that the server has ended")
        server.stop()


def io_counters(server: Server) -> list[dict[str, int]]:
    """The counters of each I/O thread."""
    threads = read(server.stats_path).threads
    return [thread.counters for thread in threads if thread.role == "io"]


@pytest.mark.once
@pytest.mark.parametrize("count", [12, 1])
def test_an_io_thread_whose_ring_fails_ends_the_server(
    serve: Serve, tmp_path: Path, count: int
) -> None:
    """All clients see their connections end, and who watches the process its exit status; also
    where the other I/O thread has nobody and sleeps."""
    if harness.sanitized():
        needs.absent("unsanitized")
    library, file = tmp_path / "break_ring.so", tmp_path / "broken"
    source = Path(__file__).parents[1].joinpath("break_ring.c")
    subprocess.run(
        ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
         "-o", library, source],
        check=True, timeout=60,
    )  # fmt: skip
    server = serve(
        settings(tmp_path, io_threads=2, io_backend="epoll"),
        extra_environment={
            "LD_PRELOAD": str(library),
            "LUMEN_URING_MASK": "epoll_pwait2",
            "BREAK_FILE": str(file),
        },
    )
    # The harness' own connection has been somewhere too.
    before = [of["connections_accepted"] for of in io_counters(server)]
    clients = [server.connect() for _ in range(count)]
    for number, client in enumerate(clients):
        assert client.ask(wire.ping(number)).id == number
    after = [of["connections_accepted"] for of in io_counters(server)]
    has = [now - then for now, then in zip(after, before, strict=True)]
    assert count == 1 or min(has) > 0, f"one I/O thread got no connection: {has}"
    broken = has.index(max(has))
    file.with_name(f"broken{broken}").touch()
    for client in clients:
        client.expect_closed()
        client.close()
    assert server.wait() == 1
    assert f"I/O thread {broken}: epoll: EBADF" in server.errors
    assert "The engine ended by itself." in server.errors
    assert not server.stats_path.exists()


def test_no_descriptor_survives_an_exec(serve: Serve, tmp_path: Path) -> None:
    """Row F18: what a server's descriptors are open on stays its own, whatever it might start."""
    server = serve(settings(tmp_path), prefix=["env"])  # not forked, with what a fork inherits
    with server.connect() as connection:
        assert connection.ask(wire.ping(1)).id == 1
        kept = {}
        for entry in Path(f"/proc/{server.pid}/fdinfo").iterdir():
            flags = int(entry.read_text().split("flags:")[1].split()[0], 8)
            if int(entry.name) > 2 and not flags & os.O_CLOEXEC:
                kept[entry.name] = os.readlink(f"/proc/{server.pid}/fd/{entry.name}")
    assert kept == {}


@pytest.mark.once
def test_a_model_that_does_not_return(serve: Serve, tmp_path: Path) -> None:
    """Row F22: its requests end with their deadline, the others go on, readiness says so."""
    server = serve(settings(tmp_path, hang_seconds=1, drain_seconds=1))
    double = np.ones(16, "<f4").tobytes()

    def is_ready() -> bool:
        with server.connect() as connection:
            connection.send(
                b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            return connection.expect_closed().startswith(b"HTTP/1.1 200 ")

    assert is_ready()
    with server.connect() as stuck, server.connect() as other:
        for_ages = np.array([2**40], "<i8").tobytes()
        model = server.models["slow"]
        stuck.send(wire.frame(for_ages, id=1, model=model, timeout_us=300_000))
        reply = stuck.reply()
        assert (reply.status, reply.id) == (wire.DEADLINE, 1)
        assert "not returned" in reply.text
        assert stuck.ask(wire.ping(2)).id == 2
        for number in range(20):  # one worker is left
            answer = other.ask(wire.frame(double, id=number))
            assert (answer.status, answer.id) == (wire.OK, number)
        eventually(lambda: not is_ready(), "readiness to go")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0


def test_sigterm_turns_readiness_off_first(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, unready_seconds=60))
    double = np.ones(16, "<f4").tobytes()
    ready = b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n"

    def health(*options: str) -> int:
        return lumen(["health", "--port", str(server.port), *options])

    assert (health(), health("--ready")) == (0, 0)
    with server.connect() as connection, server.connect() as http:
        assert connection.ask(wire.frame(double, id=1)).status == wire.OK
        server.process.send_signal(signal.SIGTERM)

        def unready() -> bool:
            http.send(ready)
            return http.socket.recv(4096).startswith(b"HTTP/1.1 503 ")

        eventually(unready, "readiness to go")
        assert (health(), health("--ready")) == (0, 1)
        assert connection.ask(wire.frame(double, id=2)).status == wire.OK  # as before
        with server.connect() as late:
            assert late.ask(wire.frame(double, id=3)).status == wire.OK
        server.process.send_signal(signal.SIGTERM)
        connection.expect_end()
    assert server.process.wait(20) == 0
    assert health() == 1


def test_ctrl_c_does_not_wait_for_balancers(serve: Serve, tmp_path: Path) -> None:
    """SIGINT is somebody at a terminal: nothing is served on for `unready_seconds`."""
    server = serve(settings(tmp_path, unready_seconds=3600))
    server.process.send_signal(signal.SIGINT)
    server.expect_clean_end()
    assert "Draining" in server.output
    assert "Readiness is off" not in server.output
