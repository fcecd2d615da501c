"""Upstreams of HTTP/2 for the end-to-end tests: the scripts of upstreams.py on streams, whose
answers of HTTP/1.1 become frames, by the package h2, which is strict about what it gets; and
upstreams that send any frames at all. Every wait is bounded."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import http2
import wire
from upstreams import Peer, Request, Script, Upstream, echo

_FRAME_BYTES = 9
_Any = TypeVar("_Any", bound=Upstream)


class Stream(Peer):
    """The other end of a request, for a script: it is sent what HTTP/1.1 would be."""

    def __init__(self, to: socket.socket, connection: Connection, number: int) -> None:
        super().__init__(to)
        self._connection = connection
        self.number = number
        self._head: dict[str, str] | None = None
        self._held = b""
        self._left = -1  # bytes, of an answer with a length
        self._is_over = False

    def send(self, data: bytes) -> None:
        self._held += data
        if self._head is None:
            if b"\r\n\r\n" not in self._held:
                return
            self._begin()
        if self._left >= 0:
            self._left -= len(self._held)
            self._say(self._held, self._left <= 0)
            self._held = b""
        elif "transfer-encoding" in (self._head or {}):
            self._take_chunks()
        else:
            self._say(self._held, False)
            self._held = b""

    def _begin(self) -> None:
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        named = [line.partition(":")[::2] for line in lines]
        self._head = {name.lower(): value.strip() for name, value in named}
        self._left = int(self._head.get("content-length", -1))
        fields = [(":status", first.split()[1])]
        fields += [(n, v) for n, v in self._head.items() if n != "transfer-encoding"]
        self._connection.say(lambda state: state.send_headers(self.number, fields), self.number)

    def _take_chunks(self) -> None:
        while b"\r\n" in self._held:
            line, _, rest = self._held.partition(b"\r\n")
            size = int(line, 16)
            if len(rest) < size + 2:
                return
            self._held = rest[size + 2 :]
            self._say(rest[:size], size == 0)

    def _say(self, data: bytes, is_last: bool) -> None:
        if data or is_last:
            self._connection.body(self.number, data, is_last)
        self._is_over = self._is_over or is_last

    def ends(self) -> bool:
        """Waits until the request is given up; False: it is not."""
        return self._connection.is_given_up(self.number)

    def end(self) -> None:
        self._say(b"", True)

    def cut(self) -> None:
        if not self._is_over:
            self.reset(h2.errors.ErrorCodes.INTERNAL_ERROR)

    def reset(self, error: int) -> None:
        """Ends the stream with an error."""
        self._is_over = True
        with suppress(EOFError):
            self._connection.say(lambda state: state.reset_stream(self.number, error), self.number)

    def goaway(self, last: int, error: int = 0) -> None:
        """Says that streams above this one are not looked at, and none comes any more."""
        self._connection.send(http2.frame(http2.GOAWAY, 0, struct.pack(">II", last, error)))


class Connection:
    """A connection: one thread reads, those of its scripts send."""

    def __init__(self, owner: Upstream2, to: socket.socket) -> None:
        self._owner = owner
        self._socket = to
        self._lock = threading.Condition()
        self._given_up: set[int] = set()
        self._is_over = False
        config = h2.config.H2Configuration(client_side=False, header_encoding="latin-1")
        self._state = h2.connection.H2Connection(config)

    def say(self, what: Callable[[Any], None], stream: int = 0) -> None:
        with self._lock:
            if stream in self._given_up or self._is_over:
                raise EOFError("the request is given up")
            what(self._state)
            self._flush()

    def _greet(self) -> None:
        codes = h2.settings.SettingCodes
        self._state.initiate_connection()
        self._state.update_settings(  # in force once the client has said so
            {
                codes.MAX_CONCURRENT_STREAMS: self._owner.streams,
                codes.INITIAL_WINDOW_SIZE: self._owner.window,
            }
        )
        self._flush()

    def send(self, frame: bytes) -> None:
        """Sends what the package would not."""
        with self._lock:
            self._socket.sendall(frame)

    def _flush(self) -> None:
        data = self._state.data_to_send()
        if data:
            self._socket.sendall(data)

    def body(self, stream: int, data: bytes, is_last: bool) -> None:
        """Sends as the client's windows allow it."""
        at = 0
        while True:
            with self._lock:
                if stream in self._given_up or self._is_over:
                    raise EOFError("the request is given up")
                pad = self._owner.padding if data else None
                room = self._state.local_flow_control_window(stream)
                most = min(room, self._state.max_outbound_frame_size) - (pad or -1) - 1
                piece = data[at : at + max(most, 0)]
                ends = is_last and at + len(piece) == len(data)
                if not piece and data:
                    assert self._lock.wait(wire.TIMEOUT_S), "no window"
                    continue
                self._state.send_data(stream, piece, end_stream=ends, pad_length=pad)
                self._flush()
                at += len(piece)
            if at == len(data):
                return

    def is_given_up(self, stream: int) -> bool:
        with self._lock:
            return self._lock.wait_for(
                lambda: stream in self._given_up or self._is_over, wire.TIMEOUT_S
            )

    def run(self) -> None:
        """Reads until the connection ends; each request has a thread."""
        self._greet()
        bodies: dict[int, tuple[str, bytearray]] = {}
        try:
            while data := self._read():
                with self._lock:
                    for event in self._state.receive_data(data):
                        self._take(event, bodies)
                    self._flush()
                    self._lock.notify_all()
        finally:
            with self._lock:
                self._is_over = True
                self._lock.notify_all()

    def _read(self) -> bytes:
        while True:
            is_there = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
            if not is_there:
                select.select([self._socket], [], [])
            with self._lock:
                try:
                    self._socket.settimeout(0.0)
                    return self._socket.recv(1 << 16)
                except (BlockingIOError, ssl.SSLWantReadError):
                    continue
                finally:
                    self._socket.settimeout(wire.TIMEOUT_S)

    def _take(self, event: Any, bodies: dict[int, tuple[str, bytearray]]) -> None:
        if isinstance(event, h2.events.RequestReceived):
            named = dict(event.headers)
            lines = [f"{named[':method']} {named[':path']} HTTP/2"]
            lines += [f"{name}: {value}" for name, value in event.headers if name[0] != ":"]
            bodies[event.stream_id] = ("\r\n".join(lines), bytearray())
        elif isinstance(event, h2.events.DataReceived):
            bodies[event.stream_id][1].extend(event.data)
            self._state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            head, body = bodies.pop(event.stream_id)
            request = Request(head, bytes(body))
            self._owner.requests.append(request)
            stream = Stream(self._socket, self, event.stream_id)
            threading.Thread(target=self._script, args=(request, stream), daemon=True).start()
        elif isinstance(event, h2.events.StreamReset):
            self._given_up.add(event.stream_id)
            bodies.pop(event.stream_id, None)
            self._owner.resets.append(int(event.error_code))
        elif isinstance(event, h2.events.SettingsAcknowledged):
            self._owner.greeted += 1
        elif isinstance(event, h2.events.ConnectionTerminated):
            self._owner.goaways.append((int(event.error_code), event.additional_data or b""))

    def _script(self, request: Request, stream: Stream) -> None:
        try:
            self._owner.script(request, stream)
        except (OSError, EOFError, h2.exceptions.StreamClosedError):
            return
        except BaseException as error:
            self._owner.errors.append(error)


