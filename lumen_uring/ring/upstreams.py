"""Upstreams of the C library: servers elsewhere that an engine passes requests on to.

Used by engine.py and serving/upstreams.py, before the start; never on a request's path.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lumen_uring.ring import structs, upstream_structs
from lumen_uring.ring.config_struct import native_model
from lumen_uring.ring.handle import Handle
from lumen_uring.ring.model_structs import listed
from lumen_uring.ring.ranges import u32
from lumen_uring.settings.upstreams import UpstreamConfig


@dataclass(frozen=True, slots=True)
class Address:
    """Where an upstream listens; what its Host header says, what its paths begin with, and the name
    that its certificate is for, where it speaks TLS."""

    ip: str
    port: int
    host: str
    path: str = ""
    tls_host: str | None = None

    def native(self) -> upstream_structs.LumenUpstreamAddress:
        """lumen_upstream_address."""
        return upstream_structs.LumenUpstreamAddress(
            ip=self.ip.encode(),
            host=self.host.encode(),
            path=self.path.encode(),
            tls_host=None if self.tls_host is None else self.tls_host.encode(),
            port=u32("port", self.port),
        )


@dataclass(frozen=True, slots=True)
class Secrets:
    """What only this server knows, and whom it trusts: the key that an upstream asks for; PEM: the
    authorities of its certificates, this server's own certificate and its key. None: there is none;
    the system's authorities."""

    key: str | None = None
    ca: bytes | None = None
    cert: bytes | None = None
    cert_key: bytes | None = None


class Upstreams(Handle):
    """What an engine does about upstreams."""

    _places: dict[str, tuple[int, tuple[Address, ...]]]  # of each its index, and where it is

    def add_upstream(
        self, name: str, config: UpstreamConfig, addresses: Sequence[Address], secrets: Secrets
    ) -> None:
        """Adds an upstream and its models; before start only.

        Args:
            name: of the upstream.
            config: its settings; its URLs and the place of its key are not looked at.
            addresses: 1 to 16, of servers that serve the same.
            secrets: that are used towards it alone.

        Raises:
            EngineError: an address, the key or a certificate cannot be used; the key is in no
                message. Or it speaks TLS, and the system has no OpenSSL 3.

        Source:
            lumen_add_upstream, lumen_add_model
        """
        times = {
            f"{kind}_ms": u32(kind, round(getattr(config.timeouts, kind) * 1000))
            for kind in ("connect", "first_byte", "silence", "total")
        }
        native = upstream_structs.LumenUpstreamConfig(
            name=name.encode(),
            authorization=None if secrets.key is None else f"Bearer {secrets.key}".encode(),
            authorities=secrets.ca,
            certificate=secrets.cert,
            private_key=secrets.cert_key,
            source=f"upstreams.{name}".encode(),
            connections=u32("connections", config.connections),
            in_flight=u32("in_flight", config.in_flight),
            retries=u32("attempts", config.retry.attempts),
            retry_share=config.retry.budget,
            token_bytes=u32("bytes_each", config.tokens.bytes_each),
            answer_tokens=u32("answer", config.tokens.answer),
            asks_usage=int(config.tokens.ask),
            ping_ms=u32("ping", round(config.ping * 1000)),
            hedge_ms=u32("hedge", round(config.hedge * 1000)),
            http2=("auto", "always", "never").index(config.http2),  # LUMEN_HTTP2_*
            **times,
            **listed(
                "addresses",
                "address_count",
                upstream_structs.LumenUpstreamAddress,
                [address.native() for address in addresses],
            ),
        )
        index = ctypes.c_uint32()
        self._check(
            self._library.lumen_add_upstream(
                self._open_handle(), ctypes.byref(native), ctypes.byref(index)
            )
        )
        for model, there in zip(config.served(), config.models.values(), strict=True):
            entry = native_model(model, Path("unused"), None, None)
            entry.upstream = index.value + 1
            entry.upstream_model = there.encode()
            self._add(entry)
        self._places[name] = index.value, tuple(addresses)

    def addresses_of(self, upstream: str) -> tuple[Address, ...]:
        """Where an upstream is.

        Args:
            upstream: its name.
        """
        return self._places[upstream][1]

    def move_upstream(self, upstream: str, addresses: Sequence[Address]) -> bool:
        """Gives an upstream other addresses while the server runs.

        Args:
            upstream: its name.
            addresses: 1 to 16; requests that others have go on to their ends.

        Returns:
            False: some have no place yet; the same call is to be made again, later.

        Raises:
            EngineError: an address cannot be used.

        Source:
            lumen_move_upstream
        """
        natives = (upstream_structs.LumenUpstreamAddress * len(addresses))(
            *(address.native() for address in addresses)
        )
        index = self._places[upstream][0]
        result = self._library.lumen_move_upstream(
            self._open_handle(), index, natives, len(natives)
        )
        if result == structs.E_AGAIN:
            return False
        self._check(result)
        self._places[upstream] = index, tuple(addresses)
        return True

    def set_fallbacks(self, fallbacks: Mapping[str, Sequence[str]]) -> None:
        """Puts fallbacks in force, at any time.

        Args:
            fallbacks: names of the models that may answer in the place of each.

        Raises:
            EngineError: there is no memory.

        Source:
            lumen_set_fallbacks
        """
        rows = []
        for model, others in fallbacks.items():
            names = (ctypes.c_char_p * len(others))(*(other.encode() for other in others))
            rows.append(upstream_structs.LumenFallback(model.encode(), names, len(others)))
        natives = (upstream_structs.LumenFallback * len(rows))(*rows)
        self._check(self._library.lumen_set_fallbacks(self._open_handle(), natives, len(rows)))
