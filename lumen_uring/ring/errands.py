"""Requests over HTTP that this program answers, not a worker: a base of engine.py.

Called by control.py, which has one thread that asks and others that answer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lumen_uring.ring import structs
from lumen_uring.ring.handle import Handle
from lumen_uring.ring.ranges import u32, u64

_COPIED_BYTES_MAX: Final = 8192  # of the body of a call


@dataclass(frozen=True, slots=True)
class Errand:
    """A request over HTTP that this program answers: kind is one of structs.ERRANDS."""

    id: int
    kind: str
    name: str
    body: bytes | memoryview  # of files: the C library's memory, until the answer


class Errands(Handle):
    """What an engine does with such requests."""

    def open_errands(self, kinds: Iterable[str], upload_bytes: int = 0) -> None:
        """Has requests of some kinds answered by this program; before start only.

        Args:
            kinds: of structs.ERRANDS.
            upload_bytes: that a call which loads a model may have.

        Source:
            lumen_open_errands
        """
        bits = sum(1 << structs.ERRANDS.index(kind) for kind in set(kinds))
        self._check(
            self._library.lumen_open_errands(
                self._open_handle(), bits, u64("upload_bytes", upload_bytes)
            )
        )

    def next_errand(self, timeout_s: float) -> Errand | None:
        """The oldest request that waits; None when none came. One thread alone may ask.

        Args:
            timeout_s: the longest wait; seconds.

        Source:
            lumen_next_errand
        """
        native = structs.LumenErrand()
        result = self._library.lumen_next_errand(
            self._open_handle(), u32("timeout_s", int(timeout_s * 1000)), ctypes.byref(native)
        )
        if result == structs.E_AGAIN:
            return None
        self._check(result)
        kind = structs.ERRANDS[native.kind]
        if native.body_bytes > _COPIED_BYTES_MAX:
            place = ctypes.c_void_p.from_buffer(native, structs.LumenErrand.body.offset).value
            held = (ctypes.c_char * native.body_bytes).from_address(place or 0)
            return Errand(native.id, kind, native.name.decode(), memoryview(held).cast("B"))
        body = native.body or b""
        # ctypes reads up to a NUL, which no JSON holds.
        whole = len(body) == native.body_bytes
        return Errand(native.id, kind, native.name.decode(), body if whole else b"\0")

    def end_errands(self) -> None:
        """Has next_errand wait no more, also one that does; any thread.

        Source:
            lumen_end_errands
        """
        self._check(self._library.lumen_end_errands(self._open_handle()))

    def finish_errand(self, errand: Errand, code: int, body: bytes = b"") -> None:
        """Answers a request; any thread, once.

        Args:
            errand: of next_errand.
            code: of HTTP.
            body: JSON, or nothing.

        Source:
            lumen_finish_errand
        """
        self._check(
            self._library.lumen_finish_errand(
                self._open_handle(), errand.id, u32("code", code), body, u32("body", len(body))
            )
        )
