"""The facts of a running server that its metrics page shows and that never change.

Made by server.py once the engine has started, read by the metrics page's thread.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """Versions of Lumen and ONNX Runtime, the numbers of workers, I/O threads and slots, and for
    each model its name and its execution providers."""

    version: str
    ort_version: str
    workers: int
    io_threads: int
    slots: int
    providers: tuple[tuple[str, tuple[str, ...]], ...] = ()
