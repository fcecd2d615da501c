"""Finds and reads what was recorded: telemetry, folders of `lumen bench --out`, `make bench`,
`make perfstat`.

Called by pages.py and the tests. A file is known by what it holds, not by its name. One that cannot
be read is left out with a finding; the others are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lumen_uring.dashboard import trace as traces
from lumen_uring.dashboard.distribution import Counts, Distribution, Floats
from lumen_uring.dashboard.findings import Finding, lines, quoted
from lumen_uring.dashboard.trace import Trace
from lumen_uring.loadgen import folder as bench_folder

_DEPTH: Final = 3
_FILES_MAX: Final = 500
_JSON_BYTES_MAX: Final = 64 << 20
_HISTOGRAM: Final = "latency_us,count"
_PERFSTAT_TABLE: Final = "section,figure,unit,"
_KINDS: Final = (
    "telemetry, or a histogram.csv, progress.csv or bench.json of lumen bench --out, "
    "results.json of make bench, or JSON of make perfstat"
)
_Checked = TypeVar("_Checked", bound=BaseModel)


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class Bench(_Part):
    """bench.json of `lumen bench --out`."""

    requests: int = Field(ge=0)
    errors: int = Field(ge=0)
    seconds: float = Field(ge=0)
    throughput_rps: float = Field(ge=0)
    latency_us: dict[str, float | None]
    load: dict[str, Any] = {}
    generator: dict[str, Any] = {}
    date: str = ""


class Cell(_Part):
    """A cell of results.json: one mode under one load, a throughput for each round."""

    workload: str
    queue: str
    allocator: str
    loop: Literal["closed", "open"]
    connections: int
    throughput_rps: list[float | None]
    latency_us: dict[str, float | None] | None
    queue_us: dict[str, float | None] | None
    requests: int
    errors: int


class Line(_Part):
    """A row of a perfstat report, with a value for each state."""

    section: str
    figure: str
    unit: str
    values: list[float | None]
    note: str


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """The cells of `make bench`, and on what machine they were measured."""

    cells: tuple[Cell, ...]
    machine: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """A report of `make perfstat`: its states, such as "standard", and a table of them."""

    states: tuple[str, ...]
    table: tuple[Line, ...]
    remarks: tuple[str, ...]
    machine: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """How many requests and errors there were up to several moments of a load."""

    seconds: Floats
    requests: Counts
    errors: Counts


Content = Trace | Distribution | Course | Bench | Matrix | Report
Read = tuple[Content | None, list[Finding]]


@dataclass(slots=True, eq=False)
class Run:
    """What is known of one run: the server's rows, and what the load generator saw."""

    name: str
    trace: Trace | None = None
    latency: Distribution | None = None
    course: Course | None = None
    bench: Bench | None = None


@dataclass(slots=True, eq=False)
class Library:
    """Everything that was read, by its name."""

    runs: dict[str, Run] = field(default_factory=dict)
    matrices: dict[str, Matrix] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


# ---- finding ----


def find(paths: Iterable[Path]) -> tuple[list[Path], list[Finding]]:
    """Lists the files to read.

    Args:
        paths: files, and folders, in which CSV and JSON files are looked for, three folders deep.

    Returns:
        The files, each once, and what is wrong with the paths.
    """
    found: dict[Path, None] = {}
    findings: list[Finding] = []
    for path in paths:
        if path.is_dir():
            inside = [file for depth in range(_DEPTH + 1) for file in path.glob("*/" * depth + "*")]
            fitting = sorted(file for file in inside if file.suffix in (".csv", ".json"))
            found.update(dict.fromkeys(fitting))
            if not fitting:
                expected = "CSV or JSON files in it"
                findings.append(Finding(str(path), expected, "none", "there is nothing to show"))
        elif path.exists():
            found[path] = None
        else:
            findings.append(Finding(str(path), "a file or a folder", "nothing", "it is left out"))
    if len(found) > _FILES_MAX:
        expected = f"at most {_FILES_MAX} files"
        findings.append(Finding("the folders", expected, f"{len(found)}", "the first are shown"))
    return list(found)[:_FILES_MAX], findings


