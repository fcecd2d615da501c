"""What is counted of versions that run copies of requests (traffic.shadow), for Prometheus.

Called by metrics/values.py. Models without copies have no series.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from lumen_uring.ring.snapshot import Snapshot

_ENDS: Final = ("ok", "failed", "skipped", "unfit")
_ENDS_HELP: Final = (
    "Copies of requests by their end. ok: compared. failed: its Run failed. skipped: too few slots "
    "were free, or too many copies waited. unfit: not run, since the tensors or the pictures' "
    "settings are not those of the version that answered, or since no copy can be (experts, "
    "sequences, models with a process of their own, tensors in memory of the client)"
)
# Name, help, the model's figure, and how many of that are one of the metric's unit.
_COUNTERS: Final = (
    (
        "lumen_shadow_rows",
        "Rows of copies of requests that the version has run, to compare its answers with those "
        "that clients got",
        "shadow_rows",
        1,
    ),
    (
        "lumen_shadow_rows_apart",
        "Of these, rows with another class (the largest number of an output is elsewhere), label, "
        "string or whole number than in the client's answer",
        "shadow_apart",
        1,
    ),
    ("lumen_shadow_cpu_seconds", "CPU time that they took", "shadow_cpu_ns", 10**9),
)
_DIFFERENCE_HELP: Final = (
    "Largest difference between a floating-point number of the version's answers and the client's, "
    "since it was loaded; 1e9 for more, and where one is not a number"
)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """The metrics of one reading.

    Args:
        snapshot: the figures of the server.
    """
    found = {
        model: values
        for model, values in snapshot.models.items()
        if any(value for word, value in values.items() if word.startswith("shadow_"))
    }
    requests = CounterMetricFamily("lumen_shadow_requests", _ENDS_HELP, labels=("model", "result"))
    for model, values in found.items():
        for end in _ENDS:
            requests.add_metric((model, end), values.get(f"shadow_{end}", 0))
    yield requests
    for name, text, word, parts in _COUNTERS:
        counter = CounterMetricFamily(name, text, labels=("model",))
        for model, values in found.items():
            counter.add_metric((model,), values.get(word, 0) / parts)
        yield counter
    largest = GaugeMetricFamily("lumen_shadow_difference", _DIFFERENCE_HELP, labels=("model",))
    for model, values in found.items():
        largest.add_metric((model,), values.get("shadow_difference", 0) / 10**9)
    yield largest
