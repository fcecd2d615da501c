"""Finds a tokenizer's file in the cache, or lays it out: the C library maps it.

Called by loading/add.py, on the main thread before the engine starts, and on the loader's while it
runs. The file depends on the tokenizer.json and on its own version alone; a start that finds it
reads nothing else of the tokenizer.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lumen_uring.errors import ConfigError
from lumen_uring.files import expanded, put
from lumen_uring.loading.model_cache import made_directory
from lumen_uring.text import VERSION

if TYPE_CHECKING:
    from lumen_uring.settings.models import ModelConfig


@contextmanager
def laid_out(model: ModelConfig) -> Iterator[Path | None]:
    """Makes sure of a tokenizer's file, as long as the library opens it.

    Args:
        model: its entry.

    Yields:
        The file; None where the model takes no texts.

    Raises:
        ConfigError: the tokenizer cannot be read, or needs what is not implemented.
    """
    if model.text is None or model.text.tokenizer is None:
        yield None
        return
    source = expanded(model.text.tokenizer)
    try:
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"The tokenizer of model {model.name} at {source}: {error.strerror}."
        ) from None
    try:
        place = made_directory() / f"{digest[:32]}-tokenizer{VERSION}.bin"
    except (OSError, RuntimeError):  # no cache: it is laid out anew at each start
        with _in_memory(_made(source)) as held:
            yield held
        return
    if not place.is_file():
        put(_made(source), place)
    with suppress(OSError):
        os.utime(place)
    yield place


def _made(source: Path) -> bytes:
    # Imported late: laying it out needs numpy and reads the tables, serving it needs neither.
    from lumen_uring.text.compile import compile_file

    return compile_file(source)


@contextmanager
def _in_memory(data: bytes) -> Iterator[Path]:
    descriptor = os.memfd_create("lumen-tokenizer")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
