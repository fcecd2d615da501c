"""Small graphs whose time a value in a request decides: what must not run on an I/O thread.

Used by bench/load/deaf.py, which measures what others notice, and by
tests/e2e/models/test_e2e_bounded.py, which looks at who runs them. On zeros each takes some
microseconds; one request of 100 bytes makes it take seconds. Opset 17 and IR 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper, save

Array = npt.NDArray[Any]
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING

_CONSTANTS: Final = {
    "zero": np.array([0], np.int64),
    "start": np.array(0, np.int64),
    "step": np.array(1, np.int64),
    "one": np.array([1.0], np.float32),
    "pixel": np.ones((1, 1, 1, 1), np.float32),
    "pair": np.array([1, 1], np.int64),
    "values": np.array([0.0, 1.0], np.float32),
    "many": np.array([100_000_000], np.int64),
    "true": np.array(True),
    "matrix": np.full((64, 64), 0.1, np.float32),
    "ten": np.array([10], np.int64),
    "half": np.array([0.99], np.float32),
}


@dataclass(frozen=True, slots=True)
class Adversary:
    """One model: what its graph is named after, and what a request makes it do.

    `size` of a request to worst() is how much of it there is to be done: elements or turns.
    """

    name: str
    operator: str  # for which the workers run it
    nodes: Callable[[], list[NodeProto]]
    inputs: tuple[tuple[str, int, tuple[int | str, ...]], ...]
    worst: Callable[[int], dict[str, Array]]
    size: int  # that takes long, and little memory

    def write(self, path: Path) -> Path:
        """Writes the model; its output `y` has one number."""
        nodes = self.nodes()
        used = {name for node in nodes for name in node.input}
        used |= {name for node in nodes for name in _inner_names(node)}
        graph = helper.make_graph(
            nodes,
            self.name,
            [helper.make_tensor_value_info(*one) for one in self.inputs],
            [helper.make_tensor_value_info("y", _type_of(self.name), None)],
            [numpy_helper.from_array(a, n) for n, a in _CONSTANTS.items() if n in used],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        save(model, str(path))
        return path


def _type_of(name: str) -> int:
    return {"range": INT64, "strings": STRING}.get(name, FLOAT)


def _inner_names(node: NodeProto) -> list[str]:
    graphs = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return [name for graph in graphs for inner in graph.node for name in inner.input]


def _make(operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, list(inputs), [output], **attributes)


def _summed(*nodes: NodeProto) -> list[NodeProto]:
    return [*nodes, _make("ReduceSum", ["t"], "y", keepdims=0)]


def _info(name: str, dtype: int, dims: Sequence[int | str] | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def _range() -> list[NodeProto]:
    squeezed = _make("Squeeze", ["n", "zero"], "end")
    return _summed(squeezed, _make("Range", ["start", "end", "step"], "t"))


def _nonzero() -> list[NodeProto]:
    made = _make("ConstantOfShape", ["n"], "s", value=helper.make_tensor("v", FLOAT, [1], [1.0]))
    return _summed(made, _make("NonZero", ["s"], "w"), _make("Cast", ["w"], "t", to=FLOAT))


def _resize() -> list[NodeProto]:
    sizes = _make("Concat", ["pair", "n"], "sizes", axis=0)
    return _summed(sizes, _make("Resize", ["pixel", "", "", "sizes"], "t", mode="nearest"))


def _graph(
    name: str, nodes: list[NodeProto], inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]
) -> GraphProto:
    return helper.make_graph(nodes, name, inputs, outputs)


def _loop() -> list[NodeProto]:
    body = _graph(
        "turn",
        [_make("Identity", ["go"], "goes"), _make("MatMul", ["m", "matrix"], "made")],
        [_info("at", INT64, []), _info("go", TensorProto.BOOL, []), _info("m", FLOAT, [64, 64])],
        [_info("goes", TensorProto.BOOL, []), _info("made", FLOAT, [64, 64])],
    )
    squeezed = _make("Squeeze", ["n", "zero"], "trips")
    return _summed(squeezed, _make("Loop", ["trips", "true", "matrix"], "t", body=body))


def _scan() -> list[NodeProto]:
    body = _graph(
        "turn",
        [_make("Add", ["sum", "x"], "next")],
        [_info("sum", FLOAT, []), _info("x", FLOAT, [])],
        [_info("next", FLOAT, [])],
    )
    first = _make("Cast", ["start"], "begun", to=FLOAT)
    return [first, _make("Scan", ["begun", "n"], "y", body=body, num_scan_inputs=1)]


def _if() -> list[NodeProto]:
    """Large where the request says so."""
    shape = [_info("y1", FLOAT, [])]
    large = [
        _make("Expand", ["x", "many"], "wide"),
        _make("ReduceSum", ["wide"], "y1", keepdims=0),
    ]
    small = [_make("ReduceSum", ["x"], "y1", keepdims=0)]
    asked = _make("Cast", ["n"], "flags", to=TensorProto.BOOL)
    squeezed = _make("Squeeze", ["flags", "zero"], "flag")
    chosen = _make(
        "If",
        ["flag"],
        "y",
        then_branch=_graph("large", large, [], shape),
        else_branch=_graph("small", small, [], shape),
    )
    return [asked, squeezed, _make("Cast", ["n"], "x", to=FLOAT), chosen]


def _suppression() -> list[NodeProto]:
    """As many boxes are kept, and compared with each other, as do not overlap."""
    return _summed(
        _make("NonMaxSuppression", ["boxes", "scores", "many", "half"], "kept"),
        _make("Cast", ["kept"], "t", to=FLOAT),
    )


def _boxes(count: int) -> dict[str, Array]:
    corner = np.arange(count, dtype=np.float32).reshape(1, count, 1) * 2
    boxes = np.concatenate([corner, corner, corner + 1, corner + 1], axis=2)
    return {"boxes": boxes, "scores": np.ones((1, 1, count), np.float32)}


def _count(count: int) -> dict[str, Array]:
    return {"n": np.array([count], np.int64)}


_N: Final = (("n", INT64, (1,)),)

ADVERSARIES: Final = (
    Adversary("range", "Range", _range, _N, _count, 200_000_000),
    Adversary(
        "tile",
        "Tile",
        lambda: _summed(_make("Tile", ["one", "n"], "t")),
        _N,
        _count,
        200_000_000,
    ),
    Adversary(
        "expand",
        "Expand",
        lambda: _summed(_make("Expand", ["one", "n"], "t")),
        _N,
        _count,
        200_000_000,
    ),
    Adversary("nonzero", "ConstantOfShape", _nonzero, _N, _count, 50_000_000),
    Adversary(
        "resize",
        "Resize",
        _resize,
        (("n", INT64, (2,)),),
        lambda size: {"n": np.array([1 + size // 1000, min(size, 1000)], np.int64)},
        100_000_000,
    ),
    Adversary(
        "pad",
        "Pad",
        lambda: _summed(_make("Pad", ["one", "n"], "t")),
        (("n", INT64, (2,)),),
        lambda size: {"n": np.array([0, size], np.int64)},
        200_000_000,
    ),
    Adversary(
        "onehot",
        "OneHot",
        lambda: _summed(_make("OneHot", ["zero", "n", "values"], "t")),
        _N,
        _count,
        200_000_000,
    ),
    Adversary("loop", "Loop", _loop, _N, _count, 100_000),
    Adversary(
        "scan",
        "Scan",
        _scan,
        (("n", FLOAT, ("length",)),),
        lambda size: {"n": np.ones(size, np.float32)},
        100_000,
    ),
    Adversary("if", "If", _if, _N, lambda size: _count(int(size > 1)), 2),
    Adversary(
        "suppression",
        "NonMaxSuppression",
        _suppression,
        (("boxes", FLOAT, (1, "count", 4)), ("scores", FLOAT, (1, 1, "count"))),
        _boxes,
        4000,
    ),
    Adversary(
        "strings",
        "StringNormalizer",
        lambda: [_make("StringNormalizer", ["n"], "y", case_change_action="UPPER", locale="C")],
        (("n", STRING, ("count",)),),
        lambda size: {"n": np.array(["x" * size] * 4, np.object_)},
        1_000_000,
    ),
)

# In a server's list of models: what is warmed with its largest size is not to take for ever.
SETTINGS: Final[dict[str, dict[str, object]]] = {
    "scan": {"max_dims": {"length": 100_000}},
    "suppression": {"max_dims": {"count": 4000}},
    "strings": {"max_rows": 64},
}
