"""The metrics of a server, for Prometheus: Triton's names, and Lumen's own with exact histograms.

Rendered by metrics_server.py on its threads, from the statistics file, when somebody asks: nothing
is counted here and no worker is disturbed. Label sets are fixed: models come from the settings,
everything else from this file. Importing it takes prometheus_client, so the server does so late.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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

from lumen_uring.metrics_server import Facts
from lumen_uring.ring.histogram import Histogram, bucket_of, bucket_range
from lumen_uring.ring.stats import Snapshot

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_BOUNDS: Final = 35  # from 10 µs to 10 s, each 1.5 times the one before
_FIRST_NS: Final = 10_000
_LAST_NS: Final = 10_000_000_000
_STAGES: Final = ("receive", "queue", "preprocess", "infer", "send", "total")

# Triton's counters have no _total, which prometheus_client gives every counter. They leave it as
# "unknown" (which is what they are to OpenMetrics) and become counters in the older text format.
_TRITON_TYPE: Final = re.compile(rb"^(# TYPE nv_inference_\w+) untyped$", re.MULTILINE)

# Triton's name, its help, and the model's counter behind it, divided by the last number.
_TRITON: Final = (
    ("request_success", "Number of successful inference requests, all batch sizes", "ok", 1),
    ("count", "Number of inferences performed (a batch of n counts n)", "rows", 1),
    ("exec_count", "Number of model executions performed", "runs", 1),
    ("request_duration_us", "Cumulative inference request duration in microseconds", "ok_ns", 1000),
    (
        "queue_duration_us",
        "Cumulative inference queuing duration in microseconds",
        "queue_ns",
        1000,
    ),
    (
        "compute_input_duration_us",
        "Cumulative compute input duration in microseconds",
        "preprocess_ns",
        1000,
    ),
    (
        "compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds",
        "infer_ns",
        1000,
    ),
    (
        "compute_output_duration_us",
        "Cumulative compute output duration in microseconds",
        "send_ns",
        1000,
    ),
)
_FAILURES: Final = (
    ("REJECTED", ("refused", "expired")),
    ("CANCELED", ("gone",)),
    ("BACKEND", ("failed",)),
    ("OTHER", ("bad",)),
)
_TAKEN: Final = ("ok", "failed", "expired", "gone")

# Lumen's counters: name, help, the label's name, and for each of its values the words it sums.
_Words = tuple[tuple[str, str], ...]
_COUNTERS: Final[tuple[tuple[str, str, str, tuple[tuple[str, _Words], ...]], ...]] = (
    (
        "lumen_protocol_requests",
        "Requests whose header was read whole, by protocol",
        "protocol",
        (
            ("native", (("io", "native_requests"),)),
            ("http", (("io", "http_requests"),)),
        ),
    ),
    (
        "lumen_requests_rejected",
        "Requests answered with a refusal that says to come back otherwise, by reason",
        "reason",
        (
            ("unauthorised", (("io", "requests_unauthorised"),)),
            ("rate_limited", (("io", "requests_limited"),)),
            ("deadline", (("worker", "requests_expired"),)),
        ),
    ),
    (
        "lumen_connections",
        "Connections, by what happened to them",
        "event",
        tuple(
            (event, (("io", f"connections_{event}"),))
            for event in ("accepted", "closed", "refused", "evicted")
        ),
    ),
    (
        "lumen_network_bytes",
        "Bytes received from and sent to clients",
        "direction",
        (
            ("in", (("io", "bytes_in"),)),
            ("out", (("io", "bytes_out"), ("worker", "bytes_out"))),
        ),
    ),
    (
        "lumen_runs",
        "Calls of ONNX Runtime's Run, for one request or for several",
        "kind",
        (("all", (("worker", "runs"),)), ("batch", (("worker", "batches"),))),
    ),
    (
        "lumen_events",
        "What slows a request down or costs its trace, each time it happened",
        "event",
        (
            ("connection_unparked", (("io", "connections_unparked"),)),
            ("slot_wait", (("io", "slot_waits"),)),
            ("body_wait", (("io", "body_waits"),)),
            ("header_buffer_starved", (("io", "header_buffers_starved"),)),
            ("reply_queued", (("io", "replies_queued"),)),
            ("ring_overflow", (("io", "ring_overflows"),)),
            ("worker_sleep", (("worker", "sleeps"),)),
            ("batch_failed", (("worker", "batches_failed"),)),
            ("trace_dropped", (("worker", "traces_dropped"),)),
        ),
    ),
)
_GAUGES: Final = (
    ("lumen_connections_open", "Connections open now", "connections_open"),
    ("lumen_connections_parked", "Of them idle, kept without a descriptor", "connections_parked"),
    ("lumen_slots_in_use", "Slots of the arena in use now", "slots_in_use"),
    ("lumen_requests_admitted", "Requests that hold a slot now", "in_flight"),
)


class ServerCollector(Collector):
    """Makes the metrics of one reading.

    Args:
        source: takes a reading; may raise StatsError.
        facts: of the server.
    """

    def __init__(self, source: Callable[[], Snapshot], facts: Facts) -> None:
        self._source = source
        self._facts = facts
        self._cpu = _CpuMeter()

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client for each page."""
        snapshot = self._source()
        yield from _triton(snapshot)
        yield from self._machine()
        yield from _account(snapshot)
        yield from _counters(snapshot)
        yield _durations(snapshot)
        yield from self._server(snapshot)

    def _machine(self) -> Iterator[Metric]:
        total, used = memory_bytes()
        for name, text, value in (
            ("utilization", "CPU utilization rate [0.0 - 1.0]", self._cpu.utilization()),
            ("memory_total_bytes", "CPU total memory (RAM), in bytes", total),
            ("memory_used_bytes", "CPU used memory (RAM), in bytes", used),
        ):
            yield GaugeMetricFamily(f"nv_cpu_{name}", text, value)

    def _server(self, snapshot: Snapshot) -> Iterator[Metric]:
        facts = self._facts
        for name, text, value in (
            ("lumen_ready", "1 while requests are served", float(snapshot.state == "ready")),
            ("lumen_workers", "Worker threads", facts.workers),
            ("lumen_io_threads", "I/O threads", facts.io_threads),
            ("lumen_slots", "Slots of the arena", facts.slots),
        ):
            yield GaugeMetricFamily(name, text, value)
        build = {"version": facts.version, "onnxruntime": facts.ort_version}
        yield InfoMetricFamily("lumen_build", "What serves here", build)


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
    wanted = [part.split(";")[0].strip() for part in accept.lower().split(",")]
    if "application/openmetrics-text" in wanted:
        return OPENMETRICS, openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
    text: bytes = generate_latest(registry)
    return TEXT, _TRITON_TYPE.sub(rb"\1 counter", text)


