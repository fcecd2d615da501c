"""Models with free dimensions beside the rows, from the client's side: describe, checks, requests.

The peer is test_client.py's, with a model of its own; tests/e2e/models/test_e2e_free_dims.py asks a
server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peer import Connection, Peer, reply
from PIL import Image

from lumen_uring import AsyncClient, Client
from lumen_uring.cli import make_parser
from lumen_uring.client import payloads
from lumen_uring.commands import bench
from lumen_uring.commands.predict import preprocessing
from lumen_uring.errors import BadRequest, ConfigError, LumenError, ProtocolError
from lumen_uring.loadgen import http as bench_http
from lumen_uring.loadgen.sizes import dims, with_names, with_sizes
from lumen_uring.loadgen.target import target
from lumen_uring.pictures import files as pictures
from lumen_uring.predict import inputs
from lumen_uring.protocol.describe import FreeDim, Model, TensorInfo, parse_description
from lumen_uring.serving import banner

BERT: dict[str, Any] = {
    "index": 5,
    "name": "bert",
    "max_rows": 32,
    "inputs": [
        {
            "name": name,
            "datatype": "INT64",
            "shape": [-1, -1],
            "dims": ["batch_size", "sequence_length"],
        }
        for name in ("input_ids", "attention_mask")
    ],
    "outputs": [
        {
            "name": "hidden",
            "datatype": "FP32",
            "shape": [-1, -1, 8],
            "dims": ["batch_size", "sequence_length", 8],
            "shape_known": True,
        },
        {
            "name": "found",
            "datatype": "INT64",
            "shape": [2, -1],
            "dims": [2, -1],
            "shape_known": False,
        },
    ],
    "free_dims": [{"name": "sequence_length", "max": 512}],
    "rgb8": None,
    "labels": None,
}
PICTURE = {
    "name": "pixels",
    "datatype": "FP32",
    "shape": [1, 3, -1, -1],
    "dims": [1, 3, "height", "width"],
}
SEGMENTS: dict[str, Any] = {
    **BERT,
    "name": "segments",
    "max_rows": 1,
    "inputs": [PICTURE],
    "free_dims": [{"name": "height", "max": 9, "default": True}, {"name": "width", "max": 7}],
}


def described(**changed: object) -> Model:
    document = {"server": {"protocol": 1}, "models": [{**BERT, **changed}]}
    (model,) = parse_description(json.dumps(document).encode()).models.values()
    return model


def test_free_dimensions_are_read() -> None:
    model = described()
    assert model.free_dims == (FreeDim("sequence_length", 512, False),)
    assert model.inputs[1] == TensorInfo(
        "attention_mask", "INT64", (-1, -1), True, ("batch_size", "sequence_length")
    )
    assert [tensor.dims for tensor in model.outputs] == [
        ("batch_size", "sequence_length", 8),
        (2, -1),
    ]
    assert described(**SEGMENTS).free_dims == (FreeDim("height", 9, True), FreeDim("width", 7))


def test_a_server_that_knows_no_free_dimensions() -> None:
    """Neither an older one, nor one whose model has none."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
    for changed in ({}, {"free_dims": None}, {"free_dims": []}):
        entry = {**BERT, "inputs": [tensor], **changed}
        if not changed:
            del entry["free_dims"]
        document = json.dumps({"server": {"protocol": 1}, "models": [entry]})
        model = parse_description(document.encode()).models["bert"]
        assert model.free_dims == ()
        assert model.inputs == (TensorInfo("x", "FP32", (-1, 4), True),)
        buffers, rows = payloads.pack_inputs(model, {"x": np.zeros((2, 4), np.float32)}, None)
        assert (b"".join(buffers), rows, payloads.request_flags(model)) == (bytes(32), 2, 0)


