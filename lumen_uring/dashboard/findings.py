"""What was found in a file that is not as it should be, and what became of it.

Made by trace.py and runs.py, shown above the charts by pages.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LINES_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: where it is, what was expected, what was found, and what is done about it."""

    where: str
    expected: str
    found: str
    done: str

    def __str__(self) -> str:
        """The finding as a sentence."""
        return f"{self.where}: expected {self.expected}, found {self.found}; {self.done}."


def lines(numbers: list[int]) -> str:
    """Names lines of a file, all or the first ones.

    Args:
        numbers: from 1, ascending, at least one.

    >>> lines([7])
    'line 7'
    >>> lines([7, 9, 11, 40, 41])
    'lines 7, 9, 11 and 2 more'
    """
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    named = [str(number) for number in numbers[:_LINES_NAMED]]
    if len(numbers) > _LINES_NAMED:
        return f"lines {', '.join(named)} and {len(numbers) - _LINES_NAMED} more"
    return f"lines {', '.join(named[:-1])} and {named[-1]}"


def quoted(text: str, most: int = 60) -> str:
    """A piece of a file in a sentence: one line, printable, not too long.

    Args:
        text: as it stands in the file.
        most: characters that are shown.
    """
    shown = repr(text[:most])
    return shown if len(text) <= most else f"{shown}..."
