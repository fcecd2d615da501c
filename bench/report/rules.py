"""What a benchmark's results say: finding figures in them, and rules that put them into words.

Called by bench_page.py and bench_plots.py, tested by tests/test_bench.py. Pure functions over what
bench.py writes. A rule must never call a difference real that the rounds do not show.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Results = Mapping[str, Any]
Cell = Mapping[str, Any]
Pair = tuple[str, str]  # queue and allocator

BASE: Final = ("mpmc", "lumen_arena")
ROUNDS_MIN: Final = 3
DIFFERENCE_MIN: Final = 0.03


def present(results: Results, key: str) -> list[str]:
    """What was measured, such as all workloads, in the results' order."""
    return list(dict.fromkeys(cell[key] for cell in results["cells"]))


def modes(results: Results) -> list[Pair]:
    """All pairs of queue and allocator, in the results' order."""
    return list(dict.fromkeys((cell["queue"], cell["allocator"]) for cell in results["cells"]))


def find(results: Results, workload: str, mode: Pair, connections: int | None) -> Cell | None:
    """The closed-loop cell of so many connections; None: the open-loop one."""
    for cell in results["cells"]:
        if (cell["workload"], cell["queue"], cell["allocator"]) != (workload, *mode):
            continue
        if connections is None and cell["loop"] == "open":
            return dict(cell)
        if cell["loop"] == "closed" and cell["connections"] == connections:
            return dict(cell)
    return None


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what is there; None when nothing is."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of one mode to another: median, smallest and largest of so many rounds."""

    middle: float
    low: float
    high: float
    rounds: int


def paired(mine: Sequence[float | None], theirs: Sequence[float | None]) -> Ratio | None:
    """Ratios made inside each round.

    Args:
        mine: one figure per round, None where a round failed.
        theirs: of the mode compared with.

    Returns:
        None without a round that has both.
    """
    pairs = zip(mine, theirs, strict=False)
    ratios = [a / b for a, b in pairs if a is not None and b]
    if not ratios:
        return None
    return Ratio(statistics.median(ratios), min(ratios), max(ratios), len(ratios))


def peak(results: Results, workload: str, mode: Pair) -> Cell | None:
    """The closed-loop cell with the best median throughput."""
    cells = [find(results, workload, mode, count) for count in results["connections"]]
    there = [cell for cell in cells if cell is not None and middle(cell["throughput_rps"])]
    return max(there, key=lambda cell: middle(cell["throughput_rps"]) or 0.0, default=None)


def saturated(results: Results) -> int:
    """The number of connections that stands for saturation: 16, or the nearest below."""
    counts: list[int] = results["connections"]
    return max([count for count in counts if count <= 16] or counts)


# ---- rules ----


def verdict(ratio: Ratio | None, what: str) -> tuple[str, int]:
    """Says what a ratio to the default mode is worth.

    Args:
        ratio: as `paired` gives it.
        what: of which throughput, such as "at best".

    Returns:
        Words, and 1, 0 or -1 for better, no telling, worse. A difference counts when there are
        enough rounds, all agree on its direction and it is 3 % or more.
    """
    if ratio is None:
        return f"no figure {what}", 0
    if ratio.rounds < ROUNDS_MIN:
        return f"too few rounds to tell {what}", 0
    if ratio.low <= 1.0 <= ratio.high or abs(ratio.middle - 1) < DIFFERENCE_MIN:
        return f"no difference that shows {what}", 0
    return f"{ratio.middle:.2f} times the throughput {what}", 1 if ratio.middle > 1 else -1


def rules(results: Results) -> str:
    """A sentence per mode: how it compares with the default, and what it is for.

    Args:
        results: as bench.py writes them.

    Returns:
        Markdown.
    """
    if BASE not in modes(results):
        return "Without `mpmc, lumen_arena` among the modes there is nothing to compare with."
    lines = [f"- **`{BASE[0]}`** is the default: {_default_reached(results)}."]
    lines += [
        f"- **`{queue}`**: {_against_base(results, (queue, BASE[1]))}"
        for queue in present(results, "queue")
        if queue != BASE[0]
    ]
    if "standard" in present(results, "allocator"):
        lines.append(f"- **`standard`** allocator: {_against_base(results, (BASE[0], 'standard'))}")
    rule = (
        "By rule, from the figures above: each mode against the default (`mpmc, lumen_arena`), at "
        "each one's best throughput and over the fewest connections. A difference counts when "
        f"there are {ROUNDS_MIN} rounds or more, all agree on its direction, and it is "
        f"{DIFFERENCE_MIN:.0%} or more."
    )
    return "\n\n".join((rule, "\n".join(lines)))


def _default_reached(results: Results) -> str:
    return "; ".join(_reached(results, workload) for workload in present(results, "workload"))


def _reached(results: Results, workload: str) -> str:
    best = peak(results, workload, BASE)
    if best is None:
        return f"no figure on {workload}"
    rate = middle(best["throughput_rps"])
    return (
        f"{amount(rate)} requests/s on {workload} over {plural(best['connections'], 'connection')}"
    )


def _against_base(results: Results, mode: Pair) -> str:
    """One sentence: words per workload, then what follows from them."""
    words, good, bad = [], [], []
    for workload in present(results, "workload"):
        said, sign = _compared(results, workload, mode)
        words.append(f"on {workload} {said}")
        if sign > 0:
            good.append(workload)
        elif sign < 0:
            bad.append(workload)
    ends = [f"a choice for models like {' and '.join(good)}"] if good else []
    ends += [f"not for models like {' and '.join(bad)}"] if bad else []
    return f"{'; '.join(words)}: {', '.join(ends) or 'no reason here to leave the default'}."


def _compared(results: Results, workload: str, mode: Pair) -> tuple[str, int]:
    """Words, and above 0 where the mode is the better one, below where it is the worse."""
    fewest = min(results["connections"])
    over_few = f"over {plural(fewest, 'connection')}"
    best = [peak(results, workload, each) for each in (mode, BASE)]
    few = [find(results, workload, each, fewest) for each in (mode, BASE)]
    said = [verdict(_ratio(best), "at best"), verdict(_ratio(few), over_few)]
    signs = [sign for _, sign in said]
    if signs == [0, 0] and said[0][0].startswith("no difference"):
        return "no difference that shows", 0
    return " and ".join(words for words, _ in said), sum(signs)


def _ratio(cells: Sequence[Cell | None]) -> Ratio | None:
    mine, theirs = cells
    if mine is None or theirs is None:
        return None
    return paired(mine["throughput_rps"], theirs["throughput_rps"])


# ---- words for numbers ----


def plural(count: int, noun: str) -> str:
    """A number and its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def amount(value: float | None) -> str:
    """A number of requests, for people."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are set flush right."""
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
