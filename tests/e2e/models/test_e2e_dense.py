"""Models that the native engine runs: what clients get is what ONNX Runtime computes, alone, in
batches and through both dialects."""

from __future__ import annotations

from pathlib import Path

import graphs
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import web
from conftest import Serve
from graphs import FLOAT, INT64, tensor
from onnx import helper
from web import Http

from lumen_uring import Client

pytestmark = pytest.mark.once  # what computes is the same on both backends

COLUMNS = 24


def layers(path: Path) -> Path:
    """x FP32 [n, COLUMNS] -> y FP32 [n, 5] through two layers."""
    random = np.random.default_rng(2)
    weights = {
        "w": random.standard_normal((COLUMNS, 70)).astype(np.float32),
        "v": random.standard_normal((70, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Tanh", ["p"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    inputs, outputs = [tensor("x", FLOAT, ["n", COLUMNS])], [tensor("y", FLOAT, ["n", 5])]
    return graphs.save(path, nodes, inputs, outputs, weights)


def tree(path: Path) -> Path:
    """x FP32 [n, COLUMNS] -> label INT64 [n], scores FP32 [n, 2]: one split."""
    node = helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_modes=["BRANCH_LT", "LEAF", "LEAF"],
        nodes_featureids=[3, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0, 0],
        class_nodeids=[1, 2],
        class_ids=[0, 0],
        class_weights=[-1.5, 2.5],
        classlabels_int64s=[10, 20],
        post_transform="LOGISTIC",
    )
    outputs = [tensor("label", INT64, ["n"]), tensor("scores", FLOAT, ["n", 2])]
    inputs = [tensor("x", FLOAT, ["n", COLUMNS])]
    graph = helper.make_graph([node], "tree", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


@pytest.mark.parametrize(("run", "batch_size"), [("inline", 1), ("worker", 1), ("worker", 8)])
def test_answers(serve: Serve, tmp_path: Path, run: str, batch_size: int) -> None:
    paths = {"layers": layers(tmp_path / "l.onnx"), "tree": tree(tmp_path / "t.onnx")}
    more = {"engine": "native", "batch_size": batch_size, "run": run}
    server = serve(
        {"models": [{"name": name, "path": str(path), **more} for name, path in paths.items()]}
    )
    random = np.random.default_rng(4)
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        for name, path in paths.items():
            session = ort.InferenceSession(str(path))
            entry = next(m for m in client.describe()["models"] if m["name"] == name)
            assert entry["engine"] == "native"
            for rows in (1, 2, 7, 40):
                x = random.standard_normal((rows, COLUMNS)).astype(np.float32)
                expected = session.run(None, {"x": x})
                found = client.infer(name, {"x": x}).outputs
                answer = http.query(web.infer(name, {"x": x}))
                for output, array in zip(session.get_outputs(), expected, strict=True):
                    for got in (found[output.name], answer.array(output.name)):
                        assert got.dtype == array.dtype
                        np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6)
