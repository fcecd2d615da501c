"""ONNX models made on the spot, each small and with answers that depend on the payload.

Used by conftest.py and tests. Opset 17 and IR 8, which every supported ONNX Runtime reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8
Dims = Sequence["int | str | None"]

# Triton's name, ONNX's element type, numpy's type on the wire (bfloat16 travels as its bits).
DTYPES = (
    ("BOOL", TensorProto.BOOL, "?"),
    ("UINT8", TensorProto.UINT8, "u1"),
    ("UINT16", TensorProto.UINT16, "<u2"),
    ("UINT32", TensorProto.UINT32, "<u4"),
    ("UINT64", TensorProto.UINT64, "<u8"),
    ("INT8", TensorProto.INT8, "i1"),
    ("INT16", TensorProto.INT16, "<i2"),
    ("INT32", TensorProto.INT32, "<i4"),
    ("INT64", TensorProto.INT64, "<i8"),
    ("FP16", TensorProto.FLOAT16, "<f2"),
    ("FP32", TensorProto.FLOAT, "<f4"),
    ("FP64", TensorProto.DOUBLE, "<f8"),
    ("BF16", TensorProto.BFLOAT16, "<u2"),
)
LOOP_SIZE = 96


def tensor(name: str, dtype: int, dims: Dims | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: dict[str, np.ndarray] | None = None,
) -> Path:
    initializers = [
        numpy_helper.from_array(array, name) for name, array in (constants or {}).items()
    ]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return path


def double(path: Path, columns: int = 16, rows: str | int = "n") -> Path:
    """y = x + x, FP32 [n, columns]."""
    return save(
        path,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [tensor("x", FLOAT, [rows, columns])],
        [tensor("y", FLOAT, [rows, columns])],
    )


def times(path: Path, factor: float) -> Path:
    """y = x * factor, FP32 [n, 16]: an answer says which of several versions gave it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return save(
        path,
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        [tensor("x", FLOAT, ["n", 16])],
        [tensor("y", FLOAT, ["n", 16])],
        {"factor": np.array(factor, np.float32)},
    )


def double_and_negative(path: Path, columns: int) -> Path:
    """y = x + x and z = -x, FP32 [n, columns]."""
    return save(
        path,
        [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])],
        [tensor("x", FLOAT, ["n", columns])],
        [tensor("y", FLOAT, ["n", columns]), tensor("z", FLOAT, ["n", columns])],
    )


def echo(path: Path) -> Path:
    """y = x, UINT8 [n]: a payload of any size is its own answer."""
    return save(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [tensor("x", UINT8, ["n"])],
        [tensor("y", UINT8, ["n"])],
    )


def tag(path: Path) -> Path:
    """y = 3 x + 1, INT64 [4], nothing free."""
    return save(
        path,
        [helper.make_node("Mul", ["x", "a"], ["t"]), helper.make_node("Add", ["t", "b"], ["y"])],
        [tensor("x", INT64, [4])],
        [tensor("y", INT64, [4])],
        {"a": np.array(3, np.int64), "b": np.array(1, np.int64)},
    )


def dtypes(path: Path) -> Path:
    """Every dtype of the protocol at once: 13 inputs [n, 3], each the output of the same number."""
    return save(
        path,
        [helper.make_node("Identity", [f"in_{d[0]}"], [f"out_{d[0]}"]) for d in DTYPES],
        [tensor(f"in_{d[0]}", d[1], ["n", 3]) for d in DTYPES],
        [tensor(f"out_{d[0]}", d[1], ["n", 3]) for d in DTYPES],
    )


