"""docs/SECURITY.md says of every hostile input and fault what tests it, docs/PROTOCOL.md of every
rule of HTTP: is all of that there?

A row of its table names functions of Python files, which carry the row's number in their docstring
or in the heading above them, and C files, which carry it in a comment. Both ways: what carries the
number of a row in its docstring is named in that row. A rule of HTTP has its RFC's number and
section in the place of a number.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ATTACKS, FAULTS = 54, 25
NUMBERS = [str(n + 1) for n in range(ATTACKS)] + [f"F{n + 1}" for n in range(FAULTS)]
_ROW = re.compile(r"^\| (F?\d+) \| .+ \| (.+) \|$", re.MULTILINE)
_FILE = re.compile(r"`([a-z0-9_/]+\.(?:py|c|h))`(?:: ((?:`\w+`(?:, )?)+))?")
_DOCSTRING = re.compile(r"Rows? ((?:F?\d+(?:, | and )?)+)[:.]")
_HEADING = re.compile(r"^# ---- (?:rows? ([F\d, and]+): )?")


def table() -> dict[str, str]:
    text = (TESTS.parent / "docs" / "SECURITY.md").read_text()
    found = _ROW.findall(text)
    assert [number for number, _cell in found] == NUMBERS, "a row is missing, twice or misplaced"
    return dict(found)


def numbers(text: str | None) -> set[str]:
    return set(re.findall(r"F?\d+", text or ""))


@cache
def functions(file: str) -> dict[str, tuple[set[str], set[str]]]:
    """Of each function of a file: the rows in its docstring, and in the heading above it."""
    text = (TESTS / file).read_text()
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            said = _DOCSTRING.match(ast.get_docstring(node) or "")
            above = [_HEADING.match(line) for line in text.splitlines()[: node.lineno]]
            headings = [match for match in above if match is not None]
            found[node.name] = (
                numbers(said[1] if said else None),
                numbers(headings[-1][1] if headings else None),
            )
    return found


def comments(file: str) -> set[str]:
    """Numbers in the comments of a C file that may be rows'."""
    return numbers(" ".join(re.findall(r"/\*.*?\*/", (TESTS / file).read_text(), re.DOTALL)))


def named(cell: str) -> list[tuple[str, list[str]]]:
    return [(file, re.findall(r"\w+", names)) for file, names in _FILE.findall(cell)]


@pytest.mark.parametrize("number", NUMBERS)
def test_every_row_has_tests_that_are_there(number: str) -> None:
    cell = table()[number]
    tests = named(cell)
    assert tests or cell.startswith("does not apply: "), "neither a test nor a reason for none"
    for file, names in tests:
        if file.endswith(".py"):
            assert names, f"{file}: which of its functions?"
            for name in names:
                assert name in functions(file), f"{file} has no {name}"
                said, headed = functions(file)[name]
                assert number in said | headed, f"{file}::{name} does not say row {number}"
        else:
            assert number in comments(file), f"{file} does not say row {number}"


def test_every_test_with_a_number_is_in_that_row() -> None:
    cells = {number: dict(named(cell)) for number, cell in table().items()}
    for path in sorted(TESTS.rglob("*.py")):
        file = str(path.relative_to(TESTS))
        for name, (said, _headed) in functions(file).items():
            for number in said:
                assert number in cells, f"{file}::{name}: there is no row {number}"
                assert name in cells[number].get(file, []), f"row {number} lacks {file}::{name}"


# ---- rules of HTTP ----

_RULE = re.compile(r"^\| (RFC 911[02] [\d.]+) .+ \| .+ \| (.+) \|$", re.MULTILINE)
_SAID_RULE = re.compile(r"RFC (911[02])[, ]+(\d+(?:\.\d+)+)")


def rules() -> dict[str, list[tuple[str, list[str]]]]:
    text = (TESTS.parent / "docs" / "PROTOCOL.md").read_text()
    found = _RULE.findall(text)
    assert len({rule for rule, _cell in found}) == len(found), "a rule has two rows"
    assert text.count("| RFC 911") == len(found), "a row is not of the table's form"
    return {rule: named(cell) for rule, cell in found}


def rules_said(text: str | None) -> set[str]:
    return {f"RFC {number} {section}" for number, section in _SAID_RULE.findall(text or "")}


def docstrings(file: str) -> dict[str, set[str]]:
    """Of each function of a file: the rules in its docstring."""
    tree = ast.parse((TESTS / file).read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: rules_said(ast.get_docstring(node)) for node in found}


@pytest.mark.parametrize("rule", rules())
def test_every_rule_of_http_has_tests_that_are_there(rule: str) -> None:
    tests = rules()[rule]
    assert tests, "no test"
    for file, names in tests:
        if file.endswith(".py"):
            assert names, f"{file}: which of its functions?"
            for name in names:
                said = docstrings(file)
                assert name in said, f"{file} has no {name}"
                assert rule in said[name], f"{file}::{name} does not say {rule}"
        else:
            words = " ".join(re.findall(r"/\*.*?\*/", (TESTS / file).read_text(), re.DOTALL))
            assert rule in rules_said(words), f"{file} does not say {rule}"


def test_every_test_with_a_rule_of_http_is_in_its_row() -> None:
    cells = {rule: dict(tests) for rule, tests in rules().items()}
    for path in sorted((TESTS / "e2e").rglob("test_*.py")):
        file = str(path.relative_to(TESTS))
        for name, said in docstrings(file).items():
            for rule in said:
                assert rule in cells, f"{file}::{name}: there is no row {rule}"
                assert name in cells[rule].get(file, []), f"{rule} lacks {file}::{name}"
