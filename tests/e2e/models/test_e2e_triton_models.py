"""Models as Triton's own tests have them: sums and differences in several versions, with and
without a batch, and ensembles of them. By Triton's client; compared with NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import tritonclient.http as http_client
import web
from conftest import Serve
from harness import Server
from onnx import TensorProto, helper
from tritonclient import utils

pytestmark = pytest.mark.once

INT32 = TensorProto.INT32
LABELS = [f"label{number}" for number in range(16)]


def sums(path: Path, dims: list[Any], swapped: bool = False) -> None:
    """INPUT0, INPUT1 INT32 -> OUTPUT0 their sum, OUTPUT1 their difference; swapped: the reverse."""
    path.parent.mkdir(parents=True)
    ends = ("OUTPUT1", "OUTPUT0") if swapped else ("OUTPUT0", "OUTPUT1")
    graphs.save(
        path,
        [
            helper.make_node(kind, ["INPUT0", "INPUT1"], [end])
            for kind, end in zip(("Add", "Sub"), ends, strict=True)
        ],
        [graphs.tensor(name, INT32, dims) for name in ("INPUT0", "INPUT1")],
        [graphs.tensor(name, INT32, dims) for name in ("OUTPUT0", "OUTPUT1")],
    )


TENSORS = """
    input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ %(dims)s ] },
            { name: "INPUT1" data_type: TYPE_INT32 dims: [ %(dims)s ] } ]
    output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ %(dims)s ]
               label_filename: "output0_labels.txt" },
             { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ %(dims)s ] } ]
"""
# Of each step one output is nobody's, though another step makes one of its name.
ENSEMBLE = """
    platform: "ensemble" max_batch_size: 4
    input [ { name: "A" data_type: TYPE_INT32 dims: [ 16 ] },
            { name: "B" data_type: TYPE_INT32 dims: [ 16 ] } ]
    output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 16 ] },
             { name: "OUTPUT1" data_type: TYPE_INT32 dims: [ 16 ] } ]
    ensemble_scheduling { step [
      { model_name: "simple" model_version: 1
        input_map [ { key: "INPUT0" value: "A" }, { key: "INPUT1" value: "B" } ]
        output_map { key: "OUTPUT0" value: "OUTPUT0" } },
      { model_name: "simple" model_version: 2
        input_map [ { key: "INPUT0" value: "A" }, { key: "INPUT1" value: "B" } ]
        output_map { key: "OUTPUT0" value: "OUTPUT1" } } ] }
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qa")
    for name, rows, dims, graph in (
        ("simple", 8, "16", ["n", 16]),
        ("fixed", 0, "16", [16]),
        ("free", 0, "-1", ["n"]),
        ("table", 0, "-1, 16", ["n", 16]),
    ):
        sums(folder / name / "1" / "model.onnx", graph)
        text = f"max_batch_size: {rows} {TENSORS % {'dims': dims}}"
        (folder / name / "output0_labels.txt").write_text("\n".join(LABELS))
        (folder / name / "config.pbtxt").write_text(text)
    sums(folder / "simple/2/model.onnx", ["n", 16], swapped=True)
    with (folder / "simple/config.pbtxt").open("a") as file:
        file.write("version_policy: { all { } }")
    (folder / "both/1").mkdir(parents=True)
    (folder / "both/config.pbtxt").write_text(ENSEMBLE)
    return folder


@pytest.fixture
def server(serve: Serve, repository: Path) -> Server:
    return serve({"repository": {"paths": [str(repository)]}, "engine": {"thread_count": 2}})


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    made = http_client.InferenceServerClient(f"127.0.0.1:{server.port}")
    yield made
    made.close()


def ask(
    client: Any, model: str, one: np.ndarray, other: np.ndarray, names: Any = None, **more: Any
) -> Any:
    given = []
    for name, array in zip(names or ("INPUT0", "INPUT1"), (one, other), strict=True):
        tensor = http_client.InferInput(name, list(array.shape), "INT32")
        tensor.set_data_from_numpy(array, binary_data=more.get("binary", True))
        given.append(tensor)
    more.pop("binary", None)
    return client.infer(model, given, **more)


