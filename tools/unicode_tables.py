"""Writes lumen_uring/text/unicode.json: what the wheel `tokenizers` does with each code point.

Run after the wheel's version changes. No library of Unicode has these tables: the wheel holds
several versions of Unicode side by side, and models are served with them everywhere. Every code
point is asked of the wheel itself.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import tokenizers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

VERSION: Final = "0.23.3"
OUT: Final = Path(__file__).resolve().parents[1] / "lumen_uring" / "text" / "unicode.json"
_HANGUL: Final = range(0xAC00, 0xD7A4)  # taken apart by rule
_HIGH, _LOW = "\u0345", "\u0334"  # of the classes 240 and 1
_ACUTE: Final = "\u0301"  # two bytes; joins any cluster
_REGEX: Final = ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S")
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
        **_normal_forms(),
        **_classes_of_regexes(),
        **_clusters(),
    }


def _normal_forms() -> dict[str, object]:
    """What decomposes, what composes, the combining classes, and what some normalizers drop."""
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    nfc, accents = normalizers.NFC().normalize_str, normalizers.StripAccents().normalize_str
    nmt = normalizers.Nmt().normalize_str
    points = [point for point in _POINTS if point not in _HANGUL]
    canonical = {point: text for point in points if (text := nfd(chr(point))) != chr(point)}
    wider = {point: text for point in points if (text := nfkd(chr(point))) != nfd(chr(point))}
    pairs = [
        [ord(nfc(text[:-1])), ord(text[-1]), point]
        for point, text in canonical.items()
        if len(text) > 1 and nfc(text) == chr(point) and len(nfc(text[:-1])) == 1
    ]
    references: dict[int, str] = {}
    for point in points:
        number = unicodedata.combining(chr(point))
        if number and nfd(_HIGH + chr(point)) == chr(point) + _HIGH:
            references.setdefault(number, chr(point))
    everything = dict(_class_of(references, nfd, lambda char: char))
    by_number: dict[str, list[int]] = {}
    for point_text, number in everything.items():
        by_number.setdefault(str(number), []).append(int(point_text))
    return {
        "nfd": _map(canonical),
        "nfkd": _map(wider),
        "compositions": pairs,
        "combining": {number: _ranges(sorted(found)) for number, found in by_number.items()},
        "accents": _ranges(point for point in _POINTS if accents(chr(point)) == ""),
        "nmt_dropped": _ranges(point for point in _POINTS if nmt(chr(point)) == ""),
        "nmt_spaces": _ranges(point for point in _POINTS if point != 32 and nmt(chr(point)) == " "),
    }


def _classes_of_regexes() -> dict[str, object]:
    """The classes of regular expressions, which know a newer Unicode than the normalizers."""
    named = {name: rf"\p{{{name}}}" for name in _REGEX} | {"s": r"\s", "w": r"\w"}
    splits = {
        name: pre_tokenizers.Split(Regex(text), "removed", invert=True)
        for name, text in named.items()
    }
    found = {f"regex_{name}": _ranges(_matched(split)) for name, split in splits.items()}
    digits = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str
    whole = Tokenizer(models.WordLevel({"~": 0, "?": 1}, unk_token="?"))
    whole.add_tokens([tokenizers.AddedToken("~", single_word=True, normalized=False)])
    found["digits"] = _ranges(p for p in _POINTS if len(digits(f"a{chr(p)}a")) == 3)
    # A token of single words is none beside a word's character.
    found["word"] = _ranges(p for p in _POINTS if 0 not in whole.encode(f"{chr(p)}~").ids)
    return found


def _matched(split: pre_tokenizers.Split) -> Iterator[int]:
    """The code points that an expression of one class matches."""
    for first in range(0, len(_POINTS), 1 << 12):
        points = _POINTS[first : first + (1 << 12)]
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, points))):
            yield from points[begin:end]


def _clusters() -> dict[str, object]:
    """Classes of grapheme clusters, as far as a Precompiled normalizer shows them.

    It looks up clusters below 6 bytes as a whole, and longer ones char by char. Its map here turns
    whatever it looks up into an x, so that these can be counted.
    """
    units = [0] * 1024
    units[0] = 256 << 10
    for byte in range(1, 256):
        units[256 + byte] = ((256 + byte) ^ 512) << 10 | 1 << 8 | byte
    units[512] = 1 << 31
    trie = struct.pack("<I1024I", 4096, *units)
    precompiled = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(trie + b"x\0")}
    precompiled["precompiled_charsmap"] = precompiled["precompiled_charsmap"].decode()
    whole = json.loads(Tokenizer(models.WordLevel({"?": 0}, unk_token="?")).to_str())
    normalizer = Tokenizer.from_str(json.dumps(whole | {"normalizer": precompiled})).normalizer

    def parts(text: str) -> int:
        return len(normalizer.normalize_str(text))

    ka, virama, zwj = "\u0915", "\u094d", "\u200d"
    tests: dict[str, Callable[[str], bool]] = {
        "control": lambda c: parts(c + _ACUTE + _ACUTE) == 2,
        "extends": lambda c: parts(f"a{c}") == 1,
        "spacing": lambda c: (
            parts(f"a{c}") == 1 and parts(f"\U0001f600{c}{zwj}\u2122{_ACUTE}") != 5
        ),
        "prepends": lambda c: parts(f"{c}a") == 1,
        "pictures": lambda c: parts(f"{c}{zwj}\u2122{_ACUTE}") == 4,
        "consonants": lambda c: parts(c + virama + ka + _ACUTE) == 4,
        "linkers": lambda c: parts(f"a{c}") == 1 and parts(ka + c + ka + _ACUTE) == 4,
        "between": lambda c: parts(ka + c + virama + ka + _ACUTE) == 5,
    }
    return {
        f"cluster_{name}": _ranges(point for point in _POINTS if test(chr(point)))
        for name, test in tests.items()
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
