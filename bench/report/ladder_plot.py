"""Draws what `make ladder` measured as one SVG file. Needs matplotlib, a development dependency."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.report.rules import middle

_COLOURS: Final = {"p50": "#0072b2", "p99": "#e69f00", "p999": "#d55e00"}
_LABELS: Final = {"p50": "p50", "p99": "p99", "p999": "p99.9"}


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draws the percentiles of each rung, with the interval of what it brought.

    Args:
        results: as ladder.Ladder.as_json gives them.
        path: the file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib  # type: ignore[import-not-found,unused-ignore]

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "lumen"
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    names = [rung["name"] for rung in results["rungs"]]
    loads = results["loads"]
    figure, panels = pyplot.subplots(
        1,
        len(loads),
        figsize=(5 * len(loads), 1.2 + 0.3 * len(names)),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for axes, load in zip(panels[0], loads, strict=True):
        rows = {row["rung"]: row for row in results["rows"] if row["load"] == load}
        _panel(axes, [rows[name] for name in names])
        axes.set_title(f"{load}: µs until the answer", fontsize=10)
    panels[0][0].set_yticks(range(len(names)), names, fontsize=8)
    panels[0][0].invert_yaxis()
    panels[0][0].legend(fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _panel(axes: Any, rows: list[Mapping[str, Any]]) -> None:
    """A dot per rung and percentile; its bar is the interval of the difference to its base."""
    for place, (name, colour) in enumerate(_COLOURS.items()):
        values = [middle(row["latency_us"][name]) or 0.0 for row in rows]
        spots = [index + 0.18 * (place - 1) for index in range(len(rows))]
        reach = [row["brought_us"].get(name) for row in rows]
        low = [0.0 if one is None else max(0.0, one["us"] - one["low"]) for one in reach]
        high = [0.0 if one is None else max(0.0, one["high"] - one["us"]) for one in reach]
        # A logarithmic axis has no room for a bar that ends below 0.
        low = [min(down, 0.99 * value) for down, value in zip(low, values, strict=True)]
        axes.errorbar(
            values, spots, xerr=[low, high], fmt="o", color=colour, markersize=4, elinewidth=1,
            label=_LABELS[name],
        )  # fmt: skip
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
