"""The handle of a server of the C library, which everything that an engine does goes through.

The base of what engine.py is made of. A handle belongs to the process that opened it.
"""

from __future__ import annotations

import ctypes
import os

from lumen_uring.errors import EngineError
from lumen_uring.ring import structs


class Handle:
    """An open server, and how the library's refusals become errors."""

    _library: ctypes.CDLL
    _handle: ctypes.c_void_p | None  # None: it is closed
    _process: int  # that opened it
    _indexes: dict[str, int]  # of the models that were added, by name

    def _open_handle(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise EngineError("The engine is closed.", structs.E_INVALID)
        if self._process != os.getpid():
            raise EngineError("The engine runs in the process that opened it.", structs.E_INVALID)
        return self._handle

    def _check(self, result: int) -> int:
        """Turns a negative result into the library's own sentence."""
        if result < 0:
            sentence = self._library.lumen_last_error() or b""
            name = structs.ERROR_NAMES.get(result, str(result))
            text = sentence.decode("utf-8", "replace") or f"The engine refused ({name})."
            raise EngineError(text, result)
        return result

    def _add(self, native: structs.LumenModelConfig) -> int:
        """Adds a model before the start. Returns its index on the wire."""
        index = ctypes.c_uint32()
        self._check(
            self._library.lumen_add_model(
                self._open_handle(), ctypes.byref(native), ctypes.byref(index)
            )
        )
        self._indexes[native.name.decode()] = index.value
        return index.value
