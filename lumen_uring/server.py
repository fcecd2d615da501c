"""Runs one server: from checked settings to the last drained request.

Called by `lumen serve`, on the main thread, which does nothing else. SIGINT and SIGTERM are blocked
and waited for, so that no Python handler runs in the middle of anything, and so that the engine's
threads inherit the mask. It is never on a request's path.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

from lumen_uring import __version__
from lumen_uring.errors import MetricsError
from lumen_uring.metrics_server import Facts, MetricsServer
from lumen_uring.model_cache import cache_place, labels, resolve
from lumen_uring.ring import onnxruntime_path
from lumen_uring.ring.engine import Engine, EngineInfo
from lumen_uring.settings import Config, ModelConfig, ServerConfig
from lumen_uring.sizes import format_size

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_STEP_S: Final = 0.1
# How often the main thread looks whether the engine still runs, while nothing asks it to stop.
_WATCH_S: Final = 1.0
_METRICS_PORT: Final = 8002
_LABELS: Final = {"builtin:squeezenet": "untrained weights, for speed only"}


def run(config: Config, out: TextIO | None = None) -> int:
    """Serves until a signal ends it.

    Args:
        config: checked settings.
        out: where the banner goes; None is stdout.

    Returns:
        The exit status: 0 after a signal, 1 when the engine ended by itself.

    Raises:
        ConfigError: a model's file or its labels are not there.
        LibraryError: the C library or ONNX Runtime is missing.
        EngineError: the engine refused to start.
        MetricsError: the port that was set for the metrics page cannot be had.
    """
    stream = sys.stdout if out is None else out
    # The metrics page's numpy: a thread per core for nothing. Set now, while no thread reads it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    began_s = time.monotonic()
    # All files are looked for before anything is loaded: a typing error shows at once.
    paths = [resolve(model.path) for model in config.models]
    classes = [labels(model) for model in config.models]
    runtime = onnxruntime_path.find()
    notes: list[str] = []
    # The page ends before the engine, which takes the statistics along.
    with _signals_blocked(), Engine(config, runtime) as engine, _metrics(config, notes) as metrics:
        # The engine's word, since the file's name need not hold a version.
        ort_version = engine.info().ort_version
        for model, path, names in zip(config.models, paths, classes, strict=True):
            place = cache_place(path, ort_version)
            if place.note is not None:
                notes.append(place.note)
            engine.add_model(model, path, place.path, names)
            if _signal_within(0) is not None:
                return 0
        engine.start()
        ready_s = time.monotonic() - began_s
        info = engine.info()
        if metrics is not None:
            metrics.start(Path(info.stats_path), _facts(info), os.getpid())
        address = "none" if metrics is None else metrics.address
        for line in banner(config, info, engine.describe(), notes, ready_s, address):
            print(line, file=stream, flush=True)
        return _watch(engine, config.server, stream)


def banner(
    config: Config,
    info: EngineInfo,
    description: dict[str, Any],
    notes: list[str],
    ready_s: float,
    metrics: str = "none",
) -> list[str]:
    """Says what is running and what to try next.

    Args:
        config: the settings it was started with.
        info: what the engine arrived at.
        description: its describe document.
        notes: sentences of this side; the engine's own follow them.
        ready_s: seconds from the start of the program's work to ready.
        metrics: where the metrics page is.

    Returns:
        Plain lines.
    """
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    lines = [f"Lumen {__version__} serves on {host}:{info.port} (ONNX Runtime {info.ort_version})"]
    if config.server.unix_socket is not None:
        mode = f"{config.server.unix_socket_mode:04o}"
        lines.append(f"  socket   unix:{config.server.unix_socket} (mode {mode})")
    for model, entry in zip(config.models, description["models"], strict=True):
        label = _LABELS.get(model.path)
        lines.append(
            f"  model    {model.name}{f' ({label})' if label else ''}: {_signature(entry)}"
        )
    cpus = ", ".join("unpinned" if cpu < 0 else f"core {cpu}" for cpu in info.worker_cpus)
    sizes = [entry.slot_bytes for entry in info.slot_classes]
    span = f", of {format_size(min(sizes))} to {format_size(max(sizes))} each" if sizes else ""
    lines += [
        f"  workers  {info.workers} ({cpus}), niceness {info.worker_nice}",
        f"  I/O      {info.io_backend}, {info.io_threads} thread(s), niceness {info.io_nice}"
        f"{f' ({info.io_detail})' if info.io_detail else ''}",
        f"  memory   {info.slots} slots in {format_size(info.arena_bytes)}{span}",
        f"  figures  {info.stats_path}",
        f"  metrics  {metrics}",
    ]
    lines += [f"  note     {note}" for note in (*notes, *info.notes)]
    lines.append(f"  ready    in {ready_s:.2f} s; Ctrl-C drains and ends")
    lines.append(f"Try: {_next_step(config.models[0], description['models'][0], info.port)}")
    return lines


def _signature(entry: dict[str, Any]) -> str:
    inputs = ", ".join(_tensor(tensor) for tensor in entry["inputs"])
    outputs = ", ".join(_tensor(tensor) for tensor in entry["outputs"])
    return f"{inputs} -> {outputs}"


def _tensor(tensor: dict[str, Any]) -> str:
    dims = ",".join("n" if dim < 0 else str(dim) for dim in tensor["shape"])
    return f"{tensor['name']} {tensor['datatype']}[{dims}]"


def _next_step(model: ModelConfig, entry: dict[str, Any], port: int) -> str:
    option = "" if port == 8000 else f" --port {port}"
    tensors = entry["inputs"]
    grey = len(tensors) == 1 and len(tensors[0]["shape"]) == 4 and tensors[0]["shape"][1] == 1
    if entry["rgb8"] is not None or grey:
        return f"lumen predict{option} --model {model.name} PICTURE.png"
    return f'python -c "from lumen_uring import Client; print(Client(port={port}).describe())"'


@contextmanager
def _metrics(config: Config, notes: list[str]) -> Iterator[MetricsServer | None]:
    """Listens for the metrics page; without it only where nobody named its port."""
    port, host = config.server.metrics_port, config.server.metrics_host
    page: MetricsServer | None = None
    try:
        if port != "auto":
            page = MetricsServer(host, port, config.server.hosts) if port else None
        elif config.server.port == _METRICS_PORT:
            notes.append(f"no metrics page: its port, {_METRICS_PORT}, is server.port")
        else:
            page = MetricsServer(host, _METRICS_PORT, config.server.hosts)
    except MetricsError as error:
        if port != "auto":
            raise
        notes.append(str(error))
    try:
        yield page
    finally:
        if page is not None:
            page.close()


def _facts(info: EngineInfo) -> Facts:
    return Facts(__version__, info.ort_version, info.workers, info.io_threads, info.slots)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        # Signals that came too late to matter must not turn an orderly end into another one.
        while _signal_within(0) is not None:
            continue
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _signal_within(seconds: float) -> int | None:
    """The number of a signal that came, or None."""
    came = signal.sigtimedwait(_SIGNALS, seconds)
    return None if came is None else came.si_signo


def _watch(engine: Engine, settings: ServerConfig, stream: TextIO) -> int:
    while (number := _signal_within(_WATCH_S)) is None:
        if engine.wait(0):
            print("The engine ended by itself.", file=sys.stderr)
            return 1
    # Ctrl-C is somebody who waits; SIGTERM may be an orchestrator whose balancers lag behind.
    if number == signal.SIGTERM and settings.unready_seconds:
        engine.unready()
        print(
            f"Not ready any more; serving on for {settings.unready_seconds:g} s.",
            file=stream,
            flush=True,
        )
        _signal_within(settings.unready_seconds)
    drain_s = settings.drain_seconds
    print(
        f"Draining for at most {drain_s:g} s; a second signal ends at once.",
        file=stream,
        flush=True,
    )
    engine.stop(drain_s)
    # The engine keeps to drain_s itself; the margin is for a Run that cannot be cut short.
    for _ in range(math.ceil((drain_s + 2 * _WATCH_S) / _STEP_S)):
        if engine.wait(_STEP_S):
            return 0
        if _signal_within(0) is not None:
            engine.stop(0)
            _let_signals_kill()
            return 0
    _leave_behind(engine, stream)
    return 0


def _leave_behind(engine: Engine, stream: TextIO) -> NoReturn:
    """Ends the process although a model has not returned: nothing can make its thread stop."""
    print("A model does not return: ending without it.", file=stream, flush=True)
    with suppress(OSError):
        Path(engine.info().stats_path).unlink()
    os._exit(0)


def _let_signals_kill() -> None:
    """From here on one more signal ends the process, whatever the engine is busy with."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
