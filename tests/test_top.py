"""`lumen top`, from statistics files built by hand after c/include/lumen_stats.h."""

from __future__ import annotations

import dataclasses
import io
import os
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from test_stats import HEADER
from test_stats import build as build_other

from lumen_uring.cli import main
from lumen_uring.commands import top
from lumen_uring.errors import StatsError
from lumen_uring.metrics import words as metrics_words
from lumen_uring.metrics.top_screen import Reading, screen
from lumen_uring.ring import stats
from lumen_uring.ring.histogram import bucket_of

IO, WORKER = 0, 1
BUCKETS, MODEL_BUCKETS = (1728, 6, 4), (128, 2, 4)
PID, START_NS = 42, 7_000
IO_WORDS = (
    "requests_error", "requests_bad", "requests_refused", "requests_overloaded", "requests_late",
    "requests_gone", "connections_accepted", "bytes_in", "bytes_out", "upstream_ok",
    "upstream_failed", "upstream_gone", "upstream_retries", "upstream_ejections", "upstream_dials",
    "upstream_fallen", "upstream_spills",
)  # fmt: skip
IO_GAUGES = (
    "in_flight", "connections_open", "regions", "region_bytes", "worker_hangs",
    "upstream_in_flight", "upstream_connections",
)  # fmt: skip
WORKER_WORDS = ("requests_stolen", "requests_ok", "runs", "batches", "runs_wide", "bytes_out")
MODEL_WORDS = ("ok", "failed", "rows", "runs", "preprocess_ns", "send_ns", "expert_0")
# The name of each word (of a model's: with "model_"), its kind, its role.
FIELDS = [
    *((name, 0, IO) for name in IO_WORDS),
    *((name, 1, IO) for name in IO_GAUGES),
    *((name, 0, WORKER) for name in WORKER_WORDS),
    *((stage, 2, 255) for stage in metrics_words.STAGES),
    *((name, 4, IO) for name in ("model_queued", "model_refused")),
    *((f"model_{name}", 4, WORKER) for name in MODEL_WORDS),
    *((f"model_{stage}", 3, 255) for stage in metrics_words.MODEL_STAGES),
]


class Thread:
    """A block of the file: words by name, those of a model by (name, model)."""

    def __init__(self, role: int, index: int, tid: int, /, node: int = 0, **words: int) -> None:
        self.head = role, index, node, -1, tid
        self.words: dict[tuple[str, int], int] = {(name, 0): n for name, n in words.items()}
        self.times: list[tuple[str, int, int]] = []  # stage, model, ns

    def of_model(self, model: int, /, **words: int) -> Thread:
        self.words |= {(f"model_{name}", model): n for name, n in words.items()}
        return self

    def timed(self, model: int, stage: str, *times_ns: int) -> Thread:
        """Records values; also those of the model, in the stages that it has."""
        self.times += [(stage, model, ns) for ns in times_ns]
        return self


