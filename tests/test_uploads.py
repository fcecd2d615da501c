"""uploads.py: where the files of a call lie, which of them stay, and what a model may name."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lumen_uring.control.uploads import Uploads
from lumen_uring.errors import ConfigError


class Served(Uploads):
    """With the files of the models that are served."""

    def __init__(self) -> None:
        self.served: list[str] = []
        super().__init__(lambda: self.served)

    def keep_used(self, paths: list[str]) -> None:
        self.served = paths
        self.drop_unused()


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Served()
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []


def put(uploads: Served, content: bytes, name: str = "1/model.onnx") -> Path:
    return uploads.put("m", {f"file:{name}": base64.b64encode(content).decode()})


def entry(key: bytes, value: bytes, lengths: tuple[int, int, int] | None = None) -> bytes:
    """An entry of external_data as protobuf has it; lengths that are untrue in their place."""
    whole, first, second = lengths or (4 + len(key) + len(value), len(key), len(value))
    return b"\x6a%c\n%c%b\x12%c%b" % (whole, first, key, second, value)


def test_folders_stay_while_a_model_is_served_from_them(uploads: Served) -> None:
    first, second = put(uploads, b"1"), put(uploads, b"2")
    assert (first / "1/model.onnx").read_bytes() == b"1"
    uploads.keep_used([f"{second}/1/model.onnx", "/models/other/1/model.onnx"])
    assert not first.exists()
    assert second.exists()
    assert (
        uploads.hide(f"{second}/1/model.onnx: no model")
        == "the call's files/1/model.onnx: no model"
    )
    uploads.keep_used([])
    assert not second.exists()


def test_an_unload_during_a_load_leaves_its_files(uploads: Served) -> None:
    first, second = put(uploads, b"1"), put(uploads, b"2")
    uploads.drop_unused(is_loaded=False)  # the model of `second` is being loaded
    assert not first.exists()
    assert second.exists()
    uploads.drop_unused()
    assert not second.exists()


def test_a_disk_that_is_full(
    uploads: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of other calls, which models are served from, stay."""

    def full(*_: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(OSError, match="No space left"):
        put(uploads, b"1")
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = put(uploads, b"1")
    uploads.served = [str(first / "1/model.onnx")]
    with monkeypatch.context() as patched:
        patched.setattr("lumen_uring.control.uploads._keep", full)
        with pytest.raises(OSError, match="No space left"):
            put(uploads, b"1")
    assert (first / "1/model.onnx").read_bytes() == b"1"
    assert list(first.parent.parent.iterdir()) == [first.parent]
    uploads.keep_used([])


def test_weights_in_a_file_beside_the_model(uploads: Served, tmp_path: Path) -> None:
    """As the package onnx writes it."""
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64, 64]) for n in "xy"]
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], [weights]))
    for location in ("model.onnx.data", "../secret"):
        for tensor in model.graph.initializer:
            onnx.external_data_helper.set_external_data(tensor, location, 0, 16384)
        if location.startswith("."):
            with pytest.raises(ConfigError, match="expected weights in"):
                put(uploads, model.SerializeToString())
        else:
            put(uploads, model.SerializeToString())


@pytest.mark.parametrize(
    "content",
    [
        entry(b"location", b"/etc/passwd"),
        entry(b"location", b"../x"),
        entry(b"location", b".x"),
        entry(b"location", b""),
        entry(b"location", b"w.bin\x12\x02/x", (21, 8, 5)),  # a second value, which counts
        entry(b"location", b"w.bin", (16, 8, 5)),
        b"\x6a\x0f\x12\x03w/x\n\x08location",  # the value first
        b"\x6a\x80\x01\n\x08location\x12\x05w.bin",  # lengths and tags that could be shorter
        b"\x6a\x12\x8a\x00\x08location\x12\x05w.bin",
        b"\x6a\x12\n\x88\x80\x00location\x12\x05w.bin",
    ],
)
def test_places_that_no_model_may_name(uploads: Served, content: bytes) -> None:
    with pytest.raises(ConfigError, match="found another place"):
        put(uploads, b"ir " + entry(b"location", b"w.bin") + content)
    put(uploads, b"ir " + entry(b"location", b"w.bin") + b"location")
    uploads.keep_used([])
