"""Counts of budgets that outlive the machine's memory: a file that is written while they change.

Used by server.py and main_loop.py, on the main thread. Without budgets.path nothing is written: the
counts are in /dev/shm, where the next server on the port finds them until the machine, or the
container, starts anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from lumen_uring import files
from lumen_uring.errors import ConfigError
from lumen_uring.ring.budgets import KINDS, LIMITS, Budget, read
from lumen_uring.ring.engine import Engine

_BYTES_MAX: Final = 1 << 20
_VERSION: Final = 1
Counts = dict[tuple[str, str], tuple[int, ...]]


def load(path: str | None) -> Counts:
    """The counts of an earlier time.

    Args:
        path: of the file; None: there is none.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    if path is None or not Path(path).exists():
        return {}
    data = files.take(Path(path), _BYTES_MAX)
    try:
        return _counts(json.loads(data))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"budgets.path: {path}: expected counts that a server wrote there, found something "
            "else: remove it, or name another file"
        ) from error


def _counts(held: Any) -> Counts:
    if held["version"] != _VERSION:
        raise ValueError(held["version"])
    found: Counts = {}
    for one in held["budgets"]:
        counts = tuple(one["counts"])
        are_words = all(type(count) is int and 0 <= count < 1 << 64 for count in counts)
        if one["kind"] not in KINDS.values() or len(counts) != len(LIMITS) or not are_words:
            raise ValueError(one)
        found[one["kind"], str(one["name"])] = counts
    return found


class Keeper:
    """Writes the counts when they have changed.

    Args:
        path: of the file; None: nothing is written.
        engine: whose counts they are.
    """

    def __init__(self, path: str | None, engine: Engine) -> None:
        self._path = path
        self._engine = engine
        self._source = Path(engine.info().budgets_path)
        self._kept: Counts = {}

    def rows(self) -> list[Budget]:
        """What keys and models may have, and have used; any thread.

        Raises:
            StatsError: the counts cannot be read.
        """
        return [] if self._source == Path() else read(self._source)

    def look(self) -> None:
        """Writes the counts, if they are not what was written last.

        Raises:
            OSError: the file cannot be written.
            StatsError: the counts cannot be read.
        """
        self._source = Path(self._engine.info().budgets_path)  # a reload may have brought it
        if self._path is None:
            return
        counts: Counts = {(one.kind, one.name): one.counts for one in self.rows()}
        if counts == self._kept:
            return
        rows = [
            {"kind": kind, "name": name, "counts": words} for (kind, name), words in counts.items()
        ]
        text = json.dumps({"version": _VERSION, "budgets": rows})
        try:
            files.put(text.encode(), Path(self._path))
        except OSError as error:  # of a file beside it, which has another name each time
            raise OSError(error.errno, error.strerror, self._path) from error
        self._kept = counts
