"""`python -m bench.load.many`: what 2,000 small models cost, and models that are loaded on demand.

A developer's tool. It writes a repository of small networks, no two alike, and starts a server with
all of them, twice: with an empty cache and with a full one. Then a server with one model and one
with all serve the same model in turns, as much as is answered; and clients in Python ask for models
at random, of one and of all. At last a server may hold a share of them at a time
(repository.max_loaded), and clients ask for models whose popularity falls as 1/n: those that are
there, and those that are loaded meanwhile. It must never run beside other work.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.common import mlp
from bench.common.local_server import local_server
from bench.common.measure import machine
from bench.load.loading import resident_bytes
from bench.report.rules import table
from lumen_uring.cli import make_parser
from lumen_uring.commands.bench import make_plan
from lumen_uring.ring.histogram import Histogram
from lumen_uring.ring.load import Load

CLIENTS: Final = 4
_BODY: Final = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [0.5] * 64}]}
).encode()
_WORDS: Final = ("--set=server.metrics_port=0",)


def write_repository(folder: Path, count: int) -> list[str]:
    """Writes so many models; returns their names."""
    names = [f"m{number:05d}" for number in range(count)]
    for number, name in enumerate(names):
        path = folder / name / "1/model.onnx"
        path.parent.mkdir(parents=True)
        path.write_bytes(mlp.model_bytes(number + 1))
    return names


@contextmanager
def cache_in(folder: Path) -> Any:
    """Servers that are started meanwhile keep their optimised graphs here."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


def load(port: int, model: str, seconds: float) -> tuple[Histogram, int, int]:
    """16 connections, as much as is answered: latency, requests, errors."""
    words = ["bench", f"--url=http://127.0.0.1:{port}", f"--model={model}", "--connections=16"]
    plan = make_plan(make_parser().parse_args([*words, f"--seconds={seconds}", "--warmup=0.5"]))
    result = Load(plan).wait()
    assert result is not None
    return result.histogram, result.requests, result.errors + result.mismatches


