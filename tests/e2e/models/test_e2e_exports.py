"""Graphs as exporters write them: dimensions without names, outputs that are not as declared, and
outputs whose size only the Run tells, small and large. Each is served with no setting.

`make models` finds such things in the trained models of packages; here they are small.
"""

from __future__ import annotations

import concurrent.futures
import re
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
from lumen_uring.errors import BadRequest, InferenceFailed

pytestmark = pytest.mark.once  # what runs models is the same on both backends

Arrays = dict[str, np.ndarray]


def unnamed(path: Path) -> Path:
    """x FP32 [?, 3, ?, ?] -> -x, and its means over the pictures, as PaddlePaddle names them."""
    picture = ["?", 3, "?", "?"]
    return graphs.save(
        path,
        [
            helper.make_node("Neg", ["x"], ["minus"]),
            helper.make_node("ReduceMean", ["x"], ["means"], axes=[2, 3], keepdims=0),
        ],
        [tensor("x", FLOAT, picture)],
        [tensor("minus", FLOAT, picture), tensor("means", FLOAT, ["?", 3])],
    )


def wrong(path: Path) -> Path:
    """x FP32 [batch, 4] -> its 4 columns' sums, though one for each row is declared."""
    return graphs.save(
        path,
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
        [tensor("x", FLOAT, ["batch", 4])],
        [tensor("y", FLOAT, ["batch"])],
        {"axes": np.array([0], np.int64)},
    )


def picky(path: Path) -> Path:
    """The same, and it fails on what a trial sends: x is no longer than the 5 of a table."""
    return graphs.save(
        path,
        [
            helper.make_node("ReduceSum", ["x", "axes"], ["sums"], keepdims=0),
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Gather", ["shape", "zero"], ["rows"]),
            helper.make_node("Gather", ["table", "rows"], ["one"]),
            helper.make_node("Mul", ["sums", "one"], ["y"]),
        ],
        [tensor("x", FLOAT, ["length", 4])],
        [tensor("y", FLOAT, ["length"])],
        {
            "axes": np.array([0], np.int64),
            "zero": np.array(0, np.int64),
            "table": np.array([0, 0, 0, 0, 0, 1], np.float32),  # 1 row and 2 are among them
        },
    )


def rounded(path: Path) -> Path:
    """x FP32 [1, length] -> as many ones, rounded up to the next four: as in a network that halves
    its input. A trial on powers of two sees as many as there are elements."""
    return graphs.save(
        path,
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Gather", ["shape", "one"], ["length"]),
            helper.make_node("Add", ["length", "three"], ["more"]),
            helper.make_node("Div", ["more", "four"], ["fours"]),
            helper.make_node("Mul", ["fours", "four"], ["size"]),
            helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            helper.make_node("Add", ["zeros", "sum"], ["y"]),
        ],
        [tensor("x", FLOAT, [1, "length"])],
        [tensor("y", FLOAT, ["other"])],
        {name: np.array([n], np.int64) for name, n in (("one", 1), ("three", 3), ("four", 4))},
    )


def counted(path: Path) -> Path:
    """n INT64 [1] -> that many FP32 numbers from 0 on, and as many strings."""
    return graphs.save(
        path,
        [
            helper.make_node("Squeeze", ["n"], ["many"]),
            helper.make_node("Range", ["zero", "many", "one"], ["whole"]),
            helper.make_node("Cast", ["whole"], ["numbers"], to=FLOAT),
            helper.make_node("Mod", ["whole", "hundred"], ["short"]),
            helper.make_node("Cast", ["short"], ["words"], to=TensorProto.STRING),
        ],
        [tensor("n", INT64, [1])],
        [tensor("numbers", FLOAT, ["?"]), tensor("words", TensorProto.STRING, ["?"])],
        {
            "zero": np.array(0, np.int64),
            "one": np.array(1, np.int64),
            "hundred": np.array(100, np.int64),
        },
    )


