"""Pages of documentation, followed as a reader follows them: block after block, in one folder.

A `console` block's lines that serve start a server, which the blocks behind it ask until another
line serves; `bash` and `python` blocks are run; a `yaml` block becomes `config.yaml`. The pages'
ports and the folders `/models` and `/more` are replaced by a test's own. A `Home` is where `lumen`
and `python` come from: the checkout, or an environment of the wheel and what it requires.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness import ROOT, START_S, STOP_S, backend, environment, eventually

# Lines of `console` blocks that no test runs, and why.
NOT_RUN: Final = {
    "make run": "`make fresh` runs it on a bare Debian",
    "pip install": "`make wheel-test` does it; here the wheel is unpacked",
    "optimum-cli": "it fetches a model; a stand-in of the same names and types is there",
    "hf download": "it fetches a model; a stand-in of the same files is there",
    "lumen quantize": "what it keeps depends on the machine's pace; tests/test_quantize.py runs it",
    "lumen dashboard": "test_e2e_dashboard.py runs it, where Streamlit is installed",
    "lumen iris.onnx --set traces": "test_e2e_traces.py does it, where OpenTelemetry's SDK is",
    "[{": "a reply, as the page shows it",
}
_ENDS: Final = ("inspect", "predict", "stats", "bench", "fit-router", "--check")
_WAIT_S: Final = 120.0


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, its first line there, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    source = (ROOT / page).read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", source, re.MULTILINE | re.DOTALL)
    return [
        Block(page, source.count("\n", 0, match.start()) + 2, match[1], match[2]) for match in found
    ]


@dataclass(frozen=True)
class Home:
    """Where the commands of a page come from."""

    name: str
    python: Path
    bin: Path
    variables: dict[str, str]


def checkout(folder: Path, cache: Path) -> Home:
    """The tests' own interpreter, with `lumen` beside it."""
    folder.mkdir()
    lumen = folder / "lumen"
    lumen.write_text(f'#!/bin/sh\nexec {sys.executable} -m lumen_uring "$@"\n')
    lumen.chmod(0o755)
    variables = {**environment(cache), "PYTHONPATH": str(ROOT)}
    return Home("checkout", Path(sys.executable), folder, variables)


def unpacked(wheel: Path, folder: Path, cache: Path, others: tuple[str, ...]) -> Home:
    """An environment with the wheel, the packages that it requires, and `others` with theirs.

    The packages are links to those of the tests' own environment, so that no network is needed. A
    package that the wheel does not require is missing, as after `pip install` in an empty one.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    site = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(name).decode()
    required = re.findall(r"^Requires-Dist: ([^;\n]*)$", metadata, re.MULTILINE)
    for distribution in _closure([*required, *others]):
        _link(distribution, site)
    lumen = folder / "bin" / "lumen"
    text = "import sys\nfrom lumen_uring.cli import main\nsys.exit(main())\n"
    lumen.write_text(f"#!{folder}/bin/python\n{text}")
    lumen.chmod(0o755)
    variables = {
        key: value for key, value in environment(cache).items() if not key.startswith("PYTHON")
    }
    variables.pop("LUMEN_LIBRARY", None)
    return Home("wheel", folder / "bin" / "python", folder / "bin", variables)


def _closure(names: list[str]) -> list[importlib.metadata.Distribution]:
    """These distributions and all that they require, each once."""
    found: dict[str, importlib.metadata.Distribution] = {}
    left = [(re.split(r"[^\w.-]", name)[0], name) for name in names]
    while left:
        name, whole = left.pop()
        key = name.lower().replace("_", "-")
        extras = re.findall(r"\[([^]]*)\]", whole.partition(";")[0])
        if key in found and not extras:
            continue
        try:
            found[key] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on other systems alone
        for line in found[key].requires or []:
            wanted = re.search(r"extra == [\"']([\w-]+)", line)
            if wanted is None or wanted[1] in ",".join(extras):
                left.append((re.split(r"[^\w.-]", line)[0], line))
    return list(found.values())


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Links what a distribution has on the top of site-packages."""
    tops = {file.parts[0] for file in distribution.files or [] if file.parts[0] != ".."}
    for top in tops - {"__pycache__"}:
        source, target = Path(str(distribution.locate_file(top))), site / top
        if not target.exists():
            target.symlink_to(source)
        elif not target.is_symlink() or target.resolve() != source.resolve():
            _merge(source, target)


