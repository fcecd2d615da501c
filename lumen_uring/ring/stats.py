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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, overload

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
from lumen_uring.ring.stats_layout import Columns, Layout, read_layouts

_FILE_BYTES_MAX: Final = 1 << 34  # most of it is not there: rows that no model has yet
_FIELDS_MAX: Final = 4096
_BLOCKS_MAX: Final = 4096
_MODELS_MAX: Final = 1 << 16
_NAME_BYTES_MAX: Final = 4096
_TRIES_MAX: Final = 100  # while rows get other models' names


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
    layouts = read_layouts(path, header, data)
    names = _read_names(header, data)
    experts = _read_experts(path, header, names, data)
    blocks: list[_Block] = []
    sums: dict[int, _Block] = {}
    for index in range(header.block_count):
        at = header.blocks_offset + index * header.block_bytes
        start = structs.LumenStatsBlock.from_buffer_copy(data.data, at)
        if start.role not in structs.ROLES:
            raise StatsError(f"{path} is damaged: a block has the unknown role {start.role}.")
        layout = layouts[start.role]
        block = _Block(header, start, layout, names, experts, _copy(header, layout, data, at))
        blocks.append(block)
        if start.role in sums:
            sums[start.role].add(block)
        else:
            sums[start.role] = replace(block, words=block.words.copy())
    snapshot = snapshot_of(
        header.pid,
        header.port,
        structs.STATES.get(header.state, f"unknown ({header.state})"),
        header.start_realtime_ns,
        tuple(block.thread() for block in sums.values()),
    )
    return replace(snapshot, threads=_Threads(blocks), is_alive=_is_held(descriptor))


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
    # M2: the magic is read before everything else; pairs with M1, M3 and M7 in c/src/parts/stats.c.
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


def _read_names(header: structs.LumenStatsHeader, data: npt.NDArray[np.uint8]) -> tuple[str, ...]:
    end = header.models_offset + header.model_count * header.model_name_bytes
    return _names(data[header.models_offset : end].tobytes(), header.model_name_bytes)


@lru_cache(maxsize=8)
def _names(raw: bytes, size: int) -> tuple[str, ...]:
    return tuple(
        raw[at : at + size].split(b"\0", 1)[0].decode("utf-8", "replace")
        for at in range(0, len(raw), size or 1)
    )


def _read_experts(
    path: Path,
    header: structs.LumenStatsHeader,
    names: tuple[str, ...],
    data: npt.NDArray[np.uint8],
) -> dict[str, dict[int, str]]:
    """Of each model that has any: which expert each of its counters model_expert_N is of, by N."""
    most = header.experts_max
    at, end = header.experts_offset, header.experts_offset + header.model_count * most * 4
    words = data[at:end].view("<u4").reshape(header.model_count, most)
    found: dict[str, dict[int, str]] = {}
    for model in np.flatnonzero(words.any(axis=1)).tolist():
        row = words[model].tolist()
        if any(word > header.model_count for word in row):
            raise StatsError(f"{path} is damaged: an expert of {names[model]!r} is no model.")
        found[names[model]] = {place: names[word - 1] for place, word in enumerate(row) if word}
    return found


def _copy(
    header: structs.LumenStatsHeader, layout: Layout, data: npt.NDArray[np.uint8], at: int
) -> npt.NDArray[np.uint64]:
    """The words of a block, a row for each model; they are copied, since the file changes."""
    count, stride = header.model_count, header.model_stride // 8
    used = layout.first + ((count - 1) * stride + layout.row if count else 0)
    words = np.zeros(layout.first + count * stride, np.uint64)
    words[:used] = data[at : at + used * 8].view("<u8")
    return words


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A thread's words, or the sums of several threads."""

    header: structs.LumenStatsHeader
    start: structs.LumenStatsBlock
    layout: Layout
    names: tuple[str, ...]
    experts: dict[str, dict[int, str]]
    words: npt.NDArray[np.uint64]

    def add(self, other: _Block) -> None:
        """Of a model's gauges the largest counts, everything else adds up."""
        columns = self.layout.model_gauges[1]
        gauges = np.maximum(self._rows()[:, columns], other._rows()[:, columns])
        self.words[:] += other.words
        self._rows()[:, columns] = gauges

    def thread(self) -> ThreadStats:
        """The figures by their names."""
        header, start, layout, words = self.header, self.start, self.layout, self.words
        bits = header.histogram_sub_bits, header.histogram_unit_bits
        return ThreadStats(
            structs.ROLES[start.role],
            start.index,
            start.cpu,
            start.tid,
            start.node,
            _values(layout.counters, words),
            _values(layout.gauges, words),
            {
                one.name: Histogram(words[one.offset : one.offset + one.count], *bits)
                for one in layout.histograms
            },
            self._counters(),
            self._of_models(layout.model_gauges),
            self._histograms(),
        )

    def _rows(self) -> npt.NDArray[np.uint64]:
        return self.words[self.layout.first :].reshape(
            len(self.names), self.header.model_stride // 8
        )

    def _of_models(self, columns: Columns) -> Values:
        keys, at = columns
        rows = self._rows()[:, at].tolist()
        return {
            name: dict(zip(keys, row, strict=True))
            for name, row in zip(self.names, rows, strict=True)
        }

    def _counters(self) -> Values:
        """Those of experts by the experts' names; what is of none is left out."""
        found = self._of_models(self.layout.model_counters)
        if not self.experts or not self.layout.experts[0]:
            return found
        for name, places in self._of_models(self.layout.experts).items():
            for place, expert in self.experts.get(name, {}).items():
                key = EXPERT + expert
                found[name][key] = found[name].get(key, 0) + places.get(str(place), 0)
        return found

    def _histograms(self) -> Histograms:
        header = self.header
        bits = header.model_histogram_sub_bits, header.model_histogram_unit_bits
        rows = self._rows()
        return {
            name: {
                stage: Histogram(row[at + 1 : at + count], *bits, int(row[at]))
                for stage, at, count in self.layout.stages
            }
            for name, row in zip(self.names, rows, strict=True)
        }


class _Threads(Sequence[ThreadStats]):
    """Each thread's figures, by their names once somebody looks: most want the sums alone."""

    def __init__(self, blocks: list[_Block]) -> None:
        self._blocks = blocks
        self._made: tuple[ThreadStats, ...] | None = None

    def _all(self) -> tuple[ThreadStats, ...]:
        if self._made is None:
            self._made = tuple(block.thread() for block in self._blocks)
        return self._made

    @overload
    def __getitem__(self, at: int) -> ThreadStats: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[ThreadStats]: ...
    def __getitem__(self, at: int | slice) -> ThreadStats | Sequence[ThreadStats]:
        return self._all()[at]

    def __len__(self) -> int:
        return len(self._blocks)


def _values(columns: Columns, words: npt.NDArray[np.uint64]) -> dict[str, int]:
    keys, at = columns
    return dict(zip(keys, words[at].tolist(), strict=True))
