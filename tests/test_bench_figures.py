"""`lumen bench`: from what the load generator counts to what a person or a program reads."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumen_uring.cli import main, make_parser
from lumen_uring.commands import bench
from lumen_uring.errors import ConfigError, LumenError, StatsError
from lumen_uring.loadgen import figures as bench_figures
from lumen_uring.protocol.describe import Model, Rgb8Info, TensorInfo
from lumen_uring.ring import load as load_module
from lumen_uring.ring import stats
from lumen_uring.ring.histogram import Histogram, bucket_of
from lumen_uring.ring.load import LoadPlan, LoadResult

PLAN = LoadPlan("127.0.0.1", 8000, 3, 0, 0, 1, [b"x"])


def recorded(values_ns: list[int]) -> Histogram:
    counts = np.zeros(1728, np.uint64)
    for value in values_ns:
        counts[bucket_of(value, 6, 4)] += np.uint64(1)
    return Histogram(counts, 6, 4)


# From 10 µs to 100 ms in equal steps, and a tail that is far from them.
VALUES_NS = [
    10_000 * number * (1 if number < 9990 else number - 9985) for number in range(1, 10_001)
]
RESULT = LoadResult(
    requests=10_000,
    errors=31,
    statuses={0: 10_000, 4: 9, 5: 12, 15: 3, 77: 1},
    mismatches=2,
    disconnects=40,
    seconds=2.5,
    cpu_seconds=1.25,
    min_ns=11_500,
    max_ns=98_765_432,
    mean_ns=4_321_000.0,
    late=6,
    unsent=7,
    histogram=recorded(VALUES_NS),
)
EMPTY = dataclasses.replace(
    RESULT, requests=0, errors=0, statuses={}, mismatches=0, seconds=0.0, cpu_seconds=0.0, late=0,
    unsent=0, mean_ns=float("nan"), min_ns=2**64 - 1, max_ns=0, histogram=recorded([]),
)  # fmt: skip


def test_every_figure_under_its_own_name() -> None:
    found = bench_figures.as_json(RESULT, 0.75)
    latency = found.pop("latency_us")
    assert found == {
        "requests": 10_000,
        "errors": 31,
        "seconds": 2.5,
        "throughput_rps": 4000.0,
        "client_cpu_seconds": 1.25,
        "server_cpu_seconds": 0.75,
        "statuses": {"0": 10_000, "4": 9, "5": 12, "15": 3, "77": 1},
        "errors_by_name": {
            "deadline passed": 12,
            "overloaded": 9,
            "connection lost": 4,
            "other HTTP status": 3,
            "wrong answer": 2,
            "status 77": 1,
        },
        "ended_early": None,
        "mismatches": 2,
        "disconnects": 40,
        "late": 6,
        "unsent": 7,
    }
    assert list(found["errors_by_name"].values()) == [12, 9, 4, 3, 2, 1]  # the most frequent first
    exact = {"min": 11.5, "mean": 4321.0, "max": 98_765.432}
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9), ("p9999", 99.99)):
        value_ns = VALUES_NS[round(percent * 100) - 1]
        exact[name] = RESULT.histogram.midpoint_ns(bucket_of(value_ns, 6, 4)) / 1000
    assert latency == exact
    assert list(latency) == ["min", "mean", "p50", "p90", "p99", "p999", "p9999", "max"]
    lost = dataclasses.replace(RESULT, trouble="all were lost")
    assert bench_figures.as_json(lost, None)["ended_early"] == "all were lost"


def test_nothing_was_answered() -> None:
    found = bench_figures.as_json(EMPTY, None)
    assert set(found["latency_us"].values()) == {None}
    assert (found["throughput_rps"], found["server_cpu_seconds"]) == (0.0, None)
    assert found["errors_by_name"] == {}
    assert bench_figures.warnings(PLAN, EMPTY) == []


def test_each_status_has_its_name_and_what_to_look_at() -> None:
    names = {
        1: "bad request", 2: "unknown model", 3: "too large", 4: "overloaded",
        5: "deadline passed", 6: "unauthorised", 7: "rate limited", 8: "inference failed",
        9: "shutting down", 15: "other HTTP status",
    }  # fmt: skip
    hints = {
        3: "max_request_bytes",
        4: "max_in_flight",
        5: "--timeout-us",
        6: "--token-file",
        7: "rate",
    }
    for status, name in names.items():
        result = dataclasses.replace(EMPTY, statuses={status: 8}, errors=8)
        assert bench_figures.errors_by_name(result) == {name: 8}
        said = bench_figures.warnings(PLAN, result)
        if status in hints:
            (sentence,) = said
            assert sentence.startswith(f"8 {name}: ")
            assert hints[status] in sentence
        else:
            assert said == []


@pytest.mark.parametrize(
    ("rate", "changed", "says"),
    [
        (0.0, {"cpu_seconds": 2.25}, None),
        (0.0, {"cpu_seconds": 2.26}, "the generator used 90% of its core"),
        (0.0, {"cpu_seconds": 2.5}, "the generator used 100% of its core"),
        (0.0, {"late": 10_000, "unsent": 5}, None),  # a closed loop is never late
        (9.0, {"late": 100}, None),
        (9.0, {"late": 101}, "101 requests were sent more than 1 ms late"),
        (9.0, {"unsent": 1, "late": 101}, "1 requests were due but never sent"),
        (0.0, {"trouble": "The server left"}, "The server left after 2.5 s: the figures cover"),
    ],
)
def test_what_bounded_the_figures(rate: float, changed: dict[str, Any], says: str | None) -> None:
    quiet = {"statuses": {0: 10_000}, "errors": 0, "late": 0, "unsent": 0, "cpu_seconds": 0.0}
    result = dataclasses.replace(RESULT, **{**quiet, **changed})
    said = bench_figures.warnings(dataclasses.replace(PLAN, rate=rate), result)
    assert [says is not None and one.startswith(says) for one in said] == ([True] if says else [])


def test_what_a_person_reads(capsys: pytest.CaptureFixture[str]) -> None:
    bench_figures.show(PLAN, bench_figures.as_json(RESULT, 0.75))
    assert capsys.readouterr().out.splitlines() == [
        "3 connections, closed loop, 2.5 s",
        "  10000 answered, 31 errors, 4000.0 requests/s",
        "  errors: 12 deadline passed, 9 overloaded, 4 connection lost, 3 other HTTP status, "
        "2 wrong answer, 1 status 77",
        "  latency µs  min 12  mean 4321  p50 50070  p90 89653  p99 99090  p999 501219  "
        "p9999 1400898  max 98765",
        "  CPU seconds: generator 1.25, server 0.75 (with the warm-up)",
    ]
    plan = dataclasses.replace(PLAN, rate=1234.5)
    bench_figures.show(plan, bench_figures.as_json(EMPTY, None))
    assert capsys.readouterr().out.splitlines() == [
        "3 connections, open loop at 1234.5/s, 0.0 s",
        "  0 answered, 0 errors, 0.0 requests/s",
        "  latency µs  ",
        "  CPU seconds: generator 0.00",
    ]


def test_how_far_a_load_is(capsys: pytest.CaptureFixture[str]) -> None:
    for progress, text in (
        ((False, 5, 1, 0.5), "warming up"),
        ((True, 500, 7, 2.0), "   2.0 s  500 answered  250/s  7 errors"),
        ((True, 0, 0, 0.0), "   0.0 s  0 answered  0/s  0 errors"),
    ):
        bench_figures.show_progress(progress)
        assert capsys.readouterr().err == f"\r{text}\033[K"


def test_the_buckets_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "buckets.csv"
    histogram = recorded([100, 100, 5_000_000])
    bench_figures.write_histogram(path, dataclasses.replace(RESULT, histogram=histogram))
    head, first, last = path.read_text().splitlines()
    low, high = (histogram.midpoint_ns(bucket_of(value, 6, 4)) for value in (100, 5_000_000))
    assert (head, first, last) == (
        "latency_us,count",
        f"{low / 1000:.3f},2",
        f"{high / 1000:.3f},1",
    )
    with pytest.raises(LumenError, match=r"--histogram: .*none/x cannot be written: No such file"):
        bench_figures.write_histogram(tmp_path / "none" / "x", RESULT)


# ---- the command ----


class Loads:
    """Stands in for the load: gives what each wait is to give."""

    def __init__(self, *gives: LoadResult | BaseException | None) -> None:
        self.gives = list(gives)
        self.stopped = False
        self.waits: list[float | None] = []

    def wait(self, timeout_s: float | None = None) -> LoadResult | None:
        self.waits.append(timeout_s)
        give = self.gives.pop(0)
        if isinstance(give, BaseException):
            raise give
        return give

    def stop(self) -> None:
        self.stopped = True

    def progress(self) -> tuple[bool, int, int, float]:
        return True, 1, 0, 1.0


GOOD = dataclasses.replace(RESULT, errors=0, statuses={0: 10_000}, mismatches=0)


@pytest.mark.parametrize(
    ("gives", "status", "stopped"),
    [
        ((None, None, GOOD), 0, False),
        ((RESULT,), 1, False),
        ((dataclasses.replace(GOOD, trouble="all were lost"),), 1, False),
        ((KeyboardInterrupt(), GOOD), 0, True),
        ((None, KeyboardInterrupt(), RESULT), 1, True),
    ],
)
def test_the_end_of_a_load(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gives: tuple[LoadResult | BaseException | None, ...],
    status: int,
    stopped: bool,
) -> None:
    loads = Loads(*gives)
    monkeypatch.setattr(load_module, "Load", lambda _plan: loads)
    cpu = iter([10.0, 12.5])
    monkeypatch.setattr(bench, "_server_cpu_seconds", lambda _plan: next(cpu))
    url = "http://127.0.0.1:1"
    assert main(["bench", "--url", url, "--get", "/x", "--json", "--requests", "9"]) == status
    assert loads.stopped is stopped
    assert loads.waits[0] == 0.5
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["server_cpu_seconds"] == 2.5
    assert found["requests"] == 10_000
    assert ("lumen: 12 deadline passed" in err) == (RESULT in gives)
    assert ("all were lost after 2.5 s" in err) == (found["ended_early"] is not None)


def test_the_servers_processor_time_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """User and system time of the process in the statistics, or behind the unix socket."""
    asked: list[Path] = []

    class Reading:
        pid = os.getpid()

    def read(path: Path) -> Reading:
        asked.append(path)
        return Reading()

    monkeypatch.setattr(stats, "read", read)

    def own() -> float:
        times = os.times()
        return times.user + times.system

    sum(range(3_000_000))  # so that user time is no multiple of anything else
    before_s = own()
    found = bench._server_cpu_seconds(dataclasses.replace(PLAN, port=8123))
    assert found is not None
    assert before_s - 0.02 <= found <= own() + 0.02
    assert asked == [Path("/dev/shm/lumen-8123")]
    assert bench._cpu_since(None, PLAN) is None
    since = bench._cpu_since(before_s - 3, PLAN)
    assert since is not None
    assert 2.97 <= since <= own() - before_s + 3.02
    for gone in (StatsError("no server"), OSError("no file")):
        monkeypatch.setattr(stats, "read", lambda _path, error=gone: (_ for _ in ()).throw(error))
        assert bench._server_cpu_seconds(PLAN) is None
        assert bench._cpu_since(1.0, PLAN) is None


def test_the_process_behind_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        assert bench._listener_pid(str(path)) == os.getpid()
        plan = dataclasses.replace(PLAN, host=f"unix:{path}", port=0)
        times = os.times()
        found = bench._server_cpu_seconds(plan)
        assert found is not None
        assert found >= times.user + times.system - 0.02
    path.unlink()
    assert bench._server_cpu_seconds(plan) is None


# ---- what is sent ----


def arguments(*options: str) -> Any:
    return make_parser().parse_args(["bench", *options])


def model_of(*inputs: tuple[str, tuple[int, ...]], rgb8: Rgb8Info | None = None) -> Model:
    tensors = tuple(TensorInfo(str(at), *one, True) for at, one in enumerate(inputs))
    return Model(7, "m", 512, tensors, (), rgb8)


def test_payloads_made_of_random_values() -> None:
    model = model_of(("FP32", (-1, 4)), ("INT64", (2,)), ("BOOL", (-1,)), ("FP16", (3, -1)))
    made = bench._payloads(model, "tensors", arguments("--rows", "3", "--seed", "5"))
    assert len(set(made)) == 16
    for payload in made:
        assert len(payload) == 3 * 4 * 4 + 2 * 8 + 3 + 2 * 3 * 3
        x = np.frombuffer(payload[:48], "<f4")
        assert ((x >= 0) & (x < 1)).all()
        assert len(set(x)) > 1
        assert np.frombuffer(payload[48:64], "<i8").tolist() == [1, 1]
        assert payload[64:67] == b"\1\1\1"
    assert bench._payloads(model, "tensors", arguments("--rows", "3", "--seed", "5")) == made
    assert bench._payloads(model, "tensors", arguments("--rows", "3", "--seed", "6")) != made
    picture = model_of(("FP32", (-1, 3, 4, 6)), rgb8=Rgb8Info(4, 6))
    made = bench._payloads(picture, "rgb8", arguments("--rows", "2"))
    assert {len(payload) for payload in made} == {4 * 6 * 3 * 2}
    assert len(set(made)) == 16


def test_payloads_made_of_pictures(tmp_path: Path) -> None:
    from PIL import Image

    for at in range(3):
        Image.new("RGB", (8, 8), (at, 10, 20)).save(tmp_path / f"{at}.png")
    picture = model_of(("FP32", (-1, 3, 1, 2)), rgb8=Rgb8Info(1, 2))
    options = arguments("--rows", "2", "--images", str(tmp_path))
    made = bench._payloads(picture, "rgb8", options)
    assert made == [bytes([at, 10, 20] * 4) for at in range(3)]
    grey = model_of(("FP32", (-1, 1, 1, 2)))
    made = bench._payloads(grey, "tensors", options)
    assert [len(payload) for payload in made] == [2 * 2 * 4] * 3
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=f"no picture in {tmp_path}/empty"):
        bench._payloads(picture, "rgb8", arguments("--images", f"{tmp_path}/empty"))


@pytest.mark.parametrize(
    ("url", "host", "port", "asked"),
    [
        ("lumen://127.0.0.1:9000", "127.0.0.1", 9000, 9000),
        ("lumen://[::1]", "::1", 8000, 8000),
        ("unix:/run/s", "unix:/run/s", 0, 8000),
        ("unix:///run/s", "unix:/run/s", 0, 8000),
    ],
)
@pytest.mark.parametrize(
    ("encoding", "takes_pictures"), [("auto", True), ("auto", False), ("tensors", True)]
)
def test_what_a_native_load_is(
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    host: str,
    port: int,
    asked: int,
    encoding: str,
    takes_pictures: bool,
) -> None:
    model = model_of(("FP32", (-1, 3, 4, 6)), rgb8=Rgb8Info(4, 6) if takes_pictures else None)
    clients: list[tuple[object, ...]] = []

    def client(*given: object, token: str | None) -> Any:
        clients.append((*given, token))
        return contextlib.nullcontext(stand_in_for(lambda: {"m": model}))

    monkeypatch.setattr("lumen_uring.client.client.Client", client)
    plan = bench.make_plan(arguments("--url", url, "--encoding", encoding, "--token", "abc"))
    assert clients == [(host, asked, "abc")]
    assert (plan.host, plan.port, plan.model, plan.protocol) == (host, port, 7, 0)
    as_rgb8 = encoding == "auto" and takes_pictures
    assert (plan.encoding, len(plan.payloads[0])) == ((1, 72) if as_rgb8 else (0, 288))
    assert plan.credential == b"abc".ljust(32, b"\0")


def stand_in_for(models: Callable[[], dict[str, Model]]) -> Any:
    return type("Client", (), {"models": staticmethod(models)})()


def test_rgb8_for_a_model_that_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(("FP32", (-1, 4)))
    stand_in = contextlib.nullcontext(stand_in_for(lambda: {"m": model}))
    monkeypatch.setattr("lumen_uring.client.client.Client", lambda *_given, **_token: stand_in)
    with pytest.raises(ConfigError, match="'m' takes no rgb8: use --encoding tensors"):
        bench.make_plan(arguments("--encoding", "rgb8"))
    for url in ("127.0.0.1:8000", "lumen://", "ftp://a"):
        with pytest.raises(ConfigError, match="--url: expected lumen://ADDRESS:PORT"):
            bench.make_plan(arguments("--url", url))


def test_progress_is_shown_to_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for terminal, options, shown in ((True, [], 2), (True, ["--json"], 0), (False, [], 0)):
        monkeypatch.setattr(load_module, "Load", lambda _plan: Loads(None, None, GOOD))
        monkeypatch.setattr(bench, "_server_cpu_seconds", lambda _plan: None)
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_one=terminal: is_one)
        assert main(["bench", "--url", "http://127.0.0.1:1", "--get", "/x", *options]) == 0
        assert capsys.readouterr().err.count("1 answered") == shown
