"""Loads a server with h2load: HTTP/1.1, HTTP/2 and what travels on it, with and without TLS.

Called by grpc_compare.py. h2load is a closed loop in C: so many requests at a time per connection.
It knows HTTP's status alone: whoever asks it for gRPC checks an answer before.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

MISSING: Final = "h2load is not installed (Debian: apt-get install nghttp2-client)"
_RATE: Final = re.compile(r"finished in [\d.]+\S+, ([\d.]+) req/s")
_COUNTS: Final = re.compile(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout")


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent over and over: `url` names the server and the path; without a body, a GET."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    is_http1: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """The figures of a load; latencies in µs."""

    requests: int
    errors: int
    throughput_rps: float
    p50_us: float
    p99_us: float


def found() -> bool:
    """Whether h2load is installed."""
    return shutil.which("h2load") is not None


def load(request: Request, connections: int, streams: int, count: int) -> Load:
    """Sends so many requests.

    Args:
        request: what to send.
        connections: of the client.
        streams: requests at a time on each.
        count: of the requests.

    Raises:
        RuntimeError: h2load failed; holds what it said.
    """
    words = ["h2load", *(["--h1"] if request.is_http1 else []), "-t1", f"-c{connections}"]
    words += [f"-m{streams}", f"-n{count}", "-w30", "-W30"]
    for name, value in request.headers.items():
        words += ["-H", f"{name}: {value}"]
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        if request.body:
            body.write_bytes(request.body)
            words += ["-d", str(body)]
        words += [f"--log-file={log}", request.url]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        rate, counts = _RATE.search(done.stdout), _COUNTS.search(done.stdout)
        if done.returncode or rate is None or counts is None or not log.exists():
            raise RuntimeError(f"h2load failed: {(done.stderr or done.stdout).strip()}")
        # Each line: when it began, its status, how long it took; µs.
        times = np.array([int(line.split()[2]) for line in log.read_text().splitlines()] or [0])
    succeeded, failed, _errored, _timeout = map(int, counts.groups())  # failed holds the others
    p50, p99 = (float(value) for value in np.percentile(times, (50, 99)))
    return Load(succeeded, failed, float(rate.group(1)), p50, p99)
