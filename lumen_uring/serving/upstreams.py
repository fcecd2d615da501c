"""Upstreams at the start of a server: the addresses of their hosts, and the keys they ask for.

Called by server.py on the main thread. A name that cannot be looked up, or a key that is not there,
is an error of the settings. No message holds a key.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from lumen_uring.errors import ConfigError
from lumen_uring.ring.upstreams import Address, Secrets
from lumen_uring.settings.keys import token_problem
from lumen_uring.settings.upstreams import ADDRESSES_MAX, UpstreamConfig

_KEY_BYTES_MAX = 4096
_PEM_BYTES_MAX = 4 << 20  # the system's own authorities have 0.2 MB


def addresses(name: str, config: UpstreamConfig) -> list[Address]:
    """Where an upstream listens: each address of each host.

    Args:
        name: of the upstream.
        config: its settings.

    Raises:
        ConfigError: a host has no address, or all together have too many.
    """
    found: dict[Address, None] = {}
    for url in config.urls:
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        try:
            infos = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConfigError(
                f"upstreams.{name}.urls: expected a host that has an address, found "
                f"{parts.hostname} ({error.strerror})"
            ) from error
        # Paths begin with /v1 anyway: clients' libraries have it at the end of what they ask for.
        path = parts.path.rstrip("/").removesuffix("/v1")
        for _family, _type, _protocol, _name, place in infos:
            name_there = parts.hostname if is_tls else None
            found[Address(str(place[0]), port, parts.netloc, path, name_there)] = None
    if len(found) > ADDRESSES_MAX:
        raise ConfigError(
            f"upstreams.{name}.urls: expected at most {ADDRESSES_MAX} addresses in all, found "
            f"{len(found)}"
        )
    return list(found)


def secrets(name: str, config: UpstreamConfig) -> Secrets:
    """What is used towards an upstream alone.

    Args:
        name: of the upstream.
        config: its settings.

    Raises:
        ConfigError: a key or a file is not there, or fits no header.
    """

    def pem(setting: str) -> bytes | None:
        path = getattr(config, setting)
        if path is None:
            return None
        try:
            with Path(path).open("rb") as file:
                return file.read(_PEM_BYTES_MAX)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise ConfigError(f"upstreams.{name}.{setting}: {path}: {why}") from error

    return Secrets(key(name, config), pem("ca"), pem("cert"), pem("cert_key"))


def key(name: str, config: UpstreamConfig) -> str | None:
    """The key that an upstream asks for; None: it asks for none.

    Args:
        name: of the upstream.
        config: its settings.

    Raises:
        ConfigError: there is none where the settings say, or it fits no header.
    """
    if config.key_env is not None:
        problem, token = token_problem(config.key_env)
        if problem:
            raise ConfigError(
                f"upstreams.{name}.key_env: expected the name of an environment variable that "
                f"holds a key, found {problem}"
            )
        return token
    if config.key_file is None:
        return None
    where = f"upstreams.{name}.key_file: {config.key_file}"
    try:
        with Path(config.key_file).open("rb") as file:
            text = file.read(_KEY_BYTES_MAX + 2)
    except OSError as error:
        raise ConfigError(f"{where}: {os.strerror(error.errno or 0)}") from error
    token = text.removesuffix(b"\n").removesuffix(b"\r").decode("ascii", "replace")
    is_plain = token.isascii() and token.isprintable() and " " not in token
    if not token or not is_plain or len(token) > _KEY_BYTES_MAX:
        raise ConfigError(
            f"{where}: expected one line of 1 to {_KEY_BYTES_MAX} letters, digits and signs"
        )
    return token
