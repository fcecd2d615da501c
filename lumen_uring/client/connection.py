"""One connection of the sync client, TCP or a unix socket: sends and receives by a deadline.

Used by client.py, by one thread at a time. The socket never blocks: poll waits, until the deadline
at most. It knows nothing of the protocol and never reconnects.
"""

from __future__ import annotations

import contextlib
import errno
import math
import re
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Final

from lumen_uring.errors import ConnectionFailed, RequestTimeout

# Linux takes at most this many buffers in one sendmsg (UIO_MAXIOV).
_BUFFERS_MAX: Final = 1024
# How the module ssl words an error: with a name and a line of its source.
_OF_SSL: Final = re.compile(r"(?:\[[^]]*\] )?(.*?)\.? \(_ssl\.c:\d+\)", re.DOTALL)


def unix_path(host: str) -> str | None:
    """Reads the path of a unix socket out of a host.

    Args:
        host: unix:PATH or unix://PATH, else a name or an address.

    Returns:
        The path, or None.

    >>> unix_path("unix:/run/lumen.sock"), unix_path("unix:///run/lumen.sock"), unix_path("unix")
    ('/run/lumen.sock', '/run/lumen.sock', None)
    """
    if not host.startswith("unix:"):
        return None
    return host.removeprefix("unix:").removeprefix("//")


def where(host: str, port: int) -> str:
    """Names a server in a message.

    Args:
        host: as given by the caller.
        port: as given by the caller; a unix socket has none.
    """
    return host if unix_path(host) is not None else f"{host}:{port}"


class Connection:
    """An open connection.

    Args:
        host: name or address, or unix:PATH.
        port: 1..65535.
        timeout_s: what messages name as the timeout; seconds.
        deadline: for connecting; monotonic seconds. It does not bound the look-up of the name.

    Raises:
        ConnectionFailed: no server listens there, or the network refuses.
        RequestTimeout: no answer in time.
    """

    def __init__(self, host: str, port: int, timeout_s: float, deadline: float) -> None:
        self._where = where(host, port)
        self._timeout_s = timeout_s
        try:
            self._socket = _connect(host, port, deadline)
        except TimeoutError:
            raise RequestTimeout(
                f"{self._where} did not accept a connection within {timeout_s:g} s."
            ) from None
        except (OSError, UnicodeError) as error:
            raise self._refused(host, port, error) from None
        self._socket.setblocking(False)
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(self._socket, select.POLLOUT)

    def close(self) -> None:
        """Closes the socket; may be called twice. Another process' copy of it stays open."""
        self._socket.close()

    def interrupt(self) -> None:
        """Makes a thread that waits on the connection fail; called on any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def is_quiet(self) -> bool:
        """Whether there is nothing to read, as on a live idle connection.

        Returns:
            False when the peer has closed, or has sent bytes without a request.
        """
        return not self._readable.poll(0)

    def send(self, buffers: Sequence[memoryview], deadline: float) -> None:
        """Sends all buffers, without a copy.

        Args:
            buffers: bytes, in order.
            deadline: monotonic seconds.

        Raises:
            ConnectionFailed: the peer is gone.
            RequestTimeout: the deadline passed.
        """
        waiting = [buffer for buffer in buffers if len(buffer)]
        while waiting:
            try:
                sent = self._socket.sendmsg(waiting[:_BUFFERS_MAX])
            except BlockingIOError:
                self._wait(self._writable, deadline)
                continue
            except OSError as error:
                raise self._broken(error) from None
            done = 0
            while done < len(waiting) and sent >= len(waiting[done]):
                sent -= len(waiting[done])
                done += 1
            del waiting[:done]
            if sent:
                waiting[0] = waiting[0][sent:]

    def send_descriptor(self, fd: int, deadline: float) -> None:
        """Sends one byte with a descriptor, over a unix socket.

        Args:
            fd: stays the caller's.
            deadline: monotonic seconds.

        Raises:
            ConnectionFailed: the peer is gone.
            RequestTimeout: the deadline passed.
        """
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))]
        self._wait(self._writable, deadline)
        try:
            self._socket.sendmsg([b"\0"], rights)
        except OSError as error:
            raise self._broken(error) from None

    def receive_into(self, target: memoryview, deadline: float) -> int:
        """Receives the bytes that have arrived; waits for the first.

        Args:
            target: at least one byte.
            deadline: monotonic seconds.

        Returns:
            The number of bytes written to target, at least 1.

        Raises:
            ConnectionFailed: the peer closed.
            RequestTimeout: the deadline passed.
        """
        while True:
            self._wait(self._readable, deadline)
            try:
                count = self._socket.recv_into(target)
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._broken(error) from None
            if count == 0:
                raise self._ended()
            return count

    def _wait(self, poll: select.poll, deadline: float) -> None:
        # Rounded up: a wait cut to 0 ms would spin through the last millisecond.
        left_ms = math.ceil((deadline - time.monotonic()) * 1000)
        if left_ms <= 0 or not poll.poll(min(left_ms, 2**31 - 1)):
            raise RequestTimeout(f"{self._where} did not answer within {self._timeout_s:g} s.")

    def _refused(self, host: str, port: int, error: OSError | UnicodeError) -> ConnectionFailed:
        return ConnectionFailed(connect_sentence(host, port, error))

    def _broken(self, error: OSError) -> ConnectionFailed:
        return ConnectionFailed(f"The connection to {self._where} broke: {reason_of(error)}.")

    def _ended(self) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self._where} closed the connection before the reply was complete."
        )


def _connect(host: str, port: int, deadline: float) -> socket.socket:
    path = unix_path(host)
    if path is not None:
        return _connected(socket.AF_UNIX, path, deadline)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    refused: OSError = OSError("the name has no address")
    # Not socket.create_connection, which gives its whole timeout to each address of a name. Here
    # each gets an equal share of the time left, so that one that drops packets hides no other.
    for index, (family, _kind, _protocol, _name, address) in enumerate(found):
        share = (deadline - time.monotonic()) / (len(found) - index)
        try:
            opened = _connected(family, address, time.monotonic() + share)
        except OSError as error:
            refused = error
            continue
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened
    raise refused


def _connected(family: int, address: Any, deadline: float) -> socket.socket:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.settimeout(left_s)
        opened.connect(address)
    except BaseException:
        opened.close()
        raise
    return opened


def connect_sentence(host: str, port: int, error: OSError | UnicodeError) -> str:
    """Says why no connection could be made, and what to do.

    Args:
        host: as given by the caller.
        port: as given by the caller.
        error: what connecting raised.
    """
    number = error.errno if isinstance(error, OSError) else None
    path = unix_path(host)
    if path is not None and number in (errno.ECONNREFUSED, errno.ENOENT):
        return f"No server listens on {host}: start one with `lumen serve --unix-socket {path}`."
    if path is not None and number == errno.EACCES:
        return f"No connection to {host}: its mode does not allow this user (unix_socket_mode)."
    if number == errno.ECONNREFUSED:
        return f"No server listens on {host}:{port}: start one with `lumen serve --port {port}`."
    return f"No connection to {where(host, port)}: {reason_of(error)}."


def reason_of(error: OSError | UnicodeError) -> str:
    """What a message gives as the reason: the system's or OpenSSL's words.

    Args:
        error: of a connection.
    """
    text = error.strerror if isinstance(error, OSError) else None
    return without_source(text or str(error)) or type(error).__name__


def without_source(text: str) -> str:
    """An error's text without what the module ssl adds.

    Args:
        text: of any error.

    >>> without_source("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    'wrong version number'
    """
    found = _OF_SSL.fullmatch(text)
    return found[1] if found else text
