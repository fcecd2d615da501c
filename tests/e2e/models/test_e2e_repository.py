"""A folder as Triton lays it out, served, inspected and refused."""

from __future__ import annotations

import json
from pathlib import Path

import graphs
import numpy as np
import pytest
from conftest import Serve
from graphs import tensor
from harness import run
from onnx import TensorProto, helper
from web import Http, get, infer

from lumen_uring import Client
from lumen_uring.settings.without import CURE

pytestmark = pytest.mark.once  # what reads folders: the same on both backends

CONFIG = 'max_batch_size: 8 input { name: "x" data_type: %s dims: 16 }'


def repository(folder: Path, datatype: str) -> Path:
    """Two versions of `double`, and `echo` without a configuration."""
    for place in ("double/1", "double/3", "echo/1"):
        (folder / place).mkdir(parents=True)
    for version in (1, 3):
        graphs.double(folder / f"double/{version}/model.onnx")
    graphs.echo(folder / "echo/1/model.onnx")
    (folder / "double/config.pbtxt").write_text(CONFIG % datatype)
    return folder


def test_a_repository_is_served(serve: Serve, tmp_path: Path) -> None:
    folder = repository(tmp_path, "TYPE_FP32")
    server = serve({"repository": {"paths": [str(folder)]}})
    with Http(server.port) as http:
        assert http.query(get("/v2/models/double")).json()["name"] == "double"
        assert http.query(get("/v2/models/double/config")).json()["max_batch_size"] == 8
        assert http.query(get("/v2/models/echo")).code == 200


def test_clients_are_told_what_the_file_says(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "net/1").mkdir(parents=True)
    graphs.double(tmp_path / "net/1/net.onnx")
    (tmp_path / "net/names.txt").write_text("\n".join(map(str, range(16))))
    (tmp_path / "net/config.pbtxt").write_text(
        'max_batch_size: 8 default_model_filename: "net.onnx" '
        'input { name: "x" data_type: TYPE_FP32 dims: 16 format: FORMAT_NHWC } '
        'output { name: "y" data_type: TYPE_FP32 dims: 16 label_filename: "names.txt" }'
    )
    server = serve({"repository": {"paths": [str(tmp_path)]}})
    with Http(server.port) as http:
        config = http.query(get("/v2/models/net/config")).json()
    assert config["input"][0]["format"] == "FORMAT_NHWC"
    assert config["output"][0]["label_filename"] == "names.txt"
    assert config["default_model_filename"] == "net.onnx"


@pytest.mark.parametrize("rows", [0, 8])
def test_a_reshape(serve: Serve, tmp_path: Path, rows: int) -> None:
    """Clients say and see the declared shape, also where the graph has rows and the file none."""
    (tmp_path / "net/1").mkdir(parents=True)
    # As many exporters, it says that the output has one row, whatever the input has.
    value, out = tensor("x", TensorProto.FLOAT, ["n", 16]), tensor("y", TensorProto.FLOAT, [1, 16])
    add = helper.make_node("Add", ["x", "x"], ["y"])
    graphs.save(tmp_path / "net/1/model.onnx", [add], [value], [out])
    first = "" if rows else "1, "
    (tmp_path / "net/config.pbtxt").write_text(
        f"max_batch_size: {rows} "
        f'input {{ name: "x" data_type: TYPE_FP32 dims: [4, 4] reshape {{ shape: [{first}16] }} }} '
        f'output {{ name: "y" data_type: TYPE_FP32 dims: [2, 8] reshape {{ shape: [{first}16] }} }}'
    )
    server = serve({"repository": {"paths": [str(tmp_path)]}})
    front = (2,) if rows else ()
    x = np.arange(16 * (2 if rows else 1), dtype=np.float32).reshape(*front, 4, 4)
    classes = {"name": "y", "parameters": {"classification": 2, "binary_data": True}}
    with Http(server.port) as http:
        found = http.query(get("/v2/models/net")).json()
        shapes = [one["shape"] for one in (*found["inputs"], *found["outputs"])]
        assert shapes == [[-1] * len(front) + dims for dims in ([4, 4], [2, 8])]
        config = http.query(get("/v2/models/net/config")).json()
        assert config["max_batch_size"] == rows
        assert [config[key][0]["dims"] for key in ("input", "output")] == [[4, 4], [2, 8]]
        for binary, nested in ((True, False), (False, False), (False, True)):
            answer = http.query(infer("net", {"x": x}, binary=binary, nested=nested))
            assert answer.outputs["y"].shape == (*front, 2, 8)
            np.testing.assert_array_equal(answer.array("y").ravel(), (x + x).ravel())
        found = http.query(infer("net", {"x": x}, outputs=[classes])).outputs["y"]
        assert (found.shape, found.data[0]) == ((*front, 2), b"30.000000:15")
        refused = http.query(infer("net", {"x": x.reshape(-1, 16)}))
        assert refused.code == 400
        assert f"expected {'[-1,4,4]' if rows else '[4,4]'}, found [" in refused.error
    with Client(port=server.port) as native:  # the graph's
        found = native.infer("net", {"x": x.reshape(-1, 16)}).outputs["y"]
        np.testing.assert_array_equal(found, (x + x).reshape(-1, 16))


