"""The charts, as Vega-Lite specifications with their data inside: pure functions, plain dicts.

Called by pages.py and the tests. Times are in µs in the data, and have their unit at each label of
an axis. A value that is not there is null, which leaves a gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from lumen_uring.dashboard.axes import (
    EACH,
    PERCENTILE,
    TIME,
    Row,
    Spec,
    colour_of,
    log_axis,
    name_axis,
    number_axis,
    spec,
    time_axis,
    words_of,
)
from lumen_uring.dashboard.compare import Compared
from lumen_uring.dashboard.figures import BANDS, ModeRow, Moment
from lumen_uring.dashboard.runs import Line
from lumen_uring.dashboard.trace import STAGES


def percentiles(points: Iterable[tuple[str, float, float]]) -> Spec:
    """Latency against the share of requests that are slower, both on logarithmic axes.

    Args:
        points: of figures.curves.
    """
    several = list(points)
    rows: list[Row] = [{"curve": name, "one_of": x, "us": y} for name, x, y in several]
    most = max([10_000.0, *(x for _, x, _ in several)])
    marks = [2, *(10**tenth for tenth in range(1, 8) if 10**tenth <= most)]
    x = number_axis(
        "one_of",
        "percentile of requests",
        scale={"type": "log", "domain": [2, most], "nice": False},
        axis={"values": marks, "labelExpr": PERCENTILE},
    )
    y = time_axis("us", "latency", (us for _, _, us in several))
    return spec(
        rows,
        380,
        mark={"type": "line", "interpolate": "step-after", "tooltip": True},
        encoding={"x": x, "y": y, "color": colour_of("curve", None)},
    )


def modes_throughput(rows: Iterable[ModeRow]) -> Spec:
    """Throughput of each mode, with the slowest and the fastest round."""
    values: list[Row] = [
        {
            "mode": row.mode,
            "source": _source(row),
            "rate": row.throughput,
            "low": row.throughput_low,
            "high": row.throughput_high,
        }
        for row in rows
    ]
    x = number_axis("rate", "requests per second")
    return spec(
        values,
        {"step": _side_step(values)},
        encoding={
            "y": name_axis("mode", grid=False),
            "yOffset": words_of("source", None, sort=None),
        },
        layer=[
            {
                "mark": {"type": "bar", "tooltip": True},
                "encoding": {"x": x, "color": colour_of("source", None)},
            },
            {
                "mark": {"type": "rule", "color": "black"},
                "encoding": {
                    "x": number_axis("low", "requests per second"),
                    "x2": {"field": "high"},
                },
            },
        ],
    )


def modes_latency(rows: Iterable[ModeRow], queue: bool = False) -> Spec:
    """p50, p99 and p99.9 of each mode, on a logarithmic axis: of the latency, or of the queue."""
    values: list[Row] = [
        {"mode": row.mode, "source": _source(row), "percentile": name, "us": value}
        for row in rows
        for name, value in (row.queue_us if queue else row.latency_us).items()
        if name != "mean" and value > 0
    ]
    times = [float(value["us"]) for value in values]
    return spec(
        values,
        {"step": _side_step(values)},
        mark={"type": "point", "filled": True, "size": 60, "tooltip": True},
        encoding={
            "y": name_axis("mode"),
            "yOffset": words_of("source", None, sort=None),
            "x": time_axis("us", "time in the queue" if queue else "latency", times),
            "shape": words_of("percentile", None, legend={"orient": "top"}, sort=None),
            "color": colour_of("source", None),
        },
    )


def _source(row: ModeRow) -> str:
    """The bar's name: who measured, and the load."""
    load = "telemetry" if row.connections is None else f"{row.connections} connections"
    return f"{row.source}: {load}"


def _side_step(rows: Sequence[Row]) -> int:
    """The height of one of several bars of a name."""
    return 10 if len({row["source"] for row in rows}) > 1 else 20


def residency(bins: Mapping[str, Sequence[tuple[float, float, float]]]) -> Spec:
    """How long requests of each run were in the queue.

    Args:
        bins: of figures.residency, by the run's name.
    """
    rows: list[Row] = [
        {"run": run, "from": low, "to": high, "share": share}
        for run, found in bins.items()
        for low, high, share in found
    ]
    edges = [float(row[end]) for row in rows for end in ("from", "to")]
    return spec(
        rows,
        mark={"type": "bar", "opacity": 0.5, "tooltip": True},
        encoding={
            "x": time_axis("from", "time in the queue", edges),
            "x2": {"field": "to"},
            "y": number_axis("share", "share of requests", axis={"format": "~%"}, stack=None),
            "y2": {"datum": 0},
            "color": colour_of("run", None),
        },
    )


