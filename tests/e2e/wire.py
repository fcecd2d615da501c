"""The native protocol, version 1, written from section 5 of the design and nothing else.

Used by every end-to-end test, on the test's threads. It shares no code with lumen_uring, so that a
mistake there cannot cancel itself out. Every wait is bounded by the socket's timeout; a peer that
says less than it should shows up as a failed assertion or a timeout, never as a hang.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REQUEST = struct.Struct("<4sBBHQIIIHH")
REPLY = struct.Struct("<4sHHQIIIIIIHHI")

INFER, PING, DESCRIBE = 1, 2, 3
TENSORS, RGB8 = 0, 1
CREDENTIAL, SHAPES = 1, 2
OK, BAD_REQUEST, UNKNOWN_MODEL, TOO_LARGE, OVERLOADED, DEADLINE = 0, 1, 2, 3, 4, 5
UNAUTHORISED = 6
INFERENCE_FAILED, SHUTTING_DOWN = 8, 9

TIMEOUT_S = 60.0
_RECEIVE_BYTES = 1 << 18


@dataclass
class Tally:
    """The counts of the tests' own clients of one server, on all their threads."""

    connections: int = 0
    sent: int = 0  # bytes
    received: int = 0
    cut: bool = False  # a connection was ended by the server, or broke
    native: Counter[int] = field(default_factory=Counter)  # replies by status
    http: Counter[int] = field(default_factory=Counter)  # answers by code
    lock: threading.Lock = field(default_factory=threading.Lock)


# By port, and by path of a unix socket; a server that starts gets a new one.
TALLIES: dict[int | Path, Tally] = defaultdict(Tally)


class _Socket(socket.socket):
    """Counts what passes, for all that goes through a Wire."""

    tally: Tally

    def _count(self, sent: int = 0, received: int = 0, cut: bool = False) -> None:
        with self.tally.lock:
            self.tally.sent += sent
            self.tally.received += received
            self.tally.cut |= cut

    def send(self, data: Any, *rest: Any) -> int:
        return self._sent(super().send, data, *rest)

    def sendmsg(self, buffers: Any, *rest: Any) -> int:
        return self._sent(super().sendmsg, buffers, *rest)

    def sendall(self, data: Any, *rest: Any) -> None:
        try:
            super().sendall(data, *rest)
        except OSError:  # how much went is not known
            self._count(sent=memoryview(data).nbytes, cut=True)
            raise
        self._count(sent=memoryview(data).nbytes)

    def recv(self, *arguments: Any) -> bytes:
        try:
            data = super().recv(*arguments)
        except ConnectionError:
            self._count(cut=True)
            raise
        self._count(received=len(data), cut=not data)
        return data

    def _sent(self, send: Callable[..., int], *arguments: Any) -> int:
        try:
            count = send(*arguments)
        except ConnectionError:
            self._count(cut=True)
            raise
        self._count(sent=count)
        return count


class Closed(Exception):
    """The server ended the connection where a reply was expected."""


@dataclass(frozen=True)
class Reply:
    """One reply as it came."""

    status: int
    flags: int
    id: int
    rows: int
    times_us: tuple[int, int, int, int]
    payload: bytes
    expert: int = 0

    @property
    def text(self) -> str:
        """The sentence of a refusal."""
        assert self.status != OK
        return self.payload.decode("utf-8")


def frame(
    payload: bytes = b"",
    *,
    kind: int = INFER,
    encoding: int = TENSORS,
    model: int = 0,
    id: int = 0,
    timeout_us: int = 0,
    rows: int = 0,
    flags: int = 0,
    reserved: int = 0,
    magic: bytes = b"LMN1",
    length: int | None = None,
) -> bytes:
    """One request; `length` lies about the payload where a test wants that."""
    size = len(payload) if length is None else length
    head = REQUEST.pack(magic, kind, encoding, model, id, size, timeout_us, rows, flags, reserved)
    return head + payload


def ping(id: int = 0) -> bytes:
    return frame(kind=PING, id=id)


def shape_block(shapes: Sequence[Sequence[int]]) -> bytes:
    words = [len(shapes)]
    for shape in shapes:
        words += [len(shape), *shape]
    return struct.pack(f"<{len(words)}I", *words)


