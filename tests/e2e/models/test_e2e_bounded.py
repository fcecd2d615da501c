"""An I/O thread runs a model only where nothing in a request can make the Run long.

Looked at are describe and the statistics, never a time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import web
from conftest import Serve
from harness import BY_TIME, Server, eventually, run
from onnx import TensorProto, helper
from web import Http

from bench.common.adversaries import ADVERSARIES, SETTINGS
from lumen_uring import Client
from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # which thread runs a model is the same on both backends

ROOMY = {"max_request_bytes": "16MiB", "arena_bytes": "512MiB"}
SMALL = 1000  # of what a request asks for: it takes a moment, whoever runs it


def own(server: Server, model: str) -> int:
    """How many requests I/O threads ran themselves."""
    return read(server.stats_path).models[model]["own"]


def entries(server: Server) -> dict[str, Any]:
    with Client("127.0.0.1", server.port) as client:
        return {entry["name"]: entry for entry in client.describe()["models"]}


def test_what_a_value_can_make_long_is_the_workers(serve: Serve, tmp_path: Path) -> None:
    """Each of twelve graphs, whatever it is asked, and ensembles and experts of them."""
    models: list[dict[str, Any]] = [
        {"name": "double", "path": str(graphs.double(tmp_path / "double.onnx", rows=1))}
    ]
    for one in ADVERSARIES:
        path = one.write(tmp_path / f"{one.name}.onnx")
        models.append({"name": one.name, "path": str(path)})
    models = [{**model, **SETTINGS.get(model["name"], {})} for model in models]
    ensemble = {"name": "both", "steps": [{"model": "tile"}]}
    server = serve({"server": ROOMY, "models": models, "ensembles": [ensemble]})
    found = entries(server)
    for one in ADVERSARIES:
        entry = found[one.name]
        assert entry["run"] == "worker", entry
        assert one.operator in entry["run_why"], entry
    assert found["both"]["run"] == "worker"
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        for _ in range(20):  # zeros are quick, and teach that to whoever believes them
            for one in ADVERSARIES:
                client.infer(one.name, one.worst(1))
        for one in ADVERSARIES:
            client.infer(one.name, one.worst(min(one.size, SMALL)))
            if one.name != "strings":
                asked = one.worst(min(one.size, SMALL))
                assert http.query(web.infer(one.name, asked)).code == 200
        client.infer("both", ADVERSARIES[1].worst(SMALL))
    assert [one.name for one in ADVERSARIES if own(server, one.name)] == []
    assert own(server, "both") == 0


def node(operator: str, inputs: list[str], outputs: list[str], **rest: Any) -> Any:
    return helper.make_node(operator, inputs, outputs, **rest)


def classifier(path: Path) -> Path:
    """As skl2onnx writes a scaler and a linear classifier."""
    ml = {"domain": "ai.onnx.ml"}
    nodes = [
        node("Scaler", ["x"], ["s"], offset=[0.0] * 4, scale=[1.0] * 4, **ml),
        node(
            "LinearClassifier",
            ["s"],
            ["label", "scores"],
            coefficients=[0.1] * 12,
            intercepts=[0.0] * 3,
            classlabels_ints=[0, 1, 2],
            post_transform="SOFTMAX",
            **ml,
        ),
    ]
    inputs = [graphs.tensor("x", graphs.FLOAT, ["n", 4])]
    outputs = [
        graphs.tensor("label", graphs.INT64, ["n"]),
        graphs.tensor("scores", graphs.FLOAT, ["n", 3]),
    ]
    return save_with_ml(path, nodes, inputs, outputs, {})


def trees(path: Path) -> Path:
    """One tree of three nodes."""
    nodes = [
        node(
            "TreeEnsembleRegressor",
            ["x"],
            ["y"],
            domain="ai.onnx.ml",
            n_targets=1,
            nodes_treeids=[0, 0, 0],
            nodes_nodeids=[0, 1, 2],
            nodes_featureids=[0, 0, 0],
            nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
            nodes_values=[0.5, 0.0, 0.0],
            nodes_truenodeids=[1, 0, 0],
            nodes_falsenodeids=[2, 0, 0],
            target_treeids=[0, 0],
            target_nodeids=[1, 2],
            target_ids=[0, 0],
            target_weights=[1.0, 2.0],
        )
    ]
    inputs = [graphs.tensor("x", graphs.FLOAT, ["n", 4])]
    return save_with_ml(path, nodes, inputs, [graphs.tensor("y", graphs.FLOAT, ["n", 1])], {})


def recurrent(path: Path) -> Path:
    """An LSTM of fixed shape, with the sizes of its first state from Shape, as PyTorch exports."""
    random = np.random.default_rng(3)
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "at"], ["batch"]),
        node("Concat", ["ones", "batch", "eight"], ["sizes"], axis=0),
        node("ConstantOfShape", ["sizes"], ["h"]),
        node("LSTM", ["x", "w", "r", "", "", "h", "h"], ["all", "last", "c"], hidden_size=8),
        node("Squeeze", ["last", "zero"], ["y"]),
    ]
    constants = {
        "at": np.array([1], np.int64),
        "ones": np.array([1], np.int64),
        "eight": np.array([8], np.int64),
        "zero": np.array([0], np.int64),
        "w": random.standard_normal((1, 32, 4)).astype(np.float32),
        "r": random.standard_normal((1, 32, 8)).astype(np.float32),
    }
    inputs = [graphs.tensor("x", graphs.FLOAT, [6, 1, 4])]
    return save_with_ml(path, nodes, inputs, [graphs.tensor("y", graphs.FLOAT, [1, 8])], constants)


def perceptron(path: Path) -> Path:
    random = np.random.default_rng(4)
    nodes = [
        node("Flatten", ["x"], ["f"]),
        node("Gemm", ["f", "w", "b"], ["h"]),
        node("BatchNormalization", ["h", "b", "b", "b", "b"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Gemm", ["r", "v"], ["o"]),
        node("Softmax", ["o"], ["p"]),
        node("ArgMax", ["p"], ["y"], axis=1, keepdims=0),
    ]
    constants = {
        "w": random.standard_normal((8, 16)).astype(np.float32),
        "b": np.ones(16, np.float32),
        "v": random.standard_normal((16, 3)).astype(np.float32),
    }
    inputs = [graphs.tensor("x", graphs.FLOAT, ["n", 2, 4])]
    return save_with_ml(path, nodes, inputs, [graphs.tensor("y", graphs.INT64, ["n"])], constants)


def convolution(path: Path) -> Path:
    """With a Reshape whose sizes follow from Shape, and a Resize by a constant."""
    nodes = [
        node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p", "", "scales"], ["z"], mode="nearest"),
        node("Shape", ["z"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["rows"]),
        node("Concat", ["rows", "rest"], ["flat"], axis=0),
        node("Reshape", ["z", "flat"], ["y"]),
    ]
    constants = {
        "k": np.ones((2, 1, 3, 3), np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "rest": np.array([-1], np.int64),
    }
    inputs = [graphs.tensor("x", graphs.FLOAT, ["n", 1, 4, 4])]
    return save_with_ml(
        path, nodes, inputs, [graphs.tensor("y", graphs.FLOAT, ["n", 32])], constants
    )


def save_with_ml(path: Path, nodes: Any, inputs: Any, outputs: Any, constants: Any) -> Path:
    from onnx import helper, numpy_helper, save

    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    save(model, str(path))
    return path


@pytest.mark.parametrize(
    "make", [classifier, trees, recurrent, perceptron, convolution], ids=lambda make: make.__name__
)
def test_usual_small_models_stay(cache: Path, tmp_path: Path, make: Any) -> None:
    """Nothing but their time decides: the throughput of small models is what I/O threads give."""
    said = run(["inspect", str(make(tmp_path / "m.onnx"))], cache).stdout
    assert any(why in said for why in BY_TIME), said


def test_digits_stay(cache: Path) -> None:
    said = run(["inspect", "builtin:digits"], cache).stdout
    assert any(why in said for why in BY_TIME), said


def test_a_converted_file_is_not_looked_into(serve: Serve, tmp_path: Path) -> None:
    """ONNX Runtime's own form says so; a cached copy of an ONNX file keeps what that said."""
    import onnxruntime

    source = graphs.double(tmp_path / "double.onnx", rows=1)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "double.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(source), options)
    models = [
        {"name": "first", "path": str(source)},
        {"name": "converted", "path": str(tmp_path / "double.ort")},
    ]
    for _ in range(2):  # the second time the optimised graph is in the cache
        server = serve({"models": models})
        found = entries(server)
        assert found["first"]["run_why"] in BY_TIME
        assert found["converted"]["run"] == "worker"
        assert "ONNX Runtime" in found["converted"]["run_why"]
        server.stop()


