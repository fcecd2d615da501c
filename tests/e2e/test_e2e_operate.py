"""An operator pauses a server, takes its terminal away, sends it signals."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import harness
import needs
import numpy as np
import pytest
import wire
import yaml
from conftest import Serve
from harness import Server, eventually
from test_e2e_life import DIGITS, settings


def slow(number: int, trips: int) -> bytes:
    """A request of the second model of `settings`."""
    return wire.frame(np.array([trips], "<i8").tobytes(), id=number, model=1)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def pause(server: Server, seconds: float) -> None:
    """Stops and continues the server, as a debugger, Ctrl-Z or a container's pause does."""
    server.process.send_signal(signal.SIGSTOP)
    eventually(lambda: is_stopped(server.pid), "the stop")
    time.sleep(seconds)  # what is tested is that time passes
    server.process.send_signal(signal.SIGCONT)
    eventually(lambda: not is_stopped(server.pid), "the continuation")


@contextmanager
def raw_server(
    document: dict[str, object],
    cache: Path,
    folder: Path,
    output: int,
    prefix: Sequence[str] = (),
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server whose output is the caller's: the process, and the port it listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(harness.with_backend(document)))
    process = subprocess.Popen(
        [*prefix, *harness.command("--config", str(path), "--port", str(port))],
        cwd=harness.ROOT,
        env=harness.environment(cache),
        stdout=output,
        stderr=output,
    )
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()
        Path(f"/dev/shm/lumen-{port}").unlink(missing_ok=True)


def wait_for_port(process: subprocess.Popen[bytes], port: int) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            with wire.Wire(port) as connection:
                return connection.ask(wire.ping(1)).id == 1
        except OSError:
            return False

    eventually(answers, "an answer", harness.START_S)


def test_a_pause_is_no_end(serve: Serve) -> None:
    """The main thread's wait is interrupted after its time has passed, over and over."""
    server = serve(DIGITS)
    with server.connect() as connection:
        for number in range(6):
            pause(server, 1.1)
            assert connection.ask(wire.ping(number)).id == number
        for _ in range(60):
            pause(server, 0.02)
        assert connection.ask(wire.ping(9)).id == 9
    assert server.alive
    assert "Draining" not in server.output
    # A continued server ends when it is told to, and not before.
    server.stop()


def test_a_pause_while_not_ready(serve: Serve, tmp_path: Path) -> None:
    """The signal that came last must not be taken for a second one."""
    server = serve(settings(tmp_path, unready_seconds=600))
    with server.connect() as connection:
        assert connection.ask(wire.ping(1)).id == 1
        server.terminate()
        eventually(lambda: "Readiness is off" in server.output, "the signal")
        for _ in range(3):
            pause(server, 1.1)
        assert "Draining" not in server.output
        server.terminate()
        connection.expect_end()
    server.expect_clean_end()


@pytest.mark.parametrize("place", ["a pipe without a reader", "a full disk", "nothing", "a slow"])
def test_a_drain_without_anybody_who_reads(cache: Path, tmp_path: Path, place: str) -> None:
    """`lumen | tee log`, Ctrl-C: tee is gone, and every request in flight is answered."""
    reader, writer = os.pipe()
    if place == "a full disk":
        os.close(writer)
        writer = os.open("/dev/full", os.O_WRONLY)
    if place == "a slow":  # nobody reads, and the pipe has no room
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while os.write(writer, bytes(4096)):
                continue
        os.set_blocking(writer, True)
    prefix = ["sh", "-c", 'exec "$@" 1>&- 2>&-', "sh"] if place == "nothing" else []
    document = settings(tmp_path, drain_seconds=60)
    with raw_server(document, cache, tmp_path, writer, prefix) as (process, port):
        os.close(writer)
        wait_for_port(process, port)
        if place != "a slow":
            os.close(reader)
        with wire.Wire(port) as connection:
            for number in range(6):
                connection.send(slow(number, 3000 + number))
            connection.send(wire.ping(9))
            replies: dict[int, wire.Reply] = {}
            while 9 not in replies:  # then it has read the others too
                reply = connection.reply()
                replies[reply.id] = reply
            process.send_signal(signal.SIGTERM)
            replies.update(connection.replies(7 - len(replies)))
            for number in range(6):
                assert replies[number].payload == np.array([2 * (3000 + number)], "<i8").tobytes()
            connection.expect_end()
        assert process.wait(harness.STOP_S) == 0
        assert not Path(f"/dev/shm/lumen-{port}").exists()
    if place == "a slow":
        os.close(reader)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGXCPU])
