"""`python -m bench.load.canary`: what another version costs those who get answers of the main one.

A developer's tool. Servers have two versions of SqueezeNet each. One sends every request to version
1, one a share of them to version 2, the others have it run copies (`traffic`). All get the same
open loop, in turns. The versions are the same file, so the percentiles are of all requests, as the
client saw them: those of version 1 alone are in the statistics, but only to a fifth. It must never
run beside other work.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.common.local_server import LocalServer, local_server, squeezenet
from bench.report.rules import table
from lumen_uring.cli import make_parser
from lumen_uring.commands.bench import make_plan
from lumen_uring.loading.model_cache import resolve
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.load import Load
from lumen_uring.ring.snapshot import delta
from lumen_uring.ring.stats import read, stats_path

PERCENTS: Final = (50.0, 99.0, 99.9)
TRAFFIC: Final = {
    "all to version 1": "{versions: {1: 100}}",
    "one in 20 to version 2": "{versions: {1: 95, 2: 5}}",
    "one in 20 copied to version 2": "{versions: {1: 100}, shadow: 2, shadow_percent: 5}",
    "all copied that find room": "{versions: {1: 100}, shadow: 2, shadow_percent: 100}",
}


def load(server: LocalServer, seconds: float, rate: float) -> tuple[Histogram, int]:
    """16 connections; rate 0: as much as is answered. Returns latencies and their number."""
    words = ["bench", f"--url=http://127.0.0.1:{server.port}", "--model=m", "--connections=16"]
    words += [f"--seconds={seconds}", f"--rate={rate}", "--warmup=0.5"]
    result = Load(make_plan(make_parser().parse_args(words))).wait()
    assert result is not None
    assert result.errors + result.mismatches == 0
    return result.histogram, result.requests


def measure(server: LocalServer, seconds: float, rate: float) -> tuple[Histogram, int]:
    """Latencies under an open loop, and how many requests or copies version 2 had."""
    path = stats_path(server.port)
    before = read(path)
    latencies, _ = load(server, seconds, rate)
    of_other = delta(read(path), before).models["m:2"]
    return latencies, of_other["ok"] + of_other["shadow_ok"]


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--seconds", type=float, default=5.0)
    options.add_argument("--share", type=float, default=0.6, help="of what the server can answer")
    chosen = options.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lumen-canary-") as name:
        folder = Path(name) / "m"
        for version in (1, 2):
            (folder / str(version)).mkdir(parents=True)
            shutil.copy(resolve(squeezenet()), folder / str(version) / "model.onnx")
        (folder / "config.pbtxt").write_text("version_policy: { all {} }")
        words = [str(name), "--set=server.metrics_port=0"]
        with contextlib.ExitStack() as stack:
            servers = {
                of: stack.enter_context(local_server(*words, f"--set=traffic={{m: {rule}}}"))
                for of, rule in TRAFFIC.items()
            }
            rate = chosen.share * load(next(iter(servers.values())), 3.0, 0)[1] / 3.0
            found: dict[str, list[tuple[Histogram, int]]] = {of: [] for of in servers}
            for turn in range(chosen.rounds):
                order = list(servers.items())
                for of, server in order if turn % 2 else reversed(order):
                    print(f"round {turn + 1}: {of}", file=sys.stderr)
                    found[of].append(measure(server, chosen.seconds, rate))
    print(f"{rate:.0f} requests/s, open loop; times without another version")
    print(table(["", "requests", "of version 2", "p50", "p99", "p99.9"], list(_rows(found))))
    return 0


def _rows(found: dict[str, list[tuple[Histogram, int]]]) -> Iterator[list[str]]:
    alone: list[float] = []
    for of, measured in found.items():
        total = measured[0][0]
        for histogram, _ in measured[1:]:
            total = total.plus(histogram)
        us = [total.percentile_ns(percent) / 1e3 for percent in PERCENTS]
        alone = alone or us
        shown = [f"{now:,.0f} µs ({now / then:.2f})" for now, then in zip(us, alone, strict=True)]
        yield [of, f"{total.count:,}", f"{sum(count for _, count in measured):,}", *shown]


if __name__ == "__main__":
    sys.exit(main())
