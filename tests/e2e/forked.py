"""Servers and commands forked from a process that has imported their Python already.

Importing takes most of their start, and the tests start more than a thousand. What is forked runs
the same command line: from its parsing to the process's end everything is its own. For servers that
need nothing before Python is there: no other command in front, no variable the loader reads.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Final, NoReturn

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_AHEAD: Final = "imported"  # imported.py


@cache
def _start_origin() -> None:
    """Starts the process that all are forked from, and has it find the tests' own modules."""
    _CONTEXT.set_forkserver_preload([_AHEAD])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class Forked:
    """One of them: as much of subprocess.Popen as the tests use."""

    def __init__(
        self, arguments: Sequence[str], environment: dict[str, str], stdout: str, stderr: str
    ) -> None:
        """`stdout` and `stderr` are the paths of files that are there."""
        _start_origin()
        self._arguments = list(arguments)
        self._process = _CONTEXT.Process(
            target=_main, args=(self._arguments, environment, stdout, stderr)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: Final = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._arguments, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def run_forked(
    arguments: Sequence[str], environment: dict[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Runs a command that ends by itself, as subprocess.run does with captured output."""
    with tempfile.NamedTemporaryFile() as stdout, tempfile.NamedTemporaryFile() as stderr:
        process = Forked(arguments, environment, stdout.name, stderr.name)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        said = [Path(file.name).read_text() for file in (stdout, stderr)]
    return subprocess.CompletedProcess(list(arguments), code, *said)


def _main(arguments: list[str], environment: dict[str, str], stdout: str, stderr: str) -> NoReturn:
    from lumen_uring.cli import main

    assert _AHEAD in sys.modules, "imported.py was not imported"
    gc.freeze()  # what is imported stays, and is shared: nobody looks at it again
    for number, path in ((1, stdout), (2, stderr)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    code = main(arguments)
    sys.stdout.flush()
    # Not Python's way out of a fork, which leaves out what C libraries do at the end.
    ctypes.CDLL(None).exit(code)
    raise AssertionError("exit() came back")