WRONG: list[dict[str, object]] = [
    {"free_dims": 3},
    {"free_dims": [3]},
    {"free_dims": [{"name": "sequence_length"}]},
    {"free_dims": [{"name": 3, "max": 1}]},
    {"free_dims": [{"name": "sequence_length", "max": 0}]},
    {"free_dims": [{"name": "sequence_length", "max": 2**32}]},
    {"free_dims": [{"name": "sequence_length", "max": True}]},
    {"free_dims": [{"name": "sequence_length", "max": 5}] * 2},
    {"free_dims": [{"name": "another", "max": 5}]},
    *(
        {"inputs": [{**PICTURE, **changed}], "free_dims": SEGMENTS["free_dims"]}
        for changed in (
            {"dims": None},
            {"dims": 3},
            {"dims": [1, 3, "height"]},
            {"dims": [1, 3, "height", 7]},
            {"dims": [1, 3, "height", "depth"]},
            {"dims": [1, 3, "height", -1]},
            {"dims": [1, "height", -1, "width"]},
            {"dims": [1, 3, "height", None]},
            {"dims": [1, 3, "height", True]},
            {"dims": [2, 3, "height", "width"]},
            {"dims": "four"},
        )
    ),
    *(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1], "max_rank": 8, **changed}]}
        for changed in (
            {},
            {"dims": ["rows"]},
            {"dims": [-1]},
            {"dims": ["sequence_length"], "max_rank": 0},
            {"dims": ["sequence_length"], "max_rank": "8"},
            {"dims": ["sequence_length", 1], "shape": [-1, 1]},
            {"dims": [], "shape": []},
        )
    ),
]


@pytest.mark.parametrize("changed", WRONG, ids=[str(index) for index in range(len(WRONG))])
def test_a_description_that_contradicts_itself(changed: dict[str, object]) -> None:
    with pytest.raises(ProtocolError, match="is not the document expected"):
        described(**changed)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["name", "max"]), inner),
        max_leaves=6,
    ),
    st.recursive(st.none() | st.integers(-3, 9) | st.text(max_size=3), st.lists, max_leaves=6),
)
def test_anything_instead_of_free_dimensions(free: object, dims: object) -> None:
    with contextlib.suppress(ProtocolError):
        described(free_dims=free, inputs=[{**PICTURE, "dims": dims}])


def packed(model: Model, **inputs: Any) -> tuple[bytes, int]:
    buffers, rows = payloads.pack_inputs(model, inputs, None)
    return b"".join(buffers), rows


def test_a_shape_block_comes_before_the_tensors() -> None:
    ids = np.arange(6, dtype=np.int64).reshape(2, 3)
    payload, rows = packed(described(), input_ids=ids, attention_mask=(ids + 1).tolist())
    assert rows == 2
    assert payload == struct.pack("<7I", 2, 2, 2, 3, 2, 2, 3) + ids.tobytes() + (ids + 1).tobytes()
    assert payloads.request_flags(described()) == 2
    pixels = np.ones((1, 3, 9, 1), np.float32)
    payload, rows = packed(described(**SEGMENTS), pixels=pixels)
    assert rows == 1
    assert payload == struct.pack("<6I", 1, 4, 1, 3, 9, 1) + pixels.tobytes()


def test_a_first_dimension_that_is_not_the_rows() -> None:
    """Its name stands at another place too: it is a dimension like others, and the rows are 1."""
    square = {"name": "x", "datatype": "INT8", "shape": [-1, -1], "dims": ["n", "n"]}
    model = described(inputs=[square], free_dims=[{"name": "n", "max": 40}], max_rows=1)
    payload, rows = packed(model, x=np.zeros((40, 40), np.int8))
    assert (len(payload), rows) == (16 + 1600, 1)
    with pytest.raises(BadRequest, match=r"expected 0 to 40 \(the model's max_dims .* found 41"):
        packed(model, x=np.zeros((41, 41), np.int8))
    with pytest.raises(BadRequest, match="dimension 'n': expected 4 as in input 'x', found 3"):
        packed(model, x=np.zeros((4, 3), np.int8))


IDS = np.ones((2, 5), np.int64)


