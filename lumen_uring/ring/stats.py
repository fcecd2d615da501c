"""Reads a server's statistics from its shared-memory file, without disturbing it.

Called by `lumen stats`, `lumen top`, tools and tests, from any process and thread. The file
describes itself: names, offsets and layout come from its own header and field table, checked
against its size before anything is read. It only ever maps the file for reading.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import StatsError
from lumen_uring.ring import stats_structs as structs
from lumen_uring.ring.histogram import SUB_BITS_MAX, Histogram
from lumen_uring.ring.snapshot import (
    EXPERT,
    Histograms,
    Snapshot,
    ThreadStats,
    Values,
    snapshot_of,
)

_FILE_BYTES_MAX: Final = 1 << 34  # most of it is not there: rows that no model has yet
_FIELDS_MAX: Final = 4096
_BLOCKS_MAX: Final = 4096
_MODELS_MAX: Final = 1 << 16
_NAME_BYTES_MAX: Final = 4096
_OF_MODEL: Final = "model_"
_OF_EXPERT: Final = "expert_"
_OF_MODELS: Final = (
    structs.FIELD_MODEL_HISTOGRAM,
    structs.FIELD_MODEL_COUNTER,
    structs.FIELD_MODEL_GAUGE,
)
_TRIES_MAX: Final = 100  # while rows get other models' names


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: int
    offset: int
    count: int
    role: int


def stats_path(port: int) -> Path:
    """The path of the statistics file of the server on a port.

    Args:
        port: 1..65535.
    """
    return Path(f"/dev/shm/lumen-{port}")


def read(path: Path, descriptor: int | None = None) -> Snapshot:
    """Reads one file.

    Args:
        path: as stats_path gives it, or a copy of such a file.
        descriptor: of the file, if it is open for reading already; it stays open.

    Returns:
        The figures; threads write while they are read, but each value is read whole.

    Raises:
        StatsError: there is no such file, it cannot be read, or it is of another version.
    """
    if descriptor is None:
        descriptor = _open(path)
        try:
            return read(path, descriptor)
        finally:
            os.close(descriptor)
    data = _map(path, descriptor)
    for _ in range(_TRIES_MAX):
        before = _naming(data)
        snapshot = _read_once(path, descriptor, data)
        if before == _naming(data) and before % 2 == 0:
            return snapshot
        time.sleep(0.001)
    raise StatsError(f"{path} is damaged: its names never stop changing.")


def _naming(data: npt.NDArray[np.uint8]) -> int:
    """Odd while a row gets another model's name, and another number each time."""
    # M5: before and after everything else; pairs with M4 and M6 in c/src/parts/stats.c.
    at = structs.LumenStatsHeader.naming.offset
    return int(data[at : at + 4].view("<u4")[0])


def _read_once(path: Path, descriptor: int, data: npt.NDArray[np.uint8]) -> Snapshot:
    header = structs.LumenStatsHeader.from_buffer_copy(data.data)
    _check_header(path, header, len(data))
    fields = _read_fields(path, header, data)
    names = _read_names(header, data)
    experts = _read_experts(path, header, names, data)
    threads = tuple(
        _read_block(
            path,
            header,
            fields,
            names,
            experts,
            data,
            header.blocks_offset + index * header.block_bytes,
        )
        for index in range(header.block_count)
    )
    snapshot = snapshot_of(
        header.pid,
        header.port,
        structs.STATES.get(header.state, f"unknown ({header.state})"),
        header.start_realtime_ns,
        threads,
    )
    return replace(snapshot, is_alive=_is_held(descriptor))


