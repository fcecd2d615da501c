"""`make gil`: what a Python thread that never rests costs a server in the same process.

No Python runs on a request's path, so such a thread should cost what any equally busy program on
the same cores costs, and no more. Two servers take turns: one with a pure-Python endless loop in
its own process, which holds the interpreter's lock all the time, and one beside an endless loop in
a process of its own. Both are saturated by 16 connections with SqueezeNet.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading

from bench.common.local_server import local_server, squeezenet
from bench.perf.overhead import run_overhead

_BUSY = "while True: pass"


def _serve_beside_busy_thread(arguments: list[str]) -> int:
    from lumen_uring.cli import main as lumen

    threading.Thread(target=exec, args=(_BUSY,), daemon=True).start()
    return lumen(arguments)


def _requests_per_second(model: str, in_process: bool) -> float:
    program = ("-m", "bench.perf.gil", "--serve") if in_process else ("-m", "lumen_uring")
    foreign = None if in_process else subprocess.Popen([sys.executable, "-c", _BUSY])
    try:
        with local_server(f"--model=squeezenet={model}", program=program) as server:
            return run_overhead(server, model, rounds=2)["requests_per_second"]
    finally:
        if foreign is not None:
            foreign.kill()
            foreign.wait()


def main() -> int:
    """Measures both in turn and prints the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    model = squeezenet()
    ratios = []
    for turn in range(options.rounds):
        inside, outside = (_requests_per_second(model, in_process) for in_process in (True, False))
        ratios.append(inside / outside)
        print(f"round {turn + 1}: busy thread inside {inside:.1f}/s, outside {outside:.1f}/s")
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(f"inside / outside: median {statistics.median(ratios):.3f} ({spread})")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(_serve_beside_busy_thread(sys.argv[2:]))
    sys.exit(main())
