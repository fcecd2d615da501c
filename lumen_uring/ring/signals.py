"""Signals as a queue: blocked in the whole process, and read from a signalfd.

Used by server.py on the main thread. `signal.sigtimedwait` is not safe: when SIGCONT interrupts it
as its time runs out, CPython returns a siginfo that was never filled in, with a random number. A
signalfd gives the kernel's own record, or nothing.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections import deque
from collections.abc import Collection
from types import TracebackType
from typing import Final

from lumen_uring.errors import LibraryError

_SFD_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC  # SFD_NONBLOCK | SFD_CLOEXEC, signalfd(2)
_SIGSET_BYTES: Final = 128  # sigset_t of glibc and musl
_RECORD_BYTES: Final = 128  # struct signalfd_siginfo; it begins with the number, 32 bits
_RECORDS: Final = 32  # read at once


class SignalQueue:
    """Queues signals inside its `with` block, instead of letting them act on the process.

    Threads started inside the block inherit the mask. Signals still queued at its end are dropped,
    so that they cannot interrupt an orderly end.

    Args:
        numbers: the signals to take.

    Raises:
        LibraryError: the kernel gives no signalfd.
    """

    def __init__(self, numbers: Collection[signal.Signals]) -> None:
        self._numbers = frozenset(numbers)
        self._kept: deque[signal.Signals] = deque()

    def __enter__(self) -> SignalQueue:
        self._descriptor = _signalfd(self._numbers)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._read()
        os.close(self._descriptor)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def wait(self, seconds: float) -> signal.Signals | None:
        """Waits for the next signal.

        Args:
            seconds: the longest wait; 0 only looks. Time in which the process is stopped counts.

        Returns:
            The signal, or None when none came in time.
        """
        until_s = time.monotonic() + seconds
        while not self._kept:
            left_s = max(0.0, until_s - time.monotonic())
            if not self._poll.poll(left_s * 1000) and left_s == 0:
                return None
            self._read()
        return self._kept.popleft()

    def take(self, wanted: Collection[signal.Signals]) -> signal.Signals | None:
        """Takes the first queued signal that is one of these; the others stay queued.

        Args:
            wanted: some of the queue's signals.
        """
        self._read()
        for number in self._kept:
            if number in wanted:
                self._kept.remove(number)
                return number
        return None

    def give_back(self, numbers: Collection[signal.Signals]) -> None:
        """Lets these signals act on the process as they do by default, from now on.

        Args:
            numbers: some of the queue's signals.
        """
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, _RECORDS * _RECORD_BYTES)
            except BlockingIOError:
                return
            for at in range(0, len(data), _RECORD_BYTES):
                number = int.from_bytes(data[at : at + 4], "little")
                self._kept.append(signal.Signals(number))


def _signalfd(numbers: Collection[signal.Signals]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    # sigemptyset and sigaddset know how the set is laid out.
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    libc.sigemptyset(mask)
    for number in numbers:
        libc.sigaddset(mask, ctypes.c_int(number))
    descriptor = int(libc.signalfd(ctypes.c_int(-1), mask, ctypes.c_int(_SFD_FLAGS)))
    if descriptor < 0:
        reason = os.strerror(ctypes.get_errno())
        raise LibraryError(
            f"The kernel gives no signalfd ({reason}), without which no signal can end the server."
        )
    return descriptor
