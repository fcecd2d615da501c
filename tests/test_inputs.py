"""What a person may write behind --input, and what a model's file makes of its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumen_uring import options
from lumen_uring.cli import main
from lumen_uring.errors import BadRequest
from lumen_uring.loading.cures import cure_of
from lumen_uring.predict import inputs
from lumen_uring.predict import tensors as predict_tensors
from lumen_uring.protocol.describe import FreeDim, Model, TensorInfo
from lumen_uring.settings import types as setting_types


def model(*tensors: TensorInfo, free: tuple[FreeDim, ...] = ()) -> Model:
    return Model(0, "m", 512, tensors, (), None, free_dims=free)


ROW = model(TensorInfo("x", "FP32", (-1, 3), True))
PICTURE = model(TensorInfo("image", "FP32", (-1, 1, 2, 2), True))
SCALAR = model(TensorInfo("t", "FP32", (), True))
PAIR = model(TensorInfo("a", "INT64", (-1,), True), TensorInfo("a=b", "BOOL", (-1,), True))
FREE = model(
    TensorInfo("ids", "INT64", (-1, -1), True, ("rows", "length")),
    free=(FreeDim("length", 512),),
)


@pytest.mark.parametrize(
    ("given", "option", "expected"),
    [
        (ROW, "1 2 3", [[1, 2, 3]]),
        (ROW, "x=1,2.5,-3e2", [[1, 2.5, -300]]),
        (ROW, "x=[[1, 2, 3], [4, 5, 6]]", [[1, 2, 3], [4, 5, 6]]),
        (ROW, "1 2 3 4 5 6", [[1, 2, 3], [4, 5, 6]]),
        (ROW, "nan inf -inf", [[np.nan, np.inf, -np.inf]]),
        (ROW, "1 2", [1, 2]),  # the client says what is wrong
        (PICTURE, "0 1 2 3 4 5 6 7", [[[[0, 1], [2, 3]]], [[[4, 5], [6, 7]]]]),
        (PICTURE, "[[[0, 1], [2, 3]]]", [[[[0, 1], [2, 3]]]]),
        (SCALAR, "3.5", 3.5),
        (SCALAR, "t=[3.5]", 3.5),
        (FREE, "7 8 9 10", [[7, 8, 9, 10]]),
    ],
)
def test_values_get_the_shape_of_rows(given: Model, option: str, expected: Any) -> None:
    ((name, value),) = inputs.read(given, [option]).items()
    assert name == given.inputs[0].name
    np.testing.assert_array_equal(value, expected)


def test_a_wrong_name_before_many_values_is_told() -> None:
    """As a file's name the text would be too long even to look for."""
    with pytest.raises(BadRequest, match=r"has the inputs \['x'\], found 'y'\."):
        inputs.read(ROW, ["y=" + " ".join(["0.125"] * 300)])


def test_names_may_hold_an_equals_sign() -> None:
    found = inputs.read(PAIR, ["a=b=true false", "a=[1, 2]"])
    assert found["a"].tolist() == [1, 2]
    assert found["a=b"].tolist() == [True, False]


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a=b.npy"
    np.save(path, np.array([[1, 2, 3]], np.float16))
    value = inputs.read(ROW, [str(path)])["x"]
    assert (value.dtype, value.tolist()) == (np.float16, [[1, 2, 3]])
    (tmp_path / "all.json").write_text('{"a": [1], "a=b": [true]}')
    assert set(inputs.read(PAIR, [str(tmp_path / "all.json")])) == {"a", "a=b"}
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    (tmp_path / "short.npy").write_bytes((tmp_path / "a=b.npy").read_bytes()[:-1])
    with (tmp_path / "claims.npy").open("wb") as file:
        claims = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**6)}
        np.lib.format.write_array_header_1_0(file, claims)
    (tmp_path / "bad.json").write_text("[1,")
    for name, says in (
        ("o.npy", "Object arrays cannot be loaded"),
        ("short.npy", "expected an array as numpy.save writes it"),
        ("claims.npy", "expected an array as numpy.save writes it"),
        ("none.npy", "none.npy: No such file or directory."),
        ("none.json", "none.json: No such file or directory."),
        ("bad.json", "bad.json: expected JSON"),
    ):
        with pytest.raises(BadRequest, match=re.escape(says)):
            inputs.read(ROW, [f"x={tmp_path / name}"])


