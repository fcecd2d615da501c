"""What an operator works with: a server, its output, its log, its settings file, its manager."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import harness
import wire
import yaml
from conftest import Serve
from harness import eventually


@contextmanager
def raw_server(
    document: dict[str, object],
    cache: Path,
    folder: Path,
    output: int,
    prefix: Sequence[str] = (),
    **variables: str,
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server whose output is the caller's: the process, and the port it listens on."""
    port = free_port()
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(harness.with_backend(document)))
    process = subprocess.Popen(
        [*prefix, *harness.command("--config", str(path), "--port", str(port))],
        cwd=harness.ROOT,
        env={**harness.environment(cache), **variables},
        stdout=output,
        stderr=output,
    )
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()
        harness.remove_figures(Path(f"/dev/shm/lumen-{port}"), process.pid)


def wait_for_port(process: subprocess.Popen[bytes], port: int) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            with wire.Wire(port) as connection:
                return connection.ask(wire.ping(1)).id == 1
        except OSError:
            return False

    eventually(answers, "an answer", harness.START_S)


def free_port() -> int:
    """A TCP port that nobody has at this moment, nor gets who asks for any."""
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        number = random.randrange(min(10_000, int(first) // 2), int(first))
        with contextlib.suppress(OSError), socket.socket() as holder:
            holder.bind(("127.0.0.1", number))
            return number


def records(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Manager:
    """A service manager's socket, on a path or with an abstract name."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(harness.START_S)
        self.said: list[str] = []

    def until(self, line: str) -> list[str]:
        """Reads until a message has this line; returns its lines."""
        while True:
            lines = self.socket.recv(4096).decode().splitlines()
            self.said += lines
            if line in lines:
                return lines


def key(token: str, **rest: object) -> dict[str, object]:
    return {"name": token, "sha256": hashlib.sha256(token.encode()).hexdigest(), **rest}


class Reloaded:
    """A server whose settings are written again, and read again at SIGHUP."""

    def __init__(
        self,
        serve: Serve,
        folder: Path,
        document: dict[str, object],
        extra_environment: dict[str, str] | None = None,
    ) -> None:
        self.path = folder / "lumen.yaml"
        self.write(document)
        # The harness's own file comes first and has the models; this one is what counts.
        self.server = serve(
            document,
            options=["--config", str(self.path), "--port", "0"],
            extra_environment=extra_environment,
        )

    def write(self, document: dict[str, object]) -> None:
        self.path.write_text(yaml.safe_dump(harness.with_backend(document)))

    def reload(self, document: dict[str, object]) -> str:
        """Returns what the log says of it."""
        before = len(self.server.errors)
        self.write(document)
        self.server.process.send_signal(signal.SIGHUP)
        eventually(
            lambda: re.search(r"(Reloaded|reload failed).*\n", self.server.errors[before:]),
            "the reload",
            found=lambda: self.server.errors[before:],
        )  # fmt: skip
        return self.server.errors[before:]


def bulk_ns(server: harness.Server) -> int:
    """The CPU time of the threads for many texts, once they sleep: where others want the cores they
    may wait for one long after the answer came."""
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    threads = [task for task in tasks if (task / "comm").read_text().startswith("lumen-b")]

    def sleep() -> bool:
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in threads]
        return set(states) == {"S"}

    eventually(sleep, "threads that sleep")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in threads)
