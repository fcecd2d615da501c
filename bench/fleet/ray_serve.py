"""`python -m bench.fleet.ray_serve`: a Lumen that Ray looks after, beside a replica in Python; what
a server that is killed costs; and what a rolling update loses.

A developer's tool, with Ray (pip install "ray[serve]"), wrk and HAProxy. The replica in Python is
written as a careful author would: async, the tensor's bytes in and out, one thread of ONNX Runtime,
no access log, 100 requests at a time. With --tuned Ray Serve runs as its makers tune it: HAProxy in
front, RAY_SERVE_THROUGHPUT_OPTIMIZED. Both serve the same file on the same cores, in turns.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.common import oip
from bench.common.local_server import ROOT
from bench.fleet.nodes import MODEL, balancer
from bench.fleet.ray_nodes import SETTINGS, children, cluster, get, ready_servers, wait_until
from bench.fleet.rolling import Crowd
from bench.peers import wrk

_DIGITS: Final = ROOT / "lumen_uring" / "models" / "digits.onnx"
_SHAPE: Final = (1, 1, 8, 8)
_CONNECTIONS: Final = (1, 16)
_TUNED: Final = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
}


class Replica:
    """The model behind Ray Serve, in Python.

    Args:
        path: of its file.
    """

    def __init__(self, path: str) -> None:
        import onnxruntime

        chosen = onnxruntime.SessionOptions()
        chosen.intra_op_num_threads = chosen.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            path, chosen, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name
        self._outputs = [self._session.get_outputs()[0].name]

    async def __call__(self, request: Any) -> Any:
        """Runs the model in the event loop: its Runs take microseconds."""
        from starlette.responses import Response

        tensor = np.frombuffer(await request.body(), np.float32).reshape(_SHAPE)
        (answer,) = self._session.run(self._outputs, {self._input: tensor})
        return Response(answer.tobytes(), media_type="application/octet-stream")


def _lumen(overrides: tuple[str, ...] = ()) -> None:
    from ray import serve

    from lumen_uring.ray import deployment

    model = f"{MODEL}={_DIGITS}"
    serve.run(deployment(models=[model], overrides=overrides), route_prefix="/lumen")


def _python(replicas: int) -> None:
    from ray import serve

    made = serve.deployment(
        Replica,
        num_replicas=replicas,
        max_ongoing_requests=100,
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
        ray_actor_options={"num_cpus": 0.5},
    )
    serve.run(made.bind(str(_DIGITS)), name="python", route_prefix="/python")


def speed(rounds: int, seconds: float) -> None:
    """Prints requests/s and latencies of each, in turns, one deployed at a time."""
    body = np.zeros(_SHAPE, np.float32).tobytes()
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with cluster(1) as port:
        for _ in range(rounds):
            for name in ("Lumen", "Python, 1 replica", "Python, 2 replicas"):
                url, kept = _deployed(name, port)
                for connections in _CONNECTIONS:
                    wrk.load(url, body, oip.headers(0), connections, 2)
                    row = wrk.load(url, body, oip.headers(0), connections, seconds)
                    found.setdefault((name, connections), []).append(row)
                _delete(kept)
    for (name, connections), rows in found.items():
        rps, p50, p99, errors = (
            statistics.median(figures)
            for figures in zip(
                *((r["requests"] / r["seconds"], r["p50"], r["p99"], r["errors"]) for r in rows),
                strict=True,
            )
        )
        print(
            f"{name:20} {connections:3} connections  {rps:8.0f} requests/s  p50 {p50:7.0f} µs  "
            f"p99 {p99:7.0f} µs  errors {errors:.0f}",
            flush=True,
        )


def _deployed(name: str, port: int) -> tuple[str, str]:
    """Deploys one of them; its URL, and the application's name."""
    if name == "Lumen":
        _lumen()
        (server,) = ready_servers(1)
        return f"{server.url}{oip.infer_path(MODEL)}", "default"
    _python(int(name.split()[1]))
    wait_until(lambda: get(port, "/-/healthz")[0] == 200, "proxy")
    return f"http://127.0.0.1:{port}/python", "python"


def _delete(app: str) -> None:
    from ray import serve

    serve.delete(app)


def kills(rounds: int) -> None:
    """Prints how long it takes until a server that was killed serves again."""
    with cluster(1):
        _lumen(SETTINGS)
        (server,) = ready_servers(1)
        for what in ("server", "replica"):
            took = []
            for _ in range(rounds):
                (pid, parent), *_ = children().items()
                os.kill(pid if what == "server" else parent, signal.SIGKILL)
                wait_until(lambda pid=pid: pid not in children(), "end")
                took.append(
                    wait_until(
                        lambda: get(server.port, "/v2/health/ready", server.host)[0] == 200,
                        "server again",
                    )
                )
                time.sleep(3)
            each = ", ".join(f"{one:.1f}" for one in took)
            print(f"{what} killed: served again after {each} s", flush=True)


def rolling(updates: int, nodes: int) -> None:
    """Prints what updates of all servers lose, under clients of HAProxy."""
    with cluster(nodes), tempfile.TemporaryDirectory() as name:
        _lumen(SETTINGS)
        found = ready_servers(nodes)
        with balancer(Path(name), "agent", found) as port:
            clients = Crowd(port, grpc=False)
            try:
                for update in range(updates):
                    began_s = time.monotonic()
                    _lumen((*SETTINGS, f"server.max_in_flight={1000 + update}"))
                    ready_servers(nodes)
                    print(
                        f"update {update + 1} of {nodes} servers in "
                        f"{time.monotonic() - began_s:.0f} s: {clients.answered} answered, "
                        f"{clients.lost.total()} lost {dict(clients.lost) or ''}",
                        flush=True,
                    )
            finally:
                clients.end()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["speed", "kills", "rolling"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--tuned", action="store_true", help="Ray Serve as its makers tune it")
    options = parser.parse_args()
    if options.tuned:
        os.environ.update(_TUNED)
    for what in options.what:
        if what == "speed":
            speed(options.rounds, options.seconds)
        elif what == "kills":
            kills(options.rounds)
        elif what == "rolling":
            rolling(options.rounds, 3)
        else:
            parser.error(f"expected speed, kills or rolling, found {what}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
