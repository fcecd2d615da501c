"""Whom `lumen bench` asks over HTTP: a URL becomes an address, and the fields of its requests.

Used by commands/bench.py and loadgen/http.py, on the main thread, before the load starts.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from lumen_uring.client.connection import unix_path
from lumen_uring.errors import ConfigError

_PROBE_S: Final = 2.0
_PORTS: Final = {"http": 8000, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """A server: `authority` is the value of its Host header, `address` the one to connect to.

    A unix socket's address is unix:PATH, and its port 0. `token` is the key's, or None. `tls_host`
    is the name that its certificate is to be for; None: it is asked without TLS.
    """

    authority: str
    address: str
    port: int
    token: str | None = None
    tls_host: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The header fields of each request."""
        fields = {"Host": self.authority}
        if self.token is not None:
            fields["Authorization"] = f"Bearer {self.token}"
        return fields

    @property
    def name(self) -> str:
        """The server's name in messages."""
        return self.authority if self.port else self.address


def is_http(url: str) -> bool:
    """Whether a server is to be asked over HTTP.

    Args:
        url: as given to --url.
    """
    return url.startswith("http+unix:") or _parts(url)[0] in _PORTS


def native_address(url: str) -> tuple[str, int]:
    """Reads the URL of a server that is asked by the native protocol.

    Args:
        url: lumen://ADDRESS:PORT or unix:PATH.

    Returns:
        The host and the port, 8000 where none is given; unix:PATH and 0.

    Raises:
        ConfigError: not such a URL.
    """
    if path := unix_path(url):
        return f"unix:{path}", 0
    scheme, host, port, rest = _parts(url)
    if scheme != "lumen" or not host or rest:
        raise ConfigError(
            "--url: expected lumen://ADDRESS:PORT, http://HOST:PORT, https://HOST:PORT, unix:PATH "
            f"or http+unix:PATH, found {url!r}."
        )
    return host, port or 8000


def _parts(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port (0: none) and what a server's URL must not have; all empty for what is
    no URL."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme,
            parts.hostname or "",
            parts.port or 0,
            (parts.username or "") + parts.path.strip("/"),
        )
    except ValueError:  # of a port above 65535, or of a bracket alone
        return "", "", 0, ""


def target(url: str, token: str | None = None) -> Target:
    """Reads a URL and resolves its host.

    Args:
        url: http://HOST:PORT or https://HOST:PORT, where a path may only be "/"; or
            http+unix:PATH.
        token: of a key of that server.

    Returns:
        The host's first address that takes a connection, for all connections alike; its first
        where none does. (A server on IPv4 is at localhost's second address where ::1 is the first.)

    Raises:
        ConfigError: not such a URL, or no such host.
    """
    path = unix_path(url.removeprefix("http+")) if url.startswith("http+") else None
    if path:
        return Target("localhost", f"unix:{path}", 0, token)
    scheme, host, given, rest = _parts(url)
    port = given or _PORTS.get(scheme, 0)
    if not port or not host or rest:
        raise ConfigError(
            f"--url: expected http://HOST:PORT, https://HOST:PORT or http+unix:PATH, found {url!r}."
        )
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"--url: {host} has no address: {error.strerror}.") from None
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    tls_host = host if scheme == "https" else None
    return Target(authority, _open_address(found), port, token, tls_host)


def _open_address(found: list[Any]) -> str:
    for family, kind, _protocol, _name, address in found if len(found) > 1 else []:
        with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
            probe.settimeout(_PROBE_S)
            probe.connect(address)
            return str(address[0])
    return str(found[0][4][0])
