"""Files as a whole: read with a sentence where that fails, written whole or not at all.

Used by whatever reads what users give, and by whatever fills the cache; on any thread.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lumen_uring.errors import ConfigError


def expanded(text: str | os.PathLike[str]) -> Path:
    """A path with the home folder in the place of "~".

    Args:
        text: as a user gave it. It stays as it is where nobody knows the home folder: "~name"
            without a user of that name, or a user that the system does not know.
    """
    return Path(os.path.expanduser(text))


def take(path: Path, bytes_max: int) -> bytes:
    """Reads a file that a user gave.

    Args:
        path: of it.
        bytes_max: the most that it may have.

    Raises:
        ConfigError: it cannot be read, or has more.
    """
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError(f"{path}: expected a readable file, found: {error.strerror}.") from None
    if len(data) > bytes_max:
        raise ConfigError(f"{path}: expected at most {bytes_max} bytes, found more.")
    return data


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
