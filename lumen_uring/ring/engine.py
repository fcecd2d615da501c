"""The engine: the C library's server handle as a context manager.

Called by server.py and by tests, from one control thread (Python's main one). Every value is
range-checked before it crosses, since ctypes truncates silently. Nothing here is on a request's
path, and the handle is never used after close.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from lumen_uring.ring import library, onnxruntime_path, structs
from lumen_uring.ring.budgets import Budgets
from lumen_uring.ring.certificates import Tls
from lumen_uring.ring.config_struct import EnginePlace, native_config, native_model
from lumen_uring.ring.description import Description
from lumen_uring.ring.errands import Errands
from lumen_uring.ring.live_models import LiveModels
from lumen_uring.ring.model_structs import native_experts, native_steps
from lumen_uring.ring.processes import Isolated, Processes, isolated
from lumen_uring.ring.ranges import u32
from lumen_uring.ring.report import Report
from lumen_uring.ring.traces import Traces
from lumen_uring.ring.traffic import Traffic
from lumen_uring.ring.upstreams import Upstreams
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, ModelConfig
from lumen_uring.settings.schema import Config


class Engine(
    Budgets, Description, LiveModels, Errands, Processes, Report, Tls, Traces, Traffic, Upstreams
):
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
        self._places = {}
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
        tokenizer: Path | None = None,
    ) -> int:
        """Loads a model and one session per worker; before start only.

        Args:
            model: its settings; `path` there is not used.
            path: the ONNX or .ort file.
            cache_path: where the optimised graph is kept; None makes it anew at each start.
            labels: UTF-8, one class per line; None where there are none.
            engine: the native engine's file, or why there is none.
            tokenizer: as loading/tokenizer.py lays it out, of a model with `text`.

        Returns:
            The model's index on the wire.

        Raises:
            EngineError: the file is no model, or one that cannot be served.

        Source:
            lumen_add_model
        """
        native = native_model(model, path, cache_path, labels, engine, tokenizer)
        if model.isolation == "none":
            return self._add(native)
        apart = isolated(native, model, path, cache_path)
        index = self._add(native)
        self.isolated.append(apart)
        return index

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

    def reload(self, config: Config) -> None:
        """Applies keys, hosts, rates, fallbacks, budgets and traffic; the models stay as they are.

        Args:
            config: checked settings.

        Raises:
            EngineError: they cannot be applied; nothing has changed.

        Source:
            lumen_reload, lumen_set_budgets, lumen_set_fallbacks, lumen_set_traffic
        """
        native = native_config(config, Path("unused"))
        served = config.served()
        models = (structs.LumenModelConfig * len(served))(
            *(native_model(model, Path("unused"), None, None) for model in served)
        )
        self.set_budgets(config.budgets)
        self.set_fallbacks(config.fallbacks)
        self.set_traffic(config.traffic)
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
