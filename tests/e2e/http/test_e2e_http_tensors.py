"""What goes in and comes out over HTTP: every type, several tensors, rows, outputs as requested."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import web
import wire
from conftest import ZOO_WIDE_COLUMNS
from harness import Server, eventually
from web import Http, Tensor, post

pytestmark = pytest.mark.once  # what reads bodies and writes answers is the same on both backends

NO_JSON = ("FP16", "BF16")


def query(zoo: Server, request: bytes) -> web.Answer:
    with Http(zoo.port) as http:
        return http.query(request)


def named(model: str, **rest: Any) -> bytes:
    """An inference request whose JSON the test writes itself."""
    return post(web.path(model), json.dumps(rest).encode())


def input_of(name: str, values: list[Any], **rest: Any) -> dict[str, Any]:
    return {"name": name, "shape": [1, 16], "datatype": "FP32", "data": values, **rest}


# ---- types ----


def extremes(datatype: str, rows: int, seed: int) -> Tensor:
    """Values at the ends of a type's range, and some in between; floats as JSON can say them."""
    random = np.random.default_rng(seed)
    kind = np.dtype(web.NUMPY[datatype])
    count = rows * 3
    if datatype == "BF16":
        data = random.integers(0, 0x7F80, count).astype("<u2")  # finite and positive
    elif kind.kind == "b":
        data = random.integers(0, 2, count).astype("?")
    elif kind.kind == "f":
        info = np.finfo(kind)
        ends = [info.max, info.min, info.tiny, info.smallest_subnormal, -0.0, 0.1, 1 / 3, 2049]
        data = np.resize(np.array(ends), count).astype(kind)
    else:
        info = np.iinfo(kind)
        data = np.resize(np.array([info.max, info.min, 0, 1], kind), count)
    return Tensor(datatype, (rows, 3), random.permutation(data))


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("how", ["binary", "json", "nested", "chunked", "gzip", "deflate"])
def test_every_type_there_and_back(zoo: Server, how: str, rows: int) -> None:
    """As blobs all of them; as JSON all that have a form there, the others beside as blobs."""
    inputs = {f"in_{name}": extremes(name, rows, seed) for seed, name in enumerate(web.NUMPY)}
    requested: list[dict[str, Any]] = [{"name": f"out_{name}"} for name in web.NUMPY]
    blobs: Any = True
    if how in ("json", "nested"):
        blobs = [f"in_{name}" for name in NO_JSON]
        for one in requested:
            if one["name"][4:] in NO_JSON:
                one["parameters"] = {"binary_data": True}
    request = web.infer(
        "dtypes", inputs, binary=blobs, binary_outputs=blobs is True, nested=how == "nested",
        chunk_bytes=100 if how == "chunked" else 0, outputs=requested,
    )  # fmt: skip
    if how in ("gzip", "deflate"):
        request = web.compressed(request, how)
    answer = query(zoo, request)
    outputs = answer.outputs
    assert list(outputs) == [one["name"] for one in requested]
    for name in web.NUMPY:
        given, found = inputs[f"in_{name}"], outputs[f"out_{name}"]
        assert (found.datatype, found.shape) == (name, (rows, 3))
        assert found.binary == (blobs is True or name in NO_JSON)
        assert found.data.tobytes() == given.data.tobytes(), name


def test_compressed_zeros_have_room(zoo: Server) -> None:
    """Row 39: a few rows of zeros, a hundredth of their bytes when compressed."""
    zeros = np.zeros((4, 16), "<f4")
    for binary in (True, False):
        for coding in ("gzip", "deflate"):
            data = web.compressed(web.infer("double", {"x": zeros}, binary=binary), coding)
            assert query(zoo, data).array("y").tolist() == zeros.tolist()
    data = web.compressed(web.infer("double", {"x": zeros}, pad_bytes=1 << 17), "gzip")
    answer = query(zoo, data)
    assert answer.code == 413
    assert "hold more than" in answer.error


