"""Free sizes of 0, over every way in: a decoder's first step has no past. ONNX Runtime is the judge
of what a graph makes of nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import graphs
import numpy as np
import onnxruntime
import pytest
import web
from graphs import FLOAT, tensor
from harness import Server
from onnx import TensorProto, helper
from web import Http

from lumen_uring import Client
from lumen_uring.errors import BadRequest, InferenceFailed

pytestmark = pytest.mark.once  # what reads requests and runs models is the same on both backends

Arrays = dict[str, np.ndarray]


def models(folder: Path) -> dict[str, Path]:
    """Graphs of free sizes: as they came, joined, added up, of strings, and one that fails."""
    words = TensorProto.STRING
    axes = {"axes": np.array([1], np.int64)}
    made = {
        "same": ([("Identity", ["x"], {})], [("x", FLOAT, ["n", "k"])], ["n", "k"], FLOAT, {}),
        "joined": (
            [("Concat", ["past", "x"], {"axis": 1})],
            [("past", FLOAT, ["n", "past", 4]), ("x", FLOAT, ["n", "k", 4])],
            ["n", "all", 4], FLOAT, {},
        ),
        "sum": (
            [("ReduceSum", ["x", "axes"], {})], [("x", FLOAT, ["n", "k"])], ["n", 1], FLOAT, axes,
        ),
        "words": ([("Identity", ["x"], {})], [("x", words, ["n", "k"])], ["n", "k"], words, {}),
        "first": (
            [("Gather", ["x", "zero"], {"axis": 1})],
            [("x", FLOAT, ["n", "k"])], ["n"], FLOAT, {"zero": np.array(0, np.int64)},
        ),
    }  # fmt: skip
    return {
        name: graphs.save(
            folder / f"{name}.onnx",
            [helper.make_node(kind, names, ["y"], **rest) for kind, names, rest in nodes],
            [tensor(*one) for one in inputs],
            [tensor("y", dtype, shape)],
            constants,
        )
        for name, (nodes, inputs, shape, dtype, constants) in made.items()
    }


WAYS: dict[str, dict[str, object]] = {
    "plain": {},
    "batched": {"batch_size": 8},
    "apart": {"isolation": "process"},
    "cached": {"response_cache": True},
}


# Another process cannot share their outputs.
NOT_SHARED = {("joined", "apart"), ("words", "apart")}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return models(tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def server(files: dict[str, Path], cache: Path) -> Iterator[Server]:
    entries = [
        {"name": f"{name}-{way}", "path": str(path), **settings}
        for name, path in files.items()
        for way, settings in WAYS.items()
        if (name, way) not in NOT_SHARED
    ]
    with Server({"models": entries, "engine": {"thread_count": 2}}, cache) as one:
        yield one


def inputs(name: str, rows: int, size: int) -> Arrays:
    x = np.arange(rows * size, dtype=np.float32).reshape(rows, size)
    if name == "words":
        return {"x": np.array([f"w{i}" for i in range(rows * size)], object).reshape(rows, size)}
    if name == "joined":
        past = np.zeros((rows, size, 4), np.float32)
        return {"past": past, "x": np.ones((rows, 2, 4), np.float32)}
    return {"x": x}


@pytest.mark.parametrize(
    ("name", "way"),
    [
        (name, way)
        for name in ("same", "joined", "sum", "words")
        for way in WAYS
        if (name, way) not in NOT_SHARED
    ],
)
@pytest.mark.parametrize("rows", [1, 3])
def test_sizes_of_0_are_answered_as_by_onnx_runtime(
    server: Server, files: dict[str, Path], name: str, way: str, rows: int
) -> None:
    session = onnxruntime.InferenceSession(files[name])
    model = f"{name}-{way}"
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        for size in (0, 2, 0, 1):
            arrays = inputs(name, rows, size)
            (right,) = session.run(None, arrays)
            found = client.infer(model, arrays).outputs["y"]
            assert found.shape == right.shape
            assert found.tolist() == right.tolist()
            sent = {
                key: web.strings([str(word).encode() for word in array.flat], array.shape)
                if name == "words"
                else array
                for key, array in arrays.items()
            }
            for binary in (True, False):
                answer = http.query(web.infer(model, sent, binary=binary, binary_outputs=binary))
                assert answer.code == 200, answer.error
                output = answer.outputs["y"]
                assert tuple(output.shape) == right.shape
                if name != "words":
                    assert answer.array("y").tolist() == right.tolist()
            if size or name != "joined":  # else the first row tells too little of its shape
                body = json.dumps({"inputs": {key: a.tolist() for key, a in arrays.items()}})
                answer = http.query(web.post(f"/v1/models/{model}:predict", body.encode()))
                assert answer.code == 200, answer.error
                assert np.array(answer.json()["outputs"]).tolist() == right.tolist()


@pytest.mark.parametrize("way", list(WAYS))
def test_a_graph_that_cannot_says_so(server: Server, way: str) -> None:
    model = f"first-{way}"
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        for _ in range(2):
            with pytest.raises((BadRequest, InferenceFailed)):
                client.infer(model, {"x": np.zeros((1, 0), np.float32)})
            answer = http.query(web.infer(model, {"x": np.zeros((1, 0), np.float32)}, binary=False))
            assert answer.code in (400, 500)
            right = np.array([[5.0, 6.0]], np.float32)
            assert client.infer(model, {"x": right}).outputs["y"].tolist() == [5.0]


def test_no_rows_are_no_request(server: Server) -> None:
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        answer = http.query(web.infer("same-plain", {"x": np.zeros((0, 2), np.float32)}))
        assert (answer.code, "takes 1 to" in answer.error) == (400, True)
        with pytest.raises(BadRequest, match="takes 1 to"):
            client.infer("same-plain", {"x": np.zeros((0, 2), np.float32)})
    server.check_idle()
