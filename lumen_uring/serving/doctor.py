"""The checks of `lumen doctor`: each reads one property of the machine and says what it found.

Called by commands/doctor.py and tests, on the main thread. Files are read below a root that tests
can replace. A check changes nothing, and never reports as well what it could not read.
"""

from __future__ import annotations

import os
import platform
import re
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lumen_uring.errors import LibraryError
from lumen_uring.ring import library, onnxruntime_path
from lumen_uring.ring.probe import (
    BUFFER_RING,
    ProbeReport,
    backend_of_auto,
    probe_as_pretended,
)
from lumen_uring.settings.sizes import format_size

OK: Final = "ok"
NOTE: Final = "note"
PROBLEM: Final = "problem"

_MEMLOCK_ENOUGH: Final = 64 << 20
_MEMORY_ENOUGH: Final = 512 << 20
_MEMORY_UNLIMITED: Final = 1 << 60
_NOFILE_ENOUGH: Final = 16384 + 256  # the default max_connections, and what else is open


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: level is ok, note or problem; cure is empty when there is nothing to do."""

    level: str
    name: str
    found: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that the checks read.

    Args:
        root: the folder that holds proc/ and sys/.
        uring: asks the kernel about io_uring.
    """

    root: Path = Path("/")
    uring: Callable[[], ProbeReport] = probe_as_pretended

    def read(self, path: str) -> str:
        """A small file's text without the final newline; empty when it cannot be read."""
        try:
            return (self.root / path).read_text("utf-8", "replace").strip()
        except OSError:
            return ""


def check_all(machine: Machine) -> list[Finding]:
    """Runs every check.

    Args:
        machine: to read.

    Returns:
        The findings, in reading order.
    """
    findings = [Finding(OK, "kernel", f"{platform.system()} {platform.release()}")]
    try:
        report = machine.uring()
        findings += [*check_io_uring(report), check_backend(report)]
    except ValueError as error:
        findings.append(Finding(PROBLEM, "io_uring", str(error), "unset LUMEN_URING_MASK"))
    findings += [check_engine(), check_runtime(), check_seccomp(machine), check_memlock()]
    findings += [check_nofile(), check_huge_pages(machine), check_governor(machine)]
    findings += [check_numa(machine), check_cgroup(machine), check_cores(machine)]
    findings += [check_memory(machine), check_niceness(), check_shared_memory(machine)]
    return findings


def check_io_uring(report: ProbeReport) -> list[Finding]:
    """Reports which parts of io_uring the kernel allows.

    Args:
        report: as probe gave it.
    """
    if report.trouble is not None:
        trouble = report.trouble
        return [Finding(NOTE, "io_uring", f"{trouble.error}: {trouble.cause}", trouble.cure)]
    missing = [name for name in report.missing if name in ("ACCEPT", "RECV", "SEND", BUFFER_RING)]
    if missing:
        return [
            Finding(
                NOTE,
                "io_uring",
                f"this kernel lacks {', '.join(missing)}",
                "Use a Linux kernel of 6.1 or later.",
            )
        ]
    flags = ", ".join(report.setup) or "none"
    refused = [name for name, result in report.setup_flags.items() if result]
    if refused:
        return [
            Finding(
                NOTE,
                "io_uring",
                f"works with the flags {flags}; refused: {', '.join(refused)}",
                "Use a Linux kernel of 6.1 or later for all of them.",
            )
        ]
    return [Finding(OK, "io_uring", f"all of it; flags {flags}; last opcode {report.last_op}")]


def check_backend(report: ProbeReport) -> Finding:
    """Reports which backend `io_backend: auto` takes, and why.

    Args:
        report: as probe gave it.
    """
    backend, why, cure = backend_of_auto(report)
    level = OK if backend == "io_uring" else NOTE
    return Finding(level, "io_backend", f"auto takes {backend}: {why}", cure)


def check_engine() -> Finding:
    """Finds the C library and loads it."""
    try:
        path = library.find()
        version = library.load().lumen_version().decode()
    except LibraryError as error:
        return Finding(PROBLEM, "engine", "the C library cannot be used", str(error))
    return Finding(OK, "engine", f"{version} at {path}")


