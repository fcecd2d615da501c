"""`python -m bench.common.mlp FILE`: writes the benchmarks' small network.

Called by most benchmarks and by hand. x float32 [N, 64] -> 64 with ReLU -> y float32 [N, 8], random
weights from a seed: a model whose Run costs next to nothing, so that everything else shows. It must
never be taken for a trained one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import numpy as np

INPUTS: Final = 64
HIDDEN: Final = 64
OUTPUTS: Final = 8
# Old enough for ONNX Runtime 1.17.
_OPSET: Final = 13
_IR: Final = 8


def model_bytes(seed: int = 1) -> bytes:
    """Makes the model.

    Args:
        seed: of the weights; one seed, one model.

    Returns:
        An ONNX file.
    """
    from onnx import TensorProto, checker, helper, numpy_helper

    random = np.random.default_rng(seed)
    weights = []
    for name, rows, columns in (("hidden", INPUTS, HIDDEN), ("out", HIDDEN, OUTPUTS)):
        # He et al. 2015: keeps the values' size from layer to layer.
        matrix = random.standard_normal((rows, columns)) * np.sqrt(2.0 / rows)
        weights.append(numpy_helper.from_array(matrix.astype(np.float32), f"{name}_weight"))
        bias = random.standard_normal(columns).astype(np.float32)
        weights.append(numpy_helper.from_array(bias, f"{name}_bias"))
    nodes = [
        helper.make_node("Gemm", ["x", "hidden_weight", "hidden_bias"], ["hidden_sum"]),
        helper.make_node("Relu", ["hidden_sum"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "out_weight", "out_bias"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", INPUTS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", OUTPUTS])],
        weights,
        doc_string="Random weights, for measuring speed alone.",
    )
    model = helper.make_model(
        graph,
        producer_name="lumen",
        ir_version=_IR,
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def write(path: Path, seed: int = 1) -> Path:
    """Writes the model to a file.

    Args:
        path: where to; its folder exists.
        seed: of the weights.

    Returns:
        The path.
    """
    path.write_bytes(model_bytes(seed))
    return path


def main(arguments: list[str] | None = None) -> int:
    """Writes the file that the command line names."""
    parser = argparse.ArgumentParser(description="Writes a 64-64-8 perceptron as an ONNX file.")
    parser.add_argument("path", type=Path, help="the file to write")
    parser.add_argument("--seed", type=int, default=1, help="of the weights (%(default)s)")
    options = parser.parse_args(arguments)
    written = write(options.path, options.seed)
    print(f"wrote {written}: x float32 [N, {INPUTS}] -> y float32 [N, {OUTPUTS}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
