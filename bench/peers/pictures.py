"""`make pictures`: JPEGs beside Pillow and OpenCV, as tensors and as requests, in one run.

A developer's tool; needs ../shared. First the way from a file to a float32 tensor of 224 x 224, on
one core: Lumen's own (bench/micro/pictures.c) beside Pillow and OpenCV (picture_steps.py), a
picture after the other, all ways in turns. Then one JPEG over HTTP with the trained SqueezeNet,
loaded by wrk: Lumen with the model as it is and as `lumen quantize` makes it, beside FastAPI with
Pillow and with OpenCV. A ratio is made inside a round.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.common.local_server import ROOT, SHARED, TRAINED_SQUEEZENET, local_server
from bench.common.measure import machine
from bench.common.options import add_rounds, some_of
from bench.common.places import PLACES, find
from bench.peers import servers, wrk
from bench.peers.servers import Model, Peer
from bench.report.rules import table

_SIDE: Final = 224
_TOOL: Final = ROOT / "c" / "build" / "release" / "bench" / "micro" / "pictures"
_STEPS: Final = Path(__file__).resolve().parent / "picture_steps.py"
_PARTS: Final = ("tensors", "requests")
_WAYS: Final = ("pillow", "draft", "linear", "area")
_MODEL: Final = Model(
    str(TRAINED_SQUEEZENET), "data_0", (1, 3, 224, 224), "softmaxout_1", (1, 1000)
)
_CONFIG: Final = """\
models:
  - name: model
    path: {path}
    image: {{fit: stretch}}
    mean: [123.675, 116.28, 103.53]
    scale: [0.017124754, 0.017507003, 0.017429194]
"""


def _cpu_us(command: list[str]) -> float:
    """The median that a program prints second."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[1])


def ways_to_a_tensor(rounds: int, repeats: int) -> str:
    """Times every way on every photograph of ../shared, in turns.

    Args:
        rounds: over all pictures.
        repeats: of each way, in each round.

    Returns:
        A table of medians of CPU time, and of ratios made inside a round.
    """
    python = str(servers.FASTAPI_PICTURES.install())
    photographs = [
        path for path in sorted((SHARED / "images").glob("*.jpg")) if "truncated" not in path.name
    ]
    rows, ratios = [], {way: [] for way in (*_WAYS, "fast")}  # type: dict[str, list[float]]
    for path in photographs:
        found: dict[str, list[float]] = {}
        for _round in range(rounds):
            for way in ("lumen", "fast", *_WAYS):
                tool = [str(_TOOL), str(path), str(_SIDE), str(int(way == "fast")), str(repeats)]
                steps = [python, str(_STEPS), way, str(path), str(_SIDE), str(repeats)]
                command = steps if way in _WAYS else tool
                found.setdefault(way, []).append(_cpu_us(command))
        mine = found["lumen"]
        times = {
            way: statistics.median(other / own for other, own in zip(found[way], mine, strict=True))
            for way in _WAYS
        }
        fast = statistics.median(
            other / own for other, own in zip(found["pillow"], found["fast"], strict=True)
        )
        for way in _WAYS:
            ratios[way].append(times[way])
        ratios["fast"].append(fast)
        rows.append(
            [
                path.name,
                *(f"{statistics.median(found[way]):,.0f}" for way in ("lumen", "fast", *_WAYS)),
                *(f"{times[way]:.2f}" for way in ("pillow", "linear", "area")),
                f"{fast:.2f}",
            ]
        )
    rows.append(
        [
            "median",
            *[""] * 6,
            *(f"{statistics.median(ratios[way]):.2f}" for way in ("pillow", "linear", "area")),
            f"{statistics.median(ratios['fast']):.2f}",
        ]
    )
    heads = ["", "Lumen µs", "fast", "Pillow", "Pillow draft", "OpenCV LINEAR", "AREA"]
    heads += ["Pillow ÷ Lumen", "LINEAR ÷", "AREA ÷", "Pillow ÷ fast"]
    return table(heads, rows)


@contextmanager
def _lumen(path: str, body: bytes, cores: frozenset[int]) -> Iterator[Peer]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(_CONFIG.format(path=path))
        config.flush()
        with local_server("--config", config.name, cores=cores) as server:
            target = "/v2/models/model/infer?top=5"
            yield Peer(server.pid, server.port, target, body, {"Content-Type": "image/jpeg"})


