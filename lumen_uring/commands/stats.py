"""`lumen stats`: the figures of a server on this machine, from its shared-memory file.

Called by cli.py, on the main thread. Reading the file disturbs no worker and sends no request.
Names come from the file, so the figures of a newer server are shown too.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from lumen_uring.errors import StatsError
from lumen_uring.metrics import stats_words
from lumen_uring.options import Subparsers, add_port_option

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from lumen_uring.ring.budgets import Budget
    from lumen_uring.ring.snapshot import Snapshot

# In the order that a request passes them; other stages follow in the file's order.
_STAGES: Final = ("receive", "queue", "preprocess", "infer", "send", "total")
_PERCENTS: Final = {"p50": 50.0, "p99": 99.0, "p999": 99.9}
_WATCH_S: Final = 1.0
# How a request that has named its model can fail.
_MODEL_ERRORS: Final = ("failed", "unfit", "expired", "gone", "refused", "bad")
_MODEL_STAGES: Final = ("queue", "infer")


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "stats",
        help="show a running server's figures",
        description="Shows latencies by stage, the models, and every counter that is not 0, of a "
        "server on this machine. Exits 1 where no server runs.",
    )
    add_port_option(parser)
    parser.add_argument("--all", action="store_true", help="show counters that are 0 too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--watch", action="store_true", help="show the figures of each second until Ctrl-C"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Shows the figures.

    Args:
        arguments: as `add` declared them.

    Returns:
        0; 1 where the figures are the last ones of a server that ended badly.

    Raises:
        StatsError: no server with this port runs here.
    """
    import orjson
    from rich.console import Console

    from lumen_uring.ring.budgets import budgets_path
    from lumen_uring.ring.budgets import read as read_budgets
    from lumen_uring.ring.stats import read, stats_path

    path = stats_path(arguments.port)
    snapshot = read(path)
    if arguments.watch:
        _watch(path, snapshot, arguments.json, arguments.all)
        return 0
    budgets = read_budgets(budgets_path(arguments.port))
    if arguments.json:
        values = as_json(snapshot) | {"budgets": [_budget(one) for one in budgets]}
        print(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())
    else:
        # A file or a pipe gets lines wide enough that none is broken.
        console = Console(width=None if sys.stdout.isatty() else 120)
        console.print(_tables(snapshot, arguments.all))
        if budgets:
            console.print("", _budgets_table(budgets), sep="\n")
    if snapshot.is_alive:
        return 0
    print(f"lumen: {_dead(snapshot)}", file=sys.stderr)
    return 1


def _watch(path: Path, earlier: Snapshot, json: bool, every: bool) -> NoReturn:
    """Shows each second's figures until Ctrl-C, or until the server is gone."""
    import orjson
    from rich.live import Live

    from lumen_uring.ring.snapshot import delta
    from lumen_uring.ring.stats import read

    with nullcontext() if json else Live(_tables(earlier, every), auto_refresh=False) as live:
        while True:
            time.sleep(_WATCH_S)
            later = read(path)
            if not later.is_alive:
                raise StatsError(_dead(later))
            second = delta(later, earlier)
            earlier = later
            if live is None:
                print(orjson.dumps(as_json(second)).decode(), flush=True)
            else:
                live.update(_tables(second, every), refresh=True)


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON-ready values; latencies in µs, null where nothing was recorded.

    Args:
        snapshot: a reading or a difference of two.
    """
    return {
        "pid": snapshot.pid,
        "port": snapshot.port,
        "state": snapshot.state,
        "alive": snapshot.is_alive,
        "start_realtime_ns": snapshot.start_realtime_ns,
        "counters": snapshot.counters,
        "gauges": snapshot.gauges,
        "stages": {name: _stage(snapshot, name) for name in _ordered(snapshot)},
        "models": {name: _model(values) for name, values in snapshot.models.items()},
        "threads": [
            {
                "role": thread.role,
                "index": thread.index,
                "cpu": thread.cpu,
                "tid": thread.tid,
                "counters": thread.counters,
                "gauges": thread.gauges,
            }
            for thread in snapshot.threads
        ],
    }


def _budget(budget: Budget) -> dict[str, Any]:
    return {
        "kind": budget.kind,
        "name": budget.name,
        "limits": budget.limits,
        "used": budget.used,
        "requests": budget.requests,
        "tokens": budget.tokens,
        "refused": budget.refused,
    }


def _dead(snapshot: Snapshot) -> str:
    return (
        f"No server with port {snapshot.port} runs here: these are the last figures of process "
        f"{snapshot.pid}, which was killed."
    )


def _ordered(snapshot: Snapshot) -> list[str]:
    known = [name for name in _STAGES if name in snapshot.histograms]
    return known + [name for name in snapshot.histograms if name not in _STAGES]


def _stage(snapshot: Snapshot, name: str) -> dict[str, float | int | None]:
    histogram = snapshot.histograms[name]
    values: dict[str, float | int | None] = {"count": histogram.count}
    values["mean_us"] = _microseconds(histogram.mean_ns())
    for label, percent in _PERCENTS.items():
        values[f"{label}_us"] = _microseconds(histogram.percentile_ns(percent))
    return values


def _model(values: dict[str, int]) -> dict[str, float | int | None]:
    """A model's counters as the file has them, with the means over its answered requests."""
    answered = values.get("ok", 0)
    means: dict[str, float | int | None] = {
        f"mean_{stage}_us": round(values[f"{stage}_ns"] / answered / 1000, 3) if answered else None
        for stage in _MODEL_STAGES
        if f"{stage}_ns" in values
    }
    errors = sum(values.get(name, 0) for name in _MODEL_ERRORS)
    return {"requests": answered + errors, "errors": errors, **values, **means}


