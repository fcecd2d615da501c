"""`make loading`: what clients of small models notice while large ones are loaded and unloaded.

A developer's tool. One server has SqueezeNet at 70 % of what it can run beside an MLP at 500
requests a second, both at random moments (open loop). In turns with the same without, a client
loads and unloads a model of 87 MB and one of 500 MB over HTTP, again and again. Percentiles are of
all quiet and all disturbed phases of one run, and the median of each round's ratios is said too;
resident memory is read before, and when everything is unloaded. `--triton` does the same with
Triton's Python backend, in turns with Lumen: SqueezeNet at 60 % and the MLP at 10 % of what that
can run. `--plot FILE` draws Lumen's percentiles. It must never run beside other work.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime  # type: ignore[import-untyped,unused-ignore]

from bench.common import mlp
from bench.common.local_server import local_server, squeezenet
from bench.common.measure import machine, machine_cpu_s
from bench.peers.install import PeerMissingError
from bench.peers.servers import Model, triton_of
from bench.report.rules import table
from lumen_uring.cli import make_parser
from lumen_uring.commands.bench import make_plan
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.load import Load, LoadPlan

SHARE: Final = 0.7
MLP_RATE: Final = 500.0
MLP_SHARE: Final = 0.1  # of what Triton can run
LARGE: Final = {"large": 22, "huge": 125}  # layers of 4 MB
PERCENTS: Final = (50.0, 99.0, 99.9)
_ISOLATED: Final = 'parameters { key: "isolation" value: { string_value: "process" } }'
_WIDTH: Final = 1024
_CALL_S: Final = 120.0
_IDLE_LOOKS, _IDLE_LOOK_S, _IDLE_SHARE = 60, 0.5, 0.1  # of one core


def write_model(path: Path, layers: int) -> None:
    """Writes layers x = x + relu(x W) of 1024 x 1024: no chain, so that ONNX Runtime runs it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(layers)
    nodes, weights, last = [], [], "x"
    for layer in range(layers):
        matrix = random.standard_normal((_WIDTH, _WIDTH), np.float32) / _WIDTH
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"]),
            helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"]),
            helper.make_node("Add", [last, f"r{layer}"], [f"x{layer}"]),
        ]
        last = f"x{layer}"
    shape = ["n", _WIDTH]
    graph = helper.make_graph(
        nodes,
        path.parent.parent.name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.parent.mkdir(parents=True)
    onnx.save(model, str(path))


@dataclass(slots=True)
class Loader:
    """A client that loads and unloads until it is told to stop."""

    port: int
    stop: threading.Event = field(default_factory=threading.Event)
    loads: int = 0
    took_s: list[float] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Loads one model after the other; each is unloaded again."""
        while not self.stop.is_set():
            for name in LARGE:
                began_s = time.monotonic()
                self._call(name, "load")
                self.took_s.append(time.monotonic() - began_s)
                self._call(name, "unload")
                self.loads += 1
                if self.stop.is_set():
                    return

    def _call(self, name: str, action: str) -> None:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_CALL_S)
        link.request("POST", f"/v2/repository/models/{name}/{action}", b"{}")
        answer = link.getresponse()
        said = answer.read().decode()
        if answer.status != 200:
            self.refusals.append(f"{action} {name}: {answer.status} {said}")
        link.close()


@contextmanager
def loading(port: int, into: list[Loader]) -> Iterator[None]:
    """Loads and unloads meanwhile; the loader is added to a list."""
    loader = Loader(port)
    thread = threading.Thread(target=loader.run)
    thread.start()
    try:
        yield
    finally:
        loader.stop.set()
        thread.join()
        into.append(loader)


def phase(plans: dict[str, LoadPlan]) -> dict[str, tuple[Histogram, int, int]]:
    """Both loads at once: latency, requests and errors of each."""
    loads = {name: Load(plan) for name, plan in plans.items()}
    found = {}
    for name, load in loads.items():
        result = load.wait()
        assert result is not None
        found[name] = (result.histogram, result.requests, result.errors + result.mismatches)
    return found


def resident_bytes(pid: int) -> int:
    """What a server and the processes that it has started hold of the machine's memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    own = int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) * 1024
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return own + sum(
        resident_bytes(int(one)) for path in children for one in path.read_text().split()
    )


@dataclass(slots=True)
class Target:
    """A server that is measured, and what came of it."""

    name: str
    port: int
    pid: int
    scheme: str
    rates: dict[str, float] = field(default_factory=dict)
    before_bytes: int = 0
    loaders: list[Loader] = field(default_factory=list)
    rows: dict[tuple[str, bool], list[tuple[Histogram, int, int]]] = field(default_factory=dict)

    def plan(self, model: str, connections: int, seconds: float, rate: float) -> LoadPlan:
        """What the load generator sends; rate 0: as much as is answered."""
        words = ["bench", f"--url={self.scheme}://127.0.0.1:{self.port}", f"--model={model}"]
        words += [f"--connections={connections}", f"--seconds={seconds}", f"--rate={rate}"]
        return make_plan(make_parser().parse_args([*words, "--warmup=0.5"]))

    def most(self, model: str) -> float:
        """Requests a second that it can answer."""
        ((_, requests, _),) = phase({model: self.plan(model, 16, 3.0, 0)}).values()
        return requests / 3.0

    def begin(self) -> None:
        """Does once what is done once, such as the cache; finds the rates."""
        with loading(self.port, self.loaders):
            time.sleep(1.0)
        del self.loaders[:]
        if self.name == "lumen":
            self.rates = {"squeezenet": SHARE * self.most("squeezenet"), "mlp": MLP_RATE}
        else:
            shares = {"squeezenet": SHARE - MLP_SHARE, "mlp": MLP_SHARE}
            self.rates = {name: share * self.most(name) for name, share in shares.items()}
        self.before_bytes = resident_bytes(self.pid)

    def measure(self, seconds: float, disturbed: bool) -> None:
        """One phase."""
        plans = {name: self.plan(name, 8, seconds, rate) for name, rate in self.rates.items()}
        with loading(self.port, self.loaders) if disturbed else nullcontext():
            found = phase(plans)
        for name, measured in found.items():
            self.rows.setdefault((name, disturbed), []).append(measured)
        wait_until_idle()

    def results(self) -> dict[str, Any]:
        """All figures; what is unloaded has had its time."""
        took = [each for loader in self.loaders for each in loader.took_s]
        return {
            "server": self.name,
            "rates": self.rates,
            "loads": sum(loader.loads for loader in self.loaders),
            "load_seconds": sorted(took),
            "refusals": [each for loader in self.loaders for each in loader.refusals],
            "resident_bytes": [self.before_bytes, resident_bytes(self.pid)],
            "rows": [
                {
                    "model": name,
                    "loading": disturbed,
                    "requests": sum(requests for _, requests, _ in measured),
                    "errors": sum(errors for *_, errors in measured),
                    "us": [_sum(measured).percentile_ns(percent) / 1e3 for percent in PERCENTS],
                    "curve": [_sum(measured).percentile_ns(p) / 1e3 for p in _CURVE],
                }
                for (name, disturbed), measured in sorted(self.rows.items())
            ],
            "ratios": {name: self._ratios(name) for name in self.rates},
        }

    def _ratios(self, name: str) -> list[float]:
        """Of each percentile while loading by that without, in each round: the median, which one
        with a busy neighbour does not move."""
        both = zip(self.rows[name, False], self.rows[name, True], strict=True)
        found = [
            [b.percentile_ns(p) / a.percentile_ns(p) for p in PERCENTS] for (a, *_), (b, *_) in both
        ]
        return [statistics.median(of) for of in zip(*found, strict=True)]


def wait_until_idle() -> None:
    """Triton goes on unloading after it has said that it had: the next phase is not to notice."""
    for _ in range(_IDLE_LOOKS):
        before_s = machine_cpu_s()
        time.sleep(_IDLE_LOOK_S)
        if machine_cpu_s() - before_s < _IDLE_LOOK_S * _IDLE_SHARE:
            return


@contextmanager
def triton(folder: Path) -> Iterator[Target]:
    """Triton's Python backend with the same models.

    Raises:
        PeerMissingError: it cannot be installed or started here.
    """
    paths = {"squeezenet": squeezenet(), "mlp": str(folder / "mlp.onnx")}
    paths |= {name: str(folder / "models" / name / "1/model.onnx") for name in LARGE}
    models = {name: peer_model(str(path)) for name, path in paths.items()}
    cores = frozenset(os.sched_getaffinity(0))
    with triton_of(models, cores, loaded=("squeezenet", "mlp")) as (pid, port):
        yield Target("triton", port, pid, "http")


def peer_model(path: str) -> Model:
    """A model's one input and output, as Triton is told of them."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (given,), (got, *_) = session.get_inputs(), session.get_outputs()
    return Model(path, given.name, _shape(given.shape), got.name, _shape(got.shape))


def _shape(dims: Sequence[object]) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else 1 for dim in dims)


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measures everything.

    Raises:
        LumenError, RuntimeError: a server or a load did not start.
        PeerMissingError: Triton is wanted, and cannot be had here.
    """
    for name, layers in LARGE.items():
        write_model(folder / "models" / name / "1/model.onnx", layers)
        if options.isolated:
            (folder / "models" / name / "config.pbtxt").write_text(_ISOLATED)
    words = [
        f"--model=squeezenet={squeezenet()}",
        f"--model=mlp={mlp.write(folder / 'mlp.onnx')}",
        "--set=repository.control=explicit",
        f"--set=repository.paths=[{folder / 'models'}]",
        "--set=server.metrics_port=0",
        *(f"--set={setting}" for setting in options.set),
    ]
    with ExitStack() as stack:
        server = stack.enter_context(local_server(*words))
        targets = [Target("lumen", server.port, server.pid, "lumen")]
        if options.triton:
            targets.append(stack.enter_context(triton(folder)))
        rounds = _measure(targets, options)
        return {
            "machine": machine(),
            "seconds": options.seconds * rounds,
            "servers": [target.results() for target in targets],
        }


def _measure(targets: list[Target], options: argparse.Namespace) -> int:
    """Returns how many rounds it took."""
    for target in targets:
        target.begin()
    done = 0
    while done < options.rounds or _loads(targets) < options.loads:
        for target in targets:
            for disturbed in (False, True) if done % 2 == 0 else (True, False):
                print(f"round {done + 1}, {target.name}: loading: {disturbed}", file=sys.stderr)
                target.measure(options.seconds, disturbed)
        done += 1
    time.sleep(2.0)
    return done


def _loads(targets: list[Target]) -> int:
    """The fewest of any."""
    return min(sum(loader.loads for loader in target.loaders) for target in targets)


_CURVE: Final = (5, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.9)


def _sum(measured: list[tuple[Histogram, int, int]]) -> Histogram:
    first, *others = [histogram for histogram, *_ in measured]
    for other in others:
        first = first.plus(other)
    return first


def report(results: dict[str, Any]) -> str:
    """The table, and what else there is to say, as Markdown."""
    lines, said = [], []
    for server in results["servers"]:
        for quiet, disturbed in zip(server["rows"][::2], server["rows"][1::2], strict=True):
            cells = [server["server"], quiet["model"], f"{server['rates'][quiet['model']]:.0f}"]
            for a, b in zip(quiet["us"], disturbed["us"], strict=True):
                cells += [f"{a:,.0f}", f"{b:,.0f}", f"{b / a:.2f}"]
            lines.append([*cells, str(quiet["errors"] + disturbed["errors"])])
        took, (before, after) = server["load_seconds"], server["resident_bytes"]
        middle = took[len(took) // 2] if took else 0.0
        said.append(
            f"{server['server']}: {server['loads']} loads (median {middle:.2f} s), "
            f"{len(server['refusals'])} refused; resident {before / 1e6:.0f} MB before, "
            f"{after / 1e6:.0f} MB after."
        )
        for name, ratios in server["ratios"].items():
            each = ", ".join(f"p{p:g} {r:.2f}" for p, r in zip(PERCENTS, ratios, strict=True))
            said.append(f"{server['server']}, {name}: median of the rounds' ratios: {each}.")
    heads = ["server", "model", "requests/s"]
    for percent in PERCENTS:
        heads += [f"p{percent:g} µs", "while loading", "ratio"]
    return "\n\n".join([table([*heads, "errors"], lines), *said])


def draw(results: dict[str, Any], path: Path) -> None:
    """Draws latency by percentile, quiet and while loading, one picture per model.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib  # type: ignore[import-not-found,unused-ignore]

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "lumen"
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for row in results["servers"][0]["rows"]:
        axis = axes[int(row["model"] == "squeezenet")]
        label = "while large models are loaded" if row["loading"] else "without"
        colour = "#d55e00" if row["loading"] else "#0072b2"
        values = [us / 1e3 for us in row["curve"]]
        axis.plot(range(len(_CURVE)), values, marker=".", color=colour, label=label)
        axis.set_xticks(range(len(_CURVE)), [f"{p:g}" for p in _CURVE], fontsize=7)
        axis.set_title(f"{row['model']}: ms by percentile", fontsize=10)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints. Returns 1 where a request or a load failed."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=6, help="at least (%(default)s)")
    parser.add_argument("--loads", type=int, default=0, help="go on until there were so many")
    parser.add_argument("--triton", action="store_true", help="measure it too; 55 MB to install")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a phase (%(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--isolated", action="store_true", help="the large ones: a process each")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lumen-") as folder:
        try:
            results = run(options, Path(folder))
        except PeerMissingError as error:
            parser.error(str(error))
    print(json.dumps(results, indent=1) if options.json else report(results))
    for refusal in (each for server in results["servers"] for each in server["refusals"]):
        print(f"refused: {refusal}", file=sys.stderr)
    if options.plot:
        draw(results, options.plot)
    (own, *_) = results["servers"]
    return 1 if own["refusals"] or any(row["errors"] for row in own["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
