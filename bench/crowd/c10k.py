"""`make c10k`, `make c100k`, `make c1m`: what many connections cost a server, and those who use it.

A few connections ask for SqueezeNet in a closed loop, by the load generator in this process, while
a crowd (c10k.c, processes of their own) is connected and idle, slow or coming and going.
Their latency is compared with that on an identical server without a crowd, the two taking turns in
one run. Where a process may not have descriptors for the whole crowd, there are several of them;
the server parks what is idle.

Kernel memory is what grew on this machine (the slab caches of sockets, files and armed receives
where /proc/slabinfo may be read, else all of it) divided by both ends of every connection, since
both are here.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.common.local_server import LocalServer, local_server, squeezenet
from bench.common.measure import Measured, Shape, machine, measure
from bench.crowd.c10k_crowd import (
    BESIDE,
    Crowd,
    Habits,
    connections_per_process,
    kernel_bytes,
    slab_caches,
    user_bytes,
)
from bench.report.rules import middle
from lumen_uring.errors import LumenError
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.snapshot import delta
from lumen_uring.ring.stats import read, stats_path

_WARMUP_S: Final = 0.3  # or as long as a phase, where that is shorter
_CONTROL_ROUNDS: Final = 2
_SETTLE_S: Final = 0.7  # for the kernel to free what connecting took, and the crowd to report
_RAMP_LIMIT_S: Final = 120.0
_SERVER_COUNTERS: Final = (
    "connections_accepted",
    "connections_refused",
    "connections_evicted",
    "connections_unparked",
    "header_buffers_starved",
    "ring_overflows",
)


class Turns:
    """The phases with and without the crowd, and what they measured."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.quiet: list[Measured] = []
        self.crowded: list[Measured] = []

    def take(self, server: LocalServer, into: list[Measured], what: str) -> None:
        """Measures one phase."""

        def wait() -> None:
            say(f"{what}, {self.shape.seconds:g} s")

        into.append(measure(server, self.shape, during=wait))

    def round(self, crowded: LocalServer, quiet: LocalServer, index: int, what: str) -> None:
        """One phase on each server; who comes first changes with the round."""
        phases = [(quiet, self.quiet, "quiet"), (crowded, self.crowded, what)]
        for server, into, name in phases if index % 2 == 0 else phases[::-1]:
            self.take(server, into, f"round {index + 1}: {name}")

    def ratios(self, percent: float) -> list[float]:
        """A percentile with the crowd ÷ without, of each round in which both had answers."""
        pairs = [
            (a.load.histogram.percentile_ns(percent), b.load.histogram.percentile_ns(percent))
            for a, b in zip(self.crowded, self.quiet, strict=True)
        ]
        return [a / b for a, b in pairs if a > 0 and b > 0]


def say(line: str) -> None:
    """Progress, for people."""
    end = "" if sys.stderr.isatty() else "\n"
    print(f"\r\033[K{line}" if not end else line, end=end, file=sys.stderr, flush=True)


def pooled(phases: list[Measured]) -> Histogram:
    """All answers of several phases."""
    total = phases[0].load.histogram
    for phase in phases[1:]:
        total = total.plus(phase.load.histogram)
    return total


def spread(histogram: Histogram) -> dict[str, float | None]:
    """p50 and p99; µs, None where there was no answer."""
    values = {"p50": histogram.percentile_ns(50), "p99": histogram.percentile_ns(99)}
    return {name: None if math.isnan(ns) else ns / 1e3 for name, ns in values.items()}


@dataclass(frozen=True, slots=True)
class Memory:
    """A reading of the server, of the whole kernel, and of its slab caches; bytes."""

    user: int
    kernel: int
    caches: dict[str, int]

    @classmethod
    def read(cls, server: LocalServer) -> Memory:
        """As of now."""
        return cls(user_bytes(server.pid), kernel_bytes(), slab_caches())

    def since(self, before: Memory, count: int, table_entry_bytes: int) -> dict[str, Any]:
        """What `count` connections took, under stable names.

        A server's memory may grow by less than its table's entries, which lie in pages that were
        there: an entry is what a connection costs at least.
        """
        user, kernel = self.user - before.user, self.kernel - before.kernel
        grown = {name: size - before.caches.get(name, 0) for name, size in self.caches.items()}
        largest = sorted(grown.items(), key=lambda item: -item[1])[:8]
        of_ends = (sum(grown.values()) if grown else kernel) / (2 * count)
        return {
            "user_bytes_per_connection": round(max(user / count, table_entry_bytes), 1),
            "user_growth_bytes": user,
            "table_entry_bytes": table_entry_bytes,
            "kernel_bytes_per_connection": round(of_ends, 1),
            "kernel_growth_bytes": kernel,
            "kernel_caches": {
                name: round(size / (2 * count), 1) for name, size in largest if size > 0
            },
        }


