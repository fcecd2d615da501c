"""A mapping that was read from a file, with the line of every value, for messages.

Made by text_format.py and from JSON, read by model_config.py, mlserver.py and ovms.py. A value that
is not asked for is reported by `rest`, so that nothing in a file is ignored in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from lumen_uring.errors import is_scarce

Value: TypeAlias = "Node | str | int | float | bool | Word | None"
_Kind = TypeVar("_Kind")
_SHOWN_MAX: Final = 200  # characters of a path
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Word:
    """A bare word of protobuf's text format: the name of an enum's value."""

    text: str


class Problems:
    """The problems of one file, or of several: one line each.

    Attributes:
        lines: all of them.
        of: those of single models, by the name of the model, or of its folder where that is all
            that is known.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.of: dict[str, list[str]] = {}

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """A problem that is added in this block is one of a single model.

        Args:
            name: of the model.
        """
        before = len(self.lines)
        yield
        owned = self._owned()
        lines = [line for line in self.lines[before:] if line not in owned]
        if lines and name:
            self.of.setdefault(name, []).extend(lines)

    @contextmanager
    def alone(self, name: str, where: str) -> Iterator[None]:
        """The same; an exception that leaves this block is a problem of that model too.

        Args:
            name: of the model; "": the problem is one of no single model.
            where: what messages call its folder or file.

        Raises:
            OSError: the machine lacks descriptors or memory, for now.
        """
        with self.within(name):
            try:
                yield
            except OSError as error:
                if is_scarce(error):
                    raise
                self.add(where, "files that can be read", _unreadable(error))
            except Exception as error:  # others of the repository are served, whatever happened
                found = f"an error of the server's: {type(error).__name__}: {error}"
                self.add(where, "files that can be read", found)

    def general(self) -> list[str]:
        """The problems of no single model."""
        owned = self._owned()
        return [line for line in self.lines if line not in owned]

    def _owned(self) -> set[str]:
        return {line for lines in self.of.values() for line in lines}

    def add(self, where: str, expected: str, found: str) -> None:
        """Adds one.

        Args:
            where: file, line and field.
            expected: what may stand there; a cure may follow.
            found: what does.
        """
        self.lines.append(f"{where}: expected {expected}, found {found}")


def _unreadable(error: OSError) -> str:
    """Why, and of which file; a name too long is cut."""
    why, file = error.strerror or str(error), str(error.filename or "")
    if len(file) > _SHOWN_MAX:
        file = f"{file[:_SHOWN_MAX]}..."
    return f"{file}: {why}" if file else why


