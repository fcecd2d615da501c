"""Regular expressions of pre-tokenizers as operations that splits.c matches with.

Alternatives, groups, classes, literals, `?*+{n,m}` behind one character or class, `(?!class)`, `$`,
and `(?i:...)` around literals: what the tokenizers of encoders are made of. All else is refused by
name. The classes are those of the wheel's own expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lumen_uring.errors import ConfigError
from lumen_uring.text.facts import POINTS, Set, facts, members
from lumen_uring.text.pools import Pools

# As in c/src/text/file.h.
_CHARS, _EITHER, _JUMP, _NOT_AHEAD, _END, _DONE = range(6)
_MANY: Final = 0xFFFFFFFF
_OPS_MAX: Final = 256
_DEPTH_MAX: Final = 16
_CONTROLS: Final = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v"}


@dataclass(slots=True)
class Op:
    """One operation; `points` is the class of CHARS and NOT_AHEAD."""

    what: int
    points: Set | None = None
    least: int = 1
    most: int = 1
    other: int = 0  # relative to its own place, until the whole is known


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Operations, the last of which is the end of a match."""

    ops: tuple[Op, ...]

    def rows(self, pools: Pools, first: int) -> list[list[int]]:
        """As the file has them, from the operation `first` on."""
        return [
            [
                op.what,
                0 if op.points is None else pools.mask(op.points),
                op.least,
                op.most,
                first + at + op.other if op.what in (_EITHER, _JUMP) else 0,
            ]
            for at, op in enumerate(self.ops)
        ]

    @property
    def run(self) -> tuple[Set, int] | None:
        """Its class and its least number, if it is one class, any number of times."""
        first = self.ops[0]
        if len(self.ops) != 2 or first.what != _CHARS or first.most != _MANY:
            return None
        assert first.points is not None
        return first.points, first.least

    def crosses(self, blank: Set) -> bool:
        """Whether a match may go on from another char to one of `blank`, or end with the text."""
        return self._crosses(0, False, blank, set())

    def begins_at(self, blank: Set) -> bool:
        """Whether surely each char of `blank` begins a match, or is in one."""
        at = 0
        while True:
            op, behind = self.ops[at], self.ops[at + 1 : at + 2]
            ends = behind and (behind[0].what in (_DONE, _JUMP))
            if op.what == _CHARS and op.least == 1 and ends:
                assert op.points is not None
                if not (blank & ~op.points).any():
                    return True
            if op.what == _EITHER:
                inner = self.ops[at + 1]
                ends = self.ops[at + 2].what == _JUMP
                if inner.what == _CHARS and inner.least == 1 and ends:
                    assert inner.points is not None
                    if not (blank & ~inner.points).any():
                        return True
                at += op.other
                continue
            return False

    def _crosses(self, at: int, other: bool, blank: Set, seen: set[tuple[int, bool]]) -> bool:
        """`other`: the char before may be one that is no blank."""
        if (at, other) in seen:
            return False
        seen.add((at, other))
        op = self.ops[at]
        if op.what == _DONE:
            return False
        if op.what == _EITHER:
            return self._crosses(at + 1, other, blank, seen) or self._crosses(
                at + op.other, other, blank, seen
            )
        if op.what == _JUMP:
            return self._crosses(at + op.other, other, blank, seen)
        if op.what == _END:
            return other
        if op.what == _NOT_AHEAD:
            return other or self._crosses(at + 1, other, blank, seen)
        assert op.points is not None
        has_blank = bool((op.points & blank).any())
        has_others = bool((op.points & ~members("blank")).any())
        if has_blank and (other or (has_others and op.most > 1)):
            return True
        skips = op.least == 0 and self._crosses(at + 1, other, blank, seen)
        return skips or self._crosses(at + 1, has_others, blank, seen)


def of_class(points: Set, *, many: bool = False) -> Pattern:
    """One char of a class, or as many as there are."""
    return Pattern((Op(_CHARS, points, 1, _MANY if many else 1), Op(_DONE)))


def of_text(text: str) -> Pattern:
    """A text as it is."""
    return Pattern((*(Op(_CHARS, one(char)) for char in text), Op(_DONE)))


def either(*patterns: Pattern) -> Pattern:
    """The first of some that matches."""
    return Pattern((*_either([list(pattern.ops[:-1]) for pattern in patterns]), Op(_DONE)))


def of_regex(text: str) -> Pattern:
    """Reads an expression.

    Args:
        text: it.

    Raises:
        ConfigError: it is none, needs what is not implemented, or may match nothing.
    """
    pattern = Pattern((*_Reader(text).read(), Op(_DONE)))
    if len(pattern.ops) > _OPS_MAX:
        raise ConfigError(f"expected an expression of at most {_OPS_MAX} steps, found more: {text}")
    if _may_be_empty(pattern.ops, 0):
        raise ConfigError(f"expected an expression that matches something, found {text}")
    return pattern


def _may_be_empty(ops: tuple[Op, ...], at: int) -> bool:
    op = ops[at]
    if op.what == _DONE:
        return True
    if op.what == _JUMP:
        return _may_be_empty(ops, at + op.other)
    if op.what == _EITHER:
        return _may_be_empty(ops, at + 1) or _may_be_empty(ops, at + op.other)
    return (op.what != _CHARS or op.least == 0) and _may_be_empty(ops, at + 1)


def one(char: str) -> Set:
    """The class of one char."""
    found = np.zeros(POINTS, np.bool_)
    found[ord(char)] = True
    return found


