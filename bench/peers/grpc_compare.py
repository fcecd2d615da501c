"""`make grpc-compare`: Lumen's gRPC beside its HTTP/1.1, Triton's gRPC and grpcio's own server.

A developer's tool. All get the same model file, the same version of ONNX Runtime and the same
float32 input, on the same core; h2load sends it from another core. Each point is a number of
connections and of requests at a time on each (streams). HTTP/1.1 has one request at a time on a
connection: it gets connections x streams connections. Everybody's answer is checked against ONNX
Runtime before anything is timed. Triton is its Python backend (see triton_model.py), tuned for
throughput; grpcio's servers are as their users write them.
CPU is of the server's whole session of processes. It must never quote a figure that was not
measured in the same run as the one beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.common import mlp
from bench.common.local_server import local_server, squeezenet
from bench.common.measure import machine
from bench.common.options import some_of
from bench.common.places import find, pinned
from bench.peers import h2load, servers
from bench.peers.compare import Task, check, task
from bench.peers.install import PeerMissingError, environment
from bench.report.rules import amount, table
from lumen_uring.loading.model_cache import resolve

_METHOD: Final = "/inference.GRPCInferenceService/ModelInfer"
_GRPC: Final = {"content-type": "application/grpc", "te": "trailers"}
_APP: Final = Path(__file__).resolve().parent / "grpc_app.py"
_PACKAGES: Final = ("tritonclient[grpc]", f"onnxruntime=={servers.onnxruntime.__version__}")
TARGETS: Final = ("lumen http", "lumen", "triton", "grpcio threads", "grpcio asyncio")
WORKLOADS: Final = ("mlp", "squeezenet")
# Connections, and requests at a time on each.
POINTS: Final = ((1, 1), (1, 16), (1, 64), (16, 1), (16, 4), (64, 1))


@dataclass(frozen=True, slots=True)
class Serving:
    """A running server, and what to send it."""

    pid: int
    request: h2load.Request
    answer_bytes: int  # of each, at least


Key = tuple[str, tuple[int, int], str]


def message_of(work: Task) -> bytes:
    """The one message of a call, behind its five bytes of gRPC."""
    from tritonclient.grpc import service_pb2  # type: ignore[import-untyped,unused-ignore]

    message = service_pb2.ModelInferRequest(model_name="model")
    model = work.model
    message.inputs.add(name=model.input_name, datatype="FP32", shape=model.input_shape)
    message.raw_input_contents.append(work.body)
    data = message.SerializeToString()
    return struct.pack(">BI", 0, len(data)) + bytes(data)


def _check_rpc(target: str, work: Task, port: int) -> None:
    """Asks once by grpcio.

    Raises:
        PeerMissingError: it is not there in time.
        RuntimeError: another answer than ONNX Runtime's.
    """
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    message = service_pb2.ModelInferRequest.FromString(message_of(work)[5:])
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            answer = stub.ModelInfer(message, timeout=60, wait_for_ready=True)
        except grpc.RpcError as error:
            raise PeerMissingError(f"{target}: {error.details()}") from None
    found = np.frombuffer(answer.raw_output_contents[0], np.float32)
    check(target, work, found)


@contextmanager
def serving(target: str, work: Task, cores: frozenset[int]) -> Iterator[Serving]:
    """Starts a server on its cores, and asks it once.

    Raises:
        PeerMissingError: it cannot be had here.
        RuntimeError: it answers otherwise than ONNX Runtime.
    """
    if target == "lumen http":
        with local_server(f"--model=model={work.model.path}", cores=cores) as server:
            peer = servers.oip_peer(server.pid, server.port, work.model, work.body)
            check(target, work, peer.ask())
            yield Serving(
                peer.pid,
                h2load.Request(peer.url, peer.body, peer.headers, is_http1=True),
                work.expected.nbytes,
            )
        return
    with _rpc_server(target, work, cores) as (pid, port):
        _check_rpc(target, work, port)
        url = f"http://127.0.0.1:{port}{_METHOD}"
        yield Serving(pid, h2load.Request(url, message_of(work), _GRPC), work.expected.nbytes)


@contextmanager
def _rpc_server(target: str, work: Task, cores: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Its process, and its port for gRPC."""
    if target == "lumen":
        with local_server(f"--model=model={work.model.path}", cores=cores) as server:
            yield server.pid, server.port
    elif target == "triton":
        port = servers.free_port()
        with servers.triton_of({"model": work.model}, cores, grpc_port=port) as (pid, _http):
            yield pid, port
    else:
        python = environment("grpcio", _PACKAGES)
        port = servers.free_port()
        command = [str(python), str(_APP), work.model.path, str(port), target.split()[1]]
        with servers.started(target, command, {}, cores) as process:
            yield process.pid, port


