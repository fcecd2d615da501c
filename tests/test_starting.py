"""What watches a start: what it says to people and to the service manager."""

from __future__ import annotations

import re
import signal
import threading
from typing import Any

import pytest

from lumen_uring.guard import Guard
from lumen_uring.serving import starting
from lumen_uring.serving.starting import Starting


class Told:
    """A journal and a service manager that remember."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.asked: list[float] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def status(self, line: str) -> None:
        self.said.append(line)

    def more_time(self, seconds: float, _line: str) -> None:
        self.asked.append(seconds)


def start(told: Any, left: threading.Event | None = None) -> Starting:
    guard = Guard(lambda _level, text: pytest.fail(text))
    ended = left or threading.Event()
    return Starting(told, told, guard, {signal.SIGUSR2}, lambda _code: ended.set())


def test_a_short_start_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_SAY_S", 3600.0)
    told = Told()
    with start(told) as one:
        one.step("Loading model a")
        one.step("Loading model b")
    assert told.said == ["Loading model a.", "Loading model b."]


def test_a_long_step_is_said_and_time_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_LOOK_S", 0.001)
    monkeypatch.setattr(starting, "_SAY_S", 0.002)
    monkeypatch.setattr(starting, "_MORE_S", 0.003)
    told = Told()
    enough = threading.Event()
    say, more = told.say, told.more_time

    def look() -> None:
        if len(told.asked) > 3 and len(told.said) > 3:
            enough.set()

    told.say = lambda line: (say(line), look())[0]  # type: ignore[method-assign, func-returns-value]
    told.more_time = lambda s, line: (more(s, line), look())[0]  # type: ignore[method-assign, func-returns-value]
    with start(told) as one:
        one.step("Loading model a")
        assert enough.wait(60)
    assert told.said[0] == "Loading model a."
    assert all(re.fullmatch(r"Loading model a: \d+ s so far\.", line) for line in told.said[1:])
    assert set(told.asked) == {0.003}


def test_a_signal_that_nobody_takes_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_LOOK_S", 0.001)
    monkeypatch.setattr(starting, "_OBEY_S", 0.01)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        told, left = Told(), threading.Event()
        with start(told, left) as one:
            one.step("Loading model a")
            assert not left.wait(0.05)
            assert one._thread.ident is not None
            signal.pthread_kill(one._thread.ident, signal.SIGUSR2)  # threads of others may take it
            assert left.wait(60)
        assert "Loading model a: ended by a signal before the server was ready." in told.said
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
