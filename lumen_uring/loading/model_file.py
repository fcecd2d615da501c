"""Reads a model's file once: its digest, and the words in it that decide how it is served.

Called by model_cache.py and zipmap.py, on the thread that loads. A large file takes a second, so
what was read is kept for as long as the kernel says that the file is the same. What the process of
prepare.py has read it hands to the server (`known`, `learn`).
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lumen_uring.errors import ConfigError, is_scarce

_CHUNK_BYTES: Final = 1 << 20
_KEPT_MAX: Final = 256
_WEIGHTS_MAX: Final = 4096  # as many as there are models
# A file that was changed so short a time ago may be changed again within a tick of its clock.
_SETTLED_NS: Final = 1_000_000_000
# How protobuf writes the key of an initializer that lies in another file (onnx.proto,
# TensorProto.external_data): field 1, 8 bytes, "location", field 2.
_EXTERNAL: Final = b"\n\x08location\x12"
# The value behind it: its length, of 1 or 2 bytes of 7 bits, then so many of text.
_LENGTH: Final = re.compile(rb"([\x80-\xff]?)([\x00-\x7f])")
_LOCATION_BYTES: Final = len(_EXTERNAL) + 2 + 4096  # PATH_MAX
_ZIPMAP: Final = b"ZipMap"


@dataclass(frozen=True, slots=True)
class Reading:
    """The content of a file: the SHA-256 of its bytes in 64 hexadecimal digits, the files that its
    other weights lie in, in the order of their names, and whether it has the word ZipMap."""

    digest: str
    weights: tuple[str, ...]
    mentions_zipmap: bool


# A file as the kernel knows it: device, inode, size, times of change of content and of inode in ns.
_File = tuple[int, ...]
_readings: Final[dict[_File, Reading]] = {}
_weights: Final[dict[_File, tuple[str, ...]]] = {}  # of files of which nothing else was asked


def read(path: Path) -> Reading:
    """Reads a model's file, or remembers what was read of it.

    Raises:
        ConfigError: the file cannot be read.
        OSError: the machine lacks what that takes, for now.
    """
    try:
        with path.open("rb") as file:
            before = _file_of(file.fileno())
            if (kept := _readings.get(before)) is not None:
                return kept
            digest = hashlib.sha256()
            weights: set[str] = set()
            mentions_zipmap = False
            tail = b""
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                text = tail + chunk
                mentions_zipmap = mentions_zipmap or _ZIPMAP in text
                weights |= _locations(text)
                tail = text[-_LOCATION_BYTES:]
            is_same = _file_of(file.fileno()) == before
    except OSError as error:
        if is_scarce(error):
            raise
        raise ConfigError(f"The model file {path} cannot be read: {error.strerror}.") from None
    reading = Reading(digest.hexdigest(), tuple(sorted(weights)), mentions_zipmap)
    if is_same and time.time_ns() - max(before[-2:]) > _SETTLED_NS:
        _keep(before, reading)
    return reading


def weights(path: Path) -> tuple[str, ...]:
    """The files that a model's other weights lie in, found without a digest, or remembered.

    Args:
        path: of a model; of no file, or one that cannot be read, there are none.

    Returns:
        Their names, as the graph has them, in order.

    Raises:
        OSError: the machine lacks what reading takes, for now.
    """
    if not os.path.isfile(path):  # to open a pipe would wait for its writer
        return ()
    try:
        with path.open("rb") as file:
            before = _file_of(file.fileno())
            if (read_before := _readings.get(before)) is not None:
                return read_before.weights
            if (kept := _weights.get(before)) is not None:
                return kept
            found: set[str] = set()
            tail = b""
            while chunk := file.read(_CHUNK_BYTES):
                text = tail + chunk
                found |= _locations(text)
                tail = text[-_LOCATION_BYTES:]
            is_same = _file_of(file.fileno()) == before
    except OSError as error:
        if is_scarce(error):
            raise
        return ()
    names = tuple(sorted(found))
    if is_same and time.time_ns() - max(before[-2:]) > _SETTLED_NS:
        if len(_weights) >= _WEIGHTS_MAX:
            _weights.clear()
        _weights[before] = names
    return names


def _locations(text: bytes) -> set[str]:
    """The names of files that initializers lie in, as far as they are whole."""
    found = set()
    at = text.find(_EXTERNAL)
    while at >= 0:
        at += len(_EXTERNAL)
        if length := _LENGTH.match(text, at):
            more, last = length.groups()
            count = (more[0] & 0x7F) + (last[0] << 7) if more else last[0]
            name = text[length.end() : length.end() + count]
            if len(name) == count:
                found.add(name.decode("utf-8", "surrogateescape"))
        at = text.find(_EXTERNAL, at)
    return found


def stamp(path: Path) -> _File | None:
    """What tells a file from itself before it was written to; None where there is none.

    Args:
        path: of a model.
    """
    try:
        return _stamp_of(path.stat())
    except OSError:
        return None


def known() -> list[tuple[list[int], str, list[str], bool]]:
    """What this process has read, as another one may learn it."""
    return [
        ([*file], reading.digest, [*reading.weights], reading.mentions_zipmap)
        for file, reading in _readings.items()
    ]


def learn(readings: Iterable[Sequence[object]]) -> None:
    """Takes over what another process of this machine has read.

    Args:
        readings: its `known`.
    """
    for file, digest, weights, mentions_zipmap in readings:
        assert isinstance(file, list)
        assert isinstance(weights, list)
        _keep(tuple(file), Reading(str(digest), tuple(weights), bool(mentions_zipmap)))


def _keep(file: _File, reading: Reading) -> None:
    if len(_readings) >= _KEPT_MAX:
        _readings.clear()
    _readings[file] = reading


def _file_of(descriptor: int) -> _File:
    return _stamp_of(os.fstat(descriptor))


def _stamp_of(found: os.stat_result) -> _File:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