def share(text: str) -> tuple[float, bool]:
    """Reads a share: a number of connections, or a percentage of all.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if value < 0 or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number or a percentage, found {text!r}")
    return value, text.endswith("%")


def divide(options: argparse.Namespace) -> tuple[int, int, int]:
    """How many connections are idle, slow and active.

    Raises:
        SystemExit: they do not add up.
    """

    def count(given: tuple[float, bool]) -> int:
        value, is_percentage = given
        return round(options.connections * value / 100) if is_percentage else round(value)

    slow, active = count(options.slow), count(options.active)
    idle = options.connections - slow - active if options.idle is None else count(options.idle)
    if idle < 0 or active < 1 or idle + slow < 1 or idle + slow + active != options.connections:
        raise SystemExit(
            f"--idle, --slow, --active: expected at least one active connection and one other, "
            f"{options.connections} in all; found {idle} + {slow} + {active}."
        )
    return idle, slow, active


def arguments() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=10000, help="of all kinds (10000)")
    parser.add_argument("--active", type=share, default=(16.0, False), help="N or N%% (16)")
    parser.add_argument("--slow", type=share, default=(0.0, False), help="N or N%% (0)")
    parser.add_argument("--idle", type=share, help="N or N%% (the others)")
    parser.add_argument("--churn", type=float, default=0.0, help="reconnects a second (0)")
    parser.add_argument(
        "--period-ms", type=float, default=1000.0, help="between a slow one's bytes"
    )
    parser.add_argument(
        "--slow-kinds",
        default="frame,head,body",
        help="what a slow one sends: a native ping, an HTTP head, the body of a request",
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="of each phase (4)")
    parser.add_argument("--rounds", type=int, default=5, help="of two phases each (5)")
    parser.add_argument("--model", default="", help="a file or builtin:NAME (SqueezeNet)")
    parser.add_argument("--backend", default="", help="server.io_backend")
    parser.add_argument("--set", action="append", default=[], help="passed on to the servers")
    parser.add_argument("--plot", type=Path, help="an SVG file")
    parser.add_argument("--json", action="store_true")
    return parser


def start_servers(stack: ExitStack, options: argparse.Namespace) -> tuple[LocalServer, LocalServer]:
    """Starts the crowd's server and the quiet one."""
    # With a second's churn, whose old connections the server may not have seen end.
    room = options.connections + BESIDE // 2 + int(options.churn)
    common = [f"--set=server.max_connections={room}", "--set=server.drain_seconds=1"]
    common += [f"--set={override}" for override in options.set]
    if options.backend:
        common.append(f"--set=server.io_backend={options.backend}")
    model = f"--model=bench={options.model or squeezenet()}"
    crowded, quiet = (stack.enter_context(local_server(model, *common)) for _ in range(2))
    return crowded, quiet


def ramp(crowd: Crowd, count: int) -> None:
    """Connects everybody, or as many as will be."""
    crowd.connect()
    until_s = time.monotonic() + _RAMP_LIMIT_S
    while not crowd.is_held() and time.monotonic() < until_s:
        totals = crowd.totals()
        say(f"{totals['connected']} of {count} connected, {totals['failed']} failed")
        time.sleep(0.1)
    time.sleep(_SETTLE_S)


