"""A running server's figures over an interval, as rows for charts: the live page's counterpart of
top_screen.py.

Called by pages.py and the tests. It compares two readings of the statistics file, and never opens
one itself.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import timedelta

from lumen_uring.metrics import words
from lumen_uring.metrics.top_screen import ERRORS, Reading, busy_share, is_inline, sum_ns
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.snapshot import Snapshot, delta


@dataclass(frozen=True, slots=True)
class Busy:
    """A worker: its name, and the share of the interval that it worked, 0..1."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class Now:
    """An interval of a server.

    `rates` are requests a second by outcome; `stages` and `models` rows of a table, latencies in
    µs; `queued` requests that waited on average.
    """

    title: str
    rates: dict[str, float]
    in_flight: int
    queued: float
    connections: int
    p50_us: float
    p99_us: float
    stages: list[dict[str, str | float]]
    models: list[dict[str, str | float]]
    workers: list[Busy]


def between(earlier: Reading, later: Reading) -> Now:
    """Computes an interval.

    Args:
        earlier: the reading at its begin.
        later: the reading at its end.

    Raises:
        StatsError: the readings are of two runs of the server.
    """
    change = delta(later.snapshot, earlier.snapshot)
    seconds = max(later.at_s - earlier.at_s, 1e-6)
    total = change.histograms.get("total")
    io = change.gauges.get("io", {})
    queued_ns = sum(sum_ns(of, "queue") for of in change.model_histograms.values())
    return Now(
        title=_title(change),
        rates={name.replace("_", " "): _sum(change, of) / seconds for name, of in words.OUTCOMES},
        in_flight=io.get("in_flight", 0),
        queued=queued_ns / 1e9 / seconds,
        connections=io.get("connections_open", 0),
        p50_us=_percentile(total, 50),
        p99_us=_percentile(total, 99),
        stages=_stages(change, seconds),
        models=_models(change, seconds),
        workers=_workers(change, seconds),
    )


def _title(server: Snapshot) -> str:
    up = timedelta(seconds=max(0, int(time.time() - server.start_realtime_ns / 1e9)))
    return f"Port {server.port}, process {server.pid}, {server.state}, up {up}"


def _sum(change: Snapshot, of: words.Words) -> int:
    return sum(change.counters.get(role, {}).get(word, 0) for role, word in of)


def duration(us: float) -> str:
    """A time for people; "-" where there is none.

    >>> duration(0.82), duration(93.4), duration(133_693.0), duration(float("nan"))
    ('0.82 µs', '93.4 µs', '134 ms', '-')
    """
    if math.isnan(us):
        return "-"
    size, unit = (1e6, "s") if us >= 999_500 else (1e3, "ms") if us >= 999.5 else (1.0, "µs")
    return f"{us / size:.3g} {unit}"


def _percentile(found: Histogram | None, percent: float) -> float:
    return math.nan if found is None else round(found.percentile_ns(percent) / 1e3, 1)


def _stages(change: Snapshot, seconds: float) -> list[dict[str, str | float]]:
    rows: list[dict[str, str | float]] = []
    for name in words.STAGES:
        found = change.histograms.get(name)
        if found is not None:
            row: dict[str, str | float] = {"stage": name}
            row["per second"] = round(found.count / seconds, 1)
            row["mean, µs"] = round(found.mean_ns() / 1e3, 1)
            for title, percent in (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)):
                row[f"{title}, µs"] = _percentile(found, percent)
            rows.append(row)
    return rows


def _models(change: Snapshot, seconds: float) -> list[dict[str, str | float]]:
    rows: list[dict[str, str | float]] = []
    for name, counters in change.models.items():
        of_stages = change.model_histograms.get(name, {})
        row: dict[str, str | float] = {"model": name}
        row["answered per second"] = round(counters.get("ok", 0) / seconds, 1)
        errors = sum(counters.get(word, 0) for word in ERRORS)
        row["errors per second"] = round(errors / seconds, 1)
        row["p50, µs"] = _percentile(of_stages.get("total"), 50)
        row["p99, µs"] = _percentile(of_stages.get("total"), 99)
        rows.append(row)
    return rows


def _workers(change: Snapshot, seconds: float) -> list[Busy]:
    found = []
    inline = 0
    for thread in change.threads:
        if thread.role == "worker":
            name = f"I/O {inline}" if is_inline(thread) else f"worker {thread.index}"
            inline += is_inline(thread)
            found.append(Busy(name, busy_share(thread, seconds)))
    return found
