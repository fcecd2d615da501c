"""Signals as a queue: order, waiting, and what is left to the process afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from test_client_failures import in_a_child

from lumen_uring.errors import LibraryError
from lumen_uring.ring import signals
from lumen_uring.ring.signals import SignalQueue

ONE, TWO, THREE = signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM


def send(*numbers: signal.Signals) -> None:
    """To this thread: another thread of the tests may not block them."""
    for number in numbers:
        signal.pthread_kill(threading.get_ident(), number)


def blocked() -> set[signal.Signals | int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_signals_come_in_their_order() -> None:
    with SignalQueue([ONE, TWO, THREE]) as queue:
        assert queue.wait(0) is None
        # Each is taken out of the kernel before the next is sent.
        for number in (TWO, ONE, THREE):
            send(number)
            assert queue.take(()) is None
        assert [queue.wait(0) for _ in range(4)] == [TWO, ONE, THREE, None]


def test_one_is_taken_and_the_others_stay() -> None:
    with SignalQueue([ONE, TWO, THREE]) as queue:
        send(ONE, TWO, THREE)
        assert queue.take([THREE, TWO]) == TWO  # the kernel gives the lowest number first
        send(TWO)
        assert queue.take([ONE]) == ONE
        assert queue.take([ONE]) is None
        assert [queue.wait(0) for _ in range(3)] == [THREE, TWO, None]


def test_a_wait_lasts_as_long_as_it_says() -> None:
    class Poll:
        def __init__(self) -> None:
            self.asked_ms: list[float] = []

        def poll(self, timeout_ms: float) -> list[int]:
            self.asked_ms.append(timeout_ms)
            if len(self.asked_ms) > 1:
                send(TWO)
            return []  # something else woke it, the first time

    poll = Poll()
    with SignalQueue([TWO]) as queue:
        queue._poll = poll  # type: ignore[assignment]
        assert queue.wait(10_000) == TWO
    assert len(poll.asked_ms) == 2
    assert all(9_000_000 < asked <= 10_000_000 for asked in poll.asked_ms)
    with SignalQueue([TWO]) as queue:
        before_s = time.monotonic()
        assert queue.wait(0.05) is None
        assert time.monotonic() - before_s >= 0.05


@pytest.mark.parametrize("was_blocked", [False, True])
def test_the_end_leaves_the_process_as_it_was(was_blocked: bool) -> None:
    """Signals that are still queued are dropped, also those that nobody has looked at."""
    seen: list[int] = []
    handler = signal.signal(ONE, lambda number, _frame: seen.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [ONE] if was_blocked else ())
    try:
        with SignalQueue([ONE, TWO]) as queue:
            descriptor = queue._descriptor
            assert blocked() >= {ONE, TWO}
            assert not os.get_inheritable(descriptor)
            assert not os.get_blocking(descriptor)
            send(ONE)
        assert seen == []
        assert signal.sigpending() == set()
        assert (ONE in blocked(), TWO in blocked()) == (was_blocked, False)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(ONE, handler)


def test_a_signal_given_back_ends_the_process() -> None:
    def child() -> None:
        with SignalQueue([ONE, TWO]) as queue:
            signal.signal(ONE, signal.SIG_IGN)
            queue.give_back([ONE])
            assert TWO in blocked()
            send(TWO)
            assert queue.wait(0) == TWO
            send(ONE)

    assert in_a_child(child) == -ONE


def test_a_kernel_without_signalfd(monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        def __getattr__(self, name: str) -> object:
            return lambda *_arguments: -1

    before = blocked()
    monkeypatch.setattr(signals.ctypes, "CDLL", lambda *_name, **_options: Libc())
    with pytest.raises(LibraryError, match="gives no signalfd"), SignalQueue([ONE]):
        pass
    assert blocked() == before
