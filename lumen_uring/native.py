"""The native protocol, version 1, as pure functions: headers, tensors, the describe document.

Used by both clients and by tools, on any thread. It never touches a socket and never trusts a
length, a count or a name that came from the peer. Everything on the wire is little-endian.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lumen_uring import convert
from lumen_uring.describe import DTYPES, Model, TensorInfo
from lumen_uring.errors import BadRequest, ProtocolError

Array = npt.NDArray[Any]
Buffer = memoryview

REQUEST_MAGIC: Final = b"LMN1"
REPLY_MAGIC: Final = b"LMR1"
KIND_INFER: Final = 1
KIND_PING: Final = 2
KIND_DESCRIBE: Final = 3
ENCODING_TENSORS: Final = 0
ENCODING_RGB8: Final = 1
FLAG_CREDENTIAL: Final = 1
FLAG_SHAPES: Final = 2
CREDENTIAL_BYTES: Final = 32
U32_MAX: Final = 2**32 - 1

_REQUEST: Final = struct.Struct("<4sBBHQIIIHH")
_REPLY: Final = struct.Struct("<4sHHQIIIIIIQ")
REQUEST_BYTES: Final = _REQUEST.size
REPLY_BYTES: Final = _REPLY.size
_RANK_MAX: Final = 32  # of numpy 1; ONNX itself has no limit


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The 32 bytes before a request's payload; the fields are those of docs/PROTOCOL.md."""

    kind: int
    encoding: int
    model_index: int
    id: int
    payload_bytes: int
    timeout_us: int
    rows: int
    flags: int = 0


@dataclass(frozen=True, slots=True)
class ReplyHeader:
    """The 48 bytes before a reply's payload; the fields are those of docs/PROTOCOL.md."""

    status: int
    flags: int
    id: int
    payload_bytes: int
    rows: int
    receive_us: int
    queue_us: int
    preprocess_us: int
    infer_us: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the server spent a request's time, in µs each."""

    receive_us: int
    queue_us: int
    preprocess_us: int
    infer_us: int


@dataclass(frozen=True, slots=True)
class InferResult:
    """A model's answer.

    `outputs` has one array per output, by name, with the rows as first dimension where the model
    has a free one (bfloat16 as float32); `rows` is what the server ran, `timings` where the time
    went.
    """

    outputs: dict[str, Array]
    rows: int
    timings: Timings


def pack_request(header: RequestHeader) -> bytes:
    """Packs a request's header.

    Args:
        header: each field within its width on the wire.

    Returns:
        32 bytes.

    Raises:
        BadRequest: a field does not fit.
    """
    try:
        return _REQUEST.pack(
            REQUEST_MAGIC,
            header.kind,
            header.encoding,
            header.model_index,
            header.id,
            header.payload_bytes,
            header.timeout_us,
            header.rows,
            header.flags,
            0,
        )
    except struct.error as error:
        raise BadRequest(f"A field of the request does not fit its width: {error}.") from None


def unpack_request(buffer: bytes | bytearray | memoryview) -> RequestHeader:
    """Unpacks a request's header, for peers in tests and tools.

    Args:
        buffer: at least 32 bytes.

    Raises:
        ProtocolError: too short, another magic, or reserved bits that are not 0.
    """
    if len(buffer) < REQUEST_BYTES:
        raise ProtocolError(f"A request's header has {REQUEST_BYTES} bytes, not {len(buffer)}.")
    magic, kind, encoding, model, number, payload, timeout, rows, flags, reserved = (
        _REQUEST.unpack_from(buffer)
    )
    if magic != REQUEST_MAGIC or reserved != 0:
        raise ProtocolError(f"Expected a request starting {REQUEST_MAGIC!r}, found {magic!r}.")
    return RequestHeader(kind, encoding, model, number, payload, timeout, rows, flags)


def pack_reply(header: ReplyHeader) -> bytes:
    """Packs a reply's header, for peers in tests and tools.

    Args:
        header: each field within its width on the wire.

    Returns:
        48 bytes.
    """
    return _REPLY.pack(
        REPLY_MAGIC,
        header.status,
        header.flags,
        header.id,
        header.payload_bytes,
        header.rows,
        header.receive_us,
        header.queue_us,
        header.preprocess_us,
        header.infer_us,
        0,
    )


def unpack_reply(buffer: bytes | bytearray | memoryview) -> ReplyHeader:
    """Unpacks a reply's header.

    Args:
        buffer: at least 48 bytes.

    Raises:
        ProtocolError: too short, or the peer speaks something else.
    """
    if len(buffer) < REPLY_BYTES:
        raise ProtocolError(f"A reply's header has {REPLY_BYTES} bytes, found {len(buffer)}.")
    magic, status, flags, number, payload, rows, receive, queue, preprocess, infer, _reserved = (
        _REPLY.unpack_from(buffer)
    )
    if magic != REPLY_MAGIC:
        raise ProtocolError(
            f"Expected a reply starting {REPLY_MAGIC!r}, found {magic!r}: "
            "is this the port of a Lumen server?"
        )
    return ReplyHeader(status, flags, number, payload, rows, receive, queue, preprocess, infer)


