"""Where the words of a thread's block are in the statistics file, as its table of fields says.

Called by stats.py; readers look at the same few servers again and again, so the last tables are
kept, read. Nothing here looks at a figure.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import StatsError
from lumen_uring.ring import stats_structs as structs

_OF_MODEL: Final = "model_"
_OF_EXPERT: Final = "expert_"
_OF_MODELS: Final = (
    structs.FIELD_MODEL_HISTOGRAM,
    structs.FIELD_MODEL_COUNTER,
    structs.FIELD_MODEL_GAUGE,
)
Columns = tuple[tuple[str, ...], list[int]]  # names, and where each word is


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: int
    offset: int
    count: int
    role: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a block of one kind of thread has what, in words from its start.

    Of the models' words: in words from the start of a row; the first row is at `first`.
    """

    counters: Columns
    gauges: Columns
    histograms: tuple[Field, ...]
    first: int
    row: int  # words of a row that are somebody's
    model_counters: Columns
    experts: Columns  # by the number of the expert
    model_gauges: Columns
    stages: tuple[tuple[str, int, int], ...]  # of histograms: name, first word, words


def read_layouts(
    path: Path, header: structs.LumenStatsHeader, data: npt.NDArray[np.uint8]
) -> dict[int, Layout]:
    """Reads the table of fields, which says where the words of a block are.

    Args:
        path: for messages.
        header: of the file, checked against its size.
        data: the file.

    Returns:
        Of each role.

    Raises:
        StatsError: a field lies outside its block, or among others.
    """
    end = header.fields_offset + header.field_count * ctypes.sizeof(structs.LumenStatsField)
    bounds = _Bounds(
        header.histogram_buckets,
        1 + header.model_histogram_buckets,
        header.model_count,
        header.model_stride,
        header.block_bytes,
    )
    return _layouts(path, data[header.fields_offset : end].tobytes(), bounds)


class _Bounds(NamedTuple):
    """What the header says of every field."""

    buckets: int
    model_words: int  # of a model's histogram
    model_count: int
    model_stride: int
    block_bytes: int


@lru_cache(maxsize=8)
def _layouts(path: Path, table: bytes, bounds: _Bounds) -> dict[int, Layout]:
    size = ctypes.sizeof(structs.LumenStatsField)
    fields = [_read_field(path, table, at, bounds) for at in range(0, len(table), size)]
    return {
        role: _layout(
            path, [one for one in fields if one.role in (role, structs.ROLE_BOTH)], bounds
        )
        for role in structs.ROLES
    }


def _read_field(path: Path, table: bytes, at: int, bounds: _Bounds) -> Field:
    entry = structs.LumenStatsField.from_buffer_copy(table, at)
    name = entry.name.decode("ascii", "replace")
    end = entry.offset + entry.count * 8
    if entry.kind == structs.FIELD_HISTOGRAM:
        fits = entry.count == bounds.buckets
    elif entry.kind == structs.FIELD_MODEL_HISTOGRAM:
        fits = entry.count == bounds.model_words
    else:
        fits = entry.count == 1
    if entry.kind in _OF_MODELS:
        fits = fits and entry.count * 8 <= bounds.model_stride
        end += max(bounds.model_count - 1, 0) * bounds.model_stride
    inside = entry.offset % 8 == 0 and end <= bounds.block_bytes
    if not inside or not fits:
        raise StatsError(f"{path} is damaged: its field {name!r} lies outside its block.")
    return Field(name, entry.kind, entry.offset // 8, entry.count, entry.role)


def _layout(path: Path, fields: list[Field], bounds: _Bounds) -> Layout:
    of_models = [one for one in fields if one.kind in _OF_MODELS]
    others = [one for one in fields if one.kind not in _OF_MODELS]
    ends = max((one.offset + one.count for one in others), default=0)
    first = min((one.offset for one in of_models), default=ends)
    row = max((one.offset + one.count for one in of_models), default=first) - first
    if row * 8 > bounds.model_stride and of_models:
        raise StatsError(f"{path} is damaged: the words of a model lie in two rows.")
    if ends > first:
        raise StatsError(f"{path} is damaged: words of a block lie among those of its models.")

    def pick(kind: int, prefix: str = "", without: str = "?") -> Columns:
        found = [
            (one.name.removeprefix(prefix), one.offset - (first if kind in _OF_MODELS else 0))
            for one in fields
            if one.kind == kind and one.name.startswith(prefix) and not one.name.startswith(without)
        ]
        return tuple(name for name, _ in found), [at for _, at in found]

    expert = _OF_MODEL + _OF_EXPERT
    return Layout(
        pick(structs.FIELD_COUNTER),
        pick(structs.FIELD_GAUGE),
        tuple(one for one in others if one.kind == structs.FIELD_HISTOGRAM),
        first,
        row,
        pick(structs.FIELD_MODEL_COUNTER, _OF_MODEL, expert),
        pick(structs.FIELD_MODEL_COUNTER, expert),
        pick(structs.FIELD_MODEL_GAUGE, _OF_MODEL),
        tuple(
            (one.name.removeprefix(_OF_MODEL), one.offset - first, one.count)
            for one in of_models
            if one.kind == structs.FIELD_MODEL_HISTOGRAM
        ),
    )
