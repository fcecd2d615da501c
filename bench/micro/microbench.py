"""`make microbench`: what Lumen's parts cost by themselves, beside what others publish.

A developer's tool. The C parts are timed by microbench.c (`make -C c bench`), the Python side
(reading statistics, packing and unpacking the protocol) by pyperf, in processes of its own. Beside
them stand published figures of other people's machines: compare sizes, not digits. It must never
be run beside other work whose figures matter, nor believed where min and median lie far apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.common.local_server import ROOT, local_server
from bench.common.measure import machine

_PROGRAM: Final = ROOT / "c/build/release/bench/micro/microbench"
_DATA: Final = "LUMEN_MICROBENCH_DATA"
_PYTHON: Final = "--python-side"
_REPEATS_NOTE: Final = "p99 of single wake-ups; all else are means over many operations"

# (group, name, detail): published figure in ns and where it is from. What "written" says is our
# reading: an allocation that grows with its size has been written to.
REFERENCES: Final[Mapping[tuple[str, str, int], tuple[float, str]]] = {
    ("queue, push + pop", "mpmc", 1): (17.0, "Velox: crossbeam bounded channel"),
    ("queue, push + pop", "scq", 1): (17.0, "Velox: crossbeam bounded channel"),
    ("queue, push + pop", "spsc", 1): (17.0, "Velox: crossbeam bounded channel"),
    ("memory, written", "lm_slot_alloc", 64): (4.2, "Velox: Bumpalo"),
    ("memory, written", "lm_slot_alloc", 512): (8.4, "Velox: Bumpalo"),
    ("memory, written", "lm_slot_alloc", 4096): (29.2, "Velox: Bumpalo"),
    ("memory, written", "lm_slot_alloc", 65536): (1380.0, "Velox: Bumpalo"),
    ("memory, written", "malloc + free", 64): (37.8, "Velox: 9.0 times Bumpalo"),
    ("token bucket", "acquire", 1): (14.0, "Velox: its token bucket"),
    ("token bucket", "acquire", 64): (288.0, "Velox: 4.5 a token in a batch"),
}

# What the detail of a group's results counts.
_UNITS: Final[Mapping[str, str]] = {
    "memory": "B",
    "memory, written": "B",
    "token bucket": "at once",
    "budgets, take + settle": "owners",
    "budgets, 4 threads": "owners",
    "budgets, refusal": "owners",
    "keys": "in the table",
}


def run_c(fast: bool) -> dict[str, Any]:
    """Times the C parts.

    Args:
        fast: a twentieth of the work: for a look, not for a figure.

    Returns:
        The output of microbench.c.

    Raises:
        FileNotFoundError: it was not built.
    """
    if not _PROGRAM.is_file():
        raise FileNotFoundError(f"{_PROGRAM} is missing: run make -C c bench.")
    command = [str(_PROGRAM), *(["--fast"] if fast else [])]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, capture_output=True, check=True).stdout
    )
    return found


def run_python(fast: bool) -> list[dict[str, Any]]:
    """Times the Python side, on the statistics file and the models of a real server.

    Args:
        fast: two processes of pyperf's --fast, not ten.

    Returns:
        Results, in the form of run_c's.
    """
    from lumen_uring import Client
    from lumen_uring.ring.stats import stats_path

    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        with (
            local_server("--model=digits=builtin:digits") as server,
            Client("127.0.0.1", server.port) as client,
        ):
            (data / "describe.json").write_text(json.dumps(client.describe()))
            shutil.copyfile(stats_path(server.port), data / "stats")
        found = data / "pyperf.json"
        subprocess.run(
            [
                *(sys.executable, __file__, _PYTHON, "-o", str(found)),
                *("--fast", *(["--processes", "2"] if fast else [])),
                f"--inherit-environ={_DATA},PYTHONPATH,LUMEN_LIBRARY",
            ],
            env={**os.environ, _DATA: directory, "PYTHONPATH": _python_path()},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return _read_pyperf(found)


def _python_path() -> str:
    before = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(filter(None, (str(ROOT), before)))


def _read_pyperf(path: Path) -> list[dict[str, Any]]:
    import pyperf  # type: ignore[import-untyped,unused-ignore]

    return [
        {
            "group": "Python",
            "name": bench.get_name(),
            "detail": 0,
            "min_ns": min(bench.get_values()) * 1e9,
            "median_ns": bench.median() * 1e9,
            "p99_ns": None,
        }
        for bench in pyperf.BenchmarkSuite.load(str(path)).get_benchmarks()
    ]


def _python_side() -> None:
    """In pyperf's processes: declares what is to be timed."""
    import pyperf

    sys.argv.remove(_PYTHON)
    runner = pyperf.Runner(program_args=(__file__, _PYTHON))
    for name, call in _calls(Path(os.environ[_DATA])).items():
        runner.bench_func(name, call)


