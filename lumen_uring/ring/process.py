"""Lets work on models give way to the server: a process as a whole, or a call on a thread.

give_way is called by repository/prepare.py, in a process of its own, before anything else; gently
by loading/add.py in a server that runs; end_with_parent by the processes that a server starts.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h

_Result = TypeVar("_Result")


def gently(call: Callable[..., _Result], *arguments: Any) -> _Result:
    """Calls a function on a thread that takes only the CPU time that nobody else wants, and waits.

    A thread of its own, since one without privileges that has stepped down stays there, and so do
    the threads that it starts.

    Raises:
        OSError: there is no room for a thread.
        Exception: what the function raised.
    """
    results: list[_Result] = []
    errors: list[Exception] = []

    def run() -> None:
        step_back()
        try:
            results.append(call(*arguments))
        except Exception as error:  # the caller's
            errors.append(error)

    thread = threading.Thread(target=run, name="lumen-read")
    try:
        thread.start()
    except RuntimeError as error:  # Python's word for EAGAIN
        raise OSError(errno.EAGAIN, str(error)) from None
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def step_back() -> None:
    """Has this thread take only the CPU time that nobody else wants, for good, where it may."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def cpu_s(pid: int) -> float:
    """CPU time of a process that has not been waited for; seconds.

    Raises:
        OSError: there is none.

    Source:
        proc_pid_stat(5): utime and stime
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def end_with_parent() -> None:
    """Has the kernel end this process when the thread that started it ends. One whose parent ended
    before this call must see that itself.

    Source:
        prctl(2): PR_SET_PDEATHSIG
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def give_way(memory_bytes: int, gently: bool) -> None:
    """Lowers the priority and sets the limits.

    Args:
        memory_bytes: of address space, at most; 0: no bound.
        gently: the process takes only the CPU time that nobody else wants.
    """
    end_with_parent()
    if gently:
        with suppress(OSError):
            os.nice(19)
        step_back()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