def test_every_end_leaves_nothing_behind(
    serve: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "s.sock"
    server = serve(settings(tmp_path, unix_socket=str(path)))
    assert path.exists()
    assert server.stats_path.exists()
    server.process.send_signal(number)
    server.expect_clean_end()
    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        server.connect()


def test_other_signals_end_nothing(serve: Serve) -> None:
    server = serve(DIGITS)
    with server.connect() as connection:
        for number in (
            signal.SIGHUP,
            signal.SIGUSR1,
            signal.SIGUSR2,
            signal.SIGALRM,
            signal.SIGVTALRM,
            signal.SIGPROF,
            signal.SIGIO,
            signal.SIGPWR,
            signal.SIGPIPE,
        ):
            server.process.send_signal(number)
            assert connection.ask(wire.ping(number)).id == number
    server.stop()


# ---- the log ----


def records(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_log_in_lines_of_json(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "lumen.log"
    document = {**DIGITS, "log": {"format": "json", "path": str(log), "level": "debug"}}
    reader, writer = os.pipe()
    with raw_server(document, cache, tmp_path, writer) as (process, port):
        os.close(writer)
        wait_for_port(process, port)
        process.send_signal(signal.SIGUSR2)
        eventually(lambda: "SIGUSR2" in log.read_text(), "a line of level debug")
        process.send_signal(signal.SIGTERM)
        assert process.wait(harness.STOP_S) == 0
    with os.fdopen(reader, "rb") as rest:
        assert rest.read() == b""  # no banner between the lines of a program that reads along
    found = records(log)
    assert f"serves on 127.0.0.1:{port}" in found[0]["message"]
    assert [record["level"] for record in found if "SIGUSR2" in record["message"]] == ["debug"]
    assert "Draining" in found[-1]["message"]
    for record in found:
        assert record.keys() == {"time", "level", "message"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["time"])


def test_the_log_of_a_server_that_does_not_start(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "lumen.log"
    done = harness.run(
        [
            "--set", f"log.path={log}", "--set", "log.format=json",
            "--model", f"m={tmp_path}/none.onnx",
        ],
        cache,
    )  # fmt: skip
    assert done.returncode == 2
    (record,) = records(log)
    assert record["level"] == "error"
    assert "none.onnx does not exist" in record["message"]
    assert "none.onnx does not exist" in done.stderr


def test_a_log_that_cannot_be_written_refuses_the_start(cache: Path, tmp_path: Path) -> None:
    done = harness.run(["--set", f"log.path={tmp_path}/none/lumen.log"], cache)
    assert done.returncode == 2
    assert "log.path: expected a file that can be written" in done.stderr


def test_the_log_beside_the_banner(serve: Serve) -> None:
    """stdout and stderr are two files here: people read the one, the other is the log."""
    server = serve(DIGITS)
    first = server.output.splitlines()[0]
    assert f"info    {first}" in server.errors
    server.stop()
    assert "Draining" in server.output
    assert "info    Draining" in server.errors


def test_one_place_for_both_says_everything_once(cache: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    with (
        both.open("wb") as file,
        raw_server(DIGITS, cache, tmp_path, file.fileno()) as (process, port),
    ):
        wait_for_port(process, port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(harness.STOP_S) == 0
    assert both.read_text().count("serves on") == 1
    assert both.read_text().count("Draining") == 1


def test_a_moved_log_is_opened_again(serve: Serve, tmp_path: Path) -> None:
    """logrotate: move the file, send SIGUSR1."""
    log, old = tmp_path / "lumen.log", tmp_path / "lumen.log.1"
    server = serve({**DIGITS, "log": {"path": str(log), "level": "debug"}})
    log.rename(old)
    server.process.send_signal(signal.SIGUSR1)
    eventually(log.exists, "a new file")
    server.process.send_signal(signal.SIGUSR2)
    eventually(lambda: "SIGUSR2" in log.read_text(), "a line in the new file")
    assert "SIGUSR2" not in old.read_text()
    server.stop()


def test_a_full_log_is_said_once(serve: Serve) -> None:
    server = serve({**DIGITS, "log": {"path": "/dev/full", "level": "debug"}})
    for _ in range(3):
        server.process.send_signal(signal.SIGUSR2)
        with server.connect() as connection:
            assert connection.ask(wire.ping(1)).id == 1
    server.stop()
    assert server.errors.count("/dev/full cannot be written") == 1
    assert "Draining" in server.errors


# ---- a service manager ----


class Manager:
    """A service manager's socket, on a path or with an abstract name."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(harness.START_S)
        self.said: list[str] = []

    def until(self, line: str) -> list[str]:
        """Reads until a message has this line; returns its lines."""
        while True:
            lines = self.socket.recv(4096).decode().splitlines()
            self.said += lines
            if line in lines:
                return lines


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_service_manager_is_told(serve: Serve, tmp_path: Path, kind: str) -> None:
    address = str(tmp_path / "notify") if kind == "path" else f"@lumen-test-{os.getpid()}"
    manager = Manager(address)
    server = serve(
        settings(tmp_path, unready_seconds=0.1, drain_seconds=2),
        extra_environment={"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"},
    )
    ready = manager.until("READY=1")
    assert any(line.startswith("STATUS=Lumen ") for line in ready), ready
    assert "STATUS=Loading model double." in manager.said
    manager.until("WATCHDOG=1")
    manager.until("WATCHDOG=1")
    server.terminate()
    stopping = manager.until("STOPPING=1")
    assert "EXTEND_TIMEOUT_USEC=5100000" in stopping
    server.expect_clean_end()
    manager.socket.close()


def test_a_watchdog_of_another_process_is_not_ours(serve: Serve, tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    server = serve(
        DIGITS,
        extra_environment={
            "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1",
        },
    )  # fmt: skip
    manager.until("READY=1")
    server.stop()
    manager.until("STOPPING=1")
    assert "WATCHDOG=1" not in manager.said


# ---- reload ----


def key(token: str, **rest: object) -> dict[str, object]:
    return {"name": token, "sha256": hashlib.sha256(token.encode()).hexdigest(), **rest}


class Reloaded:
    """A server whose settings are written again, and read again at SIGHUP."""

    def __init__(self, serve: Serve, folder: Path, document: dict[str, object]) -> None:
        self.path = folder / "lumen.yaml"
        self.write(document)
        # The harness's own file comes first and has the models; this one is what counts.
        self.server = serve(document, options=["--config", str(self.path), "--port", "0"])

    def write(self, document: dict[str, object]) -> None:
        self.path.write_text(yaml.safe_dump(harness.with_backend(document)))

    def reload(self, document: dict[str, object]) -> str:
        """Returns what the log says of it."""
        before = len(self.server.errors)
        self.write(document)
        self.server.process.send_signal(signal.SIGHUP)
        eventually(
            lambda: re.search(r"(Reloaded|reload failed).*\n", self.server.errors[before:]),
            "the reload",
            found=lambda: self.server.errors[before:],
        )  # fmt: skip
        return self.server.errors[before:]


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


def test_keys_hosts_and_rates_are_reloaded(serve: Serve, tmp_path: Path) -> None:
    def document(**server: object) -> dict[str, object]:
        return settings(tmp_path, io_threads=2, **server)

    one = Reloaded(serve, tmp_path, document(keys=[key("ada")]))
    server = one.server
    assert [asked(server, token) for token in ("ada", "bob", None)] == [200, 401, 401]
    assert asked(server, "ada", "lumen.example") == 421

    said = one.reload(document(keys=[key("bob")], hosts=["lumen.example"]))
    assert "Reloaded: server.hosts, server.keys." in said
    assert [asked(server, token) for token in ("ada", "bob", None)] == [401, 200, 401]
    assert asked(server, "bob", "lumen.example") == 200
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
    other["models"] = [{"name": "digits", "path": "builtin:digits"}]
    other["engine"] = {"thread_count": 1}
    said = one.reload(other)
    assert "server.arena_bytes cannot change without a restart: 16777216 stays." in said
    assert "engine.thread_count cannot change without a restart: 2 stays." in said
    assert "models cannot change without a restart: double, slow stays." in said
    assert "server.port" not in said  # --port says so, and still does
    assert "Reloaded: server.drain_seconds, server.hosts." in said
    assert asked(one.server, None, "a.example") == 200
    # A change that was refused is reported again at the next reload.
    assert "server.arena_bytes cannot change" in one.reload(other)
    one.server.terminate()
    one.server.expect_clean_end()
    assert "Draining for at most 7 s" in one.server.output


def test_a_bad_file_changes_nothing(serve: Serve, tmp_path: Path) -> None:
    one = Reloaded(serve, tmp_path, settings(tmp_path, keys=[key("ada")]))
    said = one.reload(settings(tmp_path, keys=[key("bob")], rate="much"))
    assert "error   The reload failed, the old settings stay in force:" in said
    assert f"{one.path}" in said
    assert "server.rate: expected requests a second" in said
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


# ---- the statistics' file ----


def answer_of(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=harness.SETTLE_S) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def with_page(**server: object) -> dict[str, object]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    return {**DIGITS, "server": {"metrics_port": port, **server}}


def page_of(document: dict[str, object]) -> str:
    return f"http://127.0.0.1:{document['server']['metrics_port']}"  # type: ignore[index]


def test_a_name_that_somebody_else_has(serve: Serve) -> None:
    """A file of another user cannot be replaced, as a folder cannot."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    name = Path(f"/dev/shm/lumen-{port}")
    name.mkdir()
    try:
        document = with_page()
        server = serve(document, options=["--port", str(port)])
        assert server.stats_path == name.with_name(f"lumen-{port}-{server.pid}")
        assert f"{name} is somebody else's and cannot be replaced" in server.output
        assert answer_of(f"{page_of(document)}/healthz") == (200, b"ok")
        assert b"lumen_requests_accepted_total" in answer_of(f"{page_of(document)}/metrics")[1]
        server.stop()
    finally:
        name.rmdir()


@pytest.mark.parametrize("options", ["size=4k", "ro"])
def test_no_room_in_dev_shm(serve: Serve, options: str) -> None:
    """The server serves, says the cause, and its own page has the figures all the same."""
    prefix = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} t /dev/shm && exec "$@"']
    if subprocess.run([*prefix, "sh", "true"], capture_output=True, check=False).returncode:
        needs.absent("mounts")
    document = with_page()
    server = serve(document, prefix=[*prefix, "sh"])
    cause = "No space left on device" if options == "size=4k" else "Read-only file system"
    assert f"no statistics file for `lumen stats`: /dev/shm/lumen-{server.port}: {cause}" in (
        server.output
    )
    assert answer_of(f"{page_of(document)}/healthz") == (200, b"ok")
    assert b"lumen_requests_accepted_total" in answer_of(f"{page_of(document)}/metrics")[1]
    server.stop()


def test_the_figures_of_a_killed_server(serve: Serve, cache: Path) -> None:
    server = serve(DIGITS)
    path, port = server.stats_path, str(server.port)
    alive = harness.run(["stats", "--port", port], cache)
    assert (alive.returncode, alive.stderr) == (0, "")
    server.process.kill()
    server.process.wait()
    dead = harness.run(["stats", "--port", port], cache)
    assert dead.returncode == 1
    assert f"No server with port {port} runs here" in dead.stderr
    assert f"pid {server.pid}, killed" in dead.stdout
    path.unlink()


def test_an_engine_in_a_forked_child(tmp_path: Path) -> None:
    """A child that ends must not end its parent's server, nor wait for threads it does not have."""
    code = """
import os, sys
from pathlib import Path
from lumen_uring.config import load
from lumen_uring.errors import EngineError
from lumen_uring.model_cache import resolve
from lumen_uring.ring.engine import Engine
from lumen_uring.ring.stats import read
config = load(None, ["server.port=0", "server.arena_bytes=16MiB", "server.unix_socket=s.sock"])
with Engine(config) as engine:
    engine.add_model(config.models[0], resolve("builtin:digits"))
    engine.start()
    child = os.fork()
    if child == 0:
        try:
            engine.info()
        except EngineError as error:
            print(error, flush=True)
        engine.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert Path("s.sock").exists()
    assert read(Path(engine.info().stats_path)).state == "ready"
print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=harness.environment(tmp_path),
        capture_output=True, text=True, timeout=harness.START_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The engine runs in the process that opened it.\nended\n"


# ---- checking, and starting from the environment ----


def test_serve_check(cache: Path, tmp_path: Path) -> None:
    done = harness.run(["--check", "--port", "1"], cache)
    assert (done.returncode, done.stderr) == (0, "")
    assert "model digits: " in done.stdout
    assert "right" in done.stdout
    (tmp_path / "bad.onnx").write_text("<html>")
    bad = f"{tmp_path}/bad.onnx"
    for options, says in [
        (["--model", f"a={bad}", "--model", f"b={bad}"], ["model 'a'", "model 'b'"]),
        (
            ["--model", "a=/none/1", "--model", "b=/none/2"],
            ["/none/1 does not", "/none/2 does not"],
        ),
        (["--set", "server.port=x", "--set", "engine.idle=y"], ["server.port", "engine.idle"]),
    ]:
        done = harness.run(["--check", *options], cache)
        assert (done.returncode, done.stdout) == (1, "")
        for part in says:
            assert part in done.stderr
        assert len(done.stderr.splitlines()) == 2


def test_labels_of_another_model_are_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    done = harness.run(["--check", "--set", f"models.0.labels={tmp_path}/labels.txt"], cache)
    assert done.returncode == 1
    assert "labels: expected a line for each of 10 classes, found 2" in done.stderr


def test_the_environment_is_read(serve: Serve) -> None:
    server = serve(DIGITS, extra_environment={"LUMEN_SERVER__DRAIN_SECONDS": "9"})
    server.terminate()
    server.expect_clean_end()
    assert "Draining for at most 9 s" in server.output


# ---- the access log, and the telemetry file ----


def http(server: Server, request: str, body: bytes = b"", *lines: str) -> int:
    head = [request, "Host: localhost", "Connection: close", *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    with server.connect() as connection:
        connection.send("\r\n".join([*head, "", ""]).encode() + body)
        return int(connection.expect_closed().split()[1])


def lines_of(path: Path, count: int) -> list[dict[str, object]]:
    """The access log once it has so many lines, in the form of JSON."""
    eventually(
        lambda: path.exists() and len(path.read_text().splitlines()) >= count,
        f"{count} lines", found=path.read_text,
    )  # fmt: skip
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(found) == count
    return found


def test_the_access_log(serve: Serve, tmp_path: Path) -> None:
    """A line for each request: who asked for what, how it ended, and why not."""
    log = tmp_path / "access.log"
    keys = [key("ada"), key("bob", models=["slow"]), key("eve", rate=0.001, burst=1)]
    document = settings(tmp_path, keys=keys)
    document["log"] = {"access_path": str(log), "format": "json"}
    server = serve(document, options=["--port", "0", "--set", "log.format=text"])
    server.stop()
    lines = log.read_text().splitlines()
    assert len(lines) == 1  # the harness's own describe, refused for want of a key
    assert re.fullmatch(
        r"\S+Z 127\.0\.0\.1:\d+ native describe status=6 bytes=0 id=7 total_us=\d+ "
        r'why="expected.*"',
        lines[0],
    )
    log.unlink()

    # The harness waits for the banner, which is not there with JSON: the form comes by a reload.
    one = Reloaded(serve, tmp_path, {**document, "log": {"access_path": str(log)}})
    server = one.server
    # The log is written beside the path: this line may come late, and is not of the new file.
    eventually(lambda: "describe" in log.read_text(), "the line of the harness's own request")
    one.reload(document)
    log.unlink()
    server.process.send_signal(signal.SIGUSR1)
    eventually(log.exists, "the log in the form of JSON")
    infer = "POST /v2/models/double/infer HTTP/1.1"
    raw = "Inference-Header-Content-Length: 0"

    def by(token: str) -> str:
        return f"Authorization: Bearer {token}"

    assert http(server, infer, bytes(64), raw, by("ada")) == 200
    assert http(server, infer, bytes(60), raw, by("ada")) == 400
    assert http(server, infer, bytes(64), raw, by("nobody")) == 401
    assert http(server, infer, bytes(64), raw, by("bob")) == 403
    assert http(server, infer, bytes(64), raw, by("eve")) == 200
    assert http(server, infer, bytes(64), raw, by("eve")) == 429
    tensor = b'{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": 1}'
    body = b'{"id": "seven", "inputs": [' + tensor + b"]}"
    assert http(server, infer, body, by("ada")) == 400
    assert http(server, "GET /v2/health/live HTTP/1.1") == 200
    assert http(server, "GET /nothing HTTP/1.1") == 404
    with server.connect() as connection:
        assert connection.ask(wire.ping(11)).id == 11
        frame = wire.frame(b"ada".ljust(32, b"\0") + bytes(64), id=12, flags=1)
        assert connection.ask(frame).status == wire.OK
        assert connection.ask(wire.frame(bytes(64), id=13)).status == wire.UNAUTHORISED
    with server.connect() as last:
        last.send(b"LMN1" + bytes(28))
        last.reply()
    found = lines_of(log, 13)

    def of(entry: dict[str, object]) -> tuple[object, ...]:
        return tuple(entry.get(name) for name in ("dialect", "request", "model", "key", "status"))

    assert sorted(map(str, map(of, found))) == sorted(
        map(
            str,
            [
                ("http", "infer", "double", "ada", 200),
                ("http", "infer", "double", "ada", 400),
                ("http", "infer", None, None, 401),
                ("http", "infer", "double", "bob", 403),
                ("http", "infer", "double", "eve", 200),
                ("http", "infer", "double", "eve", 429),
                ("http", "infer", "double", "ada", 400),
                ("http", "live", None, None, 200),
                ("http", "unknown", None, None, 404),
                ("native", "ping", None, None, 0),
                ("native", "infer", "double", "ada", 0),
                ("native", "infer", "double", None, 6),
                ("native", "unknown", None, None, 1),
            ],
        )
    )
    for entry in found:
        failed = entry["status"] not in (0, 200)
        assert ("why" in entry) == failed, entry
        assert str(entry["peer"]).startswith("127.0.0.1:")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(entry["time"]))
        assert isinstance(entry["total_us"], int)
    why = {entry["status"]: str(entry["why"]) for entry in found if "why" in entry}
    assert "rate of this key" in why[429]
    assert "may not use model 'double'" in why[403]
    assert "key of this server" in why[401]
    (seven,) = [entry for entry in found if entry.get("id") == "seven"]
    assert "data" in str(seven["why"])
    (good,) = [entry for entry in found if entry.get("id") == 12]
    assert {"receive_us", "queue_us", "preprocess_us", "infer_us", "send_us"} <= good.keys()


def test_an_access_log_nobody_reads_holds_nobody_up(cache: Path, tmp_path: Path) -> None:
    """Lines to a full pipe are dropped and counted; requests and the end are not delayed."""
    reader, writer = os.pipe()
    document = {**DIGITS, "log": {"access_path": "-", "format": "json"}}
    with raw_server(document, cache, tmp_path, writer) as (process, port):
        os.close(writer)
        wait_for_port(process, port)
        stats = Path(f"/dev/shm/lumen-{port}")

        def dropped() -> int:
            from lumen_uring.ring.stats import read

            return read(stats).counters["io"]["traces_dropped"]

        with wire.Wire(port) as connection:
            sent = 0
            while dropped() == 0:
                assert sent < 200_000
                connection.send(b"".join(wire.ping(number) for number in range(256)))
                connection.replies(256)
                sent += 256
        process.send_signal(signal.SIGTERM)
        assert process.wait(harness.STOP_S) == 0
    os.close(reader)


def test_telemetry_is_appended_and_rotated(serve: Serve, tmp_path: Path) -> None:
    path, old = tmp_path / "t.csv", tmp_path / "t.csv.1"
    document = settings(tmp_path)
    document["engine"] = {"thread_count": 2, "telemetry_csv_path": str(path)}

    def ask(server: Server, number: int) -> None:
        with server.connect() as connection:
            assert connection.ask(wire.frame(bytes(64), id=number)).status == wire.OK

    def rows(file: Path) -> list[int]:
        header, *rest = file.read_text().splitlines()
        assert header.startswith("id,model,worker,")
        return [int(line.partition(",")[0]) for line in rest]

    server = serve(document)
    ask(server, 1)
    server.stop()
    server = serve(document)
    ask(server, 2)
    eventually(lambda: rows(path) == [1, 2], "rows of both runs", found=path.read_text)
    path.rename(old)
    server.process.send_signal(signal.SIGHUP)
    eventually(path.exists, "a new file")
    ask(server, 3)
    eventually(lambda: path.read_text() and rows(path) == [3], "the third row in it")
    os.truncate(path, 0)  # copytruncate
    ask(server, 4)
    eventually(lambda: path.read_text() and rows(path) == [4], "the fourth row at its start")
    assert rows(old) == [1, 2]
    server.stop()


def test_a_file_with_other_columns_is_refused(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time,value\n1,2\n")
    done = harness.run(
        ["--port", "0", "--set", f"engine.telemetry_csv_path={path}"], cache, ["timeout", "60"]
    )
    assert done.returncode == 1
    assert "engine.telemetry_csv_path: expected no file, or one with the same columns" in (
        done.stderr
    )
    assert path.read_text() == "time,value\n1,2\n"


def test_a_full_disk_is_said_once_and_counted(serve: Serve, tmp_path: Path) -> None:
    document = settings(tmp_path)
    document["engine"] = {"thread_count": 2, "telemetry_csv_path": "/dev/full"}
    document["log"] = {"access_path": "/dev/full"}
    server = serve(document)
    with server.connect() as connection:
        for number in range(20):
            assert connection.ask(wire.frame(bytes(64), id=number)).status == wire.OK
            eventually(lambda n=number: server.figures().io["log_lines_lost"] > n, "the count")
    eventually(lambda: "log.access_path: cannot write /dev/full" in server.errors, "the sentence")
    server.stop()
    assert server.errors.count("cannot write /dev/full") == 2  # one for each file


def test_what_the_banner_says_to_try_works(serve: Serve) -> None:
    server = serve(DIGITS)
    command = shlex.split(server.output.splitlines()[-1].removeprefix("Try: "))
    assert (command[0], command[2]) == ("curl", "-d")
    request = urllib.request.Request(command[1], command[3].encode())
    with urllib.request.urlopen(request, timeout=harness.SETTLE_S) as reply:
        (output,) = json.loads(reply.read())["outputs"]
    assert (output["name"], output["shape"]) == ("probabilities", [1, 10])
