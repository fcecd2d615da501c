"""Libraries that the wheel links statically: fetched, checked, unpacked, listed as CycloneDX.

Used by wheel.py, on a Debian system with apt. Where packages come from is the system's own apt
configuration; what comes is pinned here by version and SHA-256. When Debian replaces a version, the
fetch ends with a sentence: whoever reads it reviews the change and moves the pin.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

ZIG_VERSION: Final = "0.17.1"
# Debian's and zig's names of each processor, with the baseline that numpy's wheels ask for.
MACHINES: Final = {
    "x86_64": ("amd64", "x86_64_v2"),
    "aarch64": ("arm64", "generic"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One library that is linked statically.

    Attributes:
        name, version: its own.
        package, package_version: Debian's package that it comes from.
        licence: an SPDX expression.
        digests: file name -> SHA-256 of what is fetched; for sources one file for all machines.
    """

    name: str
    version: str
    package: str
    package_version: str
    licence: str
    digests: dict[str, str]

    @property
    def is_source(self) -> bool:
        """Whether the source package is meant, not a built one."""
        return not self.package.endswith("-dev")

    def file_name(self, architecture: str) -> str:
        """The fetched file for one of Debian's architectures."""
        fits = [name for name in self.digests if self.is_source or f"_{architecture}." in name]
        return fits[0]


PARTS: Final = (
    Part(
        "liburing",
        "2.3",
        "liburing-dev",
        "2.3-3",
        "LGPL-2.1-or-later OR MIT",
        {
            "liburing-dev_2.3-3_amd64.deb": (
                "3e2c6dbe416995570c4b13087b9e26dbcc53d6d48bce5f74412a00e7defecc21"
            ),
            "liburing-dev_2.3-3_arm64.deb": (
                "cf210a7d7c238bda6af586fca5473df4aef9606db15a837ebe13cf6d2cb24e62"
            ),
        },
    ),
    Part(
        "libsodium",
        "1.0.18",
        "libsodium-dev",
        "1.0.18-1+deb12u1",
        "ISC",
        {
            "libsodium-dev_1.0.18-1+deb12u1_amd64.deb": (
                "96c76e95027592650b20987ceef189aa70c614dff3e6ec13c09b786149145700"
            ),
            "libsodium-dev_1.0.18-1+deb12u1_arm64.deb": (
                "6713440c957b2581bc7deab164ea99e80eab784c1004080c7a034fe6d95d178a"
            ),
        },
    ),
    Part(
        "libjpeg-turbo",
        "2.1.5",
        "libjpeg62-turbo-dev",
        "1:2.1.5-2",
        "IJG AND BSD-3-Clause AND Zlib",
        {
            "libjpeg62-turbo-dev_1%3a2.1.5-2_amd64.deb": (
                "10485411f751c24472c43b28fe24ab6389fedb027d496bbc2c831496f750ab01"
            ),
            "libjpeg62-turbo-dev_1%3a2.1.5-2_arm64.deb": (
                "d2ab47457f162d08ee9bfdd1a383013c25fe67b7e9a2210e7468333c5d18f6b7"
            ),
        },
    ),
    Part(
        "zlib",
        "1.2.13",
        "zlib1g-dev",
        "1:1.2.13.dfsg-1",
        "Zlib",
        {
            "zlib1g-dev_1%3a1.2.13.dfsg-1_amd64.deb": (
                "f9ce531f60cbd5df37996af9370e0171be96902a17ec2bdbd8d62038c354094f"
            ),
            "zlib1g-dev_1%3a1.2.13.dfsg-1_arm64.deb": (
                "afb60f0bae432f2f0edfe2d674e99c1a13a147c9aa2b52f2f23e3df19ece76f5"
            ),
        },
    ),
    # Debian has these as shared libraries only: the one source file of each is compiled.
    Part(
        "libspng",
        "0.7.3",
        "libspng",
        "0.7.3-3",
        "BSD-2-Clause AND libpng-2.0",
        {
            "libspng_0.7.3.orig.tar.gz": (
                "a50cadbe808ffda1a7fab17d145f52a23b163f34b3eb3696c7ecb5a52340fc1d"
            )
        },
    ),
    Part(
        "simdjson",
        "3.0.1",
        "simdjson",
        "3.0.1-1",
        "Apache-2.0",
        {
            "simdjson_3.0.1.orig.tar.gz": (
                "156b1bc5eb0561b2bd166b46d191fd3d95a3e709cc63761477d3b7aec2b6e9ed"
            )
        },
    ),
)
# What is compiled of a source package.
SOURCE_FILES: Final = {
    "libspng": ("spng/spng.h", "spng/spng.c"),
    "simdjson": ("singleheader/simdjson.h", "singleheader/simdjson.cpp"),
}


def fetch(machine: str, folder: Path) -> Path:
    """Fetches and unpacks every part for one machine.

    Args:
        machine: a key of MACHINES.
        folder: what is fetched stays in it.

    Returns:
        A folder with `include/`, `lib/` and `licenses/`.

    Raises:
        SystemExit: apt does not have a pinned version, or a file is another one.
    """
    architecture = MACHINES[machine][0]
    files = folder / "fetched"
    files.mkdir(parents=True, exist_ok=True)
    if not all((files / part.file_name(architecture)).is_file() for part in PARTS):
        _download(architecture, folder, files)
    for part in PARTS:
        name = part.file_name(architecture)
        found = hashlib.sha256((files / name).read_bytes()).hexdigest()
        if found != part.digests[name]:
            raise SystemExit(f"{name}: expected SHA-256 {part.digests[name]}, found {found}.")
    return _unpack(architecture, files, folder / machine)


