"""Ray clusters on this machine, whose nodes have loopback addresses of their own.

Used by ray_serve.py and tests/e2e/operate/test_e2e_ray.py. What is started ends with its context.
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench.common.local_server import ROOT
from bench.peers.servers import free_port

# A small server, whose drain is short: three intervals of the balancer's checks.
SETTINGS: Final = (
    "engine.thread_count=1",
    "server.arena_bytes=64MiB",
    "server.unready_seconds=3",
)
# Ray's workers have niceness 15 without it, Lumen and replicas in Python alike.
_RAY: Final = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
_FIRST: Final = 2  # 127.0.0.2; Ray takes 127.0.0.1 for the machine's address in its network
_STORE_BYTES: Final = 80 << 20  # the least that Ray allows is 75 MiB
_CPUS: Final = 2  # that each node says it has
_WAIT_S: Final = 120.0


@contextmanager
def cluster(nodes: int, working_dir: str | None = None) -> Iterator[int]:
    """Runs a cluster with Ray Serve's proxy on its first node. Yields the proxy's port.

    Args:
        nodes: how many.
        working_dir: that Ray brings to each node.
    """
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    os.environ.update(_RAY)
    made = Cluster()
    try:
        for number in range(nodes):
            made.add_node(
                node_ip_address=f"127.0.0.{_FIRST + number}",
                num_cpus=_CPUS,
                object_store_memory=_STORE_BYTES,
                include_dashboard=False,
            )
        made.wait_for_nodes()
        ray.init(
            address=made.address,
            namespace="serve",
            log_to_driver=False,
            runtime_env={
                "env_vars": {"PYTHONPATH": str(ROOT)},
                **({} if working_dir is None else {"working_dir": working_dir}),
            },
        )
        port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
        yield port
        serve.shutdown()
    finally:
        ray.shutdown()
        made.shutdown()


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str, bytes]:
    """Asks once: status, Location and body; status 0: no answer."""
    link = http.client.HTTPConnection(host, port, timeout=10)
    with suppress(OSError, http.client.HTTPException):
        link.request("GET", path)
        answer = link.getresponse()
        return answer.status, answer.headers.get("Location", ""), answer.read()
    return 0, "", b""


def ready_servers(count: int) -> list[Any]:
    """Waits for so many ready servers; what lumen_uring.ray says of them.

    Raises:
        TimeoutError: they do not come.
    """
    from lumen_uring.ray import servers

    def some() -> list[Any]:
        return [one for one in servers() if one.is_ready]

    wait_until(lambda: len(some()) == count, f"{count} servers")
    return some()


def wait_until(holds: Callable[[], bool], what: str) -> float:
    """Waits; returns the seconds that it took.

    Raises:
        TimeoutError: it took too long.
    """
    began_s = time.monotonic()
    while not holds():
        if time.monotonic() - began_s > _WAIT_S:
            raise TimeoutError(f"no {what} in {_WAIT_S:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - began_s


def children() -> dict[int, int]:
    """The servers that replicas of this machine have started: process and parent."""
    found = {}
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            words = Path(f"/proc/{int(name)}/cmdline").read_bytes().split(b"\0")
            if b"lumen_uring.ray.bound" in words:
                found[int(name)] = int(words[words.index(b"lumen_uring.ray.bound") + 1])
    return found
