"""Which version of a model answers requests that name none, in the C library's words.

Used by engine.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_char_p, c_uint32

from lumen_uring.ring.handle import Handle
from lumen_uring.settings.traffic import VERSIONS_MAX, TrafficConfig

_Numbers = c_uint32 * VERSIONS_MAX


class LumenTraffic(ctypes.Structure):
    """lumen_traffic: the versions of one model."""

    _fields_ = [
        ("name", c_char_p),
        ("count", c_uint32),
        ("sticky", c_uint32),
        ("versions", _Numbers),
        ("weights", _Numbers),
        ("shadow", c_uint32),
        ("shadow_percent", c_uint32),
    ]


class Traffic(Handle):
    """Which versions of an engine's models answer."""

    def set_traffic(self, traffic: Mapping[str, TrafficConfig]) -> None:
        """Puts weights of versions in force, at any time.

        Args:
            traffic: by the model's name.

        Raises:
            EngineError: there is no memory.

        Source:
            lumen_set_traffic
        """
        rows = (LumenTraffic * len(traffic))(
            *(
                LumenTraffic(
                    name.encode(),
                    len(one.versions),
                    one.sticky,
                    _Numbers(*one.versions.keys()),
                    _Numbers(*one.versions.values()),
                    one.shadow or 0,
                    one.shadow_percent,
                )
                for name, one in traffic.items()
            )
        )
        self._check(self._library.lumen_set_traffic(self._open_handle(), rows, len(rows)))
