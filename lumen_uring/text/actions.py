"""What each code point becomes under a BertNormalizer and its pre-tokenizer, in one look-up.

Used by compile.py. The facts are in unicode.json, which tools/unicode_tables.py asks of the wheel
`tokenizers`; here its steps (clean, ideographs, accents, case, words) are put together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt

# As in c/src/text/file.h.
WORD, ALONE, DROPPED, BLANK, SEQUENCE, MARK = range(6)
_BITS: Final = 3
_BLOCK: Final = 256
_POINTS: Final = 0x110000
_HANGUL: Final = range(0xAC00, 0xD7A4)


@dataclass(frozen=True, slots=True)
class Bert:
    """The switches of a BertNormalizer; accents: they are stripped."""

    clean: bool
    ideographs: bool
    accents: bool
    lowercase: bool


@dataclass(frozen=True, slots=True, eq=False)
class Actions:
    """A block of actions for each 256 code points, the blocks, and the pool of sequences."""

    blocks: npt.NDArray[np.uint16]
    actions: npt.NDArray[np.uint32]
    pool: bytes


def of_bert(bert: Bert) -> Actions:
    """The actions of a tokenizer with a BertNormalizer and a BertPreTokenizer.

    Args:
        bert: its switches.

    Source:
        c/src/text/file.h
    """
    facts = _facts()
    kinds = _kinds(bert, facts)
    actions = kinds.astype(np.uint32)
    pool = bytearray()
    for point in _changed(bert, facts):
        if kinds[point] in (DROPPED, BLANK):
            continue
        chars = _becomes(point, bert, facts)
        if not chars:
            # A mark of class 0 that goes: others keep their order across it.
            actions[point] = DROPPED | (point in _starters()) << _BITS
        elif chars != [point]:
            actions[point] = SEQUENCE | len(pool) << _BITS
            pool.append(len(chars))
            for char in chars:
                # An ideograph is a word of its own, whatever it becomes.
                is_word = bert.ideographs and point in _ideographs()
                pool += _item(char, ALONE if is_word else _of_char(char, kinds), bert, facts)
    if bert.accents:
        for text, number in facts["classes"].items():
            if actions[int(text)] == WORD:
                actions[int(text)] = MARK | number << _BITS
    rows: dict[bytes, int] = {}
    blocks = [rows.setdefault(row.tobytes(), len(rows)) for row in actions.reshape(-1, _BLOCK)]
    whole = np.frombuffer(b"".join(rows), np.uint32)
    return Actions(np.array(blocks, np.uint16), whole, bytes(pool))


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    text = resources.files("lumen_uring.text").joinpath("unicode.json").read_text("utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts


@lru_cache(maxsize=1)
def _starters() -> frozenset[int]:
    return frozenset(_points(_facts()["starters"]))


@lru_cache(maxsize=1)
def _ideographs() -> frozenset[int]:
    return frozenset(_points(_facts()["ideographs"]))


def _points(ranges: Iterable[list[int]]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)


def _kinds(bert: Bert, facts: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """What each code point is where it stays itself."""
    kinds = np.full(_POINTS, WORD, np.uint8)
    marks = [("punctuation", ALONE), ("blank", BLANK)]
    marks += [("ideographs", ALONE)] if bert.ideographs else []
    marks += [("dropped", DROPPED), ("spaces", BLANK)] if bert.clean else []
    for name, kind in marks:
        for first, last in facts[name]:
            kinds[first : last + 1] = kind
    return kinds


def _of_char(char: int, kinds: npt.NDArray[np.uint8]) -> int:
    """What a char is that another became: text was cleaned before, and ideographs were set off."""
    return int(kinds[char]) if char not in _ideographs() and kinds[char] != DROPPED else WORD


def _changed(bert: Bert, facts: dict[str, Any]) -> list[int]:
    """The code points that may become others."""
    points: set[int] = set()
    if bert.accents:
        points |= {int(text) for text in facts["stripped"]} | set(_HANGUL)
    if bert.lowercase:
        points |= {int(text) for text in facts["lower"]}
    return sorted(points)


def _becomes(point: int, bert: Bert, facts: dict[str, Any]) -> list[int]:
    chars = [point]
    if bert.accents:
        chars = _jamo(point) if point in _HANGUL else facts["stripped"].get(str(point), chars)
    if bert.lowercase:
        chars = [low for char in chars for low in facts["lower"].get(str(char), [char])]
    return list(chars)


def _jamo(syllable: int) -> list[int]:
    """A Hangul syllable taken apart, by Unicode's arithmetic (chapter 3.12)."""
    at = syllable - _HANGUL.start
    lead, vowel, tail = at // 588, at % 588 // 28, at % 28
    return [0x1100 + lead, 0x1161 + vowel, *([0x11A7 + tail] if tail else [])]


def _item(char: int, kind: int, bert: Bert, facts: dict[str, Any]) -> bytes:
    """A char of a sequence: its action, its class, its bytes."""
    number = facts["classes"].get(str(char), 0) if bert.accents and kind == WORD else 0
    text = chr(char).encode()
    return bytes([MARK if number else kind, number, len(text)]) + text
