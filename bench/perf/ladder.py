"""`make ladder`: from a plain Python server to Lumen, one technique at a time.

A developer's tool. All rungs serve the same boosted trees and are asked by the same load generator,
which has a core of its own and never sleeps. All servers are there at once, and all but one are
stopped (SIGSTOP); each round measures every rung, in an order shuffled anew, and every answer under
load is compared. A rung is compared with the rung it stands on. With --page it makes
docs/LATENCY.md and its picture. It must never run beside other work.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime  # type: ignore[import-untyped,unused-ignore]

from bench.common import trees
from bench.common.local_server import ROOT
from bench.common.measure import machine, machine_cpu_s, start
from bench.common.options import add_rounds
from bench.common.places import find, pinned
from bench.peers.install import PeerMissingError
from bench.peers.servers import Array, session_cpu_s
from bench.perf.ladder_rungs import STEPS, LoadShape, Rung, Running, Step, rungs, started
from bench.report.ladder_figures import PERCENTS, difference
from bench.report.ladder_plot import draw
from bench.report.ladder_table import report, with_report
from lumen_uring.errors import LumenError
from lumen_uring.ring.load import LoadPlan, LoadResult

PAGE: Final = ROOT / "docs" / "LATENCY.md"
PLOT: Final = ROOT / "docs" / "benchmarks" / "ladder.svg"
QUIET: Final = 0.08  # of a core: about as fine as the kernel's ticks tell
_ROWS: Final = 16
_CLOSE: Final = 1e-4  # float32 sums of 500 leaves, in another order


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One load: its result, the server's CPU seconds, and the cores that others used meanwhile."""

    result: LoadResult
    cpu_s: float
    others: float

    @classmethod
    def take(cls, plan: LoadPlan, pid: int) -> Sample:
        """Runs a load on the server of that process.

        Raises:
            RuntimeError: it ended early.
        """
        load = start(plan)
        before_s, all_before_s = session_cpu_s(pid), machine_cpu_s()
        result = load.wait()
        cpu_s, all_s = session_cpu_s(pid) - before_s, machine_cpu_s() - all_before_s
        assert result is not None
        if not result.requests or result.trouble:
            raise RuntimeError(f"the load ended early: {result.trouble or 'no answers'}")
        others_s = max(0.0, all_s - cpu_s - result.cpu_seconds)
        return cls(result, cpu_s, others_s / result.seconds)


@dataclass(slots=True)
class Cell:
    """One rung under one number of connections: a sample per round."""

    samples: list[Sample] = field(default_factory=list)

    @property
    def latency_us(self) -> dict[str, list[float]]:
        """Percentiles of each round's round trips."""
        histograms = [sample.result.histogram for sample in self.samples]
        return {
            name: [histogram.percentile_ns(percent) / 1e3 for histogram in histograms]
            for name, percent in PERCENTS.items()
        }


Cells = dict[tuple[str, str], Cell]  # by load and rung


