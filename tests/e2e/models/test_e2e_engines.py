"""Every way to run the engine gives the same answers to the same 64 connections."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import graphs
import numpy as np
import pytest
import wire
from conftest import Serve
from harness import Server, eventually
from onnx import helper

CONNECTIONS = 64
LAPS = 3
PER_LAP = 12
# Products of matrices that keep a worker busy for a second and more: a deadline passes meanwhile.
LONG = 90_000

# Which backend the I/O threads have is nothing to most of these: the others run on both.
once = pytest.mark.once
QUEUES = [
    # queue, allocator: what allocates is the same for all queues with workers
    ("mpmc", "lumen_arena"),
    ("inline", "lumen_arena"),
    ("batched", "standard"),
    pytest.param("mpmc", "standard", marks=once),
    pytest.param("scq", "lumen_arena", marks=once),
    pytest.param("spsc", "lumen_arena", marks=once),
    pytest.param("naive", "lumen_arena", marks=once),
    pytest.param("batched", "lumen_arena", marks=once),
    pytest.param("inline", "standard", marks=once),
]

BATCHING = [
    # queue, delay_us
    ("mpmc", 500),
    ("inline", 0),
    pytest.param("mpmc", 0, marks=once),
    pytest.param("scq", 0, marks=once),
    pytest.param("scq", 500, marks=once),
    pytest.param("naive", 0, marks=once),
    pytest.param("naive", 500, marks=once),
]

ENGINES = [
    # allocator, idle, workers, I/O threads
    ("lumen_arena", "adaptive", 4, 2),
    ("lumen_arena", "spin", 1, 2),
    ("lumen_arena", "park", 4, 1),
    ("standard", "yield", 4, 1),
    pytest.param("lumen_arena", "adaptive", 1, 1, marks=once),
    pytest.param("lumen_arena", "spin", 4, 1, marks=once),
    pytest.param("lumen_arena", "yield", 4, 2, marks=once),
    pytest.param("lumen_arena", "yield", 1, 1, marks=once),
    pytest.param("lumen_arena", "park", 1, 2, marks=once),
    pytest.param("standard", "adaptive", 4, 2, marks=once),
    pytest.param("standard", "spin", 1, 1, marks=once),
    pytest.param("standard", "park", 1, 2, marks=once),
]


def settings(folder: Path, allocator: str, idle: str, workers: int, io: int) -> dict[str, object]:
    return {
        "server": {"io_threads": io, "arena_bytes": "32MiB", "max_request_bytes": "256KiB"},
        "engine": {"allocator_type": allocator, "idle": idle, "thread_count": workers},
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx")), "max_rows": 64},
            {"name": "echo", "path": str(graphs.echo(folder / "echo.onnx")), "max_rows": 65536},
            {"name": "nonzero", "path": str(graphs.nonzero(folder / "nonzero.onnx", 6))},
            {
                "name": "nhwc",
                "path": str(graphs.image(folder / "nhwc.onnx", graphs.FLOAT, ["n", 5, 7, 3])),
                "max_rows": 4,
            },
        ],
    }


def request(
    server: Server, random: np.random.Generator, number: int, connection: int
) -> tuple[bytes, bytes]:
    """A request that no other one resembles, and its answer."""
    which = number % 4
    if which == 0:
        rows = int(random.integers(1, 6))
        x = random.standard_normal((rows, 16)).astype("<f4")
        x[0, 0] = 1000 * connection + number
        return (
            wire.frame(x.tobytes(), id=number, rows=rows, model=server.models["double"]),
            (x + x).tobytes(),
        )
    if which == 1:
        body = bytes([connection, number]) + random.bytes(int(random.integers(1, 20000)))
        return (
            wire.frame(body, id=number, rows=len(body), model=server.models["echo"]), body,
        )  # fmt: skip
    if which == 2:
        x = random.integers(0, 2, (1, 6)).astype("<f4") * (64 * number + connection + 1)
        where = np.array(np.nonzero(x), "<i8")
        return (
            wire.frame(x.tobytes(), id=number, model=server.models["nonzero"]),
            wire.shape_block([where.shape, (1, 6)]) + where.tobytes() + (x + x).tobytes(),
        )
    pixels = random.integers(0, 256, (5, 7, 3)).astype(np.uint8)
    return (
        wire.frame(pixels.tobytes(), id=number, encoding=wire.RGB8, model=server.models["nhwc"]),
        pixels.astype("<f4").tobytes(),
    )


@pytest.mark.parametrize(("allocator", "idle", "workers", "io"), ENGINES)
def test_the_same_answers(
    serve: Serve, tmp_path: Path, allocator: str, idle: str, workers: int, io: int
) -> None:
    server = serve(settings(tmp_path, allocator, idle, workers, io))
    ask_everybody(server, len(idle) + workers)
    if io > 1:
        from lumen_uring.ring.stats import read

        per_thread = [
            thread.counters["connections_accepted"]
            for thread in read(server.stats_path).threads
            if thread.role == "io"
        ]
        assert min(per_thread) > 0, f"one I/O thread got no connection: {per_thread}"


@pytest.mark.parametrize(("queue", "allocator"), QUEUES)
def test_the_same_answers_through_every_queue(
    serve: Serve, tmp_path: Path, queue: str, allocator: str
) -> None:
    chosen = settings(tmp_path, allocator, "adaptive", 2, 1)
    engine = chosen["engine"]
    assert isinstance(engine, dict)
    engine["queue_type"] = queue
    if queue == "spsc":  # one worker by itself, whatever the cores
        engine["thread_count"] = "auto"
    if queue == "inline":
        engine["thread_count"] = "auto"
    if queue == "batched":
        engine |= {"batch_size": 4, "batch_delay_us": 300}
        for model in chosen["models"]:  # type: ignore[attr-defined]
            if model["name"] == "nonzero":
                model["batch_size"] = 1
    server = serve(chosen)
    assert queue != "spsc" or "workers  1 " in server.output
    ask_everybody(server, 5)


@pytest.mark.parametrize(("queue", "delay_us"), BATCHING)
def test_the_same_answers_in_batches(
    serve: Serve, tmp_path: Path, queue: str, delay_us: int
) -> None:
    """Rows of different clients share a Run, and each gets its own back."""
    chosen = settings(tmp_path, "lumen_arena", "adaptive", 1, 1)
    chosen["engine"] = {"queue_type": queue, "thread_count": 1}
    for model in chosen["models"]:  # type: ignore[attr-defined]
        if model["name"] != "nonzero":
            model["batch_size"] = 8
            model["batch_delay_us"] = delay_us
    server = serve(chosen)
    ask_everybody(server, 6)
    assert server.figures().worker["batches"] > 0, "nothing was batched"


def ask_everybody(server: Server, seed: int) -> None:
    """Many clients, each with requests in flight that no other one resembles."""
    random = np.random.default_rng(seed)
    connections = [server.connect() for _ in range(CONNECTIONS)]
    try:
        for lap in range(LAPS):
            answers: list[dict[int, bytes]] = []
            for index, connection in enumerate(connections):
                numbers = range(PER_LAP * lap, PER_LAP * (lap + 1))
                made = {number: request(server, random, number, index) for number in numbers}
                connection.send(b"".join(data for data, _answer in made.values()))
                answers.append({number: answer for number, (_data, answer) in made.items()})
            for connection, expected in zip(connections, answers, strict=True):
                replies = connection.replies(PER_LAP)
                assert {n: reply.payload for n, reply in replies.items()} == expected
                assert all(reply.status == wire.OK for reply in replies.values())
    finally:
        for connection in connections:
            connection.close()
    figures = server.figures()
    assert figures.worker["requests_ok"] == CONNECTIONS * LAPS * PER_LAP


def test_a_bad_request_does_not_fail_its_batch(serve: Serve, tmp_path: Path) -> None:
    path = graphs.gather_rows(tmp_path / "gather.onnx")
    server = serve(
        {
            "engine": {"thread_count": 1, "batch_size": 8, "batch_delay_us": 100000},
            "models": [{"name": "gather", "path": str(path)}],
        }
    )
    with server.connect() as connection:
        indexes = [0, 1, 99, 2, 3]
        frames = [wire.frame(np.array([at], "<i8").tobytes(), id=at) for at in indexes]
        connection.send(b"".join(frames))
        replies = connection.replies(len(indexes))
    for at in indexes:
        if at == 99:
            assert replies[at].status == wire.BAD_REQUEST
        else:
            assert replies[at].status == wire.OK
            assert replies[at].payload == np.float32(10 + at).tobytes()
    assert server.figures().worker["batches_failed"] > 0, "the batch did not fail"


@once
@pytest.mark.parametrize("late", [0, 1])
def test_a_batch_goes_on_without_the_request_that_is_overdue(
    serve: Serve, tmp_path: Path, late: int
) -> None:
    """The I/O thread answers one of them while their Run lasts: the others get their own rows."""
    path = graphs.slow_pairs(tmp_path / "pairs.onnx")
    rows = [2, 1, 3]
    server = serve(
        {
            "engine": {"thread_count": 1, "batch_size": 6, "batch_delay_us": 1_000_000},
            "models": [{"name": "pairs", "path": str(path)}],
        }
    )

    def body(number: int, count: int, trips: int) -> tuple[bytes, bytes]:
        x = np.full(count, trips, "<i8") - np.arange(count)
        a = (100 * number + np.arange(3 * count, dtype="<f4")).reshape(count, 3)
        return x.tobytes() + a.tobytes(), (a + a).tobytes() + (2 * x).tobytes()

    def ask(connection: wire.Wire, trips: int) -> None:
        data, answer = body(7, 6, trips)
        assert connection.ask(wire.frame(data, rows=6)).payload == answer

    before = server.figures().worker
    made = [body(number, count, LONG) for number, count in enumerate(rows)]
    with server.connect() as connection:
        connection.send(
            b"".join(
                wire.frame(data, id=number, rows=rows[number],
                           timeout_us=100_000 if number == late else 0)
                for number, (data, _answer) in enumerate(made)
            )
        )  # fmt: skip
        replies = connection.replies(3)
        for number, (_data, answer) in enumerate(made):
            if number == late:
                assert replies[number].status == wire.DEADLINE
                assert "not returned" in replies[number].text
            else:
                assert (replies[number].status, replies[number].payload) == (wire.OK, answer)
        after = server.figures().worker
        assert (after["runs"], after["batches"]) == (before["runs"] + 1, before["batches"] + 1)
        ask(connection, 5)  # the slots are as good as new


@once
def test_outputs_of_an_overdue_request_are_let_go(serve: Serve, tmp_path: Path) -> None:
    """Its slot's next request has outputs of another size, which must be made anew."""
    path = graphs.slow_nonzero(tmp_path / "nonzero.onnx")
    server = serve(
        {
            "engine": {"thread_count": 1},
            "models": [{"name": "nonzero", "path": str(path)}],
        }
    )

    def body(trips: int, v: list[int]) -> tuple[bytes, bytes]:
        x, where = np.array([trips], "<i8"), np.array(np.nonzero(v), "<i8")
        answer = wire.shape_block([where.shape, (1,)]) + where.tobytes() + (2 * x).tobytes()
        return x.tobytes() + np.array(v, "<f4").tobytes(), answer

    def ask(connection: wire.Wire, trips: int, v: Sequence[int] = (0, 1, 0, 1, 0, 0)) -> None:
        data, answer = body(trips, list(v))
        assert connection.ask(wire.frame(data)).payload == answer

    with server.connect() as connection:
        ask(connection, 1)
        data, _answer = body(LONG, [1, 1, 1, 1, 1, 1])
        late = connection.ask(wire.frame(data, timeout_us=100_000))
        assert (late.status, late.text.count("not returned")) == (wire.DEADLINE, 1)
        eventually(lambda: server.figures().slots_in_use == 0, "its slot's return")
        for v in ([0, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]):
            ask(connection, 1, v)


