"""A server under attack: what must be true of it after every case, and the canary that stays in it.

Used by the fixture `town` and by the tests of hostile HTTP, on the test's thread. Unlike the
shared zoo its canary lives as long as the module, so that a thousand small cases cost no more than
their own connections.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import web
from harness import SETTLE_S, Canary, Figures, Server, eventually
from web import Http

X = np.arange(16, dtype="<f4").reshape(1, 16)
GOOD_REQUEST = web.infer("double", {"x": X}, id="good")


def soon(
    condition: Callable[[], object], what: str, seconds: float, found: Callable[[], object] = str
) -> None:
    """As `eventually`, for the thousand waits of this file that take no time at all."""
    until = time.monotonic() + min(seconds, 0.05)
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.0003)
    eventually(condition, what, seconds, found)


class Town:
    """A server with a canary in it, which stays for the whole module."""

    def __init__(self, cache: Path, settings: dict[str, object]) -> None:
        self.settled = False  # since the test began
        self._cache = cache
        self._settings = settings
        self.start()

    def start(self) -> None:
        self._stay = contextlib.ExitStack()
        self.server = self._stay.enter_context(Server(self._settings, self._cache))
        self.canary = self._stay.enter_context(Canary(self.server))

    def stop(self) -> None:
        """Ends it as a service manager would."""
        self._stay.close()

    def replace(self) -> None:
        """A new one where a test has broken it, so that one failure stays one."""
        self.server.kill()
        with contextlib.suppress(BaseException):
            self.stop()
        self.start()

    def figures(self) -> Figures:
        return self.server.figures()

    def in_flight(self) -> int:
        from lumen_uring.ring.stats import read

        return read(self.server.stats_path).gauges["io"]["in_flight"]

    def settle(self, before: Figures, http_requests: int | None) -> None:
        """What must be true after every case."""
        server = self.server
        answers = self.canary.answers
        soon(lambda: self.canary.answers > answers, "one more answer for the canary", SETTLE_S)

        def problem() -> str | None:
            figures = server.figures()
            for name, found, least, most in (
                ("connections", figures.connections_open, 1, 1),
                # The canary's last slot may be taken back with its next request.
                ("slots", figures.slots_in_use, 0, 1),
                ("requests in flight", self.in_flight(), 0, 1),
                ("requests with an end", figures.settled, figures.requests, figures.requests),
                ("descriptors", server.fds, server.idle_fds + 1, server.idle_fds + 1),
            ):
                if not least <= found <= most:
                    return f"{found} {name}, expected {most}"
            return None

        # The promise is one second, which the simulation holds in its own time.
        soon(lambda: problem() is None, "nothing left behind", SETTLE_S, problem)
        assert server.alive
        server.check_errors()
        counted = server.figures().since(before).get("io.http_requests", 0)
        assert http_requests is None or counted == http_requests, (
            f"{counted} requests were read, expected {http_requests}"
        )
        self.settled = True


def usable(http: Http) -> None:
    answer = http.query(GOOD_REQUEST)
    assert answer.document["id"] == "good"
    np.testing.assert_array_equal(answer.array("y"), X + X)


def send_in_pieces(http: Http, data: bytes, count: int) -> None:
    """Many small segments; a server that has refused the first ones may have gone."""
    size = max(1, -(-len(data) // count))
    with contextlib.suppress(ConnectionError):
        for at in range(0, len(data), size):
            http.send(data[at : at + size])