def _is_held(descriptor: int) -> bool:
    """Whether a server holds its lock on the file; a process id may have been reused."""
    # struct flock: type, whence, start, length, process id
    asked = struct.pack("hhlli", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    except OSError:
        return False
    return int(struct.unpack_from("h", answer)[0]) != fcntl.F_UNLCK


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise StatsError(f"{path} does not exist: no server with this port runs here.") from None
    except OSError as error:
        raise StatsError(
            f"{path} cannot be read ({error.strerror}): run this as the server's user."
        ) from None


def _map(path: Path, descriptor: int) -> npt.NDArray[np.uint8]:
    try:
        size = os.fstat(descriptor).st_size
        if not ctypes.sizeof(structs.LumenStatsHeader) <= size <= _FILE_BYTES_MAX:
            raise StatsError(f"{path} is no statistics file: it has {size} bytes.")
        mapping = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise StatsError(f"{path} cannot be mapped: {error}.") from None
    return np.frombuffer(mapping, np.uint8)


def _check_header(path: Path, header: structs.LumenStatsHeader, size: int) -> None:
    # M2: the magic is read before everything else; pairs with M1 and M3 in c/src/parts/stats.c.
    if header.magic != structs.STATS_MAGIC:
        raise StatsError(
            f"{path} is no statistics file: expected {structs.STATS_MAGIC!r} at its start, "
            f"found {header.magic!r}."
        )
    if header.version != structs.STATS_VERSION:
        raise StatsError(
            f"{path} was written by a server of version {header.version}, this reader knows "
            f"{structs.STATS_VERSION}: use the lumen command of that server."
        )
    fields_end = header.fields_offset + header.field_count * ctypes.sizeof(structs.LumenStatsField)
    blocks_end = header.blocks_offset + header.block_count * header.block_bytes
    models_end = header.models_offset + header.model_count * header.model_name_bytes
    fits = (
        header.file_bytes <= size
        and fields_end <= size
        and blocks_end <= size
        and models_end <= size
        and header.model_count <= _MODELS_MAX
        and header.experts_max <= _MODELS_MAX
        and header.experts_offset + header.model_count * header.experts_max * 4 <= size
        and header.model_name_bytes <= _NAME_BYTES_MAX
        and header.field_count <= _FIELDS_MAX
        and header.block_count <= _BLOCKS_MAX
        and header.block_bytes >= ctypes.sizeof(structs.LumenStatsBlock)
        and header.blocks_offset % 8 == 0
        and header.block_bytes % 8 == 0
        and header.histogram_sub_bits <= SUB_BITS_MAX
        and header.histogram_unit_bits <= SUB_BITS_MAX
        and header.model_histogram_sub_bits <= SUB_BITS_MAX
        and header.model_histogram_unit_bits <= SUB_BITS_MAX
        and header.model_stride % 8 == 0
    )
    if not fits:
        raise StatsError(f"{path} is damaged: its header describes more than its {size} bytes.")


def _read_fields(
    path: Path, header: structs.LumenStatsHeader, data: npt.NDArray[np.uint8]
) -> list[_Field]:
    size = ctypes.sizeof(structs.LumenStatsField)
    fields: list[_Field] = []
    for index in range(header.field_count):
        at = header.fields_offset + index * size
        entry = structs.LumenStatsField.from_buffer_copy(data.data, at)
        name = entry.name.decode("ascii", "replace")
        end = entry.offset + entry.count * 8
        if entry.kind == structs.FIELD_HISTOGRAM:
            fits = entry.count == header.histogram_buckets
        elif entry.kind == structs.FIELD_MODEL_HISTOGRAM:
            fits = entry.count == 1 + header.model_histogram_buckets
        else:
            fits = entry.count == 1
        if entry.kind in _OF_MODELS:
            fits = fits and entry.count * 8 <= header.model_stride
            end += max(header.model_count - 1, 0) * header.model_stride
        inside = entry.offset % 8 == 0 and end <= header.block_bytes
        if not inside or not fits:
            raise StatsError(f"{path} is damaged: its field {name!r} lies outside its block.")
        fields.append(_Field(name, entry.kind, entry.offset, entry.count, entry.role))
    return fields


def _read_names(header: structs.LumenStatsHeader, data: npt.NDArray[np.uint8]) -> list[str]:
    names: list[str] = []
    for index in range(header.model_count):
        at = header.models_offset + index * header.model_name_bytes
        raw = data[at : at + header.model_name_bytes].tobytes()
        names.append(raw.split(b"\0", 1)[0].decode("utf-8", "replace"))
    return names


def _read_experts(
    path: Path,
    header: structs.LumenStatsHeader,
    names: list[str],
    data: npt.NDArray[np.uint8],
) -> list[dict[str, str]]:
    """For each model: which expert each of its counters model_expert_N is of, by N."""
    found: list[dict[str, str]] = []
    for model in range(header.model_count):
        at = header.experts_offset + model * header.experts_max * 4
        words = data[at : at + header.experts_max * 4].view("<u4").tolist()
        if any(word > header.model_count for word in words):
            raise StatsError(f"{path} is damaged: an expert of {names[model]!r} is no model.")
        found.append({str(place): names[word - 1] for place, word in enumerate(words) if word})
    return found


def _read_block(
    path: Path,
    header: structs.LumenStatsHeader,
    fields: list[_Field],
    names: list[str],
    experts: list[dict[str, str]],
    data: npt.NDArray[np.uint8],
    at: int,
) -> ThreadStats:
    start = structs.LumenStatsBlock.from_buffer_copy(data.data, at)
    if start.role not in structs.ROLES:
        raise StatsError(f"{path} is damaged: a block has the unknown role {start.role}.")
    counters: dict[str, int] = {}
    gauges: dict[str, int] = {}
    histograms: dict[str, Histogram] = {}
    own = [entry for entry in fields if entry.role in (start.role, structs.ROLE_BOTH)]
    for entry in own:
        if entry.kind == structs.FIELD_HISTOGRAM:
            histograms[entry.name] = Histogram(
                _words(data, at + entry.offset, entry.count),
                header.histogram_sub_bits,
                header.histogram_unit_bits,
            )
        elif entry.kind in (structs.FIELD_GAUGE, structs.FIELD_COUNTER):
            is_gauge = entry.kind == structs.FIELD_GAUGE
            word = int(_words(data, at + entry.offset, 1)[0])
            (gauges if is_gauge else counters)[entry.name] = word
    of_models = [entry for entry in own if entry.kind in _OF_MODELS]
    rows, first = _model_rows(path, header, of_models, data, at)
    model_counters = _model_values(of_models, structs.FIELD_MODEL_COUNTER, names, rows, first)
    _name_experts(model_counters, names, experts)
    return ThreadStats(
        structs.ROLES[start.role],
        start.index,
        start.cpu,
        start.tid,
        start.node,
        counters,
        gauges,
        histograms,
        model_counters,
        _model_values(of_models, structs.FIELD_MODEL_GAUGE, names, rows, first),
        _model_histograms(header, of_models, names, rows, first),
    )


def _model_rows(
    path: Path,
    header: structs.LumenStatsHeader,
    of_models: list[_Field],
    data: npt.NDArray[np.uint8],
    at: int,
) -> tuple[npt.NDArray[np.uint64], int]:
    """The words of all models in the block at `at`, a row each; and the offset of the first."""
    count, stride = header.model_count, header.model_stride
    if not count or not of_models:
        return np.zeros((count, stride // 8), np.uint64), 0
    first = min(entry.offset for entry in of_models)
    last = max(entry.offset + entry.count * 8 for entry in of_models)
    if last - first > stride:
        raise StatsError(f"{path} is damaged: the words of a model lie in two rows.")
    words = _words(data, at + first, ((count - 1) * stride + last - first) // 8)
    rows = np.zeros((count, stride // 8), np.uint64)
    rows.reshape(-1)[: len(words)] = words
    return rows, first


def _model_values(
    of_models: list[_Field],
    kind: int,
    names: list[str],
    rows: npt.NDArray[np.uint64],
    first: int,
) -> Values:
    entries = [entry for entry in of_models if entry.kind == kind]
    keys = [entry.name.removeprefix(_OF_MODEL) for entry in entries]
    columns = []
    if names:
        columns = rows[:, [(entry.offset - first) // 8 for entry in entries]].tolist()
    return {
        name: dict(zip(keys, row, strict=True)) for name, row in zip(names, columns, strict=True)
    }


def _name_experts(counters: Values, names: list[str], experts: list[dict[str, str]]) -> None:
    """Puts the experts' names in the place of their numbers; counters of none go."""
    for name, of_place in zip(names, experts, strict=True):
        values = counters[name]
        keys = [key for key in values if key.startswith(_OF_EXPERT)]
        for place, count in [(key.removeprefix(_OF_EXPERT), values.pop(key)) for key in keys]:
            if expert := of_place.get(place):
                values[EXPERT + expert] = values.get(EXPERT + expert, 0) + count


def _model_histograms(
    header: structs.LumenStatsHeader,
    of_models: list[_Field],
    names: list[str],
    rows: npt.NDArray[np.uint64],
    first: int,
) -> Histograms:
    sub_bits, unit_bits = header.model_histogram_sub_bits, header.model_histogram_unit_bits
    found: Histograms = {name: {} for name in names}
    for entry in of_models:
        if entry.kind != structs.FIELD_MODEL_HISTOGRAM:
            continue
        column = (entry.offset - first) // 8
        stage = entry.name.removeprefix(_OF_MODEL)
        for name, row in zip(names, rows, strict=True):
            words = row[column : column + entry.count]
            found[name][stage] = Histogram(words[1:], sub_bits, unit_bits, int(words[0]))
    return found


def _words(data: npt.NDArray[np.uint8], at: int, count: int) -> npt.NDArray[np.uint64]:
    """Copies words, since the file changes."""
    words: npt.NDArray[np.uint64] = data[at : at + count * 8].view(np.dtype("<u8")).copy()
    return words
