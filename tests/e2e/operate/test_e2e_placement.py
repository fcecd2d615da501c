"""Where a server's threads run and its memory lies, and what it may not have."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import graphs
import harness
import needs
import numpy as np
import pytest
from conftest import Serve
from harness import Server

from bench.common.places import pinned
from lumen_uring import Client
from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # where threads run: the same on both backends


def settings(folder: Path) -> dict[str, object]:
    return {
        "server": {"arena_bytes": "16MiB", "max_request_bytes": "64KiB"},
        "models": [{"name": "double", "path": str(graphs.double(folder / "double.onnx"))}],
    }


def test_the_plan_of_a_captured_machine(cache: Path, tmp_path: Path) -> None:
    files = {
        "proc/self/status": "Cpus_allowed_list:\t1-3\n",
        "proc/self/cgroup": "0::/\n",
        "sys/devices/system/cpu/online": "0-3\n",
        "sys/devices/system/cpu/present": "0-7\n",
        "sys/devices/system/cpu/cpu2/topology/thread_siblings_list": "2-3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    arguments = ["doctor", "--plan", "--root", str(tmp_path), "builtin:digits"]
    environment = {"LUMEN_ENGINE__QUEUE_TYPE": "mpmc"}
    lines = harness.run(arguments, cache, extra_environment=environment).stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "cores 4-7 are offline" in lines
    assert "  worker 2: core 3: no physical core is left without a worker" in lines
    done = harness.run([*arguments, "--json"], cache, extra_environment=environment)
    assert (
        "  workers 0-1: cores 1-2, one each: it shares its physical core with no other"
        in (json.loads(done.stdout)["plan"])
    )


def test_cores_by_number(cache: Path, serve: Serve, tmp_path: Path) -> None:
    refused = harness.run(["serve", "--set", "engine.cores=0,8191", "--port", "0"], cache)
    assert refused.returncode == 1
    assert re.search(
        r"engine\.cores: expected cores of \d.*, found 8191, which this", refused.stderr
    )
    core = sorted(os.sched_getaffinity(0))[-1]
    server = serve({**settings(tmp_path), "engine": {"cores": str(core), "thread_count": 1}})
    threads = Path(f"/proc/{server.pid}/task").iterdir()
    masks = {
        (thread / "comm").read_text().strip(): os.sched_getaffinity(int(thread.name))
        for thread in threads
    }
    assert {name: mask for name, mask in masks.items() if name.startswith("lumen-")} == {
        name: {core} for name in masks if name.startswith("lumen-")
    }
    assert any(name.startswith("lumen-w") for name in masks)


def threads_of(server: Server) -> dict[int, str]:
    """The numbers and names of the engine's threads."""
    names = {
        int(thread.name): (thread / "comm").read_text().strip()
        for thread in Path(f"/proc/{server.pid}/task").iterdir()
    }
    return {number: name for number, name in names.items() if name.startswith("lumen-")}


def status(server: Server, name: str) -> str:
    text = Path(f"/proc/{server.pid}/status").read_text()
    match = re.search(rf"^{name}:\s*(.*)$", text, re.MULTILINE)
    assert match is not None
    return match.group(1)


def ask(server: Server, x: np.ndarray) -> np.ndarray:
    with Client("127.0.0.1", server.port) as client:
        return client.infer("double", {"x": x}).outputs["y"]


ISOLATED = {"real_time": 3, "lock_memory": True, "huge_pages": "explicit", "flush_denormals": True}
# As root too, a server of this has no rights and no limits that stand for them.
ORDINARY = ("prlimit", "--memlock=65536", "--rtprio=0", "setpriv", "--bounding-set=-all")


def test_isolation(serve: Serve, tmp_path: Path) -> None:
    """What this machine allows is there; what it does not is said in a line."""
    config = {**settings(tmp_path), "engine": {"thread_count": 2, **ISOLATED}}
    server = serve(config, options=("--port", "0", "--set", "engine.queue_type=mpmc"))
    said = server.output
    policies = {os.sched_getscheduler(number) & 0xFF for number in threads_of(server)}
    if "engine.real_time" in said:
        assert policies == {os.sched_getscheduler(0)}
    else:
        assert os.SCHED_FIFO in policies
        assert os.sched_getscheduler(server.pid) == os.sched_getscheduler(0)
    if not harness.sanitized():  # whose runtime locks none
        assert ("engine.lock_memory" in said) == (status(server, "VmLck") == "0 kB")
    assert "engine.flush_denormals" not in said
    small = np.full((1, 16), 1e-40, np.float32)
    assert (ask(server, small) == 0).all()


