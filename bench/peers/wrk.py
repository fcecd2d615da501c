"""Loads an HTTP server with wrk, from a core of its own where there is one to spare.

Called by compare.py and http_live.py. wrk is a closed loop in C, as Lumen's generator is: one
request at a time per connection. It never measures its own start.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_SCRIPT: Final = Path(__file__).resolve().parent / "load.lua"
_RESULT: Final = "RESULT "
MISSING: Final = "wrk is not installed (Debian: apt-get install wrk)"


def found() -> bool:
    """Whether wrk is installed."""
    return shutil.which("wrk") is not None


def load(
    url: str, body: bytes, headers: Mapping[str, str], connections: int, seconds: float
) -> dict[str, Any]:
    """Sends one request over and over.

    Args:
        url: where to.
        body: of each request; empty: a GET without one.
        headers: of each request.
        connections: each has one request at a time.
        seconds: for how long; wrk knows whole ones.

    Returns:
        requests, seconds, errors; mean, p50, p99 and p999 in µs; client_share, the part of its
        core's time that wrk used.

    Raises:
        RuntimeError: wrk failed; holds what it said.
    """
    lines = "\n".join(f"{name}={value}" for name, value in headers.items())
    before_s = _children_cpu_s()
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        done = subprocess.run(
            [
                *("wrk", "-t1", f"-c{connections}", f"-d{math.ceil(seconds)}s"),
                *("--timeout", "30s", "-s", str(_SCRIPT), url),
            ],
            env={**os.environ, "LUMEN_BODY": file.name if body else "", "LUMEN_HEADERS": lines},
            capture_output=True,
            text=True,
            check=False,
        )
    used_s = _children_cpu_s() - before_s
    for line in done.stdout.splitlines():
        if line.startswith(_RESULT):
            result: dict[str, Any] = json.loads(line.removeprefix(_RESULT))
            return {**result, "client_share": used_s / result["seconds"]}
    raise RuntimeError(f"wrk failed: {(done.stderr or done.stdout).strip()}")


def _children_cpu_s() -> float:
    """CPU time of the children that have ended; nothing else may end while wrk runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
