"""The unix socket beside TCP: its file, who may take it, both dialects, the clients."""

from __future__ import annotations

import array
import asyncio
import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import graphs
import harness
import needs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from harness import Canary, Server, eventually
from test_e2e_life import DIGITS, sentence, slow
from web import Http, get, post
from wire import Wire

from lumen_uring import AsyncClient, Client
from lumen_uring.cli import main as lumen
from lumen_uring.errors import ConnectionFailed

X = np.arange(16, dtype="<f4").reshape(1, 16)
LARGE = 1 << 18  # columns: 1 MiB, more than a unix socket holds
ONCE = pytest.mark.once  # the socket's file and the commands are the same on both backends


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a socket may be; short, whatever the temporary folders of the tests are called."""
    with tempfile.TemporaryDirectory(prefix="lumen-") as folder:
        yield Path(folder) / "s"


def settings(folder: Path, path: Path, **server: object) -> dict[str, object]:
    files = {
        "double": graphs.double(folder / "double.onnx"),
        "slow": graphs.slow(folder / "slow.onnx"),
        "large": graphs.double(folder / "large.onnx", LARGE, rows=1),
    }
    return {
        "server": {
            "arena_bytes": "128MiB",
            "max_request_bytes": "4MiB",
            "unix_socket": str(path),
            **server,
        },
        "engine": {"thread_count": 2},
        "models": [{"name": name, "path": str(file)} for name, file in files.items()],
    }


def with_socket(path: Path, **server: object) -> dict[str, object]:
    return {**DIGITS, "server": {"unix_socket": str(path), **server}}


def frame(server: Server, number: int = 1) -> bytes:
    return wire.frame(X.tobytes(), model=server.models["double"], id=number)


def expect_answer(connection: Wire, server: Server, number: int = 1) -> None:
    reply = connection.ask(frame(server, number))
    assert (reply.status, reply.id, reply.payload) == (wire.OK, number, (X + X).tobytes())


def listener(path: Path, kind: int = socket.SOCK_STREAM) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, kind)
    found.bind(str(path))
    if kind == socket.SOCK_STREAM:
        found.listen(1)
    return found


def start_fails(path: Path, cache: Path) -> str:
    return sentence(harness.run(["--port", "0", "--unix-socket", str(path)], cache))


# ---- what goes over it ----


def test_both_dialects_beside_tcp(serve: Serve, tmp_path: Path, path: Path) -> None:
    server = serve(settings(tmp_path, path))
    assert f"unix:{path} (mode 0660)" in server.output
    with Canary(server), Wire(path) as native, Http(path) as http:
        for number in range(20):
            expect_answer(native, server, number)
            answer = http.query(web.infer("double", {"x": X}))
            np.testing.assert_array_equal(answer.array("y"), X + X)
        native.send(b"".join(frame(server, number) for number in range(64)))
        assert all(reply.status == wire.OK for reply in native.replies(64).values())


@pytest.mark.parametrize("queue", ["mpmc", "inline"])
def test_more_than_the_socket_holds(serve: Serve, tmp_path: Path, path: Path, queue: str) -> None:
    chosen = settings(tmp_path, path)
    chosen["engine"] = {"queue_type": queue}
    server = serve(chosen)
    x = np.random.default_rng(5).standard_normal((1, LARGE), np.float32)
    request = wire.frame(x.tobytes(), model=server.models["large"], id=3)
    with Wire(path) as native, Http(path) as http:
        for _ in range(3):
            assert native.ask(request).payload == (x + x).tobytes()
            answer = http.query(web.infer("large", {"x": x}))
            np.testing.assert_array_equal(answer.array("y"), x + x)


def test_a_reply_that_nobody_reads(serve: Serve, tmp_path: Path, path: Path) -> None:
    """The worker's send stops in the middle and the ring takes over; nothing is lost or mixed."""
    server = serve(settings(tmp_path, path))
    x = np.random.default_rng(6).standard_normal((1, LARGE), np.float32)
    with Canary(server) as canary, Wire(path) as lazy:
        for number in range(3):
            lazy.send(wire.frame(x.tobytes(), model=server.models["large"], id=number))
            before = canary.answers
            eventually(lambda: canary.answers > before + 20, "others are served meanwhile")  # noqa: B023
            lazy.send(frame(server, 100 + number))
            replies = lazy.replies(2)
            assert replies[number].payload == (x + x).tobytes()
            assert replies[100 + number].payload == (X + X).tobytes()


