"""`make http-overhead`: what HTTP adds to the native protocol, on one server, by one generator.

A developer's tool. SqueezeNet from rgb8 pixels and from float32, and the MLP: each over both
protocols in short rounds that alternate, so that a machine's drift hits both alike; differences are
made inside a round. HTTP carries binary tensors (rgb8: a raw binary request) and asks for binary
ones back. Both answers are compared before anything is timed.

A bucket of the generator's histogram is 1/64 of its value wide: at 7 ms that is 100 µs, and a
median read from it cannot tell 15 µs. Its sum of all latencies is exact, so differences are of
`typical_us`, the mean without what is far above the median.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.common import mlp, oip
from bench.common.local_server import LocalServer, local_server, squeezenet
from bench.common.measure import Measured, Shape, machine, measure_plan, plan_of
from bench.common.options import add_rounds, some_of
from bench.common.places import PLACES, Place, find
from bench.load import transports
from bench.report.rules import amount, plural, table
from lumen_uring import Client
from lumen_uring.errors import LumenError
from lumen_uring.protocol.describe import DTYPES
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.load import LoadPlan

CASES: Final = {
    "squeezenet rgb8": ("squeezenet", "rgb8"),
    "squeezenet float32": ("squeezenet", "tensors"),
    "mlp": ("mlp", "tensors"),
}
PROTOCOLS: Final = ("native", "http")
_TARGET_US: Final = 15.0
_FAR: Final = 1.25
_HEADS: Final = (
    *("", "connections", "native: p50 µs", "p99", "CPU µs", "HTTP: p50 µs", "p99", "CPU µs"),
    *("HTTP - native: typical µs", "p99", "errors"),
)


@dataclass(slots=True)
class Cell:
    """All rounds of one case, number of connections and protocol."""

    typical_us: list[float | None] = field(default_factory=list)
    histogram: Histogram | None = None
    cpu_s: float = 0.0
    served: int = 0
    errors: int = 0

    def add(self, measured: Measured) -> None:
        """Takes one round in."""
        found = measured.load.histogram
        self.typical_us.append(typical_us(found, measured.load.mean_ns))
        self.histogram = found if self.histogram is None else self.histogram.plus(found)
        self.cpu_s += measured.cpu_s
        self.served += measured.server.counters["worker"]["requests_ok"]
        self.errors += measured.load.errors

    def as_json(self) -> dict[str, Any]:
        """Figures under stable names; latencies in µs, the typical ones per round."""
        assert self.histogram is not None
        return {
            "p50": _us(self.histogram, 50.0),
            "p99": _us(self.histogram, 99.0),
            "cpu_us_per_request": self.cpu_s * 1e6 / self.served if self.served else None,
            "requests": self.histogram.count,
            "errors": self.errors,
            "typical_us": self.typical_us,
        }


def typical_us(values: Histogram, mean_ns: float) -> float | None:
    """The mean of what lies within a quarter above the median, to well under a bucket's width.

    Args:
        values: of one round.
        mean_ns: the exact mean of them all.

    Returns:
        µs; None where there is no value.
    """
    count = values.count
    if count == 0:
        return None
    limit_ns = values.percentile_ns(50.0) * _FAR
    # Only what is taken away is known by its bucket; what stays is exact.
    far = [
        (int(values.counts[index]), values.midpoint_ns(int(index)))
        for index in np.flatnonzero(values.counts)
        if values.midpoint_ns(int(index)) > limit_ns
    ]
    left = count - sum(many for many, _ in far)
    return (mean_ns * count - sum(many * ns for many, ns in far)) / left / 1e3


def _us(values: Histogram, percent: float) -> float | None:
    found_ns = values.percentile_ns(percent)
    return None if math.isnan(found_ns) else found_ns / 1e3


def check(native: LoadPlan, over_http: LoadPlan, name: str) -> None:
    """Sends a first request over each protocol.

    Args:
        native: a plan over the native protocol.
        over_http: the same load over HTTP.
        name: of the model, which has one input.

    Raises:
        RuntimeError: HTTP is refused, or the answers differ.
    """
    payload = native.payloads[0]
    with Client(native.host, native.port) as client:
        model = client.models()[name]
        if native.encoding == 0:
            (tensor,) = model.inputs
            values = np.frombuffer(payload, DTYPES[tensor.datatype])
            shape = (native.rows, *tensor.shape[1:])
            found = client.infer(model.name, {tensor.name: values.reshape(shape)})
        else:
            assert model.rgb8 is not None
            pixels = np.frombuffer(payload, np.uint8)
            found = client.infer_rgb8(
                model.name, pixels.reshape(model.rgb8.height, model.rgb8.width, 3)
            )
    expected = b"".join(found.outputs[tensor.name].tobytes() for tensor in model.outputs)
    head, _, body = over_http.payloads[0].partition(b"\r\n\r\n")
    lines = [line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:]]
    path = oip.infer_path(model.name)
    if oip.output_bytes(native.port, path, body, dict(lines)) != expected:
        raise RuntimeError(f"{model.name}: HTTP and native answers differ: nothing was timed.")


def plans_of(
    server: LocalServer, case: str, connections: int, options: argparse.Namespace, place: Place
) -> dict[str, LoadPlan]:
    """The same load over each protocol, checked.

    Args:
        server: a running one that serves the case's model.
        case: of CASES.
        connections: each has one request at a time.
        options: as the command line gave them.
        place: for the generator's core.
    """
    name, encoding = CASES[case]
    plans = {
        protocol: plan_of(
            server,
            Shape(
                name,
                connections,
                options.seconds,
                options.warmup,
                encoding=encoding,
                cpu=place.client,
                poll_us=options.poll_us,
                protocol=protocol,
            ),
        )
        for protocol in PROTOCOLS
    }
    check(plans["native"], plans["http"], name)
    return plans


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs all rounds.

    Args:
        options: as the command line gave them.

    Returns:
        Everything under stable names.

    Raises:
        LumenError: no server, or none that speaks HTTP.
        RuntimeError: the answers differ.
    """
    place = find(options.place)
    models = {CASES[case][0] for case in options.cases}
    with tempfile.TemporaryDirectory() as directory:
        paths = {"mlp": str(Path(directory, "mlp.onnx")), "squeezenet": squeezenet()}
        mlp.write(Path(paths["mlp"]))
        arguments = [f"--model={name}={paths[name]}" for name in sorted(models)]
        arguments += [f"--set={setting}" for setting in options.set]
        with local_server(*arguments, cores=place.server) as server:
            plans = {
                (case, count): plans_of(server, case, count, options, place)
                for case in options.cases
                for count in options.connections
            }
            cells = {key: {protocol: Cell() for protocol in PROTOCOLS} for key in plans}
            for number in range(options.rounds):
                print(f"round {number + 1}/{options.rounds}", file=sys.stderr)
                turns = PROTOCOLS if number % 2 == 0 else PROTOCOLS[::-1]
                for key, pair in plans.items():
                    for protocol in turns:
                        cells[key][protocol].add(measure_plan(server, pair[protocol]))
    rows = [
        {
            **{"case": case, "connections": count},
            **{protocol: cell.as_json() for protocol, cell in pair.items()},
        }
        for (case, count), pair in cells.items()
    ]
    about = {"machine": machine(), "place": place.words, "poll_us": options.poll_us}
    return {**about, "rounds": options.rounds, "seconds": options.seconds, "rows": rows}


