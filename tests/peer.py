"""A peer that speaks the native protocol from the server's side, well or badly.

Used by test_client.py, in threads of its own. It is written from docs/PROTOCOL.md with its own
struct formats, not with lumen_uring.protocol.native, so that a mistake there does not cancel
itself out. The model "sum" adds its rows up; "raw" answers with a shape block; "photo" takes
rgb8.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

REQUEST = struct.Struct("<4sBBHQIIIHH")
REPLY = struct.Struct("<4sHHQIIIIIIQ")

DESCRIPTION = {
    "server": {"name": "lumen", "version": "0.1.0", "protocol": 1},
    "models": [
        {
            "index": 0,
            "name": "sum",
            "max_rows": 512,
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [
                {"name": "total", "datatype": "FP32", "shape": [-1], "shape_known": True},
                {"name": "twice", "datatype": "FP32", "shape": [-1, 4], "shape_known": True},
            ],
            "rgb8": None,
        },
        {
            "index": 1,
            "name": "raw",
            "max_rows": 1,
            "inputs": [{"name": "x", "datatype": "INT64", "shape": [3]}],
            "outputs": [
                {"name": "y", "datatype": "INT64", "shape": [-1, -1], "shape_known": False}
            ],
            "rgb8": None,
        },
        {
            "index": 2,
            "name": "photo",
            "max_rows": 8,
            "inputs": [{"name": "data", "datatype": "FP32", "shape": [-1, 3, 2, 5]}],
            "outputs": [
                {"name": "mean", "datatype": "FP32", "shape": [-1, 3], "shape_known": True}
            ],
            "rgb8": {
                "height": 2,
                "width": 5,
                "layout": "NCHW",
                "channel_order": "RGB",
                "mean": [0, 0, 0],
                "scale": [1, 1, 1],
            },
        },
    ],
}


@dataclass
class Request:
    kind: int
    encoding: int
    model: int
    id: int
    timeout_us: int
    rows: int
    payload: bytes
    flags: int = 0


def reply(
    request_id: int, payload: bytes = b"", *, status: int = 0, flags: int = 0, rows: int = 0
) -> bytes:
    header = REPLY.pack(b"LMR1", status, flags, request_id, len(payload), rows, 1, 2, 3, 4, 0)
    return header + payload


def answer(request: Request) -> bytes:
    """What a well-behaved server says."""
    if request.kind == 2:
        return reply(request.id)
    if request.kind == 3:
        return reply(request.id, json.dumps(DESCRIPTION).encode())
    assert request.flags == 0
    if request.model == 0:
        x = np.frombuffer(request.payload, "<f4").reshape(-1, 4)
        if len(x) != request.rows:
            return reply(request.id, b"rows differ", status=1)
        payload = x.sum(axis=1).tobytes() + (x * 2).tobytes()
        return reply(request.id, payload, rows=request.rows)
    if request.model == 1:
        x = np.frombuffer(request.payload, "<i8")
        payload = struct.pack("<4I", 1, 2, 3, 1) + x.tobytes()
        return reply(request.id, payload, rows=1, flags=2)
    if request.model == 2 and request.encoding == 1:
        x = np.frombuffer(request.payload, np.uint8).reshape(request.rows, 2, 5, 3)
        payload = x.mean(axis=(1, 2), dtype=np.float32).tobytes()
        return reply(request.id, payload, rows=request.rows)
    return reply(request.id, "no such thing: é".encode(), status=2)


class Connection:
    """One accepted connection, for a script to use."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("the client closed")
            parts += part
        return bytes(parts)

    def request(self) -> Request:
        head = self.exactly(REQUEST.size)
        magic, kind, encoding, model, number, size, timeout, rows, flags, zero = REQUEST.unpack(
            head
        )
        assert (magic, flags & ~2, zero) == (b"LMN1", 0, 0)
        return Request(kind, encoding, model, number, timeout, rows, self.exactly(size), flags)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reset(self) -> None:
        """Ends the connection with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


Script = Callable[[Connection], None]


def behave(connection: Connection) -> None:
    """Answers for as long as the client asks."""
    while True:
        connection.send(answer(connection.request()))


@dataclass
class Peer:
    """A listening socket; the n-th connection is handled by the n-th script, the last repeats."""

    scripts: tuple[Script, ...] = (behave,)
    connections: int = 0
    failures: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Peer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        acceptor = threading.Thread(target=self._accept, daemon=True)
        acceptor.start()
        self._threads.append(acceptor)
        return self

    def __exit__(self, *_error: object) -> None:
        # shutdown, not only close: it also wakes the thread that sits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        assert not self.failures, self.failures

    def _accept(self) -> None:
        while True:
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return
            script = self.scripts[min(self.connections, len(self.scripts) - 1)]
            self.connections += 1
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, script), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, script: Script) -> None:
        try:
            script(Connection(sock))
        except OSError:
            pass  # the client went away, which is its right
        except BaseException as error:
            self.failures.append(error)
        finally:
            sock.close()