def check_runtime() -> Finding:
    """Finds ONNX Runtime without loading it."""
    try:
        path = onnxruntime_path.find()
    except LibraryError as error:
        return Finding(PROBLEM, "runtime", "ONNX Runtime cannot be used", str(error))
    others = "".join(f", {name}" for name in onnxruntime_path.provider_libraries(path))
    return Finding(OK, "runtime", f"ONNX Runtime {onnxruntime_path.version(path)} (cpu{others})")


def check_seccomp(machine: Machine) -> Finding:
    """Reads this process's seccomp mode."""
    match = re.search(r"^Seccomp:\s*(\d+)", machine.read("proc/self/status"), re.MULTILINE)
    if match is None:
        return Finding(NOTE, "seccomp", "the kernel does not report it")
    if match.group(1) == "0":
        return Finding(OK, "seccomp", "no filter")
    return Finding(
        NOTE,
        "seccomp",
        f"a filter is in force (mode {match.group(1)})",
        "If io_uring is refused above, allow it in the container's seccomp profile.",
    )


def check_memlock() -> Finding:
    """Reads the locked-memory limit."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or limit >= _MEMLOCK_ENOUGH or _kernel() >= (5, 12):
        return Finding(OK, "memlock", _limit(limit, format_size))
    return Finding(
        NOTE,
        "memlock",
        f"{format_size(limit)}: rings count against it on kernels before 5.12",
        "ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit.",
    )


def check_nofile() -> Finding:
    """Reads the limit of open files, which bounds connections."""
    # The server raises its own soft limit to what max_connections needs.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= _NOFILE_ENOUGH:
        return Finding(OK, "open files", f"at most {_limit(hard, str)}")
    return Finding(
        NOTE,
        "open files",
        f"at most {_limit(hard, str)}, fewer than max_connections needs by default",
        f"ulimit -Hn {_NOFILE_ENOUGH}, LimitNOFILE= in the systemd unit, or docker run --ulimit "
        f"nofile={_NOFILE_ENOUGH}.",
    )


def check_huge_pages(machine: Machine) -> Finding:
    """Reads the modes of transparent huge pages and the pool of explicit ones."""
    thp = machine.read("sys/kernel/mm/transparent_hugepage/enabled")
    mode = re.search(r"\[(\w+)\]", thp)
    pool = re.search(r"^HugePages_Total:\s*(\d+)", machine.read("proc/meminfo"), re.MULTILINE)
    reserved = pool.group(1) if pool else "unknown"
    found = f"transparent: {mode.group(1) if mode else 'unknown'}; reserved pages: {reserved}"
    if mode and mode.group(1) in ("madvise", "always"):
        return Finding(OK, "huge pages", found)
    return Finding(
        NOTE,
        "huge pages",
        found,
        "As root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )


def check_governor(machine: Machine) -> Finding:
    """Reads the frequency governors of all cores."""
    base = machine.root / "sys/devices/system/cpu"
    governors = {
        path.read_text().strip() for path in base.glob("cpu[0-9]*/cpufreq/scaling_governor")
    }
    if not governors:
        return Finding(OK, "governor", "none here, as on virtual machines: the host decides")
    if governors == {"performance"}:
        return Finding(OK, "governor", "performance")
    return Finding(
        NOTE,
        "governor",
        ", ".join(sorted(governors)),
        "For steady latency, as root: cpupower frequency-set -g performance",
    )


def check_numa(machine: Machine) -> Finding:
    """Counts NUMA nodes."""
    nodes = list((machine.root / "sys/devices/system/node").glob("node[0-9]*"))
    found = f"{max(1, len(nodes))} node(s)"
    if len(nodes) <= 1:
        return Finding(OK, "NUMA", found)
    return Finding(OK, "NUMA", f"{found}; `lumen doctor --plan` shows what a server makes of them")


def check_cgroup(machine: Machine) -> Finding:
    """Reads the cgroup's share of processor time."""
    quota = cgroup_cores(machine)
    if quota is None:
        return Finding(OK, "cgroup", "no limit on processor time")
    return Finding(
        NOTE,
        "cgroup",
        f"limited to {quota:.2f} cores of processor time",
        "A throttled worker stops for tens of ms: prefer a cpuset, or give whole cores.",
    )