def split_shapes(payload: bytes) -> tuple[list[tuple[int, ...]], bytes]:
    """The shapes at the start of a payload, and what follows them."""
    (count,) = struct.unpack_from("<I", payload)
    at = 4
    shapes = []
    for _ in range(count):
        (rank,) = struct.unpack_from("<I", payload, at)
        shapes.append(struct.unpack_from(f"<{rank}I", payload, at + 4))
        at += 4 + 4 * rank
    return shapes, payload[at:]


class Wire:
    """One connection of the test."""

    def __init__(
        self, port: int | Path, host: str = "127.0.0.1", receive_buffer_bytes: int | None = None
    ) -> None:
        """`port` may be the path of a unix socket."""
        family = socket.AF_UNIX if isinstance(port, Path) else socket.AF_INET
        self.socket = _Socket(family, socket.SOCK_STREAM)
        self.tally = self.socket.tally = TALLIES[port]
        if receive_buffer_bytes is not None:  # before connecting, or the window is already larger
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(TIMEOUT_S)
        if isinstance(port, Path):
            self.socket.connect(str(port))
        else:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.connect((host, port))
        with self.tally.lock:
            self.tally.connections += 1
        self._have = bytearray()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_until_blocked(self, data: bytes, most_bytes: int, quiet_s: float = 0.2) -> int:
        """Repeats `data` until the server takes no more; returns the bytes it took.

        Only a send that stays blocked for `quiet_s` counts: that is what back-pressure looks like.
        """
        self.socket.settimeout(quiet_s)
        sent = 0
        at = 0
        try:
            while sent < most_bytes:
                count = self.socket.send(memoryview(data)[at:])
                sent += count
                at = (at + count) % len(data)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self.socket.settimeout(TIMEOUT_S)
        return sent

    def reply(self) -> Reply:
        """The next reply; raises Closed where the stream ends before its first byte."""
        head = self._exactly(REPLY.size, may_end=True)
        magic, status, flags, number, size, rows, *times, width, expert, zeros = REPLY.unpack(head)
        assert magic == b"LMR1", f"expected a reply, found {bytes(head[:16])!r}"
        assert zeros == 0
        assert width + expert == 0 or status == OK
        assert flags in (0, SHAPES)
        payload = self._exactly(size)
        if status != OK:
            assert flags == 0
            assert rows == 0
            assert 0 < size <= 400, f"status {status} with {size} bytes of text"
            payload.decode("utf-8")
        with self.tally.lock:
            self.tally.native[status] += 1
        stages = (times[0], times[1], times[2], times[3])
        return Reply(status, flags, number, rows, stages, payload, expert)

    def replies(self, count: int) -> dict[int, Reply]:
        """`count` replies by their ids, in whatever order; an id that comes twice fails."""
        by_id: dict[int, Reply] = {}
        for _ in range(count):
            reply = self.reply()
            assert reply.id not in by_id, f"two replies to request {reply.id}"
            by_id[reply.id] = reply
        return by_id

    def ask(self, request: bytes) -> Reply:
        self.send(request)
        return self.reply()

    def finish(self) -> None:
        """Says that no more requests come."""
        self.socket.shutdown(socket.SHUT_WR)

    def expect_end(self) -> None:
        """The server has half-closed or closed, and says nothing more."""
        assert not self._have, bytes(self._have[:64])
        assert self.socket.recv(1) == b""

    def expect_closed(self) -> bytes:
        """Reads to the end of the stream, FIN or RST; returns what came before it."""
        rest = bytes(self._have)
        self._have.clear()
        try:
            while part := self.socket.recv(_RECEIVE_BYTES):
                rest += part
        except ConnectionError:
            pass
        return rest

    def reset(self) -> None:
        """Ends the connection with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, count: int, may_end: bool = False) -> bytes:
        while len(self._have) < count:
            part = self.socket.recv(_RECEIVE_BYTES)
            if not part:
                if may_end and not self._have:
                    raise Closed
                raise AssertionError(
                    f"the stream ended after {len(self._have)} of {count} bytes of a reply"
                )
            self._have += part
        data = bytes(self._have[:count])
        del self._have[:count]
        return data
