"""`make tls-compare`: what TLS costs: a round trip, large tensors, handshakes beside nginx's.

A developer's tool. One Lumen with a port for each kind of client, on one core; h2load on another.
In turns within a round: an MLP without and with TLS 1.3 on one connection, and nginx's smallest
reply, for most of the difference is the client's; a tensor of 4 MiB of which the model takes one
number, the same way; full handshakes, each with one small GET, by as many connections at once, of
Lumen and of nginx with the same certificate (ECDSA on P-256). CPU is of the server's whole session
of processes, what it spends looking for requests too. h2load looks at no certificate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.common import mlp, oip
from bench.common.local_server import local_server
from bench.common.places import find, pinned
from bench.peers import h2load, servers
from bench.peers.install import PeerMissingError
from bench.peers.nginx import nginx
from bench.report.rules import amount, table
from lumen_uring.ring.certificates import make_certificate

COLUMNS: Final = 1 << 20
HANDSHAKES: Final = 400
_LIVE: Final = "/v2/health/live"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request goes, and the leader of the session whose CPU time counts."""

    pid: int
    request: h2load.Request


def first_of(path: Path) -> Path:
    """A model that takes x FP32 [n, COLUMNS] and gives its first number: all else is transport."""
    import onnx
    from onnx import TensorProto, helper

    starts, ends, axes = (
        helper.make_tensor(name, TensorProto.INT64, [1], [value])
        for name, value in (("starts", 0), ("ends", 1), ("axes", 1))
    )
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["y"])],
        "first",
        [helper.make_tensor_value_info("x", kind, ["n", COLUMNS])],
        [helper.make_tensor_value_info("y", kind, ["n", 1])],
        [starts, ends, axes],
    )
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opset), str(path))
    return path


def _check(port: int) -> None:
    """Asks for the first number of a tensor, without TLS.

    Raises:
        RuntimeError: it is another one.
    """
    request = _post(port, "first", (1, COLUMNS), "http")
    path = oip.infer_path("first")
    answer = np.frombuffer(oip.output_bytes(port, path, request.body, request.headers), "<f4")
    if answer.tolist() != [np.random.default_rng(1).random((1, COLUMNS), np.float32)[0, 0]]:
        raise RuntimeError(f"expected the first number of the tensor, found {answer}")


def _post(port: int, name: str, shape: tuple[int, int], scheme: str) -> h2load.Request:
    body = np.random.default_rng(1).random(shape, np.float32).tobytes()
    head = oip.infer_json("x", shape, "FP32", len(body))
    url = f"{scheme}://127.0.0.1:{port}{oip.infer_path(name)}"
    return h2load.Request(url, head + body, oip.headers(len(head)), is_http1=True)


@contextmanager
def lumen(folder: Path, cores: frozenset[int]) -> Iterator[dict[str, Place]]:
    """Runs a server; gives its requests by name."""
    port = servers.free_port()
    files = {"cert": str(folder / "try.crt"), "key": str(folder / "try.key")}
    models = {"mlp": mlp.write(folder / "mlp.onnx"), "first": first_of(folder / "first.onnx")}
    settings = {
        "server": {"tls": {"port": port, "certificates": [files]}},
        "models": [{"name": name, "path": str(path)} for name, path in models.items()],
    }
    file = folder / "config.json"  # YAML too
    file.write_text(json.dumps(settings))
    with local_server("--config", str(file), cores=cores) as server:
        _check(server.port)
        found = {}
        for name, at, scheme in (("", server.port, "http"), (" with TLS", port, "https")):
            found[f"mlp{name}"] = _post(at, "mlp", (1, mlp.INPUTS), scheme)
            found[f"4 MiB{name}"] = _post(at, "first", (1, COLUMNS), scheme)
        live = h2load.Request(f"https://127.0.0.1:{port}{_LIVE}", b"", {}, is_http1=True)
        found["handshakes"] = live
        yield {name: Place(server.pid, request) for name, request in found.items()}


