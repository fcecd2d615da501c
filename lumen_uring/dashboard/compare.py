"""Compares two runs: how many times the figures of one are those of the other, with intervals.

Called by pages.py and the tests. The intervals are percentile bootstraps. Requests that follow each
other are not independent (they wait in one queue), so a telemetry file is cut into blocks of
successive requests, and whole blocks are drawn. A histogram has lost the order: there single
requests are drawn, which makes its intervals too narrow, and the page says so.

Source:
    B. Efron, "Better bootstrap confidence intervals", 1987 (the percentile interval);
    H. Künsch, "The jackknife and the bootstrap for general stationary observations", 1989 (blocks)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from lumen_uring.dashboard.distribution import Counts, Distribution, Floats
from lumen_uring.dashboard.runs import Course, Run
from lumen_uring.dashboard.trace import Trace

RESAMPLES: Final = 1000
LEVEL: Final = 0.95
REQUESTS_MIN: Final = 200
_BLOCKS_MAX: Final = 40
_BLOCK_MIN: Final = 10  # requests
_BEYOND_MIN: Final = 10  # requests beyond a percentile, or its interval means nothing
_PERCENTS: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
_STEP: Final = math.log(1.005)  # latencies are counted in buckets of half a per cent
_LEAST_US: Final = 0.01


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of both runs: b divided by a, and the interval that holds the ratio."""

    figure: str
    unit: str
    a: float
    b: float
    ratio: float
    low: float
    high: float
    more_is_better: bool

    def verdict(self) -> str:
        """What the interval says of b, in words."""
        if self.low <= 1.0 <= self.high:
            return "no difference shows"
        amount = f"{abs(self.ratio - 1):.1%}"
        words = f"{amount} more" if self.ratio > 1 else f"{amount} less"
        is_better = (self.ratio > 1) == self.more_is_better
        return f"{words}: {'better' if is_better else 'worse'}"


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A figure, and what it was in each resample."""

    value: float
    values: Floats


def compare(a: Run, b: Run, seed: int = 1) -> list[Compared]:
    """Compares two runs by all figures that both have.

    Args:
        a: the run that is compared with.
        b: the other one.
        seed: of the bootstrap.

    Returns:
        A row per figure; none for a run of fewer than 200 requests.
    """
    random = np.random.default_rng(seed)
    mine, theirs = _figures(a, random), _figures(b, random)
    found = []
    for figure in mine.keys() & theirs.keys():
        one, other = mine[figure], theirs[figure]
        if not (one.value > 0 and other.value > 0):
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = other.values / one.values
        ratios = ratios[np.isfinite(ratios)]
        if len(ratios) < RESAMPLES // 2:
            continue
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        is_rate = figure.startswith("throughput")
        unit = "requests/s" if is_rate else "µs"
        row = (one.value, other.value, other.value / one.value, float(low), float(high))
        found.append(Compared(figure, unit, *row, is_rate))
    order = {figure: place for place, figure in enumerate(mine)}
    return sorted(found, key=lambda row: order[row.figure])


def blocks_of(run: Run) -> int:
    """How many blocks of a run's telemetry are drawn from; 0 where there is none."""
    return 0 if run.trace is None else _block_count(len(run.trace.answered()))


def _block_count(requests: int) -> int:
    return min(_BLOCKS_MAX, requests // _BLOCK_MIN) if requests >= REQUESTS_MIN else 0


def _figures(run: Run, random: np.random.Generator) -> Mapping[str, _Drawn]:
    found: dict[str, _Drawn] = {}
    if run.latency is not None and run.latency.count >= REQUESTS_MIN:
        if run.course is not None:
            found |= _throughput(run.course, random)
        found |= _of_histogram(run.latency, random)
    if run.trace is not None:
        found |= _of_trace(run.trace, random)
    return found


def _throughput(course: Course, random: np.random.Generator) -> dict[str, _Drawn]:
    """Requests a second of the load, by its half seconds."""
    seconds = np.diff(course.seconds, prepend=0.0)
    answered = np.diff(course.requests, prepend=0)
    is_whole = seconds > 0.1
    seconds, answered = seconds[is_whole], answered[is_whole]
    if len(seconds) < _BLOCK_MIN:
        return {}
    times = _draws(len(seconds), random)
    rate = float(answered.sum() / seconds.sum())
    return {"throughput, generator": _Drawn(rate, (times @ answered) / (times @ seconds))}


def _of_histogram(latency: Distribution, random: np.random.Generator) -> dict[str, _Drawn]:
    buckets = _buckets(latency.values_us)
    first = int(buckets.min())
    counts = np.bincount(buckets - first, weights=latency.counts).astype(np.int64)
    drawn = random.multinomial(latency.count, counts / counts.sum(), size=RESAMPLES)
    return _percentiles("round trip", latency, drawn, first)


def _of_trace(trace: Trace, random: np.random.Generator) -> dict[str, _Drawn]:
    good = trace.answered()
    count = _block_count(len(good))
    if not count or not good.has("started_ns"):
        return {}
    ends = good.ends_s()
    order = np.argsort(ends, kind="stable")
    block = np.arange(len(order)) * count // len(order)
    times = _draws(count, random)
    cuts = ends[order][np.searchsorted(block, np.arange(1, count))]
    spans = np.diff(np.concatenate([[ends.min()], cuts, [ends.max()]]))
    sizes = np.bincount(block, minlength=count)
    rate = float(len(good) / max(1e-9, np.ptp(ends)))
    rates = (times @ sizes) / np.maximum(1e-9, times @ spans)
    found = {"throughput, server": _Drawn(rate, rates)}
    for stage, title in (("total", "server"), ("queue", "queue"), ("infer", "infer")):
        if not good.has(f"{stage}_ns"):
            continue
        values = good.numbers[f"{stage}_ns"][order] / 1e3
        buckets = _buckets(values)
        first = int(buckets.min())
        table = np.zeros((count, int(buckets.max()) - first + 1))
        np.add.at(table, (block, buckets - first), 1.0)
        drawn = np.asarray((times @ table).round(), np.int64)
        found |= _percentiles(title, Distribution.of(values), drawn, first)
    return found


def _draws(count: int, random: np.random.Generator) -> Floats:
    """How often each of `count` blocks is in each resample."""
    return random.multinomial(count, np.full(count, 1 / count), size=RESAMPLES).astype(np.float64)


def _buckets(values_us: Floats) -> Counts:
    above = np.log(np.maximum(values_us, _LEAST_US) / _LEAST_US)
    return np.asarray(np.floor(above / _STEP).astype(np.int64))


def _percentiles(title: str, exact: Distribution, drawn: Counts, first: int) -> dict[str, _Drawn]:
    """Mean and percentiles, exact, and of each resample's counts by bucket from the first."""
    middles = _LEAST_US * np.exp((first + np.arange(drawn.shape[1]) + 0.5) * _STEP)
    totals = drawn.sum(axis=1)
    running = drawn.cumsum(axis=1)
    found = {f"{title} mean": _Drawn(exact.mean_us(), (drawn @ middles) / totals)}
    for name, percent in _PERCENTS.items():
        if exact.count * (100 - percent) / 100 < _BEYOND_MIN:
            continue
        ranks = np.maximum(1, np.ceil(totals * percent / 100 - 1e-9))
        place = (running < ranks[:, None]).sum(axis=1)
        found[f"{title} {name}"] = _Drawn(exact.percentile_us(percent), middles[place])
    return found
