"""Whether a model's weights are integers that are computed as floats: small on disk, and no faster.

Called by inspection.py, on the main thread: it parses the whole graph, which no server does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import onnx

_FILE_BYTES_MAX: Final = 1 << 30  # parsed it takes as much memory again
# Whatever computes with integers, or makes integers of activations, which ONNX Runtime then fuses.
_INTEGER: Final = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeLinear",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    }
)


def note(path: Path) -> str | None:
    """What to say of a file.

    Args:
        path: of the model.

    Returns:
        A sentence without its full stop; None of other models, and of what cannot be parsed.
    """
    import onnx

    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            return None
        model = onnx.load(str(path), load_external_data=False)
    except Exception:  # protobuf has errors of its own; loading it says what is wrong
        return None
    kinds = onnx.TensorProto
    counts: dict[int, int] = {}
    for tensor in model.graph.initializer:
        counts[tensor.data_type] = counts.get(tensor.data_type, 0) + math.prod(tensor.dims)
    stored = {
        kind: counts.get(kind, 0) for kind in (kinds.INT8, kinds.UINT8, kinds.INT4, kinds.UINT4)
    }
    floats = sum(counts.get(kind, 0) for kind in (kinds.FLOAT, kinds.FLOAT16, kinds.BFLOAT16))
    if sum(stored.values()) <= floats:
        return None
    used = {name for one in (model.graph, *model.functions) for name in _operators(one.node)}
    if used & _INTEGER:
        return None
    name = kinds.DataType.Name(max(stored, key=lambda kind: stored[kind]))
    return f"its weights are stored as {name} and computed as floats: small on disk, not faster"


def _operators(nodes: Any) -> Iterator[str]:
    node: onnx.NodeProto
    for node in nodes:
        yield node.op_type
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _operators(graph.node)
