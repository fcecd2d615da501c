"""Memory that a test shares with a server over its unix socket, as docs/PROTOCOL.md says.

Used by test_e2e_regions.py, on the test's thread. It shares no code with lumen_uring.
"""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Sequence

import numpy as np
import wire
from wire import Reply, Wire

REGION = 4  # a kind
IN_REGION = 4  # a flag
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
Span = tuple[int, int]  # offset and bytes


def memfd(size: int, seals: int = SEALS, flags: int = os.MFD_CLOEXEC) -> int:
    fd = os.memfd_create("test", flags | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def send_descriptors(connection: Wire, fds: Sequence[int], data: bytes = b"\0") -> Reply:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    connection.socket.sendmsg([data], rights)
    return connection.reply()


def announce(connection: Wire, number: int = 70) -> Reply:
    return connection.ask(wire.frame(kind=REGION, id=number))


def hand_over(connection: Wire, fds: Sequence[int], number: int = 70) -> Reply:
    """The reply to the descriptors; that to the announcement is OK."""
    reply = announce(connection, number)
    assert (reply.status, reply.id, reply.payload) == (wire.OK, number, b"")
    return send_descriptors(connection, fds)


class Region:
    """A memfd of the test's, mapped here."""

    def __init__(self, size: int = 1 << 20) -> None:
        self.fd = memfd(size)
        self.memory = mmap.mmap(self.fd, size)
        self.bytes = np.frombuffer(self.memory, np.uint8)

    def hand_over(self, connection: Wire) -> None:
        reply = hand_over(connection, [self.fd])
        assert (reply.status, reply.payload) == (wire.OK, b""), reply

    def put(self, offset: int, values: np.ndarray) -> Span:
        data = np.frombuffer(values.tobytes(), np.uint8)
        self.bytes[offset : offset + len(data)] = data
        return offset, len(data)

    def get(self, offset: int, like: np.ndarray) -> np.ndarray:
        data = self.bytes[offset : offset + like.nbytes]
        return np.frombuffer(data.tobytes(), like.dtype).reshape(like.shape)

    def close(self) -> None:
        os.close(self.fd)


def frame(
    spans: Sequence[Span], *, shapes: bytes = b"", credential: bytes = b"", **rest: int
) -> bytes:
    """A request whose tensors are in the region: inputs, then outputs."""
    body = b"".join(struct.pack("<QQ", *span) for span in spans)
    flags = IN_REGION | (wire.SHAPES if shapes else 0) | (wire.CREDENTIAL if credential else 0)
    return wire.frame(credential + shapes + body, flags=flags, **rest)