@pytest.mark.parametrize("name", ["FP16", "FP32", "FP64", "BF16"])
def test_every_bit_of_a_float_survives_as_a_blob(zoo: Server, name: str) -> None:
    """Row 11."""
    bits = {"FP16": "<u2", "BF16": "<u2", "FP32": "<u4", "FP64": "<u8"}[name]
    random = np.random.default_rng(3)
    size = np.dtype(bits).itemsize * 8
    # Infinities, quiet and signalling NaNs with payloads, and anything.
    patterns = random.integers(0, 2**size, 3 * 64, dtype=np.uint64)
    patterns[:8] = np.array(
        [0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001, 0x80000001, 1, 0, 0xFFFFFFFF], np.uint64
    ) & np.uint64(2**size - 1)
    data = patterns.astype(bits).view(web.NUMPY[name])
    inputs = {f"in_{other}": Tensor(other, (64, 3), np.zeros(192, web.NUMPY[other]))
              for other in web.NUMPY}  # fmt: skip
    inputs[f"in_{name}"] = Tensor(name, (64, 3), data)
    answer = query(zoo, web.infer("dtypes", inputs))
    assert answer.outputs[f"out_{name}"].data.tobytes() == data.tobytes()


@pytest.mark.parametrize(
    "values",
    [
        [1, -2, 3.0, 4e0],
        [1e-400, -0, -0.0, 0],
        [1.7e38, 1e-45, 0.1, 1e22],
        [16777217, 9007199254740993, 18446744073709551615, 0.30000001192092896],
    ],
    ids=str,
)
def test_json_numbers_become_the_nearest_float(zoo: Server, values: list[float]) -> None:
    x = np.array([float(value) for value in values * 4]).astype("<f4")
    answer = query(zoo, named("double", inputs=[input_of("x", values * 4)]))
    np.testing.assert_array_equal(answer.outputs["y"].data, x + x)


def test_zero_elements_and_scalars(zoo: Server) -> None:
    """Row 9."""
    for binary in (True, False):
        x = np.zeros((1, 6), "<f4")
        answer = query(zoo, web.infer("nonzero", {"x": x}, binary=binary))
        assert answer.outputs["where"].shape == (2, 0)
        np.testing.assert_array_equal(answer.array("twice"), x)
        scalar = Tensor("FP32", (), np.array([1.5], "<f4"))
        answer = query(zoo, web.infer("scalar", {"x": scalar}, binary=binary))
        assert answer.outputs["y"].shape == ()
        assert answer.outputs["y"].data.tolist() == [2.25]


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_shapes_known_only_after_the_run(zoo: Server, binary: bool) -> None:
    x = np.array([[0, 1.5, 0, -2, 0, 3]], "<f4")
    answer = query(zoo, web.infer("nonzero", {"x": x}, binary=binary))
    np.testing.assert_array_equal(answer.array("where"), np.array(np.nonzero(x), "<i8"))
    np.testing.assert_array_equal(answer.array("twice"), x + x)
    y = np.arange(12, dtype="<f4")
    for shape in ([3, 2, 2], [1, 12, 1], [2, -1, 3]):
        target = Tensor("INT64", (3,), np.array(shape, "<i8"))
        answer = query(zoo, web.infer("reshape", {"shape": target, "x": y}, binary=binary))
        np.testing.assert_array_equal(answer.array("y"), y.reshape(shape))


def test_outputs_larger_than_their_room(zoo: Server) -> None:
    """max_output_bytes of the model is 64 KiB; "where" alone may be 256 KiB."""
    x = np.ones((1, ZOO_WIDE_COLUMNS), "<f4")
    with Http(zoo.port) as http:
        for binary in (True, False):
            answer = http.query(web.infer("wide", {"x": x}, binary=binary))
            assert answer.code >= 400
            assert answer.error
            few = np.zeros((1, ZOO_WIDE_COLUMNS), "<f4")
            few[0, 7] = 2
            answer = http.query(web.infer("wide", {"x": few}))
            assert answer.outputs["where"].data.tolist() == [0, 7]


# ---- several tensors, rows ----


