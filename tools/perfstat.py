"""`make perfstat`: what the processor does for a server, at ease and overloaded.

A developer's tool. It starts a server of its own in a session of its own, loads it over 4
connections (standard) and over 16 (overloaded), counts with `perf stat` per thread, joins that with
the server's own statistics of the same seconds and shows both states side by side. What this
machine cannot count is said event by event; nothing is estimated in its place. It never changes a
kernel setting without --paranoid, and then puts it back, whatever ends it.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.common.local_server import LocalServer, local_server, squeezenet
from bench.common.measure import Shape, machine, measure, spread_us
from bench.perf import perf_parse
from bench.perf.perf_run import Perf, PerfError, relaxed_paranoid
from lumen_uring.ring.stats import read, stats_path

HARDWARE: Final = (
    "cycles",
    "instructions",
    "branch-misses",
    "L1-dcache-load-misses",
    "LLC-loads",
    "LLC-load-misses",
)
SOFTWARE: Final = ("task-clock", "context-switches", "cpu-migrations", "page-faults")
EVENTS: Final = HARDWARE + SOFTWARE
FORMAT: Final = "lumen perfstat 1"  # read by lumen_uring/dashboard/runs.py
GROUPS: Final = {"io": "I/O threads", "worker": "workers", "other": "other threads"}
_NO_PERF: Final = (
    "perf is not installed, so that only the server's own figures follow "
    "(Debian: apt-get install linux-perf; Ubuntu: apt-get install linux-tools-$(uname -r))."
)
_USER_MODE: Final = (
    "perf counted user mode alone, so that context switches and what the kernel did for the "
    "server are missing: --paranoid or root counts everything."
)
_NO_COUNTERS: Final = (
    "This machine counts no {}: perf says 'not supported', as in most virtual machines. No figure "
    "stands in for them; the software events above are counted."
)
_HELP: Final = """\
standard is 4 connections, overloaded 16; --connections names others. Events:
  hardware  cycles, instructions (and from both: IPC), branch-misses, L1-dcache-load-misses,
            LLC-loads, LLC-load-misses (and from both: the share of loads that missed)
  software  task-clock, context-switches, cpu-migrations, page-faults
Virtual machines often have no hardware counters: a sentence below the table then names what is
missing, and the software events are there all the same. Where a counter was shared with others for
want of registers, the table says for how much of the time it counted; perf has scaled it up.
Other threads are Python's, the telemetry thread and the helpers of wide Runs.

