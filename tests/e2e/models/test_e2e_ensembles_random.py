"""Random ensembles: experts behind a step that makes values of any rank, rows and sizes, or beside
one that takes the same tensor of the request, or whose graph declares another shape than it makes.
Each request gets the answer or a sentence, and the server stays up.

LUMEN_E2E_ROUNDS says how many servers (1); LUMEN_E2E_SEED repeats one.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import web
from conftest import Serve
from graphs import FLOAT, INT64, tensor
from onnx import TensorProto, helper
from web import Answer, Http, Tensor

pytestmark = pytest.mark.once  # what runs models is the same on both backends

SEED = int(os.environ.get("LUMEN_E2E_SEED", time.time_ns() % 2**32))
ROUNDS = int(os.environ.get("LUMEN_E2E_ROUNDS", "1"))
ENSEMBLES, REQUESTS = 5, 150
COUNT = 64  # of the values that a request brings
CASCADES = ("probability", "softmax", "margin")
STRING = TensorProto.STRING
# Shapes that experts declare: a name that stands twice, fixed sizes, the places of channels.
DECLARED: list[list[int | str]] = [
    ["n"], [3], ["n", 3], ["n", "k"], ["k", "k"], [2, "k"], ["n", "k", "k"], ["n", "k", 2, "k"],
    ["n", 3, "k", "c"], ["n", 2, "k", 3], [2, 2, 2, 2, 2],
]  # fmt: skip


class Whole:
    """One ensemble with its models, and its requests."""

    def __init__(self, folder: Path, name: str, random: np.random.Generator) -> None:
        self.name = name
        self.random = random
        self.folder = folder
        self.dims = DECLARED[random.integers(len(DECLARED))]
        self.is_text = bool(random.random() < 0.25)
        self.is_made = self.is_text or bool(random.random() < 0.7)
        self.lies = not self.is_text and bool(random.random() < 0.3)
        self.feature = "length" if self.is_text else str(random.choice(self.features()))
        self.models: list[dict[str, Any]] = []
        self.outputs: list[str] = []

    def features(self) -> list[str]:
        found = ["variance", "mean", "norm"]
        if len(self.dims) >= 2:
            found.append("edges")
            found.extend(CASCADES)
        if any(isinstance(dim, str) for dim in self.dims):
            found.append("size")
        return found

    def model(self, role: str, *graph: Any) -> str:
        name = f"{self.name}-{role}"
        path = graphs.save(self.folder / f"{name}.onnx", *graph)
        self.models.append({"name": name, "path": str(path)})
        return name

    def expert(self, role: str, sign: int) -> str:
        """y = x * sign; of one that lies, without the last ones where some are negative."""
        if self.is_text:
            nodes = [
                helper.make_node("Shape", ["x"], ["shape"]),
                helper.make_node("Expand", ["sign", "shape"], ["y"]),
            ]
            shapes = [tensor("x", STRING, self.dims), tensor("y", INT64, self.dims)]
            constants = {"sign": np.array([sign], np.int64)}
            return self.model(role, nodes, shapes[:1], shapes[1:], constants)
        nodes = [helper.make_node("Mul", ["x", "sign"], ["all" if self.lies else "y"])]
        axis = int(self.random.integers(len(self.dims)))
        constants = {"sign": np.array(sign, np.float32)}
        if self.lies:
            nodes += [
                helper.make_node("ReduceMin", ["x"], ["least"], keepdims=0),
                helper.make_node("Less", ["least", "zero"], ["some"]),
                helper.make_node("Where", ["some", "few", "many"], ["end"]),
                helper.make_node("Slice", ["all", "start", "end", "axis"], ["y"]),
            ]
            few = int(self.random.integers(2))
            ends = {"start": 0, "few": few, "many": 1 << 40, "axis": axis}
            constants |= {key: np.array([value], np.int64) for key, value in ends.items()}
            constants["zero"] = np.array(0, np.float32)
        made = list(self.dims)
        if self.lies and made[0] == "n" and self.random.random() < 0.5:
            made[0] = 1  # whatever the rows are
        shapes = [tensor("x", FLOAT, self.dims), tensor("y", FLOAT, made)]
        return self.model(role, nodes, shapes[:1], shapes[1:], constants)

    def before(self) -> str:
        """As many of x as the request's shape has, in that shape."""
        kind = STRING if self.is_text else FLOAT
        nodes = [
            helper.make_node("ReduceProd", ["shape"], ["count"]),
            helper.make_node("Slice", ["x", "zero", "count"], ["some"]),
            helper.make_node("Reshape", ["some", "shape"], ["y"], allowzero=1),
        ]
        inputs = [tensor("x", kind, [COUNT]), tensor("shape", INT64, ["r"])]
        zero = {"zero": np.array([0], np.int64)}
        return self.model("before", nodes, inputs, [tensor("y", kind, None)], zero)

    def beside(self) -> str:
        """Takes the experts' tensor with any sizes."""
        free = [f"p{d}" for d in range(len(self.dims))]
        nodes = [helper.make_node("Shape", ["x"], ["y"])]
        return self.model("beside", nodes, [tensor("x", FLOAT, free)], [tensor("y", INT64, None)])

    def after(self) -> str:
        dims = [dim if self.random.random() < 0.7 else f"a{d}" for d, dim in enumerate(self.dims)]
        kind = INT64 if self.is_text else FLOAT
        nodes = [helper.make_node("Identity", ["x"], ["y"])]
        return self.model("after", nodes, [tensor("x", kind, dims)], [tensor("y", kind, dims)])

    def experts(self) -> dict[str, Any]:
        word = "at_least" if self.feature in CASCADES else "below"
        bound = float(self.random.choice([0.5, 1, 2, 4, 20]))
        light, dense = self.expert("light", 1), self.expert("dense", -1)
        rule: dict[str, Any] = {"feature": self.feature}
        if self.feature == "size":
            rule["of"] = str(self.random.choice([dim for dim in self.dims if isinstance(dim, str)]))
        experts = [{"model": light, word: bound}, {"model": dense}]
        if self.dims[0] == "n" and "k" not in self.dims and not self.lies:
            rule["batch_size"] = int(self.random.choice([1, 4]))
        return {"name": f"{self.name}-either", "experts": experts, **rule}

    def ensemble(self) -> dict[str, Any]:
        first = self.before() if self.is_made else self.beside()
        steps: list[dict[str, Any]] = [
            {"model": first, "outputs": {"y": "middle"}},
            {
                "model": f"{self.name}-either",
                "inputs": {"x": "middle" if self.is_made else "x"},
                "outputs": {"y": "chosen"},
            },
        ]
        made = ["middle", "chosen"]
        if self.random.random() < 0.6:
            steps.append({"model": self.after(), "inputs": {"x": "chosen"}})
            made.append("y")
        taken = made[:-1] if self.is_made else made[1:-1]  # else nobody takes the first
        self.outputs = [name for name in made if name not in taken or self.random.random() < 0.4]
        return {"name": self.name, "steps": steps, "outputs": self.outputs}

    def shape(self, least: int) -> list[int]:
        """Often one that the experts declare, else any."""
        if self.random.random() < 0.15:
            rank = int(self.random.integers(1, 7)) if least == 0 else len(self.dims)
            any_size = [least, 1, 2, 3, 7] if least else [0, 1, 2, 3, -1, 1 << 33, 1 << 62]
            return [int(size) for size in self.random.choice(any_size, rank)]
        sizes = {name: int(self.random.integers(least, 4)) for name in "nkc"}
        shape = [sizes[dim] if isinstance(dim, str) else dim for dim in self.dims]
        if self.random.random() < 0.3:
            shape[self.random.integers(len(shape))] = int(self.random.integers(least, 5))
        return shape

    def values(self, count: int) -> np.ndarray:
        values = np.float32(self.random.integers(-3 * self.random.integers(2), 9, count))
        if self.random.random() < 0.1:
            values[self.random.integers(count)] = self.random.choice([np.nan, np.inf, -np.inf])
        return values

    def ask(self, http: Http) -> Answer:
        """The ensemble, or its experts alone."""
        is_whole = bool(self.random.random() < 0.8)
        is_made = self.is_made and is_whole
        shape = self.shape(0 if is_made else 1)
        count = COUNT if is_made else int(np.prod(shape))
        values = self.values(count).reshape([count] if is_made else shape)
        asked: dict[str, Tensor | np.ndarray] = {"x": values}
        if self.is_text:
            lengths = self.random.integers(0, 12, count)
            words = ["x" * int(length) for length in lengths]
            asked["x"] = web.strings(words, values.shape)
        if is_made:
            asked["shape"] = np.array(shape, np.int64)
        name = self.name if is_whole else f"{self.name}-either"
        outputs = self.outputs if is_whole else ["y"]
        form = self.random.choice(["binary", "binary", "json", "classes", "predict"])
        answer = http.query(self.request(name, outputs, str(form), asked))
        if answer.code != 200:
            assert answer.error
        elif not self.lies and form in ("binary", "json"):
            self.check(answer, shape, values.ravel())
        return answer

    def request(
        self, model: str, outputs: list[str], form: str, asked: dict[str, Tensor | np.ndarray]
    ) -> bytes:
        if form == "predict":
            inputs = {
                name: np.nan_to_num(one).tolist()
                if isinstance(one, np.ndarray)
                else [text.decode() for text in one.data]
                for name, one in asked.items()
            }
            body = json.dumps({"inputs": inputs}).encode()
            return web.post(f"/v1/models/{model}:predict", body)
        parameters: dict[str, Any] = {"binary_data": form == "binary"}
        if form == "classes":
            parameters["classification"] = int(self.random.integers(1, 5))
        wanted = [{"name": name, "parameters": parameters} for name in outputs]
        return web.infer(model, asked, outputs=wanted)

    def check(self, answer: Answer, shape: list[int], values: np.ndarray) -> None:
        for name, output in answer.outputs.items():
            if name == "middle" and not self.is_made:
                assert output.data.tolist() == shape
                continue
            assert len(output.shape) == len(shape)
            if min(shape) > 0 and np.prod(shape) <= COUNT:
                assert output.shape == tuple(shape)
            if not self.is_text:
                expected = values[: np.prod(output.shape)]
                np.testing.assert_array_equal(np.abs(output.data), np.abs(expected))


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_random_ensembles(serve: Serve, tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    wholes = [Whole(tmp_path, f"e{number}", random) for number in range(ENSEMBLES)]
    experts = [whole.experts() for whole in wholes]
    ensembles = [whole.ensemble() for whole in wholes]
    queue = str(random.choice(["auto", "mpmc", "inline"]))
    settings = {
        "engine": {"queue_type": queue, "thread_count": 1 if queue == "inline" else 2},
        "models": [model for whole in wholes for model in whole.models],
        "experts": experts,
        "ensembles": ensembles,
    }
    codes: Counter[int] = Counter()
    said = ""
    try:
        server = serve(settings)
        with Http(server.port) as http:
            for number in range(REQUESTS):
                whole = wholes[random.integers(len(wholes))]
                said = f"request {number} to {whole.name}, {whole.feature} of {whole.dims}"
                codes[whole.ask(http).code] += 1
    except BaseException:
        print(f"LUMEN_E2E_SEED={seed}: {said}")
        raise
    assert set(codes) <= {200, 400, 413, 500}, codes
    assert codes[200] > REQUESTS // 10, codes
