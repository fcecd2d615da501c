"""Models of strings: a table with columns of text, a text, a classifier whose classes have names;
over every dialect, against ONNX Runtime's own answers. What does not fit is refused by a sentence.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import harness
import numpy as np
import onnx
import onnxruntime
import pytest
import web
import wire
from conftest import Serve
from graphs import FLOAT, INT64, tensor
from harness import Server
from onnx import TensorProto, helper
from web import Http

from lumen_uring import AsyncClient, Client
from lumen_uring.errors import BadRequest, InferenceFailed

pytestmark = pytest.mark.once  # what runs models is the same on both backends

STRING = TensorProto.STRING
CITIES = ["Oslo", "São Paulo", "a city whose name is longer than others", ""]
ML = "ai.onnx.ml"
NAMES = ["setosa", "versicolor", "virginica"]
Arrays = dict[str, np.ndarray]


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
) -> Path:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    onnx.save(model, str(path))
    return path


def table(path: Path) -> Path:
    """age FP32, city and job BYTES, each [n,1] -> the city's number and age / 2, the job again."""
    coded = helper.make_node(
        "LabelEncoder",
        ["city"],
        ["code"],
        domain=ML,
        keys_strings=CITIES,
        values_int64s=[1, 2, 3, 4],
        default_int64=-1,
    )
    return save(
        path,
        [
            coded,
            helper.make_node("Scaler", ["age"], ["half"], domain=ML, scale=[0.5], offset=[0.0]),
            helper.make_node("Identity", ["job"], ["same"]),
        ],
        [
            tensor("city", STRING, ["n", 1]),
            tensor("age", FLOAT, ["n", 1]),
            tensor("job", STRING, ["n", 1]),
        ],
        [
            tensor("code", INT64, ["n", 1]),
            tensor("half", FLOAT, ["n", 1]),
            tensor("same", STRING, ["n", 1]),
        ],
    )


def text(path: Path, dims: list[str]) -> Path:
    """BYTES of this shape -> the same."""
    return save(
        path,
        [helper.make_node("Identity", ["t"], ["u"])],
        [tensor("t", STRING, dims)],
        [tensor("u", STRING, dims)],
    )


