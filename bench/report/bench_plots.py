"""Draws a benchmark's results as SVG files for docs/BENCHMARKS.md.

Called by bench.py, which goes on without plots where matplotlib is missing: it is a
development dependency. The same figures give the same bytes. It must never leave a figure out or
cut an axis so that a difference looks larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.report.rules import middle

_COLOURS: Final = {
    "mpmc": "#0072b2",
    "scq": "#e69f00",
    "spsc": "#009e73",
    "naive": "#d55e00",
    "batched": "#cc79a7",
    "inline": "#56b4e9",
}
_LINES: Final = {"lumen_arena": "-", "standard": ":"}


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draws two pictures per workload.

    Args:
        results: as bench.py writes them.
        folder: where to.

    Returns:
        The files.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib  # type: ignore[import-not-found,unused-ignore]

    matplotlib.use("svg")
    # Text stays text, and nothing in the file depends on the day or on chance.
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "lumen"
    drawn = []
    for workload in dict.fromkeys(cell["workload"] for cell in results["cells"]):
        cells = [cell for cell in results["cells"] if cell["workload"] == workload]
        drawn.append(_lines(cells, workload, folder))
        drawn.append(_bars(cells, workload, folder))
    return drawn


def _lines(cells: list[Mapping[str, Any]], workload: str, folder: Path) -> Path:
    """Throughput and p99 over the number of connections."""
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    closed = [cell for cell in cells if cell["loop"] == "closed"]
    for queue, allocator in dict.fromkeys((c["queue"], c["allocator"]) for c in closed):
        mine = [c for c in closed if (c["queue"], c["allocator"]) == (queue, allocator)]
        style = {
            "color": _COLOURS.get(queue),
            "linestyle": _LINES.get(allocator, "-"),
            "marker": "o",
            "markersize": 3,
            "label": f"{queue}, {allocator}",
        }
        counts = [cell["connections"] for cell in mine]
        rates = [middle(cell["throughput_rps"]) or float("nan") for cell in mine]
        left.plot(counts, rates, **style)
        right.plot(counts, [_of(cell, "latency_us", "p99") / 1e3 for cell in mine], **style)
    for axes, title in ((left, "requests a second"), (right, "round trip p99, ms")):
        axes.set_title(f"{workload}: {title}", fontsize=10)
        axes.set_xlabel("connections")
        axes.set_xscale("log", base=2)
        axes.set_xticks(
            sorted({cell["connections"] for cell in closed}),
            [str(count) for count in sorted({cell["connections"] for cell in closed})],
        )
        axes.grid(alpha=0.3)
    left.set_ylim(bottom=0)
    right.set_yscale("log")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    return _save(figure, folder / f"throughput-{workload}.svg")


def _bars(cells: list[Mapping[str, Any]], workload: str, folder: Path) -> Path:
    """Time in the queue at half load."""
    from matplotlib import pyplot

    half = [cell for cell in cells if cell["loop"] == "open"]
    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    names = [f"{cell['queue']}\n{cell['allocator']}" for cell in half]
    for place, (name, shade) in enumerate((("mean", 1.0), ("p99", 0.45))):
        values = [_of(cell, "queue_us", name) for cell in half]
        spots = [index + 0.4 * place for index in range(len(half))]
        colours = [_COLOURS.get(cell["queue"]) for cell in half]
        axes.bar(spots, values, 0.38, color=colours, alpha=shade)
    axes.set_xticks([index + 0.2 for index in range(len(half))], names, fontsize=7)
    axes.set_yscale("log")
    axes.set_title(
        f"{workload}: µs in the queue at half load, mean (dark) and p99 (light)", fontsize=10
    )
    axes.grid(axis="y", alpha=0.3)
    return _save(figure, folder / f"queue-{workload}.svg")


def _of(cell: Mapping[str, Any], spread: str, name: str) -> float:
    value = (cell[spread] or {}).get(name)
    return float("nan") if value is None else float(value)


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return path
