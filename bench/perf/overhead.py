"""`make overhead`: what Lumen adds to ONNX Runtime, measured against a bare C-API Run loop.

Starts a server with SqueezeNet and lets overhead.c take turns, in one run and on the same
cores, between Run alone and rgb8 requests over TCP. Ratios are what to quote: these machines drift.
With `--neighbours 2` two processes that never rest compete for the cores the whole time; below
`setpriv --bounding-set=-sys_nice` a root user's server has no more privilege than anybody's.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from bench.common.local_server import ROOT, LocalServer, local_server, squeezenet
from lumen_uring.loading.model_cache import cache_place, resolve
from lumen_uring.ring import onnxruntime_path

# Name in the C program's answer, what it is, what we hold ourselves to.
_RATIOS = (
    ("one_connection_ratio", "one connection: median round trip / median bare Run", "<= 1.04"),
    ("throughput_ratio", "16 connections: requests/s / (cores / median bare Run)", ">= 0.97"),
    ("throughput_ratio_of_mean", "the same with the mean bare Run", ""),
    ("p99_over_median", "16 connections: p99 / median", "<= 1.15"),
    ("cpu_ratio", "16 connections: server CPU per request / bare CPU per Run", "<= 1.03"),
)


def run_overhead(server: LocalServer, model: str, rounds: int) -> dict[str, float]:
    """Runs overhead.c against a server of SqueezeNet.

    Args:
        server: a running one whose only model is `model`.
        model: an ONNX file or builtin:NAME with an input of 224x224 rgb8.
        rounds: of 40 bare runs, 40 round trips, 1 s of bare runs on all cores, 2 s of full load.

    Returns:
        The figures the program prints.
    """
    runtime = onnxruntime_path.find()
    graph = cache_place(resolve(model), onnxruntime_path.version(runtime)).path
    path = graph if graph is not None and graph.is_file() else resolve(model)
    with tempfile.NamedTemporaryFile() as pixels:
        # Which pixels makes no difference to the time.
        pixels.write(random.Random(1).randbytes(224 * 224 * 3))
        pixels.flush()
        place = ["127.0.0.1", str(server.port), str(server.pid), str(rounds)]
        done = subprocess.run(
            [
                ROOT / "c/build/release/bench/perf/overhead",
                runtime,
                path,
                "0",
                "1",
                "rgb",
                pixels.name,
                *place,
            ],
            stdout=subprocess.PIPE,
            check=True,
        )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@contextmanager
def _busy_neighbours(count: int) -> Iterator[None]:
    """Processes of niceness 0 that compute until the end."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> int:
    """Runs the measurement and prints it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--neighbours", type=int, default=0, help="busy processes beside it")
    parser.add_argument("--set", action="append", default=[], help="passed on to the server")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = squeezenet()
    overrides = [f"--set={override}" for override in options.set]
    with (
        local_server(f"--model=squeezenet={model}", *overrides) as server,
        _busy_neighbours(options.neighbours),
    ):
        figures = run_overhead(server, model, options.rounds)
    if options.json:
        print(json.dumps(figures, indent=1))
        return 0
    print(f"model {model}, {figures['cores']} cores, {figures['requests']} requests under load")
    for name, what, bound in _RATIOS:
        print(f"  {figures.pop(name):10.4f}  {bound:8} {what}")
    for name, value in figures.items():
        print(f"  {value:10.1f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
