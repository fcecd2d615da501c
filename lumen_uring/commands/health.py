"""`lumen health`: asks a running server whether it is alive, or whether it is ready.

Called by cli.py, on the main thread: by containers' health checks, by hand. It speaks plain HTTP
over the standard library's sockets, so that a check every few seconds imports nothing heavy. No key
is needed for the question.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from typing import Final

from lumen_uring.client.connection import unix_path, where
from lumen_uring.options import Subparsers, add_server_url, port_number, seconds

# In a container, one variable sets the port of the server and of its health check.
_PORT_VARIABLE: Final = "LUMEN_SERVER__PORT"
_TIMEOUT_S: Final = 2.0


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "health",
        help="ask a running server whether it is alive: exit status 0 or 1",
        description="Asks a running server whether it is alive. Exit status 0: yes; 1: no.",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="the server's address, or unix:PATH (%(default)s)"
    )
    parser.add_argument(
        "--port",
        type=port_number,
        default=os.environ.get(_PORT_VARIABLE) or "8000",  # empty is unset, as for the server
        help=f"the server's port (${_PORT_VARIABLE}, else 8000)",
    )
    add_server_url(parser, tls=True)
    parser.add_argument(
        "--ready", action="store_true", help="ask whether the server is ready for requests"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=_TIMEOUT_S,
        metavar="S",
        help="seconds to wait for each step (%(default)g)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Asks once.

    Args:
        arguments: as `add` declared them.

    Returns:
        0 where the answer is yes, else 1 with a sentence on stderr.
    """
    question = "ready" if arguments.ready else "live"
    try:
        status = _status(arguments, question)
    except (OSError, ValueError) as error:
        status = str(error) or type(error).__name__
    if status == "200":
        return 0
    place = where(arguments.host, arguments.port)
    print(f"lumen: {place} is not {question}: expected HTTP 200, found: {status}.", file=sys.stderr)
    return 1


def _secure(peer: socket.socket) -> socket.socket:
    """TLS around it. As an orchestrator's probe it asks whether the server lives, not who it is: no
    certificate is looked at."""
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(peer)


def _status(arguments: argparse.Namespace, question: str) -> str:
    """The three digits of the answer; ValueError when it is no HTTP answer."""
    path, timeout_s = unix_path(arguments.host), arguments.timeout
    if path is None:
        peer = socket.create_connection((arguments.host, arguments.port), timeout_s)
    else:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if arguments.tls:
        peer = _secure(peer)
    with peer:
        if path is not None:
            peer.settimeout(timeout_s)
            peer.connect(path)
        head = f"GET /v2/health/{question} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        peer.sendall(head.encode())
        with peer.makefile("rb") as reply:
            line = reply.readline(64)
    words = line.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ValueError(f"{line[:32]!r}" if line else "a connection that ended at once")
    return words[1].decode("ascii", "replace")
