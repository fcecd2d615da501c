"""Weights that lie in files beside a model: a copy of them that nobody else writes.

ONNX Runtime maps these files, for as long as it uses them: whoever writes over them changes
answers, and whoever cuts them ends the process. So it gets a copy in the cache, until the optimised
graph is there, which has them inside; a graph that cannot be kept there (of more than 2 GiB, say)
keeps the copy. Called by loading/add.py, on the thread that loads.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from lumen_uring.errors import ConfigError
from lumen_uring.files import expanded
from lumen_uring.loading import model_file

GRAPH: Final = "model.onnx"  # in a copy
_CHUNK_BYTES: Final = 1 << 22
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class NoRoomError(Exception):
    """There is no room for a copy; the message says how much is needed."""


def folder_of(given: str, model: Path, names: Iterable[str]) -> Path | None:
    """Finds the folder that a model's weights are named from: where its path says, or where a link
    leads to, as in the caches of model hubs.

    Args:
        given: the model's path in the settings.
        model: the same, with links followed.
        names: of the files.

    Returns:
        None where neither has them all, or a name leads out of the folder.
    """
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in names):
        return None
    for folder in (expanded(given).absolute().parent, model.parent):
        if all((folder / name).is_file() for name in names):
            return folder
    return None


def bytes_of(folder: Path, names: Iterable[str]) -> int:
    """The bytes of weights.

    Args:
        folder, names: of their files.
    """
    return sum((folder / name).stat().st_size for name in names)


def digest(graph: str, folder: Path, names: Iterable[str]) -> str:
    """The digest of a model with its weights.

    Args:
        graph: of the model's own file.
        folder, names: of the weights.

    Returns:
        SHA-256 in 64 hexadecimal digits.

    Raises:
        ConfigError: a file cannot be read.
    """
    parts = [graph, *(f"{name} {model_file.read(folder / name).digest}" for name in sorted(names))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def copy(model: Path, folder: Path, names: Iterable[str], to: Path) -> Path:
    """Makes the copy, unless it is there.

    Args:
        model: the graph's file.
        folder, names: of the weights.
        to: the copy's folder, in one that is there.

    Returns:
        The graph's file in the copy.

    Raises:
        ConfigError: a file has been written since its digest was made.
        NoRoomError: the disk is full.
        OSError: the copy cannot be made.
    """
    if (to / GRAPH).is_file():
        return to / GRAPH
    temporary = Path(tempfile.mkdtemp(prefix=f"{to.name}.", suffix=".tmp", dir=to.parent))
    try:
        for name in names:
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(folder / name, temporary / name)
        _copy(model, temporary / GRAPH)
        temporary.rename(to)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):  # another process was faster
            return to / GRAPH
        if error.errno in _NO_ROOM:
            needed = bytes_of(folder, names)
            raise NoRoomError(f"{needed} bytes in {to.parent}: {error.strerror}") from None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return to / GRAPH


def _copy(source: Path, to: Path) -> None:
    expected = model_file.read(source).digest
    with source.open("rb") as reading, to.open("xb") as writing:
        found = _copy_bytes(reading, writing)
    if found != expected:
        raise ConfigError(f"{source} was written while it was loaded: load it again.")


def _copy_bytes(reading: BinaryIO, writing: BinaryIO) -> str:
    done = hashlib.sha256()
    while chunk := reading.read(_CHUNK_BYTES):
        done.update(chunk)
        writing.write(chunk)
    return done.hexdigest()


@contextmanager
def held(graph: Path) -> Iterator[None]:
    """Keeps other processes from removing a copy that is loaded.

    Args:
        graph: of a copy, or another file.
    """
    with graph.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def forget(to: Path) -> None:
    """Removes a copy that is not needed any more, unless another process loads it.

    Args:
        to: its folder.
    """
    with suppress(OSError), (to / GRAPH).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(to)
