"""The names, help texts and labels on /metrics of each figure of the statistics file.

Read by metrics/values.py, and by top_screen.py for stages, outcomes and reasons.
tests/e2e/operate/test_e2e_metrics.py fails when a figure of the file is missing here and in its
list of exceptions. The nv_ names and help texts are Triton's.
"""

from __future__ import annotations

import re
from typing import Final

STAGES: Final = ("receive", "queue", "preprocess", "infer", "send", "total")
MODEL_STAGES: Final = ("queue", "infer", "total")

# prometheus_client ends the name of every counter in _total, and Triton's names have none. So their
# type is "unknown", which OpenMetrics allows; the older text format then says counter.
TRITON_TYPE: Final = re.compile(rb"^(# TYPE nv_(?:inference|cache)_\w+) untyped$", re.MULTILINE)

# Triton's name, its help, and the model's counter behind it, divided by the last number.
TRITON: Final = (
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
# The same of the response cache, behind nv_cache_.
TRITON_CACHE: Final = (
    ("num_hits_per_model", "Number of cache hits per model", "cache_hits", 1),
    ("num_misses_per_model", "Number of cache misses per model", "cache_misses", 1),
    (
        "hit_duration_per_model",
        "Total cache hit duration per model, in microseconds",
        "cache_hit_ns",
        1000,
    ),
    (
        "miss_duration_per_model",
        "Total cache miss duration per model, in microseconds",
        "cache_miss_ns",
        1000,
    ),
)
TRITON_FAILURES: Final = (
    ("REJECTED", ("refused", "expired")),
    ("CANCELED", ("gone",)),
    ("BACKEND", ("failed",)),
    ("OTHER", ("bad", "unfit")),
)
# Each counts requests that a worker has finished; the queued requests in none of them are pending.
LEFT: Final = ("ok", "failed", "unfit", "expired", "gone", "overdue")

# For each outcome, the counters of I/O threads and workers that it sums. A request has one outcome.
Words = tuple[tuple[str, str], ...]
OUTCOMES: Final[tuple[tuple[str, Words], ...]] = (
    ("ok", (("io", "requests_ok"), ("worker", "requests_ok"))),
    (
        "error",
        (("io", "requests_error"), ("worker", "requests_error"), ("io", "upstream_failed")),
    ),
    (
        "shed",
        (
            ("io", "requests_refused"),
            ("worker", "requests_overloaded"),
            ("worker", "requests_expired"),
        ),
    ),
    ("client_gone", (("io", "requests_gone"), ("worker", "requests_gone"))),
)

# Lumen's counters: name, help, label, and for each value of the label the counters that it sums.
COUNTERS: Final[tuple[tuple[str, str, str, tuple[tuple[str, Words], ...]], ...]] = (
    (
        "lumen_protocol_requests",
        "Requests whose complete header was read, by protocol (native, http, http2 or grpc)",
        "protocol",
        (
            ("native", (("io", "native_requests"),)),
            ("http", (("io", "http_requests"),)),
            ("http2", (("io", "http2_requests"),)),
            ("grpc", (("io", "grpc_requests"),)),
        ),
    ),
    (
        "lumen_requests_rejected",
        "Refused requests by reason; each has exactly one. overloaded: server.max_in_flight was "
        "reached, or no slot or sequence was free. deadline: the answer would have come after the "
        "deadline. "
        "draining: the server was shutting down. unready: a readiness probe while the server was "
        "not ready",
        "reason",
        (
            ("bad_request", (("io", "requests_bad"), ("worker", "requests_bad"))),
            ("unknown_model", (("io", "requests_unknown_model"),)),
            ("too_large", (("io", "requests_too_large"), ("worker", "requests_too_large"))),
            ("unauthorised", (("io", "requests_unauthorised"),)),
            ("rate_limited", (("io", "requests_limited"),)),
            ("overloaded", (("io", "requests_overloaded"), ("worker", "requests_overloaded"))),
            ("deadline", (("io", "requests_late"), ("worker", "requests_expired"))),
            ("draining", (("io", "requests_draining"),)),
            ("unready", (("io", "requests_unready"),)),
        ),
    ),
    (
        "lumen_connections",
        "Connections by event. refused: server.max_connections were open. crowded: the address had "
        "server.connections_per_address open. timed_out: the connection was too slow, or idle for "
        "too long. evicted: it held a buffer or a slot that others waited for. accepted and closed "
        "count every connection but the refused ones",
        "event",
        tuple(
            (event, (("io", f"connections_{event}"),))
            for event in ("accepted", "closed", "refused", "crowded", "timed_out", "evicted")
        ),
    ),
    (
        "lumen_tls_handshakes",
        "TLS handshakes by result. full and resumed went well. plain: the client did not speak "
        "TLS. refused: the client sent an alert, as when it does not trust the certificate. "
        "unknown_client: its certificate was missing or not trusted. late: it was too slow, or too "
        "many began. left: it left in the middle. crowded: its address had "
        "server.connections_per_address open. failed: nothing in common, or a broken message",
        "result",
        (
            *((one, (("io", f"tls_{one}"),)) for one in ("full", "resumed", "plain", "refused")),
            ("unknown_client", (("io", "tls_unknown_clients"),)),
            *((one, (("io", f"tls_{one}"),)) for one in ("late", "left", "crowded", "failed")),
        ),
    ),
    (
        "lumen_upstream_requests",
        "Requests for models of upstreams by their end. ok: the answer was passed on, whatever it "
        "says. failed: there was none, or not all of it. gone: the client left before it had its "
        "answer. fallen: another model of fallbacks has it now",
        "outcome",
        tuple((one, (("io", f"upstream_{one}"),)) for one in ("ok", "failed", "gone", "fallen")),
    ),
    (
        "lumen_upstream_dials",
        "Connections to upstreams that were asked for: opened, or failed",
        "result",
        (("asked", (("io", "upstream_dials"),)), ("failed", (("io", "upstream_undialed"),))),
    ),
    (
        "lumen_upstream_events",
        "Requests that were sent again to another address or over a new connection (retry), "
        "addresses that were left alone because their requests had failed (ejection), and requests "
        "that came in the place of a model here that was too busy or too slow (spill)",
        "event",
        (
            ("retry", (("io", "upstream_retries"),)),
            ("ejection", (("io", "upstream_ejections"),)),
            ("spill", (("io", "upstream_spills"),)),
        ),
    ),
    (
        "lumen_network_bytes",
        "Bytes received from clients (in), sent to clients (out), and received from upstreams "
        "(upstream)",
        "direction",
        (
            ("in", (("io", "bytes_in"),)),
            ("out", (("io", "bytes_out"), ("worker", "bytes_out"))),
            ("upstream", (("io", "upstream_bytes"),)),
        ),
    ),
    (
        "lumen_runs",
        "Calls of ONNX Runtime's Run. all: every call. batch: calls that ran several requests. "
        "wide: calls that used the cores of idle workers too",
        "kind",
        (
            ("all", (("worker", "runs"),)),
            ("batch", (("worker", "batches"),)),
            ("wide", (("worker", "runs_wide"),)),
        ),
    ),
    (
        "lumen_response_cache",
        "Requests that were looked up in the response cache (hit, miss), and cached answers that "
        "made room for others (eviction)",
        "event",
        tuple(
            (event, (("io", f"cache_{word}"),))
            for event, word in (("hit", "hits"), ("miss", "misses"), ("eviction", "evictions"))
        ),
    ),
    (
        "lumen_events",
        "Events that delay a request or lose a line of a log; `lumen stats` explains each",
        "event",
        (
            ("connection_unparked", (("io", "connections_unparked"),)),
            ("request_stolen", (("worker", "requests_stolen"),)),
            ("slot_wait", (("io", "slot_waits"),)),
            ("body_wait", (("io", "body_waits"),)),
            ("header_buffer_starved", (("io", "header_buffers_starved"),)),
            ("reply_queued", (("io", "replies_queued"),)),
            ("ring_overflow", (("io", "ring_overflows"),)),
            ("worker_sleep", (("worker", "sleeps"),)),
            ("string_allocation", (("worker", "string_allocations"),)),
            ("batch_failed", (("worker", "batches_failed"),)),
            ("trace_dropped", (("io", "traces_dropped"), ("worker", "traces_dropped"))),
            ("log_line_lost", (("io", "log_lines_lost"),)),
        ),
    ),
)
# Lumen's gauges: name, help, and the kind of thread and the word whose sum over its threads it is.
GAUGES: Final = (
    ("lumen_connections_open", "Connections that are open now", "io", "connections_open"),
    (
        "lumen_connections_parked",
        "Open connections that are idle now and hold no file descriptor",
        "io",
        "connections_parked",
    ),
    (
        "lumen_slots_in_use",
        "Slots in use now; a slot is the memory of one request and its reply",
        "io",
        "slots_in_use",
    ),
    ("lumen_regions", "Regions of memory that clients share with the server now", "io", "regions"),
    ("lumen_region_bytes", "Bytes of these regions", "io", "region_bytes"),
    ("lumen_requests_admitted", "Requests that hold a slot now", "io", "in_flight"),
    (
        "lumen_upstream_connections",
        "Connections to upstreams that are open now",
        "io",
        "upstream_connections",
    ),
    (
        "lumen_upstream_requests_in_flight",
        "Requests that upstreams have now",
        "io",
        "upstream_in_flight",
    ),
    ("lumen_response_cache_entries", "Answers in the response cache now", "io", "cache_entries"),
    ("lumen_response_cache_bytes", "Bytes that these take", "io", "cache_bytes"),
    (
        "lumen_run_arena_kept_bytes",
        "Bytes of the workers' run arenas that ONNX Runtime has not freed after its last Run; a "
        "worker's arena has 256 MiB, beyond which malloc is used",
        "worker",
        "arena_kept_bytes",
    ),
)

# Of each model: name, help, its figure, and how many of that are one of the metric's unit.
MODEL_GAUGES: Final = (
    (
        "lumen_model_last_answer_seconds",
        "Time of the model's last answer, in seconds since 1970; 0 before its first answer",
        "last_ms",
        1000,
    ),
    (
        "lumen_model_long_run_seconds",
        "What a Run took an I/O thread, after which workers alone run the model; 0: none took more "
        "than 1 ms",
        "long_run_us",
        1000000,
    ),
)
MODEL_COUNTERS: Final = (
    (
        "lumen_model_process_restarts",
        "How often the process of a model with isolation: process has ended",
        "restarts",
    ),
    (
        "lumen_model_tokens",
        "Tokens of the texts that were answered, special ones included; texts are rows "
        "(nv_inference_count)",
        "tokens",
    ),
    (
        "lumen_model_own_requests",
        "Requests that an I/O thread ran itself, since their Runs are shorter than a hand-over to "
        "a worker",
        "own",
    ),
)
