"""`make idle`: what an idle connection of each kind costs, and those who use the server beside it.

A developer's tool. By kind, a server with a crowd and the same without one: this process opens the
connections one after the other, each asks once for the server's health and then says nothing. Bytes
are of the server's own memory (`Pss_Anon`), what grew divided by the connections: without an entry
of its table, 192 bytes, where a large table's pages were there before. Beside them a few
connections ask for SqueezeNet in a closed loop, in turns on both servers. `make c10k` also says how
far two servers without a crowd differ, the kernel's bytes, and the connects a second.
"""

from __future__ import annotations

import argparse
import resource
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.common.local_server import LocalServer, local_server, squeezenet
from bench.common.measure import Shape
from bench.crowd.c10k import Turns, say
from bench.crowd.c10k_crowd import BESIDE, connections_per_process, user_bytes
from bench.peers.servers import free_port
from bench.report.rules import amount, middle, table
from lumen_uring.protocol import native
from lumen_uring.ring.certificates import make_certificate

_ACTIVE: Final = 16
_SETTLE_S: Final = 1.0
_TIMEOUT_S: Final = 30.0
_LIVE: Final = b'{"live":true}'
_HTTP: Final = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
_PING: Final = native.pack_request(native.RequestHeader(native.KIND_PING, 0, 0, 1, 0, 0, 0))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2.

    Source:
        RFC 9113, section 4.1
    """
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


# SETTINGS, their acknowledgement, and HEADERS that end their stream: GET, https, the path and the
# authority as literals without an index (RFC 7541, section 6.2.2).
_HTTP2: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(4, 0, 0, b"")
    + _frame(4, 1, 0, b"")
    + _frame(1, 5, 1, b"\x82\x87\x04\x0f/v2/health/live\x01\x09localhost")
)
# By kind: what is asked, how the answer is known, and the protocol for TLS ("": no TLS).
KINDS: Final[Mapping[str, tuple[bytes, bytes, str]]] = {
    "native": (_PING, native.REPLY_MAGIC, ""),
    "HTTP/1.1": (_HTTP, _LIVE, ""),
    "HTTP/2 and gRPC": (_HTTP2, _LIVE, ""),
    "native, TLS": (_PING, native.REPLY_MAGIC, "lumen/1"),
    "HTTP/1.1, TLS": (_HTTP, _LIVE, "http/1.1"),
    "HTTP/2 and gRPC, TLS": (_HTTP2, _LIVE, "h2"),
}


def _connector(port: int, protocol: str, authority: Path) -> Callable[[], socket.socket]:
    def plain() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)

    if not protocol:
        return plain
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols([protocol])
    return lambda: context.wrap_socket(plain(), server_hostname="localhost")


def _open(connect: Callable[[], socket.socket], asked: bytes, answer: bytes) -> socket.socket:
    """A connection that had its answer.

    Raises:
        RuntimeError: it was closed instead.
    """
    connection = connect()
    connection.sendall(asked)
    found = b""
    while answer not in found:
        got = connection.recv(1 << 16)
        if not got:
            raise RuntimeError(f"expected {answer!r}, found the end of the connection: {found!r}")
        found += got
    return connection


def _server(stack: ExitStack, folder: Path, tls_port: int, connections: int) -> LocalServer:
    files = f"{{cert: {folder}/idle.crt, key: {folder}/idle.key}}"
    return stack.enter_context(
        local_server(
            f"--model=bench={squeezenet()}",
            f"--set=server.max_connections={connections + BESIDE // 2}",
            "--set=server.drain_seconds=1",
            f"--set=server.tls={{port: {tls_port}, certificates: [{files}]}}",
        )
    )


def measure(kind: str, folder: Path, options: argparse.Namespace) -> list[str]:
    """A row of the table: the kind, bytes, and the ratio of p99."""
    asked, answer, protocol = KINDS[kind]
    shape = Shape(model="bench", connections=_ACTIVE, seconds=options.seconds, warmup_s=0.3)
    turns = Turns(shape)
    with ExitStack() as stack:
        tls_port = free_port()
        crowded = _server(stack, folder, tls_port, options.connections)
        quiet = _server(stack, folder, free_port(), options.connections)
        port = tls_port if protocol else crowded.port
        connect = _connector(port, protocol, folder / "idle.crt")
        turns.round(crowded, quiet, 0, "one round before")  # what grows with the first requests
        stack.enter_context(_open(connect, asked, answer))
        time.sleep(_SETTLE_S)
        turns = Turns(shape)
        before = user_bytes(crowded.pid)
        for number in range(options.connections):
            if number % 500 == 0:
                say(f"{kind}: {number} of {options.connections}")
            stack.enter_context(_open(connect, asked, answer))
        time.sleep(_SETTLE_S)
        each = (user_bytes(crowded.pid) - before) / options.connections
        for index in range(options.rounds):
            turns.round(crowded, quiet, index, f"{kind}: beside {options.connections}")
    say("")
    ratio = middle(turns.ratios(99))
    return [kind, amount(each), "none" if ratio is None else f"{ratio:.2f}"]


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--connections", type=int, default=10000, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a phase (%(default)s)")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="(all)")
    options = parser.parse_args(arguments)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.connections > connections_per_process():
        print(f"--connections: expected at most {connections_per_process()}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        blobs = make_certificate(["DNS:localhost"])
        for name, text in zip(("idle.crt", "idle.key"), blobs, strict=True):
            (folder / name).write_bytes(text)
        rows = [measure(kind, folder, options) for kind in options.kind or KINDS]
    print(table([f"{options.connections} idle", "bytes", "p99 beside ÷ without"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
