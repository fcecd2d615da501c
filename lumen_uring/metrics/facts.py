"""The facts of a running server that its metrics page shows beside the statistics file.

Made by server.py once the engine has started, read by the metrics page's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lumen_uring.control.states import Row
from lumen_uring.guard import Guard


@dataclass(frozen=True, slots=True)
class Facts:
    """Versions of Lumen and ONNX Runtime, the numbers of workers, I/O threads and slots, for each
    model of the start its name and its execution providers, what says the states of all and when
    certificates end, and the guard of the server's threads."""

    version: str
    ort_version: str
    workers: int
    io_threads: int
    slots: int
    providers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    states: Callable[[], Sequence[Row]] = tuple
    certificates: Callable[[], Sequence[tuple[str, int]]] = tuple
    guard: Guard = field(default_factory=lambda: Guard(lambda _level, _text: None))