def build(
    models: list[str], threads: list[Thread], start_ns: int = START_NS, experts: bytes = b""
) -> bytes:
    places: dict[str, int] = {}
    table, at, rows_at = b"", 64, 0
    for name, kind, role in FIELDS:
        rows_at = min(rows_at, at) if kind >= 3 else at + 8 * BUCKETS[0]
        count = BUCKETS[0] if kind == 2 else 1 + MODEL_BUCKETS[0] if kind == 3 else 1
        offset, at = at, at + 8 * count
        places[f"{role} {name}"] = offset
        table += struct.pack("<32sIIII", name.encode(), kind, offset, count, role)
    stride = at - rows_at  # of each model a row: its words, then its times
    block_bytes = rows_at + stride * len(models)
    names = b"".join(name.encode().ljust(16, b"\0") for name in models)
    models_at = 128 + len(table)
    experts_at = models_at + len(names)
    names += experts  # of each model a word: 1 + the model that model_expert_0 is of
    blocks_at = (models_at + len(names) + 63) // 64 * 64
    head = struct.pack(
        HEADER, b"LMNSTAT1", 6, len(FIELDS), 128, blocks_at,
        blocks_at + len(threads) * block_bytes, len(threads), block_bytes, *BUCKETS, PID, start_ns,
        1, 8000, models_at, len(models), 16, *MODEL_BUCKETS, stride,
        experts_at, len(experts) // 4 // len(models), 0,
    )  # fmt: skip
    data = (head.ljust(128, b"\0") + table + names).ljust(blocks_at, b"\0")
    for thread in threads:
        block = np.zeros(block_bytes // 8, "<u8")
        block[:2] = np.frombuffer(struct.pack("<IHHii", *thread.head), "<u8")
        for (name, model), value in thread.words.items():
            block[(places[f"{thread.head[0]} {name}"] + model * stride) // 8] += np.uint64(value)
        for stage, model, ns in thread.times:
            block[places[f"255 {stage}"] // 8 + bucket_of(ns, *BUCKETS[1:])] += np.uint64(1)
            if stage in metrics_words.MODEL_STAGES:
                first = (places[f"255 model_{stage}"] + model * stride) // 8
                block[first] += np.uint64(ns)
                block[first + 1 + bucket_of(ns, *MODEL_BUCKETS[1:])] += np.uint64(1)
        data += block.tobytes()
    return data


def reading(path: Path, at_s: float, data: bytes) -> Reading:
    path.write_bytes(data)
    return Reading(at_s, dataclasses.replace(stats.read(path), is_alive=True))


def drawn(earlier: Reading, later: Reading, width: int = 80, height: int | None = None) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(screen(earlier, later, width, height))
    return file.getvalue()


def row(text: str, name: str) -> list[str]:
    return next(cells for cells in map(str.split, text.splitlines()) if cells[:1] == [name])


BEFORE = [
    Thread(IO, 0, 100, requests_refused=1000, requests_overloaded=1000, bytes_in=10**9),
    Thread(WORKER, 0, 101, requests_ok=5000, runs=5000).of_model(0, ok=5000, runs=5000)
    .timed(0, "total", *[9_000_000] * 50),
    Thread(WORKER, 1, 0),
]  # fmt: skip


def after() -> list[Thread]:
    """Two seconds later."""
    io_thread = Thread(
        IO, 0, 100, requests_refused=1060, requests_overloaded=1040, requests_late=20,
        requests_error=6, requests_bad=6, requests_gone=1, bytes_in=10**9 + 2 * 3 * 2**20,
        bytes_out=2**10, connections_accepted=50, in_flight=7, connections_open=1234, regions=2,
        region_bytes=3 * 2**19,
    ).of_model(0, queued=5300, refused=60).of_model(1, queued=40)  # fmt: skip
    worker = Thread(WORKER, 0, 101, requests_ok=5200, runs=5100, batches=50, runs_wide=25)
    worker.of_model(0, ok=5200, rows=800, runs=5100, preprocess_ns=10**8, send_ns=10**8)
    # 200 requests, two in a batch, of which each has the Run's 10 ms.
    worker.timed(0, "infer", *[10_000_000] * 200).timed(0, "queue", *[30_000_000] * 200)
    worker.timed(0, "total", *[9_000_000] * 50, *[40_000_000] * 198, *[400_000_000] * 2)
    inline = Thread(WORKER, 1, 0, requests_ok=40, runs=40, bytes_out=2**10).of_model(1, runs=40)
    inline.of_model(1, ok=40, rows=40).timed(1, "infer", *[20_000] * 40)
    return [io_thread, worker, inline]


@pytest.fixture
def two(tmp_path: Path) -> tuple[Reading, Reading]:
    models = ["large", "small"]
    return (
        reading(tmp_path / "stats", 100.0, build(models, BEFORE)),
        reading(tmp_path / "stats", 102.0, build(models, after())),
    )


def test_rates_and_percentiles_are_of_the_interval(two: tuple[Reading, Reading]) -> None:
    text = drawn(*two)
    assert "Lumen on port 8000, pid 42, ready, up " in text
    assert "; 2.0 s\n" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[1:5] == [
        "requests/s 120 ok 3.0 error 30 shed 0.5 client_gone",
        "refused/s 20 overloaded 10 deadline 3.0 bad_request",
        # 5300 + 40 came to the workers, of which 5200 + 40 have left; 200 waited for 30 ms in 2 s.
        "now 7 in flight 100 pending 3.0 queued 1,234 connections 25 new/s",
        "bytes/s 3.0 MiB in 1.0 KiB out 2 memory regions of 1.5 MiB",
    ]
    # The 50 answers of 9 ms were there before.
    assert row(text, "total") == ["total", "100", *row(text, "total")[2:]]
    mean, p50, p99, p999 = (float(cell.replace(",", "")) for cell in row(text, "total")[2:])
    assert mean == pytest.approx(43_600, rel=0.01)
    assert (p50, p99, p999) == pytest.approx((40_000, 40_000, 400_000), rel=0.01)
    assert row(text, "infer")[1:2] + row(text, "receive")[1:] == ["120", "0", *["-"] * 4]
    large, small = row(text, "large"), row(text, "small")
    assert large[:4] == ["large", "100", "30", "400"]
    assert small == ["small", "20", "0", "20", "-", "-", "100%"]
    assert large[-1] == "0%"
    # Half of 200 x 10 ms, since two shared a Run, and half of 100 ms and of 100 ms; in 2 s.
    assert lines[-2:] == [
        "workers 28% busy of 2 70 Runs/s 36% batched 18% wide",
        "w0 55% io0 0%",
    ]


def test_what_did_not_move(two: tuple[Reading, Reading]) -> None:
    earlier = dataclasses.replace(two[1], at_s=101.0)
    text = drawn(earlier, two[1])
    assert "0 ok  0 error  0 shed  0 client_gone\nrefused/s   0 for any reason\n" in text
    assert row(text, "total") == ["total", "0", *["-"] * 4]
    assert row(text, "large") == ["large", "0", "0", "0", "-", "-", "-"]
    assert "100 pending" in text
    assert row(text, "workers")[1:5] == ["0%", "busy", "of", "2"]
    same_moment = drawn(two[1], two[1])
    assert row(same_moment, "total") == row(text, "total")


@pytest.mark.parametrize(
    ("width", "stage", "model"),
    [
        (40, "stage, µs p50 p99", "model ok/s p50 µs p99 µs"),
        (60, "stage, µs /s p50 p99 p99.9", "model ok/s errors/s p50 µs p99 µs inline"),
        (80, "stage, µs /s mean p50 p99 p99.9", "model ok/s errors/s rows/s p50 µs p99 µs inline"),
        (120, "stage, µs /s mean p50 p99 p99.9", "model ok/s errors/s rows/s p50 µs p99 µs inline"),
    ],
)
def test_widths(two: tuple[Reading, Reading], width: int, stage: str, model: str) -> None:
    text = drawn(*two, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert {stage, model} <= {" ".join(line.split()) for line in lines}
    tables = [line for line in lines if line.split()[:1] and not line[0].isupper()]
    if width >= 80:
        assert not [line for line in tables if "…" in line]
    for name in ("preprocess", "large"):
        assert row(text, name)


def test_several_nodes_have_a_line_each(tmp_path: Path) -> None:
    def threads(by: int) -> list[Thread]:
        helped = Thread(WORKER, 1, 201, 1, requests_ok=30 * by, requests_stolen=4 * by)
        return [
            Thread(IO, 0, 100, 0, in_flight=5),
            Thread(IO, 1, 101, 1, in_flight=2),
            Thread(WORKER, 0, 200, 0, requests_ok=20 * by),
            helped.of_model(0, ok=30 * by).timed(0, "infer", *([500_000_000] * (by - 1))),
        ]

    earlier = reading(tmp_path / "stats", 1, build(["m"], threads(1)))
    later = reading(tmp_path / "stats", 2, build(["m"], threads(2)))
    lines = drawn(earlier, later).splitlines()
    first, second = (next(line for line in lines if line.startswith(f"node {n}")) for n in (0, 1))
    assert " ".join(first.split()[2:]) == "0% busy of 1 20 ok/s 5 in flight 0 helped/s"
    assert " ".join(second.split()[2:]) == "50% busy of 1 30 ok/s 2 in flight 4.0 helped/s"
    alone = reading(tmp_path / "stats", 3, build(["m"], threads(2)[::2]))
    assert "node 0" not in drawn(alone, alone)


def test_upstreams_have_a_line(tmp_path: Path) -> None:
    def threads(by: int) -> list[Thread]:
        words = {"upstream_ok": 300, "upstream_failed": 6, "upstream_gone": 2}
        words |= {"upstream_retries": 8, "upstream_ejections": 1}
        counted = {name: count * by for name, count in words.items()}
        gauges = {"upstream_in_flight": 5, "upstream_connections": 1200}
        return [Thread(IO, 0, 100, upstream_dials=1, **counted, **gauges)]

    earlier = reading(tmp_path / "stats", 1, build(["m"], threads(1)))
    later = reading(tmp_path / "stats", 3, build(["m"], threads(2)))
    line = next(line for line in drawn(earlier, later, 120).splitlines() if "upstreams" in line)
    assert " ".join(line.split()) == (
        "upstreams 5 in flight 150 ok/s 3.0 failed/s 1.0 gone/s 4.0 retry/s 0.5 ejection/s "
        "1,200 connections"
    )
    none = reading(tmp_path / "stats", 4, build(["m"], [Thread(IO, 0, 100, upstream_dials=1)]))
    busy = [Thread(IO, 0, 100, upstream_dials=1, upstream_fallen=4, upstream_spills=2)]
    some = reading(tmp_path / "stats", 5, build(["m"], busy))
    line = next(line for line in drawn(none, some, 120).splitlines() if "upstreams" in line)
    assert "4.0 fallen/s" in line
    assert "2.0 spill/s" in line
    alone = reading(tmp_path / "stats", 4, build(["m"], [Thread(IO, 0, 100)]))
    assert "upstreams" not in drawn(alone, alone)


def test_more_than_a_screen_holds(tmp_path: Path) -> None:
    """The busiest models stay, and at least a line about the workers."""
    models = [f"m{index}" for index in range(30)]

    def threads(by: int) -> list[Thread]:
        workers = [Thread(WORKER, w, 200 + w) for w in range(100)]
        for index in range(30):
            workers[0].of_model(index, ok=index * by)
        return [Thread(IO, 0, 100), *workers]

    earlier = reading(tmp_path / "stats", 1, build(models, threads(1)))
    later = reading(tmp_path / "stats", 2, build(models, threads(4)))
    text = drawn(earlier, later, 80, 24)
    assert len(text.splitlines()) <= 24
    assert row(text, "m29")[1] == "87"
    assert row(text, "m28")[1] == "84"
    assert "+ 28 more" in text
    assert "busy of 100" in text
    assert "w1     0%" in text
    everything = drawn(earlier, later, 80)
    assert row(everything, "m0")
    assert "w99" in everything
    # A screen that is too low ends above the workers' title.
    assert "+ 28 more" in drawn(earlier, later, 80, 5)


def test_what_each_expert_answered(tmp_path: Path) -> None:
    earlier, later = (
        reading(
            tmp_path / "stats",
            second,
            build(
                ["routed", "light"],
                [Thread(WORKER, 0, 1).of_model(0, ok=9 * second, expert_0=4 * second)],
                experts=struct.pack("<2I", 2, 0),
            ),
        )
        for second in (1, 2)
    )
    text = drawn(earlier, later)
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert row(text, "routed")[1] == "9.0"
    assert row(text, "routed→light") == ["routed→light", "4.0", "0", "0", "-", "-", "-"]
    assert names.index("routed→light") == names.index("routed") + 1


def test_a_server_that_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: tuple[Reading, Reading]
) -> None:
    path = tmp_path / "stats"
    again = reading(path, 103, build(["large", "small"], BEFORE, START_NS + 1))
    with pytest.raises(StatsError, match="restarted"):
        drawn(two[1], again)
    console = Console(file=io.StringIO(), width=80, height=24)
    snapshots = {"now": again.snapshot}
    monkeypatch.setattr(stats, "read", lambda _path: snapshots["now"])

    def shown(earlier: Reading | None) -> tuple[str, Reading | None]:
        picture, base = top._next(path, earlier, console)
        with console.capture() as capture:
            console.print(picture)
        return " ".join(capture.get().split()), base

    said, base = shown(two[1])
    assert "was restarted" in said
    assert base is not None
    assert base.snapshot is again.snapshot
    assert "requests/s 0 ok" in shown(base)[0]
    # It is killed, and comes back.
    snapshots["now"] = dataclasses.replace(again.snapshot, is_alive=False)
    said, base = shown(base)
    assert "No server with port 8000 runs here: process 42 was killed. Waiting" in said
    assert base is None
    snapshots["now"] = again.snapshot
    said, base = shown(None)
    assert (said, base is not None) == ("A server with port 8000 runs. q ends.", True)


def test_a_file_with_other_figures(tmp_path: Path) -> None:
    """A word that this command knows and the file has not counts as 0."""
    earlier = reading(tmp_path / "stats", 1, build_other())
    text = drawn(earlier, dataclasses.replace(earlier, at_s=2.0))
    assert row(text, "digits") == ["digits", "0", "0", "0", "-", "-", "-"]
    assert row(text, "w0") == ["w0", "0%", "w1", "0%"]


def test_a_hanging_model_is_told(tmp_path: Path) -> None:
    hangs = build(["m"], [Thread(IO, 0, 1, worker_hangs=1)])
    one = reading(tmp_path / "stats", 1, hangs)
    assert "ready, A MODEL HANGS, up" in drawn(one, one)


def test_once_prints_an_interval(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    two: tuple[Reading, Reading],
) -> None:
    """Without a terminal as with --once, in lines of a pipe's width."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    for options in ([], ["--once"]):
        snapshots = iter([two[0].snapshot, two[1].snapshot])
        monkeypatch.setattr(stats, "read", lambda _path, of=snapshots: next(of))
        assert main(["top", "--interval", "0.25", *options]) == 0
        out, err = capsys.readouterr()
        assert (row(out, "small")[-1], "q ends" in out, err) == ("100%", False, "")
    assert slept == [0.25, 0.25]
    dead = dataclasses.replace(two[1].snapshot, is_alive=False)
    snapshots = iter([two[0].snapshot, dead])
    monkeypatch.setattr(stats, "read", lambda _path: next(snapshots))
    assert main(["top", "--once"]) == 1
    assert "No server with port 8000 runs here" in capsys.readouterr().err


def test_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--port", "1"]) == 1
    assert "no server with this port runs here" in capsys.readouterr().err
    for wrong, said in (
        ("0.01", "expected at least 0.1 seconds, found '0.01'"),
        ("x", "found 'x'"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["top", "--interval", wrong])
        assert caught.value.code == 2
        assert said in capsys.readouterr().err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    ours, its = os.openpty()
    with os.fdopen(its, "r") as keyboard, os.fdopen(ours, "wb", closefd=False):
        monkeypatch.setattr(sys, "stdin", keyboard)
        yield ours, keyboard.fileno()
    os.close(ours)


def test_the_keys(terminal: tuple[int, int]) -> None:
    ours, its = terminal
    before = termios.tcgetattr(its)
    with top._keyboard() as is_ended:
        assert not is_ended(0.01)
        os.write(ours, b"\x1b[A")
        assert not is_ended(0.01)
        os.write(ours, b"q")
        assert is_ended(60.0)
        os.write(ours, b"xQ")
        assert is_ended(60.0)
        assert termios.tcgetattr(its) != before
    assert termios.tcgetattr(its) == before


def test_without_a_keyboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with top._keyboard() as is_ended:
        assert not is_ended(0.0)
