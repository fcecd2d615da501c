"""The crowd for c10k.py: processes of c10k.c, and the memory they cause.

Reads what the processes report on a thread each; nothing here is on a measured path. It must never
guess at memory: what the kernel does not say is NaN or left out.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from bench.common.local_server import ROOT, LocalServer
from lumen_uring import Client
from lumen_uring.protocol.describe import DTYPES
from lumen_uring.ring.stats import stats_path

PROGRAM: Final = ROOT / "c/build/release/bench/crowd/c10k"
BESIDE: Final = 512  # descriptors that a process needs for other things than the crowd
# Caches that connections and their armed receives live in. Others grow too meanwhile, for others:
# proc_inode_cache and a second dentry by whoever looks at /proc/PID/fd, for one.
_OF_CONNECTIONS: Final = ("TCP", "sock_inode", "filp", "dentry", "io_kiocb", "kmalloc", "lsm_")
_KERNEL: Final = ("Slab", "PageTables", "KernelStack", "VmallocUsed", "Percpu")
_SUMS: Final = ("connected", "away", "failed", "lost", "shed", "churned", "answers", "refusals")
_Started = TypeVar("_Started", bound="Crowd")


@dataclass(frozen=True, slots=True)
class Habits:
    """What the connections do.

    Args:
        slow: how many send a byte every now and then; the others send nothing.
        churn: reconnects a second, of those that send nothing.
        period_ms: between two bytes of a slow one.
        kinds: of slow ones, in turn: frame, head, body.
    """

    slow: int = 0
    churn: float = 0.0
    period_ms: float = 1000.0
    kinds: str = "frame,head,body"


def connections_per_process() -> int:
    """How many connections one process may have here with a descriptor for each."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard - BESIDE


def user_bytes(pid: int) -> int:
    """Anonymous memory of a process, its share of what is shared; bytes.

    Source:
        /proc/PID/smaps_rollup, Pss_Anon
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, *words = line.split()
        if name == "Pss_Anon:":
            return int(words[0]) * 1024
    raise RuntimeError("this kernel's smaps_rollup has no Pss_Anon: Linux 5.9 or later has")


def kernel_bytes() -> int:
    """What the kernel holds for itself, on the whole machine; bytes.

    Source:
        /proc/meminfo: slabs (sockets, files, armed receives), tables of descriptors and pages
    """
    lines = Path("/proc/meminfo").read_text().splitlines()
    words = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    return sum(int(words[name][0]) for name in _KERNEL if name in words) * 1024


def slab_caches() -> dict[str, int]:
    """Bytes in the kernel's slab caches that connections use; empty without privilege.

    Source:
        /proc/slabinfo: active objects times their size
    """
    try:
        lines = Path("/proc/slabinfo").read_text().splitlines()[2:]
    except OSError:
        return {}
    rows = [line.split() for line in lines]
    sizes = {row[0]: int(row[1]) * int(row[3]) for row in rows}
    return {name: size for name, size in sizes.items() if name.startswith(_OF_CONNECTIONS)}


def _reap(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def request_bytes(server: LocalServer) -> int:
    """Bytes of a request's tensors, for one row of the server's first model."""
    with Client("127.0.0.1", server.port) as client:
        model = next(model for model in client.models().values() if model.index == 0)
    shapes = [(DTYPES[tensor.datatype], tensor.shape) for tensor in model.inputs]
    return sum(dtype.itemsize * math.prod(max(1, n) for n in shape) for dtype, shape in shapes)


class Crowd:
    """Connections to a server, from as many processes as it takes; a context manager.

    Args:
        server: a running one.
        count: of connections.
        habits: of all of them; slow ones and churn are divided evenly.
    """

    def __init__(self, server: LocalServer, count: int, habits: Habits) -> None:
        self.process_count = processes = -(-count // connections_per_process())
        counts = [count // processes + (i < count % processes) for i in range(processes)]
        self.table_entry_bytes = 0
        self.curve: list[tuple[float, int]] = [(0.0, 0)]
        self._threads: list[threading.Thread] = []
        self._began_s = 0.0
        self._lock = threading.Lock()
        self._last: list[dict[str, Any]] = [{} for _ in counts]
        self._processes = [
            self._start(server, index, part, habits, count) for index, part in enumerate(counts)
        ]
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                self.close()
                raise RuntimeError("the crowd did not start: see above")
            self.table_entry_bytes = int(json.loads(line)["table_entry_bytes"])
        self._threads = [
            threading.Thread(target=self._listen, args=(index,), daemon=True)
            for index in range(processes)
        ]

    @staticmethod
    def _start(
        server: LocalServer, index: int, count: int, habits: Habits, total: int
    ) -> subprocess.Popen[str]:
        options = {
            "process": index,
            "port": server.port,
            "connections": count,
            "slow": habits.slow * count // total,
            "churn": habits.churn * count / total,
            "period-ms": habits.period_ms,
            "kinds": habits.kinds,
            "body-bytes": request_bytes(server) if habits.slow else 1,
            "stats": stats_path(server.port),
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        return subprocess.Popen(
            [PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self: _Started) -> _Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Lets them connect, one process after the other; returns at once."""
        self._began_s = time.monotonic()
        for thread in self._threads:
            thread.start()
        self._go(0)

    def _go(self, index: int) -> None:
        stdin = self._processes[index].stdin
        assert stdin is not None
        stdin.write("go\n")
        stdin.flush()

    def _listen(self, index: int) -> None:
        stdout = self._processes[index].stdout
        assert stdout is not None
        for line in stdout:
            with self._lock:
                before, now = self._last[index].get("phase"), json.loads(line)
                self._last[index] = now
                if now["phase"] == "held" != before and index + 1 < self.process_count:
                    self._go(index + 1)
                connected = sum(last.get("connected", 0) for last in self._last)
                if self._last[index]["phase"] == "ramp" or not self._is_flat(connected):
                    self.curve.append((time.monotonic() - self._began_s, connected))

    def _is_flat(self, connected: int) -> bool:
        return self.curve[-1][1] == connected

    def is_held(self) -> bool:
        """Whether all of them are in, or will never be."""
        with self._lock:
            return all(last.get("phase") in ("held", "done") for last in self._last)

    def totals(self) -> dict[str, Any]:
        """What the processes said last, added up.

        Raises:
            RuntimeError: one of them has died.
        """
        for process in self._processes:
            if process.poll() not in (None, 0):
                raise RuntimeError("a process of the crowd ended early: see above")
        with self._lock:
            last = [dict(each) for each in self._last]
        sums: dict[str, Any] = {name: sum(each.get(name, 0) for each in last) for name in _SUMS}
        ramp_s = sum(each.get("ramp_seconds", 0.0) for each in last)
        connects = sum(
            each.get("connects_per_second", 0) * each.get("ramp_seconds", 0.0) for each in last
        )
        sums["ramp_seconds"] = ramp_s
        sums["connects_per_second"] = round(connects / ramp_s) if ramp_s else 0
        spreads = [each["connect_us"] for each in last if "connect_us" in each]
        sums["connect_us"] = {
            name: max((spread[name] for spread in spreads), default=0.0) for name in ("p50", "p99")
        }
        return sums

    def close(self) -> None:
        """Ends the connections by reset, and the processes. May be called twice."""
        for process in self._processes:
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
        for process in self._processes:
            _reap(process)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for process in self._processes:
            if process.stdout is not None:
                process.stdout.close()
