"""Lumen under Ray Serve: real clusters, whose nodes have loopback addresses of their own.

They run where Ray is installed: pip install '.[ray]'.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import needs
import numpy as np
import pytest

from bench.common import oip
from bench.fleet.nodes import MODEL, balancer
from bench.fleet.ray_nodes import SETTINGS, children, cluster, get, ready_servers, wait_until
from bench.fleet.rolling import Crowd
from lumen_uring.models import __file__ as models_file

pytestmark = [
    pytest.mark.once,  # Ray knows nothing of the backends
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason=needs.reason("ray")),
]
DIGITS = Path(models_file).with_name("digits.onnx")
NODES = 3


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that Ray brings to each node: settings, and a model at a relative path."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "conf" / "models").mkdir(parents=True)
    shutil.copy(DIGITS, folder / "conf" / "models" / "mine.onnx")
    (folder / "conf" / "lumen.yaml").write_text("models: [{name: m, path: models/mine.onnx}]")
    return folder


@pytest.fixture(scope="module")
def proxy(shipped: Path) -> Iterator[int]:
    """The port of Ray Serve's proxy, of a cluster with three nodes."""
    with cluster(NODES, str(shipped)) as port:
        yield port


def run(*overrides: str, **options: Any) -> None:
    from ray import serve

    from lumen_uring.ray import deployment

    model = f"{MODEL}={DIGITS}"
    made = deployment(models=[model], overrides=[*SETTINGS, *overrides], **options)
    serve.run(made, route_prefix="/lumen")


@pytest.fixture
def found(proxy: int) -> Iterator[list[Any]]:
    """A server on each node; they end with the test, and leave nothing behind."""
    from ray import serve

    run()
    yield ready_servers(NODES)
    serve.delete("default")
    assert children() == {}


def infer(host: str, port: int, path: str = "") -> tuple[int, str]:
    """Asks for a digit: status and Location."""
    body = np.zeros((1, 1, 8, 8), np.float32).tobytes()
    with closing(http.client.HTTPConnection(host, port, timeout=30)) as link:
        link.request("POST", path or oip.infer_path(MODEL), body, oip.headers(0))
        answer = link.getresponse()
        answer.read()
        return answer.status, answer.headers.get("Location", "")


def test_each_node_has_a_server(proxy: int, found: list[Any]) -> None:
    """Clients ask it directly, or are sent there by Ray Serve's proxy."""
    assert {one.host for one in found} == {f"127.0.0.{2 + number}" for number in range(NODES)}
    assert len({one.node for one in found}) == len(children()) == NODES
    for one in found:
        assert infer(one.host, one.port)[0] == 200
    status, _, text = get(proxy, "/lumen")
    assert status == 200
    assert [one["url"] for one in json.loads(text)["servers"]] == [one.url for one in found]
    status, there = infer("127.0.0.1", proxy, f"/lumen{oip.infer_path(MODEL)}?a=b%20c")
    assert status == 307
    split = urlsplit(there)
    assert (split.path, split.query) == (oip.infer_path(MODEL), "a=b%20c")
    assert infer(split.hostname or "", split.port or 0)[0] == 200


def test_a_server_or_replica_that_is_killed_is_replaced(found: list[Any]) -> None:
    """At its address, and none of the killed replica's is left."""
    for kills_parent in (False, True):
        before = children()
        pid, parent = next(iter(before.items()))
        os.kill(parent if kills_parent else pid, signal.SIGKILL)
        wait_until(lambda pid=pid: pid not in children(), "end")
        wait_until(lambda: len(children()) == NODES, "server in its place")
        wait_until(
            lambda: all(get(s.port, "/v2/health/ready", s.host)[0] == 200 for s in found),
            "server that is ready",
        )
        assert len(children().keys() & before.keys()) == NODES - 1
        wait_until(lambda: len(set(children().values())) == NODES, "replicas of their own")


def test_an_update_loses_nothing(found: list[Any], tmp_path: Path) -> None:
    """Under clients of HAProxy that never pause."""
    needs.program("haproxy")
    before = children().keys()
    with balancer(tmp_path, "agent", found) as port:
        clients = Crowd(port, grpc=False)
        try:
            run("server.max_in_flight=1000")
            after = ready_servers(NODES)
        finally:
            clients.end()
    assert not clients.lost
    assert clients.answered > 100
    assert not before & children().keys()
    assert [one.url for one in after] == [one.url for one in found]


def test_what_hinders_a_start_is_said(proxy: int) -> None:
    from ray import serve

    for overrides, options, said in (
        (("server.prot=1",), {}, r"--set server\.prot"),
        ((), {"num_replicas": 1}, "is in use: stop what listens there"),
    ):
        with closing(socket.create_server(("127.0.0.2", 8100))):
            taken = [socket.create_server((f"127.0.0.{n}", 8100)) for n in (3, 4)]
            with pytest.raises(RuntimeError, match="failed"):
                run(*overrides, max_constructor_retry_count=1, **options)
            (status,) = serve.status().applications["default"].deployments.values()
            for one in taken:
                one.close()
        assert re.search(said, status.message), status.message
        serve.delete("default")
    assert children() == {}


def test_servers_are_added_under_load(proxy: int, tmp_path: Path) -> None:
    """By their own load: Ray sees none of their requests."""
    from ray import serve

    scaled = {
        "min_replicas": 1, "max_replicas": 2, "upscale_delay_s": 1, "downscale_delay_s": 1,
        "metrics_interval_s": 1, "look_back_period_s": 2,
    }  # fmt: skip
    run("models.0.run=worker", autoscaling_config=scaled)
    (first,) = ready_servers(1)
    clients = Crowd(first.port, grpc=False, clients=8, host=first.host)
    try:
        ready_servers(2)
    finally:
        clients.end()
    ready_servers(1)
    serve.delete("default")


def test_models_come_along_with_a_folder(
    proxy: int, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the driver (runtime_env's working_dir), where the settings file is, too."""
    from ray import serve

    from lumen_uring.ray import deployment

    monkeypatch.chdir(shipped)
    cpus = {"num_cpus": 2}
    made = deployment("conf/lumen.yaml", overrides=SETTINGS, ray_actor_options=cpus)
    shutil.rmtree(shipped / "conf")  # what is served is the copy
    serve.run(made)
    for server in ready_servers(NODES):
        assert infer(server.host, server.port)[0] == 200
    serve.delete("default")
