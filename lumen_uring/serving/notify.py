"""Tells a service manager the server's state, as sd_notify(3) does: datagrams to $NOTIFY_SOCKET.

Used by server.py, on the main thread. Without that variable it sends nothing. A manager that is
gone or slow delays the main thread by at most a second.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

_SEND_S = 1.0


class Notifier:
    """Sends to the manager that started this process."""

    def __init__(self) -> None:
        name = os.environ.get("NOTIFY_SOCKET", "")
        # "@" stands for the NUL byte in front of an abstract name.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._has_manager = name[:1] in ("/", "@")
        self.watchdog_s = _watchdog_s() if self._has_manager else 0.0

    def ready(self, status: str) -> None:
        """The start or a reload is over.

        Args:
            status: one line for people, as `systemctl status` shows it.
        """
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """Says what the server is doing.

        Args:
            status: one line for people.
        """
        self._send(f"STATUS={status}")

    def more_time(self, seconds: float, status: str) -> None:
        """The start goes on, and takes longer than the manager may allow.

        Args:
            seconds: from now on, for the next sign.
            status: one line for people.
        """
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}", f"STATUS={status}")

    def reloading(self) -> None:
        """A reload has begun; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, seconds: float, status: str) -> None:
        """The server has begun to end.

        Args:
            seconds: how long it may take.
            status: one line for people.
        """
        self._send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}", f"STATUS={status}")

    def alive(self) -> None:
        """The server is alive: the watchdog starts its time again."""
        if self.watchdog_s:
            self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._has_manager:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_SEND_S)
            sender.sendto("\n".join(lines).encode(), self._address)


def _watchdog_s() -> float:
    """The longest time between two signs of life, as sd_watchdog_enabled(3) reads it; 0: none."""
    try:
        microseconds = int(os.environ["WATCHDOG_USEC"])
        process = int(os.environ.get("WATCHDOG_PID") or os.getpid())
    except (KeyError, ValueError):
        return 0.0
    return microseconds / 1e6 if microseconds > 0 and process == os.getpid() else 0.0