Counting needs kernel.perf_event_paranoid of 2 or less, or root, or CAP_PERFMON; at 2 what the
kernel does for a thread is left out. --paranoid sets it to -1 for the run (directly or with
sudo -n); a process of its own puts it back, also after a failure, Ctrl-C or kill -9.
"""


def count_state(server: LocalServer, shape: Shape, with_perf: bool) -> dict[str, Any]:
    """Measures one state.

    Args:
        server: a running one.
        shape: the load of this state.
        with_perf: False: the server's own figures alone.

    Returns:
        The state's figures, as --json writes them.
    """
    roles = thread_groups(server)
    perf = Perf(list(roles), EVENTS) if with_perf else None
    text = ""
    try:
        measured = measure(server, shape, during=perf.enable if perf else None)
        if perf:
            text = perf.finish()
    finally:
        if perf:
            perf.close()
    stages = measured.server.histograms
    state: dict[str, Any] = {
        "connections": shape.connections,
        "seconds": measured.load.seconds,
        "requests": measured.load.requests,
        "errors": measured.load.errors,
        "throughput_rps": measured.throughput_rps,
        "latency_us": spread_us(measured.load.histogram),
        "stages_us": {name: spread_us(stages[name]) for name in ("queue", "infer", "total")},
        "cpu_us_per_request": measured.cpu_us_per_request,
        "sleeps": measured.server.counters["worker"]["sleeps"],
        "slot_waits": measured.server.counters["io"]["slot_waits"],
    }
    served = measured.server.counters["worker"]["requests_ok"]
    totals = perf_parse.total(perf_parse.parse(text, EVENTS), roles)
    state["user_mode_only"] = ":u," in text
    state["groups"] = {role: group_figures(found, served) for role, found in totals.items()}
    return state


def thread_groups(server: LocalServer) -> dict[int, str]:
    """The group of each thread of a server, by its id: io, worker or other.

    Args:
        server: a running one.
    """
    roles = {int(path.name): "other" for path in Path(f"/proc/{server.pid}/task").iterdir()}
    known = {thread.tid: thread.role for thread in read(stats_path(server.port)).threads}
    # A worker without a thread of its own, which is an I/O thread's, has the id 0.
    return roles | {tid: role for tid, role in known.items() if tid}


def group_figures(totals: Mapping[str, perf_parse.Total], served: int) -> dict[str, Any]:
    """One group of threads' figures.

    Args:
        totals: by event.
        served: requests in the counted time.

    Returns:
        By event: value, per request, unit and note; and "ipc" and "llc_miss_share" (0..1).
    """
    figures: dict[str, Any] = {}
    for event in EVENTS:
        found = totals.get(event)
        value = None if found is None else found.value
        figures[event] = {
            "value": value,
            "per_request": None if value is None or not served else value / served,
            "unit": "" if found is None else found.unit,
            "note": "perf has no row for it" if found is None else found.note(),
        }
    figures["ipc"] = perf_parse.ratio(totals, "instructions", "cycles")
    figures["llc_miss_share"] = perf_parse.ratio(totals, "LLC-load-misses", "LLC-loads")
    return figures


# Section, figure, unit, a value per state, note.
Row = tuple[str, str, str, list[float | None], str]


def rows(states: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Lines the states' figures up.

    Args:
        states: as count_state gives them.

    Returns:
        A row per figure, with a value per state.
    """
    found: list[Row] = []

    def add(section: str, name: str, unit: str, *path: str, scale: float = 1.0) -> None:
        values = [_at(state, path) for state in states]
        notes = {str(_at(state, (*path[:-1], "note")) or "") for state in states} - {""}
        scaled = [None if value is None else value * scale for value in values]
        found.append((section, name, unit, scaled, "; ".join(sorted(notes))))

    add("client", "throughput", "requests/s", "throughput_rps")
    add("client", "errors", "", "errors")
    for name, title in (("mean", "mean"), ("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")):
        add("client", f"round trip {title}", "µs", "latency_us", name)
    for stage in ("queue", "infer", "total"):
        for name in ("mean", "p99"):
            add("server", f"{stage} {name}", "µs", "stages_us", stage, name)
    add("server", "CPU per request", "µs", "cpu_us_per_request")
    add("server", "workers fell asleep", "times", "sleeps")
    add("server", "requests waited for a slot", "times", "slot_waits")
    for group, title in GROUPS.items():
        if not any(group in state["groups"] for state in states):
            continue
        for event in EVENTS:
            unit = "ms" if event == "task-clock" else ""
            add(title, event, unit, "groups", group, event, "value")
            add(title, f"{event} per request", unit, "groups", group, event, "per_request")
        add(title, "IPC", "instructions/cycle", "groups", group, "ipc")
        add(title, "LLC loads missed", "%", "groups", group, "llc_miss_share", scale=100)
    return found


