"""Payloads of the native protocol, as pure functions: a model's inputs to bytes, bytes to outputs.

Used by both clients and by tools, on any thread; native.py has the headers. It never trusts a
length, a count or a shape that came from the peer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import BadRequest, ProtocolError
from lumen_uring.protocol import convert, native, strings
from lumen_uring.protocol.convert import Array
from lumen_uring.protocol.describe import DTYPES, Model, TensorInfo

_RANK_MAX: Final = 32  # of numpy 1; ONNX itself has no limit


def pack_inputs(
    model: Model, inputs: Mapping[str, npt.ArrayLike], rows: int | None
) -> tuple[list[native.Buffer], int]:
    """Checks a model's inputs and lines their bytes up for sending.

    Args:
        model: as describe gave it.
        inputs: for each input of the model, by name: numbers or strings of the model's shape, as
            an array or as lists. Other types than the model's are converted as convert.py says.
        rows: how many rows the arrays must have; None takes what they have.

    Returns:
        The buffers in the model's order, after a shape block where the model has free dimensions
        beside the rows, and the rows to put into the header. An array of the model's type that is
        C-contiguous is not copied: it must stay unchanged until the reply.

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
    free = {dim.name for dim in model.free_dims}
    arrays: list[Array] = []
    for tensor in model.inputs:
        array = _converted(model, tensor, inputs[tensor.name])
        if tensor.shape[:1] == (-1,) and (tensor.dims is None or tensor.dims[0] not in free):
            first = array.shape[0]
            if found_rows is not None and first != found_rows:
                raise BadRequest(
                    f"Input {tensor.name!r} of model {model.name!r} has {first} rows, "
                    f"expected {found_rows}."
                )
            found_rows = first
        arrays.append(array)
    used = 1 if found_rows is None else found_rows
    _check_rows(model, used)
    buffers = [_bytes_of(array) for array in arrays]
    if free:
        _check_free(model, arrays)
        buffers.insert(0, memoryview(pack_shapes([array.shape for array in arrays])))
    return buffers, used


def request_flags(model: Model) -> int:
    """The flags of requests to a model, without that of a credential.

    Args:
        model: as describe gave it.
    """
    return native.FLAG_SHAPES if model.free_dims else 0


def pack_shapes(shapes: Sequence[Sequence[int]]) -> bytes:
    """Writes a shape block.

    Args:
        shapes: of the tensors, in the model's order; each size below 2**32.

    >>> pack_shapes([(2, 3)]).hex(" ", 4)
    '01000000 02000000 02000000 03000000'
    """
    words = [len(shapes)]
    for shape in shapes:
        words += [len(shape), *shape]
    return np.array(words, "<u4").tobytes()


def pack_rgb8(model: Model, image: Array, rows: int | None) -> tuple[list[native.Buffer], int]:
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


def pack_images(model: Model, files: Sequence[bytes]) -> tuple[list[native.Buffer], int]:
    """Lines files of pictures up for sending as encoding image.

    Args:
        model: one whose describe entry has `image`.
        files: JPEG or PNG, a row each.

    Returns:
        Buffers, and the rows to put into the header.

    Raises:
        BadRequest: the model takes no files, or there are none or too many.
    """
    if model.image is None:
        raise BadRequest(
            f"Model {model.name!r} takes no files of pictures: give it the setting image, such as "
            "image: {preset: imagenet}, or send pixels with infer_rgb8."
        )
    _check_rows(model, len(files))
    buffers: list[native.Buffer] = []
    for file in files:
        buffers += [memoryview(len(file).to_bytes(4, "little")), memoryview(file)]
    return buffers, len(files)


def unpack_outputs(model: Model, header: native.ReplyHeader, payload: Array) -> native.InferResult:
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
    if header.flags & native.FLAG_SHAPES:
        shapes, at = unpack_shapes(payload, len(model.outputs))
    else:
        shapes = [_output_shape(model, tensor, header.rows) for tensor in model.outputs]
    outputs: dict[str, Array] = {}
    for tensor, shape in zip(model.outputs, shapes, strict=True):
        if tensor.datatype == strings.DATATYPE:
            outputs[tensor.name], size = _unpack_strings(model, tensor, shape, payload[at:])
            at += size
            continue
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
    timings = native.Timings(
        header.receive_us, header.queue_us, header.preprocess_us, header.infer_us
    )
    expert = dict(model.experts).get(header.expert - 1)
    return native.InferResult(outputs, header.rows, timings, header.width, expert)


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


