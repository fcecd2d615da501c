"""Several Lumens on this machine, and HAProxy or Envoy before them as deploy/ has them.

Used by rolling.py, balance.py and tests/e2e/operate/test_e2e_fleet.py. The balancers' files are
those of deploy/, of which only addresses change. Whatever is started ends with its context.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench.common.local_server import ROOT
from bench.peers import install
from bench.peers.servers import free_port, started

MODEL: Final = "m"
_READY_S: Final = 60.0
_END_S: Final = 60.0


class Node:
    """A Lumen on ports of its own, which it keeps when it is started again.

    Args:
        folder: for what it says.
        number: of it, from 1 on.
        path: of its model, which is served as MODEL.
        settings: further ones, as --set has them.
    """

    host: Final = "127.0.0.1"

    def __init__(self, folder: Path, number: int, path: str, settings: Sequence[str] = ()) -> None:
        self.port, self.agent_port = free_port(), free_port()
        self._log = folder / f"lumen-{number}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [sys.executable, "-m", "lumen_uring", f"--model={MODEL}={path}"]
        for setting in (
            f"server.port={self.port}",
            f"server.agent_port={self.agent_port}",
            "server.metrics_port=0",
            "server.hosts=['*']",
            "server.orca=always",
            "server.arena_bytes=64MiB",
            "engine.thread_count=1",
            *settings,
        ):
            self._command.append(f"--set={setting}")

    def begin(self) -> None:
        """Starts it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        """Waits until it is ready.

        Raises:
            RuntimeError: it ended, or took too long; holds what it said.
        """
        assert self._process is not None
        until_s = time.monotonic() + _READY_S
        while not is_ready(self.port):
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"a server did not start:\n{self._log.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Tells it to end, and waits until it has.

        Raises:
            RuntimeError: it did not end well; holds what it said.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            code = -1
        if code:
            raise RuntimeError(f"a server did not end well:\n{self._log.read_text()}")
        self._process = None

    def kill(self) -> None:
        """Ends it at once, where it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def answered(self) -> int:
        """How many requests for the model it has answered well since its start."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        link.request("GET", f"/v2/models/{MODEL}/stats")
        (figures,) = json.loads(link.getresponse().read())["model_stats"]
        return int(figures["inference_stats"]["success"]["count"])


def is_ready(port: int) -> bool:
    """Whether a server or a balancer says that it is ready."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with suppress(OSError, http.client.HTTPException):
        link.request("GET", "/v2/health/ready")
        return link.getresponse().status == 200
    return False


@contextmanager
def fleet(folder: Path, paths: Sequence[str], settings: Sequence[str] = ()) -> Iterator[list[Node]]:
    """Runs a Lumen for each model, all ready.

    Args:
        folder: for what they say.
        paths: of the model of each.
        settings: of all, as --set has them.
    """
    nodes = [Node(folder, n, path, settings) for n, path in enumerate(paths, 1)]
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.kill)
            node.begin()
        for node in nodes:
            node.wait()
        yield nodes


# ---- balancers ----


def _placed(file: str, there: str, here: str, nodes: Sequence[Any]) -> str:
    """A file of deploy/ with the servers' addresses in the place of its own; lines of further ones
    are left out."""
    text = (ROOT / "deploy" / file).read_text()
    for number, node in enumerate(nodes, 1):
        place = here.format(node.host, node.port, node.agent_port)
        text = text.replace(there.format(number), place)
    return re.sub(r".*10\.0\.0\..*\n", "", text)


def _haproxy(folder: Path, front: int, nodes: Sequence[Any], policy: str) -> list[str]:
    there, here = "10.0.0.{}:8000 agent-port 8003", "{}:{} agent-port {}"
    text = _placed("haproxy/haproxy.cfg", there, here, nodes).replace(
        "bind :8000", f"bind :{front}"
    )
    if policy == "leastconn":
        text = re.sub(r" agent-(check|inter 1s|port \d+)", "", text)
    file = folder / "haproxy.cfg"
    file.write_text(text)
    return [install.haproxy(), "-db", "-f", str(file)]


def _envoy(folder: Path, front: int, nodes: Sequence[Any], policy: str) -> list[str]:
    form = "address: {}, port_value: {}"
    text = _placed(
        "envoy/envoy.yaml", form.format("10.0.0.{}", 8000), form.format("{}", "{}"), nodes
    ).replace(form.format("0.0.0.0", 8000), form.format("127.0.0.1", front))
    if policy == "least-request":
        text, count = re.subn(
            r"    lb_policy: LOAD_BALANCING.*?(?=    typed_extension_protocol)",
            "    lb_policy: LEAST_REQUEST\n", text, flags=re.DOTALL,
        )  # fmt: skip
        assert count == 1
    file = folder / "envoy.yaml"
    file.write_text(text)
    flags = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]
    return [install.envoy(), "-c", str(file), *flags]


# Each policy with its balancer.
POLICIES: Final[dict[str, Callable[..., list[str]]]] = {
    "agent": _haproxy,
    "leastconn": _haproxy,
    "orca": _envoy,
    "least-request": _envoy,
}


@contextmanager
def balancer(folder: Path, policy: str, nodes: Sequence[Any]) -> Iterator[int]:
    """Runs the balancer of a policy, of POLICIES, before these servers, each with a host, a port
    and an agent_port. Yields its port.

    Raises:
        PeerMissingError: it is not installed, or does not start.
    """
    front = free_port()
    command = POLICIES[policy](folder, front, nodes, policy)
    with started("balancer", command, {}, os.sched_getaffinity(0)) as process:
        process.wait_until(lambda: is_ready(front))
        yield front
