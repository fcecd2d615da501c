"""`make floor`: Lumen beside the least a server can do, in one run, on the same cores.

A developer's tool. The floor is floor.c: an epoll loop per core that receives the same bytes, calls
the same Run and sends the same answer, without admission, deadlines, statistics or other dialects.
Lumen serves the same model inline, with the queue, and with its defaults, with ONNX Runtime too.
All servers are there at once and take turns under one load generator; ratios are made inside a
round. Every answer under load is compared with Lumen's. It must never run beside other work.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.common import mlp
from bench.common.local_server import ROOT, local_server
from bench.common.measure import Shape, machine, plan_of, process_cpu_s, start
from bench.common.options import add_rounds
from bench.common.places import PLACES, find, pinned
from bench.report.rules import Ratio, amount, middle, paired, plural, table
from lumen_uring import Client
from lumen_uring.errors import LumenError
from lumen_uring.protocol.describe import DTYPES
from lumen_uring.ring import onnxruntime_path
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.load import LoadPlan

FLOOR: Final = "floor"
MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "inline": ("--set=engine.queue_type=inline",),
    "queue": ("--set=engine.queue_type=mpmc",),
    "defaults": (),
}
# As the floor has them: no port for metrics, and ONNX Runtime's answers to the bit.
_SAME_WORK: Final = ("--set=server.metrics_port=0", "--set=models.0.engine=onnxruntime")
_PROGRAM: Final = ROOT / "c/build/release/bench/perf/floor"
_HEADS: Final = (
    *("connections", "server", "requests/s", "p50 µs", "p99 µs", "CPU µs/request"),
    *("requests/s ÷ floor", "CPU ÷ floor", "generator", "errors"),
)


@dataclass(slots=True)
class Cell:
    """One server under one number of connections: a figure per round, None for a failed one."""

    rps: list[float | None] = field(default_factory=list)
    cpu_us: list[float | None] = field(default_factory=list)
    generator: list[float | None] = field(default_factory=list)
    histogram: Histogram | None = None
    errors: int = 0

    def add(self, plan: LoadPlan, pid: int) -> None:
        """Runs one load on a server and takes its figures in."""
        load = start(plan)
        before_s = process_cpu_s(pid)
        result = load.wait()
        cpu_s = process_cpu_s(pid) - before_s
        assert result is not None
        fine = result.requests > 0 and result.trouble is None
        self.rps.append(result.requests / result.seconds if fine else None)
        self.cpu_us.append(cpu_s * 1e6 / result.requests if fine else None)
        self.generator.append(result.cpu_seconds / result.seconds if fine else None)
        self.errors += result.errors
        found = result.histogram
        self.histogram = found if self.histogram is None else self.histogram.plus(found)

    def as_json(self) -> dict[str, Any]:
        """Figures under stable names; requests/s, CPU and the generator's share per round."""
        there = self.histogram if self.histogram is not None and self.histogram.count else None
        return {
            "throughput_rps": self.rps,
            "cpu_us_per_request": self.cpu_us,
            "generator_cores": self.generator,
            "p50_us": None if there is None else there.percentile_ns(50.0) / 1e3,
            "p99_us": None if there is None else there.percentile_ns(99.0) / 1e3,
            "errors": self.errors,
        }


