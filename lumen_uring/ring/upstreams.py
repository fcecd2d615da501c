"""Upstreams of the C library: servers elsewhere that an engine passes requests on to.

Used by engine.py and serving/upstreams.py, before the start; never on a request's path.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lumen_uring.ring import upstream_structs
from lumen_uring.ring.config_struct import native_model
from lumen_uring.ring.handle import Handle
from lumen_uring.ring.model_structs import listed
from lumen_uring.ring.ranges import u32
from lumen_uring.settings.upstreams import UpstreamConfig


@dataclass(frozen=True, slots=True)
class Address:
    """Where an upstream listens; what its Host header says, and what its paths begin with."""

    ip: str
    port: int
    host: str
    path: str = ""

    def native(self) -> upstream_structs.LumenUpstreamAddress:
        """lumen_upstream_address."""
        return upstream_structs.LumenUpstreamAddress(
            ip=self.ip.encode(),
            host=self.host.encode(),
            path=self.path.encode(),
            port=u32("port", self.port),
        )


class Upstreams(Handle):
    """What an engine does about upstreams."""

    def add_upstream(
        self, name: str, config: UpstreamConfig, addresses: Sequence[Address], key: str | None
    ) -> None:
        """Adds an upstream and its models; before start only.

        Args:
            name: of the upstream.
            config: its settings; its URLs and the place of its key are not looked at.
            addresses: 1 to 16, of servers that serve the same.
            key: what it knows this server by; None: nothing.

        Raises:
            EngineError: an address or the key cannot be used; the key is in no message.

        Source:
            lumen_add_upstream, lumen_add_model
        """
        times = {
            f"{kind}_ms": u32(kind, round(getattr(config.timeouts, kind) * 1000))
            for kind in ("connect", "first_byte", "silence", "total")
        }
        native = upstream_structs.LumenUpstreamConfig(
            name=name.encode(),
            authorization=None if key is None else f"Bearer {key}".encode(),
            connections=u32("connections", config.connections),
            in_flight=u32("in_flight", config.in_flight),
            retries=u32("attempts", config.retry.attempts),
            retry_share=config.retry.budget,
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
