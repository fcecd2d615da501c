"""Models with as many inputs and outputs as there may be: a column each, over every dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import harness
import numpy as np
import onnxruntime as ort
import pytest
import web
from graphs import FLOAT, INT64, tensor
from harness import Server
from onnx import TensorProto, helper
from web import Http

from lumen_uring import Client

pytestmark = pytest.mark.once  # what reads requests is the same on both backends

COLUMNS, MOST, ROUNDS = 100, 256, 20
NAMED_MOST = 1024  # columns of a table
Arrays = dict[str, np.ndarray]


def frame(path: Path, length: int | str) -> Path:
    """100 inputs [n, length] of FP32 and INT64, a string [n, 1] -> the weighted sum, the string."""
    kinds = [FLOAT if i % 2 else INT64 for i in range(COLUMNS)]
    nodes = []
    for i in range(COLUMNS):
        nodes.append(helper.make_node("Cast", [f"c{i}"], [f"f{i}"], to=FLOAT))
        nodes.append(helper.make_node("Mul", [f"f{i}", f"w{i}"], [f"p{i}"]))
    nodes.append(helper.make_node("Sum", [f"p{i}" for i in range(COLUMNS)], ["sum"]))
    nodes.append(helper.make_node("Identity", ["word"], ["same"]))
    weights = {f"w{i}": np.array(i + 0.5, np.float32) for i in range(COLUMNS)}
    inputs = [tensor(f"c{i}", kind, ["n", length]) for i, kind in enumerate(kinds)]
    inputs.insert(50, tensor("word", TensorProto.STRING, ["n", 1]))
    outputs = [tensor("sum", FLOAT, ["n", length]), tensor("same", TensorProto.STRING, ["n", 1])]
    return graphs.save(path, nodes, inputs, outputs, weights)


def mirror(path: Path, count: int) -> Path:
    """As many inputs as outputs, [n] each: its negative."""
    nodes = [helper.make_node("Neg", [f"x{i}"], [f"y{i}"]) for i in range(count)]
    inputs = [tensor(f"x{i}", FLOAT, ["n"]) for i in range(count)]
    return graphs.save(path, nodes, inputs, [tensor(f"y{i}", FLOAT, ["n"]) for i in range(count)])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("columns")
    return {
        "frame": frame(folder / "frame.onnx", 1),
        "free": frame(folder / "free.onnx", "m"),
        "mirror": mirror(folder / "mirror.onnx", MOST),
    }


@pytest.fixture(scope="module")
def server(files: dict[str, Path], cache: Path) -> Iterator[Server]:
    models = [{"name": name, "path": str(path)} for name, path in files.items()]
    with Server({"models": models}, cache) as one:
        yield one


def columns(random: np.random.Generator, rows: int, length: int) -> Arrays:
    arrays: Arrays = {
        f"c{i}": random.normal(size=(rows, length)).astype(np.float32)
        if i % 2
        else random.integers(-9, 9, (rows, length))
        for i in range(COLUMNS)
    }
    return {**arrays, "word": random.choice(["", "é", "w" * 40], (rows, 1)).astype(object)}


def as_tensors(arrays: Arrays) -> dict[str, Any]:
    return {
        name: web.strings(list(array.flat), array.shape) if name == "word" else array
        for name, array in arrays.items()
    }


@pytest.mark.parametrize("model", ["frame", "free"])
def test_a_hundred_columns(server: Server, files: dict[str, Path], model: str) -> None:
    session = ort.InferenceSession(str(files[model]))
    random = np.random.default_rng(31)
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        for round_ in range(ROUNDS):
            length = 1 if model == "frame" else int(random.integers(1, 9))
            arrays = columns(random, int(random.integers(1, 33)), length)
            total, same = session.run(None, arrays)
            found = client.infer(model, arrays).outputs
            assert found["sum"].tobytes() == total.tobytes()
            assert np.array_equal(found["same"], same)
            for binary in (True, False, [f"c{i}" for i in range(0, COLUMNS, 3)]):
                request = web.infer(
                    model, as_tensors(arrays), binary=binary, binary_outputs=bool(round_ % 2)
                )
                answer = http.query(request)
                assert answer.code == 200, answer.error
                assert answer.array("sum").tobytes() == total.tobytes()
                assert answer.outputs["same"].data == [word.encode() for word in same.flat]
            order = list(random.permutation(list(arrays)))
            rows = [
                {name: arrays[name][row].tolist() for name in order} for row in range(len(total))
            ]
            body = json.dumps({"instances": rows}).encode()
            predictions = http.query(web.post(f"/v1/models/{model}:predict", body)).json()
            sums = np.array([row["sum"] for row in predictions["predictions"]], np.float32)
            assert sums.tobytes() == total.tobytes()
            assert [row["same"] for row in predictions["predictions"]] == same.tolist()


def test_as_many_as_there_may_be(server: Server) -> None:
    arrays = {f"x{i}": np.array([i, -i], np.float32) for i in range(MOST)}
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        found = client.infer("mirror", arrays).outputs
        for answer in (
            http.query(web.infer("mirror", arrays, binary=True, binary_outputs=True)),
            http.query(web.infer("mirror", arrays, binary=False)),
        ):
            for i in range(MOST):
                assert found[f"y{i}"].tolist() == [-i, i]
                assert answer.array(f"y{i}").tolist() == [-i, i]
        body = json.dumps({"inputs": {name: array.tolist() for name, array in arrays.items()}})
        outputs = http.query(web.post("/v1/models/mirror:predict", body.encode())).json()["outputs"]
        assert outputs["y255"] == [-255.0, 255.0]
        del arrays["x200"]
        answer = http.query(web.infer("mirror", arrays))
        assert answer.error == "inputs: input 'x200' is missing"


def test_one_more_is_refused(cache: Path, tmp_path: Path) -> None:
    path = mirror(tmp_path / "more.onnx", MOST + 1)
    done = harness.run(["inspect", str(path)], cache)
    assert "expected 1 to 256 inputs and as many outputs, found 257 and 257" in (
        done.stdout + done.stderr
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Server]:
    """Models whose one input's row is a table's: as many columns as may have a name, and one more;
    the answer says where each value went."""
    folder = tmp_path_factory.mktemp("table")
    entries = []
    for name, width in (("most", NAMED_MOST), ("more", NAMED_MOST + 1)):
        path = graphs.save(
            folder / f"{name}.onnx",
            [helper.make_node("Identity", ["x"], ["y"])],
            [tensor("x", FLOAT, ["n", width])],
            [tensor("y", FLOAT, ["n", width])],
        )
        entries.append({"name": name, "path": str(path)})
    with Server({"models": entries}, cache) as one:
        yield one


def frames(width: int) -> Iterator[dict[str, Any]]:
    """Two rows of a table in each form that names columns."""
    names = [f"column {i}" for i in range(width)]
    rows = [[float(row * width + i) for i in range(width)] for row in range(2)]
    yield {"dataframe_split": {"columns": names, "data": rows}}
    yield {"dataframe_records": [dict(zip(names, row, strict=True)) for row in rows]}


def test_a_table_has_as_many_named_columns_as_may_be(table: Server) -> None:
    with Http(table.port) as http:
        for body in frames(NAMED_MOST):
            answer = http.query(web.post("/v1/models/most:predict", json.dumps(body).encode()))
            assert answer.code == 200, answer.error
            assert answer.json()["predictions"] == [
                [float(row * NAMED_MOST + i) for i in range(NAMED_MOST)] for row in range(2)
            ]
        for body in frames(NAMED_MOST + 1):
            answer = http.query(web.post("/v1/models/more:predict", json.dumps(body).encode()))
            assert answer.code == 400
            assert f"at most {NAMED_MOST}" in answer.error
        # Rows of other widths than the first one's.
        short, long = [dict.fromkeys(map(str, range(n)), 1.0) for n in (NAMED_MOST, NAMED_MOST + 1)]
        body = {"dataframe_records": [short, long]}
        answer = http.query(web.post("/v1/models/most:predict", json.dumps(body).encode()))
        assert answer.code == 400
        assert "no field beside those of row 0" in answer.error
    table.check_idle()