def _best(peer: Peer) -> int:
    """The best class of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", peer.port, timeout=30)
    connection.request("POST", peer.path, peer.body, dict(peer.headers))
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{peer.url} answered {answer.status}: {text!r}")
    return int(json.loads(text)[0]["index"])


def _quantized(folder: str) -> str:
    """SqueezeNet as `lumen quantize` makes it."""
    path = Path(folder, "int8.onnx")
    command = [sys.executable, "-m", "lumen_uring", "quantize", str(TRAINED_SQUEEZENET)]
    command += ["--images", str(SHARED / "images"), "--output", str(path), "--force"]
    command += ["--mean=123.675,116.28,103.53", "--scale=0.017124754,0.017507003,0.017429194"]
    subprocess.run(command, check=True, cwd=ROOT)
    return str(path)


def requests(options: argparse.Namespace, quantized: str) -> str:
    """Loads every server with one JPEG, in turns.

    Args:
        options: as the command line gave them.
        quantized: the INT8 model.

    Returns:
        A table for each number of connections.
    """
    body = (SHARED / "images" / options.picture).read_bytes()
    starts: dict[str, Callable[[frozenset[int]], AbstractContextManager[Peer]]] = {
        "Lumen": partial(_lumen, _MODEL.path, body),
        "Lumen INT8": partial(_lumen, quantized, body),
        "FastAPI, Pillow": partial(servers.fastapi, _MODEL, body, picture="pillow"),
        "FastAPI, OpenCV": partial(servers.fastapi, _MODEL, body, picture="linear"),
    }
    place = find(options.place)
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    for number in range(options.rounds):
        for name, start in starts.items():
            print(f"round {number + 1}/{options.rounds}: {name}", file=sys.stderr)
            with start(place.server) as peer:
                best = _best(peer)
                for connections in options.connections:
                    if options.warmup:
                        wrk.load(peer.url, body, peer.headers, connections, options.warmup)
                    result = wrk.load(peer.url, body, peer.headers, connections, options.seconds)
                    figures = {**result, "best": best}
                    found.setdefault((connections, name), []).append(figures)
    return "\n\n".join(_loads(found, connections) for connections in options.connections)


def _loads(found: dict[tuple[int, str], list[dict[str, float]]], connections: int) -> str:
    rows = []
    lumen = [each["requests"] / each["seconds"] for each in found[connections, "Lumen"]]
    for (count, name), rounds in found.items():
        if count != connections:
            continue
        rates = [each["requests"] / each["seconds"] for each in rounds]
        ratio = statistics.median(rate / own for rate, own in zip(rates, lumen, strict=True))
        rows.append(
            [
                name,
                f"{statistics.median(rates):,.0f}",
                f"{statistics.median(each['p50'] for each in rounds) / 1000:.2f}",
                f"{statistics.median(each['p99'] for each in rounds) / 1000:.2f}",
                f"{statistics.median(each['p99'] / each['p50'] for each in rounds):.2f}",
                f"{ratio:.2f}",
                f"{1 / ratio:.2f}",
                f"{rounds[0]['best']:.0f}",
                f"{sum(each['errors'] for each in rounds):.0f}",
            ]
        )
    heads = [f"{connections} connections", "requests/s", "p50 ms", "p99 ms", "p99 ÷ p50"]
    return table([*heads, "this ÷ Lumen", "Lumen ÷ this", "best class", "errors"], rows)


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    add_rounds(parser, rounds=3, seconds=4.0, warmup=1.0, connections=[1, 16])
    parser.add_argument("--picture", default="coffee.jpg", help="of ../shared/images (%(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="of each way (%(default)s)")
    parser.add_argument("--place", choices=PLACES, default="all-cores", help="(%(default)s)")
    parser.add_argument(
        "--parts", type=some_of(_PARTS), default=list(_PARTS), help=", ".join(_PARTS)
    )
    options = parser.parse_args(arguments)
    if not TRAINED_SQUEEZENET.is_file():
        print("pictures: needs ../shared, with its models and images", file=sys.stderr)
        return 1
    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, {about['date']}\n")
    if "tensors" in options.parts:
        print(ways_to_a_tensor(options.rounds, options.repeats), flush=True)
    if "requests" not in options.parts:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        print(f"\n{requests(options, _quantized(folder))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
