"""The doctor's checks on machines that are not this one."""

from __future__ import annotations

import os
from pathlib import Path

import needs
import pytest

from lumen_uring.ring.probe import probe, probe_as_pretended
from lumen_uring.serving import doctor as checks
from lumen_uring.serving.doctor import Machine


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


def test_the_cgroups_of_a_process(tmp_path: Path) -> None:
    """Each from its own up to the root, of both versions, and of no other controller."""
    here = machine(
        tmp_path,
        {
            "proc/self/cgroup": "7:cpuset:/pinned\n4:cpuacct,cpu:/a/../b\n3:memory:/a\n"
            "2:name=cpu:/named\n1::/odd\n0::/x/y:z\n"
        },
    )
    unified = [(2, "sys/fs/cgroup/x/y:z"), (2, "sys/fs/cgroup/x"), (2, "sys/fs/cgroup/")]
    assert list(checks._cgroups(here, "cpu")) == [
        (1, "sys/fs/cgroup/cpu/a/b"),
        (1, "sys/fs/cgroup/cpu/a"),
        (1, "sys/fs/cgroup/cpu/"),
        *unified,
    ]
    assert list(checks._cgroups(here, "memory")) == [
        (1, "sys/fs/cgroup/memory/a"),
        (1, "sys/fs/cgroup/memory/"),
        *unified,
    ]


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
    assert checks.check_numa(never).found.startswith("2 node(s); ")
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


@pytest.mark.parametrize(
    ("release", "limit", "level", "found"),
    [
        ("5.11.22", (64 << 20) - 1, "note", "67108863B: rings count against it"),
        ("5.11.22", 64 << 20, "ok", "64MiB"),
        ("5.11.22", -1, "ok", "unlimited"),
        ("5.12.0", 8192, "ok", "8KiB"),
        ("4.19.0", 8192, "note", "8KiB: rings"),
        ("6.1.0-13-amd64", 8192, "ok", "8KiB"),
    ],
)
def test_locked_memory_matters_to_old_kernels(
    monkeypatch: pytest.MonkeyPatch, release: str, limit: int, level: str, found: str
) -> None:
    monkeypatch.setattr(checks.platform, "release", lambda: release)
    monkeypatch.setattr(checks.resource, "getrlimit", lambda _which: (limit, -1))
    said = checks.check_memlock()
    assert (said.level, bool(said.cure)) == (level, level == "note")
    assert said.found.startswith(found)


@pytest.mark.parametrize(
    ("mask", "quota", "level", "found"),
    [
        ({0, 1}, None, "ok", "2 usable (mask: 0-1)"),
        ({3}, None, "note", "1 usable (mask: 3)"),
        ({0, 1, 2, 3}, "290000 100000", "ok", "2 usable (mask: 0-3)"),
        ({0, 1, 2, 3}, "199999 100000", "note", "1 usable (mask: 0-3)"),
        ({0, 1}, "50000 100000", "note", "1 usable (mask: 0-1)"),
        ({0, 1, 5}, "900000 100000", "ok", "3 usable (mask: 0-1,5)"),
    ],
)
def test_how_many_cores_are_usable(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mask: set[int],
    quota: str | None,
    level: str,
    found: str,
) -> None:
    files = {"proc/self/cgroup": "0::/\n"}
    if quota is not None:
        files["sys/fs/cgroup/cpu.max"] = f"{quota}\n"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: mask)
    said = checks.check_cores(machine(tmp_path, files))
    assert (said.level, said.found, bool(said.cure)) == (level, found, level == "note")


def test_each_limit_of_the_machine_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, level in ((512 << 20, "ok"), ((512 << 20) - 1, "note"), (1 << 60, "ok")):
        files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{limit}\n"}
        said = checks.check_memory(machine(tmp_path, files))
        assert said.level == level
        assert ("no limit" in said.found) == (limit == 1 << 60)
    governor = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    for names, level, found in (
        (["performance", "performance"], "ok", "performance"),
        (["powersave", "performance"], "note", "performance, powersave"),
        (["schedutil"], "note", "schedutil"),
    ):
        root = tmp_path / found
        files = {governor.format(at): f"{name}\n" for at, name in enumerate(names)}
        said = checks.check_governor(machine(root, files))
        assert (said.level, said.found) == (level, found)
    for mode in ("always", "madvise"):
        files = {"sys/kernel/mm/transparent_hugepage/enabled": f"x [{mode}] never\n"}
        said = checks.check_huge_pages(machine(tmp_path / mode, files))
        assert (said.level, said.found) == ("ok", f"transparent: {mode}; reserved pages: unknown")
    nodes = {f"sys/devices/system/node/node{at}/x": "" for at in range(3)}
    assert checks.check_numa(machine(tmp_path / "numa", nodes)).found.startswith("3 ")
    one = {"sys/devices/system/node/node0/x": ""}
    assert checks.check_numa(machine(tmp_path / "one", one)).level == "ok"
    half = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "25000 50000\n"}
    said = checks.check_cgroup(machine(tmp_path / "half", half))
    assert said.found == "limited to 0.50 cores of processor time"
    # The tightest of several, whichever of them is the process's own.
    own = {
        "proc/self/cgroup": "0::/a\n",
        "sys/fs/cgroup/a/memory.max": "2000\n",
        "sys/fs/cgroup/memory.max": "3000\n",
        "sys/fs/cgroup/a/cpu.max": "1 1\n",
        "sys/fs/cgroup/cpu.max": "3 1\n",
    }
    here = machine(tmp_path / "own", own)
    assert (checks.cgroup_memory_bytes(here), checks.cgroup_cores(here)) == (2000, 1.0)


def test_every_finding_has_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs.io_uring()
    monkeypatch.delenv("LUMEN_URING_MASK", raising=False)
    names = [finding.name for finding in checks.check_all(Machine(tmp_path))]
    assert names == [
        "kernel", "io_uring", "io_backend", "engine", "runtime", "seccomp", "memlock",
        "open files", "huge pages", "governor", "NUMA", "cgroup", "cores", "memory", "niceness",
        "statistics",
    ]  # fmt: skip