@once
def test_outputs_of_a_batch_that_are_read_late(serve: Serve, tmp_path: Path) -> None:
    """Bytes that a socket does not take are kept elsewhere, since the batch's memory is reused."""
    columns, count = 1 << 16, 24  # 12 MB of answers: more than a socket holds
    path = graphs.double_and_negative(tmp_path / "two.onnx", columns)
    server = serve(
        {
            "server": {"max_request_bytes": "1MiB", "arena_bytes": "192MiB"},
            "engine": {"thread_count": 1, "batch_size": 4, "batch_delay_us": 2000},
            "models": [{"name": "two", "path": str(path)}],
        }
    )

    def x(number: int) -> np.ndarray:
        return np.arange(columns, dtype="<f4") + np.float32(number)

    frames = [wire.frame(x(number).tobytes(), id=number) for number in range(count)]
    with server.connect(receive_buffer_bytes=4096) as late:
        # Beside the reading: the server reads no more while an answer does not get away.
        sender = threading.Thread(target=late.send, args=(b"".join(frames),))
        sender.start()

        def is_stuck() -> bool:
            figures = server.figures()
            done = figures.worker["requests_ok"] == count
            return done or figures.io["replies_queued"] > 0

        eventually(is_stuck, "an answer that does not get away, or all of them")
        for number, reply in late.replies(count).items():
            assert reply.payload == (2 * x(number)).tobytes() + (-x(number)).tobytes(), number
        sender.join()
    assert server.figures().worker["batches"] > 0


