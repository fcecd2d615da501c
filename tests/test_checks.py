"""The doctor's checks on machines that are not this one."""

from __future__ import annotations

import os
from pathlib import Path

import needs
import pytest

from lumen_uring.commands import checks
from lumen_uring.commands.checks import Machine
from lumen_uring.ring.probe import probe, probe_as_pretended


def machine(directory: Path, files: dict[str, str]) -> Machine:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(directory)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        ({"proc/self/cgroup": "0::/../../up\n", "sys/fs/cgroup/up/cpu.max": "1 0\n"}, None),
        ({"proc/self/cgroup": "nonsense\n"}, None),
    ],
)
def test_cgroup_limits(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    here = machine(tmp_path, files)
    assert checks.cgroup_cores(here) == cores
    assert checks.check_cgroup(here).level == ("ok" if cores is None else "note")
    if cores is not None and cores < 2:
        assert checks.check_cores(here).found.startswith("1 usable")


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "62914560\n"}, 60 << 20),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": "4294967296\n",
            },
            4 << 30,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n0::/y\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "104857600\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            100 << 20,
        ),
        ({"proc/self/cgroup": "nonsense\n"}, None),
    ],
)
def test_memory_limits(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    here = machine(tmp_path, files)
    assert checks.cgroup_memory_bytes(here) == limit
    finding = checks.check_memory(here)
    tight = limit is not None and limit < 512 << 20
    assert finding.level == ("note" if tight else "ok")
    assert bool(finding.cure) == tight
    if limit is not None:
        assert f"the cgroup may use {limit >> 20} MiB" in finding.found


def test_niceness_and_the_place_of_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for niceness, level in ((-5, "ok"), (0, "ok"), (7, "note")):
        monkeypatch.setattr(os, "getpriority", lambda *_which, found=niceness: found)
        assert checks.check_niceness().level == level
    assert checks.check_shared_memory(machine(tmp_path, {})).level == "note"
    assert checks.check_shared_memory(machine(tmp_path, {"dev/shm/x": ""})).level == "ok"


def test_a_seccomp_filter_is_noted(tmp_path: Path) -> None:
    assert checks.check_seccomp(machine(tmp_path / "a", {})).level == "note"
    plain = machine(tmp_path / "b", {"proc/self/status": "Name:\tx\nSeccomp:\t0\n"})
    assert checks.check_seccomp(plain).level == "ok"
    strict = machine(tmp_path / "c", {"proc/self/status": "Name:\tx\nSeccomp:\t2\n"})
    assert checks.check_seccomp(strict).level == "note"


def test_huge_pages_governor_and_nodes(tmp_path: Path) -> None:
    never = machine(
        tmp_path,
        {
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
            "proc/meminfo": "HugePages_Total:      12\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
            "sys/devices/system/node/node0/x": "",
            "sys/devices/system/node/node1/x": "",
        },
    )
    assert checks.check_huge_pages(never).found == "transparent: never; reserved pages: 12"
    assert checks.check_huge_pages(never).level == "note"
    assert checks.check_governor(never).level == "note"
    assert checks.check_numa(never).found == "2 node(s)"
    assert checks.check_numa(Machine(tmp_path / "none")).level == "ok"


def test_worse_kernels() -> None:
    needs.io_uring()
    (none,) = checks.check_io_uring(probe({"IO_URING"}))
    assert (none.level, bool(none.cure)) == ("note", True)
    (old,) = checks.check_io_uring(probe({"BUFFER_RING"}))
    assert (old.level, old.found) == ("note", "this kernel lacks BUFFER_RING")
    (middle,) = checks.check_io_uring(probe({"DEFER_TASKRUN"}))
    assert middle.level == "note"
    assert "refused: DEFER_TASKRUN" in middle.found


@pytest.mark.parametrize(
    ("mask", "level", "found"),
    [
        ("", "ok", "auto takes io_uring: "),
        ("defer_taskrun,multishot_accept,kernel=6.6.5", "ok", "auto takes io_uring: "),
        ("setup", "note", "auto takes epoll: ENOSYS: "),
        ("buffer_rings", "note", "auto takes epoll: this kernel lacks BUFFER_RING"),
        ("self_test", "note", "auto takes epoll: self-test: "),
        ("kernel=5.15.0-89-generic", "note", "auto takes epoll: io_uring of Linux 5.15.0-89"),
        ("kernel=6.0.19", "note", "auto takes epoll: io_uring of Linux 6.0.19"),
        ("kernel=6.1.0", "ok", "auto takes io_uring: "),
    ],
)
def test_which_backend_auto_takes(
    monkeypatch: pytest.MonkeyPatch, mask: str, level: str, found: str
) -> None:
    needs.io_uring()
    monkeypatch.setenv("LUMEN_URING_MASK", mask)
    said = checks.check_backend(probe_as_pretended())
    assert (said.level, bool(said.cure)) == (level, level != "ok")
    assert said.found.startswith(found)


def test_a_mask_that_the_server_would_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUMEN_URING_MASK", "setup,nonsense")
    findings = checks.check_all(Machine(tmp_path))
    (problem,) = [finding for finding in findings if finding.level == "problem"]
    assert "nonsense" in problem.found


@pytest.mark.parametrize(
    ("cores", "text"),
    [([0], "0"), ([0, 1], "0-1"), ([0, 2], "0,2"), ([0, 1, 3, 4, 5, 9], "0-1,3-5,9"), ([7], "7")],
)
def test_cores_are_written_as_the_kernel_does(cores: list[int], text: str) -> None:
    assert checks._ranges(cores) == text


@pytest.mark.parametrize(("hard", "level"), [(16639, "note"), (16640, "ok"), (-1, "ok")])
def test_open_files_are_those_of_the_default_max_connections(
    monkeypatch: pytest.MonkeyPatch, hard: int, level: str
) -> None:
    """16384 connections, and 256 beside them; the server raises the soft limit itself."""
    monkeypatch.setattr(checks.resource, "getrlimit", lambda _which: (1024, hard))
    assert checks.check_nofile().level == level