def several(path: Path) -> Path:
    """a FP32 [n,4], k FP32 [3], b INT64 [n] -> a + b FP32 [n,4], sum of k FP32 [], b INT64 [n]."""
    return save(
        path,
        [
            helper.make_node("Cast", ["b"], ["f"], to=FLOAT),
            helper.make_node("Unsqueeze", ["f", "one"], ["u"]),
            helper.make_node("Add", ["a", "u"], ["sum"]),
            helper.make_node("ReduceSum", ["k"], ["total"], keepdims=0),
            helper.make_node("Identity", ["b"], ["same"]),
        ],
        [tensor("a", FLOAT, ["n", 4]), tensor("k", FLOAT, [3]), tensor("b", INT64, ["n"])],
        [tensor("sum", FLOAT, ["n", 4]), tensor("total", FLOAT, []), tensor("same", INT64, ["n"])],
        {"one": np.array([1], np.int64)},
    )


def scalar(path: Path) -> Path:
    """y = x * x, both of rank 0."""
    return save(
        path,
        [helper.make_node("Mul", ["x", "x"], ["y"])],
        [tensor("x", FLOAT, [])],
        [tensor("y", FLOAT, [])],
    )


def nonzero(path: Path, columns: int) -> Path:
    """where INT64 [2, ?] (known only after the run) and twice FP32 [1, columns]."""
    return save(
        path,
        [
            helper.make_node("NonZero", ["x"], ["where"]),
            helper.make_node("Add", ["x", "x"], ["twice"]),
        ],
        [tensor("x", FLOAT, [1, columns])],
        [tensor("where", INT64, [2, "k"]), tensor("twice", FLOAT, [1, columns])],
    )


def reshape(path: Path) -> Path:
    """x FP32 [12] in the shape that the second input asks for."""
    return save(
        path,
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        [tensor("x", FLOAT, [12]), tensor("shape", INT64, [3])],
        [tensor("y", FLOAT, ["a", "b", "c"])],
    )


def rankless(path: Path) -> Path:
    """An output whose rank only the run knows: [6] or [2,3]."""
    branches = []
    for name, shape in (("flat", [6]), ("table", [2, 3])):
        branches.append(
            helper.make_graph(
                [helper.make_node("Reshape", ["x", f"{name}_shape"], [f"{name}_y"])],
                name,
                [],
                [tensor(f"{name}_y", FLOAT, None)],
                [numpy_helper.from_array(np.array(shape, np.int64), f"{name}_shape")],
            )
        )
    node = helper.make_node(
        "If", ["is_flat"], ["y"], then_branch=branches[0], else_branch=branches[1]
    )
    return save(
        path,
        [node],
        [tensor("x", FLOAT, [6]), tensor("is_flat", TensorProto.BOOL, [])],
        [tensor("y", FLOAT, None)],
    )


def large(path: Path, columns: int) -> Path:
    """A reply much larger than its request: x FP32 [1] repeated over [1, columns]."""
    return save(
        path,
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        [tensor("x", FLOAT, [1])],
        [tensor("y", FLOAT, [1, columns])],
        {"shape": np.array([1, columns], np.int64)},
    )


def gather_rows(path: Path) -> Path:
    """x INT64 [n] -> y FP32 [n]: 10 + x for x of 0 to 4; fails for any other index."""
    return save(
        path,
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        [tensor("x", INT64, ["n"])],
        [tensor("y", FLOAT, ["n"])],
        {"table": np.arange(10, 15, dtype=np.float32)},
    )


def gather(path: Path) -> Path:
    """y = [10, 20, 30, 40][x]: an index out of range fails in the run."""
    return save(
        path,
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        [tensor("x", INT64, [1])],
        [tensor("y", INT64, [1])],
        {"table": np.array([10, 20, 30, 40], np.int64)},
    )


def slow(path: Path) -> Path:
    """x INT64 [1] -> y = 2 x, after x products of 96 x 96 matrices: as slow as one asks."""
    return save(
        path,
        [
            helper.make_node("Squeeze", ["x", "zero"], ["trips"]),
            *_products(),
            helper.make_node("Mul", ["x", "two"], ["y"]),
        ],
        [tensor("x", INT64, [1])],
        [tensor("y", INT64, [1])],
        _PRODUCTS,
    )


