"""`python -m bench.fleet.balance`: who of three Lumens gets how much, and how long clients wait,
where one of them is slower: by connections, by requests, and by what the servers say of their load.

A developer's tool. Each server has one worker; the last one's model takes SLOWER times as long. In
turns within a round, for each policy of nodes.POLICIES that is installed: the load is a share of
what the three answer at most, measured before through HAProxy. All run on the machine's cores
together with balancer and clients: compare the lines with each other alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.common.local_server import ROOT
from bench.fleet.nodes import MODEL, POLICIES, Node, balancer, fleet
from bench.peers.install import PeerMissingError

SLOWER: Final = 4
_PRODUCTS: Final = 3
_WIDTH: Final = 256
_SHARES: Final = (0.7, 0.9)
_CONNECTIONS: Final = 32
_WARMUP_S: Final = 4.0  # Envoy's weights need two


def model_file(path: Path, products: int) -> str:
    """Writes x float32 [1, 256] -> y [1, 256], by so many products of 256 x 256 matrices: some
    milliseconds for a kilobyte, so that neither network nor balancer matters."""
    from onnx import TensorProto, helper, numpy_helper, save

    random = np.random.default_rng(1)
    matrix = random.standard_normal((_WIDTH, _WIDTH)) * np.sqrt(1 / _WIDTH)
    weights = [
        numpy_helper.from_array(matrix.astype(np.float32), "w"),
        numpy_helper.from_array(np.ones((1, _WIDTH), np.float32), "ones"),
    ]
    nodes = [
        helper.make_node("Transpose", ["x"], ["column"]),
        helper.make_node("MatMul", ["column", "ones"], ["h0"]),
    ]
    for product in range(products):
        nodes.append(helper.make_node("MatMul", [f"h{product}", "w"], [f"p{product}"]))
        nodes.append(helper.make_node("Tanh", [f"p{product}"], [f"h{product + 1}"]))
    nodes.append(helper.make_node("ReduceMean", [f"h{products}"], ["y"], axes=[0], keepdims=1))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, _WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "work", ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return str(path)


def load(port: int, seconds: float, rate_rps: float, seed: int) -> dict[str, Any]:
    """Loads a balancer; the figures of `lumen bench --json`. Rate 0: as much as is answered."""
    command = [
        *(sys.executable, "-m", "lumen_uring", "bench", "--server", f"http://127.0.0.1:{port}"),
        *("--model", MODEL, "--seconds", str(seconds), "--warmup", str(_WARMUP_S), "--json"),
        *("--connections", str(_CONNECTIONS), "--seed", str(seed)),
    ]
    command += ["--rate", str(rate_rps)] if rate_rps else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def shares(nodes: Sequence[Node], before: Sequence[int]) -> list[float]:
    """Each server's part of what they answered since."""
    given = [node.answered() - had for node, had in zip(nodes, before, strict=True)]
    return [one / sum(given) for one in given]


def measure(rounds: int, seconds: float) -> None:
    """Prints a line for each policy and load."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [model_file(folder / f"{n}.onnx", _PRODUCTS) for n in (1, 2)]
        paths.append(model_file(folder / "3.onnx", SLOWER * _PRODUCTS))
        settings = ("models.0.run=worker", "models.0.width=1")
        with fleet(folder, paths, settings) as nodes:
            with balancer(folder, "leastconn", nodes) as port:
                most = load(port, seconds, 0, 1)["throughput_rps"]
            print(f"the three answer {most:.0f} requests/s at most")
            for share in _SHARES:
                lines: dict[str, list[tuple[float, ...]]] = {}
                for round_ in range(rounds):
                    for policy in POLICIES:
                        try:
                            with balancer(folder, policy, nodes) as port:
                                before = [node.answered() for node in nodes]
                                found = load(port, seconds, share * most, 10 + round_)
                        except PeerMissingError as error:
                            print(f"{policy}: {error}")
                            continue
                        late = found["latency_us"]
                        row = (late["p50"], late["p99"], found["errors"], *shares(nodes, before))
                        lines.setdefault(policy, []).append(row)
                for policy, rows in lines.items():
                    columns = zip(*rows, strict=True)
                    _print(share, policy, [statistics.median(column) for column in columns])


def _print(share: float, policy: str, row: Sequence[float]) -> None:
    p50_us, p99_us, lost, *parts = row
    given = ", ".join(f"{part:.0%}" for part in parts)
    print(
        f"{share:.0%} {policy:14} p50 {p50_us:7.0f} µs  p99 {p99_us:7.0f} µs  lost {lost:.0f}  "
        f"shares {given}",
        flush=True,
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    options = parser.parse_args()
    measure(options.rounds, options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
