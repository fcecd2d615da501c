"""Models that processes of their own run: a base of engine.py, and what such a process calls.

Called by serving/processes.py, which starts them, and serving/isolated.py, which is one.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lumen_uring.errors import EngineError
from lumen_uring.ring import library, structs
from lumen_uring.ring.handle import Handle
from lumen_uring.ring.ranges import u32
from lumen_uring.settings.models import ModelConfig


@dataclass(frozen=True, slots=True)
class Isolated:
    """A model that a process of its own runs, and the files that it is opened from."""

    key: int  # by which the engine knows its process
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
    gently: int


_keys: Final = itertools.count(1)


def isolated(
    native: structs.LumenModelConfig, model: ModelConfig, path: Path, cache_path: Path | None
) -> Isolated:
    """Gives a model a key, before the engine gets it.

    Args:
        native: the model; its key is set.
        model: its settings.
        path: the file that it is opened from.
        cache_path: where its optimised graph is kept; None: nowhere.
    """
    native.process_key = next(_keys)
    # The file may have no name that lasts (zipmap.py), unlike its optimised graph.
    lasts = cache_path if path.is_relative_to("/proc") and cache_path else path
    return Isolated(native.process_key, model, lasts, cache_path)


class Processes(Handle):
    """What an engine knows of the processes of its models."""

    def next_process(self, key: int) -> ModelProcess | None:
        """What the next process of an isolated model needs; None while the last one is in use.

        Args:
            key: of the model's process.

        Raises:
            EngineError: there is no such model.

        Source:
            lumen_next_process
        """
        native = structs.LumenProcess()
        result = self._library.lumen_next_process(self._open_handle(), key, ctypes.byref(native))
        if result == structs.E_AGAIN:
            return None
        self._check(result)
        return ModelProcess(**{name: getattr(native, name) for name in ModelProcess.__slots__})

    def process_started(self, key: int, pid: int) -> None:
        """Says which process runs an isolated model from now on.

        Source:
            lumen_process_started
        """
        self._check(self._library.lumen_process_started(self._open_handle(), key, pid))

    def process_is_up(self, key: int) -> bool:
        """Whether an isolated model takes requests.

        Source:
            lumen_process_is_up
        """
        return self._check(self._library.lumen_process_is_up(self._open_handle(), key)) == 1

    def process_ended(self, key: int, end: int) -> None:
        """Says how the process of an isolated model ended, before it is reaped.

        Args:
            key: of the model's process.
            end: a signal, or 256 + the exit status.

        Source:
            lumen_process_ended
        """
        self._check(self._library.lumen_process_ended(self._open_handle(), key, u32("end", end)))


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
