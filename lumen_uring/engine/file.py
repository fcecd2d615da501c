"""Writes the file of a native engine, as c/src/engine/format.h lays it out.

Called by engine/cache.py at start, on the main thread. What the numbers mean is said in format.h;
the reader in C checks all of it.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from lumen_uring.engine.trees import Forest, packed

VERSION: Final = 1
_ALIGN: Final = 64
_BLOCK_BYTES: Final = 256 << 10
_NONE: Final = 0xFFFFFFFF
_PANEL: Final = 64
_STEP: Final = 16
_HEADER: Final = struct.Struct("=8sII32sQQQ14I18Q")
_BEFORE_BODY: Final = 48  # magic, byte order, version and digest
_LAYER: Final = struct.Struct("=4I2Q")
_DENSE, _TREES = 1, 2
_PLAIN, _BINARY, _REGRESSOR, _CLASSIFIER = range(4)
(_LAYERS, _TREE, _LABELS, _BASE, _BLOCKS, _FLOATS, _NODES, _FLAGS, _ITEMS) = range(9)
LINEAR, SCALE = 0, 1
ACTIVATIONS: Final = {"": 0, "Relu": 1, "Sigmoid": 2, "Tanh": 3, "Softmax": 4}


@dataclass(slots=True)
class Layer:
    """y = activation(x @ weights + bias), or y = (x - weights) * bias, element by element."""

    kind: int
    weights: np.ndarray[Any, Any]  # float32 [inputs, outputs]; offsets [inputs] of SCALE
    bias: np.ndarray[Any, Any]  # float32 [outputs]
    activation: str = ""


@dataclass(slots=True)
class Network:
    """What a graph computes; outputs are indexes among those of the graph, None: it has none."""

    inputs: int
    layers: list[Layer] = field(default_factory=list)
    forest: Forest | None = None
    binary: bool = False  # dense: the one element p becomes 1 - p and p
    score_output: int | None = None
    label_output: int | None = None
    labels: list[int] = field(default_factory=list)


def data(network: Network) -> bytes:
    """Makes the bytes of a file.

    Args:
        network: what the graph computes.

    Raises:
        NotSuitedError: a tree is too large.
    """
    tables: dict[int, bytes] = {
        _LABELS: np.asarray(network.labels, np.int64).tobytes(),
    }
    if network.forest is None:
        weights, scores = _dense(network, tables)
        facts = [_DENSE, _BINARY if network.binary else _PLAIN, network.inputs, scores]
        facts += [_index(network.score_output), _index(network.label_output), *[0] * 8]
    else:
        forest = network.forest
        weights, trees = packed(forest, network.inputs)
        tables[_TREE] = trees
        tables[_BASE] = np.asarray(forest.base, np.float32).tobytes()
        head = _CLASSIFIER if forest.classifier else _REGRESSOR
        facts = [_TREES, head, network.inputs, forest.targets]
        facts += [_index(network.score_output), _index(network.label_output), forest.targets]
        facts += [forest.post, forest.compare, int(forest.average), int(forest.one_weight)]
        facts += [int(forest.binary), int(forest.all_positive), int(forest.nan_is_true)]
    return _sealed(tables, weights, facts)


def _index(output: int | None) -> int:
    return _NONE if output is None else output


def _dense(network: Network, tables: dict[int, bytes]) -> tuple[dict[int, bytes], int]:
    """Packs the layers. Returns the weights and the elements of an output row."""
    entries, floats, at = [], [], 0
    width = network.inputs
    for layer in network.layers:
        outputs = layer.bias.shape[0]
        weights = _packed(layer.weights) if layer.kind == LINEAR else _padded(layer.weights)
        parts = (weights, _padded(layer.bias))
        entries.append(
            _LAYER.pack(
                layer.kind, ACTIVATIONS[layer.activation], width, outputs, at, at + parts[0].size
            )
        )
        floats += [part.tobytes() for part in parts]
        at += sum(part.size for part in parts)
        width = outputs
    tables[_LAYERS] = b"".join(entries)
    return {_FLOATS: b"".join(floats)}, 2 if network.binary else width


def _padded(row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.pad(row.astype(np.float32), (0, -row.shape[0] % _STEP))


def _packed(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The columns in groups of 64, each group's rows one behind the other."""
    full = np.pad(matrix.astype(np.float32), ((0, 0), (0, -matrix.shape[1] % _STEP)))
    groups = [full[:, first : first + _PANEL].ravel() for first in range(0, full.shape[1], _PANEL)]
    return np.concatenate(groups)


def _sealed(tables: dict[int, bytes], weights: dict[int, bytes], facts: list[int]) -> bytes:
    """Header, tables and weights with their digests."""
    body = _joined(weights, sorted(weights))
    blocks = [body[at : at + _BLOCK_BYTES] for at in range(0, len(body), _BLOCK_BYTES)]
    tables[_BLOCKS] = b"".join(hashlib.blake2b(block, digest_size=16).digest() for block in blocks)
    places = [(0, 0)] * 9
    after_header = _aligned(_HEADER.size)
    parts = [b"\0" * (after_header - _HEADER.size)]
    at = after_header
    for section in sorted(tables):
        table = tables[section]
        places[section] = (at, len(table))
        parts.append(table + b"\0" * (-len(table) % _ALIGN))
        at += len(parts[-1])
    tables_bytes = at
    for section in sorted(weights):
        places[section] = (at, len(weights[section]))
        at += _aligned(len(weights[section]))
    end = tables_bytes + len(body)
    numbers = [number for place in places for number in place]
    header = _HEADER.pack(
        b"LMENGINE", 0x01020304, VERSION, b"", end, tables_bytes, tables_bytes, *facts, *numbers
    )
    digest = hashlib.blake2b(header[_BEFORE_BODY:] + b"".join(parts), digest_size=32).digest()
    return header[:16] + digest + header[_BEFORE_BODY:] + b"".join(parts) + body


def _aligned(count: int) -> int:
    return count + -count % _ALIGN


def _joined(weights: dict[int, bytes], order: list[int]) -> bytes:
    """The sections one behind the other, each at a multiple of 64 but for the end's padding."""
    parts = [weights[section] + b"\0" * (-len(weights[section]) % _ALIGN) for section in order]
    return b"".join(parts)
