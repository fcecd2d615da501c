"""Reads what `perf stat -x` writes, as pure functions over text.

Called by perfstat.py and by tests/test_perfstat.py. Rows are found by the event's name, since the
number of fields before and after it varies: per thread or not, a decimal comma in a
comma-separated line, derived figures at the end. It never starts perf and never guesses a count:
what perf did not count stays None, with perf's own reason.

Source:
    perf-stat(1), "CSV FORMAT"; tools/perf/util/stat-display.c of Linux 6.1
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

NOT_SUPPORTED: Final = "not supported"
NOT_COUNTED: Final = "not counted"

_REASONS: Final = {"<not supported>": NOT_SUPPORTED, "<not counted>": NOT_COUNTED}
_THREAD: Final = re.compile(r"(.*)-(\d+)")
_DIGITS: Final = re.compile(r"\d+")
# "cycles", "cycles:u", and "cpu_core/cycles/" of a processor with two kinds of cores.
_EVENT: Final = re.compile(r"(?:\w+/)?([A-Za-z][\w.-]*?)/?(?::[a-zA-Z]+)?")


@dataclass(frozen=True, slots=True)
class Reading:
    """One row: one event of one thread.

    `value` is None where perf counted nothing, `reason` then says why. `percent` is how much of
    the time the counter was there: below 100 several events shared it, and perf has scaled the
    value up. tid is 0 where the row is of no single thread.
    """

    comm: str
    tid: int
    event: str
    value: float | None
    reason: str
    unit: str
    run_ns: int
    percent: float


@dataclass(frozen=True, slots=True)
class Total:
    """One event over a group of threads.

    `value` is the sum over the threads that have one, or None; `percent` the smallest of theirs;
    `silent` how many of `threads` have none, and `reason` why.
    """

    value: float | None
    unit: str
    percent: float
    threads: int
    silent: int
    reason: str

    def note(self) -> str:
        """What a reader must know before using the value; empty when nothing."""
        if self.value is None:
            return self.reason
        notes = []
        if self.silent:
            notes.append(f"{self.silent} of {self.threads} threads: {self.reason}")
        if self.percent < 99.995:
            notes.append(f"counted {self.percent:.0f} % of the time, scaled")
        return "; ".join(notes)


def parse(text: str, events: Iterable[str], separator: str = ",") -> list[Reading]:
    """Reads perf's rows.

    Args:
        text: what perf wrote.
        events: the names that were asked for; rows of other events are left out.
        separator: as given to perf's -x.

    Returns:
        A reading per row, in perf's order. Comments and rows that hold no asked-for event, such
        as derived figures, are left out.
    """
    asked = frozenset(events)
    readings = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split(separator)]
        # The name is preceded at least by a value and a unit.
        for place in range(2, len(fields)):
            name = _EVENT.fullmatch(fields[place])
            if name and name[1] in asked:
                readings.append(_reading(fields, place, name[1], separator))
                break
    return readings


def _reading(fields: Sequence[str], place: int, event: str, separator: str) -> Reading:
    """The row whose fields[place] is the event's name."""
    first, value, reason = place - 2, None, ""
    text = fields[first]
    if text in _REASONS:
        reason = _REASONS[text]
    else:
        if _is_split(fields, first - 1, separator):
            first -= 1
            text = f"{fields[first]}.{text}"
        value = _number(text)
        reason = "" if value is not None else f"perf says {text!r}"
    thread = _THREAD.fullmatch(separator.join(fields[:first]))
    run = fields[place + 1] if place + 1 < len(fields) else ""
    percent = fields[place + 2] if place + 2 < len(fields) else ""
    if _is_split(fields, place + 2, separator):
        percent = f"{percent}.{fields[place + 3]}"
    return Reading(
        comm=thread[1] if thread else "",
        tid=int(thread[2]) if thread else 0,
        event=event,
        value=value,
        reason=reason,
        unit=fields[place - 1],
        run_ns=int(run) if _DIGITS.fullmatch(run) else 0,
        percent=_number(percent) or 0.0,
    )


def _is_split(fields: Sequence[str], place: int, separator: str) -> bool:
    """Whether a decimal comma has cut a number in two at `place`.

    No two whole numbers stand side by side in a value's place or in a percentage's.
    """
    if separator != "," or place < 0 or place + 1 >= len(fields):
        return False
    return all(_DIGITS.fullmatch(field) is not None for field in fields[place : place + 2])


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def total(readings: Iterable[Reading], groups: Mapping[int, str]) -> dict[str, dict[str, Total]]:
    """Adds readings up over groups of threads.

    Args:
        readings: as `parse` gives them.
        groups: which group a thread belongs to, by its id; other threads are left out.

    Returns:
        By group and event. An event that a processor has several kinds of counters for is added up
        too.
    """
    found: dict[str, dict[str, list[Reading]]] = {}
    for reading in readings:
        group = groups.get(reading.tid)
        if group is not None:
            found.setdefault(group, {}).setdefault(reading.event, []).append(reading)
    return {
        group: {event: _total(rows) for event, rows in events.items()}
        for group, events in found.items()
    }


def _total(rows: Sequence[Reading]) -> Total:
    counted = [row for row in rows if row.value is not None]
    silent = {row.tid: row.reason for row in rows if row.value is None}
    for row in counted:
        silent.pop(row.tid, None)
    return Total(
        value=sum(row.value or 0.0 for row in counted) if counted else None,
        unit=rows[0].unit,
        percent=min((row.percent for row in counted), default=0.0),
        threads=len({row.tid for row in rows}),
        silent=len(silent),
        reason=" / ".join(sorted(set(silent.values()))),
    )


def ratio(totals: Mapping[str, Total], over: str, under: str) -> float | None:
    """One event per another, such as instructions per cycle; None unless both were counted."""
    numerator, denominator = totals.get(over), totals.get(under)
    if numerator is None or denominator is None:
        return None
    if numerator.value is None or not denominator.value:
        return None
    return numerator.value / denominator.value
