"""Virtual models: which expert answers, by the payload or by the lighter one's own answer; that
reply, telemetry and figures name it; that experts which do not fit each other are refused.

The experts of a test give different answers, so that each answer tells which one ran.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from graphs import FLOAT, INT64, tensor
from harness import Server, eventually, run
from onnx import TensorProto, helper
from PIL import Image
from web import Http

from lumen_uring import Client
from lumen_uring.errors import BadRequest
from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # what runs models is the same on both backends

MODEL = 2  # the virtual one's index on the wire, behind its two experts


def scaled(path: Path, factor: float, dims: graphs.Dims) -> str:
    """y = x * factor."""
    node = helper.make_node("Mul", ["x", "f"], ["y"])
    constants = {"f": np.array(factor, np.float32)}
    shape = [tensor(name, FLOAT, dims) for name in ("x", "y")]
    return str(graphs.save(path, [node], shape[:1], shape[1:], constants))


def pair(folder: Path, dims: graphs.Dims, **rest: Any) -> list[dict[str, Any]]:
    """Models `light`, y = x, and `dense`, y = -x."""
    return [
        {"name": "light", "path": scaled(folder / "light.onnx", 1, dims), **rest},
        {"name": "dense", "path": scaled(folder / "dense.onnx", -1, dims), **rest},
    ]


def rule(feature: str, bound: float, **rest: Any) -> list[dict[str, Any]]:
    word = "at_least" if feature in ("probability", "softmax", "margin") else "below"
    experts = [{"model": "light", word: bound}, {"model": "dense"}]
    return [{"name": "both", "feature": feature, "experts": experts, **rest}]


def expected(x: np.ndarray, is_light: bool) -> np.ndarray:
    return x if is_light else -x


@pytest.mark.parametrize(
    ("queue", "runs"), [("mpmc", "worker"), ("inline", "inline"), ("auto", "inline")]
)
def test_the_variance_decides_over_both_dialects(
    serve: Serve, tmp_path: Path, queue: str, runs: str
) -> None:
    trace = tmp_path / "rows.csv"
    server = serve(
        {
            "engine": {"queue_type": queue, "thread_count": 1, "telemetry_csv_path": str(trace)},
            "models": pair(tmp_path, ["n", 16], run="inline" if queue == "auto" else "auto"),
            "experts": rule("variance", 2.0, of="x"),
        }
    )
    random = np.random.default_rng(5)
    names = []
    with Client("127.0.0.1", server.port) as client:
        for rows in (1, 1, 2, 3, 1, 4):
            # Of several rows one that varies is enough.
            spread = random.choice([0.5, 3.0], (rows, 1))
            x = (random.standard_normal((rows, 16)) * spread + 100).astype(np.float32)
            light = bool((x.astype(np.float64).var(axis=1) < 2).all())
            result = client.infer("both", {"x": x})
            names.append("light" if light else "dense")
            assert result.expert == names[-1]
            assert np.array_equal(result.outputs["y"], expected(x, light))
        x[0, 0] = np.nan  # no comparison holds for it
        assert client.infer("both", {"x": x}).expert == "dense"
        assert client.infer("light", {"x": x}).expert is None
        entry = client.describe()["models"][MODEL]
    assert {"light", "dense"} == set(names)
    assert entry["run"] == runs
    assert entry["feature"] == "variance"
    assert entry["of"] == "x"
    assert entry["experts"] == [{"model": "light", "below": 2}, {"model": "dense"}]
    with Http(server.port) as http:
        for x, name in ((np.ones((1, 16), "<f4"), "light"), (np.eye(16, dtype="<f4") * 9, "dense")):
            answer = http.query(web.infer("both", {"x": x}))
            assert answer.headers["lumen-expert"] == name
            assert np.array_equal(answer.outputs["y"].array, expected(x, name == "light"))
        alone = http.query(web.infer("light", {"x": x}, binary=False))
        assert "lumen-expert" not in alone.headers
    server.wait_until_idle()
    counts = read(server.stats_path).models["both"]
    wanted = [*names, "dense", "light", "dense"]
    assert counts["ok"] == len(wanted)
    assert counts["expert:light"] == wanted.count("light")
    assert counts["expert:dense"] == wanted.count("dense")
    eventually(lambda: len(trace.read_text().splitlines()) == len(wanted) + 3, "all rows")
    rows_of = list(csv.DictReader(io.StringIO(trace.read_text())))
    assert [row["expert"] for row in rows_of if row["model"] == "both"] == wanted
    assert {row["expert"] for row in rows_of if row["model"] == "light"} == {""}


@pytest.mark.parametrize("feature", ["probability", "margin"])
def test_a_cascade_goes_on_where_the_light_one_is_not_sure(
    serve: Serve, tmp_path: Path, feature: str
) -> None:
    server = serve(
        {"models": pair(tmp_path, ["n", 4]), "experts": rule(feature, 0.5), "engine": {}}
    )
    sure, unsure = [0.1, 0.9, 0.0, 0.0], [0.3, 0.4, 0.2, 0.1]
    with Client("127.0.0.1", server.port) as client:
        for x, light in (([sure], True), ([unsure], False), ([sure, unsure], False)):
            given = np.array(x, np.float32)
            result = client.infer("both", {"x": given})
            assert np.array_equal(result.outputs["y"], expected(given, light))
            assert result.expert == ("light" if light else "dense")
    server.wait_until_idle()
    assert read(server.stats_path).models["both"]["runs"] == 1 + 2 + 2


def test_a_light_answer_of_fewer_rows_than_the_request(serve: Serve, tmp_path: Path) -> None:
    """Its graph declares one row, makes as many as x has, and none where a value is negative."""
    models = pair(tmp_path, ["n", 3])
    nodes = [
        helper.make_node("ReduceMin", ["x"], ["least"], keepdims=0),
        helper.make_node("Less", ["least", "zero"], ["is_low"]),
        helper.make_node("Where", ["is_low", "start", "all"], ["end"]),
        helper.make_node("Slice", ["x", "start", "end"], ["y"]),
    ]
    ends = {"start": np.array([0], np.int64), "all": np.array([1 << 40], np.int64)}
    constants = {"zero": np.array(0, np.float32), **ends}
    x, y = tensor("x", FLOAT, ["n", 3]), tensor("y", FLOAT, [1, 3])
    graphs.save(tmp_path / "light.onnx", nodes, [x], [y], constants)
    server = serve({"models": models, "experts": rule("margin", 5)})
    sure = np.array([[1, 2, 10]] * 4, np.float32)
    with Http(server.port) as http:
        answer = http.query(web.infer("both", {"x": sure}))
        np.testing.assert_array_equal(answer.array("y"), sure)
        answer = http.query(web.infer("both", {"x": -sure}))
        said = "output 'y': expected 48 bytes, the model made 0"
        assert (answer.code, answer.error) == (500, said)


@pytest.mark.parametrize("feature", ["variance", "probability"])
def test_a_batch_has_one_expert(serve: Serve, tmp_path: Path, feature: str) -> None:
    """Requests that come together are batched by expert; of a cascade those that are not sure are
    a batch again."""
    server = serve(
        {
            "engine": {
                "queue_type": "mpmc",
                "thread_count": 1,
                "batch_size": 8,
                "batch_delay_us": 1000000,
            },
            "models": pair(tmp_path, ["n", 4]),
            "experts": rule(feature, 0.5),
        }
    )
    easy = [0.1, 0.2, 0.1, 0.2] if feature == "variance" else [0.0, 0.9, 0.1, 0.0]
    hard = [9.0, 0.0, 9.0, 0.0] if feature == "variance" else [0.25, 0.26, 0.24, 0.25]
    given = [np.array([hard if number % 3 else easy], "<f4") for number in range(8)]
    frames = [wire.frame(x.tobytes(), model=MODEL, id=number) for number, x in enumerate(given)]
    with server.connect() as connection:
        connection.send(b"".join(frames))
        replies = connection.replies(8)
    for number, x in enumerate(given):
        light = number % 3 == 0
        assert replies[number].expert == (1 if light else 2)
        y = np.frombuffer(replies[number].payload, "<f4")
        assert np.array_equal(y, expected(x, light).reshape(-1))
    server.wait_until_idle()
    snapshot = read(server.stats_path)
    assert snapshot.models["both"]["expert:dense"] == 5
    # Requests may come in two parts, but never as eight Runs of their own.
    assert snapshot.counters["worker"]["batches"] >= 2
    assert snapshot.models["both"]["runs"] < 8


@pytest.fixture
def pictures(serve: Serve, tmp_path: Path) -> Server:
    image = {"mean": 10.0, "scale": 0.5, "image": {"fit": "stretch"}}
    by_size = rule("pixels", 1000.0)[0] | {"name": "by_size"}
    return serve(
        {
            "engine": {"batch_size": 4, "batch_delay_us": 1000, "queue_type": "mpmc"},
            "models": pair(tmp_path, ["n", 3, 8, 9], **image),
            "experts": [*rule("edges", 40.0), by_size],
        }
    )


def edges(x: np.ndarray) -> float:
    wide, high = np.diff(x.astype(np.float64), axis=-1), np.diff(x.astype(np.float64), axis=-2)
    return float(((wide**2).sum() + (high**2).sum()) / (wide.size + high.size))


def test_pixels_and_files_of_pictures(pictures: Server) -> None:
    """The feature is of the tensor that the model gets, whatever the request was."""
    random = np.random.default_rng(8)
    with Client("127.0.0.1", pictures.port) as client, Http(pictures.port) as http:
        for most in (2, 255, 30, 20, 1):
            pixels = random.integers(0, most + 1, (8, 9, 3), np.uint8)
            x = ((pixels.astype(np.float32) - 10) * 0.5).transpose(2, 0, 1)
            light = edges(x) < 40
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "png")
            raw = client.infer_rgb8("both", pixels)
            sent = client.infer_images("both", [file.getvalue()])
            for result in (raw, sent):
                assert result.expert == ("light" if light else "dense")
                assert np.array_equal(result.outputs["y"][0], expected(x, light))
            answer = http.query(web.post(web.path("both"), file.getvalue()))
            assert answer.headers["lumen-expert"] == ("light" if light else "dense")
        for sides, name in (((20, 20), "light"), ((40, 30), "dense")):
            file = io.BytesIO()
            Image.new("RGB", sides).save(file, "jpeg")
            assert client.infer_images("by_size", [file.getvalue()]).expert == name
            answer = http.query(web.post(web.path("by_size"), file.getvalue()))
            assert answer.headers["lumen-expert"] == name
            as_bytes = {"x": web.strings([file.getvalue()], [1])}
            answer = http.query(web.infer("by_size", as_bytes))
            assert answer.headers["lumen-expert"] == name
        # Its own tensor has 72 pixels; its slot was that of a picture just now, and before that of
        # other pixels.
        pixels = 255 - pixels
        x = ((pixels.astype(np.float32) - 10) * 0.5).transpose(2, 0, 1)
        result = client.infer_rgb8("by_size", pixels)
        assert result.expert == "light"
        assert np.array_equal(result.outputs["y"][0], expected(x, True))


def test_sizes_of_free_dimensions_and_lengths_of_strings(serve: Serve, tmp_path: Path) -> None:
    def tokens(name: str, operator: str) -> dict[str, str]:
        node = helper.make_node(operator, ["ids"], ["y"])
        shape = ["n", "tokens"]
        ids, y = tensor("ids", INT64, shape), tensor("y", INT64, shape)
        return {
            "name": name,
            "path": str(graphs.save(tmp_path / f"{name}.onnx", [node], [ids], [y])),
        }

    def texts(name: str, number: int) -> dict[str, str]:
        nodes = [
            helper.make_node("Shape", ["text"], ["count"]),
            helper.make_node("Mul", ["count", "f"], ["y"]),
        ]
        shape = [tensor("text", TensorProto.STRING, ["n"]), tensor("y", INT64, [1])]
        constants = {"f": np.array([number])}
        path = graphs.save(tmp_path / f"{name}.onnx", nodes, shape[:1], shape[1:], constants)
        return {"name": name, "path": str(path)}

    def by(name: str, feature: str, bound: float, of: str | None, *models: str) -> dict[str, Any]:
        light, dense = models
        experts = [{"model": light, "below": bound}, {"model": dense}]
        return {"name": name, "feature": feature, "of": of, "experts": experts}

    server = serve(
        {
            "models": [
                tokens("same", "Identity"),
                tokens("negative", "Neg"),
                texts("one", 1),
                texts("two", 2),
            ],
            "experts": [
                by("long", "size", 5, "tokens", "same", "negative"),
                by("many", "size", 3, "rows", "same", "negative"),
                by("wordy", "length", 6, None, "one", "two"),
            ],
        }
    )
    with Client("127.0.0.1", server.port) as client:
        for name, shape, expert in (
            ("long", (3, 4), "same"),
            ("long", (1, 5), "negative"),
            ("many", (2, 9), "same"),
            ("many", (3, 1), "negative"),
        ):
            ids = np.arange(np.prod(shape)).reshape(shape)
            result = client.infer(name, {"ids": ids})
            assert result.expert == expert
            assert np.array_equal(result.outputs["y"], ids if expert == "same" else -ids)
        assert client.infer("wordy", {"text": ["short", ""]}).expert == "one"
        # "größe" has five letters and six bytes.
        assert client.infer("wordy", {"text": ["a", "größe"]}).expert == "two"
        with pytest.raises(BadRequest):
            client.infer("long", {"ids": np.zeros((1, 2, 3), np.int64)})


def test_experts_that_differ_are_refused_with_both_sides(tmp_path: Path, cache: Path) -> None:
    other = scaled(tmp_path / "other.onnx", 2, ["n", 5])
    lines = [
        "models:",
        *(f"- {{name: {one['name']}, path: {one['path']}}}" for one in pair(tmp_path, ["n", 4])),
        f"- {{name: other, path: {other}}}",
        "experts:",
        "- {name: a, feature: mean, experts: [{model: other, below: 1}, {model: dense}]}",
        "- {name: b, feature: mean, of: z, experts: [{model: light, below: 1}, {model: dense}]}",
        "- {name: c, feature: length, experts: [{model: light, below: 1}, {model: dense}]}",
        "- {name: d, feature: size, experts: [{model: light, below: 1}, {model: dense}]}",
        "- {name: e, feature: pixels, experts: [{model: light, below: 1}, {model: dense}]}",
    ]
    path = tmp_path / "lumen.yaml"
    path.write_text("\n".join(lines))
    said = run(["--config", str(path), "--check"], cache)
    assert said.returncode != 0
    for sentence in (
        "experts of 'a': experts need the same inputs: input 0 is 'x' FP32 [rows, 4] for 'dense', "
        "and 'x' FP32 [rows, 5] for 'other'",
        "experts of 'b': feature mean: expected an input of numbers, of 'x' (FP32), found 'z'",
        "experts of 'c': feature length: expected an input of strings (BYTES), of 'x' (FP32), "
        "found none named",
        "experts of 'd': feature size: expected the name of a free dimension of 'dense' (as `lumen "
        "inspect` shows them), found none",
        "experts of 'e': feature pixels: expected models that take pictures",
    ):
        assert sentence in said.stderr