def bands(found: Iterable[tuple[str, int, Mapping[str, float]]]) -> Spec:
    """Where the time of fast and of slow requests goes, by stage."""
    rows: list[Row] = [
        {"band": name, "requests": count, "stage": stage, "us": us, "place": place}
        for name, count, times in found
        for place, (stage, us) in enumerate(times.items())
    ]
    return spec(
        rows,
        {"step": EACH},
        mark={"type": "bar", "tooltip": True},
        encoding={
            "y": name_axis("band", [name for name, _, _ in BANDS], grid=False),
            "x": number_axis("us", "mean time in each stage", axis={"labelExpr": TIME}),
            "color": colour_of("stage", None, STAGES),
            "order": {"field": "place"},
        },
    )


def rates(moments: Iterable[Moment]) -> Spec:
    """Answered requests and errors a second, over time."""
    rows: list[Row] = [
        {"at": moment.at_s, "what": what, "rate": rate}
        for moment in moments
        for what, rate in (("answered", moment.answered_per_s), ("errors", moment.errors_per_s))
    ]
    return spec(
        rows,
        200,
        mark={"type": "line", "interpolate": "step-after", "tooltip": True},
        encoding={
            "x": number_axis("at", "seconds since the first request"),
            "y": number_axis("rate", "requests per second"),
            "color": colour_of("what", None, ("answered", "errors")),
        },
    )


def latencies(moments: Iterable[Moment]) -> Spec:
    """Percentiles of each bin, over time, on a logarithmic axis."""
    rows: list[Row] = [
        {"at": moment.at_s, "what": what, "us": us if us > 0 else math.nan}
        for moment in moments
        for what, us in (
            ("latency p50", moment.p50_us),
            ("latency p99", moment.p99_us),
            ("queue p99", moment.queue_p99_us),
        )
    ]
    return spec(
        rows,
        280,
        mark={"type": "line", "interpolate": "step-after", "tooltip": True},
        encoding={
            "x": number_axis("at", "seconds since the first request"),
            "y": time_axis("us", "latency", (float(row["us"]) for row in rows)),
            "color": colour_of("what", None, ("latency p50", "latency p99", "queue p99")),
        },
    )


def heat(found: Iterable[tuple[int, float, float, float]]) -> Spec:
    """A worker in each line, time from left to right, the colour says how busy it was."""
    rows: list[Row] = [
        {"worker": f"worker {worker}", "number": worker, "from": begin, "to": end, "busy": share}
        for worker, begin, end, share in found
    ]
    colour = number_axis(
        "busy",
        "busy",
        scale={"domain": [0, 1], "scheme": "viridis"},
        legend={"format": ".0%", "orient": "top", "gradientLength": 200},
    )
    return spec(
        rows,
        {"step": EACH},
        mark={"type": "rect", "tooltip": True},
        encoding={
            "x": number_axis("from", "seconds since the first request", axis={"grid": False}),
            "x2": {"field": "to"},
            "y": name_axis("worker", {"field": "number"}, grid=False),
            "color": colour,
        },
    )


def forest(rows: Iterable[Compared], a: str, b: str) -> Spec:
    """Each figure's ratio and its interval; 1 is no difference."""
    values: list[Row] = [
        {"figure": row.figure, "ratio": row.ratio, "low": row.low, "high": row.high}
        | {"verdict": row.verdict().partition(": ")[2] or "no difference shows"}
        for row in rows
    ]
    title = f"{b} ÷ {a}, with its 95 % interval"
    marks = ("better", "worse", "no difference shows")
    palette = {"domain": list(marks), "range": ["#009e73", "#d55e00", "#888888"]}
    colour = words_of("verdict", None, scale=palette, legend={"orient": "top", "labelLimit": 300})
    ends = [1.0, *(float(row[end]) for row in values for end in ("low", "high"))]
    x = log_axis("low", title, ends, format="~r")
    return spec(
        values,
        {"step": EACH},
        encoding={"y": name_axis("figure")},
        layer=[
            {
                "mark": {"type": "rule", "strokeWidth": 3},
                "encoding": {"x": x, "x2": {"field": "high"}, "color": colour},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "tooltip": True},
                "encoding": {"x": number_axis("ratio", title), "color": colour},
            },
            _at_one(title),
        ],
    )


def _at_one(title: str) -> Spec:
    """A line where there is no difference."""
    return {
        "data": {"values": [{"one": 1}]},
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "black"},
        "encoding": {"x": number_axis("one", title), "y": None},
    }


def perfstat(states: Sequence[str], table: Iterable[Line]) -> Spec:
    """How many times each figure of the last state is that of the first, by group."""
    rows: list[Row] = [
        {"figure": f"{line.section}: {line.figure}", "group": line.section, "ratio": last / first}
        for line in table
        for first, last in [(line.values[0], line.values[-1])]
        if first and last and first > 0 and last > 0
    ]
    title = f"{states[-1]} ÷ {states[0]}"
    x = log_axis("ratio", title, [1.0, *(float(row["ratio"]) for row in rows)], format="~r")
    return spec(
        rows,
        {"step": 20},
        encoding={"y": name_axis("figure")},
        layer=[
            {
                "mark": {"type": "point", "filled": True, "size": 70, "tooltip": True},
                "encoding": {"x": x, "color": colour_of("group", None)},
            },
            _at_one(title),
        ],
    )