def forest(path: Path) -> Path:
    """As skl2onnx makes a RandomForestClassifier of string labels: two trees and a ZipMap."""
    trees = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 0, 1, 2],
        "nodes_featureids": [0, 0, 0, 2, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0, 1.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
        "nodes_truenodeids": [1, 0, 0] * 2,
        "nodes_falsenodeids": [2, 0, 0] * 2,
        "class_treeids": [0, 0, 0, 1, 1, 1],
        "class_nodeids": [1, 1, 2, 1, 2, 2],
        "class_ids": [0, 1, 2, 1, 2, 0],
        "class_weights": [0.375, 0.125, 0.5, 0.5, 0.25, 0.25],
    }
    classes = helper.make_node(
        "TreeEnsembleClassifier",
        ["X"],
        ["output_label", "probabilities"],
        domain=ML,
        classlabels_strings=NAMES,
        post_transform="NONE",
        **trees,
    )
    zipmap = helper.make_node(
        "ZipMap", ["probabilities"], ["output_probability"], domain=ML, classlabels_strings=NAMES
    )
    kind = helper.make_map_type_proto(STRING, helper.make_tensor_type_proto(FLOAT, []))
    maps = helper.make_value_info("output_probability", helper.make_sequence_type_proto(kind))
    return save(
        path,
        [classes, zipmap],
        [tensor("X", FLOAT, [None, 4])],
        [tensor("output_label", STRING, [None]), maps],
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("strings")
    return {
        "table": table(folder / "table.onnx"),
        "text": text(folder / "text.onnx", ["n"]),
        "words": text(folder / "words.onnx", ["n", "m"]),
        "forest": forest(folder / "forest.onnx"),
        "double": graphs.double(folder / "double.onnx"),
    }


MODELS = ["table", "text", "words", "forest", "double"]


@pytest.fixture(scope="module")
def server(files: dict[str, Path], cache: Path) -> Iterator[Server]:
    models = [{"name": name, "path": str(files[name])} for name in MODELS]
    settings: dict[str, object] = {"server": {"metrics_port": 0}, "models": models}
    with Server(settings, cache) as running:
        yield running


def columns(random: np.random.Generator, rows: int) -> Arrays:
    """Rows of the table: cities of the list and others, jobs of any length."""
    jobs = ["x" * int(size) for size in random.integers(0, 90, rows)]
    return {
        "city": random.choice([*CITIES, "elsewhere"], (rows, 1)).astype(object),
        "age": random.normal(size=(rows, 1)).astype(np.float32),
        "job": np.array(jobs, object).reshape(rows, 1),
    }


def same(found: Arrays, expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for array, other in zip(found.values(), expected, strict=True):
        assert array.shape == other.shape
        assert np.array_equal(array, other)


def test_a_table_over_every_dialect(server: Server, files: dict[str, Path]) -> None:
    session = onnxruntime.InferenceSession(str(files["table"]))
    random = np.random.default_rng(11)
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        for round_ in range(60):
            values = columns(random, int(random.integers(1, 30)))
            code, half, jobs = session.run(None, values)
            same(client.infer("table", values).outputs, [code, half, jobs])
            tensors: dict[str, Any] = {
                "job": web.strings(list(values["job"].flat), values["job"].shape),
                "age": values["age"],
                "city": web.strings(list(values["city"].flat), values["city"].shape),
            }
            binary: Any = [True, False, ["job"], ["age"]][round_ % 4]
            request = web.infer(
                "table", tensors, binary=binary, binary_outputs=bool(round_ & 4), nested=True
            )
            answer = http.query(request)
            assert answer.code == 200, answer.error
            assert np.array_equal(answer.array("code"), code)
            assert np.array_equal(answer.array("half"), half)
            found = answer.outputs["same"]
            assert found.datatype == "BYTES"
            assert found.shape == jobs.shape
            assert found.data == [job.encode() for job in jobs.flat]


def test_the_forms_of_a_caller(server: Server) -> None:
    forms: list[Any] = [
        ["a", "é"],
        [b"a", "é"],
        np.array(["a", "é"]),
        np.array(["a", "é"], object),
        np.array([b"a", "é".encode()]),
    ]
    with Client("127.0.0.1", server.port) as client:
        for form in forms:
            assert client.infer("text", {"t": form}).outputs["u"].tolist() == ["a", "é"]
        (back,) = client.infer("text", {"t": [b"\xff\0"]}).outputs["u"]
        assert client.infer("text", {"t": [back]}).outputs["u"].tolist() == [back]
        assert back.encode("utf-8", "surrogateescape") == b"\xff\0"
        with pytest.raises(BadRequest, match=r"expected strings \[rows\], found int among"):
            client.infer("text", {"t": [1, 2]})
        with pytest.raises(BadRequest, match=r"expected strings \[rows\], found strings \[1, 1\]"):
            client.infer("text", {"t": [["a"]]})
        with pytest.raises(BadRequest, match="expected float32"):
            client.infer("double", {"x": [["a"] * 16]})


def test_free_sizes_and_the_async_client(server: Server) -> None:
    async def ask() -> None:
        random = np.random.default_rng(3)
        async with AsyncClient("127.0.0.1", server.port) as client:
            for _ in range(30):
                shape = tuple(random.integers(1, 9, 2))
                words = random.choice(["", "word", "w" * 40], shape).astype(object)
                reply = await client.infer("words", {"t": words})
                assert np.array_equal(reply.outputs["u"], words)

    asyncio.run(ask())


def test_a_raw_body_is_a_string(server: Server) -> None:
    with Http(server.port) as http:
        for body in (b"a text\nof lines", b"", b"\xff\0", b"x" * 100_000):
            answer = http.query(web.raw("text", body))
            assert answer.code == 200, answer.error
            assert answer.outputs["u"].data == [body]
        assert "one string" in http.query(web.raw("words", b"a")).error
        assert "models of one input" in http.query(web.raw("table", b"a")).error


def test_long_strings_and_many(server: Server) -> None:
    with Client("127.0.0.1", server.port) as client:
        longest = "x" * (1 << 20)
        assert client.infer("text", {"t": [longest]}).outputs["u"].tolist() == [longest]
        with pytest.raises(BadRequest, match="expected at most 1048576 bytes, found a length of"):
            client.infer("text", {"t": ["", longest + "x"]})
        most = client.models()["text"].max_rows
        assert set(client.infer("text", {"t": [""] * most}).outputs["u"]) == {""}
        with pytest.raises(BadRequest, match=f"takes 1 to {most} rows"):
            client.infer("text", {"t": [""] * 1_000_000})
    with server.connect() as peer:
        reply = peer.ask(wire.frame(bytes(4_000_000), model=1, rows=1_000_000))
        assert reply.status == wire.BAD_REQUEST
        assert f"takes at most {most}, found 1000000" in reply.text


def lengths(*strings: bytes, last: int | None = None) -> bytes:
    """On the wire; `last` lies about the last one's length."""
    sizes = [len(item) for item in strings]
    if last is not None:
        sizes[-1] = last
    return b"".join(
        struct.pack("<I", size) + item for size, item in zip(sizes, strings, strict=True)
    )


@pytest.mark.parametrize(
    ("payload", "rows", "says"),
    [
        (lengths(b"a", b"b", last=7), 2, "string 1: expected the 7 bytes of its length, found 1"),
        (lengths(b"a", last=2**32 - 1), 1, "expected at most 1048576 bytes, found a length of"),
        (lengths(b"a"), 2, "takes at least 8 bytes for 2 row(s) as tensors, found 5"),
        (lengths(b"aaaa"), 2, "expected 2 strings, found 1 and 0 bytes more"),
        (lengths(b"a", b"b"), 1, "payload: expected 5 bytes for its inputs, found 10"),
        (b"", 1, "takes at least 4 bytes"),
    ],
)
def test_lengths_that_do_not_fit(server: Server, payload: bytes, rows: int, says: str) -> None:
    with server.connect() as peer:
        reply = peer.ask(wire.frame(payload, model=1, rows=rows))
        assert reply.status == wire.BAD_REQUEST
        assert says in reply.text
        good = peer.ask(wire.frame(lengths(b"a"), model=1, rows=1))
        assert good.payload == lengths(b"a")
    head = {"name": "t", "datatype": "BYTES", "shape": [rows]}
    sized = {**head, "parameters": {"binary_data_size": len(payload)}}
    document = json.dumps({"inputs": [sized]}).encode()
    request = web.post(web.path("text"), document + payload, f"{web.JSON_LENGTH}: {len(document)}")
    with Http(server.port) as http:
        answer = http.query(request)
        assert answer.code == 400
        assert "input 't'" in answer.error


@pytest.mark.parametrize("padding", [0, 9000])  # of a JSON that the worker reads
@pytest.mark.parametrize("large", [2**64 - 64, 2**64 - 1, 2**63, 2**32])
def test_sizes_whose_sum_wraps(server: Server, large: int, padding: int) -> None:
    """All binary data is there, if its sizes are added up in 64 bits."""
    blobs = bytes(4) + lengths(b"a" * 60)
    other = (len(blobs) - 4 - large) % 2**64
    given = [("age", "FP32", 4), ("city", "BYTES", large), ("job", "BYTES", other)]
    for order in (given, given[::-1]):
        inputs = [
            {"name": name, "datatype": kind, "shape": [1, 1], "parameters": {"binary_data_size": n}}
            for name, kind, n in order
        ]
        document = json.dumps({"inputs": inputs}).encode() + b" " * padding
        length = f"{web.JSON_LENGTH}: {len(document)}"
        with Http(server.port) as http:
            answer = http.query(web.post(web.path("table"), document + blobs, length))
            assert (answer.code, "binary_data_size: expected at most" in answer.error) == (
                400,
                True,
            )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'["a"]', "expected 2 elements in an array of depth 1, found fewer"),
        (b'["a","b","c"]', "expected 2 elements in an array of depth 1, found more"),
        (b'["a",1]', "input 't': data, element 1: expected a string for BYTES, found 1"),
        (b"[1,2]", "input 't': data, element 0: expected a string for BYTES, found 1"),
        (b"[]", "expected 2 elements in an array of depth 1, found fewer"),
        (b'["a",null]', "element 1: expected a string for BYTES, found null"),
        (b'["a","\xff"]', "byte 69: expected UTF-8, found 0xff"),
        (b'["a","\\ud800"]', "a string has a malformed escape"),
    ],
)
def test_json_that_does_not_fit(server: Server, data: bytes, says: str) -> None:
    body = b'{"inputs":[{"name":"t","datatype":"BYTES","shape":[2],  "data":' + data + b"}]}"
    with Http(server.port) as http:
        answer = http.query(web.post(web.path("text"), body))
        assert answer.code == 400
        assert says in answer.error


