"""The order of the package's modules: no circle of imports, and folders that keep their word."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lumen_uring
from lumen_uring.cli import COMMANDS

PACKAGE = Path(lumen_uring.__file__).parent
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 415  # a file should have 400


def imports(package: Path) -> dict[str, set[str]]:
    """For each module of a package, the modules of it that it imports.

    Late imports inside functions and those for the type checker alone count too.
    """
    files = {_name(package, path): path for path in package.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        wanted: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno}: expected an absolute import"
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= inner | ({node.module or ""} if inner - files.keys() else set())
        found[name] = wanted & files.keys() - {name}
    return found


def _name(package: Path, path: Path) -> str:
    steps = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(steps[:-1] if steps[-1] == "__init__" else steps)


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def folders(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The folders that the modules of each folder import; a module at the top is one of its own."""

    def folder(name: str) -> str:
        return ".".join(name.split(".")[:2])

    rooms: dict[str, set[str]] = {}
    for name, wanted in graph.items():
        rooms.setdefault(folder(name), set()).update(map(folder, wanted))
    return {room: wanted - {room} for room, wanted in rooms.items()}


def test_no_circle_of_imports() -> None:
    graph = imports(PACKAGE)
    assert "lumen_uring.protocol.native" in graph["lumen_uring.client.client"]
    # A late import, and one for the type checker.
    assert "lumen_uring.metrics.values" in graph["lumen_uring.metrics.server"]
    assert "lumen_uring.client.client" in graph["lumen_uring"]
    assert circle(graph) == []
    assert circle(folders(graph)) == []


@pytest.mark.parametrize(
    "back", ["import p.a", "def late():\n    from p import a", "if 0:\n    from p.a import x"]
)
def test_a_circle_is_found(tmp_path: Path, back: str) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text("from p.b import y\nx = 1\n")
    (package / "b.py").write_text(f"{back}\n")
    assert set(circle(imports(package))) == {"p.a", "p.b"}


def test_the_folder_of_commands_holds_commands() -> None:
    graph = imports(PACKAGE)
    for path in (PACKAGE / "commands").glob("[!_]*.py"):
        body = ast.parse(path.read_text("utf-8")).body
        functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
        assert {"add", "run"} <= functions, path
        assert path.stem.replace("_", "-") in COMMANDS, path  # cli.py imports it by its name
    for name, wanted in graph.items():
        commands = {one for one in wanted if one.startswith("lumen_uring.commands.")}
        assert not commands, f"{name} imports {commands}"


def test_lengths() -> None:
    """As C's (test_tidy.py). The declaration of a command's options has no logic to follow."""
    long_functions = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text, name = path.read_text("utf-8"), str(path.relative_to(PACKAGE))
        assert text.count("\n") <= FILE_LINES_MAX, name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                is_options = node.name == "add" and path.parent.name == "commands"
                if lines > FUNCTION_LINES_MAX and not is_options:
                    long_functions.append((name, node.name, lines))
    assert long_functions == []
