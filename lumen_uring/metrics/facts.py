"""The facts of a running server that its metrics page shows beside the statistics file.

Made once the engine has started, read by the metrics page's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lumen_uring import __version__
from lumen_uring.control.states import Row
from lumen_uring.guard import Guard
from lumen_uring.metrics.exemplars import Exemplars
from lumen_uring.ring.budgets import Budget
from lumen_uring.ring.description import EngineInfo
from lumen_uring.ring.report import Load


@dataclass(frozen=True, slots=True)
class Facts:
    """What the metrics page says beside the figures.

    Versions of Lumen and ONNX Runtime, the numbers of workers, I/O threads and slots at the start
    and what says those of now, for each model of the start its name and its execution providers,
    what says the states of all and when certificates end, the guard of the server's threads, what
    has the budgets, recorded requests, and what says how loaded the server is.
    """

    version: str
    ort_version: str
    workers: int
    io_threads: int
    slots: int
    providers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    states: Callable[[], Sequence[Row]] = tuple
    certificates: Callable[[], Sequence[tuple[str, int]]] = tuple
    guard: Guard = field(default_factory=lambda: Guard(lambda _level, _text: None))
    budgets: Callable[[], Sequence[Budget]] = tuple
    exemplars: Exemplars = field(default_factory=Exemplars, compare=False)
    load: Callable[[], Load] = Load
    info: Callable[[], EngineInfo] | None = field(default=None, compare=False)

    def workers_and_slots(self) -> tuple[int, int]:
        """Those of now: both may change while the server runs."""
        now = self if self.info is None else self.info()
        return now.workers, now.slots


def facts_of(
    info: EngineInfo,
    description: dict[str, Any],
    states: Callable[[], Sequence[Row]],
    guard: Guard,
    expiries: Callable[[], Sequence[tuple[str, int]]] = tuple,
    budgets: Callable[[], Sequence[Budget]] = tuple,
    exemplars: Exemplars | None = None,
    load: Callable[[], Load] = Load,
    now: Callable[[], EngineInfo] | None = None,
) -> Facts:
    """The facts of an engine that has started.

    Args:
        info: what it is.
        description: of its models.
        states: says those of all models.
        guard: of the server's threads.
        expiries: says when certificates end.
        budgets: says what has them.
        exemplars: of its histograms.
        load: says how loaded it is.
        now: says what it is by now.
    """
    providers = tuple(
        (model["name"], tuple(model.get("providers", ()))) for model in description["models"]
    )
    return Facts(
        __version__,
        info.ort_version,
        info.workers,
        info.io_threads,
        info.slots,
        providers,
        states,
        expiries,
        guard,
        budgets,
        exemplars or Exemplars(),
        load,
        now,
    )
