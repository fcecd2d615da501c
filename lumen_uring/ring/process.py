"""Makes this process give way to every other one, and end with the one that started it.

Called by repository/prepare.py, in a process of its own, before anything else.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from contextlib import suppress
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def give_way(memory_bytes: int) -> None:
    """Lowers the priority and sets the limits.

    Args:
        memory_bytes: of address space, at most; 0: no bound.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    with suppress(OSError):
        os.nice(19)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
