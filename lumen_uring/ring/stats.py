"""Reads a server's statistics from its shared-memory file, without disturbing it.

Called by `lumen stats`, tools and tests, from any process and thread. The file describes itself:
names, offsets and layout come from its own header and field table, checked against its size before
anything is read. It only ever maps the file for reading.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import StatsError
from lumen_uring.ring import structs
from lumen_uring.ring.histogram import SUB_BITS_MAX, Histogram

_FILE_BYTES_MAX: Final = 1 << 30
_FIELDS_MAX: Final = 4096
_BLOCKS_MAX: Final = 4096
_MODELS_MAX: Final = 4096
_NAME_BYTES_MAX: Final = 4096
_OF_MODEL: Final = "model_"
Values = dict[str, dict[str, int]]
Histograms = dict[str, dict[str, Histogram]]


@dataclass(frozen=True, slots=True, eq=False)
class ThreadStats:
    """One thread's block; role is "io" or "worker", cpu -1 when not pinned.

    Counters of a model are under the model's name, without "model_" in front.
    """

    role: str
    index: int
    cpu: int
    tid: int
    counters: dict[str, int]
    gauges: dict[str, int]
    histograms: dict[str, Histogram]
    model_counters: Values
    model_gauges: Values
    model_histograms: Histograms = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One reading of one file, or several merged.

    Counters and gauges are summed per role, since an I/O thread and a worker may count different
    things under one name. Histograms are merged over all threads: a value is recorded once. Of
    each model, in the wire's order, counters are summed over all threads; a gauge is the largest.
    `model_histograms` has each model's by stage, coarser than `histograms` and with exact sums.
    """

    pid: int
    port: int
    state: str
    start_realtime_ns: int
    threads: tuple[ThreadStats, ...]
    counters: Values
    gauges: Values
    histograms: dict[str, Histogram]
    models: Values
    model_histograms: Histograms = field(default_factory=dict)
    is_alive: bool = False  # a running server holds a lock on this very file


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
    header = structs.LumenStatsHeader.from_buffer_copy(data.data)
    _check_header(path, header, len(data))
    fields = _read_fields(path, header, data)
    names = _read_names(header, data)
    threads = tuple(
        _read_block(
            path, header, fields, names, data, header.blocks_offset + index * header.block_bytes
        )
        for index in range(header.block_count)
    )
    snapshot = _snapshot(
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


def delta(later: Snapshot, earlier: Snapshot) -> Snapshot:
    """Subtracts one reading of a server from a later one; gauges are the later ones.

    Args:
        later: the second reading.
        earlier: the first reading.

    Raises:
        StatsError: the readings are of two runs of the server.
    """
    if (later.pid, later.start_realtime_ns) != (earlier.pid, earlier.start_realtime_ns):
        raise StatsError(f"The server on port {later.port} was restarted between the readings.")
    before = {(thread.role, thread.index): thread for thread in earlier.threads}
    threads: list[ThreadStats] = []
    for thread in later.threads:
        old = before.get((thread.role, thread.index))
        threads.append(thread if old is None else _thread_delta(thread, old))
    changes = _snapshot(later.pid, later.port, later.state, later.start_realtime_ns, tuple(threads))
    return replace(changes, is_alive=later.is_alive)


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Adds the readings of several servers; pid and port are 0 in the result unless there is one.

    Args:
        snapshots: at least one; their histograms have the same layout.

    Raises:
        StatsError: no snapshot, or layouts that differ.
    """
    several = tuple(snapshots)
    if not several:
        raise StatsError("Nothing to merge: expected at least one snapshot.")
    if len(several) == 1:
        return several[0]
    threads = tuple(thread for snapshot in several for thread in snapshot.threads)
    states = {snapshot.state for snapshot in several}
    state = states.pop() if len(states) == 1 else "mixed"
    return _snapshot(0, 0, state, min(one.start_realtime_ns for one in several), threads)


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
    # M2: the magic is read before everything else; pairs with M1 in c/src/parts/stats.c.
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
        and header.model_histogram_stride % 8 == 0
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
            end += max(header.model_count - 1, 0) * header.model_histogram_stride
        else:
            fits = entry.count == 1 or entry.count >= max(header.model_count, 2)
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


def _read_block(
    path: Path,
    header: structs.LumenStatsHeader,
    fields: list[_Field],
    names: list[str],
    data: npt.NDArray[np.uint8],
    at: int,
) -> ThreadStats:
    start = structs.LumenStatsBlock.from_buffer_copy(data.data, at)
    if start.role not in structs.ROLES:
        raise StatsError(f"{path} is damaged: a block has the unknown role {start.role}.")
    counters: dict[str, int] = {}
    gauges: dict[str, int] = {}
    histograms: dict[str, Histogram] = {}
    model_counters: Values = {name: {} for name in names}
    model_gauges: Values = {name: {} for name in names}
    model_histograms: Histograms = {name: {} for name in names}
    for entry in fields:
        if entry.role not in (start.role, structs.ROLE_BOTH):
            continue
        words = _words(data, at + entry.offset, entry.count)
        if entry.kind == structs.FIELD_HISTOGRAM:
            histograms[entry.name] = Histogram(
                words, header.histogram_sub_bits, header.histogram_unit_bits
            )
        elif entry.kind == structs.FIELD_MODEL_HISTOGRAM:
            for model, name in enumerate(names):
                begin = at + entry.offset + model * header.model_histogram_stride
                words = _words(data, begin, entry.count)
                model_histograms[name][entry.name.removeprefix(_OF_MODEL)] = Histogram(
                    words[1:],
                    header.model_histogram_sub_bits,
                    header.model_histogram_unit_bits,
                    int(words[0]),
                )
        elif entry.kind in (structs.FIELD_GAUGE, structs.FIELD_COUNTER):
            is_gauge = entry.kind == structs.FIELD_GAUGE
            if entry.count == 1:
                (gauges if is_gauge else counters)[entry.name] = int(words[0])
                continue
            of_models = model_gauges if is_gauge else model_counters
            for name, word in zip(names, words, strict=False):
                of_models[name][entry.name.removeprefix(_OF_MODEL)] = int(word)
    return ThreadStats(
        structs.ROLES[start.role],
        start.index,
        start.cpu,
        start.tid,
        counters,
        gauges,
        histograms,
        model_counters,
        model_gauges,
        model_histograms,
    )


def _words(data: npt.NDArray[np.uint8], at: int, count: int) -> npt.NDArray[np.uint64]:
    """Copies words, since the file changes."""
    words: npt.NDArray[np.uint64] = data[at : at + count * 8].view(np.dtype("<u8")).copy()
    return words


def _add_histograms(total: dict[str, Histogram], more: dict[str, Histogram]) -> None:
    for name, histogram in more.items():
        total[name] = total[name].plus(histogram) if name in total else histogram


def _subtract_histograms(
    later: dict[str, Histogram], earlier: dict[str, Histogram]
) -> dict[str, Histogram]:
    return {
        name: histogram.minus(earlier[name]) if name in earlier else histogram
        for name, histogram in later.items()
    }


def _snapshot(
    pid: int, port: int, state: str, start_realtime_ns: int, threads: tuple[ThreadStats, ...]
) -> Snapshot:
    counters: Values = {}
    gauges: Values = {}
    histograms: dict[str, Histogram] = {}
    models: Values = {}
    model_histograms: Histograms = {}
    for thread in threads:
        for model, values in thread.model_counters.items():
            of_model = models.setdefault(model, {})
            for name, value in values.items():
                of_model[name] = of_model.get(name, 0) + value
        for model, values in thread.model_gauges.items():
            of_model = models.setdefault(model, {})
            for name, value in values.items():
                of_model[name] = max(of_model.get(name, 0), value)
        for total, values in ((counters, thread.counters), (gauges, thread.gauges)):
            of_role = total.setdefault(thread.role, {})
            for name, value in values.items():
                of_role[name] = of_role.get(name, 0) + value
        _add_histograms(histograms, thread.histograms)
        for model, of_stages in thread.model_histograms.items():
            _add_histograms(model_histograms.setdefault(model, {}), of_stages)
    return Snapshot(
        pid,
        port,
        state,
        start_realtime_ns,
        threads,
        counters,
        gauges,
        histograms,
        models,
        model_histograms,
    )


def _counters_delta(later: dict[str, int], earlier: dict[str, int]) -> dict[str, int]:
    counters: dict[str, int] = {}
    for name, value in later.items():
        counters[name] = value - earlier.get(name, 0)
        if counters[name] < 0:
            raise StatsError(f"The counter {name!r} went down: the readings are of two servers.")
    return counters


def _thread_delta(later: ThreadStats, earlier: ThreadStats) -> ThreadStats:
    return ThreadStats(
        later.role,
        later.index,
        later.cpu,
        later.tid,
        _counters_delta(later.counters, earlier.counters),
        later.gauges,
        _subtract_histograms(later.histograms, earlier.histograms),
        {
            model: _counters_delta(counters, earlier.model_counters.get(model, {}))
            for model, counters in later.model_counters.items()
        },
        later.model_gauges,
        {
            model: _subtract_histograms(of_stages, earlier.model_histograms.get(model, {}))
            for model, of_stages in later.model_histograms.items()
        },
    )
