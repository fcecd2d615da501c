"""Sees that the folders of repositories have changed, and that they change no more.

Started by control.py where repository.control is watch. It sleeps until the kernel reports a
change. A model that is being copied looks different each time: only when two looks, a second apart,
find the same sizes, times and inodes is a change reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from lumen_uring.guard import Guard
from lumen_uring.ring.inotify import Inotify

SETTLE_S: Final = 1.0
_DEPTH_MAX: Final = 4  # repository, model, version, a folder model.onnx
_FILES_MAX: Final = 100_000
Look = frozenset[tuple[str, int, int, int]]


def look(paths: Sequence[Path]) -> Look:
    """What lies in folders: name, size, time of change and inode of each file.

    Args:
        paths: folders, or files.
    """
    found: set[tuple[str, int, int, int]] = set()
    for path in paths:
        for file in _walk(path, 0):
            try:
                status = os.stat(file)
            except OSError:
                continue  # it has gone meanwhile
            found.add((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
            if len(found) > _FILES_MAX:
                return frozenset(found)
    return frozenset(found)


def folders(paths: Sequence[Path]) -> Iterator[Path]:
    """The folders in which a change may be one of a model."""
    for path in paths:
        if not os.path.isdir(path):
            yield path.parent
            continue
        yield path
        yield from (inner for inner in _walk(path, 0) if os.path.isdir(inner))


def _walk(path: Path, depth: int) -> Iterator[Path]:
    # os.path: Path.is_dir raises where a folder may be listed and not entered.
    if os.path.isdir(path) and depth < _DEPTH_MAX:
        try:
            entries = sorted(path.iterdir())
        except OSError:
            return
        for entry in entries:
            if not entry.name.startswith("."):
                yield entry
                yield from _walk(entry, depth + 1)
    elif depth == 0:
        yield path


class Watcher:
    """Watches until it is closed.

    Args:
        paths: of the repositories.
        changed: called on the watcher's thread, each time that they changed and are quiet again.
        guard: of the server's threads.
        settle_s: between two looks.

    Raises:
        EngineError: the kernel cannot watch.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        changed: Callable[[], None],
        guard: Guard,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._paths = paths
        self._changed = changed
        self._settle_s = settle_s
        self._stopped = False
        self._is_unseen = False
        self._inotify = Inotify()
        self._inotify.watch(folders(paths))  # before the look: no change falls between
        self._seen = look(paths)
        self._thread = guard.thread("lumen-watch", self._run)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stopped = True
        self._inotify.wake()
        self._thread.join()
        self._inotify.close()

    def _run(self) -> None:
        while not self._stopped:
            if not self._is_unseen:
                self._inotify.wait()
            self._is_unseen = True  # until the look below has ended: the guard calls this again
            self._settle()
            self._is_unseen = False

    def _settle(self) -> None:
        """Waits until nothing changes, and reports it."""
        found = look(self._paths)
        while not self._stopped:
            self._inotify.watch(folders(self._paths))
            self._inotify.pause(self._settle_s)
            again = look(self._paths)
            if again == found:
                break
            found = again
        if not self._stopped and found != self._seen:
            self._seen = found
            self._changed()