def gather(read: Mapping[Path, Read], findings: Iterable[Finding] = ()) -> Library:
    """Puts files of one run together.

    Args:
        read: what read_file gave for each file.
        findings: of `find`.
    """
    library = Library(findings=list(findings))
    for _, found in read.values():
        library.findings += found
    contents = {path: content for path, (content, _) in read.items() if content is not None}
    folders = {path.parent for path, content in contents.items() if isinstance(content, Bench)}
    # A file beside a bench.json is of that run; another one is a run of its own.
    owners = {path: path.parent if path.parent in folders else path for path in contents}
    names = _short_names(owners.values())
    for path, content in contents.items():
        name = names[owners[path]]
        if isinstance(content, Matrix):
            library.matrices[name] = content
        elif isinstance(content, Report):
            library.reports[name] = content
        else:
            _add(library.runs.setdefault(name, Run(name)), path, content, library.findings)
    return library


def _add(run: Run, path: Path, content: Content, findings: list[Finding]) -> None:
    place = {Trace: "trace", Distribution: "latency", Course: "course", Bench: "bench"}
    name = place[type(content)]
    if getattr(run, name) is None:
        setattr(run, name, content)
    else:
        expected = "one file of its kind in the folder of a run"
        findings.append(Finding(path.name, expected, "several", "the first is shown"))


def _short_names(paths: Iterable[Path]) -> dict[Path, str]:
    """The last parts of each path, as many as tell it from the others."""
    several = list(dict.fromkeys(path.absolute() for path in paths))
    found = {}
    for path in several:
        parts = path.with_suffix("").parts if path.suffix in (".csv", ".json") else path.parts
        others = [o.with_suffix("").parts for o in several if o != path]
        count = 1
        while count < len(parts) and any(o[-count:] == parts[-count:] for o in others):
            count += 1
        found[path] = "/".join(parts[-count:])
    return {path: found[path.absolute()] for path in paths}


# ---- reading ----


