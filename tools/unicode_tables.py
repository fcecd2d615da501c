"""Writes lumen_uring/text/unicode.json: what the wheel `tokenizers` does with each code point.

Run after the wheel's version changes. No library of Unicode has these tables: the wheel holds
several versions of Unicode side by side, and models are served with them everywhere. Every code
point is asked of the wheel itself.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import tokenizers
from tokenizers import normalizers, pre_tokenizers

VERSION: Final = "0.23.3"
OUT: Final = Path(__file__).resolve().parents[1] / "lumen_uring" / "text" / "unicode.json"
_HANGUL: Final = range(0xAC00, 0xD7A4)  # taken apart by rule
_HIGH, _LOW = "\u0345", "\u0334"  # of the classes 240 and 1
_POINTS: Final = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def tables() -> dict[str, object]:
    """The tables: ranges as pairs of first and last, maps from a code point to code points."""
    off = {"handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    clean = normalizers.BertNormalizer(clean_text=True, **off).normalize_str
    spaced = normalizers.BertNormalizer(clean_text=False, **{**off, "handle_chinese_chars": True})
    stripped = normalizers.BertNormalizer(clean_text=False, **{**off, "strip_accents": True})
    lower = normalizers.Lowercase().normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    pieces = {point: len(split(f"a{chr(point)}a")) for point in _POINTS}
    stripping = {
        point: text
        for point in _POINTS
        if point not in _HANGUL and (text := stripped.normalize_str(chr(point))) != chr(point)
    }
    lowering = {point: text for point in _POINTS if (text := lower(chr(point))) != chr(point)}
    return {
        "tokenizers": tokenizers.__version__,
        "dropped": _ranges(point for point in _POINTS if clean(chr(point)) == ""),
        "spaces": _ranges(point for point in _POINTS if clean(chr(point)) == " "),
        "ideographs": _ranges(
            point for point in _POINTS if spaced.normalize_str(chr(point)) == f" {chr(point)} "
        ),
        "blank": _ranges(point for point in _POINTS if pieces[point] == 2),
        "punctuation": _ranges(point for point in _POINTS if pieces[point] == 3),
        "stripped": _map(stripping),
        "lower": _map(lowering),
        "classes": _classes(stripped.normalize_str),
        "starters": _ranges(_starters(stripping)),
    }


def _ranges(points: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for point in points:
        before = 0xD7FF if point == 0xE000 else point - 1  # between them are no code points
        if found and found[-1][1] == before:
            found[-1][1] = point
        else:
            found.append([point, point])
    return found


def _map(texts: dict[int, str]) -> dict[str, list[int]]:
    return {str(point): [ord(char) for char in text] for point, text in texts.items()}


def _classes(strip: Callable[[str], str]) -> dict[str, int]:
    """The combining class of marks that stay where accents are stripped: they may change places."""
    decompose = normalizers.NFD().normalize_str
    references: dict[int, str] = {}
    for point in _POINTS:
        number = unicodedata.combining(chr(point))
        if number and decompose(_HIGH + chr(point)) == chr(point) + _HIGH:  # the wheel knows it
            references.setdefault(number, chr(point))
    return dict(_class_of(references, decompose, strip))


def _starters(stripping: dict[int, str]) -> Iterator[int]:
    """Marks that go although their class is 0: others do not change places across them."""
    decompose = normalizers.NFD().normalize_str
    for point, text in stripping.items():
        around = f"{_HIGH}{chr(point)}{_LOW}"
        if text == "" and decompose(around) == around:
            yield point


def _class_of(
    references: dict[int, str], decompose: Callable[[str], str], strip: Callable[[str], str]
) -> Iterator[tuple[str, int]]:
    for point in _POINTS:
        char = chr(point)
        if decompose(_HIGH + char) != char + _HIGH or strip(char) != char:
            continue
        before = [
            number
            for number, other in references.items()
            if decompose(other + char) == other + char
        ]
        yield str(point), max(before, default=1)


def main() -> None:
    """Writes the file, or says that the wheel is another one."""
    if tokenizers.__version__ != VERSION:
        sys.exit(f"expected tokenizers {VERSION}, found {tokenizers.__version__}")
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tables().items())
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
