"""The server's second port: /metrics, /healthz and /debug/pprof/profile over HTTP/1.1.

Started by server.py; serves on threads of its own in the server's process and reads the statistics
file only when asked, so that it costs nothing in between. Its threads never keep the process from
ending. It answers no preflight and sends no CORS headers: no web page may read it.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from lumen_uring import flamegraph
from lumen_uring.errors import MetricsError, StatsError
from lumen_uring.profiling import SECONDS_MAX, Profiler

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from lumen_uring.ring.stats import Snapshot
_HEAD_BYTES_MAX: Final = 8192
_HEAD_S: Final = 5.0  # for a whole request, however slowly its bytes drip
_SEND_S: Final = 10.0
_LINGER_S: Final = 1.0
_LINGER_BYTES: Final = 64 << 10
_THREADS_MAX: Final = 8
_BACKLOG: Final = 16
_PROFILE_S: Final = 5
_PLAIN: Final = "text/plain; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    501: "Not Implemented",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change while the server runs."""

    version: str
    ort_version: str
    workers: int
    io_threads: int
    slots: int


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    query: str
    headers: dict[str, str]  # names in lower case
    peer: str


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    content_type: str = _PLAIN


class _BadRequest(Exception):
    """What came is no request for this page."""


class MetricsServer:
    """Listens at once, answers from `start` on.

    Args:
        host: the address to listen on.
        port: 0 lets the kernel choose, see `port`.
        hosts: names that a request's Host may have besides localhost and addresses; "*" allows all.

    Raises:
        MetricsError: it cannot listen there.
    """

    def __init__(self, host: str, port: int, hosts: Sequence[str] = ()) -> None:
        self._hosts = tuple(name.lower() for name in hosts)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            raise MetricsError(
                f"no metrics page on {host}:{port} ({error.strerror}): "
                "choose another server.metrics_port, or 0 for none"
            ) from None
        self.port: int = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.port}/metrics"
        self._room = threading.BoundedSemaphore(_THREADS_MAX)
        self._thread: threading.Thread | None = None
        self._profiler: Profiler | None = None

    def start(self, stats_path: Path, facts: Facts, pid: int) -> None:
        """Answers from now on.

        Args:
            stats_path: of the statistics file.
            facts: of the server.
            pid: whose stacks are sampled.
        """
        self._stats_path = stats_path
        self._facts = facts
        self._profiler = Profiler(pid)
        self._registry: CollectorRegistry | None = None
        self._registering = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name="lumen-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening and ends a running profile; may be called twice."""
        # Without the shutdown the accept would go on waiting on a closed descriptor.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._socket.close()
        if self._profiler is not None:
            self._profiler.close()

    # ---- one connection, one request ----

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._socket.accept()
            except OSError as error:
                if self._socket.fileno() < 0 or error.errno in (None, 22):  # EINVAL: shut down
                    return
                time.sleep(0.1)  # out of descriptors, as a rule
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(
                target=self._serve,
                args=(connection, str(address[0])),
                name="lumen-metrics",
                daemon=True,
            ).start()

    def _serve(self, connection: socket.socket, peer: str) -> None:
        try:
            with connection, suppress(OSError):
                try:
                    request = _read_request(connection, peer)
                except _BadRequest as error:
                    answer = _Answer(400, f"{error}\n".encode())
                else:
                    answer = self._answer(request)
                connection.settimeout(_SEND_S)
                connection.sendall(_encode(answer))
                _linger(connection)
        finally:
            self._room.release()

    def _answer(self, request: _Request) -> _Answer:
        pages = {
            "/metrics": self._metrics,
            "/healthz": self._healthz,
            "/debug/pprof/profile": self._profile,
        }
        if not host_allowed(request.headers.get("host"), self._hosts):
            return _Answer(403, b"This name is not among server.hosts.\n")
        page = pages.get(request.path)
        if page is None:
            return _Answer(404, b"Here are /metrics, /healthz and /debug/pprof/profile.\n")
        if request.method != "GET":
            return _Answer(405, b"GET only.\n")
        try:
            return page(request)
        except StatsError as error:
            return _Answer(503, f"{error}\n".encode())

    def _snapshot(self) -> Snapshot:
        # Imported when somebody asks first, on this thread: numpy starts threads, which must
        # inherit its mask of signals; and the start of a server is not the time for it.
        from lumen_uring.ring.stats import read

        if self._stats_path == Path():
            raise StatsError("This server has no statistics file: /dev/shm is not writable.")
        return read(self._stats_path)

    # ---- the pages ----

    def _metrics(self, request: _Request) -> _Answer:
        # Late for the same reasons as in _snapshot.
        from lumen_uring.metrics import make_registry, render

        with self._registering:
            if self._registry is None:
                self._registry = make_registry(self._snapshot, self._facts)
        content_type, body = render(self._registry, request.headers.get("accept", ""))
        return _Answer(200, body, content_type)

    def _healthz(self, _request: _Request) -> _Answer:
        state = self._snapshot().state
        return _Answer(200, b"ok") if state == "ready" else _Answer(503, state.encode())

    def _profile(self, request: _Request) -> _Answer:
        if not _is_loopback(request.peer):
            return _Answer(403, b"Profiles are for this machine alone.\n")
        query = parse_qs(request.query, keep_blank_values=True)
        seconds = query.get("seconds", [str(_PROFILE_S)])[-1]
        form = query.get("format", ["svg"])[-1]
        whole = seconds.isascii() and seconds.isdecimal() and len(seconds) < 4
        if not whole or not 1 <= int(seconds) <= SECONDS_MAX:
            return _Answer(400, f"seconds: expected 1..{SECONDS_MAX}\n".encode())
        if form not in ("svg", "folded"):
            return _Answer(400, b"format: expected svg | folded\n")
        assert self._profiler is not None
        try:
            stacks = self._profiler.profile(int(seconds))
        except MetricsError as error:
            return _Answer(501, f"{error}\n".encode())
        if stacks is None:
            return _Answer(409, b"A profile is being made: ask again when it is done.\n")
        if form == "folded":
            return _Answer(200, flamegraph.folded(stacks).encode())
        title = f"Lumen {self._facts.version}, {seconds} s"
        return _Answer(200, flamegraph.svg(stacks, title).encode(), "image/svg+xml")


