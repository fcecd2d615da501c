"""Models of every shape the server takes, and the sentences for those it does not."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import graphs
import harness
import numpy as np
import onnx
import pytest
import wire
from conftest import ZOO_LARGE_COLUMNS, ZOO_OUTPUT_BYTES, ZOO_WIDE_COLUMNS, Serve
from harness import BY_TIME, Server
from onnx import helper

from lumen_uring import Client

pytestmark = pytest.mark.once  # what runs models is the same on both backends

ROWS = (1, 2, 7)


def infer(server: Server, model: str, payload: bytes, **rest: int) -> wire.Reply:
    with server.connect() as connection:
        return connection.ask(wire.frame(payload, model=server.models[model], id=5, **rest))


@pytest.mark.parametrize("rows", ROWS)
def test_every_dtype_comes_back_bit_for_bit(zoo: Server, rows: int) -> None:
    """Row 11."""
    random = np.random.default_rng(rows)
    arrays = []
    for name, _onnx, numpy_name in graphs.DTYPES:
        dtype = np.dtype(numpy_name)
        if name == "BOOL":
            arrays.append(random.integers(0, 2, (rows, 3)).astype(dtype))
        else:  # any bits are legal data: NaN with payloads, infinities, denormals
            arrays.append(np.frombuffer(random.bytes(rows * 3 * dtype.itemsize), dtype))
    payload = b"".join(array.tobytes() for array in arrays)
    reply = infer(zoo, "dtypes", payload, rows=rows)
    assert (reply.status, reply.flags, reply.rows) == (wire.OK, 0, rows)
    assert reply.payload == payload
    declared = zoo.description["models"][zoo.models["dtypes"]]  # type: ignore[index]
    assert [tensor["datatype"] for tensor in declared["inputs"]] == [d[0] for d in graphs.DTYPES]


@pytest.mark.parametrize("rows", ROWS)
def test_several_inputs_and_outputs(zoo: Server, rows: int) -> None:
    random = np.random.default_rng(rows)
    a = random.standard_normal((rows, 4)).astype("<f4")
    k = random.standard_normal(3).astype("<f4")
    b = random.integers(-1000, 1000, rows).astype("<i8")
    reply = infer(zoo, "several", a.tobytes() + k.tobytes() + b.tobytes(), rows=rows)
    assert (reply.status, reply.flags, reply.rows) == (wire.OK, wire.SHAPES, rows)
    shapes, data = wire.split_shapes(reply.payload)
    assert shapes == [(rows, 4), (), (rows,)]
    sums = np.frombuffer(data, "<f4", 4 * rows).reshape(rows, 4)
    np.testing.assert_allclose(sums, a + b[:, None], rtol=1e-5)
    total = np.frombuffer(data, "<f4", 1, 16 * rows)[0]
    assert total == pytest.approx(float(k.sum()), rel=1e-5)
    assert data[16 * rows + 4 :] == b.tobytes()


@pytest.mark.parametrize("rows", ROWS)
def test_free_rows(zoo: Server, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 16)).astype("<f4")
    reply = infer(zoo, "double", x.tobytes(), rows=rows)
    assert (reply.status, reply.rows) == (wire.OK, rows)
    assert reply.payload == (x + x).tobytes()


def test_rows_0_is_one_row(zoo: Server) -> None:
    x = np.arange(16, dtype="<f4")
    reply = infer(zoo, "double", x.tobytes(), rows=0)
    assert (reply.status, reply.rows) == (wire.OK, 1)
    assert reply.payload == (x + x).tobytes()


def test_the_most_rows_and_one_more(zoo: Server) -> None:
    x = np.random.default_rng(1).standard_normal((256, 16)).astype("<f4")
    reply = infer(zoo, "double", x.tobytes(), rows=256)
    assert reply.payload == (x + x).tobytes()
    reply = infer(zoo, "double", x.tobytes() + bytes(64), rows=257)
    assert reply.status == wire.BAD_REQUEST
    assert "257" in reply.text
    assert "256" in reply.text


def test_a_scalar(zoo: Server) -> None:
    # ONNX Runtime tells an output of no dimensions and one of unknown rank apart only in the Run.
    reply = infer(zoo, "scalar", np.float32(-1.5).tobytes())
    assert (reply.status, reply.flags) == (wire.OK, wire.SHAPES)
    assert wire.split_shapes(reply.payload) == ([()], np.float32(2.25).tobytes())


@pytest.mark.parametrize(
    "x", [[0, 1, 0, 2, 0, 3], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], ids=["some", "none", "all"]
)
def test_an_output_whose_shape_only_the_run_knows(zoo: Server, x: list[int]) -> None:
    array = np.array([x], "<f4")
    reply = infer(zoo, "nonzero", array.tobytes())
    assert (reply.status, reply.flags) == (wire.OK, wire.SHAPES)
    expected = np.array(np.nonzero(array), "<i8")
    shapes, data = wire.split_shapes(reply.payload)
    assert shapes == [expected.shape, (1, 6)]
    assert data == expected.tobytes() + (array + array).tobytes()


def test_the_banner_tells_rows_from_sizes_only_the_run_knows(zoo: Server) -> None:
    assert "nonzero: x FP32[1,6] -> where INT64[2,?], twice FP32[1,6]\n" in zoo.output
    assert "double: x FP32[n,16] -> y FP32[n,16]\n" in zoo.output


@pytest.mark.parametrize("shape", [(12, 1, 1), (2, 3, 2), (1, 2, 6), (3, -1, 1)])
def test_an_output_of_the_shape_the_client_asked_for(
    zoo: Server, shape: tuple[int, int, int]
) -> None:
    x = np.arange(12, dtype="<f4")
    reply = infer(zoo, "reshape", x.tobytes() + np.array(shape, "<i8").tobytes())
    assert (reply.status, reply.flags) == (wire.OK, wire.SHAPES)
    shapes, data = wire.split_shapes(reply.payload)
    assert shapes == [x.reshape(shape).shape]
    assert data == x.tobytes()


def test_an_output_whose_rank_only_the_run_knows(serve: Serve, tmp_path: Path) -> None:
    path = graphs.rankless(tmp_path / "rankless.onnx")
    server = serve({"models": [{"name": "rankless", "path": str(path)}]})
    x = np.arange(6, dtype="<f4")
    for is_flat, shape in ((1, (6,)), (0, (2, 3))):
        reply = infer(server, "rankless", x.tobytes() + bytes([is_flat]))
        assert reply.status == wire.OK, reply.text
        shapes, data = wire.split_shapes(reply.payload)
        assert (shapes, data) == ([shape], x.tobytes())


def test_an_output_larger_than_its_room(zoo: Server) -> None:
    most = ZOO_OUTPUT_BYTES // 16
    with zoo.connect() as connection:
        for count, status in (
            (most, wire.OK),
            (most + 1, wire.INFERENCE_FAILED),
            (ZOO_WIDE_COLUMNS, wire.INFERENCE_FAILED),
            (0, wire.OK),
            (most, wire.OK),
        ):
            x = np.zeros((1, ZOO_WIDE_COLUMNS), "<f4")
            x[0, :count] = 1
            reply = connection.ask(wire.frame(x.tobytes(), model=zoo.models["wide"], id=count))
            assert (reply.status, reply.id) == (status, count)
            if status == wire.OK:
                shapes, data = wire.split_shapes(reply.payload)
                assert shapes == [(2, count), (1, ZOO_WIDE_COLUMNS)]
                assert data == np.array(np.nonzero(x), "<i8").tobytes() + (x + x).tobytes()
            else:
                assert "max_output_bytes" in reply.text
                assert "wide" in reply.text


def test_a_reply_larger_than_the_socket(zoo: Server) -> None:
    reply = infer(zoo, "large", np.float32(4.5).tobytes())
    assert reply.status == wire.OK
    assert reply.payload == np.full(ZOO_LARGE_COLUMNS, 4.5, "<f4").tobytes()


def test_a_run_that_fails_says_why_and_hurts_nobody(zoo: Server) -> None:
    table = [10, 20, 30, 40]
    indices = [0, 99, 3, -1, -99, 1, 4, 2]
    with harness.Canary(zoo), zoo.connect() as connection:
        for number, index in enumerate(indices):
            payload = np.array([index], "<i8").tobytes()
            connection.send(wire.frame(payload, model=zoo.models["gather"], id=number))
        replies = connection.replies(len(indices))
        for number, index in enumerate(indices):
            reply = replies[number]
            if -4 <= index < 4:
                assert reply.status == wire.OK
                assert reply.payload == np.array([table[index]], "<i8").tobytes()
            else:
                assert reply.status == wire.BAD_REQUEST, "the index is the client's"
                assert "ONNX Runtime" in reply.text
                assert "Gather" in reply.text
        assert connection.ask(wire.ping(77)).id == 77


def test_a_clients_bad_data_writes_nothing_to_the_servers_log(zoo: Server) -> None:
    """Row 46."""
    before = zoo.errors
    reply = infer(zoo, "gather", np.array([99], "<i8").tobytes())
    assert reply.status == wire.BAD_REQUEST
    assert zoo.errors == before, "whoever can send requests could fill the disk of the log"


PIXELS = np.random.default_rng(3).integers(0, 256, (2, 5, 7, 3)).astype(np.uint8)
MEAN, SCALE = np.array([1, 2, 3], np.float32), np.array([0.5, 0.25, 2], np.float32)


@pytest.mark.parametrize("rows", [1, 2])
def test_rgb8_for_a_float_nhwc_model(zoo: Server, rows: int) -> None:
    reply = infer(zoo, "nhwc", PIXELS[:rows].tobytes(), encoding=wire.RGB8, rows=rows)
    expected = (PIXELS[:rows].astype(np.float32) - MEAN) * SCALE
    assert (reply.status, reply.rows) == (wire.OK, rows)
    assert reply.payload == expected.astype("<f4").tobytes()


def test_rgb8_for_a_planar_model_of_the_other_order(zoo: Server) -> None:
    pixels = np.random.default_rng(4).integers(0, 256, (9, 11, 3)).astype(np.uint8)
    reply = infer(zoo, "nchw", pixels.tobytes(), encoding=wire.RGB8)
    expected = (pixels[:, :, ::-1].astype(np.float32) - MEAN) * SCALE
    assert reply.status == wire.OK
    assert reply.payload == expected.transpose(2, 0, 1).astype("<f4").tobytes()


@pytest.mark.parametrize("rows", [1, 2])
def test_rgb8_for_models_of_bytes(zoo: Server, rows: int) -> None:
    reply = infer(zoo, "nhwc_bytes", PIXELS[:rows].tobytes(), encoding=wire.RGB8, rows=rows)
    assert (reply.status, reply.payload) == (wire.OK, PIXELS[:rows].tobytes())
    reply = infer(zoo, "nchw_bytes", PIXELS[:rows].tobytes(), encoding=wire.RGB8, rows=rows)
    expected = PIXELS[:rows, :, :, ::-1].transpose(0, 3, 1, 2)
    assert (reply.status, reply.payload) == (wire.OK, expected.tobytes())


def test_tensors_and_rgb8_take_turns_on_one_model(zoo: Server) -> None:
    model = zoo.models["nhwc"]
    with zoo.connect() as connection:
        for number in range(40):
            pixels = np.roll(PIXELS[:1], number)
            if number % 2:
                reply = connection.ask(
                    wire.frame(pixels.tobytes(), model=model, encoding=wire.RGB8)
                )
                expected = (pixels.astype(np.float32) - MEAN) * SCALE
            else:
                expected = pixels.astype(np.float32)
                reply = connection.ask(wire.frame(expected.astype("<f4").tobytes(), model=model))
            assert reply.payload == expected.astype("<f4").tobytes()


def test_the_description_says_how_pictures_are_seen(zoo: Server) -> None:
    """Clients prepare pictures by it: every word counts."""
    floats = {"mean": [1, 2, 3], "scale": [0.5, 0.25, 2]}
    plain = {"mean": [0, 0, 0], "scale": [1, 1, 1]}
    small = {"height": 5, "width": 7}
    expected = {
        "nhwc": {**small, "layout": "NHWC", "channel_order": "RGB", **floats},
        "nchw": {
            "height": 9, "width": 11, "layout": "NCHW", "channel_order": "BGR", **floats,
        },
        "nhwc_bytes": {**small, "layout": "NHWC", "channel_order": "RGB", **plain},
        "nchw_bytes": {**small, "layout": "NCHW", "channel_order": "BGR", **plain},
    }  # fmt: skip
    models: list[dict[str, object]] = zoo.description["models"]  # type: ignore[assignment]
    for index, model in enumerate(models):
        assert model["index"] == index
        assert model["rgb8"] == expected.get(str(model["name"]))
    limits = {str(model["name"]): model["max_rows"] for model in models}
    assert (limits["double"], limits["several"], limits["tag"]) == (256, 64, 1)
    several = models[zoo.models["several"]]
    assert several.pop("run_us") > 0  # type: ignore[operator]
    why = several.pop("run_why")
    assert several.pop("run") == BY_TIME[str(why)]
    assert several.pop("width_why").startswith("a Run takes ")  # type: ignore[attr-defined]
    assert (several.pop("engine"), several.pop("engine_why")) == ("onnxruntime", "it has 3 inputs")
    assert (several.pop("width"), several.pop("providers")) == (1, ["cpu"])
    assert several == {
        "index": zoo.models["several"],
        "name": "several",
        "version": 1,
        "max_rows": 64,
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "k", "datatype": "FP32", "shape": [3]},
            {"name": "b", "datatype": "INT64", "shape": [-1]},
        ],
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [-1, 4], "shape_known": True},
            {"name": "total", "datatype": "FP32", "shape": [], "shape_known": False},
            {"name": "same", "datatype": "INT64", "shape": [-1], "shape_known": True},
        ],
        "rgb8": None,
        "image": None,
        "labels": None,
    }


def test_what_a_model_does_counts_not_what_it_says(serve: Serve, tmp_path: Path) -> None:
    """Outputs that declare one row and have all, or declare all and have one."""
    x = graphs.tensor("x", graphs.FLOAT, ["n", 3])
    all_rows = graphs.save(
        tmp_path / "all.onnx",
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [x],
        [graphs.tensor("y", graphs.FLOAT, [1, 3])],
    )
    first_row = graphs.save(
        tmp_path / "first.onnx",
        [
            helper.make_node("Shape", ["x"], ["dims"]),
            helper.make_node("Gather", ["dims", "zero"], ["rows"]),
            helper.make_node("Range", ["zero", "rows", "one"], ["numbers"]),
            helper.make_node("Equal", ["numbers", "zero"], ["is_first"]),
            helper.make_node("Compress", ["x", "is_first"], ["y"], axis=0),
        ],
        [x],
        [graphs.tensor("y", graphs.FLOAT, ["n", 3])],
        {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)},
    )
    pair = graphs.image(tmp_path / "pair.onnx", graphs.FLOAT, [2, 3, 5, 7])
    # Rows in the first of two inputs alone.
    beside = graphs.save(
        tmp_path / "beside.onnx",
        [helper.make_node("Mul", ["x", "k"], ["y"])],
        [x, graphs.tensor("k", graphs.FLOAT, [3])],
        [graphs.tensor("y", graphs.FLOAT, ["n", 3])],
    )
    files = {"all": all_rows, "first": first_row, "pair": pair, "beside": beside}
    server = serve({"models": [{"name": n, "path": str(path)} for n, path in files.items()]})
    for rows in (1, 2, 5, 1):
        data = np.random.default_rng(rows).standard_normal((rows, 3)).astype("<f4")
        reply = infer(server, "all", data.tobytes(), rows=rows)
        assert (reply.status, reply.flags, reply.payload) == (wire.OK, 0, (data + data).tobytes())
        k = np.array([1, -2, 0.5], "<f4")
        reply = infer(server, "beside", data.tobytes() + k.tobytes(), rows=rows)
        assert (reply.status, reply.rows, reply.payload) == (wire.OK, rows, (data * k).tobytes())
        reply = infer(server, "first", data.tobytes(), rows=rows)
        assert (reply.status, reply.flags) == (wire.OK, wire.SHAPES)
        shapes, found = wire.split_shapes(reply.payload)
        assert (shapes, found) == ([(1, 3)], data[0].tobytes())
    # Two pictures that must come together are no picture.
    (entry,) = [m for m in server.description["models"] if m["name"] == "pair"]  # type: ignore[attr-defined]
    assert entry["rgb8"] is None
    reply = infer(server, "pair", PIXELS.tobytes(), encoding=wire.RGB8, rows=2)
    assert (reply.status, reply.payload.decode()) == (
        wire.BAD_REQUEST,
        "encoding: model 'pair' has no image input of 3 channels; send tensors (0), found rgb8 (1)",
    )


def test_workers_share_a_models_weights(serve: Serve, tmp_path: Path) -> None:
    rows, columns = 1 << 20, 6
    table = np.arange(rows * columns, dtype="<f4").reshape(rows, columns)
    path = graphs.save(
        tmp_path / "table.onnx",
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        [graphs.tensor("x", graphs.INT64, [1])],
        [graphs.tensor("y", graphs.FLOAT, [1, columns])],
        {"table": table},
    )
    held = []
    for workers in (1, 6):
        server = serve(
            {
                "server": {"arena_bytes": "16MiB"},
                "engine": {"thread_count": workers},
                "models": [{"name": "table", "path": str(path)}],
            }
        )
        for row in (0, 77, rows - 1):
            reply = infer(server, "table", np.array([row], "<i8").tobytes())
            assert reply.payload == table[row].tobytes()
        held.append(server.rss_bytes)
        server.stop()
    assert held[1] - held[0] <= 3 * table.nbytes, f"5 workers more: {held} bytes"


# ---- refused at start --------------------------------------------------------------------------


def too_many_free_dimensions(path: Path) -> None:
    dims = {"x": [*"nabcdefg"], "more": [*"nhi"]}
    graphs.save(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [graphs.tensor(name, graphs.FLOAT, names) for name, names in dims.items()],
        [graphs.tensor("y", graphs.FLOAT, dims["x"])],
    )


def sequence_output(path: Path) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(graphs.FLOAT, None))
    graphs.save(
        path,
        [helper.make_node("SplitToSequence", ["x"], ["y"])],
        [graphs.tensor("x", graphs.FLOAT, [4])],
        [helper.make_value_info("y", kind)],
    )


def empty_dimension(path: Path) -> None:
    graphs.save(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [graphs.tensor("x", graphs.FLOAT, [2, 0])],
        [graphs.tensor("y", graphs.FLOAT, [2, 0])],
    )


def too_many_tensors(path: Path) -> None:
    names = [f"x{i}" for i in range(257)]
    graphs.save(
        path,
        [helper.make_node("Identity", [name], [f"y{name}"]) for name in names],
        [graphs.tensor(name, graphs.FLOAT, [1]) for name in names],
        [graphs.tensor(f"y{name}", graphs.FLOAT, [1]) for name in names],
    )


def unknown_operator(path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("NoSuchOperator", ["x"], ["y"])],
        "g",
        [graphs.tensor("x", graphs.FLOAT, [1])],
        [graphs.tensor("y", graphs.FLOAT, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(path))


def future_opset(path: Path) -> None:
    graphs.double(path)
    model = onnx.load(str(path))
    model.opset_import[0].version = 99
    onnx.save(model, str(path))


def future_form(path: Path) -> None:
    graphs.double(path)
    model = onnx.load(str(path))
    model.ir_version = 99
    onnx.save(model, str(path))


def missing_weights(path: Path) -> None:
    graphs.gather(path)
    weights = path.with_suffix(".weights")
    model = onnx.load(str(path))
    onnx.save(model, str(path), save_as_external_data=True, location=weights.name, size_threshold=0)
    weights.unlink()


def pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def page(path: Path) -> None:
    path.write_text("<!DOCTYPE html><html><head><title>Sign in</title></head></html>")


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x04.")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def no_onnx(path: Path) -> None:
    path.write_bytes(b"this is a letter, not a model\n" * 40)


def cut_short(path: Path) -> None:
    graphs.several(path)
    path.write_bytes(path.read_bytes()[:-40])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def directory(path: Path) -> None:
    path.mkdir()


def missing(path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (too_many_free_dimensions, "give one a size with fix_dims"),
        (sequence_output, "found a sequence (scikit-learn's classifiers"),
        (future_opset, "export with a lower opset_version"),
        (future_form, "says: Unsupported model IR version: 99"),
        (missing_weights, "copy it beside the model"),
        (pointer, "it is a Git LFS pointer, not the model: run 'git lfs pull'"),
        (page, "it is an HTML or XML page"),
        (archive, "it is a zip archive, as PyTorch's .pt"),
        (pipe, "is a pipe, a socket or a device"),
        (empty_dimension, "dimension 1 is 0"),
        (too_many_tensors, "257"),
        (unknown_operator, "NoSuchOperator"),
        (no_onnx, "it is a text, not an ONNX model"),
        (cut_short, "is cut short or damaged"),
        (empty, "empty"),
        (directory, "found an empty folder"),
        (missing, "does not exist"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_model_that_cannot_be_served_is_refused_with_a_sentence(
    tmp_path: Path, cache: Path, make: Callable[[Path], None], reason: str
) -> None:
    path = tmp_path / f"{make.__name__}.onnx"
    make(path)
    done = harness.run(["--port", "0", "--model", f"bad={path}"], cache)
    assert done.returncode not in (0, None)
    assert done.returncode > 0, "it must end by itself, not by a signal"
    said = [line for line in done.stderr.splitlines() if line.startswith("lumen: ")]
    assert len(said) == 1, done.stderr
    # The file is named once; the sentence holds no C++ signature or place in a source.
    assert said[0].count(str(path)) == 1
    assert "::" not in said[0]
    assert ".cc:" not in said[0]
    assert reason in said[0]
    assert "Traceback" not in done.stderr
    assert "serves on" not in done.stdout


@pytest.mark.parametrize("make", [too_many_free_dimensions, no_onnx, cut_short, unknown_operator])
def test_a_refusal_is_one_sentence_and_nothing_else(
    tmp_path: Path, cache: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "bad.onnx"
    make(path)
    done = harness.run(["--port", "0", "--model", f"bad={path}"], cache)
    said = done.stderr.strip().splitlines()
    assert len(said) == 1, done.stderr


def test_every_bad_model_is_told_at_once(tmp_path: Path, cache: Path) -> None:
    pointer(tmp_path / "one.onnx")
    page(tmp_path / "two.onnx")
    graphs.double(tmp_path / "good.onnx")
    options = [f"--model={name}={tmp_path}/{name}.onnx" for name in ("one", "good", "two")]
    done = harness.run(["--port", "0", *options], cache)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("lumen: model 'one'")
    assert second.startswith("model 'two'")
    done = harness.run(["--port", "0", "--model=a=/no/a", "--model=b=/no/b"], cache)
    assert done.returncode == 2
    assert [line.split()[-1] for line in done.stderr.splitlines()] == ["Lumen.", "Lumen."]


def test_describe_tells_labels(serve: Serve, tmp_path: Path) -> None:
    names = {
        "odd": ['a "b"', "\\", "é\u2028"],
        "long": ["x" * 1000] * 66,
    }
    models: list[dict[str, object]] = []
    for name, labels in names.items():
        (tmp_path / name).write_text("\n".join(labels) + "\n")
        path = graphs.double(tmp_path / f"{name}.onnx", columns=len(labels))
        models.append({"name": name, "path": str(path), "labels": str(tmp_path / name)})
    models.append({"name": "none", "path": str(tmp_path / "odd.onnx")})
    server = serve({"models": models})
    with Client("127.0.0.1", server.port) as client:
        found = {name: list(model.labels) for name, model in client.models().items()}
    assert found == {**names, "long": [], "none": []}
