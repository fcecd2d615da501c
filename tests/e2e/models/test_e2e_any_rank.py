"""Inputs without a shape in the graph: any shape over every lane, against ONNX Runtime."""

from __future__ import annotations

import asyncio
import json
import math
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
import wire
from graphs import FLOAT, INT64, tensor
from harness import Server
from onnx import TensorProto, helper
from web import Http

from lumen_uring import AsyncClient, Client
from lumen_uring.errors import BadRequest, InferenceFailed

pytestmark = pytest.mark.once  # what runs models is the same on both backends

SHAPES = 1000
MOST = 4096  # elements of x
Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]


def one(path: Path) -> Path:
    """x FP32 of any shape -> its hyperbolic tangents."""
    x, y = (tensor(name, FLOAT, None) for name in "xy")
    return graphs.save(path, [helper.make_node("Tanh", ["x"], ["y"])], [x], [y])


def three(path: Path) -> Path:
    """a INT64 and b FP32 of any shape, k FP32 [2] -> -a, b's shape, 2 k, and b as one row."""
    return graphs.save(
        path,
        [
            helper.make_node("Neg", ["a"], ["minus"]),
            helper.make_node("Shape", ["b"], ["shape"]),
            helper.make_node("Add", ["k", "k"], ["double"]),
            helper.make_node("Flatten", ["b"], ["row"], axis=0),
        ],
        [tensor("a", INT64, None), tensor("k", FLOAT, [2]), tensor("b", FLOAT, None)],
        [
            tensor("minus", INT64, None),
            tensor("shape", INT64, ["rank"]),
            tensor("double", FLOAT, [2]),
            tensor("row", FLOAT, [1, "elements"]),
        ],
    )


def product(path: Path) -> Path:
    """x FP32 of any shape that ends in 3 -> its product with a matrix of 3 rows. No list of other
    lengths can be run, and one number cannot."""
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    x, y = tensor("x", FLOAT, None), tensor("y", FLOAT, [1, 2])  # which is wrong for most
    return graphs.save(
        path, [helper.make_node("MatMul", ["x", "m"], ["y"])], [x], [y], {"m": matrix}
    )


def strings(path: Path) -> Path:
    """x BYTES of any shape -> the same."""
    x, y = (tensor(name, TensorProto.STRING, None) for name in "xy")
    return graphs.save(path, [helper.make_node("Identity", ["x"], ["y"])], [x], [y])


MODELS = {"one": one, "three": three, "product": product, "strings": strings}


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    folder = tmp_path_factory.mktemp("any")
    paths = {name: make(folder / f"{name}.onnx") for name, make in MODELS.items()}
    return {
        name: (path, ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]))
        for name, path in paths.items()
    }


@pytest.fixture(scope="module")
def _served(sessions: dict[str, tuple[Path, Any]], cache: Path) -> Iterator[Server]:
    models = [{"name": name, "path": str(path)} for name, (path, _) in sessions.items()]
    models[0]["max_dims"] = {"x[...]": MOST}  # type: ignore[assignment]
    with Server({"engine": {"thread_count": 2}, "models": models}, cache) as server:
        yield server


@pytest.fixture
def served(_served: Server) -> Iterator[Server]:
    """A server with all of them, idle before and after the test."""
    yield _served
    _served.check_idle()


@pytest.fixture
def expected(sessions: dict[str, tuple[Path, Any]]) -> Any:
    """What ONNX Runtime itself says."""

    def run(model: str, inputs: Arrays) -> Arrays:
        session = sessions[model][1]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))

    return run


def same(found: Any, expected: Arrays) -> None:
    """Equal in shape and to the bit."""
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape, name
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


def random_shape(random: np.random.Generator, ranks: int, most: int = 60) -> Shape:
    """Of 0 to so many dimensions, and at most so many elements."""
    shape: list[int] = []
    for _ in range(int(random.integers(0, ranks + 1))):
        room = most // math.prod(shape)
        shape.append(int(random.integers(1, min(room, 9) + 1)))
    return tuple(random.permutation(shape)) if shape else ()