def pack_credential(token: str | None) -> bytes:
    """Makes the credential that comes before a payload of a key's token.

    Args:
        token: 1 to 32 visible ASCII characters, as `lumen key` prints it; None: no key.

    Returns:
        32 bytes, or none.

    Raises:
        ValueError: the token does not fit the native protocol.

    >>> len(pack_credential("a-token"))
    32
    """
    if token is None:
        return b""
    if not (token.isascii() and token.isprintable()) or " " in token or not token:
        raise ValueError("token: expected visible ASCII characters")
    if len(token) > CREDENTIAL_BYTES:
        raise ValueError(
            f"token: the native protocol takes at most {CREDENTIAL_BYTES} characters, "
            f"found {len(token)}; longer ones work over HTTP"
        )
    return token.encode().ljust(CREDENTIAL_BYTES, b"\0")


def with_credential(
    kind: int, credential: bytes, buffers: Sequence[Buffer]
) -> tuple[Sequence[Buffer], int]:
    """Puts a credential before a payload where one is asked for.

    Args:
        kind: KIND_*; a ping needs none.
        credential: of pack_credential.
        buffers: the payload.

    Returns:
        The whole payload, and the flags to send.
    """
    if not credential or kind == KIND_PING:
        return buffers, 0
    return [memoryview(credential), *buffers], FLAG_CREDENTIAL


def pack_inputs(
    model: Model, inputs: Mapping[str, npt.ArrayLike], rows: int | None
) -> tuple[list[Buffer], int]:
    """Checks a model's inputs and lines their bytes up for sending.

    Args:
        model: as describe gave it.
        inputs: for each input of the model, by name: numbers of the model's shape, as an array or
            as lists. Other types than the model's are converted as convert.py says.
        rows: how many rows the arrays must have; None takes what they have.

    Returns:
        The buffers in the model's order, and the rows to put into the header. An array of the
        model's type that is C-contiguous is not copied: it must stay unchanged until the reply.

    Raises:
        BadRequest: a name, dtype or shape is not the model's; the message names both.
    """
    if len(inputs) != len(model.inputs) or any(
        tensor.name not in inputs for tensor in model.inputs
    ):
        names = [tensor.name for tensor in model.inputs]
        raise BadRequest(
            f"Model {model.name!r} takes the inputs {names}, found {sorted(map(str, inputs))}."
        )
    found_rows = rows
    buffers: list[Buffer] = []
    for tensor in model.inputs:
        array = _converted(model, tensor, inputs[tensor.name])
        if tensor.shape[:1] == (-1,):
            first = array.shape[0]
            if found_rows is not None and first != found_rows:
                raise BadRequest(
                    f"Input {tensor.name!r} of model {model.name!r} has {first} rows, "
                    f"expected {found_rows}."
                )
            found_rows = first
        buffers.append(_bytes_of(array))
    used = 1 if found_rows is None else found_rows
    _check_rows(model, used)
    return buffers, used


def pack_rgb8(model: Model, image: Array, rows: int | None) -> tuple[list[Buffer], int]:
    """Checks images and lines their bytes up for sending as encoding rgb8.

    Args:
        model: one whose describe entry has `rgb8`.
        image: uint8, [height, width, 3] or [rows, height, width, 3] at the model's size, RGB.
        rows: how many images there must be; None takes what is there.

    Returns:
        One buffer, and the rows to put into the header.

    Raises:
        BadRequest: the model takes no images, or dtype or shape is not as above.
    """
    if model.rgb8 is None:
        raise BadRequest(f"Model {model.name!r} takes no rgb8 images: its input is no picture.")
    size = (model.rgb8.height, model.rgb8.width, 3)
    expected = f"expected uint8 of shape {list(size)} or [rows, {str(list(size))[1:]}"
    if not isinstance(image, np.ndarray):
        raise BadRequest(f"Image for {model.name!r}: {expected}, found {type(image).__name__}.")
    if image.dtype != np.uint8 or image.ndim not in (3, 4) or image.shape[-3:] != size:
        raise BadRequest(
            f"Image for {model.name!r}: {expected}, found {image.dtype} {list(image.shape)}. "
            "A file's path or a Pillow image is resized."
        )
    found_rows = image.shape[0] if image.ndim == 4 else 1
    if rows is not None and rows != found_rows:
        raise BadRequest(f"Found {found_rows} images, expected rows={rows}.")
    _check_rows(model, found_rows)
    return [_bytes_of(image)], found_rows


