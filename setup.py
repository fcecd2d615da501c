"""Builds the C library as part of `pip install .`: everything else is in pyproject.toml.

Run by setuptools, in the build environment. It compiles nothing itself: c/Makefile does. When
something is missing it ends with one sentence that says what to install, before make is started.
tools/wheel.py builds the library by itself, for old systems, and sets LUMEN_WHEEL_PARTS to a folder
that holds the library and `dist-info/`, what the wheel's metadata gets besides.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
LIBRARY = ROOT / "c" / "build" / "release" / "liblumen_uring.so"
PARTS = os.environ.get("LUMEN_WHEEL_PARTS")


def require(condition: bool, what: str) -> None:
    """Ends the build with one sentence unless the condition holds."""
    if not condition:
        raise SystemExit(f"Lumen's C library cannot be built: {what}.")


def has_header(header: str, compiler: str) -> bool:
    """Whether that compiler finds that header."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "probe.cc" if compiler == "g++" else "probe.c")
        source.write_text(f"#include <{header}>\n")
        found = subprocess.run([compiler, "-E", str(source)], capture_output=True, check=False)
    return found.returncode == 0


def check_tools() -> None:
    """Looks for all that make will need."""
    require((ROOT / "c" / "Makefile").is_file(), "c/Makefile is missing from this source tree")
    for tool, package in (("make", "make"), ("gcc", "gcc"), ("g++", "g++")):
        require(
            shutil.which(tool) is not None,
            f"{tool} is not installed (Debian: apt-get install {package})",
        )
    for header, compiler, package in (
        ("liburing.h", "gcc", "liburing-dev"),
        ("sodium.h", "gcc", "libsodium-dev"),
        ("jpeglib.h", "gcc", "libjpeg-dev"),
        ("spng.h", "gcc", "libspng-dev"),
        ("zlib.h", "gcc", "zlib1g-dev"),
        ("simdjson.h", "g++", "libsimdjson-dev"),
    ):
        require(
            has_header(header, compiler),
            f"{header} is not installed (Debian: apt-get install {package})",
        )


class BuildWithLibrary(build_py):
    """Builds the C library and puts it beside lumen_uring/ring in the wheel."""

    def run(self) -> None:
        """Called by setuptools."""
        super().run()
        library = Path(PARTS, LIBRARY.name) if PARTS else LIBRARY
        if not PARTS:
            check_tools()
            made = subprocess.run(["make", "-C", str(ROOT / "c"), "lib"], check=False)
            require(made.returncode == 0 and LIBRARY.is_file(), "make -C c lib failed, see above")
        # An editable install reads the checkout itself, where library.py finds c/build/release.
        if not self.editable_mode:
            target = Path(self.build_lib, "lumen_uring", "ring", LIBRARY.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target)


class PlatformWheel(bdist_wheel):
    """The library is for this machine's platform, but for any Python: it uses no Python API."""

    def get_tag(self) -> tuple[str, str, str]:
        """Called by setuptools."""
        return ("py3", "none", super().get_tag()[2])

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        """Called by setuptools, before it writes the list of files."""
        super().egg2dist(egginfo_path, distinfo_path)
        if PARTS:
            shutil.copytree(Path(PARTS, "dist-info"), distinfo_path, dirs_exist_ok=True)


class WithBinary(Distribution):
    """Tells setuptools that the wheel is not pure, since the library is package data to it."""

    def has_ext_modules(self) -> bool:
        """Called by setuptools."""
        return True


setup(
    distclass=WithBinary,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
)
