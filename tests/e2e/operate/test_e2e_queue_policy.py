"""A model's own bounds on its queue, as Triton's default_queue_policy sets them: how many requests
may wait for a worker, and how long."""

from __future__ import annotations

import select
from pathlib import Path

import graphs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from harness import Server, eventually
from operating import Reloaded
from web import Http

pytestmark = pytest.mark.once  # what waits for a worker is the same on both backends

X = np.arange(16, dtype="<f4").reshape(1, 16)
LONG_US = 3_600_000_000


def serve_models(serve: Serve, folder: Path, queue: str = "auto", **slow: int) -> Server:
    path = str(graphs.slow(folder / "slow.onnx"))
    return serve(
        {
            "engine": {"thread_count": 1, "queue_type": queue},
            "models": [
                {"name": "slow", "path": path, **slow},
                {"name": "busy", "path": path},
                {"name": "double", "path": str(graphs.double(folder / "double.onnx"))},
            ],
        }
    )


def ask(trips: int, model: str = "slow") -> bytes:
    return web.infer(model, {"x": np.array([trips], "<i8")})


def has_answer(http: Http) -> bool:
    return bool(select.select([http.socket], [], [], 0)[0])


def begin(server: Server, count: int) -> list[Http]:
    """Requests that have slots: the first keeps the worker busy, others wait. One that came before
    the worker had taken the first is asked again."""
    asked: list[Http] = []
    while len(asked) < count:
        one = Http(server.port)
        while True:
            one.send(ask(1 if asked else 12_000))
            wanted = len(asked) + 1
            eventually(
                lambda n=wanted, h=one: server.figures().slots_in_use >= n or has_answer(h), "it"
            )
            if not has_answer(one):
                break
            assert one.answer().code == 503
        asked.append(one)
    return asked


@pytest.mark.parametrize("queue", ["mpmc", "naive"])
def test_as_many_as_may_wait(serve: Serve, tmp_path: Path, queue: str) -> None:
    """One more is refused at once, in both dialects; other models are not."""
    server = serve_models(serve, tmp_path, queue, max_queued=2, queue_timeout_us=LONG_US)
    for _ in range(2):  # the count is right afterwards
        with Http(server.port) as http, server.connect() as native:
            busy = begin(server, 3)
            full = http.query(ask(1))
            assert (full.code, "Exceeds maximum queue size" in full.error) == (503, True), full
            assert int(full.headers["retry-after"]) >= 1
            frame = wire.frame(np.array([1], "<i8").tobytes(), model=server.models["slow"])
            assert native.ask(frame).status == wire.OVERLOADED
            http.send(web.infer("double", {"x": X}))
            for one in busy:
                assert one.answer().code == 200
                one.close()
            np.testing.assert_array_equal(http.answer("POST").array("y"), X + X)
            assert http.query(ask(1)).code == 200
            assert native.ask(frame).status == wire.OK


@pytest.mark.parametrize("queue", ["mpmc", "naive"])
def test_longer_than_they_may_wait(serve: Serve, tmp_path: Path, queue: str) -> None:
    server = serve_models(serve, tmp_path, queue, queue_timeout_us=1)
    with Http(server.port) as busy, Http(server.port) as http:
        busy.send(ask(8000, "busy"))
        eventually(lambda: server.figures().slots_in_use > 0, "the load")
        late = http.query(ask(1))
        assert (late.code, "Request timeout expired" in late.error) == (503, True), late
        assert "queue_timeout_us of model 'slow'" in late.error
        http.send(web.infer("double", {"x": X}))
        np.testing.assert_array_equal(http.answer("POST").array("y"), X + X)
        assert busy.answer().code == 200


def test_a_batch_does_not_wait_longer(serve: Serve, tmp_path: Path) -> None:
    """A worker that waits for more requests ends that when the first one's time is up."""
    path = str(graphs.double(tmp_path / "double.onnx"))
    entry = {"name": "double", "path": path, "batch_size": 8, "batch_delay_us": LONG_US}
    server = serve({"engine": {"thread_count": 1}, "models": [{**entry, "queue_timeout_us": 1000}]})
    with Http(server.port) as http:
        late = http.query(web.infer("double", {"x": X}))
        assert (late.code, "Request timeout expired" in late.error) == (503, True), late


