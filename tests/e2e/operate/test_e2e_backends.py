"""Which I/O backend a server takes: where io_uring is refused, where some of it is missing, and
when it is told. A refusal is a real one (a seccomp filter); what a kernel lacks is hidden by
LUMEN_URING_MASK. Every server here answers small and large requests on connections new and old.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import graphs
import harness
import needs
import pytest
import wire
from conftest import Serve
from harness import Server

pytestmark = pytest.mark.once  # each test here names its backend

ROW_BYTES = 100
ROWS = (1, 30, 50, 4000)
FLAGS = ("defer_taskrun", "single_issuer", "coop_taskrun", "submit_all")
NOTE = re.compile(r"^  note     epoll is used: (.*)$", re.MULTILINE)


# Runs another program with io_uring's system calls refused.
DENY = [sys.executable, str(Path(__file__).parents[1].joinpath("deny_uring.py"))]


@pytest.fixture(scope="module")
def _io_uring_is_here() -> None:
    needs.io_uring()


def settings(folder: Path, backend: str = "auto", **server: object) -> dict[str, object]:
    path = graphs.image(folder / "echo.onnx", graphs.UINT8, ["n", ROW_BYTES])
    return {
        "server": {
            "io_backend": backend, "arena_bytes": "64MiB", "max_request_bytes": "1MiB", **server
        },
        "engine": {"thread_count": 2},
        "models": [{"name": "echo", "path": str(path), "max_rows": max(ROWS)}],
    }  # fmt: skip


def io_line(server: Server) -> tuple[str, str]:
    """The backend and its detail, as the banner says."""
    found = re.search(r"^  I/O      (\S+), .*\((.*)\)$", server.output, re.MULTILINE)
    assert found is not None, server.output
    return found.group(1), found.group(2)


def frame(number: int, rows: int) -> tuple[bytes, bytes]:
    payload = bytes((number + at) & 0xFF for at in range(rows * ROW_BYTES))
    return payload, wire.frame(payload, id=number, rows=rows)


def check_serves(server: Server) -> None:
    with server.connect() as old:
        for number, rows in enumerate(ROWS * 3):
            payload, request = frame(number, rows)
            with server.connect() as new:
                for connection in (old, new):
                    assert connection.ask(request).payload == payload
        # In pieces, and many at once.
        payload, request = frame(7, 200)
        for at in range(0, len(request), 1999):
            old.send(request[at : at + 1999])
        assert old.reply().payload == payload
        old.send(b"".join(wire.ping(number) for number in range(60)))
        assert sorted(old.replies(60)) == list(range(60))


REFUSALS = [
    ("EPERM", "all", "EPERM", "seccomp"),
    ("EPERM", "setup", "EPERM", "io_uring_disabled"),
    ("ENOSYS", "all", "ENOSYS", "Linux"),
    ("ENOMEM", "all", "ENOMEM", "ulimit"),
    ("EPERM", "register", "EPERM", "io_uring_register"),
    ("EPERM", "enter", "EPERM", "io_uring_enter"),
]


@pytest.mark.parametrize(("errno", "calls", "cause", "cure"), REFUSALS)
def test_auto_takes_epoll_where_io_uring_is_refused(
    serve: Serve, tmp_path: Path, errno: str, calls: str, cause: str, cure: str
) -> None:
    """Rows F1, F2 and F5."""
    server = serve(settings(tmp_path), prefix=[*DENY, errno, calls])
    assert io_line(server)[0] == "epoll"
    (note,) = NOTE.findall(server.output)
    assert cause in note
    assert cure in note
    check_serves(server)


@pytest.mark.parametrize(("errno", "calls", "cause", "cure"), REFUSALS)
def test_io_uring_that_was_asked_for_is_not_replaced(
    cache: Path, errno: str, calls: str, cause: str, cure: str
) -> None:
    """Row F1."""
    done = harness.run(
        ["--port", "0", "--set", "server.io_backend=io_uring"],
        cache,
        [*DENY, errno, calls, "timeout", "100"],
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("lumen: ")
    assert cause in line
    assert cure in line


@pytest.mark.parametrize(("errno", "calls", "cause", "cure"), REFUSALS)
def test_the_doctor_says_what_auto_would_take(
    cache: Path, errno: str, calls: str, cause: str, cure: str
) -> None:
    """Row F1."""
    done = harness.run(["doctor", "--json"], cache, [*DENY, errno, calls])
    assert done.stderr == ""
    assert done.returncode == 0  # a server would start
    found = {entry["name"]: entry for entry in json.loads(done.stdout)["findings"]}["io_backend"]
    assert found["found"].startswith(f"auto takes epoll: {cause}")
    assert found["cure"]


def locking_at_most(limit: int) -> list[str]:
    """A command in front: without the right to lock more than so many bytes."""
    drop = ["setpriv", "--bounding-set=-ipc_lock"] if os.geteuid() == 0 else []
    return [*drop, "prlimit", f"--memlock={limit}"]


@pytest.mark.usefixtures("_io_uring_is_here")
def test_servers_of_one_user_leave_each_other_room(serve: Serve, tmp_path: Path) -> None:
    """Row F5: new kernels count rings as locked memory, of which a user has 8 MiB as a rule."""
    # An ordinary user's other tests have servers at the same time.
    for _ in range(6 if os.geteuid() == 0 else 2):
        serve(settings(tmp_path, io_backend="io_uring"), prefix=locking_at_most(8 << 20))


@pytest.mark.parametrize("kib", [0, 64])
def test_no_memory_may_be_locked(serve: Serve, tmp_path: Path, kib: int) -> None:
    """Row F5: RLIMIT_MEMLOCK, without the right to do without it: it is served all the same."""
    server = serve(settings(tmp_path), prefix=locking_at_most(kib << 10))
    limits = Path(f"/proc/{server.pid}/limits").read_text()
    assert re.search(rf"^Max locked memory +{kib << 10} ", limits, re.MULTILINE)
    check_serves(server)


def test_the_load_generator_falls_back_too(serve: Serve, cache: Path, tmp_path: Path) -> None:
    server = serve(settings(tmp_path))
    url = f"lumen://127.0.0.1:{server.port}"
    options = ["--json", "--warmup", "0", "--requests", "300", "--connections", "7"]
    done = harness.run(["bench", "--url", url, *options], cache, [*DENY, "EPERM", "all"])
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["requests"], figures["errors"]) == (300, 0)


@pytest.mark.usefixtures("_io_uring_is_here")
@pytest.mark.parametrize(("at", "name"), list(enumerate(FLAGS)))
def test_set_up_flags_are_given_up_one_by_one(
    serve: Serve, tmp_path: Path, at: int, name: str
) -> None:
    """Row F3."""
    server = serve(settings(tmp_path), extra_environment={"LUMEN_URING_MASK": name})
    backend, detail = io_line(server)
    assert backend == "io_uring"
    # From the newest: with one go those that came with it or after it.
    assert [flag for flag in FLAGS if flag in detail.split()] == list(FLAGS[at + 1 :])
    assert "note     LUMEN_URING_MASK hides" in server.output
    check_serves(server)


@pytest.mark.usefixtures("_io_uring_is_here")
@pytest.mark.parametrize(
    ("mask", "has"),
    [
        ("multishot_accept", "one_shot_accept"),
        ("kernel=6.6.5", "one_shot_accept"),  # known to be bad
        ("kernel=6.6.10", "multishot_accept"),
        ("registered_ring,defer_taskrun,multishot_accept", "one_shot_accept"),
    ],
)
def test_accepting_without_multishot(serve: Serve, tmp_path: Path, mask: str, has: str) -> None:
    """Rows F3 and F4."""
    server = serve(settings(tmp_path), extra_environment={"LUMEN_URING_MASK": mask})
    backend, detail = io_line(server)
    assert backend == "io_uring"
    assert has in detail.split()
    assert ("registered_ring" in detail.split()) == ("registered_ring" not in mask)
    check_serves(server)


@pytest.mark.parametrize(
    ("mask", "cause"),
    [
        ("setup", "ENOSYS"),
        ("buffer_rings", "no buffer rings"),
        ("self_test", "self-test"),
        ("kernel=5.15.0-89-generic", "known faults (libuv issue 4141)"),
    ],
)
def test_auto_takes_epoll_where_io_uring_is_not_complete(
    serve: Serve, cache: Path, tmp_path: Path, mask: str, cause: str
) -> None:
    """Row F3."""
    hidden = {"LUMEN_URING_MASK": mask}
    # ThreadSanitizer does not see liburing unmap one thread's ring, whose place is another's next.
    threads = 1 if harness.sanitized() else 2
    server = serve(settings(tmp_path, io_threads=threads), extra_environment=hidden)
    assert io_line(server)[0] == "epoll"
    (note,) = NOTE.findall(server.output)
    assert cause in note
    check_serves(server)
    done = harness.run(["doctor", "--json"], cache, extra_environment=hidden)
    found = {entry["name"]: entry for entry in json.loads(done.stdout)["findings"]}["io_backend"]
    assert found["found"].startswith("auto takes epoll: ")


@pytest.mark.parametrize(("mask", "detail"), [("", "epoll_pwait2"), ("epoll_pwait2", "epoll_wait")])
def test_epoll_when_it_is_asked_for(serve: Serve, tmp_path: Path, mask: str, detail: str) -> None:
    server = serve(settings(tmp_path, "epoll"), extra_environment={"LUMEN_URING_MASK": mask})
    assert io_line(server) == ("epoll", f"edge-triggered, {detail}")
    assert "epoll is used" not in server.output
    check_serves(server)


def test_a_mask_of_unknown_names(cache: Path) -> None:
    done = harness.run(
        ["--port", "0"], cache, ["timeout", "100"], {"LUMEN_URING_MASK": "setup,multishoot"}
    )
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 1
    assert "'multishoot'" in line
