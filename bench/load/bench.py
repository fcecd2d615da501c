"""`make bench`: every queue and both allocators, in turn, on a large and on a tiny model.

A developer's tool. In every round each mode gets a server of its own, in an order shuffled anew, so
that a machine's drift hits all modes alike; ratios are made inside a round. Measures closed loop
over several numbers of connections, open loop at half of what was reached, and how long a
connection takes. Writes docs/BENCHMARKS.md (bench_page.py), its plots (bench_plots.py) and the
figures themselves (docs/benchmarks/results.json). It must never run beside other work.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from bench.common import mlp
from bench.common.local_server import ROOT, LocalServer, local_server, squeezenet
from bench.common.measure import Measured, Shape, machine, measure, spread_us
from bench.common.options import add_rounds, some_of
from bench.report import bench_page, bench_plots
from lumen_uring.errors import LumenError
from lumen_uring.protocol import native
from lumen_uring.ring.histogram import Histogram
from lumen_uring.settings.schema import EngineConfig

QUEUES: Final[tuple[str, ...]] = tuple(
    word
    for word in get_args(EngineConfig.model_fields["queue_type"].annotation)
    if word != "auto"  # one of the others, by the model
)
ALLOCATORS: Final = ("lumen_arena", "standard")
WORKLOADS: Final = ("squeezenet", "mlp")
# A batch of 4 that waits at most 500 µs: the smallest that can be told from none.
_BATCHED: Final = ("engine.batch_size=4", "engine.batch_delay_us=500")
_OPEN_CONNECTIONS: Final = 64
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class Mode:
    """One setting of the engine."""

    queue: str
    allocator: str

    @property
    def name(self) -> str:
        """As tables show it."""
        return f"{self.queue}, {self.allocator}"

    def settings(self) -> list[str]:
        """As the server's command line takes them."""
        pairs = [f"engine.queue_type={self.queue}", f"engine.allocator_type={self.allocator}"]
        pairs += _BATCHED if self.queue == "batched" else ()
        return [f"--set={pair}" for pair in pairs]


@dataclass(slots=True)
class Cell:
    """All rounds of one mode, workload, loop and number of connections."""

    throughput_rps: list[float | None] = field(default_factory=list)
    cpu_us: list[float | None] = field(default_factory=list)
    latency: Histogram | None = None
    queue: Histogram | None = None
    requests: int = 0
    errors: int = 0
    late: int = 0
    unsent: int = 0
    rows: int = 0
    runs: int = 0
    generator_s: float = 0.0
    wall_s: float = 0.0

    def add(self, measured: Measured) -> None:
        """Takes one round in."""
        load, worker = measured.load, measured.server.counters["worker"]
        waits = measured.server.histograms["queue"]
        self.throughput_rps.append(measured.throughput_rps)
        self.cpu_us.append(measured.cpu_us_per_request)
        self.latency = load.histogram if self.latency is None else self.latency.plus(load.histogram)
        self.queue = waits if self.queue is None else self.queue.plus(waits)
        self.requests += load.requests
        self.errors += load.errors
        self.late += load.late
        self.unsent += load.unsent
        self.rows += worker["rows"]
        self.runs += worker["runs"]
        self.generator_s += load.cpu_seconds
        self.wall_s += load.seconds

    def fill(self, rounds: int) -> None:
        """Marks rounds that failed, so that all lists have one entry per round."""
        missing = [None] * (rounds - len(self.throughput_rps))
        self.throughput_rps += missing
        self.cpu_us += missing

    def as_json(self) -> dict[str, Any]:
        """Figures under stable names; latencies in µs, merged over the rounds."""
        return {
            "throughput_rps": self.throughput_rps,
            "cpu_us_per_request": self.cpu_us,
            "latency_us": None if self.latency is None else spread_us(self.latency),
            "queue_us": None if self.queue is None else spread_us(self.queue),
            "requests": self.requests,
            "errors": self.errors,
            "late": self.late,
            "unsent": self.unsent,
            "rows_per_run": self.rows / self.runs if self.runs else None,
            "generator_share": self.generator_s / self.wall_s if self.wall_s else None,
        }


