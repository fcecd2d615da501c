"""The common part of both clients of the native protocol: options, and the checks of a reply.

Used by client.py, async_client.py and async_link.py, on any thread. Nothing here opens a connection
or waits.
"""

from __future__ import annotations

import os
import ssl
import weakref
from typing import Final

from lumen_uring.client.connection import unix_path
from lumen_uring.client.tls import context_of
from lumen_uring.errors import BadRequest, ProtocolError, ServerError, UnknownModel, from_status
from lumen_uring.protocol import native
from lumen_uring.protocol.convert import Array
from lumen_uring.protocol.native import ReplyHeader

CLOSED: Final = "The client was closed."
_TIMEOUT_MAX_S: Final = 1e9  # what a socket takes


class ClientBase:
    """The options of a client, checked.

    A subclass keeps its connection in attributes that `_set_up` makes.

    Args:
        host: name or address of the server, or unix:PATH of its unix socket.
        port: its port, 1..65535; a unix socket has none.
        timeout_s: the longest that one call may take, with connecting; seconds, above 0, at most
            1e9, which is 31 years.
        max_reply_bytes: the client refuses a reply that claims more; bytes.
        token: of this client's key, where the server has keys; at most 32 characters.
        shared_memory: tensors of numbers go through memory that client and server share, and
            not through the socket: over unix:PATH, where the server has server.shared_memory.
        tls: speak TLS, as on the port of server.tls. True: the system's authorities vouch for the
            server, whose certificate is for `host`; an ssl.SSLContext says otherwise, such as
            ssl.create_default_context(cafile="ca.pem").

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        timeout_s: float = 10.0,
        max_reply_bytes: int = 1 << 30,
        token: str | None = None,
        shared_memory: bool = False,
        tls: ssl.SSLContext | bool = False,
    ) -> None:
        if not 0 < port <= 65535:
            raise ValueError(f"port: expected 1..65535, found {port}")
        if not 0 < timeout_s <= _TIMEOUT_MAX_S:
            raise ValueError(f"timeout_s: expected seconds above 0, at most 1e9, found {timeout_s}")
        if shared_memory and unix_path(host) is None:
            raise ValueError(f"shared_memory: expected a host unix:PATH, found {host!r}")
        self._tls = context_of(tls, host)
        self._host = host
        self._port = port
        self._timeout_s = timeout_s
        self._max_reply_bytes = max_reply_bytes
        self._credential = native.pack_credential(token)
        self._shares = shared_memory
        self._closed = False
        self._set_up()
        _clients.add(self)

    def _set_up(self) -> None:
        """Makes the attributes of the subclass; called once."""
        raise NotImplementedError

    def _after_fork(self) -> None:
        """Lets go of the parent's connection; called in a forked child."""
        raise NotImplementedError

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"this {type(self).__name__} is closed")


def check_size(header: ReplyHeader, max_reply_bytes: int) -> None:
    """Refuses a reply that claims too much.

    Args:
        header: the reply's.
        max_reply_bytes: the client's limit; bytes.

    Raises:
        ProtocolError: it claims more.
    """
    if header.payload_bytes > max_reply_bytes:
        raise ProtocolError(
            f"The reply claims {header.payload_bytes} bytes; max_reply_bytes is {max_reply_bytes}."
        )


def refuses_header(header: ReplyHeader) -> bool:
    """Whether a reply refuses a request whose header the server could not read.

    The server does not know the id of such a request: the reply has status 1 and id 0.

    Args:
        header: the reply's.
    """
    return header.status == 1 and header.id == 0


def may_be_stale(header: ReplyHeader, encoding: int) -> bool:
    """Whether a refusal may come of a description that was true once: the model is not there, or
    takes something else. A file of a picture is refused for what is in it.

    Args:
        header: the reply's; its status is not 0.
        encoding: of the request.
    """
    is_shape = header.status == BadRequest.status and encoding != native.ENCODING_IMAGE
    return is_shape or header.status == UnknownModel.status


def refusal(header: ReplyHeader, payload: Array) -> ServerError:
    """Makes the typed error of a reply whose status is not 0; the payload is its text."""
    return from_status(header.status, bytes(payload.data).decode("utf-8", "replace"))


# A hook of Python's own: a check at each call could not tell apart two threads of a child that make
# their first call at the same time.
_clients: weakref.WeakSet[ClientBase] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)