def ask(port: int, names: Sequence[str]) -> list[tuple[str, float, int]]:
    """Asks for a model after the other from a few connections: name, seconds, code of each."""
    asked, lock = iter(names), threading.Lock()
    found: list[tuple[str, float, int]] = []

    def run() -> None:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while True:
            with lock:
                name = next(asked, None)
            if name is None:
                break
            began_s = time.perf_counter()
            link.request("POST", f"/v2/models/{name}/infer", _BODY)
            answer = link.getresponse()
            answer.read()
            found.append((name, time.perf_counter() - began_s, answer.status))
        link.close()

    threads = [threading.Thread(target=run) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def percentile_ms(seconds: Sequence[float], percent: float) -> float:
    """The nearest rank; nan of nothing."""
    ordered = sorted(seconds)
    at = min(len(ordered) - 1, int(len(ordered) * percent / 100))
    return ordered[at] * 1e3 if ordered else float("nan")


def starts(repository: Path, count: int) -> dict[str, Any]:
    """A server with one model, then with all: with an empty cache, and with a full one."""
    one = repository.parent / "one"
    one.mkdir()
    (one / "m00000").symlink_to(repository / "m00000")
    with local_server(str(one / "m00000"), *_WORDS) as server:
        alone_bytes = resident_bytes(server.pid)
    found: dict[str, Any] = {"models": count}
    for cache in ("empty", "full"):
        with local_server(str(repository), *_WORDS) as server:
            found[f"ready_{cache}_s"] = server.ready_s
            found["kb_a_model"] = (resident_bytes(server.pid) - alone_bytes) / 1e3 / (count - 1)
    return found


def beside(repository: Path, names: list[str], options: argparse.Namespace) -> list[list[str]]:
    """One model alone and among all, in turns."""
    rows: list[list[str]] = []
    draw = random.Random(1)
    some = draw.choices(names, k=options.requests)
    with (
        local_server(str(repository / names[0]), *_WORDS) as alone,
        local_server(str(repository), *_WORDS) as among,
    ):
        both = {"1 model": alone.port, f"{len(names):,} models": among.port}
        loads: dict[str, list[tuple[Histogram, int, int]]] = {of: [] for of in both}
        for _ in range(options.rounds):
            for of, port in both.items():
                print(f"{of}: a load on one of them", file=sys.stderr)
                loads[of].append(load(port, names[0], options.seconds))
        for of, measured in loads.items():
            total = measured[0][0]
            for histogram, *_ in measured[1:]:
                total = total.plus(histogram)
            rate = sum(requests for _, requests, _ in measured) / options.seconds / len(measured)
            us = [total.percentile_ns(percent) / 1e3 for percent in (50, 99)]
            errors = sum(errors for *_, errors in measured)
            rows.append([of, "one name, 16 connections", f"{rate:,.0f}/s"])
            rows[-1] += [f"{value:,.0f} µs" for value in us] + [str(errors)]
        for of, asked in (("1 model", [names[0]] * len(some)), (f"{len(names):,} models", some)):
            print(f"{of}: clients in Python", file=sys.stderr)
            ask(both[of], asked)  # once before
            found = ask(both[of], asked)
            seconds = [took_s for _, took_s, _ in found]
            us = [percentile_ms(seconds, percent) * 1e3 for percent in (50, 99)]
            errors = sum(code != 200 for *_, code in found)
            rows.append([of, "any name, 4 clients in Python", "", *(f"{v:,.0f} µs" for v in us)])
            rows[-1].append(str(errors))
    return rows


def on_demand(repository: Path, names: list[str], options: argparse.Namespace) -> list[str]:
    """Of the models a share may be loaded at a time."""
    most = max(2, len(names) // options.share)
    draw = random.Random(2)
    weights = [1 / (number + 1) for number in range(len(names))]
    asked = draw.choices(names, weights, k=options.requests)
    words = [*_WORDS, "--set=repository.control=explicit", f"--set=repository.max_loaded={most}"]
    with local_server(str(repository), *words) as server:
        ask(server.port, asked)  # what is popular is there then
        lines: list[str] = []
        print(f"on demand: at most {most} of {len(names)} models", file=sys.stderr)
        for clients, names_asked in (("1", asked[: len(asked) // 4]), (str(CLIENTS), asked)):
            found = _one_by_one(server.port, names_asked) if clients == "1" else None
            found = found or ask(server.port, names_asked)
            cold = [took_s for _, took_s, _ in found if took_s > options.cold_ms / 1e3]
            hot = [took_s for _, took_s, _ in found if took_s <= options.cold_ms / 1e3]
            errors = sum(code != 200 for *_, code in found)
            lines.append(
                f"At most {most} of {len(names):,} models, {clients} client(s): {len(hot):,} that "
                f"were there p50 {percentile_ms(hot, 50):.2f} ms, p99 "
                f"{percentile_ms(hot, 99):.2f} ms; {len(cold):,} loaded meanwhile (more than "
                f"{options.cold_ms} ms) p50 {percentile_ms(cold, 50):.0f} ms, p99 "
                f"{percentile_ms(cold, 99):.0f} ms; {errors} refused."
            )
        lines.append(f"Resident: {resident_bytes(server.pid) / 1e6:,.0f} MB.")
    return lines


def _one_by_one(port: int, names: Sequence[str]) -> list[tuple[str, float, int]]:
    return [one for name in names for one in ask(port, [name])]


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    made = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    made.add_argument("--models", type=int, default=2000)
    made.add_argument("--rounds", type=int, default=4)
    made.add_argument("--seconds", type=float, default=4.0, help="of each load")
    made.add_argument("--requests", type=int, default=4000, help="of the clients in Python")
    made.add_argument(
        "--share", type=int, default=20, help="one in so many may be loaded at a time"
    )
    made.add_argument("--cold-ms", type=int, default=5, help="a request that took longer waited")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    options = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lumen-many-") as name:
        repository = Path(name) / "models"
        names = write_repository(repository, options.models)
        with cache_in(Path(name) / "cache"):
            found = starts(repository, options.models)
            print(f"{machine()['cpu']}, {len(os.sched_getaffinity(0))} cores")
            print(
                f"{found['models']:,} models are ready after {found['ready_empty_s']:.1f} s with "
                f"an empty cache, {found['ready_full_s']:.1f} s with a full one; "
                f"{found['kb_a_model']:.0f} KB a model."
            )
            head = ["", "asked for", "answered", "p50", "p99", "errors"]
            print(table(head, beside(repository, names, options)))
            print("\n".join(on_demand(repository, names, options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