def _microseconds(nanoseconds: float) -> float | None:
    return None if math.isnan(nanoseconds) else round(nanoseconds / 1000, 3)


def _tables(snapshot: Snapshot, every: bool) -> Group:
    from rich.console import Group

    state = snapshot.state if snapshot.is_alive else "killed"
    title = f"Lumen on port {snapshot.port}, pid {snapshot.pid}, {state}"
    return Group(
        title,
        "",
        _stages_table(snapshot),
        "",
        _models_table(snapshot),
        "",
        _figures_table(snapshot, every),
    )


def _budgets_table(budgets: list[Budget]) -> Table:
    table = _table("budget of", "limit", "used", "of", "refused", numbers=(2, 3, 4))
    for budget in budgets:
        owner, refused = f"{budget.kind} {budget.name}", f"{budget.refused:,}"
        for name, limit in budget.limits.items():
            used = f"{budget.used[name]:,}"
            table.add_row(owner, name.replace("_", " "), used, f"{limit:,}", refused)
            owner = refused = ""
    return table


def _stages_table(snapshot: Snapshot) -> Table:
    table = _table("stage, µs", "count", "mean", "p50", "p99", "p99.9", numbers=range(1, 6))
    table.add_column("")
    for name in _ordered(snapshot):
        stage = _stage(snapshot, name)
        keys = ("mean_us", *(f"{label}_us" for label in _PERCENTS))
        cells = ["-" if stage[key] is None else f"{stage[key]:,.1f}" for key in keys]
        table.add_row(name, f"{stage['count']:,}", *cells, stats_words.STAGES.get(name, ""))
    return table


def _models_table(snapshot: Snapshot) -> Table:
    from lumen_uring.ring.snapshot import EXPERT

    columns = ("model", "requests", "rows", "errors", "mean µs: queue", "infer")
    table = _table(*columns, numbers=range(1, 6))
    for name, of_model in snapshot.models.items():
        model = _model(of_model)
        means = [model.get(f"mean_{stage}_us") for stage in _MODEL_STAGES]
        table.add_row(
            name,
            *(f"{model.get(key, 0):,}" for key in ("requests", "rows", "errors")),
            *("-" if mean is None else f"{mean:,.1f}" for mean in means),
        )
        for word, count in of_model.items():
            if word.startswith(EXPERT):
                table.add_row(f"  by {word.removeprefix(EXPERT)}", f"{count:,}")
    return table


def _figures_table(snapshot: Snapshot, every: bool) -> Table:
    table = _table("thread", "figure", "value", "", numbers=(2,))
    for values in (snapshot.gauges, snapshot.counters):
        for role, of_role in values.items():
            for name, value in of_role.items():
                if value or every:
                    words = stats_words.FIGURES.get((role, name), "")
                    table.add_row(role, name, f"{value:,}", words)
    return table


def _table(*columns: str, numbers: Iterable[int]) -> Table:
    from rich.table import Table

    table = Table(*columns, box=None)
    for index in numbers:
        table.columns[index].justify = "right"
    return table
