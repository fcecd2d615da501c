"""Requests that the C library has recorded one by one, for whoever exports them.

Used by engine.py and serving/traces.py.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_double, c_uint8, c_uint32, c_uint64
from typing import Final

from lumen_uring.ring.handle import Handle

KINDS: Final = ("run", "kept", "upstream", "step")  # enum lumen_span_kind
_AT_ONCE: Final = 512


class LumenSpan(ctypes.Structure):
    """lumen_span: a request that is answered, and what took how long."""

    _fields_ = [
        ("trace", c_uint8 * 16),
        ("span", c_uint64),
        ("parent", c_uint64),
        ("started_ns", c_uint64),
        ("receive_ns", c_uint64),
        ("queue_ns", c_uint64),
        ("preprocess_ns", c_uint64),
        ("infer_ns", c_uint64),
        ("send_ns", c_uint64),
        ("total_ns", c_uint64),
        ("bytes", c_uint32),
        ("rows", c_uint32),
        ("batch_rows", c_uint32),
        ("width", c_uint32),
        ("status", c_uint32),
        ("code", c_uint32),
        ("kind", c_uint32),
        ("is_http", c_uint32),
        ("model", c_char * 256),
        ("dialect", c_char * 32),
    ]


class Traces(Handle):
    """What an engine does about traces."""

    def set_traces(self, share: float, per_second: int) -> None:
        """Has requests recorded, before the start.

        Args:
            share: of those that are part of no trace yet, 0.0 to 1.0.
            per_second: at most, 1 to 1,000,000.

        Raises:
            EngineError: a number is none of these, or there is no memory.

        Source:
            lumen_set_traces
        """
        self._check(
            self._library.lumen_set_traces(self._open_handle(), c_double(share), per_second)
        )

    def take_spans(self) -> tuple[list[LumenSpan], int]:
        """Takes what was recorded since, oldest first.

        Returns:
            Some of it, and how many were lost so far because nobody took them.

        Raises:
            EngineError: nothing is recorded.

        Source:
            lumen_take_spans
        """
        spans = (LumenSpan * _AT_ONCE)()
        count, lost = c_uint32(), c_uint64()
        self._check(
            self._library.lumen_take_spans(
                self._open_handle(), spans, _AT_ONCE, ctypes.byref(count), ctypes.byref(lost)
            )
        )
        return spans[: count.value], lost.value
