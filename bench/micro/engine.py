"""`make engine`: the native engine beside ONNX Runtime, numpy, XGBoost, LightGBM and the memory.

A fused layer (2048 x 1024, Linear and ReLU, one row) beside the time to read its weights once, from
the same buffer and from one far larger than the caches; how long files of 8 MB and 800 MB take to
open; one row of boosted trees (500 of depth 6, 50 features). engine.c measures in C; the libraries
that have no C program here are called from Python as their users call them. XGBoost and LightGBM
lie in an environment of their own (bench/peers/install.py). Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.peers.install import PeerMissingError, environment
from lumen_uring.engine import export as engine_export
from lumen_uring.engine import file as engine_file
from lumen_uring.ring import onnxruntime_path

ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = ROOT / "c/build/release/bench/micro/engine"
_PEERS: Final = (
    "xgboost",
    "lightgbm",
    "onnxmltools",
    "skl2onnx",
    "onnx",
    "scikit-learn",
    "packaging",  # which onnxmltools forgets to ask for
)
_PREDECESSOR_US: Final = 352.8  # LatencyServe-Edge, one thread, on its own machine
_TREES, _DEPTH, _FEATURES = 500, 6, 50

# Run by the peers' Python: trains, exports to ONNX, and times predict on one row.
_PEER: Final = """
import json, sys, time, warnings
import numpy as np
warnings.filterwarnings("ignore")
which, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
random = np.random.default_rng(5)
X = random.standard_normal((20000, %(features)d)).astype(np.float32)
y = (X @ random.standard_normal(%(features)d) + np.sin(3 * X[:, 0]) * X[:, 1] > 0).astype(int)
from onnxmltools.convert.common.data_types import FloatTensorType
kinds = [("x", FloatTensorType([None, %(features)d]))]
if which == "xgboost":
    import xgboost
    from onnxmltools import convert_xgboost as convert
    model = xgboost.XGBClassifier(n_estimators=%(trees)d, max_depth=%(depth)d, n_jobs=1).fit(X, y)
    booster = model.get_booster()
    booster.set_param({"nthread": 1})
    asks = {"predict_proba": lambda row: model.predict_proba(row),
            "Booster.inplace_predict": lambda row: booster.inplace_predict(row)}
else:
    import lightgbm
    from onnxmltools import convert_lightgbm as convert
    model = lightgbm.LGBMClassifier(n_estimators=%(trees)d, max_depth=%(depth)d,
        num_leaves=2 ** %(depth)d, n_jobs=1, verbose=-1).fit(X, y)
    booster = model.booster_
    asks = {"predict_proba": lambda row: model.predict_proba(row),
            "Booster.predict": lambda row: booster.predict(row, num_threads=1)}