def test_bytes_that_json_cannot_say(server: Server) -> None:
    """Triton writes them as they are, which is no JSON; NaN is refused in the same way here."""
    with Http(server.port) as http:
        request = web.infer("text", {"t": web.strings([b"\xff"])}, binary_outputs=False)
        outputs = [{"name": "u", "parameters": {"binary_data": False}}]
        answer = http.query(web.infer("text", {"t": web.strings([b"\xff"])}, outputs=outputs))
        assert answer.code == 500
        assert answer.error == (
            "output 'u' holds bytes that are no UTF-8, which JSON cannot say: ask for it as "
            "binary_data"
        )
        assert http.query(request).code == 500
        odd = 'quote " slash \\ line \n é 🙂 \x01'
        answer = http.query(web.infer("text", {"t": web.strings([odd])}, binary=False))
        assert answer.outputs["u"].data == [odd.encode()]


def test_classes_that_have_names(server: Server, files: dict[str, Path]) -> None:
    session = onnxruntime.InferenceSession(str(files["forest"]))
    rows = np.random.default_rng(5).normal(size=(40, 4)).astype(np.float32)
    label, maps = session.run(None, {"X": rows})
    expected = np.array([[row[name] for name in NAMES] for row in maps], np.float32)
    with Client("127.0.0.1", server.port) as client:
        found = client.infer("forest", {"X": rows}).outputs
        assert client.models()["forest"].labels == tuple(NAMES)
        same(found, [label, expected])
    with Http(server.port) as http:
        outputs = [
            {"name": "output_label"},
            {"name": "probabilities", "parameters": {"classification": 2}},
        ]
        answer = http.query(web.infer("forest", {"X": rows}, binary=False, outputs=outputs))
        assert answer.outputs["output_label"].data == [name.encode() for name in label]
        best = answer.outputs["probabilities"]
        assert best.shape == (40, 2)
        assert [item.split(b":")[2].decode() for item in best.data[::2]] == label.tolist()
        body = json.dumps({"instances": rows[:3].tolist()}).encode()
        found = http.query(web.post("/v1/models/forest:predict", body)).json()["predictions"]
        assert [row["output_label"] for row in found] == label[:3].tolist()
        outputs[0]["parameters"] = {"classification": 1}
        answer = http.query(web.infer("forest", {"X": rows}, binary=False, outputs=outputs))
        assert "classification: not available for BYTES" in answer.error


