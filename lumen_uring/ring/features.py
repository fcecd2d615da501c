"""Features of a rule (ExpertsConfig), computed by the C library as a server computes them.

Used by `lumen fit-router` and tests, on any thread.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import EngineError
from lumen_uring.ring import library, structs
from lumen_uring.settings.models import Feature

# ONNX's numbers of the types that numpy has too.
_DTYPES: Final[dict[str, int]] = {
    "<f4": 1,
    "|u1": 2,
    "|i1": 3,
    "<u2": 4,
    "<i2": 5,
    "<i4": 6,
    "<i8": 7,
    "|b1": 9,
    "<f2": 10,
    "<f8": 11,
    "<u4": 12,
    "<u8": 13,
}


def feature(name: Feature, rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The feature of each row.

    Args:
        name: of an input or an output; not pixels, length or size.
        rows: numbers, [rows, ...].

    Returns:
        [rows].

    Raises:
        EngineError: such an array has no such feature.

    Source:
        lumen_feature
    """
    array = np.ascontiguousarray(rows)
    values = np.zeros(len(array), np.float64)
    dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    code = library.load().lumen_feature(
        get_args(Feature).index(name),
        _DTYPES.get(array.dtype.str, 0),
        dims,
        array.ndim,
        array.ctypes.data,
        values.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
    )
    if code:
        shape = f"{array.dtype} {list(array.shape)}"
        raise EngineError(f"An array of {shape} has no feature {name!r}.", structs.E_INVALID)
    return values
