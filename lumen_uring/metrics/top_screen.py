"""What `lumen top` shows: the figures between two readings of a statistics file, for a terminal.

Used by commands/top.py, on the main thread. Counters become rates and histograms percentiles of the
interval; gauges are those of its end. A narrow screen has fewer columns, a low one fewer rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lumen_uring.metrics import words
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.snapshot import EXPERT, Snapshot, ThreadStats, Values, delta

_HEAD: Final = 12  # characters before the figures of a line
_CELL: Final = 11  # characters of a worker, with the gap to the next
_MODELS_MIN: Final = 3  # rows that workers leave to the models
ERRORS: Final = ("failed", "unfit", "expired", "gone", "refused", "bad")
_COUNTERS: Final = {name: values for name, _, _, values in words.COUNTERS}
_REASONS: Final = _COUNTERS["lumen_requests_rejected"]
_UPSTREAMS: Final = (
    *_COUNTERS["lumen_upstream_requests"],
    *_COUNTERS["lumen_upstream_events"],
)
_RARE: Final = ("fallen", "spill")  # shown where there are any
_Row = TypeVar("_Row")
# The title, the width of a screen from which the column is shown, and the cell.
_Column = tuple[str, int, Callable[[_Row], str]]


@dataclass(frozen=True, slots=True)
class Reading:
    """A snapshot, and when it was taken by the monotonic clock; s."""

    at_s: float
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class _Interval:
    change: Snapshot
    later: Snapshot
    seconds: float

    def rate(self, count: float) -> str:
        return _number(count / self.seconds)

    def sum(self, of: Iterable[tuple[str, str]]) -> int:
        return sum(self.change.counters.get(role, {}).get(word, 0) for role, word in of)

    def gauge(self, word: str, role: str = "io") -> int:
        return self.change.gauges.get(role, {}).get(word, 0)


def screen(earlier: Reading, later: Reading, width: int, height: int | None = None) -> Group:
    """Draws an interval.

    Args:
        earlier: the reading at its begin.
        later: the reading at its end.
        width: of the screen, in characters.
        height: in lines; None: everything is shown.

    Raises:
        StatsError: the readings are of two runs of the server.
    """
    interval = _Interval(
        delta(later.snapshot, earlier.snapshot),
        later.snapshot,
        max(later.at_s - earlier.at_s, 1e-6),
    )
    summary = _summary(interval, height is not None)
    stages = sum(name in interval.change.histograms for name in words.STAGES)
    # Beside the rows of models: the summary, two empty lines, the heads of two tables, a last one.
    room = 10_000 if height is None else height - len(summary) - stages - 5
    workers = _workers(interval, width)
    model_rows = min(len(_with_experts(interval)), max(_MODELS_MIN, room - len(workers)))
    return Group(
        *summary,
        Text(),
        _stages(interval, width),
        Text(),
        _models(interval, width, model_rows),
        Text(),
        *workers[: max(1, room - model_rows)],
    )


def _summary(interval: _Interval, is_live: bool) -> list[Text]:
    server = interval.change
    up = timedelta(seconds=max(0, int(time.time() - server.start_realtime_ns / 1e9)))
    hangs = ", A MODEL HANGS" if interval.gauge("worker_hangs") else ""
    title = f"Lumen on port {server.port}, pid {server.pid}, {server.state}{hangs}, up {up}"
    title += f"; {interval.seconds:.1f} s"
    ends = [(name, interval.sum(of)) for name, of in words.OUTCOMES]
    reasons = [(name, interval.sum(of)) for name, of in _REASONS]
    refused = sorted(((n, name) for name, n in reasons if n), reverse=True)
    pending = sum(
        values.get("queued", 0) - sum(values.get(word, 0) for word in words.LEFT)
        for values in interval.later.models.values()
    )
    queued = sum(sum_ns(of, "queue") for of in server.model_histograms.values())
    now = (
        (f"{interval.gauge('in_flight'):,}", "in flight"),
        (f"{max(0, pending):,}", "pending"),  # the words are read one after another
        (_number(queued / 1e9 / interval.seconds), "queued"),
        (f"{interval.gauge('connections_open'):,}", "connections"),
        (interval.rate(interval.sum((("io", "connections_accepted"),))), "new/s"),
    )
    sent = interval.sum((("io", "bytes_out"), ("worker", "bytes_out")))
    regions, region_bytes = interval.gauge("regions"), interval.gauge("region_bytes")
    traffic = (
        (_size(interval.sum((("io", "bytes_in"),)) / interval.seconds), "in"),
        (_size(sent / interval.seconds), "out"),
        (f"{regions:,}", "memory regions" + (f" of {_size(region_bytes)}" if regions else "")),
    )
    return [
        _text(title + ("; q ends" if is_live else ""), "bold"),
        _line("requests/s", [(interval.rate(count), name) for name, count in ends]),
        _line(
            "refused/s",
            [(interval.rate(n), name) for n, name in refused] or [("0", "for any reason")],
            "red",
        ),
        _line("now", now),
        _line("bytes/s", traffic),
        *_upstreams(interval),
    ]


def _upstreams(interval: _Interval) -> list[Text]:
    """A line, where the server has any."""
    if not interval.later.counters.get("io", {}).get("upstream_dials", 0):
        return []
    counts = [(name, interval.sum(of)) for name, of in _UPSTREAMS]
    figures = (
        (f"{interval.gauge('upstream_in_flight'):,}", "in flight"),
        *((interval.rate(n), f"{name}/s") for name, n in counts if n or name not in _RARE),
        (f"{interval.gauge('upstream_connections'):,}", "connections"),
    )
    return [_line("upstreams", figures)]


def _stages(interval: _Interval, width: int) -> Table:
    def percentile(percent: float) -> Callable[[tuple[str, Histogram]], str]:
        return lambda row: _microseconds(row[1].percentile_ns(percent))

    columns: tuple[_Column[tuple[str, Histogram]], ...] = (
        ("stage, µs", 0, lambda row: row[0]),
        ("/s", 45, lambda row: interval.rate(row[1].count)),
        ("mean", 70, lambda row: _microseconds(row[1].mean_ns())),
        ("p50", 0, percentile(50)),
        ("p99", 0, percentile(99)),
        ("p99.9", 50, percentile(99.9)),
    )
    found = interval.change.histograms
    return _table(columns, [(name, found[name]) for name in words.STAGES if name in found], width)


def _with_experts(interval: _Interval) -> Values:
    """The counters of each model, and behind a virtual one's what each expert answered."""
    found: Values = {}
    for name, values in interval.change.models.items():
        found[name] = values
        for word, count in values.items():
            if word.startswith(EXPERT):
                found[f"{name}→{word.removeprefix(EXPERT)}"] = {"ok": count}
    return found