@pytest.mark.parametrize("queue", ["mpmc", "inline"])
def test_connections_are_assigned(serve: Serve, tmp_path: Path, path: Path, queue: str) -> None:
    """In turn, to the last one: each I/O thread gets as many as every other."""
    from lumen_uring.ring.stats import read

    threads, each = 4, 5
    chosen = settings(tmp_path, path, io_threads=threads)
    chosen["engine"] = {"queue_type": queue}
    server = serve(chosen)

    def counts() -> list[int]:
        found = read(server.stats_path).threads
        return [entry.gauges["connections_open"] for entry in found if entry.role != "worker"]

    connections = [Wire(path) for _ in range(threads * each)]
    for round_number in range(3):
        for number, connection in enumerate(connections):
            expect_answer(connection, server, round_number * 100 + number)
    eventually(lambda: counts() == [each] * threads, f"{each} each", found=counts)
    with server.connect() as other:
        expect_answer(other, server)
    for connection in connections:
        connection.close()


def test_who_comes_by_it_is_of_this_machine(serve: Serve, tmp_path: Path, path: Path) -> None:
    server = serve(settings(tmp_path, path), options=["--port", "0", "--host", "0.0.0.0"])
    assert server.alive
    with Http(path) as http:
        # 403 where it were not: what is asked for is not there yet.
        assert http.query(post("/v2/repository/models/double/load", b"{}")).code == 501
        assert http.query(get("/v2", host="localhost")).code == 200
    with Http(path) as http:
        http.send(get("/v2", host="evil.example"))
        assert http.answer().code == 421


def test_no_bound_by_address(serve: Serve, tmp_path: Path, path: Path) -> None:
    server = serve(settings(tmp_path, path, connections_per_address=2))
    connections = [Wire(path) for _ in range(8)]
    for number, connection in enumerate(connections):
        expect_answer(connection, server, number)
    with server.connect() as first, server.connect() as second:  # TCP's bound is as it was
        expect_answer(first, server)
        expect_answer(second, server)
        with server.connect() as third:
            third.expect_closed()
    for connection in connections:
        connection.close()


def test_keys_hold_here_too(serve: Serve, tmp_path: Path, path: Path) -> None:
    key = {"name": "ada", "sha256": "ab" * 32}
    server = serve(settings(tmp_path, path, keys=[key]))
    with Wire(path) as native, Http(path) as http:
        assert native.ask(wire.frame(X.tobytes(), id=1)).status == wire.UNAUTHORISED
        assert http.query(get("/v2/models/double")).code == 401
        assert http.query(get("/v2/health/live")).code == 200
    server.check_idle()


def test_out_of_descriptors(serve: Serve, tmp_path: Path, path: Path) -> None:
    """Accepting pauses on both listeners, those who are in are served, and it goes on."""
    prefix = ["sh", "-c", 'ulimit -n 80; LUMEN_URING_MASK=fd_install exec "$@"', "sh"]
    server = serve(settings(tmp_path, path, max_connections=400), prefix=prefix)
    inside = Wire(path)
    expect_answer(inside, server)
    crowd = [Wire(path) for _ in range(120)]  # in the backlog, for the most part
    eventually(lambda: server.fds >= 75, "no descriptor left", found=lambda: server.fds)
    expect_answer(inside, server, 2)
    for connection in crowd:
        connection.close()
    with Wire(path) as native, server.connect() as tcp:
        expect_answer(native, server, 3)
        expect_answer(tcp, server, 4)
    inside.close()


# ---- who would do harm ----


def descriptors(connection: Wire) -> None:
    """Open files along with the bytes: they must not stay with the server."""
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    request = wire.frame(X.tobytes(), id=9)
    for at in range(0, len(request), 16):
        connection.socket.sendmsg([request[at : at + 16]], rights)
    for file in files:
        os.close(file)


def urgent(connection: Wire) -> None:
    connection.send(b"LMN1")
    try:
        connection.socket.send(b"!", socket.MSG_OOB)
    except OSError:
        needs.absent("unix_urgent")
    connection.send(wire.ping(1)[4:])


ABUSES = {
    "noise": lambda it: it.send(np.random.default_rng(1).bytes(5000)),
    "half a header": lambda it: it.send(wire.ping(1)[:17]),
    "half a body": lambda it: it.send(wire.frame(X.tobytes())[:50]),
    "half a head": lambda it: it.send(b"POST /v2/models/double/infer HTTP/1.1\r\nHost: loc"),
    "half closed": lambda it: (it.send(wire.ping(1)[:9]), it.finish()),
    "never reads": lambda it: it.send_until_blocked(wire.ping(1) * 1000, 8 << 20),
    "descriptors": descriptors,
    "urgent": urgent,
    "nothing": lambda it: None,
}


