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
        ([{"model": "first"}, {"model": "chain"}], ["steps.1.model", "an ensemble"]),
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


def test_a_step_of_which_nothing_is_taken(tmp_path: Path, cache: Path) -> None:
    """ONNX Runtime runs no model without an output: each request would fail."""
    path = tmp_path / "lumen.yaml"
    path.write_text(json.dumps(chain(tmp_path, outputs=["sums"])))
    said = run(["--config", str(path), "--check"], cache)
    assert said.returncode != 0
    assert "step 1 ('second'): nothing takes an output of it" in said.stderr
    assert "name one under outputs, or leave the step out" in said.stderr


# ---- experts as a step ----


def scaled(path: Path, factor: float, dims: graphs.Dims, bias: float = 0) -> str:
    """y = x * factor + bias."""
    nodes = [
        helper.make_node("Mul", ["x", "f"], ["scaled"]),
        helper.make_node("Add", ["scaled", "b"], ["y"]),
    ]
    constants = {"f": np.array(factor, np.float32), "b": np.array(bias, np.float32)}
    shape = [tensor(name, FLOAT, dims) for name in ("x", "y")]
    return str(graphs.save(path, nodes, shape[:1], shape[1:], constants))


def with_experts(folder: Path, rule: dict[str, Any], dims: graphs.Dims) -> dict[str, Any]:
    """y = the expert's answer to 10 x + 1, plus 1000; `light` is x, `dense` is -x."""
    word = "at_least" if rule["feature"] in ("probability", "softmax", "margin") else "below"
    bound = rule.pop("bound")
    experts = [{"model": "light", word: bound}, {"model": "dense"}]
    steps = [
        {"model": "before", "outputs": {"y": "middle"}},
        {"model": "either", "inputs": {"x": "middle"}, "outputs": {"y": "chosen"}},
        {"model": "after", "inputs": {"x": "chosen"}},
    ]
    return {
        "models": [
            {"name": "before", "path": scaled(folder / "before.onnx", 10, dims, 1)},
            {"name": "light", "path": scaled(folder / "light.onnx", 1, dims)},
            {"name": "dense", "path": scaled(folder / "dense.onnx", -1, dims)},
            {"name": "after", "path": scaled(folder / "after.onnx", 1, dims, 1000)},
        ],
        "experts": [{"name": "either", "experts": experts, **rule}],
        "ensembles": [{"name": "whole", "steps": steps}],
    }


@pytest.mark.parametrize("queue", ["mpmc", "inline"])
@pytest.mark.parametrize(
    ("rule", "light", "dense"),
    [
        # Of what the step before made: 10 x + 1.
        ({"feature": "mean", "bound": 50}, [1, 2, 3], [9, 9, 9]),
        ({"feature": "variance", "bound": 500}, [7, 7, 7], [-9, 0, 9]),
        # Of what the lighter one made of that, which is looked at once it has run.
        ({"feature": "probability", "bound": 100}, [1, 2, 10], [1, 2, 3]),
        ({"feature": "margin", "bound": 20}, [1, 2, 10], [1, 2, 3]),
        ({"feature": "size", "of": "k", "bound": 4}, [1, 2, 3], [1, 2, 3, 4, 5]),
        ({"feature": "size", "of": "n", "bound": 2}, [1, 2, 3], [[1, 2, 3], [4, 5, 6]]),
    ],
)
def test_experts_are_a_step(
    serve: Serve,
    tmp_path: Path,
    rule: dict[str, Any],
    light: list[Any],
    dense: list[Any],
    queue: str,
) -> None:
    is_free = rule["feature"] == "size"
    settings = with_experts(tmp_path, dict(rule), ["n", "k"] if is_free else ["n", 3])
    threads = 1 if queue == "inline" else 2
    server = serve({**settings, "engine": {"queue_type": queue, "thread_count": threads}})
    with Client("127.0.0.1", server.port) as client:
        for values, sign in ((light, 1), (dense, -1), (light, 1)):
            x = np.atleast_2d(np.array(values, np.float32))
            answer = client.infer("whole", {"x": x}).outputs
            assert list(answer) == ["y"]
            np.testing.assert_allclose(answer["y"], sign * (10 * x + 1) + 1000)
            # The experts have a name of their own too.
            np.testing.assert_allclose(client.infer("either", {"x": x}).outputs["y"].shape, x.shape)


def test_a_row_that_asks_for_the_better_expert_decides(serve: Serve, tmp_path: Path) -> None:
    settings = with_experts(tmp_path, {"feature": "mean", "bound": 50}, ["n", 3])
    server = serve(settings)
    with Client("127.0.0.1", server.port) as client:
        x = np.array([[1, 2, 3], [9, 9, 9], [0, 0, 0]], np.float32)
        answer = client.infer("whole", {"x": x}).outputs["y"]
        np.testing.assert_allclose(answer, -(10 * x + 1) + 1000)


