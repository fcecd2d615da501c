"""The machine on the metrics page: how busy its processors are, and its memory.

Used by metrics/values.py, at each scrape.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics_core import GaugeMetricFamily, Metric


class CpuMeter:
    """Measures how busy the machine's processors were since the last scrape."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._last = self._read()
        self._value = 0.0

    def utilization(self) -> float:
        """Returns 0..1; the last value again when no time has passed."""
        total, idle = self._read()
        span = total - self._last[0]
        if span > 0:
            self._value = max(0.0, min(1.0, 1 - (idle - self._last[1]) / span))
            self._last = (total, idle)
        return self._value

    def _read(self) -> tuple[int, int]:
        """All time and idle time, in ticks; proc(5), /proc/stat."""
        try:
            words = self._stat.read_text("ascii").split("\n", 1)[0].split()[1:9]
            ticks = [int(word) for word in words]
        except (OSError, ValueError):
            return 0, 0
        return sum(ticks), sum(ticks[3:5])


def memory_bytes(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """Reads the machine's memory, and how much of it is not available.

    Args:
        meminfo: the kernel's list.

    Returns:
        Bytes in all, and bytes in use; 0 and 0 when the list cannot be read.
    """
    try:
        lines = meminfo.read_text("ascii").splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
        return values["MemTotal"], values["MemTotal"] - values["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return 0, 0


def collect(meter: CpuMeter) -> Iterator[Metric]:
    """The three figures, under Triton's names.

    Args:
        meter: since the last scrape.
    """
    total, used = memory_bytes()
    for name, text, value in (
        ("utilization", "CPU utilization rate [0.0 - 1.0]", meter.utilization()),
        ("memory_total_bytes", "CPU total memory (RAM), in bytes", total),
        ("memory_used_bytes", "CPU used memory (RAM), in bytes", used),
    ):
        yield GaugeMetricFamily(f"nv_cpu_{name}", text, value)
