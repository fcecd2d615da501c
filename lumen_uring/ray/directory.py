"""Which servers there are: an actor that replicas report to, and what it knows.

The actor is made by whichever replica reports first, and made again where it is gone. It ends
itself once nobody has reported for a minute.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

NAMESPACE: Final = "lumen"
_STALE_S: Final = 10.0  # a server that has not reported for so long is gone
_ALONE_S: Final = 60.0
_LOOK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server of the cluster.

    Attributes:
        id: of Ray's replica.
        node: id of Ray's node.
        url: where clients ask.
        host, port: the same without TLS, for balancers.
        agent_port: of HAProxy's agent checks; 0: none.
        is_ready: it wants requests.
    """

    id: str
    node: str
    url: str
    host: str
    port: int
    agent_port: int
    is_ready: bool


class Directory:
    """The actor. Its calls come one after the other."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, Server]] = {}
        self._reported_s = time.monotonic()
        threading.Thread(target=self._watch, name="lumen-directory", daemon=True).start()

    def put(self, server: Server) -> None:
        """A server reports."""
        self._reported_s = time.monotonic()
        self._seen[server.id] = (self._reported_s, server)

    def drop(self, name: str) -> None:
        """A server is about to end, or has ended.

        Args:
            name: its id.
        """
        self._seen.pop(name, None)

    def live(self) -> list[Server]:
        """All that have reported lately, in the order of their addresses."""
        since_s = time.monotonic() - _STALE_S
        self._seen = {name: one for name, one in self._seen.items() if one[0] > since_s}
        return sorted((server for _, server in self._seen.values()), key=lambda one: one.url)

    def _watch(self) -> None:
        while time.monotonic() - self._reported_s < _ALONE_S:
            time.sleep(_LOOK_S)
        os._exit(0)


def name_of(app: str, deployment: str) -> str:
    """Of the actor, for a deployment of an application."""
    return f"lumen-directory:{app}:{deployment}"


def of(name: str) -> Any:
    """The actor's handle; it is made where there is none.

    Args:
        name: of the actor.
    """
    import ray

    remote = ray.remote(Directory)
    return remote.options(
        name=name, namespace=NAMESPACE, lifetime="detached", get_if_exists=True, num_cpus=0
    ).remote()


def leave(name: str, server: str) -> None:
    """A server is about to end.

    Args:
        name: of the actor.
        server: its id.
    """
    import ray

    try:
        ray.get_actor(name, namespace=NAMESPACE).drop.remote(server)
    except ValueError:
        return  # there is none


def look_up(name: str) -> list[Server]:
    """What the actor knows; nothing where there is none.

    Args:
        name: of the actor.
    """
    import ray

    try:
        actor = ray.get_actor(name, namespace=NAMESPACE)
        found: list[Server] = ray.get(actor.live.remote())
    except (ValueError, ray.exceptions.RayActorError):
        return []
    return found
