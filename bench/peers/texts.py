"""`make texts`: sentence embeddings of Lumen and of FastAPI, in one run, on the same cores.

A developer's tool. `--servers` adds infinity with its ONNX engine, which brings PyTorch along (1.3
GB with its CPU build). All serve all-MiniLM-L6-v2 (common/wheels.py fetches it once) to clients of
OpenAI's `/v1/embeddings` with base64: a query of 6 words and a passage of 200, over some numbers of
connections; then an index of passages, 64 a request, beside queries at 20 a second. The limit is a
bare session of ONNX Runtime, a thread for each core. The client is on the server's own cores: its
time is part of everybody's. It is in C, but for the index and the queries beside it. It must never
quote a figure that was not measured in the same run as the one beside it.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime  # type: ignore[import-untyped,unused-ignore]

from bench.common import measure, oip, wheels
from bench.common.local_server import local_server
from bench.common.options import add_rounds, some_of
from bench.peers import servers
from bench.peers.install import environment
from lumen_uring.ring.load import LoadPlan

_QUERY: Final = "how do I reset my password"
_WORDS: Final = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "people",
    "build",
    "models",
    "that",
    "answer",
    "questions",
    "about",
    "documents",
    "and",
    "search",
    "engines",
    "in",
    "many",
    "languages",
]
_PASSAGES: Final = 64  # of a request to the index
_RATE: Final = 20  # queries a second beside it
_PACKAGES: Final = ("fastapi", "uvicorn[standard]", "tokenizers==0.23.3", "numpy")
_INFINITY: Final = ("infinity-emb[optimum,server]==0.0.78", "torch==2.13.0")


def passage(words: int, seed: int = 0) -> str:
    """Some words, the same ones for a seed."""
    return " ".join(random.Random(seed).choices(_WORDS, k=words))


def body(texts: str | list[str]) -> bytes:
    """A request."""
    return json.dumps({"model": "m", "input": texts, "encoding_format": "base64"}).encode()


class Caller:
    """One connection, which asks one thing at a time."""

    def __init__(self, port: int) -> None:
        self._link = http.client.HTTPConnection("127.0.0.1", port)

    def ask(self, request: bytes) -> dict[str, Any]:
        """Sends a request; returns the answer.

        Raises:
            RuntimeError: it was refused.
        """
        headers = {"Content-Type": "application/json"}
        self._link.request("POST", "/v1/embeddings", request, headers)
        answer = self._link.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {said[:200]!r}")
        return dict(json.loads(said))


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is ready: its port, the first of its processes, and how long it took; s."""

    port: int
    leader: int
    ready_s: float

    def memory_mib(self) -> float:
        """Resident memory of all its processes, what they share counted once."""
        return sum(measure.memory_mib(pid)["Pss"] for pid in servers.session(self.leader))


@contextmanager
def lumen(folder: Path) -> Iterator[Running]:
    """Lumen with all its defaults."""
    with local_server(f"--model=m={folder}", "--set=server.metrics_port=0") as server:
        yield Running(server.port, server.pid, server.ready_s)


@contextmanager
def fastapi(folder: Path, tuned: bool) -> Iterator[Running]:
    """FastAPI as people write it, or a process for each core."""
    packages = [*_PACKAGES, f"onnxruntime=={onnxruntime.__version__}"]
    python = environment("fastapi-texts", packages)
    port, cores = servers.free_port(), os.sched_getaffinity(0)
    count = len(cores) if tuned else 1
    here = str(Path(__file__).resolve().parent)
    command = [str(python), "-m", "uvicorn", "texts_app:app", "--app-dir", here, "--host"]
    command += ["127.0.0.1", "--port", str(port), "--workers", str(count), "--no-access-log"]
    settings = {"LUMEN_PEER_MODEL": str(folder)} | ({"LUMEN_PEER_TUNED": "1"} if tuned else {})
    began = time.monotonic()
    with servers.started("fastapi", command, settings, cores) as process:
        servers.wait_for_all(process, port, count)
        yield Running(port, process.pid, time.monotonic() - began)