def test_what_an_ordinary_user_may_not_have(serve: Serve, tmp_path: Path) -> None:
    config = {**settings(tmp_path), "engine": {"thread_count": 1, **ISOLATED}}
    server = serve(config, prefix=ORDINARY)
    said = server.output
    assert "engine.real_time 3: threads have ordinary priority (Operation not permitted)" in said
    assert "engine.lock_memory: memory is not locked (Operation not permitted" in said
    assert status(server, "VmLck") == "0 kB"
    plain = serve(settings(tmp_path))
    small = np.full((1, 16), 1e-40, np.float32)
    assert (ask(plain, small) > 0).all()


def of_each(server: Server, role: str, name: str) -> list[int]:
    """A counter of each thread of a role, in their order."""
    threads = read(server.stats_path).threads
    return [thread.counters[name] for thread in threads if thread.role == role]


def nodes(folder: Path, **engine: object) -> dict[str, object]:
    """Two nodes on any machine: each with one worker and one I/O thread."""
    return {
        "server": {"arena_bytes": "32MiB", "max_request_bytes": "64KiB", "io_threads": 2},
        "engine": {"nodes": 2, "thread_count": 2, "queue_type": "mpmc", **engine},
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx"))},
            {"name": "slow", "path": str(graphs.slow(folder / "slow.onnx"))},
        ],
    }


@pytest.mark.parametrize(
    "engine",
    [
        {},
        {"queue_type": "scq", "idle": "yield"},
        {"queue_type": "auto"},
        {"queue_type": "inline", "thread_count": "auto"},
    ],
)
def test_two_nodes_answer(serve: Serve, tmp_path: Path, engine: dict[str, object]) -> None:
    server = serve(nodes(tmp_path, **engine))
    assert re.search(r"^  node     1: cores \S+, I/O threads 1, workers 1$", server.output, re.M)
    x = np.arange(16, dtype=np.float32).reshape(1, 16)
    for _ in range(8):
        assert (ask(server, x) == 2 * x).all()
    threads = read(server.stats_path).threads
    assert {(thread.role, thread.node) for thread in threads} == {
        (role, node) for role in ("io", "worker") for node in (0, 1)
    }
    shown = harness.run(["top", "--once", "--interval=0.1", f"--port={server.port}"], tmp_path)
    assert re.search(r"^node 1  .* busy of \d .* helped/s$", shown.stdout, re.M), shown


def test_connections_go_to_the_node_of_their_core(serve: Serve, tmp_path: Path) -> None:
    """The core of a client of this machine is the one that receives its packets."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        needs.absent("cores")
    server = serve(nodes(tmp_path, cores=f"{cores[0]},{cores[1]}"))
    before = of_each(server, "io", "connections_accepted")
    for count, core in ((5, cores[0]), (7, cores[1])):
        with pinned([core]):
            for _ in range(count):
                with Client("127.0.0.1", server.port) as client:
                    client.ping()
    after = of_each(server, "io", "connections_accepted")
    assert [now - then for now, then in zip(after, before, strict=True)] == [5, 7]


def test_a_node_helps_another(serve: Serve, tmp_path: Path) -> None:
    """Requests of one node alone: its one worker cannot keep the other idle."""
    core = min(os.sched_getaffinity(0))
    server = serve(nodes(tmp_path))
    x = {"x": np.array([500])}
    with pinned([core]), ExitStack() as stack:
        clients = [stack.enter_context(Client("127.0.0.1", server.port)) for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            for _ in range(50):
                list(pool.map(lambda client: client.infer("slow", x), clients))
                if sum(of_each(server, "worker", "requests_stolen")):
                    break
    stolen, served = (of_each(server, "worker", f"requests_{word}") for word in ("stolen", "ok"))
    assert sum(stolen) > 0
    assert 0 in stolen
    assert all(served)


def test_a_setting_of_nodes_that_cannot_be(serve: Serve, tmp_path: Path) -> None:
    server = serve(nodes(tmp_path, queue_type="naive"))
    assert "engine.nodes 2: 1, since each node has a worker and an I/O thread" in server.output
    assert "  node  " not in server.output
