"""Starts the server of a node: settings, addresses, and the child that has them.

Called by replica.py as a replica begins, on one thread; it knows nothing of Ray.
"""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lumen_uring.config import load
from lumen_uring.ray.child import Child, ChildError
from lumen_uring.ray.plan import AGENT_DISTANCE, PORT, Plan
from lumen_uring.settings.schema import ServerConfig

_STEP: Final = 10  # from the ports of one server of a node to those of the next
_ALL: Final = ("0.0.0.0", "::")
_TIMEOUT_S: Final = 5.0
_BEYOND_S: Final = 5.0  # above unready_seconds and drain_seconds, until a server is killed
_WORD_BYTES: Final = 64
_TAKEN_S: Final = 5.0  # a server that was killed may keep its port until its memory is given back
_LOOK_S: Final = 0.2


@dataclass(slots=True)
class Running:
    """A server that was ready once, and where it is.

    Attributes:
        child: its process.
        host: the address that clients reach it at.
        settings: the section `server`.
        folder: of its settings file, which goes with it.
    """

    child: Child
    host: str
    settings: ServerConfig
    folder: str

    @property
    def url(self) -> str:
        """That clients take."""
        tls, host = self.settings.tls, f"[{self.host}]" if ":" in self.host else self.host
        port = self.settings.port if tls is None else tls.port
        return f"{'http' if tls is None else 'https'}://{host}:{port}"

    def is_live(self) -> bool:
        """Whether it answers. Raises ChildError where its process has ended."""
        self.child.check()
        return self._asks("live")

    def is_ready(self) -> bool:
        """Whether it wants requests."""
        return self._asks("ready")

    def utilization(self) -> float:
        """Busy workers and waiting requests, for each worker; 0 where it has no agent_port.

        Source:
            lumen_uring/metrics/agent.py: the weight is 100 / (1 + utilization)
        """
        if not self.settings.agent_port:
            return 0.0
        place = (self.host, self.settings.agent_port)
        with closing(socket.create_connection(place, _TIMEOUT_S)) as link:
            said = link.recv(_WORD_BYTES).decode("ascii", "replace")
        weight = "".join(filter(str.isdecimal, said))
        return 100 / int(weight) - 1 if weight.strip("0") else 0.0

    def stop(self) -> bool:
        """Ends it, with its drain; whether it ended by itself."""
        said = self.settings
        is_clean = self.child.stop(said.unready_seconds + said.drain_seconds + _BEYOND_S)
        shutil.rmtree(self.folder, ignore_errors=True)
        return is_clean

    def _asks(self, question: str) -> bool:
        link = self._link()
        try:
            link.request("GET", f"/v2/health/{question}", headers={"Host": "localhost"})
            return link.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            link.close()

    def _link(self) -> http.client.HTTPConnection:
        tls, port = self.settings.tls, self.settings.port
        if tls is None or not tls.only:
            return http.client.HTTPConnection(self.host, port, timeout=_TIMEOUT_S)
        context = ssl.create_default_context()  # it asks whether it lives, not who it is
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(self.host, tls.port, timeout=_TIMEOUT_S, context=context)


def start(plan: Plan, host: str, base: str, environment: Mapping[str, str]) -> Running:
    """Starts the server, and waits until it is ready.

    Args:
        plan: its settings.
        host: the node's address, where it listens unless its settings say otherwise.
        base: the folder that relative paths begin at, on this node.
        environment: its variables.

    Raises:
        ConfigError: the settings are wrong.
        ChildError: it did not start, or its ports are taken.
    """
    folder = tempfile.mkdtemp(prefix="lumen-ray-")
    try:
        return _start(plan, host, base, environment, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _start(
    plan: Plan, host: str, base: str, environment: Mapping[str, str], folder: str
) -> Running:
    path = None
    if plan.text is not None:
        path = Path(folder, "config.yaml")
        path.write_text(plan.text, "utf-8")
    models = plan.placed_models(base)
    common = [*_defaults(plan, host, environment), *plan.placed(base, environment), *plan.overrides]
    first = load(path, common, models, environment).server
    waits_until_s = time.monotonic() + _TAKEN_S
    while True:
        taken = []
        for ports in _ports(plan, environment, first):
            overrides = [*common, *ports]
            settings = load(path, overrides, models, environment).server
            if _is_free(settings.host, settings.port):
                arguments = ["serve", *(["--config", str(path)] if path else [])]
                arguments += [f"--model={one}" for one in models]
                arguments += [f"--set={one}" for one in overrides]
                here = host if settings.host in _ALL else settings.host
                return Running(_ready(arguments, environment), here, settings, folder)
            taken.append(str(settings.port))
        if time.monotonic() > waits_until_s:
            raise ChildError(
                f"port {' and '.join(taken)} on this node ({host}) is in use: stop what listens "
                "there, or choose another with server.port"
            )
        time.sleep(_LOOK_S)


def _ready(arguments: list[str], environment: Mapping[str, str]) -> Child:
    child = Child(arguments, environment)
    try:
        child.wait_until_ready()
    except BaseException:
        child.stop(0)
        raise
    return child


def _defaults(plan: Plan, host: str, environment: Mapping[str, str]) -> Iterator[str]:
    """What a server of a cluster wants, where its settings say nothing of it."""
    chosen = {"host": host, "metrics_host": host, "hosts": "['*']", "port": PORT}
    for name, value in chosen.items():
        if not plan.named("server", name, environment):
            yield f"server.{name}={value}"


def _ports(
    plan: Plan, environment: Mapping[str, str], settings: ServerConfig
) -> Iterator[tuple[str, str]]:
    """The ports of each server that may be on a node."""
    agent = settings.agent_port
    if not plan.named("server", "agent_port", environment):
        agent = settings.port + AGENT_DISTANCE
    for further in range(0, _STEP * plan.per_node, _STEP):
        yield (
            f"server.port={settings.port + further}",
            f"server.agent_port={agent + further if agent else 0}",
        )


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen(1)
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def place(plan: Plan, working_dir: str | None) -> str:
    """The folder that relative paths begin at, on this node.

    Args:
        plan: says where it is at the driver.
        working_dir: that Ray has brought along; None: none.
    """
    return (
        plan.folder
        if working_dir is None
        else os.path.normpath(os.path.join(working_dir, plan.within))
    )
