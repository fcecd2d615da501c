"""HTTP/1.1 for the metrics page: one thread, one poll, one request per connection.

Used by metrics/server.py, which makes the answers. No client can block another: a connection has a
deadline for its head, its reply and its end, and when the table is full the oldest connection
without a complete request is closed. An answer that takes seconds is made on a thread of its own.
The loop's thread never keeps the process from ending.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final
from urllib.parse import urlsplit

from lumen_uring.guard import Guard

CONNECTIONS_MAX: Final = 64
PLAIN: Final = "text/plain; charset=utf-8"
_HEAD_BYTES_MAX: Final = 8192
_HEAD_S: Final = 5.0  # for a complete head, however slowly its bytes come
_SEND_S: Final = 10.0
_LINGER_S: Final = 1.0
_LINGER_BYTES: Final = 64 << 10
# Connections accepted in one turn: far fewer than the table holds, so that a client that sends at
# once is read before newer connections could evict it.
_ACCEPTS_PER_TURN: Final = 16
_ACCEPT_PAUSE_S: Final = 0.1
_CLOSE_S: Final = 2.0  # for slow answers when the loop is closed
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    421: "Misdirected Request",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request's head; this port takes no bodies."""

    method: str
    path: str
    query: str
    headers: dict[str, str]  # names in lower case
    peer: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply."""

    status: int
    body: bytes
    content_type: str = PLAIN


class BadRequest(Exception):
    """The bytes received are not a request that this page answers."""


@dataclass(frozen=True, slots=True)
class Slow:
    """An answer that takes seconds: made on a thread of its own, unless its client leaves."""

    make: Callable[[], Answer]
    cancel: Callable[[], None]  # also where `make` was never called, or has ended


Shared = dict[str, Answer]  # all requests of one turn share these answers
Handler = Callable[[Request, Shared], Answer | Slow]


@dataclass(slots=True, eq=False)
class _Client:
    """One connection: reads a head, waits for a slow answer, sends, lingers."""

    socket: socket.socket
    peer: str
    until_s: float | None  # None: a slow answer is being made
    cancel: Callable[[], None] = lambda: None  # of that answer
    head: bytearray = field(default_factory=bytearray)
    reply: memoryview | None = None
    sent: bool = False
    head_only: bool = False
    linger_bytes: int = _LINGER_BYTES

    @property
    def is_reading(self) -> bool:
        """Its request is not complete yet, or its reply has been sent."""
        return self.until_s is not None and (self.reply is None or self.sent)


class HttpLoop:
    """Serves a listening socket on a thread of its own, until `close`.

    Args:
        listener: bound and listening; it belongs to the loop from now on.
        handler: makes the answers.
        guard: of the server's threads.
    """

    def __init__(self, listener: socket.socket, handler: Handler, guard: Guard) -> None:
        self._listener = listener
        self._handler = handler
        self._clients: dict[_Client, None] = {}  # the oldest first
        self._done: SimpleQueue[tuple[_Client, Answer]] = SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._closing = False
        self._closed_by_s = 0.0
        self._accept_at_s: float | None = None  # while it cannot accept
        self._guard = guard
        self._thread = guard.thread("lumen-metrics", self._run, daemon=True)
        for end in (listener, self._wake, self._woken):
            end.setblocking(False)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def close(self) -> None:
        """Closes all connections and ends the thread; call once. A slow answer that is ready
        within 2 s is still sent."""
        self._closed_by_s = time.monotonic() + _CLOSE_S
        self._closing = True
        self._interrupt()
        self._thread.join()
        for end in (self._listener, self._wake, self._woken):
            end.close()

    def _interrupt(self) -> None:
        with suppress(OSError):  # full: the thread wakes anyway; closed: it has ended
            self._wake.send(b"\0")

    # ---- the loop ----

    def _run(self) -> None:
        # poll, not epoll: it needs no descriptor.
        with selectors.PollSelector() as selector:
            self._selector = selector
            self._accept_at_s = None
            for client in list(self._clients):  # of a turn that failed
                self._drop(client)
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._closing or self._finishes():
                self._turn(selector.select(self._wait_s()))
            for client in list(self._clients):
                self._drop(client)

    def _finishes(self) -> bool:
        """Whether a slow answer is being made, and there is still time to send it."""
        slow = any(client.until_s is None for client in self._clients)
        return slow and time.monotonic() < self._closed_by_s

    def _wait_s(self) -> float | None:
        times = [client.until_s for client in self._clients if client.until_s is not None]
        if self._closing:
            times.append(self._closed_by_s)
        if self._accept_at_s is not None:
            times.append(self._accept_at_s)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _turn(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        shared: Shared = {}
        may_accept = False
        for key, _mask in events:
            if key.fileobj is self._listener:
                may_accept = True
            elif key.fileobj is self._woken:
                with suppress(BlockingIOError):
                    self._woken.recv(4096)
            elif key.data in self._clients:
                try:
                    self._move(key.data, shared)
                except OSError:
                    self._drop(key.data)
                except Exception as error:  # of one client: the others are served
                    self._guard.failed("lumen-metrics", error)
                    self._drop(key.data)
        with suppress(Empty):
            while True:
                client, answer = self._done.get_nowait()
                if client in self._clients:
                    self._reply(client, answer)
        now_s = time.monotonic()
        for client in [c for c in self._clients if c.until_s is not None and c.until_s <= now_s]:
            self._drop(client)
        if self._accept_at_s is not None and self._accept_at_s <= now_s:
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._accept_at_s = None
        if may_accept and not self._closing:
            self._accept(now_s)

    def _accept(self, now_s: float) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError:  # mostly no descriptor is left: one is freed, and accept tried again
                self._make_room()
                self._selector.unregister(self._listener)
                self._accept_at_s = now_s + _ACCEPT_PAUSE_S
                return
            connection.setblocking(False)
            if len(self._clients) >= CONNECTIONS_MAX:
                self._make_room()
            client = _Client(connection, str(address[0]), now_s + _HEAD_S)
            self._clients[client] = None
            self._selector.register(connection, selectors.EVENT_READ, client)

    def _make_room(self) -> None:
        """Closes the oldest connection without a complete request; if there is none, the oldest
        that is being answered."""
        waiting = [client for client in self._clients if client.is_reading]
        answered = [client for client in self._clients if client.until_s is not None]
        if oldest := next(iter(waiting or answered), None):
            self._drop(oldest)

    def _drop(self, client: _Client) -> None:
        self._clients.pop(client, None)
        if client.until_s is None:
            client.cancel()
        with suppress(KeyError):
            self._selector.unregister(client.socket)
        client.socket.close()

    # ---- one connection ----

    def _move(self, client: _Client, shared: Shared) -> None:
        if client.until_s is None:
            self._wait_or_leave(client)
        elif client.sent:
            self._linger(client)
        elif client.reply is not None:
            self._send(client)
        else:
            self._read(client, shared)

    def _read(self, client: _Client, shared: Shared) -> None:
        piece = client.socket.recv(_HEAD_BYTES_MAX)
        if not piece:
            self._drop(client)
            return
        client.head += piece
        answer: Answer | Slow
        try:
            end = client.head.find(b"\r\n\r\n")
            if max(end, len(client.head) if end < 0 else 0) > _HEAD_BYTES_MAX:
                raise BadRequest(f"The head is longer than {_HEAD_BYTES_MAX} bytes.")
            if end < 0:
                return
            request = parse_head(bytes(client.head), client.peer)
            client.head_only = request.method == "HEAD"
            answer = self._handler(request, shared)
        except BadRequest as error:
            answer = Answer(400, f"{error}\n".encode())
        except Exception as error:  # one bad page must not end all of them
            answer = Answer(500, f"This page could not be made: {error!r}\n".encode())
        if isinstance(answer, Answer):
            self._reply(client, answer)
            return
        client.until_s, client.cancel = None, answer.cancel
        work = partial(self._work, client, answer.make)
        try:
            self._guard.thread("lumen-metrics-slow", work, daemon=True, again=False).start()
        except RuntimeError as error:  # no room for a thread
            answer.cancel()
            self._done.put((client, Answer(503, f"{error}\n".encode())))
            self._interrupt()

    def _wait_or_leave(self, client: _Client) -> None:
        """A slow answer is being made: none is made for a client that has left."""
        if not client.socket.recv(_HEAD_BYTES_MAX):
            self._drop(client)

    def _work(self, client: _Client, make: Callable[[], Answer]) -> None:
        try:
            answer = make()
        except Exception as error:  # the client must not wait for ever
            answer = Answer(500, f"This page could not be made: {error!r}\n".encode())
        self._done.put((client, answer))
        self._interrupt()

    def _reply(self, client: _Client, answer: Answer) -> None:
        reply = memoryview(encode(answer))
        client.reply = reply[: len(reply) - len(answer.body)] if client.head_only else reply
        client.until_s = time.monotonic() + _SEND_S
        try:
            self._send(client)
        except OSError:
            self._drop(client)

    def _send(self, client: _Client) -> None:
        assert client.reply is not None
        try:
            while client.reply:
                client.reply = client.reply[client.socket.send(client.reply) :]
        except BlockingIOError:
            self._listen(client, selectors.EVENT_WRITE)
            return
        # Closing a socket with unread bytes resets the connection: they are read first.
        client.sent = True
        client.until_s = time.monotonic() + _LINGER_S
        client.socket.shutdown(socket.SHUT_WR)
        self._listen(client, selectors.EVENT_READ)

    def _listen(self, client: _Client, events: int) -> None:
        if client.socket in self._selector.get_map():
            self._selector.modify(client.socket, events, client)
        else:
            self._selector.register(client.socket, events, client)

    def _linger(self, client: _Client) -> None:
        piece = client.socket.recv(4096)
        client.linger_bytes -= len(piece)
        if not piece or client.linger_bytes <= 0:
            self._drop(client)


def parse_head(data: bytes, peer: str) -> Request:
    """Reads one head.

    Args:
        data: from the first byte; bytes after the empty line are ignored.
        peer: the client's address.

    Raises:
        BadRequest: the bytes are no request of HTTP/1.
    """
    first, *lines = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
        raise BadRequest("Expected an HTTP/1.1 request.")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest("Expected header lines of the form Name: value.")
        if name.lower() == "host" and "host" in headers:
            raise BadRequest("Expected one Host.")
        headers[name.lower()] = value.strip()
    if words[2] == "HTTP/1.1" and "host" not in headers:
        raise BadRequest("Expected a Host.")
    try:
        target = urlsplit(words[1])
    except ValueError:
        raise BadRequest("Expected a path.") from None
    return Request(words[0], target.path, target.query, headers, peer)


def encode(answer: Answer) -> bytes:
    """Writes a reply after which the connection ends."""
    lines = [
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if answer.status == 405:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body
