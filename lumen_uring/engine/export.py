"""Reads from an ONNX graph what a native engine can run: a chain of dense layers, or one ensemble
of trees.

Called by engine/cache.py at start, on the main thread. What a reshape does to the rows is not
followed here: at start the engine's answers are compared with ONNX Runtime's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lumen_uring.engine import trees as engine_trees
from lumen_uring.engine.file import LINEAR, SCALE, Layer, Network
from lumen_uring.engine.trees import NotSuitedError

if TYPE_CHECKING:
    import onnx

_FLOAT, _INT64 = 1, 7
# They leave a row's elements as they are.
_PASSED: Final = {"Identity", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Dropout"}
_ACTIVATED: Final = {"Relu", "Sigmoid", "Tanh", "Softmax"}
_TREES: Final = {"TreeEnsembleClassifier", "TreeEnsembleRegressor"}


def network(path: Path) -> Network:
    """Reads a model.

    Args:
        path: of an ONNX file that holds its weights itself.

    Raises:
        NotSuitedError: a native engine does not run it; the message says why.
    """
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception:  # protobuf has errors of its own
        raise NotSuitedError("it is not in ONNX's own format") from None
    try:
        return _Reader(model.graph).read()
    except NotSuitedError:
        raise
    except Exception as error:  # a graph may be anything; ONNX Runtime says what is wrong with it
        raise NotSuitedError(f"its graph could not be read: {error!r}") from None


class _Reader:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._outputs = {output.name: i for i, output in enumerate(graph.output)}
        self._users: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            if node.op_type == "Constant":
                # A number or a list that is no tensor is none that a layer has: `value` is missing.
                self._constants[node.output[0]] = self._attributes(node).get("value")
                continue
            for name in node.input:
                self._users.setdefault(name, []).append(node)
        self._inputs = [value for value in graph.input if value.name not in self._constants]
        self._seen = sum(node.op_type != "Constant" for node in graph.node)

    def read(self) -> Network:
        if len(self._inputs) != 1:
            raise NotSuitedError(f"it has {len(self._inputs)} inputs")
        (first,) = self._inputs
        kind = first.type.tensor_type
        if kind.elem_type != _FLOAT:
            raise NotSuitedError("its input is not float32")
        dims = [dim.dim_value for dim in kind.shape.dim]
        if len(dims) < 2 or 0 in dims[1:]:
            raise NotSuitedError("the elements of an input's row are not known")
        found = Network(inputs=int(np.prod(dims[1:])))
        at = first.name
        users = self._users.get(at, [])
        while len(users) == 1 and self._passes(users[0], _FLOAT):
            at = self._pass(users[0])
            users = self._users.get(at, [])
        if len(users) == 1 and users[0].op_type in _TREES:
            self._read_trees(users[0], found)
        else:
            self._read_layers(at, found)
        if self._seen:
            raise NotSuitedError("its graph has branches")
        if len(self._outputs) != sum(
            output is not None for output in (found.score_output, found.label_output)
        ):
            raise NotSuitedError("it has outputs beside scores and labels")
        return found

    # ---- the graph ----

    def _attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        from onnx import helper

        found: dict[str, Any] = {}
        for attribute in node.attribute:
            value = helper.get_attribute_value(attribute)
            if isinstance(value, bytes):
                value = value.decode("utf-8", "replace")
            elif isinstance(value, list) and value and isinstance(value[0], bytes):
                value = [text.decode("utf-8", "replace") for text in value]
            found[attribute.name] = value
        return found

    def _constant(self, name: str) -> np.ndarray[Any, Any] | None:
        from onnx import numpy_helper

        tensor = self._constants.get(name)
        if tensor is None:
            return None
        if tensor.data_location:
            raise NotSuitedError("its weights lie in another file")
        return np.asarray(numpy_helper.to_array(tensor))

    def _passes(self, node: onnx.NodeProto, kind: int) -> bool:
        if node.op_type == "Cast":
            return bool(self._attributes(node)["to"] == kind)
        return node.op_type in _PASSED

    def _pass(self, node: onnx.NodeProto) -> str:
        self._seen -= 1
        return str(node.output[0])

    def _follow(self, at: str, kind: int) -> int:
        """The output that a tensor becomes without a change of its elements."""
        while at not in self._outputs:
            users = self._users.get(at, [])
            if len(users) != 1:
                raise NotSuitedError("its graph has branches")
            (node,) = users
            if not self._passes(node, kind) and not self._multiplies_by_one(node):
                raise NotSuitedError(f"{node.op_type} comes behind its {_noun(kind)}")
            at = self._pass(node)
        return self._outputs[at]

    def _multiplies_by_one(self, node: onnx.NodeProto) -> bool:
        """As LightGBM's converter does."""
        if node.op_type != "Mul" or len(node.input) != 2:
            return False
        factors = [self._constant(name) for name in node.input]
        return any(factor is not None and bool(np.all(factor == 1)) for factor in factors)

    # ---- dense layers ----

    def _read_layers(self, at: str, found: Network) -> None:
        while True:
            users = self._users.get(at, [])
            if at in self._outputs:
                found.score_output = self._outputs[at]
            labelled = [node for node in users if node.op_type == "ArgMax"]
            others = [node for node in users if node.op_type != "ArgMax"]
            if labelled:
                self._read_label(labelled[0], found)
            if not others:
                break
            if len(others) == 2 and {node.op_type for node in others} == {"Sub", "Concat"}:
                at = self._two_classes(at, others, found)
            elif len(others) == 1 and len(labelled) < 2 and found.score_output is None:
                at = self._layer(at, others[0], found)
            else:
                raise NotSuitedError("its graph has branches")
        if not found.layers:
            raise NotSuitedError("it has no dense layer")
        width = 2 if found.binary else found.layers[-1].bias.shape[0]
        if found.label_output is not None and not found.labels:
            found.labels = list(range(width))
        if len(found.labels) not in (0, width):
            raise NotSuitedError("its classes are not as many as its scores")

    def _layer(self, at: str, node: onnx.NodeProto, found: Network) -> str:
        if self._passes(node, _FLOAT):
            return self._pass(node)
        last = found.layers[-1] if found.layers else None
        if node.op_type in ("MatMul", "Gemm") and node.input[0] == at:
            found.layers.append(self._linear(node, found))
        elif node.op_type == "Add" and last and last.kind == LINEAR and not last.activation:
            names = [name for name in node.input if name != at]
            bias = self._constant(names[0]) if len(names) == 1 else None
            if bias is None or bias.size not in (1, last.bias.shape[0]):
                raise NotSuitedError("Add has no bias")
            last.bias = last.bias + bias.astype(np.float32).reshape(-1)
        elif node.op_type in _ACTIVATED and last and last.kind == LINEAR and not last.activation:
            last.activation = node.op_type
        elif node.op_type == "Scaler":
            found.layers.append(self._scaler(node, found))
        else:
            raise NotSuitedError(f"{node.op_type} is none of its operators, or not at this place")
        return self._pass(node)

    def _width(self, found: Network) -> int:
        return int(found.layers[-1].bias.shape[0]) if found.layers else found.inputs

    def _linear(self, node: onnx.NodeProto, found: Network) -> Layer:
        weights = self._constant(node.input[1])
        if weights is None or weights.ndim != 2 or weights.dtype != np.float32:
            raise NotSuitedError(f"{node.op_type} has no matrix of float32 weights")
        bias = None
        if node.op_type == "Gemm":
            settings = self._attributes(node)
            if settings.get("transA"):
                raise NotSuitedError("Gemm turns its input")
            weights = weights.T if settings.get("transB") else weights
            weights = weights * np.float32(settings.get("alpha", 1.0))
            if len(node.input) > 2 and node.input[2]:
                bias = self._constant(node.input[2])
                if bias is None or bias.size not in (1, weights.shape[1]):
                    raise NotSuitedError("Gemm has no constant bias")
                bias = bias.astype(np.float32).reshape(-1) * np.float32(settings.get("beta", 1.0))
        if weights.shape[0] != self._width(found):
            raise NotSuitedError("a matrix does not fit the row before it")
        whole = np.zeros(weights.shape[1], np.float32)
        return Layer(LINEAR, weights, whole if bias is None else whole + bias)

    def _scaler(self, node: onnx.NodeProto, found: Network) -> Layer:
        settings, width = self._attributes(node), self._width(found)
        offset, scale = (
            np.broadcast_to(np.asarray(settings.get(name, [default]), np.float32), width)
            for name, default in (("offset", 0.0), ("scale", 1.0))
        )
        return Layer(SCALE, np.array(offset), np.array(scale))

    def _two_classes(self, at: str, users: list[onnx.NodeProto], found: Network) -> str:
        """scikit-learn's two classes: 1 - p beside p."""
        subtract, join = sorted(users, key=lambda node: node.op_type == "Concat")
        one = self._constant(subtract.input[0])
        if (
            one is None
            or not bool(np.all(one == 1))
            or list(join.input) != [subtract.output[0], at]
            or self._width(found) != 1
        ):
            raise NotSuitedError("its graph has branches")
        found.binary = True
        self._pass(subtract)
        return self._pass(join)

    def _read_label(self, node: onnx.NodeProto, found: Network) -> None:
        settings = self._attributes(node)
        if settings.get("select_last_index") or settings.get("axis", 0) not in (1, -1):
            raise NotSuitedError("ArgMax does not look for the first class of a row")
        at = self._pass(node)
        users = self._users.get(at, [])
        if len(users) == 1 and users[0].op_type == "ArrayFeatureExtractor":
            classes = self._constant(users[0].input[0])
            if classes is None or not np.issubdtype(classes.dtype, np.integer):
                raise NotSuitedError("its labels are strings")
            found.labels = [int(label) for label in classes.reshape(-1)]
            at = self._pass(users[0])
        # Older converters cast the classes to other types of whole numbers between.
        found.label_output = self._follow(at, _INT64)

    # ---- trees ----

    def _read_trees(self, node: onnx.NodeProto, found: Network) -> None:
        classifier = node.op_type == "TreeEnsembleClassifier"
        settings = self._attributes(node)
        found.forest = engine_trees.read(settings, classifier)
        self._seen -= 1
        scores = node.output[1 if classifier else 0]
        found.score_output = self._follow(scores, _FLOAT) if self._used(scores) else None
        if classifier:
            found.labels = list(settings["classlabels_int64s"])
            if found.forest.targets == 2 and not found.forest.binary:
                found.labels = [0, 1]  # ONNX Runtime's, whatever the classes are called
            label = node.output[0]
            found.label_output = self._follow(label, _INT64) if self._used(label) else None

    def _used(self, name: str) -> bool:
        return name in self._outputs or name in self._users


def _noun(kind: int) -> str:
    return "labels" if kind == _INT64 else "scores"
