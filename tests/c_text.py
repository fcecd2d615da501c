"""The sources of c/src as text: functions, what they use, comments, atomic operations.

It relies on what clang-format guarantees: a definition ends with a brace at the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
STRING = r'"(?:\\.|[^"\\\n])*"'
LETTER = r"'(?:\\.|[^'\\\n])*'"
NOT_CODE = re.compile(f"{COMMENT.pattern}|{STRING}|{LETTER}", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
ATTRIBUTE = re.compile(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)")
WRAPPER = re.compile(r'^(?:extern "C"|namespace\b[^;{]*) *\{', re.MULTILINE)
NAME = re.compile(r"\b(?:lm|lumen)_\w+")
ENUM = re.compile(r"\benum\b[^;{}()]*\{([^}]*)\}")
ORDERED = re.compile(r"\blm_\w+?_(relaxed|acquire|release|acq_rel|seq_cst)_u\d+\(")


class Function(NamedTuple):
    name: str
    line: int
    lines: int
    is_static: bool


def blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def pieces(code: str) -> Iterator[tuple[int, str]]:
    """The declarations and definitions at the outermost level, each with its place."""
    depth, start = 0, -1
    for found in re.finditer(r"[^\s{};]+|[{};]", code):
        mark = found.group()
        if start < 0:
            if mark in "};":
                continue
            start = found.start()
        depth += (mark == "{") - (mark == "}")
        ends_line = code[found.end() : found.end() + 1] in ("\n", "")
        if depth == 0 and (mark == ";" or (mark == "}" and ends_line)):
            yield start, code[start : found.end()]
            start = -1


@dataclass
class File:
    """A source or a header. `code` is its text with blanks for comments, strings, directives."""

    path: str
    text: str
    functions: list[Function] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)  # lm_ names in bodies, tables and macros

    def __post_init__(self) -> None:
        plain = NOT_CODE.sub(blank, WRAPPER.sub(blank, self.text))
        self.code = DIRECTIVE.sub(blank, plain)
        for directive in DIRECTIVE.findall(plain):
            self.uses.update(NAME.findall(directive))
        for start, piece in pieces(self.code):
            self._take(start, piece)

    def _take(self, start: int, piece: str) -> None:
        head, brace, body = piece.partition("{")
        if not brace:
            return
        self.uses.update(NAME.findall(body))
        plain = ATTRIBUTE.sub("", head).strip()
        called = re.match(r"[^(={]*?([\w:~]+) *\(", plain)
        if called and plain.endswith((")", "const")):
            is_static = "static" in plain.split()[:3]
            where = (self.line(start), piece.count("\n") + 1)
            self.functions.append(Function(called.group(1), *where, is_static))
        elif re.match(r"(template *<[^{]*> *)?(struct|class)\b", plain):
            for at, inner in pieces(body):
                self._take(start + len(head) + 1 + at, inner)

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    @property
    def stem(self) -> str:
        return self.path.rpartition(".")[0]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def is_header(self) -> bool:
        return self.path.endswith(".h")

    @property
    def opening(self) -> str:
        """The comment that the file begins with."""
        found = COMMENT.match(self.text)
        return found.group() if found else ""

    @property
    def includes(self) -> list[str]:
        return re.findall(r'^#include "([^"]+)"', self.text, re.MULTILINE)

    @cached_property
    def comments(self) -> list[tuple[int, int, str]]:
        """Of each comment the first line, the last line, and its words on one line."""
        found = []
        for match in COMMENT.finditer(self.text):
            words = " ".join(re.sub(r"^\s*\*", "", match.group(), flags=re.MULTILINE).split())
            found.append((self.line(match.start()), self.line(match.end()), words))
        return found


class Operation(NamedTuple):
    """An atomic operation; `why` is the comment on its statement or right above it."""

    line: int
    order: str
    statement: str
    why: str


def operations(file: File) -> Iterator[Operation]:
    """Calls of base/atomics.h. A word why one is relaxed stands for the rest of its function."""
    lines = ["", *(line.rstrip() for line in file.code.splitlines())]
    for match in ORDERED.finditer(file.code):
        order = match.group(1)
        line = first = last = file.line(match.start())
        while lines[first - 1] and lines[first - 1][-1] not in ";{}:":
            first -= 1
        while lines[last][-1:] not in (";", "{", "}"):
            last += 1
        begin = max((f.line for f in file.functions if f.line <= line), default=1)
        why = [
            words
            for a, b, words in file.comments
            if (first - 1 <= b and a <= last)
            or (order == "relaxed" and begin - 1 <= b < line and "relaxed" in words)
        ]
        statement = " ".join(" ".join(lines[first : last + 1]).split())
        yield Operation(line, order, statement, " ".join(why))


def enums(file: File) -> Iterator[set[str]]:
    """The values of each enumeration of ours, but for the one that only counts the others."""
    for values in ENUM.findall(file.code):
        names = re.findall(r"(?:^|,)\s*((?:LM|LUMEN)_\w+)", values)
        yield {name for name in names if not name.endswith("_COUNT")}


def switches(file: File) -> Iterator[tuple[int, str, set[str]]]:
    """Of each switch its line, its body, and the names of its cases."""
    for found in re.finditer(r"\bswitch \(", file.code):
        _, body = next(pieces(file.code[found.start() :]))
        yield file.line(found.start()), body, set(re.findall(r"\bcase (\w+):(?!:)", body))


@cache
def read(source: Path) -> dict[str, File]:
    """All files of a folder by their paths."""
    paths = sorted(p for p in source.rglob("*") if p.suffix in (".c", ".cc", ".h"))
    names = [path.relative_to(source).as_posix() for path in paths]
    return {n: File(n, path.read_text()) for n, path in zip(names, paths, strict=True)}


# ---- the graph ----

Graph = dict[str, set[str]]


def calls(files: dict[str, File]) -> Graph:
    """Which file uses a function that which other file defines.

    A header owns its inline functions. To put a function into a table, or to hand it on, is to use
    it. Functions of C++ without lm_ at the front of their names are left out: oip_* alone has some.
    """
    owner = {f.name: file.path for file in files.values() for f in file.functions}
    return {
        path: {owner[name] for name in file.uses if name in owner} - {path}
        for path, file in files.items()
    }


def includes(files: dict[str, File]) -> Graph:
    return {path: {i for i in file.includes if i in files} for path, file in files.items()}


def circles(graph: Graph) -> list[list[str]]:
    """Groups of two and more that reach each other (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(at: str) -> None:
        order[at] = low[at] = len(order)
        stack.append(at)
        for to in sorted(graph[at]):
            if to not in order:
                visit(to)
            if to in stack:
                low[at] = min(low[at], low[to])
        if low[at] == order[at]:
            group = stack[stack.index(at) :]
            del stack[stack.index(at) :]
            if len(group) > 1:
                found.append(sorted(group))

    for at in sorted(graph):
        if at not in order:
            visit(at)
    return found


def arrows_up(graph: Graph) -> list[tuple[str, str]]:
    """Arrows without which there is no circle: what a greedy order leaves pointing up.

    Source: Eades, Lin and Smyth, "A fast and effective heuristic for the feedback arc set problem".
    """
    rest = set(graph)
    top: list[str] = []
    bottom: list[str] = []
    while rest:
        out = {at: len(graph[at] & rest) for at in rest}
        into = {at: sum(at in graph[by] for by in rest) for at in rest}
        ends = sorted(at for at in rest if not out[at])
        begins = sorted(at for at in rest if not into[at])
        if not ends and not begins:
            begins = [max(sorted(rest), key=lambda at: out[at] - into[at])]
        top += begins if not ends else []
        bottom += ends
        rest -= set(ends or begins)
    place = {at: i for i, at in enumerate(top + bottom[::-1])}
    return sorted((at, to) for at in graph for to in graph[at] if place[to] < place[at])
