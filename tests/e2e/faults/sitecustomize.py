"""Makes calls of the operating system fail in a server's Python, and in the Python it starts.

Python imports it first of all where its folder is in PYTHONPATH. While the byte of LUMEN_FAULTS is
an error's number, each call from a line of Lumen's that never failed before fails once: that file
holds, behind the byte, the lines that have failed. Calls are those that CPython audits, and those
of `os` that it does not.
"""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_PACKAGE: Final = f"{os.sep}lumen_uring{os.sep}"
_AUDITED: Final = ("open", "os.", "socket.", "subprocess.", "mmap.", "fcntl.", "_thread.start")
# The last also names a socket that is there already, as accept's.
_HARMLESS: Final = ("os.putenv", "os.unsetenv", "socket.__new__")
_NOT_AUDITED: Final = (
    *("dup", "dup2", "eventfd", "fstat", "fsync", "memfd_create", "pipe", "read", "readlink"),
    *("sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "stat", "statvfs", "write"),
)
# In processes that the server starts none fails where only the server's are to.
_IS_OUT: Final = "LUMEN_FAULTS_SERVER" in os.environ and any(
    word.startswith("lumen_uring.") for word in sys.orig_argv
)
_file: Final = os.open(os.environ["LUMEN_FAULTS"], os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
_real: Final = {name: getattr(os, name) for name in _NOT_AUDITED}
_done: Final[set[bytes]] = set()
_busy: Final[set[int]] = set()


def _caller(frame: FrameType | None) -> FrameType | None:
    """Lumen's innermost frame."""
    while frame is not None and _PACKAGE not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame


def _fail(call: str) -> None:
    error = 0 if _IS_OUT else os.pread(_file, 1, 0)[0]
    frame = _caller(sys._getframe(2)) if error else None
    if frame is None:
        return
    where = frame.f_code.co_filename.rpartition(_PACKAGE)[2]
    line = f"{call} {where}:{frame.f_lineno}\n".encode()
    if line in _done:
        return
    fcntl.flock(_file, fcntl.LOCK_EX)
    try:
        size = _real["fstat"](_file).st_size
        _done.update(os.pread(_file, size, 1).splitlines(keepends=True))
        if line in _done:
            return
        _done.add(line)
        _real["write"](_file, line)
    finally:
        fcntl.flock(_file, fcntl.LOCK_UN)
    if call == "_thread.start_new_thread":
        raise RuntimeError("can't start new thread")
    raise OSError(error, os.strerror(error))


def _guarded(call: str) -> None:
    """The calls of _fail itself do not fail."""
    import _thread

    me = _thread.get_ident()
    if me not in _busy:
        _busy.add(me)
        try:
            _fail(call)
        finally:
            _busy.discard(me)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    is_open = event == "open" and isinstance(arguments[0], int)  # a descriptor: nothing is called
    if event.startswith(_AUDITED) and event not in _HARMLESS and not is_open:
        _guarded(event)


def _failing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def made(*arguments: Any, **named: Any) -> Any:
        _guarded(name)
        return call(*arguments, **named)

    return made


def _install() -> None:
    for name, call in _real.items():
        setattr(os, name, _failing(f"os.{name}", call))
    accept = socket.socket._accept  # type: ignore[attr-defined]
    socket.socket._accept = _failing("socket.accept", accept)  # type: ignore[attr-defined]
    sys.addaudithook(_audit)


_install()