def difference_us(row: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """What HTTP adds to a typical request.

    Args:
        row: of the results.

    Returns:
        The median of the rounds' differences, and the bounds between which it lies with 95 %
        confidence (by the sign test; with fewer than 6 rounds all of them); µs. None without a
        round that has both.
    """
    pairs = zip(row["http"]["typical_us"], row["native"]["typical_us"], strict=True)
    found = sorted(http - native for http, native in pairs if None not in (http, native))
    if not found:
        return None
    low, count = 0, len(found)
    while _at_most(count, low + 1) <= 0.025:
        low += 1
    return statistics.median(found), found[low], found[count - 1 - low]


def _at_most(count: int, most: int) -> float:
    """The probability that of `count` fair coins at most so many show heads."""
    return sum(math.comb(count, heads) for heads in range(most + 1)) / 2.0**count


def report(results: Mapping[str, Any]) -> str:
    """Makes text of the results.

    Args:
        results: as `measure` gives them.

    Returns:
        Markdown.
    """
    about = results["machine"]
    cells = []
    for row in results["rows"]:
        line = [row["case"], str(row["connections"])]
        for protocol in PROTOCOLS:
            line += [amount(row[protocol][name]) for name in ("p50", "p99", "cpu_us_per_request")]
        cells.append([*line, *_differences(row)])
    parts = [
        f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, ONNX Runtime "
        f"{about['onnxruntime']}, {about['date']}; {results['place']}; the generator looks "
        f"{results['poll_us']} µs before it sleeps; {plural(results['rounds'], 'round')} of "
        f"{results['seconds']:g} s. Typical: the mean of what lies within a quarter above the "
        "median; its difference is the median of the rounds' differences, with the bounds between "
        f"which it lies with 95 % confidence. Target: at most {_TARGET_US:g} µs over 1 connection.",
        table(_HEADS, cells),
    ]
    return "\n\n".join(parts)


def _differences(row: Mapping[str, Any]) -> Sequence[str]:
    added = difference_us(row)
    tails = [row[protocol]["p99"] for protocol in ("http", "native")]
    return (
        "-" if added is None else f"{added[0]:+.1f} ({added[1]:+.1f} to {added[2]:+.1f})",
        "-" if None in tails else f"{tails[0] - tails[1]:+.1f}",
        str(row["native"]["errors"] + row["http"]["errors"]),
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    add_rounds(found, rounds=30, seconds=0.4, warmup=0.1, connections=[1, 16])
    found.add_argument(
        "--cases",
        type=some_of(CASES),
        default=list(CASES),
        metavar="NAME,NAME",
        help=", ".join(CASES),
    )
    found.add_argument(
        "--poll-us", type=int, default=0, help="the generator looks so long before it sleeps"
    )
    found.add_argument("--place", choices=PLACES, default="one-core", help="(%(default)s)")
    found.add_argument("--set", action="append", default=[], help="passed on to the server")
    found.add_argument(
        "--transports",
        action="store_true",
        help="instead: the server's CPU time over TCP, the unix socket and shared memory",
    )
    found.add_argument("--json", action="store_true", help="as one JSON object")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    options = parser().parse_args(arguments)
    try:
        if options.transports:
            results = transports.measure(options.rounds, options.set)
        else:
            results = measure(options)
    except (LumenError, RuntimeError, OSError) as error:
        print(f"http_overhead: {error}", file=sys.stderr)
        return 1
    as_text = transports.report if options.transports else report
    print(json.dumps(results, indent=1) if options.json else as_text(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