def native(server: Server, model: str, inputs: Arrays, block: bytes | None = None) -> bytes:
    """A request with the shapes of its arrays, or with another shape block."""
    shapes = wire.shape_block([array.shape for array in inputs.values()])
    data = b"".join(array.tobytes() for array in inputs.values())
    payload = (shapes if block is None else block) + data
    return wire.frame(payload, model=server.models[model], flags=wire.SHAPES, id=3)


def predict(model: str, body: Any) -> bytes:
    return web.post(f"/v1/models/{model}:predict", json.dumps(body).encode())


# ---- answers ----


def test_a_thousand_random_shapes_over_every_lane(served: Server, expected: Any) -> None:
    random = np.random.default_rng(1)
    ranks = set()
    with served.connect() as connection, Http(served.port) as http:
        for _ in range(SHAPES):
            shape = random_shape(random, 6)
            inputs = {"x": random.standard_normal(shape, np.float32).reshape(shape)}
            answers = expected("one", inputs)
            ranks.add(len(shape))
            reply = connection.ask(native(served, "one", inputs))
            assert reply.status == wire.OK, (shape, reply)
            assert wire.split_shapes(reply.payload) == ([shape], answers["y"].tobytes())
            for binary in (True, False):
                answer = http.query(web.infer("one", inputs, binary=binary))
                assert answer.code == 200, (shape, answer)
                same({name: output.array for name, output in answer.outputs.items()}, answers)
            whole = http.query(predict("one", {"inputs": {"x": inputs["x"].tolist()}}))
            assert whole.code == 200, (shape, whole)
            same({"y": np.array(whole.json()["outputs"], np.float32)}, answers)
            if not shape:
                continue  # rows have a dimension
            rows = http.query(predict("one", {"instances": inputs["x"].tolist()}))
            same({"y": np.array(rows.json()["predictions"], np.float32)}, answers)
    assert ranks == set(range(7))


def test_two_inputs_of_any_rank(served: Server, expected: Any) -> None:
    """Each has half of the dimensions, whatever the other one has."""
    random = np.random.default_rng(2)

    async def ask(inputs: Arrays) -> Any:
        async with AsyncClient("127.0.0.1", served.port) as client:
            return (await client.infer("three", inputs)).outputs

    with Client("127.0.0.1", served.port) as client, Http(served.port) as http:
        for turn in range(60):
            inputs = {
                "a": random.integers(-9, 9, random_shape(random, 4)),
                "k": random.standard_normal(2, np.float32),
                "b": np.asarray(random.standard_normal(random_shape(random, 4)), np.float32),
            }
            answers = expected("three", inputs)
            same(client.infer("three", inputs).outputs, answers)
            if turn < 5:
                same(asyncio.run(ask(inputs)), answers)
            turned = dict(sorted(inputs.items())[:: 1 - 2 * (turn % 2)])
            for binary in (True, False):
                answer = http.query(web.infer("three", turned, binary=binary))
                same({name: output.array for name, output in answer.outputs.items()}, answers)


def test_shapes_that_a_model_refuses_and_takes(served: Server, expected: Any) -> None:
    """Nothing was learnt at start, where lists fail; a request that fails harms no other."""
    with Client("127.0.0.1", served.port) as client:
        for shape in ((3,), (1, 3), (5, 3), (2, 4, 3), (2, 1, 1, 1, 1, 2, 3)):
            inputs = {"x": np.ones(shape, np.float32)}
            same(client.infer("product", inputs).outputs, expected("product", inputs))
            with pytest.raises(InferenceFailed, match="dimension mismatch"):
                client.infer("product", {"x": np.ones((*shape, 2), np.float32)})


def test_strings_of_any_shape(served: Server) -> None:
    random = np.random.default_rng(4)
    with Client("127.0.0.1", served.port) as client, Http(served.port) as http:
        for _ in range(30):
            texts = np.array(random.integers(0, 10**6, random_shape(random, 6)).astype(str), object)
            assert client.infer("strings", {"x": texts}).outputs["y"].tolist() == texts.tolist()
            answer = http.query(predict("strings", {"inputs": {"x": texts.tolist()}}))
            assert answer.json() == {"outputs": texts.tolist()}