def arrays(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(sum(shape))
    return tuple(random.integers(-99, 99, shape, dtype=np.int32) for _ in range(2))  # type: ignore[return-value]


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("simple", (1, 16)), ("simple", (5, 16)), ("fixed", (16,)), ("free", (1,)), ("free", (9,)),
        ("table", (1, 16)), ("table", (3, 16)),
    ],
)  # fmt: skip
def test_classification(client: Any, model: str, shape: tuple[int, ...], binary: bool) -> None:
    """With a batch of each of its rows; without one of all values, as one row."""
    one, other = arrays(*shape)
    wanted = http_client.InferRequestedOutput("OUTPUT0", binary_data=binary, class_count=3)
    result = ask(client, model, one, other, outputs=[wanted], binary=binary, model_version="1")
    found = result.as_numpy("OUTPUT0")
    total = one + other
    rows = total if model == "simple" else total.reshape(1, -1)
    kept = min(3, rows.shape[1])
    assert found.shape == ((len(rows), kept) if model == "simple" else (kept,))
    for row, ranked in zip(rows, found.reshape(len(rows), kept), strict=True):
        order = np.argsort(-row, kind="stable")[:kept]
        said = [text.decode() if isinstance(text, bytes) else text for text in ranked]
        assert said == [
            f"{row[at]}:{at}:{LABELS[at]}" if at < len(LABELS) else f"{row[at]}:{at}"
            for at in order
        ]


def test_a_configuration_says_whether_there_is_a_batch(client: Any) -> None:
    for model, rows, dims in (("simple", 8, [16]), ("fixed", 0, [16]), ("table", 0, [-1, 16])):
        config = client.get_model_config(model)
        assert (config["max_batch_size"], config["input"][0]["dims"]) == (rows, dims)


def test_an_ensemble_is_told_as_one(client: Any) -> None:
    assert client.get_model_metadata("both")["platform"] == "ensemble"
    config = client.get_model_config("both")
    assert (config["platform"], config["backend"], config["max_batch_size"]) == ("ensemble", "", 4)
    assert config["instance_group"] == []
    assert "dynamic_batching" not in config
    assert config["ensemble_scheduling"]["step"] == [
        {
            "model_name": "simple", "model_version": version, "model_namespace": "",
            "input_map": {"INPUT0": "A", "INPUT1": "B"}, "output_map": {"OUTPUT0": name},
        }
        for version, name in ((1, "OUTPUT0"), (2, "OUTPUT1"))
    ]  # fmt: skip


def test_an_ensemble_of_versions(client: Any) -> None:
    """The first version's sum and the second's difference; no more rows than the file says; what
    it runs has it in its own figures, as in Triton."""
    for rows in (1, 4):
        one, other = arrays(rows, 16)
        result = ask(client, "both", one, other, ("A", "B"))
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), one + other)
        np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), one - other)
    with pytest.raises(utils.InferenceServerException, match="takes 1 to 4 rows, found 5"):
        ask(client, "both", *arrays(5, 16), ("A", "B"))
    (own,) = client.get_inference_statistics("both")["model_stats"]
    assert (own["inference_count"], own["execution_count"]) == (5, 2)
    assert own["inference_stats"]["success"]["count"] == 2
    for version in ("1", "2"):
        (stats,) = client.get_inference_statistics("simple", version)["model_stats"]
        assert (stats["inference_count"], stats["execution_count"]) == (5, 2)
        assert stats["inference_stats"]["success"]["count"] == 2
    ask(client, "simple", *arrays(3, 16), model_version="2")
    counts = [
        client.get_inference_statistics("simple", version)["model_stats"][0]["inference_count"]
        for version in ("1", "2")
    ]
    assert counts == [5, 8]


# ---- a batch whose outputs have a length of their own ----