def atoms(path: Path) -> Path:
    """atoms FP32 [atoms, 4] and edges INT64 [2, edges] -> the sums of both ends of each edge."""
    return graphs.save(
        path,
        [
            helper.make_node("Gather", ["edges", "zero"], ["from"]),
            helper.make_node("Gather", ["edges", "one"], ["to"]),
            helper.make_node("Gather", ["atoms", "from"], ["a"]),
            helper.make_node("Gather", ["atoms", "to"], ["b"]),
            helper.make_node("Add", ["a", "b"], ["sums"]),
        ],
        [tensor("atoms", FLOAT, ["atoms", 4]), tensor("edges", INT64, [2, "edges"])],
        [tensor("sums", FLOAT, ["edges", 4])],
        {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)},
    )


MODELS = {
    "unnamed": unnamed,
    "wrong": wrong,
    "picky": picky,
    "rounded": rounded,
    "counted": counted,
    "atoms": atoms,
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exports")
    return {name: make(folder / f"{name}.onnx") for name, make in MODELS.items()}


@pytest.fixture(scope="module")
def _served(paths: dict[str, Path], cache: Path) -> Iterator[Server]:
    models = [{"name": name, "path": str(path)} for name, path in paths.items()]
    with Server({"engine": {"thread_count": 2}, "models": models}, cache) as server:
        yield server


@pytest.fixture
def served(_served: Server) -> Iterator[Server]:
    """A server with all of them, idle before and after the test."""
    yield _served
    _served.check_idle()


def same(found: Arrays, expected: Arrays) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def ask_all(server: Server, model: str, path: Path, inputs: Arrays) -> None:
    """The Client, JSON and binary, against ONNX Runtime."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    expected: Arrays = dict(zip(names, session.run(names, inputs), strict=True))
    with Client("127.0.0.1", server.port) as client:
        same(dict(client.infer(model, inputs).outputs), expected)
    with Http(server.port) as http:
        for binary in (False, True):
            answer = http.query(web.infer(model, inputs, binary=binary))
            assert answer.code == 200, answer.error
            same({name: as_numpy(one) for name, one in answer.outputs.items()}, expected)


def as_numpy(one: web.Tensor) -> np.ndarray:
    if isinstance(one.data, np.ndarray):
        return one.array
    return np.array([text.decode() for text in one.data], object).reshape(one.shape)


def pictures(*shape: int) -> Arrays:
    return {"x": np.random.default_rng(7).standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize("shape", [(1, 3, 48, 192), (6, 3, 5, 2), (2, 3, 1, 1)])
def test_dimensions_called_by_a_question_mark(
    served: Server, paths: dict[str, Path], shape: tuple[int, ...]
) -> None:
    """PaddlePaddle calls every unknown dimension "?": each is one of its own."""
    ask_all(served, "unnamed", paths["unnamed"], pictures(*shape))


def test_keys_of_dimensions_without_a_name(paths: dict[str, Path], cache: Path) -> None:
    model = {"name": "m", "path": str(paths["unnamed"]), "max_dims": {"x[2]": 4, "x[3]": 9}}
    with Server({"models": [model]}, cache) as server, Client("127.0.0.1", server.port) as client:
        client.infer("m", pictures(2, 3, 4, 9))
        with pytest.raises(BadRequest, match=r"dimension 'x\[2\]': expected 0 to 4"):
            client.infer("m", pictures(2, 3, 5, 9))
        with pytest.raises(BadRequest, match=r"dimension 'x\[3\]': expected 0 to 9"):
            client.infer("m", pictures(2, 3, 4, 10))
    said = harness.run([str(paths["unnamed"]), "--set", "models.0.fix_dims={'x[2]': 4}"], cache)
    assert "'x[2]' can be fixed by a name that an .onnx file gives it, found none" in said.stderr


@pytest.mark.parametrize("model", ["wrong", "picky"])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_wrongly_declared_output(
    served: Server, paths: dict[str, Path], model: str, rows: int
) -> None:
    if model == "picky" and rows == 1:
        rows = 4
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    for _ in range(3):
        ask_all(served, model, paths[model], {"x": x})


@pytest.mark.parametrize("length", [4, 5, 7, 8, 1])
def test_a_shape_that_only_some_sizes_have(
    served: Server, paths: dict[str, Path], length: int
) -> None:
    """The trial's verdict is wrong for odd lengths: what a Run makes counts."""
    ask_all(served, "rounded", paths["rounded"], {"x": np.ones((1, length), np.float32)})


@pytest.mark.parametrize("count", [0, 1, 1000, 100_000, 1_000_000])
def test_outputs_of_any_size(served: Server, paths: dict[str, Path], count: int) -> None:
    """1,000,000 are 4 MB of numbers, 6 of strings, and 16 MB of JSON."""
    ask_all(served, "counted", paths["counted"], {"n": np.array([count], np.int64)})


def test_many_large_answers_at_once(served: Server) -> None:
    def ask(count: int) -> None:
        with Client("127.0.0.1", served.port) as client:
            for _ in range(2):
                found = client.infer("counted", {"n": np.array([count], np.int64)}).outputs
                assert np.array_equal(found["numbers"], np.arange(count, dtype=np.float32))

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, [200_000 + 25_000 * i for i in range(6)]))


