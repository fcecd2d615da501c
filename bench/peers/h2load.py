"""Loads a server with h2load: HTTP/1.1, HTTP/2 and what travels on it, with and without TLS.

Called by gateway.py, grpc_compare.py and tls_compare.py. h2load is a loop in C: each connection
always has the same number of requests under way, or sends at a rate. It knows HTTP's status alone:
a call of gRPC that fails has an answer without data.
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
_GOOD: Final = re.compile(r"status codes: (\d+) 2xx")
_DATA: Final = re.compile(r"\((\d+)\) data")


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent over and over: `url` names the server and the path; without a body, a GET."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    is_http1: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """The figures of a load: answers with a status of 200 to 299, the bytes of all bodies, and
    latencies in µs."""

    good: int
    data_bytes: int
    throughput_rps: float
    p50_us: float
    p99_us: float


def found() -> bool:
    """Whether h2load is installed."""
    return shutil.which("h2load") is not None


def load(request: Request, connections: int, streams: int, count: int, rate_rps: float = 0) -> Load:
    """Sends so many requests.

    Args:
        request: what to send.
        connections: of the client.
        streams: requests at a time on each.
        count: of the requests.
        rate_rps: requests a second of each connection; 0: as fast as they are answered.

    Raises:
        RuntimeError: h2load failed; holds what it said.
    """
    words = ["h2load", *(["--h1"] if request.is_http1 else []), "-t1", f"-c{connections}"]
    words += [f"-m{streams}", f"-n{count}", "-w30", "-W30"]
    words += ["--rps", f"{rate_rps:g}"] if rate_rps else []
    for name, value in request.headers.items():
        words += ["-H", f"{name}: {value}"]
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        if request.body:
            body.write_bytes(request.body)
            words += ["-d", str(body)]
        words += [f"--log-file={log}", request.url]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        rate, good, data = (each.search(done.stdout) for each in (_RATE, _GOOD, _DATA))
        if done.returncode or not (rate and good and data) or not log.exists():
            raise RuntimeError(f"h2load failed: {(done.stderr or done.stdout).strip()}")
        # Each line: when it began, its status, how long it took; µs.
        times = np.array([int(line.split()[2]) for line in log.read_text().splitlines()] or [0])
    p50, p99 = (float(value) for value in np.percentile(times, (50, 99)))
    return Load(int(good[1]), int(data[1]), float(rate[1]), p50, p99)