def run(options: argparse.Namespace) -> tuple[dict[str, Any], Turns, Crowd]:
    """The whole measurement.

    Returns:
        What --json prints, and what the plot is made of.
    """
    idle, slow, active = divide(options)
    count = idle + slow
    warmup_s = min(_WARMUP_S, options.seconds)
    shape = Shape(model="bench", connections=active, seconds=options.seconds, warmup_s=warmup_s)
    habits = Habits(slow, options.churn, options.period_ms, options.slow_kinds)
    turns, control = Turns(shape), Turns(shape)
    with ExitStack() as stack:
        server, quiet = start_servers(stack, options)
        for index in range(min(_CONTROL_ROUNDS, options.rounds)):
            control.round(server, quiet, index, "the other server, no crowd yet")
        crowd = stack.enter_context(Crowd(server, count, habits))
        stats_before = read(stats_path(server.port))
        memory_before = Memory.read(server)
        ramp(crowd, count)
        memory = Memory.read(server).since(memory_before, count, crowd.table_entry_bytes)
        held = crowd.totals()
        for index in range(options.rounds):
            turns.round(server, quiet, index, f"beside {crowd.totals()['connected']} others")
        stats = read(stats_path(server.port))
        counters = delta(stats, stats_before).counters["io"]
        crowd.close()
        totals = crowd.totals()
    say("")
    of_kind = {"idle": idle, "slow": slow, "active": active}
    phases = [*turns.quiet, *turns.crowded]
    wrong = sum(phase.load.errors for phase in phases)
    came = held["connected"] + held["away"]  # away: those of the churn that are coming back
    missing = count - came
    result = {
        **{"connections": options.connections, **of_kind, "churn": options.churn},
        "crowd_processes": crowd.process_count,
        "descriptors": connections_per_process() + BESIDE,
        "parked": stats.gauges["io"]["connections_parked"],
        "connected": came + active,
        "failed": held["failed"] + missing,
        "connects_per_second": held["connects_per_second"],
        "connect_us": held["connect_us"],
        **memory,
        "quiet_latency_us": spread(pooled(turns.quiet)),
        "active_latency_us": spread(pooled(turns.crowded)),
        "p50_ratio": middle(turns.ratios(50)),
        "p99_ratio": middle(turns.ratios(99)),
        "p99_ratios": turns.ratios(99),
        "control_p99_ratio": middle(control.ratios(99)),
        "requests": sum(phase.load.requests for phase in phases),
        "errors": wrong + totals["lost"],
        "crowd": totals,
        "server": {name: counters[name] for name in _SERVER_COUNTERS},
        "rounds": options.rounds,
        "seconds": options.seconds,
        "machine": machine(),
    }
    return result, turns, crowd


def figure(ratio: float | None) -> str:
    """A ratio in its column."""
    return f"{'none':>10}" if ratio is None else f"{ratio:10.3f}"


def table(result: dict[str, Any]) -> str:
    """The figures for people, each beside what we hold ourselves to."""
    bound = "<= 1.05" if result["connections"] <= 10000 else "<= 1.10"
    quiet, active = result["quiet_latency_us"], result["active_latency_us"]
    parts = ", ".join(f"{name} {size:.0f}" for name, size in result["kernel_caches"].items())
    lines = [
        f"{result['connected']} of {result['connections']} connected: {result['idle']} idle, "
        f"{result['slow']} slow, {result['active']} active; {result['churn']:g} reconnects/s",
        f"{result['connects_per_second']:10.0f}  >= 20000  connects a second",
        f"{result['user_bytes_per_connection']:10.0f}  <= 512    bytes of the server per "
        f"connection ({result['table_entry_bytes']} are its table's entry)",
        f"{result['kernel_bytes_per_connection']:10.0f}           bytes of the kernel per end of a "
        "connection (both ends are on this machine)",
        f"{'':21}of them: {parts}",
        f"{figure(result['p99_ratio'])}  {bound:8} p99 of the active ones ÷ the same without the "
        "others, median of the rounds",
        f"{figure(result['control_p99_ratio'])}           the same before the others came: what "
        "is noise",
        f"{figure(result['p50_ratio'])}           p50, likewise",
    ]
    for name, values in (("quiet", quiet), ("crowded", active)):
        if values["p50"] is None:
            lines.append(f"{'none':>10}           answers {name}")
        else:
            p50, p99 = values["p50"] / 1e3, values["p99"] / 1e3
            lines.append(f"{p99:10.2f}           ms p99 {name} (p50 {p50:.2f})")
    lines.append(f"{result['errors']:10}  0        errors, {result['failed']} failed connects")
    crowd = result["crowd"]
    if result["slow"]:
        lines.append(
            f"{crowd['answers']:10}           answers to slow ones, {crowd['refusals']} refusals, "
            f"{crowd['shed']} closed by the server"
        )
    if result["parked"]:
        lines.append(
            f"{result['parked']:10}           of the server's connections are parked: a process "
            f"may have {result['descriptors']} descriptors here (ulimit -Hn)"
        )
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Measures, prints, draws. 1 where something failed, or the active ones had no answer."""
    options = arguments().parse_args(words)
    try:
        result, turns, crowd = run(options)
    except (LumenError, RuntimeError) as error:
        print(f"\nc10k: {error}", file=sys.stderr)
        return 1
    if options.plot is not None:
        try:
            from bench.report import c10k_plot

            c10k_plot.draw(
                result, crowd.curve, pooled(turns.quiet), pooled(turns.crowded), options.plot
            )
        except ImportError:
            print("No plot: matplotlib is not installed.", file=sys.stderr)
    print(json.dumps(result, indent=1) if options.json else table(result))
    failed = result["errors"] or result["failed"] or result["p99_ratio"] is None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