@contextmanager
def infinity(folder: Path) -> Iterator[Running]:
    """infinity-emb as people start it, but for the Runs at its start. Its ONNX engine finds a file
    beside config.json alone, in the folder that it is started in."""
    python = environment("infinity", [*_INFINITY, f"onnxruntime=={onnxruntime.__version__}"])
    port = servers.free_port()
    with tempfile.TemporaryDirectory() as here:
        for file in (*folder.iterdir(), folder / "onnx" / "model.onnx"):
            if file.name != "onnx":
                Path(here, file.name).symlink_to(file)
        command = ["env", "-C", here, str(python.with_name("infinity_emb")), "v2"]
        command += ["--model-id", ".", "--served-model-name", "m", "--engine", "optimum"]
        command += ["--device", "cpu", "--pooling-method", "mean"]  # by default not this model's
        command += ["--no-model-warmup", "--url-prefix", "/v1"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        began = time.monotonic()
        settings = {"HF_HUB_OFFLINE": "1"}
        cores = os.sched_getaffinity(0)
        with servers.started("infinity", command, settings, cores) as process:
            process.wait_until(lambda: oip.ask(port, "GET", "/health")[0] == 200)
            yield Running(port, process.pid, time.monotonic() - began)


SERVERS: Final[dict[str, Callable[[Path], Any]]] = {
    "lumen": lumen,
    "fastapi as written": partial(fastapi, tuned=False),
    "fastapi tuned": partial(fastapi, tuned=True),
    "infinity": infinity,
}


def percentile(times: list[float], share: float) -> float:
    """Of times in seconds, in ms."""
    return sorted(times)[min(int(len(times) * share), len(times) - 1)] * 1000


def load(server: Running, text: str, connections: int, options: argparse.Namespace) -> str:
    """Closed loops of a client in C for some time. Returns the figures."""
    data = body(text)
    head = (
        "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    plan = LoadPlan(
        "127.0.0.1", server.port, connections, model=0, encoding=0, rows=1, protocol=1,
        payloads=[head.encode() + data], seconds=options.seconds, warmup_s=options.warmup,
    )  # fmt: skip
    running = measure.start(plan)
    cpu_s = servers.session_cpu_s(server.leader)
    found = running.wait()
    cpu_s = servers.session_cpu_s(server.leader) - cpu_s
    if found is None or found.errors or not found.requests:
        raise RuntimeError(f"the server answered with errors, or not at all: {found}")
    spread = measure.spread_us(found.histogram)
    times = ", ".join(f"{name} {(spread[name] or 0) / 1000:.2f} ms" for name in ("p50", "p99"))
    rate = found.requests / found.seconds
    return f"{rate:.1f}/s, {times}, {cpu_s / found.requests * 1000:.2f} ms of CPU each"


def queries(port: int, over: threading.Event) -> list[float]:
    """Queries at a rate until it is over. Returns how long each took from when it was due."""
    caller, request, times = Caller(port), body(_QUERY), []
    due = time.monotonic()
    while not over.is_set():
        due += 1 / _RATE
        time.sleep(max(0.0, due - time.monotonic()))
        caller.ask(request)
        times.append(time.monotonic() - due)
    return times


def index(port: int, requests: int) -> float:
    """Passages a second of requests one after the other."""
    caller, began = Caller(port), time.monotonic()
    for number in range(requests):
        caller.ask(body([passage(150, number * _PASSAGES + at) for at in range(_PASSAGES)]))
    return requests * _PASSAGES / (time.monotonic() - began)


def beside(port: int, requests: int, seconds: float) -> dict[str, float]:
    """Queries alone, the index alone, and both."""
    found: dict[str, float] = {}
    for name in ("alone", "beside"):
        over, times = threading.Event(), []
        asking = threading.Thread(target=lambda into=times, e=over: into.extend(queries(port, e)))
        asking.start()
        if name == "alone":
            time.sleep(seconds)
        else:
            found["index beside"] = index(port, requests)
        over.set()
        asking.join()
        found |= {f"p50 {name}": percentile(times, 0.5), f"p99 {name}": percentile(times, 0.99)}
        if name == "alone":
            found["index alone"] = index(port, requests)
    return found


def bare(folder: Path, text: str, threads: int, sessions: int, seconds: float) -> float:
    """Runs a second of ONNX Runtime alone."""
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found.no_padding()
    found.enable_truncation(256)
    ids = np.array([found.encode(text).ids])
    inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    all_sessions = [
        onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"), options)
        for _ in range(sessions)
    ]
    counts, end = [0] * sessions, time.monotonic() + seconds

    def loop(number: int) -> None:
        while time.monotonic() < end:
            all_sessions[number].run(None, inputs)
            counts[number] += 1

    workers = [threading.Thread(target=loop, args=(number,)) for number in range(sessions)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / seconds


def check(folder: Path, names: list[str]) -> None:
    """Everybody gives the same vectors.

    Args:
        folder: of the model.
        names: in SERVERS.

    Raises:
        RuntimeError: they differ.
    """
    found: list[Any] = []
    for name in names:
        with SERVERS[name](folder) as server:
            (data,) = Caller(server.port).ask(body(_QUERY))["data"]
            found.append(np.frombuffer(base64.b64decode(data["embedding"]), np.float32))
    if any(np.abs(one - found[0]).max() > 1e-5 for one in found):
        raise RuntimeError("the servers' vectors differ")


def one_round(folder: Path, options: argparse.Namespace) -> None:
    """Prints the figures of one graph."""
    cores = len(os.sched_getaffinity(0))
    for what, text in (("query", _QUERY), ("passage", passage(200))):
        each = bare(folder, text, 1, cores, options.seconds)
        alone = bare(folder, text, cores, 1, options.seconds)
        print(f" {what}: bare {each:.1f}/s, one at a time {alone:.1f}/s")
        for name in options.servers:
            with SERVERS[name](folder) as server:
                for connections in options.connections:
                    figures = load(server, text, connections, options)
                    print(f"  {name}, {connections} connections: {figures}", flush=True)
    for name in options.servers:
        with SERVERS[name](folder) as server:
            ready_mib = server.memory_mib()
            figures = beside(server.port, options.requests, options.seconds)
            told = ", ".join(f"{key} {value:.1f}" for key, value in figures.items())
            print(f" index: {name}: {told}")
            print(
                f" {name}: ready in {server.ready_s:.2f} s with {ready_mib:.0f} MiB, "
                f"{server.memory_mib():.0f} MiB after the index",
                flush=True,
            )


def main() -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_rounds(parser, rounds=2, seconds=5, warmup=0.5, connections=(1, 4, 16, 64))
    graphs = ["int8", "float32"]
    parser.add_argument("--graphs", type=some_of(graphs), default=graphs, metavar="NAME,NAME")
    first = list(SERVERS)[:-1]
    parser.add_argument(
        "--servers", type=some_of(list(SERVERS)), default=first, metavar="NAME,NAME",
        help=f"some of {', '.join(SERVERS)} (all but the last one)",
    )  # fmt: skip
    parser.add_argument("--requests", type=int, default=3, help="to the index (%(default)s)")
    options = parser.parse_args()
    folders = {name: wheels.minilm(float32=name == "float32") for name in options.graphs}
    for folder in folders.values():
        check(folder, options.servers)
    for number in range(options.rounds):
        for name, folder in folders.items():
            print(f"round {number + 1}, {name}")
            one_round(folder, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
