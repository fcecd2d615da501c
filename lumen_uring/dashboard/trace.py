"""Reads the file of `engine.telemetry_csv_path`: a row for each request that a worker answered.

Used by runs.py. What can be read of a damaged file is read: a line that does not have its form is
left out and told, a column that is missing takes only the charts that need it. Nothing is guessed:
neither a value, nor the order of columns without names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from lumen_uring.dashboard.distribution import Distribution
from lumen_uring.dashboard.findings import Finding, lines, quoted

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.str_]

_DAY_NS: Final = 86_400 * 10**9
# The columns of c/src/work/telemetry.c that are used here, and the largest value each can have.
NUMBERS: Final = {
    "worker": 4095,
    "started_ns": 10**18 - 1,
    "rows": 2**32 - 1,
    "batch_rows": 2**32 - 1,
    "receive_ns": _DAY_NS,
    "queue_ns": _DAY_NS,
    "preprocess_ns": _DAY_NS,
    "infer_ns": _DAY_NS,
    "send_ns": _DAY_NS,
    "total_ns": _DAY_NS,
    "status": 255,
}
TEXTS: Final = ("model", "queue_type", "allocator")
UNUSED: Final = ("id", "bytes", "width", "expert")
STAGES: Final = ("receive", "queue", "preprocess", "infer", "send")
ROWS_MAX: Final = 2_000_000
FILE_BYTES_MAX: Final = 512 << 20
_CLOCK_BACK_NS: Final = 60 * 10**9  # rows of several workers are out of order by far less


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The rows of one file; a column that the file lacks is missing here too."""

    numbers: dict[str, Ints]
    texts: dict[str, Words]

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.numbers["total_ns"])

    def has(self, *columns: str) -> bool:
        """Whether all of these columns are there."""
        return all(name in self.numbers or name in self.texts for name in columns)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Trace:
        """The rows for which `chosen` is true."""
        return Trace(
            {name: column[chosen] for name, column in self.numbers.items()},
            {name: column[chosen] for name, column in self.texts.items()},
        )

    def answered(self) -> Trace:
        """The rows of requests that got their answer; all of them where the file has no status."""
        return self.where(self.numbers["status"] == 0) if self.has("status") else self

    def times(self, stage: str) -> Distribution:
        """The distribution of a stage, or of the "total", in µs."""
        return Distribution.of(self.numbers[f"{stage}_ns"] / 1e3)

    def ends_s(self) -> npt.NDArray[np.float64]:
        """When each request had its reply, in seconds since the first request began."""
        begin = self.numbers["started_ns"]
        return np.asarray((begin + self.numbers["total_ns"] - begin.min()) / 1e9)


def looks_like(header: str) -> bool:
    """Whether a first line is that of a telemetry file, even one that lacks columns."""
    names = set(header.strip().split(","))
    return len(names & {*NUMBERS, *TEXTS, *UNUSED}) >= 3


def read(path: Path) -> tuple[Trace | None, list[Finding]]:
    """Reads a file.

    Args:
        path: of the file; a server may be writing to it.

    Returns:
        The rows that are whole, None where none can be told; and what is wrong with the file.
    """
    findings: list[Finding] = []
    name = path.name
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            most = f"at most {FILE_BYTES_MAX >> 20} MiB"
            done = f"left out: (head -1 {name}; tail -n {ROWS_MAX} {name}) > short.csv makes it fit"
            return None, [Finding(name, most, f"{size >> 20} MiB", done)]
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        found = f"{error.strerror}"
        return None, [Finding(name, "a file that can be read", found, "it is left out")]
    split = text.split("\n")
    if not text:
        split = []
    elif split.pop():  # what stands behind the last line end
        last = len(split) + 1
        findings.append(
            Finding(f"{name} line {last}", "a whole line", "its beginning", "it is left out")
        )
    if not split:
        found = "an empty file" if not text else "no whole line"
        findings.append(Finding(name, "a line of names, then rows", found, "it is left out"))
        return None, findings
    header = split[0].rstrip("\r").split(",")
    usable = _check_header(name, header, findings)
    if not usable:
        return None, findings
    return _rows(name, header, split[1:], findings), findings