def total_bytes(buffers: Sequence[Buffer]) -> int:
    """Adds up a payload.

    Raises:
        BadRequest: the payload does not fit the header's 32 bits.
    """
    size = sum(len(buffer) for buffer in buffers)
    if size > U32_MAX:
        raise BadRequest(f"The payload has {size} bytes; the protocol ends at {U32_MAX}.")
    return size


def unpack_outputs(model: Model, header: ReplyHeader, payload: Array) -> InferResult:
    """Cuts a reply's payload into arrays.

    Args:
        model: as describe gave it.
        header: the reply's, with status 0.
        payload: uint8 [payload_bytes]; the arrays returned are views of it.

    Returns:
        The outputs by name, rows and timings.

    Raises:
        ProtocolError: the payload's length or shapes are not what header and model say.
    """
    at = 0
    if header.flags & FLAG_SHAPES:
        shapes, at = unpack_shapes(payload, len(model.outputs))
    else:
        shapes = [_output_shape(model, tensor, header.rows) for tensor in model.outputs]
    outputs: dict[str, Array] = {}
    for tensor, shape in zip(model.outputs, shapes, strict=True):
        dtype = DTYPES[tensor.datatype]
        size = math.prod(shape) * dtype.itemsize
        if size > len(payload) - at:
            raise ProtocolError(
                f"Output {tensor.name!r} of model {model.name!r} needs {size} bytes "
                f"for shape {list(shape)}, found {len(payload) - at}."
            )
        array = payload[at : at + size].view(dtype).reshape(shape)
        # Packed tensors may start at any byte; numpy is slow on such views, so those are copied.
        array = array if array.flags.aligned else array.copy()
        outputs[tensor.name] = convert.from_bf16(array) if tensor.datatype == "BF16" else array
        at += size
    if at != len(payload):
        raise ProtocolError(f"The reply has {len(payload) - at} bytes more than its outputs need.")
    timings = Timings(header.receive_us, header.queue_us, header.preprocess_us, header.infer_us)
    return InferResult(outputs, header.rows, timings)


def unpack_shapes(payload: Array, count: int) -> tuple[list[tuple[int, ...]], int]:
    """Reads a shape block.

    Args:
        payload: uint8, starting with the block.
        count: how many tensors it must describe.

    Returns:
        The shapes, and the offset of the first byte after the block.

    Raises:
        ProtocolError: too short, another count, or a rank above 32.
    """
    words = payload[: len(payload) // 4 * 4].view(np.dtype("<u4"))
    if len(words) == 0 or int(words[0]) != count:
        found = int(words[0]) if len(words) else "nothing"
        raise ProtocolError(f"Expected a shape block of {count} tensors, found {found}.")
    at = 1
    shapes: list[tuple[int, ...]] = []
    for _ in range(count):
        rank = int(words[at]) if at < len(words) else _RANK_MAX + 1
        if rank > _RANK_MAX or at + 1 + rank > len(words):
            raise ProtocolError("The reply's shape block is cut short or holds a rank above 32.")
        shapes.append(tuple(int(dim) for dim in words[at + 1 : at + 1 + rank]))
        at += 1 + rank
    return shapes, at * 4


def _converted(model: Model, tensor: TensorInfo, value: npt.ArrayLike) -> Array:
    """One input as the wire has it; a value of the model's own type and shape is not touched."""
    try:
        array = convert.to_array(value)
        if _shape_fits(tensor.shape, array.shape):
            return convert.to_datatype(array, tensor.datatype)
        found = f"found {array.dtype} {list(array.shape)}{_shape_hint(tensor.shape, array.shape)}"
    except ValueError as error:
        found = str(error)
    sizes = ["rows" if size < 0 else str(size) for size in tensor.shape]
    raise BadRequest(
        f"Input {tensor.name!r} of model {model.name!r}: expected "
        f"{convert.name_of(tensor.datatype)} [{', '.join(sizes)}], {found}."
    )


def _shape_fits(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if declared[:1] == (-1,):
        return len(shape) == len(declared) and shape[1:] == declared[1:]
    return shape == declared


def _shape_hint(declared: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if declared[:1] in ((-1,), (1,)) and shape == declared[1:]:
        return ": put one row into a list, [x], or use x[None]"
    return ""


def _check_rows(model: Model, rows: int) -> None:
    if not 1 <= rows <= model.max_rows:
        why = " (server.max_request_bytes and the model's max_rows decide that)"
        raise BadRequest(
            f"Model {model.name!r} takes 1 to {model.max_rows} rows in one request"
            f"{why if rows else ''}, found {rows}."
        )


def _bytes_of(array: Array) -> Buffer:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _output_shape(model: Model, tensor: TensorInfo, rows: int) -> tuple[int, ...]:
    shape = (rows, *tensor.shape[1:]) if tensor.shape[:1] == (-1,) else tensor.shape
    if not tensor.shape_known or -1 in shape:
        raise ProtocolError(
            f"Output {tensor.name!r} of model {model.name!r} has no fixed shape, "
            "and the reply does not give one."
        )
    return shape
