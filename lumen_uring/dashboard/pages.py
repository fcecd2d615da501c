"""The pages of `lumen dashboard`, drawn with Streamlit.

Called by app.py. A page asks figures.py and compare.py for numbers and charts.py for charts; it
computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import streamlit as st

from lumen_uring.dashboard import charts, compare, figures, runs
from lumen_uring.dashboard.axes import Spec
from lumen_uring.dashboard.distribution import PERCENTS
from lumen_uring.dashboard.runs import Library, Run
from lumen_uring.dashboard.trace import Trace

_OF_LOAD: Final = ("model", "connections", "rate", "rows")  # shown of a load


def _draw(spec: Spec, title: str) -> None:
    """A chart below its title; one without data says so."""
    st.subheader(title)
    if spec["data"]["values"]:
        st.vega_lite_chart(spec, width="stretch", alt=title)
    else:
        st.info("Nothing was recorded that this chart could show.")


def _try(draw: Callable[[], None]) -> None:
    """Draws what a file's columns allow."""
    try:
        draw()
    except figures.MissingColumns as error:
        st.warning(str(error))


def _with_trace(library: Library, several: bool = False) -> list[Run]:
    """Lets the reader choose among runs with telemetry."""
    names = [name for name, run in library.runs.items() if run.trace is not None]
    if not names:
        st.info(
            "No telemetry was given. A server writes it with "
            "`--set engine.telemetry_csv_path=FILE`; then: `lumen dashboard FILE`."
        )
        return []
    chosen = st.multiselect("Runs", names, names[:6]) if several else [st.selectbox("Run", names)]
    return [library.runs[name] for name in chosen]


def _part(trace: Trace) -> Trace:
    """Lets the reader choose a model and a stretch of time."""
    if trace.has("model"):
        models = sorted(set(trace.texts["model"].tolist()))
        model = st.selectbox("Model", ["all", *models]) if len(models) > 1 else "all"
        if model != "all":
            trace = trace.where(trace.texts["model"] == model)
    if not trace.has("started_ns"):
        return trace
    end = float(trace.ends_s().max())
    if end <= 0:
        return trace
    chosen = st.slider("Seconds", 0.0, end, (0.0, end), format="%.1f")
    part = figures.between(trace, *chosen)
    return part if len(part) else trace


# ---- what was recorded ----


def files(library: Library) -> None:
    """What was read, and what is wrong with it."""
    for finding in library.findings:
        st.warning(str(finding))
    rows = [_run(run) for run in library.runs.values()]
    for name, matrix in library.matrices.items():
        rows.append(_file(name, f"{len(matrix.cells)} cells of make bench", matrix.machine))
    for name, report in library.reports.items():
        states = " and ".join(report.states)
        rows.append(_file(name, f"a perfstat report: {states}", report.machine))
    if rows:
        st.dataframe(rows, hide_index=True)
    else:
        st.info("No file was given that can be shown: `lumen dashboard PATH...` names some.")


def _run(run: Run) -> dict[str, str]:
    holds = [] if run.trace is None else [f"telemetry of {len(run.trace):,} requests"]
    if run.latency is not None:
        holds.append(f"round trips of {run.latency.count:,} requests")
    if run.bench is None:
        return _file(run.name, "; ".join(holds), {})
    load = run.bench.load
    holds.append(", ".join(f"{name} {load[name]}" for name in _OF_LOAD if load.get(name)))
    return _file(run.name, "; ".join(holds), {**run.bench.generator, "date": run.bench.date})


def _file(name: str, holds: str, machine: Mapping[str, Any]) -> dict[str, str]:
    where = f"{machine['cpu']}, {machine.get('cores')} cores" if "cpu" in machine else ""
    return {"name": name, "holds": holds, "machine": where, "date": str(machine.get("date", ""))}


def modes(library: Library) -> None:
    """Each queue and allocator: throughput, latency and time in the queue."""
    found = [
        row
        for name, matrix in library.matrices.items()
        for row in figures.modes_of_matrix(name, matrix)
    ]
    for run in library.runs.values():
        if run.trace is not None and run.trace.has("queue_type", "allocator", "model"):
            _try(lambda run=run: found.extend(figures.modes_of_run(run)))  # type: ignore[misc]
    if not found:
        st.info("No file tells of modes: give results.json of `make bench`, or telemetry.")
        return
    workloads = list(dict.fromkeys(row.workload for row in found))
    workload = st.selectbox("Model", workloads)
    counts = sorted({row.connections for row in found if row.connections is not None})
    some = [count for count in (4, 16) if count in counts] or counts[:2]
    chosen = set(st.multiselect("Connections", counts, some)) if counts else set()
    rows = [
        row
        for row in found
        if row.workload == workload and (row.connections is None or row.connections in chosen)
    ]
    _draw(charts.modes_throughput(rows), "Throughput")
    st.caption("The black line goes from the slowest to the fastest round.")
    _draw(charts.modes_latency(rows), "Latency")
    _draw(charts.modes_latency(rows, queue=True), "Time in the queue")
    st.dataframe([_mode(row) for row in rows], hide_index=True)


def _mode(row: figures.ModeRow) -> dict[str, Any]:
    times = {f"{name}, µs": round(value, 1) for name, value in row.latency_us.items()}
    queue = {f"queue {name}, µs": round(row.queue_us[name], 1) for name in ("mean", "p99")}
    load = {"connections": row.connections, "requests": row.requests, "errors": row.errors}
    rate = {"requests/s": round(row.throughput, 1)}
    return {"from": row.source, "mode": row.mode, **load, **rate, **times, **queue}