class Comparison:
    """Runs the rounds and holds what came of them: throughput, CPU, latencies by round."""

    def __init__(self, options: argparse.Namespace, tasks: Mapping[str, Task]) -> None:
        self._options, self._tasks = options, tasks
        self.figures: dict[Key, dict[int, dict[str, float]]] = {}  # by round
        self.missing: dict[str, str] = {}

    def run_round(self, number: int) -> None:
        """Everyone once, in an order shuffled anew."""
        turns = [
            (work, target) for work in self._options.workloads for target in self._options.targets
        ]
        random.Random(f"1 {number}").shuffle(turns)
        for work, target in turns:
            if target in self.missing:
                continue
            print(f"round {number + 1}: {target} on {work}", file=sys.stderr)
            try:
                self._run_target(number, self._tasks[work], target)
            except (PeerMissingError, RuntimeError, OSError) as error:
                self.missing[target] = str(error)
                print(f"{target}: {error}", file=sys.stderr)

    def _run_target(self, number: int, work: Task, target: str) -> None:
        place = find("one-core")
        with serving(target, work, place.server) as server:
            for connections, streams in POINTS:
                if target == "lumen http":
                    shape = (connections * streams, 1)
                else:
                    shape = (connections, streams)
                with pinned(place.client_cores):
                    found = self._measure(server, *shape)
                key = (work.name, (connections, streams), target)
                self.figures.setdefault(key, {})[number] = found

    def _measure(self, server: Serving, connections: int, streams: int) -> dict[str, float]:
        """Of so many requests as take about the time that was asked for, by a first try."""
        tried = h2load.load(
            server.request, connections, streams, max(200, 4 * connections * streams)
        )
        count = max(int(tried.throughput_rps * self._options.seconds), 4 * connections * streams)
        before = servers.session_cpu_s(server.pid)
        found = h2load.load(server.request, connections, streams, count)
        cpu_s = servers.session_cpu_s(server.pid) - before
        if found.good != count or found.data_bytes < count * server.answer_bytes:
            raise RuntimeError(f"{found.good} of {count} requests had an answer, or some had none")
        return {
            "throughput_rps": found.throughput_rps,
            "cpu_us": cpu_s * 1e6 / count,
            "p50_us": found.p50_us,
            "p99_us": found.p99_us,
        }

    def report(self) -> str:
        """Tables, a workload each: medians of the rounds, and ratios made inside a round."""
        return "\n\n".join(self._table(work) for work in self._options.workloads)

    def _table(self, work: str) -> str:
        rows = []
        for point in POINTS:
            for target in self._options.targets:
                rounds = self.figures.get((work, point, target))
                if rounds:
                    rows.append(
                        [f"{point[0]} x {point[1]}", target, *self._row(work, point, rounds)]
                    )
        heads = ["connections x streams", "server", "requests/s", "CPU µs", "p50 µs", "p99 µs"]
        heads += ["CPU: Lumen's gRPC ÷ this", "requests/s: Lumen's gRPC ÷ this"]
        return f"**{work}**\n\n{table(heads, rows)}"

    def _row(
        self, work: str, point: tuple[int, int], rounds: dict[int, dict[str, float]]
    ) -> list[str]:
        names = ("throughput_rps", "cpu_us", "p50_us", "p99_us")
        found = [
            amount(statistics.median(each[name] for each in rounds.values())) for name in names
        ]
        ours = self.figures.get((work, point, "lumen"), {})
        for name in ("cpu_us", "throughput_rps"):
            ratios = [ours[n][name] / rounds[n][name] for n in rounds if n in ours]
            found.append(f"{statistics.median(ratios):.2f}" if ratios else "-")
        return found


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints; Ctrl-C prints the rounds that are whole."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="per figure (%(default)s)")
    for name, allowed in (("targets", TARGETS), ("workloads", WORKLOADS)):
        parser.add_argument(
            f"--{name}", type=some_of(allowed), default=list(allowed), help=", ".join(allowed)
        )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    options = parser.parse_args(arguments)
    if not h2load.found():
        print(h2load.MISSING, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        small = str(mlp.write(Path(directory, "mlp.onnx")))
        paths = {"mlp": small, "squeezenet": str(resolve(squeezenet()))}
        comparison = Comparison(options, {name: task(name, paths[name]) for name in WORKLOADS})
        try:
            for number in range(options.rounds):
                comparison.run_round(number)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
    print(comparison.report())
    for target, why in comparison.missing.items():
        print(f"\nleft out: {target}: {why}")
    if options.json:
        found: dict[str, Any] = {"machine": machine(), "missing": comparison.missing}
        found["rows"] = [
            {"workload": work, "connections": point[0], "streams": point[1], "target": target,
             "rounds": [rounds.get(n) for n in range(options.rounds)]}
            for (work, point, target), rounds in comparison.figures.items()
        ]  # fmt: skip
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if comparison.figures else 1


if __name__ == "__main__":
    sys.exit(main())