def slow_sums(path: Path) -> Path:
    """x INT64 [1], s INT64 [1] -> y = s + x, and the same as s_next; as slow as `slow`."""
    return save(
        path,
        [
            helper.make_node("Squeeze", ["x", "zero"], ["trips"]),
            *_products(),
            helper.make_node("Add", ["s", "x"], ["y"]),
            helper.make_node("Identity", ["y"], ["s_next"]),
        ],
        [tensor("x", INT64, [1]), tensor("s", INT64, [1])],
        [tensor("y", INT64, [1]), tensor("s_next", INT64, [1])],
        _PRODUCTS,
    )


def slow_pairs(path: Path) -> Path:
    """x INT64 [n], a FP32 [n,3] -> d = 2 a FP32 [n,3], y = 2 x INT64 [n]; as slow as the largest x
    makes it."""
    return save(
        path,
        [
            helper.make_node("ReduceMax", ["x"], ["trips"], keepdims=0),
            *_products(),
            helper.make_node("Add", ["a", "a"], ["d"]),
            helper.make_node("Mul", ["x", "two"], ["y"]),
        ],
        [tensor("x", INT64, ["n"]), tensor("a", FLOAT, ["n", 3])],
        [tensor("d", FLOAT, ["n", 3]), tensor("y", INT64, ["n"])],
        _PRODUCTS,
    )


def slow_nonzero(path: Path) -> Path:
    """x INT64 [1], v FP32 [6] -> where v is not 0, INT64 [1,?], as slow as `slow`, y = 2 x."""
    return save(
        path,
        [
            helper.make_node("Squeeze", ["x", "zero"], ["trips"]),
            *_products(),
            helper.make_node("NonZero", ["v"], ["where"]),
            helper.make_node("Mul", ["x", "two"], ["y"]),
        ],
        [tensor("x", INT64, [1]), tensor("v", FLOAT, [6])],
        [tensor("where", INT64, [1, "k"]), tensor("y", INT64, [1])],
        _PRODUCTS,
    )


_PRODUCTS = {
    "zero": np.array([0], np.int64),
    "eye": np.eye(LOOP_SIZE, dtype=np.float32),
    "start": np.eye(LOOP_SIZE, dtype=np.float32),
}


def _products() -> list[onnx.NodeProto]:
    """Multiplies `trips` times and makes `two` of what comes out."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["m_in", "eye"], ["m_out"]),
            helper.make_node("Identity", ["go_on"], ["go_on_out"]),
        ],
        "body",
        [
            tensor("i", INT64, []),
            tensor("go_on", TensorProto.BOOL, []),
            tensor("m_in", FLOAT, [LOOP_SIZE, LOOP_SIZE]),
        ],
        [tensor("go_on_out", TensorProto.BOOL, []), tensor("m_out", FLOAT, [LOOP_SIZE, LOOP_SIZE])],
    )
    return [
        helper.make_node("Loop", ["trips", "", "start"], ["end"], body=body),
        # The product of identities is one: its corner keeps the loop in the graph.
        helper.make_node("ReduceMax", ["end"], ["one"], keepdims=0),
        helper.make_node("Cast", ["one"], ["one_i"], to=INT64),
        helper.make_node("Add", ["one_i", "one_i"], ["two"]),
    ]


def slow_and_large(path: Path, columns: int) -> Path:
    """As `slow`, with a second input FP32 [columns] whose largest value is the second output."""
    model = onnx.load(str(slow(path)))
    model.graph.input.append(tensor("pad", FLOAT, [columns]))
    model.graph.node.append(helper.make_node("ReduceMax", ["pad"], ["top"], keepdims=1))
    model.graph.output.append(tensor("top", FLOAT, [1]))
    onnx.save(model, str(path))
    return path


def image(path: Path, dtype: int, shape: Dims) -> Path:
    """The picture's tensor as the model would see it."""
    return save(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [tensor("x", dtype, shape)],
        [tensor("y", dtype, shape)],
    )
