"""`lumen bench` and the load generator behind it, against a real server."""

from __future__ import annotations

import hashlib
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
from lumen_uring.loadgen import figures as bench_figures
from lumen_uring.ring.load import Load, LoadPlan

pytestmark = pytest.mark.once  # commands: the same on both backends

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
    for whose in ("client", "server"):
        used = figures[f"{whose}_cpu_seconds"]
        assert isinstance(used, float)
        assert 0 <= used < 60
    latency = figures["latency_us"]
    assert isinstance(latency, dict)
    assert list(latency) == LATENCIES
    ordered = [latency[name] for name in ("p50", "p90", "p99", "p999", "p9999")]
    assert ordered == sorted(ordered)
    # A bucket is at most 1/64 of its value wide.
    assert latency["min"] <= latency["p50"] * 1.02
    assert 0 < latency["min"] <= latency["mean"] <= latency["max"]
    assert latency["p9999"] <= latency["max"] * 1.02


def test_open_loop(doubler: Server, cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "histogram.csv"
    code, figures, _said = bench(
        doubler, cache, "--rate", "500", "--requests", "300", "--histogram", str(file)
    )
    assert (code, figures["requests"], figures["errors"]) == (0, 300, 0)
    rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
    assert sum(int(count) for _latency, count in rows) == 300
    latency, seconds = figures["latency_us"], figures["seconds"]
    assert isinstance(latency, dict)
    assert isinstance(seconds, float)
    mean = sum(float(latency_us) * int(count) for latency_us, count in rows) / 300
    assert latency["mean"] == pytest.approx(mean, rel=0.02)
    assert figures["throughput_rps"] == pytest.approx(300 / seconds)
    # 299 gaps of 2 ms on average, at random moments: not ten times less or more.
    assert 0.05 < seconds


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


def test_the_figures_stay_when_the_server_goes(doubler: Server, cache: Path) -> None:
    load = Load(plan(doubler, requests=0, seconds=3600.0))
    harness.eventually(lambda: load.progress()[1] > 100, "answers")
    doubler.kill()
    result = load.wait(harness.STOP_S)
    assert result is not None
    assert result.trouble == "the server closed every connection"
    assert result.requests > 100
    assert result.histogram.count == result.requests
    assert result.seconds > 0
    assert result.cpu_seconds > 0
    assert sum(bench_figures.errors_by_name(result).values()) == result.errors
    said = bench_figures.warnings(plan(doubler), result)
    assert said[0].startswith("the server closed every connection after ")
    with pytest.raises(EngineError):  # nothing was counted
        Load(plan(doubler)).wait()


def test_errors_are_named(serve: Serve, tmp_path: Path, cache: Path) -> None:
    path = graphs.double(tmp_path / "double.onnx")
    server = serve(
        {
            "server": {"rate": 0.001, "burst": 3},
            "models": [{"name": "double", "path": str(path)}],
        }
    )
    code, figures, said = bench(server, cache, "--requests", "20", "--warmup", "0")
    assert (code, figures["requests"], figures["errors"]) == (1, 3, 17)
    assert figures["errors_by_name"] == {"rate limited": 17}
    assert "17 rate limited: the rate of the key, of the model or of the server" in said
    url = f"lumen://127.0.0.1:{server.port}"
    done = harness.run(["bench", "--url", url, "--requests", "5", "--warmup", "0"], cache)
    assert done.returncode == 1
    assert "0 answered, 5 errors" in done.stdout
    assert "errors: 5 rate limited\n" in done.stdout


def test_a_token_lets_the_commands_in(serve: Serve, tmp_path: Path, cache: Path) -> None:
    token = "a-token-for-the-command-line"
    key = {"name": "ada", "sha256": hashlib.sha256(token.encode()).hexdigest()}
    server = serve(
        {
            "server": {"keys": [key]},
            "models": [{"name": "digits", "path": "builtin:digits"}],
        }
    )
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    short = ["--requests", "20", "--warmup", "0"]
    predict = ["predict", str(harness.ROOT / "tests/data/digits/digit_7.png")]
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["--token", token], {}),
        (["--token-file", str(file)], {"LUMEN_TOKEN": "another"}),
        ([], {"LUMEN_TOKEN": token}),
    ]
    for at, command in enumerate(
        (
            [*predict, "--port", str(server.port)],
            ["bench", "--url", f"lumen://127.0.0.1:{server.port}", *short],
            ["bench", "--url", f"http://127.0.0.1:{server.port}", *short],
            ["bench", "--url", f"http://127.0.0.1:{server.port}", "--get", "/v2", *short],
        )
    ):
        for options, variables in ways if at == 0 else ways[at - 1 : at]:  # one reader for all
            done = harness.run([*command, *options], cache, extra_environment=variables)
            assert (done.returncode, done.stderr) == (0, ""), (command, options)
        for options in ([], ["--token", "another"]):
            done = harness.run([*command, *options], cache)
            assert done.returncode == 1
            # One sentence of ours: no Traceback, and nothing of the wire's flags.
            assert "token" in done.stderr
            assert "flag bit" not in done.stderr
