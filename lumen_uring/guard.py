"""The guard of the Python beside the engine, which serves on whatever Python does: an exception in
one part of it is logged and counted, and the part is tried again.

Made by server.py. Each part of the main thread's loop runs in `part`, and each thread is made by
`thread`: tests/test_guard.py refuses other ones. Any thread may call it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

PAUSE_S: Final = 1.0  # before a thread whose function has raised runs it again
_SAY_AGAIN_S: Final = 60.0  # the same failure of a part is logged once in so long
_MESSAGE_MOST: Final = 500
Row = tuple[str, int, bool]  # part, how often it failed, whether it is alive


@dataclass(slots=True)
class _Part:
    """One part: its failures, the last message, and its thread."""

    failures: int = 0
    said: str = ""
    said_s: float = 0.0
    thread: threading.Thread | None = None
    has_ended: bool = False  # as it should


class Guard:
    """The guard of one server.

    Args:
        log: takes a level and a sentence. It may raise, which then is lost.
        pause_s: before a thread runs its function again.
    """

    def __init__(self, log: Callable[[str, str], None], pause_s: float = PAUSE_S) -> None:
        self._log = log
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._parts: dict[str, _Part] = {}
        self._ending = threading.Event()

    def end(self) -> None:
        """Threads whose function raises from now on end: the server ends."""
        self._ending.set()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Runs a part of a loop: an exception ends the block, and nothing else.

        Args:
            name: a short noun, as metrics show it.
        """
        try:
            yield
        except Exception as error:
            self.failed(name, error)

    def failed(self, name: str, error: Exception) -> None:
        """Counts a failure of a part, and logs it unless it was said a moment ago.

        Args:
            name: of the part.
            error: what was raised.
        """
        message = f"{type(error).__name__}: {error}"[:_MESSAGE_MOST]
        now_s = time.monotonic()
        with self._lock:
            part = self._parts.setdefault(name, _Part())
            part.failures += 1
            is_news = message != part.said or now_s - part.said_s >= _SAY_AGAIN_S
            if is_news:
                part.said, part.said_s = message, now_s
        if is_news:
            # Where it cannot be logged, the count on the metrics page is all that is left.
            self.log("error", f"{name}: {message}; the server goes on, and tries again.")

    def log(self, level: str, sentence: str) -> None:
        """Logs a sentence; one that cannot be logged is lost.

        Args:
            level: as the server's log has them.
            sentence: the whole line.
        """
        with suppress(Exception):
            self._log(level, sentence)

    def thread(
        self, name: str, run: Callable[[], None], daemon: bool = False, again: bool = True
    ) -> threading.Thread:
        """Makes a thread, to be started by the caller.

        Args:
            name: of the thread.
            run: returns when the thread is to end. After an exception it is called again.
            daemon: the process may end without it.
            again: False: the work is one call, which is not repeated.
        """
        thread = threading.Thread(
            target=self._keep, args=(name, run, again), name=name, daemon=daemon
        )
        with self._lock:
            part = self._parts.setdefault(name, _Part())
            if again:
                part.thread, part.has_ended = thread, False
        return thread

    def _keep(self, name: str, run: Callable[[], None], again: bool) -> None:
        while True:
            try:
                run()
            except Exception as error:
                self.failed(name, error)
                if again and not self._ending.wait(self._pause_s):
                    continue
            break
        if again:
            with self._lock:
                self._parts[name].has_ended = True

    def rows(self) -> Sequence[Row]:
        """All parts that failed or have a thread, by name."""
        with self._lock:
            parts = sorted(self._parts.items())
            return [(name, one.failures, _is_alive(one)) for name, one in parts]

    def all_alive(self) -> bool:
        """Whether each thread that was started runs, or has ended as it should."""
        with self._lock:
            return all(_is_alive(part) for part in self._parts.values())


def _is_alive(part: _Part) -> bool:
    thread = part.thread
    return thread is None or thread.ident is None or part.has_ended or thread.is_alive()
