"""HTTP/2 for the end-to-end tests: a client on the package h2, which is strict about what it gets,
and frames as bytes for what no client would send. Every wait is bounded by the socket's timeout."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import wire
from web import Answer

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW, CONTINUATION = (
    range(10)
)
END_STREAM, END_HEADERS, PADDED, HAS_PRIORITY, ACK = 1, 4, 8, 32, 1
_OF_CONNECTION: Final = ("connection", "host", "expect")


def fields_of(request: bytes) -> tuple[list[tuple[str, str]], bytes]:
    """The fields and the body of a request that is written as HTTP/1.1."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _version = first.split(" ")
    named = [line.partition(":")[::2] for line in lines]
    host = next((value.strip() for name, value in named if name.lower() == "host"), "localhost")
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", host)]
    for name, value in named:
        if name.lower() not in _OF_CONNECTION:
            fields.append((name.lower(), value.strip()))
    return fields, body


class Http2:
    """One connection, to a port or on a socket. `window`: bytes that the server may send ahead of
    who reads them."""

    def __init__(self, to: int | socket.socket, window: int = 1 << 24) -> None:
        if isinstance(to, int):
            to = socket.create_connection(("127.0.0.1", to), wire.TIMEOUT_S)
        self._socket = to
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.state = h2.connection.H2Connection(config)
        self.state.initiate_connection()
        self.state.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self._heads: dict[int, dict[str, str]] = {}
        self._bodies: dict[int, bytearray] = {}
        self.answers: dict[int, Answer] = {}
        self.resets: dict[int, int] = {}
        self.end: tuple[int, int] | None = None  # of GOAWAY: its error, and the last stream
        self.flush()

    def __enter__(self) -> Http2:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def flush(self) -> None:
        """Sends what the client has to say."""
        self._socket.sendall(self.state.data_to_send())

    def begin(self, fields: Iterable[tuple[str, str]], ends: bool = False) -> int:
        """Sends a head; returns its stream."""
        stream = self.state.get_next_available_stream_id()
        self.state.send_headers(stream, list(fields), end_stream=ends)
        self.flush()
        return int(stream)

    def body(self, stream: int, data: bytes, ends: bool = True, most: int = 1 << 20) -> None:
        """Sends a body as the server's windows allow it, in frames of at most so many bytes."""
        at = 0
        while at < len(data):
            if stream in self.answers:
                return
            room = min(self.state.local_flow_control_window(stream), most)
            room = min(room, self.state.max_outbound_frame_size)
            if room == 0:
                self.read()
                continue
            piece = data[at : at + room]
            at += len(piece)
            try:
                self.state.send_data(stream, piece, end_stream=ends and at == len(data))
            except h2.exceptions.StreamClosedError:  # the answer is here, and the rest not wanted
                return
            self.flush()
        if ends and not data:
            self.state.end_stream(stream)
            self.flush()

    def send(self, request: bytes) -> int:
        """Sends a request that is written as HTTP/1.1; returns its stream."""
        fields, body = fields_of(request)
        stream = self.begin(fields, ends=not body)
        if body:
            self.body(stream, body)
        return stream

    def read(self) -> list[Any]:
        """Waits for some bytes, and takes what they say. Returns the events."""
        data = self._socket.recv(1 << 16)
        if not data:
            raise EOFError("the server has ended the connection")
        events = self.state.receive_data(data)
        for event in events:
            self._take(event)
        self.flush()
        return events

    def _take(self, event: Any) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            self._heads[event.stream_id] = dict(event.headers)
            self._bodies[event.stream_id] = bytearray()
        elif isinstance(event, h2.events.DataReceived):
            self._bodies[event.stream_id] += event.data
            self.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            head = self._heads[event.stream_id]
            code = int(head.pop(":status"))
            body = bytes(self._bodies[event.stream_id])
            self.answers[event.stream_id] = Answer(code, "", head, body)
        elif isinstance(event, h2.events.StreamReset):
            self.resets[event.stream_id] = int(event.error_code)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.end = (int(event.error_code), int(event.last_stream_id or 0))

    def body_of(self, stream: int) -> bytes:
        """What is here of an answer's body."""
        return bytes(self._bodies.get(stream, b""))

    def wait(self, streams: Sequence[int]) -> list[Answer]:
        """The answers of these streams."""
        while missing := [stream for stream in streams if stream not in self.answers]:
            lost = {stream: self.resets[stream] for stream in missing if stream in self.resets}
            assert not lost, f"streams that were reset, with their codes: {lost}"
            self.read()
        return [self.answers[stream] for stream in streams]

    def query(self, request: bytes) -> Answer:
        """Sends a request, and waits for its answer."""
        (answer,) = self.wait([self.send(request)])
        return answer


# ---- frames as bytes ----


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """A frame, whatever it holds."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(*fields: tuple[str, str]) -> bytes:
    """A header block without a table and without Huffman's code; strings below 127 bytes."""
    block = b""
    for name, value in fields:
        texts = (name.encode("latin-1"), value.encode("latin-1"))
        block += b"\0" + b"".join(bytes([len(text)]) + text for text in texts)
    return block


def is_refused(link: socket.socket, data: bytes) -> bool:
    """Sends bytes; whether the other side takes no more of them."""
    try:
        link.sendall(data)
    except OSError:
        return True
    return False


class Raw:
    """A connection on which anything may be sent, and frames are read."""

    def __init__(self, to: int | socket.socket, greets: bool = True) -> None:
        if isinstance(to, int):
            to = socket.create_connection(("127.0.0.1", to), wire.TIMEOUT_S)
        self.socket = to
        self._bytes = b""
        if greets:
            self.socket.sendall(PREFACE + frame(SETTINGS, 0))

    def __enter__(self) -> Raw:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.socket.sendall(data)

    def is_refused(self, data: bytes) -> bool:
        """Sends bytes; whether the server takes no more."""
        return is_refused(self.socket, data)

    def frames(self) -> Iterable[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of each frame until the connection ends."""
        while True:
            while len(self._bytes) < 9 or len(self._bytes) < 9 + self._size():
                try:
                    more = self.socket.recv(1 << 16)
                except ConnectionResetError:
                    return
                if not more:
                    return
                self._bytes += more
            size = self._size()
            kind, flags, stream = struct.unpack(">BBI", self._bytes[3:9])
            payload, self._bytes = self._bytes[9 : 9 + size], self._bytes[9 + size :]
            yield kind, flags, stream, payload

    def _size(self) -> int:
        return int.from_bytes(self._bytes[:3], "big")

    def until(self, kind: int, stream: int) -> bytes:
        """The payload of the next such frame."""
        for found, _flags, of, payload in self.frames():
            if (found, of) == (kind, stream):
                return payload
        raise EOFError(f"no frame of kind {kind} on stream {stream} before the end")
