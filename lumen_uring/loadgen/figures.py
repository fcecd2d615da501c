"""The output of `lumen bench`: the figures of a load, its errors by name, and its limits.

Called by commands/bench.py, on the main thread.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import LumenError
from lumen_uring.options import TOKEN_VARIABLE

if TYPE_CHECKING:
    from lumen_uring.ring.load import LoadPlan, LoadResult

_PERCENTS: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9, "p9999": 99.99}
# A generator busier than this may have limited the figures.
_BUSY: Final = 0.9
_TELLING_S: Final = 0.2  # a shorter run says nothing about the generator
# The name of each status (docs/PROTOCOL.md), and the setting that bounds it, if one does.
_STATUSES: Final = {
    1: ("bad request", ""),
    2: ("unknown model", ""),
    3: ("too large", "server.max_request_bytes bounds a request."),
    4: (
        "overloaded",
        "the server was full (server.max_in_flight bounds the requests in flight; try fewer "
        "connections), or over HTTP it may have been shutting down: its log says which.",
    ),
    5: ("deadline passed", "--timeout-us, or else server.default_timeout_ms, is the deadline."),
    6: (
        "unauthorised",
        f"the server has keys; give a token with --token-file or {TOKEN_VARIABLE}.",
    ),
    7: ("rate limited", "the rate of the key, of the model or of the server is used up."),
    8: ("inference failed", ""),
    9: ("shutting down", ""),
    15: ("other HTTP status", ""),
}


def as_json(result: LoadResult, server_cpu_seconds: float | None) -> dict[str, Any]:
    """The figures under stable names.

    Args:
        result: of the load.
        server_cpu_seconds: the server's, warm-up included; None when it is not of this machine.

    Returns:
        What --json prints; latencies in µs, null where there are none.
    """
    latency: dict[str, float | None] = {
        "min": result.min_ns / 1e3 if result.requests else None,
        "mean": result.mean_ns / 1e3 if result.requests else None,
    }
    for name, percent in _PERCENTS.items():
        value = result.histogram.percentile_ns(percent)
        latency[name] = None if math.isnan(value) else value / 1e3
    latency["max"] = result.max_ns / 1e3 if result.requests else None
    return {
        "requests": result.requests,
        "errors": result.errors,
        "seconds": result.seconds,
        "throughput_rps": result.requests / result.seconds if result.seconds else 0.0,
        "latency_us": latency,
        "client_cpu_seconds": result.cpu_seconds,
        "server_cpu_seconds": server_cpu_seconds,
        "statuses": {str(status): number for status, number in result.statuses.items()},
        "errors_by_name": errors_by_name(result),
        "ended_early": result.trouble,
        "mismatches": result.mismatches,
        "disconnects": result.disconnects,
        "late": result.late,
        "unsent": result.unsent,
    }


def errors_by_name(result: LoadResult) -> dict[str, int]:
    """Names the errors, the most frequent first.

    Args:
        result: of the load.

    Returns:
        How many of each kind; their sum is result.errors.
    """
    found = {
        _STATUSES.get(status, (f"status {status}", ""))[0]: number
        for status, number in result.statuses.items()
        if status
    }
    found["wrong answer"] = result.mismatches
    found["connection lost"] = result.errors - sum(found.values())
    return {name: number for name, number in sorted(found.items(), key=_by_count) if number > 0}


def _by_count(entry: tuple[str, int]) -> int:
    return -entry[1]


def warnings(plan: LoadPlan, result: LoadResult) -> list[str]:
    """Says which limit bounded the figures: one of the server's, or the generator's.

    Args:
        plan: what was to be sent.
        result: what came of it.

    Returns:
        Sentences, none when all is well.
    """
    found = []
    if result.trouble is not None:
        found.append(
            f"{result.trouble} after {result.seconds:.1f} s: the figures cover only that time."
        )
    found += [
        f"{number} {name}: {hint}"
        for status, (name, hint) in _STATUSES.items()
        if hint and (number := result.statuses.get(status, 0))
    ]
    if result.seconds > _TELLING_S and result.cpu_seconds / result.seconds > _BUSY:
        share = f"{result.cpu_seconds / result.seconds:.0%}"
        found.append(f"the generator used {share} of its core: it may have been the bottleneck.")
    if plan.rate and result.unsent:
        found.append(
            f"{result.unsent} requests were due but never sent: the server is slower than --rate, "
            "or --connections is too small."
        )
    elif plan.rate and result.requests and result.late > result.requests / 100:
        found.append(
            f"{result.late} requests were sent more than 1 ms late: no connection was free, or the "
            "generator did not get its core. Their latency counts from when they were due."
        )
    return found


def write_histogram(path: Path, result: LoadResult) -> None:
    """Writes every bucket that is not empty, as CSV.

    Args:
        path: the file to write.
        result: of the load.

    Raises:
        LumenError: it cannot be written.
    """
    import numpy as np

    histogram = result.histogram
    rows = [
        f"{histogram.midpoint_ns(int(index)) / 1e3:.3f},{histogram.counts[index]}"
        for index in np.flatnonzero(histogram.counts)
    ]
    try:
        path.write_text("latency_us,count\n" + "\n".join(rows) + "\n")
    except OSError as error:
        raise LumenError(f"--histogram: {path} cannot be written: {error.strerror}.") from None


def show_progress(progress: tuple[bool, int, int, float]) -> None:
    """Shows how far the load is, on a line of stderr that the next call replaces.

    Args:
        progress: of Load.progress.
    """
    counting, requests, errors, seconds = progress
    rate = requests / seconds if seconds else 0.0
    text = f"{seconds:6.1f} s  {requests} answered  {rate:.0f}/s  {errors} errors"
    print(f"\r{text if counting else 'warming up'}\033[K", end="", file=sys.stderr, flush=True)


def show(plan: LoadPlan, figures: dict[str, Any]) -> None:
    """Prints the figures for a person.

    Args:
        plan: what was to be sent.
        figures: of as_json.
    """
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    loop = f"open loop at {plan.rate:g}/s" if plan.rate else "closed loop"
    print(f"{plan.connections} connections, {loop}, {figures['seconds']:.1f} s")
    print(
        f"  {figures['requests']} answered, {figures['errors']} errors, "
        f"{figures['throughput_rps']:.1f} requests/s"
    )
    if figures["errors_by_name"]:
        kinds = [f"{number} {name}" for name, number in figures["errors_by_name"].items()]
        print(f"  errors: {', '.join(kinds)}")
    cells = [f"{name} {value:.0f}" for name, value in figures["latency_us"].items() if value]
    print("  latency µs  " + "  ".join(cells))
    server = figures["server_cpu_seconds"]
    print(
        f"  CPU seconds: generator {figures['client_cpu_seconds']:.2f}"
        + ("" if server is None else f", server {server:.2f} (with the warm-up)")
    )
