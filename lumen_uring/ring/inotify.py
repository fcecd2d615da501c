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

_IN_CHANGES: Final = (
    0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
)  # linux/inotify.h
_IN_ONLYDIR: Final = 0x01000000
_READ_BYTES: Final = 64 << 10
_GONE: Final = (errno.ENOENT, errno.ENOTDIR)
_CURES: Final = {
    errno.ENOSPC: "raise fs.inotify.max_user_watches (sysctl)",
    errno.EACCES: "let the server's user read and enter it (mode r-x)",
}


class Inotify:
    """Folders that are watched. `wake` may be called by any thread.

    Raises:
        OSError: the kernel has no inotify for this user, or no descriptor.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._wake_out, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            number = ctypes.get_errno()
            for descriptor in (self._wake_out, self._wake_in):
                os.close(descriptor)
            raise OSError(number, f"inotify: {os.strerror(number)}")

    def watch(self, folders: Iterable[Path]) -> list[str]:
        """Watches folders, also those that are watched already; one that is gone is left out.

        Args:
            folders: to watch.

        Returns:
            A sentence for each that cannot be watched.
        """
        problems = []
        for folder in folders:
            added = self._libc.inotify_add_watch(
                self._fd, os.fsencode(folder), ctypes.c_uint32(_IN_CHANGES | _IN_ONLYDIR)
            )
            number = ctypes.get_errno()
            if added < 0 and number not in _GONE:
                cure = f": {_CURES[number]}" if number in _CURES else ""
                problems.append(f"{folder} cannot be watched ({os.strerror(number)}){cure}")
        return problems

    def wait(self, seconds: float | None = None) -> None:
        """Waits for a change, or for `wake`.

        Args:
            seconds: at most; None: without a bound.
        """
        _until_readable([self._fd, self._wake_out], seconds)

    def pause(self, seconds: float) -> None:
        """Waits so long, or until `wake`, and forgets the changes up to then."""
        _until_readable([self._wake_out], seconds)
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


def _until_readable(descriptors: list[int], seconds: float | None) -> None:
    # Not select: it takes no descriptor above 1023.
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    poll.poll(None if seconds is None else seconds * 1000)
