"""The metrics of a server, for Prometheus: Triton's names, and Lumen's own with exact histograms.

Called by metrics/server.py on its threads at each scrape. It reads the statistics file, counts
nothing itself and disturbs no worker. Label sets are fixed: models come from the settings, all
other labels from metrics/words.py. It imports prometheus_client, so the server imports it late.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from lumen_uring.control import states
from lumen_uring.metrics import budgets, load, machine, shadows, triton, words
from lumen_uring.metrics.exemplars import ALL_MODELS, Exemplars
from lumen_uring.metrics.facts import Facts
from lumen_uring.metrics.machine import CpuMeter
from lumen_uring.ring.histogram import Histogram, bucket_of, bucket_range
from lumen_uring.ring.snapshot import EXPERT, Snapshot

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# A bound in seconds, how many took less, and one of those that are between it and the one before.
_Bucket = tuple[str, float] | tuple[str, float, Exemplar]

_BOUNDS: Final = 35  # from 10 µs to 10 s, each 1.5 times the one before
_FIRST_NS: Final = 10_000
_LAST_NS: Final = 10_000_000_000
_ALWAYS_SHOWN_MAX: Final = 64  # models
# A page may hold the histograms of many models, so these have only two bounds per power of two.
_MODEL_FIRST_NS: Final = 1 << 14  # 16 µs
_MODEL_LAST_NS: Final = 1 << 33  # 8.6 s
_MODEL_BOUNDS_PER_OCTAVE: Final = 2


class ServerCollector(Collector):
    """Makes the metrics of one reading.

    Args:
        source: takes a reading; may raise StatsError.
        facts: of the server.
    """

    def __init__(self, source: Callable[[], Snapshot], facts: Facts) -> None:
        self._source = source
        self._facts = facts
        self._cpu = CpuMeter()

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client for each page."""
        snapshot = _of_those_asked(self._source())
        yield from triton.collect(snapshot)
        yield from machine.collect(self._cpu)
        yield from _account(snapshot)
        yield from _counters(snapshot)
        yield _experts(snapshot)
        yield from shadows.collect(snapshot)
        yield _durations(snapshot, self._facts.exemplars)
        yield _model_durations(snapshot, self._facts.exemplars)
        yield from self._server(snapshot)
        yield from load.collect(self._facts.load)
        yield _expiries(self._facts)
        yield from budgets.collect(self._facts.budgets())

    def _server(self, snapshot: Snapshot) -> Iterator[Metric]:
        facts = self._facts
        workers, slots = facts.workers_and_slots()
        for name, text, value in (
            (
                "lumen_ready",
                "1 while the server serves requests, 0 while it starts or drains",
                float(snapshot.state == "ready"),
            ),
            (
                "lumen_worker_hangs",
                "1 while a model has run for longer than server.hang_seconds, else 0",
                # Every I/O thread watches all workers: their sum would count one several times.
                float(snapshot.gauges.get("io", {}).get("worker_hangs", 0) > 0),
            ),
            ("lumen_workers", "Worker threads, which run the models", workers),
            ("lumen_io_threads", "I/O threads, which own the connections", facts.io_threads),
            (
                "lumen_slots",
                "Number of slots; a slot is the memory of one request and its reply",
                slots,
            ),
        ):
            yield GaugeMetricFamily(name, text, value)
        family = GaugeMetricFamily(
            "lumen_model_provider",
            "1 for each execution provider that computes a model, cpu also where it only may",
            labels=("model", "provider"),
        )
        for model, names in facts.providers:
            for name in names:
                family.add_metric((model, name), 1)
        yield family
        states_of = GaugeMetricFamily(
            "lumen_model_state",
            "1 for the state that a version of a model is in, as the repository's index names it",
            labels=("model", "version", "state"),
        )
        for model, version, state in facts.states():
            for one in states.ALL:
                states_of.add_metric((model, str(version), one), float(one == state))
        yield states_of
        failures = CounterMetricFamily(
            "lumen_part_failures",
            "Exceptions in a part of the Python beside the engine, which goes on after each",
            labels=("part",),
        )
        alive = GaugeMetricFamily(
            "lumen_part_alive",
            "0 for a part of the Python beside the engine whose thread has ended, else 1",
            labels=("part",),
        )
        for part, count, is_alive in facts.guard.rows():
            failures.add_metric((part,), count)
            alive.add_metric((part,), float(is_alive))
        yield failures
        yield alive
        build = {"version": facts.version, "onnxruntime": facts.ort_version}
        yield InfoMetricFamily("lumen_build", "Versions of Lumen and of ONNX Runtime", build)


