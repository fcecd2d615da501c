"""The wheel: what is in it, what it asks of a system and of pip, one version everywhere.

The wheel here holds the checkout's own library, so that no other compiler is needed; `make wheel`
builds the one for other systems and refuses a library that does not pass `problems`.
"""

from __future__ import annotations

import ast
import email
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import wheel as wheel_tool
import wheel_parts

import lumen_uring
from lumen_uring.errors import ConfigError, LumenError

ROOT = Path(__file__).resolve().parents[1]

RELEASE = ROOT / "c" / "build" / "release" / wheel_tool.LIBRARY
# Packages whose name for pip differs from their name to import.
IMPORTED_AS = {
    "pillow": "PIL",
    "pyyaml": "yaml",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
}
A_DATE = 1_700_000_000


@pytest.fixture(scope="module")
def pack(
    c_library: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], tuple[Path, Path]]:
    """Packs the release library as `make wheel` packs its own: (wheel, sdist)."""

    def packed() -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("pack")
        licences = folder / "licenses"
        licences.mkdir()
        for part in wheel_parts.PARTS:
            (licences / f"{part.name}.txt").write_text(part.licence)
        parts = wheel_tool.make_parts(RELEASE, "x86_64", licences, folder / "parts")
        tag = "manylinux_2_28_x86_64"
        made: tuple[Path, Path] = wheel_tool.assemble(
            parts, tag, folder / "dist", sys.executable, A_DATE
        )
        return made

    return packed


@pytest.fixture(scope="module")
def packed(pack: Callable[[], tuple[Path, Path]]) -> tuple[Path, Path]:
    return pack()


@pytest.fixture(scope="module")
def metadata(packed: tuple[Path, Path]) -> email.message.Message:
    with zipfile.ZipFile(packed[0]) as archive:
        name = f"lumen_uring-{wheel_tool.version()}.dist-info/METADATA"
        return email.message_from_bytes(archive.read(name))


def requirements(metadata: email.message.Message) -> dict[str, set[str]]:
    """Extra's name, or "" for what is always installed -> names as they are imported."""
    found: dict[str, set[str]] = {}
    for line in metadata.get_all("Requires-Dist", []):
        name = re.split(r"[^\w.-]", line)[0].lower()
        extra = re.search(r"extra == [\"'](\w+)", line)
        found.setdefault(extra[1] if extra else "", set()).add(IMPORTED_AS.get(name, name))
    return found


def test_holds_the_package_the_library_and_nothing_else(packed: tuple[Path, Path]) -> None:
    package = ROOT / "lumen_uring"
    expected = {str(path.relative_to(ROOT)) for path in package.rglob("*.py")}
    expected |= {"lumen_uring/py.typed", "lumen_uring/default.yaml"}
    expected |= {"lumen_uring/models/digits.onnx", "lumen_uring/models/digits.txt"}
    expected.add("lumen_uring/text/unicode.json")
    expected.add(f"lumen_uring/ring/{wheel_tool.LIBRARY}")
    information = f"lumen_uring-{wheel_tool.version()}.dist-info"
    expected |= {f"{information}/{name}" for name in ("METADATA", "WHEEL", "RECORD")}
    expected |= {f"{information}/{name}" for name in ("entry_points.txt", "top_level.txt")}
    expected |= {f"{information}/licenses/LICENSE", f"{information}/sboms/lumen_uring.cdx.json"}
    expected |= {f"{information}/licenses/{part.name}.txt" for part in wheel_parts.PARTS}
    with zipfile.ZipFile(packed[0]) as archive:
        assert set(archive.namelist()) == expected
        assert archive.read(f"lumen_uring/ring/{wheel_tool.LIBRARY}") == RELEASE.read_bytes()
        recorded = archive.read(f"{information}/RECORD").decode()
        assert all(f"{name}," in recorded for name in expected)
    assert packed[0].name.endswith("-py3-none-manylinux_2_28_x86_64.whl")


def test_the_same_sources_give_the_same_bytes(
    packed: tuple[Path, Path], pack: Callable[[], tuple[Path, Path]]
) -> None:
    before = os.umask(0o077)
    try:
        again, _ = pack()
    finally:
        os.umask(before)
    first, second = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (packed[0], again))
    assert first == second


