"""A Lumen as a child process: started, waited for, watched, ended.

Called by start.py and replica.py, on any thread; it knows nothing of Ray. One thread of its own
starts the process, passes on what it says, and waits for its end. The kernel ends the child
together with that thread (bound.py), so that a parent that is killed leaves no server behind.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from lumen_uring.errors import LumenError

_LINES: Final = 20  # of what it said, in an error
_LOOK_S: Final = 0.1  # while it starts
_MESSAGE_BYTES: Final = 4096
_READY: Final = b"READY=1"


class ChildError(LumenError):
    """The server did not start, or has ended; the message holds what it said last."""


class Child:
    """A server that has been started.

    Args:
        arguments: as `lumen` takes them.
        environment: its variables.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._said: deque[str] = deque(maxlen=_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._failure: OSError | None = None
        self._began, self._ended = threading.Event(), threading.Event()
        self._is_told = False
        self._watcher: Callable[[], None] | None = None
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name = f"lumen-{os.getpid()}-{secrets.token_hex(8)}"
        self._notices.bind(f"\0{name}")  # an abstract name, which no file is left of
        command = [sys.executable, "-m", "lumen_uring.ray.bound", str(os.getpid()), *arguments]
        variables = {**environment, "NOTIFY_SOCKET": f"@{name}"}
        self._thread = threading.Thread(
            target=self._run, args=(command, variables), name="lumen-child", daemon=True
        )
        self._thread.start()
        self._began.wait()

    @property
    def pid(self) -> int:
        """Of its process; 0 where none could be started."""
        return 0 if self._process is None else self._process.pid

    def wait_until_ready(self) -> None:
        """Waits until all its models are warm, however long that takes.

        Raises:
            ChildError: it ended instead.
        """
        with self._notices as notices:
            notices.settimeout(_LOOK_S)
            while not self._ended.is_set():
                with suppress(TimeoutError):
                    if _READY in notices.recv(_MESSAGE_BYTES).splitlines():
                        return
        self.check()

    def check(self) -> None:
        """Raises ChildError where it has ended."""
        if not self._ended.is_set():
            return
        if self._failure is not None:
            raise ChildError(f"the server could not be started: {self._failure}")
        assert self._process is not None
        said = "\n".join(self._said) or "(it said nothing)"
        raise ChildError(f"the server has ended ({_end(self._process.returncode)}):\n{said}")

    def watch(self, watcher: Callable[[], None]) -> None:
        """Has a function called, on another thread, when it ends without having been told to.

        Args:
            watcher: that function.

        Raises:
            ChildError: it has ended already.
        """
        self._watcher = watcher
        self.check()

    def stop(self, seconds: float) -> bool:
        """Tells it to end, and waits for its drain. Further calls wait, too.

        Args:
            seconds: after which it is killed.

        Returns:
            Whether it ended by itself.
        """
        if self._process is not None and not self._is_told and not self._ended.is_set():
            self._is_told = True
            self._process.send_signal(signal.SIGTERM)
        if self._ended.wait(seconds):
            return True
        if self._process is not None:
            self._process.kill()
        self._ended.wait()
        return False

    def _run(self, command: list[str], variables: dict[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # ^C in the driver's terminal is not for it
            )
        except OSError as error:
            self._failure = error
            self._ended.set()
            return
        finally:
            self._began.set()
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._said.append(line.rstrip())
                with suppress(OSError, ValueError):  # nobody reads it any more
                    print(line, end="", file=sys.stderr, flush=True)
        self._process.wait()
        self._ended.set()
        if self._watcher is not None and not self._is_told:
            self._watcher()


def _end(code: int) -> str:
    """Of a process, in words."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