def tagged(path: Path, tag: int) -> str:
    """words STRING [m] -> `tag` once for each, INT64 [m]."""
    nodes = [
        helper.make_node("Shape", ["echoed"], ["count"]),
        helper.make_node("Expand", ["value", "count"], ["tag"]),
    ]
    inputs = [tensor("echoed", TensorProto.STRING, ["m"])]
    value = {"value": np.array([tag], np.int64)}
    return str(graphs.save(path, nodes, inputs, [tensor("tag", INT64, ["m"])], value))


def by_length(folder: Path, first: str) -> dict[str, Any]:
    """What `first` makes of its words goes to `short`, whose tag is 1, or to `long`, whose is 3."""
    experts = [{"model": "short", "below": 8}, {"model": "long"}]
    return {
        "models": [
            {"name": "first", "path": first},
            {"name": "short", "path": tagged(folder / "short.onnx", 1)},
            {"name": "long", "path": tagged(folder / "long.onnx", 3)},
        ],
        "experts": [{"name": "either", "feature": "length", "experts": experts}],
        "ensembles": [{"name": "whole", "steps": [{"model": "first"}, {"model": "either"}]}],
    }


def test_the_length_of_strings_that_a_step_made(serve: Serve, tmp_path: Path) -> None:
    server = serve(by_length(tmp_path, twice(tmp_path / "twice.onnx")))
    with Http(server.port) as http:
        for words, tag in ((["a", "bcd"], 1), (["a", "bcdefghijk"], 3)):
            given = {"words": web.Tensor("BYTES", (2,), [word.encode() for word in words])}
            answer = http.query(web.infer("whole", given))
            assert answer.outputs["tag"].data.tolist() == [tag] * 4


def test_a_step_that_makes_no_strings(serve: Serve, tmp_path: Path) -> None:
    """No rows at all, also in the Run on zeros at the start."""
    first = graphs.save(
        tmp_path / "first.onnx",
        [helper.make_node("Compress", ["words", "keep"], ["echoed"], axis=0)],
        [tensor("words", TensorProto.STRING, ["n"]), tensor("keep", TensorProto.BOOL, ["n"])],
        [tensor("echoed", TensorProto.STRING, ["m"])],
    )
    server = serve(by_length(tmp_path, str(first)))
    words = np.array(["a", "bcdefghijk"], object)
    with Client("127.0.0.1", server.port) as client:
        for keep, tags in (([1, 1], [3, 3]), ([0, 0], []), ([1, 0], [1])):
            asked = {"words": words, "keep": np.array(keep, bool)}
            assert client.infer("whole", asked).outputs["tag"].tolist() == tags


def shaped(path: Path) -> str:
    """x FLOAT [64], shape INT64 [r] -> as many of x as that shape has, in that shape."""
    nodes = [
        helper.make_node("ReduceProd", ["shape"], ["count"]),
        helper.make_node("Slice", ["x", "zero", "count"], ["some"]),
        helper.make_node("Reshape", ["some", "shape"], ["y"], allowzero=1),
    ]
    inputs = [tensor("x", FLOAT, [64]), tensor("shape", INT64, ["r"])]
    constants = {"zero": np.array([0], np.int64)}
    return str(graphs.save(path, nodes, inputs, [tensor("y", FLOAT, None)], constants))


SIXTY_FOUR = np.arange(64, dtype=np.float32)


@pytest.mark.parametrize(
    ("feature", "dims", "shape", "said"),
    [
        ("mean", ["n", 3], [2, 3], ""),
        ("mean", ["n", 3], [3, 2], "expected [3, 3], found [3, 2]"),
        ("edges", ["n", 3], [0, 3], ""),
        ("variance", ["n", 3], [2, 0], "expected [2, 3], found [2, 0]"),
        ("mean", ["n", 3], [6], "expected 2 dimensions, found 1"),
        ("mean", ["k", "k"], [2, 2], ""),
        ("mean", ["k", "k"], [2, 3], "expected [3, 3], found [2, 3]"),
        ("norm", ["n", "k"], [2, 0], ""),
        ("margin", ["n", "k"], [0, 2], ""),
    ],
)
def test_what_a_step_made_has_any_shape(
    serve: Serve, tmp_path: Path, feature: str, dims: graphs.Dims, shape: list[int], said: str
) -> None:
    settings = with_experts(tmp_path, {"feature": feature, "bound": 1e6}, dims)
    shaped(tmp_path / "before.onnx")
    server = serve(settings)
    asked = {"x": SIXTY_FOUR, "shape": np.array(shape, np.int64)}
    with Http(server.port) as http:
        answer = http.query(web.infer("whole", asked))
        if said:
            assert (answer.code, answer.error) == (400, f"step 1 ('either'): 'x': {said}")
        else:
            values = SIXTY_FOUR[: np.prod(shape)].reshape(shape)
            np.testing.assert_allclose(answer.array("y"), values + 1000)