def _unpack_strings(
    model: Model, tensor: TensorInfo, shape: tuple[int, ...], payload: Array
) -> tuple[Array, int]:
    try:
        array, size = strings.unpack(payload.data, math.prod(shape))
    except ValueError as error:
        raise ProtocolError(
            f"Output {tensor.name!r} of model {model.name!r}: expected strings of shape "
            f"{list(shape)}, found {error}."
        ) from None
    return array.reshape(shape), size


def _converted(model: Model, tensor: TensorInfo, value: npt.ArrayLike) -> Array:
    """Converts one input for the wire; a value of the model's own type and shape is not copied."""
    try:
        is_text = tensor.datatype == strings.DATATYPE
        array = strings.to_array(value) if is_text else convert.to_array(value)
        if tensor.max_rank is not None:
            fits = array.ndim <= tensor.max_rank
        else:
            fits = _shape_fits(tensor.shape, array.shape)
        if fits:
            return array if is_text else convert.to_datatype(array, tensor.datatype)
        kind = "strings" if is_text else array.dtype
        found = f"found {kind} {list(array.shape)}{_shape_hint(tensor.shape, array.shape)}"
    except ValueError as error:
        found = str(error)
    sizes = ["rows" if dim == -1 else str(dim) for dim in tensor.dims or tensor.shape]
    shape = f"[{', '.join(sizes)}]"
    if tensor.max_rank is not None:
        shape = f"of at most {tensor.max_rank} dimensions"
    raise BadRequest(
        f"Input {tensor.name!r} of model {model.name!r}: expected "
        f"{convert.name_of(tensor.datatype)} {shape}, {found}."
    )


def _shape_fits(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(shape) == len(declared) and all(
        expected in (-1, found) for expected, found in zip(declared, shape, strict=True)
    )


def _shape_hint(declared: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if declared[:1] in ((-1,), (1,)) and _shape_fits(declared[1:], shape):
        return ": put one row into a list, [x], or use x[None]"
    return ""


def _check_rows(model: Model, rows: int) -> None:
    if not 1 <= rows <= model.max_rows:
        why = " (server.max_request_bytes and the model's max_rows decide that)"
        raise BadRequest(
            f"Model {model.name!r} takes 1 to {model.max_rows} rows in one request"
            f"{why if rows else ''}, found {rows}."
        )


def _check_free(model: Model, arrays: Sequence[Array]) -> None:
    """Refuses free dimensions that exceed their maximum, or of one name and several sizes."""
    most = {dim.name: dim.max for dim in model.free_dims}
    found: dict[str, tuple[int, str]] = {}
    for tensor, array in zip(model.inputs, arrays, strict=True):
        # Of any rank: one bound for all its elements.
        least, shape = (0, array.shape) if tensor.max_rank is None else (1, (array.size,))
        for dim, size in zip(tensor.dims or (), shape, strict=True):
            if not isinstance(dim, str) or dim not in most:
                continue
            expected, where = found.setdefault(dim, (size, tensor.name))
            problem = ""
            if size != expected:
                problem = f"expected {expected} as in input {where!r}"
            elif not least <= size <= most[dim]:
                problem = f"expected {least} to {most[dim]} (the model's max_dims decide that)"
            if problem:
                raise BadRequest(
                    f"Input {tensor.name!r} of model {model.name!r}: dimension {dim!r}: {problem}, "
                    f"found {size}."
                )


def _bytes_of(array: Array) -> native.Buffer:
    if array.dtype == object:
        return memoryview(strings.pack(array))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _output_shape(model: Model, tensor: TensorInfo, rows: int) -> tuple[int, ...]:
    shape = (rows, *tensor.shape[1:]) if tensor.shape[:1] == (-1,) else tensor.shape
    if not tensor.shape_known or -1 in shape:
        raise ProtocolError(
            f"Output {tensor.name!r} of model {model.name!r} has no fixed shape, "
            "and the reply does not give one."
        )
    return shape