def host_allowed(host: str | None, names: Sequence[str]) -> bool:
    """Whether a request's Host is one of ours: what a rebound name of somebody else's is not.

    Args:
        host: the header, None without one.
        names: in lower case, besides localhost and addresses; "*" allows all.

    >>> [host_allowed(host, ()) for host in ("localhost:8002", "[::1]:80", "evil.example")]
    [True, True, False]
    """
    if host is None or "*" in names:
        return True  # _read_request has seen to it that only HTTP/1.0 comes without
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    name = name.removesuffix(".")
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(peer: str) -> bool:
    address = ipaddress.ip_address(peer.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _read_request(connection: socket.socket, peer: str) -> _Request:
    """Reads one head; a body is not for this port.

    Raises:
        _BadRequest: it is none.
        OSError: the connection broke, or took too long.
    """
    until_s = time.monotonic() + _HEAD_S
    head = bytearray()
    while b"\r\n\r\n" not in head:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        piece = connection.recv(_HEAD_BYTES_MAX)
        if not piece:
            raise ConnectionResetError
        head += piece
        if len(head) > _HEAD_BYTES_MAX:
            raise _BadRequest(f"The head is longer than {_HEAD_BYTES_MAX} bytes.")
    first, *lines = bytes(head).partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
        raise _BadRequest("Expected an HTTP/1.1 request.")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _BadRequest("Expected header lines of the form Name: value.")
        if name.lower() == "host" and "host" in headers:
            raise _BadRequest("Expected one Host.")
        headers[name.lower()] = value.strip()
    if words[2] == "HTTP/1.1" and "host" not in headers:
        raise _BadRequest("Expected a Host.")
    try:
        target = urlsplit(words[1])
    except ValueError:
        raise _BadRequest("Expected a path.") from None
    return _Request(words[0], target.path, target.query, headers, peer)


def _encode(answer: _Answer) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if answer.status == 405:
        lines.append("Allow: GET")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body


def _linger(connection: socket.socket) -> None:
    """Drops what still comes for a moment: closing over unread bytes would reset the answer."""
    connection.shutdown(socket.SHUT_WR)
    until_s = time.monotonic() + _LINGER_S
    left = _LINGER_BYTES
    while left > 0 and (wait_s := until_s - time.monotonic()) > 0:
        connection.settimeout(wait_s)
        piece = connection.recv(4096)
        if not piece:
            return
        left -= len(piece)