@dataclass(slots=True)
class Connects:
    """How long connections took, in µs: until connected, and until a first ping was answered."""

    connect: list[float] = field(default_factory=list)
    answer: list[float] = field(default_factory=list)

    def measure(self, port: int, count: int) -> None:
        """Opens and closes connections to an idle server, one after the other.

        Args:
            port: of the server.
            count: how many.
        """
        ping = native.pack_request(native.RequestHeader(native.KIND_PING, 0, 0, 1, 0, 0, 0))
        for _ in range(count):
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                begin = time.perf_counter_ns()
                link.connect(("127.0.0.1", port))
                connected = time.perf_counter_ns()
                link.sendall(ping)
                link.recv(native.REPLY_BYTES, socket.MSG_WAITALL)
                answered = time.perf_counter_ns()
            self.connect.append((connected - begin) / 1e3)
            self.answer.append((answered - begin) / 1e3)

    def as_json(self) -> dict[str, Any]:
        """Mean and p99 of both; µs."""
        return {"connect_us": _spread(self.connect), "answer_us": _spread(self.answer)}


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    ranked = sorted(values)
    rank = max(0, -(-99 * len(ranked) // 100) - 1)
    return {"mean": statistics.fmean(values), "p99": ranked[rank]}


class Matrix:
    """Runs the rounds and holds what came of them.

    Args:
        options: as the command line gave them.
        models: a file or builtin:NAME per workload.
    """

    def __init__(self, options: argparse.Namespace, models: dict[str, str]) -> None:
        self._options = options
        self._models = models
        self._modes = [Mode(q, a) for q in options.queues for a in options.allocators]
        self._cells: dict[tuple[str, Mode, str, int], Cell] = {}
        self._connects: dict[tuple[str, Mode], Connects] = {}
        self._failures: list[str] = []
        self._machine = machine()
        self._done = 0

    def run_round(self, number: int) -> None:
        """One round: every mode on every workload, once.

        Args:
            number: from 0.
        """
        turns = [(load, mode) for load in self._options.workloads for mode in self._modes]
        random.Random(f"{self._options.seed} {number}").shuffle(turns)
        for place, (workload, mode) in enumerate(turns, 1):
            step = f"round {number + 1}/{self._options.rounds}, {place}/{len(turns)}"
            try:
                best = self._run_mode(workload, mode)
                print(f"{step}: {mode.name} on {workload}: {best:,.0f}/s", file=sys.stderr)
            except (LumenError, RuntimeError, OSError) as error:
                self._failures.append(f"{step}: {mode.name} on {workload}: {error}")
                print(self._failures[-1], file=sys.stderr)
        self._done = number + 1
        for cell in self._cells.values():
            cell.fill(self._done)

    def _run_mode(self, workload: str, mode: Mode) -> float:
        """Returns the best throughput."""
        options, model = self._options, self._models[workload]
        best = 0.0
        with local_server(f"--model={workload}={model}", *mode.settings()) as server:
            connects = self._connects.setdefault((workload, mode), Connects())
            connects.measure(server.port, options.connects)
            for connections in options.connections:
                cell = self._measure(server, workload, mode, connections, 0.0)
                best = max(best, cell.throughput_rps[-1] or 0.0)
            if best > 0:
                self._measure(server, workload, mode, _OPEN_CONNECTIONS, best * _HALF)
        return best

    def _measure(
        self, server: LocalServer, workload: str, mode: Mode, connections: int, rate: float
    ) -> Cell:
        options = self._options
        key = (workload, mode, "open" if rate else "closed", connections)
        shape = Shape(
            workload, connections, options.seconds, options.warmup, rate, seed=self._done + 1
        )
        measured = measure(server, shape)
        cell = self._cells.setdefault(key, Cell())
        cell.fill(self._done)
        cell.add(measured)
        return cell

    def as_json(self) -> dict[str, Any]:
        """Everything so far, as results.json holds it and bench_page.py reads it."""
        options = self._options
        cells = [
            {
                **_place(workload, mode),
                "loop": loop,
                "connections": connections,
                **cell.as_json(),
            }
            for (workload, mode, loop, connections), cell in self._cells.items()
        ]
        return {
            "machine": self._machine,
            "models": {name: Path(path).name for name, path in self._models.items()},
            "rounds": self._done,
            "seconds": options.seconds,
            "warmup_s": options.warmup,
            "seed": options.seed,
            "connections": list(options.connections),
            "cells": sorted(cells, key=_order),
            "connects": sorted(
                ({**_place(*key), **found.as_json()} for key, found in self._connects.items()),
                key=_order,
            ),
            "failures": self._failures,
        }


def _place(workload: str, mode: Mode) -> dict[str, str]:
    return {"workload": workload, "queue": mode.queue, "allocator": mode.allocator}


def _order(cell: dict[str, Any]) -> tuple[Any, ...]:
    return (
        WORKLOADS.index(cell["workload"]),
        QUEUES.index(cell["queue"]),
        ALLOCATORS.index(cell["allocator"]),
        cell.get("loop", ""),
        cell.get("connections", 0),
    )


def publish(results: dict[str, Any], out: Path, plots: bool) -> list[str]:
    """Writes results.json, BENCHMARKS.md and the plots.

    Args:
        results: as Matrix.as_json gives them.
        out: the folder docs/, or another one.
        plots: whether to draw.

    Returns:
        What is missing and why, as sentences.
    """
    folder = out / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    said, drawn = [], []
    if plots:
        try:
            drawn = bench_plots.draw(results, folder)
        except ImportError:
            said.append("No plots: matplotlib is not installed (pip install matplotlib).")
    page = out / "BENCHMARKS.md"
    before = page.read_text() if page.is_file() else ""
    page.write_text(bench_page.page(results, [path.name for path in drawn], before))
    return said


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_rounds(found, rounds=5, seconds=2.0, warmup=0.5, connections=[1, 4, 16, 64])
    found.add_argument("--connects", type=int, default=200, help="connections opened per server")
    for name, allowed in (
        ("queues", QUEUES),
        ("allocators", ALLOCATORS),
        ("workloads", WORKLOADS),
    ):
        text = ",".join(allowed)
        found.add_argument(f"--{name}", type=some_of(allowed), default=list(allowed), help=text)
    found.add_argument("--seed", type=int, default=1, help="of the order (%(default)s)")
    found.add_argument("--out", type=Path, default=ROOT / "docs", help="folder (%(default)s)")
    found.add_argument("--short", action="store_true", help="one round of moments: for a try")
    found.add_argument("--no-plots", action="store_true")
    found.add_argument("--report-only", action="store_true", help="from results.json, as it is")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures and publishes; Ctrl-C publishes the rounds that are whole."""
    options = parser().parse_args(arguments)
    if options.short:
        options.rounds, options.seconds, options.warmup = 1, 0.2, 0.05
        options.connections, options.connects = options.connections[:2], 20
    if options.report_only:
        results = json.loads((options.out / "benchmarks" / "results.json").read_text())
    else:
        with tempfile.TemporaryDirectory() as directory:
            small = mlp.write(Path(directory, "mlp.onnx"))
            matrix = Matrix(options, {"squeezenet": squeezenet(), "mlp": str(small)})
            results = {}
            try:
                for number in range(options.rounds):
                    matrix.run_round(number)
                    results = matrix.as_json()
            except KeyboardInterrupt:
                print("stopped", file=sys.stderr)
        if not results:
            return 1
    for sentence in publish(results, options.out, not options.no_plots):
        print(sentence)
    print(f"wrote {options.out / 'BENCHMARKS.md'}")
    return 1 if results["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
