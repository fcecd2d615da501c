"""`lumen bench` and the load generator behind it, against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import graphs
import harness
import numpy as np
import pytest
import wire
from conftest import Serve
from harness import Server

from lumen_uring.errors import EngineError
from lumen_uring.ring.load import Load, LoadPlan

KEYS = {"requests", "errors", "seconds", "throughput_rps", "latency_us", "client_cpu_seconds"}
LATENCIES = ["min", "mean", "p50", "p90", "p99", "p999", "p9999", "max"]


@pytest.fixture
def doubler(serve: Serve, tmp_path: Path) -> Server:
    path = graphs.double(tmp_path / "double.onnx")
    return serve({"models": [{"name": "double", "path": str(path)}]})


def bench(server: Server, cache: Path, *options: str) -> tuple[int, dict[str, object], str]:
    url = f"lumen://127.0.0.1:{server.port}"
    done = harness.run(["bench", "--url", url, "--json", "--warmup", "0.1", *options], cache)
    return done.returncode, json.loads(done.stdout), done.stderr


def plan(server: Server, **changes: object) -> LoadPlan:
    x = [np.full(16, at, "<f4") for at in range(4)]
    values: dict[str, object] = {
        "host": "127.0.0.1",
        "port": server.port,
        "connections": 4,
        "model": 0,
        "encoding": 0,
        "rows": 1,
        "payloads": [at.tobytes() for at in x],
        "expected": [(at + at).tobytes() for at in x],
        "requests": 200,
        "warmup_s": 0.0,
    }
    return LoadPlan(**{**values, **changes})  # type: ignore[arg-type]


def test_closed_loop(doubler: Server, cache: Path) -> None:
    code, figures, _said = bench(doubler, cache, "--connections", "7", "--requests", "500")
    assert (code, figures["requests"], figures["errors"]) == (0, 500, 0)
    assert KEYS <= figures.keys()
    assert figures["server_cpu_seconds"] is not None
    latency = figures["latency_us"]
    assert isinstance(latency, dict)
    assert list(latency) == LATENCIES
    ordered = [latency[name] for name in ("p50", "p90", "p99", "p999", "p9999")]
    assert ordered == sorted(ordered)
    # A bucket is at most 1/64 of its value wide.
    assert latency["min"] <= latency["p50"] * 1.02
    assert latency["p9999"] <= latency["max"] * 1.02


def test_open_loop(doubler: Server, cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "histogram.csv"
    code, figures, _said = bench(
        doubler, cache, "--rate", "500", "--requests", "300", "--histogram", str(file)
    )
    assert (code, figures["requests"], figures["errors"]) == (0, 300, 0)
    rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
    assert sum(int(count) for _latency, count in rows) == 300


def test_every_answer_is_looked_at(doubler: Server) -> None:
    result = Load(plan(doubler)).wait()
    assert result is not None
    assert (result.requests, result.errors, result.mismatches) == (200, 0, 0)
    wrong = [np.full(16, 7, "<f4").tobytes()] * 4
    result = Load(plan(doubler, expected=wrong)).wait()
    assert result is not None
    assert (result.requests, result.errors, result.mismatches) == (0, 200, 200)


def test_refusals_are_errors_with_their_status(doubler: Server) -> None:
    result = Load(plan(doubler, model=9)).wait()
    assert result is not None
    assert (result.requests, result.statuses) == (0, {wire.UNKNOWN_MODEL: 200})


def test_a_stop_ends_it(doubler: Server) -> None:
    load = Load(plan(doubler, requests=0, seconds=3600.0))
    harness.eventually(lambda: load.progress()[1] > 0, "the first answer")
    load.stop()
    result = load.wait()
    assert result is not None
    assert result.requests > 0


def test_no_server_is_a_sentence(cache: Path) -> None:
    done = harness.run(["bench", "--url", "lumen://127.0.0.1:1"], cache)
    assert done.returncode == 1
    assert done.stderr.startswith("lumen: ")
    with pytest.raises(EngineError, match=r"cannot connect to 127\.0\.0\.1 port 1"):
        Load(LoadPlan("127.0.0.1", 1, 1, 0, 0, 1, [b"x"], requests=1)).wait()


def test_a_wrong_url_is_a_sentence(cache: Path) -> None:
    done = harness.run(["bench", "--url", "ftp://127.0.0.1"], cache)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected lumen://ADDRESS:PORT" in done.stderr
