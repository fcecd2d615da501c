"""Reads a model's file once: its digest, and the words in it that decide how it is served.

Called by model_cache.py and zipmap.py, on the thread that loads. A large file takes a second, so
what was read is kept for as long as the kernel says that the file is the same. What the process of
prepare.py has read it hands to the server (`known`, `learn`).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lumen_uring.errors import ConfigError

_CHUNK_BYTES: Final = 1 << 20
_KEPT_MAX: Final = 256
# A file that was changed so short a time ago may be changed again within a tick of its clock.
_SETTLED_NS: Final = 1_000_000_000
# How protobuf writes the key of an initializer that lies in another file (onnx.proto,
# TensorProto.external_data): field 1, 8 bytes, "location", field 2.
_EXTERNAL: Final = b"\n\x08location\x12"
_ZIPMAP: Final = b"ZipMap"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file holds: the SHA-256 of its bytes in 64 hexadecimal digits, whether all weights are
    in it, and whether it has the word ZipMap."""

    digest: str
    is_whole: bool
    mentions_zipmap: bool


# A file as the kernel knows it: device, inode, size, times of change of content and of inode in ns.
_File = tuple[int, ...]
_readings: Final[dict[_File, Reading]] = {}


def read(path: Path) -> Reading:
    """Reads a model's file, or remembers what was read of it.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            before = _file_of(file.fileno())
            if (kept := _readings.get(before)) is not None:
                return kept
            digest = hashlib.sha256()
            found: set[bytes] = set()
            tail = b""
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                for word in {_EXTERNAL, _ZIPMAP} - found:
                    if word in chunk or word in tail + chunk[: len(word)]:
                        found.add(word)
                tail = chunk[-len(_EXTERNAL) :]
            is_same = _file_of(file.fileno()) == before
    except OSError as error:
        raise ConfigError(f"The model file {path} cannot be read: {error.strerror}.") from None
    reading = Reading(digest.hexdigest(), _EXTERNAL not in found, _ZIPMAP in found)
    if is_same and time.time_ns() - max(before[-2:]) > _SETTLED_NS:
        _keep(before, reading)
    return reading


def stamp(path: Path) -> _File | None:
    """What tells a file from itself before it was written to; None where there is none.

    Args:
        path: of a model.
    """
    try:
        return _stamp_of(path.stat())
    except OSError:
        return None


def known() -> list[tuple[list[int], str, bool, bool]]:
    """What this process has read, as another one may learn it."""
    return [
        ([*file], reading.digest, reading.is_whole, reading.mentions_zipmap)
        for file, reading in _readings.items()
    ]


def learn(readings: Iterable[Sequence[object]]) -> None:
    """Takes over what another process of this machine has read.

    Args:
        readings: its `known`.
    """
    for file, *rest in readings:
        assert isinstance(file, list)
        _keep(tuple(file), Reading(*rest))  # type: ignore[arg-type]


def _keep(file: _File, reading: Reading) -> None:
    if len(_readings) >= _KEPT_MAX:
        _readings.clear()
    _readings[file] = reading


def _file_of(descriptor: int) -> _File:
    return _stamp_of(os.fstat(descriptor))


def _stamp_of(found: os.stat_result) -> _File:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
