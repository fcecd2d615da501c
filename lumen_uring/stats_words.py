"""The explanation of each figure in `lumen stats`: one line, with its unit.

Read by commands/stats.py alone. A figure of a newer server that is not here is shown by its name;
tests/e2e/test_e2e_metrics.py compares the list with a server's.
"""

from __future__ import annotations

from typing import Final

STAGES: Final = {
    "receive": "from the request's first byte to its last",
    "queue": "until a worker took it",
    "preprocess": "a picture or JSON becomes the model's tensors",
    "infer": "inside ONNX Runtime",
    "send": "until the reply was handed to the kernel",
    "total": "from the first byte to the reply",
}

# By the kind of thread that counts, and the figure's name in the file.
FIGURES: Final[dict[tuple[str, str], str]] = {
    ("io", "requests"): "requests whose header was read, of every kind",
    ("io", "native_requests"): "of these, in the native protocol",
    ("io", "http_requests"): "of these, over HTTP",
    ("io", "requests_ok"): "answered without a model: ping, describe, health, metadata",
    ("io", "requests_error"): "refused: the request was wrong or not allowed; of these:",
    ("io", "requests_bad"): "  did not fit the model or the protocol (status 1)",
    ("io", "requests_unknown_model"): "  named a model or a path that is not there (status 2)",
    ("io", "requests_too_large"): "  larger than server.max_request_bytes (status 3)",
    ("io", "requests_unauthorised"): "  without a valid key (status 6)",
    ("io", "requests_refused"): "refused: the server could not take more; of these:",
    ("io", "requests_overloaded"): "  server.max_in_flight or all slots were taken (status 4)",
    ("io", "requests_late"): "  the answer would have come after the deadline (status 5)",
    ("io", "requests_limited"): "  a rate was used up (status 7)",
    ("io", "requests_draining"): "  the server was shutting down (status 9)",
    ("io", "requests_unready"): "  readiness was asked for and is off",
    ("io", "requests_gone"): "the client left before its request was whole",
    ("io", "connections_accepted"): "connections made",
    ("io", "connections_closed"): "connections ended, by either side",
    ("io", "connections_refused"): "turned away: server.max_connections were open",
    ("io", "connections_crowded"): "turned away: server.connections_per_address were open",
    ("io", "connections_timed_out"): "ended by the server: too slow, or idle for too long",
    ("io", "connections_evicted"): "ended by the server: held memory that others waited for",
    ("io", "connections_unparked"): "idle connections that became active and got a descriptor",
    ("io", "bytes_in"): "bytes received",
    ("io", "bytes_out"): "bytes sent by I/O threads",
    ("io", "slot_waits"): "requests that waited for memory",
    ("io", "body_waits"): "requests that waited for their bytes without holding memory",
    ("io", "header_buffers_starved"): "reads that waited for a free buffer",
    ("io", "replies_queued"): "replies that did not fit the socket at once",
    ("io", "ring_overflows"): "times the kernel had more completions than the ring holds",
    ("io", "connections_open"): "connections open now",
    ("io", "connections_parked"): "of these, idle and without a file descriptor",
    ("io", "in_flight"): "requests that hold memory now",
    ("io", "slots_in_use"): "slots in use now (a slot is the memory of one request)",
    ("io", "worker_hangs"): "1: a model has not returned for server.hang_seconds",
    ("worker", "requests_ok"): "answered by a model",
    ("worker", "requests_error"): "ended with an error; of these:",
    ("worker", "requests_bad"): "  JSON that did not fit the model (status 1)",
    ("worker", "requests_too_large"): "  more rows or values than allowed (status 3)",
    ("worker", "requests_expired"): "the deadline passed before the model ran (status 5)",
    ("worker", "requests_gone"): "the client left before its answer",
    ("worker", "rows"): "rows computed (a request may have several)",
    ("worker", "runs"): "calls of ONNX Runtime",
    ("worker", "batches"): "of these, for several requests at once",
    ("worker", "batches_failed"): "batches that failed and ran again one by one",
    ("io", "traces_dropped"): "lines that log.access_path could not keep up with",
    ("io", "log_lines_lost"): "lines of log files that could not be written",
    ("worker", "traces_dropped"): "rows that a log file could not keep up with",
    ("worker", "bytes_out"): "bytes sent by workers",
    ("worker", "sleeps"): "times a worker found no work and slept",
}