def test_a_source_archive_has_what_pip_needs_to_build(packed: tuple[Path, Path]) -> None:
    listed = subprocess.run(
        ["tar", "-tzf", str(packed[1])], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    names = {name.partition("/")[2] for name in listed}
    sources = subprocess.run(
        ["find", "c", "(", "-name", "build", "-prune", ")", "-o", "-type", "f", "-print"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {*sources, "setup.py", "pyproject.toml", "config.yaml", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("c/build", "tests", ".venv"))]


def test_pip_installs_what_serving_imports_and_no_more(metadata: email.message.Message) -> None:
    needed = requirements(metadata)
    imported: set[str] = set()
    for path in (ROOT / "lumen_uring").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).partition(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"lumen_uring"}
    # pydantic_core is pydantic's own, starlette Ray Serve's; C loads ONNX Runtime's library.
    said = {name for extra in ("", "dashboard", "plot", "ray", "traces") for name in needed[extra]}
    assert foreign - {"pydantic_core", "starlette"} == said - {"onnxruntime"}


def test_the_server_and_the_client_start_without_onnx_and_pillow() -> None:
    code = (
        "import sys\n"
        "for name in ('onnx', 'PIL'): sys.modules[name] = None\n"
        "import lumen_uring.serving.server, lumen_uring.client.client\n"
        "import lumen_uring.client.async_client\n"
        "import lumen_uring.metrics.values, lumen_uring.cli\n"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")


def test_a_tool_names_the_package_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lumen_uring.models import squeezenet
    from lumen_uring.pictures import files as pictures

    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(LumenError, match="pip install pillow"):
        pictures.prepare(None, tmp_path / "a.png")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pip install onnx"):
        squeezenet.cached_path()


def test_the_bill_of_materials_names_what_is_linked(packed: tuple[Path, Path]) -> None:
    information = f"lumen_uring-{wheel_tool.version()}.dist-info"
    with zipfile.ZipFile(packed[0]) as archive:
        bill = json.loads(archive.read(f"{information}/sboms/lumen_uring.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == wheel_tool.version()
    components = {entry["name"]: entry for entry in bill["components"]}
    for part in wheel_parts.PARTS:
        entry = components[part.name]
        assert entry["version"] == part.version
        assert entry["licenses"] == [{"expression": part.licence}]
        assert entry["purl"].startswith(f"pkg:deb/debian/{part.package}@")
        assert part.version in entry["purl"]
    # Each library that the makefile links with, besides glibc's, has its entry.
    linked = re.search(r"^LDLIBS +:= (-lsimdjson.*)$", (ROOT / "c/Makefile").read_text(), re.M)
    assert linked is not None
    named = {word.removeprefix("-l") for word in linked[1].split()}
    called = {"libjpeg-turbo": "jpeg", "zlib": "z"}
    expected = {called.get(part.name, part.name.removeprefix("lib")) for part in wheel_parts.PARTS}
    assert named - {"dl", "pthread", "m", "stdc++"} == expected


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("int lumen_x(void) { return 0; }", [], None),
        ("int lumen_x(void) { return 0; } int other(void) { return 0; }", [], "exports other"),
        ("extern int unused;", [], "exports nothing"),
        ("int lumen_x(void) { return 0; }", ["-Wl,--no-as-needed", "-lstdc++"], "needs libstdc++"),
        ('char lumen_x[3000000] = "x";', [], "has 3"),
        (f'char lumen_x[] = "{ROOT}/c";', [], "holds the path"),
    ],
)
def test_a_library_that_does_not_belong_in_a_wheel_is_refused(
    tmp_path: Path, source: str, options: list[str], said: str | None
) -> None:
    (tmp_path / "x.c").write_text(source)
    compiler = shutil.which("cc") or "gcc"
    made = ["-shared", "-fPIC", "-s", "-o", str(tmp_path / "x.so"), str(tmp_path / "x.c")]
    subprocess.run([compiler, *made, *options], check=True)
    found = wheel_tool.problems(tmp_path / "x.so")
    if said is None:
        assert found == []
    else:
        assert len(found) == 1
        assert said in found[0]


def test_a_library_for_a_newer_glibc_is_refused(
    c_library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    major, minor = wheel_tool.read_elf(RELEASE)["glibc"]
    assert major == 2
    assert minor >= 17
    monkeypatch.setattr(wheel_tool, "GLIBC", (2, minor - 1))
    assert any(f"needs glibc 2.{minor}" in said for said in wheel_tool.problems(RELEASE))
    monkeypatch.setattr(wheel_tool, "GLIBC", (2, minor))
    assert not any("needs glibc" in said for said in wheel_tool.problems(RELEASE))


def test_one_version_everywhere(c_library: None, metadata: email.message.Message) -> None:
    from lumen_uring.ring import library

    version = wheel_tool.version()
    said = {
        "package": lumen_uring.__version__,
        "library": library.load().lumen_version().decode(),
        "wheel": metadata["Version"],
    }
    changes = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes is not None
    said["CHANGELOG.md"] = changes[1]
    protocol = (ROOT / "docs" / "PROTOCOL.md").read_text()
    said["PROTOCOL.md"] = ", ".join(re.findall(r'"name": "lumen", "version": "([^"]+)"', protocol))
    assert said == dict.fromkeys(said, version)
