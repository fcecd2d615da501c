"""What the wheel `tokenizers` does with each code point: unicode.json as sets and maps.

tools/unicode_tables.py asks the wheel and writes the file. Used where a tokenizer is laid out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt

POINTS: Final = 0x110000
HANGUL: Final = range(0xAC00, 0xD7A4)

Set = npt.NDArray[np.bool_]  # of all code points


@lru_cache(maxsize=1)
def facts() -> dict[str, Any]:
    """The file as it is: ranges as pairs of first and last, maps by the code point's number."""
    text = resources.files("lumen_uring.text").joinpath("unicode.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def points_of(ranges: Iterable[list[int]]) -> Iterator[int]:
    """The code points of some ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


@lru_cache(maxsize=64)
def members(name: str) -> Set:
    """The code points of one of the file's sets. Not to be changed."""
    return set_of(facts()[name])


def set_of(ranges: Iterable[list[int]]) -> Set:
    """A set of ranges."""
    found = np.zeros(POINTS, np.bool_)
    for first, last in ranges:
        found[first : last + 1] = True
    return found


def changes(name: str) -> dict[int, list[int]]:
    """One of the file's maps: what a code point becomes."""
    return {int(point): list(chars) for point, chars in facts()[name].items()}
