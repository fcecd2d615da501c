"""The model's side of `lumen quantize`: reads it, refuses it or mends it, and prepares its graph.

Called by commands/quantize.py, on the main thread, before the data is read.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import QuantizeError

if TYPE_CHECKING:
    import onnx

# Scales for each channel of the weights are possible from here on.
OPSET_MIN: Final = 13
# ONNX Runtime 1.17 reads it, and weights need not be inputs.
_IR_VERSION: Final = 8
# The quantisers before it cannot be calibrated row by row.
_RUNTIME_MIN: Final = (1, 20)
_PROTOBUF_BYTES_MAX: Final = 2**31 - 1
COMPUTE: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_QUANTIZED: Final = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "QLinearConv",
        "QLinearMatMul",
        "ConvInteger",
        "MatMulInteger",
        "QGemm",
    }
)


def tools() -> tuple[Any, Any]:
    """Imports onnx and ONNX Runtime's Python side.

    Raises:
        QuantizeError: one is missing or too old.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        found = importlib.import_module("onnx"), importlib.import_module("onnxruntime")
        found[1].set_default_logger_severity(3)
        importlib.import_module("onnxruntime.quantization")
    except ImportError as error:
        raise QuantizeError(
            f"Models are quantised with onnx: pip install onnx onnxruntime ({error})."
        ) from None
    version = found[1].__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _RUNTIME_MIN:
        raise QuantizeError(
            f"Quantising needs ONNX Runtime 1.20 or later, found {version}: "
            "pip install -U onnxruntime."
        )
    return found


def load(path: Path) -> onnx.ModelProto:
    """Reads a model with all its weights.

    Args:
        path: of the file.

    Raises:
        QuantizeError: it is no ONNX model, or too large.
    """
    library, _ = tools()
    if path.suffix.lower() == ".ort":
        raise QuantizeError(f"{path}: expected the .onnx file that this .ort file was made of.")
    try:
        model: onnx.ModelProto = library.load(str(path))
        size = model.ByteSize()
    except Exception as error:  # protobuf and onnx have errors of their own
        raise QuantizeError(
            f"{path}: expected an ONNX model, found: {reason_of(error)}. `lumen inspect` may say "
            "more."
        ) from None
    if not model.graph.node:
        raise QuantizeError(f"{path}: expected an ONNX model, found one without operators.")
    if size > _PROTOBUF_BYTES_MAX:
        raise QuantizeError(f"{path}: expected less than 2 GiB with all weights, found {size}.")
    return model


def check(model: onnx.ModelProto, name: str) -> None:
    """Refuses a model that INT8 cannot help.

    Args:
        model: of load.
        name: for messages.

    Raises:
        QuantizeError: it is quantised already, has no weights to quantise, or they are float16.
    """
    onnx, _ = tools()
    kinds = Counter(node.op_type for node in model.graph.node)
    found = sorted(_QUANTIZED & kinds.keys())
    if found:
        raise QuantizeError(
            f"{name}: expected a model in floats, found {found[0]}: it is quantised already."
        )
    constants = _constants(model.graph)
    weights = [
        constants[node.input[1]]
        for node in model.graph.node
        if node.op_type in COMPUTE and len(node.input) > 1 and node.input[1] in constants
    ]
    if not weights:
        most = ", ".join(kind for kind, _ in kinds.most_common(3))
        raise QuantizeError(
            f"{name}: expected a convolution or a matrix product with fixed weights, found none "
            f"(most operators are {most}): INT8 would only add conversions."
        )
    if onnx.TensorProto.FLOAT not in weights:
        kind = onnx.TensorProto.DataType.Name(weights[0]).lower()
        raise QuantizeError(
            f"{name}: expected weights of float32, found {kind}: export the model in float32."
        )


