"""The figures behind `lumen dashboard`: telemetry files, good and broken, and what is made of them.

The pages themselves are in tests/e2e/operate/test_e2e_dashboard.py.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import perfstat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen_uring.cli import main, make_parser
from lumen_uring.dashboard import charts, compare, figures, runs
from lumen_uring.dashboard import trace as traces
from lumen_uring.dashboard.distribution import Distribution
from lumen_uring.dashboard.runs import Run
from lumen_uring.dashboard.trace import Trace
from lumen_uring.errors import LumenError
from lumen_uring.loadgen import figures as bench_figures
from lumen_uring.loadgen import folder as bench_folder
from lumen_uring.ring.histogram import Histogram, bucket_of
from lumen_uring.ring.load import LoadResult

ROOT = Path(__file__).resolve().parents[1]
HEADER = (
    "id,model,worker,queue_type,allocator,started_ns,bytes,rows,batch_rows,receive_ns,queue_ns,"
    "preprocess_ns,infer_ns,send_ns,total_ns,status,width,expert"
)
MS = 1_000_000


def row(**given: object) -> str:
    """A line of a telemetry file: by default a request of 10 ms, of which 4 in the queue."""
    cells: dict[str, object] = {
        "id": 0,
        "model": "m",
        "worker": 0,
        "queue_type": "mpmc",
        "allocator": "lumen_arena",
        "started_ns": 5_000 * MS,
        "bytes": 256,
        "rows": 1,
        "batch_rows": 1,
        "receive_ns": 1 * MS,
        "queue_ns": 4 * MS,
        "preprocess_ns": 1 * MS,
        "infer_ns": 3 * MS,
        "send_ns": 1 * MS,
        "total_ns": 10 * MS,
        "status": 0,
        "width": 1,
        "expert": "",
    }
    return ",".join(str(value) for value in {**cells, **given}.values())


def file(tmp_path: Path, *lines: str, end: str = "\n") -> Path:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + end)
    return path


def read(path: Path) -> tuple[Trace | None, list[str]]:
    found, findings = runs.read_file(path)
    assert found is None or isinstance(found, Trace)
    return found, [str(finding) for finding in findings]


def good(tmp_path: Path, *lines: str) -> Trace:
    found, findings = read(file(tmp_path, HEADER, *lines))
    assert findings == []
    assert found is not None
    return found


# ---- telemetry files ----


def test_the_columns_are_those_that_the_server_writes() -> None:
    source = (ROOT / "c" / "src" / "work" / "telemetry.c").read_text()
    assert HEADER in source.replace('"\n    "', "")
    assert {*traces.NUMBERS, *traces.TEXTS, *traces.UNUSED} == set(HEADER.split(","))


def test_a_good_file(tmp_path: Path) -> None:
    trace = good(tmp_path, row(), row(status=5, worker=1), row(model="other"))
    assert (len(trace), len(trace.answered())) == (3, 2)
    assert trace.texts["model"].tolist() == ["m", "m", "other"]
    assert trace.times("queue").values_us.tolist() == [4000.0] * 3
    assert trace.ends_s().tolist() == [0.01] * 3


NUMBER = "expected a whole number of 0..86400000000000"
BROKEN = [
    # What the file holds below its header, the rows that are left, what is said.
    ([row(), row()[:40]], 1,
     "t.csv line 3: expected a whole line, found its beginning; it is left out."),
    ([row(), "1,2,3", row(), "4,5,6"], 2,
     "t.csv lines 3 and 5: expected 18 cells, found 3; left out."),
    ([row(), row(total_ns="ten")], 1,
     f"t.csv line 3, column total_ns: {NUMBER}, found 'ten'; left out."),
    ([row(queue_ns=-1), row()], 1,
     f"t.csv line 2, column queue_ns: {NUMBER}, found '-1'; left out."),
    ([row(), row(infer_ns="1.5"), row(infer_ns="9" * 40), row(infer_ns="\0")], 1,
     f"t.csv lines 3, 4 and 5, column infer_ns: {NUMBER}, found '1.5'; left out."),
    ([row(), row(status=256)], 1,
     "t.csv line 3, column status: expected a whole number of 0..255, found '256'; left out."),
    ([row(), HEADER, row()], 2, None),  # files that were joined
    ([row(), "", row()], 2, None),
    ([row(started_ns=9 * 10**15), row(started_ns=10**9), row(started_ns=2 * 10**9)], 2,
     "t.csv: expected rows of one run of the machine, found a clock that goes back; the 2 rows "
     "after the last restart are shown."),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "left", "said"), BROKEN)
def test_a_broken_line_is_left_out(
    tmp_path: Path, lines: list[str], left: int, said: str | None
) -> None:
    is_cut = said is not None and "its beginning" in said
    trace, findings = read(file(tmp_path, HEADER, *lines, end="" if is_cut else "\n"))
    assert findings == ([] if said is None else [said])
    assert trace is not None
    assert len(trace) == left


def without(*columns: str) -> list[str]:
    names = HEADER.split(",")
    kept = [at for at, name in enumerate(names) if name not in columns]
    lines = [HEADER, row(), row(status=5)]
    return [",".join(line.split(",")[at] for at in kept) for line in lines]


UNREADABLE = [
    ([], "t.csv: expected a line of names, then rows, found an empty file; it is left out."),
    ([HEADER], "t.csv: expected rows below the names, found none; it is left out."),
    ([row(), row()], "t.csv: expected telemetry, or a histogram.csv"),  # never by order alone
    (without("total_ns"), "t.csv line 1: expected a column total_ns, found only "),
    ([HEADER + ",status", row() + ",0"],
     "t.csv line 1: expected each column once, found status twice"),
    ([HEADER, row(total_ns="x")], "t.csv: expected rows with numbers, found none"),
    (["\0\x01\x02 total_ns"],
     "t.csv line 1: expected the names of columns, such as total_ns, found "),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "said"), UNREADABLE)
def test_a_file_that_tells_nothing(tmp_path: Path, lines: list[str], said: str) -> None:
    trace, findings = read(file(tmp_path, *lines, end="\n" if lines else ""))
    assert trace is None
    assert findings[-1].startswith(said), findings
    assert "left out" in findings[-1]


def test_a_column_that_is_missing_takes_only_its_charts(tmp_path: Path) -> None:
    trace, findings = read(file(tmp_path, *without("queue_ns")))
    assert findings == [
        "t.csv line 1: expected the column queue_ns, found none of that name; charts that need it "
        "are left out."
    ]
    assert trace is not None
    assert trace.times("total").count == 2
    with pytest.raises(figures.MissingColumns, match="This chart needs the file's column queue_ns"):
        figures.timeline(trace)
    with pytest.raises(figures.MissingColumns, match="queue_ns"):
        figures.residency(trace)
    # Without a status an error cannot be told from an answer, which is said.
    trace, findings = read(file(tmp_path, *without("status")))
    assert "and each request counts as answered" in findings[0]
    assert trace is not None
    assert len(trace.answered()) == 2


def test_another_version_of_the_file(tmp_path: Path) -> None:
    trace, findings = read(file(tmp_path, HEADER + ",device", row() + ",gpu"))
    assert trace is not None
    assert findings == [
        "t.csv line 1: expected the columns that this version knows, found also 'device'; these "
        "are not shown."
    ]
    older = without("width", "batch_rows")
    trace, findings = read(file(tmp_path, *older))
    assert trace is not None
    with pytest.raises(figures.MissingColumns, match="batch_rows"):
        figures.workers(trace)


@given(data=st.binary(max_size=400), at=st.integers(0, 600))
def test_no_file_is_too_broken(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int
) -> None:
    """Whatever stands in a good file: what is read is in range, or the file is left out."""
    path = tmp_path_factory.mktemp("any") / "t.csv"
    whole = "\n".join([HEADER, *[row()] * 4]).encode() + b"\n"
    path.write_bytes(whole[:at] + data + whole[at:])
    found, findings = runs.read_file(path)
    assert found is not None or findings
    if isinstance(found, Trace):
        for name, column in found.numbers.items():
            assert (column >= 0).all(), name
            assert (column <= traces.NUMBERS[name]).all(), name


# ---- other files ----

BENCH: dict[str, Any] = {
    "format": bench_folder.FORMAT,
    "requests": 500,
    "errors": 0,
    "seconds": 10.0,
    "throughput_rps": 50.0,
    "latency_us": {"p50": 1000.0, "p9999": None},
    "load": {"model": "m", "connections": 4},
    "generator": {"cpu": "Example 9000", "cores": 2},
}
CELL: dict[str, Any] = {
    "workload": "mlp",
    "queue": "mpmc",
    "allocator": "standard",
    "loop": "closed",
    "connections": 4,
    "throughput_rps": [90.0, None, 110.0],
    "latency_us": {"mean": 10.0, "p50": 9.0, "p99": 20.0, "p999": 30.0},
    "queue_us": None,
    "requests": 1000,
    "errors": 0,
}


def test_a_folder_of_a_run_is_one_run(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    (one / "bench.json").write_bytes(orjson.dumps(BENCH))
    (one / "histogram.csv").write_text("latency_us,count\n1000.5,490\n2000.5,10\nx,1\n")
    (one / "progress.csv").write_text("seconds,requests,errors\n5,200,0\n10,500,0\n")
    file(one, HEADER, row())
    (tmp_path / "t.csv").write_text("\n".join([HEADER, row()]) + "\n")
    (tmp_path / "two").mkdir()
    file(tmp_path / "two", HEADER, row())
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    files, findings = runs.find([tmp_path, tmp_path / "one", tmp_path / "none"])
    assert len(files) == 7
    library = runs.gather({path: runs.read_file(path) for path in files}, findings)
    assert set(library.runs) == {"one", f"{tmp_path.name}/t", "two/t"}
    run = library.runs["one"]
    assert run.bench is not None
    assert run.latency is not None
    assert run.course is not None
    assert run.trace is not None
    assert run.latency.count == 500
    assert run.course.requests.tolist() == [200, 500]
    said = [str(finding) for finding in library.findings]
    assert (
        said[0] == f"{tmp_path}/none: expected a file or a folder, found nothing; it is left out."
    )
    assert "histogram.csv line 4: expected 2 numbers, found 'x,1'; left out." in said
    assert any(text.startswith("notes.csv: expected telemetry, or ") for text in said)


JSONS = [
    ('{"a": 1', "f.json line 1 column 8: expected JSON, found "),
    ('{"a": 1}', "f.json: expected telemetry, or a histogram.csv"),
    (json.dumps({**BENCH, "format": "lumen bench 9"}),
     "f.json: expected a format that this version knows, found 'lumen bench 9'"),
    (json.dumps({**BENCH, "requests": "many"}),
     "f.json, requests: expected a valid integer, found 'many'"),
    (json.dumps({"format": bench_folder.FORMAT}),
     "f.json, requests: expected a value, found none"),
    (json.dumps({**BENCH, "latency_us": {"p50": []}}),
     "f.json, latency_us.p50: expected a valid number, found '[]'"),
    (json.dumps({"cells": [{**CELL, "loop": "half"}]}),
     "f.json, cells[0], loop: expected 'closed' or 'open', found 'half'"),
    (json.dumps({"format": perfstat.FORMAT, "states": 3}),
     "f.json: expected states and a table, found none"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), JSONS)
def test_broken_json(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(text)
    found, findings = runs.read_file(path)
    assert found is None
    assert str(findings[0]).startswith(said), str(findings[0])


def test_the_folder_that_bench_writes(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    bench_folder.prepare(folder)
    counts = np.zeros(1728, np.uint64)
    counts[bucket_of(1_000_000, 6, 4)] = 300
    times = Histogram(counts, 6, 4)
    result = LoadResult(300, 1, {0: 300}, 0, 0, 2.0, 0.1, MS, MS, 1e6, 0, 0, times)
    words = ["bench", "--model", "m", "--connections", "4", "--out", str(folder)]
    arguments = make_parser().parse_args(words)
    shown = bench_figures.as_json(result, None)
    progress = [(False, 0, 0, 0.0), (True, 100, 0, 0.5), (True, 200, 1, 1.0)]
    bench_folder.write(folder, arguments, result, shown, progress)
    run = runs.gather({path: runs.read_file(path) for path in folder.iterdir()}).runs["a"]
    assert run.bench is not None
    assert run.latency is not None
    assert run.course is not None
    assert (run.bench.requests, run.bench.load["connections"]) == (300, 4)
    assert run.latency.percentile_us(50) == pytest.approx(1000, rel=0.01)
    assert run.course.seconds.tolist() == [0.5, 1.0, 2.0]
    assert run.course.errors.tolist() == [0, 1, 1]
    # A folder holds one run; a second one would be mixed with it.
    with pytest.raises(LumenError, match="holds a run already: name another folder"):
        bench_folder.prepare(folder)
    with pytest.raises(LumenError, match="cannot be made: Not a directory"):
        bench_folder.prepare(folder / bench_folder.FIGURES / "x")


def test_courses_that_go_back_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("seconds,requests,errors\n1,10,0\n2,5,0\n")
    found, findings = runs.read_file(path)
    assert found is None
    assert "progress.csv line 3: expected numbers that grow" in str(findings[0])


def test_a_good_cell_beside_a_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"cells": [CELL, {"workload": "x"}, {**CELL, "loop": "open"}]}))
    found, findings = runs.read_file(path)
    assert isinstance(found, runs.Matrix)
    assert str(findings[0]).startswith(
        "results.json, cells[1], queue: expected a value, found none"
    )
    (mode,) = figures.modes_of_matrix("results", found)
    assert (mode.throughput, mode.throughput_low, mode.throughput_high) == (100, 90, 110)
    assert (mode.latency_us["p99.9"], math.isnan(mode.queue_us["p50"])) == (30, True)
    spec = charts.modes_throughput([mode])
    assert spec["data"]["values"][0]["mode"] == "mpmc, standard"
    assert len(charts.modes_latency([mode])["data"]["values"]) == 3
    assert charts.modes_latency([mode], queue=True)["data"]["values"] == []


def test_a_perfstat_report_with_and_without_counters(tmp_path: Path) -> None:
    from test_perfstat import state

    states = {"standard": state("counters.csv", 100), "overloaded": state("overloaded.csv", 150)}
    path = tmp_path / "perfstat.json"
    path.write_text(json.dumps(perfstat.document({}, "m", [], states)))
    found, findings = runs.read_file(path)
    assert findings == []
    assert isinstance(found, runs.Report)
    values = charts.perfstat(found.states, found.table)["data"]["values"]
    ratios = {value["figure"]: value["ratio"] for value in values}
    assert ratios["client: throughput"] == 1.5
    assert ratios["workers: IPC"] == pytest.approx(0.8)
    assert ratios["workers: LLC loads missed"] == pytest.approx(1.25)
    assert "I/O threads: LLC-loads" not in ratios  # one of the states has none


# ---- figures ----


def test_percentiles_are_by_nearest_rank() -> None:
    thousand = Distribution.of(np.arange(1000, 0, -1) * 1.0)
    assert [thousand.percentile_us(p) for p in (50, 90, 99, 99.9)] == [500, 900, 990, 999]
    # One value beyond it is the least that a percentile needs.
    assert math.isnan(thousand.percentile_us(99.99))
    assert math.isnan(Distribution.of(np.array([])).percentile_us(50))
    same = Distribution(np.array([1.0, 5.0]), np.array([990, 10]))
    assert [same.percentile_us(p) for p in (50, 99, 99.9)] == [1, 1, 5]
    assert same.mean_us() == pytest.approx(1.04)


def test_the_curve_ends_at_the_slowest_request() -> None:
    curve = Distribution.of(np.arange(1, 10_001) * 1.0).curve()
    assert curve[0] == (2.0, pytest.approx(5000, abs=300))
    assert curve[-1] == (10_000.0, 10_000.0)
    at = dict(curve)
    assert at[100.0] == 9900
    assert at[1000.0] == 9990
    assert [y for _, y in curve] == sorted(y for _, y in curve)
    assert Distribution.of(np.array([])).curve() == []
    assert Distribution.of(np.array([7.0])).curve() == [(1.0, 7.0)]


def test_modes_of_a_trace(tmp_path: Path) -> None:
    lines = [row(started_ns=index * 100 * MS) for index in range(11)]
    lines += [row(queue_type="inline", started_ns=500 * MS, queue_ns=0)]
    lines += [row(status=5, started_ns=0)]
    found = figures.modes_of_run(Run("r", trace=good(tmp_path, *lines)))
    by_mode = {mode.mode: mode for mode in found}
    assert set(by_mode) == {"mpmc, lumen_arena", "inline, lumen_arena"}
    mpmc = by_mode["mpmc, lumen_arena"]
    assert (mpmc.requests, mpmc.errors, mpmc.latency_us["mean"]) == (12, 1, 10_000)
    assert mpmc.throughput == pytest.approx(11.0)
    assert by_mode["inline, lumen_arena"].queue_us["mean"] == 0


def test_residency_accounts_for_every_answer(tmp_path: Path) -> None:
    waits = [0, 50, 1_000, 2_000, 900_000, 10**9]
    lines = [row(queue_ns=wait) for wait in waits]
    bins = figures.residency(good(tmp_path, *lines, row(status=5)))
    assert sum(share for _, _, share in bins) == pytest.approx(1)
    assert bins[0][0] == pytest.approx(0.1)
    assert bins[0][2] == pytest.approx(2 / 6)  # nothing, and 50 ns
    for wait in waits[2:]:
        assert any(low <= wait / 1e3 * (1 + 1e-9) and wait / 1e3 < high for low, high, _ in bins)


def test_bands_say_where_slow_requests_spend_their_time(tmp_path: Path) -> None:
    fast = [row()] * 990
    slow = [row(queue_ns=94 * MS, total_ns=100 * MS)] * 10
    found = {
        name: (count, times) for name, count, times in figures.bands(good(tmp_path, *fast, *slow))
    }
    assert [count for count, _ in found.values()] == [500, 400, 90, 9, 1]
    assert found["fastest half"][1]["queue"] == 4000
    assert found["p99 to p99.9"][1]["queue"] == 94_000
    assert sum(found["fastest half"][1].values()) == 10_000


def test_the_timeline_counts_each_request_once(tmp_path: Path) -> None:
    lines = [row(started_ns=index * 10 * MS) for index in range(1000)]
    lines += [row(started_ns=5_000 * MS, status=5)] * 10
    moments = figures.timeline(good(tmp_path, *lines))
    width = moments[1].at_s - moments[0].at_s
    last = 10.0 - moments[-1].at_s
    wide = [width] * (len(moments) - 1) + [max(last, width / 10)]
    assert sum(m.answered_per_s * w for m, w in zip(moments, wide, strict=True)) == pytest.approx(
        1000
    )
    assert sum(m.errors_per_s * w for m, w in zip(moments, wide, strict=True)) == pytest.approx(10)
    assert {m.p50_us for m in moments if m.answered_per_s} == {10_000}
    # A stretch without any request is a gap in the line, not a zero.
    gap = figures.timeline(good(tmp_path, row(started_ns=0), row(started_ns=60_000 * MS)))
    assert math.isnan(gap[50].p99_us)
    values = charts.latencies(gap)["data"]["values"]
    assert values[150]["us"] is None
    json.dumps(values, allow_nan=False)


def test_the_heat_map_shows_the_busy_share(tmp_path: Path) -> None:
    # Worker 0: 5 of every 10 ms. Worker 1: two requests share each Run of 6 ms, every 10 ms.
    lines = [
        row(started_ns=index * 10 * MS, receive_ns=0, queue_ns=5 * MS) for index in range(1000)
    ]
    shared = {"receive_ns": 0, "queue_ns": 0, "total_ns": 6 * MS, "batch_rows": 2, "worker": 1}
    lines += [row(started_ns=index // 2 * 10 * MS, **shared) for index in range(2000)]
    found = figures.workers(good(tmp_path, *lines))
    for worker, share in ((0, 0.5), (1, 0.6)):
        busy = [b for w, begin, end, b in found if w == worker and end - begin > 0.1]
        assert len(busy) >= 40
        assert busy == pytest.approx([share] * len(busy), abs=0.03)
    assert {value["worker"] for value in charts.heat(found)["data"]["values"]} == {
        "worker 0",
        "worker 1",
    }


def test_a_stretch_of_time(tmp_path: Path) -> None:
    trace = good(tmp_path, *(row(started_ns=index * 1000 * MS) for index in range(10)))
    assert len(figures.between(trace, 2.0, 5.0)) == 3  # replies at 2.01, 3.01, 4.01 s


# ---- comparison ----


def drifting(tmp_path: Path, seed: int, factor: float, count: int = 4000) -> Run:
    """A run in which the latencies of neighbours are alike, over some 20 requests."""
    random = np.random.default_rng(seed)
    level = np.zeros(count)
    for at, step in enumerate(random.normal(0, 0.1, count)):
        level[at] = 0.95 * level[at - 1] + step
    times = (factor * 10 * MS * np.exp(level)).astype(int)
    starts = np.arange(count) * 10 * MS
    path = tmp_path / f"{seed}.csv"
    lines = [row(started_ns=at, total_ns=t) for at, t in zip(starts, times, strict=True)]
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    trace, _ = read(path)
    return Run(str(seed), trace=trace)


def test_a_difference_is_found_and_none_is_made_up(tmp_path: Path) -> None:
    a, b = drifting(tmp_path, 1, 1.0), drifting(tmp_path, 2, 1.0)
    slower = drifting(tmp_path, 3, 1.5)
    same = {one.figure: one for one in compare.compare(a, b)}
    assert list(same)[:4] == ["throughput, server", "server mean", "server p50", "server p90"]
    for figure in ("server mean", "server p50", "server p90"):
        assert same[figure].verdict() == "no difference shows", same[figure]
    found = {one.figure: one for one in compare.compare(a, slower)}
    p50 = found["server p50"]
    assert p50.low < 1.5 < p50.high
    assert p50.verdict().endswith("% more: worse")
    assert found["queue p50"].verdict() == "no difference shows"
    # The same runs and the same seed give the same intervals.
    assert compare.compare(a, slower) == compare.compare(a, slower)
    assert compare.compare(a, a)[0].ratio == 1.0
    spec = charts.forest(found.values(), "a", "slower")
    verdicts = {value["figure"]: value["verdict"] for value in spec["data"]["values"]}
    assert (verdicts["server p50"], verdicts["queue p50"]) == ("worse", "no difference shows")


def test_blocks_give_wider_intervals_than_single_requests(tmp_path: Path) -> None:
    """Neighbours are alike: drawing them one by one pretends to know more than there is."""
    a, b = drifting(tmp_path, 1, 1.0), drifting(tmp_path, 2, 1.0)
    blocks = {one.figure: one for one in compare.compare(a, b)}["server p50"]
    single = [
        Run(run.name, latency=run.trace.times("total")) for run in (a, b) if run.trace is not None
    ]
    alone = {one.figure: one for one in compare.compare(*single)}["round trip p50"]
    assert blocks.high - blocks.low > 2 * (alone.high - alone.low)


def test_the_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """40 pairs of runs of one server, a seed each: 95 % intervals of the median hold 1."""
    held = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        pair = [Run("r", latency=Distribution.of(random.lognormal(5, 0.1, 1000))) for _ in range(2)]
        median = next(one for one in compare.compare(*pair, seed) if one.figure == "round trip p50")
        held += median.low <= 1 <= median.high
    assert 34 <= held <= 40


def test_too_few_requests_are_not_compared(tmp_path: Path) -> None:
    few = Run("few", latency=Distribution.of(np.arange(1, compare.REQUESTS_MIN)))
    assert compare.compare(few, few) == []
    lines = [row(started_ns=index * MS) for index in range(compare.REQUESTS_MIN)]
    enough = Run("enough", trace=good(tmp_path, *lines))
    names = {one.figure for one in compare.compare(enough, enough)}
    assert "server p90" in names
    assert "server p99" not in names  # two requests beyond it say nothing of how it varies


# ---- charts and the command ----


def test_percentile_axes_are_logarithmic(tmp_path: Path) -> None:
    run = Run("r", trace=good(tmp_path, *[row()] * 50), latency=Distribution.of(np.arange(9.0, 99)))
    spec = charts.percentiles(figures.curves([run]))
    x, y = spec["encoding"]["x"], spec["encoding"]["y"]
    assert (x["scale"]["type"], y["scale"]["type"]) == ("log", "log")
    assert x["axis"]["values"] == [2, 10, 100, 1000, 10_000]  # p50, p90, p99, p99.9, p99.99
    assert {value["curve"] for value in spec["data"]["values"]} == {"r: round trip", "r: server"}
    low, high = y["scale"]["domain"]
    assert low <= min(value["us"] for value in spec["data"]["values"])
    assert high >= max(value["us"] for value in spec["data"]["values"])


def test_without_streamlit_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert main(["dashboard"]) == 1
    said = (
        "lumen: lumen dashboard needs Streamlit: pip install 'lumen-uring[dashboard]' installs it."
    )
    assert capsys.readouterr().err.strip() == said


def test_the_command_starts_streamlit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    monkeypatch.setattr("os.execv", lambda _program, words: started.append(words))
    assert main(["dashboard", str(tmp_path / "none")]) == 1
    assert "none does not exist: expected a file or a folder of a run" in capsys.readouterr().err
    main(["dashboard", "--listen", "8600", str(tmp_path)])
    (words,) = started
    assert Path(words[4]).is_file()
    assert {"--server.address=127.0.0.1", "--server.port=8600"} <= set(words)
    assert "--browser.gatherUsageStats=false" in words
    assert words[words.index("--") :] == ["--", "--", str(tmp_path)]
