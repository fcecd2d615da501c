"""A change of the workers, their queue and the allocator, on a thread of its own.

Made by main_loop.py for a reload: more workers open a session of every model first, which takes
seconds where models are large, and meanwhile the main thread obeys signals and starts processes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from threading import Thread

from lumen_uring.errors import EngineError
from lumen_uring.guard import Guard
from lumen_uring.ring.engine import Engine
from lumen_uring.settings.broken import Broken
from lumen_uring.settings.reload import Plan


class Change:
    """What a reload does besides, before and after.

    Args:
        plan: of the reload.
        broken: entries that cannot be served.
    """

    def __init__(self, plan: Plan, broken: Sequence[Broken]) -> None:
        self.plan = plan
        self.broken = broken
        self.refusal = ""
        self.is_held_up = False  # by a Run of seconds: it goes on
        self._thread: Thread | None = None

    def begin(self, engine: Engine, guard: Guard) -> None:
        """Starts the thread, which wakes the main thread at its end."""

        self.refusal = "The workers could not be changed"  # unless they are

        def work() -> None:
            try:
                self.is_held_up = not engine.change_workers(self.plan.config)
                self.refusal = ""
            except EngineError as error:
                self.refusal = str(error)
            finally:
                os.kill(os.getpid(), signal.SIGCHLD)

        self._thread = guard.thread("lumen-workers", work, daemon=True, again=False)
        self._thread.start()

    def is_going_on(self) -> bool:
        """Main thread: whether it is not over."""
        if self._thread is None:
            return False
        # The signal comes just before the end.
        self._thread.join(0.1)
        return self._thread.is_alive()