@pytest.mark.parametrize(
    ("given", "options_", "says"),
    [
        (ROW, ["x=cat.png"], "expected FILE.npy, FILE.json, or numbers such as"),
        (ROW, ["y=1 2 3"], "--input: model 'm' has the inputs ['x'], found 'y'."),
        (ROW, ["1 2 3", "x=1 2 3"], "expected input 'x' once, found it twice."),
        (PAIR, ["1 2"], "has the inputs ['a', 'a=b']: expected NAME=FILE.npy"),
        (ROW, [""], "found ''."),
        (ROW, ["x=" + "z" * 100], "'" + "z" * 57 + "'..."),
        (ROW, ['"1 2 3"'], "expected FILE.npy"),
    ],
)
def test_what_is_no_input_is_told(given: Model, options_: list[str], says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        inputs.read(given, options_)
    assert says in str(caught.value)


def test_sizes_of_free_dimensions() -> None:
    assert inputs.sizes_of(FREE, {"ids": np.zeros((2, 5))}) == {"length": 5}
    assert inputs.sizes_of(ROW, {"x": np.zeros((2, 3))}) == {}


def test_outputs_as_a_person_reads_them() -> None:
    scores = np.array([[0.25, 0.75], [0.5, 0.125]], np.float32)
    lines = predict_tensors._lines(scores, ["cat", ""], 1)
    assert lines == ["row 0: 1 0.75000", "row 1: cat 0.50000"]
    assert predict_tensors._lines(scores, ["other"], 1) == ["[[0.25 , 0.75 ],", " [0.5  , 0.125]]"]
    assert predict_tensors._lines(np.array(3.0), [], 1) == ["3."]


def test_names_made_of_files() -> None:
    assert options._NAME_BYTES_MAX == setting_types.NAME_BYTES_MAX
    for path, name in (
        ("m.onnx", "m"),
        ("/a.b/resnet50-v1.5.ONNX", "resnet50-v1.5"),
        ("x/net.ort", "net"),
        ("Réseau (2).onnx", "R_seau_2_"),
        (".onnx", ".onnx"),
        ("日本.onnx", "_"),
        ("a=b.onnx", "a_b"),
        ("n" * 300 + ".onnx", "n" * 255),
        ("weights", "weights"),
        ("folder/", "model"),
        ("squeezenet/model.onnx", "squeezenet"),
        ("squeezenet/3/model.onnx", "squeezenet"),
        ("/srv/minilm/onnx/model.ONNX", "minilm"),
        ("/srv/minilm/onnx/model_int8.onnx", "model_int8"),
        ("My Models/model.ort", "My_Models"),
        ("/model.onnx", "model"),
        ("./model.onnx", Path.cwd().name),
    ):
        assert options.model_option(path) == f"{name}={path}"
        assert re.fullmatch(setting_types.NAME_PATTERN, name)


@pytest.mark.parametrize(
    ("refusal", "cure"),
    [
        ("it is compressed with zstd: run unzstd first", "unzstd -c d/m.onnx > d/m.plain.onnx"),
        ("it is a tar archive: unpack it first", "tar -xf d/m.onnx"),
        ("(update ONNX Runtime (pip install -U onnxruntime), or", "pip install -U onnxruntime"),
        ("input 'a b': dimension 0 is 0", None),
        (
            "expected at most 6 beside the rows; give one a size with fix_dims",
            "lumen inspect d/m.onnx --set 'models.0.fix_dims={NAME: SIZE}'",
        ),
        ("it is a text, not an ONNX model", None),
    ],
)
def test_cures(refusal: str, cure: str | None) -> None:
    assert cure_of(refusal, "d/m.onnx") == cure


def test_two_files_of_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a/m.onnx", "b/m.onnx"]) == 2
    assert "models.1.name: expected a name of its own, found 'm'" in capsys.readouterr().err
