"""What the charts show, from the rows of a telemetry file: pure functions over arrays.

Called by pages.py and the tests. A function that needs a column which the file lacks says so with
MissingColumns. Requests that did not get their answer count as errors and in no latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lumen_uring.dashboard.distribution import Distribution, Floats
from lumen_uring.dashboard.runs import Cell, Matrix, Run
from lumen_uring.dashboard.trace import STAGES, Trace

_BINS_PER_TENTH: Final = 8  # of the residency's axis
_LEAST_US: Final = 0.1  # where that axis begins
# Requests by their place among all, from the fastest half to the slowest thousandth.
BANDS: Final = (
    ("fastest half", 0.0, 50.0),
    ("p50 to p90", 50.0, 90.0),
    ("p90 to p99", 90.0, 99.0),
    ("p99 to p99.9", 99.0, 99.9),
    ("beyond p99.9", 99.9, 100.0),
)


class MissingColumns(Exception):
    """A chart needs columns that the file lacks; the message names them."""


def need(trace: Trace, *columns: str) -> None:
    """Raises MissingColumns unless all of them are there."""
    missing = [name for name in columns if not trace.has(name)]
    if missing:
        raise MissingColumns(f"This chart needs the file's column {' and '.join(missing)}.")


# ---- modes ----


@dataclass(frozen=True, slots=True)
class ModeRow:
    """One mode under one load; latencies are round trips in µs where the generator saw them.

    `throughput_low` and `_high` are the slowest and the fastest round, where there were several.
    """

    source: str
    workload: str
    mode: str
    connections: int | None
    requests: int
    errors: int
    throughput: float
    throughput_low: float
    throughput_high: float
    latency_us: Mapping[str, float]
    queue_us: Mapping[str, float]


def spread(found: Distribution) -> dict[str, float]:
    """Mean and percentiles of a distribution by name; µs."""
    names = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}
    return {"mean": found.mean_us()} | {n: found.percentile_us(p) for n, p in names.items()}


def modes_of_run(run: Run) -> list[ModeRow]:
    """A row for each model and mode (queue and allocator) of a telemetry file.

    Args:
        run: one with a trace.
    """
    assert run.trace is not None
    trace = run.trace
    need(trace, "queue_type", "allocator", "model", "queue_ns", "started_ns")
    keys = np.char.add(np.char.add(trace.texts["queue_type"], ", "), trace.texts["allocator"])
    found = []
    for model in np.unique(trace.texts["model"]):
        for key in np.unique(keys):
            here = trace.where((trace.texts["model"] == model) & (keys == key))
            good = here.answered()
            if not len(good):
                continue
            rate = len(good) / max(1e-9, float(np.ptp(here.ends_s())))
            times = spread(good.times("total")), spread(good.times("queue"))
            errors = len(here) - len(good)
            row = (str(model), str(key), None, len(here), errors, rate, rate, rate, *times)
            found.append(ModeRow(run.name, *row))
    return found


def modes_of_matrix(name: str, matrix: Matrix) -> list[ModeRow]:
    """A row for each closed-loop cell of `make bench`."""
    return [_mode_of_cell(name, cell) for cell in matrix.cells if cell.loop == "closed"]


def _mode_of_cell(name: str, cell: Cell) -> ModeRow:
    rates = [rate for rate in cell.throughput_rps if rate is not None] or [math.nan]
    return ModeRow(
        name,
        cell.workload,
        f"{cell.queue}, {cell.allocator}",
        cell.connections,
        cell.requests,
        cell.errors,
        float(np.median(rates)),
        min(rates),
        max(rates),
        _named(cell.latency_us),
        _named(cell.queue_us),
    )


def _named(spread_us: Mapping[str, float | None] | None) -> dict[str, float]:
    names = {"mean": "mean", "p50": "p50", "p99": "p99", "p999": "p99.9"}
    given = spread_us or {}
    return {shown: given.get(name) or math.nan for name, shown in names.items()}


# ---- queue residency ----


def residency(trace: Trace) -> list[tuple[float, float, float]]:
    """How long answered requests were in the queue, on a logarithmic axis.

    Returns:
        Bins that hold requests: from and to in µs, and the share of all requests, 0..1. What is
        shorter than 0.1 µs, such as a Run by the I/O thread itself, is in the first bin.
    """
    need(trace, "queue_ns")
    waits = np.maximum(_LEAST_US, trace.answered().numbers["queue_ns"] / 1e3)
    if not len(waits):
        return []
    bins = np.floor(np.log10(waits / _LEAST_US) * _BINS_PER_TENTH + 1e-9).astype(int)
    counts = np.bincount(bins)
    edges = _LEAST_US * 10.0 ** (np.arange(len(counts) + 1) / _BINS_PER_TENTH)
    share = counts / len(waits)
    return [
        (float(edges[at]), float(edges[at + 1]), float(share[at])) for at in np.flatnonzero(counts)
    ]


def bands(trace: Trace) -> list[tuple[str, int, dict[str, float]]]:
    """Where the time of fast and of slow requests goes.

    Returns:
        For each band of total latency that holds requests: its name, how many, and the mean time in
        each stage, in µs.
    """
    need(trace, *(f"{stage}_ns" for stage in STAGES))
    good = trace.answered()
    order = np.argsort(good.numbers["total_ns"], kind="stable")
    found = []
    for name, low, high in BANDS:
        first, last = (round(len(order) * part / 100) for part in (low, high))
        rows = order[first:last]
        if len(rows):
            times = {
                stage: float(good.numbers[f"{stage}_ns"][rows].mean()) / 1e3 for stage in STAGES
            }
            found.append((name, len(rows), times))
    return found


# ---- over time ----


@dataclass(frozen=True, slots=True)
class Moment:
    """A bin of the timeline, which begins at `at_s`; latencies in µs, NaN without an answer."""

    at_s: float
    answered_per_s: float
    errors_per_s: float
    p50_us: float
    p99_us: float
    queue_p99_us: float


def bin_width_s(span_s: float, most: int = 120) -> float:
    """A width of 1, 2 or 5 times a power of ten that cuts a span into at most so many bins.

    >>> bin_width_s(20.0), bin_width_s(700.0), bin_width_s(0.0)
    (0.2, 10.0, 1e-06)
    """
    least = max(1e-6, span_s / most)
    power = 10.0 ** math.floor(math.log10(least) + 1e-9)
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= least * 0.999999)


def timeline(trace: Trace) -> list[Moment]:
    """Rates and latencies over time; a request counts when it has its reply."""
    need(trace, "started_ns", "queue_ns")
    ends = trace.ends_s()
    width = bin_width_s(float(ends.max()))
    place = (ends / width).astype(int)
    is_good = trace.numbers["status"] == 0 if trace.has("status") else np.ones(len(trace), bool)
    order = np.argsort(place, kind="stable")
    cuts = np.searchsorted(place[order], np.arange(place.max() + 2))
    found = []
    for at in range(len(cuts) - 1):
        rows = order[cuts[at] : cuts[at + 1]]
        good = rows[is_good[rows]]
        # A percentile of one request: no less honest than a gap, in a bin that has few.
        times = [
            _nearest(trace.numbers[column][good], percent)
            for column, percent in (("total_ns", 50), ("total_ns", 99), ("queue_ns", 99))
        ]
        # The last bin is as wide as what it holds.
        wide = max(min(width, float(ends.max()) - at * width), width / 10)
        rates = len(good) / wide, (len(rows) - len(good)) / wide
        found.append(Moment(at * width, *rates, *times))
    return found


def _nearest(values_ns: npt.NDArray[np.int64], percent: int) -> float:
    if not len(values_ns):
        return math.nan
    rank = max(0, math.ceil(percent / 100 * len(values_ns)) - 1)
    return float(np.partition(values_ns, rank)[rank]) / 1e3


def workers(trace: Trace) -> list[tuple[int, float, float, float]]:
    """How busy each worker was, over time: preparing inputs, running models and sending.

    Returns:
        For each worker and bin: the worker, the bin's begin and end in seconds, and the busy share,
        0..1. A Run that several requests share counts once.
    """
    columns = ("worker", "started_ns", "receive_ns", "queue_ns", "rows", "batch_rows")
    need(trace, *columns)
    numbers = trace.numbers
    ends = trace.ends_s()
    begins = ends - (numbers["total_ns"] - numbers["receive_ns"] - numbers["queue_ns"]) / 1e9
    shares = numbers["rows"] / np.maximum(1, np.maximum(numbers["rows"], numbers["batch_rows"]))
    width = bin_width_s(float(ends.max()), most=60)
    edges = np.append(np.arange(math.ceil(ends.max() / width)) * width, ends.max())
    found = []
    for worker in np.unique(numbers["worker"]):
        mine = numbers["worker"] == worker
        busy = np.diff(_busy_before(begins[mine], ends[mine], shares[mine], edges))
        found += [
            (int(worker), float(begin), float(end), float(min(1.0, max(0.0, time / (end - begin)))))
            for begin, end, time in zip(edges, edges[1:], busy, strict=False)
            if end > begin
        ]
    return found


def _busy_before(begins: Floats, ends: Floats, shares: Floats, edges: Floats) -> Floats:
    """The time spent in all intervals before each edge: what has begun less what has ended."""

    def past(moments: Floats) -> Floats:
        order = np.argsort(moments)
        ordered, weights = moments[order], shares[order]
        count = np.searchsorted(ordered, edges)
        weight = np.concatenate([[0.0], np.cumsum(weights)])
        moment = np.concatenate([[0.0], np.cumsum(weights * ordered)])
        return np.asarray(edges * weight[count] - moment[count])

    return past(begins) - past(ends)


def between(trace: Trace, begin_s: float, end_s: float) -> Trace:
    """The rows of requests that got their reply in a stretch of time, counted from the first."""
    need(trace, "started_ns")
    ends = trace.ends_s()
    return trace.where((ends >= begin_s) & (ends <= end_s))


def curves(runs: Iterable[Run]) -> list[tuple[str, float, float]]:
    """Percentile curves: the round trip as the generator saw it, and the server's time.

    Returns:
        Points of a curve's name, one of how many requests is slower, and the latency in µs.
    """
    found = []
    for run in runs:
        several = {}
        if run.latency is not None:
            several[f"{run.name}: round trip"] = run.latency
        if run.trace is not None:
            several[f"{run.name}: server"] = run.trace.answered().times("total")
        for name, distribution in several.items():
            found += [(name, x, y) for x, y in distribution.curve()]
    return found