def _at(state: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = state
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def change(values: Sequence[float | None], unit: str = "") -> str:
    """From the first state to the last: in per cent, a share in points; empty without figures."""
    first, last = values[0], values[-1]
    if len(values) < 2 or first is None or last is None:
        return ""
    if unit == "%":
        return f"{last - first:+.1f} points"
    return f"{(last / first - 1) * 100:+.1f} %" if first else ""


def uncounted(lines: Sequence[Row]) -> list[str]:
    """The events that this machine cannot count for any thread in any state."""
    found: dict[str, bool] = {}
    for _, name, _, values, note in lines:
        if name in EVENTS:
            missing = note == perf_parse.NOT_SUPPORTED and all(value is None for value in values)
            found[name] = missing and found.get(name, True)
    return [name for name, missing in found.items() if missing]


def number(value: float | None) -> str:
    """A figure for people: about four digits that count."""
    if value is None:
        return "-"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def show(titles: Sequence[str], lines: Sequence[Row]) -> None:
    """Prints the rows as a table."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("")
    for title in (*titles, "change"):
        table.add_column(title, justify="right")
    table.add_column("unit")
    table.add_column("note")
    section = ""
    missing = uncounted(lines)
    for group, name, unit, values, note in lines:
        # That an event was not counted is said once, not again of what is derived from it.
        if name in missing or (all(value is None for value in values) and name not in EVENTS):
            continue
        if group != section:
            section = group
            table.add_section()
            table.add_row(f"[bold]{group}[/bold]")
        cells = [number(value) for value in values]
        table.add_row(f"  {name}", *cells, change(values, unit), unit, note)
    console.print(table)
    if missing:
        console.print(_NO_COUNTERS.format(", ".join(missing)), soft_wrap=True)


def write_csv(path: Path, names: Sequence[str], lines: Sequence[Row]) -> None:
    """Writes the rows: section, figure, unit, a column per state, the change, note."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["section", "figure", "unit", *names, "change", "note"])
        for section, name, unit, values, note in lines:
            cells = ["" if value is None else repr(value) for value in values]
            moved = change(values, unit).partition(" ")[0]
            writer.writerow([section, name, unit, *cells, moved, note])


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Starts the server and measures every state.

    Args:
        options: as the command line gave them.

    Returns:
        The whole result, as --json writes it.
    """
    with_perf = shutil.which("perf") is not None
    remarks = [] if with_perf else [_NO_PERF]
    model = options.model or squeezenet()
    overrides = [f"--set={override}" for override in options.set]
    states: dict[str, Any] = {}
    with (
        relaxed_paranoid(options.paranoid and with_perf),
        local_server(f"--model=model={model}", *overrides) as server,
    ):
        for name, connections in options.connections.items():
            shape = Shape("model", connections, options.seconds, options.warmup)
            try:
                states[name] = count_state(server, shape, with_perf)
            except PerfError as error:
                remarks.append(str(error))
                with_perf = False
                states[name] = count_state(server, shape, with_perf)
    if any(state["user_mode_only"] for state in states.values()):
        remarks.append(_USER_MODE)
    return document(machine(), model, remarks, states)


def document(
    where: Mapping[str, Any], model: str, remarks: Sequence[str], states: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole result, as --json writes it and `lumen dashboard` reads it."""
    table = [
        {"section": section, "figure": figure, "unit": unit, "values": values, "note": note}
        for section, figure, unit, values, note in rows(list(states.values()))
    ]
    head = {"format": FORMAT, "machine": where, "model": model, "remarks": remarks}
    return {**head, "states": states, "table": table}


def _states(text: str) -> dict[str, int]:
    counts = [int(part) for part in text.split(",")]
    if not counts or min(counts) < 1:
        raise ValueError
    names = ["standard", "overloaded"] if len(counts) == 2 else [f"{n} connections" for n in counts]
    return dict(zip(names, counts, strict=True))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[2],
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--model", help="an ONNX file or builtin:NAME (SqueezeNet)")
    found.add_argument("--set", action="append", default=[], help="passed on to the server")
    found.add_argument("--connections", type=_states, default=_states("4,16"), metavar="N,N")
    found.add_argument("--seconds", type=float, default=10.0, help="per state (%(default)s)")
    found.add_argument("--warmup", type=float, default=1.0, help="before each (%(default)s)")
    found.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    found.add_argument("--csv", type=Path, metavar="FILE", help="write the table there")
    found.add_argument("--paranoid", action="store_true", help="see below")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures, shows and writes."""
    options = parser().parse_args(arguments)
    # They end it as Ctrl-C does, so that the server ends too.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda received, _frame: sys.exit(128 + received))
    try:
        result = run(options)
    except (PerfError, RuntimeError) as error:
        print(f"perfstat: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    lines = rows(list(result["states"].values()))
    show([f"{name} ({n})" for name, n in options.connections.items()], lines)
    for remark in result["remarks"]:
        print(remark)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.csv:
        write_csv(options.csv, list(result["states"]), lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