class Ladder:
    """A run: its rungs, its rows with their answers, and what was measured so far."""

    def __init__(self, options: argparse.Namespace, model: Path, steps: Sequence[Step]) -> None:
        self._options, self._model = options, model
        self.rungs, self.missing = rungs(steps)
        values = np.random.default_rng(1).random((_ROWS, trees.FEATURES), np.float32)
        self._rows: Array = values
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self._expected: Array = session.run(None, {"x": values})[0][:, 0]
        self.repeats = 0
        self._patient_until_s = time.monotonic() + options.patience
        self._running: dict[str, Running] = {}
        self.notes: dict[str, tuple[str, ...]] = {}
        self.loads = [LoadShape(count) for count in options.connections]
        self.loads += [LoadShape(1, options.rate)] if options.rate else []
        self.cells: Cells = {
            (load.name, rung.name): Cell() for load in self.loads for rung in self.rungs
        }

    def start(self, stack: ExitStack) -> None:
        """Starts all servers and checks their answers; they end with the stack.

        Raises:
            LumenError, PeerMissingError, RuntimeError: a rung could not be started.
        """
        for rung in self.rungs:
            print(f"starting {rung.name}", file=sys.stderr)
            running = stack.enter_context(started(rung, self._model, self._rows))
            self._check(rung, running)
            self.notes[rung.name] = running.notes
            self._running[rung.name] = running
            os.killpg(running.pid, signal.SIGSTOP)
            stack.callback(os.killpg, running.pid, signal.SIGCONT)

    def run_round(self, number: int) -> None:
        """Measures every rung once.

        Args:
            number: of the round, from 0.

        Raises:
            LumenError, RuntimeError: a rung could not be measured.
        """
        options = self._options
        print(f"round {number + 1}/{options.rounds}", file=sys.stderr)
        for rung in random.Random(f"{options.seed} {number}").sample(self.rungs, len(self.rungs)):
            running = self._running[rung.name]
            os.killpg(running.pid, signal.SIGCONT)
            for load in self.loads:
                try:
                    sample = self._sample(running, load)
                except RuntimeError as error:
                    raise RuntimeError(f"{rung.name}, {load.name}: {error}") from error
                self.cells[load.name, rung.name].samples.append(sample)
            os.killpg(running.pid, signal.SIGSTOP)

    def _sample(self, running: Running, load: LoadShape) -> Sample:
        """The first undisturbed sample, or the least disturbed one when patience ends."""
        options = self._options
        cpu = find("one-core").client
        plan = running.plan(load, options.seconds, options.warmup, options.requests, cpu)
        best = Sample.take(plan, running.pid)
        while best.others > QUIET and time.monotonic() < self._patient_until_s:
            best = min(best, Sample.take(plan, running.pid), key=lambda sample: sample.others)
            self.repeats += 1
        return best

    def _check(self, rung: Rung, running: Running) -> None:
        if not np.allclose(running.values, self._expected, rtol=_CLOSE, atol=_CLOSE):
            raise RuntimeError(f"{rung.name}: a wrong answer: nothing was timed.")

    def as_json(self) -> dict[str, Any]:
        """Everything under stable names."""
        options = self._options
        return {
            "machine": machine(),
            "model": f"{trees.TREES} trees of depth {trees.DEPTH}, {trees.FEATURES} features",
            "rounds": len(next(iter(self.cells.values())).samples),
            "starts": options.starts,
            "seconds": options.seconds,
            "loads": [load.name for load in self.loads],
            "missing": self.missing,
            "repeats": self.repeats,
            "others_cores": [
                sample.others for cell in self.cells.values() for sample in cell.samples
            ],
            "rungs": [
                {
                    "name": rung.name,
                    "change": rung.change,
                    "base": rung.base,
                    "claim_ms": rung.step.claim_ms,
                    "settings": dict(rung.settings),
                    "notes": self.notes[rung.name],
                }
                for rung in self.rungs
            ],
            "rows": [self._row(load.name, rung) for load in self.loads for rung in self.rungs],
        }

    def _row(self, load: str, rung: Rung) -> Mapping[str, Any]:
        cell = self.cells[load, rung.name]
        results = [sample.result for sample in cell.samples]
        base = None if rung.base is None else self.cells[load, rung.base].latency_us
        latency_us = cell.latency_us
        return {
            "load": load,
            "rung": rung.name,
            "requests": sum(result.requests for result in results),
            "errors": sum(result.errors + result.mismatches for result in results),
            "throughput_rps": [result.requests / result.seconds for result in results],
            "cpu_us_per_request": [
                sample.cpu_s * 1e6 / sample.result.requests for sample in cell.samples
            ],
            "latency_us": latency_us,
            "brought_us": {
                name: asdict(difference(values, base[name]))
                for name, values in latency_us.items()
                if base is not None
            },
        }


def measure(options: argparse.Namespace, steps: Sequence[Step] = STEPS) -> dict[str, Any]:
    """Runs all rounds; Ctrl-C ends them and leaves those that are whole.

    Args:
        options: as the command line gave them.
        steps: from the lowest rung.

    Returns:
        As Ladder.as_json gives it; empty without a whole round.

    Raises:
        LumenError, PeerMissingError, RuntimeError: a rung could not be measured.
    """
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, pinned(find("all-cores").server):
        ladder = Ladder(options, trees.write(Path(folder, "trees.onnx")), steps)
        for name, setting in ladder.missing.items():
            print(f"{name}: left out, this Lumen has no {setting}", file=sys.stderr)
        try:
            for part in range(options.starts):
                with ExitStack() as stack:
                    ladder.start(stack)
                    for number in range(part, options.rounds, options.starts):
                        ladder.run_round(number)
                        results = ladder.as_json()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
    return results


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    add_rounds(found, rounds=8, seconds=0.35, warmup=0.1, connections=[1, 8])
    found.add_argument(
        "--rate",
        type=float,
        default=1000.0,
        metavar="R",
        help="open loop over one connection: requests a second (%(default)s); 0: none",
    )
    found.add_argument(
        "--starts", type=int, default=2, help="how often all servers start anew (%(default)s)"
    )
    found.add_argument(
        "--requests", type=int, default=0, metavar="N", help="per figure, instead of seconds"
    )
    found.add_argument(
        "--patience",
        type=float,
        default=180.0,
        metavar="S",
        help="for so long a figure is taken again where other processes used more than "
        f"{QUIET:.0%} of a core meanwhile (%(default)s)",
    )
    found.add_argument("--seed", type=int, default=1, help="of the order (%(default)s)")
    found.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    found.add_argument("--page", action="store_true", help="make docs/LATENCY.md and its picture")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints and writes."""
    options = parser().parse_args(arguments)
    try:
        results = measure(options)
    except (LumenError, PeerMissingError, RuntimeError, OSError) as error:
        print(f"ladder: {error}", file=sys.stderr)
        return 1
    if not results:
        return 1
    text = report(results)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.page:
        draw(results, PLOT)
        PAGE.write_text(with_report(PAGE.read_text(), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