def _constants(graph: onnx.GraphProto) -> dict[str, int]:
    """Names of fixed tensors, and their element types."""
    found = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            found.update(
                (node.output[0], attribute.t.data_type)
                for attribute in node.attribute
                if attribute.name == "value"
            )
        elif node.op_type in ("Identity", "Transpose", "Reshape") and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def mend(model: onnx.ModelProto, name: str) -> tuple[onnx.ModelProto, list[str]]:
    """Makes of a model what the quantiser takes.

    Args:
        model: of load; it is changed.
        name: for messages.

    Returns:
        The model, and a sentence for each thing that was done.

    Raises:
        QuantizeError: its opset is too old and cannot be converted.
    """
    onnx, _ = tools()
    notes = []
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [entry for entry in graph.input if entry.name not in weights]
    if len(inputs) < len(graph.input):
        count = len(graph.input) - len(inputs)
        notes.append(
            f"{count} weights were also inputs of the graph, so that ONNX Runtime could not fold "
            "them: they are inputs no longer"
        )
        del graph.input[:]
        graph.input.extend(inputs)
    for entry in graph.value_info:  # its exporter's shapes may be those of one row
        entry.type.tensor_type.ClearField("shape")
    model.ir_version = max(model.ir_version, _IR_VERSION)
    opset = next((entry.version for entry in model.opset_import if not entry.domain), OPSET_MIN)
    if opset < OPSET_MIN:
        names = [[entry.name for entry in side] for side in (graph.input, graph.output)]
        try:
            model = onnx.version_converter.convert_version(model, OPSET_MIN)
        except Exception as error:  # a RuntimeError, or one of the converter's own
            raise QuantizeError(
                f"{name}: expected opset {OPSET_MIN} or later, found {opset}, and it cannot be "
                f"converted ({reason_of(error)}): export the model again with opset {OPSET_MIN}."
            ) from None
        graph = model.graph
        if [[entry.name for entry in side] for side in (graph.input, graph.output)] != names:
            raise QuantizeError(
                f"{name}: converting opset {opset} to {OPSET_MIN} changed its inputs: export the "
                f"model again with opset {OPSET_MIN}."
            )
        notes.append(f"opset {opset} was converted to {OPSET_MIN}")
    return model, notes


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what the quantiser prints and logs from the user."""
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def prepare(model: onnx.ModelProto, folder: Path, name: str) -> Path:
    """Optimises the graph (BatchNormalization goes into the weights), infers shapes, names nodes.

    Args:
        model: of mend.
        folder: for the file.
        name: for messages.

    Raises:
        QuantizeError: ONNX Runtime does not take the model.
    """
    onnx, _ = tools()
    quantization = importlib.import_module("onnxruntime.quantization")
    mended, path = folder / "mended.onnx", folder / "prepared.onnx"
    onnx.save(model, str(mended))
    try:
        with quiet():
            quantization.quant_pre_process(str(mended), str(path), skip_symbolic_shape=True)
    except Exception as error:
        raise refused(name, "prepares", error) from None
    prepared = onnx.load(str(path))
    for index, node in enumerate(prepared.graph.node):
        node.name = f"{node.name or node.op_type}_{index}"
    _flatten_biases(prepared.graph)
    onnx.save(prepared, str(path))
    return path


def _flatten_biases(graph: onnx.GraphProto) -> None:
    """Makes [n] of a product's bias of [1, n], the same; the quantiser stumbles there."""
    uses = Counter(name for node in graph.node for name in node.input)
    biases = {
        node.input[2]
        for node in graph.node
        if node.op_type == "Gemm" and len(node.input) > 2 and uses[node.input[2]] == 1
    }
    for tensor in graph.initializer:
        if tensor.name in biases and len(tensor.dims) == 2 and tensor.dims[0] == 1:
            del tensor.dims[0]


def reason_of(error: Exception) -> str:
    """The first line of what another library says."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def refused(name: str, verb: str, error: Exception) -> QuantizeError:
    """Says in one sentence that the quantiser has raised something."""
    return QuantizeError(
        f"{name}: ONNX Runtime's quantiser {verb} no such model: {reason_of(error)}"
    )
