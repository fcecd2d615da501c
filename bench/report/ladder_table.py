"""The tables of `make ladder`, and their place in docs/LATENCY.md, from its figures alone.

Called by bench/perf/ladder.py, tested by tests/test_ladder.py. What people wrote on the page stands
around two markers and is kept. It must never leave out a rung that brought nothing, or harm.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.report.ladder_figures import CONFIDENCE, PERCENTS
from bench.report.rules import DIFFERENCE_MIN, amount, middle, plural, table

BEGIN: Final = "<!-- made by `make ladder`: do not edit -->"
END: Final = "<!-- end of what is made -->"
CLAIM_START_MS: Final = 8.0  # the handbook's plain server
_TITLES: Final = {"p50": "p50", "p99": "p99", "p999": "p99.9"}
_HEADS: Final = ("rung", *_TITLES.values(), *(f"brought {t}" for t in _TITLES.values()), "CPU")


def report(results: Mapping[str, Any]) -> str:
    """Makes text of the results.

    Args:
        results: as ladder.Ladder.as_json gives them.

    Returns:
        Markdown: the machine, what each rung sets, a table for each number of connections, and
        the handbook's claims beside what was found.
    """
    parts = [_conditions(results), _settings(results)]
    for load in results["loads"]:
        rows = [row for row in results["rows"] if row["load"] == load]
        parts += [f"**{load}**", table(_HEADS, map(_cells, rows))]
    parts += ["**The handbook's claims beside these figures**", _claims(results)]
    return "\n\n".join(parts)


def with_report(page: str, text: str) -> str:
    """The page with a new text between its markers.

    Raises:
        ValueError: the page lacks a marker.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected the lines {BEGIN!r} and {END!r} in the page")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _conditions(results: Mapping[str, Any]) -> str:
    about = results["machine"]
    virtual = "Virtual machine, " if about["virtual"] else ""
    return (
        f"{virtual}{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, ONNX Runtime "
        f"{about['onnxruntime']}, Python {about['python']}, {about['date']}; "
        f"governor {about['governor']}, turbo {about['turbo']}. "
        f"{results['model']}; {plural(results['rounds'], 'round')} of {results['seconds']:g} s for "
        f"each figure, of servers that were started {results['starts']} times. Times are in µs; "
        "percentiles and CPU, the server's time per request, are medians of the rounds. "
        '"Brought" is the median of the rounds\' differences to the rung it stands on, which is '
        "the one above unless the list says otherwise, with an interval of "
        f"{CONFIDENCE:.0%}. In bold: the interval leaves out 0, and the difference is "
        f"{DIFFERENCE_MIN:.0%} or more. Other processes used "
        f"{statistics.median(results['others_cores']):.0%} of a core meanwhile in the median, "
        f"{max(results['others_cores']):.0%} at most; {plural(results['repeats'], 'figure')} "
        "where they used more had been taken again."
    )


def _settings(results: Mapping[str, Any]) -> str:
    lines = []
    above = None
    for rung in results["rungs"]:
        on = f" (on: {rung['base']})" if rung["base"] != above else ""
        lines.append(f"- {rung['name']}{on}: {rung['change']}")
        lines[-1] += "".join(f"; the server noted: {note}" for note in rung["notes"])
        above = rung["name"]
    lines += [
        f"- {name}: left out, this Lumen has no {key}" for name, key in results["missing"].items()
    ]
    return "\n".join(["Each rung sets:", "", *lines])


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    cells = [row["rung"] if not row["errors"] else f"{row['rung']} ({row['errors']} errors)"]
    cells += [amount(middle(row["latency_us"][name])) for name in PERCENTS]
    cells += [_brought(row["brought_us"].get(name)) for name in PERCENTS]
    return [*cells, amount(middle(row["cpu_us_per_request"]))]


def _brought(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    us = _signed(one["us"])
    us = f"**{us}**" if one["sign"] else us
    return f"{us} ({_signed(one['low'])} to {_signed(one['high'])})"


def _signed(us: float) -> str:
    return f"{us:+,.0f}" if abs(us) >= 100 else f"{us:+.1f}"


def _claims(results: Mapping[str, Any]) -> str:
    """Shares of the lowest rung's p50: the machines and servers differ too much for more."""
    load = results["loads"][0]
    rows = {row["rung"]: row for row in results["rows"] if row["load"] == load}
    first = statistics.median(rows[results["rungs"][0]["name"]]["latency_us"]["p50"])
    lines = []
    for rung in results["rungs"]:
        if rung["claim_ms"] is None or not rows[rung["name"]]["brought_us"]:
            continue
        one = rows[rung["name"]]["brought_us"]["p50"]
        lines.append(
            (
                rung["name"],
                f"-{rung['claim_ms']:g} ms",
                f"{-rung['claim_ms'] / CLAIM_START_MS:+.0%}",
                _brought(one),
                f"{one['us'] / first:+.1%}",
            )
        )
    heads = ("technique", "its claim", "of its 8 ms", "here, µs of p50", f"of {amount(first)} µs")
    return table(heads, lines)
