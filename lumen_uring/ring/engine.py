"""The engine: the C library's server handle as a context manager.

Called by server.py and by tests, from one control thread (Python's main one). Every value is
range-checked before it crosses, since ctypes truncates silently. Nothing here is on a request's
path, and the handle is never used after close.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import orjson

from lumen_uring.errors import EngineError
from lumen_uring.ring import library, onnxruntime_path, structs
from lumen_uring.ring.config_struct import (
    EnginePlace,
    native_config,
    native_experts,
    native_model,
    native_steps,
    u32,
    u64,
)
from lumen_uring.ring.live_models import LiveModels
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, ModelConfig
from lumen_uring.settings.schema import Config

_COPIED_BYTES_MAX: Final = 8192  # of the body of a call


@dataclass(frozen=True, slots=True)
class SlotClass:
    """Slots of one size in one I/O thread's arena."""

    slot_bytes: int
    slot_count: int


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The running engine's facts; lumen_info in lumen.h explains each field."""

    port: int
    io_threads: int
    workers: int
    models: int
    arena_bytes: int
    ready_us: int
    slots: int
    slot_classes: tuple[SlotClass, ...]
    worker_cpus: tuple[int, ...]
    io_backend: str
    io_detail: str
    ort_version: str
    stats_path: str
    notes: tuple[str, ...]
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Errand:
    """A request over HTTP that this program answers: kind is one of structs.ERRANDS."""

    id: int
    kind: str
    name: str
    body: bytes | memoryview  # of files: the C library's memory, until the answer


@dataclass(frozen=True, slots=True)
class Isolated:
    """A model that a process of its own runs, and the files that it is opened from."""

    index: int
    settings: ModelConfig
    path: Path
    cache_path: Path | None


@dataclass(frozen=True, slots=True)
class ModelProcess:
    """What the process of a model needs to know; lumen_process in lumen.h explains each field."""

    bytes: int
    at: int
    fd: int
    number: int
    workers: int
    flush_denormals: int


