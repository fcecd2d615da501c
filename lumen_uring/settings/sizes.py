"""Byte counts as people write them: 8MiB, 64KiB, 2MB.

Called by settings/schema.py and by modules that print a size, on any thread. It never guesses: it
refuses an unknown unit, and a size that is not a whole number of bytes.
"""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final[dict[str, int]] = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_PATTERN: Final = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,9}))? ?([KMG]i?B|B|)")


def parse_size(text: str) -> int:
    """Reads a size such as "8MiB".

    Args:
        text: digits, optionally a fraction, optionally one of B KB MB GB KiB MiB GiB.

    Returns:
        Bytes, at least 0.

    Raises:
        ValueError: the text is no size, or not a whole number of bytes.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    whole, fraction, unit = match.group(1), match.group(2) or "", match.group(3)
    # In integers, so that "0.1MiB" is refused rather than rounded.
    divisor: int = 10 ** len(fraction)
    scaled, rest = divmod(int(whole + fraction) * _UNITS[unit], divisor)
    if rest:
        raise ValueError(f"not a whole number of bytes: {text!r}")
    return scaled


def format_size(size_bytes: int) -> str:
    """Writes a size so that a person can read it and parse_size gives it back exactly.

    Args:
        size_bytes: bytes, at least 0.

    Returns:
        The largest unit that fits evenly, so "8MiB" but "1500B".

    >>> format_size(8 * 2**20), format_size(1500)
    ('8MiB', '1500B')
    """
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _UNITS[unit] == 0:
            return f"{size_bytes // _UNITS[unit]}{unit}"
    return f"{size_bytes}B"
