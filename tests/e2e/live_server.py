"""A server whose models come and go at random while threads ask; run by test_e2e_live.py.

Arguments: a folder for models, a seed, the number of changes. Prints one line of JSON: what was
answered, what the statistics say, and how much memory is resident.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
from collections import Counter
from pathlib import Path

import graphs
import numpy as np
import onnx
from onnx import helper

from lumen_uring.config import load
from lumen_uring.ring.engine import Engine
from lumen_uring.ring.stats import read
from lumen_uring.settings.models import ModelConfig

CLIENTS = 3
# Of each graph: what becomes of 3. The large one is what memory is measured with.
# Of the loads: their clients leave no core idle, so that each takes long.
GENTLE = 0.03
FACTORS = {"double": 2, "triple": 3, "large": 5}
LARGE_COLUMNS = 1 << 22
NAMES = ("first", "second", "third")


def graph(path: Path, factor: int, ballast: int = 0) -> Path:
    """y = factor * x, FP32 [n, 4], in a file of so many floats more."""
    constants = {"w": np.full(4, factor, np.float32)}
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    if ballast:
        # One of its values is taken by an index that nobody knows beforehand, and counts nothing.
        constants["b"] = np.random.default_rng(7).random(ballast, np.float32)
        constants["zero"] = np.zeros(4, np.float32)
        nodes = [
            helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
            helper.make_node("Cast", ["most"], ["index"], to=onnx.TensorProto.INT64),
            helper.make_node("Gather", ["b", "index"], ["value"]),
            helper.make_node("Mul", ["value", "zero"], ["nothing"]),
            helper.make_node("Mul", ["x", "w"], ["scaled"]),
            helper.make_node("Add", ["scaled", "nothing"], ["y"]),
        ]
    inputs = [graphs.tensor("x", graphs.FLOAT, ["n", 4])]
    outputs = [graphs.tensor("y", graphs.FLOAT, ["n", 4])]
    return graphs.save(path, nodes, inputs, outputs, constants)


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Town:
    """What clients may be answered, and what they are."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stopped = threading.Event()
        self.lock = threading.Lock()
        # Of each name: what answers were possible, one after the other. 404: gone
        self.possible: dict[str, list[set[int]]] = {name: [set()] for name in NAMES}
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []

    def expect(self, name: str, *answers: int) -> None:
        with self.lock:
            self.possible[name].append(set(answers))

    def ask(self, connection: http.client.HTTPConnection, name: str) -> int:
        body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [3] * 4}]}
        connection.request("POST", f"/v2/models/{name}/infer", json.dumps(body))
        reply = connection.getresponse()
        text = reply.read()
        return (
            int(json.loads(text)["outputs"][0]["data"][0]) if reply.status == 200 else reply.status
        )

    def client(self, seed: int) -> None:
        chance = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.stopped.is_set():
            name = chance.choice(NAMES)
            with self.lock:
                before = len(self.possible[name]) - 1
            found = self.ask(connection, name)
            with self.lock:
                possible = set().union(*self.possible[name][before:])
                self.answers[name if found not in (400, 404) else "gone"] += 1
                if (404 if found == 400 else found) not in possible:
                    self.wrong.append(f"{name}: {found}, expected one of {sorted(possible)}")


def main() -> None:
    folder, seed, changes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    paths = {
        kind: graph(folder / f"{kind}.onnx", factor, LARGE_COLUMNS if kind == "large" else 0)
        for kind, factor in FACTORS.items()
    }
    config = load(None, ["server.port=0", "server.arena_bytes=64MiB", "engine.thread_count=2"])
    with Engine(config) as engine:
        entry = {name: ModelConfig(name=name, path=str(paths["double"])) for name in NAMES}
        engine.add_model(entry["first"], paths["double"])
        engine.start()
        town = Town(engine.info().port)
        town.expect("first", 6)
        town.expect("second", 404)
        town.expect("third", 404)
        threads = [threading.Thread(target=town.client, args=(seed + c,)) for c in range(CLIENTS)]
        for thread in threads:
            thread.start()
        served, large = {"first": 6}, 0
        for _ in range(changes):
            name = chance.choice(NAMES)
            was = served.get(name, 404)
            if name in served and chance.random() < 0.3:
                town.expect(name, was, 404)
                engine.unload(name)
                del served[name]
            else:
                kind = chance.choice(tuple(FACTORS))
                town.expect(name, was, 3 * FACTORS[kind])
                engine.load(entry[name], paths[kind], gently=chance.random() < GENTLE)
                served[name] = 3 * FACTORS[kind]
            town.expect(name, was, served.get(name, 404))  # a request may still be on its way
        for name in tuple(served):
            if name != "first":
                town.expect(name, served[name], 404)
                engine.unload(name)
        town.expect("first", *(3 * factor for factor in FACTORS.values()), 404)
        engine.load(entry["first"], paths["double"])
        assert engine.settle(60)
        small = resident()
        for kind in ("large", "double"):
            engine.load(entry["first"], paths[kind])
            assert engine.settle(60)
            if kind == "large":
                large = resident()
        town.stopped.set()
        for thread in threads:
            thread.join()
        model_counters: Counter[str] = Counter()
        for block in read(Path(engine.info().stats_path)).threads:
            for name, counters in block.model_counters.items():
                model_counters[name] += counters.get("ok", 0)
        print(
            json.dumps(
                {
                    "wrong": town.wrong[:5],
                    "answers": dict(town.answers),
                    "counted": dict(model_counters),
                    "grew": large - small,
                    "kept": resident() - small,
                }
            )
        )


if __name__ == "__main__":
    main()