def _merge(source: Path, target: Path) -> None:
    """Two distributions share a folder: each entry is linked by itself."""
    if target.is_symlink():
        before = target.resolve()
        target.unlink()
        target.mkdir()
        _merge(before, target)
    for entry in source.iterdir():
        if not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)


@dataclass
class Reader:
    """A person with a page, a folder and a home; the server that the page started last."""

    home: Home
    folder: Path
    port: int
    metrics_port: int
    server: subprocess.Popen[str] | None = None
    replaced: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """A block's text with this reader's ports and folders."""
        ports = {"8000": str(self.port), "8002": str(self.metrics_port)}
        text = re.sub(r"\b(8000|8002)\b", lambda match: ports[match[1]], text)
        for path, mine in self.replaced.items():
            text = re.sub(rf"(?<![\w./]){path}\b", mine, text)
        # The commands whose default is port 8000.
        where = {"bench": f"--url lumen://127.0.0.1:{self.port} --seconds 0.2"}
        return re.sub(
            r"\blumen (stats|top|predict|bench|health)\b",
            lambda match: f"{match[0]} {where.get(match[1], f'--port {self.port}')}",
            text,
        )

    @property
    def variables(self) -> dict[str, str]:
        """For servers too: a setting of the environment counts more than a file's."""
        variables = {**self.home.variables}
        # A sanitizer is for servers; curl hangs with it.
        for sanitizer in ("LD_PRELOAD", "LUMEN_LIBRARY"):
            variables.pop(sanitizer, None)
        path = f"{self.home.bin}:{variables.get('PATH', os.defpath)}"
        return {
            **variables,
            "PATH": path,
            "LUMEN_SERVER__PORT": str(self.port),
            "LUMEN_SERVER__METRICS_PORT": str(self.metrics_port),
            "LUMEN_SERVER__IO_BACKEND": backend(),
            "LUMEN_REPOSITORY__LOAD_GENTLY": "false",
        }

    def follow(self, block: Block) -> Iterator[tuple[str, str]]:
        """Does what a block says. Yields each command of it, and what that printed."""
        text = self.text(block.text)
        if block.language == "yaml":
            (self.folder / "config.yaml").write_text(text)
        elif block.language == "bash":
            yield text, self._run(["sh", "-euc", text], block)
        elif block.language == "python":
            yield text, self._python(text, block)
        elif block.language == "console":
            for line in text.splitlines(keepends=True):
                if any(line.startswith(start) for start in NOT_RUN):
                    continue
                if line.startswith("lumen") and not any(word in line.split() for word in _ENDS):
                    yield line, self._serve(line, block)
                else:
                    yield line, self._run(["sh", "-euc", line], block)

    def _python(self, text: str, block: Block) -> str:
        if ">>> " not in text:
            return self._run([str(self.home.python), "-c", text], block)
        (self.folder / "session.txt").write_text(text)
        code = "import doctest, sys; sys.exit(bool(doctest.testfile('session.txt', False, "
        code += "optionflags=doctest.ELLIPSIS, verbose=True).failed))"
        return self._run([str(self.home.python), "-c", code], block)

    def _run(self, command: list[str], block: Block) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
        )
        assert done.returncode == 0, f"{block}: {command[-1]}\n{done.stdout}{done.stderr}"
        # curl and the clients exit with 0 for an answer that is an error, too.
        assert '{"error"' not in done.stdout, f"{block}: {command[-1]}\n{done.stdout}"
        return done.stdout

    def _serve(self, line: str, block: Block) -> str:
        """Starts the server of a line, once the one before has ended. Returns its banner."""
        self.leave()
        said = self.folder / "server.txt"
        with said.open("w") as output:
            self.server = subprocess.Popen(
                ["sh", "-euc", f"exec {line}"],
                cwd=self.folder,
                env=self.variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        server = self.server

        def started() -> bool:
            assert server.poll() is None, f"{block}: {line}\n{said.read_text()}"
            return "\nTry: " in said.read_text()

        eventually(started, f"{block}: {line}: the banner", START_S, said.read_text)
        return said.read_text()

    def leave(self) -> None:
        """Ends the server, as Ctrl-C does."""
        server, self.server = self.server, None
        if server is not None and server.poll() is None:
            server.send_signal(signal.SIGINT)
            assert server.wait(STOP_S) == 0, (self.folder / "server.txt").read_text()


def copy_checkout_files(folder: Path) -> None:
    """Copies the files that the pages name by their path in a checkout."""
    (folder / "tests" / "data").mkdir(parents=True)
    shutil.copytree(ROOT / "tests/data/digits", folder / "tests/data/digits")
