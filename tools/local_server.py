"""A server of its own for a measurement: started, waited for, stopped.

Used by the other tools of this folder, from a checkout. The server is a process of its own in a
session of its own, as a user would run it; nothing of it runs in the measuring process.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from places import pinned

from lumen_uring.model_cache import cache_place, resolve
from lumen_uring.ring import onnxruntime_path

ROOT: Final = Path(__file__).resolve().parent.parent
SHARED: Final = ROOT.parent / "shared"
TRAINED_SQUEEZENET: Final = SHARED / "models" / "squeezenet" / "model.onnx"
_ADDRESS: Final = re.compile(r"serves on \S+:(\d+)")


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running server: its process id, its port, and seconds from its start to its banner."""

    pid: int
    port: int
    ready_s: float


def squeezenet() -> str:
    """The trained SqueezeNet where it is at hand, else the builtin one: the same architecture."""
    return str(TRAINED_SQUEEZENET) if TRAINED_SQUEEZENET.is_file() else "builtin:squeezenet"


def run_overhead(server: LocalServer, model: str, rounds: int) -> dict[str, float]:
    """Runs tools/overhead.c against a server of SqueezeNet.

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
                ROOT / "c/build/release/overhead",
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
def local_server(
    *arguments: str,
    program: Sequence[str] = ("-m", "lumen_uring"),
    cores: Iterable[int] | None = None,
) -> Iterator[LocalServer]:
    """Runs `python -m lumen_uring` on a free port.

    Args:
        arguments: further ones, as on the command line.
        program: what Python runs instead of the module, given the same arguments.
        cores: those it may use; None: the caller's.

    Yields:
        The server, ready.

    Raises:
        RuntimeError: it ended before it was ready; the message holds what it said.
    """
    began_s = time.monotonic()
    with pinned(os.sched_getaffinity(0) if cores is None else cores):
        process = subprocess.Popen(
            [sys.executable, *program, "--port", "0", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    assert process.stdout is not None
    said: list[str] = []
    port = None
    try:
        for line in process.stdout:
            said.append(line)
            if found := _ADDRESS.search(line):
                port = int(found.group(1))
            if line.startswith("Try:"):
                break
        if port is None:
            raise RuntimeError("the server did not start:\n" + "".join(said))
        yield LocalServer(process.pid, port, time.monotonic() - began_s)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
