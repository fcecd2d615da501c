"""`make texts`: sentence embeddings of Lumen and of FastAPI, in one run, on the same cores.

A developer's tool. All serve all-MiniLM-L6-v2 (common/wheels.py fetches it once) to clients of
OpenAI's `/v1/embeddings` with base64: a query of 6 words and a passage of 200, over some numbers of
connections; then an index of passages, 64 a request, beside queries at 20 a second. The limit is a
bare session of ONNX Runtime, a thread for each core. The client is threads of Python on the
server's own cores: its time is part of everybody's. It must never quote a figure that was not
measured in the same run as the one beside it.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime  # type: ignore[import-untyped,unused-ignore]

from bench.common import wheels
from bench.common.local_server import local_server
from bench.common.options import add_rounds
from bench.peers import servers
from bench.peers.install import environment

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


@contextmanager
def lumen(folder: Path) -> Iterator[int]:
    """Lumen with all its defaults. Yields its port."""
    with local_server(f"--model=m={folder}", "--set=server.metrics_port=0") as server:
        yield server.port


@contextmanager
def fastapi(folder: Path, tuned: bool) -> Iterator[int]:
    """FastAPI as people write it, or a process for each core. Yields its port."""
    packages = [*_PACKAGES, f"onnxruntime=={onnxruntime.__version__}"]
    python = environment("fastapi-texts", packages)
    port, cores = servers.free_port(), os.sched_getaffinity(0)
    count = len(cores) if tuned else 1
    here = str(Path(__file__).resolve().parent)
    command = [str(python), "-m", "uvicorn", "texts_app:app", "--app-dir", here, "--host"]
    command += ["127.0.0.1", "--port", str(port), "--workers", str(count), "--no-access-log"]
    settings = {"LUMEN_PEER_MODEL": str(folder)} | ({"LUMEN_PEER_TUNED": "1"} if tuned else {})
    with servers.started("fastapi", command, settings, cores) as process:
        servers.wait_for_all(process, port, count)
        yield port


SERVERS: Final[dict[str, Callable[[Path], Any]]] = {
    "lumen": lumen,
    "fastapi as written": partial(fastapi, tuned=False),
    "fastapi tuned": partial(fastapi, tuned=True),
}


def percentile(times: list[float], share: float) -> float:
    """Of times in seconds, in ms."""
    return sorted(times)[min(int(len(times) * share), len(times) - 1)] * 1000


def load(port: int, request: bytes, connections: int, seconds: float) -> tuple[list[float], float]:
    """Closed loops for some time. Returns how long each answer took, and all of them together."""
    start = time.monotonic()
    end, times = start + seconds, []

    def loop() -> None:
        caller = Caller(port)
        while (began := time.monotonic()) < end:
            caller.ask(request)
            times.append(time.monotonic() - began)

    threads = [threading.Thread(target=loop) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, time.monotonic() - start


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


def check(folder: Path) -> None:
    """Everybody gives the same vectors.

    Raises:
        RuntimeError: they differ.
    """
    found: list[Any] = []
    for start in SERVERS.values():
        with start(folder) as port:
            (data,) = Caller(port).ask(body(_QUERY))["data"]
            found.append(np.frombuffer(base64.b64decode(data["embedding"]), np.float32))
    if any(np.abs(one - found[0]).max() > 1e-5 for one in found):
        raise RuntimeError("the servers' vectors differ")


def main() -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_rounds(parser, rounds=2, seconds=5, warmup=0.5, connections=(1, 4, 16, 64))
    parser.add_argument("--requests", type=int, default=3, help="to the index (%(default)s)")
    options = parser.parse_args()
    folder, cores = wheels.minilm(), len(os.sched_getaffinity(0))
    check(folder)
    for number in range(options.rounds):
        for what, text in (("query", _QUERY), ("passage", passage(200))):
            each = bare(folder, text, 1, cores, options.seconds)
            alone = bare(folder, text, cores, 1, options.seconds)
            print(f"round {number + 1} {what}: bare {each:.1f}/s, one at a time {alone:.1f}/s")
            for name, start in SERVERS.items():
                with start(folder) as port:
                    load(port, body(text), 4, options.warmup)
                    for connections in options.connections:
                        times, took = load(port, body(text), connections, options.seconds)
                        print(
                            f"  {name}, {connections} connections: {len(times) / took:.1f}/s, "
                            f"{len(times) / took / each:.2f} of bare, p50 "
                            f"{percentile(times, 0.5):.1f} ms, p99 {percentile(times, 0.99):.1f} ms"
                        )
        for name, start in SERVERS.items():
            with start(folder) as port:
                figures = beside(port, options.requests, options.seconds)
                told = ", ".join(f"{key} {value:.1f}" for key, value in figures.items())
                print(f"round {number + 1} index: {name}: {told}")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