def _download(architecture: str, folder: Path, files: Path) -> None:
    apt = _private_apt(folder / "apt")
    _run("apt-get", "-qq", "update", env=apt)
    for part in PARTS:
        what = ["source", "--download-only"] if part.is_source else ["download"]
        foreign = "" if part.is_source else f":{architecture}"
        named = f"{part.package}{foreign}={part.package_version}"
        _run("apt-get", "-qq", *what, named, env=apt, cwd=files)
        if not (files / part.file_name(architecture)).is_file():
            # Debian's names hold the version with its colon as %3a.
            raise SystemExit(f"apt fetched no {part.file_name(architecture)} for {named}.")


def _private_apt(folder: Path) -> dict[str, str]:
    """An apt beside the system's: its Debian sources, with source packages, for all machines."""
    # Signatures are checked as for the system: with the keys in its trusted folder.
    asked = ["--format", "$(SITE) $(RELEASE) $(COMPONENT) $(ORIGIN)", "Created-By: Packages"]
    listed = subprocess.run(
        ["apt-get", "indextargets", *asked], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    sites = sorted({line.removesuffix(" Debian") for line in listed if line.endswith(" Debian")})
    if not sites:
        raise SystemExit("apt knows no Debian archive: `make wheel` needs Debian, and apt update.")
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    lines = [f"{kind} {site}\n" for kind in ("deb", "deb-src") for site in sites]
    (folder / "sources.list").write_text("".join(lines))
    architectures = "".join(f'"{name}";' for name, _ in MACHINES.values())
    (folder / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{folder}/sources.list";\n'
        'Dir::Etc::sourceparts "/dev/null";\n'
        f'Dir::State::lists "{folder}/lists";\n'
        f'Dir::State::status "{folder}/status";\n'
        f'Dir::Cache "{folder}/cache";\n'
        f"APT::Architectures {{{architectures}}};\n"
        'APT::Sandbox::User "root";\n'
    )
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}


def _unpack(architecture: str, files: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    for name in ("include", "lib", "licenses", "unpacked"):
        (target / name).mkdir(parents=True)
    includes = target / "include"
    for part in PARTS:
        archive = files / part.file_name(architecture)
        inside = target / "unpacked" / part.name
        inside.mkdir()
        if part.is_source:
            _run("tar", "-xzf", str(archive), "--strip-components=1", "-C", str(inside))
            for name in SOURCE_FILES[part.name]:
                shutil.copy(inside / name, includes)
            licence = inside / "LICENSE"
        else:
            _run("dpkg-deb", "-x", str(archive), str(inside))
            shutil.copytree(inside / "usr/include", includes, dirs_exist_ok=True)
            for of_machine in includes.glob("*-linux-gnu*"):
                shutil.copytree(of_machine, includes, dirs_exist_ok=True)
            for static in (inside / "usr/lib").glob("*/*.a"):
                shutil.copy(static, target / "lib")
            licence = inside / "usr/share/doc" / part.package / "copyright"
        shutil.copy(licence, target / "licenses" / f"{part.name}.txt")
    shutil.rmtree(target / "unpacked")
    return target


def _run(*command: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    made = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{made.stdout}{made.stderr}")


def bill_of_materials(version: str, machine: str, time: str) -> dict[str, Any]:
    """Lists what is inside the wheel's library.

    Args:
        version: Lumen's.
        machine: a key of MACHINES.
        time: of the build, ISO 8601 in UTC.

    Returns:
        A CycloneDX 1.6 document.
    """
    architecture = MACHINES[machine][0]
    components = [
        {
            "type": "library",
            "bom-ref": part.name,
            "name": part.name,
            "version": part.version,
            "licenses": [{"expression": part.licence}],
            "purl": f"pkg:deb/debian/{part.package}@{quote(part.package_version)}"
            f"?arch={'source' if part.is_source else architecture}&distro=bookworm",
            "hashes": [{"alg": "SHA-256", "content": part.digests[part.file_name(architecture)]}],
        }
        for part in PARTS
    ]
    components.append(
        {
            "type": "library",
            "bom-ref": "libc++",
            "name": "libc++, libc++abi, libunwind and compiler-rt as zig has them",
            "version": ZIG_VERSION,
            "licenses": [{"expression": "Apache-2.0 WITH LLVM-exception AND MIT"}],
            "purl": f"pkg:pypi/ziglang@{ZIG_VERSION}",
        }
    )
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "library",
                "bom-ref": "lumen-uring",
                "name": "lumen-uring",
                "version": version,
                "licenses": [{"expression": "MIT"}],
                "purl": f"pkg:pypi/lumen-uring@{version}",
            },
        },
        "components": components,
        "dependencies": [
            {"ref": "lumen-uring", "dependsOn": [entry["bom-ref"] for entry in components]}
        ],
    }
