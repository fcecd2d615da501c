"""Strings between a caller's arrays and the wire, where each is its length (u32) and its bytes.

Used by payloads.py, inputs.py and `lumen bench`, on any thread. Text travels as UTF-8. Bytes that
are no UTF-8 come back as surrogates, as in file names, and are sent as the same bytes again.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from lumen_uring.protocol.convert import Array

DATATYPE: Final = "BYTES"
_LENGTH: Final = struct.Struct("<I")


def to_array(value: npt.ArrayLike) -> Array:
    """Makes an array of strings.

    Args:
        value: str, bytes, lists of them, or an array of either.

    Returns:
        An object array of bytes objects, of the same shape.

    Raises:
        ValueError: what was found instead.

    >>> to_array([["a"], [b"b"]])
    array([[b'a'],
           [b'b']], dtype=object)
    """
    try:
        array = np.asarray(value, object)
    except ValueError:
        raise ValueError("found lists of different lengths") from None
    encoded = np.empty(array.shape, object)
    encoded.reshape(-1)[:] = [_encode(item) for item in array.reshape(-1)]
    return encoded


def pack(array: Array) -> bytes:
    """Writes strings as on the wire.

    Args:
        array: of to_array.

    >>> pack(to_array(["hi"])).hex()
    '020000006869'
    """
    return b"".join(part for item in array.reshape(-1) for part in (_LENGTH.pack(len(item)), item))


def unpack(payload: bytes | memoryview, count: int) -> tuple[Array, int]:
    """Reads strings.

    Args:
        payload: that begins with them.
        count: how many there are.

    Returns:
        An object array of str, and the bytes that they took.

    Raises:
        ValueError: they are not whole.
    """
    if count > len(payload) // _LENGTH.size:
        raise ValueError(f"{count} strings in {len(payload)} bytes")
    found = np.empty(count, object)
    at = 0
    for index in range(count):
        if len(payload) - at < _LENGTH.size:
            raise ValueError(f"{index} strings, then {len(payload) - at} bytes")
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(payload, at)[0]
        if at > len(payload):
            raise ValueError(f"a string of {at - start} bytes where {len(payload) - start} are")
        found[index] = bytes(payload[start:at]).decode("utf-8", "surrogateescape")
    return found, at


def _encode(item: object) -> bytes:
    if isinstance(item, str):
        try:
            return item.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"found a text that UTF-8 cannot say: {item[:40]!r}") from None
    if isinstance(item, bytes):
        return item
    raise ValueError(f"found {type(item).__name__} among the strings: use str(x)")
