"""The explanation of each figure in `lumen stats`: one line, with its unit.

Read by commands/stats.py alone. A figure of a newer server that is not here is shown by its name;
tests/e2e/operate/test_e2e_metrics.py compares the list with a server's.
"""

from __future__ import annotations

from typing import Final

STAGES: Final = {
    "receive": "from the first to the last byte of the request",
    "queue": "until a worker took it",
    "preprocess": "converting a picture or JSON to the model's tensors",
    "infer": "inside ONNX Runtime",
    "send": "until the reply was handed to the kernel",
    "total": "from the request's first byte to the end of the reply",
}

# By the kind of thread that counts the figure, and its name in the file.
FIGURES: Final[dict[tuple[str, str], str]] = {
    ("io", "requests"): "requests whose complete header was read",
    ("io", "native_requests"): "of these, in the native protocol",
    ("io", "http_requests"): "of these, over HTTP/1.1",
    ("io", "http2_requests"): "of these, in streams of HTTP/2",
    ("io", "grpc_requests"): "of these, calls of gRPC",
    ("io", "requests_ok"): "answered without a Run: ping, describe, health, metadata, cached",
    ("io", "requests_error"): "refused because the request was wrong or not allowed; of these:",
    ("io", "requests_bad"): "  did not fit the model or the protocol (status 1)",
    ("io", "requests_unknown_model"): "  named a model or a path that does not exist (status 2)",
    ("io", "requests_too_large"): "  larger than server.max_request_bytes (status 3)",
    ("io", "requests_unauthorised"): "  without a valid key (status 6)",
    ("io", "requests_refused"): "refused because the server could not serve them; of these:",
    (
        "io",
        "requests_overloaded",
    ): "  server.max_in_flight was reached, or no slot was free (status 4)",
    ("io", "requests_late"): "  the answer would have come after the deadline (status 5)",
    ("io", "requests_limited"): "  over the rate of the key, the model or the server (status 7)",
    ("io", "requests_draining"): "  the server was shutting down (status 9)",
    ("io", "requests_unready"): "  a readiness probe while the server was not ready",
    ("io", "requests_gone"): "the client disconnected before its request was complete",
    ("io", "connections_accepted"): "connections accepted",
    ("io", "connections_closed"): "connections closed, by either side",
    ("io", "connections_refused"): "refused: server.max_connections were open",
    ("io", "connections_crowded"): "refused: the address had server.connections_per_address open",
    ("io", "connections_timed_out"): "closed by the server: too slow, or idle for too long",
    ("io", "connections_evicted"): "closed by the server: they held memory that others waited for",
    (
        "io",
        "connections_unparked",
    ): "idle connections that got a file descriptor again",
    ("io", "bytes_in"): "bytes received",
    ("io", "bytes_out"): "bytes sent by I/O threads",
    ("io", "cache_hits"): "requests answered from the response cache",
    ("io", "cache_misses"): "requests that the response cache had no answer to",
    ("io", "cache_evictions"): "cached answers that made room for others",
    ("io", "cache_entries"): "answers in the response cache now",
    ("io", "cache_bytes"): "bytes that these take",
    ("io", "slot_waits"): "requests that waited for a slot",
    ("io", "body_waits"): "requests that waited for their body without holding a slot",
    ("io", "header_buffers_starved"): "reads that waited for a free header buffer",
    ("io", "replies_queued"): "replies that the socket did not take at once",
    ("io", "ring_overflows"): "times the kernel had more completions than the ring holds",
    ("io", "connections_open"): "connections open now",
    ("io", "connections_parked"): "of these, idle and without a file descriptor",
    ("io", "in_flight"): "requests that hold a slot now",
    ("io", "slots_in_use"): "slots in use now (a slot is the memory of one request)",
    ("io", "regions"): "regions of memory that clients share with the server now",
    ("io", "region_bytes"): "bytes of these regions",
    (
        "io",
        "worker_hangs",
    ): "1 while a model has run for longer than server.hang_seconds",
    ("worker", "requests_ok"): "answered by a model",
    ("worker", "requests_error"): "ended with an error; of these:",
    ("worker", "requests_bad"): "  JSON that did not fit the model (status 1)",
    ("worker", "requests_too_large"): "  more rows or values than allowed (status 3)",
    ("worker", "requests_overloaded"): "the sequence was busy, or too many were open (status 4)",
    ("worker", "requests_expired"): "the deadline passed before the model ran (status 5)",
    ("worker", "requests_gone"): "the client disconnected before its answer",
    ("worker", "rows"): "rows computed (a request may have several)",
    ("worker", "runs"): "calls of ONNX Runtime",
    ("worker", "batches"): "of these, for several requests at once",
    ("worker", "runs_wide"): "of these, on the cores of idle workers too",
    ("worker", "requests_stolen"): "requests taken from another NUMA node, which had enough to do",
    ("worker", "batches_failed"): "batches that failed and ran again one by one",
    ("io", "traces_dropped"): "lines dropped because log.access_path is written too slowly",
    ("io", "log_lines_lost"): "lines of log files that could not be written",
    (
        "worker",
        "traces_dropped",
    ): "lines dropped because a log or telemetry file is written too slowly",
    ("worker", "bytes_out"): "bytes sent by workers",
    ("worker", "sleeps"): "times a worker found no work and slept",
    ("worker", "string_allocations"): "allocations for tensors of strings before a Run",
    ("worker", "arena_kept_bytes"): "of the run arena, in blocks not freed after the last Run",
}
