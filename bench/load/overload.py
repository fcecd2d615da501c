"""`make overload`: twice the requests the server can run, for a minute, and what becomes of them.

A developer's tool. overload_client.c first measures the maximum (closed loop) and the p99 at
ease, then sends Poisson arrivals at twice the maximum, each with a deadline, then looks how soon
the p99 at ease is back: all in one process, so that no time is lost between the end of the overload
and the first look. Accepted are requests with an answer; refused those with status 4 (overloaded)
or 5 (deadline), whose latency is a histogram of its own. It must never count the client's own
limits as the server's: what was sent late, or not at all, is said.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.common import mlp
from bench.common.local_server import ROOT, local_server, squeezenet
from bench.common.measure import machine
from bench.common.places import PLACES, Place, find, pinned
from bench.report.rules import amount
from lumen_uring.ring.histogram import Histogram, bucket_of

CLIENT: Final = ROOT / "c/build/release/bench/load/overload_client"
# The layout of c/src/parts/histogram.h.
_BUCKETS: Final = 1728
_SUB_BITS: Final = 6
_UNIT_BITS: Final = 4
_OK, _OVERLOADED, _DEADLINE = 0, 4, 5
# Back to normal: a p99 within so many times the quiet one, over at least so much.
_NORMAL: Final = 1.5
_WINDOW_REQUESTS: Final = 100
_WINDOW_NS: Final = 100_000_000
_BUSY: Final = 0.9


@dataclass(frozen=True, slots=True)
class Work:
    """A workload: what is sent, by when it is wanted, over how many connections.

    Args:
        encoding: 0 tensors, 1 rgb8.
        payload_bytes: of each request.
        deadline_ms: of each request in the overload.
        connections: in the overload.
        depth: requests out on each of them.
    """

    encoding: int
    payload_bytes: int
    deadline_ms: float
    connections: int
    depth: int


WORKLOADS: Final = {
    "squeezenet": Work(1, 224 * 224 * 3, 100.0, 256, 1),
    # One client thread sends twice what a core can take only if several go out together.
    "mlp": Work(0, 4 * mlp.INPUTS, 10.0, 256, 8),
}


def run_client(
    port: int, work: Work, options: argparse.Namespace, folder: Path
) -> tuple[dict[str, Any], npt.NDArray[np.uint64]]:
    """Runs all four phases against a server whose first model is the workload's.

    Args:
        port: of the server, on 127.0.0.1.
        work: what to send.
        options: as the command line gave them.
        folder: for files that are no longer needed afterwards.

    Returns:
        What the program printed, and of each request of the recovery when it was sent and how long
        it took; ns, uint64 [N, 2].

    Raises:
        RuntimeError: the program failed; holds what it said.
    """
    payload, samples = folder / "payload", folder / "samples"
    # The bytes of small floats: which ones makes no difference to the time.
    values = np.random.default_rng(options.seed).random(work.payload_bytes // 4, np.float32)
    payload.write_bytes(values.tobytes())
    deadline_us = round((options.deadline_ms or work.deadline_ms) * 1e3)
    done = subprocess.run(
        [
            *(str(CLIENT), "127.0.0.1", str(port), "0", str(work.encoding), str(payload)),
            *(str(deadline_us), str(options.connections or work.connections), str(work.depth)),
            *(str(options.calm), str(options.seconds), str(options.calm_seconds)),
            *(str(options.factor), str(options.seed), str(samples)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures, np.fromfile(samples, np.uint64).reshape(-1, 2)


def bucket(value_ns: int) -> int:
    """Where the client counts a latency."""
    return bucket_of(value_ns, _SUB_BITS, _UNIT_BITS)


def histogram(pairs: Sequence[Sequence[int]]) -> Histogram:
    """Makes a histogram of (bucket, count) pairs."""
    counts = np.zeros(_BUCKETS, np.uint64)
    for bucket, count in pairs:
        counts[bucket] = count
    return Histogram(counts, _SUB_BITS, _UNIT_BITS)


def recovery_s(samples: npt.NDArray[np.uint64], limit_ns: float) -> float | None:
    """When the p99 was back to normal.

    Args:
        samples: of each request when it was sent, from the end of the overload on, and how long it
            took; ns, uint64 [N, 2].
        limit_ns: the largest p99 that is normal.

    Returns:
        When the first request was answered from which on, over 100 answers and 0.1 s or more, the
        p99 is normal; s, None when there is none.
    """
    answered_ns = samples.sum(axis=1).astype(np.int64)
    order = np.argsort(answered_ns, kind="stable")
    answered_ns, count = answered_ns[order], len(order)
    slow = np.concatenate(([0], np.cumsum(samples[order, 1] > limit_ns)))
    first = np.arange(count)
    until_ns = answered_ns + _WINDOW_NS
    last = np.maximum(first + _WINDOW_REQUESTS, np.searchsorted(answered_ns, until_ns))
    whole = (last <= count) & (until_ns <= answered_ns.max(initial=0))
    first, last = first[whole], last[whole]
    # By nearest rank, the p99 is normal when no more than the 1 % above its rank are slow.
    allowed = (last - first) - np.ceil((last - first) * 0.99)
    fine = np.flatnonzero(slow[last] - slow[first] <= allowed)
    return float(answered_ns[first[fine[0]]]) / 1e9 if len(fine) else None


def summary(
    figures: Mapping[str, Any], samples: npt.NDArray[np.uint64], deadline_ms: float
) -> dict[str, Any]:
    """Makes the figures that count of what the client printed.

    Args:
        figures: as the client printed them.
        samples: of the recovery.
        deadline_ms: of the overload's requests.

    Returns:
        Figures under stable names; None where there is nothing to tell.
    """
    most, load = figures["maximum"], figures["overload"]
    statuses: list[int] = load["statuses"]
    accepted, refused = histogram(load["accepted"]), histogram(load["refused"])
    quiet = histogram(figures["quiet"]["accepted"])
    maximum_rps = most["statuses"][_OK] / most["seconds"]
    accepted_rps = statuses[_OK] / load["seconds"]
    p99_us = _us(accepted, 99.0)
    normal_ns = quiet.percentile_ns(99.0) * _NORMAL
    return {
        "deadline_ms": deadline_ms,
        "maximum_rps": maximum_rps,
        "offered_rps": load["rate"],
        "sent_rps": load["rate"] - load["unsent"] / load["seconds"],
        "accepted_rps": accepted_rps,
        "accepted_over_maximum": accepted_rps / maximum_rps,
        "accepted_p50_us": _us(accepted, 50.0),
        "accepted_p99_us": p99_us,
        "p99_over_deadline": None if p99_us is None else p99_us / 1e3 / deadline_ms,
        "refused": statuses[_OVERLOADED] + statuses[_DEADLINE],
        "refused_p50_us": _us(refused, 50.0),
        "refused_p99_us": _us(refused, 99.0),
        "quiet_p99_us": _us(quiet, 99.0),
        "recovery_s": None if math.isnan(normal_ns) else recovery_s(samples, normal_ns),
        "recovery_p99_us": _us(histogram(figures["recovery"]["accepted"]), 99.0),
        "statuses": {str(code): count for code, count in enumerate(statuses) if count},
        **{name: load[name] for name in ("late", "unsent", "lost", "client_share")},
        "client_share_at_maximum": most["client_share"],
    }


def _us(values: Histogram, percent: float) -> float | None:
    found_ns = values.percentile_ns(percent)
    return None if math.isnan(found_ns) else found_ns / 1e3


_ROWS: Final = (
    ("maximum_rps", "requests/s at most: closed loop over 64 connections, no deadline", ""),
    ("offered_rps", "requests/s offered in the overload", ""),
    ("accepted_rps", "requests/s accepted and answered in the overload", ""),
    ("accepted_over_maximum", "the same / at most", ">= 0.95"),
    ("accepted_p50_us", "accepted: p50, µs from when it was due", ""),
    ("accepted_p99_us", "accepted: p99", ""),
    ("p99_over_deadline", "accepted: p99 / deadline", "<= 1"),
    ("refused", "refused (status 4 or 5)", ""),
    ("refused_p50_us", "refused: p50, µs", "< 1000"),
    ("refused_p99_us", "refused: p99", ""),
    ("quiet_p99_us", "at ease, before: p99, µs", ""),
    ("recovery_s", f"s after the overload until the p99 is within {_NORMAL} x that", "< 1"),
    ("recovery_p99_us", "at ease, after: p99 of all, µs", ""),
    ("late", "sent more than 1 ms late by the client", ""),
    ("unsent", "never sent: no connection was free, or the client too slow", ""),
    ("lost", "lost with their connection", ""),
    ("client_share", "of its core the client used in the overload", "<= 0.9"),
)


def report(name: str, found: Mapping[str, Any]) -> str:
    """Makes text of one workload's figures.

    Args:
        name: of the workload.
        found: as `summary` gives them.
    """
    lines = [f"{name}, deadline {found['deadline_ms']:g} ms, statuses {found['statuses']}"]
    for key, what, bound in _ROWS:
        value = found[key]
        small = isinstance(value, float) and value < 10
        text = "-" if value is None else f"{value:.3f}" if small else amount(value)
        lines.append(f"  {text:>12}  {bound:8} {what}")
    if max(found["client_share"], found["client_share_at_maximum"]) > _BUSY:
        lines.append("  The client was busy: it may be its limits, not the server's, that show.")
    return "\n".join(lines)


def measure(name: str, options: argparse.Namespace, place: Place) -> dict[str, Any]:
    """Starts a server for one workload, and overloads it.

    Args:
        name: of the workload.
        options: as the command line gave them.
        place: the cores of both.
    """
    work = WORKLOADS[name]
    settings = [f"--set={setting}" for setting in options.set]
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        small = name == "mlp"
        model = str(mlp.write(folder / "mlp.onnx")) if small else squeezenet()
        with (
            local_server(f"--model={name}={model}", *settings, cores=place.server) as server,
            pinned(place.client_cores),
        ):
            figures, samples = run_client(server.port, work, options, folder)
    return summary(figures, samples, options.deadline_ms or work.deadline_ms)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    found.add_argument("--workloads", default=",".join(WORKLOADS), help="(%(default)s)")
    found.add_argument("--seconds", type=float, default=60.0, help="of overload (%(default)s)")
    found.add_argument(
        "--calm-seconds", type=float, default=5.0, help="of each other phase (%(default)s)"
    )
    found.add_argument("--factor", type=float, default=2.0, help="of the maximum (%(default)s)")
    found.add_argument("--deadline-ms", type=float, default=0.0, help="instead of the workload's")
    found.add_argument("--connections", type=int, default=0, help="instead of the workload's")
    found.add_argument("--calm", type=int, default=4, help="connections at ease (%(default)s)")
    found.add_argument("--place", choices=PLACES, default="one-core", help="(%(default)s)")
    found.add_argument("--set", action="append", default=[], help="passed on to the server")
    found.add_argument("--seed", type=int, default=1, help="of the arrivals (%(default)s)")
    found.add_argument("--json", action="store_true", help="as one JSON object")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    options = parser().parse_args(arguments)
    place = find(options.place)
    results = {}
    for name in options.workloads.split(","):
        if name not in WORKLOADS:
            sys.exit(f"--workloads: expected {', '.join(WORKLOADS)}, found {name!r}")
        print(f"{name}: {options.seconds:g} s of overload", file=sys.stderr)
        results[name] = measure(name, options, place)
        if not options.json:
            print(report(name, results[name]), flush=True)
    if options.json:
        about = {"machine": machine(), "place": place.words, "seconds": options.seconds}
        print(json.dumps({**about, "workloads": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
