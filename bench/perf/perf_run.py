"""Runs `perf stat` on some threads of another process: starting, counting, stopping, and the kernel
setting that may forbid it.

Used by perfstat.py and tests/test_perfstat.py. Counters start and stop at our word, over pipes, so
that they cover the same moments as the server's statistics. It never changes the kernel's setting
unless told to, and then puts it back; it never reads what perf counted (perf_parse.py does).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")
_WAIT_S: Final = 10


class PerfError(Exception):
    """perf would not count; the message is for the reader."""


@contextmanager
def relaxed_paranoid(wanted: bool, path: Path = PARANOID) -> Iterator[None]:
    """Lets everybody count everything, for as long as the block lasts.

    Args:
        wanted: False: does nothing.
        path: the kernel's setting.

    Raises:
        PerfError: it could not be changed.
    """
    before = path.read_text().strip() if wanted else "-1"
    if int(before) <= -1:
        yield
        return
    try:
        _set_paranoid(path, "-1")
        yield
    finally:
        _set_paranoid(path, before)


def _set_paranoid(path: Path, value: str) -> None:
    try:
        path.write_text(value)
        return
    except PermissionError:
        pass
    command = ["sudo", "-n", "sysctl", "-q", f"kernel.perf_event_paranoid={value}"]
    if shutil.which("sudo") is None or subprocess.run(command, check=False).returncode != 0:
        raise PerfError(f"{path} cannot be set to {value}: run this as root.")


class Perf:
    """`perf stat` on some threads: ready once constructed, counting between `enable` and `finish`.

    Args:
        tids: of the threads.
        events: their names.

    Raises:
        PerfError: perf did not start; holds what it said.
    """

    def __init__(self, tids: Sequence[int], events: Sequence[str]) -> None:
        self._output = tempfile.NamedTemporaryFile(prefix="perfstat-")  # noqa: SIM115
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        control, self._control = os.pipe()
        self._answers, answers = os.pipe()
        command = ["perf", "stat", "-x", ",", "-o", self._output.name, "-e", ",".join(events)]
        command += ["--per-thread", "-t", ",".join(map(str, tids))]
        # Starts with counters stopped, and starts and stops them at our word.
        command += ["-D", "-1", "--control", f"fd:{control},{answers}"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(control, answers),
            # A decimal comma would cut numbers in two; Ctrl-C is for us alone.
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
        )
        os.close(control)
        os.close(answers)

    def enable(self) -> None:
        """Counting starts."""
        self._tell("enable")

    def finish(self) -> str:
        """Counting ends.

        Returns:
            What perf counted, in its own format.
        """
        self._tell("disable")
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_WAIT_S)
        return Path(self._output.name).read_text()

    def close(self) -> None:
        """Ends perf, whatever it does; may be called twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for descriptor in (self._control, self._answers):
            if descriptor >= 0:
                os.close(descriptor)
        self._control = self._answers = -1
        self._output.close()
        self._said.close()

    def _tell(self, word: str) -> None:
        try:
            os.write(self._control, word.encode() + b"\n")
        except BrokenPipeError:
            raise PerfError(self._why()) from None
        # Nothing comes when perf has ended: it held the only other end.
        if not os.read(self._answers, 64).startswith(b"ack"):
            raise PerfError(self._why())

    def _why(self) -> str:
        self._process.wait(_WAIT_S)
        self._said.seek(0)
        lines = [line.strip() for line in self._said.read().decode(errors="replace").splitlines()]
        said = " ".join([line for line in lines if line][:4]) or "nothing"
        hint = ""
        if PARANOID.exists() and int(PARANOID.read_text()) > 2 and os.geteuid() != 0:
            hint = f" {PARANOID} is above 2: try --relax-paranoid, or root."
        return f"perf did not count; it said: {said}{hint}"