def _expiries(facts: Facts) -> Metric:
    text = "When a certificate of server.tls ends, unix time"
    name = "lumen_certificate_expiry_timestamp_seconds"
    ends = GaugeMetricFamily(name, text, labels=("certificate",))
    for source, when in facts.certificates():
        ends.add_metric((source,), when)
    return ends


def make_registry(source: Callable[[], Snapshot], facts: Facts) -> CollectorRegistry:
    """Collects the metrics of a server in whose process this runs.

    Args:
        source: takes a reading of its statistics.
        facts: of the server.
    """
    registry = CollectorRegistry()
    registry.register(ServerCollector(source, facts))
    ProcessCollector(registry=registry)
    return registry


def media_type(accept: str) -> str:
    """The content type of the page for a request's Accept header, which may be empty."""
    wanted = [part.split(";")[0].strip() for part in accept.lower().split(",")]
    return OPENMETRICS if "application/openmetrics-text" in wanted else TEXT


def render(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """Writes the page.

    Args:
        registry: as make_registry gives it.
        accept: the request's Accept header, may be empty.

    Returns:
        The content type and the text.

    Raises:
        StatsError: the statistics cannot be read.
    """
    if media_type(accept) == OPENMETRICS:
        return OPENMETRICS, openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
    text: bytes = generate_latest(registry)
    return TEXT, words.TRITON_TYPE.sub(rb"\1 counter", text)


def _of_those_asked(snapshot: Snapshot) -> Snapshot:
    """Without the models that nobody has asked for yet, where there are many: a page with all of
    theirs would take seconds to write."""
    if len(snapshot.models) <= _ALWAYS_SHOWN_MAX:
        return snapshot
    asked = {model for model, values in snapshot.models.items() if any(values.values())}
    return replace(
        snapshot,
        models={name: of for name, of in snapshot.models.items() if name in asked},
        model_histograms={
            name: of for name, of in snapshot.model_histograms.items() if name in asked
        },
    )


def _sum(snapshot: Snapshot, of: words.Words) -> int:
    return sum(snapshot.counters.get(role, {}).get(word, 0) for role, word in of)


def _account(snapshot: Snapshot) -> Iterator[Metric]:
    """Each request's outcome: accepted = ok + error + shed + client_gone + in flight."""
    ends = {outcome: _sum(snapshot, of) for outcome, of in words.OUTCOMES}
    # A request that came and ended between the two reads is in the sum, and not yet in `requests`.
    accepted = max(snapshot.counters.get("io", {}).get("requests", 0), sum(ends.values()))
    yield CounterMetricFamily(
        "lumen_requests_accepted", "Requests whose complete header was read", accepted
    )
    family = CounterMetricFamily(
        "lumen_requests",
        "Requests by outcome; each request has exactly one. shed: the server refused a valid "
        "request (overloaded, deadline, rate_limited, draining). error: the server refused it for "
        "another reason, or the model failed. client_gone: the client disconnected first",
        labels=("outcome",),
    )
    for outcome, value in ends.items():
        family.add_metric((outcome,), value)
    yield family
    yield GaugeMetricFamily(
        "lumen_requests_in_flight",
        "Accepted requests that have no outcome yet",
        accepted - sum(ends.values()),
    )


def _counters(snapshot: Snapshot) -> Iterator[Metric]:
    for name, text, label, values in words.COUNTERS:
        family = CounterMetricFamily(name, text, labels=(label,))
        for value, of in values:
            family.add_metric((value,), _sum(snapshot, of))
        yield family
    for name, text, role, word in words.GAUGES:
        yield GaugeMetricFamily(name, text, snapshot.gauges.get(role, {}).get(word, 0))
    for name, text, word, parts in words.MODEL_GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=("model",))
        for model, values_of in snapshot.models.items():
            gauge.add_metric((model,), values_of.get(word, 0) / parts)
        yield gauge
    for name, text, word in words.MODEL_COUNTERS:
        counter = CounterMetricFamily(name, text, labels=("model",))
        for model, values_of in snapshot.models.items():
            counter.add_metric((model,), values_of.get(word, 0))
        yield counter


def _experts(snapshot: Snapshot) -> Metric:
    family = CounterMetricFamily(
        "lumen_expert_requests",
        "Answered requests of a virtual model, by the model that ran in its place",
        labels=("model", "expert"),
    )
    for model, values in snapshot.models.items():
        for name, value in values.items():
            if name.startswith(EXPERT):
                family.add_metric((model, name.removeprefix(EXPERT)), value)
    return family


