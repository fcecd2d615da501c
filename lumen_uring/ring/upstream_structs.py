"""ctypes mirrors of lumen_upstreams.h; functions.py has library.py compare them.

Used by ring/upstreams.py alone.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_double, c_uint32


class LumenUpstreamAddress(ctypes.Structure):
    """lumen_upstream_address: where an upstream listens."""

    _fields_ = [
        ("ip", c_char_p),
        ("host", c_char_p),
        ("path", c_char_p),
        ("tls_host", c_char_p),
        ("port", c_uint32),
        ("reserved", c_uint32),
    ]


class LumenUpstreamConfig(ctypes.Structure):
    """lumen_upstream_config: servers elsewhere, and how patient one is with them."""

    _fields_ = [
        ("name", c_char_p),
        ("authorization", c_char_p),
        ("addresses", ctypes.POINTER(LumenUpstreamAddress)),
        ("address_count", c_uint32),
        ("connections", c_uint32),
        ("in_flight", c_uint32),
        ("connect_ms", c_uint32),
        ("first_byte_ms", c_uint32),
        ("silence_ms", c_uint32),
        ("total_ms", c_uint32),
        ("retries", c_uint32),
        ("retry_share", c_double),
        ("token_bytes", c_uint32),
        ("answer_tokens", c_uint32),
        ("asks_usage", c_uint32),
        ("ping_ms", c_uint32),
        ("http2", c_uint32),
        ("hedge_ms", c_uint32),
        ("authorities", c_char_p),
        ("certificate", c_char_p),
        ("private_key", c_char_p),
        ("source", c_char_p),
    ]


class LumenFallback(ctypes.Structure):
    """lumen_fallback: models that may answer in the place of one."""

    _fields_ = [
        ("model", c_char_p),
        ("others", ctypes.POINTER(c_char_p)),
        ("other_count", c_uint32),
        ("reserved", c_uint32),
    ]
