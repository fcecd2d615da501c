"""Figures of a server at one moment: sums over its threads, differences, several servers merged.

Called by stats.py, which reads them from a file, and by tools that compare readings. It must never
know where figures come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lumen_uring.errors import StatsError
from lumen_uring.ring.histogram import Histogram

# Before an expert's name, among a virtual model's counters: the requests that the expert answered.
EXPERT: Final = "expert:"
Values = dict[str, dict[str, int]]
Histograms = dict[str, dict[str, Histogram]]


@dataclass(frozen=True, slots=True, eq=False)
class ThreadStats:
    """One thread's block; role is "io" or "worker", cpu -1 when not pinned, node as engine.nodes.

    Counters of a model are under the model's name, without "model_" in front.
    """

    role: str
    index: int
    cpu: int
    tid: int
    node: int
    counters: dict[str, int]
    gauges: dict[str, int]
    histograms: dict[str, Histogram]
    model_counters: Values
    model_gauges: Values
    model_histograms: Histograms = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One reading of one file, or several merged.

    Counters and gauges are summed per role, since an I/O thread and a worker may count different
    things under one name. Histograms are merged over all threads: a value is recorded once. Of
    each model, in the wire's order, counters are summed over all threads; a gauge is the largest.
    `model_histograms` has each model's by stage, coarser than `histograms` and with exact sums.
    """

    pid: int
    port: int
    state: str
    start_realtime_ns: int
    threads: Sequence[ThreadStats]
    counters: Values
    gauges: Values
    histograms: dict[str, Histogram]
    models: Values
    model_histograms: Histograms = field(default_factory=dict)
    is_alive: bool = False  # a running server holds a lock on this very file


def delta(later: Snapshot, earlier: Snapshot) -> Snapshot:
    """Subtracts one reading of a server from a later one; gauges are the later ones.

    Args:
        later: the second reading.
        earlier: the first reading.

    Raises:
        StatsError: the readings are of two runs of the server.
    """
    if (later.pid, later.start_realtime_ns) != (earlier.pid, earlier.start_realtime_ns):
        raise StatsError(f"The server on port {later.port} was restarted between the readings.")
    before = {(thread.role, thread.index): thread for thread in earlier.threads}
    threads: list[ThreadStats] = []
    for thread in later.threads:
        old = before.get((thread.role, thread.index))
        threads.append(thread if old is None else _thread_delta(thread, old))
    changes = snapshot_of(
        later.pid, later.port, later.state, later.start_realtime_ns, tuple(threads)
    )
    return replace(changes, is_alive=later.is_alive)


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Adds the readings of several servers; pid and port are 0 in the result unless there is one.

    Args:
        snapshots: at least one; their histograms have the same layout.

    Raises:
        StatsError: no snapshot, or layouts that differ.
    """
    several = tuple(snapshots)
    if not several:
        raise StatsError("Nothing to merge: expected at least one snapshot.")
    if len(several) == 1:
        return several[0]
    threads = tuple(thread for snapshot in several for thread in snapshot.threads)
    states = {snapshot.state for snapshot in several}
    state = states.pop() if len(states) == 1 else "mixed"
    return snapshot_of(0, 0, state, min(one.start_realtime_ns for one in several), threads)


def snapshot_of(
    pid: int, port: int, state: str, start_realtime_ns: int, threads: tuple[ThreadStats, ...]
) -> Snapshot:
    """Sums the threads' figures.

    Args:
        pid: of the server.
        port: of the server.
        state: of the server, such as "ready".
        start_realtime_ns: when the server started.
        threads: a block per thread.
    """
    counters: Values = {}
    gauges: Values = {}
    histograms: dict[str, Histogram] = {}
    models: Values = {}
    model_histograms: Histograms = {}
    for thread in threads:
        for model, values in thread.model_counters.items():
            of_model = models.setdefault(model, {})
            for name, value in values.items():
                of_model[name] = of_model.get(name, 0) + value
        for model, values in thread.model_gauges.items():
            of_model = models.setdefault(model, {})
            for name, value in values.items():
                of_model[name] = max(of_model.get(name, 0), value)
        for total, values in ((counters, thread.counters), (gauges, thread.gauges)):
            of_role = total.setdefault(thread.role, {})
            for name, value in values.items():
                of_role[name] = of_role.get(name, 0) + value
        _add_histograms(histograms, thread.histograms)
        for model, of_stages in thread.model_histograms.items():
            _add_histograms(model_histograms.setdefault(model, {}), of_stages)
    return Snapshot(
        pid,
        port,
        state,
        start_realtime_ns,
        threads,
        counters,
        gauges,
        histograms,
        models,
        model_histograms,
    )


def _add_histograms(total: dict[str, Histogram], more: dict[str, Histogram]) -> None:
    for name, histogram in more.items():
        total[name] = total[name].plus(histogram) if name in total else histogram


def _subtract_histograms(
    later: dict[str, Histogram], earlier: dict[str, Histogram]
) -> dict[str, Histogram]:
    return {
        name: histogram.minus(earlier[name]) if name in earlier else histogram
        for name, histogram in later.items()
    }


def _counters_delta(later: dict[str, int], earlier: dict[str, int]) -> dict[str, int]:
    counters: dict[str, int] = {}
    for name, value in later.items():
        counters[name] = value - earlier.get(name, 0)
        if counters[name] < 0:
            raise StatsError(f"The counter {name!r} went down: the readings are of two servers.")
    return counters


def _thread_delta(later: ThreadStats, earlier: ThreadStats) -> ThreadStats:
    return ThreadStats(
        later.role,
        later.index,
        later.cpu,
        later.tid,
        later.node,
        _counters_delta(later.counters, earlier.counters),
        later.gauges,
        _subtract_histograms(later.histograms, earlier.histograms),
        {
            model: _counters_delta(counters, earlier.model_counters.get(model, {}))
            for model, counters in later.model_counters.items()
        },
        later.model_gauges,
        {
            model: _subtract_histograms(of_stages, earlier.model_histograms.get(model, {}))
            for model, of_stages in later.model_histograms.items()
        },
    )
