"""lumen_uring.ray without Ray: what is sent to a node, and the server that is started there.

test_e2e_ray.py has a real cluster.
"""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lumen_uring import cli
from lumen_uring.errors import ConfigError, LumenError
from lumen_uring.ray import deployment, servers
from lumen_uring.ray import start as start_module
from lumen_uring.ray.child import Child, ChildError
from lumen_uring.ray.directory import Directory, Server
from lumen_uring.ray.plan import AGENT_DISTANCE, PORT, Plan, make
from lumen_uring.ray.replica import options
from lumen_uring.ray.scaling import METRIC, TARGET, by_utilization
from lumen_uring.ray.start import Running, place, start

SMALL = ("engine.thread_count=1", "server.arena_bytes=64MiB", "server.unready_seconds=0")
CONFIG = """\
server:
  drain_seconds: 7
  tls: {port: 1, certificates: [{cert: a.crt, key: /k/a.key}]}
models:
  - {name: mine, path: models/mine.onnx}
  - {name: digits, path: "builtin:digits"}
"""


def until(holds: Callable[[], bool], what: str) -> None:
    ends_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < ends_s, what
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def free_port(*further: int) -> int:
    """A port that is free and that no connection is given, as are that of the agent checks and
    those at these distances."""
    for port in range(random.randrange(20000, 30000), 32000):
        needed = [port + one + agent for one in (0, *further) for agent in (0, AGENT_DISTANCE)]
        if all(start_module._is_free("127.0.0.1", one) for one in needed):
            return port
    raise AssertionError("no ports are free")


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    """Starts servers, which end with the test."""
    found: list[Running] = []

    def begin(plan: Plan, base: str = "/") -> Running:
        found.append(start(plan, "127.0.0.1", base, os.environ))
        return found[-1]

    yield begin
    for one in found:
        one.child.stop(0)


# ---- without Ray ----


def test_who_has_no_ray_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for call in (deployment, servers):
        with pytest.raises(LumenError, match=r'pip install "ray\[serve\]"'):
            call()


def test_the_package_is_imported_without_ray() -> None:
    code = "import sys, lumen_uring.ray; print([m for m in sys.modules if m.split('.')[0]=='ray'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- what is sent ----