def cut(path: Path, axis: int = 1, rows: str = "n") -> Path:
    """x FP32 [n,16] -> y FP32 [n,k], the first columns (or rows), as many as the largest value of x
    says, and s FP32 [n,1], the sums. Where `rows` is another name, nothing says that y has x's."""
    return graphs.save(
        path,
        [
            helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
            helper.make_node("Cast", ["most"], ["whole"], to=TensorProto.INT64),
            helper.make_node("Unsqueeze", ["whole", "zero"], ["end"]),
            helper.make_node("Slice", ["x", "zero", "end", "axis"], ["y"]),
            helper.make_node("ReduceSum", ["x", "one"], ["s"]),
        ],
        [graphs.tensor("x", graphs.FLOAT, ["n", 16])],
        [graphs.tensor("y", graphs.FLOAT, [rows, "k"]), graphs.tensor("s", graphs.FLOAT, ["n", 1])],
        {
            name: np.array([value], np.int64)
            for name, value in (("zero", 0), ("one", 1), ("axis", axis))
        },
    )


LONG_US = 3_600_000_000


def in_one_batch(
    server: Server, model: str, asked: list[np.ndarray], binary: bool
) -> list[web.Answer]:
    connections = [web.Http(server.port) for _ in asked]
    for http, x in zip(connections, asked, strict=True):
        http.send(web.infer(model, {"x": x}, binary=binary))
    answers = [http.answer("POST") for http in connections]
    for http in connections:
        http.close()
    return answers


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_a_batch_of_outputs_of_their_own_length(serve: Serve, tmp_path: Path, binary: bool) -> None:
    """Each request has its rows of what the Run made; the Run is one."""
    entry = {"batch_size": 6, "batch_delay_us": LONG_US}
    path = cut(tmp_path / "m.onnx")
    server = serve(
        {"engine": {"thread_count": 1}, "models": [{"name": "m", "path": str(path), **entry}]}
    )
    for most in (3, 7):
        random = np.random.default_rng(most)
        # A worker knows the rows of JSON when it has read it, so that it waits for requests.
        rows = (1, 3, 2) if binary else (1,) * 6
        asked = [random.uniform(0, 1, (count, 16)).astype("<f4") for count in rows]
        asked[1][-1, 5] = most
        for x, answer in zip(asked, in_one_batch(server, "m", asked, binary), strict=True):
            np.testing.assert_array_equal(answer.array("y"), x[:, :most])
            np.testing.assert_allclose(answer.array("s"), x.sum(1, keepdims=True), rtol=1e-5)
    with web.Http(server.port) as http:
        (stats,) = http.query(web.get("/v2/models/m/stats")).json()["model_stats"]
        (batch,) = stats["batch_stats"]
        assert (batch["batch_size"], batch["compute_infer"]["count"]) == (6, 2)
        assert (stats["execution_count"], stats["inference_count"]) == (2, 12)


def test_a_batch_of_fewer_rows_than_were_promised(serve: Serve, tmp_path: Path) -> None:
    """Nobody can tell whose the row is: each request has a Run of its own."""
    entry = {"batch_size": 2, "batch_delay_us": LONG_US}
    path = cut(tmp_path / "m.onnx", axis=0)
    server = serve(
        {"engine": {"thread_count": 1}, "models": [{"name": "m", "path": str(path), **entry}]}
    )
    asked = [np.array([[1, *[value] * 15]], "<f4") for value in (0.25, 0.5)]
    for x, answer in zip(asked, in_one_batch(server, "m", asked, True), strict=True):
        np.testing.assert_array_equal(answer.array("y"), x)


def test_an_output_whose_rows_nobody_knows_shares_no_batch(cache: Path, tmp_path: Path) -> None:
    path = cut(tmp_path / "m.onnx", rows="others")
    settings: dict[str, object] = {"models": [{"name": "m", "path": str(path), "batch_size": 2}]}
    with pytest.raises(AssertionError, match="its first dimension is not free in every input"):
        Server(settings, cache)
