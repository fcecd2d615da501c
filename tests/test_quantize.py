"""`lumen quantize`: the INT8 model, the figures, and the sentences for what cannot be quantised."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import needs
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from lumen_uring.cli import main
from lumen_uring.offline import quantize_compare, quantize_int8
from lumen_uring.offline.quantize_compare import (
    Agreement,
    Processor,
    Shape,
    Times,
    judge,
    processor,
)
from lumen_uring.offline.quantize_samples import ArraySamples, Input, PictureSamples, crop_box
from lumen_uring.pictures.image_input import Preprocessing

SIDE = 16
VNNI = Processor("AVX-512 VNNI", True, False)


def floats(*shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    return (values / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    weights: dict[str, Any],
    opset: int = 13,
    kind: int = TensorProto.FLOAT,
    weights_are_inputs: bool = False,
) -> Path:
    def values(entries: dict[str, list[Any]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, kind, dims) for name, dims in entries.items()]

    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    given = values(inputs)
    if weights_are_inputs:
        given += values({name: list(array.shape) for name, array in weights.items()})
    graph = helper.make_graph(nodes, "g", given, values(outputs), tensors)
    opsets = [helper.make_opsetid("", opset)]
    version = 3 if weights_are_inputs else 8
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=version), str(path))
    return path


def conv_net(path: Path, sides: tuple[Any, Any] = (SIDE, SIDE), **more: Any) -> Path:
    """Two convolutions with a sum around one, a product, and a softmax over ten classes."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1] * 4),
        helper.make_node("Add", ["c2", "r1"], ["s"]),
        helper.make_node("Relu", ["s"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"]),
    ]
    weights = {
        "w1": floats(8, 3, 3, 3),
        "b1": floats(8, seed=1),
        "w2": floats(8, 8, 3, 3, seed=2),
        "w3": floats(8, 10, seed=3) * 9,
        "b3": floats(1, 10, seed=4),
    }
    return save(path, nodes, {"x": ["n", 3, *sides]}, {"y": ["n", 10]}, weights, **more)


def two_inputs(path: Path) -> Path:
    """A product of each of two inputs, one of them with a free length."""
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    inputs = {"a": ["n", "length", 4], "b": ["n", 1, 6]}
    return save(path, nodes, inputs, {"y": ["n", "length", 6]}, {"w": floats(4, 6)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three pictures, one of them in a folder below."""
    images = tmp_path / "images"
    (images / "cats").mkdir(parents=True)
    random = np.random.default_rng(3)
    for index, name in enumerate(("a.png", "b.jpg", "cats/c.png")):
        values = random.integers(0, 256, (20 + index, 30, 3), np.uint8)
        Image.fromarray(values).save(images / name)
    return images


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """INT8 is twice as fast, without a measurement."""

    def measure(*_: Any) -> Iterator[Times]:
        yield Times(2e-3, 1e-3, 1)

    monkeypatch.setattr(quantize_compare, "measure", measure)


def quantize(*arguments: object) -> int:
    return main(["quantize", *map(str, arguments)])


def said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err


# ---- the INT8 model ----


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_a_model_becomes_int8(
    tmp_path: Path, folder: Path, quick: None, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    path, out = conv_net(tmp_path / "m.onnx"), tmp_path / "m.int8.onnx"
    options = ("--scale", "0.01,0.01,0.01", "--crops", 20, "--method", method, "--json")
    assert quantize(path, "--images", folder, *options) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.err == ""
    assert document["output"] == str(out)
    assert document["calibrated"] == {"pictures": 3}
    assert document["graph"]["int8"] == 3
    assert document["graph"]["float"] == 0
    assert document["agreement"]["pictures"]["rows"] == 3
    assert document["agreement"]["random crops"]["rows"] == 20
    assert document["agreement"]["random crops"]["cosine_min"] > 0.8
    assert document["speedup"] == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["images", "m.int8.onnx", "m.onnx"]
    model = onnx.load(str(out))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    assert weights["w1_quantized"].data_type == TensorProto.INT8
    assert list(weights["w1_scale"].dims) == [8]  # one for each channel
    assert weights["x_zero_point"].data_type == TensorProto.UINT8
    ends = [entry.name for side in (model.graph.input, model.graph.output) for entry in side]
    assert ends == ["x", "y"]


def test_what_follows_the_last_product_stays_float(
    tmp_path: Path, folder: Path, quick: None
) -> None:
    path = conv_net(tmp_path / "m.onnx")
    arguments = (path, "--images", folder, "--fit", "stretch", "--crops", 0)
    assert quantize(*arguments) == 0
    nodes = onnx.load(str(tmp_path / "m.int8.onnx")).graph.node
    assert nodes[-1].op_type == "Softmax"
    assert nodes[-1].output[0] == "y"
    converted = sum(node.op_type == "QuantizeLinear" for node in nodes)
    assert quantize(*arguments, "--keep-float", "c2", "--keep-float", "Gemm") == 0
    fewer = onnx.load(str(tmp_path / "m.int8.onnx")).graph.node
    assert sum(node.op_type == "QuantizeLinear" for node in fewer) < converted


def test_old_models_are_mended(
    tmp_path: Path, folder: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = conv_net(tmp_path / "m.onnx", opset=9, weights_are_inputs=True)
    before = path.read_bytes()
    assert quantize(path, "--images", folder, "--fit", "stretch", "--crops", 5) == 0
    text = said(capsys)
    assert "note: 5 weights were also inputs of the graph" in text
    assert "note: opset 9 was converted to 13" in text
    assert "note: few pictures: the models were compared on those that calibrated" in text
    assert f"Serve it: lumen {tmp_path / 'm.int8.onnx'}" in text
    model = onnx.load(str(tmp_path / "m.int8.onnx"))
    assert [entry.name for entry in model.graph.input] == ["x"]
    assert path.read_bytes() == before


def test_shapes_that_an_exporter_noted_of_one_row_do_not_stay(
    tmp_path: Path, folder: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Softmax over four dimensions becomes a Reshape in a newer opset: to rows that are free."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    sides = {"x": ["n", 3, SIDE, SIDE]}
    path = save(
        tmp_path / "m.onnx", nodes, sides, {"y": ["n", 4, 1, 1]}, {"w": floats(4, 3, 3, 3)}, opset=9
    )
    model = onnx.load(str(path))
    noted = helper.make_tensor_value_info("g", TensorProto.FLOAT, [1, 4, 1, 1])
    model.graph.value_info.append(noted)
    onnx.save(model, str(path))
    assert quantize(path, "--images", folder, "--preset", "yolo", "--crops", 0) == 0
    assert f"Serve it: lumen {tmp_path / 'm.int8.onnx'} --image yolo\n" in said(capsys)
    session = onnxruntime.InferenceSession(
        tmp_path / "m.int8.onnx", providers=["CPUExecutionProvider"]
    )
    assert session.run(None, {"x": floats(2, 3, SIDE, SIDE)})[0].shape == (2, 4, 1, 1)


def test_several_inputs_come_as_arrays(
    tmp_path: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = two_inputs(tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", a=floats(30, 5, 4), b=floats(30, 1, 6))
    assert quantize(path, "--npz", tmp_path / "d.npz", "--json", "--method", "percentile") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["calibrated"] == {"rows": 24}
    assert document["held_out"] is True
    assert document["agreement"]["rows"]["rows"] == 6
    assert document["agreement"]["rows"]["top1"] is None  # [n, length, 6] are no classes
    assert document["agreement"]["rows"]["cosine_min"] > 0.99
    session = onnxruntime.InferenceSession(
        tmp_path / "m.int8.onnx", providers=["CPUExecutionProvider"]
    )
    feeds = {"a": floats(2, 9, 4), "b": floats(2, 1, 6)}
    assert session.run(None, feeds)[0].shape == (2, 9, 6)  # its sizes are as free as they were


def test_free_sizes_of_pictures_are_given(
    tmp_path: Path, folder: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = conv_net(tmp_path / "m.onnx", ("height", "width"))
    options = ("--images", folder, "--fit", "stretch", "--crops", 0)
    assert quantize(path, *options) == 2
    assert "of a fixed size, found FP32 [-1, 3, -1, -1]" in said(capsys)
    assert quantize(path, *options, "--dims", "height=16,depth=9") == 2
    assert "expected free dimensions of input 'x' (['height', 'width'])" in said(capsys)
    assert quantize(path, *options, "--dims", "height=16,width=24") == 0
    assert "stretched to 24 x 16" in said(capsys)


# ---- the verdict ----


def test_a_slower_model_is_not_kept(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measure(*_: Any) -> Iterator[Times]:
        yield Times(1e-5, 4e-5, 1)

    monkeypatch.setattr(quantize_compare, "measure", measure)
    path, out = conv_net(tmp_path / "m.onnx"), tmp_path / "other.onnx"
    options = ("--images", folder, "--fit", "stretch", "--crops", 0, "-o", out)
    assert quantize(path, *options) == 1
    text = said(capsys)
    assert "0.25 x on one thread" in text
    assert "slower: a Run takes 10 µs: there is too little to win" in text
    assert "No file was kept" in text
    assert not out.exists()
    assert quantize(path, *options, "--force") == 0
    assert out.exists()


def test_a_measurement_takes_turns(tmp_path: Path) -> None:
    session = quantize_compare.session(conv_net(tmp_path / "m.onnx"))
    row = {"x": floats(1, 3, SIDE, SIDE)}
    turns = [times.turns for times in quantize_compare.measure(session, session, row)]
    assert turns == list(range(1, len(turns) + 1))
    assert len(turns) >= 15


def test_the_reasons_name_processor_and_graph() -> None:
    slower = Times(1e-3, 2e-3, 9)
    graph = Shape(3, (), 1)
    assert judge(Times(2e-3, 1e-3, 9), graph, VNNI).reasons == []
    assert "has AVX2 and no VNNI" in judge(slower, graph, Processor("AVX2", False, True)).reasons[0]
    assert "has NEON and no dot" in judge(slower, graph, Processor("NEON", False, False)).reasons[0]
    assert (
        "most of the graph stays float"
        in judge(slower, Shape(1, ("Conv",) * 2, 2), VNNI).reasons[0]
    )
    assert (
        "(3 of 3 convolutions and products, 9 conv"
        in judge(slower, Shape(3, (), 9), VNNI).reasons[0]
    )
    assert "nothing else explains it" in judge(slower, graph, VNNI).reasons[0]


@pytest.mark.parametrize(
    ("flags", "machine", "name", "reduced"),
    [
        ("flags\t\t: sse2 avx2 fma", "x86_64", "AVX2", True),
        ("flags\t\t: avx2 avx512f avx512bw", "x86_64", "AVX-512", True),
        ("flags\t\t: avx2 avx512bw avx512_vnni", "x86_64", "AVX-512 VNNI", False),
        ("flags\t\t: avx2 avx_vnni", "x86_64", "AVX VNNI", False),
        ("", "x86_64", "SSE", True),
        ("Features\t: fp asimd asimddp", "aarch64", "dot products", False),
        ("Features\t: fp asimd", "aarch64", "NEON", False),
    ],
)
def test_the_processor_is_read(
    tmp_path: Path, flags: str, machine: str, name: str, reduced: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n")
    found = processor(tmp_path / "cpuinfo", machine)
    assert (found.name, found.needs_reduced_range) == (name, reduced)
    assert processor(tmp_path / "none", "x86_64").name == "SSE"


def test_agreement_counts_classes() -> None:
    one = Agreement()
    scores = np.eye(1, 8, dtype=np.float32)
    one.add([scores], [scores])
    one.add([scores], [np.arange(8, 0, -1, dtype=np.float32)[None]])
    one.add([scores], [np.roll(scores, 7)])
    figures = one.as_json()
    assert (figures["rows"], figures["top1"]) == (3, pytest.approx(2 / 3))
    assert figures["top5"] == 1
    assert figures["cosine_min"] == 0
    other = Agreement()
    other.add([np.zeros((1, 2, 3)), np.array([7])], [np.zeros((1, 2, 3)), np.array([7])])
    assert (other.as_json()["top1"], other.as_json()["cosine_mean"]) == (None, 1)


# ---- data ----


def test_pictures_are_set_aside_where_there_are_many(tmp_path: Path) -> None:
    for index in range(25):
        Image.new("RGB", (9, 9), (index, 0, 0)).save(tmp_path / f"{index}.png")
    plan = Preprocessing(1, 1)
    samples = PictureSamples(tmp_path, "x", plan, 100, 12)
    seen = {float(row["x"].flat[0]) for row in samples.calibration()}
    compared = list(samples.comparison())
    kinds = [kind for kind, _ in compared]
    assert samples.held_out
    assert (len(seen), kinds.count("pictures"), kinds.count("random crops")) == (20, 5, 12)
    assert seen.isdisjoint(float(row["x"].flat[0]) for _, row in compared)
    again = [row["x"].tolist() for _, row in samples.comparison()]
    assert again == [row["x"].tolist() for _, row in compared]
    assert PictureSamples(tmp_path, "x", plan, 4, 0).calibration_count == 4


def test_crops_stay_inside() -> None:
    random = np.random.default_rng(1)
    for width, height in ((1, 1), (1, 500), (640, 480)):
        for _ in range(200):
            left, top, right, bottom = crop_box(width, height, random)
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height


def test_unreadable_pictures_are_skipped_and_named(
    tmp_path: Path, folder: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = conv_net(tmp_path / "m.onnx")
    for index in range(7):
        (folder / f"bad{index}.jpg").write_bytes(b"no picture")
    assert (
        quantize(path, "--images", folder, "--fit", "stretch", "--crops", 4, "--samples", 99) == 0
    )
    text = said(capsys)
    assert text.count("note: skipped: ") == 6
    assert "note: skipped: 2 more, 7 in all" in text
    assert "minmax of 3 pictures" in text
    for name in ("a.png", "b.jpg", "cats/c.png"):
        (folder / name).write_bytes(b"")
    assert quantize(path, "--images", folder, "--fit", "stretch") == 1
    assert "none of 10 pictures can be read" in said(capsys)


def test_a_calibrator_gets_few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps every tensor of the rows of one call."""
    calls: list[int] = []

    class Calibrator:
        def collect_data(self, reader: Any) -> None:
            calls.append(sum(1 for _ in iter(reader.get_next, None)))

        def compute_data(self) -> str:
            return "ranges"

    import onnxruntime.quantization

    monkeypatch.setattr(
        onnxruntime.quantization, "create_calibrator", lambda *_, **__: Calibrator()
    )
    plan = quantize_int8.Plan(("Conv",), ())
    rows = [{"x": np.zeros((1, 2 + (index == 5)))} for index in range(12)]
    for method, wanted in (("minmax", [1] * 12), ("percentile", [5, 1, 2, 1, 1, 1, 1])):
        calls.clear()
        found = quantize_int8.calibrate(Path("m.onnx"), plan, method, iter(rows), "m")  # type: ignore[arg-type]
        assert found == ("ranges", 12)
        assert calls == wanted


def test_histograms_stay_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = two_inputs(tmp_path / "m.onnx")
    a = floats(19, 5, 4)
    a[::2] *= 1e3
    monkeypatch.setattr(quantize_int8, "_BINS_MAX", 2000)
    np.savez(tmp_path / "d.npz", a=a, b=floats(19, 1, 6))
    assert quantize(path, "--npz", tmp_path / "d.npz", "--method", "percentile") == 1
    assert "differ too much between rows for histograms: use --method minmax" in said(capsys)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"a": np.zeros((9, 5, 4))}, "expected an array for each input (a, b), found a"),
        ({"a": np.zeros((9, 5, 3)), "b": np.zeros((9, 1, 6))}, "float32 [samples, length, 4]"),
        ({"a": np.zeros((9, 4)), "b": np.zeros((9, 1, 6))}, "'a', found float64 [9, 4]"),
        ({"a": np.zeros((9, 5, 4)), "b": np.zeros((8, 1, 6))}, "found {'a': 9, 'b': 8}"),
        ({"a": np.zeros((0, 5, 4)), "b": np.zeros((0, 1, 6))}, "found arrays without any"),
        ({"a": np.zeros((9, 5, 4)), "b": np.full((9, 1, 6), "x")}, "'b', found texts"),
        ({"a": np.zeros((9, 5, 4)), "b": np.full((9, 1, 6), {})}, "Object arrays cannot be loaded"),
    ],
)
def test_arrays_that_do_not_fit(
    tmp_path: Path, arrays: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    assert quantize(two_inputs(tmp_path / "m.onnx"), "--npz", tmp_path / "d.npz") == 1
    text = said(capsys)
    assert sentence in text
    assert text.count("\n") == 1


def test_a_fixed_batch_is_one_sample() -> None:
    entries = [Input("x", "FP32", (4, 2), ("", ""))]
    with pytest.raises(Exception, match=r"expected float32 \[samples, 4, 2\]"):
        ArraySamples.__init__(
            object.__new__(ArraySamples), _npz({"x": np.zeros((9, 2))}), entries, 5
        )
    samples = ArraySamples(_npz({"x": np.zeros((3, 4, 2))}), entries, 5)
    assert [row["x"].shape for row in samples.calibration()] == [(4, 2)] * 3


def _npz(arrays: dict[str, Any]) -> Any:
    import io

    file = io.BytesIO()
    np.savez(file, **arrays)
    file.seek(0)
    return file


def refused(path: Path, capsys: pytest.CaptureFixture[str], status: int, *options: object) -> str:
    assert quantize(path, *options) == status
    text = said(capsys)
    assert text.startswith("lumen: ")
    assert text.count("\n") == 1
    assert "Traceback" not in text
    return text


def test_models_that_cannot_become_int8(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(path: Path, *options: object) -> str:
        return refused(path, capsys, 1, "--images", folder, *options)

    path = tmp_path / "m.onnx"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "expected an ONNX model, found" in ask(path)
    path.write_bytes(b"")
    assert "found one without operators" in ask(path)
    (tmp_path / "m.ort").touch()
    assert "expected the .onnx file" in ask(tmp_path / "m.ort")
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    picture, classes = {"x": ["n", 3, SIDE, SIDE]}, {"y": ["n", 3, SIDE, SIDE]}
    save(path, relu, picture, classes, {})
    assert "found none (most operators are Relu): INT8 would only add conversions" in ask(path)
    half = floats(3, 3, 1, 1).astype(np.float16)
    conv = [helper.make_node("Conv", ["x", "w"], ["y"])]
    save(path, conv, picture, classes, {"w": half}, kind=TensorProto.FLOAT16)
    assert "expected weights of float32, found float16" in ask(path)
    old = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Nope", ["c"], ["y"])]
    save(path, old, picture, classes, {"w": floats(3, 3, 1, 1)}, opset=9)
    text = ask(path, "--fit", "stretch")
    assert "expected opset 13 or later, found 9, and it cannot be converted" in text
    conv_net(path)
    assert quantize(path, "--images", folder, "--fit", "stretch", "--crops", 0, "--force") == 0
    said(capsys)
    assert "it is quantised already" in ask(tmp_path / "m.int8.onnx")
    text = ask(path, "--fit", "stretch", "--keep-float", "Tanh")
    assert "--keep-float Tanh: expected a kind of operator (Add, Conv," in text


def test_wrong_use_is_told_before_the_work(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = conv_net(tmp_path / "m.onnx")

    def ask(*options: object) -> str:
        return refused(path, capsys, 2, *options)

    assert "nothing in the graph says what its pictures looked like" in ask("--images", folder)
    none = tmp_path / "none"
    assert "expected a folder of pictures, found nothing" in ask(
        "--images", none, "--fit", "stretch"
    )
    none.mkdir()
    assert "expected pictures (.png" in ask("--images", none, "--fit", "stretch")
    assert "expected it with --images" in ask("--npz", none, "--preset", "imagenet")
    assert "expected at least 16" in ask("--images", folder, "--preset", "imagenet", "--resize", 8)
    assert "another file than the model's own" in ask("--images", folder, "-o", tmp_path / "m.onnx")
    assert "found a folder" in ask("--images", folder, "-o", tmp_path)
    assert "can be written to" in ask("--images", folder, "-o", tmp_path / "no" / "m.onnx")
    path = two_inputs(tmp_path / "two.onnx")
    text = ask("--images", folder)
    assert "expected a model with one input, found 2 (a, b): give them with --npz" in text


def test_without_onnx_the_cure_is_named(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = conv_net(tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install onnx onnxruntime" in refused(path, capsys, 1, "--images", folder)


def test_an_old_runtime_is_refused(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = conv_net(tmp_path / "m.onnx")
    monkeypatch.setattr(onnxruntime, "__version__", "1.19.2")
    text = refused(path, capsys, 1, "--images", folder)
    assert "needs ONNX Runtime 1.20 or later, found 1.19.2: pip install -U onnxruntime" in text


# ---- a trained model ----


def test_squeezenet_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = needs.shared_file("models/squeezenet/model.onnx")
    images = needs.shared_file("images")
    out = tmp_path / "s.onnx"
    options = ("--images", images, "-o", out, "--crops", 60, "--json", "--force")
    assert quantize(model, *options) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["graph"] == {"int8": 26, "float": 0, "conversions": 2}
    assert document["bytes"]["int8"] < document["bytes"]["original"] / 3
    assert document["agreement"]["pictures"]["top1"] >= 11 / 13
    assert document["agreement"]["random crops"]["top1"] >= 0.85
    assert document["agreement"]["random crops"]["top5"] >= 0.95
    assert any("preset squeezenet was guessed" in note for note in document["notes"])
    assert any("coffee_truncated.jpg is no readable picture" in note for note in document["notes"])
