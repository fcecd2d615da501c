"""What watches a start, whose steps are calls of C that may take minutes: it says what is waited
for, asks the service manager for more time, and obeys a signal that the main thread does not take.

Used by server.py around everything before the server is ready; its thread ends with the block.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from lumen_uring.guard import Guard
from lumen_uring.serving.logs import Journal
from lumen_uring.serving.notify import Notifier

_LOOK_S: Final = 0.1
_SAY_S: Final = 2.0  # a step that takes longer is said, and again each time it has taken twice that
_OBEY_S: Final = 0.5  # the main thread takes a signal sooner, unless it is in a long call
_MORE_S: Final = 30.0  # asked of the service manager, each time some of it has passed
_STATISTICS: Final = "/dev/shm/lumen-"


class Starting:
    """Watches a start inside its `with` block.

    Args:
        journal: where it is said.
        notifier: of the service manager.
        guard: makes the thread.
        ending: the signals that end a server; they are blocked.
        leave: ends the process. A test has its own.
    """

    def __init__(
        self,
        journal: Journal,
        notifier: Notifier,
        guard: Guard,
        ending: Collection[signal.Signals],
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self._journal = journal
        self._notifier = notifier
        self._ending = frozenset(ending)
        self._leave = leave
        self._step, self._since_s, self._say_s = "", time.monotonic(), _SAY_S
        self._over = threading.Event()
        self._thread = guard.thread("lumen-starting", self._run, daemon=True)

    def __enter__(self) -> Starting:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def step(self, what: str) -> None:
        """The main thread begins with something.

        Args:
            what: it does, as in "Loading model digits".
        """
        self._step, self._since_s, self._say_s = what, time.monotonic(), _SAY_S
        self._notifier.status(f"{what}.")

    def _run(self) -> None:
        pending_s = 0.0
        asked_s = -_MORE_S
        while not self._over.wait(_LOOK_S):
            now_s = time.monotonic()
            took_s = now_s - self._since_s
            if now_s - asked_s >= _MORE_S / 3:
                asked_s = now_s
                self._notifier.more_time(_MORE_S, f"{self._step} ({took_s:.0f} s).")
            if self._step and took_s >= self._say_s:
                self._say_s *= 2
                self._journal.say(f"{self._step}: {took_s:.0f} s so far.")
            pending_s = pending_s + _LOOK_S if self._ending & signal.sigpending() else 0.0
            if pending_s >= _OBEY_S:
                self._obey()

    def _obey(self) -> None:
        self._journal.say(f"{self._step}: ended by a signal before the server was ready.")
        with suppress(OSError):
            for line in Path("/proc/self/maps").read_text().splitlines():
                if _STATISTICS in line:
                    Path(line[line.index(_STATISTICS) :].removesuffix(" (deleted)")).unlink()
        self._leave(0)
