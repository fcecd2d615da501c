"""Random texts for tokenizers, most of them of code points that a table treats in its own way."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Final

from lumen_uring.text.facts import facts

# How many texts a test asks. A million by hand: LUMEN_TEXT_STRINGS=1000000 pytest tests/test_text*
STRINGS: Final = int(os.environ.get("LUMEN_TEXT_STRINGS", "900"))
_FORMS: Final = ("nfd", "nfkd", "accents", "nmt_dropped", "nmt_spaces", "digits", "word")
_REGEX: Final = ("L", "N", "P", "M", "S", "Lu", "Ll", "Lt", "Lm", "Lo")
_BETWEEN: Final = [" ", "  ", "    ", "\n", "\r\n", "\t", " \n ", "'s", "'LL", "'\u017f"]
_JOINED: Final = "\u200d\u00a9\u2122\U0001f600\ufe0f\u0915\u094d\u1100\u1161\u11a8\r\n"
_CLUSTERS: Final = (
    "control", "extends", "spacing", "prepends", "pictures", "consonants", "linkers",
)  # fmt: skip


def points_of(*names: str) -> list[int]:
    """Code points at and around the ends of ranges, and those that maps name."""
    found: list[int] = []
    for name in names:
        known = facts()[name]
        ends = (
            [end for pair in known for end in pair] if isinstance(known, list) else map(int, known)
        )
        found += [at + by for at in ends for by in (-1, 0, 1)]
    return [at for at in found if 0 <= at < 0x110000 and not 0xD800 <= at < 0xE000]


MARKS: Final = [*points_of("classes", "starters"), *range(0x300, 0x370)]
ODD: Final = points_of(
    "dropped", "spaces", "ideographs", "blank", "punctuation", "lower", "stripped"
)
FORMS: Final = [
    *points_of(*_FORMS, *(f"regex_{name}" for name in _REGEX)),
    *points_of(*(f"cluster_{name}" for name in _CLUSTERS)),
    *(point for row in facts()["compositions"] for point in row),
]


class Texts:
    """Random texts.

    Args:
        seed: the same texts for the same one.
        words: pieces that some of them hold.
        most: how many parts a text has.
    """

    def __init__(self, seed: int, words: Sequence[str], most: int = 20) -> None:
        self._random = random.Random(seed)
        self._most = most
        pick, below = self._random.choice, self._random.randrange
        self._parts: list[tuple[int, Callable[[], str]]] = [
            (6, lambda: chr(pick(ODD))),
            (4, lambda: chr(pick(MARKS))),
            (4, lambda: chr(below(32, 127))),
            (1, lambda: chr(below(0xAC00, 0xD7A4))),
            (1, lambda: chr(below(0xE000, 0x110000))),
            (2, lambda: chr(below(0x3000))),
            (4, lambda: chr(pick(FORMS))),
            (6, lambda: pick(words)),
            (4, lambda: pick(_BETWEEN)),
            (2, lambda: pick("aeiouAEnNsS") + pick("\u0301\u0308\u0327\u0323\u0304\u3099\u0345")),
            (2, lambda: pick(_JOINED)),
            (1, lambda: str(below(10 ** below(1, 7)))),
        ]  # fmt: skip

    def one(self) -> str:
        """A text, now and then of one char many times."""
        if self._random.random() < 0.1:
            return self._random.choice("az\u4e00É\u0301 !1") * self._random.randrange(15, 60)
        weights, parts = zip(*self._parts, strict=True)
        chosen = self._random.choices(parts, weights, k=self._random.randrange(self._most + 1))
        return "".join(part() for part in chosen)