def _durations(snapshot: Snapshot, exemplars: Exemplars) -> Metric:
    family = HistogramMetricFamily(
        "lumen_request_duration_seconds",
        "Seconds that an answered request spent in each stage, over all models. "
        "total: from the first byte of the request to the last byte of the reply",
        labels=("stage",),
    )
    for stage in words.STAGES:
        histogram = snapshot.histograms.get(stage)
        if histogram is not None:
            ends, _middles = _layout(*_layout_of(histogram))
            buckets, sum_s = _buckets(histogram, ends)
            shown = _with_exemplars(buckets, exemplars, ALL_MODELS, stage)
            family.add_metric((stage,), shown, sum_s)
    return family


def _model_durations(snapshot: Snapshot, exemplars: Exemplars) -> Metric:
    family = HistogramMetricFamily(
        "lumen_model_duration_seconds",
        "Seconds that an answered request waited for a worker (queue), ran in the model (infer) "
        "and took from its first byte to the last byte of the reply (total), by model",
        labels=("model", "stage"),
    )
    for model, of_stages in snapshot.model_histograms.items():
        for stage in words.MODEL_STAGES:
            histogram = of_stages.get(stage)
            if histogram is not None:
                ends = _model_bounds(*_layout_of(histogram))
                buckets, sum_s = _buckets(histogram, ends)
                shown = _with_exemplars(buckets, exemplars, model, stage)
                family.add_metric((model, stage), shown, sum_s)
    return family


def _layout_of(histogram: Histogram) -> tuple[int, int, int]:
    return len(histogram.counts), histogram.sub_bits, histogram.unit_bits


def _buckets(
    histogram: Histogram, ends: Sequence[tuple[str, int]]
) -> tuple[Sequence[tuple[str, float]], float]:
    """Cumulative counts, and the sum in seconds; each bound is the edge of a bucket, so the counts
    are exact."""
    cumulative = np.cumsum(histogram.counts, dtype=np.uint64)
    buckets = [(text, float(cumulative[bucket - 1])) for text, bucket in ends]
    buckets.append(("+Inf", float(cumulative[-1])))
    if histogram.sum_ns is not None:
        return buckets, histogram.sum_ns / 1e9
    _ends, middles_s = _layout(*_layout_of(histogram))
    return buckets, float(np.dot(histogram.counts.astype(np.float64), middles_s))


def _with_exemplars(
    buckets: Sequence[tuple[str, float]], exemplars: Exemplars, model: str, stage: str
) -> Sequence[_Bucket]:
    """Each bucket with a recorded request that is in it, where there is one."""
    shown: list[_Bucket] = []
    low_s, below = 0.0, 0.0
    for text, count in buckets:
        high_s = float(text)
        found = exemplars.between(model, stage, low_s, high_s) if count > below else None
        if found is None:
            shown.append((text, count))
        else:
            labels = {"trace_id": found.trace, "span_id": found.span}
            shown.append((text, count, Exemplar(labels, found.took_s, found.noted_s)))
        low_s, below = high_s, count
    return shown


@functools.lru_cache(maxsize=8)
def _layout(
    count: int, sub_bits: int, unit_bits: int
) -> tuple[tuple[tuple[str, int], ...], npt.NDArray[np.float64]]:
    """For a layout: each bound with the number of buckets below it, and the buckets' middles."""
    ends: list[tuple[str, int]] = []
    ratio = (_LAST_NS / _FIRST_NS) ** (1 / (_BOUNDS - 1))
    for index in range(_BOUNDS):
        wanted_ns = _FIRST_NS * ratio**index
        bucket = bucket_of(int(wanted_ns), sub_bits, unit_bits)
        low, width = bucket_range(bucket, sub_bits, unit_bits)
        below = bucket + (wanted_ns - low > width / 2)
        # A coarse layout has fewer edges than there are bounds.
        if 0 < below < count and (not ends or ends[-1][1] < below):
            edge_ns = bucket_range(below, sub_bits, unit_bits)[0]
            ends.append((repr(edge_ns / 1e9), below))
    ranges = [bucket_range(bucket, sub_bits, unit_bits) for bucket in range(count)]
    middles = np.array([(low + (width - 1) / 2) / 1e9 for low, width in ranges])
    return tuple(ends), middles


@functools.lru_cache(maxsize=8)
def _model_bounds(count: int, sub_bits: int, unit_bits: int) -> tuple[tuple[str, int], ...]:
    """Each bound of a model's histogram, with the number of buckets below it."""
    step = max(1, (1 << sub_bits) // _MODEL_BOUNDS_PER_OCTAVE)
    lows = [
        (bucket, bucket_range(bucket, sub_bits, unit_bits)[0]) for bucket in range(0, count, step)
    ]
    return tuple(
        (repr(low_ns / 1e9), bucket)
        for bucket, low_ns in lows
        if _MODEL_FIRST_NS <= low_ns <= _MODEL_LAST_NS
    )
