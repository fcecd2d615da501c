"""Every way to run the engine gives the same answers to the same 64 connections."""

from __future__ import annotations

from pathlib import Path

import graphs
import numpy as np
import pytest
import wire
from conftest import Serve
from harness import Server

CONNECTIONS = 64
LAPS = 3
PER_LAP = 12

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
    if queue == "spsc":
        engine["thread_count"] = 1
    if queue == "inline":
        engine["thread_count"] = "auto"
    if queue == "batched":
        engine |= {"batch_size": 4, "batch_delay_us": 300}
        for model in chosen["models"]:  # type: ignore[attr-defined]
            if model["name"] == "nonzero":
                model["batch_size"] = 1
    ask_everybody(serve(chosen), 5)


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
            assert replies[at].status == wire.INFERENCE_FAILED
        else:
            assert replies[at].status == wire.OK
            assert replies[at].payload == np.float32(10 + at).tobytes()
    assert server.figures().worker["batches_failed"] > 0, "the batch did not fail"


def test_batching_a_model_of_fixed_rows_is_refused(tmp_path: Path, cache: Path) -> None:
    import harness

    path = graphs.nonzero(tmp_path / "nonzero.onnx", 6)
    options = ["--port", "0", "--model", f"fixed={path}", "--set", "engine.batch_size=4"]
    done = harness.run(options, cache)
    assert done.returncode != 0
    assert "expected batch_size 1, found 4" in done.stderr


def test_a_row_per_request(serve: Serve, tmp_path: Path) -> None:
    import csv

    file = tmp_path / "trace.csv"
    chosen = settings(tmp_path, "lumen_arena", "adaptive", 2, 1)
    engine = chosen["engine"]
    assert isinstance(engine, dict)
    engine["telemetry_csv_path"] = str(file)
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
