"""The rungs of `make ladder`: what each sets, and how its server is started.

Called by ladder.py. A rung is its base with one technique more; only the step from Python to Lumen
changes the server itself. A rung whose setting this Lumen lacks is left out. A rung must never
differ from its base by more than its line of the table shows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from bench.common import oip
from bench.common.local_server import local_server
from bench.common.places import find
from bench.peers.servers import Array, Model, fastapi
from bench.report.rules import plural
from lumen_uring import Client
from lumen_uring.ring.load import LoadPlan
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.schema import EngineConfig, ServerConfig

MODEL: Final = "trees"
# Keys beside Lumen's settings.
SERVER: Final = "server"
CORES: Final = "cores"
PROTOCOL: Final = "protocol"
ACCESS_LOG: Final = "access log"
TENSORS: Final = "tensors"
ORT_THREADS: Final = "ONNX Runtime's threads"
_OWN: Final = frozenset({SERVER, CORES, PROTOCOL, ACCESS_LOG, TENSORS, ORT_THREADS})
# Settings of all rungs of Lumen: the threads that a latency needs, and room for small requests.
_FIXED: Final = (
    *("server.metrics_port=0", "server.arena_bytes=32MiB", "server.max_request_bytes=64KiB"),
    *("server.io_threads=1", "engine.thread_count=1", "models.0.width=1"),
)
_SECTIONS: Final = {"server": ServerConfig, "engine": EngineConfig, "models": ModelConfig}


@dataclass(frozen=True, slots=True)
class Step:
    """A rung as it is written down.

    Args:
        name: of the technique, as tables show it.
        change: settings and their new values.
        claim_ms: what the handbook says the technique took off 8 ms; None: it does not say.
        aside: the next rung stands on this one's base.
    """

    name: str
    change: Mapping[str, str]
    claim_ms: float | None = None
    aside: bool = False


STEPS: Final = (
    Step(
        "plain Python",
        {
            SERVER: "FastAPI",
            CORES: "all",
            PROTOCOL: "HTTP",
            ACCESS_LOG: "on",
            TENSORS: "new ones for each request",
            ORT_THREADS: "its default",
        },
    ),
    Step("no access log", {ACCESS_LOG: "off"}, claim_ms=0.3),
    Step("tensors allocated once", {TENSORS: "bound once"}, claim_ms=2.1),
    Step("one thread of ONNX Runtime", {ORT_THREADS: "1"}),
    Step("pinned", {CORES: "one"}, claim_ms=1.8, aside=True),
    Step(
        "Lumen, plain",
        {
            SERVER: "Lumen",
            "server.io_backend": "epoll",
            "engine.queue_type": "naive",
            "engine.allocator_type": "standard",
            "engine.idle": "park",
            "engine.huge_pages": "none",
            "models.0.engine": "onnxruntime",
        },
    ),
    Step("io_uring", {"server.io_backend": "io_uring"}),
    Step("lock-free queue", {"engine.queue_type": "mpmc"}, claim_ms=0.9),
    Step("arena", {"engine.allocator_type": "lumen_arena"}),
    Step("huge pages", {"engine.huge_pages": "transparent"}),
    Step("Lumen pinned", {CORES: "one"}, claim_ms=1.8),
    Step("native kernels", {"models.0.engine": "native"}, claim_ms=0.7),
    Step("inline", {"engine.queue_type": "inline"}),
    Step("real-time priority", {"engine.real_time": "50"}),
    Step("memory locked", {"engine.lock_memory": "true"}),
    Step("busy polling for 50 µs", {"engine.idle": "adaptive"}),
    Step("busy polling for 1 s", {"engine.busy_poll_us": "1000000"}),
    Step("native protocol", {PROTOCOL: "native"}),
    # The noise: a table must not call it a difference.
    Step("the same once more", {}),
)


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung with all its settings.

    Args:
        step: as it is written down.
        settings: its own and those it stands on.
        base: the rung it stands on and is compared with; None: it is the first.
    """

    step: Step
    settings: Mapping[str, str]
    base: str | None

    @property
    def name(self) -> str:
        """As tables show it."""
        return self.step.name

    @property
    def change(self) -> str:
        """What it sets, as tables show it."""
        return ", ".join(f"{key}: {value}" for key, value in self.step.change.items()) or "nothing"


def rungs(steps: Sequence[Step] = STEPS) -> tuple[list[Rung], dict[str, str]]:
    """Puts the steps on each other.

    Args:
        steps: from the lowest.

    Returns:
        The rungs, and the names of those left out with the setting that this Lumen lacks. A step
        of which it has some settings keeps these.
    """
    found: list[Rung] = []
    missing: dict[str, str] = {}
    base: Rung | None = None
    for step in steps:
        known = {key: value for key, value in step.change.items() if _is_known(key)}
        if step.change and not known:
            missing[step.name] = next(iter(step.change))
            continue
        settings = {**(base.settings if base else {}), **known}
        found.append(Rung(replace(step, change=known), settings, base.name if base else None))
        base = base if step.aside else found[-1]
    return found, missing


def _is_known(key: str) -> bool:
    section, _, rest = key.partition(".")
    return key in _OWN or rest.rpartition(".")[2] in _SECTIONS[section].model_fields


