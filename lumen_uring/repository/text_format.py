"""Reads protobuf's text format, as config.pbtxt is written, into a tree with lines.

Called by model_config.py. It knows no schema: model_config.py says which fields there are. What it
takes: `key: value`, `key { ... }` with or without a colon, `< ... >`, lists, repeated keys,
comments, commas and semicolons between fields, strings in either quote, and strings in a row.

Source: protobuf.dev/reference/protobuf/textformat-spec
"""

from __future__ import annotations

import re
from typing import Final

from lumen_uring.repository.tree import Node, Value, Word

DEPTH_MAX: Final = 32
_NUMBER_MAX: Final = 40  # characters
_TOKEN: Final = re.compile(
    r"""(?P<space>[\s\ufeff]+|\#[^\n]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[fF]?)
          (?![A-Za-z0-9_.]))
      | (?P<word>-?[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>[{}<>\[\]:,;])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f"}
_CLOSING: Final = {"{": "}", "<": ">"}
_WORDS: Final = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}
_FLOATS: Final = ("inf", "-inf", "infinity", "-infinity", "nan")


class TextFormatError(ValueError):
    """The text has not the form; the message begins with the line."""


def parse(text: str, file: str) -> Node:
    """Reads a whole file.

    Args:
        text: of the file.
        file: what messages call it.

    Returns:
        Its fields.

    Raises:
        TextFormatError: it is no such text.

    >>> parse('input [{name: "x" dims: [-1, 3]}]', "f").items["input"][0][1].items["dims"]
    [(1, -1), (1, 3)]
    """
    return _Parser(text, file).file()


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._tokens: list[tuple[int, str, str]] = []
        self._at = 0
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                rest = text[at:].splitlines()[0][:20]
                raise TextFormatError(f"{file}:{line}: expected a field, found {rest!r}")
            kind = match.lastgroup or ""
            if kind != "space":
                self._tokens.append((line, kind, match[0]))
            line += match[0].count("\n")
            at = match.end()
        self._tokens.append((line, "end", "the end of the file"))

    def file(self) -> Node:
        node = Node(self._file, "", 0)
        self._fields(node, "the end of the file", 0)
        return node

    def _peek(self) -> str:
        _line, kind, text = self._tokens[self._at]
        return "" if kind == "text" else text

    def _take(self) -> tuple[int, str, str]:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _fail(self, expected: str) -> TextFormatError:
        line, kind, text = self._tokens[self._at]
        found = text if kind == "end" else repr(text[:40])
        return TextFormatError(f"{self._file}:{line}: expected {expected}, found {found}")

    def _fields(self, node: Node, closing: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise self._fail(f"at most {DEPTH_MAX} mappings in each other")
        while self._peek() != closing:
            line, kind, key = self._tokens[self._at]
            if kind != "word" or key.startswith("-"):
                raise self._fail(f"a field's name or {closing!r}" if depth else "a field's name")
            self._take()
            dotted = f"{node.path}.{key}" if node.path else key
            has_colon = self._peek() == ":"
            if has_colon:
                self._take()
            elif self._peek() not in (*_CLOSING, "["):
                raise self._fail(f"':' or '{{' after {key!r}")
            if self._peek() == "[":
                self._take()
                node.lists.add(key)
                node.items.setdefault(key, [])
                while self._peek() != "]":
                    node.put(key, self._tokens[self._at][0], self._value(dotted, depth))
                    if self._peek() == ",":
                        self._take()
                    elif self._peek() != "]":
                        raise self._fail("',' or ']'")
                self._take()
            else:
                node.put(key, line, self._value(dotted, depth))
            if self._peek() in (",", ";"):
                self._take()
        if depth:
            self._take()

    def _value(self, path: str, depth: int) -> Value:
        line, kind, text = self._tokens[self._at]
        if kind == "text":
            raw = b""
            while self._tokens[self._at][1] == "text":
                raw += _unescape(self._take()[2][1:-1])
            return raw.decode("utf-8", "replace")
        if text in _CLOSING and kind == "sign":
            self._take()
            node = Node(self._file, path, line)
            self._fields(node, _CLOSING[text], depth + 1)
            return node
        if kind == "number":
            if len(text) > _NUMBER_MAX:
                raise self._fail("a shorter number")
            self._take()
            return _number(text)
        if kind == "word":
            self._take()
            if text.lower() in _FLOATS:
                return float(text)
            return _WORDS.get(text, Word(text))
        raise self._fail("a value")


def _number(text: str) -> int | float:
    digits = text.lstrip("+-")
    sign = -1 if text.startswith("-") else 1
    if digits[:2] in ("0x", "0X"):
        return sign * int(digits, 16)
    if digits.isdecimal():
        is_octal = len(digits) > 1 and digits[0] == "0" and not set(digits) & {"8", "9"}
        return sign * int(digits, 8 if is_octal else 10)
    return sign * float(digits.rstrip("fF"))


def _unescape(text: str) -> bytes:
    def character(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, other = match.groups()
        if octal:
            return bytes([int(octal, 8) & 0xFF])
        return bytes([int(hexadecimal, 16)]) if hexadecimal else _ESCAPES.get(other, other)

    return _ESCAPE.sub(character, text.encode())
