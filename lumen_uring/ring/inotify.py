"""Waits for changes in folders, as inotify(7) reports them.

Used by repository/watch.py, on a thread of its own. What changed is not looked at: the reader looks
at the folders anyway, and an event that the kernel dropped changes nothing then.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from lumen_uring.errors import EngineError

_IN_CHANGES: Final = (
    0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
)  # linux/inotify.h
_IN_ONLYDIR: Final = 0x01000000
_READ_BYTES: Final = 64 << 10


class Inotify:
    """Folders that are watched. A context manager; `wake` may be called by any thread.

    Raises:
        EngineError: the kernel has no inotify for this user.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise EngineError(f"inotify: {os.strerror(ctypes.get_errno())}")
        self._wake_out, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, folders: Iterable[Path]) -> None:
        """Watches folders, also those that are watched already; one that is gone is left out.

        Args:
            folders: to watch.

        Raises:
            EngineError: the kernel's limit of watches is reached.
        """
        for folder in folders:
            added = self._libc.inotify_add_watch(
                self._fd, os.fsencode(folder), ctypes.c_uint32(_IN_CHANGES | _IN_ONLYDIR)
            )
            if added < 0 and ctypes.get_errno() == errno.ENOSPC:
                raise EngineError(
                    f"{folder} cannot be watched: raise fs.inotify.max_user_watches (sysctl)"
                )

    def wait(self) -> None:
        """Waits for a change, or for `wake`."""
        _poll((self._fd, self._wake_out), None)

    def pause(self, seconds: float) -> None:
        """Waits so long, or until `wake`, and forgets the changes up to then."""
        _poll((self._wake_out,), seconds)
        with suppress(BlockingIOError):
            while os.read(self._fd, _READ_BYTES):
                pass

    def wake(self) -> None:
        """Ends a wait, and each later one."""
        with suppress(BlockingIOError):
            os.write(self._wake_in, b"\0")

    def close(self) -> None:
        """Ends; nobody may wait."""
        for descriptor in (self._fd, self._wake_out, self._wake_in):
            os.close(descriptor)


def _poll(descriptors: Iterable[int], seconds: float | None) -> None:
    """Waits until one can be read. select() knows no descriptor of 1024 or more."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    poll.poll(None if seconds is None else seconds * 1000)