@pytest.mark.parametrize("columns", ["n", 15])
def test_a_reshape_that_does_not_fit(cache: Path, tmp_path: Path, columns: int | str) -> None:
    (tmp_path / "net/1").mkdir(parents=True)
    x, y = (tensor(name, TensorProto.FLOAT, [1, columns]) for name in "xy")
    node = helper.make_node("Identity", ["x"], ["y"])
    graphs.save(tmp_path / "net/1/model.onnx", [node], [x], [y])
    (tmp_path / "net/config.pbtxt").write_text(
        'input { name: "x" data_type: TYPE_FP32 dims: [16] reshape { shape: [1, 16] } }'
    )
    refused = run([str(tmp_path), "--port", "0"], cache)
    assert refused.returncode == 1
    assert "reshape of 'x': expected fixed dimensions" in refused.stderr


def test_a_repository_is_inspected(cache: Path, tmp_path: Path) -> None:
    folder = repository(tmp_path, "TYPE_FP32")
    shown = run(["inspect", str(folder)], cache)
    assert shown.returncode == 0, shown.stderr
    assert "model double: can be served" in shown.stdout
    assert "n is 1 to 8 in a request" in shown.stdout
    assert f"Serve them: lumen {folder}" in shown.stdout
    assert "model echo: can be served" in run(["doctor", str(folder)], cache).stdout


def test_a_model_whose_files_are_refused_is_shown_beside_the_others(
    cache: Path, tmp_path: Path
) -> None:
    folder = repository(tmp_path, "TYPE_FP32")
    (folder / "other/1").mkdir(parents=True)
    (folder / "other/1/model.onnx").touch()
    (folder / "other/config.pbtxt").write_text('platform: "pytorch_libtorch"')
    for command in "inspect", "doctor":
        shown = run([command, str(folder)], cache)
        assert shown.returncode == 1, command
        assert "model echo: can be served" in shown.stdout, command
        assert "other/config.pbtxt:1 platform: expected" in shown.stdout, command


def test_a_configuration_that_contradicts_its_graph(cache: Path, tmp_path: Path) -> None:
    folder = repository(tmp_path, "TYPE_INT64")
    says = f"{folder}/double/config.pbtxt:1 input 'x': expected FP32 as in the graph, found INT64"
    shown = run(["inspect", str(folder), "--json"], cache)
    assert shown.returncode == 1
    reasons = {model["name"]: model.get("reason") for model in json.loads(shown.stdout)["models"]}
    assert reasons == {"double": says, "echo": None}
    refused = run([str(folder), "--port", "0"], cache)
    assert (refused.returncode, refused.stderr.strip()) == (1, f"lumen: {says}\n{CURE}")


# ---- warm-up requests ----

LOOKED_UP = """
input [{{ name: "at" data_type: TYPE_INT64 dims: [2] }}]
model_warmup [
  {{ name: "good" count: 3 inputs {{
    key: "at" value: {{ data_type: TYPE_INT64 dims: [2] zero_data: true }}
  }} }},
  {{ name: "other" inputs {{ key: "at" value: {{ data_type: {type} dims: [{dim}] {data} }} }} }}
]
"""


