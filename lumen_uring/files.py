"""Writes files that other processes read at any time: whole, or not at all.

Used by whatever fills the cache, on any thread.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def put(data: bytes, path: Path, check: Callable[[Path], object] = lambda _path: None) -> None:
    """Writes a file beside its place and renames it: nobody sees half of it.

    Args:
        data: all of it.
        path: its place, where another one may be.
        check: looks at the file before it gets its name, and raises where it is not to.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        check(Path(name))
        Path(name).rename(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
