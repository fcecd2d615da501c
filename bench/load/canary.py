"""`python -m bench.load.canary`: what a share of another version costs those of the main one.

A developer's tool. Two servers have two versions of SqueezeNet each; one sends every request to
version 1, the other one in twenty to version 2 (`traffic`). Both get the same open loop, in turns.
The versions are the same file, so the percentiles are of all requests, as the client saw them:
those of version 1 alone are in the statistics, but only to a fifth. It must never run beside other
work.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
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
SHARES: Final = ("all to version 1", "one in 20 to version 2")


def load(server: LocalServer, seconds: float, rate: float) -> tuple[Histogram, int]:
    """16 connections; rate 0: as much as is answered. Returns latencies and their number."""
    words = ["bench", f"--url=http://127.0.0.1:{server.port}", "--model=m", "--connections=16"]
    words += [f"--seconds={seconds}", f"--rate={rate}", "--warmup=0.5"]
    result = Load(make_plan(make_parser().parse_args(words))).wait()
    assert result is not None
    assert result.errors + result.mismatches == 0
    return result.histogram, result.requests


def measure(server: LocalServer, seconds: float, rate: float) -> tuple[Histogram, int]:
    """Latencies under an open loop, and how many requests version 2 had."""
    path = stats_path(server.port)
    before = read(path)
    latencies, _ = load(server, seconds, rate)
    return latencies, delta(read(path), before).models["m:2"]["ok"]


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
        with (
            local_server(*words, "--set=traffic={m: {versions: {1: 100}}}") as plain,
            local_server(*words, "--set=traffic={m: {versions: {1: 95, 2: 5}}}") as canary,
        ):
            rate = chosen.share * load(plain, 3.0, 0)[1] / 3.0
            found: dict[str, list[tuple[Histogram, int]]] = {of: [] for of in SHARES}
            for turn in range(chosen.rounds):
                pairs = list(zip(SHARES, (plain, canary), strict=True))
                for of, server in pairs if turn % 2 else reversed(pairs):
                    print(f"round {turn + 1}: {of}", file=sys.stderr)
                    found[of].append(measure(server, chosen.seconds, rate))
    rows, us = [], []
    for of, measured in found.items():
        total = measured[0][0]
        for histogram, _ in measured[1:]:
            total = total.plus(histogram)
        us.append([total.percentile_ns(percent) / 1e3 for percent in PERCENTS])
        others = sum(count for _, count in measured)
        rows.append(
            [of, f"{total.count:,}", f"{others:,}", *(f"{value:,.0f} µs" for value in us[-1])]
        )
    ratios = [f"{b / a:.2f}" for a, b in zip(*us, strict=True)]
    print(f"{rate:.0f} requests/s, open loop")
    print(table(["", "requests", "of version 2", "p50", "p99", "p99.9"], rows))
    print(f"With a canary ÷ without: {', '.join(ratios)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
