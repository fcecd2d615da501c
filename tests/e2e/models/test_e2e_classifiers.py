"""Classifiers as scikit-learn's and XGBoost's converters make them: a ZipMap at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import graphs
import harness
import numpy as np
import onnx
import onnxruntime
import pytest
import web
from harness import Server
from onnx import TensorProto, helper
from web import Http

from lumen_uring import Client

pytestmark = pytest.mark.once  # what runs models: the same on both backends

FEATURES, CLASSES = 4, 3
Serve = Callable[..., Server]


def classifier(
    path: Path, scores: str, name: str = "output_probability", **classes: object
) -> Path:
    """A linear classifier of integer labels and its ZipMap, with the names that converters give.

    Args:
        path: of the file.
        scores: the ZipMap's input, which skl2onnx and onnxmltools call `probabilities`.
        name: the ZipMap's output.
        classes: the ZipMap's attribute.
    """
    random = np.random.default_rng(3)
    weights = random.normal(size=CLASSES * FEATURES).tolist()
    linear = helper.make_node(
        "LinearClassifier",
        ["float_input"],
        ["output_label", scores],
        domain="ai.onnx.ml",
        classlabels_ints=[0, 1, 2],
        coefficients=weights,
        intercepts=[0.1, 0.2, -0.3],
        multi_class=0,
        post_transform="SOFTMAX",
    )
    zipmap = helper.make_node("ZipMap", [scores], [name], domain="ai.onnx.ml", **classes)
    values = helper.make_map_type_proto(
        TensorProto.STRING if "classlabels_strings" in classes else TensorProto.INT64,
        helper.make_tensor_type_proto(TensorProto.FLOAT, []),
    )
    graph = helper.make_graph(
        [linear, zipmap],
        "classifier",
        [graphs.tensor("float_input", graphs.FLOAT, [None, FEATURES])],
        [
            graphs.tensor("output_label", graphs.INT64, [None]),
            helper.make_value_info(name, helper.make_sequence_type_proto(values)),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    onnx.save(model, str(path))
    return path


NAMES = ["setosa", "versicolor", "virginica"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("scores", "classes", "labels"),
    [
        ("probabilities", {"classlabels_int64s": [0, 1, 2]}, ["0", "1", "2"]),
        ("scores", {"classlabels_strings": NAMES}, NAMES),
    ],
)
def test_a_classifier_with_a_zipmap(
    serve: Serve, tmp_path: Path, scores: str, classes: dict[str, object], labels: list[str]
) -> None:
    path = classifier(tmp_path / "c.onnx", scores, **classes)
    session = onnxruntime.InferenceSession(path)
    rows = np.random.default_rng(5).normal(size=(20, FEATURES)).astype(np.float32)
    keys = NAMES if "classlabels_strings" in classes else [0, 1, 2]

    def expected(count: int) -> tuple[np.ndarray, np.ndarray]:
        label, maps = session.run(None, {"float_input": rows[:count]})
        return label, np.array([[row[key] for key in keys] for row in maps], np.float32)

    server = serve({"models": [{"name": "m", "path": str(path)}]})
    with Client("127.0.0.1", server.port) as client:
        for count in (1, 20, 7):
            found = client.infer("m", {"float_input": rows[:count]}).outputs
            label, probabilities = expected(count)
            assert np.array_equal(found["output_label"], label)
            assert np.array_equal(found["probabilities"], probabilities)
    with Http(server.port) as http:
        asked = [{"name": "probabilities", "parameters": {"classification": 1}}]
        answer = http.query(web.infer("m", {"float_input": rows[:3]}, binary=False, outputs=asked))
    (classes_said,) = answer.json()["outputs"]
    assert [text.split(":")[2] for text in classes_said["data"]] == [
        labels[best] for best in expected(3)[1].argmax(axis=1)
    ]


def test_the_note_says_what_was_cut(tmp_path: Path, cache: Path) -> None:
    path = classifier(tmp_path / "c.onnx", "scores", classlabels_int64s=[0, 1, 2])
    before = path.read_bytes()
    settings: dict[str, object] = {"models": [{"name": "m", "path": str(path)}]}
    with Server(settings, cache) as server:
        said = server.output
    assert "c.onnx: its ZipMap is left out; output 'probabilities' has a column" in said
    assert "/proc/self/fd" not in said
    assert path.read_bytes() == before


def test_a_refusal_names_the_file_itself(tmp_path: Path, cache: Path) -> None:
    path = classifier(tmp_path / "c.onnx", "scores", classlabels_int64s=[0, 1, 2])
    model = onnx.load(str(path))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 0
    onnx.save(model, str(path))
    done = harness.run(["--port", "0", "--model", f"m={path}"], cache)
    assert done.returncode == 1, done
    assert str(path) in done.stderr
    assert "/proc/self/fd" not in done.stderr
