"""Ensembles: models that run one after the other on what those before them made; that answers are
ONNX Runtime's own, step by step; that steps which do not fit each other are refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnxruntime
import pytest
import web
from conftest import Serve
from graphs import FLOAT, INT64, tensor
from harness import run
from onnx import TensorProto, helper
from web import Http

from lumen_uring import Client
from lumen_uring.errors import BadRequest

pytestmark = pytest.mark.once  # what runs models is the same on both backends


def product(path: Path, rows: int, columns: int, seed: int) -> str:
    """y [n, columns] = x [n, rows] times a matrix, plus the sum of each row, s [n, 1]."""
    matrix = np.random.default_rng(seed).standard_normal((rows, columns), np.float32)
    return str(
        graphs.save(
            path,
            [
                helper.make_node("MatMul", ["x", "m"], ["y"]),
                helper.make_node("ReduceSum", ["x", "axes"], ["s"]),
            ],
            [tensor("x", FLOAT, ["n", rows])],
            [tensor("y", FLOAT, ["n", columns]), tensor("s", FLOAT, ["n", 1])],
            {"m": matrix, "axes": np.array([1], np.int64)},
        )
    )


def lengths(path: Path) -> str:
    """ids INT64 [n, k] -> where they are not 0, INT64 [2, ?], and how many there are."""
    nodes = [
        helper.make_node("NonZero", ["ids"], ["where"]),
        helper.make_node("Size", ["where"], ["count"]),
    ]
    outputs = [tensor("where", INT64, [2, "k"]), tensor("count", INT64, [])]
    return str(graphs.save(path, nodes, [tensor("ids", INT64, ["n", "k"])], outputs))


def twice(path: Path) -> str:
    """words STRING [n] -> the same and once more, STRING [m]."""
    node = helper.make_node("Concat", ["words", "words"], ["echoed"], axis=0)
    inputs = [tensor("words", TensorProto.STRING, ["n"])]
    return str(graphs.save(path, [node], inputs, [tensor("echoed", TensorProto.STRING, ["m"])]))


CHAIN: dict[str, Any] = {
    "name": "chain",
    "steps": [
        {"model": "first", "inputs": {"x": "picture"}, "outputs": {"y": "features", "s": "sums"}},
        {"model": "second", "inputs": {"x": "features"}, "outputs": {"y": "classes", "s": "all"}},
    ],
}


def chain(folder: Path, **rest: Any) -> dict[str, Any]:
    return {
        "models": [
            {"name": "first", "path": product(folder / "first.onnx", 6, 40, 1)},
            {"name": "second", "path": product(folder / "second.onnx", 40, 3, 2)},
        ],
        "ensembles": [{**CHAIN, **rest}],
    }


def by_hand(folder: Path, x: np.ndarray) -> dict[str, np.ndarray]:
    sessions = [
        onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("first", "second")
    ]
    features, sums = sessions[0].run(None, {"x": x})
    classes, total = sessions[1].run(None, {"x": features})
    return {"sums": sums, "classes": classes, "all": total}


@pytest.mark.parametrize("queue", ["auto", "mpmc", "inline"])
@pytest.mark.parametrize("batch", [1, 8])
def test_answers_are_those_of_the_steps(
    serve: Serve, tmp_path: Path, queue: str, batch: int
) -> None:
    engine = {"queue_type": queue, "thread_count": 1 if queue == "inline" else 2}
    server = serve({**chain(tmp_path, batch_size=batch), "engine": engine})
    random = np.random.default_rng(7)
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        about = client.models()["chain"]
        assert [each.name for each in about.inputs] == ["picture"]
        assert [each.name for each in about.outputs] == ["sums", "classes", "all"]
        for rows in (1, 2, 5, 8, 1):
            x = random.standard_normal((rows, 6), np.float32)
            expected = by_hand(tmp_path, x)
            outputs = client.infer("chain", {"picture": x}).outputs
            for binary in (True, False):
                answer = http.query(web.infer("chain", {"picture": x}, binary=binary))
                for name, values in expected.items():
                    np.testing.assert_array_equal(outputs[name], values)
                    np.testing.assert_array_equal(answer.array(name), values)


def test_shapes_that_only_a_run_tells_and_strings(serve: Serve, tmp_path: Path) -> None:
    nonzero, echo = lengths(tmp_path / "l.onnx"), twice(tmp_path / "e.onnx")
    server = serve(
        {
            "models": [{"name": "l", "path": nonzero}, {"name": "e", "path": echo}],
            "ensembles": [
                {
                    "name": "twice",  # the positions of the positions that are not 0
                    "steps": [
                        {"model": "l", "outputs": {"where": "places", "count": "many"}},
                        {"model": "l", "inputs": {"ids": "places"}, "outputs": {"count": "more"}},
                    ],
                    "outputs": ["where", "many"],
                },
                {
                    "name": "four-times",
                    "steps": [
                        {"model": "e", "outputs": {"echoed": "two"}},
                        {"model": "e", "inputs": {"words": "two"}},
                    ],
                },
            ],
        }
    )
    ids = np.array([[0, 3, 0, 4], [5, 0, 0, 6]], np.int64)
    places = np.array(np.nonzero(ids), np.int64)
    words = np.array(["ein", "Wort", "x" * 100], object)
    with Client("127.0.0.1", server.port) as client:
        for _ in range(3):
            outputs = client.infer("twice", {"ids": ids}).outputs
            np.testing.assert_array_equal(outputs["where"], np.array(np.nonzero(places)))
            assert outputs["many"] == places.size
            said = client.infer("four-times", {"words": words}).outputs["echoed"]
            assert said.tolist() == [*words] * 4


def test_a_step_that_fails_is_named(serve: Serve, tmp_path: Path) -> None:
    server = serve(
        {
            "models": [
                {"name": "g", "path": str(graphs.gather(tmp_path / "g.onnx"))},
                {"name": "double", "path": str(graphs.gather(tmp_path / "d.onnx"))},
            ],
            "ensembles": [
                {
                    "name": "both",
                    "steps": [{"model": "g"}, {"model": "double", "outputs": {"y": "z"}}],
                }
            ],
        }
    )
    with Client("127.0.0.1", server.port) as client:
        for _ in range(3):
            with pytest.raises(BadRequest, match=r"step 0 \('g'\)"):
                client.infer("both", {"x": np.array([7], np.int64)})
            outputs = client.infer("both", {"x": np.array([2], np.int64)}).outputs
            assert outputs["y"].tolist() == outputs["z"].tolist() == [30]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{"model": "first"}, {"model": "none"}], ["steps.1.model", "'none'"]),
        ([{"model": "first"}, {"model": "chain"}], ["steps.1.model", "runs others itself"]),
        ([{"model": "first", "inputs": {"z": "x"}}], ["step 0", "'x'", "'z'"]),
        ([{"model": "first"}, {"model": "second"}], ["step 1", "'x'", "[-1, 40]", "[-1, 6]"]),
        (
            [{"model": "first"}, {"model": "first", "inputs": {"x": "other"}}],
            ["step 1", "a name of its own", "under outputs"],
        ),
        (
            [
                {"model": "first", "inputs": {"x": "later"}},
                {"model": "second", "outputs": {"y": "later"}},
            ],
            ["steps.0.inputs", "an earlier step", "step 1 makes"],
        ),
        ([], ["1..16 steps"]),
        ([{}], ["steps.0.model"]),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, cache: Path, steps: list[dict[str, Any]], words: list[str]
) -> None:
    path = tmp_path / "lumen.yaml"
    path.write_text(json.dumps(chain(tmp_path, steps=steps)))
    said = run(["--config", str(path), "--check"], cache)
    assert said.returncode != 0
    for word in words:
        assert word in said.stderr
