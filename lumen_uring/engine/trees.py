"""Ensembles of trees: from the attributes of ONNX's TreeEnsemble operators to nodes that a walk
finds in few cache lines.

Called by engine/export.py and engine/file.py, on the main thread. How ONNX Runtime reads these
attributes decides; where it is not known for sure, the ensemble is not exported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

_COMPARES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_MIXED: Final = 6
_NAN_IS_TRUE: Final = 8
_POSTS: Final = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
_LAST: Final = 0x80000000
_LINE: Final = 8  # nodes of a cache line
_NODES_MAX: Final = 65536  # of a tree, as a child's index has 16 bits
_FEATURES_MAX: Final = 65534
_NODE: Final = np.dtype([("value", "f4"), ("feature", "u2"), ("child", "u2")])
_TREE: Final = np.dtype([("first", "u4"), ("count", "u4"), ("depth", "u4"), ("target", "u4")])
_ITEM: Final = np.dtype([("target", "u4"), ("weight", "f4")])


class NotSuitedError(Exception):
    """A graph that the engine does not run; the message says why, without a full stop."""


@dataclass(slots=True)
class Tree:
    """One tree by its nodes; node 0 is the root, a leaf has no children."""

    features: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    children: list[tuple[int, int] | None] = field(default_factory=list)  # for true, for false
    weights: list[list[tuple[int, float]]] = field(default_factory=list)  # of leaves

    def leaves(self) -> list[list[tuple[int, float]]]:
        """The weights of each leaf."""
        return [self.weights[i] for i, two in enumerate(self.children) if two is None]

    def branch_flags(self) -> list[int]:
        """The flags of each node that is no leaf."""
        return [self.flags[i] for i, two in enumerate(self.children) if two is not None]


@dataclass(slots=True)
class Forest:
    """An ensemble, and what becomes of its sums."""

    trees: list[Tree]
    targets: int
    classifier: bool
    post: int
    base: list[float]
    average: bool
    compare: int
    one_weight: bool
    binary: bool
    all_positive: bool
    nan_is_true: bool


def read(attributes: dict[str, Any], classifier: bool) -> Forest:
    """Reads a TreeEnsembleClassifier or TreeEnsembleRegressor.

    Args:
        attributes: of the node, texts as str.
        classifier: which of the two.

    Raises:
        NotSuitedError: the engine does not run it.
    """
    kind = "class" if classifier else "target"
    for name in ("nodes_values_as_tensor", "base_values_as_tensor", f"{kind}_weights_as_tensor"):
        if name in attributes:
            raise NotSuitedError("its trees compare in double precision")
    post = attributes.get("post_transform", "NONE")
    aggregate = attributes.get("aggregate_function", "SUM")
    if post not in _POSTS:
        raise NotSuitedError(f"its trees end in {post}")
    if aggregate not in ("SUM", "AVERAGE"):
        raise NotSuitedError(f"its trees are joined by {aggregate}")
    if classifier and "classlabels_int64s" not in attributes:
        raise NotSuitedError("its labels are strings")
    targets = len(attributes["classlabels_int64s"]) if classifier else attributes["n_targets"]
    if classifier and targets < 2:
        raise NotSuitedError("it has one class")
    trees = _trees(attributes, kind)
    ids = set(attributes[f"{kind}_ids"])
    compares = {flag & 7 for tree in trees for flag in tree.branch_flags()}
    one_weight = all(
        all(len(leaf) == 1 for leaf in tree.leaves())
        and len({leaf[0][0] for leaf in tree.leaves()}) == 1
        for tree in trees
    )
    if classifier and targets == 2 and len(ids) == 2 and not _both_always(trees):
        raise NotSuitedError("a row may reach no leaf of one of its two classes")
    if targets == 1 and not one_weight:
        raise NotSuitedError("a leaf has no weight, or several")
    return Forest(
        trees=trees,
        targets=targets,
        classifier=classifier,
        post=_POSTS.index(post),
        base=list(attributes.get("base_values", [])),
        average=aggregate == "AVERAGE",
        compare=compares.pop() if len(compares) == 1 else _MIXED if compares else 0,
        one_weight=one_weight,
        binary=classifier and targets == 2 and len(ids) == 1,
        all_positive=all(weight >= 0 for weight in attributes[f"{kind}_weights"]),
        nan_is_true=any(flag & _NAN_IS_TRUE for tree in trees for flag in tree.branch_flags()),
    )


def _both_always(trees: list[Tree]) -> bool:
    """Whether each of two classes has weights whatever the row: else ONNX Runtime's scores are not
    defined."""
    return all(
        any(all(target in dict(leaf) for leaf in tree.leaves()) for tree in trees)
        for target in (0, 1)
    )


def _trees(attributes: dict[str, Any], kind: str) -> list[Tree]:
    """The trees in the order of their nodes, each node under its number in the tree."""
    ids, trees = attributes["nodes_treeids"], []
    missing = attributes.get("nodes_missing_value_tracks_true") or [0] * len(ids)
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for i, (tree, node) in enumerate(zip(ids, attributes["nodes_nodeids"], strict=True)):
        if i == 0 or tree != ids[i - 1]:
            trees.append(Tree())
        places[tree, node] = (len(trees) - 1, len(trees[-1].features))
        mode = attributes["nodes_modes"][i]
        if mode not in (*_COMPARES, "LEAF"):
            raise NotSuitedError(f"a node compares with {mode}")
        compare = _COMPARES.index(mode) if mode != "LEAF" else 0
        current = trees[-1]
        current.features.append(attributes["nodes_featureids"][i])
        current.thresholds.append(attributes["nodes_values"][i])
        current.flags.append(compare | (_NAN_IS_TRUE if missing[i] else 0))
        two = (attributes["nodes_truenodeids"][i], attributes["nodes_falsenodeids"][i])
        current.children.append(None if mode == "LEAF" else two)
        current.weights.append([])
    if len(places) != len(ids) or len(trees) != len({place for place, _ in places.values()}):
        raise NotSuitedError("its nodes are not told apart by their numbers")
    for i, tree in enumerate(ids):
        at, index = places[tree, attributes["nodes_nodeids"][i]]
        branches = trees[at].children[index]
        if branches is not None:
            try:
                one, other = (places[tree, node][1] for node in branches)
            except KeyError:
                raise NotSuitedError("a node leads to none of its tree") from None
            trees[at].children[index] = (one, other)
    for tree, node, target, weight in zip(
        attributes[f"{kind}_treeids"],
        attributes[f"{kind}_nodeids"],
        attributes[f"{kind}_ids"],
        attributes[f"{kind}_weights"],
        strict=True,
    ):
        at, index = places[tree, node]
        if trees[at].children[index] is None:
            trees[at].weights[index].append((target, weight))
    return trees


def packed(forest: Forest, features: int) -> tuple[dict[int, bytes], bytes]:
    """Lays the nodes out.

    Args:
        forest: of read.
        features: of a row.

    Returns:
        The sections of nodes, flags and items by number, and the table of trees.

    Raises:
        NotSuitedError: a tree has too many nodes, or too many features.
    """
    if features > _FEATURES_MAX:
        raise NotSuitedError(f"its trees see more than {_FEATURES_MAX} features")
    entries: list[tuple[int, int, int, int]] = []
    nodes: list[np.ndarray[Any, Any]] = []
    flags: list[np.ndarray[Any, Any]] = []
    first = 0
    items: list[tuple[int, float]] = []
    for tree in forest.trees:
        at, depth, used = _places(tree)
        count = used + -used % _LINE
        if count > _NODES_MAX:
            raise NotSuitedError(f"a tree has more than {_NODES_MAX} nodes")
        block = np.zeros(count, _NODE)
        # What is no node is a leaf, which nothing leads to.
        block["feature"] = features
        block["child"] = np.maximum(np.arange(count) - 1, 0)
        flag = np.zeros(count, np.uint8)
        values = block["value"].view(np.uint32) if not forest.one_weight else block["value"]
        for i, place in at.items():
            two = tree.children[i]
            if two is not None:
                if tree.features[i] >= features:
                    raise NotSuitedError("a node asks for a feature that no row has")
                block[place] = (tree.thresholds[i], tree.features[i], at[two[0]])
                flag[place] = tree.flags[i]
            elif forest.one_weight:
                values[place] = tree.weights[i][0][1]
            else:
                if not tree.weights[i]:
                    raise NotSuitedError("a leaf has no weight")
                values[place] = len(items)
                items += tree.weights[i]
                items[-1] = (items[-1][0] | _LAST, items[-1][1])
        target = tree.leaves()[0][0][0] if forest.one_weight else 0
        entries.append((first, count, depth, target))
        nodes.append(block)
        flags.append(flag)
        first += count
    sections = {6: np.concatenate(nodes).tobytes(), 7: np.concatenate(flags).tobytes()}
    if items:
        sections[8] = np.array(items, _ITEM).tobytes()
    return sections, np.array(entries, _TREE).tobytes()


def _places(tree: Tree) -> tuple[dict[int, int], int, int]:
    """Where each node goes: three levels from the root fill a cache line (whose first place is not
    used), below them two levels of two siblings lie in one line. Returns the places by node, the
    depth, and the first place that is free."""
    at, depth, free = {0: 1}, 0, 2
    line = [0]
    for _ in range(2):  # the root's line
        level = [child for node in line for child in tree.children[node] or ()]
        for child in level:
            at[child] = free
            free += 1
        depth += bool(level)
        line = level
    waiting = [(node, 2) for node in line if tree.children[node]]
    while waiting:
        after: list[tuple[int, int]] = []
        for node, above in waiting:
            two = tree.children[node] or ()
            below = [child for one in two for child in tree.children[one] or ()]
            if free % _LINE + len(two) + len(below) > _LINE:
                free += -free % _LINE
            for child in (*two, *below):
                if child in at:
                    raise NotSuitedError("a node has two parents")
                at[child] = free
                free += 1
            depth = max(depth, above + (2 if below else 1))
            after += [(child, above + 2) for child in below if tree.children[child]]
        waiting = after
    return at, depth, free