class Engine(LiveModels):
    """A server of the C library: open, add models, start, stop, wait, close.

    Args:
        config: checked settings; its models are not added, see add_model.
        ort_library: libonnxruntime.so; None finds the installed wheel's.

    Raises:
        LibraryError: a library is missing or of another version.
        EngineError: the settings cannot be met on this machine.
    """

    def __init__(self, config: Config, ort_library: Path | None = None) -> None:
        self._handle: ctypes.c_void_p | None = None
        self._process = os.getpid()
        self._indexes: dict[str, int] = {}
        self._library = library.load()
        self.runtime = ort_library or onnxruntime_path.find()
        self.isolated: list[Isolated] = []
        native = native_config(config, self.runtime)
        handle = ctypes.c_void_p()
        self._check(self._library.lumen_open(ctypes.byref(native), ctypes.byref(handle)))
        self._handle = handle

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def add_model(
        self,
        model: ModelConfig,
        path: Path,
        cache_path: Path | None = None,
        labels: bytes | None = None,
        engine: EnginePlace | None = None,
    ) -> int:
        """Loads a model and one session per worker; before start only.

        Args:
            model: its settings; `path` there is not used.
            path: the ONNX or .ort file.
            cache_path: where the optimised graph is kept; None makes it anew at each start.
            labels: UTF-8, one class per line; None where there are none.
            engine: the native engine's file, or why there is none.

        Returns:
            The model's index on the wire.

        Raises:
            EngineError: the file is no model, or one that cannot be served.

        Source:
            lumen_add_model
        """
        index = self._add(native_model(model, path, cache_path, labels, engine))
        if model.isolation == "process":
            # The file may have no name that lasts (zipmap.py), unlike its optimised graph.
            lasts = cache_path if path.is_relative_to("/proc") and cache_path else path
            self.isolated.append(Isolated(index, model, lasts, cache_path))
        return index

    def _add(self, native: structs.LumenModelConfig) -> int:
        index = ctypes.c_uint32()
        self._check(
            self._library.lumen_add_model(
                self._open_handle(), ctypes.byref(native), ctypes.byref(index)
            )
        )
        self._indexes[native.name.decode()] = index.value
        return index.value

    def add_experts(
        self,
        entry: ExpertsConfig,
        model: ModelConfig,
        indexes: Mapping[str, int],
        labels: bytes | None = None,
    ) -> int:
        """Adds a virtual model, which runs one of models that were added; before start only.

        Args:
            entry: its rule.
            model: its settings, as Config.virtual gives them.
            indexes: of the models that were added, by name.
            labels: UTF-8, one class per line; None where there are none.

        Returns:
            The virtual model's index on the wire.

        Raises:
            EngineError: the models' tensors differ, or the rule does not fit them.

        Source:
            lumen_add_model
        """
        rule = native_experts(entry, indexes)
        native = native_model(model, Path("unused"), None, labels, experts=rule)
        return self._add(native)

    def add_ensemble(
        self,
        entry: EnsembleConfig,
        model: ModelConfig,
        indexes: Mapping[str, int],
        labels: bytes | None = None,
    ) -> int:
        """Adds an ensemble of models that were added; before start only.

        Args:
            entry: its steps.
            model: its settings, as Config.ensemble gives them.
            indexes: of the models that were added, by name.
            labels: UTF-8, one class per line; None where there are none.

        Returns:
            The ensemble's index on the wire.

        Raises:
            EngineError: the models' tensors do not fit each other.

        Source:
            lumen_add_model
        """
        steps = native_steps(entry, indexes)
        return self._add(native_model(model, Path("unused"), None, labels, steps=steps))

    def start(self) -> None:
        """Maps the arenas, starts the threads, listens; returns when requests are served.

        Raises:
            EngineError: the port is taken, memory is short, the kernel refuses.

        Source:
            lumen_start
        """
        self._check(self._library.lumen_start(self._open_handle()))

    def next_process(self, index: int) -> ModelProcess | None:
        """What the next process of an isolated model needs; None while the last one is in use.

        Args:
            index: of the model.

        Source:
            lumen_next_process
        """
        native = structs.LumenProcess()
        result = self._library.lumen_next_process(
            self._open_handle(), u32("model", index), ctypes.byref(native)
        )
        if result == structs.E_AGAIN:
            return None
        self._check(result)
        return ModelProcess(**{name: getattr(native, name) for name in ModelProcess.__slots__})

    def process_started(self, index: int, pid: int) -> None:
        """Says which process runs an isolated model from now on.

        Source:
            lumen_process_started
        """
        self._check(self._library.lumen_process_started(self._open_handle(), index, pid))

    def process_is_up(self, index: int) -> bool:
        """Whether an isolated model takes requests.

        Source:
            lumen_process_is_up
        """
        return self._check(self._library.lumen_process_is_up(self._open_handle(), index)) == 1

    def process_ended(self, index: int, end: int) -> None:
        """Says how the process of an isolated model ended, before it is reaped.

        Args:
            index: of the model.
            end: a signal, or 256 + the exit status.

        Source:
            lumen_process_ended
        """
        self._check(self._library.lumen_process_ended(self._open_handle(), index, u32("end", end)))

    def info(self) -> EngineInfo:
        """Reads the engine's facts; they are final after start.

        Source:
            lumen_get_info
        """
        native = structs.LumenInfo()
        self._check(self._library.lumen_get_info(self._open_handle(), ctypes.byref(native)))
        return EngineInfo(
            port=native.port,
            io_threads=native.io_threads,
            workers=native.workers,
            models=native.models,
            arena_bytes=native.arena_bytes,
            ready_us=native.ready_us,
            slots=native.slots,
            slot_classes=tuple(
                SlotClass(entry.slot_bytes, entry.slot_count)
                for entry in native.slot_classes[: native.slot_class_count]
            ),
            worker_cpus=tuple(native.worker_cpus[: native.workers]),
            io_backend=native.io_backend.decode("utf-8", "replace"),
            io_detail=native.io_detail.decode("utf-8", "replace"),
            ort_version=native.ort_version.decode("utf-8", "replace"),
            stats_path=native.stats_path.decode("utf-8", "replace"),
            nodes=tuple(native.nodes.decode("utf-8", "replace").splitlines()),
            notes=tuple(native.notes.decode("utf-8", "replace").splitlines()),
        )

    def describe(self) -> dict[str, Any]:
        """Reads the models as the wire's describe reply gives them.

        Returns:
            "server" and "models", see docs/PROTOCOL.md.

        Source:
            lumen_describe
        """
        document: dict[str, Any] = orjson.loads(self._text(self._library.lumen_describe))
        return document

    def plan(self, root: str = "") -> list[str]:
        """Says which core each thread gets in which node, and why; before start only.

        Args:
            root: where /proc and /sys are found; empty for this machine's.

        Returns:
            Lines; those of a node's threads begin with two spaces.

        Raises:
            EngineError: engine.cores names cores that this process may not use there.

        Source:
            lumen_plan
        """
        return self._text(self._library.lumen_plan, os.fsencode(root)).decode().splitlines()

    def _text(self, function: Any, *arguments: Any) -> bytes:
        """What a function of the library writes, whatever its length."""
        handle = self._open_handle()
        capacity = 64 << 10
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            length = self._check(function(handle, *arguments, buffer, capacity))
            if length <= capacity:
                return buffer.raw[:length]
            capacity = length

    def reload(self, config: Config) -> None:
        """Applies keys, hosts and rates, and nothing else; the models stay those that were added.

        Args:
            config: checked settings.

        Raises:
            EngineError: they cannot be applied; nothing has changed.

        Source:
            lumen_reload
        """
        by_index = {index: name for name, index in self._indexes.items()}
        names = [by_index.get(index, "") for index in range(max(by_index, default=-1) + 1)]
        native = native_config(config, Path("unused"), names)
        served = config.served()
        models = (structs.LumenModelConfig * len(served))(
            *(native_model(model, Path("unused"), None, None) for model in served)
        )
        self._check(
            self._library.lumen_reload(
                self._open_handle(), ctypes.byref(native), models, len(models)
            )
        )

    def reopen_files(self, config: Config) -> None:
        """Has the telemetry file and the access log opened again soon; `news` reports a failure.

        Args:
            config: its log.format is the access log's from now on.

        Source:
            lumen_reopen
        """
        self._check(
            self._library.lumen_reopen(self._open_handle(), int(config.log.format == "json"))
        )

    def news(self) -> str:
        """The newest message of the engine's threads since the last call; "" if there is none.

        Source:
            lumen_news
        """
        buffer = ctypes.create_string_buffer(1024)
        self._check(self._library.lumen_news(self._open_handle(), buffer, len(buffer)))
        return buffer.value.decode("utf-8", "replace")

    def heartbeat(self) -> bool:
        """Whether every I/O thread has run since the last call that returned True; asks again.

        Source:
            lumen_heartbeat
        """
        result = self._library.lumen_heartbeat(self._open_handle())
        return bool(result != structs.E_AGAIN and self._check(result) == 0)

    def set_metrics_port(self, port: int) -> None:
        """Sets, before the start, the metrics port that the page at / names.

        Args:
            port: 1..65535, or 0 for none.

        Source:
            lumen_set_metrics_port
        """
        handle = self._open_handle()
        self._check(self._library.lumen_set_metrics_port(handle, port))

    def open_errands(self, kinds: Iterable[str], upload_bytes: int = 0) -> None:
        """Has requests of some kinds answered by this program; before start only.

        Args:
            kinds: of structs.ERRANDS.
            upload_bytes: that a call which loads a model may have.

        Source:
            lumen_open_errands
        """
        bits = sum(1 << structs.ERRANDS.index(kind) for kind in set(kinds))
        self._check(
            self._library.lumen_open_errands(
                self._open_handle(), bits, u64("upload_bytes", upload_bytes)
            )
        )

    def next_errand(self, timeout_s: float) -> Errand | None:
        """The oldest request that waits; None when none came. One thread alone may ask.

        Args:
            timeout_s: the longest wait; seconds.

        Source:
            lumen_next_errand
        """
        native = structs.LumenErrand()
        result = self._library.lumen_next_errand(
            self._open_handle(), u32("timeout_s", int(timeout_s * 1000)), ctypes.byref(native)
        )
        if result == structs.E_AGAIN:
            return None
        self._check(result)
        kind = structs.ERRANDS[native.kind]
        if native.body_bytes > _COPIED_BYTES_MAX:
            place = ctypes.c_void_p.from_buffer(native, structs.LumenErrand.body.offset).value
            held = (ctypes.c_char * native.body_bytes).from_address(place or 0)
            return Errand(native.id, kind, native.name.decode(), memoryview(held).cast("B"))
        body = native.body or b""
        # ctypes reads up to a NUL, which no JSON holds.
        whole = len(body) == native.body_bytes
        return Errand(native.id, kind, native.name.decode(), body if whole else b"\0")

    def finish_errand(self, errand: Errand, code: int, body: bytes = b"") -> None:
        """Answers a request; any thread, once.

        Args:
            errand: of next_errand.
            code: of HTTP.
            body: JSON, or nothing.

        Source:
            lumen_finish_errand
        """
        self._check(
            self._library.lumen_finish_errand(
                self._open_handle(), errand.id, u32("code", code), body, u32("body", len(body))
            )
        )

    def hold_ready(self, hold: bool) -> None:
        """Says that the server is not ready, or is; it serves in either case.

        Args:
            hold: not ready.

        Source:
            lumen_hold_ready
        """
        self._check(self._library.lumen_hold_ready(self._open_handle(), int(hold)))

    def unready(self) -> None:
        """Turns readiness off; the server goes on serving.

        Source:
            lumen_unready
        """
        self._check(self._library.lumen_unready(self._open_handle()))

    def stop(self, drain_s: float) -> None:
        """Begins the drain and returns at once; may be called again with a shorter time.

        Args:
            drain_s: how long requests in flight may take to finish; seconds, 0 to 4 million.

        Source:
            lumen_stop
        """
        self._check(
            self._library.lumen_stop(self._open_handle(), u32("drain_s", int(drain_s * 1000)))
        )

    def wait(self, timeout_s: float) -> bool:
        """Waits for all threads to end.

        Args:
            timeout_s: the longest wait; seconds, 0 only looks.

        Returns:
            True when they have ended, False when the time ran out first.

        Source:
            lumen_wait
        """
        result = self._library.lumen_wait(
            self._open_handle(), u32("timeout_s", int(timeout_s * 1000))
        )
        if result == structs.E_AGAIN:
            return False
        self._check(result)
        return True

    def close(self) -> None:
        """Ends all threads and frees everything; may be called twice.

        In a forked child it does nothing: threads, sockets and the statistics are the parent's.

        Source:
            lumen_close
        """
        # __del__ also comes here when __init__ failed before the attribute was set.
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None and self._process == os.getpid():
            self._library.lumen_close(handle)

    def _open_handle(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise EngineError("The engine is closed.", structs.E_INVALID)
        if self._process != os.getpid():
            raise EngineError("The engine runs in the process that opened it.", structs.E_INVALID)
        return self._handle

    def _check(self, result: int) -> int:
        """Turns a negative result into the library's own sentence."""
        if result < 0:
            sentence = self._library.lumen_last_error() or b""
            name = structs.ERROR_NAMES.get(result, str(result))
            text = sentence.decode("utf-8", "replace") or f"The engine refused ({name})."
            raise EngineError(text, result)
        return result


def serve_process(place: ModelProcess, runtime: Path, native: structs.LumenModelConfig) -> None:
    """In the process of a model: runs it for the server, and does not return.

    Args:
        place: where its requests are.
        runtime: libonnxruntime.so.
        native: the model.

    Raises:
        EngineError: it cannot begin.
        LibraryError: the C library is missing or of another version.

    Source:
        lumen_serve_process
    """
    loaded = library.load()
    fields = {name: getattr(place, name) for name in ModelProcess.__slots__}
    given = structs.LumenProcess(**fields)
    code = loaded.lumen_serve_process(
        ctypes.byref(given), os.fsencode(runtime), ctypes.byref(native)
    )
    raise EngineError((loaded.lumen_last_error() or b"").decode("utf-8", "replace"), code)
