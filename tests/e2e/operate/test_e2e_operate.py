"""An operator pauses a server, takes its terminal away, sends it signals, and asks how it is."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import harness
import needs
import numpy as np
import pytest
import wire
from conftest import Serve
from harness import Server, eventually, stand_still
from operating import Manager, free_port, raw_server, wait_for_port
from test_e2e_life import DIGITS, settings

pytestmark = pytest.mark.once  # what starts and ends servers: the same on both backends


def slow(number: int, trips: int) -> bytes:
    """A request of the second model of `settings`."""
    return wire.frame(np.array([trips], "<i8").tobytes(), id=number, model=1)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def pause(server: Server, seconds: float) -> None:
    """Stops and continues the server, as a debugger, Ctrl-Z or a container's pause does."""
    stand_still(server.pid)
    time.sleep(seconds)  # what is tested is that time passes
    server.process.send_signal(signal.SIGCONT)
    eventually(lambda: not is_stopped(server.pid), "the continuation")


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


def expect_drain(process: subprocess.Popen[bytes], port: int) -> None:
    """SIGTERM ends the server; before that it answers every request in flight."""
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
        expect_drain(process, port)
        assert not Path(f"/dev/shm/lumen-{port}").exists()
    if place == "a slow":
        os.close(reader)


# The main thread is late: clients are served already, and it goes on when a signal has come.
LATE = """
import signal, time
from lumen_uring.ring.engine import Engine
start = Engine.start
def late(engine):
    start(engine)
    while not signal.sigpending():
        time.sleep(0.01)
Engine.start = late
"""


def test_a_signal_between_the_start_and_the_main_loop_drains(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LATE)
    said = tmp_path / "said"
    document = settings(tmp_path, drain_seconds=60)
    with (
        said.open("wb") as out,
        raw_server(document, cache, tmp_path, out.fileno(), PYTHONPATH=str(tmp_path)) as started,
    ):
        process, port = started
        wait_for_port(process, port)
        assert "serves on" not in said.read_text()
        expect_drain(process, port)
    assert "Draining" in said.read_text()


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


# ---- a service manager ----


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


# ---- the statistics' file ----


def answer_of(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=harness.SETTLE_S) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def with_page(**server: object) -> dict[str, object]:
    return {**DIGITS, "server": {"metrics_port": free_port(), **server}}


def page_of(document: dict[str, object]) -> str:
    return f"http://127.0.0.1:{document['server']['metrics_port']}"  # type: ignore[index]


def test_a_name_that_somebody_else_has(serve: Serve) -> None:
    """A file of another user cannot be replaced, as a folder cannot."""
    port = free_port()
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
from lumen_uring.loading.model_cache import resolve
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


def test_what_the_banner_says_to_try_works(serve: Serve) -> None:
    server = serve(DIGITS)
    command = shlex.split(server.output.splitlines()[-1].removeprefix("Try: "))
    assert (command[0], command[2]) == ("curl", "-d")
    request = urllib.request.Request(command[1], command[3].encode())
    with urllib.request.urlopen(request, timeout=harness.SETTLE_S) as reply:
        (output,) = json.loads(reply.read())["outputs"]
    assert (output["name"], output["shape"]) == ("probabilities", [1, 10])