def test_a_long_wait_for_a_batch(serve: Serve, tmp_path: Path) -> None:
    """It ends when the batch is full."""
    path = str(graphs.double(tmp_path / "double.onnx"))
    entry = {"name": "double", "path": path, "batch_size": 4, "batch_delay_us": LONG_US}
    server = serve({"engine": {"thread_count": 1}, "models": [entry]})
    asked = [Http(server.port) for _ in range(4)]
    for one in asked:
        one.send(web.infer("double", {"x": X}))
    for one in asked:
        np.testing.assert_array_equal(one.answer().array("y"), X + X)
        one.close()
    with Http(server.port) as http:
        (stats,) = http.query(web.get("/v2/models/double/stats")).json()["model_stats"]
        (batch,) = stats["batch_stats"]
        assert (batch["batch_size"], batch["compute_infer"]["count"]) == (4, 1)


def test_a_batch_waits_for_what_its_requests_may(serve: Serve, tmp_path: Path) -> None:
    """Not beyond a deadline, neither the first one's nor that of one which joins it; not when its
    client has left, while the server drains or its models change. Here they would wait for an hour.
    """
    path = str(graphs.double(tmp_path / "double.onnx"))
    entry = {"name": "double", "path": path, "batch_size": 8, "batch_delay_us": LONG_US}
    other = {"name": "other", "path": path}
    document = {"engine": {"thread_count": 1}, "models": [entry]}
    reloaded = Reloaded(serve, tmp_path, {**document, "models": [entry, other]})
    server = reloaded.server
    limited = web.infer("double", {"x": X}, parameters={"timeout": 5_000_000})
    unlimited = web.infer("double", {"x": X})

    def wait() -> Http:
        one = Http(server.port)
        one.send(unlimited)
        eventually(lambda: server.figures().slots_in_use == 1, "it is here")
        return one

    def expect(one: Http) -> None:
        np.testing.assert_array_equal(one.answer().array("y"), X + X)

    with Http(server.port) as http:
        np.testing.assert_array_equal(http.query(limited).array("y"), X + X)
        with wait() as first:
            np.testing.assert_array_equal(http.query(limited).array("y"), X + X)
            expect(first)
    wait().close()
    eventually(lambda: server.figures().slots_in_use == 0, "a slot of nobody's")
    with wait() as first:
        reloaded.reload(document)
        expect(first)
    with wait() as first:
        server.terminate()
        expect(first)
    server.expect_clean_end()


def test_a_batch_of_a_preferred_size_begins_at_once(serve: Serve, tmp_path: Path) -> None:
    """Others wait for more requests: here for an hour."""
    path = str(graphs.double(tmp_path / "double.onnx"))
    entry = {"name": "double", "path": path, "batch_size": 8, "batch_delay_us": LONG_US}
    preferred = {**entry, "batch_preferred": [2, 5]}
    server = serve({"engine": {"thread_count": 1}, "models": [preferred]})
    for rows in ((1, 1), (5,), (3, 2), (1, 1)):
        asked = [Http(server.port) for _ in rows]
        arrays = [np.full((count, 16), count, "<f4") for count in rows]
        for one, x in zip(asked, arrays, strict=True):
            one.send(web.infer("double", {"x": x}))
        for one, x in zip(asked, arrays, strict=True):
            np.testing.assert_array_equal(one.answer().array("y"), x + x)
            one.close()
    with Http(server.port) as http:
        (stats,) = http.query(web.get("/v2/models/double/stats")).json()["model_stats"]
        found = {one["batch_size"]: one["compute_infer"]["count"] for one in stats["batch_stats"]}
        assert found == {2: 2, 5: 2}
        config = http.query(web.get("/v2/models/double/config")).json()
        assert config["dynamic_batching"]["preferred_batch_size"] == [2, 5]
