"""HAProxy's agent checks: whoever connects is told a weight, as a share of the server's own.

Started by server.py. One thread, which answers one connection after the other and reads nothing, so
nobody can hold it. `up 100%` is an idle server, `up 50%` one that is all in use, `up 33%` one where
as many wait; `up 0%` is about to end: it gets nothing more, and what it has goes on. What is left
of a server, as a weight, would be none for a busy one: in bench/fleet/simulation.py servers then
take turns at having all requests. (HAProxy's word `drain` would last until an agent says `ready`,
which would undo what an operator has set.)
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Final

from lumen_uring.errors import EngineError, MetricsError
from lumen_uring.guard import Guard
from lumen_uring.ring.report import Load

_BACKLOG: Final = 128
_LEAST: Final = 1  # percent: a server that gets nothing more is never weighed anew
_LOOKS_S: Final = 0.5  # whether it is closed
_PAUSE_S: Final = 0.1


class Agent:
    """Listens from the constructor on.

    Args:
        host: the address to listen on.
        port: 0 lets the kernel choose, see `port`.
        load: says how loaded the server is; may raise EngineError.
        guard: of the server's threads.

    Raises:
        MetricsError: it cannot listen there.
    """

    def __init__(self, host: str, port: int, load: Callable[[], Load], guard: Guard) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._load = load
        self._ends = False
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            raise MetricsError(
                f"no agent checks on {host}:{port} ({error.strerror}): choose another "
                "server.agent_port, or 0 for none"
            ) from None
        self._socket.settimeout(_LOOKS_S)
        self.port: int = self._socket.getsockname()[1]
        self._thread = guard.thread("lumen-agent", self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._ends = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._ends:
            try:
                client, _ = self._socket.accept()
            except TimeoutError:  # nobody came
                continue
            except OSError:  # it has left, or there are no descriptors
                time.sleep(_PAUSE_S)
                continue
            with client, suppress(OSError):
                client.setblocking(False)
                client.send(self._line().encode())

    def _line(self) -> str:
        try:
            return line_of(self._load())
        except EngineError:  # it does not serve yet, or any more
            return "up 0%\n"


@contextmanager
def agent(host: str, port: int, load: Callable[[], Load], guard: Guard) -> Iterator[None]:
    """Answers agent checks; port 0: there are none.

    Args:
        host: the address to listen on.
        port: there.
        load: as of Agent.
        guard: of the server's threads.

    Raises:
        MetricsError: it cannot listen there.
    """
    with closing(Agent(host, port, load, guard)) if port else nullcontext():
        yield


def line_of(load: Load) -> str:
    """The line that HAProxy is told.

    Args:
        load: of the server.

    Returns:
        "up 80%", with the end of a line.
    """
    weight = max(_LEAST, round(100 / (1 + load.utilization)))
    return f"up {0 if load.leaving else weight}%\n"
