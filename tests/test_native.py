"""The native protocol's pure functions: layouts to the byte, and nothing believed."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lumen_uring.client import payloads
from lumen_uring.errors import BadRequest, LumenError, ProtocolError
from lumen_uring.protocol import convert, native
from lumen_uring.protocol.describe import DTYPES, Model, Rgb8Info, TensorInfo, parse_description

U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


def test_the_request_header_is_the_page_to_the_byte() -> None:
    packed = native.pack_request(
        native.RequestHeader(1, 2, 0x0304, 0x05060708090A0B0C, 0x0D0E0F10, 0x11121314, 0x15161718)
    )
    assert packed == bytes.fromhex(
        "4c4d4e31010204030c0b0a0908070605100f0e0d141312111817161500000000"
    )


def test_the_reply_header_is_the_page_to_the_byte() -> None:
    header = native.unpack_reply(
        bytes.fromhex(
            "4c4d5231"
            "0500"
            "0200"
            "0100000000000000"
            "10000000"
            "03000000"
            "0a000000"
            "0b000000"
            "0c000000"
            "0d000000"
            "0400"
            "000000000000"
        )
    )
    assert header == native.ReplyHeader(5, 2, 1, 16, 3, 10, 11, 12, 13, 4)


@given(
    st.builds(
        native.RequestHeader, st.integers(0, 255), st.integers(0, 255), U16, U64, U32, U32, U32, U16
    )
)
def test_requests_read_back(header: native.RequestHeader) -> None:
    assert native.unpack_request(native.pack_request(header)) == header


@given(st.builds(native.ReplyHeader, U16, U16, U64, U32, U32, U32, U32, U32, U32))
def test_replies_read_back(header: native.ReplyHeader) -> None:
    assert native.unpack_reply(native.pack_reply(header)) == header


@given(st.binary(max_size=64))
def test_any_bytes_are_a_header_or_a_protocol_error(data: bytes) -> None:
    for unpack in (native.unpack_request, native.unpack_reply):
        with contextlib.suppress(ProtocolError):
            unpack(data)


def model_of(*outputs: TensorInfo, inputs: tuple[TensorInfo, ...] = ()) -> Model:
    return Model(0, "m", 512, inputs, outputs, None)


def header_of(payload: bytes, rows: int = 1, flags: int = 0) -> native.ReplyHeader:
    return native.ReplyHeader(0, flags, 1, len(payload), rows, 0, 0, 0, 0)


def unpack(model: Model, payload: bytes, rows: int = 1, flags: int = 0) -> native.InferResult:
    array = np.frombuffer(payload, np.uint8)
    return payloads.unpack_outputs(model, header_of(payload, rows, flags), array)


ARRAYS = st.sampled_from(sorted(set(DTYPES) - {"BF16"})).flatmap(
    lambda name: st.tuples(
        st.just(name),
        hnp.arrays(DTYPES[name], hnp.array_shapes(min_dims=0, max_dims=4, max_side=5)),
    )
)


@given(st.lists(ARRAYS, min_size=1, max_size=4))
def test_outputs_with_a_shape_block_read_back(arrays: list[tuple[str, Any]]) -> None:
    tensors = [
        TensorInfo(str(index), name, (-1,) * array.ndim, False)
        for index, (name, array) in enumerate(arrays)
    ]
    block = struct.pack("<I", len(arrays))
    for _name, array in arrays:
        block += struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape)
    payload = block + b"".join(array.tobytes() for _name, array in arrays)
    result = unpack(model_of(*tensors), payload, flags=native.FLAG_SHAPES)
    for index, (_name, array) in enumerate(arrays):
        output = result.outputs[str(index)]
        assert output.shape == array.shape
        assert output.dtype == array.dtype
        assert output.flags.aligned
        assert output.tobytes() == array.tobytes()


@given(st.binary(max_size=200), st.integers(0, 3), U32)
def test_any_payload_is_outputs_or_a_protocol_error(data: bytes, flags: int, rows: int) -> None:
    model = model_of(TensorInfo("a", "FP32", (-1, 2), True), TensorInfo("b", "INT64", (-1,), True))
    try:
        result = unpack(model, data, rows, flags)
    except ProtocolError:
        return
    assert sum(output.nbytes for output in result.outputs.values()) <= len(data)


def test_unknown_shapes_need_a_block() -> None:
    with pytest.raises(ProtocolError, match="no fixed shape"):
        unpack(model_of(TensorInfo("a", "FP32", (-1, 2), False)), b"\0" * 8)
    with pytest.raises(ProtocolError, match="no fixed shape"):
        unpack(model_of(TensorInfo("a", "FP32", (-1, -1), True)), b"\0" * 8)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        struct.pack("<I", 2),
        struct.pack("<II", 1, 33),
        struct.pack("<III", 1, 2, 3),
        struct.pack("<II3I", 1, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1),
        struct.pack("<II1I", 1, 1, 5),
    ],
)
def test_bad_shape_blocks(block: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(model_of(TensorInfo("a", "FP32", (-1,), False)), block, flags=native.FLAG_SHAPES)


FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, 3.3895314e38, float("inf")])


@given(st.lists(FLOATS, min_size=1))
def test_bfloat16_is_the_nearest_one(values: list[float]) -> None:
    array = np.array(values, np.float32)
    # The largest bfloat16 and half a step: from there on floats round to infinity.
    array = np.where(np.isfinite(array) & (np.abs(array) >= 3.396e38), 1, array)
    tensor = TensorInfo("x", "BF16", (-1,), True)
    (buffer,), _rows = payloads.pack_inputs(
        Model(0, "m", 2**16, (tensor,), (), None), {"x": array}, None
    )
    found = unpack(model_of(tensor), bytes(buffer), rows=len(values)).outputs["x"]
    assert found.dtype == np.float32
    expected = array.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    (own,), _rows = payloads.pack_inputs(
        Model(0, "m", 2**16, (tensor,), (), None), {"x": expected}, None
    )
    np.testing.assert_array_equal(np.frombuffer(own, "<u2"), expected.view("<u2"))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("UINT8", [256], "found int64 [1] with the value 256, which uint8 does not hold"),
        ("UINT8", [-1], "the value -1, which uint8 does not hold"),
        ("UINT64", np.array([-1], np.int8), "found int8 [1] with the value -1"),
        ("INT64", np.array([2**63], np.uint64), "which int64 does not hold"),
        ("INT32", np.array([1, 2**31]), "the value 2147483648, which int32 does not hold"),
        ("BOOL", [2], "which bool does not hold"),
        ("BOOL", [1.0], "found float64 [1]: it may hold fractions"),
        ("FP16", [70000], "the value 70000, which float16 does not hold"),
        ("FP32", [1e39], "the value 1e+39, which float32 does not hold"),
        ("BF16", np.array([3.4e38], np.float32), "which bfloat16 does not hold"),
        ("FP32", np.ma.array([1, 2], mask=[False, True]), "found masked values"),
        ("FP32", [1.0, None], "no numbers of 64 bits, such as None"),
        ("FP32", {"a": 1}, "such as {'a': 1}"),
        ("INT64", [], "in one request, found 0"),
        ("INT8", [1, 2**64], "no numbers of 64 bits, such as 18446744073709551616"),
    ],
)
def test_a_value_that_would_be_lost_is_refused(name: str, value: Any, says: str) -> None:
    model = model_of(inputs=(TensorInfo("x", name, (-1,), True),))
    with pytest.raises(BadRequest) as caught:
        payloads.pack_inputs(model, {"x": value}, None)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "bits"),
    [
        ("UINT8", [0, 255], "00ff"),
        ("INT8", np.array([127, -128], np.int64), "7f80"),
        ("UINT64", [2**63, 2**63 + 1], "00000000000000800100000000000080"),
        ("UINT64", np.array([1, 2**63], np.uint64), "01000000000000000000000000000080"),
        ("BOOL", [0, 1], "0001"),
        ("FP16", [1, -2], "003c00c0"),
        ("FP32", np.array([1, np.inf, -np.inf]), "0000803f0000807f000080ff"),
        ("FP64", np.array([1], np.float16), "000000000000f03f"),
        ("BF16", [1, -2], "803f00c0"),
        ("BF16", np.array([1, 2], np.uint16), "803f0040"),
        ("UINT64", [2**63, 1], "00000000000000800100000000000000"),
        ("INT16", np.array([1, -2], object), "0100feff"),
        ("FP32", np.array([1, 0.5], object), "0000803f0000003f"),
        ("FP32", np.ma.array([1.0], mask=[False]), "0000803f"),
        ("FP32", np.array([1], ">f8"), "0000803f"),
        ("INT64", True, "0100000000000000"),
        ("FP32", 1.0, "0000803f"),
        ("BF16", np.float64(1), "803f"),
    ],
)
def test_values_of_other_types_arrive_as_numbers(name: str, value: Any, bits: str) -> None:
    shape = (-1,) if np.ndim(value) else ()
    model = model_of(inputs=(TensorInfo("x", name, shape, True),))
    (buffer,), _rows = payloads.pack_inputs(model, {"x": value}, None)
    assert bytes(buffer).hex() == bits


@pytest.mark.parametrize("name", sorted(set(DTYPES) - {"BF16"}))
def test_inputs_of_every_datatype_are_sent_in_place(name: str) -> None:
    model = model_of(inputs=(TensorInfo("x", name, (-1, 3), True),))
    array = np.ones((2, 3), DTYPES[name])
    (buffer,), rows = payloads.pack_inputs(model, {"x": array}, None)
    assert rows == 2
    assert bytes(buffer) == array.tobytes()
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), array)


def test_inputs_without_free_dimension_are_one_row() -> None:
    model = model_of(
        inputs=(TensorInfo("x", "FP32", (), True), TensorInfo("y", "FP32", (2,), True))
    )
    inputs = {"y": np.ones(2, np.float32), "x": np.ones((), np.float32)}
    buffers, rows = payloads.pack_inputs(model, inputs, None)
    assert rows == 1
    assert [len(buffer) for buffer in buffers] == [4, 8]


def test_inputs_must_agree_on_rows() -> None:
    model = model_of(
        inputs=(TensorInfo("x", "FP32", (-1,), True), TensorInfo("y", "FP32", (-1,), True))
    )
    with pytest.raises(BadRequest, match="Input 'y' of model 'm' has 3 rows, expected 2"):
        payloads.pack_inputs(
            model, {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)}, None
        )


def test_pictures_are_sent_in_place() -> None:
    model = Model(0, "m", 2, (), (), Rgb8Info(2, 3))
    image = np.zeros((2, 3, 3), np.uint8)
    (buffer,), rows = payloads.pack_rgb8(model, image, None)
    assert (len(buffer), rows) == (18, 1)
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), image)
    for bad in (image.astype(np.int8), image[:1], np.zeros((3, 2, 3, 3), np.uint8), b"x"):
        with pytest.raises(BadRequest):
            payloads.pack_rgb8(model, bad, None)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="rows=2"):
        payloads.pack_rgb8(model, image, 2)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["server", "models", "protocol", "index", "name", "inputs", "rgb8"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(JSON)
def test_any_document_is_a_description_or_a_lumen_error(document: object) -> None:
    with contextlib.suppress(LumenError):
        parse_description(json.dumps(document).encode())


@given(st.binary(max_size=50))
def test_any_bytes_are_a_description_or_a_lumen_error(data: bytes) -> None:
    with contextlib.suppress(LumenError):
        parse_description(data)


def test_credentials_of_every_length() -> None:
    for count in (1, 31, 32):
        credential = native.pack_credential("k" * count)
        assert credential == b"k" * count + bytes(32 - count)
    for token in ("k" * 33, "", "a b", "a\n", "\u00e9"):
        with pytest.raises(ValueError, match="token"):
            native.pack_credential(token)
    payload = [memoryview(b"payload")]
    for kind, flags in ((native.KIND_INFER, 1), (native.KIND_DESCRIBE, 1), (native.KIND_PING, 0)):
        buffers, found = native.with_credential(kind, credential, payload)
        assert found == flags
        assert b"".join(buffers) == (credential if flags else b"") + b"payload"
        assert native.with_credential(kind, b"", payload) == (payload, 0)


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x3F800000, 0x3F80), (0x3F807FFF, 0x3F80), (0x3F808000, 0x3F80), (0x3F808001, 0x3F81),
        (0x3F817FFF, 0x3F81), (0x3F818000, 0x3F82), (0x3F818001, 0x3F82), (0xBF808000, 0xBF80),
        (0xBF818000, 0xBF82), (0x00008000, 0x0000), (0x00018000, 0x0002), (0x3FFF8000, 0x4000),
    ],
)  # fmt: skip
def test_bfloat16_of_two_that_are_equally_near_is_the_even_one(bits: int, rounded: int) -> None:
    value = np.array([bits], np.uint32).view(np.float32)
    assert convert.to_datatype(value, "BF16").tolist() == [rounded]


def test_numbers_exactly_at_the_widths_of_the_wire() -> None:
    class Sized:
        def __init__(self, size: int) -> None:
            self.size = size

        def __len__(self) -> int:
            return self.size

    parts: Any = [Sized(2**31), Sized(2**31 - 1)]
    assert native.total_bytes(parts) == 2**32 - 1
    with pytest.raises(BadRequest, match="has 4294967296 bytes; the protocol ends at 4294967295"):
        native.total_bytes([*parts, Sized(1)])  # type: ignore[list-item]
    fields = {
        "kind": 255, "encoding": 255, "model_index": 2**16 - 1, "id": 2**64 - 1,
        "payload_bytes": 2**32 - 1, "timeout_us": 2**32 - 1, "rows": 2**32 - 1, "flags": 2**16 - 1,
    }  # fmt: skip
    assert native.unpack_request(native.pack_request(native.RequestHeader(**fields))) == (
        native.RequestHeader(**fields)
    )
    for name, most in fields.items():
        for value in (-1, most + 1):
            with pytest.raises(BadRequest, match="does not fit its width"):
                native.pack_request(native.RequestHeader(**{**fields, name: value}))
    request = bytearray(native.pack_request(native.RequestHeader(1, 0, 0, 1, 0, 0, 1)))
    for at in (30, 31):  # reserved
        changed = request.copy()
        changed[at] = 1
        with pytest.raises(ProtocolError):
            native.unpack_request(changed)
    with pytest.raises(ProtocolError, match="has 32 bytes, not 31"):
        native.unpack_request(request[:31])
    reply = native.pack_reply(native.ReplyHeader(0, 0, 1, 0, 0, 0, 0, 0, 0))
    assert len(reply) == 48
    with pytest.raises(ProtocolError, match="has 48 bytes, found 47"):
        native.unpack_reply(reply[:47])


def test_an_output_of_the_highest_rank() -> None:
    for rank, fits in ((32, True), (33, False)):
        block = struct.pack(f"<II{rank}I", 1, rank, *[1] * rank)
        model = model_of(TensorInfo("a", "UINT8", (-1,), False))
        if fits:
            result = unpack(model, block + b"x", flags=native.FLAG_SHAPES)
            assert result.outputs["a"].shape == (1,) * 32
        else:
            with pytest.raises(ProtocolError, match="a rank above 32"):
                unpack(model, block + b"x", flags=native.FLAG_SHAPES)


def test_rows_and_times_of_an_answer_are_its_own() -> None:
    header = native.ReplyHeader(0, 0, 1, 0, 7, 11, 12, 13, 14)
    result = payloads.unpack_outputs(model_of(), header, np.zeros(0, np.uint8))
    assert (result.rows, result.outputs) == (7, {})
    times = result.timings
    assert (times.receive_us, times.queue_us, times.preprocess_us, times.infer_us) == (
        11, 12, 13, 14,
    )  # fmt: skip


def test_pictures_in_rows() -> None:
    model = Model(0, "m", 2, (), (), Rgb8Info(2, 3))
    for rows, fits in ((1, True), (2, True), (3, False), (0, False)):
        images = np.zeros((rows, 2, 3, 3), np.uint8)
        if fits:
            (buffer,), found = payloads.pack_rgb8(model, images, rows)
            assert (len(buffer), found) == (18 * rows, rows)
        else:
            with pytest.raises(BadRequest, match=rf"takes 1 to 2 rows .*found {rows}"):
                payloads.pack_rgb8(model, images, None)


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x7F800001, 0x7FC0), (0xFF800001, 0xFFC0), (0x7FC12345, 0x7FC1), (0x7FBFFFFF, 0x7FFF),
        (0xFFFFFFFF, 0xFFFF), (0x7F800000, 0x7F80), (0xFF800000, 0xFF80),
    ],
)  # fmt: skip
def test_bfloat16_keeps_what_is_no_number(bits: int, rounded: int) -> None:
    value = np.array([bits], np.uint32).view(np.float32)
    assert convert.to_datatype(value, "BF16").tolist() == [rounded]


def test_every_type_of_the_protocol() -> None:
    assert {name: dtype.str for name, dtype in DTYPES.items()} == {
        "BOOL": "|b1", "UINT8": "|u1", "INT8": "|i1", "UINT16": "<u2", "INT16": "<i2",
        "UINT32": "<u4", "INT32": "<i4", "UINT64": "<u8", "INT64": "<i8", "FP16": "<f2",
        "FP32": "<f4", "FP64": "<f8", "BF16": "<u2",
    }  # fmt: skip
    assert [convert.name_of(name) for name in ("BOOL", "INT16", "FP64", "BF16")] == [
        "bool", "int16", "float64", "bfloat16",
    ]  # fmt: skip


ENTRY: dict[str, Any] = {
    "index": 3,
    "name": "m",
    "max_rows": 9,
    "inputs": [{"name": "x", "datatype": "INT16", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP16", "shape": [2, -1], "shape_known": False}],
    "rgb8": {
        "height": 4, "width": 6, "channel_order": "BGR", "mean": [1, 2, 3], "scale": [4, 5, 6.5],
    },
    "labels": ["a", "b"],
}  # fmt: skip


def described(**changed: object) -> Model:
    entry = {**ENTRY, **changed}
    document = {"server": {"protocol": 1}, "models": [entry]}
    (model,) = parse_description(json.dumps(document).encode()).models.values()
    return model


def test_every_field_of_a_description_is_its_own() -> None:
    assert described() == Model(
        3,
        "m",
        9,
        (TensorInfo("x", "INT16", (-1, 2), True),),
        (TensorInfo("y", "FP16", (2, -1), False),),
        Rgb8Info(4, 6, "BGR", (1.0, 2.0, 3.0), (4.0, 5.0, 6.5)),
        ("a", "b"),
    )
    for protocol in (0, 2, "1", None, [1]):
        document = {"server": {"protocol": protocol}, "models": []}
        with pytest.raises(ProtocolError, match="speaks protocol 1, the server"):
            parse_description(json.dumps(document).encode())
    plain = described(rgb8={"height": 1, "width": 2}, labels=None)
    assert (plain.rgb8, plain.labels) == (Rgb8Info(1, 2, None, None, None), ())
    assert described(rgb8=None).rgb8 is None
    for name, most in (("index", 2**16 - 1), ("max_rows", 2**32 - 1)):
        assert getattr(described(**{name: most}), name) == most
        least = 0 if name == "index" else 1
        assert getattr(described(**{name: least}), name) == least
        for value in (most + 1, least - 1, True, 1.0, "1", None):
            with pytest.raises(ProtocolError, match="is not the document expected"):
                described(**{name: value})
    picture: dict[str, Any] = ENTRY["rgb8"]
    tensor = {"name": "x", "datatype": "FP32", "shape": [1]}
    for changed in (
        {"name": 3}, {"labels": ["a", 3]}, {"labels": 3}, {"inputs": [{**tensor, "shape": [-2]}]},
        {"inputs": [{**tensor, "shape": [2**40 + 1]}]}, {"inputs": [{**tensor, "datatype": "FP8"}]},
        {"inputs": [{**tensor, "shape": [True]}]}, {"rgb8": {**picture, "height": 0}},
        {"rgb8": {**picture, "width": 0}}, {"rgb8": {**picture, "mean": [1, 2]}},
        {"rgb8": {**picture, "scale": "abc"}}, {"rgb8": {**picture, "channel_order": 3}},
        {"rgb8": {"height": 3}}, {"rgb8": 3},
    ):  # fmt: skip
        with pytest.raises(ProtocolError, match="is not the document expected"):
            described(**changed)