# ---- servers ----


@dataclass(frozen=True, slots=True)
class LoadShape:
    """How requests come: as fast as answers do, or at random moments so many a second."""

    connections: int
    rate: float = 0.0

    @property
    def name(self) -> str:
        """As tables show it."""
        name = plural(self.connections, "connection")
        return f"{name}, {self.rate:,.0f} requests a second" if self.rate else name


@dataclass(frozen=True, slots=True)
class Running:
    """A server that serves the model, and a plan of requests for it.

    Args:
        pid: its process.
        requests: as they go over the wire, one for each row.
        replies: what each is answered with: HTTP bodies, or the native protocol's tensors.
        values: the answers in them; float32 [rows].
        protocol: of lumen_uring.ring.load.LoadPlan.
        port: it listens on.
        notes: what it said about settings that it could not honour.
    """

    pid: int
    requests: Sequence[bytes]
    replies: Sequence[bytes]
    values: Array
    protocol: int
    port: int
    notes: tuple[str, ...] = ()

    def plan(
        self, load: LoadShape, seconds: float, warmup_s: float, requests: int, cpu: int
    ) -> LoadPlan:
        """These requests from a generator that never sleeps.

        Args:
            load: how they come.
            seconds: counted time.
            warmup_s: before that.
            requests: counted instead of seconds; 0: seconds.
            cpu: the generator's.
        """
        return LoadPlan(
            host="127.0.0.1",
            port=self.port,
            connections=load.connections,
            rate=load.rate,
            model=0,
            encoding=0,
            rows=1,
            payloads=self.requests,
            expected=self.replies,
            seconds=0.0 if requests else seconds,
            requests=requests,
            warmup_s=warmup_s,
            cpu=cpu,
            poll_us=1_000_000,
            protocol=self.protocol,
        )


def server_cores(settings: Mapping[str, str]) -> frozenset[int]:
    """The cores of a rung's server; the load generator's is among all of them."""
    return find("one-core").server if settings[CORES] == "one" else find("all-cores").server


@contextmanager
def started(rung: Rung, model: Path, rows: Array) -> Iterator[Running]:
    """Starts a rung's server and asks it for each row once.

    Args:
        rung: any.
        model: an ONNX file of one input and one output.
        rows: float32 [rows, features].

    Raises:
        PeerMissingError: FastAPI cannot be had here.
        RuntimeError: the server did not start, or refused a row.
    """
    start = _fastapi if rung.settings[SERVER] == "FastAPI" else _lumen
    with start(rung.settings, model, rows) as running:
        yield running


@contextmanager
def _fastapi(settings: Mapping[str, str], model: Path, rows: Array) -> Iterator[Running]:
    described = Model(str(model), "x", (1, rows.shape[1]), "y", (1, 1))
    with fastapi(
        described,
        rows[0].tobytes(),
        server_cores(settings),
        tuned=settings[ORT_THREADS] == "1",
        processes=1,
        access_log=settings[ACCESS_LOG] == "on",
        bound=settings[TENSORS] == "bound once",
    ) as peer:
        yield _over_http(peer.pid, peer.port, peer.path, peer.headers, rows)


@contextmanager
def _lumen(settings: Mapping[str, str], model: Path, rows: Array) -> Iterator[Running]:
    chosen = [f"{key}={value}" for key, value in settings.items() if key not in _OWN]
    arguments = [f"--model={MODEL}={model}"]
    arguments += [f"--set={setting}" for setting in (*_FIXED, *chosen)]
    cores = server_cores(settings)
    with local_server(*arguments, cores=cores) as server:
        if settings[CORES] == "all":
            _unpin(server.pid, cores)
        if settings[PROTOCOL] == "HTTP":
            path, headers = oip.infer_path(MODEL), oip.headers(0)
            yield _over_http(server.pid, server.port, path, headers, rows, server.notes)
        else:
            yield _natively(server.pid, server.port, rows, server.notes)


def _unpin(pid: int, cores: frozenset[int]) -> None:
    """As `taskset -a -p`: Lumen pins its workers by itself."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


def _over_http(
    pid: int,
    port: int,
    path: str,
    headers: Mapping[str, str],
    rows: Array,
    notes: tuple[str, ...] = (),
) -> Running:
    requests, replies, values = [], [], []
    for row in rows:
        body = row.tobytes()
        fields = {"Host": f"127.0.0.1:{port}", **headers, "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        requests.append(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        status, _, reply = oip.ask(port, "POST", path, body, headers)
        if status != 200:
            raise RuntimeError(f"port {port}{path} answered {status}: {reply[:200]!r}")
        replies.append(reply)
        values.append(np.frombuffer(reply[-4:], np.float32)[0])
    return Running(pid, requests, replies, np.array(values, np.float32), 1, port, notes)


def _natively(pid: int, port: int, rows: Array, notes: tuple[str, ...]) -> Running:
    with Client("127.0.0.1", port) as client:
        answers = [client.infer(MODEL, {"x": row[None]}).outputs["y"] for row in rows]
    values = np.array([answer[0, 0] for answer in answers], np.float32)
    replies = [answer.tobytes() for answer in answers]
    return Running(pid, [row.tobytes() for row in rows], replies, values, 0, port, notes)
