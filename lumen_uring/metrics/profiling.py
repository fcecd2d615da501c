"""Samples the stacks of a process with `perf record`.

Called by the metrics page, on a thread of its own, one profile at a time. perf runs in a process of
its own; when the kernel refuses it, the error names the cure. It never changes a kernel setting.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from lumen_uring.errors import MetricsError
from lumen_uring.metrics.flamegraph import Stack, parse_perf_script

SECONDS_MAX: Final = 60
_RATE_HZ: Final = 99  # not 100: samples must not coincide with a timer
_PATIENCE_S: Final = 60
_PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")


class Profiler:
    """Profiles one process; the caller makes one profile at a time.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._profile: Profile | None = None
        self._closed = False

    def begin(self, seconds: int) -> Profile:
        """A profile that `take` makes.

        Args:
            seconds: how long, 1..60.
        """
        profile = self._profile = Profile(self._pid, seconds)
        if self._closed:
            profile.cancel()
        return profile

    def profile(self, seconds: int) -> Counter[Stack]:
        """Samples all threads, as `begin` and `Profile.take`."""
        return self.begin(seconds).take()

    def close(self) -> None:
        """Ends the running profile; may be called twice."""
        self._closed = True
        if self._profile is not None:
            self._profile.cancel()


class Profile:
    """One profile: taken on one thread, cancelled on any.

    Args:
        pid: of the process.
        seconds: how long, 1..60.
    """

    def __init__(self, pid: int, seconds: int) -> None:
        self.seconds = seconds
        self._pid = pid
        self._mutex = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        self._is_taken = False

    @property
    def is_over(self) -> bool:
        """Whether another profile may begin."""
        return self._is_cancelled or self._is_taken

    def cancel(self) -> None:
        """Nobody waits for it any more; also when it has ended, and before it begins."""
        with self._mutex:
            self._is_cancelled = True
            if self._child is not None:
                _kill(self._child)

    def take(self) -> Counter[Stack]:
        """Samples all threads.

        Returns:
            How often each stack was seen.

        Raises:
            MetricsError: perf is missing or refused; the message names the cure.
        """
        try:
            return self._take()
        except OSError as error:
            raise MetricsError(f"The profile could not be made: {error.strerror}.") from None
        finally:
            self._is_taken = True

    def _take(self) -> Counter[Stack]:
        perf = shutil.which("perf")
        if perf is None:
            raise MetricsError(
                "perf is not installed: install it (Debian: apt-get install linux-perf), ask again."
            )
        with tempfile.TemporaryDirectory(prefix="lumen-profile-") as directory:
            data = os.path.join(directory, "perf.data")
            # -B -N: it reads and copies no library, which takes a minute on a busy machine.
            record = [perf, "record", "-q", "-B", "-N", "-F", str(_RATE_HZ), "-g"]
            record += ["-p", str(self._pid), "-o", data, "--", "sleep", str(self.seconds)]
            self._run(record, self.seconds + _PATIENCE_S)
            script = [perf, "script", "-i", data, "--no-inline", "-F", "comm,ip,sym,dso"]
            return parse_perf_script(self._run(script, _PATIENCE_S).decode("utf-8", "replace"))

    def _run(self, command: list[str], patience_s: int) -> bytes:
        with self._mutex:
            if self._is_cancelled:
                raise MetricsError("The server is ending.")
            try:
                # A session of its own, so that perf and its sleep end together.
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                raise MetricsError(f"perf does not start: {error.strerror}.") from None
            self._child = child
        try:
            output, said = child.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            _kill(child)
            child.communicate()
            raise MetricsError(
                f"perf {command[1]} did not end within {patience_s} s, for a profile of "
                f"{self.seconds} s: the machine is too busy for it (load average "
                f"{os.getloadavg()[0]:.1f}). Ask again when it has time."
            ) from None
        except BaseException:
            _kill(child)
            child.wait()
            raise
        finally:
            with self._mutex:
                self._child = None
        if child.returncode != 0:
            raise MetricsError(refusal(said.decode("utf-8", "replace")))
        return output


def refusal(said: str, paranoid: Path = _PARANOID) -> str:
    """Says why perf was refused, and what to do.

    Args:
        said: what perf wrote on stderr.
        paranoid: the kernel's setting.
    """
    first = next((line.strip() for line in said.splitlines() if line.strip()), "no reason given")
    try:
        level = f" (here it is {paranoid.read_text('ascii').strip()})"
    except OSError:
        level = ""
    return (
        f"perf was refused: {first.rstrip('.:')}. Set kernel.perf_event_paranoid to 1 or lower"
        f"{level}, or give the server CAP_PERFMON; in a container its seccomp profile must allow "
        "perf_event_open."
    )


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