def check_memory(machine: Machine) -> Finding:
    """Reads the cgroup's memory limit: the kernel kills a process that exceeds it."""
    limit = cgroup_memory_bytes(machine)
    if limit is None:
        return Finding(OK, "memory", "the cgroup sets no limit")
    found = f"the cgroup may use {limit >> 20} MiB"
    if limit >= _MEMORY_ENOUGH:
        return Finding(OK, "memory", found)
    return Finding(
        NOTE,
        "memory",
        f"{found}: the kernel kills a server that needs more",
        f"Give it {_MEMORY_ENOUGH >> 20} MiB or more (server.arena_bytes is 256 MiB of it, the "
        "rest is ONNX Runtime and the models), or lower server.arena_bytes and "
        "engine.thread_count.",
    )


def check_niceness() -> Finding:
    """Reads this process's niceness, which a server started from here would have."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    if niceness <= 0:
        return Finding(OK, "niceness", f"{niceness}")
    return Finding(
        NOTE,
        "niceness",
        f"{niceness}: a server started from here gives way to every other process",
        "Start it without `nice`, or set Nice=0 in the systemd unit.",
    )


def check_shared_memory(machine: Machine) -> Finding:
    """Checks that the server can make its statistics file."""
    place = machine.root / "dev/shm"
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return Finding(OK, "statistics", f"/{place.relative_to(machine.root)} can be written")
    return Finding(
        NOTE,
        "statistics",
        "/dev/shm cannot be written: `lumen stats` finds no server",
        "Mount a tmpfs there, of mode 1777; 1 MiB is enough for a server.",
    )


def check_cores(machine: Machine) -> Finding:
    """Counts the cores this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    quota = cgroup_cores(machine)
    usable = len(cores) if quota is None else max(1, min(len(cores), int(quota)))
    found = f"{usable} usable (mask: {_ranges(cores)})"
    if usable > 1:
        return Finding(OK, "cores", found)
    return Finding(
        NOTE, "cores", found, "One core does both I/O and inference; give the server two or more."
    )


def cgroup_cores(machine: Machine) -> float | None:
    """Reads the processor time that the cgroup allows: the lowest limit up its tree.

    Args:
        machine: to read.

    Returns:
        Cores; None without a limit.

    Source:
        Documentation/admin-guide/cgroup-v2.rst (cpu.max), cgroup-v1 (cpu.cfs_quota_us)
    """
    limits: list[float] = []
    for version, place in _cgroups(machine, "cpu"):
        if version == 2:
            limits += _quota(*machine.read(f"{place}/cpu.max").split())
        else:
            quota_us = machine.read(f"{place}/cpu.cfs_quota_us")
            limits += _quota(quota_us, machine.read(f"{place}/cpu.cfs_period_us"))
    return min(limits, default=None)


def cgroup_memory_bytes(machine: Machine) -> int | None:
    """Reads the memory that the cgroup allows: the lowest limit up its tree.

    Args:
        machine: to read.

    Returns:
        Bytes; None without a limit.

    Source:
        Documentation/admin-guide/cgroup-v2.rst (memory.max), cgroup-v1 (memory.limit_in_bytes)
    """
    limits = []
    for version, place in _cgroups(machine, "memory"):
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        text = machine.read(f"{place}/{name}")
        # No limit: "max", or with version 1 a number that no machine reaches.
        if text.isdecimal() and int(text) < _MEMORY_UNLIMITED:
            limits.append(int(text))
    return min(limits, default=None)


def _cgroups(machine: Machine, controller: str) -> Iterator[tuple[int, str]]:
    """The version and the folder of each cgroup of this process, from its own up to the root."""
    for line in machine.read("proc/self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        steps = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(steps), -1, -1):
            place = "/".join(steps[:depth])
            if number == "0" and not controllers:
                yield 2, f"sys/fs/cgroup/{place}"
            elif controller in controllers.split(","):
                yield 1, f"sys/fs/cgroup/{controller}/{place}"


def _quota(quota_us: str = "", period_us: str = "") -> list[float]:
    if quota_us.isdecimal() and period_us.isdecimal() and int(period_us) > 0:
        return [int(quota_us) / int(period_us)]
    return []


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])


def _limit(value: int, say: Callable[[int], str]) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else say(value)


def _ranges(cores: list[int]) -> str:
    """Writes sorted core numbers as the kernel does: 0-3,8."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
