"""Which requests over HTTP are for this server: one door for both ports, in the C library.

Used by metrics/server.py, on its thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from lumen_uring.ring import library


def refusal(hosts: Sequence[str], host: str | None, origin: str | None) -> int:
    """What a request is refused with before anything else is looked at.

    Args:
        hosts: of the settings, server.hosts.
        host: its header Host; None without one.
        origin: its header Origin; None without one.

    Returns:
        0: nothing; 421: Host names another server; 403: a page of another site sent it.

    Source:
        lumen_http_site
    """
    names = (ctypes.c_char_p * len(hosts))(*(name.encode() for name in hosts))
    found = [None if text is None else text.encode() for text in (host, origin)]
    return int(library.load().lumen_http_site(names, len(hosts), *found))
