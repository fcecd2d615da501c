"""`make variants`: the same work under several settings, in one run.

A developer's tool. A server for each `--variant "NAME: SETTING=VALUE ..."`; for each model and
number of connections they take turns, in every round in another order, and ratios to the first
variant are made inside a round. By default epoll beside io_uring, on models that do almost nothing,
so that what is measured is I/O; `--model NAME=FILE` measures another. Prints a table in Markdown,
or JSON. It must never run beside other work.
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
from bench.report.rules import table as make_table
from lumen_uring.errors import LumenError

BACKENDS: Final = ("io_uring", "epoll")
CONNECTIONS: Final = (1, 16, 256, 2000)
# Payload bytes of the models beside the MLP, whose own are 256.
SLICES: Final = {"4 KB": 4096, "150 KB": 150_528}
MLP: Final = "256 B"
_ANSWERS: Final = 8
# Work of the queue alone, with a place for every connection's request: 2,000 in a closed loop are
# more than there are slots, and wait rather than be refused.
_NO_REFUSALS: Final = (
    *("engine.queue_type=mpmc", "engine.queue_capacity=4096", "server.overload=wait"),
)
# Each figure: its heading and its form.
FIGURES: Final = {
    "throughput_rps": ("requests/s", ",.0f"),
    "p50_us": ("p50 µs", ",.0f"),
    "cpu_us_per_request": ("CPU µs/request", ",.1f"),
}
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


def write_models(folder: Path, payloads: Sequence[str]) -> dict[str, str]:
    """Writes the models.

    Args:
        folder: where to.
        payloads: those that are wanted: MLP and keys of SLICES.

    Returns:
        Each payload's model, as name=file.
    """
    mlp.write(folder / "mlp.onnx")
    models = {MLP: f"mlp={folder / 'mlp.onnx'}"}
    for payload, size in SLICES.items():
        path = folder / f"slice{size}.onnx"
        path.write_bytes(slice_bytes(size))
        models[payload] = f"slice{size}={path}"
    return {payload: models[payload] for payload in payloads}


@dataclass(frozen=True, slots=True)
class Variant:
    """A server's name in the table, and its settings beyond the common ones, as SETTING=VALUE."""

    name: str
    settings: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Variant:
        """Reads a command line's "NAME: SETTING=VALUE SETTING=VALUE"; there may be no setting.

        Raises:
            argparse.ArgumentTypeError: it has no name.
        """
        name, colon, settings = text.partition(":")
        if not name or not colon:
            raise argparse.ArgumentTypeError(f"expected 'NAME: SETTING=VALUE', found {text!r}")
        return cls(name, tuple(settings.split()))


@dataclass(slots=True)
class Row:
    """One model and number of connections: a figure per round and variant, None for a failure."""

    model: str
    connections: int
    figures: dict[str, dict[str, list[float | None]]] = field(
        default_factory=lambda: {figure: {} for figure in FIGURES}
    )

    def add(self, variant: str, **figures: float | None) -> None:
        """Takes the figures of one round in, named as in FIGURES."""
        for name, value in figures.items():
            self.figures[name].setdefault(variant, []).append(value)

    def ratio(self, figure: str, variant: str) -> Ratio | None:
        """Of that variant to the first."""
        there = self.figures[figure]
        return paired(there[variant], there[next(iter(there))])

    def as_json(self) -> dict[str, Any]:
        """Figures under stable names, ratios to the first variant."""
        found: dict[str, Any] = {"model": self.model, "connections": self.connections}
        for figure, by_variant in self.figures.items():
            ratios = {name: self.ratio(figure, name) for name in list(by_variant)[1:]}
            found[figure] = by_variant
            found[f"{figure}_ratio"] = {
                n: None if r is None else r.middle for n, r in ratios.items()
            }
        return found