@dataclass(slots=True)
class Node:
    """Keys with their values in order; a key that stands several times has several."""

    file: str
    path: str
    line: int
    items: dict[str, list[tuple[int, Value]]] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)  # keys that were written as a list
    read: set[str] = field(default_factory=set)

    def put(self, key: str, line: int, value: Value) -> None:
        """Adds a value of a key."""
        self.items.setdefault(key, []).append((line, value))

    def where(self, key: str = "") -> str:
        """Names the place of a key for a message: file, line and dotted field."""
        values = self.items.get(key)  # an empty list has none
        line = values[0][0] if values else self.line
        dotted = ".".join(part for part in (self.path, key) if part)
        return f"{self.file}{f':{line}' if line else ''} {dotted}".rstrip()

    def has(self, key: str) -> bool:
        """Whether the key is there with a value; JSON's null is none."""
        return any(value is not None for _line, value in self.items.get(key, ()))

    def each(self, key: str) -> Iterator[tuple[int, Value]]:
        """The values of a key, which counts as read."""
        self.read.add(key)
        yield from ((line, value) for line, value in self.items.get(key, ()) if value is not None)

    def nodes(self, key: str, problems: Problems) -> list[Node]:
        """The mappings of a key; other values are reported."""
        found = []
        for _line, value in self.each(key):
            if isinstance(value, Node):
                found.append(value)
            else:
                problems.add(self.where(key), "a mapping", said(value))
        return found

    def node(self, key: str, problems: Problems) -> Node | None:
        """The one mapping of a key."""
        found = self.nodes(key, problems)
        if len(found) > 1:
            problems.add(self.where(key), "it once", f"it {len(found)} times")
        return found[0] if found else None

    def values(self, key: str, kind: type[_Kind], what: str, problems: Problems) -> list[_Kind]:
        """The values of a key that are of a kind; others are reported.

        Args:
            key: in this mapping.
            kind: str, int, float, bool or Word.
            what: expected, in words.
            problems: takes the others.
        """
        found = []
        for _line, value in self.each(key):
            if kind is float and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            if kind is int and not self.line and isinstance(value, str) and _WHOLE.fullmatch(value):
                value = int(value)  # as protobuf writes 64 bits in JSON
            if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
                found.append(value)
            else:
                problems.add(self.where(key), what, said(value))
        return found

    def value(self, key: str, kind: type[_Kind], what: str, problems: Problems) -> _Kind | None:
        """The one value of a key; None where it is not there, or was reported."""
        found = self.values(key, kind, what, problems)
        if len(found) > 1 or key in self.lists:
            problems.add(self.where(key), f"{what}, once", f"a list of {len(found)}")
        return found[0] if found else None

    def word(self, key: str, problems: Problems) -> str:
        """An enum's value: a bare word, in JSON a text; "" where it is not there."""
        found = ""
        for _line, value in self.each(key):
            if isinstance(value, Word):
                found = value.text
            elif isinstance(value, str):
                found = value
            else:
                problems.add(self.where(key), "a word", said(value))
        return found

    def text(self, key: str, problems: Problems) -> str:
        """The text of a key; "" where it is not there."""
        return self.value(key, str, "a text", problems) or ""

    def whole(self, key: str, problems: Problems, least: int, most: int, default: int) -> int:
        """The whole number of a key, between bounds."""
        what = f"a whole number, {least}..{most}"
        value = self.value(key, int, what, problems)
        if value is None:
            return default
        if not least <= value <= most:
            problems.add(self.where(key), what, str(value))
            return default
        return value

    def flag(self, key: str, problems: Problems) -> bool:
        """The boolean of a key; False where it is not there."""
        return bool(self.value(key, bool, "true or false", problems))

    def refuse(self, key: str, why: str, problems: Problems) -> None:
        """Reports a key whose meaning Lumen does not have, where its value asks for something."""
        if any(_asks(value) for _line, value in self.each(key)):
            problems.add(self.where(key), f"nothing: {why}", _shown(self.items[key]))

    def rest(self, problems: Problems, known: str = "") -> None:
        """Reports every key that nobody has read."""
        for key in self.items.keys() - self.read:
            expected = f"one of {known or ', '.join(sorted(self.read)) or 'none'}"
            problems.add(self.where(key), expected, f"the unknown field {key!r}")


_EMPTY: Final[tuple[object, ...]] = (None, "", 0, False)


def _asks(value: Value) -> bool:
    """Whether a value differs from what a field has that is not written."""
    if isinstance(value, Node):
        return any(_asks(inner) for each in value.items.values() for _line, inner in each)
    return value not in _EMPTY


def _shown(values: list[tuple[int, Value]]) -> str:
    return said(values[0][1]) if len(values) == 1 else f"a list of {len(values)}"


def said(value: Value) -> str:
    """A value as a message shows it."""
    if isinstance(value, Node):
        inner = ", ".join(value.items)
        return f"a mapping of {inner}" if inner else "an empty mapping"
    if isinstance(value, Word):
        return value.text
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def from_json(data: dict[str, Any], file: str, path: str = "") -> Node:
    """Makes a tree of an object of JSON; it has no lines.

    Args:
        data: the object.
        file: what messages call the file.
        path: the dotted place of the object in it.
    """
    node = Node(file, path, 0)
    for key, value in data.items():
        dotted = f"{path}.{key}" if path else key
        if isinstance(value, list):
            node.lists.add(key)
            node.items.setdefault(key, [])
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                node.put(key, 0, from_json(each, file, dotted))
            elif isinstance(each, list):
                node.put(key, 0, Word(f"a list of {len(each)}"))
            else:
                node.put(key, 0, each)
    return node
