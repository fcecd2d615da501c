"""Requests that stand for their bucket of a histogram on the metrics page: their traces.

serving/traces.py notes them as it exports their spans, metrics/values.py finds them for a page that
is asked for as OpenMetrics; each on its thread. It imports neither prometheus_client nor numpy: the
server does that late (metrics/server.py).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from lumen_uring.ring.traces import KINDS, LumenSpan

ALL_MODELS: Final = ""
_KEPT_MAX: Final = 1024  # of a model and a stage; the latest of them
_STAGES: Final = {
    "receive": "receive_ns",
    "queue": "queue_ns",
    "preprocess": "preprocess_ns",
    "infer": "infer_ns",
    "send": "send_ns",
    "total": "total_ns",
}


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A request of a trace."""

    trace: str
    span: str
    took_s: float
    noted_s: float  # unix time


class Exemplars:
    """The last recorded request of each model, stage and quarter of a power of two."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], dict[int, Exemplar]] = {}

    def note(self, span: LumenSpan) -> None:
        """Takes a request that was answered; others are in no histogram.

        Args:
            span: as the engine recorded it.
        """
        if span.status != 0 or span.kind != KINDS.index("run"):
            return
        trace, own = bytes(span.trace).hex(), f"{span.span:016x}"
        model, now_s = span.model.decode("utf-8", "replace"), time.time()
        with self._lock:
            for stage, field in _STAGES.items():
                took_ns = getattr(span, field)
                exemplar = Exemplar(trace, own, took_ns / 1e9, now_s)
                for name in (model, ALL_MODELS):
                    kept = self._kept.pop((name, stage), {})
                    kept[_quarter(took_ns)] = exemplar
                    self._kept[name, stage] = kept  # the one that was asked last is the last
            while len(self._kept) > _KEPT_MAX:  # a model that went, or comes again
                del self._kept[next(iter(self._kept))]

    def between(self, model: str, stage: str, low_s: float, high_s: float) -> Exemplar | None:
        """The last one that took at least `low_s` and less than `high_s`.

        Args:
            model: its name, or ALL_MODELS.
            stage: "queue", "total", ...
            low_s: seconds.
            high_s: seconds.
        """
        with self._lock:
            found = [
                one
                for one in self._kept.get((model, stage), {}).values()
                if low_s <= one.took_s < high_s
            ]
        return max(found, key=lambda one: one.noted_s, default=None)


def _quarter(ns: int) -> int:
    """Of a power of two, the one that `ns` is in: finer than the bounds of any histogram here."""
    octave = max(ns.bit_length(), 3)
    return octave << 2 | (ns >> (octave - 3) & 3)
