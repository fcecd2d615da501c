"""`make overhead`: what Lumen adds to ONNX Runtime, measured against a bare C-API Run loop.

Starts a server with SqueezeNet and lets tools/overhead.c take turns, in one run and on the same
cores, between Run alone and rgb8 requests over TCP. Ratios are what to quote: these machines drift.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from local_server import ROOT, local_server, squeezenet

from lumen_uring.model_cache import cache_place, resolve
from lumen_uring.ring import onnxruntime_path

_IMAGE_BYTES = 224 * 224 * 3
# Name in the C program's answer, what it is, what we hold ourselves to.
_ROWS = (
    ("one_connection_ratio", "one connection: median round trip / median bare Run", "<= 1.04"),
    ("throughput_ratio", "16 connections: requests/s / (cores / median bare Run)", ">= 0.97"),
    ("throughput_ratio_of_mean", "the same with the mean bare Run", ""),
    ("p99_over_median", "16 connections: p99 / median", "<= 1.15"),
    ("cpu_ratio", "16 connections: server CPU per request / bare CPU per Run", "<= 1.03"),
)


def _pixels() -> bytes:
    """One image's worth of bytes; which ones makes no difference to the time."""
    value, pixels = 1, bytearray()
    for _ in range(_IMAGE_BYTES):
        value = value * 1103515245 + 12345 & 0x7FFFFFFF
        pixels.append(value >> 16 & 0xFF)
    return bytes(pixels)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--set", action="append", default=[], help="passed on to the server")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    subprocess.run(["make", "-s", "-C", str(ROOT / "c"), "lib", "tools"], check=True)
    runtime = onnxruntime_path.find()
    model = squeezenet()
    graph = cache_place(resolve(model), onnxruntime_path.version(runtime)).path
    overrides = [f"--set={override}" for override in options.set]
    with (
        local_server(f"--model=squeezenet={model}", *overrides) as server,
        tempfile.NamedTemporaryFile() as pixels,
    ):
        pixels.write(_pixels())
        pixels.flush()
        done = subprocess.run(
            [
                ROOT / "c/build/release/overhead",
                runtime,
                graph if graph is not None and Path(graph).is_file() else resolve(model),
                "0",
                "1",
                "rgb",
                pixels.name,
                "127.0.0.1",
                str(server.port),
                str(server.pid),
                str(options.rounds),
            ],
            stdout=subprocess.PIPE,
            check=True,
        )
    figures = json.loads(done.stdout)
    if options.json:
        print(json.dumps(figures, indent=1))
        return 0
    print(
        f"model {model}, ONNX Runtime {onnxruntime_path.version(runtime)}, {figures['cores']} cores"
    )
    for name, what, bound in _ROWS:
        print(f"  {figures[name]:7.4f}  {bound:8}  {what}")
    for name in (
        "bare_run_us",
        "round_trip_us",
        "bare_run_all_cores_us",
        "requests_per_second",
        "p50_us",
        "p99_us",
        "cpu_us_per_request",
        "bare_cpu_us",
        "requests",
    ):
        print(f"  {figures[name]:10.1f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