def _either(branches: list[list[Op]]) -> list[Op]:
    """Alternatives one behind the other: each but the last jumps over those behind it."""
    ops = branches[-1]
    for branch in reversed(branches[:-1]):
        ops = [Op(_EITHER, other=len(branch) + 2), *branch, Op(_JUMP, other=len(ops) + 1), *ops]
    return ops


class _Reader:
    """Reads from the left to the right, by descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> list[Op]:
        ops = self._alternatives(0, False)
        if self._at < len(self._text):
            raise self._error("an end")
        return ops

    def _error(self, expected: str) -> ConfigError:
        found = self._text[self._at : self._at + 12] or "the end"
        return ConfigError(
            f"expected {expected} in the expression {self._text}, found {found!r} at {self._at}"
        )

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _alternatives(self, depth: int, folds: bool) -> list[Op]:
        if depth > _DEPTH_MAX:
            raise self._error(f"at most {_DEPTH_MAX} groups within each other")
        branches = [self._sequence(depth, folds)]
        while self._takes("|"):
            branches.append(self._sequence(depth, folds))
        return _either(branches)

    def _sequence(self, depth: int, folds: bool) -> list[Op]:
        ops: list[Op] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            ops += self._item(depth, folds)
        if not ops:
            raise self._error("something that matches")
        return ops

    def _item(self, depth: int, folds: bool) -> list[Op]:
        if self._takes("(?!"):
            points = self._class(folds)
            if not self._takes(")"):
                raise self._error("one class behind (?!")
            return [Op(_NOT_AHEAD, points)]
        if self._takes("$"):
            return [Op(_END)]
        if self._text[self._at] == "(":
            return self._group(depth, folds)
        points = self._class(folds)
        least, most = self._times()
        return [Op(_CHARS, points, least, most)]

    def _group(self, depth: int, folds: bool) -> list[Op]:
        if self._takes("(?i:"):
            folds = True
        elif not self._takes("(?:"):
            if self._text.startswith("(?", self._at):
                raise self._error("(?:, (?i: or (?!")
            self._at += 1
        ops = self._alternatives(depth + 1, folds)
        if not self._takes(")"):
            raise self._error(")")
        if self._takes("?"):
            return [Op(_EITHER, other=len(ops) + 2), *ops, Op(_JUMP, other=1)]
        if self._text[self._at : self._at + 1] in ("*", "+", "{"):
            raise self._error("no repeated group")
        return ops

    def _times(self) -> tuple[int, int]:
        if self._takes("{"):
            end = self._text.find("}", self._at)
            first, comma, last = self._text[self._at : max(end, self._at)].partition(",")
            if not first.isdecimal() or (last and not last.isdecimal()):
                raise self._error("{n}, {n,} or {n,m}")
            self._at = end + 1
            least = int(first)
            most = int(last) if last else _MANY if comma else least
        else:
            least, most = 1, 1
            for mark, bounds in (("?", (0, 1)), ("*", (0, _MANY)), ("+", (1, _MANY))):
                if self._takes(mark):
                    least, most = bounds
                    break
        if self._text[self._at : self._at + 1] in ("?", "+", "*") or not least <= most <= _MANY:
            raise self._error("one number of times")
        return least, most

    def _class(self, folds: bool) -> Set:
        if self._at >= len(self._text):
            raise self._error("a character")
        if self._takes("["):
            return self._bracket()
        char = self._text[self._at]
        if char == "\\":
            return self._escape()
        if char in "*+?{}.^()":
            raise self._error("a character or a class")
        self._at += 1
        return self._folded(char) if folds else one(char)

    def _folded(self, char: str) -> Set:
        """A letter in both cases; U+017F is an s as well."""
        if not char.isascii():
            raise self._error("ASCII within (?i:")
        points = one(char.lower()) | one(char.upper())
        if char in "sS":
            points |= one("\u017f")
        if char in "kK":
            points |= one("\u212a")
        return points

    def _escape(self) -> Set:
        self._at += 1
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char in ("p", "P"):
            end = self._text.find("}", self._at)
            name = self._text[self._at + 1 : max(end, self._at)]
            if self._text[self._at : self._at + 1] != "{" or f"regex_{name}" not in facts():
                raise self._error("a known property")
            self._at = end + 1
            points = members(f"regex_{name}")
            return ~points if char == "P" else points
        if char and char in "sSwW":
            points = members(f"regex_{char.lower()}")
            return ~points if char.isupper() else points
        if char in _CONTROLS:
            return one(_CONTROLS[char])
        if not char or char.isalnum():
            self._at -= 1
            raise self._error("a known escape")
        return one(char)

    def _bracket(self) -> Set:
        is_not = self._takes("^")
        points = np.zeros(POINTS, np.bool_)
        start = self._at
        while self._at == start or not self._takes("]"):
            if self._at >= len(self._text):
                raise self._error("]")
            if self._text.startswith(("[", "&&"), self._at):
                raise self._error("no class within a class")
            first = self._member()
            ends = self._text[self._at + 1 : self._at + 2] in ("]", "")
            if isinstance(first, int) and not ends and self._takes("-"):
                last = self._member()
                if not isinstance(last, int) or last < first:
                    raise self._error("a range")
                points[first : last + 1] = True
            elif isinstance(first, int):
                points[first] = True
            else:
                points |= first
        return ~points if is_not else points

    def _member(self) -> int | Set:
        char = self._text[self._at]
        if char != "\\":
            self._at += 1
            return ord(char)
        points = self._escape()
        found = np.flatnonzero(points)
        return int(found[0]) if len(found) == 1 else points
