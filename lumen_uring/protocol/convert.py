"""Converts a caller's lists, numbers and arrays to the element type that a model takes.

Used by payloads.py, on any thread. An array of the model's own type passes as it is. A conversion
may round to a float, as numpy rounds when it assigns, and loses nothing else: an integer must be in
range, and a float never becomes an integer. This file checks no shapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lumen_uring.protocol.describe import DTYPES

Array = npt.NDArray[Any]
_BF16 = "BF16"
# numpy's codes of the element types that are numbers: bool, unsigned, signed, float.
_NUMBERS = "buif"
_KINDS = {"U": "texts", "S": "bytes", "c": "complex numbers"}
_WHOLE_MAX = 2.0**63


def name_of(datatype: str) -> str:
    """The name of an element type for numpy's users.

    Args:
        datatype: the protocol's name.

    >>> name_of("FP32"), name_of("BF16")
    ('float32', 'bfloat16')
    """
    if datatype == "BYTES":
        return "strings"
    return "bfloat16" if datatype == _BF16 else DTYPES[datatype].name


def to_array(value: npt.ArrayLike) -> Array:
    """Makes an array of numbers.

    Args:
        value: an array, a number, or lists of them.

    Returns:
        The array itself where it is one.

    Raises:
        ValueError: what was found instead of numbers.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError("found masked values, which have no number: use x.filled(NUMBER)")
    if isinstance(value, np.ndarray):
        array = value
    else:
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(
                f"found {type(value).__name__} that is no array of numbers ({error})"
            ) from None
        if array.dtype.kind == "f" and array.size and np.abs(array).max() >= _WHOLE_MAX:
            array = _unsigned(value, array)
    if array.dtype.name == "bfloat16":  # of the package ml_dtypes
        return array
    if array.dtype.kind == "O" and array.size:
        array = _of_objects(array)
    if array.dtype.kind not in _NUMBERS:
        raise ValueError(f"found {_KINDS.get(array.dtype.kind, str(array.dtype))}")
    return array


def _unsigned(value: npt.ArrayLike, array: Array) -> Array:
    """The whole numbers of a list, some from 2^63 on: numpy makes floats of them."""
    objects = np.asarray(value, object)
    if all(type(item) is int and 0 <= item < 2**64 for item in objects.flat):
        return objects.astype(np.uint64)
    return array


def _whole(item: Any) -> int:
    return item if isinstance(item, int) else 2**63


def _of_objects(array: Array) -> Array:
    """The numbers of an array of objects, as a table of mixed columns gives them."""
    try:
        numbers = np.asarray(array.reshape(-1).tolist())
    except ValueError:
        numbers = array
    if numbers.dtype.kind in _NUMBERS and numbers.size == array.size:
        return numbers.reshape(array.shape)
    odd = (x for x in array.flat if type(x) is not float and not -(2**63) <= _whole(x) < 2**63)
    text = repr(next(odd, None))
    text = text if len(text) <= 40 else text[:37] + "..."
    raise ValueError(f"found objects that are no numbers of 64 bits, such as {text}")


def to_datatype(array: Array, datatype: str) -> Array:
    """Converts an array to an element type as the wire has it.

    Args:
        array: numbers, of to_array.
        datatype: the protocol's name.

    Returns:
        The same shape; the array itself where its type is right; bfloat16 as its bits, uint16.

    Raises:
        ValueError: what was found, and why it cannot be converted.

    >>> to_datatype(np.array([1, 2]), "FP32").dtype, to_datatype(np.array([1.0]), "BF16")
    (dtype('float32'), array([16256], dtype=uint16))
    """
    dtype = DTYPES[datatype]
    if array.dtype.name == "bfloat16":
        if datatype == _BF16:
            return array.view(dtype)
        array = array.astype(np.float32)
    if datatype == _BF16:
        return _bf16_bits(array)
    if array.dtype == dtype:
        return array
    if dtype.kind == "f":
        return _to_float(array, dtype)
    if array.dtype.kind == "f" and array.size:
        raise ValueError(
            f"found {array.dtype} {list(array.shape)}: it may hold fractions, "
            f"use numpy.rint(x).astype({dtype.name!r})"
        )
    return _to_whole(array, dtype) if array.size else array.astype(dtype)


def from_bf16(bits: Array) -> Array:
    """Reads bfloat16.

    Args:
        bits: uint16.

    Returns:
        float32 of the same shape, exactly the values.

    >>> from_bf16(np.array([16256, 49152], np.uint16))
    array([ 1., -2.], dtype=float32)
    """
    floats: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return floats


def _to_float(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        converted: Array = array.astype(dtype)
    if not np.can_cast(array.dtype, dtype, "safe"):
        _refuse(array, np.isinf(converted) & ~np.isinf(array), dtype.name)
    return converted


def _to_whole(array: Array, dtype: np.dtype[Any]) -> Array:
    if not np.can_cast(array.dtype, dtype, "safe"):
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        # numpy compares a uint64 with a negative number as floats: then nothing is too low.
        too_low = array < low if array.dtype.kind == "i" else np.zeros(array.shape, bool)
        _refuse(array, too_low | (array > high), dtype.name)
    return array.astype(dtype)


def _refuse(array: Array, outside: Array, name: str) -> None:
    if np.any(outside):
        value = array[outside].reshape(-1)[0] if array.ndim else array
        raise ValueError(
            f"found {array.dtype} {list(array.shape)} with the value {value}, "
            f"which {name} does not hold"
        )


def _bf16_bits(array: Array) -> Array:
    """Rounds to the nearest, halves to even, as processors do."""
    floats = np.atleast_1d(array if array.dtype == np.float32 else _to_float(array, np.dtype("f4")))
    bits = floats.view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded: Array = ((bits + half) >> np.uint32(16)).astype(np.uint16)
    # A NaN must neither round to infinity nor lose its sign: its quiet bit is set instead.
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    rounded = np.where(np.isnan(floats), quiet, rounded).reshape(array.shape)
    _refuse(array, np.isinf(from_bf16(rounded)) & ~np.isinf(array), "bfloat16")
    return rounded
