"""`make backends`: epoll beside io_uring on the same work, in one run.

A developer's tool. Two servers that differ in `io_backend` alone serve models that do almost
nothing, so that what is measured is I/O. For each payload and number of connections they take
turns, in every round in another order, and ratios are made inside a round. Prints a table in
Markdown, or JSON. It must never run beside other work.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.common import mlp
from bench.common.local_server import LocalServer, local_server
from bench.common.measure import Shape, machine, measure
from bench.common.options import add_rounds, some_of
from bench.report.rules import Ratio, middle, paired
from lumen_uring.errors import LumenError

BACKENDS: Final = ("io_uring", "epoll")
CONNECTIONS: Final = (1, 16, 256, 2000)
QUEUES: Final = ("mpmc", "scq", "spsc", "naive", "inline")
# Payload bytes of the models beside the MLP, whose own are 256.
SLICES: Final = {"4 KB": 4096, "150 KB": 150_528}
MLP: Final = "256 B"
_ANSWERS: Final = 8
# As bench/common/mlp.py.
_OPSET: Final = 13
_IR: Final = 8


def slice_bytes(size: int) -> bytes:
    """Makes a model that answers with the first few bytes of its input.

    Args:
        size: of the input x, UINT8 [1, size].

    Returns:
        An ONNX file.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    bounds = {"starts": [0], "ends": [_ANSWERS], "axes": [1]}
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", *bounds], ["y"])],
        "slice",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, size])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [1, _ANSWERS])],
        [numpy_helper.from_array(np.array(at, np.int64), name) for name, at in bounds.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="lumen",
        ir_version=_IR,
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    return bytes(model.SerializeToString(deterministic=True))


def write_models(folder: Path) -> dict[str, str]:
    """Writes the models.

    Args:
        folder: where to.

    Returns:
        Each payload's model, as name=file.
    """
    mlp.write(folder / "mlp.onnx")
    models = {MLP: f"mlp={folder / 'mlp.onnx'}"}
    for payload, size in SLICES.items():
        path = folder / f"slice{size}.onnx"
        path.write_bytes(slice_bytes(size))
        models[payload] = f"slice{size}={path}"
    return models


@dataclass(slots=True)
class Row:
    """One payload and number of connections: a figure per round and backend, None for a failure."""

    payload: str
    connections: int
    rps: dict[str, list[float | None]] = field(default_factory=lambda: {b: [] for b in BACKENDS})
    cpu_us: dict[str, list[float | None]] = field(default_factory=lambda: {b: [] for b in BACKENDS})

    def ratios(self) -> tuple[Ratio | None, Ratio | None]:
        """Of epoll to io_uring: requests a second, and CPU per request."""
        return (
            paired(self.rps["epoll"], self.rps["io_uring"]),
            paired(self.cpu_us["epoll"], self.cpu_us["io_uring"]),
        )

    def as_json(self) -> dict[str, Any]:
        """Figures under stable names."""
        rps, cpu = self.ratios()
        return {
            "payload": self.payload,
            "connections": self.connections,
            "throughput_rps": self.rps,
            "cpu_us_per_request": self.cpu_us,
            "throughput_ratio": None if rps is None else rps.middle,
            "cpu_ratio": None if cpu is None else cpu.middle,
        }


def run(options: argparse.Namespace, models: dict[str, str]) -> tuple[list[Row], list[str]]:
    """Measures everything.

    Args:
        options: as the command line gave them.
        models: as write_models gave them.

    Returns:
        The rows, and what failed, as sentences.
    """
    rows = [Row(payload, n) for payload in options.payloads for n in options.connections]
    failures: list[str] = []
    # A place for every connection's request: what is measured is no refusals.
    settings = [f"--set=engine.queue_type={options.queue}", "--set=engine.queue_capacity=4096"]
    # 2,000 in a closed loop are more than there are slots: they wait, rather than be refused.
    settings += ["--set=server.metrics_port=0", "--set=server.overload=wait"]
    chosen = [f"--model={models[payload]}" for payload in options.payloads]
    with ExitStack() as stack:
        servers = {
            backend: stack.enter_context(
                local_server(*chosen, *settings, f"--set=server.io_backend={backend}")
            )
            for backend in BACKENDS
        }
        for number in range(options.rounds):
            for row in rows:
                for backend in BACKENDS if number % 2 == 0 else BACKENDS[::-1]:
                    rps = _measure(servers[backend], backend, row, models, options, failures)
                    said = "failed" if rps is None else f"{rps:,.0f}/s"
                    print(
                        f"round {number + 1}/{options.rounds}: {row.payload}, "
                        f"{row.connections} connections, {backend}: {said}",
                        file=sys.stderr,
                    )
    return rows, failures


def _measure(
    server: LocalServer,
    backend: str,
    row: Row,
    models: dict[str, str],
    options: argparse.Namespace,
    failures: list[str],
) -> float | None:
    name = models[row.payload].partition("=")[0]
    shape = Shape(name, row.connections, options.seconds, options.warmup, encoding="tensors")
    rps = cpu_us = None
    try:
        measured = measure(server, shape)
        if measured.load.errors:
            raise LumenError(f"{measured.load.errors} requests failed")
        rps, cpu_us = measured.throughput_rps, measured.cpu_us_per_request
    except LumenError as error:
        failures.append(f"{row.payload}, {row.connections} connections, {backend}: {error}")
    row.rps[backend].append(rps)
    row.cpu_us[backend].append(cpu_us)
    return rps


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown; of several rounds the median, ratios with their range.

    Args:
        rows: as run gave them.
    """
    lines = [
        "| payload | connections | io_uring, requests/s | epoll | epoll ÷ io_uring "
        "| io_uring, CPU µs/request | epoll | epoll ÷ io_uring |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        rps, cpu = row.ratios()
        cells = [row.payload, f"{row.connections:,}"]
        cells += [_figure(middle(row.rps[backend]), ",.0f") for backend in BACKENDS]
        cells.append(_ratio(rps))
        cells += [_figure(middle(row.cpu_us[backend]), ".1f") for backend in BACKENDS]
        cells.append(_ratio(cpu))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _figure(value: float | None, form: str) -> str:
    return "failed" if value is None else format(value, form)


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio.middle:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_rounds(found, rounds=5, seconds=2.0, warmup=0.5, connections=CONNECTIONS)
    payloads = [MLP, *SLICES]
    found.add_argument("--payloads", type=some_of(payloads), default=payloads, metavar="'4 KB',...")
    found.add_argument("--queue", choices=QUEUES, default="mpmc", help="queue_type (%(default)s)")
    found.add_argument("--json", action="store_true", help="figures of every round as JSON")
    found.add_argument("--short", action="store_true", help="one round of moments: for a try")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints. Returns 1 when something failed."""
    options = parser().parse_args(arguments)
    if options.short:
        options.rounds, options.seconds, options.warmup = 1, 0.3, 0.1
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(options.connections) + 256
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with tempfile.TemporaryDirectory() as folder:
        rows, failures = run(options, write_models(Path(folder)))
    if options.json:
        document = {
            "machine": machine(),
            "queue": options.queue,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "rows": [row.as_json() for row in rows],
            "failures": failures,
        }
        print(json.dumps(document, indent=1))
    else:
        print(table(rows))
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
