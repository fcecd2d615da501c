"""The process of one check of a model: what it is told, what it says, and its end.

prepare.py begins one, either alone, as a Python that starts anew, or forked by a nursery
(nursery.py). Any thread may kill it; the others of its functions belong to the thread that began
it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol


class Files(NamedTuple):
    """Descriptors of memory: a check's standard input, output and error output."""

    told: int
    said: int
    trouble: int

    def read(self) -> tuple[bytes, bytes]:
        """The output that the check wrote, and its error output."""
        with open(self.said, "rb", closefd=False) as said:
            said.seek(0)
            with open(self.trouble, "rb", closefd=False) as trouble:
                trouble.seek(0)
                return said.read(), trouble.read()


@contextmanager
def files(spec: bytes) -> Iterator[Files]:
    """Memory for what a check is told and says, which needs nobody that reads meanwhile.

    Args:
        spec: its standard input.

    Raises:
        OSError: there is no descriptor, or no memory.
    """
    opened: list[int] = []
    try:
        for name in Files._fields:
            opened.append(os.memfd_create(f"lumen-{name}", os.MFD_CLOEXEC))  # noqa: PERF401
        with open(opened[0], "wb", closefd=False) as told:
            told.write(spec)
        os.lseek(opened[0], 0, os.SEEK_SET)
        yield Files(*opened)
    finally:
        for descriptor in opened:
            os.close(descriptor)


class Check(Protocol):
    """One that runs."""

    @property
    def pid(self) -> int:
        """Of the process whose CPU time is the check's."""

    def wait(self, timeout_s: float) -> int | None:
        """Waits for its end.

        Returns:
            Its exit status, below 0 a signal; None: it has not ended yet.

        Raises:
            OSError: nobody can tell any more.
        """

    def kill(self) -> None:
        """Ends it, if it has not ended yet. Its end must still be waited for."""

    def end(self) -> None:
        """Ends it, whatever hangs, and waits for that."""


class Alone:
    """A check in a process that starts anew. It has the priority of the calling thread.

    Args:
        module: what it runs.
        told: its files.

    Raises:
        OSError: there is no process.
    """

    def __init__(self, module: str, told: Files) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=told.told, stdout=told.said, stderr=told.trouble
        )
        self.pid = self._process.pid

    def wait(self, timeout_s: float) -> int | None:
        """As Check has it."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def kill(self) -> None:
        """As Check has it."""
        self._process.kill()

    def end(self) -> None:
        """As Check has it."""
        self._process.kill()
        self._process.wait()
