"""What became of a reload, in a file beside the server's statistics, for `lumen reload` to show.

Written by server.py and by the thread that loads models; replaced whole, so that a reader sees one
report or the next. The server removes it at its end.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def report_path(stats_path: Path) -> Path:
    """The report's place.

    Args:
        stats_path: of the server's statistics file.
    """
    return stats_path.with_name(f"{stats_path.name}.reload")


def read(path: Path) -> dict[str, Any]:
    """Reads a report; an empty one where there is none.

    Args:
        path: of report_path.
    """
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class Report:
    """The newest reload of one server. Any thread.

    Args:
        path: of report_path; None: nobody can read reports.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._number = 0
        self._said: list[str] = []
        self._loads = 0
        self.close()  # one that a killed server has left

    def begin(self, lines: Sequence[str], failed: bool, goes_on: bool) -> int:
        """A reload was read.

        Args:
            lines: what changed, and what cannot.
            failed: nothing was applied.
            goes_on: models are still to be loaded.

        Returns:
            Its number.
        """
        with self._lock:
            self._number += 1
            self._said, self._loads = list(lines), 0
            self._write(failed, not goes_on)
            return self._number

    def add(self, number: int, line: str) -> None:
        """A load begins, or a model is loaded.

        Args:
            number: of begin; an older one is not shown any more.
            line: says so.
        """
        with self._lock:
            if number == self._number:
                self._said.append(line)
                self._loads += 1
                self._write(False, False)

    def end(self, number: int, lines: Sequence[str]) -> None:
        """The models are loaded.

        Args:
            number: of begin; an older one is not shown any more.
            lines: those that could not be.
        """
        with self._lock:
            if number == self._number:
                self._said += lines
                if not lines and not self._loads:
                    self._said.append("All models are loaded as their files are now.")
                self._write(bool(lines), True)

    def close(self) -> None:
        """Removes the file."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def _write(self, failed: bool, done: bool) -> None:
        if self._path is None:
            return
        told = {"number": self._number, "failed": failed, "done": done, "lines": self._said}
        draft = self._path.with_name(f"{self._path.name}.tmp")
        with suppress(OSError):
            draft.write_text(json.dumps(told))
            os.replace(draft, self._path)
