"""A process that has read all that a check needs, and forks one for each: starting Python and
reading its modules takes 20 to 30 times the CPU time of checking a small model.

`Nursery` is prepare.py's, in a server whose models come and go, or have processes of their own. The
server forks it before it has another thread, so that what it has read is read already; one that is
to replace it starts anew. `main` runs in the process, on the one thread that it has when it forks.
They speak by datagrams on a socket: "warm", "warm gently", "check" with three descriptors, or
"kill"; "pid N", then "status N". One check at a time. Where there is no nursery, a check starts
alone.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, NoReturn, Protocol

from lumen_uring.loading.check import Files
from lumen_uring.ring.process import end_with_parent, gently, step_back

_MODULE: Final = "lumen_uring.loading.nursery"
_MESSAGE_BYTES: Final = 64
_WARM: Final = b"warm"
_WARM_GENTLY: Final = b"warm gently"
_CHECK: Final = b"check"
_KILL: Final = b"kill"


# ---- in the server ----


class _Process(Protocol):
    """The nursery's, as subprocess has one."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class Nursery:
    """The process, which is forked at the start, or started when it is first needed, and again
    after it has ended.

    Args:
        module: its `warm_up` is called once, its `main` in each check.
        is_gentle: once it is warm, it and its checks take only the CPU time that nobody else wants.
    """

    def __init__(self, module: str, is_gentle: bool) -> None:
        self.is_gentle = is_gentle
        self._module = module
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._socket: socket.socket | None = None
        self._is_warm = False

    def fork(self) -> None:
        """Makes the process of this one, unless another thread runs here, or there is none to be
        had: then it is started when it is needed. It is not warm yet, nor gentle."""
        with suppress(OSError), self._lock:
            # A lock that another thread holds, a library's too, would stay locked in the process.
            if len(os.listdir("/proc/self/task")) > 1:
                return
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            parent = os.getpid()
            with theirs:
                try:
                    pid = os.fork()
                except OSError:
                    ours.close()
                    raise
                if pid == 0:
                    _become_nursery(theirs, self._module, parent)
            self._process, self._socket, self._is_warm = _ForkedNursery(pid), ours, False

    def start(self) -> None:
        """Starts the process, unless it runs, has it get warm, and does not wait for that.

        Raises:
            OSError: there is no process, or no descriptor.
        """
        with self._lock:
            if self._socket is None:
                self._start_anew()
            elif not self._is_warm:
                self._socket.send(_WARM_GENTLY if self.is_gentle else _WARM)
            self._is_warm = True

    def _start_anew(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                spawn = partial(self._spawn, theirs)
                self._process = gently(spawn) if self.is_gentle else spawn()
            except OSError:
                ours.close()
                raise
        self._socket = ours

    def _spawn(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", _MODULE, self._module],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def has_priority_of(self, is_gentle: bool) -> bool:
        """Whether its checks can have this priority: before it is warm they can have either."""
        return self.is_gentle == is_gentle or (self._socket is not None and not self._is_warm)

    def begin(self, told: Files, is_gentle: bool) -> Forked:
        """Begins a check.

        Args:
            told: its files.
            is_gentle: its priority, which this nursery has.

        Raises:
            OSError: there is no nursery.
        """
        if self._socket is None or is_gentle:
            self.start()
        with self._lock:
            if self._socket is None or self._process is None:
                raise ConnectionResetError
            socket.send_fds(self._socket, [_CHECK], told)
            return Forked(self._socket, self._process)

    def close(self) -> None:
        """Ends the process, and the check that it runs."""
        with self._lock:
            if self._process is not None:
                self._process.kill()  # whoever waits for a check sees that
                self._process.wait()
                self._process = None
            if self._socket is not None:
                self._socket.close()
                self._socket = None


class _ForkedNursery:
    """The nursery's process where it was forked, as _Process has it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Ends it, if nobody has waited for its end yet."""
        with self._lock:
            if self._status is None:
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, below 0 a signal. It has ended, or is about to: no time is taken."""
        del timeout
        with self._lock:
            if self._status is None:
                self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self._status


class Forked:
    """A check that a nursery forks, as check.Check has it."""

    def __init__(self, line: socket.socket, nursery: _Process) -> None:
        self._line = line
        self._nursery = nursery
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self.pid = nursery.pid  # until it is forked

    def wait(self, timeout_s: float) -> int | None:
        """As Check has it."""
        while self._poll.poll(timeout_s * 1000):
            what, _, number = self._line.recv(_MESSAGE_BYTES).partition(b" ")
            if what == b"status":
                return int(number)
            if what != b"pid":
                raise ConnectionResetError("the nursery has ended")
            self.pid = int(number)
        return None

    def kill(self) -> None:
        """As Check has it."""
        with suppress(OSError):  # it has ended
            self._line.send(_KILL)

    def end(self) -> None:
        """As Check has it. It ends with the nursery, which may hang, or get no time, as it does."""
        self._nursery.kill()
        self._nursery.wait()


# ---- the process ----


def _become_nursery(line: socket.socket, module: str, parent: int) -> NoReturn:
    """Makes a nursery of a process that was forked: nothing of the server's is open in it."""
    try:
        gc.freeze()  # a collection here would write to the server's pages, which are shared so far
        Path("/proc/self/comm").write_text("lumen-nursery", "ascii")
        end_with_parent()
        if os.getppid() != parent:
            os._exit(0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _keep_open(line)
        os._exit(_fork_checks(line, module))
    except BaseException:  # as where a process that starts anew cannot begin: the server sees it
        os._exit(1)


def _keep_open(line: socket.socket) -> None:
    """Closes all other descriptors; standard input and output lead nowhere."""
    for number in (0, 1, 2):
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
    os.closerange(3, line.fileno())
    os.closerange(line.fileno() + 1, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    # The server's streams may be None, or hold text that is not written yet.
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 -- until the end
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )


def main() -> int:
    """Forks checks until the server closes its end of the socket. Returns the exit status."""
    module = sys.argv[1]
    _warm_up(module)
    return _fork_checks(socket.socket(fileno=os.dup(0)), module)


def _warm_up(name: str) -> None:
    # A thread that a library starts would not be there in what is forked.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    importlib.import_module(name).warm_up()
    gc.collect()
    gc.freeze()  # or each check would write to all of it


def _fork_checks(line: socket.socket, name: str) -> int:
    """Does what the server says, until that closes its end. Returns the exit status."""
    while True:
        message, told, _flags, _address = socket.recv_fds(line, _MESSAGE_BYTES, len(Files._fields))
        if not message:
            return 0
        if message in (_WARM, _WARM_GENTLY):
            if message == _WARM_GENTLY:
                step_back()
            _warm_up(name)
        if message != _CHECK:  # to kill what has ended
            continue
        nursery = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(importlib.import_module(name), line, told, nursery)
        for descriptor in told:
            os.close(descriptor)
        line.send(b"pid %d" % pid)
        status = _wait(line, pid)
        if status is None:
            return 0
        line.send(b"status %d" % status)


def _become(module: ModuleType, line: socket.socket, told: list[int], nursery: int) -> NoReturn:
    """Makes of a process that was forked a check on these files."""
    status = 1
    try:
        end_with_parent()
        if os.getppid() != nursery:
            os._exit(1)
        line.close()
        for number, descriptor in enumerate(told):
            os.dup2(descriptor, number)
            os.close(descriptor)
        status = module.main()
        sys.stdout.flush()
    except SystemExit as end:  # as Python itself has it
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)


def _wait(line: socket.socket, pid: int) -> int | None:
    """Waits for a check's end, or kills it when the server says so, or has ended (None)."""
    child = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(line, select.POLLIN)
        poll.register(child, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            is_over = line.fileno() in ready and not line.recv(_MESSAGE_BYTES)
            if line.fileno() in ready:  # nothing else is said meanwhile than to kill it
                os.kill(pid, signal.SIGKILL)
            if child in ready or is_over:
                _, status = os.waitpid(pid, 0)
                return None if is_over else os.waitstatus_to_exitcode(status)
    finally:
        os.close(child)


if __name__ == "__main__":
    sys.exit(main())
