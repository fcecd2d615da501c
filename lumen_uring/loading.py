"""Adds a model to an engine as a server does: without its ZipMap, with its place in the cache.

Called by server.py and by `lumen inspect`, on the main thread, before the engine starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lumen_uring import zipmap
from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.model_cache import cache_place

if TYPE_CHECKING:
    from lumen_uring.ring.engine import Engine
    from lumen_uring.settings import ModelConfig


def add_model(
    engine: Engine, ort_version: str, model: ModelConfig, path: Path, names: bytes | None
) -> list[str]:
    """Loads a model.

    Args:
        engine: not started yet.
        ort_version: of its ONNX Runtime.
        model: the entry of the configuration.
        path: its file.
        names: its classes, one a line; None takes those that the file itself names, if any.

    Returns:
        Sentences for the person who starts the server.

    Raises:
        ConfigError: the file cannot be read.
        EngineError: the model cannot be served.
    """
    with zipmap.cut(path) as (file, classes, note):
        try:
            place = cache_place(file, ort_version, model.fix_dims)
            engine.add_model(model, file, place.path, classes if names is None else names)
        except (ConfigError, EngineError) as error:
            if file == path:
                raise
            # The file without its ZipMap has no name of its own.
            text = str(error).replace(str(file), str(path))
            raise type(error)(text) from None
    return [text for text in (note, place.note) if text is not None]