def run(options: argparse.Namespace, models: dict[str, str]) -> tuple[list[Row], list[str]]:
    """Measures everything.

    Args:
        options: as the command line gave them.
        models: as write_models gave them.

    Returns:
        The rows, and what failed, as sentences.
    """
    rows = [Row(model, n) for model in models for n in options.connections]
    failures: list[str] = []
    settings = ["--set=server.metrics_port=0", *(f"--set={setting}" for setting in options.set)]
    chosen = [f"--model={model}" for model in models.values()]
    with ExitStack() as stack:
        servers = {
            variant.name: stack.enter_context(
                local_server(*chosen, *settings, *(f"--set={each}" for each in variant.settings))
            )
            for variant in options.variants
        }
        names = list(servers)
        for number in range(options.rounds):
            for row in rows:
                for name in names if number % 2 == 0 else names[::-1]:
                    rps = _measure(servers[name], name, row, models, options, failures)
                    said = "failed" if rps is None else f"{rps:,.0f}/s"
                    print(
                        f"round {number + 1}/{options.rounds}: {row.model}, "
                        f"{row.connections} connections, {name}: {said}",
                        file=sys.stderr,
                    )
    return rows, failures


def _measure(
    server: LocalServer,
    variant: str,
    row: Row,
    models: dict[str, str],
    options: argparse.Namespace,
    failures: list[str],
) -> float | None:
    name = models[row.model].partition("=")[0]
    shape = Shape(name, row.connections, options.seconds, options.warmup, encoding="tensors")
    rps = p50_us = cpu_us = None
    try:
        measured = measure(server, shape)
        if measured.load.errors:
            raise LumenError(f"{measured.load.errors} requests failed")
        rps, cpu_us = measured.throughput_rps, measured.cpu_us_per_request
        p50_us = measured.load.histogram.percentile_ns(50.0) / 1e3
    except LumenError as error:
        failures.append(f"{row.model}, {row.connections} connections, {variant}: {error}")
    row.add(variant, throughput_rps=rps, p50_us=p50_us, cpu_us_per_request=cpu_us)
    return rps


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown; of several rounds the median, ratios with their range.

    Args:
        rows: as run gave them.
    """
    heads: list[str] = ["model", "connections"]
    lines = []
    for row in rows:
        cells = [row.model, f"{row.connections:,}"]
        for (figure, (word, form)), by_variant in zip(
            FIGURES.items(), row.figures.values(), strict=True
        ):
            names = list(by_variant)
            cells += [_figure(middle(values), form) for values in by_variant.values()]
            cells += [_ratio(row.ratio(figure, name)) for name in names[1:]]
            if not lines:
                heads += [f"{name}, {word}" for name in names]
                heads += [f"{name} ÷ {names[0]}" for name in names[1:]]
        lines.append(cells)
    return make_table(heads, lines)


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
    found.add_argument("--model", metavar="NAME=FILE", help="measured in place of the payloads")
    found.add_argument(
        "--variant",
        type=Variant.read,
        dest="variants",
        action="append",
        metavar="'NAME: SETTING=VALUE ...'",
        help="a server; at least two (io_uring and epoll)",
    )
    found.add_argument("--set", action="append", metavar="SETTING=VALUE", help="for all servers")
    found.add_argument("--json", action="store_true", help="figures of every round as JSON")
    found.add_argument("--short", action="store_true", help="one round of moments: for a try")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints. Returns 1 when something failed."""
    options = parser().parse_args(arguments)
    options.variants = options.variants or [
        Variant(name, (f"server.io_backend={name}",)) for name in BACKENDS
    ]
    options.set = options.set or list(_NO_REFUSALS)
    if options.short:
        options.rounds, options.seconds, options.warmup = 1, 0.3, 0.1
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(options.connections) + 256
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with tempfile.TemporaryDirectory() as folder:
        if options.model:
            models = {options.model.partition("=")[0]: options.model}
        else:
            models = write_models(Path(folder), options.payloads)
        rows, failures = run(options, models)
    if options.json:
        document = {
            "machine": machine(),
            "set": options.set,
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
