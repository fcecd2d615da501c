"""nginx as a peer: the fastest small HTTP reply that a widely used server gives.

Called by http_live.py. A configuration of its own in a temporary folder, one worker process, no
log, connections that last. It never reads or writes the system's own configuration.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.common import oip
from bench.peers.install import PeerMissingError
from bench.peers.servers import free_port, started

MISSING: Final = "nginx is not installed (Debian: apt-get install nginx-light)"
_TEMPORARY: Final = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def program() -> str | None:
    """Where nginx is; Debian has it outside of a user's PATH."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def configuration(
    folder: Path, port: int, path: str, body: str, identity: tuple[Path, Path] | None = None
) -> str:
    """The whole configuration: 200 and a body at `path`, nothing else.

    Args:
        folder: for what nginx wants to write.
        port: to listen on, on 127.0.0.1.
        path: that is answered.
        body: what it is answered with.
        identity: files of a certificate and its key, for TLS alone; None: plain.
    """
    tls = f"    ssl_certificate {identity[0]};\n" if identity else ""
    tls += f"    ssl_certificate_key {identity[1]};\n" if identity else ""
    return frame(
        folder,
        f"  server {{\n    listen 127.0.0.1:{port}{' ssl' if identity else ''};\n{tls}"
        f"    location = {path} {{ return 200 '{body}'; }}\n  }}\n",
    )


def frame(folder: Path, servers: str) -> str:
    """A whole configuration with these servers.

    Args:
        folder: for what nginx wants to write.
        servers: blocks, as nginx has them.
    """
    places = "".join(f"  {name}_temp_path {folder}/{name};\n" for name in _TEMPORARY)
    return (
        f"worker_processes 1;\ndaemon off;\npid {folder}/nginx.pid;\nerror_log stderr error;\n"
        "worker_rlimit_nofile 8192;\nevents { worker_connections 4096; }\n"
        "http {\n  access_log off;\n  server_tokens off;\n  default_type application/json;\n"
        f"  keepalive_requests 1000000000;\n  keepalive_timeout 1h;\n{places}{servers}}}\n"
    )


@contextmanager
def nginx(
    path: str, cores: Iterable[int], identity: tuple[Path, Path] | None = None
) -> Iterator[tuple[int, int]]:
    """Runs nginx with the same reply at `path` as Lumen gives for its health.

    Args:
        path: that is answered.
        cores: those it may use.
        identity: files of a certificate and its key, for TLS alone; None: plain.

    Yields:
        The leader of its session, and its port.

    Raises:
        PeerMissingError: it is not installed, or cannot be started here.
    """
    binary = program()
    if binary is None:
        raise PeerMissingError(f"{MISSING}.")
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        port = free_port()
        (folder / "nginx.conf").write_text(
            configuration(folder, port, path, oip.LIVE_BODY.decode(), identity)
        )
        command = [binary, "-p", directory, "-c", str(folder / "nginx.conf"), "-e", "stderr"]
        with started("nginx", command, {}, cores) as process:
            # A request without TLS to a port for TLS is answered with 400.
            expected = 400 if identity else 200
            process.wait_until(lambda: oip.ask(port, "GET", path)[0] == expected)
            yield process.pid, port
