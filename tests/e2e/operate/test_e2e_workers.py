"""More workers than there were at the start: every kind of model gets what the new ones need, while
clients ask."""

from __future__ import annotations

import os
import re
import resource
import signal
import threading
import urllib.request
from pathlib import Path

import harness
import needs
import pytest
from conftest import Serve
from harness import Server, eventually, processes_of_models
from operating import Reloaded, free_port
from test_e2e_isolation_live import APART, call, factor, put

from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # what runs models is the same on both backends


@pytest.fixture(autouse=True)
def _two_cores() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        needs.absent("cores")


def document(folder: Path, workers: int, *more: str, page: int = 0) -> dict[str, object]:
    repository = {"paths": [str(folder)], "control": "explicit", "load": ["same", "apart", *more]}
    engine = {"thread_count": workers, "queue_type": "mpmc"}
    return {"server": {"metrics_port": page}, "engine": engine, "repository": repository}


def answered(server: Server) -> dict[int, int]:
    """How many requests each worker's thread has answered, by its number."""
    threads = read(server.stats_path).threads
    return {one.index: one.counters["requests_ok"] for one in threads if one.role == "worker"}


def workers_on_the_page(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = re.search(r"^lumen_workers (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found.group(1))


def threads_of(process: int) -> set[str]:
    """The names of those that run a model."""
    comms = Path(f"/proc/{process}/task").glob("*/comm")
    return {name for path in comms if (name := path.read_text().strip()).startswith("lumen-m/")}


def pages_of(pid: int) -> list[int]:
    """All that is mapped comes first, private data sixth."""
    return [int(word) for word in Path(f"/proc/{pid}/statm").read_text().split()]


# Else a new thread may have the stack of one that has ended, and needs no memory.
NO_STACKS_KEPT = {"GLIBC_TUNABLES": "glibc.pthread.stack_cache_size=0"}


def stack_of(pid: int) -> int:
    """Bytes of a new thread's stack, as glibc has it."""
    bound = resource.prlimit(pid, resource.RLIMIT_STACK)[0]
    return 2 << 20 if bound == resource.RLIM_INFINITY else bound


def another_process(server: Server) -> int:
    """Kills the process of model `apart`; returns the next one, which answers."""
    [process] = processes_of_models(server.pid)
    os.kill(process, signal.SIGKILL)
    eventually(lambda: processes_of_models(server.pid) not in ([process], []), "another", 60)
    eventually(lambda: factor(server, "apart") == 2, "its answers", 60)
    [process] = processes_of_models(server.pid)
    return process


class Clients:
    """Some that ask one model each, again and again, until the block ends."""

    def __init__(self, server: Server, factors: dict[str, float]) -> None:
        self._server = server
        self._stop = threading.Event()
        self._wrong: list[tuple[str, float]] = []
        self._threads = [
            threading.Thread(target=self._ask, args=(name, expected))
            for name, expected in factors.items()
            for _ in range(2)
        ]

    def _ask(self, name: str, expected: float) -> None:
        while not self._stop.is_set():
            found = factor(self._server, name)
            if found != expected:
                self._wrong.append((name, found))

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self._wrong


def test_more_workers_than_at_the_start(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    put(folder, "same", 7, "")
    put(folder, "apart", 2)
    put(folder, "later", 3, APART)
    page = free_port()
    one = Reloaded(serve, tmp_path, document(folder, 1, page=page))
    server = one.server
    assert set(answered(server)) == {0}
    assert call(server, "load", "later").code == 200
    processes = processes_of_models(server.pid)
    assert [threads_of(process) for process in processes] == [{"lumen-m/0"}] * 2
    factors = {"same": 7.0, "apart": 2.0, "later": 3.0}
    with Clients(server, factors):
        said = one.reload(document(folder, 2, "later", page=page))
        assert "Reloaded: engine.thread_count." in said
        eventually(lambda: min(answered(server).values()) > 20, "answers of both workers", 60)
        assert workers_on_the_page(page) == 2
        one.reload(document(folder, 1, "later", page=page))
        assert workers_on_the_page(page) == 1
        one.reload(document(folder, 2, "later", page=page))
        put(folder, "last", 5, APART)
        assert call(server, "load", "last").code == 200
        assert factor(server, "last") == 5
    assert set(answered(server)) == {0, 1}
    assert processes_of_models(server.pid)[:2] == processes
    for process in processes_of_models(server.pid):
        assert threads_of(process) == {"lumen-m/0", "lumen-m/1"}
    server.idle_fds = 0  # processes that came later


def test_a_process_that_ends_comes_back_for_all_workers(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    put(folder, "same", 7, "")
    put(folder, "apart", 2)
    one = Reloaded(serve, tmp_path, document(folder, 1))
    one.reload(document(folder, 2))
    assert threads_of(another_process(one.server)) == {"lumen-m/0", "lumen-m/1"}
    with Clients(one.server, {"apart": 2.0}):
        eventually(lambda: min(answered(one.server).values()) > 20, "answers of both", 60)


@pytest.mark.parametrize("ends", [False, True], ids=["it serves on", "it ends"])
def test_a_process_that_cannot_serve_more(serve: Serve, tmp_path: Path, ends: bool) -> None:
    """The change is refused, and nothing has changed; the process serves on, and where it ends
    another one comes for as many workers as before."""
    if harness.sanitized():
        needs.absent("unsanitized")  # whose process ends where it gets no memory
    folder = tmp_path / "models"
    put(folder, "same", 7, "")
    put(folder, "apart", 2)
    one = Reloaded(serve, tmp_path, document(folder, 1), NO_STACKS_KEPT)
    [process] = processes_of_models(one.server.pid)
    before = resource.prlimit(process, resource.RLIMIT_DATA)
    # Room for a session, in which ONNX Runtime may end where memory ends, but not for a thread.
    most = pages_of(process)[5] * resource.getpagesize() + stack_of(process) * 3 // 4
    resource.prlimit(process, resource.RLIMIT_DATA, (most, before[1]))
    said = one.reload(document(folder, 2))
    assert "engine.thread_count cannot become 2: the process of model 'apart' cannot serve" in said
    assert "Reloaded: no setting has changed." in said
    assert factor(one.server, "apart") == 2
    resource.prlimit(process, resource.RLIMIT_DATA, before)
    if ends:
        assert threads_of(another_process(one.server)) == {"lumen-m/0"}
    said = one.reload(document(folder, 2))
    assert "Reloaded: engine.thread_count." in said
    with Clients(one.server, {"apart": 2.0}):
        eventually(lambda: min(answered(one.server).values()) > 20, "answers of both", 60)


def refused(serve: Serve, tmp_path: Path, stacks: int, more: int) -> tuple[Reloaded, str]:
    """A server that had memory for so many stacks, and bytes more, when it was to have a second
    worker, and what its log said of that."""
    if harness.sanitized():
        needs.absent("unsanitized")  # whose process ends where it gets no memory
    folder = tmp_path / "models"
    put(folder, "same", 7, "")
    put(folder, "apart", 2, "")
    one = Reloaded(serve, tmp_path, document(folder, 1), NO_STACKS_KEPT)
    before = resource.prlimit(one.server.pid, resource.RLIMIT_AS)
    stack = stack_of(one.server.pid)
    most = pages_of(one.server.pid)[0] * resource.getpagesize() + stacks * stack + more
    resource.prlimit(one.server.pid, resource.RLIMIT_AS, (most, before[1]))
    said = one.reload(document(folder, 2))
    resource.prlimit(one.server.pid, resource.RLIMIT_AS, before)
    return one, said


@pytest.mark.parametrize(
    ("stacks", "more", "why"),
    [
        (0, 2 << 20, "The reload failed: RuntimeError: can't start new thread"),
        (1, 6 << 20, "cannot start a thread|no memory"),
        (2, 5 << 20, "no memory"),
    ],
    ids=["Python", "thread", "rest"],
)
def test_a_worker_that_cannot_come(
    serve: Serve, tmp_path: Path, stacks: int, more: int, why: str
) -> None:
    """Without memory for the thread that makes the change, for the worker's, or for what that
    needs (which of these two, other threads of the server have a say in), nothing has changed."""
    one, said = refused(serve, tmp_path, stacks, more)
    assert re.search(why, said)
    assert ("Reloaded: no setting has changed." in said) == (stacks > 0)
    assert factor(one.server, "same") == 7
    assert answered(one.server).get(1, 0) == 0
    assert "Reloaded: engine.thread_count." in one.reload(document(tmp_path / "models", 2))
    with Clients(one.server, {"same": 7.0, "apart": 2.0}):
        eventually(lambda: min(answered(one.server).values()) > 20, "answers of both", 60)


@pytest.mark.parametrize(("stacks", "more"), [(1, 6 << 20), (2, 5 << 20)], ids=["thread", "rest"])
def test_a_server_ends_after_a_worker_could_not_come(
    serve: Serve, tmp_path: Path, stacks: int, more: int
) -> None:
    one, said = refused(serve, tmp_path, stacks, more)
    assert "Reloaded: no setting has changed." in said
    one.server.stop()