def read_file(path: Path) -> Read:
    """Reads one file, of whatever kind.

    Args:
        path: of the file.

    Returns:
        What it holds, None where that cannot be told; and what is wrong with it.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4096)
        first = start.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
        if start.lstrip()[:1] == b"{":
            return _json(path)
    except OSError as error:
        return None, [_left_out(path.name, "a file that can be read", str(error.strerror))]
    if first == _HISTOGRAM:
        return _histogram(path)
    if first == bench_folder.PROGRESS_COLUMNS:
        return _course(path)
    if first.startswith(_PERFSTAT_TABLE):
        return None, [_left_out(path.name, "perfstat's JSON (--json FILE)", "its table (--csv)")]
    # An empty file may become telemetry, and a damaged one may have been it.
    if not start or traces.looks_like(first) or "_ns" in first:
        return traces.read(path)
    return None, [_left_out(path.name, _KINDS, quoted(first))]


def _left_out(where: str, expected: str, found: str) -> Finding:
    return Finding(where, expected, found, "it is left out")


def _table(path: Path) -> tuple[npt.NDArray[np.float64], list[Finding]]:
    """The rows of a CSV file of numbers; those that are not whole are left out."""
    first, *rest = path.read_text("utf-8", errors="replace").split("\n")
    names = first.strip().split(",")
    bad, good = [], []
    for number, line in enumerate(rest[:-1], 2):  # behind the last line end is nothing
        try:
            row = [float(cell) for cell in line.split(",")]
        except ValueError:
            row = []
        is_whole = len(row) == len(names) and all(0 <= value < 1e15 for value in row)
        if is_whole:
            good.append(row)
        else:
            bad.append(number)
    findings = []
    if bad:
        expected = f"{len(names)} numbers"
        found = quoted(rest[bad[0] - 2])
        findings.append(Finding(f"{path.name} {lines(bad)}", expected, found, "left out"))
    if rest and rest[-1]:
        where = f"{path.name} line {len(rest) + 1}"
        findings.append(_left_out(where, "a whole line", "its beginning"))
    if not good:
        findings.append(_left_out(path.name, "rows below the names", "none"))
    return np.array(good, np.float64).reshape(len(good), len(names)), findings


def _histogram(path: Path) -> Read:
    rows, findings = _table(path)
    order = np.argsort(rows[:, 0])
    content = Distribution(rows[order, 0], rows[order, 1].astype(np.int64))
    return (content if len(rows) else None), findings


def _course(path: Path) -> Read:
    rows, findings = _table(path)
    back = np.flatnonzero(np.diff(rows, axis=0).min(axis=1, initial=0) < 0)
    if len(back):
        where = f"{path.name} line {int(back[0]) + 3}"
        findings.append(_left_out(where, "numbers that grow", "a smaller one than before"))
        return None, findings
    course = Course(rows[:, 0], rows[:, 1].astype(np.int64), rows[:, 2].astype(np.int64))
    return (course if len(rows) else None), findings


def _json(path: Path) -> Read:
    if path.stat().st_size > _JSON_BYTES_MAX:
        found = f"{path.stat().st_size >> 20} MiB"
        return None, [_left_out(path.name, f"at most {_JSON_BYTES_MAX >> 20} MiB", found)]
    try:
        document = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        where = f"{path.name} line {error.lineno} column {error.colno}"
        return None, [_left_out(where, "JSON", error.msg)]
    form = document.get("format", "")
    if form == bench_folder.FORMAT:
        return _checked(Bench, path.name, document)
    if form == "lumen perfstat 1":
        return _report(path.name, document)
    if isinstance(form, str) and form.startswith("lumen "):
        return None, [_left_out(path.name, "a format that this version knows", quoted(form))]
    if isinstance(document.get("cells"), list):
        return _matrix(path.name, document)
    return None, [_left_out(path.name, _KINDS, f"the keys {', '.join(list(document)[:6])}")]


def _checked(
    kind: type[_Checked], where: str, value: object
) -> tuple[_Checked | None, list[Finding]]:
    try:
        return kind.model_validate(value), []
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        expected = first["msg"].removeprefix("Input should be ").removesuffix(" required")
        found = "none" if first["type"] == "missing" else quoted(str(first["input"]))
        expected = "a value" if first["type"] == "missing" else expected
        return None, [_left_out(f"{where}, {place}", expected, found)]


def _parts(
    kind: type[_Checked], where: str, values: Sequence[object]
) -> tuple[tuple[_Checked, ...], list[Finding]]:
    good, findings = [], []
    for index, value in enumerate(values):
        part, bad = _checked(kind, f"{where}[{index}]", value)
        findings += bad
        good += [part] if part is not None else []
    return tuple(good), findings


def _matrix(name: str, document: Mapping[str, Any]) -> Read:
    cells, findings = _parts(Cell, f"{name}, cells", document["cells"])
    machine = document.get("machine")
    content = Matrix(cells, machine if isinstance(machine, dict) else {})
    return (content if cells else None), findings


def _report(name: str, document: Mapping[str, Any]) -> Read:
    states, table = document.get("states"), document.get("table")
    if not isinstance(states, dict) or not isinstance(table, list):
        return None, [_left_out(name, "states and a table", "none, or of another type")]
    rows, findings = _parts(Line, f"{name}, table", table)
    fitting = tuple(line for line in rows if len(line.values) == len(states))
    if len(fitting) < len(rows):
        expected = f"{len(states)} values in each row"
        findings.append(Finding(f"{name}, table", expected, "another number", "those are left out"))
    machine = document.get("machine")
    remarks = tuple(str(remark) for remark in document.get("remarks") or ())
    content = Report(tuple(states), fitting, remarks, machine if isinstance(machine, dict) else {})
    return (content if fitting else None), findings