def test_paths_begin_at_the_settings_file(tmp_path: Path, monkeypatch: Any) -> None:
    """Or, where Ray brings a folder along, at the same place in it."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "lumen.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    plan = make("conf/lumen.yaml", models=("other=models/other", "all=builtin:digits"))
    assert plan.text == CONFIG
    assert place(plan, None) == str(tmp_path / "conf")
    assert place(plan, "/ray/dir") == "/ray/dir/conf"
    assert plan.placed("/b", {}) == ['server.tls.certificates.0.cert="/b/a.crt"']  # not of `models`
    alone = dataclasses.replace(plan, models=())
    model = 'models.0.path="/b/models/mine.onnx"'
    assert alone.placed("/b", {}) == [*plan.placed("/b", {}), model]
    assert alone.placed("/b", {"LUMEN_SERVER__TLS__CERTIFICATES__0__CERT": "/c"}) == [model]
    assert plan.placed_models("/b") == ["other=/b/models/other", "all=builtin:digits"]


def test_a_settings_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: expected a settings file"):
        make(tmp_path / "none.yaml")


@pytest.mark.parametrize("text", ["", "[1]", "server: [", "server: 1", "server:\n models: x"])
def test_what_is_no_settings_file_is_left_to_the_server(text: str) -> None:
    plan = Plan(text, "/", ".")
    assert plan.placed("/b", {}) == []
    assert plan.drain_s() == 10


def test_ray_waits_for_the_drain() -> None:
    plan = Plan(CONFIG, "/", ".", ("server.unready_seconds=20",))
    assert plan.drain_s() == 27
    chosen = options(plan, {"max_replicas_per_node": 2})
    assert chosen["graceful_shutdown_timeout_s"] > 27
    assert chosen["max_replicas_per_node"] == 2


def test_what_is_named_is_left_as_it_is() -> None:
    plan = Plan(CONFIG, "/", ".", ("server.port=7",))
    assert plan.named("server", "port", {})
    assert plan.named("server", "drain_seconds", {})
    assert not plan.named("server", "host", {})
    assert plan.named("server", "host", {"LUMEN_SERVER__HOST": "::1"})


# ---- how many ----


def test_servers_are_added_where_they_are_busy() -> None:
    @dataclasses.dataclass
    class Context:
        aggregated_metrics: dict[str, dict[str, float]] | None
        current_num_replicas: int = 2
        target_num_replicas: int = 2

    def wanted(*loads: float) -> float:
        found = {str(number): load for number, load in enumerate(loads)}
        return by_utilization(Context({METRIC: found}))[0]

    assert by_utilization(Context(None)) == (2, {})
    assert by_utilization(Context({})) == (2, {})
    assert wanted(TARGET, TARGET) == pytest.approx(2)
    assert wanted(2 * TARGET, 2 * TARGET) == pytest.approx(4)
    assert wanted(0, 0) == 0  # which Ray raises to min_replicas

    given = options(Plan(None, "/", "."), {"autoscaling_config": {"max_replicas": 9}})
    assert given["autoscaling_config"] == {
        "max_replicas": 9,
        "policy": {"policy_function": "lumen_uring.ray.scaling:by_utilization"},
    }
    own = {"policy": {"policy_function": "mine:policy"}}
    assert options(Plan(None, "/", "."), {"autoscaling_config": own})["autoscaling_config"] == own


def test_the_directory_forgets_who_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(Directory, "_watch", lambda self: None)
    directory = Directory()
    one, two, three = (
        Server(name, "n", f"http://{name}:1", name, 1, 0, True) for name in ("c", "b", "a")
    )
    directory.put(one)
    now_s += 8
    directory.put(two)
    directory.put(three)
    assert directory.live() == [three, two, one]
    directory.drop(three.id)
    now_s += 8
    assert directory.live() == [two]


# ---- the server of a node ----


def test_a_server_is_started_asked_and_drained(tmp_path: Path, running: Any) -> None:
    port = free_port()
    plan = Plan(
        "models: [{name: d, path: 'builtin:digits'}]", "/", ".", (*SMALL, f"server.port={port}")
    )
    server = running(plan)
    assert server.url == f"http://127.0.0.1:{port}"
    assert server.is_live()
    assert server.is_ready()
    assert 0 <= server.utilization() < 2
    assert Path(server.folder, "config.yaml").exists()
    assert server.stop()
    assert not Path(server.folder).exists()
    with pytest.raises(ChildError, match="exit status 0"):
        server.is_live()
    assert server.stop()  # again


def test_several_servers_of_a_node_have_ports_of_their_own(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_module, "_TAKEN_S", 0)
    port = free_port(start_module._STEP)
    plan = Plan(None, "/", ".", (*SMALL, f"server.port={port}"), per_node=2)
    first, second = running(plan), running(plan)
    assert (first.settings.port, second.settings.port) == (port, port + 10)
    assert first.settings.agent_port != second.settings.agent_port
    with pytest.raises(ChildError, match=f"port {port} and {port + 10} on this node"):
        running(plan)


def test_a_port_that_is_taken_is_said(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_module, "_TAKEN_S", 0)
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            ChildError, match=rf"port {port} on this node \(127\.0\.0\.1\) is in use"
        ):
            running(Plan(None, "/", ".", (*SMALL, f"server.port={port}")))


def test_a_server_that_cannot_start_says_why(running: Any) -> None:
    port = f"server.port={free_port()}"
    with pytest.raises(ConfigError, match=r"lumen-ray-.*config\.yaml:1 server\.prot"):
        running(Plan("server: {prot: 1}", "/", ".", (*SMALL, port)))
    with pytest.raises(ChildError, match=r"/nowhere/mine\.onnx"):
        running(Plan(None, "/", ".", (*SMALL, port), ("mine=/nowhere/mine.onnx",)))


def test_a_server_that_ends_is_noticed(running: Any) -> None:
    server = running(Plan(None, "/", ".", (*SMALL, f"server.port={free_port()}")))
    noticed: list[bool] = []
    server.child.watch(lambda: noticed.append(True))
    os.kill(server.child.pid, signal.SIGKILL)
    until(lambda: noticed == [True], "the end")
    with pytest.raises(ChildError, match=r"has ended \(SIGKILL\):\n"):
        server.is_live()


def test_a_server_that_does_not_drain_is_killed() -> None:
    child = Child(
        ["serve", f"--set=server.port={free_port()}", *(f"--set={s}" for s in SMALL)], os.environ
    )
    child.wait_until_ready()
    os.kill(child.pid, signal.SIGSTOP)
    assert not child.stop(0.2)
    assert is_gone(child.pid)


def test_a_server_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "from lumen_uring.ray.plan import Plan\n"
        "from lumen_uring.ray.start import start\n"
        f"plan = Plan(None, '/', '.', {(*SMALL, f'server.port={free_port()}')!r})\n"
        "print('pid', start(plan, '127.0.0.1', '/', os.environ).child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(next(line for line in parent.stdout if line.startswith("pid")).split()[1])
        assert not is_gone(pid)
        parent.kill()
        until(lambda: is_gone(pid), "the server's end")


def test_a_server_whose_parent_is_gone_does_not_start() -> None:
    command = [sys.executable, "-m", "lumen_uring.ray.bound", "1", "--version"]
    if os.getpid() == 1:
        pytest.fail("these tests cannot be process 1")
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_defaults_fit_a_cluster(running: Any) -> None:
    assert PORT != 8000  # where Ray Serve's proxies listen
    server = running(Plan(None, "/", ".", (*SMALL, f"server.port={free_port()}")))
    said = server.settings
    assert (said.host, said.metrics_host, said.hosts) == ("127.0.0.1", "127.0.0.1", ("*",))
    assert said.agent_port == said.port + 3


def test_a_server_with_tls_alone_is_asked_over_tls(tmp_path: Path, running: Any) -> None:
    made = cli.main(["tls", "try", "--folder", str(tmp_path)])
    assert made == 0
    cert, key = sorted(path.name for path in tmp_path.iterdir())
    port = free_port()
    tls = f"{{port: {port}, only: true, certificates: [{{cert: {cert}, key: {key}}}]}}"
    plan = Plan(f"server: {{tls: {tls}}}\nmodels: [{{name: d, path: 'builtin:digits'}}]", "/", ".")
    plan = dataclasses.replace(plan, overrides=(*SMALL, f"server.port={free_port()}"))
    server = running(plan, str(tmp_path))
    assert server.url == f"https://127.0.0.1:{port}"
    assert server.is_live()
    assert server.is_ready()
