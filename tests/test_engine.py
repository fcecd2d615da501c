"""The native engine against ONNX Runtime: random chains and random forests, whose answers the
server's own trial compares at load; what is not exported and why; the files in the cache."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lumen_uring.engine import cache as engine_cache
from lumen_uring.engine.cache import engine_place
from lumen_uring.errors import EngineError
from lumen_uring.loading import inspection
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.schema import Config

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")

pytestmark = pytest.mark.usefixtures("c_library", "cache")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lumen"


def value(name: str, kind: int, *shape: int | str | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
) -> Path:
    constants = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def native(*paths: Path) -> None:
    """The engine is taken; an error where its answers are not ONNX Runtime's."""
    models = [ModelConfig(name=path.stem, path=str(path), engine="native") for path in paths]
    for found in inspection.look_at(Config(models=models)).values():
        assert isinstance(found, inspection.Found), found
        assert found.entry["engine"] == "native"
        assert found.entry["engine_why"].startswith("as set: a row takes ")


# ---- dense layers ----


def chain(path: Path, seed: int) -> Path:
    """A few layers of random sizes, as one exporter or another writes them."""
    random = np.random.default_rng(seed)
    widths = [int(width) for width in random.integers(1, 200, random.integers(2, 6))]
    nodes, weights, at = [], {}, "x"
    if seed % 3 == 0:
        scales = {name: random.standard_normal(widths[0]).tolist() for name in ("offset", "scale")}
        nodes.append(helper.make_node("Scaler", [at], ["scaled"], domain="ai.onnx.ml", **scales))
        at = "scaled"
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        matrix = (random.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        bias = random.standard_normal(outputs).astype(np.float32)
        w, b, product, total, activated = (f"{name}{i}" for name in ("w", "b", "p", "s", "a"))
        weights[b] = bias
        kind = random.integers(3)
        weights[w] = matrix.T.copy() if kind == 1 else matrix
        if kind == 2:
            nodes.append(helper.make_node("MatMul", [at, w], [product]))
            nodes.append(helper.make_node("Add", [b, product] if i % 2 else [product, b], [total]))
        else:
            settings = {"transB": int(kind == 1), "alpha": 0.5, "beta": 2.0}
            nodes.append(helper.make_node("Gemm", [at, w, b], [total], **settings))
        at = total
        word = random.choice(["", "Relu", "Sigmoid", "Tanh", "Softmax"])
        if word:
            nodes.append(helper.make_node(word, [at], [activated]))
            at = activated
    nodes.append(helper.make_node("Identity", [at], ["y"]))
    inputs = [value("x", FLOAT, "n", widths[0])]
    return save(path, nodes, inputs, [value("y", FLOAT, None, widths[-1])], weights)


def test_chains(tmp_path: Path) -> None:
    native(*(chain(tmp_path / f"chain{seed}.onnx", seed) for seed in range(20)))


def classifier(path: Path, classes: int, labels: list[int]) -> Path:
    """As scikit-learn's converter writes networks: two classes as one sigmoid."""
    random = np.random.default_rng(classes)
    last = 1 if classes == 2 else classes
    weights = {
        "w": random.standard_normal((7, last)).astype(np.float32),
        "labels": np.array(labels),
        "one": np.array([1], np.float32),
        "flat": np.array([-1]),
    }
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"])]
    if classes == 2:
        nodes += [
            helper.make_node("Sigmoid", ["s"], ["p"]),
            helper.make_node("Sub", ["one", "p"], ["q"]),
            helper.make_node("Concat", ["q", "p"], ["scores"], axis=1),
        ]
    else:
        nodes.append(helper.make_node("Softmax", ["s"], ["scores"]))
    nodes += [
        helper.make_node("ArgMax", ["scores"], ["i"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["labels", "i"], ["l"], domain="ai.onnx.ml"),
        helper.make_node("Reshape", ["l", "flat"], ["r"]),
        helper.make_node("Cast", ["r"], ["label"], to=INT64),
    ]
    outputs = [value("label", INT64, None), value("scores", FLOAT, None, classes)]
    return save(path, nodes, [value("x", FLOAT, None, 7)], outputs, weights)


# ---- trees ----


def forest(path: Path, seed: int) -> Path:
    """Random trees with every way to compare, to weigh and to end."""
    random = np.random.default_rng(seed)
    classes = int(random.choice([0, 2, 3, 5]))  # 0: a regression
    targets = classes or int(random.choice([1, 3]))
    mode = MODES[seed % 4] if seed % 3 else None
    kind = "class" if classes else "target"
    nodes: dict[str, list[object]] = {}
    leaves: dict[str, list[object]] = {}
    sparse = bool(random.integers(2)) and targets > 1
    positive = bool(random.integers(2))
    for tree in range(int(random.integers(1, 30))):
        grow(random, tree, mode, nodes, leaves, kind, targets, sparse, classes == 2 and seed % 2)
    settings = {f"nodes_{name}": values for name, values in nodes.items()}
    settings |= {f"{kind}_{name}": values for name, values in leaves.items()}
    if positive:
        settings[f"{kind}_weights"] = [abs(w) / 9 for w in leaves["weights"]]  # type: ignore[arg-type]
    if random.integers(2):
        count = targets if targets != 2 else int(random.choice([1, 2]))
        settings["base_values"] = random.standard_normal(count).tolist()
    posts = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]
    settings["post_transform"] = str(random.choice(posts))
    shape = [None, targets]
    if classes:
        settings["classlabels_int64s"] = list(range(4, 4 + classes))
        outputs = [value("label", INT64, None), value("scores", FLOAT, *shape)]
    else:
        settings |= {"n_targets": targets, "aggregate_function": ["SUM", "AVERAGE"][seed % 2]}
        outputs = [value("scores", FLOAT, *shape)]
    word = "TreeEnsembleClassifier" if classes else "TreeEnsembleRegressor"
    names = [output.name for output in outputs]
    node = helper.make_node(word, ["x"], names, domain="ai.onnx.ml", **settings)
    return save(path, [node], [value("x", FLOAT, None, 5)], outputs)


def grow(random, tree, mode, nodes, leaves, kind, targets, sparse, one_class) -> None:
    """One tree: its nodes and the weights of its leaves."""
    depth_max, count = int(random.integers(0, 9)), 0
    own = int(random.integers(targets))
    waiting = [(0, None, None)]
    flat: list[dict[str, object]] = []
    while waiting:
        depth, parent, side = waiting.pop(int(random.integers(len(waiting))))
        number, count = count, count + 1
        if parent is not None:
            flat[parent][side] = number
        leaf = depth >= depth_max or random.random() < 0.2
        entry: dict[str, object] = {
            "treeids": tree,
            "nodeids": number,
            "modes": "LEAF" if leaf else mode or str(random.choice(MODES)),
            "featureids": 0 if leaf else int(random.integers(5)),
            "values": 0.0 if leaf else float(np.float32(random.integers(-20, 20) / 8)),
            "truenodeids": 0,
            "falsenodeids": 0,
            "missing_value_tracks_true": 0 if leaf else int(random.integers(4) == 0),
        }
        flat.append(entry)
        if not leaf:
            waiting += [(depth + 1, number, "truenodeids"), (depth + 1, number, "falsenodeids")]
            continue
        chosen = [0] if one_class else range(targets) if sparse else [own]
        for target in chosen:
            leaves.setdefault("treeids", []).append(tree)
            leaves.setdefault("nodeids", []).append(number)
            leaves.setdefault("ids", []).append(target)
            weight = float(np.float32(random.standard_normal()))
            leaves.setdefault("weights", []).append(weight)
    for entry in flat:
        for name, item in entry.items():
            nodes.setdefault(name, []).append(item)


def test_forests(tmp_path: Path) -> None:
    native(*(forest(tmp_path / f"forest{seed}.onnx", seed) for seed in range(60)))


def test_classifiers(tmp_path: Path) -> None:
    two = classifier(tmp_path / "two.onnx", 2, [3, 9])
    native(two, classifier(tmp_path / "four.onnx", 4, [7, 5, 1, 2]))


# ---- what is refused ----


def test_graphs_of_any_kind_are_read(tmp_path: Path, cache: Path) -> None:
    """A constant that is no tensor; and nodes as no exporter writes them: ONNX Runtime says what is
    wrong, and the native engine's reader ends nothing."""
    weights = {"w": np.ones((4, 3), np.float32)}
    x, y = [value("x", FLOAT, "n", 4)], [value("y", FLOAT, "n", 3)]
    layer = helper.make_node("MatMul", ["x", "w"], ["s"])
    three = helper.make_node("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0])
    sum_of = helper.make_node("Add", ["s", "c"], ["y"])
    path = save(tmp_path / "c.onnx", [layer, three, sum_of], x, y, weights)
    entry = inspection.look(str(path), []).entry
    assert entry["engine"] == "onnxruntime"
    for name, node in (
        ("no_input", helper.make_node("MatMul", ["x"], ["y"])),
        ("no_value", helper.make_node("Gemm", ["x", "w", "none"], ["y"], alpha="a")),
    ):
        path = save(tmp_path / f"{name}.onnx", [node], x, y, weights)
        with pytest.raises(EngineError, match="ONNX Runtime"):
            inspection.look(str(path), [])


def test_what_it_does_not_run(tmp_path: Path, cache: Path) -> None:
    weights = {"w": np.ones((4, 3), np.float32)}
    x, y = [value("x", FLOAT, "n", 4)], [value("y", FLOAT, "n", 3)]
    layer = helper.make_node("MatMul", ["x", "w"], ["s"])
    for node, why in [
        (helper.make_node("Elu", ["s"], ["y"]), "Elu is none of its operators"),
        (helper.make_node("Add", ["s", "s"], ["y"]), "its graph has branches"),
    ]:
        path = save(tmp_path / f"{node.op_type}.onnx", [layer, node], x, y, weights)
        entry = inspection.look(str(path), []).entry
        assert entry["engine"] == "onnxruntime"
        assert why in entry["engine_why"]
        # The reason is kept, and asked for anew by nobody.
        assert [why in text.read_text() for text in cache.glob("*-engine1.txt")].count(True) == 1
        with pytest.raises(EngineError, match=r"expected a model that the native engine runs: "):
            inspection.look(str(path), ["models.0.engine=native"])
    entry = inspection.look(str(path), ["models.0.engine=onnxruntime"]).entry
    assert entry["engine_why"] == "as set"


def test_other_weights_are_found_out(tmp_path: Path, cache: Path) -> None:
    """A file that is whole, and of another model with the same signature."""
    one = classifier(tmp_path / "one.onnx", 4, [0, 1, 2, 3])
    two = classifier(tmp_path / "two.onnx", 4, [0, 1, 2, 4])
    native(one, two)
    files = [cache / f"{digest(path)}-engine1.bin" for path in (one, two)]
    files[1].write_bytes(files[0].read_bytes())
    with pytest.raises(EngineError, match="its answers differ from ONNX Runtime's"):
        inspection.look(str(two), ["models.0.engine=native"])
    assert inspection.look(str(two), []).entry["engine"] == "onnxruntime"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def test_a_damaged_file_is_made_anew(tmp_path: Path, cache: Path) -> None:
    path = chain(tmp_path / "m.onnx", 4)
    native(path)
    (file,) = cache.glob("*-engine1.bin")
    good = file.read_bytes()
    for bad, why in [
        (good[:-7], f"bytes: expected {len(good)}, found {len(good) - 7}"),
        (good[:8] + good[8:12][::-1] + good[12:], "another byte order"),
        (good[:12] + b"\x07" + good[13:], "version: expected 1, found 7"),
        (good[:-70] + bytes([good[-70] ^ 8]) + good[-69:], "the checksum of block"),
        (b"", "expected a file, found none"),
    ]:
        file.write_bytes(bad)
        found = inspection.look(str(path), ["models.0.engine=native"])
        (note,) = found.notes
        assert note.startswith("the native engine's file of m.onnx is made anew: ")
        assert why in note
        assert file.read_bytes() == good


def test_without_a_cache_or_onnx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    path = chain(tmp_path / "m.onnx", 5)
    assert engine_place(path, "m", None).why == "there is no cache to keep its file in"

    def missing(*_: object) -> None:
        raise ImportError

    monkeypatch.setattr(engine_cache, "_export", missing)
    place = engine_place(path, "m", cache / "0-1.ort")
    assert (place.path, place.why) == (None, "the package onnx is not installed: pip install onnx")