import onnx
more = {} if which == "xgboost" else {"zipmap": False}
onnx.save(convert(model, initial_types=kinds, **more), path)
row, said = X[:1], {}
for name, ask in asks.items():
    samples = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        ask(row)
        samples.append(time.perf_counter_ns() - began)
    samples.sort()
    said[name] = {"best": samples[0] / 1e3, "median": samples[len(samples) // 2] / 1e3}
print(json.dumps({"version": sys.modules[which].__version__, "times": said}))
"""


def layer(inputs: int, outputs: int, path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Writes Linear and ReLU as an ONNX file; returns weights and bias."""
    from onnx import TensorProto, helper, numpy_helper, save

    random = np.random.default_rng(1)
    weights = random.standard_normal((inputs, outputs), dtype=np.float32) / 32
    bias = random.standard_normal(outputs, dtype=np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return weights, bias


def export(model: Path) -> Path:
    """Writes the engine's file beside the model."""
    path = model.with_suffix(".bin")
    path.write_bytes(engine_file.data(engine_export.network(model)))
    return path


def ask(*arguments: object) -> dict[str, Any]:
    """What the C program prints."""
    command = [str(_PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def numpy_us(weights: npt.NDArray[Any], bias: npt.NDArray[Any], rounds: int) -> float:
    """The best time of numpy on the same layer, in us."""
    x, samples = np.ones((1, weights.shape[0]), np.float32), []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        np.maximum(x @ weights + bias, 0)
        samples.append(time.perf_counter_ns() - began)
    return min(samples) / 1000


def show_layer(folder: Path, rounds: int) -> None:
    """Linear and ReLU, 2048 x 1024, one row."""
    model = folder / "layer.onnx"
    weights, bias = layer(1024, 2048, model)
    found = ask("run", onnxruntime_path.find(), model, export(model), 1, rounds)
    once = {
        word: min(found[f"{word}stream512"]["median"], found[f"{word}stream256"]["median"])
        for word in ("", "team_")
    }
    least = {
        word: min(found[f"{word}stream512"]["best"], found[f"{word}stream256"]["best"])
        for word in ("", "team_")
    }
    size = found["weight_bytes"]
    beside = numpy_us(weights, bias, rounds)
    print(f"Linear + ReLU 2048 x 1024, one row, {size / 1e6:.1f} MB, kernel {found['kernel']}")
    print(
        f"  reading the weights once   {once['']:8.1f} us  {size / once[''] / 1e3:6.1f} GB/s; "
        f"of 512 MB {found['far_gb_s']:.1f} GB/s"
    )
    print(f"  the same, {found['threads']} threads         {once['team_']:8.1f} us")
    for name, base in (("native", ""), ("team", "team_")):
        took = found[name]
        label = "native, 1 thread" if name == "native" else f"native, {found['threads']} threads"
        print(
            f"  {label:24} {took['median']:10.1f} us  best {took['best']:.1f}, p90 "
            f"{took['p90']:.1f}; / reading {took['median'] / once[base]:.2f} "
            f"(best / best {took['best'] / least[base]:.2f}), / ONNX Runtime "
            f"{took['median'] / found['onnxruntime']['median']:.2f}, / numpy "
            f"{took['median'] / beside:.2f}, / predecessor {took['median'] / _PREDECESSOR_US:.2f}"
        )
    print(f"  ONNX Runtime, 1 thread   {found['onnxruntime']['median']:10.1f} us")
    print(f"  numpy, its threads       {beside:10.1f} us")
    for rows in (8, 32):
        many = ask("run", onnxruntime_path.find(), model, model.with_suffix(".bin"), rows, rounds)
        ours, theirs = many["native"]["median"], many["onnxruntime"]["median"]
        print(
            f"  {rows:2} rows: native {ours:.1f} us, ONNX Runtime {theirs:.1f}, {ours / theirs:.2f}"
        )


def show_load(folder: Path) -> None:
    """Files of 8 MB and 800 MB."""
    print("Opening the file (header, tables and 8 blocks of weights checked)")
    for inputs, outputs in ((1024, 2048), (14000, 14336)):
        random = np.random.default_rng(1)
        weights = random.standard_normal((inputs, outputs), dtype=np.float32)
        network = engine_file.Network(inputs=inputs, score_output=0)
        bias = np.zeros(outputs, np.float32)
        network.layers = [engine_file.Layer(engine_file.LINEAR, weights, bias)]
        path = folder / f"{inputs}.bin"
        path.write_bytes(engine_file.data(network))
        del network, weights
        found = ask("load", path, 21)
        path.unlink()
        print(
            f"  {found['file_bytes'] / 1e6:6.1f} MB  {found['open']['median']:8.1f} us  "
            f"p90 {found['open']['p90']:.1f}"
        )


def show_trees(folder: Path, rounds: int) -> None:
    """Boosted trees, one row."""
    python = environment("trees", _PEERS)
    script = _PEER % {"features": _FEATURES, "trees": _TREES, "depth": _DEPTH}
    for which in ("xgboost", "lightgbm"):
        model = folder / f"{which}.onnx"
        command = [str(python), "-c", script, which, str(model), "200"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise SystemExit(f"{which}: {done.stderr.strip()[-400:]}")
        said = json.loads(done.stdout.splitlines()[-1])
        found = ask("run", onnxruntime_path.find(), model, export(model), 1, rounds)
        ours, theirs = found["native"]["median"], found["onnxruntime"]["median"]
        print(f"{which} {said['version']}, {_TREES} trees of depth {_DEPTH}, {_FEATURES} features")
        print(f"  native        {ours:10.2f} us  best {found['native']['best']:.2f}")
        print(f"  ONNX Runtime  {theirs:10.2f} us  native is {theirs / ours:.1f} times as fast")
        for name, took in said["times"].items():
            print(f"  {name:24} {took['median']:8.1f} us  {took['median'] / ours:.0f} times")
        many = ask("run", onnxruntime_path.find(), model, model.with_suffix(".bin"), 32, rounds)
        print(
            f"  32 rows: native {many['native']['median']:.1f} us, ONNX Runtime "
            f"{many['onnxruntime']['median']:.1f}"
        )


def main() -> int:
    """Measures and prints all of it."""
    parser = argparse.ArgumentParser(description="The native engine beside others.")
    parser.add_argument("--rounds", type=int, default=300, help="of each measurement")
    parser.add_argument("--only", choices=("layer", "load", "trees"), help="one part of it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only in (None, "layer"):
            show_layer(folder, options.rounds)
        if options.only in (None, "load"):
            show_load(folder)
        if options.only in (None, "trees"):
            try:
                show_trees(folder, options.rounds)
            except PeerMissingError as error:
                print(f"trees: {error}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
