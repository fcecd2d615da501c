"""The work of `lumen quantize`: ranges from the data, and the INT8 model from the ranges.

Called by commands/quantize.py, on the main thread. ONNX Runtime's own quantiser does it; this file
decides what it is given, keeps its memory bounded, and turns what it cannot take into sentences.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from lumen_uring.errors import QuantizeError
from lumen_uring.offline.quantize_graph import COMPUTE, quiet, reason_of, refused, tools

if TYPE_CHECKING:
    import onnx

    from lumen_uring.protocol.convert import Array

Method: TypeAlias = Literal["minmax", "percentile", "entropy"]
Row: TypeAlias = "Mapping[str, Array]"

# Between convolutions INT8 passes through these. Softmax, norms and lookups lose more than they
# win: top-5 classes of SqueezeNet agreed by 77 % with its Softmax in INT8, by 94 % without.
_WITH_CONV: Final = (
    *COMPUTE,
    "Relu",
    "Clip",
    "LeakyRelu",
    "Sigmoid",
    "Add",
    "Mul",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "Concat",
    "Split",
    "Slice",
    "Pad",
    "Resize",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
)
_WITHOUT_CONV: Final = ("Gemm", "MatMul")
# The first histogram spans this many rows: later ones only widen it, in steps of its bins.
_FIRST_ROWS: Final = 8
_BINS_MAX: Final = 1 << 26
_PERCENTILE: Final = 99.999


@dataclass(frozen=True, slots=True)
class Plan:
    """What is quantised: kinds of operators, and the nodes among them that stay float."""

    op_types: tuple[str, ...]
    float_nodes: tuple[str, ...]


def plan_of(prepared: Path, keep_float: Sequence[str], name: str) -> Plan:
    """Chooses what is quantised.

    Args:
        prepared: of prepare.
        keep_float: operators that stay float: by kind, or by the name of an output.
        name: for messages.

    Raises:
        QuantizeError: `keep_float` names what is not there.
    """
    onnx, _ = tools()
    graph = onnx.load(str(prepared)).graph
    kinds = {node.op_type for node in graph.node}
    outputs = {output for node in graph.node for output in node.output}
    for text in keep_float:
        if text not in kinds | outputs:
            raise QuantizeError(
                f"--keep-float {text}: expected a kind of operator ({', '.join(sorted(kinds))}) "
                f"or the name of an operator's output in {name}."
            )
    types = _WITH_CONV if kinds & {"Conv", "ConvTranspose"} else _WITHOUT_CONV
    leading = _leading(graph)
    stay = [
        node.name
        for node in graph.node
        if node.op_type in keep_float
        or set(node.output) & set(keep_float)
        or (node.op_type not in (*COMPUTE, "Relu", "Clip") and node.name not in leading)
    ]
    return Plan(tuple(types), tuple(stay))


def _leading(graph: onnx.GraphProto) -> set[str]:
    """Names of the nodes whose results reach a convolution or a product. What follows the last of
    these stays float: there is nothing left to win."""
    wanted: set[str] = set()
    found: set[str] = set()
    for node in reversed(graph.node):  # a graph's nodes are in the order of their results
        if wanted & set(node.output):
            found.add(node.name)
        elif node.op_type not in COMPUTE:
            continue
        wanted |= set(node.input)
    return found


class _Reader:
    """Hands rows to the calibrator."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = iter(rows)

    def get_next(self) -> dict[str, Array] | None:
        row = next(self.rows, None)
        return None if row is None else dict(row)


def calibrate(
    prepared: Path, plan: Plan, method: Method, rows: Iterator[Row], name: str
) -> tuple[Any, int]:
    """Runs the model on the rows and notes the range of every tensor.

    Memory stays bounded: the calibrator keeps all tensors of the rows that one call gets, so
    it gets them one by one.

    Args:
        prepared: of prepare.
        plan: of plan_of.
        method: how a range is chosen.
        rows: inputs of a Run each.
        name: for messages.

    Returns:
        The ranges, for quantize, and the number of rows.

    Raises:
        QuantizeError: there was no row, or ONNX Runtime refused one.
    """
    quantization = importlib.import_module("onnxruntime.quantization")
    methods = quantization.CalibrationMethod
    kind, options = {
        "minmax": (methods.MinMax, {}),
        "percentile": (methods.Percentile, {"symmetric": False, "percentile": _PERCENTILE}),
        "entropy": (methods.Entropy, {}),
    }[method]
    with quiet():
        try:
            calibrator = quantization.create_calibrator(
                prepared,
                plan.op_types,
                str(prepared.with_name("augmented.onnx")),
                kind,
                extra_options=options,
            )
        except Exception as error:
            raise refused(name, "calibrates", error) from None
    count = 0
    # A histogram's first rows set the width of its bins.
    first = list(itertools.islice(rows, 1 if method == "minmax" else _FIRST_ROWS))
    for chunk in itertools.chain([first], ([row] for row in rows)):
        # One call takes rows of one shape only.
        for _, alike in itertools.groupby(chunk, _shapes):
            _collect(calibrator, list(alike), name)
        count += len(chunk)
    if count == 0:
        raise QuantizeError(f"{name}: nothing to calibrate with.")
    try:
        with quiet():
            return calibrator.compute_data(), count
    except Exception as error:
        raise refused(name, "calibrates", error) from None


def _shapes(row: Row) -> list[tuple[int, ...]]:
    return [array.shape for array in row.values()]


def _collect(calibrator: Any, rows: Sequence[Row], name: str) -> None:
    try:
        with quiet():
            calibrator.collect_data(_Reader(rows))
    except Exception as error:
        raise QuantizeError(
            f"{name}: a Run on the calibration data failed: {reason_of(error)}"
        ) from None
    collector = getattr(calibrator, "collector", None)
    if collector is None:
        return
    bins = sum(len(entry[0]) for entry in collector.get_histogram_dict().values())
    if bins > _BINS_MAX:
        raise QuantizeError(
            f"{name}: the ranges of its tensors differ too much between rows for histograms: "
            "use --method minmax."
        )


def quantize(
    prepared: Path, plan: Plan, ranges: Any, reduce_range: bool, out: Path, name: str
) -> None:
    """Writes the INT8 model: QuantizeLinear and DequantizeLinear around every operator of the plan,
    activations uint8, weights int8 with a scale for each channel.

    Args:
        prepared: of prepare.
        plan: of plan_of.
        ranges: of calibrate.
        reduce_range: weights of 7 bits, for processors whose 16-bit sums would overflow.
        out: the file.
        name: for messages.

    Raises:
        QuantizeError: ONNX Runtime's quantiser does not take the model.
    """
    onnx, _ = tools()
    quantization = importlib.import_module("onnxruntime.quantization")
    types = quantization.QuantType
    try:
        with quiet():
            quantizer = quantization.QDQQuantizer(
                model=onnx.load(str(prepared)),
                per_channel=True,
                reduce_range=reduce_range,
                weight_qType=types.QInt8,
                activation_qType=types.QUInt8,
                tensors_range=ranges,
                nodes_to_quantize=[],
                nodes_to_exclude=list(plan.float_nodes),
                op_types_to_quantize=list(plan.op_types),
                # A product of two activations, as in attention, stays float.
                extra_options={"MatMulConstBOnly": True},
            )
            quantizer.quantize_model()
            quantizer.model.save_model_to_file(str(out), False)
    except Exception as error:
        raise refused(name, "takes", error) from None