def test_a_bound_of_all_large_answers(paths: dict[str, Path], cache: Path) -> None:
    settings: dict[str, object] = {
        "server": {"spill_bytes": "16MiB"},
        "models": [{"name": "m", "path": str(paths["counted"])}],
    }
    with Server(settings, cache) as server, Client("127.0.0.1", server.port) as client:
        for _ in range(6):  # what one has taken is there for the next
            found = client.infer("m", {"n": np.array([300_000], np.int64)}).outputs
            assert found["numbers"].shape == (300_000,)
        with pytest.raises(InferenceFailed, match=r"server\.spill_bytes allows 16777216: raise"):
            client.infer("m", {"n": np.array([3_000_000], np.int64)})
        assert client.infer("m", {"n": np.array([3], np.int64)}).outputs["numbers"].shape == (3,)


def sizes(server: Server, model: str) -> dict[str, int]:
    with Client("127.0.0.1", server.port) as client:
        entry = next(m for m in client.describe()["models"] if m["name"] == model)
    return {dim["name"]: dim["max"] for dim in entry["free_dims"]}


def test_no_setting_shrinks_another(paths: dict[str, Path], cache: Path) -> None:
    """max_output_bytes bounds answers, not the sizes of requests."""
    models: list[dict[str, Any]] = [
        {"name": name, "path": str(paths["rounded"])} for name in ("a", "b")
    ]
    models[1]["max_output_bytes"] = "512MiB"
    with Server({"models": models}, cache) as server:
        assert sizes(server, "a") == sizes(server, "b")


def test_a_bound_of_one_models_answers(paths: dict[str, Path], cache: Path) -> None:
    model = {"name": "m", "path": str(paths["counted"]), "max_output_bytes": "3MiB"}
    with Server({"models": [model]}, cache) as server, Client("127.0.0.1", server.port) as client:
        client.infer("m", {"n": np.array([250_000], np.int64)})
        with pytest.raises(InferenceFailed, match="raise max_output_bytes of model 'm'"):
            client.infer("m", {"n": np.array([800_000], np.int64)})


def test_atoms_are_no_rows(served: Server, paths: dict[str, Path], cache: Path) -> None:
    """A first dimension that not all inputs have is a free dimension like any other."""
    count = 500
    edges = np.random.default_rng(1).integers(0, count, (2, 700))
    given = np.random.default_rng(2).standard_normal((count, 4)).astype(np.float32)
    ask_all(served, "atoms", paths["atoms"], {"atoms": given, "edges": edges})
    assert sorted(sizes(served, "atoms")) == ["atoms", "edges"]
    said = harness.run(["inspect", str(paths["atoms"])], cache).stdout
    assert re.search(r"input +atoms FP32\[atoms,4\]", said), said
    assert re.search(r"rows +1: the first dimension is not the same in all inputs", said), said


