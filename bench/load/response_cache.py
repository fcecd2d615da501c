"""`make response-cache`: what a hit in the response cache saves, and what a miss costs.

A developer's tool. Three servers take turns in every round: without a cache; with one that is asked
more than it holds, in turn, so that every request misses and another answer gives way; and with one
that is asked the same again. One connection, so that latencies are a request's own. Prints a table
in Markdown. It must never run beside other work.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

from bench.common import mlp
from bench.common.local_server import LocalServer, local_server, squeezenet
from bench.common.measure import Shape, measure_plan, plan_of
from bench.common.options import add_rounds
from bench.report.rules import middle
from bench.report.rules import table as make_table

# The work: its heading, model, encoding, and how many requests in turn never hit.
WORK: Final = (
    ("MLP, 256 B", "mlp", "tensors", 512),
    ("SqueezeNet, rgb8, 147 KB", "squeezenet", "rgb8", 32),
    ("SqueezeNet, FP32, 588 KB", "squeezenet", "tensors", 32),
)
_SMALL: Final = ("server.response_cache_bytes=64KiB", "server.io_threads=1")
VARIANTS: Final = ("off", "miss", "hit")


def payloads(encoding: str, size: int, count: int) -> list[bytes]:
    """So many different requests of random values, of a size in bytes."""
    random = np.random.default_rng(1)
    if encoding == "rgb8":
        return [random.bytes(size) for _ in range(count)]
    return [random.standard_normal(size // 4).astype(np.float32).tobytes() for _ in range(count)]


def p50_us(
    server: LocalServer, variant: str, work: tuple[str, str, str, int], options: argparse.Namespace
) -> float:
    """Measures one server once.

    Raises:
        RuntimeError: the cache did not do what the variant is named after.
    """
    _, model, encoding, count = work
    plan = plan_of(server, Shape(model, 1, options.seconds, options.warmup, encoding=encoding))
    bodies = payloads(encoding, len(plan.payloads[0]), count if variant == "miss" else 1)
    measured = measure_plan(server, dataclasses.replace(plan, payloads=bodies))
    io = measured.server.counters["io"]
    seen = {"off": io["cache_hits"] + io["cache_misses"] == 0, "miss": io["cache_hits"] == 0}
    if measured.load.errors or not seen.get(variant, io["cache_misses"] == 0):
        raise RuntimeError(f"{work[0]}, {variant}: {measured.load.errors} errors, {io}")
    return measured.load.histogram.percentile_ns(50.0) / 1e3


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    add_rounds(parser, rounds=3, seconds=1.5, warmup=0.4, connections=(1,))
    options = parser.parse_args(arguments)
    found: dict[tuple[str, str], list[float | None]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        mlp.write(Path(folder) / "mlp.onnx")
        models = (f"--model=mlp={folder}/mlp.onnx", f"--model=squeezenet={squeezenet()}")
        cached = [f"models.{m}.response_cache=true" for m in range(len(models))]
        settings = {"off": [], "miss": [*cached, *_SMALL], "hit": cached}
        servers = {
            name: stack.enter_context(
                local_server(
                    *models,
                    "--set=server.metrics_port=0",
                    *(f"--set={setting}" for setting in settings[name]),
                )
            )
            for name in VARIANTS
        }
        for number in range(options.rounds):
            for work in WORK:
                for name in VARIANTS if number % 2 == 0 else VARIANTS[::-1]:
                    us = p50_us(servers[name], name, work, options)
                    found.setdefault((work[0], name), []).append(us)
                    print(f"round {number + 1}: {work[0]}, {name}: {us:.1f} µs", file=sys.stderr)
    lines = []
    for work in WORK:
        off, miss, hit = (middle(found[work[0], name]) or 0.0 for name in VARIANTS)
        lines.append([work[0], f"{off:,.0f}", f"{hit:,.0f}", f"{off / hit:.1f}", f"{miss:,.0f}"])
    print(make_table(["request", "no cache, p50 µs", "hit", "times faster", "miss"], lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
