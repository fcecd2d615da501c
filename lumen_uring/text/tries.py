"""Tries and hash tables of a tokenizer's file, laid out in numpy for 250,000 pieces and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

_HASH: Final = 0x9E3779B1
_LEFT, _RIGHT, _BOTH = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
_NONE: Final = 0xFFFFFFFF

U32 = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Tries:
    """Nodes by bytes; node 0 is none, so that no step leads to it. The roots are 1, 2, ..."""

    bits: int
    children: U32  # (1 << bits, 2): node << 8 | byte, and the node behind it
    values: U32  # by node: the number of what ends there + 1, or 0


def tries(roots: Sequence[Mapping[bytes, int]]) -> Tries:
    """Tries over one table.

    Args:
        roots: for each the texts, none of them empty, and their numbers.
    """
    texts = [text for root in roots for text in root]
    numbers = np.array([n for root in roots for n in root.values()], np.uint32)
    lengths = np.array([len(text) for text in texts], np.int64)
    data = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32)
    starts = np.cumsum(lengths) - lengths
    nodes = np.repeat(np.arange(1, len(roots) + 1), [len(root) for root in roots]).astype(np.uint32)
    count = len(roots) + 1
    keys: list[U32] = []
    for depth in range(int(lengths.max(initial=0))):
        going = np.flatnonzero(lengths > depth)
        steps = nodes[going] << np.uint32(8) | data[starts[going] + depth]
        found, which = np.unique(steps, return_inverse=True)
        keys.append(found)
        nodes[going] = count + which
        count += len(found)
    values = np.zeros(count, np.uint32)
    values[nodes] = numbers + np.uint32(1)
    all_keys = np.concatenate([*keys, np.empty(0, np.uint32)])
    behind = np.arange(len(roots) + 1, count, dtype=np.uint32)
    bits = max((len(all_keys) * 3 // 2).bit_length(), 8)
    children = np.zeros((1 << bits, 2), np.uint32)
    places = _placed(all_keys * np.uint32(_HASH), bits)
    children[places, 0] = all_keys
    children[places, 1] = behind
    return Tries(bits, children, values)


def merge_table(rows: U32) -> tuple[int, U32]:
    """Merges by both of their tokens.

    Args:
        rows: left, right, rank, id of each.

    Returns:
        The table's bits, and the table.
    """
    bits = max((len(rows) * 3 // 2).bit_length(), 8)
    table = np.full((1 << bits, 4), _NONE, np.uint32)
    hashes = (rows[:, 0] * np.uint32(_LEFT) ^ rows[:, 1] * np.uint32(_RIGHT)) * np.uint32(_BOTH)
    table[_placed(hashes, bits)] = rows
    return bits, table


def _placed(hashes: U32, bits: int) -> npt.NDArray[np.int64]:
    """A place for each, at its hash's highest bits or behind it, with no empty one between."""
    places: npt.NDArray[np.int64] = (hashes >> np.uint32(32 - bits)).astype(np.int64)
    taken = np.zeros(1 << bits, np.bool_)
    left = np.arange(len(hashes))
    while len(left):
        wanted, first = np.unique(places[left], return_index=True)
        free = ~taken[wanted]
        taken[wanted[free]] = True
        stays = np.ones(len(left), np.bool_)
        stays[first[free]] = False
        left = left[stays]
        places[left] = (places[left] + 1) & ((1 << bits) - 1)
    return places
