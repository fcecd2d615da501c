"""Reads the weights of a model.safetensors: a header of JSON, then the tensors' bytes.

Used by export_text.py, on the main thread. The file is somebody else's: every offset is checked.

Source: the format of huggingface/safetensors
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import ConfigError

Array = npt.NDArray[np.float32]
_HEADER_BYTES_MAX: Final = 100 << 20
_TYPES: Final = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I64": 8}


class Weights:
    """The tensors of a file, as float32.

    Args:
        path: of the file.

    Raises:
        ConfigError: it cannot be read, or is no such file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                if not 2 <= size <= _HEADER_BYTES_MAX:
                    raise ValueError(f"a header of {size} bytes")
                header = json.loads(file.read(size))
                if not isinstance(header, dict):
                    raise ValueError(f"a {type(header).__name__}")
            self._data = np.memmap(path, np.uint8, "r", 8 + size)
        except OSError as error:
            raise ConfigError(
                f"{path}: expected a readable file, found: {error.strerror}."
            ) from None
        except ValueError as error:
            raise ConfigError(f"{path}: expected safetensors, found: {error}.") from None
        self._header: dict[str, Any] = {
            name: one for name, one in header.items() if name != "__metadata__"
        }
        self._taken: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Of all tensors."""
        return list(self._header)

    def left(self) -> list[str]:
        """Those that nobody has taken."""
        return [name for name in self._header if name not in self._taken]

    def take(self, *names: str) -> Array:
        """A tensor under the first of its possible names.

        Args:
            names: that it may have.

        Raises:
            ConfigError: there is none of them, or its entry is wrong.
        """
        name = next((name for name in names if name in self._header), None)
        if name is None:
            raise ConfigError(f"{self._path}: expected a tensor {names[0]}, found none.")
        self._taken.add(name)
        try:
            entry = self._header[name]
            kind, shape = str(entry["dtype"]), [int(size) for size in entry["shape"]]
            begin, end = (int(at) for at in entry["data_offsets"])
            size = int(np.prod(shape, dtype=object)) * _TYPES[kind]
            if (
                min(shape, default=1) < 0
                or begin < 0
                or end - begin != size
                or end > len(self._data)
            ):
                raise ValueError("sizes that contradict each other")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ConfigError(
                f"{self._path}: {name}: expected a tensor of {', '.join(_TYPES)} within the file, "
                f"found: {error}."
            ) from None
        raw = self._data[begin:end]
        if kind == "BF16":  # the upper half of a float32
            wide = raw.view(np.uint16).astype(np.uint32) << 16
            return wide.view(np.float32).reshape(shape)
        code = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8"}[kind]
        return np.ascontiguousarray(raw).view(code).astype(np.float32).reshape(shape)