def test_the_most_elements(served: Server, expected: Any) -> None:
    """As many as the setting allows, of any shape; by default the output has room for as many."""
    random = np.random.default_rng(5)
    (entry,) = [entry for entry in entries(served) if entry["name"] == "three"]
    most = {dim["name"]: dim["max"] for dim in entry["free_dims"]}["b[...]"]
    large = {
        "one": {"x": random.standard_normal((2, 1, MOST // 4, 2), np.float32)},
        "three": {
            "a": np.array(7),
            "k": np.ones(2, np.float32),
            "b": np.zeros((most // 128, 128), np.float32),
        },
    }
    with Client("127.0.0.1", served.port) as client, Http(served.port) as http:
        for model, inputs in large.items():
            answers = expected(model, inputs)
            same(client.infer(model, inputs).outputs, answers)
            for binary in (True, False)[: 1 + (model == "one")]:
                answer = http.query(web.infer(model, inputs, binary=binary))
                same({name: output.array for name, output in answer.outputs.items()}, answers)


def test_tables(served: Server) -> None:
    """A table's shape is its rows and columns."""
    split = {"columns": ["p", "q"], "data": [[0, 0.5], [1, 2], [3, 4]]}
    records = [{"p": 0, "q": 0.5}, {"p": 1, "q": 2}, {"p": 3, "q": 4}]
    with Http(served.port) as http:
        answers = [
            http.query(web.post("/invocations?model=one", json.dumps(body).encode())).json()
            for body in ({"dataframe_split": split}, {"dataframe_records": records})
        ]
    tanh = np.tanh(np.array(split["data"], np.float32))
    for answer in answers:
        assert np.allclose(answer["predictions"], tanh)


def test_a_request_in_pieces_of_any_size(served: Server, expected: Any) -> None:
    """The length of the shape block is known only when its ranks are."""
    inputs = {
        "a": np.arange(6).reshape(1, 2, 3),
        "k": np.ones(2, np.float32),
        "b": np.array(2, np.float32),
    }
    answers = expected("three", inputs)
    request = native(served, "three", inputs)
    with served.connect() as connection:
        for cut in range(32, 32 + 4 * 9):
            end = served.figures().io["bytes_in"] + cut
            connection.send(request[:cut])
            harness.eventually(
                lambda end=end: served.figures().io["bytes_in"] >= end, "the server reads the piece"
            )
            connection.send(request[cut:])
            shapes, data = wire.split_shapes(connection.reply().payload)
            assert shapes == [array.shape for array in answers.values()], cut
            assert data == b"".join(array.tobytes() for array in answers.values()), cut


# ---- what a server says of such a model ----


def entries(server: Server) -> list[dict[str, Any]]:
    return server.description["models"]  # type: ignore[return-value]


def test_describe_and_metadata(served: Server) -> None:
    first, second = entries(served)[:2]
    any_shape = {"datatype": "FP32", "shape": [-1]}
    assert first["inputs"] == [{"name": "x", **any_shape, "dims": ["x[...]"], "max_rank": 8}]
    assert first["free_dims"] == [{"name": "x[...]", "max": MOST, "default": False}]
    assert first["max_rows"] == 1
    assert [entry.get("max_rank") for entry in second["inputs"]] == [4, None, 4]
    assert [dim["name"] for dim in second["free_dims"]] == ["a[...]", "b[...]"]
    with Http(served.port) as http:
        metadata = http.query(web.get("/v2/models/one")).json()
        assert http.query(web.get("/v2/models/one/config")).json()["max_batch_size"] == 0
    assert metadata["inputs"] == [{"name": "x", **any_shape}]
    assert metadata["outputs"] == [{"name": "y", **any_shape}]


def test_the_banner_and_inspect(
    served: Server, sessions: dict[str, tuple[Path, Any]], cache: Path
) -> None:
    (line,) = [line for line in served.output.splitlines() if line.startswith("  sizes    one:")]
    assert line.startswith("  sizes    one: x[...] 1..4096 elements in at most 8 dimensions; ")
    done = harness.run(["inspect", str(sessions["three"][0])], cache)
    assert "  input    b FP32[...]\n" in done.stdout
    assert re.search(r"b\[...] 1\.\.\d+ elements in at most 4 dimensions \(default\)", done.stdout)


# ---- what is refused ----

WRONG: dict[str, tuple[Shape, str]] = {
    "nine": ((1,) * 9, "8"),
    "none": ((2, 0, 3), "1"),
    "many": ((MOST + 1,), str(MOST)),
    "product": ((64, 65), str(MOST)),
    "overflow": ((2**32 - 1,) * 8, str(MOST)),
    "wraps": ((2**16,) * 4, str(MOST)),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("lane", ["native", "binary", "json"])
def test_shapes_beyond_the_maximum(served: Server, case: str, lane: str) -> None:
    shape, most = WRONG[case]
    good = {"x": np.ones((1, 2), np.float32)}
    if lane == "native":
        with served.connect() as connection:
            reply = connection.ask(native(served, "one", good, wire.shape_block([shape])))
            assert reply.status == wire.BAD_REQUEST, reply
            assert connection.ask(native(served, "one", good)).status == wire.OK
        said = reply.text
    else:
        source = {"data": [1, 2]} if lane == "json" else {"parameters": {"binary_data_size": 8}}
        head = {"name": "x", "datatype": "FP32", "shape": shape, **source}
        text = json.dumps({"inputs": [head]}).encode()
        blob = b"" if lane == "json" else bytes(8)
        extra = [] if lane == "json" else [f"{web.JSON_LENGTH}: {len(text)}"]
        with Http(served.port) as http:
            answer = http.query(web.post(web.path("one"), text + blob, *extra))
            assert answer.code == 400, answer
            assert http.query(web.infer("one", good)).code == 200
        said = answer.error
        assert f"found [{','.join(map(str, shape))[:16]}" in said
    assert "input 'x'" in said or "input 0" in said
    assert "expected" in said
    assert "found" in said
    assert most in said


def test_other_requests_that_do_not_fit(served: Server) -> None:
    x = np.ones((2, 3), np.float32)
    with Http(served.port) as http:

        def refused(request: bytes) -> str:
            answer = http.query(request)
            assert answer.code == 400, answer
            return answer.error

        said = refused(predict("one", {"inputs": {"x": [[1, 2], [3]]}}))
        assert "expected 2 values in an array, found fewer" in said
        assert "1 values" in refused(predict("one", {"instances": [[[1]], [[2, 3]]]}))
        assert "arrays at most 8 deep" in refused(predict("one", {"inputs": {"x": nested(9)}}))
        assert "found [1,1,1,1,1,1,1,1]" not in refused(predict("one", {"instances": nested(30)}))
        assert "of at least 1" in refused(predict("one", {"instances": [[], []]}))
        assert "'x' is missing" in refused(predict("one", {"inputs": {}}))
        said = refused(web.raw("one", x.tobytes()))
        assert "bytes do not tell the shape of 'x[...]'" in said
        head = {"name": "x", "datatype": "FP32", "data": [1]}
        said = refused(web.post(web.path("one"), json.dumps({"inputs": [head]}).encode()))
        assert said == "input 'x': field \"shape\" is missing"
    with served.connect() as connection:
        whole = wire.frame(x.tobytes(), model=served.models["one"])
        assert "expected a shape block (bit 1)" in connection.ask(whole).text
        # A rank for which the payload has no room.
        short = wire.frame(
            wire.shape_block([(1, 1)])[:12], model=served.models["one"], flags=wire.SHAPES
        )
        assert "expected at least 16 bytes for" in connection.ask(short).text
        other = native(served, "one", {"x": x}, wire.shape_block([(2, 4)]))
        assert "takes 48 bytes" in connection.ask(other).text
        assert connection.ask(native(served, "one", {"x": x})).status == wire.OK
    with Client("127.0.0.1", served.port) as client:
        with pytest.raises(BadRequest, match="of at most 8 dimensions, found"):
            client.infer("one", {"x": np.ones((1,) * 9, np.float32)})
        with pytest.raises(BadRequest, match=r"'x\[\.\.\.\]': expected 1 to 4096"):
            client.infer("one", {"x": np.ones((64, 65), np.float32)})


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1