def test_a_row_larger_than_the_usual_limits(tmp_path: Path, cache: Path) -> None:
    """Limits that nobody sets follow from the model: 12 MB a row, where 8 MiB is usual."""
    path = graphs.double(tmp_path / "large.onnx", 3_000_000, rows=1)
    x = np.random.default_rng(3).standard_normal((1, 3_000_000)).astype(np.float32)
    with Server({"models": [{"name": "m", "path": str(path)}]}, cache) as server:
        assert "server.max_request_bytes is 33554432" in server.output
        with Client("127.0.0.1", server.port) as client:
            assert np.array_equal(client.infer("m", {"x": x}).outputs["y"], x + x)
        with Http(server.port) as http:
            assert np.array_equal(http.query(web.infer("m", {"x": x})).array("y"), x + x)
    limits: dict[str, object] = {"max_request_bytes": "8MiB", "arena_bytes": "256MiB"}
    said = harness.run(
        [str(path), *(f"--set=server.{key}={value}" for key, value in limits.items())], cache
    )
    assert "server.max_request_bytes: expected at least 12000000 for one row" in said.stderr


def test_a_large_model_that_comes_later(tmp_path: Path, cache: Path) -> None:
    """With the defaults there is room for 24 MB of outputs beside models of the start."""
    constants = {"ones": np.ones((1, 6_000_000), np.float32)}
    for name in ("small", "large"):
        (tmp_path / name / "1").mkdir(parents=True)
    graphs.double(tmp_path / "small/1/model.onnx")
    graphs.save(
        tmp_path / "large/1/model.onnx",
        [helper.make_node("Mul", ["x", "ones"], ["y"])],
        [tensor("x", FLOAT, [1, 1])],
        [tensor("y", FLOAT, [1, 6_000_000])],
        constants,
    )
    repository = {"paths": [str(tmp_path)], "control": "explicit", "load": ["small"]}
    with Server({"repository": repository}, cache) as server:
        with Http(server.port) as http:
            answer = http.query(web.post("/v2/repository/models/large/load"))
            assert answer.code == 200, answer.error
        with Client("127.0.0.1", server.port) as client:
            found = client.infer("large", {"x": np.array([[3]], np.float32)}).outputs["y"]
        assert found.shape == (1, 6_000_000)
        assert np.all(found == 3)


def positions(path: Path, count: int) -> Path:
    """x FP32 [1, columns] -> x and the first so many of a table of positions, as encoders have
    them: longer inputs fail, and there are none."""
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Slice", ["all", "one", "two"], ["columns"]),
        helper.make_node("Slice", ["table", "zero", "columns"], ["first"]),
        helper.make_node("Add", ["x", "first"], ["y"]),
    ]
    constants = {
        "table": np.arange(count, dtype=np.float32),
        **{name: np.array([n], np.int64) for n, name in enumerate(("zero", "one", "two"))},
    }
    columns = [1, "columns"]
    return graphs.save(
        path, nodes, [tensor("x", FLOAT, columns)], [tensor("y", FLOAT, [1, "out"])], constants
    )


def test_a_start_runs_modest_sizes(cache: Path, tmp_path: Path) -> None:
    """A default limit is far longer than what the model takes: what is learnt at the start is
    learnt of shorter inputs, and nobody is told that the model fails."""
    path = positions(tmp_path / "model.onnx", 512)
    with Server({"models": [{"name": "encoder", "path": str(path)}]}, cache) as server:
        assert "fails on an input of zeros" not in server.output
        [described] = server.description["models"]  # type: ignore[misc]
        assert described["free_dims"][0]["max"] > 512
        with Client("127.0.0.1", server.port) as client:
            for columns in (1, 256, 300, 512):
                x = np.ones((1, columns), np.float32)
                found = client.infer("encoder", {"x": x}).outputs["y"]
                np.testing.assert_array_equal(found, x + np.arange(columns, dtype=np.float32))
            with pytest.raises((BadRequest, InferenceFailed)):
                client.infer("encoder", {"x": np.ones((1, 513), np.float32)})
