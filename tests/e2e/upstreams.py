"""Upstreams for the end-to-end tests: servers on sockets whose every byte the test decides.

Each connection has a thread. A script answers a request with `Peer.send`; what it says is what goes
out, so that an answer may be cut, late or wrong. Every wait is bounded.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import wire
from operating import free_port


@dataclass(frozen=True)
class Request:
    """What an upstream was asked."""

    head: str
    body: bytes

    @property
    def path(self) -> str:
        return self.head.split(" ", 2)[1]

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        for line in self.head.split("\r\n")[1:]:
            found, _, value = line.partition(":")
            if found.lower() == name:
                return value.strip()
        return None


class Peer:
    """The other end of a connection, for a script."""

    def __init__(self, to: socket.socket) -> None:
        self.socket = to

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ends(self) -> bool:
        """Waits until the server has closed its side; False: it has sent something instead."""
        return self.socket.recv(1) == b""

    def end(self) -> None:
        """Ends an answer that reaches until its connection does; over TLS it says so."""
        with suppress(OSError):
            if isinstance(self.socket, ssl.SSLSocket):
                self.socket = self.socket.unwrap()
        self.cut()

    def cut(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


Script = Callable[[Request, Peer], None]


def plain(body: bytes, code: str = "200 OK", *fields: str) -> bytes:
    """An answer whose length is known."""
    lines = [f"HTTP/1.1 {code}", "content-type: application/json", *fields]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text: str) -> bytes:
    return f"data: {json.dumps({'text': text})}\n\n".encode()


def echo(request: Request, peer: Peer) -> None:
    """Says what it was asked."""
    said = {"path": request.path, "asked": request.document, "head": request.head}
    peer.send(plain(json.dumps(said).encode()))


@dataclass
class Upstream:
    """A server that a script speaks for."""

    script: Script = echo
    port: int = 0
    tls: ssl.SSLContext | None = None
    greeting: bytes = b""  # that it says unasked
    resumed: int = 0  # handshakes
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self.port = self.port or free_port()  # which nobody else gets once it is closed
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.errors: list[BaseException] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        """From here on nobody is there."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def drop(self) -> None:
        """Ends all connections."""
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            one.settimeout(wire.TIMEOUT_S)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(one)
                self.connections += 1
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        try:
            if self.tls:
                wrapped = self.tls.wrap_socket(one, server_side=True)
                with self._lock:
                    self._open = self._open - {one} | {wrapped}
                one = wrapped
                self.resumed += bool(one.session_reused)  # type: ignore[attr-defined]
            self._converse(one)
        except (OSError, EOFError):
            return
        except BaseException as error:
            self.errors.append(error)
        finally:
            with self._lock:
                self._open.discard(one)
            one.close()

    def _converse(self, one: socket.socket) -> None:
        if self.greeting:
            one.sendall(self.greeting)
        one.settimeout(None)  # it may be idle for long
        for request in _requests(one):
            with self._lock:
                self.requests.append(request)
            one.settimeout(wire.TIMEOUT_S)
            self.script(request, Peer(one))
            one.settimeout(None)


def _requests(one: socket.socket) -> Iterator[Request]:
    held = b""
    while True:
        while b"\r\n\r\n" not in held:
            data = one.recv(65536)
            if not data:
                return
            held += data
        head, _, held = held.partition(b"\r\n\r\n")
        request = Request(head.decode("latin-1"), b"")
        length = int(request.header("content-length") or 0)
        while len(held) < length:
            data = one.recv(65536)
            if not data:
                raise EOFError
            held += data
        yield Request(request.head, held[:length])
        held = held[length:]


@contextmanager
def upstream(
    script: Script = echo,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    greeting: bytes = b"",
) -> Iterator[Upstream]:
    one = Upstream(script, port, tls, greeting)
    try:
        yield one
    finally:
        one.close()
    assert not one.errors, one.errors


def settings(*urls: str, **rest: object) -> dict[str, object]:
    """A server with the model `chat` of the upstream `up`, which knows it as `org/there`."""
    entry = {"urls": list(urls), "models": {"chat": "org/there"}, **rest}
    return {"server": {"drain_seconds": 5}, "upstreams": {"up": entry}}