@contextmanager
def floor_server(model: Path, cores: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Runs floor.c on a free port.

    Args:
        model: an ONNX file with one input and one output.
        cores: those it may use; one thread on each.

    Yields:
        Its process id and its port.

    Raises:
        RuntimeError: it ended before it listened; it said why on stderr.
    """
    with pinned(cores):
        process = subprocess.Popen(
            [_PROGRAM, onnxruntime_path.find(), model], stdout=subprocess.PIPE, text=True
        )
    assert process.stdout is not None
    try:
        word, _, port = process.stdout.readline().partition(" ")
        if word != "port":
            raise RuntimeError("the floor did not start")
        yield process.pid, int(port)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def answers(plan: LoadPlan, model: str) -> list[bytes]:
    """What a server of Lumen answers to each payload of a plan.

    Args:
        plan: of tensors, to that server.
        model: its name there; it has one input and one output.
    """
    with Client(plan.host, plan.port) as client:
        (tensor,), (output,) = client.models()[model].inputs, client.models()[model].outputs
        shape = (plan.rows, *tensor.shape[1:])
        return [
            client.infer(
                model, {tensor.name: np.frombuffer(payload, DTYPES[tensor.datatype]).reshape(shape)}
            )
            .outputs[output.name]
            .tobytes()
            for payload in plan.payloads
        ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs all rounds.

    Args:
        options: as the command line gave them.

    Returns:
        Everything under stable names.

    Raises:
        LumenError: a server refused.
        RuntimeError: a server did not start.
    """
    place = find(options.place)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = mlp.write(Path(folder, "mlp.onnx"))
        pid, port = stack.enter_context(floor_server(path, place.server))
        servers = {FLOOR: (pid, port)}
        for mode, settings in MODES.items():
            chosen = [*_SAME_WORK, *settings, *options.set]
            server = stack.enter_context(
                local_server(f"--model=mlp={path}", *chosen, cores=place.server)
            )
            servers[mode] = (server.pid, server.port)
        plans = {}
        for count in options.connections:
            shape = Shape(
                *("mlp", count, options.seconds, options.warmup),
                encoding="tensors",
                cpu=place.client,
                poll_us=options.poll_us,
            )
            plan = plan_of(server, shape)
            plans[count] = replace(plan, expected=answers(plan, "mlp"))
        cells = {(count, name): Cell() for count in plans for name in servers}
        for number in range(options.rounds):
            print(f"round {number + 1}/{options.rounds}", file=sys.stderr)
            for count, plan in plans.items():
                names = list(servers) if number % 2 == 0 else list(servers)[::-1]
                for name in names:
                    pid, port = servers[name]
                    cells[count, name].add(replace(plan, port=port), pid)
    rows = [
        {"connections": count, "server": name, **cell.as_json()}
        for (count, name), cell in cells.items()
    ]
    about = {"machine": machine(), "place": place.words, "poll_us": options.poll_us}
    return {**about, "rounds": options.rounds, "seconds": options.seconds, "rows": rows}


def ratio(results: Mapping[str, Any], row: Mapping[str, Any], figure: str) -> Ratio | None:
    """A row's figure to the floor's over as many connections, made inside each round."""
    for other in results["rows"]:
        if (other["connections"], other["server"]) == (row["connections"], FLOOR):
            return paired(row[figure], other[figure])
    return None


def report(results: Mapping[str, Any]) -> str:
    """Makes text of the results.

    Args:
        results: as `measure` gives them.

    Returns:
        Markdown.
    """
    about = results["machine"]
    lines = []
    for row in results["rows"]:
        cpu, generator = middle(row["cpu_us_per_request"]), middle(row["generator_cores"])
        lines.append(
            [
                *(str(row["connections"]), row["server"], amount(middle(row["throughput_rps"]))),
                *(amount(row["p50_us"]), amount(row["p99_us"]), amount(cpu)),
                *_ratios(results, row),
                "-" if generator is None else f"{generator:.0%}",
                str(row["errors"]),
            ]
        )
    head = (
        f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, ONNX Runtime "
        f"{about['onnxruntime']}, {about['date']}; {results['place']}; the generator looks "
        f"{results['poll_us']} µs before it sleeps; {plural(results['rounds'], 'round')} of "
        f"{results['seconds']:g} s. Figures are medians of the rounds, ratios medians of the "
        "rounds' ratios with their range, percentiles of all rounds together. Generator: the "
        "share of a core it used; where it is near 100 % it is what limits, and the ratio of CPU "
        "per request says more."
    )
    return f"{head}\n\n{table(_HEADS, lines)}"


def _ratios(results: Mapping[str, Any], row: Mapping[str, Any]) -> Sequence[str]:
    if row["server"] == FLOOR:
        return "1", "1"
    found = [ratio(results, row, name) for name in ("throughput_rps", "cpu_us_per_request")]
    return [
        "-" if one is None else f"{one.middle:.2f} ({one.low:.2f}-{one.high:.2f})" for one in found
    ]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    add_rounds(found, rounds=9, seconds=1.0, warmup=0.2, connections=[1, 16, 64])
    found.add_argument(
        "--poll-us", type=int, default=0, help="the generator looks so long before it sleeps"
    )
    found.add_argument("--place", choices=PLACES, default="one-core", help="(%(default)s)")
    found.add_argument("--set", action="append", default=[], help="passed on to Lumen's servers")
    found.add_argument("--json", action="store_true", help="as one JSON object")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    options = parser().parse_args(arguments)
    options.set = [f"--set={setting}" for setting in options.set]
    try:
        results = measure(options)
    except (LumenError, RuntimeError, OSError) as error:
        print(f"floor: {error}", file=sys.stderr)
        return 1
    print(json.dumps(results, indent=1) if options.json else report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
