"""One load on one local server, and what both sides say of it.

Used by perfstat.py, bench.py, compare.py and http_overhead.py. The C load generator sends;
the server's statistics and CPU time are read when its warm-up is over and when it has ended, so
that all figures are of the same requests. It must never do anything between those two readings but
wait.
"""

from __future__ import annotations

import datetime
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnxruntime  # type: ignore[import-untyped,unused-ignore]

from bench.common.local_server import LocalServer
from lumen_uring.cli import make_parser
from lumen_uring.commands.bench import make_plan
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.load import Load, LoadPlan, LoadResult
from lumen_uring.ring.snapshot import Snapshot, delta
from lumen_uring.ring.stats import read, stats_path

PERCENTS: Final = {"p50": 50.0, "p99": 99.0, "p999": 99.9}
_POLL_S: Final = 0.002
_CPUCLOCK_SCHED: Final = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What load to put on a server.

    Args:
        model: its name there.
        connections: each has one request at a time.
        seconds: counted time.
        warmup_s: before that.
        rate: arrivals a second (open loop); 0: closed loop.
        encoding: auto, tensors or rgb8.
        cpu: core to pin the generator to; -1: none.
        poll_us: how long it looks for answers before it sleeps.
        seed: of the payloads and the arrivals.
        protocol: native or http.
    """

    model: str
    connections: int
    seconds: float
    warmup_s: float = 0.5
    rate: float = 0.0
    encoding: str = "auto"
    cpu: int = -1
    poll_us: int = 0
    seed: int = 1
    protocol: str = "native"


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What came of it: the generator's figures, the server's own, and its CPU seconds."""

    load: LoadResult
    server: Snapshot
    cpu_s: float

    @property
    def throughput_rps(self) -> float:
        """Answers with status 0 a second, as the generator counted them."""
        return self.load.requests / self.load.seconds if self.load.seconds else 0.0

    @property
    def cpu_us_per_request(self) -> float:
        """The server's CPU time per request it ran; µs, NaN where it ran none."""
        served = self.server.counters["worker"]["requests_ok"]
        return self.cpu_s * 1e6 / served if served else math.nan


def process_cpu_s(pid: int) -> float:
    """CPU time of all threads of a process so far; seconds.

    Source:
        clock_getcpuclockid(3), whose number for a process is (~pid << 3) | CPUCLOCK_SCHED
    """
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def memory_mib(pid: int) -> dict[str, float]:
    """Resident memory of a process, by the kernel's names: Rss, Pss, Pss_Anon and others; MiB.

    Source:
        proc_pid_smaps(5), smaps_rollup
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name[:-1]: int(kib) / 1024 for name, kib, *_ in (line.split() for line in lines)}


def machine_cpu_s() -> float:
    """CPU time of all cores so far, whoever used it; seconds, in steps of 10 ms.

    Source:
        proc_stat(5): all columns of `cpu` but idle and iowait, the fourth and the fifth
    """
    with open("/proc/stat") as stat:
        ticks = [int(field) for field in stat.readline().split()[1:9]]
    return (sum(ticks) - sum(ticks[3:5])) / os.sysconf("SC_CLK_TCK")


def plan_of(server: LocalServer, shape: Shape) -> LoadPlan:
    """Makes the plan of a load.

    Args:
        server: a running one that serves shape.model.
        shape: what to send.

    Raises:
        LumenError: no such model, or no connection.
    """
    scheme = {"native": "lumen", "http": "http"}[shape.protocol]
    words = [
        *("bench", f"--url={scheme}://127.0.0.1:{server.port}", f"--model={shape.model}"),
        *(f"--connections={shape.connections}", f"--seconds={shape.seconds}"),
        *(f"--warmup={shape.warmup_s}", f"--rate={shape.rate}", f"--seed={shape.seed}"),
        *(f"--encoding={shape.encoding}", f"--cpu={shape.cpu}", f"--poll-us={shape.poll_us}"),
    ]
    return make_plan(make_parser().parse_args(words))


def start(plan: LoadPlan) -> Load:
    """Starts a load; returns once its warm-up is over.

    Raises:
        LumenError: no connection.
    """
    load = Load(plan)
    while not load.progress()[0] and load.wait(_POLL_S) is None:
        pass
    return load


def measure(
    server: LocalServer, shape: Shape, during: Callable[[], None] | None = None
) -> Measured:
    """Runs one load to its end.

    Args:
        server: a running one.
        shape: what to send.
        during: called while the load runs, once counting has begun.

    Raises:
        LumenError: no such model, no connection, or the server was restarted meanwhile.
    """
    return measure_plan(server, plan_of(server, shape), during)


def measure_plan(
    server: LocalServer, plan: LoadPlan, during: Callable[[], None] | None = None
) -> Measured:
    """Runs one load to its end, as `measure` does, of a plan made before."""
    load = start(plan)
    path = stats_path(server.port)
    before, cpu_before = read(path), process_cpu_s(server.pid)
    try:
        if during is not None:
            during()
    except BaseException:
        load.stop()
        load.wait()
        raise
    result = load.wait()
    assert result is not None
    after, cpu_after = read(path), process_cpu_s(server.pid)
    return Measured(result, delta(after, before), cpu_after - cpu_before)


def spread_us(histogram: Histogram) -> dict[str, float | None]:
    """Mean and percentiles of a histogram under stable names; µs, None where it is empty."""
    values = {"mean": histogram.mean_ns()}
    values |= {name: histogram.percentile_ns(percent) for name, percent in PERCENTS.items()}
    return {name: None if math.isnan(ns) else ns / 1e3 for name, ns in values.items()}


def machine() -> dict[str, Any]:
    """What the figures were measured on, as a reader needs it to judge them."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model = value.strip()
            break
    virtual = Path("/sys/hypervisor/type").exists() or " hypervisor" in _flags()
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "virtual": virtual,
        **frequency(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "date": datetime.date.today().isoformat(),
    }


def frequency(root: Path = Path("/sys/devices/system/cpu")) -> dict[str, str]:
    """What decides the frequency of the cores: the governors of those used, and turbo.

    Args:
        root: the folder of cores in sysfs.
    """
    governors = {
        _first_line(root / f"cpu{core}/cpufreq/scaling_governor")
        for core in os.sched_getaffinity(0)
    } - {""}
    boost = {"1": "on", "0": "off"}.get(_first_line(root / "cpufreq/boost"))
    no_turbo = {"0": "on", "1": "off"}.get(_first_line(root / "intel_pstate/no_turbo"))
    return {
        "governor": ", ".join(sorted(governors)) or "unknown: the host decides",
        "turbo": boost or no_turbo or "unknown",
    }


def _first_line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _flags() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return line
    return ""
