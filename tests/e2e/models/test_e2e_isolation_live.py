"""Models in processes of their own that come while the server runs: answered as those of the start,
with arenas that a process has mapped and with others, replaced, and gone without a trace."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import graphs
import numpy as np
import pytest
import web
from conftest import Serve
from harness import Server, eventually, is_gone, processes_of_models, stand_still
from web import Http, post

from lumen_uring import Client

pytestmark = pytest.mark.once  # what runs models is the same on both backends

APART = 'parameters { key: "isolation" value: { string_value: "process" } }\n'


def put(folder: Path, name: str, factor: float, settings: str = APART, version: int = 1) -> None:
    """y = x * factor, FP32 [n, 16], as the next version of a model."""
    place = folder / name / str(version)
    place.mkdir(parents=True)
    graphs.times(place / "model.onnx", factor)
    (folder / name / "config.pbtxt").write_text(settings)


def document(folder: Path, **engine: object) -> dict[str, object]:
    repository = {"paths": [str(folder)], "control": "explicit", "load": ["same"]}
    return {"engine": {"thread_count": 2, **engine}, "repository": repository}


def call(server: Server, what: str, name: str = "apart") -> web.Answer:
    with Http(server.port) as http:
        return http.query(post(f"/v2/repository/models/{name}/{what}"))


def factor(server: Server, name: str = "apart") -> float:
    """What the model multiplies by; the negative status where it does not answer."""
    with Http(server.port) as http:
        answer = http.query(web.infer(name, {"x": np.ones((1, 16), np.float32)}))
        return float(answer.array("y")[0, 0]) if answer.code == 200 else -answer.code


def serving_apart(serve: Serve, folder: Path) -> tuple[Server, int]:
    """A server with a model that came later, and the process of that."""
    put(folder, "same", 7, "")
    put(folder, "apart", 1)
    server = serve(document(folder))
    assert call(server, "load").code == 200
    [process] = processes_of_models(server.pid)
    return server, process


def next_process(server: Server, *known: int) -> int:
    """The process of a model that is being loaded, standing still before it serves."""

    def coming() -> set[int]:
        return set(processes_of_models(server.pid)) - set(known)

    eventually(coming, "the next process", 60)
    [found] = coming()
    stand_still(found)
    return found


@pytest.mark.parametrize(
    ("is_first", "allocator", "batch_size"),
    [
        (True, "lumen_arena", 1),
        (True, "lumen_arena", 4),
        (True, "standard", 1),
        (False, "lumen_arena", 1),
    ],
)
def test_answers_are_the_same_to_the_bit(
    serve: Serve, tmp_path: Path, is_first: bool, allocator: str, batch_size: int
) -> None:
    """Whether its tensors are copied, or lie where another process maps them from the start on."""
    put(tmp_path, "same", 0.1, "" if is_first else APART)
    delay_us = 200 if batch_size > 1 else 0
    server = serve(
        document(tmp_path, allocator_type=allocator, batch_size=batch_size, batch_delay_us=delay_us)
    )
    put(tmp_path, "apart", 0.1, f"max_batch_size: 64\n{APART}")
    put(tmp_path, "here", 0.1, "max_batch_size: 64\n")
    assert call(server, "load").code == 200
    assert call(server, "load", "here").code == 200
    server.idle_fds = 0  # the memory, and the process, are descriptors
    assert len(processes_of_models(server.pid)) == (1 if is_first else 2)
    wrong: list[object] = []

    def ask(seed: int) -> None:
        random = np.random.default_rng(seed)
        with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
            for _ in range(12):
                x = random.standard_normal([int(random.choice([1, 2, 64])), 16], np.float32)
                expected = client.infer("here", {"x": x}).outputs["y"]
                found = client.infer("apart", {"x": x}).outputs["y"]
                answer = http.query(web.infer("apart", {"x": x}, binary=False))
                is_same = found.tobytes() == expected.tobytes() and answer.code == 200
                if not is_same or not np.array_equal(answer.array("y"), expected):
                    wrong.append((x, found, answer))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_it_is_replaced_restarted_and_unloaded(serve: Serve, tmp_path: Path) -> None:
    """Requests that come all the time are answered by the one or the other."""
    server, first = serving_apart(serve, tmp_path)
    put_next = tmp_path / "apart" / "2"
    put_next.mkdir()
    graphs.times(put_next / "model.onnx", 2)
    stop, seen = threading.Event(), list[float]()

    def ask() -> None:
        while not stop.is_set():
            seen.append(factor(server))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert call(server, "load").code == 200
    finally:
        stop.set()
        asking.join()
    assert set(seen) <= {1, 2}
    assert factor(server) == 2
    eventually(lambda: is_gone(first), "the end of the first process")
    [second] = processes_of_models(server.pid)
    os.kill(second, signal.SIGKILL)
    eventually(lambda: factor(server) == 2 and is_gone(second), "the return of the model", 60)
    assert factor(server, "same") == 7
    [third] = processes_of_models(server.pid)
    assert call(server, "unload").code == 200
    eventually(lambda: is_gone(third), "the end of the third process")
    server.idle_fds = 0  # of the memory one stays
    assert factor(server) == -404


def test_a_load_that_fails_leaves_nothing(serve: Serve, tmp_path: Path) -> None:
    """Its process does not begin, or it is called off while that begins; what serves goes on."""
    server, serving = serving_apart(serve, tmp_path)

    answers: list[web.Answer] = []
    put(tmp_path, "other", 3)
    for end, said in (
        (lambda pid: os.kill(pid, signal.SIGKILL), "ended by signal 9 before it could serve"),
        (lambda _pid: call(server, "unload", "other"), "it was unloaded, or has changed, before"),
    ):
        answers.clear()
        load = threading.Thread(target=lambda: answers.append(call(server, "load", "other")))
        load.start()
        coming = next_process(server, serving)
        end(coming)
        load.join(60)
        [answer] = answers
        assert answer.code in (400, 500, 503), answer
        assert said in answer.error
        eventually(lambda pid=coming: is_gone(pid), "its end")  # type: ignore[misc]
        assert (factor(server), factor(server, "same"), factor(server, "other")) == (1, 7, -404)
    assert processes_of_models(server.pid) == [serving]
    assert call(server, "load", "other").code == 200
    assert factor(server, "other") == 3
    server.idle_fds = 0  # the other one's process is a descriptor


def test_a_server_that_ends_during_a_load(serve: Serve, tmp_path: Path) -> None:
    """No process outlives it: neither the one that serves nor the one that begins."""
    server, serving = serving_apart(serve, tmp_path)
    graphs.times(tmp_path / "apart" / "1" / "model.onnx", 4)
    load = threading.Thread(target=call, args=(server, "load"))
    load.start()
    coming = next_process(server, serving)
    server.process.send_signal(signal.SIGTERM)
    server.wait()
    load.join(60)
    for pid in (coming, serving):
        eventually(lambda one=pid: is_gone(one), "the end of every process")  # type: ignore[misc]
