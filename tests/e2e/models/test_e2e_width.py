"""Runs that use the cores of idle workers too: when they do, and that nothing else changes."""

from __future__ import annotations

import csv
import os
import threading
from pathlib import Path

import graphs
import needs
import numpy as np
import onnxruntime as ort
import pytest
import web
from conftest import Serve
from graphs import FLOAT, tensor
from harness import Server, eventually
from onnx import helper
from web import Http

from lumen_uring import Client

pytestmark = pytest.mark.once  # what runs models is the same on both backends

CORES = len(os.sched_getaffinity(0))
COLUMNS = 192
LAPS = 30
WIDE = 8  # Runs on two cores that are waited for; on a busy machine each takes a second


def layers(path: Path) -> Path:
    """x FP32 [n, COLUMNS] -> y of the same shape, through products that several threads share."""
    random = np.random.default_rng(3)
    nodes, weights = [], {}
    for layer in range(4):
        weights[f"w{layer}"] = random.standard_normal((COLUMNS, COLUMNS)).astype(np.float32) / 9
        nodes += [
            helper.make_node("MatMul", [f"x{layer}" if layer else "x", f"w{layer}"], [f"p{layer}"]),
            helper.make_node("Tanh", [f"p{layer}"], [f"x{layer + 1}"]),
        ]
    nodes.append(helper.make_node("Identity", ["x4"], ["y"]))
    shape = ["n", COLUMNS]
    return graphs.save(
        path, nodes, [tensor("x", FLOAT, shape)], [tensor("y", FLOAT, shape)], weights
    )


def document(path: Path, width: int | str = 2, **engine: object) -> dict[str, object]:
    """Runs are the workers', however short: an I/O thread's own have one core."""
    model = {"name": "m", "path": str(path), "width": width, "engine": "onnxruntime"}
    run = "auto" if engine.get("queue_type") == "inline" else "worker"
    return {
        "engine": {"thread_count": 2, **engine},
        "models": [model | {"run": run}],
    }


def described(server: Server) -> tuple[int, str]:
    with Client("127.0.0.1", server.port) as client:
        entry = client.describe()["models"][0]
    return entry["width"], entry["width_why"]


def wide_runs(server: Server) -> int:
    return server.figures().worker["runs_wide"]


@pytest.fixture
def _cores() -> None:
    if CORES < 2:
        needs.absent("cores", f"{CORES}")


@pytest.mark.usefixtures("_cores")
def test_an_idle_server_uses_two_cores(serve: Serve, tmp_path: Path) -> None:
    path, rows = layers(tmp_path / "m.onnx"), tmp_path / "rows.csv"
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    bare = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(4)
    server = serve(document(path, telemetry_csv_path=str(rows)))
    width, why = described(server)
    assert width == 2
    assert why.startswith("as set: a Run takes ")
    widths = []
    with Client("127.0.0.1", server.port) as client:
        while widths.count(2) < WIDE:
            x = random.standard_normal((random.integers(1, 32), COLUMNS)).astype(np.float32)
            result = client.infer("m", {"x": x})
            assert result.outputs["y"].tobytes() == bare.run(None, {"x": x})[0].tobytes()
            widths.append(result.width)
    assert set(widths) <= {1, 2}
    with Http(server.port) as connection:
        x = random.standard_normal((1, COLUMNS)).astype(np.float32)
        told = None
        while told is None:
            answer = connection.query(web.infer("m", {"x": x}))
            assert answer.code == 200
            told = answer.headers.get("lumen-width")
            widths.append(2 if told else 1)
        assert told == "2"
    server.wait_until_idle()
    assert wide_runs(server) == widths.count(2)
    server.stop()
    with rows.open() as file:
        written = [int(row["width"]) for row in csv.DictReader(file)]
    assert sorted(written) == sorted(widths)


def dense(path: Path) -> Path:
    """x FP32 [n, 256] -> y of the same shape: layers that the native engine's threads share."""
    random = np.random.default_rng(5)
    nodes, weights = [], {}
    for layer in range(4):
        weights[f"w{layer}"] = random.standard_normal((256, 256)).astype(np.float32) / 16
        nodes.append(
            helper.make_node("MatMul", [f"x{layer}" if layer else "x", f"w{layer}"], [f"p{layer}"])
        )
        nodes.append(
            helper.make_node("Relu", [f"p{layer}"], [f"x{layer + 1}" if layer < 3 else "y"])
        )
    shape = ["n", 256]
    return graphs.save(
        path, nodes, [tensor("x", FLOAT, shape)], [tensor("y", FLOAT, shape)], weights
    )


@pytest.mark.usefixtures("_cores")
def test_the_native_engine_uses_two_cores(serve: Serve, tmp_path: Path) -> None:
    """Its answers are the same to the bit, whichever cores they come from."""
    settings = document(dense(tmp_path / "m.onnx"))
    settings["models"][0]["engine"] = "native"  # type: ignore[index]
    server = serve(settings)
    width, why = described(server)
    assert (width, why.startswith("as set: a Run takes ")) == (2, True), why
    x = np.random.default_rng(6).standard_normal((7, 256)).astype(np.float32)
    found: dict[int, set[bytes]] = {}
    with Client("127.0.0.1", server.port) as client:
        while wide_runs(server) < WIDE:
            result = client.infer("m", {"x": x})
            found.setdefault(result.width, set()).add(result.outputs["y"].tobytes())
        # A second client keeps the other worker awake: Runs of one core.
        with Client("127.0.0.1", server.port) as other:
            done = threading.Event()

            def keep_asking() -> None:
                while not done.is_set():
                    other.infer("m", {"x": x})

            asking = threading.Thread(target=keep_asking)
            asking.start()
            while 1 not in found:
                result = client.infer("m", {"x": x})
                found.setdefault(result.width, set()).add(result.outputs["y"].tobytes())
            done.set()
            asking.join()
    assert set(found) == {1, 2}
    assert len(found[1] | found[2]) == 1


@pytest.mark.usefixtures("_cores")
def test_a_busy_server_does_not(serve: Serve, tmp_path: Path) -> None:
    path = layers(tmp_path / "m.onnx")
    server = serve(document(path))
    x = np.ones((16, COLUMNS), np.float32)
    found: list[int] = []

    def ask() -> None:
        with Client("127.0.0.1", server.port) as client:
            for _ in range(LAPS):
                found.append(client.infer("m", {"x": x}).width)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(1) > 0
    assert len(found) == 8 * LAPS
    eventually(lambda: wide_runs(server) == found.count(2), "every wide Run is counted")


@pytest.mark.parametrize(
    ("width", "engine", "why"),
    [
        (1, {}, "as set"),
        ("auto", {}, "a Run takes "),
        (2, {"thread_count": 1}, "there is one worker"),
        (2, {"queue_type": "inline"}, "I/O threads run it"),
        (2, {"queue_type": "naive"}, "idle workers do not sleep where they are seen"),
        (2, {"idle": "spin"}, "idle workers do not sleep where they are seen"),
        (2, {"thread_count": 64}, "the workers are not pinned"),
    ],
)
@pytest.mark.usefixtures("_cores")
def test_why_a_model_has_one_core(
    serve: Serve, tmp_path: Path, width: int | str, engine: dict[str, object], why: str
) -> None:
    server = serve(document(graphs.double(tmp_path / "m.onnx"), width, **engine))
    cores, told = described(server)
    assert cores == 1
    assert told.startswith(why)
    with Client("127.0.0.1", server.port) as client:
        assert client.infer("m", {"x": np.ones((1, 16), np.float32)}).width == 1
    assert wide_runs(server) == 0