def _check_header(name: str, header: Sequence[str], findings: list[Finding]) -> bool:
    where = f"{name} line 1"
    known = [column for column in header if column in NUMBERS or column in TEXTS]
    if not known:
        expected = "the names of columns, such as total_ns"
        findings.append(Finding(where, expected, quoted(",".join(header)), "the file is left out"))
        return False
    twice = sorted({column for column in known if header.count(column) > 1})
    if twice:
        findings.append(
            Finding(where, "each column once", f"{twice[0]} twice", "the file is left out")
        )
        return False
    missing = [column for column in (*NUMBERS, *TEXTS) if column not in header]
    if "total_ns" in missing:
        findings.append(
            Finding(where, "a column total_ns", f"only {', '.join(known)}", "the file is left out")
        )
        return False
    if missing:
        columns = "columns" if len(missing) > 1 else "column"
        done = (
            "charts that need them are left out"
            if len(missing) > 1
            else "charts that need it are left out"
        )
        if "status" in missing:
            done += ", and each request counts as answered"
        findings.append(
            Finding(where, f"the {columns} {', '.join(missing)}", "none of that name", done)
        )
    strange = [column for column in header if column not in {*NUMBERS, *TEXTS, *UNUSED}]
    if strange:
        found = f"also {quoted(', '.join(strange))}"
        expected = "the columns that this version knows"
        findings.append(Finding(where, expected, found, "these are not shown"))
    return True


def _rows(
    name: str, header: Sequence[str], rest: list[str], findings: list[Finding]
) -> Trace | None:
    if len(rest) > ROWS_MAX:
        expected = f"at most {ROWS_MAX:,} rows"
        found = f"{len(rest):,}"
        findings.append(Finding(name, expected, found, "the last of them are shown"))
    offset = 2 + max(0, len(rest) - ROWS_MAX)
    names = ",".join(header)
    cells: list[list[str]] = []
    numbers: list[int] = []
    torn: dict[int, list[int]] = {}
    for number, line in enumerate(rest[-ROWS_MAX:], offset):
        row = line.rstrip("\r").split(",")
        if len(row) == len(header):
            # Files that were joined have their names in the middle too.
            if row[0] != header[0] or line.rstrip("\r") != names:
                cells.append(row)
                numbers.append(number)
        elif line:
            torn.setdefault(len(row), []).append(number)
    for count, at in sorted(torn.items()):
        findings.append(
            Finding(
                f"{name} {lines(at)}",
                f"{len(header)} cells",
                f"{count}",
                "left out",
            )
        )
    if not cells:
        findings.append(Finding(name, "rows below the names", "none", "it is left out"))
        return None
    trace = _columns(name, header, cells, np.array(numbers), findings)
    return _after_restart(name, trace, findings) if trace is not None else None


def _columns(
    name: str,
    header: Sequence[str],
    cells: list[list[str]],
    places: Ints,
    findings: list[Finding],
) -> Trace | None:
    by_name = dict(zip(header, zip(*cells, strict=True), strict=True))
    good = np.ones(len(cells), bool)
    numbers: dict[str, Ints] = {}
    for column, most in NUMBERS.items():
        if column not in by_name:
            continue
        values, bad = _numbers(by_name[column], most)
        numbers[column] = values
        if bad.any():
            first = by_name[column][int(np.flatnonzero(bad)[0])]
            findings.append(
                Finding(
                    f"{name} {lines(places[bad].tolist())}, column {column}",
                    f"a whole number of 0..{most}",
                    quoted(first),
                    "left out",
                )
            )
            good &= ~bad
    if not good.any():
        findings.append(Finding(name, "rows with numbers", "none", "it is left out"))
        return None
    texts = {str(column): np.array(by_name[column]) for column in TEXTS if column in by_name}
    return Trace(numbers, texts).where(good)


def _numbers(cells: Sequence[str], most: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The cells as numbers, and which of them are none or out of range."""
    try:
        values = np.array(cells).astype(np.int64)
    except (ValueError, OverflowError):
        values = np.array([_number(cell) for cell in cells], np.int64)
    return values, np.asarray((values < 0) | (values > most))


def _number(cell: str) -> int:
    is_number = cell.isascii() and cell.isdecimal() and len(cell) <= 18
    return int(cell) if is_number else -1


def _after_restart(name: str, trace: Trace, findings: list[Finding]) -> Trace:
    """The rows since the machine was started: its clock began anew then."""
    if not trace.has("started_ns"):
        return trace
    ends_ns = trace.numbers["started_ns"] + trace.numbers["total_ns"]
    back = np.flatnonzero(np.diff(ends_ns) < -_CLOCK_BACK_NS)
    if not len(back):
        return trace
    first = int(back[-1]) + 1
    findings.append(
        Finding(
            name,
            "rows of one run of the machine",
            "a clock that goes back",
            f"the {len(trace) - first:,} rows after the last restart are shown",
        )
    )
    return trace.where(np.arange(len(trace)) >= first)
