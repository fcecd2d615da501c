"""The metrics that have Triton's names, with its labels `model` and `version`.

Called by metrics/values.py at each scrape. A model that is served one version at a time is counted
under its bare name, and as version 1 here.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from lumen_uring.metrics import words
from lumen_uring.ring.snapshot import Snapshot


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """The metrics of one reading; each pair of labels once in each of them.

    Args:
        snapshot: the reading.
    """
    models = _by_labels(snapshot)
    of_inference = [("nv_inference", *figure) for figure in words.TRITON]
    of_cache = [("nv_cache", *figure) for figure in words.TRITON_CACHE]
    for prefix, name, text, word, divisor in of_inference + of_cache:
        family = Metric(f"{prefix}_{name}", text, "unknown")
        for (base, version), values in models.items():
            labels = {"model": base, "version": version}
            family.add_sample(family.name, labels, values.get(word, 0) // divisor)
        yield family
    failures = Metric(
        "nv_inference_request_failure", "Number of failed inference requests", "unknown"
    )
    pending = GaugeMetricFamily(
        "nv_inference_pending_request_count",
        "Number of requests that wait for a worker or run in one, per model",
        labels=("model", "version"),
    )
    for (base, version), values in models.items():
        for reason, of_reason in words.TRITON_FAILURES:
            failures.add_sample(
                failures.name,
                {"model": base, "version": version, "reason": reason},
                sum(values.get(word, 0) for word in of_reason),
            )
        left = sum(values.get(word, 0) for word in words.LEFT)
        # The counters are read one after another; a request may end between two reads.
        pending.add_metric((base, version), max(0, values.get("queued", 0) - left))
    yield failures
    yield pending


def _by_labels(snapshot: Snapshot) -> dict[tuple[str, str], dict[str, int]]:
    """The counters by model and version. The names "m" and "m:1" have the same labels, where a
    server has served one version and serves several now: their counters are added, since
    Prometheus drops a page that has a series twice."""
    models: dict[tuple[str, str], dict[str, int]] = {}
    for model, values in snapshot.models.items():
        base, _, version = model.partition(":")
        of_labels = models.setdefault((base, version or "1"), {})
        for word, value in values.items():
            of_labels[word] = of_labels.get(word, 0) + value
    return models
