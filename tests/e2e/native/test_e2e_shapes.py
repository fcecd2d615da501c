"""Random shapes over every way to ask: each answer is ONNX Runtime's own to the bit.

A BERT-shaped encoder (tokens, mask; batch and sequence free) and a segmentation of pictures of any
height and width. LUMEN_E2E_SHAPES=1000 is the long form: as many shapes, of an encoder of 12 layers
and a hidden size of 384; it prints the server's resident memory.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import web
from conftest import Serve
from graphs import FLOAT, INT64, tensor
from onnx import helper
from web import Http

from lumen_uring import Client

pytestmark = pytest.mark.once  # what runs models is the same on both backends

SHAPES = int(os.environ.get("LUMEN_E2E_SHAPES", "0"))
LAYERS, HIDDEN, HEADS = (12, 384, 12) if SHAPES else (2, 32, 2)
TOKENS = 1000
Arrays = dict[str, np.ndarray]


class Encoder:
    """Nodes and weights of a transformer's encoder, put together."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: Arrays = {
            "heads": np.array([0, 0, HEADS, HIDDEN // HEADS], np.int64),
            "joined": np.array([0, 0, HIDDEN], np.int64),
            "root": np.array((HIDDEN // HEADS) ** -0.5, np.float32),
            "one": np.array(1, np.float32),
            "far": np.array(-1e4, np.float32),
            "axes": np.array([1, 2], np.int64),
            "half": np.array(0.5, np.float32),
            "sqrt2": np.array(2**0.5, np.float32),
        }
        self.random = np.random.default_rng(21)
        self.count = 0

    def add(self, kind: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:
        self.count += 1
        name = to or f"t{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        self.count += 1
        values = self.random.standard_normal(shape) * 0.5 / shape[0] ** 0.5
        self.constants[f"w{self.count}"] = values.astype(np.float32)
        return f"w{self.count}"

    def linear(self, x: str, wide: int, out: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(wide, out)), self.weight(out))

    def norm(self, x: str) -> str:
        return self.add("LayerNormalization", x, self.weight(HIDDEN), self.weight(HIDDEN), axis=-1)

    def heads(self, x: str, perm: list[int]) -> str:
        split = self.add("Reshape", self.linear(x, HIDDEN, HIDDEN), "heads")
        return self.add("Transpose", split, perm=perm)

    def layer(self, x: str, mask: str) -> str:
        query, key = self.heads(x, [0, 2, 1, 3]), self.heads(x, [0, 2, 3, 1])
        scores = self.add("Mul", self.add("MatMul", query, key), "root")
        weights = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        mixed = self.add("MatMul", weights, self.heads(x, [0, 2, 1, 3]))
        joined = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), "joined")
        x = self.norm(self.add("Add", x, self.linear(joined, HIDDEN, HIDDEN)))
        inner = self.linear(x, HIDDEN, 4 * HIDDEN)
        erf = self.add("Add", self.add("Erf", self.add("Div", inner, "sqrt2")), "one")
        gelu = self.add("Mul", self.add("Mul", inner, erf), "half")
        return self.norm(self.add("Add", x, self.linear(gelu, 4 * HIDDEN, HIDDEN)))


def encoder(path: Path) -> Path:
    made, ids = Encoder(), ["batch_size", "sequence_length"]
    made.nodes.append(helper.make_node("Cast", ["attention_mask"], ["mask"], to=FLOAT))
    mask = made.add("Mul", made.add("Sub", "one", "mask"), "far")
    mask = made.add("Unsqueeze", mask, "axes")
    x = made.norm(made.add("Gather", made.weight(TOKENS, HIDDEN), "input_ids"))
    for _ in range(LAYERS):
        x = made.layer(x, mask)
    made.add("Identity", x, to="last_hidden_state")
    return graphs.save(
        path,
        made.nodes,
        [tensor("input_ids", INT64, ids), tensor("attention_mask", INT64, ids)],
        [tensor("last_hidden_state", FLOAT, [*ids, HIDDEN])],
        made.constants,
    )


def segmentation(path: Path) -> Path:
    """Pictures FP32 [n, 3, height, width] -> two classes per pixel, through eight channels."""
    random = np.random.default_rng(8)
    sizes: list[int | str] = ["n", 3, "height", "width"]
    return graphs.save(
        path,
        [
            helper.make_node("Conv", ["picture", "first"], ["wide"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["wide"], ["kept"]),
            helper.make_node("Conv", ["kept", "second"], ["classes"], pads=[1, 1, 1, 1]),
        ],
        [tensor("picture", FLOAT, sizes)],
        [tensor("classes", FLOAT, ["n", 2, "height", "width"])],
        {
            "first": random.standard_normal((8, 3, 3, 3)).astype(np.float32),
            "second": random.standard_normal((2, 8, 3, 3)).astype(np.float32),
        },
    )


def sentences(random: np.random.Generator) -> Arrays:
    shape = int(random.integers(1, 4)), int(random.integers(1, 33))
    return {
        "input_ids": random.integers(0, TOKENS, shape),
        "attention_mask": (random.random(shape) < 0.9).astype(np.int64),
    }


def pictures(random: np.random.Generator) -> Arrays:
    shape = int(random.integers(1, 3)), 3, *(int(size) for size in random.integers(1, 41, 2))
    return {"picture": random.standard_normal(shape).astype(np.float32)}


def rows_of(arrays: Arrays) -> list[dict[str, Any]]:
    count = len(next(iter(arrays.values())))
    return [{name: array[row].tolist() for name, array in arrays.items()} for row in range(count)]


def four_ways(http: Http, native: Client, model: str, name: str, arrays: Arrays) -> Arrays:
    """The one output as each way to ask gives it."""
    body = json.dumps({"instances": rows_of(arrays)}).encode()
    rows = http.query(web.post(f"/v1/models/{model}:predict", body)).json()["predictions"]
    return {
        "native": native.infer(model, arrays).outputs[name],
        "HTTP binary": http.query(web.infer(model, arrays)).array(name),
        "HTTP JSON": http.query(web.infer(model, arrays, binary=False, nested=True)).array(name),
        "v1": np.array(rows, np.float32),
    }


@pytest.mark.parametrize(
    ("make", "draw"), [(encoder, sentences), (segmentation, pictures)], ids=["encoder", "pictures"]
)
def test_random_shapes(serve: Serve, tmp_path: Path, make: Any, draw: Any) -> None:
    path = make(tmp_path / "m.onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options)
    name = session.get_outputs()[0].name
    random = np.random.default_rng(31)
    server = serve({"models": [{"name": "m", "path": str(path)}]})
    marks = []
    with Http(server.port) as http, Client("127.0.0.1", server.port) as native:
        for number in range(SHAPES or 12):
            if number % max(SHAPES // 10, 1) == 0:
                marks.append(server.rss_bytes / 1e6)
            arrays = draw(random)
            (expected,) = session.run(None, arrays)
            for way, found in four_ways(http, native, "m", name, arrays).items():
                assert found.shape == expected.shape, (way, number)
                assert found.tobytes() == expected.tobytes(), (way, number, found - expected)
        marks.append(server.rss_bytes / 1e6)
    if SHAPES:
        print(f"{make.__name__}: {SHAPES} shapes, RSS {' '.join(f'{m:.0f}' for m in marks)} MB")