@once
def test_a_batch_delay_counts_from_its_first_request(serve: Serve, tmp_path: Path) -> None:
    """Requests that trickle in do not keep the first one waiting for ever."""
    path = graphs.double(tmp_path / "double.onnx")
    server = serve(
        {
            "engine": {"thread_count": 1},
            "models": [
                {"name": "d", "path": str(path), "batch_size": 200, "batch_delay_us": 1_000_000}
            ],
        }
    )
    x = np.ones(16, "<f4").tobytes()
    # Of one connection 64 are read at a time.
    others = [server.connect() for _ in range(4)]
    with server.connect() as first:
        first.send(wire.frame(x, id=1))
        first.socket.settimeout(0.05)
        for number in range(190):
            others[number % 4].send(wire.frame(x, id=number))
            try:
                assert first.reply().id == 1
                break
            except TimeoutError:
                continue
        else:
            raise AssertionError("190 requests came before the first one was answered")
    for index, other in enumerate(others):
        other.replies(len(range(index, number + 1, 4)))
        other.close()


def test_batching_a_model_of_fixed_rows_is_refused(tmp_path: Path, cache: Path) -> None:
    import harness

    paths = [
        graphs.nonzero(tmp_path / "nonzero.onnx", 6),
        # One input of fixed size beside rows, which requests cannot share.
        graphs.save(
            tmp_path / "beside.onnx",
            [helper.make_node("Add", ["x", "k"], ["y"])],
            [graphs.tensor("x", graphs.FLOAT, ["n", 3]), graphs.tensor("k", graphs.FLOAT, [3])],
            [graphs.tensor("y", graphs.FLOAT, ["n", 3])],
        ),
    ]
    for path in paths:
        options = ["--port", "0", "--model", f"fixed={path}", "--set", "engine.batch_size=4"]
        done = harness.run([*options, "--set", "server.drain_seconds=0"], cache, ["timeout", "100"])
        assert done.returncode == 1
        assert "expected batch_size 1, found 4" in done.stderr


def test_a_row_per_request(serve: Serve, tmp_path: Path) -> None:
    import csv

    file = tmp_path / "trace.csv"
    chosen = settings(tmp_path, "lumen_arena", "adaptive", 2, 1)
    engine = chosen["engine"]
    assert isinstance(engine, dict)
    engine["telemetry_csv_path"] = str(file)
    engine["queue_type"] = "mpmc"
    server = serve(chosen)
    ask_everybody(server, 7)
    server.stop()
    rows = list(csv.DictReader(file.open()))
    assert len(rows) == CONNECTIONS * LAPS * PER_LAP  # far fewer than the rings hold
    for row in rows:
        stages = ("receive_ns", "queue_ns", "preprocess_ns", "infer_ns", "send_ns")
        assert sum(int(row[stage]) for stage in stages) == int(row["total_ns"])
        assert (row["queue_type"], row["allocator"], row["status"]) == ("mpmc", "lumen_arena", "0")
    assert {row["model"] for row in rows} == {"double", "echo", "nonzero", "nhwc"}