def measure(place: Place, seconds: float) -> dict[str, float]:
    """One connection, for about so long: so that its handshake does not count.

    Raises:
        RuntimeError: a request failed.
    """
    count = 20
    for share in (0.25, 1.0):  # the first few take as long as the handshake
        tried = h2load.load(place.request, 1, 1, count)
        count = max(20, int(tried.throughput_rps * seconds * share))
    return _counted(place, 1, count)


def _counted(place: Place, connections: int, count: int) -> dict[str, float]:
    before = servers.session_cpu_s(place.pid)
    found = h2load.load(place.request, connections, 1, count)
    cpu_s = servers.session_cpu_s(place.pid) - before
    if found.good != count:
        raise RuntimeError(f"{found.good} of {count} requests had an answer: {place.request.url}")
    return {"p50_us": found.p50_us, "p99_us": found.p99_us, "cpu_us": cpu_s * 1e6 / count}


def run(rounds: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    """Measures everything, in turns.

    Returns:
        By name, a round each; without nginx's where it is not installed.
    """
    place = find("one-core")
    figures: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        folder = Path(directory)
        for name, text in zip(
            ("try.crt", "try.key"), make_certificate(["DNS:localhost"]), strict=True
        ):
            (folder / name).write_bytes(text)
        there = stack.enter_context(lumen(folder, place.server))
        try:
            identity = (folder / "try.crt", folder / "try.key")
            for name, scheme, files in (("", "http", None), (" with TLS", "https", identity)):
                pid, port = stack.enter_context(nginx(_LIVE, place.server, files))
                url = f"{scheme}://127.0.0.1:{port}{_LIVE}"
                there[f"nginx{name}"] = Place(pid, h2load.Request(url, b"", {}, is_http1=True))
            there["handshakes of nginx"] = there["nginx with TLS"]
        except PeerMissingError as error:
            print(error, file=sys.stderr)
        with pinned(place.client_cores):
            for number in range(rounds):
                print(f"round {number + 1}", file=sys.stderr)
                for name, one in there.items():
                    if name.startswith("handshakes"):
                        found = _counted(one, HANDSHAKES, HANDSHAKES)
                    else:
                        found = measure(one, seconds)
                    figures.setdefault(name, []).append(found)
    return figures


def report(figures: dict[str, list[dict[str, float]]]) -> str:
    """A table, medians of the rounds, and the differences and ratios made inside them."""
    rows = [
        [name, *(amount(statistics.median(r[key] for r in rounds)) for key in rounds[0])]
        for name, rounds in figures.items()
    ]
    lines = [table(["", "p50 µs", "p99 µs", "CPU µs each"], rows), ""]

    def difference(name: str, key: str) -> float:
        pairs = zip(figures[f"{name} with TLS"], figures[name], strict=True)
        return statistics.median(a[key] - b[key] for a, b in pairs)

    lines += [
        f"The round trip of {name} with TLS: {difference(name, 'p50_us'):+.1f} µs (medians), "
        f"CPU {difference(name, 'cpu_us'):+.1f} µs."
        for name in ("mlp", "nginx")
        if name in figures
    ]
    bytes_each = COLUMNS * 4
    spent = statistics.median(r["cpu_us"] for r in figures["4 MiB with TLS"])
    alone = difference("4 MiB", "cpu_us")
    rate = f"{bytes_each / alone / 1e3:.2f} GB/s" if alone > 0 else "too little to tell"
    lines.append(
        f"Large tensors: {bytes_each / spent / 1e3:.2f} GB/s of CPU time with TLS, all included; "
        f"TLS alone {rate}."
    )
    if theirs := figures.get("handshakes of nginx"):
        pairs = zip(figures["handshakes"], theirs, strict=True)
        ratio = statistics.median(a["cpu_us"] / b["cpu_us"] for a, b in pairs)
        lines.append(f"A handshake's CPU time ÷ nginx's: {ratio:.2f}.")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="per figure (%(default)s)")
    options = parser.parse_args(arguments)
    if not h2load.found():
        print(h2load.MISSING, file=sys.stderr)
        return 1
    print(report(run(options.rounds, options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
