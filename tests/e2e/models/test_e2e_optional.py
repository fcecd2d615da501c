"""Inputs that have a value in the graph (initializers that it lists as inputs): a request may bring
them, and what it does not bring has the graph's value. ONNX Runtime is the judge of all answers."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnxruntime
import pytest
import web
from graphs import FLOAT, INT64, tensor
from harness import Server
from onnx import helper
from web import Http

from lumen_uring import Client

pytestmark = pytest.mark.once  # what reads requests and runs models is the same on both backends

WAYS: dict[str, dict[str, object]] = {
    "plain": {},
    "worker": {"run": "worker"},
    "batched": {"batch_size": 8, "batch_delay_us": 2000},
    "cached": {"response_cache": True},
    "wide": {"width": 2, "run": "worker"},
}
SCALE, BIAS = np.array([2.0], np.float32), np.array([1.0, -1.0, 0.5], np.float32)


def scaled(path: Path, extra: dict[str, np.ndarray] | None = None) -> Path:
    """y = x * scale + bias, and top = k, where scale, bias and k have values in the graph."""
    values = {"scale": SCALE, "bias": BIAS, "k": np.array(7, np.int64), **(extra or {})}
    types = {"f": FLOAT, "i": INT64}
    listed = [tensor(name, types[v.dtype.kind], v.shape) for name, v in values.items()]
    return graphs.save(
        path,
        [
            helper.make_node("Mul", ["x", "scale"], ["m"]),
            helper.make_node("Add", ["m", "bias"], ["y"]),
            helper.make_node("Identity", ["k"], ["top"]),
        ],
        [tensor("x", FLOAT, ["n", 3]), *listed],
        [tensor("y", FLOAT, ["n", 3]), tensor("top", INT64, [])],
        values,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("optional")


def only_y(path: Path) -> Path:
    """The same without `top`, whose shape has no rows, so that it can be batched."""
    values = {"scale": SCALE, "bias": BIAS}
    return graphs.save(
        path,
        [
            helper.make_node("Mul", ["x", "scale"], ["m"]),
            helper.make_node("Add", ["m", "bias"], ["y"]),
        ],
        [tensor("x", FLOAT, ["n", 3]), *(tensor(k, FLOAT, v.shape) for k, v in values.items())],
        [tensor("y", FLOAT, ["n", 3])],
        values,
    )


@pytest.fixture(scope="module")
def server(folder: Path, cache: Path) -> Iterator[Server]:
    whole, part = scaled(folder / "whole.onnx"), only_y(folder / "part.onnx")
    entries = [
        {"name": way, "path": str(part if way == "batched" else whole), **settings}
        for way, settings in WAYS.items()
    ]
    weights = {"w": np.ones((3, 3), np.float32)}
    entries += [
        {"name": "weights", "path": str(scaled(folder / "weights.onnx", weights))},
        {"name": "apart", "path": str(part), "isolation": "process"},
    ]
    settings = {"models": entries, "engine": {"thread_count": 2}, "server": {"shared_memory": True}}
    with Server(settings, cache) as one:
        yield one


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("binary", [True, False])
def test_any_of_them_may_come(server: Server, folder: Path, way: str, binary: bool) -> None:
    names = ("scale", "bias") if way == "batched" else ("scale", "bias", "k")
    session = onnxruntime.InferenceSession(
        folder / ("part.onnx" if way == "batched" else "whole.onnx")
    )
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)

    def ask(turn: int) -> None:
        with Http(server.port) as http:
            for _ in range(25):
                rows = rng.randint(1, 3)
                given: dict[str, np.ndarray] = {
                    "x": np.array([[rng.randint(0, 2)] * 3] * rows, np.float32)
                }
                for name in names:
                    if rng.random() < 0.4:
                        given[name] = {
                            "scale": np.array([rng.randint(-2, 2)], np.float32),
                            "bias": np.array([rng.randint(0, 1)] * 3, np.float32),
                            "k": np.array(rng.randint(0, 9), np.int64),
                        }[name]
                order = dict(rng.sample(sorted(given.items()), len(given)))
                right = session.run(None, given)
                answer = http.query(web.infer(way, order, binary=binary, binary_outputs=binary))
                assert answer.code == 200, (seed, answer.error)
                for output, value in zip(session.get_outputs(), right, strict=True):
                    found = answer.array(output.name)
                    assert found.tolist() == value.tolist(), (seed, turn, order)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(4)))


def test_the_native_protocol_and_rows_bring_none(server: Server) -> None:
    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    right = (x * SCALE + BIAS).tolist()
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        assert client.infer("plain", {"x": x}).outputs["y"].tolist() == right
        body = json.dumps({"instances": x.tolist()}).encode()
        rows = http.query(web.post("/v1/models/batched:predict", body)).json()["predictions"]
        assert np.array(rows).tolist() == right


def test_clients_are_told(server: Server) -> None:
    with Http(server.port) as http:
        said = http.query(web.get("/v2/models/plain")).json()["inputs"]
        assert [(one["name"], one["shape"]) for one in said] == [
            ("x", [-1, 3]), ("scale", [1]), ("bias", [3]), ("k", []),
        ]  # fmt: skip
        config = http.query(web.get("/v2/models/plain/config")).json()["input"]
        assert [one["optional"] for one in config] == [False, True, True, True]
        for name in ("weights", "apart"):
            said = http.query(web.get(f"/v2/models/{name}")).json()["inputs"]
            assert [one["name"] for one in said] == ["x"]


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("plain", {"scale": np.zeros(2, np.float32)}, "input 'scale': shape: expected [1], found"),
        ("plain", {"scale": np.zeros(1, np.float64)}, "input 'scale': datatype: expected FP32"),
        ("plain", {"bogus": np.zeros(1, np.float32)}, "model 'plain' has no input 'bogus'"),
        ("weights", {"scale": SCALE}, "model 'weights' has no input 'scale'"),
        ("weights", {"w": np.ones((3, 3), np.float32)}, "model 'weights' has no input 'w'"),
        ("apart", {"scale": SCALE}, "model 'apart' has no input 'scale'"),
    ],
)
def test_what_is_wrong_is_said(
    server: Server, model: str, given: dict[str, np.ndarray], said: str
) -> None:
    x = {"x": np.zeros((1, 3), np.float32)}
    with Http(server.port) as http:
        for binary in (True, False):
            answer = http.query(web.infer(model, {**x, **given}, binary=binary))
            assert (answer.code, said in answer.error) == (400, True), answer.error
        alone = http.query(web.infer(model, given))
        assert alone.code == 400
        assert http.query(web.infer(model, x)).code == 200


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("shared", ["x", "y"])
def test_none_comes_beside_shared_memory(server: Server, binary: bool, shared: str) -> None:
    """Where tensors lie in a region, the body is not read where optional inputs are laid out."""
    key = f"optional-{os.getpid()}"
    path = Path(f"/dev/shm/{key}")
    path.write_bytes(np.ones(3, np.float32).tobytes())
    place = {"shared_memory_region": key, "shared_memory_byte_size": 12}
    x: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 3]}
    scale: dict[str, Any] = {"name": "scale", "datatype": "FP32", "shape": [1]}
    blobs = b""
    for one, values in ((x, np.ones(3, np.float32)), (scale, SCALE)):
        if one is x and shared == "x":
            x["parameters"] = place
        elif binary:
            one["parameters"] = {"binary_data_size": values.nbytes}
            blobs += values.tobytes()
        else:
            one["data"] = values.tolist()
    outputs = [{"name": "y", "parameters": place}] if shared == "y" else [{"name": "y"}]
    try:
        with Http(server.port) as http:
            region = json.dumps({"key": f"/{key}", "offset": 0, "byte_size": 12}).encode()
            where = f"/v2/systemsharedmemory/region/{key}"
            assert http.query(web.post(f"{where}/register", region)).code == 200
            text = json.dumps({"inputs": [x, scale], "outputs": outputs}).encode()
            asked = web.post(web.path("plain"), text + blobs, f"{web.JSON_LENGTH}: {len(text)}")
            for _ in range(3):
                answer = http.query(asked)
                assert (answer.code, "shared memory" in answer.error) == (400, True), answer.error
            alone = {"x": np.ones((1, 3), np.float32)}
            assert http.query(web.infer("plain", alone)).code == 200
            http.query(web.post(f"{where}/unregister"))
    finally:
        path.unlink()
