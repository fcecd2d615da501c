"""`make deaf`: how late health is while a model is asked for what takes it longest.

A developer's tool. One server with its defaults has twelve models whose time a value in a request
decides (bench/common/adversaries.py), and one that is quick. One client asks for health again and
again on a connection that stays; another asks one model at a time for its worst. The table has the
worst delay of each, beside that of a quiet server. The clients share the cores with the server, so
on a busy machine the delays are upper bounds. Exit status 1: some delay is above 50 ms.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from bench.common.adversaries import ADVERSARIES, SETTINGS, Adversary
from bench.common.local_server import local_server
from bench.common.oip import LIVE
from bench.report.rules import table
from lumen_uring import Client
from lumen_uring.errors import LumenError

GOAL_S: Final = 0.05
_PAUSE_S, _QUIET_S, _WORST_S = 0.001, 2.0, 120.0
_SMALL_FIRST: Final = 50  # requests that teach whoever believes them that the model is quick


class Health:
    """Asks for health on one connection until it is stopped; keeps the worst delay."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WORST_S)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.worst_s = 0.0
        self.count = 0

    def __enter__(self) -> Health:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._connection.close()

    def _ask(self) -> None:
        while not self._over.is_set():
            began_s = time.perf_counter()
            self._connection.request("GET", LIVE)
            self._connection.getresponse().read()
            self.worst_s = max(self.worst_s, time.perf_counter() - began_s)
            self.count += 1
            time.sleep(_PAUSE_S)


def ask(client: Client, one: Adversary) -> str:
    """Asks a model for its worst, and says what became of it."""
    try:
        client.infer(one.name, one.worst(one.size))
    except LumenError as error:
        return type(error).__name__
    return "answered"


def ask_worst(port: int, one: Adversary, times: int) -> tuple[float, str]:
    """Asks a model for what is quick, then for its worst.

    Returns:
        How long its worst took, and what became of the last one.
    """
    with Client("127.0.0.1", port, timeout_s=_WORST_S) as client:
        for _ in range(_SMALL_FIRST):
            client.infer(one.name, one.worst(1))
        began_s = time.perf_counter()
        said = [ask(client, one) for _ in range(times)]
        return (time.perf_counter() - began_s) / times, said[-1]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load.deaf", description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="requests for each model's worst")
    options = parser.parse_args(arguments)
    rows: list[tuple[str, ...]] = []
    worst_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        models: list[dict[str, Any]] = [{"name": "digits", "path": "builtin:digits"}]
        for one in ADVERSARIES:
            path = one.write(Path(folder) / f"{one.name}.onnx")
            models.append({"name": one.name, "path": str(path), **SETTINGS.get(one.name, {})})
        config = Path(folder) / "config.json"
        server = {"max_request_bytes": "16MiB", "arena_bytes": "512MiB"}
        config.write_text(json.dumps({"server": server, "models": models}))
        with local_server("--config", str(config)) as running:
            with Health(running.port) as quiet:
                time.sleep(_QUIET_S)
            rows.append(("none", "", "", f"{quiet.worst_s * 1e3:.1f}"))
            for one in ADVERSARIES:
                with Health(running.port) as health:
                    took_s, said = ask_worst(running.port, one, options.times)
                worst_s = max(worst_s, health.worst_s)
                late = f"{health.worst_s * 1e3:.1f}"
                rows.append((one.name, f"{took_s:.2f}", said, late))
                print(f"{one.name}: health at most {late} ms late", file=sys.stderr, flush=True)
    print(table(("model", "its worst, s", "which was", "health, ms late at most"), rows))
    return int(worst_s > GOAL_S)


if __name__ == "__main__":
    sys.exit(main())
