"""`python -m bench.fleet.balance`: who of three Lumens gets how much, and how long clients wait,
where one of them is slower: by connections, by requests, and by what the servers say of their load.

A developer's tool. Each server has one worker; the last one's model takes SLOWER times as long. In
turns within a round, for each policy of nodes.POLICIES that is installed: the load is a share of
what the three answer at most, measured before through HAProxy with as many clients as they can take.
All run on the machine's cores together with balancer and clients: compare the lines with each other
alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.common.local_server import ROOT
from bench.fleet.nodes import MODEL, POLICIES, Node, balancer, fleet
from bench.peers.install import PeerMissingError

SLOWER: Final = 4
_LAYERS: Final = 12
_WIDTH: Final = 256
_SHARES: Final = (0.7, 0.9)
_CONNECTIONS: Final = 32
_WARMUP_S: Final = 4.0  # Envoy's weights need two


def model_file(path: Path, layers: int) -> str:
    """Writes x float32 [1, 256] -> y, as many layers of 256 units."""
    from onnx import TensorProto, helper, numpy_helper, save

    random = np.random.default_rng(1)
    nodes, weights, last = [], [], "x"
    for layer in range(layers):
        matrix = random.standard_normal((_WIDTH, _WIDTH)) * np.sqrt(1 / _WIDTH)
        weights.append(numpy_helper.from_array(matrix.astype(np.float32), f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"s{layer}"]))
        last = "y" if layer == layers - 1 else f"h{layer}"
        nodes.append(helper.make_node("Tanh", [f"s{layer}"], [last]))
    shape = [1, _WIDTH]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
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
        paths = [model_file(folder / f"{n}.onnx", _LAYERS) for n in (1, 2)]
        paths.append(model_file(folder / "3.onnx", SLOWER * _LAYERS))
        settings = ("models.0.run=worker", "models.0.width=1")
        with fleet(folder, paths, settings) as nodes:
            with balancer(folder, "leastconn", nodes) as port:
                most = load(port, seconds, 0, 1)["throughput_rps"]
            print(f"the three answer {most:.0f} requests/s at most")
            for share in _SHARES:
                lines: dict[str, list[tuple[float, ...]]] = {}
                for round_ in range(rounds):
                    for policy in POLICIES:
                        with suppress(PeerMissingError), balancer(folder, policy, nodes) as port:
                            before = [node.answered() for node in nodes]
                            found = load(port, seconds, share * most, 10 + round_)
                            lines.setdefault(policy, []).append(
                                (found["latency_us"]["p50"], found["latency_us"]["p99"], found["errors"],
                                 *shares(nodes, before))
                            )  # fmt: skip
                for policy, rows in lines.items():
                    p50, p99, lost, *parts = (
                        statistics.median(row) for row in zip(*rows, strict=True)
                    )
                    given = ", ".join(f"{part:.0%}" for part in parts)
                    print(
                        f"{share:.0%} {policy:14} p50 {p50:7.0f} µs  p99 {p99:7.0f} µs  "
                        f"lost {lost:.0f}  shares {given}",
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