def identity(path: Path) -> Path:
    """y = x, strings [n]."""
    return graphs.save(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [graphs.tensor("x", TensorProto.STRING, ["n"])],
        [graphs.tensor("y", TensorProto.STRING, ["n"])],
    )


def test_long_bodies_are_the_workers(serve: Serve, tmp_path: Path) -> None:
    """Strings and JSON by their bytes, however short the ones before were; tensors by theirs."""
    models = [
        {"name": "strings", "path": str(identity(tmp_path / "s.onnx")), "max_rows": 64},
        {"name": "wide", "path": str(graphs.double(tmp_path / "wide.onnx", 20_000, 1))},
        {"name": "echo", "path": str(graphs.echo(tmp_path / "echo.onnx")), "max_rows": 65536},
    ]
    server = serve({"server": ROOMY, "models": models})
    assert {entry["run_why"] for entry in entries(server).values()} <= set(BY_TIME)
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        for _ in range(20):
            client.infer("strings", {"x": np.array(["short"], np.object_)})
            client.infer("echo", {"x": np.zeros(8, np.uint8)})
        before = {name: own(server, name) for name in ("strings", "echo")}
        for size in (20_000, 1_000_000):
            client.infer("strings", {"x": np.array(["x" * size], np.object_)})
        client.infer("echo", {"x": np.zeros(65_536, np.uint8)})
        text = {"inputs": [{"name": "x", "datatype": "UINT8", "shape": [9000], "data": [7] * 9000}]}
        body = json.dumps(text).encode()
        assert http.query(web.post("/v2/models/echo/infer", body)).code == 200
        client.infer("wide", {"x": np.zeros((1, 20_000), np.float32)})
    after = {name: own(server, name) for name in ("strings", "echo")}
    assert after["strings"] == before["strings"]
    assert after["echo"] <= before["echo"] + 1  # 65,536 bytes are as many as may be
    assert own(server, "wide") == 0
    eventually(lambda: read(server.stats_path).models["wide"]["ok"] == 1, "the answer counted")
