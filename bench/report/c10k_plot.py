"""Draws what c10k.py measured as one SVG file. Needs matplotlib, a development dependency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lumen_uring.ring.histogram import Histogram

_QUIET: Final = "#0072b2"
_CROWDED: Final = "#d55e00"
_PERCENTS: Final = (1, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.9)


def draw(
    result: Mapping[str, Any],
    curve: Sequence[tuple[float, int]],
    quiet: Histogram,
    crowded: Histogram,
    path: Path,
) -> None:
    """Draws connections over time, latency by percentile, and bytes per connection.

    Args:
        result: as c10k.py prints it.
        curve: seconds since the first connect, and connections then.
        quiet: latency of the active ones without the others; ns.
        crowded: beside them.
        path: the file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib  # type: ignore[import-not-found,unused-ignore]

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "lumen"
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    figure, (left, middle, right) = pyplot.subplots(
        1, 3, figsize=(12, 4), layout="constrained", width_ratios=(3, 4, 3)
    )
    left.plot(*zip(*curve, strict=True), color=_CROWDED, marker=".", markersize=3)
    left.set_xlim(0, max(0.1, 1.5 * result["crowd"]["ramp_seconds"]))
    left.set_ylim(bottom=0)
    left.set_xlabel("seconds")
    left.set_title(f"connections: {result['connects_per_second']:,} a second", fontsize=10)
    for histogram, colour, name in (
        (quiet, _QUIET, "without the others"),
        (crowded, _CROWDED, f"beside {result['connections'] - result['active']:,} others"),
    ):
        values = [histogram.percentile_ns(percent) / 1e6 for percent in _PERCENTS]
        middle.plot(range(len(_PERCENTS)), values, color=colour, label=name, marker=".")
    middle.set_xticks(range(len(_PERCENTS)), [f"{p:g}" for p in _PERCENTS], fontsize=7)
    middle.set_ylim(bottom=0)
    middle.set_xlabel("percentile")
    middle.set_title(f"ms until the answer, {result['active']} active connections", fontsize=10)
    middle.legend(fontsize=8, loc="lower right")
    _memory(right, result)
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _memory(axes: Any, result: Mapping[str, Any]) -> None:
    """Bars of bytes: the server's, the kernel's, and the kernel's largest caches."""
    names = ["server", "kernel", *list(result["kernel_caches"])[:6]]
    sizes = [result["user_bytes_per_connection"], result["kernel_bytes_per_connection"]]
    sizes += list(result["kernel_caches"].values())[:6]
    spots = range(len(names))
    axes.barh(spots, sizes, color=[_CROWDED, _QUIET] + ["#56b4e9"] * (len(names) - 2))
    axes.set_yticks(spots, names, fontsize=7)
    axes.invert_yaxis()
    axes.set_title("bytes per end of a connection", fontsize=10)
