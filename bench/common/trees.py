"""`python -m bench.common.trees FILE`: writes the benchmarks' boosted trees.

Called by `make ladder` and by hand. x float32 [N, 50] -> y float32 [N, 1], the sum of 500 complete
trees of depth 6. Features, thresholds and leaves are random, from a seed: each split is a toss-up,
which is the worst that a branch predictor can meet. It must never be taken for a trained model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

TREES: Final = 500
DEPTH: Final = 6
FEATURES: Final = 50
# Old enough for ONNX Runtime 1.17.
_ML_OPSET: Final = 1
_OPSET: Final = 13
_IR: Final = 8


def model_bytes(
    trees: int = TREES, depth: int = DEPTH, features: int = FEATURES, seed: int = 1
) -> bytes:
    """Makes the model.

    Args:
        trees: at least 1.
        depth: splits on the way to each leaf, at least 1.
        features: columns of x.
        seed: of the trees; one seed, one model.

    Returns:
        An ONNX file with a TreeEnsembleRegressor.
    """
    from onnx import TensorProto, checker, helper

    graph = helper.make_graph(
        [
            helper.make_node(
                "TreeEnsembleRegressor",
                ["x"],
                ["y"],
                domain="ai.onnx.ml",
                n_targets=1,
                aggregate_function="SUM",
                post_transform="NONE",
                base_values=[0.5],
                **_attributes(trees, depth, features, np.random.default_rng(seed)),
            )
        ],
        "trees",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])],
        doc_string="Random trees, for measuring speed alone.",
    )
    model = helper.make_model(
        graph,
        producer_name="lumen",
        ir_version=_IR,
        opset_imports=[
            helper.make_opsetid("", _OPSET),
            helper.make_opsetid("ai.onnx.ml", _ML_OPSET),
        ],
    )
    checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def _attributes(
    trees: int, depth: int, features: int, random: np.random.Generator
) -> dict[str, Any]:
    """The nodes of all trees. Node n of a tree has the children 2n + 1 and 2n + 2."""
    splits, leaves = 2**depth - 1, 2**depth
    nodes = splits + leaves
    node = np.tile(np.arange(nodes), trees)
    tree = np.repeat(np.arange(trees), nodes)
    is_split = node < splits
    inner = is_split.sum()
    feature = np.zeros(len(node), np.int64)
    feature[is_split] = random.integers(0, features, inner)
    threshold = np.zeros(len(node), np.float32)
    threshold[is_split] = random.random(inner, np.float32)
    return {
        "nodes_treeids": tree,
        "nodes_nodeids": node,
        "nodes_modes": ["BRANCH_LT" if split else "LEAF" for split in is_split],
        "nodes_featureids": feature,
        "nodes_values": threshold,
        "nodes_truenodeids": np.where(is_split, 2 * node + 1, 0),
        "nodes_falsenodeids": np.where(is_split, 2 * node + 2, 0),
        "target_treeids": tree[~is_split],
        "target_nodeids": node[~is_split],
        "target_ids": np.zeros(trees * leaves, np.int64),
        "target_weights": (random.standard_normal(trees * leaves) * 0.1).astype(np.float32),
    }


def write(path: Path, seed: int = 1) -> Path:
    """Writes the model to a file.

    Args:
        path: where to; its folder exists.
        seed: of the trees.

    Returns:
        The path.
    """
    path.write_bytes(model_bytes(seed=seed))
    return path


def main(arguments: list[str] | None = None) -> int:
    """Writes the file that the command line names."""
    parser = argparse.ArgumentParser(description="Writes boosted trees as an ONNX file.")
    parser.add_argument("path", type=Path, help="the file to write")
    parser.add_argument("--seed", type=int, default=1, help="of the trees (%(default)s)")
    options = parser.parse_args(arguments)
    written = write(options.path, options.seed)
    print(
        f"wrote {written}: {TREES} trees of depth {DEPTH}, x float32 [N, {FEATURES}] -> "
        "y float32 [N, 1]"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