class Upstream2(Upstream):
    """A server of HTTP/2 that a script speaks for."""

    def __init__(
        self,
        script: Script = echo,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        streams: int = 128,
        window: int = 65535,
        padding: int | None = None,
    ) -> None:
        self.streams = streams
        self.window = window
        self.padding = padding  # bytes behind each piece of a body
        self.greeted = 0  # connections whose settings the client has
        self.resets: list[int] = []  # by its client
        self.goaways: list[tuple[int, bytes]] = []
        super().__init__(script, port, tls)

    def _converse(self, one: socket.socket) -> None:
        Connection(self, one).run()


@contextmanager
def _open(one: _Any) -> Iterator[_Any]:
    try:
        yield one
    finally:
        one.close()
    assert not one.errors, one.errors


def upstream2(script: Script = echo, **rest: Any) -> AbstractContextManager[Upstream2]:
    return _open(Upstream2(script, **rest))


# ---- any frames at all ----


def frames_of(one: socket.socket) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame that the server sends, behind its preface."""
    held = b""

    def has(count: int) -> bool:
        nonlocal held
        while len(held) < count:
            data = one.recv(1 << 16)
            if not data:
                return False
            held += data
        return True

    if not has(len(http2.PREFACE)):
        return
    assert held.startswith(http2.PREFACE)
    held = held[len(http2.PREFACE) :]
    while has(_FRAME_BYTES):
        size = int.from_bytes(held[:3], "big")
        if not has(_FRAME_BYTES + size):
            return
        kind, flags, stream = held[3], held[4], int.from_bytes(held[5:9], "big")
        yield kind, flags, stream, held[_FRAME_BYTES : _FRAME_BYTES + size]
        held = held[_FRAME_BYTES + size :]


Answer = Callable[[int, bytes], bytes]


class Frames(Upstream):
    """An upstream that greets as HTTP/2 does, and answers the DATA that ends a request's body with
    any bytes: `answer(stream, body)`. b"" ends the connection."""

    def __init__(self, answer: Answer, greets: bytes = http2.frame(http2.SETTINGS, 0)) -> None:
        self._answer = answer
        self._greets = greets
        self.seen: list[tuple[int, int, int, bytes]] = []
        super().__init__()

    def _converse(self, one: socket.socket) -> None:
        one.settimeout(None)
        one.sendall(self._greets)
        bodies: dict[int, bytes] = {}
        for kind, flags, stream, payload in frames_of(one):
            self.seen.append((kind, flags, stream, payload))
            if kind == http2.DATA:
                bodies[stream] = bodies.get(stream, b"") + payload
            if kind == http2.DATA and flags & http2.END_STREAM:
                said = self._answer(stream, bodies[stream])
                if not said:
                    return
                one.sendall(said)


def frames(answer: Answer, **rest: Any) -> AbstractContextManager[Frames]:
    return _open(Frames(answer, **rest))


def head(stream: int, *fields: tuple[str, str], ends: bool = False) -> bytes:
    """HEADERS of an answer."""
    flags = http2.END_HEADERS | (http2.END_STREAM if ends else 0)
    return http2.frame(http2.HEADERS, stream, http2.literal((":status", "200"), *fields), flags)


def data(stream: int, body: bytes, ends: bool = True) -> bytes:
    return http2.frame(http2.DATA, stream, body, http2.END_STREAM if ends else 0)
