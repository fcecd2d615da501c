"""What each code point becomes under a BertNormalizer and its pre-tokenizer, in one look-up.

Used by compile.py. The facts are in unicode.json, which tools/unicode_tables.py asks of the wheel
`tokenizers`; here its steps (clean, ideographs, accents, case, words) are put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lumen_uring.text.facts import HANGUL, POINTS, facts, points_of

# As in c/src/text/file.h.
WORD, ALONE, DROPPED, BLANK, SEQUENCE, MARK = range(6)
_BITS: Final = 3


@dataclass(frozen=True, slots=True)
class Bert:
    """The switches of a BertNormalizer; accents: they are stripped."""

    clean: bool
    ideographs: bool
    accents: bool
    lowercase: bool


@dataclass(frozen=True, slots=True, eq=False)
class Actions:
    """An action for each code point, and the pool of sequences."""

    entries: npt.NDArray[np.uint32]
    pool: bytes


@lru_cache(maxsize=2)
def of_bert(bert: Bert) -> Actions:
    """The actions of a tokenizer with a BertNormalizer and a BertPreTokenizer.

    Args:
        bert: its switches.

    Source:
        c/src/text/file.h
    """
    known = facts()
    kinds = _kinds(bert, known)
    actions = kinds.astype(np.uint32)
    pool = bytearray()
    for point in _changed(bert, known):
        if kinds[point] in (DROPPED, BLANK):
            continue
        chars = _becomes(point, bert, known)
        if not chars:
            # A mark of class 0 that goes: others keep their order across it.
            actions[point] = DROPPED | (point in _starters()) << _BITS
        elif chars != [point]:
            actions[point] = SEQUENCE | len(pool) << _BITS
            pool.append(len(chars))
            for char in chars:
                # An ideograph is a word of its own, whatever it becomes.
                is_word = bert.ideographs and point in _ideographs()
                pool += _item(char, ALONE if is_word else _of_char(char, kinds), bert, known)
    if bert.accents:
        for text, number in known["classes"].items():
            if actions[int(text)] == WORD:
                actions[int(text)] = MARK | number << _BITS
    return Actions(actions, bytes(pool))


@lru_cache(maxsize=1)
def _starters() -> frozenset[int]:
    return frozenset(points_of(facts()["starters"]))


@lru_cache(maxsize=1)
def _ideographs() -> frozenset[int]:
    return frozenset(points_of(facts()["ideographs"]))


def _kinds(bert: Bert, known: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """What each code point is where it stays itself."""
    kinds = np.full(POINTS, WORD, np.uint8)
    marks = [("punctuation", ALONE), ("blank", BLANK)]
    marks += [("ideographs", ALONE)] if bert.ideographs else []
    marks += [("dropped", DROPPED), ("spaces", BLANK)] if bert.clean else []
    for name, kind in marks:
        for first, last in known[name]:
            kinds[first : last + 1] = kind
    return kinds


def _of_char(char: int, kinds: npt.NDArray[np.uint8]) -> int:
    """What a char is that another became: text was cleaned before, and ideographs were set off."""
    return int(kinds[char]) if char not in _ideographs() and kinds[char] != DROPPED else WORD


def _changed(bert: Bert, known: dict[str, Any]) -> list[int]:
    """The code points that may become others."""
    points: set[int] = set()
    if bert.accents:
        points |= {int(text) for text in known["stripped"]} | set(HANGUL)
    if bert.lowercase:
        points |= {int(text) for text in known["lower"]}
    return sorted(points)


def _becomes(point: int, bert: Bert, known: dict[str, Any]) -> list[int]:
    chars = [point]
    if bert.accents:
        chars = _jamo(point) if point in HANGUL else known["stripped"].get(str(point), chars)
    if bert.lowercase:
        chars = [low for char in chars for low in known["lower"].get(str(char), [char])]
    return list(chars)


def _jamo(syllable: int) -> list[int]:
    """A Hangul syllable taken apart, by Unicode's arithmetic (chapter 3.12)."""
    at = syllable - HANGUL.start
    lead, vowel, tail = at // 588, at % 588 // 28, at % 28
    return [0x1100 + lead, 0x1161 + vowel, *([0x11A7 + tail] if tail else [])]


def _item(char: int, kind: int, bert: Bert, known: dict[str, Any]) -> bytes:
    """A char of a sequence: its action, its class, its bytes."""
    number = known["classes"].get(str(char), 0) if bert.accents and kind == WORD else 0
    text = chr(char).encode()
    return bytes([MARK if number else kind, number, len(text)]) + text
