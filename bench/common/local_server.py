"""A server of its own for a measurement: started, waited for, stopped.

Used by the benchmarks and by tools/, from a checkout. The server is a process of its own in a
session of its own, as a user would run it; nothing of it runs in the measuring process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.common.places import pinned

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = ROOT.parent / "shared"
TRAINED_SQUEEZENET: Final = SHARED / "models" / "squeezenet" / "model.onnx"
_NOTE: Final = re.compile(r" +note ")
_ADDRESS: Final = re.compile(r"serves on \S+:(\d+)")


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running server: its process id, its port, and seconds from its start to its banner.

    `notes` are the banner's: what it could not honour, among others.
    """

    pid: int
    port: int
    ready_s: float
    notes: tuple[str, ...] = ()


def squeezenet() -> str:
    """The trained SqueezeNet where it is at hand, else the builtin one: the same architecture."""
    return str(TRAINED_SQUEEZENET) if TRAINED_SQUEEZENET.is_file() else "builtin:squeezenet"


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
        notes = tuple(line.split(maxsplit=1)[1].strip() for line in said if _NOTE.match(line))
        yield LocalServer(process.pid, port, time.monotonic() - began_s, notes)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
