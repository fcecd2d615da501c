"""What an engine says of itself: its threads and memory, its models, its plan. A base of engine.py.

Called by the banner, by commands that look at a configuration, and by tests; never on a request's
path.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

import orjson

from lumen_uring.ring import structs
from lumen_uring.ring.handle import Handle


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
    tls_port: int = 0
    budgets_path: str = ""


class Description(Handle):
    """What an engine is, once it is open."""

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
            budgets_path=native.budgets_path.decode("utf-8", "replace"),
            tls_port=native.tls_port,
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
