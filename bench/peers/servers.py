"""Starts and stops the peers that Lumen is compared with.

Called by compare.py; nginx.py and http_live.py use its means. Every peer gets the same model file
and the same ONNX Runtime, in one of two ways: tuned for throughput, with one ONNX Runtime thread
per session and a session per core; or as its users write it, one session with all defaults. It runs
in a session of its own and is stopped with all it started. It never leaves a process behind and
never touches one it did not start.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Final

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped,unused-ignore]

from bench.common import oip
from bench.common.places import pinned
from bench.peers.install import PeerMissingError, environment

Array = npt.NDArray[np.float32]
_HERE: Final = Path(__file__).resolve().parent
_READY_S: Final = 60
_STOP_S: Final = 15
_CPUCLOCK_SCHED: Final = 2
# The release whose wheel holds a Triton server that this file knows how to start.
_PYTRITON: Final = "nvidia-pytriton==0.7.0"


@dataclass(frozen=True, slots=True)
class Model:
    """What is served: the file, the names and shapes of its one input and output."""

    path: str
    input_name: str
    input_shape: tuple[int, ...]
    output_name: str
    output_shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Peer:
    """A running peer, and how to ask it."""

    pid: int
    port: int
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where requests go."""
        return f"http://127.0.0.1:{self.port}{self.path}"

    def ask(self) -> Array:
        """Sends one request; returns the answer's values, flat.

        Raises:
            RuntimeError: it was refused.
        """
        found = oip.output_bytes(self.port, self.path, self.body, self.headers)
        return np.frombuffer(found, np.float32)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of peer: its environment, and how it is started (model, body, cores)."""

    name: str
    packages: tuple[str, ...]
    start: Callable[[Model, bytes, frozenset[int]], AbstractContextManager[Peer]]

    def install(self) -> Path:
        """Makes sure of its environment, with the ONNX Runtime that Lumen runs on.

        Returns:
            Its Python.

        Raises:
            PeerMissingError: pip could not install it.
        """
        return environment(self.name, [*self.packages, f"onnxruntime=={onnxruntime.__version__}"])


@contextmanager
def fastapi(
    model: Model,
    body: bytes,
    cores: frozenset[int],
    *,
    tuned: bool = True,
    processes: int = 0,
    access_log: bool = False,
    bound: bool = False,
    picture: str | None = None,
) -> Iterator[Peer]:
    """FastAPI under uvicorn.

    Args:
        model: what to serve.
        body: the input tensor of each request.
        cores: those it may use.
        tuned: a process for each, and one thread per session; else one process, all defaults.
        processes: instead of these.
        access_log: a line for each request, which is uvicorn's default.
        bound: tensors are bound to memory of one row that is allocated once.
        picture: the body is a picture's file, prepared in this way of picture_steps.py.

    Raises:
        PeerMissingError: it cannot be installed or started here.
    """
    python = (FASTAPI_PICTURES if picture else FASTAPI).install()
    port = free_port()
    command = [str(python), "-m", "uvicorn", "fastapi_app:app", "--app-dir", str(_HERE)]
    count = processes or (len(cores) if tuned else 1)
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", str(count)]
    command += [] if access_log else ["--no-access-log", "--log-level", "warning"]
    settings = {"LUMEN_PEER_MODEL": model.path, "LUMEN_PEER_PICTURE": picture or ""}
    settings |= _tuning(tuned)
    settings |= {"LUMEN_PEER_BOUND": "1"} if bound else {}
    with started("fastapi", command, settings, cores) as process:
        wait_for_all(process, port, count)
        headers = {"Content-Type": "application/octet-stream"}
        path = "/picture" if picture else "/bound" if bound else "/infer"
        yield Peer(process.pid, port, path, body, headers)


def wait_for_all(process: Process, port: int, count: int) -> None:
    """Waits until each process of a FastAPI server has answered `/health` with its own id."""
    seen: set[bytes] = set()

    def ready() -> bool:
        status, _, pid = oip.ask(port, "GET", "/health")
        seen.update({pid} if status == 200 else ())
        return len(seen) >= count

    process.wait_until(ready)


def _tuning(tuned: bool) -> dict[str, str]:
    return {"LUMEN_PEER_TUNED": "1", "OMP_NUM_THREADS": "1"} if tuned else {}


@contextmanager
def triton(
    model: Model, body: bytes, cores: frozenset[int], *, tuned: bool = True
) -> Iterator[Peer]:
    """Triton's Python backend out of the nvidia-pytriton wheel.

    Args:
        model: what to serve.
        body: the input tensor of each request.
        cores: those it may use.
        tuned: an instance for each, and one thread per session; else one instance, all defaults.

    Raises:
        PeerMissingError: it cannot be installed or started here.
    """
    with triton_of({"model": model}, cores, tuned=tuned) as (pid, port):
        yield oip_peer(pid, port, model, body)


@contextmanager
def triton_of(
    models: Mapping[str, Model],
    cores: frozenset[int],
    *,
    tuned: bool = True,
    loaded: Sequence[str] | None = None,
    grpc_port: int | None = None,
) -> Iterator[tuple[int, int]]:
    """The same with several models: the leader of its session and its port for HTTP.

    Args:
        models: in its repository, by name.
        cores: those it may use.
        tuned: an instance of each model for each, and one thread per session.
        loaded: those of the start; others are loaded by calls. None: all, and no calls.
        grpc_port: for gRPC; None: HTTP alone.

    Raises:
        PeerMissingError: it cannot be installed or started here.
    """
    python = TRITON.install()
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    home = site / "pytriton" / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.is_file():
        raise PeerMissingError(f"{_PYTRITON} has no Python backend for Python {version}.")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(home / "backends" / "python", root / "backends" / "python")
        shutil.copy2(stub, root / "backends" / "python")
        for name, model in models.items():
            write_repository(root / "models" / name, model, len(cores) if tuned else 1)
        command = [str(home / "bin" / "tritonserver"), f"--model-repository={root / 'models'}"]
        command += [f"--backend-directory={root / 'backends'}", f"--http-port={port}"]
        command += ["--http-address=127.0.0.1", "--allow-metrics=false"]
        if grpc_port is None:
            command += ["--allow-grpc=false"]
        else:
            command += ["--grpc-address=127.0.0.1", f"--grpc-port={grpc_port}"]
        if loaded is not None:
            command += ["--model-control-mode=explicit"]
            command += [f"--load-model={name}" for name in loaded]
        libraries = [site / "nvidia_pytriton.libs", sysconfig.get_config_var("LIBDIR")]
        settings = {
            **_tuning(tuned),
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(site),
        }
        with started("triton", command, settings, cores) as process:
            process.wait_until(lambda: oip.ask(port, "GET", "/v2/health/ready")[0] == 200)
            yield process.pid, port


def oip_peer(pid: int, port: int, model: Model, body: bytes) -> Peer:
    """A server of the Open Inference Protocol that serves its model as 'model'.

    Args:
        pid: of the leader of its session.
        port: of the server.
        model: what it serves.
        body: the input tensor of each request.
    """
    head = oip.infer_json(model.input_name, model.input_shape, "FP32", len(body))
    return Peer(pid, port, oip.infer_path("model"), head + body, oip.headers(len(head)))


def write_repository(folder: Path, model: Model, cores: int) -> None:
    """Writes a model's folder as Triton wants it.

    Args:
        folder: of the model, inside the repository.
        model: what to serve.
        cores: how many instances.
    """
    (folder / "1").mkdir(parents=True)
    shutil.copy2(_HERE / "triton_model.py", folder / "1" / "model.py")
    lines = [f'name: "{folder.name}"', 'backend: "python"', "max_batch_size: 0"]
    for kind, name, shape in (
        ("input", model.input_name, model.input_shape),
        ("output", model.output_name, model.output_shape),
    ):
        sizes = ", ".join(map(str, (-1, *shape[1:])))
        lines.append(f'{kind} [{{ name: "{name}" data_type: TYPE_FP32 dims: [{sizes}] }}]')
    lines.append(f"instance_group [{{ kind: KIND_CPU count: {cores} }}]")
    lines.append(f'parameters {{ key: "path" value: {{ string_value: "{model.path}" }} }}')
    (folder / "config.pbtxt").write_text("\n".join(lines) + "\n")


FASTAPI: Final = Kind("fastapi", ("fastapi", "uvicorn[standard]"), fastapi)
FASTAPI_PICTURES: Final = Kind(
    "fastapi-pictures", (*FASTAPI.packages, "pillow", "opencv-python-headless"), fastapi
)
TRITON: Final = Kind("triton", (_PYTRITON,), triton)
FASTAPI_DEFAULTS: Final = Kind("fastapi", FASTAPI.packages, partial(fastapi, tuned=False))
TRITON_DEFAULTS: Final = Kind("triton", TRITON.packages, partial(triton, tuned=False))


# ---- processes ----


class Process:
    """A peer's first process: the leader of a session that holds all it starts."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self._name, self._process, self._log = name, process, log
        self.pid = process.pid

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Asks until it is ready.

        Raises:
            PeerMissingError: it ended, or did not get ready in time.
        """
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise PeerMissingError(f"{self._name} ended at once: {self._last_words()}")
            try:
                if ready():
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise PeerMissingError(f"{self._name} was not ready in {_READY_S} s: {self._last_words()}")

    def stop(self) -> None:
        """Asks it to end, then ends whatever is left of its session."""
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        for pid in session(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        # Tracebacks hold lines of nothing but carets.
        words = [line.strip() for line in lines if any(map(str.isalpha, line))]
        return words[-1] if words else "it said nothing"


@contextmanager
def started(
    name: str, command: Sequence[str], settings: Mapping[str, str], cores: Iterable[int]
) -> Iterator[Process]:
    """Starts a peer in a session of its own; stops all of that session afterwards.

    Args:
        name: for messages.
        command: the program and its arguments.
        settings: further environment variables.
        cores: those it may use.

    Raises:
        PeerMissingError: it cannot be started.
    """
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH",)}
    # ONNX Runtime's telemetry is off for Lumen, and so for its peers.
    fixed = {"ORT_DISABLE_TELEMETRY": "1"}
    with tempfile.TemporaryFile() as log:
        try:
            with pinned(cores):
                running = subprocess.Popen(
                    command,
                    env={**kept, **fixed, **settings},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise PeerMissingError(f"{name} cannot be started: {error}.") from None
        process = Process(name, running, log)
        try:
            yield process
        finally:
            process.stop()


def session(leader: int) -> list[int]:
    """The processes of the session that a process leads.

    Args:
        leader: its id.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == leader:
            found.append(int(entry.name))
    return found


def session_cpu_s(leader: int) -> float:
    """CPU time of all processes of a session so far; seconds."""
    total = 0.0
    for pid in session(leader):
        with suppress(OSError):  # it has ended meanwhile
            total += time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    return total


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