def _triton(snapshot: Snapshot) -> Iterator[Metric]:
    for name, text, word, divisor in _TRITON:
        family = Metric(f"nv_inference_{name}", text, "unknown")
        for model, values in snapshot.models.items():
            labels = {"model": model, "version": "1"}
            family.add_sample(family.name, labels, values.get(word, 0) // divisor)
        yield family
    failures = Metric(
        "nv_inference_request_failure", "Number of failed inference requests", "unknown"
    )
    pending = GaugeMetricFamily(
        "nv_inference_pending_request_count",
        "Number of requests handed to the workers and not yet answered, per model",
        labels=("model", "version"),
    )
    for model, values in snapshot.models.items():
        for reason, words in _FAILURES:
            failures.add_sample(
                failures.name,
                {"model": model, "version": "1", "reason": reason},
                sum(values.get(word, 0) for word in words),
            )
        taken = sum(values.get(word, 0) for word in _TAKEN)
        # The words are not read at one moment: a request may be answered between two of them.
        pending.add_metric((model, "1"), max(0, values.get("queued", 0) - taken))
    yield failures
    yield pending


def _account(snapshot: Snapshot) -> Iterator[Metric]:
    """Every request's end: accepted = ok + error + shed + client_gone, but for those in flight."""
    io, worker = snapshot.counters.get("io", {}), snapshot.counters.get("worker", {})
    ends = {
        "ok": io.get("requests_ok", 0) + worker.get("requests_ok", 0),
        "error": io.get("requests_error", 0) + worker.get("requests_error", 0),
        "shed": io.get("requests_refused", 0) + worker.get("requests_expired", 0),
        "client_gone": io.get("requests_gone", 0) + worker.get("requests_gone", 0),
    }
    # The I/O threads' words are read first: what came and went since is accepted all the same.
    accepted = max(io.get("requests", 0), sum(ends.values()))
    yield CounterMetricFamily(
        "lumen_requests_accepted", "Requests whose header was read whole", accepted
    )
    family = CounterMetricFamily(
        "lumen_requests", "Requests by how they ended; each ends once", labels=("outcome",)
    )
    for outcome, value in ends.items():
        family.add_metric((outcome,), value)
    yield family
    yield GaugeMetricFamily(
        "lumen_requests_in_flight",
        "Requests accepted whose end is not known yet",
        accepted - sum(ends.values()),
    )


def _counters(snapshot: Snapshot) -> Iterator[Metric]:
    for name, text, label, values in _COUNTERS:
        family = CounterMetricFamily(name, text, labels=(label,))
        for value, words in values:
            total = sum(snapshot.counters.get(role, {}).get(word, 0) for role, word in words)
            family.add_metric((value,), total)
        yield family
    for name, text, word in _GAUGES:
        yield GaugeMetricFamily(name, text, snapshot.gauges.get("io", {}).get(word, 0))
    last = GaugeMetricFamily(
        "lumen_model_last_answer_seconds",
        "Unix time of the model's last answer, 0 before the first",
        labels=("model",),
    )
    for model, values_of in snapshot.models.items():
        last.add_metric((model,), values_of.get("last_ms", 0) / 1000)
    yield last


def _durations(snapshot: Snapshot) -> Metric:
    family = HistogramMetricFamily(
        "lumen_request_duration_seconds",
        "Time a request spent in each stage, of all models",
        labels=("stage",),
    )
    for stage in _STAGES:
        histogram = snapshot.histograms.get(stage)
        if histogram is not None:
            family.add_metric((stage,), *_buckets(histogram))
    return family


def _buckets(histogram: Histogram) -> tuple[Sequence[tuple[str, float]], float]:
    """Cumulative counts and the sum in seconds. The bounds are edges of the exact buckets, so that
    the counts are exact too."""
    ends, midpoints_s = _layout(len(histogram.counts), histogram.sub_bits, histogram.unit_bits)
    cumulative = np.cumsum(histogram.counts, dtype=np.uint64)
    buckets = [(text, float(cumulative[bucket - 1])) for text, bucket in ends]
    buckets.append(("+Inf", float(cumulative[-1])))
    return buckets, float(np.dot(histogram.counts.astype(np.float64), midpoints_s))


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


class _CpuMeter:
    """How busy the machine's processors were since the last question."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._last = self._read()
        self._value = 0.0

    def utilization(self) -> float:
        """0..1; the last value again where no time has passed."""
        total, idle = self._read()
        span = total - self._last[0]
        if span > 0:
            self._value = max(0.0, min(1.0, 1 - (idle - self._last[1]) / span))
            self._last = (total, idle)
        return self._value

    def _read(self) -> tuple[int, int]:
        """All time and idle time, in ticks; proc(5), /proc/stat."""
        try:
            words = self._stat.read_text("ascii").split("\n", 1)[0].split()[1:9]
            ticks = [int(word) for word in words]
        except (OSError, ValueError):
            return 0, 0
        return sum(ticks), sum(ticks[3:5])


def memory_bytes(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """The machine's memory, and how much of it is not to be had.

    Args:
        meminfo: the kernel's list.

    Returns:
        Bytes; 0 and 0 where they cannot be read.
    """
    try:
        lines = meminfo.read_text("ascii").splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
        return values["MemTotal"], values["MemTotal"] - values["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return 0, 0
