"""Builds the wheel that installs where there is no compiler: `make wheel`.

Run on Debian 12, by a person. The C library is compiled by zig against an old glibc, with all that
it needs linked statically (wheel_parts.py); the C tests run on it once. The same commit gives the
same bytes in any folder. Everything it fetches and makes lies below build/wheel and c/build.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
import wheel_parts

ROOT: Final = Path(__file__).resolve().parents[1]
WORK: Final = ROOT / "build" / "wheel"
LIBRARY: Final = "liblumen_uring.so"
# ONNX Runtime's and numpy's own floor: Debian 10, Ubuntu 20.04, RHEL 8 and later.
GLIBC: Final = (2, 28)
# Of the builder's own environment. setuptools writes its version into the wheel.
BUILDER: Final = (f"ziglang=={wheel_parts.ZIG_VERSION}", "setuptools==84.2.1", "auditwheel==6.8.2")
NEEDED: Final = re.compile(r"lib(c|m|dl|pthread)\.so\.\d+|ld-linux[-\w]*\.so\.\d+")
LIBRARY_BYTES_MAX: Final = 2_600_000


def version() -> str:
    """Lumen's version, as pyproject.toml has it."""
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def commit_time() -> int:
    """When the commit was made, in seconds since 1970: the time of everything in the wheel."""
    named = os.environ.get("SOURCE_DATE_EPOCH")
    if named is None:
        asked = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True
        )
        # A source archive has no commit; a zip file's times begin in 1980.
        named = asked.stdout.strip() if asked.returncode == 0 else "315532800"
    return int(named)


def read_elf(library: Path) -> dict[str, Any]:
    """Reads what a shared library asks of a system.

    Args:
        library: for any machine.

    Returns:
        `needed` library names, `glibc` the highest version (major, minor), `exports` names.
    """
    text = subprocess.run(
        ["readelf", "-W", "--dynamic", "--dyn-syms", str(library)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    versions = [(int(a), int(b)) for a, b in re.findall(r"@GLIBC_(\d+)\.(\d+)", text)]
    symbol = re.compile(r"^ *\d+: [0-9a-f]{16} .* (?:GLOBAL|WEAK) +DEFAULT +\d+ (\S+)$", re.M)
    return {
        "needed": re.findall(r"\(NEEDED\).*\[(.+)\]", text),
        "glibc": max(versions, default=(0, 0)),
        "exports": symbol.findall(text),
    }


def problems(library: Path) -> list[str]:
    """Says why a library does not belong in the wheel.

    Args:
        library: as it would be packed.

    Returns:
        A sentence each; none where it does.
    """
    found = read_elf(library)
    size = library.stat().st_size
    foreign = [name for name in found["needed"] if not NEEDED.fullmatch(name)]
    exported = [name for name in found["exports"] if not name.startswith("lumen_")]
    said = []
    if foreign:
        said.append(f"needs {', '.join(foreign)}: expected glibc's libraries alone")
    if found["glibc"] > GLIBC:
        said.append(
            f"needs glibc {found['glibc'][0]}.{found['glibc'][1]}: expected at most "
            f"{GLIBC[0]}.{GLIBC[1]}"
        )
    if exported or not found["exports"]:
        said.append(f"exports {', '.join(exported[:5]) or 'nothing'}: expected lumen_* alone")
    if str(ROOT).encode() in library.read_bytes():
        said.append(f"holds the path {ROOT}: the same sources elsewhere would give other bytes")
    if size > LIBRARY_BYTES_MAX:
        said.append(f"has {size} bytes: expected at most {LIBRARY_BYTES_MAX}")
    return said


def assemble(
    parts: Path, platform_tag: str, output: Path, python: str, source_date: int
) -> tuple[Path, Path]:
    """Packs the checkout's sources into an sdist, and that with a built library into a wheel.

    Args:
        parts: a folder with the library and `dist-info/`.
        platform_tag: the last part of the wheel's name.
        output: where both are put.
        python: an interpreter that has setuptools 77 or later.
        source_date: of every file, seconds since 1970.

    Returns:
        The wheel and the sdist.
    """
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(source_date)}
    environment["LUMEN_WHEEL_PARTS"] = str(parts.resolve())
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        # setuptools leaves files beside the sources, which the next build would pack again.
        fresh = Path(temporary, "source")
        shutil.copytree(ROOT, fresh, ignore=_left_out)
        sdist = _backend("build_sdist", fresh, output, python, environment)
        shutil.unpack_archive(sdist, temporary)
        source = Path(temporary, sdist.name.removesuffix(".tar.gz"))
        _set_modes(source)
        (source / "setup.cfg").write_text(f"[bdist_wheel]\nplat_name = {platform_tag}\n")
        wheel = _backend("build_wheel", source, output, python, environment)
    return wheel, sdist


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Names that are no sources: shutil.copytree's `ignore`."""
    never = {".git", ".venv", "build", "dist", "__pycache__"}
    return {name for name in names if name in never or name.endswith((".egg-info", "_cache"))}


def _backend(
    verb: str, source: Path, output: Path, python: str, environment: dict[str, str]
) -> Path:
    code = (
        "import os, sys; os.umask(0o22); from setuptools import build_meta; "
        f"print(build_meta.{verb}(sys.argv[1]))"
    )
    made = subprocess.run(
        [python, "-c", code, str(output.resolve())],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise SystemExit(f"{verb} failed:\n{made.stdout}{made.stderr}")
    return output / made.stdout.split()[-1]


def make_parts(library: Path, machine: str, licences: Path | None, target: Path) -> Path:
    """Lays out what setup.py adds to the sources.

    Args:
        library: the C library.
        machine: a key of wheel_parts.MACHINES.
        licences: a folder with the licence texts of what is linked statically.
        target: a folder to make.

    Returns:
        The folder.
    """
    shutil.rmtree(target, ignore_errors=True)
    inside = target / "dist-info"
    (inside / "sboms").mkdir(parents=True)
    (inside / "licenses").mkdir()
    shutil.copy(library, target / LIBRARY)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(commit_time()))
    bill = wheel_parts.bill_of_materials(version(), machine, when)
    (inside / "sboms" / "lumen_uring.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    for text in sorted(licences.iterdir()) if licences else ():
        shutil.copy(text, inside / "licenses" / text.name)
    _set_modes(target)
    (target / LIBRARY).chmod(0o755)
    return target


def _set_modes(folder: Path) -> None:
    """The same for every umask: a wheel holds its files' modes."""
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def builder() -> str:
    """Makes the environment with zig, once.

    Returns:
        Its interpreter.
    """
    venv = WORK / "venv"
    stamp = venv / "builder.txt"
    if not stamp.is_file() or stamp.read_text() != "\n".join(BUILDER):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        pip = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*pip, "--disable-pip-version-check", *BUILDER], check=True)
        stamp.write_text("\n".join(BUILDER))
    return str(venv / "bin/python")