@pytest.mark.parametrize("abuse", ABUSES)
def test_abuse_hurts_nobody_else(serve: Serve, tmp_path: Path, path: Path, abuse: str) -> None:
    server = serve(settings(tmp_path, path, header_timeout_ms=300, reply_timeout_ms=300))
    with Canary(server), Wire(path) as beside:
        for number in range(6):
            with Wire(path) as connection:
                with suppress(ConnectionError):  # the server may have had enough already
                    ABUSES[abuse](connection)
                expect_answer(beside, server, number)
                if number % 2:  # or it goes before the server has looked
                    connection.socket.settimeout(0.5)
                    with suppress(TimeoutError, ConnectionError):
                        connection.socket.recv(1 << 16)
    server.check_idle()  # no connection, no slot, no descriptor is left


# ---- the file ----


@ONCE
@pytest.mark.parametrize(
    ("given", "mode", "umask"),
    [
        (None, 0o660, "077"),
        (None, 0o660, "000"),
        (0o600, 0o600, "000"),
        ("0666", 0o666, "077"),
        ("0o640", 0o640, "077"),
    ],
)
def test_its_mode(serve: Serve, path: Path, given: object, mode: int, umask: str) -> None:
    """Whatever the umask is."""
    chosen = with_socket(path, **({} if given is None else {"unix_socket_mode": given}))
    server = serve(chosen, prefix=["sh", "-c", f'umask {umask}; exec "$@"', "sh"])
    status = path.stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == mode
    assert f"(mode {mode:04o})" in server.output


@ONCE
def test_a_clean_end_takes_it_along(serve: Serve, path: Path) -> None:
    server = serve(with_socket(path))
    with Wire(path) as connection:
        assert connection.ask(wire.ping(1)).id == 1
    server.stop()
    assert not path.exists()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_drain(serve: Serve, tmp_path: Path, path: Path, end: signal.Signals) -> None:
    """The path is free with the drain's begin; who is in is served, who is idle is let go."""
    server = serve(settings(tmp_path, path, drain_seconds=60, io_threads=2))
    before = server.figures().requests
    with Wire(path) as busy, Wire(path) as also_busy, Wire(path) as idle:
        for connection in (busy, also_busy):
            for number in range(3):
                connection.send(slow(server, number, 4000 + number))
        eventually(lambda: server.figures().requests == before + 6, "the load")
        server.process.send_signal(end)
        eventually(lambda: not path.exists(), "no file")
        with pytest.raises(FileNotFoundError):
            Wire(path)
        idle.expect_end()
        for connection in (busy, also_busy):
            for number, reply in connection.replies(3).items():
                assert reply.payload == np.array([2 * (4000 + number)], "<i8").tobytes()
            connection.expect_end()
    server.expect_clean_end()


@ONCE
def test_a_file_that_a_killed_server_left(serve: Serve, path: Path) -> None:
    first = serve(with_socket(path))
    first.kill()
    assert path.exists()
    server = serve(with_socket(path))
    with Wire(path) as connection:
        assert connection.ask(wire.ping(7)).id == 7
    server.stop()
    assert not path.exists()


@ONCE
def test_a_file_that_another_program_left(serve: Serve, path: Path) -> None:
    listener(path).close()
    serve(with_socket(path))
    with Wire(path) as connection:
        assert connection.ask(wire.ping(7)).id == 7


@ONCE
def test_two_servers_on_one_path(serve: Serve, cache: Path, path: Path) -> None:
    server = serve(with_socket(path))
    inode = path.stat().st_ino
    said = start_fails(path, cache)
    assert f"found {path} in use: somebody listens there" in said
    assert path.stat().st_ino == inode
    with Wire(path) as connection:  # the first one is none the worse
        assert connection.ask(wire.ping(1)).id == 1
    server.check_idle()


@ONCE
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_a_path_that_somebody_else_has(cache: Path, path: Path, kind: int) -> None:
    with socket.socket(socket.AF_UNIX, kind) as other:
        other.bind(str(path))
        if kind != socket.SOCK_DGRAM:
            other.listen(1)
        inode = path.stat().st_ino
        assert "somebody listens there" in start_fails(path, cache)
        assert path.stat().st_ino == inode