def percentiles(library: Library) -> None:
    """Latency against its percentile, for each run."""
    names = list(library.runs)
    chosen = st.multiselect("Runs", names, names[:6])
    several = [library.runs[name] for name in chosen]
    _draw(charts.percentiles(figures.curves(several)), "Latency by percentile")
    st.caption(
        "Both axes are logarithmic: right of each mark are a tenth of the requests that are right "
        "of the mark before. A curve ends at its slowest request. Round trips are as the load "
        "generator saw them; the server's time ends when it has sent the reply."
    )
    rows = []
    for run in several:
        found = {"round trip": run.latency}
        found["server"] = None if run.trace is None else run.trace.answered().times("total")
        for name, times in found.items():
            if times is not None:
                marks = {
                    f"{mark}, µs": round(times.percentile_us(percent), 1)
                    for mark, percent in PERCENTS.items()
                }
                rows.append({"run": run.name, "time": name, "requests": times.count, **marks})
    if rows:
        st.dataframe(rows, hide_index=True)


def queue(library: Library) -> None:
    """How long requests wait, and where the time of slow ones goes."""
    several = _with_trace(library, several=True)
    if not several:
        return

    def bins() -> None:
        found = {run.name: figures.residency(run.trace) for run in several if run.trace}
        _draw(charts.residency(found), "Queue residency")

    _try(bins)
    for run in several:
        _try(lambda run=run: _bands(run))  # type: ignore[misc]


def _bands(run: Run) -> None:
    assert run.trace is not None
    _draw(charts.bands(figures.bands(run.trace)), f"Where the time goes: {run.name}")


def timeline(library: Library) -> None:
    """Rates and latencies over time."""
    for run in _with_trace(library):
        assert run.trace is not None
        trace = _part(run.trace)

        def draw(trace: Trace = trace) -> None:
            moments = figures.timeline(trace)
            _draw(charts.rates(moments), "Rate")
            _draw(charts.latencies(moments), "Latency")

        _try(draw)


def workers(library: Library) -> None:
    """How busy each worker was, over time."""
    for run in _with_trace(library):
        assert run.trace is not None
        trace = _part(run.trace)
        _try(lambda trace=trace: _draw(charts.heat(figures.workers(trace)), "Busy workers"))  # type: ignore[misc]
        st.caption(
            "Busy is the time in which a worker prepared inputs, ran a model and sent replies. A "
            "worker that answered nothing has no line."
        )


def processor(library: Library) -> None:
    """Reports of `make perfstat`."""
    if not library.reports:
        st.info("No report was given: `.venv/bin/python tools/perfstat.py --json FILE` makes one.")
        return
    report = library.reports[st.selectbox("Report", list(library.reports))]
    st.caption(", ".join(f"{name}: {value}" for name, value in report.machine.items()))
    for remark in report.remarks:
        st.warning(remark)
    missing = [line for line in report.table if all(value is None for value in line.values)]
    _draw(charts.perfstat(report.states, report.table), f"{report.states[-1]} ÷ {report.states[0]}")
    names = dict.fromkeys(line.figure.removesuffix(" per request") for line in missing if line.note)
    if names:
        st.info(f"This machine did not count {', '.join(names)}.")
    st.dataframe(
        [_line(report, line) for line in report.table if line not in missing], hide_index=True
    )


def _line(report: runs.Report, line: runs.Line) -> dict[str, Any]:
    values = [None if value is None else float(f"{value:.4g}") for value in line.values]
    cells = dict(zip(report.states, values, strict=True))
    names = {"group": line.section, "figure": line.figure}
    return {**names, **cells, "unit": line.unit, "note": line.note}


def comparison(library: Library) -> None:
    """Two runs, figure by figure, with intervals."""
    names = list(library.runs)
    if len(names) < 2:
        st.info("Give two runs: folders of `lumen bench --out FOLDER`, or telemetry files.")
        return
    left, right = st.columns(2)
    a = library.runs[left.selectbox("Compared with (A)", names)]
    b = library.runs[right.selectbox("Run (B)", names, index=1)]
    rows = compare.compare(a, b)
    if not rows:
        st.info(f"There is no figure that both have of {compare.REQUESTS_MIN} requests or more.")
        return
    _draw(charts.forest(rows, a.name, b.name), f"{b.name} compared with {a.name}")
    st.caption(
        f"95 % intervals of {compare.RESAMPLES:,} bootstrap resamples: of blocks of successive "
        f"requests ({a.name}: {compare.blocks_of(a)}, {b.name}: {compare.blocks_of(b)}) for the "
        "server's figures, of half seconds for the generator's throughput. Round trips are drawn "
        "one by one from a histogram, which has lost their order: their intervals are too narrow "
        "where requests wait in a queue. No interval knows how much two starts of one server "
        "differ: take runs in turns, several of each."
    )
    st.dataframe([_compared(row) for row in rows], hide_index=True)


def _compared(row: compare.Compared) -> dict[str, Any]:
    interval = f"{row.low:.3f} to {row.high:.3f}"
    figure = {"figure": row.figure, "unit": row.unit, "A": round(row.a, 1), "B": round(row.b, 1)}
    return {
        **figure,
        "B ÷ A": round(row.ratio, 3),
        "95 % interval": interval,
        "so B has": row.verdict(),
    }