@pytest.mark.parametrize(
    ("mask", "ids", "says"),
    [
        (
            np.ones((2, 4), np.int64),
            IDS,
            "Input 'attention_mask' of model 'bert': dimension 'sequence_length': expected 5 as in "
            "input 'input_ids', found 4.",
        ),
        (IDS[:1], IDS, "Input 'attention_mask' of model 'bert' has 1 rows, expected 2."),
        (
            np.ones((1, 513), np.int64),
            np.ones((1, 513), np.int64),
            "Input 'input_ids' of model 'bert': dimension 'sequence_length': expected 0 to 512 "
            "(the model's max_dims decide that), found 513.",
        ),
        (IDS[:0], IDS[:0], "takes 1 to 32 rows in one request, found 0"),
        (
            IDS,
            IDS[0],
            "Input 'input_ids' of model 'bert': expected int64 [batch_size, sequence_length], "
            "found int64 [5]: put one row into a list, [x], or use x[None].",
        ),
        (IDS, IDS[None], "expected int64 [batch_size, sequence_length], found int64 [1, 2, 5]."),
        (IDS, IDS * 1.5, "found float64 [2, 5]: it may hold fractions"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_sent(mask: Any, ids: Any, says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        packed(described(), attention_mask=mask, input_ids=ids)
    assert says in str(caught.value)


# An input without a shape in the graph, as a server describes it.
ANY: dict[str, Any] = {
    **BERT,
    "max_rows": 1,
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1], "dims": ["x[...]"], "max_rank": 3}],
    "free_dims": [{"name": "x[...]", "max": 12, "default": True}],
}


@pytest.mark.parametrize("shape", [(), (12,), (1, 5), (2, 3, 2)])
def test_an_input_of_any_rank(shape: tuple[int, ...]) -> None:
    buffers, rows = payloads.pack_inputs(described(**ANY), {"x": np.ones(shape, np.float32)}, None)
    data = np.ones(shape, np.float32).tobytes()
    assert (b"".join(buffers), rows) == (payloads.pack_shapes([shape]) + data, 1)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((1, 1, 1, 1), "expected float32 of at most 3 dimensions, found float32 [1, 1, 1, 1]."),
        ((13,), "dimension 'x[...]': expected 1 to 12 (the model's max_dims decide that), found 1"),
        ((5, 3), "expected 1 to 12 (the model's max_dims decide that), found 15."),
        ((2, 0), "expected 1 to 12 (the model's max_dims decide that), found 0."),
    ],
)
def test_shapes_beyond_what_such_an_input_takes(shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        payloads.pack_inputs(described(**ANY), {"x": np.ones(shape, np.float32)}, None)
    assert says in str(caught.value)


def test_a_person_gives_such_an_input_its_shape() -> None:
    model = described(**ANY)
    for text, shape in (("5", ()), ("1 2 3", (3,)), ("[[1, 2], [3, 4]]", (2, 2))):
        values = inputs.read(model, [text])
        assert np.shape(values["x"]) == shape
        assert inputs.sizes_of(model, values) == {}
    assert banner.tensor_text(ANY["inputs"][0], ANY) == "x FP32[...]"
    sizes = banner.free_dims_text(ANY)
    assert sizes.startswith("x[...] 1..12 elements in at most 3 dimensions (default)")


def test_sizes_that_the_model_fixes() -> None:
    model = described(**SEGMENTS)
    with pytest.raises(BadRequest) as caught:
        packed(model, pixels=np.zeros((1, 4, 2, 2), np.float32))
    assert "expected float32 [1, 3, height, width], found float32 [1, 4, 2, 2]." in str(
        caught.value
    )


def test_rows_that_the_caller_names() -> None:
    inputs = {"input_ids": IDS, "attention_mask": IDS}
    assert payloads.pack_inputs(described(), inputs, 2)[1] == 2
    with pytest.raises(BadRequest, match="has 2 rows, expected 3"):
        payloads.pack_inputs(described(), inputs, 3)


# ---- both clients, on a socket ----


def serve_bert(connection: Connection) -> None:
    """Answers with the ids as floats, and with their shape; refuses what has no shape block."""
    while True:
        request = connection.request()
        if request.kind == 3:
            document = {"server": {"protocol": 1}, "models": [BERT]}
            connection.send(reply(request.id, json.dumps(document).encode()))
            continue
        words = struct.unpack_from("<7I", request.payload)
        rows, length = words[2:4]
        if request.flags != 2 or words != (2, 2, rows, length, 2, rows, length):
            connection.send(reply(request.id, f"{request.flags} {words}".encode(), status=1))
            continue
        ids = np.frombuffer(request.payload, "<i8", rows * length, 28).reshape(rows, length, 1)
        hidden = np.broadcast_to(ids, (rows, length, 8)).astype("<f4")
        block = struct.pack("<8I", 2, 3, rows, length, 8, 2, 2, 1)
        payload = block + hidden.tobytes() + np.array([rows, length], "<i8").tobytes()
        connection.send(reply(request.id, payload, rows=request.rows, flags=2))


def shapes() -> list[tuple[int, int]]:
    random = np.random.default_rng(1)
    return [(int(random.integers(1, 5)), int(random.integers(1, 40))) for _ in range(20)]


def right(ids: Any, outputs: dict[str, Any]) -> None:
    np.testing.assert_array_equal(outputs["hidden"], np.repeat(ids[..., None], 8, 2))
    np.testing.assert_array_equal(outputs["found"], [[ids.shape[0]], [ids.shape[1]]])


def test_the_client_takes_shapes_from_the_arrays() -> None:
    with Peer((serve_bert,)) as peer, Client("127.0.0.1", peer.port) as client:
        for rows, length in shapes():
            ids = np.arange(rows * length).reshape(rows, length)
            result = client.infer("bert", {"input_ids": ids, "attention_mask": ids})
            assert result.rows == rows
            right(ids, result.outputs)


def test_the_asyncio_client_takes_shapes_from_the_arrays() -> None:
    async def all_at_once(port: int) -> None:
        async with AsyncClient("127.0.0.1", port) as client:
            made = [np.arange(rows * length).reshape(rows, length) for rows, length in shapes()]
            answers = await asyncio.gather(
                *(client.infer("bert", {"input_ids": ids, "attention_mask": ids}) for ids in made)
            )
            for ids, result in zip(made, answers, strict=True):
                right(ids, result.outputs)
            with pytest.raises(LumenError, match="as in input 'input_ids', found 4"):
                await client.infer("bert", {"input_ids": [[1] * 5], "attention_mask": [[1] * 4]})

    with Peer((serve_bert,)) as peer:
        asyncio.run(all_at_once(peer.port))


# ---- pictures ----


@pytest.mark.parametrize(
    ("sizes", "own", "found"),
    [
        (("height", "width"), (5, 4), (5, 4)),
        (("height", "width"), (18, 7), (9, 4)),  # half of it
        (("height", "width"), (9, 70), (1, 7)),
        (("height", "width"), (900, 1), (9, 1)),
        ((6, "width"), (12, 8), (6, 4)),
        ((6, "width"), (3, 30), (6, 7)),
        (("height", 7), (2, 7), (2, 7)),
        (("height", "height"), (8, 5), (5, 5)),
        (("height", "height"), (80, 50), (9, 9)),
    ],
)
def test_a_grey_picture_of_its_own_size(
    sizes: tuple[object, object], own: tuple[int, int], found: tuple[int, int]
) -> None:
    shape = [1, 1, *(-1 if isinstance(size, str) else size for size in sizes)]
    tensor = {"name": "x", "datatype": "FP32", "shape": shape, "dims": [1, 1, *sizes]}
    model = described(**{**SEGMENTS, "inputs": [tensor]})
    prepared = pictures.prepare(model, Image.new("L", (own[1], own[0]), 77))
    assert prepared.shape == (1, 1, *found)
    assert (prepared == 77).all()
    assert preprocessing(model).endswith(
        "scaled as a whole to their own size where it is free, 0..255"
    )
    payload, _rows = packed(model, x=prepared)
    assert payload.endswith(prepared.tobytes())


# ---- `lumen bench` ----


def test_sizes_of_the_load() -> None:
    model = described()
    assert [tensor.shape for tensor in with_sizes(model, {}).inputs] == [(-1, 128), (-1, 128)]
    chosen = with_sizes(model, {"sequence_length": 512})
    assert [tensor.shape for tensor in chosen.inputs] == [(-1, 512), (-1, 512)]
    small = with_sizes(described(**SEGMENTS), {"width": 5})
    assert [tensor.shape for tensor in small.inputs] == [(1, 3, 9, 5)]
    with pytest.raises(ConfigError) as caught:
        with_sizes(model, {"lenght": 5})
    assert str(caught.value) == (
        "--dims: expected free dimensions of model 'bert', which are ['sequence_length'], "
        "found 'lenght'."
    )
    with pytest.raises(ConfigError, match="--dims: sequence_length: expected 1 to 512, found 513"):
        with_sizes(model, {"sequence_length": 513})
    fixed = described(inputs=[{"name": "x", "datatype": "FP32", "shape": [-1, 4]}], free_dims=[])
    assert with_sizes(fixed, {}) == fixed
    with pytest.raises(ConfigError, match="which are none, found 'a'"):
        with_sizes(fixed, {"a": 1})


def test_sizes_as_they_are_written() -> None:
    assert dims("a=1,b[2]=2147483647,c=d=3") == {"a": 1, "b[2]": 2147483647, "c=d": 3}
    for text in ("", "a", "a=", "=3", "a=0", "a=-1", "a=2147483648", "a=x", "a=1,a=2", "a=1,"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected NAME=SIZE,"):
            dims(text)


def test_a_load_of_the_native_protocol() -> None:
    def plan(*options: str) -> Any:
        url = f"lumen://127.0.0.1:{peer.port}"
        return bench.make_plan(make_parser().parse_args(["bench", "--url", url, *options]))

    with Peer((serve_bert,)) as peer:
        usual = plan("--rows", "3")
        assert (usual.shapes, usual.rows, usual.model) == (True, 3, 5)
        assert {len(payload) for payload in usual.payloads} == {28 + 2 * 3 * 128 * 8}
        (load,) = {payload[:28] for payload in plan("--dims", "sequence_length=9").payloads}
        assert load == struct.pack("<7I", 2, 2, 1, 9, 2, 1, 9)
        with pytest.raises(ConfigError, match="found 'height'"):
            plan("--dims", "height=9")


def serve_metadata(is_lumen: bool) -> Any:
    """Answers the metadata of the model over HTTP, and describe where it is Lumen."""

    def script(connection: Connection) -> None:
        if connection.exactly(4) == b"LMN1":
            number = struct.unpack_from("<Q", connection.exactly(28), 4)[0]
            document = {"server": {"protocol": 1}, "models": [BERT]}
            if is_lumen:
                connection.send(reply(number, json.dumps(document).encode()))
            return
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.exactly(1)
        tensors = {
            side: [
                {name: tensor[name] for name in ("name", "datatype", "shape")}
                for tensor in BERT[side]
            ]
            for side in ("inputs", "outputs")
        }
        body = json.dumps({"name": "bert", **tensors}).encode()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    return script


@pytest.mark.parametrize("is_lumen", [True, False])
def test_a_load_over_http(is_lumen: bool) -> None:
    """Lumen says the names over the native protocol; other servers say none."""
    with Peer((serve_metadata(is_lumen),)) as peer:
        server = target(f"http://127.0.0.1:{peer.port}")
        model = bench_http.fetch_model(server, "bert")
    names = [dim.name for dim in model.free_dims]
    if is_lumen:
        assert names == ["sequence_length"]
    else:
        assert names == ["input_ids[1]", "attention_mask[1]"]
    sized = with_sizes(model, dict.fromkeys(names, 6))
    (request,) = bench_http.binary_requests(server, sized, 2, 0, [bytes(2 * 2 * 6 * 8)])
    assert request.count(b'"shape":[2,6]') == 2


def test_names_of_dimensions_without_any() -> None:
    shapes = [(-1, 3, -1), (2, -1), (-1,)]
    tensors = tuple(TensorInfo(f"t{at}", "FP32", shape, True) for at, shape in enumerate(shapes))
    model = with_names(Model(0, "m", 1, tensors, (), None))
    assert [dim.name for dim in model.free_dims] == ["t0[2]", "t1[1]"]
    assert [tensor.dims for tensor in model.inputs] == [(-1, 3, "t0[2]"), (2, "t1[1]"), (-1,)]
