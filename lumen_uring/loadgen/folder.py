"""The folder that `lumen bench --out` writes: a run's figures, its histogram, its course.

Called by commands/bench.py, on the main thread; `lumen dashboard` reads it (dashboard/runs.py).
"""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import LumenError
from lumen_uring.loadgen import figures as bench_figures

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lumen_uring.ring.load import LoadResult

FORMAT: Final = "lumen bench 1"
FIGURES: Final = "bench.json"
HISTOGRAM: Final = "histogram.csv"
PROGRESS: Final = "progress.csv"
PROGRESS_COLUMNS: Final = "seconds,requests,errors"
_LOAD: Final = ("url", "model", "connections", "rate", "rows", "seed", "timeout_us", "encoding")


def prepare(folder: Path) -> None:
    """Makes the folder, before any load.

    Args:
        folder: to write to.

    Raises:
        LumenError: it holds a run already, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LumenError(f"--out: {folder} cannot be made: {error.strerror}.") from None
    if (folder / FIGURES).exists():
        raise LumenError(f"--out: {folder} holds a run already: name another folder.")


def write(
    folder: Path,
    arguments: argparse.Namespace,
    result: LoadResult,
    figures: dict[str, Any],
    progress: Sequence[tuple[bool, int, int, float]],
) -> None:
    """Writes what came of a load.

    Args:
        folder: as `prepare` made it.
        arguments: of the command.
        result: of the load.
        figures: of bench_figures.as_json.
        progress: of Load.progress, twice a second.

    Raises:
        LumenError: a file cannot be written.
    """
    import orjson

    rows = [
        f"{seconds:.3f},{requests},{errors}"
        for counting, requests, errors, seconds in progress
        if counting
    ]
    rows.append(f"{result.seconds:.3f},{result.requests},{result.errors}")
    document = {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "generator": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
        },
        "load": {name: getattr(arguments, name) for name in _LOAD},
        **figures,
    }
    bench_figures.write_histogram(folder / HISTOGRAM, result)
    try:
        (folder / PROGRESS).write_text("\n".join([PROGRESS_COLUMNS, *rows]) + "\n")
        # Last: a folder with this file is whole.
        (folder / FIGURES).write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise LumenError(f"--out: {folder} cannot be written: {error.strerror}.") from None


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
