"""The load generator's door: one thread of C on a ring of its own, watched from Python.

Used by `lumen bench` and the tools. The C call runs on a thread that holds no Python lock; its
counters are read live from the struct it fills, each word by one writer.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lumen_uring.errors import EngineError
from lumen_uring.ring import library, stats_structs, structs
from lumen_uring.ring.histogram import Histogram

_SUB_BITS = 6  # LM_HISTOGRAM_SUB_BITS and _UNIT_BITS: the layout lumen_stats.h documents
_UNIT_BITS = 4


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The load to send.

    Args:
        host: an IPv4 or IPv6 address, or unix:PATH.
        port: 1..65535; 0 with a unix socket.
        connections: each has one request at a time.
        model: the model's index.
        encoding: 0 tensors, 1 rgb8.
        rows: of each request.
        payloads: used in turn, all of one size.
        requests: how many to count; 0: until `seconds`.
        seconds: counted time; 0: until `requests`.
        warmup_s: before counting starts.
        rate: arrivals a second (open loop, Poisson); 0: closed loop.
        seed: of the arrivals.
        timeout_us: each request's deadline; 0: the server's default.
        poll_us: polls for replies this long before it sleeps, which keeps its core busy; µs.
        cpu: core to pin the generator to; -1: none.
        expected: what each payload's answer must be, or empty; over HTTP, its reply's body.
        protocol: 0 native; 1 HTTP/1.1: payloads are whole requests, and model, encoding, rows,
            timeout_us and credential are ignored.
        credential: of native.pack_credential, sent before each payload; empty: none.
        shapes: each payload begins with a shape block, as the native protocol has it.
        tls_host: the name or address that the server's certificate is to be for; the system's
            authorities vouch for it, or those in the file of SSL_CERT_FILE. None: no TLS.
    """

    host: str
    port: int
    connections: int
    model: int
    encoding: int
    rows: int
    payloads: Sequence[bytes]
    requests: int = 0
    seconds: float = 0.0
    warmup_s: float = 0.5
    rate: float = 0.0
    seed: int = 1
    timeout_us: int = 0
    poll_us: int = 0
    cpu: int = -1
    expected: Sequence[bytes] = ()
    protocol: int = 0
    credential: bytes = b""
    shapes: bool = False
    tls_host: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoadResult:
    """The figures of a load; latencies are in the histogram, in ns.

    `disconnects` counts connections lost while a request was in flight, each an error, and those
    that an HTTP server closed after a reply (Connection: close), which are no errors: the next
    request opens a new one, within its latency. An HTTP status counts as the native status of the
    same meaning, or as 15. `trouble` says why the load ended early, or is None.
    """

    requests: int
    errors: int
    statuses: dict[int, int]
    mismatches: int
    disconnects: int
    seconds: float
    cpu_seconds: float
    min_ns: int
    max_ns: int
    mean_ns: float
    late: int
    unsent: int
    histogram: Histogram
    trouble: str | None = None


class Load:
    """A load under way: started by the constructor, awaited by `wait`.

    Args:
        plan: what to send.

    Source:
        lumen_load
    """

    def __init__(self, plan: LoadPlan) -> None:
        self._library = library.load()
        self._result = stats_structs.LumenLoadResult()
        self._stop = ctypes.c_uint32(0)
        self._error: EngineError | None = None
        self._buffers: list[Any] = []  # memory that the config points to
        self._config = self._native(plan)
        self._thread = threading.Thread(target=self._run, name="lumen-load", daemon=True)
        self._thread.start()

    def _native(self, plan: LoadPlan) -> stats_structs.LumenLoadConfig:
        payloads = [plan.credential + payload for payload in plan.payloads]
        sizes = {len(payload) for payload in payloads}
        if len(sizes) != 1:
            raise EngineError("payloads: expected one or more, all of one size", structs.E_INVALID)
        expect_bytes = len(plan.expected[0]) if plan.expected else 0
        return stats_structs.LumenLoadConfig(
            host=os.fsencode(plan.host),
            port=plan.port,
            connections=plan.connections,
            model=plan.model,
            encoding=plan.encoding,
            credential=1 if plan.credential else 0,
            shapes=int(plan.shapes),
            rows=plan.rows,
            timeout_us=plan.timeout_us,
            payload_count=len(payloads),
            payloads=self._pointers(payloads),
            payload_bytes=sizes.pop(),
            requests=plan.requests,
            duration_ns=round(plan.seconds * 1e9),
            warmup_ns=round(plan.warmup_s * 1e9),
            rate=plan.rate,
            seed=plan.seed,
            poll_us=plan.poll_us,
            protocol=plan.protocol,
            cpu=plan.cpu,
            expect_bytes=expect_bytes,
            expected=self._pointers(plan.expected) if plan.expected else None,
            tls_host=None if plan.tls_host is None else plan.tls_host.encode("idna"),
        )

    def _pointers(self, blobs: Sequence[bytes]) -> Any:
        copies = [ctypes.create_string_buffer(bytes(blob), len(blob)) for blob in blobs]
        table = (ctypes.c_void_p * len(copies))(*(ctypes.addressof(copy) for copy in copies))
        self._buffers += [copies, table]
        return ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))

    def _run(self) -> None:
        code = self._library.lumen_load(
            ctypes.byref(self._config), ctypes.byref(self._result), ctypes.byref(self._stop)
        )
        if code < 0:
            self._error = EngineError(self._library.lumen_last_error().decode(), code)

    def progress(self) -> tuple[bool, int, int, float]:
        """Reads the live counters: whether it counts yet, requests, errors, counted seconds."""
        result = self._result
        return bool(result.counting), result.requests, result.errors, result.wall_ns / 1e9

    def stop(self) -> None:
        """Ends the load early; its figures stay."""
        self._stop.value = 1

    def wait(self, timeout_s: float | None = None) -> LoadResult | None:
        """Waits for the end.

        Args:
            timeout_s: the longest wait, seconds; None: no limit.

        Returns:
            The result, or None when the time passed first.

        Raises:
            EngineError: no connection, or all were lost before an answer was counted.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return None
        result = self._result
        if self._error is not None and not any(result.statuses):
            raise self._error
        counts = np.frombuffer(bytes(result.buckets), np.uint64)
        return LoadResult(
            requests=result.requests,
            errors=result.errors,
            statuses={status: count for status, count in enumerate(result.statuses) if count},
            mismatches=result.mismatches,
            disconnects=result.disconnects,
            seconds=result.wall_ns / 1e9,
            cpu_seconds=result.cpu_ns / 1e9,
            min_ns=result.min_ns,
            max_ns=result.max_ns,
            mean_ns=result.sum_ns / result.requests if result.requests else float("nan"),
            late=result.late,
            unsent=result.unsent,
            histogram=Histogram(counts, _SUB_BITS, _UNIT_BITS),
            trouble=None if self._error is None else str(self._error),
        )
