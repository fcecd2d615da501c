"""Integer weights that are computed as floats are named by `lumen inspect`, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lumen_uring.cli import main
from lumen_uring.loading import weight_only

SIZE = 16


def write(at: Path, nodes: list[onnx.NodeProto], kind: str = "i1") -> Path:
    """A model [n, 16] -> [n, 16] of nodes that take `w` and its scale `s`."""
    weights = np.arange(SIZE * SIZE).reshape(SIZE, SIZE).astype(kind)
    constants = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.array(0.5, "f4"), "s"),
    ]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", SIZE]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, at)
    return at


def node(kind: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


CAST = [
    node("Cast", "w", "f", to=TensorProto.FLOAT),
    node("Mul", "f s", "m"),
    node("MatMul", "x m", "y"),
]
DEQUANTIZED = [node("DequantizeLinear", "w s", "m"), node("MatMul", "x m", "y")]
FAKE = [node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s", "d")]
DYNAMIC = [
    helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
    node("MatMulInteger", "q w qz", "i"),
    node("Cast", "i", "y", to=TensorProto.FLOAT),
]
INSIDE = [
    node(
        "If",
        "c",
        "y",
        then_branch=helper.make_graph(DYNAMIC, "then", [], []),
        else_branch=helper.make_graph(CAST, "else", [], []),
    )
]


@pytest.mark.parametrize("nodes", [CAST, DEQUANTIZED], ids=["cast", "dequantized"])
def test_weights_alone_are_integers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: list[onnx.NodeProto]
) -> None:
    path = write(tmp_path / "m.onnx", nodes)
    assert main(["inspect", str(path)]) == 0
    assert "weights are stored as INT8 and computed as floats" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ([node("MatMul", "x w", "y")], "f4"),
        ([*FAKE, DEQUANTIZED[0], node("MatMul", "d m", "y")], "i1"),
        (DYNAMIC, "i1"),
        (INSIDE, "i1"),
    ],
    ids=["float", "fake-quantised", "dynamic", "in-a-branch"],
)
def test_others_are_not_named(tmp_path: Path, nodes: list[onnx.NodeProto], kind: str) -> None:
    assert weight_only.note(write(tmp_path / "m.onnx", nodes, kind)) is None


def test_what_cannot_be_parsed_is_not_named(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\xff" * 100)
    assert weight_only.note(path) is None
    assert weight_only.note(tmp_path / "none.onnx") is None
