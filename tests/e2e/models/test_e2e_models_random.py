"""Random sequences of loads, replacements, unloads and kills while clients ask: each request is
answered once, by a version that was ready at some moment while it was under way.

LUMEN_E2E_SEQUENCES says how many (1); LUMEN_E2E_SEED repeats one.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Serve
from graphs import times
from harness import Server, children, eventually, processes_of_models
from test_e2e_isolation import is_ready

pytestmark = pytest.mark.once  # what loads models: the same on both backends

SEQUENCES = int(os.environ.get("LUMEN_E2E_SEQUENCES", "1"))
STEPS = 5
CLIENTS = 2
NAMES = ("a", "b", "c")
CAGED, CAGED_FACTOR = "caged", 11
GONE = 404
DESCRIPTORS = 3  # of clients that were about to connect again
# What a client may be told of a process that was killed: in its Run, and until it is there again.
KILLED = (500, 503)


class Town:
    """Clients, what they are told, and what they may be told."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stopped = threading.Event()
        self.lock = threading.Lock()
        # Of each name: what was possible, one after the other.
        self.possible: dict[str, list[set[int]]] = {name: [{GONE}] for name in NAMES}
        self.possible[CAGED] = [{CAGED_FACTOR}]
        self.answers: Counter[int] = Counter()
        self.wrong: list[str] = []

    def expect(self, name: str, *answers: int) -> None:
        with self.lock:
            self.possible[name].append(set(answers))

    def ask(self, link: http.client.HTTPConnection, name: str) -> int:
        """The factor of the version that answers, or the status."""
        body = {"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [1] * 16}]}
        link.request("POST", f"/v2/models/{name}/infer", json.dumps(body))
        reply = link.getresponse()
        text = reply.read()
        if reply.status != 200:
            return GONE if reply.status == 400 else reply.status
        values = json.loads(text)["outputs"][0]["data"]
        assert len(set(values)) == 1
        return int(values[0])

    def client(self, seed: int) -> None:
        chance = random.Random(seed)
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.stopped.is_set():
            name = chance.choice((*NAMES, CAGED))
            with self.lock:
                before = len(self.possible[name]) - 1
            found = self.ask(link, name)
            with self.lock:
                possible = set().union(*self.possible[name][before:])
                self.answers[found] += 1
                if found not in possible:
                    self.wrong.append(f"{name}: {found}, expected one of {sorted(possible)}")


class Sequence:
    """Steps on one server; a version of a model has a factor of its own."""

    def __init__(self, server: Server, folder: Path, town: Town, seed: int) -> None:
        self.server = server
        self.folder = folder
        self.town = town
        self.chance = random.Random(seed)
        self.said: list[str] = []
        self.is_caged_up = True
        self.killed = 0

    def run(self) -> None:
        steps: tuple[Callable[[str], None], ...] = (
            self.load, self.load, self.unload, self.load_what_is_broken,
            self.load_and_kill_the_check, self.kill_a_process,
        )  # fmt: skip
        for _ in range(STEPS):
            step, name = self.chance.choice(steps), self.chance.choice(NAMES)
            self.said.append(f"{step.__name__} {name}")
            step(name)
            self.look_at_the_process()
        eventually(self.look_at_the_process, "the process is there again", 60)

    def call(self, name: str, action: str) -> int:
        link = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        link.request("POST", f"/v2/repository/models/{name}/{action}", "{}")
        code = link.getresponse().status
        link.close()
        return code

    def served(self, name: str) -> int:
        (factor,) = self.town.possible[name][-1]
        return factor

    def new_version(self, name: str) -> tuple[Path, int]:
        versions = [int(path.name) for path in (self.folder / name).glob("[0-9]*")]
        number = max(versions, default=0) + 1
        return self.folder / name / str(number) / "model.onnx", 20 + number

    def becomes(self, name: str, was: int, now: int) -> None:
        """A request may still be on its way; those that begin from here on may not."""
        self.town.expect(name, was, now)
        self.town.expect(name, now)

    def load(self, name: str) -> None:
        path, factor = self.new_version(name)
        times(path, factor)
        was = self.served(name)
        self.town.expect(name, was, factor)
        assert self.call(name, "load") == 200
        self.becomes(name, was, factor)

    def unload(self, name: str) -> None:
        was = self.served(name)
        self.town.expect(name, was, GONE)
        # Of a name whose last load failed, an unload forgets the failure, which is no error either.
        expected = (200,) if was != GONE else (200, 404)
        assert self.call(name, "unload") in expected
        assert was != GONE or self.call(name, "unload") == 404
        self.becomes(name, was, GONE)

    def load_what_is_broken(self, name: str) -> None:
        path, _ = self.new_version(name)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"no model")
        assert self.call(name, "load") == 400
        path.unlink()
        path.parent.rmdir()

    def load_and_kill_the_check(self, name: str) -> None:
        path, factor = self.new_version(name)
        times(path, factor)
        was = self.served(name)
        self.town.expect(name, was, factor)
        codes: list[int] = []
        loading = threading.Thread(target=lambda: codes.append(self.call(name, "load")))
        loading.start()
        while loading.is_alive() and not checks(self.server):
            time.sleep(0.001)
        time.sleep(self.chance.random() * 0.05)
        for pid in checks(self.server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        loading.join()
        assert codes[0] in (200, 400)
        self.becomes(name, was, factor if codes[0] == 200 else was)
        if codes[0] != 200:
            path.unlink()
            path.parent.rmdir()

    def kill_a_process(self, _name: str) -> None:
        if self.is_caged_up:
            (self.killed,) = processes_of_models(self.server.pid)
            self.is_caged_up = False
            self.town.expect(CAGED, CAGED_FACTOR, *KILLED)
            os.kill(self.killed, signal.SIGKILL)

    def look_at_the_process(self) -> bool:
        """Whether it takes requests; others go on meanwhile."""
        if self.is_caged_up:
            return True
        there = processes_of_models(self.server.pid)
        self.is_caged_up = is_ready(self.server, CAGED) and there not in ([], [self.killed])
        if self.is_caged_up:
            self.town.expect(CAGED, CAGED_FACTOR, *KILLED)
            self.town.expect(CAGED, CAGED_FACTOR)
        return self.is_caged_up


def checks(server: Server) -> list[int]:
    """The processes that try a model: those that a nursery has forked, and that too when it has;
    one that started alone."""
    found = []
    for pid in set(children(server.pid)) - set(processes_of_models(server.pid)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            is_nursery = Path(f"/proc/{pid}/comm").read_text().strip() == "lumen-nursery"
            forked = children(pid)
            found += [pid, *forked] if forked or not is_nursery else []
    return found


def held(server: Server) -> tuple[int, int]:
    """Descriptors and processes of the server."""
    pid = server.process.pid
    return len(os.listdir(f"/proc/{pid}/fd")), len(children(pid))


def wait_until_held(server: Server, before: tuple[int, int]) -> None:
    """Nothing is left of a sequence; what was on its way when they were counted does not matter."""

    def is_held() -> bool:
        descriptors, processes = held(server)
        return descriptors <= before[0] + DESCRIPTORS and processes <= before[1]

    eventually(is_held, f"descriptors and processes are {before} again", 60, lambda: held(server))


def resident_bytes(server: Server) -> int:
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


def test_random_sequences(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    for name in NAMES:
        times(folder / name / "1/model.onnx", 21)
    caged = times(tmp_path / "caged/model.onnx", CAGED_FACTOR)
    repository = {"paths": [str(folder)], "control": "explicit", "load_gently": False}
    server = serve(
        {
            "engine": {"thread_count": 2},
            "repository": repository,
            "models": [{"name": CAGED, "path": str(caged), "isolation": "process"}],
        }
    )
    eventually(lambda: is_ready(server, CAGED), "the process is there", 60)
    first = int(os.environ.get("LUMEN_E2E_SEED", random.randrange(10**6)))
    town = Town(server.port)
    clients = [threading.Thread(target=town.client, args=(first + c,)) for c in range(CLIENTS)]
    for client in clients:
        client.start()
    settled: tuple[int, int] | None = None
    small = 0
    for number in range(SEQUENCES):
        sequence = Sequence(server, folder, town, first + number)
        try:
            sequence.run()
            for name in NAMES:
                sequence.load(name)
            assert not town.wrong
        except BaseException:
            print(f"LUMEN_E2E_SEED={first + number}: {', '.join(sequence.said)}; {town.wrong[:3]}")
            town.stopped.set()
            raise
        if settled is None:
            settled, small = held(server), resident_bytes(server)
        wait_until_held(server, settled)
    town.stopped.set()
    for client in clients:
        client.join()
    assert not town.wrong
    assert town.answers[CAGED_FACTOR] > 0
    assert resident_bytes(server) < small + (64 << 20)
    server.check_idle()
