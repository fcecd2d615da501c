"""TLS of both clients: the context, why no connection was made, the sync client's connection.

Used by base.py, client.py and async_client.py, on any thread. As in connection.py the socket never
blocks. No end is announced: what a forked child sent on its parent's connection would break it.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from lumen_uring.client import connection
from lumen_uring.client.connection import Connection, reason_of, unix_path, where
from lumen_uring.errors import ConnectionFailed

_T = TypeVar("_T")
_PROTOCOL: Final = "lumen/1"  # of ALPN
# The most that a record holds: RFC 8446, section 5.1.
_RECORD_BYTES: Final = 16 << 10
# X509_V_ERR_*: self-signed, alone or in the chain; an authority that is not there; no chain.
_UNKNOWN_AUTHORITY: Final = (18, 19, 20, 21)


def context_of(tls: ssl.SSLContext | bool, host: str) -> ssl.SSLContext | None:
    """The context of a client's connections.

    Args:
        tls: True: the system's authorities vouch for the server; False: no TLS.
        host: of the server.

    Returns:
        None without TLS; a context that the caller made, as it is.

    Raises:
        ValueError: it is something else, or the host is a unix socket.
    """
    if tls is False:
        return None
    if unix_path(host) is not None:
        raise ValueError(f"tls: expected a host with a port, found {host!r}, which has no TLS")
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is not True:
        raise ValueError(f"tls: expected True, False or an ssl.SSLContext, found {tls!r}")
    made = ssl.create_default_context()
    made.set_alpn_protocols([_PROTOCOL])
    return made


def connect_sentence(host: str, port: int, error: OSError | UnicodeError) -> str:
    """Says why no connection with TLS could be made, and what to do.

    Args:
        host: as given by the caller.
        port: as given by the caller.
        error: of connecting, or of the handshake.
    """
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return f"No server listens on {where(host, port)}: expected the port of `server.tls`."
    if not isinstance(error, ssl.SSLError | ConnectionError):
        return connection.connect_sentence(host, port, error)
    place, found = where(host, port), reason_of(error)
    if not isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"No connection to {place}: expected TLS, as on the port of `server.tls`, "
            f"found: {found}."
        )
    cure = ""
    if error.verify_code in _UNKNOWN_AUTHORITY:
        cure = " Give the client its authority: tls=ssl.create_default_context(cafile=FILE)."
    return (
        f"No connection to {place}: expected a certificate for {host} by an authority that the "
        f"client trusts, found: {found}.{cure}"
    )


class TlsConnection(Connection):
    """An open connection with TLS.

    Args:
        host: name or address; the certificate is to be for it, where the context asks that.
        port: 1..65535.
        timeout_s: what messages name as the timeout; seconds.
        deadline: for connecting and the handshake; monotonic seconds.
        context: of context_of.

    Raises:
        ConnectionFailed: no server listens there, or the handshake failed.
        RequestTimeout: no answer in time.
    """

    def __init__(
        self, host: str, port: int, timeout_s: float, deadline: float, context: ssl.SSLContext
    ) -> None:
        super().__init__(host, port, timeout_s, deadline)
        try:
            self._secure = context.wrap_socket(
                self._socket, server_hostname=host, do_handshake_on_connect=False
            )
            self._socket = self._secure  # of the same descriptor, which the polls know
            self._until(self._secure.do_handshake, deadline)
        except OSError as error:
            self.close()
            raise self._refused(host, port, error) from None
        except BaseException:
            self.close()
            raise

    def interrupt(self) -> None:
        """As Connection.interrupt."""
        # SSLSocket.shutdown forgets the session first: the thread that waits could send in the
        # clear then.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._secure, socket.SHUT_RDWR)

    def is_quiet(self) -> bool:
        """As Connection.is_quiet: tickets of sessions, which come unasked, are no bytes."""
        with contextlib.suppress(OSError):
            try:
                self._secure.recv(1)
            except ssl.SSLWantReadError:
                return True
        return False

    def send(self, buffers: Sequence[memoryview], deadline: float) -> None:
        """As Connection.send; small buffers are joined to a record."""
        try:
            for part in _records(buffers):
                while part:
                    part = part[self._until(partial(self._secure.send, part), deadline) :]
        except OSError as error:
            raise self._broken(error) from None

    def receive_into(self, target: memoryview, deadline: float) -> int:
        """As Connection.receive_into."""
        # What is left of a record is not in the socket any more.
        if not self._secure.pending():
            self._wait(self._readable, deadline)
        try:
            count = self._until(partial(self._secure.recv_into, target), deadline)
        except OSError as error:
            raise self._broken(error) from None
        if count == 0:
            raise self._ended()
        return count

    def _until(self, step: Callable[[], _T], deadline: float) -> _T:
        """Takes a step of TLS, which may have to wait in either direction."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                ready = self._readable
            except ssl.SSLWantWriteError:
                ready = self._writable
            self._wait(ready, deadline)

    def _refused(self, host: str, port: int, error: OSError | UnicodeError) -> ConnectionFailed:
        return ConnectionFailed(connect_sentence(host, port, error))


def _records(buffers: Sequence[memoryview]) -> Iterator[memoryview]:
    """The same bytes: small buffers joined, others where they are."""
    joined = bytearray()
    for buffer in buffers:
        if joined and len(joined) + len(buffer) > _RECORD_BYTES:
            yield memoryview(joined)
            joined = bytearray()
        if len(buffer) > _RECORD_BYTES:
            yield buffer
        else:
            joined += buffer
    yield memoryview(joined)