def several(rows: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    random = np.random.default_rng(rows)
    a = random.standard_normal((rows, 4)).astype("<f4")
    k = random.standard_normal(3).astype("<f4")
    b = random.integers(-99, 99, rows).astype("<i8")
    total = np.array(k.sum(), "<f4")
    return {"a": a, "k": k, "b": b}, {"sum": a + b[:, None].astype("<f4"), "total": total,
                                      "same": b}  # fmt: skip


@pytest.mark.parametrize("blobs", [True, False, ["a"], ["k", "b"]], ids=str)
def test_several_inputs_in_any_order(zoo: Server, blobs: bool | list[str]) -> None:
    with Http(zoo.port) as http:
        for rows in (1, 2, 17, 64):
            inputs, expected = several(rows)
            for names in ("akb", "bka", "kab"):
                given = {name: inputs[name] for name in names}
                answer = http.query(web.infer("several", given, binary=blobs))
                assert list(answer.outputs) == ["sum", "total", "same"]
                for name, y in expected.items():
                    np.testing.assert_allclose(answer.array(name), y, rtol=1e-6)


def test_batches_of_rows(zoo: Server) -> None:
    with Http(zoo.port) as http:
        for rows in (1, 2, 3, 100, 256):
            x = np.random.default_rng(rows).standard_normal((rows, 16)).astype("<f4")
            for binary in (True, False):
                answer = http.query(web.infer("double", {"x": x}, binary=binary))
                np.testing.assert_array_equal(answer.array("y"), x + x)
        for rows in (0, 257, 100_000):
            shape = {"inputs": [input_of("x", [], shape=[rows, 16])]}
            answer = http.query(named("double", **shape))
            assert answer.code == 400, answer
            assert "rows" in answer.error


@pytest.mark.parametrize("count", [1, 1000, 20_000, 65_536])
def test_every_way_in_and_out_for_bytes(zoo: Server, count: int) -> None:
    """UINT8 takes the least as a blob and the most as JSON: its slots are the hardest to plan."""
    x = np.full(count, 255, "u1")
    with Http(zoo.port) as http:
        for chunk_bytes in (0, 5000):
            for pad_bytes in (0, 9000):
                for binary, binary_outputs in ((True, True), (True, False), (False, False)):
                    if pad_bytes and not chunk_bytes and binary and not binary_outputs:
                        continue  # below
                    answer = http.query(
                        web.infer(
                            "echo", {"x": x}, binary=binary, binary_outputs=binary_outputs,
                            chunk_bytes=chunk_bytes, pad_bytes=pad_bytes,
                        )
                    )  # fmt: skip
                    np.testing.assert_array_equal(answer.array("y"), x)


def test_a_blob_behind_long_json_and_json_out(zoo: Server) -> None:
    x = np.full(65_536, 255, "u1")
    request = web.infer("echo", {"x": x}, binary_outputs=False, pad_bytes=9000)
    np.testing.assert_array_equal(query(zoo, request).array("y"), x)


# ---- raw binary requests ----


def test_raw_bodies_are_one_row_of_the_only_input(zoo: Server) -> None:
    with Http(zoo.port) as http:
        x = np.arange(16, dtype="<f4")
        answer = http.query(web.raw("double", x.tobytes()))
        assert answer.outputs["y"].shape == (1, 16)
        assert answer.outputs["y"].binary
        assert answer.outputs["y"].data.tobytes() == (x + x).tobytes()
        t = np.array([1, -2, 3, 2**40], "<i8")
        assert http.query(web.raw("tag", t.tobytes())).array("y").tolist() == (3 * t + 1).tolist()
        answer = http.query(web.raw("scalar", np.float32(3).tobytes()))
        assert answer.outputs["y"].data.tolist() == [9]
        for model, size in (("double", 65), ("double", 63), ("double", 0), ("double", 128)):
            assert http.query(web.raw(model, bytes(size))).code == 400
        assert http.query(web.raw("several", bytes(36))).code == 400
        assert http.query(web.raw("double", x.tobytes())).code == 200


@pytest.mark.parametrize(("model", "shape"), [("nhwc", (5, 7, 3)), ("nchw", (9, 11, 3))])
def test_raw_bodies_of_pixels(zoo: Server, model: str, shape: tuple[int, ...]) -> None:
    """As with the native protocol's rgb8, whose conversion has tests of its own."""
    pixels = np.random.default_rng(9).integers(0, 256, shape).astype("u1")
    with zoo.connect() as native:
        index = zoo.models[model]
        reply = native.ask(wire.frame(pixels.tobytes(), encoding=wire.RGB8, model=index))
    assert reply.status == wire.OK
    answer = query(zoo, web.raw(model, pixels.tobytes()))
    assert answer.outputs["y"].data.tobytes() == reply.payload
    # Of this model's own size the body is the tensor.
    as_tensor = query(zoo, web.raw(model, reply.payload))
    assert as_tensor.outputs["y"].data.tobytes() == reply.payload


@pytest.mark.parametrize("model", ["nhwc_bytes", "nchw_bytes"])
def test_a_raw_body_that_could_be_either_is_the_tensor(zoo: Server, model: str) -> None:
    body = np.random.default_rng(9).bytes(5 * 7 * 3)
    assert query(zoo, web.raw(model, body)).outputs["y"].data.tobytes() == body


# ---- outputs ----


def test_outputs_as_requested(zoo: Server) -> None:
    inputs, expected = several(2)
    with Http(zoo.port) as http:
        for names in (["same"], ["same", "sum"], ["total", "same", "sum"]):
            for binary in (True, False):
                requested = [{"name": name} for name in names]
                answer = http.query(web.infer("several", inputs, binary=binary, outputs=requested))
                assert list(answer.outputs) == names
                for name in names:
                    np.testing.assert_allclose(answer.array(name), expected[name], rtol=1e-6)


@pytest.mark.parametrize("default", [None, False, True])
def test_which_outputs_are_binary(zoo: Server, default: bool | None) -> None:
    """Each output's own choice counts before the request's."""
    inputs, _expected = several(1)
    requested = [
        {"name": "sum", "parameters": {"binary_data": True}},
        {"name": "total", "parameters": {"binary_data": False}},
        {"name": "same"},
    ]
    rest = {} if default is None else {"parameters": {"binary_data_output": default}}
    answer = query(
        zoo, web.infer("several", inputs, binary_outputs=False, outputs=requested, **rest)
    )
    found = {name: tensor.binary for name, tensor in answer.outputs.items()}
    assert found == {"sum": True, "total": False, "same": bool(default)}
    every = query(zoo, web.infer("several", inputs, binary_outputs=False, **rest))
    assert {tensor.binary for tensor in every.outputs.values()} == {bool(default)}


def test_no_outputs_named_means_all(zoo: Server) -> None:
    inputs, _expected = several(1)
    for parts in ({}, {"outputs": []}):
        answer = query(zoo, web.infer("several", inputs, **parts))
        assert list(answer.outputs) == ["sum", "total", "same"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_outputs_that_json_cannot_say(zoo: Server, bad: float) -> None:
    """Row 40."""
    x = np.zeros((1, 16), "<f4")
    x[0, 5] = bad
    with Http(zoo.port) as http:
        answer = http.query(web.infer("double", {"x": x}, binary_outputs=False))
        assert answer.code == 500, answer  # the request was right
        assert "'y'" in answer.error
        assert "ask for it as binary_data" in answer.error
        answer = http.query(web.infer("double", {"x": x}))
        assert answer.outputs["y"].data.tobytes() == (x + x).tobytes()


def test_a_run_that_fails(zoo: Server) -> None:
    with Http(zoo.port) as http:
        for binary in (True, False):
            x = np.array([7], "<i8")
            answer = http.query(web.infer("gather", {"x": x}, binary=binary))
            assert answer.code == 400, "the index is the client's"
            assert "Gather" in answer.error or "bound" in answer.error.lower()
            answer = http.query(web.infer("gather", {"x": np.array([2], "<i8")}, binary=binary))
            assert answer.array("y").tolist() == [30]


# ---- ids, time-outs, parameters ----


@pytest.mark.parametrize(
    "name",
    [
        "1", "a b", 'quo"te', "back\\slash", "tab\t", "línea", "日本語", "😀", "\u2028", "/../",
        "x" * 200,
    ],
)  # fmt: skip
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_ids_are_echoed(zoo: Server, name: str, binary: bool) -> None:
    x = np.ones((1, 16), "<f4")
    assert query(zoo, web.infer("double", {"x": x}, binary=binary, id=name)).document["id"] == name


def test_an_empty_id_is_none(zoo: Server) -> None:
    x = np.ones((1, 16), "<f4")
    for fields in ({}, {"id": ""}):
        assert "id" not in query(zoo, web.infer("double", {"x": x}, **fields)).document


def test_a_timeout_that_passes_in_the_queue(zoo: Server) -> None:
    x, one = np.ones((1, 16), "<f4"), np.array([1], "<i8")
    before = zoo.figures()
    busy = [Http(zoo.port) for _ in range(4)]
    try:
        for http in busy:  # both workers, twice
            http.send(web.infer("slow", {"x": np.array([3000], "<i8")}))
        eventually(lambda: zoo.figures().requests >= before.requests + 4, "the load")
        with Http(zoo.port) as hurried:
            for binary in (True, False):
                # The workers', which "double" need not be.
                request = web.infer("slow", {"x": one}, binary=binary, parameters={"timeout": 1})
                for _ in range(5):
                    answer = hurried.query(request)
                    assert answer.code == 503, answer
                    assert "deadline" in answer.error
            relaxed = web.infer("double", {"x": x}, parameters={"timeout": 60_000_000})
            np.testing.assert_array_equal(hurried.query(relaxed).array("y"), x + x)
        for http in busy:
            assert http.answer().array("y").tolist() == [6000]
    finally:
        for http in busy:
            http.close()


@pytest.mark.parametrize("timeout", [0, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_a_timeout_far_away_never_passes(zoo: Server, timeout: int, binary: bool) -> None:
    """Row 15."""
    x = np.ones((1, 16), "<f4")
    request = web.infer("double", {"x": x}, binary=binary, parameters={"timeout": timeout})
    np.testing.assert_array_equal(query(zoo, request).array("y"), x + x)


@pytest.mark.parametrize(
    "parameters",
    [
        {"priority": 0}, {"priority": 1}, {"sequence_id": 0, "sequence_start": False},
        {"sequence_end": False}, {"my_own": {"a": [1, None]}}, {},
    ],
    ids=str,
)  # fmt: skip
def test_parameters_that_change_nothing(zoo: Server, parameters: dict[str, Any]) -> None:
    x = np.ones((1, 16), "<f4")
    for binary in (True, False):
        request = web.infer("double", {"x": x}, binary=binary, parameters=parameters)
        np.testing.assert_array_equal(query(zoo, request).array("y"), x + x)


def test_fields_in_any_order_and_unknown_ones(zoo: Server) -> None:
    x = list(range(16))
    for text in (
        '{{"parameters":{{"a":1}},"outputs":[{{"name":"y"}}],"inputs":[{{"data":{0},'
        '"parameters":{{}},"shape":[1,16],"datatype":"FP32","name":"x"}}],"id":"k"}}',
        '{{"unknown":{{"inputs":[{{"name":"x"}}]}},"inputs":[{{"name":"x","extra":null,'
        '"datatype":"FP32","shape":[1,16],"data":{0}}}],"outputs":[{{"x":[],"name":"y"}}],'
        '"id":"k"}}',
        ' \r\n\t{{ "id" : "\\u006b" , "inputs" : [ {{ "name" : "\\u0078" , "shape" : [ 1 , 16 ] , '
        '"datatype" : "FP32" , "data" : {0} }} ] }} \n',
    ):
        answer = query(zoo, post(web.path("double"), text.format(x).encode()))
        assert answer.document["id"] == "k"
        assert answer.outputs["y"].data.tolist() == [2 * value for value in x]
