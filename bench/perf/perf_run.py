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


# Puts the setting back when its input ends, which it also does where this process is killed.
_GUARD: Final = """
trap '' HUP INT QUIT TERM
printf %s -1 > "$1" && echo changed || exit 1
cat > /dev/null
printf %s "$2" > "$1"
"""


@contextmanager
def relaxed_paranoid(wanted: bool, path: Path = PARANOID) -> Iterator[None]:
    """Lets everybody count everything, for as long as the block lasts.

    A process of its own puts the setting back, whatever ends this one.

    Args:
        wanted: False: does nothing.
        path: the kernel's setting.

    Raises:
        PerfError: it could not be changed, or not be put back.
    """
    before = path.read_text().strip() if wanted else "-1"
    if int(before) <= -1:
        yield
        return
    prefix = ["sudo", "-n"] if shutil.which("sudo") and not _is_ours(path) else []
    with subprocess.Popen(
        [*prefix, "sh", "-c", _GUARD, "sh", str(path), before],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for us alone
    ) as guard:
        assert guard.stdin is not None
        assert guard.stdout is not None
        if guard.stdout.readline() != b"changed\n":
            raise PerfError(f"{path} cannot be set to -1: run this as root.")
        try:
            yield
        finally:
            guard.stdin.close()
            guard.wait()
            found = path.read_text().strip()
            if found != before:
                raise PerfError(
                    f"{path} could not be put back: expected {before}, found {found}. As root, "
                    f"type: sysctl kernel.perf_event_paranoid={before}"
                )


def _is_ours(path: Path) -> bool:
    return os.access(path, os.W_OK)


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
            hint = f" {PARANOID} is above 2: try --paranoid, or root."
        return f"perf did not count; it said: {said}{hint}"
