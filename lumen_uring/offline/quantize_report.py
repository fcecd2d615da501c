"""What `lumen quantize` says at the end: a table, notes, and the same as JSON.

Called by commands/quantize.py, on the main thread.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.table import Table

    from lumen_uring.offline.quantize_compare import Agreement, Shape, Times, Verdict
    from lumen_uring.offline.quantize_samples import Samples

_AGREES: Final = 0.9
_SKIPPED_SHOWN: Final = 5
_PIPE_WIDTH: Final = 120
_CLASSES: Final = ("top1", "top5")


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known at the end."""

    path: Path
    out: Path
    kept: bool
    bytes_before: int
    bytes_after: int
    calibrated: int
    what: str
    held_out: bool
    method: str
    times: Times
    agreements: dict[str, Agreement]
    shape: Shape
    verdict: Verdict
    notes: tuple[str, ...]
    processor: str
    preset: str | None

    def as_json(self) -> dict[str, Any]:
        """The figures under stable names."""
        return {
            "model": str(self.path),
            "output": str(self.out) if self.kept else None,
            "method": self.method,
            "processor": self.processor,
            "calibrated": {self.what: self.calibrated},
            "held_out": self.held_out,
            "bytes": {"original": self.bytes_before, "int8": self.bytes_after},
            "run_ms": {
                "original": self.times.original_s * 1e3,
                "int8": self.times.int8_s * 1e3,
                "turns": self.times.turns,
            },
            "speedup": self.times.ratio,
            "agreement": {kind: one.as_json() for kind, one in self.agreements.items()},
            "graph": {
                "int8": self.shape.int8,
                "float": len(self.shape.floats),
                "conversions": self.shape.conversions,
            },
            "slower_because": self.verdict.reasons,
            "notes": self.notes,
        }


def _skipped(samples: Samples) -> list[str]:
    skipped = samples.skipped
    notes = [f"skipped: {sentence}" for sentence in skipped[:_SKIPPED_SHOWN]]
    if len(skipped) > _SKIPPED_SHOWN:
        notes.append(f"skipped: {len(skipped) - _SKIPPED_SHOWN} more, {len(skipped)} in all")
    return notes


def doubts(samples: Samples, agreements: dict[str, Agreement]) -> list[str]:
    """Sentences about what makes the figures less than they seem.

    Args:
        samples: that were read.
        agreements: by kind of rows.
    """
    notes = _skipped(samples)
    if not samples.held_out:
        from lumen_uring.offline.quantize_samples import HOLD_OUT_MIN

        notes.append(
            f"few {samples.what}: the models were compared on those that calibrated; with "
            f"{HOLD_OUT_MIN} or more some are set aside for that"
        )
    least = min(
        (one.top1 / one.class_rows for one in agreements.values() if one.class_rows), default=1.0
    )
    if least < _AGREES:
        notes.append(
            f"top-1 agreement is below {_AGREES:.0%}: check how pictures are prepared, give more "
            f"{samples.what}, or try --method percentile"
        )
    return notes


def show(report: Report) -> None:
    """Prints the report.

    Args:
        report: of a model.
    """
    from rich.console import Console
    from rich.padding import Padding

    # A file or a pipe gets lines wide enough that none is broken.
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)
    console.print(_speed_table(report))
    console.print(Padding(_agreement_table(report), (1, 0)))
    print(
        f"In INT8: {report.shape.sentence}. Ranges: {report.method} of {report.calibrated:,} "
        f"{report.what}."
    )
    for note in report.notes:
        print(f"note: {note}")
    for reason in report.verdict.reasons:
        print(f"slower: {reason}")
    if report.kept:
        pictures = f" --image {report.preset}" if report.preset else ""
        print(f"Serve it: lumen {shlex.quote(str(report.out))}{pictures}")
    else:
        print(f"No file was kept, since it would be slower here; --force keeps it as {report.out}.")


def _speed_table(report: Report) -> Table:
    from rich.table import Table

    times = report.times
    table = Table("", "original", "INT8", "", box=None)
    for column in table.columns[1:3]:
        column.justify = "right"
    sizes = (report.bytes_before, report.bytes_after)
    table.add_row("size", *map(_size, sizes), f"{sizes[1] / sizes[0]:.2f} x")
    runs = (times.original_s, times.int8_s)
    table.add_row("Run, ms", *(f"{seconds * 1e3:.3g}" for seconds in runs))
    table.add_row(
        "Runs a second",
        *(f"{1 / seconds:,.0f}" for seconds in runs),
        f"{times.ratio:.2f} x on one thread, median of {times.turns} turns; {report.processor}",
    )
    return table


def _size(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"


def _agreement_table(report: Report) -> Table:
    from rich.table import Table

    table = Table("compared on", "rows", "top-1", "top-5", "cosine", "least", "", box=None)
    for column in table.columns[1:6]:
        column.justify = "right"
    # Said once, beside the first figures.
    words = "top-5: the original's first class is among INT8's first five"
    for kind, one in report.agreements.items():
        figures = one.as_json()
        classes = ["-" if figures[key] is None else f"{figures[key]:.1%}" for key in _CLASSES]
        cosines = (f"{figures['cosine_mean']:.4f}", f"{figures['cosine_min']:.4f}")
        table.add_row(kind, f"{one.rows:,}", *classes, *cosines, words if one.class_rows else "")
        words = ""
    return table
