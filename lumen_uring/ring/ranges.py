"""Checks numbers before they cross to the C library: ctypes cuts what does not fit.

Called by whoever fills a struct or calls a function of structs.py.
"""

from __future__ import annotations

from lumen_uring.errors import EngineError
from lumen_uring.ring import structs
from lumen_uring.settings.types import U32_MAX


def u32(name: str, value: int) -> int:
    """The value, where a uint32_t holds it; else EngineError with the name."""
    if not 0 <= value <= U32_MAX:
        raise EngineError(f"{name}: expected 0..{U32_MAX}, found {value}.", structs.E_INVALID)
    return value


def u64(name: str, value: int) -> int:
    """The value, where a uint64_t holds it; else EngineError with the name."""
    if not 0 <= value < 2**64:
        raise EngineError(f"{name}: expected 0..2^64-1, found {value}.", structs.E_INVALID)
    return value
