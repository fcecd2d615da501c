"""The table and the picture of `make compare`, from its figures alone.

Called by compare.py and tests/test_bench.py. Lumen over HTTP and the peers are measured by
one client, wrk; Lumen over its native protocol by its own. Ratios are made inside a round and
between rows of one client only. It must never put a ratio between two clients' figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.common.places import PLACES
from bench.report.rules import amount, middle, paired, plural, table

WORKLOADS: Final = ("mlp", "squeezenet")
NATIVE: Final = ("lumen", "lumen inline", "lumen rgb8")
BY_WRK: Final = (
    *("lumen http", "lumen http inline", "fastapi", "triton python"),
    *("fastapi defaults", "triton python defaults"),
)
TARGETS: Final = (*NATIVE, *BY_WRK)
FIGURES: Final = ("throughput_rps", "errors", "cpu_us_per_request", "client_share")
PERCENTILES: Final = ("p50", "p99", "p999")
ABOUT: Final = """\
lumen: default settings, float32 tensors over the native protocol, Lumen's own load generator.
lumen inline: the same without a queue. lumen rgb8: SqueezeNet from 150 KB of uint8 pixels, which
only Lumen takes; the others get 602 KB of float32.
lumen http, lumen http inline: as above, but the Open Inference Protocol's binary tensors, wrk.
fastapi: uvicorn with uvloop and httptools, a process per core, raw bytes in and out, wrk.
triton python: the server in the nvidia-pytriton wheel with its PYTHON backend, an instance per
core, no batching, byte for byte the requests of lumen http but for its port, wrk. Triton's own
ONNX backend is not in that wheel. Both have one thread of ONNX Runtime per session.
fastapi defaults, triton python defaults: as their users write them, one process or instance whose
session has ONNX Runtime's defaults: one request at a time on all cores.
Ratios: what wrk measured is set beside lumen http, what Lumen's generator measured beside lumen.
client: who sent, and how much of its core it used; near 100 % it may be the client that shows."""
_HEADS: Final = (
    *("", "client", "connections", "requests/s", "p50 µs", "p99 µs", "CPU µs", "errors"),
    *("Lumen ÷ this: requests/s", "this ÷ Lumen: p50", "p99"),
)


def order(row: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Where a row belongs."""
    return (
        PLACES.index(row["place"]),
        WORKLOADS.index(row["workload"]),
        row["connections"],
        TARGETS.index(row["target"]),
    )


def report(results: Mapping[str, Any]) -> str:
    """Makes text of the results: a table per place and workload, with Lumen's advantage.

    Args:
        results: as compare.Comparison.as_json gives them.

    Returns:
        Markdown.
    """
    about = results["machine"]
    parts = [
        f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, ONNX Runtime "
        f"{about['onnxruntime']}, {about['date']}; {plural(results['rounds'], 'round')} "
        f"of {results['seconds']:g} s, medians; ratios are made inside a round.",
        ABOUT,
    ]
    rows = results["rows"]
    for place, workload in dict.fromkeys((row["place"], row["workload"]) for row in rows):
        mine = [row for row in rows if (row["place"], row["workload"]) == (place, workload)]
        where = (
            "the server on one core, the client on another; with their defaults FastAPI and Triton "
            "use both: ONNX Runtime places its threads itself, whatever the process is bound to"
            if place == "one-core"
            else "server and client share all cores"
        )
        parts += [f"**{workload}, {where}**", table(_HEADS, [_cells(row, mine) for row in mine])]
    parts += [f"{target} was not measured: {why}" for target, why in results["missing"].items()]
    return "\n\n".join(parts)


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draws what one client, wrk, got from everybody: bars of requests a second.

    Args:
        results: as compare.Comparison.as_json gives them.
        path: the SVG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib  # type: ignore[import-not-found,unused-ignore]

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "lumen"
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]

    mine = [row for row in results["rows"] if row["target"] in BY_WRK and row["place"] == PLACES[0]]
    panels = list(dict.fromkeys((row["workload"], row["connections"]) for row in mine))
    figure, all_axes = pyplot.subplots(
        1, len(panels), figsize=(5 * len(panels), 2.4), layout="constrained", squeeze=False
    )
    for axes, (workload, connections) in zip(all_axes[0], panels, strict=True):
        rows = [r for r in mine if (r["workload"], r["connections"]) == (workload, connections)]
        values = [middle(row["throughput_rps"]) or 0 for row in rows]
        colours = ["#0072b2" if row["target"].startswith("lumen") else "#999999" for row in rows]
        bars = axes.barh([row["target"] for row in rows], values, color=colours)
        axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3, fontsize=8)
        axes.set_xlim(0, 1.2 * max(values))
        axes.set_xticks([])
        axes.invert_yaxis()
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.set_title(f"{workload}, {connections} connections: requests a second", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _cells(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    by_wrk = row["target"] in BY_WRK
    share = middle(row["client_share"])
    client = ("wrk" if by_wrk else "own") + ("" if share is None else f", {share:.0%}")
    cells = [row["target"], client, str(row["connections"])]
    cells += [amount(middle(row["throughput_rps"]))]
    cells += [amount(middle(row[name])) for name in ("p50", "p99", "cpu_us_per_request")]
    cells.append(str(sum(errors or 0 for errors in row["errors"])))
    base = BY_WRK[0] if by_wrk else NATIVE[0]
    for other in rows:
        if (other["target"], other["connections"]) == (base, row["connections"]):
            more = paired(other["throughput_rps"], row["throughput_rps"])
            less = [paired(row[name], other[name]) for name in ("p50", "p99")]
            return cells + [f"{ratio.middle:.2f}x" if ratio else "-" for ratio in (more, *less)]
    return [*cells, "-", "-", "-"]
