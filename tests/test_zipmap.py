"""zipmap.py: which models lose their ZipMap, and what becomes of their classes."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from lumen_uring.loading import zipmap

SCORES = helper.make_tensor_value_info("s", TensorProto.FLOAT, [None, 2])


def maps(name: str) -> onnx.ValueInfoProto:
    values = helper.make_map_type_proto(
        TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    return helper.make_value_info(name, helper.make_sequence_type_proto(values))


def save(
    path: Path,
    names: list[bytes],
    outputs: list[onnx.ValueInfoProto] | None = None,
    more: list[onnx.NodeProto] | None = None,
) -> Path:
    """Scores s and their ZipMap z, with other outputs and nodes where a test wants them."""
    node = helper.make_node("ZipMap", ["s"], ["z"], domain="ai.onnx.ml", classlabels_strings=names)
    graph = helper.make_graph(
        [node, *(more or [])], "g", [SCORES], [maps("z")] if outputs is None else outputs
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), str(path))
    return path


def test_the_zipmap_gives_way_to_its_input(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [b"no", b"y\xc3\xa9s"])
    with zipmap.cut(path) as (file, labels, note):
        model = onnx.load(str(file))
        assert labels == "no\nyés\n".encode()
        assert note == (
            "m.onnx: its ZipMap is left out; output 'probabilities' has a column for each of 2 "
            "classes"
        )
    assert not file.exists()
    (output,) = model.graph.output
    assert output.name == "probabilities"
    dims = output.type.tensor_type.shape.dim
    assert (dims[0].dim_param, dims[1].dim_value) == ("rows", 2)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    assert [node.op_type for node in model.graph.node] == ["Identity"]


def test_a_zipmap_whose_output_has_the_name_already(tmp_path: Path) -> None:
    """As onnxmltools exports LightGBM's classifiers."""
    node = helper.make_node(
        "ZipMap", ["s"], ["probabilities"], domain="ai.onnx.ml", classlabels_strings=[b"a", b"b"]
    )
    graph = helper.make_graph([node], "g", [SCORES], [maps("probabilities")])
    onnx.save(helper.make_model(graph), str(tmp_path / "m.onnx"))
    with zipmap.cut(tmp_path / "m.onnx") as (file, labels, _note):
        model = onnx.load(str(file))
    assert labels == b"a\nb\n"
    assert [node.output[0] for node in model.graph.node] == ["probabilities"]
    assert model.graph.output[0].type.WhichOneof("value") == "tensor_type"


@pytest.mark.parametrize("names", [[b"a\nb", b"c"], [b"", b"c"]])
def test_names_that_are_no_lines(tmp_path: Path, names: list[bytes]) -> None:
    with zipmap.cut(save(tmp_path / "m.onnx", names)) as (_, labels, note):
        assert labels is None
        assert note is not None


def untouched(path: Path) -> bool:
    with zipmap.cut(path) as found:
        return found == (path, None, None)


def test_other_models_are_left_alone(tmp_path: Path) -> None:
    used = helper.make_node("SequenceAt", ["z", "i"], ["m"])
    probabilities = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 2])
    twin = helper.make_node("ZipMap", ["s"], ["t"], domain="ai.onnx.ml", classlabels_int64s=[1, 2])
    assert untouched(save(tmp_path / "no_output.onnx", [b"a", b"b"], [SCORES]))
    assert untouched(save(tmp_path / "used.onnx", [b"a", b"b"], more=[used]))
    assert untouched(save(tmp_path / "taken.onnx", [b"a", b"b"], [maps("z"), probabilities]))
    assert untouched(save(tmp_path / "two.onnx", [b"a", b"b"], [maps("z"), maps("t")], [twin]))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Loading them says what is wrong."""
    (tmp_path / "text").write_text("this speaks of a ZipMap, and is none")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("text", "empty", "missing", "."):
        assert untouched(tmp_path / name), name


def test_without_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "m.onnx", [b"a", b"b"])
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert untouched(path)