def test_a_request_that_one_step_takes_and_the_experts_do_not(serve: Serve, tmp_path: Path) -> None:
    """The first step's x has any number of columns, theirs has three."""
    settings = with_experts(tmp_path, {"feature": "mean", "bound": 50}, ["n", 3])
    scaled(tmp_path / "before.onnx", 10, ["n", "k"], 1)
    settings["ensembles"][0]["steps"][1]["inputs"] = {"x": "x"}
    server = serve(settings)
    with Http(server.port) as http:
        for columns in (3, 2, 4):
            x = np.ones((2, columns), np.float32)
            answer = http.query(web.infer("whole", {"x": x}))
            if columns == 3:
                np.testing.assert_allclose(answer.array("y"), x + 1000)
            else:
                said = f"expected [2, 3], found [2, {columns}]"
                assert (answer.code, answer.error) == (400, f"step 1 ('either'): 'x': {said}")


def test_an_answer_that_is_judged_has_another_shape(serve: Serve, tmp_path: Path) -> None:
    """The lighter expert's graph declares three columns, and makes those that are not negative."""
    settings = with_experts(tmp_path, {"feature": "margin", "bound": 20}, ["n", 3])
    nodes = [
        helper.make_node("ReduceMin", ["x"], ["least"], axes=[0], keepdims=0),
        helper.make_node("GreaterOrEqual", ["least", "zero"], ["keep"]),
        helper.make_node("Compress", ["x", "keep"], ["y"], axis=1),
    ]
    shape = [tensor(name, FLOAT, ["n", 3]) for name in ("x", "y")]
    zero = {"zero": np.array(0, np.float32)}
    graphs.save(tmp_path / "light.onnx", nodes, shape[:1], shape[1:], zero)
    server = serve(settings)
    with Http(server.port) as http:
        x = np.array([[1, 2, 10]], np.float32)
        for sign in (1, -1):
            answer = http.query(web.infer("whole", {"x": sign * x}))
            if sign > 0:
                np.testing.assert_allclose(answer.array("y"), 10 * x + 1 + 1000)
            else:
                said = "expected [1, 3], found [1, 0]"
                assert (answer.code, answer.error) == (500, f"step 1 ('either'): 'y': {said}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"feature": "pixels", "bound": 5}, "feature pixels: expected models that take pictures"),
        ({"feature": "mean", "bound": 5}, ""),
    ],
)
def test_experts_that_cannot_be_a_step(
    cache: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    settings = with_experts(tmp_path, change, ["n", 3])
    settings["ensembles"].append({"name": "outer", "steps": [{"model": "whole"}]})
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(settings))
    done = run(["--config", str(config), "--check"], cache)
    assert done.returncode == 1
    names = "before, light, dense, after, either"
    expected = f"the name of a model or of experts ({names}), found 'whole', an ensemble"
    assert expected in done.stderr
    settings["ensembles"].pop()
    config.write_text(json.dumps(settings))
    done = run(["--config", str(config), "--check"], cache)
    assert (done.returncode == 1) == bool(said), done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("narrow", ["first", "second"])
def test_the_smallest_bound_of_the_steps_holds(serve: Serve, tmp_path: Path, narrow: str) -> None:
    """Rows and a free size: whichever step has the bound, a request beyond it is refused before any
    step runs, and one at the bound is answered."""
    shape = ["n", "k"]

    def negative(name: str) -> str:
        return str(
            graphs.save(
                tmp_path / f"{name}.onnx",
                [helper.make_node("Neg", ["x"], ["y"])],
                [tensor("x", FLOAT, shape)],
                [tensor("y", FLOAT, shape)],
            )
        )

    models = [
        {
            "name": name,
            "path": negative(name),
            "max_rows": 4 if name == narrow else 16,
            "max_dims": {"k": 6 if name == narrow else 20},
        }
        for name in ("first", "second")
    ]
    steps = [
        {"model": "first", "inputs": {"x": "a"}, "outputs": {"y": "b"}},
        {"model": "second", "inputs": {"x": "b"}, "outputs": {"y": "c"}},
    ]
    server = serve({"models": models, "ensembles": [{"name": "both", "steps": steps}]})
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        assert client.models()["both"].max_rows == 4
        for rows, size, code in ((4, 6, 200), (5, 6, 400), (4, 7, 400), (1, 20, 400), (16, 1, 400)):
            x = np.arange(rows * size, dtype=np.float32).reshape(rows, size)
            for binary in (True, False):
                answer = http.query(web.infer("both", {"a": x}, binary=binary))
                assert answer.code == code, (rows, size)
                if code == 200:
                    assert answer.array("c").tobytes() == x.tobytes()
            if code == 200:
                assert client.infer("both", {"a": x}).outputs["c"].tobytes() == x.tobytes()
            else:
                with pytest.raises(BadRequest):
                    client.infer("both", {"a": x})
    server.check_idle()
