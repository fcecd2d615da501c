"""Finds the native engine's file of a model in the cache, or writes it.

Called by loading/add.py at start, on the main thread. The file depends on the model and on the
file's version alone. A model that a native engine does not run leaves the reason in the cache, so
that the next start does not read it again. Where the package `onnx` was removed, no file is
written.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from lumen_uring.errors import EngineError
from lumen_uring.files import put
from lumen_uring.ring.config_struct import EnginePlace
from lumen_uring.ring.library import check_engine

# Operators of networks that a native engine does not run, as their nodes have them in the file
# (onnx.proto: NodeProto.op_type is field 4): such files, which may be large, are not read.
_OTHERS: Final = tuple(
    b'"' + bytes([len(name)]) + name
    for name in (b"Conv", b"Gather", b"LSTM", b"GRU", b"LayerNormalization", b"BatchNormalization")
)
_CHUNK_BYTES: Final = 1 << 20
_MARK_BYTES_MAX: Final = max(len(mark) for mark in _OTHERS)
_VERSION: Final = 1  # of the files
_REASON_BYTES_MAX: Final = 400


def engine_place(model: Path, name: str, cached_graph: Path | None) -> EnginePlace:
    """Makes sure of a model's file.

    Args:
        model: the ONNX file.
        name: what messages call it.
        cached_graph: the place of its optimised graph, whose name begins with the model's digest;
            None: there is no cache.

    Returns:
        The file, checked, or why there is none.
    """
    if cached_graph is None:
        return EnginePlace(None, "there is no cache to keep its file in")
    digest = cached_graph.name.partition("-")[0]
    path = cached_graph.with_name(f"{digest}-engine{_VERSION}.bin")
    reason = path.with_suffix(".txt")
    note = None
    if path.exists():
        try:
            check_engine(path)
            return EnginePlace(path, None)
        except EngineError as error:
            note = f"the native engine's file of {name} is made anew: {error}"
    try:
        return EnginePlace(None, reason.read_text("utf-8")[:_REASON_BYTES_MAX], note)
    except (OSError, UnicodeDecodeError):
        pass
    try:
        why = _export(model, path)
        if why is None:
            return EnginePlace(path, None, note)
        with suppress(OSError):
            put(why.encode(), reason)
        return EnginePlace(None, why, note)
    except ImportError:
        return EnginePlace(None, "the package onnx is not installed: pip install onnx", note)
    except (OSError, EngineError) as error:
        return EnginePlace(None, f"its file was not written: {error}", note)


def _other_operator(model: Path) -> bytes | None:
    """The mark of an operator that the engine does not have, if the file has one. It is not mapped:
    whoever cuts a mapped file ends the process."""
    tail = b""
    with model.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            text = tail + chunk
            if (mark := next((one for one in _OTHERS if one in text), None)) is not None:
                return mark
            tail = text[-_MARK_BYTES_MAX:]
    return None


def _export(model: Path, path: Path) -> str | None:
    """Writes the file. Returns why there is none."""
    if (other := _other_operator(model)) is not None:
        return f"it has {other[2:].decode()}"
    # Imported late: making the file needs onnx and numpy, serving it needs neither.
    from lumen_uring.engine import export as engine_export
    from lumen_uring.engine import file as engine_file
    from lumen_uring.engine.trees import NotSuitedError

    try:
        data = engine_file.data(engine_export.network(model))
    except NotSuitedError as error:
        return str(error)
    put(data, path, lambda file: check_engine(file, whole=True))
    return None