def _calls(data: Path) -> dict[str, Callable[[], object]]:
    from lumen_uring.client import payloads
    from lumen_uring.protocol import native
    from lumen_uring.protocol.describe import parse_description
    from lumen_uring.ring.stats import read

    description = (data / "describe.json").read_bytes()
    (model,) = parse_description(description).models.values()
    inputs = {"image": np.zeros((1, 1, 8, 8), np.float32)}
    request = native.RequestHeader(1, 0, 0, 7, 256, 0, 1)
    reply = native.ReplyHeader(0, 0, 7, 40, 1, 1, 2, 3, 4)
    reply_bytes = native.pack_reply(reply)
    answer = np.zeros(10, np.float32).view(np.uint8)
    stats = data / "stats"
    return {
        "stats.read": lambda: read(stats),
        "stats.read + queue p99": lambda: read(stats).histograms["queue"].percentile_ns(99),
        "native.pack_request": lambda: native.pack_request(request),
        "payloads.pack_inputs": lambda: payloads.pack_inputs(model, inputs, None),
        "native.unpack_reply": lambda: native.unpack_reply(reply_bytes),
        "payloads.unpack_outputs": lambda: payloads.unpack_outputs(model, reply, answer),
        "parse_description": lambda: parse_description(description),
    }


def table(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Lines results up for people.

    Args:
        results: of run_c and run_python.

    Returns:
        Rows of cells: what, min, median, p99, the published figure and its origin.
    """
    rows = []
    for result in results:
        key = (result["group"], result["name"], result["detail"])
        what = f"{result['group']}: {result['name']}"
        unit = _UNITS.get(result["group"])
        if unit:
            what += f", {result['detail']} {unit}"
        reference = REFERENCES.get(key)
        said = f"{reference[0]:g} ({reference[1]})" if reference else ""
        values = (_ns(result[name]) for name in ("min_ns", "median_ns", "p99_ns"))
        rows.append((what, *values, said))
    return rows


def _ns(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def _show(rows: Sequence[Sequence[str]]) -> None:
    heads = ("ns per operation", "min", "median", "p99", "published elsewhere")
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    for row in (heads, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [row[place].rjust(widths[place]) for place in (1, 2, 3)]
        print("  ".join([*cells, row[4]]).rstrip())


def main(arguments: list[str] | None = None) -> int:
    """Times everything and shows it."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fast", action="store_true", help="a look, not figures")
    parser.add_argument("--only", choices=("c", "python"), help="one side alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"machine": machine(), "fast": options.fast, "results": []}
    try:
        if options.only != "python":
            found["results"] += run_c(options.fast)["results"]
        if options.only != "c":
            found["results"] += run_python(options.fast)
    except FileNotFoundError as error:
        print(f"microbench: {error}", file=sys.stderr)
        return 1
    print(f"{found['machine']['cpu']}, {found['machine']['cores']} cores; {_REPEATS_NOTE}")
    _show(table(found["results"]))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    if _PYTHON in sys.argv:
        _python_side()
        sys.exit(0)
    sys.exit(main())