def _models(interval: _Interval, width: int, rows: int) -> Table:
    models = _with_experts(interval)
    inline = dict.fromkeys(models, 0)
    for thread in interval.change.threads:
        for name, counters in thread.model_counters.items():
            inline[name] += counters.get("runs", 0) if is_inline(thread) else 0

    def total(percent: float) -> Callable[[str], str]:
        def cell(name: str) -> str:
            histogram = interval.change.model_histograms.get(name, {}).get("total")
            return "-" if histogram is None else _microseconds(histogram.percentile_ns(percent))

        return cell

    columns: tuple[_Column[str], ...] = (
        ("model", 0, str),
        ("ok/s", 0, lambda name: interval.rate(models[name].get("ok", 0))),
        ("errors/s", 50, lambda name: interval.rate(sum(models[name].get(e, 0) for e in ERRORS))),
        ("rows/s", 70, lambda name: interval.rate(models[name].get("rows", 0))),
        ("p50 µs", 0, total(50)),
        ("p99 µs", 0, total(99)),
        ("inline", 60, lambda name: _share(inline[name], models[name].get("runs", 0))),
    )
    if interval.sum((("io", "cache_hits"), ("io", "cache_misses"))):
        columns += (("cached", 90, lambda name: _cached(models[name])),)
    names = list(models)
    if len(names) > rows:  # the busiest, and how many are left
        names = sorted(names, key=lambda name: -models[name].get("ok", 0))[: rows - 1]
    table = _table(columns, names, width)
    if len(names) < len(models):
        table.add_row(_text(f"+ {len(models) - len(names)} more", "dim"))
    return table


def _cached(values: dict[str, int]) -> str:
    """The share of the requests looked up in the response cache that it answered."""
    hits = values.get("cache_hits", 0)
    return _share(hits, hits + values.get("cache_misses", 0))