@ONCE
def test_a_path_whose_server_is_full(cache: Path, path: Path) -> None:
    """Nobody accepts, and no more fit: alive all the same, and nothing waits for it."""
    with listener(path):
        waiting = []
        while True:
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.setblocking(False)
            waiting.append(one)
            try:
                one.connect(str(path))
            except BlockingIOError:
                break
        assert "somebody listens there" in start_fails(path, cache)
        for one in waiting:
            one.close()
        assert path.exists()


@ONCE
@pytest.mark.parametrize("kind", ["file", "folder", "link", "link to nothing", "pipe"])
def test_what_is_no_socket_is_left_alone(cache: Path, path: Path, kind: str) -> None:
    target = path.with_name("target")
    if kind == "file":
        path.write_text("dear to somebody")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
        if kind == "link":
            listener(target).close()  # stale, and still not ours to replace
    before = path.lstat()
    said = start_fails(path, cache)
    assert "expected nothing at" in said
    named = {"file": "a file", "folder": "a folder", "pipe": "a device or a pipe"}
    assert f"found {named.get(kind, 'a symbolic link')}: it is left alone" in said
    assert path.lstat().st_ino == before.st_ino
    assert path.lstat().st_mtime_ns == before.st_mtime_ns


@ONCE
def test_no_folder(cache: Path, path: Path) -> None:
    said = start_fails(path / "below", cache)
    assert "expected a folder for" in said


@ONCE
def test_a_path_that_is_too_long(cache: Path, tmp_path: Path) -> None:
    config = tmp_path / "long.yaml"
    config.write_text(f"server:\n  port: 0\n  unix_socket: /tmp/{'x' * 103}\n  burst: 0\n")
    done = harness.run(["--config", str(config)], cache)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert any(
        f"{config}:3 server.unix_socket: expected null, or a path of 1 to 107 bytes" in line
        for line in lines
    )
    assert any(f"{config}:4 server.burst" in line for line in lines)  # with all other problems


@ONCE
def test_the_longest_path_and_an_odd_one(serve: Serve, path: Path) -> None:
    longest = path.with_name("x" * (107 - len(os.fsencode(path.parent)) - 1))
    odd = path.with_name("it's # a: socket")
    for name in (longest, odd):
        server = serve(DIGITS, options=["--port", "0", "--unix-socket", str(name)])
        with Wire(name) as connection:
            assert connection.ask(wire.ping(1)).id == 1
        server.stop()
        assert not name.exists()


@ONCE
def test_another_servers_file_stays(serve: Serve, path: Path) -> None:
    server = serve(with_socket(path))
    path.unlink()
    with listener(path):
        inode = path.stat().st_ino
        server.stop()
        assert path.stat().st_ino == inode


def test_a_new_server_takes_over_while_the_old_one_drains(
    serve: Serve, tmp_path: Path, path: Path
) -> None:
    old = serve(settings(tmp_path, path, drain_seconds=60))
    before = old.figures().requests
    with Wire(path) as busy:
        busy.send(slow(old, 1, 20000))
        eventually(lambda: old.figures().requests == before + 1, "the load")
        old.terminate()
        eventually(lambda: not path.exists(), "no file")
        new = serve(settings(tmp_path, path))
        with Wire(path) as connection:
            expect_answer(connection, new)
        assert busy.reply().status == wire.OK
    old.expect_clean_end()
    with Wire(path) as connection:
        expect_answer(connection, new, 2)


