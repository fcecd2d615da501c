"""`make compare`: Lumen beside other servers, in one run, with one model, on the same cores.

A developer's tool. Peers: FastAPI with uvicorn and ONNX Runtime, and Triton's Python backend with
ONNX Runtime (peers/servers.py), each tuned for throughput and as its users write it. All get the
same model file, the same version of ONNX Runtime and the same float32 input. Lumen over HTTP and
the peers are loaded with wrk, Lumen over its native protocol with its own generator: both closed
loops in C, a request at a time per connection. Everybody's answer is checked against ONNX Runtime
before anything is timed. It must never quote a figure that was not measured in the same run as the
one beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime  # type: ignore[import-untyped,unused-ignore]

from bench.common import mlp
from bench.common.local_server import local_server, squeezenet
from bench.common.measure import Shape, machine, measure, spread_us
from bench.common.options import add_rounds, some_of
from bench.common.places import PLACES, Place, pinned, places
from bench.peers import servers, wrk
from bench.peers.install import PeerMissingError
from bench.peers.servers import Model, Peer
from bench.report.compare_table import (
    ABOUT,
    FIGURES,
    PERCENTILES,
    TARGETS,
    WORKLOADS,
    draw,
    order,
    report,
)
from lumen_uring import Client
from lumen_uring.errors import LumenError
from lumen_uring.loading.model_cache import resolve

_INLINE: Final = "--set=engine.queue_type=inline"
_NATIVE: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "lumen": ("tensors", ()),
    "lumen inline": ("tensors", (_INLINE,)),
    "lumen rgb8": ("rgb8", ()),
}
_HTTP: Final[Mapping[str, tuple[str, ...]]] = {"lumen http": (), "lumen http inline": (_INLINE,)}
_PEERS: Final = {
    "fastapi": servers.FASTAPI,
    "fastapi defaults": servers.FASTAPI_DEFAULTS,
    "triton python": servers.TRITON,
    "triton python defaults": servers.TRITON_DEFAULTS,
}


@dataclass(frozen=True, slots=True)
class Task:
    """A model, an input for it, and what ONNX Runtime says to that."""

    name: str
    model: Model
    body: bytes
    expected: servers.Array


def task(name: str, path: str) -> Task:
    """Prepares a workload.

    Args:
        name: of the workload.
        path: an ONNX file with one float32 input and one float32 output, whose first size is free.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    bare = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (taken, given) = bare.get_inputs()[0], bare.get_outputs()[0]
    shape = (1, *taken.shape[1:])
    tensor = np.random.default_rng(1).random(shape, np.float32)
    (answer,) = bare.run(None, {taken.name: tensor})
    model = Model(path, taken.name, shape, given.name, tuple(answer.shape))
    return Task(name, model, tensor.tobytes(), answer.reshape(-1))


