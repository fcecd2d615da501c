"""`make memory`: what a server of SqueezeNet holds in memory with 1, 2 and 8 workers, and how long
it takes from its start to ready, with the optimised graph in the cache and without.

Resident memory is split as the kernel accounts it: Pss_Anon (the heap, ONNX Runtime's activations,
the arena) and Pss_File (the libraries and the mapped weights). Each is read twice: when the server
is ready, and after every worker has answered requests.
"""

from __future__ import annotations

import os
import sys
import tempfile

import numpy as np

from bench.common.local_server import LocalServer, local_server, squeezenet
from bench.common.measure import memory_mib
from lumen_uring import Client

_WORKERS = (1, 2, 8)
_FIELDS = ("Rss", "Pss_Anon", "Pss_File")


def _use(server: LocalServer, requests: int) -> None:
    image = np.zeros((224, 224, 3), dtype=np.uint8)
    with Client("127.0.0.1", server.port) as client:
        for _ in range(requests):
            client.infer_rgb8("squeezenet", image)


def _row(model: str, workers: int, label: str) -> None:
    options = (f"--model=squeezenet={model}", f"--set=engine.thread_count={workers}")
    with local_server(*options) as server:
        ready = memory_mib(server.pid)
        _use(server, 8 * workers)
        used = memory_mib(server.pid)
        cells = "".join(f"{ready[name]:10.1f}{used[name]:8.1f}" for name in _FIELDS)
        print(f"{workers:7}  {label:6}{server.ready_s:8.2f}{cells}")


def main() -> int:
    """Prints a row per number of workers."""
    model = squeezenet()
    print(f"model {model}; MiB at ready and after use")
    heads = "".join(f"{name:>10}{'used':>8}" for name in _FIELDS)
    print(f"workers  cache  ready s{heads}")
    with tempfile.TemporaryDirectory() as empty:
        kept = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = empty
        _row(model, 2, "empty")
        del os.environ["XDG_CACHE_HOME"]
        if kept is not None:
            os.environ["XDG_CACHE_HOME"] = kept
    for workers in _WORKERS:
        _row(model, workers, "warm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