@ONCE
def test_of_many_that_start_at_once_one_gets_it(cache: Path, path: Path) -> None:
    listener(path).close()  # what each of them may replace
    arguments = ["--port", "0", "--unix-socket", str(path), "--set", "server.metrics_port=0"]
    command = harness.command("--set", f"server.io_backend={harness.backend()}", *arguments)
    many = [
        subprocess.Popen(
            command,
            env=harness.environment(cache),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        eventually(lambda: sum(one.poll() is not None for one in many) == 2, "two that give up", 60)
        for one in many:
            if one.poll() is not None:
                assert one.stderr is not None
                assert "somebody listens there" in one.stderr.read()
        with Wire(path) as connection:
            assert connection.ask(wire.ping(3)).id == 3
    finally:
        for one in many:
            one.terminate()
        codes = sorted(one.wait(harness.STOP_S) for one in many)
    assert codes == [0, 1, 1]
    assert not path.exists()


@ONCE
def test_it_looks_and_takes_under_a_lock(cache: Path, path: Path) -> None:
    """What was stale before the lock was had may be somebody's since."""
    listener(path).close()
    folder = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    server = subprocess.Popen(
        harness.command("--port", "0", "--unix-socket", str(path)),
        env=harness.environment(cache),
        stderr=subprocess.PIPE,
        text=True,
    )

    def waits() -> bool:
        assert server.poll() is None
        with suppress(OSError):  # descriptors come and go while one looks
            opened = list(Path(f"/proc/{server.pid}/fd").iterdir())
            return path.parent in [entry.readlink() for entry in opened]
        return False

    try:
        eventually(waits, "the folder opened")
        path.unlink()
        with listener(path):
            os.close(folder)  # and with it the lock
            _output, said = server.communicate(timeout=harness.START_S)
            assert "somebody listens there" in said
            assert path.exists()
    finally:
        server.kill()
        server.wait()


@ONCE
def test_a_start_that_fails_later_leaves_nothing(cache: Path, path: Path) -> None:
    said = sentence(
        harness.run(
            ["--port", "0", "--unix-socket", str(path), "--set", "server.arena_bytes=1TiB"], cache
        )
    )
    assert said
    assert not path.exists()


# ---- the clients ----


def test_the_clients(serve: Serve, tmp_path: Path, path: Path) -> None:
    server = serve(settings(tmp_path, path))
    for host in (f"unix:{path}", f"unix://{path}"):
        with Client(host) as client:
            assert client.ping() > 0
            np.testing.assert_array_equal(client.infer("double", {"x": X}).outputs["y"], 2 * X)
        assert lumen(["health", "--ready", "--host", host]) == 0

    async def ask() -> None:
        async with AsyncClient(f"unix:{path}") as client:
            answers = await asyncio.gather(
                *(client.infer("double", {"x": X + n}) for n in range(9))
            )
            for number, answer in enumerate(answers):
                np.testing.assert_array_equal(answer.outputs["y"], 2 * (X + number))

    asyncio.run(ask())
    server.stop()
    with pytest.raises(ConnectionFailed, match=f"lumen serve --unix-socket {path}"):
        Client(f"unix:{path}").ping()

    async def ask_nobody() -> None:
        async with AsyncClient(f"unix:{path}") as client:
            await client.ping()

    with pytest.raises(ConnectionFailed, match=f"lumen serve --unix-socket {path}"):
        asyncio.run(ask_nobody())


def test_a_client_whose_server_comes_back(serve: Serve, tmp_path: Path, path: Path) -> None:
    server = serve(settings(tmp_path, path))
    with Client(f"unix:{path}") as client:
        client.infer("double", {"x": X})
        server.kill()
        serve(settings(tmp_path, path))
        np.testing.assert_array_equal(client.infer("double", {"x": X}).outputs["y"], 2 * X)


@ONCE
def test_predict(serve: Serve, cache: Path, tmp_path: Path, path: Path) -> None:
    from PIL import Image

    serve(with_socket(path))
    picture = tmp_path / "grey.png"
    Image.new("L", (8, 8), 9).save(picture)
    done = harness.run(["predict", str(picture), "--host", f"unix:{path}", "--json"], cache)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["classes"]) == 5


@ONCE
@pytest.mark.parametrize("url", ["unix:", "unix://", "http+unix:", "http+unix://"])
def test_bench(serve: Serve, cache: Path, tmp_path: Path, path: Path, url: str) -> None:
    serve(settings(tmp_path, path))
    options = ["--model", "double", "--requests", "50", "--warmup", "0", "--connections", "3"]
    done = harness.run(["bench", "--url", f"{url}{path}", *options, "--json"], cache)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["requests"], figures["errors"]) == (50, 0)
    assert figures["server_cpu_seconds"] is not None


@ONCE
def test_bench_without_a_server(cache: Path, path: Path) -> None:
    for url in ("unix:", "http+unix:"):
        done = harness.run(["bench", "--url", f"{url}{path}"], cache)
        assert done.returncode == 1
        assert done.stderr.startswith("lumen: No ")
        assert str(path) in done.stderr


@ONCE
def test_curl(serve: Serve, path: Path) -> None:
    curl = needs.program("curl")
    serve(with_socket(path))
    done = subprocess.run(
        [curl, "-sS", "--unix-socket", str(path), "http://localhost/v2/models/digits"],
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert json.loads(done.stdout)["name"] == "digits"
