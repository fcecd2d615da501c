"""ctypes mirrors of the statistics file (lumen_stats.h) and of the load generator (lumen_load.h).

As structs.py, whose conventions hold here. Used by stats.py, load.py and library.py.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_uint8,
    c_uint32,
    c_uint64,
)
from typing import Final

STATS_VERSION: Final = 6
STATS_MAGIC: Final = b"LMNSTAT1"
FIELD_COUNTER: Final = 0
FIELD_GAUGE: Final = 1
FIELD_HISTOGRAM: Final = 2
FIELD_MODEL_HISTOGRAM: Final = 3
FIELD_MODEL_COUNTER: Final = 4
FIELD_MODEL_GAUGE: Final = 5
ROLES: Final[dict[int, str]] = {0: "io", 1: "worker"}
ROLE_BOTH: Final = 255
STATES: Final[dict[int, str]] = {0: "starting", 1: "ready", 2: "draining", 3: "stopped"}


class LumenStatsHeader(ctypes.Structure):
    """lumen_stats_header: the start of /dev/shm/lumen-<port>."""

    _fields_ = [
        ("magic", c_char * 8),
        ("version", c_uint32),
        ("field_count", c_uint32),
        ("fields_offset", c_uint64),
        ("blocks_offset", c_uint64),
        ("file_bytes", c_uint64),
        ("block_count", c_uint32),
        ("block_bytes", c_uint32),
        ("histogram_buckets", c_uint32),
        ("histogram_sub_bits", c_uint32),
        ("histogram_unit_bits", c_uint32),
        ("pid", c_uint32),
        ("start_realtime_ns", c_uint64),
        ("state", c_uint32),
        ("port", c_uint32),
        ("models_offset", c_uint64),
        ("model_count", c_uint32),
        ("model_name_bytes", c_uint32),
        ("model_histogram_buckets", c_uint32),
        ("model_histogram_sub_bits", c_uint32),
        ("model_histogram_unit_bits", c_uint32),
        ("model_stride", c_uint32),
        ("experts_offset", c_uint64),
        ("experts_max", c_uint32),
        ("naming", c_uint32),
    ]


class LumenStatsField(ctypes.Structure):
    """lumen_stats_field: one entry of the statistics file's field table."""

    _fields_ = [
        ("name", c_char * 32),
        ("kind", c_uint32),
        ("offset", c_uint32),
        ("count", c_uint32),
        ("role", c_uint32),
    ]


class LumenStatsBlock(ctypes.Structure):
    """lumen_stats_block: the start of one thread's block."""

    _fields_ = [
        ("role", c_uint32),
        ("index", ctypes.c_uint16),
        ("node", ctypes.c_uint16),
        ("cpu", c_int32),
        ("tid", c_int32),
    ]


class LumenLoadConfig(ctypes.Structure):
    """lumen_load_config: what lumen_load sends."""

    _fields_ = [
        ("host", c_char_p),
        ("port", c_uint32),
        ("connections", c_uint32),
        ("model", ctypes.c_uint16),
        ("encoding", c_uint8),
        ("credential", c_uint8),
        ("rows", c_uint32),
        ("timeout_us", c_uint32),
        ("payload_count", c_uint32),
        ("payloads", ctypes.POINTER(ctypes.c_void_p)),
        ("payload_bytes", c_uint64),
        ("requests", c_uint64),
        ("duration_ns", c_uint64),
        ("warmup_ns", c_uint64),
        ("rate", c_double),
        ("seed", c_uint64),
        ("poll_us", c_uint32),
        ("protocol", c_uint32),
        ("cpu", c_int32),
        ("expect_bytes", c_uint32),
        ("expected", ctypes.POINTER(ctypes.c_void_p)),
        ("shapes", c_uint32),
        ("reserved", c_uint32),
        ("tls_host", c_char_p),
    ]


class LumenLoadResult(ctypes.Structure):
    """lumen_load_result: what lumen_load counts, live and at the end."""

    _fields_ = [
        ("requests", c_uint64),
        ("errors", c_uint64),
        ("statuses", c_uint64 * 16),
        ("mismatches", c_uint64),
        ("disconnects", c_uint64),
        ("wall_ns", c_uint64),
        ("cpu_ns", c_uint64),
        ("min_ns", c_uint64),
        ("max_ns", c_uint64),
        ("sum_ns", c_uint64),
        ("late", c_uint64),
        ("unsent", c_uint64),
        ("counting", c_uint64),
        ("buckets", c_uint64 * 1728),
    ]