def compile_library(machine: str, python: str, parts: Path) -> list[str]:
    """Compiles the C library.

    Args:
        machine: a key of wheel_parts.MACHINES.
        python: builder's.
        parts: what fetch gave.

    Returns:
        The make command, for other goals.
    """
    target = f"-target {machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    target += f" -mcpu={wheel_parts.MACHINES[machine][1]}"
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = os.environ["ZIG_LOCAL_CACHE_DIR"] = str(WORK / "zig")
    make = ["make", "-s", "-C", str(ROOT / "c"), f"-j{os.cpu_count()}", f"PIECES={parts}"]
    make += [f"VARIANT=wheel-{machine}", f"CC={python} -m ziglang cc {target}"]
    make += [f"CXX={python} -m ziglang c++ {target}"]
    subprocess.run([*make, "lib"], check=True)
    return make


def build(machine: str, output: Path, tests: bool) -> Path:
    """Builds and checks one wheel.

    Args:
        machine: a key of wheel_parts.MACHINES.
        output: the folder to put it into.
        tests: whether the C tests run on the library; they need ONNX Runtime and this machine.

    Returns:
        The wheel.

    Raises:
        SystemExit: something is missing, or the library is not what a wheel may hold.
    """
    python = builder()
    parts = wheel_parts.fetch(machine, WORK)
    zig = next((WORK / "venv").glob("lib/python*/site-packages/ziglang"))
    for name, text in (("libc++", "lib/libcxx/LICENSE.TXT"), ("zig", "LICENSE")):
        shutil.copy(zig / text, parts / "licenses" / f"{name}.txt")
    make = compile_library(machine, python, parts)
    library = ROOT / "c" / "build" / f"wheel-{machine}" / LIBRARY
    if said := problems(library):
        raise SystemExit(f"{library} {'; '.join(said)}.")
    if tests and machine == platform.machine():
        subprocess.run([*make, "run-tests"], check=True)
    laid = make_parts(library, machine, parts / "licenses", WORK / f"parts-{machine}")
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    wheel, _ = assemble(laid, tag, output, python, commit_time())
    judged = subprocess.run(
        [python, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True, check=True
    ).stdout
    if f'"manylinux_{GLIBC[0]}_{GLIBC[1] - 1}_' not in judged and f'"{tag}"' not in judged:
        raise SystemExit(f"auditwheel does not agree with {tag}:\n{judged}")
    return wheel


def main() -> int:
    """Runs as a command.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description="Builds the wheel for systems without a compiler.")
    parser.add_argument("--machine", choices=wheel_parts.MACHINES, default=platform.machine())
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="DIRECTORY")
    parser.add_argument("--no-tests", action="store_true", help="do not run the C tests on it")
    arguments = parser.parse_args()
    wheel = build(arguments.machine, arguments.output, not arguments.no_tests)
    floor = read_elf(ROOT / "c" / "build" / f"wheel-{arguments.machine}" / LIBRARY)["glibc"]
    print(f"{wheel}: {wheel.stat().st_size:,} bytes, needs glibc {floor[0]}.{floor[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
