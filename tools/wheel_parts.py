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
    # Debian has simdjson as a shared library only: its one source file is compiled.
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
            # Debian's own names hold the version with %3a and the like: not with today's pins.
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
    for part in PARTS:
        archive = files / part.file_name(architecture)
        inside = target / "unpacked" / part.name
        inside.mkdir()
        if part.is_source:
            _run("tar", "-xzf", str(archive), "--strip-components=1", "-C", str(inside))
            single = inside / "singleheader"
            for name in ("simdjson.h", "simdjson.cpp"):
                shutil.copy(single / name, target / "include")
            licence = inside / "LICENSE"
        else:
            _run("dpkg-deb", "-x", str(archive), str(inside))
            shutil.copytree(inside / "usr/include", target / "include", dirs_exist_ok=True)
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
            "purl": f"pkg:deb/debian/{part.package}@{part.package_version.replace('+', '%2B')}"
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