def test_what_is_said_of_strings(server: Server, files: dict[str, Path], cache: Path) -> None:
    with Http(server.port) as http:
        metadata = http.query(web.get("/v2/models/table")).json()
        assert metadata["inputs"][0] == {"name": "city", "datatype": "BYTES", "shape": [-1, 1]}
        config = http.query(web.get("/v2/models/table/config")).json()
        assert config["input"][0]["data_type"] == "TYPE_STRING"
        assert config["output"][2]["data_type"] == "TYPE_STRING"
    assert "city BYTES[n,1]" in server.output
    done = harness.run(["inspect", str(files["table"])], cache)
    assert "strings  of at most 1MiB each" in done.stdout


def test_memory_of_strings_is_counted(server: Server) -> None:
    with Client("127.0.0.1", server.port) as client:
        before = server.figures()
        client.infer("double", {"x": np.ones((1, 16), np.float32)})
        client.infer("forest", {"X": np.ones((1, 4), np.float32)})
        assert "worker.string_allocations" not in server.figures().since(before)
        client.infer("words", {"t": [["w" * 100] * 8] * 8})
        taken = server.figures().since(before)["worker.string_allocations"]
        assert taken == 1 + 64


def test_batches_of_strings(serve: Serve, files: dict[str, Path]) -> None:
    model = {"path": str(files["table"]), "batch_size": 16, "batch_delay_us": 2000}
    server = serve(
        {
            "engine": {"thread_count": 1},
            "models": [
                {"name": "table", **model},
                {"name": "few", **model, "max_output_bytes": 64},
            ],
        }
    )
    session = onnxruntime.InferenceSession(str(files["table"]))

    async def ask(client: AsyncClient, seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(20):
            values = columns(random, int(random.integers(1, 5)))
            reply = await client.infer("table", values)
            same(reply.outputs, session.run(None, values))

    async def short_and_long(client: AsyncClient) -> None:
        """A reply that does not fit fails alone."""
        one = {"city": [["a"]], "age": [[1.0]]}
        for _ in range(10):
            good, bad = await asyncio.gather(
                client.infer("few", {**one, "job": [["short"]]}),
                client.infer("few", {**one, "job": [["j" * 200]]}),
                return_exceptions=True,
            )
            assert not isinstance(good, BaseException)
            assert good.outputs["same"].tolist() == [["short"]]
            assert isinstance(bad, InferenceFailed)
            assert "raise max_output_bytes of model 'few'" in str(bad)

    async def everybody() -> None:
        async with AsyncClient("127.0.0.1", server.port) as client:
            await asyncio.gather(*(ask(client, seed) for seed in range(12)))
            await short_and_long(client)

    asyncio.run(everybody())
    assert server.figures().worker["batches"] > 20


def test_commands_take_strings(server: Server, cache: Path, tmp_path: Path) -> None:
    where = ["--port", str(server.port), "--model", "table"]
    rows = tmp_path / "city.json"
    rows.write_text(json.dumps([["Oslo"], ["São Paulo"]]))
    ask = ["--input", f"city={rows}", "--input", "age=1 2", "--input", 'job=["x y", "z"]']
    done = harness.run(["predict", *where, *ask, "--json"], cache)
    assert done.returncode == 0, done.stderr
    outputs = json.loads(done.stdout)["outputs"]
    assert outputs == {"code": [[1], [2]], "half": [[0.5], [1.0]], "same": [["x y"], ["z"]]}
    done = harness.run(["predict", *where[:3], "text", "--input", "two words"], cache)
    assert "u strings [1]" in done.stdout
    assert "two words" in done.stdout
    url = f"http://127.0.0.1:{server.port}"
    for more in (
        ["--url", f"lumen://127.0.0.1:{server.port}"],
        ["--url", url],
        ["--url", url, "--http-json"],
        ["--url", url, *ask],
    ):
        options = ["--model", "table", "--requests", "50"]
        done = harness.run(["bench", *options, *more], cache)
        assert done.returncode == 0, (more, done.stderr, done.stdout)