def looking_up(folder: Path, kind: str, dim: int, data: str, at: int) -> Path:
    """found = table[at], FP32 [2], of a table of four; its second warm-up request is the test's."""
    model = folder / "table"
    (model / "1").mkdir(parents=True)
    (model / "warmup").mkdir()
    graphs.save(
        model / "1" / "model.onnx",
        [helper.make_node("Gather", ["table", "at"], ["found"])],
        [graphs.tensor("at", graphs.INT64, [2])],
        [graphs.tensor("found", graphs.FLOAT, [2])],
        {"table": np.arange(4, dtype=np.float32)},
    )
    (model / "warmup" / "second").write_bytes(np.array([0, at], "<i8").tobytes())
    text = LOOKED_UP.format(type=kind, dim=dim, data=data)
    (model / "config.pbtxt").write_text(text)
    return folder


FILE = 'input_data_file: "second"'
NAMED = "lumen: model 'table': warm-up request 'other': "


@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize("data", [FILE, "random_data: true"])
def test_warm_up_requests_are_run(serve: Serve, tmp_path: Path, data: str, isolation: str) -> None:
    folder = looking_up(tmp_path / "models", "TYPE_INT64", 2, data, 3)
    path = str(folder / "table")
    server = serve({"models": [{"name": "table", "path": path, "isolation": isolation}]})
    with Http(server.port) as http:
        asked = http.query(infer("table", {"at": np.array([1, 3], "<i8")}))
        assert asked.outputs["found"].data.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("kind", "dim", "data", "at", "said"),
    [
        ("TYPE_INT64", 2, FILE, 9, NAMED + "inference: "),  # no such row: each worker says so
        ("TYPE_INT64", 3, FILE, 0, "warm-up request 'other': input 'at': expected a shape"),
        ("TYPE_INT32", 2, FILE, 0, "expected INT64 as in the graph, found INT32"),
    ],
)
def test_a_warm_up_request_that_fails_refuses_its_model(
    cache: Path, tmp_path: Path, kind: str, dim: int, data: str, at: int, said: str
) -> None:
    folder = looking_up(tmp_path / "models", kind, dim, data, at)
    refused = run([str(folder), "--port", "0"], cache)
    assert refused.returncode == 1
    assert said in refused.stderr, refused.stderr


def test_a_warm_up_request_of_strings(cache: Path, tmp_path: Path) -> None:
    """Written in a model's entry, with a file that is beside the settings."""
    words = tensor("x", TensorProto.STRING, ["n"]), tensor("y", TensorProto.STRING, ["n"])
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    path = graphs.save(tmp_path / "words.onnx", nodes, [words[0]], [words[1]])
    file = tmp_path / "words.bin"
    for content, good in ((b"\2\0\0\0ab\0\0\0\0", True), (b"\2\0\0\0ab", False)):
        file.write_bytes(content)
        inputs = {"x": {"shape": [2], "data": "words.bin"}}
        entry = {"name": "words", "path": str(path), "warmup": [{"inputs": inputs}]}
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps({"models": [entry]}))
        checked = run(["--config", str(config), "--check"], cache)
        assert (checked.returncode == 0) == good, checked.stderr
        if not good:
            assert "expected a file of at least 8 bytes (each string behind" in checked.stderr
    file.unlink()
    checked = run(["--config", str(config)], cache)
    place = "lumen: model 'words': warmup.0.inputs.x: expected zeros, random or a file, found "
    assert checked.stderr.startswith(place), checked.stderr


@pytest.mark.parametrize("data", ["random", "zeros"])
def test_a_warm_up_request_of_every_type(cache: Path, tmp_path: Path, data: str) -> None:
    path = graphs.dtypes(tmp_path / "dtypes.onnx")
    inputs = {f"in_{name}": {"shape": [2, 3], "data": data} for name, *_ in graphs.DTYPES}
    for given, said in (
        (inputs, ""),
        ({**inputs, "in_BOOL": {"shape": [2, 4]}}, "expected a shape of sizes above 0 that is"),
        ({name: inputs[name] for name in list(inputs)[1:]}, "expected all inputs, found none for"),
        ({**inputs, "gone": inputs["in_BOOL"]}, "expected an input of the model, once, found"),
    ):
        config = tmp_path / "config.yaml"
        entry = {"name": "m", "path": str(path), "warmup": [{"name": "all", "inputs": given}]}
        config.write_text(json.dumps({"models": [entry]}))
        checked = run(["--config", str(config), "--check"], cache)
        assert checked.returncode == bool(said), checked.stderr
        assert said in checked.stderr
