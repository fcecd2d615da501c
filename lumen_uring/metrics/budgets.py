"""The metrics of budgets, for Prometheus; used by metrics/values.py alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from lumen_uring.ring.budgets import Budget


def collect(rows: Sequence[Budget]) -> Iterator[Metric]:
    """What keys and models may have in a minute or a day, and what they had.

    Args:
        rows: a reading.
    """
    owner = ("kind", "name")
    for what, text in (
        ("limit", "What a key or a model may have of requests or tokens in a minute or a day"),
        ("used", "The same as it was used in this minute or day; what is set aside counts"),
    ):
        gauge = GaugeMetricFamily(f"lumen_budget_{what}", text, labels=(*owner, "unit", "per"))
        for row in rows:
            values = row.limits if what == "limit" else row.used
            for name, value in values.items():
                unit, per = name.split("_per_")
                gauge.add_metric((row.kind, row.name, unit, per), value)
        yield gauge
    for what, text in (
        ("requests", "Requests of a key, or for a model, that has a budget"),
        ("tokens", "Tokens that their answers turned out to be"),
        ("refused", "Requests that would have been too much for the budget"),
    ):
        counter = CounterMetricFamily(f"lumen_budget_{what}", text, labels=owner)
        for row in rows:
            counter.add_metric((row.kind, row.name), getattr(row, what))
        yield counter