def _workers(interval: _Interval, width: int) -> list[Text]:
    """A title, and lines of several workers each."""
    shares: list[tuple[str, float]] = []
    io = 0
    for thread in interval.change.threads:
        if thread.role == "worker":
            # The workers of I/O threads come last, in the order of these.
            name = f"io{io}" if is_inline(thread) else f"w{thread.index}"
            io += is_inline(thread)
            shares.append((name, busy_share(thread, interval.seconds)))
    cells = [f"{name:<5}{_share(share, 1):>4}" for name, share in shares]
    per_line = max(1, (width + 2) // _CELL)
    runs, batches, wide = (
        interval.sum((("worker", word),)) for word in ("runs", "batches", "runs_wide")
    )
    title = (
        (_share(sum(share for _, share in shares), len(shares)), f"busy of {len(shares)}"),
        (interval.rate(runs), "Runs/s"),
        (_share(batches, runs), "batched"),
        (_share(wide, runs), "wide"),
    )
    lines = (_text("  ".join(cells[at : at + per_line])) for at in range(0, len(cells), per_line))
    return [*_nodes(interval), _line("workers", title), *lines]


def _nodes(interval: _Interval) -> list[Text]:
    """A line for each node, where there are several."""
    nodes = sorted({thread.node for thread in interval.change.threads})
    return [_node(interval, node) for node in nodes if len(nodes) > 1]


def _node(interval: _Interval, node: int) -> Text:
    threads = [thread for thread in interval.change.threads if thread.node == node]
    workers = [thread for thread in threads if thread.role == "worker"]
    busy = sum(busy_share(thread, interval.seconds) for thread in workers)
    answered = sum(thread.counters.get("requests_ok", 0) for thread in threads)
    stolen = sum(thread.counters.get("requests_stolen", 0) for thread in workers)
    in_flight = sum(thread.gauges.get("in_flight", 0) for thread in threads)
    figures = (
        (_share(busy, len(workers)), f"busy of {len(workers)}"),
        (interval.rate(answered), "ok/s"),
        (f"{in_flight:,}", "in flight"),
        (interval.rate(stolen), "helped/s"),
    )
    return _line(f"node {node}", figures)


def is_inline(thread: ThreadStats) -> bool:
    """Whether this worker has no thread: an I/O thread runs models as this worker."""
    return thread.role == "worker" and thread.tid == 0


def busy_share(thread: ThreadStats, seconds: float) -> float:
    """The share of the interval that a worker spent on the requests it answered; 0..1."""
    busy_ns = 0.0
    for name, of_stages in thread.model_histograms.items():
        counters = thread.model_counters[name]
        answered = of_stages["infer"].count if "infer" in of_stages else 0
        if answered:
            # Each request of a batch has the whole Run's time.
            runs = counters.get("runs", 0) if thread.counters.get("batches") else answered
            times_ns = sum_ns(of_stages, "infer")
            times_ns += counters.get("preprocess_ns", 0) + counters.get("send_ns", 0)
            busy_ns += times_ns * min(1.0, runs / answered)
    return min(1.0, busy_ns / 1e9 / seconds)


def sum_ns(of_stages: dict[str, Histogram], stage: str) -> int:
    return (of_stages[stage].sum_ns or 0) if stage in of_stages else 0


# ---- text ----


def _table(columns: Sequence[_Column[_Row]], rows: Iterable[_Row], width: int) -> Table:
    shown = [column for column in columns if column[1] <= width]
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for index, (title, _, _) in enumerate(shown):
        table.add_column(
            title,
            justify="right" if index else "left",
            no_wrap=index > 0,
            min_width=9 if index else 8,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(_text(cell(row)) for _, _, cell in shown))
    return table


def _line(head: str, figures: Iterable[tuple[str, str]], style: str = "") -> Text:
    text = _text(f"{head:<{_HEAD - 2}}", "bold")
    for value, name in figures:
        text.append(f"  {value}", style if value != "0" else "")
        text.append(f" {name}", "dim")
    return text


def _text(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _number(value: float) -> str:
    """A rate or a mean: what is not 0 is not shown as 0."""
    if 0 < value < 0.05:
        return "<0.1"
    return f"{value:,.1f}" if 0 < value < 9.95 else f"{value:,.0f}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _microseconds(nanoseconds: float) -> str:
    us = nanoseconds / 1000
    return "-" if math.isnan(us) else f"{us:,.1f}" if us < 1000 else f"{us:,.0f}"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{_number(size_bytes)} {unit}"
        size_bytes /= 1024
    return f"{_number(size_bytes)} GiB"
