"""What changes while the engine runs, models and workers: a base of engine.py.

Called by what keeps the list of models, from any one thread at a time or several: the C library
lets one change happen at a time. Nothing here is on a request's path.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from lumen_uring.ring import structs
from lumen_uring.ring.config_struct import EnginePlace, native_config, native_model
from lumen_uring.ring.handle import Handle
from lumen_uring.ring.model_structs import native_experts, native_steps
from lumen_uring.ring.processes import Isolated, isolated
from lumen_uring.ring.ranges import u32
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, ModelConfig
from lumen_uring.settings.schema import Config
from lumen_uring.settings.types import NAME_BYTES_MAX


class LiveModels(Handle):
    """What an engine that runs does with single models, and with its workers."""

    _indexes: dict[str, int]  # of each name that has a place

    def load(
        self,
        model: ModelConfig,
        path: Path,
        cache_path: Path | None = None,
        labels: bytes | None = None,
        engine: EnginePlace | None = None,
        tokenizer: Path | None = None,
        gently: bool = True,
        expect: Callable[[Isolated], AbstractContextManager[object]] = nullcontext,
    ) -> int:
        """Loads a model while the server runs: a new one, or in the place of the one of its name.

        Returns once new requests go to it. From any thread; other changes wait meanwhile.

        Args:
            model: its settings; `path` there is not used.
            path: the ONNX or .ort file.
            cache_path: where the optimised graph is kept; None makes it anew.
            labels: UTF-8, one class per line; None where there are none.
            engine: the native engine's file, or why there is none.
            tokenizer: as loading/tokenizer.py lays it out, of a model with `text`.
            gently: take only what CPU time nobody else wants (SCHED_IDLE).
            expect: has the process of an isolated model started meanwhile, by another thread.

        Returns:
            The model's place: that of its name as long as it is served, or nobody needs the place.

        Raises:
            EngineError: it cannot be served; everything is as it was.

        Source:
            lumen_load_model
        """
        native = native_model(model, path, cache_path, labels, engine, tokenizer)
        if model.isolation == "none":
            return self._load(native, gently)
        with expect(isolated(native, model, path, cache_path)):
            return self._load(native, gently)

    def load_experts(
        self,
        entry: ExpertsConfig,
        model: ModelConfig,
        indexes: Mapping[str, int],
        labels: bytes | None = None,
    ) -> int:
        """The same of a virtual model; see add_experts and load.

        Source:
            lumen_load_model
        """
        rule = native_experts(entry, indexes)
        return self._load(native_model(model, Path("unused"), None, labels, experts=rule), False)

    def load_ensemble(
        self,
        entry: EnsembleConfig,
        model: ModelConfig,
        indexes: Mapping[str, int],
        labels: bytes | None = None,
    ) -> int:
        """The same of an ensemble; see add_ensemble and load.

        Source:
            lumen_load_model
        """
        steps = native_steps(entry, indexes)
        return self._load(native_model(model, Path("unused"), None, labels, steps=steps), False)

    def indexes(self) -> dict[str, int]:
        """The places of the names that are served, and of those that went whose place is free."""
        return dict(self._indexes)

    def _load(self, native: structs.LumenModelConfig, gently: bool) -> int:
        index = ctypes.c_uint32()
        flags = structs.LOAD_GENTLY if gently else 0
        self._check(
            self._library.lumen_load_model(
                self._open_handle(), ctypes.byref(native), flags, ctypes.byref(index)
            )
        )
        indexes = {name: one for name, one in self._indexes.items() if one != index.value}
        self._indexes = {**indexes, native.name.decode(): index.value}
        return index.value

    def unload(self, name: str) -> None:
        """Takes a model out of service: new requests for it are refused, others are answered.

        Args:
            name: of a model that is served and is no expert of another.

        Raises:
            EngineError: there is no such model, or another one runs it.

        Source:
            lumen_unload_model
        """
        self._check(self._library.lumen_unload_model(self._open_handle(), name.encode()))

    def longest_idle(self, spared: list[str]) -> str | None:
        """The model that was asked for longest ago; None: there is none that may go.

        Args:
            spared: names of models that are not meant, nor are those that virtual models run.

        Source:
            lumen_longest_idle
        """
        names = (ctypes.c_char_p * (len(spared) + 1))(*(name.encode() for name in spared))
        found = ctypes.create_string_buffer(NAME_BYTES_MAX + 1)
        result = self._library.lumen_longest_idle(
            self._open_handle(), names, len(spared), found, len(found)
        )
        if result == structs.E_INVALID:
            return None
        self._check(result)
        return found.value.decode()

    def change_workers(self, config: Config) -> bool:
        """Puts thread_count, queue_type and allocator_type in force; other settings stay.

        Args:
            config: checked settings.

        Returns:
            Whether all threads have followed; False: one is in a Run of seconds, and will.

        Raises:
            EngineError: one of the three needs a restart, or more workers cannot come; none works.

        Source:
            lumen_change_workers
        """
        native = native_config(config, Path("unused"))
        result = self._library.lumen_change_workers(self._open_handle(), ctypes.byref(native))
        return bool(result != structs.E_AGAIN and self._check(result) == 0)

    def settle(self, timeout_s: float) -> bool:
        """Frees models that were replaced or unloaded, once their last requests are answered.

        Args:
            timeout_s: the longest wait for these; seconds, 0 only looks.

        Returns:
            Whether nothing is left of such models.

        Source:
            lumen_settle
        """
        result = self._library.lumen_settle(
            self._open_handle(), u32("timeout_s", int(timeout_s * 1000))
        )
        return bool(result != structs.E_AGAIN and self._check(result) == 0)
