"""The metrics page on statistics built by hand; test_e2e_metrics.py has a real server."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import itertools
import json
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
import yaml
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families
from test_stats import build

from lumen_uring.errors import EngineError, MetricsError, StatsError
from lumen_uring.guard import Guard
from lumen_uring.metrics import http as metrics_http
from lumen_uring.metrics import server as metrics_server
from lumen_uring.metrics.agent import Agent
from lumen_uring.metrics.exemplars import ALL_MODELS, Exemplars
from lumen_uring.metrics.facts import Facts
from lumen_uring.metrics.http import CONNECTIONS_MAX
from lumen_uring.metrics.machine import CpuMeter, memory_bytes
from lumen_uring.metrics.server import MetricsServer
from lumen_uring.metrics.values import (
    OPENMETRICS,
    TEXT,
    _buckets,
    _layout,
    _model_bounds,
    make_registry,
    media_type,
    render,
)
from lumen_uring.ring.histogram import Histogram, bucket_of, bucket_range
from lumen_uring.ring.report import Load
from lumen_uring.ring.snapshot import Snapshot
from lumen_uring.ring.traces import KINDS, LumenSpan

ROOT = Path(__file__).resolve().parents[1]
FACTS = Facts("1.2.3", "1.31.1", workers=2, io_threads=1, slots=64)
LAYOUT = (1728, 6, 4)
EVIL = 'a"b\\c\nd'
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def recorded(*values_ns: int) -> Histogram:
    counts = np.zeros(LAYOUT[0], np.uint64)
    for value in values_ns:
        counts[min(bucket_of(value, *LAYOUT[1:]), LAYOUT[0] - 1)] += np.uint64(1)
    return Histogram(counts, *LAYOUT[1:])


def recorded_of_model(*values_ns: int) -> Histogram:
    """As c/src/parts/histogram.h has it."""
    counts = np.zeros(88, np.uint64)
    for value in values_ns:
        counts[min(bucket_of(value, 2, 12), 87)] += np.uint64(1)
    return Histogram(counts, 2, 12, sum(values_ns))


def snapshot(**io: int) -> Snapshot:
    model = {
        "queued": 12,
        "refused": 2,
        "bad": 4,
        "unfit": 3,
        "overdue": 0,
        "restarts": 0,
        "ok": 5,
        "failed": 1,
        "expired": 3,
        "gone": 1,
        "rows": 9,
        "runs": 4,
        "ok_ns": 5_000_999,
        "queue_ns": 1_000_000,
        "preprocess_ns": 2_000,
        "infer_ns": 3_000_000,
        "send_ns": 4_000,
        "last_ms": 1_700_000_000_500,
    }
    counted = {
        "requests": 30,
        "requests_ok": 2,
        "requests_error": 4,
        "requests_bad": 2,
        "requests_unknown_model": 1,
        "requests_unauthorised": 1,
        "requests_refused": 2,
        "requests_limited": 1,
        "requests_overloaded": 1,
        "requests_gone": 1,
        **io,
    }
    worker = {
        "requests_ok": 5,
        "requests_error": 4,
        "requests_bad": 2,
        "requests_too_large": 1,
        "requests_expired": 3,
        "requests_gone": 1,
    }
    return Snapshot(
        pid=1,
        port=8000,
        state="ready",
        start_realtime_ns=1,
        threads=(),
        counters={"io": counted, "worker": {**worker, "bytes_out": 40}},
        gauges={"io": {"slots_in_use": 3, "connections_open": 4, "in_flight": 2}, "worker": {}},
        histograms={"total": recorded(5_000, 20_000, 1_000_000, 10**11), "queue": recorded()},
        models={"digits": model, EVIL: dict.fromkeys(model, 0)},
        model_histograms={
            "digits": {"total": recorded_of_model(16_383, 16_384, 24_575, 24_576, 10**13)},
            EVIL: {"total": recorded_of_model()},
        },
    )


def page(reading: Snapshot, accept: str = "") -> str:
    return render(make_registry(lambda: reading, FACTS), accept)[1].decode()


def samples(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser gives every counter a _total, which Triton's have not in the text.
            name = sample.name.removesuffix("_total" if sample.name.startswith("nv_") else "")
            key = (name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    return found[(name, tuple(sorted(labels.items())))]


def test_tritons_names_are_verbatim() -> None:
    text = page(snapshot())
    for line in [
        "# TYPE nv_inference_request_success counter",
        'nv_inference_request_success{model="digits",version="1"} 5.0',
        "# TYPE nv_inference_request_failure counter",
        'nv_inference_request_failure{model="digits",reason="REJECTED",version="1"} 5.0',
        'nv_inference_request_failure{model="digits",reason="CANCELED",version="1"} 1.0',
        'nv_inference_request_failure{model="digits",reason="BACKEND",version="1"} 1.0',
        'nv_inference_request_failure{model="digits",reason="OTHER",version="1"} 7.0',
        "# TYPE nv_inference_count counter",
        'nv_inference_count{model="digits",version="1"} 9.0',
        'nv_inference_exec_count{model="digits",version="1"} 4.0',
        "# TYPE nv_inference_request_duration_us counter",
        'nv_inference_request_duration_us{model="digits",version="1"} 5000.0',
        'nv_inference_queue_duration_us{model="digits",version="1"} 1000.0',
        'nv_inference_compute_input_duration_us{model="digits",version="1"} 2.0',
        'nv_inference_compute_infer_duration_us{model="digits",version="1"} 3000.0',
        'nv_inference_compute_output_duration_us{model="digits",version="1"} 4.0',
        "# TYPE nv_inference_pending_request_count gauge",
        # 12 were queued, of which 5 are ok, 1 failed, 3 unfit, 3 expired and 1 gone.
        'nv_inference_pending_request_count{model="digits",version="1"} 0.0',
        "# TYPE nv_cpu_utilization gauge",
        "# TYPE nv_cpu_memory_total_bytes gauge",
        "# TYPE nv_cpu_memory_used_bytes gauge",
    ]:
        assert line in text.splitlines()
    assert not re.search(r"nv_\w+_total\b", text)
    assert " untyped" not in text


def test_no_series_is_there_twice() -> None:
    """A server that served m alone, and serves m:1 and m:2 now, has counters of all three names."""
    reading = snapshot()
    counters = {"queued": 3, "ok": 2, "ok_ns": 1_999, "bad": 1}
    names = ("m", "m:1", "m:2")
    reading = dataclasses.replace(reading, models={name: dict(counters) for name in names})
    lines = [line.rpartition(" ")[0] for line in page(reading).splitlines() if line[:1] != "#"]
    assert len(lines) == len(set(lines))
    found = samples(page(reading))
    assert value(found, "nv_inference_request_success", model="m", version="1") == 4
    assert value(found, "nv_inference_request_success", model="m", version="2") == 2
    assert value(found, "nv_inference_request_duration_us", model="m", version="1") == 3
    assert value(found, "nv_inference_pending_request_count", model="m", version="1") == 2


def test_names_of_models_are_escaped() -> None:
    """Row 46."""
    text = page(snapshot())
    assert 'nv_inference_count{model="a\\"b\\\\c\\nd",version="1"} 0.0' in text.splitlines()
    assert value(samples(text), "nv_inference_count", model=EVIL, version="1") == 0


def test_every_request_ends_once() -> None:
    found = samples(page(snapshot()))
    ends = {
        outcome: value(found, "lumen_requests_total", outcome=outcome)
        for outcome in ("ok", "error", "shed", "client_gone")
    }
    assert ends == {"ok": 7, "error": 8, "shed": 5, "client_gone": 2}
    in_flight = value(found, "lumen_requests_in_flight")
    assert value(found, "lumen_requests_accepted_total") == 30 == sum(ends.values()) + in_flight
    # A refusal has one reason; what is no refusal and no success is a model that failed.
    reasons = [count for (name, _), count in found.items() if "requests_rejected" in name]
    failed = value(
        found, "nv_inference_request_failure", model="digits", version="1", reason="BACKEND"
    )
    assert sum(reasons) + failed == ends["error"] + ends["shed"]
    # Read in the middle of things: more ends than beginnings.
    found = samples(page(snapshot(requests=20)))
    assert value(found, "lumen_requests_accepted_total") == sum(ends.values())
    assert value(found, "lumen_requests_in_flight") == 0


def test_lumens_own_metrics() -> None:
    found = samples(page(snapshot()))
    assert value(found, "lumen_ready") == 1
    assert value(found, "lumen_slots") == 64
    assert value(found, "lumen_slots_in_use") == 3
    assert value(found, "lumen_requests_admitted") == 2
    assert value(found, "lumen_build_info", version="1.2.3", onnxruntime="1.31.1") == 1
    assert value(found, "lumen_network_bytes_total", direction="out") == 40
    assert value(found, "lumen_worker_hangs") == 0
    for reason, count in {
        "bad_request": 4,
        "unknown_model": 1,
        "too_large": 1,
        "unauthorised": 1,
        "rate_limited": 1,
        "overloaded": 1,
        "deadline": 3,
        "draining": 0,
    }.items():
        assert value(found, "lumen_requests_rejected_total", reason=reason) == count, reason
    assert value(found, "lumen_model_last_answer_seconds", model="digits") == 1_700_000_000.5
    assert value(found, "process_resident_memory_bytes") > 0
    assert value(found, "process_open_fds") > 0
    assert value(found, "process_start_time_seconds") > 0
    assert value(found, "process_cpu_seconds_total") > 0


# A sample's name and label, and the words that it is the sum of.
SUMS: dict[tuple[str, str], str] = {
    ("lumen_requests_accepted_total", ""): "io.requests",
    ("lumen_requests_total", "ok"): "io.requests_ok worker.requests_ok",
    ("lumen_requests_total", "error"): "io.requests_error worker.requests_error upstream.failed",
    ("lumen_requests_total", "shed"): (
        "io.requests_refused worker.requests_overloaded worker.requests_expired"
    ),
    ("lumen_requests_total", "client_gone"): "io.requests_gone worker.requests_gone",
    ("lumen_protocol_requests_total", "native"): "io.native_requests",
    ("lumen_protocol_requests_total", "http"): "io.http_requests",
    ("lumen_protocol_requests_total", "http2"): "io.http2_requests",
    ("lumen_protocol_requests_total", "grpc"): "io.grpc_requests",
    ("lumen_requests_rejected_total", "bad_request"): "io.requests_bad worker.requests_bad",
    ("lumen_requests_rejected_total", "unknown_model"): "io.requests_unknown_model",
    ("lumen_requests_rejected_total", "too_large"): (
        "io.requests_too_large worker.requests_too_large"
    ),
    ("lumen_requests_rejected_total", "unauthorised"): "io.requests_unauthorised",
    ("lumen_requests_rejected_total", "rate_limited"): "io.requests_limited",
    ("lumen_requests_rejected_total", "overloaded"): (
        "io.requests_overloaded worker.requests_overloaded"
    ),
    ("lumen_requests_rejected_total", "deadline"): "io.requests_late worker.requests_expired",
    ("lumen_requests_rejected_total", "draining"): "io.requests_draining",
    ("lumen_requests_rejected_total", "unready"): "io.requests_unready",
    ("lumen_connections_total", "accepted"): "io.connections_accepted",
    ("lumen_connections_total", "closed"): "io.connections_closed",
    ("lumen_connections_total", "refused"): "io.connections_refused",
    ("lumen_connections_total", "crowded"): "io.connections_crowded",
    ("lumen_connections_total", "timed_out"): "io.connections_timed_out",
    ("lumen_connections_total", "evicted"): "io.connections_evicted",
    **{
        ("lumen_tls_handshakes_total", name): f"tls.{name}"
        for name in ("full", "resumed", "plain", "refused", "late", "left", "crowded", "failed")
    },
    ("lumen_tls_handshakes_total", "unknown_client"): "tls.unknown_clients",
    **{
        ("lumen_upstream_requests_total", name): f"upstream.{name}"
        for name in ("ok", "failed", "gone", "fallen")
    },
    ("lumen_upstream_dials_total", "asked"): "upstream.dials",
    ("lumen_upstream_dials_total", "failed"): "upstream.undialed",
    ("lumen_upstream_events_total", "retry"): "upstream.retries",
    ("lumen_upstream_events_total", "ejection"): "upstream.ejections",
    ("lumen_upstream_events_total", "spill"): "upstream.spills",
    ("lumen_network_bytes_total", "upstream"): "upstream.bytes",
    ("lumen_upstream_connections", ""): "gauge.upstream_connections",
    ("lumen_upstream_requests_in_flight", ""): "gauge.upstream_in_flight",
    ("lumen_network_bytes_total", "in"): "io.bytes_in",
    ("lumen_network_bytes_total", "out"): "io.bytes_out worker.bytes_out",
    ("lumen_runs_total", "all"): "worker.runs",
    ("lumen_runs_total", "batch"): "worker.batches",
    ("lumen_runs_total", "wide"): "worker.runs_wide",
    ("lumen_events_total", "connection_unparked"): "io.connections_unparked",
    ("lumen_events_total", "request_stolen"): "worker.requests_stolen",
    ("lumen_events_total", "slot_wait"): "io.slot_waits",
    ("lumen_events_total", "body_wait"): "io.body_waits",
    ("lumen_events_total", "header_buffer_starved"): "io.header_buffers_starved",
    ("lumen_events_total", "reply_queued"): "io.replies_queued",
    ("lumen_events_total", "ring_overflow"): "io.ring_overflows",
    ("lumen_events_total", "worker_sleep"): "worker.sleeps",
    ("lumen_events_total", "string_allocation"): "worker.string_allocations",
    ("lumen_events_total", "batch_failed"): "worker.batches_failed",
    ("lumen_events_total", "trace_dropped"): "io.traces_dropped worker.traces_dropped",
    ("lumen_events_total", "log_line_lost"): "io.log_lines_lost",
    ("lumen_connections_open", ""): "gauge.connections_open",
    ("lumen_connections_parked", ""): "gauge.connections_parked",
    ("lumen_slots_in_use", ""): "gauge.slots_in_use",
    ("lumen_requests_admitted", ""): "gauge.in_flight",
    ("lumen_regions", ""): "gauge.regions",
    ("lumen_region_bytes", ""): "gauge.region_bytes",
    ("lumen_response_cache_total", "hit"): "io.cache_hits",
    ("lumen_response_cache_total", "miss"): "io.cache_misses",
    ("lumen_response_cache_total", "eviction"): "io.cache_evictions",
    ("lumen_response_cache_entries", ""): "gauge.cache_entries",
    ("lumen_response_cache_bytes", ""): "gauge.cache_bytes",
    ("nv_cache_num_hits_per_model", "m"): "model.cache_hits",
    ("nv_cache_num_misses_per_model", "m"): "model.cache_misses",
    ("lumen_run_arena_kept_bytes", ""): "worker_gauge.arena_kept_bytes",
    ("lumen_model_process_restarts_total", "m"): "model.restarts",
    ("lumen_model_own_requests_total", "m"): "model.own",
    ("lumen_model_tokens_total", "m"): "model.tokens",
    ("nv_inference_request_success", "m"): "model.ok",
    ("nv_inference_count", "m"): "model.rows",
    ("nv_inference_exec_count", "m"): "model.runs",
    ("nv_inference_request_failure", "REJECTED"): "model.refused model.expired",
    ("nv_inference_request_failure", "CANCELED"): "model.gone",
    ("nv_inference_request_failure", "BACKEND"): "model.failed",
    ("nv_inference_request_failure", "OTHER"): "model.bad model.unfit",
}
# As above, of one word each, and how many of it are one on the page.
SCALED = {
    ("nv_inference_request_duration_us", "m"): ("ok_ns", 1000),
    ("nv_inference_queue_duration_us", "m"): ("queue_ns", 1000),
    ("nv_inference_compute_input_duration_us", "m"): ("preprocess_ns", 1000),
    ("nv_inference_compute_infer_duration_us", "m"): ("infer_ns", 1000),
    ("nv_inference_compute_output_duration_us", "m"): ("send_ns", 1000),
    ("nv_cache_hit_duration_per_model", "m"): ("cache_hit_ns", 1000),
    ("nv_cache_miss_duration_per_model", "m"): ("cache_miss_ns", 1000),
    ("lumen_model_last_answer_seconds", "m"): ("last_ms", 1000),
}


def test_every_sample_is_the_sum_of_its_own_words() -> None:
    """Each word has a bit of its own: one too many, too few or in another's place is seen."""
    owners = ("io", "worker", "gauge", "worker_gauge", "model", "tls", "upstream")
    bits: dict[str, dict[str, int]] = {owner: {} for owner in owners}
    times = [word for word, _unit in SCALED.values()]
    for one in [*" ".join(SUMS.values()).split(), "model.overdue", *(f"model.{t}" for t in times)]:
        owner, word = one.split(".")
        # A float of the page holds 53 bits; the words of I/O threads and workers are added.
        bits[owner].setdefault(word, 1 << (len(bits[owner]) + (37 if owner == "worker" else 0)))
    assert max(bits["io"].values()) < 1 << 37
    for group, pattern in (("tls", 5), ("upstream", 9)):  # two bits each: none is another's
        bits[group] = {word: pattern * bit for word, bit in bits[group].items()}
        bits["io"] |= {f"{group}_{word}": bit for word, bit in bits[group].items()}
    # More requests have begun than ended, and more were queued than have left.
    bits["io"]["requests"] = 1 << 51
    bits["model"] |= {"queued": 1 << 40, "last_ms": 1_700_000_000_123, "long_run_us": 2900}
    for name in times[:-1]:
        bits["model"][name] = bits["model"][name] * 1000 + 999  # parts of a microsecond are cut
    reading = dataclasses.replace(
        snapshot(),
        counters={"io": bits["io"], "worker": bits["worker"]},
        gauges={"io": {**bits["gauge"], "worker_hangs": 2}, "worker": bits["worker_gauge"]},
        models={"m": bits["model"]},
        histograms={},
        model_histograms={},
    )
    rows = (("m", 1, "UNAVAILABLE"), ("m", 2, "READY"))
    providers = (("m", ("openvino",)), ("virtual", ()))
    load = Load(0.75, 100.0, 1.0, waiting=2, running=3)
    facts = Facts("1.2.3", "1.31.1", 3, 2, 64, providers, lambda: rows, load=lambda: load)
    text = render(make_registry(lambda: reading, facts), "")[1].decode()
    found: dict[tuple[str, str], float] = {}
    for (name, labels), sample in samples(text).items():
        if name == "lumen_model_state":
            is_so = (dict(labels)["version"], dict(labels)["state"]) in (
                ("1", "UNAVAILABLE"),
                ("2", "READY"),
            )
            assert sample == is_so, labels
        elif not name.startswith(("process_", "nv_cpu_", "lumen_build")):
            found[name, dict(labels).get("reason") or (labels[0][1] if labels else "")] = sample
    expected: dict[tuple[str, str], float] = {
        key: sum(bits[owner][word] for owner, word in (one.split(".") for one in words.split()))
        for key, words in SUMS.items()
    }
    expected |= {key: bits["model"][word] // unit for key, (word, unit) in SCALED.items()}
    expected["lumen_model_last_answer_seconds", "m"] = 1_700_000_000.123
    expected["lumen_model_long_run_seconds", "m"] = 0.0029
    ends = sum(
        expected["lumen_requests_total", end] for end in ("ok", "error", "shed", "client_gone")
    )
    left = ("ok", "failed", "unfit", "expired", "gone", "overdue")
    pending = (1 << 40) - sum(bits["model"][word] for word in left)
    expected |= {
        ("lumen_requests_in_flight", ""): (1 << 51) - ends,
        ("nv_inference_pending_request_count", "m"): pending,
        ("lumen_model_provider", "m"): 1,
        ("lumen_ready", ""): 1,
        ("lumen_worker_hangs", ""): 1,
        ("lumen_workers", ""): 3,
        ("lumen_io_threads", ""): 2,
        ("lumen_slots", ""): 64,
        ("lumen_utilization", ""): 0.75,
        ("lumen_requests_waiting", ""): 2,
        ("lumen_requests_running", ""): 3,
    }
    assert found == expected
    assert text.count("\nlumen_model_state{") == 8
    # A reading in the middle of things: more have left than were queued.
    bits["model"]["queued"] = 1
    text = render(make_registry(lambda: reading, facts), "")[1].decode()
    assert value(samples(text), "nv_inference_pending_request_count", model="m", version="1") == 0


def test_parts_of_python_that_fail_are_counted() -> None:
    guard = Guard(lambda _level, _text: None)
    with guard.part("look"):
        raise OSError(24, "Too many open files")
    facts = Facts("1.2", "1.9", 1, 1, 1, guard=guard)
    text = render(make_registry(lambda: snapshot(), facts), "")[1].decode()
    assert 'lumen_part_failures_total{part="look"} 1.0' in text
    assert 'lumen_part_alive{part="look"} 1.0' in text


def test_a_server_that_is_not_ready() -> None:
    for state in ("starting", "draining", "stopped", "unknown (4)"):
        reading = dataclasses.replace(snapshot(), state=state)
        assert value(samples(page(reading)), "lumen_ready") == 0


def test_which_form_is_asked_for() -> None:
    for accept, form in (
        ("", TEXT),
        ("*/*", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ("text/plain, Application/OpenMetrics-Text;version=1.0.0;q=0.1", OPENMETRICS),
        ("application/openmetrics-text-like", TEXT),
    ):
        assert media_type(accept) == form


def test_bounds_are_the_nearest_edges_to_the_wanted_ones() -> None:
    """35 bounds from 10 µs to 10 s, each moved to the edge of an exact bucket beside it."""
    ends, middles = _layout(*LAYOUT)
    edges = [bucket_range(bucket, *LAYOUT[1:])[0] for bucket in range(LAYOUT[0])]
    for at, (text, below) in enumerate(ends):
        wanted_ns = 10_000 * 1_000_000 ** (at / 34)
        assert float(text) * 1e9 == pytest.approx(edges[below], abs=0.5)
        nearest = min(range(len(edges)), key=lambda bucket: abs(edges[bucket] - wanted_ns))
        assert abs(edges[below] - wanted_ns) <= abs(edges[nearest] - wanted_ns) + 1
    assert middles[0] == 7.5e-9
    assert middles[200] * 1e9 == pytest.approx(
        Histogram(np.zeros(LAYOUT[0], np.uint64), *LAYOUT[1:]).midpoint_ns(200)
    )
    bounds = [float(text) for text, _below in _model_bounds(88, 2, 12)]
    assert (bounds[0], bounds[-1]) == (16384e-9, (1 << 33) / 1e9)
    assert len(bounds) == 2 * (33 - 14) + 1


def test_histograms_are_those_of_the_file() -> None:
    found = samples(page(snapshot()))
    bounds = {
        dict(labels)["le"]: count
        for (name, labels), count in found.items()
        if name == "lumen_request_duration_seconds_bucket" and ("stage", "total") in labels
    }
    finite = sorted(float(le) for le in bounds if le != "+Inf")
    assert len(finite) == 35
    assert finite[0] == pytest.approx(10e-6, rel=1 / 64)
    assert finite[-1] == pytest.approx(10, rel=1 / 64)
    for below, above in itertools.pairwise(finite):
        assert 1.4 < above / below < 1.6
    counts = [bounds[le] for le in sorted(bounds, key=float)]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-2] == 3
    assert (
        bounds["+Inf"] == 4 == value(found, "lumen_request_duration_seconds_count", stage="total")
    )
    assert value(found, "lumen_request_duration_seconds_count", stage="queue") == 0


def test_each_models_histogram_is_exact_at_its_bounds() -> None:
    found = samples(page(snapshot()))
    counts = {
        float(dict(labels)["le"]): count
        for (name, labels), count in found.items()
        if name == "lumen_model_duration_seconds_bucket" and ("model", "digits") in labels
    }
    bounds = sorted(counts)
    assert len(bounds) <= 40  # for each of 64 models and three stages
    for below, above in itertools.pairwise(bounds[:-1]):
        assert above / below in (pytest.approx(1.5), pytest.approx(4 / 3))
    assert [counts[bound] for bound in bounds[:3]] == [1, 3, 4]
    assert bounds[:2] == [16384e-9, 24576e-9]
    assert 5 < bounds[-2] < 10
    assert (counts[bounds[-2]], counts[bounds[-1]]) == (4, 5)
    of_digits = {"model": "digits", "stage": "total"}
    assert value(found, "lumen_model_duration_seconds_count", **of_digits) == 5
    # The sum is of the values, not of the buckets' middles.
    exact_ns = 16_383 + 16_384 + 24_575 + 24_576 + 10**13
    assert value(found, "lumen_model_duration_seconds_sum", **of_digits) == exact_ns / 1e9
    assert value(found, "lumen_model_duration_seconds_count", model=EVIL, stage="total") == 0


def test_a_page_of_64_models_stays_small() -> None:
    one = snapshot()
    of_stages = dict.fromkeys(("queue", "infer", "total"), recorded_of_model(1))
    names = [f"{number:064}" for number in range(64)]
    text = page(
        dataclasses.replace(
            one,
            models=dict.fromkeys(names, one.models["digits"]),
            model_histograms=dict.fromkeys(names, of_stages),
        )
    )
    assert len(text.splitlines()) < 64 * (15 + 3 * 45) + 500


def test_bounds_count_exactly() -> None:
    values = [int(10 ** (3 + index / 100)) for index in range(800)]
    buckets, seconds = _buckets(recorded(*values), _layout(*LAYOUT)[0])
    for text, count in buckets[:-1]:
        assert count == sum(one < round(float(text) * 1e9) for one in values)
    exact = sum(min(one, 1 << 36) for one in values) / 1e9
    assert seconds == pytest.approx(exact, rel=0.01)


def test_a_layout_of_few_buckets() -> None:
    buckets, _seconds = _buckets(Histogram(np.ones(40, np.uint64), 2, 3), _layout(40, 2, 3)[0])
    edges = [float(text) for text, _count in buckets[:-1]]
    assert edges == sorted(set(edges))
    assert buckets[-1] == ("+Inf", 40)


def test_openmetrics_where_it_is_asked_for() -> None:
    content_type, body = render(
        make_registry(snapshot, FACTS),
        "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
    )
    assert content_type == OPENMETRICS
    families = {family.name: family for family in parse_openmetrics(body.decode())}
    assert families["lumen_requests"].type == "counter"
    assert families["lumen_request_duration_seconds"].type == "histogram"
    assert families["nv_inference_count"].samples[0].value == 9
    assert render(make_registry(snapshot, FACTS), "text/plain")[0] == TEXT


DASHBOARD = ROOT / "deploy" / "grafana" / "lumen.json"
ALERTS = ROOT / "deploy" / "prometheus" / "lumen-alerts.yaml"


def questions_of_the_dashboard() -> list[str]:
    document = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    return found + [entry["query"]["query"] for entry in document["templating"]["list"][1:]]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("source", ["dashboard", "alerts"])
def test_what_is_asked_is_there(source: str) -> None:
    """Each metric, each label and each value of a label in a query is on the page."""
    if source == "dashboard":
        questions, least = questions_of_the_dashboard(), 20
    else:
        questions, least = [rule["expr"] for rule in rules()], 8
    values: dict[str, dict[str, set[str]]] = {}
    full = snapshot()
    of_stages = dict.fromkeys(("queue", "infer", "total"), recorded_of_model(1))
    full = dataclasses.replace(
        full,
        histograms=dict.fromkeys(("receive", "queue", "infer", "send", "total"), recorded(1)),
        model_histograms=dict.fromkeys(full.models, of_stages),
    )
    for name, labels in samples(page(full)):
        for label, value_of in labels:
            values.setdefault(name, {}).setdefault(label, set()).add(value_of)
        values.setdefault(name, {})
    asked = set(re.findall(r"\b(?:lumen|nv|process)_\w+", "\n".join(questions)))
    assert len(asked) >= least // 2
    assert asked - set(values) == set()
    ours = {"instance", "job", "__name__"}
    for question in questions:
        for name, inside in re.findall(r"\b((?:lumen|nv|process)_\w+)\{([^}]*)\}", question):
            for label, sign, text in re.findall(r"(\w+)(=~|!~|!=|=)\"([^\"]*)\"", inside):
                if label in ours:
                    continue
                known = values[name].get(label, set())
                wanted = set(text.split("|")) if "~" in sign else {text}
                assert wanted <= known, (question, label)
        names = re.findall(r"\b(?:lumen|nv|process)_\w+", question)
        labels_of = ours.union(*(values[name] for name in names)) | {"le"}
        for inside in re.findall(r"\bby \(([^)]*)\)", question):
            assert {label.strip() for label in inside.split(",")} <= labels_of, question


def test_every_panel_and_every_alert_says_what_it_means() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len(set(places)) == len(panels) == len({panel["id"] for panel in panels})
    for panel in panels:
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
    for rule in rules():
        said = rule["annotations"]
        assert "{{ $labels.instance }}" in said["summary"], rule["alert"]
        assert len(said["description"]) > 40, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert "for" in rule


@pytest.mark.parametrize(
    "command", ["check rules deploy/prometheus/lumen-alerts.yaml", "test rules tests/alerts.yaml"]
)
def test_promtool_agrees(command: str) -> None:
    words = [needs.program("promtool"), *command.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_the_machine(tmp_path: Path) -> None:
    total, used = memory_bytes()
    assert 0 < used < total
    assert memory_bytes(tmp_path / "none") == (0, 0)
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 0 10 80 0 0 0 0 0 0\n")
    meter = CpuMeter(stat)
    assert meter.utilization() == 0
    stat.write_text("cpu  25 0 10 85 0 0 0 0 0 0\n")
    assert meter.utilization() == 0.75
    assert meter.utilization() == 0.75
    # user nice system idle iowait irq softirq steal guest guest_nice: a processor that waits for a
    # disk is idle, one that serves interrupts or another machine is not, and guests are in user.
    stat.write_text("cpu  26 1 11 100 5 1 1 0 700 800\ncpu0 9 9 9 9\n")
    assert meter.utilization() == pytest.approx(1 - (15 + 5) / 25)
    stat.write_text("cpu  26 1 11 100 5 1 1 10 700 800\n")
    assert meter.utilization() == 1
    stat.write_text("cpu  26 1 11 130 5 1 1 10 700 800\n")
    assert meter.utilization() == 0
    stat.write_text("nonsense")
    assert 0 <= meter.utilization() <= 1
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(
        "MemTotal:  100 kB\nMemFree:  10 kB\nMemAvailable:  70 kB\nSwapTotal:  5 kB\n"
    )
    assert memory_bytes(meminfo) == (100 * 1024, 30 * 1024)
    for text in ("MemTotal: 100 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n", "MemTotal:\n"):
        meminfo.write_text(text)
        assert memory_bytes(meminfo) == (0, 0)


# ---- the HTTP side ----


@pytest.fixture
def stats_file(tmp_path: Path) -> Path:
    path = tmp_path / "stats"
    path.write_bytes(build())
    return path


@pytest.fixture
def server(stats_file: Path) -> Iterator[MetricsServer]:
    with closing(MetricsServer("127.0.0.1", 0, ["Lumen.example"])) as page_server:
        page_server.start(stats_file, FACTS, 1)
        yield page_server


def ask(
    server: MetricsServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    with closing(connection):
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


def test_the_page_is_served(server: MetricsServer) -> None:
    status, headers, body = ask(server, "/metrics")
    assert status == 200
    assert headers["content-type"] == TEXT
    found = samples(body.decode())
    assert value(found, "nv_inference_request_success", model="digits", version="1") == 6
    assert not any(name.startswith("access-control") for name in headers)
    assert (
        ask(server, "/metrics?x=1", Accept="application/openmetrics-text")[1]["content-type"]
        == OPENMETRICS
    )


def test_health_is_the_state(server: MetricsServer, stats_file: Path) -> None:
    assert ask(server, "/healthz")[::2] == (200, b"ok")
    for state, name in ((0, b"starting"), (2, b"draining"), (3, b"stopped")):
        stats_file.write_bytes(build(state=state))
        assert ask(server, "/healthz")[::2] == (503, name)
    stats_file.write_bytes(b"nonsense")
    status, _headers, body = ask(server, "/metrics")
    assert status == 503
    assert b"no statistics file" in body
    # Somebody tidies /dev/shm: the server serves on, and says so.
    stats_file.write_bytes(build())
    stats_file.unlink()
    assert ask(server, "/healthz")[::2] == (200, b"ok")
    assert ask(server, "/metrics")[0] == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metric", "/debug/pprof/", "/v2", "//metrics"])
def test_other_paths(server: MetricsServer, path: str) -> None:
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])
def test_other_methods(server: MetricsServer, method: str) -> None:
    status, headers, _body = ask(server, "/metrics", method)
    assert status == 405
    assert headers["allow"] == "GET, HEAD"
    foreign, more, _body = ask(server, "/metrics", method, Origin="http://evil.example")
    assert foreign == 403
    assert not any(name.startswith("access-control") for name in (*headers, *more))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8002", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8002", 200),
        ("lumen.EXAMPLE.:8002", 200),
        ("evil.example", 421),
        ("lumen.example.evil.example", 421),
        ("localhost.evil.example:8002", 421),
        ("", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_only_our_names(server: MetricsServer, host: str, status: int) -> None:
    assert ask(server, "/healthz", Host=host)[0] == status


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
        b"GET /metrics HTTP/2\r\nHost: localhost\r\n\r\n",
        b"GET http://localhost/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET  /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
        b"LMN1" + struct.pack("<BBHQIIIHH", 1, 0, 0, 0, 0, 0, 0, 0, 0) + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 9000 + b"\r\n\r\n",
        b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_request(server: MetricsServer, request_bytes: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall(request_bytes)
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert ask(server, "/healthz")[0] == 200


def test_old_http_and_silent_clients(server: MetricsServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nHost: local"])
def test_silent_and_dripping_clients_keep_nobody_out(server: MetricsServer, said: bytes) -> None:
    """Many more than the table holds; also a client that came first and speaks late is served."""
    threads = threading.active_count()
    with contextlib.ExitStack() as stay:
        crowd = []
        for _ in range(3 * CONNECTIONS_MAX):
            silent = stay.enter_context(socket.create_connection(("127.0.0.1", server.port), 20))
            with contextlib.suppress(ConnectionError):
                silent.sendall(said)
            crowd.append(silent)
        assert ask(server, "/healthz")[0] == 200
        # The youngest connections are kept, and only the oldest made room.
        youngest = crowd[-1]
        youngest.sendall(b"GET /healthz HTTP/1.0\r\n\r\n" if not said else b"host\r\n\r\n")
        assert youngest.recv(12) == b"HTTP/1.1 200"
        assert ask(server, "/metrics")[0] == 200
        assert threading.active_count() <= threads
        with contextlib.suppress(ConnectionError):
            assert crowd[0].recv(1) == b""  # the server closed it


def test_a_dripping_head_ends(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte comes: the time is for the whole head."""
    monkeypatch.setattr(metrics_http, "_HEAD_S", 0.3)
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.settimeout(0.02)
        ended = False
        for _ in range(5000):
            try:
                connection.sendall(b"G")
                ended = connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            if ended:
                break
        assert ended
    assert ask(server, "/healthz")[0] == 200


def test_a_crowd_that_does_not_read_keeps_nobody_out(server: MetricsServer) -> None:
    with contextlib.ExitStack() as stay:
        for _ in range(2 * CONNECTIONS_MAX):
            lazy = stay.enter_context(socket.socket())
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            lazy.connect(("127.0.0.1", server.port))
            lazy.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ask(server, "/healthz")[0] == 200


def test_a_client_that_leaves_early_harms_nobody(server: MetricsServer) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert ask(server, "/healthz")[0] == 200


def test_a_page_that_fails_is_an_answer(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Snapshot:
        raise RuntimeError("broken")

    monkeypatch.setattr(server, "_snapshot", fails)
    status, _headers, body = ask(server, "/healthz")
    assert (status, b"broken" in body) == (500, True)
    monkeypatch.undo()
    assert ask(server, "/healthz")[0] == 200


PAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/metrics", {"Origin": "http://evil.example"}, 403),
        ("/healthz", {"Origin": "null"}, 403),
        ("/healthz", {"Origin": "http://localhost:3000"}, 403),
        ("/healthz", {"Origin": "http://203.0.113.9"}, 403),
        ("/healthz", {"Origin": "http://localhost:1", "Host": "localhost:1"}, 200),
        ("/healthz", {"Origin": "https://lumen.example"}, 200),
        ("/metrics", PAGE, 200),  # nobody can read it, and it does nothing
        # The profile does something: 400 says that it would have been made for these seconds.
        ("/debug/pprof/profile?seconds=0", {}, 400),
        ("/debug/pprof/profile?seconds=0", {"Sec-Fetch-Site": "none", **LINK}, 400),
        ("/debug/pprof/profile?seconds=0", {"Sec-Fetch-Site": "same-site", **LINK}, 400),
        ("/debug/pprof/profile?seconds=0", PAGE, 403),
        ("/debug/pprof/profile?seconds=0", {"Sec-Fetch-Site": "cross-site", **LINK}, 403),
        ("/debug/pprof/profile?seconds=0", {**PAGE, "Sec-Fetch-Site": "same-site"}, 403),
        ("/debug/pprof/profile?seconds=0", {"Origin": "http://localhost:3000"}, 403),
        ("/debug/pprof/profile?seconds=0", {"Origin": "http://evil.example"}, 403),
        ("/debug/pprof/profile?seconds=0", {"X-Forwarded-For": "203.0.113.5"}, 403),
        ("/debug/pprof/profile?seconds=0", {"Via": "1.1 nginx"}, 403),
    ],
)
def test_web_pages_start_nothing(
    server: MetricsServer, path: str, headers: dict[str, str], status: int
) -> None:
    assert ask(server, path, **headers)[0] == status


def test_head_is_answered_as_get_without_a_body(server: MetricsServer) -> None:
    for path in ("/metrics", "/healthz", "/nothing"):
        status, headers, body = ask(server, path)
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head, _, rest = b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ".encode()), (path, head)
        assert b"Content-Length: " in head, (path, head)
        assert (body != b"", rest) == (True, b""), path
        assert headers["content-type"].encode() in head


def test_a_name_that_is_refused_is_logged_once(server: MetricsServer) -> None:
    said: list[tuple[str, str]] = []
    guard = Guard(lambda level, text: said.append((level, text)))
    server._facts = dataclasses.replace(FACTS, guard=guard)
    for name in ("node7.example", "node7.example", "node8.example"):
        assert ask(server, "/metrics", Host=f"{name}:8002")[0] == 421
    assert [(level, "server.hosts" in text) for level, text in said] == [("warning", True)] * 2
    assert ["node7.example" in text for _level, text in said] == [True, False]
    for number in range(50):
        assert ask(server, "/metrics", Host=f"a{number}.example")[0] == 421
    assert len(said) == metrics_server._REFUSED_HOSTS_MAX


def test_a_second_server_takes_the_next_port() -> None:
    with contextlib.ExitStack() as stay:
        ports: list[int] = []

        def take_all() -> None:
            for _ in range(20):
                page = stay.enter_context(
                    closing(MetricsServer.on_free_port("127.0.0.1", [], [8003]))
                )
                ports.append(page.port)

        with pytest.raises(MetricsError, match=r"all ports from 8002 to 8017 on 127\.0\.0\.1"):
            take_all()
        # Others on this machine may have some of them.
        assert ports == sorted(set(ports))
        assert 8003 not in ports
        assert set(ports) <= set(range(8002, 8018))
        assert len(ports) < 16
    with pytest.raises(MetricsError, match=r"Cannot assign requested address"):
        MetricsServer.on_free_port("198.51.100.1", [], [8000])


def test_a_taken_port_is_told(server: MetricsServer) -> None:
    with pytest.raises(MetricsError, match=r"Address already in use.*another server\.metrics_port"):
        MetricsServer("127.0.0.1", server.port)


def test_closing_twice_and_before_the_start(stats_file: Path) -> None:
    early = MetricsServer("127.0.0.1", 0)
    early.close()
    early.close()
    late = MetricsServer("::1", 0) if socket.has_ipv6 else MetricsServer("127.0.0.1", 0)
    late.start(stats_file, FACTS, 1)
    late.close()
    late.close()
    assert all(thread.daemon for thread in threading.enumerate() if "metrics" in thread.name)


def test_without_a_statistics_file() -> None:
    with closing(MetricsServer("127.0.0.1", 0)) as page_server:
        page_server.start(Path(""), FACTS, 1)
        status, _headers, body = ask(page_server, "/healthz")
        assert status == 503
        assert b"no statistics file" in body


def test_a_server_starts_without_what_the_page_needs() -> None:
    code = (
        "import sys, lumen_uring.serving.server; "
        "print([m for m in ('numpy', 'prometheus_client', 'http.server') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_a_reading_that_fails_is_no_page() -> None:
    def fails() -> Snapshot:
        raise StatsError("gone")

    with pytest.raises(StatsError):
        render(make_registry(fails, FACTS), "")


def span_of(model: str, total_ns: int, trace: int, status: int = 0, kind: int = 0) -> LumenSpan:
    span = LumenSpan(span=trace, total_ns=total_ns, status=status, kind=kind, model=model.encode())
    span.trace[15] = trace
    return span


def test_a_bucket_has_the_last_request_of_it_that_is_recorded() -> None:
    """As OpenMetrics; the text format knows no exemplars. What failed is in no histogram."""
    exemplars = Exemplars()
    for total_ns, trace in ((4_000, 1), (21_000, 2), (20_000, 3), (1_000_000, 4), (7 * 10**12, 5)):
        exemplars.note(span_of("m", total_ns, trace))
    exemplars.note(span_of("m", 20_000, 6, status=3))
    exemplars.note(span_of("m", 20_000, 7, kind=KINDS.index("step")))
    facts = dataclasses.replace(FACTS, exemplars=exemplars)
    registry = make_registry(snapshot, facts)
    _, page = render(registry, OPENMETRICS)
    assert b"trace_id" not in render(registry, "")[1]
    found = [
        (sample.labels["le"], sample.exemplar)
        for family in parse_openmetrics(page.decode())
        for sample in family.samples
        if family.name == "lumen_request_duration_seconds" and sample.exemplar
    ]
    assert [one.labels["span_id"][-1] for _, one in found] == ["1", "3", "4", "5"]
    for le, one in found:
        assert one.value <= float(le)
    for number in range(1000):  # names of a long life
        exemplars.note(span_of(f"m{number}", 20_000, 8))
    assert len(exemplars._kept) == 1024
    assert exemplars.between("m999", "total", 0, 1)
    # The names push out each other, and never the requests of all models: 1 ms came before them.
    kept = exemplars.between(ALL_MODELS, "total", 0.9e-3, 2e-3)
    assert kept is not None
    assert kept.span[-1] == "4"
    assert not exemplars.between("m0", "total", 0, 1)
    assert found[0][1].labels["trace_id"] == f"{1:032x}"


def test_exemplars_of_models_that_are_asked_stay() -> None:
    """Others' go first, whoever came first."""
    exemplars = Exemplars()
    for number in range(1000):
        exemplars.note(span_of(f"m{number}", 20_000, 1))
        exemplars.note(span_of("busy", 30_000, 2))
    assert exemplars.between("busy", "total", 0, 1)
    assert exemplars.between("m999", "total", 0, 1)
    assert not exemplars.between("m0", "total", 0, 1)


def test_an_agent_check_is_told_a_weight() -> None:
    """Each client that connects is, also one that sends something; 0 % before the server serves."""

    def load() -> Load:
        if not told:
            raise EngineError("It does not run.", 0)
        return told.pop()

    told: list[Load] = []
    guard = Guard(lambda *_: None)

    def ask() -> bytes:
        with socket.create_connection(("127.0.0.1", agent.port), 10) as client:
            client.sendall(b"hello\n")
            return client.makefile("rb").readline()

    with closing(Agent("127.0.0.1", 0, load, guard)) as agent:
        assert ask() == b"up 0%\n"
        for utilization, line in ((0.0, 100), (0.25, 80), (1.0, 50), (2.0, 33), (700.0, 1)):
            told.append(Load(utilization=utilization))
            assert ask() == b"up %d%%\n" % line
        told.append(Load(leaving=True))
        assert ask() == b"up 0%\n"
        with pytest.raises(MetricsError, match=r"server\.agent_port"):
            Agent("127.0.0.1", agent.port, load, guard)


def test_a_server_that_has_ended_has_no_load() -> None:
    def load() -> Load:
        raise EngineError("It does not run.", 0)

    text = render(make_registry(snapshot, dataclasses.replace(FACTS, load=load)), "")[1]
    assert b"lumen_utilization" not in text


def test_of_many_models_those_that_were_asked() -> None:
    few = snapshot()
    asked = next(iter(few.models.values()))
    never = dict.fromkeys(asked, 0)
    times = next(iter(few.model_histograms.values()))
    for count, shown in ((64, 64), (65, 2)):
        names = [f"m{number}" for number in range(count)]
        models = {name: asked if name in ("m3", "m64") else never for name in names}
        many = dataclasses.replace(few, models=models, model_histograms=dict.fromkeys(names, times))
        text = render(make_registry(lambda many=many: many, FACTS), "")[1].decode()
        assert text.count("nv_inference_request_success{") == min(shown, count)
        assert ('model="m3"' in text, 'model="m5"' in text) == (True, count == 64)
        assert ('lumen_model_duration_seconds_sum{model="m5"' in text) == (count == 64)