class Comparison:
    """Runs the rounds and holds what came of them.

    Args:
        options: as the command line gave them.
        tasks: the workloads by name.
    """

    def __init__(self, options: argparse.Namespace, tasks: Mapping[str, Task]) -> None:
        self._options = options
        self._tasks = tasks
        self._figures: dict[tuple[str, str, int, str], list[dict[str, float] | None]] = {}
        self.missing: dict[str, str] = {}
        self._done = 0

    def install(self) -> None:
        """Installs what peers need; who cannot be installed is left out."""
        for target in self._options.targets:
            if target in _NATIVE:
                continue
            if not wrk.found():
                self._leave_out(target, PeerMissingError(f"{wrk.MISSING}."))
            elif target in _PEERS:
                self._install_one(target)

    def _install_one(self, target: str) -> None:
        try:
            _PEERS[target].install()
        except PeerMissingError as error:
            self._leave_out(target, error)

    def _leave_out(self, target: str, error: PeerMissingError) -> None:
        self.missing[target] = str(error)
        print(f"{target}: {error}", file=sys.stderr)

    def run_round(self, number: int) -> None:
        """One round: everyone once on every workload in every place, in an order shuffled anew.

        Args:
            number: from 0.
        """
        options = self._options
        turns = [
            (place, workload, target)
            for place in places()
            for workload in options.workloads
            for target in options.targets
            if place.name in options.places and not (target == "lumen rgb8" and workload == "mlp")
        ]
        random.Random(f"{options.seed} {number}").shuffle(turns)
        for index, (place, workload, target) in enumerate(turns, 1):
            if target in self.missing:
                continue
            step = f"round {number + 1}/{options.rounds}, {index}/{len(turns)}"
            print(f"{step}: {target} on {workload}, {place.name}", file=sys.stderr)
            try:
                self._run_target(place, self._tasks[workload], target)
            except PeerMissingError as error:
                self._leave_out(target, error)
            except (LumenError, RuntimeError, OSError) as error:
                print(f"{target}: {error}", file=sys.stderr)
        self._done = number + 1
        for found in self._figures.values():
            found += [None] * (self._done - len(found))

    def _run_target(self, place: Place, work: Task, target: str) -> None:
        run = self._run_native if target in _NATIVE else self._run_wrk
        for connections, figures in run(place, work, target):
            found = self._figures.setdefault((place.name, work.name, connections, target), [])
            found += [None] * (self._done - len(found))
            found.append(figures)

    def _run_native(
        self, place: Place, work: Task, target: str
    ) -> Iterator[tuple[int, dict[str, float]]]:
        encoding, settings = _NATIVE[target]
        model = f"--model=model={work.model.path}"
        with local_server(model, *settings, cores=place.server) as server:
            with Client("127.0.0.1", server.port) as client:
                tensor = np.frombuffer(work.body, np.float32).reshape(work.model.input_shape)
                answer = client.infer("model", {work.model.input_name: tensor})
            check(target, work, answer.outputs[work.model.output_name].reshape(-1))
            for connections in self._options.connections:
                shape = Shape(
                    "model",
                    connections,
                    self._options.seconds,
                    self._options.warmup,
                    encoding=encoding,
                    cpu=place.client,
                )
                measured = measure(server, shape)
                spread = spread_us(measured.load.histogram)
                yield (
                    connections,
                    {
                        "throughput_rps": measured.throughput_rps,
                        "errors": measured.load.errors,
                        "cpu_us_per_request": measured.cpu_us_per_request,
                        "client_share": measured.load.cpu_seconds / measured.load.seconds,
                        **{name: value for name, value in spread.items() if value is not None},
                    },
                )

    def _run_wrk(
        self, place: Place, work: Task, target: str
    ) -> Iterator[tuple[int, dict[str, float]]]:
        options = self._options
        with _serving(target, work, place) as peer:
            check(target, work, peer.ask())
            for connections in options.connections:
                request = (peer.url, peer.body, peer.headers, connections)
                with pinned(place.client_cores):
                    if options.warmup:
                        wrk.load(*request, options.warmup)
                    before = servers.session_cpu_s(peer.pid)
                    found = wrk.load(*request, options.seconds)
                    cpu_s = servers.session_cpu_s(peer.pid) - before
                yield (
                    connections,
                    {
                        "throughput_rps": found["requests"] / found["seconds"],
                        "errors": found["errors"],
                        "cpu_us_per_request": cpu_s * 1e6 / max(1, found["requests"]),
                        "client_share": found["client_share"],
                        **{name: found[name] for name in ("mean", *PERCENTILES)},
                    },
                )

    def as_json(self) -> dict[str, Any]:
        """Everything so far; a list has an entry per round, null where the round failed."""
        rows = []
        for (place, workload, connections, target), rounds in self._figures.items():
            names = (*FIGURES, "mean", *PERCENTILES)
            figures = {name: [each and each.get(name) for each in rounds] for name in names}
            rows.append(
                {
                    **{"place": place, "workload": workload, "connections": connections},
                    **{"target": target, **figures},
                }
            )

        return {
            "machine": machine(),
            "rounds": self._done,
            "seconds": self._options.seconds,
            "rows": sorted(rows, key=order),
            "missing": self.missing,
        }


@contextmanager
def _serving(target: str, work: Task, place: Place) -> Iterator[Peer]:
    """Starts what wrk is to load, on the server's cores."""
    if target in _HTTP:
        model = f"--model=model={work.model.path}"
        with local_server(model, *_HTTP[target], cores=place.server) as server:
            yield servers.oip_peer(server.pid, server.port, work.model, work.body)
        return
    with _PEERS[target].start(work.model, work.body, place.server) as peer:
        yield peer


def check(target: str, work: Task, answer: servers.Array) -> None:
    """Compares a server's answer with ONNX Runtime's.

    Raises:
        RuntimeError: it is another one.
    """
    if answer.shape != work.expected.shape or not np.allclose(answer, work.expected, atol=1e-4):
        raise RuntimeError(f"{target} gives another answer than ONNX Runtime: nothing was timed.")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[2],
        epilog=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_rounds(found, rounds=5, seconds=3.0, warmup=1.0, connections=[1, 16])
    for name, allowed in (("targets", TARGETS), ("workloads", WORKLOADS), ("places", PLACES)):
        found.add_argument(
            f"--{name}", type=some_of(allowed), default=list(allowed), help=", ".join(allowed)
        )
    found.add_argument("--seed", type=int, default=1, help="of the order (%(default)s)")
    found.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    found.add_argument("--plot", type=Path, metavar="FILE", help="draw what wrk got, as SVG")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints; Ctrl-C prints the rounds that are whole."""
    options = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        small = str(mlp.write(Path(directory, "mlp.onnx")))
        tasks = {
            "mlp": task("mlp", small),
            "squeezenet": task("squeezenet", str(resolve(squeezenet()))),
        }
        comparison = Comparison(options, tasks)
        results: dict[str, Any] = {}
        comparison.install()
        try:
            for number in range(options.rounds):
                comparison.run_round(number)
                results = comparison.as_json()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
    if not results:
        return 1
    print(report(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.plot:
        draw(results, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
