"""What the parts of a tokenizer's file share: tables by code point, sequences of chars, masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from lumen_uring.errors import ConfigError
from lumen_uring.text.facts import POINTS, Set, members

# As in c/src/text/file.h.
BLOCK: Final = 256
STAYS, GOES, CHARS, SYLLABLE, SPACED = range(5)
_BECOMING_BITS: Final = 3
_CHARS_MAX: Final = 256
_MASKS_MAX: Final = 32
_TABLES_MAX: Final = 16
_BLOCKS_MAX: Final = 1 << 16

Table = npt.NDArray[np.uint32]


class Pools:
    """Collects them, each once.

    The first two masks are blanks and chars of words, as LM_TEXT_IS_BLANK and LM_TEXT_IS_WORD.
    """

    def __init__(self) -> None:
        self.chars: list[int] = [0]
        self.tables: list[npt.NDArray[np.uint16]] = []
        self.blocks: list[bytes] = []
        self._known_chars: dict[tuple[int, ...], int] = {}
        self._known_blocks: dict[bytes, int] = {}
        self._masks: dict[bytes, int] = {}
        self._sets: list[Set] = []
        self.blank = self.mask(members("blank"))
        self.word = self.mask(members("word"))

    def sequence(self, chars: Iterable[int]) -> int:
        """The place of some chars.

        Raises:
            ConfigError: they are more than 256.
        """
        key = tuple(chars)
        if len(key) > _CHARS_MAX:
            raise ConfigError(f"expected at most {_CHARS_MAX} characters, found {len(key)}")
        if key not in self._known_chars:
            self._known_chars[key] = len(self.chars)
            self.chars += [len(key), *key]
        return self._known_chars[key]

    def table(self, entries: Table) -> int:
        """The number of a table of an entry for each code point."""
        rows = entries.astype("<u4").reshape(-1, BLOCK)
        numbers = np.zeros(len(rows), np.uint16)
        for at, row in enumerate(rows):
            data = row.tobytes()
            known = self._known_blocks.get(data)
            if known is None:
                known = self._known_blocks[data] = len(self.blocks)
                self.blocks.append(data)
            numbers[at] = known
        for number, table in enumerate(self.tables):
            if np.array_equal(table, numbers):
                return number
        self.tables.append(numbers)
        if len(self.tables) > _TABLES_MAX or len(self.blocks) >= _BLOCKS_MAX:
            raise ConfigError(f"expected normalizers of at most {_TABLES_MAX} tables, found more")
        return len(self.tables) - 1

    def becoming(
        self, changes: Mapping[int, Iterable[int]], rules: Iterable[tuple[Set, int]] = ()
    ) -> Table:
        """The entries of a table of what code points become.

        Args:
            changes: the chars of some.
            rules: what becomes of all of a set, where `changes` says nothing else.
        """
        entries = np.zeros(POINTS, np.uint32)
        for points, what in rules:
            entries[points] = what
        for point, chars in changes.items():
            becomes = list(chars)
            if becomes != [point]:
                entries[point] = (
                    CHARS | self.sequence(becomes) << _BECOMING_BITS if becomes else GOES
                )
        return entries

    def blank_entry(self) -> int:
        """The entry of what becomes a blank."""
        return CHARS | self.sequence([32]) << _BECOMING_BITS

    def mask(self, points: Set) -> int:
        """The bit of a set of code points.

        Raises:
            ConfigError: there are too many of them.
        """
        key = np.packbits(points).tobytes()
        if key not in self._masks:
            if len(self._sets) == _MASKS_MAX:
                raise ConfigError(
                    f"expected at most {_MASKS_MAX} classes of characters, found more"
                )
            self._masks[key] = 1 << len(self._sets)
            self._sets.append(points)
        return self._masks[key]

    def classes(self) -> int:
        """The number of the table of all masks; the last thing that is asked."""
        entries = np.zeros(POINTS, np.uint32)
        for bit, points in enumerate(self._sets):
            entries |= points.astype(np.uint32) << np.uint32(bit)
        return self.table(entries)
